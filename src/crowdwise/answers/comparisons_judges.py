"""Judges beside people: how often a language model that compares answers agrees with people, and what it favours.

Each judge's decided answers are explained by the scores that people give (z, the difference between the item shown
first and the other; of all other annotators where there are no people) and by what should not matter:

    log odds of the first = k z + position + verbosity log2(length / length of the other) + self (own - other own)

==================  =============================================================================================
``position``        log odds in favour of the item shown first
``verbosity``       log odds in favour of an answer that is twice as long (lengths of answers must be known)
``self_preference`` log odds in favour of answers that the judge, or a model of the same name, gave itself
==================  =============================================================================================

``agreement``, ``kappa``, ``alpha`` and ``drift`` are those of a judge's verdicts with the people's on the same items
and question; ``calibration`` is by how much the log odds that a judge gives (of a verdict with a probability) must be
multiplied to be those of the people: 1 where they are right, below 1 where the judge is too sure. Votes (pass and fail,
classes) have all of these but the biases.
A panel of judges is worth M / (1 + (M - 1) r) independent ones, r the mean correlation of their mistakes.

Errors are clustered by question where there are questions, and allow for those of the scores. A bias is empty where the
columns do not allow it: the order is not known or never varies, there are no lengths, no item is the judge's own.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from crowdwise.answers.comparisons_bradley_terry import BradleyTerry
from crowdwise.answers.comparisons_connectivity import in_one_order
from crowdwise.core.constraints import Count, Fraction, checked, is_number
from crowdwise.core.intervals import quantile
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data import encoding
from crowdwise.data.comparisons import TIE, Comparisons
from crowdwise.data.encoding import Mask
from crowdwise.data.frames import make_frame
from crowdwise.data.votes import Votes
from crowdwise.errors import ConnectionWarning, InputError, Option, ParameterError, Remedy, listing, warn

FAMILIES = (
    "gpt|claude|gemini|gemma|llama|vicuna|alpaca|mistral|mixtral|ministral|qwen|deepseek|command|grok|palm|bard|phi|o1|o3|o4|"
    "pandalm|prometheus|auto-?j|nova|kimi|glm|chatglm|yi|sonnet|opus|haiku|jamba|dbrx|falcon|wizardlm|nemotron|olmo|granite|ernie|"
    "hunyuan|doubao|minimax|solar|skywork|internlm|baichuan|reka|titan|flan|t5|davinci|chatgpt"
)
MODELS = re.compile(rf"^(.*[^a-z])?({FAMILIES})([^a-z].*|\d.*)?$|judge|llm")
"""Names that are those of language models..."""
VARIANTS = (
    "opus|sonnet|haiku|instant|instruct|chat|pro|lite|micro|premier|large|medium|small|mini|nano|flash|core|edge|text|v"
)
FIRST_NAMES = re.compile(rf"(claude|gemma|bard|nova|opus|sonnet|reka|yi|titan)([ .](?!({VARIANTS})\b)[^\W\d]{{2,}})?")
"""... and of these the ones that a person may have: alone, or with a surname, they are not taken for a model."""
PEOPLE = {"human", "person", "people", "expert", "author", "crowd", "user", "worker", "rater"}
MIN_DECIDED = 20
"""With fewer decided answers nothing is said about what a judge favours."""
RIDGE = 1.0 / 25.0
"""The precision of the Normal prior of each coefficient: it matters where answers are separable."""
BIASES = ("position", "verbosity", "self_preference")


@checked
def judge_table(
    comparisons: Comparisons | Votes, judges: Sequence[Any] | None = None, *, people: Sequence[Any] | None = None,
    column: str | None = None, own: Mapping[Any, Any] | None = None, level: Fraction = 0.95, kind: str | None = None,
) -> Any:  # fmt: skip
    """One row for every judge and one for all people: agreement with people, and the biases of each, with intervals.

    Parameters
    ----------
    comparisons
        Of judges and of people (or of judges alone: then agreement is empty). Agreement is that of two decided answers
        on the same two items and question; or votes, of which it is that of two on an item.
    judges, people
        Which annotators are judges, and which are people; with one of both, all others are the other. By default those
        with the name of a language model are judges, and a warning says who was taken for what.
    column
        A column that was kept (``keep``) and says of each row whether a person gave it (human, person, expert...) or a
        judge (anything else).
    own
        Judge -> the item or items that it made itself; by default those with its name, or one that begins so.
    level
        The level of the intervals.
    kind
        ``"pandas"``, ``"polars"``, ``"pyarrow"`` or ``"dict"``; by default what the comparisons came from.

    Returns
    -------
    Columns ``annotator``, ``comparisons``, ``tie_rate``, ``agreement`` (and how many ``pairs`` of answers it is of),
    ``kappa`` (Cohen's, of the same verdicts with ties) and ``alpha`` (Krippendorff's), ``drift`` (log odds of agreeing,
    per standard deviation of time), ``calibration``, ``first_rate`` (empty where the order never
    varies), ``flip_rate`` (of items and questions that were judged in both
    orders, the share in which the same side won twice), ``position``, ``verbosity`` and ``self_preference``, each of
    these and the agreement with its ends.
    """
    is_judge, is_person = who_judges(comparisons, judges, people, column)
    _named(comparisons, list(own or comparisons.annotators))
    by_people: Any = comparisons.select(is_person[comparisons.annotator])
    rows = []
    for m in np.flatnonzero(is_judge).tolist():
        mine: Any = comparisons.select(comparisons.annotator == m)
        row: dict[str, Any] = {"annotator": str(comparisons.annotators[m])}
        if isinstance(comparisons, Votes):
            row |= {"votes": mine.n_votes} | _kappa(mine, by_people, level, True) | _drift(mine, by_people, level)
        else:
            others = by_people if by_people.n_answers else comparisons.select(comparisons.annotator != m)
            row |= _counts(mine) | _agreement(mine, by_people, level) | _kappa(mine, by_people, level)
            row |= _drift(mine, by_people, level) | _calibration(mine, by_people, level)
            row |= _biases(mine, others, _own_items(comparisons, comparisons.annotators[m], own), level)
        rows.append(row)
    if by_people.n_answers and isinstance(comparisons, Comparisons):
        row = {"annotator": "people"} | _counts(by_people) | _agreement(by_people, by_people, level)
        row |= _none("kappa", "alpha", "drift", "calibration")
        rows.append(row | _biases(by_people, by_people, np.zeros(comparisons.n_items, bool), level))
    return make_frame(_columns(rows), kind or comparisons.kind)


def _none(*names: str) -> dict[str, Any]:
    """Figures that are not known, with their ends."""
    return {f"{name}{end}": np.nan for name in names for end in ("", "_low", "_high")}


def _around(
    name: str, value: float, error: float, level: float, least: float = -np.inf, most: float = np.inf
) -> dict[str, Any]:
    """A figure with its ends."""
    reach = quantile(level) * error
    return {name: value, f"{name}_low": max(least, value - reach), f"{name}_high": min(most, value + reach)}


def _slope_of(name: str, x: Floats, y: Floats, group: Ints, level: float) -> dict[str, Any]:
    """The log odds of y for one more of x."""
    beta, error = _logistic(np.stack([np.ones(len(y)), x], axis=1), y, np.ones(len(y)), group)
    return _around(name, float(beta[1]), float(error[1]), level)


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


def who_judges(
    table: Comparisons | Votes, judges: Sequence[Any] | None, people: Sequence[Any] | None = None,
    column: str | None = None,
) -> tuple[Mask, Mask]:  # fmt: skip
    """M and M: who is a judge, and who is a person; a warning where that was guessed by names."""
    M = table.n_annotators
    if column is not None:
        if isinstance(table, Votes):
            raise ParameterError("column is for comparisons; of votes say judges or people.")
        word = np.array([str(v).strip().lower() for v in table.kept(column)], dtype=object)
        human = np.array([any(w.startswith(p) for p in PEOPLE) for w in word.tolist()])
        by, n = np.bincount(table.annotator, human, M), np.bincount(table.annotator, minlength=M)
        mixed = (by > 0) & (by < n)
        if mixed.any():
            raise InputError(f"Column {column!r} takes {listing(table.annotators[mixed])} for a person and a judge.")
        is_judge = (by == 0) & (n > 0)
        if not is_judge.any() or is_judge.all():
            raise InputError(f"Column {column!r} says that all are {'judges' if is_judge.all() else 'people'}.")
        return is_judge, ~is_judge & (n > 0)
    judging, persons = (None if names is None else _named(table, names) for names in (judges, people))
    if judging is not None and persons is not None and (judging & persons).any():
        raise InputError(f"Both a judge and a person: {listing(table.annotators[judging & persons])}.")
    if judging is not None:
        return judging, ~judging if persons is None else persons
    if persons is not None:
        return ~persons, persons
    lower = [str(name).lower() for name in table.annotators.tolist()]
    is_judge = np.array([bool(MODELS.search(name)) and not FIRST_NAMES.fullmatch(name) for name in lower])
    if not is_judge.any():
        raise InputError(
            f"No annotator has the name of a language model: {listing(table.annotators)}. Name them: judges=[...].",
            remedy=Remedy("Say who judges with {}, or who is a person with {}.", Option("judges"), Option("people")),
        )
    rest = f"for people: {listing(table.annotators[~is_judge], 8)}" if not is_judge.all() else "none for a person"
    warn(
        f"Taken for judges, by their names: {listing(table.annotators[is_judge], 12)}; {rest}. Say judges or people if "
        "that is wrong."
    )
    return is_judge, ~is_judge


def _named(table: Comparisons | Votes, names: Sequence[Any]) -> Mask:
    names = [names] if isinstance(names, str) else list(names)
    at = encoding.locate(encoding.to_vocabulary(names), table.annotators)
    if (at < 0).any() or not len(at):
        missing = [name for name, place in zip(names, at.tolist(), strict=True) if place < 0]
        raise InputError(f"There is no annotator {listing(missing)}: there are {listing(table.annotators)}.")
    return np.isin(np.arange(table.n_annotators), at)


def _own_items(table: Comparisons, judge: Any, own: Mapping[Any, Any] | None) -> Mask:
    """N: which items the judge made itself."""
    if own is None:
        me = _plain(str(judge).split("|")[0])
        names = [_plain(x) for x in table.items.tolist()]
        return np.array([min(len(x), len(me)) >= 4 and (me.startswith(x) or x.startswith(me)) for x in names])
    mine = own.get(judge, ())
    mine = [mine] if isinstance(mine, str) or not isinstance(mine, (Sequence, np.ndarray, set)) else list(mine)
    at = encoding.locate(encoding.to_vocabulary(mine), table.items) if mine else np.empty(0, np.int64)
    if (at < 0).any():
        raise InputError(f"own names {listing(mine)}, and the items are {listing(table.items)}.")
    return np.isin(np.arange(table.n_items), at)


def _plain(name: Any) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _counts(table: Comparisons) -> dict[str, Any]:
    decided = table.outcome != TIE
    n = int(decided.sum())
    varies = n > 0 and table.placed and not in_one_order(table, np.zeros(table.n_answers, np.int64), 1)[0]
    first = float((table.outcome[decided] == 0).mean()) if varies else np.nan
    rates = {"tie_rate": float(1.0 - decided.mean()), "first_rate": first, "flip_rate": _flips(table)}
    return {"comparisons": table.n_answers} | rates


@dataclass(frozen=True)
class _Cells:
    """Decided answers by question and pair: how often the item with the lower code won, and how often the other."""

    cell: Ints
    low: Floats
    high: Floats

    @classmethod
    def of(cls, table: Comparisons) -> _Cells:
        d = table.outcome != TIE
        cell, at = np.unique(table.asked[d], return_inverse=True)
        low = (table.outcome[d] == 0) == (table.left < table.right)[d]
        low, high = (np.bincount(at, won, len(cell)).astype(np.float64) for won in (low, ~low))
        return cls(cell, low, high)


def _agreement(one: Comparisons, people: Comparisons, level: float) -> dict[str, Any]:
    """How often a decided answer agrees with a person's on the same items and question."""
    nothing = _none("agreement") | {"pairs": 0}
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
    return _around("agreement", rate, float(np.sqrt((gap**2).sum())) / n, level, 0.0, 1.0) | {"pairs": round(n)}


