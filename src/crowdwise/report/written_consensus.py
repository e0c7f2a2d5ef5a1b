"""The report on a consensus that was computed elsewhere: from its files, without the votes.

Counts, shares and the least sure items come from streams over the items, whose number does not matter. What needs the
votes (agreement, copiers, drift) is not there; the notes say so.
"""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np

from crowdwise import __version__, registry
from crowdwise.core.dependence import accuracy_interval
from crowdwise.data.boundary import reading
from crowdwise.data.heavy import pl
from crowdwise.data.vote_files import ConsensusFiles
from crowdwise.metrics.bootstrap import Estimate
from crowdwise.report.build import FORMAT, method_facts
from crowdwise.report.other_answers import SHOWN, measured_facts, measured_tiles, shown_table
from crowdwise.report.section_summary import STEPS, SURE, plain_list, sureness_bars
from crowdwise.trust.annotators import less_accurate
from crowdwise.trust.wording import IN_DOUBT, INEXACT, counted, figure, joined, named, percent

MOST_ITEMS, MOST_PEOPLE, NAMED = 20_000, 100_000, 10
"""Items and annotators up to which the page holds the whole table; names in one line."""
WITHOUT = (
    "This report was made from the consensus alone. Agreement, copiers, drift and verdicts need the votes: crowdwise "
    "report on (a sample of) these."
)


class WrittenTables:
    """The tables of a result, as :func:`shown_table` takes them."""

    def __init__(self, **tables: dict[str, Any]) -> None:
        self.tables = tables

    def to_frame(self, name: str, kind: str = "dict") -> dict[str, Any]:
        return self.tables[name]


def written_report(files: ConsensusFiles, title: str | None = None) -> dict[str, Any]:
    """Everything that the page of a written consensus shows, in the form of :func:`crowdwise.build_report`.

    Figures against the truth are those that were stored with it, where there are any.

    >>> import crowdwise as cw, tempfile
    >>> from crowdwise.data.vote_files import find_consensus
    >>> folder = tempfile.mkdtemp()
    >>> crowd = cw.simulate.one_coin(200, n_annotators=10, votes_per_item=4, random_state=0)
    >>> crowd.votes.with_truth(None).to_frame("polars").write_parquet(f"{folder}/votes.parquet")
    >>> written = cw.aggregate(f"{folder}/votes.parquet", out=f"{folder}/consensus")
    >>> written_report(find_consensus(written.out))["summary"]["figures"][0]["value"]
    '200'
    """
    counts = _counts(files.item_table)
    total, doubt = counts["total"], counts["total"] - counts["sure"]
    people = files.annotator_table
    first, classes = _least_sure(files.item_table), _classes(files.item_table)
    tables = [
        shown_table(WrittenTables(items=first), "items")
        | {"key": "review", "title": "Items to review", "total": total},
        shown_table(WrittenTables(labels=classes), "labels")
        | {"words": "How many items have each label, and how sure these labels are on average."},
    ]  # fmt: skip
    columns = (
        {} if people is None else {n: people[n].to_numpy() for n in people.columns if not people[n].dtype.is_nested()}
    )
    if columns:
        tables.append(shown_table(WrittenTables(annotators=columns), "annotators"))
    inexact = _inexact(columns)
    with reading(files.path, "a consensus in files"):
        measured = {name: Estimate.of(stored) for name, stored in files.about.get("measured", {}).items()}
    figures = measured_tiles(measured)
    figures.append(("Items", f"{total:,}", ""))
    copied = bool(files.about.get("dependence", {}).get("copied", False))
    right, low, high = (percent(x) for x in accuracy_interval(counts["mean"], 0, 0.95, copied))
    figures.append(("Expected to be right", f"{right}, {low} to {high}", "95 % interval, as wide as crowds differ"))
    if columns:
        figures.append(("Annotators", f"{len(columns['annotator']):,}", ""))
    if counts["votes"] is not None:
        figures.append(("Votes", f"{counts['votes']:,}", f"{figure(counts['votes'] / max(total, 1))} per item"))
    method = method_facts(_Fit(files.about))
    report: dict[str, Any] = {
        "format": FORMAT, "answer_type": registry.VOTES, "says": registry.ANSWER_TYPES[registry.VOTES].says,
        "title": title or files.path.stem, "date": date.today().isoformat(), "version": __version__,
        "summary": {
            "headline": f"{counted(total, 'label')}, {right} ({low.rstrip('%')} to {high}) of them expected to be "
            f"right, {doubt:,} with a probability under {percent(SURE)}.",
            "picture": sureness_bars(counts["height"], counts["sure"], total, "label"),
            "figures": [dict(zip(("name", "value", "note"), figure, strict=True)) for figure in figures],
            "actions": _actions(doubt, inexact),
            "to_look_at": [{"annotator": name, "verdict": "look"} for name in inexact],
        },
        "data": [{"name": name, "value": value} for name, value, _ in figures],
        "measured": measured_facts(measured), "tables": tables, "agreement": None,
        "method": method | {"notes": [*method["notes"], WITHOUT]}, "notes": [WITHOUT],
        "reading_notes": [],
    }  # fmt: skip
    if total <= MOST_ITEMS:
        every = files.item_table.collect()
        report["item_table"] = {name: _plain(every[name]) for name in every.columns}
    if columns and len(columns["annotator"]) <= MOST_PEOPLE and people is not None:
        report["annotator_table"] = {name: _plain(people[name]) for name in columns}
    return report


