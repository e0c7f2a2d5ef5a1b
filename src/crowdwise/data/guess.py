"""What type of answers a file or a dataframe holds, going by its columns and first rows, and which table reads it.

A guess is only made where it is clear; all else is taken for votes. So are a rank, two texts or categories beside an
item, an annotator and a label.

================  ================================================================================================
answer type       taken for it when there is
================  ================================================================================================
``similarities``  two item columns, and a column ``same`` (or one whose words are same/different)
``comparisons``   two item columns and a column that says which won, or the columns ``chosen`` and ``rejected``
``rankings``      item, annotator and a column ``rank`` (and no labels), or a column ``ranking``
``tags``          a sequence, a position in it and a column ``tag``; or labels like O, B-PER, I-PER
``label-sets``    item, annotator and a column ``labels``, or labels that are lists
``ratings``       item, annotator and numbers with fractions, and nothing else, where labels would be; of whole numbers
                  all rows decide (:mod:`crowdwise.data.label_checks`)
``ordinal``       never guessed: that classes have an order is not written in a file
================  ================================================================================================
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crowdwise.data.answer_frames import with_index
from crowdwise.data.column_content import ENOUGH, lists_in, named_like_an_id, numbers_in
from crowdwise.data.columns import ALIASES, DIFFERENT, SAME, normal
from crowdwise.data.files import TableFile
from crowdwise.data.frames import native, to_polars
from crowdwise.errors import InputError, InputWarning

if TYPE_CHECKING:
    import polars as pl

ROWS = 200
"""How many rows are looked at."""
FIRST = {*ALIASES["item_a"], "model a", "option a", "response a", "answer a", "model 1"}
SECOND = {*ALIASES["item_b"], "model b", "option b", "response b", "answer b", "model 2"}
WON = ("winner", "preferred", "preference", "outcome", "verdict", "better")
SIDES = {"left", "right", "a", "b", "model_a", "model_b", "model a", "model b", "tie", "first", "second"}
SETS = {"labels", "label set", "labelset", "chosen labels"}
"""Columns of label sets whatever else there is, but for a column ``label``."""
CLEAR = {w for w in (*SAME, *DIFFERENT) if re.fullmatch(r"[a-z][a-z -]{2,}", w)} - {"yes", "true", "false"}
"""Words for same and different that stand for nothing else."""
BIO = re.compile(r"^(O|[BIESLU]-\S+)$")


@dataclass(frozen=True)
class Guess:
    """A kind of answers, and why; ``doubt`` names another that it may be, where nothing in the file decides."""

    kind: str
    reason: str
    doubt: str = ""


def guess(
    columns: Sequence[str], rows: Mapping[str, Sequence[Any]], given: Mapping[str, str | None] | None = None,
    shown_by: Mapping[str, tuple[str, ...]] | None = None,
) -> Guess:  # fmt: skip
    """The kind of answers in a table with such columns, whose first values are ``rows[column]``.

    ``given`` maps ``item``, ``annotator`` and ``label`` to the columns that the user named for them; ``shown_by`` kinds
    to columns that show them, beside an item and an annotator and without a label.

    >>> guess(["item_a", "item_b", "worker", "same"], {}).kind
    'similarities'
    >>> guess(["task", "worker", "label"], {"label": ["cat", "dog"]})
    Guess(kind='votes', reason='nothing speaks for another kind', doubt='')
    """
    named = {part: column for part, column in (given or {}).items() if column in columns}
    names = {normal(c): c for c in columns if c not in named.values() and not _is_row_id(c, rows.get(c, ()))}
    item, who, label = (named.get(part) or _any(names, ALIASES[part]) for part in ("item", "annotator", "label"))
    complete = item is not None and who is not None and label is not None
    first, second = ([names[n] for n in names if n in words] for words in (FIRST, SECOND))
    if first and second:
        both = f"{first[0]!r} and {second[0]!r} are two items"
        same = _any(names, ALIASES["same"])
        if same:
            return Guess("similarities", f"{both}, and {same!r} says whether they are the same")
        won = _any(names, WON)
        if won:
            return Guess("comparisons", f"{both}, and {won!r} says which is better")
        said = _words(rows, label)
        if said and said <= {*SAME, *DIFFERENT} and said & CLEAR:
            return Guess("similarities", f"{both}, and {label!r} says same or different")
        if said and said <= SIDES:
            return Guess("comparisons", f"{both}, and {label!r} says which")
    doubts: list[Guess] = []
    if "chosen" in names and "rejected" in names:
        doubts.append(Guess("comparisons", f"{names['chosen']!r} was preferred to {names['rejected']!r}"))
    if "ranking" in names or (who and item and ("rank" in names)):
        doubts.append(Guess("rankings", f"{names.get('ranking', names.get('rank'))!r} puts items in order"))
    if doubts and not complete:
        return doubts[0]
    sequence, position = _any(names, ALIASES["sequence"]), _any(names, ALIASES["position"])
    if sequence and position and "tag" in names:
        return Guess("tags", f"{names['tag']!r} is given for every {position!r} of a {sequence!r}")
    if sequence and position and label and _is_bio(rows, label):
        return Guess("tags", f"{label!r} holds tags such as O, B-... and I-...")
    if who and item:
        several = _any(names, ALIASES["labels"])
        if several and (label is None or (normal(several) in SETS and "label" not in names and "label" not in named)):
            return Guess("label-sets", f"{several!r} holds any number of labels")
        if label and label == named.get("label") and normal(label) in ALIASES["labels"]:
            return Guess("label-sets", f"{label!r} holds any number of labels")
        said_of = rows.get(label or "", ())
        if any(isinstance(value, (list, tuple)) for value in said_of) or lists_in(said_of) is not None:
            return Guess("label-sets", f"{label!r} holds lists of labels")
        value = named.get("label") or _any(names, ALIASES["value"])
        numbers = set(_numbers(rows.get(label or value or "", ())))
        if any(not number.is_integer() for number in numbers):
            return Guess("ratings", f"{value!r} holds numbers with fractions")
        if numbers and not label:
            return Guess("ratings", f"{value!r} holds numbers, and no column is called a label")
    if item and who and not label:
        for kind, needed in (shown_by or {}).items():
            if needed and all(name in names for name in needed):
                return Guess(kind, f"{names[needed[0]]!r} is there, and no column is called a label")
    if doubts and "label" not in named:
        return Guess("votes", doubts[0].reason, doubts[0].kind)
    return Guess("votes", "nothing speaks for another kind")


def glance_at(frame: Any) -> pl.DataFrame | None:
    """The first rows of a dataframe; ``None`` where it is none (whoever reads all of it will say why)."""
    if isinstance(frame, Mapping):
        head: Any = {name: values[:ROWS] for name, values in frame.items() if hasattr(values, "__getitem__")}
    elif hasattr(frame, "head"):
        head = frame.head(ROWS)
    elif hasattr(frame, "slice") and hasattr(frame, "column_names"):
        head = frame.slice(0, ROWS)
    else:
        return None
    try:
        return to_polars(with_index(native(head), dict.fromkeys(("item", "annotator", "label"))))
    except InputError:
        return None


def glance(file: TableFile) -> pl.DataFrame | None:
    """The first rows of a file as they are; ``None`` where it cannot be read (whoever reads all of it will say why)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # whoever reads all of it says that
        try:
            return file.head(ROWS)
        except InputError:
            return None


def _any(names: Mapping[str, str], words: Sequence[str]) -> str | None:
    """The column that has one of these names: the first of them that there is, as readers choose."""
    return next((names[word] for word in words if word in names), None)


def _is_row_id(column: str, values: Sequence[Any]) -> bool:
    """Whether a column numbers the rows, as ``annotation_id`` may: readers take it for no label."""
    filled = [value for value in values if isinstance(value, (str, int))]
    ids = normal(column) in ALIASES["label"] and named_like_an_id(column)
    return ids and len(filled) >= ENOUGH and len(set(filled)) == len(filled)


def _words(rows: Mapping[str, Sequence[Any]], column: str | None) -> set[str]:
    return {str(v).strip().lower() for v in rows.get(column or "", ()) if v is not None}


def _is_bio(rows: Mapping[str, Sequence[Any]], column: str) -> bool:
    said = {str(v) for v in rows.get(column, ()) if v is not None}
    return "O" in said and len(said) > 1 and all(BIO.match(word) for word in said)


def _numbers(values: Sequence[Any]) -> list[float]:
    """The values, if all are numbers; else none."""
    numbers = numbers_in(value for value in values if value is not None) or []
    return [number for number in numbers if number == number and abs(number) < 1e300]
