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
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crowdwise.data.folders import write_whole
from crowdwise.errors import OutputError, ReadError
from crowdwise.store.database import Database
from crowdwise.store.store_tables import metadata

FORMAT = 1
CHUNK = 5_000
MOST = 2**28
"""Characters of a line: a small file may unpack to more than the machine holds."""
SERIAL = ("audit", "events")
"""Tables whose ids the store counts."""


def back_up(database: Database, path: Path) -> dict[str, int]:
    """Write all tables to a file, whole or not at all; how many rows each has."""
    counts: dict[str, int] = {}
    columns: dict[str, list[str]] = {}

    def write(made: str) -> None:
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive, database.reading() as conn:
            for table in metadata.sorted_tables:
                columns[table.name] = [column.name for column in table.columns]
                with archive.open(f"{table.name}.jsonl", "w", force_zip64=True) as file:
                    counts[table.name] = _write(conn, table, file)
            facts = {"format": FORMAT, "revision": database.revision(conn), "columns": columns, "counts": counts}
            archive.writestr("backup.json", json.dumps(facts, indent=1))

    write_whole(write, path, private=True)
    return counts


def _write(conn: sa.Connection, table: sa.Table, file: Any) -> int:
    count = 0
    found = conn.execution_options(yield_per=CHUNK).execute(sa.select(table).order_by(*table.primary_key.columns))
    for part in found.partitions():
        file.write("".join(json.dumps(list(row)) + "\n" for row in part).encode())
        count += len(part)
    return count


def restore(database: Database, path: Path) -> dict[str, int]:
    """Fill an empty store from a file, whole or not at all; how many rows each table has."""
    try:
        archive = zipfile.ZipFile(path)
        with archive.open("backup.json") as file:
            facts = json.loads(file.read(MOST))
        columns, counts = facts["columns"], facts["counts"]
        format_, revision = facts["format"], facts["revision"]
    except OSError as error:
        raise ReadError(f"{path} could not be read: {error.strerror or error}.") from error
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ReadError(f"{path} is no backup of a crowdwise server: {error}.") from error
    with archive, database.writing("restore") as conn:
        if format_ != FORMAT or revision != database.revision(conn):
            raise ReadError(f"{path} was written by another version of crowdwise: restore it with that one.")
        if columns != {table.name: [column.name for column in table.columns] for table in metadata.sorted_tables}:
            raise ReadError(f"{path} is damaged: its tables have other columns.")
        if conn.execute(sa.text("SELECT count(*) FROM campaigns")).scalar_one():
            raise OutputError("The store holds campaigns already: restore into an empty one.")
        for table in reversed(metadata.sorted_tables):
            conn.execute(table.delete())
        for table in metadata.sorted_tables:
            found = 0
            for rows in _read(archive, table.name, columns[table.name], path):
                conn.execute(table.insert(), rows)
                found += len(rows)
            if found != counts.get(table.name):
                raise ReadError(f"{path} is damaged: {table.name} has {found} rows of {counts.get(table.name)}.")
        if not database.is_sqlite:
            for name in SERIAL:
                conn.execute(
                    sa.text(
                        f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), (SELECT coalesce(max(id), 0) + 1 FROM "
                        f"{name}), false)"
                    )
                )
    return dict(counts)


def _read(archive: zipfile.ZipFile, name: str, columns: list[str], path: Path) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table, some at a time."""
    try:
        with io.TextIOWrapper(archive.open(f"{name}.jsonl"), "utf-8") as file:
            rows: list[dict[str, Any]] = []
            while line := file.readline(MOST):
                rows.append(dict(zip(columns, json.loads(line), strict=True)))
                if len(rows) == CHUNK:
                    yield rows
                    rows = []
            if rows:
                yield rows
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RecursionError, OSError) as error:
        raise ReadError(f"{path} is damaged: {name}: {error}.") from error
