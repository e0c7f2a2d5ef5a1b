"""Whether labels are classes: numbers on a scale are asked about, texts and ids refused, spellings pointed out."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from command_line import run
from crowdwise.data.guess import scale_of, too_many_classes
from crowdwise.data.spellings import merged, variants
from crowdwise.errors import ColumnError, InputError, InputWarning, LabelError, ParameterError

RANDOM = np.random.default_rng(1)


def rated(n: int = 60, low: int = 0, high: int = 100, noise: float = 10.0, step: int = 1) -> dict[str, Any]:
    """Numbers by four annotators around the value of each item."""
    true = RANDOM.uniform(low, high, n)
    given = np.repeat(true, 4) + RANDOM.normal(0, noise, 4 * n)
    label = (np.clip(given, low, high) / step).round().astype(int) * step
    return {"item": np.repeat(np.arange(n), 4), "annotator": np.tile(list("abcd"), n), "label": label}


def chosen(n: int = 60, k: int = 30, accuracy: float = 0.8, codes: Any = None) -> dict[str, Any]:
    """One of K classes by four annotators."""
    true = RANDOM.integers(k, size=n)
    label = np.where(RANDOM.random((n, 4)) < accuracy, true[:, None], RANDOM.integers(k, size=(n, 4))).ravel()
    table = {"item": np.repeat(np.arange(n), 4), "annotator": np.tile(list("abcd"), n)}
    return {**table, "label": label if codes is None else np.asarray(codes)[label]}


@pytest.mark.parametrize(
    "table",
    [rated(), rated(n=400), rated(step=5), rated(low=-100), rated(high=10, noise=1.5, n=90)],
    ids=["0 to 100", "without gaps", "fives", "from -100", "0 to 10"],
)
def test_numbers_on_a_scale(table: dict[str, Any]) -> None:
    votes = cw.Votes.from_frame(table)
    found = scale_of(votes)
    assert found is not None and found.certain
    assert f"{votes.n_classes} different whole numbers" in found.words
    with pytest.raises(InputError, match=r"ratings\?.*answer_type='ratings'.*answer_type='votes'"):
        cw.aggregate(table)
    with pytest.warns(InputWarning, match="Read as ratings"):
        assert cw.aggregate(table, answer_type="auto").answer_type == "ratings"
    assert cw.aggregate(table, answer_type="ratings").answer_type == "ratings"
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        assert cw.aggregate(table, "majority", answer_type="votes").answer_type == "votes"


@pytest.mark.parametrize(
    "table",
    [
        chosen(), chosen(k=100, n=200), chosen(k=20, accuracy=0.65), chosen(codes=[7 * n for n in range(30)]),
        chosen(k=10, accuracy=0.3), chosen(k=2), chosen(k=5, accuracy=0.3),
        chosen(codes=[f"class {n}" for n in range(30)]),
    ],
    ids=["codes", "a hundred", "poor", "with gaps", "ten, poor", "binary", "grades", "words"],
)  # fmt: skip
def test_codes_of_classes_stay_classes(table: dict[str, Any]) -> None:
    assert scale_of(cw.Votes.from_frame(table)) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        assert cw.aggregate(table, "majority").answer_type == "votes"


def test_one_vote_each_leaves_a_doubt() -> None:
    table = {"item": range(30), "annotator": ["a", "b"] * 15, "label": [7 * n for n in range(30)]}
    with pytest.warns(InputWarning, match=r"Read as votes, and .* 30 different whole numbers from 0 to 203"):
        cw.aggregate(table)


def test_the_command_asks_with_the_right_count(tmp_path: Path) -> None:
    table = rated(n=400)
    pl.DataFrame(table).write_csv(tmp_path / "scores.csv")
    done = run("aggregate", tmp_path / "scores.csv", "--json")
    assert done.returncode == 1 and done.stdout == ""
    assert f"The labels are {len(np.unique(table['label']))} different whole numbers from 0 to 100" in done.stderr
    assert "--answers ratings" in done.stderr and "--answers votes" in done.stderr
    for words in (["--answers", "auto"], ["--answers", "numbers"]):
        done = run("aggregate", tmp_path / "scores.csv", "--json", *words)
        assert done.returncode == 0 and '"answer_type": "ratings"' in done.stdout
    assert run("describe", tmp_path / "scores.csv", "--json", "--answers", "votes").returncode == 0
    assert "--answers ratings" in run("compare", tmp_path / "scores.csv", "--methods", "majority").stderr


def test_a_folder_with_true_numbers_is_asked_about_too(tmp_path: Path) -> None:
    table = rated(n=40, step=10)
    pl.DataFrame(table).write_csv(tmp_path / "labels.csv")
    pl.DataFrame({"item": range(40), "truth": np.linspace(0.5, 99.5, 40)}).write_csv(tmp_path / "truth.csv")
    assert "--answers ratings" in run("aggregate", tmp_path, "--json").stderr
    assert '"mae"' in run("aggregate", tmp_path, "--json", "--answers", "auto").stdout


# -------------------------------------------------------------------- texts and ids


def test_as_many_classes_as_votes_are_refused(tmp_path: Path) -> None:
    table = {"task": np.repeat(range(30), 3), "worker": np.tile(["a", "b", "c"], 30)}
    texts = {**table, "response": [f"response-{n}" for n in range(90)]}
    assert too_many_classes(cw.Votes.from_frame(texts))
    with pytest.raises(
        InputError, match=r"90 different labels in 90 votes, such as 'response-0'.*label='.*answer_type"
    ):
        cw.aggregate(texts)
    with pytest.raises(InputError) as caught:
        cw.aggregate(texts, label="response")
    assert "label=" not in str(caught.value) and "answer_type='votes'" in str(caught.value)
    assert cw.aggregate(texts, "majority", answer_type="votes").n_answers == 90
    sentences = {**table, "response": [f"A sentence of its own, number {n}." for n in range(90)]}
    assert cw.aggregate(sentences).answer_type == "texts"
    pl.DataFrame(texts).write_csv(tmp_path / "texts.csv")
    done = run("aggregate", tmp_path / "texts.csv")
    assert done.returncode == 1 and "--label NAME" in done.stderr and "--answers votes" in done.stderr


def test_few_votes_are_not_refused() -> None:
    few = {"task": [1, 2, 3], "worker": ["a", "b", "c"], "label": ["x", "y", "z"]}
    assert cw.aggregate(few, "majority").labels.tolist() == ["x", "y", "z"]


# -------------------------------------------------------------------- spellings

SPELLED = {
    "task": [1, 1, 1, 2, 2, 2], "worker": ["a", "b", "c"] * 2, "label": ["yes", "Yes", "yes", "no ", "no", " No"],
}  # fmt: skip


def test_spellings_are_pointed_out_and_merged(tmp_path: Path) -> None:
    with pytest.warns(InputWarning, match=r"'yes', 'Yes'; .*normalise_labels=True"):
        assert cw.Votes.from_frame(SPELLED).n_classes == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        votes = cw.Votes.from_frame(SPELLED, normalise_labels=True)
    assert votes.classes.tolist() == ["No", "yes"]  # the most common spelling; of equals the first by name
    assert votes.with_truth({1: "YES", 2: "no"}).truth.tolist() == [1, 0]
    assert cw.Votes.from_frame(SPELLED, normalise_labels=True, classes=["Yes", "No"]).classes.tolist() == ["Yes", "No"]
    pl.DataFrame(SPELLED).write_csv(tmp_path / "a.csv")
    done = run("describe", tmp_path / "a.csv", "--json")
    assert "Merge them with --normalise-labels." in done.stderr
    done = run("describe", tmp_path / "a.csv", "--json", "--normalise-labels")
    assert done.stderr == "" and '"classes": ["No", "yes"]' in done.stdout
    assert cw.aggregate(SPELLED, "majority", normalise_labels=True).labels.tolist() == ["yes", "No"]


def test_letters_that_look_alike_are_pointed_out_and_merged() -> None:
    """An accent as a sign of its own (as a Mac writes names of files), and a sign without width."""
    rows = [("a", "ann", "caf\u00e9"), ("a", "bob", "cafe\u0301"), ("b", "ann", "x"), ("b", "bob", "x\u200b")]
    with pytest.warns(InputWarning, match=r"signs of Unicode that look alike\) are different classes: 'cafe\\u0301'"):
        assert cw.Votes.from_records(rows).n_classes == 4
    assert cw.Votes.from_records(rows, normalise_labels=True).classes.tolist() == ["caf\u00e9", "x"]
    with pytest.warns(InputWarning, match="names of some items differ only in blanks .or in signs of Unicode"):
        cw.Votes.from_records([("caf\u00e9.jpg", "ann", "x"), ("cafe\u0301.jpg", "ann", "y")])


def test_spellings_in_sets_of_labels() -> None:
    rows = {"item": [1, 1], "annotator": ["a", "b"], "labels": [["Cat", "dog"], ["cat", "Dog "]]}
    with pytest.warns(InputWarning, match="differ only in case or blanks"):
        assert len(cw.LabelSets.from_frame(rows).labels) == 4
    merged_sets = cw.LabelSets.from_frame(rows, normalise_labels=True)
    assert merged_sets.labels.tolist() == ["Cat", "Dog"]
    assert merged_sets.with_truth({1: ["cat", "DOG"]}).truth.tolist() == [[True, True]]


def test_numbers_with_blanks_are_numbers_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("item,annotator,label\n1,a,1\n1,b,1 \n2,a, 2\n2,b,2\n")
    with pytest.warns(InputWarning):
        assert cw.read_votes(tmp_path / "a.csv").n_classes == 4
    assert cw.read_votes(tmp_path / "a.csv", normalise_labels=True).classes.tolist() == [1, 2]


def test_truth_that_is_no_class_stays_an_error() -> None:
    votes = cw.Votes.from_frame(SPELLED, normalise_labels=True)
    with pytest.raises(LabelError, match="'perhaps'"):
        votes.with_truth({1: "perhaps"})


def test_variants() -> None:
    assert variants({"a b": 1, "A  b ": 2, "c": 1, 3: 1}) == {"a b": ["A  b ", "a b"]}
    assert merged({"a b": 1, "A  b ": 2, "c ": 1, 3: 1}) == {"a b": "A b", "A  b ": "A b", "c ": "c", 3: 3}


# -------------------------------------------------------------------- options of the reader


def test_aggregate_passes_reading_options_on(tmp_path: Path) -> None:
    table = {"q": [1, 1, 2, 2], "who": ["a", "b", "a", "b"], "said": ["x", "x", "y", None]}
    named = {"item": "q", "annotator": "who", "label": "said"}
    with pytest.raises(LabelError, match="on_missing='drop'"):
        cw.aggregate(table, **named)
    with pytest.warns(InputWarning, match="1 of 4 rows"):
        found = cw.aggregate(table, "dawid-skene", max_iter=3, on_missing="drop", **named)
    assert found.labels.tolist() == ["x", "y"]
    pl.DataFrame(table).write_csv(tmp_path / "a.csv", separator="|")
    assert cw.aggregate(tmp_path / "a.csv", "majority", separator="|", on_missing="drop", **named).n_answers == 3
    ratings = {"item": [1, 1, 2], "annotator": ["a", "b", "a"], "cm": [1.5, 2.5, 3.0]}
    assert cw.aggregate(ratings, "mean", label="cm").n_answers == 3
    assert cw.compare({**table, "said": ["x", "x", "y", "y"]}, ["majority"], repeats=1, replicates=0, **named).methods


def test_options_that_cannot_be_used_are_errors() -> None:
    votes = cw.Votes.from_records([(1, "a", "x"), (2, "a", "y")])
    with pytest.raises(ParameterError, match="label: this says how a table or a file is read, and Votes were read"):
        cw.aggregate(votes, label="said")
    with pytest.raises(ParameterError, match="has no parameter 'lable'"):
        cw.aggregate(votes, "majority", lable="said")
    with pytest.raises(ParameterError, match="compare has no option 'lable'"):
        cw.compare(votes, lable="said")


def test_names_that_are_spelled_in_two_ways_are_pointed_out() -> None:
    rows = [
        ("1", "ann", "x"),
        ("1 ", "ann ", "y"),
        ("2", "Bob", "x"),
        ("2", "bob", "y"),
        ("a", "cem", "x"),
        ("A", "cem", "x"),
    ]
    with pytest.warns(InputWarning) as said:
        votes = cw.Votes.from_records(rows)
    assert votes.n_annotators == 5 and len(votes) == 5  # nothing is changed
    items, annotators = sorted((str(w.message) for w in said), reverse=True)
    assert "names of some items differ only in blanks, and count as different items: '1', '1 '." in items
    assert "annotators differ only in case or blanks" in annotators and "'ann', 'ann '; 'Bob', 'bob'" in annotators


def test_truth_under_nearly_the_same_names_is_pointed_out() -> None:
    """A spreadsheet took the zeros away: 001 is 1 in the table of truth, and 100 is found."""
    votes = cw.Votes.from_records([(item, m, "x" if m else "y") for item in ("001", "002", "100") for m in range(2)])
    with pytest.warns(InputWarning, match=r"2 of the 3 items with truth have no votes .*: 1 and '001'\. Their truth"):
        assert votes.encode_truth({1: "x", 2: "y", 100: "x"}).tolist() == [-1, -1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        votes.encode_truth({"001": "x", "7": "x"})  # an item without votes, and none that is called nearly the same


def test_two_columns_of_truth_may_be_called_anything(tmp_path: Path) -> None:
    path = tmp_path / "truth.csv"
    for header in ("Beispiel-Nr.;Wahrheit", "Beispiel-Nr.;Label", "item;Wahrheit"):
        path.write_text(f"{header}\n001;x\n002;y\n")
        assert cw.read_truth(path) == {"001": "x", "002": "y"}
    path.write_text("Nummer;Wahrheit;Datum\n001;x;2026\n")
    with pytest.raises(ColumnError, match="Call them item and label, or leave all other columns out"):
        cw.read_truth(path)
