"""A crowd layer on the tokens of sequences, each of which is an item: a network on a token and its neighbours.

The network takes a window of ``2 window + 1`` tokens around each token (their features, and a mark of the places inside
the sequence) and predicts K tag probabilities p; the layer of annotator m turns them into probabilities of m's tags, as
in :mod:`crowdwise.learners.layers`. The tagging reported is the valid one (BIO) with the largest product of the tokens'
probabilities. F. Rodrigues and F. Pereira, Deep learning from crowds, AAAI 2018 (their network is a CNN and a GRU).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from crowdwise.answers.tags_result import TagConsensus, checked_truth, decode
from crowdwise.core.consensus import Outcome
from crowdwise.core.constraints import CountFromZero, declared
from crowdwise.core.numerics import Floats, Ints, safe_log
from crowdwise.core.result import Result
from crowdwise.core.unseen import recode
from crowdwise.data import tags
from crowdwise.data.tags import Tags
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners.head import Head, Predict
from crowdwise.learners.inputs import ArrayInputs, Index, Inputs
from crowdwise.learners.layers import CrowdWeights, Kind
from crowdwise.learners.learner import Learner
from crowdwise.learners.vote_edges import Batch


class WindowInputs(ArrayInputs):
    """Windows of tokens: (D + 1) x (2 window + 1), the last row marks the places inside the sequence."""

    def __init__(self, features: npt.NDArray[Any], starts: npt.NDArray[Any], window: int) -> None:
        super().__init__(features)
        self.starts, self.window = starts, window
        of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        self.low, self.high = starts[of], starts[of + 1]
        self.shape = (features.shape[1] + 1, 2 * window + 1)

    def rows(self, index: Index) -> Tensor:
        place = np.asarray(index)[:, None] + np.arange(-self.window, self.window + 1)
        inside = ((place >= self.low[index][:, None]) & (place < self.high[index][:, None]))[:, :, None]
        features = np.where(inside, self.array[np.where(inside[:, :, 0], place, 0)], 0.0)
        both = np.concatenate([features, inside], axis=2).astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(both).all(axis=(1, 2)))
        if len(bad):
            raise InputError(f"Token {index[bad[0]]} of X (or a neighbour) holds NaN or infinity: fill it in first.")
        return torch.from_numpy(both.transpose(0, 2, 1).copy())


def token_features(X: Any, starts: npt.NDArray[Any] | None) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
    """T x D features and where sequences begin, from a list of L x D arrays, or from T x D features with ``starts``."""
    if isinstance(X, (list, tuple)):
        if not X:
            raise InputError("X is empty: expected an array of tokens x features for every sequence.")
        parts = [np.asarray(x, dtype=np.float32) for x in X]
        for g, x in enumerate(parts):
            if x.ndim != 2 or x.shape[0] == 0 or x.shape[1] != parts[0].shape[1]:
                raise InputError(
                    f"Sequence {g} of X has the shape {x.shape}, and the first {parts[0].shape}: expected tokens x "
                    "features, as many features in each."
                )
        return np.concatenate(parts), np.concatenate([[0], np.cumsum([len(x) for x in parts])])
    array = np.asarray(X, dtype=np.float32)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"Expected tokens x features, or a list of such arrays by sequence; found {array.shape}.")
    if starts is None:
        raise InputError("One array does not say where sequences begin: give a list of arrays, or starts=...")
    cuts = np.asarray(starts, dtype=np.int64)
    if cuts.ndim != 1 or len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != len(array) or (np.diff(cuts) < 1).any():
        raise InputError(f"starts must rise from 0 to the {len(array)} tokens of X, by at least one token a sequence.")
    return array, cuts


@declared
class CrowdLayerTags(Learner):
    """A network over windows of tokens, and a crowd layer for each annotator.

    ``fit(X, tags)`` takes the features of the tokens: a list with an array of tokens x features for every sequence of
    the tags, or one array of all tokens in their order. ``predict(X)`` gives a valid tagging.

    Parameters
    ----------
    window
        How many tokens on either side the network takes.
    kind
        The form of an annotator's layer, as in :class:`~crowdwise.CrowdLayer`.
    warm_up
        So many epochs train the network on the votes without the layers: otherwise layers can exchange tags among
        themselves.

    >>> import numpy as np, crowdwise as cw
    >>> crowd = cw.simulate.bio_tags(60, random_state=0)
    >>> X = np.eye(7)[crowd.truth] + np.random.default_rng(0).normal(size=(crowd.tags.n_tokens, 7))
    >>> learner = CrowdLayerTags(epochs=5, random_state=0).fit(X, crowd.tags)
    >>> learner.predict(X, starts=crowd.tags.starts).shape == crowd.truth.shape
    True
    """

    key: ClassVar[str] = "crowd-layer-tags"
    table: ClassVar[type] = Tags
    result: ClassVar[type[Result]] = TagConsensus
    window: CountFromZero = 2
    kind: Kind = "MW"
    warm_up: CountFromZero = 5

    def _beside(self, X: Any, answers: Tags, items: Any, y: Any) -> tuple[Inputs, Tags, None]:
        if items is not None:
            raise ParameterError(f"{self.key} takes sequences in the order of tags.sequences: leave items= out.")
        self._remember(None, None)
        self._notes = []
        return self._windows(X, answers, None), answers, None

    def _gold(self, answers: Tags, gold: Any) -> Ints | None:
        known = super()._gold(answers, gold)
        return None if known is None else checked_truth(answers, known)

    def _votes_of(self, answers: Tags) -> Votes:
        return answers.votes

    def _labels(self, outcome: Outcome, answers: Tags) -> npt.NDArray[np.int32]:
        return self._tagging(outcome.posterior, answers.starts, answers.scheme)

    def _head(self, votes: Votes, hidden: int) -> Head:
        return WarmCrowdWeights(votes.n_annotators, votes.n_classes, self.kind, self.warm_up)

    def predict_proba(self, X: Any, tags: Tags | None = None, *, starts: Any = None) -> Floats:  # type: ignore[override]
        """T x K probabilities from the features; with ``tags``, from features and tags together.

        ``starts`` says where sequences begin (G + 1 numbers) where X is one array.
        """
        self._fitted()
        inputs = self._check_shape(self._windows(X, tags, starts))
        return self._probabilities(inputs, None) if tags is None else self._with_votes(inputs, tags.votes)

    def predict(self, X: Any, tags: Tags | None = None, *, starts: Any = None) -> npt.NDArray[Any]:  # type: ignore[override]
        """The valid tagging with the largest product of the tokens' probabilities, sequence after sequence."""
        q = self.predict_proba(X, tags, starts=starts)
        cuts = tags.starts if tags is not None else token_features(X, starts)[1]
        return np.asarray(self.classes_[self._tagging(q, cuts, self.consensus_.scheme)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, starts: Any = None) -> float:  # type: ignore[override]
        """The accuracy over tokens, for true tags; for :class:`~crowdwise.Tags` their mean log-likelihood."""
        self._fitted()
        if isinstance(y, Tags):
            inputs = self._check_shape(self._windows(X, y, None))
            return self._log_likelihood(inputs, recode(y.votes, self.consensus_)) / float(y.votes.weights.sum())
        flat = np.concatenate([np.asarray(part) for part in y]) if is_nested(y) else np.asarray(y)
        predicted = self.predict(X, starts=starts)
        if predicted.shape != flat.shape:
            raise InputError(f"X has {len(predicted)} tokens and y {flat.shape} tags: expected one for each.")
        return float(np.average(predicted == flat, weights=sample_weight))

    def _windows(self, X: Any, tags: Tags | None, starts: Any) -> WindowInputs:
        features, cuts = token_features(X, starts if tags is None else tags.starts)
        if tags is not None and not np.array_equal(cuts, tags.starts):
            raise InputError(
                f"X has {len(cuts) - 1} sequences with {cuts[-1]} tokens, the tags {len(tags)} with {tags.n_tokens}: "
                "expected the same sequences, of the same lengths, in the order of tags.sequences."
            )
        return WindowInputs(features, cuts, self.window)

    def _tagging(self, q: Floats, starts: npt.NDArray[Any], scheme: str) -> npt.NDArray[np.int32]:
        return decode(safe_log(q), np.where(tags.allowed(self.classes_, scheme), 0.0, -np.inf), starts, q.mean(axis=0))


class WarmCrowdWeights(CrowdWeights):
    """The crowd layer, after some epochs in which the network is trained on the votes without it."""

    def __init__(self, n_annotators: int, n_classes: int, kind: str, warm_up: int) -> None:
        super().__init__(n_annotators, n_classes, kind)
        self.warm_up, self.warm = warm_up, False

    def begin_epoch(self, epoch: int, predict: Predict) -> None:
        self.warm = epoch < self.warm_up

    def loss(self, batch: Batch) -> Tensor:
        if self.warm:
            return batch.item_mean(-batch.log_f[batch.row, batch.label])
        return super().loss(batch)


def is_nested(y: Any) -> bool:
    """Whether tags are given sequence by sequence."""
    return isinstance(y, (list, tuple)) and len(y) > 0 and not isinstance(y[0], (str, int, np.generic))
