"""The table of same-or-different answers: what it reads, what it refuses, what it keeps."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.data.similarities import read_similarities
from crowdwise.errors import ColumnError, DuplicateError, InputError, LabelError, ParameterError, ReadError

ROWS = [("x", "y", "ann", "same"), ("z", "y", "ann", "different"), ("y", "x", "bob", "no"), ("x", "z", "cem", "1")]


def make(**more):
    return cw.Similarities.from_records(ROWS, **more)


def test_pairs_have_no_order_and_rows_are_sorted():
    answers = make()
    assert answers.items.tolist() == ["x", "y", "z"]
    assert answers.pairs.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert answers.same.tolist() == [True, False, True, False]
    assert (len(answers), answers.n_pairs, answers.n_answers, answers.n_annotators) == (3, 3, 4, 3)
    turned = cw.Similarities.from_records([(b, a, m, s) for a, b, m, s in reversed(ROWS)])
    for name in ("pairs", "indptr", "annotator", "same"):
        assert np.array_equal(getattr(answers, name), getattr(turned, name))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([True, False], [True, False]),
        ([1, 0], [True, False]),
        ([1.0, 0.0], [True, False]),
        (["Yes", " no "], [True, False]),
        (["TRUE", "false"], [True, False]),
        (["same", "different"], [True, False]),
        (["must-link", "cannot-link"], [True, False]),
    ],
)
def test_words_for_the_two_answers(column, expected):
    table = {"item_a": [1, 1], "item_b": [2, 3], "worker": ["m", "m"], "same": column}
    assert cw.Similarities.from_frame(table).same.tolist() == expected


@pytest.mark.parametrize("make_frame", [pl.DataFrame, pd.DataFrame, dict])
def test_frames_go_in_and_come_out_alike(make_frame):
    table = {"item1": [3, 1, 1], "item2": [1, 2, 3], "rater": ["a", "a", "b"], "answer": ["yes", "no", "no"]}
    answers = cw.Similarities.from_frame(make_frame(table))
    back = answers.to_frame()
    assert isinstance(back, pd.DataFrame if make_frame is pd.DataFrame else pl.DataFrame)
    again = cw.Similarities.from_frame(back)
    assert np.array_equal(again.pairs, answers.pairs) and np.array_equal(again.same, answers.same)


def test_reads_files(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("left,right,worker,same,weight\n007,8,ann,yes,2\n8,9,bob,no,1\n", encoding="utf-8")
    answers = read_similarities(path)
    assert answers.items.tolist() == ["007", "8", "9"]  # a name stays as it was written
    assert answers.weights.tolist() == [2.0, 1.0]
    (tmp_path / "empty.csv").write_text("item_a,item_b,annotator,same\n", encoding="utf-8")
    with pytest.raises(ReadError, match="has no answers"):
        read_similarities(tmp_path / "empty.csv")


def test_declared_items_keep_their_order_and_may_be_in_no_pair():
    answers = make(items=["w", "z", "y", "x"])
    assert answers.items.tolist() == ["w", "z", "y", "x"]
    assert answers.pairs.tolist() == [[1, 2], [1, 3], [2, 3]]
    assert answers.components().tolist() == [1, 0, 0, 0]
    with pytest.raises(LabelError, match="declared items do not have"):
        make(items=["x", "y"])


@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        ([("x", "x", "a", 1)], InputError, "compares item 'x' with itself"),
        ([("x", "y", "a", "maybe")], LabelError, "'maybe'"),
        ([("x", "y", "a", 1), ("y", "x", "a", 0)], DuplicateError, r"\('x', 'y'\)"),
        ([("x", "y", "a")], InputError, r"\(item_a, item_b, annotator, same\)"),
        ([], InputError, "empty"),
        ([("x", "y", None, 1)], LabelError, "no annotator"),
        ([("x", "y", "a", 1, -1.0)], InputError, "positive"),
    ],
)
def test_bad_rows_are_explained(rows, error, text):
    with pytest.raises(error, match=text):
        cw.Similarities.from_records(rows)


def test_other_bad_input_is_explained():
    with pytest.raises(ColumnError, match="item_b"):
        cw.Similarities.from_frame({"item_a": [1], "worker": [1], "same": [1]})
    with pytest.raises(ParameterError, match="on_missing"):
        make(on_missing="guess")
    with pytest.raises(ParameterError, match="on_duplicate"):
        make(on_duplicate="both")
    with pytest.raises(InputError, match="No annotator named 'dan'"):
        make().without("dan")


def test_duplicates_and_missing_by_rule():
    twice = [("x", "y", "a", 1), ("y", "x", "a", 0), ("x", "z", "a", None)]
    kept = {d: cw.Similarities.from_records(twice, on_duplicate=d, on_missing="drop") for d in ("first", "last", "all")}
    assert kept["first"].same.tolist() == [True]
    assert kept["last"].same.tolist() == [False]
    assert kept["all"].n_answers == 2


def test_selecting_keeps_pairs_whose_items_are_both_there():
    answers = make().with_truth({"x": "cat", "y": "cat", "z": "dog"})
    part = answers[[2, 0]]
    assert part.items.tolist() == ["z", "x"]
    assert part.pairs.tolist() == [[0, 1]] and part.same.tolist() == [True]
    assert part.truth.tolist() == [1, 0]
    assert answers.without("ann").n_answers == 2 and answers.only(["ann"]).annotators.tolist() == ["ann"]
    assert answers.votes.truth.tolist() == [1, 0, 0]
    assert answers.votes.n_votes == 4
    with pytest.raises(IndexError):
        answers[[0, 0]]


def test_it_is_frozen_and_a_copy_is_too():
    for answers in (make(), copy.deepcopy(make())):
        with pytest.raises(ValueError, match="read-only"):
            answers.same[0] = False


def test_describe_counts():
    d = make().describe()
    assert (d["items"], d["pairs"], d["answers"], d["same"], d["connected_parts"]) == (3, 3, 4, 0.5, 1)
    assert d["unanimous"] == 0.0 and d["density"] == 1.0


def test_simulated_rates_are_those_asked_for():
    crowd = cw.simulate.similarities(300, n_clusters=3, n_annotators=4, pairs_per_item=60, random_state=0)
    answers, p = crowd.answers, crowd.parameters
    together = (crowd.truth[answers.pairs[:, 0]] == crowd.truth[answers.pairs[:, 1]])[answers.pair]
    for m in range(4):
        mine = answers.annotator == m
        assert answers.same[mine & together].mean() == pytest.approx(p["sensitivity"][m], abs=0.06)
        assert (~answers.same[mine & ~together]).mean() == pytest.approx(p["specificity"][m], abs=0.05)
    with pytest.raises(ParameterError, match="pairs_per_item"):
        cw.simulate.similarities(5, pairs_per_item=100)
