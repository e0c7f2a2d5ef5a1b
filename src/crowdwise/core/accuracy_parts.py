"""The accuracy of annotators from votes in parts: what :func:`crowdwise.core.leave_one_out.accuracies` gives in memory.

It takes about as many passes over the votes as a fit, and one more.
"""

from __future__ import annotations

import numpy as np

from crowdwise.core.dependence import Dependence, correct, votes_per_item
from crowdwise.core.em import Params, Stats
from crowdwise.core.fitted_parts import FittedParts
from crowdwise.core.leave_one_out import MAX_CELLS, OVERTURNED, PASSES, moved_classes, renamed_share, scored
from crowdwise.core.numerics import Floats, clamp, share_with_interval
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.vote_parts import Posterior, VotePart, VoteParts, shown_dependence
from crowdwise.core.vote_sums import per_annotator, single_annotator_items


def accuracies_in_parts(fitted: FittedParts) -> tuple[Floats, Floats, Floats] | None:
    """Each annotator's accuracy and the ends of its 95 % interval; ``None`` where matrices would be too large."""
    parts, names = fitted.parts, fitted.parts.names
    M, K = names.n_annotators, names.n_classes
    if M * K * K > MAX_CELLS:
        return None
    shown = fitted.dependence
    if shown.source in ("none", "shares"):
        shown = shown_dependence(parts, fitted.independent)
    params = _refined(parts, fitted.independent)
    sums = parts.total(lambda part: _sums(part, params, shown), np.zeros((4, M)))
    right, unsure, taught, single = sums
    mean = (right + 0.5) / (taught + 1.0)
    return share_with_interval(right + mean * single, taught + single, unsure + mean * (1.0 - mean) * single, 0.95)


def _refined(parts: VoteParts, independent: Posterior) -> Params:
    """The parameters of :func:`crowdwise.core.leave_one_out.LeaveOneOut.of`, after passes of EM over all parts."""

    def first(part: VotePart) -> Floats:
        return clamp(independent(part), part.gold)

    start = stats = parts.statistics(first)
    K, pseudo = parts.names.n_classes, np.empty(0)
    for i in range(PASSES):
        pseudo = np.asarray(learned_prior(stats.table())) if i % 5 == 0 else pseudo
        params = scored(stats, pseudo)
        stats = parts.expect(params)
    moved = parts.total(lambda part: moved_classes(first(part), part.posterior(params)), np.zeros((K, K)))
    final: Stats = start if renamed_share(moved) > OVERTURNED else stats
    return scored(final, np.asarray(learned_prior(final.table())))


def _sums(part: VotePart, params: Params, dependence: Dependence) -> Floats:
    """4 x M: the expected right votes, their variance and their weight, without the only votes on items; the weight of
    these."""
    votes = part.votes
    q = clamp(correct(part.posterior(params), votes_per_item(votes), dependence), part.gold)
    single = single_annotator_items(votes)
    if part.gold is not None:
        single &= part.gold < 0
    alone, p = single[votes.item], q[votes.item, votes.label]
    p = np.where(alone, 0.0, p)
    return np.stack([per_annotator(votes, x) for x in (p, p * (1.0 - p), ~alone, alone)])
