"""No campaign waits for another: webhooks, locks, uploads and reports have lanes of their own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import sqlalchemy as sa

from crowdwise.errors import OutputError
from crowdwise.server import follower, routes_uploads, service, webhook_sender
from crowdwise.server.configuration import load_configuration
from crowdwise.store import group_commit
from crowdwise.store.database import lock_of
from crowdwise.store.vote_rows import VoteGiven, add_together
from crowdwise.store.webhook_rows import claim_due
from server_site import Site, running


@contextmanager
def receiver(hangs: bool = False) -> Iterator[tuple[str, list[Any]]]:
    """A receiver that answers at once, or not before the end: its address, and the deliveries."""
    came, end = list[Any](), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(self.rfile.read(int(self.headers["content-length"])))
            if hangs:
                end.wait()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", came
    finally:
        end.set()
        server.shutdown()


def wait_until(there: Callable[[], Any], seconds: float = 120.0) -> None:
    """Look again and again, however slow the machine is: pauses are counted, not seconds."""
    for _ in range(int(seconds / 0.02)):
        if there():
            return
        time.sleep(0.02)
    assert there()


def test_a_slow_webhook_holds_up_itself_alone(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sender, "SECONDS", 600.0)  # it is not given up meanwhile
    given = {"data": str(tmp_path), "rate_limit": 0.0, "private_webhooks": True}
    with (
        running(load_configuration(given, environment={})) as site,
        receiver(hangs=True) as (slow, tried),
        receiver() as (quick, came),
    ):
        one, two = site.campaign(n_items=0, annotators=()), site.campaign()
        site.call("POST", f"/campaigns/{one}/webhooks", 201, json={"url": slow})
        site.call("POST", f"/campaigns/{two}/webhooks", 201, json={"url": quick, "kinds": ["votes"]})
        for i in range(30):  # far more than are claimed at a time, and all of them older
            site.call("POST", f"/campaigns/{one}/items", 201, json=[{"item": f"x{i}"}])
        wait_until(lambda: tried)
        site.votes(two, ("p0", "ann", "wren"))
        wait_until(lambda: came)
        assert len(tried) == 1


def test_names_that_are_never_found_hold_up_themselves_alone(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sender, "SECONDS", 600.0)
    hung, end, find = list[str](), threading.Event(), socket.getaddrinfo

    def lookup(host: Any, *given: Any, **more: Any) -> Any:
        if str(host).endswith(".never-found.invalid"):
            hung.append(host)
            end.wait()
            raise socket.gaierror("not found")  # asking a name server may take half a minute
        return find(host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    given = {"data": str(tmp_path), "rate_limit": 0.0, "private_webhooks": True}
    with running(load_configuration(given, environment={})) as site, receiver() as (quick, came):
        try:
            bad, good = site.campaign(), site.campaign()
            for i in range(15):  # more than asyncio has threads
                site.call("POST", f"/campaigns/{bad}/webhooks", 201, json={"url": f"http://x{i}.never-found.invalid/"})
            site.votes(bad, ("p0", "ann", "wren"))
            wait_until(lambda: len(set(hung)) == 15)
            site.call("POST", f"/campaigns/{good}/webhooks", 201, json={"url": quick, "kinds": ["votes"]})
            site.votes(good, ("p0", "ann", "wren"))
            wait_until(lambda: came)
        finally:
            end.set()


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
            for i in range(6):  # which end although the lock is held until after them
                site.votes(other, (f"p{i}", "ann", "wren"))
            for thread in threads:
                thread.join(120)
            assert failed == [503] * 3
        monkeypatch.setattr(group_commit, "PATIENCE", 120.0)
        site.service.commit._held.clear()
        site.votes(stuck, ("p0", "ann", "wren"))


def test_readiness_tries_the_writer(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "READY_SECONDS", 120.0)
    with running(load_configuration({"data": str(tmp_path)}, environment={})) as site:
        assert site.client.get("/readyz").status_code == 200
        monkeypatch.setattr(service, "READY_SECONDS", 0.2)
        with site.service.database._one_writer:  # reads go on
            assert site.client.get("/readyz").status_code == 503
            site.call("GET", "/campaigns")
        monkeypatch.setattr(service, "READY_SECONDS", 120.0)
        assert site.client.get("/readyz").status_code == 200


def test_a_large_upload_lets_others_in_between(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    large, other = site.campaign(n_items=0, annotators=()), site.campaign()
    body = json.dumps([{"item": f"x{i}", "payload": {"text": "t" * 50}} for i in range(12_000)])
    headers = {**site.admin, "content-type": "application/json"}
    voting, parts = threading.Thread(target=site.votes, args=(other, ("p0", "ann", "wren"))), list[int]()
    add = routes_uploads.add_items

    def add_part(conn: Any, row: Any, values: Any) -> int:
        parts.append(len(values))
        if len(parts) == 2:  # a vote comes while a part is written
            voting.start()
            wait_until(lambda: site.service.commit.waiting)
        return add(conn, row, values)

    monkeypatch.setattr(routes_uploads, "add_items", add_part)
    answer = site.client.post(f"/api/v1/campaigns/{large}/items", content=body, headers=headers)
    assert answer.json() == {"new": 12_000, "changed": 0} and max(parts) <= 500
    voting.join()
    order = sa.text("SELECT id, campaign FROM events WHERE campaign IN (:a, :b) ORDER BY id DESC")
    last = site.service.read(lambda conn: [row.campaign for row in conn.execute(order, {"a": large, "b": other})])
    assert last[: len(parts) - 2].count(large) == len(parts) - 2  # all other parts came after the vote
    wrong = json.dumps([{"item": f"y{i}"} for i in range(5_000)] + [{"item": "y0"}])
    answer = site.client.post(f"/api/v1/campaigns/{large}/items", content=wrong, headers=headers)
    assert answer.status_code == 422 and site.call("GET", f"/campaigns/{large}/status")["items"] == 12_000


def test_a_vote_does_not_wait_for_the_bulks_of_another_campaign(tmp_path: Any) -> None:
    with running(load_configuration({"data": str(tmp_path)}, environment={})) as site:
        busy, other = site.campaign(unknown="add"), site.campaign()
        bulk = [[VoteGiven(f"x{i}", f"a{b}", "wren") for i in range(400)] for b in range(4)]
        works = [group_commit.Work(busy, together=add_together, argument=votes) for votes in bulk]
        works.append(group_commit.Work(other, together=add_together, argument=[VoteGiven("p0", "ann", "wren")]))
        done = list[int]()
        with site.service.database._one_writer:
            for i, work in enumerate(works):
                site.service.commit.submit(work).add_done_callback(lambda _, i=i: done.append(i))
        wait_until(lambda: len(done) == 5)
        assert all(work.future.result()["added"] == len(work.argument) for work in works)
        assert done.index(4) <= 1  # the first bulk may have begun before


def test_what_is_asked_for_twelve_times_is_computed_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign, calls, asked = site.campaign(), list[int](), list[Any]()
    wait = site.service._computing.wait

    def noted(*given: Any) -> Any:
        asked.append(given)
        return wait(*given)

    def make(view: Any) -> int:
        calls.append(view.seq)
        wait_until(lambda: len(asked) == 12)
        return len(calls)

    monkeypatch.setattr(site.service._computing, "wait", noted)

    async def ask() -> list[int]:
        return await asyncio.gather(*(site.service.compute_now(campaign, "x", make) for _ in range(12)))

    assert site.client.portal is not None and site.client.portal.call(ask) == [1] * 12 and calls == [0]


def test_work_that_waits_too_long_is_an_error(tmp_path: Any) -> None:
    with running(load_configuration({"data": str(tmp_path)}, environment={})) as site:
        site.service.commit._held["stuck"] = time.monotonic() + 600
        with pytest.raises(OutputError, match="Send it again"):
            site.service.write(lambda conn: None, "stuck")


def test_the_next_question_does_not_wait_for_a_model_that_learns_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "MANY", 1)
    with running(load_configuration({"data": str(tmp_path), "rate_limit": 0.0}, environment={})) as site:
        campaign = site.campaign(n_items=4, annotators=["ann", "bob", "cay"])
        site.votes(campaign, ("p0", "bob", "wren"))
        assert site.call("GET", f"/campaigns/{campaign}/next?annotator=ann&n=1")["questions"]
        site.call("GET", f"/campaigns/{campaign}/status")  # a view of the votes there are
        with site.service.follower._live[campaign].lock:  # as while it learns again
            site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["p1"], "gold": "wren"})
            for who in ("ann", "cay", "bob"):
                assert site.call("GET", f"/campaigns/{campaign}/next?annotator={who}&n=1")["questions"], who
        wait_until(lambda: site.call("GET", f"/campaigns/{campaign}/next?annotator=bob&n=4")["questions"])


def test_a_group_of_votes_takes_few_statements(site: Site) -> None:
    campaign = site.campaign(n_items=40, annotators=["ann", "bob"], unknown="add")

    def give(some: range) -> int:
        given = [[VoteGiven(f"p{i}", "ann", "wren"), VoteGiven(f"p{i}", "bob", "wren")] for i in some]
        came: list[str] = []
        with site.service.database.writing(campaign) as conn:
            sa.event.listen(conn, "before_cursor_execute", lambda _, __, statement, *___: came.append(statement))
            done = add_together(conn, campaign, given)
        assert all(isinstance(one, dict) and one["added"] == 2 for one in done)
        return len(came)

    few, many = give(range(2)), give(range(2, 40))
    assert many == few == (8 if site.service.database.is_sqlite else 3)  # for 76 votes as for 4


def test_names_arrive_as_they_are_whatever_they_hold(site: Site) -> None:
    names = ['a"b', "a\\b", "{a,b}", "NULL", "null", "a'b", "ü☃\n\t", "\\\\", '"', ","]
    campaign = site.campaign(n_items=1, unknown="add")
    site.votes(campaign, *((name, f"{name}x", "wren") for name in names))
    site.votes(campaign, *((name, f"{name}x", "wren") for name in names))  # found again: repeated, no second vote
    found = site.call("GET", f"/campaigns/{campaign}/votes")["votes"]
    assert [(vote["item"], vote["annotator"]) for vote in found] == [(name, f"{name}x") for name in names]
