"""The parts of a report that other answer types have: the tables of the result, their columns and intervals.

One builder for all types: it goes by the tables of a result, their columns, and the intervals among these (``x``,
``x_low`` and ``x_high``; the estimate that a table is about has ``low`` and ``high``). Rankings have a leaderboard.

====================  =============================================================================================
key                   holds
====================  =============================================================================================
``summary``           a headline, a picture, figures with a name, a value and a note, and what to do first
``data``              name and value of what describes the answers
``measured``          figures against known truth, by name (empty where there is none)
``drawings``          what annotators said of the items in most doubt, and what was found, for types that can be drawn
``tables``            key, title, words, columns and rows of each table that is shown, and how many rows it has
``annotator_table``   all annotators, as columns, for the download (with ``all_items``)
====================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import registry
from crowdwise.errors import InputError
from crowdwise.metrics.measures import MEASURES, measure
from crowdwise.report.findings import Progress, diagnose_answers
from crowdwise.report.section_summary import actions, estimate, number, plain_list, shortened, to_look_at
from crowdwise.trust.wording import figure

TITLES = {
    "leaderboard": "Leaderboard", "items": "Items", "clusters": "Clusters", "labels": "Labels", "spans": "Spans",
    "annotators": "Annotators",
}  # fmt: skip
TABLES = {
    "leaderboard": "The best first. The dot is the score, the band its 95% CI.",
    "items": "The least sure first.",
    "objects": "What was found on the items, with 95% CI of the edges.",
    "clusters": "What the items fell into.",
    "labels": "How often each label is in a set, and how well the crowd recognises it.",
    "spans": "The least sure first.",
    "annotators": "Those to look at first: the least exact, or the least in agreement with what was found.",
}
"""The tables that are shown, in this order, and what stands above them."""
NAMES = ("item", "annotator", "label", "cluster", "sequence", "type", "partner", "group", "component")
"""Columns that hold names, even where these are numbers."""
ITEMS_BY = (("probability", 1.0), ("deviation", -1.0))
ANNOTATORS_BY = (("slope", 1.0), ("reliability", 1.0), ("accuracy", 1.0), ("noise", -1.0), ("agreement", 1.0))
"""Columns by which rows are ordered, the first that is there; 1 for the smallest first."""
SIGNED = {"bias", "position", "location"}
"""Columns in which 0 means no bias."""
WORDS = {
    "value": ("the estimated true value", "on the scale"),
    "deviation": ("its standard deviation", "on the scale"),
    "bias": ("how much more than the truth an annotator says, on average", "on the scale"),
    "scale": ("how much an annotator's ratings move when the truth moves by one", "per step"),
    "precision": ("one over the variance of an annotator's noise", "1/variance"),
    "noise": (
        "how far an annotator's ratings scatter around what they mean to say (a standard "
        "deviation)", "on the scale",
    ),
    "partner": ("the annotator whose errors go together with this one's", ""),
    "rank": ("the place, 1 the best; behind it the places that are possible (95% CI)", "place"),
    "score": ("log-odds: an item one point above another is preferred in 73% of the decided answers", "log-odds"),
    "error": ("the standard error of the score", "log-odds"),
    "slope": (
        "how much of the differences of scores an annotator sees: 1 as the mean annotator, 0 none, "
        "below 0 the other way round", "1 is usual",
    ),
    "leans": ("whether the place of two decides more than the scores explain", ""),
    "ring": (
        "annotators with the same number agree with each other and not with the rest, and count as one; "
        "0: none", "",
    ),
    "caveat": ("what the intervals leave out", ""),
    "reliability": (
        "how often an annotator answers as the scores say and not the other way round; under one "
        "half they reverse the order", "%",
    ),
    "position": ("by how much (log-odds) the first of two is preferred whatever it is", "log-odds"),
    "first_rate": ("how often the first of two was chosen", "%"),
    "tie_rate": ("how often it was a tie", "%"),
    "group": ("the group of like-minded annotators", ""),
    "component": ("items of different components were never compared, directly or by way of others", ""),
    "cluster": ("the cluster of an item", ""),
    "cohesion": ("how surely the items of a cluster belong to it, on average", "%"),
    "sensitivity": ("how often what is there is said: two of a kind found the same, a label in the set chosen", "%"),
    "specificity": ("how often what is not there is not said: two kinds distinguished, any other label left out", "%"),
    "probability": ("how sure that is, under the model", "%"),
    "entropy": ("how unsure it is, in bits", "bits"),
    "size": ("how many labels are in the set", "labels"),
    "agreement": ("how often an annotator said what was found (their own answers had a part in it)", "%"),
    "accuracy": ("how often an annotator is right, under the model", "%"),
    "labels_per_answer": ("how many labels an annotator chooses at a time", "per answer"),
    "item": ("the name of the item", ""),
    "annotator": ("the name of the annotator", ""),
    "label": ("the label", ""),
    "labels": ("the labels of the set", ""),
    "type": ("the type of the span", ""),
    "sequence": ("the sequence it stands in", ""),
    "token": ("which token of the sequence, counted from 0", "place"),
    "start": ("its first token (or character), counted from 0", "token"),
    "end": ("the token (or character) after its last one", "token"),
    "items": ("how many items", "count"),
    "answers": ("how many answers", "count"),
    "votes": ("how many answers", "count"),
    "ratings": ("how many ratings", "count"),
    "comparisons": ("how many comparisons", "count"),
    "rankings": ("how many rankings", "count"),
    "wins": ("how often it was preferred", "count"),
    "losses": ("how often the other was preferred", "count"),
    "ties": ("how often neither was preferred", "count"),
    "first": ("how often it was ranked first", "count"),
    "last": ("how often it was ranked last", "count"),
    "share": ("the share of all items", "%"),
}  # fmt: skip
"""What a column means, and what its numbers are: ``%`` of columns that lie between 0 and 1."""
PLAIN = {"item", "annotator", "label", "labels", "type", "sequence", "start", "end", "share", "cluster"}
PLAIN |= {name for name, (_, unit) in WORDS.items() if unit == "count"}
"""Columns whose heading says what they are: a tooltip suffices."""
FACTS = {"placed": "Known which was shown first"}
"""What facts about the answers are called, where it is not their name."""
HEADINGS = {"tie_rate": "Ties", "first_rate": "First chosen", "labels_per_answer": "Labels", "deviation": "Deviation"}

SHOWN = {"items": 60, "annotators": 200, "leaderboard": 200}
"""Rows of a table that a page shows; ``MOST`` of the others."""
MOST = 60
FAR = 3.0
"""How much wider than the middle 98 % all intervals may be before the outermost are cut off in drawings."""
PLACES = 12
"""The most decimals that are shown."""
DRAWN = 8
"""Items that are drawn."""
LONG = 300
"""Characters of a text that are shown."""


def answer_sections(
    answers: Any, result: Any, truth: Any, texts: Mapping[Any, str] | None, images: Mapping[Any, Any] | None,
    progress: Progress | None, all_items: bool,
) -> dict[str, Any]:  # fmt: skip
    """The parts of the dict, by name."""
    if progress is not None:
        progress("tables")
    kind = answers.answer_type
    measured = measure(kind, answers, result, truth)
    rules, diagnosis = registry.ANSWER_TYPES[kind].rules, diagnose_answers(kind, result)
    shown = [name for name in TABLES if name in result.TABLES] + list(rules.tables)
    tables = [
        shown_table(name, result.to_frame(name, kind="dict"), texts, rules.headings, rules.units)
        for name in shown
        if name != "items" or "leaderboard" not in shown  # which stands for the items
    ]
    out = {
        "summary": {
            "headline": rules.headline(result), "picture": rules.picture(result, tables),
            "figures": _figures(rules.noun, result, measured),
            "actions": actions(diagnosis), "to_look_at": to_look_at(diagnosis),
        },
        "data": _facts(answers.describe()),
        "measured": measured_facts(measured),
        "tables": tables, "drawn": rules.drawn,
        "drawings": _drawings(rules, answers, result, {**(texts or {}), **(images or {})}),
    }  # fmt: skip
    if all_items:
        for table in ("items", "annotators", "objects"):
            if table in result.TABLES:
                columns = result.to_frame(table, kind="dict")
                out[f"{table[:-1]}_table"] = {column: plain_cells(values) for column, values in columns.items()}
    return out


def _drawings(rules: Any, answers: Any, result: Any, about: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """Drawings of the items that are expected to be the most wrong, where a type has any."""
    try:
        doubts = rules.doubts(result)
    except InputError:
        return []
    out = []
    for n in np.argsort(-doubts, kind="stable")[:DRAWN].tolist():
        name = _item(result.items, n)
        drawing = rules.drawing(answers, result, n, about.get(name))
        if drawing is None:
            return []
        out.append({"item": str(name), "loss": float(doubts[n])} | drawing)
    return out


def shown_table(
    name: str, columns: Mapping[str, Any], texts: Mapping[Any, str] | None = None,
    headings: Mapping[str, str] | None = None, units: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One table as the page shows it: columns with their drawings, and the first rows. ``headings`` and ``units``:
    other names of columns, and what their numbers are."""
    frame = {column: np.asarray(values) for column, values in columns.items()}
    size = len(next(iter(frame.values())))
    order = _order(name, frame, size)[: SHOWN.get(name, MOST)]
    ends = {end for column in frame for end in _ends(column, frame)}
    meant = headings or {}
    heads = [
        _column(column, values, frame, meant.get(column, column), units or {})
        for column, values in frame.items()
        if column not in ends
    ]
    named = next((head for head in heads if head["name"] in NAMES), heads[0])
    named["header"] = True
    names = [head["name"] for head in heads]
    rows = []
    for n in order.tolist():
        row = [_cell(head, frame, n) for head in heads]
        if texts and name in ("items", "leaderboard"):
            row[names.index("item")]["text"] = shortened(texts.get(_item(frame["item"], n), ""), LONG)
        rows.append(row)
    explained = [
        {"name": head["title"], "words": WORDS[head["name"]][0]}
        for head in heads
        if head["name"] in WORDS and head["name"] not in PLAIN
    ]
    return {
        "key": name, "title": titled(name, TITLES), "words": TABLES.get(name, ""), "columns": heads, "rows": rows,
        "total": size, "explained": explained,
    }  # fmt: skip


