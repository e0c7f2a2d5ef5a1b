"""The part of the report about annotators: a row for each, and confusion matrices of those worth a look.

Rows are ordered by what has to be done: drop, look, unclear, keep; among these the most suspect, then the most votes
first. A page holds ``MOST_ROWS`` of them, the dict ``MOST_LISTED``. Confusion matrices are the counts of
the evidence (every vote judged by the others), as shares of a row in percent, for the first rows as
long as they have ``MOST_CELLS`` cells between them.

The part of the report about annotators who go together, and their layout in the drawing.

Two kinds of groups: those that repeat each other (copiers and colluders, see ``findings``), and those that depend on
one another without a mistake in common to show for it (``trust.groups``): the same training, the same team, models of
one family.

The layout is the same every time: each group is a circle of its own, the members on it in the order of the votes'
annotators. Links are the pairs that the detectors found; their width goes with the strength.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.report.findings import RANK, Diagnosis, FindingKind
from crowdwise.report.json_values import number, plain_list
from crowdwise.trust.flags import FlagKind, Verdict
from crowdwise.trust.wording import flag_words, joined, named, sentence

MOST_ROWS = 300
MOST_LISTED = 100_000
"""Annotators in the dict and in the download: a million rows would need gigabytes."""
MOST_CELLS = 40_000
"""Cells of confusion matrices in a page, all annotators together."""
MOST_DRAWN = 30
"""Classes up to which the crowd's matrix is drawn."""
MEASURES = (
    "votes", "accuracy", "skill", "agreement", "weight", "information", "capacity", "bias", "speed", "drift",
    "suspicion",
)  # fmt: skip


def annotator_rows(found: Diagnosis, truth: Ints | None) -> list[dict[str, Any]]:
    """A dict for each annotator, in the order described above."""
    seen = found.inspection
    votes, consensus = seen.votes, seen.consensus
    columns = _columns(found)
    measured = _measured(votes, truth)
    names = votes.annotators.tolist()
    # A captured consensus convicts the innocent, so its flags are not shown.
    flags = seen.people.flags if seen.people is not None and not seen.captured else ((),) * len(names)
    group = {name: g + 1 for g, members in enumerate(seen.groups) for name in members}
    rank = np.array([RANK[found.verdicts[name]] for name in names])
    order = np.lexsort((-consensus.votes_per_annotator, -columns["suspicion"], rank))
    kinds: dict[Any, list[str]] = {}
    for finding in found.findings:
        for name in finding.annotators:
            kinds.setdefault(name, []).append(str(finding.kind))
    rows = []
    listed = {name: plain_list(values) for name, values in columns.items()}
    for m in order[:MOST_LISTED].tolist():
        row: dict[str, Any] = {"annotator": str(names[m]), "verdict": found.verdicts[names[m]].value}
        row |= {name: values[m] for name, values in listed.items()}
        judged = row["verdict"] != Verdict.UNCLEAR  # whoever has a verdict had votes enough for it
        row["flags"] = [flag_words(flag) for flag in flags[m] if not (judged and flag.kind is FlagKind.FEW_VOTES)]
        row["kinds"] = kinds.get(names[m], [])
        if names[m] in group:
            row["group"] = group[names[m]]
        if measured is not None:
            row["measured"], row["measured_on"] = measured[0][m], measured[1][m]
        rows.append(row)
    return rows


def _columns(found: Diagnosis) -> dict[str, Any]:
    """The measures of all annotators; the consensus' own accuracies where nobody could be judged by the others."""
    seen = found.inspection
    M = seen.votes.n_annotators
    if seen.people is None:
        accuracy, low, high = seen.consensus.accuracy()
        columns: dict[str, Any] = {
            "votes": seen.consensus.votes_per_annotator, "accuracy": accuracy, "accuracy_low": low,
            "accuracy_high": high, "suspicion": np.zeros(M),
        }  # fmt: skip
        return columns
    wanted = [name for measure in MEASURES for name in (measure, f"{measure}_low", f"{measure}_high")]
    columns = {name: seen.people.columns[name] for name in wanted if name in seen.people.columns}
    if seen.bits is not None:
        columns |= {name: seen.bits.columns[name] for name in ("capacity", "capacity_low", "capacity_high")}
    columns.setdefault("capacity", np.full(M, np.nan))
    columns["bias_class"] = np.array([str(c) for c in seen.people.columns["bias_class"].tolist()], dtype=object)
    return columns


def _measured(votes: Any, truth: Ints | None) -> tuple[list[Any], list[int]] | None:
    """The share of votes that are right on items with known truth, and how many there are."""
    if truth is None or not (truth >= 0).any():
        return None
    known = truth[votes.item] >= 0
    m = votes.annotator[known]
    n = np.bincount(m, minlength=votes.n_annotators)
    right = np.bincount(m, weights=votes.label[known] == truth[votes.item][known], minlength=votes.n_annotators)
    share = np.divide(right, n, out=np.full(len(n), np.nan), where=n > 0)
    return plain_list(share), n.tolist()


def confusions(found: Diagnosis, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The crowd's matrix and those of the first annotators, in whole percent of a row; with the expected counts."""
    seen = found.inspection
    classes = [str(c) for c in seen.votes.classes.tolist()]
    if seen.evidence is None:
        return {"classes": classes, "crowd": None, "annotators": {}, "shown": 0}
    K = len(classes)
    counts = seen.evidence.counts
    crowd = counts.sum(axis=0)
    place = {str(name): m for m, name in enumerate(seen.votes.annotators.tolist())}
    shown = min(len(rows), MOST_ROWS, MOST_CELLS // (K * K))
    return {
        "classes": classes,
        "crowd": _matrix(crowd) if K <= MOST_DRAWN else None,
        "annotators": {row["annotator"]: _matrix(counts[place[row["annotator"]]]) for row in rows[:shown]},
        "shown": shown,
    }


def _matrix(counts: Floats) -> dict[str, Any]:
    """Rows of shares in whole percent, ``None`` in rows with less than half an item; and their expected votes."""
    share, total = np.rint(100.0 * normalise(counts + 1e-12, axis=1)).astype(int).tolist(), counts.sum(axis=1)
    rows = [row if n >= 0.5 else [None] * len(row) for row, n in zip(share, total, strict=True)]
    return {"share": rows, "votes": [number(n, 1) for n in total]}


MOST_MEMBERS, MOST_NAMED = 120, 24
"""Members of one group that are drawn, and up to how many have their names beside them; all are listed."""
MOST_LINKS = 400
GAP, CLOSE, LABEL = 40.0, 14.0, 84.0
"""The distance of two neighbours on a circle, the same without names, and the room for a name beside it."""


def group_section(found: Diagnosis) -> dict[str, Any]:
    """Groups with their members, links and sentences, and the layout of the drawing."""
    seen = found.inspection
    kinds = (FindingKind.CAMPS, FindingKind.COPIERS)
    words = {finding.annotators: sentence(finding) for kind in kinds for finding in found.of_kind(kind)}
    groups: list[dict[str, Any]] = []
    for members in seen.groups:
        names, links = [str(name) for name in members], _links(seen, members)
        groups.append(
            {"members": names, "sentence": words[tuple(members)], "links": links, "drawing": layout(names, links)}
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
