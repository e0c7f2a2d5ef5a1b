"""Ordinal votes by binary thresholds: K - 1 questions "is it above grade j?", made consistent.

Each vote for grade l answers all K - 1 questions at once: yes to those with j < l. A question has two classes, and is
answered by Raykar's model without features: annotator m says yes rightly with the sensitivity a[m, j], no rightly with
the specificity b[m, j], by EM with pseudo-counts. The probabilities above[n, j] = P(grade of n > j) should fall with j.
Where they do not, as each question is answered for itself, the nearest falling sequence is taken (least squares, pooled
adjacent violators), and P(grade = k) = above[k - 1] - above[k].

=============  =============  =========  =======================================================================
symbol         code           shape      equation
=============  =============  =========  =======================================================================
above[n, j]    ``above``      N x (K-1)  posterior of question j, by :func:`crowdwise.core.em.expect`
q[n, k]        posterior      N x K      falling(above)[k - 1] - falling(above)[k], with above[-1] = 1, above[K-1] = 0
=============  =============  =========  =======================================================================

The trace is the sum over questions of their objectives, each of which never falls.

When it fails: a grade that is rarely used leaves a question with few answers on one side; answers to neighbouring
questions come from the same votes, so the posterior is rather too sure; nothing is learned from one question for the
next (``ordinal-dawid-skene`` shares two numbers over all).

V. C. Raykar et al., Learning from crowds, JMLR 11 (2010), section 4.2; E. Frank and M. Hall, A simple approach to
ordinal classification, ECML (2001).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from crowdwise.answers.ordinal_dawid_skene import Order, ranks
from crowdwise.core import em
from crowdwise.core.constraints import Count, NonNegative, declared
from crowdwise.core.em import Params, Part
from crowdwise.core.intervals import rate_interval, with_interval
from crowdwise.core.loop import Callback
from crowdwise.core.model import Model, Outcome
from crowdwise.core.numerics import Floats, Ints, clamp, normalise
from crowdwise.core.starts import gold_weighted
from crowdwise.core.unseen import scores_with_unseen
from crowdwise.data.votes import Votes
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, full


def falling(above: Floats) -> Floats:
    """The nearest rows that do not rise: for place j the least over i <= j of the largest mean of places i to j' >= j.
    (The minimax form of pooling adjacent violators, for all rows at once; J is small.)"""
    N, J = above.shape
    total = np.concatenate([np.zeros((N, 1)), np.cumsum(above, axis=1)], axis=1)
    out = np.empty_like(above)
    for j in range(J):
        best = np.full(N, np.inf)
        for i in range(j + 1):
            means = (total[:, j + 1 :] - total[:, i : i + 1]) / (np.arange(j + 1, J + 1) - i)
            best = np.minimum(best, means.max(axis=1))
        out[:, j] = best
    return out


def grades_of(above: Floats) -> Floats:
    """N x K probabilities of grades from N x (K - 1) probabilities of being above each."""
    N = len(above)
    edges = np.concatenate([np.ones((N, 1)), falling(above), np.zeros((N, 1))], axis=1)
    q = np.maximum(-np.diff(edges, axis=1), 0.0)
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def question(votes: Votes, rank: Ints, j: int, gold: Ints | None) -> tuple[Votes, Ints | None]:
    """The votes as answers to "is it above grade j?", and the known answers."""
    answers = replace(votes, label=(rank[votes.label] > j).astype(np.int32), classes=np.array([0, 1]), truth=None)
    if gold is None:
        return answers, None
    return answers, np.where(gold >= 0, rank[gold] > j, -1).astype(np.int32)


@declared
class OrdinalRaykar(Model):
    """K - 1 questions "is it above grade j?", answered by sensitivity and specificity, made consistent.

    Parameters
    ----------
    order
        The classes, the lowest grade first; by default numbers by value, text as the votes list it.
    prior
        Pseudo-counts: votes per annotator, question and true answer that agree with the crowd's rates.
    max_iter, tol
        For each question: stop after so many passes over the votes, or when a pass gains less than ``tol`` per vote.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ordinal(400, votes_per_item=5)
    >>> round(cw.aggregate(crowd.votes, "ordinal-raykar").score(crowd.truth), 2)
    0.7
    """

    key = "ordinal-raykar"
    answer_type: ClassVar[str] = "ordinal"
    table: ClassVar[type] = Votes

    order: Order = None
    prior: NonNegative = 2.0
    max_iter: Count = 500
    tol: NonNegative = 1e-7

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        self.rank_ = ranks(votes.classes, self.order, self.key)
        self.params_: list[Params] = []
        self.counts_: list[Floats] = []
        above, traces, passes, converged = np.empty((N, K - 1)), [], 0, True
        right, total = np.zeros((2, M)), np.zeros((2, M))
        evidence = 0.0
        for j in range(K - 1):
            answers, known = question(votes, self.rank_, j, gold)
            part = Part.of(answers, known)
            start = em.statistics(part, gold_weighted(answers, known))
            pooled = normalise(start.table().sum(axis=0) + 0.5, axis=0)
            family = ConfusionFamily(full, (self.prior * pooled)[None], None)
            run = em.run_em(part, family, start, max_iter=self.max_iter, tol=self.tol, callback=callback, restart=j)
            stats, q = em.expect(part, run.params, posterior=True)
            above[:, j] = clamp(q, known)[:, 1]
            self.params_.append(run.params)
            self.counts_.append(stats.counts)
            traces.append(run.trace)
            passes, converged = passes + run.iterations, converged and run.converged
            evidence += stats.log_likelihood
            right += np.diagonal(stats.table(), axis1=1, axis2=2).T
            total += stats.table().sum(axis=1).T
        q = self._grades(above)
        if gold is not None:
            q = clamp(q, gold)
        longest = max(map(len, traces))
        trace = np.sum([np.pad(t, (0, longest - len(t)), mode="edge") for t in traces], axis=0)
        columns: dict[str, Any] = {}
        for row, name in ((1, "sensitivity"), (0, "specificity")):
            rate = (right[row] + 0.5) / (total[row] + 1.0)
            columns |= with_interval(name, rate, *rate_interval(right[row], total[row]))
        return Outcome(
            posterior=q, prior=q.mean(axis=0), log_likelihood=evidence, trace=trace, iterations=passes,
            converged=converged, annotator_columns=columns,
        )  # fmt: skip

    def _grades(self, above: Floats) -> Floats:
        return np.asarray(grades_of(above)[:, self.rank_])

    def _predict(self, votes: Votes) -> Floats:
        above = np.empty((len(votes), votes.n_classes - 1))
        for j, (params, counts) in enumerate(zip(self.params_, self.counts_, strict=True)):
            answers, _ = question(votes, self.rank_, j, None)
            score = scores_with_unseen(params.log_score, counts, votes.n_annotators, 2)
            _, q = em.expect(Part.of(answers), Params(score, params.log_prior), posterior=True)
            above[:, j] = q[:, 1]
        return self._grades(above)
