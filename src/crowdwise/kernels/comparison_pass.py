"""One pass over comparisons, compiled: log likelihood and the sums behind its derivatives.

The plain version, with the equations, is ``log_likelihood`` and ``add_up`` of
:mod:`crowdwise.answers.comparisons_likelihood`; this one visits every comparison once and keeps no rows. ``kind`` is 0
(plain), 1 (reliabilities) or 2 (positions).

Exponentials are taken once for every item and annotator: e^(z/2) is a ratio of two of them. Logarithms are taken of
products of many probabilities, before those grow too small or large for a float. So a comparison costs a few divisions,
and scores further than ``REACH`` apart are left to the plain version.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from crowdwise.kernels.compiler import njit
from crowdwise.kernels.reference import Floats, Ints

REACH = 200.0
"""The largest exponent: products of three such numbers are still numbers."""


def fits(x: Floats, theta: Floats, N: int) -> bool:
    """Whether all exponentials are within what floats hold."""
    far = 0.5 * float(x[:N].max() - x[:N].min()) + (float(np.abs(theta).max()) if len(theta) else 0.0)
    return far < REACH and (len(x) == N or float(np.abs(x[N:]).max()) < REACH)


def look(
    winner: Ints, loser: Ints, annotator: Ints, sign: Floats, weight: Floats, decided: int, N: int, M: int, x: Floats,
    theta: Floats, kind: int, ties: bool, whole: bool,
) -> tuple[float, Floats, Floats, Floats, tuple[float, float], Floats, Floats]:  # fmt: skip
    """Log likelihood, and g, A, k, tau, C, own as in ``crowdwise.answers.comparisons_likelihood.Sums``."""
    g, A, k = np.zeros(N), np.zeros((N, N)), np.zeros(N)
    C, own = np.zeros((N, M) if kind else (0, 0)), np.zeros((3, M if kind else 0))
    tau = float(x[N]) if ties else 0.0
    found = _look(
        winner, loser, annotator, sign, weight, decided, x, theta, kind, ties, tau, whole, g, A, k, C, own
    )  # fmt: skip
    return float(found[0]), g, A, k, (float(found[1]), float(found[2])), C, own


@njit(cache=True, nogil=True, error_model="numpy")
def _look(
    winner: Any, loser: Any, annotator: Any, sign: Any, weight: Any, decided: int, x: Any, theta: Any, kind: int,
    ties: bool, tau: float, whole: bool, g: Any, A: Any, k: Any, C: Any, own: Any,
) -> Any:  # fmt: skip
    total, product, g_tau, h_tau = 0.0, 1.0, 0.0, 0.0
    N, M = len(g), len(theta)
    tie = np.exp(tau) if ties else 0.0
    half = np.exp(0.5 * (x[:N] - x[:N].mean()))
    turn = np.exp(-theta) if kind == 1 else np.exp(0.5 * theta)  # odds of turning round, or e^(position / 2)
    for n in range(len(winner)):
        i, j, w, m = winner[n], loser[n], weight[n], annotator[n]
        won = n < decided
        a = half[i] / half[j]
        if kind == 2:
            a = a * turn[m] if sign[n] > 0.0 else a / turn[m]
        b = 1.0 / a
        norm = 1.0 / (a + b + tie)
        p_w, p_l, p_t = a * norm, b * norm, tie * norm
        c = 0.5 * (p_w - p_l)
        v = 0.25 * (p_w + p_l) - c * c if ties else p_w * p_l
        p = p_w if won else p_t
        d = 0.5 - c if won else -c
        h = v
        if ties:
            kk = -c * p_t * w
            k[i] += kk
            k[j] -= kk
            g_tau += w * ((0.0 if won else 1.0) - p_t)
            h_tau += w * p_t * (1.0 - p_t)
        if kind == 1 and won:
            odds = turn[m] * b * b
            r = 1.0 / (1.0 + odds)
            p *= 1.0 + odds  # times eta, below
            d += r - 1.0
            own[0, m] += w * r
            own[2, m] += w
            if whole:
                q = w * odds * r * r
                own[1, m] += q
                C[i, m] -= q
                C[j, m] += q
                h -= odds * r * r
        elif kind == 2:
            s = sign[n]
            own[0, m] += w * d * s
            own[1, m] += w * v
            own[2, m] -= w * c * p_t * s
            C[i, m] += w * v * s
            C[j, m] -= w * v * s
        if w == 1.0 and 1e-40 < p < 1e40:
            product *= p
            if product < 1e-200 or product > 1e200:
                total += log(product)
                product = 1.0
        else:
            total += w * log(p)
        g[i] += w * d
        g[j] -= w * d
        if sign[n] > 0.0:  # A is used with its mirror image: either side will do, and this one lies in the cache
            A[i, j] += w * h
        else:
            A[j, i] += w * h
    total += log(product)
    if kind == 1:
        for m in range(M):
            total -= own[2, m] * np.log1p(turn[m])  # log eta
    return total, g_tau, h_tau
