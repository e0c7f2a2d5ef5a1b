"""Clusters from inputs and same-or-different answers: a network says what kind an item is, pairs of items train it.

The network says f(x), a distribution over K kinds. Annotators who look at two items say "the same" with a probability
that depends on the two kinds alone, and network and matrix are trained so that the answers become probable:

    P(same | x, x') = f(x)' B f(x')          loss = - mean over answers of log P(answer)  -  weight * log det F'F

The matrix B takes up what annotators do wrong, so that f can stay sharp; which f that is, is not decided by the answers
alone, and the volume of F, the network's answers to all inputs (in pairs or not), chooses the one that spreads
furthest. With B the identity it is the likelihood of annotators without error.

==================  =============  ============  ===============================================================
symbol              code           shape         equation
==================  =============  ============  ===============================================================
f(x)                ``log_f``      K             softmax of the network
B[k, l]             ``matrices``   K x K         sigmoid of (R + R') / 2; R starts with 1 on the diagonal, -1 off it
B[m]                               M x K x K     with ``confusion="own"``: sigmoid of (R + D[m], symmetric), D ~ N(0, 1)
F'F                                K x K         K times the mean of f f' over inputs: 1 for certain, even answers
==================  =============  ============  ===============================================================

When it fails: kinds that no pair of items told apart stay together; below some hundred pairs per kind the network
learns the pairs by heart; with K too large, kinds split.

Reference: T. Nguyen, S. Ibrahim and X. Fu, Deep clustering with incomplete noisy pairwise annotations: a geometric
regularization approach, ICML 2023.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from crowdwise.answers.similarities_clusters import Clustering, agreements, canonical
from crowdwise.core.checks import check_choice, check_count, check_number
from crowdwise.core.numerics import Floats
from crowdwise.core.result import plain
from crowdwise.data.similarities import Similarities
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError, ReadError
from crowdwise.learners import networks
from crowdwise.learners.devices import find_device, seeded
from crowdwise.learners.head import FLOOR, Head
from crowdwise.learners.inputs import Index, Inputs, Scale, as_inputs
from crowdwise.learners.learner import Learner, probabilities, seed_of
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training import Callback, Epoch
from crowdwise.learners.vote_edges import Batch, log_softmax

CONFUSIONS = ("shared", "own", "none")
RIDGE = 1e-3
"""Added to the K x K matrix whose volume is taken: keeps its gradient finite."""


class PairInputs:
    """The two inputs of each pair, so that a pair is what the training loop takes for an item."""

    def __init__(self, inputs: Inputs, pairs: npt.NDArray[Any]) -> None:
        self.inputs, self.pairs = inputs, pairs.astype(np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, *self.inputs.shape)

    def __len__(self) -> int:
        return len(self.pairs)

    def rows(self, index: Index) -> Tensor:
        pairs = self.pairs[index]
        return self.inputs.rows(pairs.ravel()).reshape(len(pairs), *self.shape)


class Twins(nn.Module):
    """One network for both inputs of a pair: B x 2 x shape to B x 2K logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x.flatten(0, 1))
        return logits.reshape(len(x), -1)


