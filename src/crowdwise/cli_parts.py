"""What the commands share: options, the reading of votes, the writing of results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise.core.folders import write_whole
from crowdwise.errors import InputError, OutputError, ParameterError

if TYPE_CHECKING:
    from crowdwise.data.datasets import Dataset


class OnDuplicate(StrEnum):
    error = "error"
    first = "first"
    last = "last"
    all = "all"


class OnMissing(StrEnum):
    error = "error"
    drop = "drop"


class Form(StrEnum):
    auto = "auto"
    long = "long"
    wide = "wide"


PathArgument = Annotated[
    Path,
    typer.Argument(
        help=(
            "A file of votes (.csv, .tsv, .jsonl, .parquet, .arrow; text also .gz) or a dataset folder with labels.csv."
        ),
        show_default=False,
    ),
]
ItemOption = Annotated[
    str | None,
    typer.Option("--item", help="The item column, if it is not called item, task, unit, ...", show_default=False),
]
AnnotatorOption = Annotated[
    str | None,
    typer.Option(
        "--annotator",
        help="The annotator column, if it is not called annotator, worker, rater, ...",
        show_default=False,
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        "--label", help="The label column, if it is not called label, answer, response, ...", show_default=False
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option("--classes", help="All classes, comma-separated, where nobody used some of them.", show_default=False),
]
FormOption = Annotated[Form, typer.Option("--form", help="long: a row per vote. wide: a column per annotator.")]
DuplicateOption = Annotated[
    OnDuplicate,
    typer.Option("--on-duplicate", help="When an annotator labelled an item twice: stop, keep one row, or count all."),
]
MissingOption = Annotated[
    OnMissing, typer.Option("--on-missing", help="Rows without a label: stop, or leave them out.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A parameter, as name=value; repeat for more. See `crowdwise methods --json`.", show_default=False
    ),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of everything random.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


# -------------------------------------------------------------------- in


def load(
    path: Path,
    item: str | None,
    annotator: str | None,
    label: str | None,
    classes: str | None,
    form: Form,
    on_duplicate: OnDuplicate,
    on_missing: OnMissing,
) -> Dataset:
    """Votes from a file, or a dataset folder with all that lies beside them."""
    from crowdwise.data.datasets import Dataset, find_table, read_dataset
    from crowdwise.data.readers import read_votes

    options: dict[str, Any] = {
        "item": item,
        "annotator": annotator,
        "label": label,
        "form": form.value,
        "on_duplicate": on_duplicate.value,
        "on_missing": on_missing.value,
        "classes": None if classes is None else [c.strip() for c in classes.split(",")],
    }
    if not path.is_dir():
        return Dataset(path.name, read_votes(path, **options))
    if find_table(path, "votes") is None and (path / "consensus.json").is_file():
        raise InputError(f"{path} holds a saved consensus, not votes: load it with crowdwise.Consensus.load.")
    return read_dataset(path, **options)


def assignments(given: list[str] | None) -> dict[str, Any]:
    """``["tol=1e-6", "prior=crowd"]`` as a dict; values are read as JSON where they are JSON, else as text."""
    out: dict[str, Any] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ParameterError(f"--set {text}: expected name=value, such as --set tol=1e-6.")
        try:
            out[name.strip()] = json.loads(value)
        except ValueError:
            out[name.strip()] = {"None": None, "True": True, "False": False}.get(value, value)
    return out


# -------------------------------------------------------------------- out

TABLES = (".csv", ".jsonl", ".parquet")


def check_outputs(*paths: Path | None, endings: Sequence[str] = TABLES) -> None:
    """Before the work is done: can the results be written where they should go?"""
    for path in paths:
        if path is None:
            continue
        if path.suffix.lower().replace(".ndjson", ".jsonl") not in endings:
            known = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
            raise ParameterError(f"Cannot tell how to write {path.name}: expected a name ending in {known}.")
        if path.is_dir():
            raise OutputError(f"{path} is a folder: name a file in it.")
        if not path.parent.is_dir():
            raise OutputError(f"There is no folder {path.parent} to write {path.name} to.")
        if not os.access(path.parent, os.W_OK):
            raise OutputError(f"The folder {path.parent} cannot be written to.")


def writer(path: Path) -> str | None:
    """The polars method that writes a file of this name."""
    return {".csv": "write_csv", ".jsonl": "write_ndjson", ".ndjson": "write_ndjson", ".parquet": "write_parquet"}.get(
        path.suffix.lower()
    )


def write_table(table: Any, path: Path) -> None:
    """Write a table, whole or not at all."""
    write_whole(getattr(table, str(writer(path))), path)


def say(text: str) -> None:
    """A line for people, to standard error."""
    from crowdwise import terminal

    terminal.note(text)


def emit(text: str, end: str = "\n") -> None:
    """Results, to standard output."""
    sys.stdout.write(text + end)
    sys.stdout.flush()
