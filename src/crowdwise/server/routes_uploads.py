"""Items come in: JSON, CSV or Parquet."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request

from crowdwise.server.api_messages import Item
from crowdwise.server.caller import Lead, ServiceOf
from crowdwise.server.http_problems import responses
from crowdwise.server.item_uploads import ENDINGS, read_upload, received
from crowdwise.store.campaign_rows import find_campaign
from crowdwise.store.item_rows import add_items, checked_items

_EXAMPLE = [{"item": "photo1", "payload": {"image": "https://example.org/1.jpg"}}, {"item": "photo2", "gold": "wren"}]
_FILE = {"type": "string", "format": "binary"}
_LIST = {"type": "array", "items": Item.model_json_schema()}
_BODY: dict[str, Any] = {media: {"schema": _FILE} for media in ENDINGS if media != "application/json"} | {
    "application/json": {"schema": _LIST, "example": _EXAMPLE},
    "multipart/form-data": {"schema": {"type": "object", "required": ["file"], "properties": {"file": _FILE}}},
}

PART = 500
"""Items that are written in one transaction."""

router = APIRouter(prefix="/api/v1/campaigns/{campaign}", responses=responses(409))

__all__ = ["router"]


@router.post(
    "/items", status_code=201, tags=["items"], openapi_extra={"requestBody": {"required": True, "content": _BODY}}
)
async def items_upload(service: ServiceOf, caller: Lead, campaign: str, request: Request) -> dict[str, int]:
    """Declare items: a JSON list, or a table (CSV, Parquet, JSON lines) with a column ``item`` and, where they are
    known, ``gold``, ``group`` and ``priority``. All other columns are what annotators are shown; an item that is there
    gets the new values. Where one is wrong, none is added. Large uploads are written in parts, between which others
    get their turn: where the store fails meanwhile, send it again."""
    await service.read_now(lambda conn: find_campaign(conn, campaign))
    with tempfile.TemporaryDirectory(prefix="crowdwise-") as folder:
        path = await received(request, Path(folder))

        def check(conn: Any) -> Any:
            given = read_upload(path, service.configuration.max_upload)
            return list(checked_items(conn, find_campaign(conn, campaign), given).items())

        async with service.uploading:
            given = await service.heavy_now(lambda: service.read(check))
    new = 0
    for lo in range(0, max(len(given), 1), PART):
        part = dict(given[lo : lo + PART])

        def add(conn: Any, part: Any = part) -> Any:
            found = add_items(conn, find_campaign(conn, campaign), part)
            caller.audit(conn, "add items", campaign, new=found, n=len(part))
            return found

        new += await service.write_now(add, campaign)
    return {"new": new, "changed": len(given) - new}
