"""Sends events to webhooks: signed, tried again with growing pauses, given up after some tries.

What is sent is signed with the secret of the webhook, so that the receiver knows who sent it and when:
``X-Crowdwise-Signature: t=TIME,v1=HMAC-SHA256(secret, "TIME.BODY")`` in hexadecimal digits.
Addresses inside the network of the server are refused unless the settings allow them; the address that was checked is
the one that is connected to, and redirects are not followed.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import sqlalchemy as sa

from crowdwise.errors import CrowdwiseError
from crowdwise.server.webhook_rows import claim_due, drop_old, hooks_behind, note_result, take_events

PAUSE = 1.0
SECONDS = 10.0
"""How long a receiver may take."""
KEPT = 7 * 86400.0
"""Seconds for which events and deliveries that arrived are kept."""

log = logging.getLogger("crowdwise.server")

__all__ = ["WebhookSender", "signature"]


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
        for one in due:
            error = self.send(one)
            tries = one["tries"] + 1
            self.write(lambda conn, one=one, tries=tries, error=error: note_result(conn, one["id"], tries, error))
            if self._stop.is_set():
                break
        return len(due)

    def send(self, delivery: dict[str, Any]) -> str | None:
        """Send a delivery; what went wrong, or nothing."""
        parts = urlsplit(delivery["url"])
        host = parts.hostname or ""
        try:
            address = self._resolve(host, parts.port or (443 if parts.scheme == "https" else 80))
            when = int(time.time())
            headers = {
                "Host": parts.netloc, "Content-Type": "application/json", "User-Agent": "crowdwise",
                "X-Crowdwise-Delivery": delivery["id"],
                "X-Crowdwise-Signature": signature(delivery["secret"], when, delivery["body"]),
            }  # fmt: skip
            url = httpx.URL(delivery["url"]).copy_with(host=address)
            with httpx.Client(timeout=SECONDS, trust_env=False) as client:
                answer = client.post(
                    url, content=delivery["body"].encode(), headers=headers, extensions={"sni_hostname": host}
                )
        except (OSError, httpx.HTTPError, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:500]
        return None if answer.is_success else f"It answered {answer.status_code}."

    def _resolve(self, host: str, port: int) -> str:
        """An address of a host, which must not lie inside the network where that is not allowed."""
        found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        if not self.private and any(not ipaddress.ip_address(one.partition("%")[0]).is_global for one in found):
            raise ValueError("The address is inside the network of the server (private_webhooks allows that).")
        return found[0]
