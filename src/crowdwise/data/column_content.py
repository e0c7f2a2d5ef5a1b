"""What a column holds, going by its values: the answers of an annotator, or something else (texts, notes, times, ids).

A wide table has a column for each annotator, and often more beside them. Answers repeat and are shared between
annotators; texts, times and ids are different in nearly every row, and nobody else uses them. Names help where values
do not decide: no annotator is called ``comments`` or ``created_at``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

DISTINCT = 0.9
"""Columns with a larger share of different values may be texts, times or ids."""
SHARED = 0.2
"""Where a larger share of a column's values is used by annotators, it is one of them."""
FEW = 5
"""Rows below which values say nothing."""
ENOUGH = 10
"""Rows from which on a column whose values nobody else uses is no annotator, though they repeat."""
NO_ANNOTATOR = frozenset((
    "text", "texts", "comment", "comments", "note", "notes", "remark", "remarks", "feedback", "description", "title",
    "body", "content", "message", "reason", "rationale", "explanation", "justification", "url", "link", "email", "date",
    "time", "datetime", "timestamp", "created", "updated", "created at", "updated at", "submitted at", "started at",
    "finished at", "completed at", "duration", "seconds", "lead time", "work time", "id", "uuid", "guid", "hash",
    "index", "row", "file", "filename", "path", "ip address", "confidence", "difficulty",
))  # fmt: skip
"""Names of columns, as words, that belong to no annotator."""
LAST_WORDS = frozenset((
    "text", "comment", "comments", "note", "notes", "url", "link", "date", "time", "timestamp", "at", "on", "duration",
    "seconds", "uuid", "hash", "id", "path", "file", "filename", "email",
))  # fmt: skip
"""Last words of names of columns that mostly belong to no annotator: their values decide."""
ID_WORDS = frozenset(("id", "ids", "uuid", "guid", "hash", "key"))


