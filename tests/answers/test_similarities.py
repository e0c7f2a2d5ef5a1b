"""Crowd clustering: against enumeration of all clusterings, its bound, planted clusters, intervals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import betaln, gammaln, logsumexp

import crowdwise as cw
from crowdwise import metrics
from crowdwise.answers.similarities_crowd_clustering import FIRST_HYPER, PairArrays, bound, colours, learn_hyper
from crowdwise.errors import InputError, ParameterError


def enumerate_all(answers, K, hyper):
    """log P(answers) and P(two items are together): a sum over all K^N clusterings, with the rates integrated out."""
    N, M = len(answers), answers.n_annotators
    a, b = answers.pairs[answers.pair].T
    log_p, together = [], []
    for z in product(range(K), repeat=N):
        z = np.array(z)
        counts = np.zeros((M, 2, 2))
        np.add.at(counts, (answers.annotator, (z[a] == z[b]).astype(int), answers.same.astype(int)), answers.weights)
        fit = (betaln(*np.moveaxis(counts + hyper, 2, 0)) - betaln(*hyper.T)).sum()
        size = np.bincount(z, minlength=K)
        log_p.append(fit + gammaln(K) - gammaln(K + N) + gammaln(1.0 + size).sum())
        together.append(z[:, None] == z[None, :])
    total = logsumexp(log_p)
    return total, np.tensordot(np.exp(np.array(log_p) - total), np.array(together), axes=1)


def tiny(seed, answers_per_pair=3):
    return cw.simulate.similarities(
        6, n_clusters=2, n_annotators=4, pairs_per_item=4, answers_per_pair=answers_per_pair,
        sensitivity=(18, 2), specificity=(18, 2), random_state=seed,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_one_and_co_membership_is_that_of_all_clusterings(seed):
    answers = tiny(seed).answers
    found = cw.aggregate(answers, "crowd-clustering", n_clusters=2, pool=False, tol=1e-10)
    exact, together = enumerate_all(answers, 2, FIRST_HYPER)
    # Each clustering is numbered in two ways, and a product of distributions can only follow one of them.
    assert found.objective <= exact
    assert found.objective + np.log(2) > exact - 1.0
    close = found.posterior @ found.posterior.T
    off = ~np.eye(6, dtype=bool)
    assert np.abs(close - together)[off].max() < 0.15


def test_a_bound_of_certain_clusters_is_the_exact_joint_probability():
    answers = tiny(0).answers
    graph, z = PairArrays.of(answers), np.array([0, 0, 1, 1, 0, 1])
    q = np.eye(2)[z]
    counts = graph.counts(graph.together(q))
    a, b = answers.pairs[answers.pair].T
    mine = np.zeros((4, 2, 2))
    np.add.at(mine, (answers.annotator, (z[a] == z[b]).astype(int), answers.same.astype(int)), 1.0)
    assert np.allclose(counts, mine)
    hyper = FIRST_HYPER
    joint = (betaln(*np.moveaxis(mine + hyper, 2, 0)) - betaln(*hyper.T)).sum()
    joint += gammaln(2) - gammaln(8) + 2 * gammaln(4)
    assert bound(q, counts, hyper, pool=False) == pytest.approx(joint)


@pytest.mark.parametrize("pool", [True, False])
def test_the_objective_never_falls(pool):
    for seed in range(3):
        crowd = cw.simulate.similarities(80, n_clusters=3, pairs_per_item=10, random_state=seed)
        found = cw.aggregate(crowd.answers, "crowd-clustering", n_clusters=3, pool=pool, restarts=0)
        assert len(found.trace) > 3
        assert (np.diff(found.trace) > -1e-9 * abs(found.trace[0])).all()


def test_learning_the_prior_raises_the_bound_to_a_fixed_point():
    rng = np.random.default_rng(0)
    counts = rng.poisson(6.0, size=(40, 2, 2)).astype(float)
    q, hyper = np.full((5, 2), 0.5), FIRST_HYPER
    trace = [bound(q, counts, hyper, pool=True)]
    for _ in range(60):
        hyper = learn_hyper(counts, hyper)
        trace.append(bound(q, counts, hyper, pool=True))
    assert (np.diff(trace) > -1e-9).all() and trace[-1] - trace[-2] < 1e-4
    for t, s in product(range(2), range(2)):
        for step in (0.97, 1.03):
            other = hyper.copy()
            other[t, s] *= step
            assert bound(q, counts, other, pool=True) <= trace[-1] + 1e-3


def test_no_two_items_of_a_colour_share_a_pair():
    answers = cw.simulate.similarities(200, pairs_per_item=8, random_state=0).answers
    sets = colours(answers.pairs.astype(np.int64), 200)
    assert sorted(np.concatenate(sets).tolist()) == list(range(200))
    for some in sets:
        assert not np.isin(answers.pairs, some).all(axis=1).any()
    dense = colours(np.array([(i, j) for i in range(6) for j in range(i)]), 6)
    assert [len(some) for some in dense] == [1] * 6


@pytest.mark.parametrize(("K", "n"), [(2, 100), (3, 120), (5, 200)])
def test_planted_clusters_and_their_number_are_recovered(K, n):
    crowd = cw.simulate.similarities(n, n_clusters=K, pairs_per_item=30, random_state=K)
    found = cw.aggregate(crowd.answers, restarts=2, max_clusters=10)
    assert metrics.adjusted_rand(found, crowd.truth, resamples=2).value > 0.95
    assert (np.bincount(found.cluster_codes) > 3).sum() == K  # an odd item may be left over
    assert found.posterior.shape[1] == found.tried[found.evidence.argmax()] <= K + 1


def test_annotators_at_random_count_nothing_and_a_reversed_one_backwards():
    """A third of the crowd answers at random, and one has it the wrong way round."""
    rng = np.random.default_rng(3)
    crowd = cw.simulate.similarities(120, n_clusters=3, n_annotators=9, pairs_per_item=40, random_state=3)
    answers = crowd.answers
    same = answers.same.copy()
    noise = answers.annotator < 3
    same[noise] = rng.random(noise.sum()) < 0.5
    same[answers.annotator == 3] ^= True
    a, b = answers.pairs[answers.pair].T
    spoilt = cw.Similarities.from_codes(
        a, b, answers.annotator, same, items=answers.items, annotators=answers.annotators
    )
    found = cw.aggregate(spoilt, n_clusters=3)
    assert metrics.adjusted_rand(found, crowd.truth, resamples=2).value > 0.95
    assert np.abs(found.sensitivity[:3] + found.specificity[:3] - 1.0).max() < 0.2
    assert found.sensitivity[3] + found.specificity[3] < 0.6
    assert (found.sensitivity[4:] + found.specificity[4:]).min() > 1.4


def test_intervals_cover_the_true_rates():
    held, wide = [], []
    for seed in range(12):
        crowd = cw.simulate.similarities(90, n_clusters=3, n_annotators=8, pairs_per_item=24, random_state=seed)
        found = cw.aggregate(crowd.answers, n_clusters=3, restarts=1)
        for name in ("sensitivity", "specificity"):
            low, high = found.rate_interval(name)
            held.append((low <= crowd.parameters[name]) & (crowd.parameters[name] <= high))
            wide.append(high - low)
    assert 0.9 <= np.mean(held) <= 0.99
    assert np.mean(wide) < 0.4


def test_what_cannot_be_known_is_said():
    """Two parts without a pair between them; an item in no pair; more clusters than items."""
    rows = [(a, b, m, (a < 3) == (b < 3)) for a in range(6) for b in range(a) for m in "xyz"]
    apart = [(a + 10, b + 10, m, s) for a, b, m, s in rows]
    answers = cw.Similarities.from_records(rows + apart, items=[*range(6), *range(10, 16), 99])
    found = cw.aggregate(answers, n_clusters=2)
    assert found.component.tolist() == [0] * 6 + [1] * 6 + [2]
    assert np.allclose(found.posterior[-1], found.prior, atol=0.06)
    assert found.answers_per_item[-1] == 0
    with pytest.raises(InputError, match="more than the 13 items"):
        cw.aggregate(answers, n_clusters=14)


def test_all_the_same_and_all_different():
    pairs = [(a, b) for a in range(8) for b in range(a)]
    one = cw.aggregate(cw.Similarities.from_records([(a, b, m, True) for a, b in pairs for m in "xyz"]), max_clusters=4)
    assert len(np.unique(one.clusters)) == 1
    rows = [(a, b, m, False) for a, b in pairs for m in "xyz"]
    many = cw.aggregate(cw.Similarities.from_records(rows), n_clusters=8, pool=False)
    assert len(np.unique(many.clusters)) == 8


@pytest.mark.parametrize("annotators", ["x", "xyz"])
@pytest.mark.parametrize("kinds", [[0, 1], [0, 1, 2], [0, 0, 1], [0, 0, 0, 1, 1, 2], list(range(8)), [0, 0, 0]])
def test_answers_that_all_agree_are_the_clusters(kinds, annotators):
    """Nobody is wrong there, however few they are: not even where all are different, or an item is alone."""
    pairs = [(a, b) for a in range(len(kinds)) for b in range(a)]
    for names in (range(len(kinds)), [f"i{(7 * n) % 11}" for n in range(len(kinds))]):
        rows = [(names[a], names[b], m, kinds[a] == kinds[b]) for a, b in pairs for m in annotators]
        found = cw.aggregate(cw.Similarities.from_records(rows, items=list(names)))
        assert metrics.adjusted_rand(found, dict(zip(names, kinds, strict=True)), resamples=2).value == 1.0
        assert found.posterior.shape[1] == len(set(kinds)) and not found.notes
        if len(annotators) == 3:
            assert found.posterior.max(axis=1).min() > 0.85


def test_more_clusters_than_are_tried_are_pointed_out():
    rows = [(a, b, m, False) for a in range(8) for b in range(a) for m in "xyz"]
    found = cw.aggregate(cw.Similarities.from_records(rows), max_clusters=5)
    assert "any number of clusters up to 5: there are more" in found.notes[0]


def test_few_pairs_do_not_make_one_cluster_of_all():
    """Four kinds, ten pairs an item: by the bound alone these crowds were a single cluster."""
    for seed in (0, 3):
        crowd = cw.simulate.similarities(200, n_clusters=4, pairs_per_item=10, random_state=seed)
        found = cw.aggregate(crowd.answers, restarts=2)
        assert metrics.adjusted_rand(found, crowd.truth, resamples=2).value > 0.25


def test_weights_count_like_repeated_answers():
    crowd = cw.simulate.similarities(40, n_clusters=2, pairs_per_item=12, random_state=1)
    table = crowd.answers.to_frame("dict")
    twice = {name: np.concatenate([column, column]) for name, column in table.items()}
    weighted = cw.Similarities.from_frame(table | {"weight": np.full(len(table["same"]), 2.0)})
    repeated = cw.Similarities.from_frame(twice, on_duplicate="all")
    one, two = (cw.aggregate(answers, n_clusters=2, restarts=1) for answers in (weighted, repeated))
    assert np.allclose(one.posterior, two.posterior, atol=1e-6)


def test_together_asks_by_name():
    rows = [("a", "b", m, 1) for m in "xyz"] + [("a", "c", m, 0) for m in "xyz"] + [("b", "c", m, 0) for m in "xyz"]
    found = cw.aggregate(cw.Similarities.from_records(rows), n_clusters=2)
    assert found.co_cluster_probability("a", "b") > 0.9 > 0.1 > found.co_cluster_probability("a", "c")
    assert found.co_cluster_probability("a", "a") == 1.0
    with pytest.raises(InputError, match="no item 'z'"):
        found.co_cluster_probability("a", "z")


@pytest.mark.parametrize(
    "wrong",
    [{"n_clusters": 0}, {"max_clusters": 0}, {"pool": "yes"}, {"restarts": -1}, {"max_iter": 0}, {"tol": -1.0}],
)
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        cw.CrowdClustering(**wrong).fit(tiny(0).answers)
