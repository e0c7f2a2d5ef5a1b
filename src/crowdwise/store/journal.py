"""The journal of a campaign: items, annotators, votes (append-only), questions that were handed out.

It is one SQLite file in write-ahead mode with full synchronisation: a vote that was acknowledged is on the disk, a
process that dies half-way leaves nothing behind, and two processes may write at once (one waits for the other).

Rows of ``votes`` and ``changes`` (of settings, items, annotators) are never changed; ``chain`` is a digest of a row and
all before it. ``asked`` holds the pairs that are out, ``skipped`` those that the annotator will not answer, ``facts``
what the campaign was made with and its settings now. Rows are numbered from 1; everywhere else the code of an item or
annotator is its number less one. Names are kept as JSON (:mod:`crowdwise.store.canonical`).

A journal on a full or read-only disk is opened for reading alone. Several threads may share one: a transaction belongs
to the thread that began it, and the others wait.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from crowdwise.data import folders
from crowdwise.errors import CrowdwiseError, InputError, OutputError, ReadError
from crowdwise.store.canonical import name_text

FORMAT = 3
LATER = """
CREATE {} TABLE IF NOT EXISTS skipped (
    item INTEGER NOT NULL, annotator INTEGER NOT NULL, time REAL NOT NULL, PRIMARY KEY (item, annotator)
) WITHOUT ROWID;
CREATE {} TABLE IF NOT EXISTS changes (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, what TEXT NOT NULL, detail TEXT NOT NULL, chain TEXT NOT NULL
);
"""
"""Tables that the first journals of this format lack: they get them when they are opened."""
WAIT = 60.0  # seconds to wait for another process that is writing
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
    time REAL NOT NULL, chain TEXT NOT NULL, UNIQUE (item, annotator)
);
CREATE TABLE asked (
    item INTEGER NOT NULL REFERENCES items (id), annotator INTEGER NOT NULL REFERENCES annotators (id),
    time REAL NOT NULL, price REAL NOT NULL, PRIMARY KEY (item, annotator)
) WITHOUT ROWID;
"""
Vote = tuple[str, int, int, int, float, float]
"""Its id, the numbers of its item and annotator, its class, price and time."""
NEEDED = (
    "format", "identity", "classes", "rule", "strategy", "unknown", "patience", "price", "seed", "proposals", "method",
)  # fmt: skip
"""The facts that every campaign has."""


