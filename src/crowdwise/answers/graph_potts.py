"""Classes of items on a graph: a Potts prior, and what can be inferred under it on sparse edges.

    P(y) = exp( sum_n h[y_n] + J sum over edges w_ij 1[y_i = y_j] ) / Z

Given evidence l[n, k] = log P(votes on n, given truth k), two ways to the posterior, both linear in the edges:

==================  ======================================================================================
belief propagation  from i to j, the class of i without j:  p_ij[k] = softmax( h + l_i + sum over other
                    neighbours of their messages );  message m_ij[k] = log(1 + (e^(J w) - 1) p_ij[k]).
                    Exact on trees; log Z is Bethe's.
mean field          q[n] = softmax( h + l_n + J sum over neighbours of w q[neighbour] );  log Z is bounded below.
==================  ======================================================================================

``held_out`` is the distribution of an item's class *without* the item's own votes. The likelihood of these votes under
it measures what the graph contributes: that of a useless graph does not rise with J.

J. Yedidia, W. Freeman and Y. Weiss, Understanding belief propagation and its generalizations, 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats, Ints, softmax
from crowdwise.data.graph import Graph


@dataclass(frozen=True, eq=False)
class Links:
    """The edges in both directions: 2 E of them, edge e and its reverse ``reverse[e]``."""

    source: Ints
    target: Ints
    reverse: Ints
    weight: Floats
    into: Any
    """N x 2E: sums what goes into each item."""

    @classmethod
    def of(cls, graph: Graph, n_items: int) -> Links:
        from scipy.sparse import csr_array

        E = graph.n_edges
        source, target = np.concatenate([graph.left, graph.right]), np.concatenate([graph.right, graph.left])
        into = csr_array((np.ones(2 * E), (target, np.arange(2 * E))), shape=(n_items, 2 * E))
        weight = np.concatenate([graph.weight, graph.weight])
        return cls(source, target, np.roll(np.arange(2 * E), -E), weight, into)

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class Beliefs:
    """The result of inference; ``state`` is where the next one can start (messages, or q)."""

    state: Floats
    posterior: Floats
    held_out: Floats
    log_z: float
    converged: bool


def log_sum(x: Floats) -> Floats:
    top = x.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(x - top).sum(axis=1)) + top[:, 0])


# -------------------------------------------------------------------- belief propagation


def propagate(
    evidence: Floats, field: Floats, J: float, links: Links, state: Floats | None = None, *, sweeps: int = 200,
    tol: float = 1e-8,
) -> Beliefs:  # fmt: skip
    """Messages along all edges at once until they converge; damped where they oscillate."""
    unary = field + evidence
    N, K = unary.shape
    gain = np.expm1(J * links.weight)[:, None]
    m = np.zeros((len(links), K)) if state is None else state
    damping, before, converged = 0.0, np.inf, len(links) == 0
    for _ in range(sweeps if len(links) else 0):
        new = np.log1p(gain * softmax((unary + links.into @ m)[links.source] - m[links.reverse]))
        change = float(np.abs(new - m).max())
        m = new if damping == 0.0 else (1.0 - damping) * new + damping * m
        if change < tol:
            converged = True
            break
        if change > 0.999 * before and change > 1e-3:
            damping = 0.5
        before = change
    incoming = links.into @ m if len(links) else np.zeros((N, K))
    total = unary + incoming
    log_z = float(log_sum(total).sum())
    if len(links):
        one_way = slice(0, len(links) // 2)
        p = softmax(total[links.source] - m[links.reverse])
        both = (np.exp(m[one_way]) * p[links.reverse[one_way]]).sum(axis=1)
        log_z -= float(np.log(both).sum())
    return Beliefs(m, softmax(total), softmax(field + incoming), log_z, converged)


# -------------------------------------------------------------------- mean field


def mean_field(
    evidence: Floats, field: Floats, J: float, links: Links, state: Floats | None = None, *, sweeps: int = 200,
    tol: float = 1e-8,
) -> Beliefs:  # fmt: skip
    """All items at once, in steps that are halved whenever the bound would fall."""
    unary = field + evidence
    q = softmax(unary) if state is None else state
    step, converged = 1.0, False
    bound = mean_field_bound(q, unary, J, links)
    for _ in range(sweeps):
        goal = unary + J * neighbour_weight(q, links)
        while True:
            # Where the truth is known a logit is -inf, and stays so.
            with np.errstate(divide="ignore", invalid="ignore"):
                logit = np.where(np.isneginf(goal), -np.inf, step * goal + (1.0 - step) * np.log(np.maximum(q, 1e-300)))
            new = softmax(logit)
            value = mean_field_bound(new, unary, J, links)
            if value >= bound - 1e-12 * abs(bound) or step < 1e-3:
                break
            step /= 2.0
        change = float(np.abs(new - q).max())
        q, bound = new, max(value, bound)
        step = min(1.0, 1.5 * step)
        if change < tol:
            converged = True
            break
    return Beliefs(q, q, softmax(field + J * neighbour_weight(q, links)), bound, converged)


def neighbour_weight(q: Floats, links: Links) -> Floats:
    """N x K: the weight of each item's neighbours of each class."""
    if not len(links):
        return np.zeros_like(q)
    return np.asarray(links.into @ (links.weight[:, None] * q[links.source]))


def mean_field_bound(q: Floats, unary: Floats, J: float, links: Links) -> float:
    """sum q (h + l) + J sum over edges w q_i q_j + entropy, which is at most log Z."""
    inside = np.where(q > 0.0, unary, 0.0)
    entropy = -(q * np.log(np.maximum(q, 1e-300))).sum()
    return float((q * inside).sum() + 0.5 * J * (q * neighbour_weight(q, links)).sum() + entropy)


# -------------------------------------------------------------------- held-out votes


def balanced(field: Floats, beliefs: Beliefs) -> Floats:
    """The field under which classes are predicted as often as they are found."""
    found, predicted = beliefs.posterior.sum(axis=0), beliefs.held_out.sum(axis=0)
    new = field + np.log(np.maximum(found, 1e-12)) - np.log(np.maximum(predicted, 1e-12))
    return np.asarray(new - np.log(np.exp(new - new.max()).sum()) - new.max())


def held_out_log_likelihood(held_out: Floats, evidence: Floats, rows: npt.NDArray[Any] | slice = slice(None)) -> float:
    """sum_n log sum_k held_out[n, k] P(votes on n, given k): of every item's votes, given the others."""
    with np.errstate(divide="ignore"):
        return float(log_sum(np.log(held_out[rows]) + evidence[rows]).sum())
