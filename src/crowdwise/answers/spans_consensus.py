"""Consensus spans: which of the marked stretches exist, with what boundaries and label.

**Candidates.** Spans of different annotators that overlap are put together, the most alike first, at most one of an
annotator (average linkage of the Jaccard overlap J; spans with the same label first, then those that are left). Two
groups stay apart where their mean J is under ``overlap`` = 1/3. Of two spans of equal length this means starts less
than half a length apart.

**Detection** (``span-detection``). An item is a row of places. A place holds a true span with probability pi. Annotator
m marks it at the rate d[m] if it does, and at the rate f[m] if it does not:

=============  ====================  ==================================================================================
symbol         code                  equation
=============  ====================  ==================================================================================
K[n]           ``places``            max(candidates on n, T[n] / (kappa mean T)), T[n] the length of the text
P(marks | k)                         product over marks d[m] a[m, label | k], over other annotators 1 - d[m]
P(marks | 0)                         product over marks f[m] share of the label, over other annotators 1 - f[m]
q[c, k]        ``q``                 pi rho[k] P(marks | k) / (sum over k + (1 - pi) P(marks | 0))
d[m]           ``detection``         (marks of m on true spans + s mean) / (true spans on the items of m + s)
f[m]           ``rate``              (other marks of m + s mean) / (other places on the items of m + s)
a[m]           ``label_accuracy``    (marks with the true label + s mean) / (marks of m on true spans + s)
b[m]           ``boundary_noise``    mean distance of a boundary of m to the weighted median of the others', shrunk by s
=============  ====================  ==================================================================================

A wrong label is any of the others alike. Unmarked places count as well: K[n] - candidates of them have no
marks. They keep f small: without them every false candidate would have been seen by an annotator, and one mark would
seem usual where nothing is. kappa is the share of pairs of spans on different items that overlap by J: how often two
false spans have one place. Before any pair is counted it is that of spans which are put anywhere: 1 / T times the mean
of (1 - J) / (1 + J) (a + b) over lengths a and b, 0 where one is shorter than J times the other.

A candidate is a span of the consensus where the sum of q over k is over 1/2. Its boundaries are medians weighted by
1 / b[m], the most likely ones of Laplace errors; of two the one that makes the span longer. s = 5 everywhere. The means
are shrunk by s as well, towards .7 of d, .05 of f and .9 of a: what all annotators of one short text mark is a span.
Where no item has two annotators, nothing tells which spans are true: all are kept, each with a probability of .9.

Reference: the two rates are those of A. Dawid and A. Skene, JRSS C 28 (1979), on candidates.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.answers.answer_model import AnswerModel
from crowdwise.core.constraints import Bounds, Count, Positive, declared
from crowdwise.core.intervals import count_columns, gamma_interval, rate_interval, with_interval
from crowdwise.core.loop import Callback, Progress, Rounds, check_cost
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.result import Result, some_known
from crowdwise.core.span_overlap import COMPARED, by_chance, evenly, jaccard, linked, matches, pairs, weighted_medians
from crowdwise.data.spans import Spans, encode_spans
from crowdwise.errors import InputError

STRENGTH = 5.0
"""How many spans the mean of the crowd is worth for the rates of an annotator."""
ALONE = 0.9
"""The probability of a span where no item has two annotators."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SpanConsensus(Result):
    """Spans for each item. The fields that all results have are those of :class:`~crowdwise.core.result.Result`.

    Attributes
    ----------
    item, label, start, end, probability, marks
        C: of each candidate the position of its item, the code of its label, its boundaries, how probable it is, and
        how many annotators marked it. Those with a probability over 1/2 are the consensus.
    hits, chances, false_marks, off, boundaries, right_labels
        M: expected counts of each annotator: true spans marked, true spans there were, marks that are none; the sum of
        distances of boundaries, and how many there were; marks on true spans with their label.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("items", "annotators", "labels")
    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators", "candidates")
    FINITE: ClassVar[tuple[str, ...]] = ("probability",)
    SHAPES: ClassVar[dict[str, str]] = Result.SHAPES | {
        "item": "C", "label": "C", "start": "C", "end": "C", "probability": "C", "marks": "C", "hits": "M",
        "chances": "M", "false_marks": "M", "off": "M", "boundaries": "M", "right_labels": "M", "looked": "M",
    }  # fmt: skip

    answer_type: str = "spans"
    items: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    item: Ints
    label: Ints
    start: Ints
    end: Ints
    probability: Floats
    marks: Ints
    hits: Floats
    chances: Floats
    false_marks: Floats
    off: Floats
    boundaries: Floats
    right_labels: Floats
    looked: Ints

    @property
    def chosen(self) -> Ints:
        """The candidates of the consensus, in the order of items and places."""
        return np.flatnonzero(self.probability > 0.5)

    def spans(self) -> list[list[tuple[Any, int, int]]]:
        """N lists of (label, start, end)."""
        out: list[list[tuple[Any, int, int]]] = [[] for _ in self.items]
        names = self.labels.tolist()
        for c in self.chosen.tolist():
            out[self.item[c]].append((names[self.label[c]], int(self.start[c]), int(self.end[c])))
        return out

    def __repr__(self) -> str:
        return f"SpanConsensus({self.method}: {len(self.chosen):,} spans in {len(self.items):,} items)"

    def score(self, truth: Any) -> float:
        """F1 by overlap against true spans: a mapping from item to (label, start, end), or N lists of such, ``None``
        for unknown. Pairs have the same label and share half of their union or more, one to one."""
        true = encode_spans(truth, self.items)
        some_known(np.array([spans is not None for spans in true]))
        both = [(a, b) for a, b in zip(self.spans(), true, strict=True) if b is not None]
        total = sum(len(a) + len(b) for a, b in both)
        return 2.0 * sum(matches(a, b) for a, b in both) / total if total else 1.0

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        if table == "annotators":
            return self._people(level)
        rows = self.chosen if table == "items" else np.arange(len(self.item))
        out: dict[str, Any] = {
            "item": self.item[rows], "label": self.labels[self.label[rows]], "start": self.start[rows],
            "end": self.end[rows], "probability": self.probability[rows], "marks": self.marks[rows],
        }  # fmt: skip
        if table == "items":  # an item without spans has a row, as in the answers
            none = np.setdiff1d(np.arange(len(self.items)), out["item"])
            if len(none):
                log = sums(self.item, np.log1p(-np.minimum(self.probability, 1.0 - 1e-12)), len(self.items))
                more = {"item": none, "probability": np.exp(log[none]), "marks": np.zeros(len(none), dtype=np.int64)}
                blank = np.full(len(none), None, dtype=object)
                order = np.argsort(np.concatenate([out["item"], none]), kind="stable")
                out = {name: np.concatenate([column, more.get(name, blank)])[order] for name, column in out.items()}
        return out | {"item": self.items[out["item"]]}

    def regions(self) -> dict[Any, list[dict[str, Any]]]:
        out: dict[Any, list[dict[str, Any]]] = {name: [] for name in self.items.tolist()}
        for c in self.chosen.tolist():
            label, place = str(self.labels[self.label[c]]), [int(self.start[c]), int(self.end[c])]
            out[self.items[self.item[c]]].append({"label": label, "score": float(self.probability[c]), "span": place})
        return out

    def _people(self, level: float) -> dict[str, Any]:
        def share(part: Floats, whole: Floats) -> Floats:
            return np.asarray(np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0))

        detection, noise = share(self.hits, self.chances), share(self.off, self.boundaries)
        wide = gamma_interval(np.nan_to_num(noise), np.maximum(self.boundaries, 0.5), level)
        out = {
            "annotator": self.annotators, "items": self.looked,
            **with_interval("detection", detection, *rate_interval(self.hits, self.chances, level)),
            **count_columns("false_alarms", self.false_marks, self.looked, level),
            **with_interval("boundary_noise", noise, *wide),
        }  # fmt: skip
        if len(self.labels) > 1:
            right = share(self.right_labels, self.hits)
            out |= with_interval("label_accuracy", right, *rate_interval(self.right_labels, self.hits, level))
        return out


def joined(start: Ints, end: Ints, label: Ints, who: Ints, least: float) -> Ints:
    """The group of each span on one item, numbered from 0 by their first span in the order of places.

    >>> joined(*map(np.array, ([0, 1, 8, 0], [5, 5, 9, 5], [0, 0, 0, 0], [0, 1, 1, 2])), least=1 / 3).tolist()
    [0, 0, 1, 0]
    """
    order = np.lexsort((label, end, start))
    reach = np.maximum.accumulate(end[order])
    # Spans before and after a gap have nothing in common: each piece is by itself.
    piece = np.cumsum(np.concatenate([[False], start[order][1:] >= reach[:-1]]))
    out, n = np.empty(len(start), dtype=np.int64), 0
    for rows in np.split(order, np.flatnonzero(np.diff(piece)) + 1) if len(order) else []:
        group = _grouped(start[rows], end[rows], label[rows], who[rows], least)
        out[rows] = n + group
        n += int(group.max()) + 1
    return out


def _grouped(start: Ints, end: Ints, label: Ints, who: Ints, least: float) -> Ints:
    """:func:`joined` of spans that hang together, sorted by place."""
    content, of = np.unique(np.column_stack([start, end, label]), axis=0, return_inverse=True)
    of = of.reshape(-1)
    U = len(content)
    if U > 1000:
        what = f"{U:,} different spans of one item hang together and are compared, each with each"
        check_cost(what, 64.0 * U**2, float(U) ** 3, "Split long texts into parts.")
    if U == 1:
        return np.zeros(len(start), dtype=np.int64)
    people, who = np.unique(who, return_inverse=True)
    by = np.zeros((U, len(people)), dtype=np.int64)
    by[of, who] = 1
    size = by.sum(axis=1).astype(np.float64)
    near = jaccard(content[:, 0], content[:, 1], content[:, 0], content[:, 1])
    same, clash = content[:, None, 2] == content[:, 2], by @ by.T > 0
    # Those with one label first, then the groups of these.
    first, code = np.unique(linked(near, clash | ~same, least, size), return_inverse=True)
    held = np.eye(len(first))[code.reshape(-1)]
    total, n = held.T @ (near * np.outer(size, size)) @ held, held.T @ size
    group = linked(total / np.outer(n, n), held.T @ clash @ held > 0, least, n)
    return np.unique(group, return_inverse=True)[1].reshape(-1)[code.reshape(-1)][of]


class Marks(NamedTuple):
    """Rows with a span, by their candidate; who looked at which item."""

    item: Ints
    who: Ints
    label: Ints
    start: Ints
    end: Ints
    candidate: Ints
    candidate_item: Ints
    look_item: Ints
    looker: Ints

    @classmethod
    def of(cls, answers: Spans, least: float, callback: Callback | None) -> Marks:
        item, M = answers.item, answers.n_annotators
        rows = np.flatnonzero(answers.label >= 0)
        if not len(rows):
            raise InputError("No annotator marked a span: there is nothing to aggregate.")
        at, who, label = item[rows], answers.annotator[rows].astype(np.int64), answers.label[rows].astype(np.int64)
        start, end = answers.start[rows], answers.end[rows]
        candidate, n = np.empty(len(rows), dtype=np.int64), 0
        cuts = np.flatnonzero(np.diff(at)) + 1
        for part in np.split(np.arange(len(rows)), cuts):
            group = joined(start[part], end[part], label[part], who[part], least)
            candidate[part] = n + group
            n += int(group.max()) + 1
            if callback is not None:
                callback(Progress(int(at[part[0]]) + 1, len(answers), np.nan, np.nan))
        of = np.empty(n, dtype=np.int64)
        of[candidate] = at
        look_item, looker = np.divmod(np.unique(item * M + answers.annotator), M)
        return cls(at, who, label, start, end, candidate, of, look_item, looker)

    def middle(self, weight: Floats, without: bool = False) -> tuple[Ints, Ints]:
        """Medians of starts and ends of each candidate, weighted by annotator; ``without``: for each row those of the
        other rows of its candidate (-1 where fewer than two are left)."""
        C, R = len(self.candidate_item), len(self.candidate)
        size = np.bincount(self.candidate, minlength=C)
        order = np.argsort(self.candidate, kind="stable")
        first = np.cumsum(size) - size
        out = np.full((2, R if without else C), -1, dtype=np.int64)
        for r in np.unique(size).tolist():
            candidates = np.flatnonzero(size == r)
            rows = order[first[candidates][:, None] + np.arange(r)]
            w = weight[self.who[rows]]
            for side, (place, sign) in enumerate(((self.start, 1), (self.end, -1))):
                x = sign * place[rows]  # of two medians of ends the later one
                if not without:
                    out[side, candidates] = sign * weighted_medians(x, w)
                elif r > 2:
                    for j in range(r):
                        out[side, rows[:, j]] = sign * weighted_medians(x, np.where(np.arange(r) == j, 0.0, w))
        return out[0], out[1]

    def noise(self, q: Floats, M: int) -> tuple[Floats, Floats, Floats]:
        """b[m], and per annotator the sum of distances to the others' boundaries and how many these are."""
        noise: Floats = np.ones(M)
        for _ in range(4):
            start, end = self.middle(1.0 / noise, without=True)
            known = start >= 0
            w, who = q[self.candidate][known], self.who[known]
            far = np.abs(self.start - start)[known] + np.abs(self.end - end)[known]
            off, count = sums(who, w * far, M), sums(who, 2.0 * w, M)
            mean = max(off.sum() / max(count.sum(), 1e-9), 1e-3)
            noise = (off + 2.0 * STRENGTH * mean) / (count + 2.0 * STRENGTH)
        return noise, off, count

    def counts(self, q: Floats, label: Ints, missed: Floats, M: int) -> dict[str, Floats]:
        """What is expected of each annotator, given how probable candidates are; ``missed`` spans by item."""
        true = sums(self.candidate_item, q, len(missed)) + missed
        sure = q[self.candidate]
        right = sure * (self.label == label[self.candidate])
        return {
            "hits": sums(self.who, sure, M), "chances": sums(self.looker, true[self.look_item], M),
            "false_marks": sums(self.who, 1.0 - sure, M), "right_labels": sums(self.who, right, M),
        }  # fmt: skip


