"""Ratings with bias, scale and noise: a factor model of items and annotators, by variational EM.

The true number z of an item is Normal; annotator m sees it shifted, stretched around the centre c, and with noise:

    z[n] ~ N(mu, tau^2)          x = c + b[m] + a[m] (z[n] - c) + e,   e ~ N(0, 1 / (p[m] d[n]))
    b[m] ~ N(0, s_b^2)           a[m] ~ N(1, s_a^2)                    p[m] ~ Gamma(alpha, beta)
    d[n] ~ Gamma(kappa, kappa)

with the numbers in capitals in the table learned as well (empirical Bayes), so that annotators are shrunk towards
their crowd as far as the crowd is alike. a is 1 without ``scale``. d (with ``difficulty``, else 1) is the ease of an
item: on easy ones (d large) everybody scatters little, and agreeing there is no proof of precision. With
``noise="student"`` e is t-distributed: each rating has its own weight l ~ Gamma(df / 2, df / 2), small for outliers.

**What is identified.** Adding a constant to all z and taking it off all b changes no rating, nor does stretching all z
and shrinking all a. The priors decide while the model is fitted: the mean bias is 0 (E[a b] sums to 0, to be exact) and
the mean scale 1, up to its shrinkage. The values that are reported have the level of the plain mean.

**Items are fixed.** Without ``scale`` annotators are compared on the items they share, and on nothing else: tau is as
good as infinite while they are fitted (``FLAT``), and learned for the values afterwards. Groups of annotators who rate
other items would else be compared by the items they were given (the recovery of inter-block information, of designed
experiments, without a design), and zeros, which are alike, would pass for items that are.

=================  ================  =======  ====================================================================
symbol             code              shape    equation (y = x - c, u = z - c; w the weight of a rating, times E d E l)
=================  ================  =======  ====================================================================
u[n], v[n]         ``u``, ``v``      N        1/v = 1/tau^2 + sum w p E[a^2];  u = v (mu/tau^2 + sum w p (a y - E[ab]))
b, a, V            ``b``, ``a``...   M        V^-1 = diag(1/s_b^2, 1/s_a^2) + p sum w (1, u; u, u^2 + v)
p[m]               ``p``             M        (alpha + f n/2) / (beta + f sum w E[(y - b - a u)^2] / 2)
d[n]               ``ease``          N        (kappa + n/2) / (kappa + sum w p E[(y - b - a u)^2] / 2), n, w without d
MU, TAU            ``mu, tau2``      1        mean u;  mean (u - mu)^2 + v
S_B, S_A           ``sb2, sa2``      1        sum (b^2 + var b) / (M - 1);  the same of a - 1
ALPHA, BETA        ``alpha, beta``   1        the best for the bound with q(p) at its best, by search in each
KAPPA              ``kappa``         1        the best for the bound with q(d) at its best, by search in one dimension
=================  ================  =======  ====================================================================

The objective is the variational lower bound of the log evidence, which no step lowers; all of it but the divergence of
the precisions counts f times. f corrects for ratings that are not Normal, and s_b^2 is reduced to what shows on low and
on high items alike (``ratings_gaussian_steps``; both are 1 where the model is right). s_b and s_a are
updated between runs of passes, from variances that include the uncertainty of the items (the bound does not, and would
shrink differences away). The M - 1 is that of a prior proportional to s, which keeps s above zero. Each pass also makes
the shift and the stretch that raise the bound most (parameter expansion): the updates alone would need hundreds of
passes.

**Values** are half-way between the weighted means of their ratings and the posterior means, at the level of the plain
mean (:mod:`crowdwise.answers.ratings_gaussian_steps`).

**Hedge.** Each rating is predicted from the others on its item, by the model and by their mean. The mix that predicts
best is found, with its standard error, and the share of the model is the lower end of its one-sided 95 % interval
(:func:`crowdwise.answers.ratings_shared.hedged`): the mean, unless the ratings say that the model is better.

**Intervals.** The factorised posterior treats the annotators as known. The reported variances are those of
the joint Normal posterior of items, biases, scales and mu (inverse of the joint precision matrix, by its Schur
complement on the annotators), plus what not knowing p adds: sum (w p a r v)^2 / shape, r the residual, plus the square
of the distance between the value and the posterior mean, plus the error that all ratings on an item share
(``shared_error``). Degrees of freedom that items use up are taken off the shape of p: n becomes f sum (1 - h)^2, h the
leverage of a rating. Variances of biases and scales are enlarged for p and s_b being estimates.

When it fails: biases that depend on the item; annotators who copy each other (``covariance`` sees that); two or three
annotators, where one can be declared nearly perfect (the variance of nobody's noise is under a thousandth of that
within items).

V. C. Raykar et al., Learning from crowds, JMLR 11 (2010), section 5, for the precisions; F. Rodrigues, M. Lourenco,
B. Ribeiro and F. Pereira, Learning supervised topic models for classification and regression from crowds, PAMI 39
(2017), for biases; Y. Chung et al., A nondegenerate penalized likelihood estimator for variance parameters,
Psychometrika 78 (2013), for the prior of s; C. Liu and D. B. Rubin, Parameter expansion for EM, Biometrika 85 (1998).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from crowdwise.answers import ratings_gaussian_steps as steps
from crowdwise.answers import ratings_gaussian_steps as values
from crowdwise.answers.ratings_gaussian_steps import (
    GaussianSettings,
    GaussianState,
    RatingMatrices,
    additive_part,
    precision_power,
)
from crowdwise.answers.ratings_shared import RatingModel, counts, hedged, scatter, standardise, weighted_mean
from crowdwise.core.constraints import Count, NonNegative, Positive, Share
from crowdwise.core.loop import Callback, Rounds
from crowdwise.core.numerics import Floats
from crowdwise.core.parameters import declared
from crowdwise.data.ratings import Ratings

UPDATES, STABLE = 50, 0.01
"""How often s_b and s_a are updated at most, and the relative change below which they have converged."""
DENSE = 2_000
"""Up to so many unknowns of annotators their joint covariance is inverted; above, each annotator's alone."""
WORK = 3e8
"""Ratings times unknowns up to which that is done."""


