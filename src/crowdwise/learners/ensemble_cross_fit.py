"""The learner chosen by votes on items it has not seen; then networks on what it says there, and on the votes.

1. Every candidate is trained once for each fold of the items, without the votes on that fold. What its network says of
   the fold are predictions for items that it has not seen. They are scored by the votes on them and brought to their
   best temperature (:mod:`crowdwise.learners.held_out_votes`). A later candidate takes the place of an earlier one only
   where it is clearly better.
2. Predictions and votes together give the class probabilities of the items. Because the predictions have not seen the
   votes on an item, these are not counted twice. Votes that err together count less, by a power that the predictions
   choose.
3. A new network is trained on these probabilities, again once for each fold. Where the votes are more likely under its
   predictions for unseen items than before, they give new class probabilities. ``rounds`` says how often.
4. A few networks are trained on the class probabilities of all items. Their average, with those of the last round where
   it counted, predicts; at a temperature, where the votes on unseen items clearly ask for one.

No truth is looked at: votes and predictions choose the candidate, the temperature, the power, and whether a round
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise import registry
from crowdwise.core.consensus import Outcome
from crowdwise.core.constraints import Bounds, Check, Count, fixed_seed
from crowdwise.core.dependence import Dependence
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.parameters import declared
from crowdwise.data.boundary import guarded
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners.baselines_two_stage import FixedTargets
from crowdwise.learners.head import Head
from crowdwise.learners.held_out_votes import Scored, VoteList, clearly_better, scored
from crowdwise.learners.inference import Inference
from crowdwise.learners.inputs import Inputs, Scale
from crowdwise.learners.learner import Learner
from crowdwise.learners.network_estimator import NetworkChoice
from crowdwise.learners.tensors import probabilities
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training_data import TrainingData
from crowdwise.learners.training_settings import Callback, Epoch
from crowdwise.learners.vote_edges import Batch

CANDIDATES = ("max-mig", "aggnet")
Candidates = Annotated[
    Any,
    Check(
        lambda value: not isinstance(value, str) and isinstance(value, Sequence) and len(value) > 0,
        "the keys of learners with a network",
        (("ccem",),),
        ((), 3),
    ),
]


class MeanNetwork(nn.Module):
    """Several networks as one, whose probabilities are the mean of theirs, at a temperature."""

    def __init__(self, networks: Sequence[nn.Module], temperature: float = 1.0) -> None:
        super().__init__()
        self.networks, self.temperature = nn.ModuleList(networks), temperature

    def forward(self, x: Any) -> Tensor:
        each = torch.stack([torch.log_softmax(network(x).float(), dim=1) for network in self.networks])
        return torch.logsumexp(each, dim=0) / self.temperature


class LabelsAndVotes(FixedTargets):
    """Labels as targets; new votes count with a power beside the networks."""

    def __init__(self, n_annotators: int, n_classes: int, target: Tensor, confusion: Tensor, power: float) -> None:
        super().__init__(n_annotators, n_classes, target, confusion)
        self.power = power

    def _evidence(self, batch: Batch) -> Tensor:
        return self.power * super()._evidence(batch)


class Turns:
    """Callbacks of several trainings, whose epochs are numbered through; where one ends the fit, all others end."""

    def __init__(self, callback: Callback | None, epochs: Sequence[int]) -> None:
        self.callback, self.epochs = callback, epochs
        self.turn, self.ended = 0, False

    def next(self) -> Callback:
        """The callback of the next training."""
        before, self.turn = sum(self.epochs[: self.turn]), self.turn + 1

        def report(epoch: Epoch) -> bool:
            if self.callback is not None and not self.ended:
                through = replace(epoch, epoch=before + epoch.epoch, epochs=sum(self.epochs))
                self.ended = self.callback(through) is True
            return self.ended

        return report


class CrossFit(NamedTuple):
    """What networks say of items whose votes they have not seen."""

    p: Floats
    """N x K, at the best temperature."""
    fold: Ints
    """N: the part of each item; -1 for items without votes."""
    notes: list[str]
    """How rows and items were put side by side, where that is worth a word."""


@declared
class Ensemble(Learner):
    """A learner chosen by the votes on items that it has not seen, and networks trained on its labels.

    It costs as many trainings as candidates and rounds together, times folds, and ``n_networks`` more. ``consensus_``
    has the class probabilities that the last networks were trained on, from votes and from predictions that have not
    seen them; ``predict_proba(X, votes)`` on the same items would count the votes twice.

    Parameters
    ----------
    candidates
        The keys of learners with a network, the one to prefer first. A setting of training that is not the default
        here (``network``, ``epochs``, ``device``...) is theirs as well.
    folds
        In how many parts the items are split; networks are trained on all but one of them, each part in turn.
    rounds
        How often networks are trained on the labels of the round before.
    n_networks
        How many networks are trained on all items in the end.
    fold_epochs
        How many epochs the networks of the folds are trained for; by default as many as the others. For large networks
        a few suffice to choose a candidate; where votes are few or poor, the labels are then worse.

    Attributes
    ----------
    chosen_
        The candidate that the votes have chosen.
    scores_
        The mean log-likelihood of a vote on an unseen item: of each candidate, then of each round.
    n_averaged_
        How many networks predict: ``n_networks``, and ``folds`` more where the last round counted.
    vote_power_
        The power of the votes' likelihood beside the networks: 1 for votes that err independently, less for others.
    temperature_
        What the logarithms of the networks' mean probabilities are divided by: 1, unless votes on items that the
        networks of the last round have not seen clearly ask for another. 1 without rounds.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=200, votes_per_item=3, random_state=0)
    >>> learner = Ensemble(candidates=("aggnet", "ccem"), folds=2, epochs=10, random_state=0)
    >>> learner = learner.fit(crowd.features["x_train"], crowd.votes)
    >>> learner.chosen_, len(learner.scores_)
    ('aggnet', 3)
    """

    key: ClassVar[str] = "ensemble"
    selects_epoch: ClassVar[bool] = False
    corrects: ClassVar[bool] = True
    saved: ClassVar[tuple[str, ...]] = ("chosen_", "scores_", "n_averaged_", "vote_power_", "temperature_")
    candidates: Candidates = CANDIDATES
    folds: Annotated[int, Bounds(minimum=2)] = 5
    rounds: Annotated[int, Bounds(minimum=0)] = 1
    n_networks: Count = 3
    fold_epochs: Count | None = None
    network: NetworkChoice = "herde"
    _targets: tuple[Floats, Floats] | None = field(init=False, default=None)
    """q and theta, while networks are trained on them."""
    _trained: list[nn.Module] = field(init=False, default_factory=list)
    """Networks to be averaged."""
    _held_out: Votes | None = field(init=False, default=None)
    """Votes that measure the fit."""
    _several: bool = field(init=False, default=True)
    """Whether a network that is built is the mean of all."""

    def _check_together(self) -> None:
        super()._check_together()
        for key in self.candidates:
            entry = registry.find(key, inputs=True)
            if entry.key == self.key or not issubclass(entry.load(), Learner):
                raise ParameterError(f"candidates: {key} has no network of its own. Leave it out.")

    def _learn(self, inputs: Inputs, answers: Any, gold: Ints | None, callback: Callback | None) -> Trainer:
        trainer = super()._learn(inputs, answers, gold, callback)
        self.n_averaged_ = len(self._trained)
        mean = MeanNetwork(self._trained, self.temperature_)
        self._trainer = Inference(mean, trainer.head, self._settings(), trainer.device)
        self._trained = []
        if self._held_out is not None:
            votes, self._held_out = self._held_out, None
            score = self._trainer.vote_log_likelihood(self._edges(votes), trainer.inputs) / float(votes.weights.sum())
            self.history_[-1] = replace(self.history_[-1], held_out=score)
        return trainer

    @guarded
    def cross_fit(self, X: Any, votes: Votes, gold: Any = None, *, callback: Callback | None = None) -> CrossFit:
        """The predictions for unseen items alone, of the last round that counted: there are no networks on all items.

        The learner is not fitted by it. What is given is as in :meth:`fit`.
        """
        self.check_parameters()
        inputs, votes = self._beside(X, self._answers(votes), None, votes)
        data = TrainingData(inputs, votes, None, self._gold(votes, gold))
        self.seed_, self.history_ = fixed_seed(self.random_state), []
        self._describe(votes.annotators, votes.classes, inputs.shape)
        turns = Turns(callback, self._epochs()[: (len(self.candidates) + self.rounds) * self.folds])
        fold = self._folds(votes)
        found = self._best(data, data.gold, fold, turns)
        self._targets, self._trained = None, []
        return CrossFit(found.p, fold, self._said)

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        gold = None if self.select == "gold" else data.gold
        turns, self._held_out = Turns(callback, self._epochs()), data.held_out
        best = self._best(data, gold, self._folds(data.votes), turns)
        self._targets, self._p = self._labelled(best, VoteList.of(data.votes), gold), best.p
        self.vote_power_ = best.power
        return self._final(data, turns)

    def _best(self, data: TrainingData, gold: Ints | None, fold: Ints, turns: Turns) -> Scored:
        """The best candidate, or what the last round made of it; its networks, where that counted, are kept."""
        votes = VoteList.of(data.votes)
        judges = votes.judges()
        best: Scored | None = None
        self.scores_ = []
        for key in self.candidates:
            found = scored(self._unseen(key, data, gold, fold, turns), judges, fold)
            self.scores_.append(found.score)
            if best is None or clearly_better(found, best, judges):
                best, self.chosen_ = found, key
        assert best is not None
        averaged: list[nn.Module] = []
        self.temperature_ = 1.0
        for turn in range(self.rounds):
            self._targets, self._trained = self._labelled(best, votes, gold), []
            found = scored(self._unseen(f"round{turn + 1}", data, gold, fold, turns), judges, fold)
            self.scores_.append(found.score)
            self.temperature_ = found.network_temperature
            if found.score > best.score:
                best, averaged = found, self._trained
        self._trained = averaged
        return best

    def _epochs(self) -> list[int]:
        """The epochs of every training, in their order."""
        own = [self._candidate(key, 0, None).epochs for key in self.candidates]
        folds = [
            epochs for epochs in (*own, *[self.fold_epochs or self.epochs] * self.rounds) for _ in range(self.folds)
        ]
        return folds + [self.epochs] * self.n_networks

    def _folds(self, votes: Votes) -> Ints:
        """N: the part of each item, -1 for items without votes."""
        used = np.flatnonzero(np.diff(votes.indptr) > 0)
        if len(used) < self.folds:
            raise InputError(f"{len(used)} items with votes cannot be split into folds={self.folds} parts.")
        fold = np.full(len(votes), -1)
        fold[used] = np.random.default_rng([self.seed_, 1]).permutation(len(used)) % self.folds
        return fold

    def _labelled(self, found: Scored, votes: VoteList, gold: Ints | None) -> tuple[Floats, Floats]:
        """q, with the known classes, and theta."""
        q, theta = found.labels(votes)
        if gold is not None:
            q[gold >= 0] = np.eye(q.shape[1])[gold[gold >= 0]]
        return q, theta

    def _unseen(self, name: str, data: TrainingData, gold: Ints | None, fold: Ints, turns: Turns) -> Floats:
        """N x K: predictions for items by networks trained without the votes on them; of items without votes, the
        mean of all networks."""
        votes, none = data.votes, np.flatnonzero(fold < 0)
        p = np.zeros((len(votes), votes.n_classes))
        for j in range(self.folds):
            own = fold == j
            seed = self.seed_ + 1 + turns.turn
            train = votes.select(~own[votes.item])
            known = None if gold is None else np.where(own, -1, gold)
            part, file = TrainingData(data.inputs, train, None, known), self._file(f"{name}-{j}", turns)
            if name.startswith("round"):
                trainer = self._one(part, seed, turns.next(), file, self.fold_epochs)
            else:
                member = self._candidate(name, seed, file)
                trainer = member.train_on(part.inputs, part.votes, part.gold, turns.next())
            p[own] = probabilities(trainer.log_probs(data.inputs, np.flatnonzero(own)))
            if len(none):
                p[none] += probabilities(trainer.log_probs(data.inputs, none)) / self.folds
        return p

    def _one(
        self, data: TrainingData, seed: int, callback: Callback, file: Path | None, epochs: int | None = None
    ) -> Trainer:  # fmt: skip
        """One more network, trained on the labels so far; ``history_`` is its own."""
        before = self.seed_, self.epochs
        self.seed_, self.epochs, self._several = seed, epochs or self.epochs, False
        try:
            trainer = self._prepare(data)
        finally:
            (self.seed_, self.epochs), self._several = before, True
        self.history_ = trainer.run(callback, file)
        self._trained.append(trainer.network)
        return trainer

    def _final(self, data: TrainingData, turns: Turns) -> Trainer:
        """Networks on the labels of all items; what is returned is the last one."""
        for j in range(self.n_networks):
            file = self._file(f"network-{j}", turns)
            trainer = self._one(data, self.seed_ + 1 + turns.turn, turns.next(), file)
        return trainer

    def _file(self, name: str, turns: Turns) -> Path | None:
        """The checkpoint of one training; none where a fit was ended, and what follows is not on its final labels."""
        if self.checkpoint is None or turns.ended:
            return None
        file = Path(self.checkpoint)
        return file.with_name(f"{file.stem}-{name}{file.suffix}")

    def _candidate(self, key: str, seed: int, file: Path | None) -> Learner:
        """A learner with the settings of this one, as far as they are not its defaults."""
        entry, default = registry.find(key, inputs=True), type(self).parameters()
        known = entry.load().parameters()
        given = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name in known and value is not default[name] and value != default[name]
        }
        given |= {"random_state": seed, "select": "last", "patience": None, "holdout": None, "checkpoint": file}
        if self.fold_epochs is not None:
            given["epochs"] = self.fold_epochs
        learner: Learner = entry.create(**given)
        return learner

    def _build(self, votes: Votes, shape: tuple[int, ...], scale: Scale) -> tuple[nn.Module, Head]:
        if not self._several:
            return super()._build(votes, shape, scale)
        made = [super(Ensemble, self)._build(votes, shape, scale) for _ in range(self.n_averaged_)]
        return MeanNetwork([network for network, _ in made], self.temperature_), made[0][1]

    def _head(self, votes: Votes, hidden: int) -> Head:
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        if self._targets is None:  # a loaded learner reads its tensors
            q, theta = torch.full((N, K), 1.0 / K), torch.full((M, K, K), 1.0 / K)
        else:
            q, theta = (torch.tensor(np.array(part), dtype=torch.float32) for part in self._targets)
        return LabelsAndVotes(M, K, q, theta, getattr(self, "vote_power_", 1.0))

    def _outcome(self, found: Trainer, votes: Votes) -> Outcome:
        """The class probabilities of the last round: the last networks have seen the votes they come from."""
        assert self._targets is not None
        (q, theta), p = self._targets, self._p
        self._targets = None
        del self._p
        notes = [] if self.vote_power_ == 1.0 else [
            f"Votes err together: they count with the power {self.vote_power_} beside what the networks say."
        ]  # fmt: skip
        facts = {"item_prior": np.log(p), "notes": notes, **self._trace()}
        return Outcome(posterior=q, prior=q.mean(axis=0), confusion=theta, **facts)

    def _dependence(self, votes: Votes, outcome: Outcome) -> Dependence:
        """n votes count as ``vote_power_`` times as many already; the correlation that is left is as much smaller."""
        found = super()._dependence(votes, outcome)
        return replace(found, rho=self.vote_power_ * found.rho) if found.source == "votes" else found

    @classmethod
    def _loaded_params(cls, folder: Path, params: dict[str, Any], network: Any, device: str) -> dict[str, Any]:
        return super()._loaded_params(folder, params, network, device) | {"candidates": tuple(params["candidates"])}
