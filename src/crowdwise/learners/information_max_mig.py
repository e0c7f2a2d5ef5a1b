"""Max-MIG: a classifier of inputs and an aggregator of votes that tell each other as much as they can.

Given the class, an input and the votes on it are independent; how annotators depend on each other does not matter.
So the classifier h(x) and the aggregator g(votes) are trained to share information about *the same* item and none
about different ones. What copied or common mistakes share among the votes alone, the inputs cannot tell, and the gain
does not reward it.

    kappa[i, j] = sum_k h(x_i)[k] g(votes_j)[k] / p[k]
    gain        = mean_i a(kappa[i, i]) - mean_{i != j} b(kappa[i, j])

============  ==================  ==================
gain          a(kappa)            b(kappa)
============  ==================  ==================
``kl``        1 + log kappa       kappa
``pearson``   2 (kappa - 1)       kappa^2 - 1
``js``        log 2k / (1 + k)    log (1 + k) / 2
============  ==================  ==================

==============  ===========  ===========  ==================================================================
symbol          code         shape        equation
==============  ===========  ===========  ==================================================================
h(x)            ``log_f``    B x K        softmax of the network
W[m, k, l]      ``W``        M x K x K    starts at log T[m], T the confusions against the vote shares
g(votes)        ``log_g``    B x K        softmax_k ( log p[k] + sum over votes of W[m, k, l] )
p[k]            ``log_p``    K            the class distribution: given, or learned
==============  ===========  ===========  ==================================================================

At the optimum W[m] is the log confusion matrix of m (up to constants), and zero for annotators who add nothing to the
others. The forecaster, which looks at input and votes, is h g / p, normalised.

The gain does not change when the classes swap names; they are called what those annotators call them to whom the
aggregator listens (``meant``).

When it fails: where the votes' start already means something else than the classes (most annotators share one
mistake; see ``start``), where items have many votes and a batch is tiny, and where inputs do not tell classes apart.

Reference: P. Cao, Y. Xu, Y. Kong and Y. Wang, Max-MIG: an information theoretic approach for joint learning from
crowds, ICLR 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from crowdwise.core.checks import check_choice, check_number
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners import losses, networks
from crowdwise.learners.head import FLOOR, Head
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.learner import HOLDOUT, Learner
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training import Callback, Epoch
from crowdwise.learners.vote_edges import Batch, Edges, log_softmax

GAINS = ("kl", "pearson", "js")
RESTARTS, NOTHING = 3, 0.02
"""How often an even start is tried again, with other first weights, while its gain on held-out items is nothing."""
EVEN = 2.0
"""What an item's votes add up to, where all of them say the same, in the even start."""


def information_gain(log_h: Tensor, log_g: Tensor, log_p: Tensor, kind: str = "kl") -> Tensor:
    """The gain between N rows of classifier and aggregator, which belong together row by row."""
    N = len(log_h)
    joint = torch.logsumexp(log_h + log_g - log_p, dim=1)
    ratio = (log_h - log_p).exp() @ log_g.exp().T
    if kind == "kl":
        same, other = 1.0 + joint.clamp_min(np.log(FLOOR)), ratio
    elif kind == "pearson":
        same, other = 2.0 * (joint.exp() - 1.0), ratio**2 - 1.0
    else:
        same, other = np.log(2.0) + joint - torch.log1p(joint.exp()), torch.log1p(ratio) - np.log(2.0)
    if N == 1:  # no other item to compare with
        return same.mean()
    return same.mean() - (other.sum() - other.diagonal().sum()) / (N * (N - 1))


