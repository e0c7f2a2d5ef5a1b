"""Items and annotators in the store: names and their numbers, which never change (codes of models are one less)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa

from crowdwise import registry
from crowdwise.active.stopping import Proof
from crowdwise.core.constraints import is_number
from crowdwise.errors import InputError, ParameterError, SizeError
from crowdwise.store import steady_clock
from crowdwise.store.answer_forms import OF_PAYLOAD, SIDES, answer_text, check_payload, check_with_payload
from crowdwise.store.campaign_rows import CampaignRow, add_event, bump, set_proof, unknown_names
from crowdwise.store.canonical import as_kind, checked_price, name_text, one_kind
from crowdwise.store.database import among, family, insert_rows, largest, main_of, named_by, of_campaign
from crowdwise.store.intake import GOLD, class_codes
from crowdwise.store.lease_rows import release
from crowdwise.store.store_tables import annotators, answers, campaigns, items, reviews, votes

CHUNK = 10_000  # rows that are written at once


def first_name(conn: sa.Connection, table: sa.Table, campaign: str) -> str | None:
    """The JSON text of a name that is there: all are of its kind; nothing where there is none."""
    name: str | None = conn.execute(sa.select(table.c.name).where(table.c.campaign == campaign).limit(1)).scalar()
    return name


def written_texts(conn: sa.Connection, table: sa.Table, campaign: str, names: Iterable[Any]) -> list[str]:
    """The JSON text of each name, of the kind that is there: 7 also finds "7"."""
    return texts_of_kind(first_name(conn, table, campaign), table, names)


def texts_of_kind(first: str | None, table: sa.Table, names: Iterable[Any]) -> list[str]:
    """The JSON text of each name, of the kind of the first."""
    return [as_kind(name_text(name, table.name.removesuffix("s")), first) for name in names]


def known_numbers(conn: sa.Connection, table: sa.Table, campaign: str, texts: Iterable[str]) -> dict[str, int]:
    """JSON text of a name -> its number, for those that are there."""
    query = sa.select(table.c.name, table.c.number).where(table.c.campaign == campaign, among(table.c.name, "names"))
    distinct = list(dict.fromkeys(texts))
    return {row.name: row.number for row in conn.execute(query, {"names": distinct})} if distinct else {}


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
    last = largest(conn, table.c.number, table.c.campaign == campaign)
    numbers = {text: last + 1 + i for i, text in enumerate(texts)}
    further = _questions(conn, campaign) if texts else []
    for lo in range(0, len(texts), CHUNK):
        rows = [
            {"campaign": campaign, "number": numbers[text], "name": text, **facts, **(each[text] if each else {})}
            for text in texts[lo : lo + CHUNK]
        ]
        insert_rows(conn, table, rows)
        for one in further:
            own = {"campaign": one, **({"gold": None} if table is items else {})}
            insert_rows(conn, table, [{**row, **own} for row in rows])
    return numbers


def _questions(conn: sa.Connection, campaign: str) -> Sequence[str]:
    """The further questions about the items of a campaign: its names and numbers are theirs."""
    return conn.execute(sa.select(campaigns.c.id).where(campaigns.c.id.startswith(f"{campaign}."))).scalars().all()


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
            update_annotator(conn, row.id, numbers[text], version, {"price": price})
    add_event(conn, row.id, "annotators", {"new": len(new)})
    return {name: numbers[text] for name, text in zip(names, texts, strict=True)}


def change_annotator(
    conn: sa.Connection, row: CampaignRow, name: Any, *, available: bool | None = None, max_votes: int | None = None,
    price: float | None = None,
) -> None:  # fmt: skip
    """Say whether an annotator is asked, the most votes, and what a vote costs from now on."""
    (number,) = find_numbers(conn, annotators, row.id, [name])
    price = None if price is None else checked_price(name, price)
    values = {"available": available, "max_votes": max_votes, "price": price}
    changes = {key: value for key, value in values.items() if value is not None}
    if not changes:
        raise ParameterError("Say what is changed: available, max_votes or price.")
    update_annotator(conn, row.id, number, bump(conn, row.id), changes)
    add_event(conn, row.id, "annotators", {"new": 0, "changed": name, **changes})


def update_annotator(conn: sa.Connection, campaign: str, number: int, version: int, values: Mapping[str, Any]) -> None:
    """Change facts about an annotator, in all questions of a campaign. One who is paused gives all questions back."""
    if values.get("available") is False:
        release(conn, main_of(campaign), number, None)
    where = annotators.update().where(family(annotators.c.campaign, campaign), annotators.c.number == number)
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
    counted = sa.select(sa.func.count()).where(named_by(annotators, answers)).scalar_subquery()
    query = sa.select(annotators, counted.label("votes")).where(annotators.c.campaign == campaign)
    query = query.order_by(annotators.c.number)
    shown = ("number", "price", "available", "max_votes", "votes")
    return [
        {"annotator": json.loads(row.name), **{name: row._mapping[name] for name in shown}}
        for row in conn.execute(query)
    ]


MOST_PAYLOAD = 1_000_000  # bytes of what is shown of an item: it goes to every annotator who is asked about it
MEDIA = {"image": ("https", "data", "media"), "audio": ("https", "media"), "file": ("https", "media")}
"""Parts of a payload that are loaded by their address, and its schemes; an address without one is of the server."""


@dataclass(frozen=True)
class ItemGiven:
    """An item as it is handed over. Of one that is there only the named ``fields`` change."""

    item: Any
    payload: dict[str, Any] = field(default_factory=dict)
    gold: Any = None
    group: Any = None
    priority: float = 1.0
    fields: Collection[str] = ("payload", "gold", "group", "priority")


def checked_items(conn: sa.Connection, row: CampaignRow, wanted: Iterable[ItemGiven]) -> dict[str, dict[str, Any]]:
    """The text of each name -> what is written of the item; an error where one is wrong, or given twice."""
    first, values = first_name(conn, items, row.id), dict[str, dict[str, Any]]()
    for one in wanted:
        (text,) = texts_of_kind(first, items, [one.item])
        if text in values:
            raise InputError(f"The item {one.item!r} is given twice. Nothing was added.")
        values[text] = _values(row, one)
    one_kind(filter(None, [first, *values]), items.name)
    return values


def add_items(conn: sa.Connection, row: CampaignRow, values: Mapping[str, Mapping[str, Any]]) -> int:
    """Declare items that were checked, or change those that are there; how many are new."""
    texts = list(values)
    known = known_numbers(conn, items, row.id, texts)
    version = bump(conn, row.id)
    fresh = [text for text in texts if text not in known]
    unsaid = {"payload": "{}", "gold": None, "grp": None, "priority": 1.0}
    new = add_names(conn, items, row.id, fresh, {"version": version, **unsaid}, values)
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for text, number in known.items():
        changes = {f"new_{name}": x for name, x in values[text].items()}
        alike.setdefault(tuple(values[text]), []).append({"at": number, **changes})
    further = _questions(conn, row.id) if known else []
    for names, rows in alike.items():
        update = items.update().where(items.c.number == sa.bindparam("at"))
        columns: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in names}
        conn.execute(update.where(items.c.campaign == row.id).values(version=version, **columns), rows)
        if further and "payload" in columns:
            shown = {"payload": columns["payload"], "version": version}
            conn.execute(update.where(items.c.campaign.in_(further)).values(shown), rows)
    add_event(conn, row.id, "items", {"new": len(new), "changed": len(texts) - len(new)})
    return len(new)


def _checked_priority(priority: Any) -> float:
    if not (is_number(priority) and 0.0 < priority < 1e9):
        raise ParameterError(f"priority={priority!r}: expected a number above 0 and below 1e9.")
    return float(priority)


def _values(row: CampaignRow, one: ItemGiven) -> dict[str, Any]:
    check_payload(row.form, one.item, one.payload)
    payload = json.dumps(one.payload, separators=(",", ":"))
    if len(payload) > MOST_PAYLOAD:
        raise SizeError(
            f"The payload of item {one.item!r} takes {len(payload):,} bytes, and at most {MOST_PAYLOAD:,} are shown: "
            "give the address of what is large. Nothing was added."
        )
    for where in (one.payload, *(one.payload.get(side) for side in SIDES)):
        _check_addresses(one.item, where)
    gold = None if one.gold is None else answer_text(row, one.gold, one.item, GOLD)
    if gold is not None and row.form in OF_PAYLOAD:
        check_with_payload(row.form, one.item, json.loads(gold), one.payload)
    group = None if one.group is None else name_text(one.group, "group", booleans=True)
    columns = {"payload": payload, "gold": gold, "grp": group, "priority": _checked_priority(one.priority)}
    return {name: x for name, x in columns.items() if name.replace("grp", "group") in one.fields}


def _check_addresses(item: Any, payload: Any) -> None:
    """An error where an image or a sound has an address that pages do not load."""
    for name, schemes in MEDIA.items() if isinstance(payload, dict) else ():
        scheme, colon, _ = str(payload.get(name) or "").partition(":")
        if colon and scheme.lower() not in schemes and scheme.isalnum():
            raise InputError(
                f"The {name} of item {item!r} has an address with {scheme}:, which browsers do not load on a page of "
                f"the server: expected {' or '.join(f'{one}:' for one in schemes)}. Nothing was added."
            )


def change_items(
    conn: sa.Connection, row: CampaignRow, names: Sequence[Any], *, closed: bool | None = None,
    priority: float | None = None, gold: Any = None,
) -> int:  # fmt: skip
    """Close or reopen items, change their priority (in all questions), or their known answer; how many."""
    numbers = find_numbers(conn, items, row.id, names)
    shared = {"closed": closed, "priority": None if priority is None else _checked_priority(priority)}
    values = {name: value for name, value in shared.items() if value is not None}
    if row.is_further and values:
        raise ParameterError(f"Items are closed, and have a priority, at {main_of(row.id)}: for all its questions.")
    own = {} if gold is None else {"gold": answer_text(row, gold, names[0] if names else "", GOLD)}
    if gold is not None and row.form in OF_PAYLOAD:
        for name, payload in payload_of(conn, row.id, numbers).values():
            check_with_payload(row.form, name, json.loads(own["gold"]), payload)
    if not values and not own:
        raise ParameterError("Say what is changed: closed, priority or gold.")
    version = bump(conn, row.id)
    for where, new in ((items.c.campaign == row.id, own), (family(items.c.campaign, row.id), values)):
        if new and numbers:
            update = items.update().where(where, items.c.number == sa.bindparam("at"))
            conn.execute(update.values(version=version, **new), [{"at": n} for n in numbers])
    add_event(conn, row.id, "items", {"new": 0, "changed": len(numbers)})
    return len(numbers)


def settle(conn: sa.Connection, row: CampaignRow, item: Any, answer: Any, actor: str, note: str = "") -> dict[str, Any]:
    """Write what a second look says of an item, or open it again (``None``). The answer stands in all results, and
    it counts for no annotator's accuracy: doubtful items are not a random sample."""
    (number,) = find_numbers(conn, items, row.id, [item])
    where = (items.c.campaign == row.id) & (items.c.number == number)
    before = conn.execute(sa.select(items.c.gold, items.c.settled, items.c.payload).where(where)).one()
    if before.gold is not None:
        raise InputError(f"The answer on {item!r} is known (gold): change that. Nothing was changed.")
    text = None if answer is None else answer_text(row, answer, item, "The second look at item {!r} says")
    if text is not None and row.form in OF_PAYLOAD:
        check_with_payload(row.form, item, json.loads(text), json.loads(before.payload))
    conn.execute(items.update().where(where).values(settled=text, version=bump(conn, row.id)))
    entry = {"time": steady_clock.now(), "actor": actor, "answer": text, "before": before.settled, "note": note}
    conn.execute(reviews.insert(), {"campaign": row.id, "item": number, **entry})
    add_event(conn, row.id, "items", {"new": 0, "changed": 1})
    return {"item": item, **_decoded(entry)}


