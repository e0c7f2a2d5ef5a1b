"""Ordinal votes: confusion matrices that are shrunk towards ordered ones, a location and a spread per annotator.

The classes are grades 0 < 1 < ... < K - 1. On a line, annotator m sees grade k as a number around k + d[m], with spread
s[m], and says the grade whose interval it falls into; now and then (``lapse``) any grade at all:

    order[m, k, l] = (1 - lapse) ( F((l + 1/2 - k - d[m]) / s[m]) - F((l - 1/2 - k - d[m]) / s[m]) ) + lapse / K

F is the logistic (or Normal) distribution function, of deviation 1; the first and the last interval are open. Two
numbers per annotator instead of K (K - 1): a handful of votes identifies a strict one (d < 0), a lenient one, a
careless one (s large).

=================  ==============  =============  =================================================================
symbol             code            shape          equation
=================  ==============  =============  =================================================================
q[n, k]            posterior       N x K          of ``auto``, first with its own prior, then with b
c[m, k, l]         ``counts``      M x K x K      votes for l of m, times q[n, k]
d[m], log s[m]     ``location``..  M              argmax of sum c log order - d^2 / 2 S_D^2 - (log s - MEAN)^2 / 2 S_S^2
S_D, MEAN, S_S     ``Crowd``       1              of the crowd, from d, log s and their variances
b[m, k, l]         ``prior``       M x K x K      strength * order, the strength of :mod:`crowdwise.core.shrinkage`
=================  ==============  =============  =================================================================

All this is done twice, with a learned prior of the grades and with a uniform one, which is taken if the votes are 20
times as probable under it: where many annotators never use the ends of the scale, a learned prior may lose these
grades.

**Intervals** of location and spread: information of the expected counts and the prior, less what not knowing the truth
takes away (Louis 1982).

V. C. Raykar et al., Learning from crowds, JMLR 11 (2010), section 4, for grades; P. McCullagh, Regression models for
ordinal data, JRSS B 42 (1980), for the intervals on a line; T. A. Louis, JRSS B 44 (1982).

Ordinal votes by binary thresholds: K - 1 questions "is it above grade j?", made consistent.

Each vote for grade l answers all K - 1 questions at once: yes to those with j < l. A question has two classes, and is
answered by Raykar's model without features: annotator m says yes rightly with the sensitivity a[m, j], no rightly with
the specificity b[m, j], by EM with pseudo-counts. The probabilities above[n, j] = P(grade of n > j) should fall with j.
Where they do not, as each question is answered for itself, the nearest falling sequence is taken (least squares, pooled
adjacent violators), and P(grade = k) = above[k - 1] - above[k].

=============  =============  =========  =======================================================================
symbol         code           shape      equation
=============  =============  =========  =======================================================================
above[n, j]    ``above``      N x (K-1)  posterior of question j, by :func:`crowdwise.core.em.expect`
q[n, k]        posterior      N x K      falling(above)[k - 1] - falling(above)[k], with above[-1] = 1, above[K-1] = 0
=============  =============  =========  =======================================================================

The trace is the sum over questions of their objectives, each of which never falls.

V. C. Raykar et al., Learning from crowds, JMLR 11 (2010), section 4.2; E. Frank and M. Hall, A simple approach to
ordinal classification, ECML (2001).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from crowdwise.core import em
from crowdwise.core.constraints import Check, Count, Fraction, NonNegative, declared
from crowdwise.core.dependence import Setting
from crowdwise.core.em import Params, Part
from crowdwise.core.intervals import around, rate_interval, with_interval
from crowdwise.core.loop import Callback, check_memory
from crowdwise.core.model import Model, Outcome
from crowdwise.core.numerics import Floats, Ints, clamp, normalise, safe_log, winners
from crowdwise.core.priors import ClassPrior
from crowdwise.core.shrinkage import strength
from crowdwise.core.starts import gold_weighted
from crowdwise.core.unseen import scores_with_unseen
from crowdwise.data import encoding
from crowdwise.data.encoding import Vocabulary
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, listing
from crowdwise.methods.ds_auto import Auto
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, full


def learn_crowd(
    votes: Votes, q: Floats, rank: Ints, crowd: OrdinalPrior
) -> tuple[OrdinalPrior, Floats, Floats, Floats]:
    """The crowd, d, log s and their covariances (M x 2 x 2): in turn each annotator's numbers and the distribution of
    all. (M - 1) S^2 is the sum of squares and variances: a prior proportional to S, which keeps it off zero.
    ``rank[k]`` is the place of class k among the grades."""
    by_grade = np.argsort(rank)
    table = em.statistics(Part.of(votes), q).table().transpose(0, 2, 1)
    counts, at = np.asarray(table[:, by_grade][:, :, by_grade]), None
    for _ in range(8):
        at = d, t = scoring(counts, crowd, at)
        var = np.asarray(np.linalg.inv(information(votes, q, rank, counts, d, t, crowd)), dtype=np.float64)
        free, mean, before = max(len(d) - 1.0, 1.0), float(t.mean()), crowd
        crowd = replace(
            crowd, location_sd=float(np.sqrt((d * d + var[:, 0, 0]).sum() / free)), spread_mean=mean,
            spread_sd=float(np.sqrt(((t - mean) ** 2 + var[:, 1, 1]).sum() / free)),
        )  # fmt: skip
        ratios = (crowd.location_sd / before.location_sd, crowd.spread_sd / before.spread_sd)
        if max(abs(np.log(ratio)) for ratio in ratios) < 0.02 and abs(mean - before.spread_mean) < 0.01:
            break
    return crowd, d, t, var


def information(
    votes: Votes, q: Floats, rank: Ints, counts: Floats, location: Floats, log_spread: Floats, crowd: OrdinalPrior
) -> Floats:
    """M x 2 x 2: of the votes about d and log s, the truth being known by its posterior only, and of the prior."""
    theta, dd, dt = ordered(location, log_spread, crowd, slopes=True)
    assert dd is not None and dt is not None
    theta = np.maximum(theta, 1e-300)
    score = np.stack([dd / theta, dt / theta])  # of a vote l on a k
    out, M = fisher(counts, theta, dd, dt), len(theta)
    by_grade = q[:, np.argsort(rank)]
    label, who, item, w = rank[votes.label], votes.annotator, votes.item, votes.weights
    mean = [(score[i][who, :, label] * by_grade[item]).sum(axis=1) for i in range(2)]
    for i in range(2):
        for j in range(2):
            second = (counts * score[i] * score[j]).sum(axis=(1, 2))
            out[:, i, j] -= second - np.bincount(who, weights=w * mean[i] * mean[j], minlength=M)
    # What is missing cannot exceed what there is.
    value, vector = np.linalg.eigh(out)
    out = np.einsum("mik,mk,mjk->mij", vector, np.maximum(value, 0.0), vector)
    return np.asarray(out + np.diag([crowd.location_sd**-2, crowd.spread_sd**-2]))


def ordered_prior(votes: Votes, q: Floats, rank: Ints, crowd: OrdinalPrior) -> Floats:
    """b[m, k, l]: ordered matrices, times as many pseudo-votes as make the counts of the labels probable."""
    crowd, d, t, _ = learn_crowd(votes, q, rank, crowd)
    theta = ordered(d, t, crowd)[0][:, rank][:, :, rank]
    labels = em.statistics(Part.of(votes), winners(q)).table()
    return strength(labels, theta.transpose(0, 2, 1), quick=True, usual=True) * theta


@declared
class OrdinalDawidSkene(Model):
    """``auto`` with confusion matrices that are shrunk towards ordered ones, a location and a spread per annotator.

    Parameters
    ----------
    order
        The classes, the lowest grade first; by default numbers by value, text as the votes list it.
    link
        ``"logistic"``, or ``"normal"``, which has shorter tails.
    lapse
        The share of votes that are any grade at all.
    class_prior
        ``"learned"``: learned, or uniform where that makes the votes 20 times as probable; else as in :class:`Auto`.
    max_iter, tol, collusion
        As in :class:`Auto`, which is fitted twice with either prior.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ordinal(400, n_annotators=40, votes_per_item=4, random_state=0)
    >>> keys = ("majority", "auto", "ordinal-dawid-skene")
    >>> [round(cw.aggregate(crowd.votes, key).score(crowd.truth), 2) for key in keys]
    [0.68, 0.7, 0.76]
    """

    key = "ordinal-dawid-skene"
    answer_type: ClassVar[str] = "ordinal"
    table: ClassVar[type] = Votes
    takes_item_prior = True

    order: Order = None
    link: Literal["logistic", "normal"] = "logistic"
    lapse: Fraction = 0.02
    class_prior: ClassPrior = "learned"
    max_iter: Count = 200
    tol: NonNegative = 1e-6
    dependence: Setting = "auto"
    collusion: Literal["discount", "ignore"] = "discount"
    fitted_: Auto = field(init=False)
    """The fit with ordered matrices as its prior."""
    _first: Auto = field(init=False)

    def _weighed(self, votes: Votes, item_prior: Floats | None) -> tuple[Votes, list[str]]:
        self._first = self._auto(Auto.prior, self.class_prior)
        return self._first._weighed(votes, item_prior)

    def _discounted(self, votes: Votes) -> Votes:
        return self._first._discounted(votes)

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        check_memory(votes)
        rank = ranks(votes.classes, self.order, self.key)
        crowd = OrdinalPrior(0.5, float(np.log(0.7)), 0.5, even_cuts(votes.n_classes), self.lapse, self.link)
        fits = []
        for class_prior in ("learned", "uniform") if self.class_prior == "learned" else (self.class_prior,):
            auto = self._first if class_prior is self.class_prior else self._auto(Auto.prior, class_prior)
            first = auto._fit(votes, gold, item_prior, callback)
            fitted = self._auto(ordered_prior(votes, first.posterior, rank, crowd).tolist(), class_prior)
            again = fitted._fit(votes, gold, item_prior, callback)
            passes, converged = first.iterations + again.iterations, first.converged and again.converged
            fits.append((fitted, replace(again, iterations=passes, converged=converged)))
        value = [-np.inf if fit.log_likelihood is None else fit.log_likelihood for _, fit in fits]
        self.fitted_, outcome = fits[-1] if value[-1] > value[0] + np.log(20.0) else fits[0]
        crowd, location, log_spread, var = learn_crowd(votes, outcome.posterior, rank, crowd)
        # The crowd's own mean is not known exactly; those who voted little lean on it.
        M = votes.n_annotators
        var[:, 0, 0] += crowd.location_sd**2 / M
        var[:, 1, 1] += (var[:, 1, 1] / crowd.spread_sd**2) ** 2 * crowd.spread_sd**2 / M
        log_low, log_high = around(log_spread, var[:, 1, 1])
        columns = {
            **with_interval("location", location, *around(location, var[:, 0, 0])),
            **with_interval("spread", np.exp(log_spread), np.exp(log_low), np.exp(log_high)),
        }
        return replace(outcome, annotator_columns=columns)

    def _auto(self, prior: Any, class_prior: Any) -> Auto:
        return Auto(
            prior=prior, class_prior=class_prior, max_iter=self.max_iter, tol=self.tol, collusion=self.collusion
        )

    def _predict(self, votes: Votes) -> Floats:
        return self.fitted_._predict(votes)


LOGISTIC = float(np.pi / np.sqrt(3.0))
"""The deviation of the logistic distribution: spreads then mean the same with either link."""
Order = Annotated[Any, Check(
    lambda value: value is None or (hasattr(value, "__len__") and not isinstance(value, str)),
    "the classes, the lowest first, or None", (None,), ("low", 3),
)]  # fmt: skip


def ranks(classes: Vocabulary, order: Sequence[Any] | None, key: str) -> Ints:
    """The place of every class on the scale, lowest first."""
    if order is not None:
        place = encoding.locate(classes, encoding.to_vocabulary(list(order)))
        if (place < 0).any() or len(order) != len(classes) or len(set(place.tolist())) != len(classes):
            raise ParameterError(
                f"order={list(order)!r}: expected each of the classes {listing(classes, 10)} once, the lowest first."
            )
        return place.astype(np.int64)
    if classes.dtype.kind in "ib":
        return np.argsort(np.argsort(classes.astype(np.int64)))
    names = classes.tolist()
    if names == sorted(names) and len(names) > 2:
        warnings.warn(
            f"{key} orders the classes alphabetically, {' < '.join(map(str, names))}: give order=[...], the lowest "
            "first, if their order is another.",
            UserWarning,
            stacklevel=2,
        )
    return np.arange(len(classes))


def even_cuts(K: int) -> Floats:
    """Where one grade ends and the next begins, half-way; the ends are open."""
    return np.concatenate([[-np.inf], np.arange(K - 1) + 0.5, [np.inf]])


@dataclass(frozen=True)
class OrdinalPrior:
    """What annotators have in common: the prior of their two numbers, the cuts, the lapse and the link."""

    location_sd: float
    spread_mean: float
    spread_sd: float
    cut: Floats
    lapse: float
    link: str

    def log_prior(self, location: Floats, log_spread: Floats) -> Floats:
        z = (log_spread - self.spread_mean) / self.spread_sd
        return np.asarray(-0.5 * (location / self.location_sd) ** 2 - 0.5 * z**2)


def distribution(z: Floats, link: str) -> tuple[Floats, Floats]:
    """F and its density at z, infinite ends included."""
    from scipy.special import expit, ndtr

    if link == "normal":
        return np.asarray(ndtr(z)), np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    F = np.asarray(expit(LOGISTIC * z))
    return F, LOGISTIC * F * (1.0 - F)


def ordered(
    location: Floats, log_spread: Floats, crowd: OrdinalPrior, slopes: bool = False
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
    counts: Floats, crowd: OrdinalPrior, start: tuple[Floats, Floats] | None = None, steps: int = 50, tol: float = 1e-6
) -> tuple[Floats, Floats]:
    """d and log s that maximise sum c log theta + log prior, by Fisher scoring with halved steps. Annotators who have
    converged (a full step promises less than ``tol``) stop while others go on."""
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
            new_t = np.clip(t[rest] + 0.5**halvings * step[rest, 1], np.log(0.05), np.log(20.0))
            up = penalised(c[rest], new_d, new_t, crowd) > now[rest]
            location[active[rest[up]]], log_spread[active[rest[up]]] = new_d[up], new_t[up]
            better[rest[up]] = True
        active = active[better]
    return location, log_spread


def moments(counts: Floats, crowd: OrdinalPrior) -> tuple[Floats, Floats]:
    """Starting values: the mean and the deviation of label - truth, one vote of the crowd's added."""
    at = np.arange(counts.shape[1])
    gap = at[None, :] - at[:, None]
    n = counts.sum(axis=(1, 2))
    location = (counts * gap).sum(axis=(1, 2)) / (n + 1.0)
    square = (counts * (gap - location[:, None, None]) ** 2).sum(axis=(1, 2))
    return location, 0.5 * np.log((square + np.exp(2.0 * crowd.spread_mean)) / (n + 1.0) + 0.01)


