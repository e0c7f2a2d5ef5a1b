"""What a campaign was made with, and what of it may be changed later: each change is written into the journal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from crowdwise.active.fair_assignment import Gap
from crowdwise.active.stopping import StopRule
from crowdwise.active.strategies import Strategy
from crowdwise.core.constraints import Check, CountFromZero, Positive, constraint_of
from crowdwise.core.model import EMModel
from crowdwise.errors import InputError, ParameterError, suggestion
from crowdwise.store.canonical import name_text, one_kind
from crowdwise.store.journal import Journal

OWN: dict[str, Any] = {"price": Positive, "patience": Positive, "gap": Gap | None}
"""The settings that may be changed and are not those of the rule, and what they may be."""
NOT_NOW = {
    "classes": "The classes are those of the votes that came in",
    "strategy": "The model learns as its strategy says",
    "unknown": "Votes came in under this rule",
    "model": "The model has learned from the votes",
    "method": "The model has learned from the votes",
    "random_state": "Questions were drawn with this seed",
}
"""What stays as it was made, and why."""


def are_classes(names: Any) -> bool:
    """Whether names can be the classes of a campaign: two or more, all different and of one kind."""
    if isinstance(names, (str, bytes)):  # a text has letters, not classes
        return False
    try:
        texts = [name_text(name, "class", booleans=True) for name in names]
        one_kind(texts, "classes")
    except InputError:
        return False
    return len(texts) >= 2 and len(set(texts)) == len(texts)


Classes = Annotated[Sequence[Any], Check(are_classes, "two or more different classes, all text, integers or booleans")]

CHANGEABLE = (*StopRule.parameters(), *OWN)  # the names of all settings that may be changed


@dataclass(frozen=True)
class Settings:
    """The settings of a campaign, as its journal has them now."""

    rule: StopRule
    strategy: Strategy
    unknown: str
    patience: float
    price: float
    gap: float | None
    seed: int
    proposals: int  # how many batches were proposed so far

    @classmethod
    def of(cls, journal: Journal) -> Settings:
        facts = {"gap": None, **journal.facts()}
        with journal.decoding():
            check_settings(facts, OWN | {"seed": CountFromZero, "proposals": CountFromZero})
            own = {name: facts[name] for name in ("unknown", "patience", "price", "gap", "seed", "proposals")}
            return cls(StopRule(**facts["rule"]), Strategy(**facts["strategy"]), **own)

    @property
    def price_of_unknown(self) -> float | None:
        """The price of a vote of annotators who were not declared; ``None`` where these are an error."""
        return self.price if self.unknown == "add" else None


def check_settings(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """An error where a setting is not what it may be."""
    for name, allowed in kinds.items():
        if name in values and (constraint := constraint_of(allowed)) is not None:
            constraint.check(name, values[name])


def changed_settings(
    before: Mapping[str, Any], wanted: Mapping[str, Any], changeable: Sequence[str]
) -> dict[str, tuple[Any, Any]]:
    """Name -> (before, now) of the settings that differ; an error about one that cannot be changed."""
    for name in wanted:
        if name not in changeable:
            why = f"{NOT_NOW[name]}: make a new campaign for that." if name in NOT_NOW else "There is no such setting."
            near = "" if name in NOT_NOW else suggestion(name, changeable)
            raise ParameterError(f"{name} cannot be changed. {why}{near} What can be: {', '.join(changeable)}.")
    return {name: (before[name], value) for name, value in wanted.items() if value != before[name]}


def change_settings(journal: Journal, wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Change settings: name -> (before, now) of those that differ; inside :meth:`Journal.writing`."""
    wanted = {name: x.item() if isinstance(x, np.generic) else x for name, x in wanted.items()}
    facts = journal.facts()
    changed = changed_settings({**facts["rule"], **{name: facts.get(name) for name in OWN}}, wanted, CHANGEABLE)
    check_settings(wanted, OWN)
    rule = StopRule(**{**facts["rule"], **{name: x for name, x in wanted.items() if name not in OWN}})
    if wanted.get("gap") is not None:
        groups = journal.read("SELECT count(DISTINCT grp) FROM items")[0][0]
        if groups < 2:
            raise ParameterError("A gap is between groups: two groups of items at least are needed (add_items).")
    if changed:
        own = {name: x if x is None else float(x) for name, x in wanted.items() if name in OWN}
        journal.note(rule=rule.get_params(), **own)
        journal.log("settings", {name: list(pair) for name, pair in changed.items()})
    return changed


def kept_params(model: EMModel) -> dict[str, Any]:
    """The parameters of a model that are not the default, as they can be kept."""
    defaults = model.parameters()
    params = {name: value for name, value in model.get_params().items() if value != defaults[name]}
    try:
        return dict(json.loads(json.dumps(params)))
    except TypeError:
        odd = next(name for name, value in params.items() if not isinstance(value, (str, int, float, bool, list, dict)))
        raise ParameterError(f"{odd}={params[odd]!r} cannot be kept in a campaign: give plain numbers.") from None
