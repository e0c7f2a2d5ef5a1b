"""Tables and files of comparisons and of rankings: the one road for frames and files alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding, frames, tables
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.comparisons import EVERYONE, OUTCOMES, TIE, Comparisons, OnSelf
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.files import NULLS, PathLike, read_table
from crowdwise.data.rankings import Rankings
from crowdwise.data.votes import OnMissing
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError, ReadError, listing

if TYPE_CHECKING:
    import polars as pl

__all__ = ["comparisons_from_table", "rankings_from_table", "read_comparisons", "read_rankings"]

SIDES = {
    "left": 0, "a": 0, "first": 0, "x": 0, "a1": 0, "right": 1, "b": 1, "second": 1, "y": 1, "a2": 1,
    "tie": 2, "ties": 2, "tied": 2, "draw": 2, "equal": 2, "both": 2, "same": 2, "neither": 2, "none": 2,
}  # fmt: skip
WORDS = re.compile(r"^(model|item|option|response|answer|assistant|candidate|output|system|player)[\s_\-]*(?=[ab12]$)")


# -------------------------------------------------------------------- comparisons


def comparisons_from_table(
    frame: Any,
    given: dict[str, str | None],
    *,
    outcomes: Mapping[Any, str] | None,
    placed: bool,
    on_duplicate: OnDuplicate,
    on_missing: OnMissing,
    on_self: OnSelf,
    from_text: bool = False,
) -> Comparisons:
    """Comparisons from a frame. ``from_text``: the columns were read as text, so look for integers in them."""
    table = _checked(frame, on_missing, "comparisons")
    parts = columns.resolve(table.columns, given)
    both = parts["chosen"] is not None and parts["rejected"] is not None
    pair = parts["left"] is not None and parts["right"] is not None and parts["outcome"] is not None
    if both and (given["chosen"] is not None or not pair):
        first, second, word = str(parts["chosen"]), str(parts["rejected"]), None
        placed = False
    elif pair:
        first, second, word = str(parts["left"]), str(parts["right"]), str(parts["outcome"])
    else:
        missing = [part for part in ("left", "right", "outcome") if parts[part] is None]
        names = "; ".join(f"{part} (also {', '.join(columns.ALIASES[part][1:5])}, ...)" for part in missing)
        raise ColumnError(
            f"No column found for: {names}; nor both of chosen and rejected. The table has "
            f"{listing(table.columns, 12)}. Name the columns, e.g. {missing[0]}='...'."
        )
    used = [first, second, *([] if word is None else [word]), *_named(parts, "annotator", "question")]
    table, rows = _filled(table, used, on_missing)

    a, b, items = _encode_both(table[first], table[second], from_text)
    m, annotators = _encode(table, parts["annotator"], from_text)
    q, questions = (None, None) if parts["question"] is None else _encode(table, parts["question"], from_text)
    y = np.zeros(len(a), np.int32) if word is None else _outcome(table[word], a, b, items, outcomes, rows)
    truth = None
    if parts["truth"] is not None:
        truth = _outcome(table[parts["truth"]], a, b, items, outcomes, rows)
    spot = {**parts, "row": None}
    return Comparisons.from_codes(
        a, b, m, y,
        items=items, annotators=annotators, question=q, questions=questions, weight=tables._weight(table, spot),
        timestamp=tables._timestamp(table, spot), truth=truth, placed=placed, on_duplicate=on_duplicate,
        on_self=on_self, kind=frames.kind_of(frame), rows=rows,
    )  # fmt: skip


def _outcome(
    column: pl.Series, a: Codes, b: Codes, items: Vocabulary, outcomes: Mapping[Any, str] | None,
    rows: npt.NDArray[np.int64],
) -> Codes:  # fmt: skip
    """0, 1, 2 (-1 where empty): by the caller's words, by the name of the better item, or by the usual words."""
    import polars as pl

    if column.dtype.is_float() and not bool((column.drop_nulls() == column.drop_nulls().round()).all()):
        column = column.cast(pl.String)
    code, words = encoding.encode(column)
    known = np.array([SIDES.get(WORDS.sub("", _normal(v)), -1) for v in words.tolist()], dtype=np.int32)
    known = np.where([_normal(v).startswith(("tie", "draw")) for v in words.tolist()], TIE, known).astype(np.int32)
    if outcomes is not None:
        side = {str(k): _side(v) for k, v in outcomes.items()}
        known = np.array([side.get(str(v), -1) for v in words.tolist()], dtype=np.int32)
        found = encoding.recode(code, known)
    else:
        name = encoding.recode(code, encoding.locate(words, items))
        by_name = np.where(name == a, 0, np.where(name == b, 1, -1)).astype(np.int32)
        by_word = encoding.recode(code, known)
        named = ((by_name >= 0) | (by_word == TIE) | (code < 0)).all() and (by_name >= 0).any()
        found = np.where((by_name < 0) & (by_word == TIE), TIE, by_name).astype(np.int32) if named else by_word
    bad = np.flatnonzero((found < 0) & (code >= 0))
    if len(bad):
        raise LabelError(
            f"Column {column.name!r} says {listing([words[code[bad[0]]]])} in row {rows[bad[0]]} (counted from 0): "
            "expected the name of one of the two items, or left, right or tie (also a, b, model_a, model_b, draw, "
            'equal). Say what its words mean: outcomes={1: "left", 2: "right", 0: "tie"}.'
        )
    return found


