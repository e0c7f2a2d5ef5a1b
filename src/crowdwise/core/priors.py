"""Priors of annotators and classes: pseudo-counts that stay in force through the whole fit.

A prior on confusion matrices is a table of pseudo-counts b[m, l, k] >= 0 ("as if annotator m had already said l to a k
so many times"). With it a fit maximises log-likelihood + sum b log theta, the Dirichlet prior with parameters 1 + b.

====================  =================================================================================
``prior=0.01``        a hundredth of a vote per row of every confusion matrix, spread evenly over labels
``prior="crowd"``     each annotator is shrunk towards the crowd's pooled confusion
``prior="hierarchical"``  towards half that and half the annotator's own one-coin matrix
``prior="accuracy"``  towards one ability per annotator on top of how hard the crowd finds a class
an array              K x K (truth, label) for everybody, or M x K x K
====================  =================================================================================

The shrinking priors are learned from the counts against the majority's labels (:mod:`crowdwise.core.shrinkage`).
Past performance, where given, counts as evidence there too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import numpy as np

from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Bounds, Check, are_numbers, checked
from crowdwise.core.em import Part, statistics
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.starts import majority
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, listing

NAMED = ("crowd", "hierarchical", "accuracy")


Prior = Annotated[Any, Check(
    lambda value: value in NAMED if isinstance(value, str) else are_numbers(value, Bounds(minimum=0)),
    "a number of votes of at least 0, 'crowd', 'hierarchical', 'accuracy', or an array of pseudo-counts "
    "(K x K or M x K x K)",
    (0.0, 0.5, *NAMED), (-0.5, np.nan, "unknown"),
)]  # fmt: skip
"""Pseudo-counts on the confusion matrices."""

DirichletPrior = Annotated[Any, Check(
    lambda value: are_numbers(value, Bounds(above=0)),
    "positive Dirichlet parameters: a number on the truth, with one on each other label, a pair (on the truth, on "
    "each other label), or an array (K x K or M x K x K)",
    (2.0, (5.0, 2.0)), (0.0, -1.0, "crowd"),
)]  # fmt: skip
"""Parameters of the Dirichlet distributions of the rows of confusion matrices."""

Probabilities = Annotated[Any, Check(
    lambda value: isinstance(value, Mapping) or (hasattr(value, "__len__") and are_numbers(value, Bounds(minimum=0))),
    "the probability of each class", (), ("x", 0.5, (0.5, -0.5)),
)]  # fmt: skip
ClassPrior = Literal["learned", "uniform"] | Probabilities
"""The distribution of the classes."""

ClassAlpha = Annotated[Any, Check(
    lambda value: are_numbers(value, Bounds(above=0)), "a number above 0, or one for each class", (1.0,), (0.0, "x")
)]  # fmt: skip
"""Parameters of the Dirichlet distribution of the classes."""

History = Annotated[Any, Check(
    lambda value: value is None or isinstance(value, (Mapping, Consensus)),
    "a mapping from annotator to K x K counts (truth, label), or a Consensus", (None,), (5,),
)]  # fmt: skip
"""Past performance of annotators."""


@checked
def pseudo_counts(
    prior: Prior, history: History, votes: Votes, gold: Ints | None = None, counts: Callable[[], Floats] | None = None,
    quick: bool = False,
) -> Floats:  # fmt: skip
    """The table b[m, l, k] (its first axis is 1 where all annotators share it).

    ``counts`` gives the counts against the majority's labels, where they do not come from ``votes``: of these only the
    names are looked at then. ``quick`` is that of :func:`crowdwise.core.shrinkage.learned_prior`.
    """
    past = None if history is None else history_counts(history, votes)
    if isinstance(prior, str):
        seen = statistics(Part.of(votes), majority(votes, gold)).table() if counts is None else counts()
        table = learned_prior(seen if past is None else seen + past, prior, quick)
    else:
        table = _given(prior, votes)
    return table if past is None else table + past


@checked
def dirichlet_rows(prior: DirichletPrior, history: History, votes: Votes) -> Floats:
    """Dirichlet parameters b0[m, l, k] (first axis 1 where all annotators share it), past performance added."""
    K = votes.n_classes
    b = np.asarray(prior, dtype=np.float64)
    if b.shape in ((), (2,)):
        b = np.where(np.eye(K, dtype=bool), *right_and_wrong(b))
    return pseudo_counts(b, history, votes)


def right_and_wrong(prior: Any) -> tuple[float, float]:
    """A pair of Dirichlet parameters, on the truth and on each other label; of a number, it and one."""
    p = np.asarray(prior, dtype=np.float64)
    return (float(p), 1.0) if p.ndim == 0 else (float(p[0]), float(p[1]))


@checked
def class_dirichlet(class_alpha: ClassAlpha, votes: Votes) -> Floats:
    """Dirichlet parameters a0[k] of the classes, from a number or K numbers."""
    K = votes.n_classes
    a = np.asarray(class_alpha, dtype=np.float64)
    if a.shape not in ((), (K,)):
        raise ParameterError(f"class_alpha={class_alpha!r}: expected a number above 0, or {K} of them, one per class.")
    return np.broadcast_to(a, (K,)).astype(np.float64)


@checked
def class_prior_counts(class_prior: ClassPrior, votes: Votes) -> Floats | None:
    """The fixed class distribution, or ``None`` where it is to be learned."""
    K = votes.n_classes
    if isinstance(class_prior, str):
        return None if class_prior == "learned" else np.full(K, 1.0 / K)
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
    if p.shape != (K,) or not are_numbers(p, Bounds(minimum=0)) or p.sum() <= 0:
        raise ParameterError(f"class_prior={class_prior!r}: expected {K} probabilities, one for each class.")
    return np.asarray(p / p.sum())


def _given(prior: Any, votes: Votes) -> Floats:
    K = votes.n_classes
    b = np.asarray(prior, dtype=np.float64)
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
        place = encoding.locate(votes.annotators, history.annotators)
        classes = encoding.locate(votes.classes, history.classes)
        known, shared = np.flatnonzero(place >= 0), np.flatnonzero(classes >= 0)
        if history.counts is None:
            raise ParameterError("The consensus given as history kept no counts: there were too many classes.")
        counts = history.counts[place[known]][:, classes[shared]][:, :, classes[shared]]
        out[np.ix_(known, shared, shared)] = counts
        return out.transpose(0, 2, 1)
    place = encoding.locate(encoding.to_vocabulary(list(history)), votes.annotators)
    for code, (name, counts) in zip(place.tolist(), history.items(), strict=True):
        table = np.asarray(counts, dtype=np.float64)
        if table.shape != (K, K) or not are_numbers(table, Bounds(minimum=0)):
            raise ParameterError(
                f"history of annotator {name!r} has shape {table.shape}: "
                f"expected {K} x {K} counts (truth, label) that are not negative."
            )
        if code >= 0:
            out[code] = table
    return out.transpose(0, 2, 1)
