"""BayesDGC: Bayesian confusion matrices with a network as the items' prior, by natural-gradient variational inference.

The class of an item comes from a product of two priors, one for all items and one from its input; annotators have
confusion matrices with Dirichlet rows:

    pi ~ Dir(a0),  theta[m, k] ~ Dir(b0[k]),  P(z_n = k) ~ pi[k] f(x_n)[k] / g[k],  label of m on n ~ theta[m, z_n]

Here g is the mean of f over the items (``balance``), or 1 as in the paper. With 1 the product is not a distribution:
it grows where pi and f agree on one class for all items, up to a gain of 2 log K per item, and with few votes per item
that gain can outweigh the votes (simulated crowds with two classes and three votes per item collapsed to one class).
Divided by g, the products of all items sum to one on average: the bound below holds for the normalised model.

q(z) q(pi) q(theta) approximates the posterior, q(pi) = Dir(a) and q(theta[m, k]) = Dir(b[m, k]).

===========  ===========  =========  ===========================================================================
symbol       code         shape      equation
===========  ===========  =========  ===========================================================================
q[n, k]                   B x K      softmax_k( E log pi_k + log f(x_n)[k] - log g_k + sum_votes E log theta )
g[k]         ``log_g``    K          mean over the items of f(x_n)[k], at the beginning of the epoch; or 1
E log pi     ``log_pi``   K          psi(a_k) - psi(sum_k a_k)
E log theta  ``score``    M x K x K  psi(b[m, k, l]) - psi(sum_l b[m, k, l])
b[m, k, l]   ``b``        M x K x K  b + rate ( b0 + N/B sum over the batch's votes of q[n, k] 1(label = l) - b )
a[k]         ``a``        K          a + rate ( a0 + N/B sum over the batch of q[n, k] - a )
loss                                 - mean over the batch of log Z_n, Z_n the normaliser of q[n]
===========  ===========  =========  ===========================================================================

The two updates are steps along the natural gradient of the evidence lower bound

    sum_n log Z_n - KL( Dir(a) | Dir(a0) ) - sum_mk KL( Dir(b[m, k]) | Dir(b0[k]) ),

and with the whole data as one batch and rate 1 they are the closed form of variational Bayes. For the network, the
gradient of - log Z_n is that of the cross-entropy against q[n]. Without the network the model is ``ibcc``. With a rate
of B/N, an update discounts as much as the batch adds: b is b0 and the counts of about the last epoch.

Reference: S.-Y. Li, S.-J. Huang and S. Chen, Crowdsourcing aggregation with deep Bayesian learning, 2021.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from crowdwise.core import em, starts
from crowdwise.core.constraints import Bounds, declared
from crowdwise.core.em import Part
from crowdwise.core.loop import check_memory
from crowdwise.core.numerics import Floats
from crowdwise.core.priors import ClassAlpha, DirichletPrior, class_dirichlet, dirichlet_rows
from crowdwise.data.votes import Votes
from crowdwise.learners import losses
from crowdwise.learners.devices import as_array
from crowdwise.learners.head import Head, Predict
from crowdwise.learners.learner import Learner
from crowdwise.learners.vote_edges import Batch, Edges, used_items
from crowdwise.methods.bayes_ibcc import DirichletFamily, Dirichlets, expected_log

LEAST = 1e-3
"""The lowest value of g: a class that the network no longer predicts could not recover otherwise."""


class Dirichlet(Head):
    """Dirichlets over confusion matrices and classes, updated along natural gradients."""

    a0: Tensor
    b0: Tensor
    a: Tensor
    b: Tensor
    log_g: Tensor
    truth: Tensor

    def __init__(
        self, n_annotators: int, n_classes: int, family: DirichletFamily, rate: float | None, closed: bool,
        balance: bool,
    ) -> None:  # fmt: skip
        super().__init__(n_annotators, n_classes)
        self.family, self.rate, self.closed, self.balance = family, rate, closed, balance
        self.size = 1
        """How many items take part in training."""
        rows = np.broadcast_to(family.rows.transpose(0, 2, 1), (n_annotators, n_classes, n_classes)).copy()
        self.register_buffer("a0", torch.as_tensor(family.classes, dtype=torch.float32))
        self.register_buffer("b0", torch.as_tensor(rows, dtype=torch.float32))
        self.register_buffer("a", self.a0.clone())
        self.register_buffer("b", self.b0.clone())
        self.register_buffer("log_g", torch.zeros(n_classes))
        self.register_buffer("truth", torch.empty(0, dtype=torch.int64))
        self._step: tuple[Batch, Tensor, float] | None = None

    def start(self, votes: Votes) -> None:
        """Start from the vote shares, which identify the classes."""
        self.votes = votes
        gold = np.full(len(votes), -1) if self.gold is None else np.asarray(self.gold)
        self.truth = torch.as_tensor(gold.astype(np.int64))
        self.used = used_items(votes, gold)
        self.size = max(int(self.used.sum()), 1)
        q = starts.gold_weighted(votes, self.gold) * self.used[:, None]
        self._set_dirichlets(self.family.maximise(em.statistics(Part.of(votes), q)))

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        if self.balance or self.closed:
            log_f = as_array(predict())
            if self.balance:
                self.set_balance(log_f)
            if self.closed and epoch > 0:
                self.solve(log_f)

    def set_balance(self, log_f: Floats) -> None:
        """g, from N x K log probabilities of the network."""
        g = np.exp(log_f[self.used]).mean(axis=0)
        self.log_g = torch.as_tensor(np.log(np.maximum(g, LEAST)), dtype=self.a0.dtype).to(self.a.device)

    def loss(self, batch: Batch) -> Tensor:
        """- mean log Z; the update of the Dirichlets follows in ``after_step``."""
        with torch.no_grad():
            logit = self._logit(batch)
            if self.gold is not None:
                known = self.truth[batch.index]
                other = (known >= 0)[:, None] & (torch.arange(self.n_classes, device=known.device) != known[:, None])
                logit = logit.masked_fill(other, -torch.inf)
            log_z = torch.logsumexp(logit, dim=1)
            q, f = (logit - log_z[:, None]).exp(), torch.softmax(batch.logits, dim=1)
        if not self.closed:
            self._step = batch, q, self._rate(batch)
        return losses.with_gradients(-log_z.mean(), (batch.logits, (f - q) / len(batch)))

    def after_step(self) -> None:
        """The step along the natural gradient: towards the prior and the counts of the batch, scaled to all items.

        b + rate ( b0 + counts - b ) is a mean of b and b0, to which the few counts of the batch are added in place.
        """
        if self._step is not None:
            batch, q, rate = self._step
            times = rate * self.size / len(batch)
            self.a.lerp_(self.a0, rate).add_(q.sum(dim=0).to(self.a.dtype), alpha=times)
            counts = q.index_select(0, batch.row) * (times * batch.weight)[:, None]
            self.b.lerp_(self.b0, rate).put_(batch.cells(self.n_classes), counts.to(self.b.dtype), accumulate=True)
            self._step = None

    def _rate(self, batch: Batch) -> float:
        return min(len(batch) / self.size, 1.0) if self.rate is None else self.rate

    def params(self) -> Dirichlets:
        """The Dirichlets, as the expectation step takes them."""
        rows, classes = as_array(self.b).transpose(0, 2, 1), as_array(self.a)
        score = np.ascontiguousarray(expected_log(rows, axis=1)).reshape(-1, self.n_classes)
        return Dirichlets(score, expected_log(classes, axis=0)[None], rows, classes)

    def solve(self, log_f: Floats) -> None:
        """Variational Bayes in closed form: the Dirichlets that go with the posterior of all items."""
        part = Part.of(self.votes, self.gold, log_f - as_array(self.log_g))
        stats, q = em.expect(part, self.params(), posterior=True)
        self._set_dirichlets(self.family.maximise(em.Stats(stats.counts, q[self.used].sum(axis=0))))

    def bound(self, log_f: Floats) -> float:
        """The evidence lower bound, given N x K log probabilities of the network (items without votes left out)."""
        params, log_f = self.params(), log_f - as_array(self.log_g)
        total = em.expect(Part.of(self.votes, self.gold, log_f), params)[0].log_likelihood
        total -= float(np.log(np.exp(log_f[~self.used] + params.log_prior).sum(axis=1)).sum())
        return self.family.objective(total, params)

    def _set_dirichlets(self, params: Dirichlets) -> None:
        device = self.a.device
        self.a = torch.as_tensor(params.classes, dtype=self.a0.dtype).to(device)
        self.b = torch.as_tensor(np.ascontiguousarray(params.rows.transpose(0, 2, 1)), dtype=self.b0.dtype).to(device)

    def confusion(self) -> Tensor:
        return self.b / self.b.sum(dim=2, keepdim=True)

    def posterior_log_probs(self, batch: Batch) -> Tensor:
        return torch.log_softmax(self._logit(batch), dim=1)

    def _logit(self, batch: Batch) -> Tensor:
        """B x K: E log pi + log f + sum over votes of E log theta; unseen annotators answer like the crowd."""
        b = self.b.index_select(0, self.known_codes(batch))
        at_label = b[torch.arange(len(b), device=b.device), :, batch.label]
        score = torch.digamma(at_label) - torch.digamma(b.sum(dim=2))
        score = self.or_unseen(batch, score, lambda: self._log_columns(batch))
        log_pi = torch.digamma(self.a) - torch.digamma(self.a.sum())
        return (
            (log_pi - self.log_g).to(batch.logits)
            + batch.log_f
            + batch.total(batch.weight[:, None] * score.to(batch.logits))
        )

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        """The Dirichlets are final; g is the mean of the network's last predictions."""
        if self.balance:
            self.set_balance(as_array(log_f))


