"""Whether labels made from agreement of pairs can be used, or all annotators must count alike.

Skills from pairs need common items, and annotators without favourite labels. Two annotators who answer the same class
to everything agree perfectly, so a method built on agreement takes them for perfect: where votes are few and unequal,
a single pair like that decides all labels. The labels themselves show it. With confusion matrices integrated out, the
probability of votes and labels together is

    p(votes, z) = p(z) prod over m, k of  B(c[m, k] + a_k) / B(a_k)

====================  ==========================  ======================================================================
symbol                code                        meaning
====================  ==========================  ======================================================================
z                     ``label``                   one label per item
c[m, k, l]            ``count``                   votes of m for l on items with z = k
a_k                   1, and 2 for l = k          pseudo-votes: a little better than chance
p(z)                  N_k! (K - 1)! / (N+K-1)!    shares of classes integrated out, N_k items of class k
====================  ==========================  ======================================================================

Labels under which this is lower than under the majority vote are not used. Constant answers explain nothing, so
favourite labels do not raise it, and few votes hardly count, so a thin graph does not either.
"""

from __future__ import annotations

import numpy as np

from crowdwise.core.model import Model, declared
from crowdwise.core.numerics import Floats, Ints, clamp
from crowdwise.core.vote_sums import tally
from crowdwise.data.votes import Votes

MARGIN = 3.0
"""How much higher the majority's log-probability must be (a factor of 20)."""
NOTE = (
    "Agreement of pairs did not give usable skills: the votes are less probable under its labels than under the "
    "majority vote. Too few common items, or favourite labels, are the usual reasons. All annotators count alike."
)


@declared
class FallsBack(Model):
    """A method with skills from pairs, which may prove unusable.

    Parameters
    ----------
    fall_back
        Count all annotators alike, with a note, where the votes are less probable under the labels found than under
        the majority vote. ``False``: the method of the paper, whatever it gives.
    """

    fall_back: bool = True

    def _unusable(self, votes: Votes, gold: Ints | None, posterior: Floats) -> bool:
        return self.fall_back and worse_than_majority(votes, gold, posterior)


def label_evidence(votes: Votes, label: Ints) -> float:
    """log p(votes, z), see the module. Memory grows with the votes, not with annotators x classes²."""
    from scipy.special import gammaln

    K = votes.n_classes
    row = votes.annotator.astype(np.int64) * K + label[votes.item]
    diagonal = votes.label == label[votes.item]

    def sums(key: Ints) -> tuple[Ints, Floats]:
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        return first, np.bincount(place, weights=votes.weights, minlength=len(first)).astype(np.float64)

    first, count = sums(row * K + votes.label)
    a = 1.0 + diagonal[first]
    cells = float((gammaln(count + a) - gammaln(a)).sum())
    _, total = sums(row)
    rows = float((gammaln(total + K + 1.0) - gammaln(K + 1.0)).sum())
    items = np.bincount(label, minlength=K)
    return cells - rows + float(gammaln(items + 1.0).sum() - gammaln(len(label) + K) + gammaln(K))


def worse_than_majority(votes: Votes, gold: Ints | None, posterior: Floats) -> bool:
    """Whether the votes are less probable under these labels than under the majority vote."""
    total = clamp(tally(votes, np.ones(votes.n_annotators)), gold)
    most = total >= total.max(axis=1, keepdims=True) * (1.0 - 1e-9)
    label, plain = posterior.argmax(axis=1), np.where(most, posterior, -1.0).argmax(axis=1)  # ties: as the method says
    if (label == plain).all():
        return False
    return label_evidence(votes, label) < label_evidence(votes, plain) - MARGIN


def equal_skill(n: Floats, c: Floats, low: float, high: float) -> float:
    """The skill that all have in common: the root of the mean agreement above chance, by common items."""
    mean = float(np.average(c, weights=n)) if n.sum() > 0 else 0.0
    return float(np.clip(np.sqrt(max(mean, 0.0)), low, high))
