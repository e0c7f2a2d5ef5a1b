"""What is particular to single tools, in the smallest exports that show it."""

from __future__ import annotations

import base64
import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import conftest
import crowdwise as cw
from crowdwise.errors import InternalError, ReadError
from crowdwise.importers import export_files
from crowdwise.importers.collect import bio, overlap, placed, seconds, tokens_of

QUESTIONS = ("mood", "topics", "age")


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def test_labelbox(tmp_path: Path) -> None:
    def label(who: str, answers: list[dict[str, Any]], kind: str = "Default") -> dict[str, Any]:
        return {
            "label_kind": kind, "label_details": {"created_by": who, "created_at": "2026-01-01T00:00:00Z"},
            "performance_details": {"seconds_to_create": 4},
            "annotations": {"objects": [], "classifications": answers},
        }  # fmt: skip

    radio = [{"name": "mood", "radio_answer": {"name": "good"}}, {"name": "why", "text_answer": {"content": "x"}}]
    checks = [{"name": "topics", "checklist_answers": [{"name": "a"}, {"name": "b"}]}]
    rows = [
        {"data_row": {"id": "x", "global_key": "k1"}, "projects": {"p": {"labels": [
            label("ann", radio + checks), label("bob", radio), label("lead", radio, "Benchmark"),
        ]}}},
    ]  # fmt: skip
    found = cw.read_export(lines(tmp_path / "a.ndjson", rows))
    assert found.tool == "labelbox" and found.table("mood").truth.tolist() == [0]
    assert found.table("mood").annotators.tolist() == ["ann", "bob"] and found.alone == {"why": "1 texts"}
    assert found.table("why").answer_type == "texts" and found.table("why").n_answers == 2
    assert found.table("topics").labels.tolist() == ["a", "b"]
    assert found.answers["mood"]["duration"].to_list() == [4.0, 4.0]


def test_labels_without_shapes_say_that_nothing_is_there(tmp_path: Path) -> None:
    drawn = [{"name": "cat", "bounding_box": {"left": 1, "top": 2, "width": 3, "height": 4}}]

    def label(who: str, objects: list[dict[str, Any]], kind: str = "Default") -> dict[str, Any]:
        return {"label_kind": kind, "label_details": {"created_by": who}, "annotations": {"objects": objects}}

    made = [label("ann", drawn), label("bob", []), label("lead", drawn, "Benchmark")]
    rows = [{"data_row": {"id": "x"}, "projects": {"p": {"labels": made}}}]
    found = cw.read_export(lines(tmp_path / "a.ndjson", rows))
    assert found.table().annotators.tolist() == ["ann", "bob"] and found.table().label.tolist() == [0, -1]
    assert found.left_out == {"shapes of benchmarks": 1}
    box_ = {"type": "bbox", "className": "cat", "points": {"x1": 1, "y1": 2, "x2": 4, "y2": 6}}
    items = [
        {"metadata": {"name": name, "annotatorEmail": who, "status": status}, "instances": some}
        for name, who, status, some in (
            ("i", "ann", "Completed", [box_]), ("j", "ann", "Completed", []), ("k", "ann", "NotStarted", []),
        )
    ]  # fmt: skip
    (tmp_path / "annotations.json").write_text(json.dumps(items), encoding="utf-8")
    boxes = cw.read_export(tmp_path / "annotations.json").table()
    assert boxes.items.tolist() == ["i", "j"] and boxes.label.tolist() == [0, -1]


def test_mechanical_turk_forms(tmp_path: Path) -> None:
    head = {"HITId": "h", "AssignmentId": "a", "AssignmentStatus": "Approved", "WorkTimeInSeconds": "7"}
    form = json.dumps([{"mood": {"label": "good"}, "topics": {"a": True, "b": False}, "age": "31"}])
    rows = [
        {**head, "WorkerId": "W1", "Input.text": "t1", "Answer.taskAnswers": form},
        {**head, "WorkerId": "W2", "Input.text": "t1", "Answer.taskAnswers": form},
        {**head, "WorkerId": "W3", "Input.text": "t1", "Answer.taskAnswers": form, "AssignmentStatus": "Rejected"},
    ]
    found = cw.read_export(table(tmp_path / "a.csv", rows))
    assert {name: t.answer_type for name, t in found.tables.items()} == dict.fromkeys(
        ("mood", "topics", "age"), "votes"
    )
    assert found.left_out == {"rejected": 1} and found.table("mood").items.tolist() == ["t1"]
    ticked = [
        {**head, "WorkerId": f"W{n}", "Input.id": "1", "Answer.topic.a": "true", "Answer.topic.b": str(n == 1).lower()}
        for n in range(2)
    ]
    assert cw.read_export(table(tmp_path / "b.csv", ticked)).table("topic").answer_type == "label-sets"


