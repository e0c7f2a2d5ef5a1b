"""Confusion matrices from moments: what the agreement of annotators says about each of them.

Annotators who answer independently, given the truth, leave traces in what pairs and triples of them say:

    P(m says l, m' says l')                = sum_k pi_k theta[m, k, l] theta[m', k, l']                      pairs
    P(m says l, m' says l', m'' says l'')  = sum_k pi_k theta[m, k, l] theta[m', k, l'] theta[m'', k, l'']   triples

and these equations can be solved for theta. The solution is consistent: it nears the truth as votes come in, for
any crowd that is better than chance, where EM started at the votes may end in a local optimum. It is also noisy, so
by default it is only where EM (the loop of ``dawid-skene``) begins; ``refine=False`` keeps it as it is. This file
holds what such methods share; ``triples`` has the one that uses triples, ``pairs`` and ``factors``
those that use pairs.

============  =============  ===========  =======================================================================
symbol        code           shape        equation
============  =============  ===========  =======================================================================
A[m, l, k]    ``table``      M x K x K    theta[m, k, l], with the label first as in counts
c[m, l, k]    ``counts``     M x K x K    sum over m's votes for l of the share of k among the item's votes
d[k]          ``d``          K            the class prior pi
============  =============  ===========  =======================================================================

What moments leave open, the names of the latent classes, is settled by the votes and the known truths: a solution is
matched to the counts c, in which an item with known truth counts for that. Annotators without the pairs or triples that
a method needs (for pairs also those with fewer than two votes per class) get the matrix of their counts. Nothing
depends on the order of rows or on names: where annotators have to be taken in some order, it is that of ``ranking``,
by what they did.

When they fail: with few common items the moments are noise, and the error grows quickly with K; with a rare class, or
a crowd that cannot tell two classes apart, the matrices to be inverted are nearly singular; annotators who copy one
another break the equations.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from crowdwise.core import em, priors, starts
from crowdwise.core.checks import check_flag
from crowdwise.core.constraints import CountFromZero
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.loop import Callback
from crowdwise.core.model import EMModel, Outcome, check_memory
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.core.parameters import declared, leading
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, full

LONGEST = 1e13
"""Steps of arithmetic from which a fit is refused: hours, at 10^9 a second."""

LEAST = 2.0
"""Votes per class from which an annotator takes part in the pairs.

On simulated crowds it makes no difference who does; the pairs of many annotators with few votes only cost time.
"""

FLOOR = 1e-6
"""The least probability of a solution: a cell that a noisy moment puts at or under zero may still be possible."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A[m, l, k] and d[k], and how they were come by."""

    table: Floats
    d: Floats
    solved: Ints
    """Which annotators' matrices come from moments; the others' come from the votes."""
    trace: Floats = field(default_factory=lambda: np.empty(0))
    iterations: int = 0
    converged: bool = True


# -------------------------------------------------------------------- what the solutions share


def vote_counts(votes: Votes, gold: Ints | None) -> Floats:
    """c[m, l, k] against the vote shares, or against what the known truths make of them."""
    return em.statistics(Part.of(votes), starts.gold_weighted(votes, gold)).table()


def vote_table(counts: Floats) -> Floats:
    """The counts as probabilities, with one vote per class that falls like those of the crowd."""
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
    said = counts.sum(axis=2)
    d = normalise(counts.sum(axis=(0, 1)) + FLOOR, axis=0)
    for _ in range(passes):
        ratio = said / np.maximum(table @ d, FLOOR)
        new = normalise(d * np.einsum("ml,mlk->k", ratio, table), axis=0)
        done = np.abs(new - d).max() < 1e-12
        d = new
        if done:
            break
    return d


def enough(votes: Votes, least: float | None = None) -> Ints:
    """Who has votes enough to take part: by default ``LEAST`` for each class."""
    total = np.bincount(votes.annotator, weights=votes.weights, minlength=votes.n_annotators)
    return np.asarray(total >= (LEAST * votes.n_classes if least is None else least))


def anybody_meets(votes: Votes, gold: Ints | None) -> bool:
    """Whether some item has votes of two annotators, or a vote and a known truth.

    If not, any confusion matrices explain the votes equally well, and EM would drift.
    """
    size = np.diff(votes.indptr)
    if gold is not None and (size[gold >= 0] > 0).any():
        return True
    first = votes.annotator[votes.indptr[:-1][size > 0]]
    return bool((votes.annotator != np.repeat(first, size[size > 0])).any())


def as_params(table: Floats, d: Floats) -> Params:
    """A solution the way the expectation step takes it."""
    return Params(safe_log(table).reshape(-1, len(d)), safe_log(d)[None])


def vote_solution(counts: Floats) -> Solution:
    """What the votes suggest, where the moments say nothing."""
    table = vote_table(counts)
    return Solution(table, marginal_prior(counts, table), np.zeros(len(counts), dtype=bool))


def likeliest(part: Part, solutions: list[Solution]) -> Solution:
    """The solution that makes the votes most probable; the first of equals."""
    if len(solutions) == 1:
        return solutions[0]
    height = [em.expect(part, as_params(s.table, s.d))[0].log_likelihood for s in solutions]
    return solutions[int(np.argmax(np.round(height, 6)))]


