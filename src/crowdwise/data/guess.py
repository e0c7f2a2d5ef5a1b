"""What type of answers a file holds, going by its columns and first rows, and which table reads it.

A guess is only made where it is clear; all else is taken for votes.

================  ================================================================================================
answer type       taken for it when there is
================  ================================================================================================
``similarities``  two item columns, and a column ``same`` (or one whose words are same/different)
``comparisons``   two item columns and a column that says which won, or the columns ``chosen`` and ``rejected``
``rankings``      item, annotator and a column ``rank``, or a column ``ranking``
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdwise.data.column_content import numbers_in
from crowdwise.data.columns import ALIASES, DIFFERENT, SAME, normal
from crowdwise.data.files import read_table
from crowdwise.errors import InputError, InputWarning

if TYPE_CHECKING:
    import polars as pl

ROWS = 200
"""How many rows are looked at."""
FIRST = {*ALIASES["item_a"], "model a", "option a", "response a", "answer a", "model 1"}
SECOND = {*ALIASES["item_b"], "model b", "option b", "response b", "answer b", "model 2"}
WON = {"winner", "preferred", "preference", "outcome", "verdict", "better"}
SIDES = {"left", "right", "a", "b", "model_a", "model_b", "model a", "model b", "tie", "first", "second"}
SEQUENCE = {"sequence", "sentence", "sent", "document", "doc", "paragraph", "utterance"}
POSITION = {"position", "token", "index", "token index", "token position", "offset"}
CLEAR = {w for w in (*SAME, *DIFFERENT) if re.fullmatch(r"[a-z][a-z -]{2,}", w)} - {"yes", "true", "false"}
"""Words for same and different that stand for nothing else."""
NUMBERS = ("label", "value", "rating", "score", "number", "estimate", "measurement", "answer", "response")
BIO = re.compile(r"^(O|[BIESLU]-\S+)$")


@dataclass(frozen=True)
class Guess:
    """A kind of answers, and why; ``doubt`` names another that it may be, where nothing in the file decides."""

    kind: str
    reason: str
    doubt: str = ""


def guess(columns: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> Guess:
    """The kind of answers in a table with such columns, whose first values are ``rows[column]``.

    >>> guess(["item_a", "item_b", "worker", "same"], {}).kind
    'similarities'
    >>> guess(["task", "worker", "label"], {"label": ["cat", "dog"]})
    Guess(kind='votes', reason='nothing speaks for another kind', doubt='')
    """
    names = {normal(c): c for c in columns}
    first, second = ([names[n] for n in names if n in words] for words in (FIRST, SECOND))
    who = _any(names, ALIASES["annotator"])
    if first and second:
        both = f"{first[0]!r} and {second[0]!r} are two items"
        same = _any(names, ALIASES["same"])
        if same:
            return Guess("similarities", f"{both}, and {same!r} says whether they are the same")
        won = _any(names, WON)
        if won:
            return Guess("comparisons", f"{both}, and {won!r} says which is better")
        label = _any(names, ALIASES["label"])
        said = _words(rows, label)
        if said and said <= {*SAME, *DIFFERENT} and said & CLEAR:
            return Guess("similarities", f"{both}, and {label!r} says same or different")
        if said and said <= SIDES:
            return Guess("comparisons", f"{both}, and {label!r} says which")
    if "chosen" in names and "rejected" in names:
        return Guess("comparisons", f"{names['chosen']!r} was preferred to {names['rejected']!r}")
    item = _any(names, ALIASES["item"])
    if "ranking" in names or (who and item and ("rank" in names)):
        return Guess("rankings", f"{names.get('ranking', names.get('rank'))!r} puts items in order")
    sequence, position = _any(names, SEQUENCE), _any(names, POSITION)
    label = _any(names, ALIASES["label"])
    if sequence and position and "tag" in names:
        return Guess("tags", f"{names['tag']!r} is given for every {position!r} of a {sequence!r}")
    if sequence and position and label and _is_bio(rows, label):
        return Guess("tags", f"{label!r} holds tags such as O, B-... and I-...")
    if who and item:
        several = _any(names, ALIASES["labels"])
        if several and several != label:
            return Guess("label-sets", f"{several!r} holds any number of labels")
        if label and any(isinstance(value, (list, tuple)) for value in rows.get(label, ())):
            return Guess("label-sets", f"{label!r} holds lists of labels")
        value = _any(names, NUMBERS)
        numbers = set(_numbers(rows.get(value or "", ())))
        if any(not number.is_integer() for number in numbers):
            return Guess("ratings", f"{value!r} holds numbers with fractions")
        if numbers and not label:
            return Guess("ratings", f"{value!r} holds numbers, and no column is called a label")
    return Guess("votes", "nothing speaks for another kind")


def glance(path: Path) -> pl.DataFrame | None:
    """The first rows of a file as they are; ``None`` where it cannot be read (whoever reads all of it will say why)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # whoever reads all of it says that
        try:
            return read_table(path, n_rows=ROWS)[0]
        except InputError:
            return None


def _any(names: Mapping[str, str], words: Any) -> str | None:
    """The column that has one of these names."""
    return next((column for name, column in names.items() if name in words), None)


def _words(rows: Mapping[str, Sequence[Any]], column: str | None) -> set[str]:
    return {str(v).strip().lower() for v in rows.get(column or "", ()) if v is not None}


def _is_bio(rows: Mapping[str, Sequence[Any]], column: str) -> bool:
    said = {str(v) for v in rows.get(column, ()) if v is not None}
    return "O" in said and len(said) > 1 and all(BIO.match(word) for word in said)


def _numbers(values: Sequence[Any]) -> list[float]:
    """The values, if all are numbers; else none."""
    numbers = numbers_in(value for value in values if value is not None) or []
    return [number for number in numbers if number == number and abs(number) < 1e300]
