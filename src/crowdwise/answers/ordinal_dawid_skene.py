"""Grades: confusion matrices with an order, a location and a spread per annotator.

The classes are grades 0 < 1 < ... < K - 1. Annotator m sees grade k as a number around k + d[m], with spread s[m], and
says the grade whose interval it falls into; now and then (``lapse``) any grade at all:

    theta[m, k, l] = (1 - lapse) ( F((cut[l + 1] - k - d[m]) / s[m]) - F((cut[l] - k - d[m]) / s[m]) ) + lapse / K

F is the logistic (or Normal) distribution function, of deviation 1; cut[0] and cut[K] are infinite. Two numbers per
annotator instead of K (K - 1): a strict one (d < 0), a mild one, a careless one (s large) are told from a handful of
votes.

=================  ==============  =============  =================================================================
symbol             code            shape          equation
=================  ==============  =============  =================================================================
c[m, k, l]         ``counts``      M x K x K      expected votes, from :func:`crowdwise.core.em.expect`
d[m], log s[m]     ``location``..  M              argmax of sum c log theta - d^2 / 2 S_D^2 - (log s - MEAN)^2 / 2 S_S^2
S_D, MEAN, S_S     ``Crowd``       1              of the crowd, from d, log s and their variances in a first climb
cut                ``cut``         K + 1          half-way between grades, or found with the crowd (``cuts="learned"``)
=================  ==============  =============  =================================================================

Everything else (posterior, class prior, acceleration) is Dawid and Skene's model. The objective is the log-likelihood
plus the log prior of d and log s. The maximisation is Fisher scoring with halved steps, for all annotators at once.

**Intervals** of location and spread: information of the expected counts and the prior, less what not knowing the truth
takes away (Louis 1982).

**The order** of the classes: numbers by their value, text as the votes list it (sorted, unless declared), or ``order``.

When it fails: classes that have no order (a full confusion matrix is needed), annotators who use only the ends, or who
mix up two grades far apart; a scale that is reversed (d and s cannot say that).

V. C. Raykar et al., Learning from crowds, JMLR 11 (2010), section 4, for grades; P. McCullagh, Regression models for
ordinal data, JRSS B 42 (1980), for the intervals on a line; T. A. Louis, JRSS B 44 (1982).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from crowdwise.core import em, priors
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.loop import Callback
from crowdwise.core.model import EMModel, Outcome
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.core.parameters import declared
from crowdwise.data import encoding
from crowdwise.data.encoding import Vocabulary
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, listing

LOG_SPREAD = (np.log(0.05), np.log(20.0))
LOGISTIC = float(np.pi / np.sqrt(3.0))
"""The deviation of the logistic distribution: spreads then mean the same with either link."""
FIRST = 15
"""Passes of the climbs that the crowd's prior is learned from."""


# -------------------------------------------------------------------- the maths


@dataclass(frozen=True)
class Crowd:
    """What annotators have in common: the prior of their two numbers, the cuts, the lapse and the link."""

    location_sd: float
    spread_mean: float
    spread_sd: float
    cut: Floats
    lapse: float
    link: str

    def log_prior(self, location: Floats, log_spread: Floats) -> Floats:
        return np.asarray(
            -0.5 * (location / self.location_sd) ** 2
            - 0.5 * ((log_spread - self.spread_mean) / self.spread_sd) ** 2
        )  # fmt: skip


def distribution(z: Floats, link: str) -> tuple[Floats, Floats]:
    """F and its density at z, infinite ends included."""
    from scipy.special import expit, ndtr

    if link == "normal":
        return np.asarray(ndtr(z)), np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    F = np.asarray(expit(LOGISTIC * z))
    return F, LOGISTIC * F * (1.0 - F)


