"""Writes of many requests in one transaction: each is acknowledged after the commit, and a commit costs one flush.

A thread takes all work that waits, locks the campaigns of it, runs each piece in a savepoint of its own (one that fails
leaves nothing behind and does not hurt the others) and commits. Votes of one campaign that wait together are written
together. Work of a campaign that another process is writing to waits for its turn, and holds up no other campaign.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from crowdwise.errors import CrowdwiseError, OutputError
from crowdwise.store.database import NO_STORE, Database, Held

PATIENCE = 20.0  # seconds for which work waits for a campaign that is being written to elsewhere
PAUSE = 0.05  # seconds for which the lock of a campaign is waited for: other campaigns wait, too
HELD = 5.0  # seconds for which a campaign whose rows were held elsewhere is not tried again
AT_ONCE = 200  # the most pieces of work in one transaction
SMALL, LARGE = 20, 500  # work of more votes than the first waits where the second is reached in a transaction

BUSY = "The store could not be written just now. Send it again: a vote with an id counts once."


@dataclass(eq=False)
class Work:
    """Something to write: ``run(conn)``, or ``together(conn, campaign, [argument, ...])`` for all that wait and share
    it, which gives a result or an exception for each argument, and writes nothing for an exception."""

    campaign: str | None
    run: Callable[[sa.Connection], Any] | None = None
    together: Callable[[sa.Connection, str, Sequence[Any]], Sequence[Any]] | None = None
    argument: Any = None
    since: float = field(default_factory=time.monotonic)
    future: Future[Any] = field(default_factory=Future)

    @property
    def size(self) -> int:
        """How many votes it brings."""
        return len(self.argument) if isinstance(self.argument, list) else 1


class GroupCommit:
    """The writer of a process."""

    def __init__(self, database: Database, written: Callable[[set[str]], None]) -> None:
        self.database, self.written = database, written
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="writer", daemon=True)
        self._open = True
        self._held: dict[str | None, float] = {}
        self._thread.start()

    def submit(self, work: Work) -> Future[Any]:
        """Hand work over; the future is done after the commit."""
        if not self._open:
            raise OutputError("The server is shutting down: nothing was written. Try again in a moment.")
        self._queue.put(work)
        return work.future

    def close(self) -> None:
        """Write all that waits, and end."""
        self._open = False
        self._queue.put(None)
        self._thread.join()

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def _loop(self) -> None:
        more, waiting, large = True, list[Work](), list[Work]()
        while more or waiting or large:
            taken = list[Work | None]()
            with contextlib.suppress(queue.Empty):
                taken.append(self._queue.get(timeout=0.0 if large else 0.1 * PAUSE if waiting else None))
                while len(taken) < AT_ONCE:
                    taken.append(self._queue.get_nowait())
            more &= None not in taken
            new = [work for work in taken if work is not None and work.future.set_running_or_notify_cancel()]
            new = [work for work in new if not self._is_held(work)]
            if new or waiting or large:
                now, large = in_turn([*large, *waiting, *new])
                waiting = self._commit(now)

    def _is_held(self, work: Work) -> bool:
        """Whether rows of its campaign are held elsewhere: then it is refused."""
        held = self._held.get(work.campaign, 0.0) > time.monotonic()
        if held:
            work.future.set_exception(OutputError(BUSY))
        return held

    def _commit(self, works: list[Work]) -> list[Work]:
        """Write what can be written; what has to wait for its campaign."""
        done: list[tuple[Work, Any]] = []
        late = [work for work in works if time.monotonic() - work.since > PATIENCE]
        now, touched = list[Work](), set[str]()
        wanted = list(dict.fromkeys(work.campaign for work in works if work.campaign is not None))
        wait = PAUSE if all(work.campaign is not None for work in works) else 0.0  # others need no lock
        try:
            with self.database.writing() as conn:
                touched = self.database.locked(conn, wanted, wait)
                now = [work for work in works if work.campaign is None or work.campaign in touched]
                for group in _groups(now):
                    done += self._run(conn, group, alone=len(now) == len(group) == 1)
        except Held:
            now, touched = [], set()
        except Exception as error:
            if len(works) > 1:  # one of them spoiled the transaction: each by itself
                return self._one_by_one(works)
            if isinstance(error, NO_STORE):
                busy = OutputError(BUSY)
                busy.__cause__, error = error, busy
            works[0].future.set_exception(error)
            return []
        self.written(touched)
        for work, result in done:
            if isinstance(result, BaseException):
                work.future.set_exception(result)
            else:
                work.future.set_result(result)
        rest = [work for work in works if work not in now]
        for work in rest:
            if work in late:
                work.future.set_exception(OutputError(BUSY))
        return [work for work in rest if work not in late]

    def _one_by_one(self, works: list[Work]) -> list[Work]:
        """Write each by itself. A campaign whose rows are held elsewhere is tried once in a while, not for each piece
        of work: the others would wait."""
        waiting = list[Work]()
        for work in works:
            if self._is_held(work):
                continue
            waiting += self._commit([work])
            error = work.future.exception() if work.future.done() else None
            if isinstance(error, OutputError) and work.campaign is not None:
                self._held[work.campaign] = time.monotonic() + HELD
        return waiting

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


def in_turn(works: list[Work]) -> tuple[list[Work], list[Work]]:
    """What is written next, and what waits for its turn: votes by the hundred come in parts, so that a vote of another
    campaign does not wait for all of them."""
    large = [work for work in works if work.size > SMALL]
    taken, size = 0, 0
    while taken < len(large) and (not taken or size + large[taken].size <= LARGE):
        size += large[taken].size
        taken += 1
    return [work for work in works if work.size <= SMALL] + large[:taken], large[taken:]


def _groups(works: list[Work]) -> list[list[Work]]:
    """Work that is done together, in the order of the first of each group."""
    groups: dict[Any, list[Work]] = {}
    for work in works:
        key = id(work) if work.together is None else (work.together, work.campaign)
        groups.setdefault(key, []).append(work)
    return list(groups.values())