def sums(code: Ints, weight: Floats, size: int) -> Floats:
    """The sum of the weights of each code."""
    return np.asarray(np.bincount(code, weight, size), dtype=np.float64)


@declared
class SpanModel(AnswerModel[Spans, SpanConsensus]):
    """The base of methods for :class:`~crowdwise.Spans`. A subclass gives ``_infer``.

    Parameters
    ----------
    overlap
        The least mean Jaccard overlap of spans that are put together.
    """

    table = Spans
    result = SpanConsensus

    overlap: Annotated[float, Bounds(above=0, maximum=1)] = 1 / 3

    def _fit(self, answers: Spans, callback: Callback | None) -> dict[str, Any]:
        M = answers.n_annotators
        marks = Marks.of(answers, self.overlap, callback)
        fields = self._infer(answers, marks, callback)
        order = np.lexsort((fields["label"], fields["end"], fields["start"], fields["item"]))
        for name in ("item", "label", "start", "end", "probability", "marks"):
            fields[name] = fields[name][order]
        looked = np.bincount(marks.looker, minlength=M)
        return {"labels": answers.labels, "looked": looked} | fields

    @abstractmethod
    def _infer(self, answers: Spans, marks: Marks, callback: Callback | None) -> dict[str, Any]:
        """The candidates and the counts of annotators."""

    def _concluded(self, marks: Marks, q: Floats, label: Ints, missed: Floats, M: int, learned: bool) -> dict[str, Any]:
        """Boundaries of candidates and counts of annotators."""
        noise, off, boundaries = marks.noise(q, M)
        start, end = marks.middle(1.0 / noise if learned else np.ones(M))
        return {
            "item": marks.candidate_item, "label": label, "start": start, "end": end, "probability": q,
            "marks": np.bincount(marks.candidate, minlength=len(q)), "off": off, "boundaries": boundaries,
            **marks.counts(q, label, missed, M),
        }  # fmt: skip


