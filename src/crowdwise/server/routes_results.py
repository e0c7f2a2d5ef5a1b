"""What came out, and what a lead looks at: status, consensus, reliability, agreement, report, curve, flags, pace."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
import sqlalchemy as sa
from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse

from crowdwise import registry
from crowdwise.active.stopping import Sentence
from crowdwise.data.sheets import safe_table
from crowdwise.errors import InputError, NotFittedError, ParameterError
from crowdwise.report.build import build_report
from crowdwise.report.findings import diagnose_answers
from crowdwise.report.page import check_extra, page
from crowdwise.server.api_messages import SecondLook
from crowdwise.server.caller import Lead, Reader, ServiceOf
from crowdwise.server.http_problems import responses
from crowdwise.store import steady_clock
from crowdwise.store.campaign_rows import list_points, skill_history
from crowdwise.store.database import count, main_of, named_by
from crowdwise.store.live_votes import NO_VOTES
from crowdwise.store.roster_rows import find_numbers, items_since, list_reviews, payload_of, settle
from crowdwise.store.store_tables import annotators, items, leases, skips, votes
from crowdwise.store.vote_rows import votes_of_item
from crowdwise.trust.agreement import TITLES
from crowdwise.trust.agreement import agreement as agreement_of
from crowdwise.trust.annotators import assess_annotators
from crowdwise.trust.item_review import assess_items
from crowdwise.trust.wording import flag_words

router = APIRouter(prefix="/api/v1/campaigns/{campaign}", responses=responses(409))


def plain_rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a table as JSON can say them: numbers that are not finite are null."""
    return [_finite(row) for row in frame.to_dicts()]


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}


def consensus_rows(view: Any, probabilities: bool = False) -> Any:
    """The consensus of a view as a table, one row for each item that was voted on; of classes with the probability of
    each, where that is asked for."""
    if probabilities and view.row.form != registry.ONE_CLASS:
        raise ParameterError(f"probabilities: of classes only; this campaign is of {view.row.answer_type}.")
    options = {"probabilities": True} if probabilities else {}
    frame = view.consensus.to_frame("items", kind="polars", **options)
    if getattr(view, "single", False):  # the confidence of single answers is unknown
        unknown = [name for name in UNSURE if name in frame.columns and name != view.row.answer_column]
        frame = frame.with_columns(pl.lit(None, frame[name].dtype).alias(name) for name in unknown)
    return settled_rows(frame, view)


UNSURE = ("probability", "entropy", "deviation", "low", "high")  # columns that say how sure an answer is


def settled_rows(frame: Any, view: Any) -> Any:
    """A table of items with what second looks say of them, and a column that says which were settled."""
    column = view.row.answer_column
    if not view.settled or column not in frame.columns:
        return frame
    answers = {item: "|".join(map(str, x)) if isinstance(x, list) else x for item, x in view.settled.items()}
    new = [answers.get(item, x) for item, x in zip(frame["item"], frame[column], strict=True)]
    there = pl.Series("settled", [item in answers for item in frame["item"]])
    frame = frame.with_columns(pl.Series(column, new, dtype=frame[column].dtype), there)
    sure = [name for name in UNSURE if name in frame.columns]
    return frame.with_columns(
        pl.when(pl.col("settled")).then(1.0 if name == "probability" else None).otherwise(pl.col(name)).alias(name)
        for name in sure
    )


@router.get("/status", tags=["results"])
async def status(service: ServiceOf, caller: Reader, campaign: str) -> dict[str, Any]:
    """Counts, money, the accuracy as it is estimated without truth, its status and why it stops; ``sentences`` has
    these as patterns and what is put into them, for pages in other languages."""

    def make(view: Any) -> dict[str, Any]:
        facts = {**view.status, "campaign": campaign, "open": view.row.state}
        if view.row.is_further:  # its campaign asks, pays and ends
            first = service.view(main_of(campaign), leases=True).status
            facts |= {name: first[name] for name in ("asked", "finished", "state", "stop", "advice")}
        texts = {name: facts[name] for name in ("stop", "advice")} | {"proven": (facts["proof"] or {}).get("proven")}
        return facts | {"sentences": {name: Sentence.parts(text) for name, text in texts.items() if text is not None}}

    return await service.compute_now(campaign, "status", make, leases=True)


