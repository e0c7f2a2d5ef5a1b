"""Tags: made from frames, records and files, checked, selected, and out again."""

from __future__ import annotations

import copy

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.data.tags import allowed, find_spans
from crowdwise.errors import ColumnError, DuplicateError, InputError, LabelError, ParameterError, ReadError

ROWS = [
    ("s", 0, "ann", "B-PER"), ("s", 1, "ann", "I-PER"), ("s", 2, "ann", "O"),
    ("s", 0, "bob", "B-PER"), ("s", 1, "bob", "O"), ("s", 2, "bob", "O"),
    ("t", 4, "bob", "B-LOC"), ("t", 3, "bob", "O"),
]  # fmt: skip


@pytest.fixture
def tags():
    return cw.Tags.from_records(ROWS)


def test_what_is_in_it(tags):
    assert tags.votes.items.tolist() == ["s:0", "s:1", "s:2", "t:3", "t:4"]
    assert tags.starts.tolist() == [0, 3, 5] and tags.sequence.tolist() == [0, 0, 0, 1, 1]
    assert tags.position.tolist() == [0, 1, 2, 3, 4]
    assert tags.classes.tolist() == ["B-LOC", "B-PER", "I-PER", "O"] and tags.scheme == "bio"
    assert (len(tags), tags.n_tokens, tags.n_answers) == (2, 5, 8)
    assert repr(tags) == "Tags(8 tags: 2 sequences, 5 tokens x 2 annotators x 4 tags, bio)"
    told = tags.describe()
    assert told["tokens"] == 5 and told["tokens_per_sequence"]["max"] == 3 and told["scheme"] == "bio"


def test_row_order_does_not_matter(tags):
    shuffled = cw.Tags.from_records([ROWS[i] for i in (3, 7, 0, 5, 2, 6, 1, 4)])
    assert shuffled.to_frame("dict")["position"].tolist() == tags.to_frame("dict")["position"].tolist()
    key = ["sequence", "position", "annotator"]
    assert shuffled.to_frame().sort(key).equals(tags.to_frame().sort(key))


def test_frozen_and_copied(tags):
    with pytest.raises(ValueError, match="read-only"):
        tags.starts[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        copy.deepcopy(tags).starts[0] = 1


def test_there_and_back_with_untagged_tokens_words_weights_and_truth():
    given = [
        (0, "Ann", "a", "B-PER", 1.0, "B-PER"),
        (1, "B", None, None, 1.0, "O"),
        (2, "C", "b", "O", 2.0, None),
    ]
    names = ("token", "word", "worker", "tag", "weight", "gold")
    rows = [{"sentence": 1, **dict(zip(names, row, strict=True))} for row in given]
    tags = cw.Tags.from_records(rows)
    assert tags.words.tolist() == ["Ann", "B", "C"]
    assert tags.truth.tolist() == [0, 1, -1] and np.diff(tags.votes.indptr).tolist() == [1, 0, 1]
    again = cw.Tags.from_frame(tags.to_frame())
    assert again.to_frame().equals(tags.to_frame())
    assert again.votes.weight.tolist() == [1.0, 2.0]
    assert again.truth.tolist() == [0, 1, -1]


def test_pandas_in_pandas_out(tags):
    pd = pytest.importorskip("pandas")
    made = cw.Tags.from_frame(pd.DataFrame(tags.to_frame("dict")))
    assert isinstance(made.to_frame(), pd.DataFrame)
    assert len(made.to_frame()) == 8


def test_selecting(tags):
    some = tags[[1]]
    assert some.votes.items.tolist() == ["t:3", "t:4"] and some.starts.tolist() == [0, 2]
    assert tags[::-1].sequences.tolist() == ["t", "s"]
    assert tags[np.array([True, False])].n_tokens == 3
    left = tags.without(["ann"])
    assert left.n_answers == 5 and left.n_tokens == 5 and tags.only("ann").n_answers == 3


def test_truth_by_sequence_by_token_and_by_code(tags):
    by_sequence = tags.with_truth({"s": ["B-PER", "I-PER", "O"]})
    assert by_sequence.truth.tolist() == [1, 2, 3, -1, -1]
    assert tags.with_truth({"t:3": "O"}).truth.tolist() == [-1, -1, -1, 3, -1]
    assert tags.with_truth(np.array([1, 2, 3, 3, 0])).truth.tolist() == [1, 2, 3, 3, 0]
    with pytest.raises(InputError, match="'s' has 3 tokens and 2 true tags"):
        tags.with_truth({"s": ["O", "O"]})
    with pytest.raises(InputError, match="None of the sequences"):
        tags.with_truth({"x": ["O", "O"]})


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ([("s", 0, "ann", "O")], DuplicateError, "tags token 's:0'"),
        ([("u", 0, "ann", "I-PER")], LabelError, "annotator 'ann' gives token 'u:0' the tag 'I-PER'"),
        ([("s", 3, "ann", "I-PER")], LabelError, "goes on with a span that is not there"),
        ([("u", 0, "ann", None)], LabelError, "no tag"),
        ([("u", "first", "ann", "O")], InputError, "position"),
        ([("u", 0, "ann")], InputError, "in row 8"),
    ],
)
def test_bad_rows_are_named(change, error, match):
    with pytest.raises(error, match=match):
        cw.Tags.from_records([*ROWS, *change])