@declared
class SpanDetection(SpanModel):
    """True spans, and the rates at which annotators mark them, mark others, and miss their boundaries.

    Parameters
    ----------
    max_iter, tol
        The most passes, and the change of a probability below which they end.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.spans(60, n_annotators=8, answers_per_item=5, random_state=0)
    >>> cw.SpanDetection().fit(crowd.answers).consensus_
    SpanConsensus(span-detection: 167 spans in 60 items)
    """

    key = "span-detection"

    max_iter: Count = 200
    tol: Positive = 1e-4

    def _infer(self, answers: Spans, marks: Marks, callback: Callback | None) -> dict[str, Any]:
        N, M, L = len(answers), answers.n_annotators, len(answers.labels)
        C, c, who, looker = len(marks.candidate_item), marks.candidate, marks.who, marks.looker
        check_cost(f"{C:,} spans with {L:,} labels", 48.0 * C * (L + 1), 0.0, "Merge rare labels, or read fewer items.")
        empty = np.maximum(places(answers, self.overlap) - np.bincount(marks.candidate_item, minlength=N), 0.0)
        votes = np.zeros((C, L))
        np.add.at(votes, (c, marks.label), 1.0)
        label_share = votes.sum(axis=0) / votes.sum()
        team = np.bincount(marks.look_item, minlength=N)
        q = votes / team[marks.candidate_item, None]
        none = np.zeros(N)
        if team.max() == 1:
            fields = self._concluded(marks, np.full(C, ALONE), marks.label[np.argsort(c)], none, M, learned=False)
            note = "No two annotators looked at the same item, so that they cannot be compared: all spans are kept."
            return fields | {"notes": [note]}
        all_places = empty + np.bincount(marks.candidate_item, minlength=N)
        rounds = Rounds(self.max_iter, C, callback)
        for _ in rounds:
            exists = q.sum(axis=1)
            true = sums(marks.candidate_item, exists, N) + empty * none
            chances, others = (sums(looker, of[marks.look_item], M) for of in (true, all_places - true))
            hits = sums(who, exists[c], M)
            # What is usual before any is known: of true spans that are marked, of empty places, of right labels.
            d = rates(hits, chances, 0.7)
            f = np.minimum(rates(sums(who, 1.0 - exists[c], M), others, 0.05), d)  # or true and false change places
            a = rates(sums(who, q[c, marks.label], M), hits, 0.9)
            pi = (true.sum() + 1.0) / (all_places.sum() + 2.0)
            rho = (q.sum(axis=0) + 1.0 / L) / (q.sum() + 1.0)
            log_1 = sums(marks.look_item, np.log1p(-d)[looker], N)
            log_0 = sums(marks.look_item, np.log1p(-f)[looker], N)
            wrong = np.log((1.0 - a) / max(L - 1, 1))
            s_1 = np.zeros((C, L + 1))
            base = sums(c, (np.log(d) - np.log1p(-d) + (wrong if L > 1 else 0.0))[who], C)
            s_1[:, 1:] = (log_1[marks.candidate_item] + base)[:, None] + np.log(pi * rho)
            if L > 1:
                np.add.at(s_1, (c, marks.label + 1), (np.log(a) - wrong)[who])
            alone = sums(c, (np.log(f) - np.log1p(-f))[who] + np.log(label_share)[marks.label], C)
            s_1[:, 0] = np.log(1.0 - pi) + log_0[marks.candidate_item] + alone
            s_1 = np.exp(s_1 - s_1.max(axis=1, keepdims=True))
            new = s_1[:, 1:] / s_1.sum(axis=1, keepdims=True)
            none = 1.0 / (1.0 + np.exp(np.clip(np.log((1.0 - pi) / pi) + log_0 - log_1, -500.0, 500.0)))
            change, q = float(np.abs(new - q).max()), new
            rounds.reached(moved=change, converged=change < self.tol)
        label = q.round(12).argmax(axis=1)
        fields = self._concluded(marks, q.sum(axis=1), label, empty * none, M, learned=True)
        fields["right_labels"] = sums(who, q[c, marks.label], M)
        return fields | rounds.outcome


