"""The likelihood of comparisons and its derivatives: item scores, and one number per annotator.

A comparison of winner w and loser l has z = s_w - s_l. With ties (Davidson) the three outcomes have

    P(w), P(l), P(tie)  =  softmax( z/2, -z/2, tau ),        without ties  P(w) = sigmoid(z)

An annotator m may have a number of their own, theta_m:

=============  ==================================================================================
``plain``      none
``reliable``   theta_m = logit eta_m: P_m(w) = eta_m P(w) + (1 - eta_m) P(l), ties as they are
``position``   theta_m is added to z for the item shown first (and taken off for the other)
=============  ==================================================================================

With r = sigmoid(theta_m + z), the probability that a decided answer was given straight, and c = (P(w) - P(l)) / 2,
v = (P(w) + P(l)) / 4 - c^2, the derivatives of the log likelihood of one comparison are

=======================  =====================  ======================
with respect to          decided                tie
=======================  =====================  ======================
z                        r - 1/2 - c            -c
theta (``reliable``)     r - eta                0
tau                      -P(tie)                1 - P(tie)
-(z, z)                  v - r(1-r)             v
-(z, theta)              -r(1-r)                0
-(theta, theta)          eta(1-eta) - r(1-r)    0
-(z, tau)                -c P(tie)              -c P(tie)
-(tau, tau)              P(tie)(1-P(tie))       P(tie)(1-P(tie))
=======================  =====================  ======================

(r = 1 where annotators have no reliability.) The r(1-r) is what is lost by not knowing which answers were turned round
(Louis' identity); without it the matrix is that of EM's M-step, which is always positive definite, and steps fall back
on it where the true one is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints
from crowdwise.data.comparisons import LEFT, TIE, Comparisons

__all__ = ["Derivatives", "Games", "Model", "derivatives", "log_likelihood", "log_prior", "look"]

DENSE = 3000
"""Up to so many items matrices are items x items arrays."""
CELLS = 30_000_000
"""Up to so many cells an items x annotators table is an array."""
CHUNK = 65536
"""Rows worked on together: they stay in the cache."""
NATIVE_ROWS = 300_000
"""From so many rows on a pass is worth compiled code."""
BLOCK = 128
"""Annotators whose comparisons lie together in large tables."""
LOG2 = float(np.log(2.0))


@dataclass(frozen=True)
class Games:
    """Comparisons as raw arrays: the decided ones first, then the ties."""

    winner: Ints
    loser: Ints
    annotator: Ints
    sign: Floats
    """+1 where the winner (the first, of a tie) is the left item, -1 where the loser is."""
    weight: Floats
    decided: int
    """So many rows have a winner; the others are ties."""
    n_items: int
    n_annotators: int

    @classmethod
    def of(cls, table: Comparisons, *, ties: str = "davidson", by_annotator: bool = True, placed: bool = True) -> Games:
        """The comparisons; ``ties`` as they are (``davidson``), as ``half`` a win for each, or left out (``drop``).

        What a model does not look at (annotators, places) is dropped first, so that more rows are equal.
        """
        a, b, y, w = table.left.astype(np.int64), table.right.astype(np.int64), table.outcome, table.weights
        m = table.annotator.astype(np.int64) if by_annotator else np.zeros(len(a), np.int64)
        M = table.n_annotators if by_annotator else 1
        tie = y == TIE
        if ties != "davidson" and tie.any():
            extra = np.flatnonzero(tie) if ties == "half" else np.empty(0, np.int64)
            rows = np.concatenate([np.flatnonzero(~tie), extra, extra])
            turned = np.concatenate([np.zeros(len(rows) - len(extra), bool), np.ones(len(extra), bool)])
            w = np.where(tie, 0.5, 1.0) * w
            left_won = np.where(tie[rows], ~turned, y[rows] == LEFT)
            a, b, m, w, tie = a[rows], b[rows], m[rows], w[rows], np.zeros(len(rows), bool)
        else:
            left_won = (y == LEFT) | tie
        winner, loser = np.where(left_won, a, b), np.where(left_won, b, a)
        if not placed and tie.any():  # a tie has no winner: its items in one order
            winner, loser = (
                np.where(tie, np.minimum(winner, loser), winner), np.where(tie, np.maximum(winner, loser), loser)
            )  # fmt: skip
        N = table.n_items
        sign = np.where(winner == a, 1.0, -1.0)
        if not by_annotator and not placed and N <= DENSE:  # count equal rows by a table of all pairs
            count = total((tie * np.int64(N) + winner) * N + loser, w, 2 * N * N)
            kept = np.flatnonzero(count)
            tie, pair = np.divmod(kept, N * N)
            return cls(pair // N, pair % N, np.zeros(len(kept), np.int64), np.ones(len(kept)), count[kept],
                       int((tie == 0).sum()), N, 1)  # fmt: skip
        order: Any = slice(None)
        if by_annotator and len(winner) >= NATIVE_ROWS:  # annotators in blocks whose part of a table stays in the cache
            block = m // BLOCK + tie * (M // BLOCK + 1)
            order = np.argsort(block.astype(np.uint16) if M < 30_000 * BLOCK else block, kind="stable")
        elif tie.any():
            order = np.argsort(tie, kind="stable")
        return cls(winner[order], loser[order], m[order], sign[order], w[order].astype(np.float64),
                   int((~tie).sum()), N, M)  # fmt: skip

    def turned(self, factor: Floats) -> Games:
        """The decided comparisons, each annotator's counted ``factor`` times, turned round where that is below 0."""
        d, f = slice(0, self.decided), factor[self.annotator[: self.decided]]
        back = f < 0.0
        return Games(
            np.where(back, self.loser[d], self.winner[d]),
            np.where(back, self.winner[d], self.loser[d]),
            self.annotator[d],
            np.where(back, -1.0, 1.0) * self.sign[d],
            self.weight[d] * np.abs(f),
            self.decided,
            self.n_items,
            self.n_annotators,
        )

    @property
    def n_ties(self) -> int:
        return len(self.winner) - self.decided

    def scaled(self, factor: Floats) -> Games:
        """The same comparisons, each annotator's counted so many times."""
        return Games(
            self.winner, self.loser, self.annotator, self.sign, self.weight * factor[self.annotator], self.decided,
            self.n_items, self.n_annotators,
        )  # fmt: skip


