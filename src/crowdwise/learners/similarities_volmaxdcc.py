"""Clusters from inputs and similarities: a network predicts the cluster of an item, and answers on pairs train it.

The network predicts f(x), a distribution over K clusters. Annotators call two items "the same" with a probability that
depends on the two clusters alone, and network and matrix are trained to maximise the likelihood of the answers:

    P(same | x, x') = f(x)' B f(x')          loss = - mean over answers of log P(answer)  -  weight * log det F'F

The matrix B holds the errors of annotators, so that f can stay sharp. The answers alone do not identify f, and the
volume of F, the network's predictions for all inputs (in pairs or not), selects the f that spreads furthest.

==================  =============  ============  ===============================================================
symbol              code           shape         equation
==================  =============  ============  ===============================================================
f(x)                ``log_f``      K             softmax of the network
B[k, l]             ``matrices``   K x K         sigmoid of (R + R') / 2; R starts with 1 on the diagonal, -1 off it
B[m]                               M x K x K     with ``confusion="own"``: sigmoid of (R + D[m], symmetric), D ~ N(0, 1)
F'F                                K x K         K times the mean of f f' over inputs
==================  =============  ============  ===============================================================

Reference: T. Nguyen, S. Ibrahim and X. Fu, Deep clustering with incomplete noisy pairwise annotations, ICML 2023.
"""

from __future__ import annotations

import time
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.answers.similarities_crowd_clustering import Clustering, agreements, canonical
from crowdwise.core.constraints import Bounds, Count, NonNegative, declared
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.result import Result
from crowdwise.data import encoding
from crowdwise.data.similarities import Similarities
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.devices import as_array, log_softmax, probabilities
from crowdwise.learners.head import FLOOR, Head
from crowdwise.learners.inputs import Inputs, InputScale, PairInputs, chunks
from crowdwise.learners.network_estimator import NetworkChoice, NetworkEstimator
from crowdwise.learners.trainer import Trainer, TrainingData
from crowdwise.learners.vote_edges import Batch

TwoOrMore = Annotated[int, Bounds(minimum=2)]
RIDGE = 1e-3
"""Added to the K x K matrix whose volume is taken: keeps its gradient finite."""


class Twins(nn.Module):
    """One network for both inputs of a pair: B x 2 x shape to B x 2K logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x.flatten(0, 1))
        return logits.reshape(len(x), -1)


class PairHead(Head):
    """The likelihood of answers on pairs, less the volume of the network's predictions for all inputs."""

    def __init__(self, n_annotators: int, n_clusters: int, confusion: str, weight: float, sample: int) -> None:
        super().__init__(1, 2 * n_clusters)
        self.counted = torch.zeros(0)
        self.K, self.kind, self.weight, self.sample = n_clusters, confusion, weight, sample
        if confusion != "none":
            self.R = nn.Parameter(2.0 * torch.eye(n_clusters) - 1.0)
        if confusion == "own":
            self.D = nn.Parameter(torch.zeros(n_annotators, n_clusters, n_clusters))
        self.everything: tuple[nn.Module, Inputs, torch.device] | None = None  # a tuple: no part of this module
        self.answers = 1

    def watch(self, network: nn.Module, inputs: Inputs, device: torch.device, answers: int) -> None:
        """The network and the inputs of the volume, and the number of all answers."""
        self.everything, self.answers = (network, inputs, device), answers

    def matrices(self) -> Tensor:
        """M x K x K (or 1 x K x K where annotators share one): P(says the same, given the two clusters)."""
        if self.kind == "none":
            return torch.eye(self.K, device=self.counted.device)[None]
        logits = self.R[None] + self.D if self.kind == "own" else self.R[None]
        return torch.sigmoid((logits + logits.transpose(1, 2)) / 2.0)

    def vote_log_probs(self, batch: Batch) -> Tensor:
        first, second = torch.split(self.predict_log_probs(batch).exp()[batch.row], self.K, dim=1)
        B = self.matrices()
        mixed = torch.einsum("ek,ekl->el", first, B[batch.annotator]) if self.kind == "own" else first @ B[0]
        same = (mixed * second).sum(dim=1)
        return torch.where(batch.label == 1, same, 1.0 - same).clamp_min(FLOOR).log()

    def loss(self, batch: Batch) -> Tensor:
        fit = -batch.mean(self.vote_log_probs(batch))
        if self.kind == "own":
            fit = fit + 0.5 * self.D.square().sum() / self.answers
        return fit if self.weight == 0.0 else fit - self.weight * self.log_volume()

    def log_volume(self) -> Tensor:
        """log det of K mean f f' over all inputs, or over a new sample of them in every step."""
        assert self.everything is not None
        network, inputs, device = self.everything
        N = len(inputs)
        index = np.arange(N) if self.sample >= N else np.sort(torch.randperm(N)[: self.sample].numpy())
        f = torch.softmax(network(inputs.rows(index).to(device)).float(), dim=1)
        return torch.logdet(self.K * (f.T @ f) / len(f) + RIDGE * torch.eye(self.K, device=device))

    def predict_log_probs(self, batch: Batch) -> Tensor:
        return log_softmax(batch.logits.reshape(len(batch), 2, self.K), dim=2).flatten(1)

    def finish(self, log_f: Tensor, edges: Any) -> None:
        """Nothing is counted: the matrices are learned."""


