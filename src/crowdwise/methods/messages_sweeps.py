"""Sweeps of messages from annotators to items: the integrals of :mod:`crowdwise.methods.messages_integrals` over all
annotators, by exact rules or by draws.

Draws come from the prior for annotators with few votes, else from a Dirichlet near the annotator's posterior, weighted
by the density of the prior over that of the proposal (draws from the prior would never hit the narrow posterior of an
annotator with hundreds of votes). All annotators share the random numbers, so their names do not matter. The effective
number of draws, 1 / sum of squared weights, measures their precision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from crowdwise.core.numerics import TINY, Floats, Ints, safe_log
from crowdwise.methods.bayes_ibcc import log_beta
from crowdwise.methods.messages_integrals import BLOCK, FULL, Graph, Grid, Job, Nodes, integrate, rule_size

TEMPER = 0.8
"""Proposals are drawn from the prior and this part of the expected counts: a little wider than the posterior."""
MOVED = 0.25
"""Draws near a posterior are replaced when its counts have moved by a quarter of their deviation, which is about the
root of the annotator's votes; until then they still cover it."""


@dataclass(frozen=True)
class Dice:
    """Random numbers for Dirichlet draws, the same for all annotators: several tries of D x K x K, and D x K x K."""

    normal: Floats
    uniform: Floats
    boost: Floats

    @classmethod
    def roll(cls, D: int, rank: Ints, rng: np.random.Generator, tries: int = 8) -> Dice:
        """Classes have their numbers by rank, so that their order does not matter."""
        K = len(rank)
        drawn = rng.standard_normal((tries, D, K, K)), rng.random((tries, D, K, K)), rng.random((D, K, K))
        return cls(*(x[..., rank, :][..., rank] for x in drawn))

    def log_gamma(self, shape: Floats) -> Floats:
        """log of D Gamma draws for each entry of a K x K table of shapes, after Marsaglia and Tsang (2000).

        The first accepted of several tries is taken; that none is has probability below 1e-10.
        """
        d = shape + (shape < 1.0) - 1.0 / 3.0  # a shape under 1 is raised by 1, and the draw scaled by U^(1/shape)
        d = np.broadcast_to(d, self.boost.shape)
        out, left = np.empty(d.shape), np.ones(d.shape, dtype=bool)
        for normal, uniform in zip(self.normal, self.uniform, strict=True):
            x, e = normal[left], d[left]
            cube = np.maximum(1.0 + x / np.sqrt(9.0 * e), 0.0) ** 3
            log_cube = safe_log(cube)
            out[left] = np.log(e) + log_cube
            left[left] = (cube == 0.0) | (np.log(uniform[left]) >= 0.5 * x**2 + e * (1.0 - cube + log_cube))
        return np.asarray(out + np.where(shape < 1.0, np.log(self.boost) / shape, 0.0))

    def dirichlet(self, alpha: Floats, proposal: Floats) -> Nodes:
        """Matrices with rows from Dirichlet(proposal), weighted to stand for Dirichlet(alpha)."""
        from scipy.special import logsumexp

        g = self.log_gamma(proposal)
        log_theta = np.maximum(g - logsumexp(g, axis=2, keepdims=True), np.log(TINY))
        scale = float((log_beta(proposal, 1) - log_beta(alpha, 1)).sum()) - np.log(len(g))
        return Nodes(log_theta, ((alpha - proposal) * log_theta).sum(axis=(1, 2)) + scale)


