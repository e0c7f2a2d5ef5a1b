"""Attacks on the server: what a file, a name, a lead or an annotator may try. docs/serve.md lists the results."""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crowdwise.data.parquet_footer import check_parquet
from crowdwise.errors import CrowdwiseError, InputError
from crowdwise.server import item_uploads, webhook_sender
from crowdwise.server.item_rows import ItemGiven, add_items
from crowdwise.server.webhook_sender import WebhookSender, is_inside
from server_site import Site

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
    "rows of one value": (PARQUET, parquet(pl.select(pl.repeat(7, 3_000_000).alias("item"))), "2,000,000 items"),
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
    monkeypatch.setattr(item_uploads, "MOST_CELLS", 20_000)
    monkeypatch.setattr(item_uploads, "MOST_VALUES", 50_000)
    path = tmp_path / f"upload{ENDING[media]}"
    path.write_bytes(body)
    assert len(body) < 300_000
    with pytest.raises(CrowdwiseError, match=why):
        item_uploads.read_upload(path, 4_000_000)


def test_a_parquet_bomb_does_not_reach_the_store(site: Site) -> None:
    campaign = site.campaign(n_items=0, annotators=())
    code, detail = upload(site, campaign, PARQUET, BOMBS["rows of one value"][1])
    assert code == 413 and "2,000,000 items" in detail
    assert site.call("GET", f"/campaigns/{campaign}/items")["items"] == []


def test_a_schema_that_lies_deep_in_itself_is_refused(tmp_path: Path) -> None:
    kind: Any = pl.Int64
    for _ in range(120):
        kind = pl.Struct({"a": kind})
    path = tmp_path / "deep.parquet"
    pl.DataFrame({"item": [None]}, schema={"item": kind}).write_parquet(path)
    with pytest.raises(ValueError, match="100 levels"):
        check_parquet(path)


def test_names_of_json_lines_do_not_multiply(tmp_path: Path) -> None:
    path = tmp_path / "upload.jsonl"  # as a table: 3,000 columns of 3,000 rows
    path.write_text("".join(json.dumps({"item": i, f"name{i}": i}) + "\n" for i in range(3_000)))
    found = item_uploads.read_upload(path)
    assert len(found) == 3_000 and found[7].payload == {"name7": 7}


def test_an_item_given_twice_among_many_is_found_at_once(site: Site) -> None:
    row = site.service.campaign(site.campaign(n_items=0, annotators=()))
    given = [ItemGiven(i) for i in range(200_000)] + [ItemGiven(199_999)]
    began = time.process_time()
    with pytest.raises(InputError, match="199999 is given twice"):
        site.service.read(lambda conn: add_items(conn, row, given))
    assert time.process_time() - began < 10  # it took minutes: each was looked for in all before it


def test_deep_payloads_and_odd_numbers_are_shown_again(site: Site) -> None:
    campaign = site.campaign(n_items=0)
    deep = b'[{"item":"a","payload":{"x":' + b"[" * 190 + b"]" * 190 + b',"y":NaN,"z":1e999,"n":' + b"9" * 4000 + b"}}]"
    assert upload(site, campaign, "application/json", deep)[0] == 201
    site.call("GET", f"/campaigns/{campaign}/items")
    assert site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")["questions"][0]["payload"]["y"] is None


@pytest.mark.parametrize("name", ["a\x00b", "\ud800"])
def test_names_that_no_store_holds_are_refused(site: Site, name: str) -> None:
    campaign = site.campaign()
    for path, body in (
        ("invitations", {"annotator": name}), ("annotators", [{"annotator": name}]),
        ("skip", {"item": "p0", "annotator": "ann", "reason": name}), ("undo", {"annotator": name}),
        ("votes", {"item": name, "annotator": "ann", "label": "wren"}),
        ("votes", {"item": "p0", "annotator": "ann", "label": "wren", "id": name}),
        ("votes", {"item": "p0", "annotator": "ann", "label": name}),
    ):  # fmt: skip
        site.call("POST", f"/campaigns/{campaign}/{path}", 422, content=json.dumps(body))
    site.call("POST", "/campaigns", 422, content=json.dumps({"name": name, "classes": ["a", "b"]}))


@pytest.mark.parametrize(
    "host",
    [
        "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0.0.0.0", "[::ffff:127.0.0.1]", "[::127.0.0.1]",
        "[64:ff9b::7f00:1]", "[64:ff9b:1::a00:1]", "[2002:7f00:1::]", "[fec0::1]", "224.0.0.1",
        "100.64.0.1",
    ],
)  # fmt: skip
def test_webhooks_reach_nothing_inside_the_network(site: Site, host: str) -> None:
    said = site.service.webhooks.send({"id": "x", "url": f"http://{host}:1/", "secret": "s", "body": "{}"})
    assert "inside the network" in str(said)


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


@pytest.fixture(scope="module")
def receiver() -> Iterator[tuple[str, list[str]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = True
    server.got = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", server.got  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


def test_receivers_cannot_hold_up_the_sender(
    site: Site, receiver: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, got = receiver
    sender = WebhookSender(site.service.read, site.service.write, private=True, start=False)
    monkeypatch.setattr(webhook_sender, "SECONDS", 0.5)
    facts = {"id": "x", "secret": "s", "body": "{}"}
    assert sender.send({**facts, "url": f"{url}/endless"}) is None  # what follows the status is not read
    assert "within 0.5 seconds" in str(sender.send({**facts, "url": f"{url}/slow"}))
    assert sender.send({**facts, "url": f"{url}/redirect"}) == "It answered 302."
    assert "InvalidURL" in str(sender.send({**facts, "url": f"{url}/\x01"}))
    assert got == ["/endless", "/slow", "/redirect"]


def test_webhooks_are_few_and_their_addresses_plain(site: Site) -> None:
    path = f"/campaigns/{site.campaign()}/webhooks"
    for url in ("http://example.org/\x01", "http://example.org/\r\nX: y", "http://exa\u2028mple.org/"):
        assert "no address for a webhook" in site.call("POST", path, 422, json={"url": url})["detail"]
    for _ in range(20):
        site.call("POST", path, 201, json={"url": "https://example.org/hook"})
    assert "at most 20" in site.call("POST", path, 422, json={"url": "https://example.org/hook"})["detail"]
