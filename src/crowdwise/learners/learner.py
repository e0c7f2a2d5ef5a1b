"""Classifiers from inputs and votes with a network: ``fit(X, votes)``.

A learner is a network, a head (what its method adds) and the one training loop. Its parameters are those of
:class:`~crowdwise.learners.network_estimator.NetworkEstimator` and the method's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from crowdwise.core.consensus import Outcome
from crowdwise.core.numerics import Floats, Ints, safe_log
from crowdwise.core.parameters import declared
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.network_estimator import NetworkEstimator
from crowdwise.learners.tensors import probabilities
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.vote_edges import Edges
from crowdwise.learners.votes_classifier import VotesClassifier


@declared
class Learner(NetworkEstimator, VotesClassifier):
    """The base of learners from votes with a network. A subclass gives ``_head``."""

    def _gold(self, answers: Any, gold: Any) -> Ints | None:
        known = super()._gold(answers, gold)
        if self.select == "gold" and (known is None or not (known >= 0).any()):
            raise InputError("select='gold' chooses the epoch by known classes: give them, fit(X, votes, gold=...).")
        return known

    def _training_data(self, inputs: Inputs, answers: Any) -> tuple[Inputs, Votes]:
        return inputs, self._votes_of(answers)

    # ---------------------------------------------------------------- the result

    def _outcome(self, found: Trainer, votes: Votes) -> Outcome:
        trainer = found
        q, f = self._posterior(trainer, votes)
        return Outcome(
            posterior=q,
            prior=f.mean(axis=0),
            confusion=self.confusion_,
            trace=-np.array([epoch.loss for epoch in self.history_]),
            iterations=self.history_[-1].epoch,
            item_prior=safe_log(f),
            **self._columns(trainer),
        )

    def _posterior(self, trainer: Trainer, votes: Votes) -> tuple[Floats, Floats]:
        """N x K probabilities of the items of the fit, given inputs and votes; N x K, given inputs alone."""
        log_q, log_f = [], []
        for batch in trainer.batches(Edges.of(votes, trainer.device), trainer.inputs):
            log_f.append(trainer.head.predict_log_probs(batch))
            log_q.append(trainer.head.posterior_log_probs(batch))
        return probabilities(torch.cat(log_q)), probabilities(torch.cat(log_f))

    def _columns(self, trainer: Trainer) -> dict[str, Any]:
        """What else the method knows: ``annotator_columns`` and ``item_columns`` of the consensus."""
        return {}

    # ---------------------------------------------------------------- after the fit

    @property
    def confusion_(self) -> Floats:
        """M x K x K: P(annotator m says l, given truth k), in the order of ``annotators_`` and ``classes_``."""
        return self._confusions()

    def _probabilities(self, inputs: Inputs, votes: Votes | None) -> Floats:
        if votes is None:
            return probabilities(self._trainer.log_probs(inputs))
        return probabilities(self._trainer.posterior(self._edges(votes), inputs))

    def _log_likelihood(self, inputs: Inputs, votes: Votes) -> float:
        return self._trainer.vote_log_likelihood(self._edges(votes), inputs)

    def _edges(self, votes: Votes) -> Edges:
        return Edges.of(votes, self._trainer.device)
