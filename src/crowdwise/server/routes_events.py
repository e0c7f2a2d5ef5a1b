"""Events of a campaign as they happen: server-sent events, from the store, so that every worker sees all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Header, HTTPException, Query, Request
from fastapi.responses import StreamingResponse

from crowdwise.server.caller import Reader, ServiceOf
from crowdwise.server.http_problems import responses
from crowdwise.store.campaign_rows import NotThere
from crowdwise.store.store_tables import events

PAUSE = 0.5
"""Seconds between looks."""
BEAT = 15.0
"""Seconds after which a comment shows that the stream lives."""
MOST = 50
"""Streams of one token in a process."""

router = APIRouter(prefix="/api/v1/campaigns/{campaign}", responses=responses(), tags=["events"])


def read_events(conn: sa.Connection, campaign: str, after: int, limit: int = 500) -> list[dict[str, Any]]:
    """The next events of a campaign in their order."""
    query = sa.select(events).where(events.c.campaign == campaign, events.c.id > after).order_by(events.c.id)
    return [
        {"id": row.id, "kind": row.kind, "time": row.time, "data": json.loads(row.data)}
        for row in conn.execute(query.limit(limit))
    ]


def last_event(conn: sa.Connection, campaign: str) -> int:
    return int(conn.execute(sa.select(sa.func.max(events.c.id)).where(events.c.campaign == campaign)).scalar() or 0)


@router.get(
    "/events", response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)  # fmt: skip
async def stream(
    request: Request, service: ServiceOf, caller: Reader, campaign: str,
    after: Annotated[int | None, Query(ge=0, lt=2**31, description="Events after this one, not new ones only.")] = None,
    seconds: Annotated[float, Query(gt=0, le=86400, description="End the stream after this time.")] = 3600.0,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:  # fmt: skip
    """Server-sent events: votes, undo, settings, items, annotators, state and standing. Each has an id; a browser that
    connects again goes on after the last it saw."""
    token, streams = caller.token.id, service.streams
    if streams[token] >= MOST:
        raise HTTPException(429, f"A token has at most {MOST} event streams at a time.", {"Retry-After": "60"})
    now = await service.read_now(lambda conn: last_event(conn, campaign), campaign)
    seen = int(last_event_id) if last_event_id and last_event_id.isdecimal() else now if after is None else after

    async def lines() -> AsyncIterator[str]:
        last, beat, until = seen, time.monotonic(), time.monotonic() + seconds
        yield "retry: 2000\n\n"
        while time.monotonic() < until and not service.closing and not await request.is_disconnected():
            try:
                if await service.token_now(caller.shown) is None:  # revoked, or expired
                    return
                found = await service.read_now(partial(read_events, campaign=campaign, after=last))
            except (NotThere, sa.exc.SQLAlchemyError):
                return
            for one in found:
                last = one["id"]
                data = json.dumps({"time": one["time"], **one["data"]})
                yield f"id: {last}\nevent: {one['kind']}\ndata: {data}\n\n"
            if time.monotonic() - beat > BEAT:
                beat = time.monotonic()
                yield ": alive\n\n"
            await asyncio.sleep(PAUSE)

    async def counted() -> AsyncIterator[str]:
        streams[token] += 1
        try:
            async for part in lines():
                yield part
                if streams[token] > MOST:
                    return
        finally:
            streams[token] -= 1

    return StreamingResponse(counted(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
