"""Answers beyond classes and what was found in them -> one plain dict, from which ``page`` makes a page.

One builder for all kinds: it goes by the tables of a result, their columns, and the intervals among these (``x``,
``x_low`` and ``x_high``; the estimate that a table is about has ``low`` and ``high``). Rankings have a leaderboard.

===============  ==================================================================================================
key              holds
===============  ==================================================================================================
``answer_type``  a key of ``registry.ANSWER_TYPES``; ``says``, what an annotator said
``title`` ...    as in ``build``: also ``date``, ``version``, ``format``, ``method``, ``notes``
``summary``      a headline, and figures with a name, a value and a note
``data``         name and value of what describes the answers
``measured``     figures against known truth, by name (empty where there is none)
``tables``       key, title, words, columns and rows of each table that is shown, and how many rows it has
``item_table``   all items, as columns, and ``annotator_table``, for the downloads (with ``all_items``)
===============  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise import __version__, metrics, registry
from crowdwise.core.result import Result
from crowdwise.errors import InputError
from crowdwise.report.answer_words import (
    ANNOTATORS_BY,
    ITEMS_BY,
    MEASURES,
    NAMES,
    SHARES,
    SIGNED,
    TABLES,
    TITLES,
    WORDS,
)
from crowdwise.report.json_values import estimate, number, plain_list
from crowdwise.report.section_method import method_facts

__all__ = ["answers_report", "measures"]

FORMAT = 1
SHOWN = {"items": 60, "annotators": 200, "leaderboard": 200}
"""Rows of a table that a page shows; ``MOST`` of the others."""
MOST = 60
DOUBT = 0.95
"""Below this probability an answer counts as in doubt."""
FAR = 3.0
"""How much wider than the middle 98 % all intervals may be before the outermost are cut off in drawings."""
LONG = 300
"""Characters of a text that are shown."""


def answers_report(
    answers: Any,
    result: Any = None,
    *,
    truth: Any = None,
    texts: Mapping[Any, str] | None = None,
    title: str | None = None,
    all_items: bool = False,
) -> dict[str, Any]:
    """Everything the page of other answers than classes shows, as a dict that JSON can hold.

    Parameters
    ----------
    answers
        A table of answers; its truth is measured against.
    result
        What was found in them; by default by the default method of the kind.
    truth
        The truth to measure against, where it does not lie with the answers.
    texts
        Item -> a text to show.
    title
        What the report is about.
    all_items
        Whether to add the whole tables of items and annotators, for the downloads.
    """
    kind = str(getattr(answers, "answer_type", ""))
    if kind not in registry.ANSWER_TYPES:
        raise InputError(f"Expected a table of answers and found {type(answers).__name__}.")
    if result is None:
        result = registry.create(registry.ANSWER_TYPES[kind].default, kind).fit(answers).consensus_
    if not isinstance(result, Result):
        raise InputError(f"Expected the result of a fit and found {type(result).__name__}.")
    measured = measures(kind, answers, result, truth)
    out: dict[str, Any] = {
        "format": FORMAT,
        "answer_type": kind,
        "says": registry.ANSWER_TYPES[kind].says,
        "title": title or kind.capitalize(),
        "date": date.today().isoformat(),
        "version": __version__,
        "summary": {"headline": headline(kind, result), "figures": _figures(answers, result, measured)},
        "data": _facts(answers.describe()),
        "measured": {name: {"name": MEASURES[name]} | estimate(found) for name, found in measured.items()},
        "tables": [shown_table(result, name, texts) for name in _shown(result)],
        "method": method_facts(result),
        "notes": list(getattr(result, "notes", None) or []),
    }
    if all_items:
        for name, table in (("item_table", "items"), ("annotator_table", "annotators")):
            columns = result.to_frame(table, kind="dict")
            out[name] = {column: _plain(values) for column, values in columns.items()}
    return out


def measures(kind: str, answers: Any, result: Any, truth: Any = None, used: Any = None) -> dict[str, Any]:
    """Figures with intervals against known truth, by name; none where nothing is known.

    ``truth`` is by default that of the answers; for comparisons and rankings it is the true score of each item. What
    the method was told (``used``, of grades) is left out.
    """
    if truth is None:
        truth = _own_truth(kind, answers)
    if truth is None:
        return {}
    if kind == "ratings":
        return {"mae": metrics.mae(result, truth), "rmse": metrics.rmse(result, truth)}
    if kind in ("comparisons", "rankings"):
        from crowdwise.data.truth import encode_numbers

        return {"kendall": metrics.kendall(result.scores, encode_numbers(truth, result.item_names))}
    if kind == "similarities":
        return {
            "accuracy": metrics.cluster_accuracy(result, truth),
            "mutual_information": metrics.mutual_information(result, truth),
            "adjusted_rand": metrics.adjusted_rand(result, truth),
        }
    if kind == "label-sets":
        return {
            "f1": metrics.set_f1(result, truth),
            "jaccard": metrics.jaccard(result, truth),
            "subset_accuracy": metrics.subset_accuracy(result, truth),
        }
    if kind == "tags":
        codes = answers.encode_truth(truth)
        if not (codes >= 0).any():
            return {}
        out = {"accuracy": metrics.accuracy(result, codes)}
        whole = np.add.reduceat(codes < 0, answers.starts[:-1]) == 0
        if whole.any() and answers.scheme != "plain":
            spans = metrics.span_scores(result, answers, codes)
            out |= {f"span_{name}": spans[name] for name in ("f1", "precision", "recall")}
        return out
    codes = result.truth_codes(truth)
    if used is not None:
        codes = np.where(result.truth_codes(used) >= 0, -1, codes)
    if not (codes >= 0).any():
        return {}
    return {
        "accuracy": metrics.accuracy(result, codes),
        "mae": metrics.mae(result, codes),
        "quadratic_kappa": metrics.quadratic_kappa(result, codes),
    }


def headline(kind: str, result: Any) -> str:
    """One sentence on what was found and how sure it is."""
    N, M = len(result.item_names), len(result.annotator_names)
    if kind == "ratings":
        low, high = result.interval()
        reach = float(np.mean(high - low)) / 2.0
        return f"{_count(N, 'number')} from {_count(M, 'annotator')}, each known to ± {reach:.3g} on average."
    if kind in ("comparisons", "rankings"):
        order = np.argsort(-result.scores, kind="stable")
        first = result.item_names[order[0]]
        if N < 2:
            return f"{first} is the only item."
        sure = result.better(first, result.item_names[order[1]])
        words = "leads" if sure >= DOUBT else "is ahead, but not surely"
        chance = "over 99 %" if sure > 0.99 else f"{100 * sure:.0f} %"
        return f"{first} {words}: better than {result.item_names[order[1]]} with a probability of {chance}."
    doubt = int((np.asarray(result.to_frame("items", kind="dict")["probability"]) < DOUBT).sum())
    unsure = f"{doubt:,} in doubt" if doubt else "none in doubt"
    if kind == "similarities":
        return f"{_count(N, 'item')} in {_count(len(np.unique(result.clusters)), 'cluster')}, {unsure}."
    if kind == "tags":
        spans = len(result.to_frame("spans", kind="dict")["type"]) if "spans" in result.TABLES else 0
        found = f"{_count(spans, 'span')} in " if spans else ""
        return f"{found}{_count(N, 'token')}, {unsure}."
    return f"{_count(N, 'set')} of labels, {unsure}."


# -------------------------------------------------------------------- tables


def _shown(result: Any) -> list[str]:
    """The tables of a page, in order; a leaderboard stands for the items."""
    there = [name for name in TABLES if name in result.TABLES]
    return [name for name in there if name != "items" or "leaderboard" not in there]


def shown_table(result: Any, name: str, texts: Mapping[Any, str] | None = None) -> dict[str, Any]:
    """One table as the page shows it: columns with their drawings, and the first rows."""
    frame = {column: np.asarray(values) for column, values in result.to_frame(name, kind="dict").items()}
    size = len(next(iter(frame.values())))
    order = _order(name, frame, size)[: SHOWN.get(name, MOST)]
    ends = {end for column in frame for end in _ends(column, frame)}
    heads = [_column(column, values, frame) for column, values in frame.items() if column not in ends]
    named = next((head for head in heads if head["name"] in NAMES), heads[0])
    named["header"] = True
    rows = []
    for n in order.tolist():
        row = [_cell(head, frame, n) for head in heads]
        if texts and name in ("items", "leaderboard"):
            text = str(texts.get(_item(frame["item"], n), ""))
            row[_place(heads, "item")]["text"] = text if len(text) <= LONG else text[: LONG - 1].rstrip() + "…"
        rows.append(row)
    title, words = TITLES[name], TABLES[name]
    shown = [head["name"] for head in heads]
    explained = [{"name": c, "words": WORDS[c]} for c in shown if c in WORDS]
    return {
        "key": name, "title": title, "words": words, "columns": heads, "rows": rows, "total": size,
        "explained": explained,
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


def _column(name: str, values: npt.NDArray[Any], frame: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Name, what the cells are, decimals, and the scale on which intervals are drawn."""
    numeric = values.dtype.kind in "fiu" and name not in NAMES
    head: dict[str, Any] = {"name": name, "title": name.replace("_", " ").capitalize(), "numeric": numeric}
    if not numeric:
        return head
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)]
        top = float(np.abs(finite).max()) if len(finite) else 1.0
        whole = bool((finite == np.rint(finite)).all())
        head["digits"] = 0 if whole and top >= 2 else int(np.clip(3 - np.ceil(np.log10(max(top, 1e-9))), 0, 4))
        head["digits"] = 2 if name in SHARES or name.startswith("p(") else head["digits"]
    ends = _ends(name, frame)
    if ends and values.dtype.kind == "f":
        head["ends"] = list(ends)
        head["scale"], head["zero"] = _scale(name, values, [frame[end] for end in ends])
    elif ends:
        head["ends"] = list(ends)
    return head


