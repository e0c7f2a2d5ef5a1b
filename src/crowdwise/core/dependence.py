"""Votes on one item that depend on each other: how strongly, and the posterior that allows for it.

Models of votes multiply them as if they were independent given the class. Hard items, ambiguous ones and copied answers
mislead many annotators at once, so the product is far too sure. This stage stands between a fit and its result.

**The correction.** n answers with correlation rho carry as much information as n / (1 + (n - 1) rho) independent ones
(the design effect of clustered samples), so the log-odds of an item with n votes are divided by that:

    G[n, k] = max_j log q[n, j] - log q[n, k],        d[n] = 1 + (n - 1) rho

The right divisor of an item is not known but in the average of many. Say it is d / g, with g of mean 1 and variance
1 / c (a Gamma distribution of shape c): averaged over g the odds exp(-g G / d) become

    q'[n, k] ∝ E[ exp(-g G / d) ] = ( 1 + G[n, k] / (c d) ) ^ -c,       c = ``SHAPE`` * n

which is exp(-G / d) where the odds are moderate, and keeps a residual doubt where they are huge. No label changes:
q' is monotone in q, item by item. Where a prior of an item was given, it is no vote: it is taken out before the
division and put back after it. A forecast from inputs that was learned from the votes of the same annotators
(``shared_prior``) errs as they do: it counts as one more vote, n + 1 of them, and is divided like the others.

**What the votes show.** Under the fitted model, two votes of annotators m and m' on an item of class k agree with
probability sum_l theta[m, k, l] theta[m', k, l]. Items that mislead many at once make pairs agree more often:

    O[n] = pairs of votes on n that agree
    E[n] = sum_k q[n, k] sum_pairs sum_l theta[m, k, l] theta[m', k, l]
    A    = sum_n (O - E) / sum_n (pairs - E)               the excess agreement: 0 for independent votes, 1 for copies

with a standard error s from the items, which allows for few of them (:mod:`crowdwise.core.excess_agreement`). It is a
kappa against the model, and the intraclass correlation that the model has left over. The fit hides most of the
dependence: q was fitted to the very votes and explains common errors as another class. Before A is taken the matrices
are freed of anchors and priors of the method by ``PASSES`` passes of EM, so that A of independent votes is 0 or less.

**The estimate.** The evidence is r = ``GAIN`` * A, held between 0 and ``MAX_RHO``; GAIN makes up for what the fit
hides. It is shrunk towards real crowds, with mean ``PRIOR_RHO`` and standard deviation ``PRIOR_SD``:

    u = (GAIN s)² / ( (GAIN s)² + PRIOR_SD² ),         rho = (1 - u) r + u PRIOR_RHO

Many votes speak for themselves, few leave the crowd at what crowds are like. Where gold labels are known, they set a
power of the corrected odds and a bias towards each class (:mod:`crowdwise.core.gold_calibration`).

The five numbers were chosen on the 15 public sets of the benchmarks page, each set measured with the numbers that are
best for the other fourteen, and on simulated crowds (docs/benchmarks/calibration.md). They are round and the optimum is
flat.

**Vote shares** are no probabilities given the votes (three votes of three are not certainty), and nothing was
multiplied. For methods whose posterior they are, the correction is half a vote for every class:
(n q + 1/2) / (n + K / 2).

When it fails: annotators who all share a bias (everybody takes a wolf for a dog) agree as the model says they do. No
vote shows it; only gold labels do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np

from crowdwise.core import em
from crowdwise.core.constraints import Check, is_number
from crowdwise.core.em import Params, Part
from crowdwise.core.excess_agreement import excess_agreement
from crowdwise.core.gold_calibration import calibrate, without_own
from crowdwise.core.numerics import Floats, Ints, clamp, normalise, safe_log, softmax, winners
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.vote_sums import single_annotator_items
from crowdwise.data.votes import Votes

GAIN = 10.0
MAX_RHO = 0.5
PRIOR_RHO, PRIOR_SD = 0.25, 0.5
SHAPE = 4.0
CROWD_SD = 0.4
"""The standard deviation, between crowds, of the logarithm of the power of the odds that would make them calibrated."""
PASSES = 3
MAX_VOTES = 50_000
"""The excess agreement is taken from at most so many votes, of whole items."""
UNMEASURED = 0.99
"""With such a weight of the prior the votes have said nothing (the standard error of the excess agreement is 50% and
more)."""
MIN_SHIFT = 0.1
"""Biases of classes that differ by less are not worth a word."""
MAX_TABLE = 2**23
"""The most cells (items x classes) that are worked on at a time."""
BLOCK = 2**15
"""Cells that fit into the cache of a processor."""
MAX_DENSE = 2**25
"""The most cells (items x classes) of a posterior that is corrected at once; above, what is 0 stays 0."""
MAX_CELLS = 2**25
"""The most cells (annotators x classes x classes) for which it is taken at all."""

Setting = Annotated[Any, Check(
    lambda value: value in ("auto", "none") if isinstance(value, str) else is_number(value) and 0.0 <= value <= 1.0,
    "'auto', 'none', or a correlation from 0 to 1", ("auto", "none", 0.0, 1.0), (-0.1, 1.5, "some"),
)]  # fmt: skip
"""The parameter ``dependence`` of methods."""


@dataclass(frozen=True)
class Dependence:
    """How strongly the votes on an item depend on each other, and where the number comes from.

    Attributes
    ----------
    rho
        The correlation: n votes count as n / (1 + (n - 1) rho).
    source
        ``"votes"``, ``"gold"``, ``"given"``; ``"shares"`` of vote shares; ``"none"``: not corrected.
    excess, error
        The excess agreement of pairs of votes beyond the model, and its standard error; NaN where there are no pairs.
    weight
        How much of rho is the prior from real crowds, from 0 to 1.
    shape
        c / n: how exactly the size of the correction is known; infinite where rho was given.
    power, bias
        By gold labels: the power of the odds after the division, and what is added to the log-odds of each class.
    n_gold
        How many gold labels.
    shared_prior
        Whether the prior of items was learned from votes of the same annotators, and is divided like one more vote.
    pairs
        Whether some item has votes of two annotators.
    """

    rho: float = 0.0
    source: str = "none"
    excess: float = float("nan")
    error: float = float("nan")
    weight: float = 1.0
    shape: float = float("inf")
    power: float = 1.0
    bias: tuple[float, ...] = ()
    n_gold: int = 0
    shared_prior: bool = False
    pairs: bool = True

    @property
    def reason(self) -> str:
        """What was used and why, in a sentence."""
        if self.source == "none":
            return "Votes on an item are taken to be independent given its class: probabilities may be too sure."
        if self.source == "shares":
            return "Shares of votes are no probabilities: half a vote was added for every class."
        if self.source == "given":
            return f"The correlation of votes on an item was given: {self.rho:.2f}."
        what = f"Votes on an item are correlated by {self.rho:.2f}: n votes count as n / (1 + {self.rho:.2f} (n - 1)). "
        if np.isfinite(self.excess) and self.weight >= UNMEASURED:
            what += (
                "The votes are too few, or too much alike, to measure it: that is the usual correlation of real crowds."
            )
        elif np.isfinite(self.excess):
            what += (
                f"Pairs of votes agree {100 * self.excess:+.1f}% (standard error {100 * self.error:.1f}%) beyond what "
                f"the model explains; the usual correlation of real crowds, {PRIOR_RHO}, has the weight "
                f"{self.weight:.2f}."
            )
        else:
            why = "there are too many classes" if self.pairs else "no item has votes of two annotators"
            what += f"It was not measured ({why}): that is the usual correlation of real crowds."
        if self.source == "gold":
            what += f" By {self.n_gold:,} gold labels, log-odds are then multiplied by {self.power:.2f}"
            what += " and shifted by class." if max(self.bias) - min(self.bias) >= MIN_SHIFT else "."
        if self.shared_prior:
            what += " What inputs say was learned from the same annotators, and counts as one more of the votes."
        elif not self.pairs and self.source != "gold":
            what += (
                " Nothing among the votes says how often they are right, so that probabilities are no estimates: "
                "second votes on some items, or gold labels, would show it."
            )
        return what

    def counted(self, n: Floats) -> Floats:
        """The number of votes, with what inputs say where that was learned from the same annotators."""
        return np.where(n > 0.0, n + 1.0, 0.0) if self.shared_prior else n

    def divisor(self, n: Floats) -> Floats:
        """d = 1 + (n - 1) rho."""
        return np.asarray(1.0 + np.maximum(n - 1.0, 0.0) * self.rho)

    def doubted(self, z: Floats, top: Floats, n: Floats) -> Floats:
        """-c log(1 + G / (c d)) of divided log-odds z, G / d = top - z; z itself where c is infinite."""
        if not np.isfinite(self.shape):
            return z
        c = self.shape * np.maximum(n, 1.0)
        return np.where(n > 0.0, -c * np.log1p((top - z) / c), z)

    def undoubted(self, z: Floats, n: Floats) -> Floats:
        """The inverse of :meth:`doubted` where the top is 0."""
        if not np.isfinite(self.shape):
            return z
        c = self.shape * np.maximum(n, 1.0)
        return np.where(n > 0.0, -c * np.expm1(-z / c), z)

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it: ``None`` for what is not finite."""
        return {
            name: None if isinstance(x, float) and not np.isfinite(x) else list(x) if isinstance(x, tuple) else x
            for name, x in asdict(self).items()
        }

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Dependence:
        """What :meth:`plain` wrote."""
        default = asdict(cls())
        found = {name: default[name] if x is None else x for name, x in saved.items()}
        return cls(**found | {"bias": tuple(found["bias"])})