def _reweigh(
    crowd: RatingMatrices, each: Floats, ease: Floats, lent: Floats, s: GaussianState, settings: GaussianSettings
) -> tuple[GaussianState, Floats, Floats, float]:
    """Eases of items and weights of ratings, one after the other, and what both add to the bound."""
    extra = 0.0
    if settings.difficulty:
        s, ease, extra = steps.eases(crowd, crowd.weight * lent, each, s)
    if settings.student:
        s, lent, more = steps.rating_weights(crowd, ease[crowd.item] * each, s, settings)
        extra += more
    return s, ease, lent, extra


def run_passes(
    crowd: RatingMatrices, settings: GaussianSettings, max_iter: int, tol: float, callback: Callback | None
) -> tuple[GaussianState, Floats, Floats, Rounds]:
    """Passes until the bound gains less than ``tol`` per rating, with s_b and s_a updated until they converge.

    Returns the state, the eases, the weights of ratings, and the rounds, whose trace is the bound under the last s_b
    and s_a.
    """
    weight, n, y = crowd.weight, counts(crowd.annotator, crowd.weight, crowd.M), crowd.y
    s = steps.begin(crowd, settings)
    W, Y = crowd.matrix(weight), crowd.matrix(weight * y)
    Z = counts(crowd.annotator, weight * y * y, crowd.M)
    ease, rating_weight = np.ones(crowd.N), np.ones(len(y))
    rounds = Rounds(max_iter, float(weight.sum()), callback)
    last, moved = False, np.inf
    for _ in range(UPDATES + 1):
        rounds.resume()
        for _ in rounds:
            s = steps.expand(steps.annotators_given(W, Y, steps.items_given(W, Y, s, settings), settings), settings)
            if settings.difficulty or settings.student:
                each = steps.expected_squares(crowd, s)
                s, ease, rating_weight, extra = _reweigh(crowd, each, ease, rating_weight, s, settings)
                weight = crowd.weight * ease[crowd.item] * rating_weight
                W, Y = crowd.matrix(weight), crowd.matrix(weight * y)
                square = counts(crowd.annotator, weight * each, crowd.M)
            else:
                square, extra = steps.squares(W, Y, Z, s, crowd.floor), 0.0
            s = steps.precisions_given(n, square, s, settings.power)
            rounds.reached(steps.lower_bound(s, n, square, settings, extra), below=tol)
        if last or rounds.iterations >= max_iter:
            break
        new = steps.differences(W, s, settings)
        moved = max(abs(x - y) / (y + 1e-3) for x, y in ((new.sb2, s.sb2), (new.sa2, s.sa2)))
        if moved < STABLE:
            if settings.additive == 1.0:
                break
            new = replace(s, sb2=max(settings.additive * s.sb2, steps.MIN_VARIANCE))
            last = True
        s = new
    rounds.converged &= moved < STABLE
    return s, ease, weight, rounds


