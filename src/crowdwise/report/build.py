"""Votes and a consensus -> one plain dict: everything that the page shows, and what ``--json`` prints.

===============  ==================================================================================================
key              holds
===============  ==================================================================================================
``title``        the name of the data; ``date``, ``version`` (of crowdwise), ``format`` (of this dict), ``level``
``summary``      a headline, what to do first, how sure the labels are, how many annotators to keep, look at, drop
``findings``     kind, title, names, sentence and advice of each finding, the most pressing first
``data``         the shape of the votes: counts, histograms, shares of the classes
``method``       what was fitted, why (``choice``), with which parameters, and how the fit went
``truth``        accuracy and calibration of the labels, where the truth is known (else null)
``annotators``   a row for each, the most pressing first
``confusion``    the crowd's matrix and those of the first annotators
``groups``       who goes with whom, and the layout of the picture
``items``        those to look at first; ``pairs``, the classes that are hard to tell apart
``agreement``    coefficients with intervals
``fairness``     by attributes of items and demographics of annotators (null where there are none)
``notes``        what could not be looked at, and why
===============  ==================================================================================================

Nothing in it depends on the order of rows; the only thing that changes from one day to the next is ``date``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np

from crowdwise import __version__, metrics, registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.numerics import Ints
from crowdwise.data.dataset import Dataset
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, listing
from crowdwise.report.findings import Diagnosis, FindingKind, concluded
from crowdwise.report.inspection import Progress, inspect
from crowdwise.report.json_values import estimate, number, plain_list
from crowdwise.report.other_answers import answers_report
from crowdwise.report.section_annotators import annotator_rows, confusions
from crowdwise.report.section_fairness import fairness_section
from crowdwise.report.section_groups import group_section
from crowdwise.report.section_items import class_pairs, item_table, review
from crowdwise.report.section_method import method_facts
from crowdwise.report.section_summary import MOST_NAMES, summary
from crowdwise.trust.agreement import agreement, strength
from crowdwise.trust.wording import to_dict

__all__ = ["build_report"]

FORMAT = 1
BINS = 10


def build_report(
    votes: Any,
    consensus: Any = None,
    *,
    gold: Any = None,
    texts: Mapping[Any, str] | None = None,
    images: Mapping[Any, Any] | None = None,
    attributes: Mapping[str, Mapping[Any, Any]] | None = None,
    demographics: Any = None,
    title: str | None = None,
    level: float = 0.05,
    progress: Progress | None = None,
    all_items: bool = False,
) -> dict[str, Any]:
    """Everything a report shows, as a dict that JSON can hold.

    Parameters
    ----------
    votes
        The votes, or a :class:`~crowdwise.Dataset`, whose texts, images, attributes and demographics are then used
        unless others are handed over. Their ``truth`` is only measured against. Or a table of other answers
        (:class:`~crowdwise.Ratings`, ...): its report is that of :func:`crowdwise.report.other_answers.answers_report`.
    consensus
        A consensus of the votes (the result of a fit to other answers); by default that of the default method.
    gold
        True classes that may be used, by the method and to judge annotators: a mapping from item to class, or N codes
        with -1 for unknown. They are left out of the measured accuracy.
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

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.one_coin(300, n_annotators=12, a=30, b=4, votes_per_item=5, random_state=0)
    >>> report = cw.build_report(crowd.votes, cw.aggregate(crowd.votes, "one-coin"))
    >>> report["summary"]["annotators"]["drop"], report["method"]["key"]
    (0, 'one-coin')
    """
    if getattr(votes, "answer_type", Votes.answer_type) != Votes.answer_type:
        others = {"gold": gold, "images": images, "attributes": attributes, "demographics": demographics}
        useless = [name for name, value in others.items() if value is not None]
        if useless:
            raise ParameterError(f"{listing(useless)} does not apply to a report on {votes.answer_type}: leave it out.")
        if progress is not None:
            progress("tables")
        return answers_report(votes, consensus, texts=texts, title=title, all_items=all_items)
    data = votes if isinstance(votes, Dataset) else None
    votes = data.votes if data is not None else votes
    if not isinstance(votes, Votes):
        raise InputError(
            f"Expected Votes or a Dataset and found {type(votes).__name__}: make them with Votes.from_frame."
        )
    if data is not None:
        texts, images = data.texts if texts is None else texts, data.images if images is None else images
        attributes = data.attributes if attributes is None else attributes
        demographics = data.annotators if demographics is None else demographics
        title = data.name if title is None else title
    known = None if gold is None else votes.encode_truth(gold)
    if consensus is None:
        consensus = registry.create(registry.DEFAULT).fit(votes, known).consensus_
    found = concluded(inspect(votes, consensus, gold=known, level=level, progress=progress))
    truth = _measurable(votes, known)
    notes = [f"{step.capitalize()}: {words}" for step, words in found.inspection.notes.items()]
    rows = annotator_rows(found, truth)
    if progress is not None:
        progress("agreement and fairness")
    given = bool(attributes) or demographics is not None
    out: dict[str, Any] = {
        "format": FORMAT,
        "title": title or "Votes",
        "date": date.today().isoformat(),
        "version": __version__,
        "level": level,
        "summary": {},
        "findings": _findings(found),
        "data": _shape(votes, consensus),
        "method": method_facts(consensus),
        "truth": _truth(consensus, truth),
        "annotators": rows,
        "confusion": confusions(found, rows),
        "groups": group_section(found),
        "items": [] if found.inspection.captured else review(found, truth, texts, images),
        "pairs": class_pairs(found),
        "agreement": _agreement(votes, notes),
        "fairness": fairness_section(found, truth, attributes or {}, demographics) if given else None,
        "notes": notes,
    }
    out["summary"] = summary(found, out["truth"])
    if all_items:
        out["item_table"] = item_table(found)
    return out


def choose_attributes(found: Mapping[str, Any], wanted: list[str] | None) -> dict[str, Any]:
    """The attributes asked for, all where nothing was."""
    missing = [name for name in wanted or [] if name not in found]
    if missing:
        raise ParameterError(
            f"There is no attribute {listing(missing)} of items: the table of items has {listing(found, 12) or 'none'}."
        )
    return {name: found[name] for name in (wanted or found)}


# -------------------------------------------------------------------- the parts


def _measurable(votes: Votes, known: Ints | None) -> Ints | None:
    """The truth of the votes, less what was given away."""
    if votes.truth is None:
        return None
    hidden = votes.truth if known is None else np.where(known >= 0, -1, votes.truth)
    return hidden if (hidden >= 0).any() else None


def _findings(found: Diagnosis) -> list[dict[str, Any]]:
    return [to_dict(f, MOST_NAMES) for kind in FindingKind for f in found.of_kind(kind)[:MOST_NAMES]]


def _shape(votes: Votes, consensus: Consensus) -> dict[str, Any]:
    d = votes.describe()
    K = votes.n_classes
    said = np.bincount(votes.label, minlength=K)
    label = np.bincount(consensus.label_codes, minlength=K)
    classes: list[dict[str, Any]] = []
    for k, name in enumerate(votes.classes.tolist()):
        row = {
            "class": str(name), "votes": int(said[k]), "labels": int(label[k]),
            "vote_share": number(said[k] / max(votes.n_votes, 1)), "label_share": number(label[k] / max(len(votes), 1)),
        }  # fmt: skip
        classes.append(row)
    if votes.truth is not None and (votes.truth >= 0).any():
        true = np.bincount(votes.truth[votes.truth >= 0], minlength=K)
        for k, row in enumerate(classes):
            row["truth_share"] = number(true[k] / true.sum())
    d["classes"] = classes
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
    return {
        "accuracy": estimate(metrics.accuracy(consensus, truth)),
        "calibration_error": estimate(metrics.calibration_error(consensus, truth)),
        "per_class": {str(k): estimate(e) for k, e in metrics.accuracy_per_class(consensus, truth).items()},
        "reliability": {name: plain_list(values) for name, values in table.items()},
    }


def _agreement(votes: Votes, notes: list[str]) -> list[dict[str, Any]]:
    try:
        with np.errstate(divide="ignore", invalid="ignore"):  # a single item leaves nothing to take away
            found = agreement(votes).estimates
    except InputError as error:
        notes.append(f"Agreement: {error}")
        return []
    return [{"coefficient": name, **estimate(e), "words": strength(name, e.value)} for name, e in found.items()]