NONE, SHARES = Dependence(), Dependence(source="shares")
UNSEEN = Dependence(PRIOR_RHO, "votes", shape=SHAPE)
"""Where it cannot be measured."""
ALONE = replace(UNSEEN, pairs=False)
"""Where there are no pairs of votes to see it from."""


def correct(q: Floats, n: Floats, found: Dependence, log_prior: Floats | None = None) -> Floats:
    """The posterior of items with n votes corrected: see the module."""
    if found.source == "shares":
        w = n[:, None]
        return np.asarray((w * q + 0.5) / (w + 0.5 * q.shape[1]))
    if found.rho == 0.0 and not np.isfinite(found.shape):
        return q
    if is_large(q, log_prior):
        return correct_in_place(q.copy(), n, found)
    out = np.empty(q.shape)
    for rows in row_blocks(q, BLOCK):
        before = None if log_prior is None else log_prior[rows]
        out[rows] = softmax(corrected_logit(safe_log(q[rows]), n[rows], found, before))
    return out


def corrected_logit(logit: Floats, n: Floats, found: Dependence, log_prior: Floats | None = None) -> Floats:
    """log q' but for a constant per row, from log q (as :func:`correct`)."""
    before = 0.0 if log_prior is None or found.shared_prior else log_prior
    n = found.counted(n)
    z = (logit - before) / found.divisor(n)[:, None]
    z = found.doubted(z, z.max(axis=1, keepdims=True), n[:, None]) + before
    return np.asarray(z if found.source != "gold" else found.power * z + np.array(found.bias))


