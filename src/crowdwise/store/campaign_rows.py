"""Campaigns in the store: made, read, changed, closed, deleted; their curves of votes, money and accuracy over time."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

import numpy as np
import sqlalchemy as sa

from crowdwise import registry
from crowdwise.active.stopping import Proof, StopRule
from crowdwise.active.strategies import DEFAULT, Strategy, find_strategy
from crowdwise.core.constraints import Bounds, Count, CountFromZero, Positive, Share
from crowdwise.core.model import EMModel
from crowdwise.errors import CrowdwiseError, InputError, ParameterError, listing, suggestion
from crowdwise.online.stream import Online
from crowdwise.store import steady_clock
from crowdwise.store.answer_forms import WITH_CLASSES
from crowdwise.store.canonical import name_text
from crowdwise.store.database import count, family, insert_new, largest, main_of
from crowdwise.store.settings import CHANGEABLE, Classes, changed_settings, check_settings, kept_params
from crowdwise.store.store_tables import campaigns, events, points

STATES = ("open", "paused", "closed")
DEFAULT_METHOD = "one-coin"
RULE = StopRule().get_params()  # settings of the rule, and their defaults
GOLD_RATE = Annotated[float, Bounds(minimum=0, below=1)]
SETTINGS: dict[str, tuple[Any, Any]] = {
    "price": (1.0, Positive), "patience": (600.0, Positive), "gap": (None, None), "gold_rate": (0.0, GOLD_RATE),
    "feedback": (False, bool), "instructions": ("", str), "unknown": ("error", Literal["error", "add"]),
    "seed": (0, CountFromZero), "scale": (None, None), "ties": (False, bool), "unsure": (False, bool),
    "consent": ("", str), "practice": (0, CountFromZero), "screen": (None, Share | None), "quota": (None, Count | None),
    "votes_each": (None, Count | None), "completion_code": ("", str), "question": ("", str), "questions": ([], None),
}  # fmt: skip
"""Settings that are not those of the rule: their defaults, and what they may be."""
OWN = {name: default for name, (default, _) in SETTINGS.items()}
KINDS = {name: kind for name, (_, kind) in SETTINGS.items() if kind is not None}
PEOPLE = ("unsure", "consent", "practice", "screen", "quota", "votes_each", "completion_code")
"""Settings of who labels: "I don't know" as an answer, what is agreed to, practice questions and the share of them that
must be right, the most people who sign up, votes of each of them, and the code that they get at the end."""
LATER = (*(name for name in CHANGEABLE if name != "gap"), "gold_rate", "feedback", "instructions", "name", *PEOPLE)
"""What may be changed while a campaign runs."""
QUESTION = re.compile(r"(?!(?i:items?|annotators?)$)[A-Za-z0-9_-]{1,19}")
ANSWER_COLUMNS = {
    registry.ONE_CLASS: "label", registry.CLASSES: "labels", registry.NUMBER: "value", registry.TEXT: "text",
}  # fmt: skip
"""Form -> the column of results with the answer, where items have one: these can be asked together about an item."""


class NotThere(InputError):
    """A campaign, item, annotator, token or webhook was asked for that is not there."""


@dataclass(frozen=True)
class CampaignRow:
    """A campaign as the store has it."""

    id: str
    name: str
    answer_type: str
    classes: list[Any]
    settings: dict[str, Any]
    state: str
    version: int
    last_vote: int
    n_answers: int
    spent: float
    created: float

    @property
    def form(self) -> str:
        """How questions are asked: a form of ``registry``. Votes are followed by a stream, other answers refitted."""
        return registry.ANSWER_TYPES[self.answer_type].form

    @property
    def is_further(self) -> bool:
        """Whether it is a further question about the items of another campaign, which hands them out."""
        return main_of(self.id) != self.id

    @property
    def questions(self) -> dict[str, str]:
        """Further questions about its items -> the campaigns that hold their answers."""
        return {name: f"{self.id}.{name}" for name in self.settings["questions"]}

    @property
    def answer_column(self) -> str:
        """What a table of results calls the answer on an item; empty where it has none of its own."""
        return ANSWER_COLUMNS.get(self.form, "")

    @cached_property
    def rule(self) -> StopRule:
        return _rule(*(self.settings.get(name, default) for name, default in RULE.items()))

    @cached_property
    def strategy(self) -> Strategy:
        return Strategy(**self.settings["strategy"])

    @property
    def price_of_unknown(self) -> float | None:
        """The price of a vote of annotators who were not declared; ``None`` where these are an error."""
        return float(self.settings["price"]) if self.settings["unknown"] == "add" else None

    def model(self) -> EMModel:
        """The model that follows the votes."""
        model: EMModel = registry.create(self.settings["method"], **self.settings["params"])
        return model

    def shown(self) -> dict[str, Any]:
        """What the API says about it, to those who may see all."""
        settings = {name: value for name, value in self.settings.items() if name not in ("strategy", "seed", "proof")}
        facts = {name: getattr(self, name) for name in ("id", "name", "answer_type", "classes", "state")}
        return {**facts, "votes": self.n_answers, "spent": self.spent, "created": self.created, "settings": settings}


def _row(row: Any) -> CampaignRow:
    facts = dict(zip(campaigns.c.keys(), row, strict=False))  # a query may ask for more
    return CampaignRow(**facts | {"classes": _parsed(row.classes), "settings": OWN | _parsed(row.settings)})


@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    """The value of a JSON text; it is shared, and never changed."""
    return json.loads(text)


@lru_cache(maxsize=256)
def _rule(*values: Any) -> StopRule:
    return StopRule(**dict(zip(RULE, values, strict=True)))


def find_campaign(conn: sa.Connection, id_: str) -> CampaignRow:
    return find_more(conn, id_, BY_ID)[0]


def find_more(conn: sa.Connection, id_: str, query: Any) -> tuple[CampaignRow, Sequence[Any]]:
    """A campaign, and what else a query begun by ``BY_ID`` asks for."""
    row = conn.execute(query, {"id": id_}).first()
    if row is None:
        raise NotThere(f"There is no campaign {id_!r}.")
    return _row(row), row[len(campaigns.c) :]


BY_ID = sa.select(campaigns).where(campaigns.c.id == sa.bindparam("id"))


def list_campaigns(conn: sa.Connection) -> list[CampaignRow]:
    return [_row(row) for row in conn.execute(sa.select(campaigns).order_by(campaigns.c.created, campaigns.c.id))]


def read_marks(conn: sa.Connection) -> dict[str, tuple[int, int]]:
    """Id -> the last vote and the version of each campaign."""
    query = sa.select(campaigns.c.id, campaigns.c.last_vote, campaigns.c.version)
    return {row.id: (row.last_vote, row.version) for row in conn.execute(query)}


def create_campaign(conn: sa.Connection, wanted: Mapping[str, Any], id_: str | None = None) -> CampaignRow:
    """Make a campaign; settings that are not given have their defaults. Each further question about its items
    (``questions``) is a campaign, too, with the same items and annotators."""
    wanted = {name: value for name, value in wanted.items() if value is not None}
    id_, further = id_ or uuid.uuid4().hex[:12], wanted.pop("questions", [])
    asked = [wanted.get("question", ""), *(one["question"] for one in further)] if further else []
    for question in asked:
        if not QUESTION.fullmatch(question) or [one.lower() for one in asked].count(question.lower()) > 1:
            raise ParameterError(
                f"question={question!r}: expected a name of its own for each of several questions, of up to 19 "
                "letters of a to z, digits, - and _, and neither item nor annotator."
            )
    name, kind = wanted.pop("name"), registry.answer_type(wanted.pop("answer_type", registry.VOTES))
    if not registry.ANSWER_TYPES[kind].form:
        served = ", ".join(name for name, other in registry.ANSWER_TYPES.items() if other.form)
        raise ParameterError(f"Campaigns of {kind} cannot be served yet: there are {served}.")
    classes = wanted.pop("classes", [])
    _check_classes(kind, classes)
    form = registry.ANSWER_TYPES[kind].form
    if (asked or main_of(id_) != id_) and form not in ANSWER_COLUMNS:
        raise ParameterError(f"A question of {kind} is asked alone: give it a campaign without questions.")
    settings = _settings(kind, classes, {**wanted, "questions": asked[1:]})
    row = {
        "id": id_, "name": name, "answer_type": kind, "state": "open", "created": steady_clock.now(),
        "classes": json.dumps([json.loads(name_text(c, "class", booleans=True)) for c in classes]),
        "settings": json.dumps(settings), "version": 1, "last_vote": 0, "n_answers": 0, "spent": 0.0,
    }  # fmt: skip
    conn.execute(campaigns.insert(), row)
    for one in further:
        also = {key: wanted.get(key) for key in ("max_votes", "seed")}
        create_campaign(conn, {**also, "name": f"{name}: {one['question']}", **one}, f"{id_}.{one['question']}")
    return find_campaign(conn, id_)


def _check_classes(kind: str, classes: list[Any]) -> None:
    form = registry.ANSWER_TYPES[kind].form
    if form == registry.STRETCHES and len(classes) == 1:  # one class can be marked, or not
        name_text(classes[0], "class")
    elif form in WITH_CLASSES:
        check_settings({"classes": classes}, {"classes": Classes})
        if form == registry.CLASSES and any("|" in str(name) for name in classes):
            raise ParameterError(f"classes={classes}: | stands between the classes of an item in tables of results.")
    elif classes:
        raise ParameterError(f"A campaign of {kind} has no classes: leave them out.")


def _settings(kind: str, classes: list[Any], wanted: dict[str, Any]) -> dict[str, Any]:
    known = [*RULE, *OWN, "method", "params", "strategy"]
    for name in wanted:
        if name not in known:
            raise ParameterError(f"There is no setting {name!r}.{suggestion(name, known)}")
    out = {**RULE, **OWN, **{name: wanted[name] for name in wanted if name in (*RULE, *OWN)}}
    _check(kind, out)
    strategy = find_strategy(wanted.get("strategy", DEFAULT))
    default = DEFAULT_METHOD if kind == registry.VOTES else registry.default_method(kind)
    entry = registry.find(wanted.get("method", default), kind)
    model = entry.create(**wanted.get("params", {}))
    if kind == registry.VOTES:
        Online(model, classes=classes)  # raises an error where the model cannot follow a stream
    else:
        out["max_votes"] = out["max_votes"] or 3
    return out | {"method": entry.key, "params": kept_params(model), "strategy": strategy.get_params()}


def _check(kind: str, out: dict[str, Any]) -> None:
    """Raise an error about settings that are out of range."""
    for name, default in {**RULE, **OWN}.items():
        if default is not None and out[name] is None:
            raise ParameterError(f"{name}: expected a value such as {default!r}, and found none.")
    StopRule(**{name: out[name] for name in RULE})
    check_settings(out, KINDS)
    if kind != registry.VOTES:
        for name in ("target", "stake", "max_error"):
            if out[name] is not None:
                raise ParameterError(
                    f"{name}: the accuracy of {kind} is neither estimated nor proven. Give budget or max_votes."
                )
    if out["gap"] is not None:
        raise ParameterError("gap: groups of items are not balanced by the server; use a campaign folder for that.")
    if registry.ANSWER_TYPES[kind].form == registry.NUMBER:
        scale = out["scale"] = out["scale"] or {"min": 0.0, "max": 100.0, "step": 1.0}
        if not (scale.get("min", 0.0) < scale.get("max", 100.0) and scale.get("step", 1.0) > 0.0):
            raise ParameterError("scale: expected min below max, and a step above 0.")
        out["scale"] = {"min": 0.0, "max": 100.0, "step": 1.0} | scale
    elif out["scale"] is not None:
        raise ParameterError(f"scale: a campaign of {kind} has none; it is for ratings.")


def check_campaign(row: CampaignRow) -> None:
    """Raise an error about a campaign that could not have been made."""
    _check_classes(registry.answer_type(row.answer_type), row.classes)
    _check(row.answer_type, {**RULE, **OWN, **row.settings})
    registry.find(row.settings["method"], row.answer_type).create(**row.settings["params"])
    find_strategy(row.strategy)
    if row.state not in STATES:
        raise ParameterError(f"state={row.state!r}: expected one of {', '.join(STATES)}.")


def change_campaign(conn: sa.Connection, row: CampaignRow, wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Change settings: name -> (before, now) of those that differ."""
    if "name" in wanted and wanted["name"] is None:
        raise ParameterError("name: a campaign has one. Leave it out to keep it.")
    before = {**RULE, **row.settings}
    changeable = ("name", "instructions") if row.is_further else LATER  # the rest is that of its campaign
    changed = changed_settings({**before, "name": row.name}, wanted, changeable)
    if changed:
        settings = {**before, **{name: value for name, value in wanted.items() if name != "name"}}
        if row.answer_type != registry.VOTES and settings["max_votes"] is None:
            raise ParameterError(f"max_votes: a campaign of {row.answer_type} needs a number, which finishes an item.")
        _check(row.answer_type, settings)
        name = wanted.get("name", row.name)
        values = {"settings": json.dumps(settings), "name": name}
        conn.execute(campaigns.update().where(campaigns.c.id == row.id).values(**values))
        bump(conn, row.id)
        add_event(conn, row.id, "settings", {name: list(pair) for name, pair in changed.items()})
    return changed


