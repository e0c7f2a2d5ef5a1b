"""The tables of the store, the same in SQLite and PostgreSQL.

Votes are append-only and numbered from 1 within a campaign, in the order in which they were committed: whoever has seen
vote n asks for those after n and misses none. Taking a vote back appends a row that names it (``retracts``).
``answers`` holds which vote of a pair counts now. Rows of items and annotators carry the ``version`` of the campaign at
which they last changed, so that a model in memory reads only what is new.

Names are JSON text (:mod:`crowdwise.active.canonical`), as in the journal of a campaign folder.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)  # fmt: skip

metadata = MetaData()
ID = String(32)


def _campaign() -> Column[str]:
    return Column("campaign", ID, ForeignKey("campaigns.id", ondelete="CASCADE"), nullable=False, primary_key=True)


facts = Table(
    "facts", metadata,
    Column("key", String(64), primary_key=True), Column("value", Text, nullable=False),
)  # fmt: skip
campaigns = Table(
    "campaigns", metadata,
    Column("id", ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("answer_type", String(16), nullable=False),
    Column("classes", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("state", String(8), nullable=False),
    Column("version", BigInteger, nullable=False, default=0),
    Column("last_vote", BigInteger, nullable=False, default=0),
    Column("n_answers", BigInteger, nullable=False, default=0),
    Column("spent", Float, nullable=False, default=0.0),
    Column("created", Float, nullable=False),
)  # fmt: skip
items = Table(
    "items", metadata,
    _campaign(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("grp", Text),
    Column("gold", Text),
    Column("closed", Boolean, nullable=False, default=False),
    Column("priority", Float, nullable=False, default=1.0),
    Column("version", BigInteger, nullable=False, default=0),
    UniqueConstraint("campaign", "name", name="items_name"),
    Index("items_version", "campaign", "version"),
)  # fmt: skip
annotators = Table(
    "annotators", metadata,
    _campaign(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("price", Float, nullable=False),
    Column("available", Boolean, nullable=False, default=True),
    Column("max_votes", Integer),
    Column("version", BigInteger, nullable=False, default=0),
    UniqueConstraint("campaign", "name", name="annotators_name"),
    Index("annotators_version", "campaign", "version"),
)  # fmt: skip
votes = Table(
    "votes", metadata,
    _campaign(),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("vote_id", Text, nullable=False),
    Column("item", Integer, nullable=False),
    Column("annotator", Integer, nullable=False),
    Column("answer", Text, nullable=False),
    Column("price", Float, nullable=False),
    Column("time", Float, nullable=False),
    Column("seconds", Float),
    Column("shown", Text),
    Column("retracts", BigInteger),
    UniqueConstraint("campaign", "vote_id", name="votes_vote_id"),
)  # fmt: skip
answers = Table(
    "answers", metadata,
    _campaign(),
    Column("item", Integer, primary_key=True, autoincrement=False),
    Column("annotator", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Index("answers_annotator", "campaign", "annotator", "seq"),
)  # fmt: skip
leases = Table(
    "leases", metadata,
    _campaign(),
    Column("item", Integer, primary_key=True, autoincrement=False),
    Column("annotator", Integer, nullable=False),
    Column("price", Float, nullable=False),
    Column("given", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("shown", Text),
    Index("leases_annotator", "campaign", "annotator"),
)  # fmt: skip
skips = Table(
    "skips", metadata,
    _campaign(),
    Column("item", Integer, primary_key=True, autoincrement=False),
    Column("annotator", Integer, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
    Column("time", Float, nullable=False),
)  # fmt: skip
tokens = Table(
    "tokens", metadata,
    Column("id", ID, primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("kind", String(12), nullable=False),
    Column("role", String(12), nullable=False),
    Column("name", Text, nullable=False),
    Column("campaign", ID, ForeignKey("campaigns.id", ondelete="CASCADE")),
    Column("annotator", Integer),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
)  # fmt: skip
points = Table(
    "points", metadata,
    _campaign(),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("time", Float, nullable=False),
    Column("votes", BigInteger, nullable=False),
    Column("spent", Float, nullable=False),
    Column("state", String(16), nullable=False),
    Column("accuracy", Float),
    Column("low", Float),
    Column("high", Float),
    Column("skills", Text),
)  # fmt: skip
audit = Table(
    "audit", metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("time", Float, nullable=False),
    Column("campaign", ID, index=True),
    Column("token", ID),
    Column("actor", Text, nullable=False),
    Column("action", String(40), nullable=False),
    Column("detail", Text, nullable=False),
    Column("address", String(64), nullable=False),
)  # fmt: skip
events = Table(
    "events", metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("campaign", ID, ForeignKey("campaigns.id", ondelete="CASCADE"), nullable=False),
    Column("time", Float, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("data", Text, nullable=False),
    Index("events_campaign", "campaign", "id"),
)  # fmt: skip
webhooks = Table(
    "webhooks", metadata,
    Column("id", ID, primary_key=True),
    Column("campaign", ID, ForeignKey("campaigns.id", ondelete="CASCADE"), nullable=False),
    Column("url", Text, nullable=False),
    Column("secret", String(64), nullable=False),
    Column("kinds", Text, nullable=False),
    Column("active", Boolean, nullable=False, default=True),
    Column("last_event", Integer, nullable=False, default=0),
    Column("created", Float, nullable=False),
)  # fmt: skip
deliveries = Table(
    "deliveries", metadata,
    Column("id", ID, primary_key=True),
    Column("webhook", ID, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("event", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("state", String(10), nullable=False),
    Column("tries", Integer, nullable=False, default=0),
    Column("due", Float, nullable=False),
    Column("error", Text),
    Column("created", Float, nullable=False),
    UniqueConstraint("webhook", "event", name="deliveries_event"),
    Index("deliveries_due", "state", "due"),
)  # fmt: skip
