"""mace: against enumeration, against crowd-kit's steps, and the mistakes others made."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaln, gammaln

import crowdwise as cw
from brute import enumerate_truths, rows_of
from crowdwise.errors import ConvergenceWarning
from crowdwise.methods.bayes_mace import answers, scores

pytestmark = pytest.mark.filterwarnings("ignore::Warning:crowdkit")


def tiny(seed, weighted=False, N=5, M=3, K=3):
    rng = np.random.default_rng(seed)
    present = rng.random((N, M)) < 0.7
    present[0] = True
    item, annotator = np.nonzero(present)
    weight = rng.gamma(2.0, 0.5, len(item)) + 0.05 if weighted else None
    names = {"items": range(N), "annotators": [f"a{m}" for m in range(M)], "classes": range(K)}
    return cw.Votes.from_codes(item, annotator, rng.integers(0, K, len(item)), weight=weight, **names)


def model_of(votes, truth=None, item_prior=None, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cw.MACE(**params).fit(votes, truth, item_prior=item_prior)


def fit(votes, truth=None, item_prior=None, **params):
    return model_of(votes, truth, item_prior, **params).consensus_


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from(["uniform", "learned", [0.5, 0.2, 0.3]]))
def test_em_posterior_and_likelihood_equal_enumeration(seed, weighted, known, class_prior):
    votes = tiny(seed, weighted)
    gold = np.array([2, -1, -1, 0, -1], dtype=np.int32) if known else None
    opinion = np.random.default_rng(seed).dirichlet(np.ones(3), 5)
    model = model_of(votes, gold, opinion, inference="em", smoothing=0.3, class_prior=class_prior, max_iter=6)
    found = model.consensus_
    q, log_likelihood = enumerate_truths(rows_of(votes), found.confusion, found.prior, 5, gold, opinion)
    assert np.allclose(found.posterior, q, atol=1e-10)
    assert abs(found.log_likelihood - log_likelihood) < 1e-9
    theta, xi = model.competence_, model.strategy_
    smoothed = 0.1 * (np.log(theta).sum() + np.log1p(-theta).sum() + np.log(xi).sum())
    assert abs(found.objective - log_likelihood - smoothed) < 1e-8
    assert (np.diff(found.trace) >= -1e-10).all()


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_variational_bound_is_below_the_exact_evidence(seed):
    """The evidence by enumeration of truths and of who knew, with competence and strategies integrated out."""
    votes = tiny(seed, N=3, M=3, K=2)
    rows = rows_of(votes)
    logs = []
    for z in itertools.product(range(2), repeat=3):
        for knew in itertools.product((0, 1), repeat=len(rows)):
            if any(s and z[n] != label for s, (n, _, label, _) in zip(knew, rows, strict=True)):
                continue
            value = -3.0 * math.log(2.0)
            for m in range(3):
                own = [(s, label) for s, (_, who, label, _) in zip(knew, rows, strict=True) if who == m]
                known = sum(s for s, _ in own)
                value += betaln(0.5 + known, 0.5 + len(own) - known) - betaln(0.5, 0.5)
                spam = np.bincount([label for s, label in own if not s], minlength=2)
                value += gammaln(20.0) - gammaln(20.0 + spam.sum()) + (gammaln(10.0 + spam) - gammaln(10.0)).sum()
            logs.append(value)
    evidence = max(logs) + math.log(np.exp(np.array(logs) - max(logs)).sum())
    found = fit(votes, tol=1e-12)
    assert found.objective <= evidence + 1e-9
    assert found.objective > evidence - 4.0
    assert (np.diff(found.trace) >= -1e-10).all()


@pytest.mark.parametrize("inference", ["variational", "em"])
def test_steps_equal_those_of_crowd_kit(inference):
    """From our parameters after p passes, its expectation gives our posterior, and its step our next parameters.

    Rows are sorted by annotator and label, where its way of numbering them does no harm.
    """
    from crowdkit.aggregation import MACE as CrowdKit

    sim = cw.simulate.hammer_spammer(60, n_annotators=8, n_classes=3, votes_per_item=5, accuracy=0.8, random_state=3)
    table = sim.votes.to_frame("dict")
    frame = pd.DataFrame({"task": table["item"], "worker": table["annotator"], "label": table["label"]})
    frame = frame.sort_values(["worker", "label", "task"], ignore_index=True)
    theirs = CrowdKit(method="vb" if inference == "variational" else "em")
    (tasks, task_names), (workers, worker_names) = (pd.factorize(frame[c]) for c in ("task", "worker"))
    labels, label_names = pd.factorize(frame["label"], sort=True)
    theirs._initialize(8, 3)
    theirs.smoothing_ = 0.01 / 3
    for passes in (1, 4, 12):
        ours = [model_of(sim.votes, inference=inference, restarts=0, max_iter=p, tol=0.0) for p in (passes, passes + 1)]
        order = [sim.votes.annotators.tolist().index(name) for name in worker_names]
        theirs.spamming_ = np.exp(ours[0].params_.log_knowing)[order][:, ::-1]
        theirs.thetas_ = np.exp(ours[0].params_.log_strategy)[order]
        _, marginals, strategy, knowing = theirs._e_step(
            frame.copy(), task_names, worker_names, label_names, tasks, workers, labels
        )
        q = marginals.div(marginals.sum(axis=1), axis=0).loc[sim.votes.items].to_numpy()
        assert np.allclose(q, ours[0].consensus_.posterior, atol=1e-9)
        step = theirs._variational_m_step if inference == "variational" else theirs._m_step
        step(knowing, strategy)
        assert np.allclose(theirs.spamming_[:, ::-1], np.exp(ours[1].params_.log_knowing)[order], atol=1e-9)
        assert np.allclose(theirs.thetas_, np.exp(ours[1].params_.log_strategy)[order], atol=1e-9)


def test_answers_from_knowledge_and_from_habit_add_up_to_all():
    rng = np.random.default_rng(0)
    counts = rng.gamma(1.0, 3.0, (4, 3, 3))
    log_knowing, log_strategy = np.log(rng.dirichlet(np.ones(2), 4)), np.log(rng.dirichlet(np.ones(3), 4))
    known, spam = answers(counts, log_knowing, log_strategy)
    assert np.allclose(known.sum(axis=1), counts.sum(axis=(1, 2)))
    assert np.allclose(spam.sum(axis=1), known[:, 1])
    theta = np.exp(scores(log_knowing, log_strategy))
    assert np.allclose(theta.sum(axis=1), 1.0)
    knew = sum(
        counts[2, k, k]
        * np.exp(log_knowing[2, 0])
        / (np.exp(log_knowing[2, 0]) + np.exp(log_knowing[2, 1] + log_strategy[2, k]))
        for k in range(3)
    )
    assert np.isclose(known[2, 0], knew)


def stubborn(seed=0, N=200):
    """Six who know, four who always say the same: their names sort otherwise than they appear."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, N)
    rows = []
    for n in range(N):
        rows += [(f"i{n}", f"good{m}", f"c{truth[n] if rng.random() < 0.8 else rng.integers(0, 3)}") for m in range(6)]
        rows += [(f"i{n}", f"{name}", f"c{k}") for name, k in (("zed", 0), ("amy", 1), ("max", 2), ("bob", 1))]
    return rows, {f"i{n}": f"c{k}" for n, k in enumerate(truth)}


