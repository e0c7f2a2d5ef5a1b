"""The pages: sign in, campaigns, labelling, watching. Scripts of a page call the API with the session's cookie.

``static/messages`` has a JSON file for each language, from the English text to another: ``_name`` is what the menu
calls it, ``_dir`` is ``rtl`` where it is written from right to left. A text that a file lacks stays English.
"""

from __future__ import annotations

import json
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Form, HTTPException, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from fastapi.templating import Jinja2Templates

from crowdwise import registry
from crowdwise.errors import either
from crowdwise.server.access_tokens import COOKIE, Token, make_token
from crowdwise.server.api_messages import Plain
from crowdwise.server.caller import Caller, ServiceOf, find_caller, is_embedded
from crowdwise.server.media import TYPES
from crowdwise.server.routes_votes import progress
from crowdwise.server.service import Service, add_audit
from crowdwise.store import roster_rows
from crowdwise.store.campaign_rows import CampaignRow, create_campaign, find_campaign, list_campaigns
from crowdwise.store.database import count, main_of
from crowdwise.store.store_tables import annotators, items, points, tokens

HERE = Path(__file__).parent
templates = Jinja2Templates(directory=HERE / "templates")
OWN_SITE = ("same-origin", "none")
TITLES = {
    401: "Sign in first", 403: "Not for you", 404: "Not there", 409: "Not yet", 422: "This did not work",
    429: "Too many requests", 500: "This did not work", 503: "Not just now",
}  # fmt: skip
"""What pages say of errors."""


