"""Where a fit begins: what the votes alone, and the known truths, say about each item."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from crowdwise.core import em
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import RandomState
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.numerics import Floats, Ints, softmax, winners
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, suggestion

SOLVERS = {
    "spectral-ds": "crowdwise.methods.moments_spectral_ds:initial_confusion",
    "multispa": "crowdwise.methods.moments_pairs:initial_confusion",
    "cnmf": "crowdwise.methods.moments_pairs:coupled_confusion",
    "symnmf": "crowdwise.methods.moments_symnmf:initial_confusion",
    "tensor": "crowdwise.methods.moments_tensor:initial_confusion",
}
"""Methods whose confusion matrices other methods can begin from, loaded when asked for."""

TRUST = 5.0
"""How many votes on known items weigh as much as an annotator's agreement with everybody else."""


def clamp(q: Floats, gold: Ints | None) -> Floats:
    """A posterior with certainty where the truth is known."""
    if gold is None:
        return q
    q = q.copy()
    known = np.flatnonzero(gold >= 0)
    q[known] = 0.0
    q[known, gold[known]] = 1.0
    return q


def shares(votes: Votes, gold: Ints | None) -> Floats:
    """The vote shares, with the truth in their place where it is known."""
    return clamp(votes.shares(), gold)


def majority(votes: Votes, gold: Ints | None) -> Floats:
    """Each item counted for its most voted class alone, tied classes evenly; for the truth where it is known."""
    return winners(shares(votes, gold))


def informed(votes: Votes, gold: Ints | None) -> Floats:
    """The vote shares; where some truths are known, votes weighted by what those say of the annotators.

    An annotator's accuracy is that on known items, with ``TRUST`` pseudo-votes at the rate of agreement with
    the vote shares, and a vote counts its log-odds. So a crowd of which most are wrong is turned round by
    known truths, and a single known item turns nobody.
    """
    q = shares(votes, gold)
    if gold is None or not (gold >= 0).any():
        return q
    tested, right = tested_and_right(votes, gold)
    weight = votes.weights
    agrees = np.bincount(votes.annotator, weights=weight * q[votes.item, votes.label], minlength=votes.n_annotators)
    total = np.bincount(votes.annotator, weights=weight, minlength=votes.n_annotators)
    rate = (agrees + 0.5) / (total + 1.0)
    return clamp(weighted_posterior(votes, log_odds((right + TRUST * rate) / (tested + TRUST), votes.n_classes)), gold)


def tested_and_right(votes: Votes, gold: Ints) -> tuple[Floats, Floats]:
    """Per annotator: the weight of the votes on items with known truth, and of the right ones among them."""
    M = votes.n_annotators
    truth = gold[votes.item]
    known, hit = truth >= 0, truth == votes.label
    w = votes.weights
    tested = np.bincount(votes.annotator[known], weights=w[known], minlength=M)
    right = np.bincount(votes.annotator[hit], weights=w[hit], minlength=M)
    return tested.astype(np.float64), right.astype(np.float64)


def log_odds(accuracy: Floats, K: int) -> Floats:
    """What a vote of somebody right so often is worth: log( w (K - 1) / (1 - w) )."""
    return np.asarray(np.log(accuracy) + np.log(K - 1.0) - np.log1p(-accuracy))


def weighted_posterior(votes: Votes, weight: Floats) -> Floats:
    """softmax_k of the summed weights of the annotators who said k."""
    N, K = len(votes), votes.n_classes
    logit = np.bincount(votes.item * K + votes.label, weights=weight[votes.annotator] * votes.weights, minlength=N * K)
    return softmax(logit.reshape(N, K).astype(np.float64))


def shaken(part: Part, votes: Votes, gold: Ints | None, rng: np.random.Generator) -> Stats:
    """A random start: each item's vote shares times uniform Dirichlet noise."""
    q = votes.shares() * rng.exponential(size=(len(votes), votes.n_classes)) + 1e-12
    return em.statistics(part, clamp(q / q.sum(axis=1, keepdims=True), gold))


def begin(start: Any, part: Part, votes: Votes, gold: Ints | None, random_state: RandomState) -> Floats:
    """The N x K posterior a fit begins with, from whatever was handed over as ``start``.

    ``"votes"``, a name in ``SOLVERS``, an earlier consensus, or the posterior itself.
    """
    if isinstance(start, str):
        if start == "votes":
            return informed(votes, gold)
        if start not in SOLVERS:
            known = ["votes", *SOLVERS]
            raise ParameterError(
                f"start={start!r}: expected {', '.join(map(repr, known))}, an N x K posterior, or a Consensus."
                f"{suggestion(start, known)}"
            )
        return solved(start, part, votes, gold, random_state)
    if isinstance(start, Consensus):
        return warm(start, votes, part)
    q = np.asarray(start, dtype=np.float64)
    if q.shape != (len(votes), votes.n_classes) or not np.allclose(q.sum(axis=1), 1.0, atol=1e-6) or (q < 0).any():
        raise ParameterError(
            f"As an array, start must be a posterior of shape {len(votes)} x {votes.n_classes} "
            f"whose rows sum to one; found shape {q.shape}."
        )
    return clamp(q, gold)


def solved(name: str, part: Part, votes: Votes, gold: Ints | None, random_state: RandomState) -> Floats:
    """What an item's votes say, given the confusion matrices that a method of moments solves for."""
    module, _, function = SOLVERS[name].partition(":")
    theta = getattr(import_module(module), function)(votes, gold, random_state)
    shares_of_classes = np.maximum(shares(votes, gold).mean(axis=0), 1e-12)
    return expected(theta, np.log(shares_of_classes), part)


def expected(theta: Floats, log_prior: Floats, part: Part) -> Floats:
    """The posterior under given confusion matrices theta[m, k, l]."""
    K = part.n_classes
    log_score = np.log(np.maximum(theta.transpose(0, 2, 1), 1e-12)).reshape(-1, K)
    _, q = em.expect(part, Params(log_score, log_prior[None]), posterior=True)
    return q


def warm(earlier: Consensus, votes: Votes, part: Part) -> Floats:
    """What the votes say, given what an earlier consensus knew of the annotators.

    They are matched by name; strangers answer like its crowd.
    """
    if earlier.confusion is None:
        raise ParameterError(
            f"A {earlier.method} consensus has no confusion matrices to start from: "
            "give one of a method that estimates them."
        )
    if not np.array_equal(earlier.classes, votes.classes):
        raise ParameterError(
            f"The earlier consensus has the classes {earlier.classes.tolist()} and the votes {votes.classes.tolist()}: "
            "they must be the same."
        )
    theta = np.tile(earlier.crowd_confusion(), (votes.n_annotators, 1, 1))
    place = encoding.locate(votes.annotators, earlier.annotator_names)
    theta[place >= 0] = earlier.confusion[place[place >= 0]]
    return expected(theta, np.log(np.maximum(earlier.prior, 1e-12)), part)
