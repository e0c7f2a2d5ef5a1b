"""Dual ascent for the largest margin, item by item, compiled.

For item n with class y and competitors d the dual variables are omega[n, d] >= 0 with sum_d omega[n, d] <= c, and the
weights are eta = sum_n sum_d omega[n, d] ( v[n, y] - v[n, d] ), v[n, k] the annotators who said k of n. A visit to an
item takes one projected gradient step on its own variables, of a length that cannot lower the dual

    D(omega) = sum omega - |eta|^2 / 2.
"""

from __future__ import annotations

import numpy as np

from crowdwise.kernels.compiler import njit
from crowdwise.kernels.reference import Floats, Ints


@njit(cache=True, nogil=True)
def sweep(
    indptr: Ints, annotator: Ints, label: Ints, weight: Floats, y: Ints, c: float, omega: Floats, eta: Floats,
    epochs: int,
) -> None:  # fmt: skip
    """Visit every item ``epochs`` times; ``omega`` (N x K) and ``eta`` (M) are changed in place."""
    N, K = omega.shape
    s, square, z = np.empty(K), np.empty(K), np.empty(K)
    voted = np.empty(K, dtype=np.bool_)
    for _ in range(epochs):
        for n in range(N):
            lo, hi, t = indptr[n], indptr[n + 1], y[n]
            if lo == hi:
                continue
            s[:], square[:], voted[:] = 0.0, 0.0, False
            for r in range(lo, hi):
                s[label[r]] += weight[r] * eta[annotator[r]]
                square[label[r]] += weight[r] * weight[r]
                voted[label[r]] = True
            # Classes without votes are one and the same competitor: the first stands for all.
            spare = -1
            rivals, steepest = 0, 0.0
            for d in range(K):
                if d == t:
                    continue
                if not voted[d]:
                    if spare >= 0:
                        continue
                    spare = d
                rivals += 1
                steepest = max(steepest, square[d])
            length = steepest + rivals * square[t]
            total, count = 0.0, 0
            for d in range(K):
                z[d] = 0.0
                if d != t and (voted[d] or d == spare):
                    z[d] = max(omega[n, d] + (1.0 - s[t] + s[d]) / length, 0.0)
                    total += z[d]
                    count += z[d] > 0.0
            if total > c:  # onto the simplex: take the same off all, drop those that fall below nothing, again
                shift = (total - c) / count
                for _ in range(K):
                    before, count, total = count, 0, 0.0
                    for d in range(K):
                        if z[d] > shift:
                            count += 1
                            total += z[d]
                    if count == before or count == 0:
                        break
                    shift = (total - c) / count
                for d in range(K):
                    z[d] = max(z[d] - shift, 0.0)
            change = 0.0
            for d in range(K):
                if d != t:
                    z[d] -= omega[n, d]
                    omega[n, d] += z[d]
                    change += z[d]
            for r in range(lo, hi):
                eta[annotator[r]] += weight[r] * (change if label[r] == t else -z[label[r]])
