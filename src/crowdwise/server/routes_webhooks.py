"""Webhooks of a campaign, and what became of what was sent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from crowdwise.server.api_messages import WebhookMade
from crowdwise.server.caller import Lead, ServiceOf
from crowdwise.server.http_problems import responses
from crowdwise.store.campaign_rows import find_campaign
from crowdwise.store.webhook_rows import add_webhook, list_deliveries, list_webhooks, remove_webhook, retry_delivery

router = APIRouter(prefix="/api/v1/campaigns/{campaign}/webhooks", responses=responses(), tags=["webhooks"])

__all__ = ["router"]


@router.get("")
async def webhooks_list(service: ServiceOf, caller: Lead, campaign: str) -> list[dict[str, Any]]:
    """The webhooks of a campaign, with counts of what waits, arrived and was given up."""
    found: list[dict[str, Any]] = await service.read_now(lambda conn: list_webhooks(conn, campaign), campaign)
    return found


@router.post("", status_code=201)
async def webhooks_make(service: ServiceOf, caller: Lead, campaign: str, given: WebhookMade) -> dict[str, Any]:
    """Send events from now on to an address; the secret that signs them is shown once."""

    def make(conn: Any) -> Any:
        find_campaign(conn, campaign)
        found = add_webhook(conn, campaign, given.url, given.kinds)
        caller.audit(conn, "make webhook", campaign, url=given.url, kinds=given.kinds)
        return found

    found: dict[str, Any] = await service.write_now(make, campaign)
    return found


@router.delete("/{hook}")
async def webhooks_remove(service: ServiceOf, caller: Lead, campaign: str, hook: str) -> dict[str, str]:
    """Send nothing more to a webhook."""

    def remove(conn: Any) -> Any:
        remove_webhook(conn, campaign, hook)
        caller.audit(conn, "remove webhook", campaign, hook=hook)

    await service.write_now(remove, campaign)
    return {"removed": hook}


@router.get("/{hook}/deliveries")
async def deliveries_list(
    service: ServiceOf, caller: Lead, campaign: str, hook: str,
    state: Literal["waiting", "delivered", "dead"] | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[dict[str, Any]]:  # fmt: skip
    """What was sent or waits, the latest first; ``dead`` ones were given up after several tries."""
    found: list[dict[str, Any]] = await service.read_now(
        lambda conn: list_deliveries(conn, campaign, hook, state, limit)
    )
    return found


@router.post("/{hook}/deliveries/{delivery}/retry")
async def deliveries_retry(service: ServiceOf, caller: Lead, campaign: str, hook: str, delivery: str) -> dict[str, str]:
    """Send what was given up once more."""
    await service.write_now(lambda conn: retry_delivery(conn, campaign, hook, delivery), campaign)
    return {"retried": delivery}
