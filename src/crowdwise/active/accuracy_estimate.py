"""The accuracy of labels without truth: a Bayesian model of crowds, and the right labels in crowds drawn from it.

The posterior of a fit is overconfident: it takes the confusion matrices as known, and all items are alike to it. Here
another model is fitted for this one question (Gibbs sampling), with the symbols of ``docs/active.md``: pi, z[n],
whether an item is hard (d[n]), how often m guesses (g[m], around the crowd's r with strength s), and what m says
otherwise (psi[m, k], around the crowd's mu[k] with strength c):

    P(l | m, n, k) = keep psi[m, k, l] + (1 - keep) / K,    keep = (1 - g[m]) (1 - ``HARD`` d[n])

The skill of the crowd is what few votes determine least and the answer depends on most: a step of its own moves the
rates of guessing of all annotators at once, with truth and difficulty summed out. With one vote per item nothing can be
known: the answer is that of the prior over crowds.

The constants below were chosen on simulated crowds. Cost: O(votes x classes) a draw, and fewer draws with more votes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import expit, gammaln, logit, ndtri

from crowdwise.core.numerics import TINY, Floats, Ints, normalise

CLASSES = 5.0
"""Dirichlet of pi."""
HARD = 0.6
"""How many of the votes on a hard item are guesses."""
HARD_SHARE = (0.3, 1.0)
"""Beta of the share of hard items: most crowds have next to none, some have many."""
GUESSING = (2.0, 5.0)
"""Beta of r: the crowd as a whole guesses three votes in ten, give or take."""
KNOWING = (4.0, 1.0)
"""Beta of x, how much the crowd knows when it does not guess: mu[k, k] is about 1 / K + x (1 - 1 / K)."""
SAME = 50.0
"""How many votes it takes for rows of mu to differ from class to class: mu[k] has a Dirichlet of so much in all."""
ALIKE = (2.0, 0.25)
"""Gamma (shape, rate) of c, how alike the confusion matrices are."""
AS_CAREFUL = (2.0, 0.5)
"""Gamma (shape, rate) of s, how alike the rates of guessing are."""
WIDER = 1.3
"""How much wider intervals are than those of the draws: real crowds are not quite of this kind."""
BLOCK = 20_000
"""Votes that are summed at a time."""
WORK, MIN_DRAWS, MAX_DRAWS = 1_000_000, 30, 250
"""Votes that are visited in all draws together, the fewest draws and the most."""
EDGE = 1e-9
"""Probabilities that are drawn stay so far from 0 and 1."""


@dataclass(frozen=True)
class ItemVotes:
    """Votes as raw arrays, item after item: ``start`` (N) is the row of the first vote of each item, which has one at
    least, and ``truth`` (N) its class, -1 where it is not known."""

    start: Ints
    item: Ints
    annotator: Ints
    label: Ints
    weight: Floats
    truth: Ints
    n_annotators: int
    n_classes: int


@dataclass(frozen=True)
class CrowdDraw:
    """A draw of all unknowns but the truth: pi, lam, g (M), psi (M x K x L), mu (K x L), c, r, s (see the top)."""

    pi: Floats
    hard: float
    guess: Floats
    says: Floats
    crowd_says: Floats
    alike: float
    crowd_guess: float
    as_careful: float


def n_draws(n_votes: int) -> int:
    """How many crowds to draw."""
    return int(np.clip(WORK // max(n_votes, 1), MIN_DRAWS, MAX_DRAWS))


def accuracy_draws(
    answers: ItemVotes, chosen: Ints, q: Floats, n: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The expected share of right labels in each of n crowds, and the variance of that share given the crowd.

    Labels of items with known truth do not count; some item has none.
    ``q`` (N x K) is where it starts from. Half as many crowds again are drawn before, and not counted.
    """
    N, K = q.shape
    before, free = n // 2, np.flatnonzero(answers.truth < 0)
    chosen = chosen[free]
    crowd, reach = _start(answers, q.T / q.sum(axis=1), rng), min(1.0, 10.0 / np.sqrt(N))
    mean, variance = np.empty(n), np.empty(n)
    for turn in range(-before, n):
        log_evidence, joint = likelihood(answers, crowd)
        crowd, joint, moved = shift(answers, crowd, log_evidence, joint, reach, rng)
        if turn < 0:  # a reach at which three steps in ten are accepted is a good one
            reach = float(np.clip(reach * np.exp((moved - 0.3) / np.sqrt(turn + before + 1.0)), 1e-3, 5.0))
        else:
            p = (joint[chosen, free] + joint[K + chosen, free]) / joint[:, free].sum(axis=0)
            mean[turn], variance[turn] = p.mean(), (p * (1.0 - p)).sum() / len(free) ** 2
        crowd = draw(answers, crowd, joint, rng)
    return mean, variance


