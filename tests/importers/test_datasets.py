"""Hugging Face datasets, loaded or as JSON lines: columns of lists, classes by name, and out again with soft labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import crowdwise as cw
from conftest import need_module
from crowdwise.errors import InputError, ReadError

ROWS = [
    {"id": "x", "text": "good", "worker_ids": ["ann", "bob"], "labels": [1, 1], "stars": [4.5, 5.0],
     "topics": [[0], [0, 1]]},
    {"id": "y", "text": "bad", "worker_ids": ["ann", "cem"], "labels": [0, 1], "stars": [1.0, 2.0],
     "topics": [[1], []]},
]  # fmt: skip


@pytest.fixture(scope="module")
def hf() -> Any:
    return need_module("datasets")


@pytest.fixture(scope="module")
def dataset(hf: Any) -> Any:
    many = getattr(hf, "List", hf.Sequence)
    names, text = hf.ClassLabel(names=["neg", "pos"]), hf.Value("string")
    features = hf.Features({
        "id": text, "text": text, "worker_ids": many(text), "labels": many(names), "stars": many(hf.Value("float32")),
        "topics": many(many(hf.ClassLabel(names=["film", "book"]))),
    })  # fmt: skip
    return hf.Dataset.from_list(ROWS, features=features)


def test_columns_of_lists(dataset: Any) -> None:
    found = cw.read_export(dataset)
    assert found.tool == "huggingface"
    assert {name: table.answer_type for name, table in found.tables.items()} == {
        "labels": "votes", "stars": "ratings", "topics": "label-sets",
    }  # fmt: skip
    rows = found.answers["labels"].rows()
    assert [row[:3] for row in rows] == [
        ("x", "ann", "pos"),
        ("x", "bob", "pos"),
        ("y", "ann", "neg"),
        ("y", "cem", "pos"),
    ]
    assert found.answers["topics"]["labels"].to_list() == [["film"], ["film", "book"], ["book"], []]
    assert found.item_table.rows() == [("x", "good"), ("y", "bad")]


def test_a_format_does_not_matter(dataset: Any) -> None:
    assert cw.read_export(dataset.with_format("numpy")).table("labels").n_votes == 4


def test_the_same_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    found = cw.read_export(path)
    assert found.tool == "huggingface" and found.table("labels").classes.tolist() == [0, 1]


def test_lists_of_objects_and_gold(hf: Any) -> None:
    rows = [
        {"annotations": [{"annotator": "ann", "label": "a"}, {"annotator": "bob", "label": "b"}], "gold": "a"},
        {"annotations": [{"annotator": "ann", "label": "b"}, {"annotator": "bob", "label": None}], "gold": "b"},
    ]
    found = cw.read_export(hf.Dataset.from_list(rows))
    votes = found.table()
    assert votes.n_votes == 3 and votes.items.tolist() == [0, 1] and votes.truth.tolist() == [0, 1]
    assert found.left_out == {"without an answer": 1}


def test_one_answer_in_a_row(hf: Any) -> None:
    rows = [{"item": n, "worker": w, "label": w == "ann", "text": f"t{n}"} for n in range(2) for w in ("ann", "bob")]
    found = cw.read_export(hf.Dataset.from_list(rows))
    assert found.table().n_votes == 4 and found.item_table["text"].to_list() == ["t0", "t1"]


def test_rows_of_another_tool_are_recognised(hf: Any) -> None:
    said = {"conversation_a": [{"role": "user"}], "conversation_b": [{"role": "user"}]}
    rows = [{"question_id": 1, "model_a": "x", "model_b": "y", "winner": "model_a", "judge": "expert_0", **said}]
    assert cw.read_export(hf.Dataset.from_list(rows)).tool == "arena"


def test_what_cannot_be_read_is_said(hf: Any, dataset: Any) -> None:
    with pytest.raises(InputError, match="choose one of 'train', 'test'"):
        cw.read_export(hf.DatasetDict({"train": dataset, "test": dataset}))
    with pytest.raises(InputError, match="do not say who gave them"):
        cw.read_export(hf.Dataset.from_list([{"id": 1, "labels": [0, 1]}]))
    with pytest.raises((InputError, ReadError), match="without any answers"):
        cw.read_export(hf.Dataset.from_list([]))
