"""Webhooks: signed, tried again, given up and shown, never to addresses inside the network."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import sqlalchemy as sa

from crowdwise.server.routes_events import read_events
from crowdwise.server.webhook_sender import WebhookSender, signature
from crowdwise.store import steady_clock, webhook_rows
from crowdwise.store.store_tables import deliveries, events, webhooks
from server_site import Site


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, Any]], list[int]]]:
    """The address of a receiver, what it got, and the status codes that it will answer (then 200)."""
    got: list[dict[str, Any]] = []
    codes: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            got.append({"headers": dict(self.headers), "body": body})
            self.send_response(codes.pop(0) if codes else 200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """No line per request."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got, codes
    server.shutdown()
    server.server_close()


@pytest.fixture
def sender(site: Site) -> Iterator[WebhookSender]:
    """A sender that may reach this machine and sends when the test says so; the server's own rests."""
    site.service.webhooks.close()
    site.service.write(lambda conn: [conn.execute(table.delete()) for table in (deliveries, webhooks)])
    yield WebhookSender(site.service.read, site.service.write, private=True, start=False)
    site.service.webhooks = WebhookSender(site.service.read, site.service.write, private=False)


def sent_by(sender: WebhookSender) -> int:
    """Make deliveries of new events and send what is due, one after the other; how many were sent."""
    due = sender.claim([])
    asyncio.run(sender.send_some(due))
    return len(due)


def test_events_arrive_signed_and_votes_together(site: Site, receiver: Any, sender: WebhookSender) -> None:
    url, got, _ = receiver
    campaign = site.campaign()
    hook = site.call("POST", f"/campaigns/{campaign}/webhooks", 201, json={"url": url, "kinds": ["votes", "state"]})
    site.votes(campaign, ("p0", "ann", "wren"))
    site.votes(campaign, ("p1", "ann", "wren"), ("p1", "bob", "wren"))
    site.call("PATCH", f"/campaigns/{campaign}", json={"budget": 9})
    site.call("PUT", f"/campaigns/{campaign}/state", json={"state": "paused"})
    sent_by(sender)
    bodies = [json.loads(one["body"]) for one in got]
    assert [body["kind"] for body in bodies] == ["votes", "state"]
    assert bodies[0]["data"]["added"] == 3 and bodies[1]["data"] == {"state": "paused"}
    header = got[0]["headers"]["X-Crowdwise-Signature"]
    when = int(header.partition(",")[0].removeprefix("t="))
    assert header == signature(hook["secret"], when, got[0]["body"])
    (shown,) = site.call("GET", f"/campaigns/{campaign}/webhooks")
    assert shown["deliveries"] == {"waiting": 0, "delivered": 2, "dead": 0} and "secret" not in shown
    site.call("DELETE", f"/campaigns/{campaign}/webhooks/{hook['id']}")
    site.votes(campaign, ("p2", "ann", "wren"))
    assert sent_by(sender) == 0 and len(got) == 2


