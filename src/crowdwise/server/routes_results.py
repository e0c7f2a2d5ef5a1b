"""What came out: status, consensus, reliability, agreement, the report."""

from __future__ import annotations

import io
import math
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from crowdwise import registry
from crowdwise.data.spreadsheets import safe_table
from crowdwise.errors import ParameterError
from crowdwise.server.caller import Reader, ServiceOf
from crowdwise.server.http_problems import responses
from crowdwise.store.item_rows import items_since

router = APIRouter(prefix="/api/v1/campaigns/{campaign}", responses=responses(409))


def plain_rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a table as JSON can say them: numbers that are not finite are null."""
    return [
        {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}
        for row in frame.to_dicts()
    ]


def consensus_rows(view: Any, probabilities: bool = False) -> Any:
    """The consensus of a view as a table, one row for each item that was voted on; of classes with the probability of
    each, where that is asked for."""
    if not probabilities:
        return view.consensus.to_frame("items", kind="polars")
    if view.row.form != registry.ONE_CLASS:
        raise ParameterError(f"probabilities: of classes only; this campaign is of {view.row.answer_type}.")
    return view.consensus.to_frame("items", kind="polars", probabilities=True)


def reliability_rows(view: Any) -> list[dict[str, Any]]:
    """The reliability of annotators with intervals."""
    return plain_rows(view.consensus.to_frame("annotators", kind="polars"))


@router.get("/status", tags=["results"])
async def status(service: ServiceOf, caller: Reader, campaign: str) -> dict[str, Any]:
    """Counts, money, the accuracy as it is estimated without truth, how the campaign stands and why it stops."""
    found: dict[str, Any] = await service.compute_now(
        campaign, "status", lambda view: {**view.status, "campaign": campaign, "open": view.row.state}, leases=True
    )
    return found


@router.get(
    "/consensus", tags=["results"], responses={200: {"content": {"text/csv": {}, "application/vnd.apache.parquet": {}}}}
)
async def consensus(
    service: ServiceOf, caller: Reader, campaign: str,
    format: Literal["json", "csv", "parquet"] = "json",
    offset: Annotated[int, Query(ge=0, lt=2**31)] = 0, limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    label: Annotated[str | None, Query(max_length=500, description="Only items with this label.")] = None,
    min_probability: Annotated[float, Query(ge=0, le=1)] = 0.0,
    max_probability: Annotated[float, Query(ge=0, le=1)] = 1.0,
    probabilities: Annotated[bool, Query(description="Of every class.")] = False,
    since: Annotated[int | None, Query(ge=0, lt=2**62, description="Only items with votes after this cursor.")] = None,
) -> Any:  # fmt: skip
    """The consensus label of each item: pages as JSON (``seq`` is the cursor for ``since``), or all as a download."""

    def make(view: Any) -> Any:
        frame = consensus_rows(view, probabilities)
        if since is not None:
            names = service.read(lambda conn: items_since(conn, campaign, since))
            frame = frame.filter(frame["item"].is_in(names))
        if label is not None:
            if "label" not in frame.columns:
                raise ParameterError(f"label: results of {view.row.answer_type} have no label to filter by.")
            frame = frame.filter(frame["label"].cast(str) == label)
        if "probability" in frame.columns and (min_probability > 0.0 or max_probability < 1.0):
            frame = frame.filter(frame["probability"].is_between(min_probability, max_probability))
        if format != "json":
            return download(frame, format, "consensus")
        rows, more = plain_rows(frame[offset : offset + limit]), offset + limit < len(frame)
        return {"items": rows, "total": len(frame), "next": offset + limit if more else None, "seq": view.seq}

    asked = (format, offset, limit, label, min_probability, max_probability, probabilities, since)
    return await service.compute_now(campaign, ("consensus", *asked), make)


def download(frame: Any, format: str, name: str) -> Response:
    """A table as a file; no cell of a CSV file is a formula."""
    if format == "parquet":
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        body, media = buffer.getvalue(), "application/vnd.apache.parquet"
    else:
        body, media = safe_table(frame).write_csv().encode(), "text/csv; charset=utf-8"
    return Response(body, media_type=media, headers={"Content-Disposition": f'attachment; filename="{name}.{format}"'})


@router.get("/reliability", tags=["results"])
async def reliability(service: ServiceOf, caller: Reader, campaign: str) -> list[dict[str, Any]]:
    """The reliability of each annotator, with intervals."""
    found: list[dict[str, Any]] = await service.compute_now(campaign, "reliability", reliability_rows)
    return found
