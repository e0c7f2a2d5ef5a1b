"""Votes on one item err together: the posterior that allows for it.

Models of votes multiply them as if they were independent given the class. Hard items, ambiguous ones and copied answers
mislead many annotators at once, so the product is far too sure. This stage stands between a fit and its result, and has
two constants, chosen on real crowds, one left out at a time (docs/benchmarks/calibration.md).

**Votes err together.** n answers with correlation rho carry as much information as n / (1 + (n - 1) rho) independent
ones (the design effect of clustered samples), so the log-odds of an item with n votes are divided by that:

    z[n, k] = log q[n, k] / (1 + rho (n - 1)),        rho = ``RHO``, 0 for rules

**All of them can be wrong.** A share ``DOUBT`` of what the odds give to a class goes to the others, evenly:

    q'[n, k] = (1 - w) softmax(z[n])[k] + w / K,        w = DOUBT K / (K - 1)

so that no label is more than 1 - DOUBT probable, and none changes: q' is monotone in q, item by item. Where no item has
votes of two annotators, and neither gold labels nor inputs are there, the doubt is ``DOUBT_ALONE``: of real crowds, one
vote drawn for each item, 68 % are right.

A prior of an item is not a vote: it is taken out before and put back after. A forecast from inputs that was learned
from the votes of the same annotators (``shared_prior``) errs as they do: it counts as one more vote. Items without
votes keep their prior. Gold labels set a power of the corrected odds, a bias towards each class, and what votes add
beyond the model (:mod:`crowdwise.core.gold_regression`). Gold labels of the hardest items say nothing of the others:
where votes agree more on over half of all items than on nine tenths of the gold items, they correct none.

**Vote shares** are not probabilities given the votes, and nothing was multiplied: half a vote is added for every class,
(n q + 1/2) / (n + K / 2).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np

from crowdwise.core.constraints import Check, is_number
from crowdwise.core.gold_regression import NEGLIGIBLE, regress
from crowdwise.core.numerics import Floats, Ints, clamp, normalise, safe_log, softmax
from crowdwise.core.vote_sums import single_annotator_items
from crowdwise.data.folders import check_types
from crowdwise.data.votes import Votes
from crowdwise.kernels import reference

RHO = 0.35
DOUBT, DOUBT_ALONE = 0.04, 0.3
"""The share of labels that are wrong where all votes of a real crowd agree, and where an item has one vote and no vote
of the crowd has another beside it."""
CROWD_SD, COPIED_SD = 0.8, 2.0
"""The standard deviation, between crowds, of the log-odds of the real against the expected accuracy of labels; and that
of any accuracy where all votes agree on all items, which one real crowd did (98 % expected, 66 right)."""
LEAST_GOLD, EASIER = 10, 0.5
"""The fewest gold labels that can look unlike the other items, and the share of items that must be easier."""
MIN_SHIFT = 0.1
"""Biases of classes that differ by less are not worth a word."""
MIN_ALIKE = 20
"""With fewer items of several votes it is no surprise that all votes agree."""
MAX_TABLE = 2**23
"""The most cells (items x classes) that are worked on at a time."""
BLOCK = 2**15
"""Cells that fit into the cache of a processor."""
MAX_DENSE = 2**25
"""The most cells (items x classes) of a posterior that is corrected at once; above, what is 0 stays 0."""
MAX_CELLS = 2**25
"""The most cells (annotators x classes x classes) for which gold items are judged by matrices of the others."""

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
        ``"crowds"``: as in real crowds; ``"gold"``: that, and gold labels; ``"given"``; ``"shares"`` of vote shares;
        ``"none"``: not corrected.
    doubt
        The share of labels that are wrong however many votes agree.
    power, bias
        By gold labels: the power of the odds after the correction, and what is added to the log-odds of each class.
    n_gold
        How many gold labels.
    weights, share, losses
        By gold labels: what a vote adds to the log-odds of each class (annotator, label, class; not saved), the weight
        of that regression, and the cross-validated log loss of gold labels without and with it
        (:class:`~crowdwise.core.gold_regression.GoldRegression`).
    shared_prior
        Whether the prior of items was learned from votes of the same annotators, and counts as one more vote.
    pairs
        Whether some item has votes of two annotators.
    copied
        Whether all votes agree on all of many items, so that nothing shows how often they are right.
    kind
        The kind of the crowd (:mod:`crowdwise.core.crowd_kind`); ``None`` where it was not looked at.
    easier
        Where gold labels correct no other items, the share of items on which votes agree more than on these.
    """

    rho: float = 0.0
    source: str = "none"
    doubt: float = 0.0
    power: float = 1.0
    bias: tuple[float, ...] = ()
    n_gold: int = 0
    weights: Floats | None = field(default=None, compare=False, repr=False)
    share: float = 0.0
    losses: tuple[float, ...] = ()
    shared_prior: bool = False
    pairs: bool = True
    copied: bool = False
    kind: str | None = None
    easier: float = 0.0

    def __eq__(self, other: object) -> bool:
        """NaN equals NaN, which the generated comparison does not say from Python 3.13 on."""
        return isinstance(other, Dependence) and self.plain() == other.plain()

    def __hash__(self) -> int:
        return hash((self.rho, self.source))

    @property
    def reason(self) -> str:
        """What was used and why, in a sentence."""
        if self.source == "none":
            return "Votes on an item are taken to be independent given its class: probabilities may be too sure."
        if self.source == "shares":
            return "Shares of votes are not probabilities: half a vote was added for every class."
        if self.source == "given":
            return f"The correlation of votes on an item was given: {self.rho:.2f}."
        what = f"No label is more than {100 * (1 - self.doubt):.0f}% probable, as in real crowds."
        if self.rho and (self.pairs or self.shared_prior):
            together = f"Votes on an item err together: n votes count as n / (1 + {self.rho:.2f} (n - 1)), and no"
            what = what.replace("No", together, 1)
        if self.source == "gold":
            what += f" By {self.n_gold:,} gold labels, log-odds are then multiplied by {self.power:.2f}"
            what += " and shifted by class." if max(self.bias) - min(self.bias) >= MIN_SHIFT else "."
            what += self._regression() if self.losses else ""
        if self.easier:
            what += (
                f" On {self.easier:.0%} of the items votes agree more than on nearly all with gold labels, so that "
                "these correct no others: gold labels of items drawn at random would."
            )
        if self.shared_prior:
            what += " What inputs say was learned from the same annotators, and counts as one more of the votes."
        elif not self.pairs and self.source != "gold":
            what += (
                " No item has votes of two annotators, and nothing says how often they are right, so that "
                "probabilities are not estimates: second votes on some items, or gold labels, would show it."
            )
        return what

    def _regression(self) -> str:
        """Whether the regression on the votes was taken, and why."""
        before, after = self.losses
        loss = f"cross-validated on the gold labels, its log loss is {after:.2f} and that of the model {before:.2f}"
        if self.share < NEGLIGIBLE:
            return f" The model was taken, not a regression on the votes: {loss}."
        return f" A regression on the votes was added to the model with the weight {self.share:.2f}: {loss}."

    def counted(self, n: Floats) -> Floats:
        """The number of votes, with what inputs say where that was learned from the same annotators."""
        return np.where(n > 0.0, n + 1.0, 0.0) if self.shared_prior else n

    def divisor(self, n: Floats) -> Floats:
        """1 + (n - 1) rho."""
        return 1.0 + np.maximum(n - 1.0, 0.0) * self.rho

    def even(self, n: Floats, K: int) -> Floats:
        """w: the share that goes evenly to all classes."""
        return np.where(n > 0.0, self.doubt * K / max(K - 1, 1), 0.0)

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        plain = asdict(replace(self, weights=None)) | {"bias": list(self.bias), "losses": list(self.losses)}
        del plain["weights"]
        return plain

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Dependence:
        """What :meth:`plain` wrote."""
        check_types(cls, saved)
        return cls(**saved | {name: tuple(saved.get(name, ())) for name in ("bias", "losses")})