def ordered(
    location: Floats, log_spread: Floats, crowd: Crowd, slopes: bool = False
) -> tuple[Floats, Floats | None, Floats | None]:
    """theta[m, k, l] and, where asked for, its derivatives by d and by log s."""
    K = len(crowd.cut) - 1
    s = np.exp(log_spread)[:, None, None]
    z = (crowd.cut[None, None, :] - np.arange(K)[None, :, None] - location[:, None, None]) / s
    F, f = distribution(z, crowd.link)
    theta = (1.0 - crowd.lapse) * np.diff(F, axis=2) + crowd.lapse / K
    if not slopes:
        return theta, None, None
    zf = np.where(np.isfinite(z), z, 0.0) * f
    by_location = -(1.0 - crowd.lapse) * np.diff(f, axis=2) / s
    return theta, by_location, -(1.0 - crowd.lapse) * np.diff(zf, axis=2)


def scoring(
    counts: Floats, crowd: Crowd, start: tuple[Floats, Floats] | None = None, steps: int = 50, tol: float = 1e-6
) -> tuple[Floats, Floats]:
    """d and log s that maximise sum c log theta + log prior, by Fisher scoring with halved steps.

    Annotators who have arrived (a full step promises less than ``tol``) are left alone while others go on.
    """
    location, log_spread = moments(counts, crowd) if start is None else (start[0].copy(), start[1].copy())
    active = np.arange(len(counts))
    for _ in range(steps):
        c, d, t = counts[active], location[active], log_spread[active]
        now = penalised(c, d, t, crowd)
        slope, info = slopes(c, d, t, crowd)
        step = np.linalg.solve(info, slope[:, :, None])[:, :, 0]
        going = (slope * step).sum(axis=1) > tol
        if not going.any():
            break
        active, c, d, t, now, step = (x[going] for x in (active, c, d, t, now, step))
        better = np.zeros(len(active), dtype=bool)
        for halvings in range(12):
            rest = np.flatnonzero(~better)
            if len(rest) == 0:
                break
            new_d = np.clip(d[rest] + 0.5**halvings * step[rest, 0], -len(crowd.cut), len(crowd.cut))
            new_t = np.clip(t[rest] + 0.5**halvings * step[rest, 1], *LOG_SPREAD)
            up = penalised(c[rest], new_d, new_t, crowd) > now[rest]
            location[active[rest[up]]], log_spread[active[rest[up]]] = new_d[up], new_t[up]
            better[rest[up]] = True
        active = active[better]
        if len(active) == 0:
            break
    return location, log_spread


def moments(counts: Floats, crowd: Crowd) -> tuple[Floats, Floats]:
    """Where to begin: the mean and the deviation of label - truth, one vote of the crowd's added."""
    at = np.arange(counts.shape[1])
    gap = at[None, :] - at[:, None]
    n = counts.sum(axis=(1, 2))
    location = (counts * gap).sum(axis=(1, 2)) / (n + 1.0)
    square = (counts * (gap - location[:, None, None]) ** 2).sum(axis=(1, 2))
    return location, 0.5 * np.log((square + np.exp(2.0 * crowd.spread_mean)) / (n + 1.0) + 0.01)


def penalised(counts: Floats, location: Floats, log_spread: Floats, crowd: Crowd) -> Floats:
    """M: sum c log theta + log prior."""
    theta, _, _ = ordered(location, log_spread, crowd)
    return np.asarray((counts * safe_log(theta)).sum(axis=(1, 2)) + crowd.log_prior(location, log_spread))


def slopes(counts: Floats, location: Floats, log_spread: Floats, crowd: Crowd) -> tuple[Floats, Floats]:
    """The gradient of :func:`penalised` (M x 2), and the Fisher information with the prior's (M x 2 x 2)."""
    theta, dd, dt = ordered(location, log_spread, crowd, slopes=True)
    assert dd is not None and dt is not None
    theta = np.maximum(theta, 1e-300)
    total, ratio = counts.sum(axis=2), counts / theta
    prior = crowd.location_sd**-2, crowd.spread_sd**-2
    slope = np.stack([(ratio * dd).sum(axis=(1, 2)), (ratio * dt).sum(axis=(1, 2))], axis=1)
    slope[:, 0] -= location * prior[0]
    slope[:, 1] -= (log_spread - crowd.spread_mean) * prior[1]
    info = np.empty((len(counts), 2, 2))
    for i, a in enumerate((dd, dt)):
        for j, b in enumerate((dd, dt)):
            info[:, i, j] = (total * (a * b / theta).sum(axis=2)).sum(axis=1) + (prior[i] if i == j else 0.0)
    return slope, info


