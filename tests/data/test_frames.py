"""Any dataframe in, the same kind out, and every column type that can hold names or labels."""

from __future__ import annotations

import itertools
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.data import columns, frames
from crowdwise.data.votes import Votes
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError

pa = pytest.importorskip("pyarrow")

TEXT = ["x", "y", "x", "z"]
BASE: dict[str, list[Any]] = {"item": ["a", "a", "b", "b"], "annotator": [1, 2, 1, 2]}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


class Stream:
    """A table that offers nothing but the Arrow stream protocol."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def rows(votes: Votes) -> set[tuple[Any, ...]]:
    """The votes as a set of named rows."""
    return set(zip(*[np.asarray(column).tolist() for column in votes.to_frame("dict").values()], strict=True))


def expected(labels: list[Any]) -> set[tuple[Any, ...]]:
    return set(zip(BASE["item"], BASE["annotator"], labels, strict=True))


# -------------------------------------------------------------------- in and out


LABELS: dict[str, tuple[Any, list[Any]]] = {
    "pandas str": (lambda: pd.DataFrame({**BASE, "label": pd.Series(TEXT, dtype="str")}), TEXT),
    "pandas string": (lambda: pd.DataFrame({**BASE, "label": pd.Series(TEXT, dtype="string")}), TEXT),
    "pandas object": (lambda: pd.DataFrame({**BASE, "label": pd.Series(TEXT, dtype=object)}), TEXT),
    "pandas category": (lambda: pd.DataFrame({**BASE, "label": pd.Categorical(TEXT)}), TEXT),
    "pandas category of integers": (
        lambda: pd.DataFrame({**BASE, "label": pd.Categorical([3, 1, 3, 2])}),
        [3, 1, 3, 2],
    ),
    "pandas Int64": (lambda: pd.DataFrame({**BASE, "label": pd.Series([3, 1, 3, 2], dtype="Int64")}), [3, 1, 3, 2]),
    "pandas int64[pyarrow]": (
        lambda: pd.DataFrame({**BASE, "label": pd.Series([3, 1, 3, 2], dtype="int64[pyarrow]")}),
        [3, 1, 3, 2],
    ),
    "pandas float": (lambda: pd.DataFrame({**BASE, "label": [3.0, 1.0, 3.0, 2.0]}), [3, 1, 3, 2]),
    "pandas bool": (lambda: pd.DataFrame({**BASE, "label": [True, False, True, True]}), [True, False, True, True]),
    "pandas boolean": (
        lambda: pd.DataFrame({**BASE, "label": pd.Series([True, False, True, True], dtype="boolean")}),
        [True, False, True, True],
    ),
    "polars text": (lambda: pl.DataFrame({**BASE, "label": TEXT}), TEXT),
    "polars Enum": (lambda: pl.DataFrame({**BASE, "label": pl.Series(TEXT, dtype=pl.Enum(["x", "y", "z"]))}), TEXT),
    "polars Categorical": (lambda: pl.DataFrame({**BASE, "label": pl.Series(TEXT, dtype=pl.Categorical)}), TEXT),
    "polars Int8": (lambda: pl.DataFrame({**BASE, "label": pl.Series([3, 1, 3, 2], dtype=pl.Int8)}), [3, 1, 3, 2]),
    "polars bool": (lambda: pl.DataFrame({**BASE, "label": [True, False, True, True]}), [True, False, True, True]),
    "polars lazy": (lambda: pl.DataFrame({**BASE, "label": TEXT}).lazy(), TEXT),
    "pyarrow text": (lambda: pa.table({**BASE, "label": TEXT}), TEXT),
    "pyarrow large text": (lambda: pa.table({**BASE, "label": pa.array(TEXT, pa.large_string())}), TEXT),
    "pyarrow dictionary": (lambda: pa.table({**BASE, "label": pa.array(TEXT).dictionary_encode()}), TEXT),
    "pyarrow dictionary of integers": (
        lambda: pa.table({**BASE, "label": pa.array([3, 1, 3, 2]).dictionary_encode()}),
        [3, 1, 3, 2],
    ),
    "pyarrow bool": (lambda: pa.table({**BASE, "label": [True, False, True, True]}), [True, False, True, True]),
    "arrow stream": (lambda: Stream(pa.table({**BASE, "label": TEXT})), TEXT),
    "pyarrow record batches": (lambda: pa.table({**BASE, "label": TEXT}).to_reader(), TEXT),
    "dict of lists": (lambda: {**BASE, "label": TEXT}, TEXT),
    "dict of arrays": (lambda: {**BASE, "label": np.array(TEXT)}, TEXT),
    "dict of tuples": (lambda: {name: tuple(column) for name, column in {**BASE, "label": TEXT}.items()}, TEXT),
    "dict of series": (lambda: {**BASE, "label": pl.Series("other", TEXT)}, TEXT),
    "narwhals": (lambda: nw.from_native(pd.DataFrame({**BASE, "label": TEXT})), TEXT),
}


@pytest.mark.parametrize("name", LABELS)
def test_every_kind_of_column_goes_in_and_out(name: str):
    make, labels = LABELS[name]
    frame = make()
    votes = Votes.from_frame(frame)
    assert rows(votes) == expected(labels) and votes.classes.tolist() == sorted(set(labels))
    kind = name.split()[0] if name.split()[0] in FRAMES else "pandas" if name == "narwhals" else "polars"
    assert type(votes.to_frame()).__module__.partition(".")[0] == kind
    for kind in ("pandas", "polars", "pyarrow", "dict"):
        again = Votes.from_frame(votes.to_frame(kind))
        assert rows(again) == rows(votes) and again.classes.tolist() == votes.classes.tolist()


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "dict"])
def test_round_trip_with_weights_times_and_partial_truth(kind: str):
    for labels, truth in ((TEXT, "z"), ([1, 2, 1, 3], 3), ([True, False, True, True], True)):
        votes = Votes.from_frame(
            {**BASE, "label": labels, "weight": [1, 2, 3, 4.5], "timestamp": ["2026-01-31T12:00:00"] * 4}
        )
        votes = votes.with_truth({"b": truth})
        again = Votes.from_frame(votes.to_frame(kind))
        assert rows(again) == rows(votes)
        assert again.truth.tolist() == votes.truth.tolist() and again.timestamp.dtype == votes.timestamp.dtype


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["x", None, "x", "z"], dtype="str"),
        pd.Series(["x", None, "x", "z"], dtype="string"),
        pd.Series(["x", pd.NA, "x", "z"], dtype=object),
        pd.Series(["x", None, "x", "z"], dtype="category"),
    ],
)
def test_missing_text_in_pandas(column: pd.Series):
    frame = pd.DataFrame({**BASE, "label": column})
    with pytest.raises(LabelError, match=r"1 row has no label .* row 1"):
        Votes.from_frame(frame)
    assert Votes.from_frame(frame, on_missing="drop").classes.tolist() == ["x", "z"]


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "float", "category", "object"])
def test_missing_integers_in_pandas(dtype: str):
    frame = pd.DataFrame({**BASE, "label": pd.Series([3, None, 3, 2], dtype=dtype)})
    with pytest.raises(LabelError, match="row 1"):
        Votes.from_frame(frame)
    assert Votes.from_frame(frame, on_missing="drop").classes.tolist() == [2, 3]


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
def test_large_nullable_integers_keep_every_digit(dtype: str):
    big = 2**60 + 1
    frame = pd.DataFrame({**BASE, "label": pd.Series([big, None, big, 2], dtype=dtype)})
    assert Votes.from_frame(frame, on_missing="drop").classes.tolist() == [2, big]


@pytest.mark.parametrize("dtype", ["boolean", "bool[pyarrow]", "object"])
def test_missing_booleans_in_pandas(dtype: str):
    frame = pd.DataFrame({**BASE, "label": pd.Series([True, None, False, True], dtype=dtype)})
    assert Votes.from_frame(frame, on_missing="drop").classes.tolist() == [False, True]


def test_masked_arrays_in_a_dict():
    labels = np.ma.masked_array([3, 9, 3, 2], mask=[0, 1, 0, 0])
    assert Votes.from_frame({**BASE, "label": labels}, on_missing="drop").classes.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        (pd.Categorical(TEXT, categories=["w", "z", "y", "x"]), ["w", "z", "y", "x"]),
        (pd.Categorical(["x", None, "x", "x"], categories=["w", "x"]), ["w", "x"]),
        (pd.Categorical([3, 1, 3, 2], categories=[4, 3, 2, 1]), [4, 3, 2, 1]),
        (pd.Categorical([3.0, 1.0, 3.0, 2.0], categories=[4.0, 3.0, 2.0, 1.0]), [4, 3, 2, 1]),
        (pd.Categorical([True, True, True, True], categories=[True, False]), [True, False]),
    ],
)
def test_pandas_categories_declare_the_classes(column: Any, declared: list[Any]):
    votes = Votes.from_frame(pd.DataFrame({**BASE, "label": column}), on_missing="drop")
    assert votes.classes.tolist() == declared


def test_polars_enum_declares_the_classes_and_others_do_not():
    names = ["w", "z", "y", "x"]
    assert (
        Votes.from_frame(pl.DataFrame({**BASE, "label": pl.Series(TEXT, dtype=pl.Enum(names))})).classes.tolist()
        == names
    )
    assert Votes.from_frame({**BASE, "label": pl.Series(TEXT, dtype=pl.Enum(names))}).classes.tolist() == names
    dictionary = pa.DictionaryArray.from_arrays(
        [3, 2, 3, 1], names
    )  # in order of appearance: says nothing about the classes
    assert Votes.from_frame(pa.table({**BASE, "label": dictionary})).classes.tolist() == ["x", "y", "z"]
    with pytest.raises(LabelError, match="declared classes do not have"):
        Votes.from_frame(pl.DataFrame({**BASE, "label": pl.Series(TEXT, dtype=pl.Enum(names))}), classes=["x"])


def test_input_frames_are_left_alone():
    frame = pd.DataFrame({**BASE, "label": TEXT})
    before = frame.copy()
    Votes.from_frame(frame, on_duplicate="all")
    pd.testing.assert_frame_equal(frame, before)


# -------------------------------------------------------------------- wide


@pytest.mark.parametrize("make", FRAMES.values(), ids=list(FRAMES))
def test_wide_form(make: Any):
    votes = Votes.from_frame(make({"task": ["a", "b"], "ann": ["x", "y"], "bob": [None, "x"], "gold": ["x", None]}))
    columns = [votes.to_frame("dict")[c].tolist() for c in ("item", "annotator", "label")]
    assert set(zip(*columns, strict=True)) == {("a", "ann", "x"), ("b", "ann", "y"), ("b", "bob", "x")}
    assert votes.truth.tolist() == [0, -1]


def test_wide_form_without_items_counts_rows():
    votes = Votes.from_frame(pd.DataFrame(np.array([[0, 1], [1, 1]])), form="wide")
    assert votes.items.tolist() == [0, 1] and votes.annotators.tolist() == ["0", "1"] and votes.n_votes == 4


def test_wide_form_passes_weight_and_time_to_every_vote_of_the_row():
    votes = Votes.from_frame(
        {"item": [1, 2], "ann": ["x", "y"], "bob": ["x", None], "weight": [2, 3], "timestamp": [5, 6]}
    )
    assert votes.weights.tolist() == [2, 2, 3] and votes.timestamp.tolist() == [5, 5, 6]
    assert votes.annotators.tolist() == ["ann", "bob"]


@pytest.mark.parametrize(
    ("first", "second", "classes"),
    [
        ([1, 2], [2.0, None], [1, 2]),
        (np.array([1, 2], dtype=np.int8), np.array([2**62 + 1, 2]), [1, 2, 2**62 + 1]),
        (pd.Categorical(["x", "y"]), pd.Categorical(["z", "y"]), ["x", "y", "z"]),
        (pd.Categorical(["x", "y"]), ["z", "y"], ["x", "y", "z"]),
        (["x", "y"], [None, None], ["x", "y"]),
    ],
)
def test_wide_columns_of_related_kinds(first: Any, second: Any, classes: list[Any]):
    votes = Votes.from_frame(pd.DataFrame({"item": [1, 2], "ann": first, "bob": second}), form="wide")
    assert votes.classes.tolist() == classes


def test_wide_form_shares_declared_classes():
    kind = pd.CategoricalDtype(["z", "y", "x"])
    votes = Votes.from_frame(
        pd.DataFrame({"item": [1], "ann": pd.Series(["x"], dtype=kind), "bob": pd.Series(["y"], dtype=kind)}),
        form="wide",
    )
    assert votes.classes.tolist() == ["z", "y", "x"]


def test_wide_errors():
    with pytest.raises(ColumnError, match="'ann', 'bob' hold different kinds of labels"):
        Votes.from_frame({"item": [1], "ann": ["x"], "bob": [True]}, form="wide")
    with pytest.raises(ColumnError, match="every annotator has a column, and none is left: the table has 'item'"):
        Votes.from_frame({"item": [1]}, form="wide")
    with pytest.raises(LabelError, match=r"2 rows have no item .*: rows 0, 2,"):
        Votes.from_frame({"item": [None, 1, None], "ann": ["x", "x", "x"], "bob": ["x", "x", "x"]})


def test_a_table_without_shared_labels_is_not_taken_for_a_wide_one():
    """Wrong columns must not be read as annotators called color and size."""
    with pytest.raises(ColumnError, match=r"No column found for: annotator.*form='wide'"):
        Votes.from_frame({"task": [1, 2], "color": ["red", "blue"], "size": ["s", "m"]})
    assert Votes.from_frame({"task": [1, 2], "ann": ["red", "blue"], "bob": ["blue", None]}).n_votes == 3


# -------------------------------------------------------------------- which column is which


def test_column_names_people_use():
    items = ["item", "Task", "unit_id", "EXAMPLE", "taskId", "taskid", "Question ID", " sample ", "doc-id"]
    annotators = ["annotator", "WorkerId", "worker_id", "Rater Name", "USER", "userid", "judge.id"]
    for item, annotator, label in itertools.product(
        items, annotators, ["label", "Answer", "response", "RATING", "class_name"]
    ):
        parts = columns.resolve([label, "comment", annotator, item], dict.fromkeys(columns.ALIASES))
        assert (parts["item"], parts["annotator"], parts["label"]) == (item, annotator, label)
        assert parts["weight"] is parts["truth"] is parts["timestamp"] is None


def test_named_columns():
    frame = {
        "q": [1, 1],
        "who": ["ann", "bob"],
        "label": ["x", "y"],
        "what": ["y", "y"],
        "trust": [1, 2],
        "when": [3, 4],
        "answer key": ["y", "y"],
    }
    votes = Votes.from_frame(
        frame, item="q", annotator="who", label="what", weight="trust", timestamp="when", truth="answer key"
    )
    assert (
        votes.classes.tolist() == ["y"]
        and votes.weights.tolist() == [1, 2]
        and votes.timestamp.tolist() == [3, 4]
        and votes.truth.tolist() == [0]
    )


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        ({"a": [1], "b": [2]}, {}, ["No column found for: item (also task, unit", "'a', 'b'", "form='wide'"]),
        ({"item": [1], "worker": [1], "other": [2]}, {}, ["No column found for: label (also answer"]),
        (
            {"item": [1], "worker": [1], "label": [2]},
            {"item": "itm"},
            ["no column 'itm' for the item", "Did you mean 'item'?"],
        ),
        (
            {"task": [1], "Task_ID": [1], "worker": [1], "label": [2]},
            {},
            ["'task', 'Task_ID' could both be the item", "item='task'"],
        ),
        (
            {"item": [1], "worker": [1], "label": [2]},
            {"item": "label", "label": "label"},
            ["'label' is named for the item and the label"],
        ),
    ],
)
def test_columns_that_cannot_be_told(frame: dict[str, Any], options: dict[str, str], words: list[str]):
    with pytest.raises(ColumnError) as caught:
        Votes.from_frame(frame, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


# -------------------------------------------------------------------- what is not a table


@pytest.mark.parametrize("thing", [[("a", "b", "c")], np.zeros((2, 2)), None, 3])
def test_things_that_are_no_table(thing: Any):
    with pytest.raises(InputError) as caught:
        Votes.from_frame(thing)
    assert type(thing).__name__ in str(caught.value) and "from_dense" in str(caught.value)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({**BASE, "label": [1, "a", 2, 3]}, ["'label' mixes int and str", "Convert it to text"]),
        ({**BASE, "label": [True, 1, 2, 3]}, ["'label' mixes bool and int"]),
        ({**BASE, "label": [1, 2]}, ["equally long", "'item' 4", "'label' 2"]),
        ({**BASE, "label": "x"}, ["Column 'label' is 'x'", "one value for each row"]),
        ({**BASE, "label": 1}, ["Column 'label' is 1"]),
        ({**BASE, "label": [[1]] * 4}, ["'label' holds List(Int64)", "must be text, integers, booleans"]),
        ({**BASE, "label": [b"x"] * 4}, ["'label' holds Binary"]),
        ({**BASE, "label": [object()] * 4}, ["'label' holds"]),
        (pd.DataFrame({**BASE, "label": pd.to_datetime(["2026-01-31"] * 4)}), ["'label' holds Datetime"]),
        (
            pd.DataFrame([[1, 2, 3, 4]], columns=["item", "annotator", "label", "label"]),
            ["unique column names", "'label'"],
        ),
        (pa.Table.from_arrays([pa.array([1])] * 4, names=["item", "annotator", "label", "label"]), ["label"]),
        (Stream(pa.chunked_array([[1, 2]])), ["This Stream is not a table"]),
    ],
)
def test_tables_that_cannot_be_used(frame: Any, words: list[str]):
    with pytest.raises(InputError) as caught:
        Votes.from_frame(frame)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_make_frame_knows_its_kinds():
    for kind in ("pandas", "polars", "pyarrow"):
        assert frames.kind_of(frames.make_frame({"a": np.array([1])}, kind)) == kind
    with pytest.raises(
        ParameterError, match="Unknown kind of table 'r': expected one of polars, pandas, pyarrow, dict"
    ):
        frames.make_frame({}, "r")


@pytest.mark.parametrize("table", [pd.DataFrame({**BASE, "label": TEXT}).to_dict(), {"a": {"ann": "x", "bob": "y"}},
                                   {"item": {1, 2}, "annotator": {1, 2}, "label": {0, 1}},
                                   pd.DataFrame({**BASE, "label": TEXT}).groupby("label")])  # fmt: skip
def test_mappings_sets_and_groups_are_no_columns(table: Any):
    for read in (cw.aggregate, Votes.from_frame):
        with pytest.raises(InputError, match=r"is a (dict|set): expected a list|found DataFrameGroupBy"):
            read(table)
