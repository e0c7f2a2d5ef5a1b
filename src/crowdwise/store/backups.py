"""Backup and restore: all tables of one moment in one file, from and to either kind of store.

The file is a zip archive with a JSON-lines file for each table, ``[value, ...]`` a row, and ``backup.json`` with the
version of the tables, their columns and counts. It holds digests of tokens and the secrets of webhooks: only
its owner can read it. The key of sessions is not in it: after a restore elsewhere people sign in again.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crowdwise import registry
from crowdwise.data.folders import write_whole
from crowdwise.errors import InputError, OutputError, ReadError
from crowdwise.store.answer_forms import OF_PAYLOAD, answer_text, check_with_payload
from crowdwise.store.campaign_rows import CampaignRow, check_campaign, find_campaign
from crowdwise.store.canonical import is_unicode
from crowdwise.store.database import Database, count, main_of
from crowdwise.store.live_votes import LiveVotes, read_votes
from crowdwise.store.roster_rows import payload_of
from crowdwise.store.store_tables import campaigns, metadata

FORMAT = 1
CHUNK = 5_000
MOST = 2**28  # characters of a line: a small file may unpack to more than the machine holds
COLUMNS = {table.name: [column.name for column in table.columns] for table in metadata.sorted_tables}
SERIAL = ("audit", "events", "reviews")  # tables whose ids the store counts


def back_up(database: Database, path: Path) -> dict[str, int]:
    """Write all tables to a file, whole or not at all; how many rows each has."""
    counts = dict.fromkeys(COLUMNS, 0)

    def write(target: str) -> None:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive, database.reading() as conn:
            for table in metadata.sorted_tables:
                query = sa.select(table).order_by(*table.primary_key.columns)
                with archive.open(f"{table.name}.jsonl", "w", force_zip64=True) as file:
                    for part in conn.execution_options(yield_per=CHUNK).execute(query).partitions():
                        file.write("".join(json.dumps(list(row)) + "\n" for row in part).encode())
                        counts[table.name] += len(part)
            facts = {"format": FORMAT, "revision": database.revision(conn), "columns": COLUMNS, "counts": counts}
            archive.writestr("backup.json", json.dumps(facts, indent=1))

    write_whole(write, path, private=True)
    return counts


def restore(database: Database, path: Path) -> dict[str, int]:
    """Fill an empty store from a file, whole or not at all; how many rows each table has."""
    try:
        archive = zipfile.ZipFile(path)
        with archive.open("backup.json") as file:
            facts = json.loads(file.read(MOST))
        columns, counts, written_as = facts["columns"], dict(facts["counts"]), (facts["format"], facts["revision"])
    except OSError as error:
        raise ReadError(f"{path} could not be read: {error.strerror or error}.") from error
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ReadError(f"{path} is not a backup of a crowdwise server: {error}.") from error
    with archive, database.writing("restore") as conn:
        if written_as != (FORMAT, database.revision(conn)):
            raise ReadError(f"{path} was written by another version of crowdwise: restore it with that one.")
        if columns != COLUMNS:
            raise ReadError(f"{path} is damaged: its tables have other columns.")
        if count(conn, campaigns):
            raise OutputError("The store holds campaigns already: restore into an empty one.")
        for table in reversed(metadata.sorted_tables):
            conn.execute(table.delete())
        for table in metadata.sorted_tables:
            n_rows = 0
            for rows in _read(archive, table.name, path):
                _check_rows(table, rows, path)
                try:
                    conn.execute(table.insert(), rows)
                except sa.exc.SQLAlchemyError as error:
                    reason = str(error.orig if isinstance(error, sa.exc.DBAPIError) else error)
                    raise ReadError(f"{path} is damaged: {table.name}: {reason}.") from error
                n_rows += len(rows)
            if n_rows != counts.get(table.name):
                raise ReadError(f"{path} is damaged: {table.name} has {n_rows} rows of {counts.get(table.name)}.")
        _check_campaigns(conn, path)
        if not database.is_sqlite:
            for name in SERIAL:
                next_id = f"(SELECT coalesce(max(id), 0) + 1 FROM {name})"
                conn.execute(sa.text(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), {next_id}, false)"))
    return dict(counts)


JSON = {
    "classes", "settings", "gold", "grp", "payload", "answer", "before", "settled", "skills", "data", "kinds", "body",
    "detail",
}  # fmt: skip
"""Columns that hold JSON, beside the names of items and annotators."""
OBJECTS = {"settings": dict, "payload": dict, "data": dict, "body": dict, "classes": list, "kinds": list}
"""What that is, in some of them."""
PAIRS = ("votes", "answers", "leases", "skips")  # tables that name an item and an annotator by their numbers


def _check_rows(table: sa.Table, rows: list[dict[str, Any]], path: Path) -> None:
    """An error where a value is not of the kind of its column: SQLite takes any."""
    for row in rows:
        for column in table.columns:
            value, kind = row[column.name], column.type.python_type
            right = value is None and column.nullable
            if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
                right = abs(value) < 1e300
            elif type(value) is kind:
                right = kind is not int or abs(value) < 2**62
            if right and isinstance(value, str):
                right = "\0" not in value and is_unicode(value) and (value != "" or column.name != "vote_id")
            try:
                if right and value is not None and (column.name in JSON or (column.name == "name" and "number" in row)):
                    right = isinstance(json.loads(value), OBJECTS.get(column.name, object))
            except (ValueError, RecursionError):
                right = False
            if not right:
                raise ReadError(f"{path} is damaged: {table.name} has {value!r:.100} as {column.name}.")


def _check_campaigns(conn: sa.Connection, path: Path) -> None:
    """An error where numbers of items and annotators lead nowhere, where a campaign could not have been made, or one
    of classes cannot be followed: it is, once, as the server will do."""
    for name in ("items", "annotators"):
        holes = f"SELECT campaign FROM {name} GROUP BY campaign HAVING min(number) <> 1 OR max(number) <> count(*)"
        if conn.execute(sa.text(holes)).first() is not None:
            raise ReadError(f"{path} is damaged: {name} are not numbered one after the other.")
        for table in PAIRS:
            lost = (
                f"SELECT 1 FROM {table} x LEFT JOIN {name} y ON y.campaign = x.campaign AND y.number = x.{name[:-1]} "
                "WHERE y.number IS NULL LIMIT 1"
            )
            if conn.execute(sa.text(lost)).first() is not None:
                raise ReadError(f"{path} is damaged: {table} have one of {name} that is not there.")
    for id_ in conn.execute(sa.select(campaigns.c.id)).scalars().all():
        try:
            row = find_campaign(conn, id_)
            check_campaign(row)
            _check_questions(conn, row)
            if row.answer_type == registry.VOTES:
                LiveVotes().follow(conn, row)
            else:
                _check_answers(conn, row)
        except Exception as error:
            reason = str(error).rstrip(".")
            raise ReadError(f"{path} is damaged: campaign {id_} cannot be followed: {reason}.") from error


def _check_questions(conn: sa.Connection, row: CampaignRow) -> None:
    """An error where questions that are asked together are not of the same items and people."""
    for further in row.questions.values():
        find_campaign(conn, further)
        for name in ("items", "annotators"):
            same = sa.text(
                f"SELECT (SELECT count(*) FROM {name} x JOIN {name} y ON x.number = y.number AND x.name = y.name WHERE "
                f"x.campaign = :one AND y.campaign = :other), (SELECT count(*) FROM {name} WHERE campaign = :one), "
                f"(SELECT count(*) FROM {name} WHERE campaign = :other)"
            )
            if len(set(conn.execute(same, {"one": row.id, "other": further}).one())) > 1:
                raise InputError(f"{further} has other {name}")
    if row.is_further and row.id not in find_campaign(conn, main_of(row.id)).questions.values():
        raise InputError("it is not among the questions of its campaign")


def _check_answers(conn: sa.Connection, row: CampaignRow) -> None:
    """An error where answers are missing, or are none that the campaign takes."""
    read = 0
    while read < row.last_vote:
        coded = read_votes(conn, row.id, read, row.last_vote)
        payloads = payload_of(conn, row.id, list({vote.item + 1 for vote in coded})) if row.form in OF_PAYLOAD else {}
        for vote in coded:
            answer = json.loads(vote.answer)
            if answer_text(row, answer, vote.item) != vote.answer:
                raise InputError(f"vote {vote.seq} is not written as answers are")
            if payloads:
                check_with_payload(row.form, vote.item, answer, payloads[vote.item + 1][1])
        read = coded[-1].seq


def _read(archive: zipfile.ZipFile, name: str, path: Path) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table, some at a time."""
    try:
        with io.TextIOWrapper(archive.open(f"{name}.jsonl"), "utf-8") as file:
            lines = iter(lambda: file.readline(MOST), "")
            while part := list(islice(lines, CHUNK)):
                yield [dict(zip(COLUMNS[name], json.loads(line), strict=True)) for line in part]
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RecursionError, OSError) as error:
        raise ReadError(f"{path} is damaged: {name}: {error}.") from error
