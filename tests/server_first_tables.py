"""The tables of the first revision, of which the tests make an old store."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

ID, DIGEST, KIND = sa.String(32), sa.String(64), sa.String(12)
TEXT, REAL, INT, LARGE, FLAG = sa.Text(), sa.Float(), sa.Integer(), sa.BigInteger(), sa.Boolean()


def _create(
    table: str, primary: str, *, parent: str = "campaigns", unique: str = "", optional: str = "", **columns: Any
) -> None:
    """A table whose rows go with those of its parent; ``columns``: name -> type."""
    keys, names = primary.split(), unique.split()
    parts: list[Any] = []
    for name, kind in columns.items():
        counted: Any = "auto" if name == "id" or name not in keys else False
        parts.append(sa.Column(name, kind, autoincrement=counted, nullable=name in optional.split()))
    if parent:
        parts.append(sa.ForeignKeyConstraint([parent[:-1]], [f"{parent}.id"], ondelete="CASCADE"))
    if names:
        parts.append(sa.UniqueConstraint(*names, name=f"{table}_{names[-1]}" if len(names) > 1 else None))
    op.create_table(table, *parts, sa.PrimaryKeyConstraint(*keys))


def upgrade() -> None:
    _create(
        "audit", "id", parent="", optional="campaign token",
        id=INT, time=REAL, campaign=ID, token=ID, actor=TEXT, action=sa.String(40), detail=TEXT, address=DIGEST,
    )  # fmt: skip
    op.create_index(op.f("ix_audit_campaign"), "audit", ["campaign"], unique=False)
    _create(
        "campaigns", "id", parent="",
        id=ID, name=TEXT, answer_type=sa.String(16), classes=TEXT, settings=TEXT, state=sa.String(8), version=LARGE,
        last_vote=LARGE, n_answers=LARGE, spent=REAL, created=REAL,
    )  # fmt: skip
    _create("facts", "key", parent="", key=DIGEST, value=TEXT)
    _create(
        "annotators", "campaign number", unique="campaign name", optional="max_votes",
        campaign=ID, number=INT, name=TEXT, price=REAL, available=FLAG, max_votes=INT, version=LARGE,
    )  # fmt: skip
    op.create_index("annotators_version", "annotators", ["campaign", "version"], unique=False)
    _create("answers", "campaign item annotator", campaign=ID, item=INT, annotator=INT, seq=LARGE)
    op.create_index("answers_annotator", "answers", ["campaign", "annotator", "seq"], unique=False)
    _create("events", "id", id=INT, campaign=ID, time=REAL, kind=ID, data=TEXT)
    op.create_index("events_campaign", "events", ["campaign", "id"], unique=False)
    _create(
        "items", "campaign number", unique="campaign name", optional="grp gold",
        campaign=ID, number=INT, name=TEXT, payload=TEXT, grp=TEXT, gold=TEXT, closed=FLAG, priority=REAL,
        version=LARGE,
    )  # fmt: skip
    op.create_index("items_version", "items", ["campaign", "version"], unique=False)
    _create(
        "leases", "campaign item", optional="shown",
        campaign=ID, item=INT, annotator=INT, price=REAL, given=REAL, expires=REAL, shown=TEXT,
    )  # fmt: skip
    op.create_index("leases_annotator", "leases", ["campaign", "annotator"], unique=False)
    _create(
        "points", "campaign seq", optional="accuracy low high skills",
        campaign=ID, seq=LARGE, time=REAL, votes=LARGE, spent=REAL, state=sa.String(16), accuracy=REAL, low=REAL,
        high=REAL, skills=TEXT,
    )  # fmt: skip
    _create("skips", "campaign item annotator", campaign=ID, item=INT, annotator=INT, reason=TEXT, time=REAL)
    _create(
        "tokens", "id", unique="hash", optional="campaign annotator expires revoked",
        id=ID, hash=DIGEST, kind=KIND, role=KIND, name=TEXT, campaign=ID, annotator=INT, created=REAL, expires=REAL,
        revoked=REAL,
    )  # fmt: skip
    _create(
        "votes", "campaign seq", unique="campaign vote_id", optional="seconds shown retracts",
        campaign=ID, seq=LARGE, vote_id=TEXT, item=INT, annotator=INT, answer=TEXT, price=REAL, time=REAL,
        seconds=REAL, shown=TEXT, retracts=LARGE,
    )  # fmt: skip
    _create(
        "webhooks", "id",
        id=ID, campaign=ID, url=TEXT, secret=DIGEST, kinds=TEXT, active=FLAG, last_event=INT, created=REAL,
    )  # fmt: skip
    _create(
        "deliveries", "id", parent="webhooks", unique="webhook event", optional="error",
        id=ID, webhook=ID, event=INT, body=TEXT, state=sa.String(10), tries=INT, due=REAL, error=TEXT, created=REAL,
    )  # fmt: skip
    op.create_index("deliveries_due", "deliveries", ["state", "due"], unique=False)
