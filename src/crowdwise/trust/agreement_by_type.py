"""Which coefficients of agreement each answer type has, and what they count.

=============  ====================================  ============================================================
answer type    coefficients                          unit of the interval, and how answers become comparable
=============  ====================================  ============================================================
votes          percent, Fleiss, Gwet, Krippendorff,  items; Cohen's kappa of two annotators, its mean over all
               Cohen or Light; intraclass            pairs (Light) where they are few
ratings        Krippendorff (interval), intraclass   items
comparisons    percent, Krippendorff                 pairs of items; which of two was shown first does not matter
rankings       percent, Kendall                      rankings; over pairs of items in the rankings of two annotators
similarities   as votes                              pairs of items
label sets     percent, Jaccard, Krippendorff        items; sets differ by MASI (Passonneau 2006)
tags           percent, Fleiss, Krippendorff of      sequences; spans of two annotators count as found and true
               tokens; F1 of spans                   (Hripcsak and Rothschild 2005)
=============  ====================================  ============================================================

Comparisons and rankings are matched within questions; across them where no two answers share one.

When it fails: as in :mod:`crowdwise.trust.agreement_coefficients`. Two sets that overlap agree in part by chance, which
the Jaccard index alone does not take off, nor does F1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.collusion import paired_votes
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.comparisons import TIE, Comparisons
from crowdwise.data.label_sets import LabelSets
from crowdwise.data.rankings import Rankings
from crowdwise.data.ratings import Ratings
from crowdwise.data.similarities import Similarities
from crowdwise.data.tags import Tags
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.metrics.bootstrap import Bootstrap, Estimate, Options
from crowdwise.trust import agreement_coefficients as coefficients
from crowdwise.trust.agreement_coefficients import (
    Patterns,
    Scale,
    Weights,
    check_unweighted,
    icc,
    interval_alpha,
    ratio,
)
from crowdwise.trust.agreement_pairs import cohen_kappa, light_kappa

MOST_LIGHT, MOST_VOTE_PAIRS = 5_000, 200_000
"""Pairs of annotators x classes², and pairs of votes, up to which Light's kappa is among the coefficients."""
MOST_SETS = 2000
"""The most different label sets that are compared with each other."""
MOST_RANKINGS = 2000
"""Rankings that are compared with each other; a sample where there are more."""

Found = dict[str, Estimate]


def of_votes(votes: Votes, scale: Scale, values: Any, options: Options) -> Found:
    """Nominal: percentage, Fleiss, AC1, alpha, Cohen or Light. Ordinal: the same with quadratic weights (AC2).

    Interval and ratio: percentage, alpha and the one-way intraclass correlation of one vote.
    """
    out = {"percent": coefficients.percent_agreement(votes, **options)}
    if scale == "nominal":
        out["fleiss kappa"] = coefficients.fleiss_kappa(votes, **options)
        out["gwet ac1"] = coefficients.gwet_ac1(votes, **options)
    elif scale == "ordinal":
        out["fleiss kappa"] = coefficients.fleiss_kappa(votes, weights="quadratic", **options)
        out["gwet ac2"] = coefficients.gwet_ac2(votes, **options)
    out["krippendorff alpha"] = coefficients.krippendorff_alpha(votes, scale=scale, values=values, **options)
    if scale in ("interval", "ratio"):
        out["icc"] = icc(votes, values=values, **options)
        return out
    size, M = np.diff(votes.indptr), votes.n_annotators
    cells = M * (M - 1) // 2 * votes.n_classes**2
    weights: Weights = "quadratic" if scale == "ordinal" else None
    if M == 2:
        out["cohen kappa"] = cohen_kappa(votes, weights=weights, **options)
    elif cells <= MOST_LIGHT and (size * (size - 1) // 2).sum() <= MOST_VOTE_PAIRS:
        out["light kappa"] = light_kappa(votes, weights=weights, **options)
    return out


def of_ratings(ratings: Ratings, options: Options) -> Found:
    """Interval alpha and the three intraclass correlations of one rating."""
    check_unweighted(ratings)
    if not (np.diff(ratings.indptr) > 1).any():
        raise InputError("No item has two ratings: there is nothing to agree on. Collect several for some items.")
    return {
        "krippendorff alpha": interval_alpha(ratings, **options),
        "icc": icc(ratings, **options),
        "icc agreement": icc(ratings, form="agreement", **options),
        "icc consistency": icc(ratings, form="consistency", **options),
    }


def of_comparisons(comparisons: Comparisons, options: Options) -> Found:
    """Percentage and alpha over pairs of items compared twice or more; classes are one item, a tie, the other."""
    check_unweighted(comparisons)
    c = comparisons
    pair = np.minimum(c.left, c.right).astype(np.int64) * c.n_items + np.maximum(c.left, c.right)
    label = np.where(c.outcome == TIE, 1, 2 * (c.outcome ^ (c.left > c.right)))
    if c.question is not None:
        asked = c.question * c.n_items**2 + pair
        pair = asked if len(np.unique(asked)) < len(asked) else pair
    order = np.argsort(pair, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.unique(pair, return_counts=True)[1])])
    found = Patterns.of(indptr, label[order], 3)
    return {
        "percent": found.estimate(coefficients.percent(found, np.eye(3)), **options),
        "krippendorff alpha": found.estimate(coefficients.alpha(found, 1.0 - np.eye(3), mirrored=True), **options),
    }


