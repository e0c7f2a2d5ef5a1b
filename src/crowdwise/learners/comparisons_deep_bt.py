"""Scores of items from their features: Bradley-Terry with a network, with annotators as in ``crowd-bt``.

A network f gives every item a score from its features x, so that items without comparisons have one as well:

    z = f(x_left) - f(x_right)
    P(left), P(right), P(tie)  =  softmax( z/2, -z/2, tau )       (without ties, sigmoid(z))
    P_m(left) = eta_m P(left) + (1 - eta_m) P(right),             ties as they are

For the training loop a pair of items is an input with two or three classes, and an annotator is a confusion matrix that
swaps left and right with probability 1 - eta_m.

=============  ==================  ======  =========================================================
symbol         code                shape   meaning
=============  ==================  ======  =========================================================
f(x)           ``Siamese.score``   B       score of an input
tau            ``Siamese.tau``             log of Davidson's nu
logit eta_m    ``Swaps.theta``     M       reliability, with a Beta prior
=============  ==================  ======  =========================================================

Standard errors are those of the last layer (Laplace): given its inputs the scores are linear in its weights, whose
covariance is the inverse of the information of the comparisons. The uncertainty of the layers below is not in them, so
they are somewhat too small.

:func:`dpo_loss` is for direct preference optimisation with flip rates of annotators. With log probabilities of the
chosen and the rejected answer under the policy and under the reference model,

    h = beta [ (policy chosen - policy rejected) - (reference chosen - reference rejected) ],    l(h) = -log sigmoid(h)

============  ==========================================================  =====================
form          loss of one pair, with eps the annotator's flip rate        reference
============  ==========================================================  =====================
``plain``     l(h)                                                        Rafailov et al. 2023
``smoothed``  (1 - eps) l(h) + eps l(-h)                                  Mitchell 2023
``robust``    [ (1 - eps) l(h) - eps l(-h) ] / (1 - 2 eps)                Chowdhury et al. 2024
============  ==========================================================  =====================

Where an answer is flipped with probability eps, the expected robust loss is l of the true preference, so gradients are
unbiased for every eps (over 1/2 as well: an annotator who mostly flips carries as much information as one who does
not). Near 1/2 an answer carries no information, and its loss would be unbounded: such rows are an error.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from crowdwise.answers import comparisons_connectivity
from crowdwise.answers.comparisons_base import annotator_counts, item_counts
from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.answers.comparisons_likelihood import Likelihood, log_likelihood
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.core.constraints import Check, Count, Positive, checked, declared, is_number
from crowdwise.core.numerics import Floats, Ints, softmax
from crowdwise.core.result import Result
from crowdwise.data.comparisons import OUTCOMES, TIE, Comparisons
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners.devices import as_array
from crowdwise.learners.head import Head
from crowdwise.learners.inputs import Inputs, InputScale, PairInputs, chunks
from crowdwise.learners.network_estimator import NetworkEstimator
from crowdwise.learners.networks import Probe
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Batch


class Siamese(nn.Module):
    """The same network on both items of a pair: logits of left, right and (with ties) tie."""

    def __init__(self, scale: InputScale, body: nn.Module, ties: bool) -> None:
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


class Swaps(Head):
    """Annotators who swap left and right, each with a probability of their own."""

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


def is_beta(value: Any) -> bool:
    """Whether it is (a, b) with a > b > 1/2."""
    pair = isinstance(value, (tuple, list)) and len(value) == 2 and all(is_number(v) for v in value)
    return pair and value[0] > value[1] > 0.5


Beta = Annotated[Any, Check(is_beta, "(a, b) of a Beta distribution, a above b and b above 1/2")]


@declared
class DeepBT(NetworkEstimator):
    """Scores from a network on item features, trained on comparisons.

    Parameters
    ----------
    annotators
        Learn a reliability for every annotator; else all have the reliability 1.
    reliability
        (a, b): the prior of reliabilities, Beta(a, b).

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
    reliability: Beta = (10.0, 1.0)
    select: Literal["last", "votes"] = "last"

    def _training_data(self, inputs: Inputs, answers: Comparisons) -> tuple[Inputs, Votes]:
        return as_pairs(inputs, answers)

    def _head(self, votes: Votes, hidden: int) -> Head:
        return Swaps(votes.n_annotators, votes.n_classes, self.reliability, self.annotators)

    def _n_outputs(self, votes: Votes) -> int:
        return 1

    def _whole_network(self, scale: InputScale, body: nn.Module, votes: Votes) -> nn.Module:
        return Siamese(scale, body, votes.n_classes == 3)

    def _choices(self) -> Any:
        return OUTCOMES[: 2 if self.consensus_.tie is None else 3]

    def _result(self, trainer: Trainer, answers: Comparisons, gold: Ints | None, began: float) -> Ranking:
        table, theta, inputs = answers, self._fitted_head.theta, trainer.inputs
        assert isinstance(inputs, PairInputs)
        raw, hidden = self._scores(inputs.base)
        s, tau = raw - raw.mean(), self._tau()
        eta = as_array(torch.sigmoid(theta)) if self.annotators else np.ones(len(theta))
        matches = Matches.of(table, by_annotator=True, placed=False)
        errors, draws = last_layer(matches, hidden, s, tau, eta, self.weight_decay, np.random.default_rng(self.seed_))
        part = comparisons_connectivity.components(table.left, table.right, table.n_items)
        more = self._trace()
        if self.annotators:
            more["reliability"] = np.clip(eta, 1e-12, 1 - 1e-12)
            more["reliability_error"] = theta_errors(matches, s, eta, sum(self.reliability))
        return Ranking.of(
            self, table, scores=s, errors=errors, draws=draws, components=part, counts=item_counts(table),
            annotator_counts=annotator_counts(table, s), tie=tau, placed=table.placed,
            seconds=time.perf_counter() - began, seed=self.seed_, **more,
        )  # fmt: skip

    def _scores(self, inputs: Inputs) -> tuple[Floats, Floats]:
        """Scores of inputs, and the inputs of the last layer."""
        network = self._trainer.network
        assert isinstance(network, Siamese)
        network.eval()
        scores, hidden = [], []
        with torch.no_grad():
            for index in chunks(inputs, 512):
                x = inputs.rows(index).to(self._trainer.device)
                with Probe(network.body) as probe:
                    scores.append(as_array(network.score(x)))
                    hidden.append(as_array(probe.hidden))
        return np.concatenate(scores), np.concatenate(hidden)

    def _tau(self) -> float | None:
        tau = self._trainer.network.tau
        return None if tau is None else float(tau.detach())  # type: ignore[operator]

    @property
    def confusion_(self) -> Floats:
        """M x 2 x 2 (3 x 3 with ties): P(annotator m says l, given the outcome k)."""
        return self._confusions()

    def predict(self, X: Any, votes: Any = None) -> Floats:
        """The score of each input, on the scale of the ranking but not centred; the higher the better."""
        self._fitted()
        if votes is not None:
            raise InputError("Scores come from features alone: leave the comparisons out.")
        return self._scores(self._new_inputs(X))[0]

    def predict_proba(self, X: Any, votes: Any = None) -> Floats:
        """S x 2 (3 with ties): probabilities of the outcomes of comparisons of the rows of X, at reliability 1."""
        self._fitted()
        if not isinstance(votes, Comparisons):
            raise InputError("Say which rows of X to compare: predict_proba(X, comparisons).")
        s = self._scores(self._new_inputs(X, votes))[0]
        z = s[votes.left] - s[votes.right]
        sides, tau = [z / 2.0, -z / 2.0], self._tau()
        if tau is not None:
            sides.append(np.full(len(z), tau))
        return softmax(np.stack(sides, axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean log-likelihood of comparisons of the rows of X, for annotators of reliability 1."""
        p = self.predict_proba(X, y)
        if p.shape[1] == 2 and bool((y.outcome == TIE).any()):
            raise InputError("The comparisons hold ties, and the learner was fitted without: leave them out.")
        w = y.weights if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return float((w * np.log(p[np.arange(len(p)), y.outcome])).sum() / w.sum())


def as_pairs(base: Inputs, table: Comparisons) -> tuple[PairInputs, Votes]:
    """Comparisons as votes on pairs of inputs: an ordered pair of items is one input, with two or three classes."""
    key = table.left.astype(np.int64) * table.n_items + table.right
    pair, of = np.unique(key, return_inverse=True)
    ties = bool((table.outcome == TIE).any())
    votes = Votes.from_codes(
        of, table.annotator, table.outcome, items=np.arange(len(pair)), annotators=table.annotators,
        classes=OUTCOMES[: 3 if ties else 2], weight=table.weight, on_duplicate="all",
    )  # fmt: skip
    return PairInputs(base, pair // table.n_items, pair % table.n_items), votes


def last_layer(
    matches: Matches, hidden: Floats, s: Floats, tau: float | None, eta: Floats, decay: float, rng: np.random.Generator
) -> tuple[Floats, npt.NDArray[np.float32]]:
    """Standard errors and draws of scores that are linear in the last layer's weights, given its inputs."""
    x = s if tau is None else np.append(s, tau)
    _, rows = log_likelihood(matches, Likelihood("reliable", tau is not None, 0.0), x, logit_of(eta))
    # The information about z, at most v; near zero where an annotator answers by chance.
    known = matches.weight * np.maximum(rows["v"] - rows["q"], 0.0)
    phi = hidden - hidden.mean(axis=0)
    gap = phi[matches.winner] - phi[matches.loser]
    ridge = max(decay * float(matches.weight.sum()), 1e-6)
    information = gap.T @ (known[:, None] * gap) + ridge * np.eye(phi.shape[1])
    spread = phi @ np.linalg.cholesky(np.linalg.inv(information))
    R = int(np.clip(500_000 // len(s), 200, 4000))
    draws = s + rng.standard_normal((R, spread.shape[1])) @ spread.T
    return np.sqrt((spread**2).sum(axis=1)), draws.astype(np.float32)


def logit_of(eta: Floats) -> Floats:
    return np.log(np.maximum(eta, 1e-12)) - np.log(np.maximum(1.0 - eta, 1e-12))


def theta_errors(matches: Matches, s: Floats, eta: Floats, strength: float) -> Floats:
    """Standard errors of the logits of reliabilities, given the scores and the strength a + b of their prior."""
    d = slice(0, matches.decided)
    z, m, w = s[matches.winner[d]] - s[matches.loser[d]], matches.annotator[d], matches.weight[d]
    r = 1.0 / (1.0 + np.exp(-np.clip(logit_of(eta)[m] + z, -500, 500)))
    n = np.bincount(m, w, len(eta)) + strength - 1.0
    information = n * eta * (1.0 - eta) - np.bincount(m, w * r * (1.0 - r), len(eta))
    return np.asarray(1.0 / np.sqrt(np.maximum(information, 0.05 * n * eta * (1.0 - eta) + 1e-12)))


@checked
def reward_groups(
    X: Any, comparisons: Comparisons, n_groups: Count = 2, *, rounds: Count = 5, random_state: int = 0, **settings: Any
) -> tuple[list[DeepBT], Floats]:  # fmt: skip
    """A mixture of reward models by EM: each annotator answers by the network of one of several groups.

    Returns the fitted networks, that of the largest group first, and M x G: the probability of each annotator to be of
    a group. What annotator m would answer is ``sum_g membership[m, g] models[g].predict_proba(X, comparisons)``. A
    round trains every network on all comparisons, each weighted by its annotator's membership, from that of
    ``mixture-bt`` on; ``settings`` are those of :class:`DeepBT`, without reliabilities: one who turns answers round is
    of another group.

    >>> import numpy as np, crowdwise as cw
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(30, 2))
    >>> i, j, who = rng.integers(0, 30, 1200), rng.integers(1, 30, 1200), rng.integers(0, 10, 1200)
    >>> j = (i + j) % 30
    >>> z = np.where(who < 5, x[i, 0] - x[j, 0], x[i, 1] - x[j, 1])
    >>> lost = rng.random(1200) > 1 / (1 + np.exp(-3 * z))
    >>> pairs = cw.Comparisons.from_codes(i, j, who, lost.astype(int), items=range(30), annotators=range(10))
    >>> models, membership = cw.reward_groups(x, pairs, rounds=1, network="linear", epochs=5, lr=0.05)
    >>> membership.argmax(axis=1).reshape(2, 5).std(axis=1).tolist()
    [0.0, 0.0]
    """
    from crowdwise.answers.comparisons_mixture import MixtureBT

    own = {"annotators": False, "random_state": random_state} | settings
    first = MixtureBT(n_groups=n_groups, random_state=random_state).fit(comparisons).consensus_
    membership = np.asarray(first.membership)
    M, who, w = comparisons.n_annotators, comparisons.annotator, comparisons.weights
    outcome = np.arange(len(who)), comparisons.outcome
    for _ in range(rounds):
        parts = [replace(comparisons, weight=w * np.maximum(member[who], 1e-6)) for member in membership.T]
        models = [DeepBT(**own).fit(X, part) for part in parts]
        log_p = np.stack([np.log(model.predict_proba(X, comparisons)[outcome]) for model in models], axis=1)
        total = np.stack([np.bincount(who, w * one, M) for one in log_p.T], axis=1)
        membership = softmax(total + np.log(membership.mean(axis=0)))
    order = np.argsort(-membership.mean(axis=0), kind="stable")
    return [models[g] for g in order.tolist()], membership[:, order]


BLIND = 0.02
"""Flip rates closer to 1/2 than this have no robust loss."""


@checked
def dpo_loss(
    policy_chosen: Tensor, policy_rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, *,
    beta: Positive = 0.1, form: Literal["plain", "smoothed", "robust"] = "plain", flip_rate: Any = None,
    annotator: Tensor | None = None, weight: Tensor | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:  # fmt: skip
    """The loss of pairs of answers.

    Parameters
    ----------
    policy_chosen, policy_rejected, reference_chosen, reference_rejected
        B log probabilities of the answers, summed over their tokens.
    beta
        How strongly the policy is tied to the reference model.
    form
        ``"plain"``, ``"smoothed"`` or ``"robust"``.
    flip_rate
        How often answers are flipped, from 0 to 1: one number, one for each of the B pairs, or (with
        ``annotator``) one for each annotator, such as ``1 - ranking.reliability``. For ``"smoothed"`` and ``"robust"``.
    annotator
        B codes of annotators, into ``flip_rate``.
    weight
        B weights of the pairs.
    reduction
        ``"mean"`` (by weight), ``"sum"``, or ``"none"`` for the B losses.

    >>> import torch
    >>> chosen, rejected, none = torch.tensor([-1.0, -2.0]), torch.tensor([-3.0, -1.0]), torch.zeros(2)
    >>> rates = torch.tensor([0.0, 0.3])
    >>> who = torch.tensor([0, 1])
    >>> loss = dpo_loss(chosen, rejected, none, none, beta=1.0, form="robust", flip_rate=rates, annotator=who)
    >>> round(float(loss), 3)
    1.095
    """
    parts = (policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    if len({p.shape for p in parts}) != 1 or policy_chosen.ndim != 1:
        raise InputError(f"Expected four rows of B log probabilities and found {[tuple(p.shape) for p in parts]}.")
    if not all(bool(torch.isfinite(p).all()) for p in parts):
        raise InputError("Some log probabilities are infinite or NaN: leave those pairs out.")
    if (flip_rate is None) != (form == "plain"):
        raise ParameterError(f"form={form!r} {'takes no' if form == 'plain' else 'needs a'} flip_rate.")
    h = beta * ((policy_chosen - policy_rejected) - (reference_chosen - reference_rejected))
    straight, flipped = -logsigmoid(h), -logsigmoid(-h)
    if form == "plain":
        loss = straight
    else:
        eps = _flip_rates(flip_rate, annotator, h)
        if form == "smoothed":
            loss = (1.0 - eps) * straight + eps * flipped
        else:
            blind = (1.0 - 2.0 * eps).abs() < 2.0 * BLIND
            if bool(blind.any()):
                raise InputError(
                    f"{int(blind.sum())} pairs have a flip rate within {BLIND:g} of 1/2, such as "
                    f"{float(eps.expand_as(h)[blind.expand_as(h)][0]):.3f}: their answers "
                    "carry no information. Leave them out."
                )
            loss = ((1.0 - eps) * straight - eps * flipped) / (1.0 - 2.0 * eps)
    if weight is not None:
        if weight.shape != h.shape or bool((weight < 0).any()):
            least = f", down to {float(weight.min()):g}" if weight.numel() else ""
            raise InputError(f"Expected {len(h)} weights of at least 0 and found {tuple(weight.shape)}{least}.")
        loss = loss * weight
    if reduction == "none":
        return loss
    return loss.sum() / (1.0 if reduction == "sum" else len(h) if weight is None else weight.sum().clamp_min(1e-12))


def _flip_rates(flip_rate: Any, annotator: Tensor | None, h: Tensor) -> Tensor:
    """One flip rate for each pair, or a single one."""
    eps = torch.as_tensor(flip_rate, dtype=h.dtype, device=h.device)
    if not bool(((eps >= 0.0) & (eps <= 1.0)).all()):
        raise ParameterError("flip_rate: expected numbers from 0 to 1, the share of flipped answers.")
    if annotator is None:
        if eps.ndim > 0 and eps.shape != h.shape:
            raise InputError(
                f"flip_rate has the shape {tuple(eps.shape)} and there are {len(h)} pairs: give one, one for each "
                "pair, or with annotator=codes one for each annotator."
            )
        return eps
    if eps.ndim != 1 or annotator.shape != h.shape:
        raise InputError("With annotator, expected one flip rate for each annotator and one annotator for each pair.")
    if len(annotator) and (int(annotator.min()) < 0 or int(annotator.max()) >= len(eps)):
        raise InputError(f"annotator runs to {int(annotator.max())} and flip_rate names {len(eps)} annotators.")
    return eps[annotator]
