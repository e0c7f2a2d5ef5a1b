"""The table of ratings: made from anything, checked once, frozen."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import crowdwise as cw
from crowdwise.errors import (
    ColumnError,
    DuplicateError,
    InputError,
    InputWarning,
    LabelError,
    ParameterError,
    ReadError,
)

ROWS = [("a", "ann", 3.5), ("a", "bob", 4.0), ("b", "ann", 1.0), ("c", "cem", -2.0)]


def table(**extra):
    columns = dict(zip(("item", "annotator", "value"), map(list, zip(*ROWS, strict=True)), strict=True))
    return columns | extra


def test_what_is_in_it():
    r = cw.Ratings.from_records(ROWS)
    assert repr(r) == "Ratings(4 ratings: 3 items x 3 annotators, from -2 to 4)"
    assert len(r) == 3 and r.n_answers == 4 and r.n_annotators == 3 and r.shape == (3,)
    assert r.item.tolist() == [0, 0, 1, 2] and r.weights.tolist() == [1.0] * 4 and r.answer_type == "ratings"
    for name in ("indptr", "value", "annotator"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(r, name)[0] = 1
    with pytest.raises(AttributeError):
        r.value = None
    for twin in (copy.deepcopy(r), pickle.loads(pickle.dumps(r))):
        assert np.array_equal(twin.value, r.value) and not twin.value.flags.writeable


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_any_frame_in_the_same_kind_out(make):
    r = cw.Ratings.from_frame(make(table(truth=[3.0, 3.0, 1.5, None])))
    assert np.allclose(r.truth, [3.0, 1.5, np.nan], equal_nan=True)
    back = r.to_frame()
    assert type(back).__module__.partition(".")[0] == (
        "polars" if make is dict else type(make(table())).__module__.partition(".")[0]
    )
    again = cw.Ratings.from_frame(back)
    assert np.array_equal(again.value, r.value) and np.allclose(again.truth, r.truth, equal_nan=True)


def test_other_words_wide_form_weights_and_times():
    r = cw.Ratings.from_frame({"task_id": [1, 1, 2], "Worker": ["x", "y", "x"], "score": [1, 2, 3],
                               "weight": [1.0, 2.0, 1.0],
                               "timestamp": ["2026-01-01", "2026-01-02", "2026-01-03"]})  # fmt: skip
    assert (
        r.value.tolist() == [1.0, 2.0, 3.0] and r.weight.tolist() == [1.0, 2.0, 1.0] and r.timestamp.dtype.kind == "M"
    )
    wide = cw.Ratings.from_frame({"item": ["a", "b"], "ann": [1.5, None], "bob": [2.5, 3.0]})
    assert wide.n_answers == 3 and wide.annotators.tolist() == ["ann", "bob"]
    dense = cw.Ratings.from_dense(np.ma.masked_equal([[1, 2], [0, 3]], 0), items=["a", "b"], annotators=["x", "y"])
    assert dense.n_answers == 3


def test_the_order_of_rows_does_not_matter():
    a = cw.Ratings.from_records(ROWS).to_frame("dict")
    b = cw.Ratings.from_records(ROWS[::-1]).to_frame("dict")
    assert sorted(zip(*a.values(), strict=True)) == sorted(zip(*b.values(), strict=True))


def test_choosing():
    r = cw.Ratings.from_records(ROWS).with_truth({"a": 3.0})
    assert r[[2, 0]].items.tolist() == ["c", "a"] and r[[2, 0]].value.tolist() == [-2.0, 3.5, 4.0]
    assert r[0].n_answers == 2 and r[np.array([True, False, False]), ...].n_answers == 2
    assert np.isnan(r[[2, 0]].truth[0]) and r[[2, 0]].truth[1] == 3.0
    assert r.without(["ann"]).annotators.tolist() == ["bob", "cem"] and r.without("ann").n_answers == 2
    assert r.only(["ann"]).n_answers == 2 and len(r.only(["ann"])) == 3
    assert r.select(r.value > 0).n_answers == 3
    with pytest.raises(InputError, match="No annotator named 'eve'"):
        r.without(["eve"])
    with pytest.raises(InputError, match="mask"):
        r.select([1, 2])
    with pytest.raises(IndexError, match="by item alone"):
        r[0, 1]


def test_describe():
    facts = cw.Ratings.from_records(ROWS).describe()
    assert facts["items"] == 3 and facts["ratings"] == 4 and facts["items_with_one_rating"] == 2
    assert facts["values"]["min"] == -2.0 and np.isclose(facts["deviation_within_items"], np.std([3.5, 4.0], ddof=1))


def test_duplicates_and_missing():
    twice = [*ROWS, ("a", "ann", 9.0)]
    with pytest.raises(DuplicateError, match="'ann'"):
        cw.Ratings.from_records(twice)
    assert cw.Ratings.from_records(twice, on_duplicate="first").value[0] == 3.5
    assert cw.Ratings.from_records(twice, on_duplicate="last").value[0] == 9.0
    assert cw.Ratings.from_records(twice, on_duplicate="all").n_answers == 5
    holes = table()
    holes["value"][1] = None
    with pytest.raises(LabelError, match="row 1"):
        cw.Ratings.from_frame(holes)
    assert cw.Ratings.from_frame(holes, on_missing="drop").n_answers == 3


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cw.Ratings.from_records([]), InputError, "No ratings"),
        (lambda: cw.Ratings.from_records([("a", "b")]), InputError, "in row 0"),
        (lambda: cw.Ratings.from_records([("a", "b", "c")]), LabelError, "in row 0 .* is 'c'"),
        (lambda: cw.Ratings.from_records([("a", "b", float("inf"))]), InputError, "finite"),
        (lambda: cw.Ratings.from_frame({"item": [1], "value": [2.0]}), ColumnError, "annotator"),
        (lambda: cw.Ratings.from_frame(table(), form="tall"), ParameterError, "form='tall'"),
        (lambda: cw.Ratings.from_frame(table(), on_missing="guess"), ParameterError, "on_missing='guess'"),
        (lambda: cw.Ratings.from_frame(table(truth=[1.0, 2.0, 1.0, 1.0])), LabelError, "different true numbers"),
        (lambda: cw.Ratings.from_dense([[1.0], [2.0]], items=["a"]), InputError, "1 items"),
        (lambda: cw.Ratings.from_dense([1.0, 2.0]), InputError, "2 dimensions"),
        (lambda: cw.Ratings.from_dense([["x"]]), InputError, "array of numbers"),
        (lambda: cw.Ratings.from_codes([0], [0], [np.nan], items=["a"], annotators=["b"]), InputError, "row 0"),
        (lambda: cw.Ratings.from_codes([0], [0], ["x"], items=["a"], annotators=["b"]), InputError, "must be numbers"),
        (lambda: cw.Ratings.from_codes([0], [3], [1.0], items=["a"], annotators=["b"]), InputError, "annotator codes"),
        (lambda: cw.Ratings.from_records([("a", "b", 1.0, 0.0)]), InputError, "positive"),
        (lambda: cw.Ratings.from_records(ROWS).with_truth({"z": 1.0}), InputError, "None of the 1 items"),
        (lambda: cw.Ratings.from_records(ROWS).with_truth([1.0]), InputError, "each of the 3 items"),
        (lambda: cw.Ratings.from_records(ROWS).with_truth({"a": "x"}), InputError, "'x'"),
        (lambda: cw.Ratings.from_records(ROWS).with_truth(3), InputError, "is int"),
    ],
)  # fmt: skip
def test_bad_input_is_told_clearly(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_files(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("task,worker,rating\n1,w1,3.5\n1,w2,4\n2,w1,-1e2\n", encoding="utf-8")
    truth = tmp_path / "truth.csv"
    truth.write_text("task,value\n1,3.25\n2,\n", encoding="utf-8")
    r = cw.read_ratings(path, truth_path=truth)
    assert r.items.tolist() == [1, 2] and r.value.tolist() == [3.5, 4.0, -100.0]
    assert r.truth[0] == 3.25 and np.isnan(r.truth[1])
    r.to_frame("polars").write_parquet(tmp_path / "r.parquet")
    assert cw.read_ratings(tmp_path / "r.parquet").n_answers == 3
    path.write_text("task,worker,rating\n1,w1,good\n", encoding="utf-8")
    with pytest.raises(LabelError, match=r"in line 2 .* is 'good'.*make Votes"):
        cw.read_ratings(path)
    path.write_text("task,worker,rating\n", encoding="utf-8")
    with pytest.raises(ReadError, match="no ratings"):
        cw.read_ratings(path)


def test_simulated_crowds_have_what_they_were_drawn_from():
    made = cw.simulate.ratings(
        4000, n_annotators=6, bias=2.0, scale=0.3, mean=50.0, spread=10.0, noise=2.0, random_state=0
    )
    r, known = made.ratings, made.parameters
    for m in range(6):
        own = r.annotator == m
        slope, offset = np.polyfit(made.truth[r.item[own]] - 50.0, r.value[own] - 50.0, 1)
        assert abs(slope - known["scale"][m]) < 0.05 and abs(offset - known["bias"][m]) < 0.4
        noise = np.std(r.value[own] - 50.0 - offset - slope * (made.truth[r.item[own]] - 50.0))
        assert abs(noise * np.sqrt(known["precision"][m]) - 1.0) < 0.1
    graded = cw.simulate.ordinal(20_000, n_annotators=3, n_classes=4, random_state=0)
    theta = graded.parameters["confusion"]
    for m in range(3):
        own = graded.votes.annotator == m
        for k in range(4):
            at = own & (graded.truth[graded.votes.item] == k)
            share = np.bincount(graded.votes.label[at], minlength=4) / at.sum()
            assert np.abs(share - theta[m, k]).max() < 0.03
    for bad in ({"noise": 0.0}, {"bias": -1.0}, {"n_copiers": 30}):
        with pytest.raises(ParameterError):
            cw.simulate.ratings(10, **bad)


@pytest.mark.parametrize(
    ("cells", "read", "says"),
    [
        ("7%;12 %;0.5%", [0.5, 7, 12], "have a sign: '7%' is read as 7"),
        ("$7;$12;$1,5", [1.5, 7, 12], "have a decimal comma: .* is read as"),
        ("1.250;2.500;3.125", [1.25, 2.5, 3.125], "a point before three digits: '1.250' is read as 1.25"),
    ],
)
def test_signs_beside_numbers_and_points_of_thousands_are_said(
    tmp_path: Path, cells: str, read: list[float], says: str
):
    path = tmp_path / "ratings.csv"
    rows = [f"{n};ann;{cell}" for n, cell in enumerate(cells.split(";"))]
    path.write_text("\n".join(["item;annotator;score", *rows]) + "\n", encoding="utf-8")
    with pytest.warns(InputWarning, match=says):
        assert sorted(cw.read_ratings(path).value.tolist()) == read


@pytest.mark.parametrize(
    ("last", "says", "n_items"),
    [
        ("Mean;2.3;3.5", "Left out the last row, 'Mean': totals and no ratings", 3),
        ("Summe;7;7", "Left out the last row, 'Summe'", 3),
        ("total;2;5", "The last row, 'total', may hold totals: read as an item", 4),
    ],
)
def test_a_row_of_totals_is_no_item_in_silence(tmp_path: Path, last: str, says: str, n_items: int):
    path = tmp_path / "ratings.csv"
    path.write_text(f"item;ann;bob\na;1;3\nb;2;\nc;4;4\n{last}\n", encoding="utf-8")
    with pytest.warns(InputWarning, match=says):
        assert len(cw.read_ratings(path)) == n_items


def test_points_of_thousands_below_empty_cells_are_said(tmp_path: Path):
    path = tmp_path / "boxes.csv"
    path.write_text("item;annotator;x1;y1;x2;y2\na;ann;;;;\na;bob;1.000;1.000;2.000;2.000\n", encoding="utf-8")
    with pytest.warns(InputWarning, match="'1.000' is read as 1"):
        assert len(cw.read_boxes(path)) == 1


def test_codes_of_no_answer_are_not_averaged_in_silence(tmp_path: Path):
    table = {"item": [1, 1, 2, 2], "annotator": ["ann", "bob"] * 2, "value": [1.5, 2.0, -999.0, 3.0]}
    with pytest.warns(InputWarning, match="-999 is read as a rating"):
        assert cw.Ratings.from_frame(table).value.min() == -999.0
    path = tmp_path / "ratings.csv"
    path.write_text("item,rater,rating\nx,ann,1.5\nx,bob,n/a\ny,ann,2\n", encoding="utf-8")
    with pytest.raises(LabelError, match="is 'n/a': expected a number"):  # and no class beside three others
        cw.aggregate(path)


@pytest.mark.parametrize("signs", ["7%,$8", "5%5,6%6"])
def test_other_signs_are_no_numbers(signs: str):
    with pytest.raises(LabelError, match="expected a number"):
        cw.Ratings.from_frame({"item": [1, 2], "annotator": ["ann", "ann"], "value": signs.split(",")})


def test_numbers_with_commas_of_thousands_are_not_taken_for_classes_in_silence():
    table = {"item": [n // 2 for n in range(24)], "annotator": ["ann", "bob"] * 12}
    with pytest.warns(InputWarning, match="24 different whole numbers from 1000 to 3990"):
        cw.aggregate(table | {"label": [f"{1000 + 130 * n:,}" for n in range(24)]})


def test_decimal_commas_are_read_and_said(tmp_path: Path) -> None:
    """As spreadsheets in German or Spanish write them."""
    path = tmp_path / "ratings.csv"
    path.write_text("item;annotator;value\n1;ann;1,5\n1;bob;2\n2;ann;1,25\n")
    with pytest.warns(InputWarning, match="column 'value' have a decimal comma: '1,5' is read as 1.5"):
        assert sorted(cw.read_ratings(path).value.tolist()) == [1.25, 1.5, 2.0]
    with pytest.warns(InputWarning, match="decimal comma"):
        assert cw.aggregate(path).answer_type == "ratings"  # not votes for the classes 1,5 and 1,25
    for text, odd in (("1,500;2,000", "1,500"), ("1,5;1.000,5", "1.000,5"), ("1.5;2,5", "2,5")):
        wide = tmp_path / "wide.csv"
        wide.write_text(f"item;ann;bob\nx;{text}\ny;1;2\n")
        with pytest.raises(
            LabelError, match=rf"in line 2 \(column '(ann|bob)'\) is '{odd}': expected a number, such as"
        ):
            cw.read_ratings(wide, form="wide")
