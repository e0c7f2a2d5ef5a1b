"""Items come in: JSON, JSON lines, CSV and Parquet, as a body or a form.

A small file may claim, or unpack to, more than the machine has room for: what it would become is counted before it is
read (Parquet, CSV) or while it is read (JSON lines).
"""

from __future__ import annotations

import gc
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from crowdwise.data.columns import find
from crowdwise.data.files import read_table
from crowdwise.data.parquet_footer import Claims, check_parquet
from crowdwise.data.plain_files import room
from crowdwise.errors import ColumnError, CrowdwiseError, InputError, ReadError, SizeError, listing
from crowdwise.file_check import check as check_file
from crowdwise.server.api_messages import FolderItems, Item
from crowdwise.server.caller import Caller, Lead, ServiceOf, WholeLead
from crowdwise.server.http_problems import in_words, responses
from crowdwise.server.media import kind_of
from crowdwise.server.service import Service
from crowdwise.store.campaign_rows import find_campaign
from crowdwise.store.roster_rows import ItemGiven, add_items, checked_items

SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
ENDINGS = {
    "application/json": ".json", "application/x-ndjson": ".jsonl", "application/jsonl": ".jsonl", "text/csv": ".csv",
    SHEET: ".xlsx", "text/tab-separated-values": ".tsv", "application/vnd.apache.parquet": ".parquet",
}  # fmt: skip
"""Media types of uploads; a form says by the name of its file what it is."""
OWN = ("item", "gold", "group", "priority", "payload")
"""Columns with a meaning of their own; all others are shown to annotators."""

MOST_ITEMS = 1_000_000
MOST_COLUMNS = 1_000
MOST_CELLS = 30_000_000  # the most of an upload; a cell takes 16 bytes of memory even where it is empty
MOST_MEMORY, MOST_LOOKED = 2**30, 2**26  # bytes of a table while it is read, and while answers in it are looked at
MOST_VALUES = 10_000_000
"""The most commas and brackets of JSON, each of which may begin a value: these take 100 bytes of memory each."""
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
"""How gzip, zstd and zlib begin: the reader of CSV would unpack them, however large they get."""


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


def read_upload(path: Path, most: int = 2**30) -> Iterator[ItemGiven]:
    """The items of a file, whose text takes up to so many bytes, one by one: all of them would take ten times that."""
    if path.suffix == ".json":
        yield from _of_json(path)
        return
    seen = 0
    for i, row in enumerate(_rows(path, most)):
        if row.get("item") is None:
            raise InputError(f"Row {i} (counted from 0) has no item. Nothing was added.")
        shown = {name: value for name, value in row.items() if name not in OWN and value is not None}
        text = json.dumps(_payload(row.get("payload"), i) | shown, default=str)
        seen += len(text)
        if i >= MOST_ITEMS or seen > most:
            raise _too_large(f"{MOST_ITEMS:,} items" if i >= MOST_ITEMS else f"{most:,} bytes of text")
        priority = _number(row.get("priority"), i)
        fields = {*row} | ({"payload"} if shown else set())
        yield ItemGiven(row["item"], json.loads(text), row.get("gold"), row.get("group"), priority, fields)


def _too_large(most: str) -> SizeError:
    return SizeError(f"The upload is, or unpacks to, more than {most}: send it in parts. Nothing was added.")


def _rows(path: Path, most: int) -> Iterator[dict[str, Any]]:
    """The rows of a table."""
    if path.suffix == ".jsonl":
        yield from _json_lines(path)
        return
    _check_size(path, most)
    try:
        table, _ = read_table(path)
    except (ReadError, SizeError) as error:
        raise type(error)(str(error).replace(str(path), "The upload")) from None
    names = named_columns(table.columns)
    if "item" not in names.values():
        raise ColumnError(f"The upload has no column item: it has {listing(table.columns, 12)}.")
    yield from table.rename(names).iter_rows(named=True)


