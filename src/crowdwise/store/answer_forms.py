"""How a campaign asks, one form for each kind of answer: what an answer must be, what of an item is needed to ask, and
how answers become the table of the library.

===========  ==================================================  ===========================================
form         an answer                                           the payload of an item needs
===========  ==================================================  ===========================================
one class    a class
classes      a list of classes
number       a number on the scale
pair         ``left``, ``right``, ``tie`` where there are ties   ``left`` and ``right``
order        the options, the best first: their names, or        ``options``: two or more with names
             their places in the list, from 0
text         a text
tokens       a tag for each token                                ``tokens``, or a ``text`` to cut at blanks
stretches    ``{"start": 0, "end": 4, "label": class}`` each     ``text``
===========  ==================================================  ===========================================
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from crowdwise import registry
from crowdwise.core.constraints import is_count, is_number
from crowdwise.errors import InputError, LabelError, listing
from crowdwise.store.canonical import is_unicode
from crowdwise.store.intake import VOTE, class_code

SIDES = ("left", "right")
TIE = "tie"
MOST_TEXT = 20_000  # letters of a text that is an answer
MOST_STRETCHES = 1_000
OF_PAYLOAD = (registry.ORDER, registry.TOKENS, registry.STRETCHES)
"""Forms whose answers are checked against what is shown of the item."""
WITH_CLASSES = (registry.ONE_CLASS, registry.CLASSES, registry.TOKENS, registry.STRETCHES)


def side_name(side: Any) -> str | None:
    """The name of a side of a pair, or of an option: text, or under ``item`` of an object; ``None`` without one."""
    name = side.get("item") if isinstance(side, dict) else side
    return name if isinstance(name, str) and name else None


def option_names(payload: dict[str, Any]) -> list[str]:
    """The names of what is put in order; empty where there are none, or two are the same."""
    options = payload.get("options")
    names = [side_name(one) for one in options] if isinstance(options, list) else []
    good = len(names) > 1 and None not in names and len(set(names)) == len(names)
    return [str(name) for name in names] if good else []


def tokens_of(payload: dict[str, Any]) -> list[str]:
    """The tokens of an item."""
    tokens = payload.get("tokens")
    if isinstance(tokens, list):
        return [str(token) for token in tokens]
    return str(payload.get("text") or "").split()


def check_payload(form: str, item: Any, payload: dict[str, Any]) -> None:
    """An error where an item lacks what its question needs."""
    need, sides = "", [side_name(payload.get(side)) for side in SIDES]
    if form == registry.PAIR and (None in sides or sides[0] == sides[1]):
        need = "is a pair: its payload needs left and right, each text or an object with a name under item, and"
        need += " the names differ"
    elif form == registry.ORDER and not option_names(payload):
        need = "is to be put in order: its payload needs options, a list of texts or objects with a name under item,"
        need += " and the names differ"
    elif form == registry.TOKENS and not tokens_of(payload):
        need = "has no tokens: its payload needs tokens, a list, or a text"
    elif form == registry.STRETCHES and not isinstance(payload.get("text"), str):
        need = "has no text to mark: its payload needs a text"
    if need:
        raise InputError(f"The item {item!r} {need}. Nothing was added.")


def blind(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload of a pair, or of options, without their names (which model wrote it), unless these are all."""

    def without(side: Any) -> Any:
        return {name: x for name, x in side.items() if name != "item"} or side if isinstance(side, dict) else side

    shown = {side: without(payload[side]) for side in SIDES if side in payload}
    if isinstance(payload.get("options"), list):
        shown["options"] = [without(one) for one in payload["options"]]
    return payload | shown