def _as_votes(table: Comparisons | Votes) -> Votes:
    return table if isinstance(table, Votes) else table.votes()


def _units(one: Comparisons | Votes, people: Comparisons | Votes) -> tuple[Ints, Ints, Floats]:
    """Of the items (and questions) that a judge and people judged: which, the judge's verdict (first, second, tie; a
    class), and the shares of the people's verdicts."""
    mine, theirs = _as_votes(one), _as_votes(people)
    at = encoding.locate(mine.items, theirs.items)
    share = np.zeros((len(theirs), theirs.n_classes))
    np.add.at(share, (theirs.item, theirs.label), 1.0)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    rows = np.flatnonzero(at[mine.item] >= 0)
    rows = rows[share[at[mine.item[rows]]].sum(axis=1) > 0.0]
    return mine.item[rows], mine.label[rows], share[at[mine.item[rows]]]


def _kappa(one: Comparisons | Votes, people: Comparisons | Votes, level: float, rate: bool = False) -> dict[str, Any]:
    """Cohen's kappa and Krippendorff's alpha of a judge with a person drawn at random on each unit (and their rate of
    agreement), by a jackknife of units."""
    names = ("agreement", "kappa", "alpha") if rate else ("kappa", "alpha")
    nothing = _none(*names) | ({"pairs": 0} if rate else {})
    if not people.n_answers:
        return nothing
    _, verdict, share = _units(one, people)
    n, K = len(verdict), share.shape[1] if len(verdict) else 0
    if n < MIN_DECIDED:
        return nothing
    cells = np.zeros((n, K, K))
    cells[np.arange(n), verdict] = share
    if isinstance(one, Comparisons):  # which of two items is called the first means nothing
        turn = np.array([1, 0, 2])
        cells = 0.5 * (cells + cells[:, turn][:, :, turn])
    total = cells.sum(axis=0)

    def known(apart: Floats) -> Floats:
        return np.where(apart > 1e-9, apart, np.nan)  # with one verdict everywhere there is nothing to agree on

    def kappa(tables: Floats) -> Floats:
        p = tables / tables.sum(axis=(-2, -1), keepdims=True)
        chance = (p.sum(axis=-1) * p.sum(axis=-2)).sum(axis=-1)
        return np.asarray((np.trace(p, axis1=-2, axis2=-1) - chance) / known(1.0 - chance))

    def alpha(tables: Floats) -> Floats:
        size = tables.sum(axis=(-2, -1))
        p = tables / size[..., None, None]
        both = 0.5 * (p.sum(axis=-1) + p.sum(axis=-2))
        apart = (1.0 - (both**2).sum(axis=-1)) * 2.0 * size / (2.0 * size - 1.0)
        return np.asarray(1.0 - (1.0 - np.trace(p, axis1=-2, axis2=-1)) / known(apart))

    def agreed(tables: Floats) -> Floats:
        return np.asarray(np.trace(tables, axis1=-2, axis2=-1) / tables.sum(axis=(-2, -1)))

    out: dict[str, Any] = {"pairs": n} if rate else {}
    for name, of, least in (("agreement", agreed, 0.0), ("kappa", kappa, -1.0), ("alpha", alpha, -1.0)):
        if name in names:
            value, without = float(of(total)), of(total - cells)
            error = float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))
            out |= _around(name, value, error, level, least, 1.0)
    return out


