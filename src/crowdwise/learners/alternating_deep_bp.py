"""deepBP: belief propagation between items and annotators, with a network as the items' prior.

As in :mod:`crowdwise.learners.alternating_em`, the network is trained on a posterior over the classes of the items,
which is inferred again before every epoch. Here it comes from messages over the graph of votes, with the annotators'
confusion matrices integrated out instead of estimated:

    q[n, k] ~ f^(x_n)[k] prod over the edges e of n of mu_e(k)

with mu_e (``log_mu``, E x K) the message from an annotator to an item (:mod:`crowdwise.methods.messages_bp`) and theta
(``counted``) the mean under the messages. Before the first epoch, while the network is untrained, messages between the
votes alone are updated until they converge; each later epoch continues with a few more updates. After training they
start again.

Reference: H. Kim, S. Cho, D. Kim and J. Ok, Robust deep learning from crowds with belief propagation, AISTATS 2022.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from crowdwise.core import starts
from crowdwise.core.constraints import Bounds, Count, NonNegative, declared
from crowdwise.core.numerics import Floats, clamp, safe_log, softmax
from crowdwise.core.priors import DirichletPrior
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.alternating_em import Alternating, DeepMF, clipped
from crowdwise.learners.devices import as_array
from crowdwise.learners.head import Head, Predict
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Edges
from crowdwise.methods import messages_bp
from crowdwise.methods.messages_bp import BeliefPropagation, gather, same_items, with_gold
from crowdwise.methods.messages_sweeps import LabelGraph

COLD = 100
"""The most updates of messages that start from the prior, before and after training."""


class Messages(Alternating):
    """Beliefs from messages between items and annotators, whose confusion matrices are integrated out."""

    log_mu: Tensor
    incoming: Tensor

    def __init__(self, n_annotators: int, n_classes: int, max_probability: float, model: BeliefPropagation) -> None:
        super().__init__(n_annotators, n_classes, max_probability)
        self.model = model
        for name in ("log_mu", "incoming"):
            self.register_buffer(name, torch.empty(0, n_classes))
        for name in ("seen_indptr", "seen_annotator", "seen_label"):
            self.register_buffer(name, torch.zeros(1, dtype=torch.int64))
        self.register_buffer("seen_weight", torch.ones(1))

    def start(self, votes: Votes) -> None:
        super().start(votes)
        self.problem = BeliefGraph(self.model, votes, self.gold)
        self._set(log_mu=np.zeros((len(self.problem.graph.item), votes.n_classes)))

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        log_f = clipped(as_array(predict()), self.max_probability) if epoch > 0 else np.zeros(self.target.shape)
        q, log_mu = as_array(self.target), as_array(self.log_mu)
        log_mu, q, theta = self.problem.solve(log_f, q, log_mu, cold=epoch == 0)
        self._set(log_mu=log_mu, target=q, counted=theta)

    def finish(self, log_f: Tensor, edges: Edges) -> None:
        """The confusion matrices follow from the messages already."""
        self._set(score=safe_log(as_array(self.counted)))

    def conclude(self, votes: Votes, log_f: Floats) -> Floats:
        """Beliefs of the items of all votes, from messages that have converged and are stored for later."""
        problem = BeliefGraph(self.model, votes, self.gold)
        log_pi = clipped(log_f, self.max_probability)
        first = np.zeros((len(problem.graph.item), self.n_classes))
        log_mu, q, theta = problem.solve(log_pi, starts.gold_weighted(votes, self.gold), first, cold=True)
        incoming = gather(problem.graph, log_mu, np.zeros_like(log_pi))
        self._set(counted=theta, score=safe_log(theta), incoming=incoming, seen_weight=votes.weights)
        device = self.counted.device
        for name in ("indptr", "annotator", "label"):
            setattr(self, f"seen_{name}", torch.as_tensor(np.array(getattr(votes, name), dtype=np.int64)).to(device))
        return q

    def fitted_votes(self, like: Votes, items: Any) -> Votes:
        """The votes of the fit, with the names of annotators and classes of votes that are in its codes."""
        indptr, annotator, label, weight = (
            getattr(self, f"seen_{name}").cpu().numpy() for name in ("indptr", "annotator", "label", "weight")
        )
        return Votes(
            indptr, annotator.astype(np.int32), label.astype(np.int32), items, like.annotators, like.classes,
            None if (weight == 1.0).all() else weight.astype(np.float64),
        )  # fmt: skip


class BeliefGraph:
    """Votes as a graph, and messages over it."""

    def __init__(self, model: BeliefPropagation, votes: Votes, gold: Any) -> None:
        self.model, self.gold = model, gold
        self.graph = LabelGraph.of(votes)
        self.source, _, self.adaptive = model.source(votes, self.graph)

    def solve(self, log_pi: Floats, q: Floats, log_mu: Floats, cold: bool) -> tuple[Floats, Floats, Floats]:
        """Messages (E x K), beliefs (N x K) and mean theta, from earlier messages and beliefs and the items' prior.

        Where the integrals are sampled, the samples are drawn near the earlier beliefs; starting cold, they follow the
        beliefs for some sweeps, and the first messages are the beliefs, as in :mod:`crowdwise.methods.messages_bp`.
        """
        graph, theta = self.graph, np.empty(0)
        follows = self.adaptive and cold
        integrator = self.source(q)
        logit = gather(graph, log_mu, log_pi)
        nu = q[graph.item] if follows else softmax(logit[graph.item] - log_mu)
        for sweep in range(max(self.model.max_iter, COLD) if cold else self.model.max_iter):
            if follows and sweep:
                integrator = self.source(q, integrator)
            new, theta, *_ = integrator.sweep(with_gold(nu, graph, self.gold))
            new = (1.0 - self.model.damping) * new + self.model.damping * log_mu if sweep or not cold else new
            change = float(np.abs(softmax(new) - softmax(log_mu)).max(initial=0.0))
            log_mu = new
            logit = gather(graph, log_mu, log_pi)
            q = clamp(softmax(logit), self.gold)
            nu = softmax(logit[graph.item] - log_mu)
            follows = follows and sweep < messages_bp.FOLLOW and change > messages_bp.CALM
            if change <= self.model.tol and not follows:
                break
        return log_mu, q, theta


@declared
class DeepBP(DeepMF):
    """Belief propagation with a network as the items' prior; confusion matrices are integrated out.

    Parameters
    ----------
    prior
        Of the annotators, as in :class:`DeepMF`; or a function ``prior(rng, size)`` that draws ``size`` x K x K
        confusion matrices from any other prior.
    coins
        ``"full"``: a confusion matrix with independent rows. ``"one"``: one accuracy per annotator, whose prior is then
        Beta(right, wrong) from the pair.
    max_sweeps, tol
        Messages are updated so many times an epoch at most, until none changes by more than ``tol``; the next epoch
        continues from there. After training they start again, with up to a hundred updates.
    samples
        Draws per annotator where the integral is not exact (more than two classes and full matrices).
    damping
        The share of the old message (its logarithm) in the new one.

    >>> import numpy as np, crowdwise as cw
    >>> crowd = cw.simulate.regular(300, l=3, r=4, a=1.0, b=0.5, random_state=0)
    >>> x = crowd.truth[:, None] + np.random.default_rng(0).normal(size=(300, 1))
    >>> learner = DeepBP(coins="one", prior=(1.0, 0.5), epochs=10, random_state=0).fit(x, crowd.votes)
    >>> learner.consensus_.score(crowd.truth) > cw.aggregate(crowd.votes, "majority").score(crowd.truth)
    True
    """

    key: ClassVar[str] = "deep-bp"
    coins: Literal["full", "one"] = "full"
    prior: DirichletPrior | messages_bp.DrawnPrior = 2.0
    max_sweeps: Count = 10
    tol: NonNegative = 1e-3
    samples: Count = 400
    damping: Annotated[float, Bounds(minimum=0, below=1)] = 0.0

    def _check_together(self) -> None:
        super()._check_together()
        if callable(self.prior) and self.coins == "one":
            raise ParameterError("A prior given as a function draws whole confusion matrices: leave coins='full'.")

    def _head(self, votes: Votes, hidden: int) -> Head:
        model = BeliefPropagation(
            coins=self.coins, prior=self.prior, samples=int(self.samples), damping=float(self.damping),
            max_iter=int(self.max_sweeps), tol=float(self.tol), random_state=self.seed_,
        )  # fmt: skip
        return Messages(votes.n_annotators, votes.n_classes, self._highest(votes), model)

    def _posterior(self, trainer: Trainer, votes: Votes) -> tuple[Floats, Floats]:
        log_f = as_array(trainer.log_probs(trainer.inputs))
        return self._fitted_head.conclude(votes, log_f), np.exp(log_f)

    def _probabilities(self, inputs: Inputs, votes: Votes | None) -> Floats:
        # Items of the fit, with the votes they had there, get the messages of the fit; others follow from the mean
        # confusion matrices of their annotators.
        q = super()._probabilities(inputs, votes)
        if votes is None:
            return q
        head = self._fitted_head
        here, there = same_items(votes, head.fitted_votes(votes, self.consensus_.items))
        if len(here):
            log_f = safe_log(super()._probabilities(inputs, None)[here])
            q[here] = softmax(clipped(log_f, head.max_probability) + as_array(head.incoming)[there])
        return q
