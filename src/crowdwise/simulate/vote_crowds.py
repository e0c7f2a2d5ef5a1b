"""The scenarios that give votes: draw the truth, assign annotators to items, and let each answer from probabilities.

``confusion[m, k, l]`` is P(m says l, given truth k), whatever else is going on. Memory grows with the votes: an items x
annotators table is only made where half of its cells or more hold one.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crowdwise.core.constraints import Count, CountFromZero, Positive, RandomState, Share, checked
from crowdwise.data.folders import replacing
from crowdwise.data.heavy import pl
from crowdwise.errors import ParameterError
from crowdwise.simulate import crowds
from crowdwise.simulate.answer_crowds import ordinal
from crowdwise.simulate.crowds import (
    Array,
    Classes,
    MeanAndDeviation,
    Pair,
    Prior,
    Rng,
    Simulated,
    Truth,
    VotesPerItem,
    assign,
    regular_assignment,
)
from crowdwise.simulate.machines import machine_annotators


@checked
def one_coin(
    n_items: Count = 1000, *, n_annotators: Count = 20, n_classes: Classes = 2, a: Positive = 4.0, b: Positive = 2.0,
    votes_per_item: VotesPerItem = None, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """One number per annotator: right with probability w ~ Beta(a, b), errors uniform over the other classes.

    Reference: Karger, Oh and Shah 2011; Liu, Peng and Ihler 2012.
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    theta = crowds.one_coin_confusion(rng.beta(a, b, size=n_annotators), n_classes)
    return crowds.independent("one-coin", n_items, theta, pi, votes_per_item, rng)


