"""Edges between items: which of them are linked, and how strongly.

An edge has no direction and is counted once, however often and in whichever direction it is named (with the largest of
its weights); an item is no neighbour of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding, files, frames
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.files import NULLS, PathLike
from crowdwise.errors import ColumnError, InputError, listing

__all__ = ["Graph", "read_graph"]


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A frozen list of edges between named items. Make one with a ``from_...`` method or :func:`crowdwise.read_graph`.

    >>> graph = Graph.from_edges([("a", "b"), ("b", "a"), ("b", "c", 2.0)])
    >>> graph
    Graph(2 edges between 3 items)
    """

    left: Codes
    right: Codes
    weight: npt.NDArray[np.float64]
    items: Vocabulary

    def __post_init__(self) -> None:
        for array in (self.left, self.right, self.weight, self.items):
            array.setflags(write=False)

    # ---------------------------------------------------------------- making one

    @classmethod
    def from_edges(cls, edges: Iterable[Any]) -> Graph:
        """From pairs of names, with a weight as a third entry where there is one."""
        rows = [tuple(row) if isinstance(row, (tuple, list, np.ndarray)) else row for row in edges]
        odd = [n for n, row in enumerate(rows) if not isinstance(row, tuple) or len(row) not in (2, 3)]
        if odd:
            raise InputError(
                f"Expected (item, item) or (item, item, weight) in every edge: edge {odd[0]} is {rows[odd[0]]!r}."
            )
        weight = np.array([row[2] if len(row) == 3 else 1.0 for row in rows], dtype=np.float64)
        names = encoding.to_vocabulary([name for row in rows for name in row[:2]])
        kinds = encoding.to_vocabulary(list(dict.fromkeys(names.tolist())))
        code = encoding.locate(names, kinds).reshape(-1, 2)
        return cls.from_codes(code[:, 0], code[:, 1], weight, kinds)

    @classmethod
    def from_matrix(cls, matrix: Any, items: Any) -> Graph:
        """From a sparse N x N matrix of weights (zero: no edge), and the names of its rows."""
        table = matrix.tocoo() if hasattr(matrix, "tocoo") else None
        if table is None:
            raise InputError(f"Expected a scipy sparse matrix and found {type(matrix).__name__}.")
        names = encoding.to_vocabulary(items)
        if table.shape != (len(names), len(names)):
            raise InputError(
                f"The graph's matrix is {table.shape[0]} x {table.shape[1]}: expected one row for each of {len(names)}."
            )
        stored = table.data != 0
        return cls.from_codes(table.row[stored], table.col[stored], table.data[stored].astype(np.float64), names)

    @classmethod
    def from_frame(
        cls, frame: Any, *, source: str | None = None, target: str | None = None, weight: str | None = None,
        from_text: bool = False,
    ) -> Graph:  # fmt: skip
        """From a table with one row per edge: columns source and target (from/to, left/right), and maybe weight."""
        import polars as pl

        table = frames.to_polars(frame)
        parts = columns.resolve(table.columns, {"source": source, "target": target, "weight": weight})
        if parts["source"] is None or parts["target"] is None:
            raise ColumnError(
                f"A graph needs the columns source and target: found {listing(table.columns, 12)}. Name them."
            )
        ends = pl.concat([table[parts["source"]].alias("item"), table[parts["target"]].alias("item")])
        code, names = encoding.encode(ends)
        if from_text:
            code, names = encoding.integers_in_text(code, names)
        if (code < 0).any():
            raise InputError(f"Edge {int(np.flatnonzero(code < 0)[0]) % table.height} lacks an end.")
        w = np.ones(table.height)
        if parts["weight"] is not None:
            w = table[parts["weight"]].cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        return cls.from_codes(code[: table.height], code[table.height :], w, names)

    @classmethod
    def from_codes(cls, left: Any, right: Any, weight: npt.NDArray[np.float64], items: Any) -> Graph:
        """From codes into the names of the items."""
        bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))
        if len(bad):
            raise InputError(f"Weights of edges must be positive numbers: edge {bad[0]} has {weight[bad[0]]}.")
        names = encoding.to_vocabulary(items)
        a, b = np.minimum(left, right).astype(np.int64), np.maximum(left, right).astype(np.int64)
        apart = a != b
        key, place = np.unique(a[apart] * len(names) + b[apart], return_inverse=True)
        largest = np.zeros(len(key))
        np.maximum.at(largest, place, weight[apart])
        n = max(len(names), 1)
        return cls((key // n).astype(np.int32), (key % n).astype(np.int32), largest, names)

    # ---------------------------------------------------------------- using it

    def __len__(self) -> int:
        """The number of edges."""
        return len(self.left)

    def __repr__(self) -> str:
        return f"Graph({len(self):,} edges between {len(self.items):,} items)"

    def among(self, items: Iterable[Any]) -> Graph:
        """The edges between some items alone."""
        names = encoding.to_vocabulary(list(items))
        place = encoding.locate(self.items, names)
        keep = (place[self.left] >= 0) & (place[self.right] >= 0)
        return Graph.from_codes(place[self.left[keep]], place[self.right[keep]], self.weight[keep], names)

    def aligned(self, items: Vocabulary) -> Graph:
        """The same edges in the codes of all items; an end that is none of them is an error."""
        if self.items is items or np.array_equal(self.items, items):
            return self
        place = encoding.locate(self.items, items)
        used = np.zeros(len(self.items), dtype=bool)
        used[self.left] = used[self.right] = True
        lost = self.items[used & (place < 0)]
        if len(lost):
            raise InputError(
                f"The graph joins {len(lost):,} items that the votes do not have: {listing(lost)}. Check that both "
                "name the items alike, or leave those edges out: graph.among(votes.items)."
            )
        return Graph.from_codes(place[self.left], place[self.right], self.weight, items)

    def to_frame(self, kind: str = "polars") -> Any:
        """One row per edge."""
        out = {"source": self.items[self.left], "target": self.items[self.right], "weight": self.weight}
        return frames.make_frame(out, kind)


def as_graph(graph: Any, items: Vocabulary) -> Graph:
    """A graph in the codes of the items, from whatever was handed over."""
    if isinstance(graph, Graph):
        return graph.aligned(items)
    if hasattr(graph, "tocoo"):
        return Graph.from_matrix(graph, items)
    if isinstance(graph, (str, bytes)) or graph is None:
        raise InputError(
            "Expected a graph: pairs of items, a sparse matrix, a table with source and target, or read_graph(path); "
            f"found {graph!r}."
        )
    if isinstance(graph, dict) or hasattr(graph, "columns") or hasattr(graph, "__arrow_c_stream__"):
        return Graph.from_frame(graph).aligned(items)
    return Graph.from_edges(graph).aligned(items)


def read_graph(
    path: PathLike, *, source: str | None = None, target: str | None = None, weight: str | None = None,
    separator: str | None = None, null_values: Sequence[str] = NULLS,
) -> Graph:  # fmt: skip
    """A graph from a file with the columns source and target (and maybe weight), one row per edge."""
    table, from_text = files.read_table(path, {}, separator=separator, null_values=null_values)
    return Graph.from_frame(table, source=source, target=target, weight=weight, from_text=from_text)
