"""What a lead looks at: status, curve, flags, review, pace, agreement, report, events."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa

import crowdwise as cw
from crowdwise.server import routes_events
from crowdwise.store import campaign_rows
from crowdwise.store.store_tables import points
from crowdwise.trust.agreement import agreement
from server_site import Site

CROWD = cw.simulate.hammer_spammer(160, n_annotators=8, share=0.75, votes_per_item=5, random_state=0)


@pytest.fixture(scope="module")
def labelled(site: Site) -> str:
    """A campaign with the votes of a crowd with spammers."""
    votes = CROWD.votes
    campaign = site.campaign(160, [f"w{m}" for m in range(8)], classes=["0", "1"], gold_rate=0.1)
    rows = [
        {"item": f"p{n}", "annotator": f"w{m}", "label": str(k), "seconds": 1.0 if m == 3 else 9.0}
        for n, m, k in zip(votes.item.tolist(), votes.annotator.tolist(), votes.label.tolist(), strict=True)
    ]  # fmt: skip
    site.call("POST", f"/campaigns/{campaign}/votes", 201, json={"votes": rows})
    return campaign


def test_the_consensus_is_that_of_a_campaign_folder(site: Site, labelled: str, tmp_path: Any) -> None:
    votes = CROWD.votes
    folder = cw.Campaign.create(
        tmp_path / "c", cw.OneCoin(), classes=["0", "1"], items=[f"p{n}" for n in range(160)],
        annotators=[f"w{m}" for m in range(8)],
    )  # fmt: skip
    codes = zip(votes.item.tolist(), votes.annotator.tolist(), votes.label.tolist(), strict=True)
    folder.add([(f"p{n}", f"w{m}", str(k)) for n, m, k in codes])
    wanted = folder.consensus().to_frame("items").to_dicts()
    found = site.call("GET", f"/campaigns/{labelled}/consensus")["items"]
    assert sorted(found, key=lambda row: row["item"]) == sorted(wanted, key=lambda row: row["item"])
    status = site.call("GET", f"/campaigns/{labelled}/status")
    own = folder.status()
    assert {name: status[name] for name in own} == own


def test_pages_filters_and_downloads_of_the_consensus(site: Site, labelled: str) -> None:
    path = f"/campaigns/{labelled}/consensus"
    every = site.call("GET", path)
    assert every["total"] == 160 and every["next"] is None
    pages = [site.call("GET", f"{path}?offset={i}&limit=60") for i in (0, 60, 120)]
    assert [row for page in pages for row in page["items"]] == every["items"]
    assert [page["next"] for page in pages] == [60, 120, None]
    sure = site.call("GET", f"{path}?min_probability=0.99&label=1")["items"]
    assert sure == [row for row in every["items"] if row["probability"] >= 0.99 and row["label"] == "1"]
    csv = site.client.get(f"/api/v1{path}?format=csv", headers=site.admin)
    assert csv.headers["content-type"].startswith("text/csv") and csv.text.count("\n") == 161
    import io

    import polars as pl

    parquet = site.client.get(f"/api/v1{path}?format=parquet", headers=site.admin)
    assert pl.read_parquet(io.BytesIO(parquet.content))["item"].to_list() == [row["item"] for row in every["items"]]


def test_what_changed_since_a_cursor(site: Site) -> None:
    campaign = site.campaign()
    site.votes(campaign, ("p0", "ann", "wren"), ("p1", "ann", "wren"))
    seen = site.call("GET", f"/campaigns/{campaign}/consensus")["seq"]
    assert site.call("GET", f"/campaigns/{campaign}/consensus?since={seen}")["items"] == []
    site.votes(campaign, ("p1", "bob", "wren"))
    rows = site.call("GET", f"/campaigns/{campaign}/consensus?since={seen}")["items"]
    assert [row["item"] for row in rows] == ["p1"]


def test_spammers_and_the_quick_are_flagged(site: Site, labelled: str) -> None:
    found = {row["annotator"]: row for row in site.call("GET", f"/campaigns/{labelled}/flags")}
    kinds = {name: {flag["kind"] for flag in row["flags"]} - {"few-votes"} for name, row in found.items()}
    spammers = {f"w{m}" for m, spams in enumerate(CROWD.parameters["spammers"].tolist()) if spams}
    assert {name for name, flags in kinds.items() if flags - {"too-fast"}} == spammers
    assert {name for name, flags in kinds.items() if "too-fast" in flags} == {"w3"}


def test_items_to_review_come_with_their_votes(site: Site, labelled: str) -> None:
    found = site.call("GET", f"/campaigns/{labelled}/review?limit=5")
    assert len(found) == 5 and all(len(row["given"]) == row["votes"] == 5 for row in found)
    assert found[0]["review"] == max(row["review"] for row in found)
    first = found[0]["item"]
    site.call("PATCH", f"/campaigns/{labelled}/items", json={"items": [first], "gold": found[0]["label"]})
    rows = site.call("GET", f"/campaigns/{labelled}/consensus")["items"]
    assert next(row["probability"] for row in rows if row["item"] == first) == 1.0
    assert first not in [row["item"] for row in site.call("GET", f"/campaigns/{labelled}/review?limit=5")]


def test_agreement_report_and_pace(site: Site, labelled: str) -> None:
    rows = site.call("GET", f"/campaigns/{labelled}/agreement")
    alpha = next(row for row in rows if row["coefficient"] == "krippendorff alpha")
    assert alpha["value"] == pytest.approx(agreement(CROWD.votes)["krippendorff alpha"].value)
    page = site.client.get(f"/api/v1/campaigns/{labelled}/report", headers=site.admin)
    assert page.status_code == 200 and page.text.startswith("<!doctype html>")
    assert (
        "sandbox" in page.headers["content-security-policy"]
        and "allow-same-origin" not in page.headers["content-security-policy"]
    )
    pace = site.call("GET", f"/campaigns/{labelled}/throughput")
    assert pace["hour"] == sum(pace["minutes"]) == 800 and pace["out"] == 0


def test_a_vote_that_is_taken_back_is_counted_once(site: Site) -> None:
    birds = site.campaign()
    site.votes(birds, ("p0", "ann", "wren"), ("p1", "ann", "wren"))
    site.call("POST", f"/campaigns/{birds}/undo", json={"annotator": "ann"})
    pace = site.call("GET", f"/campaigns/{birds}/throughput")
    assert pace["minute"] == pace["hour"] == sum(pace["minutes"]) == pace["annotators"]["ann"] == 2


def test_gold_does_not_vouch_for_itself(site: Site) -> None:
    """The labels of gold items are the gold: the report, the status and the curve state accuracy without them."""
    campaign = site.campaign(n_items=0, annotators=["ann"], target=0.9, unknown="add")
    items = [{"item": "p0", "gold": "wren"}, {"item": "p1", "gold": "robin"}]
    site.call("POST", f"/campaigns/{campaign}/items", 201, json=items)
    site.votes(campaign, ("p0", "ann", "robin"), ("p1", "ann", "wren"))
    assert [row["label"] for row in site.call("GET", f"/campaigns/{campaign}/consensus")["items"]] == ["wren", "robin"]
    text = site.client.get(f"/api/v1/campaigns/{campaign}/report", headers=site.admin).text
    assert "2 gold items by the votes alone" in text and "100.0 %" not in text
    status = site.call("GET", f"/campaigns/{campaign}/status")
    assert not status["accuracy_known"] and status["state"] == "waiting"


def test_the_curve_grows_and_skills_have_a_history(site: Site) -> None:
    campaign = site.campaign()
    site.votes(campaign, ("p0", "ann", "wren"), ("p0", "bob", "wren"))
    until = time.monotonic() + 60
    while not (found := site.call("GET", f"/campaigns/{campaign}/history")) and time.monotonic() < until:
        time.sleep(0.05)
    assert (found[-1]["votes"], found[-1]["spent"], found[-1]["state"]) == (2, 2.0, "running")
    history = site.call("GET", f"/campaigns/{campaign}/annotators/ann/history")
    assert history[0]["votes"] == 1 and 0 <= history[0]["accuracy_low"] <= history[0]["accuracy"]


def test_a_long_curve_is_thinned(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = site.campaign()
    monkeypatch.setattr(campaign_rows, "MOST", 5)
    empty = dict.fromkeys(("accuracy", "low", "high"))
    for seq in range(1, 101):
        made = {"campaign": campaign, "seq": seq, "time": float(seq), "votes": seq, "spent": 0.0, "state": "running"}
        made |= {**empty, "skills": "[]" if seq in (2, 50) else None}
        site.service.write(lambda conn, made=made: campaign_rows.add_point(conn, made, {}), campaign)
    query = sa.select(points.c.seq).where(points.c.campaign == campaign).order_by(points.c.seq)
    found = site.service.read(lambda conn: conn.execute(query).scalars().all())
    assert len(found) <= 22 and found[0] == 1 and found[-1] == 100 and {2, 50} <= set(found)
    assert max(b - a for a, b in pairwise(found)) <= 24  # and not all of them are late ones
    assert len(site.call("GET", f"/campaigns/{campaign}/history")) <= 6


def test_events_are_sent_in_their_order(site: Site) -> None:
    campaign = site.campaign()
    site.votes(campaign, ("p0", "ann", "wren"))
    site.call("PATCH", f"/campaigns/{campaign}", json={"budget": 9})
    site.call("PUT", f"/campaigns/{campaign}/state", json={"state": "paused"})
    path = f"/api/v1/campaigns/{campaign}/events?after=0&seconds=0.1"
    answer = site.client.get(path, headers=site.admin)
    assert answer.headers["content-type"].startswith("text/event-stream")
    kinds = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert [kind for kind in kinds if kind != "standing"] == ["items", "annotators", "votes", "settings", "state"]
    ids = [line.removeprefix("id: ") for line in answer.text.splitlines() if line.startswith("id: ")]
    again = site.client.get(path, headers={**site.admin, "last-event-id": ids[-2]})
    assert again.text.count("event: ") == 1
    data = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert data[kinds.index("settings")]["budget"] == [None, 9]


def test_streams_of_one_campaign_share_their_reads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign, calls, read = site.campaign(), list[int](), routes_events.read_events

    def noted(conn: Any, **more: Any) -> Any:
        calls.append(1)
        return read(conn, **more)

    monkeypatch.setattr(routes_events, "read_events", noted)
    path = f"/api/v1/campaigns/{campaign}/events?after=0&seconds=1.6"
    threads = [threading.Thread(target=site.client.get, args=(path,), kwargs={"headers": site.admin}) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(calls) <= 16  # alone each of the eight would look four or five times


def test_a_paused_campaign_asks_nothing_and_a_closed_one_takes_nothing(site: Site) -> None:
    campaign = site.campaign()
    site.call("PUT", f"/campaigns/{campaign}/state", json={"state": "paused"})
    none = site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")
    assert (none["questions"], none["state"], none["why_none"]) == ([], "paused", "the campaign is paused")
    site.votes(campaign, ("p0", "ann", "wren"))
    site.call("PUT", f"/campaigns/{campaign}/state", json={"state": "closed"})
    assert "is closed: votes are not taken" in site.votes(campaign, ("p1", "ann", "wren"), code=409)["detail"]
