"""The base of the tables of answers in which every row is by an annotator: whose rows to keep, and what they weigh."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.frozen import Frozen


class Answers(Frozen, ABC):
    """A frozen table with a code of the annotator in every row. A subclass gives ``_kept``."""

    _rows: ClassVar[str] = "answers"
    """What rows are called in messages."""

    if TYPE_CHECKING:  # fields of every table

        @property
        def annotator(self) -> Codes: ...

        @property
        def annotators(self) -> Vocabulary: ...

        @property
        def weight(self) -> npt.NDArray[np.float64] | None: ...

    @property
    def n_annotators(self) -> int:
        return len(self.annotators)

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weight of every row, ones where none were given."""
        return np.ones(len(self.annotator)) if self.weight is None else self.weight

    def only(self, annotators: Sequence[Any]) -> Self:
        """The rows of some annotators, by name. Items keep their codes, even those left without any."""
        return self._by_annotator(annotators, keep=True)

    def without(self, annotators: Sequence[Any]) -> Self:
        """The rows of everybody but some annotators, by name."""
        return self._by_annotator(annotators, keep=False)

    def _by_annotator(self, names: Sequence[Any], keep: bool) -> Self:
        chosen = assemble.chosen_annotators(names, self.annotators, self._rows)
        chosen = chosen if keep else ~chosen
        kept = self._kept(chosen[self.annotator])
        code = (np.cumsum(chosen) - 1)[kept.annotator].astype(np.int32)
        return replace(kept, annotators=self.annotators[chosen], annotator=code)

    def _at(self, rows: npt.NDArray[Any], *names: str) -> dict[str, Any]:
        """Some rows of the arrays of these names, and of annotators, weights and timestamps."""
        every = {name: getattr(self, name) for name in (*names, "annotator", "weight", "timestamp")}
        return {name: None if array is None else array[rows] for name, array in every.items()}

    @abstractmethod
    def _kept(self, mask: npt.NDArray[np.bool_]) -> Self:
        """The rows of a mask, with items and annotators as they are."""


class ByItem(Answers):
    """Answers that are looked at item by item: the length is the number of items."""

    if TYPE_CHECKING:

        @property
        def items(self) -> Vocabulary: ...

    @property
    def shape(self) -> tuple[int]:
        """``(N,)``: scikit-learn's splitters index answers by item."""
        return (len(self),)

    def __len__(self) -> int:
        return len(self.items)
