"""GLAD: ability times ease, errors spread evenly. The model and its fit are in :mod:`crowdwise.methods.ability_fit`."""

from __future__ import annotations

import numpy as np

from crowdwise.core.constraints import Count, Positive
from crowdwise.core.model import Floats, Ints, declared
from crowdwise.core.priors import ClassPrior
from crowdwise.core.shrinkage import one_coin_table
from crowdwise.methods.ability_fit import AbilityModel
from crowdwise.methods.ability_regression import Gaussian, Rows, softplus

EASIEST = 10.0
"""The greatest log of ease: sigmoid(exp(10)) is 1 to ten thousand digits, and sums of such x still have decimals."""


def product(a: Floats, b: Floats, annotator: Ints, item: Ints) -> tuple[Floats, Floats, Floats]:
    """x = a exp(b), dx/da = exp(b), dx/db = x. Ease beyond ``EASIEST`` makes no difference."""
    ease = np.exp(np.minimum(b, EASIEST))[item]
    x = a[annotator] * ease
    return x, ease, np.where(b < EASIEST, 1.0, 0.0)[item] * x


def even_errors(x: Floats, K: int) -> tuple[Floats, Floats]:
    """``glad``: z_s = x_s + log(K - 1), and log P(l_s | another truth) = log(1 - p_s) - log(K - 1)."""
    others = np.log(K - 1.0)
    return x + others, -softplus(x) - others


@declared
class GLAD(AbilityModel):
    """Ability times ease: an annotator is right with probability sigmoid(ability * exp(log ease)), errors uniform.

    The table of annotators has ``ability`` (under 0: more often wrong than right) and ``right``, the mean probability
    of being right, that of items ``difficulty`` = exp(-log ease). Confusion matrices are averages over the items that
    an annotator answered.

    Parameters
    ----------
    ability_mean, ability_sd, ease_mean, ease_sd
        The Normal priors of abilities and of the log of ease.
    class_prior
        ``"uniform"``, ``"learned"``, or the probability of each class.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.difficulty(500, n_annotators=30, votes_per_item=9, random_state=0)
    >>> cw.aggregate(crowd.votes, "glad").score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "glad"
    _link = staticmethod(product)
    _chance = "right"

    ease_mean: float = 1.0
    ease_sd: Positive = 1.0
    class_prior: ClassPrior = "uniform"
    max_iter: Count = 200

    def _gaussians(self) -> tuple[Gaussian, Gaussian]:
        return (self.ability_mean, self.ability_sd), (self.ease_mean, self.ease_sd)

    def _evidence(self, rows: Rows, x: Floats, guess: Floats) -> tuple[Floats, Floats]:
        return even_errors(x, rows.K)

    def _credit(self, rows: Rows, x: Floats, guess: Floats, q: Floats) -> Floats:
        return rows.voted(q)

    def _difficulty(self, b: Floats) -> Floats:
        return np.asarray(np.exp(-b))

    def _mean_confusion(self, p: Floats, guess: Floats, K: int) -> Floats:
        return one_coin_table(p, K)
