"""What the methods for ratings share: sums by item and annotator, a common unit, and the hedge with the plain mean.

The plain averages of ratings.

=============  ==============================================================================================
``mean``       the weighted mean of an item's ratings
``median``     their weighted median: half of the weight on either side; the middle of two where it is met exactly
=============  ==============================================================================================

Both report how far an annotator's ratings lie from the items' values on average (bias), and how much they scatter
around that (precision), with the degrees of freedom that the items use up taken off. An item's deviation is that of a
mean (times sqrt(pi / 2) for a median of more than two) of ratings that all scatter like the crowd's, with a t
distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.answers.answer_model import AnswerModel
from crowdwise.core.loop import Callback
from crowdwise.core.model import check_several
from crowdwise.core.numerics import Floats, Ints, maximise_1d
from crowdwise.core.result import Estimates
from crowdwise.data.ratings import Ratings
from crowdwise.errors import listing, warn


def counts(code: Ints, weight: Floats, size: int) -> Floats:
    """Sums of weights by code."""
    return np.bincount(code, weights=weight, minlength=size).astype(np.float64)


FAR, USUAL = 4.0, 0.8
"""A gross error is so many times as far from the others on its item as this share of all ratings is."""
OWN = 1.9
"""What this share of Normal noise lies within, in units of the share of one half: 1.28 / 0.67."""


def median_of_others(code: Ints, x: Floats, size: int) -> Floats:
    """For each number the median of all others with its code; NaN where there are none. Sorted by code and number."""
    n = np.bincount(code, minlength=size)
    start, others = (np.cumsum(n) - n)[code], n[code] - 1
    place = np.arange(len(x)) - start

    def nth(k: Ints) -> Floats:
        return np.asarray(x[start + np.minimum(k + (k >= place), others)])

    return np.where(others > 0, 0.5 * (nth(np.maximum(others - 1, 0) // 2) + nth(others // 2)), np.nan)


def gross_errors(ratings: Ratings) -> npt.NDArray[np.bool_]:
    """Which ratings are no noise but gross errors, such as 700 instead of 70.

    Noise is a mixture of scales: usual ones, and one so large that such a rating says nothing of its item (a weight of
    0). A rating x of the second kind is farther from the median m of the others on its item than

        max(FAR q, FAR OWN o, FAR i, D / 2, |m - c|)

    q the distance |x - m| within which the share ``USUAL`` of ratings lies, o the median distance of the annotator's
    other ratings (who is noisy or biased makes no gross errors), i the median distance of an item's ratings (three or
    more) from their median, c the median of all ratings, D the share ``USUAL`` of their distances from c (errors are as
    large as differences between items, and noise may grow with their size). Where most ratings are one value (zero,
    say), to agree on it is no measure of noise: q and D are of the others. The farthest rating of an item goes first,
    and the rest are looked at again. Of two one is not known to be right, unless the other is no usual rating of any
    item, FAR D from c. Up to a fifth of the ratings may be wrong. Noise may grow with size: of positive numbers, the
    logarithms have to be gross errors, too.
    """
    out = _gross(ratings)
    if out.any() and (ratings.value > 0.0).all():
        out &= _gross(replace(ratings, value=np.log(ratings.value), truth=None))
    return out


def _gross(ratings: Ratings) -> npt.NDArray[np.bool_]:
    order, N = np.lexsort((ratings.value, ratings.item)), len(ratings)
    x, item, who = ratings.value[order], ratings.item[order], ratings.annotator[order]
    numbers, often = np.unique(x, return_counts=True)
    commonest, centre = numbers[often.argmax()], np.median(x)
    away, kept = np.abs(x - centre), np.arange(len(x))
    usual = float(np.quantile(away[x != commonest], USUAL)) if len(numbers) > 1 else 0.0
    while True:
        n = item[kept]
        middle = median_of_others(n, x[kept], N)
        gap, telling = np.abs(x[kept] - middle), ~np.isnan(middle) & (middle != commonest)
        if not telling.any():
            break
        q = float(np.quantile(gap[telling], USUAL))
        limit = np.maximum(FAR * q, np.maximum(0.5 * usual, np.abs(middle - centre)))
        far = (gap > limit) & ((np.bincount(n, minlength=N)[n] > 2) | (away[kept] > FAR * usual))
        if far.any():
            gap = np.where(np.isnan(gap), q, gap)
            by = np.lexsort((gap, who[kept]))
            far[by] &= ~(gap[by] <= FAR * OWN * median_of_others(who[kept][by], gap[by], ratings.n_annotators))
            one = np.ones(len(n))
            own = np.abs(x[kept] - weighted_median(n, one, x[kept], N)[n])
            far &= (np.bincount(n, minlength=N)[n] < 3) | (gap > FAR * weighted_median(n, one, own, N)[n])
        worst = np.flatnonzero(far)
        if not len(worst):
            break
        worst = worst[np.lexsort((-away[kept[worst]], -gap[worst], n[worst]))]
        kept = np.delete(kept, worst[np.unique(n[worst], return_index=True)[1]])
    out = np.ones(len(x), dtype=bool)
    out[order[kept]] = False
    return out


def standardise(ratings: Ratings) -> tuple[Floats, float, float]:
    """The numbers with mean 0 and deviation 1, and the mean and deviation they had (1 where all are the same)."""
    w, x = ratings.weights, ratings.value
    centre = float((w * x).sum() / w.sum())
    unit = float(np.sqrt((w * (x - centre) ** 2).sum() / w.sum()))
    if not unit > 1e-12 * max(1.0, abs(centre)):
        unit = 1.0
    return (x - centre) / unit, centre, unit


def weighted_mean(item: Ints, weight: Floats, x: Floats, N: int) -> Floats:
    """By item; the mean of all ratings where an item has none."""
    total = counts(item, weight, N)
    overall = float((weight * x).sum() / weight.sum())
    return np.asarray(np.divide(counts(item, weight * x, N), total, out=np.full(N, overall), where=total > 0))


def variance_within(item: Ints, weight: Floats, x: Floats, N: int, default: float) -> float:
    """The variance of ratings around the means of their items; a default where every item has a single one."""
    gap = x - weighted_mean(item, weight, x, N)[item]
    free = float(weight.sum() - (counts(item, weight, N) > 0).sum())
    return float((weight * gap**2).sum()) / free if free > 0 else default


def weighted_median(item: Ints, weight: Floats, x: Floats, N: int) -> Floats:
    """By item; the median of all ratings where an item has none. The lowest number with at least half of the weight at
    or under it; where exactly half is, the middle of it and the next."""
    order = np.lexsort((x, item))
    what, w, v = item[order], weight[order], x[order]
    total = counts(item, weight, N)
    before = np.cumsum(w)
    start = np.concatenate([[0.0], np.cumsum(total)[:-1]])
    share = (before - start[what]) / total[what]
    first = np.full(N, -1)
    reached = np.flatnonzero(share >= 0.5 - 1e-12)
    at, where = np.unique(what[reached], return_index=True)
    first[at] = reached[where]
    out = np.full(N, np.nan)
    out[at] = v[first[at]]
    exact = at[np.abs(share[first[at]] - 0.5) <= 1e-12]
    out[exact] = 0.5 * (v[first[exact]] + v[first[exact] + 1])
    if np.isnan(out).any():
        out[np.isnan(out)] = weighted_median(np.zeros(len(x), dtype=np.int64), weight, x, 1)[0]
    return out


def scatter(ratings: Ratings, z: Floats) -> dict[str, Any]:
    """Bias and precision of annotators, and deviations of items, by their distance from given values. A residual has 1
    - w / (weight on the item) degrees of freedom: none where an item has a single rating."""
    item, m, w, N, M = ratings.item, ratings.annotator, ratings.weights, len(ratings), ratings.n_annotators
    on_item = counts(item, w, N)
    r = ratings.value - z[item]
    free = np.maximum(1.0 - w / on_item[item], 0.0) * w
    n, freedom = counts(m, w, M), counts(m, free, M)
    bias = np.divide(counts(m, w * r, M), n, out=np.zeros(M), where=n > 0)
    square = counts(m, w * (r - bias[m]) ** 2, M)
    pooled = float((w * r * r).sum() / free.sum()) if free.sum() > 1e-12 else float(np.var(ratings.value))
    # One rating's worth of the crowd's variance keeps the variances of annotators with few residuals above zero.
    variance = (square + pooled + 1e-12) / (np.maximum(freedom - 1.0, 0.0) + 1.0)
    unrated = np.full(N, float(np.var(ratings.value)) + pooled)
    deviation = np.sqrt(np.divide(pooled, on_item, out=unrated, where=on_item > 0))
    return {
        "deviations": deviation, "freedom": np.full(N, max(float(free.sum()), 1.0)), "bias": bias,
        "bias_sd": bias_deviation(bias, variance, n, freedom), "precision": 1.0 / np.maximum(variance, 1e-12),
        "precision_shape": (np.maximum(freedom - 1.0, 0.0) + 1.0) / 2.0, "mean": float(np.mean(z)),
        "spread": float(np.std(z)),
    }  # fmt: skip


def bias_deviation(bias: Floats, variance: Floats, n: Floats, freedom: Floats) -> Floats:
    """Standard deviations of biases that are mean residuals: noise, and the shift of their mean.

    The noise grows as the items leave fewer degrees of freedom. That all biases sum to zero is a convention: had they
    been drawn around zero, their mean would have the variance var(bias) / M.
    """
    M = len(n)
    size = np.divide(freedom * freedom, np.maximum(n, 1e-300), out=np.zeros(M), where=n > 0)
    noise = np.divide(variance, size, out=np.full(M, np.inf), where=size > 0)
    return np.asarray(np.sqrt(noise + np.var(bias) / M))


def ease_prior(n: Floats, Q: Floats, old: float) -> float:
    """kappa of eases d ~ Gamma(kappa, kappa), one step uphill on the likelihood with the eases integrated out.

    An item has n half ratings with half squares Q (in units of their annotators' noise): d given them is
    Gamma(kappa + n, kappa + Q).
    """
    from scipy.special import gammaln

    sizes, often = np.unique(n, return_counts=True)

    def best(t: float) -> float:
        k = np.exp(t)
        return float(often @ gammaln(k + sizes) + len(n) * (k * t - gammaln(k)) - (k + n) @ np.log(k + Q))

    return nearby(best, old, 0.5, 1e3)  # from items of very different ease to items that are all alike


def nearby(best: Callable[[float], float], old: float, low: float, high: float) -> float:
    """A positive number within a factor of e of the old one; a function of its logarithm is no smaller than before."""
    at = np.log(old)
    t = maximise_1d(best, max(at - 1.0, np.log(low)), min(at + 1.0, np.log(high)), tol=0.002)
    return float(np.exp(t)) if best(t) > best(at) else old


def varied(ratings: Ratings) -> npt.NDArray[np.bool_]:
    """Which ratings are by annotators who gave more than one value, or few of them: who always gives one tells no items
    apart."""
    who, M = ratings.annotator, ratings.n_annotators
    first = np.zeros(M)
    first[who[::-1]] = ratings.value[::-1]
    others = np.bincount(who, ratings.value != first[who], M)
    return np.asarray((others > 0) | (np.bincount(who, minlength=M) < ENOUGH))[who]


def hedged(
    ratings: Ratings, y: Floats, z: Floats, left_out: Floats, judges: Any = True, caution: float = 1.645
) -> tuple[Floats, float]:
    """Values, shrunk towards the plain mean as far as held-out ratings ask for it, and the share of the model in them.

    ``left_out`` is g, the value of each rating's item by the model without that rating (annotators held fixed); m is
    the plain mean of the other ratings on the item. The share of the model is the one that predicts the ratings x best,

        share = sum w (x - m) (g - m) / sum w (g - m)^2

    less ``caution`` standard errors (the larger of two: items are independent, annotators are), held between 0 and 1:
    the mean, unless the ratings (``judges``: these ones) say that the model is better. It is 0 where no item has two.
    """
    item, w, N = ratings.item, ratings.weights, len(ratings)
    total, sums = counts(item, w, N), counts(item, w * y, N)
    rest = total[item] - w
    used = (rest > 1e-9) & judges
    mean = (sums[item] - w * y)[used] / rest[used]
    gap = left_out[used] - mean
    square = float((w[used] * gap * gap).sum())
    if square > 1e-12:
        share = float((w[used] * gap * (y[used] - mean)).sum()) / square
        pull = w[used] * gap * (y[used] - mean - share * gap)
        clusters = (counts(item[used], pull, N), counts(ratings.annotator[used], pull, ratings.n_annotators))
        error = max(float(np.sqrt((parts * parts).sum())) for parts in clusters) / square
        share = float(np.clip(share - caution * error, 0.0, 1.0))
    else:
        share = 1.0 if used.any() else 0.0
    plain = np.divide(sums, total, out=z.copy(), where=total > 0)
    return share * z + (1.0 - share) * plain, share


class RatingModel(AnswerModel[Ratings, Estimates]):
    """The base of methods for ratings."""

    table: ClassVar[type] = Ratings
    result: ClassVar[type] = Estimates

    def _point_out(self, answers: Ratings) -> None:
        point_out_scales(answers)
        point_out_gross_errors(answers, gross_errors(answers))

    def _check_several(self, ratings: Ratings) -> None:
        check_several(ratings, self.key, "Use the mean.")


ENOUGH = 8
"""Ratings by an annotator that show a scale."""
AWAY, NARROW = 2.0, 4.0
"""How many times the usual width a scale lies outside, or how many times narrower it is, to be another."""


def other_scales(ratings: Ratings) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Who rates on another scale; for each of them the middle 80 % of their ratings, and of those of a usual other.

    [low, high] is the middle 80 % of an annotator's ratings, [l, h] the medians of low and high over the others.
    Another scale has its median outside by ``AWAY`` times h - l; or it is ``NARROW`` times narrower, and all outside.
    One that is wide and not outside may as well be noise. Where others rated the annotator's items, it is another scale
    beside these ratings, too: items may differ.
    """
    n = np.bincount(ratings.annotator, minlength=ratings.n_annotators)
    who = np.flatnonzero(n >= ENOUGH)
    if len(who) < 2:
        return np.empty(0, np.int64), np.empty((0, 2)), np.empty((0, 2))
    order = np.argsort(ratings.annotator, kind="stable")
    rows = np.split(ratings.value[order], np.cumsum(n)[:-1])
    own = np.array([inner(rows[m]) for m in who])
    if len(who) <= 200:  # of more, one does not count in the median of all
        usual = np.array([np.median(np.delete(own[:, ::2], m, axis=0), axis=0) for m in range(len(who))])
    else:
        usual = np.broadcast_to(np.median(own[:, ::2], axis=0), (len(who), 2))
    odd = np.flatnonzero(differs(own, usual))
    usually = ~np.isin(ratings.annotator, who[odd])
    odd = np.array([at for at in odd.tolist() if _differs_on_items(ratings, int(who[at]), usually)], dtype=np.int64)
    rest = ratings.value[~np.isin(ratings.annotator, who[odd])]
    if len(odd) and len(rest):  # who gives one of the others' values always is on their scale
        low, high = np.quantile(rest, (0.01, 0.99))
        odd = odd[(own[odd, 0] < low) | (own[odd, 2] > high)]
    return who[odd], own[odd][:, ::2], usual[odd]


def differs(own: Floats, usual: Floats) -> npt.NDArray[np.bool_]:
    """Whether (low, median, high) are of another scale than the usual (low, high), row by row."""
    low, middle, high = own.T
    below, above = usual.T
    reach = above - below
    outside = (middle < below - AWAY * reach) | (middle > above + AWAY * reach)
    narrow = (high - low < reach / NARROW) & ((high < below) | (low > above))
    return np.asarray((reach > 0.0) & (outside | narrow))


def _differs_on_items(ratings: Ratings, annotator: int, others: npt.NDArray[np.bool_]) -> bool:
    """Whether an annotator is on another scale than others are on the same items, where they are many enough."""
    mine = ratings.annotator == annotator
    own = mine & np.isin(ratings.item, ratings.item[others])
    rest = others & np.isin(ratings.item, ratings.item[mine])
    if min(own.sum(), rest.sum()) < ENOUGH:
        return True
    return bool(differs(inner(ratings.value[own])[None], inner(ratings.value[rest])[None, ::2])[0])


def inner(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The ends of the middle 80 % with the median between them; one number or more is left out at either end."""
    x, cut = np.sort(values), math.ceil(len(values) / 10)
    return x[[cut, len(x) // 2, -1 - cut]]


def point_out_scales(ratings: Ratings) -> None:
    """Warn of annotators who rate on another scale."""
    who, own, usual = other_scales(ratings)
    if not len(who):
        return
    names = listing(ratings.annotators[who])
    (low, high), (below, above) = own[0], usual[0]
    warn(
        f"Ratings of {names} seem to be on another scale: most of {listing(ratings.annotators[who[:1]])} are between "
        f"{low:.4g} and {high:.4g}, and most of other annotators between {below:.4g} and {above:.4g}. Bring all "
        "to one scale, or leave these out. gaussian sets them aside if they are less than half of the ratings; other "
        "methods may be far off."
    )


def point_out_gross_errors(ratings: Ratings, gross: npt.NDArray[np.bool_]) -> None:
    """Warn of ratings that look like typing errors."""
    rows = np.flatnonzero(gross)
    if not len(rows):
        return
    first = rows[0]
    item, who = ratings.item[first], ratings.annotator[first]
    others = ratings.value[(ratings.item == item) & ~gross]
    warn(
        f"Ratings that look like typing errors: {len(rows):,}, such as {ratings.value[first]:g} by "
        f"{listing(ratings.annotators[[who]])} on {listing(ratings.items[[item]])}, where the median of the others is "
        f"{np.median(others):g}. Correct them or leave them out; gaussian sets them aside."
    )


class MeanRating(RatingModel):
    """The mean of each item's ratings, weighted where ratings have weights.

    >>> import crowdwise as cw
    >>> ratings = cw.Ratings.from_dense([[1.0, 2.0, 6.0], [2.0, 2.0, 2.0]])
    >>> [cw.aggregate(ratings, key).values.tolist() for key in ("mean", "median")]
    [[3.0, 2.0], [2.0, 2.0]]
    """

    key = "mean"

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        z = weighted_mean(answers.item, answers.weights, answers.value, len(answers))
        return {"values": z, "iterations": 1, **scatter(answers, z)}


class MedianRating(RatingModel):
    """The median of each item's ratings, weighted where ratings have weights.

    >>> import crowdwise as cw
    >>> cw.aggregate(cw.Ratings.from_dense([[1.0, 2.0, 6.0]]), "median").values.tolist()
    [2.0]
    """

    key = "median"

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        z = weighted_median(answers.item, answers.weights, answers.value, len(answers))
        fields = scatter(answers, z)
        fields["deviations"] = fields["deviations"] * np.where(np.diff(answers.indptr) > 2, np.sqrt(np.pi / 2.0), 1.0)
        return {"values": z, "iterations": 1, **fields}
