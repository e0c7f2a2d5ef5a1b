"""Plain members of the ensemble: softmax regression on the corrected consensus of the votes, and on their shares.

They cost seconds, and where votes are few, one-sided or a matter of taste a network is often no better. Each is
cross-fitted like the networks: what it says of an item comes from the votes on the items of other folds alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from crowdwise import registry
from crowdwise.core.numerics import Floats, Ints, clamp
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning
from crowdwise.learners import networks
from crowdwise.learners.inputs import ArrayInputs, Inputs, InputScale
from crowdwise.learners.tabular import Softmax, flat_scale, log_softmax, scaled_rows
from crowdwise.learners.training_data import TrainingData

SPREAD = 2.0
"""The prior standard deviation of the logits."""
MAX_NUMBERS = 30_000_000
"""The most numbers of all inputs together; networks on images of more than that have no plain members beside them."""


class Plain(NamedTuple):
    """A plain member."""

    name: str
    p: Floats
    """N x K: of items whose votes it has not seen; of items without votes, by all votes."""
    network: nn.Module
    """Trained on all items."""


def consensus(votes: Votes, gold: Ints | None) -> Floats:
    """The posterior of the default method, with the correction for votes that err together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = registry.find(registry.DEFAULT).create().fit(votes, gold)
    return np.asarray(fitted.consensus_.corrected_posterior)


def shares(votes: Votes, gold: Ints | None) -> Floats:
    """The shares of the votes."""
    return clamp(votes.shares(), gold)


def are_small(inputs: Inputs) -> bool:
    """Whether softmax regression on all inputs takes little time and memory."""
    if not isinstance(inputs, ArrayInputs):
        return False
    return bool((inputs.array.nnz if inputs.sparse else len(inputs) * math.prod(inputs.shape)) <= MAX_NUMBERS)


def plain_members(data: TrainingData, gold: Ints | None, fold: Ints, scale: InputScale) -> list[Plain]:
    """The plain members, none for inputs that are large or not in memory."""
    if not are_small(data.inputs):
        return []
    x = scaled_rows(data.inputs, *flat_scale(scale, data.inputs.shape)).astype(np.float32)
    makers: dict[str, Callable[[Votes, Ints | None], Floats]] = {"shares": shares}
    if data.votes.n_annotators > 1:
        makers = {"consensus": consensus} | makers
    return [member(name, make, x, data, gold, fold, scale) for name, make in makers.items()]


def member(
    name: str, make: Callable[[Votes, Ints | None], Floats], x: Any, data: TrainingData, gold: Ints | None, fold: Ints,
    scale: InputScale,
) -> Plain:  # fmt: skip
    """One plain member, cross-fitted and fitted to all items, in one go."""
    votes, D, K = data.votes, x.shape[1], data.votes.n_classes
    labels = []
    for j in range(fold.max() + 2):  # all items last
        own = fold == j
        known = None if gold is None else np.where(own, -1, gold)
        train = votes.select(~own[votes.item])
        used = np.diff(train.indptr) > 0 if known is None else (np.diff(train.indptr) > 0) | (known >= 0)
        labels.append(make(train, known) * used[:, None])
    model = Softmax(D, len(labels) * K, D / SPREAD**2)
    model.fit(x, np.stack(labels, axis=1))
    p = np.exp(log_softmax(np.asarray(x @ model.coef[:-1] + model.coef[-1]).reshape(len(fold), -1, K)))
    network = networks.linear(data.inputs.shape, K)
    with torch.no_grad():
        network.head.weight.copy_(torch.from_numpy(model.coef[:-1, -K:].T))
        network.head.bias.copy_(torch.from_numpy(model.coef[-1, -K:]))
    return Plain(name, p[np.arange(len(fold)), fold], nn.Sequential(scale, network))  # fold -1: by all items
