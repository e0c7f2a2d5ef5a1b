"""Spammers: the measures, the stated false-positive rates on honest crowds, and what is found where there are some."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

import crowdwise as cw
from crowdwise.errors import InputError, ParameterError
from crowdwise.simulate.crowds import dirichlet_confusion, one_coin_confusion
from crowdwise.trust import (
    capacity_spammers,
    channel_capacity,
    covariance_spammers,
    raykar_yu_score,
    raykar_yu_spammers,
)
from crowdwise.trust.annotator_covariance import (
    covariances,
    identified_rank,
    nearer_zero,
    parallel_factors,
    principal_factors,
    rank_one,
    shuffled,
    top,
)
from crowdwise.trust.spammers import effective_counts, one_coin_capacity

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def crowd_of(theta, N, rng, r=None, prior=None):
    """Independent annotators with given confusion matrices; ``r`` of them on every item, at random."""
    M, K, _ = theta.shape
    truth = rng.choice(K, size=N, p=prior)
    label = (rng.random((N, M, 1)) > theta.cumsum(axis=2)[np.arange(M)[None], truth[:, None]]).sum(axis=2)
    label = label.clip(0, K - 1)
    if r is not None:
        label[np.arange(N)[:, None], np.argsort(rng.random((N, M)), axis=1)[:, r:]] = -1
    return cw.Votes.from_dense(label, missing=-1, classes=range(K))


def with_spammers(M, K, share, rng):
    """The tutorial's crowd: honest Dirichlet annotators, nobody's accuracy under the bar, and spammers with habits."""
    theta = dirichlet_confusion(20 * M, K, 5.0, 1.0, rng)
    theta = theta[np.einsum("mkk->m", theta) / K >= 0.2 + 0.8 / K][:M]
    spam = np.zeros(M, dtype=bool)
    spam[rng.permutation(M)[: round(share * M)]] = True
    theta[spam] = rng.dirichlet(np.ones(K), size=int(spam.sum()))[:, None]
    return theta, spam


# -------------------------------------------------------------------- the measures


def test_capacity_of_channels_with_a_formula():
    def entropy(*p):
        return -sum(x * np.log2(x) for x in p if x > 0)

    symmetric = one_coin_confusion(np.array([0.9, 0.6, 0.25]), 4)
    expected = [2 - entropy(p, *[(1 - p) / 3] * 3) for p in (0.9, 0.6, 0.25)]
    assert np.allclose(channel_capacity(symmetric), expected, atol=1e-6)
    z = np.array([[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
    assert np.allclose(channel_capacity(z), [np.log2(5 / 4), 0.0, 1.0], atol=1e-6)  # Z channel, constant, backwards


def test_capacity_is_the_largest_information_over_inputs():
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.ones(3), size=(6, 3))
    found = channel_capacity(theta)
    grid = np.array([[a, b, 1 - a - b] for a in np.linspace(0, 1, 101) for b in np.linspace(0, 1 - a, 101)])
    for m in range(6):
        out = grid @ theta[m]
        ratio = np.log2(theta[m][None] / np.maximum(out, 1e-300)[:, None, :])
        information = np.einsum("gk,kl,gkl->g", grid, theta[m], ratio)
        assert information.max() <= found[m] + 1e-6
        assert information.max() == pytest.approx(found[m], abs=2e-3)


def test_the_bar_is_one_and_the_same_annotator():
    for K in (2, 3, 6):
        theta = one_coin_confusion(np.array([0.2 + 0.8 / K]), K)
        assert raykar_yu_score(theta)[0] == pytest.approx(0.04)
        assert channel_capacity(theta)[0] == pytest.approx(one_coin_capacity(0.2, K), abs=1e-6)


def test_raykar_yu_for_two_classes():
    theta = np.array([[[0.8, 0.2], [0.4, 0.6]], [[0.3, 0.7], [0.3, 0.7]], [[0.0, 1.0], [1.0, 0.0]]])
    assert np.allclose(raykar_yu_score(theta), [0.16, 0.0, 1.0])


def test_counts_of_known_truths_are_worth_all_and_of_unknown_ones_nothing():
    counts = np.array([[[6.0, 2.0], [1.0, 5.0]]])
    assert np.allclose(effective_counts(counts, np.zeros_like(counts)), counts)
    assert np.allclose(effective_counts(counts, 10 * counts), 0.0)


def test_covariances_equal_plain_loops():
    rng = np.random.default_rng(1)
    theta = dirichlet_confusion(5, 3, 4.0, 1.0, rng)
    votes = crowd_of(theta, 40, rng, r=3)
    found = covariances(votes)
    label = np.full((40, 5), -1)
    label[votes.item, votes.annotator] = votes.label
    mean = np.array([np.bincount(c[c >= 0], minlength=3) / (c >= 0).sum() for c in label.T])
    for m in range(5):
        for j in range(5):
            both = (label[:, m] >= 0) & (label[:, j] >= 0)
            if m == j:
                assert found.c[m, j] == 0.0
                continue
            x, y = np.eye(3)[label[both, m]] - mean[m], np.eye(3)[label[both, j]] - mean[j]
            assert found.n[m, j] == both.sum()
            assert found.c[m, j] == pytest.approx((x * y).sum() / both.sum(), abs=1e-12)
    assert np.allclose(found.variance, 1 - (mean**2).sum(axis=1))


def test_rank_one_and_principal_factors_recover_skills():
    rng = np.random.default_rng(2)
    skill = np.array([0.9, 0.7, 0.5, 0.3, 0.0, -0.4, 0.8, 0.6])
    votes = crowd_of(one_coin_confusion(skill + (1 - skill) / 3, 3), 60_000, rng)
    found = covariances(votes)
    scale = np.sqrt(2 / 3)
    assert np.allclose(rank_one(found) / scale, skill, atol=0.03)
    V = principal_factors(found, 1)[:, 0]
    assert np.allclose(V * np.sign(V[0]) / scale, skill, atol=0.03)


# -------------------------------------------------------------------- the traps


def test_a_heywood_case_does_not_take_the_crowd_with_it():
    """Forty items, one factor too many: it settles on a single annotator, whose own variance would be negative."""
    cases, one_factor = 0, 0
    for seed in range(10):
        votes = crowd_of(one_coin_confusion(np.full(7, 0.7), 2), 40, np.random.default_rng(seed))
        found = covariances(votes)
        for rank in (1, 2):
            V = principal_factors(found, rank)
            assert ((V**2).sum(axis=1) <= found.variance + 1e-9).all()  # D >= 0
        cases += bool(((V**2).sum(axis=1) >= 0.999 * found.variance).any())
        one_factor += parallel_factors(votes, found, 2).shape[1] == 1
    assert cases >= 3
    assert one_factor >= 8  # a test at 0.05 errs now and then


def test_the_number_of_factors_is_that_of_the_crowd():
    """One-coin annotators have one; rows of their own, seen on many items, have more; shuffled votes have none."""
    one, more = [], []
    for seed in range(3):
        rng = np.random.default_rng([11, seed])
        skill = rng.uniform(0.3, 0.9, 15)
        votes = crowd_of(one_coin_confusion(skill + (1 - skill) / 4, 4), 800, rng)
        one.append(parallel_factors(votes, covariances(votes), 4).shape[1])
        votes = crowd_of(dirichlet_confusion(12, 4, 5.0, 1.0, rng), 5000, rng)
        more.append(parallel_factors(votes, covariances(votes), 4).shape[1])
        assert top(covariances(shuffled(votes, rng))) < 0.2 * top(covariances(votes))
    assert np.mean(one) < 1.5
    assert min(more) >= 2


def test_shuffled_votes_keep_habits_and_common_items():
    votes = crowd_of(dirichlet_confusion(6, 3, 4.0, 1.0, np.random.default_rng(0)), 50, np.random.default_rng(1), r=4)
    other = shuffled(votes, np.random.default_rng(2))
    assert np.array_equal(other.annotator, votes.annotator) and np.array_equal(other.indptr, votes.indptr)
    assert not np.array_equal(other.label, votes.label)
    for m in range(6):
        mine = votes.annotator == m
        assert np.array_equal(np.sort(other.label[mine]), np.sort(votes.label[mine]))


def test_the_largest_eigenvalue_is_the_same_from_a_sparse_matrix(monkeypatch):
    from crowdwise.trust import annotator_covariance as covariance_clusters

    found = covariances(
        crowd_of(dirichlet_confusion(30, 3, 4.0, 1.0, np.random.default_rng(0)), 200, np.random.default_rng(1), r=4)
    )
    V = principal_factors(found, 2)
    dense = top(found), top(found, V)
    monkeypatch.setattr(covariance_clusters, "MOST_DENSE", 5)
    assert np.allclose(dense, (top(found), top(found, V)), atol=1e-8)


def test_no_more_factors_than_annotators_identify():
    assert [identified_rank(M, 4) for M in (3, 4, 5, 6, 8, 30)] == [1, 1, 2, 3, 4, 4]
    assert identified_rank(39, 2) == 2


def test_two_means_takes_the_cluster_nearer_zero():
    rng = np.random.default_rng(4)
    V = np.concatenate([rng.normal(0, 0.05, (6, 3)), rng.normal([0.8, -0.3, 0.1], 0.1, (14, 3))])
    assert np.array_equal(nearer_zero(V), np.arange(20) < 6)
    assert np.array_equal(nearer_zero(-V), np.arange(20) < 6)


# -------------------------------------------------------------------- false alarms


def honest_crowd(seed):
    """Annotators at or above the bar: two to five classes, 4 to 50 annotators, 40 to 500 items, 2 to 10 votes."""
    rng = np.random.default_rng([5, seed])
    K, M, N = int(rng.integers(2, 6)), int(rng.integers(4, 51)), int(10 ** rng.uniform(1.6, 2.7))
    r = int(rng.integers(2, min(M, 10) + 1))
    prior = rng.dirichlet(np.full(K, 5.0)) if seed % 4 else np.r_[0.85, np.full(K - 1, 0.15 / (K - 1))]
    if seed % 2:
        theta = dirichlet_confusion(M, K, 5.0, 1.0, rng)
    else:  # a third of them right at the bar
        skill = np.where(rng.random(M) < 1 / 3, 0.2, rng.uniform(0.2, 0.95, M))
        theta = one_coin_confusion(skill + (1 - skill) / K, K)
    return crowd_of(theta, N, rng, r, prior), theta


@pytest.mark.slow
def test_stated_false_positive_rates_hold_on_100_honest_crowds():
    level = 0.05
    wrong, honest = {}, {}
    for seed in range(100):
        votes, theta = honest_crowd(seed)
        K = votes.n_classes
        consensus = cw.aggregate(votes, "dawid-skene")
        enough = {
            "capacity": channel_capacity(theta) >= one_coin_capacity(0.2, K) - 1e-6,
            "informativeness": raykar_yu_score(theta) >= 0.04 - 1e-9,
        }
        enough["covariance"] = enough["clusters"] = enough["informativeness"]
        for found in (
            capacity_spammers(votes, consensus, level=level, draws=60),
            raykar_yu_spammers(votes, consensus, level=level, draws=60),
            covariance_spammers(votes, level=level),
            covariance_spammers(votes, level=level, rule="clusters"),
        ):
            name = found.detector if found.rule == "test" else "clusters"
            wrong[name] = wrong.get(name, 0) + int((found.spammer & enough[name]).sum())
            honest[name] = honest.get(name, 0) + int(enough[name].sum())
    for name, count in wrong.items():
        assert honest[name] > 1500
        assert binomtest(count, honest[name], level, alternative="greater").pvalue > 0.01, (name, count, honest[name])


def test_annotators_at_the_bar_are_flagged_no_more_often_than_stated():
    """The hardest case: many votes, a good crowd, and ten annotators exactly at the bar."""
    wrong = {"capacity": 0, "informativeness": 0, "covariance": 0}
    for seed in range(12):
        rng = np.random.default_rng([6, seed])
        skill = np.r_[np.full(10, 0.2), np.full(10, 0.7)]
        votes = crowd_of(one_coin_confusion(skill + (1 - skill) / 3, 3), 600, rng, 12)
        consensus = cw.aggregate(votes, "dawid-skene")
        for found in (
            capacity_spammers(votes, consensus, draws=100),
            raykar_yu_spammers(votes, consensus, draws=100),
            covariance_spammers(votes),
        ):
            wrong[found.detector] += int(found.spammer.sum())
    for name, count in wrong.items():
        assert binomtest(count, 120, 0.05, alternative="greater").pvalue > 0.01, (name, count)


# -------------------------------------------------------------------- spammers are found


@pytest.mark.parametrize("share", [0.2, 0.3, 0.4, 0.5, 0.6])
def test_the_tutorials_crowd(share):
    """K = 4, M = 20, N = 4,000 (10,000 in the benchmark): no honest annotator flagged, 90 % of the spammers found."""
    rng = np.random.default_rng(int(100 * share))
    theta, spam = with_spammers(20, 4, share, rng)
    votes = crowd_of(theta, 4_000, rng)
    consensus = cw.aggregate(votes, "dawid-skene")
    for found in (
        capacity_spammers(votes, consensus),
        raykar_yu_spammers(votes, consensus),
        covariance_spammers(votes),
    ):
        assert not (found.spammer & ~spam).any(), found
        assert (found.spammer & spam).sum() >= 0.9 * spam.sum(), found
    split = covariance_spammers(votes, rule="clusters")
    assert (split.spammer & spam).sum() >= 0.9 * spam.sum()
    assert not (split.spammer & ~spam).any()
    assert (split.columns["near_zero"] & ~spam).sum() <= 1  # somebody just above the bar may go with the spammers


def test_a_constant_labeller_is_a_spammer_and_an_adversary_is_not():
    rng = np.random.default_rng(8)
    theta = one_coin_confusion(np.r_[np.full(10, 0.75), 0.1, 0.5], 2)
    theta[11] = [[1.0, 0.0], [1.0, 0.0]]
    votes = crowd_of(theta, 800, rng)
    consensus = cw.aggregate(votes, "dawid-skene")
    for found in (
        capacity_spammers(votes, consensus),
        raykar_yu_spammers(votes, consensus),
        covariance_spammers(votes),
    ):
        assert found.names == [11]
        assert found.verdict[10] == "honest"


def test_more_votes_find_more_spammers():
    found = []
    for N in (40, 160, 640):
        count = 0
        for seed in range(6):
            rng = np.random.default_rng(seed)
            theta, spam = with_spammers(15, 3, 0.4, rng)
            count += (covariance_spammers(crowd_of(theta, N, rng)).spammer & spam).sum()
        found.append(count)
    assert found[0] < found[1] <= found[2]
    assert found[2] >= 0.9 * 36


def test_intervals_hold_the_truth():
    """With truths that the votes make clear; of capacity and score they are wide on purpose."""
    inside = {"capacity": [], "informativeness": [], "skill": []}
    for seed in range(12):
        rng = np.random.default_rng([9, seed])
        skill = rng.uniform(0.0, 0.9, 12)
        theta = one_coin_confusion(skill + (1 - skill) / 3, 3)
        votes = crowd_of(theta, 400, rng)
        consensus = cw.aggregate(votes, "dawid-skene")
        true = {"capacity": channel_capacity(theta), "informativeness": skill**2, "skill": skill}
        for report in (
            capacity_spammers(votes, consensus, draws=200),
            raykar_yu_spammers(votes, consensus, draws=200),
            covariance_spammers(votes),
        ):
            name = "skill" if report.detector == "covariance" else report.detector
            low, high = report.columns[f"{name}_low"], report.columns[f"{name}_high"]
            inside[name] += ((low - 1e-6 <= true[name]) & (true[name] <= high + 1e-6)).tolist()
    for name, hits in inside.items():
        assert np.mean(hits) >= 0.92, (name, np.mean(hits))


def test_the_error_of_the_measures_falls_with_the_votes():
    errors = {"capacity": [], "informativeness": [], "skill": []}
    sizes = (150, 600, 2400)
    for N in sizes:
        gap = {name: [] for name in errors}
        for seed in range(4):
            rng = np.random.default_rng([10, seed])
            skill = rng.uniform(0.3, 0.9, 10)
            theta = one_coin_confusion(skill + (1 - skill) / 3, 3)
            votes = crowd_of(theta, N, rng)
            consensus = cw.aggregate(votes, "dawid-skene")
            gap["capacity"].append(
                np.abs(capacity_spammers(votes, consensus).columns["capacity"] - channel_capacity(theta))
            )
            score = raykar_yu_spammers(votes, consensus).columns["informativeness"]
            gap["informativeness"].append(np.abs(score - raykar_yu_score(theta)))
            gap["skill"].append(np.abs(covariance_spammers(votes).columns["skill"] - skill))
        for name in errors:
            errors[name].append(np.mean(gap[name]))
    for name, found in errors.items():
        slope = np.polyfit(np.log(sizes), np.log(found), 1)[0]
        assert -0.7 < slope < -0.35, (name, slope)


# -------------------------------------------------------------------- the result


def test_the_report_is_a_table_with_names_and_prunes():
    sim = cw.simulate.hammer_spammer(500, n_annotators=10, n_classes=3, accuracy=0.8, random_state=0)
    consensus = cw.aggregate(sim.votes, "dawid-skene")
    for found in (
        capacity_spammers(sim.votes, consensus),
        raykar_yu_spammers(sim.votes, consensus),
        covariance_spammers(sim.votes),
    ):
        frame = found.to_frame()
        assert frame.columns[:4] == ["annotator", "votes", "score", "verdict"]
        assert frame.height == 10
        assert ((found.score >= 0) & (found.score <= 1)).all()
        assert set(found.names) == set(sim.votes.annotators[sim.parameters["spammers"]].tolist())
        left = found.prune(sim.votes)
        assert left.n_annotators == 5
        assert len(left) == len(sim.votes)
        assert found.prune(left) is left  # nobody left to prune
        assert "5 of 10" in repr(found)
    split = covariance_spammers(sim.votes, rule="clusters")
    assert "false-positive rate 0.05" in repr(split)
    assert np.array_equal(split.verdict != "honest", split.columns["near_zero"])


def test_an_honest_crowd_is_split_but_nobody_is_called_a_spammer():
    rng = np.random.default_rng(3)
    skill = rng.uniform(0.4, 0.9, 20)
    votes = crowd_of(one_coin_confusion(skill + (1 - skill) / 3, 3), 400, rng)
    found = covariance_spammers(votes, rule="clusters")
    assert found.columns["near_zero"].any() and not found.spammer.any()
    assert found.prune(votes) is votes
    left = found.prune(votes, unclear=True)
    assert left.n_annotators == 20 - found.columns["near_zero"].sum()
    nobody = covariance_spammers(votes[:12])  # too few votes for any verdict
    if not (nobody.verdict == "honest").any():
        with pytest.raises(InputError, match="Nobody is called honest"):
            nobody.prune(votes[:12], unclear=True)


def test_names_and_order_do_not_matter():
    sim = cw.simulate.hammer_spammer(300, n_annotators=9, n_classes=3, accuracy=0.8, votes_per_item=5, random_state=2)
    base = covariance_spammers(sim.votes)
    table = sim.votes.to_frame("dict")
    order = np.random.default_rng(0).permutation(sim.votes.n_votes)
    shuffled = cw.Votes.from_frame({k: [table[k][i] for i in order] for k in ("item", "annotator", "label")})
    again = covariance_spammers(shuffled)
    at = [again.annotators.tolist().index(name) for name in base.annotators.tolist()]
    assert np.allclose(again.score[at], base.score, atol=1e-9)
    turned = covariance_spammers(cw.Votes.from_frame(table, classes=[2, 0, 1]))
    at = [turned.annotators.tolist().index(name) for name in base.annotators.tolist()]
    assert np.allclose(turned.score[at], base.score, atol=1e-9)


def test_seeds_repeat():
    sim = cw.simulate.hammer_spammer(200, n_annotators=9, n_classes=3, accuracy=0.6, votes_per_item=5, random_state=2)
    consensus = cw.aggregate(sim.votes, "dawid-skene")
    for detector in (capacity_spammers, raykar_yu_spammers):
        first, again, other = (detector(sim.votes, consensus, random_state=seed).score for seed in (0, 0, 1))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)


def test_nobody_is_judged_without_company_or_votes():
    records = [(n, f"w{m}", (n + m * (n % 3 == 0)) % 2) for n in range(60) for m in range(4)]
    records += [(100 + n, "alone", n % 2) for n in range(80)] + [(0, "once", 0)]
    found = covariance_spammers(cw.Votes.from_records(records))
    verdict = dict(zip(found.annotators.tolist(), found.verdict.tolist(), strict=True))
    assert verdict["alone"] == verdict["once"] == "unclear"


def test_errors_say_what_to_do():
    sim = cw.simulate.one_coin(30, n_annotators=4, random_state=0)
    consensus = cw.aggregate(sim.votes, "dawid-skene")
    with pytest.raises(InputError, match="three annotators"):
        covariance_spammers(sim.votes.only(sim.votes.annotators[:2]))
    with pytest.raises(InputError, match="Expected Votes and a Consensus"):
        capacity_spammers(sim.votes, sim.votes)
    with pytest.raises(InputError, match="Expected Votes"):
        covariance_spammers(consensus)
    for wrong in ({"skill": 0.0}, {"level": 1.0}, {"level": 0.7}, {"draws": 0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            capacity_spammers(sim.votes, consensus, **wrong)
    for wrong in ({"rule": "vote"}, {"rank": 0}, {"prior": [1.0]}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            covariance_spammers(sim.votes, **wrong)
