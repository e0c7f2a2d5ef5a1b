"""A campaign folder becomes a campaign of the server, and a campaign of the server a folder: same votes in the same
order, with their ids, prices and times, so the same labels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from crowdwise import registry
from crowdwise.errors import ParameterError
from crowdwise.store.campaign import Campaign
from crowdwise.store.campaign_rows import CampaignRow, bump, campaigns_update, create_campaign, find_campaign
from crowdwise.store.database import close_to_others
from crowdwise.store.store_tables import annotators, answers, items, skips, votes

CHUNK = 5_000


def import_folder(conn: sa.Connection, folder: Path, name: str | None = None) -> CampaignRow:
    """Make a campaign of a folder, which stays as it is."""
    with Campaign.open(folder) as found:
        journal, settings = found.journal, found.settings
        facts = journal.facts()
        given = {
            **settings.rule.get_params(), "name": name or folder.name, "classes": found.classes,
            "method": facts["method"], "params": facts.get("params", {}), "strategy": settings.strategy,
            "price": settings.price, "patience": settings.patience, "unknown": settings.unknown,
            "seed": settings.seed, "gold_rate": settings.strategy.gold_rate,
        }  # fmt: skip
        if settings.gap is not None:
            raise ParameterError("gap: groups of items are not balanced by the server; take it away: campaign set.")
        row = create_campaign(conn, given)
        texts = [json.dumps(c) for c in found.classes]
        _insert(
            conn, items,
            (
                {
                    "campaign": row.id, "number": n, "name": text, "payload": "{}", "grp": group,
                    "gold": None if gold is None else texts[gold], "closed": bool(closed), "priority": 1.0,
                    "version": 1,
                }
                for n, text, group, gold, closed in journal.read("SELECT id, name, grp, gold, closed FROM items")
            ),
        )  # fmt: skip
        _insert(
            conn, annotators,
            (
                {
                    "campaign": row.id, "number": m, "name": text, "price": price, "available": bool(available),
                    "max_votes": most, "version": 1,
                }
                for m, text, price, available, most in journal.read(
                    "SELECT id, name, price, available, max_votes FROM annotators"
                )
            ),
        )  # fmt: skip
        _insert(
            conn, skips,
            (
                {"campaign": row.id, "item": n, "annotator": m, "reason": "", "time": t}
                for n, m, t in journal.read("SELECT item, annotator, time FROM skipped")
            ),
        )  # fmt: skip
        query = "SELECT vote_id, item, annotator, label, price, time FROM votes ORDER BY id"
        rows = [
            {
                "campaign": row.id, "seq": i + 1, "vote_id": id_ if id_[0] == "[" else f":{id_}", "item": n,
                "annotator": m, "answer": texts[k],
                "price": price, "time": t, "seconds": None, "shown": None, "retracts": None,
            }
            for i, (id_, n, m, k, price, t) in enumerate(journal.read(query))
        ]  # fmt: skip
    _insert(conn, votes, iter(rows))
    pairs = ({name: vote[name] for name in ("campaign", "item", "annotator", "seq")} for vote in rows)
    _insert(conn, answers, pairs)
    spent = sum(vote["price"] for vote in rows)
    campaigns_update(conn, row.id, last_vote=len(rows), n_answers=len(rows), spent=spent)
    bump(conn, row.id)
    return find_campaign(conn, row.id)


def _insert(conn: sa.Connection, table: sa.Table, rows: Any) -> None:
    some = list[dict[str, Any]]()
    for row in rows:
        some.append(row)
        if len(some) == CHUNK:
            conn.execute(table.insert(), some)
            some = []
    if some:
        conn.execute(table.insert(), some)


def export_folder(conn: sa.Connection, id_: str, folder: Path) -> int:
    """Make a campaign folder of a campaign of classes; how many votes it has. Payloads are not part of a folder."""
    row = find_campaign(conn, id_)
    if row.answer_type != registry.VOTES:
        raise ParameterError(f"Folders hold campaigns of classes; {row.name!r} is of {row.answer_type}.")
    settings, code = row.settings, {json.dumps(c): k for k, c in enumerate(row.classes)}
    things = conn.execute(sa.select(items).where(items.c.campaign == id_).order_by(items.c.number)).all()
    people = conn.execute(sa.select(annotators).where(annotators.c.campaign == id_).order_by(annotators.c.number)).all()
    with Campaign.create(
        folder, row.model(), classes=row.classes, items=[json.loads(one.name) for one in things],
        annotators={json.loads(one.name): one.price for one in people}, price=settings["price"],
        rule=row.rule,
        gold={json.loads(one.name): json.loads(one.gold) for one in things if one.gold is not None},
        groups={json.loads(one.name): json.loads(one.grp) for one in things if one.grp is not None},
        strategy=replace(row.strategy, gold_rate=settings["gold_rate"]), unknown=settings["unknown"],
        patience=settings["patience"], random_state=settings["seed"],
    ) as made:  # fmt: skip
        shut = [json.loads(one.name) for one in things if one.closed]
        if shut:
            made.close_items(shut)
        for one in people:
            if not one.available or one.max_votes is not None:
                made.set_annotator(json.loads(one.name), available=bool(one.available), max_votes=one.max_votes)
        query = (
            sa.select(votes)
            .join(answers, (answers.c.campaign == votes.c.campaign) & (answers.c.item == votes.c.item)
                  & (answers.c.annotator == votes.c.annotator) & (answers.c.seq == votes.c.seq))
            .where(votes.c.campaign == id_).order_by(votes.c.seq)
        )  # fmt: skip
        close_to_others(folder)
        rows = conn.execute(query).all()
        with made.journal.writing():
            made.journal.add_votes(
                [(v.vote_id.removeprefix(":"), v.item, v.annotator, code[v.answer], v.price, v.time) for v in rows],
                [(things[v.item - 1].name, people[v.annotator - 1].name) for v in rows],
            )
    return len(rows)
