"""Item response with guesses: ability minus difficulty. The model and its fit: :mod:`crowdwise.methods.ability_fit`."""

from __future__ import annotations

import numpy as np

from crowdwise.core.constraints import Positive
from crowdwise.core.model import declared
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.core.priors import ClassPrior
from crowdwise.methods.ability_fit import AbilityModel
from crowdwise.methods.ability_regression import Gaussian, Rows, sigmoid, softplus
from crowdwise.methods.skills_precision import marginal_information


def difference(a: Floats, b: Floats, annotator: Ints, item: Ints) -> tuple[Floats, float, float]:
    """x = a - b, dx/da = 1, dx/db = -1."""
    return a[annotator] - b[item], 1.0, -1.0


def own_guesses(x: Floats, log_guess: Floats) -> tuple[Floats, Floats]:
    """``irt``: z_s = log(1 + exp(x_s) / g), and log P(l_s | another truth) = log(1 - p_s) + log g."""
    return softplus(x - log_guess), log_guess - softplus(x)


@declared
class ItemResponse(AbilityModel):
    """Ability minus difficulty: annotators who know the answer give it, the others guess from their own distribution.

    An annotator knows with probability sigmoid(ability - difficulty). The table of annotators has ``ability`` and
    ``knows``, the mean probability of knowing, that of items ``difficulty``; ``guess_`` has the guesses (M x K).
    Confusion matrices are averages over the items that an annotator answered.

    Parameters
    ----------
    ability_mean, ability_sd, difficulty_sd
        The Normal priors of abilities and of difficulties (whose mean is 0: only differences matter). A wide prior of
        difficulties is rarely good: they are point estimates from a few votes each.
    guess_smoothing
        Pseudo-guesses of every annotator, spread evenly over the classes: a Dirichlet prior. More of them (20) where
        nobody knows many of the items: split votes drift into one class otherwise.
    class_prior
        ``"learned"``, ``"uniform"``, or the probability of each class. Guesses follow the class shares, and under a
        fixed, wrong prior those who know the common class look like guessers.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.hammer_spammer(400, n_classes=4, accuracy=0.9, votes_per_item=5, random_state=0)
    >>> cw.aggregate(crowd.votes, "irt").score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "irt"
    reads_backwards = False
    _link = staticmethod(difference)
    _chance = "knows"

    ability_sd: Positive = 2.0
    difficulty_sd: Positive = 0.5
    guess_smoothing: Positive = 3.0
    class_prior: ClassPrior = "learned"

    def _gaussians(self) -> tuple[Gaussian, Gaussian]:
        return (self.ability_mean, self.ability_sd), (0.0, self.difficulty_sd)

    def _evidence(self, rows: Rows, x: Floats, guess: Floats) -> tuple[Floats, Floats]:
        return own_guesses(x, safe_log(guess).ravel()[rows.cell])

    def _credit(self, rows: Rows, x: Floats, guess: Floats, q: Floats) -> Floats:
        return np.asarray(rows.voted(q) * sigmoid(x - safe_log(guess).ravel()[rows.cell]))

    def _guesses(self, rows: Rows, c: Floats) -> Floats:
        return normalise(self._per_cell(rows, 1.0 - c) + self.guess_smoothing / rows.K, axis=1)

    def _per_cell(self, rows: Rows, values: Floats) -> Floats:
        """M x K: the weighted sum over an annotator's votes for a label."""
        found = np.bincount(rows.cell, weights=rows.weight * values, minlength=rows.M * rows.K)
        return np.asarray(found.reshape(rows.M, rows.K), dtype=np.float64)

    def _guess_slope(self, rows: Rows, c: Floats, guess: Floats) -> Floats:
        return np.asarray((1.0 - c) / guess.ravel()[rows.cell])

    def _information(self, rows: Rows, in_a: Floats, in_guess: Floats, guess: Floats) -> Floats:
        own = self._per_cell(rows, in_guess**2) + self.guess_smoothing / rows.K / guess**2
        along = self._per_cell(rows, in_a * in_guess)
        return marginal_information(super()._information(rows, in_a, in_guess, guess), along, own)

    def _log_guess_prior(self, guess: Floats) -> float:
        return float(safe_log(guess).sum() * self.guess_smoothing / guess.shape[1])

    def _difficulty(self, b: Floats) -> Floats:
        return b

    def _mean_confusion(self, p: Floats, guess: Floats, K: int) -> Floats:
        return np.asarray(p[:, None, None] * np.eye(K) + (1.0 - p)[:, None, None] * guess[:, None, :])
