"""Judges beside people: how often a language model that compares answers agrees with people, and what it favours.

Each judge's decided answers are explained by the scores that people give (z, the difference between the item shown
first and the other; of all other annotators where there are no people) and by what should not matter:

    log odds of the first = k z + position + verbosity log2(length / length of the other) + self (own - other own)

==================  =============================================================================================
``position``        log odds in favour of the item shown first
``verbosity``       log odds in favour of an answer that is twice as long (lengths of answers must be known)
``self_preference`` log odds in favour of answers that the judge, or a model of the same name, gave itself
==================  =============================================================================================

Errors are clustered by question where there are questions, and allow for those of the scores. A bias is empty where the
columns do not allow it: the order is not known or never varies, there are no lengths, no item is the judge's own.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.answers.comparisons_bradley_terry import BradleyTerry
from crowdwise.answers.comparisons_connectivity import in_one_order
from crowdwise.core.constraints import Fraction, checked
from crowdwise.core.intervals import quantile
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data import encoding
from crowdwise.data.comparisons import TIE, Comparisons
from crowdwise.data.encoding import Mask
from crowdwise.data.frames import make_frame
from crowdwise.errors import ConnectionWarning, InputError, listing

MODELS = re.compile(
    r"gpt|claude|gemini|gemma|llama|mi[sx]tral|qwen|deepseek|command-?r|grok|palm|bard|judge|llm|(^|[^a-z])(phi|o[134])([^a-z]|$)"
)
"""Names that are those of language models."""
MIN_DECIDED = 20
"""With fewer decided answers nothing is said about what a judge favours."""
DRAWS = 40
"""Draws of the others' scores: how much the biases depend on these is part of their errors."""
RIDGE = 1.0 / 25.0
"""The precision of the Normal prior of each coefficient: it matters where answers are separable."""
BIASES = ("position", "verbosity", "self_preference")


@checked
def judge_table(
    comparisons: Comparisons,
    judges: Sequence[Any] | None = None,
    *,
    own: Mapping[Any, Any] | None = None,
    level: Fraction = 0.95,
    kind: str | None = None,
) -> Any:
    """One row for every judge and one for all people: agreement with people, and the biases of each, with intervals.

    Parameters
    ----------
    comparisons
        Of judges and of people (or of judges alone: then agreement is empty). Agreement is that of two decided answers
        on the same two items and question.
    judges
        Which annotators are judges; by default those with the name of a language model.
    own
        Judge -> the item or items that it made itself; by default those whose name the judge's begins with.
    level
        The level of the intervals.
    kind
        ``"pandas"``, ``"polars"``, ``"pyarrow"`` or ``"dict"``; by default what the comparisons came from.

    Returns
    -------
    Columns ``annotator``, ``comparisons``, ``tie_rate``, ``agreement`` (and how many ``pairs`` of answers it is of),
    ``first_rate`` (empty where the order never varies), ``flip_rate`` (of items and questions that were judged in both
    orders, the share in which the same side won twice), ``position``, ``verbosity`` and ``self_preference``, each of
    these and the agreement with its ends.
    """
    is_judge = _judges(comparisons, judges)
    people = comparisons.select(~is_judge[comparisons.annotator])
    columns: dict[str, list[Any]] = {}
    for m in np.flatnonzero(is_judge).tolist():
        mine = comparisons.select(comparisons.annotator == m)
        others = people if people.n_answers else comparisons.select(comparisons.annotator != m)
        made = _own_items(comparisons, comparisons.annotators[m], own)
        row = _counts(mine) | _agreement(mine, people, level) | _biases(mine, others, made, level)
        _add(columns, {"annotator": str(comparisons.annotators[m])} | row)
    if people.n_answers:
        row = _counts(people) | _agreement(people, people, level)
        _add(columns, {"annotator": "people"} | row | _biases(people, people, np.zeros(people.n_items, bool), level))
    return make_frame({name: np.array(values) for name, values in columns.items()}, kind or comparisons.kind)


def _add(columns: dict[str, list[Any]], row: dict[str, Any]) -> None:
    for name, value in row.items():
        columns.setdefault(name, []).append(value)


