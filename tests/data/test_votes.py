"""Votes: every way of making them gives the same table, it cannot be changed, and bad input is named."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import KFold, train_test_split
from sklearn.utils import _safe_indexing

from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import ColumnError, DuplicateError, InputError, LabelError, ParameterError
from crowdwise.kernels import compiler, table_sort

RECORDS = [("a", "ann", "cat"), ("a", "bob", "dog"), ("b", "ann", "dog"), ("c", "cem", "cat"), ("c", "ann", "cat")]
LONG = {"item": [1, 1, 2], "annotator": ["ann", "bob", "ann"], "label": ["x", "y", "x"]}


def named(votes: Votes) -> tuple[Counter[Any], list[Any]]:
    """The votes as a bag of named rows, and the class list: what must not depend on the order of rows."""
    frame = votes.to_frame("dict")
    rows = zip(*[np.asarray(column).tolist() for column in frame.values()], strict=True)
    return Counter(rows), votes.classes.tolist()


def triples(votes: Votes) -> list[tuple[Any, Any, Any]]:
    """(item, annotator, label) of every vote, in the order of the table."""
    frame = votes.to_frame("dict")
    return list(zip(frame["item"].tolist(), frame["annotator"].tolist(), frame["label"].tolist(), strict=True))


@st.composite
def crowds(draw: st.DrawFn, min_size: int = 1) -> list[tuple[Any, Any, Any]]:
    """Any set of votes without duplicates: text (not blanks alone), integers or booleans as names and labels."""
    text, integers = st.text(max_size=4).filter(str.strip), st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
    item, annotator = draw(st.sampled_from([text, integers])), draw(st.sampled_from([text, integers]))
    label = draw(st.sampled_from([text, integers, st.booleans()]))
    pairs = draw(st.lists(st.tuples(item, annotator), min_size=min_size, max_size=25, unique=True))
    return [(*pair, draw(label)) for pair in pairs]


# -------------------------------------------------------------------- making them


def test_the_table_is_sorted_by_item_then_annotator():
    votes = Votes.from_records(RECORDS[::-1])
    assert (np.diff(votes.indptr) == 2).sum() == 2 and votes.indptr[-1] == votes.n_votes == 5
    for n in range(len(votes)):
        assert (np.diff(votes.annotator[votes.indptr[n] : votes.indptr[n + 1]]) > 0).all()
    assert votes.classes.tolist() == ["cat", "dog"]
    assert repr(votes) == "Votes(5 votes: 3 items x 3 annotators x 2 classes)"
    assert (len(votes), votes.shape, votes.n_annotators, votes.n_classes) == (3, (3,), 3, 2)


@given(crowds(), st.randoms(use_true_random=False))
def test_row_order_does_not_matter(records: list[Any], random: Any):
    shuffled = list(records)
    random.shuffle(shuffled)
    votes = Votes.from_records(records)
    assert named(Votes.from_records(shuffled)) == named(votes)
    assert sorted(map(repr, triples(votes))) == sorted(map(repr, records))
    assert votes.classes.tolist() == sorted({label for *_, label in records})


@given(crowds())
def test_records_frames_and_dicts_agree(records: list[Any]):
    expected = named(Votes.from_records(records))
    columns = dict(zip(("item", "annotator", "label"), map(list, zip(*records, strict=True)), strict=True))
    assert named(Votes.from_frame(columns)) == expected
    assert named(Votes.from_frame(pl.DataFrame(columns))) == expected
    assert named(Votes.from_frame(pd.DataFrame(columns))) == expected
    assert named(Votes.from_records([dict(zip(columns, row, strict=True)) for row in records])) == expected


def test_records_with_weights_and_missing_labels():
    votes = Votes.from_records([("a", "ann", "x", 2.0), ("a", "bob", "y", 0.5)])
    assert votes.weights.tolist() == [2.0, 0.5]
    assert Votes.from_records([("a", "ann", "x"), ("a", "bob", None)], on_missing="drop").n_votes == 1
    assert Votes.from_records(RECORDS).weights.tolist() == [1.0] * 5


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([], "records are empty"),
        ([1, 2], "found 1 in row 0"),
        ([("a", "b", "c"), ("a", "b")], "found ('a', 'b') in row 1"),
        ([("a", "b")], "found ('a', 'b') in row 0"),
        (["abc"], "found 'abc'"),
        ([(1, 2, 3), {"item": 1}], "found {'item': 1} in row 1"),
    ],
)
def test_unusable_records_are_named(records: list[Any], found: str):
    with pytest.raises(InputError) as caught:
        Votes.from_records(records)
    assert found in str(caught.value)


def test_dense_with_every_kind_of_gap():
    expected = named(Votes.from_records([(0, 0, 1), (0, 1, 2), (1, 1, 1)]))
    table = np.array([[1, 2], [-1, 1]])
    for votes in (
        Votes.from_dense(table, missing=-1),
        Votes.from_dense(np.array([[1, 2], [np.nan, 1]])),
        Votes.from_dense(np.ma.masked_array(table, mask=table < 0)),
        Votes.from_dense([[1, 2], [None, 1]]),
        Votes.from_dense([[1, 2], [float("nan"), 1]]),
        Votes.from_dense(np.array([[1, 2], [pd.NA, 1]], dtype=object)),
    ):
        assert named(votes) == expected
    expected = named(Votes.from_records([(0, "a", 1), (0, "b", 2), (1, "b", 1)]))  # a table names its columns
    for frame in (pd.DataFrame, pl.DataFrame):
        assert named(Votes.from_dense(frame({"a": [1, None], "b": [2, 1]}))) == expected


def test_dense_text_and_booleans_stay_what_they_are():
    assert Votes.from_dense([["a", float("nan")], ["b", "a"]]).classes.tolist() == ["a", "b"]
    assert Votes.from_dense(np.array([["a", ""], ["b", "a"]]), missing="").n_votes == 3
    assert Votes.from_dense([[True, float("nan"), False]]).classes.tolist() == [False, True]
    assert Votes.from_dense(np.array([["a", "b"]]), missing=-1).n_votes == 2


def test_dense_names_classes_and_truth():
    votes = Votes.from_dense(
        [[1, 2], [None, None]], items=["i", "j"], annotators=["ann", "bob"], classes=[3, 2, 1], truth={"i": 3}
    )
    assert votes.items.tolist() == ["i", "j"] and votes.annotators.tolist() == ["ann", "bob"]
    assert votes.classes.tolist() == [3, 2, 1] and votes.label.tolist() == [2, 1] and votes.truth.tolist() == [0, -1]
    assert votes.describe()["items_without_votes"] == 1


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        ([1, 2], {}, ["2 dimensions", "from_frame"]),
        ([[1, 2], [1]], {}, ["every row equally long"]),
        ([[None, None]], {}, ["No votes"]),
        (np.empty((2, 0)), {}, ["No votes"]),
        ([[1.5, 2.0]], {}, ["fractions", "1.5"]),
        ([[1, "a"]], {}, ["mixes int and str"]),
        ([[1, 2]], {"items": ["a", "b"]}, ["1 rows (items)", "2 items are named"]),
        ([[1, 2]], {"annotators": ["a"]}, ["2 columns (annotators)", "1 annotators are named"]),
        ([[1], [2]], {"items": ["a", "a"]}, ["items names 'a' more than once"]),
    ],
)
def test_unusable_arrays_are_named(labels: Any, options: dict[str, Any], words: list[str]):
    with pytest.raises(InputError) as caught:
        Votes.from_dense(labels, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_codes_and_declared_classes():
    votes = Votes.from_codes([0, 0], [0, 1], [2, 0], items=["i"], annotators=range(2), classes=["z", "y", "x"])
    assert votes.classes.tolist() == ["z", "y", "x"] and votes.classes[votes.label].tolist() == ["x", "z"]
    votes = Votes.from_codes([0, 0], [0, 1], [1, 0], items=["i"], annotators=range(2), label_names=["b", "a"])
    assert votes.classes.tolist() == ["a", "b"] and votes.classes[votes.label].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"item": [0, 5]}, ["item codes run from 0 to 5", "expected 0 to 0"]),
        ({"label": [0, -1]}, ["label codes run from -1"]),
        ({"annotator": np.array([0, 2**32])}, ["annotator codes run from 0 to 4294967296"]),
        ({"item": [0.5, 0.0]}, ["item codes must be a flat array of integers", "float64"]),
        ({"item": [[0, 0]]}, ["2 dimensions"]),
        ({"label": [0]}, ["equally long", "2, 2 and 1"]),
        ({"item": [], "annotator": [], "label": []}, ["No votes"]),
        ({"classes": ["a", "b", "a"]}, ["classes names 'a' more than once"]),
        ({"weight": [1.0]}, ["one weight for each of the 2 votes", "(1,)"]),
        ({"timestamp": np.zeros(3)}, ["one timestamp for each of the 2 votes", "(3,)"]),
        ({"label_names": [1, "a"], "classes": None}, ["different kinds", "1, 'a'"]),
        ({"truth": np.array(["a"])}, ["no items, and they are called 'i'", "mapping from item to class"]),
        ({"truth": np.array([0.5])}, ["one class code from -1"]),
        ({"truth": np.array([7])}, ["from -1 (unknown) to 1", "mapping from item to class"]),
        ({"truth": 3}, ["truth must be an array", "is int"]),
    ],
)
def test_unusable_codes_are_named(changes: dict[str, Any], words: list[str]):
    usual: dict[str, Any] = {
        "item": [0, 0],
        "annotator": [0, 1],
        "label": [0, 1],
        "items": ["i"],
        "annotators": [0, 1],
        "classes": ["a", "b"],
    }
    with pytest.raises(InputError) as caught:
        Votes.from_codes(**(usual | changes))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_unknown_choices_are_refused():
    with pytest.raises(ParameterError, match=r"on_duplicate='maybe'.*'first'"):
        Votes.from_records(RECORDS, on_duplicate="maybe")
    with pytest.raises(ParameterError, match=r"on_missing='maybe'.*'drop'"):
        Votes.from_records(RECORDS, on_missing="maybe")
    with pytest.raises(ParameterError, match=r"form='broad'.*'wide'"):
        Votes.from_frame(LONG, form="broad")
    with pytest.raises(ParameterError, match="Unknown kind of table 'excel'"):
        Votes.from_records(RECORDS).to_frame("excel")
    with pytest.raises(ParameterError, match="needs classes, or label_names"):
        Votes.from_codes([0], [0], [0], items=[0], annotators=[0])


# -------------------------------------------------------------------- frozen


def test_arrays_are_read_only_and_copies_too():
    votes = Votes.from_frame({**LONG, "weight": [1, 2, 3], "timestamp": [1, 2, 3], "truth": ["x", "x", "y"]})
    fields = ["indptr", "annotator", "label", "items", "annotators", "classes", "weight", "timestamp", "truth"]
    for table in (
        votes,
        votes[[1, 0]],
        votes.only(["ann"]),
        Votes.concat([votes]),
        pickle.loads(pickle.dumps(votes)),
        copy.deepcopy(votes),
    ):
        for field in fields:
            with pytest.raises(ValueError, match="read-only"):
                getattr(table, field)[0] = 0
    with pytest.raises(AttributeError):
        votes.label = votes.label


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_the_callers_arrays_are_neither_frozen_nor_watched(order: list[int]):
    item, annotator, label = (np.array(codes, dtype=np.int32)[order] for codes in ([0, 0, 1], [0, 1, 0], [0, 1, 0]))
    weight, timestamp, classes, truth = (
        np.ones(3),
        np.arange(3.0),
        np.array([False, True]),
        np.array([0, 1], dtype=np.int32),
    )
    items, annotators = np.array([5, 6]), np.array([7, 8])
    given = [item, annotator, label, weight, timestamp, classes, truth, items, annotators]
    before = [array.copy() for array in given]
    votes = Votes.from_codes(
        item,
        annotator,
        label,
        items=items,
        annotators=annotators,
        classes=classes,
        weight=weight,
        timestamp=timestamp,
        truth=truth,
    )
    rows = named(votes)
    for array, old in zip(given, before, strict=True):
        assert array.flags.writeable and (array == old).all()
        array[:] = array[::-1].copy() + (array.dtype != bool)
    assert named(votes) == rows


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars", "pyarrow"])
def test_later_changes_to_a_frames_memory_do_not_reach_the_votes(kind: str):
    pa = pytest.importorskip("pyarrow")
    weight, label = np.ones(3), np.array([0, 1, 0])
    columns = {"item": np.array([0, 0, 1]), "annotator": np.array([0, 1, 0]), "label": label, "weight": weight}
    frame: Any = {
        "dict": dict,
        "pandas": pd.DataFrame,
        "polars": pl.DataFrame,
        "pyarrow": lambda c: pa.table({k: pa.array(v) for k, v in c.items()}),
    }[kind]
    votes = Votes.from_frame(frame(columns))
    weight[:], label[:] = 9.0, 1
    assert votes.weights.tolist() == [1.0, 1.0, 1.0] and votes.label.tolist() == [0, 1, 0]
    assert weight.flags.writeable and label.flags.writeable


# -------------------------------------------------------------------- duplicates and missing values


def test_duplicates_are_named_by_row():
    twice = [("a", "ann", "x"), ("b", "ann", "x"), ("a", "ann", "y"), ("b", "ann", "y")]
    with pytest.raises(DuplicateError) as caught:
        Votes.from_records(twice)
    for word in (
        "2 duplicated votes",
        "annotator 'ann'",
        "item 'a'",
        "rows 0 and 2",
        "on_duplicate='first' or 'last'",
        "'all'",
    ):
        assert word in str(caught.value)
    with pytest.raises(DuplicateError, match="item 7 in rows 0 and 1"):
        Votes.from_records([(7, 1, 0), (7, 1, 0)])
    assert triples(Votes.from_records(twice, on_duplicate="first")) == [("a", "ann", "x"), ("b", "ann", "x")]
    assert triples(Votes.from_records(twice, on_duplicate="last")) == [("a", "ann", "y"), ("b", "ann", "y")]
    assert Votes.from_records(twice, on_duplicate="all").n_votes == 4


def test_rows_are_counted_in_the_users_table():
    gaps = [("z", "ann", None), ("a", "ann", "x"), ("z", "ann", None), ("a", "ann", "y")]
    with pytest.raises(DuplicateError, match="rows 1 and 3"):
        Votes.from_records(gaps, on_missing="drop")
    with pytest.raises(DuplicateError, match="annotator 'bob' labels item 1 in rows 0 and 2"):
        Votes.from_frame({"item": [1, 2, 1], "ann": ["x", "x", None], "bob": ["x", None, "y"]})
    with pytest.raises(InputError, match=r"found 0\.0 in row 2"):
        Votes.from_frame({**LONG, "label": [None, "x", "y"], "weight": [1, 1, 0]}, on_missing="drop")
    with pytest.raises(InputError, match="weight in row 2"):
        Votes.from_frame({**LONG, "label": [None, "x", "y"], "weight": [1, 1, None]}, on_missing="drop")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=40))
def test_duplicate_rules_against_a_dict(records: list[tuple[int, int, int]]):
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for item, annotator, label in records:
        first.setdefault((item, annotator), label)
        last[item, annotator] = label
    assert set(triples(Votes.from_records(records, on_duplicate="first"))) == {(*k, v) for k, v in first.items()}
    assert set(triples(Votes.from_records(records, on_duplicate="last"))) == {(*k, v) for k, v in last.items()}
    assert Counter(triples(Votes.from_records(records, on_duplicate="all"))) == Counter(records)


@pytest.mark.parametrize("part", ["item", "annotator", "label"])
@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
def test_missing_values_are_an_error_or_left_out(part: str, gap: Any):
    columns = {**LONG, part: [LONG[part][0], gap, LONG[part][2]]}
    with pytest.raises(LabelError) as caught:
        Votes.from_frame(columns)
    for word in (f"1 row has no {part}", f"column {part!r}", "row 1", "on_missing='drop'"):
        assert word in str(caught.value)
    assert triples(Votes.from_frame(columns, on_missing="drop")) == [(1, "ann", "x"), (2, "ann", "x")]


def test_empty_tables():
    for frame in ({}, {"item": [], "annotator": [], "label": []}, pd.DataFrame(), pl.DataFrame()):
        with pytest.raises(InputError, match="No votes: the table has 0 rows"):
            Votes.from_frame(frame)
    with pytest.raises(InputError, match="no row has an item, an annotator and a label"):
        Votes.from_frame({**LONG, "label": [None, None, None]}, on_missing="drop")
    with pytest.raises(LabelError, match="3 rows have no label"):
        Votes.from_frame({**LONG, "label": [None, None, None]})
    with pytest.raises(InputError, match="every cell of the annotator columns is empty"):
        Votes.from_frame({"item": [1, 2], "ann": [None, None], "bob": [None, None]}, form="wide")


# -------------------------------------------------------------------- classes


def test_declared_classes_keep_their_order_and_may_be_unused():
    votes = Votes.from_frame(LONG, classes=["z", "y", "x"])
    assert votes.classes.tolist() == ["z", "y", "x"] and votes.describe()["votes_per_class"] == {"z": 0, "y": 1, "x": 2}
    with pytest.raises(LabelError) as caught:
        Votes.from_frame(LONG, classes=["x", "z"])
    assert all(word in str(caught.value) for word in ("Annotators used 'y'", "'x', 'z'", "classes=[...]"))
    with pytest.raises(LabelError, match="names 'x' more than once"):
        Votes.from_frame(LONG, classes=["x", "y", "x"])


@pytest.mark.parametrize(
    ("labels", "declared", "expected"),
    [
        ([1, 2, 1], ["10", "2", "1"], [10, 2, 1]),
        ([True, False, True], ["true", "False"], [True, False]),
        ([1, 2, 1], [3.0, 2.0, 1.0], [3, 2, 1]),
        ([1, 2, 1], ["1", "2", "unsure"], ["1", "2", "unsure"]),
        ([2**70, 5, 5], [5, 2**70], ["5", str(2**70)]),
    ],
)
def test_declared_classes_are_brought_to_the_type_of_the_labels(
    labels: list[Any], declared: list[Any], expected: list[Any]
):
    votes = Votes.from_frame({**LONG, "label": labels}, classes=declared)
    assert votes.classes.tolist() == expected
    assert [str(name) for name in votes.classes[votes.label].tolist()] == [str(name) for name in labels]


def test_classes_of_another_type_are_refused():
    with pytest.raises(LabelError, match="labels are bool values and the declared classes int64"):
        Votes.from_frame({**LONG, "label": [True, False, True]}, classes=[0, 1])


@pytest.mark.parametrize(
    "kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32]
)
def test_integers_of_every_width(kind: Any):
    low, high = (3, 200) if np.dtype(kind).kind == "u" else (-100, 100)
    votes = Votes.from_frame({**LONG, "label": np.array([high, low, high], dtype=kind)})
    assert votes.classes.tolist() == [low, high] and votes.label.tolist() == [1, 0, 1]


def test_extreme_integers():
    far = [2**63 - 1, -(2**63), 0]
    assert Votes.from_frame({**LONG, "label": far}).classes.tolist() == sorted(far)
    for beyond in ([2**63, 1, 2], [2**70, 1, 2]):
        assert set(Votes.from_frame({**LONG, "label": beyond}).classes.tolist()) == {str(v) for v in beyond}
    assert (
        "9223372036854775813"
        in Votes.from_frame({**LONG, "label": np.array([2**63 + 5, 1, 2], dtype=np.uint64)}).classes.tolist()
    )
    for bad in (float("inf"), 1e30):
        with pytest.raises(LabelError, match="not a class or name: expected whole numbers of at most 64 bits"):
            Votes.from_frame({**LONG, "label": [bad, 1.0, 2.0]})
    with pytest.raises(LabelError, match=r"'label' holds fractions such as 0\.5"):
        Votes.from_frame({**LONG, "label": [0.5, 1, 2]})


# -------------------------------------------------------------------- weights, times, truth


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, 0, 1], ["found 0.0 in row 1", "Leave out"]),
        ([1, 1, -2.5], ["found -2.5 in row 2"]),
        ([1, float("nan"), 1], ["row 1"]),
        ([1, float("inf"), 1], ["found inf in row 1"]),
        ([1, None, 1], ["row 1", "None", "positive number"]),
        (["1", "heavy", "1"], ["row 1", "'heavy'"]),
        ([[1], [1], [1]], ["List(Int64)", "a positive number"]),
    ],
)
def test_weights_must_be_positive_numbers(weights: list[Any], words: list[str]):
    with pytest.raises(InputError) as caught:
        Votes.from_frame({**LONG, "weight": weights})
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_weights_count_in_shares():
    votes = Votes.from_frame({**LONG, "w": ["1", "3", "1"]}, weight="w")
    assert votes.shares().tolist() == [[0.25, 0.75], [1.0, 0.0]]


DAY = "2026-01-31T00:00:00"


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["2026-01-31", "2026-01-31", "2026-01-31"], [DAY] * 3),
        (["2026-01-31T12:30:00", "2026-01-31T00:00:00", None], ["2026-01-31T12:30:00", DAY, "NaT"]),
        (["2026-01-31T02:00:00+02:00"] * 3, [DAY] * 3),
        (["2026-01-31T00:00:00Z"] * 3, [DAY] * 3),
        (pd.to_datetime(["2026-01-31", None, "2026-01-31"]), [DAY, "NaT", DAY]),
        (pd.to_datetime(["2026-01-31"] * 3).tz_localize("Europe/Berlin"), ["2026-01-30T23:00:00"] * 3),
        (np.array(["2026-01-31"] * 3, dtype="datetime64[ns]"), [DAY] * 3),
        (pd.to_datetime(["2026-01-31"] * 3).date, [DAY] * 3),
    ],
)
def test_times_as_dates(times: Any, expected: list[str]):
    for frame in (
        pd.DataFrame({**LONG, "timestamp": times}),
        {**LONG, "created_at": list(times) if not isinstance(times, np.ndarray) else times},
    ):
        found = Votes.from_frame(frame).timestamp
        np.testing.assert_array_equal(found, np.array(expected, dtype="datetime64[us]"))


@pytest.mark.parametrize("times", [[3, 1, 2], [3.5, 1, 2], ["3.5", "1", "2"], [None, 1, 2]])
def test_times_as_numbers(times: list[Any]):
    found = Votes.from_frame({**LONG, "timestamp": times}).timestamp
    np.testing.assert_array_equal(found, np.array([np.nan if t is None else float(t) for t in times]))


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (["2026-01-31", "soon", "2026-01-31"], ["row 1", "'soon'", "ISO dates such as"]),
        (["soon", "later", "then"], ["row 0", "'soon'"]),
        ([True, False, True], ["Boolean values"]),
        ([[1], [2], [3]], ["List(Int64) values"]),
    ],
)
def test_unreadable_times_are_named(times: list[Any], words: list[str]):
    with pytest.raises(InputError) as caught:
        Votes.from_frame({**LONG, "timestamp": times})
    assert all(word in str(caught.value) for word in [*words, "'timestamp'"]), str(caught.value)


def test_truth_from_a_column():
    assert Votes.from_frame({**LONG, "truth": ["y", "y", None]}).truth.tolist() == [1, -1]
    assert Votes.from_frame({**LONG, "gold": ["y", None, None]}).truth.tolist() == [1, -1]
    assert Votes.from_frame(
        pd.DataFrame({**LONG, "label": [1, 2, 1], "truth": [2, np.nan, np.nan]})
    ).truth.tolist() == [1, -1]
    assert Votes.from_frame({**LONG, "truth": [None, None, None]}).truth.tolist() == [-1, -1]
    with pytest.raises(LabelError, match=r"different true classes for item 1: 'x', 'y'"):
        Votes.from_frame({**LONG, "truth": ["x", "y", "x"]})
    with pytest.raises(LabelError) as caught:
        Votes.from_frame({**LONG, "truth": ["z", "z", "x"]})
    assert all(word in str(caught.value) for word in ("'z'", "the classes are 'x', 'y'", "classes=[...]"))
    assert Votes.from_frame({**LONG, "truth": ["z", "z", "x"]}, classes=["x", "y", "z"]).truth.tolist() == [2, 0]


def test_truth_from_a_mapping():
    votes = Votes.from_frame(LONG)
    assert votes.with_truth({1: "y", 99: "x"}).truth.tolist() == [1, -1]
    assert votes.with_truth({"1": "y"}).truth.tolist() == [1, -1]  # names that differ only by type
    assert votes.with_truth({1: None, 2: "x"}).truth.tolist() == [-1, 0]
    assert votes.with_truth(pd.Series({1: "y", 2: np.nan})).truth.tolist() == [1, -1]
    assert votes.with_truth({}).truth.tolist() == [-1, -1]
    assert votes.with_truth([1, -1]).truth.tolist() == [1, -1]
    assert votes.with_truth({1: "y"}).with_truth(None).truth is None
    assert votes[[0, 1, 0]].with_truth({1: "y"}).truth.tolist() == [1, -1, 1]
    with pytest.raises(InputError, match=r"None of the 1 items with truth has votes: truth names 7, the votes 1, 2"):
        votes.with_truth({7: "x"})


# -------------------------------------------------------------------- selecting and joining


@given(crowds(), st.data())
def test_indexing_is_filtering(records: list[Any], data: st.DataObject):
    votes = Votes.from_records(records).with_truth({records[0][0]: records[0][2]})
    N = len(votes)
    positions = data.draw(st.lists(st.integers(-N, N - 1), max_size=2 * N))
    mask = data.draw(st.lists(st.booleans(), min_size=N, max_size=N))
    cut = data.draw(st.slices(N))
    for index in (
        positions,
        np.array(positions, dtype=np.int64),
        mask,
        np.array(mask),
        cut,
        data.draw(st.integers(-N, N - 1)),
        np.int64(0),
        ...,
    ):
        rows = np.atleast_1d(np.arange(N)[index]).tolist()
        part = votes[index]
        expected = [row for n in rows for row in triples(votes)[votes.indptr[n] : votes.indptr[n + 1]]]
        assert triples(part) == expected
        assert part.items.tolist() == [votes.items.tolist()[n] for n in rows] and part.truth.tolist() == [
            votes.truth.tolist()[n] for n in rows
        ]
        assert part.annotators is votes.annotators and part.classes is votes.classes
        assert part.indptr.dtype == np.int64 and part.indptr[-1] == part.n_votes
        np.testing.assert_allclose(part.shares().sum(axis=1), 1.0)


@pytest.mark.parametrize("index", [3, -4, [0, 9], [True], "a", 0.5, (0, 1), (0, 1, 2), None, [[0, 1]]])
def test_bad_indices(index: Any):
    with pytest.raises(IndexError):
        Votes.from_records(RECORDS)[index]


def test_iterating_gives_one_item_at_a_time():
    votes = Votes.from_records(RECORDS)
    assert [one.items.tolist() for one in votes] == [[name] for name in votes.items.tolist()]


@given(crowds(), st.data())
def test_only_and_without_split_the_votes(records: list[Any], data: st.DataObject):
    votes = Votes.from_records(records)
    names = votes.annotators.tolist()
    chosen = [name for name in names if data.draw(st.booleans())]
    kept, rest = votes.only(chosen), votes.without(chosen)
    assert named(kept)[0] + named(rest)[0] == named(votes)[0]
    assert kept.annotators.tolist() == chosen and {a for _, a, _ in triples(kept)} <= set(chosen)
    assert (
        len(kept) == len(rest) == len(votes)
        and kept.classes.tolist() == rest.classes.tolist() == votes.classes.tolist()
    )
    if kept.n_votes:
        assert named(Votes.concat([kept, rest])) == named(votes)


def test_only_takes_one_name_and_names_the_unknown():
    votes = Votes.from_records(RECORDS)
    assert votes.only("ann").n_votes == 3 and Votes.from_records([(1, 7, 0), (1, 8, 1)]).only(7).n_votes == 1
    with pytest.raises(InputError, match=r"No annotator named 'zoe': the votes have 'ann', 'bob'"):
        votes.without(["ann", "zoe"])


@given(crowds(min_size=2), st.data())
def test_concat_of_a_split_restores_the_whole(records: list[Any], data: st.DataObject):
    votes = Votes.from_records([(*row, weight) for weight, row in enumerate(records, 1)])
    mask = np.array([data.draw(st.booleans()) for _ in range(len(votes))])
    assert named(Votes.concat([votes[mask], votes[~mask]])) == named(votes)
    parts = [Votes.from_records(records[:1]), Votes.from_records(records[1:])]
    assert named(Votes.concat(parts)) == named(Votes.concat(parts[::-1])) == named(Votes.from_records(records))


def test_concat_joins_weights_truth_and_declared_classes():
    left = Votes.from_records([("a", "ann", "x", 2.0)], classes=["y", "x"]).with_truth({"a": "y"})
    right = Votes.from_records([("b", "ann", "z"), ("a", "bob", "x")])
    both = Votes.concat([left, right])
    assert both.classes.tolist() == ["y", "x", "z"] and both.truth.tolist() == [0, -1]
    assert sorted(both.weights.tolist()) == [1.0, 1.0, 2.0]


def test_concat_refuses_what_does_not_fit():
    votes = Votes.from_records(RECORDS)
    with pytest.raises(InputError, match="list of votes is empty"):
        Votes.concat([])
    with pytest.raises(DuplicateError, match="5 duplicated votes"):
        Votes.concat([votes, votes])
    assert Votes.concat([votes, votes], on_duplicate="all").n_votes == 10
    for other in (Votes.from_records([(1, "ann", "cat")]), Votes.from_records([("a", "dan", True)])):
        with pytest.raises(ColumnError, match="cannot be joined: a name is text in one"):
            Votes.concat([votes, other])
    with pytest.raises(ColumnError, match="boolean"):
        Votes.concat([Votes.from_records([(1, 1, True)]), Votes.from_records([(2, 1, 2)])])
    with pytest.raises(LabelError, match="disagree about the truth of 'a'"):
        Votes.concat([votes[[0]].with_truth({"a": "cat"}), votes[[0]].with_truth({"a": "dog"})])
    timed = Votes.from_frame({**LONG, "timestamp": [1, 2, 3]})
    with pytest.raises(InputError, match="Some of the tables have timestamps"):
        Votes.concat([timed[[0]], Votes.from_frame(LONG)[[1]]])
    with pytest.raises(InputError, match="dates in some of the tables and numbers in others"):
        Votes.concat([timed[[0]], Votes.from_frame({**LONG, "timestamp": ["2026-01-31"] * 3})[[1]]])


# -------------------------------------------------------------------- summaries


@given(crowds())
def test_shares_are_the_counts_divided(records: list[Any]):
    votes = Votes.from_records(records)
    shares, counts = votes.shares(), Counter((item, label) for item, _, label in records)
    per_item = Counter(item for item, *_ in records)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    for n, item in enumerate(votes.items.tolist()):
        for k, label in enumerate(votes.classes.tolist()):
            assert shares[n, k] == pytest.approx(counts[item, label] / per_item[item])


def test_items_without_votes_have_uniform_shares():
    assert Votes.from_records(RECORDS).only(["bob"]).shares().tolist() == [[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]


def test_describe():
    facts = Votes.from_records(RECORDS).with_truth({"a": "cat"}).describe()
    assert (
        facts["items"] == 3 and facts["annotators"] == 3 and facts["votes"] == 5 and facts["classes"] == ["cat", "dog"]
    )
    assert facts["votes_per_item"] == {"min": 1, "median": 2.0, "mean": 5 / 3, "max": 2}
    assert facts["votes_per_annotator"]["max"] == 3 and facts["votes_per_class"] == {"cat": 3, "dog": 2}
    assert facts["items_with_one_vote"] == 1 and facts["items_without_votes"] == 0 and facts["unanimous"] == 0.5
    assert (
        facts["density"] == 5 / 9
        and facts["items_with_truth"] == 1
        and not facts["weighted"]
        and not facts["timestamps"]
    )


def test_nothing_left_is_still_a_table():
    votes = Votes.from_records(RECORDS).with_truth({"a": "cat"})
    for empty in (votes[[]], votes.only([]), votes.without(["ann", "bob", "cem"])):
        assert empty.n_votes == 0 and empty.describe()["votes"] == 0 and empty.describe()["unanimous"] is None
        assert empty.shares().shape == (len(empty), 2) and empty.to_frame("polars").height == 0


# -------------------------------------------------------------------- the compiled paths


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), min_size=1, max_size=200))
def test_compiled_order_is_the_stable_sort(pairs: list[tuple[int, int]]):
    item, annotator = (np.array(codes, dtype=np.int32) for codes in zip(*pairs, strict=True))
    check_arranged(item, annotator, 6)


@pytest.fixture(params=[1, 3])
def threads(request: Any, monkeypatch: pytest.MonkeyPatch):
    """As many threads for any number of rows, in blocks that do not divide it."""
    monkeypatch.setenv("CROWDWISE_THREADS", str(request.param))
    monkeypatch.setattr(compiler, "VOTES_PER_THREAD", 1)
    monkeypatch.setattr(table_sort, "BLOCK", 7001)


@pytest.mark.parametrize("n_items", [50, 40_000, 200_000])
@pytest.mark.usefixtures("threads")
def test_compiled_order_of_crowded_and_of_many_items(n_items: int):
    """More than 32 votes on an item take another sort; more than 2^15 items are dealt to several runs."""
    rng = np.random.default_rng(0)
    item, annotator = rng.integers(0, n_items, 50_000).astype(np.int32), rng.integers(0, 1000, 50_000).astype(np.int32)
    check_arranged(item, annotator, n_items + 1)
    place = np.lexsort((annotator, item))
    check_arranged(item[place], annotator[place], n_items + 1)


def check_arranged(item: Any, annotator: Any, n_items: int) -> None:
    expected = np.lexsort((annotator, item))
    order, indptr, who, repeats, at = table_sort.arrange(item, annotator, n_items)
    np.testing.assert_array_equal(np.arange(len(item)) if order is None else order, expected)
    np.testing.assert_array_equal(who, annotator[expected])
    np.testing.assert_array_equal(np.diff(indptr), np.bincount(item, minlength=n_items))
    same = (np.diff(item[expected]) == 0) & (np.diff(who) == 0)
    assert repeats == same.sum()
    assert at == (np.flatnonzero(same)[0] + 1 if same.any() else -1)


@pytest.mark.parametrize("distinct", [1, 2049, 8192, 8193, 70_000])
@pytest.mark.usefixtures("threads")
def test_compiled_coding_of_few_and_of_many_names(distinct: int, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(distinct)
    numbers = np.concatenate([rng.permutation(distinct), rng.integers(0, distinct, 30_000)])
    column = pl.Series("name", [None if n % 7 == 3 else f"name {n}" for n in numbers.tolist()])
    codes, names = encoding.encode(column)
    monkeypatch.setattr(encoding, "NATIVE_ROWS", 1)
    fast_codes, fast_names = encoding.encode(column)
    np.testing.assert_array_equal(fast_codes, codes)
    assert fast_names.tolist() == names.tolist() and fast_codes.dtype == codes.dtype == np.int32
    assert [None if c < 0 else names[c] for c in codes] == column.to_list()


@given(crowds(), st.randoms(use_true_random=False))
def test_compiled_and_plain_paths_agree(records: list[Any], random: Any):
    random.shuffle(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "NATIVE_ROWS", 1)
        fast = Votes.from_records(records)
    plain = Votes.from_records(records)
    assert triples(fast) == triples(plain) and named(fast) == named(plain)


@pytest.mark.parametrize("rule", ["first", "last", "all"])
def test_compiled_path_settles_duplicates_alike(rule: Any, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(3)
    records = [(f"i{i}", f"w{w}", int(label)) for i, w, label in zip(*rng.integers(0, 40, (3, 5000)), strict=True)]
    plain = Votes.from_records(records, on_duplicate=rule)
    monkeypatch.setattr(encoding, "NATIVE_ROWS", 1)
    assert triples(Votes.from_records(records, on_duplicate=rule)) == triples(plain)
    with pytest.raises(DuplicateError, match="duplicated votes: annotator 'w"):
        Votes.from_records(records)


# -------------------------------------------------------------------- scikit-learn


def test_scikit_learn_splits_votes_by_item():
    rng = np.random.default_rng(0)
    votes = Votes.from_dense(rng.integers(0, 3, (20, 5)))
    X = np.arange(40.0).reshape(20, 2)
    index = np.array([3, 1, 1])
    assert _safe_indexing(votes, index).items.tolist() == [3, 1, 1]
    assert _safe_indexing(votes, np.arange(20) < 2).items.tolist() == [0, 1]
    X_train, X_test, train, test = train_test_split(X, votes, test_size=0.25, random_state=0)
    assert len(test) == 5 and isinstance(train, Votes)
    assert (X_train[:, 0] / 2).tolist() == train.items.tolist() and (X_test[:, 0] / 2).tolist() == test.items.tolist()
    assert named(Votes.concat([train, test])) == named(votes)
    seen = [name for _, held_out in KFold(4).split(X, votes) for name in votes[held_out].items.tolist()]
    assert sorted(seen) == list(range(20))