def test_words_for_positions_are_told_apart():
    with pytest.raises(ColumnError, match="word='token'"):
        cw.Tags.from_frame({"sentence": [1], "token": ["Ann"], "annotator": ["a"], "tag": ["O"]})
    with pytest.raises(ColumnError, match="sequence"):
        cw.Tags.from_frame({"position": [1], "annotator": ["a"], "tag": ["O"]})
    with pytest.raises(InputError, match="different words"):
        clash = {"sequence": [1, 1], "position": [0, 0], "word": ["a", "b"], "annotator": [1, 2], "tag": ["O", "O"]}
        cw.Tags.from_frame(clash)


def test_policies():
    again = [*ROWS, ("s", 0, "ann", "O")]
    assert cw.Tags.from_records(again, on_duplicate="first").votes.label[0] == 1
    assert cw.Tags.from_records([*ROWS[1:2], ("s", 0, "ann", "O")], on_invalid="repair").votes.label.tolist() == [2, 0]
    kept = cw.Tags.from_records([("s", 0, "ann", "I-PER")], on_invalid="keep")
    assert kept.classes.tolist() == ["B-PER", "I-PER"]  # I-PER needs a beginning
    dropped = cw.Tags.from_records([*ROWS, ("t", 5, "ann", None)], on_missing="drop")
    assert dropped.n_tokens == 6 and dropped.n_answers == 8
    for name in ("on_duplicate", "on_missing", "on_invalid", "scheme"):
        with pytest.raises(ParameterError, match=f"{name}='all'"):
            cw.Tags.from_records(ROWS, **{name: "all"})
    with pytest.raises(LabelError, match="scheme='bio'"):
        cw.Tags.from_records([("s", 0, "a", "NOUN")], scheme="bio")
    assert cw.Tags.from_records([("s", 0, "a", "NOUN"), ("s", 1, "a", "O")]).scheme == "plain"


def test_a_tag_is_judged_only_by_the_one_before_it():
    """After a token that the annotator left out, anything may come."""
    assert cw.Tags.from_records([("s", 0, "a", "O"), ("s", 1, "b", "O"), ("s", 2, "a", "I-X")]).n_answers == 3


