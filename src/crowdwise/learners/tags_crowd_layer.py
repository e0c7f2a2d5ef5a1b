"""A crowd layer on the tokens of sequences: a network that looks at a token and its neighbours, and annotators' layers.

``crowd-layer-tags``: the network sees a window of ``2 window + 1`` tokens around each token (their features, and a mark
that says which places are inside the sequence) and answers with K tag probabilities p; the layer of annotator m makes
of them what m would say, softmax_l( sum_k p[k] W[m, k, l] ), as in :mod:`crowdwise.learners.layers_crowd_layer`. The
tagging reported is the valid one (BIO) with the largest product of the tokens' probabilities.

Everything else (training, held-out votes, saving) is that of all learners; a token is an item.

F. Rodrigues and F. Pereira, Deep learning from crowds, AAAI 2018 (their network for CoNLL is a CNN and a GRU over
words).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from crowdwise.answers.tags_result import TagConsensus, checked_truth, decode, tag_consensus, valid_only
from crowdwise.core.checks import check_choice, check_count
from crowdwise.core.numerics import Floats, safe_log
from crowdwise.core.result import Result
from crowdwise.data import tag_schemes
from crowdwise.data.tags import Tags
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError
from crowdwise.learners.head import Head, Predict
from crowdwise.learners.inputs import ArrayInputs, Index, Inputs
from crowdwise.learners.layers_crowd_layer import KINDS, CrowdWeights, summed
from crowdwise.learners.learner import Learner
from crowdwise.learners.training import Callback
from crowdwise.learners.vote_edges import Batch


class WindowInputs(ArrayInputs):
    """Tokens as the network sees them: (D + 1) x (2 window + 1), the last row marking places inside the sequence."""

    def __init__(self, features: npt.NDArray[Any], starts: npt.NDArray[Any], window: int) -> None:
        super().__init__(features)
        self.starts, self.window = starts, window
        of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        self.low, self.high = starts[of], starts[of + 1]
        self._shape = (features.shape[1] + 1, 2 * window + 1)

    def rows(self, index: Index) -> Tensor:
        place = np.asarray(index)[:, None] + np.arange(-self.window, self.window + 1)
        inside = (place >= self.low[index][:, None]) & (place < self.high[index][:, None])
        some = np.where(inside[:, :, None], self.array[np.where(inside, place, 0)], 0.0)
        both = np.concatenate([some, inside[:, :, None]], axis=2).astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(both).all(axis=(1, 2)))
        if len(bad):
            raise InputError(
                f"Token {int(index[bad[0]])} of X (or a neighbour) holds NaN or infinity: fill it in first."
            )
        return torch.from_numpy(both.transpose(0, 2, 1).copy())


def token_features(X: Any, starts: npt.NDArray[Any] | None) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
    """T x D features and where sequences begin, from a list of L x D arrays, or from T x D features with ``starts``."""
    if isinstance(X, (list, tuple)):
        if not X:
            raise InputError("X is empty: expected an array of tokens x features for every sequence.")
        parts = [np.asarray(x, dtype=np.float32) for x in X]
        odd = [g for g, x in enumerate(parts) if x.ndim != 2 or x.shape[0] == 0 or x.shape[1] != parts[0].shape[-1]]
        if odd:
            raise InputError(
                f"Sequence {odd[0]} of X has the shape {parts[odd[0]].shape}: expected tokens x "
                f"{parts[0].shape[-1]} features."
            )
        cuts = np.concatenate([[0], np.cumsum([len(x) for x in parts])])
        return np.concatenate(parts), cuts
    array = np.asarray(X, dtype=np.float32)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(
            f"Expected tokens x features, or a list with such an array for every sequence; found {array.shape}."
        )
    if starts is None:
        raise InputError("Of one array nobody can tell where sequences begin: give a list of arrays, or starts=...")
    cuts = np.asarray(starts, dtype=np.int64)
    if cuts.ndim != 1 or len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != len(array) or (np.diff(cuts) < 1).any():
        raise InputError(f"starts must rise from 0 to the {len(array)} tokens of X, by at least one token a sequence.")
    return array, cuts


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdLayerTags(Learner):
    """A network over windows of tokens, and a crowd layer for each annotator.

    ``fit(X, tags)`` takes the features of the tokens: a list with an array of tokens x features for every sequence of
    the tags, or one array of all tokens in their order. ``predict(X)`` gives a valid tagging.

    Parameters
    ----------
    window
        How many tokens on either side the network sees.
    kind
        What an annotator's layer is, as in :class:`~crowdwise.CrowdLayer`.
    warmup
        Epochs of training on the votes as they are before the layers take part: without any, layers can exchange tags
        among themselves.

    Examples
    --------
    >>> import numpy as np, crowdwise as cw
    >>> crowd = cw.simulate.bio_tags(60, random_state=0)
    >>> X = np.eye(7)[crowd.truth] + np.random.default_rng(0).normal(size=(crowd.tags.n_tokens, 7))
    >>> learner = CrowdLayerTags(epochs=5, random_state=0).fit(X, crowd.tags)
    >>> learner.predict(X, starts=crowd.tags.starts).shape == crowd.truth.shape
    True
    """

    key: ClassVar[str] = "crowd-layer-tags"
    table: ClassVar[type] = Tags
    window: int = 2
    kind: str = "MW"
    warmup: int = 5
    result: ClassVar[type[Result]] = TagConsensus

    def fit(self, X: Any, y: Any, gold: Any = None, *, callback: Callback | None = None) -> Self:
        """Learn from the features of tokens and tags.

        Parameters
        ----------
        X
            A list with an array of tokens x features for every sequence of the tags, or one array of all tokens.
        y
            :class:`~crowdwise.Tags`.
        gold
            The true tags where they are known, as :meth:`crowdwise.Tags.encode_truth` takes them.
        callback
            Called with a :class:`crowdwise.learners.trainer.Epoch` after every epoch.
        """
        self._check_parameters()
        if not isinstance(y, Tags):
            raise InputError(f"{self.key} expects Tags and found {type(y).__name__}: make them with Tags.from_frame.")
        inputs = self._windows(X, y, None)
        known = None if gold is None else checked_truth(y, y.encode_truth(gold))
        self._tags = y
        try:
            super().fit(inputs, y.votes, known, callback=callback)
        finally:
            del self._tags
        return self

    def predict_proba(self, X: Any, tags: Tags | None = None, *, starts: Any = None) -> Floats:  # type: ignore[override]
        """T x K probabilities from the features; with ``tags``, from features and tags together.

        ``starts`` says where sequences begin (G + 1 numbers) where X is one array.
        """
        self._fitted()
        return super().predict_proba(self._windows(X, tags, starts), None if tags is None else tags.votes)

    def predict(self, X: Any, tags: Tags | None = None, *, starts: Any = None) -> npt.NDArray[Any]:  # type: ignore[override]
        """The valid tagging with the largest product of the tokens' probabilities, sequence after sequence."""
        self._fitted()
        cuts = tags.starts if tags is not None else token_features(X, starts)[1]
        return np.asarray(self.classes_[self._tagging(self.predict_proba(X, tags, starts=starts), cuts)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, starts: Any = None) -> float:
        """The share of right tokens, for true tags; for :class:`~crowdwise.Tags` their mean log likelihood."""
        self._fitted()
        if isinstance(y, Tags):
            return super().score(self._windows(X, y, None), y.votes)
        flat = np.concatenate([np.asarray(part) for part in y]) if _nested(y) else np.asarray(y)
        found = self.predict(X, starts=starts)
        if found.shape != flat.shape:
            raise InputError(f"X has {len(found)} tokens and y {flat.shape} tags: expected one for each.")
        return float(np.average(found == flat, weights=sample_weight))

    # ---------------------------------------------------------------- pieces

    def _head(self, votes: Votes, shape: tuple[int, ...], hidden: int) -> Head:
        return WarmCrowdWeights(votes.n_annotators, votes.n_classes, self.kind, self.warmup)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count(self, "window", least=0)
        check_count(self, "warmup", least=0)
        check_choice(self, "kind", KINDS)

    def _windows(self, X: Any, tags: Tags | None, starts: Any) -> WindowInputs:
        features, cuts = token_features(X, starts if tags is None else tags.starts)
        if tags is not None and not np.array_equal(cuts, tags.starts):
            raise InputError(
                f"X has {len(cuts) - 1} sequences with {cuts[-1]} tokens, the tags {len(tags)} with {tags.n_tokens}: "
                "expected the same sequences, of the same lengths, in the order of tags.sequences."
            )
        return WindowInputs(features, cuts, self.window)

    def _tagging(self, q: Floats, starts: npt.NDArray[Any], scheme: str | None = None) -> npt.NDArray[np.int32]:
        scheme = getattr(self.consensus_, "scheme", "plain") if scheme is None else scheme
        return decode(safe_log(q), valid_only(tag_schemes.allowed(self.classes_, scheme)), starts, q.mean(axis=0))

    def _consensus(
        self, inputs: Inputs, votes: Votes, gold: npt.NDArray[np.int32] | None, seconds: float
    ) -> TagConsensus:
        found, tags = super()._consensus(inputs, votes, gold, seconds), self._tags
        labels = self._tagging(found.posterior, tags.starts, tags.scheme)
        given = np.bincount(votes.annotator, minlength=votes.n_annotators)
        agrees = np.bincount(votes.annotator[votes.label == labels[votes.item]], minlength=votes.n_annotators)
        share = np.divide(agrees, given, out=np.full(len(given), np.nan), where=given > 0)
        return tag_consensus(replace(found, label_codes=labels, agreement=share), tags)


class WarmCrowdWeights(CrowdWeights):
    """The crowd layer, which for some epochs stands aside: the network is then trained on the votes as they are."""

    def __init__(self, n_annotators: int, n_classes: int, kind: str, warmup: int) -> None:
        super().__init__(n_annotators, n_classes, kind)
        self.warmup, self.warm = warmup, False

    def begin(self, epoch: int, predict: Predict) -> None:
        self.warm = epoch < self.warmup

    def loss(self, batch: Batch) -> Tensor:
        if self.warm:
            return summed(batch, -batch.log_f[batch.row, batch.label])
        return super().loss(batch)


def _nested(y: Any) -> bool:
    return isinstance(y, (list, tuple)) and len(y) > 0 and not isinstance(y[0], (str, int, np.generic))
