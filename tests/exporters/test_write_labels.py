"""Consensus labels as files that annotation tools import."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import crowdwise as cw
from command_line import run
from conftest import need_module
from crowdwise.data.masks import mask_of
from crowdwise.errors import InputError, InputWarning, ParameterError
from crowdwise.exporters.write_labels import ARRAYS, WRITERS

ROWS = [("a", "ann", "cat"), ("a", "bob", "cat"), ("a", "cem", "dog"), ("b", "ann", "dog"), ("b", "bob", "dog")]
ITEMS = {"item": ["a", "b"], "text": ["A photo", "Ein Foto é"], "task_id": [7, 8]}


def written(tmp_path: Path, tool: str, result: object, **options: object) -> list[dict]:
    path = tmp_path / f"{tool}.json"
    assert cw.write_labels(result, path, tool, **options) == 2
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if tool in ARRAYS else [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def consensus() -> cw.Consensus:
    return cw.aggregate(cw.Votes.from_records(ROWS), "majority")


def test_label_studio(tmp_path: Path, consensus: cw.Consensus) -> None:
    first, _ = written(tmp_path, "label-studio", consensus, items=ITEMS, question="animal")
    assert first["id"] == 7 and first["data"] == {"text": "A photo", "id": "a"}
    (made,) = first["predictions"]
    assert made["score"] == pytest.approx(2 / 3, abs=1e-6) and made["model_version"] == "crowdwise majority"
    assert made["result"] == [
        {"from_name": "animal", "to_name": "text", "type": "choices", "value": {"choices": ["cat"]}}
    ]


def test_argilla_prodigy_doccano_and_datasets(tmp_path: Path, consensus: cw.Consensus) -> None:
    suggested = written(tmp_path, "argilla", consensus, items=ITEMS)[1]
    assert suggested["fields"] == {"text": "Ein Foto é"}
    assert suggested["suggestions"] == [
        {"question_name": "label", "value": "dog", "score": 1.0, "agent": "crowdwise majority"}
    ]
    task = written(tmp_path, "prodigy", consensus, items=ITEMS)[0]
    assert task["accept"] == ["cat"] and task["answer"] == "accept" and task["meta"]["id"] == "a"
    assert written(tmp_path, "doccano", consensus)[0] == {
        "id": "a", "text": "a", "label": ["cat"], "score": pytest.approx(2 / 3, abs=1e-6),
    }  # fmt: skip
    row = written(tmp_path, "huggingface", consensus, items=ITEMS)[0]
    assert row["label"] == "cat" and row["classes"] == ["cat", "dog"] and sum(row["soft_labels"]) == pytest.approx(1)


def test_items_that_do_not_match_are_said(tmp_path: Path, consensus: cw.Consensus) -> None:
    """A name must not stand for a text without a word."""
    with pytest.raises(InputError, match=r"None of the 2 items of the result .*: this names '1', the result 'a', 'b'"):
        cw.write_labels(consensus, tmp_path / "labels.jsonl", "doccano", items={"item": [1], "text": ["x"]})
    with pytest.warns(InputWarning, match="1 of 2 items are not in the table of items: 'b'"):
        rows = written(tmp_path, "doccano", consensus, items={"item": ["a"], "text": ["x"]})
    assert [row["text"] for row in rows] == ["x", "b"]
    with pytest.warns(InputWarning, match="The items have no 'body', and their names stand for it: there are 'text'"):
        written(tmp_path, "doccano", consensus, items=ITEMS, field="body")
    empty = written(tmp_path, "doccano", consensus, items={"item": ["a", "b"], "text": ["x", None]})
    assert empty[1]["text"] == "b"


def test_label_sets(tmp_path: Path) -> None:
    sets = cw.LabelSets.from_records([(n, m, ["x", "y"] if n else ["x"]) for n in range(2) for m in "abc"])
    result = cw.aggregate(sets)
    rows = written(tmp_path, "argilla", result, items={0: {"text": "zero"}, 1: {"text": "one"}})
    assert [row["suggestions"][0]["value"] for row in rows] == result.sets
    assert written(tmp_path, "prodigy", result)[0]["config"] == {"choice_style": "multiple"}


def test_what_cannot_be_written(tmp_path: Path, consensus: cw.Consensus) -> None:
    with pytest.raises(ParameterError, match="Unknown tool 'labelstudio'"):
        cw.write_labels(consensus, tmp_path / "a.json", "labelstudio")
    ratings = cw.Ratings.from_records([(1, "a", 1.5), (2, "a", 2.5), (1, "b", 1.0)])
    with pytest.raises(InputError, match="What was found in ratings cannot be written"):
        cw.write_labels(cw.aggregate(ratings, "mean"), tmp_path / "a.json", "doccano")
    tags = cw.Tags.from_records([("s", 0, "a", "B-X"), ("s", 0, "b", "B-X"), ("s", 1, "a", "O"), ("s", 1, "b", "O")])
    with pytest.raises(InputError, match="What was found in tags cannot be written"):
        cw.write_labels(cw.aggregate(tags), tmp_path / "a.json", "doccano")
    with pytest.raises(InputError, match="no item column"):
        cw.write_labels(consensus, tmp_path / "a.json", "doccano", items={"x": [1]})
    assert not list(tmp_path.iterdir())


def test_there_and_back_on_the_command_line(tmp_path: Path) -> None:
    """What is written for a tool is read again as an export of it, or as tasks with its predictions."""
    tasks = [
        {"id": n, "data": {"text": f"Text {n}"}, "predictions": [], "drafts": [], "project": 1, "annotations": [
            {"completed_by": m, "was_cancelled": False, "result": [
                {"from_name": "mood", "to_name": "text", "type": "choices", "value": {"choices": [label]}}]}
            for m, label in enumerate(labels)]}
        for n, labels in enumerate((["good", "good", "bad"], ["bad", "bad", "bad"]))
    ]  # fmt: skip
    (tmp_path / "project.json").write_text(json.dumps(tasks), encoding="utf-8")
    assert run("import", tmp_path / "project.json", "--out", tmp_path / "votes").returncode == 0
    assert run("aggregate", tmp_path / "votes", "--method", "majority", "--save", tmp_path / "r").returncode == 0
    for tool in WRITERS:
        out = tmp_path / f"{tool}.json"
        words = ["export", tmp_path / "r", "--to", tool, "--items", tmp_path / "votes", "--question", "mood"]
        done = run(*words, "--out", out)
        assert done.returncode == 0 and "labels of 2 items" in done.stderr
    made = json.loads((tmp_path / "label-studio.json").read_text(encoding="utf-8"))
    again = [{**task, **new, "predictions": new["predictions"]} for task, new in zip(tasks, made, strict=True)]
    (tmp_path / "again.json").write_text(json.dumps(again), encoding="utf-8")
    table = cw.read_export(tmp_path / "again.json", predictions=True).table("mood")
    model = table.only(["model:crowdwise majority"])
    assert model.classes[model.label].tolist() == ["good", "bad"]
    assert run("export", tmp_path / "r", "--to", "prodigy", "--out", tmp_path / "x.csv").returncode == 2


def test_a_dataset_with_soft_labels(consensus: cw.Consensus) -> None:
    need_module("datasets")
    found = cw.to_dataset(consensus, {"item": ["a", "b"], "text": ["A", "B"], "page": [3, None]}, question="animal")
    assert found.column_names == ["item", "text", "page", "animal", "probability", "soft_labels"]
    assert found.features["animal"].names == ["cat", "dog"]
    assert found[0]["animal"] == 0 and found[0]["page"] == 3
    assert found[0]["soft_labels"] == pytest.approx([2 / 3, 1 / 3], abs=1e-6)
    with pytest.raises(InputError, match="Two columns would be called soft_labels"):
        cw.to_dataset(consensus, {"a": {"soft_labels": 1}})


def test_a_dataset_of_label_sets_and_back() -> None:
    need_module("datasets")
    sets = cw.LabelSets.from_records([(n, m, ["x", "y"] if n else ["x"]) for n in range(2) for m in "abc"])
    found = cw.to_dataset(cw.aggregate(sets))
    assert found.features["label"].feature.names == ["x", "y"] and found[1]["label"] == [0, 1]


def test_coco(tmp_path: Path, consensus: cw.Consensus) -> None:
    path = tmp_path / "coco.json"
    assert cw.write_labels(consensus, path, "coco", items={"a": {"file": "a.jpg"}}, field="file") == 2
    found = json.loads(path.read_text())
    assert found["images"] == [
        {"id": 1, "file_name": "a.jpg", "item": "a"}, {"id": 2, "file_name": "b", "item": "b"},
    ]  # fmt: skip
    assert found["categories"] == [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    assert [(a["id"], a["image_id"], a["category_id"]) for a in found["annotations"]] == [(1, 1, 1), (2, 2, 2)]
    assert found["annotations"][0]["score"] == pytest.approx(2 / 3, abs=1e-6)
    numbered = cw.aggregate(cw.Votes.from_records([(7, "ann", "x"), (9, "bob", "y")]), "majority")
    cw.write_labels(numbered, path, "coco")
    assert [image["id"] for image in json.loads(path.read_text())["images"]] == [7, 9]


# -------------------------------------------------------------------- boxes, masks, spans, texts

SHAPES = Path(__file__).parents[1] / "exports" / "labelstudio"


@pytest.mark.parametrize("sample", ["boxes", "keypoints", "polygons", "brush", "textarea"])
def test_what_was_found_goes_back_to_label_studio_and_is_read_again(sample: str, tmp_path: Path) -> None:
    export = cw.read_export(SHAPES / f"{sample}.json")
    answers = export.table()
    simple = {"boxes": "box-majority", "masks": "mask-majority", "texts": "rover"}[answers.answer_type]
    result = cw.aggregate(answers, simple)
    (question,) = export.tables
    file = tmp_path / "back.json"
    cw.write_labels(result, file, "label-studio", items=export.item_table, question=question, field="image")
    tasks = json.loads(file.read_text(encoding="utf-8"))
    for n, task in enumerate(tasks, 1):  # as the tool writes them
        task |= {"annotations": [], "project": 1, "id": n}
    file.write_text(json.dumps(tasks), encoding="utf-8")
    again = cw.read_export(file, predictions=True).table()
    assert again.answer_type == answers.answer_type and again.annotators.tolist() == [f"model:crowdwise {simple}"]
    assert set(again.items.tolist()) <= set(answers.items.tolist())
    place = {name: n for n, name in enumerate(result.items.tolist())}
    for n, name in enumerate(again.items.tolist()):
        if answers.answer_type == "masks":
            assert (again.of_item(n)[0] == result.mask(place[name])).all()
        elif answers.answer_type == "texts":
            assert again.texts[again.text[n]] == result.texts[place[name]]
    if answers.answer_type == "boxes":
        centre = [(edges[:, :2] + edges[:, 2:]) / 2 for edges in (again.edges, result.boxes[result.accepted])]
        assert np.allclose(*(np.sort(one, axis=0) for one in centre), atol=0.01)


def test_coco_has_boxes_and_masks_with_their_probability(tmp_path: Path) -> None:
    crowd = cw.simulate.boxes(6, n_annotators=4, annotators_per_item=3, random_state=0)
    result = cw.aggregate(crowd.answers)
    cw.write_labels(result, tmp_path / "a.json", "coco")
    whole = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert len(whole["annotations"]) == int(result.accepted.sum()) and len(whole["images"]) == 6
    names = {kind["id"]: kind["name"] for kind in whole["categories"]}
    table = result.to_frame("objects", kind="dict")
    found = sorted((a["image_id"], names[a["category_id"]], a["bbox"][0], a["score"]) for a in whole["annotations"])
    rows = zip(table["item"], table["label"], table["x1"], table["probability"], strict=True)
    for one, two in zip(found, sorted(rows), strict=True):
        assert one[:2] == two[:2] and np.allclose(one[2:], two[2:], atol=1e-3)
    again = cw.read_export(tmp_path / "a.json").table()
    assert again.annotators.tolist() == [f"crowdwise {result.method}"] and len(again.items) == 6
    both = (again.edges[again.label >= 0], result.boxes[result.accepted])
    assert np.allclose(*(np.sort(edges, axis=0) for edges in both), atol=2e-3)
    drawn = cw.simulate.masks(3, size=32, random_state=0)
    consensus = cw.aggregate(drawn.answers, "mask-majority")
    cw.write_labels(consensus, tmp_path / "m.json", "coco")
    back = cw.read_export(tmp_path / "m.json").table("masks")
    assert all((back.of_item(n)[0] == consensus.mask(n)).all() for n in range(3))
    annotations = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))["annotations"]
    for n, one in enumerate(annotations):
        assert (mask_of(one["segmentation"], 32, 32, "it") == consensus.mask(n)).all()
        assert one["area"] == consensus.mask(n).sum()


def test_spans_for_doccano_prodigy_and_hugging_face(tmp_path: Path) -> None:
    text = "Ada Byron met Charles Babbage."
    rows = [("d", who, "PER", *place) for who in ("ann", "bob") for place in ((0, 9), (14, 29))]
    result = cw.aggregate(cw.Spans.from_records(rows).within({"d": text}), "span-majority")
    items = {"d": {"text": text}}

    def written(tool: str) -> dict[str, Any]:
        cw.write_labels(result, tmp_path / tool, tool, items=items)
        return json.loads((tmp_path / tool).read_text(encoding="utf-8"))

    assert written("doccano")["label"] == [[0, 9, "PER"], [14, 29, "PER"]]
    assert written("prodigy")["spans"][1] == {"start": 14, "end": 29, "label": "PER"}
    assert [one["span"] for one in written("huggingface")["regions"]] == [[0, 9], [14, 29]]
    cw.write_labels(result, tmp_path / "ls.json", "label-studio", items=items)
    task = json.loads((tmp_path / "ls.json").read_text(encoding="utf-8"))[0]
    assert task["predictions"][0]["result"][1]["value"]["text"] == "Charles Babbage"
    with pytest.raises(ParameterError, match="argilla has no form for"):
        cw.write_labels(result, tmp_path / "a.json", "argilla", items=items)
    boxes = cw.aggregate(cw.Boxes.from_records([("i", m, "cat", 0, 0, 5, 5) for m in "ab"]), "box-majority")
    with pytest.raises(InputError, match="Add columns width and height"):
        cw.write_labels(boxes, tmp_path / "b.json", "label-studio")


def test_boxes_points_and_masks_come_back_from_cvat_and_labelme(tmp_path: Path) -> None:
    crowd = cw.simulate.boxes(6, n_annotators=4, annotators_per_item=3, random_state=0)
    drawn = cw.simulate.masks(3, size=32, random_state=0)
    clicks = [{"item": "p.png", "annotator": m, "label": "cell", "x": 10.5, "y": 20.0} for m in "ab"]
    for tool, name in (("cvat", "back.xml"), ("labelme", "back.zip")):
        result = cw.aggregate(crowd.answers, "box-majority")
        assert cw.write_labels(result, tmp_path / name, tool) == 6
        again = cw.read_export(tmp_path / name).table("boxes")
        assert len(again.items) == 6 and len(again.annotators) == 1
        known = result.to_frame("objects", kind="dict")
        rows = zip(
            map(str, known["item"]), known["label"], *(known[e].round(3) for e in ("x1", "y1", "x2", "y2")), strict=True
        )
        back = again.label >= 0
        found = zip(
            map(str, again.items[again.item[back]]), again.classes[again.label[back]], *again.edges[back].T, strict=True
        )
        for one, two in zip(sorted(rows), sorted(found), strict=True):
            assert one[:2] == two[:2] and np.allclose(one[2:], two[2:])
        cw.write_labels(cw.aggregate(cw.Boxes.from_records(clicks), "box-majority"), tmp_path / name, tool)
        points = cw.read_export(tmp_path / name).table("points")
        assert points.point_size > 0 and ((points.edges[0, :2] + points.edges[0, 2:]) / 2).tolist() == [10.5, 20.0]
    cw.write_labels(cw.aggregate(cw.Boxes.from_records(clicks), "box-majority"), tmp_path / "points.json", "coco")
    points = cw.read_export(tmp_path / "points.json")
    assert points.table().classes.tolist() == ["cell"] and not points.left_out  # a key point, in a box of no size
    assert ((points.table().edges[0, :2] + points.table().edges[0, 2:]) / 2).tolist() == [10.5, 20.0]
    masks = cw.aggregate(drawn.answers, "mask-majority")
    cw.write_labels(masks, tmp_path / "masks.xml", "cvat")
    meta = ElementTree.parse(tmp_path / "masks.xml").getroot()
    assert [one.text for one in meta.iterfind("meta/task/labels/label/name")] == ["object"]
    again = cw.read_export(tmp_path / "masks.xml").table("masks")
    assert [(again.of_item(n)[0] == masks.mask(n)).all() for n in range(3)] == [True] * 3
    with pytest.raises(ParameterError, match="labelme has no form for 'mask'"):
        cw.write_labels(masks, tmp_path / "masks.zip", "labelme")
    votes = cw.aggregate(cw.Votes.from_records([("a", "x", "cat"), ("b", "y", "dog")]), "majority")
    with pytest.raises(ParameterError, match="not labels of items"):
        cw.write_labels(votes, tmp_path / "labels.xml", "cvat")


def test_what_is_written_has_the_form_of_what_the_tools_export(tmp_path: Path) -> None:
    """Elements and attributes of CVAT, and lines of brat, are among those of the samples."""
    boxes = cw.aggregate(cw.Boxes.from_records([("i.png", m, "cat", 0, 0, 5, 5) for m in "ab"]), "box-majority")
    exports = SHAPES.parent
    about = {"i.png": {"width": 9, "height": 9, "text": "i.png"}}
    cw.write_labels(boxes, tmp_path / "a.xml", "cvat", items=about)
    found, sample = (ElementTree.parse(file).getroot() for file in (tmp_path / "a.xml", exports / "cvat_job_1.xml"))
    for path in (".", "version", "meta/job/assignee/username", "image", "image/box"):
        one, other = found.find(path), sample.find(path)
        assert one is not None and other is not None and set(one.keys()) <= set(other.keys()), path
    spans = cw.aggregate(cw.Spans.from_records([("doc-1", m, "PER", 0, 4) for m in "ab"]), "span-majority")
    cw.write_labels(spans, tmp_path / "a.zip", "brat", items={"doc-1": {"text": "Anna saw Paris."}})
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        line = archive.read("crowdwise/doc-1.ann").decode()
    assert line in (exports / "brat" / "ann" / "doc-1.ann").read_text(encoding="utf-8")


def test_regions_that_are_not_on_their_item_are_errors(tmp_path: Path) -> None:
    spans = cw.aggregate(cw.Spans.from_records([("d", m, "PER", 0, 9) for m in "ab"]))
    for tool in ("label-studio", "doccano", "prodigy", "brat"):
        for items in (None, {"d": {"text": "Anna"}}):
            with pytest.raises(InputError, match="A span of item 'd' ends at 9"):
                cw.write_labels(spans, tmp_path / "a", tool, items=items)

    def written(x: float, width: Any = 640) -> int:
        boxes = cw.aggregate(cw.Boxes.from_records([(1, m, "cat", 0.0, 0.0, x, x) for m in "ab"]), "box-majority")
        return cw.write_labels(boxes, tmp_path / "a", "label-studio", items={"1": {"width": width, "height": 480}})

    assert written(500.0) == written(500.0, "640") == 1
    with pytest.raises(InputError, match="is outside of its image of 640 x 480 pixels"):
        written(3000.0)
    with pytest.raises(InputError, match="lie between 0 and 1, as shares of the image do"):
        written(0.5)
    for unknown in (0, None, float("nan"), "wide"):
        with pytest.raises(InputError, match="the size of item 1 is not known"):
            written(500.0, unknown)


def test_spans_come_back_from_brat(tmp_path: Path) -> None:
    texts = {"one": "Ada Byron met Charles Babbage.", "two": "Nobody."}
    rows = [("one", m, "PER", *place) for m in "ab" for place in ((0, 3), (0, 9), (14, 29))]
    table = cw.Spans.from_records([*rows, *(("two", m, None, None, None) for m in "ab")]).within(texts)
    result = cw.aggregate(table)
    assert len(result.chosen) == 3
    items = {name: {"text": text} for name, text in texts.items()}
    assert cw.write_labels(result, tmp_path / "back.zip", "brat", items=items) == 2
    export = cw.read_export(tmp_path / "back.zip")
    again = cw.aggregate(export.table(), "span-majority")
    assert dict(zip(again.items.tolist(), again.spans(), strict=True))["one"] == [
        ("PER", 0, 3),
        ("PER", 0, 9),
        ("PER", 14, 29),
    ]
    text = "Anna  Lee\nsaw\t\u05e9\u05dc\u05d5\u05dd in\r\n\r\nParis."  # words as they are, without line breaks
    marks = [("d", m, "PER x", 0, 13) for m in "ab"] + [("d", m, "LOC", 19, 30) for m in "ab"]
    cw.write_labels(cw.aggregate(cw.Spans.from_records(marks)), tmp_path / "d.zip", "brat", items={"d": {"text": text}})
    with zipfile.ZipFile(tmp_path / "d.zip") as archive:
        lines = archive.read("crowdwise/d.ann").decode().splitlines()
    assert lines == ["T1\tPER_x 0 9;10 13\tAnna  Lee saw", "T2\tLOC 19 21;25 30\tin Paris"]
    assert cw.read_export(tmp_path / "d.zip").table().to_frame("dict")["tag"].tolist() == [
        "B-PER_x", "I-PER_x", "I-PER_x", "O", "B-LOC", "I-LOC", "O",
    ]  # fmt: skip
    with pytest.raises(InputError, match="A span of item 'one' ends at 9, and 'one' is shorter"):
        cw.write_labels(result, tmp_path / "no.zip", "brat")
    odd = cw.aggregate(cw.Spans.from_records([("a/b long name", m, "PER", 0, 4) for m in "ab"]))
    with pytest.raises(InputError, match="cannot be one"):
        cw.write_labels(odd, tmp_path / "no.zip", "brat")
    assert not (tmp_path / "no.zip").exists()
