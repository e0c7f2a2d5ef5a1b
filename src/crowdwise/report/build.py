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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from crowdwise import __version__, registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Fraction, checked
from crowdwise.core.result import Result, plain
from crowdwise.data.dataset import Dataset
from crowdwise.data.table import Table
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.reading import read
from crowdwise.report.findings import Progress
from crowdwise.report.other_answers import answer_sections
from crowdwise.report.section_summary import estimate, number, plain_list
from crowdwise.report.votes import vote_sections
from crowdwise.trust.agreement import TITLES, agreement, strength
from crowdwise.trust.alternative_test import alternative_test

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


def choose_attributes(found: Mapping[str, Any], wanted: list[str] | None) -> dict[str, Any]:
    """The attributes asked for, all where nothing was."""
    missing = [name for name in wanted or [] if name not in found]
    if missing:
        raise ParameterError(
            f"There is no attribute {listing(missing)} of items: the table of items has {listing(found, 12) or 'none'}."
        )
    return {name: found[name] for name in (wanted or found)}


def _agreement(answers: Any, notes: list[str]) -> list[dict[str, Any]]:
    try:
        found = agreement(answers)
    except InputError as error:
        notes.append(f"Agreement: {error}")
        return []
    notes += [f"Agreement: {note}" for note in found.notes]
    return [
        {"coefficient": name, "title": TITLES.get(name) or name.capitalize(), **estimate(e), "words": strength(name, e)}
        for name, e in found.estimates.items()
    ]


def _candidates(answers: Any, names: Any, epsilon: float) -> dict[str, Any]:
    found = alternative_test(answers, names, epsilon)
    rows = found.to_frame("candidates", kind="polars").fill_nan(None).to_dicts()
    return {"epsilon": epsilon, "rows": rows, "sentences": found.sentences()}


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
