"""Digits labelled by trained classifiers, with an adversary, a lazy annotator, one who gets worse, and 3 and 8 hard to
tell apart."""

from __future__ import annotations

import numpy as np

import crowdwise as cw

HONEST = 12


def planted(votes_per_item: float | None = None, seed: int = 0) -> cw.Votes:
    """``adversary`` shifts every class, ``lazy`` says 1, ``drifter`` answers more and more at random (80 % at the end).

    Half of the 3s and 8s get either label, by the toss of a coin, from every honest annotator.
    """
    sim = cw.simulate.machine(n_annotators=HONEST, n_adversaries=1, random_state=seed)
    N, rng, y = len(sim.votes), np.random.default_rng(seed), sim.truth
    said = sim.votes.label.reshape(N, -1).copy()
    alike = np.isin(y, [3, 8]) & (rng.random(N) < 0.5)
    said[alike, :HONEST] = np.where(rng.random((int(alike.sum()), HONEST)) < 0.5, 3, 8)
    order = rng.permutation(N)
    place = np.empty(N)
    place[order] = np.arange(N) / N
    drifter = np.where(rng.random(N) < 0.8 * place, rng.integers(0, 10, N), said[:, 0])
    said = np.column_stack([said, np.full(N, 1), drifter])
    names = [*(f"a{m}" for m in range(HONEST)), "adversary", "lazy", "drifter"]
    M = said.shape[1]
    when = np.empty((N, M))
    for m in range(M):
        when[order if m == M - 1 else rng.permutation(N), m] = 20.0 * np.arange(N)
    keep = rng.random((N, M)) < (1.0 if votes_per_item is None else votes_per_item / M)
    keep[:, :3] |= ~keep.any(axis=1, keepdims=True)  # nothing is left without a vote
    item, annotator = np.nonzero(keep)
    return cw.Votes.from_codes(
        item, annotator, said[item, annotator], items=range(N), annotators=names, classes=list(range(10)),
        timestamp=when[item, annotator], truth=y,
    )  # fmt: skip
