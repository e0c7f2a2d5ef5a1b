"""Label Studio's ML backend: connect a model at ``/label-studio``, with basic authentication and a token as password.

A request for predictions brings its tasks with their annotations, so that nothing is lost where a process is new.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request

from crowdwise.label_studio import ls_backend
from crowdwise.label_studio.ls_backend import Backend
from crowdwise.server.access_tokens import Token
from crowdwise.server.caller import Lead, ServiceOf
from crowdwise.server.http_problems import responses

MOST, MOST_BYTES = 32, 2 * ls_backend.MOST_BYTES
"""Projects whose tasks are kept in a process, and their bytes; those that asked longest ago are forgotten first."""

router = APIRouter(prefix="/label-studio", tags=["label studio"], responses=responses())

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
    while len(kept) > MOST or (len(kept) > 1 and sum(one.size for one in kept.values()) > MOST_BYTES):
        kept.popitem(last=False)
    return backend


@router.get("/health")
async def health(caller: Lead) -> dict[str, Any]:
    """Whether the backend lives."""
    return Backend().health()


@router.post("/setup")
async def setup(request: Request, service: ServiceOf, caller: Lead, body: BodyOf) -> dict[str, Any]:
    """A project is connected, or its labelling configuration changed."""
    return await service.heavy_now(partial(backend_of(request, caller.token, body).setup, body))


@router.post("/predict")
async def predict(request: Request, service: ServiceOf, caller: Lead, body: BodyOf) -> dict[str, Any]:
    """The consensus on each task, with score and model version."""
    return await service.heavy_now(partial(backend_of(request, caller.token, body).predict, body))


@router.post("/webhook")
async def webhook(request: Request, service: ServiceOf, caller: Lead, body: BodyOf) -> dict[str, Any]:
    """Annotations came, changed or went."""
    return await service.heavy_now(partial(backend_of(request, caller.token, body).webhook, body))