@dataclass(frozen=True)
class OrderedParams(Params):
    """The parameters of a pass, with the two numbers of each annotator behind the scores."""

    location: Floats
    log_spread: Floats


@dataclass(frozen=True)
class OrderedFamily:
    """The maximisation step and the objective. ``rank[k]`` is the place of class k among the grades."""

    crowd: Crowd
    rank: Ints
    class_prior: Floats | None
    hard: bool = False
    memory: dict[str, Any] = field(default_factory=dict)
    """Where the last maximisation ended: the next begins there."""

    def counts(self, stats: Stats) -> Floats:
        """c[m, k, l] by grade."""
        table = stats.table().transpose(0, 2, 1)
        by_grade = np.argsort(self.rank)
        return np.asarray(table[:, by_grade][:, :, by_grade])

    def maximise(self, stats: Stats) -> OrderedParams:
        location, log_spread = scoring(self.counts(stats), self.crowd, self.memory.get("at"))
        self.memory["at"] = location, log_spread
        theta, _, _ = ordered(location, log_spread, self.crowd)
        scores = safe_log(theta)[:, self.rank][:, :, self.rank].transpose(0, 2, 1)
        pi = normalise(stats.mass, axis=0) if self.class_prior is None else self.class_prior
        flat = np.ascontiguousarray(scores).reshape(stats.counts.shape)
        return OrderedParams(flat, safe_log(pi)[None], location, log_spread)

    def objective(self, log_likelihood: float, params: Params) -> float:
        """log-likelihood + log prior of d and log s."""
        assert isinstance(params, OrderedParams)
        return log_likelihood + float(self.crowd.log_prior(params.location, params.log_spread).sum())


def learn_cuts(pooled: Floats, crowd: Crowd) -> Floats:
    """Cuts, and one spread, under which the crowd's pooled counts are most probable; a weak pull to even ones."""
    from scipy.optimize import minimize

    K = len(pooled)
    even = np.arange(K - 1) + 0.5

    def cut_of(x: Floats) -> Floats:
        inner = even[0] + x[1] + np.concatenate([[0.0], np.cumsum(np.exp(x[2:]))])
        return np.concatenate([[-np.inf], inner, [np.inf]])

    def loss(x: Floats) -> float:
        theta, _, _ = ordered(np.zeros(1), x[:1], replace(crowd, cut=cut_of(x)))
        return -float((pooled * safe_log(theta[0])).sum()) + 0.5 * float((x[1:] ** 2).sum())

    found = minimize(loss, np.concatenate([[crowd.spread_mean], np.zeros(K - 1)]), method="L-BFGS-B")
    return cut_of(np.asarray(found.x))


def learn_crowd(
    family: OrderedFamily, part: Part, start: Stats, votes: Votes, learn: bool, cuts: bool, rounds: int = 8
) -> Crowd:
    """The prior (and the cuts) from short climbs: each time what the crowd turned out to be like.

    (M - 1) S^2 is the sum of squares and variances: a prior proportional to S, which keeps it off zero.
    """
    crowd, stats = family.crowd, start
    for _ in range(rounds if learn or cuts else 0):
        if cuts:
            crowd = replace(crowd, cut=learn_cuts(family.counts(stats).sum(axis=0), crowd))
            family = replace(family, crowd=crowd)
        climbed = em.run_em(part, family, stats, max_iter=FIRST, tol=1e-5)
        stats, q = em.expect(part, climbed.params, posterior=True)
        if learn:
            params = climbed.params
            assert isinstance(params, OrderedParams)
            var = np.linalg.inv(information(votes, q, family, params, stats))
            d, t, free = params.location, params.log_spread, max(len(params.location) - 1.0, 1.0)
            mean, before = float(t.mean()), crowd
            crowd = replace(
                crowd, location_sd=float(np.sqrt((d * d + var[:, 0, 0]).sum() / free)), spread_mean=mean,
                spread_sd=float(np.sqrt(((t - mean) ** 2 + var[:, 1, 1]).sum() / free)),
            )  # fmt: skip
            family = replace(family, crowd=crowd)
            ratios = (crowd.location_sd / before.location_sd, crowd.spread_sd / before.spread_sd)
            if max(abs(np.log(ratio)) for ratio in ratios) < 0.02 and abs(mean - before.spread_mean) < 0.01:
                break
    return crowd