def is_large(q: Floats, log_prior: Floats | None) -> bool:
    """Whether a posterior is corrected in its place, so that there is memory for it."""
    return q.size > MAX_DENSE and log_prior is None


def correct_in_place(q: Floats, n: Floats, found: Dependence, back: bool = False) -> Floats:
    """As :func:`correct` but that what is 0 stays 0; ``back`` undoes it, G = c d (exp(G' / c) - 1). Returns q."""
    n = found.counted(n)
    for rows in row_blocks(q):
        i, k = np.nonzero(q[rows])
        i += rows.start
        start = np.flatnonzero(np.diff(i, prepend=-1))
        size = np.diff(np.append(start, len(i)))
        z, d = safe_log(q[i, k]), found.divisor(n[i])
        bias = np.array(found.bias)[k] if found.bias else np.zeros(1)
        if back:
            z = (z - bias) / found.power
        z -= np.repeat(np.maximum.reduceat(z, start), size)
        z = found.undoubted(z, n[i]) * d if back else found.doubted(z / d, np.zeros(1), n[i])
        if not back:
            z = found.power * z + bias
            z -= np.repeat(np.maximum.reduceat(z, start), size)
        e = np.exp(z)
        q[i, k] = e / np.repeat(np.add.reduceat(e, start), size)
    return q