@declared
class VolMaxDCC(NetworkEstimator):
    """A network that clusters, from noisy similarities of pairs of its inputs.

    Parameters
    ----------
    n_clusters
        K, the number of clusters.
    confusion
        The errors of annotators: one matrix B ``"shared"`` by all, an ``"own"`` one for each annotator with the shared
        one as its prior mean, or ``"none"``: annotators make no errors.
    weight
        The weight of the log-volume.
    volume_sample
        The volume is that of the network's predictions for all inputs, or for a new sample of so many in each step.

    >>> import crowdwise as cw
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(3, size=150)
    >>> X = rng.normal(size=(150, 4)) + 4.0 * np.eye(3, 4)[truth]
    >>> crowd = cw.simulate.similarities(150, truth=truth, pairs_per_item=10, random_state=0)
    >>> learner = VolMaxDCC(n_clusters=3, epochs=20, random_state=0).fit(X, crowd.answers)
    >>> cw.metrics.adjusted_rand(learner.predict(X), truth).value > 0.9
    True
    """

    key: ClassVar[str] = "volmaxdcc"
    table: ClassVar[type] = Similarities
    result: ClassVar[type[Result]] = Clustering
    saved: ClassVar[tuple[str, ...]] = ("_order",)

    n_clusters: TwoOrMore = 10
    confusion: Literal["shared", "own", "none"] = "shared"
    weight: NonNegative = 0.01
    volume_sample: TwoOrMore = 512
    network: NetworkChoice = "nguyen"
    batch_size: Count = 128
    epochs: Count = 100
    select: Literal["last", "votes"] = "last"
    _order: Any = field(init=False)

    def _describe(self, annotators: Any, classes: Any, shape: tuple[int, ...]) -> None:
        super()._describe(annotators, np.arange(1, self.n_clusters + 1), shape)

    def _training_data(self, inputs: Inputs, answers: Similarities) -> tuple[Inputs, Votes]:
        self._order = np.arange(self.n_clusters)
        return PairInputs(inputs, *answers.pairs.T), answers.votes

    def _head(self, votes: Votes, hidden: int) -> PairHead:
        K, sample = int(self.n_clusters), int(self.volume_sample)
        return PairHead(votes.n_annotators, K, self.confusion, float(self.weight), sample)

    def _n_outputs(self, votes: Votes) -> int:
        return int(self.n_clusters)

    def _whole_network(self, scale: InputScale, body: nn.Module, votes: Votes) -> nn.Module:
        return Twins(nn.Sequential(scale, body))

    def _choices(self) -> Any:
        return [False, True]

    def _prepare(self, data: TrainingData) -> Trainer:
        trainer = super()._prepare(data)
        assert isinstance(data.inputs, PairInputs)
        head, network = trainer.head, trainer.network
        head.watch(network.network, data.inputs.base, trainer.device, data.votes.n_votes)  # type: ignore[operator]
        return trainer

    def _clusters(self, inputs: Inputs) -> Floats:
        """N x K probabilities, in the order of the result's clusters."""
        network: Any = self._trainer.network.eval()
        with torch.no_grad():
            x = (inputs.rows(index).to(self._trainer.device) for index in chunks(inputs, 1024))
            log_q = [torch.log_softmax(network.network(rows).float(), dim=1) for rows in x]
        return probabilities(torch.cat(log_q))[:, self._order]

    def _result(self, trainer: Trainer, answers: Similarities, gold: Ints | None, began: float) -> Clustering:
        assert isinstance(trainer.inputs, PairInputs)
        self._order = canonical(self._clusters(trainer.inputs.base))
        q = self._clusters(trainer.inputs.base)
        facts = agreements(answers, q)
        rate = (facts["counts"] + 0.5) / (facts["counts"] + 0.5).sum(axis=2, keepdims=True)
        return Clustering.of(
            self, answers, posterior=q, cluster_codes=q.argmax(axis=1).astype(np.int32), prior=q.mean(axis=0),
            sensitivity=rate[:, 1, 1].copy(), specificity=rate[:, 0, 0].copy(), **facts,
            **self._trace(), seconds=time.perf_counter() - began, seed=self.seed_,
        )  # fmt: skip

    @property
    def confusion_(self) -> Floats:
        """B: P(says the same, given the two clusters), K x K; M x K x K where each annotator has an own one."""
        B = as_array(self._fitted_head.matrices())[:, self._order][:, :, self._order]
        return np.asarray(B if self.confusion == "own" else B[0])

    def predict_proba(self, X: Any, votes: Any = None) -> Floats:
        """N x K probabilities of the clusters, from the inputs."""
        self._fitted()
        if votes is not None:
            raise ParameterError(f"{self.key} predicts from inputs alone: leave the answers out.")
        return self._clusters(self._new_inputs(X))

    def predict(self, X: Any) -> Ints:
        """The number of the most probable cluster of each input, from 1."""
        q = self.predict_proba(X)
        return np.asarray(self.classes_[q.argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """For answers their mean log-likelihood; for true clusters the adjusted Rand index."""
        self._fitted()
        if not isinstance(y, Similarities):
            from sklearn.metrics import adjusted_rand_score

            predicted, true, _ = self._paired(X, y, None, None)
            return float(adjusted_rand_score(np.asarray(true), predicted))
        q, B, (a, b) = self._clusters(self._new_inputs(X, y)), self.confusion_, y.pairs[y.pair].T
        if B.ndim == 2:
            same = np.einsum("ek,kl,el->e", q[a], B, q[b])
        else:  # unseen annotators answer like the crowd
            who = encoding.locate(y.annotators, self.annotators_)[y.annotator]
            B = np.where((who >= 0)[:, None, None], B[who], B.mean(axis=0))
            same = np.einsum("ek,ekl,el->e", q[a], B, q[b])
        log_p = np.log(np.maximum(np.where(y.same, same, 1.0 - same), FLOOR))
        return float(np.average(log_p, weights=y.weights))