NONE, SHARES = Dependence(), Dependence(source="shares")
USUAL = Dependence(RHO, "crowds", DOUBT)
"""As in real crowds."""


def correct(q: Floats, n: Floats, dependence: Dependence, log_prior: Floats | None = None) -> Floats:
    """The posterior of items with n votes corrected: see the module."""
    if dependence.source == "shares":
        w = n[:, None]
        return np.asarray((w * q + 0.5) / (w + 0.5 * q.shape[1]))
    if dependence.rho == 0.0 == dependence.doubt:
        return q
    if is_large(q, log_prior):
        return correct_in_place(q.copy(), n, dependence)
    out = np.empty(q.shape)
    for rows in row_blocks(q, BLOCK):
        before = None if log_prior is None else log_prior[rows]
        out[rows] = softmax(corrected_logit(safe_log(q[rows]), n[rows], dependence, before))
    return out


def corrected(
    q: Floats, votes: Votes, dependence: Dependence, log_prior: Floats | None = None, gold: Ints | None = None
) -> Floats:
    """The posterior of votes corrected, with the regression on gold labels where there is one; these are certain."""
    q = correct(q, votes_per_item(votes), dependence, log_prior)
    if dependence.weights is not None:
        unseen = ((0, votes.n_annotators - len(dependence.weights)), (0, 0), (0, 0))
        score = np.pad(dependence.weights, unseen).reshape(-1, votes.n_classes)
        q = softmax(reference.logits(votes.indptr, votes.cells(), votes.weights, score, safe_log(q)))
    return clamp(q, gold)