def penalised(counts: Floats, location: Floats, log_spread: Floats, crowd: OrdinalPrior) -> Floats:
    """M: sum c log theta + log prior."""
    theta, _, _ = ordered(location, log_spread, crowd)
    return np.asarray((counts * safe_log(theta)).sum(axis=(1, 2)) + crowd.log_prior(location, log_spread))


def slopes(counts: Floats, location: Floats, log_spread: Floats, crowd: OrdinalPrior) -> tuple[Floats, Floats]:
    """The gradient of :func:`penalised` (M x 2), and the Fisher information with the prior's (M x 2 x 2)."""
    theta, dd, dt = ordered(location, log_spread, crowd, slopes=True)
    assert dd is not None and dt is not None
    theta = np.maximum(theta, 1e-300)
    ratio, prior = counts / theta, (crowd.location_sd**-2, crowd.spread_sd**-2)
    slope = np.stack([(ratio * dd).sum(axis=(1, 2)), (ratio * dt).sum(axis=(1, 2))], axis=1)
    slope[:, 0] -= location * prior[0]
    slope[:, 1] -= (log_spread - crowd.spread_mean) * prior[1]
    return slope, fisher(counts, theta, dd, dt) + np.diag(prior)


def fisher(counts: Floats, theta: Floats, dd: Floats, dt: Floats) -> Floats:
    """M x 2 x 2: the information of so many votes about d and log s, the truths being known."""
    total, by = counts.sum(axis=2), (dd, dt)
    each = [[(total * (a * b / theta).sum(axis=2)).sum(axis=1) for b in by] for a in by]
    return np.moveaxis(np.array(each), 2, 0).copy()


