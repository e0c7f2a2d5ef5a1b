"""The table of label sets: both forms, what was on offer, and what not chosen means."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.data.label_sets import read_label_sets
from crowdwise.errors import ColumnError, DuplicateError, InputError, LabelError, ParameterError

RECORDS = [("a", "ann", ["cat", "dog"]), ("a", "bob", []), ("b", "ann", ["dog"])]


def sets_of(answers):
    table = answers.to_frame("dict")
    return dict(zip(zip(table["item"], table["annotator"], strict=True), table["labels"], strict=True))


def test_an_empty_set_is_an_answer():
    answers = cw.LabelSets.from_records(RECORDS)
    assert sets_of(answers) == {("a", "ann"): "cat|dog", ("a", "bob"): "", ("b", "ann"): "dog"}
    assert answers.describe()["empty_answers"] == 1
    assert (len(answers), answers.n_answers, answers.n_labels) == (2, 3, 2)


def test_not_chosen_is_no_where_it_was_on_offer_and_nothing_elsewhere():
    answers = cw.LabelSets.from_records(RECORDS, offered={"b": ["dog"]})
    cat, dog = answers.votes_of("cat"), answers.votes_of("dog")
    assert cat.items.tolist() == ["a"] and cat.label.tolist() == [1, 0]
    assert dog.items.tolist() == ["a", "b"] and dog.label.tolist() == [1, 0, 1]
    assert answers[[1]].votes_of("cat").n_votes == 0
    with pytest.raises(LabelError, match="was not on offer"):
        cw.LabelSets.from_records(RECORDS, offered={"a": ["dog"]})


@pytest.mark.parametrize("make_frame", [pl.DataFrame, pd.DataFrame, dict])
def test_the_two_forms_are_one(make_frame):
    wide = {"item": [1, 1, 2], "worker": ["a", "b", "a"], "labels": ["x;y", "", "x"]}
    long = {"item": [2, 1, 1, 1], "worker": ["a", "a", "b", "a"], "label": ["x", "y", None, "x"]}
    one, two = (cw.LabelSets.from_frame(make_frame(table)) for table in (wide, long))
    assert sets_of(one) == sets_of(two) == {(1, "a"): "x|y", (1, "b"): "", (2, "a"): "x"}


def test_lists_delimiters_and_offers_in_columns():
    lists = cw.LabelSets.from_frame(pl.DataFrame({"item": [1, 2], "worker": ["a", "a"], "label": [["x", "y"], []]}))
    assert sets_of(lists) == {(1, "a"): "x|y", (2, "a"): ""}
    table = {"item": [1, 2], "worker": ["a", "a"], "labels": ["x/y", "y"], "offered": ["x/y/z", "y"]}
    offered = cw.LabelSets.from_frame(table, delimiter="/")
    assert offered.labels.tolist() == ["x", "y", "z"]
    assert offered.votes_of("z").items.tolist() == [1]
    assert sets_of(cw.LabelSets.from_frame(offered.to_frame())) == sets_of(offered)


@pytest.mark.parametrize("column", ["labels", "label"])
def test_lists_that_were_written_as_text(tmp_path, column):
    """What pandas writes to a CSV file, what JSON calls a list, and a set."""
    sets = [["x, y", "z"], [], ["x, y"], ["z"]]
    frame = pd.DataFrame({"item": [1, 1, 2, 2], "annotator": ["ann", "bob"] * 2, column: sets})
    frame.to_csv(tmp_path / "sets.csv", index=False)
    written = [tmp_path / "sets.csv", frame.assign(**{column: ['["z","x, y"]', "[]", '["x, y"]', "{'z'}"]})]
    for source in written:
        assert cw.aggregate(source).labels.tolist() == ["x, y", "z"]
    table = cw.LabelSets.from_frame(written[1])
    assert table.describe()["answers"] == 4 and table.labels.tolist() == ["x, y", "z"]
    other = frame.assign(**{column: "[sic] x|y"})
    assert cw.LabelSets.from_frame(other, delimiter="|").labels.tolist() == ["[sic] x", "y"]


def test_reads_files(tmp_path):
    (tmp_path / "sets.csv").write_text("item,annotator,labels\n7,a,x|y\n7,b,\n8,a,none\n", encoding="utf-8")
    answers = read_label_sets(tmp_path / "sets.csv")
    assert sets_of(answers) == {(7, "a"): "x|y", (7, "b"): "", (8, "a"): ""}
    (tmp_path / "truth.csv").write_text("item,labels\n7,x\n8,\n", encoding="utf-8")
    truth = cw.LabelSets.read_truth(tmp_path / "truth.csv")
    assert truth == {7: ["x"], 8: []}
    assert answers.with_truth(truth).truth.tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: cw.LabelSets.from_records([("a", "b", "cat")]), InputError, "list or set of labels"),
        (lambda: cw.LabelSets.from_records([("a", "b", [])]), LabelError, r"classes=\[...\]"),
        (lambda: cw.LabelSets.from_records([]), InputError, "empty"),
        (lambda: cw.LabelSets.from_records(RECORDS + RECORDS[:1]), DuplicateError, "'ann'"),
        (lambda: cw.LabelSets.from_records(RECORDS, classes=["cat"]), LabelError, "dog"),
        (lambda: cw.LabelSets.from_records(RECORDS, on_duplicate="all"), ParameterError, "on_duplicate"),
        (lambda: cw.LabelSets.from_frame({"item": [1], "labels": ["x"]}), ColumnError, "annotator"),
        (lambda: cw.LabelSets.from_frame({"item": [], "worker": [], "labels": []}), InputError, "No answers"),
        (lambda: cw.LabelSets.from_records(RECORDS).votes_of("cow"), LabelError, "cow"),
        (lambda: cw.LabelSets.from_records(RECORDS).with_truth({"a": ["cow"]}), LabelError, "cow"),
        (lambda: cw.LabelSets.from_records(RECORDS).with_truth({"z": ["cat"]}), InputError, "None of the 1 items"),
        (lambda: cw.LabelSets.from_records(RECORDS).with_truth(np.zeros((2, 3), bool)), InputError, "2 x 2"),
    ],
)
def test_bad_input_is_explained(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_order_of_rows_does_not_matter_and_selections_hold():
    one, two = cw.LabelSets.from_records(RECORDS), cw.LabelSets.from_records(RECORDS[::-1])
    for name in ("indptr", "annotator", "set_indptr", "chosen"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert sets_of(one.without("ann")) == {("a", "bob"): ""}
    assert len(one.without("ann")) == 2
    assert sets_of(one.with_truth({"b": ["dog"]})[1]) == {("b", "ann"): "dog"}
    assert one.with_truth({"b": ["dog"]})[[1]].known.tolist() == [True]
    with pytest.raises(ValueError, match="read-only"):
        one.chosen[0] = 1
