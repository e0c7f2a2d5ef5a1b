"""What the commands share: options, the reading of votes, the writing of results."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from crowdwise import registry
from crowdwise.data.folders import write_whole
from crowdwise.errors import InputError, Option, OutputError, ParameterError, Setting, suggestion

if TYPE_CHECKING:
    from crowdwise.data.dataset import Dataset

FEATURES = (
    "The inputs: .npz (x_train, named by id_train; or a single array), .npy, a table with an item column and "
    "numbers, or a folder of images named like the items."
)

# -------------------------------------------------------------------- options


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
FixedSeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        help=f"The method; `crowdwise methods` lists them. [default: {registry.DEFAULT}, for classes]",
        show_default=False,
    ),
]
StreamMethodOption = Annotated[
    str, typer.Option("--method", "-m", help="dawid-skene, one-coin, confusion-vector or ibcc.")
]
GoldOption = Annotated[
    Path | None,
    typer.Option(
        "--gold", help="True classes the method may use. They are left out of the accuracy.", show_default=False
    ),
]
FeaturesOption = Annotated[
    Path | None,
    typer.Option(
        "--features", help=f"{FEATURES} Not needed for a folder with a features.npz of its own.", show_default=False
    ),
]
EpochsOption = Annotated[
    int | None, typer.Option("--epochs", help="How often training passes over the items.", show_default=False)
]
LabelsOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write the labels here: .csv, .jsonl or .parquet.", show_default=False),
]
ProbabilitiesOption = Annotated[
    bool, typer.Option("--probabilities", help="Add the probability of every class to the labels.")
]
AnnotatorsOption = Annotated[
    Path | None, typer.Option("--annotators", help="Write the table of annotators here.", show_default=False)
]


# -------------------------------------------------------------------- in


@dataclass(frozen=True)
class Reading:
    """How a file of votes is to be read: options of every command that reads one."""

    on_duplicate: DuplicateOption = OnDuplicate.error
    on_missing: MissingOption = OnMissing.error
    item: ItemOption = None
    annotator: AnnotatorOption = None
    label: LabelOption = None
    classes: ClassesOption = None
    form: FormOption = Form.auto

    def options(self) -> dict[str, Any]:
        """The same as options of a reader."""
        return {
            "item": self.item,
            "annotator": self.annotator,
            "label": self.label,
            "classes": None if self.classes is None else [c.strip() for c in self.classes.split(",")],
            "form": self.form.value,
            "on_duplicate": self.on_duplicate.value,
            "on_missing": self.on_missing.value,
        }

    def given(self) -> dict[str, Any]:
        """Those alone that are not what every reader does by default."""
        usual = Reading().options()
        return {name: value for name, value in self.options().items() if value != usual[name]}


AS_USUAL = Reading()


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of :class:`Reading` in the place of its parameter ``reading``."""
    own, spread = get_type_hints(command, include_extras=True), get_type_hints(Reading, include_extras=True)
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name == "reading":
            parameters += [
                parameter.replace(name=f.name, annotation=spread[f.name], default=f.default) for f in fields(Reading)
            ]
        else:
            parameters.append(parameter.replace(annotation=own[name]))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        reading = Reading(**{f.name: given.pop(f.name) for f in fields(Reading)})
        command(**given, reading=reading)

    vars(run)["__signature__"] = inspect.Signature(parameters)  # what typer looks at
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def load(path: Path, reading: Reading = AS_USUAL) -> Dataset:
    """Votes from a file, or a dataset folder with all that lies beside them."""
    from crowdwise.data.dataset import Dataset, find_table, read_dataset
    from crowdwise.data.votes import read_votes

    options = reading.options()
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


