"""Sweeps of the messages of :mod:`crowdwise.methods.messages_bp`: integrals over confusion matrices.

Draws come from the prior for annotators with few votes, else from a Dirichlet near the annotator's posterior, weighted
by the density of the prior over that of the proposal (draws from the prior would never hit the narrow posterior of an
annotator with hundreds of votes). All annotators share the random numbers, so their names do not matter. The effective
number of draws, 1 / sum of squared weights, measures their precision.

An annotator's messages are expectations over the confusion matrix theta under its prior, taken as sums over G
nodes with weights. The nodes are a Gauss-Jacobi rule where the prior is one Beta coin, or one for each of two
classes, and seeded draws elsewhere.

A rule is exact. The integrand is a polynomial of theta whose degree is the annotator's number of votes v, so v/2 + 1
nodes per coin leave no error. In the angle 2 arcsin(sqrt(w)) it is nowhere narrower than about 1/sqrt(v), so that
4 sqrt(v) + 8 nodes leave none that counts either, which are fewer from some 90 votes on. Of a large grid only the
nodes near the peak are visited, found from coarse to fine. Fractional weights of votes make no polynomial: the rule
is then merely good.

=========  ==================  =========  ================================================================
symbol     code                shape      equation
=========  ==================  =========  ================================================================
t(k)       ``likes``           P x K x G  prod_l theta_g[k, l]^(weight of label l in the pattern)
f_e        ``mix``             E x G      sum_k a[e, k] t(k)
           ``evidence``        A x G      log weight_g + sum over the annotator's edges of log f_e
mu_e(k)    ``integrate``       E x K      sum_g exp(evidence_g) t(k) / f_e: the edge's own factor replaced
=========  ==================  =========  ================================================================

G. H. Golub and J. H. Welsch, Calculation of Gauss quadrature rules, Mathematics of Computation 23 (1969).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from crowdwise.core.numerics import TINY, Floats, Ints, safe_log
from crowdwise.data.votes import Votes
from crowdwise.methods.bayes_ibcc import log_beta

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

    graph: LabelGraph
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


def exact_jobs(graph: LabelGraph, coins: Floats, K: int) -> Integrator:
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
    graph: LabelGraph, alpha: Floats, counts: Floats, dice: Dice, earlier: Integrator | None = None
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


BLOCK = 150_000
"""Edges times nodes worked on at once: about what a processor's cache holds."""
FULL = (0, 64, 400)
"""Up to so many nodes (by number of coins) the whole grid is visited, for many annotators at once."""
CUT = 40.0
"""Nodes whose weight is under exp(-CUT) of the largest are left out."""
SLACK = {9: 50.0, 3: 11.0}
"""How much lower the middle of a block of so many nodes may lie than the best node in it (quadratic peak, CUT)."""