def _judges(table: Comparisons, given: Sequence[Any] | None) -> Mask:
    if given is None:
        found = np.array([bool(MODELS.search(str(name).lower())) for name in table.annotators.tolist()])
        if not found.any():
            raise InputError(
                f"No annotator has the name of a language model: {listing(table.annotators)}. Name them: judges=[...]."
            )
        return found
    at = encoding.locate(encoding.to_vocabulary(list(given)), table.annotators)
    if (at < 0).any() or not len(at):
        missing = [name for name, place in zip(given, at.tolist(), strict=True) if place < 0]
        raise InputError(f"There is no annotator {listing(missing)}: there are {listing(table.annotators)}.")
    found = np.zeros(table.n_annotators, dtype=bool)
    found[at] = True
    return found


def _own_items(table: Comparisons, judge: Any, own: Mapping[Any, Any] | None) -> Mask:
    """N: which items the judge made itself."""
    if own is None:
        me = _plain(judge)
        return np.array([len(_plain(x)) >= 4 and me.startswith(_plain(x)) for x in table.items.tolist()])
    mine = own.get(judge, ())
    mine = [mine] if isinstance(mine, str) or not isinstance(mine, (Sequence, np.ndarray, set)) else list(mine)
    at = encoding.locate(encoding.to_vocabulary(mine), table.items) if mine else np.empty(0, np.int64)
    if (at < 0).any():
        raise InputError(f"own names {listing(mine)}, and the items are {listing(table.items)}.")
    found = np.zeros(table.n_items, dtype=bool)
    found[at] = True
    return found


def _plain(name: Any) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _counts(table: Comparisons) -> dict[str, Any]:
    decided = table.outcome != TIE
    n = int(decided.sum())
    varies = n > 0 and table.placed and not in_one_order(table, np.zeros(table.n_answers, np.int64), 1)[0]
    first = float((table.outcome[decided] == 0).mean()) if varies else np.nan
    return {
        "comparisons": table.n_answers, "tie_rate": float(1.0 - decided.mean()), "first_rate": first,
        "flip_rate": _flips(table),
    }  # fmt: skip


@dataclass(frozen=True)
class _Cells:
    """Decided answers by question and pair: how often the item with the lower code won, and how often the other."""

    cell: Ints
    low: Floats
    high: Floats

    @classmethod
    def of(cls, table: Comparisons) -> _Cells:
        d = table.outcome != TIE
        a, b = table.left[d].astype(np.int64), table.right[d].astype(np.int64)
        cell, at = np.unique(_question(table)[d] * table.n_items**2 + _pair(a, b, table.n_items), return_inverse=True)
        low = (table.outcome[d] == 0) == (a < b)
        low, high = (np.bincount(at, won, len(cell)).astype(np.float64) for won in (low, ~low))
        return cls(cell, low, high)


def _pair(a: Ints, b: Ints, N: int) -> Ints:
    return np.minimum(a, b) * np.int64(N) + np.maximum(a, b)


def _question(table: Comparisons) -> Ints:
    return np.zeros(table.n_answers, np.int64) if table.question is None else table.question.astype(np.int64)


def _agreement(one: Comparisons, people: Comparisons, level: float) -> dict[str, Any]:
    """How often a decided answer agrees with a person's on the same items and question."""
    nothing = {"agreement": np.nan, "agreement_low": np.nan, "agreement_high": np.nan, "pairs": 0}
    if not people.n_answers:
        return nothing
    mine, theirs = _Cells.of(one), _Cells.of(people)
    if one is people:
        cell, same = mine.cell, (mine.low * (mine.low - 1) + mine.high * (mine.high - 1)) / 2.0
        size = mine.low + mine.high
        both = size * (size - 1) / 2.0
    else:
        cell, i, j = np.intersect1d(mine.cell, theirs.cell, return_indices=True)
        same = mine.low[i] * theirs.low[j] + mine.high[i] * theirs.high[j]
        both = (mine.low[i] + mine.high[i]) * (theirs.low[j] + theirs.high[j])
    n = float(both.sum())
    if n == 0.0:
        return nothing
    rate = float(same.sum()) / n
    group = cell if one.question is None else cell // one.n_items**2
    _, at = np.unique(group, return_inverse=True)
    gap = np.bincount(at, same - rate * both)
    reach = quantile(level) * float(np.sqrt((gap**2).sum())) / n
    low, high = max(0.0, rate - reach), min(1.0, rate + reach)
    return {"agreement": rate, "agreement_low": low, "agreement_high": high, "pairs": round(n)}