def variances(
    crowd: RatingMatrices, weight: Floats, s: GaussianState, settings: GaussianSettings
) -> tuple[Floats, Floats, Floats, Floats]:
    """Of u (N), b and a (M) in the joint posterior, and the shape of p's Gamma distribution (see the module)."""
    from scipy.sparse import diags

    p, N, M = s.p, crowd.N, crowd.M
    W = crowd.matrix(weight)
    h = 1.0 / s.tau2 + W @ (p * s.a**2)
    G = W @ diags(p * s.a)  # d^2 / du db
    n, su, suu = W.T @ np.ones(N), W.T @ s.u, W.T @ s.u**2
    blocks = ([G] if settings.bias else []) + ([diags(s.u) @ G] if settings.scale else [])
    size = len(blocks) * M + 1
    if size <= DENSE and len(crowd.y) * size <= WORK:
        var_u, var = _joint(blocks, h, p, n, su, suu, s, settings)
    else:
        var_u, var = _separate(W, h, s, settings)
    zero = np.zeros(M)
    vbb = var[:M] if settings.bias else zero
    vaa = var[-M:] if settings.scale else zero
    m, at = crowd.annotator, crowd.item
    r = crowd.y - s.b[m] - s.a[m] * s.u[at]
    unsure = counts(at, (weight * p[m] * s.a[m] * r / h[at]) ** 2 / s.shape[m], N)
    known = 1.0 / (1.0 / s.sb2 + p * n) if settings.bias else zero
    leverage = np.clip(p[m] * (s.a[m] ** 2 / h[at] + known[m]), 0.0, 1.0)
    free = settings.power * counts(m, crowd.weight * (1.0 - leverage) ** 2, M) / 2.0
    # The crowd's mean precision is itself an estimate, and those who rated little lean on it.
    crowd_mean = 1.0 / max(float((s.alpha * free / (s.alpha + free)).sum()), 1e-9)
    shape = s.alpha + free
    shape = 1.0 / (1.0 / shape + (s.alpha / shape) ** 2 * crowd_mean)
    # The noise of an annotator is known as a Gamma distribution (E[1 / p] = shape / (shape - 1) times 1 / E[p]), the
    # spread of the crowd by M - 1 differences ((M - 1) / (M - 3) likewise, in the mean that all share).
    noise, common = 1.0 + 1.0 / np.maximum(shape - 1.0, 1.0), 2.0 / max(M - 3.0, 1.0) / M
    return var_u + unsure, vbb * noise + common * s.sb2, vaa * noise + common * s.sa2, shape


