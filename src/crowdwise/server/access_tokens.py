"""Tokens and invitations: made once, shown once, kept as a digest, expiring, revocable, with a role.

Sessions of browsers: a signed cookie that names a token, without a secret; it ends with the token behind it, and when
its owner logs out. Scripts of our pages send a second digest back (CSRF), which other sites cannot read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import uuid
from dataclasses import dataclass, fields
from typing import Any, Literal

import sqlalchemy as sa

from crowdwise.errors import ParameterError
from crowdwise.store import steady_clock
from crowdwise.store.campaign_rows import NotThere
from crowdwise.store.database import main_of
from crowdwise.store.store_tables import ended_sessions, tokens

Role = Literal["admin", "lead", "annotator", "reader"]
PREFIX = {"token": "cw_", "invitation": "cwi_", "signup": "cws_", "joined": "cwj_"}


@dataclass(frozen=True)
class Token:
    """What a token allows. Without a campaign it holds for all."""

    id: str
    kind: str
    role: Role
    name: str
    campaign: str | None
    annotator: int | None
    created: float
    expires: float | None
    revoked: float | None

    @property
    def valid(self) -> bool:
        return self.revoked is None and (self.expires is None or self.expires > steady_clock.now())

    def shown(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "annotator"}


def digest(secret: str) -> str:
    """What is kept of a secret: it has 256 random bits, so that a plain digest cannot be guessed backwards."""
    return hashlib.sha256(secret.encode()).hexdigest()


def make_token(
    conn: sa.Connection, role: Role, name: str, *, kind: str = "token", campaign: str | None = None,
    annotator: int | None = None, days: float | None = None,
) -> tuple[str, Token]:  # fmt: skip
    """A new token: the secret, which is not kept, and what it allows."""
    if role == "admin" and campaign is not None:
        raise ParameterError("An admin token holds for all campaigns: leave the campaign out, or make it a lead's.")
    if role != "admin" and campaign is None:
        raise ParameterError(f"A token of a {role} is for one campaign: say which.")
    if campaign is not None and main_of(campaign) != campaign:
        raise ParameterError(f"A token is for all questions of a campaign: make it for {main_of(campaign)}.")
    secret = PREFIX[kind] + secrets.token_urlsafe(32)
    now = steady_clock.now()
    expires = None if days is None else now + 86400 * days
    token = Token(uuid.uuid4().hex[:16], kind, role, name, campaign, annotator, now, expires, None)
    conn.execute(tokens.insert(), {**vars(token), "hash": digest(secret)})
    return secret, token


_ALL = sa.select(*(tokens.c[f.name] for f in fields(Token)))


def find_token(conn: sa.Connection, by: str | Session) -> Token | None:
    """The token with a secret, or of a session that was not ended; valid or not."""
    if isinstance(by, str):
        where = tokens.c.hash == digest(by)
    else:
        where = (tokens.c.id == by.token) & ~sa.exists().where(ended_sessions.c.id == by.id)
    row = conn.execute(_ALL.where(where)).first()
    return None if row is None else Token(*row)


def list_tokens(conn: sa.Connection, campaign: str | None) -> list[Token]:
    """The tokens of a campaign, or all."""
    where = [] if campaign is None else [tokens.c.campaign == campaign]
    return [Token(*row) for row in conn.execute(_ALL.where(*where).order_by(tokens.c.created, tokens.c.id))]


def revoke_token(conn: sa.Connection, id_: str, campaign: str | None) -> None:
    """A token holds no longer; sessions that began with it end, too."""
    where = [tokens.c.id == id_, *([] if campaign is None else [tokens.c.campaign == campaign])]
    if conn.execute(sa.select(tokens.c.id).where(*where)).first() is None:
        raise NotThere(f"There is no token {id_!r}.")
    conn.execute(tokens.update().where(*where, tokens.c.revoked.is_(None)).values(revoked=steady_clock.now()))


COOKIE = "crowdwise_session"
CSRF_HEADER = "x-csrf-token"


@dataclass(frozen=True)
class Session:
    """A session: its id, the token it began with, when it ends, and its CSRF token."""

    id: str
    token: str
    expires: float
    csrf: str


class Signer:
    """Signs and checks with the key of the server."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def sign(self, purpose: str, text: str) -> str:
        mac = hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()

    def check(self, purpose: str, text: str, signature: str) -> bool:
        return hmac.compare_digest(self.sign(purpose, text).encode(), signature.encode())

    def begin(self, token: str, hours: float) -> str:
        """The cookie of a new session."""
        facts = [token, steady_clock.now() + 3600.0 * hours, secrets.token_urlsafe(9)]
        body = base64.urlsafe_b64encode(json.dumps(facts).encode()).decode()
        return f"{body}.{self.sign('session', body)}"

    def read(self, cookie: str) -> Session | None:
        """The session of a cookie, or nothing where it was not made here or is over."""
        body, _, signature = cookie.partition(".")
        if not self.check("session", body, signature):
            return None
        token, expires, id_ = json.loads(base64.urlsafe_b64decode(body))
        if expires <= steady_clock.now():
            return None
        return Session(id_, token, expires, self.sign("csrf", body))

    def ticket(self, campaign: str, item: Any, annotator: int, shown: str | None) -> str:
        """What shows that an annotator was asked about an item, and in which order the sides of a pair were shown."""
        side = shown or "-"
        return f"{side}.{self.sign('ticket', f'{campaign}/{annotator}/{side}/{json.dumps(item)}')}"

    def read_ticket(self, ticket: str, campaign: str, item: Any, annotator: int) -> tuple[bool, str | None]:
        """Whether a ticket is for this question, and which side was shown first."""
        side, _, signature = ticket.partition(".")
        good = self.check("ticket", f"{campaign}/{annotator}/{side}/{json.dumps(item)}", signature)
        return good, None if side == "-" else side