FILES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet", "jsonl": "application/x-ndjson"}
DOWNLOADS: dict[str, Any] = {media.partition(";")[0]: {} for media in FILES.values()}
"""Media types of downloads, for OpenAPI."""
Format = Annotated[Literal["json", "csv", "parquet", "jsonl"], Query(description="json: pages; else all as a file.")]


@router.get("/consensus", tags=["results"], responses={200: {"content": DOWNLOADS}})
async def consensus(
    service: ServiceOf, caller: Reader, campaign: str,
    format: Format = "json",
    offset: Annotated[int, Query(ge=0, lt=2**31)] = 0, limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    label: Annotated[str | None, Query(max_length=500, description="Only items with this label.")] = None,
    min_probability: Annotated[float, Query(ge=0, le=1)] = 0.0,
    max_probability: Annotated[float, Query(ge=0, le=1)] = 1.0,
    probabilities: Annotated[bool, Query(description="Of every class.")] = False,
    since: Annotated[int | None, Query(ge=0, lt=2**62, description="Only items with votes after this cursor.")] = None,
) -> Any:  # fmt: skip
    """The consensus label of each item: pages as JSON (``seq`` is the cursor for ``since``), or all as a download."""

    def make(view: Any) -> Any:
        frame = consensus_rows(view, probabilities)
        if since is not None:
            names = service.read(lambda conn: items_since(conn, campaign, since))
            frame = frame.filter(frame["item"].is_in(names))
        if label is not None:
            if "label" not in frame.columns:
                raise ParameterError(f"label: results of {view.row.answer_type} have no label to filter by.")
            frame = frame.filter(frame["label"].cast(str) == label)
        if "probability" in frame.columns and (min_probability > 0.0 or max_probability < 1.0):
            frame = frame.filter(frame["probability"].is_between(min_probability, max_probability))
        if format != "json":
            return download(frame, format, "consensus")
        rows, more = plain_rows(frame[offset : offset + limit]), offset + limit < len(frame)
        return {"items": rows, "total": len(frame), "next": offset + limit if more else None, "seq": view.seq}

    asked = (format, offset, limit, label, min_probability, max_probability, probabilities, since)
    return await service.compute_now(campaign, ("consensus", *asked), make)


def download(frame: Any, format: str, name: str) -> Response:
    """A table as a file; no cell of a CSV file is a formula."""
    buffer = io.BytesIO()
    if format == "parquet":
        frame.write_parquet(buffer)
    elif format == "jsonl":
        frame.write_ndjson(buffer)
    else:
        safe_table(frame).write_csv(buffer)
    return Response(buffer.getvalue(), media_type=FILES[format], headers=attached(format, name))


def attached(format: str, name: str) -> dict[str, str]:
    """The header of a download."""
    return {"Content-Disposition": f'attachment; filename="{name}.{format}"'}


@router.get("/reliability", tags=["results"], responses={200: {"content": DOWNLOADS}})
async def reliability(service: ServiceOf, caller: Reader, campaign: str, format: Format = "json") -> Any:
    """The reliability of each annotator, with intervals."""

    def make(view: Any) -> Any:
        frame = view.consensus.to_frame("annotators", kind="polars")
        return plain_rows(frame) if format == "json" else download(frame, format, "annotators")

    return await service.compute_now(campaign, ("reliability", format), make)


SANDBOX = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:"
)
"""The report is a page of its own with its script inside: it runs without an origin, so without cookies or the API."""


