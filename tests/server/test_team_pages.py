"""What a small team does in a browser: a folder of images, a campaign made on a page, people by one link, languages."""

from __future__ import annotations

import ast
import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from conftest import need_module
from crowdwise import registry
from crowdwise.active import end_state, stopping
from crowdwise.active.end_state import ENDS
from crowdwise.server import live_refit, routes_pages
from crowdwise.server.configuration import load_configuration
from crowdwise.server.media import CHUNK
from crowdwise.server.routes_votes import FOR_ANNOTATORS
from crowdwise.trust.agreement import TITLES
from crowdwise.trust.annotators import FlagKind
from server_browser import SIZES, Tab, has_text, website
from server_site import Site, running

SERVER = Path(routes_pages.__file__).parent


def png(path: Path, shade: int) -> None:
    """An image of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + bytes([shade, 90, 120]) * 64) * 48)
    head = struct.pack(">IIBBBBB", 64, 48, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A media folder with images, a text, and what must not be served."""
    made = tmp_path_factory.mktemp("photos")
    (made / "birds").mkdir()
    for i in range(3):
        png(made / "birds" / f"{i}.png", 40 * i)
    (made / "note.txt").write_text("a wren, perhaps")
    (made / "secret.key").write_text("key")
    (made.parent / "outside.png").write_bytes(b"outside")
    (made / "link.png").symlink_to(made.parent / "outside.png")
    return made


