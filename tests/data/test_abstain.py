"""Labels that stand for no answer: no votes, and their items and annotators stay."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.errors import InputWarning

MATRIX = {"item": ["a", "b", "c", "d"], "r1": [1, -1, 1, -1], "r2": [-1, -1, 0, 0], "r3": [-1, -1, -1, -1]}


@pytest.mark.parametrize("abstain", [-1, "-1", -1.0])
def test_the_label_for_no_answer_is_no_vote_and_its_items_and_annotators_stay(abstain: object, tmp_path: Path) -> None:
    file = tmp_path / "matrix.csv"
    pl.DataFrame(MATRIX).write_csv(file)
    long = pl.DataFrame(MATRIX).unpivot(index="item", variable_name="rule", value_name="label")
    for votes in (
        cw.Votes.from_frame(MATRIX, abstain=abstain),
        cw.Votes.from_frame(long, annotator="rule", abstain=abstain),
        cw.read_votes(file, abstain=abstain),
    ):
        assert repr(votes) == "Votes(4 votes: 4 items x 3 annotators x 2 classes)"
        assert votes.annotators.tolist() == ["r1", "r2", "r3"]
        assert np.diff(votes.indptr)[votes.items.tolist().index("b")] == 0
    array = np.array([MATRIX[name] for name in ("r1", "r2", "r3")]).T
    assert repr(cw.Votes.from_dense(array, missing=-1)) == repr(votes)


def test_an_empty_cell_is_no_answer_where_it_is_said() -> None:
    frame = {"item": list("abcd"), "r1": ["spam", None, "", None], "r2": [None, None, "ham", "ham"]}
    with pytest.warns(InputWarning, match=r"Left out 1 of 4 rows: without any votes"):
        assert len(cw.Votes.from_frame(frame, form="wide")) == 3
    assert len(cw.Votes.from_frame(frame, form="wide", abstain="")) == 4
    rows = [("a", "r1", "spam"), ("b", "r1", None), ("b", "r2", "ham"), ("c", "r2", "")]
    with pytest.raises(cw.errors.LabelError, match="no label"):
        cw.Votes.from_records(rows)
    assert cw.Votes.from_records(rows, abstain="").items.tolist() == ["a", "b", "c"]
    assert cw.Votes.from_records([*rows, ("c", "r1", "Abstain ")], abstain="ABSTAIN").classes.tolist() == [
        "ham",
        "spam",
    ]


def test_a_word_for_an_empty_cell_is_one(tmp_path: Path) -> None:
    file = tmp_path / "votes.csv"
    file.write_text("item,annotator,label\na,r1,spam\nb,r1,NA\nb,r2,ham\nc,r2,NA\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(cw.read_votes(file, abstain="NA")) == "Votes(2 votes: 3 items x 2 annotators x 2 classes)"


def test_a_rule_for_a_class_of_its_own_is_an_annotator() -> None:
    said = {"r1": ["ham", None] * 12, "r2": [None, "spam"] * 12, "r3": ["spam"] * 12 + [None] * 12}
    votes = cw.Votes.from_frame({"item": range(24), **said}, form="wide", abstain="")
    assert votes.annotators.tolist() == ["r1", "r2", "r3"]


def test_truth_of_items_without_votes_and_declared_categories() -> None:
    frame = pl.DataFrame({**MATRIX, "truth": [1, 0, 1, 0]})
    assert cw.Votes.from_frame(frame, abstain=-1).truth.tolist() == [1, 0, 1, 0]
    long = {"item": list("aab"), "annotator": ["r1", "r2", "r1"], "label": ["x", "NONE", "y"]}
    kinds = pl.DataFrame(long, schema_overrides={"label": pl.Enum(["NONE", "y", "x"])})
    assert cw.Votes.from_frame(kinds, abstain="none").classes.tolist() == ["y", "x"]
    assert cw.Votes.from_frame(kinds.to_pandas(), abstain="none").classes.tolist() == ["y", "x"]


def test_a_label_that_may_stand_for_no_answer_is_doubted_and_kept() -> None:
    with pytest.warns(InputWarning, match=r"^-1 is read as a class. If it stands for no answer, say abstain=-1.$"):
        assert cw.Votes.from_frame(MATRIX).classes.tolist() == [-1, 0, 1]
    with pytest.warns(InputWarning, match=r"say missing=-1"):
        cw.Votes.from_dense(np.array([[2, -1, 0], [2, 1, 1]]))
    with pytest.warns(InputWarning, match=r"'Abstain' is read as a class.*abstain='Abstain'"):
        cw.Votes.from_records([("a", "ann", "Abstain"), ("a", "bob", "yes")])
    with pytest.warns(InputWarning, match=r"'N/A', '\?' are read as classes.*abstain='N/A'. Map the others"):
        cw.Votes.from_records([("a", "ann", "N/A"), ("a", "bob", "yes"), ("b", "ann", "?"), ("b", "bob", "no")])
    with pytest.warns(InputWarning, match=r"No label is -2, which abstain names: the labels are"):
        cw.Votes.from_frame(MATRIX, abstain=-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cw.Votes.from_dense(np.array([[1, -1, 0], [0, 1, 1]]))  # negative, neutral, positive
        cw.Votes.from_dense(np.array([[1, -1], [-1, 1]]))
        cw.Votes.from_frame(MATRIX, classes=[-1, 0, 1])
        cw.Votes.from_dense(np.array([[1, 2, -1], [0, -1, -1]]), missing=-1)