@router.get("/history", tags=["results"])
async def history(service: ServiceOf, caller: Reader, campaign: str) -> list[dict[str, Any]]:
    """Votes, money and the estimated accuracy over time."""
    return await service.read_now(lambda conn: list_points(conn, campaign), campaign)


@router.get("/annotators/{name}/history", tags=["results", "annotators"])
async def annotator_history(service: ServiceOf, caller: Lead, campaign: str, name: str) -> list[dict[str, Any]]:
    """The accuracy of an annotator over time, with intervals."""

    def read(conn: Any) -> Any:
        find_numbers(conn, annotators, campaign, [name])
        return skill_history(conn, campaign, name)

    return await service.read_now(read, campaign)


@router.get("/flags", tags=["results"])
async def flags(service: ServiceOf, caller: Lead, campaign: str) -> list[dict[str, Any]]:
    """Annotators with accuracy, skill, speed and flags (no better than guessing, drifting, too fast, ...), the most
    suspect first."""
    return await service.compute_now(campaign, "flags", lambda view: service.read(partial(annotator_flags, view=view)))


@router.get("/review", tags=["results"])
async def review(
    service: ServiceOf, caller: Lead, campaign: str, limit: Annotated[int, Query(ge=1, le=200)] = 20
) -> list[dict[str, Any]]:
    """The items whose label is most in doubt, why, and their votes."""

    def make(view: Any) -> list[dict[str, Any]]:
        rows = service.read(lambda conn: items_to_review(conn, view, limit))
        return [row | {"payload": service.media.signed(campaign, row["payload"])} for row in rows]

    return await service.compute_now(campaign, ("review", limit), make)


@router.post("/reviews", status_code=201, tags=["results"])
async def reviews_add(service: ServiceOf, caller: Lead, campaign: str, look: SecondLook) -> dict[str, Any]:
    """Settle an item by a second look: accept its answer or correct it, or open it again (``null``). Annotators are not
    measured by it, as the items that are looked at are not a random sample; for that there is gold."""

    def run(conn: Any, row: Any) -> Any:
        if not row.answer_column:
            raise ParameterError(f"A campaign of {row.answer_type} gives items no answer of their own to settle.")
        return settle(conn, row, look.item, look.answer, caller.token.name, look.note)

    return await caller.change(service, campaign, "second look", run, **look.model_dump())


