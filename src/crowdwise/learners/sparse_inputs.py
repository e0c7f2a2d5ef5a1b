"""Sparse inputs: a batch of texts has a few hundred of all words, and nothing else of it is ever made dense.

A batch of sparse rows is taken as the columns that occur in it, and the B x U table of their values. The first layer
of ``linear`` and ``mlp`` multiplies it with the U columns of its weights; the other columns meet only zeros. The answer
is that of the dense batch, and so is the gradient, which is zero for the other columns. With 9,000 words of which 700
are in a batch of 64 texts, a step costs a tenth of the dense one.

Networks of another build get dense rows, batch by batch, as before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Some rows of a sparse matrix."""

    values: Tensor
    """B x U: what the rows have in the columns that occur in them."""
    columns: Tensor
    """U: which columns those are, ascending."""
    width: int
    """D: how many columns there are."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, some: slice) -> SparseRows:
        return replace(self, values=self.values[some])

    def to(self, *args: Any, **more: Any) -> SparseRows:
        """On another device."""
        return replace(self, values=self.values.to(*args, **more), columns=self.columns.to(*args, **more))

    def over(self, deviation: Tensor) -> SparseRows:
        """Each column divided by a number of its own (D of them)."""
        return replace(self, values=self.values / deviation.index_select(0, self.columns))

    def dense(self) -> Tensor:
        """B x D."""
        out = self.values.new_zeros((len(self.values), self.width))
        return out.index_copy_(1, self.columns, self.values)

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """From a scipy matrix in rows."""
        matrix = matrix.tocsr()
        columns, place = np.unique(matrix.indices, return_inverse=True)
        values = np.zeros((matrix.shape[0], len(columns)), dtype=np.float32)
        row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        np.add.at(values, (row, place.reshape(-1)), matrix.data.astype(np.float32))
        return cls(torch.from_numpy(values), torch.from_numpy(columns.astype(np.int64)), int(matrix.shape[1]))


class _Columns(torch.autograd.Function):
    """values @ weight[:, columns].T, with a gradient that is written to these columns alone."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, columns: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(values, columns)
        ctx.size = weight.shape
        return values @ weight.t().index_select(0, columns)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        values, columns = ctx.saved_tensors
        H, D = ctx.size
        # Features by row, as prepare() has laid out the weights: each feature's gradient is one piece of memory.
        grad = upstream.new_zeros((D, H)).index_copy_(0, columns, values.t().to(upstream.dtype) @ upstream)
        return None, None, grad.t()


class FirstLinear(nn.Linear):
    """A linear layer that takes sparse rows as well."""

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        if not isinstance(x, SparseRows):
            return functional.linear(x, self.weight, self.bias)
        out: Tensor = _Columns.apply(x.values, x.columns, self.weight)  # type: ignore[no-untyped-call]
        return out + self.bias


class Flat(nn.Flatten):
    """Flattens inputs; sparse rows are flat already."""

    def forward(self, x: Tensor | SparseRows) -> Tensor | SparseRows:  # type: ignore[override]
        return x if isinstance(x, SparseRows) else super().forward(x)


def first_layer(network: nn.Module) -> FirstLinear | None:
    """The layer that takes sparse rows, where a network has one."""
    return next((layer for layer in network.modules() if isinstance(layer, FirstLinear)), None)


def prepare(network: nn.Module) -> None:
    """Lay the weights of the first layer out feature by feature: a batch then reads and writes whole rows of memory.

    Shape, values and results are as before.
    """
    layer = first_layer(network)
    if layer is not None:
        layer.weight.data = layer.weight.data.t().contiguous().t()
