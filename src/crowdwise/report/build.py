"""Answers and what was found in them -> one plain dict: everything that the page shows, and what ``--json`` prints.

===============  ==================================================================================================
key              holds, for every answer type
===============  ==================================================================================================
``title``        the name of the data; ``date``, ``version`` (of crowdwise), ``format`` (of this dict)
``answer_type``  a key of ``registry.ANSWER_TYPES``; ``says``, what an annotator said
``summary``      a headline, and what goes with it
``data``         what describes the answers
``agreement``    coefficients with intervals
``candidates``   whether models may replace the annotators, where some are named (else null)
``method``       what was fitted, why (``notes``), with which parameters, and how the fit went
``notes``        what could not be looked at, and why; ``reading_notes``, warnings of the reader
``item_table``   all items, as columns, for the download (with ``all_items``)
===============  ==================================================================================================

``votes`` adds findings, annotators, groups, items, classes and fairness; ``other_answers`` the tables of the result.
Nothing depends on the order of rows; the only thing that changes from one day to the next is ``date``.

Of a consensus that was computed elsewhere there are its files, without the votes (:func:`written_report`): counts,
shares and the least sure items come from streams over the items, whose number does not matter. What needs the votes
(agreement, copiers, drift) is not there; the notes say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from crowdwise import __version__, registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Fraction, checked
from crowdwise.core.dependence import accuracy_interval
from crowdwise.core.result import Result, plain
from crowdwise.data.boundary import reading
from crowdwise.data.dataset import Dataset
from crowdwise.data.heavy import pl
from crowdwise.data.table import Table
from crowdwise.data.vote_files import ConsensusFiles
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.metrics.bootstrap import Estimate
from crowdwise.reading import read
from crowdwise.report.findings import Progress
from crowdwise.report.other_answers import (
    SHOWN,
    answer_sections,
    measured_facts,
    measured_tiles,
    plain_cells,
    shown_table,
)
from crowdwise.report.section_summary import STEPS, SURE, estimate, number, plain_list, sureness_bars
from crowdwise.report.votes import vote_sections
from crowdwise.trust.agreement import TITLES, agreement, strength
from crowdwise.trust.alternative_test import alternative_test
from crowdwise.trust.annotators import less_accurate
from crowdwise.trust.wording import IN_DOUBT, INEXACT, counted, figure, joined, named, percent

FORMAT = 2
MOST_POINTS = 400
"""Points of the objective that are drawn."""


@checked
def build_report(
    answers: Any, result: Any = None, *, truth: Any = None, gold: Any = None, texts: Mapping[Any, str] | None = None,
    images: Mapping[Any, Any] | None = None, attributes: Mapping[str, Mapping[Any, Any]] | None = None,
    demographics: Any = None, title: str | None = None, level: Fraction = 0.05, progress: Progress | None = None,
    all_items: bool = False, candidates: Any = None, epsilon: float = 0.1, reading_notes: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Everything a report shows, as a dict that JSON can hold.

    Parameters
    ----------
    answers
        Votes or a table of other answers; a dataframe, a file or a dataset folder, as :func:`crowdwise.aggregate` takes
        them; or a :class:`~crowdwise.Dataset`, whose texts, images, attributes and demographics are then used unless
        others are handed over.
    result
        The result of a fit to them; by default that of the default method.
    truth
        The truth to measure against, used for evaluation only; by default that of the answers.
    gold
        True classes that may be used, by the method and to judge annotators: a mapping from item to class, or N codes
        with -1 for unknown. They are left out of the measured accuracy. Of votes only, as are attributes and
        demographics.
    texts, images
        Item -> what to show of it: a text; a file or an array.
    attributes
        Name -> item -> group: attributes of items, to see whether groups are labelled alike.
    demographics
        A table of annotators, as :func:`crowdwise.trust.demographics.compare_demographics` takes it.
    title
        What the report is about.
    level
        The error rate of every detector.
    progress
        Called with the name of each step before it begins.
    all_items
        Whether to add ``item_table``, the table of all items, as columns.
    candidates, epsilon
        Annotators that are models and may replace the others: :func:`crowdwise.alternative_test`.
    reading_notes
        Warnings of the reader, for the page; of answers that are read here they are known.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=12, a=30, b=4, votes_per_item=5, random_state=0)
    >>> report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "one-coin"))
    >>> report["summary"]["annotators"]["drop"], report["method"]["key"]
    (0, 'one-coin')
    """
    shown = {"texts": texts, "images": images, "attributes": attributes, "demographics": demographics}
    if not isinstance(answers, (Dataset, Table)):
        source = read(answers)
        reading_notes = source.notes
        answers = source.dataset or source.table
    if isinstance(answers, Dataset):
        data = answers
        own = {"texts": data.texts, "images": data.images, "attributes": data.attributes}
        own["demographics"] = data.annotator_table
        shown = {name: own[name] if value is None else value for name, value in shown.items()}
        answers, title = data.votes, data.name if title is None else title
    kind = answers.answer_type
    of_votes = isinstance(answers, Votes)
    if not of_votes:
        given = {"gold": gold, **shown}
        useless = [name for name, value in given.items() if value is not None and name not in ("texts", "images")]
        if useless:
            raise ParameterError(f"{listing(useless)} does not apply to a report on {kind}: leave it out.")
    known = answers.encode_truth(gold) if of_votes and gold is not None else None
    if result is None:
        model = registry.create(registry.default_method(kind), kind)
        result = (model.fit(answers, known) if of_votes else model.fit(answers)).consensus_
    if not isinstance(result, Consensus if of_votes else Result):
        raise InputError(f"Expected the result of a fit to {kind} and found {type(result).__name__}.")
    notes: list[str] = []
    if of_votes and isinstance(result, Consensus):
        sections = vote_sections(answers, result, known, truth, level, progress, notes, all_items, **shown)
    else:
        sections = answer_sections(answers, result, truth, texts, images, progress, all_items)
    if progress is not None:
        progress("agreement")
    return {
        "format": FORMAT, "answer_type": kind, "says": registry.ANSWER_TYPES[kind].says,
        "title": title or kind.capitalize(), "date": date.today().isoformat(), "version": __version__, **sections,
        "agreement": _agreement(answers, notes),
        "candidates": None if candidates is None else _candidates(answers, candidates, epsilon),
        "method": method_facts(result), "notes": notes, "reading_notes": list(reading_notes),
    }  # fmt: skip