def test_shuffled_rows_do_not_scramble_strategies():
    """A peer gives those who always answer one class 0.93 on it with sorted rows, 0.32-0.36 with reversed ones."""
    rows, truth = stubborn()
    for order in (sorted(rows), rows[::-1], [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]):
        votes = cw.Votes.from_records(order)
        model = model_of(votes)
        who = votes.annotators.tolist()
        for name, k in (("zed", "c0"), ("amy", "c1"), ("max", "c2"), ("bob", "c1")):
            m = who.index(name)
            assert model.strategy_[m, votes.classes.tolist().index(k)] > 0.85
            assert model.competence_[m] < 0.1
            assert model.consensus_.annotator_columns["favourite"][m] == k
        assert all(model.competence_[who.index(f"good{m}")] > 0.6 for m in range(6))
        assert model.consensus_.score(truth) > 0.97


def test_restarts_are_distinct():
    """A peer runs the same start ten times over."""
    sim = cw.simulate.hammer_spammer(80, n_annotators=8, n_classes=3, votes_per_item=3, random_state=0)
    first = {}

    def note(progress):
        first.setdefault(progress.restart, progress.objective)

    found = cw.MACE(restarts=5).fit(sim.votes, callback=note).consensus_
    assert len(set(first.values())) == 6
    ends = [fit(sim.votes, restarts=r).objective for r in (0, 5)]
    assert found.objective == ends[1] >= ends[0]
    assert np.array_equal(fit(sim.votes, random_state=7).posterior, fit(sim.votes, random_state=7).posterior)


