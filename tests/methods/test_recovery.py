"""What is known of simulated annotators comes back, the better the more items; and what cannot come back.

The first part runs over the registry. Each method gets a crowd that its model assumes (``CASES``), at growing numbers
of items, and its parameters are held against the real ones. Errors of independent items fall with the root of their
number, so the slope of log error over log N is near -1/2. The second part has the cases in which theory says what can
be known: class experts, two annotators, one label per item, a crowd that is mostly wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.methods.weights_truth_discovery import chi_squared_quantile

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
SEEDS = 3
STEEP, FLAT = -0.75, -0.35
"""The slope of log error over log N is between these; -1/2 in theory."""


# -------------------------------------------------------------------- crowds that models assume


def matrices(N, seed):
    """Dawid-Skene: a full confusion matrix each."""
    return cw.simulate.dirichlet(N, n_annotators=12, n_classes=3, diagonal=6.0, votes_per_item=8, random_state=seed)


def coins(N, seed):
    """One accuracy each, errors even."""
    return cw.simulate.one_coin(N, n_annotators=12, n_classes=3, a=6.0, b=3.0, votes_per_item=8, random_state=seed)


def two_coins(N, seed):
    return cw.simulate.two_coin(N, n_annotators=12, votes_per_item=8, random_state=seed)


def clear(N, seed):
    """One accuracy each and so many votes that labels are right: all that agreement with labels can be asked for."""
    return cw.simulate.one_coin(N, n_annotators=30, n_classes=4, a=6.0, b=3.0, random_state=seed)


def growing(N, seed, K=3):
    """More annotators with more items.

    A top eigenvector knows the diagonal for one of agreements like the others, and is wrong by 1 / M for it.
    """
    return cw.simulate.one_coin(
        N, n_annotators=N // 10, n_classes=K, a=6.0, b=3.0, votes_per_item=0.5, random_state=seed
    )


def clustered(N, seed):
    """The crowd of ``worker-cluster``: three matrices for twelve annotators."""
    rng = np.random.default_rng(seed)
    M, K = 12, 3
    shared = 0.75 * np.eye(K) + 0.25 * rng.dirichlet(np.ones(K), (3, K))
    shared[2] = 0.5 * shared[2] + 0.5 / K
    theta = shared[np.arange(M) % 3]
    truth = rng.integers(0, K, N).astype(np.int32)
    item, who = cw.simulate.assign(N, M, 8, random_state=rng)
    u = rng.random(len(item))[:, None]
    label = (u > np.cumsum(theta[who, truth[item]], axis=1)).sum(axis=1).clip(0, K - 1)
    votes = cw.Votes.from_codes(item, who, label, items=range(N), annotators=range(M), classes=range(K))
    return Guessers(votes, truth, {"confusion": theta})


def yes_or_no(N, seed):
    return growing(N, seed, K=2)


def abilities(N, seed):
    """Abilities and difficulties from the priors of ``glad``, with sixty votes on every item.

    Difficulties are point estimates, whose errors do not average out over items: with ten votes on each, abilities stay
    a tenth off.
    """
    return cw.simulate.difficulty(
        N, n_annotators=60, ability=(1.0, 1.0), log_inverse_difficulty=(1.0, 1.0), random_state=seed
    )


def settled(N, seed):
    """``clear`` with the noise that ``bwa`` finds in eight times as many items as the most tried here.

    Labels are not numbers with Gaussian noise, so there is no crowd that follows its model: what its estimates come
    to in the end is all that they can be held against.
    """
    sim = clear(N, seed)
    return Guessers(sim.votes, sim.truth, {**sim.parameters, "noise": noise_in_the_end(seed)})


@functools.cache
def noise_in_the_end(seed):
    return 1.0 / cw.BWA(shape=0.5).fit(clear(7_200, seed).votes).consensus_.annotator_columns["precision"]


@dataclass(frozen=True)
class Guessers:
    """Annotators who know, with a probability that may depend on the item, or answer from habit."""

    votes: cw.Votes
    truth: Any
    parameters: dict[str, Any]


def knowers(N, seed, sd=0.0, M=12, K=3, r=8):
    rng = np.random.default_rng(seed)
    ability, difficulty = rng.normal(0.5, 1.2, M), rng.normal(0.0, sd, N)
    habit = rng.dirichlet(np.full(K, 3.0), M)
    truth = rng.integers(0, K, N).astype(np.int32)
    item, who = cw.simulate.assign(N, M, r, random_state=rng)
    guess = (rng.random(len(item))[:, None] > np.cumsum(habit, axis=1)[who]).sum(axis=1).clip(0, K - 1)
    knows = rng.random(len(item)) < 1.0 / (1.0 + np.exp(difficulty[item] - ability[who]))
    label = np.where(knows, truth[item], guess)
    votes = cw.Votes.from_codes(item, who, label, items=range(N), annotators=range(M), classes=range(K))
    known = {"ability": ability, "competence": 1.0 / (1.0 + np.exp(-ability)), "habit": habit, "difficulty": difficulty}
    return Guessers(votes, truth, known)


def puzzled(N, seed):
    """The crowd of ``irt``: knowing depends on the item. Many votes on each, as in :func:`abilities`."""
    return knowers(N, seed, sd=0.5, M=40, r=40)


# -------------------------------------------------------------------- what is held against what


def accuracies(sim):
    return np.einsum("mkk->m", sim.parameters["confusion"]) / len(sim.votes.classes)


def skills(sim):
    K = len(sim.votes.classes)
    return (K * accuracies(sim) - 1.0) / (K - 1.0)


def confusion(model, sim):
    return model.consensus_.confusion, sim.parameters["confusion"]


def column(name, true):
    return lambda model, sim: (model.consensus_.annotator_columns[name], true(sim))


def parameter(name, key):
    return column(name, lambda sim: sim.parameters[key])


def from_iwmv(model, sim):
    K = len(sim.votes.classes)
    return (model.consensus_.annotator_columns["weight"] + 1.0) / K, accuracies(sim)


def from_log_odds(model, sim):
    K = len(sim.votes.classes)
    return 1.0 / (1.0 + (K - 1.0) * np.exp(-model.consensus_.annotator_columns["weight"])), accuracies(sim)


def share_of_losses(model, sim):
    """``pm``: exp(-weight) is an annotator's share of all errors; scaled by M to be near 1."""
    wrong = 1.0 - accuracies(sim)
    return len(wrong) * np.exp(-model.consensus_.annotator_columns["weight"]), len(wrong) * wrong / wrong.sum()


