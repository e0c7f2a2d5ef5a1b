"""Columns that hold no answers: texts, notes, times and ids beside those of annotators are left out, and named."""

from __future__ import annotations

import datetime
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdwise as cw
from crowdwise.data.columns import named_like_an_id, no_annotators
from crowdwise.errors import ColumnError, InputError, InputWarning, InternalError

N = 40
RANDOM = np.random.default_rng(0)
WIDE = {
    "task": [f"t{n}" for n in range(N)],
    **{name: RANDOM.choice(["yes", "no", "maybe"], N).tolist() for name in ("ann", "bob", "cem")},
}
START = datetime.datetime(2026, 1, 31, 12, 0)
JUNK: dict[str, tuple[str, list[Any]]] = {
    "texts": ("text", [f"The {n}th sentence is about something else." for n in range(N)]),
    "unnamed texts": ("prose", [f"Words {n} and more words" for n in range(N)]),
    "few comments": ("Comments", ["unclear" if n % 9 == 0 else None for n in range(N)]),
    "notes": ("notes", ["see guideline 3" if n % 2 else "?" for n in range(N)]),
    "times": ("finished", [f"2026-01-31 12:{n:02d}:00" for n in range(N)]),
    "datetimes": ("when_done", [START + datetime.timedelta(minutes=n) for n in range(N)]),
    "ids": ("annotation_id", [str(9000 + n) for n in range(N)]),
    "whole ids": ("row_key", [f"{n:08x}" for n in range(N)]),
    "durations": ("lead_time", [n + 0.25 for n in range(N)]),
    "lists": ("spans", [[n, n + 1] for n in range(N)]),
    "another attribute": ("topic", ["sports" if n % 3 else "politics" for n in range(N)]),
}


@pytest.mark.parametrize("kind", JUNK)
@pytest.mark.parametrize("form", ["auto", "wide"])
def test_what_is_no_annotator_is_left_out_and_named(kind: str, form: str) -> None:
    name, values = JUNK[kind]
    plain = cw.Votes.from_frame(WIDE)
    with pytest.warns(InputWarning, match=rf"Left out column '{name}'.*not the votes of an annotator"):
        votes = cw.Votes.from_frame({"task": WIDE["task"], name: values, **WIDE}, form=form)
    assert votes.to_frame().equals(plain.to_frame()) and votes.annotators.tolist() == ["ann", "bob", "cem"]


def test_several_columns_are_named_in_one_line() -> None:
    table = {**WIDE, **{name: values for name, values in JUNK.values()}}
    with pytest.warns(InputWarning) as said:
        votes = cw.Votes.from_frame(table)
    assert len(said) == 1 and votes.n_annotators == 3
    assert all(repr(name) in str(said[0].message) for name, _ in JUNK.values())