def _calibration(one: Comparisons, people: Comparisons, level: float) -> dict[str, Any]:
    """The log odds of a person's verdict for one of a judge's log odds, on the same items and question."""
    nothing = _none("calibration")
    theirs = _Cells.of(people)
    if one.left_probability is None or not len(theirs.cell):
        return nothing
    cell = one.asked
    at = np.searchsorted(theirs.cell, cell).clip(max=len(theirs.cell) - 1)
    both = np.isfinite(one.left_probability) & (theirs.cell[at] == cell)
    if both.sum() < MIN_DECIDED:
        return nothing
    share = (theirs.low / (theirs.low + theirs.high))[at[both]]
    y = np.where((one.left < one.right)[both], share, 1.0 - share)
    p = one.left_probability[both].clip(1e-6, 1.0 - 1e-6)
    group = np.unique((cell if one.question is None else one.question)[both], return_inverse=True)[1]
    return _slope_of("calibration", np.log(p / (1.0 - p)), y, group, level)


def _drift(one: Comparisons | Votes, people: Comparisons | Votes, level: float) -> dict[str, Any]:
    """Log odds of agreeing with the people's most frequent verdict, per standard deviation of time."""
    nothing = _none("drift")
    if one.timestamp is None or not people.n_answers:
        return nothing
    when = np.asarray(one.timestamp)
    when = when.astype("datetime64[us]").astype(np.float64) if when.dtype.kind == "M" else when.astype(np.float64)
    unit, verdict, share = _units(one, people)
    at = one.item if isinstance(one, Votes) else np.unique(one.asked, return_inverse=True)[1]
    time = (np.bincount(at, when) / np.maximum(np.bincount(at), 1))[unit]
    if len(verdict) < MIN_DECIDED or not np.isfinite(time).all() or time.std() == 0.0:
        return nothing
    y = (verdict == share.argmax(axis=1)).astype(np.float64)
    return _slope_of("drift", (time - time.mean()) / time.std(), y, np.arange(len(y)), level)


