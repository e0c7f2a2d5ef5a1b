"""Several questions about each item: asked on one screen, stored all or none, watched, downloaded, read back."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from conftest import chromium
from crowdwise.cli.main import app
from server_browser import SIZES, Tab, has_text, website
from server_site import Site

ASKED = [
    {"question": "sharpness", "answer_type": "ratings", "scale": {"min": 1, "max": 5}, "instructions": "How sharp?"},
    {"question": "seen", "answer_type": "label-sets", "classes": ["ring", "nest"]},
]
OTHERS = {"sharpness": 4, "seen": ["nest"]}


def made(site: Site, n: int = 3, **settings: Any) -> str:
    return site.campaign(n, question="species", questions=ASKED, **settings)


def counts(site: Site, campaign: str) -> list[int]:
    return [site.call("GET", f"/campaigns/{one}/status")["votes"] for one in family(campaign)]


def family(campaign: str) -> list[str]:
    return [campaign, *(f"{campaign}.{one['question']}" for one in ASKED)]


def test_answers_to_all_questions_are_stored_all_or_none(site: Site) -> None:
    campaign = made(site)
    api = f"/api/v1/campaigns/{campaign}"
    ann, ann_headers = site.browser(campaign)
    (question,) = ann.get(f"{api}/next").json()["questions"]
    vote = {"item": question["item"], "label": "wren", "ticket": question["ticket"], "id": "v1"}

    def sent(code: int, **others: Any) -> str:
        found = ann.post(f"{api}/votes", json=vote | {"others": others}, headers=ann_headers)
        assert found.status_code == code, found.text
        return found.text

    assert "without an answer, 'seen'" in sent(422, sharpness=3)
    assert "no question 'colour'" in sent(422, **OTHERS, colour="red")
    assert "from 1 to 5" in sent(422, **OTHERS | {"sharpness": 9})
    assert counts(site, campaign) == [0, 0, 0]
    assert '"added":1' in sent(201, **OTHERS)
    assert '"repeated":1' in sent(201, **OTHERS)
    sent(409, **OTHERS | {"sharpness": 5})  # the same id with another answer
    assert counts(site, campaign) == [1, 1, 1]
    spent = [site.call("GET", f"/campaigns/{one}/status")["spent"] for one in family(campaign)]
    assert spent == [1.0, 0.0, 0.0]  # one price for all answers about an item
    assert ann.post(f"{api}/undo", json={}, headers=ann_headers).status_code == 200
    assert counts(site, campaign) == [0, 0, 0]


def test_the_items_people_and_end_of_the_questions_are_those_of_the_campaign(site: Site) -> None:
    campaign = made(site)
    _, sharpness, seen = family(campaign)
    site.call(
        "POST", f"/campaigns/{campaign}/items", 201, json=[{"item": "p1", "payload": {"text": "new"}}, {"item": "z"}]
    )
    found = site.call("GET", f"/campaigns/{sharpness}/items")["items"]
    assert [row["item"] for row in found] == ["p0", "p1", "p2", "z"] and found[1]["payload"] == {"text": "new"}
    for path, body in (("items", [{"item": "q"}]), ("annotators", [{"annotator": "eve"}])):
        assert f"at {campaign}" in site.call("POST", f"/campaigns/{seen}/{path}", 422, json=body)["detail"]
    assert campaign in site.call("GET", f"/campaigns/{seen}/next?annotator=ann", 422)["detail"]
    lead, reader = (site.token(role, campaign) for role in ("lead", "reader"))
    assert site.call("GET", f"/campaigns/{seen}/status", headers=lead)["items"] == 4
    assert len(site.call("GET", "/campaigns", headers=reader)) == 3
    other = site.token("reader", site.campaign(1))
    site.call("GET", f"/campaigns/{seen}/status", 403, headers=other)
    site.call("PATCH", f"/campaigns/{campaign}/annotators/ann", json={"available": False})
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["p2"], "closed": True})
    people = site.call("GET", f"/campaigns/{seen}/annotators", headers=lead)
    assert [one["available"] for one in people] == [False, True]
    first, further = (site.call("GET", f"/campaigns/{one}/status") for one in (campaign, seen))
    shared = ("asked", "finished", "closed", "state", "stop", "advice")
    assert [first[name] for name in shared] == [further[name] for name in shared]
    site.call("PUT", f"/campaigns/{campaign}/state", json={"state": "closed"})
    site.votes(seen, ("p0", "ann", ["ring"]), code=409)
    site.call("DELETE", f"/campaigns/{seen}?confirm=birds", 422)
    site.call("DELETE", f"/campaigns/{campaign}?confirm=birds")
    site.call("GET", f"/campaigns/{seen}", 404)


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_a_further_question_cannot_change_or_hold_up_the_campaign(site: Site) -> None:
    campaign = made(site)
    _, sharpness, seen = family(campaign)
    for method, path, body in (
        ("PUT", "state", {"state": "closed"}),
        ("PATCH", "", {"budget": 3}),
        ("PATCH", "", {"feedback": True}),
        ("PATCH", "items", {"items": ["p0"], "closed": True}),
        ("PATCH", "items", {"items": ["p0"], "priority": 2}),
        ("PATCH", "annotators/ann", {"available": False}),
        ("POST", "invitations", {"annotator": "ann"}),
        ("POST", "signup", {}),
        ("POST", "skip", {"item": "p0", "annotator": "ann"}),
        ("POST", "release", {"items": ["p0"]}),
    ):
        site.call(method, f"/campaigns/{seen}/{path}".rstrip("/"), 422, json=body)
    for role in ("lead", "reader", "annotator"):
        given = {"role": role, "name": "x", "campaign": seen, "annotator": "ann"}
        assert campaign in site.call("POST", "/tokens", 422, json=given)["detail"]
    assert site.call("GET", f"/campaigns/{campaign}")["state"] == "open"
    site.call("PATCH", f"/campaigns/{sharpness}", json={"instructions": "1 is blurred."})
    page = site.client.get(f"/label/{seen}?annotator=ann", headers=site.admin)
    assert page.status_code == 200 and str(page.url).endswith(f"/label/{campaign}?annotator=ann")
    ann, headers = site.browser(campaign)
    assert ann.get(f"/api/v1/campaigns/{seen}/votes", headers=headers).status_code == 403


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_gold_of_a_further_question_is_held_out(site: Site) -> None:
    """The one annotator has the first question right and the further one wrong."""
    sex = {"question": "sex", "classes": ["f", "m"]}
    campaign = site.campaign(20, ["ann"], question="species", questions=[sex])
    names = [f"p{i}" for i in range(20)]
    for one, gold in ((campaign, "wren"), (f"{campaign}.sex", "f")):
        site.call("PATCH", f"/campaigns/{one}/items", json={"items": names, "gold": gold})
    votes = [{"item": name, "annotator": "ann", "label": "wren", "others": {"sex": "m"}} for name in names]
    site.call("POST", f"/campaigns/{campaign}/votes", 201, json={"votes": votes})
    (first,), (further,) = (site.call("GET", f"/campaigns/{one}/reliability") for one in (campaign, f"{campaign}.sex"))
    assert first["accuracy"] > 0.9 and further["accuracy"] < 0.1


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"questions": ASKED}, "question=''"),
        ({"question": "seen", "questions": ASKED}, "question='seen'"),
        ({"question": "item", "questions": ASKED}, "question='item'"),
        ({"question": "Annotator", "questions": ASKED}, "question='Annotator'"),
        ({"question": "Seen", "questions": ASKED}, "question='Seen'"),
        (
            {"question": "a", "questions": [{"question": "b", "answer_type": "label-sets", "classes": ["x|y", "z"]}]},
            "|",
        ),
        (
            {"question": "a", "questions": [{"question": "b", "answer_type": "spans", "classes": ["x"]}]},
            "is asked alone",
        ),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(site: Site, given: dict[str, Any], said: str) -> None:
    assert said in site.call("POST", "/campaigns", 422, json={"name": "x", "classes": ["a", "b"], **given})["detail"]


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_one_question_takes_no_others(site: Site) -> None:
    vote = {"item": "p0", "annotator": "ann", "label": "wren", "others": {"seen": ["ring"]}}
    assert "no question 'seen'" in site.call("POST", f"/campaigns/{site.campaign(1)}/votes", 422, json=vote)["detail"]


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_answers_are_read_back_by_the_command_line(site: Site, tmp_path: Path) -> None:
    campaign = made(site, 4, unknown="add")
    said = [("wren" if i % 2 else "robin", OTHERS | {"sharpness": 1 + i}) for i in range(4)]
    votes = [
        {"item": f"p{i}", "annotator": who, "label": label, "others": others}
        for i, (label, others) in enumerate(said)
        for who in ("ann", "bob", "cid")
    ]
    site.call("POST", f"/campaigns/{campaign}/votes", 201, json={"votes": votes})
    answer = site.client.get(f"/api/v1/campaigns/{campaign}/votes?format=jsonl&together=true", headers=site.admin)
    assert answer.status_code == 200
    path = tmp_path / "answers.jsonl"
    path.write_bytes(answer.content)
    assert json.loads(path.read_text().splitlines()[0])["annotators"] == ["ann", "bob", "cid"]
    firsts = {}
    for question, column in (("species", "label"), ("sharpness", "value"), ("seen", "labels")):
        out = tmp_path / f"{question}.csv"
        found = CliRunner().invoke(app, ["aggregate", str(path), "--question", question, "--out", str(out)])
        assert found.exit_code == 0, found.output
        firsts[question] = pl.read_csv(out)[column].to_list()[:2]
    assert (firsts["species"], firsts["seen"]) == (["robin", "wren"], ["nest", "nest"])
    assert firsts["sharpness"] == pytest.approx([1.0, 2.0], abs=0.2)
    alone = site.client.get(f"/api/v1/campaigns/{campaign}.sharpness/votes?format=csv", headers=site.admin)
    assert pl.read_csv(io.BytesIO(alone.content)).height == 12
    site.call("GET", f"/campaigns/{campaign}/votes?together=true", 422)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with website(tmp_path_factory.mktemp("several")) as made_:
        yield made_


def test_answers_are_given_from_python(live: Site) -> None:
    with cw.Client(str(live.client.base_url), live.secret) as client:
        birds = client.create_campaign("from Python", classes=["wren", "robin"], question="species", questions=ASKED)
        birds.add_items(["p0"], payloads={"p0": {"text": "a bird"}})
        birds.add_annotators(["ann"])
        (question,) = birds.next_for("ann")
        assert birds.vote(question, "wren", others=OTHERS)["added"] == 1
        assert counts(live, birds.id) == [1, 1, 1]
        assert [vote["label"] for vote in client.campaign("from Python: sharpness").votes()] == [4.0]


@pytest.mark.slow
def test_all_questions_are_answered_on_one_screen_by_keys(browser: Any, live: Site) -> None:
    """Made on a page, answered with keys alone, taken back, answered without a connection, watched."""
    admin = Tab(browser)
    page = admin.sign_in(live, "/new")
    page.get_by_label("Name", exact=True).fill("Birds")
    page.get_by_label("Classes, one a line").fill("wren\nrobin")
    for name, kind, classes in (("sharpness", "ratings", "1, 5"), ("seen", "label-sets", "ring, nest")):
        page.get_by_role("button", name="Ask one more question").click()
        row = page.locator("#others fieldset").last
        row.locator("[name=question]").fill(name)
        row.locator("[name=type]").select_option(kind)
        row.locator("[name=range]").fill(classes)
    page.get_by_label("The first question is called").fill("species")
    admin.check_look([SIZES[0], SIZES[3]])
    page.get_by_role("button", name="Make it").click()
    page.wait_for_url("**/campaign/*")
    campaign = page.url.rsplit("/", 1)[1]
    live.call(
        "POST",
        f"/campaigns/{campaign}/items",
        201,
        json=[{"item": f"p{i}", "payload": {"text": f"bird {i}"}} for i in range(3)],
    )
    tab = Tab(browser, 360)
    phone = tab.join(live, campaign)
    for i in range(2):
        if i == 1:
            tab.context.set_offline(True)
        phone.keyboard.press("2")
        has_text(phone, "#part1", "2 of 3: sharpness")
        if i == 0:
            tab.check_look([SIZES[0], SIZES[3]])
            tab.turn(360, "light")
            phone.keyboard.press("u")  # back to the first question
            has_text(phone, "#said", "Answered: robin.")
            phone.keyboard.press("1")
        phone.keyboard.press("4")
        phone.keyboard.press("Enter")
        has_text(phone, "#part2", "3 of 3: seen")
        phone.keyboard.press("2")
        phone.keyboard.press("Enter")
        has_text(phone, "#done", str(i + 1))
    has_text(phone, "#line", "1 answer waits in this browser")
    tab.context.set_offline(False)
    has_text(phone, "#line", "All answers are saved")
    assert counts(live, campaign) == [2, 2, 2]
    (first, second) = live.call("GET", f"/campaigns/{campaign}/votes")["votes"]
    assert (first["label"], second["label"]) == ("wren", "robin")
    assert [vote["label"] for vote in live.call("GET", f"/campaigns/{campaign}.seen/votes")["votes"]] == [["nest"]] * 2
    phone.keyboard.press("u")
    phone.wait_for_selector("text=Your answer was: robin · 4 · nest")
    has_text(phone, "#done", "1")
    assert counts(live, campaign) == [1, 1, 1]
    page.goto(f"{live.client.base_url}/watch/{campaign}")
    page.get_by_role("link", name="sharpness").click()
    page.get_by_text("Asked together with species").wait_for()
    page.locator("#results table").wait_for()
    admin.check_look([SIZES[0], SIZES[3]])
    assert [said for said in admin.said + tab.said if "409" not in said and "DISCONNECTED" not in said] == []
