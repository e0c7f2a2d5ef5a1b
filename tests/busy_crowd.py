"""Votes of annotators with given matrices."""

from __future__ import annotations

import numpy as np

import crowdwise as cw


def ordered(rng, N, M, K, r, theta, pi):
    """Votes by annotators with given matrices, r on each item, some annotators busier than others."""
    z = rng.choice(K, size=N, p=pi)
    busy = np.arange(1, M + 1) ** -0.8
    who = np.array([rng.choice(M, size=r, replace=False, p=busy / busy.sum()) for _ in range(N)])
    item = np.repeat(np.arange(N), r)
    p = np.cumsum(theta[who.ravel(), z[item]], axis=1)
    label = (rng.random(len(item))[:, None] >= p).sum(axis=1).clip(0, K - 1)
    names = {"items": range(N), "annotators": range(M), "classes": range(K)}
    return cw.Votes.from_codes(item, who.ravel(), label, truth=z.astype(np.int32), **names)