@declared
class BayesDGC(Learner):
    """Bayesian confusion matrices and a network, by stochastic variational inference: for few votes.

    Parameters
    ----------
    prior
        Dirichlet parameters of the rows of confusion matrices: a number a (on the truth; one beside it), a pair (on
        the truth, on each other label), K x K (truth, label), or M x K x K. By default (5, 2), that of the paper.
    class_alpha
        Dirichlet parameters of the class distribution: a number, or one for each class.
    updates
        ``"stochastic"``: a step along the natural gradient with every batch. ``"closed"``: the best Dirichlets, given
        the network, at the beginning of every epoch.
    rate
        Of the stochastic steps, above 0 and up to 1; by default the batch's share of the items.
    balance
        Divide the network's probabilities by their mean over the items, so that the class distribution, which the
        model learns separately, counts once. ``False``: the product of the two, as published.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=400, votes_per_item=3, random_state=0)
    >>> learner = BayesDGC(epochs=15, random_state=0).fit(crowd.features["x_train"], crowd.votes)
    >>> bool(learner.consensus_.score(crowd.truth) > 0.9)
    True
    """

    key: ClassVar[str] = "bayes-dgc"
    prior: DirichletPrior | None = None
    class_alpha: ClassAlpha = 1.1
    updates: Literal["stochastic", "closed"] = "stochastic"
    rate: Annotated[float, Bounds(above=0, maximum=1)] | None = None
    balance: bool = True

    def _head(self, votes: Votes, hidden: int) -> Head:
        check_memory(votes)
        prior = (5.0, 2.0) if self.prior is None else self.prior
        family = DirichletFamily(dirichlet_rows(prior, None, votes), class_dirichlet(self.class_alpha, votes))
        rate = None if self.rate is None else float(self.rate)
        return Dirichlet(
            votes.n_annotators, votes.n_classes, family, rate, self.updates == "closed", bool(self.balance)
        )