def choose_attributes(attributes: Mapping[str, Any], wanted: list[str] | None) -> dict[str, Any]:
    """The attributes asked for, all where nothing was."""
    missing = [name for name in wanted or [] if name not in attributes]
    if missing:
        raise ParameterError(
            f"There is no attribute {listing(missing)} of items: the table of items has "
            f"{listing(attributes, 12) or 'none'}."
        )
    return {name: attributes[name] for name in (wanted or attributes)}


def _agreement(answers: Any, notes: list[str]) -> list[dict[str, Any]]:
    try:
        measured = agreement(answers)
    except InputError as error:
        notes.append(f"Agreement: {error}")
        return []
    notes += [f"Agreement: {note}" for note in measured.notes]
    return [
        {"coefficient": name, "title": TITLES.get(name) or name.capitalize(), **estimate(e), "words": strength(name, e)}
        for name, e in measured.estimates.items()
    ]


def _candidates(answers: Any, names: Any, epsilon: float) -> dict[str, Any]:
    test = alternative_test(answers, names, epsilon)
    rows = test.to_frame("candidates", kind="polars").fill_nan(None).to_dicts()
    return {"epsilon": epsilon, "rows": rows, "sentences": test.sentences()}


def method_facts(result: Any) -> dict[str, Any]:
    """What was fitted, with which parameters, and how the fit went."""
    entries = (registry.METHODS, registry.LEARNERS, registry.ANSWER_METHODS, registry.plugins())
    entry = next((found[result.method] for found in entries if result.method in found), None)
    trace = result.trace
    if len(trace) > MOST_POINTS:
        trace = trace[np.unique(np.linspace(0, len(trace) - 1, MOST_POINTS).astype(int))]
    return {
        "key": result.method, "summary": getattr(entry, "summary", ""), "reference": getattr(entry, "reference", ""),
        "notes": list(result.notes), "parameters": {name: plain(value) for name, value in result.params.items()},
        "seed": result.seed, "iterations": int(result.iterations), "converged": bool(result.converged),
        "seconds": round(float(result.seconds), 3), "objective": number(trace[-1]) if len(trace) else None,
        "trace": plain_list(trace),
    }  # fmt: skip


