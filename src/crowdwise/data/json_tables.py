"""Tables in JSON: arrays of objects, objects of columns, and what is nested in them.

=====================================================  ======================================================
JSON                                                   table
=====================================================  ======================================================
``[{"item": 1, ...}, ...]``                            one row per object
``[["item", "label"], [1, "cat"], ...]``               the first row names the columns
``{"item": [1, 2], "label": [...]}``                   columns (also as pandas writes them)
``{"data": [{...}, ...], "version": 2}``               the rows of the one list of objects
``{"q1": {"ann": "yes", "bob": "no"}, ...}``           one row per item, in the wide form
``{"q1": [{"annotator": ..., "label": ...}]}``         one row per answer
``[{"id": 7, "annotations": [{"worker": 1}]}, ...]``   one row per object of the inner list, with what is around
``{"meta": {"lang": "en"}}``                           a column ``lang``, but ``annotator.id`` for an id or a name
=====================================================  ======================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from crowdwise.data import columns, frames
from crowdwise.errors import ReadError, listing, warn

if TYPE_CHECKING:
    import polars as pl

SAY_LITTLE = frozenset(("id", "name", "value", "key", "uuid", "email", "username", "type", "title"))
"""Keys that say nothing without the object that they are in."""
USUAL = ("data", "rows", "records", "votes", "annotations", "answers", "labels", "judgments", "results", "examples")
"""Keys of the list that matters, where there are several."""
LOOKED_AT = 200
"""Objects that are looked at to see how they are nested."""


def read_json(content: bytes, name: str) -> pl.DataFrame:
    """A table from JSON text; ``name`` is that of the file, for messages."""
    return table_of(json.loads(content), name)


def table_of(found: Any, name: str) -> pl.DataFrame:
    """A table from what JSON holds."""
    rows = _records(found, name)
    inner = _inner_list(rows)
    flat = [_flat(row) for row in (_spread(_with_items(rows, inner), inner) if inner else rows)]
    keys = list(dict.fromkeys(key for row in flat for key in row))
    lists = {key for row in flat for key, value in row.items() if _objects(value)}  # in no table: spans, tokens...
    return frames.to_polars({key: [row.get(key) for row in flat] for key in keys if key not in lists})


def _records(found: Any, name: str) -> list[Mapping[str, Any]]:
    """The rows of a table, as objects."""
    if isinstance(found, list) and found and all(isinstance(row, list) for row in found):
        header, *rows = found
        if all(isinstance(cell, str) for cell in header) and all(len(row) == len(header) for row in rows):
            return [dict(zip(header, row, strict=True)) for row in rows]
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        return list(found)
    if isinstance(found, dict) and found:
        return _in_object(found, name)
    what = type(found).__name__ if not isinstance(found, list) else "a list of other values"
    raise ReadError(f"{name} holds {what}: expected a JSON array of objects, one for each row.")


def _in_object(found: dict[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The rows of one object: its columns, its list of objects, or an entry for each item."""
    values = list(found.values())
    if set(found) >= {"columns", "data"} and _is_list(found["data"], list):  # pandas, orient="split"
        return [dict(zip(found["columns"], row, strict=True)) for row in found["data"]]
    known = any(columns.find([key], part) for key in found for part in ("item", "annotator", "label"))
    if known and _is_list(values, list) and len({len(v) for v in values}) == 1 and not any(map(_objects, values)):
        return [dict(zip(found, row, strict=True)) for row in zip(*values, strict=True)]
    if known and _is_list(values, dict) and len({tuple(v) for v in values}) == 1:  # pandas, orient="columns"
        return [{key: column[place] for key, column in found.items()} for place in values[0]]
    lists = [key for key, value in found.items() if _objects(value)]
    if len(lists) == len(found) > 1 and not known:
        return [{"item": key, **row} for key, rows in found.items() for row in rows]
    if lists:
        usual = [key for key in USUAL if key in lists]
        if len(lists) > 1 and not usual:
            raise ReadError(f"{name} holds several lists of objects ({listing(lists)}): keep the one with the answers.")
        return list(found[(usual or lists)[0]])
    if not known and _is_list(values, dict) and len(found) > 1:
        return [{"item": key, **row} for key, row in found.items()]
    return [found]


def _is_list(values: Any, kind: type) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, kind) for value in values)


def _objects(value: Any) -> bool:
    return _is_list(value, dict)


def _inner_list(rows: Iterable[Mapping[str, Any]]) -> str:
    """The key of the lists that hold the answers about each item, where objects are nested like that."""
    outer: set[str] = set()
    inner: dict[str, set[str]] = {}
    for row in list(rows)[:LOOKED_AT]:
        for key, value in row.items():
            if _objects(value):
                inner.setdefault(key, set()).update(*value)
            elif value != []:
                outer.add(key)
    if columns.find(_first_of_each(outer), "annotator"):
        return ""
    for part in ("annotator", "label"):
        found = [key for key, keys in inner.items() if columns.find(_first_of_each(keys), part)]
        if found:
            return next((key for key in USUAL if key in found), found[0])
    return ""


def _first_of_each(names: Iterable[str]) -> list[str]:
    """Names of which no two are the same in their normal form."""
    return list({columns.normal(name): name for name in sorted(names)}.values())


def _with_items(rows: Iterable[Mapping[str, Any]], inner: str) -> list[Mapping[str, Any]]:
    """Objects with lists of answers are items: their ``id`` names them, else their place."""
    rows = list(rows)
    keys = {key for row in rows for key in row} - {inner}
    if columns.find(_first_of_each(keys), "item"):
        return rows
    own = next((key for key in ("id", "_id", "uuid") if all(key in row for row in rows)), None)
    return [{"item": n if own is None else row[own], **row} for n, row in enumerate(rows)]


def _spread(rows: Iterable[Mapping[str, Any]], inner: str) -> list[dict[str, Any]]:
    """One row for each object of an inner list, with what is around it."""
    out, empty, total = [], 0, 0
    for row in rows:
        total += 1
        around = {key: value for key, value in row.items() if key != inner}
        found = row.get(inner) or []
        empty += not found
        for answer in found if isinstance(found, list) else []:
            own = answer if isinstance(answer, dict) else {inner: answer}
            out.append({**{key if key not in own else f"outer.{key}": value for key, value in around.items()}, **own})
    if empty:
        warn(f"Left out {empty:,} of {total:,} objects: {inner!r} is empty.")
    return out


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """An object without objects in it."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        if not isinstance(value, dict):
            out[key] = value
            continue
        for name, inside in _flat(value).items():
            alone = name.lower() in SAY_LITTLE or name in row or name in out
            out[f"{key}.{name}" if alone else name] = inside
    return out