def rate_of_losses(model, sim):
    """``catd``: the weight is a quantile over the number of errors."""
    n = model.consensus_.total
    lost = chi_squared_quantile(model.alpha / 2.0, n) / model.consensus_.annotator_columns["weight"] - model.smoothing
    return lost / n, 1.0 - accuracies(sim)


def noise(model, sim):
    return 1.0 / model.consensus_.annotator_columns["precision"], sim.parameters["noise"]


def direction(model, sim):
    """Weights on a scale of their own: they are proportional to skills."""
    return scaled(model.consensus_.annotator_columns["weight"], skills(sim))


def scaled_ability(model, sim):
    """``glad``: a common factor may move from abilities to the ease of items, and only priors are against it."""
    return scaled(model.consensus_.annotator_columns["ability"], sim.parameters["ability"])


def scaled(found, true):
    return found * (found @ true) / (found @ found), true


@dataclass(frozen=True)
class Case:
    """A crowd, what to compare, the error (root mean square) at the largest size, and settings that save time."""

    crowd: Callable[[int, int], Any]
    compare: Callable[[Any, Any], tuple[Any, Any]]
    below: float
    sizes: tuple[int, ...] = (200, 800, 3200)
    params: dict[str, Any] = field(default_factory=dict)
    gold: float = 0.0
    """The share of items with known truth."""


