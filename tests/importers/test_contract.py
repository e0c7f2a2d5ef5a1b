"""Exports of annotation tools: each sample is recognised by its content, and gives the table that is expected."""

from __future__ import annotations

import csv
import json
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import conftest
import crowdwise as cw
from crowdwise import registry
from crowdwise.errors import CrowdwiseError, InputError, InternalError, ParameterError, ReadError
from crowdwise.importers import export_files
from crowdwise.importers.export import Export, recognise, recognises

KINDS = {
    "choices_single": {"sentiment": "votes"}, "choices_multiple": {"topics": "label-sets"},
    "rating": {"stars": "ratings"}, "number": {"years": "ratings"}, "pairwise": {"pw": "comparisons"},
    "ranker": {"rank": "rankings"}, "taxonomy": {"tax": "label-sets"}, "text_spans": {"ner": "tags"},
    "boxes": {"box": "boxes"}, "polygons": {"poly": "masks"}, "brush": {"brush": "masks"},
    "keypoints": {"kp": "boxes"},
}  # fmt: skip
"""Projects of Label Studio and what becomes of them."""
FORMS = ("json", "snapshot.json", "min.json", "csv")
SAMPLES: dict[str, tuple[str, dict[str, str]]] = {
    **{f"labelstudio/{kind}.{form}": ("label-studio", found) for kind, found in KINDS.items() for form in FORMS},
    "labelstudio/textarea.json": ("label-studio", {"transcript": "texts"}),
    "prodigy_choice.jsonl": ("prodigy", {"choice": "votes"}),
    "prodigy_binary.jsonl": ("prodigy", {"label": "votes"}),
    "prodigy_ner.jsonl": ("prodigy", {"spans": "tags"}),
    "doccano_individual.zip": ("doccano", {"label": "votes"}),
    "doccano_ner_ann.jsonl": ("doccano", {"label": "tags"}),
    "argilla_flat.json": ("argilla", {"sentiment": "votes"}),
    "mturk_batch_results.csv": ("mturk", {"sentiment": "votes"}),
    "toloka_assignments.tsv": ("toloka", {"result": "votes"}),
    "appen_full.csv": ("appen", {"sentiment": "votes"}),
    "cvat_job_1.xml": ("cvat", {"tag": "votes", "boxes": "boxes"}),
    "superannotate": ("superannotate", {"tag": "votes"}),
    "sagemaker": ("sagemaker", {"crowd-classifier": "votes"}),
    "sagemaker/annotations/consolidated-annotation/consolidation-request/iteration-1/request.json": (
        "sagemaker", {"crowd-classifier": "votes"},
    ),
    "arena_battles.json": ("arena", {"winner": "comparisons"}),
    "arena_human_preference.jsonl": ("arena", {"winner": "comparisons"}),
    "mtbench_human_judgments.jsonl": ("arena", {"winner": "comparisons"}),
    "evaluations/alpaca_eval.json": ("evaluations", {"preference": "comparisons"}),
    "evaluations/arena_hard.jsonl": ("evaluations", {"score": "comparisons"}),
    "evaluations/inspect.json": ("evaluations", {"verdict": "votes"}),
    "evaluations/promptfoo.json": ("evaluations", {"verdict": "votes"}),
    "evaluations/deepeval.json": ("evaluations", {"verdict": "votes"}),
    "evaluations/harness_samples.jsonl": ("evaluations", {"verdict": "votes"}),
    "evaluations/mlflow_traces.jsonl": ("evaluations", {"correctness": "votes"}),
    "evaluations/mlflow_eval_results_table.json": ("evaluations", {"answer_correctness": "ratings"}),
    "evaluations/langfuse_scores.jsonl": ("evaluations", {"helpful": "votes"}),
    "qualtrics.csv": ("qualtrics", {"Q1": "votes"}),
    "brat": ("brat", {"entities": "tags"}),
    "inception": ("webanno", {"NamedEntity": "tags"}),
    "scale_tasks.json": ("scale", {"boxes": "boxes"}),
    "vindr_boxes.csv": ("vindr", {"findings": "label-sets", "boxes": "boxes"}),
    "coco_multi.json": ("coco", {"boxes": "boxes", "masks": "masks"}),
    "lidc.xml": ("lidc", {"nodules": "boxes"}),
}  # fmt: skip
CROWD = [
    "prodigy_choice.jsonl", "doccano_individual.zip", "argilla_flat.json", "mturk_batch_results.csv",
    "toloka_assignments.tsv", "appen_full.csv", "superannotate", "sagemaker", "qualtrics.csv",
]  # fmt: skip
"""Samples of the crowd of expected.csv."""
TABLES = ("mturk_batch_results.csv", "toloka_assignments.tsv", "appen_full.csv", "vindr_boxes.csv")
NO_TIMES = {"doccano_individual.zip", "argilla_flat.json", "qualtrics.csv"}
NO_DURATIONS = {*NO_TIMES, "prodigy_choice.jsonl", "superannotate"}