@checked
def two_coin(
    n_items: Count = 1000, *, n_annotators: Count = 20,
    sensitivity: Pair = (6.0, 2.0), specificity: Pair = (4.0, 2.0),
    votes_per_item: VotesPerItem = None, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Two classes: sensitivity (right on class 1) and specificity (right on class 0), each from its own Beta.

    Parameters hold ``sensitivity`` and ``specificity`` (M). Reference: Raykar et al. 2010.
    """
    pi, rng = crowds.begin(2, prior, random_state)
    w = np.column_stack([rng.beta(*specificity, size=n_annotators), rng.beta(*sensitivity, size=n_annotators)])
    theta = crowds.one_coin_confusion(w, 2)
    known: dict[str, Any] = {"specificity": w[:, 0], "sensitivity": w[:, 1]}
    return crowds.independent("two-coin", n_items, theta, pi, votes_per_item, rng, **known)


@checked
def dirichlet(
    n_items: Count = 1000, *, n_annotators: Count = 20, n_classes: Classes = 3, diagonal: Positive = 5.0,
    rest: Positive = 1.0, votes_per_item: VotesPerItem = None, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """A full confusion matrix per annotator, rows Dirichlet with ``diagonal`` on the truth and ``rest`` elsewhere.

    Both are concentrations. Reference: Dawid and Skene 1979; Kim and Ghahramani 2012 for the prior.
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    theta = crowds.dirichlet_confusion(n_annotators, n_classes, diagonal, rest, rng)
    return crowds.independent("dirichlet", n_items, theta, pi, votes_per_item, rng)


@checked
def hammer_spammer(
    n_items: Count = 1000, *, n_annotators: Count = 20, n_classes: Classes = 2, share: Share = 0.5,
    accuracy: Share = 1.0, skill: Share | None = None, spread: Positive = 0.01, votes_per_item: VotesPerItem = None,
    prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """A share of hammers, who are right with probability ``accuracy``; all others answer uniformly at random.

    With ``skill`` given it is Tanno's variant instead: *every* annotator is right with probability
    ``skill + Normal(0, spread)`` and otherwise errs uniformly. Parameters hold ``spammers`` (M, mask).
    Reference: Karger, Oh and Shah 2011; Tanno et al. 2019, section 3.1 and appendix B.
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    if skill is None:
        spammers = ~crowds.random_mask(n_annotators, share, rng)
        w = np.where(spammers, 1 / n_classes, accuracy)
    else:
        spammers, w = np.zeros(n_annotators, dtype=bool), crowds.around(n_annotators, skill, spread, rng)
    theta = crowds.one_coin_confusion(w, n_classes)
    return crowds.independent("hammer-spammer", n_items, theta, pi, votes_per_item, rng, spammers=spammers)


@checked
def pairwise_flipper(
    n_items: Count = 1000, *, n_annotators: Count = 5, n_classes: Classes = 10, p: Share = 0.6, spread: Positive = 0.01,
    votes_per_item: VotesPerItem = None, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Right with probability p + Normal(0, ``spread``), otherwise class k becomes one fixed other class.

    That other class is drawn for each annotator and class: parameters hold it as ``target`` (M, K). Reference:
    Tanno et al. 2019, section 3.1 and appendix B (their Normal(p, 10^-2) is read as a standard deviation).
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    M, K = n_annotators, n_classes
    w = crowds.around(M, p, spread, rng)[:, None, None]
    target = crowds.another(np.broadcast_to(np.arange(K), (M, K)), K, rng)
    theta = w * np.eye(K) + (1 - w) * np.eye(K)[target]
    return crowds.independent("pairwise-flipper", n_items, theta, pi, votes_per_item, rng, target=target)


CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MAMMALS = (("cat", "dog"), ("deer", "horse"))
OTHERS = (("airplane", "bird"), ("automobile", "truck"), ("frog", "ship"))
CLASSES = {"dogs": ("cat", "dog"), "cifar": CIFAR, "luna": ("benign", "malignant")}
SENIORS = {  # P(right | first class), P(right | second class) of experts A to E
    "dogs": ((0.8, 0.6), (0.6, 0.6), (0.6, 0.9), (0.7, 0.7), (0.7, 0.6)),
    "luna": ((0.6, 0.9), (0.7, 0.7), (0.9, 0.6), (0.6, 0.7), (0.7, 0.6)),
}
LOW = {"dogs": 0.55, "cifar": 0.2, "luna": 0.6}
NAIVE = {"high": 5, "low": 15}
COPIED = {"high": (0, 0, 2, 2, 2), "low": (0, 2)}


@checked
def max_mig(
    n_items: Count = 1000, *, dataset: Literal["dogs", "cifar", "luna"] = "dogs",
    expertise: Literal["high", "low"] = "high", case: Literal["independent", "naive", "copied"] = "independent",
    votes_per_item: VotesPerItem = None, prior: Prior = None, truth: Truth = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Max-MIG's experts: seniors, alone or with juniors who always say the first class or copy seniors A and C.

    Five seniors with ``expertise="high"``, ten with ``"low"``; juniors: 5 / 15 (naive), 5 / 2 (copied).
    A junior who copies says, label for label, what the senior says (or would say) on that item.
    Parameters hold ``senior`` (M, mask) and ``copies`` (M: the copied senior, -1 for none). With ``truth`` given (a
    class code for each of some images), the votes are on these.

    Numbers are the paper's. Its released code differs: CIFAR low/naive has 10 + 5 annotators there
    instead of 10 + 15, and the Dogs and LUNA seniors stand in another order (the copied ones are still
    A and C). Where an expert gives a hard pair one and the same class, it is the first in class order,
    as in the code. Reference: Cao, Xu, Kong and Wang 2019, appendix B.1.
    """
    K = len(CLASSES[dataset])
    seniors = _senior_confusion(dataset, expertise)
    M_s = len(seniors)
    junior = {"independent": (), "naive": (-1,) * NAIVE[expertise], "copied": COPIED[expertise]}[case]
    copies = np.array([-1] * M_s + list(junior), dtype=np.int64)
    M = len(copies)
    pi, rng = crowds.begin(K, prior, random_state)
    first = np.broadcast_to(np.eye(K)[0], (M - M_s, K, K))
    source = np.where(copies >= 0, copies, np.arange(M))
    theta = np.concatenate([seniors, first])[source]
    truth, pi = crowds.truth_of(truth, n_items, pi, rng)
    item, annotator = assign(len(truth), M, votes_per_item, random_state=rng)
    # One draw for a senior and the copies.
    _, draw = np.unique(item * np.int64(M) + source[annotator], return_inverse=True)
    label = crowds.answer(theta, annotator, truth[item], rng, u=rng.random(int(draw.max()) + 1)[draw])
    known: dict[str, Any] = {"senior": np.arange(M) < M_s, "copies": copies}
    known |= {"dataset": dataset, "expertise": expertise, "case": case}
    return crowds.collect("max-mig", (item, annotator), label, truth, pi, theta, CLASSES[dataset], **known)


def _senior_confusion(dataset: str, expertise: str) -> Array:
    K = len(CLASSES[dataset])
    if expertise == "low":
        return crowds.one_coin_confusion(np.full(10, LOW[dataset]), K)
    if dataset != "cifar":
        return crowds.one_coin_confusion(np.array(SENIORS[dataset]), K)
    same, coin, known, mostly = [[1, 0], [1, 0]], [[0.5, 0.5], [0.5, 0.5]], [[1, 0], [0, 1]], [[0.6, 0.4], [0.4, 0.6]]
    # On mammals, on the other pairs.
    experts = ((same, same), (coin, coin), (known, coin), (same, known), (mostly, mostly))
    theta = np.zeros((len(experts), K, K))
    for m, (on_mammals, on_others) in enumerate(experts):
        for twos, block in ((MAMMALS, on_mammals), (OTHERS, on_others)):
            for pair in twos:
                at = [CIFAR.index(name) for name in pair]
                theta[m][np.ix_(at, at)] = block
    return theta


@checked
def regular(
    n_items: Count = 1000, *, l: Count = 3, r: Count = 4, n_classes: Classes = 2,  # noqa: E741
    workers: Literal["one-coin", "dirichlet"] = "one-coin", a: Positive = 2.0, b: Positive = 1.0,
    n_extreme_spammers: CountFromZero = 0, prior: Prior = None, truth: Truth = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Every item has exactly l labels and every annotator r items; extreme spammers may label everything at random.

    ``workers="one-coin"``: accuracy ~ Beta(a, b). ``"dirichlet"``: each row of the confusion matrix ~
    Dirichlet with a on the truth and b elsewhere (two classes: the two-coin model). The n_items * l / r regular
    annotators come first. With ``truth`` given (a class code for each item), the votes are on these items.
    Parameters hold ``spammers`` (M, mask). Reference: Kim, Cho, Kim and Ok 2022, section 4.1.
    """
    n_items = n_items if truth is None else len(truth)
    if n_items * l % r:
        raise ParameterError(
            f"n_items={n_items}, l={l}, r={r}: expected n_items x l = {n_items * l} votes to be a multiple of r."
        )
    M, K, S = n_items * l // r, n_classes, n_extreme_spammers
    pi, rng = crowds.begin(K, prior, random_state)
    if workers == "one-coin":
        theta = crowds.one_coin_confusion(rng.beta(a, b, size=M), K)
    else:
        theta = crowds.dirichlet_confusion(M, K, a, b, rng)
    theta = np.concatenate([theta, np.full((S, K, K), 1 / K)])
    _, annotator = regular_assignment(n_items, M, l, r, random_state=rng)
    everywhere = np.broadcast_to(np.arange(M, M + S, dtype=np.int32), (n_items, S))
    annotator = np.hstack([annotator.reshape(n_items, l), everywhere]).ravel()
    item = np.repeat(np.arange(n_items, dtype=np.int32), l + S)
    truth, pi = crowds.truth_of(truth, n_items, pi, rng)
    label = crowds.answer(theta, annotator, truth[item], rng)
    return crowds.collect("regular", (item, annotator), label, truth, pi, theta, spammers=np.arange(M + S) >= M)


@checked
def colluders(
    n_items: Count = 5000, *, n_annotators: Count = 60, n_classes: Classes = 3, share: Share = 0.3, p_corr: Share = 0.9,
    diagonal: Positive = 5.0, rest: Positive = 1.0,
    votes_per_item: VotesPerItem = None, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """A share of the annotators is a ring: all give one wrong label with probability p_corr, otherwise the truth.

    The tutorial says that colluding adversaries "provide wrong response w.p. p_corr, and ground-truth label w.p. 1 -
    p_corr" and "cooperate to change labels of some data". We read this as one coin and one wrong class (uniform) per
    *item* for the whole ring. Seen alone, a colluder is a bad one-coin annotator; given the truth, two colluders are
    not independent. The honest ones have Dirichlet rows. Parameters hold ``colluders`` (M, mask), ``attacked`` (N,
    mask) and ``ring_label`` (N, what the ring says). Reference: Traganitis and Giannakis 2021 (ICDM).
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    ring = crowds.random_mask(n_annotators, share, rng)
    theta = crowds.dirichlet_confusion(n_annotators, n_classes, diagonal, rest, rng)
    theta[ring] = crowds.one_coin_confusion(np.array([1 - p_corr]), n_classes)
    truth = crowds.draw_truth(n_items, pi, rng)
    attacked = rng.random(n_items) < p_corr
    ring_label = np.where(attacked, crowds.another(truth, n_classes, rng), truth)
    item, annotator = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    label = np.where(ring[annotator], ring_label[item], crowds.answer(theta, annotator, truth[item], rng))
    known: dict[str, Any] = {"colluders": ring, "attacked": attacked, "ring_label": ring_label, "p_corr": p_corr}
    return crowds.collect("colluders", (item, annotator), label, truth, pi, theta, **known)


@checked
def groups(
    n_items: Count = 5000, *, n_annotators: Count = 40, n_classes: Classes = 3, n_groups: Count = 5,
    group_diagonal: Positive = 5.0, member_diagonal: Positive = 10.0, rest: Positive = 1.0,
    votes_per_item: VotesPerItem = None, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Groups of annotators who share a hidden opinion: truth -> z of the group -> answer of the member.

    Rows of both levels are Dirichlet; groups are as equal in size as can be. The confusion of an annotator is the
    product ``group_confusion[j] @ member_confusion[m]``. Parameters hold ``group`` (M), ``group_confusion`` (J, K, K),
    ``member_confusion`` (M, K, K) and ``latent`` (N, J). Reference: Traganitis and Giannakis 2022 (Asilomar).
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    M, K, J = n_annotators, n_classes, n_groups
    if J > M:
        raise ParameterError(f"n_groups={J}: expected a whole number from 1 to the {M} annotators.")
    group = rng.permutation(np.arange(M) % J)
    xi = crowds.dirichlet_confusion(J, K, group_diagonal, rest, rng)
    member = crowds.dirichlet_confusion(M, K, member_diagonal, rest, rng)
    truth = crowds.draw_truth(n_items, pi, rng)
    z = crowds.answer(xi, np.tile(np.arange(J), n_items), np.repeat(truth, J), rng).reshape(n_items, J)
    item, annotator = assign(n_items, M, votes_per_item, random_state=rng)
    label = crowds.answer(member, annotator, z[item, group[annotator]], rng)
    theta = xi[group] @ member
    known: dict[str, Any] = {"group": group, "group_confusion": xi, "member_confusion": member, "latent": z}
    return crowds.collect("groups", (item, annotator), label, truth, pi, theta, **known)


@checked
def difficulty(
    n_items: Count = 1000, *, n_annotators: Count = 20, n_classes: Classes = 2,
    ability: MeanAndDeviation = (1.5, 1.0), log_inverse_difficulty: MeanAndDeviation = (0.5, 1.0),
    votes_per_item: VotesPerItem = None, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Easy and hard items: right with probability sigmoid(ability_m * inverse difficulty_n), errors uniform.

    ``ability`` and ``log_inverse_difficulty`` are the mean and standard deviation of two Normal
    distributions. A negative ability is an adversary; on the hardest items everybody is right half of the
    time, whatever the number of classes. Parameters hold ``ability`` (M) and ``log_inverse_difficulty`` (N);
    ``confusion`` is the mean over the distribution of difficulty. Reference: Whitehill et al. 2009 (GLAD).
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    skill = rng.normal(*ability, size=n_annotators)
    ease = rng.normal(*log_inverse_difficulty, size=n_items)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)  # E over Normal(0, 1)
    typical = np.exp(log_inverse_difficulty[0] + log_inverse_difficulty[1] * nodes)
    theta = crowds.one_coin_confusion(_sigmoid(skill[:, None] * typical) @ (weights / weights.sum()), n_classes)
    truth = crowds.draw_truth(n_items, pi, rng)
    item, annotator = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    right = rng.random(len(item)) < _sigmoid(skill[annotator] * np.exp(ease)[item])
    label = np.where(right, truth[item], crowds.another(truth[item], n_classes, rng))
    known: dict[str, Any] = {"ability": skill, "log_inverse_difficulty": ease}
    return crowds.collect("difficulty", (item, annotator), label, truth, pi, theta, **known)


@checked
def misleading(
    n_items: Count = 1000, *, n_annotators: Count = 20, n_classes: Classes = 2, share: Share = 0.3,
    lure: Pair = (2.0, 2.0), a: Positive = 6.0, b: Positive = 2.0,
    votes_per_item: VotesPerItem = None, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """A share of the items looks like another class: many annotators err there together.

    Such an item has one wrong class (uniform) and a probability ~ Beta(*lure) with which an annotator sees that class
    in place of the truth. Annotators name the class that they see with probability w ~ Beta(a, b), errors uniform.
    Given the truth, votes on an item are not independent. Parameters hold ``lure`` (N, 0 for items that do not mislead)
    and ``looks_like`` (N, the wrong class); ``confusion`` is the mean over items.
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    truth = crowds.draw_truth(n_items, pi, rng)
    item, annotator = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    skill = crowds.one_coin_confusion(rng.beta(a, b, size=n_annotators), n_classes)
    strength = np.where(rng.random(n_items) < share, rng.beta(*lure, size=n_items), 0.0)
    looks_like = crowds.another(truth, n_classes, rng)
    seen = np.where(rng.random(len(item)) < strength[item], looks_like[item], truth[item])
    label = crowds.answer(skill, annotator, seen, rng)
    sight = crowds.one_coin_confusion(np.array([1.0 - share * lure[0] / (lure[0] + lure[1])]), n_classes)
    known: dict[str, Any] = {"lure": strength, "looks_like": looks_like}
    return crowds.collect("misleading", (item, annotator), label, truth, pi, sight[0] @ skill, **known)


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))


@checked
def outliers(
    n_items: Count = 1000, *, n_annotators: Count = 20, n_classes: Classes = 3, share: Share = 0.1,
    diagonal: Positive = 8.0, rest: Positive = 1.0, concentration: Positive = 0.5, agreement: Positive = 10.0,
    votes_per_item: VotesPerItem = None, prior: Prior = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Most items follow the annotators' confusion matrices; a share has its own label distribution per annotator.

    An outlier n has a distribution p_n ~ Dirichlet(``concentration``) that knows nothing of the truth, and annotator m
    answers it from p_nm ~ Dirichlet(``agreement`` * p_n): COINNet's confusion + perturbation. Parameters hold
    ``outliers`` (N, mask), ``outlier_distribution`` (p_n of the outliers, in order), ``nominal_confusion`` (on the
    other items); ``confusion`` is the mixture. Reference: Nguyen, Ibrahim and Fu 2024 (COINNet).
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    nominal = crowds.dirichlet_confusion(n_annotators, n_classes, diagonal, rest, rng)
    strange = crowds.random_mask(n_items, share, rng)
    own = crowds.dirichlet_rows(np.full((int(strange.sum()), n_classes), concentration), rng)
    truth = crowds.draw_truth(n_items, pi, rng)
    item, annotator = assign(n_items, n_annotators, votes_per_item, random_state=rng)
    label = crowds.answer(nominal, annotator, truth[item], rng)
    at = np.flatnonzero(strange[item])
    if len(at):
        p_nm = crowds.dirichlet_rows(np.maximum(agreement * own[(np.cumsum(strange) - 1)[item[at]]], 1e-12), rng)
        label[at] = crowds.answer(p_nm[:, None, :], np.arange(len(at)), np.zeros(len(at), dtype=np.int64), rng)
    theta = nominal + strange.mean() * (1 / n_classes - nominal)
    known: dict[str, Any] = {"outliers": strange, "outlier_distribution": own, "nominal_confusion": nominal}
    return crowds.collect("outliers", (item, annotator), label, truth, pi, theta, **known)


def machine(
    n_items: int | None = None, *, n_annotators: int = 15, train_share: float = 0.3, test_share: float = 0.0,
    subset: tuple[int, int] = (100, 400), n_spammers: int = 0, n_copiers: int = 0, n_adversaries: int = 0,
    slip: float = 0.05, votes_per_item: VotesPerItem = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Weak classifiers, really trained, label scikit-learn's handwritten digits (1797 images, 10 classes).

    ``n_items`` of the images that annotators are not trained on (default: all, 1258). The other parameters are those
    of :func:`crowdwise.simulate.machines.machine_annotators`, which does the same with any features and classes.
    """
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return machine_annotators(
        X, y, n_items=n_items, n_annotators=n_annotators, train_share=train_share, test_share=test_share, subset=subset,
        n_spammers=n_spammers, n_copiers=n_copiers, n_adversaries=n_adversaries, slip=slip,
        votes_per_item=votes_per_item, random_state=random_state,
    )  # fmt: skip


@checked
def four_annotators(
    n_items: Count = 1000, *, votes_per_item: VotesPerItem = None, prior: Prior = None, truth: Truth = None,
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
    pi, rng = crowds.begin(K, prior, random_state)
    return crowds.independent("four-annotators", n_items, four_matrices(), pi, votes_per_item, rng, truth, CIFAR)


def four_matrices() -> Array:
    """4 x 10 x 10: the matrices of :func:`four_annotators`."""
    K = len(CIFAR)
    one = np.eye(K)
    partner = np.zeros((K, K))
    for name, other in MAMMALS + OTHERS:
        a, b = CIFAR.index(name), CIFAR.index(other)
        partner[a, b] = partner[b, a] = 1.0
    spammer = crowds.one_coin_confusion(np.array([0.6]), K)[0]
    neighbours = 0.5 * one + 0.25 * (np.roll(one, 1, axis=1) + np.roll(one, -1, axis=1))
    return np.stack([spammer, 0.6 * one + 0.4 * partner, neighbours, 0.1 * one + 0.9 * np.roll(one, 3, axis=1)])


@checked
def one_reliable(
    n_items: Count = 1000, *, n_annotators: Count = 5, n_classes: Classes = 10, noise: Positive = 0.01,
    votes_per_item: VotesPerItem = 1, prior: Prior = None, truth: Truth = None, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """GeoCrowdNet's synthetic crowd: one annotator who is nearly always right, all others answer nearly at random.

    The matrix of the first is the identity plus ``noise`` times uniform random numbers, each row normalised; those of
    the others are uniform plus 0.0001 on the diagonal. Every item has one vote, by a random annotator, unless asked for
    more. Reference: Ibrahim, Nguyen and Fu 2023, released code.
    """
    pi, rng = crowds.begin(n_classes, prior, random_state)
    K = n_classes
    theta = np.full((n_annotators, K, K), 1.0 / K) + 1e-4 * np.eye(K)
    theta[0] = np.eye(K) + noise * rng.random((K, K))
    theta /= theta.sum(axis=2, keepdims=True)
    classes = CIFAR if K == len(CIFAR) else None
    return crowds.independent("one-reliable", n_items, theta, pi, votes_per_item, rng, truth, classes)


def _by_key(*scenarios: Callable[..., Simulated]) -> dict[str, Callable[..., Simulated]]:
    return {scenario.__name__.replace("_", "-"): scenario for scenario in scenarios}


INDEPENDENT = _by_key(one_coin, two_coin, dirichlet, hammer_spammer, pairwise_flipper)
"""Scenarios in which annotators answer from their matrices, item by item: those that can be made in pieces."""
SCENARIOS = _by_key(
    *INDEPENDENT.values(), max_mig, regular, colluders, groups, difficulty, misleading, outliers, machine, ordinal,
    four_annotators, one_reliable,
)  # fmt: skip
"""Every scenario that gives votes by name; the first line of its docstring says what it is."""


@checked
def write_large(
    scenario: str, folder: str | os.PathLike[str], n_items: Count, *, items_per_file: Count = 1_000_000,
    random_state: RandomState = 0, progress: Callable[[int, int], None] | None = None, **parameters: Any,
) -> int:  # fmt: skip
    """Write a crowd to a folder, all or nothing, and return the number of its votes.

    The folder holds ``votes/part-*.parquet`` (item, annotator, label, in random order within a file),
    ``truth/part-*.parquet`` (item, truth), ``parameters.npz`` and ``meta.json``.

    Parameters
    ----------
    scenario
        A key of :data:`INDEPENDENT`.
    items_per_file
        How many items are in memory at once.
    progress
        Called after each file with the number of files that are written, and that there are.
    **parameters
        Those of the scenario.

    >>> import tempfile
    >>> from crowdwise.simulate import write_large
    >>> folder = tempfile.mkdtemp() + "/crowd"
    >>> write_large("one-coin", folder, 2500, items_per_file=1000, n_annotators=50, votes_per_item=4)
    10000
    """
    if scenario not in INDEPENDENT:
        raise ParameterError(f"{scenario} is not made in pieces: there are {', '.join(INDEPENDENT)}.")
    make, rng = INDEPENDENT[scenario], np.random.default_rng(random_state)
    known = make(1, random_state=rng, **parameters)
    each = parameters.get("votes_per_item", inspect.signature(make).parameters["votes_per_item"].default)
    theta, pi, total = known.parameters["confusion"], known.parameters["prior"], 0
    files = -(-n_items // items_per_file)
    with replacing(folder, "simulated crowd", manifest=False) as work:
        for name in ("votes", "truth"):
            (work / name).mkdir()
        for i in range(files):
            first = i * items_per_file
            total += _write_file(work, i, first, min(items_per_file, n_items - first), theta, pi, each, rng)
            if progress is not None:
                progress(i + 1, files)
        meta = {"name": scenario, "source": "simulated by crowdwise", "items": n_items, "votes": total}
        names = {"annotators": known.votes.annotators.tolist(), "classes": known.votes.classes.tolist()}
        crowds.describe(work, known.parameters, meta | names)
    return total


def _write_file(
    folder: Path, i: int, first: int, n_items: int, theta: Array, pi: Array, votes_per_item: Any, rng: Rng
) -> int:
    """The votes and the truth of some items; how many votes there are."""
    truth = crowds.draw_truth(n_items, pi, rng)
    item, annotator = assign(n_items, len(theta), votes_per_item, random_state=rng)
    label = crowds.answer(theta, annotator, truth[item], rng)
    order = rng.permutation(len(item))
    names = pl.Series([f"a{m}" for m in range(len(theta))], dtype=pl.String)
    votes = {"item": item[order].astype(np.int64) + first, "annotator": names.gather(annotator[order])}
    pl.DataFrame(votes | {"label": label[order]}).write_parquet(folder / "votes" / f"part-{i:05d}.parquet")
    known = {"item": np.arange(first, first + n_items), "truth": truth}
    pl.DataFrame(known).write_parquet(folder / "truth" / f"part-{i:05d}.parquet")
    return len(item)