SKILL = column("skill", skills)
CASES = {
    "auto": Case(matrices, confusion, 0.02),
    "stacked": Case(matrices, confusion, 0.02),
    "anchored": Case(matrices, confusion, 0.02),
    "gold-weighted": Case(coins, from_log_odds, 0.03, gold=0.3),
    "dawid-skene": Case(matrices, confusion, 0.02),
    "one-coin": Case(coins, confusion, 0.015),
    "confusion-vector": Case(coins, confusion, 0.02),
    "fast-dawid-skene": Case(matrices, confusion, 0.02),
    "wawa": Case(clear, column("skill", accuracies), 0.012),
    "zero-based-skill": Case(clear, column("skill", accuracies), 0.012),
    "iwmv": Case(clear, from_iwmv, 0.012),
    "zencrowd": Case(coins, column("reliability", lambda sim: np.maximum(skills(sim), 0.0)), 0.02),
    "pm": Case(clear, share_of_losses, 0.05),
    "catd": Case(clear, rate_of_losses, 0.012),
    "bwa": Case(settled, noise, 0.01, (100, 300, 900), {"shape": 0.5}),
    "glad": Case(abilities, scaled_ability, 0.12, (150, 400, 1200)),
    "irt": Case(puzzled, parameter("ability", "ability"), 0.15, (150, 400, 1200)),
    "ibcc": Case(matrices, confusion, 0.02),
    "ebcc": Case(matrices, confusion, 0.025, (100, 400, 1600), {"restarts": 0, "n_subtypes": 2}),
    "cbcc": Case(matrices, confusion, 0.02),
    "spem": Case(matrices, confusion, 0.025, (100, 400, 1600)),
    "mace": Case(knowers, parameter("competence", "competence"), 0.025),
    "kos": Case(yes_or_no, direction, 0.05, (200, 500, 1250)),
    "kos-svd": Case(yes_or_no, direction, 0.05, (200, 500, 1250)),
    "ghosh": Case(yes_or_no, direction, 0.05, (200, 500, 1250)),
    "eigenratio": Case(growing, SKILL, 0.03, (200, 500, 1250)),
    "sml": Case(two_coins, confusion, 0.02),
    "pgd": Case(coins, SKILL, 0.025),
    "m-msr": Case(coins, SKILL, 0.03),
    "triangular": Case(coins, SKILL, 0.03),
    "bp": Case(matrices, confusion, 0.025, (100, 400, 1600), {"samples": 100}),
    "mf": Case(matrices, confusion, 0.02),
    "minimax": Case(matrices, confusion, 0.03, (150, 400, 1000)),
    "group-conditional": Case(matrices, confusion, 0.02),
    "spectral-ds": Case(matrices, confusion, 0.03, params={"refine": False}),
    "multispa": Case(matrices, confusion, 0.02),
    "cnmf": Case(matrices, confusion, 0.03, params={"refine": False}),
    "symnmf": Case(matrices, confusion, 0.03, params={"refine": False}),
    "tensor": Case(matrices, confusion, 0.03, params={"refine": False}),
    "worker-cluster": Case(clustered, confusion, 0.02),
    "grouped-dawid-skene": Case(matrices, confusion, 0.025, (100, 400, 1600)),
    "crowd-svm": Case(matrices, confusion, 0.03, (100, 400, 1600), {"cost": 0.25}),
}
WITHOUT_PARAMETERS = {"majority", "grouped-majority", "m3v"}
"""The weights of ``m3v`` are those with the widest margin, not estimates of anything."""


def told(truth, share):
    return np.where(np.arange(len(truth)) < share * len(truth), truth, -1).astype(np.int32)


def error(key, case, N):
    """The root mean squared error of a method's parameters, over a few crowds."""
    found = []
    for seed in range(SEEDS):
        sim = case.crowd(N, seed)
        gold = told(sim.truth, case.gold) if case.gold else None
        value, true = case.compare(registry.create(key, **case.params).fit(sim.votes, gold), sim)
        found.append(np.sqrt(np.mean((value - true) ** 2)))
    return float(np.mean(found))


def test_every_method_has_a_case_or_no_parameters():
    assert set(CASES) | WITHOUT_PARAMETERS == set(registry.METHODS)
    assert not set(CASES) & WITHOUT_PARAMETERS
    c = cw.aggregate(coins(50, 0).votes, "majority")
    assert c.confusion is None
    assert not c.annotator_columns


