"""The first lines of a report: a headline, how sure the labels are, and what to do first."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.intervals import interval_text
from crowdwise.report.findings import Diagnosis, Finding, FindingKind, Verdict
from crowdwise.report.json_values import number
from crowdwise.trust.wording import ADVICE, TITLES, WEAKENS, counted, joined, percent

MOST_NAMES = 200
"""Findings of one kind, and names in one of them, in the dict; everybody's flags are in the rows of annotators."""


def summary(found: Diagnosis, truth: dict[str, Any] | None) -> dict[str, Any]:
    """The summary of the dict; ``truth`` is the measured accuracy, where there is one."""
    kinds = [finding.kind.value for finding in found.findings]
    return {
        "headline": headline(found),
        "actions": actions(found),
        "sure": how_sure(found, truth["accuracy"] if truth is not None else None),
        "annotators": {verdict.value: len(found.by_verdict(verdict)) for verdict in Verdict},
        "found": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "expected": number(found.expected, 6),  # the page rounds it once more
        "review": in_doubt(found),
        "items": len(found.inspection.votes),
    }


def in_doubt(found: Diagnosis) -> int | None:
    """How many items to review; ``None`` where that is not known."""
    report = found.inspection.items
    return None if report is None or found.inspection.captured else int(report.columns["suggested"].sum())


def headline(found: Diagnosis) -> str:
    """One sentence: how many annotators to drop and to look at, how many items to review."""
    drop, look, total = len(found.by_verdict(Verdict.DROP)), len(found.by_verdict(Verdict.LOOK)), len(found.verdicts)
    people = [f"{verb} {n:,}" for verb, n in (("drop", drop), ("look at", look)) if n]
    if found.inspection.captured:
        first = f"{TITLES[FindingKind.CAPTURED]}: resolve that before anything else"
    elif found.inspection.people is None:
        first = "The annotators could not be judged"
    elif people:
        first = f"{' and '.join(people)} of {counted(total, 'annotator')}".capitalize()
    else:
        first = "Nothing speaks against any annotator"
    doubt = in_doubt(found)
    if doubt is None:
        return f"{first}."
    items = f"review {counted(doubt, 'item')}" if doubt else "no label is in doubt"
    return f"{first}{', and' if people or not doubt else ';'} {items}."


def how_sure(found: Diagnosis, measured: dict[str, Any] | None) -> list[str]:
    """Sentences on how far to trust the labels."""
    kinds = {finding.kind for finding in found.findings}
    out = []
    if measured is not None:
        ends = interval_text(measured["low"], measured["high"], form=lambda x: percent(x, 1))
        out.append(
            f"Measured on {counted(measured['n'], 'item')} with known truth, {percent(measured['value'], 1)} "
            f"of the labels are right ({ends})."
        )
    if np.isfinite(found.expected):
        weak = [words for kind, words in WEAKENS.items() if kind in kinds]
        less = f" Expect less than that, since {joined(weak)}." if weak else ""
        out.append(
            f"By the votes alone, {percent(found.expected, 1)} of the labels are expected to be right, common errors "
            f"allowed for as far as votes show them.{less}"
        )
    if FindingKind.CAPTURED in kinds:
        out.append("Do not trust these labels: annotators who repeat each other may have decided them.")
    return out


def actions(found: Diagnosis) -> list[dict[str, Any]]:
    """What to do first: one entry for each kind of finding that asks for something."""
    return [
        {"kind": kind.value, "title": TITLES[kind], "names": _names(some, found)[:MOST_NAMES], "advice": ADVICE[kind]}
        for kind in FindingKind
        if (some := found.of_kind(kind)) and kind in ADVICE
    ]


def _names(some: list[Finding], found: Diagnosis) -> list[str]:
    kind = some[0].kind
    if kind is FindingKind.COPIERS:
        return [joined(map(str, finding.names), 5) for finding in some]
    if kind is FindingKind.PAIR:
        return [" / ".join(map(str, finding.names)) for finding in some]
    if kind is FindingKind.ITEMS:
        return [counted(in_doubt(found) or 0, "item")]
    return [str(name) for finding in some for name in finding.names]
