"""The tables of the store, the same in SQLite and PostgreSQL.

Votes are append-only and numbered from 1 within a campaign, in the order in which they were committed: a follower that
has seen vote n asks for those after n and misses none. Taking a vote back appends a row that names it (``retracts``).
``answers`` holds which vote of a pair counts now. Rows of items and annotators carry the ``version`` of the campaign at
which they last changed, so that a model in memory reads only what is new.

Names are JSON text (:mod:`crowdwise.store.canonical`), as in the journal of a campaign folder.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text
from sqlalchemy import UniqueConstraint as Unique

metadata = MetaData()
ID, DIGEST, KIND = String(32), String(64), String(12)


def _table(table: str, keys: str, *constraints: Any, optional: str = "", **columns: Any) -> Table:
    """A table: name -> type of its columns, or (type, default). Those named in ``optional`` may be empty; rows go with
    the campaign or webhook that they name."""
    parts: list[Column[Any]] = []
    for column, kind in columns.items():
        kind, default = kind if isinstance(kind, tuple) else (kind, None)
        of = f"{column}s.id" if column in ("campaign", "webhook") and table != "audit" else None
        parts.append(
            Column(
                column, kind, *([ForeignKey(of, ondelete="CASCADE")] if of else []), primary_key=column in keys.split(),
                nullable=column in optional.split(), default=default, autoincrement="auto" if column == "id" else False,
            )
        )  # fmt: skip
    return Table(table, metadata, *parts, *constraints)


ended_sessions = _table("ended_sessions", "id", id=DIGEST, expires=Float)
"""Sessions that were ended before their time."""
campaigns = _table(
    "campaigns", "id",
    id=ID, name=Text, answer_type=String(16), classes=Text, settings=Text, state=String(8), version=(BigInteger, 0),
    last_vote=(BigInteger, 0), n_answers=(BigInteger, 0), spent=(Float, 0.0), created=Float,
)  # fmt: skip
items = _table(
    "items", "campaign number",
    Unique("campaign", "name", name="items_name"), Index("items_version", "campaign", "version"),
    optional="grp gold settled",
    campaign=ID, number=Integer, name=Text, payload=Text, grp=Text, gold=Text, closed=(Boolean, False),
    priority=(Float, 1.0), version=(BigInteger, 0), settled=Text,
)  # fmt: skip
annotators = _table(
    "annotators", "campaign number",
    Unique("campaign", "name", name="annotators_name"), Index("annotators_version", "campaign", "version"),
    optional="max_votes",
    campaign=ID, number=Integer, name=Text, price=Float, available=(Boolean, True), max_votes=Integer,
    version=(BigInteger, 0),
)  # fmt: skip
votes = _table(
    "votes", "campaign seq",
    Unique("campaign", "vote_id", name="votes_vote_id"), optional="seconds shown retracts",
    campaign=ID, seq=BigInteger, vote_id=Text, item=Integer, annotator=Integer, answer=Text, price=Float, time=Float,
    seconds=Float, shown=Text, retracts=BigInteger,
)  # fmt: skip
answers = _table(
    "answers", "campaign item annotator", Index("answers_annotator", "campaign", "annotator", "seq"),
    campaign=ID, item=Integer, annotator=Integer, seq=BigInteger,
)  # fmt: skip
leases = _table(
    "leases", "campaign item", Index("leases_annotator", "campaign", "annotator"), optional="shown",
    campaign=ID, item=Integer, annotator=Integer, price=Float, given=Float, expires=Float, shown=Text,
)  # fmt: skip
skips = _table(
    "skips", "campaign item annotator", campaign=ID, item=Integer, annotator=Integer, reason=Text, time=Float
)
tokens = _table(
    "tokens", "id", Unique("hash"), optional="campaign annotator expires revoked",
    id=ID, hash=DIGEST, kind=KIND, role=KIND, name=Text, campaign=ID, annotator=Integer, created=Float, expires=Float,
    revoked=Float,
)  # fmt: skip
reviews = _table(
    "reviews", "id", Index("reviews_item", "campaign", "item"), optional="answer before",
    id=Integer, campaign=ID, item=Integer, time=Float, actor=Text, answer=Text, before=Text, note=Text,
)  # fmt: skip
"""Second looks: what each said of an item and what stood before; without an answer it was opened again."""
points = _table(
    "points", "campaign seq", optional="accuracy low high skills",
    campaign=ID, seq=BigInteger, time=Float, votes=BigInteger, spent=Float, state=String(16), accuracy=Float, low=Float,
    high=Float, skills=Text,
)  # fmt: skip
audit = _table(
    "audit", "id", Index("ix_audit_campaign", "campaign"), optional="campaign token",
    id=Integer, time=Float, campaign=ID, token=ID, actor=Text, action=String(40), detail=Text, address=DIGEST,
)  # fmt: skip
events = _table(
    "events", "id", Index("events_campaign", "campaign", "id"), id=Integer, campaign=ID, time=Float, kind=ID, data=Text
)
webhooks = _table(
    "webhooks", "id",
    id=ID, campaign=ID, url=Text, secret=DIGEST, kinds=Text, active=(Boolean, True), last_event=(Integer, 0),
    created=Float,
)  # fmt: skip
deliveries = _table(
    "deliveries", "id",
    Unique("webhook", "event", name="deliveries_event"), Index("deliveries_due", "state", "due"), optional="error",
    id=ID, webhook=ID, event=Integer, body=Text, state=String(10), tries=(Integer, 0), due=Float, error=Text,
    created=Float,
)  # fmt: skip