def falling(above: Floats) -> Floats:
    """The nearest rows that do not rise: for place j the least over i <= j of the largest mean of places i to j' >= j.
    (The minimax form of pooling adjacent violators, for all rows at once; J is small.)"""
    N, J = above.shape
    total = np.concatenate([np.zeros((N, 1)), np.cumsum(above, axis=1)], axis=1)
    out = np.empty_like(above)
    for j in range(J):
        best = np.full(N, np.inf)
        for i in range(j + 1):
            means = (total[:, j + 1 :] - total[:, i : i + 1]) / (np.arange(j + 1, J + 1) - i)
            best = np.minimum(best, means.max(axis=1))
        out[:, j] = best
    return out


def grades_of(above: Floats) -> Floats:
    """N x K probabilities of grades from N x (K - 1) probabilities of being above each."""
    N = len(above)
    edges = np.concatenate([np.ones((N, 1)), falling(above), np.zeros((N, 1))], axis=1)
    q = np.maximum(-np.diff(edges, axis=1), 0.0)
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def question(votes: Votes, rank: Ints, j: int, gold: Ints | None) -> tuple[Votes, Ints | None]:
    """The votes as answers to "is it above grade j?", and the known answers."""
    answers = replace(votes, label=(rank[votes.label] > j).astype(np.int32), classes=np.array([0, 1]), truth=None)
    return answers, None if gold is None else np.where(gold >= 0, rank[gold] > j, -1).astype(np.int32)


