"""What the results of this folder share: tables by name, in the kind of dataframe that the votes came from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Ints
from crowdwise.data.frames import make_frame
from crowdwise.errors import ParameterError

__all__ = ["AnnotatorGroups", "Tables"]


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

    @abstractmethod
    def _columns(self, table: str) -> dict[str, Any]:
        """The columns of a table, by name."""


class AnnotatorGroups(Tables):
    """A result that puts annotators into groups."""

    names: npt.NDArray[Any]
    flagged: npt.NDArray[np.bool_]
    group: Ints

    @property
    def annotators(self) -> list[Any]:
        """The names of those flagged, for ``votes.without``."""
        return list(self.names[self.flagged].tolist())

    @property
    def groups(self) -> list[list[Any]]:
        """The names of the members of each group of two or more, the largest first."""
        return [members for g in range(int(self.group.max(initial=-1)) + 1) if len(members := self._members(g)) > 1]

    def _members(self, group: int) -> list[Any]:
        return list(self.names[self.group == group].tolist())
