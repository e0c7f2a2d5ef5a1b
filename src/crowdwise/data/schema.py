"""What a table is made of: the columns it reads, the options that say how, and a signature for ``help()`` from both.

A table declares its columns and options once. Keywords of ``from_frame``, of ``from_records`` and of the file reader,
their checks and their documentation all come from that declaration.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypedDict

import numpy.typing as npt

from crowdwise.data.columns import ALIASES
from crowdwise.errors import Option, ParameterError, Remedy, either, suggestion

OnDuplicate = Literal["error", "first", "last", "all"]
OnMissing = Literal["error", "drop", "fill"]
Form = Literal["auto", "long", "wide"]
CHOICES = ("error", "first", "last", "all")
"""What ``on_duplicate`` may be."""
NULLS = ("", "NA", "NaN", "nan", "null")
BLANK = r"^\s*$"
"""Text that is neither a name nor a label: nothing, or blanks alone."""


@dataclass(frozen=True)
class Col:
    """A column of a table: its name, which is also the keyword that names it in a frame.

    ``of`` is the vocabulary behind its codes. A row without a ``needed`` column is not an answer. ``per`` is what the
    array of this name in the table has an entry for: a row, an item, or nothing where the table has no such array."""

    name: str
    of: str = ""
    needed: bool = False
    per: Literal["row", "item", ""] = "row"


@dataclass(frozen=True)
class Opt:
    """An option beside the columns. ``choices`` are all values that it takes, where they can be listed."""

    name: str
    default: Any
    doc: str
    type: Any
    choices: tuple[Any, ...] = ()

    def check(self, value: Any) -> None:
        if self.choices and value not in self.choices:
            raise ParameterError(f"{self.name}={value!r}: expected {either([repr(c) for c in self.choices])}.")


ITEM = Col("item", "items", needed=True)
ANNOTATOR = Col("annotator", "annotators", needed=True)
COMMON = (Col("weight"), Col("timestamp"))


def on_duplicate(act: str, *choices: str, default: str = "error") -> Opt:
    """What to do when an annotator ``act`` twice."""
    doc = f'What to do when an annotator {act} twice: ``"error"``, or keep the ``"first"`` or ``"last"`` row'
    counts = ', or count ``"all"`` of them' if "all" in choices else ""
    return Opt("on_duplicate", default, f"{doc}{counts}.", str, choices)


def on_missing(what: str, fills: bool = True) -> Opt:
    doc = f'``"drop"`` leaves out rows without {what} instead of raising'
    if fills:
        doc += '; ``"fill"`` takes empty names of items and annotators from the row above, as merged cells mean them'
    return Opt("on_missing", "error", f"{doc}.", OnMissing, ("error", "drop", "fill")[: 2 + fills])


def declared(name: str, what: str, more: str = "") -> Opt:
    """A list of all names, used or not."""
    return Opt(name, None, f"All {what}, in order; may hold some that no row uses.{more}", list[Any] | None)


FORM = Opt(
    "form", "auto",
    '``"wide"``: every column that plays no other part is an annotator; a weight or timestamp holds for its whole row. '
    '``"auto"`` takes the long form wherever its columns are found.',
    Form, ("auto", "long", "wide"),
)  # fmt: skip
ANNOTATOR_COLUMNS = Opt(
    "annotator_columns", None,
    "The columns of annotators of a wide table, where not all of them, or others, are taken for such.",
    list[str] | None,
)  # fmt: skip
ANONYMOUS = Opt(
    "anonymous", False,
    "There is no column of annotators: every row is a vote of an unknown one. The default method is then the majority.",
    bool,
)  # fmt: skip
QUESTION = Opt(
    "question", None,
    "Which question to read, where a column named ``question`` says which one a row answers.", str | None,
)  # fmt: skip
ABSTAIN = Opt(
    "abstain", None,
    'The label that stands for no answer, such as ``-1`` or ``"ABSTAIN"`` (``""``: an empty cell). Such cells and '
    "empty ones are not votes; their items and annotators stay. By default every label is a class.",
    Any,
)  # fmt: skip
TRUTH_PATH = Opt("truth_path", None, "A second file with the truth of some items.", Any)
FILE = (
    Opt("separator", None, "The column separator of a text file, where it should not be guessed.", str | None),
    Opt("null_values", NULLS, "What counts as an empty cell in a text file.", tuple[str, ...]),
    Opt("encoding", None, "The encoding of a text file; UTF-8, UTF-16 and Latin-1 are found out.", str | None),
    Opt("sheet", None, "The sheet of a spreadsheet; by default the first with columns of answers.", str | None),
    Opt("skip_rows", None, "How many lines, or rows of a sheet, stand above the names of columns.", int | None),
)


class Beside(TypedDict, total=False):
    """What ``from_codes`` of every table takes beside the answers. ``rows`` are the numbers by which messages call the
    rows, where those are not simply their positions."""

    weight: npt.ArrayLike | None
    timestamp: npt.NDArray[Any] | None
    truth: Any
    on_duplicate: Any
    kind: str
    rows: Any


def sort_out(
    given: Mapping[str, Any], columns: Sequence[Col], options: Iterable[Opt], what: str
) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Keywords as the columns that they name (``None``: look for it) and the options (checked, with defaults)."""
    named: dict[str, str | None] = {column.name: None for column in columns}
    values = {option.name: option.default for option in options}
    for name, value in given.items():
        if name not in named and name not in values:
            known = [*named, *values]
            near = suggestion(name, known)
            leave = () if near else Remedy("{}: leave it out.", Option(name, python="...", command=""))
            raise ParameterError(f"{what} has no option {name!r}: it has {', '.join(known)}.{near}", remedy=leave)
        (named if name in named else values)[name] = value
    for option in options:
        option.check(values[option.name])
    return named, values


def documented(
    function: Callable[..., Any], summary: str, first: tuple[str, str], columns: Sequence[Col], options: Iterable[Opt]
) -> None:
    """Give a function of ``(first, **keywords)`` the signature and docstring that a declaration implies. ``first`` is
    the name of the first argument and what it is."""
    make, keyword = inspect.Parameter, inspect.Parameter.KEYWORD_ONLY
    positional = [name for name in inspect.signature(function).parameters if name == "cls"] + [first[0]]
    parameters = [make(name, make.POSITIONAL_OR_KEYWORD) for name in positional]
    parameters += [make(c.name, keyword, default=None, annotation=str | None) for c in columns]
    options = list(options)
    parameters += [make(o.name, keyword, default=o.default, annotation=o.type) for o in options]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    usual = "; ".join(
        f"{c.name}: {', '.join(ALIASES[c.name][1:4])}..." for c in columns if c.needed and c.name in ALIASES
    )
    where = f"The columns, where their names are not among the usual ones ({usual})."
    lines = [summary, "", "Parameters", "----------"]
    for name, doc in (first, (", ".join(c.name for c in columns), where), *((o.name, o.doc) for o in options)):
        lines += [name, _indented(doc)]
    function.__doc__ = "\n".join(lines)


@cache
def _indented(doc: str) -> str:
    return textwrap.fill(doc, 100, initial_indent="    ", subsequent_indent="    ")


def spelled_out(function: Callable[..., Any], repeated: str) -> None:
    """Give a ``from_codes`` of ``(..., **beside)`` the signature with all of :class:`Beside` in it."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    defaults = {"on_duplicate": repeated, "kind": "polars"}
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=hint)
        for name, hint in Beside.__annotations__.items()
        if name not in signature.parameters
    ]
    function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
