"""Comparisons and rankings: a score for each item, by which is better.

============  =======================================================================================================
finding       condition
============  =======================================================================================================
``reversed``  the interval of the slope is under 0 (of the reliability, of the agreement: under one half)
``guessing``  it contains 0 (one half), with ``ENOUGH`` answers or more
``ring``      the annotator is one of a ring, which counts as one (:mod:`crowdwise.core.collusion`)
``position``  the annotator leans to one side (:func:`crowdwise.answers.comparisons_base.leaning`)
``open``      more than one item may have the first place
``apart``     items without any comparison between them
============  =======================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from crowdwise import metrics  # its names are imported when they are used
from crowdwise.answer_types.base import DOUBT, GUESSING, AnswerRules, Figures, Frame, estimates, line, where
from crowdwise.core.collusion import paired_votes
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.comparisons import TIE, Comparisons
from crowdwise.data.rankings import Rankings
from crowdwise.data.truth import encode_numbers
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options
from crowdwise.trust import agreement_coefficients as coefficients
from crowdwise.trust.agreement_coefficients import Patterns, check_unweighted, ratio
from crowdwise.trust.flags import Finding, FindingWords, Verdict
from crowdwise.trust.wording import begun, named, percent

ENOUGH = 20
MOST_RANKINGS = 2000
"""Rankings that are compared with each other; a sample where there are more."""


class ComparisonRules(AnswerRules):
    """Comparisons, matched within questions; across them where no two share one."""

    answer = "score"
    unit = "pairs of items"
    kinds: ClassVar = {
        "reversed": FindingWords(
            "Annotators who reverse the order", "Drop their answers, or ask whether they read the question.",
            Verdict.DROP,
        ),
        "guessing": GUESSING,
        "ring": FindingWords(
            "Annotators who agree with each other and not with the rest",
            "They count as one. Ask whether they worked together, or prefer other things than the rest (mixture-bt).",
            Verdict.LOOK,
        ),
        "position": FindingWords(
            "The order of two decides", "Show every pair in both orders; judge-bt, the default, allows for it.",
            Verdict.LOOK,
        ),
        "open": FindingWords("The first place is open", "Collect more answers on these."),
        "apart": FindingWords("Scores that cannot be compared", "Collect answers that link them."),
    }  # fmt: skip

    def agreement(self, answers: Any, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """Percentage and alpha over pairs of items compared twice or more; classes are one item, a tie, the other."""
        check_unweighted(answers)
        c: Comparisons = answers
        pair = c.asked
        label = np.where(c.outcome == TIE, 1, 2 * (c.outcome ^ (c.left > c.right)))
        if c.question is not None and len(np.unique(pair)) == len(pair):
            pair = pair % np.int64(c.n_items) ** 2  # no two share a question
        order = np.argsort(pair, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.unique(pair, return_counts=True)[1])])
        patterns = Patterns.of(indptr, label[order], 3)
        return estimates(patterns, {
            "percent": coefficients.percent(patterns, np.eye(3)),
            "krippendorff alpha": coefficients.alpha(patterns, 1.0 - np.eye(3), mirrored=True),
        }, options)  # fmt: skip

    def truth(self, answers: Any) -> Any:
        """Nothing: the answers know true outcomes, and measures need true scores."""
        return None

    def measures(self, answers: Any, result: Any, truth: Any) -> Figures:
        return {"kendall": metrics.kendall(result.scores, encode_numbers(truth, result.items))}

    def findings(self, frames: Mapping[str, Frame]) -> Iterator[Finding]:
        people, items = frames["annotators"], frames["items"]
        names, n = people["annotator"], people["comparisons"]
        rate = next(name for name in ("slope", "reliability", "agreement") if name in people)
        low, middle, high = people[f"{rate}_low"], people[rate], people[f"{rate}_high"]
        none, share = 0.0 if rate == "slope" else 0.5, people["agreement"]
        ring = people.get("ring", np.zeros(len(n), np.int64))
        against = where((high < none) & (ring == 0), -middle)
        figures = [f"with the order in {percent(share[m])} of {n[m]:,.0f} answers" for m in against]
        yield from line("reversed", "Answers the other way round", "annotator", names[against], figures)
        blind = where((low <= none) & (high >= none) & (n >= ENOUGH) & (ring == 0), n)
        figures = [f"{percent(share[m])} of {n[m]:,.0f} answers" for m in blind]
        yield from line("guessing", "May be guessing", "annotator", names[blind], figures)
        for number in range(1, int(ring.max(initial=0)) + 1):
            members = where(ring == number, n)
            figures = [f"{n[m]:,.0f} answers" for m in members]
            yield from line("ring", "Agree with each other and not with the rest, and count as one", "annotator",
                            names[members], figures)  # fmt: skip
        if "leans" in people:
            first = people["first_rate"]
            for side, more in (("first", first > 0.5), ("second", first < 0.5)):
                lean = where(people["leans"] & more, np.abs(first - 0.5))
                figures = [percent(first[m] if side == "first" else 1.0 - first[m]) for m in lean]
                yield from line("position", f"Prefers the {side} of two", "annotator", names[lean], figures)
        order = np.argsort(items["rank"], kind="stable")
        best = order[items["rank_low"][order] <= 1]
        if len(best) > 1:
            figures = [f"score {items['score'][i]:.2f}" for i in best]
            yield from line("open", "May be the best", "item", items["item"][best], figures)
        parts = len(np.unique(items["component"])) if "component" in items else 1
        if parts > 1:
            yield Finding("apart", line=f"The items fall into {parts:,} groups without a comparison between them.")

    def headline(self, result: Any) -> str:
        order = np.argsort(-result.scores, kind="stable")
        first, *others = (result.items[n] for n in order[:2])
        name = named("item", first)
        if not others:
            return begun(f"{name} is the only item.")
        sure = min(result.better(first, others[0]), 1.0 - 1e-9)
        how = "leads" if sure >= DOUBT else "is ahead, but not surely"
        return begun(f"{name} {how}: better than {named('item', others[0])} with a probability of {percent(sure)}.")

    def picture(self, result: Any, tables: list[dict[str, Any]]) -> dict[str, Any]:
        board = next(table for table in tables if table["key"] == "leaderboard")
        at = {column["name"]: place for place, column in enumerate(board["columns"])}
        rows = [
            {"name": named("item", row[at["item"]]["v"]), "rank": row[at["rank"]], "score": row[at["score"]]}
            for row in board["rows"][:8]
        ]
        return {
            "kind": "board", "title": "How far apart the scores are", "rows": rows,
            "unit": "score in log-odds, with its 95% CI", "words": "Two that overlap much may be equal.",
        }  # fmt: skip


class RankingRules(ComparisonRules):
    """Rankings: over pairs of items in the rankings of two annotators."""

    unit = "rankings"
    headings: ClassVar = {"comparisons": "rankings"}
    truth = AnswerRules.truth

    def agreement(self, answers: Rankings, options: Options, scale: Any = None, values: Any = None) -> Figures:
        """The share of pairs of items that two rankings order alike, and Kendall's tau, over pairs of rankings."""
        check_unweighted(answers)
        if len(answers.annotator) > MOST_RANKINGS:
            rng = np.random.default_rng(options.get("random_state", 0))
            answers = answers.select(rng.permutation(len(answers.annotator)) < MOST_RANKINGS)
        tau, common = _rank_correlations(answers, answers.question)
        if not common.any():
            tau, common = _rank_correlations(answers, np.zeros_like(answers.question))
        both = (common > 0).astype(np.float64)
        if not both.any():
            raise InputError("No two annotators ranked the same two items: there is nothing to agree on.")

        def mean(w: Floats) -> float:
            weight = w @ both @ w
            return float(w @ tau @ w / weight) if weight > 0 else 0.0

        kendall = Bootstrap(**options).of_weights(mean, len(tau))
        value, low, high = ((1.0 + x) / 2.0 for x in (kendall.value, kendall.low, kendall.high))
        return {"percent": Estimate(value, low, high, kendall.n, kendall.level), "kendall tau": kendall}


def _rank_correlations(rankings: Rankings, question: Ints) -> tuple[Floats, Floats]:
    """R x R: Kendall's tau of every two rankings of a question by two annotators, and the pairs of items they share."""
    from scipy.sparse import csr_matrix

    R, N = len(rankings.annotator), rankings.n_items
    first, second = paired_votes(rankings.indptr, np.arange(R))
    of = np.repeat(np.arange(R), np.diff(rankings.indptr))[first]
    a, b = rankings.item[first].astype(np.int64), rankings.item[second]
    key = (question[of] * N + np.minimum(a, b)) * N + np.maximum(a, b)
    pair = np.unique(key, return_inverse=True)[1]
    order = csr_matrix((np.where(a < b, 1.0, -1.0), (of, pair)), shape=(R, pair.max(initial=0) + 1))
    common = (abs(order) @ abs(order).T).toarray()
    common[rankings.annotator[:, None] == rankings.annotator[None]] = 0.0
    return np.nan_to_num(ratio((order @ order.T).toarray(), common)), common
