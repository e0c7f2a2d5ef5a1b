"""What everybody else says: the posterior of an item without the vote that is being judged.

An annotator judged by a consensus they took part in looks better than they are, the more so the fewer votes an item
has. Here each vote is judged by the posterior of its item given the *other* votes. For that a consensus, of whatever
method, is read as confusion matrices: its expected counts, shrunk towards the crowd's and the annotator's own accuracy
(:func:`crowdwise.core.priors.learned`), which makes a log-linear model in which one vote can be taken out again. From
there ``PASSES`` passes of EM make matrices and posterior fit each other: shares of votes are no probabilities, and
likelihood alone is too sure of itself where votes are few. (On 18 kinds of simulated crowds, 95 % intervals of accuracy
then held the truth 92 to 97 % of the time, 95 % on average, from whatever consensus; from the posterior of
``dawid-skene`` as it stands, 72 to 98 %.) Where those passes would overturn labels that the consensus was sure of, they
are not made: the meaning of the classes is the consensus' to say.

==============  =====================  =============================================================================
symbol          code                   equation
==============  =====================  =============================================================================
theta[m,k,l]    ``theta``              (c + b) / sum_l (c + b), c the consensus' counts
pi[k]           ``prior``              mean of the consensus' posterior
r[s, k]         ``others(k)``          P(item of vote s is k | votes but s) ∝ exp( logit[n, k] - w log theta[m, k, l] )
x[m, l, k]      ``counts``             sum over m's votes for l of r[s, k]
a[s]            ``right``              r[s, l]: the probability that vote s is right, by the others
w[m]            ``accuracy()``         maximises sum_s log( w a[s] + (1 - w) (1 - a[s]) / (K - 1) )
==============  =====================  =============================================================================

Memory grows with the votes and with annotators x classes², never with votes x classes. Items whose truth is given are
certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import kernels
from crowdwise.core import em, priors
from crowdwise.core.consensus import Consensus
from crowdwise.core.em import Params, Part
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log, share_interval, softmax
from crowdwise.core.starts import clamp
from crowdwise.data.frames import is_missing
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError, ParameterError, listing

MOST_CELLS = 2**25
"""The most cells (annotators x classes x classes) that are looked at."""
PASSES = 20
MOST_GROUPS = 200
SURE, OVERTURNED = 0.9, 0.25
"""The passes are not made where they change more than a quarter of the labels that the consensus gave 90 % or more."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """A consensus read as confusion matrices, and what the others say about each vote (see the module)."""

    votes: Votes
    theta: Floats
    pseudo: Floats
    prior: Floats
    logit: Floats
    """N x K, not normalised; the truth where it is known has all the mass."""
    gold: Ints
    """N class codes, -1 unknown."""
    cell: Ints
    item: Ints
    log_theta: Floats
    norm: Floats
    """S: log of the sum over classes of exp(logit - log theta)."""
    counts: Floats
    """M x K x K (annotator, truth, label), by the others."""
    right: Floats

    def others(self, k: int) -> Floats:
        """r[s, k] for all votes."""
        return np.asarray(np.exp(self._without(k) - self.norm))

    def _without(self, k: int) -> Floats:
        return _leave_out(self.votes, self.logit, self.gold, self.log_theta, self.cell, self.item, k)

    def posterior(self) -> Floats:
        """N x K: what all votes say."""
        return clamp(softmax(self.logit), self.gold)

    def accuracy(self, level: float = 0.95) -> tuple[Floats, Floats, Floats]:
        """w[m] and the two ends of its interval (:func:`crowdwise.core.numerics.share_interval`); M each."""
        K, m = self.votes.n_classes, self.votes.annotator
        n = np.bincount(m, minlength=self.votes.n_annotators).astype(np.float64)
        a, wrong = self.right, (1.0 - self.right) / (K - 1.0)
        w = np.full(len(n), 0.5)
        for _ in range(100):
            own = w[m]
            p = own * a / np.maximum(own * a + (1.0 - own) * wrong, 1e-300)
            new = np.clip((self.per_annotator(p) + 0.5) / (n + 1.0), 1e-6, 1.0 - 1e-6)
            done, w = float(np.abs(new - w).max()) < 1e-5, new
            if done:
                break
        right, unsure = self.per_annotator(p), self.per_annotator(p * (1.0 - p))
        low, high = share_interval(right, n, unsure, level)
        share = np.divide(right, n, out=np.full_like(n, np.nan), where=n > 0)
        return share, low, high

    def per_annotator(self, x: Floats) -> Floats:
        """The sum of a quantity over each annotator's votes."""
        return np.bincount(self.votes.annotator, weights=x, minlength=self.votes.n_annotators).astype(np.float64)


