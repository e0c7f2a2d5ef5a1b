"""What can still be read of the votes in a damaged journal."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

from crowdwise.active.canonical import name_text
from crowdwise.errors import InputError, ReadError

SMALLEST = 8
"""No row takes fewer bytes: a file holds so many rows at most, whatever its damaged numbers say."""
BROKEN = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises about damaged pages; a damaged text may stand in its message, too."""

__all__ = ["salvage"]


def salvage(path: Path) -> tuple[list[tuple[str, str, str, str]], int]:
    """What can be read of the votes of a damaged journal: (vote id, item, annotator, class) as JSON texts, and how many
    rows could not be read. Rows are looked up one by one, by their numbers."""
    db = _connect(path)
    most = sum(p.stat().st_size for p in (path, path.with_name(f"{path.name}-wal")) if p.exists()) // SMALLEST
    try:
        names: dict[str, dict[int, str]] = {}
        for table in ("items", "annotators"):
            rows, _ = _readable(db, f"SELECT id, name FROM {table} WHERE id = ?", _last(db, table, most))
            names[table] = {number: name for number, name in rows if _is_name(name)}
        classes = [json.dumps(c) for c in _classes(db)]
        columns = "SELECT id, vote_id, item, annotator, label FROM votes WHERE id = ?"
        rows, lost = _readable(db, columns, _last(db, "votes", most))
    finally:
        db.close()
    out = []
    for _, vote_id, item, annotator, label in rows:
        whole = isinstance(vote_id, str) and item in names["items"] and annotator in names["annotators"]
        if whole and isinstance(label, int) and 0 <= label < len(classes):
            out.append((vote_id, names["items"][item], names["annotators"][annotator], classes[label]))
        else:
            lost += 1
    return out, lost


def _connect(path: Path) -> sqlite3.Connection:
    """The journal, for reading; without the log beside it where the disk does not allow that."""
    where = path.resolve().as_uri()  # ? and % in the names of folders are no options
    found: Exception | None = None
    for options in ("mode=ro", "mode=ro&immutable=1"):
        db = None
        try:
            db = sqlite3.connect(f"{where}?{options}", uri=True)
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return db
        except BROKEN as error:
            found = error
            if db is not None:
                db.close()
    raise ReadError(f"Nothing of {path} can be read: {found}.") from found


def _is_name(text: Any) -> bool:
    """Whether a text is a name as it was written."""
    with suppress(ValueError, TypeError, InputError, RecursionError):
        return bool(name_text(json.loads(text), "name") == text)
    return False


def _last(db: sqlite3.Connection, table: str, most: int) -> int:
    """The number of the last row, as far as the file can hold so many."""
    found = []
    for query in (f"SELECT max(id) FROM {table}", f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'"):
        with suppress(*BROKEN):
            found += [row[0] for row in db.execute(query).fetchall() if isinstance(row[0], int)]
    return max((number for number in found if 0 <= number <= most), default=most if found else 0)


def _classes(db: sqlite3.Connection) -> list[Any]:
    try:
        return list(json.loads(db.execute("SELECT value FROM facts WHERE key = 'classes'").fetchone()[0]))
    except (*BROKEN, TypeError, ValueError, RecursionError) as error:
        raise ReadError(f"The classes of the campaign cannot be read either: {error}.") from error


def _readable(db: sqlite3.Connection, query: str, last: int) -> tuple[list[Any], int]:
    """The rows 1 to last that can be read, and how many cannot."""
    rows, lost = [], 0
    for number in range(1, last + 1):
        try:
            row = db.execute(query, (number,)).fetchone()
        except BROKEN:
            lost += 1
            continue
        if row is not None:
            rows.append(row)
    return rows, lost
