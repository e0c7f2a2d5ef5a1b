"""Answers in data frames: the names that an index holds, long and wide form, and rows that keep their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding
from crowdwise.data.alignment import RowNames, Rows, is_name, is_plain, named_rows
from crowdwise.data.encoding import Vocabulary
from crowdwise.data.frames import is_frame, is_pandas, native
from crowdwise.errors import InputError, listing


def with_index(frame: Any, given: Mapping[str, str | None]) -> Any:
    """A pandas table of answers with the names that its index holds as columns; any other table as it is.

    ``given`` maps the parts of the table to the columns that the caller named for them.
    """
    if not is_pandas(frame):
        return frame
    frame = _flat(frame if is_frame(frame) else frame.to_frame(frame.name if frame.name is not None else "label"))
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    parts = {n: [p for p in given if given[p] == n or (given[p] is None and columns.find([str(n)], p))] for n in levels}
    if "annotator" in [p for n in levels for p in parts[n]] and _is_part(frame.columns.name, "item"):
        raise InputError(
            f"The rows of this table are annotators ({frame.index.name}) and its columns items ({frame.columns.name}): "
            "turn it round, table.T."
        )
    index, found = frame.index, [str(name) for name in frame.columns]
    for at, name in reversed(list(enumerate(index.names))):
        if parts.get(name):
            frame = frame.reset_index(drop=True) if index.nlevels == 1 else frame
            frame.insert(0, name, index.get_level_values(at))
    others = [p for p in given if p not in ("item", "truth", "weight", "timestamp")]
    wide = "item" in given and all(given[p] is None and columns.find(found, p) is None for p in others)
    if wide and not any(parts.values()) and columns.find(found, "item") is None and given["item"] is None:
        frame = frame if is_plain(index) or index.nlevels > 1 else frame.reset_index(drop=True)
        if not is_plain(index) and index.nlevels == 1:
            frame.insert(0, "item", index)
    return frame


def _is_part(name: Any, part: str) -> bool:
    return name is not None and columns.find([str(name)], part) is not None


def _flat(frame: Any) -> Any:
    """A pandas table whose columns have one name each: of several levels, the one that differs. Always a new table."""
    if frame.columns.nlevels == 1:
        return frame.copy(deep=False)
    several = [n for n, level in enumerate(frame.columns.levels) if frame.columns.get_level_values(n).nunique() > 1]
    if len(several) > 1:
        outer = [str(name) for name in frame.columns.get_level_values(0).unique()]
        one = next((name for name in outer if _is_part(name, "label")), outer[0])
        raise InputError(
            f"The columns of this table have {len(several)} levels, with {listing(outer)} side by side: keep one of "
            f"them, pivot(index=..., columns=..., values={one!r})."
        )
    return frame.set_axis(frame.columns.get_level_values(several[0] if several else -1), axis=1)


def wide_parts(frame: Any) -> tuple[RowNames | None, list[Any], npt.NDArray[Any]]:
    """Names of rows, names of columns and cells of a table with a row for each item and a column for each annotator."""
    frame = with_index(native(frame), {"item": None})
    named = (names for names in Rows(frame).names if names.distinct and (names.column is None or is_name(names.column)))
    names = next(named, None)
    rest = [column for column in frame.columns if names is None or column != names.column]
    part = frame[rest] if is_pandas(frame) else frame.select(rest)
    return names, rest, np.asarray(part.to_numpy(), dtype=object)


def is_long(frame: Any, answer: str = "label") -> bool:
    """Whether a table has columns for items, annotators and answers."""
    given: dict[str, str | None] = dict.fromkeys(("item", "annotator", answer))
    table = with_index(native(frame), given)
    return all(columns.resolve([str(name) for name in table.columns], given).values())


def is_named(answers: Any) -> bool:
    """Whether answers in a table or a Series say which items they are about."""
    answers = native(answers)
    if is_frame(answers):
        return is_long(answers) or is_long(answers, "value") or wide_parts(answers)[0] is not None
    return named_rows(answers) is not None


def spread_over(table: Any, names: Vocabulary) -> Any:
    """The answers on these items, in this order; there are none on an item that the table does not have."""
    at = encoding.locate(names, table.items)
    kept = table[at[at >= 0]]
    count = np.zeros(len(names), dtype=np.int64)
    count[at >= 0] = np.diff(kept.indptr)
    truth = kept.truth
    if truth is not None:
        truth = np.full(len(names), np.nan if truth.dtype.kind == "f" else -1, dtype=truth.dtype)
        truth[at >= 0] = kept.truth
    return replace(kept, items=names, indptr=np.concatenate([[0], np.cumsum(count)]), truth=truth)
