"""Acquisition functions: which item needs another vote, which annotator to ask, and what a vote is worth.

Annotators have an accuracy w[m] = sum_k pi_k theta[m, k, k] under the Dirichlets of the rows: its mean (``greedy``),
mean + c sd (``ucb``), or a draw (``thompson``). Both values of a pair (``information`` and ``error-reduction``:
``docs/active.md``) are expectations over the annotator's answer, under the mean of the confusion matrix or under a draw
of it: draws let annotators be asked who are uncertain and may be better than they look.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from crowdwise import registry
from crowdwise.core.numerics import Floats, Ints, entropy

CHUNK = 4_000_000
"""The most cells (items x annotators x labels x classes) of a table that is held at once."""

ItemRule = Literal["random", "least-confident", "margin", "entropy"]
AnnotatorRule = Literal["random", "greedy", "epsilon-greedy", "ucb", "thompson"]
Value = Literal["information", "error-reduction"]


def item_scores(q: Floats, rule: ItemRule, rng: np.random.Generator) -> Floats:
    """N: how much each item needs a vote."""
    if rule == "random":
        return rng.random(len(q))
    if rule == "least-confident":
        return np.asarray(1.0 - q.max(axis=1))
    if rule == "margin":
        top = np.partition(q, -2, axis=1)
        return np.asarray(1.0 + top[:, -2] - top[:, -1])
    return entropy(q)


def next_items(result: Any, n: int = 10) -> Any:
    """The n items that are expected to be the most wrong, the most doubtful first: ask for more answers on these.

    ``result`` is a consensus of votes, texts, boxes, masks, spans or of another type with a probability for each item.
    An item counts by its expected loss: the probability of a wrong label, the expected share of wrong words, 1 - the
    expected F1 or Dice.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.masks(12, random_state=0)
    >>> consensus = cw.aggregate(crowd.answers)
    >>> next_items(consensus, 2).tolist() == consensus.items[consensus.expected_dice.argsort()[:2]].tolist()
    True
    """
    doubts = registry.ANSWER_TYPES[result.answer_type].rules.doubts(result)
    return result.items[np.argsort(-doubts, kind="stable")[:n]]


def accuracy(dirichlet: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """M each: the mean and the standard deviation of sum_k pi_k theta[m, k, k]."""
    total = dirichlet.sum(axis=2)
    mean = np.einsum("mkk->mk", dirichlet) / total
    variance = mean * (1.0 - mean) / (total + 1.0)
    return mean @ prior, np.sqrt(variance @ (prior * prior))


def draw(dirichlet: Floats, rng: np.random.Generator) -> Floats:
    """M x K x K: a confusion matrix of each annotator, drawn from its Dirichlets."""
    g = rng.standard_gamma(np.maximum(dirichlet, 1e-3)) + 1e-12
    return np.asarray(g / g.sum(axis=2, keepdims=True))


def mean(dirichlet: Floats) -> Floats:
    """M x K x K: the expected confusion matrices."""
    return np.asarray(dirichlet / dirichlet.sum(axis=2, keepdims=True))


def epsilon(n_votes: int) -> float:
    """The share of random choices after so many votes: the tutorial's schedule, .5 for 100 votes and then .05."""
    return 0.5 if n_votes < 100 else 0.05


def annotator_scores(
    dirichlet: Floats, prior: Floats, rule: AnnotatorRule, rng: np.random.Generator, *, width: float = 1.0
) -> Floats:
    """M: the score of each annotator. ``width``: how many standard deviations ``ucb`` adds."""
    if rule == "random":
        return rng.random(len(dirichlet))
    if rule == "thompson":
        return np.asarray(np.einsum("mkk->mk", draw(dirichlet, rng)) @ prior)
    w, sd = accuracy(dirichlet, prior)
    return w + width * sd if rule == "ucb" else w


def pair_values(q: Floats, theta: Floats, value: Value) -> Floats:
    """C x A: the expected value of a vote of each annotator on each item."""
    C, K = q.shape
    out = np.empty((C, len(theta)))
    step = max(1, CHUNK // max(len(theta) * K * (K if value == "error-reduction" else 1), 1))
    of_rows = bits(theta).sum(axis=2)
    for lo in range(0, C, step):
        some = q[lo : lo + step]
        if value == "information":
            said = np.tensordot(some, theta, axes=(1, 1))
            out[lo : lo + step] = bits(said).sum(axis=2) - some @ of_rows.T
        else:
            joint = some[:, None, :, None] * theta[None]
            out[lo : lo + step] = joint.max(axis=2).sum(axis=2) - some.max(axis=1)[:, None]
    return np.maximum(out, 0.0)


def values_of(q: Floats, theta: Floats, value: Value, item: Ints, annotator: Ints) -> Floats:
    """P: as :func:`pair_values`, of some pairs only: rows of ``q`` and of ``theta``."""
    K = q.shape[1]
    out = np.empty(len(item))
    of_rows = bits(theta).sum(axis=2)
    step = max(1, CHUNK // (K * K))
    for lo in range(0, len(out), step):
        n, m = item[lo : lo + step], annotator[lo : lo + step]
        joint = q[n][:, :, None] * theta[m]
        if value == "information":
            out[lo : lo + step] = bits(joint.sum(axis=1)).sum(axis=1) - (q[n] * of_rows[m]).sum(axis=1)
        else:
            out[lo : lo + step] = joint.max(axis=1).sum(axis=1) - q[n].max(axis=1)
    return np.maximum(out, 0.0)


def bits(p: Any) -> Floats:
    """-p log2 p, 0 at 0."""
    return np.asarray(-p * np.log2(np.maximum(p, 1e-300)))
