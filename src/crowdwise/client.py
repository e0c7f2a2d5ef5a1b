"""A client of ``crowdwise serve``: campaigns on a server, used like those in a folder.

Calls are repeated where the connection fails or the server is busy, with growing pauses; a vote carries an id from its
first try on, so that it counts once however often it is sent.

    with cw.Client("https://labels.example.org", token="cw_...") as client:
        birds = client.create_campaign("birds", classes=["wren", "robin"], budget=500)
        birds.add_items(["photo1", "photo2"], payloads={"photo1": {"image": "https://example.org/1.jpg"}})
        print(birds.invite("ann"))
        print(birds.status()["state"])
"""

from __future__ import annotations

import json
import os
import random
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from crowdwise import errors
from crowdwise.errors import CrowdwiseError, InputError, OutputError, ParameterError, several_names

if TYPE_CHECKING:
    import httpx

    from crowdwise.store.intake import Receipt

REFUSED = (429, 503)  # answers after which any request is repeated: nothing was done
BUSY = (*REFUSED, 502, 504)
"""Answers after which one that may be made twice is repeated: a proxy that waited in vain cannot say what was done."""
BULK = 5_000  # votes that are sent at once
TOKEN = "CROWDWISE_TOKEN"  # the variable of the token, where none is given

__all__ = ["AccessError", "Client", "RemoteCampaign", "RemoteQuestion"]


class AccessError(CrowdwiseError):
    """The server does not let the token do this."""


class Connection:
    """Requests to a server (its address may have a path), repeated while it cannot be reached or is busy: so many
    ``retries``, each after a pause about twice as long as the one before, from ``pause`` to ``most`` seconds, or as the
    server asks for. ``transport`` sends requests, ``sleep`` waits: others in tests."""

    def __init__(
        self, url: str, retries: int, timeout: float, *, pause: float, most: float,
        transport: httpx.BaseTransport | None = None, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        import httpx

        parts = httpx.URL("")
        with suppress(httpx.InvalidURL):
            parts = httpx.URL(url.strip())
        odd = parts.userinfo or parts.query or parts.fragment or (parts.port or 0) >= 2**16
        if parts.scheme not in ("http", "https") or not parts.host or odd:
            raise ParameterError(f"{url!r} is not a server URL: expected http://host:port or https://host.")
        self.url, self.retries, self.pause, self.most, self.sleep = url.strip().rstrip("/"), retries, pause, most, sleep
        self._options: Any = {"timeout": timeout, "transport": transport, "verify": ssl.create_default_context()}
        self._http = httpx.Client(**self._options)

    def close(self) -> None:
        """Close all connections; the next request opens one."""
        self._http.close()

    def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None, *, repeatable: bool,
        query: Mapping[str, Any] | None = None,
    ) -> httpx.Response:  # fmt: skip
        """The answer of the server, whatever it is; a ``ConnectionError`` where there is none. A request that is not
        ``repeatable`` is repeated only where it cannot have been carried out."""
        import httpx

        if self._http.is_closed:
            self._http = httpx.Client(**self._options)
        address = self.url + path
        request = self._http.build_request(method, address, headers=headers, content=content, params=query or None)
        for attempt in range(self.retries + 1):
            wait = None
            try:
                reply = self._http.send(request)
            except httpx.RequestError as error:
                unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
                if attempt == self.retries or not (unsent or repeatable):
                    tried = f" ({attempt + 1} attempts)" if attempt else ""
                    raise ConnectionError(f"{str(error) or type(error).__name__}{tried}") from error
            else:
                if attempt == self.retries or reply.status_code not in (BUSY if repeatable else REFUSED):
                    return reply
                wait = reply.headers.get("Retry-After", "")
            drawn = min(self.most, self.pause * 2.0**attempt) * (0.5 + random.random())
            self.sleep(min(float(wait), 60.0) if wait and wait.isdecimal() else drawn)
        raise AssertionError("unreachable")


def checked_token(token: str, variable: str, what: str) -> str:
    """A token that can be a header."""
    token = token.strip()
    if not token:
        raise ParameterError(f"No token: set {variable} to {what}.")
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ParameterError(f"{variable} holds something else than a token: letters, digits, dots and dashes.")
    return token


