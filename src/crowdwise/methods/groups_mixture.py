"""Mixtures of annotators, each answering like one of a few groups: the base of ``cbcc`` and ``worker-cluster``.

How many groups there are is given, or found: the model is fitted with one, two, three..., each time from the same start
with annotators sorted into groups by how often they agree with it, and the fit with the best score is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np

from crowdwise.core.constraints import Count, CountFromZero, NonNegative
from crowdwise.core.em import Engine
from crowdwise.core.model import Callback, EMFit, EMModel, Family, Params, Stats, Votes, declared
from crowdwise.core.numerics import Floats, softmax
from crowdwise.core.priors import ClassAlpha, DirichletPrior, dirichlet_rows
from crowdwise.core.vote_parts import VoteParts
from crowdwise.errors import ParameterError
from crowdwise.methods.bayes_ibcc import shared_prior

GroupNumber = Count | Literal["evidence"]
"""A number of groups, or as many as the evidence favours."""


def by_accuracy(accuracy: Floats, J: int) -> Floats:
    """The memberships r[m, j] at the start: annotators near the j-th of J evenly spaced quantiles of accuracy."""
    centre = np.quantile(accuracy, (np.arange(J) + 0.5) / J)
    width = max(float(accuracy.std()) / J, 1e-3)
    near = -0.5 * ((accuracy[:, None] - centre) / width) ** 2
    return softmax(near)


@declared
class MixtureModel(EMModel, ABC):
    """The search for the number of groups. In the callback, ``restart`` counts the numbers tried.

    Parameters
    ----------
    prior
        Parameters of the Dirichlets of the groups' matrices: a number for the diagonal, with 1 beside it; two,
        (diagonal, off-diagonal); or an array, K x K (truth, label).
    class_alpha
        Parameters of the Dirichlet of the classes: a number, or one for each class.
    """

    in_parts = True
    group: ClassVar[str]
    """What a group is called in the table of annotators and in attributes."""

    prior: DirichletPrior = 4.0
    class_alpha: ClassAlpha = 1.0
    tol: NonNegative = 1e-6
    restarts: CountFromZero = field(default=0, init=False)
    accelerate: bool = field(default=False, init=False)

    @abstractmethod
    def _tried(self, M: int) -> Iterable[int]:
        """The numbers of groups to try with M annotators."""

    @abstractmethod
    def _grouped(self, start: Stats, votes: Votes, J: int) -> Family:
        """The step of a fit with J groups; of the votes the names alone are looked at."""

    @abstractmethod
    def _score(self, fit: EMFit, J: int, votes: Votes) -> float:
        """The score by which the number of groups is chosen."""

    @abstractmethod
    def _found(self, params: Params) -> tuple[Floats, Floats, Floats, Floats]:
        """theta[m, k, l], and of the groups that have members: matrices, shares and memberships."""

    def _run(self, parts: VoteParts, callback: Callback | None) -> tuple[Params, EMFit, dict[str, Any]]:
        fit = self._search(parts, self._start(parts), parts.names, callback)
        return fit.params, fit, {"log_likelihood": None, "annotator_columns": self._keep(fit.params)}

    def _search(self, part: Engine, start: Stats, votes: Votes, callback: Callback | None) -> EMFit:
        """The fit with the best number of groups."""
        best: tuple[float, EMFit] | None = None
        with_votes = int((start.table().sum(axis=(1, 2)) > 0.0).sum())
        for place, J in enumerate(self._tried(with_votes)):
            fit = self._run_em(part, self._grouped(start, votes, J), start, callback, place)
            score = self._score(fit, J, votes)
            if best is None or score > best[0]:
                best = score, fit
        assert best is not None
        return best[1]

    def _prior(self, params: Params) -> Floats:
        return shared_prior(params.log_prior[0])

    def _confusion(self, params: Params, K: int) -> Floats:
        return self._found(params)[0]

    def _keep(self, params: Params) -> dict[str, Any]:
        """Keep what was found about the groups; the columns of annotators."""
        _, matrices, shares, member = self._found(params)
        order = np.argsort(-np.einsum("jkk->j", matrices), kind="stable")  # the most accurate group first
        setattr(self, f"{self.group}_confusion_", matrices[order])
        setattr(self, f"{self.group}_share_", shares[order])
        member = member[:, order]
        return {self.group: member.argmax(axis=1), f"{self.group}_probability": member.max(axis=1)}

    def _common_prior(self, votes: Votes) -> Floats:
        """1 x K x K: the prior of every group."""
        prior = dirichlet_rows(self.prior, None, votes)
        if len(prior) != 1:
            raise ParameterError("prior is given for each annotator: groups have one, K x K, in common.")
        return prior
