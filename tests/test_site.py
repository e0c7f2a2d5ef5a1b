"""The site: it builds without a warning, fetches nothing, describes every public name, can be searched from disk."""

from __future__ import annotations

import html
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import crowdwise
from conftest import ROOT, chromium

sys.path.insert(0, str(ROOT / "docs"))
reference = importlib.import_module("reference")
docstrings = importlib.import_module("docstrings")

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The site, built once in a run."""

    def build(folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return once("site", build)


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_fetches_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(list(DOCS.rglob("*.md"))) + len(reference.pages())
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?(https?://[^\" >]+)", text)
        assert [address for address in fetched if "canonical" not in address] == [], page.name


@pytest.mark.slow
def test_search_works_from_disk(site: Path) -> None:
    """Opened as a file, without a server: what is typed is found, in pages and in the reference."""
    with chromium() as browser:
        page = browser.new_page()
        page.goto((site / "index.html").as_uri())
        page.click("input.md-search__input")
        page.keyboard.type("ConfusionVector")
        page.wait_for_selector(".md-search-result__item a", timeout=60_000)
        found = page.locator(".md-search-result__item a").evaluate_all("links => links.map(link => link.href)")
    assert any("reference/methods.html" in address for address in found)


# -------------------------------------------------------------------- the reference


def anchors() -> set[str]:
    return {
        name for text in reference.pages().values() for name in re.findall(r"^#+ .* \{ #(\S+) \}$", text, flags=re.M)
    }


def test_every_public_name_has_an_entry() -> None:
    """Of crowdwise and of its public packages; what can be reached twice has one entry."""
    values = {id(value): name for name, value in reference.public().items()}
    there = anchors()
    for package in ("", *reference.PACKAGES):
        module = importlib.import_module(f"crowdwise.{package}".rstrip("."))
        found = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
        public = {name: value for name, value in found.items() if not isinstance(value, ModuleType)}
        assert [name for name, value in public.items() if values.get(id(value)) not in there] == [], package


def test_every_entry_says_something() -> None:
    silent = [e.name for e in reference.entries().values() if not reference.first_line(e)]
    assert silent == []


def test_an_entry_has_signature_parameters_members_and_examples() -> None:
    text = reference.describe(reference.entries()["PM"], "##")
    assert "class PM(" in text and "norm='sum'" in text and "| `smoothing` | a number above 0 | `0.5` |" in text
    assert "```pycon\n>>> " in text and "(methods.md#Model.fit)" in text and "](../methods-weights.md#pm)" in text
    votes = reference.describe(reference.entries()["Votes"], "##")
    assert "## from_frame { #Votes.from_frame }" in votes and "Votes.from_records(" in votes


def test_docstrings_become_markdown() -> None:
    """Tables, literal blocks, examples, lists and roles; letters of formulas are not markup."""
    text = "A *b* [c] of :class:`~crowdwise.Votes` and ``x``::\n\n    q = 1\n\n    r = 2\n\n- one\n- two\n\n>>> 1\n1\n"
    shown = docstrings.markdown(text, lambda name: "there.md" if name == "crowdwise.Votes" else None)
    assert shown.split("\n\n")[0] == r"A \*b\* \[c\] of [`Votes`](there.md) and `x`:"
    assert (
        "```text\nq = 1\n\nr = 2\n```" in shown
        and "- one\n- two" in shown
        and shown.endswith("```pycon\n>>> 1\n1\n```")
    )
    lines = ["====  =====", "a     b", "====  =====", "``xy`` or | y", "z     more", "      again", "====  ====="]
    assert docstrings.simple_table(lines).splitlines()[2:] == [r"| `xy` or \| y |  |", "| z | more again |"]


def test_public_packages_can_be_reached() -> None:
    assert all(isinstance(importlib.import_module(f"crowdwise.{name}"), ModuleType) for name in reference.PACKAGES)
    assert isinstance(crowdwise.errors, ModuleType)


def test_the_reference_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in reference.pages() if f"reference/{name}" not in menu] == []
    assert all(html.unescape(page.title) in menu for page in reference.PAGES)
