"""Crowds that papers simulate on images of ten classes, CIFAR-10's: votes on given images, or on drawn classes.

Max-MIG's experts are in :func:`crowdwise.simulate.max_mig`.
"""

from __future__ import annotations

import numpy as np

from crowdwise.simulate import crowds
from crowdwise.simulate.assignment import assign
from crowdwise.simulate.crowds import Array, Prior, RandomState, Rng, Simulated, Truth, VotesPerItem
from crowdwise.simulate.vote_crowds import CIFAR

SIMILAR = (("cat", "dog"), ("automobile", "truck"), ("deer", "horse"), ("airplane", "bird"), ("frog", "ship"))


def four_annotators(
    n_items: int = 1000, *, votes_per_item: VotesPerItem = None, prior: Prior = None, truth: Truth = None,
    random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Tanno's four annotators on CIFAR-10: a hammer-spammer, similar classes, neighbouring classes, an adversary.

    The paper describes the four in words and shows their matrices only as a figure; labels are right 45 % of the time
    on average. The matrices here are made after its words, not read off the figure:

    * the first is right with probability 0.6 and otherwise says any other class;
    * the second is right with 0.6 and otherwise says the similar class (cat and dog, automobile and truck...);
    * the third is right with 0.5 and otherwise says the class before or after it, in class order;
    * the fourth has wrong names: says the class three further on with 0.9, and is right with 0.1.

    Reference: Tanno et al. 2019, section 3.1 and figure 2.
    """
    K = len(CIFAR)
    pi, rng = crowds.begin(n_items, 4, K, prior, random_state)
    return _labelled("four-annotators", n_items, four_matrices(), pi, votes_per_item, truth, rng)


def four_matrices() -> Array:
    """4 x 10 x 10: the matrices of :func:`four_annotators`."""
    K = len(CIFAR)
    one = np.eye(K)
    partner = np.zeros((K, K))
    for pair in SIMILAR:
        a, b = (CIFAR.index(name) for name in pair)
        partner[a, b] = partner[b, a] = 1.0
    spammer = crowds.one_coin_confusion(np.array([0.6]), K)[0]
    neighbours = 0.5 * one + 0.25 * (np.roll(one, 1, axis=1) + np.roll(one, -1, axis=1))
    return np.stack([spammer, 0.6 * one + 0.4 * partner, neighbours, 0.1 * one + 0.9 * np.roll(one, 3, axis=1)])


def one_reliable(
    n_items: int = 1000, *, n_annotators: int = 5, n_classes: int = 10, noise: float = 0.01,
    votes_per_item: VotesPerItem = 1, prior: Prior = None, truth: Truth = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """GeoCrowdNet's synthetic crowd: one annotator who is nearly always right, all others answer nearly at random.

    The matrix of the first is the identity plus ``noise`` times uniform random numbers, each row normalised; those of
    the others are uniform plus 0.0001 on the diagonal. Every item has one vote, by a random annotator, unless asked for
    more. Reference: Ibrahim, Nguyen and Fu 2023, released code.
    """
    pi, rng = crowds.begin(n_items, n_annotators, n_classes, prior, random_state)
    crowds.check_positive(noise=noise)
    K = n_classes
    theta = np.full((n_annotators, K, K), 1.0 / K) + 1e-4 * np.eye(K)
    theta[0] = np.eye(K) + noise * rng.random((K, K))
    theta /= theta.sum(axis=2, keepdims=True)
    return _labelled("one-reliable", n_items, theta, pi, votes_per_item, truth, rng)


def _labelled(
    name: str, n_items: int, theta: Array, pi: Array, votes_per_item: VotesPerItem, truth: Truth,
    rng: Rng,
) -> Simulated:  # fmt: skip
    known, pi = crowds.truth_of(truth, n_items, pi, rng)
    item, annotator = assign(len(known), len(theta), votes_per_item, random_state=rng)
    label = crowds.answer(theta, annotator, known[item], rng)
    classes = CIFAR if len(pi) == len(CIFAR) else None
    return crowds.collect(name, (item, annotator), label, known, pi, theta, classes)