def _normal(word: Any) -> str:
    return str(word).strip().lower()


def _side(word: Any) -> int:
    if word not in OUTCOMES:
        raise ParameterError(f"outcomes names {word!r}: expected 'left', 'right' or 'tie' for every word of the table.")
    return OUTCOMES.index(word)


def read_comparisons(
    path: PathLike,
    *,
    left: str | None = None,
    right: str | None = None,
    outcome: str | None = None,
    annotator: str | None = None,
    question: str | None = None,
    weight: str | None = None,
    timestamp: str | None = None,
    truth: str | None = None,
    chosen: str | None = None,
    rejected: str | None = None,
    outcomes: Mapping[Any, str] | None = None,
    placed: bool = True,
    on_duplicate: OnDuplicate = "all",
    on_missing: OnMissing = "error",
    on_self: OnSelf = "error",
    separator: str | None = None,
    null_values: Sequence[str] = NULLS,
) -> Comparisons:
    """Comparisons from a file: CSV, TSV (compressed or not), JSON lines, Parquet, Arrow.

    The parameters are those of :meth:`crowdwise.Comparisons.from_frame` and :func:`crowdwise.read_votes`.
    """
    given = {
        "left": left, "right": right, "outcome": outcome, "annotator": annotator, "question": question,
        "weight": weight, "timestamp": timestamp, "truth": truth, "chosen": chosen, "rejected": rejected,
    }  # fmt: skip
    table, from_text = read_table(path, given, separator=separator, null_values=null_values)
    if table.height == 0:
        raise ReadError(f"{path} has no comparisons: it names {listing(table.columns, 12)} and has no rows.")
    return comparisons_from_table(
        table, given, outcomes=outcomes, placed=placed, on_duplicate=on_duplicate, on_missing=on_missing,
        on_self=on_self, from_text=from_text,
    )  # fmt: skip


# -------------------------------------------------------------------- rankings


def rankings_from_table(
    frame: Any, given: dict[str, str | None], *, on_missing: OnMissing, from_text: bool = False
) -> Rankings:
    """Rankings from a frame with one row for each ranked item."""
    import polars as pl

    table = _checked(frame, on_missing, "rankings")
    parts = columns.resolve(table.columns, given)
    missing = [part for part in ("item", "rank") if parts[part] is None]
    if missing:
        names = "; ".join(f"{part} (also {', '.join(columns.ALIASES[part][1:5])}, ...)" for part in missing)
        raise ColumnError(
            f"No column found for: {names}. The table has {listing(table.columns, 12)}. "
            f"Name the columns, e.g. {missing[0]}='...'."
        )
    table, rows = _filled(
        table, [str(parts["item"]), str(parts["rank"]), *_named(parts, "annotator", "question")], on_missing
    )
    place = table[str(parts["rank"])].cast(pl.Float64, strict=False)
    if place.null_count():
        at = int(place.is_null().arg_true()[0])
        raise LabelError(
            f"The rank in row {rows[at]} (counted from 0) is {table[str(parts['rank'])][at]!r}: expected a number, "
            "1 for the best."
        )
    item, items = _encode(table, parts["item"], from_text)
    annotator, annotators = _encode(table, parts["annotator"], from_text)
    question, questions = _encode(table, parts["question"], from_text)
    key = annotator.astype(np.int64) * len(questions) + question
    order = np.lexsort((place.to_numpy(), key))
    distinct, first = np.unique(key[order], return_index=True)
    ordered = place.to_numpy()[order]
    tied = np.flatnonzero((np.diff(ordered) == 0) & (np.diff(key[order]) == 0))
    if len(tied):
        pair = order[tied[0] : tied[0] + 2]
        raise LabelError(
            f"Rows {rows[pair[0]]} and {rows[pair[1]]} (counted from 0) give {listing(items[item[pair]])} the same "
            "rank. Plackett-Luce has no ties: break them, or turn the rankings into Comparisons with ties."
        )
    weight = tables._weight(table, {**parts, "row": None})
    return Rankings.from_codes(
        np.append(first, len(key)), item[order], annotator[order][first],
        items=items, annotators=annotators, question=question[order][first], questions=questions,
        weight=None if weight is None else weight[order][first], kind=frames.kind_of(frame),
    )  # fmt: skip