def amount(x: float) -> str:
    """Money as elements.js writes it: ``1,234``, ``45.25``, ``0.002``."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.2f}".rstrip("0").rstrip(".") if x >= 1 else f"{x:.3g}"


templates.env.filters["amount"] = amount


async def check_origin(request: Request) -> None:
    """Forms of other sites are refused."""
    if request.method == "POST" and request.headers.get("sec-fetch-site", "none") not in OWN_SITE:
        raise HTTPException(403, "A page of another site sent this. Open the page here and try again.")


router = APIRouter(include_in_schema=False, dependencies=[Depends(check_origin)])


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
    texts = texts_of(request)
    response = templates.TemplateResponse(request, name, {"caller": caller, **texts, **facts}, status)
    if request.query_params.get("lang") == texts["lang"]:
        response.set_cookie(LANGUAGE, texts["lang"], max_age=31_536_000, samesite="lax", httponly=True, path="/")
    return response


def _refused(request: Request, next: str = "/") -> HTMLResponse:
    """The page to sign in, after a login that failed."""
    request.app.state.limits.failed(request)
    return _page(request, "login.html", None, 401, next=next, wrong=True)


async def problem_page(request: Request, status: int, detail: str) -> Response:
    """An error as a page."""
    caller = await find_caller(request)
    if status == 404 and detail == HTTPStatus(404).phrase:
        detail = f"There is nothing at {request.url.path}."
    return _page(request, "problem.html", caller, status, title=TITLES.get(status, TITLES[500]), detail=detail)


async def _signed_in(request: Request, *roles: str) -> Caller:
    """Who looks at a page; without a session, the way to sign in."""
    caller = await find_caller(request)
    if caller is None:
        raise HTTPException(303, "Sign in first.", {"Location": f"/login?next={quote(request.url.path)}"})
    if caller.role not in roles:
        raise HTTPException(403, f"This page is for {either(roles)}. Sign in with another token.")
    return caller


async def _allowed(request: Request, service: Service, campaign: str, *roles: str) -> tuple[Caller, CampaignRow]:
    """Who looks at a page of a campaign, and the campaign."""
    caller = await _signed_in(request, *roles)
    if not caller.may_see(campaign):
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
    rows, counts = await service.read_now(lambda conn: (list_campaigns(conn), counted(conn)))
    mine = [row for row in reversed(rows) if caller.may_see(row.id) and not row.is_further]
    sample = service.configuration.sample and caller.role == "admin"
    return _page(request, "home.html", caller, campaigns=mine, counts=counts, sample=sample, kinds=KINDS)


KINDS = {kind.name: kind.heading for kind in registry.ANSWER_TYPES.values() if kind.form}
"""What pages call the answer types."""


def counted(conn: sa.Connection) -> dict[str, dict[str, Any]]:
    """Campaign -> its items, annotators, and the latest point of its curve."""
    out: dict[str, dict[str, Any]] = {}
    for table in (items, annotators):
        for id_, n in conn.execute(sa.select(table.c.campaign, sa.func.count()).group_by(table.c.campaign)):
            out.setdefault(id_, {})[table.name] = n
    last = sa.select(points.c.campaign, sa.func.max(points.c.seq).label("seq")).group_by(points.c.campaign).subquery()
    same = (last.c.campaign == points.c.campaign) & (last.c.seq == points.c.seq)
    for row in conn.execute(sa.select(points.c.campaign, points.c.accuracy, points.c.state).join(last, same)):
        out.setdefault(row.campaign, {}).update(accuracy=row.accuracy, standing=row.state)
    return out


@router.get("/login")
async def login(request: Request, service: ServiceOf, next: str = "/") -> Response:
    return _page(request, "login.html", None, next=next, wrong=False)


@router.post("/login")
async def login_with_token(
    request: Request, service: ServiceOf, token: Annotated[str, Form(max_length=200)],
    next: Annotated[str, Form(max_length=500)] = "/",
) -> Response:  # fmt: skip
    """Begin a session with a token."""
    known = await service.token_now(token.strip())
    if known is None or known.kind == "signup":
        return _refused(request, next)
    inside = next.startswith("/") and not next.startswith(("//", "/\\"))
    return _begin(service, known, next if inside and next != "/" else _home(known))


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
    token = await service.token_now(secret)
    if token is None or token.kind != "invitation":
        return _refused(request)
    return _begin(service, token, _home(token))


WORKER = ("PROLIFIC_PID", "workerId", "worker", "name")  # where Prolific, MTurk and others say who comes


async def _signup(request: Request, service: Service, secret: str) -> CampaignRow | None:
    """The campaign of a sign-up link that holds."""
    if is_embedded(request):
        raise HTTPException(403, "Open the link in a window of its own.")
    token = await service.token_now(secret)
    if token is None or token.kind != "signup" or token.campaign is None:
        return None
    return await service.read_now(lambda conn: find_campaign(conn, str(token.campaign)))


@router.get("/start/{secret}")
async def start(request: Request, service: ServiceOf, secret: str) -> Response:
    """The first page of who comes by a sign-up link: what the campaign is about, and what is agreed to."""
    row = await _signup(request, service, secret)
    if row is None:
        return _refused(request)
    name = next((value for key in WORKER if (value := request.query_params.get(key, "").strip()[:200])), "")
    return _page(request, "start.html", None, campaign=row, secret=secret, worker=name, wrong="")


@router.post("/start/{secret}")
async def start_labelling(
    request: Request, service: ServiceOf, secret: str, name: Annotated[Plain, Form(max_length=200)] = "",
    agreed: Annotated[str, Form(max_length=10)] = "",
) -> Response:  # fmt: skip
    """Become an annotator and label. A worker id is no secret: another browser needs a link of its own."""
    row = await _signup(request, service, secret)
    if row is None:
        return _refused(request)
    name, caller = name.strip(), await find_caller(request)
    if caller is not None and caller.token.campaign == row.id and caller.token.name == name:
        return RedirectResponse(f"/label/{row.id}", 303)

    def join(conn: sa.Connection) -> Token | str:
        now = find_campaign(conn, row.id)
        quota = now.settings["quota"]
        joined = count(conn, tokens, tokens.c.campaign == row.id, tokens.c.kind == "joined")
        if not name or (now.settings["consent"] and not agreed):
            return "Give a name and agree, to begin."
        texts = roster_rows.written_texts(conn, annotators, row.id, [name])
        if roster_rows.known_numbers(conn, annotators, row.id, texts):
            return "This name is taken, or you began in another browser: go on there, or ask for a link of your own."
        if now.state != "open" or (quota is not None and joined >= quota):
            return "There is no place left. Thank you for your interest."
        number = roster_rows.add_annotators(conn, now, {name: None})[name]
        if now.settings["votes_each"]:
            roster_rows.change_annotator(conn, now, name, max_votes=now.settings["votes_each"])
        _, token = make_token(conn, "annotator", name, kind="joined", campaign=row.id, annotator=number, days=90)
        detail = json.dumps({"agreed": bool(now.settings["consent"])})
        add_audit(conn, "sign up", detail, campaign=row.id, token=token.id, actor=name, address="")
        return token

    joined = await service.write_now(join, row.id)
    if isinstance(joined, str):
        return _page(request, "start.html", None, 409, campaign=row, secret=secret, worker=name, wrong=joined)
    return _begin(service, joined, f"/label/{row.id}")


@router.get("/media/{campaign}/{until}/{signature}/{name:path}")
async def media(service: ServiceOf, campaign: str, until: int, signature: str, name: str) -> Response:
    """A file that an item shows, by a signed link."""
    path = await service.heavy_now(lambda: service.media.opened(campaign, until, signature, name))
    if path is None:
        raise HTTPException(404, "This link is not valid, or no longer: load the page again.")
    headers = {"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "private, max-age=3600"}
    return FileResponse(path, media_type=TYPES[path.suffix.lower()], headers=headers)


@router.get("/new")
async def new(request: Request, service: ServiceOf) -> Response:
    """The page to make a campaign."""
    return _page(request, "setup.html", await _signed_in(request, "admin"), campaign=None, kinds=KINDS)


@router.get("/campaign/{campaign}")
async def campaign(request: Request, service: ServiceOf, campaign: str) -> Response:
    """The page to set up and run a campaign: items, people, rules, tokens, webhooks, the end."""
    caller, row = await _allowed(request, service, campaign, "admin", "lead")
    if row.is_further:
        return RedirectResponse(f"/campaign/{main_of(campaign)}", 303)
    return _page(request, "setup.html", caller, campaign=row, kinds=KINDS, media=service.configuration.media)


@router.get("/api")
async def reference(request: Request) -> Response:
    """The reference of the API, from what the server itself says of it."""
    spec = request.app.openapi()
    parts: dict[str, list[Any]] = {}
    for path, methods in spec["paths"].items():
        for method, about in methods.items():
            parts.setdefault(about.get("tags", ["other"])[0], []).append((method.upper(), path, about))
    return _page(
        request, "reference.html", await find_caller(request), parts=parts, schemas=spec["components"]["schemas"]
    )


@router.get("/label/{campaign}")
async def label(
    request: Request, service: ServiceOf, campaign: str, annotator: Annotated[str | None, Query(max_length=500)] = None
) -> Response:
    """The labelling page: of an annotator, or of a lead who labels under a name."""
    caller, row = await _allowed(request, service, campaign, "annotator", "lead", "admin")
    if row.is_further:
        return RedirectResponse(f"/label/{main_of(campaign)}?{request.url.query}", 303)
    own = caller.role == "annotator"
    if own == (annotator is not None):
        raise HTTPException(403, "Annotators label for themselves." if own else "Say who labels: annotator=NAME.")

    def read(conn: Any) -> Any:
        who = caller.annotator or 0 if own else roster_rows.find_numbers(conn, annotators, campaign, [annotator])[0]
        return who, progress(conn, campaign, who), asked_together(conn, row)

    who, done, asked = await service.read_now(read)
    return _page(
        request, "label.html", caller, campaign=row, progress=done, annotator=who, label_as=annotator,
        practice=row.settings["practice"],
        questions=[
            {
                "question": one.settings["question"], "type": one.answer_type, "classes": one.classes,
                "scale": one.settings["scale"], "ties": one.settings["ties"],
                "about": one.settings["instructions"] if one.is_further else "",
            }
            for one in asked
        ],
    )  # fmt: skip


def asked_together(conn: sa.Connection, row: CampaignRow) -> list[CampaignRow]:
    """A campaign and the further questions about its items; of such a question those that it is asked with."""
    main = find_campaign(conn, main_of(row.id)) if row.is_further else row
    return [main, *(find_campaign(conn, further) for further in main.questions.values())]


@router.post("/label/{campaign}")
async def label_yourself(
    request: Request, service: ServiceOf, campaign: str, csrf: Annotated[str, Form(max_length=100)]
) -> Response:
    """Become an annotator of a campaign, as a lead, and go to its labelling page."""
    caller, row = await _allowed(request, service, main_of(campaign), "lead", "admin")
    _check_csrf(caller, csrf)
    await service.write_now(lambda conn: roster_rows.add_annotators(conn, row, {caller.token.name: None}), row.id)
    return RedirectResponse(_labelling(row, caller), 303)


def _check_csrf(caller: Caller, csrf: str) -> None:
    if not caller.showed(csrf):
        raise HTTPException(403, "Load the page again: it is of another session.")


def _labelling(row: CampaignRow, caller: Caller) -> str:
    """Where a lead labels under the name of the token."""
    return f"/label/{row.id}?annotator={quote(caller.token.name, safe='')}"


@router.get("/watch/{campaign}")
async def watch(request: Request, service: ServiceOf, campaign: str) -> Response:
    """The watching page."""
    caller, row = await _allowed(request, service, campaign, "admin", "lead", "reader")
    asked = await service.read_now(lambda conn: asked_together(conn, row))
    return _page(request, "watch.html", caller, campaign=row, asked=asked)


@router.post("/sample")
async def sample(request: Request, service: ServiceOf, csrf: Annotated[str, Form(max_length=100)]) -> Response:
    """Make the sample campaign and go to its labelling page."""
    caller = await _signed_in(request, "admin")
    _check_csrf(caller, csrf)

    def make(conn: Any) -> Any:
        row = make_sample(conn, caller.token.name)
        caller.audit(conn, "create campaign", row.id, name=row.name)
        return row

    return RedirectResponse(_labelling(await service.write_now(make), caller), 303)


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
    texts = json.loads((HERE / "templates" / "sample.json").read_text(encoding="utf-8"))
    reviews = [roster_rows.ItemGiven(f"review{i + 1}", {"text": text}, gold) for i, (text, gold) in enumerate(texts)]
    roster_rows.add_items(conn, row, roster_rows.checked_items(conn, row, reviews))
    roster_rows.add_annotators(conn, row, {annotator: None})
    return find_campaign(conn, row.id)


FOLDER = HERE / "static" / "messages"
LANGUAGE = "crowdwise-language"  # the cookie with the language that was chosen
DEFAULT = "en"


@cache
def catalogues() -> dict[str, dict[str, str]]:
    """Language -> its texts."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def language_of(request: Request) -> str:
    """The language of a page: asked for by ``lang``, else chosen before, else the first that the browser takes."""
    wanted = [request.query_params.get("lang", ""), request.cookies.get(LANGUAGE, "")]
    accepted = request.headers.get("accept-language", "").split(",")
    wanted += [part.partition(";")[0].strip() for part in accepted]
    tags = (tag.lower().split("-")[0] for tag in wanted)
    return next((tag for tag in tags if tag in catalogues()), DEFAULT)


def texts_of(request: Request) -> dict[str, Any]:
    """What templates need to speak a language: ``t`` for texts, and the catalogue for the scripts of the page."""
    language = language_of(request)
    catalogue = catalogues()[language]

    def t(text: str, **values: Any) -> str:
        translated = catalogue.get(text, text)
        for name, value in values.items():
            translated = translated.replace(f"{{{name}}}", str(value))
        return translated

    names = {tag: one["_name"] for tag, one in catalogues().items()}
    return {"t": t, "lang": language, "dir": catalogue.get("_dir", "ltr"), "messages": catalogue, "languages": names}
