"""Events of a campaign as they happen, from the store, so that every worker sees all of them; and webhooks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Header, HTTPException, Query, Request
from fastapi.responses import StreamingResponse

from crowdwise.server.api_messages import WebhookMade
from crowdwise.server.caller import Lead, Reader, ServiceOf
from crowdwise.server.http_problems import responses
from crowdwise.store.campaign_rows import NotThere
from crowdwise.store.store_tables import events
from crowdwise.store.webhook_rows import (
    add_webhook,
    last_event,
    list_deliveries,
    list_webhooks,
    remove_webhook,
    retry_delivery,
)

PAUSE = 0.5  # seconds between looks
BEAT = 15.0  # seconds after which a comment shows that the stream lives
MOST = 50  # streams of one token in a process

router = APIRouter(prefix="/api/v1/campaigns/{campaign}", responses=responses())


def read_events(conn: sa.Connection, campaign: str, after: int, limit: int = 500) -> list[dict[str, Any]]:
    """The next events of a campaign in their order."""
    query = sa.select(events).where(events.c.campaign == campaign, events.c.id > after).order_by(events.c.id)
    return [
        {"id": row.id, "kind": row.kind, "time": row.time, "data": json.loads(row.data)}
        for row in conn.execute(query.limit(limit))
    ]


@router.get(
    "/events", tags=["events"], response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)  # fmt: skip
async def stream(
    request: Request, service: ServiceOf, caller: Reader, campaign: str,
    after: Annotated[int | None, Query(ge=0, lt=2**31, description="Events after this one, not new ones only.")] = None,
    seconds: Annotated[float, Query(gt=0, le=86400, description="End the stream after this time.")] = 3600.0,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:  # fmt: skip
    """Server-sent events: votes, undo, settings, items, annotators, state, standing and proof. Each has an id;
    a browser that connects again goes on after the last it saw."""
    token, streams = caller.token.id, service.streams
    if streams[token] >= MOST:
        raise HTTPException(429, f"A token has at most {MOST} event streams at a time.", {"Retry-After": "60"})
    now = await service.read_now(lambda conn: last_event(conn, campaign), campaign)
    seen = int(last_event_id) if last_event_id and last_event_id.isdecimal() else now if after is None else after

    async def lines() -> AsyncIterator[str]:
        last, beat, until = seen, time.monotonic(), time.monotonic() + seconds
        streams[token] += 1
        try:
            yield "retry: 2000\n\n"
            while time.monotonic() < until and streams[token] <= MOST:
                if service.closing or await request.is_disconnected() or await service.token_now(caller.shown) is None:
                    return
                read = partial(read_events, campaign=campaign, after=last)
                for one in await service.shared_now(("events", campaign, last), read):
                    last = one["id"]
                    data = json.dumps({"time": one["time"], **one["data"]})
                    yield f"id: {last}\nevent: {one['kind']}\ndata: {data}\n\n"
                if time.monotonic() - beat > BEAT:
                    beat = time.monotonic()
                    yield ": alive\n\n"
                await asyncio.sleep(PAUSE - asyncio.get_running_loop().time() % PAUSE)  # all look at once, and share it
        except (NotThere, sa.exc.SQLAlchemyError):
            return
        finally:
            streams[token] -= 1

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


@router.get("/webhooks", tags=["webhooks"])
async def webhooks_list(service: ServiceOf, caller: Lead, campaign: str) -> list[dict[str, Any]]:
    """The webhooks of a campaign, with counts of what waits, arrived and was given up."""
    return await service.read_now(lambda conn: list_webhooks(conn, campaign), campaign)


@router.post("/webhooks", tags=["webhooks"], status_code=201)
async def webhooks_make(service: ServiceOf, caller: Lead, campaign: str, body: WebhookMade) -> dict[str, Any]:
    """Send events from now on to an address; the secret that signs them is shown once."""
    facts = body.model_dump()
    return await caller.change(
        service, campaign, "make webhook", lambda conn, _: add_webhook(conn, campaign, **facts), **facts
    )


@router.delete("/webhooks/{hook}", tags=["webhooks"])
async def webhooks_remove(service: ServiceOf, caller: Lead, campaign: str, hook: str) -> dict[str, str]:
    """Send nothing more to a webhook."""
    await caller.change(
        service, campaign, "remove webhook", lambda conn, _: remove_webhook(conn, campaign, hook), hook=hook
    )
    return {"removed": hook}


@router.get("/webhooks/{hook}/deliveries", tags=["webhooks"])
async def deliveries_list(
    service: ServiceOf, caller: Lead, campaign: str, hook: str,
    state: Literal["waiting", "delivered", "dead"] | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[dict[str, Any]]:  # fmt: skip
    """What was sent or waits, the latest first; ``dead`` ones were given up after several tries."""
    return await service.read_now(lambda conn: list_deliveries(conn, campaign, hook, state, limit))


@router.post("/webhooks/{hook}/deliveries/{delivery}/retry", tags=["webhooks"])
async def deliveries_retry(service: ServiceOf, caller: Lead, campaign: str, hook: str, delivery: str) -> dict[str, str]:
    """Send what was given up once more."""
    await service.write_now(lambda conn: retry_delivery(conn, campaign, hook, delivery), campaign)
    return {"retried": delivery}
