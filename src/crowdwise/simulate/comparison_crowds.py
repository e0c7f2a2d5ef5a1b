"""Simulated comparisons and rankings with known scores and known annotators.

=============  ===================  =============================================================
symbol         code                 meaning
=============  ===================  =============================================================
s_i            ``scores``           true scores, Normal(0, ``spread``), centred
eta_m          ``reliability``      probability of an answer given straight
b_m            ``position``         log odds in favour of the item shown first
nu             exp(``tie``)         two equal items tie with probability nu / (2 + nu)
=============  ===================  =============================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data.comparisons import Comparisons
from crowdwise.data.rankings import Rankings
from crowdwise.errors import ParameterError
from crowdwise.simulate.crowds import RandomState

__all__ = ["SimulatedComparisons", "SimulatedRankings", "comparisons", "rankings"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SimulatedComparisons:
    """Comparisons, and what they were drawn from."""

    comparisons: Comparisons
    scores: Floats
    """N true scores; G x N where annotators have different tastes."""
    reliability: Floats
    position: Floats
    group: npt.NDArray[np.int64]
    """The taste of every annotator."""

    @property
    def answers(self) -> Comparisons:
        """The table, by the name it has in every simulated crowd of answers beyond classes."""
        return self.comparisons

    def tau(self, ranking: Any) -> float:
        """Kendall's tau between the true scores (of the largest taste) and those found."""
        from scipy.stats import kendalltau

        truth = self.scores if self.scores.ndim == 1 else self.scores[np.bincount(self.group).argmax()]
        return float(kendalltau(truth, ranking.scores).statistic)


@dataclass(frozen=True, eq=False)
class SimulatedRankings:
    """Rankings, and the scores they were drawn from."""

    rankings: Rankings
    scores: Floats

    @property
    def answers(self) -> Rankings:
        """The table, by the name it has in every simulated crowd of answers beyond classes."""
        return self.rankings


def comparisons(
    n_items: int = 20,
    *,
    n_annotators: int = 10,
    n_comparisons: int = 1000,
    spread: float = 1.0,
    spammers: float = 0.0,
    reversed_: float = 0.0,
    honest: float | tuple[float, float] = 1.0,
    position: float = 0.0,
    position_spread: float = 0.0,
    tie: float | None = None,
    tastes: int = 1,
    random_state: RandomState = 0,
) -> SimulatedComparisons:
    """Pairs drawn at random, compared by annotators drawn at random.

    A share ``spammers`` of the annotators answers by chance (reliability 1/2), a share ``reversed_`` the other way
    round (1 - ``honest``), the others have the reliability ``honest``, or one drawn from Beta(a, b) for a pair (a, b).
    ``tie`` is the log of Davidson's nu; without it nobody ties. With several ``tastes`` annotators are dealt to as many
    sets of scores.
    """
    for name, value, least in (("n_items", n_items, 2), ("n_annotators", n_annotators, 1),
                               ("n_comparisons", n_comparisons, 1), ("tastes", tastes, 1)):  # fmt: skip
        if not isinstance(value, (int, np.integer)) or value < least:
            raise ParameterError(f"{name}={value!r}: expected a whole number of at least {least}.")
    for name, share in (("spammers", spammers), ("reversed_", reversed_)):
        if not 0.0 <= share <= 1.0:
            raise ParameterError(f"{name}={share!r}: expected a share from 0 to 1.")
    if (len(honest) != 2 or min(honest) <= 0.0) if isinstance(honest, (tuple, list)) else not 0.0 <= honest <= 1.0:
        raise ParameterError(f"honest={honest!r}: expected a share from 0 to 1, or (a, b) of a Beta distribution.")
    if spammers + reversed_ > 1.0:
        raise ParameterError(f"spammers + reversed_ = {spammers + reversed_:g}: expected at most 1.")
    rng = np.random.default_rng(random_state)
    N, M, S = n_items, n_annotators, n_comparisons
    scores = rng.normal(0.0, spread, (tastes, N))
    scores -= scores.mean(axis=1, keepdims=True)
    kind = rng.permutation(M)
    straight = rng.beta(*honest, size=M) if isinstance(honest, (tuple, list)) else np.full(M, float(honest))
    eta = straight.copy()
    eta[kind < round(spammers * M)] = 0.5
    back = kind >= M - round(reversed_ * M)
    eta[back] = 1.0 - straight[back]
    bias = position + position_spread * rng.standard_normal(M)
    group = np.arange(M) % tastes
    left = rng.integers(0, N, S)
    right = (left + rng.integers(1, N, S)) % N
    who = rng.integers(0, M, S)
    z = scores[group[who], left] - scores[group[who], right] + bias[who]
    logit = np.stack([z / 2.0, -z / 2.0, np.full(S, -np.inf if tie is None else tie)], axis=1)
    p = np.exp(logit - logit.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    outcome = (rng.random(S)[:, None] > np.cumsum(p, axis=1)[:, :2]).sum(axis=1)
    turned = (rng.random(S) > eta[who]) & (outcome < 2)
    table = Comparisons.from_codes(
        left, right, who, np.where(turned, 1 - outcome, outcome), items=np.arange(N), annotators=np.arange(M)
    )
    return SimulatedComparisons(table, scores[0] if tastes == 1 else scores, eta, bias, group)


def rankings(
    n_items: int = 10,
    *,
    n_annotators: int = 20,
    n_rankings: int = 200,
    size: int = 4,
    spread: float = 1.0,
    random_state: RandomState = 0,
) -> SimulatedRankings:
    """Rankings of ``size`` items drawn at random, from the Plackett-Luce model."""
    if not 2 <= size <= n_items:
        raise ParameterError(f"size={size!r}: expected from 2 to the number of items, {n_items}.")
    rng = np.random.default_rng(random_state)
    scores = rng.normal(0.0, spread, n_items)
    scores -= scores.mean()
    some = rng.random((n_rankings, n_items)).argsort(axis=1)[:, :size]
    # The largest of score plus Gumbel noise is chosen with the probability of the model, and so on down.
    order = (-(scores[some] + rng.gumbel(size=some.shape))).argsort(axis=1)
    item = np.take_along_axis(some, order, axis=1)
    table = Rankings.from_codes(
        np.arange(n_rankings + 1) * size, item.ravel(), rng.integers(0, n_annotators, n_rankings),
        items=np.arange(n_items), annotators=np.arange(n_annotators),
    )  # fmt: skip
    return SimulatedRankings(table, scores)
