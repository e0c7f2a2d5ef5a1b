"""Small holes, each closed: clocks, names of annotators, names of models, addresses and sizes of payloads."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from crowdwise.errors import CrowdwiseError
from crowdwise.server import routes_uploads
from crowdwise.server.routes_uploads import MOST_VALUES, read_upload
from crowdwise.server.webhook_sender import is_inside
from crowdwise.store.steady_clock import SteadyClock
from server_site import Site


def test_a_clock_that_is_set_back_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, wall, steady = SteadyClock(), time.time, time.monotonic
    shift = {"wall": 1e6, "steady": 0.0}
    monkeypatch.setattr(time, "time", lambda: wall() + shift["wall"])
    monkeypatch.setattr(time, "monotonic", lambda: steady() + shift["steady"])
    ahead = clock.now()
    assert ahead > wall() + 9e5  # forward it goes with the machine
    shift["wall"] = -1e6
    assert ahead <= clock.now() < ahead + 10.0
    shift["steady"] = 600.0
    assert clock.now() >= ahead + 600.0  # so that questions that are out come back in time


def test_a_clock_that_is_set_back_keeps_no_question_and_revives_no_token(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = site.campaign(n_items=1, patience=0.2)
    reader = site.token("reader", campaign, days=1e-6)
    (first,) = site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")["questions"]
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() - 86_400.0)
    time.sleep(0.3)
    (other,) = site.call("GET", f"/campaigns/{campaign}/next?annotator=bob")["questions"]
    assert other["item"] == first["item"]
    site.call("GET", f"/campaigns/{campaign}/status", 401, headers=reader)


@pytest.mark.parametrize("name", ["a/b", ".", "..", "?x=1#y", "a b%2F"])
def test_an_annotator_of_any_name_can_be_paused(site: Site, name: str) -> None:
    campaign = site.campaign(annotators=[name])
    path = f"/campaigns/{campaign}/annotators"
    assert site.call("PATCH", path, json={"available": False}, params={"name": name})["annotator"] == name
    (row,) = site.call("GET", path)
    assert row["annotator"] == name and row["available"] is False


def test_a_blind_pair_does_not_say_which_model_wrote_it(site: Site) -> None:
    given = {"name": "models", "answer_type": "comparisons", "max_votes": 2}
    campaign = site.call("POST", "/campaigns", 201, json=given)["id"]
    items = [
        {"item": "q1", "payload": {"left": {"item": "gpt", "text": "yes"}, "right": {"item": "llama", "text": "no"}}},
        {"item": "q2", "payload": {"left": "tea", "right": "milk"}},
    ]
    site.call("POST", f"/campaigns/{campaign}/items", 201, json=items)
    site.call("POST", f"/campaigns/{campaign}/annotators", 201, json=[{"annotator": "ann"}])
    headers = site.token("annotator", campaign, annotator="ann")
    found = site.call("GET", f"/campaigns/{campaign}/next?n=2", headers=headers)["questions"]
    assert {one["item"]: one["payload"] for one in found} == {
        "q1": {"left": {"text": "yes"}, "right": {"text": "no"}}, "q2": {"left": "tea", "right": "milk"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "http://example.org/1.jpg", "FTP://x/y", "javascript:alert(1)"]
)
def test_an_address_that_no_page_loads_is_refused(site: Site, address: str) -> None:
    campaign = site.campaign(n_items=0)
    path = f"/campaigns/{campaign}/items"
    assert (
        "browsers do not load"
        in site.call("POST", path, 422, json=[{"item": 1, "payload": {"image": address}}])["detail"]
    )
    for good in ("https://example.org/1.jpg", "data:image/png;base64,AA==", "/static/icon.svg"):
        site.call("POST", path, 201, json=[{"item": 1, "payload": {"image": good}}])


def test_a_payload_has_a_size(site: Site) -> None:
    campaign = site.campaign(n_items=0)
    body = [{"item": "a"}, {"item": "b", "payload": {"text": "x" * 1_000_001}}]
    assert "at most 1,000,000" in site.call("POST", f"/campaigns/{campaign}/items", 413, json=body)["detail"]
    assert site.call("GET", f"/campaigns/{campaign}/items")["items"] == []


def test_json_of_too_many_values_is_refused_before_it_is_read(site: Site) -> None:
    campaign = site.campaign(n_items=0)
    body = b"[" + b'{"item":1,"payload":{"x":[' + b"0," * MOST_VALUES + b"0]}}]"
    headers = {**site.admin, "content-type": "application/json"}
    answer = site.client.post(f"/api/v1/campaigns/{campaign}/items", content=body, headers=headers)
    assert answer.status_code == 413 and f"{MOST_VALUES:,} values" in json.loads(answer.content)["detail"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'[{"item":1},"p9",{"item":2}]', "1: expected an object"), (b'[{"item":1},]', "1: this is no JSON: trailing"),
        (b'[{"item":1} {"item":2}]', "1: this is no JSON"), (b'[{"item":1}', "does not end"), (b"", "does not begin"),
        (b'{"item":1}', "does not begin"), (b'[{"item":1}]x', "something follows"), (b'[{"item":1]}', "0: this is no"),
        (b'["' + b'\\"' * 1_000_000, "does not end"), (b'[{"item":"' + b"x" * 9_000_000 + b'"}]', "bytes for an item"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_items_is_said(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "upload.json").write_bytes(content)
    with pytest.raises(CrowdwiseError, match=why):
        list(read_upload(tmp_path / "upload.json"))


def test_json_is_read_item_by_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads all of it in one call holds up the requests of everybody else."""
    longest: list[int] = []

    class Noted:
        @staticmethod
        def validate_json(text: bytes) -> Any:
            longest.append(len(text))
            return whole.validate_json(text)

    whole = routes_uploads._ITEMS
    monkeypatch.setattr(routes_uploads, "_ITEMS", Noted)
    given = [{"item": i, "payload": {"text": '[{"\\' * 3, "n": [1, [2]]}, "gold": "a"} for i in range(3_000)]
    (tmp_path / "upload.json").write_text(json.dumps(given, indent=1))
    found = list(read_upload(tmp_path / "upload.json"))
    assert [(one.item, one.payload, one.gold) for one in found] == [(i, given[0]["payload"], "a") for i in range(3_000)]
    assert max(longest) < 500


@pytest.mark.parametrize("address", ["192.0.0.8", "192.88.99.1", "3fff::1", "2001:db8::1", "64:ff9b::a00:1"])
def test_addresses_of_protocols_and_examples_are_inside(address: str) -> None:
    assert is_inside(address) and not is_inside("93.184.216.34") and not is_inside("2606:2800:220:1::1")