MOST_ITEMS, MOST_PEOPLE, NAMED = 20_000, 100_000, 10
"""Items and annotators up to which the page holds the whole table; names in one line."""
WITHOUT = (
    "This report was made from the consensus alone. Agreement, copiers, drift and verdicts need the votes: crowdwise "
    "report on (a sample of) these."
)


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
        shown_table("items", first)
        | {"key": "review", "title": "Items to review", "total": total},
        shown_table("labels", classes)
        | {"words": "How many items have each label, and how sure these labels are on average."},
    ]  # fmt: skip
    columns = (
        {} if people is None else {n: people[n].to_numpy() for n in people.columns if not people[n].dtype.is_nested()}
    )
    if columns:
        tables.append(shown_table("annotators", columns))
    far: Any = less_accurate(columns["accuracy"], columns["votes"], 0.1) if "accuracy" in columns else []
    inexact = [str(columns["annotator"][m]) for m in far]  # the least accurate first
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
    fit = SimpleNamespace(method="unknown", notes=[], params={}, iterations=0, converged=True, seconds=0.0)
    vars(fit).update((name, value) for name, value in files.about.items() if name in vars(fit))
    fit.seed, fit.trace = None, np.asarray(files.about.get("trace", []), dtype=np.float64)
    method = method_facts(fit)
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
        report["item_table"] = {name: plain_cells(every[name]) for name in every.columns}
    if columns and len(columns["annotator"]) <= MOST_PEOPLE and people is not None:
        report["annotator_table"] = {name: plain_cells(people[name]) for name in columns}
    return report


def _counts(items: pl.LazyFrame) -> dict[str, Any]:
    """The number of items, of those in doubt, and how sure they are."""
    p, edges = pl.col("probability"), [-np.inf, *STEPS, np.inf]
    bins = [((p >= a) & (p < b)).sum().alias(f"bin {i}") for i, (a, b) in enumerate(pairwise(edges))]
    asked = [pl.len().alias("total"), p.mean().alias("mean"), (p >= SURE).sum().alias("sure")]
    votes = "votes" in items.collect_schema().names()
    asked += [pl.col("votes").sum().cast(pl.Int64).alias("votes")] if votes else []
    counts = items.select(*asked, *bins).collect(engine="streaming").to_dicts()[0]
    counts["height"] = np.array([counts.pop(f"bin {i}") for i in range(len(bins))])
    return {"votes": None, **counts}


def _least_sure(items: pl.LazyFrame) -> dict[str, Any]:
    """The items with the lowest probabilities."""
    columns = [n for n in ("item", "label", "probability", "entropy", "votes") if n in items.collect_schema().names()]
    least = items.select(columns).bottom_k(SHOWN["items"], by="probability").sort("probability").collect()
    return {name: least[name].to_numpy() for name in columns}


def _classes(items: pl.LazyFrame) -> dict[str, Any]:
    classes = items.group_by("label").agg(pl.len().alias("items"), pl.col("probability").mean())
    table = classes.sort("items", "label", descending=[True, False]).collect(engine="streaming")
    share = (table["items"] / table["items"].sum()).to_numpy()
    return {"label": table["label"].to_numpy(), "items": table["items"].to_numpy(), "share": share,
            "probability": table["probability"].to_numpy()}  # fmt: skip


def _actions(doubt: int, inexact: list[str]) -> list[dict[str, Any]]:
    """What to do first, in the form of other reports."""
    actions = []
    if inexact:
        names = joined([named("annotator", name) for name in inexact], NAMED)
        actions.append(("inexact", INEXACT, f"{names}: more than ten points under the median accuracy."))
    if doubt:
        actions.append(("items", IN_DOUBT, f"{counted(doubt, 'label')} with a probability under {percent(SURE)}."))
    return [{"kind": kind, "title": w.title, "lines": [line], "advice": w.advice} for kind, w, line in actions]