@dataclass
class Integrator:
    """The jobs of a graph under a prior, and their sum: one sweep of messages from annotators to items."""

    graph: Graph
    jobs: list[Job] = field(default_factory=list)
    idle: list[tuple[Ints, Floats]] = field(default_factory=list)
    """Annotators without votes, and the mean of their prior."""
    drawn: dict[int, tuple[Floats, Nodes]] = field(default_factory=dict)
    """Draws near the posterior: the annotator's expected counts at the time, and the draws. Under -1 - i those of the
    i-th prior."""

    def add(self, annotators: Ints, source: Nodes | Grid, single: bool = False) -> None:
        """Annotators that share a rule or draws."""
        g = self.graph
        ptr = np.searchsorted(g.annotator, np.append(annotators, annotators + 1)).reshape(2, -1)
        size = ptr[1] - ptr[0]
        if (size == 0).any():
            nodes = source if isinstance(source, Nodes) else source.all()
            mean = np.einsum("g,gkl->kl", np.exp(nodes.log_weight), np.exp(nodes.log_theta))
            self.idle.append((annotators[size == 0], mean))
        annotators, ptr, size = annotators[size > 0], ptr[:, size > 0], size[size > 0]
        if len(annotators) == 0:
            return
        if single or len(annotators) == 1:
            cuts = np.arange(len(annotators) + 1)
        else:  # as many annotators together as fit in a block
            width = len(source.log_weight) if isinstance(source, Nodes) else 1
            part = np.cumsum(size) * width // BLOCK
            cuts = np.append(np.flatnonzero(np.append(True, part[1:] != part[:-1])), len(annotators))
        for lo, hi in pairwise(cuts):
            edges = np.repeat(ptr[0, lo:hi] - np.append(0, np.cumsum(size[lo:hi])[:-1]), size[lo:hi])
            edges = edges + np.arange(len(edges))
            used, local = np.unique(g.pattern[edges], return_inverse=True)
            owner = np.repeat(np.arange(hi - lo), size[lo:hi])
            self.jobs.append(Job(edges, owner, annotators[lo:hi], local.reshape(-1), g.patterns[used], source))

    def sweep(self, a: Floats) -> tuple[Floats, Floats, float, Floats]:
        """log mu (E x K, largest 0), mean theta (M x K x K), sum of log Z, effective number of nodes (M)."""
        K, M = a.shape[1], len(self.graph.votes)
        mu, theta, log_z, size = np.empty_like(a), np.empty((M, K, K)), 0.0, np.full(M, np.nan)
        for who, mean in self.idle:
            theta[who] = mean
        for job in self.jobs:
            mu[job.edges], theta[job.annotators], z, size[job.annotators] = integrate(a[job.edges], job)
            log_z += float(z.sum())
        return safe_log(mu / mu.max(axis=1, keepdims=True)), theta, log_z, size


def exact_jobs(graph: Graph, coins: Floats, K: int) -> Integrator:
    """Gauss-Jacobi rules for annotators with Beta coins (M or 1) x D x 2."""
    out = Integrator(graph)
    M, D = len(graph.votes), coins.shape[1]
    whole = bool((graph.patterns == np.round(graph.patterns)).all())
    kinds, kind = np.unique(coins.reshape(len(coins), -1), axis=0, return_inverse=True)
    kind = np.broadcast_to(kind.reshape(-1), (M,))
    size = np.array([rule_size(v, whole) for v in graph.votes])
    for which, n in sorted({(int(i), int(j)) for i, j in zip(kind, size, strict=True)}):
        grid = Grid(n, tuple((float(a), float(b)) for a, b in kinds[which].reshape(D, 2)), K)
        who = np.flatnonzero((kind == which) & (size == n))
        whole_grid = n**D <= FULL[D]
        out.add(who, grid.all() if whole_grid else grid, single=not whole_grid)
    return out


def sampled_jobs(
    graph: Graph, alpha: Floats, counts: Floats, dice: Dice, earlier: Integrator | None = None
) -> Integrator:  # fmt: skip
    """Draws for annotators with Dirichlet rows: from the prior for few votes, else from near the posterior.

    Weights make up for where draws come from, so earlier ones are as right as new ones; an annotator gets new ones
    once the counts have moved by more than ``MOVED``.
    """
    out = Integrator(graph, drawn={} if earlier is None else earlier.drawn)
    M, K = len(graph.votes), alpha.shape[1]
    kinds, kind = np.unique(alpha.reshape(len(alpha), -1), axis=0, return_inverse=True)
    kind = np.broadcast_to(kind.reshape(-1), (M,))
    few = graph.votes <= 2 * K
    for which in np.unique(kind[few]):
        table = kinds[which].reshape(K, K)
        if -1 - int(which) not in out.drawn:
            out.drawn[-1 - int(which)] = table, dice.dirichlet(table, table)
        out.add(np.flatnonzero(few & (kind == which)), out.drawn[-1 - int(which)][1])
    for m in np.flatnonzero(~few).tolist():
        table = kinds[kind[m]].reshape(K, K)
        if m not in out.drawn or np.abs(counts[m] - out.drawn[m][0]).sum() > MOVED * np.sqrt(graph.votes[m]):
            out.drawn[m] = counts[m], dice.dirichlet(table, table + TEMPER * counts[m])
        out.add(np.array([m]), out.drawn[m][1])
    return out
