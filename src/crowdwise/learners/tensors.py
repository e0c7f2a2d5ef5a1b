"""Small operations on tensors and arrays that several modules of this package share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crowdwise.core.numerics import Floats


def as_array(tensor: Tensor) -> Floats:
    """A tensor as numpy array of float64, wherever it is."""
    return np.asarray(tensor.detach().cpu().double().numpy())


def as_tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Arrays as tensors of the same type, by name."""
    return {name: torch.as_tensor(np.array(value)) for name, value in arrays.items()}


def probabilities(log_q: Tensor) -> Floats:
    """Rows of probabilities from rows of log probabilities."""
    q = log_q.double().exp().cpu().numpy()
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def log_softmax(x: Tensor, dim: int) -> Tensor:
    """As torch's own, which on a CPU takes ten times as long where rows are as short as there are classes."""
    return x - torch.logsumexp(x, dim=dim, keepdim=True)


def columns(rows: Tensor, label: Tensor) -> Tensor:
    """E x K: of E matrices, K x K each, the column of each label."""
    return rows.gather(2, label[:, None, None].expand(-1, rows.shape[1], 1))[:, :, 0]


def score_table(scores: Floats) -> Floats:
    """M x K x K scores (annotator, truth, label) as the kernels take them: (m * K + l) x K."""
    return np.ascontiguousarray(scores.transpose(0, 2, 1)).reshape(-1, scores.shape[1])