@pytest.fixture(scope="session")
def exports() -> Path:
    return conftest.ROOT / "tests" / "exports"


# -------------------------------------------------------------------- recognised, and the expected table


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_recognised_and_read(exports: Path, sample: str) -> None:
    tool, questions = SAMPLES[sample]
    found = cw.read_export(exports / sample)
    assert found.tool == tool
    assert {name: table.answer_type for name, table in found.tables.items()} == questions
    assert questions or found.alone


@pytest.mark.parametrize("sample", CROWD)
def test_the_crowd_is_the_expected_one(exports: Path, sample: str) -> None:
    """The same answers as expected.csv, whatever items and annotators are called."""
    with (exports / "expected.csv").open(encoding="utf-8") as file:
        expected = list(csv.DictReader(file))
    answers = cw.read_export(exports / sample).answers
    (frame,) = answers.values()
    rows = frame.rows(named=True)
    assert sorted(row["label"] for row in rows) == sorted(row["label"] for row in expected)
    by_name = _names(rows, expected)
    told = {(by_name[row["item"]], by_name[row["annotator"]]): row for row in rows}
    assert {(row["item"], row["annotator"]): row["label"] for row in expected} == {
        key: row["label"] for key, row in told.items()
    }
    zone = 8 * 3600 if sample.startswith("mturk") else 0  # the sample writes UTC and calls it PST
    for row in expected:
        found = told[row["item"], row["annotator"]]
        if sample not in NO_TIMES:
            assert found["timestamp"] == pytest.approx(float(row["time"]) + zone)
        if sample not in NO_DURATIONS:
            assert found["duration"] == pytest.approx(float(row["duration"]), abs=1)