@dataclass(frozen=True)
class Model:
    """What is fitted, and the priors.

    ``prior``: comparisons of every item with one of score 0 (and, for ties, of two equal items), half won, that are
    taken to have been seen. ``beta``: exponents of eta and 1 - eta in the prior of reliabilities. ``spread``:
    standard deviation of the positions around their mean.
    """

    kind: str
    ties: bool
    prior: float
    beta: tuple[float, float] = (1.0, 1.0)
    spread: float = 1.0

    @property
    def n_shared(self) -> int:
        """Numbers that belong to no item and no annotator: tau, and the mean position."""
        return int(self.ties) + int(self.kind == "position")


@dataclass(frozen=True)
class Derivatives:
    """Gradient and negative Hessian in blocks: x = (scores, tau, mean position), theta = one per annotator.

    ``H`` (x by x) and ``C`` (x by theta) are arrays or sparse; ``D`` is the diagonal of theta by theta.
    """

    g: Floats
    g_theta: Floats
    H: Any
    C: Any
    D: Floats


# -------------------------------------------------------------------- one pass over the comparisons


def log_likelihood(games: Games, model: Model, x: Floats, theta: Floats) -> tuple[float, dict[str, Floats]]:
    """The log likelihood, and what its derivatives are made of, row by row (see the table above)."""
    S, N = len(games.winner), games.n_items
    tau = x[N] if model.ties else None
    names = ["g", "v", "q", "k", "t"] if model.ties else ["g", "v", "q"]
    out = {name: np.empty(S) for name in (names if model.kind == "reliable" else [n for n in names if n != "q"])}
    if model.kind == "reliable":
        out["r"] = np.zeros(S)
        log_eta = -np.logaddexp(0.0, -theta)
    total = 0.0
    for lo in range(0, S, CHUNK):
        cut = slice(lo, min(lo + CHUNK, S))
        m = games.annotator[cut]
        z = x[games.winner[cut]] - x[games.loser[cut]]
        if model.kind == "position":
            z += games.sign[cut] * theta[m]
        n = min(max(games.decided - lo, 0), len(z))  # so many rows of the chunk are decided
        e = np.exp(-np.abs(z))
        if tau is None:
            log_p = np.minimum(z, 0.0) - np.log1p(e)
            small = e / (1.0 + e)
            p_w = np.where(z >= 0.0, 1.0 - small, small)
            c, v = p_w - 0.5, small * (1.0 - small)
        else:
            half = 0.5 * np.abs(z)
            top = np.maximum(half, tau)
            log_norm = top + np.log(np.exp(half - top) + np.exp(-half - top) + np.exp(tau - top))
            p_t = np.exp(tau - log_norm)
            p_w, p_l = np.exp(0.5 * z - log_norm), np.exp(-0.5 * z - log_norm)
            c = 0.5 * (p_w - p_l)
            v = 0.25 * (p_w + p_l) - c * c
            log_p = 0.5 * z - log_norm
            log_p[n:] = tau - log_norm[n:]
            out["k"][cut], out["t"][cut] = -c * p_t, p_t
        g = 0.5 - c
        g[n:] = -c[n:]
        if model.kind == "reliable":
            u = theta[m] + z
            eu = np.exp(-np.abs(u))
            log_r = np.minimum(u, 0.0) - np.log1p(eu)
            tiny = eu / (1.0 + eu)
            r = np.where(u >= 0.0, 1.0 - tiny, tiny)
            q = tiny * (1.0 - tiny)
            r[n:], q[n:] = 0.0, 0.0
            log_p[:n] += log_eta[m[:n]] - log_r[:n]
            g[:n] += r[:n] - 1.0
            out["r"][cut], out["q"][cut] = r, q
        out["g"][cut], out["v"][cut] = g, v
        total += float(games.weight[cut] @ log_p)
    return total, out