def checked_answer(row: Any, answer: Any, item: Any, about: str = VOTE) -> Any:
    """An answer on an item as it is written; an error where it is none that the campaign takes."""
    form, classes, settings = row.form, row.classes, row.settings

    def wrong(expected: str) -> LabelError:
        return LabelError(f"{about.format(item)} {answer!r:.200}: expected {expected}. Nothing was added.")

    if form == registry.ONE_CLASS:
        return classes[class_code(answer, item, classes, about)]
    if form == registry.NUMBER:
        scale = settings["scale"]
        if not (is_number(answer) and math.isfinite(answer) and scale["min"] <= answer <= scale["max"]):
            raise wrong(f"a number from {scale['min']:g} to {scale['max']:g}")
        return float(answer)
    if form == registry.PAIR:
        sides = (*SIDES, TIE) if settings["ties"] else SIDES
        if answer not in sides:
            raise wrong(" or ".join(sides))
        return answer
    if form == registry.TEXT:
        if not (isinstance(answer, str) and answer.strip() and len(answer) <= MOST_TEXT and is_unicode(answer)):
            raise wrong(f"a text of at most {MOST_TEXT:,} letters")
        return answer.strip()
    if not isinstance(answer, (list, tuple)):
        kinds = {registry.CLASSES: "classes", registry.ORDER: "names, the best first", registry.TOKENS: "tags"}
        raise wrong(f"a list of {kinds.get(form, 'stretches of the text')}")
    if form == registry.CLASSES:
        return [classes[k] for k in sorted({class_code(one, item, classes, about) for one in answer})]
    if form == registry.TOKENS:
        return [classes[class_code(one, item, classes, about)] for one in answer]
    if form == registry.ORDER:
        return list(answer)
    if len(answer) > MOST_STRETCHES:
        raise wrong(f"at most {MOST_STRETCHES:,} stretches")
    stretches = []
    for one in answer:
        start, end = (one.get(name) if isinstance(one, dict) else None for name in ("start", "end"))
        if start is None or end is None or not (is_count(start) and is_count(end) and 0 <= start < end):
            raise wrong("stretches with start, end and label, where start is before end")
        label = classes[class_code(one.get("label"), item, classes, about)]
        stretches.append({"start": start, "end": end, "label": label})
    return sorted(stretches, key=lambda one: (one["start"], one["end"], str(one["label"])))


def check_with_payload(form: str, item: Any, answer: Any, payload: dict[str, Any]) -> None:
    """An error where an answer does not fit what is shown of its item."""
    if form == registry.ORDER:
        names = option_names(payload)
        if sorted(map(str, answer)) != sorted(names) and not (
            all(is_count(one) for one in answer) and sorted(answer) == list(range(len(names)))
        ):
            raise LabelError(f"The order of {item!r} needs each of {listing(names, 12)} once. Nothing was added.")
    elif form == registry.TOKENS and len(answer) != len(tokens_of(payload)):
        counts = f"has {len(tokens_of(payload))} tokens, and there are {len(answer)} tags"
        raise LabelError(f"The item {item!r} {counts}: give one for each. Nothing was added.")
    elif form == registry.STRETCHES and any(one["end"] > len(payload["text"]) for one in answer):
        raise LabelError(f"A stretch ends after the text of {item!r}. Nothing was added.")


def answer_text(row: Any, answer: Any, item: Any, about: str = VOTE) -> str:
    """The JSON text of an answer that was checked."""
    return json.dumps(checked_answer(row, answer, item, about))


Answered = tuple[Any, Any, Any, dict[str, Any], str | None]
"""An item, an annotator, the answer, what is shown of the item (of forms that need it) and which side came first."""


def table_of(row: Any, answers: Iterable[Answered]) -> Any:
    """The answers as the library has them. The side of a pair that was shown first is the left one."""
    kind, form = registry.ANSWER_TYPES[row.answer_type].load(), row.form
    if form == registry.PAIR:
        records: list[Any] = []
        for _, who, answer, payload, first in answers:
            left, right = (side_name(payload.get(side)) for side in SIDES)
            if first == "right":
                left, right = right, left
                answer = {"left": "right", "right": "left"}.get(answer, answer)
            records.append((left, right, who, answer))
        return kind.from_records(records)
    if form == registry.ORDER:
        return kind.from_records([
            (who, item, [option_names(payload)[one] if is_count(one) else one for one in answer])
            for item, who, answer, payload, _ in answers
        ])  # fmt: skip
    if form == registry.TOKENS:
        rows = [
            {"sequence": item, "position": i, "annotator": who, "tag": tag, "word": word}
            for item, who, answer, payload, _ in answers
            for i, (tag, word) in enumerate(zip(answer, tokens_of(payload), strict=True))
        ]
        return kind.from_records(rows, classes=row.classes, on_invalid="repair")
    if form == registry.STRETCHES:
        return kind.from_records([
            (item, who, one["label"], one["start"], one["end"])
            for item, who, answer, _, _ in answers
            for one in answer or [{"label": None, "start": None, "end": None}]
        ])  # fmt: skip
    records = [(item, who, answer) for item, who, answer, _, _ in answers]
    return kind.from_records(records, **({"classes": row.classes} if row.classes else {}))


ALONE = {
    registry.NUMBER: ("mean", {}), registry.ONE_CLASS: ("majority", {}),
    registry.CLASSES: ("binary-relevance", {"base": "majority"}),
    registry.TOKENS: ("token-dawid-skene", {"base": "majority"}),
}  # fmt: skip
"""The method for the answers of a single annotator, where that of a crowd needs two."""