def test_what_bio_allows():
    classes = np.array(["B-x", "B-y", "I-x", "I-y", "O"], dtype=object)
    may = allowed(classes, "bio")
    assert may[0].tolist() == [True, True, False, False, True]
    assert may[1].tolist() == [True, True, True, False, True]  # after B-x
    assert may[4].tolist() == [True, True, False, True, True]  # after I-y
    assert may[5].tolist() == [True, True, False, False, True]  # after O
    assert allowed(classes, "plain").all()


def test_spans():
    classes = np.array(["B-x", "I-x", "B-y", "I-y", "O"], dtype=object)
    found = find_spans(np.array([0, 1, 1, 0, 3, 3, 4, 1, 1, 1, 4]), np.array([0, 8, 11]), classes, "bio")
    rows = list(
        zip(found.sequence.tolist(), found.start.tolist(), found.end.tolist(), found.type.tolist(), strict=True)
    )
    assert rows == [(0, 0, 3, "x"), (0, 3, 4, "x"), (0, 4, 6, "y"), (0, 7, 8, "x"), (1, 0, 2, "x")]
    with pytest.raises(LabelError, match="BIO"):
        find_spans(np.array([0]), np.array([0, 1]), classes, "plain")


def test_from_votes(tags):
    made = cw.Tags.from_votes(tags.votes, [0, 3, 5], sequences=["s", "t"], words=list("abcde"))
    assert made.position.tolist() == [0, 1, 2, 0, 1] and made.words.tolist() == list("abcde")
    with pytest.raises(InputError, match="starts must rise"):
        cw.Tags.from_votes(tags.votes, [0, 3, 3, 5])
    with pytest.raises(InputError, match="words has 2"):
        cw.Tags.from_votes(tags.votes, [0, 5], words=["a", "b"])


def test_long_files(tags, tmp_path):
    tags.to_frame().write_csv(tmp_path / "tags.csv")
    assert cw.read_tags(tmp_path / "tags.csv").to_frame().equals(tags.to_frame())
    tags.to_frame().rename({"tag": "what"}).write_parquet(tmp_path / "tags.parquet")
    assert cw.read_tags(tmp_path / "tags.parquet", tag="what").n_answers == 8
    with pytest.raises(ReadError, match="no file"):
        cw.read_tags(tmp_path / "lost.conll")


def test_conll_files(tmp_path):
    file = tmp_path / "crowd.conll"
    file.write_text("Ann B-PER ? B-PER\nslept O ? O\n\n-DOCSTART- O O O\n\n\nX ? O O\nY ? ? O\n", encoding="utf-8")
    tags = cw.read_tags(file, truth=-1, annotators=["ann", "bob"])
    assert tags.starts.tolist() == [0, 2, 4] and tags.words.tolist() == ["Ann", "slept", "X", "Y"]
    assert tags.annotators.tolist() == ["ann", "bob"] and tags.truth.tolist() == [0, 1, 1, 1]
    assert tags.to_frame()["tag"].to_list() == ["B-PER", "O", "O", None]
    assert cw.read_tags(file).votes.n_annotators == 3
    with pytest.raises(InputError, match="2 columns of annotators and 1 are named"):
        cw.read_tags(file, truth=-1, annotators=["ann"])
    with pytest.raises(ParameterError, match="truth=9"):
        cw.read_tags(file, truth=9)
    with pytest.raises(ParameterError, match="number of a column"):
        cw.read_tags(file, truth="gold")
    file.write_text("Ann B-PER\nslept O O\n", encoding="utf-8")
    with pytest.raises(ReadError, match=r"Line 2 of .* has 3 columns"):
        cw.read_tags(file)
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(ReadError, match="empty"):
        cw.read_tags(file)


def test_many_rows():
    T = 200_000
    frame = pl.DataFrame(
        {
            "sequence": np.arange(T) // 20,
            "position": np.arange(T) % 20,
            "annotator": np.arange(T) % 7,
            "tag": ["O", "B-X"] * (T // 2),
        }
    )
    tags = cw.Tags.from_frame(frame)
    assert (len(tags), tags.n_tokens) == (T // 20, T)