def log_prior(model: Model, x: Floats, theta: Floats, N: int) -> float:
    """The log of what the priors say, without terms that nothing enters."""
    s, value = x[:N], 0.0
    if model.prior > 0.0:
        value -= 0.5 * model.prior * float((np.logaddexp(0.0, s) + np.logaddexp(0.0, -s)).sum())
        if model.ties:
            t = x[N] - LOG2
            value -= 0.5 * model.prior * float(np.logaddexp(0.0, t) + np.logaddexp(0.0, -t))
    if model.kind == "reliable":
        a, b = model.beta
        value -= float((a * np.logaddexp(0.0, -theta) + b * np.logaddexp(0.0, theta)).sum())
    if model.kind == "position":
        value -= 0.5 * float(((theta - x[-1]) ** 2).sum()) / model.spread**2
    return value


@dataclass(frozen=True)
class Sums:
    """What a pass adds up: over comparisons, by item (g, k), by two items (A), by annotator, by item and annotator."""

    g: Floats
    """N: of the derivative with respect to z, + for the winner, - for the loser."""
    A: Any
    """N x N (winner, loser): of -(z, z); sparse beyond ``DENSE`` items."""
    k: Floats
    """N: of -(z, tau)."""
    tau: tuple[float, float]
    """Of the derivative with respect to tau, and of -(tau, tau)."""
    C: Any
    """N x M: of -(z, theta), + for the winner, - for the loser."""
    own: Floats
    """3 x M. Reliabilities: of r, r(1-r), and the number of decided answers; positions: of the derivative, of v and of
    -(theta, tau)."""


