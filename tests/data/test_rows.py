"""What the tables of answers share: records as columns, blocks of rows, weights and timestamps."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.data.assemble import checked_beside
from crowdwise.data.table import blocks, columns_of, spread
from crowdwise.errors import InputError

NAMES = ("item", "annotator", "label")


def test_tuples_and_dicts_become_columns():
    assert columns_of([("a", "b", 1), ("c", "d", 2)], NAMES, "votes") == {
        "item": ("a", "c"),
        "annotator": ("b", "d"),
        "label": (1, 2),
    }
    assert columns_of([{"x": 1}, {"y": 2}], NAMES, "votes") == {"x": [1, None], "y": [None, 2]}
    assert list(columns_of([("a", "b", 1, 0.5)], NAMES, "votes", optional=["weight"])) == [*NAMES, "weight"]


@pytest.mark.parametrize(
    ("records", "row"),
    [
        ([("a", "b", 1), ("a", "b")], 1),
        ([("a", "b", 1), ("a", "b", 1, 0.5)], 1),
        ([("a", "b", 1), "abc"], 1),
        ([("a", "b", 1), {"item": "a"}], 1),
        ([("a", "b"), ("a", "b", 1)], 0),
        ([3], 0),
        ([("a", "b", 1, 0.5, 2)], 0),
    ],
)
def test_an_odd_record_is_named(records, row):
    with pytest.raises(InputError) as raised:
        columns_of(records, NAMES, "votes", optional=["weight"])
    assert str(raised.value) == (
        "Expected (item, annotator, label) or (item, annotator, label, weight) in every record, or a dict in every "
        f"one: found {records[row]!r} in row {row}."
    )


def test_no_records():
    with pytest.raises(InputError, match="No ratings: the records are empty"):
        cw.Ratings.from_records([])


def test_blocks_are_those_chosen_one_by_one():
    rng = np.random.default_rng(0)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 4, 20))])
    chosen = rng.integers(0, 20, 15)
    new, take = blocks(indptr, chosen)
    each = [np.arange(indptr[n], indptr[n + 1]) for n in chosen]
    assert take.tolist() == np.concatenate(each).tolist()
    assert np.diff(new).tolist() == [len(rows) for rows in each]
    assert new.dtype == np.int64


def test_what_lies_beside_rows_is_as_long_as_they_are():
    assert checked_beside(None, None, 2, None, "ratings") == (None, None)
    with pytest.raises(InputError, match=r"one timestamp for each of the 2 ratings and found an array of shape \(3,\)"):
        checked_beside(None, np.zeros(3), 2, None, "ratings")
    with pytest.raises(InputError, match=r"Weights must be positive numbers: found 0\.0 in row 9"):
        checked_beside([1.0, 0.0], None, 2, np.array([8, 9]), "ratings")


def test_the_spread_of_no_counts():
    assert spread(np.zeros(0)) == {"min": 0, "median": 0, "mean": 0, "max": 0}