def test_two_thousand_votes_on_an_item_do_not_underflow():
    """A peer multiplies probabilities, and crashes at 1,500."""
    rng = np.random.default_rng(0)
    truth = np.array([0, 1, 2, 1, 0, 2])
    label = np.where(rng.random((6, 2000)) < 0.4, truth[:, None], rng.integers(0, 3, (6, 2000)))
    for inference in ("variational", "em"):
        found = fit(cw.Votes.from_dense(label), inference=inference)
        assert np.isfinite(found.posterior).all()
        assert np.isfinite(found.objective)
        assert found.label_codes.tolist() == truth.tolist()


def test_competence_is_recovered_as_votes_grow():
    """Annotators made after the model itself: theta and xi are known."""
    gaps = []
    for N in (60, 300, 3000):
        rng = np.random.default_rng(4)
        theta, xi = rng.uniform(0.1, 0.9, 10), rng.dirichlet(np.ones(3), 10)
        truth = rng.integers(0, 3, N)
        habit = np.stack([rng.choice(3, N, p=x) for x in xi], axis=1)
        votes = cw.Votes.from_dense(np.where(rng.random((N, 10)) < theta, truth[:, None], habit))
        model = model_of(votes)
        gaps.append((np.abs(model.competence_ - theta).mean(), np.abs(model.strategy_ - xi).mean()))
    assert gaps[0][0] > gaps[2][0] < 0.02
    assert gaps[0][1] > gaps[1][1] > gaps[2][1] < 0.02


def test_a_learned_class_prior_helps_where_classes_are_lopsided():
    sim = cw.simulate.hammer_spammer(
        500, n_annotators=20, n_classes=2, votes_per_item=3, accuracy=0.8, prior=[0.9, 0.1], random_state=1
    )
    assert fit(sim.votes, class_prior="learned").score(sim.truth) > fit(sim.votes).score(sim.truth) + 0.02


def test_the_priors_are_used():
    sim = cw.simulate.hammer_spammer(80, n_annotators=8, n_classes=3, votes_per_item=4, random_state=0)
    base = fit(sim.votes)
    assert np.array_equal(base.posterior, fit(sim.votes, competence_prior=(0.5, 0.5)).posterior)
    trusting = fit(sim.votes, competence_prior=(50.0, 1.0)).annotator_columns["competence"]
    spammers = sim.parameters["spammers"]
    assert (trusting - base.annotator_columns["competence"])[spammers].min() > 0.3
    flat = fit(sim.votes, strategy_prior=1e4).annotator_columns["favourite_share"]
    assert np.allclose(flat, 1 / 3, atol=0.01)
    smooth = model_of(sim.votes, inference="em", smoothing=300.0)
    assert np.allclose(smooth.strategy_, 1 / 3, atol=0.1)


def test_no_smoothing_at_all_stays_finite():
    found = fit(tiny(1), inference="em", smoothing=0.0)
    assert np.isfinite(found.posterior).all()
    assert np.isfinite(found.objective)


# Accuracy with the authors' settings, and with the class prior learned. There is no published table for these sets;
# crowd-kit, started once on sorted rows, has 95.7 on d_sentiment, and 81.6 on d_product after its 50 passes.
REAL = {
    "bluebird": (86.1, 86.1), "rte": (92.6, 92.6), "d_sentiment": (95.7, 95.5), "d_product": (84.2, 93.1),
    "music_genre": (80.0, 79.3), "web": (83.8, 82.6),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_on_real_crowds(name, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    for class_prior, expected in zip(("uniform", "learned"), REAL[name], strict=True):
        found = fit(votes, class_prior=class_prior, restarts=0)
        assert abs(100.0 * found.score(votes.truth) - expected) < 0.3