def add_up(games: Games, model: Model, rows: dict[str, Floats], whole: bool) -> Sums:
    """The sums of a pass, from its rows; those of EM's M-step where not ``whole``."""
    N, M, w = games.n_items, games.n_annotators, games.weight
    i, j, m = games.winner, games.loser, games.annotator
    nothing, k, tau = np.zeros(0), np.zeros(N), (0.0, 0.0)
    wg, v = w * rows["g"], rows["v"]
    g = total(i, wg, N) - total(j, wg, N)
    A = _pair_table(i, j, w * (v - rows["q"] if model.kind == "reliable" and whole else v), N)
    if model.ties:
        wk, t = w * rows["k"], rows["t"]
        k = total(i, wk, N) - total(j, wk, N)
        tau = (float(w[games.decided :].sum() - w @ t), float(w @ (t * (1.0 - t))))
    if model.kind == "plain":
        return Sums(g, A, k, tau, None, nothing)
    if model.kind == "reliable":
        d = slice(0, games.decided)
        wq = w * rows["q"] if whole else np.zeros(len(w))
        own = np.stack([total(m[d], (w * rows["r"])[d], M), total(m, wq, M), total(m[d], w[d], M)])
        return Sums(g, A, k, tau, _cross_table(i, j, m, -wq, N, M), own)
    sign = games.sign
    tied = total(m, w * rows["k"] * sign, M) if model.ties else np.zeros(M)
    own = np.stack([total(m, wg * sign, M), total(m, w * v, M), tied])
    return Sums(g, A, k, tau, _cross_table(i, j, m, w * v * sign, N, M), own)


def look(games: Games, model: Model, x: Floats, theta: Floats) -> tuple[float, Callable[[bool], Sums]]:
    """The log likelihood, and a function that gives the sums behind its derivatives (``whole``, or EM's)."""
    N, cells = games.n_items, games.n_items * games.n_annotators
    large = len(games.winner) >= NATIVE_ROWS and N <= DENSE and cells <= CELLS
    if large and model.kind != "plain" and _near(x, theta, N):  # plain passes are as quick in numpy
        value, whole = _native(games, model, x, theta, True)
        return value, lambda asked: whole if asked else _native(games, model, x, theta, False)[1]
    value, rows = log_likelihood(games, model, x, theta)
    return value, lambda asked: add_up(games, model, rows, asked)


def _near(x: Floats, theta: Floats, N: int) -> bool:
    from crowdwise.kernels import comparison_pass

    return comparison_pass.fits(x, theta, N)


def _native(games: Games, model: Model, x: Floats, theta: Floats, whole: bool) -> tuple[float, Sums]:
    from crowdwise.kernels import comparison_pass

    kind = ("plain", "reliable", "position").index(model.kind)
    value, g, A, k, tau, C, own = comparison_pass.look(
        games.winner, games.loser, games.annotator, games.sign, games.weight, games.decided, games.n_items,
        games.n_annotators, x, theta, kind, model.ties, whole,
    )  # fmt: skip
    return value, Sums(g, A, k, tau, None if kind == 0 else C, own)


def derivatives(games: Games, model: Model, x: Floats, theta: Floats, sums: Sums) -> Derivatives:
    """Gradient and negative Hessian of log likelihood and log prior."""
    N, M = games.n_items, games.n_annotators
    n_x = N + model.n_shared
    g = np.zeros(n_x)
    g[:N] = sums.g
    H = _laplacian(sums.A, N, n_x)
    if model.ties:
        g[N] = sums.tau[0]
        H = _with_shared(H, N, sums.k, sums.tau[1])
    if model.prior > 0.0:
        p = 1.0 / (1.0 + np.exp(-np.clip(x[:N], -500, 500)))
        g[:N] += model.prior * (0.5 - p)
        extra = np.zeros(n_x)
        extra[:N] = model.prior * p * (1.0 - p)
        if model.ties:
            t = 1.0 / (1.0 + np.exp(LOG2 - x[N]))
            g[N] += model.prior * (0.5 - t)
            extra[N] = model.prior * t * (1.0 - t)
        H = _add_diagonal(H, extra)
    if model.kind == "plain":
        return Derivatives(g, np.empty(0), H, None, np.empty(0))
    if model.kind == "reliable":
        odds = np.exp(-np.abs(np.clip(theta, -300, 300)))
        unsure = odds / (1.0 + odds) ** 2  # eta (1 - eta), also where eta rounds to 1
        eta = 1.0 / (1.0 + np.exp(-np.clip(theta, -300, 300)))
        straight, lost, said = sums.own
        a, b = model.beta
        g_theta = straight - said * eta + a - (a + b) * eta
        return Derivatives(g, g_theta, H, _with_lines(sums.C, n_x - N, M), (said + a + b) * unsure - lost)
    own = 1.0 / model.spread**2
    g_theta = sums.own[0] - own * (theta - x[-1])
    g[-1] = own * float((theta - x[-1]).sum())
    H = _add_diagonal(H, np.append(np.zeros(n_x - 1), own * M))
    lines = [np.full(M, -own)] if not model.ties else [sums.own[2], np.full(M, -own)]
    return Derivatives(g, g_theta, H, _with_lines(sums.C, n_x - N, M, *lines), sums.own[1] + own)