def named_columns(columns: Sequence[str]) -> dict[str, str]:
    """Column -> what it is called here: items by names that they often have (id, file...), else as the readers of
    answers know columns (task, unit, truth...)."""
    out = {}
    for part, role, others in (("item", "item", ("id", "name", "file", "filename")), ("gold", "truth", ())):
        matches = [one for names in ((part,), others) for one in columns if one.lower() in names]
        column = matches[0] if matches else find(columns, role)
        if part not in columns and column is not None:
            out[column] = part
    return {column: out.get(column, column) for column in columns}


def _check_size(path: Path, most: int) -> None:
    """An error where a table would take more memory than an upload may."""
    if path.suffix == ".xlsx":
        return  # the reader counts cells before it takes them
    if path.suffix == ".parquet":
        try:
            claims = check_parquet(path.read_bytes())
        except (ValueError, IndexError, KeyError, TypeError):
            return  # the reader says what is wrong
    else:
        claims = _claims_of_text(path)
    for there, limit, what in (
        (claims.rows, MOST_ITEMS, "items"), (claims.columns, MOST_COLUMNS, "columns"),
        (claims.values, MOST_CELLS, "cells"), (claims.unpacked, most, "bytes"),
    ):  # fmt: skip
        if there > limit:
            raise _too_large(f"{limit:,} {what}")


