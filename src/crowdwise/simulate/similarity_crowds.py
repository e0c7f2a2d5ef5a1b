"""Simulated crowds who say whether two items are the same, with known kinds and known rates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdwise.data.encoding import Codes
from crowdwise.data.similarities import Similarities
from crowdwise.errors import ParameterError
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import Prior, RandomState, Rng, SimulatedAnswers


class SimulatedSimilarities(SimulatedAnswers[Similarities]):
    """Same-or-different answers, and what they were drawn from."""

    truth = crowds.known("truth", "N: the true kind of every item.")


def similarities(
    n_items: int = 200, *, n_clusters: int = 4, n_annotators: int = 10, pairs_per_item: float = 20.0,
    answers_per_pair: int = 1, sensitivity: tuple[float, float] = (8.0, 2.0),
    specificity: tuple[float, float] = (18.0, 2.0), truth: npt.ArrayLike | None = None, prior: Prior = None,
    random_state: RandomState = 0,
) -> SimulatedSimilarities:  # fmt: skip
    """Random pairs of items of a few kinds, each judged by ``answers_per_pair`` annotators.

    An annotator recognises two of a kind with probability ``sensitivity``, and two kinds with probability
    ``specificity``, each drawn from its own Beta. ``truth`` gives the kinds of the items where they are not to be
    drawn (``n_clusters`` and ``prior`` then do not matter). Every item is in ``pairs_per_item`` pairs on average.
    """
    given = None if truth is None else np.unique(np.asarray(truth), return_inverse=True)[1]
    K = n_clusters if given is None else int(given.max()) + 1
    pi, rng = crowds.begin(n_items, n_annotators, max(K, 2), prior if given is None else None, random_state)
    crowds.check_counts(answers_per_pair=answers_per_pair)
    crowds.check_positive_pairs(sensitivity=sensitivity, specificity=specificity)
    if answers_per_pair > n_annotators:
        raise ParameterError(f"answers_per_pair={answers_per_pair} is more than the {n_annotators} annotators.")
    if given is not None and given.shape != (n_items,):
        raise ParameterError(f"truth has shape {given.shape}: expected the kind of each of the {n_items} items.")
    most = n_items * (n_items - 1) // 2
    P = round(pairs_per_item * n_items / 2)
    if not 1 <= P <= most:
        raise ParameterError(f"pairs_per_item={pairs_per_item!r} asks for {P} pairs: expected 1 to {most}.")
    z = crowds.draw_truth(n_items, pi, rng) if given is None else given.astype(np.int32)
    a, b = _pairs(n_items, P, rng)
    alpha, beta = rng.beta(*sensitivity, size=n_annotators), rng.beta(*specificity, size=n_annotators)
    who = np.argsort(rng.random((P, n_annotators)), axis=1)[:, :answers_per_pair].ravel()
    a, b = np.repeat(a, answers_per_pair), np.repeat(b, answers_per_pair)
    said = rng.random(len(who)) < np.where(z[a] == z[b], alpha[who], 1.0 - beta[who])
    names = [f"a{m}" for m in range(n_annotators)]
    answers = Similarities.from_codes(a, b, who, said, items=range(n_items), annotators=names, truth=z)
    true = {"prior": pi, "sensitivity": alpha, "specificity": beta, "truth": z}
    return SimulatedSimilarities("similarities", answers, true)


def _pairs(N: int, P: int, rng: Rng) -> tuple[Codes, Codes]:
    """P different pairs out of all, each as likely as any other."""
    most = N * (N - 1) // 2
    if most < 4 * P:
        number = rng.choice(most, size=P, replace=False)
    else:
        number = np.unique(rng.integers(0, most, size=P))
        while len(number) < P:
            number = np.unique(np.concatenate([number, rng.integers(0, most, size=P - len(number))]))
    # Pairs are numbered row by row of the upper triangle, row i has N - 1 - i of them.
    start = np.concatenate([[0], np.cumsum(np.arange(N - 1, 0, -1))])
    first = np.searchsorted(start, number, side="right") - 1
    return first.astype(np.int32), (first + 1 + number - start[first]).astype(np.int32)
