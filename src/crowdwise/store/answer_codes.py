"""Answers as they are written: JSON text, the same for the same answer, checked against the campaign."""

from __future__ import annotations

import json
import math
from typing import Any

from crowdwise import registry
from crowdwise.core.constraints import is_number
from crowdwise.errors import LabelError
from crowdwise.store.campaign_rows import CampaignRow
from crowdwise.store.intake import VOTE, class_code

SIDES = ("left", "right")
TIE = "tie"


def side_name(side: Any) -> str | None:
    """What a side of a pair is called: text, or an object with a name under ``item``; ``None`` where it has none."""
    name = side.get("item") if isinstance(side, dict) else side
    return name if isinstance(name, str) and name else None


def blind(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload of a pair without the names of its sides (which model wrote it), unless they are all there is."""
    sides = {side: payload[side] for side in SIDES if isinstance(payload.get(side), dict)}
    without = {side: {name: x for name, x in value.items() if name != "item"} for side, value in sides.items()}
    return payload | {side: value for side, value in without.items() if value}


def answer_text(row: CampaignRow, answer: Any, item: Any, about: str = VOTE) -> str:
    """The JSON text of an answer on an item; an error where it is none that the campaign takes."""
    if row.form == registry.ONE_CLASS:
        return json.dumps(row.classes[class_code(answer, item, row.classes, about)])
    if row.form == registry.CLASSES:
        if not isinstance(answer, (list, tuple)):
            raise LabelError(f"{about.format(item)} {answer!r}: expected a list of classes. Nothing was added.")
        codes = sorted({class_code(one, item, row.classes, about) for one in answer})
        return json.dumps([row.classes[k] for k in codes])
    if row.form == registry.NUMBER:
        scale = row.settings["scale"]
        if not (is_number(answer) and math.isfinite(answer) and scale["min"] <= answer <= scale["max"]):
            raise LabelError(
                f"{about.format(item)} {answer!r}: expected a number from {scale['min']:g} to {scale['max']:g}. "
                "Nothing was added."
            )
        return json.dumps(float(answer))
    sides = (*SIDES, TIE) if row.settings["ties"] else SIDES
    if answer not in sides:
        raise LabelError(f"{about.format(item)} {answer!r}: expected {' or '.join(sides)}. Nothing was added.")
    return json.dumps(answer)