def words_of(name: str) -> list[str]:
    """``annotationId`` -> ``["annotation", "id"]``."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", str(name))
    return re.sub(r"[\s_\-.:]+", " ", spaced).strip().lower().split()


def named_like_an_id(name: str) -> bool:
    """Whether a column is called an id of something: ``annotation_id``, ``responseId``, ``uuid``."""
    return bool(words := words_of(name)) and words[-1] in ID_WORDS


def nearly_distinct(column: pl.Series, enough: int = FEW) -> bool:
    """Whether nearly every row has a value of its own, of those that have any."""
    filled = column.drop_nulls()
    return len(filled) >= enough and filled.n_unique() >= DISTINCT * len(filled)


def is_row_id(column: pl.Series) -> bool:
    """Whether a column is called an id, and each of at least ``ENOUGH`` rows has one of its own."""
    import polars as pl

    simple = column.dtype == pl.String or column.dtype.is_integer()
    filled = column.drop_nulls()
    return named_like_an_id(column.name) and simple and len(filled) >= ENOUGH and filled.n_unique() == len(filled)


def lists_in(cells: Iterable[Any]) -> list[list[Any]] | None:
    """Cells of text that are all lists, as JSON or Python writes them; an empty one is an empty list. ``None`` where
    one of them is something else, or none is a list.

    >>> lists_in(['["cat", "dog"]', "['cat']", ""])
    [['cat', 'dog'], ['cat'], []]
    >>> lists_in(["cat|dog"]), lists_in(["[sic] cat"])
    (None, None)
    """
    out: list[list[Any]] = []
    some = False
    for cell in cells:
        text = cell.strip() if isinstance(cell, str) else ""
        if not text and (cell is None or isinstance(cell, str)):
            out.append([])
            continue
        if not (text[:1] in "[({" and text[-1:] in "])}" and text):
            return None
        try:
            found = json.loads(text)
        except ValueError:
            try:
                found = ast.literal_eval(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return None
        if found and not isinstance(found, (list, tuple, set)):
            return None
        names = sorted(found, key=str) if isinstance(found, set) else list(found)
        if any(not isinstance(name, (str, int)) for name in names):
            return None
        some = True
        out.append(names)
    return out if some else None


def as_numbers(column: pl.Series) -> pl.Series:
    """A column as numbers, null where it holds none. Text may have a decimal comma (``1,5``), where no number has a
    point and one shows that the comma is none of thousands (``1,500``)."""
    import polars as pl

    values = column.cast(pl.Float64, strict=False)
    if column.dtype != pl.String or values.null_count() == column.null_count():
        return values
    text = column.str.strip_chars()
    comma, thousands = text.str.contains(r"^[+-]?\d+,\d+$"), text.str.contains(r"^[+-]?[1-9]\d{0,2},\d{3}$")
    pointed = values.is_not_null() & text.str.contains(".", literal=True)
    if bool(pointed.any()) or not bool((comma & ~thousands).any()):
        return values
    return text.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)


def numbers_in(values: Iterable[Any]) -> list[float] | None:
    """Values as numbers, text as in :func:`as_numbers`; ``None`` where one is none."""
    import polars as pl

    values = list(values)
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        if not all(isinstance(value, str) for value in values):
            return None
    found = as_numbers(pl.Series(values, dtype=pl.String))
    return None if found.null_count() else found.to_list()


def no_annotators(
    table: pl.DataFrame, names: Sequence[str], *, numbers: bool = False, one_sided: bool = False
) -> list[str]:
    """Those of some columns of a wide table that hold no answers of an annotator; ``numbers``: answers are numbers;
    ``one_sided``: an annotator may have a label that nobody else uses."""
    import polars as pl

    plain = [n for n in names if not (table[n].dtype.is_temporal() or table[n].dtype.is_nested())]
    odd = {n for n in names if n not in plain and table[n].null_count() < table.height}
    odd |= {n for n in plain if " ".join(words_of(n)) in NO_ANNOTATOR}
    plain = [n for n in plain if n not in odd]
    if numbers:
        return [n for n in names if n in odd | _no_numbers(table, plain)]
    fractions = {n for n in plain if table[n].dtype.is_float() and _has_fractions(table[n])}
    if any(table[n].dtype == pl.String for n in plain):
        odd |= fractions  # beside labels that are words
    plain = [n for n in plain if n not in odd]
    said = {n: {str(v).strip().casefold() for v in table[n].drop_nulls().unique().to_list()} for n in plain}
    distinct = {n for n in plain if nearly_distinct(table[n])}
    repeated = [n for n in plain if n not in distinct and said[n]]
    for name in plain:
        others = set().union(*(said[n] for n in repeated if n != name))
        shared = len(said[name] & others) / max(1, len(said[name]))
        filled = table.height - table[name].null_count()
        hinted = bool(LAST_WORDS.intersection(words_of(name)[-1:]))
        alone = not one_sided and shared == 0 and filled >= ENOUGH and _agree([said[n] for n in repeated if n != name])
        if others and ((name in distinct and shared < SHARED) or (hinted and shared == 0) or alone):
            odd.add(name)
    return [n for n in names if n in odd]


def _agree(said: Sequence[set[str]]) -> bool:
    """Whether there are two columns or more, and each shares a value with another."""
    return len(said) > 1 and all(any(mine & other for other in said if other is not mine) for mine in said)


def _has_fractions(column: pl.Series) -> bool:
    filled = column.drop_nulls().drop_nans()
    return bool((filled != filled.round()).any())


def _no_numbers(table: pl.DataFrame, names: Sequence[str]) -> set[str]:
    """Columns without a single number, where others have some."""

    def none(name: str) -> bool:
        filled = table[name].drop_nulls()
        return len(filled) > 0 and as_numbers(filled).null_count() == len(filled)

    odd = {n for n in names if none(n)}
    return odd if len(odd) < len(names) else set()