def _decoded(entry: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: json.loads(entry[name] or "null") for name in ("answer", "before")}
    return {name: entry[name] for name in ("time", "actor", "note")} | texts


def list_reviews(conn: sa.Connection, campaign: str, item: Any = None, limit: int = 200) -> list[dict[str, Any]]:
    """Second looks, the latest first: at all items, or at one."""
    query = sa.select(reviews, items.c.name).join(items, named_by(items, reviews)).where(reviews.c.campaign == campaign)
    if item is not None:
        query = query.where(reviews.c.item == find_numbers(conn, items, campaign, [item])[0])
    rows = conn.execute(query.order_by(reviews.c.id.desc()).limit(limit))
    return [{"item": json.loads(row.name), **_decoded(row._asdict())} for row in rows]


def list_items(conn: sa.Connection, campaign: str, after: int, limit: int, search: str = "") -> list[dict[str, Any]]:
    """A page of items with the number of their votes; ``search``: part of a name or of what is shown."""
    counted = sa.select(sa.func.count()).where(named_by(items, answers)).scalar_subquery()
    query = sa.select(items, counted.label("votes")).where(items.c.campaign == campaign, items.c.number > after)
    if search:
        text = json.dumps(search)[1:-1]  # as names and payloads are written
        name, payload = (column.icontains(text, autoescape=True) for column in (items.c.name, items.c.payload))
        query = query.where(name | payload)
    rows = conn.execute(query.order_by(items.c.number).limit(limit))
    parsed = {"item": "name", "payload": "payload", "gold": "gold", "settled": "settled", "group": "grp"}
    return [
        {name: row._mapping[name] for name in ("number", "closed", "priority", "votes")}
        | {name: json.loads(row._mapping[column] or "null") for name, column in parsed.items()}
        for row in rows
    ]