class Pairs(Head):
    """The likelihood of answers on pairs, less the volume of the network's answers to all inputs."""

    def __init__(self, n_annotators: int, n_clusters: int, confusion: str, weight: float, sample: int) -> None:
        super().__init__(1, 2 * n_clusters)
        self.counted = torch.zeros(0)
        self.K, self.kind, self.weight, self.sample = n_clusters, confusion, weight, sample
        self.people = n_annotators
        if confusion != "none":
            self.R = nn.Parameter(2.0 * torch.eye(n_clusters) - 1.0)
        if confusion == "own":
            self.D = nn.Parameter(torch.zeros(n_annotators, n_clusters, n_clusters))
        self.everything: tuple[nn.Module, Inputs, torch.device] | None = None  # a tuple: no part of this module
        self.answers = 1

    def watch(self, network: nn.Module, inputs: Inputs, device: torch.device, answers: int) -> None:
        """Where the inputs are whose volume counts, and how many answers there are in all."""
        self.everything, self.answers = (network, inputs, device), answers

    def matrices(self) -> Tensor:
        """M x K x K (or 1 x K x K where annotators share one): P(says the same, given the two kinds)."""
        if self.kind == "none":
            return torch.eye(self.K, device=self.counted.device)[None]
        logits = self.R[None] + self.D if self.kind == "own" else self.R[None]
        return torch.sigmoid((logits + logits.transpose(1, 2)) / 2.0)

    def vote_log_probs(self, batch: Batch) -> Tensor:
        log_f = log_softmax(batch.logits.reshape(len(batch), 2, self.K), dim=2)
        first, second = log_f.exp()[batch.row].unbind(dim=1)
        B = self.matrices()
        if self.kind == "own":
            known = batch.annotator < self.people
            rows = B[batch.annotator.clamp_max(self.people - 1)]
            if not bool(known.all()):  # strangers answer as the crowd
                rows = torch.where(known[:, None, None], rows, B.mean(dim=0))
            same = (torch.einsum("ek,ekl->el", first, rows) * second).sum(dim=1)
        else:
            same = ((first @ B[0]) * second).sum(dim=1)
        return torch.where(batch.label == 1, same, 1.0 - same).clamp_min(FLOOR).log()

    def loss(self, batch: Batch) -> Tensor:
        fit = -batch.mean(self.vote_log_probs(batch))
        if self.kind == "own":
            fit = fit + 0.5 * self.D.square().sum() / self.answers
        return fit if self.weight == 0.0 else fit - self.weight * self.log_volume()

    def log_volume(self) -> Tensor:
        """log det of K mean f f' over all inputs, or over a sample of them that is drawn anew for every step."""
        assert self.everything is not None
        network, inputs, device = self.everything
        N = len(inputs)
        index = np.arange(N) if self.sample >= N else np.sort(torch.randperm(N)[: self.sample].numpy())
        f = torch.softmax(network(inputs.rows(index).to(device)).float(), dim=1)
        matrix = self.K * (f.T @ f) / len(f)
        return torch.logdet(matrix + RIDGE * torch.eye(self.K, device=device))

    def predict_log_probs(self, batch: Batch) -> Tensor:
        return log_softmax(batch.logits.reshape(len(batch), 2, self.K), dim=2).flatten(1)

    def settle(self, log_f: Tensor, edges: Any) -> None:
        """Nothing is counted: the matrices are learned."""


