"""Votes in the store: added all or none of a request, once by their id, taken back by appending; never changed.

Ids are kept apart by who made them: ``:v1`` is a lead's, ``"ann":v1`` is one that ann chose, ``["p0", "ann"]`` is that
of a vote without an id, ``undo:6`` takes the vote 6 back. So no annotator can take the id of another's vote.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from crowdwise.active.end_state import ENDS
from crowdwise.errors import CrowdwiseError, InputError, listing
from crowdwise.store import steady_clock
from crowdwise.store.answer_forms import OF_PAYLOAD, answer_text, check_with_payload
from crowdwise.store.campaign_rows import (
    BY_ID,
    CampaignClosed,
    CampaignRow,
    NotThere,
    add_event,
    bump,
    check_open,
    event_row,
    find_campaign,
    find_more,
    unknown_names,
)
from crowdwise.store.canonical import id_text
from crowdwise.store.database import among, as_parameter, count, named_by, of_campaign, texts_given, write_rows
from crowdwise.store.intake import Incoming, new_among
from crowdwise.store.lease_rows import money_left, votes_given
from crowdwise.store.roster_rows import add_names, payload_of, texts_of_kind, update_annotator
from crowdwise.store.store_tables import annotators, answers, campaigns, events, items, leases, points, skips, votes

UNDO_SECONDS = 3600.0  # how long an annotator may take a vote back


@dataclass(frozen=True)
class VoteGiven:
    """A vote as it is handed over."""

    item: Any
    annotator: Any
    label: Any
    id: str | None = None
    seconds: float | None = None
    shown: str | None = None
    own: bool = False  # whether the annotator sends it, and not a lead
    others: Mapping[str, Any] | None = None  # the answers to further questions about the item


class _Person(NamedTuple):
    """What a vote of an annotator costs, and whether and how often the annotator is asked."""

    price: float
    available: bool = True
    max_votes: int | None = None


@dataclass
class _Known:
    """What the store knows about the votes of some requests."""

    row: CampaignRow
    item: dict[str, int]
    annotator: dict[str, int]
    people: dict[int, _Person] = field(default_factory=dict)
    leased: set[tuple[int, int]] = field(default_factory=set)
    left: float = math.inf  # what may be spent beyond the questions that are out
    ended: bool = False  # whether the campaign had reached its end when its curve was last noted
    closed: set[int] = field(default_factory=set)
    gold: dict[int, str] = field(default_factory=dict)
    by_id: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)

    def waiting_of(self, who: int) -> set[int]:
        """The items that an annotator votes on in requests that are written together with this one."""
        return {item for (item, other), seq in self.pairs.items() if other == who and not seq}


def add_together(
    conn: sa.Connection, campaign: str, requests: Sequence[Sequence[VoteGiven]]
) -> list[dict[str, Any] | Exception]:
    """Write the votes of several requests: for each what became of it, or why nothing of it was written."""
    row, kinds = find_more(conn, campaign, _WITH_KINDS)
    check_open(row)
    if row.questions:
        return [_tried(_add_all, conn, row, votes) for votes in requests]
    return _add(conn, row, kinds, requests)


def _tried(run: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, or its error."""
    try:
        return run(*arguments)
    except CrowdwiseError as error:
        return error


def _add_all(conn: sa.Connection, row: CampaignRow, votes: Sequence[VoteGiven]) -> dict[str, Any]:
    """Write the answers to all questions of a request, or none."""
    parts = {row.id: votes}
    for question, further in row.questions.items():
        answered = [(vote, vote.others[question]) for vote in votes if vote.others and question in vote.others]
        parts[further] = [replace(vote, label=label, others={}) for vote, label in answered]
    receipts: list[dict[str, Any]] = []
    with conn.begin_nested():
        for campaign, part in parts.items():
            (outcome,) = _add(conn, *find_more(conn, campaign, _WITH_KINDS), [part])
            if isinstance(outcome, Exception):
                raise outcome
            receipts.append(outcome)
    return receipts[0]