def test_zooniverse(tmp_path: Path) -> None:
    def row(who: str, value: Any, seen: bool = False) -> dict[str, Any]:
        meta = {
            "started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:09Z",
            "subject_selection_state": {"already_seen": seen},
        }  # fmt: skip
        said = [{"task": "T0", "task_label": "What?", "value": value}]
        return {
            "classification_id": 1, "user_name": who, "workflow_id": 7, "workflow_name": "w", "created_at":
            "2026-01-01 00:00:10 UTC", "metadata": json.dumps(meta), "annotations": json.dumps(said), "subject_ids": 44,
        }  # fmt: skip

    rows = [row("ann", "Yes"), row("not-logged-in-1", "No"), row("ann", "No", seen=True), row("cem", [{"x": 1}])]
    found = cw.read_export(table(tmp_path / "a.csv", rows))
    assert found.tool == "zooniverse" and found.table().n_votes == 2 and found.alone == {"T0": "1 drawings"}
    assert found.left_out == {"seen before by the same volunteer": 1}
    assert found.answers["T0"]["duration"].to_list() == [9.0, 9.0]


def test_marks_of_zooniverse(tmp_path: Path) -> None:
    def row(who: str, subject: int, *marks: dict[str, Any]) -> dict[str, Any]:
        said = json.dumps([{"task": "T0", "value": list(marks)}])
        base = {"classification_id": 1, "user_name": who, "workflow_id": 7, "workflow_name": "w", "metadata": "{}"}
        return base | {"created_at": "2026-01-01 00:00:10 UTC", "annotations": said, "subject_ids": subject}

    square = {"x": 0, "y": 1, "width": 4, "height": 2, "tool_label": "cat"}
    rows = [
        row("ann", 1, {"x1": 0, "y1": 0, "x2": 3, "y2": 3}), row("bob", 2),
        row("ann", 2, {**square, "frame": 1}, square),
        row("bob", 1, {**square, "angle": 90}, {"x": 5, "y": 5, "r": 3}), row("cem", 1),
    ]  # fmt: skip
    found = cw.read_export(table(tmp_path / "a.csv", rows))
    boxes = found.table().to_frame("dict")
    rows_ = zip(boxes["item"], boxes["annotator"], boxes["label"], boxes["x1"].round(6), strict=True)
    drawn = sorted((str(item), who, x) for item, who, label, x in rows_ if label)
    assert drawn == [("1", "bob", 1.0), ("2 (frame 1)", "ann", 0.0), ("2 (frame 2)", "ann", 0.0)]
    assert len(boxes["item"]) == 3 + 2 + 2  # ann and cem drew nothing on 1, bob on both frames of 2
    assert found.alone == {"T0": "2 drawings"} and not found.left_out and "turned" in found.notes[0]


def test_argilla_nested(tmp_path: Path) -> None:
    def said(value: Any, status: str = "submitted", who: str = "u1") -> dict[str, Any]:
        return {"value": value, "user_id": who, "status": status}

    ranked = [{"value": "b", "rank": 2}, {"value": "a", "rank": 1}]
    spans = [{"start": 0, "end": 4, "label": "PER"}]
    record = {
        "id": "r1", "fields": {"text": "Anna saw Paris."},
        "responses": {
            "mood": [said("good"), said("bad", "draft", "u2"), said("bad", "discarded", "u3")], "stars": [said(4)],
            "order": [said(ranked)], "ner": [said(spans)], "topics": [said(["x", "y"])],
        },
        "suggestions": {"mood": {"value": "good", "agent": "m1"}},
    }  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps([record]), encoding="utf-8")
    found = cw.read_export(tmp_path / "a.json")
    kinds = {name: t.answer_type for name, t in found.tables.items()}
    assert kinds == {
        "mood": "votes", "stars": "ratings", "order": "rankings", "ner": "tags", "topics": "label-sets",
    }  # fmt: skip
    assert found.left_out == {"draft responses": 1, "discarded responses": 1, "suggestions of models": 1}
    assert cw.read_export(tmp_path / "a.json", predictions=True).table("mood").annotators.tolist() == ["u1", "model:m1"]


def test_a_folder_of_jobs_and_xml_that_could_harm(tmp_path: Path) -> None:
    job = (
        "<annotations><version>1.1</version><meta><job><assignee><username>{}</username></assignee></job></meta>"
        '<image id="0" name="a.jpg"><tag label="{}" source="manual"/><tag label="x" source="auto"/>'
        '<box label="y" source="manual" xtl="1" ytl="2" xbr="9" ybr="9"/><polyline label="l"/></image></annotations>'
    )
    for who, label in (("ann", "cat"), ("bob", "dog")):
        (tmp_path / f"{who}.xml").write_text(job.format(who, label), encoding="utf-8")
    found = cw.read_export(tmp_path)
    assert found.table("tag").annotators.tolist() == ["ann", "bob"] and found.alone == {"shapes": "2 lines"}
    assert found.table("boxes").edges.tolist() == [[1, 2, 9, 9]] * 2
    assert found.left_out == {"made automatically": 2}
    (tmp_path / "ann.xml").write_text('<!DOCTYPE x [<!ENTITY a "b">]>' + job.format("ann", "&a;"), encoding="utf-8")
    with pytest.raises(ReadError, match="declares a document type"):
        cw.read_export(tmp_path, "cvat")


