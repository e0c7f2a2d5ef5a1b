"""``crowdwise import`` and ``export``: from annotation tools to tables that every command reads, and labels back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import JsonOption, option
from crowdwise.cli.outputs import check_outputs, emit, say
from crowdwise.data.folders import check_target
from crowdwise.errors import ReadError

ExportArgument = Annotated[
    Path,
    typer.Argument(help="What the tool exported: a file, a zip archive or a folder.", show_default=False),
]
FolderOption = Annotated[Path | None, option("--out", "-o", help="The folder to write tables into; new, or empty.")]
FromOption = Annotated[
    str, typer.Option("--tool", help=f"The tool: {', '.join(registry.IMPORTERS)}; auto recognises it.")
]
OneQuestionOption = Annotated[str | None, option("--question", help="Import this question alone.")]
PredictionsOption = Annotated[
    bool, typer.Option("--predictions", help="Take predictions of models as annotators called model:NAME.")
]


def import_(
    path: ExportArgument, out: FolderOption = None, tool: FromOption = "auto", question: OneQuestionOption = None,
    predictions: PredictionsOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Read an export of an annotation tool: a folder of tables for each question.

    The tables are labels, items and annotators. The tool is recognised by the content of the file. What was left out
    (skipped, rejected, drafts...) is said, with counts. Without --out nothing is written.

    Examples:

    `crowdwise import project-7.json --out votes && crowdwise report votes`

    `crowdwise import batch_results.csv --out votes --question sentiment`
    """
    from crowdwise.importers.export import read_export

    check_target(out, None)
    found = read_export(path, tool, question=question, predictions=predictions)
    made = [] if out is None else found.save(out)
    if as_json:
        emit(json.dumps(facts(found, made)))
        return
    say(f"{path.name} is an export of {registry.IMPORTERS[found.tool].title}.")
    for line in found.lines():
        say(line)
    for folder in made:
        say(f"Written: {folder}. Try: crowdwise report {folder}")


def facts(found: Any, made: list[Path]) -> dict[str, Any]:
    """What was read, as JSON."""
    questions = {
        name: {"answer_type": table.answer_type, "items": table.n_items, "annotators": table.n_annotators,
               "answers": table.n_answers}
        for name, table in found.tables.items()
    }  # fmt: skip
    return {
        "tool": found.tool, "questions": questions, "left_out": dict(found.left_out), "left_alone": dict(found.alone),
        "notes": list(found.notes), "folders": [str(folder) for folder in made],
    }  # fmt: skip


PathArgument = Annotated[
    Path, typer.Argument(help="A result that was saved: crowdwise aggregate ... --save FOLDER.", show_default=False)
]
ToolOption = Annotated[
    str, typer.Option("--to", help="label-studio, argilla, prodigy, doccano, coco, cvat, labelme, brat or huggingface.")
]
OutOption = Annotated[Path, option("--out", "-o", help="The file to write: .json or .jsonl.")]
ItemsOption = Annotated[
    Path | None,
    option("--items", help="Texts of items: the folder of crowdwise import, or a table with an item column."),
]
QuestionOption = Annotated[str, typer.Option("--question", help="The name of the question there.")]
FieldOption = Annotated[str, typer.Option("--field", help="The column with texts or addresses, and its name there.")]


def export(
    path: PathArgument, to: ToolOption, out: OutOption, items: ItemsOption = None, question: QuestionOption = "label",
    field: FieldOption = "text",
) -> None:  # fmt: skip
    """Write consensus labels in the form that an annotation tool imports.

    Tools take them as predictions, suggestions or tasks.

    Example:

    `crowdwise import project.json -o votes && crowdwise aggregate votes --save result`

    `crowdwise export result --to label-studio --items votes --question sentiment --out predictions.json`
    """
    from crowdwise.data.dataset import find_table
    from crowdwise.data.files import read_table
    from crowdwise.exporters.write_labels import write_labels
    from crowdwise.saved import load

    check_outputs(out, endings=(".json", ".jsonl", ".xml", ".zip"))
    result = load(path)
    table = None
    if items is not None:
        file = find_table(items, "items") if items.is_dir() else items
        if file is None:
            raise ReadError(f"{items} has no table of items: expected items.csv (or .parquet, .jsonl, ...) in it.")
        table = read_table(file)[0]
    count = write_labels(result, out, to, items=table, question=question, field=field)
    say(f"Written: {out}, labels of {count:,} items for {to}.")
