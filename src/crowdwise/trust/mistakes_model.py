"""The null model of shared mistakes: hard items, favourite wrong labels and a consensus that errs, but no pact.

Item n has a truth k and an ease tau (a few values, whose shares are learned), and annotator m says l with probability

    p_m(l | k, tau) proportional to exp( tau beta[m, k, l] ),

independently of all others.

===============  ==============  ==============  ======================================================================
symbol           code            shape           equation
===============  ==============  ==============  ======================================================================
r[n, k, tau]     ``r``           N x K x D       q[n, k] softmax_tau( log w_tau + sum_votes log p_m(l | k, tau) )
beta, w                                          under which the counts that r gives are most probable
rho[k, tau]      ``rho``         per pair, item  P(k, tau | votes on n without those of i and j)
X                ``x``           per pair, item  1[i and j both say l] (1 - rho[k = l]): both wrong, and alike
T, mean, var     ``shared``...   pairs           sums over common items of X, of E X and of Var X under the model
===============  ==============  ==============  ======================================================================

Reference: J. Whitehill et al., NIPS 2009 (GLAD), for ease as a factor on log-odds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.core.shrinkage import learned_prior
from crowdwise.data.votes import Votes
from crowdwise.kernels import reference

EASE = np.array([0.1, 0.35, 0.7, 1.1, 1.8, 3.0])
"""tau: from items on which everybody guesses to items on which hardly anybody errs."""
ROUNDS, HELD = 25, 10
"""Steps of EM, and how many of them hold the truths at the consensus while ease and tendencies converge."""
CHUNK = 30_000
"""Pairs of votes worked on at once, where the table of one (labels x states) is small..."""
CELLS = 2**22
"""...and else as many as have so many cells together: with K classes there are K x 6 K for each pair."""


def null_model(votes: Votes, q: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """log p[m * K + l, (k, tau)], the log shares of (k, tau), and what its votes say of each item (N x (k, tau)).

    EM from the truths of a consensus, which are held for the first ``HELD`` rounds. ``weight`` is what a vote of each
    annotator counts for the truth of an item: members of a group that was found count as one.
    """
    M, K, D = votes.n_annotators, votes.n_classes, len(EASE)
    cell, w = votes.annotator.astype(np.int64) * K + votes.label, weight[votes.annotator]
    counts = reference.scatter(votes.indptr, cell, np.empty(0), q, M * K).reshape(M, K, K)
    pseudo = learned_prior(counts)  # [m, l, k]
    beta = safe_log(normalise(counts + pseudo, axis=1))
    share = np.outer(normalise(q.sum(axis=0) + 1.0 / K, axis=0), np.full(D, 1.0 / D))
    for step in range(ROUNDS):
        logit = reference.logits(votes.indptr, cell, w, tempered(beta), np.log(share).reshape(1, -1))
        r = np.exp(logit - logit.max(axis=1, keepdims=True)).reshape(-1, K, D)
        if step < HELD:
            r *= np.divide(q, r.sum(axis=2), out=np.zeros_like(q), where=r.sum(axis=2) > 0)[:, :, None]
        r /= np.maximum(r.sum(axis=(1, 2), keepdims=True), 1e-300)
        mass = r.sum(axis=0) + 1.0 / (K * D)
        share = mass / mass.sum()
        c = reference.scatter(votes.indptr, cell, np.empty(0), r.reshape(-1, K * D), M * K).reshape(M, K, K, D)
        beta = ascended(beta, c, pseudo)
    log_p, log_share = tempered(beta), np.log(share).ravel()
    return log_p, log_share, reference.logits(votes.indptr, cell, w, log_p, log_share[None])


def tempered(beta: Floats) -> Floats:
    """log p[m * K + l, (k, tau)] = tau beta[m, l, k] - log sum_l exp( tau beta[m, l, k] )."""
    M, K, _ = beta.shape
    x = beta[:, :, :, None] * EASE
    top = x.max(axis=1, keepdims=True)
    x = x - top - np.log(np.exp(x - top).sum(axis=1, keepdims=True))
    return np.asarray(x.reshape(M * K, K * len(EASE)))


def ascended(beta: Floats, c: Floats, pseudo: Floats, steps: int = 3) -> Floats:
    """beta with a higher sum c log p + pseudo log p(tau = 1); Boehning's bound makes every step safe."""
    n, b = c.sum(axis=1, keepdims=True), pseudo.sum(axis=1, keepdims=True)
    bound = 0.5 * ((n * EASE**2).sum(axis=3) + b)
    for _ in range(steps):
        p = np.exp(tempered(beta)).reshape(c.shape)
        top = beta.max(axis=1, keepdims=True)
        p1 = np.exp(beta - top)
        p1 /= p1.sum(axis=1, keepdims=True)
        slope = (EASE * (c - n * p)).sum(axis=3) + pseudo - b * p1
        beta = beta + slope / np.maximum(bound, 1e-9)
        beta = (
            beta
            - np.log(np.exp(beta - beta.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
            - beta.max(axis=1, keepdims=True)
        )
    return beta


def paired_votes(indptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """All pairs (first, second) of different votes on the same item, for some items."""
    size = np.diff(indptr)[rows]
    count = size * (size - 1) // 2
    base = np.repeat(indptr[rows], count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    # The pair number t is (a, b), a < b, counted by b: t = b (b - 1) / 2 + a.
    b = np.floor((1.0 + np.sqrt(8.0 * within + 1.0)) / 2.0).astype(np.int64)
    b -= (b * (b - 1) // 2 > within).astype(np.int64)
    b += ((b + 1) * b // 2 <= within).astype(np.int64)
    return base + within - b * (b - 1) // 2, base + b


def moments(votes: Votes, log_p: Floats, logit: Floats, weight: Floats, rows: Ints) -> dict[str, Floats]:
    """Sums over common items for every pair of annotators: X, its mean and variance, items and mistakes of both."""
    M, K = votes.n_annotators, votes.n_classes
    S = log_p.shape[1]
    cell = votes.annotator.astype(np.int64) * K + votes.label
    of = weight[votes.annotator]
    p = np.exp(log_p).reshape(M, K, S)
    first, second = paired_votes(votes.indptr, rows)
    item = votes.item
    keys, sums, waiting = [], [], 0
    step = min(CHUNK, max(CELLS // (K * S), 1))
    for lo in range(0, len(first), step):
        a, b = first[lo : lo + step], second[lo : lo + step]
        different = votes.annotator[a] != votes.annotator[b]
        a, b = a[different], b[different]
        rho = logit[item[a]] - of[a, None] * log_p[cell[a]] - of[b, None] * log_p[cell[b]]
        rho = np.exp(rho - rho.max(axis=1, keepdims=True))
        rho /= rho.sum(axis=1, keepdims=True)
        wrong = 1.0 - rho.reshape(len(a), K, -1).sum(axis=2)
        i, j = votes.annotator[a].astype(np.int64), votes.annotator[b].astype(np.int64)
        both = np.einsum("bls,bls,bs->bl", p[i], p[j], rho)
        at = np.arange(len(a))
        of_a, of_b = wrong[at, votes.label[a]], wrong[at, votes.label[b]]
        x = np.where(votes.label[a] == votes.label[b], of_a, 0.0)
        mean = (both * wrong).sum(axis=1)
        var = (both * wrong**2).sum(axis=1) - mean**2
        keys.append(np.minimum(i, j) * M + np.maximum(i, j))
        sums.append(np.stack([x, mean, np.maximum(var, 0.0), np.ones(len(a)), of_a + of_b], axis=1))
        waiting += len(a)
        if waiting > 50 * CHUNK:  # fold what has been seen so far, so that memory grows with pairs of annotators
            keys, sums = _folded(keys, sums)
            waiting = 0
    keys, sums = _folded(keys, sums)
    names = ("shared", "expected", "variance", "items", "mistakes")
    out: dict[str, Floats] = {name: sums[0][:, c] for c, name in enumerate(names)}
    return {"left": keys[0] // M, "right": keys[0] % M, **out}


def _folded(keys: list[Any], sums: list[Any]) -> tuple[list[Any], list[Any]]:
    if not keys:
        return [np.empty(0, dtype=np.int64)], [np.empty((0, 5))]
    key, place = np.unique(np.concatenate(keys), return_inverse=True)
    table = np.concatenate(sums)
    total = np.column_stack([np.bincount(place, weights=column, minlength=len(key)) for column in table.T])
    return [key], [total]


def tail(shared: Floats, mean: Floats, variance: Floats) -> Floats:
    """P(a scaled Poisson variable with this mean and variance is at least so large)."""
    from scipy.special import gammainc

    scale = np.divide(variance, mean, out=np.ones_like(mean), where=mean > 0)
    scale = np.maximum(scale, 1e-12)
    p = np.asarray(gammainc(np.maximum(shared / scale, 1e-300), np.maximum(mean / scale, 1e-300)))
    return np.where((shared <= 0) | (variance <= 0), 1.0, p)
