"""The first lines of a report: a headline, how sure the labels are, and what to do first."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.report.findings import VERDICTS, Diagnosis, Finding, joined, percent
from crowdwise.report.json_values import number

MOST_NAMES = 200
"""Findings of one kind, and names in one of them, in the dict; everybody's flags are in the rows of annotators."""
WEAKENS = (
    ("copiers", "some annotators repeat each other"),
    ("pair", "some classes are hard to tell apart"),
)
"""What makes labels less sure than independent annotators would make them."""


def summary(found: Diagnosis, truth: dict[str, Any] | None) -> dict[str, Any]:
    """The summary of the dict; ``truth`` is the measured accuracy, where there is one."""
    kinds = [finding.kind for finding in found.findings]
    return {
        "headline": headline(found),
        "actions": actions(found),
        "sure": how_sure(found, truth["accuracy"] if truth is not None else None),
        "annotators": {verdict: len(found.by_verdict(verdict)) for verdict in VERDICTS},
        "found": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "expected": number(found.expected, 6),  # the page rounds it once more
        "review": in_doubt(found),
        "items": len(found.inspection.votes),
    }


def in_doubt(found: Diagnosis) -> int | None:
    """How many items to review; ``None`` where that cannot be told."""
    report = found.inspection.items
    return None if report is None or found.inspection.captured else int(report.columns["suggested"].sum())


def headline(found: Diagnosis) -> str:
    """One sentence: how many annotators to drop and to look at, how many items to review."""
    drop, look, total = len(found.by_verdict("drop")), len(found.by_verdict("look")), len(found.verdicts)
    people = [f"{verb} {n:,}" for verb, n in (("drop", drop), ("look at", look)) if n]
    if found.inspection.captured:
        first = "The crowd may be captured: clear that up before anything else"
    elif found.inspection.people is None:
        first = "The annotators could not be judged"
    elif people:
        first = f"{' and '.join(people)} of {total:,} annotator{_s(total)}".capitalize()
    else:
        first = "Nothing speaks against any annotator"
    doubt = in_doubt(found)
    if doubt is None:
        return f"{first}."
    items = f"review {doubt:,} item{_s(doubt)}" if doubt else "no label is in doubt"
    return f"{first}{', and' if people or not doubt else ';'} {items}."


def how_sure(found: Diagnosis, measured: dict[str, Any] | None) -> list[str]:
    """Sentences on how far to trust the labels."""
    kinds = {finding.kind for finding in found.findings}
    out = []
    if measured is not None:
        out.append(
            f"Measured on {measured['n']:,} item{_s(measured['n'])} with known truth, {percent(measured['value'], 1)} "
            f"of the labels are right (95 % from {percent(measured['low'], 1)} to {percent(measured['high'], 1)})."
        )
    if np.isfinite(found.expected):
        weak = [words for kind, words in WEAKENS if kind in kinds]
        less = f" Expect less than that, since {joined(weak)}." if weak else ""
        out.append(
            f"By the votes alone, {percent(found.expected, 1)} of the labels are expected to be right if annotators "
            f"err independently of each other.{less}"
        )
    if "captured" in kinds:
        out.append("Do not trust these labels: annotators who repeat each other may have made them theirs.")
    return out


def actions(found: Diagnosis) -> list[dict[str, Any]]:
    """What to do first: one entry for each kind of finding that asks for something."""
    by_kind: dict[str, list[Finding]] = {}
    for finding in found.findings:
        if finding.advice:
            by_kind.setdefault(finding.kind, []).append(finding)
    return [
        {
            "kind": kind,
            "title": some[0].title,
            "names": _names(kind, some, found)[:MOST_NAMES],
            "advice": some[0].advice,
        }
        for kind, some in by_kind.items()
    ]


def _names(kind: str, some: list[Finding], found: Diagnosis) -> list[str]:
    if kind == "copiers":
        return [joined([str(name) for name in finding.who], 5) for finding in some]
    if kind == "pair":
        return [" / ".join(str(name) for name in finding.who) for finding in some]
    if kind == "items":
        n = in_doubt(found) or 0
        return [f"{n:,} item{_s(n)}"]
    return [str(name) for finding in some for name in finding.who]


def _s(n: int) -> str:
    return "" if n == 1 else "s"
