"""Attacks on the server: what a file, a name, a lead or an annotator may try. docs/serve.md lists the results."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import socket
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest
from fastapi.testclient import TestClient

from crowdwise.data.parquet_footer import check_parquet
from crowdwise.data.sheets import MAIN, write_xlsx
from crowdwise.errors import CrowdwiseError, InputError, ReadError
from crowdwise.server import routes_events, routes_uploads, webhook_sender
from crowdwise.server.configuration import load_configuration
from crowdwise.server.request_limits import RequestLimits
from crowdwise.server.structured_logs import JsonLines, TextLines
from crowdwise.server.webhook_sender import WebhookSender, is_inside
from crowdwise.store import backups
from crowdwise.store.campaign_rows import CampaignClosed
from crowdwise.store.database import Database
from crowdwise.store.roster_rows import ItemGiven, checked_items
from crowdwise.store.store_tables import deliveries
from crowdwise.store.vote_rows import VoteGiven, add_together
from server_site import Site, bearer, running

PARQUET, CSV, JSON, LINES = "application/vnd.apache.parquet", "text/csv", "application/json", "application/x-ndjson"


def upload(site: Site, campaign: str, media: str, body: bytes) -> tuple[int, str]:
    headers = {**site.admin, "content-type": media}
    answer = site.client.post(f"/api/v1/campaigns/{campaign}/items", content=body, headers=headers)
    return answer.status_code, answer.json().get("detail", "")


def parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, statistics=False)
    return buffer.getvalue()


def gzipped(body: bytes) -> bytes:
    """Gzip whose first line holds no zero byte: the name of the file in its header has a line end."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    raw = packer.compress(body) + packer.flush()
    end = zlib.crc32(body).to_bytes(4, "little") + (len(body) % 2**32).to_bytes(4, "little")
    return b"\x1f\x8b\x08\x08\x01\x01\x01\x01\x02\x03a\nb\0" + raw + end