def payload_of(conn: sa.Connection, campaign: str, numbers: Sequence[int]) -> dict[int, tuple[Any, dict[str, Any]]]:
    """Number of an item -> its name and what is shown of it."""
    rows = conn.execute(_PAYLOADS, {"campaign": campaign, "numbers": list(numbers)}) if numbers else ()
    return {row.number: (json.loads(row.name), json.loads(row.payload)) for row in rows}


_PAYLOADS = sa.select(items.c.number, items.c.name, items.c.payload)
_PAYLOADS = _PAYLOADS.where(of_campaign(items), among(items.c.number, "numbers"))


def items_since(conn: sa.Connection, campaign: str, seq: int) -> list[Any]:
    """The names of items that were voted on, or whose votes were taken back, after a vote."""
    query = sa.select(items.c.name).where(items.c.campaign == campaign)
    newer = sa.exists().where(named_by(items, votes), votes.c.seq > seq)
    return [json.loads(name) for name in conn.execute(query.where(newer)).scalars()]


def draw_for_gold(conn: sa.Connection, row: CampaignRow, n: int) -> list[Any]:
    """Draw items at random whose gold labels the model will not see (:class:`~crowdwise.active.stopping.Proof`)."""
    if row.answer_type != registry.VOTES:
        raise ParameterError(f"Labels of {row.answer_type} are not proven by a server: use crowdwise certify.")
    query = sa.select(items.c.name, items.c.gold).where(items.c.campaign == row.id)
    rows = conn.execute(query.order_by(items.c.number)).all()
    taught = np.array([one.gold is not None for one in rows], dtype=bool)
    proof = Proof.of(row.settings.get("proof")).drawn_anew(n, taught, np.random.default_rng())
    set_proof(conn, row, proof)
    return [json.loads(rows[code].name) for code in proof.drawn]


def add_gold_of_draw(conn: sa.Connection, row: CampaignRow, gold: Mapping[Any, Any]) -> None:
    """Keep gold labels of items that were drawn."""
    codes = [number - 1 for number in find_numbers(conn, items, row.id, list(gold))]
    known = dict(zip(codes, class_codes(gold, row.classes).values(), strict=True))
    set_proof(conn, row, Proof.of(row.settings.get("proof")).with_gold(known))
