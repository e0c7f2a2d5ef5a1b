"""Simulated crowds that answer with numbers and with grades, their truth and their annotators known.

:func:`ratings`: the truth of item n is Normal, annotator m says

    centre + b[m] + a[m] (truth[n] - centre) + noise of precision p[m]

:func:`ordinal`: the truth is one of K ordered classes, annotator m sees it with an error of location d[m] and spread
s[m] and says the grade that is nearest. With few parameters per annotator both can be learned from sparse answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crowdwise.data.ratings import Ratings
from crowdwise.errors import InputError, ParameterError
from crowdwise.simulate.assignment import assign
from crowdwise.simulate.crowds import (
    Array,
    Prior,
    RandomState,
    Simulated,
    VotesPerItem,
    answer,
    as_generator,
    begin,
    check_counts,
    check_positive,
    collect,
    draw_truth,
)

__all__ = ["SimulatedRatings", "ordered_confusion", "ordinal", "ratings"]


@dataclass(frozen=True, eq=False)
class SimulatedRatings:
    """Simulated ratings: the table, with the truth of every item, and what it was drawn from (``parameters``)."""

    name: str
    ratings: Ratings
    parameters: dict[str, Any] = field(repr=False)
    features: dict[str, Array] = field(default_factory=dict, repr=False)

    @property
    def answers(self) -> Ratings:
        """The table, by the name it has in every simulated crowd of answers beyond classes."""
        return self.ratings

    @property
    def truth(self) -> Array:
        """The true number of every item."""
        if self.ratings.truth is None:
            raise InputError("These ratings have no truth: a simulated crowd is made with the truth of every item.")
        return self.ratings.truth


def ratings(
    n_items: int = 1000, *, n_annotators: int = 20, bias: float = 0.5, scale: float = 0.0, noise: float = 1.0,
    shape: float = 2.0, mean: float = 0.0, spread: float = 1.0, outliers: float = 0.0, copiers: int = 0,
    features: int = 0, votes_per_item: VotesPerItem = None, random_state: RandomState = 0,
) -> SimulatedRatings:  # fmt: skip
    """Numbers from annotators who differ in bias, scale and precision.

    Biases are Normal with deviation ``bias``, scales Normal around 1 with deviation ``scale`` (at least 0.05),
    precisions Gamma with mean 1 / ``noise``^2 and shape ``shape`` (small: annotators differ much). A share ``outliers``
    of the ratings gets ten times the noise. Of the annotators, ``copiers`` repeat the noise of the first one. With
    ``features`` the truth is half a random linear function of so many inputs (``features["x_train"]``).
    """
    rng = as_generator(random_state)
    check_counts(n_items=n_items, n_annotators=n_annotators)
    check_positive(noise=noise, shape=shape, spread=spread)
    if bias < 0 or scale < 0 or not 0 <= outliers <= 1 or not 0 <= copiers < n_annotators or features < 0:
        raise ParameterError(
            f"bias={bias!r}, scale={scale!r}, outliers={outliers!r}, copiers={copiers!r}, features={features!r}: "
            "expected numbers of at least 0, a share, fewer copiers than annotators, and a number of features."
        )
    x = rng.normal(size=(n_items, features)) if features else np.empty((n_items, 0))
    unit = rng.normal(size=n_items)
    if features:
        w = rng.normal(size=features)
        unit = np.sqrt(0.5) * (x @ w) / np.sqrt(w @ w) + np.sqrt(0.5) * unit
    truth = mean + spread * unit
    b = rng.normal(0.0, bias, size=n_annotators)
    a = np.maximum(rng.normal(1.0, scale, size=n_annotators), 0.05)
    p = rng.gamma(shape, 1.0 / (shape * noise**2), size=n_annotators)
    item, who = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    e = rng.normal(size=len(item)) / np.sqrt(p[who])
    e *= np.where(rng.random(len(item)) < outliers, 10.0, 1.0)
    if copiers:
        shared = rng.normal(size=n_items) / np.sqrt(p[0])
        p[1 : copiers + 1] = p[0]
        copied = who <= copiers
        e[copied] = shared[item[copied]]
    value = mean + b[who] + a[who] * (truth[item] - mean) + e
    made = Ratings.from_codes(item, who, value, items=range(n_items), annotators=range(n_annotators), truth=truth)
    known = {"bias": b, "scale": a, "precision": p, "mean": mean, "spread": spread}
    return SimulatedRatings("ratings", made, known, {"x_train": x} if features else {})


def ordered_confusion(location: Array, spread: Array, n_classes: int) -> Array:
    """theta[m, k, l] of annotators who see grade k as Normal(k + location, spread) and say the nearest grade."""
    from scipy.special import ndtr

    K = n_classes
    cut = np.concatenate([[-np.inf], np.arange(K - 1) + 0.5, [np.inf]])
    z = (cut[None, None, :] - np.arange(K)[None, :, None] - location[:, None, None]) / spread[:, None, None]
    return np.asarray(np.diff(ndtr(z), axis=2))


def ordinal(
    n_items: int = 1000, *, n_annotators: int = 20, n_classes: int = 5, location: float = 0.4,
    spread: tuple[float, float] = (0.4, 1.4), votes_per_item: VotesPerItem = None, prior: Prior = None,
    random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Grades from annotators who are strict or mild (``location``) and careful or careless (``spread``).

    Locations are Normal with deviation ``location``, spreads uniform between two ends, both in grades. Parameters hold
    ``location`` and ``spread`` (M).
    """
    pi, rng = begin(n_items, n_annotators, n_classes, prior, random_state)
    low, high = spread
    check_positive(low=low, high=high)
    if location < 0 or low > high:
        raise ParameterError(f"location={location!r}, spread={spread!r}: expected at least 0, and two rising ends.")
    d, s = rng.normal(0.0, location, size=n_annotators), rng.uniform(low, high, size=n_annotators)
    theta = ordered_confusion(d, s, n_classes)
    truth = draw_truth(n_items, pi, rng)
    item, who = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    said = answer(theta, who, truth[item], rng)
    return collect("ordinal", (item, who), said, truth, pi, theta, location=d, spread=s)
