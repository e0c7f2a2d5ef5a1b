"""The watching page in a real browser: live, drawn, and every button does what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import crowdwise as cw
from conftest import chromium
from crowdwise.server.routes_pages import amount
from server_browser import HOSTILE, SIZES, Tab, has_text, website
from server_site import Site

pytestmark = pytest.mark.slow
CROWD = cw.simulate.hammer_spammer(60, n_annotators=6, share=0.7, votes_per_item=4, random_state=0)
CLASSES = ["0", HOSTILE]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with website(tmp_path_factory.mktemp("pages")) as made:
        yield made


@pytest.fixture(scope="module")
def watched(site: Site) -> Iterator[tuple[Tab, str]]:
    """The page of a campaign with votes; names and payloads are hostile."""
    votes = CROWD.votes
    people = [HOSTILE, *(f"w{m}" for m in range(1, 6))]
    campaign = site.campaign(0, people, name=HOSTILE, classes=CLASSES, budget=400, target=0.9)
    items = [{"item": f"p{i}", "payload": {"text": HOSTILE}} for i in range(60)]
    site.call("POST", f"/campaigns/{campaign}/items", 201, json=items)
    rows = zip(votes.item.tolist(), votes.annotator.tolist(), votes.label.tolist(), strict=True)
    site.votes(campaign, *((f"p{n}", people[m], CLASSES[k]) for n, m, k in rows))
    with chromium() as browser:
        tab = Tab(browser)
        tab.sign_in(site, f"/watch/{campaign}")
        tab.page.wait_for_selector("#curve svg")
        tab.page.wait_for_selector(".doubt")
        tab.page.wait_for_selector(".people li")
        yield tab, campaign
        tab.context.close()


def test_accuracy_annotators_and_items_are_shown(site: Site, watched: tuple[Tab, str]) -> None:
    tab, campaign = watched
    status = site.call("GET", f"/campaigns/{campaign}/status")
    page = tab.page
    assert f"{100 * status['accuracy']:.1f}%" in page.locator("#facts").inner_text()
    assert page.locator("#curve svg").get_attribute("aria-label").startswith("Estimated accuracy")
    assert page.locator(".people li").count() == 6 and page.locator(".people .between").count() == 6
    assert HOSTILE in page.locator(".people").inner_text()
    flagged = {row["annotator"] for row in site.call("GET", f"/campaigns/{campaign}/flags") if row["flags"]}
    assert page.locator(".people li:has(.flags .tag)").count() == len(flagged) > 0
    review = site.call("GET", f"/campaigns/{campaign}/review?limit=12")
    assert page.locator(".doubt h3").all_inner_texts() == [row["item"] for row in review]
    assert page.locator(".doubt").first.locator(".given li").count() == review[0]["votes"]
    tab.check_look([*SIZES, (1920, "light")])
    assert tab.said == []


def test_amounts_are_written_alike_by_scripts_and_templates(watched: tuple[Tab, str]) -> None:
    values = [0.0, 0.002, 0.125, 1.0, 45.25, 60.0, 100.4, 1234567.25]
    found = watched[0].page.evaluate("xs => import('/static/elements.js').then((m) => xs.map(m.amount))", values)
    assert found == ["0", "0.002", "0.125", "1", "45.25", "60", "100", "1,234,567"] == [*map(amount, values)]


def test_votes_of_others_appear_without_a_reload(site: Site, watched: tuple[Tab, str]) -> None:
    tab, campaign = watched
    has_text(tab.page, "#live", "live")
    before = site.call("GET", f"/campaigns/{campaign}/status")["votes"]
    voted = set(CROWD.votes.item[CROWD.votes.annotator == 1].tolist())
    site.votes(campaign, (f"p{next(n for n in range(60) if n not in voted)}", "w1", "0"))
    has_text(tab.page, ".tile:has(dt:text-is('Votes')) strong", str(before + 1))


def test_the_buttons(site: Site, watched: tuple[Tab, str]) -> None:
    """Adjudicate, pause an annotator, change budget and target, invite, pause the campaign, download, report."""
    tab, campaign = watched
    page = tab.page
    item = page.locator(".doubt h3").first.inner_text()
    chosen = page.locator(f".doubt:has(h3:text-is('{item}')) select")
    chosen.select_option(HOSTILE)
    chosen.blur()
    page.evaluate("delete document.querySelector('#review').dataset.key")  # as if there were news
    page.locator("#order").select_option("votes")
    page.wait_for_function("document.querySelector('#review').dataset.key")
    assert chosen.input_value() == HOSTILE  # a list that is drawn again keeps what was chosen
    page.get_by_role("button", name=f"Correct for {item}", exact=True).click()
    has_text(page, "#said", f"{item} is settled: {HOSTILE}.")
    rows = {row["item"]: row for row in site.call("GET", f"/campaigns/{campaign}/items?limit=100")["items"]}
    assert rows[item]["settled"] == HOSTILE

    page.get_by_role("button", name="Pause w2").click()
    page.get_by_role("button", name="Resume w2").wait_for()
    people = {row["annotator"]: row for row in site.call("GET", f"/campaigns/{campaign}/annotators")}
    assert people["w2"]["available"] is False and people["w1"]["available"] is True

    page.get_by_label("Budget", exact=True).fill("321")
    page.get_by_label("Target accuracy").fill("92.5")
    page.get_by_label("Say after a gold question").check()  # it can be seen, and so be clicked
    page.get_by_role("button", name="Save").click()
    has_text(page, "#said", "Saved.")
    settings = site.call("GET", f"/campaigns/{campaign}")["settings"]
    assert (settings["budget"], settings["target"], settings["feedback"]) == (321, 0.925, True)

    page.get_by_label("Name").fill("new <b>one</b>")
    page.get_by_role("button", name="Make a link").click()
    page.get_by_label("Link for new <b>one</b>").wait_for()
    assert "/join/" in page.get_by_label("Link for new <b>one</b>").input_value()

    page.locator(".menu summary").click()
    with page.expect_download() as found:
        page.get_by_role("link", name="Results (CSV)").click()
    assert found.value.path().read_text().count("\n") == 61
    with tab.context.expect_page() as opened:
        page.get_by_role("link", name="Open the report").click()
    opened.value.wait_for_selector("h1")
    opened.value.close()

    page.get_by_role("button", name="Pause the campaign").click()
    has_text(page, "#open", "paused")
    assert site.call("GET", f"/campaigns/{campaign}")["state"] == "paused"


def test_a_proof_that_is_reached_is_called_proven(site: Site, watched: tuple[Tab, str]) -> None:
    campaign = site.campaign(30, ["ann", "bob"], name="proof", classes=["a", "b"], max_error=0.3)
    drawn = site.call("POST", f"/campaigns/{campaign}/proof/draw", 201, json={"n": 12})["items"]
    items = [row["item"] for row in site.call("GET", f"/campaigns/{campaign}/items")["items"]]
    site.call("POST", f"/campaigns/{campaign}/proof", json={"gold": [[item, "a"] for item in drawn]})
    site.votes(campaign, *((item, who, "a") for item in items for who in ("ann", "bob")))
    tab, _ = watched
    tab.page.goto(f"{site.client.base_url}/watch/{campaign}")
    tab.page.get_by_text("target reached", exact=True).wait_for()
    tile = tab.page.locator("#facts > *", has_text="Proof").inner_text()
    assert "proven\nat most 30% of the 30 labels are wrong" in tile and "of about" not in tile