def test_participants_whom_prolific_rejected(tmp_path: Path) -> None:
    head = ["StartDate", "EndDate", "Status", "Finished", "RecordedDate", "ResponseId", "1_Q1", "2_Q1", "PROLIFIC_PID"]
    rows = [head, ["w"] * 6 + ["First?", "Second?", "w"], ['{"ImportId":"x"}'] * 9]
    for n, finished in enumerate(("True", "True", "False")):
        day = "2026-01-01 10:00:00"
        rows.append([day, day, "IP Address", finished, day, f"R_{n}", "yes", "no", f"p{n}"])
    with (tmp_path / "survey.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    found = cw.read_export(tmp_path / "survey.csv")
    assert found.table("Q1").n_votes == 4 and found.item_table["text"].to_list() == ["First?", "Second?"]
    people = [{"Submission id": n, "Participant id": f"p{n}", "Status": s, "Age": 30 + n} for n, s in enumerate(
        ("APPROVED", "REJECTED", "APPROVED"))]  # fmt: skip
    table(tmp_path / "people.csv", people)
    both = cw.read_export(tmp_path)
    assert both.table("Q1").annotators.tolist() == ["p0"] and both.annotator_table["Age"].to_list() == [
        "30",
        "31",
        "32",
    ]
    assert both.left_out["responses of participants who were rejected"] == 1


def test_both_orders_of_a_pair_are_two_answers(tmp_path: Path) -> None:
    talk = {"conversation_a": [], "conversation_b": [], "judge": "gpt4_pair", "question_id": 81, "turn": 1}
    rows = [
        {**talk, "model_a": "x", "model_b": "y", "winner": "model_a"},
        {**talk, "model_a": "y", "model_b": "x", "winner": "model_a"},
        {**talk, "model_a": "x", "model_b": "z", "winner": "tie (bothbad)"},
        {**talk, "model_a": "x", "model_b": "z", "winner": "model_b", "anony": False},
        {**talk, "model_a": "x", "model_b": "x", "winner": "model_b"},
    ]
    found = cw.read_export(lines(tmp_path / "a.jsonl", rows))
    assert found.table().n_answers == 3
    assert found.left_out == {"not anonymous": 1, "without two items to compare": 1}


def test_curated_documents_are_the_truth(tmp_path: Path) -> None:
    head = "#FORMAT=WebAnno TSV 3.3\n#T_SP=webanno.custom.Named|value\n\n\n#Text=New York is big\n"
    words = [("1-1", "0-3", "New"), ("1-2", "4-8", "York"), ("1-3", "9-11", "is"), ("1-4", "12-15", "big")]

    def document(tags: list[str]) -> str:
        return head + "".join("\t".join([*word, tag, "\n"]) for word, tag in zip(words, tags, strict=True))

    files = {"annotation/d/ann.tsv": ["LOC[1]", "LOC[1]", "_", "_"], "annotation/d/bob.tsv": ["_", "LOC", "_", "_"]}
    files |= {"curation/d/CURATION_USER.tsv": ["LOC[3]", "LOC[3]", "_", "_"], "annotation/d/INITIAL_CAS.tsv": ["_"] * 4}
    for name, tags in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(document(tags), encoding="utf-8")
    tags = cw.read_export(tmp_path).table()
    frame = tags.to_frame("dict")
    assert frame["tag"].tolist()[:2] == ["B-LOC", "O"] and tags.annotators.tolist() == ["ann", "bob"]
    assert frame["truth"].tolist()[::2] == ["B-LOC", "I-LOC", "O", "O"]


def test_findings_of_radiologists(tmp_path: Path) -> None:
    box = dict.fromkeys(("x_min", "y_min"), "1") | dict.fromkeys(("x_max", "y_max"), "7")
    rows = [
        {"image_id": "i", "class_name": name, "rad_id": who, **box}
        for who, name in (("R1", "A"), ("R1", "A"), ("R2", "No finding"))
    ]
    found = cw.read_export(table(tmp_path / "a.csv", rows))
    sets = found.table("findings")
    assert sets.to_frame("dict")["labels"].tolist() in ([["A"], []], ["A", ""])
    boxes = found.table("boxes")
    assert boxes.edges.tolist()[0] == [1, 1, 7, 7] and boxes.label.tolist() == [0, -1]  # R2 looked and drew nothing


# -------------------------------------------------------------------- helpers


def test_spans_become_tags() -> None:
    text = "Anna-Lena saw Paris."
    tokens = tokens_of(text, [(0, 9, "PER"), (14, 16, "X")])
    assert [text[slice(*t)] for t in tokens] == ["Anna", "-", "Lena", "saw", "Pa", "ris", "."]
    assert bio(tokens, [(0, 9, "PER")]) == ["B-PER", "I-PER", "I-PER", "O", "O", "O", "O"]
    assert overlap([(2, 9, "b"), (0, 4, "a")]) and not overlap([(9, 12, "c"), (2, 9, "b")])
    cut = tokens_of(text, [(2, 4, "X")], tokens=[(0, 9), (10, 19)])  # tokens of the tool that a span begins within
    assert cut == [(0, 2), (2, 4), (4, 9), (10, 19)] and bio(cut, [(2, 4, "X")]) == ["O", "B-X", "O", "O"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14T22:13:20.000Z", 1.7e9), ("11/14/2023 22:13:20", 1.7e9), ("2023-11-14 22:13:20 UTC", 1.7e9),
        (1.7e12, 1.7e9), ("1700000000", 1.7e9), ("Tue Nov 14 17:13:20 EST 2023", 1.7e9), (None, None), ("soon", None),
        (float("nan"), None), (True, None), ("9" * 400, None),
    ],
)  # fmt: skip
def test_times(text: Any, expected: float | None) -> None:
    assert seconds(text) == expected


