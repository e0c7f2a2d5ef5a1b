"""The journal of a campaign: items, annotators, votes (append-only), questions that were handed out.

It is one SQLite file in write-ahead mode with full synchronisation: a vote that was acknowledged is on the disk, a
process that dies half-way leaves nothing behind, and two processes may write at once (one waits for the other).

==============  ======================================================================================
``votes``       a row per vote, never changed; ``vote_id`` is unique, so that adding a vote twice counts
                once, and so is (item, annotator)
``items``       name, group, known class, whether it is closed
``annotators``  name, price of a vote, whether available, most votes
``asked``       pairs that were handed out and are not answered yet, with the time
``facts``       what the campaign was made with
==============  ======================================================================================

Rows are numbered from 1; everywhere else the code of an item or annotator is its number less one. Names are kept as
JSON, so that the number 7 and the text "7" differ.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.core.numerics import Ints
from crowdwise.errors import CrowdwiseError, OutputError, ReadError

FORMAT = 2
WAIT = 60.0
"""Seconds to wait for another process that is writing."""
SCHEMA = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE items (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, grp TEXT, gold INTEGER, closed INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE annotators (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, price REAL NOT NULL CHECK (price > 0),
    available INTEGER NOT NULL DEFAULT 1, max_votes INTEGER
);
CREATE TABLE votes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, vote_id TEXT NOT NULL UNIQUE, item INTEGER NOT NULL REFERENCES items (id),
    annotator INTEGER NOT NULL REFERENCES annotators (id), label INTEGER NOT NULL, price REAL NOT NULL,
    time REAL NOT NULL, UNIQUE (item, annotator)
);
CREATE TABLE asked (
    item INTEGER NOT NULL REFERENCES items (id), annotator INTEGER NOT NULL REFERENCES annotators (id),
    time REAL NOT NULL, price REAL NOT NULL, PRIMARY KEY (item, annotator)
) WITHOUT ROWID;
"""


class Journal:
    """An open journal. Every method is one transaction, or part of the one that :meth:`writing` holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._errors("opened"):
            self._db = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")

    @classmethod
    def create(cls, path: Path, facts: dict[str, Any]) -> Journal:
        """A new journal; it is there whole, or not at all."""
        journal = cls(path)
        with journal.writing():
            for statement in filter(str.strip, SCHEMA.split(";")):
                journal._db.execute(statement)
            journal.note(format=FORMAT, **facts)
        return journal

    @classmethod
    def open(cls, path: Path) -> Journal:
        """An existing journal."""
        if not path.is_file():
            raise ReadError(f"There is no campaign in {path.parent}: make one with crowdwise campaign init.")
        journal = cls(path)
        with journal._errors("read"):
            facts = journal.facts()
        if facts.get("format") != FORMAT:
            raise ReadError(f"{path} was written by another version of crowdwise, which this one does not read.")
        return journal

    def close(self) -> None:
        self._db.close()

    # ---------------------------------------------------------------- transactions

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that is written inside is written, or nothing; other writers wait."""
        with self._errors("written"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        """Errors of SQLite, in words that say what to do."""
        try:
            yield
        except CrowdwiseError:
            raise
        except sqlite3.OperationalError as error:
            if "full" in str(error) or "disk I/O" in str(error):
                raise OutputError(
                    f"{self.path} could not be {done}: {error}. Nothing of this step was kept, all before it was: "
                    "make room on the disk and do it again."
                ) from error
            if "locked" in str(error):
                raise OutputError(
                    f"{self.path} is being written by another process for more than {WAIT:g} seconds: try again."
                ) from error
            raise ReadError(f"{self.path} could not be {done}: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise ReadError(
                f"{self.path} is damaged: {error}. What can still be read of its votes: "
                f"crowdwise campaign export {self.path.parent} --salvage FILE."
            ) from error

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that a query gives."""
        with self._errors("read"):
            return self._db.execute(query, values).fetchall()

    def write(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for every row; inside :meth:`writing`."""
        self._db.executemany(query, rows)

    # ---------------------------------------------------------------- contents

    def facts(self) -> dict[str, Any]:
        return {key: json.loads(value) for key, value in self.read("SELECT key, value FROM facts")}

    def note(self, **facts: Any) -> None:
        """Change facts; inside :meth:`writing`."""
        self.write("INSERT OR REPLACE INTO facts VALUES (?, ?)", [(k, json.dumps(v)) for k, v in facts.items()])

    def count(self, table: str) -> int:
        return int(self.read(f"SELECT count(*) FROM {table}")[0][0])

    def votes_after(self, last: int, most: int) -> Ints:
        """Rows (number, item, annotator, label) of the next votes in codes, in the order in which they were written."""
        columns = "id, item - 1, annotator - 1, label"
        rows = self.read(f"SELECT {columns} FROM votes WHERE id > ? ORDER BY id LIMIT ?", (last, most))
        return np.array(rows, dtype=np.int64).reshape(-1, 4)


def salvage(path: Path) -> tuple[list[tuple[str, str, str, str]], int]:
    """What can be read of the votes of a damaged journal: (vote id, item, annotator, class) as JSON texts, and how many
    rows could not be read. Rows are looked up one by one, by their numbers."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    names: dict[str, dict[int, str]] = {}
    for table in ("items", "annotators"):
        names[table] = dict(_readable(db, f"SELECT id, name FROM {table} WHERE id = ?", _last(db, table))[0])
    classes = [json.dumps(c) for c in _classes(db)]
    rows, lost = _readable(db, "SELECT id, vote_id, item, annotator, label FROM votes WHERE id = ?", _last(db, "votes"))
    db.close()
    out = []
    for _, vote_id, item, annotator, label in rows:
        if item in names["items"] and annotator in names["annotators"] and 0 <= label < len(classes):
            out.append((vote_id, names["items"][item], names["annotators"][annotator], classes[label]))
        else:
            lost += 1
    return out, lost


def _last(db: sqlite3.Connection, table: str) -> int:
    for query in (f"SELECT max(id) FROM {table}", f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'"):
        try:
            found = db.execute(query).fetchone()
        except sqlite3.DatabaseError:
            continue
        if found and found[0] is not None:
            return int(found[0])
    return 0


def _classes(db: sqlite3.Connection) -> list[Any]:
    try:
        return list(json.loads(db.execute("SELECT value FROM facts WHERE key = 'classes'").fetchone()[0]))
    except (sqlite3.DatabaseError, TypeError) as error:
        raise ReadError(f"The classes of the campaign cannot be read either: {error}.") from error


def _readable(db: sqlite3.Connection, query: str, last: int) -> tuple[list[Any], int]:
    rows, lost = [], 0
    for number in range(1, last + 1):
        try:
            row = db.execute(query, (number,)).fetchone()
        except sqlite3.DatabaseError:
            lost += 1
            continue
        if row is not None:
            rows.append(row)
    return rows, lost
