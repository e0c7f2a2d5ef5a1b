"""EM for groups with a latent opinion: cells of votes, both steps, and one vote per group.

The model and its symbols are in :mod:`crowdwise.methods.groups_dawid_skene`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.numerics import Floats, Ints, normalise, posterior_and_evidence, safe_log, winners
from crowdwise.core.vote_sums import sum_rows
from crowdwise.data.votes import Votes
from crowdwise.kernels import reference

CHUNK = 200_000
"""Cells whose K x K tables are held at once."""


@dataclass(frozen=True)
class Cells:
    """Votes sorted by item and group: a cell is an item and a group that labelled it."""

    indptr: Ints
    """Where the votes of each cell begin."""
    first: Ints
    """Where the cells of each item begin."""
    item: Ints
    group: Ints
    vote: Ints
    """annotator * K + label of each vote."""
    weight: Floats

    @classmethod
    def of(cls, votes: Votes, group: Ints) -> Cells:
        item, of = votes.item, group[votes.annotator]
        order = np.lexsort((votes.label, votes.annotator, of, item))
        item, of = item[order], of[order]
        new = np.ones(len(item), dtype=bool)
        new[1:] = (item[1:] != item[:-1]) | (of[1:] != of[:-1])
        begin = np.flatnonzero(new)
        first = np.concatenate([[0], np.cumsum(np.bincount(item[begin], minlength=len(votes)))])
        vote = votes.annotator[order].astype(np.int64) * votes.n_classes + votes.label[order]
        return cls(np.append(begin, len(item)), first, item[begin], of[begin], vote, votes.weights[order])

    def opinions(self, K: int) -> Floats:
        """cells x K: the (weighted) share of each label among the group's votes on the item."""
        return reference.shares(self.indptr, self.vote % K, self.weight, K)

    def sizes(self, votes: Votes) -> Floats:
        """The mean weight, per member who labelled the item, of each cell."""
        K = votes.n_classes
        cell = np.repeat(np.arange(len(self.item)), np.diff(self.indptr))
        who = self.vote // K
        new = np.ones(len(who), dtype=bool)
        new[1:] = (cell[1:] != cell[:-1]) | (who[1:] != who[:-1])
        total = np.bincount(cell, weights=self.weight, minlength=len(self.item))
        return np.asarray(total / np.maximum(np.bincount(cell[new], minlength=len(self.item)), 1))


def one_vote_each(votes: Votes, group: Ints) -> Floats:
    """N x K: the share of groups with the majority k; tied labels evenly, uniform where there is no vote."""
    N, K = len(votes), votes.n_classes
    cells = Cells.of(votes, group)
    say = winners(cells.opinions(K)) * cells.sizes(votes)[:, None]
    return normalise(sum_rows(say, cells.item, N), axis=1)


@dataclass(frozen=True)
class Levels:
    """The parameters, as logarithms: theta[m * K + l, z], xi[j, k, z] and pi."""

    log_theta: Floats
    log_xi: Floats
    log_pi: Floats


def expect(
    cells: Cells, levels: Levels, single: Ints, gold: Ints | None, log_prior: Floats | None, counting: bool = True
) -> tuple[Floats, Floats, Floats, float]:
    """c[m * K + l, z], x[j, k, z], the posterior q and the log-likelihood; ``single``: groups of one annotator."""
    C, K = levels.log_theta.shape
    N = len(cells.first) - 1
    f = reference.logits(cells.indptr, cells.vote, cells.weight, levels.log_theta, np.zeros((1, K)))
    g = f.copy()
    shared = np.flatnonzero(~single[cells.group])
    for lo in range(0, len(shared), CHUNK):
        at = shared[lo : lo + CHUNK]
        g[at] = _logsumexp(levels.log_xi[cells.group[at]] + f[at, None, :])
    logit = np.tile(levels.log_pi, (N, 1)) if log_prior is None else levels.log_pi + log_prior
    logit += sum_rows(g, cells.item, N)
    q, evidence = posterior_and_evidence(logit, gold)
    if not counting:
        return np.empty((0, K)), np.empty((0, K, K)), q, float(evidence.sum())
    r = q[cells.item]
    opinions = np.zeros(levels.log_xi.shape)
    for lo in range(0, len(shared), CHUNK):
        at = shared[lo : lo + CHUNK]
        joint = np.exp(levels.log_xi[cells.group[at]] + f[at, None, :] - g[at, :, None]) * r[at, :, None]
        r[at] = joint.sum(axis=1)
        opinions += _by_group(joint, cells.group[at], len(opinions))
    counts = reference.scatter(cells.indptr, cells.vote, cells.weight, r, C)
    return counts, opinions, q, float(evidence.sum())


def _logsumexp(x: Floats) -> Floats:
    top = x.max(axis=-1, keepdims=True)
    return np.asarray((top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True)))[..., 0])


def _by_group(table: Floats, group: Ints, J: int) -> Floats:
    """Tables of cells summed over the cells of each group."""
    return sum_rows(table.reshape(len(table), -1), group, J).reshape(J, *table.shape[1:])


def maximise(counts: Floats, opinions: Floats, mass: Floats, b: Floats, d: Floats, single: Ints) -> Levels:
    """The parameters under which the expected counts are most probable; a group of one annotator has xi = 1."""
    K = counts.shape[1]
    theta = normalise(counts.reshape(-1, K, K) + b, axis=1).reshape(-1, K)
    xi = normalise(opinions + d, axis=2)
    xi[single] = np.eye(K)
    return Levels(safe_log(theta), safe_log(xi), safe_log(normalise(mass, axis=0)))


@dataclass(frozen=True)
class Fit:
    """A two-level model, fitted."""

    levels: Levels
    counts: Floats
    q: Floats
    log_likelihood: float
    rounds: Rounds


def first_opinions(cells: Cells, group: Ints, q: Floats, K: int) -> Floats:
    """cells x K: the labels' shares in the group; for a group of one annotator the posterior of the truth."""
    r = cells.opinions(K)
    single = (np.bincount(group) == 1)[cells.group]
    r[single] = q[cells.item[single]]
    return r


def fit_levels(
    votes: Votes, group: Ints, *, b: Floats, d: Floats, max_iter: int, tol: float, start: Floats | None = None,
    gold: Ints | None = None, log_prior: Floats | None = None, callback: Callback | None = None,
) -> Fit:  # fmt: skip
    """EM from a posterior of the truths (by default one vote per group) and the groups' shares of labels."""
    K = votes.n_classes
    cells, single = Cells.of(votes, group), np.bincount(group) == 1
    q = one_vote_each(votes, group) if start is None else start
    r = first_opinions(cells, group, q, K)
    counts = reference.scatter(cells.indptr, cells.vote, cells.weight, r, votes.n_annotators * K)
    opinions = _by_group(q[cells.item][:, :, None] * r[:, None, :], cells.group, len(single))
    rounds = Rounds(max_iter, float(votes.weights.sum()), callback)
    for _ in rounds:
        levels = maximise(counts, opinions, q.sum(axis=0), b, d, single)
        counts, opinions, q, evidence = expect(cells, levels, single, gold, log_prior)
        value = evidence + float((b * levels.log_theta.reshape(-1, K, K)).sum())
        value += float((d * levels.log_xi[~single]).sum())
        rounds.reached(value, below=tol)
    return Fit(levels, counts, q, evidence, rounds)
