"""Confusion matrices from moments: the base of the methods that solve for them from pairs and triples of annotators.

Where annotators answer independently given the truth, the joint distributions of their labels are

    P(m says l, m' says l')                = sum_k pi_k theta[m, k, l] theta[m', k, l']                      pairs
    P(m says l, m' says l', m'' says l'')  = sum_k pi_k theta[m, k, l] theta[m', k, l'] theta[m'', k, l'']   triples

and these equations can be solved for theta. The solution is consistent: it converges to the truth as votes come in, for
any crowd that is better than chance, where EM started at the votes may end in a local optimum. It is also noisy, so by
default it is only the start of EM (that of ``dawid-skene``); ``refine=False`` keeps it as it is.

============  =============  ===========  =======================================================================
symbol        code           shape        equation
============  =============  ===========  =======================================================================
A[m, l, k]    ``table``      M x K x K    theta[m, k, l], with the label first as in counts
c[m, l, k]    ``counts``     M x K x K    sum over m's votes for l of the share of k among the item's votes
d[k]          ``d``          K            the class prior pi
============  =============  ===========  =======================================================================

Moments do not determine which latent class is which: a solution is matched to the counts c, in which an item with a
gold label counts for that. Annotators without the pairs or triples that a method needs (for pairs also those with fewer
than two votes per class) get the matrix of their counts. Nothing depends on the order of rows or on names: where
annotators have to be taken in some order, it is that of ``ranking``, by their votes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from crowdwise.core import em, priors, starts
from crowdwise.core.constraints import Count, CountFromZero, NonNegative, leading
from crowdwise.core.loop import check_memory
from crowdwise.core.model import Callback, EMFit, EMModel, Outcome, Params, Part, Rounds, Stats, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.core.vote_parts import VotePart, VoteParts
from crowdwise.core.vote_sums import confirmed, per_annotator
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, full, majority_counts

MIN_VOTES = 2.0
"""Votes per class from which an annotator takes part in the pairs: those of annotators with fewer only cost time."""

FLOOR = 1e-6
"""The least probability of a solution: a cell that a noisy moment puts at or under zero may still be possible."""

Weighting = Literal["counts", "blocks"]


@dataclass(frozen=True, eq=False)
class MomentSolution:
    """A[m, l, k] and d[k], and how the fit of the moments went."""

    table: Floats
    d: Floats
    solved: Ints
    """Which annotators' matrices come from moments; the others' come from the votes."""
    trace: Floats = field(default_factory=lambda: np.empty(0))
    iterations: int = 0
    converged: bool = True

    def replaced(self, solved: Ints, classes: Ints, columns: Floats, share: Floats, rounds: Rounds) -> MomentSolution:
        """This one with the columns of some classes replaced, for annotators who were solved for, and with their d."""
        K = len(self.d)
        table, d = self.table.copy(), np.full(K, FLOOR)
        table[np.ix_(solved, np.arange(K), classes)] = columns
        d[classes] = np.maximum(share, FLOOR)
        return MomentSolution(table, normalise(d, axis=0), solved, **rounds.outcome)


def vote_counts(votes: Votes, gold: Ints | None) -> Floats:
    """c[m, l, k] against the vote shares, weighted by accuracy on gold items where there are some."""
    return em.statistics(Part.of(votes), starts.gold_weighted(votes, gold)).table()


def vote_table(counts: Floats) -> Floats:
    """The counts as probabilities, with one vote per class distributed like those of the crowd."""
    crowd = normalise(counts.sum(axis=0) + FLOOR, axis=0)
    return normalise(counts + crowd, axis=1)


def proper(table: Floats) -> Floats:
    """Columns (axis -2) made probabilities again: negative cells lifted, sums set to one."""
    return normalise(np.maximum(table, FLOOR), axis=-2)


def match(columns: Floats, counts: Floats) -> tuple[Ints, Ints]:
    """Which solution column is which class: the pairing under which the counts c[l, k] are most probable.

    Where there are fewer columns than classes, they are those of the classes with the greatest mass.
    """
    classes = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[: columns.shape[1]])
    _, places = linear_sum_assignment(counts[:, classes].T @ np.log(np.maximum(columns, FLOOR)), maximize=True)
    return classes, places


def marginal_prior(counts: Floats, table: Floats, passes: int = 200) -> Floats:
    """The d under which what each annotator said overall, n[m, l], is most probable: sum n log (A d), concave in d."""
    by_label = counts.sum(axis=2)
    d, before = normalise(counts.sum(axis=(0, 1)) + FLOOR, axis=0), np.full(counts.shape[2], np.inf)
    for _ in range(passes):
        if np.abs(d - before).max() < 1e-12:
            break
        ratio = by_label / np.maximum(table @ d, FLOOR)
        before, d = d, normalise(d * np.einsum("ml,mlk->k", ratio, table), axis=0)
    return d


def enough(votes: Votes, min_votes: float | None = None) -> Ints:
    """Which annotators have enough votes to take part: by default ``MIN_VOTES`` for each class."""
    return np.asarray(per_annotator(votes) >= (MIN_VOTES * votes.n_classes if min_votes is None else min_votes))


def with_gold(votes: Votes, gold: Ints | None, used: Ints, code: Ints) -> tuple[Ints, Ints, Floats]:
    """Item, cell and weight of the votes of some annotators, with ``code`` of each, and of the gold labels, by item.

    Gold labels are the votes of one more annotator, who is never wrong.
    """
    K, mine = votes.n_classes, used[votes.annotator]
    item, weight = votes.item[mine], votes.weights[mine]
    cell = code[votes.annotator[mine]].astype(np.int64) * K + votes.label[mine]
    if gold is not None:
        known = np.flatnonzero(gold >= 0)
        item, weight = np.append(item, known), np.append(weight, np.ones(len(known)))
        cell = np.append(cell, (int(code.max(initial=-1)) + 1) * K + gold[known])
    order = np.argsort(item, kind="stable")  # within an item votes are in order of annotators, and gold labels last
    return item[order], cell[order], weight[order]


def as_params(table: Floats, d: Floats) -> Params:
    """A solution the way the expectation step takes it."""
    return Params(safe_log(table).reshape(-1, len(d)), safe_log(d)[None])


def vote_solution(counts: Floats) -> MomentSolution:
    """The matrices of the counts, where there are no moments to solve."""
    table = vote_table(counts)
    return MomentSolution(table, marginal_prior(counts, table), np.zeros(len(counts), dtype=bool))


def likeliest(part: Part, solutions: list[MomentSolution]) -> MomentSolution:
    """The solution that makes the votes most probable; the first of equals."""
    if len(solutions) == 1:
        return solutions[0]
    height = [em.expect(part, as_params(s.table, s.d))[0].log_likelihood for s in solutions]
    return solutions[int(np.argmax(np.round(height, 6)))]


def ranking(votes: Votes) -> Ints:
    """Annotators by number of votes, then by their votes: an order that does not depend on names, codes and rows.

    Ties are broken by agreement with the vote shares and by the annotators of the same items, three steps round the
    graph of items and annotators, rounded so that the order of a sum does not show. Those still equal are
    interchangeable, or nearly.
    """
    share, weight = votes.shares()[votes.item, votes.label], votes.weights
    keys = [per_annotator(votes), per_annotator(votes, share), per_annotator(votes, share**2)]
    mark = keys[1] / max(keys[1].max(), 1e-300)
    for _ in range(3):
        met = np.bincount(votes.item, weights=(1.0 + mark[votes.annotator]) * share * weight, minlength=len(votes))
        mark = per_annotator(votes, met[votes.item] * (1.0 + share))
        mark = mark / max(mark.max(), 1e-300)
        keys.append(mark)
    rounded = [np.round(key / max(key.max(), 1e-300), 11) for key in keys]
    return np.asarray(np.lexsort(rounded[::-1])[::-1])


@declared
class MomentModel(EMModel):
    """A solution of moment equations, and EM from there. A subclass gives ``_solutions``.

    Parameters
    ----------
    refine
        Start EM from the solution (default), or keep it as it is.
    prior, class_prior
        Of the EM, as in :class:`DawidSkene`. A class prior that is given also replaces the one solved for.
    """

    single_votes = "certain"

    refine: bool = leading(default=True)
    prior: priors.Prior = 0.01
    class_prior: priors.ClassPrior = "learned"
    start: starts.Start = field(default="votes", init=False)
    restarts: CountFromZero = field(default=0, init=False)
    solution_: MomentSolution = field(init=False)
    """The start of EM."""

    @abstractmethod
    def _solutions(self, votes: Votes, gold: Ints | None) -> list[MomentSolution]:
        """One or more solutions of the moment equations."""

    def initial_confusion(self, votes: Votes, gold: Ints | None = None) -> Floats:
        """theta[m, k, l] of the solution, before any EM, for another model to start from."""
        solution = likeliest(Part.of(votes, gold), self._solutions(votes, gold))
        return np.ascontiguousarray(solution.table.transpose(0, 2, 1))

    def _family_of(self, parts: VoteParts) -> ConfusionFamily:
        pseudo = priors.pseudo_counts(self.prior, None, parts.names, counts=partial(majority_counts, parts))
        return ConfusionFamily(full, pseudo, priors.class_prior_counts(self.class_prior, parts.names))

    def _solve(self, part: VotePart) -> Params:
        """The solution that makes the votes most probable, as parameters."""
        self.solution_ = solution = likeliest(part.part, self._solutions(part.votes, part.gold))
        fixed = priors.class_prior_counts(self.class_prior, part.votes)
        return as_params(solution.table, solution.d if fixed is None else fixed)

    def _start(self, parts: VoteParts) -> Stats:
        """An expectation step under the solution; where no matrix was solved for, the start of ``dawid-skene``."""
        params = self._solve(parts.only)
        return parts.only.expect(params) if self.solution_.solved.any() else super()._start(parts)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        if self.refine and confirmed(votes, gold).any():  # else any matrices explain the votes, and EM would drift
            return super()._fit(votes, gold, item_prior, callback)
        check_memory(votes)
        part = VotePart(votes, gold, item_prior=item_prior)
        params, solution = self._solve(part), self.solution_
        return self._outcome(part, EMFit(params, solution.trace, solution.iterations, solution.converged))


@declared
class SweptMomentModel(MomentModel):
    """A solution that is fitted by sweeps, from the matrices of the counts and shrunk towards them.

    Without ``refine`` the objective and its trace are those of the sweeps.

    Parameters
    ----------
    max_sweeps, sweep_tol
        Stop the fit of the moments after so many sweeps, or when one gains less than ``sweep_tol`` per unit (a pair of
        votes for ``cnmf``, a pair of annotators for ``symnmf``, the sum of squares of the moments for ``tensor``).
        Without ``refine``, a warning about iterations is about these.
    """

    max_sweeps: Count = 500
    sweep_tol: NonNegative = 1e-6


@declared
class WeightedMomentModel(SweptMomentModel):
    """Sweeps over moments that may be weighted.

    Parameters
    ----------
    weighting
        ``"counts"``: a moment weighs as many items as its annotators have in common, the inverse of its variance up to
        a constant; ``"blocks"``: every moment weighs the same, as in the paper.
    prior_strength
        How strongly matrices are shrunk towards those of the counts, in units of the weighting (``cnmf``: pairs of
        votes for each class): annotators who share few items with others stay near those. 0: the paper's method.
    """

    weighting: Weighting = "counts"
    prior_strength: NonNegative = 10.0
