"""The next question of an annotator: what is out already, else the first of a short queue that is still free.

Choosing needs the model and takes milliseconds; leasing must be serial. So questions are chosen ahead, and the lease
decides, in the store, whether one is still free. A queue is made again when it is used up, or where the model has
learned more.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from crowdwise.server.api_messages import Questions
from crowdwise.store.answer_forms import blind
from crowdwise.store.lease_rows import Lease, LeaseAsked, lease_together
from crowdwise.store.roster_rows import payload_of

T = TypeVar("T")


class InFlight(Generic[T]):
    """Tasks of an event loop by their keys; one that is done is forgotten."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Future[T]] = {}

    def start(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """The task with a key, begun now where there is none, whether or not it is waited for."""
        if key not in self._tasks:
            task = self._tasks[key] = asyncio.ensure_future(make())
            task.add_done_callback(lambda done: self._forget(key, done))
        return self._tasks[key]

    async def wait(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """What the task with a key gives; who stops waiting does not stop it."""
        return await asyncio.shield(self.start(key, make))

    def _forget(self, key: Hashable, done: asyncio.Future[T]) -> None:
        if self._tasks.get(key) is done:
            del self._tasks[key]
        if not done.cancelled():
            done.exception()  # seen, also where no request waits

    def clear(self) -> None:
        """Who asks from now on begins again; what is under way goes on for those who wait."""
        self._tasks.clear()


AHEAD = 60  # questions in a queue
AT_ONCE = 6  # questions of a queue that are looked at beyond those that are asked for
KEPT = 3.0  # seconds, or up to twice as many, after which a queue gives way to one of a newer model
AGED = 6.0  # seconds after that in which it is still used while the next is made; later one waits for a new one
TAKEN = 10.0  # seconds for which an item that was just leased is tried last


@dataclass
class _Queue:
    items: list[int]
    view: Any
    until: float  # when it gives way to one of a newer model


Shown = tuple[Lease, Any, dict[str, Any]]
"""A question as an annotator sees it: with the name of its item and its payload, not whether the answer is known."""


def hand_out(conn: sa.Connection, campaign: str, asked: Sequence[LeaseAsked]) -> list[list[Shown]]:
    """Lease questions for several requests, with what is shown of their items."""
    leased = lease_together(conn, campaign, asked)
    payload = payload_of(conn, campaign, list({lease.item for leases in leased for lease in leases}))
    return [[(lease, *payload[lease.item]) for lease in leases] for leases in leased]


@dataclass
class QuestionQueues:
    """The queues of a process."""

    look: Callable[..., Any]  # ``look(campaign, exact=...)``: the view of a campaign; it may take a while
    seen: Callable[[str], Any]  # the latest view that there is
    lease_now: Callable[[str, LeaseAsked], Awaitable[list[Shown]]]
    ticket: Callable[..., str]
    show: Callable[[str, dict[str, Any]], dict[str, Any]]
    """``show(campaign, payload)``: the payload with links for its files."""
    queues: dict[tuple[str, int], _Queue] = field(default_factory=dict)
    draws: int = 0
    choosing: InFlight[_Queue] = field(default_factory=InFlight)
    """Choices that are being made: requests of an annotator that come together get the same."""
    taken: dict[tuple[str, int], float] = field(default_factory=dict)
    """(Campaign, item) -> until when it is tried last: it was leased just now, to whomever."""

    async def next_now(self, campaign: str, annotator: int, n: int = 1) -> Questions:
        """Up to n questions for an annotator (a number); asking again gives the same until they are answered."""
        key = (campaign, annotator)
        queue = self.queues.get(key)
        choose = partial(asyncio.to_thread, self._choose, key, n)
        if queue is None or not queue.items or time.monotonic() > queue.until + AGED:
            queue = await self.choosing.wait((key, n), choose)
        elif time.monotonic() > queue.until and self.seen(campaign) is not queue.view:
            self.choosing.start((key, n), choose)  # for the next request
        questions = await self._lease(key, queue, n)
        if not questions:  # others had all of it, or the model is behind
            queue = await self.choosing.wait((key, n, "leases"), partial(choose, leases=True))
            questions = await self._lease(key, queue, n)
        if questions:
            return Questions(questions=questions, state="running")
        return await asyncio.to_thread(self._none, queue.view, annotator)

    def _choose(self, key: tuple[str, int], n: int, *, leases: bool = False) -> _Queue:
        campaign, annotator = key
        view = self.look(campaign, exact=leases, leases=leases)
        self.draws += 1
        numbers = [code + 1 for code in view.propose(annotator - 1, AHEAD + n, self.draws)]
        if len(self.queues) > 10_000:
            self.queues.clear()
        kept = KEPT * (1.0 + random.random())  # so that not all are made again at once
        queue = self.queues[key] = _Queue(numbers, view, time.monotonic() + kept)
        return queue

    async def _lease(self, key: tuple[str, int], queue: _Queue, n: int) -> list[dict[str, Any]]:
        """Up to n questions of a queue: of its first ones, else, where others were quicker, of all that is left."""
        campaign, annotator = key
        now = time.monotonic()
        tests = queue.view.gold  # in codes; they can be asked of many, and those of practice come first
        free = [item for item in queue.items if item - 1 in tests or self.taken.get((campaign, item), 0.0) < now]
        first = (free or queue.items)[: n + AT_ONCE]
        for wanted in (first, [item for item in queue.items if item not in first]):
            leased = await self.lease_now(campaign, LeaseAsked(annotator, wanted, n))
            out = {lease.item for lease, _, _ in leased}
            gone = out if len(leased) >= n else {*out, *wanted}  # those in front were taken by others
            queue.items = [item for item in queue.items if item not in gone]
            if len(leased) >= n or not queue.items:
                break
        if len(self.taken) > 100_000:
            self.taken.clear()
        self.taken |= {(campaign, item): now + TAKEN for item in out}
        return [
            {
                "item": item, "payload": self.show(campaign, blind(payload)), "expires": lease.expires,
                "first": lease.shown, "ticket": self.ticket(campaign, item, annotator, lease.shown),
            }
            for lease, item, payload in leased
        ]  # fmt: skip

    def _none(self, view: Any, annotator: int) -> Questions:
        """No question, and why there is none."""
        if view.row.state != "open":
            return Questions(questions=[], state=view.row.state, why_none=f"the campaign is {view.row.state}")
        why = view.why_none(annotator - 1) or view.standing.why
        return Questions(questions=[], state=view.standing.state, why_none=why)
