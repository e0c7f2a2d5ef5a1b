"""Who asks, and whether they may: a token in ``Authorization: Bearer`` (for Label Studio the password of ``Basic``), or
the session of a browser. It is found out before the body of a request is read (``request_limits``)."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import sqlalchemy as sa
from fastapi import Depends, HTTPException, Request

from crowdwise.server.access_tokens import COOKIE, CSRF_HEADER, Role, Session, Token
from crowdwise.server.service import Service, add_audit
from crowdwise.store.campaign_rows import CampaignRow, find_campaign
from crowdwise.store.database import main_of

T = TypeVar("T")
SAFE = ("GET", "HEAD", "OPTIONS")
CALLER = "crowdwise.caller"  # where a request keeps who asks
LABEL_STUDIO = "/label-studio/"


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _service_of(request: Request) -> Service:
    return service_of(request)  # as a coroutine: FastAPI calls a plain function in a thread, for every request


ServiceOf = Annotated[Service, Depends(_service_of)]


@dataclass(frozen=True)
class Caller:
    """Who asks: a token, from an address, and what showed it: the secret, or the session of a browser."""

    token: Token
    address: str
    shown: str | Session

    @property
    def csrf(self) -> str | None:
        """The CSRF token of the session, where it is one."""
        return self.shown.csrf if isinstance(self.shown, Session) else None

    def showed(self, csrf: str) -> bool:
        """Whether a request shows the CSRF token of the session: a page of ours sent it."""
        return self.csrf is not None and hmac.compare_digest(csrf.encode(), self.csrf.encode())

    @property
    def role(self) -> Role:
        return self.token.role

    @property
    def annotator(self) -> int | None:
        """The number of the annotator who asks."""
        return self.token.annotator

    def may_see(self, campaign: str) -> bool:
        """Whether the token is of a campaign, or of all; leads and readers also see its further questions."""
        main = campaign if self.role == "annotator" else main_of(campaign)
        return self.token.campaign in (None, campaign, main)

    def audit(self, conn: sa.Connection, action: str, campaign: str | None, **detail: Any) -> None:
        """Note what this caller does, in the same transaction."""
        add_audit(
            conn, action, json.dumps(detail, default=str), campaign=campaign, token=self.token.id,
            actor=f"{self.role} {self.token.name}", address=self.address,
        )  # fmt: skip

    async def change(
        self, service: Service, campaign: str, action: str, run: Callable[[sa.Connection, CampaignRow], T],
        **detail: Any,
    ) -> T:  # fmt: skip
        """What ``run`` gives of a campaign that it changes, which is noted in the same transaction; a function among
        the details says what of the result is noted."""

        def write(conn: sa.Connection) -> T:
            done = run(conn, find_campaign(conn, campaign))
            self.audit(conn, action, campaign, **{k: x(done) if callable(x) else x for k, x in detail.items()})
            return done

        return await service.write_now(write, campaign)


def shown_by(request: Request) -> str | Session | None:
    """The secret or the session that a request shows, valid or not."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if request.scope["path"].startswith(LABEL_STUDIO):
        try:
            password = base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
        return password if scheme.lower() == "basic" and password else None
    if scheme.lower() == "bearer" and credentials.strip():
        return credentials.strip()
    return None if is_embedded(request) else service_of(request).signer.read(request.cookies.get(COOKIE, ""))


async def find_caller(request: Request) -> Caller | None:
    """Who asks; ``None`` where there is no valid token or session. It is looked up once for a request."""
    if CALLER not in request.scope:
        shown = shown_by(request)
        token = None if shown is None else await service_of(request).token_now(shown)
        if shown is None or token is None or (isinstance(shown, str) and token.kind != "token"):
            request.scope[CALLER] = None
        else:
            address = (request.client.host if request.client else "unknown")[:64]
            request.scope[CALLER] = Caller(token, address, shown)
    caller: Caller | None = request.scope[CALLER]
    return caller


def is_embedded(request: Request) -> bool:
    """Whether a page asks for an image, a frame, a script or the like: what people wrote may hold such addresses, and
    they must do nothing with a session."""
    return request.headers.get("sec-fetch-dest", "empty") not in ("empty", "document")


async def caller_of(request: Request) -> Caller:
    """Who asks; an error without a valid token or session, or where a page of another site may have sent it."""
    caller = await find_caller(request)
    if caller is None:
        if request.scope["path"].startswith(LABEL_STUDIO):
            words = "Basic authentication with a token (cw_...) as password is needed."
            raise HTTPException(401, words, {"WWW-Authenticate": 'Basic realm="crowdwise"'})
        words = "A valid token is needed: Authorization: Bearer cw_..., or an invitation link."
        raise HTTPException(401, words, {"WWW-Authenticate": "Bearer"})
    checked = caller.csrf is not None and request.method not in SAFE
    if checked and not caller.showed(request.headers.get(CSRF_HEADER, "")):
        raise HTTPException(403, f"The header {CSRF_HEADER} of the page is missing or wrong: load the page again.")
    return caller


class Needs:
    """Lets some roles in, and with a ``campaign`` in the path those of this campaign only; with ``whole`` it is no
    further question: its items, people and state are those of its campaign."""

    def __init__(self, *roles: Role, whole: bool = False) -> None:
        self.roles, self.whole = roles, whole

    async def __call__(self, request: Request) -> Caller:
        caller = await caller_of(request)
        if caller.role not in self.roles:
            raise HTTPException(403, f"This needs the role {' or '.join(self.roles)}; yours is {caller.role}.")
        wanted = request.path_params.get("campaign")
        if wanted is not None and not caller.may_see(wanted):
            raise HTTPException(403, "Your token is for another campaign.")
        if self.whole and wanted is not None and main_of(wanted) != wanted:
            words = f"{wanted} is one of several questions that are asked together: this is done at {main_of(wanted)}."
            raise HTTPException(422, words)
        return caller


Admin = Annotated[Caller, Depends(Needs("admin"))]
Lead = Annotated[Caller, Depends(Needs("admin", "lead"))]
Reader = Annotated[Caller, Depends(Needs("admin", "lead", "reader"))]
Voter = Annotated[Caller, Depends(Needs("admin", "lead", "annotator"))]
WholeAdmin = Annotated[Caller, Depends(Needs("admin", whole=True))]
WholeLead = Annotated[Caller, Depends(Needs("admin", "lead", whole=True))]
WholeVoter = Annotated[Caller, Depends(Needs("admin", "lead", "annotator", whole=True))]