def rates(right: Floats, total: Floats, usual: float) -> Floats:
    """Shares of counts, shrunk towards that of all, which is shrunk towards ``usual``."""
    mean = (right.sum() + STRENGTH * usual) / (total.sum() + STRENGTH)
    return np.asarray(np.clip((right + STRENGTH * mean) / (total + STRENGTH), 1e-4, 0.99))


def places(answers: Spans, overlap: float) -> Floats:
    """K[n]: how many different places of spans an item has. Without a text its length is the stretch from the first to
    the last mark, or the mean of these over items where that is longer."""
    marked, N = np.flatnonzero(answers.label >= 0), len(answers)
    item, start, end = (of[marked] for of in (answers.item, answers.start, answers.end))
    first, last = np.full(N, np.inf), np.full(N, -np.inf)
    np.minimum.at(first, item, start)
    np.maximum.at(last, item, end)
    stretch = np.where(last > first, last - first, 0.0)
    length = np.maximum(stretch, stretch[last > first].mean())
    if answers.length is not None:
        length = np.where(answers.length >= 0, answers.length, length)
    sample = evenly(np.lexsort((np.bincount(item, start + end)[item], end, start)), COMPARED)
    a, b, size = start[sample], end[sample], (end - start)[sample].astype(np.float64)
    fits = np.minimum(size[:, None], size) >= overlap * np.maximum(size[:, None], size)
    wide = float(((size[:, None] + size) * fits).mean()) * (1.0 - overlap) / (1.0 + overlap)
    middle = float(length.mean())
    return np.asarray(length / middle / by_chance(jaccard(a, b, a, b), item[sample], overlap, min(1.0, wide / middle)))


