"""Annotators of a few kinds: what ``cbcc`` and ``worker-cluster`` share.

How many kinds there are is given, or found: the model is fitted with one, two, three..., each time from the same start
with annotators sorted into kinds by how often they agree with it, and the fit with the best score is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import field
from typing import Any

import numpy as np

from crowdwise.core import em
from crowdwise.core.constraints import Count, CountFromZero, NonNegative
from crowdwise.core.em import EMFit, Family, Params, Part, Stats
from crowdwise.core.loop import Callback
from crowdwise.core.model import EMModel, Outcome, check_memory
from crowdwise.core.numerics import Floats, Ints, softmax
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.methods.bayes_ibcc import dirichlet_rows, shared_prior


def by_accuracy(accuracy: Floats, J: int) -> Floats:
    """A first r[m, j]: annotators near the j-th of J evenly spaced quantiles of accuracy."""
    centre = np.quantile(accuracy, (np.arange(J) + 0.5) / J)
    width = max(float(accuracy.std()) / J, 1e-3)
    near = -0.5 * ((accuracy[:, None] - centre) / width) ** 2
    return softmax(near)


@declared
class KindsModel(EMModel, ABC):
    """The search for the number of kinds, and what a fit ends in.

    Parameters
    ----------
    class_alpha
        Parameters of the Dirichlet of the classes: a number, or one for each class.
    start
        Where to begin: ``"votes"``, a method of moments (``"spectral-ds"``, ``"multispa"``, ``"cnmf"``, ``"symnmf"``,
        ``"tensor"``), an N x K posterior, or a :class:`~crowdwise.Consensus`.
    max_iter, tol
        Stop after so many passes over the votes, or when a pass gains less than ``tol`` per vote.
    ties, random_state
        Equally probable classes: the one with the higher ``"prior"``, then the first; or ``"random"``, seeded.
    """

    prior: Any = 4.0
    class_alpha: Any = 1.0
    start: Any = "votes"
    max_iter: Count = 500
    tol: NonNegative = 1e-6
    restarts: CountFromZero = field(default=0, init=False)
    accelerate: bool = field(default=False, init=False)

    @abstractmethod
    def _tried(self, M: int) -> Iterable[int]:
        """The numbers of kinds to try with M annotators."""

    @abstractmethod
    def _family(self, part: Part, start: Stats, votes: Votes, gold: Ints | None, J: int = 1) -> Family:
        """The step of a fit with J kinds."""

    @abstractmethod
    def _score(self, climb: EMFit, J: int, votes: Votes) -> float:
        """What the best number of kinds has the most of."""

    @abstractmethod
    def _found(self, params: Params) -> tuple[Floats, dict[str, Any]]:
        """theta[m, k, l] and the columns of the table of annotators; what there is of the kinds is kept."""

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        part = Part.of(votes, gold, item_prior)
        start = self._start(part, votes, gold)
        best: tuple[float, EMFit] | None = None
        for place, J in enumerate(self._tried(votes.n_annotators)):
            climb = self._run_em(part, self._family(part, start, votes, gold, J), start, callback, place)
            score = self._score(climb, J, votes)
            if best is None or score > best[0]:
                best = score, climb
        assert best is not None
        climb = best[1]
        self.params_ = climb.params
        self.stats_, posterior = em.expect(part, climb.params, posterior=True)
        theta, columns = self._found(climb.params)
        return Outcome(
            posterior=posterior,
            prior=shared_prior(climb.params.log_prior[0]),
            confusion=theta,
            trace=climb.trace,
            iterations=climb.iterations,
            converged=climb.converged,
            annotator_columns=columns,
        )

    def _common_prior(self, votes: Votes, kinds: str) -> Floats:
        """1 x K x K: the prior of every kind."""
        prior = dirichlet_rows(self.prior, None, votes)
        if len(prior) != 1:
            raise ParameterError(f"prior is given for each annotator: {kinds} have one, K x K, in common.")
        return prior

    def _check_kinds(self, number: str) -> None:
        """Complain of a number of kinds, or of the most that are tried, which is no such number."""
        for name in (number, "most"):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1
            if not whole and not (name == number and isinstance(value, str) and value == "evidence"):
                word = ", or 'evidence'" if name == number else ""
                raise ParameterError(f"{name}={value!r}: expected a whole number of at least 1{word}.")
