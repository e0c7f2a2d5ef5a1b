"""Writes of many requests in one transaction: each is acknowledged after the commit, and a commit costs one flush.

A thread takes all work that waits, locks the campaigns of it, runs each piece in a savepoint of its own (one that fails
leaves nothing behind and does not hurt the others) and commits. Votes of one campaign that wait together are written
together.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from crowdwise.errors import CrowdwiseError, OutputError
from crowdwise.server.database import Database
from crowdwise.server.http_problems import NO_STORE

AT_ONCE = 200
"""The most pieces of work in one transaction."""

__all__ = ["GroupCommit", "Work"]


@dataclass(eq=False)
class Work:
    """Something to write: ``run(conn)``, or ``together(conn, [argument, ...])`` for all that wait and share it.

    ``together`` gives a result or an exception for each argument, and writes nothing for an exception.
    """

    campaign: str | None
    run: Callable[[sa.Connection], Any] | None = None
    together: Callable[[sa.Connection, str, Sequence[Any]], Sequence[Any]] | None = None
    argument: Any = None
    future: Future[Any] = field(default_factory=Future)


class GroupCommit:
    """The writer of a process."""

    def __init__(self, database: Database, written: Callable[[set[str]], None]) -> None:
        self.database, self.written = database, written
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="writer", daemon=True)
        self._open = True
        self._thread.start()

    def submit(self, work: Work) -> Future[Any]:
        """Hand work over; the future is done after the commit."""
        if not self._open:
            raise OutputError("The server is shutting down: nothing was written. Try again in a moment.")
        self._queue.put(work)
        return work.future

    def write(self, run: Callable[[sa.Connection], Any], campaign: str | None = None) -> Any:
        """Write something and wait for it; not on the event loop."""
        return self.submit(Work(campaign, run)).result()

    def close(self) -> None:
        """Write all that waits, and end."""
        self._open = False
        self._queue.put(None)
        self._thread.join()

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def _loop(self) -> None:
        more = True
        while more:
            found = [self._queue.get()]
            while len(found) < AT_ONCE and not self._queue.empty():
                found.append(self._queue.get())
            more = None not in found
            works = [work for work in found if work is not None and work.future.set_running_or_notify_cancel()]
            if works:
                self._commit(works)

    def _commit(self, works: list[Work]) -> None:
        done: list[tuple[Work, Any]] = []
        touched = {work.campaign for work in works if work.campaign is not None}
        try:
            with self.database.writing(*touched) as conn:
                for group in _groups(works):
                    done += self._run(conn, group, alone=len(works) == len(group) == 1)
        except Exception as error:
            if len(works) > 1:  # one of them spoiled the transaction: each by itself
                for work in works:
                    self._commit([work])
                return
            known = isinstance(error, CrowdwiseError)
            works[0].future.set_exception(error if known else _failed(error))
            return
        self.written(touched)
        for work, result in done:
            if isinstance(result, BaseException):
                work.future.set_exception(result)
            else:
                work.future.set_result(result)

    @staticmethod
    def _run(conn: sa.Connection, group: list[Work], alone: bool) -> list[tuple[Work, Any]]:
        first = group[0]
        if first.together is not None:
            results = first.together(conn, first.campaign or "", [work.argument for work in group])
            return list(zip(group, results, strict=True))
        assert first.run is not None
        if alone:  # its error ends the transaction, which has nothing else
            return [(first, first.run(conn))]
        try:
            with conn.begin_nested():
                return [(first, first.run(conn))]
        except CrowdwiseError as error:
            return [(first, error)]


def _groups(works: list[Work]) -> list[list[Work]]:
    """Work that is done together, in the order of the first of each group."""
    groups: dict[Any, list[Work]] = {}
    for work in works:
        key = id(work) if work.together is None else (work.together, work.campaign)
        groups.setdefault(key, []).append(work)
    return list(groups.values())


def _failed(error: Exception) -> Exception:
    """An error of the store in words; a mistake of ours as it is."""
    if isinstance(error, NO_STORE):
        out = OutputError("The store could not be written just now. Send it again: a vote with an id counts once.")
        out.__cause__ = error
        return out
    return error