@checked
def judge_panels(
    comparisons: Comparisons | Votes, judges: Sequence[Any] | None = None, *, people: Sequence[Any] | None = None,
    column: str | None = None, cost: Mapping[Any, float] | None = None, most: Count = 3, kind: str | None = None,
) -> Any:  # fmt: skip
    """Panels of up to ``most`` judges, and of all, by how often the verdict of most of their members is the people's.

    Verdicts are on the items and questions that all judges and people judged. ``effective`` is how many independent
    judges a panel is worth; ``cost`` the sum of its members' (1 each by default). ``best`` is the cheapest panel whose
    agreement is within one standard error of the highest. The other parameters are those of :func:`judge_table`.
    """
    is_judge, is_person = who_judges(comparisons, judges, people, column)
    by_people = comparisons.select(is_person[comparisons.annotator])
    if not by_people.n_answers:
        raise InputError("There are no people: name them, people=[...].")
    price = dict.fromkeys(map(str, comparisons.annotators.tolist()), 1.0)
    _named(comparisons, list(cost or comparisons.annotators))
    for name, each in (cost or {}).items():
        if not is_number(each) or not 0.0 <= each < np.inf:
            raise ParameterError(f"cost of {name!r} is {each!r}: expected a number, 0 or more.")
        price[str(name)] = each
    who = np.flatnonzero(is_judge)
    units = [_units(comparisons.select(comparisons.annotator == m), by_people) for m in who.tolist()]
    names = [_as_votes(comparisons.select(comparisons.annotator == m)).items[u[0]]
             for m, u in zip(who, units, strict=True)]  # fmt: skip
    common = set(names[0].tolist()).intersection(*(n.tolist() for n in names[1:]))
    if len(common) < MIN_DECIDED:
        raise InputError(
            f"All judges and people judged {len(common)} items and questions, and {MIN_DECIDED} are needed."
        )
    order = sorted(common)
    place = [dict(zip(n.tolist(), range(len(n)), strict=True)) for n in names]
    verdict = np.array([[u[1][p[x]] for x in order] for u, p in zip(units, place, strict=True)])
    true = np.array([units[0][2][place[0][x]] for x in order]).argmax(axis=1)
    wrong, K = verdict != true, units[0][2].shape[1]
    rows = []
    for size in sorted({*range(1, min(most, len(who)) + 1), len(who)}):
        for panel in combinations(range(len(who)), size):
            votes = np.stack([(verdict[list(panel)] == k).sum(axis=0) for k in range(K)], axis=1).astype(float)
            votes[np.arange(len(order)), verdict[panel[0]]] += 0.1  # the first decides where others are split
            right = votes.argmax(axis=1) == true
            shared = np.corrcoef(wrong[list(panel)]) if size > 1 else np.ones((1, 1))
            r = float(np.nan_to_num(shared[np.triu_indices(size, 1)]).mean()) if size > 1 else 0.0
            members = [str(comparisons.annotators[who[k]]) for k in panel]
            rate = float(right.mean())
            rows.append({
                "panel": " + ".join(members), "judges": size, "cost": sum(price[name] for name in members),
                "agreement": rate, "error": float(np.sqrt(max(rate * (1.0 - rate), 1e-12) / len(order))),
                "effective": size / (1.0 + (size - 1) * max(r, -0.5 / size)), "units": len(order),
            })  # fmt: skip
    columns = _columns(rows)
    top = int(columns["agreement"].argmax())
    near = columns["agreement"] >= columns["agreement"][top] - columns["error"][top]
    best = min(np.flatnonzero(near).tolist(), key=lambda n: (columns["cost"][n], -columns["agreement"][n]))
    order_of = np.lexsort((columns["cost"], -columns["agreement"]))
    columns["best"] = np.arange(len(near)) == best
    return make_frame({name: values[order_of] for name, values in columns.items()}, kind or comparisons.kind)


