"""Sessions of browsers: a signed cookie that names a token, and a second digest that scripts of our pages send back.

The cookie holds no secret and cannot be changed or made without the server's key; it ends with the token behind it.
A form or a script of another site cannot read the page, so that it does not know the CSRF token of the session.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

COOKIE = "crowdwise_session"
CSRF_HEADER = "x-csrf-token"
LET_IN = "crowdwise.let_in"
"""What a request carries once its token or session was found valid."""

__all__ = ["COOKIE", "CSRF_HEADER", "LET_IN", "Session", "Signer"]


@dataclass(frozen=True)
class Session:
    """A session: the token it began with, when it ends, and its CSRF token."""

    token: str
    expires: float
    csrf: str


class Signer:
    """Signs and checks with the key of the server."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def sign(self, purpose: str, text: str) -> str:
        found = hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(found).rstrip(b"=").decode()

    def check(self, purpose: str, text: str, signature: str) -> bool:
        return hmac.compare_digest(self.sign(purpose, text).encode(), signature.encode())

    def begin(self, token: str, hours: float) -> str:
        """The cookie of a new session."""
        facts = [token, time.time() + 3600.0 * hours, secrets.token_urlsafe(9)]
        body = base64.urlsafe_b64encode(json.dumps(facts).encode()).decode()
        return f"{body}.{self.sign('session', body)}"

    def read(self, cookie: str) -> Session | None:
        """The session of a cookie, or nothing where it was not made here or is over."""
        body, _, signature = cookie.partition(".")
        if not self.check("session", body, signature):
            return None
        token, expires, _ = json.loads(base64.urlsafe_b64decode(body))
        if expires <= time.time():
            return None
        return Session(token, expires, self.sign("csrf", body))

    def ticket(self, campaign: str, item: Any, annotator: int, shown: str | None) -> str:
        """What shows that an annotator was asked about an item, and in which order the sides of a pair were shown."""
        side = shown or "-"
        return f"{side}.{self.sign('ticket', f'{campaign}/{annotator}/{side}/{json.dumps(item)}')}"

    def read_ticket(self, ticket: str, campaign: str, item: Any, annotator: int) -> tuple[bool, str | None]:
        """Whether a ticket is for this question, and which side was shown first."""
        side, _, signature = ticket.partition(".")
        good = self.check("ticket", f"{campaign}/{annotator}/{side}/{json.dumps(item)}", signature)
        return good, None if side == "-" else side
