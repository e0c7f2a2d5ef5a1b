"""Ability minus difficulty, and guesses of one's own.

The model and its fit are in :mod:`crowdwise.methods.ability_fit`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.checks import check_number
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.core.parameters import declared
from crowdwise.methods.ability_fit import AbilityModel
from crowdwise.methods.ability_regression import Gaussian, Rows, sigmoid, softplus
from crowdwise.methods.skills_precision import unmimicked


def difference(a: Floats, b: Floats, annotator: Ints, item: Ints) -> tuple[Floats, float, float]:
    """x = a - b, dx/da = 1, dx/db = -1."""
    return a[annotator] - b[item], 1.0, -1.0


def own_guesses(x: Floats, log_guess: Floats) -> tuple[Floats, Floats]:
    """``irt``: z_s = log(1 + exp(x_s) / g), and log P(l_s | another truth) = log(1 - p_s) + log g."""
    return softplus(x - log_guess), log_guess - softplus(x)


@declared
class ItemResponse(AbilityModel):
    """Ability minus difficulty: who knows the answer gives it, who does not guesses in a way of their own.

    An annotator knows with probability sigmoid(ability - difficulty). Adds ``ability`` and ``knows``, the mean
    probability of knowing, to the table of annotators, and ``difficulty`` to that of items; ``guess_`` has the guesses
    (M x K). Confusion matrices are averages over the items that an annotator answered.

    Parameters
    ----------
    ability_mean, ability_sd, difficulty_sd
        The Normal priors of abilities and of difficulties (whose mean is 0: only differences matter). A wide prior of
        difficulties is rarely good: they are point estimates from a few votes each.
    guesses
        Pseudo-guesses of every annotator, spread evenly over the classes: a Dirichlet prior. More of them (20) where
        many items are beyond everybody, see the module.
    class_prior
        ``"learned"``, ``"uniform"``, or the probability of each class. Guesses follow the class shares, and a fixed,
        wrong prior would take those who know the common class for guessers.
    start, max_iter, tol, ties, random_state
        As in :class:`AbilityModel`.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(400, n_classes=4, accuracy=0.9, votes_per_item=5, random_state=0)
    >>> consensus = cw.ItemResponse().fit(crowd.votes).consensus_
    >>> consensus.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "irt"
    _link = staticmethod(difference)
    _chance = "knows"

    ability_mean: float = 1.0
    ability_sd: float = 2.0
    difficulty_sd: float = 0.5
    guesses: float = 3.0
    class_prior: Any = "learned"

    def _gaussians(self) -> tuple[Gaussian, Gaussian]:
        return (self.ability_mean, self.ability_sd), (0.0, self.difficulty_sd)

    def _evidence(self, rows: Rows, x: Floats, guess: Floats) -> tuple[Floats, Floats]:
        return own_guesses(x, safe_log(guess).ravel()[rows.cell])

    def _credit(self, rows: Rows, x: Floats, guess: Floats, q: Floats) -> Floats:
        return np.asarray(rows.voted(q) * sigmoid(x - safe_log(guess).ravel()[rows.cell]))

    def _guesses(self, rows: Rows, c: Floats) -> Floats:
        counts = np.bincount(rows.cell, weights=rows.weight * (1.0 - c), minlength=rows.M * rows.K).reshape(
            rows.M, rows.K
        )
        return normalise(np.asarray(counts + self.guesses / rows.K, dtype=np.float64), axis=1)

    def _guess_slope(self, rows: Rows, c: Floats, guess: Floats) -> Floats:
        return np.asarray((1.0 - c) / guess.ravel()[rows.cell])

    def _information(self, rows: Rows, in_a: Floats, in_guess: Floats, guess: Floats) -> Floats:
        def per_cell(values: Floats) -> Floats:
            found = np.bincount(rows.cell, weights=rows.weight * values, minlength=guess.size)
            return np.asarray(found.reshape(guess.shape), dtype=np.float64)

        own = per_cell(in_guess**2) + self.guesses / rows.K / guess**2
        return unmimicked(super()._information(rows, in_a, in_guess, guess), per_cell(in_a * in_guess), own)

    def _log_guess_prior(self, guess: Floats) -> float:
        return float(safe_log(guess).sum() * self.guesses / guess.shape[1])

    def _difficulty(self, b: Floats) -> Floats:
        return b

    def _mean_confusion(self, p: Floats, guess: Floats, K: int) -> Floats:
        return np.asarray(p[:, None, None] * np.eye(K) + (1.0 - p)[:, None, None] * guess[:, None, :])

    def _check_together(self) -> None:
        super()._check_together()
        check_number(self, "guesses", above=0.0, what="a positive number of pseudo-guesses")
