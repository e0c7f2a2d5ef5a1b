"""May a model replace the annotators? The alternative annotator test: is it as close to the others as each of them is?

One person h is left out at a time. On every item, the answers of h and of the candidate are each compared with those
of the other people there, and the closer one wins; in a tie both do. The candidate may be worse by ``epsilon``, because
it is cheaper.

=================  ===============  ===================================================================================
symbol             code             meaning
=================  ===============  ===================================================================================
S(x, i, h)         ``total``        the mean similarity of answer x to those of all people on item i but h
W_f, W_h           ``wins``         1[S(f) >= S(h)] and 1[S(h) >= S(f)]: the candidate's and the person's
rho_h              ``advantage``    mean over items of W_f: the candidate is at least as good as h
d_h                ``difference``   mean over items of W_h - W_f; H0: d_h >= epsilon, by a one-sided t-test
omega              ``winning_rate`` the share of people for which H0 is rejected (Benjamini-Yekutieli at ``level``)
=================  ===============  ===================================================================================

The candidate passes where omega is at least one half. Similarities: 1[equal] of classes, minus the squared difference
of ratings (which orders answers as minus the root mean square does), Jaccard's index of label sets.

When it fails: people who are all wrong in the same way are a bad standard. Annotators with fewer than ``min_items``
items are not tested. With two people on an item the test asks who is closer to one person.

N. Calderon, R. Reichart and R. Dror, The alternative annotator test for LLM-as-a-judge, ACL (2025).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import Count, Fraction, Share, checked
from crowdwise.core.intervals import rate_interval, with_interval
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.label_sets import LabelSets
from crowdwise.data.ratings import Ratings
from crowdwise.data.table import ByItem
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, listing
from crowdwise.metrics.bootstrap import Bootstrap, Estimate
from crowdwise.trust.agreement_coefficients import check_unweighted
from crowdwise.trust.result_tables import Tables

Similarity = Callable[[Any, Any], float]
MIN_ITEMS = 30
"""Fewer items than this are too few for a t-test."""
PASSES = 0.5
"""The winning rate from which on a candidate passes."""
TIE = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class AlternativeTest(Tables):
    """Candidates against each annotator; see :func:`alternative_test`."""

    TABLES = ("candidates", "annotators")
    candidates: npt.NDArray[Any]
    annotators: npt.NDArray[Any]
    """The people."""
    items: Ints
    """C x M: items that both answered, beside a third annotator."""
    wins: Floats
    """C x M: on how many of these the candidate is at least as close to the others."""
    difference: Floats
    """C x M: how much more often the annotator wins."""
    deviation: Floats
    """C x M: the standard deviation of that difference over items."""
    advantage: tuple[Estimate, ...]
    """Per candidate: the mean advantage over the annotators tested, with a bootstrap interval over items."""
    epsilon: float
    level: float
    min_items: int
    kind: str = "polars"

    @property
    def tested(self) -> npt.NDArray[np.bool_]:
        """C x M: which annotators have enough items."""
        return self.items >= self.min_items

    @cached_property
    def p_value(self) -> Floats:
        """C x M: of H0, the annotator is better by at least epsilon; NaN where not tested."""
        return self._p_values(self.epsilon)

    @cached_property
    def beaten(self) -> npt.NDArray[np.bool_]:
        """C x M: whether H0 is rejected."""
        return rejected(self.p_value, self.level)

    @property
    def winning_rate(self) -> Floats:
        """The share of the tested annotators that each candidate beats; NaN where none is tested."""
        return _winning_rate(self.beaten, self.tested)

    @property
    def passes(self) -> npt.NDArray[np.bool_]:
        """Whether each candidate may replace the annotators."""
        return self.winning_rate >= PASSES

    @cached_property
    def least_epsilon(self) -> Floats:
        """The smallest epsilon with which each candidate passes, to .001; NaN where it does with none."""
        low, high = np.zeros(len(self.candidates)), np.ones(len(self.candidates))
        if_all = self._passes(high)
        for _ in range(10):  # p-values fall as epsilon grows: passing is monotone
            middle = (low + high) / 2.0
            passes = self._passes(middle)
            low, high = np.where(passes, low, middle), np.where(passes, middle, high)
        return np.where(if_all, np.where(self._passes(np.zeros(len(low))), 0.0, np.ceil(high * 1000) / 1000), np.nan)

    def _passes(self, epsilon: Floats) -> npt.NDArray[np.bool_]:
        return _winning_rate(rejected(self._p_values(epsilon[:, None]), self.level), self.tested) >= PASSES

    def __repr__(self) -> str:
        return f"AlternativeTest({'; '.join(self.sentences())})"

    def sentences(self) -> list[str]:
        """The verdict on each candidate, in a sentence."""
        out = []
        for c, name in enumerate(self.candidates.tolist()):
            n, rate = int(self.tested[c].sum()), self.winning_rate[c]
            if n == 0:
                out.append(f"{name}: no annotator has {self.min_items} items in common with it and others")
                continue
            least = self.least_epsilon[c]
            hint = f"passes from epsilon {least:.3f} on" if np.isfinite(least) else "passes with no epsilon"
            found = self.advantage[c]
            out.append(
                f"{name} {'passes' if self.passes[c] else 'fails'}: beats {int(self.beaten[c].sum())} of {n} "
                f"annotators (winning rate {rate:.2f}, epsilon {self.epsilon:g}; {hint}); as good as one of them on "
                f"{found.value:.0%} of items ({found.interval('{:.0%}'.format)})"
            )
        return out

    def _p_values(self, epsilon: float | Floats) -> Floats:
        from scipy.special import stdtr

        with np.errstate(divide="ignore", invalid="ignore"):
            error = self.deviation / np.sqrt(self.items)
            gap = self.difference - epsilon
            t = np.where(error > 0.0, gap / error, np.where(gap < 0.0, -np.inf, np.inf))
            return np.where(self.tested, stdtr(np.maximum(self.items - 1.0, 1.0), t), np.nan)

    def _columns(self, table: str) -> dict[str, Any]:
        if table == "candidates":
            parts = {
                end: np.array([getattr(found, end) for found in self.advantage]) for end in ("value", "low", "high")
            }
            return {
                "candidate": self.candidates, "passes": self.passes, "winning_rate": self.winning_rate,
                "advantage": parts["value"], "advantage_low": parts["low"], "advantage_high": parts["high"],
                "least_epsilon": self.least_epsilon, "tested": self.tested.sum(axis=1),
            }  # fmt: skip
        C, M = self.items.shape
        total = np.maximum(self.items, 1).astype(np.float64)
        low, high = rate_interval(self.wins, self.items.astype(np.float64))
        columns = {
            "candidate": np.repeat(self.candidates, M), "annotator": np.tile(self.annotators, C),
            "items": self.items.ravel(),
            **{k: v.ravel() for k, v in with_interval("advantage", self.wins / total, low, high).items()},
            "difference": self.difference.ravel(), "p_value": self.p_value.ravel(), "beaten": self.beaten.ravel(),
        }  # fmt: skip
        keep = columns["items"] > 0
        return {name: values[keep] for name, values in columns.items()}


@checked
def alternative_test(
    answers: Any, candidates: Any, epsilon: Share = 0.1, *, similarity: Similarity | None = None,
    people: Any = None, level: Fraction = 0.05, min_items: Count = MIN_ITEMS,
) -> AlternativeTest:  # fmt: skip
    """Whether models may replace the annotators: each is compared with each annotator, by closeness to the others.

    Parameters
    ----------
    answers
        Votes, ratings or label sets of people and candidates on the same items; with ``similarity`` any answers on
        single items.
    candidates
        Names of annotators, or patterns such as ``"llm:*"``.
    epsilon
        By how much a candidate may be worse, because it costs less: .2 beside experts, .15 beside trained annotators,
        .1 beside crowd workers are usual.
    similarity
        How alike two answers are, larger is closer: a function of two answers. By default that of the answer type.
    people
        The annotators to compare with, as ``candidates``; by default all others.
    level
        The false discovery rate over the annotators.
    min_items
        Annotators with fewer items are not tested.

    Examples
    --------
    >>> import numpy as np
    >>> import crowdwise as cw
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(0, 2, (200, 1))
    >>> labels = np.where(rng.random((200, 5)) < [0.8, 0.8, 0.8, 0.9, 0.5], truth, 1 - truth)
    >>> votes = cw.Votes.from_dense(labels, annotators=["ann", "bob", "cem", "good", "coin"])
    >>> cw.alternative_test(votes, ["good", "coin"]).passes.tolist()
    [True, False]
    """
    check_unweighted(answers)
    if not isinstance(answers, ByItem):
        raise InputError(f"The alternative test needs answers on single items, and found {type(answers).__name__}.")
    some = _chosen(answers, candidates, "candidates")
    others = ~some if people is None else _chosen(answers, people, "people") & ~some
    C, M = np.flatnonzero(some), np.flatnonzero(others)
    if len(M) < 2:
        raise InputError(f"The alternative test needs two people beside the candidates, and found {len(M)}.")
    row, col, item, won, lost = _duels(answers, C, M, _similar(answers, similarity))
    shape = (len(C), len(M))

    def summed(x: Any) -> Floats:
        return np.bincount(row * len(M) + col, x, shape[0] * shape[1]).reshape(shape).astype(np.float64)

    items = summed(np.ones(len(row))).astype(np.int64)
    if not items.any():
        raise InputError("No item has answers of a candidate and of two people.")
    n, d = np.maximum(items, 1), lost.astype(np.float64) - won
    difference = summed(d) / n
    variance = (summed(d**2) - n * difference**2) / np.maximum(n - 1, 1)
    tested = items >= min_items
    advantage = tuple(_mean_advantage(item[row == c], col[row == c], won[row == c], tested[c]) for c in range(len(C)))
    return AlternativeTest(
        answers.annotators[C], answers.annotators[M], items, summed(won), difference,
        np.sqrt(np.maximum(variance, 0.0)), advantage, float(epsilon), float(level), min_items, answers.kind,
    )  # fmt: skip


def rejected(p: Floats, level: float) -> npt.NDArray[np.bool_]:
    """Which hypotheses of each row are rejected with a false discovery rate of ``level`` (Benjamini-Yekutieli)."""
    from scipy.stats import false_discovery_control

    out = np.zeros(p.shape, dtype=bool)
    for row, given in zip(out, p, strict=True):
        known = np.isfinite(given)
        if known.any():
            row[known] = false_discovery_control(given[known], method="by") <= level
    return out


def _winning_rate(beaten: npt.NDArray[np.bool_], tested: npt.NDArray[np.bool_]) -> Floats:
    n = tested.sum(axis=1)
    return np.where(n > 0, (beaten & tested).sum(axis=1) / np.maximum(n, 1), np.nan)


def _chosen(answers: ByItem, names: Any, what: str) -> npt.NDArray[np.bool_]:
    """M: the annotators that are named, or that a pattern fits."""
    asked = [names] if isinstance(names, str) or not isinstance(names, Sequence) else list(names)
    every = answers.annotators.tolist()
    out = np.zeros(len(every), dtype=bool)
    for name in asked:
        fits = np.array([who == name or fnmatchcase(str(who), str(name)) for who in every])
        if not fits.any():
            raise InputError(f"{what}: {name!r} is not an annotator: they are {listing(every)}.")
        out |= fits
    if not asked:
        raise InputError(f"{what}: expected the name of an annotator, or a pattern such as 'llm:*'.")
    return out


def _similar(answers: ByItem, similarity: Similarity | None) -> Callable[[Ints, Ints], Floats]:
    """A function from rows a and rows b to their len(a) x len(b) similarities."""
    if similarity is not None:
        frame = answers.to_frame("dict")
        own = [column.name for column in answers.columns if column.needed and column.name not in ("item", "annotator")]
        given = list(frame[own[0]])
        return lambda a, b: np.array([[float(similarity(given[i], given[j])) for j in b] for i in a])
    if isinstance(answers, Votes):
        label = answers.label
        return lambda a, b: (label[a][:, None] == label[b]).astype(np.float64)
    if isinstance(answers, Ratings):
        number = answers.value
        return lambda a, b: -((number[a][:, None] - number[b]) ** 2)
    if isinstance(answers, LabelSets):
        chosen = np.zeros((answers.n_answers, answers.n_labels), dtype=bool)
        chosen[np.repeat(np.arange(answers.n_answers), np.diff(answers.set_indptr)), answers.chosen] = True

        def jaccard(a: Ints, b: Ints) -> Floats:
            x, y = chosen[a].astype(np.float64), chosen[b].astype(np.float64)
            both = x @ y.T
            union = x.sum(axis=1)[:, None] + y.sum(axis=1) - both
            return np.where(union > 0.0, both / np.maximum(union, 1.0), 1.0)

        return jaccard
    raise InputError(f"similarity: {type(answers).__name__} have none of their own. Give a function of two answers.")


def _duels(
    answers: ByItem, C: Ints, M: Ints, similar: Callable[[Ints, Ints], Floats]
) -> tuple[Ints, Ints, Ints, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Candidate, person and item of every comparison; whether the candidate wins, and whether the person does."""
    place = np.full(len(answers.annotators), -1)
    place[C], place[M] = np.arange(len(C)), np.arange(len(M))
    is_candidate, is_person = np.zeros(len(place), dtype=bool), np.zeros(len(place), dtype=bool)
    is_candidate[C], is_person[M] = True, True
    parts: list[tuple[Any, ...]] = []
    for n in range(len(answers)):
        rows = np.arange(answers.indptr[n], answers.indptr[n + 1])
        who = answers.annotator[rows]
        if len(who) > 1 and (np.diff(who) == 0).any():
            m = who[np.flatnonzero(np.diff(who) == 0)[:1]]
            twice, where = listing(answers.annotators[m]), listing(answers.items[n : n + 1])
            raise InputError(f"{twice} answered {where} more than once: keep one answer of each.")
        f, h = rows[is_candidate[who]], rows[is_person[who]]
        if len(f) == 0 or len(h) < 2:
            continue
        own, given = similar(h, h), similar(f, h)
        person = own.sum(axis=1) - np.diag(own)
        candidate = given.sum(axis=1, keepdims=True) - given  # F x H: without each person in turn
        slack = TIE * (1.0 + np.abs(person))
        shape = (len(f), len(h))
        parts.append((
            np.broadcast_to(place[answers.annotator[f]][:, None], shape).ravel(),
            np.broadcast_to(place[answers.annotator[h]], shape).ravel(), np.full(shape[0] * shape[1], n),
            (candidate >= person - slack).ravel(), (person >= candidate - slack).ravel(),
        ))  # fmt: skip
    if not parts:
        raise InputError("No item has answers of a candidate and of two people.")
    row, col, item, won, lost = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return row, col, item, won, lost


def _mean_advantage(item: Ints, col: Ints, won: npt.NDArray[np.bool_], tested: npt.NDArray[np.bool_]) -> Estimate:
    """The mean over annotators of the candidate's advantage; items are drawn again for the interval."""
    import scipy.sparse as sp

    place = np.cumsum(tested) - 1
    keep = tested[col]
    H = int(tested.sum())
    if H == 0:
        return Estimate(np.nan, np.nan, np.nan, 0)
    items, at = np.unique(item[keep], return_inverse=True)
    who = place[col[keep]]
    values = np.concatenate([won[keep].astype(np.float64), np.ones(len(who))])
    table = sp.csr_array((values, (np.tile(at, 2), np.concatenate([who, H + who]))), shape=(len(items), 2 * H))

    def statistic(sums: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.nanmean(sums[:, :H] / sums[:, H:], axis=1))

    return Bootstrap().of_sums(table, np.ones(len(items), dtype=np.int64), statistic, len(items))
