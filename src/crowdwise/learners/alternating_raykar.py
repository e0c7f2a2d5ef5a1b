"""Learning from crowds: a data model and a confusion matrix for each annotator, by expectation and maximisation.

The class of an item depends on its features through a data model f (softmax regression), annotator m says l of an item
of class k with probability theta[m, k, l]:

    P(votes of n | x_n) = sum_k f(x_n)[k] prod over the votes (m, l) of theta[m, k, l]^weight

=================  ===========  =========  =================================================================
symbol             code         shape      equation
=================  ===========  =========  =================================================================
q[n, k]            ``q``        N x K      proportional to f(x_n)[k] prod over votes of theta[m, k, l]
c[m, l, k]         ``stats``    (MK) x K   sum over m's votes for l of weight q[n, k]
theta[m, k, l]     ``theta_``   M x K x K  (c[m, l, k] + b[m, l, k]) / its sum over l
f                  ``model_``              argmax of sum_n sum_k q[n, k] log f(x_n)[k] + log prior of its weights
=================  ===========  =========  =================================================================

It starts from the vote shares and maximises

    sum_n log P(votes of n | x_n) + sum b log theta + log prior of the weights of f,

which never decreases. Pseudo-counts b are those of a Dirichlet prior with parameters 1 + b. Items without votes and
without gold take no part in learning; gold fixes the class of an item.

Reference: V. Raykar et al., Learning from crowds, Journal of Machine Learning Research 11 (2010).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from crowdwise.core import em, priors, starts
from crowdwise.core.consensus import Outcome
from crowdwise.core.constraints import Count, NonNegative, Positive
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.limits import check_memory
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.core.parameters import declared
from crowdwise.core.priors import Prior
from crowdwise.data.votes import Votes
from crowdwise.learners.tabular import Softmax, Tabular
from crowdwise.learners.tensors import score_table
from crowdwise.learners.training_settings import Callback, EpochRounds


def confusions(stats: Stats, extra: Floats) -> Floats:
    """theta[m, k, l] from counts and pseudo-counts b[m, l, k]."""
    return normalise((stats.table() + extra).transpose(0, 2, 1), axis=2)


@declared
class Raykar(Tabular):
    """Softmax regression (or any classifier) and confusion matrices learned together, by EM.

    Parameters
    ----------
    prior
        Pseudo-counts of the confusion matrices: a number of votes per row, spread evenly over labels;
        ``"crowd"``, ``"hierarchical"``; or an array, K x K or M x K x K (truth, label).
    spread
        Of ``"logistic"``: the prior standard deviation of its logits (a larger one fits more freely).
    max_iter, tol
        Stop after so many rounds, or when the objective gains less than ``tol`` per vote.

    Attributes
    ----------
    model_
        The fitted data model; ``model_.coef`` are the weights of softmax regression, ``model_.fitted`` is a fitted copy
        of the given classifier.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=3, random_state=0)
    >>> learner = Raykar(random_state=0).fit(crowd.features["x_train"], crowd.votes)
    >>> bool(learner.consensus_.score(crowd.truth) > 0.9)
    True
    """

    key: ClassVar[str] = "raykar"

    prior: Prior = 1.0
    spread: Positive = 2.0
    max_iter: Count = 100
    tol: NonNegative = 1e-4

    def _fit_model(self, x: Any, votes: Votes, gold: Ints | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        K = votes.n_classes
        extra = priors.pseudo_counts(self.prior, None, votes, gold)
        used = np.diff(votes.indptr) > 0
        if gold is not None:
            used |= gold >= 0
        model = self.model_ = self._data_model(x.shape[1], K, self.spread)
        q = starts.gold_weighted(votes, gold)
        stats = em.statistics(Part.of(votes, gold), q)
        rounds = EpochRounds(self.max_iter, max(float(votes.weights.sum()), 1.0), self.history_, callback)
        for _ in rounds:
            model.fit(x, q * used[:, None])
            self.theta_ = theta = confusions(stats, extra)
            log_f = model.log_probs(x)
            part = Part.of(votes, gold, log_f)
            stats, q = em.expect(part, Params(score_table(safe_log(theta)), np.zeros((1, K))), posterior=True)
            prior = float((extra * safe_log(theta.transpose(0, 2, 1))).sum()) + model.log_prior()
            rounds.reached_within(stats.log_likelihood + prior, self.tol)
        # A classifier of scikit-learn's (a tree, say) maximises no likelihood, and need not converge.
        converged = rounds.converged or not isinstance(model, Softmax)
        return Outcome(
            posterior=q, prior=np.exp(log_f).mean(axis=0), confusion=theta, log_likelihood=stats.log_likelihood,
            item_prior=log_f, **rounds.outcome | {"converged": converged},
        )  # fmt: skip