# -------------------------------------------------------------------- tables, as arrays or sparse


def total(index: Ints, value: Floats, size: int) -> Floats:
    """Sums of values by their index."""
    return np.bincount(index, value, size).astype(np.float64, copy=False)


def _pair_table(i: Ints, j: Ints, w: Floats, N: int) -> Any:
    if N <= DENSE:
        return total(i * N + j, w, N * N).reshape(N, N)
    from scipy import sparse

    return sparse.coo_array((w, (i, j)), shape=(N, N)).tocsr()


def _cross_table(i: Ints, j: Ints, m: Ints, w: Floats, N: int, M: int) -> Any:
    """N x M: +w for winners, -w for losers."""
    if N <= DENSE and N * M <= CELLS:
        return (total(i * M + m, w, N * M) - total(j * M + m, w, N * M)).reshape(N, M)
    from scipy import sparse

    at = (np.concatenate([i, j]), np.concatenate([m, m]))
    return sparse.coo_array((np.concatenate([w, -w]), at), shape=(N, M)).tocsr()


def _laplacian(A: Any, N: int, size: int) -> Any:
    """sum of a_ij (e_i - e_j)(e_i - e_j)', with empty rows and columns for what is shared."""
    if isinstance(A, np.ndarray):
        H = np.zeros((size, size))
        np.negative(A, out=H[:N, :N])
        H[:N, :N] -= A.T
        H[np.arange(N), np.arange(N)] += A.sum(axis=0) + A.sum(axis=1)
        return H
    from scipy import sparse

    both = A + A.T
    diagonal = np.append(np.asarray(both.sum(axis=1)).ravel(), np.zeros(size - N))
    both = both.copy()
    both.resize((size, size))
    return (sparse.diags_array(diagonal) - both).tocsr()


def _with_lines(C: Any, rows: int, M: int, *lines: Floats) -> Any:
    """The table of items and annotators with a line for each of what is shared (zeros where it does not meet theta)."""
    below = [*lines, *[np.zeros(M)] * (rows - len(lines))]
    if not below:
        return C
    if isinstance(C, np.ndarray):
        return np.vstack([C, *below])
    from scipy import sparse

    return sparse.vstack([C, *(sparse.csr_array(line[None, :]) for line in below)]).tocsr()


def _with_shared(H: Any, at: int, cross: Floats, own: float) -> Any:
    """The row, column and diagonal of tau."""
    if isinstance(H, np.ndarray):
        H[at, : len(cross)] = H[: len(cross), at] = cross
        H[at, at] = own
        return H
    from scipy import sparse

    n, k = H.shape[0], np.arange(len(cross))
    row = sparse.coo_array((cross, (np.full(len(cross), at), k)), shape=(n, n))
    return (H + row + row.T + sparse.coo_array(([own], ([at], [at])), shape=(n, n))).tocsr()


def _add_diagonal(H: Any, extra: Floats) -> Any:
    if isinstance(H, np.ndarray):
        H[np.arange(len(extra)), np.arange(len(extra))] += extra
        return H
    from scipy import sparse

    return (H + sparse.diags_array(extra)).tocsr()
