"""Label Studio's ML backend: connect a model at ``/label-studio``, with basic authentication and a token as password.

A process keeps what it was shown of the projects that asked last; a request for predictions brings its tasks with their
annotations, so that nothing is lost where a process is new.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, HTTPException, Request

from crowdwise.label_studio.ls_backend import Backend
from crowdwise.server.access_tokens import Token
from crowdwise.server.browser_sessions import LET_IN
from crowdwise.server.caller import ServiceOf
from crowdwise.server.http_problems import responses

CHALLENGE = {"WWW-Authenticate": 'Basic realm="crowdwise"'}
ROLES = ("admin", "lead")
MOST = 32
"""Projects whose tasks are kept in a process."""

router = APIRouter(prefix="/label-studio", tags=["label studio"], responses=responses())

__all__ = ["router"]


async def token_of(request: Request, service: ServiceOf) -> Token:
    """The token that is the password of the request."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    try:
        _, _, secret = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        secret = ""
    token = await service.token_now("secret", secret) if scheme.lower() == "basic" and secret else None
    if token is None or token.kind != "token":
        raise HTTPException(401, "Basic authentication with a token (cw_...) as password is needed.", CHALLENGE)
    request.scope[LET_IN] = True
    if token.role not in ROLES:
        raise HTTPException(403, f"This needs the role {' or '.join(ROLES)}; yours is {token.role}.")
    return token


TokenOf = Annotated[Token, Depends(token_of)]
BodyOf = Annotated[dict[str, Any], Body()]


def backend_of(request: Request, token: Token, body: Mapping[str, Any]) -> Backend:
    """What is known of the project of a request, apart for each token."""
    project = body.get("project")
    number = project.get("id") if isinstance(project, Mapping) else str(project).partition(".")[0]
    kept: OrderedDict[tuple[str, str], Backend] | None = getattr(request.app.state, "label_studio", None)
    if kept is None:
        kept = request.app.state.label_studio = OrderedDict()
    key = (token.id, str(number))
    backend = kept.setdefault(key, Backend())
    kept.move_to_end(key)
    while len(kept) > MOST:
        kept.popitem(last=False)
    return backend


@router.get("/health")
async def health(token: TokenOf) -> dict[str, Any]:
    """Whether the backend lives."""
    return Backend().health()


@router.post("/setup")
async def setup(request: Request, token: TokenOf, body: BodyOf) -> dict[str, Any]:
    """A project is connected, or its labelling configuration changed."""
    return await asyncio.to_thread(backend_of(request, token, body).setup, body)


@router.post("/predict")
async def predict(request: Request, token: TokenOf, body: BodyOf) -> dict[str, Any]:
    """The consensus on each task, with score and model version."""
    return await asyncio.to_thread(backend_of(request, token, body).predict, body)


@router.post("/webhook")
async def webhook(request: Request, token: TokenOf, body: BodyOf) -> dict[str, Any]:
    """Annotations came, changed or went."""
    return await asyncio.to_thread(backend_of(request, token, body).webhook, body)
