"""What kind of crowd gave the votes, by what can be seen in them.

===========  ====================================================================================================
kind         seen from
===========  ====================================================================================================
``rules``    a seventh of the votes are by annotators of one label who leave items out, more than chance explains; where
             others vote as well, these labels are not all the same, and agree with the others beyond label shares
``panel``    ten items or more have nearly as many votes each as there are annotators, eight or more: judges, a test
``options``  most labels occur on one item alone: they are answers to that item's question, not classes
``people``   any other
===========  ====================================================================================================

Everything is a sum over items, so that votes in parts give the same answer. Where panels begin was drawn with the truth
of real crowds in view (docs/benchmarks/default.md); a crowd of rules is far on its side of the line.

Annotators who abstain are rules, regular expressions, models with a reject option. A rule says one class or nothing,
so its choice of items is its answer. People who answer few items may use one label as well: what annotators would give
who draw their votes from all votes is taken off. A rule for all that is left, which speaks on nearly every item, does
not count on either side; nor do models that answer nearly every item beside rules, if these are more. Where people vote
as well, bots that always give the same answer look like rules; but where these speak, others agree with them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from crowdwise.core.em import Params, Stats
from crowdwise.core.numerics import Floats, Ints, safe_log
from crowdwise.data.votes import Votes

CrowdKind = Literal["people", "rules", "panel"]
Mask = npt.NDArray[np.bool_]

LEAST_VOTES = 3
"""The fewest votes from which the only label of an annotator counts as their habit."""
MOST_COVERAGE = 0.9
"""The share of items above which nothing is left to abstain from: always the same label is a constant annotator."""
RULES, OTHER_LABELS = 0.15, 0.1
"""The share of votes by one-sided annotators, beyond those expected by chance, from which a crowd is one of rules; and
the share of these that must be for other labels than the most frequent, unless hardly any other annotator votes."""
FILLED = 0.8
"""Votes on an item of a panel, as a share of its annotators."""
ANNOTATORS, ITEMS = 8, 10
"""The fewest of a panel."""
EVEN_RULES = 10.0
"""By how many times the votes of an average rule the agreement with a rule is shrunk towards that with all."""
OWN_LABELS = 0.5
"""The share of labels given to items, each counted once an item, that occur on no other item."""


def crowd_sums(votes: Votes) -> Floats:
    """M * K + 2 sums over items: votes (weight) by annotator and label, items with votes, and all items."""
    use = np.bincount(votes.cells(), weights=votes.weights, minlength=votes.n_annotators * votes.n_classes)
    return np.append(use, [(np.diff(votes.indptr) > 0).sum(), len(votes)])


def crowd_kind(votes: Votes, fewest: int = ANNOTATORS) -> CrowdKind:
    """The kind of a crowd; ``fewest``: the annotators of a panel."""
    return kind_of(crowd_sums(votes), votes.n_classes, partial(agreeing_votes, votes), fewest)


def agreeing_votes(votes: Votes, members: Mask) -> Floats:
    """2 x K sums over items of votes of members beside others: the share of the others that agree, and the votes."""
    n, own = np.bincount(votes.item, votes.weights, minlength=len(votes))[votes.item], votes.weights
    at = members[votes.annotator] & (n > own)
    right = (n[at] * votes.shares()[votes.item[at], votes.label[at]] - own[at]) / (n - own)[at]
    return np.stack([np.bincount(votes.label[at], own[at] * x, votes.n_classes) for x in (right, np.ones(len(right)))])


def kind_of(sums: Floats, n_classes: int, agreeing: Callable[[Mask], Floats], fewest: int = ANNOTATORS) -> CrowdKind:
    """The kind of a crowd, from :func:`crowd_sums` and (asked for where it decides) :func:`agreeing_votes`."""
    use, (items, every) = sums[:-2].reshape(-1, n_classes), sums[-2:]
    total, common = use.sum(axis=1), use.sum(axis=0) / max(use.sum(), 1.0)
    rules, alike = one_label(use, every)[0], use.max(axis=1) >= total
    models = ~alike & (total > MOST_COVERAGE * every)
    counted = rules | (~alike & ~models) if rules.sum() > models.sum() else rules | ~alike
    by_chance = total @ (common ** total[:, None]).sum(axis=1)  # few votes, mostly for the common class, agree anyway
    by_label, all_votes = use[rules].sum(axis=0), total[counted].sum()
    if by_label.sum() - by_chance >= RULES * all_votes > 0.0:
        if by_label.sum() >= MOST_COVERAGE * all_votes:  # no others to speak of
            return "rules"
        right, beside = agreeing(rules) if by_label.max() <= (1.0 - OTHER_LABELS) * by_label.sum() else np.zeros(2)
        if (right - common * beside).sum() > 0.0:
            return "rules"
    active = int((total > 0.0).sum())
    full = active >= fewest and items >= ITEMS and total.sum() >= FILLED * items * active
    return "panel" if full else "people"


def own_options(votes: Votes) -> Ints | int | None:
    """The number of options of each item, where they are given; of an item where most labels belong to one item each,
    as answers in free text do: the different labels of the item that has most of them. ``None`` where labels are
    classes of all items."""
    K = votes.n_classes
    if votes.n_options is not None:
        return votes.n_options
    if K < OWN_LABELS * (np.diff(votes.indptr) > 0).sum():  # more items than labels of their own
        return None
    item, label = np.divmod(np.unique(votes.item.astype(np.int64) * K + votes.label), max(K, 1))
    once = np.bincount(label, minlength=K)[label] == 1
    if len(votes) < ITEMS or not len(label) or once.mean() < OWN_LABELS:
        return None
    return max(2, int(np.bincount(item).max()))


def one_sided(votes: Votes) -> Mask:
    """M: annotators with three votes or more, all of one label, on at most nine tenths of the items.

    >>> one_sided(Votes.from_dense([[1, 0, 1], [1, 1, 1], [-1, 0, 1], [1, -1, 1]], missing=-1)).tolist()
    [True, False, False]
    """
    return one_label(crowd_sums(votes)[:-2].reshape(votes.n_annotators, -1), len(votes))[0]


def one_label(use: Floats, n_items: float) -> tuple[Mask, Mask]:
    """As :func:`one_sided`, from the votes of each annotator by label (M x K) and the number of items; and who has the
    same label for more of the items, as a rule for all that is left has."""
    count = use.sum(axis=1)
    alike = (count >= LEAST_VOTES) & (use.max(axis=1) >= count) & (use.shape[1] > 1)
    nearly_all = count > MOST_COVERAGE * n_items
    return alike & ~nearly_all, alike & nearly_all


def rates(stats: Stats) -> Params:
    """r[m, l, k], how often annotators say a label on items of a class, silence included, of classes equally common."""
    own = stats.counts.sum(axis=1, keepdims=True) / max(stats.mass.sum(), 1.0)
    K = len(stats.mass)
    return Params(safe_log((stats.counts + own) / (stats.mass + 1.0)), np.full((1, K), -np.log(K)))


def agreement(votes: Votes) -> Floats:
    """2 x M sums over items: how far the other votes on an item, half a vote added for every class, are for the label
    of an annotator, and over what weight of votes that have others beside them."""
    n, K = np.bincount(votes.item, votes.weights, minlength=len(votes))[votes.item], votes.n_classes
    others = n - votes.weights
    right = n * votes.shares()[votes.item, votes.label] - votes.weights
    use = np.where(others > 0.0, votes.weights, 0.0)
    sums = (use * (right + 0.5) / (others + 0.5 * K), use)
    return np.stack([np.bincount(votes.annotator, each, minlength=votes.n_annotators) for each in sums])


def weighed(agreed: Floats, n_votes: float, n_classes: int) -> Params:
    """Votes of rules count by the share of :func:`agreement`, which is shrunk towards that of all rules:

        log s[m, l, k] = w[m] [l = k],     w[m] = log 3 (A[m] + h a) / (B[m] + h) / a,     a = sum A / sum B,

    h ``EVEN_RULES`` times the votes of an average rule. A single vote has the odds of smoothed shares, 3 to 1. Classes
    are equally common, so that where all votes agree the label is theirs.
    """
    right, total = agreed
    share = right.sum() / total.sum() if total.sum() else 1.0
    many = EVEN_RULES * n_votes / max(len(right), 1)
    weight = np.log(3.0) * (right + many * share) / (share * np.maximum(total + many, 1e-9))
    score = (weight[:, None, None] * np.eye(n_classes)).reshape(-1, n_classes)
    return Params(score, np.full((1, n_classes), -np.log(n_classes)))


def rules_in(votes: Votes) -> Mask:
    """M: the one-sided annotators of a crowd of rules; none in a crowd of people."""
    return one_sided(votes) & (crowd_kind(votes) == "rules")