@router.get("/reviews", tags=["results"])
async def reviews_list(
    service: ServiceOf, caller: Lead, campaign: str,
    item: Annotated[str | None, Query(max_length=500)] = None, limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> list[dict[str, Any]]:  # fmt: skip
    """Second looks, the latest first: who settled what, with what stood before."""
    return await service.read_now(lambda conn: list_reviews(conn, campaign, item, limit), campaign)


@router.get("/throughput", tags=["results"])
async def throughput(service: ServiceOf, caller: Reader, campaign: str) -> dict[str, Any]:
    """Votes of the last minute, hour and day, of each of the last 60 minutes (the latest last), of each annotator in
    the last hour, and questions out."""
    return await service.read_now(lambda conn: pace(conn, campaign), campaign)


@router.get("/agreement", tags=["results"])
async def agreement(service: ServiceOf, caller: Reader, campaign: str) -> list[dict[str, Any]]:
    """How much annotators agree, by the coefficients that suit the answers, with intervals."""

    def make(view: Any) -> list[dict[str, Any]]:
        try:
            rows = plain_rows(agreement_of(view.table).to_frame(kind="polars"))
        except InputError as error:  # no item has two answers yet
            raise NotFittedError(str(error)) from None
        return [row | {"title": TITLES.get(row["coefficient"], row["coefficient"].capitalize())} for row in rows]

    return await service.compute_now(campaign, "agreement", make)


@router.get("/report", tags=["results"], response_class=HTMLResponse)
async def report(service: ServiceOf, caller: Lead, campaign: str) -> HTMLResponse:
    """The report as an HTML page."""

    def make(view: Any) -> str:
        check_extra()
        if view.row.form == registry.TOKENS and view.single:
            raise NotFittedError("A report on tags needs the tags of two annotators: there is one so far.")
        return page(build_report(view.table, view.consensus, title=view.row.name, all_items=True))

    html = await service.compute_now(campaign, "report", make)
    return HTMLResponse(html, headers={"Content-Security-Policy": SANDBOX})


TIMED = 300_000  # up to so many votes the order of votes is looked at (drift)
FAST, MIN_TIMED = 3.0, 10
"""Too fast: the median seconds of an answer are less than this part of the crowd's; with so many answers at least."""


def _votes_with_times(conn: sa.Connection, view: Any) -> Any:
    """The votes of a view with their times, where they are not too many."""
    table = view.table
    if view.row.n_answers > TIMED:
        return table
    query = sa.select(votes.c.item, votes.c.annotator, votes.c.time).where(
        votes.c.campaign == view.row.id, votes.c.retracts.is_(None), votes.c.seq <= view.seq
    )
    items_, people = view.online.item_names.names, view.online.annotator_names.names
    when = {(items_[n - 1], people[m - 1]): t for n, m, t in conn.execute(query.order_by(votes.c.seq))}
    pairs = zip(table.items[table.item].tolist(), table.annotators[table.annotator].tolist(), strict=True)
    return replace(table, timestamp=np.array([when[pair] for pair in pairs]))


def annotator_flags(conn: sa.Connection, view: Any) -> list[dict[str, Any]]:
    """Annotators with their skill, speed and flags, the most suspect first."""
    seconds = median_seconds(conn, view.row.id)
    usual = float(np.median(list(seconds.values()))) if seconds else 0.0
    out = []
    for row, words in _flagged(conn, view):
        pace_ = seconds.get(row["annotator"])
        if pace_ is not None and len(seconds) > 2 and pace_ * FAST < usual:
            words.append(_flag("too-fast", f"answers in {pace_:.1f} s, others in {usual:.1f} s"))
        row |= {"seconds": pace_, "flags": words}
        out.append(_finite(row))
    return sorted(out, key=lambda row: -(row["suspicion"] or 0.0))


def _flag(kind: str, words: str, title: str = "") -> dict[str, str]:
    """A flag: its kind, in a few words, and why."""
    return {"kind": kind, "title": title or kind.replace("-", " "), "words": words}


def _flagged(conn: sa.Connection, view: Any) -> Iterator[tuple[dict[str, Any], list[dict[str, str]]]]:
    """Annotators as rows, each with its flags: of classes by their votes, of other answers what the report finds."""
    if view.row.answer_type == registry.VOTES:
        assessed = assess_annotators(_votes_with_times(conn, view), view.consensus)
        for row, flags in zip(assessed.to_frame(kind="polars").to_dicts(), assessed.flags, strict=True):
            yield row, [_flag(flag.kind.value, flag_words(flag)) for flag in flags]
        return
    rules, result = registry.ANSWER_TYPES[view.row.answer_type].rules, view.consensus
    alone = getattr(view, "single", False)  # no other annotators to compare with
    findings = [] if alone else diagnose_answers(view.row.answer_type, result).findings
    for row in plain_rows(result.to_frame("annotators", kind="polars")):
        mine = [one.kind for one in findings if row["annotator"] in one.annotators]
        words = [_flag(kind, title := rules.kinds[kind].title, title) for kind in mine]
        yield row | {"suspicion": float(len(words))}, words


def median_seconds(conn: sa.Connection, campaign: str) -> dict[Any, float]:
    """Annotator -> the median of the seconds of the latest answers, of those with enough that have a time."""
    query = sa.select(annotators.c.name, votes.c.seconds).join(annotators, named_by(annotators, votes))
    query = query.where(votes.c.campaign == campaign, votes.c.seconds.is_not(None)).order_by(votes.c.seq.desc())
    of_person: dict[str, list[float]] = {}
    for name, seconds in conn.execute(query.limit(20_000)):
        of_person.setdefault(name, []).append(seconds)
    return {json.loads(name): float(np.median(x)) for name, x in of_person.items() if len(x) >= MIN_TIMED}


def items_to_review(conn: sa.Connection, view: Any, limit: int) -> list[dict[str, Any]]:
    """The items whose label is most in doubt, with what is shown of them and their votes."""
    if not view.row.n_answers:
        raise NotFittedError(NO_VOTES)
    names = view.online.item_names.names if view.row.answer_type == registry.VOTES else view.items
    known = {*view.settled, *(names[n] for n in view.gold)}
    rows = _doubtful(view).head(limit + len(known)).to_dicts()
    rows = [row for row in rows if row["item"] not in known][:limit]
    numbers = find_numbers(conn, items, view.row.id, [row["item"] for row in rows])
    kept = ("item", "label", "probability", "low", "high", "votes", "against", "review", "suggested", "why")
    unsure = (skips.c.campaign == view.row.id) & skips.c.item.in_(numbers) & (skips.c.reason == DONT_KNOW)
    query = sa.select(skips.c.item, sa.func.count()).where(unsure).group_by(skips.c.item)
    unknown = {number: n for number, n in conn.execute(query)}
    shown = payload_of(conn, view.row.id, numbers)
    return [
        {
            **{name: row[name] for name in kept if name in row}, "payload": shown[number][1],
            "given": votes_of_item(conn, view.row.id, number), "unsure": unknown.get(number, 0),
        }
        for row, number in zip(rows, numbers, strict=True)
    ]  # fmt: skip


def _doubtful(view: Any) -> Any:
    """Items with their answer as ``label``, the most doubtful first."""
    if view.row.answer_type == registry.VOTES:
        return assess_items(view.table, view.consensus).to_frame("items", kind="polars")
    column = view.row.answer_column
    if not column:
        raise ParameterError(f"A campaign of {view.row.answer_type} gives items no answer of their own to look at.")
    frame = view.consensus.to_frame("items", kind="polars").rename({column: "label"})
    if column == "labels":
        frame = frame.with_columns(pl.col("label").str.split("|").list.filter(pl.element() != ""))
    if "probability" in frame.columns:
        return frame.sort("probability", nulls_last=True)
    return frame.sort(pl.col("high") - pl.col("low"), descending=True, nulls_last=True) if "low" in frame else frame


DONT_KNOW = "I don't know"  # the reason of a skip that is an answer


def pace(conn: sa.Connection, campaign: str) -> dict[str, Any]:
    """Votes in the last minute, hour and day, of each of the last 60 minutes, of each annotator in the last hour, and
    the questions that are out."""
    now = steady_clock.now()
    spans = {"minute": 60.0, "hour": 3600.0, "day": 86400.0}
    mine = (votes.c.campaign == campaign) & votes.c.retracts.is_(None)
    out: dict[str, Any] = {name: count(conn, votes, mine, votes.c.time > now - span) for name, span in spans.items()}
    rounds = 0.0 if conn.dialect.name == "sqlite" else 0.5  # SQLite cuts to an integer, PostgreSQL rounds
    minute = sa.cast((now - votes.c.time) / 60.0 - rounds, sa.Integer)
    query = sa.select(minute, sa.func.count()).where(mine, votes.c.time > now - 3600.0)
    ago = {minutes: n for minutes, n in conn.execute(query.group_by(minute))}
    out["minutes"] = [int(ago.get(59 - i, 0)) for i in range(60)]
    person = sa.select(annotators.c.name, sa.func.count()).join(votes, named_by(annotators, votes))
    recent = person.where(mine, votes.c.time > now - 3600.0)
    out["annotators"] = {str(json.loads(name)): n for name, n in conn.execute(recent.group_by(annotators.c.name))}
    return {**out, "out": count(conn, leases, leases.c.campaign == campaign, leases.c.expires > now)}