@dataclass(frozen=True)
class RemoteQuestion:
    """A question for an annotator: what is shown of the item, until when it is leased, and the ticket of an answer."""

    item: Any
    annotator: Any
    payload: dict[str, Any]
    expires: float
    ticket: str
    first: str | None = None


class Client:
    """A connection to a server.

    Parameters
    ----------
    url
        The address of the server.
    token
        A token of it; by default that in the variable ``CROWDWISE_TOKEN``.
    retries
        How often a call is repeated where the connection fails or the server is busy.
    timeout
        Seconds to wait for an answer.
    """

    def __init__(self, url: str, token: str | None = None, *, retries: int = 5, timeout: float = 60.0) -> None:
        self._connection = Connection(url, retries, timeout, pause=0.1, most=10.0)
        self.url = self._connection.url
        secret = os.environ.get(TOKEN, "") if token is None else token
        self._token = checked_token(secret, TOKEN, "a token of the server")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next call opens one."""
        self._connection.close()

    def call(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None,
        repeatable: bool | None = None, media: str = "application/json",
    ) -> Any:  # fmt: skip
        """A call of the API: the JSON of its answer (or bytes, where it is none). A call that must not be made twice is
        repeated only where the server said that nothing was done."""
        repeatable = method != "POST" if repeatable is None else repeatable
        params = {name: value for name, value in (query or {}).items() if value is not None}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body, default=_plain).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        headers |= {} if data is None else {"Content-Type": media}
        try:
            reply = self._connection.send(method, f"/api/v1{path}", headers, data, repeatable=repeatable, query=params)
        except ConnectionError as error:
            raise OutputError(f"{self.url} could not be reached: {error}.") from error
        return _answer(reply)

    def campaigns(self) -> list[dict[str, Any]]:
        """All campaigns that the token may see."""
        return list(self.call("GET", "/campaigns"))

    def campaign(self, name: str) -> RemoteCampaign:
        """A campaign by its id or its name."""
        rows = self.campaigns()
        same = [row for row in rows if row["id"] == name] or [row for row in rows if row["name"] == name]
        if len(same) != 1:
            why = "There is no campaign" if not same else f"{len(same)} campaigns are called"
            raise InputError(f"{why} {name!r} on {self.url}." + (" Name it by its id." if same else ""))
        return RemoteCampaign(self, same[0]["id"], same[0]["name"])

    def create_campaign(self, name: str, *, classes: Sequence[Any] | None = None, **settings: Any) -> RemoteCampaign:
        """Make a campaign; settings as in the API: ``budget``, ``target``, ``answer_type``, ``instructions``, ..."""
        body = {"name": name, "classes": None if classes is None else several_names(classes, "classes"), **settings}
        return RemoteCampaign(self, self.call("POST", "/campaigns", body)["id"], name)

    def create_token(self, role: str, name: str, campaign: str | None = None, **more: Any) -> str:
        """A new token: its secret, which is shown once."""
        return str(self.call("POST", "/tokens", {"role": role, "name": name, "campaign": campaign, **more})["secret"])


class RemoteCampaign:
    """A campaign on a server; the methods are those of :class:`crowdwise.Campaign`, as far as a server has them."""

    def __init__(self, client: Client, id_: str, name: str) -> None:
        self.client, self.id, self.name = client, id_, name
        self._why: dict[Any, str | None] = {}

    def __repr__(self) -> str:
        return f"RemoteCampaign({self.name!r}, {self.client.url}, id={self.id!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self.client.call(method, f"/campaigns/{self.id}{path}", body, **more)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as the server has them now."""
        return dict(self._call("GET", "")["settings"])

    def add_items(
        self, items: Iterable[Any], gold: Mapping[Any, Any] | None = None, groups: Mapping[Any, Any] | None = None,
        payloads: Mapping[Any, Mapping[str, Any]] | None = None,
    ) -> int:  # fmt: skip
        """Declare items, or change what is known (``gold``) and shown of them (name -> payload); how many are new."""
        facts = {"gold": gold or {}, "group": groups or {}, "payload": payloads or {}}
        names = dict.fromkeys([*several_names(items, "items"), *(name for of in facts.values() for name in of)])
        rows = [{"item": name, **{part: of[name] for part, of in facts.items() if name in of}} for name in names]
        return int(self._call("POST", "/items", rows, repeatable=True)["new"]) if rows else 0

    def close_items(self, items: Iterable[Any], closed: bool = True) -> None:
        """Ask nothing more about some items, and refuse votes on them (or open them again)."""
        self._call("PATCH", "/items", {"items": several_names(items, "items"), "closed": closed})

    def set_gold(self, item: Any, answer: Any) -> None:
        """Say what the answer on an item is."""
        self._call("PATCH", "/items", {"items": [item], "gold": answer})

    def draw_for_gold(self, n: int = 100) -> list[Any]:
        """Draw items at random whose gold labels (:meth:`prove`) prove how many labels are wrong (``max_error``)."""
        return list(self._call("POST", "/proof/draw", {"n": n})["items"])

    def prove(self, gold: Mapping[Any, Any]) -> dict[str, Any] | None:
        """Hand in gold labels of items that were drawn; what is then known, as in :meth:`status`."""
        answer = self._call("POST", "/proof", {"gold": list(gold.items())}, repeatable=True)
        return dict(answer["proof"]) if answer["proof"] else None

    def add_annotators(self, annotators: Mapping[Any, float] | Iterable[Any]) -> int:
        """Declare annotators (names, or names with the price of a vote), or change prices; how many are new."""
        named = isinstance(annotators, Mapping)
        prices = dict(annotators) if named else dict.fromkeys(several_names(annotators, "annotators"))
        rows = [{"annotator": name, "price": price} for name, price in prices.items()]
        return int(self._call("POST", "/annotators", rows, repeatable=True)["new"]) if rows else 0

    def set_annotator(
        self, name: Any, *, available: bool | None = None, max_votes: int | None = None, price: float | None = None
    ) -> None:
        """Say whether an annotator is asked, the most votes, and what a vote costs from now on."""
        changes = {"available": available, "max_votes": max_votes, "price": price}
        self._call("PATCH", "/annotators", changes, query={"name": str(name)})

    def invite(self, annotator: Any, *, days: float = 30.0, price: float | None = None) -> str:
        """A link that lets an annotator label in a browser."""
        return str(self._call("POST", "/invitations", {"annotator": annotator, "days": days, "price": price})["link"])

    def change(self, **settings: Any) -> dict[str, tuple[Any, Any]]:
        """Change settings: name -> (before, now) of what is different. ``None`` takes a limit away."""
        return {name: (before, now) for name, (before, now) in self._call("PATCH", "", settings).items()}

    def set_state(self, state: str) -> None:
        """``open``, ``paused`` (nothing is handed out) or ``closed`` (votes are not taken either)."""
        self._call("PUT", "/state", {"state": state})

    def delete(self) -> None:
        """Delete the campaign with all its votes."""
        self._call("DELETE", "", query={"confirm": self.name})

    def add(self, votes: Any, ids: Sequence[Any] | None = None) -> Receipt:
        """Add votes, as :meth:`crowdwise.Campaign.add` takes them; up to 5,000 are added all or none. Without ids they
        are identified by item and annotator."""
        from crowdwise.store.canonical import id_text
        from crowdwise.store.intake import Receipt, read_rows

        rows, own_ids = read_rows(votes)
        ids = own_ids if ids is None else list(ids)
        if ids is not None and len(ids) != len(rows):
            raise InputError(f"There are {len(rows)} votes and {len(ids)} ids: give one for each. Nothing was added.")
        added = repeated = 0
        for lo in range(0, len(rows), BULK):
            part = [
                {"item": n, "annotator": m, "label": k, "id": None if ids is None else id_text(ids[lo + i])}
                for i, (n, m, k) in enumerate(rows[lo : lo + BULK])
            ]
            receipt = self._call("POST", "/votes", {"votes": part}, repeatable=True)
            added, repeated = added + receipt["added"], repeated + receipt["repeated"]
        return Receipt(added, repeated)

    def vote(
        self, question: RemoteQuestion, answer: Any, *, seconds: float | None = None,
        others: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Answer a question, and further ones about its item (``others``); the receipt may hold ``feedback``."""
        asked = {"item": question.item, "annotator": question.annotator, "ticket": question.ticket}
        vote = {**asked, "label": answer, "id": uuid.uuid4().hex, "seconds": seconds, "others": others}
        return dict(self._call("POST", "/votes", vote, repeatable=True))

    def next_for(self, annotator: Any = None, n: int = 1) -> list[RemoteQuestion]:
        """What an annotator should do now; with the token of an annotator, what its owner should."""
        answer = self._call("GET", "/next", query={"annotator": annotator, "n": n})
        self._why[annotator] = answer["why_none"] or answer["state"]
        return [RemoteQuestion(annotator=annotator, **one) for one in answer["questions"]]

    def why_none(self, annotator: Any = None) -> str | None:
        """Why the last :meth:`next_for` gave no question."""
        return self._why.get(annotator)

    def release(self, annotator: Any = None, items: Iterable[Any] | None = None) -> int:
        """Take back open questions of an annotator, about some items, or both; how many there were."""
        body = {"annotator": annotator, "items": None if items is None else several_names(items, "items")}
        return int(self._call("POST", "/release", body, repeatable=True)["released"])

    def skip(self, annotator: Any, items: Iterable[Any], skipped: bool = True, reason: str = "") -> None:
        """Never ask an annotator about some items again (or ask again)."""
        for item in several_names(items, "items"):
            body = {"annotator": annotator, "item": item, "reason": reason, "skipped": skipped}
            self._call("POST", "/skip", body, repeatable=True)

    def undo(self, annotator: Any = None, item: Any = None) -> dict[str, Any]:
        """Take back a vote: that on an item, or the last of the annotator."""
        return dict(self._call("POST", "/undo", {"annotator": annotator, "item": item}))

    def status(self) -> dict[str, Any]:
        """Counts, money, the estimated accuracy, and its status."""
        return dict(self._call("GET", "/status"))

    def labels(self, since: int | None = None, **filters: Any) -> Iterator[dict[str, Any]]:
        """The consensus of each item, page after page; filters as in the API."""
        offset: int | None = 0
        while offset is not None:
            page = self._call("GET", "/consensus", query={"since": since, "offset": offset, **filters})
            yield from page["items"]
            offset = page["next"]

    def consensus_frame(self, table: str = "items", *, probabilities: bool = False) -> Any:
        """The consensus (``items``) or the reliability of ``annotators`` as a polars table."""
        import io

        import polars as pl

        if table == "annotators":
            return pl.DataFrame(self.reliability(), infer_schema_length=None)
        query = {"format": "parquet", "probabilities": str(probabilities).lower()}
        return pl.read_parquet(io.BytesIO(self._call("GET", "/consensus", query=query)))

    def reliability(self) -> list[dict[str, Any]]:
        """The reliability of each annotator, with intervals."""
        return list(self._call("GET", "/reliability"))

    def votes(self) -> Iterator[dict[str, Any]]:
        """The votes that count, in their order."""
        after: int | None = 0
        while after is not None:
            page = self._call("GET", "/votes", query={"after": after})
            yield from page["votes"]
            after = page["next"]

    def history(self) -> list[dict[str, Any]]:
        """What was changed since the campaign was made: ``time``, ``what``, ``detail`` and who did it (``actor``)."""
        shown = {"time": "time", "what": "action", "detail": "detail", "actor": "actor"}
        rows = reversed(self._call("GET", "/audit", query={"limit": 1000}))
        return [{name: row[own] for name, own in shown.items()} for row in rows]


def _plain(value: Any) -> Any:
    """A number of numpy as JSON can say it."""
    if hasattr(value, "item"):
        return value.item()
    raise InputError(f"{value!r} cannot be sent to a server: expected text or a number. Nothing was sent.")


def _answer(reply: httpx.Response) -> Any:
    """What a call gave; an error in the words of the server."""
    status, kind = reply.status_code, reply.headers.get("Content-Type", "").partition(";")[0]
    is_json = kind in ("application/json", "application/problem+json")
    content = json.loads(reply.content) if is_json and reply.content else reply.content
    if status < 400:
        return content
    if not isinstance(content, dict):
        raise OutputError(f"The server answered {status}.")
    detail = str(content.get("detail", status))
    if status in (401, 403):
        raise AccessError(detail)
    known = getattr(errors, str(content.get("title")), None)
    if isinstance(known, type) and issubclass(known, CrowdwiseError):
        raise known(detail)
    raise (OutputError if status >= 500 or status in BUSY else InputError)(detail)