def information(votes: Votes, q: Floats, family: OrderedFamily, params: OrderedParams, stats: Stats) -> Floats:
    """M x 2 x 2: of the votes about d and log s, the truth being known by its posterior only, and of the prior."""
    counts, crowd = family.counts(stats), family.crowd
    theta, dd, dt = ordered(params.location, params.log_spread, crowd, slopes=True)
    assert dd is not None and dt is not None
    theta = np.maximum(theta, 1e-300)
    score = np.stack([dd / theta, dt / theta])  # of a vote l on a k
    total = counts.sum(axis=2)
    M = len(theta)
    out = np.empty((M, 2, 2))
    by_grade = q[:, np.argsort(family.rank)]
    label, who, item, w = family.rank[votes.label], votes.annotator, votes.item, votes.weights
    mean = [(score[i][who, :, label] * by_grade[item]).sum(axis=1) for i in range(2)]
    for i in range(2):
        for j in range(2):
            complete = (total * (score[i] * score[j] * theta).sum(axis=2)).sum(axis=1)
            second = (counts * score[i] * score[j]).sum(axis=(1, 2))
            missing = second - np.bincount(who, weights=w * mean[i] * mean[j], minlength=M)
            out[:, i, j] = complete - missing
    # What is missing cannot exceed what there is.
    value, vector = np.linalg.eigh(out)
    out = np.einsum("mik,mk,mjk->mij", vector, np.maximum(value, 0.0), vector)
    return np.asarray(out + np.diag([crowd.location_sd**-2, crowd.spread_sd**-2]))


def ranks(classes: Vocabulary, order: Sequence[Any] | None, key: str) -> Ints:
    """The place of every class among the grades, lowest first."""
    if order is not None:
        place = encoding.locate(classes, encoding.to_vocabulary(list(order)))
        if (place < 0).any() or len(order) != len(classes) or len(set(place.tolist())) != len(classes):
            raise ParameterError(
                f"order={list(order)!r}: expected each of the classes {listing(classes, 10)} once, the lowest grade "
                "first."
            )
        return place.astype(np.int64)
    if classes.dtype.kind in "ib":
        return np.argsort(np.argsort(classes.astype(np.int64)))
    names = classes.tolist()
    if names == sorted(names) and len(names) > 2:
        warnings.warn(
            f"{key} takes the classes for grades in the order {' < '.join(map(str, names))}, which is alphabetical: "
            "give order=[...], the lowest grade first, if it is another.",
            UserWarning,
            stacklevel=2,
        )
    return np.arange(len(classes))


# -------------------------------------------------------------------- the class


