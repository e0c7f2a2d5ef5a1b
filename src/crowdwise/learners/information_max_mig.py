"""Max-MIG: a classifier of inputs and an aggregator of votes that share as much information as possible.

Given the class, an input and the votes on it are independent; how annotators depend on each other does not matter.
So the classifier h(x) and the aggregator g(votes) are trained to share information about *the same* item and none
about different ones. Copied or common mistakes are information that only the votes share, not the inputs, and the gain
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
others. The posterior from inputs and votes is h g / p, normalised.

The gain does not change when the classes swap names; they are named after the labels that the aggregator weighs for
them (``match_classes``).

Reference: P. Cao, Y. Xu, Y. Kong and Y. Wang, Max-MIG: an information theoretic approach for joint learning from
crowds, ICLR 2019.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.core import em
from crowdwise.core.constraints import Check, Positive, declared, is_number
from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints, safe_log
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners import losses, networks
from crowdwise.learners.devices import as_array, log_softmax
from crowdwise.learners.head import FLOOR, Head
from crowdwise.learners.learner import Learner, fitted_default
from crowdwise.learners.network_estimator import HOLDOUT
from crowdwise.learners.trainer import Trainer, TrainingData
from crowdwise.learners.training_settings import Callback, Epoch
from crowdwise.learners.vote_edges import Batch, Edges, used_items

NEARLY_EVEN = 0.05
"""A divergence from even classes, in nats, that confusions alone can make: equally common classes of real crowds come
out as uneven as .04."""

RESTARTS, NO_GAIN = 3, 0.02
"""How often an even start is repeated, with other first weights, while its gain on held-out items is near zero."""
EVEN = 2.0
"""The sum of the weights of an item's votes, where all of them agree, in the even start."""


