"""The table of items: exact against enumeration, quiet on honest crowds, and naming what is planted."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from scipy.stats import binomtest

import crowdwise as cw
from crowdwise.errors import ParameterError
from crowdwise.trust.evidence import read_evidence
from crowdwise.trust.item_review import (
    assess_items,
    crowd_matrix,
    disagreement,
    one_more_vote,
    poisson_binomial_tail,
    quasi_independent,
)
from trust.planted import planted

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


# -------------------------------------------------------------------- against enumeration


def test_the_tail_of_unequal_trials():
    p = np.array([[0.1, 0.5, 0.8], [0.3, 0.3, 0.3]])
    for x in range(5):
        for b in range(2):
            brute = sum(
                np.prod([p[b, j] if hit[j] else 1 - p[b, j] for j in range(3)])
                for hit in itertools.product((0, 1), repeat=3)
                if sum(hit) >= x
            )
            assert np.isclose(poisson_binomial_tail(p, np.array([x, x]))[b], brute)


def test_disagreement_is_the_predictive_p_value():
    """Against every truth and every set of votes that these annotators could have given."""
    sim = cw.simulate.dirichlet(30, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0)
    votes = sim.votes
    e = read_evidence(votes, cw.aggregate(votes, "dawid-skene"))
    q = e.posterior()
    found = disagreement(e, q)
    for n in range(0, 30, 3):
        rows = range(votes.indptr[n], votes.indptr[n + 1])
        brute = 0.0
        for k in range(3):
            seen = sum(votes.label[s] != k for s in rows)
            for said in itertools.product(range(3), repeat=len(rows)):
                if sum(label != k for label in said) >= seen:
                    p = [e.theta[votes.annotator[s], k, label] for s, label in zip(rows, said, strict=True)]
                    brute += q[n, k] * np.prod(p)
        assert np.isclose(found[n], brute, atol=5e-3)  # classes under a thousandth are left out


def test_many_votes_take_the_normal_approximation():
    rng = np.random.default_rng(0)
    label = np.where(rng.random((3, 400)) < 0.7, 0, 1)
    votes = cw.Votes.from_dense(label)
    found = assess_items(votes, cw.aggregate(votes, "majority")).columns["excess"]
    assert ((found > 0.01) & (found <= 1.0)).all()


def test_one_more_vote_by_enumeration():
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.ones(3), size=50)
    crowd = rng.dirichlet(np.ones(3), size=3) + 2.0 * np.eye(3)
    crowd /= crowd.sum(axis=1, keepdims=True)
    label = q.argmax(axis=1)
    flip, gain = one_more_vote(q, label, crowd)
    for n in range(50):
        f = g = 0.0
        for said in range(3):
            joint = q[n] * crowd[:, said]
            f += joint.sum() * (joint.argmax() != label[n])
            g += joint.max()
        assert np.isclose(flip[n], f) and np.isclose(gain[n], g - q[n].max())


def test_a_simulated_vote_flips_the_label_as_often_as_it_says():
    sim = cw.simulate.one_coin(200, n_annotators=20, n_classes=3, votes_per_item=3, random_state=0)
    e = read_evidence(sim.votes, cw.aggregate(sim.votes, "dawid-skene"))
    q, crowd = e.posterior(), crowd_matrix(read_evidence(sim.votes, cw.aggregate(sim.votes, "dawid-skene")))
    label = q.argmax(axis=1)
    flip, gain = one_more_vote(q, label, crowd)
    rng, rounds = np.random.default_rng(1), 3000
    n = int(np.abs(flip - 0.3).argmin())
    truth = rng.choice(3, size=rounds, p=q[n])
    said = np.array([rng.choice(3, p=crowd[k]) for k in truth])
    after = (q[n] * crowd[:, said].T).argmax(axis=1)
    assert abs((after != label[n]).mean() - flip[n]) < 0.04
    assert abs((after == truth).mean() - (truth == label[n]).mean() - gain[n]) < 0.04


def test_quasi_independence_keeps_the_margins():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 50, (5, 5)).astype(float)
    fit = quasi_independent(counts)
    off = counts * (1 - np.eye(5))
    assert np.allclose(fit.sum(axis=0), off.sum(axis=0), rtol=1e-6)
    assert np.allclose(fit.sum(axis=1), off.sum(axis=1), rtol=1e-6)
    assert (np.diag(fit) == 0).all()


# -------------------------------------------------------------------- honest and planted


def test_honest_crowds_have_no_odd_items_and_no_ambiguous_classes():
    rng, crowds = np.random.default_rng(3), 150
    odd = pairs = several = 0
    for n in range(crowds):
        K, M = int(rng.integers(2, 7)), int(rng.integers(8, 50))
        sim = cw.simulate.one_coin(
            int(rng.integers(100, 500)), n_annotators=M, n_classes=K, a=12, b=4,
            votes_per_item=min(int(rng.integers(3, 9)), M), random_state=int(rng.integers(2**31)),
        )  # fmt: skip
        report = assess_items(sim.votes, cw.aggregate(sim.votes, ["anchored", "dawid-skene", "majority"][n % 3]))
        odd += bool(report.columns["odd"].any())
        several += K > 2
        pairs += bool(report.ambiguous())
    assert binomtest(odd, crowds, 0.05, alternative="greater").pvalue > 0.01, odd
    assert binomtest(pairs, several, 0.05, alternative="greater").pvalue > 0.01, pairs


@pytest.mark.parametrize("votes_per_item", [None, 6, 4])
@pytest.mark.parametrize("method", ["anchored", "dawid-skene", "majority"])
def test_the_planted_pair_comes_first_and_is_named(votes_per_item, method):
    votes = planted(votes_per_item)
    report = assess_items(votes, cw.aggregate(votes, method))
    pair = report.ambiguous()[0]
    assert pair.classes == (3, 8)
    assert pair.low <= pair.rate <= pair.high
    assert str(pair).startswith("Class 3 and class 8 are confused in ")
    frame = report.to_frame("pairs", kind="dict")
    assert (frame["first"][0], frame["second"][0], bool(frame["ambiguous"][0])) == ("3", "8", True)
    others = [p for p in report.ambiguous() if 3 not in p.classes and 8 not in p.classes]
    assert all(p.rate < 0.5 * pair.rate for p in others)


def test_odd_items_are_found_and_named():
    """Two in a hundred items look like another class to half of the crowd."""
    rng = np.random.default_rng(0)
    N, M = 500, 15
    y = rng.integers(0, 4, N)
    said = np.where(rng.random((N, M)) < 0.92, y[:, None], rng.integers(0, 4, (N, M)))
    odd = np.arange(10)
    said[odd] = np.where(rng.random((10, M)) < 0.5, (y[odd, None] + 1) % 4, said[odd])
    votes = cw.Votes.from_dense(said)
    report = assess_items(votes, cw.aggregate(votes, "dawid-skene"))
    found = np.flatnonzero(report.columns["odd"])
    assert len(np.intersect1d(found, odd)) >= 6
    assert len(np.setdiff1d(found, odd)) <= 1
    top = report.to_frame(kind="dict")
    assert np.isin(top["item"][:5], odd).all()
    assert all("more disagreement than its annotators explain" in w for w in top["why"][:5])


def test_review_finds_wrong_labels_first():
    sim = cw.simulate.difficulty(600, n_annotators=25, votes_per_item=5, random_state=1)
    consensus = cw.aggregate(sim.votes, "dawid-skene")
    report = assess_items(sim.votes, consensus)
    wrong = consensus.label_codes != sim.truth
    order = np.argsort(report.columns["rank"])
    assert wrong[order[:100]].mean() > 2.5 * wrong.mean()
    assert wrong[report.columns["suggested"]].mean() > wrong[~report.columns["suggested"]].mean()
    assert sorted(report.columns["rank"].tolist()) == list(range(1, 601))


def test_of_many_doubts_those_that_hold_half_of_the_expected_errors_are_suggested():
    sim = cw.simulate.one_coin(600, n_annotators=25, a=3, b=2, votes_per_item=3, random_state=0)
    report = assess_items(sim.votes, cw.aggregate(sim.votes))
    doubt, suggested = 1.0 - report.columns["right"], report.columns["suggested"]
    assert suggested.sum() < ((doubt > 0.05) | report.columns["odd"]).sum() / 2
    assert report.held == pytest.approx(0.5, abs=0.01) == doubt[suggested].sum() / doubt.sum()
    plain = suggested & ~report.columns["odd"]
    assert doubt[plain].min() >= doubt[~suggested].max()
    few = sim.votes[np.concatenate([np.argsort(doubt)[:200], np.argsort(-doubt)[:5]])]
    short = assess_items(few, cw.aggregate(few))
    assert short.columns["suggested"].sum() >= min((1.0 - short.columns["right"] > short.limit).sum(), 20)


def test_right_is_a_probability():
    """As in real crowds, from whatever consensus: labels of these independent ones are right more often."""
    for method in ("majority", "dawid-skene"):
        p, hit = [], []
        for seed in range(6):
            sim = cw.simulate.one_coin(400, n_annotators=40, n_classes=3, votes_per_item=3, random_state=seed)
            c = cw.aggregate(sim.votes, method)
            p.append(assess_items(sim.votes, c).columns["right"])
            hit.append(c.label_codes == sim.truth)
        assert 0.0 < np.concatenate(hit).mean() - np.concatenate(p).mean() < 0.15


# -------------------------------------------------------------------- small cases


def test_items_without_votes_and_with_one_are_named():
    sim = cw.simulate.one_coin(60, n_annotators=6, votes_per_item=4, random_state=0)
    v = sim.votes
    keep = (v.item != 0) | (v.annotator == v.annotator[0])
    wider = cw.Votes.from_codes(
        v.item[keep], v.annotator[keep], v.label[keep], items=range(61), annotators=v.annotators, classes=v.classes
    )
    report = assess_items(wider, cw.aggregate(wider, "dawid-skene"))
    why = report.why(np.array([0, 60]))
    assert "a single vote" in why[0]
    assert why[1] == "no votes"
    assert report.columns["excess"][60] == 1.0


def test_known_truth_is_certain_and_two_classes_have_no_test_of_their_pair():
    sim = cw.simulate.one_coin(100, n_annotators=8, n_classes=2, votes_per_item=4, random_state=0)
    known = np.where(np.arange(100) < 20, sim.truth, -1)
    report = assess_items(sim.votes, cw.aggregate(sim.votes, "majority"), gold=known)
    assert (report.columns["right"][:20] == 1.0).all()
    assert np.array_equal(report.columns["label"][:20], sim.votes.classes[sim.truth[:20]])
    (pair,) = report.pairs
    assert np.isnan(pair.p_value) and not pair.ambiguous and 0 < pair.rate < 0.5
    assert "items suggested" not in str(pair) and "100 items" in repr(report)


def test_difficulty_comes_with_methods_that_have_it():
    sim = cw.simulate.difficulty(120, n_annotators=10, votes_per_item=5, random_state=0)
    report = assess_items(sim.votes, cw.aggregate(sim.votes, "glad"))
    assert {"difficulty", "difficulty_low", "difficulty_high"} <= set(report.columns)
    assert report.to_frame(kind="pandas").shape[0] == 120


def test_level_is_checked():
    sim = cw.simulate.one_coin(30, n_annotators=5, votes_per_item=3, random_state=0)
    with pytest.raises(ParameterError, match="level=0"):
        assess_items(sim.votes, cw.aggregate(sim.votes, "majority"), level=0)


@pytest.mark.slow
def test_a_million_votes_in_seconds():
    sim = cw.simulate.dirichlet(200_000, n_annotators=2000, n_classes=5, votes_per_item=5, random_state=0)
    c = cw.aggregate(sim.votes, "majority")
    began = time.process_time()
    assess_items(sim.votes, c)
    assert time.process_time() - began < 60  # some 5 s on an idle core