def gain_gradients(log_h: Tensor, log_g: Tensor, log_p: Tensor, kind: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """:func:`information_gain` and its gradients at log h, log g and log p.

    With u_i = d a / d log kappa[i, i] and V[i, j] = b'(kappa[i, j]) off the diagonal, that at log h[i, k] is

        u_i h g / p / kappa / N  -  (h / p)[i, k] (V g)[i, k] / (N (N - 1)),

    that at log g the same with h / p and g, V and V' exchanged, and that at log p minus the first, summed over items.
    """
    N = len(log_h)
    ratio_h, g = (log_h - log_p).exp(), log_g.exp()
    log_both = log_h + log_g - log_p
    joint = torch.logsumexp(log_both, dim=1)
    both = (log_both - joint[:, None]).exp()
    ratio = ratio_h @ g.T
    if kind == "kl":
        low = float(np.log(FLOOR))
        same, u = 1.0 + joint.clamp_min(low), (joint >= low).to(joint.dtype)
        other, V = ratio, torch.ones_like(ratio)
    elif kind == "pearson":
        kappa = joint.exp()
        same, u = 2.0 * (kappa - 1.0), 2.0 * kappa
        other, V = ratio**2 - 1.0, 2.0 * ratio
    else:
        more = 1.0 + joint.exp()
        same, u = np.log(2.0) + joint - more.log(), 1.0 / more
        other, V = torch.log1p(ratio) - np.log(2.0), 1.0 / (1.0 + ratio)
    at_h = both * (u / N)[:, None]
    if N == 1:  # no other item to compare with
        return same.mean(), at_h, at_h, -at_h.sum(dim=0)
    pairs = N * (N - 1)
    value = same.mean() - (other.sum() - other.diagonal().sum()) / pairs
    V.fill_diagonal_(0.0).div_(pairs)
    at_g = at_h - g * (V.T @ ratio_h)
    at_h = at_h - ratio_h * (V @ g)
    return value, at_h, at_g, -at_h.sum(dim=0)


def vote_confusions(votes: Votes, floor: float) -> Floats:
    """M x K x K: how each annotator's labels fall against the vote shares of their items, plus ``floor``."""
    M, K = votes.n_annotators, votes.n_classes
    share = votes.shares()[votes.item] * votes.weights[:, None]
    counts = np.zeros((M * K, K))
    np.add.at(counts, votes.annotator.astype(np.int64) * K + votes.label, share)
    table = counts.reshape(M, K, K).transpose(0, 2, 1)
    total = table.sum(axis=2, keepdims=True)
    return np.asarray(np.divide(table, total, out=np.zeros_like(table), where=total > 0.0) + floor)


def meant(W: Floats, votes: Votes) -> Ints:
    """Which row of W each class is: the gain is the same whatever the classes are called, so those decide to whom it
    listens. A label should count for the class of its name, summed over the votes."""
    from scipy.optimize import linear_sum_assignment

    own = W - W.mean(axis=1, keepdims=True)
    count = np.bincount(
        votes.annotator.astype(np.int64) * votes.n_classes + votes.label,
        weights=votes.weights,
        minlength=W.shape[0] * W.shape[2],
    )
    tells = np.einsum("mkl,ml->lk", own, count.reshape(W.shape[0], W.shape[2]))
    return np.asarray(linear_sum_assignment(-tells)[1])


class Aggregator(Head):
    """g(votes): a weight for each annotator, class and label, summed over an item's votes."""

    def __init__(
        self, n_annotators: int, n_classes: int, gain: str, prior: Tensor, tuned: bool, floor: float, begin: str
    ) -> None:
        super().__init__(n_annotators, n_classes)
        self.gain, self.floor, self.begin_at = gain, floor, begin
        self.W = nn.Parameter(torch.zeros(n_annotators, n_classes, n_classes))
        self.p = nn.Parameter(prior.log(), requires_grad=tuned)

    def start(self, votes: Votes) -> None:
        if self.begin_at == "votes":
            W = np.log(vote_confusions(votes, self.floor))
        else:
            per_item = votes.weights.sum() / max(int((np.diff(votes.indptr) > 0).sum()), 1)
            W = np.broadcast_to(EVEN / max(per_item, 1.0) * np.eye(votes.n_classes), self.W.shape)
        with torch.no_grad():
            self.W.copy_(torch.as_tensor(W.copy()))

    @property
    def log_p(self) -> Tensor:
        return torch.log_softmax(self.p, dim=0)

    def log_g(self, batch: Batch) -> Tensor:
        """B x K; an annotator the head does not know adds nothing."""
        known = batch.annotator < self.n_annotators
        weight = torch.where(known, batch.weight, torch.zeros_like(batch.weight))
        columns = self.W[batch.annotator.clamp_max(self.n_annotators - 1), :, batch.label]
        return torch.log_softmax(self.log_p + batch.total(weight[:, None] * columns), dim=1)

    def loss(self, batch: Batch) -> Tensor:
        """Minus the gain, with its gradients as in :mod:`crowdwise.learners.losses`."""
        W, log_p, K = self.W.detach(), self.log_p.detach(), self.n_classes
        cell = (batch.annotator * (K * K) + batch.label)[:, None] + torch.arange(0, K * K, K, device=W.device)
        log_h = log_softmax(batch.logits.detach(), dim=1)
        log_g = log_softmax(log_p + batch.total(batch.weight[:, None] * W.take(cell)), dim=1)
        gain, at_h, at_g, at_p = gain_gradients(log_h, log_g, log_p, self.gain)
        at_h = log_h.exp() * at_h.sum(dim=1, keepdim=True) - at_h
        at_g = log_g.exp() * at_g.sum(dim=1, keepdim=True) - at_g
        rows = at_g.index_select(0, batch.row) * batch.weight[:, None]
        grads: list[tuple[Tensor, Tensor | losses.Rows]] = [
            (batch.logits, at_h), (self.W, torch.zeros_like(W).put_(cell, rows, accumulate=True)),
        ]  # fmt: skip
        if self.p.requires_grad:
            at_p = at_g.sum(dim=0) - at_p
            grads.append((self.p, at_p - log_p.exp() * at_p.sum()))
        return losses.known(-gain, *grads)

    def forecast(self, batch: Batch) -> Tensor:
        return torch.log_softmax(batch.log_f + self.log_g(batch) - self.log_p, dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class MaxMIG(Learner):
    """Classifier and aggregator by mutual information: survives annotators who copy one another.

    Parameters
    ----------
    gain
        ``"kl"``, ``"pearson"`` or ``"js"``: the divergence behind the information.
    prior
        The class distribution p: ``"uniform"``, ``"votes"`` (how often each class was voted for), ``"tuned"`` (learned,
        from uniform), or K probabilities.
    floor
        Added to the confusions against the vote shares before their logarithm is where W starts.
    start
        Where W starts: at the ``"votes"`` (the paper's start, right for most crowds); ``"even"``, where every label
        counts a little for its own class, whoever gave it; or ``"both"``, which trains from each (from the even one up
        to four times, until it finds something), leaves the votes' start only where the other gains over twice as much
        on items that were held out with all their votes, and trains the winner again on all items. The votes are the
        wrong start where most of them come from copies of somebody who knows nothing: there the aggregator begins so
        sure of the copies that nothing else is ever heard.

    Attributes
    ----------
    aggregator_
        M x K x K: W[m, k, l], what m's label l adds to class k.
    start_, held_out_gain_
        The start that was kept, and its gain on the votes that were held out (0 where none were).
    """

    key: ClassVar[str] = "max-mig"
    gain: str = "kl"
    prior: Any = "uniform"
    floor: float = 0.01
    start: str = "votes"
    _kept: ClassVar[tuple[str, ...]] = ("start_", "held_out_gain_")

    @property
    def aggregator_(self) -> Floats:
        self._fitted()
        head = self._trainer.head
        assert isinstance(head, Aggregator)
        return np.asarray(head.W.detach().double().cpu().numpy())

    def _train(
        self, inputs: Inputs, train: Votes, held: Votes | None, gold: npt.NDArray[np.int32] | None,
        callback: Callback | None,
    ) -> None:  # fmt: skip
        seed, ended = self.seed_, False

        def tell(epoch: Epoch) -> bool:
            nonlocal ended
            ended = callback is not None and callback(epoch) is True
            return ended

        tried: list[tuple[float, Trainer, list[Epoch], str]] = []
        for turn in range(2 + RESTARTS if self.start == "both" else 1):
            self._begin = self.start if self.start != "both" else "even" if turn else "votes"
            self.seed_ = seed + max(turn - 1, 0)
            self._trainer = self._prepare(inputs, train, held, gold)
            self.history_ = self._trainer.run(tell, self._file(turn))
            self._name_classes(train)
            tried.append((self._held_out_gain(held), self._trainer, self.history_, self._begin))
            if ended or (turn and tried[-1][0] > NOTHING):  # it found something; another even start would find the same
                break
        # A gain below nothing, from few held-out items, is no reason to leave the votes.
        best = max(range(len(tried)), key=lambda turn: tried[turn][0] if turn else 2.0 * max(tried[0][0], 0.0))
        self.held_out_gain_, self._trainer, self.history_, self.start_ = tried[best]
        if self.start == "both" and not ended:
            self._again(inputs, best, seed, gold, callback)
        self.seed_ = seed

    def _again(
        self, inputs: Inputs, turn: int, seed: int, gold: npt.NDArray[np.int32] | None, callback: Callback | None
    ) -> None:
        """The start that was chosen once more, on all items; kept unless it is caught where nothing is found."""
        kept = self._trainer, self.history_
        self._begin, self.seed_ = self.start_, seed + max(turn - 1, 0)
        self._trainer = self._prepare(inputs, self._everything, None, gold)
        self.history_ = self._trainer.run(callback, self._file(2 + RESTARTS))
        self._name_classes(self._everything)
        if self._held_out_gain(self._everything) < 0.5 * self.held_out_gain_:
            self._trainer, self.history_ = kept
        del self._everything

    def _file(self, turn: int) -> Path | None:
        """The checkpoint of each training."""
        if self.checkpoint is None:
            return None
        file = Path(self.checkpoint)
        return file.with_name(f"{file.stem}-{turn}{file.suffix}") if turn else file

    def _held_out_gain(self, held: Votes | None) -> float:
        """The gain between the classifier and the aggregator of votes held out; 0 where there are none."""
        if held is None:
            return 0.0
        trainer = self._trainer
        assert isinstance(trainer.head, Aggregator)
        index = np.flatnonzero(np.diff(held.indptr) > 0)
        batches = list(trainer.batches(Edges.of(held, trainer.device), index=index))
        log_h = torch.cat([batch.log_f for batch in batches])
        log_g = torch.cat([trainer.head.log_g(batch) for batch in batches])
        with torch.no_grad():
            return float(information_gain(log_h, log_g, trainer.head.log_p, self.gain))

    def _name_classes(self, votes: Votes) -> None:
        """Call each class by the name that those mean by it to whom the aggregator listens."""
        trainer = self._trainer
        head = trainer.head
        assert isinstance(head, Aggregator)
        order = meant(head.W.detach().double().cpu().numpy(), votes)
        last = networks.hidden_layer(trainer.network)
        if np.array_equal(order, np.arange(len(order))) or last.out_features != len(order):
            return
        place = torch.as_tensor(order, device=trainer.device)
        with torch.no_grad():
            for rows in (last.weight, last.bias, head.p):
                if rows is not None:
                    rows.copy_(rows[place])
            head.W.copy_(head.W[:, place])
        head.settle(trainer.log_probs(), trainer.edges)

    def _split(self, votes: Votes) -> tuple[Votes, Votes | None]:
        if self.start != "both":
            return super()._split(votes)
        # Whole items: of a few held-out votes the aggregator hears only part of what it has learned to put together.
        rng = np.random.default_rng(self.seed_)
        share = HOLDOUT if self.holdout is None else self.holdout
        out = rng.permutation(np.flatnonzero(np.diff(votes.indptr) > 0))
        out = out[: max(round(share * len(out)), 2)]
        held = np.isin(votes.item, out)
        self._everything = votes
        if held.all():
            raise InputError(f"holdout={share:g} of {len(out)} items leaves none to train on: give more items.")
        return votes.select(~held), votes.select(held)

    def _needs_held_out(self) -> bool:
        return self.start == "both" or super()._needs_held_out()

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        tuned = isinstance(self.prior, str) and self.prior == "tuned"
        return Aggregator(
            votes.n_annotators,
            votes.n_classes,
            self.gain,
            self._prior(votes),
            tuned,
            self.floor,
            getattr(self, "_begin", "votes"),
        )

    def _prior(self, votes: Votes) -> Tensor:
        K = votes.n_classes
        if isinstance(self.prior, str):
            check_choice(self, "prior", ("uniform", "votes", "tuned"))
            p = votes.shares().mean(axis=0) if self.prior == "votes" else np.full(K, 1.0 / K)
        else:
            p = np.asarray(self.prior, dtype=np.float64)
            if p.shape != (K,) or not (np.isfinite(p).all() and (p > 0).all()):
                raise ParameterError(f"prior={self.prior!r}: expected {K} positive probabilities, one for each class.")
        p = np.maximum(p, 1e-6)
        return torch.as_tensor(p / p.sum(), dtype=torch.float32)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self, "gain", GAINS)
        check_number(self, "floor", above=0.0)
        check_choice(self, "start", ("votes", "even", "both"))