BOMBS = {
    "rows of one value": (PARQUET, parquet(pl.select(pl.repeat(7, 3_000_000).alias("item"))), "1,000,000 items"),
    "one row with a long list": (
        PARQUET, parquet(pl.DataFrame({"item": ["a"], "x": [[0] * 30_000]})), "20,000 cells",
    ),
    "a page that unpacks": (PARQUET, parquet(pl.DataFrame({"item": ["a"], "x": ["x" * 5_000_000]})), "4,000,000 bytes"),
    "one text many times": (PARQUET, parquet(pl.DataFrame({"item": range(99), "x": ["x" * 99_999] * 99})), "bytes"),
    "columns of Parquet": (PARQUET, parquet(pl.DataFrame({f"c{i}": [1] for i in range(1_100)})), "1,000 columns"),
    "columns of CSV": (CSV, b"item" + b",a" * 5_000 + b"\na\n", "1,000 columns"),
    "empty cells of CSV": (CSV, b"item" + b",a" * 500 + b"\n" * 60, "20,000 cells"),
    "CSV in gzip": (CSV, gzipped(b"item\n" + b"a" * 9_000_000), "compressed"),
    "CSV in zlib": (CSV, zlib.compress(b"item\n" + b"a" * 9_000_000), "compressed"),
    "deep JSON": (JSON, b'[{"item":"a","payload":{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}}]", "recursion"),
    "values of JSON": (JSON, b'[{"item":"a","payload":{"x":[' + b"0," * 60_000 + b"0]}}]", "50,000 values"),
    "deep JSON lines": (LINES, b'{"item":"a","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "recursion"),
    "a long number": (JSON, b'[{"item":"a","payload":{"x":' + b"9" * 5_000 + b"}}]", "out of range"),
    "a payload with half a letter": (CSV, b'item,payload\na,"{""x"": ""\\ud800""}"\n', "not a JSON object"),
    "deep payload in CSV": (
        CSV, b'item,payload\na,"' + b'{""a"":' * 400 + b"1" + b"}" * 400 + b'"\n', "not a JSON object"
    ),
}  # fmt: skip


ENDING = {PARQUET: ".parquet", CSV: ".csv", JSON: ".json", LINES: ".jsonl"}


@pytest.mark.parametrize("name", BOMBS)
def test_small_files_that_grow_are_refused(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    media, body, why = BOMBS[name]
    monkeypatch.setattr(routes_uploads, "MOST_CELLS", 20_000)
    monkeypatch.setattr(routes_uploads, "MOST_VALUES", 50_000)
    path = tmp_path / f"upload{ENDING[media]}"
    path.write_bytes(body)
    assert len(body) < 300_000
    with pytest.raises(CrowdwiseError, match=why):
        list(routes_uploads.read_upload(path, 4_000_000))


def test_a_parquet_bomb_does_not_reach_the_store(site: Site) -> None:
    campaign = site.campaign(n_items=0, annotators=())
    code, detail = upload(site, campaign, PARQUET, BOMBS["rows of one value"][1])
    assert code == 413 and "1,000,000 items" in detail
    assert site.call("GET", f"/campaigns/{campaign}/items")["items"] == []


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_a_preview_leaves_no_table_in_memory(site: Site) -> None:
    path = f"/api/v1/campaigns/{site.campaign(n_items=0, annotators=())}/items?preview=true"

    def tables() -> int:
        return sum(isinstance(one, pl.DataFrame) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = tables()
        looked = site.client.post(
            path, content=b"item,a\n" + b",1\n" * 100, headers={**site.admin, "content-type": CSV}
        )
        assert "has no item" in looked.json()["problem"] and tables() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_what_is_too_large_to_be_read_is_not_looked_at_either(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/api/v1/campaigns/{site.campaign(n_items=0, annotators=())}/items?preview=true"

    def looked(media: str, body: bytes) -> Any:
        return site.client.post(path, content=body, headers={**site.admin, "content-type": media}).json()

    table = b"item,annotator,label\n" + b"".join(b"%d,ann%d,a\n" % (i // 3, i % 3) for i in range(300))
    assert looked(CSV, table)["answers"]["answers"] == 300
    monkeypatch.setattr(routes_uploads, "MOST_LOOKED", 300 * 3 * 16)
    assert looked(CSV, table)["answers"] is None and looked(CSV, table)["rows"]
    monkeypatch.setattr(routes_uploads, "check_file", lambda path: pytest.fail("it would be read as a whole"))
    found = looked(PARQUET, BOMBS["rows of one value"][1])
    assert "1,000,000 items" in found["problem"] and found["answers"] is None
    monkeypatch.setattr(routes_uploads, "MOST_MEMORY", 64 * 70_000)
    content = with_far_cell(300, 300)
    assert looked(routes_uploads.SHEET, content)["problem"].startswith("The upload spans 90,000 cells")
    code, why = upload(site, path.split("/")[4], routes_uploads.SHEET, content)
    assert code == 413 and why.startswith("The upload spans")


def with_far_cell(row: int, column: int) -> bytes:
    """A sheet of one cell, which lies far away."""
    place = f"{chr(64 + column // 26)}{chr(64 + column % 26)}{row}"
    with tempfile.TemporaryDirectory() as folder:
        path = write_xlsx(Path(folder) / "far.xlsx", {"a": [["item"]]})
        with zipfile.ZipFile(path) as book:
            parts = {info.filename: book.read(info) for info in book.infolist()}
    parts["xl/worksheets/s1.xml"] = (
        f"<worksheet xmlns='{MAIN}'><sheetData><row r='{row}'><c r='{place}'><v>1</v></c></row></sheetData></worksheet>"
    ).encode()
    with zipfile.ZipFile(out := io.BytesIO(), "w") as book:
        for name, part in parts.items():
            book.writestr(name, part)
    return out.getvalue()


def test_a_schema_that_lies_deep_in_itself_is_refused(tmp_path: Path) -> None:
    kind: Any = pl.Int64
    for _ in range(120):
        kind = pl.Struct({"a": kind})
    path = tmp_path / "deep.parquet"
    pl.DataFrame({"item": [None]}, schema={"item": kind}).write_parquet(path)
    with pytest.raises(ValueError, match="100 levels"):
        check_parquet(path.read_bytes())


def test_names_of_json_lines_do_not_multiply(tmp_path: Path) -> None:
    path = tmp_path / "upload.jsonl"  # as a table: 3,000 columns of 3,000 rows
    path.write_text("".join(json.dumps({"item": i, f"name{i}": i}) + "\n" for i in range(3_000)))
    found = list(routes_uploads.read_upload(path))
    assert len(found) == 3_000 and found[7].payload == {"name7": 7}


def test_an_item_given_twice_among_many_is_found_at_once(site: Site) -> None:
    row = site.service.campaign(site.campaign(n_items=0, annotators=()))
    given = [ItemGiven(i) for i in range(60_000)] + [ItemGiven(59_999)]
    began = time.process_time()
    with pytest.raises(InputError, match="59999 is given twice"):
        site.service.read(lambda conn: checked_items(conn, row, given))
    assert time.process_time() - began < 10  # each was looked for in all before it


def test_deep_payloads_and_odd_numbers_are_shown_again(site: Site) -> None:
    campaign = site.campaign(n_items=0)
    deep = b'[{"item":"a","payload":{"x":' + b"[" * 190 + b"]" * 190 + b',"y":NaN,"z":1e999,"n":' + b"9" * 4000 + b"}}]"
    assert upload(site, campaign, "application/json", deep)[0] == 201
    site.call("GET", f"/campaigns/{campaign}/items")
    assert site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")["questions"][0]["payload"]["y"] is None


@pytest.mark.parametrize("name", ["a\x00b", "\ud800"])
def test_names_that_no_store_holds_are_refused(site: Site, name: str) -> None:
    campaign, texts = site.campaign(), site.campaign(answer_type="texts", classes=[])
    sent = {"headers": site.admin | {"content-type": "application/json"}}
    for path, body in (
        ("invitations", {"annotator": name}), ("annotators", [{"annotator": name}]),
        ("skip", {"item": "p0", "annotator": "ann", "reason": name}), ("undo", {"annotator": name}),
        ("votes", {"item": name, "annotator": "ann", "label": "wren"}),
        ("votes", {"item": "p0", "annotator": "ann", "label": "wren", "id": name}),
        ("votes", {"item": "p0", "annotator": "ann", "label": name}),
        ("votes", {"item": "p0", "annotator": "ann", "label": "wren", "others": {"x": name}}),
    ):  # fmt: skip
        found = site.call("POST", f"/campaigns/{campaign}/{path}", 422, content=json.dumps(body), **sent)
        assert "cannot be stored" in found["detail"] or "unicode" in found["detail"], found
    for path, body in (
        ("votes", {"item": "p0", "annotator": "ann", "label": f"a{name}"}),
        ("reviews", {"item": "p0", "answer": f"a{name}"}),
    ):  # one such text, and no result could be written
        site.call("POST", f"/campaigns/{texts}/{path}", 422, content=json.dumps(body), **sent)
    site.call("POST", "/campaigns", 422, content=json.dumps({"name": name, "classes": ["a", "b"]}), **sent)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0.0.0.0", "[::ffff:127.0.0.1]", "[::127.0.0.1]",
        "[64:ff9b::7f00:1]", "[64:ff9b:1::a00:1]", "[2002:7f00:1::]", "[fec0::1]", "224.0.0.1",
        "100.64.0.1",
    ],
)  # fmt: skip
def test_webhooks_reach_nothing_inside_the_network(host: str) -> None:
    sender = WebhookSender(nothing, nothing, private=False, start=False)
    said = asyncio.run(sender.sent({"id": "x", "url": f"http://{host}:1/", "secret": "s", "body": "{}"}))
    assert "inside the network" in str(said)


def nothing(*_: Any) -> None:
    """In place of a store."""


def test_public_addresses_are_not_inside() -> None:
    assert not any(map(is_inside, ("1.1.1.1", "2606:4700:4700::1111", "8.8.8.8")))


class Receiver(BaseHTTPRequestHandler):
    """Answers by its path: with a redirect to itself, with an answer that has no end, byte by byte, or at once."""

    def do_POST(self) -> None:
        self.server.got.append(self.path)  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):
            if self.path == "/slow":
                for letter in b"HTTP/1.1 200 OK":
                    self.wfile.write(bytes([letter]))
                    time.sleep(0.1)
                return
            self.send_response(302 if self.path == "/redirect" else 200)
            self.send_header("Location", "/redirected")
            self.end_headers()
            while self.path == "/endless":
                self.wfile.write(b"x" * 65536)

    def log_message(self, *_: Any) -> None:
        """No line per request."""


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[str]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = True
    server.got = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", server.got  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


def test_receivers_cannot_hold_up_the_sender(receiver: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, got = receiver
    sender = WebhookSender(nothing, nothing, private=True, start=False)
    facts = {"id": "x", "secret": "s", "body": "{}"}
    assert asyncio.run(sender.sent({**facts, "url": f"{url}/endless"})) is None  # what follows the status is not read
    with monkeypatch.context() as hasty:
        hasty.setattr(webhook_sender, "SECONDS", 0.5)
        assert "within 0.5 seconds" in str(asyncio.run(sender.sent({**facts, "url": f"{url}/slow"})))
    assert asyncio.run(sender.sent({**facts, "url": f"{url}/redirect"})) == "It answered 302."
    assert "InvalidURL" in str(asyncio.run(sender.sent({**facts, "url": f"{url}/\x01"})))
    assert got == ["/endless", "/slow", "/redirect"]


def test_a_name_that_changes_its_address_is_not_followed(
    receiver: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the first answer is a public address, every later one is this machine."""
    url, got = receiver
    port, asked, find = int(url.rpartition(":")[2]), list[Any](), socket.getaddrinfo
    answers = {"mixed.test": ["93.184.216.34", "127.0.0.1"], "rebound.test": ["192.0.2.1"]}

    def lookup(host: Any, *given: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in answers:
            asked.append(name)
            found = answers[name] if asked.count(name) == 1 else ["127.0.0.1"]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]
        return find(host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(webhook_sender, "SECONDS", 0.5)
    monkeypatch.setattr(webhook_sender, "is_inside", lambda address: address == "127.0.0.1")
    sender = WebhookSender(nothing, nothing, private=False, start=False)
    facts = {"id": "x", "secret": "s", "body": "{}"}
    assert "inside the network" in str(asyncio.run(sender.sent({**facts, "url": f"http://mixed.test:{port}/"})))
    assert (
        asyncio.run(sender.sent({**facts, "url": f"http://rebound.test:{port}/"})) is not None
    )  # 192.0.2.1 answers nothing
    assert asked == ["mixed.test", "rebound.test"] and got == []


def test_webhooks_are_few_and_their_addresses_plain(site: Site) -> None:
    path = f"/campaigns/{site.campaign()}/webhooks"
    for url in ("http://example.org/\x01", "http://example.org/\r\nX: y", "http://exa\u2028mple.org/"):
        assert "not a URL for a webhook" in site.call("POST", path, 422, json={"url": url})["detail"]
    for _ in range(20):
        site.call("POST", path, 201, json={"url": "https://example.org/hook"})
    assert "at most 20" in site.call("POST", path, 422, json={"url": "https://example.org/hook"})["detail"]


def asked(browser: TestClient, campaign: str, n: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = browser.get(f"/api/v1/campaigns/{campaign}/next?n={n}").json()["questions"]
    return found


def answered(browser: TestClient, campaign: str, csrf: dict[str, str], *questions: dict[str, Any]) -> Any:
    votes = [{"item": one["item"], "ticket": one["ticket"], "label": "wren"} for one in questions]
    return browser.post(f"/api/v1/campaigns/{campaign}/votes", json={"votes": votes}, headers=csrf)


@pytest.mark.parametrize("limit", ["budget", "max_votes"])
def test_tickets_that_were_kept_do_not_go_beyond_a_limit(site: Site, limit: str) -> None:
    campaign = site.campaign(n_items=6, **({"budget": 2} if limit == "budget" else {}))
    if limit == "max_votes":
        site.call("PATCH", f"/campaigns/{campaign}/annotators/ann", json={"max_votes": 2})
    browser, csrf = site.browser(campaign)
    kept = []
    for _ in range(4):  # each question is given back once its ticket is there
        (one,) = asked(browser, campaign)
        kept.append(one)
        browser.post(f"/api/v1/campaigns/{campaign}/skip", json={"item": one["item"]}, headers=csrf)
    assert len({one["item"] for one in kept}) == 4
    refused = answered(browser, campaign, csrf, *kept)
    assert refused.status_code == 409 and "given back" in refused.json()["detail"]
    codes = [answered(browser, campaign, csrf, one).status_code for one in kept]
    assert codes == [201, 201, 409, 409]
    assert site.call("GET", f"/campaigns/{campaign}")["spent"] == 2


def given_back(browser: TestClient, campaign: str, csrf: dict[str, str], n: int) -> list[dict[str, Any]]:
    """Questions whose tickets an annotator kept, and which are not out any more."""
    kept = asked(browser, campaign, n)
    browser.post(f"/api/v1/campaigns/{campaign}/release", json={}, headers=csrf)
    assert len(kept) == n
    return kept


def test_votes_that_are_written_together_do_not_go_beyond_a_limit(site: Site) -> None:
    campaign = site.campaign(n_items=6)
    site.call("PATCH", f"/campaigns/{campaign}/annotators/ann", json={"max_votes": 2})
    requests = [[VoteGiven(f"p{i}", "ann", "wren", own=True)] for i in range(4)]
    found = site.service.write(lambda conn: add_together(conn, campaign, requests), campaign)
    assert [isinstance(one, CampaignClosed) for one in found] == [False, False, True, True]


def test_practice_is_judged_however_many_of_it_come_at_once(site: Site) -> None:
    campaign = site.campaign(n_items=8, practice=3, screen=0.5, gold_rate=0.5)
    gold = [f"p{i}" for i in range(6)]
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": gold, "gold": "robin"})
    browser, csrf = site.browser(campaign)
    tests = [one for one in asked(browser, campaign, 8) if one["item"] in gold][:5]
    told = answered(browser, campaign, csrf, *tests).json()["feedback"]
    assert [one["item"] for one in told] == [one["item"] for one in tests[:3]]  # the others could be taken back
    people = {row["annotator"]: row["available"] for row in site.call("GET", f"/campaigns/{campaign}/annotators")}
    assert people == {"ann": False, "bob": True}


def test_tickets_that_were_kept_do_not_go_beyond_the_votes_of_an_item(site: Site) -> None:
    campaign = site.campaign(n_items=4, max_votes=1, probability=0.9999)
    browser, csrf = site.browser(campaign)
    kept = given_back(browser, campaign, csrf, 4)
    site.votes(campaign, *((f"p{i}", "bob", "wren") for i in range(3)))
    refused = answered(browser, campaign, csrf, *kept)
    assert refused.status_code == 409 and "given back" in refused.json()["detail"]
    codes = {one["item"]: answered(browser, campaign, csrf, one).status_code for one in kept}
    assert codes == {"p0": 409, "p1": 409, "p2": 409, "p3": 201}
    assert site.call("GET", f"/campaigns/{campaign}")["spent"] == 4


def test_tickets_that_were_kept_are_worth_nothing_after_the_end(site: Site) -> None:
    campaign = site.campaign(n_items=2, probability=0.5, min_votes=1)
    browser, csrf = site.browser(campaign)
    kept = given_back(browser, campaign, csrf, 2)
    site.votes(campaign, ("p0", "bob", "wren"), ("p1", "bob", "robin"))
    until, found = time.monotonic() + 120, list[Any]()
    while not found and time.monotonic() < until:
        found = [one for one in site.call("GET", f"/campaigns/{campaign}/history") if one["state"] != "running"]
        time.sleep(0.05)
    assert found[-1]["state"] == "exhausted"
    assert answered(browser, campaign, csrf, kept[0]).status_code == 409


def test_nobody_can_take_the_id_of_a_vote_of_somebody_else(site: Site) -> None:
    campaign = site.campaign(n_items=6)
    ann, csrf = site.browser(campaign)
    bob, other = site.browser(campaign, "bob")
    for id_, question in zip(["undo:1", "undo:2", '["p5", "bob"]', "v1"], asked(ann, campaign, 4), strict=True):
        vote = {"item": question["item"], "ticket": question["ticket"], "label": "wren", "id": id_}
        for repeated in (0, 1):
            answer = ann.post(f"/api/v1/campaigns/{campaign}/votes", json=vote, headers=csrf)
            assert answer.json()["repeated"] == repeated, answer.text
    (one,) = asked(bob, campaign)
    vote = {"item": one["item"], "ticket": one["ticket"], "label": "wren", "id": "v1"}
    assert bob.post(f"/api/v1/campaigns/{campaign}/votes", json=vote, headers=other).status_code == 201
    for browser, headers in ((bob, other), (ann, csrf)):
        assert browser.post(f"/api/v1/campaigns/{campaign}/undo", json={}, headers=headers).status_code == 200
    assert site.votes(campaign, ("p5", "bob", "robin"))["added"] == 1
    ids = [row["id"] for row in site.call("GET", f"/campaigns/{campaign}/votes")["votes"]]
    assert ids == ["undo:1", "undo:2", '["p5", "bob"]', '["p5", "bob"]']


def test_an_annotator_who_is_paused_cannot_answer_with_old_tickets(site: Site) -> None:
    campaign = site.campaign()
    browser, csrf = site.browser(campaign)
    one, two = asked(browser, campaign, 2)
    assert answered(browser, campaign, csrf, one).status_code == 201
    site.call("PATCH", f"/campaigns/{campaign}/annotators/ann", json={"available": False})
    assert asked(browser, campaign, 2) == [] and site.call("GET", f"/campaigns/{campaign}/throughput")["out"] == 0
    assert answered(browser, campaign, csrf, two).status_code == 409
    assert site.votes(campaign, (two["item"], "ann", "wren"))["added"] == 1  # a lead may


def test_a_late_answer_is_taken_where_there_is_room(site: Site) -> None:
    campaign = site.campaign(patience=0.2, budget=5)
    browser, csrf = site.browser(campaign)
    (one,) = asked(browser, campaign)
    time.sleep(0.3)
    asked(site.browser(campaign, "bob")[0], campaign)
    assert answered(browser, campaign, csrf, one).status_code == 201


def test_a_vote_cannot_be_corrected_after_the_known_answer_was_shown(site: Site) -> None:
    campaign = site.campaign(n_items=1, gold_rate=0.9, feedback=True)
    browser, csrf = site.browser(campaign)
    (one,) = asked(browser, campaign)
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": [one["item"]], "gold": "robin"})
    assert answered(browser, campaign, csrf, one).json()["feedback"][0]["expected"] == "robin"
    back = browser.post(f"/api/v1/campaigns/{campaign}/undo", json={}, headers=csrf)
    assert back.status_code == 422 and "answer to this question was shown" in back.json()["detail"]


def test_tickets_of_others_and_of_other_campaigns_are_refused(site: Site) -> None:
    campaign, other = site.campaign(), site.campaign()
    (one,) = asked(site.browser(campaign, "bob")[0], campaign)
    (far,) = asked(site.browser(other)[0], other)
    browser, csrf = site.browser(campaign)
    (own,) = asked(browser, campaign)
    for ticket in (one["ticket"], far["ticket"], f"left{own['ticket'][1:]}", "", "-.", "é.ü"):
        question = {"item": own["item"], "ticket": ticket}
        assert answered(browser, campaign, csrf, question).status_code == 403
    assert answered(browser, other, csrf, far).status_code == 403


def test_a_lead_reaches_nothing_of_another_campaign_by_its_ids(site: Site) -> None:
    mine, other = site.campaign(), site.campaign(n_items=0, annotators=("zoe",))
    lead = site.token("lead", mine)
    site.call("POST", f"/campaigns/{other}/items", 201, json=[{"item": "secret"}])
    site.votes(other, ("secret", "zoe", "wren"))
    site.call("POST", f"/campaigns/{other}/invitations", 201, json={"annotator": "zoe"})
    hook = site.call("POST", f"/campaigns/{other}/webhooks", 201, json={"url": "https://example.org/x"})["id"]
    own = site.call("POST", f"/campaigns/{mine}/webhooks", 201, json={"url": "https://example.org/x"})["id"]
    token = site.call("GET", f"/campaigns/{other}/tokens")[0]["id"]
    far, near = "00000000000000aa", "00000000000000ab"
    row = {"event": 1, "body": "{}", "state": "dead", "tries": 8, "due": 0.0, "error": "x", "created": 0.0}
    rows = [{"id": far, "webhook": hook, **row}, {"id": near, "webhook": own, **row}]
    if site.service.read(lambda conn: conn.execute(deliveries.select().where(deliveries.c.id == far)).first()) is None:
        site.service.write(lambda conn: conn.execute(deliveries.insert(), rows))
    path = f"/campaigns/{mine}"
    for method, rest, body in (
        ("DELETE", f"/tokens/{token}", None), ("DELETE", f"/webhooks/{hook}", None),
        ("GET", f"/webhooks/{hook}/deliveries", None), ("POST", f"/webhooks/{hook}/deliveries/{far}/retry", None),
        ("POST", f"/webhooks/{own}/deliveries/{far}/retry", None), ("GET", "/items/secret/votes", None),
        ("GET", "/annotators/zoe/history", None), ("PATCH", "/annotators/zoe", {"available": False}),
        ("PATCH", "/items", {"items": ["secret"], "closed": True}), ("POST", "/undo", {"annotator": "zoe"}),
        ("POST", "/release", {"items": ["secret"]}), ("POST", "/skip", {"annotator": "ann", "item": "secret"}),
        ("GET", "/next?annotator=zoe", None), ("GET", "/progress?annotator=zoe", None),
        ("POST", "/votes", {"item": "secret", "annotator": "ann", "label": "wren"}),
    ):  # fmt: skip
        site.call(method, path + rest, 404, headers=lead, **({"json": body} if body else {}))
    site.call("POST", f"{path}/webhooks/{own}/deliveries/{near}/retry", headers=lead)
    assert [one["id"] for one in site.call("GET", "/campaigns", headers=lead)] == [mine]
    seen = str([site.call("GET", path + rest, headers=lead) for rest in ("/tokens", "/audit", "/webhooks")])
    assert other not in seen and hook not in seen and "zoe" not in seen
    site.call("POST", "/tokens", 403, headers=lead, json={"role": "admin", "name": "me"})
    assert site.call("GET", f"/campaigns/{other}/tokens")[0]["revoked"] is None


def test_an_event_stream_ends_with_its_token(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = site.campaign()
    made = site.call("POST", "/tokens", 201, json={"role": "reader", "name": "screen", "campaign": campaign})
    path, headers = f"/api/v1/campaigns/{campaign}/events?after=0", bearer(made["secret"])
    monkeypatch.setattr(routes_events, "MOST", 1)
    site.service.streams[made["id"]] = 1
    assert site.client.get(path, headers=headers).status_code == 429
    site.service.streams[made["id"]] = 0
    sent, revoked = threading.Event(), []
    read = routes_events.read_events

    def read_once(*given: Any, **more: Any) -> Any:
        sent.set()
        return read(*given, **more)

    def revoke() -> None:
        sent.wait(60)
        revoked.append(site.call("DELETE", f"/tokens/{made['id']}"))

    monkeypatch.setattr(routes_events, "read_events", read_once)
    thread = threading.Thread(target=revoke)
    thread.start()
    assert "event: items" in site.client.get(f"{path}&seconds=86400", headers=headers).text  # would last a day
    thread.join()
    assert revoked and site.service.streams[made["id"]] == 0


def test_pages_of_other_sites_and_images_do_nothing_with_a_session(site: Site) -> None:
    campaign = site.campaign()
    link = site.call("POST", f"/campaigns/{campaign}/invitations", 201, json={"annotator": "ann"})["link"]
    join = "/join/" + link.rsplit("/", 1)[1]
    image = {"sec-fetch-dest": "image"}
    stranger = TestClient(site.client.app)
    assert stranger.get(join, headers=image).status_code == 403 and not stranger.cookies
    browser, _ = site.browser(campaign)
    assert browser.get(f"/api/v1/campaigns/{campaign}/next", headers=image).status_code == 401
    opened = {"sec-fetch-dest": "document"}
    assert browser.get(f"/label/{campaign}", headers=opened).status_code == 200
    assert browser.get(f"/api/v1/campaigns/{campaign}/next", headers=opened).status_code == 403
    for where in ("/logout", "/login", "/sample", f"/label/{campaign}"):
        far = browser.post(where, data={"token": site.secret, "csrf": "x"}, headers={"sec-fetch-site": "cross-site"})
        assert far.status_code == 403 and "another site" in far.text and "set-cookie" not in far.headers


@pytest.mark.parametrize(
    "where", ["//evil.org", "/\\evil.org", "https://evil.org", "/\t/evil.org", "/\r\nx: y", "javascript:x"]
)
def test_signing_in_leads_to_this_site_alone(site: Site, where: str) -> None:
    answer = site.client.post("/login", data={"token": site.secret, "next": where}, follow_redirects=False)
    site.client.cookies.clear()
    location = answer.headers["location"]
    assert answer.status_code == 303 and location.startswith("/") and location[1:2] not in ("/", "\\")
    assert not set(location) & set("\t\r\n\\") and "x" not in answer.headers


def test_odd_methods_make_no_labels(site: Site) -> None:
    for method in ('X"} 1', "BREW", "PROPFIND"):
        assert site.client.request(method, "/healthz").status_code == 405
    text = site.client.get("/metrics").text
    assert 'method="other",route="/healthz",status="405"} 3' in text and "BREW" not in text


@pytest.mark.usefixtures("frozen_rates")
def test_a_forged_token_with_every_request_has_no_rate_of_its_own(tmp_path: Path) -> None:
    with running(load_configuration({"data": str(tmp_path), "rate_limit": 5.0}, environment={})) as made:
        made.call("GET", "/campaigns")
        codes = [made.client.get("/api/v1/campaigns", headers=bearer(f"cw_{i}")).status_code for i in range(40)]
        assert codes == [401] * 9 + [429] * 31
        made.call("GET", "/campaigns")  # a caller who was let in before goes on


def test_a_body_that_trickles_is_refused(site: Site) -> None:
    limits = RequestLimits(anything, load_configuration({"body_seconds": 0.3}, environment={}))
    sent, received = list[Any](), list[int]()

    async def receive() -> Any:
        received.append(1)
        await asyncio.sleep(0.05)  # each part comes in time, but there would be a million
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/x",
        "query_string": b"",
        "headers": [],
        "client": ("1.2.3.4", 1),
        "app": site.client.app,
    }
    asyncio.run(limits(scope, receive, send))
    assert sent[0]["status"] == 408 and len(received) < 20


async def anything(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads the whole body."""
    while (await receive()).get("more_body"):
        pass


HOSTILE = (
    "=1+2", "'; DROP TABLE votes; --", "<script>alert(1)</script>", "\" onload=\"x", "../../etc/passwd",
    "a\r\nSet-Cookie: x=y", "{{7*7}}", "%s%n", "\u202egnp.exe", "a\\\"} 1\nfake_metric 2",
)  # fmt: skip


def test_hostile_names_stay_names(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    name, classes = " ".join(HOSTILE)[:200], list(HOSTILE[:3])
    campaign = site.call("POST", "/campaigns", 201, json={"name": name, "classes": classes})["id"]
    path = f"/campaigns/{campaign}"
    site.call("POST", f"{path}/items", 201, json=[{"item": one, "payload": {one: one}} for one in HOSTILE])
    site.call("POST", f"{path}/annotators", 201, json=[{"annotator": one} for one in HOSTILE])
    with caplog.at_level("INFO", logger="crowdwise.server"):
        site.votes(campaign, *((item, who, classes[0]) for item in HOSTILE for who in HOSTILE[:3]))
        for one in HOSTILE[:2]:
            assert len(site.call("GET", f"{path}/items/{quote(one)}/votes")) == 3
    rows = site.call("GET", f"{path}/consensus")["items"]
    assert [row["item"] for row in rows] == list(HOSTILE) and {row["label"] for row in rows} == {classes[0]}
    answer = site.client.get(f"/api/v1{path}/consensus?format=csv", headers=site.admin)
    table = pl.read_csv(answer.content, infer_schema=False)
    assert table["item"][0] == "'" + HOSTILE[0] and set(table["label"]) == {"'" + classes[0]}
    assert answer.headers["content-disposition"] == 'attachment; filename="consensus.csv"'
    report = site.client.get(f"/api/v1{path}/report", headers=site.admin).text
    assert "<script>alert(1)" not in report
    browser, _ = site.browser(campaign, HOSTILE[2])
    page = browser.get(f"/label/{campaign}").text
    assert "<script>alert(1)" not in page and "49" not in page.partition("<h1>")[2].partition("</h1>")[0]
    assert "fake_metric" not in site.client.get("/metrics").text
    lines = [JsonLines().format(record) for record in caplog.records]
    assert lines and all("\n" not in line and json.loads(line) for line in lines)
    assert all(TextLines().format(record).isprintable() for record in caplog.records)
    assert site.call("GET", f"{path}/audit")[-1]["action"] == "create campaign"


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static//etc/passwd"]
)
def test_static_files_are_those_of_the_folder(site: Site, path: str) -> None:
    assert site.client.get(path).status_code == 404


@pytest.mark.parametrize(
    "facts", [b"[1]", b"{}", b"[" * 99_999, b'{"columns": {}, "counts": {}, "format": 1}', b"{" + b" " * 10_000_000]
)
def test_a_crafted_backup_is_refused(tmp_path: Path, facts: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "MOST", 1_000_000)
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("backup.json", facts)
    store = Database(load_configuration({"data": str(tmp_path / "d")}, environment={}).url)
    with pytest.raises(ReadError, match="not a backup"):
        backups.restore(store, tmp_path / "b.zip")
    store.close()


def test_a_backup_with_other_columns_or_endless_lines_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Database(load_configuration({"data": str(tmp_path / "d")}, environment={}).url)
    store.migrate()
    backups.back_up(store, tmp_path / "b.zip")
    monkeypatch.setattr(backups, "MOST", 100_000)
    for part, body, why in (
        ("backup.json", lambda text: text.replace(b'"hash"', b'"h; DROP"'), "other columns"),
        ("ended_sessions.jsonl", lambda _: b"[" + b" " * 5_000_000 + b"]", "damaged"),
        ("ended_sessions.jsonl", lambda _: b"7\n", "damaged"),
    ):  # fmt: skip
        with zipfile.ZipFile(tmp_path / "b.zip") as old, zipfile.ZipFile(tmp_path / "c.zip", "w", 8) as new:
            for name in old.namelist():
                new.writestr(name, body(old.read(name)) if name == part else old.read(name))
        with pytest.raises(ReadError, match=why):
            backups.restore(store, tmp_path / "c.zip")
    store.close()
