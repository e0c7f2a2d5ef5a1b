"""Reports and pages that several tests look at, each made once in a run: names that are markup among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise.report.page import page
from report.crowd import planted

EVIL = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    '" onfocus="alert(1)',
    "'><b>",
    "{{ 7*7 }}",
]
TYPES = ("ratings", "comparisons", "rankings", "similarities", "label-sets", "tags", "texts", "boxes", "masks", "spans")
PAGES = ("digits", "hostile", "many", "tiny", *TYPES)


def make(folder: Path) -> None:
    """Write ``NAME.html`` and ``NAME.json`` for every name in ``PAGES``."""
    folder.mkdir()
    for name in PAGES:
        report = build(name)
        (folder / f"{name}.json").write_text(json.dumps(report, allow_nan=False), encoding="utf-8")
        (folder / f"{name}.html").write_text(page(report), encoding="utf-8")


def build(name: str) -> dict[str, Any]:
    """The dict of a report."""
    if name in TYPES:
        answers = renamed(crowd_of(name).answers)
        return cw.build_report(answers, fitted(name, answers), title="<script>x</script>", all_items=True)
    if name == "digits":
        return cw.build_report(planted(0)[0], title="Digits", all_items=True)
    if name == "hostile":
        return hostile()
    if name == "many":
        votes = cw.simulate.one_coin(900, n_annotators=40, n_classes=12, votes_per_item=4, random_state=0).votes
        return cw.build_report(votes, cw.aggregate(votes, "one-coin"), all_items=True)
    votes = cw.Votes.from_records([("only", "ann", "yes"), ("only", "bob", "no")])
    return cw.build_report(votes, cw.aggregate(votes, "majority"), all_items=True)


def hostile() -> dict[str, Any]:
    """Names that are markup, long, or written from right to left."""
    base = cw.simulate.hammer_spammer(
        120, n_annotators=10, n_classes=3, share=0.7, votes_per_item=3, random_state=0
    ).votes
    names = [*EVIL, "a" * 150, "مصنف البيانات ٤", "b", "c", "d"]
    items = [f"<img src=x onerror=alert({n})>" for n in range(120)]
    votes = cw.Votes.from_codes(
        base.item, base.annotator, base.label, items=items, annotators=names, classes=["<i>x</i>", "صنف", "word " * 30]
    )
    return cw.build_report(
        votes, cw.aggregate(votes, "dawid-skene"), title="<script>x</script>", all_items=True,
        texts=dict.fromkeys(items, "نص من اليمين إلى اليسار <script>alert(2)</script>"),
        images=dict.fromkeys(items, np.eye(8)),
        attributes={"source": {name: "web" if n % 2 else "book" for n, name in enumerate(items)}},
    )  # fmt: skip


def crowd_of(answer_type: str) -> Any:
    """A small simulated crowd."""
    sim = cw.simulate
    return {
        "ratings": lambda: sim.ratings(70, n_annotators=8, votes_per_item=4, random_state=0),
        "comparisons": lambda: sim.comparisons(9, n_annotators=7, n_comparisons=400, tie=0.3, random_state=0),
        "rankings": lambda: sim.rankings(8, n_annotators=6, n_rankings=80, random_state=0),
        "similarities": lambda: sim.similarities(40, n_clusters=3, n_annotators=5, random_state=0),
        "label-sets": lambda: sim.label_sets(40, n_labels=3, n_annotators=6, random_state=0),
        "tags": lambda: sim.bio_tags(20, n_annotators=6, random_state=0),
        "boxes": lambda: sim.boxes(30, n_annotators=6, annotators_per_item=4, random_state=0),
        "texts": lambda: sim.texts(30, n_annotators=6, texts_per_item=4, random_state=0),
        "masks": lambda: sim.masks(30, n_annotators=6, masks_per_item=4, size=32, random_state=0),
        "spans": lambda: sim.spans(30, n_annotators=6, answers_per_item=4, random_state=0),
    }[answer_type]()


def fitted(answer_type: str, answers: Any) -> Any:
    params = {"n_clusters": 3, "restarts": 1} if answer_type == "similarities" else {}
    return cw.aggregate(answers, **params)


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