@pytest.mark.parametrize("key", CASES)
def test_error_falls_with_the_root_of_the_number_of_items(key):
    case = CASES[key]
    errors = [error(key, case, N) for N in case.sizes]
    slope = float(np.polyfit(np.log(case.sizes), np.log(errors), 1)[0])
    assert STEEP < slope < FLAT, (slope, errors)
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < case.below, errors


def test_the_middle_of_the_interval_of_glad_has_no_floor():
    """It has difficulties integrated out, so twenty votes on an item are enough for the root of N."""
    sizes, found = (200, 800, 3200), {"ability": [], "middle": []}
    for N in sizes:
        gaps = {"ability": [], "middle": []}
        for seed in range(SEEDS):
            sim = cw.simulate.difficulty(
                N, n_annotators=20, ability=(1.0, 1.0), log_inverse_difficulty=(1.0, 1.0), random_state=seed
            )
            c, true = cw.aggregate(sim.votes, "glad").annotator_columns, sim.parameters["ability"]
            middle = (c["ability_low"] + c["ability_high"]) / 2.0
            for name, value in (("ability", c["ability"]), ("middle", middle)):
                gaps[name].append(np.sqrt(np.mean((value - true) ** 2)))
        for name, gap in gaps.items():
            found[name].append(np.mean(gap))
    assert np.polyfit(np.log(sizes), np.log(found["middle"]), 1)[0] < FLAT
    assert found["middle"][-1] < 0.08
    assert found["middle"][-1] < 0.7 * found["ability"][-1]


# -------------------------------------------------------------------- class experts, present and absent

FULL = ("auto", "anchored", "dawid-skene", "fast-dawid-skene", "ibcc", "cbcc", "mf", "minimax")


def specialists(experts, N=1500, seed=0):
    """Nine annotators, diagonally dominant and no more; or three of them know one class each, and never err on it.

    A class expert says k for all items of class k and for no others: the separability of the tutorial.
    """
    rng = np.random.default_rng(seed)
    K = 3
    theta = 0.4 * rng.dirichlet(np.ones(K), (9, K)) + 0.6 * np.eye(K)
    if experts:
        for k in range(K):
            theta[k] = 0.5 * (1.0 - np.eye(K)[k])
            theta[k, k] = np.eye(K)[k]
    truth = rng.integers(0, K, N).astype(np.int32)
    u = rng.random((N, 9, 1))
    label = (u > np.cumsum(theta, axis=2)[np.arange(9), truth[:, None]]).sum(axis=2).clip(0, K - 1)
    return cw.Votes.from_dense(label), truth, theta


@pytest.mark.parametrize("key", FULL)
@pytest.mark.parametrize("experts", [True, False], ids=["with class experts", "without class experts"])
def test_matrices_come_back_with_and_without_class_experts(key, experts):
    """Without them scattered rows are enough: the tutorial's sufficiently scattered condition."""
    votes, truth, theta = specialists(experts)
    c = cw.aggregate(votes, key)
    assert np.sqrt(np.mean((c.confusion - theta) ** 2)) < 0.04
    assert c.score(truth) > 0.9


def test_class_experts_tell_the_truth_where_the_one_coin_model_cannot():
    """An expert for one class is at chance among the others: seen as a coin, they are mediocre."""
    votes, truth, _ = specialists(True)
    assert cw.aggregate(votes, "dawid-skene").score(truth) > cw.aggregate(votes, "one-coin").score(truth)
    assert cw.aggregate(votes, "dawid-skene").score(truth) > cw.aggregate(votes, "majority").score(truth) + 0.01


def test_two_annotators_do_not_determine_their_matrices_and_three_do():
    """Different starts reach the same likelihood with other matrices; with a third annotator there is one answer."""
    sim = cw.simulate.two_coin(3000, n_annotators=3, sensitivity=(40, 10), specificity=(40, 10), random_state=3)
    gaps = []
    for M in (2, 3):
        votes = cw.Votes.from_dense(sim.votes.label.reshape(3000, 3)[:, :M])
        shares = votes.shares()
        starts = [shares, 0.3 * shares + 0.7 * np.array([0.9, 0.1])]
        fits = [cw.DawidSkene(start=q, prior=0.0, tol=1e-12, max_iter=5000).fit(votes).consensus_ for q in starts]
        assert abs(fits[0].log_likelihood - fits[1].log_likelihood) < 0.05
        gaps.append(np.abs(fits[0].confusion - fits[1].confusion).max())
    assert gaps[0] > 0.1
    assert gaps[1] < 0.02


