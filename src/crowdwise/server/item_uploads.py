"""Uploads of items: JSON, JSON lines, CSV and Parquet, as a body or a form, read by the library's own readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import Request
from pydantic import TypeAdapter, ValidationError

from crowdwise.data.files import read_table
from crowdwise.errors import ColumnError, InputError, ReadError, listing
from crowdwise.server.api_messages import Item
from crowdwise.server.item_rows import ItemGiven

ENDINGS = {
    "application/json": ".json", "application/x-ndjson": ".jsonl", "application/jsonl": ".jsonl", "text/csv": ".csv",
    "text/tab-separated-values": ".tsv", "application/vnd.apache.parquet": ".parquet",
}  # fmt: skip
"""Media types of uploads; a form says by the name of its file what it is."""
OWN = ("item", "gold", "group", "priority", "payload")
"""Columns with a meaning of their own; all others are shown to annotators."""

__all__ = ["ENDINGS", "read_upload", "received"]


async def received(request: Request, folder: Path) -> Path:
    """The upload as a file in a folder; the name that the client gave decides nothing but the format."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == "multipart/form-data":
        form = await request.form(max_files=1, max_fields=1)
        file: Any = form.get("file")
        if file is None or not hasattr(file, "read"):
            raise InputError("The form has no file: send it as the field file.")
        ending = Path(file.filename or "").suffix.lower()
        if ending not in ENDINGS.values():
            raise InputError(f"The file {file.filename!r} is none of {', '.join(sorted(set(ENDINGS.values())))}.")
        path = folder / f"upload{ending}"
        with path.open("wb") as out:
            while part := await file.read(1 << 20):
                out.write(part)
        return path
    if media not in ENDINGS:
        raise InputError(f"Content-Type {media!r}: expected one of {', '.join(ENDINGS)}, or a form with a file.")
    path = folder / f"upload{ENDINGS[media]}"
    with path.open("wb") as out:
        async for part in request.stream():
            out.write(part)
    return path


def read_upload(path: Path) -> list[ItemGiven]:
    """The items of a file."""
    if path.suffix == ".json":
        return _of_json(path)
    try:
        table, _ = read_table(path)
    except ReadError as error:
        raise ReadError(str(error).replace(str(path), "The upload")) from None
    if "item" not in table.columns:
        raise ColumnError(f"The upload has no column item: it has {listing(table.columns, 12)}.")
    shown = [name for name in table.columns if name not in OWN]
    out = []
    for i, row in enumerate(table.iter_rows(named=True)):
        if row["item"] is None:
            raise InputError(f"Row {i} (counted from 0) has no item. Nothing was added.")
        payload = _payload(row.get("payload"), i) | {name: row[name] for name in shown if row[name] is not None}
        priority = _number(row.get("priority"), i)
        gold = row.get("gold")
        out.append(
            ItemGiven(row["item"], json.loads(json.dumps(payload, default=str)), gold, row.get("group"), priority)
        )
    return out


def _number(value: Any, row: int) -> float:
    """A priority: cells of CSV files are text."""
    try:
        return 1.0 if value is None else float(value)
    except (TypeError, ValueError):
        raise InputError(f"Row {row} (counted from 0): priority {value!r} is no number. Nothing was added.") from None


def _payload(value: Any, row: int) -> dict[str, Any]:
    if value is None or isinstance(value, dict):
        return value or {}
    try:
        found = json.loads(value)
        if isinstance(found, dict):
            return found
    except (TypeError, ValueError, RecursionError):
        pass
    raise InputError(f"Row {row} (counted from 0): payload is not a JSON object. Nothing was added.")


_ITEMS = TypeAdapter(list[Item])


def _of_json(path: Path) -> list[ItemGiven]:
    try:
        found = _ITEMS.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"The upload is not a list of items: {where}: {first['msg']}. Nothing was added.") from None
    return [ItemGiven(one.item, one.payload, one.gold, one.group, one.priority) for one in found]
