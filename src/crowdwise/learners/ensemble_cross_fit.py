"""Several learners, weighted by the votes on items that they have not seen; then one network on what they agree on.

1. Every member is trained once for each fold of the items, without the votes of that fold. What its network says of the
   fold is a prediction for items that it has not seen.
2. The predictions of each member are scored by the votes, brought to their best temperature, and averaged with the
   weights that make the votes most likely (:mod:`crowdwise.learners.held_out_votes`).
3. Averages and votes together give the class probabilities of the items. As the predictions have not seen the votes on
   an item, nothing is counted twice. Annotators whose votes share less with the inputs than with each other weigh less.
4. A new network is trained on these probabilities. It is the one that predicts.

No truth is looked at, and nothing is chosen by anything but votes. It costs as many trainings as there are members,
times folds, and one more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from crowdwise import registry
from crowdwise.core.consensus import Outcome
from crowdwise.core.constraints import Bounds, Check
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners.baselines_two_stage import FixedTargets
from crowdwise.learners.head import Head
from crowdwise.learners.held_out_votes import (
    VoteList,
    annotator_weights,
    posterior,
    scored,
    stacking,
    vote_confusions,
)
from crowdwise.learners.learner import Learner
from crowdwise.learners.tensors import as_array, probabilities
from crowdwise.learners.trainer import Trainer, TrainingData
from crowdwise.learners.training_settings import Callback, Epoch
from crowdwise.learners.vote_edges import Batch

MEMBERS = ("max-mig", "aggnet", "crowd-layer")
Members = Annotated[
    Any,
    Check(
        lambda value: not isinstance(value, str) and isinstance(value, Sequence) and len(value) > 0,
        "the keys of learners with a network",
        (("ccem",),),
        ((), 3),
    ),
]


class Pooled(FixedTargets):
    """Soft labels as targets; votes weighted by annotator."""

    u: Tensor

    def __init__(self, n_annotators: int, n_classes: int, target: Tensor, confusion: Tensor, u: Tensor) -> None:
        super().__init__(n_annotators, n_classes, target, confusion)
        self.register_buffer("u", u)

    def posterior_log_probs(self, batch: Batch) -> Tensor:
        u = self.or_unseen(batch, self.u[self.known_codes(batch)], lambda: self.u.mean().expand(len(batch.annotator)))
        votes = batch.total((batch.weight * u.to(batch.weight))[:, None] * self._log_columns(batch))
        return torch.log_softmax(self.predict_log_probs(batch) + votes, dim=1)


@declared
class Ensemble(Learner):
    """Several learners averaged by how well they predict votes on unseen items, and a network trained on the result.

    Parameters
    ----------
    members
        The keys of learners with a network. A setting of training other than its default here (``network``,
        ``epochs``, ``device``...) is theirs as well.
    folds
        In how many parts the items are split; every member is trained on all but one of them, each part in turn.

    Attributes
    ----------
    weights_, temperatures_, scores_
        Of each member, in the order of ``members``: its share of the average, the temperature of its predictions, and
        the mean log-likelihood of a vote on an item it has not seen.
    annotator_weights_
        M: how much each annotator's votes count; one for those whose mistakes are their own.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.machine(n_annotators=6, n_items=300, votes_per_item=3, random_state=0)
    >>> learner = Ensemble(members=("aggnet", "ccem"), folds=2, epochs=10, random_state=0)
    >>> learner = learner.fit(crowd.features["x_train"], crowd.votes)
    >>> len(learner.weights_), round(sum(learner.weights_), 3)
    (2, 1.0)
    """

    key: ClassVar[str] = "ensemble"
    saved: ClassVar[tuple[str, ...]] = ("weights_", "temperatures_", "scores_")
    members: Members = MEMBERS
    folds: Annotated[int, Bounds(minimum=2)] = 5
    labels: Literal["hard", "soft"] = "soft"

    @property
    def annotator_weights_(self) -> Floats:
        return as_array(self._head_as(Pooled).u)

    def _check_together(self) -> None:
        super()._check_together()
        for key in self.members:
            entry = registry.find(key, inputs=True)
            if entry.key == self.key or not issubclass(entry.load(), Learner):
                raise ParameterError(f"members: {key} has no network of its own to average. Leave it out.")

    @classmethod
    def _loaded_params(cls, folder: Path, params: dict[str, Any], network: Any, device: str) -> dict[str, Any]:
        return super()._loaded_params(folder, params, network, device) | {"members": tuple(params["members"])}

    def _train(self, data: TrainingData, callback: Callback | None) -> Trainer:
        used = np.flatnonzero(np.diff(data.votes.indptr) > 0)
        if len(used) < self.folds:
            raise InputError(f"{len(used)} items with votes cannot be split into folds={self.folds} parts.")
        fold = np.full(len(data.votes), -1)
        fold[used] = np.random.default_rng([self.seed_, 1]).permutation(len(used)) % self.folds
        progress = _Numbered(callback, len(self.members) * self.folds + 1)
        gold = None if self.select == "gold" else data.gold
        votes = VoteList.of(data.votes)
        found = [
            scored(self._unseen(turn, data, gold, fold, progress), votes, fold) for turn in range(len(self.members))
        ]
        weights = stacking(np.stack([one.said for one in found]), votes.weight)
        self.weights_ = [float(w) for w in weights]
        self.temperatures_, self.scores_ = [one.temperature for one in found], [one.score for one in found]
        p = np.einsum("j,jnk->nk", weights, np.stack([one.p for one in found]))
        theta = vote_confusions(p, votes)
        u = annotator_weights(p, theta, votes)
        q = posterior(p, theta, u, votes)
        if gold is not None:
            q[gold >= 0] = np.eye(q.shape[1])[gold[gold >= 0]]
        self._pooled = (q, p, theta, u)
        trainer = self._prepare(data)
        self.history_ = trainer.run(progress.next(), self.checkpoint)
        return trainer

    def _unseen(
        self, turn: int, data: TrainingData, gold: Ints | None, fold: Ints, progress: _Numbered
    ) -> Floats:  # fmt: skip
        """N x K: what a member says of items, each time without the votes on them; uniform for items without votes."""
        votes = data.votes
        p = np.full((len(votes), votes.n_classes), 1.0 / votes.n_classes)
        for j in range(self.folds):
            own = fold == j
            member = self._member(turn, j)
            train = votes.select(~own[np.repeat(np.arange(len(votes)), np.diff(votes.indptr))])
            known = None if gold is None else np.where(own, -1, gold)
            trainer = member.train_on(data.inputs, train, known, progress.next())
            p[own] = probabilities(trainer.log_probs(data.inputs, np.flatnonzero(own)))
        return p

    def _member(self, turn: int, j: int) -> Learner:
        """A learner with the settings of this one, as far as they are not its defaults."""
        entry, default = registry.find(self.members[turn], inputs=True), type(self).parameters()
        known = entry.load().parameters()
        given = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name in known and value is not default[name] and value != default[name]
        }
        given["random_state"] = self.seed_ + 1 + turn * self.folds + j
        given |= {"select": "last", "patience": None, "holdout": None}
        if self.checkpoint is not None:
            file = Path(self.checkpoint)
            given["checkpoint"] = file.with_name(f"{file.stem}-{self.members[turn]}-{j}{file.suffix}")
        learner: Learner = entry.create(**given)
        return learner

    def _head(self, votes: Votes, hidden: int) -> Head:
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        found = getattr(self, "_pooled", None)
        if found is None:  # a loaded learner reads its tensors
            even = torch.full((M, K, K), 1.0 / K)
            return Pooled(M, K, torch.full((N, K), 1.0 / K), even, torch.ones(M))
        q, _, theta, u = found
        if self.labels == "hard":
            q = np.eye(K)[q.argmax(axis=1)]
        target, theta, u = (torch.tensor(np.array(part), dtype=torch.float32) for part in (q, theta, u))
        return Pooled(M, K, target, theta, u)

    def _outcome(self, found: Trainer, votes: Votes) -> Outcome:
        """The class probabilities of the third step: the last network has seen the votes they come from."""
        q, p, theta, u = self._pooled
        del self._pooled
        return Outcome(
            posterior=q, prior=q.mean(axis=0), confusion=theta, item_prior=np.log(p), **self._trace(),
            annotator_columns={"weight": u},
        )  # fmt: skip


class _Numbered:
    """Callbacks of several trainings, with their epochs numbered through; where one ends the fit, the others stop."""

    def __init__(self, callback: Callback | None, n_trainings: int) -> None:
        self.callback, self.n_trainings = callback, n_trainings
        self.turn, self.ended = 0, False

    def next(self) -> Callback:
        """The callback of the next training."""
        turn, self.turn = self.turn, self.turn + 1

        def report(epoch: Epoch) -> bool:
            total = epoch.epochs * self.n_trainings
            if self.callback is not None and not self.ended:
                numbered = replace(epoch, epoch=turn * epoch.epochs + epoch.epoch, epochs=total)
                self.ended = self.callback(numbered) is True
            return self.ended

        return report
