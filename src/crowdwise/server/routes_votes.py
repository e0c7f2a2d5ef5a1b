"""Questions and votes: what an annotator does."""

from __future__ import annotations

import json
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, HTTPException, Query, Request, Response

from crowdwise.active.end_state import ENDS
from crowdwise.errors import ParameterError
from crowdwise.server.api_messages import Asked, Ballot, Name, Questions, ReceiptMessage, Released, Undone, VoteMessage
from crowdwise.server.caller import Caller, Lead, ServiceOf, Voter, WholeVoter
from crowdwise.server.http_problems import responses
from crowdwise.server.routes_results import DOWNLOADS, FILES, Format, attached, download
from crowdwise.server.service import Service
from crowdwise.store.campaign_rows import find_campaign
from crowdwise.store.database import count
from crowdwise.store.lease_rows import release, skip, votes_given
from crowdwise.store.roster_rows import find_numbers
from crowdwise.store.store_tables import annotators, items
from crowdwise.store.vote_rows import VoteGiven, add_together, list_votes, undo, votes_of_item

For = Annotated[str | None, Query(description="For leads: which annotator.", max_length=500)]

FOR_ANNOTATORS = {
    "waiting": "there is no question for you right now", "ended": "all questions are answered",
    "paused": "the campaign is paused", "closed": "the campaign is closed",
}  # fmt: skip
"""What annotators are told where there is no question: nothing of money, or of others."""
ALL = 2**62  # more votes than any campaign has

router = APIRouter(prefix="/api/v1/campaigns/{campaign}", responses=responses(409))


async def who_asks(service: Service, caller: Caller, campaign: str, name: Any) -> int:
    """The number of the annotator that a request is about: an annotator's own, else the one that is named."""
    if caller.role == "annotator":
        if caller.annotator is None:
            raise HTTPException(403, "This token does not belong to an annotator.")
        if name is not None and name != caller.token.name:
            raise HTTPException(403, "Annotators answer for themselves: leave the annotator out.")
        return caller.annotator
    if name is None:
        raise HTTPException(422, "Say which annotator: annotator=NAME.")
    return await service.number_now(campaign, name)


@router.get("/next", tags=["questions"])
async def questions_next(
    request: Request, service: ServiceOf, caller: WholeVoter, campaign: str,
    n: Annotated[int, Query(ge=1, le=50)] = 1, annotator: For = None,
) -> Questions:  # fmt: skip
    """What an annotator should do now: what is out already, then new questions. They are leased for ``patience``
    seconds; asking again gives the same. An image, a text or whatever the item holds is in ``payload``; ``first``
    says which side of a pair is shown first."""
    if caller.csrf is not None and request.headers.get("sec-fetch-dest") == "document":
        raise HTTPException(403, "Questions are for the labelling page: a link to them from elsewhere does nothing.")
    who = await who_asks(service, caller, campaign, annotator)
    questions = await service.queues.next_now(campaign, who, n)
    if caller.role != "annotator" or questions.questions:
        return questions
    state = (
        questions.state
        if questions.state in ("paused", "closed")
        else "ended"
        if questions.state in ENDS
        else "waiting"
    )
    code = await service.read_now(lambda conn: completion_code(conn, campaign, who, state))
    return Questions(questions=[], state=state, why_none=FOR_ANNOTATORS[state], code=code)


def completion_code(conn: sa.Connection, campaign: str, who: int, state: str) -> str | None:
    """The code of an annotator who has answered something and has nothing more to do."""
    code = find_campaign(conn, campaign).settings["completion_code"]
    if not code:
        return None
    where = (annotators.c.campaign == campaign) & (annotators.c.number == who)
    person = conn.execute(sa.select(annotators).where(where)).one()
    done = progress(conn, campaign, who)["done"]
    full = person.max_votes is not None and done >= person.max_votes
    return code if person.available and done and (full or state == "ended") else None


@router.post("/votes", status_code=201, tags=["votes"])
async def votes_add(service: ServiceOf, caller: Voter, campaign: str, ballot: VoteMessage | Ballot) -> ReceiptMessage:
    """Add a vote, or several (``{"votes": [...]}``) all or none. What is answered is on the disk. A vote with an ``id``
    that is there with the same content is counted as repeated."""
    messages = ballot.votes if isinstance(ballot, Ballot) else [ballot]
    votes = [await _given(service, caller, campaign, vote) for vote in messages]
    return ReceiptMessage(**await service.together_now(campaign, add_together, votes))


async def _given(service: Service, caller: Caller, campaign: str, vote: VoteMessage) -> VoteGiven:
    """A vote as the store takes it: an annotator's own needs the ticket of its question; of a lead's, a ticket keeps
    the order in which the sides of a pair were shown."""
    own, name, shown = caller.role == "annotator", vote.annotator, None
    if not own and name is None:
        raise HTTPException(422, "Say whose vote it is: annotator.")
    if own or vote.ticket is not None:
        who = await who_asks(service, caller, campaign, name)
        good, shown = service.signer.read_ticket(vote.ticket or "", campaign, vote.item, who)
        if not good:
            raise HTTPException(403, "The ticket of the question is missing or wrong: answer what GET next gave you.")
    name = caller.token.name if own else name
    return VoteGiven(vote.item, name, vote.label, vote.id, vote.seconds, shown, own, vote.others)


