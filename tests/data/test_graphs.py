"""Graphs: from pairs, matrices, frames and files, aligned with the items of votes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import crowdwise as cw
from crowdwise.data.graph import as_graph
from crowdwise.errors import ColumnError, InputError

ITEMS = np.array(["a", "b", "c"], dtype=object)


def edges(graph):
    return sorted(
        (graph.items[i], graph.items[j], w)
        for i, j, w in zip(graph.left, graph.right, graph.weight.tolist(), strict=True)
    )


def test_every_form_says_the_same(tmp_path):
    expected = [("a", "b", 1.0), ("b", "c", 2.0)]
    pairs = [("a", "b"), ("b", "a"), ("c", "b", 2.0), ("a", "a")]
    matrix = csr_array(np.array([[0, 1, 0], [1, 5, 2], [0, 2, 0]]))
    frame = {"source": ["a", "b"], "target": ["b", "c"], "weight": [1.0, 2.0]}
    cw.Graph.from_edges(pairs).to_frame().write_csv(tmp_path / "graph.csv")
    for given in (pairs, matrix, frame, cw.Graph.from_edges(pairs), cw.read_graph(tmp_path / "graph.csv")):
        made = as_graph(given, ITEMS)
        assert made.items.tolist() == ["a", "b", "c"]
        assert edges(made) == expected
    assert repr(cw.Graph.from_edges(pairs)) == "Graph(2 edges between 3 items)"


def test_numbers_in_files_are_numbers(tmp_path):
    (tmp_path / "g.csv").write_text("from,to\n1,2\n2,3\n", encoding="utf-8")
    assert cw.read_graph(tmp_path / "g.csv").items.tolist() == [1, 2, 3]


def test_among():
    graph = cw.Graph.from_edges([("a", "b"), ("b", "z")])
    with pytest.raises(InputError, match=r"'z'.*graph.among"):
        graph.aligned(ITEMS)
    assert edges(graph.among(ITEMS).aligned(ITEMS)) == [("a", "b", 1.0)]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([("a",)], "edge 0 is"),
        ([("a", "b", -1.0)], "positive numbers"),
        (csr_array(np.eye(2)), "2 x 2"),
        ("a-b", "Expected a graph"),
        (None, "Expected a graph"),
    ],
)
def test_bad_graphs(given, match):
    with pytest.raises(InputError, match=match):
        as_graph(given, ITEMS)


def test_a_frame_needs_two_ends():
    with pytest.raises(ColumnError, match="No column found for: target"):
        cw.Graph.from_frame({"source": ["a"]})
    with pytest.raises(InputError, match="lacks an end"):
        cw.Graph.from_frame({"source": ["a", "b"], "target": ["b", None]})


def test_no_edges_is_a_graph():
    assert as_graph([], ITEMS).n_edges == 0 and len(as_graph([], ITEMS)) == 3
