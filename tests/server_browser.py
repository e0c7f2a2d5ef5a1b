"""A server on a port and a real browser, for the tests of its pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from conftest import need_module
from crowdwise.server.configuration import load_configuration
from server_site import Site, listening

SIZES = [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")]
HOSTILE = "<script>alert('x')</script>\"&<img src=x onerror=alert(1)>"
"""A name that must stay text."""


@contextmanager
def website(folder: Path) -> Iterator[Site]:
    """A server that listens on a port of this machine."""
    given = {"data": str(folder), "rate_limit": 0.0}
    with (
        listening(load_configuration(given, environment={})) as (url, secret, service),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield Site(client, service, secret)  # type: ignore[arg-type]


@dataclass
class Tab:
    """A page of the server in a window of its own, and what it complained about."""

    browser: Any
    width: int = 1280
    scheme: str = "light"
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = self.browser.new_context(
            viewport={"width": self.width, "height": 800}, color_scheme=self.scheme, reduced_motion="reduce"
        )
        self.context.set_default_timeout(60_000)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))

    def sign_in(self, site: Site, path: str) -> Any:
        """Sign in as the admin and go to a page."""
        self.page.goto(f"{site.client.base_url}/login?next={path}")
        self.page.fill("#token", site.secret)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"{site.client.base_url}{path}")  # the address to sign in ends with the path, too
        return self.page

    def join(self, site: Site, campaign: str, annotator: str = "ann") -> Any:
        """Follow an invitation link to the labelling page."""
        link = site.call("POST", f"/campaigns/{campaign}/invitations", 201, json={"annotator": annotator})["link"]
        self.page.goto(link)
        need_module("playwright.sync_api").expect(self.page.locator("#answers")).not_to_be_empty(timeout=60_000)
        return self.page

    def turn(self, width: int, scheme: str) -> None:
        """Another size and colour scheme."""
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")

    def check_look(self, sizes: list[tuple[int, str]]) -> None:
        """No barrier that axe can see, and nothing that sticks out, in some sizes and colours."""
        axe = need_module("axe_playwright_python.sync_playwright").Axe()
        for width, scheme in sizes:
            self.turn(width, scheme)
            wide = self.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{wide} px of content in a window of {width}"
            found = axe.run(self.page).response["violations"]
            assert [(v["id"], [node["html"] for node in v["nodes"]]) for v in found] == [], (width, scheme)


def has_text(page: Any, selector: str, text: str) -> None:
    """Wait until an element says this (a wait by script would need the eval that the pages forbid)."""
    need_module("playwright.sync_api").expect(page.locator(selector)).to_have_text(text, timeout=60_000)
