"""Tables of answers from frames whose index, or another table's index, holds names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.errors import InputError, LabelError

LONG = pd.DataFrame({
    "task": ["c", "c", "a", "a", "b", "b"], "worker": ["u", "v", "u", "w", "v", "w"],
    "label": ["x", "y", "x", "x", "y", "y"],
})  # fmt: skip
TRUTH = {"a": "x", "b": "y", "c": "x"}


def triples(votes):
    table = votes.to_frame("dict")
    return sorted(zip(*(table[name].tolist() for name in ("item", "annotator", "label")), strict=True))


EXPECTED = triples(cw.Votes.from_frame(LONG))


@pytest.mark.parametrize(
    "make",
    [
        lambda: LONG.pivot(index="task", columns="worker", values="label"),
        lambda: LONG.pivot(index="task", columns="worker"),
        lambda: LONG.pivot_table(index="task", columns="worker", values=["label"], aggfunc="first"),
        lambda: LONG.pivot(index="task", columns="worker", values="label").rename_axis(None),
        lambda: LONG.pivot(index="task", columns="worker", values="label").rename_axis("photo"),
        lambda: LONG.pivot(index="task", columns="worker", values="label").reset_index(),
        lambda: LONG.pivot(index="task", columns="worker", values="label").iloc[::-1],
        lambda: LONG.set_index(["task", "worker"]).unstack(),
        lambda: LONG.set_index("task"),
        lambda: LONG.set_index(["task", "worker"]),
        lambda: LONG.set_index(["task", "worker"])["label"],
        lambda: LONG.iloc[::-1],
    ],
)  # fmt: skip
def test_an_index_of_names_is_the_item(make):
    assert triples(cw.Votes.from_frame(make())) == EXPECTED
    consensus = cw.aggregate(make(), "majority")
    assert consensus.score(TRUTH) == cw.aggregate(LONG, "majority").score(TRUTH)


def test_an_array_of_a_frame_keeps_its_names():
    wide = LONG.pivot(index="task", columns="worker", values="label")
    assert triples(cw.Votes.from_dense(wide)) == EXPECTED
    assert triples(cw.Votes.from_dense(wide.reset_index())) == EXPECTED
    assert triples(cw.Votes.from_dense(pl.from_pandas(wide.reset_index()))) == EXPECTED
    assert cw.Votes.from_dense(wide, items=["p", "q", "r"]).items.tolist() == ["p", "q", "r"]


def test_numbers_that_mean_something_are_names_and_row_numbers_are_none():
    wide = pd.DataFrame({"u": [0, 1, 1], "v": [0, 1, 0]}, index=[30, 10, 20])
    assert cw.Votes.from_frame(wide, form="wide").items.tolist() == [10, 20, 30]
    assert cw.aggregate(wide, "majority").score({30: 0, 10: 1}) == 1.0
    plain = wide.reset_index(drop=True)
    assert cw.Votes.from_frame(plain, form="wide").items.tolist() == [0, 1, 2]
    shuffled = plain.sample(frac=1.0, random_state=1)
    assert triples(cw.Votes.from_frame(shuffled, form="wide")) == triples(cw.Votes.from_frame(plain, form="wide"))


def test_a_selection_of_a_long_table_has_no_names():
    assert triples(cw.Votes.from_frame(pd.concat([LONG, LONG.assign(worker="z")]).iloc[:6])) == EXPECTED


def test_two_tables_in_one_pivot_are_an_error():
    two = LONG.assign(seconds=range(6)).pivot(index="task", columns="worker", values=["label", "seconds"])
    with pytest.raises(InputError, match=r"values='label'"):
        cw.Votes.from_frame(two)


def test_a_table_of_annotators_in_rows_is_an_error():
    with pytest.raises(InputError, match=r"\.T"):
        cw.Votes.from_frame(LONG.pivot(index="worker", columns="task", values="label"))


def test_ratings_label_sets_and_ordinal_answers_keep_their_names():
    numbers = LONG.assign(label=[1.0, 2.0, 3.0, 3.5, 2.0, 1.0])
    wide = numbers.pivot(index="task", columns="worker", values="label")
    means = {"a": 3.25, "b": 1.5, "c": 1.5}
    for ratings in (cw.Ratings.from_frame(wide), cw.Ratings.from_dense(wide), cw.Ratings.from_frame(wide.iloc[::-1])):
        found = cw.aggregate(ratings, "mean")
        assert dict(zip(found.items.tolist(), found.values.tolist(), strict=True)) == pytest.approx(means)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_truth_is_found_by_name(order):
    votes = cw.Votes.from_frame(LONG)
    series = pd.Series(TRUTH).iloc[order]
    frame = series.rename_axis("task").rename("truth").reset_index()
    for given in (series, frame, pl.from_pandas(frame), frame.set_index("task"), series.rename("label").to_frame()):
        assert votes.with_truth(given).truth.tolist() == votes.with_truth(TRUTH).truth.tolist()
        assert cw.aggregate(votes, "majority").score(given) == cw.aggregate(votes, "majority").score(TRUTH)


def test_truth_that_does_not_line_up_is_an_error():
    votes = cw.Votes.from_frame(LONG)
    with pytest.raises(InputError, match="None of the 3 items with truth"):
        votes.with_truth(pd.Series(["x", "y", "x"]))
    with pytest.raises(InputError, match="different truths"):
        votes.with_truth(pd.Series(["x", "y"], index=["a", "a"]))
    assert votes.with_truth(pd.Series(["x", "x"], index=["a", "a"])).truth.tolist() == [-1, 0, -1]
    with pytest.raises(InputError, match="item"):
        votes.with_truth(pl.DataFrame({"label": ["x", "y", "x"]}))
    with pytest.raises(InputError, match="mapping from item to class"):
        votes.with_truth(pl.Series(["x", "y", "x"]))
    assert votes.with_truth(np.array([0, 0, 1])).truth.tolist() == [0, 0, 1]


def test_class_names_go_by_position_where_items_are_called_as_rows():
    votes = cw.Votes.from_dense([["cat", "dog"], ["cat", "cat"], ["dog", "dog"]])
    names = ["cat", None, "dog"]
    for given in (names, np.array(names, dtype=object), np.array(["cat", "", "dog"]), pd.array(names, dtype="str"),
                  pd.Index(names, dtype="str"), pd.Series(names), pl.Series(names)):  # fmt: skip
        assert votes.with_truth(given).truth.tolist() == [0, -1, 1]
        assert cw.aggregate(votes, "majority").score(given) == 0.75  # item 0 is tied
        assert cw.aggregate(votes, gold=given).labels[[0, 2]].tolist() == ["cat", "dog"]
    with pytest.raises(LabelError, match="'cow', which no annotator used"):
        votes.with_truth(["cat", "cow", "dog"])
    with pytest.raises(InputError, match="as many, or a mapping"):
        votes.with_truth(["cat", "dog"])
    with pytest.raises(InputError, match=r"which name belongs to which item .* dict\(zip\(votes.items, truth\)\)"):
        cw.Votes.from_frame(LONG).with_truth(names)


def test_another_part_of_the_rows_says_what_order_cross_validation_needs():
    items = np.arange(10, 30)
    votes = cw.Votes.from_dense(np.tile([["x", "y"]], (20, 1)), items=items)
    X = pd.DataFrame({"f": np.arange(20.0)}, index=items[::-1])
    with pytest.raises(InputError, match=r"no row for .* X\.loc\[votes\.items\]"):
        cw.CrowdClassifier().fit(X.iloc[:15], votes[:15])


def test_numbers_that_may_be_classes_or_codes_are_an_error():
    table = pl.DataFrame({"item": [0, 0, 1, 1, 2], "annotator": [0, 1, 0, 1, 0], "label": [1, 1, 2, 3, 2]})
    votes = cw.Votes.from_frame(table)
    for given in ([1, 2, 2], np.array([1, 2, 2]), np.array([1, -1, 2])):
        with pytest.raises(InputError, match="may be classes, or codes of classes"):
            votes.with_truth(given)
    assert votes.with_truth(dict(zip(votes.items.tolist(), [1, 2, 2], strict=True))).truth.tolist() == [0, 1, 1]
    assert votes.with_truth(np.array([1, 2, 2], dtype=np.int32)).truth.tolist() == [1, 2, 2]
    assert votes.with_truth([0, 1, 1]).truth.tolist() == [0, 1, 1]  # 0 is not a class