def _flips(table: Comparisons) -> float:
    """Of the items and questions that one annotator judged in both orders: how often the same side won twice."""
    if not table.placed:
        return np.nan
    d = table.outcome != TIE
    a, b, N = table.left[d].astype(np.int64), table.right[d].astype(np.int64), table.n_items
    who = table.annotator[d].astype(np.int64) * np.int64(1 if table.questions is None else len(table.questions))
    cell = (who + _question(table)[d]) * N**2 + _pair(a, b, N)
    _, at = np.unique(cell, return_inverse=True)
    kinds = [np.bincount(at, (a < b) == order, minlength=1) for order in (True, False)]
    twice = (kinds[0] == 1) & (kinds[1] == 1)
    left_won = np.bincount(at, table.outcome[d] == 0)
    return float((left_won[twice] != 1).mean()) if twice.any() else np.nan


def _biases(mine: Comparisons, others: Comparisons, made: Mask, level: float) -> dict[str, Any]:
    """The coefficients of what should not matter, with intervals."""
    out = {f"{name}{end}": np.nan for name in BIASES for end in ("", "_low", "_high")}
    d = mine.outcome != TIE
    y = (mine.outcome[d] == 0).astype(np.float64)
    if len(y) < MIN_DECIDED or not others.n_answers:
        return out
    with warnings.catch_warnings():  # parts of the items that nothing joins: the ranking says so
        warnings.simplefilter("ignore", ConnectionWarning)
        reference = BradleyTerry().fit(others).consensus_
    left, right = mine.left[d], mine.right[d]
    causes: dict[str, Floats] = {"score": reference.scores[left] - reference.scores[right]}
    if mine.placed and not in_one_order(mine, np.zeros(mine.n_answers, np.int64), 1)[0]:
        causes["position"] = np.ones(len(y))
    if mine.left_length is not None and mine.right_length is not None:
        ratio = np.log2(np.maximum(mine.left_length[d], 1.0) / np.maximum(mine.right_length[d], 1.0))
        causes["verbosity"] = np.where(np.isfinite(ratio), ratio, 0.0)
    if made.any():
        causes["self_preference"] = made[left].astype(np.float64) - made[right]
    X = np.stack(list(causes.values()), axis=1)
    group = np.arange(len(y)) if mine.question is None else np.unique(mine.question[d], return_inverse=True)[1]
    beta, error = _logistic(X, y, mine.weights[d], group)
    moved = list[Floats]()
    for s in reference.draws[:DRAWS].astype(np.float64):  # the scores of the others are estimates, too
        moved.append(_logistic(np.column_stack([s[left] - s[right], X[:, 1:]]), y, mine.weights[d], group)[0])
    error = np.sqrt(error**2 + np.var(moved, axis=0))
    for name, b, e, column in zip(causes, beta.tolist(), error.tolist(), X.T, strict=True):
        if name in BIASES and column.any():
            reach = quantile(level) * e
            out |= {name: b, f"{name}_low": b - reach, f"{name}_high": b + reach}
    return out


def _logistic(X: Floats, y: Floats, w: Floats, group: Ints) -> tuple[Floats, Floats]:
    """Coefficients of a logistic regression under a weak prior, and their errors, clustered by group."""
    beta = np.zeros(X.shape[1])
    for _ in range(100):
        p = 1.0 / (1.0 + np.exp(-np.clip(X @ beta, -500, 500)))
        J = (X * (w * p * (1.0 - p))[:, None]).T @ X + RIDGE * np.eye(len(beta))
        step = np.linalg.solve(J, X.T @ (w * (y - p)) - RIDGE * beta)
        beta = beta + step / max(1.0, float(np.abs(step).max()) / 2.0)
        if float(np.abs(step).max()) < 1e-9:
            break
    G = int(group.max()) + 1
    u = np.stack([np.bincount(group, column * w * (y - p), G) for column in X.T], axis=1)
    root = np.linalg.solve(J, u.T)
    return beta, np.sqrt((root**2).sum(axis=1) * G / max(G - 1.0, 1.0))