def corrected_logit(logit: Floats, n: Floats, dependence: Dependence, log_prior: Floats | None = None) -> Floats:
    """log q' but for a constant per row, from log q (as :func:`correct`)."""
    before = 0.0 if log_prior is None or dependence.shared_prior else log_prior
    n = dependence.counted(n)
    z = (logit - before) / dependence.divisor(n)[:, None]
    if dependence.doubt:
        w = dependence.even(n, z.shape[1])[:, None]
        z = safe_log((1.0 - w) * softmax(z) + w / z.shape[1])
    z = z + before
    return np.asarray(z if dependence.source != "gold" else dependence.power * z + np.array(dependence.bias))


def is_large(q: Floats, log_prior: Floats | None) -> bool:
    """Whether a posterior is corrected in its place, so that there is memory for it."""
    return q.size > MAX_DENSE and log_prior is None


def correct_in_place(q: Floats, n: Floats, dependence: Dependence, back: bool = False) -> Floats:
    """As :func:`correct` but that what is 0 stays 0; ``back`` undoes it. Returns q.

    What the doubt gives to classes of probability 0 is not written: the row lacks it.
    """
    n, K = dependence.counted(n), q.shape[1]
    for rows in row_blocks(q):
        i, k = np.nonzero(q[rows])
        i += rows.start
        start = np.flatnonzero(np.diff(i, prepend=-1))
        size = np.diff(np.append(start, len(i)))
        d, w = dependence.divisor(n[i]), dependence.even(n[i], K)
        total = 1.0 - w * (1.0 - np.repeat(size, size) / K)
        bias = np.array(dependence.bias)[k] if dependence.bias else 0.0
        if back:
            p = total * _per_row((safe_log(q[i, k]) - bias) / dependence.power, start, size)
            q[i, k] = _per_row(d * safe_log((p - w / K) / (1.0 - w)), start, size)
        else:
            p = (1.0 - w) * _per_row(safe_log(q[i, k]) / d, start, size) + w / K
            if dependence.source == "gold":
                p = total * _per_row(dependence.power * safe_log(p) + bias, start, size)
            q[i, k] = p
    return q


def _per_row(z: Floats, start: Ints, size: Ints) -> Floats:
    """The softmax of each stretch of z."""
    e = np.exp(z - np.repeat(np.maximum.reduceat(z, start), size))
    return np.asarray(e / np.repeat(np.add.reduceat(e, start), size))


