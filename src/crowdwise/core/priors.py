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

The two shrinking priors are learned from the counts against the majority's labels (:mod:`crowdwise.core.shrinkage`).
Past performance, where given, counts as evidence there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crowdwise.core.consensus import Consensus
from crowdwise.core.em import Part, statistics
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.starts import majority
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, listing, suggestion

NAMED = ("crowd", "hierarchical")


def pseudo_counts(prior: Any, history: Any, votes: Votes, gold: Ints | None = None) -> Floats:
    """The table b[m, l, k] (its first axis is 1 where all annotators share it)."""
    past = None if history is None else history_counts(history, votes)
    if isinstance(prior, str):
        if prior not in NAMED:
            raise ParameterError(
                f"prior={prior!r}: expected a number, 'crowd', 'hierarchical', "
                f"or an array of pseudo-counts.{suggestion(prior, NAMED)}"
            )
        counts = statistics(Part.of(votes), majority(votes, gold)).table()
        table = learned_prior(counts if past is None else counts + past, hierarchical=prior == "hierarchical")
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


def history_counts(history: Any, votes: Votes) -> Floats:
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
