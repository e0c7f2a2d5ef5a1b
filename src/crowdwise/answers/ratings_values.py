"""From annotators to the values of items: towards the overall mean, the level, and the error that ratings share.

The ratings on an item, biases taken off and weighted by precision, have a mean w[n] with variance V[n]; z[n] ~ N(mu,
tau^2) makes of it the posterior mean m[n] = (mu / tau^2 + w / V) / (1 / tau^2 + 1 / V).

**Half-way.** The reported value is s m[n] + (1 - s) w[n], ``shrink`` = s = 1/2. m is best where the truth is on the
scale of the ratings. On real sets it need not be: the slope of the truth on the crowd's values (noise taken off) lies
between 0.6 and 1.5 there, and whoever says more than the crowd is right as often as whoever says less. Half of the way
has three quarters of the gain where m is right, and half of the loss where it is not.

**Level.** A bias that all annotators share cannot be seen. The values have the level of the plain mean, sum w (x - z) =
0: those who rated more count more for it, which a prior on biases alone would not have.

**Shared errors.** An item that misleads misleads many at once: x = z + g[n] + ..., and no number of ratings averages g
out. g cannot be seen in the ratings, yet where they scatter more it is larger (on five of six real sets, the squared
error grows in proportion to the variance of the ratings on the item): g[n] ~ N(0, c s^2 / d[n]), s^2 the variance of a
typical annotator's noise, d the ease of the item, d ~ Gamma(k, k) with k by maximum likelihood, c = ``shared_error``.
Integrated over d, g is t-distributed with 2 k + n - 1 degrees of freedom.
"""

from __future__ import annotations

import numpy as np

from crowdwise.answers.ratings_gaussian_steps import MIN_VARIANCE, Crowd, State
from crowdwise.answers.ratings_shared import counts, ease_prior
from crowdwise.core.numerics import Floats

SHARED_ERROR = 0.4
"""c: the variance of the shared error, in units of that of the ratings on an item (see the page on ratings)."""
MIN_EASE = 1.5
"""The minimum of k for shared errors, whose t distribution then has a variance on every item."""


def normal_spread(w: Floats, V: Floats) -> tuple[float, float]:
    """mu and tau^2 of w ~ N(mu, tau^2 + V), by scoring; tau^2 is not above the variance of w."""
    mu, tau2 = float(w.mean()), float(w.var())
    most = max(tau2, MIN_VARIANCE)
    for _ in range(50):
        weight = 1.0 / (tau2 + V)
        mu = float((weight * w).sum() / weight.sum())
        new = float((weight**2 * ((w - mu) ** 2 - V)).sum() / (weight**2).sum())
        new = float(np.clip(new, MIN_VARIANCE, most))
        if abs(new - tau2) <= 1e-9 * tau2:
            break
        tau2 = new
    return mu, tau2


def item_sums(crowd: Crowd, weight: Floats, s: State) -> tuple[Floats, Floats, Floats, Floats]:
    """Of the ratings on each item, the sums of precisions and of precisions times numbers (N), and their parts (S)."""
    m = crowd.annotator
    part = weight * s.p[m] * s.a[m] ** 2
    said = weight * s.p[m] * s.a[m] * (crowd.y - s.b[m])
    return counts(crowd.item, part, crowd.N), counts(crowd.item, said, crowd.N), part, said


def between(h: Floats, top: Floats, mu: float, tau2: float, shrink: float) -> tuple[Floats, Floats]:
    """The reported value and the posterior mean: ``top / h`` moved towards mu; mu where nothing is known (h = 0)."""
    posterior = (mu / tau2 + top) / (1.0 / tau2 + h)
    plain = np.divide(top, h, out=np.full_like(top, mu), where=h > 1e-12)
    return shrink * posterior + (1.0 - shrink) * plain, posterior


def shared_errors(crowd: Crowd, weight: Floats, s: State, u: Floats, c: float) -> tuple[Floats, Floats]:
    """The squared scale of each item's shared error, and the degrees of freedom of its t distribution."""
    m, n = crowd.annotator, crowd.item
    free = np.maximum(counts(n, crowd.weight, crowd.N) - 1.0, 0.0) / 2.0
    Q = counts(n, weight * s.p[m] * (crowd.y - s.b[m] - s.a[m] * u[n]) ** 2, crowd.N) / 2.0
    k = 2.0
    for _ in range(8):
        k = ease_prior(free, Q, k)
    k = max(k, MIN_EASE)
    typical = float(np.median((1.0 / s.p)[m]))
    return c * typical * (k + Q) / (k + free), 2.0 * (k + free)