def _claims_of_text(path: Path) -> Claims:
    """What a CSV file can become at most; lines inside quotes are counted, too, so only cells are."""
    with path.open("rb") as file:
        line = file.readline(1 << 20)
        if line.startswith(PACKED):
            raise ReadError("The upload is compressed: send the table as it is.")
        columns, lines = 1 + max(line.count(mark) for mark in (b",", b";", b"|", b"\t")), 1
        while part := file.read(1 << 20):
            lines += part.count(b"\n")
    return Claims(0, columns, lines * columns, 0)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file, one by one: as a table, every name would be a column of every row."""
    with path.open("rb") as file:
        for i, line in enumerate(file):
            if not line.strip():
                continue
            try:
                row = from_json(line.removeprefix(b"\xef\xbb\xbf"))
            except ValueError as error:
                raise ReadError(f"The upload could not be read as jsonl: line {i + 1} is no JSON: {error}.") from None
            if not isinstance(row, dict):
                raise ReadError(f"The upload could not be read as jsonl: line {i + 1} is no JSON object.")
            if i == 0 and "item" not in row:
                raise ColumnError(f"The upload has no column item: it has {listing(row, 12)}.")
            yield row


def _number(value: Any, row: int) -> float:
    """A priority: cells of CSV files are text."""
    try:
        return 1.0 if value is None else float(value)
    except (TypeError, ValueError):
        why = f"Row {row} (counted from 0): priority {value!r} is not a number."
        raise InputError(f"{why} Nothing was added.") from None


def _payload(value: Any, row: int) -> dict[str, Any]:
    if value is None or isinstance(value, dict):
        return value or {}
    with suppress(TypeError, ValueError):
        if isinstance(payload := from_json(value), dict):
            return payload
    raise InputError(f"Row {row} (counted from 0): payload is not a JSON object. Nothing was added.")


_ITEMS = TypeAdapter(list[Item])
_MARKS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)  # a text, closed or not, or a bracket
MOST_ITEM = 8_000_000  # bytes of an item in JSON; its payload may have fewer


def _of_json(path: Path) -> Iterator[ItemGiven]:
    content = path.read_bytes()
    if sum(content.count(mark) for mark in (b",", b"[", b"{")) > MOST_VALUES:
        raise _too_large(f"{MOST_VALUES:,} values")
    for i, text in enumerate(_elements(content)):
        if i >= MOST_ITEMS or len(text) > MOST_ITEM:
            raise _too_large(f"{MOST_ITEMS:,} items" if i >= MOST_ITEMS else f"{MOST_ITEM:,} bytes for an item")
        before = [b'{"item":0}'] if i else []  # what the comma before it follows
        try:
            one = _ITEMS.validate_json(b"[%s%s]" % (b"".join(before), text))[-1]
        except ValidationError as error:
            at = i - len(before)
            first = in_words([
                {**part, "loc": (at + int(part["loc"][0]), *part["loc"][1:]) if part["loc"] else (i,)}
                for part in error.errors()
            ])[0]  # fmt: skip
            what = re.sub(r" at line \d+ column \d+", "", first["what"])  # which is that of the part alone
            raise _no_items(f"{first['where']}: {what}") from None
        yield ItemGiven(one.item, one.payload, one.gold, one.group, one.priority, one.model_fields_set)


def _elements(content: bytes) -> Iterator[bytes]:
    """The elements of a JSON list as text, each with the comma before it: what reads the whole list at once holds up
    every other thread meanwhile. Values without brackets are with the next element."""
    begin, depth, start = content.find(b"["), 0, 0
    if begin < 0 or content[:begin].strip():
        raise _no_items("it does not begin with [")
    for mark in _MARKS.finditer(content, begin):
        first, end = content[mark.start()], mark.end()
        if first in b"[{":
            depth += 1
            start = end if depth == 1 else start
        elif first in b"]}":
            depth -= 1
            if depth == 1:
                yield content[start:end]
                start = end
            elif depth == 0:
                if content[start : end - 1].strip():
                    yield content[start : end - 1]
                if content[end:].strip():
                    raise _no_items("something follows the list")
                return
    raise _no_items("the list does not end")


def _no_items(why: str) -> InputError:
    example = '{"item": "photo1"}'
    return InputError(f"The upload is not a list of items such as {example}: {why}. Nothing was added.")


_EXAMPLE = [{"item": "photo1", "payload": {"image": "https://example.org/1.jpg"}}, {"item": "photo2", "gold": "wren"}]
_FILE = {"type": "string", "format": "binary"}
_LIST = {"type": "array", "items": Item.model_json_schema()}
_BODY: dict[str, Any] = {media: {"schema": _FILE} for media in ENDINGS if media != "application/json"} | {
    "application/json": {"schema": _LIST, "example": _EXAMPLE},
    "multipart/form-data": {"schema": {"type": "object", "required": ["file"], "properties": {"file": _FILE}}},
}


def preview_of(path: Path, check: Callable[[], list[Any]]) -> dict[str, Any]:
    """What is in an upload: columns and what they are taken for, the first rows, how many items, or what is wrong. A
    file of answers is looked at as ``crowdwise check`` does."""
    out: dict[str, Any] = {"columns": [], "rows": [], "items": 0, "problem": None, "answers": None}
    try:
        first = list(islice(_rows(path, 2**30), 5)) if path.suffix != ".json" else []
        out["columns"] = list(first[0]) if first else ["item", "payload"]
        out["rows"] = [{name: str(value)[:200] for name, value in row.items() if value is not None} for row in first]
        new = check()
        out["items"] = len(new)
        if not first:
            out["rows"] = [{"item": name, "payload": values.get("payload", "")[:200]} for name, values in new[:5]]
    except CrowdwiseError as error:
        out["problem"] = str(error)
        if isinstance(error, SizeError):
            return out
    if path.suffix not in (".json", ".jsonl"):
        with room(MOST_LOOKED):
            looked = check_file(path).to_dict()
        if looked["readable"]:
            out["answers"] = {name: looked.get(name) for name in ("answer_type", "answers", "items", "annotators")}
    return out


PART = 500  # items that are written in one transaction

router = APIRouter(prefix="/api/v1/campaigns/{campaign}", responses=responses(409))


@router.post(
    "/items", status_code=201, tags=["items"], openapi_extra={"requestBody": {"required": True, "content": _BODY}}
)
async def items_upload(
    service: ServiceOf, caller: WholeLead, campaign: str, request: Request,
    preview: Annotated[bool, Query(description="Say what is in the upload, and add nothing.")] = False,
) -> dict[str, Any]:  # fmt: skip
    """Declare items: a JSON list, or a table (CSV, Parquet, JSON lines) with a column ``item`` and, where they are
    known, ``gold``, ``group`` and ``priority``. All other columns are what annotators are shown; an item that is there
    gets the new values, and keeps what is left out. Where one is wrong, none is added. Large uploads are written in
    parts, between which others get their turn: where the store fails meanwhile, send it again."""
    await service.read_now(lambda conn: find_campaign(conn, campaign))
    with tempfile.TemporaryDirectory(prefix="crowdwise-") as folder:
        path = await received(request, Path(folder))

        def check(conn: Any) -> Any:
            sent = read_upload(path, service.configuration.max_upload)
            shown = (replace(one, payload=service.media.checked(campaign, one.item, one.payload)) for one in sent)
            return list(checked_items(conn, find_campaign(conn, campaign), shown).items())

        def run() -> Any:
            with room(MOST_MEMORY):
                try:
                    return preview_of(path, lambda: service.read(check)) if preview else service.read(check)
                finally:  # errors hold tables in circles, which the server rarely looks for
                    gc.collect()

        async with service.uploading:
            checked = await service.heavy_now(run)
    return dict(checked) if preview else await _written(service, caller, campaign, checked)


async def _written(service: Service, caller: Caller, campaign: str, rows: list[Any]) -> dict[str, Any]:
    """Write items in parts, between which others get their turn."""
    new = 0
    for lo in range(0, max(len(rows), 1), PART):
        add = partial(add_items, values=dict(rows[lo : lo + PART]))
        n = len(rows[lo : lo + PART])
        new += await caller.change(service, campaign, "add items", add, new=int, n=n)
    return {"new": new, "changed": len(rows) - new}


@router.get("/media", tags=["items"])
async def media_list(
    service: ServiceOf, caller: Lead, campaign: str, under: Annotated[str, Query(max_length=500)] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> dict[str, Any]:  # fmt: skip
    """The files that items of the campaign can show: of the media folder, and uploads."""
    await service.read_now(lambda conn: find_campaign(conn, campaign))
    names = await service.heavy_now(lambda: list(service.media.names(campaign, under)))
    return {"files": names[:limit], "total": len(names)}


@router.post("/media", status_code=201, tags=["items"])
async def media_upload(service: ServiceOf, caller: WholeLead, campaign: str, request: Request) -> dict[str, Any]:
    """Upload images, recordings and texts (a form with fields ``file``): items can name them from then on."""
    await service.read_now(lambda conn: find_campaign(conn, campaign))
    form = await request.form(max_files=1000, max_fields=10)
    kept = []
    for file in form.getlist("file"):
        if isinstance(file, str):
            raise InputError("The form has no file: send each as a field file.")
        kept.append(await service.heavy_now(partial(service.media.save, campaign, file.filename or "", file.file)))
    if not kept:
        raise InputError("The form has no file: send each as a field file.")
    await service.write_now(lambda conn: caller.audit(conn, "upload media", campaign, n=len(kept)), campaign)
    return {"files": kept}


@router.post("/media/items", status_code=201, tags=["items"])
async def media_items(service: ServiceOf, caller: WholeLead, campaign: str, chosen: FolderItems) -> dict[str, Any]:
    """Make an item of each file of the media folder, or of those whose names begin so."""

    def check(conn: Any) -> Any:
        row = find_campaign(conn, campaign)
        names = service.media.names(campaign, chosen.under)
        new = (ItemGiven(name, {kind_of(name) or "image": f"media:{name}"}, fields=["payload"]) for name in names)
        return list(checked_items(conn, row, new).items())

    rows = await service.heavy_now(lambda: service.read(check))
    if not rows:
        raise InputError("There is no such file: start the server with --media FOLDER, or upload some.")
    return await _written(service, caller, campaign, rows)
