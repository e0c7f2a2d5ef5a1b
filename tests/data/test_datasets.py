"""A folder of files reads as one thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import NO_DATA
from crowdwise.data.dataset import Dataset, find_table, read_dataset
from crowdwise.errors import ColumnError, DuplicateError, LabelError, ReadError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with every piece."""
    path = tmp_path / "pets"
    path.mkdir()
    (path / "labels.csv").write_text("task,worker,label\na,ann,cat\na,bob,dog\nb,ann,dog\n")
    (path / "truth.csv").write_text("task,truth\na,dog\nc,cat\n")
    (path / "texts.csv").write_text('task,text\na,"a cat, or\na dog"\nb,woof\n')
    (path / "workers.csv").write_text("worker\nann\nbob\n")
    (path / "meta.json").write_text(json.dumps({"name": "pets", "kind": "categorical"}))
    np.savez(path / "features.npz", x_train=np.eye(2), x_test=np.zeros((3, 2)))
    return path


def test_every_piece(folder: Path):
    data = read_dataset(folder)
    assert isinstance(data, Dataset) and data.name == "pets" and data.meta["kind"] == "categorical"
    assert data.votes.n_votes == 3 and data.votes.truth.tolist() == [1, -1]
    assert sorted(data.features) == ["x_test", "x_train"] and data.features["x_train"].tolist() == np.eye(2).tolist()
    assert data.item_table.columns == ["task", "text"] and data.item_table["text"][0] == "a cat, or\na dog"
    assert data.annotator_table["worker"].to_list() == ["ann", "bob"]
    assert "pets" in repr(data) and "x_train" not in repr(data)


def test_votes_alone_are_enough(folder: Path):
    for name in ("truth.csv", "texts.csv", "workers.csv", "meta.json", "features.npz"):
        (folder / name).unlink()
    data = read_dataset(str(folder))
    assert (
        data.votes.truth is None
        and data.features == {}
        and data.item_table is None
        and data.annotator_table is None
        and data.meta == {}
    )


def test_options_reach_the_votes(folder: Path):
    assert read_dataset(folder, classes=["fish", "dog", "cat"]).votes.classes.tolist() == ["fish", "dog", "cat"]
    (folder / "labels.csv").write_text("task,worker,label\na,ann,cat\na,ann,dog\n")
    with pytest.raises(DuplicateError, match="annotator 'ann' labels item 'a' in lines 2 and 3"):
        read_dataset(folder)
    assert read_dataset(folder, on_duplicate="all").votes.n_votes == 2


def test_other_names_and_formats(folder: Path):
    table = pl.read_csv(folder / "labels.csv")
    (folder / "labels.csv").unlink()
    (folder / "truth.csv").unlink()
    table.write_parquet(folder / "votes.parquet")
    (folder / "gold.jsonl").write_text('{"item": "b", "label": "cat"}\n')
    assert find_table(folder, "votes") == folder / "votes.parquet"
    assert read_dataset(folder).votes.truth.tolist() == [-1, 0]


def test_a_truth_column_goes_before_the_truth_file(folder: Path):
    (folder / "labels.csv").write_text("task,worker,label,truth\na,ann,cat,cat\nb,ann,dog,dog\n")
    assert read_dataset(folder).votes.truth.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "kind", "words"),
    [
        ("meta.json", b"{not json", ReadError, ["meta.json could not be read as JSON"]),
        ("meta.json", b"\xff\xfe\x00", ReadError, ["meta.json could not be read as JSON"]),
        ("meta.json", b"[1, 2]", ReadError, ["meta.json holds a list", "JSON object"]),
        ("features.npz", b"garbage", ReadError, ["features.npz could not be read as a numpy archive", "np.savez"]),
        ("features.npz", b"", ReadError, ["features.npz could not be read"]),
        ("features.npz", b"PK\x03\x04 cut short", ReadError, ["features.npz could not be read"]),
        ("labels.csv", b"", ReadError, ["labels.csv is empty"]),
        ("labels.csv", b"task,label\n1,2\n", ColumnError, ["No column found for: annotator"]),
        ("truth.csv", b"task\na\n", ColumnError, ["A truth table needs an item column"]),
        ("truth.csv", b"task,truth\na,zebra\n", LabelError, ["'zebra'", "classes=[...]"]),
        ("texts.csv", b"\xff\xfe\x00", ReadError, ["texts.csv", "text in utf-16"]),
        ("workers.csv", b"", ReadError, ["workers.csv is empty"]),
    ],
)
def test_broken_pieces_are_named(folder: Path, name: str, content: bytes, kind: type[Exception], words: list[str]):
    (folder / name).write_bytes(content)
    with pytest.raises(kind) as caught:
        read_dataset(folder)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_features_that_are_no_archive_of_arrays(folder: Path):
    with (folder / "features.npz").open("wb") as file:
        np.save(file, np.eye(2))
    with pytest.raises(ReadError, match=r"features\.npz could not be read as a numpy archive"):
        read_dataset(folder)
    np.savez(folder / "features.npz", x=np.array([{"an": "object"}], dtype=object))
    with pytest.raises(ReadError, match="without objects"):
        read_dataset(folder)


