"""The application: routes, limits and pages over a service."""

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

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware

from crowdwise import __version__
from crowdwise.server import (
    routes_access,
    routes_campaigns,
    routes_events,
    routes_health,
    routes_label_studio,
    routes_pages,
    routes_results,
    routes_uploads,
    routes_votes,
    routes_watching,
    routes_webhooks,
)  # fmt: skip
from crowdwise.server.configuration import Configuration, load_configuration
from crowdwise.server.http_problems import add_handlers
from crowdwise.server.request_limits import RequestLimits
from crowdwise.server.service import Service
from crowdwise.server.structured_logs import configure_logs

ROUTERS = (
    routes_votes, routes_campaigns, routes_uploads, routes_results, routes_watching, routes_events, routes_access,
    routes_webhooks, routes_health, routes_label_studio, routes_pages,
)  # fmt: skip
"""Those that are called most come first: routes are tried one after the other."""

SWITCH = 0.0005
"""Seconds that a thread waits for another to let go of the interpreter. The writer needs it after every statement."""

GARBAGE = 10_000
"""Objects that are made before Python looks for cycles among the new ones."""


def create_app(configuration: Configuration, service: Service | None = None) -> FastAPI:
    """The application; the service is opened when it starts and closed when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = found = service or Service(configuration)
        with _ending(found):
            try:
                yield
            finally:
                found.close()

    app = FastAPI(
        title="crowdwise", version=__version__, lifespan=lifespan, openapi_url="/api/v1/openapi.json", docs_url=None,
        redoc_url=None, description="Campaigns: questions go out, votes come in, labels come out.",
    )  # fmt: skip
    add_handlers(app)
    app.add_exception_handler(404, routes_pages.not_there)
    for module in ROUTERS:
        app.include_router(module.router)
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
