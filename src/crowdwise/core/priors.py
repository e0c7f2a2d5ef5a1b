"""What is believed of annotators and classes before any vote: pseudo-counts that stay in force through the whole fit.

A prior on confusion matrices is a table of pseudo-counts b[m, l, k] >= 0 ("as if annotator m had already
said l to a k so many times"). With it a fit maximises log-likelihood + sum b log theta, the Dirichlet prior
with parameters 1 + b.

====================  =================================================================================
``prior=0.01``        a hundredth of a vote per row of every confusion matrix, spread evenly over labels
``prior="crowd"``     each annotator is shrunk towards the crowd's pooled confusion
``prior="hierarchical"``  towards half that and half the annotator's own one-coin matrix
an array              K x K (truth, label) for everybody, or M x K x K
====================  =================================================================================

The strength of the two shrinking priors is the one under which the counts against the majority's labels
are most probable: the Dirichlet-multinomial marginal likelihood. A crowd of like-minded annotators is shrunk
hard, a mixed one hardly. (Counts, not vote shares: fractions vary less than counts do, so that any crowd
would look like-minded, and the prior would not give way as votes come in.) Past performance, where given,
counts as evidence here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crowdwise.core.consensus import Consensus
from crowdwise.core.em import Part, statistics
from crowdwise.core.numerics import Floats, Ints, dirichlet_multinomial, maximise_1d, normalise
from crowdwise.core.starts import majority
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, listing, suggestion

NAMED = ("crowd", "hierarchical")
STRENGTH = (1e-2, 1e4)
"""The range in which the strength of a learned prior is looked for."""


def pseudo_counts(prior: Any, history: Any, votes: Votes, gold: Ints | None = None) -> Floats:
    """The table b[m, l, k] (its first axis is 1 where all annotators share it)."""
    past = None if history is None else _from_history(history, votes)
    if isinstance(prior, str):
        if prior not in NAMED:
            raise ParameterError(
                f"prior={prior!r}: expected a number, 'crowd', 'hierarchical', "
                f"or an array of pseudo-counts.{suggestion(prior, NAMED)}"
            )
        counts = statistics(Part.of(votes), majority(votes, gold)).table()
        table = learned(counts if past is None else counts + past, hierarchical=prior == "hierarchical")
    else:
        table = _given(prior, votes)
    return table if past is None else table + past


def class_prior_counts(class_prior: Any, votes: Votes) -> Floats | None:
    """The fixed class distribution, or ``None`` where it is to be learned."""
    K = votes.n_classes
    if isinstance(class_prior, str):
        if class_prior == "learned":
            return None
        if class_prior == "uniform":
            return np.full(K, 1.0 / K)
        raise ParameterError(
            f"class_prior={class_prior!r}: expected 'learned', 'uniform', or the probability of each class."
        )
    if isinstance(class_prior, Mapping):
        names = votes.classes.tolist()
        unknown = [c for c in class_prior if c not in names]
        if unknown or len(class_prior) != K:
            raise ParameterError(
                f"class_prior names {listing(class_prior)}: "
                f"expected a probability for each of the classes {listing(names, 10)}."
            )
        class_prior = [class_prior[c] for c in names]
    p = np.asarray(class_prior, dtype=np.float64)
    if p.shape != (K,) or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
        raise ParameterError(f"class_prior={class_prior!r}: expected {K} probabilities, one for each class.")
    return np.asarray(p / p.sum())


def _given(prior: Any, votes: Votes) -> Floats:
    K = votes.n_classes
    b = np.asarray(prior, dtype=np.float64)
    if not np.isfinite(b).all() or (b < 0).any():
        raise ParameterError(f"prior={prior!r}: pseudo-counts must be finite and not negative.")
    if b.ndim == 0:
        return np.full((1, K, K), float(b) / K)
    if b.shape == (K, K):
        return b.T[None].copy()
    if b.shape == (votes.n_annotators, K, K):
        return b.transpose(0, 2, 1).copy()
    raise ParameterError(
        f"prior has shape {b.shape}: expected a number, {K} x {K} (truth, label), "
        f"or {votes.n_annotators} x {K} x {K} (annotator, truth, label)."
    )


def _from_history(history: Any, votes: Votes) -> Floats:
    """Past performance as pseudo-counts: of an earlier consensus, or annotator -> K x K counts (truth, label)."""
    M, K = votes.n_annotators, votes.n_classes
    out = np.zeros((M, K, K))
    if isinstance(history, Consensus):
        place, classes = (
            encoding.locate(votes.annotators, history.annotator_names),
            encoding.locate(votes.classes, history.classes),
        )
        known, shared = np.flatnonzero(place >= 0), np.flatnonzero(classes >= 0)
        if history.counts is None:
            raise ParameterError("The consensus given as history kept no counts: there were too many classes.")
        counts = history.counts[place[known]][:, classes[shared]][:, :, classes[shared]]
        out[np.ix_(known, shared, shared)] = counts
        return out.transpose(0, 2, 1)
    if not isinstance(history, Mapping):
        raise ParameterError(
            f"history is a {type(history).__name__}: "
            f"expected a mapping from annotator to {K} x {K} counts (truth, label), or a Consensus."
        )
    place = encoding.locate(encoding.to_vocabulary(list(history)), votes.annotators)
    for code, (name, counts) in zip(place.tolist(), history.items(), strict=True):
        table = np.asarray(counts, dtype=np.float64)
        if table.shape != (K, K) or not np.isfinite(table).all() or (table < 0).any():
            raise ParameterError(
                f"history of annotator {name!r} has shape {table.shape}: "
                f"expected {K} x {K} counts (truth, label) that are not negative."
            )
        if code >= 0:
            out[code] = table
    return out.transpose(0, 2, 1)


def learned(counts: Floats, hierarchical: bool) -> Floats:
    """b[m, l, k] = strength * base[m, l, k], with the base and its strength taken from the counts c[m, l, k]."""
    M, K, _ = counts.shape
    base = np.broadcast_to(normalise(counts.sum(axis=0) + 1e-2, axis=0), counts.shape)
    if hierarchical:
        base = 0.5 * base + 0.5 * one_coin_table(own_accuracy(counts), K)
    return strength(counts, base) * base


def own_accuracy(counts: Floats) -> Floats:
    """Each annotator's share of right votes, with one extra vote of the crowd's average."""
    right, total = np.einsum("mkk->m", counts), counts.sum(axis=(1, 2))
    mean = right.sum() / max(total.sum(), 1.0)
    return np.asarray(np.clip((right + mean) / (total + 1.0), 1e-3, 1.0 - 1e-3))


def one_coin_table(accuracy: Floats, K: int) -> Floats:
    """theta[m, l, k] of annotators who are right with one probability and wrong evenly."""
    out = np.repeat(((1.0 - accuracy) / (K - 1.0))[:, None], K * K, axis=1).reshape(-1, K, K)
    out[:, np.arange(K), np.arange(K)] = accuracy[:, None]
    return out


def strength(counts: Floats, base: Floats) -> float:
    """The number of pseudo-votes per row under which the counts are most probable.

    An annotator with a single vote says nothing about how much annotators differ, and is left out;
    where nobody has two, everybody is taken to be alike.
    """
    telling = counts.sum(axis=(1, 2)) > 1.0 + 1e-9
    if not telling.any():
        return STRENGTH[1]
    c, b = counts[telling].transpose(0, 2, 1), base[telling].transpose(0, 2, 1)
    low, high = np.log(STRENGTH)
    return float(np.exp(maximise_1d(lambda t: dirichlet_multinomial(c, np.exp(t) * b), low, high, tol=1e-3)))