def row_blocks(q: Floats, cells: int | None = None) -> list[slice]:
    """The rows of a table in parts of at most so many cells (``MAX_TABLE``)."""
    step = max(1, (MAX_TABLE if cells is None else cells) // max(q.shape[1], 1))
    return [slice(lo, min(lo + step, len(q))) for lo in range(0, len(q), step)]


def crowd_spread(sd: float, p: Any, known: int, copied: bool = False) -> Any:
    """The standard deviation of the log-odds of an accuracy p between crowds; g gold labels (``known``) have the
    information of as many draws:

        s^-2 = sd^-2 + g p (1 - p),        sd = ``COPIED_SD`` where all votes agree
    """
    return ((COPIED_SD if copied else sd) ** -2.0 + known * p * (1.0 - p)) ** -0.5


def accuracy_interval(p: float, known: int, level: float, copied: bool = False) -> tuple[float, float, float]:
    """The share p of labels that are expected to be right, and an interval that is as wide as crowds differ.

    On the scale of log-odds a crowd lies around p with the standard deviation :func:`crowd_spread`, by the number of
    gold labels ``known``.
    """
    p = min(max(p, 1e-9), 1.0 - 1e-9)
    s = NormalDist().inv_cdf((1.0 + level) / 2.0) * crowd_spread(CROWD_SD, p, known, copied)
    return tuple((1.0 / (1.0 + np.exp(-np.log(p / (1.0 - p)) - np.array([0.0, -s, s])))).tolist())


def votes_per_item(votes: Votes) -> Floats:
    """n: the number (weight) of the votes on each item."""
    if votes.weight is None:
        return np.diff(votes.indptr).astype(np.float64)
    return np.bincount(votes.item, weights=votes.weight, minlength=len(votes)).astype(np.float64)


def agreeing_items(votes: Votes) -> Floats:
    """How many items have votes of several annotators, and on how many of these all agree."""
    several = np.flatnonzero((np.diff(votes.indptr) > 1) & ~single_annotator_items(votes))
    start, size = votes.indptr[several], np.diff(votes.indptr)[several]
    differs = np.append(0, np.cumsum(np.diff(votes.label, append=0) != 0))  # label s + 1 is another than label s
    return np.array([len(several), (differs[start + size - 1] == differs[start]).sum()], dtype=np.float64)


def clearness(votes: Votes) -> Floats:
    """N: the largest vote share of each item, half a vote added for every class; 0 without votes."""
    n = votes_per_item(votes)
    top = votes.shares().max(axis=1, initial=0.0)
    return np.where(n > 0.0, (n * top + 0.5) / (n + 0.5 * votes.n_classes), 0.0)


def look_copied(agreeing: Floats) -> bool:
    """Whether all votes on all of many items agree (the numbers of :func:`agreeing_items`)."""
    return bool(MIN_ALIKE <= agreeing[0] <= agreeing[1])


def copied_note(agreeing: Floats) -> list[str]:
    """A sentence where votes look copied."""
    if not look_copied(agreeing):
        return []
    return [
        f"All votes agree on all {agreeing[0]:,.0f} items with several votes: they look copied, or aggregated already. "
        "How often such labels are right cannot be seen from them: check some by hand, or give gold labels."
    ]


def with_gold(
    dependence: Dependence, free: Floats, votes: Votes, gold: Ints, log_prior: Floats | None, regression: bool
) -> Dependence:
    """What gold labels correct, from the votes of their items and the posterior by these and by other items."""
    logit = corrected_logit(safe_log(free), votes_per_item(votes), dependence, log_prior)
    small = votes.n_annotators * votes.n_classes**2 <= MAX_CELLS
    fit = regress(logit, gold, votes if regression and small else None)
    return replace(
        dependence, source="gold", power=fit.power, bias=fit.bias, n_gold=len(gold), weights=fit.weights,
        share=fit.share, losses=fit.losses,
    )  # fmt: skip


DRAWS = 20_000
"""Simulated items, several of each real one where there are fewer."""


def more_votes(q: Floats, before: Ints, after: Ints, confusion: Floats, dependence: Dependence, rng: Any) -> Floats:
    """N: the probability that each label is right once its item has ``after`` votes."""
    N, K = q.shape
    further = after / dependence.divisor(after) - before / dependence.divisor(before)  # independent votes
    w = dependence.even(after, K)[:, None]
    known = np.where(before[:, None] > 0, w, 0.0)  # q has its doubt where there were votes
    sure = normalise(np.maximum(q - known / K, 1e-12), axis=1)
    log, logit = np.log(np.maximum(normalise(confusion, axis=1), 1e-12)), safe_log(sure)
    total = np.zeros(N)
    turns = max(1, DRAWS // max(N, 1))
    steps = np.cumsum(np.exp(log), axis=1)
    for _ in range(turns):
        truth = (rng.random(N)[:, None] > np.cumsum(sure, axis=1)).sum(axis=1).clip(max=K - 1)
        extra = np.floor(further + rng.random(N)).astype(int)
        z = logit.copy()
        for turn in range(int(extra.max(initial=0))):
            at = np.flatnonzero(extra > turn)
            label = (rng.random(len(at))[:, None] > steps[truth[at]]).sum(axis=1).clip(max=K - 1)
            z[at] += log[:, label].T
        total += softmax(z).max(axis=1)
    return np.asarray((1.0 - w[:, 0]) * total / turns + w[:, 0] / K)
