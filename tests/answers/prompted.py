"""Comparisons of every pair of models on prompts, for tests of boards and judges."""

from __future__ import annotations

import numpy as np

import crowdwise as cw


def prompts(
    n_prompts: int, effect: float, seed: int, n_items: int = 5, n_judges: int = 3, tie: float | None = None
) -> cw.Comparisons:
    """Every pair of models on every prompt; on a prompt some models are better than they are on the whole."""
    rng = np.random.default_rng(seed)
    scores = np.linspace(-1.0, 1.0, n_items)
    here = scores + effect * rng.standard_normal((n_prompts, n_items))
    i, j = np.triu_indices(n_items, 1)
    prompt, pair, judge = (
        a.ravel() for a in np.meshgrid(*map(np.arange, (n_prompts, len(i), n_judges)), indexing="ij")
    )
    turned = rng.random(len(pair)) < 0.5
    left, right = np.where(turned, j[pair], i[pair]), np.where(turned, i[pair], j[pair])
    z = here[prompt, left] - here[prompt, right]
    logit = np.stack([z / 2.0, -z / 2.0, np.full(len(z), -np.inf if tie is None else tie)], axis=1)
    p = np.exp(logit - logit.max(axis=1, keepdims=True))
    said = (rng.random(len(z))[:, None] > np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)[:, :2]).sum(axis=1)
    return cw.Comparisons.from_codes(
        left, right, judge, said, items=np.arange(n_items), annotators=np.arange(n_judges), question=prompt,
        questions=np.arange(n_prompts),
    )  # fmt: skip
