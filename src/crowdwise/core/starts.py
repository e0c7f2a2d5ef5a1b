"""Where a fit starts: what the votes alone, the gold labels, another method or an earlier fit say about each item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from crowdwise.core import em
from crowdwise.core.consensus import Consensus
from crowdwise.core.constraints import Check, RandomState
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.numerics import Floats, Ints, clamp, softmax, winners
from crowdwise.core.vote_parts import Posterior, VotePart, VoteParts
from crowdwise.core.vote_sums import per_annotator, right_votes, tally
from crowdwise.data import encoding
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, suggestion

NAMED: dict[str, Callable[[Votes, Ints | None, RandomState], Floats]] = {}
"""Starts with a name, handed in by the packages that have them (:mod:`crowdwise.methods`): they give theta[m, k, l]."""

GOLD_WEIGHT = 5.0
"""How many votes on gold items weigh as much as an annotator's agreement with everybody else."""


Start = Annotated[Any, Check(
    lambda value: isinstance(value, (str, Consensus)) or hasattr(value, "__len__") or hasattr(value, "__array__"),
    "'votes', the name of a method of moments, an N x K posterior, or a Consensus", ("votes",), (1.5,),
)]  # fmt: skip
"""Where a fit starts."""


def shares(votes: Votes, gold: Ints | None) -> Floats:
    """The vote shares, and certainty where the class is known."""
    return clamp(votes.shares(), gold)


def majority(votes: Votes, gold: Ints | None) -> Floats:
    """Each item counted for its most voted class alone, tied classes evenly; for its gold label where it has one."""
    return winners(shares(votes, gold))


def gold_weighted(votes: Votes, gold: Ints | None) -> Floats:
    """The vote shares; where some items have gold labels, votes weighted by the accuracy on those.

    An annotator's accuracy is that on gold items, with ``GOLD_WEIGHT`` pseudo-votes at the rate of agreement with the
    vote shares, and a vote counts its log-odds. So gold labels turn round a crowd of which most are wrong, and a single
    one turns none.
    """
    parts = VoteParts.whole(votes, gold)
    return first_posterior(parts)(parts.only)


def first_posterior(parts: VoteParts) -> Posterior:
    """:func:`gold_weighted` of each part; a pass over the parts where there are gold labels."""
    if not parts.sizes[2]:
        return lambda part: shares(part.votes, part.gold)

    def sums(part: VotePart) -> Floats:
        agrees, total, _ = right_votes(part.votes, shares(part.votes, part.gold))
        return np.stack([*tested_and_right(part), agrees, total])

    tested, right, agrees, total = parts.total(sums, np.zeros((4, parts.names.n_annotators)))
    accuracy = (right + GOLD_WEIGHT * ((agrees + 0.5) / (total + 1.0))) / (tested + GOLD_WEIGHT)
    weight = log_odds(accuracy, parts.names.n_classes)
    return lambda part: clamp(weighted_posterior(part.votes, weight), part.gold)


def tested_and_right(part: VotePart) -> Floats:
    """2 x M: the weight of each annotator's votes on gold items, and of the right ones among them."""
    votes, gold = part.votes, np.full(len(part.votes), -1) if part.gold is None else part.gold
    label = gold[votes.item]
    return np.stack([per_annotator(votes, label >= 0), per_annotator(votes, label == votes.label)])


def log_odds(accuracy: Floats, K: int) -> Floats:
    """The weight of a vote of an annotator with this accuracy: log( w (K - 1) / (1 - w) )."""
    return np.asarray(np.log(accuracy) + np.log(K - 1.0) - np.log1p(-accuracy))


def weighted_posterior(votes: Votes, weight: Floats) -> Floats:
    """softmax_k of the summed weights of the annotators who said k."""
    return softmax(tally(votes, weight))


def random_start(part: VotePart, rng: np.random.Generator) -> Stats:
    """Each item's vote shares times uniform Dirichlet noise."""
    q = part.votes.shares() * rng.exponential(size=(len(part.votes), part.votes.n_classes)) + 1e-12
    return em.statistics(part.part, clamp(q / q.sum(axis=1, keepdims=True), part.gold))


def initial_posterior(start: Any, part: Part, votes: Votes, gold: Ints | None, random_state: RandomState) -> Floats:
    """The N x K posterior that a fit starts from, given the parameter ``start``.

    That is ``"votes"``, a name in ``NAMED``, an earlier consensus, or the posterior itself.
    """
    if isinstance(start, str):
        if start == "votes":
            return gold_weighted(votes, gold)
        if start not in NAMED:
            known = ["votes", *NAMED]
            raise ParameterError(
                f"start={start!r}: expected {', '.join(map(repr, known))}, an N x K posterior, or a Consensus."
                f"{suggestion(start, known)}"
            )
        prior = np.maximum(shares(votes, gold).mean(axis=0), 1e-12)
        return _posterior(NAMED[start](votes, gold, random_state), prior, part)
    if isinstance(start, Consensus):
        return warm_start(start, votes, part)
    q = np.asarray(start, dtype=np.float64)
    fits = q.shape == (len(votes), votes.n_classes)
    if not (fits and np.allclose(q.sum(axis=1), 1.0, atol=1e-6) and (q >= 0).all()):
        raise ParameterError(
            f"As an array, start must be a posterior of shape {len(votes)} x {votes.n_classes} whose rows sum to one; "
            f"found {'a row that is none' if fits else f'shape {q.shape}'}."
        )
    return clamp(q, gold)


def warm_start(earlier: Consensus, votes: Votes, part: Part) -> Floats:
    """The posterior of the votes under the confusion matrices of an earlier consensus.

    Annotators are matched by name; unseen ones answer like its crowd.
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
    place = encoding.locate(votes.annotators, earlier.annotators)
    theta[place >= 0] = earlier.confusion[place[place >= 0]]
    return _posterior(theta, np.maximum(earlier.prior, 1e-12), part)


def _posterior(theta: Floats, prior: Floats, part: Part) -> Floats:
    """The posterior under given confusion matrices theta[m, k, l] and class prior."""
    K = part.n_classes
    log_score = np.log(np.maximum(theta.transpose(0, 2, 1), 1e-12)).reshape(-1, K)
    _, q = em.expect(part, Params(log_score, np.log(prior)[None]), posterior=True)
    return q
