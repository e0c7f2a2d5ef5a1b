"""Classes that are not all of a piece: annotators err alike on the same kind of item.

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
are tried and the highest ELBO is kept. On bluebird 60 starts ended at some 40 optima, with accuracies from 78 to 89 %;
on larger sets most starts agree, and a better optimum may be rare (web: one start in 70, worth 2.5 points). The paper
tries forty; ten, the default here, come within half a point of its figures on the sets tried, but for these two.

When it fails: with few votes per item nothing tells subtypes apart, and it is ``ibcc`` at many times the cost. A
higher ELBO is not always a higher accuracy.

Y. Li, B. Rubinstein and T. Cohn, Exploiting worker correlation for label aggregation in crowdsourcing, ICML 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.core import em, starts
from crowdwise.core.checks import check_count, check_number
from crowdwise.core.constraints import Count, CountFromZero, NonNegative
from crowdwise.core.em import EMFit, Params, Part, Stats
from crowdwise.core.loop import Callback
from crowdwise.core.model import EMModel, Outcome, check_memory
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.methods.bayes_ibcc import (
    DirichletFamily,
    Dirichlets,
    class_dirichlet,
    dirichlet_rows,
    divergence,
    drawn_by_name,
    expected_log,
    shared_prior,
)

IMPOSSIBLE = -1e30
"""The log prior of a class that a known truth rules out: finite, so that it can be added to."""


# -------------------------------------------------------------------- the maths


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
        log_prior = expected_log(classes, axis=0)[:, None] + expected_log(subtypes, axis=1)
        log_score = expected_log(rows, axis=1).reshape(stats.counts.shape)
        return Mixtures(log_score, log_prior.reshape(1, -1), rows, classes, subtypes)

    def objective(self, log_likelihood: float, params: Params) -> float:
        assert isinstance(params, Mixtures)
        rows = divergence(params.rows, self.rows, params.log_score.reshape(params.rows.shape), axis=1)
        tau = divergence(params.classes, self.classes, expected_log(params.classes, axis=0), axis=0)
        empty = np.full_like(params.subtypes, self.spread)
        pi = divergence(params.subtypes, empty, expected_log(params.subtypes, axis=1), axis=1)
        return log_likelihood - rows - tau - pi


def split(q: Floats, noise: Floats) -> Floats:
    """A posterior over classes as one over classes and subtypes: N x (K G), with Dir(1) shares in each class."""
    N, K, G = noise.shape
    return np.asarray((q[:, :, None] * noise / noise.sum(axis=2, keepdims=True)).reshape(N, K * G))


def over_subtypes(item_prior: Floats | None, gold: Ints | None, N: int, K: int, G: int) -> Floats | None:
    """The log prior of each item's (class, subtype), from one of its class and from known truth; ``None``: flat."""
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


# -------------------------------------------------------------------- the class


