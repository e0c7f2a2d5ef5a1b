"""Votes of a stream that err together: how strongly, and the posterior that allows for it (see core.dependence)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import numpy as np

from crowdwise.core.dependence import PRIOR_RHO, Dependence, correct, estimate, resolve
from crowdwise.core.numerics import Floats, clamp
from crowdwise.data.votes import Votes
from crowdwise.online.stream_gold import StreamWithGold

GROWTH = 1.1
"""The dependence is estimated again when the votes have grown by this factor."""

__all__ = ["CorrectedStream"]


class CorrectedStream(StreamWithGold):
    """A stream whose probabilities can be corrected."""

    _shown: tuple[int, int, Dependence] | None
    """After how many votes and gold labels it was estimated, and what it was."""

    @abstractmethod
    def votes(self) -> Votes: ...

    @abstractmethod
    def e_step(self) -> tuple[Floats, Floats]: ...

    def shown_dependence(self) -> Dependence:
        """How strongly the votes on an item depend on each other, for whatever is stated or decided about the stream.

        The correlation that the votes show, and at least that of usual crowds: votes that were asked for where items
        were uncertain agree less than others, which hides it. A number that was given to the model is used as it is.
        It is estimated again when a tenth more votes have come.
        """
        if not isinstance(self.model.dependence, str):
            return resolve(self.model.dependence, self.votes(), np.empty((0, 0)))
        S, known = self.store.n_votes, int((self.store.truth >= 0).sum())
        if self._shown is None or self._shown[1] != known or not self._shown[0] <= S <= GROWTH * self._shown[0]:
            votes, (q, _) = self.votes(), self.e_step()
            order, _ = self.class_names.encode(votes.classes)  # the table has the classes in the usual order
            found = estimate(votes, q[:, order], votes.truth)
            bias = np.array(found.bias)[order.argsort()].tolist() if found.bias else ()
            self._shown = S, known, replace(found, rho=max(found.rho, PRIOR_RHO), bias=tuple(bias))
        return self._shown[2]

    def corrected(self, q: Floats) -> Floats:
        """A posterior of the items in the store, corrected by :meth:`shown_dependence`; gold labels are certain."""
        indptr, _, _, weight = self.store.votes()
        item = np.repeat(np.arange(len(q)), np.diff(indptr))
        n = np.bincount(item, weights=weight if len(weight) else None, minlength=len(q)).astype(np.float64)
        return clamp(correct(q, n, self.shown_dependence()), self.store.truth)
