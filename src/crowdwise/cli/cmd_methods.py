"""``crowdwise methods``: the methods there are, and their parameters."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import JsonOption, option
from crowdwise.cli.outputs import emit, say
from crowdwise.errors import ExtraError, ParameterError

LabelsOption = Annotated[bool, typer.Option("--labels", help="Only those that look at votes alone (aggregate).")]
LearnersOption = Annotated[
    bool, typer.Option("--learners", help="Only those that learn a classifier from inputs and votes (learn).")
]
AnswersOption = Annotated[
    str | None,
    option("--answers", metavar="TYPE", help="Only those for this answer type, or all for other types than votes."),
]


def methods(
    labels: LabelsOption = False, learners: LearnersOption = False, answers: AnswersOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """List the methods, or (with --json) all about their parameters."""
    from crowdwise.cli import show_lists

    kind = None if answers in (None, "all") else registry.answer_type(str(answers))
    every = not (labels or learners or answers)
    others = [e for e in registry.ANSWER_METHODS.values() if kind in (None, e.answer_type)]
    shown = {
        "methods": list(registry.for_votes().values()) if labels or every or kind == registry.VOTES else [],
        "learners": list(registry.LEARNERS.values()) if learners or every else [],
        "answer_methods": others if answers or every else [],
    }
    if not as_json:
        show_lists.show_methods(*shown.values())
        return
    facts: dict[str, Any] = {
        name: [described(e) for e in entries]
        for name, entries in shown.items()
        if entries or (name == "answer_methods" and answers)
    }
    if "methods" in facts:
        facts["default"] = registry.DEFAULT
    if "learners" in facts:
        facts["default_learner"] = registry.DEFAULT_LEARNER
    if answers or every:
        kinds = registry.ANSWER_TYPES.values()
        facts["answer_types"] = {t.name: {"default": t.default, "says": t.says} for t in kinds}
    if any(method["parameters"] is None and method["inputs"] for part in shown for method in facts.get(part, [])):
        say("Note: the parameters of learners are known where torch is: pip install 'crowdwise[deep]'.")
    emit(json.dumps(facts))


def described(entry: registry.Entry) -> dict[str, Any]:
    """A method as JSON; the parameters are null where what it needs is not installed."""
    from crowdwise.core.result import plain

    out: dict[str, Any] = {
        "key": entry.key, "answer_type": entry.answer_type, "family": entry.family, "inputs": entry.inputs,
        "class": entry.class_name, "summary": entry.summary, "reference": entry.reference, "parameters": None,
    }  # fmt: skip
    if isinstance(entry, registry.Plugin):
        out["docs"] = entry.docs
    try:
        model = entry.load()
    except (ExtraError, ParameterError):
        return out
    out["parameters"] = {name: plain(value) for name, value in model.parameters().items()}
    return out | ({"needs_gold": model.needs_gold} if hasattr(model, "needs_gold") else {})
