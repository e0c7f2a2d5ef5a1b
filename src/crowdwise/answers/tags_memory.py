"""Transition memory: what an annotator says of a token may depend on what they said of the one before.

An annotator who misses a span misses all of it. Token by token these look like independent errors, and a model that
treats them as such is overconfident. With memory the confusion of annotator m has a row for every true tag *and*
every tag that m gave to the token before (or none, where a sequence begins or the token before was left out):

    P(m says l of token t) = theta[m, h, y_t, l],        h = what m said of token t - 1

What m said before is known, so only the cell of the table changes that a vote falls into: annotator m with h before is
counted as an annotator of their own, m' = m (K + 1) + h. Most of these have few votes, so they are shrunk towards the
whole crowd with the same h before.

``evidence`` compares how probable the votes are, given a tagging, with and without memory, the tables integrated out
under their priors (two Dirichlet-multinomial marginal likelihoods). Splitting tables without need lowers it.

E. Simpson and I. Gurevych, A Bayesian approach for sequence tagging with crowds, EMNLP 2019 (the annotator model
"seq").
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crowdwise.core import em, priors, shrinkage
from crowdwise.core.em import Part
from crowdwise.core.numerics import Floats, Ints, dirichlet_multinomial, normalise
from crowdwise.core.starts import majority
from crowdwise.data.tags import Tags


def said_before(tags: Tags) -> Ints:
    """For every vote, the tag (code) that its annotator gave to the token before; K where there is none."""
    votes = tags.votes
    order = np.lexsort((votes.item, votes.annotator))
    token, who, label = votes.item[order], votes.annotator[order], votes.label[order]
    follows = np.append(False, (np.diff(token) == 1) & (np.diff(who) == 0)) & ~tags.opens[token]
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.where(follows, np.append(0, label[:-1]), votes.n_classes)
    return out


def with_memory(part: Part, tags: Tags) -> Part:
    """The votes with annotators split by what they said before."""
    K = part.n_classes
    cell = (tags.votes.annotator.astype(np.int64) * (K + 1) + said_before(tags)) * K + tags.votes.label
    if part.n_cells * (K + 1) <= np.iinfo(np.int32).max:
        cell = cell.astype(np.int32)
    return replace(part, cell=cell, n_annotators=part.n_annotators * (K + 1))


def pseudo_counts(prior: Any, history: Any, tags: Tags, part: Part, gold: Ints | None) -> Floats:
    """b[m', l, k], as :func:`crowdwise.core.priors.pseudo_counts` but pooled over annotators with the same tag before.
    Past performance is spread over what may have been said before as it is in the crowd."""
    votes, K = tags.votes, part.n_classes
    M, H = votes.n_annotators, K + 1
    counts = em.statistics(part, majority(votes, gold)).table().reshape(M, H, K, K)
    past = None
    if history is not None:
        share = normalise(counts.sum(axis=0) + 1e-9, axis=0)
        past = share * priors.history_counts(history, votes)[:, None]
        counts = counts + past
    if isinstance(prior, str) and prior in priors.NAMED:
        table = np.stack([shrinkage.learned_prior(counts[:, h], prior) for h in range(H)], axis=1)
    else:
        table = np.broadcast_to(priors.pseudo_counts(prior, None, votes, gold)[:, None], (M, H, K, K))
    table = table if past is None else table + past
    return table.reshape(M * H, K, K)


def evidence(tags: Tags, labels: Ints) -> float:
    """log P(votes with memory) - log P(votes without), given the tags of all tokens (codes)."""
    plain = Part.of(tags.votes)
    K = plain.n_classes
    q = np.eye(K)[labels]
    alone = em.statistics(plain, q).table()
    split = em.statistics(with_memory(plain, tags), q).table().reshape(-1, K + 1, K, K)

    def log_evidence(counts: Floats) -> float:
        prior = shrinkage.learned_prior(counts, "crowd")
        return dirichlet_multinomial(counts.transpose(0, 2, 1), prior.transpose(0, 2, 1))

    return sum(log_evidence(split[:, h]) for h in range(K + 1)) - log_evidence(alone)


def confusion(counts: Floats, M: int) -> Floats:
    """theta[m, k, l] whatever was said before, from c[m', l, k]; each row gets one vote that falls like the crowd's."""
    K = counts.shape[1]
    table = counts.reshape(M, -1, K, K).sum(axis=1).transpose(0, 2, 1)
    crowd = normalise(table.sum(axis=0) + 1.0 / K, axis=1)
    return normalise(table + crowd, axis=2)