class Journal:
    """An open journal. Every method is one transaction, or part of the one that :meth:`writing` holds."""

    def __init__(self, path: Path) -> None:
        self.path, self.read_only = path, False
        self._lock = threading.RLock()
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        with self._errors("opened"):
            try:
                self._db = self._connect(path)
            except sqlite3.OperationalError as error:
                if not path.is_file() or "locked" in str(error):
                    raise
                self._db, self.read_only = self._connect_to_read(error), True

    def _connect(self, path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
        try:
            for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
                db.execute(f"PRAGMA {setting}")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            db.close()
            raise
        return db

    def _connect_to_read(self, error: sqlite3.Error) -> sqlite3.Connection:
        """Read what cannot be written: with its index in memory, as it is, or as a copy elsewhere."""
        log = self.path.with_name(f"{self.path.name}-wal")
        connect = partial(sqlite3.connect, timeout=1.0, isolation_level=None, check_same_thread=False)
        for way in ("memory", "as it is", "copy"):
            try:
                if way == "memory":  # a full disk has no room for the index of the log
                    db = connect(self.path)
                    db.execute("PRAGMA locking_mode = EXCLUSIVE")
                elif way == "as it is" and not (log.exists() and log.stat().st_size):
                    db = connect(f"{self.path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
                elif way == "copy":
                    self._copy = tempfile.TemporaryDirectory(prefix="crowdwise-")
                    for path in filter(Path.exists, (self.path, log)):
                        shutil.copyfile(path, Path(self._copy.name) / path.name)
                    db = connect(Path(self._copy.name) / self.path.name)
                else:
                    continue
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                return db
            except (sqlite3.OperationalError, OSError):
                continue
        raise error

    @classmethod
    def create(cls, path: Path, facts: dict[str, Any], fill: Callable[[Journal], None] = lambda _: None) -> Journal:
        """A new journal, which ``fill`` gives its first rows; it is there whole, or not at all."""
        folders.clean_temporaries(path.parent, path.name, Path.unlink)
        with folders.temporary(path.parent, path.name, folder=False) as new:
            try:
                with closing(cls(new)) as journal:
                    with journal.writing():
                        journal._make(SCHEMA + LATER.replace("{}", ""))
                        journal.note(format=FORMAT, identity=uuid.uuid4().hex, **facts)
                    fill(journal)
                _name(new, path)
                folders.done[:] = [path if one == new else one for one in folders.done]
            finally:
                for left in path.parent.glob(f"{new.name}*"):
                    left.unlink(missing_ok=True)
        folders.sync_folder(path.parent)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> Journal:
        """An existing journal."""
        if not path.is_file():
            raise ReadError(f"There is no campaign in {path.parent}: make one with crowdwise campaign init.")
        journal = cls(path)
        facts = journal.facts()
        if facts.get("format", FORMAT) != FORMAT:
            raise ReadError(f"{path} was written by another version of crowdwise, which this one does not read.")
        with journal.decoding():
            for name in NEEDED:
                facts[name]
        journal._complete()
        return journal

    def _make(self, tables: str) -> None:
        for statement in filter(str.strip, tables.split(";")):
            self._db.execute(statement)

    def _complete(self) -> None:
        """Make the tables that an earlier journal lacks; where it cannot be written, empty ones in memory."""
        there = {name for (name,) in self.read("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if {"skipped", "changes"} <= there:
            return
        try:
            with self.writing():
                self._make(LATER.replace("{}", ""))
        except OutputError:
            self.read_only = True
            with self._errors("read"):
                self._db.execute("PRAGMA temp_store = MEMORY")
                self._make(LATER.replace("{}", "TEMP"))

    def close(self) -> None:
        with self._lock:
            self._db.close()
            if self._copy is not None:
                self._copy.cleanup()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that is written inside is written, or nothing; other writers wait."""
        if self.read_only:
            raise OutputError(
                f"{self.path} cannot be written: the disk is full or read-only, or the folder is not yours."
            )
        with self._transaction("BEGIN IMMEDIATE", "written"):
            yield
        folders.done.append(self.path)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All that is read inside is of one moment, whatever others write meanwhile."""
        with self._lock:
            if self._db.in_transaction:
                yield
                return
            with self._transaction("BEGIN", "read"):
                yield

    @contextmanager
    def _transaction(self, begin: str, done: str) -> Iterator[None]:
        with self._lock, self._errors(done):
            self._db.execute(begin)
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
            if "full" in str(error) or "disk I/O" in str(error) or "readonly" in str(error):
                raise OutputError(
                    f"{self.path} could not be {done}: {error}. Nothing of this step was kept, all before it was: "
                    "make room on the disk and do it again."
                ) from error
            if "locked" in str(error):
                raise OutputError(
                    f"{self.path} is being written by another process for more than {WAIT:g} seconds: try again."
                ) from error
            raise ReadError(f"{self.path} could not be {done}: {error}.") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged text may stand in the message of SQLite, too
            raise self._damaged(error) from error

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Around what makes something of rows: where they are not as they were written, the journal is damaged."""
        try:
            yield
        except CrowdwiseError:
            raise
        except KeyError as error:
            raise self._damaged(f"it lacks {error}") from error
        except (ValueError, TypeError, IndexError, OverflowError, AttributeError, RecursionError) as error:
            raise self._damaged(error) from error

    def _damaged(self, reason: Any) -> ReadError:
        return ReadError(
            f"{self.path} is damaged: {reason}. What can still be read of its votes: "
            f"crowdwise campaign export {self.path.parent} --salvage FILE."
        )

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that a query gives."""
        with self._lock, self._errors("read"):
            return self._db.execute(query, values).fetchall()

    def write(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for every row; inside :meth:`writing`."""
        self._db.executemany(query, rows)

    def facts(self) -> dict[str, Any]:
        with self.decoding():
            return {key: json.loads(value) for key, value in self.read("SELECT key, value FROM facts")}

    def note(self, **facts: Any) -> None:
        """Change facts; inside :meth:`writing`."""
        self.write("INSERT OR REPLACE INTO facts VALUES (?, ?)", [(k, json.dumps(v)) for k, v in facts.items()])

    def log(self, what: str, detail: Any) -> None:
        """Note a change with its time; inside :meth:`writing`."""
        row = (time.time(), what, json.dumps(detail))
        chain = _digest(self._last("changes"), *row)
        self.write("INSERT INTO changes (time, what, detail, chain) VALUES (?, ?, ?, ?)", [(*row, chain)])

    def changes(self) -> list[tuple[float, str, Any]]:
        """All changes in their order: time, what, and the details; one that is not as it was written is an error."""
        rows, chain = self.read("SELECT time, what, detail, chain FROM changes ORDER BY id"), ""
        with self.decoding():
            for number, (*row, digest) in enumerate(rows):
                chain = _digest(chain, *row)
                if chain != digest:
                    raise ValueError(f"change {number + 1} is not as it was written")
            return [(when, what, json.loads(detail)) for when, what, detail, _ in rows]

    def count(self, table: str) -> int:
        return int(self.read(f"SELECT count(*) FROM {table}")[0][0])

    def add_votes(self, rows: Sequence[Vote], names: Sequence[tuple[str, str]]) -> None:
        """Write votes, with the names of the item and the annotator of each for its digest; inside :meth:`writing`."""
        chain, linked = self._last("votes"), []
        for row, (item, annotator) in zip(rows, names, strict=True):
            chain = link(chain, row, item, annotator)
            linked.append((*row, chain))
        columns = "vote_id, item, annotator, label, price, time, chain"
        self.write(f"INSERT INTO votes ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", linked)

    def _last(self, table: str) -> str:
        """The digest of all rows of a table; empty where there is none."""
        return next((chain for (chain,) in self.read(f"SELECT chain FROM {table} ORDER BY id DESC LIMIT 1")), "")

    def chain(self, number: int) -> str | None:
        """The digest of all votes up to one; ``None`` where there is no such vote."""
        return next((str(chain) for (chain,) in self.read("SELECT chain FROM votes WHERE id = ?", (number,))), None)


def _name(new: Path, path: Path) -> None:
    """Give a file its name, where no other has it."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise OutputError(f"{path} is there already: another process was first.") from None
    except OSError:  # there are file systems without links
        new.rename(path)


def link(chain: str, vote: Vote, item: str, annotator: str) -> str:
    """The digest of a vote and all before it."""
    vote_id, _, _, label, price, when = vote
    return _digest(chain, vote_id, item, annotator, label, price, when)


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


SMALLEST = 8  # no row takes fewer bytes: a file holds so many rows at most, whatever its damaged numbers say
BROKEN = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises about damaged pages; a damaged text may stand in its message, too."""


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
    votes = [
        (vote_id, names["items"][item], names["annotators"][annotator], classes[label])
        for _, vote_id, item, annotator, label in rows
        if isinstance(vote_id, str) and item in names["items"] and annotator in names["annotators"]
        if isinstance(label, int) and 0 <= label < len(classes)
    ]
    return votes, lost + len(rows) - len(votes)


def _connect(path: Path) -> sqlite3.Connection:
    """The journal, for reading; without the log beside it where the disk does not allow that."""
    where = path.resolve().as_uri()  # ? and % in the names of folders are not options
    for options in ("mode=ro", "mode=ro&immutable=1"):
        try:
            db = sqlite3.connect(f"{where}?{options}", uri=True)
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return db
        except BROKEN as error:
            broken = error
    raise ReadError(f"Nothing of {path} can be read: {broken}.") from broken


def _is_name(text: Any) -> bool:
    """Whether a text is a name as it was written."""
    with suppress(ValueError, TypeError, InputError, RecursionError):
        return bool(name_text(json.loads(text), "name") == text)
    return False


def _last(db: sqlite3.Connection, table: str, most: int) -> int:
    """The number of the last row, as far as the file can hold so many."""
    numbers = []
    for query in (f"SELECT max(id) FROM {table}", f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'"):
        with suppress(*BROKEN):
            numbers += [row[0] for row in db.execute(query).fetchall() if isinstance(row[0], int)]
    return max((number for number in numbers if 0 <= number <= most), default=most if numbers else 0)


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
            rows += db.execute(query, (number,)).fetchall()
        except BROKEN:
            lost += 1
    return rows, lost