def test_no_folder_no_votes(folder: Path, tmp_path: Path):
    with pytest.raises(ReadError, match="There is no folder"):
        read_dataset(tmp_path / "nowhere")
    with pytest.raises(ReadError, match="is a file: use read_votes"):
        read_dataset(folder / "labels.csv")
    (folder / "labels.csv").unlink()
    with pytest.raises(
        ReadError, match=r"has no table of votes: expected labels\.csv .* found features\.npz, meta\.json"
    ):
        read_dataset(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReadError, match="found nothing"):
        read_dataset(tmp_path / "empty")


# -------------------------------------------------------------------- real data


@pytest.fixture(scope="module")
def categorical(real_data: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The real data sets that hold class labels in ``labels.csv``, each with its facts."""
    metas = [
        (file.parent, json.loads(file.read_text(encoding="utf-8"))) for file in sorted(real_data.glob("*/meta.json"))
    ]
    found = [
        (folder, meta["stats"])
        for folder, meta in metas
        if meta["kind"] == "categorical" and (folder / "labels.csv").is_file()
    ]
    if not found:
        pytest.skip(f"{NO_DATA}: no categorical data sets in {real_data}")
    return found


@pytest.mark.slow
def test_real_data_has_the_documented_size(categorical: list[tuple[Path, dict[str, Any]]]):
    for folder, stats in categorical:
        data = read_dataset(folder, on_duplicate="all")
        found = (len(data.votes), data.votes.n_annotators, data.votes.n_votes)
        assert found == (stats["n_tasks"], stats["n_workers"], stats["n_labels"]), folder.name
        assert (data.votes.truth is not None) == bool(stats["n_truth"]), folder.name
        np.testing.assert_allclose(data.votes.shares().sum(axis=1), 1.0)


@pytest.mark.slow
def test_real_duplicates_are_found(categorical: list[tuple[Path, dict[str, Any]]]):
    for folder, stats in categorical:
        if "duplicate_task_worker" not in stats:  # not counted where the set comes from
            continue
        twice = stats["duplicate_task_worker"]
        if twice:
            with pytest.raises(DuplicateError, match=f"{twice:,} duplicated vote"):
                read_dataset(folder)
            first, everything = (read_dataset(folder, on_duplicate=rule).votes for rule in ("first", "all"))
            assert everything.n_votes - first.n_votes == twice, folder.name
        else:
            assert read_dataset(folder).votes.n_votes == stats["n_labels"], folder.name


def test_classes_listed_in_meta_are_declared_where_they_are_the_labels_own(tmp_path: Path):
    (tmp_path / "labels.csv").write_text("task,worker,label\n1,a,x\n1,b,y\n")
    (tmp_path / "truth.csv").write_text("task,label\n1,z\n")
    (tmp_path / "meta.json").write_text('{"classes": ["z", "y", "x"]}')
    votes = read_dataset(tmp_path).votes
    assert votes.classes.tolist() == ["z", "y", "x"]
    assert votes.truth is not None and votes.truth.tolist() == [0]
    assert votes.to_frame("dict")["label"].tolist() == ["x", "y"]
    (tmp_path / "labels.csv").write_text("task,worker,label\n1,a,0\n1,b,1\n")
    (tmp_path / "truth.csv").unlink()
    assert read_dataset(tmp_path).votes.classes.tolist() == [0, 1]  # a legend to the codes, not their names
    assert read_dataset(tmp_path, classes=["1", "0", "2"]).votes.classes.tolist() == [1, 0, 2]


# -------------------------------------------------------------------- texts, attributes, pictures


def test_texts_and_attributes_come_from_the_table_of_items(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("task,worker,label\n" + "".join(f"{n},ann,{n % 2}\n" for n in range(6)))
    rows = "".join(
        f'{n},"text {n}",more {n},x{n}9,{"ab"[n % 2]},{n % 3},{"train" if n else "test"},1\n' for n in range(7)
    )
    (tmp_path / "items.csv").write_text(f"task,text,hypothesis,comment_id,topic,length,split,hard_label\n{rows}")
    found = read_dataset(tmp_path)
    assert found.texts == {n: f"text {n} · more {n}" for n in range(6)}  # the seventh has no votes
    assert found.attributes == {
        "topic": {n: "ab"[n % 2] for n in range(6)},
        "length": {n: str(n % 3) for n in range(6)},
    }


def test_without_a_table_of_items_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("task,worker,label\na,ann,cat\n")
    found = read_dataset(tmp_path)
    assert (found.texts, found.attributes, found.images) == ({}, {}, {})


def test_pictures_are_found_by_the_names_of_items(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("task,worker,label\n7,ann,cat\n8,ann,dog\n9,ann,dog\n")
    (tmp_path / "images" / "deeper").mkdir(parents=True)
    for name in ("7.png", "deeper/8.JPG", "10.png", "9.txt"):
        (tmp_path / "images" / name).write_bytes(b"")
    assert {item: file.name for item, file in read_dataset(tmp_path).images.items()} == {7: "7.png", 8: "8.JPG"}