def test_every_tool_has_a_section_in_the_docs() -> None:
    from crowdwise import registry

    page = (Path(__file__).parents[2] / "docs" / "exports.md").read_text(encoding="utf-8")
    assert [key for key in registry.IMPORTERS if f"`{key}`" not in page] == []


def test_an_unreadable_archive_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04nothing")
    with pytest.raises(ReadError) as caught:
        cw.read_export(tmp_path / "a.zip")
    assert not isinstance(caught.value, InternalError)
    shutil.make_archive(str(tmp_path / "b"), "zip", tmp_path, "a.zip")
    with pytest.raises(ReadError, match="was not recognised"):
        cw.read_export(tmp_path / "b.zip")


def test_a_row_with_too_many_cells_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "LARGE", 1)
    file = tmp_path / "batch.csv"
    file.write_text(
        "HITId,AssignmentId,WorkerId,AssignmentStatus,Answer.x\nh,a,w,Approved,yes\n\nh,a,w,Approved,yes,no\n"
    )
    with pytest.raises(ReadError, match="row 4 has 6 cells, and there are 5 columns"):
        cw.read_export(file)
    file.write_text("HITId,AssignmentId,WorkerId,AssignmentStatus,Answer.x\nh,a,w,Approved,yes\nh,b,v,Approved\n")
    assert cw.read_export(file).left_out == {"without an answer": 1}


def test_objects_in_memory_are_read_as_their_file_is(tmp_path):
    def annotation(who: int, label: str) -> dict[str, Any]:
        chosen = {"from_name": "q", "to_name": "t", "type": "choices", "value": {"choices": [label]}}
        return {"id": who, "completed_by": who, "result": [chosen]}

    both = [annotation(1, "yes"), annotation(2, "no")]
    tasks = [{"id": n, "project": 1, "data": {"text": "x"}, "annotations": both} for n in range(3)]
    file = tmp_path / "tasks.json"
    file.write_text(json.dumps(tasks), encoding="utf-8")
    for tool in ("auto", "label-studio"):
        made, read = cw.read_export(tasks, tool), cw.read_export(file, tool)
        assert made.tool == read.tool == "label-studio" and made.answers["q"].equals(read.answers["q"])


def test_evaluation_logs() -> None:
    """The second game of Arena-Hard is swapped; pass and fail are classes; preferences are of models."""
    folder = conftest.ROOT / "tests" / "exports" / "evaluations"
    games = cw.read_export(folder / "arena_hard.jsonl")
    assert games.answers["score"].select("left", "right", "outcome", "question").rows()[:3] == [
        ("baseline", "a", "right", "q1"), ("a", "baseline", "left", "q1"), ("baseline", "a", "tie", "q2"),
    ]  # fmt: skip
    assert games.left_out == {"games without a verdict": 1} and "called baseline" in games.notes[0]
    ranking = cw.aggregate(cw.read_export(folder / "alpaca_eval.json").table(), "bradley-terry")
    assert ranking.leaderboard["item"].to_list() == ["b", "base", "a"]
    log = cw.read_export(folder / "inspect.json").answers["verdict"]
    assert log.rows()[-1] == ("openai/gpt-4 | 2, epoch 2", "model_graded_qa", "fail")
    names = {"promptfoo.json": {"contains", "llm-rubric"},
             "deepeval.json": {"Answer Relevancy, gpt-4o", "Faithfulness, gpt-4o"},
             "harness_samples.jsonl": {"acc", "acc_norm"}}  # fmt: skip
    for name, judges in names.items():
        answers = cw.read_export(folder / name).answers["verdict"]
        assert set(answers["annotator"]) == judges and set(answers["label"]) == {"pass", "fail"}
    assert set(cw.read_export(folder / "langfuse_scores.jsonl").answers["helpful"]["annotator"]) == {"ann", "eval"}
    soft = cw.read_export(folder / "alpaca_eval.json").table().left_probability
    assert np.nanmin(soft) > 0.0 and np.isnan(soft).any()  # preferences between 1 and 2 stay what they are
    traces = cw.read_export(folder / "mlflow_traces.jsonl")
    assert traces.answers["correctness"].rows()[:2] == [
        ("tr-0", "openai:/gpt-4o", "pass", 1746093600.0), ("tr-0", "ann@example.com", "pass", 1746093600.0)
    ]  # fmt: skip
    assert traces.left_out == {"expectations, which are not verdicts": 3}


