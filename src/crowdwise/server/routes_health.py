"""For those who run the server: whether it lives, whether it can work, and counts for Prometheus."""

from __future__ import annotations

import sqlalchemy as sa
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from crowdwise.errors import OutputError
from crowdwise.server.caller import ServiceOf
from crowdwise.server.http_problems import problem
from crowdwise.server.request_limits import BUCKETS

router = APIRouter(tags=["running"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "The store cannot be reached."}})
async def readyz(service: ServiceOf) -> Response:
    """Whether the store can be written."""
    try:
        await service.ready_now()
    except (OutputError, TimeoutError, sa.exc.SQLAlchemyError):
        return problem(503, "OutputError", "The store cannot be reached.", {"Retry-After": "1"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request, service: ServiceOf) -> str:
    """Counts of this process in the text format of Prometheus."""
    limits = request.app.state.limits
    lines = ["# TYPE crowdwise_requests_total counter"]
    for (method, route, status), n in sorted(limits.counts.items()):
        lines.append(f'crowdwise_requests_total{{method="{method}",route="{_text(route)}",status="{status}"}} {n}')
    lines.append("# TYPE crowdwise_request_seconds histogram")
    for route, found in sorted(limits.durations.items()):
        for end, n in zip((*BUCKETS, "+Inf"), found[:-1], strict=True):
            lines.append(f'crowdwise_request_seconds_bucket{{route="{_text(route)}",le="{end}"}} {n:g}')
        lines.append(f'crowdwise_request_seconds_count{{route="{_text(route)}"}} {found[-2]:g}')
        lines.append(f'crowdwise_request_seconds_sum{{route="{_text(route)}"}} {found[-1]:.6f}')
    gauges = {
        "crowdwise_requests_in_flight": limits.in_flight, "crowdwise_writes_waiting": service.commit.waiting,
        "crowdwise_models": len(service.follower), "crowdwise_started_seconds": service.started,
    }  # fmt: skip
    for name, value in gauges.items():
        lines += [f"# TYPE {name} gauge", f"{name} {value}"]
    return "\n".join(lines) + "\n"


def _text(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"')
