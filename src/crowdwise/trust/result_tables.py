"""What the results of this folder share: tables by name, in the kind of dataframe that the votes came from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.frames import make_frame, to_html
from crowdwise.errors import ParameterError


class Tables(ABC):
    """The base of results. A subclass is a frozen dataclass that gives :meth:`_columns`."""

    TABLES: ClassVar[tuple[str, ...]] = ("annotators",)
    kind: str

    def to_frame(self, table: str | None = None, *, kind: str | None = None) -> Any:
        """One of ``TABLES``, by default the first.

        ``kind`` is ``"pandas"``, ``"polars"``, ``"pyarrow"`` or ``"dict"``; by default what the votes came from.
        """
        table = self.TABLES[0] if table is None else table
        if table not in self.TABLES:
            raise ParameterError(f"Unknown table {table!r}: expected {', '.join(map(repr, self.TABLES))}.")
        return make_frame(self._columns(table), kind or self.kind)

    def _repr_html_(self) -> str:
        return to_html(repr(self), {table: self._columns(table) for table in self.TABLES})

    @abstractmethod
    def _columns(self, table: str) -> dict[str, Any]:
        """The columns of a table, by name."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AnnotatorGroups(Tables):
    """A result that puts annotators into groups: a score, a flag and a group of each."""

    names: npt.NDArray[Any]
    score: Floats
    flagged: npt.NDArray[np.bool_]
    group: Ints
    level: float
    kind: str = "polars"

    def __repr__(self) -> str:
        flagged, groups = int(self.flagged.sum()), len(self.groups)
        inside = f" in {groups:,} group{'s' if groups != 1 else ''}" if flagged else ""
        people = f"{len(self.names):,} annotators: {flagged:,} flagged{inside}"
        return f"{type(self).__name__}({people} at level {self.level:g})"

    @property
    def annotators(self) -> list[Any]:
        """The names of those flagged, for ``votes.without``."""
        return list(self.names[self.flagged].tolist())

    @property
    def groups(self) -> list[list[Any]]:
        """The names of the members of each group of two or more, the largest first."""
        order = np.argsort(self.group, kind="stable")
        ends = np.searchsorted(self.group[order], np.arange(int(self.group.max(initial=-1)) + 2))
        return [self.names[order[a:b]].tolist() for a, b in pairwise(ends.tolist()) if b - a > 1]

    def _of_annotators(self) -> dict[str, Any]:
        return {"annotator": self.names, "score": self.score, "flagged": self.flagged, "group": self.group}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AnnotatorPairs(AnnotatorGroups):
    """Groups that were found pair by pair: positions of the two annotators, common items, an interval, a p-value."""

    TABLES = ("annotators", "pairs")
    left: Ints
    right: Ints
    items: Ints
    low: Floats
    high: Floats
    p_value: Floats

    def _edges(self, pairs: npt.NDArray[np.bool_], weight: Floats) -> list[tuple[Any, Any, float]]:
        names = self.names.tolist()
        return [(names[self.left[e]], names[self.right[e]], float(weight[e])) for e in np.flatnonzero(pairs)]

    def _of_pairs(self, strength: Floats, *columns: str) -> tuple[Ints, dict[str, Any]]:
        """The order of the pairs, the most surprising first, and some columns in it."""
        order = np.lexsort((-strength, self.p_value))
        names = {"annotator": self.names[self.left[order]], "other": self.names[self.right[order]]}
        return order, names | {name: getattr(self, name)[order] for name in columns}
