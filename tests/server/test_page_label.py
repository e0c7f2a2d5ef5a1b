"""The labelling page in a real browser: every answer type, keys, undo, skip, a lost connection, the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import chromium
from server_browser import HOSTILE, SIZES, Tab, has_text, website
from server_site import Site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with website(tmp_path_factory.mktemp("pages")) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def tab(browser: Any) -> Iterator[Tab]:
    made = Tab(browser)
    yield made
    made.context.close()


def asked(site: Site, payloads: list[dict[str, Any]], **settings: Any) -> str:
    """A campaign with these payloads, and nobody but those who are invited."""
    campaign = site.campaign(0, annotators=(), **settings)
    items = [{"item": f"q{i}", "payload": payload} for i, payload in enumerate(payloads)]
    site.call("POST", f"/campaigns/{campaign}/items", 201, json=items)
    return campaign


def votes(site: Site, campaign: str) -> dict[str, Any]:
    """Item -> the label of its only vote."""
    found = {}
    for row in site.call("GET", f"/campaigns/{campaign}/items")["items"]:
        given = site.call("GET", f"/campaigns/{campaign}/items/{row['item']}/votes")
        assert len(given) <= 1
        if given:
            found[row["item"]] = given[0]["label"]
    return found


def saved(page: Any, done: int) -> None:
    """Wait until so many answers are with the server."""
    try:
        has_text(page, "#done", str(done))
    except AssertionError as error:
        error.add_note(f"The page says: {page.locator('#said').inner_text()!r}")
        raise
    has_text(page, "#line", "All answers are saved")


def shown(page: Any) -> str:
    return str(page.locator("#question").inner_text())


def test_labelling_by_keyboard_alone(site: Site, tab: Tab) -> None:
    """Classes by their numbers, by Tab and Enter, a skip with a reason, undo; the focus follows."""
    campaign = asked(site, [{"text": f"bird {i}"} for i in range(4)])
    page = tab.join(site, campaign)
    first = shown(page)
    page.keyboard.press("2")
    has_text(page, "#heading", "Question 2")
    assert page.evaluate("document.activeElement.id") == "heading"
    assert page.locator("#said").inner_text() == "Answered: robin."
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "1wren"
    page.keyboard.press("Enter")
    saved(page, 2)
    given = votes(site, campaign)
    assert sorted(given.values()) == ["robin", "wren"] and given["q" + first[-1]] == "robin"
    before = shown(page)
    page.keyboard.press("u")
    page.wait_for_selector("text=Your answer was: wren")
    saved(page, 1)
    page.keyboard.press("2")
    saved(page, 2)
    assert sorted(votes(site, campaign).values()) == ["robin", "robin"]
    assert shown(page) == before
    page.keyboard.press("s")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.type("too 1 dark")
    page.keyboard.press("Enter")
    has_text(page, "#said", "Skipped.")
    page.keyboard.press("1")
    page.wait_for_selector("text=Nothing left for you now")
    assert page.evaluate("document.activeElement.id") == "heading"
    saved(page, 3)
    assert len(votes(site, campaign)) == 3
    reasons = site.service.read(lambda conn: conn.exec_driver_sql("select reason from skips").scalars().all())
    assert reasons == ["does not load or cannot be read: too 1 dark"]
    assert tab.said == []


def test_answers_survive_a_lost_connection_and_count_once(site: Site, tab: Tab) -> None:
    campaign = asked(site, [{"text": f"bird {i}"} for i in range(5)])
    page = tab.join(site, campaign)
    page.wait_for_load_state("networkidle")
    tab.context.set_offline(True)
    for _ in range(3):
        page.keyboard.press("1")
    page.wait_for_selector("text=No connection")
    has_text(page, "#line", "3 answers wait in this browser")
    assert votes(site, campaign) == {}
    page.keyboard.press("u")  # an answer that was not sent is taken back here
    page.wait_for_selector("text=Your answer was: wren")
    page.keyboard.press("2")
    tab.context.set_offline(False)
    saved(page, 3)
    assert sorted(votes(site, campaign).values()) == ["robin", "wren", "wren"]

    # the server writes an answer, but its receipt is lost; the page is loaded again before the next try
    lost: list[int] = []

    def lose(route: Any) -> None:
        if not lost:
            route.fetch()
        route.abort()
        lost.append(1)

    page.route("**/votes", lose)
    page.keyboard.press("2")
    has_text(page, "#line", "1 answer waits in this browser")
    while not lost:
        page.wait_for_timeout(20)
    assert len(votes(site, campaign)) == 4
    page.unroute("**/votes")
    page.reload()
    saved(page, 4)
    assert len(votes(site, campaign)) == 4
    assert site.call("GET", f"/campaigns/{campaign}/status")["votes"] == 4


def test_two_tabs_of_one_annotator_count_alike(site: Site, tab: Tab) -> None:
    """A tab that answers what the other has answered is refused, and then counts what the other did, too."""
    campaign = asked(site, [{"text": f"bird {i}"} for i in range(5)])
    page = tab.join(site, campaign)
    other = tab.context.new_page()
    other.goto(page.url)
    has_text(other, "#heading", "Question 1")
    assert shown(page) == shown(other)
    for done in (1, 2):
        page.keyboard.press("1")
        saved(page, done)
    other.keyboard.press("2")
    has_text(other, "#done", "2")
    has_text(other, "#heading", "Question 3")
    assert "An answer was not taken" in other.locator("#said").inner_text()
    assert set(votes(site, campaign).values()) == {"wren"} and len(votes(site, campaign)) == 2


def test_pairs_are_shown_in_the_order_that_is_recorded(site: Site, tab: Tab) -> None:
    pairs = [{"left": {"item": f"a{i}", "text": f"left {i}"}, "right": f"right {i}"} for i in range(6)]
    campaign = asked(site, pairs, answer_type="comparisons", classes=None, ties=True, max_votes=1)
    page = tab.join(site, campaign)
    chosen, order = {}, {}
    for done, key in enumerate(["1", "2", "ArrowLeft", "ArrowRight", "1", "3"]):
        sides = page.locator(".side p").all_inner_texts()
        item = "q" + sides[0][-1]
        order[item] = sides[0].split()[0]
        chosen[item] = "tie" if key == "3" else sides[1 if key in ("2", "ArrowRight") else 0].split()[0]
        page.keyboard.press(key)
        saved(page, done + 1)
    assert votes(site, campaign) == chosen
    rows = site.service.read(
        lambda conn: conn.exec_driver_sql(
            "select items.name, votes.shown from votes join items on items.campaign = votes.campaign and "
            f"items.number = votes.item where votes.campaign = '{campaign}'"
        ).all()
    )
    assert {name.strip('"'): side for name, side in rows} == order


def test_ratings_ordinal_classes_and_label_sets(site: Site, tab: Tab) -> None:
    scale = {"min": 0, "max": 10, "step": 0.5}
    campaign = asked(
        site, [{"text": "a"}, {"text": "b"}], answer_type="ratings", classes=None, scale=scale, max_votes=1
    )
    page = tab.join(site, campaign)
    answer = page.get_by_role("button", name="Answer")
    assert answer.is_disabled()  # the middle of a slider is not an answer
    page.get_by_label("Your rating").focus()
    page.keyboard.press("ArrowRight")  # from an end: the middle is not suggested
    has_text(page, "output", "0")
    page.keyboard.press("7")  # digits and arrows at once, and the number is shown
    page.keyboard.press("ArrowLeft")
    has_text(page, "output", "6.5")
    page.keyboard.press("Enter")
    saved(page, 1)
    page.get_by_label("Exact value").fill("99")
    assert answer.is_disabled()
    page.get_by_label("Exact value").fill("2.5")
    page.keyboard.press("Enter")
    saved(page, 2)
    assert sorted(votes(site, campaign).values()) == [2.5, 6.5]

    campaign = asked(site, [{"text": "a"}], answer_type="ordinal", classes=["bad", "fair", "good"], max_votes=1)
    page = tab.join(site, campaign)
    page.keyboard.press("3")
    saved(page, 1)
    assert votes(site, campaign) == {"q0": "good"}

    many = [f"class {i}" for i in range(20)]
    campaign = asked(site, [{"text": "a"}, {"text": "b"}], answer_type="label-sets", classes=many, max_votes=1)
    page = tab.join(site, campaign)
    page.keyboard.press("1")
    page.get_by_label("Find a class").fill("17")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Answer with 2 classes").click()
    saved(page, 1)
    page.keyboard.press("Enter")
    saved(page, 2)
    assert sorted(votes(site, campaign).values()) == [[], ["class 0", "class 17"]]

    campaign = asked(site, [{"text": "a"}], answer_type="label-sets", classes=many[:8], max_votes=1)
    tab.turn(360, "light")
    page = tab.join(site, campaign)
    choices, done = (page.locator(f"#answers > {one}").bounding_box() for one in (".choices", "button"))
    assert choices["y"] + choices["height"] <= done["y"]  # what sends the answer covers no choice
    under = [done["x"] + 20, done["y"] + done["height"] + 2]
    assert page.evaluate("([x, y]) => !document.elementFromPoint(x, y)?.closest('.choice')", under)
    tab.turn(1280, "light")
    assert tab.said == []


def test_feedback_the_end_of_a_session_and_what_others_see(site: Site, tab: Tab) -> None:
    campaign = site.campaign(0, annotators=(), gold_rate=0.9, feedback=True)
    rows: list[dict[str, Any]] = [{"item": f"q{i}", "payload": {"text": f"bird {i}"}, "gold": "wren"} for i in range(3)]
    rows += [{"item": f"more{i}"} for i in range(9)]
    site.call("POST", f"/campaigns/{campaign}/items", 201, json=rows)
    page = tab.join(site, campaign)
    assert "gold" not in page.content()
    done = 0
    while "more" in shown(page):  # gold questions come at a rate
        page.keyboard.press("1")
        done += 1
        has_text(page, "#heading", f"Question {done + 1}")
    text = shown(page)
    page.keyboard.press("2")
    notice = page.locator("#feedback .notice")
    notice.wait_for()
    assert notice.inner_text() == f"You chose robin for “{text}”. The known answer is wren."
    saved(page, done + 1)
    page.keyboard.press("u")  # whoever has seen the known answer cannot change the own
    has_text(
        page, "#said",
        "The answer was not taken back. The known answer to this question was shown: the vote cannot be taken back.",
    )  # fmt: skip
    saved(page, done + 1)
    for token in site.call("GET", "/tokens"):
        if token["campaign"] == campaign:
            site.call("DELETE", f"/tokens/{token['id']}")
    page.keyboard.press("1")
    page.wait_for_selector("text=Your session has ended")
    page.wait_for_selector("text=One answer is kept in this browser")
    assert len(votes(site, campaign)) == done + 1
    tab.join(site, campaign)
    saved(page, done + 2)
    assert len(votes(site, campaign)) == done + 2


def test_what_people_wrote_stays_text_and_nobody_is_kept_out(site: Site, tab: Tab) -> None:
    """Hostile names and payloads, every kind of payload, axe, phone and desktop, light and dark."""
    links = "Some **bold** and `code`, [a link](javascript:alert(1)), [good](https://example.org)."
    markdown = f"# Head\n\n{links}\n\n- one\n- {HOSTILE}\n\n> said"
    image = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='600' height='200'/%3E"
    payload = {"text": HOSTILE, "markdown": markdown, "image": image, "alt": HOSTILE, HOSTILE: [HOSTILE]}
    campaign = asked(
        site, [payload], name=HOSTILE, classes=[HOSTILE, "a" * 200, *(f"class {i}" for i in range(12))],
        instructions=f"Look *well*.\n\n{HOSTILE}",
    )  # fmt: skip
    page = tab.join(site, campaign, HOSTILE)
    assert page.locator("#question .text").inner_text() == HOSTILE
    assert page.locator("#question .markdown strong").inner_text() == "bold"
    assert page.locator("#question .markdown a").all_inner_texts() == ["good"]
    assert page.locator("#question img").get_attribute("alt") == HOSTILE
    assert page.locator(".choice span").first.inner_text() == HOSTILE
    tab.check_look(SIZES)
    page.keyboard.press("s")
    tab.check_look(SIZES[1:3])
    page.keyboard.press("Escape")
    page.locator("#skipping").wait_for(state="hidden")
    page.keyboard.press("1")
    saved(page, 1)
    assert votes(site, campaign) == {"q0": HOSTILE}
    assert tab.said == []


def test_deep_and_long_markdown_does_not_stop_the_page(site: Site, tab: Tab) -> None:
    deep, long, lines = ">" * 19_000, "[" * 120_000, "a\n\n" * 50_000
    campaign = asked(site, [{"markdown": text} for text in (deep, long, lines)])
    page = tab.join(site, campaign)
    for done in range(1, 4):
        page.wait_for_selector("#label[data-state=question]")
        page.keyboard.press("1")
        saved(page, done)
    assert len(votes(site, campaign)) == 3 and tab.said == []


def test_an_admin_labels_the_sample_at_once(site: Site, tab: Tab) -> None:
    page = tab.sign_in(site, "/")
    tab.check_look(SIZES[:1])
    page.get_by_role("button", name="Make a sample campaign").click()
    page.wait_for_selector("#label[data-state=question]")
    page.keyboard.press("3")
    saved(page, 1)
    page.get_by_role("link", name="Watch this campaign").click()
    page.wait_for_url("**/watch/*")
    page.goto(f"{site.client.base_url}/watch/nothing")
    assert page.get_by_role("heading", level=1).inner_text() == "Not there"
    tab.check_look(SIZES[3:])
