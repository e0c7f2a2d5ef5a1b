"""Losses of votes and their gradients in one pass, for networks so small that autograd would cost more than they do.

A loss composed of tensor operations costs an operation forward and one or two backward for every sign in its formula,
and with a few hundred votes in a batch each of these is all overhead. Here values and gradients are computed together,
without a graph, for the votes of the batch alone; :func:`with_gradients` then passes them to autograd as one node. The
heads have their formulas as the papers write them (``vote_log_probs``), and the tests compare the two.

    mixture    P(m says l | x) = sum_k f(x)[k] t[m, k, l] / s[m, k],   s[m, k] = sum_l t[m, k, l]
    layer      P(m says l | x) = softmax_l( sum_k f(x)[k] W[m, k, l] )

=============  ===========  ===========  =============================================================================
symbol         code         shape        equation
=============  ===========  ===========  =============================================================================
f(x)           ``f``        B x K        softmax of the logits
t[m, k, l]     ``t``        E x K x K    exp or softplus of rho, for the annotator of each vote
c              ``c``        E            d loss / d log P of each vote: minus its weight, over a sum of weights
r[k]           ``r``        E x K        c times P(truth k | x, m says l)
d / d logits                B x K        sum over the item's votes of r - c f
d / d rho                   E x K x K    exp: r[k] ( 1(l) - t[k, l] / s[k] )
=============  ===========  ===========  =============================================================================

Probabilities, not their logarithms, are summed: while rho is within some thirty of zero no sum here can underflow or
overflow in single precision. Where one does, the mixture is computed in logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from crowdwise.learners.devices import entries, log_softmax
from crowdwise.learners.vote_edges import Batch, column_cells

RANGE = 30.0
"""exp(30) is 1e13: ten orders of magnitude from where the product of two such numbers leaves single precision."""


@dataclass(frozen=True, eq=False)
class GradientRows:
    """A gradient with one row per vote, summed by annotator when it is needed."""

    rows: Tensor
    annotator: Tensor
    size: torch.Size

    def dense(self) -> Tensor:
        return self.rows.new_zeros(self.size).index_add_(0, self.annotator, self.rows)


class _WithGradients(torch.autograd.Function):
    """A value whose gradients are computed already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, grads: tuple[Tensor | GradientRows, ...], *at: Tensor) -> Tensor:
        ctx.grads = grads
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        grads = [grad.dense() if isinstance(grad, GradientRows) else grad for grad in ctx.grads]
        # The loss itself is what training goes back from; multiplying a large table by one would be half the cost.
        if upstream.device.type == "cpu" and float(upstream) == 1.0:
            return None, None, *grads
        return None, None, *(upstream * grad for grad in grads)


def with_gradients(value: Tensor, *gradients: tuple[Tensor, Tensor | GradientRows]) -> Tensor:
    """``value``, a number, with the gradient of each (tensor, gradient) pair.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> with_gradients((x.detach() ** 2).sum(), (x, 2.0 * x.detach())).backward()
    >>> x.grad
    tensor([2., 4.])
    """
    at, grads = zip(*gradients, strict=True)
    out: Tensor = _WithGradients.apply(value, grads, *at)  # type: ignore[no-untyped-call]
    return out


def mix(mine: Tensor, rows: Tensor) -> Tensor:
    """E x K: mine[e] . rows[e]. A product of small matrices by its definition: faster here than ``bmm``."""
    return (mine[:, :, None] * rows).sum(dim=1)


def unmix(rows: Tensor, g: Tensor) -> Tensor:
    """E x K: rows[e] . g[e]."""
    return (rows * g[:, None, :]).sum(dim=2)


def through_softmax(f: Tensor, grad: Tensor) -> Tensor:
    """The gradient at the logits from that at their softmax."""
    inner = f * grad
    return inner - f * inner.sum(dim=1, keepdim=True)