def set_proof(conn: sa.Connection, row: CampaignRow, proof: Proof) -> None:
    """Keep gold labels that the model does not see, and the looks at them; followers see that something changed."""
    settings = json.dumps({**row.settings, "proof": proof.facts()})
    conn.execute(campaigns.update().where(campaigns.c.id == row.id).values(settings=settings))
    bump(conn, row.id)


def set_state(conn: sa.Connection, row: CampaignRow, state: str) -> None:
    if state != row.state:
        conn.execute(campaigns.update().where(family(campaigns.c.id, row.id)).values(state=state))
        bump(conn, row.id)
        add_event(conn, row.id, "state", {"state": state})


def delete_campaign(conn: sa.Connection, row: CampaignRow, confirmation: str) -> None:
    """Delete a campaign with all its votes; its name confirms that."""
    if confirmation != row.name:
        raise InputError(
            f"Deleting takes the votes with it: confirm with the name of the campaign, {row.name!r}. "
            "Nothing was deleted."
        )
    conn.execute(campaigns.delete().where(family(campaigns.c.id, row.id)))


def bump(conn: sa.Connection, id_: str) -> int:
    """Give the campaign and its questions their next version, for followers to see that something changed."""
    update = campaigns.update().where(family(campaigns.c.id, id_)).values(version=campaigns.c.version + 1)
    return int(conn.execute(update.returning(campaigns.c.version)).scalars().all()[0])


