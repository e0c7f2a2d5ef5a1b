"""``crowdwise export``: consensus labels back into an annotation tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_outputs, say
from crowdwise.errors import ReadError

PathArgument = Annotated[
    Path, typer.Argument(help="A result that was saved: crowdwise aggregate ... --save FOLDER.", show_default=False)
]
ToolOption = Annotated[str, typer.Option("--to", help="label-studio, argilla, prodigy, doccano, coco or huggingface.")]
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

    check_outputs(out, endings=(".json", ".jsonl"))
    result = load(path)
    table = None
    if items is not None:
        file = find_table(items, "items") if items.is_dir() else items
        if file is None:
            raise ReadError(f"{items} has no table of items: expected items.csv (or .parquet, .jsonl, ...) in it.")
        table = read_table(file)[0]
    count = write_labels(result, out, to, items=table, question=question, field=field)
    say(f"Written: {out}, labels of {count:,} items for {to}.")
