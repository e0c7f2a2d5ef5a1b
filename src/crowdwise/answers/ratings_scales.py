"""Annotators who rate on another scale than the others: percent among stars, say. No bias makes up for that."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from crowdwise.data.ratings import Ratings
from crowdwise.errors import listing, warn

ENOUGH = 8
"""Ratings by an annotator that show a scale."""
MANY = 200
"""Annotators beyond which one of them does not count in the median of all."""
AWAY, NARROW = 2.0, 4.0
"""How many times the usual width a scale lies outside, or how many times narrower it is, to be another."""


def other_scales(ratings: Ratings) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Who rates on another scale; for each of them the middle 80 % of their ratings, and of those of a usual other.

    [low, high] is the middle 80 % of an annotator's ratings, [l, h] the medians of low and high over the others.
    Another scale has its median outside by ``AWAY`` times h - l; or it is ``NARROW`` times narrower, and all outside.
    One that is wide and not outside may as well be noise.
    """
    n = np.bincount(ratings.annotator, minlength=ratings.n_annotators)
    who = np.flatnonzero(n >= ENOUGH)
    if len(who) < 2:
        return np.empty(0, np.int64), np.empty((0, 2)), np.empty((0, 2))
    order = np.argsort(ratings.annotator, kind="stable")
    rows = np.split(ratings.value[order], np.cumsum(n)[:-1])
    own = np.array([inner(rows[m]) for m in who])
    low, middle, high = own.T
    if len(who) <= MANY:
        usual = np.array([np.median(np.delete(own[:, ::2], m, axis=0), axis=0) for m in range(len(who))])
    else:
        usual = np.broadcast_to(np.median(own[:, ::2], axis=0), (len(who), 2))
    below, above = usual.T
    reach = above - below
    outside = (middle < below - AWAY * reach) | (middle > above + AWAY * reach)
    narrow = (high - low < reach / NARROW) & ((high < below) | (low > above))
    found = np.flatnonzero((reach > 0.0) & (outside | narrow))
    return who[found], own[found][:, ::2], usual[found]


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
        f"{low:.4g} and {high:.4g}, and most of other annotators between {below:.4g} and {above:.4g}. Values may be "
        "far off: bring all to one scale, or leave these out."
    )