def test_arena_battles_in_parquet(tmp_path):
    """The published battles are a parquet file: the same answers as from JSON, which may be ranked as they are."""
    file, json_file = tmp_path / "train.parquet", conftest.ROOT / "tests" / "exports" / "arena_battles.json"
    pl.DataFrame(json.loads(json_file.read_text(encoding="utf-8")), infer_schema_length=None).write_parquet(file)
    one, other = cw.read_export(file), cw.read_export(json_file)
    assert one.tool == "arena" and one.answers["winner"].equals(other.answers["winner"])
    assert one.left_out == other.left_out


# -------------------------------------------------------------------- shapes


def test_shapes_of_label_studio_are_in_pixels() -> None:
    folder = Path(__file__).parents[1] / "exports" / "labelstudio"
    found = cw.read_export(folder / "boxes.json")
    frame = found.table().to_frame("dict")
    assert [frame[edge][0] for edge in ("x1", "y1", "x2", "y2")] == [40, 60, 160, 135]  # 10, 20, 40, 45 % of 400 x 300
    roof = cw.read_export(folder / "polygons.json").table()
    assert roof.height.tolist() == [300] * 5 and roof.width.tolist() == [400] * 5
    corners = np.array([[40, 30], [160, 36], [140, 120], [48, 114]], dtype=float)
    x, y = corners.T
    area = abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2.0
    assert roof.of_item(0)[0].sum() == pytest.approx(area, rel=0.01)
    assert roof.of_item(0)[0][60, 100] and not roof.of_item(0)[0][20, 100]
    brush = cw.read_export(folder / "brush.json").table()
    first = brush.of_item(0)[0]
    assert first.shape == (30, 40) and first.any() and not first.all() and brush.true_mask(0) is not None
    rows, columns = np.nonzero(first)
    assert len(rows) == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)  # the sample is a rectangle
    points = cw.read_export(folder / "keypoints.json").table()
    assert points.point_size > 0 and (points.edges[0, :2] + points.point_size / 2).tolist() == [120, 120]
    assert cw.read_export(folder / "textarea.json").table().n_annotators == 3


def test_masks_and_ellipses_of_cvat(tmp_path: Path) -> None:
    job = (
        "<annotations><version>1.1</version><meta><job><assignee><username>{}</username></assignee></job></meta>"
        '<image id="0" name="a.jpg" width="8" height="6">'
        '<mask label="cell" source="manual" rle="1, 2, 3" left="2" top="1" width="3" height="2"/>'
        '<ellipse label="rim" source="manual" cx="4" cy="3" rx="2" ry="1"/>'
        '<points label="tip" points="1,2;3,4"/></image>'
        '<image id="1" name="b.jpg" width="8" height="6"></image></annotations>'
    )
    for who in ("ann", "bob"):
        (tmp_path / f"{who}.xml").write_text(job.format(who), encoding="utf-8")
    found = cw.read_export(tmp_path)
    masks = found.table("masks")
    assert masks.items.tolist() == ["a.jpg [cell]", "a.jpg [rim]"]
    assert np.argwhere(masks.of_item(0)[0]).tolist() == [[1, 3], [1, 4]]
    assert masks.of_item(1)[0].sum() == 8
    points = found.table("points")
    assert points.n_answers == 6 and points.items.tolist() == ["a.jpg", "b.jpg"]  # nothing on b.jpg, by both


def test_coco_masks_of_several_classes(tmp_path: Path) -> None:
    whole = {
        "images": [{"id": 1, "width": 6, "height": 4}], "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
        "annotations": [
            {"image_id": 1, "category_id": 1, "annotator_id": "x", "segmentation": [[0, 0, 2, 0, 2, 4, 0, 4]]},
            {"image_id": 1, "category_id": 1, "annotator_id": "x", "segmentation": [[4, 0, 6, 0, 6, 4, 4, 4]]},
            {"image_id": 1, "category_id": 2, "annotator_id": "y",
             "segmentation": {"size": [4, 6], "counts": [4, 8, 12]}},
        ],
    }  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(whole), encoding="utf-8")
    masks = cw.read_export(tmp_path / "a.json").table("masks")
    assert masks.items.tolist() == ["1 [a]", "1 [b]"] and masks.n_answers == 4
    assert [m.sum() for m in masks.of_item(0)] == [16, 0]  # two parts are one mask; y looked and did not mark a
    assert masks.of_item(1)[1][:, 1:3].all() and masks.of_item(1)[1].sum() == 8


