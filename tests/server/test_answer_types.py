"""Every answer type of the server: asked, answered by one annotator and by several, exported and read back;
second looks, by which nobody is measured."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from server_site import Site

TEXT = "Anna met Bob in Rome"
OPTIONS = [{"item": name, "text": f"an answer of {name}"} for name in ("m1", "m2", "m3")]
TYPES: dict[str, tuple[dict[str, Any], dict[str, Any], list[Any]]] = {
    "votes": ({"classes": ["a", "b"]}, {"text": TEXT}, ["a", "b"]),
    "ordinal": ({"classes": ["low", "mid", "high"]}, {"text": TEXT}, ["low", "high"]),
    "ratings": ({"scale": {"min": 1, "max": 5}}, {"text": TEXT}, [4, 2]),
    "label-sets": ({"classes": ["a", "b"]}, {"text": TEXT}, [["a", "b"], []]),
    "comparisons": ({"ties": True}, {"left": {"item": "m1", "text": "x"}, "right": {"item": "m2"}}, ["left", "tie"]),
    "rankings": ({}, {"options": OPTIONS}, [["m2", "m1", "m3"], [0, 1, 2]]),
    "texts": ({}, {"text": TEXT}, ["Anna and Bob", "Anna or Bob"]),
    "tags": ({"classes": ["O", "B-P", "I-P"]}, {"text": TEXT}, [["B-P", "O", "B-P", "O", "O"], ["O"] * 5]),
    "spans": ({"classes": ["person"]}, {"text": TEXT}, [[{"start": 0, "end": 4, "label": "person"}], []]),
}
"""Type -> settings, what is shown of an item, and two answers."""


def make(site: Site, kind: str, annotators: tuple[str, ...] = ("ann", "bob"), n: int = 4) -> str:
    """A campaign with answers of each annotator on each item; its id."""
    settings, payload, answers = TYPES[kind]
    given = {"name": kind, "answer_type": kind, **settings}
    campaign: str = site.call("POST", "/campaigns", 201, json=given)["id"]
    items = [{"item": f"p{i}", "payload": payload} for i in range(n)]
    site.call("POST", f"/campaigns/{campaign}/items", 201, json=items)
    site.call("POST", f"/campaigns/{campaign}/annotators", 201, json=[{"annotator": name} for name in annotators])
    site.votes(campaign, *((f"p{i}", who, answers[i % 2]) for i in range(n) for who in annotators))
    return campaign


def test_questions_that_are_out_may_take_the_rest_of_the_budget(site: Site) -> None:
    campaign = site.campaign(n_items=3, name="marks", answer_type="ratings", classes=None, budget=2)
    assert len(site.call("GET", f"/campaigns/{campaign}/next?annotator=ann&n=2")["questions"]) == 2
    none = site.call("GET", f"/campaigns/{campaign}/next?annotator=bob")
    assert none["questions"] == [] and none["state"] == "waiting"
    assert none["why_none"] == "2 questions are out and may take the rest of the budget"


@pytest.mark.filterwarnings("ignore:The items fall into")
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("site", "annotators"), [("sqlite", ("ann",)), ("postgresql", ("ann", "bob", "cid"))], indirect=["site"]
)
def test_every_type_has_results_and_exports(site: Site, kind: str, annotators: tuple[str, ...], tmp_path: Path) -> None:
    """Also of a single annotator; the votes are read back by the library, and give the same results."""
    campaign = make(site, kind, annotators)
    status = site.call("GET", f"/campaigns/{campaign}/status")
    assert status["votes"] == 4 * len(annotators)
    found = site.call("GET", f"/campaigns/{campaign}/consensus")["items"]
    assert len(found) >= 2
    if kind in ("ordinal", "ratings", "label-sets") and len(annotators) == 1:  # nothing says how sure it is
        assert all(row.get("probability", row.get("low")) is None for row in found)
    assert site.call("GET", f"/campaigns/{campaign}/reliability")
    site.service._note(site.service.view(campaign))  # what the follower does now and then
    assert [point["votes"] for point in site.call("GET", f"/campaigns/{campaign}/history")][-1] == status["votes"]
    report = site.client.get(f"/api/v1/campaigns/{campaign}/report", headers=site.admin)
    if kind == "tags" and len(annotators) == 1:
        assert "needs the tags of two annotators" in report.text
    else:
        assert report.status_code == 200 and "<html" in report.text
    for format_, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet), ("jsonl", pl.read_ndjson)):
        for what in ("votes", "consensus", "reliability"):
            address = f"/api/v1/campaigns/{campaign}/{what}?format={format_}"
            answer = site.client.get(address, headers=site.admin)
            assert answer.status_code == 200 and answer.headers["content-type"].startswith(
                ("text/csv", "application/")
            ), (what, format_, answer.text)
            assert len(read(io.BytesIO(answer.content)))
            if what == "votes":
                (tmp_path / f"votes.{format_}").write_bytes(answer.content)
        if len(annotators) > 1:
            again = cw.aggregate(tmp_path / f"votes.{format_}", answer_type=kind)
            assert again.annotators.tolist() == list(annotators)


def test_a_campaign_ends_where_nobody_is_left_to_ask(site: Site) -> None:
    """Items lack answers, and all annotators have given or skipped theirs: they are told that it is over."""
    campaign = make(site, "ratings", ("ann", "bob"), n=2)  # each item is to get three
    api = f"/campaigns/{campaign}"
    said = site.call("GET", f"{api}/status")["stop"]
    assert said == "2 items are not finished, and everybody available has voted or skipped"
    site.call("POST", f"{api}/annotators", 201, json=[{"annotator": "eva"}])
    assert site.call("GET", f"{api}/status")["state"] == "running"
    site.call("PATCH", f"{api}/annotators/eva", json={"max_votes": 1})
    site.votes(campaign, ("p0", "eva", 3))
    status = site.call("GET", f"{api}/status")
    assert (status["state"], status["stop"]) == (
        "exhausted", "1 item is not finished, and everybody available has voted or skipped, or may give no more votes",
    )  # fmt: skip
    site.call("PATCH", f"{api}/annotators/eva", json={"max_votes": 9})
    assert [one["item"] for one in site.call("GET", f"{api}/next?annotator=eva&n=5")["questions"]] == ["p1"]
    assert site.call("GET", f"{api}/status")["state"] == "waiting"
    site.call("POST", f"{api}/skip", json={"annotator": "eva", "item": "p1"})
    assert site.call("GET", f"{api}/status")["state"] == "exhausted"


def test_pairs_are_recorded_as_they_were_shown(site: Site) -> None:
    """The side that an annotator saw first is the left one, so that a habit to take the first can be seen."""
    campaign = make(site, "comparisons", ("ann",), n=1)
    more = [{"item": f"q{i}", "payload": TYPES["comparisons"][1]} for i in range(12)]
    site.call("POST", f"/campaigns/{campaign}/items", 201, json=more)
    browser, headers = site.browser(campaign, "eva")
    for _ in range(12):
        (one,) = browser.get(f"/api/v1/campaigns/{campaign}/next", headers=headers).json()["questions"]
        vote = {"item": one["item"], "label": one["first"], "ticket": one["ticket"]}  # always the first
        assert browser.post(f"/api/v1/campaigns/{campaign}/votes", headers=headers, json=vote).status_code == 201
    text = site.client.get(f"/api/v1/campaigns/{campaign}/votes?format=csv", headers=site.admin).text
    rows = pl.read_csv(io.StringIO(text)).filter(pl.col("annotator") == "eva")
    assert set(rows["outcome"]) == {"left"} and set(rows["left"]) == {"m1", "m2"}


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        ("rankings", ["m1", "m2"], "needs each of"), ("rankings", [0, 0, 1], "needs each of"),
        ("texts", "  ", "a text of at most"), ("tags", ["O"], "has 5 tokens"), ("tags", ["X"] * 5, "the classes are"),
        ("spans", [{"start": 0, "end": 99, "label": "person"}], "ends after"),
        ("spans", [{"start": 4, "end": 4, "label": "person"}], "start is before end"), ("spans", "person", "stretches"),
    ],
)  # fmt: skip
def test_answers_that_do_not_fit_are_refused(site: Site, kind: str, answer: Any, said: str) -> None:
    campaign = make(site, kind, ("ann",), n=1)
    site.call("POST", f"/campaigns/{campaign}/annotators", 201, json=[{"annotator": "eva"}])
    found = site.votes(campaign, ("p0", "eva", answer), code=422)
    assert said in found["detail"], found


@pytest.mark.parametrize(
    ("kind", "payload"),
    [("comparisons", {}), ("rankings", {"options": ["a"]}), ("tags", {}), ("spans", {"tokens": ["a"]})],
)
def test_items_without_what_their_question_needs_are_refused(site: Site, kind: str, payload: dict[str, Any]) -> None:
    campaign = make(site, kind, ("ann",), n=1)
    found = site.call("POST", f"/campaigns/{campaign}/items", 422, json=[{"item": "new", "payload": payload}])
    assert "its payload needs" in found["detail"]


def test_nobody_is_measured_by_second_looks(site: Site) -> None:
    """The labels most in doubt are not a random sample: annotators stay as they were measured, and no item opens."""
    rng = np.random.default_rng(0)
    campaign = site.campaign(120, [f"w{m}" for m in range(5)], classes=["0", "1"])
    truth = rng.integers(2, size=120)
    right = rng.random((120, 5)) < 0.85
    said = np.where(right, truth[:, None], 1 - truth[:, None])
    site.votes(campaign, *((f"p{n}", f"w{m}", str(said[n, m])) for n in range(120) for m in range(5)))
    before = site.call("GET", f"/campaigns/{campaign}/reliability")
    status = site.call("GET", f"/campaigns/{campaign}/status")
    doubtful = site.call("GET", f"/campaigns/{campaign}/review?limit=10")
    for row in doubtful:  # the crowd was wrong on all of them
        other = "1" if row["label"] == "0" else "0"
        found = site.call("POST", f"/campaigns/{campaign}/reviews", 201, json={"item": row["item"], "answer": other})
        assert found["answer"] == other and found["before"] is None
    assert site.call("GET", f"/campaigns/{campaign}/reliability") == before
    now = site.call("GET", f"/campaigns/{campaign}/status")
    assert (now["accuracy"], now["finished"]) == (status["accuracy"], status["finished"])
    rows = {row["item"]: row for row in site.call("GET", f"/campaigns/{campaign}/consensus?limit=200")["items"]}
    assert all(rows[row["item"]]["label"] != row["label"] and rows[row["item"]]["settled"] for row in doubtful)
    assert sum(row["settled"] for row in rows.values()) == 10
    settled = {row["item"] for row in doubtful}
    assert settled.isdisjoint(row["item"] for row in site.call("GET", f"/campaigns/{campaign}/review"))
    first = doubtful[0]["item"]
    site.call("POST", f"/campaigns/{campaign}/reviews", 201, json={"item": first, "answer": None, "note": "unclear"})
    history = site.call("GET", f"/campaigns/{campaign}/reviews?item={first}")
    assert [(entry["answer"], entry["note"]) for entry in history] == [
        (None, "unclear"), (history[1]["answer"], ""),
    ] and history[0]["before"] == history[1]["answer"]  # fmt: skip
    assert len(site.call("GET", f"/campaigns/{campaign}/reviews")) == 11


@pytest.mark.parametrize(("kind", "answer"), [("ratings", 5), ("label-sets", ["b"]), ("ordinal", "mid")])
def test_second_looks_at_other_answers(site: Site, kind: str, answer: Any) -> None:
    campaign = make(site, kind)
    site.call("POST", f"/campaigns/{campaign}/reviews", 201, json={"item": "p0", "answer": answer})
    row = next(row for row in site.call("GET", f"/campaigns/{campaign}/consensus")["items"] if row["item"] == "p0")
    column = {"ratings": "value", "label-sets": "labels", "ordinal": "label"}[kind]
    assert row[column] == (answer[0] if isinstance(answer, list) else answer) and row["settled"]


def test_pairs_and_gold_have_no_second_look(site: Site) -> None:
    pairs = make(site, "comparisons", ("ann",))
    found = site.call("POST", f"/campaigns/{pairs}/reviews", 422, json={"item": "p0", "answer": "left"})
    assert "no answer of their own" in found["detail"]
    campaign = site.campaign(1)
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["p0"], "gold": "wren"})
    found = site.call("POST", f"/campaigns/{campaign}/reviews", 422, json={"item": "p0", "answer": "robin"})
    assert "is known (gold)" in found["detail"]


@pytest.mark.parametrize("path", ["/api/v1/campaigns/{}/report", "/watch/none", "/api/v1/campaigns/{}/votes?after=x"])
def test_errors_are_pages_where_a_person_opened_the_address(site: Site, path: str) -> None:
    campaign = site.campaign(1)
    browser = {**site.admin, "accept": "text/html,*/*", "sec-fetch-dest": "document"}
    answer = site.client.get(path.format(campaign), headers=browser)
    assert answer.status_code >= 400 and "<h1>" in answer.text and "content-security-policy" in answer.headers
    assert site.client.get(path.format(campaign), headers=site.admin).headers["content-type"].endswith("json")
