"""Names of items and annotators in the store, and their numbers, which never change; codes of models are one less."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crowdwise.store.campaign_rows import unknown_names
from crowdwise.store.canonical import name_text, one_kind, other_kind
from crowdwise.store.database import AT_ONCE

CHUNK = 10_000
"""Rows that are written at once."""


def first_name(conn: sa.Connection, table: sa.Table, campaign: str) -> str | None:
    """The JSON text of a name that is there: all are of its kind; nothing where there is none."""
    found: str | None = conn.execute(sa.select(table.c.name).where(table.c.campaign == campaign).limit(1)).scalar()
    return found


def written_texts(conn: sa.Connection, table: sa.Table, campaign: str, names: Iterable[Any]) -> list[str]:
    """The JSON text of each name, of the kind that is there: 7 also finds "7"."""
    return texts_of_kind(first_name(conn, table, campaign), table, names)


def texts_of_kind(first: str | None, table: sa.Table, names: Iterable[Any]) -> list[str]:
    """The JSON text of each name, of the kind of the first."""
    texts = [name_text(name, table.name.removesuffix("s")) for name in names]
    if first is None:
        return texts
    return [text if (text[0] == '"') == (first[0] == '"') else other_kind(text) or text for text in texts]


def known_numbers(conn: sa.Connection, table: sa.Table, campaign: str, texts: Sequence[str]) -> dict[str, int]:
    """JSON text of a name -> its number, for those that are there."""
    distinct = list(dict.fromkeys(texts))
    found: dict[str, int] = {}
    query = sa.select(table.c.name, table.c.number).where(
        table.c.campaign == campaign, table.c.name.in_(sa.bindparam("names", expanding=True))
    )
    for lo in range(0, len(distinct), AT_ONCE):
        found.update({row.name: row.number for row in conn.execute(query, {"names": distinct[lo : lo + AT_ONCE]})})
    return found


def find_numbers(conn: sa.Connection, table: sa.Table, campaign: str, names: Iterable[Any]) -> list[int]:
    """The numbers of names that must be there."""
    texts = written_texts(conn, table, campaign, names)
    known = known_numbers(conn, table, campaign, texts)
    missing = [json.loads(text) for text in dict.fromkeys(texts) if text not in known]
    if missing:
        raise unknown_names(table.name, missing)
    return [known[text] for text in texts]


def add_names(
    conn: sa.Connection, table: sa.Table, campaign: str, texts: Sequence[str], facts: Mapping[str, Any],
    each: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, int]:  # fmt: skip
    """Add names that are new with some facts, and those of each; the numbers of these."""
    one_kind(filter(None, [first_name(conn, table, campaign), *texts]), table.name)
    query = sa.select(sa.func.coalesce(sa.func.max(table.c.number), 0)).where(table.c.campaign == campaign)
    last = int(conn.execute(query).scalar_one())
    numbers = {text: last + 1 + i for i, text in enumerate(texts)}
    for lo in range(0, len(texts), CHUNK):
        rows = [
            {"campaign": campaign, "number": numbers[text], "name": text, **facts, **(each[text] if each else {})}
            for text in texts[lo : lo + CHUNK]
        ]
        conn.execute(table.insert(), rows)
    return numbers