def _names(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> dict[Any, str]:
    """Names of items and annotators -> those of expected.csv, by the order in which they come."""
    out: dict[Any, str] = {}
    for part in ("item", "annotator"):
        known = list(dict.fromkeys(row[part] for row in expected))
        found = sorted(dict.fromkeys(row[part] for row in rows), key=str)
        out |= dict(zip(found, known, strict=True))
    return out


def test_label_studio_forms_agree(exports: Path) -> None:
    """JSON, snapshot, JSON_MIN and CSV of one project hold the same answers."""
    for kind in ("choices_single", "choices_multiple", "rating", "pairwise", "ranker"):
        shapes = set()
        for form in FORMS:
            (table,) = cw.read_export(exports / "labelstudio" / f"{kind}.{form}").tables.values()
            shapes.add((table.n_items, table.n_annotators, table.n_answers))
        assert len(shapes) == 1, kind


def test_label_studio_leaves_out_and_says_so(exports: Path) -> None:
    found = cw.read_export(exports / "labelstudio" / "choices_single.snapshot.json")
    votes = found.table()
    assert found.left_out == {
        "predictions of models": 10, "drafts": 1, "skipped": 1,
        "earlier answers of the same annotator to the same item": 1,
    }  # fmt: skip
    assert votes.annotators.tolist() == ["ann@example.com", "bob@example.com", "cem@example.com"]
    assert votes.items.tolist() == [f"doc-{n}" for n in range(1, 6)]
    assert votes.truth.tolist()[1:] == [-1] * 4 and votes.classes[votes.truth[0]] == "Neutral"
    assert found.item_table["text"][0] == "The cat sat in Paris with Anna." and votes.timestamp is not None
    models = cw.read_export(exports / "labelstudio" / "choices_single.snapshot.json", predictions=True)
    assert {"model:m1", "model:m2"} < set(models.table().annotators.tolist())
    tags = cw.read_export(exports / "labelstudio" / "text_spans.json").table()
    assert tags.n_items == 5  # whoever found no span has said so
    boxes = cw.read_export(exports / "labelstudio" / "boxes.json").table()
    assert len(boxes.truth[0]) == 2 and boxes.truth[1:].tolist() == [None] * 4


# -------------------------------------------------------------------- nobody is fooled


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_importer_is_fooled_by_another_tool(exports: Path, sample: str) -> None:
    from crowdwise.importers.export_files import ExportFiles, Peek

    with ExportFiles(exports / sample) as files:
        peek = Peek(files)
        by = [key for key, entry in registry.IMPORTERS.items() if recognises(entry, peek)]
    assert by == [SAMPLES[sample][0]]


def test_the_name_does_not_matter(exports: Path, tmp_path: Path) -> None:
    for sample, (tool, _) in SAMPLES.items():
        if (exports / sample).is_dir():
            continue
        odd = tmp_path / f"export{''.join(Path(sample).suffixes[-1:])}"
        shutil.copyfile(exports / sample, odd)
        if not sample.startswith("doccano"):  # whose files are called after annotators
            assert recognise(odd) == tool


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("votes.csv", "item,annotator,label\n1,a,x\n"),
        ("wide.csv", "task,ann,bob,text\n1,x,y,z\n"),
        ("ls.csv", "annotation_id,annotator,created_at,sentiment\n1,2,3,4\n"),
        ("votes.jsonl", '{"id": 1, "text": "x", "label": ["a"], "annotator": "b"}\n'),
        ("tasks.json", '[{"id": 1, "data": {"text": "x"}, "label": "y"}]'),
        ("nested.json", '[{"id": 1, "annotations": [{"worker": "a", "label": "x"}]}]'),
        ("answers.json", '[{"answer": "accept", "text": "x"}]'),
        ("hits.csv", "HITId,WorkerId,label\n1,2,3\n"),
        ("empty.json", "[]"), ("empty.csv", "a\n"), ("text.txt", "Nothing here.\n"), ("odd.json", "{"),
    ],
)  # fmt: skip
def test_ordinary_files_are_no_exports(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert recognise(tmp_path / name) is None
    with pytest.raises(ReadError, match="was not recognised as an export"):
        cw.read_export(tmp_path / name)


def test_real_data_are_no_exports(real_data: Path) -> None:
    for folder in sorted(real_data.iterdir()):
        for file in folder.glob("*.csv") if folder.is_dir() else ():
            assert recognise(file) is None, file


# -------------------------------------------------------------------- damaged, odd and hostile


def small(sample: str) -> bool:
    return not sample.startswith("labelstudio") or sample.endswith(("single.json", "spans.min.json", "wise.csv"))


@pytest.mark.parametrize("sample", [s for s in SAMPLES if small(s) and "." in s])
def test_damaged_exports_give_answers_or_an_error_of_ours(exports: Path, tmp_path: Path, sample: str) -> None:
    content = (exports / sample).read_bytes()
    draw = random.Random(0)
    odd = tmp_path / Path(sample).name
    for turn in range(12):
        made = bytearray(content[: draw.randrange(1, len(content))] if turn % 2 else content)
        for _ in range(turn // 2):
            made[draw.randrange(len(made))] = draw.randrange(256)
        odd.write_bytes(bytes(made))
        try:
            cw.read_export(odd, SAMPLES[sample][0])
        except CrowdwiseError as error:
            assert not isinstance(error, InternalError), error


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.endswith((".json", ".jsonl")) and small(s)])
def test_values_of_any_kind_give_answers_or_an_error_of_ours(exports: Path, tmp_path: Path, sample: str) -> None:
    """Fields that are missing, empty or of another kind than usual."""
    text = (exports / sample).read_text(encoding="utf-8")
    whole = text[:1] in "[{" and "\n" in text.strip() and not text.startswith('{"')
    rows = json.loads(text) if whole or text[:1] == "[" else [json.loads(line) for line in text.splitlines()]
    rows = [rows] if isinstance(rows, dict) else rows
    draw = random.Random(1)
    for turn in range(40):
        odd = json.loads(json.dumps(rows))
        _spoil(odd[draw.randrange(len(odd))], draw, [None, [], {}, "x", -1, 1.5, True, [None], {"x": [1]}, "é" * 9])
        odd[0]["unknown field"] = {"a": [1, 2]}
        made = odd[0] if whole and text[:1] == "{" else odd
        (tmp_path / f"{turn}.json").write_text(json.dumps(made), encoding="utf-8")
        try:
            cw.read_export(tmp_path / f"{turn}.json", SAMPLES[sample][0])
        except CrowdwiseError as error:
            assert not isinstance(error, InternalError), error