@dataclass(eq=False)
class VoteLoss:
    """A loss of votes: its value, and its gradients at the logits and at each vote's matrix of free numbers."""

    value: Tensor
    logits: Tensor
    """B x K."""
    rows: Tensor
    """E x K x K."""
    f: Tensor
    """B x K: the network's probabilities."""
    theta: Tensor | None = None
    """E x K x K: each vote's confusion matrix, where a penalty needs it."""


def annotator_loss(
    batch: Batch, fit: VoteLoss, table: Tensor, *gradients: tuple[Tensor, Tensor | GradientRows]
) -> Tensor:
    """A loss with its gradients at the logits and at an M x K x K table of the annotators, and further ones."""
    rows = GradientRows(fit.rows, batch.annotator, table.shape)
    return with_gradients(fit.value, (batch.logits, fit.logits), (table, rows), *gradients)


def mixture(
    batch: Batch, rows: Tensor, norm: Tensor | float, *, softplus: bool = False, trace: Tensor | None = None,
    keep: bool = False,
) -> VoteLoss:  # fmt: skip
    """Minus the log-likelihood of a batch's votes over ``norm``, under confusion matrices from rows (E x K x K) of rho.

    With ``softplus`` t is the softplus of rho, else its exponential; ``trace`` (E) is a penalty: so many times the
    trace of each vote's matrix is added to the loss; with ``keep`` the matrices are returned as well.
    """
    f = torch.softmax(batch.logits.detach(), dim=1)
    c = batch.weight[:, None] / -norm
    E, K, _ = rows.shape
    cell = column_cells(torch.arange(0, E * K * K, K * K, device=rows.device).add_(batch.label), K)
    if rows.is_cuda or (softplus and not _near(rows)):  # a check would make the host wait for the device
        return _in_logarithms(batch, rows, c, f, cell, softplus, trace, keep)
    t = functional.softplus(rows) if softplus else rows.exp()
    s = t.sum(dim=2)
    at_label = t.take(cell)
    share = f.index_select(0, batch.row) * at_label / s
    p = share.sum(dim=1, keepdim=True)
    value = (c * p.log()).sum()
    if not math.isfinite(value.item()):  # a sum has underflowed or overflowed
        return _in_logarithms(batch, rows, c, f, cell, softplus, trace, keep)
    r = share * (c / p)
    theta = t / s[:, :, None] if keep else None
    # d / d t[k, l'] = r[k] / t[k, l] 1(l' = l) - down[k], and d t / d rho is t itself, or a sigmoid.
    slope = torch.sigmoid(rows) if softplus else t
    up = r / at_label * slope.take(cell) if softplus else r
    down = r / s
    if trace is not None:
        right = t.diagonal(dim1=1, dim2=2) / s
        value = value + (trace[:, None] * right).sum()
        down = down + trace[:, None] * right / s
        corner = trace[:, None] / s * slope.diagonal(dim1=1, dim2=2)
    grad = slope * -down[:, :, None]
    grad.put_(cell, up, accumulate=True)
    if trace is not None:
        grad.diagonal(dim1=1, dim2=2).add_(corner)
    return VoteLoss(value, _at_logits(batch, f, r), grad, f, theta)


def _at_logits(batch: Batch, f: Tensor, r: Tensor) -> Tensor:
    """B x K: the sum over each item's votes of r - c f, where c is the sum of r over classes."""
    total = batch.total(r)
    return total - f * total.sum(dim=1, keepdim=True)


