"""Errors as problem+json (RFC 9457), in the words of the library."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from crowdwise.errors import CrowdwiseError, DuplicateError, InternalError, NotFittedError, OutputError, SizeError
from crowdwise.server.campaign_rows import CampaignClosed, NotThere
from crowdwise.server.validation_words import in_words

STATUS: tuple[tuple[type[CrowdwiseError], int], ...] = (
    (NotThere, 404), (DuplicateError, 409), (CampaignClosed, 409), (NotFittedError, 409), (SizeError, 413),
    (InternalError, 500), (OutputError, 503), (CrowdwiseError, 422),
)  # fmt: skip
"""The first that an error is an instance of decides."""
NO_STORE = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)
"""Errors of a database that is away, or has no connection left."""
MEDIA = "application/problem+json"

log = logging.getLogger("crowdwise.server")

__all__ = ["MEDIA", "Problem", "add_handlers", "http_problem", "problem", "responses"]


class Problem(BaseModel):
    """What went wrong: ``title`` is the kind, ``detail`` says what was found and what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "type": "about:blank",
                    "title": "DuplicateError",
                    "status": 409,
                    "detail": "'ann' has voted on 'photo3' before, in another vote. Nothing was added.",
                }
            ]
        }
    }


def responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for OpenAPI; every route has those of access, limits and the store."""
    every = sorted({400, 401, 403, 404, 405, 408, 413, 422, 429, 503, *codes})
    return {code: {"model": Problem, "description": HTTPStatus(code).phrase, "content": {MEDIA: {}}} for code in every}


def problem(status: int, title: str, detail: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(body, status, headers, MEDIA)


async def _ours(_: Request, error: Exception) -> JSONResponse:
    status = next(code for kind, code in STATUS if isinstance(error, kind))
    headers = {"Retry-After": "1"} if status == 503 else None
    return problem(status, type(error).__name__, str(error), headers)


async def http_problem(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return problem(
        error.status_code, HTTPStatus(error.status_code).phrase, str(error.detail), dict(error.headers or {})
    )


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = in_words(error.errors())
    detail = "; ".join(f"{one['where']}: {one['what']}" for one in found[:3])
    if found[0]["where"] == "body" and "json" not in request.headers.get("content-type", ""):
        detail += ". Send JSON, with content-type: application/json"
    return problem(422, "Not as the interface says", detail, errors=found)


async def _store(request: Request, error: Exception) -> JSONResponse:
    """The store is away, or too busy: an error of the moment, unless it is a mistake of ours."""
    lost = isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated
    if not lost and not isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.TimeoutError):
        return await _unexpected(request, error)
    log.warning("The store could not be reached.", extra={"path": request.url.path, "why": str(error)[:300]})
    return problem(503, "OutputError", "The store could not be reached just now: try again.", {"Retry-After": "1"})


async def _no_store(request: Request, error: Exception) -> JSONResponse:
    log.warning("The store cannot be reached.", exc_info=error, extra={"path": request.url.path})
    return problem(503, "OutputError", "The store cannot be reached. Try again.", {"Retry-After": "1"})


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("A mistake in crowdwise.", exc_info=error, extra={"path": request.url.path})
    return problem(500, "InternalError", "A mistake in crowdwise, not in your request: it is in the log of the server.")


def add_handlers(app: FastAPI) -> None:
    app.add_exception_handler(CrowdwiseError, _ours)
    app.add_exception_handler(HTTPException, http_problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(sa.exc.SQLAlchemyError, _store)
    for kind in NO_STORE:
        app.add_exception_handler(kind, _no_store)
    app.add_exception_handler(Exception, _unexpected)
