"""The parts of a report that votes have: findings, annotators, groups, items, classes, fairness.

===============  ==================================================================================================
key              holds
===============  ==================================================================================================
``level``        the error rate of every detector
``summary``      a headline, what to do first, how sure the labels are, how many annotators to keep, look at, drop
``findings``     kind, title, names, numbers, sentence and advice of each finding, the most pressing first
``data``         the shape of the votes: counts, histograms, shares of the classes
``truth``        accuracy and calibration of the labels, where the truth is known (else null); ``by_votes``: whether
                 all of it is gold, and each of its items was labelled by its votes and what other items teach
``annotators``   a row for each, the most pressing first
``confusion``    the crowd's matrix and those of the first annotators
``groups``       annotators who go together, and the layout of the drawing
``items``        those to look at first; ``pairs``, the classes that are confused with each other
``fairness``     by attributes of items and demographics of annotators (null where there are none)
===============  ==================================================================================================

The part of the report about fairness: the consensus by attributes of items, votes by demographics of annotators.

Attributes are compared for every class of at most ``MOST_CLASSES`` (with two classes, for the second alone); what a
data set's tables hold is looked at column by column, ``MOST_ATTRIBUTES`` of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crowdwise import metrics
from crowdwise.core.consensus import Consensus
from crowdwise.core.intervals import rate_interval
from crowdwise.core.numerics import Ints
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.report.findings import Diagnosis, concluded
from crowdwise.report.inspection import Progress, inspect
from crowdwise.report.json_values import estimate, number, plain_list
from crowdwise.report.section_annotators import annotator_rows, confusions, group_section
from crowdwise.report.section_items import class_pairs, item_table, review
from crowdwise.report.section_summary import MOST_NAMES, summary
from crowdwise.trust.demographics import compare_demographics
from crowdwise.trust.evidence import known_classes
from crowdwise.trust.fairness import assess_fairness
from crowdwise.trust.wording import to_dict

BINS = 10


def vote_sections(
    votes: Votes, consensus: Consensus, known: Ints | None, truth: Any, level: float, progress: Progress | None,
    notes: list[str], all_items: bool, *, texts: Any, images: Any, attributes: Any, demographics: Any,
) -> dict[str, Any]:  # fmt: skip
    """The parts of the dict, by name; ``known`` are the classes that may be used, ``truth`` only measures."""
    found = concluded(inspect(votes, consensus, gold=known, level=level, progress=progress))
    notes += [f"{step.capitalize()}: {words}" for step, words in found.inspection.notes.items()]
    true = votes.truth if truth is None else votes.encode_truth(truth)
    known = known_classes(votes, consensus, known)
    hidden = true if true is None or known is None else np.where(known >= 0, -1, true)
    hidden = None if hidden is None or not (hidden >= 0).any() else hidden
    rows = annotator_rows(found, hidden)
    if len(rows) < votes.n_annotators:
        notes.append(f"Annotators: the {len(rows):,} that matter most are listed, of {votes.n_annotators:,}.")
    given = bool(attributes) or demographics is not None
    measured = _truth(consensus, hidden)
    out = {
        "level": level, "summary": summary(found, measured), "findings": _findings(found),
        "data": _shape(votes, consensus, true), "truth": measured, "annotators": rows,
        "confusion": confusions(found, rows), "groups": group_section(found),
        "items": [] if found.inspection.captured else review(found, hidden, texts, images), "pairs": class_pairs(found),
        "fairness": fairness_section(found, hidden, attributes or {}, demographics) if given else None,
    }  # fmt: skip
    return out | ({"item_table": item_table(found)} if all_items else {})


def _findings(found: Diagnosis) -> list[dict[str, Any]]:
    return [to_dict(f, w, MOST_NAMES) for kind, w in found.kinds.items() for f in found.of_kind(kind)[:MOST_NAMES]]


def _shape(votes: Votes, consensus: Consensus, true: Ints | None) -> dict[str, Any]:
    d = votes.describe()
    K = votes.n_classes
    counts = {"votes": np.bincount(votes.label, minlength=K), "labels": np.bincount(consensus.label_codes, minlength=K)}
    shares = {"vote_share": counts["votes"], "label_share": counts["labels"]}
    if true is not None and (true >= 0).any():
        shares["truth_share"] = np.bincount(true[true >= 0], minlength=K)
    d["classes"] = [
        {"class": str(name)}
        | {what: int(n[k]) for what, n in counts.items()}
        | {what: number(n[k] / max(n.sum(), 1)) for what, n in shares.items()}
        for k, name in enumerate(votes.classes.tolist())
    ]
    del d["votes_per_class"]
    d["histograms"] = {
        "votes_per_item": histogram(np.diff(votes.indptr)),
        "votes_per_annotator": histogram(np.bincount(votes.annotator, minlength=votes.n_annotators)),
    }
    return d


def histogram(counts: Any) -> list[dict[str, int]]:
    """From, to and how many: whole numbers, even steps, or powers of two when they spread far."""
    low, high = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    if high - low < BINS:
        edges = np.arange(low, high + 2)
    elif high < 8 * max(low, 1):
        edges = np.unique(np.linspace(low, high + 1, BINS + 1).astype(int))
    else:
        powers = 2 ** np.arange(int(np.log2(max(low, 1))) + 1, int(np.log2(high)) + 1)
        edges = np.unique(np.concatenate([[low], powers[(powers > low) & (powers <= high)], [high + 1]]))
    heights, _ = np.histogram(counts, bins=edges)
    return [
        {"from": int(a), "to": int(b) - 1, "count": int(n)}
        for a, b, n in zip(edges[:-1].tolist(), edges[1:].tolist(), heights.tolist(), strict=True)
    ]


def _truth(consensus: Consensus, truth: Ints | None) -> dict[str, Any] | None:
    by_votes = truth is None
    found = consensus.gold_by_votes if truth is None else (consensus.posterior, consensus.truth_codes(truth))
    if found is None:
        return None
    classes = consensus.classes.tolist()
    table = metrics.reliability(*found, bins=10)
    low, high = rate_interval(table["items"] * table["accuracy"], table["items"])
    table |= {"low": np.minimum(low, table["accuracy"]), "high": np.maximum(high, table["accuracy"])}
    return {
        "by_votes": by_votes,
        "accuracy": estimate(metrics.accuracy(*found)),
        "calibration_error": estimate(metrics.calibration_error(*found)),
        "per_class": {str(classes[k]): estimate(e) for k, e in metrics.accuracy_per_class(*found).items()},
        "reliability": {name: plain_list(values) for name, values in table.items()},
    }


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