def _check_questions(row: CampaignRow, vote: VoteGiven) -> None:
    """An error about answers to questions that are not there, or that an annotator left out."""
    answered, there = set(vote.others or ()), set(row.questions)
    missing = there - answered if vote.own else set()
    for names, what in ((answered - there, "no question"), (missing, "a question without an answer,")):
        if names:
            raise InputError(f"The vote on {vote.item!r}: there is {what} {listing(sorted(names))}. Nothing was added.")


def _add(
    conn: sa.Connection, row: CampaignRow, kinds: Sequence[str | None], requests: Sequence[Sequence[VoteGiven]]
) -> list[dict[str, Any] | Exception]:
    """As :func:`add_together`, of one question."""
    read = [_tried(_read, row, votes, *kinds) for votes in requests]
    known = _look_up(conn, row, [vote for one in read if not isinstance(one, Exception) for vote in one])
    out, rows = list[dict[str, Any] | Exception](), list[dict[str, Any]]()
    for one in read:
        outcome = one if isinstance(one, Exception) else _tried(_sort_out_whole, conn, known, one)
        if not isinstance(outcome, Exception):
            new, outcome = outcome
            rows += new
        out.append(outcome)
    _write(conn, row, rows)
    _screen(conn, row, {vote["annotator"] for vote in rows})
    return out


def _read(row: CampaignRow, sent: Sequence[VoteGiven], item_kind: str | None, kind: str | None) -> list[Incoming]:
    for vote in sent:
        _check_questions(row, vote)
    texts = [answer_text(row, vote.label, vote.item) for vote in sent]
    names = texts_of_kind(item_kind, items, [vote.item for vote in sent])
    people = texts_of_kind(kind, annotators, [vote.annotator for vote in sent])
    return [
        Incoming(
            f"[{n}, {m}]" if vote.id is None else f"{m if vote.own else ''}:{id_text(vote.id)}",
            vote.id, n, m, text, sent=vote,
        )
        for vote, n, m, text in zip(sent, names, people, texts, strict=True)
    ]  # fmt: skip


def _look_up(conn: sa.Connection, row: CampaignRow, read: list[Incoming]) -> _Known:
    known, dialect = _Known(row, {}, {}), conn.dialect.name
    if not read:
        return known
    come = as_parameter(dialect, [{"id": vote.id, "item": vote.item, "annotator": vote.annotator} for vote in read])
    for one in conn.execute(_there(dialect), {"campaign": row.id, **come}):
        if one.number is not None:
            known.item[one.item] = one.number
            if one.closed:
                known.closed.add(one.number)
            if one.gold is not None:
                known.gold[one.number] = one.gold
        if one.who is not None:
            known.annotator[one.annotator] = one.who
            known.people[one.who] = _Person(one.price, one.available, one.max_votes)
        if one.seq is not None:
            known.pairs[one.number, one.who] = one.seq
        if one.answer is not None:
            known.by_id[one.id] = (one.voted_item, one.voter, one.answer)
    own = {known.annotator[vote.annotator] for vote in read if vote.sent.own and vote.annotator in known.annotator}
    if own:
        known.left = money_left(conn, row)
        known.ended = conn.execute(_STATE, {"campaign": row.id}).scalar() in ENDS
        asked = conn.execute(_LEASED, {"campaign": row.id, "people": list(own)})
        known.leased = {(lease.item, lease.annotator) for lease in asked}
    return known


@cache
def _there(dialect: str) -> sa.Select[Any]:
    """Of votes that come in: their items and annotators, whether the pairs have votes, and the votes with their ids."""
    come = texts_given(dialect, "id", "item", "annotator")
    same = (
        (items, items.c.name == come.c.item),
        (annotators, annotators.c.name == come.c.annotator),
        (answers, (answers.c.item == items.c.number) & (answers.c.annotator == annotators.c.number)),
        (votes, votes.c.vote_id == come.c.id),
    )
    query = sa.select(
        *come.c, items.c.number, items.c.closed, items.c.gold, annotators.c.number.label("who"), annotators.c.price,
        annotators.c.available, annotators.c.max_votes, answers.c.seq, votes.c.item.label("voted_item"),
        votes.c.annotator.label("voter"), votes.c.answer,
    ).select_from(come)  # fmt: skip
    for table, joined in same:
        query = query.outerjoin(table, of_campaign(table) & joined)
    return query