def _spoil(value: Any, draw: random.Random, others: list[Any]) -> None:
    """Replace one value somewhere inside."""
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not places:
        return
    at = draw.choice(places)
    if isinstance(value[at], (dict, list)) and value[at] and draw.random() < 0.8:
        _spoil(value[at], draw, others)
    else:
        value[at] = draw.choice(others)


def test_empty_and_unknown_exports(exports: Path, tmp_path: Path) -> None:
    task = json.loads((exports / "labelstudio" / "choices_single.json").read_text(encoding="utf-8"))[0]
    (tmp_path / "a.json").write_text(json.dumps([{**task, "annotations": []}]), encoding="utf-8")
    with pytest.raises(InputError, match="export of label-studio without any answers"):
        cw.read_export(tmp_path / "a.json")
    with pytest.raises(ParameterError, match=r"Unknown tool 'labelstudio'.*Did you mean 'label-studio'"):
        cw.read_export(tmp_path / "a.json", "labelstudio")
    with pytest.raises(ReadError, match="There is no file"):
        cw.read_export(tmp_path / "none.json")
    cut = (exports / "labelstudio" / "choices_single.json").read_bytes()[:-300]
    (tmp_path / "cut.json").write_bytes(cut)
    with pytest.raises(ReadError, match="is truncated JSON: it breaks off or is wrong after 5 objects"):
        cw.read_export(tmp_path / "cut.json")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings(exports: Path, tmp_path: Path, encoding: str) -> None:
    for sample in ("prodigy_choice.jsonl", "mturk_batch_results.csv"):
        text = (exports / sample).read_text(encoding="utf-8").replace("Awful film", "Très mauvais")
        odd = tmp_path / sample
        odd.write_bytes(text.encode(encoding))
        with pytest.warns(cw.errors.InputWarning, match="is not in UTF-8"):
            assert cw.read_export(odd).item_table["text"].to_list().count("Très mauvais") == 1


def test_a_large_export_is_read_object_by_object(exports: Path, tmp_path: Path) -> None:
    import tracemalloc

    lines = (exports / "prodigy_choice.jsonl").read_text(encoding="utf-8").splitlines()
    row = {**json.loads(lines[0]), "blob": "x" * 200_000}
    with (tmp_path / "large.jsonl").open("w", encoding="utf-8") as file:
        for n in range(150):
            file.write(json.dumps({**row, "meta": {"id": f"d{n}"}}) + "\n")
    tracemalloc.start()
    votes = cw.read_export(tmp_path / "large.jsonl").table()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert votes.n_votes == 150 and peak < 20e6  # of a file of 30 MB


# -------------------------------------------------------------------- as files, and on the command line


@pytest.mark.parametrize("sample", [s for s, (_, found) in SAMPLES.items() if found and small(s)])
def test_saved_tables_are_read_again(exports: Path, tmp_path: Path, sample: str) -> None:
    from crowdwise.reading import read

    found = cw.read_export(exports / sample)
    for folder, table in zip(found.save(tmp_path / "out"), found.tables.values(), strict=True):
        again = read(folder)
        assert again.answer_type == table.answer_type
        assert again.table.n_answers == table.n_answers and again.table.n_annotators == table.n_annotators