def test_what_fails_is_tried_again_and_given_up(
    site: Site, receiver: Any, sender: WebhookSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, got, codes = receiver
    monkeypatch.setattr(webhook_rows, "TRIES", 3)
    monkeypatch.setattr(webhook_rows, "FIRST", 0.0)
    campaign = site.campaign()
    hook = site.call("POST", f"/campaigns/{campaign}/webhooks", 201, json={"url": url, "kinds": ["votes"]})["id"]
    site.votes(campaign, ("p0", "ann", "wren"))
    codes += [500, 302, 404]
    for _ in range(3):
        assert sent_by(sender) == 1
    (dead,) = site.call("GET", f"/campaigns/{campaign}/webhooks/{hook}/deliveries?state=dead")
    assert (dead["tries"], dead["error"]) == (3, "It answered 404.")
    assert sent_by(sender) == 0
    site.call("POST", f"/campaigns/{campaign}/webhooks/{hook}/deliveries/{dead['id']}/retry")
    assert sent_by(sender) == 1 and len(got) == 4 and len({one["body"] for one in got}) == 1
    assert site.call("GET", f"/campaigns/{campaign}/webhooks/{hook}/deliveries?state=dead") == []


def test_nothing_is_written_and_no_campaign_looked_for_where_nothing_is_due(
    site: Site, receiver: Any, sender: WebhookSender
) -> None:
    written: list[str | None] = []

    def write(run: Any, campaign: str | None = None) -> Any:
        written.append(campaign)
        return site.service.write(run, campaign)

    sender.write = write
    sent_by(sender)  # which cleans up, once an hour
    written.clear()
    assert sent_by(sender) == 0 and written == []
    url, got, _ = receiver
    campaign = site.campaign()
    site.call("POST", f"/campaigns/{campaign}/webhooks", 201, json={"url": url, "kinds": ["votes"]})
    site.votes(campaign, ("p0", "ann", "wren"))
    assert sent_by(sender) == 1 and len(got) == 1
    assert set(written) == {campaign, None} and site.service.follower.written("webhooks") == 0.0


def test_what_is_old_is_forgotten_a_few_at_a_time(site: Site, sender: WebhookSender, monkeypatch: Any) -> None:
    """A busy server keeps an hour of its votes' events, and a receiver that is away the newest deliveries."""
    campaign = site.campaign()
    hook = site.call("POST", f"/campaigns/{campaign}/webhooks", 201, json={"url": "https://x.invalid/"})["id"]
    monkeypatch.setattr(webhook_rows, "MOST_WAITING", 3)
    monkeypatch.setattr(webhook_rows, "PART", 2)
    for i in range(5):
        site.votes(campaign, (f"p{i}", "ann", "wren"))
        site.service.write(lambda conn: webhook_rows.take_events(conn, hook), campaign)

    def there() -> tuple[int, list[str]]:
        mine = sa.select(events.c.kind).where(events.c.campaign == campaign, events.c.kind == "votes")
        states = sa.select(deliveries.c.state).where(deliveries.c.webhook == hook).order_by(deliveries.c.event)
        read = site.service.read
        return len(read(lambda conn: conn.execute(mine).all())), read(lambda conn: conn.execute(states).scalars().all())

    assert there() == (5, ["waiting"] * 3)
    numbers = sa.select(deliveries.c.id).where(deliveries.c.webhook == hook).order_by(deliveries.c.event)
    first, _, last = site.service.read(lambda conn: conn.execute(numbers).scalars().all())
    for id_, state in ((first, "delivered"), (last, "dead")):
        update = deliveries.update().where(deliveries.c.id == id_).values(state=state)
        site.service.write(lambda conn, update=update: conn.execute(update), campaign)
    began = steady_clock.now()
    for hours, left in (
        (0.9, (5, ["delivered", "waiting", "dead"])), (1.1, (0, ["delivered", "waiting", "dead"])),
        (25.0, (0, ["waiting", "dead"])), (169.0, (0, ["waiting"])),
    ):  # fmt: skip
        monkeypatch.setattr(steady_clock, "now", lambda hours=hours: began + 3600.0 * hours)
        sender.clean()
        assert there() == left


def test_a_look_at_gold_is_an_event_of_its_own(site: Site) -> None:
    campaign = site.campaign(n_items=40, max_error=0.3, probability=None)
    hook = {"url": "https://example.org/hook", "kinds": ["proof"]}
    assert site.call("POST", f"/campaigns/{campaign}/webhooks", 201, json=hook)["kinds"] == ["proof"]
    site.votes(campaign, *((f"p{i}", who, "wren") for i in range(40) for who in ("ann", "bob")))
    drawn = site.call("POST", f"/campaigns/{campaign}/proof/draw", 201, json={"n": 20})["items"]
    site.call("POST", f"/campaigns/{campaign}/proof", json={"gold": [[item, "wren"] for item in drawn]})
    assert "proof" in [one["kind"] for one in site.service.read(lambda conn: read_events(conn, campaign, 0))]


@pytest.mark.parametrize("url", ["ftp://example.org/x", "https://", "https://u:p@example.org/", "nonsense"])
def test_addresses_that_cannot_be_are_refused(site: Site, url: str) -> None:
    campaign = site.campaign()
    found = site.call("POST", f"/campaigns/{campaign}/webhooks", 422, json={"url": url})
    assert "URL for a webhook" in found["detail"] or "at least 8" in found["detail"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]"])
def test_nothing_is_sent_inside_the_network(site: Site, host: str) -> None:
    delivery = {"id": "x", "url": f"http://{host}:1/", "secret": "s", "body": "{}"}
    assert "inside the network" in str(asyncio.run(site.service.webhooks.sent(delivery)))
