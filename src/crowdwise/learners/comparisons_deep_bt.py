"""Scores of items from their features: Bradley-Terry with a network, seen through annotators as in ``crowd-bt``.

A network f gives every item a score from its features x, so that items nobody compared have one as well:

    z = f(x_left) - f(x_right)
    P(left), P(right), P(tie)  =  softmax( z/2, -z/2, tau )       (without ties, sigmoid(z))
    P_m(left) = eta_m P(left) + (1 - eta_m) P(right),             ties as they are

Both sides go through the same network. To the training loop a pair of items is an input with two or three classes, and
annotators are a confusion matrix that turns left and right round with probability 1 - eta_m.

=============  ==================  ======  =========================================================
symbol         code                shape   meaning
=============  ==================  ======  =========================================================
f(x)           ``Siamese.score``   B       score of an input
tau            ``Siamese.tau``             log of Davidson's nu
logit eta_m    ``Turned.theta``    M       reliability, with a Beta prior
=============  ==================  ======  =========================================================

Standard errors are those of the last layer (Laplace): given its inputs the scores are linear in its weights, and the
information of the comparisons about these is inverted. How unsure the layers below are is not in them, so they are
somewhat too small. Fails where features do not tell what makes items better, and where there are few items:
``crowd-bt`` needs no features.

Reference: X. Chen et al., Pairwise ranking aggregation in a crowdsourced setting, WSDM 2013, for the annotators.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from crowdwise.answers import comparisons_connectivity
from crowdwise.answers.comparisons_base import annotator_counts, item_counts
from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.answers.comparisons_likelihood import Likelihood, log_likelihood
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.core.checks import check_flag
from crowdwise.core.numerics import Floats
from crowdwise.core.result import Result, plain
from crowdwise.data import encoding
from crowdwise.data.comparisons import OUTCOMES, TIE, Comparisons
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners import networks
from crowdwise.learners.devices import find_device, seeded
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import Inputs, Scale, as_inputs
from crowdwise.learners.learner import Learner, seed_of
from crowdwise.learners.networks import Probe
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training import Callback
from crowdwise.learners.vote_edges import Batch

__all__ = ["DeepBT"]


class PairInputs:
    """Pairs of inputs as inputs: row p is (x of left item, x of right item)."""

    def __init__(self, base: Inputs, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> None:
        self.base, self.left, self.right = base, left, right

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, *self.base.shape)

    def __len__(self) -> int:
        return len(self.left)

    def rows(self, index: npt.NDArray[np.int64]) -> Tensor:
        both = np.concatenate([self.left[index], self.right[index]]).astype(np.int64)
        which, back = np.unique(both, return_inverse=True)  # an item in several pairs is read once
        x = self.base.rows(which)[torch.as_tensor(back)]
        return torch.stack([x[: len(index)], x[len(index) :]], dim=1)


class Siamese(nn.Module):
    """The same network on both items of a pair: logits of left, right and (with ties) tie."""

    def __init__(self, scale: Scale, body: nn.Module, ties: bool) -> None:
        super().__init__()
        self.tau = nn.Parameter(torch.zeros(())) if ties else None
        self.scale, self.body = scale, body

    def score(self, x: Tensor) -> Tensor:
        """B scores of B inputs."""
        out: Tensor = self.body(self.scale(x))
        if out.shape != (len(x), 1):
            raise ParameterError(
                f"network: it gave {tuple(out.shape)} for {len(x)} inputs: expected one score for each, ({len(x)}, 1)."
            )
        return out[:, 0]

    def forward(self, x: Tensor) -> Tensor:
        s = self.score(x.flatten(0, 1)).reshape(len(x), 2)
        half = 0.5 * (s[:, 0] - s[:, 1])
        sides = [half, -half] if self.tau is None else [half, -half, self.tau.expand_as(half)]
        return torch.stack(sides, dim=1)


class Turned(Head):
    """Annotators who say left for right and right for left, each with a probability of their own."""

    def __init__(self, n_annotators: int, n_classes: int, beta: tuple[float, float], reliable: bool) -> None:
        super().__init__(n_annotators, n_classes)
        self.a, self.b = beta[0] - 0.5, beta[1] - 0.5  # on the scale of arcsin(sqrt(eta)), as in crowd-bt
        self.reliable = reliable
        start = float(np.log(self.a / self.b)) if reliable else 40.0
        self.theta = nn.Parameter(torch.full((n_annotators,), start), requires_grad=reliable)
        self.total = 1.0

    def start(self, votes: Votes) -> None:
        self.total = float(votes.weights.sum())

    def confusion(self) -> Tensor:
        eta = torch.sigmoid(self.theta)
        theta = eta.new_zeros((self.n_annotators, self.n_classes, self.n_classes))
        theta[:, 0, 0] = theta[:, 1, 1] = eta
        theta[:, 0, 1] = theta[:, 1, 0] = 1.0 - eta
        if self.n_classes == 3:
            theta[:, TIE, TIE] = 1.0
        return theta

    def loss(self, batch: Batch) -> Tensor:
        loss = -batch.mean(self.vote_log_probs(batch))
        if not self.reliable:
            return loss
        log = nn.functional.logsigmoid
        return loss - (self.a * log(self.theta) + self.b * log(-self.theta)).sum() / self.total


@dataclass(kw_only=True, eq=False, repr=False)
class DeepBT(Learner):
    """Scores from a network on item features, trained on comparisons.

    Parameters
    ----------
    annotators
        Learn a reliability for every annotator; else all are taken to answer straight.
    reliability
        (a, b): reliabilities are taken to be spread like Beta(a, b), before anything is seen.

    Examples
    --------
    >>> import numpy as np, crowdwise as cw
    >>> x = np.random.default_rng(0).normal(size=(60, 5))
    >>> score = x @ np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    >>> i, j = np.random.default_rng(1).integers(0, 60, (2, 3000))
    >>> i, j = i[i != j], j[i != j]
    >>> won = np.random.default_rng(2).random(len(i)) < 1 / (1 + np.exp(score[j] - score[i]))
    >>> pairs = cw.Comparisons.from_codes(i, j, np.zeros(len(i), int), 1 - won, items=range(60), annotators=["ann"])
    >>> learner = DeepBT(network="linear", epochs=20, lr=1e-2, random_state=0).fit(x, pairs)
    >>> bool(np.corrcoef(learner.predict(x), score)[0, 1] > 0.95)
    True
    """

    key: ClassVar[str] = "deep-bt"
    table: ClassVar[type] = Comparisons
    result: ClassVar[type[Result]] = Ranking

    annotators: bool = True
    reliability: tuple[float, float] = (10.0, 1.0)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_flag(self, "annotators")
        value = self.reliability
        fine = isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(v, (int, float)) for v in value)
        if not fine or not value[0] > value[1] > 0.5:
            raise ParameterError(
                f"reliability={value!r}: expected (a, b), above 1/2, of a Beta distribution, the first larger."
            )
        if self.select == "gold":
            raise ParameterError("select='gold': comparisons have no true scores to select by. Use 'last' or 'votes'.")

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any = None, gold: Any = None, *, callback: Callback | None = None) -> Self:
        """Learn from features and comparisons.

        Parameters
        ----------
        X
            One input per item of the comparisons, in the order of ``comparisons.items``.
        y
            :class:`~crowdwise.Comparisons`.
        gold
            Not used: leave it out.
        callback
            Called with a :class:`crowdwise.learners.trainer.Epoch` after every epoch; training stops where it returns
            True.
        """
        began = time.perf_counter()
        self._check_parameters()
        if not isinstance(y, Comparisons):
            raise InputError(
                f"deep-bt expects features and Comparisons, fit(X, comparisons), and found {type(y).__name__} in place "
                "of the comparisons."
            )
        if gold is not None:
            raise InputError("deep-bt learns from comparisons alone: leave truth out.")
        base = as_inputs(X, y.items)
        if len(base) != y.n_items:
            raise InputError(
                f"X has {len(base)} rows and the comparisons are of {y.n_items} items: row n of X must be item n "
                "(comparisons.items gives their order)."
            )
        self.seed_ = seed_of(self.random_state)
        self.annotators_, self.shape_ = y.annotators, base.shape
        if len(base.shape) == 1:
            self.n_features_in_ = base.shape[0]
        inputs, votes = as_pairs(base, y)
        self.classes_ = votes.classes
        train, held = self._split(votes)
        self._train(inputs, train, held, None, callback)
        self.consensus_ = self._ranking(base, y, began)  # type: ignore[assignment]
        return self

    def _prepare(
        self, inputs: Inputs, train: Votes, held: Votes | None, gold: npt.NDArray[np.int32] | None
    ) -> Trainer:  # fmt: skip
        assert isinstance(inputs, PairInputs)
        device = find_device(self.device)
        with seeded(device):
            torch.manual_seed(self.seed_)
            scale = Scale.of(inputs.base) if self.scale else None
            network, head = self._build(train, inputs.base.shape, scale)
            return Trainer(network, head, inputs, train, self._plan(), held=held, device=device)

    def _build(self, votes: Votes, shape: tuple[int, ...], scale: Scale | None) -> tuple[nn.Module, Head]:
        body = networks.build(self.network, shape, 1)
        network = Siamese(Scale.identity(shape) if scale is None else scale, body, votes.n_classes == 3)
        return network, self._head(votes, shape, networks.hidden_layer(body).in_features)

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return Turned(votes.n_annotators, votes.n_classes, self.reliability, self.annotators)

    def _classes_of(self, found: Any) -> npt.NDArray[Any]:
        return encoding.to_vocabulary(list(OUTCOMES[: 2 if found.tie is None else 3]))

    def _ranking(self, base: Inputs, table: Comparisons, began: float) -> Ranking:
        network, head = self._trainer.network, self._trainer.head
        assert isinstance(network, Siamese) and isinstance(head, Turned)
        raw, hidden = self._scores(base)
        s = raw - raw.mean()
        tau = None if network.tau is None else float(network.tau.detach())
        eta = torch.sigmoid(head.theta.detach()).double().cpu().numpy() if self.annotators else np.ones(len(head.theta))
        games = Matches.of(table, by_annotator=True, placed=False)
        errors, draws = last_layer(games, hidden, s, tau, eta, self.weight_decay, np.random.default_rng(self.seed_))
        part = comparisons_connectivity.components(table.left, table.right, table.n_items)
        more: dict[str, Any] = {}
        if self.annotators:
            more = {
                "reliability": np.clip(eta, 1e-12, 1 - 1e-12),
                "reliability_error": theta_errors(games, s, eta, self),
            }
        return Ranking(
            method=self.key,
            params={name: plain(value) for name, value in self.get_params(deep=False).items()},
            item_names=table.items, annotator_names=table.annotators, scores=s, errors=errors, draws=draws,
            components=part, counts=item_counts(table), annotator_counts=annotator_counts(table, s),
            trace=-np.array([epoch.loss for epoch in self.history_]), iterations=len(self.history_), converged=True,
            seconds=time.perf_counter() - began, seed=self.seed_, n_answers=table.n_answers, tie=tau,
            placed=table.placed, kind=table.kind, **more,
        )  # fmt: skip

    def _scores(self, inputs: Inputs) -> tuple[Floats, Floats]:
        """Scores of inputs, and what the last layer made them of."""
        network = self._trainer.network
        assert isinstance(network, Siamese)
        network.eval()
        scores, hidden = [], []
        with torch.no_grad():
            for lo in range(0, len(inputs), 512):
                x = inputs.rows(np.arange(lo, min(lo + 512, len(inputs)))).to(self._trainer.device)
                with Probe(network.body) as probe:
                    scores.append(network.score(x).double().cpu().numpy())
                    hidden.append(probe.hidden.double().cpu().numpy())
        return np.concatenate(scores), np.concatenate(hidden)

    # ---------------------------------------------------------------- using it

    def predict(self, X: Any, votes: Any = None) -> Floats:
        """The score of each input, on the scale of the ranking but not centred; the higher the better."""
        self._fitted()
        if votes is not None:
            raise InputError("Scores come from features alone: leave the comparisons out.")
        return self._scores(self._inputs(X))[0]

    def predict_proba(self, X: Any, votes: Any = None) -> Floats:
        """S x 2 (3 with ties): probabilities of the outcomes of some comparisons of the rows of X, for one who answers
        straight."""
        self._fitted()
        if not isinstance(votes, Comparisons):
            raise InputError("Say which rows of X to compare: predict_proba(X, comparisons).")
        s = self._scores(self._inputs(X, votes.items))[0]
        z = s[votes.left] - s[votes.right]
        network = self._trainer.network
        assert isinstance(network, Siamese)
        sides = [z / 2.0, -z / 2.0]
        if network.tau is not None:
            sides.append(np.full(len(z), float(network.tau.detach())))
        logit = np.stack(sides, axis=1)
        p = np.exp(logit - logit.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean log likelihood of comparisons of the rows of X, for ones who answer straight."""
        p = self.predict_proba(X, y)
        if p.shape[1] == 2 and bool((y.outcome == TIE).any()):
            raise InputError("The comparisons hold ties, and the learner was fitted without: leave them out.")
        w = y.weights if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return float((w * np.log(p[np.arange(len(p)), y.outcome])).sum() / w.sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = None, None
        return tags


# -------------------------------------------------------------------- pieces


def as_pairs(base: Inputs, table: Comparisons) -> tuple[PairInputs, Votes]:
    """Comparisons as votes on pairs of inputs: two items in their places are one input, with two or three classes."""
    key = table.left.astype(np.int64) * table.n_items + table.right
    pair, of = np.unique(key, return_inverse=True)
    ties = bool((table.outcome == TIE).any())
    votes = Votes.from_codes(
        of, table.annotator, table.outcome, items=np.arange(len(pair)), annotators=table.annotators,
        classes=OUTCOMES[: 3 if ties else 2], weight=table.weight, on_duplicate="all",
    )  # fmt: skip
    return PairInputs(base, pair // table.n_items, pair % table.n_items), votes


def last_layer(
    games: Matches, hidden: Floats, s: Floats, tau: float | None, eta: Floats, decay: float, rng: np.random.Generator
) -> tuple[Floats, npt.NDArray[np.float32]]:
    """Standard errors and draws of scores that are linear in the last layer's weights, given its inputs."""
    x = s if tau is None else np.append(s, tau)
    theta = np.log(np.maximum(eta, 1e-12)) - np.log(np.maximum(1.0 - eta, 1e-12))
    model = Likelihood("reliable", tau is not None, 0.0)
    _, rows = log_likelihood(games, model, x, theta)
    # What is known of z, at most v; where an annotator answers by chance, next to nothing.
    known = games.weight * np.maximum(rows["v"] - rows["q"], 0.0)
    phi = hidden - hidden.mean(axis=0)
    gap = phi[games.winner] - phi[games.loser]
    ridge = max(decay * float(games.weight.sum()), 1e-6)
    information = gap.T @ (known[:, None] * gap) + ridge * np.eye(phi.shape[1])
    root = np.linalg.cholesky(np.linalg.inv(information))
    spread = phi @ root
    R = int(np.clip(500_000 // len(s), 200, 4000))
    draws = s + rng.standard_normal((R, spread.shape[1])) @ spread.T
    return np.sqrt((spread**2).sum(axis=1)), draws.astype(np.float32)


def theta_errors(games: Matches, s: Floats, eta: Floats, learner: DeepBT) -> Floats:
    """Standard errors of the logits of reliabilities, given the scores."""
    d = slice(0, games.decided)
    z, m, w = s[games.winner[d]] - s[games.loser[d]], games.annotator[d], games.weight[d]
    theta = np.log(np.maximum(eta, 1e-12)) - np.log(np.maximum(1.0 - eta, 1e-12))
    r = 1.0 / (1.0 + np.exp(-np.clip(theta[m] + z, -500, 500)))
    said = np.bincount(m, w, len(eta)) + sum(learner.reliability) - 1.0
    information = said * eta * (1.0 - eta) - np.bincount(m, w * r * (1.0 - r), len(eta))
    return 1.0 / np.sqrt(np.maximum(information, 0.05 * said * eta * (1.0 - eta) + 1e-12))
