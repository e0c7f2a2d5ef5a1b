"""Limits and headers around every request: size and pace of bodies, rate, security headers, a log line, counts.

The client is identified first. Without a token its body must be small and quick, and one for the API is not read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter, defaultdict
from typing import Any

import sqlalchemy as sa
from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crowdwise.server.caller import CALLER, LABEL_STUDIO, SAFE, caller_of, find_caller, service_of, shown_by
from crowdwise.server.configuration import Configuration
from crowdwise.server.http_problems import http_problem, problem, store_problem

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' {from_} data:; media-src 'self' {from_}; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff", "x-frame-options": "DENY",
    "referrer-policy": "no-referrer", "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}  # fmt: skip
TOKENLESS_BYTES, TOKENLESS_SECONDS = 10_000, 5.0
"""The most bytes of a body without a valid token or session (a login), and the seconds to wait for its next part."""
PACE = 20_000.0  # bytes a second that a body must come with, beyond the seconds that each part may take
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")  # methods that are counted by their name
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram of durations, in seconds."""

log = logging.getLogger("crowdwise.server")


class Buckets:
    """Token buckets: so many a second, with as many ahead as two seconds give."""

    def __init__(self, rate: float, ahead: float) -> None:
        self.rate, self.ahead = rate, ahead
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, key: str) -> float:
        """Seconds to wait until one can be taken."""
        return max(0.0, (1.0 - self._now(key)) / self.rate) if self.rate else 0.0

    def take(self, key: str) -> float:
        """Take one; seconds to wait where there is none."""
        wait = self.wait(key)
        if self.rate and not wait:
            if len(self._left) > 50_000:
                self._left.clear()
            self._left[key] = (self._now(key) - 1.0, time.monotonic())
        return wait

    def _now(self, key: str) -> float:
        left, when = self._left.get(key, (self.ahead, 0.0))
        return min(self.ahead, left + (time.monotonic() - when) * self.rate)


class _Cut(Exception):
    """The body of a request is not read further; the argument is the answer."""


class RequestLimits:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, configuration: Configuration) -> None:
        self.app, self.configuration = app, configuration
        self.policy = CSP.format(from_=" ".join(configuration.origins) or "https:")
        self.rates = Buckets(configuration.rate_limit, max(1.0, 2.0 * configuration.rate_limit))
        self.unknown = Buckets(configuration.rate_limit, max(10.0, 2.0 * configuration.rate_limit))
        """Of addresses, for callers who are not known yet: a new forged token with every request gains nothing."""
        self.failures = Buckets(configuration.login_limit / 60.0, max(configuration.login_limit, 1.0))
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.durations: dict[str, list[float]] = defaultdict(lambda: [0.0] * (len(BUCKETS) + 2))
        self.in_flight = 0

    def failed(self, request: Request) -> None:
        """Count a login that failed."""
        self.failures.take(_address(request.scope))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            scope["app"].state.limits = self
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, started = time.perf_counter(), 500, False
        request_id = f"{random.getrandbits(64):016x}"

        async def with_headers(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                there = {name.lower() for name, _ in message["headers"]}
                more = {**HEADERS, "content-security-policy": self.policy, "x-request-id": request_id}
                if self.configuration.secure:
                    more["strict-transport-security"] = "max-age=31536000"
                static = scope["path"].startswith("/static/")  # browsers ask whether it changed: no mix of old and new
                more["cache-control"] = "no-cache" if static else "no-store"
                message["headers"] = [
                    *message["headers"], *((k.encode(), v.encode()) for k, v in more.items() if k.encode() not in there)
                ]  # fmt: skip
            await send(message)

        self.in_flight += 1
        try:
            refused = await self._refused(scope)
            if refused is not None:
                await refused(scope, receive, with_headers)
            else:
                await self.app(scope, self._limited(scope, receive), with_headers)
        except _Cut as error:
            if started:
                raise
            await error.args[0](scope, receive, with_headers)
        finally:
            self.in_flight -= 1
            self._note(scope, status, time.perf_counter() - began, request_id)

    async def _refused(self, scope: Scope) -> Any:
        """An answer where the request is not looked at further."""
        request = Request(scope)
        odd = any(ord(letter) < 32 or 0xD800 <= ord(letter) < 0xE000 for letter in scope["path"])
        if odd or b"%00" in scope["query_string"]:
            return problem(400, "Bad Request", "The address holds characters that no name has.")
        wait = 0.0 if service_of(request).has_seen(shown_by(request)) else self.unknown.take(_address(scope))
        caller = None
        if not wait:
            try:
                caller = await find_caller(request)
                if scope["method"] not in SAFE and scope["path"].startswith(("/api/", LABEL_STUDIO)):
                    await caller_of(request)
            except HTTPException as error:  # before the body is read
                return await http_problem(request, error)
            except sa.exc.SQLAlchemyError as error:
                if scope["method"] not in SAFE:
                    return await store_problem(request, error)
            wait = self.rates.take(caller.token.id) if caller is not None else 0.0
        why = "Slow down, and try again."
        if not wait and scope["path"].startswith(("/login", "/join", "/start")):
            wait, why = self.failures.wait(_address(scope)), "Too many failed logins."
        if wait:
            return problem(429, "Too Many Requests", why, {"Retry-After": f"{math.ceil(wait)}"})
        length = dict(scope["headers"]).get(b"content-length", b"0")
        return None if length.isdigit() and int(length) <= self._most(scope) else self._too_large(scope)

    def _too_large(self, scope: Scope) -> Any:
        return problem(413, "SizeError", f"The body is larger than {self._most(scope)} bytes.", {"Connection": "close"})

    def _most(self, scope: Scope) -> int:
        if scope.get(CALLER) is None:
            return min(TOKENLESS_BYTES, self.configuration.max_body)
        upload = scope["method"] == "POST" and scope["path"].endswith(("/items", "/media"))
        return self.configuration.max_upload if upload else self.configuration.max_body

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """The body, as long as it is not too large and comes at a pace."""
        most, seen, waited, ended = self._most(scope), 0, 0.0, False
        unknown = scope.get(CALLER) is None
        patience = min(self.configuration.body_seconds, TOKENLESS_SECONDS if unknown else math.inf)

        async def limited() -> Message:
            nonlocal seen, waited, ended
            if ended:
                return await receive()
            began = time.monotonic()
            try:
                message = await asyncio.wait_for(receive(), min(patience, patience + seen / PACE - waited))
            except TimeoutError:
                text = "The body came too slowly."
                raise _Cut(problem(408, "Request Timeout", text, {"Connection": "close"})) from None
            waited += time.monotonic() - began
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                ended = not message.get("more_body", False)
                if seen > most:
                    raise _Cut(self._too_large(scope))
            return message

        return limited

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"  # callers can make up any number
        self.counts[method, route, status] += 1
        histogram = self.durations[route]
        for i, end in enumerate((*BUCKETS, math.inf)):
            histogram[i] += seconds <= end
        histogram[-1] += seconds
        facts = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        log.info("request", extra={**facts, "address": _address(scope), "request": request_id})


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"