@pytest.fixture(scope="module")
def shown(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    given = {"data": str(tmp_path_factory.mktemp("media-server")), "rate_limit": 0.0, "media": str(folder)}
    with running(load_configuration(given, environment={})) as made:
        yield made


def test_files_of_the_folder_are_shown_by_links_that_expire(shown: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = shown.campaign(0)
    found = shown.call("GET", f"/campaigns/{campaign}/media")
    assert found["files"] == ["note.txt", "birds/0.png", "birds/1.png", "birds/2.png"]
    assert shown.call("POST", f"/campaigns/{campaign}/media/items", 201, json={"under": "birds/"})["new"] == 3
    assert shown.call("GET", f"/campaigns/{campaign}/items")["items"][0]["payload"] == {"image": "media:birds/0.png"}
    (one,) = shown.call("GET", f"/campaigns/{campaign}/next?annotator=ann")["questions"]
    link = one["payload"]["image"]
    picture = shown.client.get(link)
    assert picture.headers["content-type"] == "image/png" and picture.content.startswith(b"\x89PNG")
    assert "sandbox" in picture.headers["content-security-policy"]
    _, _, of, until, signature, *name = link.split("/")
    for wrong in (
        link.replace(name[-1], "9.png"), f"/media/other/{until}/{signature}/{'/'.join(name)}",
        f"/media/{of}/{int(until) + 1}/{signature}/{'/'.join(name)}", f"/media/{of}/{until}/{signature}/secret.key",
    ):  # fmt: skip
        assert shown.client.get(wrong).status_code == 404, wrong
    for name_ in ("secret.key", "link.png", "../outside.png", "birds/../../outside.png", "/etc/passwd"):
        signed = shown.service.media.link(campaign, name_)
        assert shown.client.get(signed).status_code == 404, name_
    monkeypatch.setattr("crowdwise.server.media.steady_clock.now", lambda: float(until) + 1)
    assert shown.client.get(link).status_code == 404  # its time is over


def test_addresses_are_checked_when_items_come(shown: Site) -> None:
    campaign = shown.campaign(0)

    def refused(**payload: str) -> str:
        items = [{"item": "x", "payload": payload}]
        return str(shown.call("POST", f"/campaigns/{campaign}/items", 422, json=items)["detail"])

    assert "birds/0.png" in refused(image="bird/0.png")  # with the nearest name
    assert "no such file" in refused(audio="birds/0.png")
    table = "id,image,text\n1,birds/1.png,hello\n2,media:birds/2.png,hi\n"
    headers = {**shown.admin, "content-type": "text/csv"}
    address = f"/api/v1/campaigns/{campaign}/items"
    looked = shown.client.post(f"{address}?preview=true", headers=headers, content=table).json()
    assert looked["items"] == 2 and looked["columns"] == ["item", "image", "text"] and looked["problem"] is None
    assert shown.call("GET", f"/campaigns/{campaign}/items")["items"] == []  # nothing was added
    assert shown.client.post(address, headers=headers, content=table).json()["new"] == 2
    found = shown.call("GET", f"/campaigns/{campaign}/items?search=HELLO")["items"]
    assert [row["payload"]["image"] for row in found] == ["media:birds/1.png"]


def test_origins_can_be_limited(tmp_path: Path) -> None:
    given = {"data": str(tmp_path), "rate_limit": 0.0, "media_origins": "https://cdn.test, https://other.test"}
    with running(load_configuration(given, environment={})) as site:
        campaign = site.campaign(0)
        good = [{"item": "x", "payload": {"image": "https://cdn.test/1.jpg"}}]
        site.call("POST", f"/campaigns/{campaign}/items", 201, json=good)
        bad = [{"item": "y", "payload": {"image": "https://evil.test/1.jpg"}}]
        found = site.call("POST", f"/campaigns/{campaign}/items", 422, json=bad)
        assert "media_origins" in found["detail"]
        policy = site.client.get("/login").headers["content-security-policy"]
        assert "img-src 'self' https://cdn.test https://other.test data:" in policy


def test_uploaded_files_are_kept_private_and_go_with_the_campaign(shown: Site, folder: Path) -> None:
    campaign = shown.campaign(0)
    files = [("file", ("up.png", (folder / "birds" / "0.png").read_bytes(), "image/png"))]
    address = f"/api/v1/campaigns/{campaign}/media"
    assert shown.client.post(address, headers=shown.admin, files=files).json() == {"files": ["up.png"]}
    assert shown.client.post(address, headers=shown.admin, files=files).status_code == 201  # sent again
    kept = shown.service.media.uploads / campaign / "up.png"
    before = kept.read_bytes()
    for sent, said in (
        ([("file", ("a/up.png", b"another", "image/png"))], "another file 'up.png' already"),
        ([("file", ("x" * 300 + ".png", b"", "image/png"))], "longer than 200 bytes"),
        (None, "no file"),
    ):
        answer = shown.client.post(address, headers=shown.admin, files=sent)
        assert answer.status_code == 422 and said in answer.json()["detail"], answer.text
    assert kept.read_bytes() == before
    parts = iter([b"a" * CHUNK, b"b", b""])
    pieces: Any = SimpleNamespace(read=lambda size: next(parts))  # it cannot be read as a whole
    assert shown.service.media.save(campaign, "large.wav", pieces) == "large.wav"
    assert kept.with_name("large.wav").read_bytes() == b"a" * CHUNK + b"b"
    assert kept.stat().st_mode & 0o777 == 0o600
    bad = [("file", ("../evil.svg", b"<svg/>", "image/svg+xml"))]
    assert shown.client.post(address, headers=shown.admin, files=bad).status_code == 422
    other = shown.campaign(0)
    assert shown.service.media.find(other, "up.png") is None
    shown.call("DELETE", f"/campaigns/{campaign}?confirm=birds")
    assert not kept.exists()


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_nobody_signs_up_as_another_whose_name_is_a_number(site: Site) -> None:
    campaign = site.campaign(3, annotators=[7])
    link = urlsplit(site.call("POST", f"/campaigns/{campaign}/signup", 201, json={})["link"]).path
    for name in ("7", " 7 "):
        found = type(site.client)(site.client.app).post(link, data={"name": name})
        assert found.status_code == 409 and "This name is taken" in found.text


def test_many_sign_up_by_one_link(site: Site) -> None:
    """Consent, worker id, quota, practice with feedback, screening, votes of each, and the code at the end."""
    campaign = site.campaign(
        4, (), consent="We keep your answers.", quota=2, votes_each=3, practice=2, screen=0.6, completion_code="C0DE",
        feedback=False,
    )  # fmt: skip
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["p0", "p1"], "gold": "wren"})
    link = urlsplit(site.call("POST", f"/campaigns/{campaign}/signup", 201, json={})["link"]).path
    api = f"/api/v1/campaigns/{campaign}"

    def browser() -> Any:
        return type(site.client)(site.client.app)

    good, bad, third = browser(), browser(), browser()
    assert "We keep your answers." in good.get(f"{link}?PROLIFIC_PID=w1").text
    assert good.post(link, data={"name": "w1"}).status_code == 409  # not agreed
    for one, name in ((good, "w1"), (bad, "w2")):
        page = one.post(link, data={"name": name, "agreed": "yes"})
        assert page.status_code == 200 and 'name="csrf"' in page.text
        one.headers["x-csrf-token"] = re.findall('name="csrf" content="([^"]+)"', page.text)[0]
    assert third.post(link, data={"name": "w1", "agreed": "yes"}).status_code == 409  # an id is no secret
    assert "no place left" in third.post(link, data={"name": "w3", "agreed": "yes"}).text
    assert third.post(link, data={"name": "a\0b", "agreed": "yes"}).status_code == 422
    secret = link.rsplit("/", 1)[1]
    assert site.client.get(f"{api}/next", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert third.post("/login", data={"token": secret}).status_code == 401

    def answer(one: Any, label: str) -> Any:
        (question,) = one.get(f"{api}/next").json()["questions"]
        vote = {"item": question["item"], "label": label, "ticket": question["ticket"]}
        return question["item"], one.post(f"{api}/votes", json=vote).json()

    for _ in range(2):
        item, receipt = answer(good, "wren")
        assert item in ("p0", "p1") and receipt["feedback"][0]["correct"]
        assert "was shown" in good.post(f"{api}/undo", json={"item": item}).json()["detail"]
    item, receipt = answer(good, "robin")
    assert item in ("p2", "p3") and not receipt.get("feedback")
    assert good.post(f"{api}/undo", json={"item": item}).status_code == 200
    answer(good, "robin")
    assert good.get(f"{api}/next").json()["code"] == "C0DE"
    for _ in range(2):
        _, receipt = answer(bad, "robin")
        assert not receipt["feedback"][0]["correct"]
    found = bad.get(f"{api}/next").json()
    assert found["questions"] == [] and found["code"] is None  # screened
    people = {row["annotator"]: row for row in site.call("GET", f"/campaigns/{campaign}/annotators")}
    assert people["w1"]["available"] and not people["w2"]["available"]


def spoken() -> set[str]:
    """All texts that templates, scripts and routes of annotators say."""
    out = {*routes_pages.TITLES.values(), *routes_pages.KINDS.values(), *FOR_ANNOTATORS.values()}
    for path in (*SERVER.glob("static/*.js"), *SERVER.glob("templates/*.html")):
        text = path.read_text(encoding="utf-8")
        out |= set(re.findall(r'\bt\("((?:[^"\\]|\\.)+)"[,)]', text)) | set(re.findall(r"\bt\('([^']+)'", text))
        for pair in re.findall(r'\bcount\([^"]*"([^"]+)", "([^"]+)"', text):
            out |= set(pair)
    watch = (SERVER / "static" / "watch.js").read_text(encoding="utf-8")
    heads = re.search(r"const NUMBERS = {(.+)};", watch)
    assert heads is not None
    kinds = (*ENDS, "running", "too-fast", *(kind.value for kind in FlagKind))
    served = [kind for kind in registry.ANSWER_TYPES.values() if kind.form]
    out |= {words.title for kind in served for words in kind.rules.kinds.values()} | set(TITLES.values())
    out |= set(re.findall(r': "([^"]+)"', heads[1])) | {kind.replace("-", " ") for kind in kinds}
    return out | set().union(*map(sentences, (end_state, stopping, live_refit)))


def sentences(module: Any) -> set[str]:
    """Why a campaign stops, and what would let it go on: the texts of a module that are neither documentation, nor
    parts of others, nor of errors."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    left_out = (ast.Expr, ast.JoinedStr, ast.Raise, ast.Dict)
    out, todo = set[str](), list(ast.iter_child_nodes(tree))
    while todo:
        node = todo.pop()
        if isinstance(node, left_out) or (isinstance(node, ast.FunctionDef) and node.name in ("why_not", "due")):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            out.add(node.value)
        todo += ast.iter_child_nodes(node)
    return out


def test_catalogues_are_complete() -> None:
    for language, texts in routes_pages.catalogues().items():
        if language != "en":
            assert sorted(spoken() - set(texts)) == [], language
            for english, other in texts.items():
                assert sorted(re.findall(r"{\w+}", english)) == sorted(re.findall(r"{\w+}", other)), english


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = need_module("playwright.sync_api")
    import shutil

    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=shutil.which("chromium"))
        yield made
        made.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with website(tmp_path_factory.mktemp("live")) as made:
        yield made


def test_why_a_campaign_stopped_is_said_in_the_language_of_the_page(browser: Any, live: Site) -> None:
    campaign = live.campaign(n_items=2, annotators=["ann"], probability=0.6, min_votes=1)
    live.votes(campaign, ("p0", "ann", "wren"), ("p1", "ann", "wren"))
    status = live.call("GET", f"/campaigns/{campaign}/status")
    assert status["stop"] == "every item is finished (a class with probability 0.6)"
    page = Tab(browser).sign_in(live, f"/watch/{campaign}?lang=de")
    advice = "Um weiterzumachen, erhöhen Sie die Wahrscheinlichkeit, bei der ein Objekt fertig ist."
    has_text(page, "#stop", f"Jedes Objekt ist fertig (eine Klasse mit Wahrscheinlichkeit 0.6). {advice}")


def test_a_campaign_is_made_on_a_page_from_dropped_images(browser: Any, live: Site, folder: Path) -> None:
    """From nothing to the first labels of images by a person on a phone, without a command."""
    tab = Tab(browser)
    page = tab.sign_in(live, "/new")
    tab.check_look(SIZES[:1])
    page.get_by_label("Name").fill("Birds")
    page.get_by_label("Classes, one a line").fill("wren\nrobin")
    page.get_by_role("button", name="Make it").click()
    page.wait_for_url("**/campaign/*")
    campaign = page.url.rsplit("/", 1)[1]
    page.locator("#file").set_input_files([folder / "birds" / f"{i}.png" for i in range(3)])
    has_text(page, "#said", "3 new items.")
    page.get_by_role("button", name="Make a sign-up link for many").click()
    link = page.locator("#made")
    link.wait_for()
    address = link.input_value()
    tab.check_look([SIZES[0], SIZES[3]])
    phone = Tab(browser, 360)
    phone.page.goto(f"{address}?workerId=eva&lang=de")
    has_text(phone.page, "button.primary", "Beginnen")  # languages switch
    phone.page.get_by_role("button", name="Beginnen").click()
    phone.page.locator("#question img").wait_for()
    phone.page.wait_for_function("document.querySelector('#question img').naturalWidth === 64")
    phone.page.keyboard.press("+")
    phone.page.locator(".viewer.zoomed").wait_for()
    phone.check_look(SIZES[:1])
    for done in range(1, 4):
        phone.page.keyboard.press("1")
        has_text(phone.page, "#done", str(done))
    has_text(phone.page, "#line", "Alle Antworten sind gespeichert")
    assert live.call("GET", f"/campaigns/{campaign}/status")["votes"] == 3
    page.locator("#file").set_input_files(
        files=[{"name": "t.csv", "mimeType": "text/csv", "buffer": b"id,text\n7,x\n"}]
    )
    page.get_by_role("button", name="Add 1 items").click()
    has_text(page, "#said", "The items are there.")
    page.get_by_text("Known answers (gold)").click()
    page.get_by_label("One a line").fill("item,gold\n7,wren\n0.png,robin\n")
    page.get_by_role("button", name="Set the known answers").click()
    has_text(page, "#said", "2 known answers are set.")
    page.get_by_label("Stop when it is proven").fill("5")
    page.locator("#rules").get_by_role("button", name="Save").click()
    has_text(page, "#said", "Saved.")
    found = live.call("GET", f"/campaigns/{campaign}/items")["items"]
    assert {row["item"]: row["gold"] for row in found if row["gold"]} == {"7": "wren", "0.png": "robin"}
    page.goto(f"{live.client.base_url}/watch/{campaign}?lang=de")
    page.get_by_text("Gold-Labels zufällig gezogener Objekte").wait_for()  # what the proof still costs
    page.get_by_text("3 in der letzten Stunde", exact=False).first.wait_for()
    tab.check_look([SIZES[0], SIZES[3]])
    page.goto(f"{live.client.base_url}/campaign/{campaign}?lang=en")
    page.get_by_label("To delete it with all votes").fill("Birds")
    page.get_by_role("button", name="Delete for good").click()
    page.wait_for_url(f"{live.client.base_url}/")
    assert [said for said in tab.said + phone.said if "409" not in said] == []


ANSWERED: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "rankings": ({}, {"options": [{"item": n, "text": f"answer {n}"} for n in "abc"]}, None),
    "texts": ({}, {"text": "speak"}, "hello there"),
    "tags": ({"classes": ["O", "B-P", "I-P"]}, {"text": "Anna met Bob"}, ["B-P", "I-P", "O"]),
    "spans": (
        {"classes": ["person"]},
        {"text": "\U0001f600 Anna met Bob"},
        [{"start": 2, "end": 6, "label": "person"}],
    ),
}


@pytest.mark.parametrize("kind", ANSWERED)
def test_other_answers_are_given_with_keys_alone(browser: Any, live: Site, kind: str) -> None:
    settings, payload, expected = ANSWERED[kind]
    given = {"name": kind, "answer_type": kind, "unsure": True, **settings}
    campaign = live.call("POST", "/campaigns", 201, json=given)["id"]
    items = [{"item": f"p{i}", "payload": payload} for i in range(2)]
    live.call("POST", f"/campaigns/{campaign}/items", 201, json=items)
    tab = Tab(browser, 360)
    page = tab.join(live, campaign)
    tab.check_look(SIZES[:1])
    if kind == "rankings":
        page.locator(".ranks li:first-child [data-by='1']").focus()
        expected = page.locator(".ranks li").all_inner_texts()
        page.keyboard.press("Enter")
        expected[:2] = expected[1::-1]
        page.locator("#answers .primary").focus()
    elif kind == "texts":
        page.locator("#written").focus()
        page.keyboard.type(expected)
    elif kind == "tags":
        for i in (0, 1):
            page.locator(".token").nth(i).focus()
            page.keyboard.press("Space")
        page.keyboard.press("2")
        page.locator("#answers .primary").focus()
    else:
        page.evaluate(
            "() => { const n = document.querySelector('#marked').firstChild;"
            " getSelection().setBaseAndExtent(n, 3, n, 7); }"
        )
        page.keyboard.press("1")
        page.locator("#marked mark").wait_for()
        page.locator("#answers .primary").focus()
    page.keyboard.press("Enter")
    has_text(page, "#done", "1")
    has_text(page, "#line", "All answers are saved")
    (vote,) = live.call("GET", f"/campaigns/{campaign}/votes")["votes"]
    if kind == "rankings":
        names = [re.findall("answer ([abc])", text)[0] for text in expected]
        assert ["abc"[i] for i in vote["label"]] == names
    else:
        assert vote["label"] == expected
    page.get_by_role("button", name="I don't know").click()
    has_text(page, "#said", "Answered: I don't know.")
    assert tab.said == []


def test_right_to_left_texts_are_shown_right(browser: Any, live: Site) -> None:
    campaign = live.call("POST", "/campaigns", 201, json={"name": "rtl", "classes": ["نعم", "no"]})["id"]
    items = [{"item": "p", "payload": {"text": "هل هذا طائر؟"}}]
    live.call("POST", f"/campaigns/{campaign}/items", 201, json=items)
    page = Tab(browser, 360).join(live, campaign)
    directions = page.evaluate(
        "() => ['.question .text', '.choice:nth-child(1) [dir]', '.choice:nth-child(2) [dir]']"
        ".map((s) => getComputedStyle(document.querySelector(s)).direction)"
    )
    assert directions == ["rtl", "rtl", "ltr"]


def test_the_reference_of_the_api_is_a_page(browser: Any, live: Site) -> None:
    tab = Tab(browser)
    page = tab.sign_in(live, "/api")
    assert page.locator("summary").count() > 40
    page.locator("summary", has_text="/reviews").first.click()
    tab.check_look(SIZES[:1])
    assert json.loads(page.evaluate("() => document.getElementById('messages').textContent"))["_name"] == "English"