@dataclass(frozen=True)
class LabelGraph:
    """The edges, sorted by annotator and pattern: the weight of each label in an annotator's votes on one item."""

    item: Ints
    annotator: Ints
    pattern: Ints
    patterns: Floats
    votes: Floats
    """The weight of each annotator's votes."""

    @classmethod
    def of(cls, votes: Votes) -> LabelGraph:
        """Several votes of an annotator on one item make one edge: they share their item's truth."""
        M, N, K = votes.n_annotators, len(votes), votes.n_classes
        pair, edge = np.unique(votes.annotator.astype(np.int64) * N + votes.item, return_inverse=True)
        by_label = np.bincount(edge * K + votes.label, weights=votes.weights, minlength=len(pair) * K).reshape(-1, K)
        patterns, pattern = np.unique(np.round(by_label, 12), axis=0, return_inverse=True)
        order = np.lexsort((pair % N, pattern, pair // N))
        total = np.bincount(votes.annotator, weights=votes.weights, minlength=M).astype(np.float64)
        return cls(
            (pair % N)[order], (pair // N)[order], pattern.reshape(-1)[order], patterns.astype(np.float64), total
        )


@dataclass(frozen=True)
class Nodes:
    """G points in the space of confusion matrices: log theta (G x K x K) and log weights (G, summing to one)."""

    log_theta: Floats
    log_weight: Floats


@lru_cache(maxsize=4096)
def beta_rule(n: int, a: float, b: float) -> tuple[Floats, Floats, Floats]:
    """Gauss-Jacobi for Beta(a, b): log w, log(1 - w) and log weights of n nodes, exact up to degree 2n - 1.

    Nodes are the eigenvalues of the Jacobi matrix; a weight is 1 / sum_j p_j(x)^2 over the orthonormal
    polynomials, a sum of positive terms, so small weights keep their digits.
    """
    from scipy.linalg import eigh_tridiagonal

    al, be = b - 1.0, a - 1.0
    k = np.arange(1, n)
    s = 2.0 * k + al + be
    diagonal = np.append((be - al) / (al + be + 2.0), (be - al) * (be + al) / (s * (s + 2.0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        square = 4.0 * k * (k + al) * (k + be) * (k + al + be) / (s * s * (s + 1.0) * (s - 1.0))
    if n > 1:  # (k + al + be) / (s - 1) is 1 there, or 0 / 0
        square[0] = 4.0 * (1.0 + al) * (1.0 + be) / (s[0] * s[0] * (s[0] + 1.0))
    off = np.sqrt(square)
    x = eigh_tridiagonal(diagonal, off, eigvals_only=True) if n > 1 else diagonal
    before, now, total = np.zeros(n), np.ones(n), np.ones(n)
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(n - 1):
            step = (x - diagonal[j]) * now - (off[j - 1] * before if j else 0.0)
            before, now = now, step / off[j]
            total += now * now
    weight = np.where(np.isfinite(total), 1.0 / total, 0.0)
    return safe_log((1.0 + x) / 2.0), safe_log((1.0 - x) / 2.0), safe_log(weight / weight.sum())


@dataclass(frozen=True)
class Grid:
    """n Gauss-Jacobi nodes for each coin of an annotator: one coin, or one for each of two classes."""

    n: int
    coins: tuple[tuple[float, float], ...]
    n_classes: int

    def nodes(self, at: Ints) -> Nodes:
        """The nodes with these indices (G x coins)."""
        K = self.n_classes
        rules = [beta_rule(self.n, a, b) for a, b in self.coins]
        right = np.stack([rule[0][i] for rule, i in zip(rules, at.T, strict=True)], axis=1)
        wrong = np.stack([rule[1][i] for rule, i in zip(rules, at.T, strict=True)], axis=1) - np.log(K - 1.0)
        weight = sum(rule[2][i] for rule, i in zip(rules, at.T, strict=True))
        truth = np.arange(K) if len(self.coins) > 1 else np.zeros(K, dtype=np.int64)
        log_theta = np.where(np.eye(K, dtype=bool), right[:, truth, None], wrong[:, truth, None])
        return Nodes(log_theta, np.asarray(weight))

    def all(self) -> Nodes:
        return self.nodes(_lattice(self.n, len(self.coins)))

    def near_peak(self, log_evidence: Callable[[Nodes], Floats]) -> Nodes:
        """The nodes that matter, from blocks of 9 per coin to blocks of 3 to single ones."""
        D = len(self.coins)
        blocks = _lattice(-(-self.n // 9), D)
        for size in (9, 3):
            height = log_evidence(self.nodes(np.minimum(blocks * size + size // 2, self.n - 1)))
            blocks = blocks[height > height.max() - CUT - SLACK[size]]
            blocks = (blocks[:, None, :] * 3 + _lattice(3, D)[None]).reshape(-1, D)
            blocks = blocks[(blocks * (size // 3) < self.n).all(axis=1)]
        return self.nodes(blocks)


def _lattice(n: int, D: int) -> Ints:
    return np.stack([axis.ravel() for axis in np.indices((n,) * D)], axis=1)


def rule_size(votes: float, whole: bool) -> int:
    """Nodes per coin for an annotator with so many votes: exact, or as good as (see above)."""
    enough = int(np.ceil(4.0 * np.sqrt(votes))) + 8
    n = min(int(votes) // 2 + 1, enough) if whole else max(enough, 32)  # a fractional power is not a polynomial
    return n if n <= 8 else -(-n // 4) * 4  # few different sizes, so that annotators can share them


@dataclass(frozen=True)
class Job:
    """Edges of one annotator, or of several with the same nodes."""

    edges: Ints
    owner: Ints
    """Which of ``annotators`` each edge is of, ascending."""
    annotators: Ints
    local: Ints
    """Which of ``patterns`` each edge is of."""
    patterns: Floats
    source: Nodes | Grid


def likelihood(patterns: Floats, nodes: Nodes) -> tuple[Floats, Floats | None]:
    """t(k; theta) for each pattern, P x K x G; with heavy votes, its largest over k taken out, and the log of that."""
    G, K, L = nodes.log_theta.shape
    table = np.ascontiguousarray((patterns @ nodes.log_theta.reshape(G * K, L).T).reshape(-1, G, K).transpose(0, 2, 1))
    if patterns.sum(axis=1).max() <= 4.0:  # nothing underflows
        return np.exp(table), None
    top = table.max(axis=1)
    return np.exp(table - top[:, None]), top


def groups(local: Ints, P: int) -> Iterator[tuple[int, Any]]:
    """The edges of each pattern: a slice where they lie together, as those of a single annotator do."""
    if (local[1:] >= local[:-1]).all():
        cuts = np.searchsorted(local, np.arange(P + 1))
        return ((p, slice(cuts[p], cuts[p + 1])) for p in range(P))
    return ((p, np.flatnonzero(local == p)) for p in range(P))


def mix(a: Floats, local: Ints, likes: Floats) -> Floats:
    """f[e, g] = sum_k a[e, k] t[pattern of e, k, g], held above zero."""
    P, K, G = likes.shape
    if P > max(len(a) // 8, K):
        out = np.einsum("ek,ekg->eg", a, likes[local])
    else:
        out = np.empty((len(a), G))
        for p, rows in groups(local, P):
            if isinstance(rows, slice):
                np.matmul(a[rows], likes[p], out=out[rows])
            else:
                out[rows] = a[rows] @ likes[p]
    return np.asarray(np.maximum(out, TINY, out=out))


def unmix(rest: Floats, local: Ints, likes: Floats) -> Floats:
    """sum_g rest[e, g] t[pattern of e, k, g], E x K."""
    P, K, _ = likes.shape
    if P > max(len(rest) // 8, K):
        return np.asarray(np.einsum("eg,ekg->ek", rest, likes[local]))
    out = np.empty((len(rest), K))
    for p, rows in groups(local, P):
        out[rows] = rest[rows] @ likes[p].T
    return out


def blocks(E: int, G: int) -> Iterator[slice]:
    """Rows that can be worked on at once."""
    size = max(BLOCK // G, 1)
    return (slice(lo, min(lo + size, E)) for lo in range(0, E, size))


def evidence(a: Floats, job: Job, nodes: Nodes, likes: Floats, top: Floats | None) -> Floats:
    """log of weight times prod_e f_e, for each annotator of the job and node (A x G)."""
    A, G = len(job.annotators), len(nodes.log_weight)
    out = np.tile(nodes.log_weight, (A, 1))
    for rows in blocks(len(a), G):
        owner, local = job.owner[rows], job.local[rows]
        log_f = mix(a[rows], local, likes)
        np.log(log_f, out=log_f)
        if top is not None:
            log_f += top[local]
        first = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
        out[owner[first]] += np.add.reduceat(log_f, first, axis=0)
    return out


def integrate(a: Floats, job: Job) -> tuple[Floats, Floats, Floats, Floats]:
    """Messages out (E x K), mean theta (A x K x K), log Z (A) and effective number of nodes (A) from messages in."""
    K = a.shape[1]

    def peak(nodes: Nodes) -> Floats:
        return np.asarray(evidence(a, job, nodes, *likelihood(job.patterns, nodes))[0])

    nodes = job.source if isinstance(job.source, Nodes) else job.source.near_peak(peak)
    likes, top = likelihood(job.patterns, nodes)
    height = evidence(a, job, nodes, likes, top)
    best = height.max(axis=1, keepdims=True)
    weight = np.exp(height - best)
    mass = weight.sum(axis=1)
    weight /= mass[:, None]
    out = np.empty_like(a)
    for rows in blocks(len(a), len(nodes.log_weight)):
        local = job.local[rows]
        rest = mix(a[rows], local, likes)  # the edge's own factor, to be taken out
        np.divide(weight if len(weight) == 1 else weight[job.owner[rows]], rest, out=rest)
        out[rows] = unmix(rest, local, likes)
    mean = (weight @ np.exp(nodes.log_theta).reshape(-1, K * K)).reshape(-1, K, K)
    return out, mean, best[:, 0] + np.log(mass), 1.0 / (weight**2).sum(axis=1)
