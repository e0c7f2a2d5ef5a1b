"""A small crowd of every kind of answers beyond classes, with names that are markup, and its report."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise.report.page import page

EVIL = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", '" onfocus="alert(1)', "{{ 7*7 }}"]
KINDS = ("ratings", "comparisons", "rankings", "similarities", "label-sets", "tags")


def renamed(answers: Any) -> Any:
    """The same answers with other names of annotators (and items, where there are enough)."""
    table = answers.to_frame("dict")
    names = [*EVIL, *(f"a{m}" for m in range(100))]
    place = {name: names[m] for m, name in enumerate(answers.annotators.tolist())}
    table["annotator"] = np.array([place[name] for name in table["annotator"].tolist()], dtype=object)
    columns = [c for c in ("item", "item_a", "item_b", "left", "right", "sequence") if c in table]
    for column in columns:
        table[column] = np.array([f"<b>{name}</b>" for name in table[column].tolist()], dtype=object)
    return type(answers).from_frame(table)


def crowds() -> dict[str, Any]:
    sim = cw.simulate
    return {
        "ratings": sim.ratings(70, n_annotators=8, votes_per_item=4, random_state=0),
        "comparisons": sim.comparisons(9, n_annotators=7, n_comparisons=400, tie=0.3, random_state=0),
        "rankings": sim.rankings(8, n_annotators=6, n_rankings=80, random_state=0),
        "similarities": sim.similarities(40, n_clusters=3, n_annotators=5, random_state=0),
        "label-sets": sim.label_sets(40, n_labels=3, n_annotators=6, random_state=0),
        "tags": sim.bio_tags(20, n_annotators=6, random_state=0),
    }


@cache
def answer_pages() -> dict[str, tuple[dict[str, Any], str]]:
    """Kind -> the dict of a report, and its page."""
    out = {}
    for kind, crowd in crowds().items():
        answers = renamed(crowd.answers)
        params = {"n_clusters": 3, "restarts": 1} if kind == "similarities" else {}
        result = cw.aggregate(answers, **params)
        report = cw.build_report(answers, result, title="<script>x</script>", all_items=True)
        out[kind] = report, page(report)
    return out
