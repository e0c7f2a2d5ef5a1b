"""Tables of votes as people lay them out, which are neither long nor wide with a named column of items.

=========================  =========================================================================================
layout                     how it is known
=========================  =========================================================================================
items without a name       the first column has no name, or is called ``Nr.`` or ``ID``; every row has its own
pairs of columns           ``Annotator 1``, ``Label 1``, ``Annotator 2``, ``Label 2``...
a tick per class           item, annotator, and a column for each class, of which every row has exactly one marked
annotators in rows         an annotator (or the mail address of a form), and a column for each item
a row of totals            the last rows of a wide table are called ``Total`` or so, and hold what no other row does
=========================  =========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from crowdwise.data import columns
from crowdwise.data.encoding import Counts
from crowdwise.data.heavy import pl
from crowdwise.data.spellings import folded
from crowdwise.errors import listing

NUMBERED = re.compile(r"(.*?)[\s_\-.]*(\d+)")
ROW_NAMES = frozenset(("", "id", "nr", "no", "nº", "#", "number", "nummer", "key", "unnamed: 0", "__unnamed__0"))
"""How a first column that names items may be called, beside names such as ``text_id``."""
TICKS = frozenset(("x", "✓", "✔", "☑", "1", "1.0", "true", "yes", "y", "ja", "j", "oui", "si", "sí", "sim", "是"))
BLANKS = frozenset(("", "0", "0.0", "false", "no", "n", "nein", "non", "não", "否", "☐", "✗", "✘"))
MOST_TOTALS = 5
ROW = "row of the table"
MOST_ALONE = 0.1
"""The largest share of columns without a label of another one, such as a score, that are left out where annotators are
in rows."""
FEWEST = 3
"""The fewest columns of items, where annotators are in rows."""


class Recast(NamedTuple):
    """A table with a row for each vote, its parts, the rows of the user's table, the roles of its columns, and what to
    say."""

    table: pl.DataFrame
    parts: dict[str, str | None]
    rows: Counts
    roles: dict[str, str]
    words: str


def recast(table: pl.DataFrame, parts: Mapping[str, str | None]) -> Recast | None:
    """The votes of a table whose layout is one of those above, in the long form; ``None`` for any other."""
    has = {part for part in ("item", "annotator", "label") if parts.get(part) is not None}
    if has == {"item"}:
        return _from_pairs(table, parts)
    if has == {"item", "annotator"}:
        return _from_ticks(table, parts)
    if has == {"annotator"}:
        return _from_rows(table, parts, str(parts["annotator"]))
    mails = [name for name in table.columns if " ".join(columns.words_of(name)) in columns.NAMES["mail"]]
    return _from_rows(table, parts, mails[0]) if not has and len(mails) == 1 else None


def named_rows(table: pl.DataFrame) -> str | None:
    """The first column, where it has no name or is called as numbers of rows are, and names each row once."""
    first = table.columns[0]
    plain = first.strip().lower().rstrip(".:") in ROW_NAMES or columns.named_like_an_id(first)
    named = plain and not table[first].dtype.is_nested()
    return first if named and not table[first].null_count() and table[first].n_unique() == table.height else None


def totals(table: pl.DataFrame, item: str, others: Sequence[str], *, numbers: bool = False) -> tuple[int, bool]:
    """How many of the last rows are called totals, and may be, and whether they are: no other row has one of their
    values; of ``numbers`` each is the sum, mean, median or count of those above."""
    names = table[item].tail(MOST_TOTALS).to_list()
    count = next((n for n, name in enumerate(reversed(names)) if not columns.names_totals(str(name))), len(names))
    if not 0 < count < table.height:
        return 0, False
    above, last = table.select(others).head(-count), table.select(others).tail(count)
    if numbers:
        return count, all(_sums_up(columns.as_numbers(above[name]), columns.as_numbers(last[name])) for name in others)
    values, cells = ({cell for row in part.rows() for cell in row} - {None} for part in (above, last))
    return (count, False) if values & cells and columns.numbers_in(cells) else (0 if values & cells else count, True)


def _sums_up(above: pl.Series, last: pl.Series) -> bool:
    """Whether numbers are totals of others, rounded to two digits or better."""
    values = above.drop_nulls().to_numpy()
    totals_of = [values.sum(), values.mean(), np.median(values), len(values)] if len(values) else [0.0]
    return all(bool(np.isclose(one, totals_of, rtol=0.05).any()) for one in last.drop_nulls())


def _from_pairs(table: pl.DataFrame, parts: Mapping[str, str | None]) -> Recast | None:
    """``Annotator 1``, ``Label 1``, ``Annotator 2``..."""
    numbered_by: dict[str, dict[str, str]] = {"annotator": {}, "label": {}}
    for name in table.columns:
        match = NUMBERED.fullmatch(name.strip())
        for part, numbers in numbered_by.items():
            if match and columns.normal(match[1]) in columns.ALIASES[part]:
                numbers[match[2]] = name
    who, what = numbered_by["annotator"], numbered_by["label"]
    if len(who) < 2 or who.keys() != what.keys():
        return None
    roles = {name: part for part, numbers in numbered_by.items() for name in numbers.values()}
    rest = [ROW, *(name for name in table.columns if name not in roles)]
    mixed = any(len({table[name].dtype for name in numbers.values()}) > 1 for numbers in numbered_by.values())
    if mixed and any(table[name].dtype.is_nested() for name in roles):
        return None
    numbered = table.with_columns(pl.col(list(roles)).cast(pl.String) if mixed else []).with_row_index(ROW)
    each = [numbered.select(*rest, annotator=pl.col(who[number]), label=pl.col(what[number])) for number in who]
    filled = pl.col("annotator").is_not_null() | pl.col("label").is_not_null()
    words = f"Columns {listing([*who.values()])} name the annotators of {listing([*what.values()])}."
    return _long(pl.concat(each).filter(filled), parts, roles, words)


def _from_ticks(table: pl.DataFrame, parts: Mapping[str, str | None]) -> Recast | None:
    """A column for each class, one of which is marked in every row."""
    classes, marked = [], []
    for name in columns.left_over(table.columns, parts):
        if table[name].dtype.is_nested():
            continue
        text = table[name].cast(pl.String, strict=False).fill_null("").str.strip_chars().str.to_lowercase()
        marks = set(text.unique().to_list())
        if marks <= TICKS | BLANKS and marks & TICKS:
            classes.append(name)
            marked.append(text.is_in(list(TICKS)).to_numpy())
    if len(classes) < 2 or not (np.sum(marked, axis=0) == 1).all():
        return None
    label = pl.Series("label", [classes[k] for k in np.argmax(marked, axis=0)])
    words = f"Columns {listing(classes)} are classes, of which every row has one marked."
    long = table.drop(classes).with_columns(label).with_row_index(ROW)
    return _long(long, parts, dict.fromkeys(classes, "one class"), words)


def _from_rows(table: pl.DataFrame, parts: Mapping[str, str | None], who: str) -> Recast | None:
    """An annotator in each row, and a column for each item."""
    others = columns.left_over(table.columns, {**parts, "annotator": who})
    odd = columns.no_annotators(table, others)
    labels = {
        name: {folded(label) for label in table[name].drop_nulls().unique().to_list()}
        for name in others
        if name not in odd and not table[name].dtype.is_nested()
    }
    alone = [n for n in labels if not any(labels[n] & labels[other] for other in labels if other != n)]
    shared = len(alone) <= MOST_ALONE * len(labels)
    labels = {name: values for name, values in labels.items() if name not in alone}
    alike = len({table[name].dtype for name in labels}) == 1
    if len(labels) < FEWEST or not (shared and alike) or table[who].n_unique() < table.height:
        return None
    long = table.with_row_index(ROW).unpivot(
        list(labels), index=[ROW, who], variable_name="item", value_name="label"
    ).filter(pl.col("label").is_not_null())  # fmt: skip
    words = (
        f"Each row is an annotator (column {who!r}), and {len(labels):,} columns are items: {listing([*labels], 3)}."
    )
    only = dict.fromkeys(parts) | {"annotator": who}
    return _long(long, only, dict.fromkeys(labels, "one item"), words)


def _long(long: pl.DataFrame, parts: Mapping[str, Any], roles: dict[str, str], words: str) -> Recast:
    own = {name: part for part, name in parts.items() if name is not None}
    whole = {part: parts.get(part) or part for part in ("item", "annotator", "label")}
    rows = long[ROW].to_numpy().astype(np.int64)
    return Recast(long.drop(ROW), {**parts, **whole}, rows, {**own, **roles}, words)