def read_evidence(votes: Votes, consensus: Consensus, truth: Any = None) -> Evidence:
    """The evidence in votes and their consensus; ``truth`` (as in ``fit``) overrules the consensus where given."""
    check_match(votes, consensus)
    M, K, N = votes.n_annotators, votes.n_classes, len(votes)
    if M * K * K > MOST_CELLS:
        raise InputError(
            f"{M:,} annotators x {K:,}² classes are too many confusion matrices to judge. "
            "Merge rare classes, or look at fewer annotators: votes.only([...]) and its own consensus."
        )
    gold = np.full(N, -1, dtype=np.int32) if truth is None else votes.encode_truth(truth)
    part = Part.of(votes, gold)
    cell, weight = part.cell, part.weight
    first = clamp(consensus.posterior, gold)
    found, pseudo, pi = _refined(part, first)
    log_theta = safe_log(normalise(found + pseudo, axis=1)).reshape(M * K, K)
    logit = kernels.reference.logits(votes.indptr, cell, weight, log_theta, np.log(pi)[None])
    logit -= logit.max(axis=1, keepdims=True)
    item = votes.item
    norm = np.full(votes.n_votes, -np.inf)
    for k in range(K):
        norm = np.logaddexp(norm, _leave_out(votes, logit, gold, log_theta, cell, item, k))
    counts, right = np.empty((M * K, K)), np.empty(votes.n_votes)
    for k in range(K):
        r = np.exp(_leave_out(votes, logit, gold, log_theta, cell, item, k) - norm)
        counts[:, k] = np.bincount(cell, weights=r, minlength=M * K)
        mine = votes.label == k
        right[mine] = r[mine]
    return Evidence(
        votes=votes, theta=np.exp(log_theta).reshape(M, K, K).transpose(0, 2, 1).copy(),
        pseudo=pseudo.transpose(0, 2, 1), prior=pi, logit=logit, gold=gold, cell=cell, item=item, log_theta=log_theta,
        norm=norm, counts=counts.reshape(M, K, K).transpose(0, 2, 1).copy(), right=right,
    )  # fmt: skip


def _refined(part: Part, first: Floats) -> tuple[Floats, Floats, Floats]:
    """Counts c[m, l, k], their pseudo-counts and the class prior, after some passes of EM from a posterior."""
    q, begin = first, em.statistics(part, first)
    stats, pseudo = begin, np.empty(0)
    for i in range(PASSES):
        if i % 5 == 0:
            pseudo = np.asarray(priors.learned(stats.table(), hierarchical=True))
        log_score = safe_log(normalise(stats.table() + pseudo, axis=1)).reshape(stats.counts.shape)
        pi = normalise(stats.mass + 1e-9, axis=0)
        stats, q = em.expect(part, Params(log_score, np.log(pi)[None]), posterior=i == PASSES - 1)
    sure = first.max(axis=1) >= SURE
    if sure.any() and (q.argmax(axis=1) != first.argmax(axis=1))[sure].mean() > OVERTURNED:
        stats = begin
    return (
        stats.table(),
        np.asarray(priors.learned(stats.table(), hierarchical=True)),
        normalise(stats.mass + 1e-9, axis=0),
    )


def _leave_out(votes: Votes, logit: Floats, gold: Ints, log_theta: Floats, cell: Ints, item: Ints, k: int) -> Floats:
    """logit[n, k] - w log theta[m, k, l] of every vote; minus infinity where the truth is known to be another."""
    said = log_theta[:, k][cell]
    column = logit[:, k][item] - (said if votes.weight is None else votes.weight * said)
    if (gold >= 0).any():
        known = gold[item]
        column = np.where(known >= 0, np.where(known == k, 0.0, -np.inf), column)
    return np.asarray(column)