def interval(mean: Floats, variance: Floats, N: int, level: float) -> tuple[float, float]:
    """The interval that holds the share of right labels, of N items, with probability ``level``.

    In each crowd the number of right labels is about normal; the draws are a mixture of these, with everything
    ``WIDER`` times as far from the middle as it is.
    """
    z = ndtri((np.arange(41) + 0.5) / 41)
    middle = mean.mean()
    share = middle + WIDER * (mean[:, None] + np.sqrt(variance)[:, None] * z - middle)
    low = np.quantile(share, 0.5 - level / 2.0, method="lower")
    high = np.quantile(share, 0.5 + level / 2.0, method="higher")
    return max(0.0, float(np.floor(N * low + 1e-9) / N)), min(1.0, float(np.ceil(N * high - 1e-9) / N))


def prior_accuracy(K: int, confidence: float, level: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """The share of right labels with one vote per item under the prior over crowds: its mean, and an interval from
    chance to the larger of the stream's own confidence and the upper end of that prior."""
    n = 4000
    keep = (1.0 - rng.beta(*GUESSING, n)) * (1.0 - HARD * rng.beta(*HARD_SHARE, n))
    keep *= rng.beta(*KNOWING, n)
    share = keep + (1.0 - keep) / K
    return float(share.mean()), 1.0 / K, max(confidence, float(np.quantile(share, 0.5 + level / 2.0)))


def _start(answers: ItemVotes, q: Floats, rng: np.random.Generator) -> CrowdDraw:
    """A first crowd, drawn as if a truth that is drawn from q (K x N) were known and no item hard."""
    M, K = answers.n_annotators, answers.n_classes
    mu = crowd_priors(K)[0][15] / SAME
    rate = GUESSING[0] / sum(GUESSING)
    first = CrowdDraw(
        normalise(q.sum(axis=1) + CLASSES, axis=0), 0.05, np.full(M, rate), np.tile(mu, (M, 1, 1)), mu,
        ALIKE[0] / ALIKE[1], rate, AS_CAREFUL[0] / AS_CAREFUL[1],
    )  # fmt: skip
    return draw(answers, first, np.concatenate([q, np.zeros_like(q)]), rng)


def likelihood(answers: ItemVotes, crowd: CrowdDraw) -> tuple[float, Floats]:
    """The log-probability of the votes in a crowd, truth and difficulty summed out, and 2K x N: the likelihood of
    each class if the item is easy, then if it is hard; the largest of an item is 1."""
    M, K = answers.n_annotators, answers.n_classes
    table = np.empty((M, K, 2, K))  # annotator, label, easy or hard, class
    for d in range(2):
        keep = ((1.0 - crowd.guess) * (1.0 - HARD * d))[:, None, None]
        table[:, :, d] = np.log(keep * crowd.says.transpose(0, 2, 1) + (1.0 - keep) / K)
    logs = _summed(answers, table.reshape(M * K, 2 * K))
    logs += np.concatenate([np.log(crowd.pi) + np.log1p(-crowd.hard), np.log(crowd.pi) + np.log(crowd.hard)])[:, None]
    known = np.flatnonzero(answers.truth >= 0)
    if len(known):
        other = np.arange(2 * K)[:, None] % K != answers.truth[known]
        logs[:, known] = np.where(other, -np.inf, logs[:, known])
    top = logs.max(axis=0)
    joint = np.exp(logs - top)
    return float((top + np.log(joint.sum(axis=0))).sum()), joint


def _summed(answers: ItemVotes, table: Floats) -> Floats:
    """2K x N: the rows of a table (annotator and label) summed over the votes of each item, some items at a time: a
    block that stays in the cache is read twice as fast."""
    start, S = answers.start, len(answers.label)
    N = len(start)
    out = np.empty((table.shape[1], N))
    step = max(1, BLOCK * N // S)
    for lo in range(0, N, step):
        hi = min(lo + step, N)
        rows = slice(start[lo], start[hi] if hi < N else S)
        votes = table[answers.annotator[rows] * answers.n_classes + answers.label[rows]]
        if len(answers.weight):
            votes *= answers.weight[rows, None]
        out[:, lo:hi] = np.add.reduceat(votes, start[lo:hi] - start[lo], axis=0).T
    return out


def shift(
    answers: ItemVotes, crowd: CrowdDraw, log_evidence: float, joint: Floats, reach: float, rng: np.random.Generator
) -> tuple[CrowdDraw, Floats, bool]:
    """A step of Metropolis: all guess more, or all less (logits of g and r move by the same amount)."""
    by = reach * rng.standard_normal()
    guess = np.clip(expit(logit(crowd.guess) + by), EDGE, 1.0 - EDGE)
    rate = float(np.clip(expit(logit(crowd.crowd_guess) + by), EDGE, 1.0 - EDGE))
    new = replace(crowd, guess=guess, crowd_guess=rate)
    found, worth = likelihood(answers, new)
    gain = found - log_evidence + guessing_density(new) - guessing_density(crowd)
    if np.log(rng.random() + TINY) < gain:
        return new, worth, True
    return crowd, joint, False


def guessing_density(crowd: CrowdDraw) -> float:
    """The log-density of the logits of r and of all g."""
    r, s, g = crowd.crowd_guess, crowd.as_careful, crowd.guess
    a, b = s * r, s * (1.0 - r)
    each = (a * np.log(g) + b * np.log1p(-g)).sum() - len(g) * (gammaln(a) + gammaln(b))
    return float(each + GUESSING[0] * np.log(r) + GUESSING[1] * np.log1p(-r))


def draw(answers: ItemVotes, crowd: CrowdDraw, joint: Floats, rng: np.random.Generator) -> CrowdDraw:
    """Truth and difficulty of every item, which votes are guesses, and then a crowd that goes with these."""
    (_, N), M, K = joint.shape, answers.n_annotators, answers.n_classes
    m, weight = answers.annotator, answers.weight
    total = np.cumsum(joint, axis=0)
    state = (total < rng.random(N) * total[-1]).sum(axis=0)
    z, hard = state % K, (state >= K) * HARD
    item_guess = hard[answers.item]
    keep = (1.0 - crowd.guess[m]) * (1.0 - item_guess)
    cell = (m * K + z[answers.item]) * K + answers.label
    said = keep * crowd.says.ravel()[cell]
    knew = rng.random(len(m)) * (said + (1.0 - keep) / K) < said
    # A guess is the item's, or else the annotator's own.
    careless = ~knew & (rng.random(len(m)) * (1.0 - keep) >= item_guess)

    def count(codes: Ints, some: Ints, size: int) -> Floats:
        return np.bincount(codes[some], weights=weight[some] if len(weight) else None, minlength=size).astype(
            np.float64
        )

    counts = count(cell, knew, M * K * K).reshape(M, K, K)
    own, known = count(m, careless, M), counts.sum(axis=(1, 2))
    mu, c = hierarchy(counts, *crowd_priors(K), crowd.crowd_says, crowd.alike, ALIKE, rng)
    rates = np.array([[crowd.crowd_guess, 1.0 - crowd.crowd_guess]])
    cases = np.stack([own, known], axis=1)[:, None]
    rates, s = hierarchy(cases, np.array([[GUESSING]]), np.zeros(1), rates, crowd.as_careful, AS_CAREFUL, rng)
    n_hard = float((hard > 0).sum())
    return CrowdDraw(
        _dirichlet(np.asarray(CLASSES + np.bincount(z, minlength=K), dtype=np.float64), rng),
        float(np.clip(rng.beta(HARD_SHARE[0] + n_hard, HARD_SHARE[1] + N - n_hard), EDGE, 1.0 - EDGE)),
        np.clip(rng.beta(own + s * rates[0, 0], known + s * rates[0, 1]), EDGE, 1.0 - EDGE),
        _dirichlet(counts + c * mu, rng),
        mu,
        c,
        float(np.clip(rates[0, 0], EDGE, 1.0 - EDGE)),
        s,
    )


def hierarchy(
    counts: Floats,
    priors: Floats,
    log_weight: Floats,
    mu: Floats,
    c: float,
    about: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[Floats, float]:
    """mu and c where counts[g, r] are drawn from theta[g, r] ~ Dirichlet(c mu[r]), mu[r] ~ Dirichlet(prior[r]), the
    prior being one of several (with such log-probabilities), and c ~ Gamma(``about``); from earlier values of both,
    theta being integrated out.

    With t[g, r, l] the tables of a Chinese restaurant with counts[g, r, l] guests and concentration c mu[r, l], mu has
    the Dirichlet of prior + sum of t over g (from which the probability of each prior follows, too); c has a Gamma,
    given a Beta and a coin for each theta (Teh et al. 2006).
    """
    guests = np.rint(counts).astype(np.int64).ravel()
    place = np.repeat(np.arange(len(guests)), guests)
    before = np.arange(len(place)) - np.repeat(np.cumsum(guests) - guests, guests)
    a = np.tile((c * mu).ravel(), len(counts))[place]
    new = rng.random(len(place)) * (a + before) < a
    tables = np.bincount(place[new], minlength=len(guests)).reshape(counts.shape)
    total = tables.sum(axis=0)
    if len(priors) > 1:  # their rows have the same sums, so that nothing else differs
        log = log_weight + (gammaln(priors + total) - gammaln(priors)).sum(axis=(1, 2))
        chance = np.cumsum(np.exp(log - log.max()))
        priors = priors[[int((chance < rng.random() * chance[-1]).sum())]]
    mu = _dirichlet(priors[0] + total, rng)
    n = guests.reshape(counts.shape).sum(axis=2)
    n = n[n > 0]
    shape = about[0] + tables.sum() - (rng.random(len(n)) * (n + c) < n).sum()
    rate = about[1] - np.log(np.maximum(rng.beta(c + 1.0, n), TINY)).sum()
    return mu, float(np.clip(rng.standard_gamma(shape) / rate, 0.1, 1e5))


@cache
def crowd_priors(K: int) -> tuple[Floats, Floats]:
    """Twenty values of x: the B x K x K Dirichlets of the rows of mu that go with them, and their log-probabilities."""
    x = (np.arange(20) + 0.5) / 20
    diagonal = 1.0 / K + x * (1.0 - 1.0 / K)
    own = np.eye(K) * diagonal[:, None, None] + (1.0 - np.eye(K)) * ((1.0 - diagonal) / (K - 1))[:, None, None]
    log_weight = (KNOWING[0] - 1.0) * np.log(x) + (KNOWING[1] - 1.0) * np.log1p(-x)
    return SAME * own, log_weight - np.log(np.exp(log_weight).sum())


def _dirichlet(a: Floats, rng: np.random.Generator) -> Floats:
    """A draw for each row (the last axis)."""
    x = np.maximum(rng.standard_gamma(a), EDGE)
    return np.asarray(x / x.sum(axis=-1, keepdims=True))
