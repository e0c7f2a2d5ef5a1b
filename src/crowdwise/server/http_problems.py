"""Errors as problem+json (RFC 9457), in the words of the library."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from crowdwise import errors
from crowdwise.errors import CrowdwiseError, either
from crowdwise.server.api_messages import example
from crowdwise.store.campaign_rows import CampaignClosed, NotThere
from crowdwise.store.database import NO_STORE

STATUS: tuple[tuple[type[CrowdwiseError], int], ...] = (
    (NotThere, 404), (errors.DuplicateError, 409), (CampaignClosed, 409), (errors.NotFittedError, 409),
    (errors.SizeError, 413), (errors.InternalError, 500), (errors.OutputError, 503), (CrowdwiseError, 422),
)  # fmt: skip
"""The first that an error is an instance of decides."""
MEDIA = "application/problem+json"

log = logging.getLogger("crowdwise.server")


class Problem(BaseModel):
    """What went wrong: ``title`` is the kind, ``detail`` says what was found and what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None

    model_config = example(title="DuplicateError", status=409, detail="'ann' has voted on 'photo3' before.")


def responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for OpenAPI; every route has those of access, limits and the store."""
    every = sorted({400, 401, 403, 404, 405, 408, 413, 422, 429, 503, *codes})
    return {code: {"model": Problem, "description": HTTPStatus(code).phrase, "content": {MEDIA: {}}} for code in every}


def problem(status: int, title: str, detail: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(body, status, headers, MEDIA)


async def _ours(_: Request, error: Exception) -> JSONResponse:
    status = next(code for kind, code in STATUS if isinstance(error, kind))
    return problem(status, type(error).__name__, str(error), {"Retry-After": "1"} if status == 503 else None)


async def http_problem(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = error.status_code
    return problem(status, HTTPStatus(status).phrase, str(error.detail), dict(error.headers or {}))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    places = in_words(error.errors())
    detail = "; ".join(f"{one['where']}: {one['what']}" for one in places[:3])
    if places[0]["where"] == "body" and "json" not in request.headers.get("content-type", ""):
        detail += ". Send JSON, with content-type: application/json"
    return problem(422, "Invalid request", detail, errors=places)


async def store_problem(request: Request, error: Exception) -> JSONResponse:
    """The store is away, or too busy: an error of the moment, unless it is a mistake of ours."""
    lost = isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated
    if not lost and not isinstance(error, NO_STORE):
        return await _unexpected(request, error)
    log.warning("The store could not be reached.", extra={"path": request.url.path, "why": str(error)[:300]})
    return problem(503, "OutputError", "The store could not be reached just now: try again.", {"Retry-After": "1"})


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("A mistake in crowdwise.", exc_info=error, extra={"path": request.url.path})
    return problem(500, "InternalError", "A mistake in crowdwise, not in your request: it is in the log of the server.")


Handler = Callable[[Request, Exception], Awaitable[Response]]


def add_handlers(app: FastAPI, as_page: Callable[[Request, int, str], Awaitable[Response]]) -> None:
    """Errors as problems; where a person opened the address in a browser, as pages (``as_page``: status and detail)."""

    def shown(handler: Callable[[Request, Exception], Awaitable[JSONResponse]]) -> Handler:
        async def run(request: Request, error: Exception) -> Response:
            answer = await handler(request, error)
            opened = "text/html" in request.headers.get("accept", "")
            if request.scope["path"].startswith("/api/"):
                opened &= request.headers.get("sec-fetch-dest") == "document"
            if answer.status_code < 400 or not opened:
                return answer
            return await as_page(request, answer.status_code, json.loads(bytes(answer.body))["detail"])

        return run

    app.add_exception_handler(CrowdwiseError, shown(_ours))
    app.add_exception_handler(HTTPException, shown(http_problem))
    app.add_exception_handler(RequestValidationError, shown(_invalid))
    app.add_exception_handler(sa.exc.SQLAlchemyError, shown(store_problem))
    app.add_exception_handler(Exception, shown(_unexpected))


EXPECTED = {
    "string_type": "text", "int_type": "a whole number", "int_parsing": "a whole number",
    "int_from_float": "a whole number", "float_type": "a number", "float_parsing": "a number",
    "finite_number": "a finite number", "bool_type": "true or false", "bool_parsing": "true or false",
    "list_type": "a list", "dict_type": "an object, {...}", "model_type": "an object, {...}",
    "model_attributes_type": "an object, {...}",
}  # fmt: skip
"""Kinds of errors of pydantic -> what the interface expects."""
WORDS = {"missing": "is missing", "extra_forbidden": "is not known here"}
SHOWN = 60  # letters of a value that are shown


def in_words(errors: Iterable[Mapping[str, Any]], limit: int = 20) -> list[dict[str, str]]:
    """One entry for each place, with what is wrong there. Where a body may have several forms, the nearest one counts.

    >>> in_words([{"type": "missing", "loc": ("body", "Vote", "label"), "msg": "Field required", "input": {}}])
    [{'where': 'body.label', 'what': 'is missing'}]
    """
    by_place: dict[str, list[Mapping[str, Any]]] = {}
    for error in _nearest(list(errors)):
        by_place.setdefault(_where(error), []).append(error)
    return [{"where": where, "what": _what(there)} for where, there in list(by_place.items())[:limit]]


def _is_form(part: Any) -> bool:
    """Whether a part of a place names a form of the body (``Vote``), not a field of it."""
    return isinstance(part, str) and part[:1].isupper()


def _is_kind(part: Any) -> bool:
    """Whether a part of a place names a type that a value was tried as."""
    return isinstance(part, str) and (part in ("str", "int", "float", "bool", "constrained-str") or "[" in part)


def _nearest(errors: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The errors of the form with the fewest places that have any."""
    forms: dict[str, set[str]] = {}
    for error in errors:
        if len(error["loc"]) > 1 and _is_form(error["loc"][1]):
            forms.setdefault(error["loc"][1], set()).add(_where(error))
    best = min(forms, key=lambda form: len(forms[form]), default=None)
    return [error for error in errors if best is None or error["loc"][1:2] in ((), (best,))]


def _where(error: Mapping[str, Any]) -> str:
    loc = list(error["loc"])
    if error["type"] == "json_invalid":
        return str(loc[0]) if loc else "all of it"
    last = loc.pop() if error["type"] in WORDS and loc else None
    parts = [part for n, part in enumerate(loc) if not _is_kind(part) and not (n == 1 and _is_form(part))]
    return ".".join(map(str, parts if last is None else [*parts, last]))


def _what(errors: list[Mapping[str, Any]]) -> str:
    first = errors[0]
    kind = first["type"]
    if kind == "json_invalid":
        why, place = first.get("ctx", {}).get("error", "it cannot be read"), first["loc"][1:]
        return f"this is no JSON: {why}" + (f" at character {place[0]}" if place else "")
    if kind in WORDS:
        return WORDS[kind]
    value = first.get("input")
    expected = [EXPECTED.get(error["type"]) or ("text" if value == "" else _expected(error["msg"])) for error in errors]
    kind = "a list" if isinstance(value, (list, tuple)) else "an object" if isinstance(value, dict) else "other content"
    shown = "null" if value is None else repr(value) if isinstance(value, (str, int, float)) else kind
    return f"expected {either(list(dict.fromkeys(expected)))}, and found {shown[:SHOWN]}"


def _expected(message: str) -> str:
    """What a message of pydantic asks for."""
    plain = re.sub("^(Input should be|(String|Value|List) should have) ", "", message)
    return plain if plain != message else message[:1].lower() + message[1:]
