"""How much ratings say about their annotators, where they are not Normal around item plus bias.

Real ratings are bounded and often zero. Two moments of them correct the shrinkage of annotators towards their crowd:

:func:`precision_power`  f = 2 / (k - 1), k the kurtosis: a rating counts f times for the precision of its annotator
:func:`additive_part`    the part of the variance of biases that shows on low and on high items alike

Both are 1 up to chance where the model is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.answers.ratings_gaussian_steps import Crowd
from crowdwise.answers.ratings_shared import counts
from crowdwise.core.numerics import Floats

HALF = 20.0
"""Annotators with so many ratings in each half have half of the weight that those with very many have."""


def _rest(crowd: Crowd) -> tuple[Floats, Floats]:
    """The mean of the other ratings on each rating's item, and the share of the rating in all of them (at most 0.9)."""
    item, w = crowd.item, crowd.weight
    total, said = counts(item, w, crowd.N)[item], counts(item, w * crowd.y, crowd.N)[item]
    rest = np.maximum(total - w, 1e-9)
    return (said - w * crowd.y) / rest, np.minimum(w / total, 0.9)


def precision_power(crowd: Crowd, bias: bool) -> float:
    """f = 2 / (k - 1), at most 1: how much a rating counts for the precision of its annotator; k is the kurtosis.

    A variance that is estimated from n ratings has the relative variance (k - 1) / n, which is 2 / n for Normal noise
    alone. Where most answers are zero and a few are large k is 5 to 10, and annotators whose precisions are equal would
    seem to differ. E[r^4] and E[r^2]^2 (from pairs of ratings of one annotator) are summed over annotators in units of
    their own variance, with two ratings of the crowd's added to it; r is the distance from the item's mean.
    """
    crowd = crowd.merged()
    who, w, M = crowd.annotator, crowd.weight, crowd.M
    mean, own = _rest(crowd)
    r = (crowd.y - mean) * (1.0 - own)
    n = counts(who, w, M)
    if bias:
        r = r - (counts(who, w * r, M) / (n + 1.0))[who]
    square = r * r / (1.0 - own)
    first, second = counts(who, w * square, M), counts(who, w * square * square, M)
    several = n > 1.5
    if not several.any() or not second.sum() > 0.0:
        return 1.0
    n, first, second = n[several], first[several], second[several]
    variance = (first + 2.0 * first.sum() / n.sum()) / (n + 2.0)
    pairs = (np.maximum(first * first - second, 0.0) / ((n - 1.0) * variance**2)).sum()
    kurtosis = float((second / variance**2).sum() / max(float(pairs), 1e-300))
    return float(2.0 / (max(kurtosis, 3.0) - 1.0))


def additive_part(crowd: Crowd) -> float:
    """The part of the variance of biases that shows on low and on high items alike; a standard error is added, so that
    biases are additive until the ratings say otherwise. At most 1.

    An annotator's items are low or high by the mean of the other ratings on them, below or above its mean. The product
    of the mean residuals on both has the expectation b^2 where a bias is added to every item, and a smaller one where
    annotators differ in how much they say of what there is to say (zeros are zeros to all of them). The mean product of
    two residuals on any two items is the whole of b^2.
    """
    crowd = crowd.merged()
    who, w, M = crowd.annotator, crowd.weight, crowd.M
    mean, own = _rest(crowd)
    r = (crowd.y - mean) * (1.0 - own)
    n, squares = counts(who, w, M), counts(who, w * w, M)
    high = mean > (counts(who, w * mean, M) / np.maximum(n, 1e-300))[who]
    above = counts(who, w * high, M)
    weight = np.minimum(above, n - above)
    weight = weight / (HALF + weight)
    if (weight > 0.0).sum() < 3:
        return 1.0

    def centred(part: Any, size: Floats) -> Floats:
        x = counts(who[part], (w * r)[part], M) / np.maximum(size, 1e-300)
        return np.asarray(x - (weight * x).sum() / weight.sum())

    far = centred(high, above) * centred(~high, n - above)
    every = slice(None)
    own_mean = counts(who, w * r, M) / np.maximum(n, 1e-300)
    shift = own_mean - centred(every, n)
    noise = counts(who, (w * (r - shift[who])) ** 2, M)
    near = ((n * (own_mean - shift)) ** 2 - noise) / np.maximum(n * n - squares, 1e-300)
    whole = float((weight * near).sum())
    if not whole > 0.0:
        return 1.0
    part = float((weight * far).sum()) / whole
    error = float(np.sqrt(((weight * (far - part * near)) ** 2).sum())) / whole
    return float(np.clip(part + error, 0.0, 1.0))