def test_nodules_are_matched_between_readers() -> None:
    found = cw.read_export(Path(__file__).parents[1] / "exports" / "lidc.xml")
    nodules = found.table()
    assert nodules.annotators.tolist() == ["reader 1", "reader 2"] and nodules.edges.shape == (2, 6)
    assert nodules.edges[0].tolist() == [311.5, 354.5, -137.5, 318.5, 361.5, -112.5]  # slices are 25 apart in the file
    objects = cw.aggregate(nodules, base="majority").to_frame("candidates", kind="dict")
    assert len(objects["item"]) == 1 and objects["annotators"][0] == 2


def test_labelme(tmp_path: Path) -> None:
    shapes = [
        {"label": "cat", "shape_type": "rectangle", "points": [[9, 8], [1, 2]]},
        {"label": "cat", "shape_type": "polygon", "points": [[0, 0], [4, 0], [4, 4], [0, 4]]},
        {"label": "eye", "shape_type": "point", "points": [[3, 3]]},
        {"label": "cat", "shape_type": "circle", "points": [[8, 8], [8, 10]]},
        {"label": "tail", "shape_type": "line", "points": [[3, 3], [4, 4]]},
    ]
    for who in ("ann", "bob"):
        (tmp_path / who).mkdir()
        whole = {"flags": {}, "shapes": shapes, "imagePath": "..\\1.jpg", "imageHeight": 12, "imageWidth": 12}
        (tmp_path / who / "1.json").write_text(json.dumps(whole), encoding="utf-8")
    found = cw.read_export(tmp_path)
    assert found.tool == "labelme" and found.alone == {"shapes": "2 shapes of type line"}
    boxes = found.table("boxes")
    assert boxes.edges.tolist() == [[1, 2, 9, 8]] * 2 and boxes.items.tolist() == ["1.jpg"]
    assert found.table("masks").of_item(0)[0].sum() == 16 + 12
    assert found.table("points").annotators.tolist() == ["ann", "bob"]


def test_spans_that_overlap_are_spans_and_no_tags(tmp_path: Path) -> None:
    for who, lines_ in (("ann", "T1\tORG 0 18\tU\nT2\tLOC 14 18\tR\n"), ("bob", "T1\tORG 0 18\tU\n")):
        (tmp_path / who).mkdir()
        (tmp_path / who / "d.txt").write_text("University of Rome.", encoding="utf-8")
        (tmp_path / who / "d.ann").write_text(lines_, encoding="utf-8")
    spans = cw.read_export(tmp_path).table()
    assert spans.answer_type == "spans" and spans.n_answers == 3 and spans.length.tolist() == [19]
    assert cw.aggregate(spans, "span-majority").spans() == [[("ORG", 0, 18)]]


# -------------------------------------------------------------------- units, pages, pieces


def studio(path: Path, data: dict[str, Any], *results: list[dict[str, Any]]) -> cw.Export:
    """A task of Label Studio, with the results of annotators 1, 2, ..."""
    made = [{"id": n, "completed_by": n, "result": found, "was_cancelled": False} for n, found in enumerate(results, 1)]
    task = {"id": 7, "inner_id": 1, "project": 1, "predictions": [], "drafts": [], "data": data, "annotations": made}
    path.write_text(json.dumps([task]), encoding="utf-8")
    return cw.read_export(path)


def region(kind: str, name: str = "r", to: str = "image", **value: Any) -> dict[str, Any]:
    size = {"original_width": 200, "original_height": 100} if to == "image" else {}
    return {"id": name, "type": kind, "from_name": kind, "to_name": to, "value": value, **size}


def box(x: Any = 10, y: Any = 20, rotation: float = 0, name: str = "r", **more: Any) -> dict[str, Any]:
    place = {"x": x, "y": y, "width": 10, "height": 20, "rotation": rotation}
    return region("rectanglelabels", name, **place, rectanglelabels=["cat"]) | more


@pytest.mark.parametrize(
    ("text", "start", "words"),
    [("\U0001f600 Anna", 2, "Anna"), ("\U0001f600 Anna", 3, "Anna"), ("\r\nAnna", 1, "Anna"), ("\r\nAnna", 2, "Anna")],
)
def test_spans_are_where_their_words_are(tmp_path: Path, text: str, start: int, words: str) -> None:
    """Code points, halves of UTF-16, CRLF as one character: tools count in their own way."""
    span = region("labels", to="text", start=start, end=start + 4, text=words, labels=["PER"])
    tags = studio(tmp_path / "a.json", {"text": text}, [span], []).table().to_frame("dict")
    assert tags["word"][tags["tag"] == "B-PER"].tolist() == ["Anna"]
    (tmp_path / "b" / "ann").mkdir(parents=True)
    (tmp_path / "b" / "ann" / "d.txt").write_bytes(text.encode())
    (tmp_path / "b" / "ann" / "d.ann").write_text(f"T1\tPER {start} {start + 4}\t{words}\n", encoding="utf-8")
    tags = cw.read_export(tmp_path / "b").table().to_frame("dict")
    assert tags["word"][tags["tag"] == "B-PER"].tolist() == ["Anna"]