def read_rankings(
    path: PathLike,
    *,
    item: str | None = None,
    rank: str | None = None,
    annotator: str | None = None,
    question: str | None = None,
    weight: str | None = None,
    on_missing: OnMissing = "error",
    separator: str | None = None,
    null_values: Sequence[str] = NULLS,
) -> Rankings:
    """Rankings from a file with one row for each ranked item: its annotator, question, name and rank (1 the best)."""
    given = {"item": item, "rank": rank, "annotator": annotator, "question": question, "weight": weight}
    table, from_text = read_table(path, given, separator=separator, null_values=null_values)
    if table.height == 0:
        raise ReadError(f"{path} has no rankings: it names {listing(table.columns, 12)} and has no rows.")
    return rankings_from_table(table, given, on_missing=on_missing, from_text=from_text)


# -------------------------------------------------------------------- the pieces


def _checked(frame: Any, on_missing: OnMissing, what: str) -> pl.DataFrame:
    if on_missing not in ("error", "drop"):
        raise ParameterError(f"on_missing={on_missing!r}: expected 'error' or 'drop'.")
    table = frames.to_polars(frame)
    if table.width == 0 or table.height == 0:
        raise InputError(f"No {what}: the table has {table.height} rows and {table.width} columns.")
    return table


def _named(parts: dict[str, str | None], *wanted: str) -> list[str]:
    return [name for part in wanted if (name := parts[part]) is not None]


def _filled(table: pl.DataFrame, used: list[str], on_missing: OnMissing) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
    """The rows in which every used column holds something, and their numbers; an error that names the others."""
    import polars as pl

    empty = np.zeros(table.height, dtype=bool)
    for name in used:
        column = table[name]
        lost = (column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()).to_numpy()
        if lost.any() and on_missing == "error":
            at = np.flatnonzero(lost)
            raise LabelError(
                f"{len(at):,} {'rows have' if len(at) > 1 else 'row has'} nothing in column {name!r}: "
                f"{'rows' if len(at) > 1 else 'row'} {listing(at)}, counted from 0. "
                "Fill them in, or leave them out with on_missing='drop'."
            )
        empty |= lost
    rows = np.flatnonzero(~empty)
    if len(rows) == 0:
        raise InputError(f"No row has all of {listing(used)}.")
    return (table if len(rows) == table.height else table.filter(pl.Series(~empty))), rows


def _encode(table: pl.DataFrame, name: str | None, from_text: bool) -> tuple[Codes, Vocabulary]:
    if name is None:
        return np.zeros(table.height, dtype=np.int32), encoding.to_vocabulary([EVERYONE])
    code, names = encoding.encode(table[name])
    return encoding.integers_in_text(code, names) if from_text else (code, names)


def _encode_both(left: pl.Series, right: pl.Series, from_text: bool) -> tuple[Codes, Codes, Vocabulary]:
    """Codes of both columns of items into one vocabulary."""
    import polars as pl

    kinds = [pl.String if s.dtype in (pl.Categorical, pl.Enum) else s.dtype for s in (left, right)]
    if kinds[0] != kinds[1] and not all(kind.is_numeric() for kind in kinds):
        raise ColumnError(
            f"Items are {left.dtype} values in column {left.name!r} and {right.dtype} values in {right.name!r}. "
            "Convert one of them first."
        )
    if kinds[0] != kinds[1]:
        left, right = left.cast(pl.Float64), right.cast(pl.Float64)
    elif kinds[0] == pl.String:
        left, right = left.cast(pl.String), right.cast(pl.String)
    code, items = encoding.encode(pl.concat([left.alias("item"), right.alias("item")]))
    if from_text:
        code, items = encoding.integers_in_text(code, items)
    return code[: len(left)], code[len(left) :], items
