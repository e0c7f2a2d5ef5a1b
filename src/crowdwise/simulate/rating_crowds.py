"""Simulated crowds that answer with numbers and with grades, their truth and their annotators known.

:func:`ratings`: the truth of item n is Normal, annotator m says

    centre + b[m] + a[m] (truth[n] - centre) + noise of precision p[m]

:func:`ordinal`: the truth is one of K ordered classes, annotator m sees it with an error of location d[m] and spread
s[m] and says the grade that is nearest. With few parameters per annotator both can be learned from sparse answers.
"""

from __future__ import annotations

import numpy as np

from crowdwise.data.ratings import Ratings
from crowdwise.errors import ParameterError
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import Array, Prior, RandomState, Simulated, SimulatedAnswers, VotesPerItem, assign


class SimulatedRatings(SimulatedAnswers[Ratings]):
    """Simulated ratings, with the true number of every item, and what they were drawn from."""

    @property
    def ratings(self) -> Ratings:
        """The table."""
        return self.answers


def ratings(
    n_items: int = 1000, *, n_annotators: int = 20, bias: float = 0.5, scale: float = 0.0, noise: float = 1.0,
    shape: float = 2.0, mean: float = 0.0, spread: float = 1.0, outliers: float = 0.0, n_copiers: int = 0,
    n_features: int = 0, votes_per_item: VotesPerItem = None, shared_noise: float = 0.0, random_state: RandomState = 0,
) -> SimulatedRatings:  # fmt: skip
    """Numbers from annotators who differ in bias, scale and precision.

    Biases are Normal with deviation ``bias``, scales Normal around 1 with deviation ``scale`` (at least 0.05),
    precisions Gamma with mean 1 / ``noise``^2 and shape ``shape`` (small: annotators differ much). A share ``outliers``
    of the ratings gets ten times the noise. Of the annotators, ``n_copiers`` repeat the noise of the first one. With
    ``n_features`` the truth is half a random linear function of so many inputs (``features["x_train"]``). An error of
    deviation ``shared_noise`` is common to all ratings on an item.
    """
    rng = crowds.as_generator(random_state)
    crowds.check_counts(n_items=n_items, n_annotators=n_annotators)
    crowds.check_positive(noise=noise, shape=shape, spread=spread)
    wrong = min(bias, scale, shared_noise, n_features) < 0 or not 0 <= outliers <= 1
    if wrong or not 0 <= n_copiers < n_annotators:
        raise ParameterError(
            f"bias={bias!r}, scale={scale!r}, outliers={outliers!r}, n_copiers={n_copiers!r}, "
            f"n_features={n_features!r}, shared_noise={shared_noise!r}: expected numbers of at least 0, a share, fewer "
            "copiers than annotators, a number of features, and a number of at least 0."
        )
    x = rng.normal(size=(n_items, n_features)) if n_features else np.empty((n_items, 0))
    unit = rng.normal(size=n_items)
    if n_features:
        w = rng.normal(size=n_features)
        unit = np.sqrt(0.5) * (x @ w) / np.sqrt(w @ w) + np.sqrt(0.5) * unit
    truth = mean + spread * unit
    b = rng.normal(0.0, bias, size=n_annotators)
    a = np.maximum(rng.normal(1.0, scale, size=n_annotators), 0.05)
    p = rng.gamma(shape, 1.0 / (shape * noise**2), size=n_annotators)
    item, who = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    e = rng.normal(size=len(item)) / np.sqrt(p[who])
    e *= np.where(rng.random(len(item)) < outliers, 10.0, 1.0)
    if n_copiers:
        shared = rng.normal(size=n_items) / np.sqrt(p[0])
        p[1 : n_copiers + 1] = p[0]
        copied = who <= n_copiers
        e[copied] = shared[item[copied]]
    if shared_noise:
        e += shared_noise * rng.normal(size=n_items)[item]
    value = mean + b[who] + a[who] * (truth[item] - mean) + e
    made = Ratings.from_codes(item, who, value, items=range(n_items), annotators=range(n_annotators), truth=truth)
    known = {"bias": b, "scale": a, "precision": p, "mean": mean, "spread": spread}
    return SimulatedRatings("ratings", made, known, {"x_train": x} if n_features else {})


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
    pi, rng = crowds.begin(n_items, n_annotators, n_classes, prior, random_state)
    low, high = spread
    crowds.check_positive(low=low, high=high)
    if location < 0 or low > high:
        raise ParameterError(f"location={location!r}, spread={spread!r}: expected at least 0, and two rising ends.")
    d, s = rng.normal(0.0, location, size=n_annotators), rng.uniform(low, high, size=n_annotators)
    theta = ordered_confusion(d, s, n_classes)
    truth = crowds.draw_truth(n_items, pi, rng)
    item, who = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    said = crowds.answer(theta, who, truth[item], rng)
    return crowds.collect("ordinal", (item, who), said, truth, pi, theta, location=d, spread=s)
