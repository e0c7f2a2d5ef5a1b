"""Tokens and invitations: made once, shown once, kept as a digest, expiring, revocable, with a role."""

from __future__ import annotations

import hashlib
import secrets
import time
import uuid
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from crowdwise.errors import ParameterError
from crowdwise.server.campaign_rows import NotThere
from crowdwise.server.store_tables import tokens

Role = Literal["admin", "lead", "annotator", "reader"]
ROLES: tuple[Role, ...] = ("admin", "lead", "annotator", "reader")
PREFIX = {"token": "cw_", "invitation": "cwi_"}

__all__ = ["ROLES", "Role", "Token", "find_token", "list_tokens", "make_token", "revoke_token", "token_by_id"]


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
        return self.revoked is None and (self.expires is None or self.expires > time.time())

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
    if role not in ROLES:
        raise ParameterError(f"role={role!r}: expected one of {', '.join(ROLES)}.")
    if role == "admin" and campaign is not None:
        raise ParameterError("An admin token holds for all campaigns: leave the campaign out, or make it a lead's.")
    if role != "admin" and campaign is None:
        raise ParameterError(f"A token of a {role} is for one campaign: say which.")
    secret = PREFIX[kind] + secrets.token_urlsafe(32)
    now = time.time()
    made = Token(
        uuid.uuid4().hex[:16], kind, role, name, campaign, annotator, now, None if days is None else now + 86400 * days,
        None,
    )  # fmt: skip
    conn.execute(tokens.insert(), {**vars(made), "hash": digest(secret)})
    return secret, made


def _token(row: Any) -> Token:
    return Token(**{name: value for name, value in row._mapping.items() if name != "hash"})


def find_token(conn: sa.Connection, secret: str) -> Token | None:
    """The token with a secret, valid or not."""
    row = conn.execute(sa.select(tokens).where(tokens.c.hash == digest(secret))).first()
    return None if row is None else _token(row)


def token_by_id(conn: sa.Connection, id_: str) -> Token | None:
    row = conn.execute(sa.select(tokens).where(tokens.c.id == id_)).first()
    return None if row is None else _token(row)


def list_tokens(conn: sa.Connection, campaign: str | None) -> list[Token]:
    """The tokens of a campaign, or all."""
    query = sa.select(tokens).order_by(tokens.c.created, tokens.c.id)
    return [
        _token(row) for row in conn.execute(query if campaign is None else query.where(tokens.c.campaign == campaign))
    ]


def revoke_token(conn: sa.Connection, id_: str, campaign: str | None) -> None:
    """A token holds no longer; sessions that began with it end, too."""
    where = [tokens.c.id == id_, *([] if campaign is None else [tokens.c.campaign == campaign])]
    if conn.execute(sa.select(tokens.c.id).where(*where)).first() is None:
        raise NotThere(f"There is no token {id_!r}.")
    conn.execute(tokens.update().where(*where, tokens.c.revoked.is_(None)).values(revoked=time.time()))