def test_several_questions_are_several_tables(exports: Path, tmp_path: Path) -> None:
    from command_line import run

    text = (exports / "argilla_flat.json").read_text(encoding="utf-8")
    rows = json.loads(text)
    for n, row in enumerate(rows):
        for end in ("", ".users", ".status"):
            row[f"stars.responses{end}"] = row[f"sentiment.responses{end}"]
        row["stars.responses"] = [n + k for k in range(len(row["stars.responses"]))]
    file = tmp_path / "two.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    done = run("aggregate", file)
    assert done.returncode == 1 and "has 2 questions: 'sentiment' (votes), 'stars' (ratings)" in done.stderr
    assert "--question sentiment" in done.stderr
    facts = json.loads(run("describe", file, "--question", "stars", "--json").stdout)
    assert facts["answer_type"] == "ratings" and facts["ratings"] == 11
    assert json.loads(run("aggregate", file, "--answers", "ratings", "--json").stdout)["answer_type"] == "ratings"
    done = run("import", file, "--out", tmp_path / "out", "--json")
    assert json.loads(done.stdout)["folders"] == [str(tmp_path / "out" / name) for name in ("sentiment", "stars")]
    assert json.loads(run("describe", tmp_path / "out" / "stars", "--json").stdout)["ratings"] == 11
    assert run("import", file, "--out", tmp_path / "out").returncode == 1  # nothing is overwritten
    assert "no question 'mood'" in run("import", file, "--question", "mood").stderr


def test_commands_take_exports(exports: Path, tmp_path: Path) -> None:
    from command_line import run

    done = run("aggregate", exports / "toloka_assignments.tsv", "--method", "majority", "--json")
    assert json.loads(done.stdout)["votes"] == 11 and "is an export of Toloka" in done.stderr
    done = run("aggregate", exports / "toloka_assignments.tsv", "--label", "result")
    assert done.returncode == 2 and "crowdwise import" in done.stderr
    done = run("aggregate", exports / "labelstudio" / "boxes.json", "--json")
    assert json.loads(done.stdout)["answer_type"] == "boxes"
    done = run("aggregate", exports / "coco_multi.json")
    assert done.returncode == 1 and "--question boxes" in done.stderr
    done = run("import", exports / "labelstudio" / "pairwise.json", "--out", tmp_path / "pairs")
    assert done.returncode == 0 and "pw: Comparisons(14 comparisons" in done.stderr
    assert json.loads(run("aggregate", tmp_path / "pairs", "--json").stdout)["answer_type"] == "comparisons"


def test_an_archive_of_files_by_annotator(tmp_path: Path) -> None:
    rows = [{"id": 1, "text": "Anna saw Paris.", "entities": [], "Comments": []}]
    rows[0]["entities"] = [{"id": 3, "label": "PER", "start_offset": 0, "end_offset": 4}]
    with zipfile.ZipFile(tmp_path / "ner.zip", "w") as archive:
        for name in ("ann", "bob"):
            archive.writestr(f"{name}.jsonl", json.dumps(rows[0]))
    tags = cw.read_export(tmp_path / "ner.zip").table()
    assert tags.annotators.tolist() == ["ann", "bob"]
    assert pl.DataFrame(tags.to_frame("dict"))["tag"].to_list().count("B-PER") == 2


QUESTIONS = ("Is it?", "is-it", "Is it!", "?")


def test_questions_with_like_names_do_not_overwrite_each_other(tmp_path: Path) -> None:
    rows = [
        {"item": f"i{n}", "annotator": f"w{m}", **{name: "ab"[(n + m + q) % 2] for q, name in enumerate(QUESTIONS)}}
        for n in range(4)
        for m in range(3)
    ]
    tables = {
        name: cw.Votes.from_records([(row["item"], row["annotator"], row[name]) for row in rows]) for name in QUESTIONS
    }
    export = Export(
        path=tmp_path / "x.json", tool="made", tables=tables,
        answers={name: table.to_frame("polars") for name, table in tables.items()},
    )  # fmt: skip
    folders = export.save(tmp_path / "out")
    assert len(set(map(str, folders))) == len({str(f).casefold() for f in folders}) == 4
    for folder, table in zip(folders, tables.values(), strict=True):
        assert cw.read_votes(folder / "labels.csv").to_frame("polars").equals(table.to_frame("polars"))


@pytest.mark.parametrize("sample", [*TABLES])
def test_a_large_table_is_read_row_by_row_to_the_same_answers(
    exports: Path, sample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = cw.read_export(exports / sample)
    monkeypatch.setattr(export_files, "LARGE", 1)
    streamed = cw.read_export(exports / sample)
    assert whole.answers.keys() == streamed.answers.keys()
    for question, answers in whole.answers.items():
        assert answers.equals(streamed.answers[question])
    assert whole.left_out == streamed.left_out and str(whole.item_table) == str(streamed.item_table)
