"""The parts of a report that votes have: findings, annotators, groups, items, classes, fairness.

===============  ==================================================================================================
key              holds
===============  ==================================================================================================
``level``        the error rate of every detector
``summary``      a headline, what to do first, how sure the labels are, how many annotators to keep, look at, drop
``findings``     kind, title, names, numbers, sentence and advice of each finding, the most pressing first
``data``         the shape of the votes: counts, histograms, shares of the classes
``truth``        accuracy and calibration of the labels, where the truth is known (else null)
``annotators``   a row for each, the most pressing first
``confusion``    the crowd's matrix and those of the first annotators
``groups``       annotators who go together, and the layout of the drawing
``items``        those to look at first; ``pairs``, the classes that are confused with each other
``fairness``     by attributes of items and demographics of annotators (null where there are none)
===============  ==================================================================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise import metrics
from crowdwise.core.consensus import Consensus
from crowdwise.core.intervals import rate_interval
from crowdwise.core.numerics import Ints
from crowdwise.data.votes import Votes
from crowdwise.report.findings import Diagnosis, FindingKind, concluded
from crowdwise.report.inspection import Progress, inspect
from crowdwise.report.json_values import estimate, number, plain_list
from crowdwise.report.section_annotators import annotator_rows, confusions
from crowdwise.report.section_fairness import fairness_section
from crowdwise.report.section_groups import group_section
from crowdwise.report.section_items import class_pairs, item_table, review
from crowdwise.report.section_summary import MOST_NAMES, summary
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
    return [to_dict(f, MOST_NAMES) for kind in FindingKind for f in found.of_kind(kind)[:MOST_NAMES]]


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
    if truth is None:
        return None
    table = metrics.reliability(consensus, truth, bins=10)
    low, high = rate_interval(table["items"] * table["accuracy"], table["items"])
    table |= {"low": np.minimum(low, table["accuracy"]), "high": np.maximum(high, table["accuracy"])}
    return {
        "accuracy": estimate(metrics.accuracy(consensus, truth)),
        "calibration_error": estimate(metrics.calibration_error(consensus, truth)),
        "per_class": {str(k): estimate(e) for k, e in metrics.accuracy_per_class(consensus, truth).items()},
        "reliability": {name: plain_list(values) for name, values in table.items()},
    }