@pytest.mark.parametrize(
    "columns",
    [
        {"ann": [str(n) for n in range(N)], "bob": [str(n) for n in range(N)], "cem": [str(n) for n in range(N)][::-1]},
        {"ann": ["Yes", "No"] * 20, "bob": ["yes", "no"] * 20, "cem": ["YES", "NO"] * 20},
        {"ann": [0, 1] * 20, "bob": [1, 1] * 20, "cem": [None, 0] * 20},
        {"ann": ["a", "b"] * 20, "bob": ["b", "c"] * 20, "rare": ["d", None, None, None] * 10, "cem": ["d", "a"] * 20},
        {"text-davinci": ["x", "y"] * 20, "note taker": ["y", "x"] * 20, "gpt-4": ["x", "x"] * 20},
    ],
    ids=["a class for each item", "other spellings", "codes", "a class that is rare", "names of models"],
)
def test_annotators_stay_annotators(columns: dict[str, list[Any]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        votes = cw.Votes.from_frame({"task": range(N), **columns}, normalise_labels=True)
    assert votes.annotators.tolist() == list(columns)


def test_numbers_in_a_wide_sheet() -> None:
    scores = {name: RANDOM.normal(size=N).round(3).tolist() for name in ("ann", "bob")}
    sheet = {"item": range(N), **scores, "comments": ["x"] * N, "remarks of the lead": [f"Word {n}" for n in range(N)]}
    with pytest.warns(InputWarning, match="Left out columns 'comments', 'remarks of the lead'"):
        ratings = cw.Ratings.from_frame(sheet)
    assert ratings.annotators.tolist() == ["ann", "bob"] and ratings.n_answers == 2 * N


def test_few_rows_say_nothing_unless_the_name_does() -> None:
    small = {"task": [1, 2, 3], "ann": ["x", "y", "x"], "bob": ["x", "x", None], "cem": ["p", "q", "r"]}
    assert cw.Votes.from_frame(small).n_annotators == 3
    assert no_annotators(pl.DataFrame({**small, "Text": ["a", "b", "c"]}), ["ann", "bob", "cem", "Text"]) == ["Text"]


# -------------------------------------------------------------------- the long form


def long(**columns: Any) -> dict[str, Any]:
    table = {"task": np.repeat(range(10), 3), "worker": np.tile(["a", "b", "c"], 10)}
    return {**table, "annotation_id": np.arange(7000, 7030), **columns}


def test_an_id_of_rows_is_not_the_label(tmp_path) -> None:
    with pytest.raises(ColumnError, match=r"No column .*label.*'annotation_id' numbers the rows.*label='\.\.\.'"):
        cw.Votes.from_frame(long(sentiment=["good", "bad", "good"] * 10))
    votes = cw.Votes.from_frame(long(sentiment=["good", "bad", "good"] * 10), label="sentiment")
    assert votes.classes.tolist() == ["bad", "good"]
    with pytest.warns(InputWarning, match="label is read from column 'value': column 'annotation_id' numbers the rows"):
        cw.Votes.from_frame(long(value=["good", "bad", "good"] * 10))
    pl.DataFrame(long(value=["good", "bad", "good"] * 10)).write_csv(tmp_path / "a.csv")
    with pytest.warns(InputWarning, match="'annotation_id' numbers the rows"):
        assert cw.read_votes(tmp_path / "a.csv").to_frame().drop("item").equals(votes.to_frame().drop("item"))
    assert cw.Votes.from_frame(long(), label="annotation_id").n_classes == 30  # whoever names it means it


def test_codes_of_classes_may_be_called_ids() -> None:
    for name in ("label_id", "category_id", "class_id"):
        table = {k: v for k, v in long().items() if k != "annotation_id"} | {name: [3, 1, 3] * 10}
        assert cw.Votes.from_frame(table).classes.tolist() == [1, 3]
    few = {"task": [1, 2, 3], "worker": ["a", "a", "b"], "class_id": [0, 1, 2]}
    assert cw.Votes.from_frame(few).n_classes == 3


@pytest.mark.parametrize(
    ("name", "is_id"),
    [("annotation_id", True), ("responseId", True), ("UUID", True), ("idea", False)],
)
def test_names_of_ids(name: str, is_id: bool) -> None:
    assert named_like_an_id(name) == is_id


def test_rows_without_votes_are_counted() -> None:
    empty = {"task": [1, 2, 3, 4], "ann": ["x", None, "y", None], "bob": ["x", None, "x", None]}
    with pytest.warns(InputWarning, match="Left out 2 of 4 rows: without any votes"):
        assert cw.Votes.from_frame(empty).items.tolist() == [1, 3]
    rows = {"task": [1, 1, 2], "worker": ["a", "b", "a"], "label": ["x", None, "y"]}
    with pytest.warns(InputWarning, match="Left out 1 of 3 rows: without a label"):
        cw.Votes.from_frame(rows, on_missing="drop")


# -------------------------------------------------------------------- whatever stands beside them

WORDS = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=12, max_size=40)


@given(
    labels=st.lists(
        st.lists(st.sampled_from(["cat", "dog", "bird"]), min_size=3, max_size=3), min_size=12, max_size=30
    ),
    junk=st.data(),
    place=st.integers(0, 4),
)
@settings(max_examples=40, deadline=None)
def test_any_column_of_texts_times_or_ids_changes_nothing(labels: Any, junk: Any, place: int) -> None:
    n = len(labels)
    table: dict[str, Any] = {"item": list(range(n))}
    table |= {name: [row[k] for row in labels] for k, name in enumerate(("ann", "bob", "cem"))}
    whole = st.integers(10**6, 10**9)
    kinds = {
        "text": st.lists(WORDS, min_size=n, max_size=n),
        "notes": st.lists(st.none() | WORDS, min_size=n, max_size=n),
        "created_at": st.lists(st.datetimes(START, START + datetime.timedelta(days=99)), min_size=n, max_size=n),
        "assignment_id": st.lists(whole.map(str), min_size=n, max_size=n, unique=True),
        "something": st.lists(WORDS, min_size=n, max_size=n, unique=True),
    }
    name = junk.draw(st.sampled_from(sorted(kinds)))
    values = junk.draw(kinds[name])
    columns = [*table.items()]
    columns.insert(min(place, len(columns)), (name, values))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        plain, beside = cw.Votes.from_frame(table), cw.Votes.from_frame(dict(columns))
        assert beside.to_frame().drop("timestamp", strict=False).equals(plain.to_frame())
        flat = plain.to_frame()
        longer = flat.with_columns(pl.Series(name, [values[k % n] for k in range(flat.height)]))
        assert cw.Votes.from_frame(longer).to_frame().drop("timestamp", strict=False).equals(flat)


@pytest.mark.parametrize("reader", [cw.read_votes, cw.read_ratings])
def test_lists_are_no_labels_of_a_column(tmp_path: Path, reader: Any) -> None:
    """They were compared with the majority as text, which lists cannot be: an error of another package."""
    (tmp_path / "votes.json").write_text('{"columns": ["item"], "data": []}')
    with pytest.raises(InputError) as raised:
        reader(tmp_path / "votes.json", form="wide")
    assert not isinstance(raised.value, InternalError)


def test_lists_are_no_texts(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"item": 1, "annotator": "x", "text": ["a"]}\n')
    with pytest.raises(InputError, match="a text"):
        cw.read_texts(tmp_path / "texts.jsonl")
