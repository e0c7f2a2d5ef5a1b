"""Tokens, sessions of browsers, and the audit log."""

from __future__ import annotations

import json
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query

from crowdwise.server.access_tokens import list_tokens, make_token, revoke_token
from crowdwise.server.api_messages import TokenMade
from crowdwise.server.caller import Admin, Caller, Lead, ServiceOf
from crowdwise.server.http_problems import responses
from crowdwise.server.service import Service
from crowdwise.store.campaign_rows import find_campaign
from crowdwise.store.roster_rows import annotator_of
from crowdwise.store.store_tables import audit

Before = Annotated[int, Query(ge=1, lt=2**31)]
Limit = Annotated[int, Query(ge=1, le=1000)]

router = APIRouter(prefix="/api/v1", responses=responses(), tags=["access"])


@router.post("/tokens", status_code=201)
async def tokens_make(service: ServiceOf, caller: Admin, body: TokenMade) -> dict[str, Any]:
    """Make a token; its secret is shown once and not kept."""

    def make(conn: sa.Connection) -> Any:
        number = None
        if body.campaign is not None:
            row = find_campaign(conn, body.campaign)
            number = None if body.annotator is None else annotator_of(conn, row, body.annotator)
        name = str(body.annotator) if number is not None else body.name
        secret, token = make_token(conn, body.role, name, campaign=body.campaign, annotator=number, days=body.days)
        caller.audit(conn, "make token", body.campaign, role=body.role, name=name, made=token.id)
        return {"secret": secret, **token.shown()}

    return await service.write_now(make, body.campaign)


@router.get("/tokens")
async def tokens_list(service: ServiceOf, caller: Admin) -> list[dict[str, Any]]:
    """All tokens and invitations, without their secrets."""
    return [token.shown() for token in await service.read_now(lambda conn: list_tokens(conn, None))]


@router.delete("/tokens/{token}")
async def tokens_revoke(service: ServiceOf, caller: Admin, token: str) -> dict[str, str]:
    """Revoke a token or an invitation; sessions that began with it end."""
    return await revoke(service, caller, token, None)


@router.get("/campaigns/{campaign}/tokens")
async def campaign_tokens(service: ServiceOf, caller: Lead, campaign: str) -> list[dict[str, Any]]:
    """The tokens and invitations of a campaign, without their secrets."""
    return [token.shown() for token in await service.read_now(lambda conn: list_tokens(conn, campaign))]


@router.delete("/campaigns/{campaign}/tokens/{token}")
async def campaign_revoke(service: ServiceOf, caller: Lead, campaign: str, token: str) -> dict[str, str]:
    """Revoke a token or an invitation of a campaign."""
    return await revoke(service, caller, token, campaign)


async def revoke(service: Service, caller: Caller, token: str, campaign: str | None) -> dict[str, str]:
    """Revoke a token, of a campaign or any."""

    def write(conn: sa.Connection) -> None:
        revoke_token(conn, token, campaign)
        caller.audit(conn, "revoke token", campaign, revoked=token)

    await service.write_now(write, campaign)
    service.forget_tokens()
    return {"revoked": token}


@router.get("/audit")
async def audit_list(
    service: ServiceOf, caller: Admin, before: Before = 2**31 - 1, limit: Limit = 100
) -> list[dict[str, Any]]:
    """Who did what, the latest first."""
    return await service.read_now(lambda conn: read_audit(conn, before, limit))


@router.get("/campaigns/{campaign}/audit")
async def campaign_audit(
    service: ServiceOf, caller: Lead, campaign: str, before: Before = 2**31 - 1, limit: Limit = 100
) -> list[dict[str, Any]]:
    """Who changed what of a campaign, the latest first."""
    return await service.read_now(lambda conn: read_audit(conn, before, limit, audit.c.campaign == campaign))


def read_audit(conn: sa.Connection, before: int, limit: int, *where: Any) -> list[dict[str, Any]]:
    query = sa.select(audit).where(audit.c.id < before, *where).order_by(audit.c.id.desc()).limit(limit)
    return [dict(row._mapping) | {"detail": json.loads(row.detail)} for row in conn.execute(query)]