def event_row(id_: str, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """What is noted of something that happened to a campaign."""
    return {"campaign": id_, "time": steady_clock.now(), "kind": kind, "data": json.dumps(data)}


def add_event(conn: sa.Connection, id_: str, kind: str, data: Mapping[str, Any]) -> None:
    """Note what happened, for the event stream and webhooks."""
    conn.execute(events.insert(), event_row(id_, kind, data))


def check_open(row: CampaignRow) -> None:
    """Raise an error where a campaign takes no votes."""
    if row.state == "closed":
        raise CampaignClosed(f"The campaign {row.name!r} is closed: votes are not taken. Nothing was added.")


class CampaignClosed(CrowdwiseError):
    """The campaign takes no votes."""


def unknown_names(what: str, names: list[Any]) -> NotThere:
    """The error about items or annotators that a campaign does not have."""
    return NotThere(f"Unknown {what}: {listing(names)}. Nothing was changed. Declare them first: POST .../{what}.")


MOST = 500  # points that are handed over; where there are more, every so many
SHOWN = ("annotator", "votes", "accuracy", "accuracy_low", "accuracy_high")
SKILLS = 1.1  # skills are noted when the votes have grown by this factor


def point_of(view: Any, noted: int) -> dict[str, Any]:
    """The point of a view; skills are in it where the votes have grown by ``SKILLS`` since they were last."""
    status = view.status
    shown = {"accuracy": "accuracy", "low": "accuracy_low", "high": "accuracy_high"}
    return {
        "campaign": view.row.id, "seq": view.seq, "time": steady_clock.now(),
        **{name: status[name] for name in ("votes", "spent", "state")},
        **{name: status[own] if status["accuracy_known"] else None for name, own in shown.items()},
        "skills": _skills(view) if status["votes"] >= SKILLS * noted else None,
    }  # fmt: skip


def _skills(view: Any) -> str | None:
    """Annotator -> votes, accuracy and its interval, as JSON; nothing where annotators have no accuracy."""
    if not view.row.n_answers:
        return None
    frame = view.consensus.to_frame("annotators", kind="polars")
    if not set(SHOWN) <= set(frame.columns):
        return None
    rows = frame.select(SHOWN).iter_rows()
    skills = [[name, votes, *(None if math.isnan(x) else round(x, 4) for x in rest)] for name, votes, *rest in rows]
    return json.dumps(skills)


def add_point(conn: sa.Connection, point: dict[str, Any], standing: dict[str, Any]) -> None:
    """Write a point; another worker may have written it already. ``NotThere`` where the campaign is gone."""
    find_campaign(conn, point["campaign"])
    query = sa.select(points.c.state, points.c.seq).where(points.c.campaign == point["campaign"])
    last = conn.execute(query.order_by(points.c.seq.desc())).first()
    if last is not None and last.seq >= point["seq"]:
        return
    insert_new(conn, points, [point])
    _thin(conn, point["campaign"])
    if (last.state if last is not None else "running") != point["state"]:
        add_event(conn, point["campaign"], "standing", standing)


def _thin(conn: sa.Connection, campaign: str) -> None:
    """Where there are too many points, keep half of them, evenly over the votes, and those with skills: a curve of a
    year has no more points than one of a day."""
    plain = (points.c.campaign == campaign, points.c.skills.is_(None))
    if count(conn, points, *plain) < 4 * MOST:
        return
    there = np.array(conn.execute(sa.select(points.c.seq).where(*plain).order_by(points.c.seq)).scalars().all())
    kept = np.searchsorted(there, np.linspace(there[0], there[-1], 2 * MOST))
    gone = [{"at": int(seq)} for seq in np.delete(there, kept)]
    conn.execute(points.delete().where(*plain, points.c.seq == sa.bindparam("at")), gone)


def skills_noted(conn: sa.Connection, campaign: str) -> int:
    """How many votes there were when skills were last noted."""
    return largest(conn, points.c.votes, points.c.campaign == campaign, points.c.skills.is_not(None))


def list_points(conn: sa.Connection, campaign: str) -> list[dict[str, Any]]:
    """The curve, of which at most ``MOST`` points, the first and the last among them."""
    columns = [column for column in points.c if column.name not in ("campaign", "skills")]
    curve = conn.execute(sa.select(*columns).where(points.c.campaign == campaign).order_by(points.c.seq)).all()
    step = max(1, math.ceil(len(curve) / MOST))
    return [dict(row._mapping) for row in dict.fromkeys([*curve[::step], *curve[-1:]])]


def skill_history(conn: sa.Connection, campaign: str, annotator: Any) -> list[dict[str, Any]]:
    """The accuracy of an annotator over time."""
    query = sa.select(points.c.time, points.c.skills).where(points.c.campaign == campaign, points.c.skills.is_not(None))
    return [
        {"time": row.time, **dict(zip(SHOWN, one, strict=True))}
        for row in conn.execute(query.order_by(points.c.seq))
        for one in json.loads(row.skills)
        if str(one[0]) == str(annotator)
    ]
