"""Work that is under way is done once for all who ask for it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

__all__ = ["InFlight"]


class InFlight(Generic[T]):
    """Tasks of an event loop by their keys; one that is done is forgotten."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Future[T]] = {}

    def start(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """The task with a key, begun now where there is none; nobody need wait for it."""
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
            done.exception()  # seen, also where nobody waits

    def clear(self) -> None:
        """Who asks from now on begins again; what is under way goes on for those who wait."""
        self._tasks.clear()
