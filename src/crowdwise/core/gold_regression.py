"""What gold labels say about votes that err together: a ridge regression of the truth on the votes.

A panel whose members err together agrees on its errors, and no vote shows it. Gold labels do: with x[n, m, l] the
(weighted) votes of annotator m for l on item n, and q' the posterior of the fit (:mod:`crowdwise.core.dependence`), to
the power a that gold labels give it,

    q''[n, k] ∝ q'[n, k] ^ a * exp( b[k] + sum_m,l x[n, m, l] W[m, l, k] )

b is a bias towards each class, W a correction of what a vote says. Both maximise the log-likelihood of the gold labels
less a ridge, lambda / 2 of the sum of their squares. The votes of an item are centred (a third of a vote is taken from
each of three classes) and scaled to a mean square of 1, so that 1 / sqrt(lambda) is the standard deviation of what the
regression adds to the log-odds of an item.

**How strong.** Candidates are the fit, a bias alone under each of ``BIAS_SD``, and bias and votes under each of
``VOTES_SD``. With D the log-likelihood of gold labels, each predicted without itself (cross-validation), beyond that of
the fit, a candidate has the weight exp(D) / (5 ``CAUTION``) and the fit 1. W and b are the averages under these
weights; where the fit has more than two thirds of the weight, or there are fewer than ``MIN_LABELS`` labels or labels
of one class, it stays as it is.

**How it is computed.** Items enter by their inner products alone, g x g, so that any number of annotators is cheap. In
the basis of their eigenvectors F (F^T F diagonal with entries e), the Hessian of the log-likelihood is at most e / 2 on
centred columns (Böhning 1992), which gives steps that never need a search,

    B <- B - ( F^T (q'' - y) + lambda B ) / ( e / 2 + lambda )

accelerated as by Nesterov, with a restart where a step goes uphill. All folds and strengths are steps of one array.
Folds take every tenth item in the order of their log loss under the fit, so that neither the order of rows nor names
matter. Of more than ``MAX_LABELS`` labels as many are taken, evenly in the same order.

**The power** maximises, with q'' = q' ^ a alone and q' what the votes alone give a gold item,

    sum_gold log q''[n, y_n] - (a - 1)² / (2 ``POWER_SD``²)

and is then moved back to 1 as far as the labels leave open that it is 1: with D the log-likelihood beyond that of 1,
less the half that a free number gains by chance, a - 1 is divided by 1 + ``CAUTION`` exp(-D).

**A gold item must not vouch for itself**, nor for the prior that annotators are shrunk towards: its own votes are taken
out again, one item at a time. With T[m, k] the counts and pseudo-counts of annotator m on class k, and w the weight of
the vote in them,

    theta'[m, l, y] = ( theta[m, l, y] T[m, y] - w ) / ( T[m, y] - w )

When it fails: gold items that are not like the others speak for their like. An annotator without votes on gold items,
or unseen in the fit, has no weights.

D. Böhning, Multinomial logistic regression algorithm, Annals of the Institute of Statistical Mathematics 1992. The
other numbers are round, and were chosen on real sets as docs/benchmarks/gold.md says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.core import em
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.numerics import Floats, Ints, clamp, maximise_1d, normalise, safe_log, softmax, winners
from crowdwise.core.shrinkage import learned_prior
from crowdwise.core.vote_sums import sum_rows
from crowdwise.data.votes import Votes

BIAS_SD, VOTES_SD = (0.1, 0.2, 0.3, 0.6, 1.0), (0.3, 0.6, 1.0, 2.0, 3.0)
CAUTION = 10.0
"""The prior odds of the fit against a power, a bias, and a regression on the votes."""
MIN_LABELS, MAX_LABELS = 20, 500
FOLDS = 10
STEPS, TOL = 500, 1e-3
"""The most steps of a regression, and the change of log-odds under which it has converged."""
FIT_DECIDES = 2 / 3
"""A fit of more weight than this is not corrected by a regression at all."""
NEGLIGIBLE = 0.05
"""A regression of so little weight is left out."""


@dataclass(frozen=True, eq=False)
class GoldRegression:
    """What gold labels correct (see the module): a, b[k] and W."""

    power: float
    bias: tuple[float, ...]
    weights: Floats | None = None
    """M x K x K (annotator, label, class); ``None`` where the votes were not given, or have next to no weight."""
    share: float = 0.0
    """The weight of regressions on the votes among all candidates."""
    losses: tuple[float, ...] = ()
    """The cross-validated log loss of gold labels by the fit, and by the best regression on the votes, if any."""


def regress(logit: Floats, gold: Ints, votes: Votes | None = None) -> GoldRegression:
    """The power, the bias and the weights of votes, from gold labels of g items.

    ``logit`` (g x K) is log q', by the votes of an item and what *other* items teach about its annotators; ``gold`` are
    their classes, ``votes`` their votes, in the codes of the fit: without these there is a bias alone.
    """
    power, K = calibrated_power(logit, gold), logit.shape[1]
    if len(gold) < MIN_LABELS or (gold == gold[0]).all():
        return GoldRegression(power, (0.0,) * K)
    rows, fold = _folds(_own_loss(power * logit, gold), gold, None if votes is None else alike(votes))
    logit, gold = logit[rows], gold[rows]
    train = np.stack([fold != f for f in (*range(FOLDS), -1)])  # the last one has all items
    offset = np.stack([calibrated_power(logit[items], gold[items]) * logit for items in train])
    before, one = _held_out(offset[:, None], gold, fold), np.ones((len(rows), 1))
    biases = ridge(one, offset, gold, train, np.array(BIAS_SD) ** -2.0)
    loss = [_held_out(offset[:, None] + one @ biases, gold, fold)]
    if votes is not None:
        product = inner_products(votes[rows])
        scale = max(float(np.trace(product)) / len(rows), 1e-12)
        e, basis = np.linalg.eigh(product / scale + 1.0)
        basis, root = basis[:, e > 1e-9 * e[-1]], np.sqrt(e[e > 1e-9 * e[-1]])
        B = ridge(basis * root, offset, gold, train, np.array(VOTES_SD) ** -2.0)
        loss.append(_held_out(offset[:, None] + (basis * root) @ B, gold, fold))
    gain = (before - np.concatenate(loss)).sum(axis=1) - np.log(CAUTION * len(BIAS_SD))
    w = softmax(np.append(gain, 0.0)[None])[0]
    w *= w[-1] <= FIT_DECIDES
    of_bias, of_votes = w[: len(BIAS_SD)], w[len(BIAS_SD) : -1]
    losses: tuple[float, ...] = ()
    bias, weights = of_bias @ biases[-1, :, 0], None
    if votes is not None:
        losses = float(before.mean()), float(loss[1].mean(axis=1).min())
        if of_votes.sum() >= NEGLIGIBLE:
            added = basis @ (np.einsum("j,jrk->rk", of_votes, B[-1]) / root[:, None])  # by each gold item, to b and W
            bias, weights = bias + added.sum(axis=0), vote_weights(votes[rows], added / scale)
    bias = tuple((bias - bias.mean()).tolist())
    return GoldRegression(power, bias, weights, float(of_votes.sum()), losses)


def _tables(votes: Votes) -> tuple[Any, Any]:
    """The (weighted) votes of items by annotator and label, and by annotator; sparse."""
    from scipy.sparse import csr_matrix

    M, K = votes.n_annotators, votes.n_classes
    return tuple(
        csr_matrix((votes.weights, at, votes.indptr), shape=(len(votes), size))
        for at, size in ((votes.cells(), M * K), (votes.annotator, M))
    )


def inner_products(votes: Votes) -> Floats:
    """g x g: the inner products of the centred votes of items, sum_m,l x[n, m, l] x[n', m, l]."""
    X, P = _tables(votes)
    return np.asarray((X @ X.T).toarray() - (P @ P.T).toarray() / votes.n_classes)


def alike(votes: Votes) -> Floats:
    """g: the inner product of the centred votes of an item with those of all."""
    X, P = _tables(votes)
    return np.asarray(X @ X.sum(axis=0).T - P @ P.sum(axis=0).T / votes.n_classes).ravel()


def vote_weights(votes: Votes, added: Floats) -> Floats:
    """W (M x K x K): the centred votes of gold items times what each item adds."""
    M, K = votes.n_annotators, votes.n_classes
    W = np.asarray(_tables(votes)[0].T @ added).reshape(M, K, K)
    return np.asarray(W - W.mean(axis=1, keepdims=True))


def ridge(F: Floats, offset: Floats, gold: Ints, train: Floats, penalty: Floats) -> Floats:
    """B (folds x strengths x r x K): the regressions on F (g x r, with orthogonal columns) beyond an offset (folds x g
    x K), on the items that ``train`` (folds x g) has, with the lambda of each strength as ``penalty``."""
    (T, G, K), J, r = offset.shape, len(penalty), F.shape[1]
    e, target = (F**2).sum(axis=0), np.eye(K)[gold]
    lam = penalty[None, :, None, None]
    step, mask = 1.0 / (0.5 * e[:, None] + lam), train[:, None, :, None]
    B = ahead = np.zeros((T, J, r, K))
    t = np.ones((T, J, 1, 1))
    for _ in range(STEPS):
        q = softmax((offset[:, None] + F @ ahead).reshape(-1, K)).reshape(T, J, G, K)
        slope = F.T @ (mask * (q - target)) + lam * ahead
        new = ahead - step * slope
        change = new - B
        t = np.where((slope * change).sum(axis=(2, 3), keepdims=True) > 0.0, 1.0, t)  # uphill: no momentum
        later = 0.5 + np.sqrt(0.25 + t * t)
        B, ahead, t = new, new + (t - 1.0) / later * change, later
        if np.sqrt((e[:, None] * change**2).sum(axis=2).max() / G) < TOL:
            break
    return B


def _folds(loss: Floats, gold: Ints, reach: Floats | None) -> tuple[Ints, Ints]:
    """The items that are used, and the fold of each: by their loss, then by what votes they have."""
    order = np.lexsort([gold, *([] if reach is None else [np.round(reach, 6)]), np.round(loss, 8)])
    if len(order) > MAX_LABELS:
        order = order[np.linspace(0, len(order) - 1, MAX_LABELS).round().astype(np.int64)]
    return order, np.arange(len(order)) % FOLDS


def _own_loss(logit: Floats, gold: Ints) -> Floats:
    return np.asarray(-safe_log(softmax(logit)[np.arange(len(gold)), gold]))


def _held_out(logit: Floats, gold: Ints, fold: Ints) -> Floats:
    """strengths x g: the log loss of each item where it was not fitted, from logits (folds x strengths x g x K)."""
    at = np.arange(len(gold))
    return np.stack([_own_loss(own, gold) for own in logit[fold, :, at].transpose(1, 0, 2)])


POWER_SD = 0.4
LEAST, MOST = 0.05, 4.0
"""Powers between which the maximum is looked for."""


def calibrated_power(logit: Floats, gold: Ints) -> float:
    """The power a, from log q' (g x K) and the classes of g gold items."""

    def fit(a: float) -> float:
        return -float(_own_loss(a * logit, gold).sum())

    best = maximise_1d(lambda a: fit(a) - (a - 1.0) ** 2 / (2.0 * POWER_SD**2), LEAST, MOST)
    doubt = CAUTION * np.exp(np.clip(fit(1.0) + 0.5 - fit(best), -50.0, 50.0))
    return float(1.0 + (best - 1.0) / (1.0 + doubt))


def by_other_items(stats: Stats, votes: Votes, gold: Ints, log_prior: Floats | None = None) -> Floats:
    """:func:`without_own` by the expected counts of all votes under the posterior of any method."""
    return _without_own(votes, gold, stats, learned_prior(stats.table(), quick=True), stats.mass, log_prior)


def _without_own(
    votes: Votes, gold: Ints, stats: Stats, pseudo: Floats, mass: Floats, log_prior: Floats | None = None
) -> Floats:
    """:func:`without_own` by counts and pseudo-counts, and the mass of the classes where items have no prior."""
    table = stats.table() + pseudo
    pi = np.zeros_like(mass) if log_prior is not None else np.log(normalise(mass + 1e-9, axis=0))
    params = Params(safe_log(normalise(table, axis=1)).reshape(stats.counts.shape), pi[None])
    return without_own(votes, gold, params, table.sum(axis=1), pseudo, log_prior)


def without_own(
    votes: Votes, gold: Ints, params: Params, total: Floats, pseudo: Floats, log_prior: Floats | None = None
) -> Floats:
    """The posterior of items from their votes alone, g x K, by what the other items teach about their annotators.

    Votes, gold labels and prior are those of the gold items alone, in the codes of the fit; ``total`` is T[m, k] (M x
    K), ``pseudo`` has the pseudo-counts (M x L x K), less than which no count can be.
    """
    K, m, label, y = votes.n_classes, votes.annotator, votes.label, gold[votes.item]
    score = params.log_score.reshape(-1, K, K)[m, label].copy()
    own, T, least = votes.weights, total[m, y], np.broadcast_to(pseudo, (len(total), K, K))[m, label, y]
    rest = np.maximum(np.exp(score[np.arange(len(m)), y]) * T - own, least)
    score[np.arange(len(m)), y] = safe_log(rest / np.maximum(T - own, rest))
    logit = sum_rows(score * votes.weights[:, None], votes.item, len(votes)) + params.log_prior
    return softmax(logit if log_prior is None else logit + log_prior)


def by_votes_alone(votes: Votes, q: Floats, gold: Ints) -> Floats:
    """The posterior of the gold items by :func:`without_own`, g x K, from that of all items by any method.

    The prior that annotators are shrunk towards comes from labels that no gold label has changed: those of the other
    items, and the shares of votes on gold items. What is known of an item before any vote does not count: a classifier
    may have learned it from the gold label.
    """
    known, part, free = np.flatnonzero(gold >= 0), Part.of(votes), q.copy()
    free[known] = votes[known].shares()
    pseudo = learned_prior(em.statistics(part, winners(free)).table(), quick=True)
    stats = em.statistics(part, clamp(q, gold))
    return _without_own(votes[known], gold[known], stats, pseudo, free.sum(axis=0))