class _Fit:
    """How a fit went, by what lies beside the items."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.method = about.get("method", "unknown")
        self.notes, self.params, self.seed = about.get("notes", []), about.get("params", {}), None
        self.trace = np.asarray(about.get("trace", []), dtype=np.float64)
        self.iterations, self.converged = about.get("iterations", 0), about.get("converged", True)
        self.seconds = about.get("seconds", 0.0)


def _counts(items: pl.LazyFrame) -> dict[str, Any]:
    """The number of items, of those in doubt, and how sure they are."""
    p, edges = pl.col("probability"), [-np.inf, *STEPS, np.inf]
    bins = [((p >= a) & (p < b)).sum().alias(f"bin {i}") for i, (a, b) in enumerate(pairwise(edges))]
    asked = [pl.len().alias("total"), p.mean().alias("mean"), (p >= SURE).sum().alias("sure")]
    votes = "votes" in items.collect_schema().names()
    asked += [pl.col("votes").sum().cast(pl.Int64).alias("votes")] if votes else []
    found = items.select(*asked, *bins).collect(engine="streaming").to_dicts()[0]
    found["height"] = np.array([found.pop(f"bin {i}") for i in range(len(bins))])
    return {"votes": None, **found}


def _least_sure(items: pl.LazyFrame) -> dict[str, Any]:
    """The items with the lowest probabilities."""
    columns = [n for n in ("item", "label", "probability", "entropy", "votes") if n in items.collect_schema().names()]
    found = items.select(columns).bottom_k(SHOWN["items"], by="probability").sort("probability").collect()
    return {name: found[name].to_numpy() for name in columns}


def _classes(items: pl.LazyFrame) -> dict[str, Any]:
    found = items.group_by("label").agg(pl.len().alias("items"), pl.col("probability").mean())
    table = found.sort("items", "label", descending=[True, False]).collect(engine="streaming")
    share = (table["items"] / table["items"].sum()).to_numpy()
    return {"label": table["label"].to_numpy(), "items": table["items"].to_numpy(), "share": share,
            "probability": table["probability"].to_numpy()}  # fmt: skip


def _inexact(columns: dict[str, Any]) -> list[str]:
    """Annotators whose accuracy is far under the median: the least accurate first."""
    if "accuracy" not in columns:
        return []
    return [str(columns["annotator"][m]) for m in less_accurate(columns["accuracy"], columns["votes"], 0.1)]


def _actions(doubt: int, inexact: list[str]) -> list[dict[str, Any]]:
    """What to do first, in the form of other reports."""
    found = []
    if inexact:
        names = joined([named("annotator", name) for name in inexact], NAMED)
        found.append(("inexact", INEXACT, f"{names}: more than ten points under the median accuracy."))
    if doubt:
        found.append(("items", IN_DOUBT, f"{counted(doubt, 'label')} with a probability under {percent(SURE)}."))
    return [{"kind": kind, "title": w.title, "lines": [line], "advice": w.advice} for kind, w, line in found]


def _plain(column: Any) -> list[Any]:
    return [v if isinstance(v, (int, float, bool, type(None))) else str(v) for v in plain_list(column.to_numpy())]
