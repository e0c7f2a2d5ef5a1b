"""Who may do what, on every route: generated from the table of routes."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from fastapi.routing import APIRoute

from crowdwise.server.access_tokens import Role
from crowdwise.server.app import ROUTERS
from crowdwise.server.caller import Needs
from server_site import Site

OPEN = {"/healthz", "/readyz", "/metrics"}
"""Routes that everybody may call."""
PAGES = {
    "/", "/login", "/logout", "/join/{secret}", "/label/{campaign}", "/watch/{campaign}", "/sample", "/start/{secret}",
    "/new", "/campaign/{campaign}", "/api", "/media/{campaign}/{until}/{signature}/{name:path}",
}  # fmt: skip
"""Pages check sessions themselves: test_pages_need_a_session."""


def roles_of(route: APIRoute) -> tuple[str, ...] | None:
    """The roles that a route lets in; nothing where it does not look."""
    found = [part.call.roles for part in route.dependant.dependencies if isinstance(part.call, Needs)]
    return found[0] if found else None


def routes() -> Iterator[tuple[str, APIRoute]]:
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in sorted(route.methods):
                yield method, route


GUARDED = [(method, route) for method, route in routes() if route.path not in OPEN | PAGES]
NAMES = [f"{method} {route.path}" for method, route in GUARDED]


def test_every_route_is_guarded_or_meant_to_be_open() -> None:
    assert [route.path for _, route in routes() if roles_of(route) is None and route.path not in OPEN | PAGES] == []
    assert {route.path for _, route in routes()} >= OPEN | PAGES


def test_an_address_without_a_page_is_a_page_for_people_and_a_problem_for_programs(site: Site) -> None:
    for_people = site.client.get("/nowhere", headers={"Accept": "text/html,*/*;q=0.8"})
    assert for_people.status_code == 404 and "<h1>Not there</h1>" in for_people.text
    assert "There is nothing at /nowhere." in for_people.text
    for path, accept in (("/nowhere", "*/*"), ("/api/v1/nowhere", "text/html"), ("/static/nowhere.js", "*/*")):
        found = site.client.get(path, headers={"Accept": accept})
        assert found.status_code == 404 and found.json()["title"] == "Not Found"


ONE_STORE = pytest.mark.parametrize("site", ["sqlite"], indirect=True)
"""Who is let in does not depend on the store."""
READ = [route.path for method, route in GUARDED if method == "GET" and "/{campaign}" in route.path]
NO_ERROR = {"/api/v1/campaigns/{campaign}/audit", "/api/v1/campaigns/{campaign}/tokens"}
"""What is left of a campaign that was deleted can be read."""


@ONE_STORE
@pytest.mark.parametrize("path", READ)
def test_a_campaign_that_is_not_there_is_an_error(site: Site, path: str) -> None:
    known = {"campaign": "nowhere", "name": "ann", "item": "i1", "hook": "h", "annotator": "ann"}
    found = site.client.get(path.format(**known), params={"annotator": "ann"}, headers=site.admin)
    assert found.status_code == (200 if path in NO_ERROR else 404), found.text


def test_money_on_pages_is_written_in_full(site: Site) -> None:
    campaign = site.campaign(2, ["ann"], price=1234567.25)
    site.votes(campaign, ("p0", "ann", "wren"))
    signed = {"token": site.secret, "next": "/"}
    home = site.client.post("/login", data=signed, follow_redirects=True).text
    assert "1,234,567 spent" in home
    assert 'placeholder="1234567.25"' in site.client.get(f"/watch/{campaign}").text
    site.client.cookies.clear()


@pytest.fixture(scope="module")
def tokens(site: Site) -> dict[str, Any]:
    """A campaign, tokens of every role for it, and one of a lead of another campaign."""
    campaign, other = site.campaign(), site.campaign()
    made = {role: site.token(role, campaign) for role in ("lead", "reader")}
    made["annotator"] = site.token("annotator", campaign, annotator="ann")
    made["admin"] = site.admin
    return {"campaign": campaign, "roles": made, "other": {r: site.token(r, other) for r in ("lead", "reader")}}


@ONE_STORE
@pytest.mark.parametrize(("method", "route"), GUARDED, ids=NAMES)
def test_a_route_lets_in_its_roles_alone(site: Site, tokens: dict[str, Any], method: str, route: APIRoute) -> None:
    path = route.path.replace("{campaign}", tokens["campaign"])
    path = (
        path.replace("{token}", "none").replace("{name}", "nobody").replace("{item}", "none").replace("{hook}", "none")
    )
    path = path.replace("{delivery}", "none") + "?confirm=wrong&seconds=0.01"

    def status(headers: dict[str, str] | None) -> int:
        if headers and path.startswith("/label-studio"):  # the token is a password there
            secret = headers["Authorization"].removeprefix("Bearer ")
            headers = {"Authorization": f"Basic {base64.b64encode(f'x:{secret}'.encode()).decode()}"}
        return site.client.request(method, path, headers=headers, json={"nothing": 1}).status_code

    assert status(None) == status({"Authorization": "Bearer cw_forged"}) == 401
    assert status({"Authorization": tokens["roles"]["admin"]["Authorization"][:-1]}) == 401
    allowed = roles_of(route) or ()
    for role in get_args(Role):
        found = status(tokens["roles"][role])
        assert (found == 403) == (role not in allowed), (role, found)
        assert found != 401 and found < 500, (role, found)
    if "{campaign}" in route.path:
        assert {status(headers) for headers in tokens["other"].values()} == {403}


def test_pages_need_a_session(site: Site) -> None:
    campaign = site.campaign()
    site.client.cookies.clear()
    for path in ("/", "/new", f"/label/{campaign}", f"/watch/{campaign}", f"/campaign/{campaign}"):
        answer = site.client.get(path, follow_redirects=False)
        assert answer.status_code == 303 and answer.headers["location"].startswith("/login"), path
    browser, csrf = site.browser(campaign)
    for path in (f"/watch/{campaign}", f"/campaign/{campaign}", "/new"):
        assert browser.get(path).status_code == 403
    assert browser.post("/sample", data={"csrf": csrf["x-csrf-token"]}).status_code == 403
    assert browser.get(f"/label/{site.campaign()}").status_code == 403


def test_a_token_can_be_revoked_and_ends_its_sessions(site: Site) -> None:
    campaign = site.campaign()
    browser, _ = site.browser(campaign)
    assert browser.get(f"/api/v1/campaigns/{campaign}/next").status_code == 200
    (token,) = site.call("GET", f"/campaigns/{campaign}/tokens")
    site.call("DELETE", f"/campaigns/{campaign}/tokens/{token['id']}")
    assert browser.get(f"/api/v1/campaigns/{campaign}/next").status_code == 401
    assert site.call("GET", f"/campaigns/{campaign}/tokens")[0]["revoked"] is not None
    actions = [row["action"] for row in site.call("GET", "/audit") if row["campaign"] == campaign]
    assert actions[:2] == ["revoke token", "invite"]


def test_a_token_expires(site: Site) -> None:
    campaign = site.campaign()
    reader = site.token("reader", campaign, days=1e-6)
    time.sleep(0.15)
    site.call("GET", f"/campaigns/{campaign}/status", 401, headers=reader)


def test_secrets_are_not_kept(site: Site) -> None:
    shown = site.call("GET", "/tokens")
    assert all(not {"hash", "secret"} & set(row) for row in shown)
    from crowdwise.store.store_tables import tokens as table

    rows = site.service.read(lambda conn: conn.execute(table.select()).all())
    assert all(site.secret not in str(row) for row in rows)


def test_a_changed_cookie_is_no_session(site: Site) -> None:
    campaign = site.campaign()
    browser, _ = site.browser(campaign)
    cookie = browser.cookies["crowdwise_session"].strip('"')
    for changed in (cookie[:-2], "x" + cookie, cookie.replace(".", ".A"), ".", "", "a.b"):
        browser.cookies.clear()
        answer = browser.get(f"/api/v1/campaigns/{campaign}/next", headers={"cookie": f"crowdwise_session={changed}"})
        assert answer.status_code == 401, changed


def test_an_annotator_sees_nothing_of_others(site: Site) -> None:
    campaign = site.campaign(gold_rate=0.5)
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["p0"], "gold": "wren"})
    site.votes(campaign, ("p1", "bob", "robin"))
    browser, _ = site.browser(campaign)
    text = browser.get(f"/label/{campaign}").text + browser.get(f"/api/v1/campaigns/{campaign}/next?n=50").text
    for word in ("gold", "price", "budget", "bob", "probability"):
        assert word not in text
