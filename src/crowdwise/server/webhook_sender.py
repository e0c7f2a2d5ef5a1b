"""Sends events to webhooks: signed, tried again with growing pauses, given up after some tries.

What is sent is signed with the secret of the webhook, so that the receiver knows who sent it and when:
``X-Crowdwise-Signature: t=TIME,v1=HMAC-SHA256(secret, "TIME.BODY")`` in hexadecimal digits.
Addresses inside the network of the server are refused unless the settings allow them; the address that was checked is
the one that is connected to, and redirects are not followed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import sqlalchemy as sa

from crowdwise.errors import CrowdwiseError
from crowdwise.server.webhook_rows import CLAIMED, claim_due, drop_old, hooks_behind, note_result, take_events

PAUSE = 1.0
SECONDS = 10.0
"""How long a receiver may take."""
TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "::/96")))
"""Addresses of IPv6 that gateways translate into the address of IPv4 inside them."""
KEPT = 7 * 86400.0
"""Seconds for which events and deliveries that arrived are kept."""

log = logging.getLogger("crowdwise.server")

__all__ = ["WebhookSender", "is_inside", "signature"]


def signature(secret: str, when: int, body: str) -> str:
    """The header that shows who sent a body."""
    found = hmac.new(secret.encode(), f"{when}.{body}".encode(), hashlib.sha256).hexdigest()
    return f"t={when},v1={found}"


class WebhookSender:
    """A thread that sends what is due."""

    def __init__(self, read: Callable[..., Any], write: Callable[..., Any], private: bool, start: bool = True) -> None:
        self.read, self.write, self.private = read, write, private
        self._stop = threading.Event()
        self._cleaned = 0.0
        self._thread = threading.Thread(target=self._loop, name="webhooks", daemon=True)
        if start:
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=SECONDS + 1.0)

    def _loop(self) -> None:
        while not self._stop.wait(PAUSE):
            try:
                self.round()
            except (CrowdwiseError, sa.exc.SQLAlchemyError):
                log.warning("Webhooks wait: the store cannot be reached.")
            except Exception:
                log.exception("Webhooks could not be sent.")

    def round(self) -> int:
        """Make deliveries of new events and send what is due; how many were sent."""
        for hook, campaign in self.read(hooks_behind):
            self.write(lambda conn, hook=hook: take_events(conn, hook), campaign)
        if time.monotonic() - self._cleaned > 3600.0:
            self._cleaned = time.monotonic()
            self.write(lambda conn: drop_old(conn, time.time() - KEPT), "webhooks")
        due = self.write(claim_due, "webhooks")
        asyncio.run(self._send_all(due))
        return len(due)

    async def _send_all(self, due: list[dict[str, Any]]) -> None:
        """Send what is due: to each webhook one after the other, so that a slow receiver holds up itself alone."""
        hooks: dict[str, list[dict[str, Any]]] = {}
        for one in due:
            hooks.setdefault(one["webhook"], []).append(one)
        until = time.monotonic() + CLAIMED / 2.0  # what is left is claimed again

        async def send_some(some: list[dict[str, Any]]) -> None:
            for one in some:
                if self._stop.is_set() or time.monotonic() > until:
                    return
                error, tries = await self._sent(one), one["tries"] + 1
                note = partial(note_result, id_=one["id"], tries=tries, error=error)
                await asyncio.to_thread(self.write, note)

        await asyncio.gather(*map(send_some, hooks.values()))

    def send(self, delivery: dict[str, Any]) -> str | None:
        """Send a delivery; what went wrong, or nothing."""
        return asyncio.run(self._sent(delivery))

    async def _sent(self, delivery: dict[str, Any]) -> str | None:
        """As :meth:`send`. All of it takes up to ``SECONDS``, however slowly a receiver answers; its answer is not read
        beyond the status."""
        try:
            async with asyncio.timeout(SECONDS):
                status = await self._post(delivery)
        except TimeoutError:
            return f"It did not answer within {SECONDS:g} seconds."
        except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:500]
        except Exception as error:  # one that cannot be sent must not hold up the others
            log.exception("A webhook could not be sent.")
            return type(error).__name__
        return None if 200 <= status < 300 else f"It answered {status}."

    async def _post(self, delivery: dict[str, Any]) -> int:
        """The status of the answer."""
        parts = urlsplit(delivery["url"])
        host = parts.hostname or ""
        address = await self._resolve(host, parts.port or (443 if parts.scheme == "https" else 80))
        when = int(time.time())
        headers = {
            "Host": parts.netloc, "Content-Type": "application/json", "User-Agent": "crowdwise",
            "X-Crowdwise-Delivery": delivery["id"],
            "X-Crowdwise-Signature": signature(delivery["secret"], when, delivery["body"]),
        }  # fmt: skip
        url = httpx.URL(delivery["url"]).copy_with(host=address)
        body, more = delivery["body"].encode(), {"sni_hostname": host}
        async with (
            httpx.AsyncClient(timeout=SECONDS, trust_env=False) as client,
            client.stream("POST", url, content=body, headers=headers, extensions=more) as answer,
        ):
            return answer.status_code

    async def _resolve(self, host: str, port: int) -> str:
        """An address of a host, which must not lie inside the network where that is not allowed."""
        loop = asyncio.get_running_loop()
        found = [str(info[4][0]) for info in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        if not self.private and any(is_inside(one) for one in found):
            raise ValueError("The address is inside the network of the server (private_webhooks allows that).")
        return found[0]


def is_inside(address: str) -> bool:
    """Whether an address is, or leads to, one that is not of the public network: IPv6 can hold one of IPv4."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if found.is_multicast or not found.is_global:
        return True
    if isinstance(found, ipaddress.IPv4Address):
        return False
    return found.is_reserved or found.is_site_local or any(found in network for network in TRANSLATED)
