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
it measures what the graph contributes: that of a useless graph does not rise with J. The J learned is the one that
predicts the votes on each item best from those on the others.

J. Yedidia, W. Freeman and Y. Weiss, Understanding belief propagation and its generalizations, 2003.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints, maximise_1d, softmax
from crowdwise.data.graph import Graph
from crowdwise.kernels import reference

LADDER = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Strengths of a typical edge that are tried, from weak to strong; the best is refined between its neighbours."""
MIN_GAIN = 5.41
"""The minimum gain of a learned strength, in nats: half the 99.9% quantile of chi-squared with one degree of freedom.

A false positive is costly: annotators would then be fitted to the graph, and the graph to them.
"""
FOLDS = 5
"""Mean field does not give the class of an item without its own votes: they are held out by fifths of the items."""
QUICK_SWEEPS, BALANCE = 30, 5
"""Passes over the edges, and changes of the field, for every strength that is tried: from where the last one ended."""
ANNEAL = (0.25, 0.5, 0.75)
SAME = 0.04
"""Two strengths closer than this, times a typical weight, are one."""
MOST_PULL = 30.0
"""The most that one edge adds to the log odds of agreement, whatever its weight: odds of 1e13 are a certainty."""


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

    @property
    def scale(self) -> float:
        """The median weight of an edge: strengths are tried in units of it, so the unit of weights does not matter."""
        return float(np.median(self.weight)) if len(self) else 1.0

    def pull(self, J: float) -> Floats:
        """2E: J w, within ``MOST_PULL``."""
        return np.clip(J * self.weight, -MOST_PULL, MOST_PULL)


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


def propagate(
    evidence: Floats, field: Floats, J: float, links: Links, state: Floats | None = None, *, sweeps: int = 200,
    tol: float = 1e-8,
) -> Beliefs:  # fmt: skip
    """Messages along all edges at once until they converge; damped where they oscillate."""
    unary = field + evidence
    N, K = unary.shape
    gain = np.expm1(links.pull(J))[:, None]
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
        goal = unary + neighbour_pull(q, J, links)
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
    return Beliefs(q, q, softmax(field + neighbour_pull(q, J, links)), bound, converged)


def neighbour_pull(q: Floats, J: float, links: Links) -> Floats:
    """N x K: J w, summed over each item's neighbours of each class."""
    if not len(links):
        return np.zeros_like(q)
    return np.asarray(links.into @ (links.pull(J)[:, None] * q[links.source]))


def mean_field_bound(q: Floats, unary: Floats, J: float, links: Links) -> float:
    """sum q (h + l) + J sum over edges w q_i q_j + entropy, which is at most log Z."""
    inside = np.where(q > 0.0, unary, 0.0)
    entropy = -(q * np.log(np.maximum(q, 1e-300))).sum()
    return float((q * inside).sum() + 0.5 * (q * neighbour_pull(q, J, links)).sum() + entropy)


def balanced(field: Floats, beliefs: Beliefs) -> Floats:
    """The field under which classes are predicted as often as they are found."""
    found, predicted = beliefs.posterior.sum(axis=0), beliefs.held_out.sum(axis=0)
    new = field + np.log(np.maximum(found, 1e-12)) - np.log(np.maximum(predicted, 1e-12))
    return np.asarray(new - np.log(np.exp(new - new.max()).sum()) - new.max())


def held_out_log_likelihood(held_out: Floats, evidence: Floats, rows: npt.NDArray[Any] | slice = slice(None)) -> float:
    """sum_n log sum_k held_out[n, k] P(votes on n, given k): of every item's votes, given the others."""
    with np.errstate(divide="ignore"):
        return float(log_sum(np.log(held_out[rows]) + evidence[rows]).sum())


@dataclass
class GraphInference:
    """Inference on a graph: the votes as arrays, the links, and the last messages, where the next call starts."""

    part: Part
    links: Links
    infer: Callable[..., Beliefs]
    sweeps: int
    fold: Ints | None
    learns_field: bool
    state: Floats | None = None

    def evidence(self, log_score: Floats) -> Floats:
        """l[n, k], with -inf for every class but the true one where that is known."""
        part = self.part
        prior = np.zeros((1, part.n_classes)) if part.item_prior is None else part.item_prior
        out = reference.logits(part.indptr, part.cell, part.weight, log_score, prior)
        if len(part.truth):
            known = np.flatnonzero(part.truth >= 0)
            held = out[known, part.truth[known]]
            out[known] = -np.inf
            out[known, part.truth[known]] = held
        return out

    def beliefs(self, evidence: Floats, field: Floats, J: float, tol: float = 1e-8) -> Beliefs:
        """The posterior, starting from the last messages; without any, J rises in steps. Under a strong prior all items
        in one class may be a fixed point of its own, which is not to be started in."""
        for share in ANNEAL if self.state is None else ():
            early = self.infer(evidence, field, share * J, self.links, self.state, sweeps=QUICK_SWEEPS, tol=1e-3)
            self.state = early.state
        found = self.infer(evidence, field, J, self.links, self.state, sweeps=self.sweeps, tol=tol)
        self.state = found.state
        return found

    def held_out_score(self, evidence: Floats, field: Floats, J: float) -> tuple[float, Floats]:
        """The log-likelihood of each item's votes given the others', and the field that balances the classes."""
        look = partial(self.infer, evidence, J=J, links=self.links, sweeps=min(self.sweeps, QUICK_SWEEPS), tol=1e-3)
        found = look(field=field, state=self.state)
        for _ in range(BALANCE if self.learns_field else 0):
            new = balanced(field, found)
            moved = float(np.abs(new - field).max())
            field = new
            found = look(field=field, state=found.state)
            if moved < 1e-2:
                break
        self.state = found.state
        if self.fold is None:
            return held_out_log_likelihood(found.held_out, evidence), field
        score = 0.0
        for fold in range(FOLDS):
            out = np.flatnonzero(self.fold == fold)
            some = evidence.copy()
            some[out] = 0.0
            left = self.infer(some, field, J, self.links, None, sweeps=min(self.sweeps, QUICK_SWEEPS), tol=1e-3)
            score += held_out_log_likelihood(left.held_out, evidence, out)
        return score, field

    def search(self, evidence: Floats, field: Floats) -> tuple[float, Floats, float]:
        """The strength that predicts each item's votes best from the others', its field, and its gain over none."""
        self.state = None
        none, plain = self.held_out_score(evidence, field, 0.0)
        if not len(self.links):
            return 0.0, plain, 0.0
        tried, states, unit = [(0.0, none)], [self.state], self.links.scale
        for J in (step / unit for step in LADDER):
            tried.append((J, self.held_out_score(evidence, field, J)[0]))
            states.append(self.state)
            if tried[-1][1] < max(score for _, score in tried) - MIN_GAIN and J > tried[_best(tried)][0] * 1.9:
                break  # past the maximum
        at = _best(tried)
        low, high = tried[max(at - 1, 0)][0], tried[min(at + 1, len(tried) - 1)][0]

        def from_below(J: float) -> tuple[float, Floats]:
            self.state = states[max(at - 1, 0)]
            return self.held_out_score(evidence, field, J)

        J = maximise_1d(lambda J: from_below(J)[0], low, high, tol=SAME / unit)
        score, new = from_below(J)
        if score - none <= MIN_GAIN:
            return 0.0, plain, 0.0
        return J, new, score - none


def _best(tried: list[tuple[float, float]]) -> int:
    return max(range(len(tried)), key=lambda n: tried[n][1])
