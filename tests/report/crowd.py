"""Digits labelled by trained classifiers, and one of everybody who can go wrong."""

from __future__ import annotations

import numpy as np

import crowdwise as cw

HONEST = 13


def planted(seed: int = 0, votes_per_item: float = 9.0) -> tuple[cw.Votes, list[set[str]]]:
    """The votes, and the groups that repeat each other.

    ``copy-0`` and ``copy-1`` repeat a trained classifier each, up to 5 % of slips; ``adversary`` shifts every class;
    ``random`` guesses; ``lazy`` says 1; ``drifter`` (a classifier of its own) answers more and more at random, 80 % at
    the end. Half of the 3s and 8s get either label, by the toss of a coin, from every honest annotator.
    """
    sim = cw.simulate.machine(n_annotators=HONEST, n_spammers=1, n_adversaries=1, random_state=seed)
    N, rng, y = len(sim.votes), np.random.default_rng(seed), sim.truth
    said = sim.votes.label.reshape(N, -1).copy()
    alike = np.isin(y, [3, 8]) & (rng.random(N) < 0.5)
    said[alike, :HONEST] = np.where(rng.random((int(alike.sum()), HONEST)) < 0.5, 3, 8)
    origins = rng.choice(HONEST - 1, size=2, replace=False)
    copies = [np.where(rng.random(N) < 0.05, rng.integers(0, 10, N), said[:, m]) for m in origins]
    place = np.argsort(rng.permutation(N)) / N
    last = HONEST - 1  # the last classifier is the one who tires
    said[:, last] = np.where(rng.random(N) < 0.8 * place, rng.integers(0, 10, N), said[:, last])
    said = np.column_stack([said, *copies, np.full(N, 1)])
    names = [*(f"a{m}" for m in range(last)), "drifter", "random", "adversary", "copy-0", "copy-1", "lazy"]
    M = said.shape[1]
    when = np.empty((N, M))
    for m in range(M):
        when[:, m] = 20.0 * N * (place if m == last else rng.permutation(N) / N)
    keep = rng.random((N, M)) < votes_per_item / M
    keep[:, :3] |= ~keep.any(axis=1, keepdims=True)
    item, annotator = np.nonzero(keep)
    votes = cw.Votes.from_codes(
        item, annotator, said[item, annotator], items=[f"digit {n}" for n in range(N)], annotators=names,
        classes=list(range(10)), timestamp=when[item, annotator], truth=y,
    )  # fmt: skip
    return votes, [{f"a{m}", f"copy-{i}"} for i, m in enumerate(origins.tolist())]