_WITH_KINDS = BY_ID.add_columns(*(
    sa.select(table.c.name).where(table.c.campaign == sa.bindparam("id")).limit(1).scalar_subquery()
    for table in (items, annotators)
))  # fmt: skip
"""A campaign with a name of an item and one of an annotator: all names are of their kinds."""
_STATE = sa.select(points.c.state).where(of_campaign(points)).order_by(points.c.seq.desc()).limit(1)
_LEASED = sa.select(leases.c.item, leases.c.annotator).where(of_campaign(leases), among(leases.c.annotator, "people"))


def _sort_out_whole(
    conn: sa.Connection, known: _Known, read: list[Incoming]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """As :func:`_sort_out`; names that it adds stay only where all goes well."""
    if all(vote.item in known.item and vote.annotator in known.annotator for vote in read):
        return _sort_out(conn, known, read)
    before = dict(known.item), dict(known.annotator)
    try:
        with conn.begin_nested():
            return _sort_out(conn, known, read)
    except CrowdwiseError:
        known.item, known.annotator = before
        raise


def _sort_out(conn: sa.Connection, known: _Known, read: list[Incoming]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the votes of a request that are new; an error where one contradicts what is there."""
    _declare(conn, known, read)
    read = [vote._replace(pair=(known.item[vote.item], known.annotator[vote.annotator])) for vote in read]
    by_id, pairs, late = dict(known.by_id), dict(known.pairs), 0.0
    new = [(id_, read[i]) for i, id_ in new_among(read, by_id, pairs, known.closed)]
    if known.row.form in OF_PAYLOAD:
        shown = payload_of(conn, known.row.id, [vote.pair[0] for _, vote in new])
        for _, vote in new:
            name, payload = shown[vote.pair[0]]
            check_with_payload(known.row.form, name, json.loads(vote.answer), payload)
    before = set[tuple[int, int]]()
    for _, vote in new:
        if vote.sent.own and not known.row.is_further:  # asked, paid and measured with the first question
            late += _late(conn, known, *vote.pair, late, before)
            before.add(vote.pair)
    judged = read if known.row.settings["feedback"] else _practice_of(conn, known, [vote for _, vote in new])
    known.by_id, known.pairs, known.left = by_id, pairs, known.left - late
    now = steady_clock.now()
    rows = [
        {
            "campaign": known.row.id, "vote_id": id_, "item": vote.pair[0], "annotator": vote.pair[1],
            "answer": vote.answer, "time": now,
            "price": 0.0 if known.row.is_further else known.people[vote.pair[1]].price,
            "seconds": vote.sent.seconds, "shown": vote.sent.shown, "retracts": None,
        }
        for id_, vote in new
    ]  # fmt: skip
    receipt: dict[str, Any] = {"added": len(new), "repeated": len(read) - len(new)}
    if judged is not None:
        receipt["feedback"] = [
            {"item": json.loads(vote.item), "correct": vote.answer == gold, "expected": json.loads(gold)}
            for vote in judged
            if (gold := known.gold.get(vote.pair[0])) is not None
        ]
    return rows, receipt


def votes_that_count(campaign: str) -> sa.Select[Any]:
    """The votes that were not taken back, in their order, with the names of their items and annotators, and gold."""
    counts = sa.and_(*(answers.c[name] == votes.c[name] for name in ("campaign", "item", "annotator", "seq")))
    columns = items.c.name.label("item_name"), items.c.gold, annotators.c.name.label("person")
    query = sa.select(votes, *columns).join(answers, counts).join(items, named_by(items, votes))
    query = query.join(annotators, named_by(annotators, votes))
    return query.where(votes.c.campaign == campaign).order_by(votes.c.seq)


def _on_gold(conn: sa.Connection, campaign: str, who: int, upto: int = 2**62) -> dict[int, bool]:
    """The votes of an annotator on items with a known answer, up to one of them -> whether each was right."""
    query = votes_that_count(campaign).where(answers.c.annotator == who, items.c.gold.is_not(None), votes.c.seq <= upto)
    return {row.seq: row.answer == row.gold for row in conn.execute(query)}


def _practice_of(conn: sa.Connection, known: _Known, new: Sequence[Incoming]) -> list[Incoming] | None:
    """The new votes of practice, of which annotators are shown what was right; ``None`` where it has ended for all."""
    left, judged = dict[int, int](), list[Incoming]()
    if practice := known.row.settings["practice"]:
        for who in {vote.pair[1] for vote in new}:
            waiting = sum(item in known.gold for item in known.waiting_of(who))
            left[who] = practice - len(_on_gold(conn, known.row.id, who)) - waiting
    if not any(n > 0 for n in left.values()):
        return None
    for vote in new:
        if vote.pair[0] in known.gold and left[vote.pair[1]] > 0:
            left[vote.pair[1]] -= 1
            judged.append(vote)
    return judged


def _screen(conn: sa.Connection, row: CampaignRow, people: set[int]) -> None:
    """Pause annotators whose practice ended with the votes just written, and who got too little of it right."""
    practice, least = row.settings["practice"], row.settings["screen"]
    for who in people if practice and least is not None else ():
        right = sorted(_on_gold(conn, row.id, who).items())[:practice]
        ended = len(right) == practice and right[-1][0] > row.last_vote
        if ended and sum(good for _, good in right) < least * practice:
            update_annotator(conn, row.id, who, bump(conn, row.id), {"available": False})


def _late(conn: sa.Connection, known: _Known, item: int, who: int, late: float, before: set[tuple[int, int]]) -> float:
    """What an answer costs whose question is no longer out: it came late, or the question was given back. It is taken
    as long as the annotator could be asked about the item; else tickets that were kept would go beyond the end, the
    budget and limits. ``before``: the votes of the same request that came before it."""
    person = known.people[who]
    if not person.available:
        raise CampaignClosed("Your answers are not taken at present: ask the lead of the campaign. Nothing was added.")
    if (item, who) in known.leased:
        return 0.0
    full, most = known.ended, known.row.rule.max_votes
    if person.max_votes is not None:
        out = {there for there, other in known.leased | before if other == who} | known.waiting_of(who)
        full |= votes_given(conn, known.row.id, who) + len(out) >= person.max_votes
    if most is not None and item not in known.gold:
        n_there = sum(count(conn, x, x.c.campaign == known.row.id, x.c.item == item) for x in (answers, leases))
        waiting = sum(there == item and not seq for (there, _), seq in known.pairs.items())
        full |= n_there + waiting >= most
    if full or late + person.price > known.left:
        raise CampaignClosed("The question was given back, or its time is over. Nothing was added.")
    return float(person.price)


def _declare(conn: sa.Connection, known: _Known, read: list[Incoming]) -> None:
    """Unknown names are an error, or are added where the campaign says so."""
    price = known.row.price_of_unknown
    for table, there, texts in (
        (items, known.item, [vote.item for vote in read]),
        (annotators, known.annotator, [vote.annotator for vote in read]),
    ):
        missing = [text for text in dict.fromkeys(texts) if text not in there]
        if not missing:
            continue
        if price is None:
            raise unknown_names(table.name, [json.loads(text) for text in missing])
        facts: dict[str, Any] = {"payload": "{}"} if table is items else {"price": price}
        there |= add_names(conn, table, known.row.id, missing, {**facts, "version": bump(conn, known.row.id)})
        if table is annotators:
            known.people |= {there[text]: _Person(price) for text in missing}


def _write(conn: sa.Connection, row: CampaignRow, rows: list[dict[str, Any]]) -> None:
    """Append votes, note that they count, and drop the leases and skips that they answer."""
    if not rows:
        return
    for i, vote in enumerate(rows):
        vote["seq"] = row.last_vote + 1 + i
    pair = ("campaign", "item", "annotator")
    last, n_answers = row.last_vote + len(rows), row.n_answers + len(rows)
    spent = row.spent + sum(vote["price"] for vote in rows)
    counts = {"counted": row.id, "to_last_vote": last, "to_n_answers": n_answers, "to_spent": spent}
    event = event_row(row.id, "votes", {"added": len(rows), "votes": n_answers, "seq": last})
    write_rows(
        conn, rows, ("insert", votes, tuple(rows[0])), ("insert", answers, (*pair, "seq")), ("delete", leases, pair),
        ("delete", skips, pair), also={_COUNT: counts, _NOTE: {f"event_{name}": x for name, x in event.items()}},
    )  # fmt: skip


_COUNT = campaigns.update().where(campaigns.c.id == sa.bindparam("counted"))
_COUNT = _COUNT.values({name: sa.bindparam(f"to_{name}") for name in ("last_vote", "n_answers", "spent")})
_NOTE = events.insert().values({name: sa.bindparam(f"event_{name}") for name in ("campaign", "time", "kind", "data")})


def undo(conn: sa.Connection, campaign: str, annotator: int, item: int | None = None) -> dict[str, Any]:
    """Take back a vote of an annotator: on an item, or the last. The vote stays in the store; what it cost is given
    back, and the annotator may be asked again."""
    row = find_campaign(conn, campaign)
    check_open(row)
    mine = (answers.c.campaign == campaign) & (answers.c.annotator == annotator)
    wanted = mine if item is None else mine & (answers.c.item == item)
    last = sa.select(sa.func.max(answers.c.seq)).where(wanted).scalar_subquery()
    vote = conn.execute(votes_that_count(campaign).where(votes.c.seq == last)).first()
    if vote is None:
        raise NotThere("There is no vote of yours to take back.")
    if steady_clock.now() - vote.time > UNDO_SECONDS:
        raise InputError(f"A vote can be taken back within {UNDO_SECONDS / 60:g} minutes. Nothing was changed.")
    practised = vote.gold is not None and len(_on_gold(conn, campaign, annotator, vote.seq)) <= row.settings["practice"]
    if practised or (vote.gold is not None and row.settings["feedback"]):
        raise InputError("The known answer to this question was shown: the vote cannot be taken back.")
    seq = row.last_vote + 1
    taken = {
        "campaign": campaign, "seq": seq, "vote_id": f"undo:{vote.seq}", "item": vote.item, "annotator": annotator,
        "answer": vote.answer, "price": -vote.price, "time": steady_clock.now(), "retracts": vote.seq,
    }  # fmt: skip
    conn.execute(votes.insert(), taken)
    conn.execute(answers.delete().where(mine, answers.c.item == vote.item))
    counts = {"last_vote": seq, "n_answers": row.n_answers - 1, "spent": row.spent - vote.price}
    conn.execute(campaigns.update().where(campaigns.c.id == campaign).values(**counts))
    add_event(conn, campaign, "undo", {"votes": row.n_answers - 1, "seq": seq})
    for further in row.questions.values():
        with suppress(NotThere):  # a lead may have left it out
            undo(conn, further, annotator, vote.item)
    return {"item": json.loads(vote.item_name), "label": json.loads(vote.answer)}


def list_votes(conn: sa.Connection, campaign: str, after: int, limit: int) -> list[dict[str, Any]]:
    """The next votes that count, with the names of their items and annotators."""
    query = votes_that_count(campaign).where(votes.c.seq > after).limit(limit)
    return [
        {"seq": row.seq, "id": row.vote_id.removeprefix(":" if row.vote_id.startswith(":") else f"{row.person}:")}
        | {"item": json.loads(row.item_name), **_shown(row), "first": row.shown}
        for row in conn.execute(query)
    ]


def _shown(row: Any) -> dict[str, Any]:
    facts = {name: row._mapping[name] for name in ("price", "time", "seconds")}
    return {"annotator": json.loads(row.person), "label": json.loads(row.answer), **facts}


def votes_of_item(conn: sa.Connection, campaign: str, item: int) -> list[dict[str, Any]]:
    """The votes that count on an item."""
    return [_shown(row) for row in conn.execute(votes_that_count(campaign).where(answers.c.item == item))]
