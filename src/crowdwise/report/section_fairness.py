"""The part of the report about fairness: the consensus by attributes of items, votes by demographics of annotators.

Attributes are compared for every class of at most ``MOST_CLASSES`` (with two classes, for the second alone); what a
data set's tables hold is looked at column by column, ``MOST_ATTRIBUTES`` of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crowdwise.errors import InputError
from crowdwise.report.findings import Diagnosis
from crowdwise.report.json_values import estimate, number
from crowdwise.trust.demographics import compare_demographics
from crowdwise.trust.fairness import assess_fairness

MOST_CLASSES = 5
MOST_ATTRIBUTES = 4
MOST_GROUPS = 12
RESAMPLES = 300


def fairness_section(
    found: Diagnosis, truth: Any, attributes: Mapping[str, Mapping[Any, Any]], demographics: Any
) -> dict[str, Any]:
    """``items``: rates and gaps by attribute; ``annotators``: which groups label differently; ``notes``."""
    notes: list[str] = []
    out: dict[str, Any] = {"items": [], "annotators": None, "notes": notes}
    for name in list(attributes)[:MOST_ATTRIBUTES]:
        try:
            out["items"].append(_by_attribute(found, truth, name, attributes[name]))
        except InputError as error:
            notes.append(f"{name}: {error}")
    if len(attributes) > MOST_ATTRIBUTES:
        notes.append(f"{len(attributes) - MOST_ATTRIBUTES} further attributes of items were not looked at.")
    if demographics is not None:
        try:
            out["annotators"] = _by_demographics(found, demographics)
        except InputError as error:
            notes.append(f"Annotators: {error}")
    return out


def _by_attribute(found: Diagnosis, truth: Any, name: str, groups: Mapping[Any, Any]) -> dict[str, Any]:
    seen = found.inspection
    classes = seen.votes.classes.tolist()
    share = np.bincount(seen.consensus.label_codes, minlength=len(classes))
    chosen = (
        [classes[1]] if len(classes) == 2 else [classes[k] for k in np.argsort(-share, kind="stable")[:MOST_CLASSES]]
    )
    known = truth if truth is not None and (truth >= 0).any() else None
    results = []
    for positive in chosen:
        report = assess_fairness(
            seen.votes, seen.consensus, dict(groups), positive=positive, truth=known, resamples=RESAMPLES
        )
        rows = [
            {"group": str(g), "items": int(n), **{rate: estimate(by[g]) for rate, by in report.rates.items()}}
            for g, n in zip(report.groups.tolist(), report.items.tolist(), strict=True)
        ]
        gaps = [{"criterion": c, **estimate(e), "differs": report.differs[c]} for c, e in report.gaps.items()]
        facts = {"positive": str(positive), "basis": report.basis, "groups": rows[:MOST_GROUPS], "gaps": gaps}
        results.append(facts | {"sentences": report.sentences()})
    return {"attribute": name, "classes": results}


def _by_demographics(found: Diagnosis, demographics: Any) -> dict[str, Any]:
    seen = found.inspection
    report = compare_demographics(
        seen.votes, seen.consensus, demographics, level=seen.level, permutations=1999, evidence=seen.evidence
    )
    c = report.columns
    order = np.lexsort((-np.abs(np.nan_to_num(c["difference"].astype(float))), ~c["differs"]))
    rows = [
        {name: str(c[name][i]) for name in ("attribute", "group", "outcome")}
        | {name: int(c[name][i]) for name in ("annotators", "votes")}
        | {name: number(c[name][i]) for name in ("rate", "difference", "low", "high", "adjusted")}
        | {"differs": bool(c["differs"][i])}
        for i in order.tolist()
    ]
    overall = {str(name): number(p) for name, p in report.attributes.items()}
    return {"attributes": overall, "rows": rows, "sentences": report.sentences()}