def _scale(name: str, values: npt.NDArray[Any], ends: list[npt.NDArray[Any]]) -> tuple[list[float], bool]:
    """From where to where intervals are drawn, and whether 0 is the middle."""
    if name in SHARES:
        return [0.0, 1.0], False
    every = np.concatenate([values, *ends]).astype(np.float64)
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
        return {"v": str(value)}
    cell: dict[str, Any] = {"v": number(value, 6)}
    if "ends" in head and cell["v"] is not None:
        low, high = (number(frame[end][n], 6) for end in head["ends"])
        cell |= {"low": low, "high": high}
        if "scale" in head:
            a, b = head["scale"]
            at = [a if low is None else low, cell["v"], b if high is None else high]
            cell["at"] = [round(100.0 * min(max((x - a) / (b - a), 0.0), 1.0), 1) for x in at]
    return cell


def _place(heads: list[dict[str, Any]], name: str) -> int:
    return next(i for i, head in enumerate(heads) if head["name"] == name)


def _item(names: npt.NDArray[Any], n: int) -> Any:
    return names[n].item() if hasattr(names[n], "item") else names[n]


# -------------------------------------------------------------------- the other parts


def _figures(answers: Any, result: Any, measured: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the tiles show."""
    out = []
    for name, found in list(measured.items())[:2]:
        note = f"measured on {found.n:,}, 95 % from {found.low:.3g} to {found.high:.3g}"
        out.append({"name": MEASURES[name], "value": f"{found.value:.3g}", "note": note})
    items = "Tokens" if "tokens" in answers.describe() else "Items"
    out.append({"name": items, "value": f"{len(result.item_names):,}", "note": ""})
    out.append({"name": "Annotators", "value": f"{len(result.annotator_names):,}", "note": ""})
    each = result.n_answers / max(len(result.annotator_names), 1)
    out.append({"name": "Answers", "value": f"{result.n_answers:,}", "note": f"{each:.3g} of each annotator"})
    return out


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
        out.append({"name": name.replace("_", " ").capitalize(), "value": text})
    return out


def _figure(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else str(value)


def _plain(values: Any) -> list[Any]:
    listed = plain_list(values)
    return [str(v) if not isinstance(v, (int, float, bool, type(None))) else v for v in listed]


def _own_truth(kind: str, answers: Any) -> Any:
    """The truth that lies with the answers, as the metrics of their kind take it; ``None`` where nothing is known."""
    truth = getattr(answers, "truth", None)
    if truth is None or kind in ("comparisons", "rankings"):  # comparisons know true outcomes, not scores
        return None
    if kind == "ratings":
        return truth if np.isfinite(truth).any() else None
    if kind == "label-sets":
        known = np.flatnonzero(answers.known)
        return {_item(answers.items, n): answers.labels[truth[n]].tolist() for n in known.tolist()} or None
    if kind == "similarities":
        known = np.flatnonzero(truth >= 0)
        return dict(zip(answers.items[known].tolist(), answers.classes[truth[known]].tolist(), strict=True)) or None
    return truth


def _count(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"
