"""Comparisons and rankings: made from frames, records and files, checked once, and out again."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.errors import ColumnError, DuplicateError, InputError, LabelError, ParameterError, ReadError

ROWS = [
    ("tea", "coffee", "ann", "left"),
    ("coffee", "milk", "ann", "right"),
    ("tea", "milk", "bob", "tie"),
    ("milk", "coffee", "bob", "left"),
]


def said(table: cw.Comparisons) -> list[tuple[Any, ...]]:
    frame = table.to_frame("dict")
    return sorted(zip(*(frame[k].tolist() for k in ("left", "right", "annotator", "outcome")), strict=True))


def test_records_come_out_as_they_went_in() -> None:
    table = cw.Comparisons.from_records(ROWS)
    assert repr(table) == "Comparisons(4 comparisons: 3 items x 2 annotators, 1 tie)"
    assert said(table) == sorted(ROWS)
    assert table.n_answers == 4 and len(table) == table.n_items == 3 and table.n_annotators == 2 and table.placed
    assert said(cw.Comparisons.from_frame(table.to_frame())) == sorted(ROWS)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (("left", "right", "outcome"), ("left", "right", "tie")),
        (("model_a", "model_b", "winner"), ("model_a", "model_b", "tie (bothbad)")),
        (("item_a", "item_b", "verdict"), ("A", "B", "Draw")),
        (("item1", "item2", "label"), ("a1", "a2", "equal")),
        (("first", "second", "preferred"), ("x", "y", "same")),
    ],
)
def test_columns_and_words_that_are_understood(columns: tuple[str, str, str], words: tuple[str, str, str]) -> None:
    say = dict(zip(("left", "right", "tie"), words, strict=True))
    names = (columns[0], columns[1], "worker", columns[2])
    frame = {name: [row[k] if k < 3 else say[row[3]] for row in ROWS] for k, name in enumerate(names)}
    assert said(cw.Comparisons.from_frame(frame)) == sorted(ROWS)


def test_the_winner_may_be_named() -> None:
    frame = {
        "left": ["a", "b", "c"], "right": ["b", "c", "a"], "winner": ["a", "c", "tie"], "judge": ["j", "j", "j"]
    }  # fmt: skip
    assert cw.Comparisons.from_frame(frame).to_frame("dict")["outcome"].tolist() == ["left", "right", "tie"]
    numbers = {"left": [1, 2], "right": [2, 3], "winner": [2, 2]}
    assert cw.Comparisons.from_frame(numbers).outcome.tolist() == [1, 0]


def test_an_unknown_word_among_named_winners_is_the_one_that_is_pointed_out() -> None:
    rows = [("m1", "m2", "ann", "m1"), ("m2", "m3", "ann", "m3"), ("m1", "m3", "ann", "parse error")]
    with pytest.raises(LabelError, match=r"The outcome in row 2 .* is 'parse error': expected the name"):
        cw.Comparisons.from_records(rows)
    tied = cw.Comparisons.from_records([*rows[:2], ("m1", "m3", "ann", "both bad")])
    assert sorted(tied.outcome.tolist()) == [0, 1, 2]


def test_chosen_and_rejected() -> None:
    table = cw.Comparisons.from_frame({"prompt": ["p", "q"], "chosen": ["x", "y"], "rejected": ["y", "z"]})
    assert not table.placed and table.outcome.tolist() == [0, 0] and table.annotators.tolist() == ["everyone"]
    assert table.questions is not None and table.questions.tolist() == ["p", "q"]


def test_own_words_for_outcomes() -> None:
    frame = {"left": ["a", "b", "a"], "right": ["b", "c", "c"], "outcome": [1, 2, 0]}
    table = cw.Comparisons.from_frame(frame, outcomes={1: "left", 2: "right", 0: "tie"})
    assert sorted(table.outcome.tolist()) == [0, 1, 2]
    with pytest.raises(LabelError, match=r"outcome in row 0 .* is 1: .*outcomes="):
        cw.Comparisons.from_frame(frame)
    with pytest.raises(ParameterError, match="'up'"):
        cw.Comparisons.from_frame(frame, outcomes={1: "up"})


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, dict], ids=["pandas", "polars", "dict"])
def test_any_frame(make: Any) -> None:
    frame = make({name: [row[k] for row in ROWS] for k, name in enumerate(("left", "right", "annotator", "outcome"))})
    table = cw.Comparisons.from_frame(frame)
    assert said(table) == sorted(ROWS)
    assert type(table.to_frame()).__module__.partition(".")[0] == ("pandas" if make is pd.DataFrame else "polars")


def test_the_order_of_rows_does_not_matter() -> None:
    tables = [cw.Comparisons.from_records([ROWS[k] for k in order]) for order in ([0, 1, 2, 3], [3, 1, 0, 2])]
    for name in ("left", "right", "annotator", "outcome", "items", "annotators"):
        assert (getattr(tables[0], name) == getattr(tables[1], name)).all()


def test_errors_say_what_was_found() -> None:
    make = cw.Comparisons.from_records
    with pytest.raises(InputError, match="records are empty"):
        make([])
    with pytest.raises(InputError, match="in row 1"):
        make([ROWS[0], ("a", "b")])
    with pytest.raises(InputError, match=r"1 row compares an item with itself: 'tea' in row 1.*on_self='drop'"):
        make([ROWS[0], ("tea", "tea", "ann", "left")])
    assert make([ROWS[0], ("tea", "tea", "ann", "left")], on_self="drop").n_answers == 1
    with pytest.raises(LabelError, match=r"outcome in row 0 .* is 'maybe'"):
        make([("a", "b", "ann", "maybe")])
    with pytest.raises(LabelError, match=r"1 row has no outcome \(column 'outcome'\): row 1"):
        make([ROWS[0], ("a", "b", "ann", None)])
    assert make([ROWS[0], ("a", "b", "ann", None)], on_missing="drop").n_answers == 1
    with pytest.raises(ColumnError, match=r"No column found for: right.*chosen and rejected"):
        cw.Comparisons.from_frame({"left": ["a"], "winner": ["a"]})
    with pytest.raises(InputError, match="Weights must be positive"):
        make([{"left": "a", "right": "b", "outcome": "left", "weight": -1.0}])
    with pytest.raises(ColumnError, match="Convert one"):
        cw.Comparisons.from_frame({"left": ["a"], "right": [1], "winner": ["a"]})
    with pytest.raises(InputError, match="equally long"):
        cw.Comparisons.from_codes([0], [1, 0], [0], [0], items="ab", annotators="m")
    with pytest.raises(InputError, match="truth must hold"):
        cw.Comparisons.from_codes([0], [1], [0], [0], items="ab", annotators="m", truth=[5])


def test_repeated_comparisons() -> None:
    twice = [("a", "b", "ann", "left"), ("a", "b", "ann", "right"), ("b", "a", "ann", "left")]
    assert cw.Comparisons.from_records(twice).n_answers == 3
    with pytest.raises(DuplicateError, match="rows 0 and 1"):
        cw.Comparisons.from_records(twice, on_duplicate="error")
    first = cw.Comparisons.from_records(twice, on_duplicate="first")
    last = cw.Comparisons.from_records(twice, on_duplicate="last")
    assert said(first) == [("a", "b", "ann", "left"), ("b", "a", "ann", "left")]
    assert said(last) == [("a", "b", "ann", "right"), ("b", "a", "ann", "left")]
    with pytest.raises(ParameterError, match="on_duplicate"):
        cw.Comparisons.from_records(twice, on_duplicate="some")


def test_selecting() -> None:
    table = cw.Comparisons.from_records(ROWS)
    assert said(table.without(["bob"])) == sorted(ROWS[:2]) and table.without("bob").n_items == 3
    assert said(table.only(["bob"])) == sorted(ROWS[2:])
    assert said(table.select(table.outcome == 2)) == [ROWS[2]]
    part = table[[2, 0]]  # tea and coffee, in this order
    assert part.items.tolist() == ["tea", "coffee"] and said(part) == [ROWS[0]] and part.left.tolist() == [0]
    with pytest.raises(InputError, match="No annotator named 'eve'"):
        table.without(["eve"])
    with pytest.raises(ValueError, match="read-only"):
        table.left[0] = 1
    assert not pickle.loads(pickle.dumps(table)).left.flags.writeable


def test_weights_times_and_truth_travel_along() -> None:
    rows = [
        {"left": "a", "right": "b", "outcome": "left", "weight": 2.0, "timestamp": "2026-01-01", "truth": "left"},
        {"left": "b", "right": "c", "outcome": "tie", "weight": 1.0, "timestamp": "2026-01-02", "truth": None},
    ]
    table = cw.Comparisons.from_records(rows)
    assert table.weights.tolist() == [2.0, 1.0] and table.truth is not None and table.truth.tolist() == [0, -1]
    frame = table.to_frame("dict")
    assert frame["truth"].tolist() == ["left", None] and str(frame["timestamp"][0]).startswith("2026-01-01")
    facts = table.describe()
    assert facts["with_truth"] == 1 and facts["weighted"] and facts["outcomes"] == {"left": 0.5, "right": 0, "tie": 0.5}


def test_files(tmp_path: Path) -> None:
    csv = tmp_path / "pairs.csv"
    csv.write_text("model_a,model_b,worker,winner\n007,8,w,model_a\n8,9,w,tie\n", encoding="utf-8")
    table = cw.read_comparisons(csv)
    assert table.items.tolist() == ["007", "8", "9"] and table.outcome.tolist() == [0, 2]
    lines = tmp_path / "pairs.jsonl"
    lines.write_text(json.dumps({"chosen": "x", "rejected": "y"}) + "\n", encoding="utf-8")
    assert cw.read_comparisons(lines).items.tolist() == ["x", "y"]
    empty = tmp_path / "empty.csv"
    empty.write_text("left,right,winner\n", encoding="utf-8")
    with pytest.raises(ReadError, match="has no comparisons"):
        cw.read_comparisons(empty)


# -------------------------------------------------------------------- rankings

BALLOTS = [("ann", "q1", ["soup", "rice", "fish"]), ("bob", "q1", ["rice", "soup"]), ("ann", "q2", ["fish", "rice"])]


def test_rankings_come_out_as_they_went_in(tmp_path: Path) -> None:
    table = cw.Rankings.from_records(BALLOTS)
    frame = table.to_frame("dict")
    found = sorted(zip(*(frame[k].tolist() for k in ("annotator", "question", "item", "rank")), strict=True))
    assert found == sorted((a, q, item, n + 1) for a, q, items in BALLOTS for n, item in enumerate(items))
    assert repr(table) == "Rankings(3 rankings of 2 to 3 of 3 items by 2 annotators)"
    again = cw.Rankings.from_frame(table.to_frame())
    for name in ("indptr", "item", "annotator", "question", "items", "annotators", "questions"):
        assert (getattr(table, name) == getattr(again, name)).all()
    file = tmp_path / "ballots.csv"
    table.to_frame("polars").write_csv(file)
    assert (cw.read_rankings(file).item == table.item).all()
    shuffled = cw.Rankings.from_records(BALLOTS[::-1])
    assert (shuffled.item == table.item).all() and (shuffled.indptr == table.indptr).all()


@pytest.mark.parametrize("written", [str, ">".join, " > ".join, "|".join, ", ".join, json.dumps, list])
def test_a_ranking_in_one_cell(tmp_path: Path, written: Any) -> None:
    orders = [["tea", "milk", "water"], ["milk", "tea"], ["water", "milk"]]
    frame = {"annotator": ["ann", "bob", "ann"], "ranking": [written(some) for some in orders]}
    tables = [cw.Rankings.from_frame(frame)]
    if written is not list:
        pl.DataFrame(frame).write_csv(tmp_path / "ballots.csv", separator="\t")
        tables.append(cw.read_rankings(tmp_path / "ballots.csv"))
        assert cw.aggregate(tmp_path / "ballots.csv").answer_type == "rankings"
    for table in tables:
        said = sorted([str(table.items[i]) for i in table.item[lo:hi]] for lo, hi in pairwise(table.indptr))
        assert said == sorted(orders) and table.annotators.tolist() == ["ann", "bob"]


def test_a_ranking_beside_what_was_asked_and_ranks_of_that_name() -> None:
    ballots = cw.Rankings.from_frame({"item": ["q1", "q2"], "annotator": ["ann"] * 2, "ranking": ["2>10>3", "3>2"]})
    assert ballots.questions.tolist() == ["q1", "q2"] and ballots.items.tolist() == [2, 3, 10]
    rows = {"item": ["a", "b"], "annotator": ["ann"] * 2, "ranking": [2, 1]}
    assert [cw.Rankings.from_frame(rows).items[i] for i in cw.Rankings.from_frame(rows).item] == ["b", "a"]
    with pytest.raises(LabelError, match="1 row has no rank"):
        cw.Rankings.from_frame({"annotator": ["ann", "bob"], "ranking": ["a > b", None]})
    with pytest.raises(InputError, match="names 'a' twice"):
        cw.Rankings.from_frame({"annotator": ["ann", "bob"], "ranking": ["a > b", "a>a"]})


def test_rankings_select_and_turn_into_comparisons() -> None:
    table = cw.Rankings.from_records(BALLOTS)
    pairs = table.comparisons()
    assert pairs.n_answers == 5 and not pairs.placed
    assert ("rice", "soup", "bob", "left") in said(pairs)
    assert table.without("ann").n_answers == 1 and table.only("ann").n_answers == 2
    assert len(table) == 3 and table.select(np.array([True, False, False])).n_answers == 1
    part = table[[2, 1]]  # soup and rice: the ranking of fish and rice has one item left, and goes
    assert part.items.tolist() == ["soup", "rice"] and part.indptr.tolist() == [0, 2, 4]
    assert part.items[part.item].tolist() == ["soup", "rice", "rice", "soup"]
    assert table.describe()["items_per_ranking"]["max"] == 3
    with pytest.raises(InputError, match="No annotator named 'eve'"):
        table.without(["eve"])


def test_bad_rankings() -> None:
    with pytest.raises(InputError, match="names 'a' twice"):
        cw.Rankings.from_records([("m", "q", ["a", "b", "a"])])
    with pytest.raises(InputError, match="two items or more"):
        cw.Rankings.from_records([("m", "q", ["a"])])
    with pytest.raises(InputError, match="in row 0"):
        cw.Rankings.from_records([("m", "q", "abc")])
    with pytest.raises(LabelError, match="the same rank"):
        cw.Rankings.from_frame({"item": ["a", "b"], "rank": [1, 1], "annotator": ["m", "m"]})
    with pytest.raises(LabelError, match="expected a number"):
        cw.Rankings.from_frame({"item": ["a", "b"], "rank": ["1", "best"]})
    with pytest.raises(ColumnError, match="rank"):
        cw.Rankings.from_frame({"item": ["a", "b"]})


def test_simulated_shares_are_checked() -> None:
    with pytest.raises(ParameterError, match="at most 1"):
        cw.simulate.comparisons(5, spammers=0.7, reversed_=0.7)
    with pytest.raises(ParameterError, match="n_items"):
        cw.simulate.comparisons(1)
    with pytest.raises(ParameterError, match="size"):
        cw.simulate.rankings(3, size=4)
    crowd = cw.simulate.comparisons(6, n_comparisons=20_000, position=1.0, tie=0.0, spread=0.0, random_state=0)
    share = np.bincount(crowd.comparisons.outcome) / 20_000
    expected = np.exp([0.5, -0.5, 0.0]) / np.exp([0.5, -0.5, 0.0]).sum()
    assert np.abs(share - expected).max() < 0.015


@pytest.mark.parametrize("kind", [cw.Comparisons, cw.Similarities])
def test_a_column_of_answers_with_another_name_is_asked_for(kind):
    pairs = [(f"a{i}", f"b{j}", f"w{k}", (i + j + k) % 3) for i in range(3) for j in range(3) for k in range(3)]
    table = {name: [row[at] for row in pairs] for at, name in enumerate(("left", "right", "annotator", "foo"))}
    with pytest.raises(ColumnError, match=r"Name the columns, e\.g\. .*foo"):
        kind.from_frame(table)