def check_match(votes: Votes, consensus: Consensus) -> None:
    """The consensus is one of these votes."""
    if not isinstance(votes, Votes) or not isinstance(consensus, Consensus):
        raise InputError(
            f"Expected Votes and a Consensus, and found {type(votes).__name__} and {type(consensus).__name__}."
        )
    for what, a, b in (
        ("items", votes.items, consensus.item_names),
        ("annotators", votes.annotators, consensus.annotator_names),
        ("classes", votes.classes, consensus.classes),
    ):
        if not np.array_equal(a, b):
            raise InputError(
                f"The {what} of the votes are not those of the consensus ({len(a):,} and {len(b):,}): "
                "give the votes that the consensus was made from."
            )
    if votes.n_classes < 2:
        raise InputError("There is a single class: nothing can be said about anybody.")


def check_level(level: float, name: str = "level") -> None:
    """A probability strictly between 0 and 1."""
    if not (isinstance(level, (int, float)) and 0.0 < level < 1.0):
        raise ParameterError(f"{name}={level!r}: expected a number between 0 and 1.")


def adjusted(p: Floats) -> Floats:
    """Benjamini and Hochberg's adjusted p-values: those up to a level have a false discovery rate of that level."""
    from scipy.stats import false_discovery_control

    p = np.clip(np.asarray(p, dtype=np.float64), 0.0, 1.0)
    return np.asarray(false_discovery_control(p.ravel()).reshape(p.shape)) if p.size else p


def binomial_tail(x: Floats, n: Floats, p: Any) -> Floats:
    """P(X >= x), X binomial(n, p), with x and n not necessarily whole: I_p(x, n - x + 1); 1 for x = 0."""
    from scipy.special import betainc

    x, n = np.asarray(x, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return np.where(x > 1e-12, betainc(np.maximum(x, 1e-12), np.maximum(n - x, 0.0) + 1.0, p), 1.0)


# -------------------------------------------------------------------- groups


@dataclass(frozen=True, eq=False)
class Groups:
    """A group for each of some things: codes (-1: none given) and names."""

    code: Ints
    names: npt.NDArray[Any]


def read_groups(groups: Any, owners: npt.NDArray[Any], what: str, least: int = 2) -> Groups:
    """Groups from a mapping of owners to groups, or from one value for each owner."""
    if isinstance(groups, Mapping):
        values = [groups.get(name) for name in owners.tolist()]
        if len(owners) and all(is_missing(v) for v in values):
            raise InputError(f"groups names none of the {what}s: it has {listing(groups)}, they are {listing(owners)}.")
    else:
        if isinstance(groups, str) or not hasattr(groups, "__len__") or len(groups) != len(owners):
            raise ParameterError(f"groups: expected a mapping from {what} to group, or one group for each {what}.")
        values = list(groups.tolist() if hasattr(groups, "tolist") else groups)
    names = sorted({v for v in values if not is_missing(v)}, key=lambda v: (str(type(v)), v))
    if not least <= len(names) <= MOST_GROUPS:
        raise InputError(
            f"There are {len(names)} groups of {what}s: expected {least} to {MOST_GROUPS}. Merge or leave out some."
        )
    place = {name: i for i, name in enumerate(names)}
    out = np.empty(len(names), dtype=object)
    out[:] = names
    return Groups(np.array([place.get(v, -1) for v in values], dtype=np.int64), out)


def positive_code(classes: npt.NDArray[Any], positive: Any) -> int:
    """The code of the positive class: the one named, or the second of two."""
    if positive is None:
        if len(classes) != 2:
            raise ParameterError(
                f"There are {len(classes)} classes: name the positive one, positive={classes[0]!r} say."
            )
        return 1
    found = [k for k, name in enumerate(classes.tolist()) if name == positive]
    if not found:
        raise LabelError(f"positive={positive!r} is no class: they are {listing(classes, 10)}.")
    return found[0]