def _in_logarithms(
    batch: Batch, rows: Tensor, c: Tensor, f: Tensor, cell: Tensor, softplus: bool, trace: Tensor | None, keep: bool
) -> VoteLoss:  # fmt: skip
    """The same for numbers of any size."""
    log_t, gain = rows, torch.ones((), dtype=rows.dtype, device=rows.device)
    if softplus:  # from -15 down it is the exponential, to seven digits
        near = rows.clamp_min(-15.0)
        t = functional.softplus(near)
        log_t, gain = torch.where(rows > -15.0, t.log(), rows), torch.sigmoid(near) / t
    log_t = log_t - torch.logsumexp(log_t, dim=2, keepdim=True)
    theta = log_t.exp()
    log_f = torch.log_softmax(batch.logits.detach(), dim=1).index_select(0, batch.row)
    log_share = log_f + log_t.take(cell)
    log_p = torch.logsumexp(log_share, dim=1, keepdim=True)
    r = c * (log_share - log_p).exp()
    value = (c * log_p).sum()
    down = r
    if trace is not None:
        right = trace[:, None] * theta.diagonal(dim1=1, dim2=2)
        value, down = value + right.sum(), down + right
    grad = -down[:, :, None] * theta
    grad.put_(cell, r, accumulate=True)
    if trace is not None:
        grad.diagonal(dim1=1, dim2=2).add_(right)
    return VoteLoss(value, _at_logits(batch, f, r), grad * gain, f, theta if keep else None)


@dataclass(eq=False)
class Predictions:
    """What free weights predict for each vote, and all that the gradient needs."""

    batch: Batch
    f: Tensor
    mine: Tensor
    """E x K: f of the vote's item."""
    rows: Tensor
    z: Tensor
    """E x K: sum_k f[k] W[m, k, :]."""

    @classmethod
    def of(cls, batch: Batch, W: Tensor) -> Predictions:
        rows = W.detach().index_select(0, batch.annotator)
        f = torch.softmax(batch.logits.detach(), dim=1)
        mine = f.index_select(0, batch.row)
        return cls(batch, f, mine, rows, mix(mine, rows))

    def fit(self, value: Tensor, g: Tensor, more: Tensor | None = None) -> VoteLoss:
        """A loss with the gradient g at z (and at f, item by item, more)."""
        back = self.batch.total(unmix(self.rows, g))
        back = back if more is None else back + more
        return VoteLoss(value, through_softmax(self.f, back), self.mine[:, :, None] * g[:, None, :], self.f)


def log_probs(z: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """E: log of the softmax of z at the label; E x K: the softmax."""
    z = z - z.amax(dim=1, keepdim=True)
    at_label = entries(z, label)
    p = z.exp_()
    s = p.sum(dim=1)
    return at_label - s.log(), p / s[:, None]


def layer(batch: Batch, W: Tensor, norm: Tensor | float) -> VoteLoss:
    """Minus the log-likelihood of a batch's votes over ``norm``, under a softmax of free weights after the network."""
    predictions = Predictions.of(batch, W)
    log_p, p = log_probs(predictions.z, batch.label)
    c = batch.weight / -norm
    return predictions.fit((c * log_p).sum(), label_gradient(c, p, batch.label))


def label_gradient(c: Tensor, p: Tensor, label: Tensor) -> Tensor:
    """E x K: c ( 1(l) - p ), the gradient of c log softmax at a label."""
    return (p * -c[:, None]).scatter_add_(1, label[:, None], c[:, None])


def log_volume(vectors: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """log det( V'V + ridge I ) of n x K vectors, and its gradient at them, 2 V (V'V + ridge I)^-1.

    Both are NaN where a vector is: ``linalg.cholesky`` raises instead, and for that the host waits for the device.
    """
    one = torch.eye(vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
    root = torch.linalg.cholesky_ex(vectors.T @ vectors + ridge * one, check_errors=False).L
    half = torch.linalg.solve_triangular(root, one, upper=False)
    return 2.0 * root.diagonal().log().sum(), 2.0 * vectors @ (half.T @ half)


def softmax_rows(rows: Tensor) -> Tensor:
    """The softmax over the last of three dimensions, for rows as short as there are classes."""
    if rows.is_cuda or not _near(rows):
        return log_softmax(rows, dim=2).exp_()
    t = rows.exp()
    return t / t.sum(dim=2, keepdim=True)


def _near(rows: Tensor) -> bool:
    """Whether all numbers are within the range in which nothing underflows or overflows."""
    if rows.numel() == 0:
        return True
    low, high = torch.aminmax(rows)
    return low.item() >= -RANGE and high.item() <= RANGE