@declared
class SpanMajority(SpanModel):
    """Overlapping spans that more than half of the annotators of an item marked; medians as boundaries.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.spans(60, n_annotators=8, answers_per_item=5, random_state=0)
    >>> cw.SpanMajority().fit(crowd.answers).consensus_
    SpanConsensus(span-majority: 117 spans in 60 items)
    """

    key = "span-majority"

    def _infer(self, answers: Spans, marks: Marks, callback: Callback | None) -> dict[str, Any]:
        C, N = len(marks.candidate_item), len(answers)
        votes = np.zeros((C, len(answers.labels)))
        np.add.at(votes, (marks.candidate, marks.label), 1.0)
        share = votes.sum(axis=1) / np.bincount(marks.look_item, minlength=N)[marks.candidate_item]
        label, chosen = votes.argmax(axis=1), (share > 0.5).astype(np.float64)
        fields = self._concluded(marks, chosen, label, np.zeros(N), answers.n_annotators, learned=False)
        return fields | {"probability": share}


@declared
class CharacterMajority(SpanModel):
    """Characters (or tokens) that more than half of the annotators of an item gave the same label; neighbours are one
    span. Spans of one label cannot overlap in the result.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.spans(60, n_annotators=8, answers_per_item=5, random_state=0)
    >>> cw.CharacterMajority().fit(crowd.answers).consensus_
    SpanConsensus(character-majority: 111 spans in 60 items)
    """

    key = "character-majority"

    def _infer(self, answers: Spans, marks: Marks, callback: Callback | None) -> dict[str, Any]:
        N, M = len(answers), answers.n_annotators
        team = np.bincount(marks.look_item, minlength=N)
        rows: list[tuple[int, int, int, int, float]] = []
        for n, k in np.unique(np.column_stack([marks.item, marks.label]), axis=0).tolist():
            at = np.flatnonzero((marks.item == n) & (marks.label == k))
            rows += [(n, k, *run) for run in majority_runs(marks.start[at], marks.end[at], marks.who[at], team[n])]
        item, label, start, end = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(4))
        candidate = np.full(len(marks.item), -1, dtype=np.int64)
        for n, m in np.unique(np.column_stack([marks.item, marks.who]), axis=0).tolist():
            mine, there = np.flatnonzero((marks.item == n) & (marks.who == m)), np.flatnonzero(item == n)
            like = jaccard(marks.start[mine], marks.end[mine], start[there], end[there])
            i, j = pairs(like, self.overlap)
            candidate[mine[i]] = there[j]
        # Marks that belong to no run are false: a last candidate, of no item, holds them.
        C = len(item)
        held = marks._replace(candidate=np.where(candidate < 0, C, candidate), candidate_item=np.append(item, 0))
        sure = np.append(np.ones(C), 0.0)
        near = candidate >= 0
        far = np.abs(marks.start - np.append(start, 0)[candidate]) + np.abs(marks.end - np.append(end, 0)[candidate])
        return {
            "item": item, "label": label, "start": start, "end": end,
            "probability": np.array([row[4] for row in rows]), "marks": np.bincount(candidate[near], minlength=C),
            "off": sums(marks.who[near], far[near].astype(np.float64), M),
            "boundaries": 2.0 * np.bincount(marks.who[near], minlength=M),
            **held.counts(sure, np.append(label, -1), np.zeros(N), M),
        }  # fmt: skip


def majority_runs(start: Ints, end: Ints, who: Ints, team: int) -> list[tuple[int, int, float]]:
    """Start, end and mean share of marks of the runs that more than half of ``team`` annotators cover.

    >>> majority_runs(np.array([0, 2, 2]), np.array([4, 6, 3]), np.array([0, 1, 1]), 2)
    [(2, 4, 1.0)]
    """
    cuts = np.unique(np.concatenate([start, end]))
    people, code = np.unique(who, return_inverse=True)
    held = np.zeros((len(people), len(cuts)), dtype=bool)
    for m, a, b in zip(code.tolist(), np.searchsorted(cuts, start), np.searchsorted(cuts, end), strict=True):
        held[m, a:b] = True
    count = held.sum(axis=0)
    over = np.concatenate([[False], 2 * count > team])
    step = np.flatnonzero(np.diff(over.astype(np.int64)))
    return [
        (int(cuts[a]), int(cuts[b]), float(np.average(count[a:b] / team, weights=np.diff(cuts[a : b + 1]))))
        for a, b in step.reshape(-1, 2).tolist()
    ]
