"""Votes that depend on each other: the correction, the evidence for it, and what it does to simulated crowds."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma

import crowdwise as cw
from crowdwise.core import dependence
from crowdwise.core.dependence import Dependence, correct, estimate, excess_agreement, expected_accuracy, shrunk
from crowdwise.core.em import Params, Part, expect
from crowdwise.core.vote_parts import VotePart, VoteParts

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def log_loss(q, truth):
    return float(-np.log(np.maximum(q[np.arange(len(truth)), truth], 1e-6)).mean())


def posteriors(rng, N=50, K=3):
    return rng.dirichlet(np.full(K, 0.3), N), rng.integers(1, 12, N).astype(float)


def misled(N, M, K, n, share, seed):
    """Votes and truth of items of which some mislead many."""
    crowd = cw.simulate.misleading(N, n_annotators=M, n_classes=K, share=share, votes_per_item=n, random_state=seed)
    return crowd.votes, crowd.truth


def copied(N, M, K, n, share, seed):
    """Independent votes, of which a share repeats an earlier vote on the item."""
    rng = np.random.default_rng(seed)
    sim = cw.simulate.one_coin(N, n_annotators=M, n_classes=K, votes_per_item=n, random_state=seed)
    label = np.array(sim.votes.label)
    for a, b in zip(sim.votes.indptr[:-1], sim.votes.indptr[1:], strict=True):
        for s in range(a + 1, b):
            if rng.random() < share:
                label[s] = label[rng.integers(a, s)]
    votes = cw.Votes.from_codes(
        sim.votes.item, sim.votes.annotator, label, items=range(N), annotators=range(M), classes=range(K)
    )
    return votes, sim.truth


# -------------------------------------------------------------------- the correction


def test_a_given_correlation_divides_the_log_odds_by_the_design_effect():
    q, n = posteriors(np.random.default_rng(0))
    found = correct(q, n, Dependence(0.4, "given"))
    plain = np.stack([row ** (1 / (1 + (m - 1) * 0.4)) for row, m in zip(q, n, strict=True)])
    assert np.allclose(found, plain / plain.sum(axis=1, keepdims=True))
    assert correct(q, n, Dependence(0.0, "given")) is q
    assert np.allclose(correct(q, np.ones(50), Dependence(0.4, "given")), q)


def test_doubt_about_the_size_is_the_average_over_a_gamma_distribution():
    """Against numerical integration of odds to the power g."""
    q, n, c, rho = np.array([[0.9, 0.09, 0.01]]), np.array([5.0]), 4.0, 0.3
    found = correct(q, n, Dependence(rho, "votes", shape=c))[0]
    G, d, shape = np.log(q.max() / q[0]), 1 + 4 * rho, c * 5
    odds = [quad(lambda g, x=x: np.exp(-g * x / d) * gamma.pdf(g, shape, scale=1 / shape), 0, 10)[0] for x in G]
    assert np.allclose(found, odds / np.sum(odds), rtol=1e-5)


def test_copies_count_once_under_the_right_correlation():
    """Every vote given twice under other names: with rho = 1 / (2n - 1) the posterior is that of the votes once."""
    rng = np.random.default_rng(1)
    sim = cw.simulate.dirichlet(80, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0)
    theta = rng.dirichlet(np.ones(3) + 3 * np.eye(3)[0], (6, 3))
    log_score = np.log(theta).transpose(0, 2, 1).reshape(18, 3)
    even = np.zeros((1, 3))
    once = expect(Part.of(sim.votes), Params(log_score, even), posterior=True)[1]
    twice = expect(Part.of(sim.votes), Params(2 * log_score, even), posterior=True)[1]
    assert np.allclose(correct(twice, np.full(80, 8.0), Dependence(1 / 7, "given")), once)


def test_a_prior_of_an_item_is_no_vote():
    rng = np.random.default_rng(2)
    q, n = posteriors(rng)
    prior = rng.dirichlet(np.ones(3), 50)
    both = q * prior / (q * prior).sum(axis=1, keepdims=True)
    found = correct(both, n, Dependence(0.3, "given"), np.log(prior))
    apart = correct(q, n, Dependence(0.3, "given")) * prior
    assert np.allclose(found, apart / apart.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("shape", [4.0, np.inf])
def test_no_label_changes_and_nothing_gets_surer(shape):
    q, n = posteriors(np.random.default_rng(3), 400, 5)
    found = correct(q, n, Dependence(0.35, "votes", shape=shape))
    assert np.allclose(found.sum(axis=1), 1.0)
    assert (np.argsort(found, axis=1) == np.argsort(q, axis=1)).all()
    assert (found.max(axis=1) <= q.max(axis=1) + 1e-12).all()
    empty = correct(q, np.zeros(400), Dependence(0.35, "votes", shape=shape))
    assert np.allclose(empty, q)


def test_expected_accuracy_and_its_interval():
    q = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    value, low, high = expected_accuracy(q, np.array([0, 0, 1]), 0.95)
    assert value == pytest.approx((0.9 + 0.6 + 0.8) / 3)
    assert low < value < high
    wider = expected_accuracy(q, np.array([0, 0, 1]), 0.99)
    assert wider[1] < low and wider[2] > high
    assert np.isnan(expected_accuracy(np.zeros((0, 2)), np.zeros(0, dtype=int), 0.95)[0])


# -------------------------------------------------------------------- the evidence


def brute_excess(votes, theta, q):
    """Pair by pair, annotators with themselves left out; a vote of weight w is w votes."""
    number = room = 0.0
    for n in range(len(votes)):
        rows = range(votes.indptr[n], votes.indptr[n + 1])
        for s, t in combinations(rows, 2):
            a, b = votes.annotator[s], votes.annotator[t]
            if a == b:
                continue
            expected = sum(q[n, k] * (theta[a, :, k] @ theta[b, :, k]) for k in range(votes.n_classes))
            w = votes.weights[s] * votes.weights[t]
            number += w * ((votes.label[s] == votes.label[t]) - expected)
            room += w * (1.0 - expected)
    return number / room


@pytest.mark.parametrize("kind", ["plain", "weighted", "repeated"])
def test_excess_agreement_against_all_pairs(kind, monkeypatch):
    rng = np.random.default_rng(0)
    sim = cw.simulate.dirichlet(40, n_annotators=7, n_classes=3, votes_per_item=4, random_state=0)
    item, who, said = (np.array(x) for x in (sim.votes.item, sim.votes.annotator, sim.votes.label))
    weight = rng.uniform(0.5, 3, len(item)) if kind == "weighted" else None
    if kind == "repeated":
        more = rng.integers(0, len(item), 60)
        item, who = np.concatenate([item, item[more]]), np.concatenate([who, who[more]])
        said = np.concatenate([said, rng.integers(0, 3, 60)])
    votes = cw.Votes.from_codes(
        item, who, said, items=range(40), annotators=range(7), classes=range(3), weight=weight, on_duplicate="all"
    )
    theta = rng.dirichlet(np.ones(3), (7, 3)).transpose(0, 2, 1)
    q = rng.dirichlet(np.ones(3), 40)
    found, error = excess_agreement(votes, theta, q)
    assert found == pytest.approx(brute_excess(votes, theta, q))
    assert error > 0


def test_excess_agreement_is_taken_in_parts(monkeypatch):
    sim = cw.simulate.dirichlet(300, n_annotators=7, n_classes=3, votes_per_item=4, random_state=0)
    found = estimate(sim.votes, sim.votes.shares())
    monkeypatch.setattr(dependence, "MAX_TABLE", 9 * 17)
    assert estimate(sim.votes, sim.votes.shares()).excess == pytest.approx(found.excess)
    monkeypatch.setattr(dependence, "MAX_VOTES", 600)
    part = estimate(sim.votes, sim.votes.shares())
    assert part.error > found.error and abs(part.excess - found.excess) < 0.1


def test_its_standard_error_is_not_too_small():
    """Against the spread over crowds drawn again; the fit follows each crowd, so that the spread is less."""
    values, errors = zip(
        *(
            (found.excess, found.error)
            for seed in range(30)
            for votes in [misled(300, 20, 2, 6, 0.3, seed)[0]]
            for found in [estimate(votes, votes.shares())]
        ),
        strict=True,
    )
    assert 0.8 < np.mean(errors) / np.std(values) < 2.0


def one_item(labels, K):
    """Votes of as many annotators on one item."""
    M = len(labels)
    return cw.Votes.from_codes(
        np.zeros(M, int), np.arange(M), np.array(labels), items=["a"], annotators=range(M), classes=range(K)
    )


@pytest.mark.parametrize(("M", "K", "right"), [(2, 2, 0.5), (2, 4, 0.1), (3, 2, 0.99), (4, 3, 0.4), (9, 2, 0.1)])
def test_the_standard_error_of_one_item_is_no_less_than_that_of_independent_votes(M, K, right):
    """Against every way to vote, annotators of all kinds: the variance, its bound, and a disagreement at least."""
    rng = np.random.default_rng(M)
    theta = rng.dirichlet(np.ones(K), (M, K)).transpose(0, 2, 1) * (1 - right) + right * np.eye(K)
    ways = list(product(range(K), repeat=M))
    found = np.array([excess_agreement(one_item(labels, K), theta, np.eye(K)[:1]) for labels in ways])
    chances = [np.prod(theta[np.arange(M), labels, 0]) for labels in ways]
    value, error = found.T
    assert np.average(value, weights=chances) == pytest.approx(0.0, abs=1e-9)
    assert np.allclose(error, error[0])  # what was said does not matter
    pairs = M * (M - 1) / 2
    room = sum(1 - theta[i, :, 0] @ theta[j, :, 0] for i, j in combinations(range(M), 2))
    variance, bound = np.average(value**2, weights=chances), (M - 1) * room * (1 - room / pairs) / room**2
    assert variance <= bound * (1 + 1e-9) and (M > 2 or variance == pytest.approx(bound))
    assert error[0] ** 2 == pytest.approx(max(bound, (M - 1) ** 2 / room**2))


def test_the_standard_error_is_that_of_the_items_and_one_more():
    """By hand, with different numbers of votes, and items of one vote, which do not count."""
    rng = np.random.default_rng(5)
    lists = [rng.integers(0, 3, size) for size in (1, 2, 3, 5, 1, 14, 4)]
    votes = cw.Votes.from_records([(n, m, int(x)) for n, row in enumerate(lists) for m, x in enumerate(row)])
    theta, q = rng.dirichlet(np.ones(3), (14, 3)).transpose(0, 2, 1), rng.dirichlet(np.ones(3), 7)
    disagree, room, variance = np.zeros(7), np.zeros(7), []
    for n, row in enumerate(lists):
        for i, j in combinations(range(len(row)), 2):
            disagree[n] += row[i] != row[j]
            room[n] += 1 - sum(q[n, k] * theta[i, :, k] @ theta[j, :, k] for k in range(3))
        m = len(row)
        if m > 1:
            variance.append((m - 1) * max(m - 1, room[n] * (1 - room[n] / (m * (m - 1) / 2))))
    A = 1 - disagree.sum() / room.sum()
    square = ((disagree - (1 - A) * room) ** 2).sum() + np.mean(variance)
    assert excess_agreement(votes, theta, q) == pytest.approx((A, np.sqrt(square) / room.sum()))
    heavier = cw.Votes.from_codes(
        votes.item, votes.annotator, votes.label, items=range(7), annotators=range(14), classes=range(3),
        weight=np.full(votes.n_votes, 3.0),
    )  # fmt: skip
    assert excess_agreement(heavier, theta, q) == pytest.approx((A, np.sqrt(square) / room.sum()))


@pytest.mark.parametrize("right", [0.7, 0.9, 0.97])
@pytest.mark.parametrize("M", [2, 4, 30])
@pytest.mark.parametrize("N", [1, 2, 5, 20, 200])
def test_two_standard_errors_cover_the_truth_at_any_size(N, M, right):
    """Independent votes of known annotators: A is 0. From the items alone s = 0 for N = 1, and covers 24 % of the time
    with five items of two annotators who are hardly ever wrong."""
    rng, K = np.random.default_rng(N), 3
    theta = np.full((M, K, K), (1 - right) / (K - 1))
    theta[:, np.arange(K), np.arange(K)] = right
    item, who = np.repeat(np.arange(N), M), np.tile(np.arange(M), N)
    found = []
    for _ in range(150):
        truth = rng.integers(0, K, N)
        label = np.where(rng.random(N * M) < right, truth[item], (truth[item] + rng.integers(1, K, N * M)) % K)
        votes = cw.Votes.from_codes(item, who, label, items=range(N), annotators=range(M), classes=range(K))
        found.append(excess_agreement(votes, theta, np.eye(K)[truth]))
    value, error = np.array(found).T
    assert (abs(value) <= 2 * error).mean() > 0.85
    if N == 200:  # many items: no more than needed
        assert 0.85 < np.sqrt((error**2).mean() / (value**2).mean()) < 1.2


def test_a_few_items_leave_the_crowd_at_what_crowds_are_like():
    """One item, or items without a disagreement, say nothing about dependence, whichever way they point."""
    tables = [one_item(labels, 2) for labels in ([0, 1], [0, 0, 1], [0, 0, 0], [0] * 5 + [1])]
    tables += [cw.Votes.from_records([(n, m, "xy"[n % 2]) for n in range(N) for m in range(3)]) for N in (2, 20, 200)]
    for votes in tables:
        found = cw.aggregate(votes).dependence
        assert found.rho == pytest.approx(dependence.PRIOR_RHO, abs=0.005) and found.weight > 0.98
        assert "too few, or too much alike" in found.reason


def test_single_votes_are_said_to_be_no_estimates():
    """Nothing confirms them; second votes or gold labels do."""
    rows = [(n, n % 7, "xyz"[n * n % 3]) for n in range(60)]
    alone, said = cw.Votes.from_records(rows), "probabilities are no estimates"
    found = cw.aggregate(alone)
    assert "no item has votes of two annotators" in found.dependence.reason and said in " ".join(found.notes)
    assert found.dependence == Dependence.of(found.dependence.plain())
    assert said not in " ".join(cw.aggregate(alone, gold={0: "x", 1: "y"}).notes)
    assert said not in " ".join(cw.aggregate(cw.Votes.from_records([*rows, (0, 5, "x")])).notes)
    assert said in " ".join(cw.Auto().fit_in_parts(VoteParts.of([VotePart(alone)])).notes)


def test_tiny_tables_are_not_too_sure():
    """One item, or two, as if crowds were as usual: not as if votes were independent, nor as if they were copies."""
    for K, tied in ((2, 0.5), (3, 0.46)):  # nobody said the third class, which is possible all the same
        assert cw.aggregate(one_item([0, 1], K)).posterior[0, :2] == pytest.approx(tied, abs=0.005)
    outvoted = [cw.aggregate(one_item([0] * n + [1], 2)).posterior[0, 0] for n in (2, 3, 5)]
    assert outvoted == sorted(outvoted) and 0.6 < outvoted[0] < 0.8 and outvoted[1] < 0.9 and outvoted[2] < 0.99
    votes = cw.Votes.from_records([("a", m, "yes") for m in range(3)] + [("b", 0, "no")])
    assert 0.9 < cw.aggregate(votes).posterior.max(axis=1)[0] < 0.98


def test_probabilities_of_tiny_tables_beat_those_of_independent_votes():
    """Log loss over three items of four annotators, as a first try has them: below that with rho = 0 and, where votes
    depend on each other, by a lot."""
    for make, share, gain in ((copied, 0.0, 0.02), (copied, 0.4, 0.1), (misled, 0.3, 0.1)):
        gained = []
        for seed in range(40):
            votes, truth = make(3, 4, 3, 4, share, seed)
            found = cw.aggregate(votes)
            n = found.votes_per_item.astype(float)
            alone = correct(found.independent_posterior, n, Dependence(0.0, "votes", shape=dependence.SHAPE))
            gained.append(log_loss(alone, truth) - log_loss(found.posterior, truth))
        assert np.mean(gained) > gain, (make.__name__, share, np.mean(gained))


def test_evidence_is_shrunk_towards_real_crowds():
    assert shrunk(np.nan, np.nan).rho == dependence.PRIOR_RHO
    assert shrunk(-0.2, 1e-6).rho == pytest.approx(0.0, abs=1e-6)
    assert shrunk(0.03, 1e-6).rho == pytest.approx(0.3, abs=1e-6)
    assert shrunk(0.9, 1e-6).rho == pytest.approx(dependence.MAX_RHO, abs=1e-6)
    between = [shrunk(0.0, error).rho for error in (0.001, 0.01, 0.05, 1.0)]
    assert between == sorted(between) and between[-1] == pytest.approx(dependence.PRIOR_RHO, abs=0.01)
    single = cw.Votes.from_records([(n, n % 3, n % 2) for n in range(30)])
    assert estimate(single, single.shares()).rho == dependence.PRIOR_RHO


def test_the_order_and_the_names_of_everything_are_indifferent():
    votes, _ = misled(200, 15, 3, 5, 0.3, 0)
    found = cw.aggregate(votes)
    rng = np.random.default_rng(0)
    items, people, classes = rng.permutation(200), rng.permutation(15), rng.permutation(3)
    other = cw.Votes.from_codes(
        items[votes.item], people[votes.annotator], classes[votes.label],
        items=range(200), annotators=range(15), classes=range(3),
    )  # fmt: skip
    again = cw.aggregate(other)
    assert again.dependence.rho == pytest.approx(found.dependence.rho, abs=1e-6)
    assert np.allclose(again.posterior[items][:, classes], found.posterior, atol=1e-6)


# -------------------------------------------------------------------- what it does to crowds


def independent():
    for seed in range(3):
        common = {"n_annotators": 40, "random_state": seed}
        yield cw.simulate.one_coin(1000, n_classes=4, votes_per_item=5, **common)
        yield cw.simulate.dirichlet(1000, n_classes=3, votes_per_item=5, **common)
        yield cw.simulate.two_coin(1000, votes_per_item=10, **common)
        yield cw.simulate.hammer_spammer(1000, n_classes=3, accuracy=0.9, votes_per_item=6, **common)


def test_independent_crowds_lose_nothing():
    """Log loss within 0.005 of the uncorrected on average over crowds, none by more than 0.01; rho near 0."""
    lost, rho = [], []
    for sim in independent():
        found = cw.aggregate(sim.votes)
        lost.append(log_loss(found.posterior, sim.truth) - log_loss(found.independent_posterior, sim.truth))
        rho.append(found.dependence.rho)
    assert np.mean(lost) < 0.005 and max(lost) < 0.01
    assert np.mean(rho) < 0.05 and max(rho) < 0.15


def best_rho(found, truth):
    """The correlation under which the truth is most probable."""
    grid = np.linspace(0.0, 1.0, 41)
    n = found.votes_per_item.astype(float)
    return grid[
        np.argmin(
            [log_loss(correct(found.independent_posterior, n, Dependence(r, "given", shape=4.0)), truth) for r in grid]
        )
    ]


def test_crowds_that_are_misled_or_copy_gain_and_their_rho_is_found():
    """Log loss falls on each kind of crowd; rho is off by less than 0.2 in the mean and 0.35 at most."""
    off = []
    for make, votes_per_item, share in (
        (misled, 5, 0.3), (misled, 10, 0.3), (misled, 10, 0.5), (copied, 6, 0.5), (copied, 10, 0.5),
    ):  # fmt: skip
        gained = []
        for seed in range(2):
            votes, truth = make(800, 40, 3, votes_per_item, share, seed)
            found = cw.aggregate(votes)
            gained.append(log_loss(found.independent_posterior, truth) - log_loss(found.posterior, truth))
            off.append(abs(found.dependence.rho - best_rho(found, truth)))
        assert np.mean(gained) > 0.02, (make.__name__, votes_per_item, share)
    assert np.mean(off) < 0.2 and max(off) < 0.35


def test_gold_shows_what_votes_cannot():
    """A fifth of the items look like another class to everybody: votes look independent, and gold labels correct it."""
    rng = np.random.default_rng(0)
    sim = cw.simulate.one_coin(1000, n_annotators=40, n_classes=3, votes_per_item=8, random_state=0)
    truth = np.where(rng.random(1000) < 0.2, (sim.truth + rng.integers(1, 3, 1000)) % 3, sim.truth)
    alone = cw.aggregate(sim.votes)
    gold = np.where(np.arange(1000) < 100, truth, -1).astype(np.int32)
    told = cw.aggregate(sim.votes, gold=gold)
    assert alone.dependence.rho < 0.1 and told.dependence.power < 0.6
    assert told.dependence.source == "gold" and "By 100 gold labels, log-odds are then" in told.dependence.reason
    rest = slice(100, None)
    assert log_loss(told.posterior[rest], truth[rest]) < log_loss(alone.posterior[rest], truth[rest]) - 0.1
    assert (told.posterior[np.arange(100), truth[:100]] == 1.0).all()


# -------------------------------------------------------------------- in results


def test_both_posteriors_are_kept(tmp_path):
    votes, _ = misled(200, 15, 3, 5, 0.3, 0)
    plain, asked = cw.aggregate(votes, "dawid-skene"), cw.aggregate(votes, "dawid-skene", dependence="auto")
    assert plain.dependence == dependence.NONE and plain.posterior is plain.independent_posterior
    assert np.array_equal(asked.independent_posterior, plain.posterior)
    assert np.allclose(asked.posterior, plain.corrected_posterior) and asked.corrected_posterior is asked.posterior
    assert asked.dependence == plain.shown_dependence and asked.dependence.reason in asked.notes
    for found in (plain, asked):
        again = cw.Consensus.load(found.save(tmp_path / found.dependence.source))
        assert again.dependence == found.dependence and again.shown_dependence == found.shown_dependence
        assert np.array_equal(again.corrected_posterior, found.corrected_posterior)
        assert np.array_equal(again.independent_posterior, found.independent_posterior)
        assert again.expected_accuracy() == found.expected_accuracy()


def test_vote_shares_are_smoothed():
    votes, _ = misled(200, 15, 3, 5, 0.3, 0)
    plain, asked = cw.aggregate(votes, "majority"), cw.aggregate(votes, "majority", dependence="auto")
    assert np.allclose(plain.corrected_posterior, (5 * votes.shares() + 0.5) / 6.5)
    assert np.array_equal(asked.posterior, plain.corrected_posterior) and asked.dependence.source == "shares"
    assert "half a vote" in asked.dependence.reason and asked.shown_dependence == plain.shown_dependence
    assert np.allclose(asked.right, plain.right)


@pytest.mark.parametrize("key", [key for key in cw.METHODS if key != "gold-weighted"])
def test_every_method_can_be_corrected(key):
    """No label changes, the textbook posterior stays reachable, and only the default corrects without being asked."""
    votes = cw.simulate.two_coin(80, n_annotators=10, votes_per_item=5, random_state=0).votes
    plain, asked = cw.aggregate(votes, key, dependence="none"), cw.aggregate(votes, key, dependence="auto")
    assert cw.registry.create(key).dependence == ("auto" if key == "auto" else "none")
    assert np.allclose(asked.independent_posterior, plain.posterior)
    assert (asked.label_codes == plain.label_codes).all()
    assert np.allclose(asked.posterior.sum(axis=1), 1.0)
    assert (asked.posterior.max(axis=1) <= plain.posterior.max(axis=1) + 1e-9).all()
    assert np.allclose(plain.corrected_posterior, asked.posterior)
    assert asked.dependence.reason in asked.notes


def test_a_number_is_taken_as_given():
    votes, _ = misled(200, 15, 3, 5, 0.3, 0)
    plain, given = cw.aggregate(votes, "dawid-skene"), cw.aggregate(votes, "dawid-skene", dependence=0.4)
    assert np.allclose(given.posterior, correct(plain.posterior, np.full(200, 5.0), Dependence(0.4, "given")))
    assert given.dependence.source == "given" and "0.40" in given.dependence.reason
    for wrong in (-0.1, 1.1, "some", None, True):
        with pytest.raises(cw.errors.ParameterError, match="'auto', 'none', or a correlation"):
            cw.aggregate(votes, "dawid-skene", dependence=wrong)


def test_new_items_are_corrected_like_those_of_the_fit():
    votes, _ = misled(200, 15, 3, 5, 0.3, 0)
    model = cw.Auto().fit(votes)
    assert np.allclose(model.predict_proba(votes), model.consensus_.posterior)
    assert (model.predict(votes) == model.consensus_.labels).all()


def test_annotators_who_are_misled_together_are_not_taken_for_better_than_they_are():
    votes, truth = misled(800, 30, 2, 8, 0.4, 1)
    found = cw.aggregate(votes)
    true = np.array([(votes.label == truth[votes.item])[votes.annotator == m].mean() for m in range(30)])
    value, low, high = found.accuracy()
    naive, naive_low, naive_high = cw.aggregate(votes, dependence=0.0).accuracy()
    assert (value - true).mean() < (naive - true).mean() - 0.002
    covered, before = ((low <= true) & (true <= high)).mean(), ((naive_low <= true) & (true <= naive_high)).mean()
    assert covered > before
