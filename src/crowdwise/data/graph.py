"""Edges between items: which of them are linked, and how strongly.

An edge has no direction and is counted once, however often and in either direction it is named (with the largest of
its weights); an item is not a neighbour of itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, encoding, frames
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.schema import Col
from crowdwise.data.source import Source
from crowdwise.data.table import Readable, reader
from crowdwise.errors import InputError, listing


@dataclass(frozen=True, eq=False, repr=False)
class Graph(Readable):
    """A frozen list of edges between named items. Make one with a ``from_...`` method or :func:`crowdwise.read_graph`.

    >>> graph = Graph.from_edges([("a", "b"), ("b", "a"), ("b", "c", 2.0)])
    >>> graph
    Graph(2 edges between 3 items)
    """

    columns: ClassVar[tuple[Col, ...]] = (Col("source", needed=True), Col("target", needed=True), Col("weight"))
    _rows: ClassVar[str] = "edges"
    _forms: ClassVar[str] = "One row per edge."

    left: Codes
    right: Codes
    weight: npt.NDArray[np.float64]
    items: Vocabulary

    @classmethod
    def from_edges(cls, edges: Iterable[Any]) -> Graph:
        """From pairs of names, with a weight as a third entry where there is one."""
        rows = [tuple(row) if isinstance(row, (tuple, list, np.ndarray)) else row for row in edges]
        odd = [n for n, row in enumerate(rows) if not isinstance(row, tuple) or len(row) not in (2, 3)]
        if odd:
            raise InputError(f"Expected (item, item) or (item, item, weight): edge {odd[0]} is {rows[odd[0]]!r}.")
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
    def _from_source(cls, source: Source, **options: Any) -> Graph:
        source.require(cls._needed())
        lost = [source.row(at) for part in cls._needed() for at in source[part].is_null().arg_true().to_list()]
        if lost:
            raise InputError(f"Edge {min(lost)} lacks an end.")
        code, names = source.coded(*cls._needed())
        weight = (
            source.numbers("weight", "a positive number", InputError) if "weight" in source else np.ones(len(source))
        )
        left, right = np.split(code, 2)
        return cls.from_codes(left, right, weight, names)

    @classmethod
    def from_codes(cls, left: Any, right: Any, weight: npt.NDArray[np.float64], items: Any) -> Graph:
        """From codes into the names of the items."""
        assemble.check_weights(weight, lambda at: f"at edge {at}", "edges")
        names = encoding.to_vocabulary(items)
        a, b = np.minimum(left, right).astype(np.int64), np.maximum(left, right).astype(np.int64)
        apart = a != b
        key, place = np.unique(a[apart] * len(names) + b[apart], return_inverse=True)
        largest = np.zeros(len(key))
        np.maximum.at(largest, place, weight[apart])
        n = max(len(names), 1)
        return cls((key // n).astype(np.int32), (key % n).astype(np.int32), largest, names)

    def __len__(self) -> int:
        """N, the number of items."""
        return len(self.items)

    @property
    def n_items(self) -> int:
        """N, the number of items, as ``len(graph)``."""
        return len(self.items)

    @property
    def n_edges(self) -> int:
        """The number of edges."""
        return len(self.left)

    def __repr__(self) -> str:
        return f"Graph({self.n_edges:,} edges between {len(self):,} items)"

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


read_graph = reader(Graph, "read_graph")
