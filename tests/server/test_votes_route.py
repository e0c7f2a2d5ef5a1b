"""Votes and questions over HTTP: all or none, once by their id, leased to one annotator at a time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import crowdwise as cw
from crowdwise.errors import InputError
from server_site import Site


def test_a_campaign_from_the_first_item_to_labels(site: Site) -> None:
    campaign = site.campaign(n_items=4, budget=20)
    for who in ("ann", "bob"):
        for _ in range(4):
            (question,) = site.call("GET", f"/campaigns/{campaign}/next?annotator={who}")["questions"]
            label = "wren" if question["item"] in ("p0", "p1") else "robin"
            site.votes(campaign, (question["item"], who, label))
            if site.call("GET", f"/campaigns/{campaign}/status")["state"] != "running":
                break
    found = site.call("GET", f"/campaigns/{campaign}/consensus")
    assert {row["item"]: row["label"] for row in found["items"]} == {
        "p0": "wren", "p1": "wren", "p2": "robin", "p3": "robin",
    }  # fmt: skip
    status = site.call("GET", f"/campaigns/{campaign}/status")
    assert status["spent"] == status["votes"] == found["seq"]


def test_a_vote_counts_once_by_its_id(site: Site) -> None:
    campaign = site.campaign()
    vote = {"item": "p0", "annotator": "ann", "label": "wren", "id": "v1"}
    assert site.call("POST", f"/campaigns/{campaign}/votes", 201, json=vote)["added"] == 1
    assert site.call("POST", f"/campaigns/{campaign}/votes", 201, json=vote)["repeated"] == 1
    other = site.call("POST", f"/campaigns/{campaign}/votes", 409, json={**vote, "label": "robin"})
    assert "'ann' has voted 'wren' on 'p0' before, and votes 'robin' now" in other["detail"]
    other = site.call("POST", f"/campaigns/{campaign}/votes", 409, json={**vote, "item": "p1"})
    assert "The vote v1 is there with another content" in other["detail"]
    again = site.call("POST", f"/campaigns/{campaign}/votes", 409, json={**vote, "id": "v2"})
    assert "'ann' has voted on 'p0' before" in again["detail"]
    assert site.call("GET", f"/campaigns/{campaign}")["votes"] == 1


def test_bulk_votes_are_added_all_or_none(site: Site) -> None:
    campaign = site.campaign()
    found = site.votes(campaign, ("p0", "ann", "wren"), ("p1", "ann", "hawk"), code=422)
    assert "says 'hawk', and the classes are 'wren', 'robin'" in found["detail"]
    assert "Unknown items: 'nowhere'" in site.votes(campaign, ("nowhere", "ann", "wren"), code=404)["detail"]
    assert site.call("GET", f"/campaigns/{campaign}")["votes"] == 0


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("votes", {"item": "p0", "annotator": "ann"}, "body.label: is missing"),
        ("votes", {"votes": [{"item": "p0", "label": None}]}, "body.votes.0.label: expected text, a whole number, a"),
        ("votes", {"item": "p0", "lable": "wren"}, "body.label: is missing; body.lable: is not known here"),
        ("votes", [], "body: expected an object, {...}, and found a list"),
        ("annotators", ["ann"], "body.0: expected an object, {...}, and found 'ann'"),
        ("items", ["p9"], 'such as {"item": "photo1"}: 0: expected an object, {...}, and found \'p9\''),
        ("items", [{"item": "p9", "gold": "hawk"}], "The known answer (gold) of 'p9' is 'hawk', and the classes are"),
        ("votes", "{bad", "body: this is no JSON: Expecting property name"),
    ],
)
def test_a_request_that_is_wrong_says_where_in_plain_words(site: Site, path: str, body: Any, said: str) -> None:
    campaign = site.campaign()
    raw = {"content": body, "headers": {**site.admin, "content-type": "application/json"}}
    sent = raw if isinstance(body, str) else {"json": body}
    detail = site.call("POST", f"/campaigns/{campaign}/{path}", 422, **sent)["detail"]
    assert said in detail and "Input should" not in detail and "function" not in detail


def test_classes_that_are_none_and_names_that_are_not_there(site: Site) -> None:
    for classes, said in ((["a", ""], "body.classes.1: expected text, a whole"), ("a,b", "expected a list, and found")):
        assert said in site.call("POST", "/campaigns", 422, json={"name": "n", "classes": classes})["detail"]
    campaign = site.campaign()
    found = site.call("GET", f"/campaigns/{campaign}/next?annotator=dan", 404)["detail"]
    assert found == "Unknown annotators: 'dan'. Nothing was changed. Declare them first: POST .../annotators."
    headers = {**site.admin, "content-type": "text/plain"}
    sent = site.call("POST", "/campaigns", 422, content="name=n", headers=headers)
    assert "Send JSON, with content-type: application/json" in sent["detail"]


def test_whoever_asks_again_gets_the_same_question_and_nobody_else_does(site: Site) -> None:
    campaign = site.campaign(n_items=2)
    path = f"/campaigns/{campaign}/next?annotator="
    (first,), (again,) = (site.call("GET", f"{path}ann")["questions"] for _ in range(2))
    (other,) = site.call("GET", f"{path}bob")["questions"]
    assert first["item"] == again["item"] != other["item"]
    site.call("POST", f"/campaigns/{campaign}/annotators", 201, json=[{"annotator": "cem"}])
    none = site.call("GET", f"{path}cem")
    assert none["questions"] == [] and "2 questions are out" in none["why_none"]
    assert site.call("POST", f"/campaigns/{campaign}/release", json={"annotator": "ann"}) == {"released": 1}
    assert site.call("GET", f"{path}cem")["questions"][0]["item"] == first["item"]


def test_a_lease_ends_after_its_time(site: Site) -> None:
    campaign = site.campaign(n_items=1, patience=0.3)
    (first,) = site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")["questions"]
    time.sleep(0.4)
    (other,) = site.call("GET", f"/campaigns/{campaign}/next?annotator=bob")["questions"]
    assert first["item"] == other["item"]


def test_what_is_skipped_is_not_asked_again(site: Site) -> None:
    campaign = site.campaign(n_items=2)
    (first,) = site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")["questions"]
    site.call(
        "POST", f"/campaigns/{campaign}/skip", json={"item": first["item"], "annotator": "ann", "reason": "blurred"}
    )
    (second,) = site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")["questions"]
    assert second["item"] != first["item"]


@pytest.mark.parametrize("learned", [False, True])
def test_a_vote_that_is_taken_back_does_not_count(site: Site, learned: bool) -> None:
    campaign = site.campaign(n_items=2)
    site.votes(campaign, ("p0", "ann", "wren"), ("p0", "bob", "robin"), ("p1", "ann", "wren"))
    if learned:
        site.call("GET", f"/campaigns/{campaign}/status")
    back = site.call("POST", f"/campaigns/{campaign}/undo", json={"annotator": "bob"})
    assert back == {"item": "p0", "label": "robin"}
    rows = site.call("GET", f"/campaigns/{campaign}/consensus")["items"]
    assert [row["votes"] for row in rows] == [1, 1]
    assert site.call("GET", f"/campaigns/{campaign}/status")["spent"] == 2
    site.votes(campaign, ("p0", "bob", "wren"))
    votes = site.call("GET", f"/campaigns/{campaign}/items/p0/votes")
    assert [(vote["annotator"], vote["label"]) for vote in votes] == [("ann", "wren"), ("bob", "wren")]


def test_the_budget_ends_the_questions(site: Site) -> None:
    campaign = site.campaign(n_items=5, budget=2)
    assert len(site.call("GET", f"/campaigns/{campaign}/next?annotator=ann&n=5")["questions"]) == 2
    none = site.call("GET", f"/campaigns/{campaign}/next?annotator=bob")
    assert none["questions"] == [] and "budget" in none["why_none"]


def test_an_annotator_answers_what_was_asked_in_a_browser(site: Site) -> None:
    campaign = site.campaign(n_items=3)
    browser, csrf = site.browser(campaign)
    path = f"/api/v1/campaigns/{campaign}"
    (question,) = browser.get(f"{path}/next").json()["questions"]
    assert set(question) == {"item", "payload", "expires", "first", "ticket"}
    vote = {"item": question["item"], "label": "wren", "ticket": question["ticket"]}
    assert browser.post(f"{path}/votes", json=vote).status_code == 403  # no CSRF token
    other = {**vote, "item": next(f"p{i}" for i in range(3) if f"p{i}" != question["item"])}
    assert browser.post(f"{path}/votes", json=other, headers=csrf).status_code == 403  # not asked
    assert browser.post(f"{path}/votes", json={**vote, "annotator": "bob"}, headers=csrf).status_code == 403
    assert browser.post(f"{path}/votes", json=vote, headers=csrf).json()["added"] == 1
    assert browser.get(f"{path}/progress").json() == {"done": 1, "items": 3}
    assert browser.post(f"{path}/undo", json={}, headers=csrf).json()["item"] == question["item"]


def test_votes_that_are_refused_add_no_names(site: Site) -> None:
    campaign = site.campaign(n_items=1, unknown="add")
    site.votes(campaign, ("p0", "ann", "wren"))
    site.votes(campaign, ("new", "cem", "wren"), ("p0", "ann", "robin"), code=409)
    assert [row["item"] for row in site.call("GET", f"/campaigns/{campaign}/items")["items"]] == ["p0"]
    assert site.votes(campaign, ("new", "cem", "wren"))["added"] == 1
    assert {row["annotator"] for row in site.call("GET", f"/campaigns/{campaign}/annotators")} == {"ann", "bob", "cem"}


@pytest.mark.parametrize(
    ("first", "then", "names"),
    [
        (7, ["7", 8, "9"], [7, 8, 9]), ("7", [7, 8, "b"], ["7", "8", "b"]), (7, ["b"], None), (7, ["07"], None),
        (7, [str(2**63)], None), ("a", [7, "7"], ["a", "7"]),
    ],
)  # fmt: skip
def test_kinds_of_names_have_one_rule_in_a_folder_and_here(
    site: Site, tmp_path: Path, first: Any, then: list[Any], names: list[Any] | None
) -> None:
    folder = cw.Campaign.create(tmp_path / "c", cw.OneCoin(), classes=["x", "y"], unknown="add")
    given = {"name": "kinds", "classes": ["x", "y"], "unknown": "add"}
    campaign = site.call("POST", "/campaigns", 201, json=given)["id"]

    def add(some: list[Any]) -> list[tuple[Any, ...]]:
        votes = [{"item": name, "annotator": f"a{i}", "label": "x"} for i, name in enumerate(some)]
        answer = site.client.post(f"/api/v1/campaigns/{campaign}/votes", headers=site.admin, json={"votes": votes})
        try:
            receipt = folder.add(votes)
        except InputError as error:
            return [(422, str(error)), (answer.status_code, answer.json()["detail"])]
        return [(receipt.added, receipt.repeated), (answer.json()["added"], answer.json()["repeated"])]

    for some in ([first], then):
        here, there = add(some)
        assert here == there
    assert (here[0] == 422) == (names is None)
    rows = [row["item"] for row in site.call("GET", f"/campaigns/{campaign}/items")["items"]]
    assert rows == folder.consensus().items.tolist() == ([first] if names is None else names)
