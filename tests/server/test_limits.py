"""Limits, headers, uploads, settings and what is said about the process."""

from __future__ import annotations

import io
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import uvicorn

from command_line import run
from crowdwise.errors import ParameterError, ReadError
from crowdwise.server.access_tokens import make_token
from crowdwise.server.configuration import Configuration, load_configuration
from crowdwise.server.request_limits import BUCKETS
from crowdwise.server.routes_uploads import named_columns
from crowdwise.server.running import uvicorn_options
from server_site import Site, bearer, listening, running


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with narrow limits."""
    given = {
        "data": str(tmp_path_factory.mktemp("small")), "max_body": 2_000, "max_upload": 20_000,
        "login_limit": 3.0,
    }  # fmt: skip
    with running(load_configuration(given, environment={})) as made:
        yield made


def test_large_bodies_are_refused(small: Site) -> None:
    campaign = small.campaign()
    votes = [{"item": "p0", "annotator": "ann", "label": "wren"}] * 200
    assert (
        "larger than 2000 bytes"
        in small.call("POST", f"/campaigns/{campaign}/votes", 413, json={"votes": votes})["detail"]
    )

    def parts() -> Iterator[bytes]:  # no length is announced
        for _ in range(30):
            yield b"item\n" + b"x" * 999 + b"\n"

    headers = {**small.admin, "content-type": "text/csv"}
    answer = small.client.post(f"/api/v1/campaigns/{campaign}/items", content=parts(), headers=headers)
    assert answer.status_code == 413


@pytest.mark.usefixtures("frozen_rates")
def test_the_rate_of_a_token_is_limited(tmp_path: Path) -> None:
    with running(load_configuration({"data": str(tmp_path), "rate_limit": 0.05}, environment={})) as made:
        other, _ = made.service.write(lambda conn: make_token(conn, "admin", "other"))
        assert made.call("GET", "/campaigns") == []
        answer = made.client.get("/api/v1/campaigns", headers=made.admin)
        assert answer.status_code == 429 and 0 < int(answer.headers["retry-after"]) <= 20
        assert made.call("GET", "/campaigns", headers=bearer(other)) == []  # others go on


@pytest.mark.usefixtures("frozen_rates")
def test_a_short_wait_is_a_second(tmp_path: Path) -> None:
    """Clients wait as long as they are asked to: for 0 seconds they would try again at once, until they give up."""
    with running(load_configuration({"data": str(tmp_path), "rate_limit": 2.5}, environment={})) as made:
        answers = [made.client.get("/api/v1/campaigns", headers=made.admin) for _ in range(12)]
        assert {answer.headers["retry-after"] for answer in answers if answer.status_code == 429} == {"1"}


@pytest.mark.usefixtures("frozen_rates")
def test_failed_logins_are_slowed_down(small: Site) -> None:
    codes = [small.client.post("/login", data={"token": "cw_guess"}).status_code for _ in range(6)]
    assert codes[:3] == [401, 401, 401] and codes[-1] == 429


def test_headers_protect_the_pages(tmp_path: Path) -> None:
    given = {"data": str(tmp_path), "base_url": "https://labels.example.org/"}
    with running(load_configuration(given, environment={})) as made:
        check_headers(made)


def check_headers(small: Site) -> None:
    headers = small.client.get("/healthz").headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert headers["strict-transport-security"].startswith("max-age=")
    assert headers["cache-control"] == "no-store" and "access-control-allow-origin" not in headers
    assert small.client.get("/static/app.css").headers["cache-control"] == "no-cache"
    link = small.call("POST", f"/campaigns/{small.campaign()}/invitations", 201, json={"annotator": "ann"})["link"]
    assert link.startswith("https://labels.example.org/join/cwi_")
    cookie = small.client.get(f"/join/{link.rpartition('/')[2]}", follow_redirects=False).headers.get("set-cookie", "")
    assert all(word in cookie for word in ("HttpOnly", "SameSite=lax", "Secure"))


@pytest.mark.parametrize("form", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "json"])
def test_items_come_in_as_tables(site: Site, kind: str, form: bool) -> None:
    rows = [{"item": "a", "text": "brown <b>", "gold": "wren", "priority": 2.0}, {"item": "b", "text": "grey"}]
    frame = pl.DataFrame(rows)
    if kind == "parquet":
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        body = buffer.getvalue()
    elif kind == "json":
        made = [{"item": r["item"], "payload": {"text": r["text"]}, "gold": r.get("gold")} for r in rows]
        made[0]["priority"] = 2.0
        body = json.dumps(made).encode()
    else:
        body = (frame.write_csv() if kind == "csv" else frame.write_ndjson()).encode()
    campaign = site.campaign(n_items=0, annotators=())
    path = f"/api/v1/campaigns/{campaign}/items"
    media = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet", "jsonl": "application/x-ndjson"}
    if form:
        answer = site.client.post(path, files={"file": (f"../../x.{kind}", body)}, headers=site.admin)
    else:
        headers = {**site.admin, "content-type": media.get(kind, "application/json")}
        answer = site.client.post(path, content=body, headers=headers)
    assert answer.json() == {"new": 2, "changed": 0}
    one, two = site.call("GET", f"/campaigns/{campaign}/items")["items"]
    assert (one["item"], one["payload"], one["gold"], one["priority"]) == ("a", {"text": "brown <b>"}, "wren", 2.0)
    assert (two["item"], two["gold"]) == ("b", None)


def test_a_column_called_item_names_the_items_however_it_is_written() -> None:
    assert named_columns(["name", "Item", "GOLD"]) == {"name": "name", "Item": "item", "GOLD": "gold"}
    assert named_columns(["name", "item"]) == {"name": "name", "item": "item"}
    assert named_columns(["text", "Filename", "truth"]) == {"text": "text", "Filename": "item", "truth": "gold"}


def test_an_item_that_is_declared_again_keeps_what_is_left_out(site: Site, tmp_path: Path) -> None:
    campaign = site.campaign(n_items=0)
    path = f"/campaigns/{campaign}/items"
    first = {"item": "a", "payload": {"text": "brown"}, "gold": "wren", "group": "x", "priority": 2.0}
    site.call("POST", path, 201, json=[first, {"item": "b"}])
    assert site.call("POST", path, 201, json=[{"item": "a"}, {"item": "c"}]) == {"new": 1, "changed": 1}
    assert (
        site.call("POST", path, 201, json=[{"item": "b", "gold": "robin"}, {"item": "a", "priority": 3.0}])["new"] == 0
    )
    table = {**site.admin, "content-type": "text/csv"}
    site.call("POST", path, 201, headers=table, content=b"item,text\na,grey\n")
    one, two, _ = site.call("GET", path)["items"]
    assert {name: one[name] for name in first} == {**first, "payload": {"text": "grey"}, "priority": 3.0}
    assert (two["gold"], two["payload"], two["priority"]) == ("robin", {}, 1.0)
    site.call("POST", path, 201, json=[{"item": "a", "gold": None}])
    assert site.call("GET", path)["items"][0]["gold"] is None


def test_images_that_come_later_leave_known_answers_of_the_first(site: Site) -> None:
    campaign = site.campaign(n_items=0)

    def drop(name: str) -> dict[str, int]:
        path = f"/api/v1/campaigns/{campaign}/media"
        site.client.post(path, files=[("file", (name, b"x"))], headers=site.admin)
        return dict(site.call("POST", f"/campaigns/{campaign}/media/items", 201, json={}))

    assert drop("1.png")["new"] == 1
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["1.png"], "gold": "wren"})
    assert drop("2.png") == {"new": 1, "changed": 1}
    assert [row["gold"] for row in site.call("GET", f"/campaigns/{campaign}/items")["items"]] == ["wren", None]


@pytest.mark.parametrize(
    ("media", "body", "why"),
    [
        ("text/csv", b"colour\na\n", "no column item"),
        ("application/json", b"[{", "not a list of items"),
        ("application/json", b'[{"item": "a"}, {"item": "a"}]', "given twice"),
        ("application/json", b'[{"item": "a", "gold": "hawk"}]', "is 'hawk'"),
        ("application/vnd.apache.parquet", b"PAR1nonsense", "The upload"),
        ("text/plain", b"a", "Content-Type 'text/plain'"),
    ],
)
def test_uploads_that_cannot_be_read_say_why(site: Site, media: str, body: bytes, why: str) -> None:
    campaign = site.campaign(n_items=0, annotators=())
    headers = {**site.admin, "content-type": media}
    answer = site.client.post(f"/api/v1/campaigns/{campaign}/items", content=body, headers=headers)
    assert answer.status_code == 422 and why in answer.json()["detail"], answer.text
    assert "/tmp" not in answer.text


def test_priority_and_gold_steer_the_questions(site: Site) -> None:
    campaign = site.campaign(n_items=9, gold_rate=0.0)
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["p7"], "priority": 1000.0})
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["p0", "p1"], "gold": "wren"})
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["p2"], "closed": True})
    site.call("GET", f"/campaigns/{campaign}/status")  # questions may be chosen by a model of a moment ago: here not
    found = site.call("GET", f"/campaigns/{campaign}/next?annotator=ann&n=9")["questions"]
    names = [one["item"] for one in found]
    assert names[0] == "p7" and set(names) == {f"p{i}" for i in range(3, 9)}
    tested = site.campaign(n_items=30, gold_rate=0.6, feedback=True)
    site.call("PATCH", f"/campaigns/{tested}/items", json={"items": [f"p{i}" for i in range(10)], "gold": "wren"})
    site.call("GET", f"/campaigns/{tested}/status")
    asked = site.call("GET", f"/campaigns/{tested}/next?annotator=ann&n=15")["questions"]
    known = [one["item"] for one in asked if int(one["item"][1:]) < 10]
    assert 3 <= len(known) < 15
    told = site.votes(tested, (known[0], "ann", "robin"))["feedback"]
    assert told == [{"item": known[0], "correct": False, "expected": "wren"}]


def test_an_annotator_learns_nothing_of_money(site: Site) -> None:
    campaign = site.campaign(n_items=3, budget=1)
    browser, _ = site.browser(campaign, "ann")
    assert len(browser.get(f"/api/v1/campaigns/{campaign}/next?n=3").json()["questions"]) == 1
    other, _ = site.browser(campaign, "bob")
    none = other.get(f"/api/v1/campaigns/{campaign}/next").json()
    why = "there is no question for you right now"
    assert none == {"questions": [], "state": "waiting", "why_none": why, "code": None}


def test_counts_of_many_requests_keep_their_digits(site: Site) -> None:
    durations = site.client.app.state.limits.durations  # type: ignore[attr-defined]
    durations["/busy"] = [1_234_567.0] * (len(BUCKETS) + 2)
    counts = re.findall(r'_(?:count|bucket){route="/busy".*} (.*)', site.client.get("/metrics").text)
    assert set(counts) == {"1234567"} and len(counts) == len(BUCKETS) + 2
    del durations["/busy"]


def test_the_process_says_how_it_is(site: Site) -> None:
    assert site.client.get("/healthz").json() == {"status": "ok"}
    assert site.client.get("/readyz").json() == {"status": "ready"}
    site.call("GET", "/campaigns")
    text = site.client.get("/metrics").text
    assert 'crowdwise_requests_total{method="GET",route="/api/v1/campaigns",status="200"}' in text
    assert 'le="+Inf"' in text and "crowdwise_writes_waiting" in text


def test_settings_come_from_options_variables_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('port = 1\nhost = "0.0.0.0"\nsample = false\n')
    environment = {
        "CROWDWISE_SERVE_PORT": "2",
        "CROWDWISE_SERVE_WORKERS": "3",
        "CROWDWISE_SERVE_PRIVATE_WEBHOOKS": "yes",
    }
    found = load_configuration({"workers": 4, "data": None}, file, environment)
    assert (found.port, found.workers, found.host, found.sample, found.private_webhooks) == (
        2,
        4,
        "0.0.0.0",
        False,
        True,
    )
    assert found.address == "http://127.0.0.1:2"
    assert load_configuration(environment=found.environment()) == found
    assert Configuration(database="postgres://u:p@h/d").url == "postgresql+psycopg://u:p@h/d"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"port": "many"}, "expected a whole number"), ({"workers": 0}, "at least 1"),
        ({"tls_key": "x"}, "needs both files"), ({"database": "mysql://x"}, "postgresql://"),
        ({"workers": 2.5}, "a whole number"), ({"port": True}, "a whole number"), ({"rate_limit": True}, "a number"),
        ({"sample": "perhaps"}, "true or false"), ({"log_format": "xml"}, "json or text"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        load_configuration(given, environment={})


def test_a_file_of_settings_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("prot = 1\n")
    with pytest.raises(ParameterError, match="Did you mean 'port'"):
        load_configuration(file=tmp_path / "a.toml", environment={})
    (tmp_path / "b.toml").write_text("port = = 1\n")
    with pytest.raises(ReadError, match="is not TOML"):
        load_configuration(file=tmp_path / "b.toml", environment={})


def test_a_worker_has_time_to_start_on_a_busy_machine() -> None:
    options = uvicorn_options(load_configuration({}, environment={}))
    assert uvicorn.Config("crowdwise.server.app:create_from_environment", **options).timeout_worker_healthcheck >= 30


def test_an_address_that_is_taken_is_said_before_a_store_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = run("serve", "--data", tmp_path / "data", "--port", port)
    assert found.returncode != 0 and f"cannot listen on 127.0.0.1, port {port}" in found.stderr
    assert "token" not in found.stdout + found.stderr and not (tmp_path / "data").exists()
    with pytest.raises(ParameterError, match="port=99999: expected at most 65535"):
        load_configuration({"port": 99999}, environment={})


def test_headers_without_end_are_refused(tmp_path: Path) -> None:
    given = {"data": str(tmp_path), "rate_limit": 0.0}
    with listening(load_configuration(given, environment={})) as (url, _, _):
        port = int(url.rsplit(":", 1)[1])
        for begin, more in ((b"", b"x-some: thing\r\n" * 64), (b"x-long: ", b"x" * 1024)):
            sent = 0
            with socket.create_connection(("127.0.0.1", port), timeout=120) as pipe:
                pipe.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + begin)
                try:
                    while sent < 60_000_000:  # far more than what sockets hold
                        pipe.sendall(more)
                        sent += len(more)
                    answer = b""
                except ConnectionError:
                    answer = b"closed"
            assert answer == b"closed"
        with socket.create_connection(("127.0.0.1", port), timeout=120) as pipe:  # two requests on one connection
            for _ in range(2):
                body = b"x" * 200_000
                head = b"POST /api/v1/campaigns HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
                pipe.sendall(head + body)
                answer = pipe.recv(4096)
                while b"\r\n\r\n" not in answer:
                    answer += pipe.recv(4096)
                assert answer.startswith(b"HTTP/1.1 401")
