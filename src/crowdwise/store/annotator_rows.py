"""Annotators in the store: who labels, at what price, and whether they are asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from crowdwise.core.constraints import is_count
from crowdwise.errors import ParameterError
from crowdwise.store.campaign_rows import CampaignRow, add_event, bump
from crowdwise.store.canonical import checked_price
from crowdwise.store.name_rows import add_names, find_numbers, known_numbers, written_texts
from crowdwise.store.store_tables import annotators, answers


def add_annotators(conn: sa.Connection, row: CampaignRow, prices: Mapping[Any, float | None]) -> dict[Any, int]:
    """Declare annotators, or change prices (``None``: that of the campaign); name -> number."""
    names = list(prices)
    default = row.settings["price"]
    wanted = [checked_price(name, default if prices[name] is None else prices[name]) for name in names]
    texts = written_texts(conn, annotators, row.id, names)
    known = known_numbers(conn, annotators, row.id, texts)
    version = bump(conn, row.id)
    fresh = [text for text in dict.fromkeys(texts) if text not in known]
    new = add_names(conn, annotators, row.id, fresh, {"price": default, "version": version})
    numbers = known | new
    for text, name, price in zip(texts, names, wanted, strict=True):
        if text in new or prices[name] is not None:
            _update(conn, row.id, numbers[text], version, {"price": price})
    add_event(conn, row.id, "annotators", {"new": len(new)})
    return {name: numbers[text] for name, text in zip(names, texts, strict=True)}


def change_annotator(
    conn: sa.Connection, row: CampaignRow, name: Any, *, available: bool | None = None, max_votes: int | None = None,
    price: float | None = None,
) -> None:  # fmt: skip
    """Say whether an annotator is asked, the most votes, and what a vote costs from now on."""
    (number,) = find_numbers(conn, annotators, row.id, [name])
    price = None if price is None else checked_price(name, price)
    if max_votes is not None and not (is_count(max_votes) and 0 <= max_votes < 2**31):
        raise ParameterError(f"max_votes={max_votes!r}: expected a whole number from 0.")
    given = {"available": available, "max_votes": max_votes, "price": price}
    given = {key: value for key, value in given.items() if value is not None}
    if not given:
        raise ParameterError("Say what is changed: available, max_votes or price.")
    _update(conn, row.id, number, bump(conn, row.id), given)
    add_event(conn, row.id, "annotators", {"new": 0, "changed": name, **given})


def _update(conn: sa.Connection, campaign: str, number: int, version: int, values: Mapping[str, Any]) -> None:
    where = annotators.update().where(annotators.c.campaign == campaign, annotators.c.number == number)
    conn.execute(where.values(version=version, **values))


def annotator_of(conn: sa.Connection, row: CampaignRow, name: Any) -> int:
    """The number of an annotator, who is added where the campaign takes unknown ones."""
    texts = written_texts(conn, annotators, row.id, [name])
    known = known_numbers(conn, annotators, row.id, texts)
    if not known and row.price_of_unknown is not None:
        return add_annotators(conn, row, {name: None})[name]
    return known[texts[0]] if known else find_numbers(conn, annotators, row.id, [name])[0]


def list_annotators(conn: sa.Connection, campaign: str) -> list[dict[str, Any]]:
    """All annotators with the number of their votes."""
    counted = sa.select(answers.c.annotator, sa.func.count().label("votes")).where(answers.c.campaign == campaign)
    found = counted.group_by(answers.c.annotator).subquery()
    query = (
        sa.select(annotators, sa.func.coalesce(found.c.votes, 0).label("votes"))
        .outerjoin(found, found.c.annotator == annotators.c.number)
        .where(annotators.c.campaign == campaign)
        .order_by(annotators.c.number)
    )
    return [
        {
            "number": row.number, "annotator": json.loads(row.name), "price": row.price, "available": row.available,
            "max_votes": row.max_votes, "votes": row.votes,
        }
        for row in conn.execute(query)
    ]  # fmt: skip
