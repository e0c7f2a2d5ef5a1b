"""The pages: sign in, campaigns, labelling, watching. Scripts of a page call the API with the session's cookie."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import sqlalchemy as sa
from fastapi import APIRouter, Form, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from fastapi.templating import Jinja2Templates

from crowdwise.server.access_tokens import COOKIE, Token
from crowdwise.server.caller import Caller, ServiceOf, find_caller, is_embedded
from crowdwise.server.http_problems import http_problem
from crowdwise.server.routes_votes import progress
from crowdwise.server.service import Service
from crowdwise.store.campaign_rows import CampaignRow, NotThere, create_campaign, find_campaign, list_campaigns
from crowdwise.store.roster_rows import ItemGiven, add_annotators, add_items, checked_items, find_numbers
from crowdwise.store.store_tables import annotators

HERE = Path(__file__).parent
templates = Jinja2Templates(directory=HERE / "templates")
OWN_SITE = ("same-origin", "none")
TITLES = {403: "Not for you", 404: "Not there"}
"""Errors that people get as a page."""


def amount(x: float) -> str:
    """Money as elements.js writes it: ``1,234``, ``45.25``, ``0.002``."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.2f}".rstrip("0").rstrip(".") if x >= 1 else f"{x:.3g}"


templates.env.filters["amount"] = amount


class PageRoute(APIRoute):
    """Errors of pages are pages."""

    def get_route_handler(self) -> Any:
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                if request.method == "POST" and request.headers.get("sec-fetch-site", "none") not in OWN_SITE:
                    raise HTTPException(403, "A page of another site sent this. Open the page here and try again.")
                return await inner(request)
            except (HTTPException, NotThere) as error:
                status, detail = (404, str(error)) if isinstance(error, NotThere) else (error.status_code, error.detail)
                if status not in TITLES:
                    raise
                caller = await find_caller(request)
                return _page(request, "problem.html", caller, status, title=TITLES[status], detail=detail)

        return handler


router = APIRouter(include_in_schema=False, route_class=PageRoute)


def _begin(service: Service, token: Token, where: str) -> RedirectResponse:
    """Begin a session and go somewhere."""
    response = RedirectResponse(where, 303)
    hours = service.configuration.session_hours
    response.set_cookie(
        COOKIE, service.signer.begin(token.id, hours), max_age=int(3600 * hours), httponly=True, samesite="lax",
        secure=service.configuration.secure, path="/",
    )  # fmt: skip
    return response


def _home(token: Token) -> str:
    """The first page."""
    if token.role == "annotator":
        return f"/label/{token.campaign}"
    return "/" if token.campaign is None else f"/watch/{token.campaign}"


def _page(request: Request, name: str, caller: Caller | None, status: int = 200, **facts: Any) -> HTMLResponse:
    return templates.TemplateResponse(request, name, {"caller": caller, **facts}, status)


async def not_there(request: Request, error: Exception) -> Response:
    """An address of nothing: a page for people, else a problem as everywhere."""
    path = request.url.path
    if path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return await http_problem(request, error)
    caller = await find_caller(request)
    return _page(request, "problem.html", caller, 404, title=TITLES[404], detail=f"There is nothing at {path}.")


async def _allowed(request: Request, service: Service, campaign: str, *roles: str) -> tuple[Caller, CampaignRow]:
    """Who looks at a page of a campaign; without a session, the way to sign in."""
    caller = await find_caller(request)
    if caller is None:
        raise HTTPException(303, "Sign in first.", {"Location": f"/login?next={quote(request.url.path)}"})
    if caller.role not in roles or caller.token.campaign not in (None, campaign):
        raise HTTPException(403, "This page is not for you.")
    return caller, await service.read_now(lambda conn: find_campaign(conn, campaign))


@router.get("/")
async def home(request: Request, service: ServiceOf) -> Response:
    """The campaigns that one may see, and a sample to try."""
    caller = await find_caller(request)
    if caller is None:
        return RedirectResponse("/login", 303)
    if caller.role == "annotator":
        return RedirectResponse(_home(caller.token), 303)
    found = await service.read_now(list_campaigns)
    mine = [row for row in found if caller.token.campaign in (None, row.id)]
    sample = service.configuration.sample and caller.role == "admin"
    return _page(request, "home.html", caller, campaigns=mine, sample=sample)


@router.get("/login")
async def login(request: Request, service: ServiceOf, next: str = "/") -> Response:
    return _page(request, "login.html", None, next=next, wrong=False)


@router.post("/login")
async def login_with_token(
    request: Request, service: ServiceOf, token: Annotated[str, Form(max_length=200)],
    next: Annotated[str, Form(max_length=500)] = "/",
) -> Response:  # fmt: skip
    """Begin a session with a token."""
    found = await service.token_now(token.strip())
    if found is None:
        request.app.state.limits.failed(request)
        return _page(request, "login.html", None, 401, next=next, wrong=True)
    inside = next.startswith("/") and not next.startswith(("//", "/\\"))
    return _begin(service, found, next if inside and next != "/" else _home(found))


@router.post("/logout")
async def logout(request: Request, service: ServiceOf) -> Response:
    session = service.signer.read(request.cookies.get(COOKIE, ""))
    if session is not None and not is_embedded(request):
        await service.end_session(session)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, path="/")
    return response


