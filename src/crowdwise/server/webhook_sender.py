"""Sends events to webhooks: tried again with growing pauses, given up after some tries, signed with the secret of the
webhook: ``X-Crowdwise-Signature: t=TIME,v1=HMAC-SHA256(secret, "TIME.BODY")`` in hexadecimal digits.

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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import sqlalchemy as sa

from crowdwise.errors import CrowdwiseError
from crowdwise.store import steady_clock
from crowdwise.store.webhook_rows import CLAIMED, claim_due, drop_old, hooks_behind, is_due, note_result, take_events

PAUSE = 1.0
SECONDS = 10.0  # how long a receiver may take
LOOKUPS = 100
"""Names that are looked up at a time: one whose server does not answer holds its thread for longer than it is waited
for, and all others share those of asyncio."""
SPECIAL = tuple(map(ipaddress.ip_network, (
    "192.0.0.0/24", "192.88.99.0/24", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/23", "2002::/16", "3fff::/20", "::/96",
)))  # fmt: skip
"""Addresses of protocols, relays and examples; those of IPv6 may be translated into the address of IPv4 inside them."""

log = logging.getLogger("crowdwise.server")

__all__ = ["WebhookSender", "is_inside", "signature"]


def signature(secret: str, when: int, body: str) -> str:
    """The header that shows who sent a body."""
    mac = hmac.new(secret.encode(), f"{when}.{body}".encode(), hashlib.sha256).hexdigest()
    return f"t={when},v1={mac}"


class WebhookSender:
    """A thread that sends what is due."""

    def __init__(self, read: Callable[..., Any], write: Callable[..., Any], private: bool, start: bool = True) -> None:
        self.read, self.write, self.private = read, write, private
        self._stop = threading.Event()
        self._cleaned = 0.0
        self._lookups = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="names")
        self._thread = threading.Thread(target=lambda: asyncio.run(self._rounds()), name="webhooks", daemon=True)
        if start:
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=SECONDS + 1.0)
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _rounds(self) -> None:
        """One round after the other; a webhook that is slow goes on beside them, and holds up itself alone."""
        sending: dict[str, asyncio.Task[None]] = {}
        while not await asyncio.to_thread(self._stop.wait, PAUSE):
            sending = {hook: task for hook, task in sending.items() if not task.done()}
            try:
                due = await asyncio.to_thread(self.claim, list(sending))
            except (CrowdwiseError, sa.exc.SQLAlchemyError):
                log.warning("Webhooks wait: the store cannot be reached.")
            except Exception:
                log.exception("Webhooks could not be sent.")
            else:
                for hook in dict.fromkeys(one["webhook"] for one in due):
                    mine = [one for one in due if one["webhook"] == hook]
                    sending[hook] = asyncio.create_task(self.send_some(mine))
        await asyncio.gather(*sending.values(), return_exceptions=True)

    def claim(self, busy: list[str]) -> list[dict[str, Any]]:
        """What is due of webhooks that are not busy; nothing is written without need."""
        behind = self.read(hooks_behind)
        for hook, campaign in behind:
            self.write(lambda conn, hook=hook: take_events(conn, hook), campaign)
        if not behind and time.monotonic() - self._cleaned > 3600.0:
            self._cleaned = time.monotonic()
            self.clean()
        if not self.read(is_due):
            return []
        return list(self.write(lambda conn: claim_due(conn, busy)))

    def clean(self) -> None:
        """Forget old events and deliveries, a few at a time."""
        while not self._stop.is_set() and self.write(drop_old):
            pass

    async def send_some(self, deliveries: list[dict[str, Any]]) -> None:
        """Send what is due to one webhook, in order."""
        until = time.monotonic() + CLAIMED / 2.0  # what is left is claimed again
        for one in deliveries:
            if self._stop.is_set() or time.monotonic() > until:
                return
            error, tries = await self.sent(one), one["tries"] + 1
            await asyncio.to_thread(self.write, partial(note_result, id_=one["id"], tries=tries, error=error))

    async def sent(self, delivery: dict[str, Any]) -> str | None:
        """Send a delivery; what went wrong, or nothing. All of it takes up to ``SECONDS``, however slowly a receiver
        answers; its answer is not read beyond the status."""
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
        when = int(steady_clock.now())
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
        find = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        answer = await asyncio.get_running_loop().run_in_executor(self._lookups, find)
        addresses = [str(info[4][0]) for info in answer]
        if not self.private and any(is_inside(one) for one in addresses):
            raise ValueError("The address is inside the network of the server (private_webhooks allows that).")
        return addresses[0]


def is_inside(address: str) -> bool:
    """Whether an address is, or leads to, one that is not of the public network: IPv6 can hold one of IPv4."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip.is_multicast or not ip.is_global or any(ip in network for network in SPECIAL):
        return True
    return isinstance(ip, ipaddress.IPv6Address) and (ip.is_reserved or ip.is_site_local)
