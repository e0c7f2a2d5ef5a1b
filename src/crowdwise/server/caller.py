"""Who asks, and whether they may: a token in ``Authorization: Bearer``, or the session of a browser."""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Depends, HTTPException, Request

from crowdwise.server.access_tokens import Role, Token
from crowdwise.server.browser_sessions import COOKIE, CSRF_HEADER, LET_IN
from crowdwise.server.service import Service, add_audit

SAFE = ("GET", "HEAD", "OPTIONS")
CHALLENGE = {"WWW-Authenticate": "Bearer"}

__all__ = [
    "Admin", "Caller", "Lead", "Needs", "Reader", "ServiceOf", "Voter", "caller_of", "find_caller", "is_embedded",
    "service_of",
]  # fmt: skip


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def _service_of(request: Request) -> Service:
    return service_of(request)  # as a coroutine: FastAPI calls a plain function in a thread, for every request


ServiceOf = Annotated[Service, Depends(_service_of)]


@dataclass(frozen=True)
class Caller:
    """Who asks: a token, from an address; ``csrf`` is that of the session, where it is one."""

    token: Token
    address: str
    csrf: str | None = None

    @property
    def role(self) -> Role:
        return self.token.role

    @property
    def annotator(self) -> int | None:
        """The number of the annotator who asks."""
        return self.token.annotator

    def audit(self, conn: sa.Connection, action: str, campaign: str | None, **detail: Any) -> None:
        """Note what this caller does, in the same transaction."""
        add_audit(
            conn, action, json.dumps(detail, default=str), campaign=campaign, token=self.token.id,
            actor=f"{self.role} {self.token.name}", address=self.address,
        )  # fmt: skip


async def find_caller(request: Request) -> Caller | None:
    """Who asks; nobody where there is no valid token or session."""
    service = service_of(request)
    address = (request.client.host if request.client else "unknown")[:64]
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and secret:
        token = await service.token_now("secret", secret.strip())
        if token is None or token.kind != "token":
            return None
        request.scope[LET_IN] = True
        return Caller(token, address)
    session = None if is_embedded(request) else service.signer.read(request.cookies.get(COOKIE, ""))
    token = None if session is None else await service.token_now("id", session.token)
    if session is None or token is None:
        return None
    request.scope[LET_IN] = True
    return Caller(token, address, session.csrf)


def is_embedded(request: Request) -> bool:
    """Whether a page asks for an image, a frame, a script or the like: what people wrote may hold such addresses, and
    they must do nothing with a session."""
    return request.headers.get("sec-fetch-dest", "empty") not in ("empty", "document")


async def caller_of(request: Request) -> Caller:
    """Who asks; an error where there is nobody, or where a page of another site may have sent it."""
    found = await find_caller(request)
    if found is None:
        raise HTTPException(
            401, "A valid token is needed: Authorization: Bearer cw_..., or an invitation link.", CHALLENGE
        )
    if found.csrf is not None and request.method not in SAFE:
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(given.encode(), found.csrf.encode()):
            raise HTTPException(403, f"The header {CSRF_HEADER} of the page is missing or wrong: load the page again.")
    return found


class Needs:
    """Lets some roles in, and with a ``campaign`` in the path those of this campaign only."""

    def __init__(self, *roles: Role) -> None:
        self.roles = roles

    async def __call__(self, request: Request) -> Caller:
        caller = await caller_of(request)
        if caller.role not in self.roles:
            raise HTTPException(403, f"This needs the role {' or '.join(self.roles)}; yours is {caller.role}.")
        wanted = request.path_params.get("campaign")
        if caller.token.campaign is not None and wanted is not None and wanted != caller.token.campaign:
            raise HTTPException(403, "Your token is for another campaign.")
        return caller


Admin = Annotated[Caller, Depends(Needs("admin"))]
Lead = Annotated[Caller, Depends(Needs("admin", "lead"))]
Reader = Annotated[Caller, Depends(Needs("admin", "lead", "reader"))]
Voter = Annotated[Caller, Depends(Needs("admin", "lead", "annotator"))]
