"""The page in a real browser, at phone and desktop width, light and dark: quiet, self-contained, usable by keyboard.

Needs Chromium on the path, playwright and axe-playwright-python; skipped, with the reason shown, where one is absent.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.report.page import page
from report.answers import KINDS, answer_pages
from report.crowd import planted

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
SIZES = [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path: the page is not opened in a browser"),
]


def hostile() -> str:
    """Names that are markup, long, or written from right to left."""
    base = cw.simulate.hammer_spammer(150, n_annotators=8, n_classes=3, votes_per_item=6, random_state=0).votes
    names = [
        "<script>alert(1)</script>",
        "</script><b>",
        '" onfocus="alert(1)',
        "a" * 150,
        "مصنف البيانات ٤",
        "b",
        "c",
        "d",
    ]
    items = [f"<img src=x onerror=alert({n})>" for n in range(150)]
    votes = cw.Votes.from_codes(
        base.item, base.annotator, base.label, items=items, annotators=names, classes=["<i>x</i>", "صنف", "word " * 12]
    )
    texts = dict.fromkeys(items, "نص من اليمين إلى اليسار <script>alert(2)</script>")
    pictures = dict.fromkeys(items, np.eye(8))
    data = {"source": {name: "web" if n % 2 else "book" for n, name in enumerate(items)}}
    consensus = cw.aggregate(votes, "majority")
    return page(cw.build_report(votes, consensus, texts=texts, images=pictures, attributes=data, all_items=True))


def many() -> str:
    """Many annotators, many classes."""
    votes = cw.simulate.one_coin(1500, n_annotators=60, n_classes=24, votes_per_item=4, random_state=0).votes
    return page(cw.build_report(votes, cw.aggregate(votes, "one-coin"), all_items=True))


def tiny() -> str:
    votes = cw.Votes.from_records([("only", "ann", "yes"), ("only", "bob", "no")])
    return page(cw.build_report(votes, cw.aggregate(votes, "majority"), all_items=True))


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    votes, _ = planted(0)
    made = {
        "digits": page(cw.build_report(votes, title="Digits", all_items=True)), "hostile": hostile(), "many": many(),
        "tiny": tiny(),
    }  # fmt: skip
    made |= {f"answers-{kind}": text for kind, (_, text) in answer_pages().items()}
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


class Opened:
    """A page that was opened, with everything it said and asked for."""

    def __init__(self, browser, file, width, scheme):
        self.context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            accept_downloads=True,
            reduced_motion="reduce",
        )
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


@pytest.mark.parametrize("name", ["digits", "hostile", "many", "tiny", *(f"answers-{kind}" for kind in KINDS)])
@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_quiet_self_contained_and_nothing_sticks_out(browser, pages, name, width, scheme):
    with Opened(browser, pages / f"{name}.html", width, scheme) as opened:
        for details in opened.page.query_selector_all("details"):
            details.evaluate("element => { element.open = true; }")
        wide = opened.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{wide} px of content in a window of {width}"
        assert opened.said == []
        assert [url for url in opened.asked if not url.startswith("data:")] == [opened.file.as_uri()]
        background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(int(x) for x in background.removeprefix("rgb(").removesuffix(")").split(",")) > 380
        assert light == (scheme == "light")


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        *((name, *size) for name in ("digits", "hostile") for size in SIZES),
        ("many", 360, "dark"),
        ("tiny", 1280, "light"),
        *((f"answers-{kind}", *SIZES[n % 4]) for n, kind in enumerate(KINDS)),
    ],
)
def test_no_barrier_that_axe_can_see(browser, pages, name, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    with Opened(browser, pages / f"{name}.html", width, scheme) as opened:
        for details in opened.page.query_selector_all("details"):
            details.evaluate("element => { element.open = true; }")
        found = axe.Axe().run(opened.page).response["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []


def test_sorting_by_keyboard(browser, pages):
    with Opened(browser, pages / "digits.html", 1280, "light") as opened:
        head = opened.page.locator("#people thead th", has_text="Votes")
        head.locator("button").focus()
        opened.page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        down = column(opened.page, 3)
        assert down == sorted(down, reverse=True)
        opened.page.keyboard.press("Space")
        assert head.get_attribute("aria-sort") == "ascending"
        assert column(opened.page, 3) == sorted(down)
        name = opened.page.locator("#people thead th", has_text="Annotator")
        name.locator("button").focus()
        opened.page.keyboard.press("Enter")
        assert name.get_attribute("aria-sort") == "ascending"
        assert head.get_attribute("aria-sort") is None
        names = opened.page.locator("#people tbody th").all_inner_texts()
        assert names[:3] == ["a0", "a1", "a2"] and names.index("a10") > names.index("a9")


def column(page, index):
    cells = page.locator(f"#people tbody tr td:nth-of-type({index})").evaluate_all("all => all.map((c) => c.dataset.v)")
    return [float(x) for x in cells]


def test_filtering(browser, pages):
    with Opened(browser, pages / "digits.html", 1280, "light") as opened:
        opened.page.fill("#filter", "always says")
        visible = opened.page.locator("#people tbody tr:visible")
        assert visible.locator("th").all_inner_texts() == ["lazy"]
        assert opened.page.inner_text("#shown") == "1 shown"
        opened.page.fill("#filter", "")
        opened.page.select_option("#verdict", "drop")
        assert sorted(visible.locator("th").all_inner_texts()) == ["adversary", "lazy", "random"]
        opened.page.fill("#filter", "nobody of this name")
        assert opened.page.inner_text("#shown") == "Nobody fits."


def test_a_long_table_opens_on_demand(browser, pages):
    with Opened(browser, pages / "many.html", 1280, "light") as opened:
        rows = opened.page.locator("#people tbody tr:visible")
        assert rows.count() == 25
        assert opened.page.inner_text("#shown") == "25 of 60 shown"
        opened.page.click("#more")
        assert rows.count() == 60


def test_a_matrix_opens_and_closes_by_keyboard(browser, pages):
    with Opened(browser, pages / "digits.html", 1280, "light") as opened:
        opener = opened.page.locator('button[data-confusion="lazy"]')
        opener.focus()
        opened.page.keyboard.press("Enter")
        assert opened.page.locator("#confusion-box").is_visible()
        assert opened.page.inner_text("#confusion-name") == "lazy"
        rows = opened.page.locator("#confusion-table tbody tr")
        assert rows.count() == 10
        assert rows.nth(4).locator("td").all_inner_texts()[1] == "100"
        opened.page.keyboard.press("Escape")
        assert not opened.page.locator("#confusion-box").is_visible()
        assert opener.evaluate("element => element === document.activeElement")


def test_hostile_names_in_a_matrix(browser, pages):
    with Opened(browser, pages / "hostile.html", 1280, "light") as opened:
        opened.page.locator("button[data-confusion]").first.click()
        assert opened.page.locator("#confusion-table th", has_text="<i>x</i>").count() == 2
        assert opened.said == []


def test_the_theme_button_changes_and_stays(browser, pages):
    with Opened(browser, pages / "tiny.html", 1280, "light") as opened:
        before = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        opened.page.click("#theme")
        after = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert before != after
        opened.page.reload()
        assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_tables_are_saved_from_the_page(browser, pages, tmp_path):
    with Opened(browser, pages / "digits.html", 1280, "light") as opened:
        for name in ("annotators.csv", "items.csv", "report.json"):
            with opened.page.expect_download() as waiting:
                opened.page.click(f'button[data-name="{name}"]')
            assert waiting.value.suggested_filename == name
            waiting.value.save_as(tmp_path / name)
        assert (tmp_path / "annotators.csv").read_text(encoding="utf-8").startswith("annotator,verdict,votes,")
        assert len((tmp_path / "items.csv").read_text(encoding="utf-8").splitlines()) == 1259
        assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["title"] == "Digits"


def test_the_first_stop_leads_to_the_summary(browser, pages):
    with Opened(browser, pages / "tiny.html", 360, "light") as opened:
        opened.page.keyboard.press("Tab")
        assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the summary"
        opened.page.keyboard.press("Enter")
        assert opened.page.url.endswith("#summary")


def test_print_shows_the_tables_and_hides_what_only_a_screen_can_do(browser, pages):
    with Opened(browser, pages / "digits.html", 1280, "dark") as opened:
        opened.page.emulate_media(media="print")
        assert not opened.page.locator("nav.sections").is_visible()
        assert not opened.page.locator("#theme").is_visible()
        assert opened.page.locator("#people").is_visible()
        assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert len(opened.page.pdf()) > 20_000