def of_rankings(rankings: Rankings, options: Options) -> Found:
    """The share of pairs of items that two rankings order alike, and Kendall's tau, averaged over pairs of rankings."""
    check_unweighted(rankings)
    if len(rankings.annotator) > MOST_RANKINGS:
        rng = np.random.default_rng(options.get("random_state", 0))
        rankings = rankings.select(rng.permutation(len(rankings.annotator)) < MOST_RANKINGS)
    tau, common = _rank_correlations(rankings, rankings.question)
    if not common.any():
        tau, common = _rank_correlations(rankings, np.zeros_like(rankings.question))
    both = (common > 0).astype(np.float64)
    if not both.any():
        raise InputError("No two annotators ranked the same two items: there is nothing to agree on.")

    def mean(w: Floats) -> float:
        weight = w @ both @ w
        return float(w @ tau @ w / weight) if weight > 0 else 0.0

    kendall = Bootstrap(**options).of_weights(mean, len(tau))
    share = [(1.0 + x) / 2.0 for x in (kendall.value, kendall.low, kendall.high)]
    return {"percent": Estimate(share[0], share[1], share[2], kendall.n, kendall.level), "kendall tau": kendall}


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


def of_label_sets(sets: LabelSets, options: Options) -> Found:
    """The share of equal sets, the mean Jaccard index, and alpha with the MASI distance."""
    check_unweighted(sets)
    chosen = np.zeros((sets.n_answers, sets.n_labels), dtype=bool)
    chosen[sets.answer, sets.chosen] = True
    different, label = np.unique(chosen, axis=0, return_inverse=True)
    if len(different) > MOST_SETS:
        raise InputError(
            f"There are {len(different):,} different sets, too many to compare. Look at some items: [:500]."
        )
    found = Patterns.of(sets.indptr, label, len(different))
    jaccard, masi = set_similarities(different.astype(np.float64))
    return {
        "percent": found.estimate(coefficients.percent(found, np.eye(len(different))), **options),
        "jaccard": found.estimate(coefficients.percent(found, jaccard), **options),
        "krippendorff alpha": found.estimate(coefficients.alpha(found, 1.0 - masi), **options),
    }


def set_similarities(sets: Floats) -> tuple[Floats, Floats]:
    """The Jaccard index of every two sets (1 of two empty ones), and MASI: the same times 1, 2/3, 1/3 or 0.

    The second factor is 1 for equal sets, 2/3 where one holds the other, 1/3 where they overlap, 0 where they do not.
    """
    both, size = sets @ sets.T, sets.sum(axis=1)
    either = size[:, None] + size[None] - both
    jaccard = np.divide(both, either, out=np.ones_like(both), where=either > 0)
    nested = (both == size[:, None]) | (both == size[None])
    kind = np.where(jaccard == 1.0, 1.0, np.where(nested, 2.0 / 3.0, 1.0 / 3.0))
    return jaccard, jaccard * kind


def of_tags(tags: Tags, options: Options) -> Found:
    """Percentage, Fleiss' kappa and alpha of tokens; the F1 of spans, averaged over pairs of annotators."""
    found, w = Patterns.of_votes(tags.votes), np.eye(tags.votes.n_classes)
    made = {
        "percent": coefficients.percent(found, w),
        "fleiss kappa": coefficients.fleiss(found, w),
        "krippendorff alpha": coefficients.alpha(found, 1.0 - w),
    }
    out = {name: found.estimate(made[name], groups=tags.sequence, **options) for name in made}
    if tags.scheme != "plain":
        table = span_pairs(tags)
        once = np.ones(len(table), dtype=np.int64)
        by = Bootstrap(**options)
        out["span f1"] = by.of_sums(table, once, lambda s: ratio(s[:, 0], s[:, 1]), int((table[:, 1] > 0).sum()))
    return out


def span_pairs(tags: Tags) -> Floats:
    """Per sequence, over ordered pairs of its annotators: spans that both found, and the mean number of spans."""
    votes, G = tags.votes, len(tags)
    outside = int(np.argmax(votes.classes == "O"))
    sequence = np.asarray(tags.sequence)
    seen, spans = [], []
    for m in range(votes.n_annotators):
        mine = np.flatnonzero(votes.annotator == m)
        codes = np.full(tags.n_tokens, outside, dtype=np.int64)
        codes[votes.item[mine]] = votes.label[mine]
        seen.append(np.unique(sequence[votes.item[mine]]))
        s = tags.spans(codes)
        spans += list(zip(s.sequence.tolist(), s.start.tolist(), s.end.tolist(), s.type.tolist(), strict=True))
    annotators = np.bincount(np.concatenate(seen), minlength=G).astype(np.float64)
    alike: dict[Any, int] = {}
    for span in spans:
        alike[span] = alike.get(span, 0) + 1
    where = np.array([span[0] for span in alike], dtype=np.int64)
    count = np.array(list(alike.values()), dtype=np.float64)
    both = np.bincount(where, weights=count * (count - 1.0), minlength=G)
    each = np.bincount(where, weights=count, minlength=G) * (annotators - 1.0)
    return np.column_stack([both, each])


def of_similarities(answers: Similarities, options: Options) -> Found:
    """As votes for "same" and "different" on pairs of items."""
    return of_votes(answers.votes, "nominal", None, options)
