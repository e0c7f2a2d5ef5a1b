"""The first lines of a report: a headline, how sure the labels are, and what to do first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.vote_sums import outvoted
from crowdwise.metrics.bootstrap import Estimate
from crowdwise.report.findings import Diagnosis, Finding, FindingKind, Verdict
from crowdwise.trust.wording import FINDINGS, WEAKENS, counted, folded, joined, named, percent

DIGITS = 4
"""Decimals that are kept: a page shows three, a table that is downloaded four (more in a column of small numbers)."""


def number(x: Any, digits: int = DIGITS) -> float | int | None:
    """A number with few decimals, ``None`` for one that is not finite."""
    value = float(x)
    if not np.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) and isinstance(x, (int, np.integer)) else rounded


def plain_list(values: Any) -> list[Any]:
    """An array of numbers or words as a list."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        top = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
        digits = DIGITS + int(np.clip(-np.ceil(np.log10(top)), 0, 20))
        # Adding 0 turns -0.0 into 0.0.
        return [None if x != x or x in (np.inf, -np.inf) else x for x in (np.round(values, digits) + 0.0).tolist()]
    listed: list[Any] = values.tolist()
    return listed


def estimate(found: Any) -> dict[str, Any]:
    """A :class:`crowdwise.metrics.Estimate` as a dict."""
    return {
        "value": number(found.value), "low": number(found.low), "high": number(found.high), "n": int(found.n),
        "level": found.level,
    }  # fmt: skip


def interval_words(found: dict[str, Any], form: Callable[[float], str]) -> str:
    """The interval in such a dict, or why there is none."""
    value, low, high = (np.nan if found[name] is None else found[name] for name in ("value", "low", "high"))
    return Estimate(value, low, high, found["n"], found["level"]).interval(form)


def shortened(text: Any, most: int) -> str:
    """The beginning of a text that is too long to be shown."""
    whole = str(text)
    return whole if len(whole) <= most else whole[: most - 1].rstrip() + "…"


MOST_NAMES = 200
"""Findings of one kind, and names in one of them, in the dict; everybody's flags are in the rows of annotators."""