# -------------------------------------------------------------------- one label per item


@pytest.mark.parametrize("key", registry.METHODS)
def test_one_label_per_item_says_nothing_of_annotators(key):
    """No two votes can be compared.

    Labels are the votes, but for a few; whoever does not take them for true must be in doubt. Accuracies are open.
    """
    sim = cw.simulate.one_coin(200, n_annotators=10, n_classes=3, a=6.0, b=3.0, votes_per_item=1, random_state=0)
    model = registry.find(key).load()
    gold = told(sim.truth, 0.1) if model.needs_gold else None
    params = {"restarts": 0} if key == "ebcc" else {}
    c = cw.aggregate(sim.votes, key, gold=gold, **params)
    untold = slice(None) if gold is None else gold < 0
    assert np.isfinite(c.posterior).all()
    if model.single_votes != "open":
        assert (c.label_codes == sim.votes.label)[untold].mean() > 0.9
    _, low, high = c.accuracy()
    assert (high - low).mean() > (0.35 if gold is not None else 0.99)  # nobody is a witness of their own votes
    if model.single_votes == "certain":
        assert np.allclose(c.posterior.max(axis=1), 1.0, atol=0.01)
    else:
        assert c.posterior.max(axis=1).mean() < 0.97


@pytest.mark.parametrize("key", ["pgd", "m-msr", "triangular", "eigenratio", "sml", "kos", "ghosh", "kos-svd"])
def test_skills_from_pairs_are_open_where_there_are_no_pairs(key):
    sim = cw.simulate.one_coin(200, n_annotators=10, n_classes=3, votes_per_item=1, random_state=0)
    c = cw.aggregate(sim.votes, key).annotator_columns
    for name in (n for n in c if f"{n}_low" in c):
        assert (c[f"{name}_high"] - c[f"{name}_low"] > 0.9).all()


# -------------------------------------------------------------------- a crowd that is mostly wrong


@pytest.mark.parametrize("key", registry.METHODS)
def test_worse_than_chance_needs_known_truth_and_a_model_that_can_read_backwards(key):
    sim = cw.simulate.hammer_spammer(300, n_annotators=12, skill=0.25, spread=0.05, votes_per_item=8, random_state=0)
    gold = told(sim.truth, 0.12)
    params = {"restarts": 0} if key == "ebcc" else {}
    model = registry.find(key).load()
    if not model.needs_gold:  # nothing in the votes tells a crowd from its mirror image
        assert cw.aggregate(sim.votes, key, **params).score(sim.truth) < 0.15
    c = cw.aggregate(sim.votes, key, gold=gold, **params)
    untold = (c.label_codes == sim.truth)[gold < 0].mean()
    assert untold > 0.85 if model.reads_backwards else untold < 0.15


def experts_outnumbered(seed=0):
    """Four of twelve are nearly always right, eight are wrong three times in four."""
    rng = np.random.default_rng(seed)
    truth, p = rng.integers(0, 2, 400), np.array([0.95] * 4 + [0.25] * 8)
    return cw.Votes.from_dense(np.where(rng.random((400, 12)) < p, truth[:, None], 1 - truth[:, None])), truth


def test_kos_svd_goes_with_the_mass_of_skill_and_the_others_with_heads():
    """Its vector is turned so that most of its square is positive: few good ones outweigh many who are a little bad."""
    votes, truth = experts_outnumbered()
    assert cw.aggregate(votes, "kos-svd").score(truth) > 0.95
    for key in ("dawid-skene", "one-coin", "ghosh", "sml", "pgd", "m-msr", "triangular", "eigenratio"):
        c = cw.aggregate(votes, key)
        assert c.score(truth) < 0.05  # the mirror image: consistent, and upside down
        assert cw.aggregate(votes, key, gold=told(truth, 0.1)).score(truth) > 0.95