@router.get("/join/{secret}")
async def join(request: Request, service: ServiceOf, secret: str) -> Response:
    """Follow an invitation link: a session begins, and the labelling page opens."""
    if is_embedded(request):  # an image with this address would change the session of its viewer
        raise HTTPException(403, "Open the link in a window of its own.")
    found = await service.token_now(secret)
    if found is None or found.kind != "invitation":
        request.app.state.limits.failed(request)
        return _page(request, "login.html", None, 401, next="/", wrong=True)
    return _begin(service, found, _home(found))


@router.get("/label/{campaign}")
async def label(
    request: Request, service: ServiceOf, campaign: str, annotator: Annotated[str | None, Query(max_length=500)] = None
) -> Response:
    """The labelling page: of an annotator, or of a lead who labels under a name."""
    caller, row = await _allowed(request, service, campaign, "annotator", "lead", "admin")
    own = caller.role == "annotator"
    if own == (annotator is not None):
        raise HTTPException(403, "Annotators label for themselves." if own else "Say who labels: annotator=NAME.")

    def read(conn: Any) -> Any:
        who = caller.annotator or 0 if own else find_numbers(conn, annotators, campaign, [annotator])[0]
        return who, progress(conn, campaign, who)

    who, done = await service.read_now(read)
    return _page(request, "label.html", caller, campaign=row, progress=done, annotator=who, label_as=annotator)


@router.post("/label/{campaign}")
async def label_yourself(
    request: Request, service: ServiceOf, campaign: str, csrf: Annotated[str, Form(max_length=100)]
) -> Response:
    """Become an annotator of a campaign, as a lead, and go to its labelling page."""
    caller, row = await _allowed(request, service, campaign, "lead", "admin")
    _check_csrf(caller, csrf)
    await service.write_now(lambda conn: add_annotators(conn, row, {caller.token.name: None}), campaign)
    return RedirectResponse(_labelling(row, caller), 303)


def _check_csrf(caller: Caller, csrf: str) -> None:
    if caller.csrf is None or not hmac.compare_digest(csrf.encode(), caller.csrf.encode()):
        raise HTTPException(403, "Load the page again: it is of another session.")


def _labelling(row: CampaignRow, caller: Caller) -> str:
    """Where a lead labels under the name of the token."""
    return f"/label/{row.id}?annotator={quote(caller.token.name, safe='')}"


@router.get("/watch/{campaign}")
async def watch(request: Request, service: ServiceOf, campaign: str) -> Response:
    """The watching page."""
    caller, row = await _allowed(request, service, campaign, "admin", "lead", "reader")
    return _page(request, "watch.html", caller, campaign=row)


@router.post("/sample")
async def sample(request: Request, service: ServiceOf, csrf: Annotated[str, Form(max_length=100)]) -> Response:
    """Make the sample campaign and go to its labelling page."""
    caller = await find_caller(request)
    if caller is None or caller.role != "admin":
        raise HTTPException(403, "Sign in as an admin to make a campaign.")
    _check_csrf(caller, csrf)

    def make(conn: Any) -> Any:
        row = make_sample(conn, caller.token.name)
        caller.audit(conn, "create campaign", row.id, name=row.name)
        return row

    return RedirectResponse(_labelling(await service.write_now(make), caller), 303)


TEXTS = (
    ("The soup was cold and the waiter did not care.", "negative"),
    ("Best bread in town, we come every Sunday.", "positive"),
    ("They open at nine and close at six.", "neutral"),
    ("I waited an hour for a table I had booked.", None),
    ("The garden is lovely in the evening.", None),
    ("The menu has twelve dishes.", None),
    ("My coffee tasted burnt, the second one too.", None),
    ("Friendly people, fair prices, clean rooms.", None),
    ("It is next to the station.", None),
    ("Not bad at all, though the music was loud.", None),
    ("I would not go there again if it were free.", None),
    ("The portions are small, but everything is fresh.", None),
    ("We were the only guests, and still forgotten.", None),
    ("You pay at the counter.", None),
    ("The cake alone is worth the walk.", None),
    ("Nice view. That is all I can say for it.", None),
    ("There are forty seats inside and ten outside.", "neutral"),
    ("A warm welcome and the best soup of the winter.", "positive"),
    ("The bill was wrong twice, and never in our favour.", "negative"),
    ("It was fine, I suppose.", None),
)


def make_sample(conn: sa.Connection, annotator: str) -> CampaignRow:
    """The sample campaign, with an annotator who can label it at once."""
    row = create_campaign(
        conn,
        {
            "name": "Sample: moods of reviews", "classes": ["negative", "neutral", "positive"], "budget": 100.0,
            "max_votes": 5, "gold_rate": 0.15, "feedback": True,
            "instructions": "How does the writer feel about the place? Choose **neutral** where no feeling is shown.",
        },
    )  # fmt: skip
    given = [ItemGiven(f"review{i + 1}", {"text": text}, gold) for i, (text, gold) in enumerate(TEXTS)]
    add_items(conn, row, checked_items(conn, row, given))
    add_annotators(conn, row, {annotator: None})
    return find_campaign(conn, row.id)
