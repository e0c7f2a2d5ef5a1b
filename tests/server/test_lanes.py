"""No campaign waits for another: webhooks, locks, uploads and reports have lanes of their own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import sqlalchemy as sa

from crowdwise.errors import OutputError
from crowdwise.server import group_commit
from crowdwise.server.configuration import load_configuration
from crowdwise.server.database import lock_of
from crowdwise.server.webhook_rows import claim_due
from server_site import Site, running


@contextmanager
def receiver(seconds: float) -> Iterator[tuple[str, list[float]]]:
    """A receiver that takes a while for each delivery: its address, and when they came."""
    came: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            came.append(time.monotonic())
            time.sleep(seconds)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", came
    finally:
        server.shutdown()


def test_a_slow_webhook_holds_up_itself_alone(tmp_path: Any) -> None:
    given = {"data": str(tmp_path), "rate_limit": 0.0, "private_webhooks": True}
    with running(load_configuration(given, environment={})) as site, receiver(4.0) as (slow, _), receiver(0.0) as (
        quick, came,
    ):  # fmt: skip
        one, two = site.campaign(n_items=0, annotators=()), site.campaign()
        site.call("POST", f"/campaigns/{one}/webhooks", 201, json={"url": slow})
        site.call("POST", f"/campaigns/{two}/webhooks", 201, json={"url": quick, "kinds": ["votes"]})
        for i in range(30):  # far more than are claimed at a time, and all of them older
            site.call("POST", f"/campaigns/{one}/items", 201, json=[{"item": f"x{i}"}])
        time.sleep(1.5)
        began = time.monotonic()
        site.votes(two, ("p0", "ann", "wren"))
        while not came and time.monotonic() < began + 15:
            time.sleep(0.05)
        assert came and came[0] - began < 3.5


def test_each_webhook_gets_its_share_of_what_is_claimed(site: Site) -> None:
    hooks = []
    for i in range(2):
        campaign = site.campaign(n_items=0)
        hook = site.call("POST", f"/campaigns/{campaign}/webhooks", 201, json={"url": "https://example.invalid/"})["id"]
        rows = [
            {
                "id": f"{hook[:8]}{n:02}", "webhook": hook, "event": n, "body": "{}", "state": "waiting", "tries": 0,
                "due": float(i), "created": 0.0,
            }
            for n in range(40)
        ]  # fmt: skip
        site.service.write(lambda conn, rows=rows: conn.execute(sa.text(INSERT), rows), campaign)
        hooks.append(hook)

    def claimed(busy: list[str]) -> list[str]:
        found = site.service.write(lambda conn: claim_due(conn, busy), "webhooks")
        return [row["webhook"] for row in found if row["webhook"] in hooks]

    first = claimed([])
    assert first.count(hooks[0]) == first.count(hooks[1]) == 5
    assert set(claimed([hooks[0]])) <= {hooks[1]}
    for hook in hooks:
        site.service.write(lambda conn, hook=hook: conn.execute(sa.text(DROP), {"hook": hook}), "webhooks")


INSERT = (
    "INSERT INTO deliveries (id, webhook, event, body, state, tries, due, error, created) VALUES "
    "(:id, :webhook, :event, :body, :state, :tries, :due, NULL, :created)"
)
DROP = "DELETE FROM webhooks WHERE id = :hook"


@pytest.mark.parametrize("held", ["lock", "row"])
def test_a_lock_that_hangs_stops_one_campaign_alone(
    postgres: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    monkeypatch.setattr(group_commit, "PATIENCE", 1.5)
    given = {"data": str(tmp_path), "database": postgres, "rate_limit": 0.0}
    with running(load_configuration(given, environment={})) as site:
        stuck, other = site.campaign(), site.campaign()
        with site.service.database.engine.connect() as conn, conn.begin():
            if held == "lock":
                conn.execute(sa.text("SELECT pg_advisory_xact_lock(:n)"), {"n": lock_of(stuck)})
            else:
                conn.execute(sa.text("SELECT 1 FROM campaigns WHERE id = :c FOR UPDATE"), {"c": stuck})
            failed: list[int] = []

            def vote() -> None:
                answer = site.client.post(
                    f"/api/v1/campaigns/{stuck}/votes", headers=site.admin,
                    json={"item": "p0", "annotator": "ann", "label": "wren"},
                )  # fmt: skip
                failed.append(answer.status_code)

            threads = [threading.Thread(target=vote) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.1)
            for i in range(6):
                began = time.monotonic()
                site.votes(other, (f"p{i}", "ann", "wren"))
                assert time.monotonic() - began < 2.0
            for thread in threads:
                thread.join(20)
            assert failed == [503] * 3
        time.sleep(0.1)
        monkeypatch.setattr(group_commit, "HELD", 0.0)
        site.service.commit._held.clear()
        site.votes(stuck, ("p0", "ann", "wren"))


def test_readiness_tries_the_writer(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(load_configuration({"data": str(tmp_path)}, environment={})) as site:
        assert site.client.get("/readyz").status_code == 200
        monkeypatch.setattr("crowdwise.server.service.READY_SECONDS", 0.2)
        with site.service.database._one_writer:  # reads go on
            assert site.client.get("/readyz").status_code == 503
            site.call("GET", "/campaigns")
        assert site.client.get("/readyz").status_code == 200


def test_a_large_upload_lets_others_in_between(site: Site) -> None:
    large, other = site.campaign(n_items=0, annotators=()), site.campaign(n_items=60)
    body = json.dumps([{"item": f"x{i}", "payload": {"text": "t" * 50}} for i in range(12_000)])
    headers = {**site.admin, "content-type": "application/json"}
    done: list[Any] = []

    def upload() -> None:
        done.append(site.client.post(f"/api/v1/campaigns/{large}/items", content=body, headers=headers).json())

    thread = threading.Thread(target=upload)
    thread.start()
    waits = []
    for i in range(60):
        if not thread.is_alive():
            break
        began = time.monotonic()
        site.votes(other, (f"p{i}", "ann", "wren"))
        waits.append(time.monotonic() - began)
        time.sleep(0.02)
    thread.join(60)
    assert done == [{"new": 12_000, "changed": 0}] and max(waits) < 1.5
    wrong = json.dumps([{"item": f"y{i}"} for i in range(5_000)] + [{"item": "y0"}])
    answer = site.client.post(f"/api/v1/campaigns/{large}/items", content=wrong, headers=headers)
    assert answer.status_code == 422 and site.call("GET", f"/campaigns/{large}/status")["items"] == 12_000


def test_what_is_asked_for_twelve_times_is_computed_once(site: Site) -> None:
    campaign, calls = site.campaign(), []

    def make(view: Any) -> int:
        calls.append(view.seq)
        time.sleep(0.3)
        return len(calls)

    async def ask() -> list[int]:
        return await asyncio.gather(*(site.service.compute_now(campaign, "x", make) for _ in range(12)))

    assert site.client.portal is not None and site.client.portal.call(ask) == [1] * 12 and calls == [0]


def test_work_that_waits_too_long_is_an_error(tmp_path: Any) -> None:
    with running(load_configuration({"data": str(tmp_path)}, environment={})) as site:
        site.service.commit._held["stuck"] = time.monotonic() + 10
        with pytest.raises(OutputError, match="Send it again"):
            site.service.write(lambda conn: None, "stuck")
