"""Work that is under way is done once for all who ask for it meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from crowdwise.server.question_queue import InFlight


def test_those_who_ask_together_get_the_same() -> None:
    calls: list[str] = []

    async def work(name: str) -> str:
        calls.append(name)
        await asyncio.sleep(0)
        if name == "bad":
            raise ValueError(name)
        return name

    async def run() -> None:
        flight = InFlight[str]()
        assert await asyncio.gather(*(flight.wait("a", lambda: work("a")) for _ in range(3))) == ["a"] * 3
        assert calls == ["a"]
        assert await flight.wait("a", lambda: work("again")) == "again"
        first = asyncio.ensure_future(flight.wait("b", lambda: work("b")))
        await asyncio.sleep(0)
        flight.clear()
        assert await flight.wait("b", lambda: work("new")) == "new" and await first == "b"
        found = await asyncio.gather(*(flight.wait("x", lambda: work("bad")) for _ in range(2)), return_exceptions=True)
        assert [type(one) for one in found] == [ValueError] * 2 and calls.count("bad") == 1
        given_up = asyncio.ensure_future(flight.wait("c", lambda: work("c")))
        await asyncio.sleep(0)
        other = flight.start("c", lambda: work("twice"))
        given_up.cancel()
        assert await other == "c" and "twice" not in calls
        with pytest.raises(asyncio.CancelledError):
            await given_up

    asyncio.run(run())
