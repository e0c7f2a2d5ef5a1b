"""The part of the report about annotators who go together, and their layout in the drawing.

Two kinds of groups: those that repeat each other (copiers and colluders, see ``findings``), and those that depend on
one another without a mistake in common to show for it (``trust.groups``): the same training, the same team, models of
one family.

The layout is the same every time: each group is a circle of its own, the members on it in the order of the votes'
annotators. Links are the pairs that the detectors found; their width goes with the strength.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.report.findings import Diagnosis, FindingKind
from crowdwise.report.json_values import number
from crowdwise.trust.wording import joined, named, sentence

MOST_MEMBERS, MOST_NAMED = 120, 24
"""Members of one group that are drawn, and up to how many have their names beside them; all are listed."""
MOST_LINKS = 400
GAP, CLOSE, LABEL = 40.0, 14.0, 84.0
"""The distance of two neighbours on a circle, the same without names, and the room for a name beside it."""


def group_section(found: Diagnosis) -> dict[str, Any]:
    """Groups with their members, links and sentences, and the layout of the drawing."""
    seen = found.inspection
    said = [sentence(finding) for finding in found.of_kind(FindingKind.COPIERS)]
    groups: list[dict[str, Any]] = []
    for (members, why), words in zip(seen.groups, said, strict=True):
        names, links = [str(name) for name in members], _links(seen, members)
        groups.append(
            {"members": names, "why": why, "sentence": words, "links": links, "drawing": layout(names, links)}
        )
    repeated = {frozenset(group["members"]) for group in groups}
    innocent = [
        {
            "members": [str(name) for name in members],
            "sentence": f"{joined(named('annotator', m) for m in members)} depend on each other.",
        }
        for members in (seen.dependent.groups if seen.dependent is not None else [])
        if not any({str(m) for m in members} <= other for other in repeated)
    ]
    return {
        "groups": groups,
        "dependent": innocent,
        "captured": seen.captured,
        "notes": [
            f"{step.capitalize()}: {seen.notes[step]}"
            for step in ("shared mistakes", "rings", "groups")
            if step in seen.notes
        ],
    }


def _links(seen: Any, members: list[Any]) -> list[dict[str, Any]]:
    """The pairs found inside a group, the strongest first."""
    inside = set(members)
    pairs = [
        (str(a), str(b), float(x))
        for a, b, x in (seen.shared.edges if seen.shared is not None else [])
        if a in inside and b in inside
    ]
    if not pairs:  # a ring: everybody with everybody
        pairs = [(str(a), str(b), 0.5) for i, a in enumerate(members) for b in members[i + 1 :]]
    pairs.sort(key=lambda pair: -pair[2])
    return [{"from": a, "to": b, "strength": number(x)} for a, b, x in pairs[:MOST_LINKS]]


def layout(members: list[str], links: list[dict[str, Any]]) -> dict[str, Any]:
    """Width, height, nodes (name, x, y, side of the name) and links (two ends, strength) of one group's drawing."""
    shown = members[:MOST_MEMBERS]
    named = len(shown) <= MOST_NAMED
    radius = max(30.0, (GAP if named else CLOSE) * len(shown) / (2.0 * np.pi))
    wide, high = 2.0 * (radius + (LABEL if named else 12.0)), 2.0 * (radius + (26.0 if named else 12.0))
    nodes: list[dict[str, Any]] = []
    for i, name in enumerate(shown):
        # Two members stand one above the other, so that names do not meet.
        angle = 2.0 * np.pi * i / len(shown) - np.pi / 2.0
        across, down = float(np.cos(angle)), float(np.sin(angle))
        side = "middle" if abs(across) < 0.25 else "start" if across > 0 else "end"
        at = {"x": round(wide / 2.0 + radius * across, 1), "y": round(high / 2.0 + radius * down, 1)}
        nodes.append({"name": name, **at, "side": side, "below": down > 0, "named": named})
    place = {node["name"]: node for node in nodes}
    lines = [
        {"x1": a["x"], "y1": a["y"], "x2": b["x"], "y2": b["y"], "strength": link["strength"]}
        for link in links
        if (a := place.get(link["from"])) and (b := place.get(link["to"]))
    ]
    return {"width": round(wide, 1), "height": round(high, 1), "nodes": nodes, "links": lines}
