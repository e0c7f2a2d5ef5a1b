"""A campaign folder becomes a campaign of the server, and a campaign of the server a folder: same votes in the same
order, with their ids, prices and times, so the same labels."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crowdwise import registry
from crowdwise.active.stopping import Proof
from crowdwise.errors import ParameterError
from crowdwise.store.campaign import Campaign
from crowdwise.store.campaign_rows import CampaignRow, bump, create_campaign, find_campaign, set_proof
from crowdwise.store.database import close_to_others
from crowdwise.store.store_tables import annotators, answers, campaigns, items, skips, votes
from crowdwise.store.vote_rows import votes_that_count

CHUNK = 5_000


def import_folder(conn: sa.Connection, folder: Path, name: str | None = None) -> CampaignRow:
    """Make a campaign of a folder, which stays as it is."""
    with Campaign.open(folder) as source:
        journal, settings = source.journal, source.settings
        facts = journal.facts()
        wanted = {
            **settings.rule.get_params(), "name": name or folder.name, "classes": source.classes,
            "method": facts["method"], "params": facts.get("params", {}), "strategy": settings.strategy,
            "price": settings.price, "patience": settings.patience, "unknown": settings.unknown,
            "seed": settings.seed, "gold_rate": settings.strategy.gold_rate,
        }  # fmt: skip
        if settings.gap is not None:
            raise ParameterError("gap: groups of items are not balanced by the server; take it away: campaign set.")
        row = create_campaign(conn, wanted)
        if "proof" in facts:
            set_proof(conn, row, Proof.of(facts["proof"]))
        texts = [json.dumps(c) for c in source.classes]
        for table, columns, query in COPIED:
            read = (dict(zip(columns.split(), values, strict=True)) for values in journal.read(query))
            rows = ({"campaign": row.id, **_written(values, texts)} for values in read)
            while part := list(islice(rows, CHUNK)):
                conn.execute(table.insert(), part)
        n_votes, spent = journal.count("votes"), source.asking.spent()
    pairs = sa.select(votes.c.campaign, votes.c.item, votes.c.annotator, votes.c.seq).where(votes.c.campaign == row.id)
    conn.execute(answers.insert().from_select(["campaign", "item", "annotator", "seq"], pairs))
    counts = {"last_vote": n_votes, "n_answers": n_votes, "spent": spent}
    conn.execute(campaigns.update().where(campaigns.c.id == row.id).values(**counts))
    bump(conn, row.id)
    return find_campaign(conn, row.id)


COPIED = (
    (items, "number name grp gold closed payload priority version",
     "SELECT id, name, grp, gold, closed, '{}', 1.0, 1 FROM items"),
    (annotators, "number name price available max_votes version",
     "SELECT id, name, price, available, max_votes, 1 FROM annotators"),
    (skips, "item annotator time reason", "SELECT item, annotator, time, '' FROM skipped"),
    (votes, "seq vote_id item annotator answer price time",
     "SELECT row_number() OVER (ORDER BY id), vote_id, item, annotator, label, price, time FROM votes ORDER BY id"),
)  # fmt: skip
"""Tables of the server, their columns, and what a journal has of them."""


def _written(values: dict[str, Any], classes: list[str]) -> dict[str, Any]:
    """A row of a journal as the server writes it: classes by name, ids as those of a lead."""
    for name, value in values.items():
        if name in ("gold", "answer") and value is not None:
            values[name] = classes[value]
        elif name in ("closed", "available"):
            values[name] = bool(value)
        elif name == "vote_id" and value[0] != "[":
            values[name] = f":{value}"
    return values


def export_folder(conn: sa.Connection, id_: str, folder: Path) -> int:
    """Make a campaign folder of a campaign of classes; how many votes it has. Payloads are not part of a folder."""
    row = find_campaign(conn, id_)
    if row.answer_type != registry.VOTES:
        raise ParameterError(f"Folders hold campaigns of classes; {row.name!r} is of {row.answer_type}.")
    settings, code = row.settings, {json.dumps(c): k for k, c in enumerate(row.classes)}
    things, people = (
        conn.execute(sa.select(table).where(table.c.campaign == id_).order_by(table.c.number)).all()
        for table in (items, annotators)
    )
    with Campaign.create(
        folder, row.model(), classes=row.classes, items=[json.loads(one.name) for one in things],
        annotators={json.loads(one.name): one.price for one in people}, price=settings["price"],
        rule=row.rule,
        gold={json.loads(one.name): json.loads(one.gold) for one in things if one.gold is not None},
        groups={json.loads(one.name): json.loads(one.grp) for one in things if one.grp is not None},
        strategy=replace(row.strategy, gold_rate=settings["gold_rate"]), unknown=settings["unknown"],
        patience=settings["patience"], random_state=settings["seed"],
    ) as copy:  # fmt: skip
        shut = [json.loads(one.name) for one in things if one.closed]
        if shut:
            copy.close_items(shut)
        for one in people:
            if not one.available or one.max_votes is not None:
                copy.set_annotator(json.loads(one.name), available=bool(one.available), max_votes=one.max_votes)
        close_to_others(folder)
        rows = conn.execute(votes_that_count(id_)).all()
        with copy.journal.writing():
            if "proof" in settings:
                copy.journal.note(proof=settings["proof"])
            copy.journal.add_votes(
                [(v.vote_id.removeprefix(":"), v.item, v.annotator, code[v.answer], v.price, v.time) for v in rows],
                [(v.item_name, v.person) for v in rows],
            )
    return len(rows)
