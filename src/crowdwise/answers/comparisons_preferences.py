"""Preference data for alignment: a weight for each comparison, and chosen/rejected lines to train on.

With scores s and the reliability eta_m of the annotator (1 for models that have none), and z = s_chosen - s_rejected:

===============  ===========================================================================================
column           meaning
===============  ===========================================================================================
``row``          where the comparison stands in ``comparisons.to_frame()``: tables are sorted when they are read
``probability``  sigmoid(z): P(the chosen item is found better, by a reliable annotator)
``flip_rate``    1 - eta_m: how often the annotator reverses an answer (what robust losses ask for)
``flipped``      P(this answer was reversed, given the scores) = sigmoid(-(logit eta_m + z))
``weight``       1 - ``flipped``: P(this answer was not reversed)
===============  ===========================================================================================

``flip_rate`` is about the annotator and belongs into :func:`crowdwise.dpo_loss`; ``weight`` also uses all other
answers on the two items, and weights the loss itself: use one of the two, not both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.core.constraints import Share, checked
from crowdwise.data import encoding
from crowdwise.data.comparisons import TIE, Comparisons
from crowdwise.data.folders import write_text
from crowdwise.data.frames import make_frame
from crowdwise.errors import InputError, listing


def preference_weights(comparisons: Comparisons, ranking: Ranking, *, kind: str | None = None) -> Any:
    """One row for each decided comparison, with its weight; ties prefer nothing and are left out.

    Parameters
    ----------
    comparisons
        The comparisons to weight: those of the fit, or others of the same items. An unseen annotator has the mean
        reliability of the others.
    ranking
        From ``crowd-bt``; other methods estimate no reliabilities, and every answer then counts as not reversed.
    kind
        ``"pandas"``, ``"polars"``, ``"pyarrow"`` or ``"dict"``; by default what the comparisons came from.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.comparisons(10, n_annotators=8, n_comparisons=4000, reversed_=0.25, random_state=0)
    >>> table = cw.preference_weights(crowd.comparisons, cw.aggregate(crowd.comparisons, "crowd-bt"), kind="dict")
    >>> found = [bool(table["flip_rate"][table["annotator"] == m].mean() > 0.5) for m in range(8)]
    >>> found == (crowd.reliability < 0.5).tolist()
    True
    """
    return make_frame(_columns(comparisons, ranking), kind or comparisons.kind)


def _columns(comparisons: Comparisons, ranking: Ranking) -> dict[str, Any]:
    if not isinstance(comparisons, Comparisons) or not isinstance(ranking, Ranking):
        raise InputError(
            f"Expected Comparisons and a Ranking and found {type(comparisons).__name__} and {type(ranking).__name__}."
        )
    place = encoding.locate(comparisons.items, ranking.items)
    if (place < 0).any():
        raise InputError(
            f"The ranking has no score for {listing(comparisons.items[place < 0])}: fit it on comparisons of all items."
        )
    kept = comparisons.select(comparisons.outcome != TIE)
    if kept.n_answers == 0:
        raise InputError("No comparison prefers one item: all are ties.")
    won = kept.outcome == 0
    chosen, rejected = np.where(won, kept.left, kept.right), np.where(won, kept.right, kept.left)
    z = ranking.scores[place[chosen]] - ranking.scores[place[rejected]]
    eta = np.ones(len(z))
    if ranking.reliability is not None:
        known = np.append(ranking.reliability, ranking.reliability.mean())  # -1, an unseen annotator, is the last
        eta = known[encoding.locate(kept.annotators, ranking.annotators)][kept.annotator]
    with np.errstate(divide="ignore"):
        logit = np.log(eta) - np.log1p(-eta)
    flipped = np.where(np.isposinf(logit), 0.0, 1.0 / (1.0 + np.exp(np.clip(logit + z, -500, 500))))
    columns: dict[str, Any] = {
        "row": np.flatnonzero(comparisons.outcome != TIE),
        "chosen": comparisons.items[chosen], "rejected": comparisons.items[rejected],
        "annotator": kept.annotators[kept.annotator],
    }  # fmt: skip
    if kept.question is not None and kept.questions is not None:
        columns["question"] = kept.questions[kept.question]
    return columns | {
        "probability": 1.0 / (1.0 + np.exp(np.clip(-z, -500, 500))), "flip_rate": 1.0 - eta, "flipped": flipped,
        "weight": 1.0 - flipped,
    }  # fmt: skip


@checked
def write_preferences(
    path: str | os.PathLike[str], comparisons: Comparisons, ranking: Ranking, *,
    texts: Mapping[Any, str] | None = None, prompts: Mapping[Any, str] | None = None, min_weight: Share = 0.0,
    each: Literal["comparison", "pair"] = "comparison",
) -> int:  # fmt: skip
    """Write ``prompt``, ``chosen``, ``rejected`` and the weights as JSON lines, all or nothing; returns their number.

    Parameters
    ----------
    path
        The file to write.
    comparisons, ranking
        As in :func:`preference_weights`.
    texts, prompts
        What to write for an item, and for a question; by default their names.
    min_weight
        Comparisons with a ``weight`` below this are left out.
    each
        ``"comparison"``: a line for every decided comparison, as it was answered. ``"pair"``: one line for every two
        items (on every question), the better by score chosen; ``weight`` is then ``probability``.
    """
    columns = _columns(comparisons, ranking)
    if each == "pair":
        columns = _by_pair(columns, ranking)
    columns.pop("row", None)
    lines = []
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        row = dict(zip(columns, values, strict=True))
        if row["weight"] < min_weight:
            continue
        line = {"prompt": _text(row.pop("question"), prompts, "question")} if "question" in row else {}
        line |= {name: _text(row.pop(name), texts, "item") for name in ("chosen", "rejected")} | row
        lines.append(json.dumps(line, ensure_ascii=False))
    write_text("".join(f"{line}\n" for line in lines), path)
    return len(lines)


def _by_pair(columns: dict[str, Any], ranking: Ranking) -> dict[str, Any]:
    """One row for every two items on every question, the better by score chosen (equal ones are left out)."""
    names = [columns[k] for k in ("chosen", "rejected")]
    a, b = (encoding.locate(encoding.to_vocabulary(n), ranking.items).astype(np.int64) for n in names)
    q = np.zeros(len(a), np.int64)
    if "question" in columns:
        q = np.unique(columns["question"].astype(str), return_inverse=True)[1].astype(np.int64)
    N = len(ranking.items)
    _, first = np.unique((q * N + np.minimum(a, b)) * N + np.maximum(a, b), return_index=True)
    a, b = a[first], b[first]
    gap = ranking.scores[a] - ranking.scores[b]
    better, worse = np.where(gap >= 0, a, b), np.where(gap >= 0, b, a)
    p = 1.0 / (1.0 + np.exp(-np.abs(gap)))
    keep = gap != 0.0
    out = {"chosen": ranking.items[better], "rejected": ranking.items[worse]}
    if "question" in columns:
        out["question"] = columns["question"][first]
    return {name: value[keep] for name, value in (out | {"probability": p, "weight": p}).items()}


def _text(name: Any, texts: Mapping[Any, str] | None, what: str) -> str:
    if texts is None:
        return str(name)
    if name not in texts:
        raise InputError(f"There is no text for {what} {name!r}: give one for every {what}, or leave the texts out.")
    return texts[name]
