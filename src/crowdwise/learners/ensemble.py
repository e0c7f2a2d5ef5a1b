"""Networks and plain regressions, mixed by votes on items that they have not seen.

1. Softmax regression on the consensus of the votes, and on their shares, is cross-fitted: for each fold of the items,
   without the votes on that fold. Where votes are few, one-sided or a matter of taste a network is often no better.
   The shares of the classes, the same for every item, are a member too: inputs may say nothing.
2. Every candidate is trained once for each fold, too, and predicts the fold. Predictions are compared by the votes on
   these items (:mod:`crowdwise.learners.held_out_votes`). A later candidate, and after them a plain one, takes the
   place of an earlier one only where it is clearly better.
3. Predictions and votes together give the class probabilities of the items. Because the predictions have not seen the
   votes on an item, these are not counted twice. Votes that err together count less, by a power that the predictions
   choose.
4. A new network is trained on these probabilities, again once for each fold. Networks and plain members are mixed, with
   the weights under which the votes on unseen items are most likely. Where these are more likely than before, the
   mixture gives new class probabilities. ``rounds`` says how often.
5. The networks of the last round and the plain members predict with these weights; at a temperature, where the votes on
   unseen items clearly ask for one.

No truth is looked at: votes and predictions choose the candidate, the weights, the temperature, the power, and whether
a round counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise import registry
from crowdwise.core import starts
from crowdwise.core.consensus import Outcome
from crowdwise.core.constraints import Bounds, Check, Count, Positive, declared, fixed_seed
from crowdwise.core.dependence import Dependence
from crowdwise.core.numerics import Floats, Ints, clamp, normalise
from crowdwise.data.boundary import guarded
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners import held_out_votes, networks
from crowdwise.learners.baselines import FixedTargets
from crowdwise.learners.devices import find_device, one_torch_thread, probabilities
from crowdwise.learners.head import Head
from crowdwise.learners.held_out_votes import Scored, VoteList, clearly_better, crowd_vote_probs, mean_log, scored
from crowdwise.learners.inputs import ArrayInputs, Inputs, InputScale
from crowdwise.learners.learner import Learner, consensus
from crowdwise.learners.network_estimator import NetworkChoice
from crowdwise.learners.tabular import Softmax, flat_scale, log_softmax, scaled_rows
from crowdwise.learners.trainer import Inference, Trainer, TrainingData
from crowdwise.learners.training_settings import Callback, Epoch
from crowdwise.learners.vote_edges import Batch, used_items

CANDIDATES = ("max-mig",)
SAYS_LITTLE = (
    "Inputs predict the votes on other items no better than the shares of the labels do, or not by more than chance: "
    "annotators were judged by votes alone, and predictions from inputs may be guesses."
)
MAX_ROWS, MIN_EPOCHS = 80_000, 10
"""Of rows of numbers: so many in all epochs of a training are enough, and the fewest epochs."""
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
    """Several networks as one, whose probabilities are the weighted mean of theirs, at a temperature."""

    weights: Tensor

    def __init__(self, networks: Sequence[nn.Module], weights: Sequence[float], temperature: float = 1.0) -> None:
        super().__init__()
        self.networks, self.temperature = nn.ModuleList(networks), temperature
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32))

    def forward(self, x: Any) -> Tensor:
        each = torch.stack([torch.log_softmax(network(x).float(), dim=1) for network in self.networks])
        return torch.logsumexp(each + self.weights.log()[:, None, None], dim=0) / self.temperature


class LabelsAndVotes(FixedTargets):
    """Labels as targets; new votes count with a power beside the networks."""

    def __init__(self, n_annotators: int, n_classes: int, target: Tensor, confusion: Tensor, power: float) -> None:
        super().__init__(n_annotators, n_classes, target, confusion)
        self.power = power

    def _evidence(self, batch: Batch) -> Tensor:
        return self.power * super()._evidence(batch)


class Turns:
    """Callbacks of several trainings, whose epochs are numbered through; where one ends the fit, all others end.

    With a budget every training has its share of the seconds that are left, and at least one epoch.
    """

    def __init__(self, callback: Callback | None, epochs: Sequence[int], budget: float | None = None) -> None:
        self.callback, self.epochs = callback, epochs
        self.turn, self.ended, self.cut = 0, False, 0
        self.end = math.inf if budget is None else time.perf_counter() + budget

    def next(self) -> Callback:
        """The callback of the next training."""
        left, now = len(self.epochs) - self.turn, time.perf_counter()
        until = now + (self.end - now) / left
        before, self.turn = sum(self.epochs[: self.turn]), self.turn + 1

        def report(epoch: Epoch) -> bool:
            if self.callback is not None and not self.ended:
                through = replace(epoch, epoch=before + epoch.epoch, epochs=sum(self.epochs))
                self.ended = self.callback(through) is True
            late = time.perf_counter() > until and epoch.epoch < epoch.epochs
            self.cut += late
            return self.ended or late

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
    """Networks and plain regressions, mixed by the votes on items that they have not seen.

    It costs as many trainings as candidates and rounds together, times folds, and ``n_networks`` more. ``consensus_``
    has the class probabilities from votes and from predictions that have not seen them; ``predict_proba(X, votes)`` on
    the same items would count the votes twice.

    Parameters
    ----------
    candidates
        The keys of learners with a network, the one to prefer first. They have the settings of training of this one
        (``epochs``, ``lr``, ``device``...), and its ``network`` where one is given.
    plain
        Whether softmax regression on the consensus of the votes, and on their shares, and the shares of the classes are
        members as well. Inputs of more than 30 million numbers, or not in memory, have none.
    folds
        In how many parts the items are split; networks are trained on all but one of them, each part in turn.
    rounds
        How often networks are trained on the labels of the round before. Those of the last round predict.
    n_networks
        How many networks are trained on all items in the end, and predict as well; at least one without rounds.
    epochs
        Of each training. By default 40; on rows of numbers fewer, down to 10, where 80,000 rows are passed before.
    fold_epochs
        How many epochs the networks of the folds are trained for; by default as many as the others. For large networks
        a few suffice to choose a candidate; where votes are few or poor, the labels are then worse.
    budget
        Seconds that the trainings may take together. Each has its share of what is left, and at least one epoch; what
        was learned by then counts.

    Attributes
    ----------
    chosen_
        The candidate whose predictions, with the votes, gave the labels that networks were first trained on.
    scores_
        The mean log-likelihood of a vote on an unseen item, under one confusion matrix of the whole crowd: of each
        candidate, plain member and round, by name.
    weights_
        The weight of the ``"networks"`` and of each plain member in predictions.
    n_averaged_
        How many networks predict, besides the plain members.
    vote_power_
        The power of the votes' likelihood beside the networks: 1 for votes that err independently, less for others.
    temperature_
        What the logarithms of the mean probabilities are divided by: 1, unless votes on items that the members have
        not seen clearly ask for another. 1 without rounds.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=200, votes_per_item=3, random_state=0)
    >>> learner = Ensemble(candidates=("aggnet", "ccem"), folds=2, epochs=10, random_state=0)
    >>> learner = learner.fit(crowd.features["x_train"], crowd.votes)
    >>> learner.chosen_, len(learner.scores_)
    ('consensus', 6)
    """

    key: ClassVar[str] = "ensemble"
    selects_epoch: ClassVar[bool] = False
    saved: ClassVar[tuple[str, ...]] = ("chosen_", "scores_", "weights_", "n_averaged_", "vote_power_", "temperature_")
    candidates: Candidates = CANDIDATES
    plain: bool = True
    folds: Annotated[int, Bounds(minimum=2)] = 5
    rounds: Annotated[int, Bounds(minimum=0)] = 1
    n_networks: Annotated[int, Bounds(minimum=0)] = 0
    fold_epochs: Count | None = None
    budget: Positive | None = None
    network: NetworkChoice = "herde"
    epochs: Count = 40
    batch_size: Count = 128
    lr: Positive = 2e-3
    crowd_lr: Positive = 2e-2
    _targets: tuple[Floats, Floats] | None = field(init=False, default=None)
    """q and theta, while networks are trained on them."""
    _trained: list[nn.Module] = field(init=False, default_factory=list)
    """Networks to be averaged."""
    _plain: list[Plain] = field(init=False, default_factory=list)
    _enough: int | None = field(init=False, default=None)
    """Epochs of a training where those of the default are more than enough."""
    _held_out: Votes | None = field(init=False, default=None)
    """Votes that measure the fit."""

    def _check_together(self) -> None:
        super()._check_together()
        for key in self.candidates:
            entry = registry.find(key, inputs=True)
            if entry.key == self.key or not issubclass(entry.load(), Learner):
                raise ParameterError(f"candidates: {key} has no network of its own. Leave it out.")

    def _learn(self, inputs: Inputs, answers: Any, gold: Ints | None, callback: Callback | None) -> Trainer:
        trainer = super()._learn(inputs, answers, gold, callback)
        self.n_averaged_ = len(self._trained)
        mean = self._mean([*self._trained, *(one.network for one in self._plain)])
        self._trainer = Inference(mean, trainer.head, self._settings(), trainer.device)
        self._trained, self._plain = [], []
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
        inputs, votes, at = self._beside(X, self._answers(votes), None, votes)
        data = TrainingData(inputs, votes, None, self._gold(votes, gold))
        self._item_weight = self._weighed(votes, data.gold, None, at)
        self.seed_, self.history_ = fixed_seed(self.random_state), []
        self._describe(votes.annotators, votes.classes, inputs.shape)
        self._limit_epochs(data)
        n = (len(self.candidates) + self.rounds) * self.folds
        turns = Turns(callback, self._epochs()[:n], self.budget)
        fold = self._folds(votes)
        best = self._best(data, data.gold, fold, turns)
        self._targets, self._trained, self._plain = None, [], []
        return CrossFit(best.p, fold, [*self._notes, *self._cut(turns)])

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        gold = None if self.select == "gold" else data.gold
        self._limit_epochs(data)
        turns, self._held_out = Turns(callback, self._epochs(), self.budget), data.held_out
        small = find_device(self.device).type == "cpu" and len(data.inputs.shape) == 1
        with one_torch_thread() if small else nullcontext():
            best = self._best(data, gold, self._folds(data.votes), turns)
            votes = VoteList.of(data.votes, self._by_votes)
            self._targets, self._p = self._labelled(best, votes, gold), best.p
            self.vote_power_ = best.power
            if best.base == "votes":
                self._notes.append(SAYS_LITTLE)
            for j in range(self._n_final()):
                self._one(data, self.seed_ + 1 + turns.turn, turns.next(), self._file(f"network-{j}", turns))
            trainer = self._prepare(data)  # with the head of all labels
        self._notes += self._cut(turns)
        return trainer

    def _cut(self, turns: Turns) -> list[str]:
        """What to say of trainings that the budget ended."""
        of = f"{turns.cut} of {len(turns.epochs)} trainings"
        return [f"The budget of {self.budget:g} s ended {of} before their last epoch."] if turns.cut else []

    def _best(self, data: TrainingData, gold: Ints | None, fold: Ints, turns: Turns) -> Scored:
        """The best candidate, or what the last round made of it; the networks of that round are kept."""
        self._by_votes = consensus(data.votes, gold)
        votes = VoteList.of(data.votes, self._by_votes)
        judges = votes.judges(data.votes.n_classes)
        if self.plain:
            scale = InputScale.of(data.inputs) if self.scale else InputScale.identity(self.shape_)
            self._plain = plain_members(data, gold, fold, scale, judges, self._item_weight)
        predictions = {key: self._unseen(key, data, gold, fold, turns) for key in self.candidates}
        network = self.candidates[0]
        vote_probs = {name: crowd_vote_probs(p, judges, fold) for name, p in predictions.items()}
        predictions |= {one.name: one.p for one in self._plain}
        vote_probs |= {one.name: one.vote_probs for one in self._plain}
        self.chosen_ = network
        for name in predictions:
            if clearly_better(vote_probs[name], vote_probs[self.chosen_], judges):
                self.chosen_ = name
                network = name if name in self.candidates else network
        self.scores_ = {name: mean_log(each, judges) for name, each in vote_probs.items()}
        best, score = scored(predictions[self.chosen_], judges, fold), self.scores_[self.chosen_]
        self._weigh(vote_probs[network], judges)
        self._trained, self.temperature_ = [], 1.0
        for turn in range(self.rounds):
            self._targets, self._trained = self._labelled(best, votes, gold), []
            p = self._unseen(name := f"round{turn + 1}", data, gold, fold, turns)
            mixed = self._weigh(crowd_vote_probs(p, judges, fold), judges)
            p = self.weights_["networks"] * p
            for one in self._plain:
                p = p + self.weights_[one.name] * one.p
            mixture = scored(p, judges, fold)
            self.scores_[name], self.temperature_ = mean_log(mixed, judges), mixture.network_temperature
            if self.scores_[name] > score:
                best, score = mixture, self.scores_[name]
        return best

    def _weigh(self, networks: Floats, judges: VoteList) -> Floats:
        """Set the weights of networks and plain members; E: the probability of each vote under their mixture."""
        each = {"networks": networks} | {one.name: one.vote_probs for one in self._plain}
        w = held_out_votes.mixture_weights(list(each.values()), judges)
        self.weights_ = dict(zip(each, w.tolist(), strict=True))
        return np.asarray(np.stack(list(each.values()), axis=1) @ w)

    def _mean(self, members: Sequence[nn.Module]) -> MeanNetwork:
        """Networks and, after them, plain members as one."""
        own, *plain = self.weights_.values()
        return MeanNetwork(members, [own / self.n_averaged_] * self.n_averaged_ + plain, self.temperature_)

    def _epochs(self) -> list[int]:
        """The epochs of every training, in their order."""
        full = self._enough or self.epochs
        folds = [self.fold_epochs or full] * (len(self.candidates) + self.rounds) * self.folds
        return folds + [full] * self._n_final()

    def _limit_epochs(self, data: TrainingData) -> None:
        """Fewer epochs for many rows of numbers, unless their number was given."""
        default = self.epochs == type(self).parameters()["epochs"] and len(data.inputs.shape) == 1
        rows = max(int(used_items(data.votes).sum()), 1)
        self._enough = min(self.epochs, max(MIN_EPOCHS, MAX_ROWS // rows)) if default else None

    def _n_final(self) -> int:
        """How many networks are trained on all items."""
        return self.n_networks or int(self.rounds == 0)

    def _folds(self, votes: Votes) -> Ints:
        """N: the part of each item, -1 for items without votes."""
        used = np.flatnonzero(used_items(votes))
        if len(used) < self.folds:
            raise InputError(f"{len(used)} items with votes cannot be split into folds={self.folds} parts.")
        fold = np.full(len(votes), -1)
        fold[used] = np.random.default_rng([self.seed_, 1]).permutation(len(used)) % self.folds
        return fold

    def _labelled(self, best: Scored, votes: VoteList, gold: Ints | None) -> tuple[Floats, Floats]:
        """q, with the known classes, and theta."""
        q, theta = best.labels(votes)
        return clamp(q, gold), theta

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
        self.seed_, self.epochs = seed, epochs or self._enough or self.epochs
        try:
            trainer = self._prepare(data)
        finally:
            self.seed_, self.epochs = before
        self.history_ = trainer.run(callback, file)
        self._trained.append(trainer.network)
        return trainer

    def _file(self, name: str, turns: Turns) -> Path | None:
        """The checkpoint of one training; none where a fit was ended, and what follows is not on its final labels."""
        return None if turns.ended else self._checkpoint_of(name)

    def _candidate(self, key: str, seed: int, file: Path | None) -> Learner:
        """A learner with the settings of this one, and its network where that is not the default."""
        entry, default = registry.find(key, inputs=True), type(self).parameters()["network"]
        known = entry.load().parameters()
        params = {name: value for name, value in self.get_params(deep=False).items() if name in known}
        if self.network is default or self.network == default:
            del params["network"]
        params |= {"random_state": seed, "select": "last", "patience": None, "holdout": None, "checkpoint": file}
        params["epochs"] = self.fold_epochs or self._enough or self.epochs
        learner: Learner = entry.create(**params)
        learner._item_weight = self._item_weight
        return learner

    def _rebuild(self, votes: Votes, shape: tuple[int, ...], scale: InputScale) -> tuple[nn.Module, Head]:
        members = [self._build(votes, shape, scale) for _ in range(self.n_averaged_)]
        plain = [
            nn.Sequential(InputScale.identity(shape), networks.linear(shape, votes.n_classes))
            for _ in range(len(self.weights_) - 1)
        ]
        return self._mean([*(network for network, _ in members), *plain]), members[0][1]

    def _head(self, votes: Votes, hidden: int) -> Head:
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        if self._targets is None:  # a loaded learner reads its tensors
            q, theta = torch.full((N, K), 1.0 / K), torch.full((M, K, K), 1.0 / K)
        else:
            q, theta = (torch.tensor(np.array(part), dtype=torch.float32) for part in self._targets)
        return LabelsAndVotes(M, K, q, theta, getattr(self, "vote_power_", 1.0))

    def _outcome(self, trainer: Trainer, votes: Votes) -> Outcome:
        """The class probabilities of the last round: the last networks have seen the votes they come from."""
        assert self._targets is not None
        (q, theta), p = self._targets, self._p
        self._targets = None
        del self._p
        note = f"Votes err together: they count with the power {self.vote_power_} beside what the networks say."
        facts = {"item_prior": np.log(p), "notes": [] if self.vote_power_ == 1.0 else [note], **self._trace()}
        return Outcome(posterior=q, prior=q.mean(axis=0), confusion=theta, **facts)

    def _dependence(self, votes: Votes, outcome: Outcome) -> Dependence:
        """n votes count as ``vote_power_`` times as many already; the correlation that is left is as much smaller."""
        dependence = super()._dependence(votes, outcome)
        return (
            replace(dependence, rho=self.vote_power_ * dependence.rho) if dependence.source == "crowds" else dependence
        )

    @classmethod
    def _loaded_params(cls, folder: Path, params: dict[str, Any], network: Any, device: str) -> dict[str, Any]:
        return super()._loaded_params(folder, params, network, device) | {"candidates": tuple(params["candidates"])}


SPREADS = (2.0, 1.0, 0.5)
"""The prior standard deviation of the logits: the next is tried where votes are more likely under it than before."""
MAX_NUMBERS = 30_000_000
"""The most numbers of all inputs together; networks on images of more than that have no plain members beside them."""


class Plain(NamedTuple):
    """A plain member."""

    name: str
    p: Floats
    """N x K: of items whose votes it has not seen; of items without votes, by all votes."""
    vote_probs: Floats
    """E: the probability of each vote that judges."""
    network: nn.Module
    """Trained on all items."""


def plain_members(
    data: TrainingData, gold: Ints | None, fold: Ints, scale: InputScale, judges: VoteList,
    weight: Floats | None = None,
) -> list[Plain]:  # fmt: skip
    """The plain members, none for inputs that are large or not in memory.

    Poor votes on many features ask for more shrinkage than good ones: votes on unseen items choose it, by the first.
    """
    inputs, votes = data.inputs, data.votes
    if not isinstance(inputs, ArrayInputs):
        return []
    if (inputs.array.nnz if inputs.sparse else len(inputs) * math.prod(inputs.shape)) > MAX_NUMBERS:
        return []
    x = scaled_rows(inputs, *flat_scale(scale, inputs.shape)).astype(np.float32)
    D, K = x.shape[1], votes.n_classes
    makers: dict[str, Callable[[Votes, Ints | None], Floats]] = {"consensus": consensus, "shares": starts.shares}
    if votes.n_annotators == 1:
        del makers["consensus"]
    members: list[Plain] = []
    spreads: tuple[float, ...] = SPREADS

    def linear(coef: Floats) -> nn.Module:
        network = networks.linear(inputs.shape, K)
        with torch.no_grad():
            network.head.weight.copy_(torch.from_numpy(coef[:-1].T))
            network.head.bias.copy_(torch.from_numpy(coef[-1]))
        return nn.Sequential(scale, network)

    for name, make in makers.items():  # cross-fitted and fitted to all items in one go
        labels = []
        for j in range(fold.max() + 2):  # all items last
            own = fold == j
            known = None if gold is None else np.where(own, -1, gold)
            train = votes.select(~own[votes.item])
            used = used_items(train, known)
            labels.append(make(train, known) * (used if weight is None else used * weight)[:, None])
        if not members:
            counts = [np.bincount(each.argmax(axis=1), each.sum(axis=1), minlength=K) for each in labels]
            shares = normalise(np.asarray(counts, dtype=np.float64) + 1.0 / K, axis=1)
        model, best = Softmax(D, len(labels) * K, 0.0), -math.inf
        for spread in spreads:
            model.ridge = D / spread**2
            model.fit(x, np.stack(labels, axis=1))
            p = np.exp(log_softmax(np.asarray(x @ model.coef[:-1] + model.coef[-1]).reshape(len(fold), -1, K)))
            p = p[np.arange(len(fold)), fold]  # fold -1: by all items
            vote_probs = crowd_vote_probs(p, judges, fold)
            if (score := mean_log(vote_probs, judges)) <= best:
                break
            best, spreads = score, (spread,)
            member = Plain(name, p, vote_probs, linear(model.coef[:, -K:]))
        members.append(member)
    coef = np.zeros((D + 1, K))
    coef[-1] = np.log(shares[-1])
    vote_probs = crowd_vote_probs(shares[fold], judges, fold, rounds=1)  # where EM begins, it ends
    return [*members, Plain("constant", shares[fold], vote_probs, linear(coef))]