@declared
class OrdinalRaykar(Model):
    """K - 1 questions "is it above grade j?", answered by sensitivity and specificity, made consistent.

    Parameters
    ----------
    order
        The classes, the lowest grade first; by default numbers by value, text as the votes list it.
    prior
        Pseudo-counts: votes per annotator, question and true answer that agree with the crowd's rates.
    max_iter, tol
        For each question: stop after so many passes over the votes, or when a pass gains less than ``tol`` per vote.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ordinal(400, votes_per_item=5)
    >>> round(cw.aggregate(crowd.votes, "ordinal-raykar").score(crowd.truth), 2)
    0.7
    """

    key = "ordinal-raykar"
    answer_type: ClassVar[str] = "ordinal"
    table: ClassVar[type] = Votes

    order: Order = None
    prior: NonNegative = 2.0
    max_iter: Count = 500
    tol: NonNegative = 1e-7

    def _fit(self, votes: Votes, gold: Ints | None, item_prior: Floats | None, callback: Callback | None) -> Outcome:
        N, M, K = len(votes), votes.n_annotators, votes.n_classes
        self.rank_ = ranks(votes.classes, self.order, self.key)
        self.params_: list[Params] = []
        self.counts_: list[Floats] = []
        above, traces, passes, converged = np.empty((N, K - 1)), [], 0, True
        right, total = np.zeros((2, M)), np.zeros((2, M))
        evidence = 0.0
        for j in range(K - 1):
            answers, known = question(votes, self.rank_, j, gold)
            part = Part.of(answers, known)
            start = em.statistics(part, gold_weighted(answers, known))
            pooled = normalise(start.table().sum(axis=0) + 0.5, axis=0)
            family = ConfusionFamily(full, (self.prior * pooled)[None], None)
            run = em.run_em(part, family, start, max_iter=self.max_iter, tol=self.tol, callback=callback, restart=j)
            stats, q = em.expect(part, run.params, posterior=True)
            above[:, j] = clamp(q, known)[:, 1]
            self.params_.append(run.params)
            self.counts_.append(stats.counts)
            traces.append(run.trace)
            passes, converged = passes + run.iterations, converged and run.converged
            evidence += stats.log_likelihood
            right += np.diagonal(stats.table(), axis1=1, axis2=2).T
            total += stats.table().sum(axis=1).T
        q = clamp(grades_of(above)[:, self.rank_], gold)
        longest = max(map(len, traces))
        trace = np.sum([np.pad(t, (0, longest - len(t)), mode="edge") for t in traces], axis=0)
        columns: dict[str, Any] = {}
        for row, name in ((1, "sensitivity"), (0, "specificity")):
            rate = (right[row] + 0.5) / (total[row] + 1.0)
            columns |= with_interval(name, rate, *rate_interval(right[row], total[row]))
        return Outcome(
            posterior=q, prior=q.mean(axis=0), log_likelihood=evidence, trace=trace, iterations=passes,
            converged=converged, annotator_columns=columns,
        )  # fmt: skip

    def _predict(self, votes: Votes) -> Floats:
        above = np.empty((len(votes), votes.n_classes - 1))
        for j, (params, counts) in enumerate(zip(self.params_, self.counts_, strict=True)):
            answers, _ = question(votes, self.rank_, j, None)
            score = scores_with_unseen(params.log_score, counts, votes.n_annotators, 2)
            _, q = em.expect(Part.of(answers), Params(score, params.log_prior), posterior=True)
            above[:, j] = q[:, 1]
        return grades_of(above)[:, self.rank_]
