"""Classifiers from inputs and votes: ``fit(X, votes)``, and then they work like any classifier of scikit-learn's.

A :class:`Learner` is a network, a head (what its method adds) and the one training loop; a
:class:`~crowdwise.learners.tabular.Tabular` classifier has a data model on features instead of a network.
"""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin

from crowdwise import registry
from crowdwise.core.consensus import Consensus, Outcome, consensus_fields
from crowdwise.core.constraints import Check, checked, declared, fixed_seed
from crowdwise.core.dependence import Dependence, Setting, correct, votes_per_item
from crowdwise.core.numerics import Floats, Ints, clamp, decide, safe_log
from crowdwise.core.prediction_sets import Inside, PredictionSets, conformal_thresholds, members
from crowdwise.core.result import Result
from crowdwise.core.unseen import recode
from crowdwise.core.vote_parts import VoteParts, resolve
from crowdwise.data import encoding
from crowdwise.data.boundary import scored_by_sklearn
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning, InputError, LabelError, ParameterError, listing
from crowdwise.learners.devices import probabilities
from crowdwise.learners.estimator import Estimator
from crowdwise.learners.inputs import Inputs
from crowdwise.learners.named_inputs import answers_in, one_each
from crowdwise.learners.network_estimator import NetworkEstimator
from crowdwise.learners.trainer import Trainer
from crowdwise.learners.training_settings import Callback
from crowdwise.learners.vote_edges import Edges


def as_votes(y: Any) -> Votes:
    """Votes from votes, a data frame, an items x annotators array, or one label per item."""
    if isinstance(y, Votes):
        votes = y
    elif (table := answers_in(y, Votes, "label")) is not None:
        votes = table
    elif y is None:
        raise InputError("fit requires y to be passed, but the target y is None: give the votes on the rows of X.")
    else:
        rows, items = one_each(y)
        labels = np.asarray(rows)
        if labels.ndim == 0:
            raise InputError(f"Expected votes and found {y!r}. Make them with Votes.from_frame or read_votes.")
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.dtype.kind == "c":
            raise InputError("Complex data not supported: labels must be numbers or text.")
        if labels.ndim == 1 and labels.dtype.kind == "f":
            if not np.isfinite(labels).all():
                raise InputError("The labels hold NaN or infinity: leave those rows out.")
            if (labels != np.round(labels)).any():
                raise InputError("Unknown label type: continuous. Labels must be classes: whole numbers or text.")
        dense = labels[:, None] if labels.ndim == 1 else labels
        votes = Votes.from_dense(dense, annotators=["labels"] if labels.ndim == 1 else None, items=items)
    if votes.n_classes < 2:
        raise LabelError(
            f"All votes say {listing(votes.classes[:1])}: with one class there is nothing to learn. "
            "If there are other classes without votes, declare them: classes=[...]."
        )
    return votes


ClassWeights = Annotated[
    Any,
    Check(
        lambda value: isinstance(value, Mapping) and all(is_weight(w) for w in value.values()),
        "a mapping from class to a weight of at least 0",
        (),
        ("no such word", 3),
    ),
]


def is_weight(value: Any) -> bool:
    """Whether it is a finite number from 0 on."""
    return isinstance(value, (int, float, np.number)) and bool(np.isfinite(value) and value >= 0)


def row_weights(weights: Any, items: npt.NDArray[Any], at: Ints | None) -> Floats:
    """N: the weights of items, from those of the rows of X (``at``: the row of each item) or by name; 1 without any."""
    if weights is None:
        return np.ones(len(items))
    n_rows = len(items) if at is None else max(len(items), int(at.max(initial=-1)) + 1)
    if isinstance(weights, Mapping):
        weights, at = [weights.get(name, 1.0) for name in items.tolist()], None
    weight = np.asarray(weights, dtype=np.float64)
    if weight.ndim != 1 or len(weight) < n_rows or (at is None and len(weight) != len(items)):
        raise InputError(
            f"sample_weight has the shape {weight.shape}: expected one number for each of {n_rows:,} rows."
        )
    weight = weight if at is None else weight[at]
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise InputError("sample_weight: expected numbers of at least 0.")
    if not weight.any():
        raise InputError("sample_weight: all weights are zero, which leaves nothing to learn from.")
    return weight


