"""Enhanced Bayesian classifier combination: classes with subtypes of items, on which annotators err alike.

Under ``dawid-skene`` annotators err independently given the class. But a faint photograph of a dog looks like a wolf to
everybody. Here each class k has G subtypes; an item of class k is of subtype g with probability pi[k, g], and annotator
m answers an item of (k, g) by the row v[m, k, g] of their own. Mixed over subtypes, annotators' answers are correlated.

    tau ~ Dir(a0),   pi[k] ~ Dir(a_pi / G),   v[m, k, g] ~ Dir(b0[m, k]),
    z_n ~ tau,   g_n ~ pi[z_n],   label of m on n ~ v[m, z_n, g_n]

A small a_pi makes few subtypes likely: those not needed stay empty. Inference is variational, over the joint
q(z, g), and is that of ``ibcc`` with K G columns in place of K:

=============  ===============  ================  ====================================================================
symbol         code             shape             equation
=============  ===============  ================  ====================================================================
q[n, (k,g)]    ``q``            N x (K G)         softmax( E log tau_k + E log pi_kg + sum_votes E log v[m, k, g, l] )
c[m,l,(k,g)]   ``counts``       M x L x (K G)     sum over m's votes for l of q[n, (k, g)]
b              ``rows``         M x L x (K G)     b0[m, l, k] + c
a[k]           ``classes``      K                 a0[k] + sum_n sum_g q[n, (k, g)]
p[k, g]        ``subtypes``     K x G             a_pi / G + sum_n q[n, (k, g)]
ELBO           objective                          sum_n log Z_n - KL(tau) - sum_k KL(pi[k]) - sum KL(v)
=============  ===============  ================  ====================================================================

The start splits each item's vote shares over subtypes at random. Different starts end at different optima, so several
are tried and the highest ELBO is kept. The paper tries forty; ten come within half a point of its figures on most sets.

Y. Li, B. Rubinstein and T. Cohn, Exploiting worker correlation for label aggregation in crowdsourcing, ICML 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from crowdwise.core import em, starts
from crowdwise.core.constraints import Count, CountFromZero, NonNegative, Positive
from crowdwise.core.loop import check_memory
from crowdwise.core.model import Callback, EMFit, EMModel, Outcome, Params, Part, Stats, Votes, declared
from crowdwise.core.numerics import Floats, Ints, normalise, softmax
from crowdwise.core.priors import ClassAlpha, DirichletPrior, History, class_dirichlet, dirichlet_rows
from crowdwise.methods import bayes_ibcc as ibcc
from crowdwise.methods.bayes_ibcc import DirichletFamily, Dirichlets

IMPOSSIBLE = -1e30
"""The log prior of a class that a gold label rules out: finite, so that it can be added to."""


@dataclass(frozen=True)
class Mixtures(Dirichlets):
    """As :class:`Dirichlets`, with K G columns, and the Dirichlets of the subtypes, ``subtypes[k, g]``."""

    subtypes: Floats


@dataclass(frozen=True)
class SubtypeFamily(DirichletFamily):
    """The variational step over classes and subtypes; ``rows`` has K G columns."""

    spread: float = 0.01
    """a_pi / G."""

    def maximise(self, stats: Stats) -> Mixtures:
        K = len(self.classes)
        L = self.rows.shape[1]
        mass = stats.mass.reshape(K, -1)
        rows = stats.counts.reshape(-1, L, stats.counts.shape[1]) + self.rows
        classes, subtypes = mass.sum(axis=1) + self.classes, mass + self.spread
        log_prior = ibcc.expected_log(classes, axis=0)[:, None] + ibcc.expected_log(subtypes, axis=1)
        log_score = ibcc.expected_log(rows, axis=1).reshape(stats.counts.shape)
        return Mixtures(log_score, log_prior.reshape(1, -1), rows, classes, subtypes)

    def objective(self, log_likelihood: float, params: Params) -> float:
        assert isinstance(params, Mixtures)
        rows = ibcc.divergence(params.rows, self.rows, params.log_score.reshape(params.rows.shape), axis=1)
        tau = ibcc.divergence(params.classes, self.classes, ibcc.expected_log(params.classes, axis=0), axis=0)
        empty = np.full_like(params.subtypes, self.spread)
        pi = ibcc.divergence(params.subtypes, empty, ibcc.expected_log(params.subtypes, axis=1), axis=1)
        return log_likelihood - rows - tau - pi


def split(q: Floats, noise: Floats) -> Floats:
    """A posterior over classes as one over classes and subtypes: N x (K G), with Dir(1) shares in each class."""
    N, K, G = noise.shape
    return np.asarray((q[:, :, None] * noise / noise.sum(axis=2, keepdims=True)).reshape(N, K * G))


def over_subtypes(item_prior: Floats | None, gold: Ints | None, N: int, K: int, G: int) -> Floats | None:
    """The log prior of each item's (class, subtype), from one of its class and from gold labels; ``None``: flat."""
    if item_prior is None and gold is None:
        return None
    out = np.zeros((N, K)) if item_prior is None else item_prior.copy()
    if gold is not None:
        known = np.flatnonzero(gold >= 0)
        out[known] = IMPOSSIBLE
        out[known, gold[known]] = 0.0 if item_prior is None else item_prior[known, gold[known]]
    return np.repeat(out, G, axis=1)