def test_spans_whose_words_are_elsewhere_are_named(tmp_path: Path) -> None:
    spans = [
        region("labels", n, "text", start=0, end=4, text=w, labels=["PER"]) for n, w in (("a", "Anna"), ("b", "Bob"))
    ]
    found = studio(tmp_path / "a.json", {"text": "Anna"}, spans)
    assert "first 'Bob' of item 7" in found.lines()[-1]
    assert placed("a\\nb", [(0, 4, "X", "a\\nb")]) == ([(0, 4, "X")], [])


def test_the_text_of_spans_is_the_field_that_has_their_words(tmp_path: Path) -> None:
    span = region("labels", to="text", start=5, end=8, text="saw", labels=["V"])
    found = studio(tmp_path / "a.json", {"title": "x", "review": "Anna saw"}, [span], [])
    assert found.table().to_frame("dict")["tag"].tolist() == ["O", "O", "B-V", "O"]
    span["value"].pop("labels")  # a region without a label is one
    assert "B-span" in studio(tmp_path / "a.json", {"text": "Anna saw"}, [span]).table().to_frame("dict")["tag"]
    found = studio(tmp_path / "a.json", {"text": "http://a/b.txt"}, [span], [region("rating", rating=3)])
    assert found.alone == {"labels": "1 spans of something else than plain text in the export"}


def test_stretches_of_time_are_no_points(tmp_path: Path) -> None:
    run = region("timeserieslabels", to="series", start=1, end=30, timeserieslabels=["run"])
    events = studio(tmp_path / "a.json", {"series": "a.csv"}, [run], []).table()
    assert events.edges[0].tolist() == [1, 30] and events.y1 is None and events.label.tolist() == [0, -1]
    spoken = region("labels", to="audio", start=1, end=30, channel=0, labels=["ann"])
    assert studio(tmp_path / "a.json", {"audio": "a.wav"}, [spoken]).table().edges.tolist() == [[1, 30]]
    frames = region("timelinelabels", to="video", ranges=[{"start": 5, "end": 5}], timelinelabels=["run"])
    assert studio(tmp_path / "a.json", {"video": "a.mp4"}, [frames]).table().edges.tolist() == [[4, 5]]


def test_pages_of_a_task_are_items(tmp_path: Path) -> None:
    pages = {"image": ["a.png", "b.png", "c.png"]}
    found = studio(tmp_path / "a.json", pages, [box(item_index=0), box(item_index=1)], [box(item_index=1)])
    frame = found.table().to_frame("dict")
    assert frame["item"].tolist() == [f"7 (page {n})" for n in (1, 1, 2, 2, 3, 3)]
    assert [name is None for name in frame["label"]] == [False, True, False, False, True, True]
    assert dict(found.item_table.select("item", "image").rows())["7 (page 2)"] == "b.png"


def test_turned_shapes_and_places_that_are_missing(tmp_path: Path) -> None:
    found = studio(tmp_path / "a.json", {"image": "a"}, [box(rotation=90), box(x=None), box(y=float("nan"))])
    assert found.table().edges.round(6).tolist() == [[0, 20, 20, 40]]  # about the upper left corner
    assert found.left_out == {"without a box of positive width and height": 2}
    assert found.notes == ("Boxes that are turned are read as the upright boxes around them.",)
    disc = region("ellipselabels", x=50, y=50, radiusX=10, radiusY=4, rotation=90, ellipselabels=["cell"])
    mask = studio(tmp_path / "a.json", {"image": "a"}, [disc]).table().of_item(0)[0]
    assert [int(np.ptp(axis)) + 1 for axis in mask.nonzero()] == [40, 8]
    bad = region("polygonlabels", points=[[1, 1], [None, 5], [5, 5]], polygonlabels=["cell"])
    assert studio(tmp_path / "a.json", {"image": "a"}, [bad, disc]).left_out == {
        "polygons without three corners, or on images of unknown size": 1
    }


def test_answers_about_single_regions_are_not_of_the_item(tmp_path: Path) -> None:
    named = region("labels", "r", x=10, y=20, width=10, height=20, labels=["dog"])
    plain = region("rectangle", "r", x=10, y=20, width=10, height=20)
    about = [region("choices", name, choices=[kind], x=1, y=1) for name, kind in (("r", "big"), ("q", "small"))]
    found = studio(tmp_path / "a.json", {"image": "a"}, [box(), box(50, name="q"), *about], [plain, named])
    assert found.alone == {"choices": "2 answers about single regions"}
    assert found.table("rectangle").classes.tolist() == ["dog"]  # the class is a result of its own