def fitted_default(votes: Votes, gold: Ints | None = None) -> Consensus:
    """The consensus of the default method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted: Consensus = registry.create(registry.DEFAULT).fit(votes, gold).consensus_
    return fitted


def consensus(votes: Votes, gold: Ints | None) -> Floats:
    """The posterior of the default method, with the correction for votes that err together; the shares of the votes of
    a single annotator."""
    if votes.n_annotators == 1:
        return clamp(votes.shares(), gold)
    return np.asarray(fitted_default(votes, gold).corrected_posterior)


@declared
class VotesClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """The base of classifiers from votes, with a network (:class:`Learner`) or without.

    Parameters
    ----------
    dependence
        Of classifiers from votes: whether the probabilities of ``consensus_`` and of ``predict_proba(X, votes)`` allow
        for votes that err together, ``"auto"``, ``"none"``, or a correlation from 0 to 1
        (:mod:`crowdwise.core.dependence`). What a network says was learned from the same annotators and counts as one
        more vote, so no label changes by it. ``consensus_.independent_posterior`` is that of the method's paper.
    class_weight
        Of classifiers from votes: how much items of each class count in learning from inputs, a mapping from class to
        weight (1 where there is none) or ``"balanced"``, as if classes were equally frequent. Since the class of an
        item is not known, its weight is the mean over its class probabilities by the votes (``auto``).
    """

    table: ClassVar[type] = Votes
    result: ClassVar[type[Result]] = Consensus
    takes_gold: ClassVar[bool] = True

    dependence: Setting = "auto"
    class_weight: Literal["balanced"] | ClassWeights | None = None

    def _outcome(self, learned: Any, votes: Votes) -> Any:
        """What :meth:`_learn` gave, for the consensus: an :class:`~crowdwise.core.consensus.Outcome`."""
        return learned

    @abstractmethod
    def _probabilities(self, inputs: Inputs, votes: Votes | None) -> Floats:
        """N x K class probabilities from inputs, or from inputs and votes (in the codes of the fit).

        Annotators with codes from M on were not in the fit.
        """

    @abstractmethod
    def _log_likelihood(self, inputs: Inputs, votes: Votes) -> float:
        """The log-likelihood of votes, each times its weight."""

    def _answers(self, y: Any) -> Any:
        if isinstance(y, Votes) and scored_by_sklearn():
            y.true_labels()
        return as_votes(y) if self.table is Votes else super()._answers(y)

    def _weighed(self, answers: Any, gold: Ints | None, sample_weight: Any, at: Ints | None) -> Floats | None:
        if sample_weight is None and self.class_weight is None:
            return None
        if self.table is not Votes:
            raise ParameterError(f"{self.key} learns from {self._noun}: it has no use for weights. Leave them out.")
        weight = row_weights(sample_weight, answers.items, at)
        if self.class_weight is None:
            return weight
        q = consensus(answers, gold)
        names = answers.classes.tolist()
        if isinstance(self.class_weight, str):
            each = len(q) / np.maximum(len(names) * q.sum(axis=0), 1.0)
        else:
            unknown = [name for name in self.class_weight if name not in names]
            if unknown:
                raise ParameterError(
                    f"class_weight: there is no class {listing(unknown)}; the classes are {listing(names, 10)}."
                )
            each = np.array([float(self.class_weight.get(name, 1.0)) for name in names])
        return np.asarray(weight * (q @ each))

    def _result(self, learned: Any, answers: Any, gold: Ints | None, began: float) -> Result:
        votes = self._votes_of(answers)
        outcome = self._outcome(learned, votes)
        used = self._dependence(votes, outcome)
        facts = consensus_fields(votes, outcome, self._labels(outcome, answers), gold, dependence=used)
        if used.source != "none":
            facts["notes"] = [*outcome.notes, used.reason]
        return self.result.of(self, answers, seconds=time.perf_counter() - began, seed=self.seed_, **facts)

    def _dependence(self, votes: Votes, outcome: Outcome) -> Dependence:
        """How strongly votes on an item, and the network, depend on each other."""
        parts = VoteParts.whole(votes, None, outcome.item_prior)
        return resolve(self.dependence, parts, lambda _: outcome.posterior, shared_prior=True)

    def _votes_of(self, answers: Any) -> Any:
        """The answers as votes."""
        return answers

    def _labels(self, outcome: Outcome, answers: Any) -> npt.NDArray[np.int32]:
        """The codes of the consensus labels."""
        return decide(outcome.posterior, outcome.prior, "prior", np.random.default_rng(self.seed_))

    def predict_proba(self, X: Any, votes: Votes | None = None, *, items: Any = None) -> Floats:
        """N x K class probabilities from the inputs; with ``votes``, from inputs and votes together.

        Row n is that of row n of X. Votes are found by the names of rows, which ``items`` are where X does not hold
        them; votes on rows without names are taken in their order. The probabilities allow for votes that err together
        (parameter ``dependence``).
        """
        self._fitted()
        if votes is None:
            return self._probabilities(self._new_inputs(X), None)
        inputs, place = self._with_answers(X, votes, items)
        return np.asarray(self._with_votes(inputs, votes)[place])

    def _with_votes(self, inputs: Inputs, votes: Votes) -> Floats:
        """N x K class probabilities from inputs and votes, which allow for votes that err together."""
        new = recode(votes, self.consensus_)
        q = self._probabilities(inputs, new)
        if isinstance(self.dependence, str) and self.dependence == "none":
            return q
        return correct(q, votes_per_item(new), self.consensus_.shown_dependence)

    def predict(self, X: Any, votes: Votes | None = None, *, items: Any = None) -> npt.NDArray[Any]:
        """The most probable class of each input, with ``votes`` and ``items`` as in :meth:`predict_proba`."""
        q = self.predict_proba(X) if votes is None else self.predict_proba(X, votes, items=items)
        return np.asarray(self.classes_[q.argmax(axis=1)])

    def predict_annotators(self, X: Any, who: Any = None) -> Floats:
        """N x A x K: the probability of each label that an annotator would give to an input.

        ``who`` names the annotators, by default all of ``annotators_`` in their order; one who was not in the fit
        answers like the crowd.
        """
        self._fitted()
        names = self.annotators_ if who is None else encoding.to_vocabulary(who)
        if names.ndim != 1 or not len(names):
            raise InputError("who: expected the names of annotators, a list of one or more.")
        code = np.asarray(encoding.locate(names, self.annotators_))
        return self._vote_probabilities(self._new_inputs(X), np.where(code < 0, len(self.annotators_), code))

    def _vote_probabilities(self, inputs: Inputs, codes: Ints) -> Floats:
        """N x A x K: probabilities of annotators' labels; codes from M on are of the crowd."""
        theta = np.concatenate([self.confusion_, self.confusion_.mean(axis=0, keepdims=True)])
        return np.asarray(np.einsum("nk,akl->nal", self._probabilities(inputs, None), theta[codes]))

    @checked
    def predict_set(
        self, X: Any, coverage: Inside = 0.95, *, gold: tuple[Any, Any], by_class: bool = False
    ) -> PredictionSets:
        """For each input the classes that hold its true one with this probability, whatever the crowd.

        ``gold`` are inputs and their true classes that were drawn at random from inputs like X, and not learned from
        (:mod:`crowdwise.core.prediction_sets`).
        """
        X_gold, names = gold[0], np.asarray(gold[1]).tolist()
        code = {name: k for k, name in enumerate(self.classes_.tolist())}
        unknown = [name for name in names if name not in code]
        if unknown or not names:
            raise InputError(
                f"gold: expected inputs and their classes, such as {self.classes_[0]!r}; found {unknown[:3]}."
            )
        codes = np.array([code[name] for name in names])
        least, exact = conformal_thresholds(self.predict_proba(X_gold), codes, coverage, by_class)
        member = members(self.predict_proba(X), least)
        return PredictionSets(np.arange(len(member)), self.classes_, member, exact, least)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, items: Any = None) -> float:
        """The accuracy, for true labels; for votes, whose truth is unknown, their mean log-likelihood.

        Truth in a mapping or in a Series with an index is found by the names of the rows.
        """
        self._fitted()
        if isinstance(y, Votes):
            log_p = self._log_likelihood(self._new_inputs(X, y, items), recode(y, self.consensus_))
            return log_p / float(y.weights.sum())
        from sklearn.metrics import accuracy_score

        predicted, true, weight = self._paired(X, y, sample_weight, items)
        return float(accuracy_score(true, predicted, sample_weight=weight))


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

    def train_on(
        self, inputs: Inputs, votes: Votes, gold: Ints | None = None, callback: Callback | None = None
    ) -> Trainer:  # fmt: skip
        """Train, without a consensus: for methods that train several learners."""
        self.check_parameters()
        self.seed_, self.history_ = fixed_seed(self.random_state), []
        self._describe(votes.annotators, votes.classes, inputs.shape)
        return self._learn(inputs, votes, gold, callback)

    def _outcome(self, trainer: Trainer, votes: Votes) -> Outcome:
        q, f = self._posterior(trainer, votes)
        facts = self._trace() | self._columns(trainer)
        return Outcome(posterior=q, prior=f.mean(axis=0), confusion=self.confusion_, item_prior=safe_log(f), **facts)

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

    def _vote_probabilities(self, inputs: Inputs, codes: Ints) -> Floats:
        return self._trainer.vote_probabilities(inputs, codes)

    def _edges(self, votes: Votes) -> Edges:
        return Edges.of(votes, self._trainer.device)