def _order(name: str, frame: Mapping[str, npt.NDArray[Any]], size: int) -> npt.NDArray[np.int64]:
    """What to look at first: the least sure items, the weakest annotators; else as they come."""
    if name == "leaderboard":
        return np.arange(size)
    for column, way in ANNOTATORS_BY if name == "annotators" else ITEMS_BY:
        if column in frame and frame[column].dtype.kind == "f":
            return np.argsort(np.where(np.isnan(frame[column]), np.inf, way * frame[column]), kind="stable")
    return np.arange(size)


def _ends(column: str, frame: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that hold the interval of another."""
    pair = (f"{column}_low", f"{column}_high")
    if all(end in frame for end in pair):
        return pair
    return ("low", "high") if column in ("value", "score", "probability") and "low" in frame else ()


def _column(
    name: str, values: npt.NDArray[Any], frame: Mapping[str, npt.NDArray[Any]], meant: str, units: Mapping[str, str]
) -> dict[str, Any]:
    """Name, what the cells are, decimals, and the scale on which intervals are drawn. ``meant``: what it is called."""
    numeric = values.dtype.kind in "fiu" and name not in NAMES
    head: dict[str, Any] = {"name": name, "title": HEADINGS.get(name) or meant.replace("_", " ").capitalize()}
    if name == "position" and values.dtype.kind in "iu":  # of a tag, not a bias
        meant = "token"
    words = units.get(name) or unit(name if unit(name) == "%" else meant, values.dtype.kind)
    head |= {"numeric": numeric, "tip": tip(meant), "unit": words if numeric else ""}
    if not numeric:
        return head | {"noun": "annotator" if name == "partner" else name}
    head["share"] = words == "%"
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)]
        top = float(np.abs(finite).max(initial=0.0)) or 1.0
        whole = bool((finite == np.rint(finite)).all())
        whole &= top >= 2 or head["unit"] == "count"
        head["digits"] = 0 if whole else int(np.clip(3 - np.ceil(np.log10(top)), 0, PLACES))
        head["digits"] = 2 if head["share"] or name.startswith("p(") else head["digits"]
    ends = _ends(name, frame)
    if ends and values.dtype.kind == "f":
        head["ends"] = list(ends)
        drawn = [values, *(frame[end] for end in ends)]
        head["scale"], head["zero"] = ([0.0, 1.0], False) if head["share"] else _scale(name, drawn)
    elif ends:
        head["ends"] = list(ends)
    return head


def _scale(name: str, drawn: list[npt.NDArray[Any]]) -> tuple[list[float], bool]:
    """From where to where intervals are drawn, and whether 0 is the middle."""
    every = np.concatenate(drawn).astype(np.float64)
    every = every[np.isfinite(every)]
    if not len(every):
        return [0.0, 1.0], False
    low, high = (float(x) for x in (every.min(), every.max()))
    usual = np.quantile(every, [0.01, 0.99])
    if high - low > FAR * (usual[1] - usual[0]) > 0.0:  # a few who are hardly known must not squeeze all others
        low, high = (float(x) for x in usual)
    if name in SIGNED:
        reach = max(abs(low), abs(high), 1e-9)
        return [-reach, reach], True
    room = max(high - low, 1e-9)
    return [low - 0.02 * room, high + 0.02 * room], False


def _cell(head: Mapping[str, Any], frame: Mapping[str, npt.NDArray[Any]], n: int) -> dict[str, Any]:
    value = frame[head["name"]][n]
    if not head["numeric"]:
        return {"v": _figure(value) if isinstance(value, np.bool_) else str(value)}
    places = max(6, head.get("digits", 0))
    cell: dict[str, Any] = {"v": number(value, places)}
    if "ends" in head and cell["v"] is not None:
        low, high = (number(frame[end][n], places) for end in head["ends"])
        cell |= {"low": low, "high": high}
        if "scale" in head:
            a, b = head["scale"]
            at = [a if low is None else low, cell["v"], b if high is None else high]
            cell["at"] = [round(100.0 * min(max((x - a) / (b - a), 0.0), 1.0), 1) for x in at]
    return cell


def _item(names: npt.NDArray[Any], n: int) -> Any:
    return names[n].item() if hasattr(names[n], "item") else names[n]


def titled(name: str, titles: Mapping[str, str]) -> str:
    """The title of a figure or a table; its name where it has none."""
    return titles.get(name) or name.replace("_", " ").capitalize()


def measured_facts(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Figures against the truth, as JSON."""
    return {name: {"name": titled(name, MEASURES)} | estimate(found) for name, found in measured.items()}


def measured_tiles(measured: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The name, value and note of the first two figures against the truth."""
    return [
        (titled(name, MEASURES), figure(e.value), f"measured on {e.n:,}, {e.interval(figure)}")
        for name, e in list(measured.items())[:2]
    ]


def _figures(noun: str, result: Any, measured: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the tiles show."""
    M = len(result.annotators)
    out = measured_tiles(measured)
    out.append((f"{noun.capitalize()}s", f"{len(result.items):,}", ""))
    out.append(("Annotators", f"{M:,}", ""))
    out.append(("Answers", f"{result.n_answers:,}", f"{figure(result.n_answers / max(M, 1))} per annotator"))
    return [dict(zip(("name", "value", "note"), figure, strict=True)) for figure in out]


def _facts(described: Mapping[str, Any]) -> list[dict[str, str]]:
    """What describes the answers, as words and values."""
    out = []
    for name, value in described.items():
        if value is None or isinstance(value, list):
            continue
        if isinstance(value, Mapping):
            parts = [f"{key} {_figure(one)}" for key, one in value.items()]
            text = ", ".join(parts[:8]) + (f" and {len(parts) - 8:,} more" if len(parts) > 8 else "")
        else:
            text = _figure(value)
        out.append({"name": titled(name, FACTS), "value": text})
    return out


def _figure(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return figure(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def plain_cells(values: Any) -> list[Any]:
    """Numbers, truth values and texts as JSON holds them."""
    return [v if isinstance(v, (int, float, bool, type(None))) else str(v) for v in plain_list(values)]


def tip(name: str) -> str:
    """The tooltip of a heading."""
    if name.startswith("p("):
        return f"The probability of {name[2:-1]}"
    words = WORDS[name][0] if name in WORDS else name.replace("_", " ")
    return words[:1].upper() + words[1:]


def unit(name: str, kind: str = "i") -> str:
    """What the numbers of a column are; whole numbers (of the kinds i and u) are counts where nothing else is said."""
    usual = "0 to 1" if name.startswith("p(") else "count" if kind in "iu" else ""
    return WORDS.get(name, ("", ""))[1] or usual