def check_arguments(name: str, function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Unknown or lacking arguments of a scenario, said before it runs."""
    parameters = {p: v for p, v in inspect.signature(function).parameters.items() if p != "random_state"}
    for argument in given:
        if argument not in parameters:
            raise ParameterError(
                f"{name} has no parameter {argument!r}: it has "
                f"{', '.join(parameters)}.{suggestion(argument, list(parameters))}"
            )
    lacking = [p for p, v in parameters.items() if v.default is inspect.Parameter.empty and p not in given]
    if lacking:
        raise ParameterError(f"{name} needs {', '.join(lacking)}: give --set {lacking[0]}=...")


def flag(option: Option, options: Collection[str]) -> str | None:
    """How a command spells an option that an error names; ``None`` where the command has no such option.

    >>> flag(Option("on_duplicate", "first", "last"), ["--on-duplicate"])
    '--on-duplicate first or last'
    >>> flag(Setting("coins", "one"), ["--set"])
    '--set coins=one'
    """
    name = {"random_state": "--seed"}.get(option.name, f"--{option.name.replace('_', '-')}")
    if name in options:
        return f"{name} {option.choice()}"
    collects = "--set" if isinstance(option, Setting) else "--column"
    return f"{collects} {option.name}={option.choice()}" if collects in options else None


def spelled(text: str, options: Collection[str]) -> str:
    """A message with ``on_missing='drop'`` as ``--on-missing drop``, for the options that a command has.

    Readers and methods are also called from Python, and word what to do for it.

    >>> spelled("Keep one with on_duplicate='first' or 'last'; declare the classes: classes=[...].",
    ...         ["--on-duplicate", "--classes"])
    'Keep one with --on-duplicate first or last; declare the classes: --classes A,B,...'
    """

    def option(match: re.Match[str]) -> str:
        name, values = match["name"], match["values"]
        flag = "--seed" if name == "random_state" else f"--{name.replace('_', '-')}"
        if flag not in options:
            if not name.startswith("on_") or "--column" not in options:
                return match[0]
            return f"--column {name}={values.strip(chr(39))}"  # what a reader of other answers takes
        if values.startswith("["):
            return f"{flag} A,B,..."
        return f"{flag} {values.replace(chr(39) + '...' + chr(39), 'NAME').replace(chr(39), '')}"

    if "--gold" in options:
        text = text.replace("truth={item: class}", "--gold FILE")
    if "--item" not in options:  # columns cannot be named
        text = re.sub(r"Name the columns, e\.g\. (item|annotator|label)='[^,]*, or pass [^.]*\.", "Rename them.", text)
    values = r"'[^']*'(?: or '[^']*')*|\[\.\.\.\]\.?|-?\d[\w.]*(?<!\.)"
    return re.sub(rf"\b(?P<name>[a-z][a-z_]*)=(?P<values>{values})", option, text)


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


def check_apart(inputs: Sequence[Path | None], outputs: Sequence[Path | None]) -> None:
    """Before the work is done: does every result have a place of its own, and none the place of what is read?"""
    from crowdwise.data.dataset import find_table

    taken: dict[Path, str] = {}
    for path in inputs:
        parts = (path,) if path is None or not path.is_dir() else (find_table(path, "votes"), find_table(path, "truth"))
        taken |= {
            part.resolve(): "is what the answers or the truth are read from" for part in parts if part is not None
        }
    for path in outputs:
        if path is not None and path.resolve() in taken:
            raise ParameterError(f"{path} {taken[path.resolve()]}: choose another name for this result.")
        if path is not None:
            taken[path.resolve()] = "is named for two results, and can hold one"


def check_save(folder: Path | None) -> None:
    """Before the work is done: can a consensus be kept there?"""
    if folder is not None and folder.exists():
        kept = folder.is_dir() and (not any(folder.iterdir()) or (folder / "consensus.json").is_file())
        if not kept:
            raise OutputError(
                f"{folder} exists and holds something else than a saved consensus. Choose another folder."
            )


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
    from crowdwise.cli import show

    show.note(text)


def emit(text: str, end: str = "\n") -> None:
    """Results, to standard output."""
    sys.stdout.write(text + end)
    sys.stdout.flush()