@router.post("/undo", tags=["votes"])
async def votes_undo(service: ServiceOf, caller: Voter, campaign: str, body: Undone) -> dict[str, Any]:
    """Take back one's own vote on an item, or the last one. It stays in the store and no longer counts."""
    who = await who_asks(service, caller, campaign, body.annotator)

    def run(conn: Any) -> Any:
        item = None if body.item is None else find_numbers(conn, items, campaign, [body.item])[0]
        return undo(conn, campaign, who, item)

    return await service.write_now(run, campaign)


@router.post("/release", tags=["questions"])
async def questions_release(service: ServiceOf, caller: WholeVoter, campaign: str, body: Released) -> dict[str, int]:
    """Give questions back, so that others can be asked."""
    who: int | None = None
    if caller.role == "annotator" or body.annotator is not None:
        who = await who_asks(service, caller, campaign, body.annotator)
    elif body.items is None:
        raise HTTPException(422, "Say what is released: the questions of an annotator, or about items.")

    def run(conn: Any) -> Any:
        numbers = None if body.items is None else find_numbers(conn, items, campaign, body.items)
        return release(conn, campaign, who, numbers)

    return {"released": await service.write_now(run, campaign)}


@router.post("/skip", tags=["questions"])
async def questions_skip(service: ServiceOf, caller: WholeVoter, campaign: str, body: Asked) -> dict[str, Name]:
    """Never ask the annotator about an item again, and say why."""
    if caller.role == "annotator" and not body.skipped:
        raise HTTPException(403, "Only a lead can have a skipped item asked again.")
    who = await who_asks(service, caller, campaign, body.annotator)

    def run(conn: Any) -> Any:
        find_campaign(conn, campaign)
        (number,) = find_numbers(conn, items, campaign, [body.item])
        skip(conn, campaign, who, number, body.reason, body.skipped)

    await service.write_now(run, campaign)
    return {"skipped": body.item}


@router.get("/progress", tags=["questions"])
async def questions_progress(service: ServiceOf, caller: Voter, campaign: str, annotator: For = None) -> dict[str, Any]:
    """How much an annotator has done; nothing of others."""
    who = await who_asks(service, caller, campaign, annotator)
    return await service.read_now(lambda conn: progress(conn, campaign, who))


def progress(conn: sa.Connection, campaign: str, annotator: int) -> dict[str, Any]:
    """How much an annotator has done, and of how many items."""
    there = count(conn, items, items.c.campaign == campaign, items.c.closed.is_(False))
    return {"done": votes_given(conn, campaign, annotator), "items": there}


@router.get("/votes", tags=["votes"], responses={200: {"content": DOWNLOADS}})
async def votes_list(
    service: ServiceOf, caller: Lead, campaign: str, after: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 5_000, format: Format = "json",
    together: Annotated[bool, Query(description="With the answers to further questions: JSON lines alone.")] = False,
) -> Any:  # fmt: skip
    """The votes that count, in the order in which they came; the next page begins after ``next``. As a download all of
    them, in the columns that ``crowdwise aggregate`` and ``crowdwise rank`` read; ``together`` those of several
    questions, an item a line, which these commands read with ``--question``."""
    if together:
        if format != "jsonl":
            raise ParameterError(f"format={format!r}: several questions together are JSON lines, format=jsonl.")
        lines = await service.heavy_now(lambda: service.read(lambda conn: answers_together(conn, campaign)))
        return Response("".join(lines), media_type=FILES[format], headers=attached(format, "answers"))
    if format != "json":
        return await service.compute_now(
            campaign, ("votes", format), lambda view: download(view.table.to_frame(kind="polars"), format, "votes")
        )
    page = await service.read_now(lambda conn: list_votes(conn, campaign, after, limit), campaign)
    return {"votes": page, "next": page[-1]["seq"] if len(page) == limit else None}


def answers_together(conn: sa.Connection, campaign: str) -> list[str]:
    """A line of JSON for each item: its annotators, and for each question what each of them answered, as data sets of
    Hugging Face have it."""
    row, answers_of = find_campaign(conn, campaign), dict[Any, dict[Any, dict[str, Any]]]()
    questions = {row.settings["question"]: row.id, **row.questions}
    if len(questions) < 2:
        raise ParameterError("together: this campaign asks one question. Leave it out.")
    for question, of in questions.items():
        for vote in list_votes(conn, of, 0, ALL):
            answers_of.setdefault(vote["item"], {}).setdefault(vote["annotator"], {})[question] = vote["label"]
    return [
        json.dumps({
            "item": item, "annotators": list(people),
            **{question: [answers.get(question) for answers in people.values()] for question in questions},
        }) + "\n"
        for item, people in answers_of.items()
    ]  # fmt: skip


@router.get("/items/{item}/votes", tags=["votes"])
async def votes_of(service: ServiceOf, caller: Lead, campaign: str, item: str) -> list[dict[str, Any]]:
    """The votes on an item that count."""

    def read(conn: Any) -> Any:
        return votes_of_item(conn, campaign, find_numbers(conn, items, campaign, [item])[0])

    return await service.read_now(read, campaign)