def ranking(votes: Votes) -> Ints:
    """Annotators by number of votes, then by what they did: an order that names, codes and rows have no part in.

    Ties are broken by agreement with the vote shares and by who was met, three steps round the graph of items and
    annotators, rounded so that the order of a sum does not show. Those still equal are interchangeable, or nearly.
    """
    N, M = len(votes), votes.n_annotators
    share, weight = votes.shares()[votes.item, votes.label], votes.weights

    def by_annotator(x: Floats) -> Floats:
        return np.asarray(np.bincount(votes.annotator, weights=x * weight, minlength=M), dtype=np.float64)

    keys = [by_annotator(np.ones(votes.n_votes)), by_annotator(share), by_annotator(share**2)]
    mark = keys[1] / max(keys[1].max(), 1e-300)
    for _ in range(3):
        met = np.bincount(votes.item, weights=(1.0 + mark[votes.annotator]) * share * weight, minlength=N)
        mark = by_annotator(met[votes.item] * (1.0 + share))
        mark = mark / max(mark.max(), 1e-300)
        keys.append(mark)
    rounded = [np.round(key / max(key.max(), 1e-300), 11) for key in keys]
    return np.asarray(np.lexsort(rounded[::-1])[::-1])


# -------------------------------------------------------------------- what is too much


def memory() -> float:
    """Bytes of the machine, endless where it does not tell."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def check_cost(what: str, need: float, steps: float, advice: str) -> None:
    """Refuse what the machine cannot hold (``need`` bytes) or would be at for hours (``steps``), with advice."""
    if need > memory():
        raise InputError(
            f"{what}: that takes {need / 2**30:,.0f} GB, and the machine has {memory() / 2**30:,.0f}. {advice}"
        )
    if steps > LONGEST:
        raise InputError(f"{what}: that takes {steps:.0e} steps, hours of computing. {advice}")


# -------------------------------------------------------------------- the class


@declared
class MomentModel(EMModel):
    """What the methods of moments share: a solution, and EM from there. A subclass gives ``_solutions``.

    Parameters
    ----------
    refine
        Go on by EM from the solution (default), or keep it as it is.
    prior, class_prior, max_iter, tol, accelerate
        Of the EM, as in :class:`~crowdwise.DawidSkene`. A class prior that is given also replaces the one solved for.
    ties, random_state
        Equally probable classes: the one with the higher ``"prior"``, then the first; or ``"random"``, seeded.
    """

    refine: bool = leading(default=True)
    prior: Any = 0.01
    class_prior: Any = "learned"
    start: Any = field(default="votes", init=False)
    restarts: CountFromZero = field(default=0, init=False)
    solution_: Solution = field(init=False)
    """Where EM began."""

    @abstractmethod
    def _solutions(self, votes: Votes, gold: Ints | None) -> list[Solution]:
        """One or more solutions of the moment equations."""

    def initial_confusion(self, votes: Votes, gold: Ints | None = None) -> Floats:
        """theta[m, k, l] of the solution, before any EM, for another model to start from."""
        found = likeliest(Part.of(votes, gold), self._solutions(votes, gold))
        return np.ascontiguousarray(found.table.transpose(0, 2, 1))

    def _family(self, part: Part, start: Stats, votes: Votes, gold: Ints | None) -> ConfusionFamily:
        pseudo = priors.pseudo_counts(self.prior, None, votes, gold)
        return ConfusionFamily(full, pseudo, priors.class_prior_counts(self.class_prior, votes))

    def _params(self, solution: Solution, votes: Votes) -> Params:
        fixed = priors.class_prior_counts(self.class_prior, votes)
        return as_params(solution.table, solution.d if fixed is None else fixed)

    def _solve(self, part: Part, votes: Votes, gold: Ints | None) -> Params:
        """The solution that makes the votes most probable, as parameters."""
        self.solution_ = likeliest(part, self._solutions(votes, gold))
        return self._params(self.solution_, votes)

    def _start(self, part: Part, votes: Votes, gold: Ints | None) -> Stats:
        """An expectation step under the solution; where nobody was solved for, the start of ``dawid-skene``."""
        params = self._solve(part, votes, gold)
        return em.expect(part, params)[0] if self.solution_.solved.any() else super()._start(part, votes, gold)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        if self.refine and anybody_meets(votes, gold):
            return super()._fit(votes, gold, item_prior, callback)
        check_memory(votes)
        priors.pseudo_counts(self.prior, None, votes, gold)  # a wrong one is refused, used or not
        part = Part.of(votes, gold, item_prior)
        self.params_ = self._solve(part, votes, gold)
        found = self.solution_
        self.stats_, q = em.expect(part, self.params_, posterior=True)
        return Outcome(
            posterior=q,
            prior=np.exp(self.params_.log_prior[0]),
            confusion=self._confusion(self.params_, votes.n_classes),
            log_likelihood=self.stats_.log_likelihood,
            trace=found.trace,
            iterations=found.iterations,
            converged=found.converged,
        )

    def _check_together(self) -> None:
        super()._check_together()
        check_flag(self, "refine", "True (EM from the solution) or False")