def _joint(
    blocks: list[Any],
    h: Floats,
    p: Floats,
    n: Floats,
    su: Floats,
    suu: Floats,
    s: GaussianState,
    settings: GaussianSettings,
) -> tuple[Floats, Floats]:
    """The inverse of the joint precision of (items, annotators, mu): Schur complement on annotators and mu."""
    from scipy.sparse import csr_matrix, diags, hstack

    N, M = len(h), len(p)
    G = hstack([*blocks, csr_matrix(np.full((N, 1), -1.0 / s.tau2))]).tocsr()
    size = G.shape[1]
    S = -np.asarray((G.T @ diags(1.0 / h) @ G).todense())
    at = np.arange(M)
    if settings.bias:
        S[at, at] += 1.0 / s.sb2 + p * n
    if settings.scale:
        own = at + M * settings.bias
        S[own, own] += 1.0 / s.sa2 + p * suu
        if settings.bias:
            S[at, own] += p * su
            S[own, at] += p * su
    S[-1, -1] += N / s.tau2
    cov = np.linalg.pinv(S, hermitian=True) if size == 1 else np.linalg.inv(S)
    extra = np.empty(N)
    step = max(1, int(2e7 // size))
    for lo in range(0, N, step):
        some = G[lo : lo + step]
        extra[lo : lo + step] = np.asarray(some.multiply(some @ cov).sum(axis=1)).ravel()
    return 1.0 / h + np.maximum(extra, 0.0) / h**2, np.maximum(np.diag(cov)[:-1], 0.0)


def _separate(W: Any, h: Floats, s: GaussianState, settings: GaussianSettings) -> tuple[Floats, Floats]:
    """As ``_joint``, each annotator's bias and scale apart from all others': what they share is at most s^2 / M."""
    vbb, vaa = steps.own_variances(W, s)
    square = W.multiply(W).tocsr()
    parts, extra = [], np.zeros(len(h))
    if settings.bias:
        parts.append(vbb)
        extra += square @ ((s.p * s.a) ** 2 * vbb)
    if settings.scale:
        parts.append(vaa)
        extra += s.u**2 * (square @ ((s.p * s.a) ** 2 * vaa))
    return 1.0 / h + extra / h**2, np.concatenate(parts) if parts else np.empty(0)


@declared
class GaussianRatings(RatingModel):
    """Bias and precision of each annotator (and scale, where asked for), and the items' numbers, by variational EM.

    Parameters
    ----------
    bias, scale
        Whether annotators have a bias, and a scale, of their own. How much they differ is learned, so that either
        costs little where they do not.
    difficulty
        Whether ratings scatter more on some items than on others. Not where many answers are equal (zero, say): items
        on which a few annotators agree exactly then seem so easy that their ratings outweigh all others.
    noise
        ``"gaussian"``, or ``"student"``: t-distributed, on which outliers have little influence.
    df
        Degrees of freedom of ``"student"``: a number, or ``"learned"``.
    shrink
        How far values go from the weighted mean of their ratings (0) to the posterior mean (1), which lies nearer to
        the mean of all items. With ``scale`` always 1.
    shared_error
        The variance of the error that all ratings on an item share, in units of that of the ratings on it: intervals
        include it. 0: none.
    hedge
        Mix in the plain mean as far as held-out ratings ask for it (``share`` of the result).
    max_iter, tol
        Stop after so many passes over the ratings, or when a pass gains less than ``tol`` per rating.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.ratings(300, n_annotators=10, votes_per_item=5)
    >>> {key: round(cw.aggregate(crowd.ratings, key).score(crowd.truth), 2) for key in ("mean", "gaussian")}
    {'mean': 0.73, 'gaussian': 0.82}
    """

    key = "gaussian"

    bias: bool = True
    scale: bool = False
    difficulty: bool = False
    noise: Literal["gaussian", "student"] = "gaussian"
    df: Positive | Literal["learned"] = 4.0
    shrink: Share = 0.5
    shared_error: NonNegative = values.SHARED_ERROR
    hedge: bool = True
    max_iter: Count = 500
    tol: NonNegative = 1e-6

    def _fit(self, answers: Ratings, callback: Callback | None) -> dict[str, Any]:
        self._check_several(answers)
        y, centre, unit = standardise(answers)
        crowd = RatingMatrices.of(answers, y)
        if crowd.alone().all():
            z = weighted_mean(answers.item, answers.weights, answers.value, len(answers))
            note = "No two annotators rated the same item, so that they cannot be compared: values are plain means."
            return {"values": z, "iterations": 1, "share": 0.0, "notes": [note], **scatter(answers, z)}
        s, ease, weight, rounds, settings = self._annotators(crowd, callback)
        trace = np.array(rounds.trace) - settings.power * float(crowd.weight.sum()) * np.log(unit)
        var_u, vbb, vaa, shape = variances(crowd, weight, s, settings)
        # Values: see crowdwise.answers.ratings_gaussian_steps.
        h, top, part, said = values.item_sums(crowd, weight, s)
        mu, tau2 = s.mu, s.tau2
        if settings.fixed:
            rated = h > 0.0
            mu, tau2 = values.normal_spread(top[rated] / h[rated], 1.0 / h[rated])
            var_u = 1.0 / (1.0 / var_u + 1.0 / tau2)
        shrink = 1.0 if self.scale else self.shrink
        u, best = values.between(h, top, mu, tau2, shrink)
        shift, level = 0.0, 0.0
        if self.noise == "gaussian":
            shift = float((crowd.weight * (y - u[crowd.item])).sum() / crowd.weight.sum())
            n = counts(crowd.annotator, crowd.weight, crowd.M) / crowd.weight.sum()
            level = s.sb2 * max(float(n @ n) - 1.0 / crowd.M, 0.0)
        share, final = 1.0, u + shift
        if self.hedge:
            at = crowd.item
            without, _ = values.between(h[at] - part, top[at] - said, mu, tau2, shrink)
            # The model is judged at its own level: one whose weights and biases move it far is trusted less.
            final, share = hedged(answers, y, u, without)
            final = final + share * shift
        final = np.clip(final, y.min(), y.max())
        var_u = var_u + (final - best - shift) ** 2 + level
        found: dict[str, Any] = {"item_columns": {"ease": ease}} if self.difficulty else {}
        if self.shared_error:
            common, freedom = values.shared_errors(crowd, weight, s, u, self.shared_error)
            var_u = var_u + common
            found |= {"shared": unit * np.sqrt(common), "freedom": freedom * (var_u / common) ** 2}
        if self.bias:
            found |= {"bias": (s.b - shift) * unit, "bias_sd": np.sqrt(vbb + level) * unit}
        if self.scale:
            found |= {"scale": s.a, "scale_sd": np.sqrt(vaa)}
        return found | rounds.outcome | {
            "values": centre + unit * final, "share": share, "deviations": unit * np.sqrt(var_u),
            "precision": s.p / unit**2, "precision_shape": shape, "mean": centre + unit * (mu + shift),
            "spread": unit * float(np.sqrt(tau2)), "centre": centre, "trace": trace,
        }  # fmt: skip

    def _annotators(
        self, crowd: RatingMatrices, callback: Callback | None
    ) -> tuple[GaussianState, Floats, Floats, Rounds, GaussianSettings]:
        """The annotators, from the ratings on items with several; the items that follow, of all ratings."""
        several = ~crowd.alone()
        fixed = not self.scale
        sub = crowd.select(several) if fixed and not several.all() else crowd
        plain = self.noise == "gaussian" and not self.difficulty
        power = precision_power(sub, self.bias) if plain else 1.0
        additive = additive_part(sub) if fixed and self.bias else 1.0
        settings = GaussianSettings(
            self.bias, self.scale, self.difficulty, self.noise == "student", self.df, fixed, power, additive
        )
        s, ease, weight, rounds = run_passes(sub, settings, self.max_iter, self.tol, callback)
        if sub is not crowd:
            every = crowd.weight.copy()
            every[several] = weight
            weight = every
            s = steps.items_given(crowd.matrix(weight), crowd.matrix(weight * crowd.y), s, settings)
        return s, ease, weight, rounds, settings