@declared
class OrdinalDawidSkene(EMModel):
    """Ordered confusion matrices with a location and a spread per annotator, by EM.

    Parameters
    ----------
    order
        The classes, the lowest grade first; by default numbers by value, text as the votes list it.
    cuts
        Where one grade ends and the next begins: ``"even"``, half-way, or ``"learned"`` with the crowd.
    link
        ``"logistic"``, or ``"normal"``, which has shorter tails.
    lapse
        The share of votes that are any grade at all.
    prior
        ``"crowd"``: locations and log spreads are shrunk towards the crowd, as far as it is alike; or two numbers, the
        standard deviations of both.
    class_prior
        ``"learned"``, ``"uniform"``, or the probability of each class.
    start
        ``"votes"``, a method of moments, an N x K posterior, or a :class:`~crowdwise.Consensus` to go on from.
    restarts
        How many further, randomly shaken starts to try; the best objective is kept.
    max_iter, tol
        Stop after so many passes over the votes, or when a pass gains less than ``tol`` per vote.
    accelerate
        Take guarded SQUAREM leaps once the fit has settled (see :mod:`crowdwise.core.em`).
    ties, random_state
        Equally probable classes: the one with the higher ``"prior"``, then the first; or ``"random"``, seeded.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ordinal(400, n_annotators=40, votes_per_item=4, random_state=0)
    >>> consensus = cw.aggregate(crowd.votes, "ordinal-dawid-skene")
    >>> consensus.score(crowd.truth) > cw.aggregate(crowd.votes, "dawid-skene").score(crowd.truth)
    True
    """

    key = "ordinal-dawid-skene"
    answer_type: ClassVar[str] = "ordinal"
    table: ClassVar[type] = Votes

    order: Sequence[Any] | None = None
    cuts: str = "even"
    link: str = "logistic"
    lapse: float = 0.02
    prior: Any = "crowd"
    class_prior: Any = "learned"

    def _family(self, part: Part, start: Stats, votes: Votes, gold: Ints | None) -> OrderedFamily:
        K = votes.n_classes
        rank = ranks(votes.classes, self.order, self.key)
        learn = isinstance(self.prior, str)
        sd = (0.5, 0.5) if learn else tuple(float(x) for x in self.prior)
        even = np.concatenate([[-np.inf], np.arange(K - 1) + 0.5, [np.inf]])
        crowd = Crowd(sd[0], float(np.log(0.7)), sd[1], even, self.lapse, self.link)
        family = OrderedFamily(crowd, rank, priors.class_prior_counts(self.class_prior, votes))
        return replace(family, crowd=learn_crowd(family, part, start, votes, learn, self.cuts == "learned"))

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        outcome = super()._fit(votes, gold, item_prior, callback)
        params = self.params_
        assert isinstance(params, OrderedParams)
        var: Floats = np.asarray(
            np.linalg.inv(information(votes, outcome.posterior, self.family_, params, self.stats_)), dtype=np.float64
        )
        crowd, M = self.family_.crowd, votes.n_annotators
        # The crowd's own mean is not known exactly; those who voted little lean on it.
        var[:, 0, 0] += crowd.location_sd**2 / M
        var[:, 1, 1] += (var[:, 1, 1] / crowd.spread_sd**2) ** 2 * crowd.spread_sd**2 / M
        log_low, log_high = around(params.log_spread, var[:, 1, 1])
        columns = {
            **with_interval("location", params.location, *around(params.location, var[:, 0, 0])),
            **with_interval("spread", np.exp(params.log_spread), np.exp(log_low), np.exp(log_high)),
        }
        return replace(outcome, annotator_columns=columns)

    def _finish(self, part: Part, family: Any, params: Params) -> Params:
        self.family_: OrderedFamily = family
        self.cuts_ = family.crowd.cut[1:-1]
        return params

    def _check_together(self) -> None:
        super()._check_together()
        for name, known in (("cuts", ("even", "learned")), ("link", ("normal", "logistic"))):
            if getattr(self, name) not in known:
                raise ParameterError(f"{name}={getattr(self, name)!r}: expected {known[0]!r} or {known[1]!r}.")
        fine = isinstance(self.lapse, (int, float)) and not isinstance(self.lapse, bool) and 0.0 < self.lapse < 1.0
        if not fine:
            raise ParameterError(f"lapse={self.lapse!r}: expected a share between 0 and 1.")
        if self.prior != "crowd":
            try:
                a, b = (float(x) for x in self.prior)
            except (TypeError, ValueError):
                a = b = 0.0
            if isinstance(self.prior, str) or not (0.0 < a < np.inf and 0.0 < b < np.inf):
                raise ParameterError(
                    f"prior={self.prior!r}: expected 'crowd', or the deviations of location and of log spread, both "
                    "above 0."
                )