def _flips(table: Comparisons) -> float:
    """Of the items and questions that one annotator judged in both orders: how often the same side won twice."""
    if not table.placed:
        return np.nan
    d = table.outcome != TIE
    questions = np.int64(1 if table.questions is None else len(table.questions))
    cell = table.asked[d] + table.annotator[d].astype(np.int64) * questions * table.n_items**2
    _, at = np.unique(cell, return_inverse=True)
    kinds = [np.bincount(at, (table.left < table.right)[d] == order, minlength=1) for order in (True, False)]
    twice = (kinds[0] == 1) & (kinds[1] == 1)
    left_won = np.bincount(at, table.outcome[d] == 0)
    return float((left_won[twice] != 1).mean()) if twice.any() else np.nan


def _biases(mine: Comparisons, others: Comparisons, own_items: Mask, level: float) -> dict[str, Any]:
    """The coefficients of what should not matter, with intervals."""
    out = _none(*BIASES)
    d = mine.outcome != TIE
    y = (mine.outcome[d] == 0).astype(np.float64)
    if mine.left_probability is not None:
        y = np.where(np.isfinite(mine.left_probability[d]), mine.left_probability[d], y)
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
    if own_items.any():
        causes["self_preference"] = own_items[left].astype(np.float64) - own_items[right]
    X = np.stack(list(causes.values()), axis=1)
    group = np.arange(len(y)) if mine.question is None else np.unique(mine.question[d], return_inverse=True)[1]
    beta, error = _logistic(X, y, mine.weights[d], group)
    moved = [  # the scores of the others are estimates, too
        _logistic(np.column_stack([s[left] - s[right], X[:, 1:]]), y, mine.weights[d], group)[0]
        for s in reference.draws[:40].astype(np.float64)
    ]
    error = np.sqrt(error**2 + np.var(moved, axis=0))
    for name, b, e, column in zip(causes, beta.tolist(), error.tolist(), X.T, strict=True):
        if name in BIASES and column.any():
            out |= _around(name, b, e, level)
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
