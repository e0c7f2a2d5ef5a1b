"""Campaigns, their items and annotators."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from crowdwise.server.access_tokens import make_token
from crowdwise.server.api_messages import (
    Annotator,
    AnnotatorChanged,
    CampaignChanged,
    CampaignMade,
    CampaignMessage,
    GoldDraw,
    GoldOfDraw,
    Invitation,
    ItemsChanged,
    SignUp,
    StateChanged,
)  # fmt: skip
from crowdwise.server.caller import Admin, Lead, Reader, ServiceOf, WholeAdmin, WholeLead
from crowdwise.server.http_problems import responses
from crowdwise.store import roster_rows
from crowdwise.store.campaign_rows import (
    change_campaign,
    create_campaign,
    delete_campaign,
    find_campaign,
    list_campaigns,
    set_state,
)  # fmt: skip
from crowdwise.store.database import count
from crowdwise.store.store_tables import annotators

router = APIRouter(prefix="/api/v1", responses=responses(409))


@router.get("/campaigns", tags=["campaigns"])
async def campaigns_list(service: ServiceOf, caller: Reader) -> list[CampaignMessage]:
    """All campaigns that the caller may see."""
    return [CampaignMessage(**row.shown()) for row in await service.read_now(list_campaigns) if caller.may_see(row.id)]


@router.post("/campaigns", status_code=201, tags=["campaigns"])
async def campaigns_create(service: ServiceOf, caller: Admin, body: CampaignMade) -> CampaignMessage:
    """Make a campaign."""

    def create(conn: Any) -> Any:
        row = create_campaign(conn, body.model_dump())
        caller.audit(conn, "create campaign", row.id, name=row.name)
        return row

    return CampaignMessage(**(await service.write_now(create)).shown())


@router.get("/campaigns/{campaign}", tags=["campaigns"])
async def campaigns_get(service: ServiceOf, caller: Reader, campaign: str) -> CampaignMessage:
    """A campaign with its settings."""
    return CampaignMessage(**(await service.read_now(lambda conn: find_campaign(conn, campaign))).shown())


@router.patch("/campaigns/{campaign}", tags=["campaigns"])
async def campaigns_change(service: ServiceOf, caller: Lead, campaign: str, body: CampaignChanged) -> dict[str, Any]:
    """Change settings of a running campaign; what changed, with the value before and now."""

    def change(conn: Any) -> Any:
        changed = change_campaign(conn, find_campaign(conn, campaign), body.model_dump(exclude_unset=True))
        if changed:
            caller.audit(conn, "change campaign", campaign, **changed)
        return changed

    return {name: list(pair) for name, pair in (await service.write_now(change, campaign)).items()}


@router.put("/campaigns/{campaign}/state", tags=["campaigns"])
async def campaigns_state(service: ServiceOf, caller: WholeLead, campaign: str, body: StateChanged) -> CampaignMessage:
    """Pause, close or open a campaign."""

    def change(conn: Any, row: Any) -> Any:
        set_state(conn, row, body.state)
        return find_campaign(conn, campaign)

    row = await caller.change(service, campaign, "state of campaign", change, state=body.state)
    return CampaignMessage(**row.shown())


@router.delete("/campaigns/{campaign}", tags=["campaigns"])
async def campaigns_delete(
    service: ServiceOf, caller: WholeAdmin, campaign: str,
    confirm: Annotated[str, Query(description="The name of the campaign.", max_length=200)],
) -> dict[str, str]:  # fmt: skip
    """Delete a campaign with all its votes; ``confirm`` is its name."""

    def delete(conn: Any, row: Any) -> Any:
        delete_campaign(conn, row, confirm)
        return row

    noted = {"name": lambda row: row.name, "votes": lambda row: row.n_answers}
    await caller.change(service, campaign, "delete campaign", delete, **noted)
    service.follower.forget(campaign)
    service.media.forget(campaign)
    return {"deleted": campaign}


@router.get("/campaigns/{campaign}/items", tags=["items"])
async def items_list(
    service: ServiceOf, caller: Lead, campaign: str, after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    search: Annotated[str, Query(max_length=200, description="Part of a name or of what is shown.")] = "",
) -> dict[str, Any]:  # fmt: skip
    """A page of items; the next begins after ``next``."""
    page = await service.read_now(lambda conn: roster_rows.list_items(conn, campaign, after, limit, search), campaign)
    return {"items": page, "next": page[-1]["number"] if len(page) == limit else None}


@router.patch("/campaigns/{campaign}/items", tags=["items"])
async def items_change(service: ServiceOf, caller: Lead, campaign: str, body: ItemsChanged) -> dict[str, int]:
    """Close or reopen items, change their priority, or set their known answer (gold)."""
    changes = body.model_dump(exclude={"items"}, exclude_none=True)
    change = partial(roster_rows.change_items, names=body.items, **changes)
    noted = {"items": body.items[:20], "n": len(body.items), **changes}
    return {"changed": await caller.change(service, campaign, "change items", change, **noted)}


@router.post("/campaigns/{campaign}/proof/draw", status_code=201, tags=["items"])
async def proof_draw(service: ServiceOf, caller: Lead, campaign: str, body: GoldDraw) -> dict[str, Any]:
    """Draw items at random whose gold labels prove how many labels are wrong (``max_error``). A new draw takes the
    place of the last."""
    draw = partial(roster_rows.draw_for_gold, n=body.n)
    return {"items": await caller.change(service, campaign, "draw for gold", draw, n=body.n)}


@router.post("/campaigns/{campaign}/proof", tags=["items"])
async def proof_gold(service: ServiceOf, caller: Lead, campaign: str, body: GoldOfDraw) -> dict[str, Any]:
    """Hand in gold labels of items that were drawn. The model never sees them; when all are there, the labels are
    compared with them, and again as votes come in."""
    add = partial(roster_rows.add_gold_of_draw, gold=dict(body.gold))
    await caller.change(service, campaign, "gold of a draw", add, n=len(body.gold))
    view = await service.heavy_now(lambda: service.look(service.view(campaign)))
    return {"proof": view.status["proof"], "state": view.status["state"]}


@router.get("/campaigns/{campaign}/annotators", tags=["annotators"])
async def annotators_list(service: ServiceOf, caller: Lead, campaign: str) -> list[dict[str, Any]]:
    """All annotators with prices and counts."""
    return await service.read_now(lambda conn: roster_rows.list_annotators(conn, campaign), campaign)


@router.post("/campaigns/{campaign}/annotators", status_code=201, tags=["annotators"])
async def annotators_add(
    service: ServiceOf, caller: WholeLead, campaign: str, people: list[Annotator]
) -> dict[str, int]:
    """Declare annotators, or change prices; how many are new."""

    def add(conn: Any, row: Any) -> int:
        before = count(conn, annotators, annotators.c.campaign == campaign)
        numbers = roster_rows.add_annotators(conn, row, {one.annotator: one.price for one in people}).values()
        return len({number for number in numbers if number > before})

    noted = {"annotators": [one.annotator for one in people[:20]], "n": len(people)}
    return {"new": await caller.change(service, campaign, "add annotators", add, **noted)}


@router.patch("/campaigns/{campaign}/annotators", tags=["annotators"])
@router.patch("/campaigns/{campaign}/annotators/{name}", tags=["annotators"])
async def annotators_change(
    service: ServiceOf, caller: WholeLead, campaign: str, name: str, body: AnnotatorChanged
) -> dict[str, Any]:
    """Suspend an annotator, limit the votes, change the price. A name with a slash, or of dots alone, is given as the
    parameter ``name``."""
    changes = body.model_dump(exclude_none=True)
    change = partial(roster_rows.change_annotator, name=name, **changes)
    await caller.change(service, campaign, "change annotator", change, annotator=name, **changes)
    return {"annotator": name, **changes}


@router.post("/campaigns/{campaign}/signup", status_code=201, tags=["annotators"])
async def signup_make(service: ServiceOf, caller: WholeLead, campaign: str, body: SignUp) -> dict[str, Any]:
    """Make one link for many: who opens it agrees to ``consent``, becomes an annotator and labels. A worker id in the
    query (``PROLIFIC_PID``, ``workerId``) is the name of the annotator. The link is shown once."""

    def make(conn: Any, _: Any) -> Any:
        return make_token(conn, "annotator", "sign-up", kind="signup", campaign=campaign, days=body.days)

    secret, token = await caller.change(service, campaign, "make sign-up link", make, token=lambda pair: pair[1].id)
    address = f"{service.configuration.address}/start/{secret}"
    prolific = f"{address}?PROLIFIC_PID={{{{%PROLIFIC_PID%}}}}"
    return {"link": address, "prolific": prolific, "token": token.id, "expires": token.expires}


@router.post("/campaigns/{campaign}/invitations", status_code=201, tags=["annotators"])
async def invitations_make(service: ServiceOf, caller: WholeLead, campaign: str, body: Invitation) -> dict[str, Any]:
    """Invite an annotator: the link is shown once, and lets its holder label as this annotator."""

    def invite(conn: Any, row: Any) -> Any:
        (number,) = roster_rows.add_annotators(conn, row, {body.annotator: body.price}).values()
        invited: dict[str, Any] = {"kind": "invitation", "campaign": campaign, "annotator": number, "days": body.days}
        return make_token(conn, "annotator", str(body.annotator), **invited)

    noted = {"annotator": body.annotator, "token": lambda pair: pair[1].id}
    secret, token = await caller.change(service, campaign, "invite", invite, **noted)
    link = f"{service.configuration.address}/join/{secret}"
    return {"link": link, "token": token.id, "annotator": body.annotator, "expires": token.expires}
