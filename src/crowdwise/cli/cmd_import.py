"""``crowdwise import``: from the export of an annotation tool to tables that every command reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import JsonOption, option
from crowdwise.cli.outputs import emit, say
from crowdwise.data.folders import check_target

PathArgument = Annotated[
    Path,
    typer.Argument(help="What the tool exported: a file, a zip archive or a folder.", show_default=False),
]
OutOption = Annotated[Path | None, option("--out", "-o", help="The folder to write tables into; new, or empty.")]
ToolOption = Annotated[
    str, typer.Option("--tool", help=f"The tool: {', '.join(registry.IMPORTERS)}; auto recognises it.")
]
QuestionOption = Annotated[str | None, option("--question", help="Import this question alone.")]
PredictionsOption = Annotated[
    bool, typer.Option("--predictions", help="Take predictions of models as annotators called model:NAME.")
]


def import_(
    path: PathArgument, out: OutOption = None, tool: ToolOption = "auto", question: QuestionOption = None,
    predictions: PredictionsOption = False, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Read an export of an annotation tool: a folder of tables for each question.

    The tables are labels, items and annotators. The tool is recognised by the content of the file. What was left out
    (skipped, rejected, drafts...) is said, with counts. Without --out nothing is written.

    Examples:

    `crowdwise import project-7.json --out votes && crowdwise report votes`

    `crowdwise import batch_results.csv --out votes --question sentiment`
    """
    from crowdwise.importers.read_export import read_export

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