def row_blocks(q: Floats, cells: int | None = None) -> list[slice]:
    """The rows of a table in parts of at most so many cells (``MAX_TABLE``)."""
    step = max(1, (MAX_TABLE if cells is None else cells) // max(q.shape[1], 1))
    return [slice(lo, min(lo + step, len(q))) for lo in range(0, len(q), step)]


def expected_accuracy(q: Floats, label: Ints, level: float) -> tuple[float, float, float]:
    """The mean of q[n, label[n]], and an interval: all odds to the power exp(-z s) and exp(z s), s = ``CROWD_SD``."""
    if not len(q):
        return float("nan"), float("nan"), float("nan")
    z, total = CROWD_SD * NormalDist().inv_cdf((1.0 + level) / 2.0), np.zeros(3)
    for rows in row_blocks(q):
        some = q[rows]
        i, k = np.nonzero(some)
        p, own, start = some[i, k], some[np.arange(len(some)), label[rows]], np.flatnonzero(np.diff(i, prepend=-1))
        total += [(own**x / np.add.reduceat(p**x, start)).sum() for x in np.exp([-z, 0.0, z])]
    low, value, high = (total / len(q)).tolist()
    return value, min(low, value), max(high, value)


def votes_per_item(votes: Votes) -> Floats:
    """n: the number (weight) of the votes on each item."""
    size = np.diff(votes.indptr).astype(np.float64)
    return (
        size
        if votes.weight is None
        else np.bincount(votes.item, weights=votes.weight, minlength=len(votes)).astype(np.float64)
    )


def shrunk(excess: float, error: float) -> Dependence:
    """The estimate from the excess agreement and its standard error."""
    if not (np.isfinite(excess) and np.isfinite(error)):
        return UNSEEN
    spread = (GAIN * error) ** 2
    u = spread / (spread + PRIOR_SD**2)
    rho = (1.0 - u) * min(max(GAIN * excess, 0.0), MAX_RHO) + u * PRIOR_RHO
    return Dependence(rho, "votes", excess, error, u, SHAPE)


def resolve(
    setting: Any, votes: Votes, q: Floats, gold: Ints | None = None, item_prior: Floats | None = None,
    shares: bool = False, free: Floats | None = None, shared_prior: bool = False,
) -> Dependence:  # fmt: skip
    """What the parameter ``dependence`` of a method asks for; ``shares``: its posterior is vote shares."""
    if setting == "none":
        return replace(NONE, shared_prior=shared_prior)
    if isinstance(setting, str):
        return SHARES if shares else estimate(votes, q, gold, item_prior, free, shared_prior)
    return Dependence(float(setting), "given", weight=0.0, shared_prior=shared_prior)


def estimate(
    votes: Votes, q: Floats, gold: Ints | None = None, item_prior: Floats | None = None, free: Floats | None = None,
    shared_prior: bool = False,
) -> Dependence:  # fmt: skip
    """rho from votes and the posterior of any method; the power and the bias from gold labels where there are some.

    ``free``: the posterior of the gold items, in their order, by their votes and what other items teach, where the
    method has one.
    """
    M, K = votes.n_annotators, votes.n_classes
    if K < 2 or M * K * K > MAX_CELLS:
        rows = np.empty(0, np.int64)
    else:
        rows = _sampled(votes, np.flatnonzero((np.diff(votes.indptr) > 1) & ~single_annotator_items(votes)))
    return estimate_all(votes, q, gold, item_prior, free, rows, shared_prior)


def estimate_all(
    votes: Votes, q: Floats, gold: Ints | None = None, item_prior: Floats | None = None, free: Floats | None = None,
    rows: Ints | None = None, shared_prior: bool = False,
) -> Dependence:  # fmt: skip
    """As :func:`estimate`, from some items (``rows``), or all where each has several votes."""
    M, K = votes.n_annotators, votes.n_classes
    found = ALONE
    if K < 2 or M * K * K > MAX_CELLS:
        rows, found = np.empty(0, np.int64), UNSEEN
    rows = np.arange(len(votes)) if rows is None else rows
    known = np.empty(0, np.int64) if gold is None else np.flatnonzero(gold >= 0)
    if len(rows):
        found, taught = _by_votes(votes, q, rows, gold, item_prior)
        if len(known) and free is None:
            free = taught(known)
    found = replace(found, shared_prior=shared_prior)
    if not len(known) or free is None or K < 2:
        return found
    assert gold is not None
    before = None if item_prior is None else item_prior[known]
    return with_gold(found, free, votes_per_item(votes)[known], gold[known], before)


def with_gold(found: Dependence, free: Floats, n: Floats, gold: Ints, log_prior: Floats | None = None) -> Dependence:
    """The power and the bias, from gold labels of items and their posterior by n votes each and other items."""
    logit = corrected_logit(safe_log(free), n, replace(found, source="votes"), log_prior)
    power, bias = calibrate(logit, gold)
    return replace(found, source="gold", power=power, bias=bias, n_gold=len(gold))


def _by_votes(
    votes: Votes, q: Floats, rows: Ints, gold: Ints | None, item_prior: Floats | None
) -> tuple[Dependence, Callable[[Ints], Floats]]:
    """rho, and the posterior of gold items by their votes alone, from some items."""
    some, K = votes if len(rows) == len(votes) else votes[rows], votes.n_classes
    before = None if item_prior is None else item_prior[rows]
    part = Part.of(some, None if gold is None else gold[rows], before)
    q = clamp(q[rows], None if gold is None else gold[rows])
    stats = em.statistics(part, q)
    pseudo = learned_prior(em.statistics(part, winners(q)).table(), quick=True)
    for i in range(PASSES):
        table = stats.table() + pseudo
        theta = normalise(table, axis=1)
        pi = np.zeros(K) if item_prior is not None else np.log(normalise(stats.mass + 1e-9, axis=0))
        params = Params(safe_log(theta).reshape(stats.counts.shape), pi[None])
        stats, q = em.expect(part, params, posterior=i == PASSES - 1)

    def taught(known: Ints) -> Floats:
        assert gold is not None
        counted = np.isin(known, rows).astype(np.float64)
        mine = votes[known]
        prior = None if item_prior is None else item_prior[known]
        return without_own(mine, gold[known], params, table.sum(axis=1), pseudo, counted[mine.item], prior)

    return shrunk(*excess_agreement(some, theta, q)), taught


def _sampled(votes: Votes, several: Ints) -> Ints:
    """Items with several votes: all, or evenly spaced ones with about ``MAX_VOTES`` votes."""
    total = int(np.diff(votes.indptr)[several].sum())
    every = max(1, -(-total // MAX_VOTES))
    return several[::every] if every > 1 else several