NAMED = 8
"""Annotators that the first screen names."""
STEPS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Where the bars of the first picture end: probabilities of labels."""
SURE, FAIR = 0.9, 0.7
"""From these probabilities on a label counts as sure, and as fairly sure, in pictures."""


def summary(diagnosis: Diagnosis, truth: dict[str, Any] | None) -> dict[str, Any]:
    """The summary of the dict; ``truth`` is the measured accuracy, where there is one."""
    kinds = [str(finding.kind) for finding in diagnosis.findings]
    consensus = diagnosis.inspection.consensus
    q = consensus.corrected_posterior[np.arange(len(consensus.label_codes)), consensus.label_codes]
    q = q if consensus.gold is None else q[consensus.gold < 0]  # without the labels that were given as gold
    return {
        "headline": headline(diagnosis),
        "picture": sureness(q, "label"),
        "majority": majority(diagnosis),
        "to_look_at": to_look_at(diagnosis, NAMED),
        "actions": actions(diagnosis),
        "also": [
            line
            for kind, words in diagnosis.kinds.items()
            if not words.advice
            for line in folded(diagnosis.of_kind(kind))
        ],
        "sure": how_sure(diagnosis, truth and truth["accuracy"], by_votes=bool(truth and truth["by_votes"])),
        "annotators": {verdict.value: len(diagnosis.by_verdict(verdict)) for verdict in Verdict},
        "found": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "expected": number(diagnosis.expected, 6),  # the page rounds it once more
        "expected_interval": [number(end, 6) for end in diagnosis.expected_interval],
        "review": to_review(diagnosis),
        "items": len(diagnosis.inspection.votes),
    }


def sureness(probability: Floats, what: str, of: str = "") -> dict[str, Any]:
    """The first picture: how many labels have which probability, the surest first. ``of``: what is counted."""
    height, _ = np.histogram(probability, bins=np.array([-np.inf, *STEPS, np.inf]))
    return sureness_bars(height, int((probability >= SURE).sum()), len(probability), what, of)


def sureness_bars(height: Ints, sure: int, total: int, what: str, of: str = "") -> dict[str, Any]:
    """The same from the number of labels between the steps, of those that are sure, and of all."""
    edges = np.array([-np.inf, *STEPS, np.inf])
    words = [f"under {percent(STEPS[0])}"]
    words += [f"{percent(a).rstrip('%')}-{percent(b)}" for a, b in itertools.pairwise(STEPS)]
    words.append(f"{percent(STEPS[-1])} +")
    bars = [
        {"range": word, "count": int(n), "tone": "sure" if low >= SURE else "fair" if low >= FAIR else "open"}
        for word, n, low in zip(words, height.tolist(), edges, strict=False)
    ][::-1]
    have = "has" if total == 1 else "have"
    last = max((place for place, bar in enumerate(bars) if bar["count"]), default=0)
    return {
        "kind": "bars", "title": f"How sure the {what}s are", "unit": f"probability of a {what}",
        "words": f"{sure:,} of {counted(total, of or what)} {have} a probability of {percent(SURE)} or more",
        "share": number(sure / max(total, 1)), "bars": bars[: max(last, 3) + 1],
    }  # fmt: skip


def majority(diagnosis: Diagnosis) -> dict[str, Any]:
    """On how many items the label is not what most votes say, and on how many it decides a tie; gold is left out.

    ``right`` and ``majority_right``: of the labels that differ, and of the majority's there, the expected share that
    is right; ``None`` where no label differs.
    """
    votes, label = diagnosis.inspection.votes, diagnosis.inspection.consensus.label_codes
    N, K = len(votes), votes.n_classes
    cell, place = np.unique(votes.item.astype(np.int64) * K + votes.label, return_inverse=True)
    weight = np.bincount(place, weights=votes.weights, minlength=len(cell))
    item, top, own = cell // K, np.zeros(N), np.zeros(N)
    np.maximum.at(top, item, weight)
    mine = cell % K == label[item]
    own[item[mine]] = weight[mine]
    most = weight >= top[item] * (1.0 - 1e-9)
    leaders = np.bincount(item[most], minlength=N)
    gold = diagnosis.inspection.consensus.gold
    voted = (leaders > 0) & (True if gold is None else gold < 0)
    differs = voted & (own < top * (1.0 - 1e-9))
    tied = voted & ~differs & (leaders > 1)
    total, q = int(voted.sum()), diagnosis.inspection.consensus.corrected_posterior
    at, favourite = outvoted(votes, label, gold)
    right = [float(q[at, k].mean()) if len(at) else float("nan") for k in (label[at], favourite)]
    return {
        "differs": int(differs.sum()), "ties": int(tied.sum()), "items": total,
        "share": number(differs.sum() / max(total, 1)), "right": number(right[0]), "majority_right": number(right[1]),
    }  # fmt: skip


def to_look_at(diagnosis: Diagnosis, most: int | None = None) -> list[dict[str, Any]]:
    """The annotators to look at first, with their verdicts, in the order of the findings."""
    names = dict.fromkeys(name for finding in diagnosis.findings for name in finding.annotators)
    pressing = [
        (name, v.value) for v in (Verdict.DROP, Verdict.LOOK) for name in names if diagnosis.verdicts[name] == v
    ]
    return [{"annotator": named("annotator", name), "verdict": verdict} for name, verdict in pressing[:most]]


def to_review(diagnosis: Diagnosis) -> int | None:
    """How many items to review; ``None`` where that is not known."""
    report = diagnosis.inspection.items
    return None if report is None or diagnosis.inspection.captured else int(report.columns["suggested"].sum())


def headline(diagnosis: Diagnosis) -> str:
    """One sentence: how many annotators to drop and to look at, how many items to review."""
    drop, look, total = (
        len(diagnosis.by_verdict(Verdict.DROP)),
        len(diagnosis.by_verdict(Verdict.LOOK)),
        len(diagnosis.verdicts),
    )
    people = [f"{verb} {n:,}" for verb, n in (("drop", drop), ("look at", look)) if n]
    if diagnosis.inspection.captured:
        first = f"{FINDINGS[FindingKind.CAPTURED].title}: resolve that before anything else"
    elif diagnosis.inspection.people is None:
        first = "The annotators could not be judged"
    elif people:
        first = f"{' and '.join(people)} of {counted(total, 'annotator')}".capitalize()
    else:
        first = "Nothing speaks against any annotator"
    doubt = to_review(diagnosis)
    if doubt is None:
        return f"{first}."
    items = f"review {counted(doubt, 'item')}" if doubt else "no label is in doubt"
    return f"{first}{', and' if people or not doubt else ';'} {items}."


def how_sure(diagnosis: Diagnosis, measured: dict[str, Any] | None, *, by_votes: bool = False) -> list[str]:
    """Sentences on how far to trust the labels; ``by_votes``: the accuracy is that of gold items by their votes."""
    kinds = {finding.kind for finding in diagnosis.findings}
    out = []
    if measured is not None:
        ends = interval_words(measured, lambda x: percent(x, 1))
        items = counted(measured["n"], "gold item" if by_votes else "item")
        how = ", each labelled by the votes and what other items teach" if by_votes else " with known truth"
        out.append(f"Measured on {items}{how}, {percent(measured['value'], 1)} of the labels are right ({ends}).")
    if np.isfinite(diagnosis.expected):
        weak = [words for kind, words in WEAKENS.items() if kind in kinds]
        less = f" Expect less than that, since {joined(weak)}." if weak else ""
        out.append(
            f"{diagnosis.expected_words} of the labels are expected to be right, as far as crowds are alike: gold "
            f"labels would measure it.{less}"
        )
    if FindingKind.CAPTURED in kinds:
        out.append("Do not trust these labels: annotators who repeat each other may have decided them.")
    return out


def actions(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """What to do first: one entry for each kind of finding that asks for something."""
    return [
        {
            "kind": str(kind),
            "title": words.title,
            "names": _names(some, diagnosis)[:MOST_NAMES],
            "lines": folded(some),
            "advice": words.advice,
        }
        for kind, words in diagnosis.kinds.items()
        if (some := diagnosis.of_kind(kind)) and words.advice
    ]  # fmt: skip


def _names(some: list[Finding], diagnosis: Diagnosis) -> list[str]:
    kind = some[0].kind
    if some[0].line:
        return [named(finding.noun, name) for finding in some for name in finding.names]
    if kind is FindingKind.COPIERS:
        return [joined(map(str, finding.names), 5) for finding in some]
    if kind is FindingKind.PAIR:
        return [" / ".join(map(str, finding.names)) for finding in some]
    if kind is FindingKind.ITEMS:
        return [counted(to_review(diagnosis) or 0, "item")]
    return [str(name) for finding in some for name in finding.names]