@declared
class EBCC(EMModel):
    """Enhanced Bayesian classifier combination: confusion matrices for every subtype of every class.

    Parameters
    ----------
    subtypes
        G, the most subtypes a class may have.
    concentration
        a_pi: the smaller, the fewer subtypes are used.
    prior
        Parameters of the Dirichlets of the confusion matrices, the same in all subtypes: a number for the diagonal,
        with 1 beside it; two, (diagonal, off-diagonal); or an array, K x K (truth, label) or M x K x K.
    class_alpha
        Parameters of the Dirichlet of the classes: a number, one for each class, or ``"votes"``, the sums of the
        vote shares.
    history
        Past performance, which stays in force: annotator -> K x K counts (truth, label), or a Consensus. It counts in
        every subtype, since it does not say which one it was in.
    start
        Where to begin: ``"votes"``, a method of moments (``"spectral-ds"``, ``"multispa"``, ``"cnmf"``, ``"symnmf"``,
        ``"tensor"``), an N x K posterior, or a :class:`~crowdwise.Consensus`.
    restarts
        How many further random starts to try; the highest ELBO is kept.
    max_iter, tol
        For every start: stop after so many passes over the votes, or when a pass gains less than ``tol`` per vote.
    accelerate
        Take guarded SQUAREM leaps once the fit has settled (see :mod:`crowdwise.core.em`).
    ties, random_state
        Equally probable classes: the one with the higher ``"prior"``, then the first; or ``"random"``. The seed is
        that of the starts, too; ``None`` draws new ones each time.

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

    subtypes: int = 10
    concentration: float = 0.1
    prior: Any = 4.0
    class_alpha: Any = "votes"
    history: Any = None
    restarts: CountFromZero = 9
    start: Any = "votes"
    max_iter: Count = 500
    tol: NonNegative = 1e-6
    accelerate: bool = True

    def _check_together(self) -> None:
        super()._check_together()
        check_count(self, "subtypes")
        check_number(self, "concentration", above=0.0, what="a number above 0")
        if isinstance(self.class_alpha, str) and self.class_alpha != "votes":
            raise ParameterError(
                f"class_alpha={self.class_alpha!r}: expected 'votes', a number, or one for each class."
            )

    def _family(self, part: Part, start: Stats, votes: Votes, gold: Ints | None) -> SubtypeFamily:
        rows = np.repeat(dirichlet_rows(self.prior, self.history, votes), self.subtypes, axis=2)
        # A class that nobody voted for still has a Dirichlet: its parameter is tiny, not zero.
        shares = np.maximum(starts.shares(votes, gold).sum(axis=0), 1e-3)
        classes = shares if isinstance(self.class_alpha, str) else class_dirichlet(self.class_alpha, votes)
        return SubtypeFamily(rows, classes, spread=self.concentration / self.subtypes)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        N, K, G = len(votes), votes.n_classes, int(self.subtypes)
        part = Part.of(votes, None, over_subtypes(item_prior, gold, N, K, G))
        begin = starts.initial_posterior(self.start, Part.of(votes, gold, item_prior), votes, gold, self.random_state)
        rng = np.random.default_rng(self.random_state)
        family: SubtypeFamily | None = None
        best: EMFit | None = None
        for restart in range(self.restarts + 1):
            start = em.statistics(part, split(begin, drawn_by_name(votes, rng, G)))
            family = family or self._family(part, start, votes, gold)
            climb = self._run_em(part, family, start, callback, restart)
            # Starts that end at the same optimum differ by rounding: the first of equals stays.
            if best is None or climb.objective > best.objective + self.tol * part.n_votes:
                best = climb
        assert best is not None
        assert isinstance(best.params, Mixtures)
        stats, q = em.expect(part, best.params, posterior=True)
        self.params_, self.stats_ = best.params, stats
        q = q.reshape(N, K, G)
        posterior = q.sum(axis=2)
        top = posterior.argmax(axis=1)
        within = normalise(q[np.arange(N), top], axis=1)
        rank = np.argsort(np.argsort(-best.params.subtypes, axis=1, kind="stable"), axis=1)
        kind = within.argmax(axis=1)
        return Outcome(
            posterior=posterior / posterior.sum(axis=1, keepdims=True),
            prior=self._class_prior(best.params),
            confusion=merged(best.params),
            trace=best.trace,
            iterations=best.iterations,
            converged=best.converged,
            item_columns={"subtype": rank[top, kind], "subtype_probability": within.max(axis=1)},
        )

    def _class_prior(self, params: Mixtures) -> Floats:
        return np.asarray(shared_prior(params.log_prior[0]).reshape(params.subtypes.shape).sum(axis=1))

    def _predict(self, votes: Votes) -> Floats:
        K = votes.n_classes
        score = self.params_.log_score
        strangers = votes.n_annotators - len(score) // K
        if strangers:  # an annotator never seen answers like the crowd as a whole, subtype by subtype
            pooled = self.stats_.counts.reshape(-1, K, score.shape[1]).sum(axis=0) + 1.0 / K
            score = np.concatenate([score, np.tile(np.log(pooled / pooled.sum(axis=0)), (strangers, 1))])
        _, q = em.expect(Part.of(votes), Params(score, self.params_.log_prior), posterior=True)
        posterior = q.reshape(len(votes), K, -1).sum(axis=2)
        return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))
