"""How much one annotator knows: channel capacity and Raykar's and Yu's score, and draws of both from uncertain counts.

======================  ======================================================  =====================================
function                value                                                   of somebody who knows with probability s
======================  ======================================================  =====================================
``channel_capacity``    max over p of I(truth; label), bits per vote            log2 K - H(p, (1-p)/(K-1), ...)
``raykar_yu_score``     1/(K(K-1)) sum_c<c' |theta[c] - theta[c']|^2            s^2
======================  ======================================================  =====================================

Here p = s + (1 - s) / K. theta[m, k] is drawn from its posterior Dirichlet(c[m, k] + 1/2), with counts reduced to as
many as they are worth with their truth in doubt (Louis' principle, as in the intervals of confusion matrices). Both
measures are convex, so that noise raises them, once in the counts and once more in the draws.

References: Blahut 1972 and Arimoto 1972; Raykar and Yu 2012.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crowdwise.core.numerics import Floats, normalise

JEFFREYS = 0.5
CHUNK = 2**22
"""How many numbers a piece of the draws holds at once."""


def channel_capacity(theta: Floats, tol: float = 1e-7, max_iter: int = 2000) -> Floats:
    """The capacity in bits of B x K x L channels, by Blahut's and Arimoto's iteration.

    p[k] <- p[k] 2^(a D[k]) / Z with D[k] = sum_l theta[k, l] log2( theta[k, l] / sum_k p theta ). The capacity is
    between sum p D and max D, and a channel is done when they are ``tol`` apart. a = 1 never lowers sum p D; longer
    steps, which channels of small capacity need, are taken as long as they raise it.

    >>> import numpy as np
    >>> channel_capacity(np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.3, 0.7], [0.3, 0.7]]])).round(3).tolist()
    [0.531, 0.0]
    """
    B, K, _ = theta.shape
    own = (theta * np.log2(np.maximum(theta, 1e-300))).sum(axis=2)
    found, left = np.zeros(B), np.arange(B)

    def gains(p: Floats) -> Floats:
        mixed = np.matmul(p[:, None, :], theta)[:, 0]
        return np.asarray(own - np.matmul(theta, np.log2(np.maximum(mixed, 1e-300))[:, :, None])[:, :, 0])

    p, step = np.full((B, K), 1.0 / K), np.ones(B)
    D = gains(p)
    value = (p * D).sum(axis=1)
    for _ in range(max_iter):
        top = D.max(axis=1)
        going = top - value > tol
        found[left] = value
        if not going.any():
            break
        if going.sum() < 0.8 * len(left):
            theta, own, left, p, step = theta[going], own[going], left[going], p[going], step[going]
            D, value, top = D[going], value[going], top[going]
        tried = p * np.exp2(step[:, None] * (D - top[:, None]))
        tried /= tried.sum(axis=1, keepdims=True)
        D_tried = gains(tried)
        value_tried = (tried * D_tried).sum(axis=1)
        good = (value_tried >= value) | (step <= 1.0)
        p, D = np.where(good[:, None], tried, p), np.where(good[:, None], D_tried, D)
        value = np.where(good, value_tried, value)
        step = np.where(good, 1.5 * step, np.maximum(step / 4.0, 1.0))
    found[left] = value
    return np.maximum(found, 0.0)


def raykar_yu_score(theta: Floats) -> Floats:
    """1/(K(K-1)) sum_{c<c'} sum_l (theta[c, l] - theta[c', l])^2 of B x K x K matrices: 0 a spammer, 1 perfect.

    Two classes: (sensitivity + specificity - 1)^2. It equals sum_c |theta[c] - mean row|^2 / (K - 1).

    >>> import numpy as np
    >>> float(raykar_yu_score(np.array([[[0.9, 0.1], [0.3, 0.7]]]))[0].round(3))
    0.36
    """
    K = theta.shape[1]
    return np.asarray(((theta - theta.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2)) / (K - 1.0))


def one_coin_capacity(skill: float, K: int) -> float:
    """Bits of somebody who knows the answer with probability ``skill`` and guesses evenly otherwise."""
    theta = skill * np.eye(K) + (1.0 - skill) / K
    return float(channel_capacity(theta[None])[0])


def effective_counts(counts: Floats, spread: Floats) -> Floats:
    """c[m, k, l] times the share of each row (m, k) that is worth a known truth.

    For a share p the missing information is Var(sum 1[truth = k] (1[label = l] - p)) / p(1-p); a row takes the sum
    over l of both, so n_eff = n - sum_l Var / sum_l p(1-p).
    """
    total = counts.sum(axis=2, keepdims=True)
    K = counts.shape[2]
    p = (counts + 1.0 / K) / (total + 1.0)
    rest = spread.sum(axis=2, keepdims=True) - spread
    missing = ((1.0 - p) ** 2 * spread + p**2 * rest).sum(axis=2, keepdims=True)
    room = np.maximum((p * (1.0 - p)).sum(axis=2, keepdims=True), 1e-12)
    worth = np.clip(total - missing / room, 0.0, total)
    return np.asarray(counts * np.divide(worth, total, out=np.zeros_like(total), where=total > 0))


def posterior_of(
    measure: Callable[[Floats], Floats], counts: Floats, draws: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """A measure of each annotator's matrix and ``draws`` of it (M x draws), the rise by noise taken off."""
    M, K, _ = counts.shape
    alpha = counts + JEFFREYS
    value = measure(normalise(alpha, axis=2))
    drawn = np.empty((M, draws))
    step = max(1, CHUNK // (draws * K * K))
    for at in range(0, M, step):
        part = alpha[at : at + step]
        # As float32 would do, but gamma draws of small shapes need the range.
        theta = rng.standard_gamma(np.broadcast_to(part[:, None], (len(part), draws, K, K)))
        theta /= np.maximum(theta.sum(axis=3, keepdims=True), 1e-300)
        drawn[at : at + step] = measure(theta.reshape(-1, K, K)).reshape(len(part), draws)
    return value, drawn