def gain_gradients(log_h: Tensor, log_g: Tensor, log_p: Tensor, kind: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gain between N rows of classifier and aggregator, which belong together, and its gradients at their logs.

    With u_i = d a / d log kappa[i, i] and V[i, j] = b'(kappa[i, j]) off the diagonal, that at log h[i, k] is

        u_i h g / p / kappa / N  -  (h / p)[i, k] (V g)[i, k] / (N (N - 1)),

    that at log g the same with h / p and g, V and V' exchanged, and that at log p minus the first, summed over items.
    """
    N = len(log_h)
    log_ratio = log_h - log_p
    log_both, ratio_h, g = log_ratio + log_g, log_ratio.exp(), log_g.exp()
    joint = torch.logsumexp(log_both, dim=1)
    both = (log_both - joint[:, None]).exp()
    if kind == "kl":  # all b' are 1, and sums over pairs are products of sums
        low, pairs = float(np.log(FLOOR)), max(N * (N - 1), 1)
        own = both * ((joint >= low).to(joint.dtype) / N)[:, None]
        h_sum, g_sum, same = ratio_h.sum(dim=0), g.sum(dim=0), 1.0 + joint.clamp_min(low)
        value = same.mean() - ((h_sum * g_sum).sum() - joint.exp().sum()) / pairs
        at_h, at_g = own - ratio_h * (g_sum - g) / pairs, own - g * (h_sum - ratio_h) / pairs
        return value, at_h, at_g, -at_h.sum(dim=0)
    ratio = ratio_h @ g.T
    if kind == "pearson":
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


def rare_shares(votes: Votes) -> Floats:
    """N x K: shares of the votes, each weighted by - log of how often its annotator gives that label.

    The frequencies of an annotator include K votes of the crowd's.
    """
    K, count = votes.n_classes, label_counts(votes)
    crowd = count.sum(axis=0) / max(float(count.sum()), FLOOR)
    often = (count + K * crowd) / (count.sum(axis=1, keepdims=True) + K)
    weight = -votes.weights * safe_log(often)[votes.annotator, votes.label]
    shares = np.full((len(votes), K), FLOOR)
    np.add.at(shares, (votes.item, votes.label), weight)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def vote_confusions(votes: Votes, smoothing: float, rare: bool = False) -> Floats:
    """M x K x K: the shares of each annotator's labels, given the vote shares of their items, plus ``smoothing``."""
    shares = rare_shares(votes) if rare else votes.shares()
    table = em.statistics(Part.of(votes), shares).table().transpose(0, 2, 1)
    total = table.sum(axis=2, keepdims=True)
    return np.asarray(np.divide(table, total, out=np.zeros_like(table), where=total > 0.0) + smoothing)


def label_counts(votes: Votes) -> Floats:
    """M x K: the weight of each annotator's votes for each label."""
    count = np.zeros((votes.n_annotators, votes.n_classes))
    np.add.at(count, (votes.annotator, votes.label), votes.weights)
    return count


def match_classes(W: Floats, votes: Votes) -> Ints:
    """Which row of W each class is: the gain is invariant to permutations of the classes, so the assignment is chosen
    in which labels weigh most for the class of their name, summed over the votes."""
    from scipy.optimize import linear_sum_assignment

    own = W - W.mean(axis=1, keepdims=True)
    return np.asarray(linear_sum_assignment(-np.einsum("mkl,ml->lk", own, label_counts(votes)))[1])


class Aggregator(Head):
    """g(votes): a weight for each annotator, class and label, summed over an item's votes."""

    def __init__(
        self, n_annotators: int, n_classes: int, gain: str, prior: Tensor, tuned: bool, smoothing: float, begin: str
    ) -> None:
        super().__init__(n_annotators, n_classes)
        self.gain, self.smoothing, self.begin_at = gain, smoothing, begin
        self.W = nn.Parameter(torch.zeros(n_annotators, n_classes, n_classes))
        self.p = nn.Parameter(prior.log(), requires_grad=tuned)

    def start(self, votes: Votes) -> None:
        if self.begin_at in ("votes", "rare"):
            W = np.log(vote_confusions(votes, self.smoothing, self.begin_at == "rare"))
        else:
            per_item = votes.weights.sum() / max(int(used_items(votes).sum()), 1)
            W = np.broadcast_to(EVEN / max(per_item, 1.0) * np.eye(votes.n_classes), self.W.shape)
        with torch.no_grad():
            self.W.copy_(torch.as_tensor(W.copy()))

    @property
    def log_p(self) -> Tensor:
        return torch.log_softmax(self.p, dim=0)

    def log_g(self, batch: Batch) -> Tensor:
        """B x K; the votes of unseen annotators have no weight."""
        weight = self.or_unseen(batch, batch.weight, lambda: torch.zeros_like(batch.weight))
        columns = self.W[self.known_codes(batch), :, batch.label]
        return torch.log_softmax(self.log_p + batch.total(weight[:, None] * columns), dim=1)

    def loss(self, batch: Batch) -> Tensor:
        """Minus the gain, with its gradients as in :mod:`crowdwise.learners.losses`."""
        W, log_p, K = self.W.detach(), self.log_p.detach(), self.n_classes
        cell = batch.cells(K)
        log_h = log_softmax(batch.logits.detach(), dim=1)
        log_g = log_softmax(log_p + batch.total(batch.weight[:, None] * W.take(cell)), dim=1)
        gain, at_h, at_g, at_p = gain_gradients(log_h, log_g, log_p, self.gain)
        at_h = log_h.exp() * at_h.sum(dim=1, keepdim=True) - at_h
        at_g = log_g.exp() * at_g.sum(dim=1, keepdim=True) - at_g
        rows = at_g.index_select(0, batch.row) * batch.weight[:, None]
        grads = [(batch.logits, at_h), (self.W, torch.zeros_like(W).put_(cell, rows, accumulate=True))]
        if self.p.requires_grad:
            at_p = at_g.sum(dim=0) - at_p
            grads.append((self.p, at_p - log_p.exp() * at_p.sum()))
        return losses.with_gradients(-gain, *grads)

    def posterior_log_probs(self, batch: Batch) -> Tensor:
        return torch.log_softmax(batch.log_f + self.log_g(batch) - self.log_p, dim=1)


Probabilities = Annotated[
    Any,
    Check(lambda value: np.ndim(value) == 1 and all(is_number(v) and v > 0 for v in value), "K positive probabilities"),
]


class Attempt(NamedTuple):
    """One training of Max-MIG."""

    gain: float
    trainer: Trainer
    history: list[Epoch]
    start: str


def held_out_gain(trainer: Trainer, votes: Votes) -> float:
    """The gain between the classifier and the aggregator of some votes."""
    head: Any = trainer.head
    edges, index = Edges.of(votes, trainer.device), np.flatnonzero(used_items(votes))
    batches = list(trainer.batches(edges, trainer.inputs, index))
    with torch.no_grad():
        log_h = torch.cat([batch.log_f for batch in batches])
        log_g = torch.cat([head.log_g(batch) for batch in batches])
        return float(gain_gradients(log_h, log_g, head.log_p, head.gain)[0])


def name_classes(trainer: Trainer, votes: Votes) -> None:
    """Permute the classes of network and aggregator so that labels weigh for the class of their name."""
    head: Any = trainer.head
    order = match_classes(as_array(head.W), votes)
    last = networks.hidden_layer(trainer.network)
    if np.array_equal(order, np.arange(len(order))) or last.out_features != len(order):
        return
    place = torch.as_tensor(order, device=trainer.device)
    with torch.no_grad():
        for rows in (last.weight, last.bias, head.p):
            if rows is not None:
                rows.copy_(rows[place])
        head.W.copy_(head.W[:, place])
    head.finish(trainer.log_probs(trainer.inputs), trainer.edges)


def class_shares(votes: Votes, weight: Floats | None = None) -> Floats:
    """How common the classes are by the consensus of the votes, items weighted; all alike where it is nearly even."""
    voted, K = used_items(votes), votes.n_classes
    several = len(np.unique(votes.annotator)) > 1 and K > 1
    q = fitted_default(votes).posterior if several else votes.shares()
    p = q[voted].mean(axis=0) if weight is None else np.average(q[voted], axis=0, weights=weight[voted])
    uneven = float((p * np.log(np.maximum(p * K, 1e-12))).sum())
    return np.full(K, 1.0 / K) if uneven < NEARLY_EVEN else np.asarray(p)


@declared
class MaxMIG(Learner):
    """Classifier and aggregator by mutual information: robust to annotators who copy one another.

    Parameters
    ----------
    gain
        ``"kl"``, ``"pearson"`` or ``"js"``: the divergence behind the information.
    prior
        The class distribution p: ``"votes"`` (by the consensus of the votes; uniform where that is nearly even, which
        confusions alone can explain), ``"uniform"`` (as in the paper's data: rare classes are then found too often),
        ``"tuned"`` (learned, from uniform), or K probabilities.
    smoothing
        Added to the confusions against the vote shares; W starts at the logarithm of the sum.
    start
        Where W starts: at the ``"votes"`` (the paper's start, right for most crowds); ``"rare"``, at the votes, where
        labels count more the more rarely an annotator gives them, for crowds in which many say the same of all items;
        ``"even"``, the same small weight of every label for its own class; or ``"both"``, which trains from each (from
        the even one up to four times, until it has a gain), prefers the even start only where it gains over twice as
        much on items that were held out with all their votes, and trains the better one again on all items. The votes
        are the wrong start where most of them are copies of an uninformative annotator: the aggregator then starts so
        confident of the copies that the other votes have no influence.

    Attributes
    ----------
    aggregator_
        M x K x K: W[m, k, l], what m's label l adds to class k.
    start_, held_out_gain_
        The start that was chosen, and its gain on the held-out votes (0 where none were held out).
    """

    key: ClassVar[str] = "max-mig"
    saved: ClassVar[tuple[str, ...]] = ("start_", "held_out_gain_")
    gain: Literal["kl", "pearson", "js"] = "kl"
    prior: Literal["votes", "uniform", "tuned"] | Probabilities = "votes"
    smoothing: Positive = 0.01
    start: Literal["votes", "rare", "even", "both"] = "votes"

    @property
    def aggregator_(self) -> Floats:
        return as_array(self._fitted_head.W)

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        seed, ended = self.seed_, False

        def report(epoch: Epoch) -> bool:
            nonlocal ended
            ended = callback is not None and callback(epoch) is True
            return ended

        tried: list[Attempt] = []
        for turn in range(2 + RESTARTS if self.start == "both" else 1):
            begin = self.start if self.start != "both" else "even" if turn else "votes"
            tried.append(self._attempt(data, data.held_out, begin, seed + max(turn - 1, 0), turn, report))
            if ended or (turn and tried[-1].gain > NO_GAIN):  # another even start would find the same
                break
        # A negative gain, from few held-out items, is not a reason to prefer the even start.
        best = max(range(len(tried)), key=lambda turn: tried[turn].gain if turn else 2.0 * max(tried[0].gain, 0.0))
        chosen = tried[best]
        self.start_, self.held_out_gain_ = chosen.start, chosen.gain
        if self.start == "both" and not ended:
            # Once more on all items; rejected where it is caught at a gain near zero.
            whole = TrainingData(data.inputs, self._everything, None, data.gold)
            again = self._attempt(whole, whole.votes, self.start_, seed + max(best - 1, 0), 2 + RESTARTS, callback)
            chosen = chosen if again.gain < 0.5 * self.held_out_gain_ else again
        self.__dict__.pop("_everything", None)
        self.seed_, self.history_ = seed, chosen.history
        return chosen.trainer

    def _attempt(
        self, data: TrainingData, measured: Votes | None, begin: str, seed: int, turn: int, callback: Callback | None
    ) -> Attempt:  # fmt: skip
        """One training, from one start; its gain is that on the measured votes, 0 where there are none."""
        self._begin, self.seed_ = begin, seed
        trainer = self._prepare(data)
        history = trainer.run(callback, self._checkpoint_of(str(turn)) if turn else self.checkpoint)
        name_classes(trainer, data.votes)
        return Attempt(0.0 if measured is None else held_out_gain(trainer, measured), trainer, history, begin)

    def _split(self, votes: Votes) -> tuple[Votes, Votes | None]:
        if self.start != "both":
            return super()._split(votes)
        # Whole items: a few held-out votes of an item are only part of what the aggregator combines.
        share, self._everything = HOLDOUT if self.holdout is None else self.holdout, votes
        out = np.random.default_rng(self.seed_).permutation(np.flatnonzero(used_items(votes)))
        out = out[: max(round(share * len(out)), 2)]
        held = np.isin(votes.item, out)
        if held.all():
            raise InputError(f"holdout={share:g} of {len(out)} items leaves none to train on: give more items.")
        return votes.select(~held), votes.select(held)

    def _needs_held_out(self) -> bool:
        return self.start == "both" or super()._needs_held_out()

    def _head(self, votes: Votes, hidden: int) -> Head:
        M, K, begin = votes.n_annotators, votes.n_classes, getattr(self, "_begin", "votes")
        tuned = isinstance(self.prior, str) and self.prior == "tuned"
        return Aggregator(M, K, self.gain, self._prior(votes), tuned, self.smoothing, begin)

    def _prior(self, votes: Votes) -> Tensor:
        K = votes.n_classes
        if isinstance(self.prior, str):
            p = class_shares(votes, self._item_weight) if self.prior == "votes" else np.full(K, 1.0 / K)
        else:
            p = np.asarray(self.prior, dtype=np.float64)
            if p.shape != (K,):
                raise ParameterError(f"prior={self.prior!r}: expected {K} positive probabilities, one for each class.")
        p = np.maximum(p, 1e-6)
        return torch.as_tensor(p / p.sum(), dtype=torch.float32)