@dataclass(kw_only=True, eq=False, repr=False)
class VolMaxDCC(Learner):
    """A network that clusters, from noisy same-or-different answers on pairs of its inputs.

    Parameters
    ----------
    n_clusters
        K, the number of kinds.
    confusion
        What annotators do to pairs: one matrix B ``"shared"`` by all, an ``"own"`` one for each annotator, which is
        held to the shared one, or ``"none"``: nobody errs.
    weight
        Of the log-volume.
    volume_sample
        The volume is that of the network's answers to all inputs, or to so many of them, drawn anew for each step.
    network, batch_size, epochs
        As in :class:`Learner`; by default the paper's network, two hidden layers of 512 (``"paper"``).

    Examples
    --------
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
    n_clusters: int = 10
    confusion: str = "shared"
    weight: float = 0.01
    volume_sample: int = 512
    network: Any = "paper"
    batch_size: int = 128
    epochs: int = 100

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count(self, "n_clusters", least=2)
        check_count(self, "volume_sample", least=2)
        check_choice(self, "confusion", CONFUSIONS)
        check_number(self, "weight", least=0.0)
        check_choice(self, "select", ("last", "votes"))

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any, gold: Any = None, *, callback: Callback | None = None) -> Self:
        """Learn from inputs and answers.

        Parameters
        ----------
        X
            One input per item of the answers, in their order (``answers.items``), as for any learner; items in no
            pair count for the volume.
        y
            :class:`~crowdwise.Similarities`.
        gold
            Not used: clusters have no names that known classes could be matched with.
        callback
            Called with a :class:`crowdwise.learners.trainer.Epoch` after every epoch; training stops where it returns
            True.
        """
        began = time.perf_counter()
        self._check_parameters()
        if not isinstance(y, Similarities):
            raise InputError(f"{self.key} expects Similarities and found {type(y).__name__}.")
        if gold is not None:
            raise ParameterError(f"{self.key} has no use for truth: clusters have no names. Leave it out.")
        inputs = as_inputs(X, y.items)
        if len(inputs) != len(y):
            raise InputError(
                f"X has {len(inputs)} rows and the answers are on {len(y)} items: row n of X must be item n "
                "(answers.items gives their order; items in no pair are declared with items=[...])."
            )
        self.seed_ = seed_of(self.random_state)
        self.shape_, self.annotators_ = inputs.shape, y.annotators
        if len(inputs.shape) == 1:
            self.n_features_in_ = inputs.shape[0]
        train, held = self._split(y.votes)
        self._order = np.arange(self.n_clusters)
        device = find_device(self.device)
        with seeded(device):
            torch.manual_seed(self.seed_)
            twins, head = self._twins(inputs.shape, Scale.of(inputs) if self.scale else None, len(self.annotators_))
            head.watch(twins.network, inputs, device, train.n_votes)
            pairs: Any = PairInputs(inputs, y.pairs)
            self._trainer = Trainer(twins, head, pairs, train, self._plan(), held=held, device=device)
        self.history_: list[Epoch] = self._trainer.run(callback, self.checkpoint)
        self._order = canonical(self._clusters(inputs))
        self.classes_ = np.arange(1, self.n_clusters + 1)
        self.consensus_ = self._clustering(y, self._clusters(inputs), time.perf_counter() - began)  # type: ignore[assignment]
        return self

    def _twins(self, shape: tuple[int, ...], scale: Scale | None, n_annotators: int) -> tuple[Twins, Pairs]:
        K = int(self.n_clusters)
        network = self.network
        if isinstance(network, str) and network == "paper":
            body: nn.Module = networks.mlp(shape, K, hidden=(512, 512), dropout=0.0)
        else:
            body = networks.build(network, shape, K)
        whole = nn.Sequential(Scale.identity(shape) if scale is None else scale, body)
        return Twins(whole), Pairs(n_annotators, K, self.confusion, float(self.weight), int(self.volume_sample))

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return self._twins(shape, None, votes.n_annotators)[1]

    def _clusters(self, inputs: Inputs) -> Floats:
        """N x K probabilities, in the order of the result's clusters."""
        trainer = self._trainer
        network: Any = trainer.network
        network.eval()
        found = []
        with torch.no_grad():
            for lo in range(0, len(inputs), 1024):
                x = inputs.rows(np.arange(lo, min(lo + 1024, len(inputs)))).to(trainer.device)
                found.append(torch.log_softmax(network.network(x).float(), dim=1))
        return probabilities(torch.cat(found))[:, self._order]

    def _clustering(self, answers: Similarities, q: Floats, seconds: float) -> Clustering:
        facts = agreements(answers, q)
        rate = (facts["counts"] + 0.5) / (facts["counts"] + 0.5).sum(axis=2, keepdims=True)
        return Clustering(
            method=self.key, params={name: plain(value) for name, value in self.get_params(deep=False).items()},
            item_names=answers.items, annotator_names=answers.annotators, posterior=q,
            cluster_codes=q.argmax(axis=1).astype(np.int32), prior=q.mean(axis=0),
            sensitivity=rate[:, 1, 1].copy(), specificity=rate[:, 0, 0].copy(), **facts,
            trace=-np.array([epoch.loss for epoch in self.history_]), iterations=self.history_[-1].epoch,
            seconds=seconds, seed=self.seed_, n_answers=answers.n_answers, kind=answers.kind,
        )  # fmt: skip

    # ---------------------------------------------------------------- using it

    @property
    def confusion_(self) -> Floats:
        """B: P(says the same, given the two clusters), K x K; M x K x K where each annotator has an own one."""
        self._fitted()
        head: Any = self._trainer.head
        with torch.no_grad():
            B = head.matrices().double().cpu().numpy()[:, self._order][:, :, self._order]
        return np.asarray(B if self.confusion == "own" else B[0])

    def predict_proba(self, X: Any, votes: Any = None) -> Floats:
        """N x K probabilities of the clusters, from the inputs."""
        self._fitted()
        if votes is not None:
            raise ParameterError(f"{self.key} predicts from inputs alone: leave the answers out.")
        return self._clusters(self._inputs(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """For answers their mean log likelihood; for true kinds the adjusted Rand index."""
        self._fitted()
        if not isinstance(y, Similarities):
            from sklearn.metrics import adjusted_rand_score

            return float(adjusted_rand_score(np.asarray(y), self.predict(X)))
        q = self.predict_proba(X)
        place = {name: m for m, name in enumerate(self.annotators_.tolist())}
        who = np.array([place.get(name, -1) for name in y.annotators.tolist()])[y.annotator]
        B = self.confusion_
        a, b = y.pairs[y.pair].T
        own = B.ndim == 3
        matrix = np.where((who >= 0)[:, None, None], B[who], B.mean(axis=0)) if own else B[None]
        same = np.einsum("ek,ekl,el->e", q[a], np.broadcast_to(matrix, (len(a), *B.shape[-2:])), q[b])
        log_p = np.log(np.maximum(np.where(y.same, same, 1.0 - same), FLOOR))
        return float(np.average(log_p, weights=y.weights))

    # ---------------------------------------------------------------- keeping it

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, network: Any = None, device: str = "auto") -> Self:
        """Read what :meth:`save` wrote. A network that was not named but handed over must be handed over again."""
        import json
        from pathlib import Path

        from safetensors import SafetensorError
        from safetensors.torch import load_file

        folder = Path(folder)
        try:
            facts = json.loads((folder / "learner.json").read_text(encoding="utf-8"))
            tensors = load_file(folder / "weights.safetensors")
        except (OSError, ValueError, SafetensorError) as error:
            raise ReadError(f"{folder} does not hold a readable learner: {error}.") from error
        if facts.get("method") != cls.key:
            raise ReadError(f"{folder} holds a {facts.get('method')} learner, not {cls.key}.")
        if facts["custom_network"] and network is None:
            raise ReadError(
                f"The learner in {folder} has a network of your own: hand it over again, load(network=...)."
            )
        params = facts["params"] | {"device": device, "checkpoint": None}
        learner = cls(**(params if network is None else params | {"network": network}))
        learner.consensus_ = Clustering.load(folder / "consensus")  # type: ignore[assignment]
        learner._restore(facts, tensors)
        return learner

    _kept: ClassVar[tuple[str, ...]] = ("_order",)

    def _restore(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.annotators_ = self.consensus_.annotator_names
        self.classes_ = np.arange(1, self.n_clusters + 1)
        self.seed_, self.shape_ = facts["seed"], tuple(facts["shape"])
        self.history_ = [Epoch(**epoch) for epoch in facts["history"]]
        self._order = np.asarray(facts["kept"]["_order"])
        twins, head = self._twins(self.shape_, None, len(self.annotators_))
        votes = Votes(
            np.array([0, 1]), np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32), np.arange(1),
            self.annotators_, np.array([False, True]),
        )  # fmt: skip
        blank: Any = PairInputs(as_inputs(np.zeros((2, *self.shape_), dtype=np.float32)), np.array([[0, 1]]))
        self._trainer = Trainer(twins, head, blank, votes, self._plan(), device=self.device)
        self._trainer._restore(tensors)
