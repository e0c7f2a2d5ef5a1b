"""The application: routes, limits and pages over a service; its health, and counts for Prometheus."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware

from crowdwise import __version__
from crowdwise.errors import OutputError
from crowdwise.server import (
    routes_access,
    routes_campaigns,
    routes_events,
    routes_label_studio,
    routes_pages,
    routes_results,
    routes_uploads,
    routes_votes,
)  # fmt: skip
from crowdwise.server.caller import ServiceOf
from crowdwise.server.configuration import Configuration, load_configuration
from crowdwise.server.http_problems import add_handlers, problem
from crowdwise.server.request_limits import BUCKETS, RequestLimits
from crowdwise.server.service import Service
from crowdwise.server.structured_logs import configure_logs

health = APIRouter(tags=["running"])


@health.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


@health.get("/readyz", responses={503: {"description": "The store cannot be reached."}})
async def readyz(service: ServiceOf) -> Response:
    """Whether the store can be written."""
    try:
        await service.ready_now()
    except (OutputError, TimeoutError, sa.exc.SQLAlchemyError):
        return problem(503, "OutputError", "The store cannot be reached.", {"Retry-After": "1"})
    return JSONResponse({"status": "ready"})


@health.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request, service: ServiceOf) -> str:
    """Counts of this process in the text format of Prometheus."""
    limits = request.app.state.limits
    lines = ["# TYPE crowdwise_requests_total counter"]
    for (method, route, status), n in sorted(limits.counts.items()):
        lines.append(f'crowdwise_requests_total{{method="{method}",route="{_text(route)}",status="{status}"}} {n}')
    lines.append("# TYPE crowdwise_request_seconds histogram")
    for route, counts in sorted(limits.durations.items()):
        for end, n in zip((*BUCKETS, "+Inf"), counts[:-1], strict=True):
            lines.append(f'crowdwise_request_seconds_bucket{{route="{_text(route)}",le="{end}"}} {n:.0f}')
        lines.append(f'crowdwise_request_seconds_count{{route="{_text(route)}"}} {counts[-2]:.0f}')
        lines.append(f'crowdwise_request_seconds_sum{{route="{_text(route)}"}} {counts[-1]:.6f}')
    gauges = {
        "crowdwise_requests_in_flight": limits.in_flight, "crowdwise_writes_waiting": service.commit.waiting,
        "crowdwise_models": len(service.follower), "crowdwise_started_seconds": service.started,
    }  # fmt: skip
    for name, value in gauges.items():
        lines += [f"# TYPE {name} gauge", f"{name} {value}"]
    return "\n".join(lines) + "\n"


def _text(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"')


ROUTERS = (
    routes_votes.router, routes_campaigns.router, routes_uploads.router, routes_results.router, routes_events.router,
    routes_access.router, health, routes_label_studio.router, routes_pages.router,
)  # fmt: skip
"""Those that are called most come first: routes are tried one after the other."""

SWITCH = 0.0005  # seconds until a thread that waits gets the interpreter: the writer needs it after every statement
GARBAGE = 10_000  # objects that are made before Python looks for cycles among the new ones


def create_app(configuration: Configuration, service: Service | None = None) -> FastAPI:
    """The application; the service is opened when it starts and closed when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = opened = service or Service(configuration)
        with _ending(opened):
            try:
                yield
            finally:
                opened.close()

    app = FastAPI(
        title="crowdwise", version=__version__, lifespan=lifespan, openapi_url="/api/v1/openapi.json", docs_url=None,
        redoc_url=None, description="Campaigns: questions go out, votes come in, labels come out.",
    )  # fmt: skip
    add_handlers(app, routes_pages.problem_page)
    for router in ROUTERS:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    if configuration.cors_origins:
        origins = [origin.strip() for origin in configuration.cors_origins.split(",")]
        app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["authorization"])
    app.add_middleware(RequestLimits, configuration=configuration)
    return app


@contextmanager
def _ending(service: Service) -> Iterator[None]:
    """A signal that ends the server also ends event streams, which would hold it up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end(number: int, frame: Any) -> None:
        service.closing = True
        then = before[signal.Signals(number)]
        if callable(then):
            then(number, frame)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, then in before.items():
            signal.signal(number, then)


def create_from_environment() -> FastAPI:
    """The application of a worker process, with the settings of its environment."""
    configuration = load_configuration(environment=os.environ)
    configure_logs(configuration.log_format)
    app = create_app(configuration)
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # what modules hold is not looked through again and again
    gc.set_threshold(GARBAGE)
    return app
