"""What a lead looks at: the curve, flags, items to review, pace, agreement, the report."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from crowdwise.report.build import build_report
from crowdwise.report.page import check_extra, page
from crowdwise.server.caller import Lead, Reader, ServiceOf
from crowdwise.server.http_problems import responses
from crowdwise.server.name_rows import find_numbers
from crowdwise.server.point_rows import list_points, skill_history
from crowdwise.server.routes_results import plain_rows
from crowdwise.server.store_tables import annotators
from crowdwise.server.watching import annotator_flags, items_to_review, pace
from crowdwise.trust.agreement import agreement as agreement_of

SANDBOX = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:"
)
"""The report is a page of its own with its script inside: it runs without an origin, so without cookies or the API."""

router = APIRouter(prefix="/api/v1/campaigns/{campaign}", responses=responses(409), tags=["results"])

__all__ = ["router"]


@router.get("/history")
async def history(service: ServiceOf, caller: Reader, campaign: str) -> list[dict[str, Any]]:
    """Votes, money and the estimated accuracy over time."""
    found: list[dict[str, Any]] = await service.read_now(lambda conn: list_points(conn, campaign), campaign)
    return found


@router.get("/annotators/{name}/history", tags=["annotators"])
async def annotator_history(service: ServiceOf, caller: Lead, campaign: str, name: str) -> list[dict[str, Any]]:
    """The accuracy of an annotator over time, with intervals."""

    def read(conn: Any) -> Any:
        find_numbers(conn, annotators, campaign, [name])
        return skill_history(conn, campaign, name)

    found: list[dict[str, Any]] = await service.read_now(read, campaign)
    return found


@router.get("/flags")
async def flags(service: ServiceOf, caller: Lead, campaign: str) -> list[dict[str, Any]]:
    """Annotators with accuracy, skill, speed and flags (no better than guessing, drifting, too fast, ...), the most
    suspect first; of classes only."""
    view = await service.view_now(campaign)
    found: list[dict[str, Any]] = await service.read_now(lambda conn: annotator_flags(conn, view))
    return found


@router.get("/review")
async def review(
    service: ServiceOf, caller: Lead, campaign: str, limit: Annotated[int, Query(ge=1, le=200)] = 20
) -> list[dict[str, Any]]:
    """The items whose label is most in doubt, why, and their votes; of classes only."""
    view = await service.view_now(campaign)
    found: list[dict[str, Any]] = await service.read_now(lambda conn: items_to_review(conn, view, limit))
    return found


@router.get("/throughput")
async def throughput(service: ServiceOf, caller: Reader, campaign: str) -> dict[str, Any]:
    """Votes of the last minute, hour and day, of each of the last 60 minutes (the latest last), and questions out."""
    found: dict[str, Any] = await service.read_now(lambda conn: pace(conn, campaign), campaign)
    return found


@router.get("/agreement")
async def agreement(service: ServiceOf, caller: Reader, campaign: str) -> list[dict[str, Any]]:
    """How much annotators agree, by the coefficients that suit the answers, with intervals."""
    view = await service.view_now(campaign)
    return await asyncio.to_thread(lambda: plain_rows(agreement_of(view.table).to_frame(kind="polars")))


@router.get("/report", response_class=HTMLResponse)
async def report(service: ServiceOf, caller: Lead, campaign: str) -> HTMLResponse:
    """The report as an HTML page."""
    view = await service.view_now(campaign)

    def make() -> str:
        check_extra()
        return page(build_report(view.table, view.consensus, title=view.row.name, all_items=True))

    return HTMLResponse(await asyncio.to_thread(make), headers={"Content-Security-Policy": SANDBOX})