def test_shapes_in_videos_and_turned_boxes_of_cvat(tmp_path: Path) -> None:
    job = (
        "<annotations><version>1.1</version><meta><job><assignee><username>ann</username></assignee></job></meta>"
        '<track id="0" label="car"><box frame="0" xtl="1" ytl="1" xbr="5" ybr="5"/></track>{}</annotations>'
    )
    (tmp_path / "a.xml").write_text(job.format(""), encoding="utf-8")
    assert cw.read_export(tmp_path / "a.xml").alone == {"tracks": "1 shapes in videos"}
    turned = '<image name="a"><box label="c" rotation="90" xtl="0" ytl="1" xbr="4" ybr="3"/></image>'
    (tmp_path / "a.xml").write_text(job.format(turned), encoding="utf-8")
    assert cw.read_export(tmp_path / "a.xml").table().edges.round(6).tolist() == [[1, 0, 3, 4]]  # about its centre


def test_layers_of_webanno(tmp_path: Path) -> None:
    """Features apart, escaped labels, parts of tokens, offsets of UTF-16, columns of relations before spans."""
    rows = [
        ("1-1", "0-2", "\U0001f600", "_", "_", "_", "_", "_"),
        ("1-2", "3-6", "New", "dep", "1-1", "*", "LOC\\_X[1]", "*[2]"),
        ("1-3", "7-11", "York", "_", "_", "*", "LOC\\_X[1]", "*[2]"),
        ("1-3.1", "9-11", "rk", "_", "_", "*", "SUB", "_"),
    ]  # fmt: skip
    head = (
        "#FORMAT=WebAnno TSV 3.3\n#T_RL=webanno.custom.Dep|kind|BT_x\n#T_SP=webanno.custom.Med|DCT|value\n"
        "#T_SP=webanno.custom.Bare|\n\n\n#Text=New York\n"
    )
    for who in ("ann", "bob"):
        (tmp_path / "annotation" / "d").mkdir(parents=True, exist_ok=True)
        content = head + "".join("\t".join([*row, "\n"]) for row in rows[: 3 + (who == "ann")])
        (tmp_path / "annotation" / "d" / f"{who}.tsv").write_text(content, encoding="utf-8", newline="\r\n")
    found = cw.read_export(tmp_path)
    assert list(found.tables) == ["Med", "Bare"] and "relations" in found.alone["relations and chains"]
    spans = found.table("Med").to_frame("dict")
    rows_ = zip(spans["annotator"], spans["label"], spans["start"], spans["end"], strict=True)
    assert list(rows_) == [("ann", "LOC_X", 2, 10), ("ann", "SUB", 8, 10), ("bob", "LOC_X", 2, 10)]
    assert found.item_table["text"].to_list() == ["\U0001f600 New York"]
    assert found.table("Bare").to_frame("dict")["tag"].tolist() == ["O", "O", "B-Bare", "B-Bare", "I-Bare", "I-Bare"]


def test_folders_below_those_of_annotators(tmp_path: Path) -> None:
    for place in ("ann/x", "bob/x", "bob/y"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "d.txt").write_text("New\nYork is big", encoding="utf-8")
        (tmp_path / place / "d.ann").write_text("T1\tLOC 0 3;4 8\tNew York\nT2\tX 0 3;9 11\tNew is\n", encoding="utf-8")
    found = cw.read_export(tmp_path)
    tags = found.table()
    assert tags.annotators.tolist() == ["ann", "bob"] and tags.items.tolist() == ["x/d", "y/d"]
    assert found.left_out == {"entities in several pieces": 3}  # but for a line break between them
    assert tags.to_frame("dict")["tag"].tolist()[:4] == ["B-LOC", "B-LOC", "I-LOC", "I-LOC"]


def test_masks_and_corners_of_labelme(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    data = io.BytesIO()
    image.fromarray(np.eye(3, 4).astype(bool)).save(data, "PNG")
    mask = base64.b64encode(data.getvalue()).decode()
    shapes = [
        {"label": "a", "shape_type": "mask", "points": [[2, 1], [5, 3]], "mask": mask},
        {"label": "a", "shape_type": "mask", "points": [[11, 1], [14, 3]], "mask": mask},
        {"label": "b", "shape_type": "rectangle", "points": [[1, 1], [5, 1], [5, 4], [1, 4]]},
    ]
    (tmp_path / "ann").mkdir()
    whole = {"flags": {}, "shapes": shapes, "imagePath": "1.jpg", "imageHeight": 12, "imageWidth": 12}
    (tmp_path / "ann" / "1.json").write_text(json.dumps(whole), encoding="utf-8")
    found = cw.read_export(tmp_path)
    assert np.argwhere(found.table("masks").of_item(0)[0]).tolist() == [[1, 2], [2, 3], [3, 4]]
    assert found.table("boxes").edges.tolist() == [[1, 1, 5, 4]]
    assert found.left_out == {"masks that do not fit their image": 1}
