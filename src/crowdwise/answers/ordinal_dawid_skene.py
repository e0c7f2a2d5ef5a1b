"""Ordinal votes: confusion matrices with an order, a location and a spread per annotator.

The classes are grades 0 < 1 < ... < K - 1. Annotator m sees grade k as a number around k + d[m], with spread s[m], and
says the grade whose interval it falls into; now and then (``lapse``) any grade at all:

    theta[m, k, l] = (1 - lapse) ( F((cut[l + 1] - k - d[m]) / s[m]) - F((cut[l] - k - d[m]) / s[m]) ) + lapse / K

F is the logistic (or Normal) distribution function, of deviation 1; cut[0] and cut[K] are infinite. Two numbers per
annotator instead of K (K - 1): a handful of votes identifies a strict one (d < 0), a lenient one, a careless one (s
large).

=================  ==============  =============  =================================================================
symbol             code            shape          equation
=================  ==============  =============  =================================================================
c[m, k, l]         ``counts``      M x K x K      expected votes, from :func:`crowdwise.core.em.expect`
d[m], log s[m]     ``location``..  M              argmax of sum c log theta - d^2 / 2 S_D^2 - (log s - MEAN)^2 / 2 S_S^2
S_D, MEAN, S_S     ``Crowd``       1              of the crowd, from d, log s and their variances in a first run
cut                ``cut``         K + 1          half-way between grades, or found with the crowd (``cuts="learned"``)
=================  ==============  =============  =================================================================

Everything else (posterior, class prior, acceleration) is Dawid and Skene's model. The objective is the log-likelihood
plus the log prior of d and log s. The maximisation is Fisher scoring with halved steps, for all annotators at once.

**Intervals** of location and spread: information of the expected counts and the prior, less what not knowing the truth
takes away (Louis 1982).

**The order** of the classes: numbers by their value, text as the votes list it (sorted, unless declared), or ``order``.

When it fails: classes that have no order (a full confusion matrix is needed), annotators who use only the ends, or who
mix up two grades far apart; a scale that is reversed (d and s cannot express it).

V. C. Raykar et al., Learning from crowds, JMLR 11 (2010), section 4, for grades; P. McCullagh, Regression models for
ordinal data, JRSS B 42 (1980), for the intervals on a line; T. A. Louis, JRSS B 44 (1982).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from crowdwise.answers.ordinal_confusions import Crowd, Order, ordered, ranks, scoring
from crowdwise.core import em, priors
from crowdwise.core.constraints import Check, Fraction, is_number
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.intervals import around, with_interval
from crowdwise.core.loop import Callback
from crowdwise.core.model import EMModel, Outcome
from crowdwise.core.numerics import Floats, Ints, normalise, safe_log
from crowdwise.core.parameters import declared
from crowdwise.core.priors import ClassPrior
from crowdwise.data.votes import Votes

FIRST = 15
"""Passes of the runs that the crowd's prior is learned from."""


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
    last: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    """Where the last maximisation ended, which is where the next starts."""

    def counts(self, stats: Stats) -> Floats:
        """c[m, k, l] by grade."""
        table = stats.table().transpose(0, 2, 1)
        by_grade = np.argsort(self.rank)
        return np.asarray(table[:, by_grade][:, :, by_grade])

    def maximise(self, stats: Stats) -> OrderedParams:
        location, log_spread = scoring(self.counts(stats), self.crowd, self.last.get("at"))
        self.last["at"] = location, log_spread
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
    """Cuts, and one spread, under which the pooled counts are most probable; a weak prior favours even cuts."""
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
    """The prior (and the cuts), from short runs of EM: each time the distribution of the annotators found. (M - 1) S^2
    is the sum of squares and variances: a prior proportional to S, which keeps it off zero."""
    crowd, stats = family.crowd, start
    for _ in range(rounds if learn or cuts else 0):
        if cuts:
            crowd = replace(crowd, cut=learn_cuts(family.counts(stats).sum(axis=0), crowd))
            family = replace(family, crowd=crowd)
        run = em.run_em(part, family, stats, max_iter=FIRST, tol=1e-5)
        stats, q = em.expect(part, run.params, posterior=True)
        if learn:
            params = run.params
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


def _are_deviations(value: Any) -> bool:
    pair = isinstance(value, (tuple, list, np.ndarray)) and len(value) == 2
    return pair and all(is_number(v) and v > 0 for v in value)


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
    class_prior, start, restarts, max_iter, tol, accelerate
        As in :class:`DawidSkene`.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ordinal(400, n_annotators=40, votes_per_item=4, random_state=0)
    >>> keys = ("majority", "dawid-skene", "ordinal-dawid-skene")
    >>> [round(cw.aggregate(crowd.votes, key).score(crowd.truth), 2) for key in keys]
    [0.68, 0.62, 0.76]
    """

    key = "ordinal-dawid-skene"
    answer_type: ClassVar[str] = "ordinal"
    table: ClassVar[type] = Votes

    order: Order = None
    cuts: Literal["even", "learned"] = "even"
    link: Literal["logistic", "normal"] = "logistic"
    lapse: Fraction = 0.02
    prior: Literal["crowd"] | Annotated[
        Any, Check(_are_deviations, "the standard deviations of location and of log spread, both above 0")
    ] = "crowd"  # fmt: skip
    class_prior: ClassPrior = "learned"

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
        known = information(votes, outcome.posterior, self.family_, params, self.stats_)
        var: Floats = np.asarray(np.linalg.inv(known), dtype=np.float64)
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
