"""Simulated comparisons and rankings with known scores and known annotators.

True scores are Normal(0, ``spread``), centred; two equal items tie with probability nu / (2 + nu), nu = exp(``tie``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise.data.comparisons import Comparisons
from crowdwise.data.frames import make_frame
from crowdwise.data.rankings import Rankings
from crowdwise.errors import ParameterError
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import RandomState, SimulatedAnswers


class SimulatedComparisons(SimulatedAnswers[Comparisons]):
    """Comparisons, and what they were drawn from."""

    scores = crowds.known("scores", "N true scores; G x N where there are several groups of annotators.")
    reliability = crowds.known("reliability", "M: the probability of an answer given straight.")
    position = crowds.known("position", "M: log odds in favour of the item shown first.")
    group = crowds.known("group", "The group of every annotator.")

    @property
    def comparisons(self) -> Comparisons:
        """The table."""
        return self.answers

    def _truths(self) -> Any:
        scores = self.scores
        return make_frame({"item": self.answers.items, "score": scores}, "polars") if scores.ndim == 1 else None

    def tau(self, ranking: Any) -> float:
        """Kendall's tau between the true scores (of the largest group) and those found."""
        from scipy.stats import kendalltau

        truth = self.scores if self.scores.ndim == 1 else self.scores[np.bincount(self.group).argmax()]
        return float(kendalltau(truth, ranking.scores).statistic)


class SimulatedRankings(SimulatedAnswers[Rankings]):
    """Rankings, and the scores they were drawn from."""

    scores = crowds.known("scores", "N true scores.")

    @property
    def rankings(self) -> Rankings:
        """The table."""
        return self.answers


def comparisons(
    n_items: int = 20, *, n_annotators: int = 10, n_comparisons: int = 1000, spread: float = 1.0,
    spammers: float = 0.0, reversed_: float = 0.0, honest: float | tuple[float, float] = 1.0, position: float = 0.0,
    position_spread: float = 0.0, slopes: Sequence[float] | None = None, tie: float | None = None, n_groups: int = 1,
    random_state: RandomState = 0,
) -> SimulatedComparisons:  # fmt: skip
    """Pairs drawn at random, compared by annotators drawn at random.

    A share ``spammers`` of the annotators answers by chance (reliability 1/2), a share ``reversed_`` the other way
    round (1 - ``honest``), the others have the reliability ``honest``, or one drawn from Beta(a, b) for a pair (a, b).
    ``slopes`` multiply the differences of scores, one for each annotator.
    ``tie`` is the log of Davidson's nu; without it nobody ties. Annotators are dealt to ``n_groups`` groups with scores
    of their own.
    """
    crowds.check_counts(2, n_items=n_items)
    crowds.check_counts(n_annotators=n_annotators, n_comparisons=n_comparisons, n_groups=n_groups)
    crowds.check_shares(spammers=spammers, reversed_=reversed_)
    if (len(honest) != 2 or min(honest) <= 0.0) if isinstance(honest, (tuple, list)) else not 0.0 <= honest <= 1.0:
        raise ParameterError(f"honest={honest!r}: expected a share from 0 to 1, or (a, b) of a Beta distribution.")
    if spammers + reversed_ > 1.0:
        raise ParameterError(f"spammers + reversed_ = {spammers + reversed_:g}: expected at most 1.")
    rng = crowds.as_generator(random_state)
    N, M, S = n_items, n_annotators, n_comparisons
    scores = rng.normal(0.0, spread, (n_groups, N))
    scores -= scores.mean(axis=1, keepdims=True)
    kind = rng.permutation(M)
    straight = rng.beta(*honest, size=M) if isinstance(honest, (tuple, list)) else np.full(M, float(honest))
    eta = straight.copy()
    eta[kind < round(spammers * M)] = 0.5
    back = kind >= M - round(reversed_ * M)
    eta[back] = 1.0 - straight[back]
    bias = position + position_spread * rng.standard_normal(M)
    group = np.arange(M) % n_groups
    left = rng.integers(0, N, S)
    right = (left + rng.integers(1, N, S)) % N
    who = rng.integers(0, M, S)
    slope = np.ones(M) if slopes is None else np.asarray(slopes, dtype=np.float64)
    if slope.shape != (M,):
        raise ParameterError(f"slopes={slopes!r}: expected {M} numbers, one for each annotator.")
    z = slope[who] * (scores[group[who], left] - scores[group[who], right]) + bias[who]
    logit = np.stack([z / 2.0, -z / 2.0, np.full(S, -np.inf if tie is None else tie)], axis=1)
    p = np.exp(logit - logit.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    outcome = (rng.random(S)[:, None] > np.cumsum(p, axis=1)[:, :2]).sum(axis=1)
    turned = (rng.random(S) > eta[who]) & (outcome < 2)
    said = np.where(turned, 1 - outcome, outcome)
    table = Comparisons.from_codes(left, right, who, said, items=np.arange(N), annotators=np.arange(M))
    true = {"scores": scores[0] if n_groups == 1 else scores, "reliability": eta, "position": bias, "group": group}
    return SimulatedComparisons("comparisons", table, true)


def rankings(
    n_items: int = 10, *, n_annotators: int = 20, n_rankings: int = 200, size: int = 4, spread: float = 1.0,
    random_state: RandomState = 0,
) -> SimulatedRankings:  # fmt: skip
    """Rankings of ``size`` items drawn at random, from the Plackett-Luce model."""
    if not 2 <= size <= n_items:
        raise ParameterError(f"size={size!r}: expected from 2 to the number of items, {n_items}.")
    rng = crowds.as_generator(random_state)
    scores = rng.normal(0.0, spread, n_items)
    scores -= scores.mean()
    some = rng.random((n_rankings, n_items)).argsort(axis=1)[:, :size]
    # The largest of score plus Gumbel noise is chosen with the probability of the model, and so on down.
    order = (-(scores[some] + rng.gumbel(size=some.shape))).argsort(axis=1)
    item = np.take_along_axis(some, order, axis=1)
    table = Rankings.from_codes(
        np.arange(n_rankings + 1) * size, item.ravel(), rng.integers(0, n_annotators, n_rankings),
        items=np.arange(n_items), annotators=np.arange(n_annotators), truth=scores,
    )  # fmt: skip
    return SimulatedRankings("rankings", table, {"scores": scores})