def merged(params: Mixtures) -> Floats:
    """theta[m, k, l] = sum_g E pi[k, g] E v[m, k, g, l]."""
    M, L, _ = params.rows.shape
    K, G = params.subtypes.shape
    v = normalise(params.rows, axis=1).reshape(M, L, K, G)
    return np.asarray(np.einsum("mlkg,kg->mkl", v, normalise(params.subtypes, axis=1)))


@declared
class EBCC(EMModel):
    """Enhanced Bayesian classifier combination: confusion matrices for every subtype of every class.

    Parameters
    ----------
    n_subtypes
        G, the most subtypes a class may have.
    concentration
        a_pi: the smaller, the fewer subtypes are used.
    prior
        As in :class:`IBCC`; the same in all subtypes.
    class_alpha
        Parameters of the Dirichlet of the classes: a number, one for each class, or ``"votes"``, the sums of the
        vote shares.
    history
        Past performance, which stays in force: annotator -> K x K counts (truth, label), or a Consensus. It counts in
        every subtype, since its subtypes are not known.

    Notes
    -----
    The table of items has the columns ``subtype`` (of the most probable class; 0 is its most common one) and
    ``subtype_probability``.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(200, n_annotators=12, n_classes=3, votes_per_item=5, random_state=0)
    >>> consensus = cw.EBCC(restarts=2).fit(crowd.votes).consensus_
    >>> consensus.score(crowd.truth) >= cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key = "ebcc"

    n_subtypes: Count = 10
    concentration: Positive = 0.1
    prior: DirichletPrior = 4.0
    class_alpha: ClassAlpha | Literal["votes"] = "votes"
    history: History = None
    restarts: CountFromZero = 9
    tol: NonNegative = 1e-6

    def _family(self, part: Part, start: Stats, votes: Votes, gold: Ints | None) -> SubtypeFamily:
        rows = np.repeat(dirichlet_rows(self.prior, self.history, votes), self.n_subtypes, axis=2)
        # A class without votes still has a Dirichlet: its parameter is tiny, not zero.
        shares = np.maximum(starts.shares(votes, gold).sum(axis=0), 1e-3)
        classes = shares if isinstance(self.class_alpha, str) else class_dirichlet(self.class_alpha, votes)
        return SubtypeFamily(rows, classes, spread=self.concentration / self.n_subtypes)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        N, K, G = len(votes), votes.n_classes, int(self.n_subtypes)
        part = Part.of(votes, None, over_subtypes(item_prior, gold, N, K, G))
        first = starts.initial_posterior(self.start, Part.of(votes, gold, item_prior), votes, gold, self.random_state)
        rng = np.random.default_rng(self.random_state)

        def run(restart: int) -> EMFit:
            start = em.statistics(part, split(first, ibcc.drawn(votes, gold, rng, G)))
            return self._run_em(part, self._family(part, start, votes, gold), start, callback, restart)

        best = em.best_fit(map(run, range(self.restarts + 1)), self.tol * part.n_votes)
        assert isinstance(best.params, Mixtures)
        stats, q = em.expect(part, best.params, posterior=True)
        self.params_, self.stats_ = best.params, stats
        q = q.reshape(N, K, G)
        posterior = q.sum(axis=2)
        top = posterior.argmax(axis=1)
        within = normalise(q[np.arange(N), top], axis=1)
        rank = np.argsort(np.argsort(-best.params.subtypes, axis=1, kind="stable"), axis=1)
        return Outcome(
            posterior=posterior / posterior.sum(axis=1, keepdims=True),
            prior=softmax(best.params.log_prior).reshape(K, G).sum(axis=1),
            confusion=merged(best.params),
            item_columns={"subtype": rank[top, within.argmax(axis=1)], "subtype_probability": within.max(axis=1)},
            **best.outcome,
        )

    def _predict(self, votes: Votes) -> Floats:
        posterior = super()._predict(votes).reshape(len(votes), votes.n_classes, -1).sum(axis=2)
        return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))
