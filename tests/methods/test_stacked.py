"""``stacked`` and the confusion models it averages: their equations, what it picks on whose data, and its guards."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import crowdwise as cw
from busy_crowd import ordered
from crowdwise.core import em, predictive
from crowdwise.core.em import Part
from crowdwise.core.numerics import winners
from crowdwise.core.shrinkage import learned_prior, one_coin_table
from crowdwise.core.vote_parts import VotePart
from crowdwise.core.vote_sums import single_annotator_items
from crowdwise.methods import ds_stacked
from crowdwise.methods.ds_dawid_skene import Anchor, AnchoredFamily

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def counts_of(seed=0, M=12, K=4):
    rng = np.random.default_rng(seed)
    return rng.gamma(1.0, 3.0, (M, K, K)) + 4 * np.eye(K)


# -------------------------------------------------------------------- confusion models


@pytest.mark.parametrize(("name", "tie"), list(zip(ds_stacked.WORDS, ds_stacked.TIES, strict=True)))
def test_a_table_maximises_counts_times_logs(name, tie):
    """Against a general optimiser over the model's own numbers, one annotator at a time."""
    counts = counts_of()
    table = tie(counts)
    assert np.allclose(table.sum(axis=1), 1.0)
    K = 4
    free = {"coin": 1, "vector": K, "habit": K, "full": K * (K - 1)}[name]

    def make(x):
        if name == "coin":
            w = np.full(K, 1 / (1 + np.exp(-x[0])))
        elif name == "vector":
            w = 1 / (1 + np.exp(-x))
        elif name == "habit":
            t, s = 1 / (1 + np.exp(-x[0])), np.exp(np.append(x[1:], 0.0))
            return t * np.eye(K) + ((1 - t) * s / s.sum())[:, None]
        else:
            e = np.exp(np.vstack([x.reshape(K - 1, K), np.zeros(K)]))
            return e / e.sum(axis=0)
        out = np.tile((1 - w) / (K - 1), (K, 1))
        out[np.arange(K), np.arange(K)] = w
        return out

    def value(one, m):
        return float((counts[m] * np.log(one)).sum())

    for m in range(3):
        best = min((minimize(lambda x, m=m: -value(make(x), m), x0) for x0 in (np.zeros(free), np.full(free, 0.7))),
                   key=lambda r: r.fun)  # fmt: skip
        assert value(table[m], m) > -best.fun - 1e-4 * abs(best.fun)


@pytest.mark.parametrize("tie", ds_stacked.TIES)
def test_a_climb_does_not_fall(tie):
    sim = cw.simulate.dirichlet(300, n_annotators=20, n_classes=4, votes_per_item=4, random_state=3)
    part, votes = Part.of(sim.votes), sim.votes
    held = em.statistics(part, votes.shares())
    family = AnchoredFamily(tie, learned_prior(held.table()), None, anchor=Anchor(0.25, held))
    trace = em.run_em(part, family, held, tol=1e-8).trace
    slack = 1e-6 * (tie is ds_stacked.know_or_habit) + 1e-9
    assert (np.diff(trace) > -slack * abs(trace[0])).all()


def test_votes_of_those_who_know_say_what_a_label_means():
    """A few careful annotators, many lenient ones: weighted shares are nearer to the truth than plain ones."""
    rng = np.random.default_rng(0)
    K, careful, lenient = 4, 6, 60
    step = np.eye(K, k=1)
    step[-1, -1] = 1.0
    theta = np.concatenate([np.tile(0.85 * np.eye(K) + 0.15 / K, (careful, 1, 1)),
                            np.tile(0.25 * np.eye(K) + 0.45 * step + 0.3 / K, (lenient, 1, 1))])  # fmt: skip
    votes = ordered(rng, 800, careful + lenient, K, 6, theta, np.full(K, 0.25))
    counts = em.statistics(Part.of(votes), winners(votes.shares())).table()
    told = ds_stacked.skill(counts)
    assert told[:careful].min() > told[careful:].max()
    plain = votes.shares()[np.arange(800), votes.truth].mean()
    weighted = ds_stacked.weighted_shares(votes, None, counts)[np.arange(800), votes.truth].mean()
    assert weighted > plain + 0.05
    assert cw.aggregate(votes, "stacked").score(votes.truth) > cw.aggregate(votes, "majority").score(votes.truth) + 0.05


# -------------------------------------------------------------------- weights


def test_weights_solve_the_concave_problem():
    rng = np.random.default_rng(0)
    log_p = np.log(rng.dirichlet(np.ones(4), 500).T + 0.05)
    w = ds_stacked.stacked(log_p)
    assert np.isclose(w.sum(), 1.0) and (w >= 0).all()
    # at the optimum every model with weight has the same gradient, and no other a higher one
    gradient = (np.exp(log_p) / (w @ np.exp(log_p))).mean(axis=1)
    assert (gradient < 1.0 + 2e-3).all()
    assert np.allclose(gradient[w > 0.05], 1.0, atol=2e-3)
    shifted = ds_stacked.stacked(log_p - 2000.0)
    assert np.allclose(w, shifted)


def test_small_weights_are_dropped():
    assert ds_stacked.kept(np.array([0.05, 0.55, 0.4])).tolist() == pytest.approx([0.0, 0.55 / 0.95, 0.4 / 0.95])
    assert ds_stacked.kept(np.full(20, 0.05)).tolist() == pytest.approx([0.05] * 20)


def test_scores_are_those_of_parameters_that_never_saw_the_item():
    sim = cw.simulate.dirichlet(200, n_annotators=12, n_classes=3, votes_per_item=4, random_state=1)
    votes = sim.votes
    model = cw.Stacked(folds=4).fit(votes)
    fold, total = predictive.item_folds(votes, 4), 0.0
    for f in range(4):
        learned = model._fit_one(ds_stacked.per_class, VotePart(votes).select(fold != f), None)
        total += predictive.leave_one_out_scores(learned.params, votes[np.flatnonzero(fold == f)]).log_p.sum()
    assert np.isclose(model.scores_["vector"], total / votes.n_votes)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("coin", lambda rng: one_coin_table(rng.beta(4, 2, 40), 5)),
        ("full", lambda rng: np.stack([[rng.dirichlet(0.5 + 5 * np.eye(5)[k]) for k in range(5)] for _ in range(40)])),
        ("habit", lambda rng: _habits(rng, 40, 5)),
    ],
)
def test_a_true_model_wins_on_its_own_data(name, make):
    rng = np.random.default_rng(5)
    theta = make(rng)
    votes = ordered(rng, 1200, 40, 5, 5, theta, np.full(5, 0.2))
    model = cw.Stacked().fit(votes)
    scores = model.scores_
    assert scores[name] > max(x for other, x in scores.items() if other != name) - 0.002
    assert model.weights_[name] > max(model.weights_.values()) - 0.02  # about equal models have about equal weights
    assert {"coin": "one accuracy", "full": "full confusion", "habit": "habit"}[name] in model.consensus_.notes[0]


def _habits(rng, M, K):
    t, x = rng.beta(1.0, 1.0, M), rng.dirichlet(np.full(K, 0.4), M)
    return t[:, None, None] * np.eye(K) + ((1 - t)[:, None] * x)[:, None, :]


# -------------------------------------------------------------------- guards


def test_where_a_single_annotator_voted_the_simplest_model_decides():
    rng = np.random.default_rng(0)
    theta = np.stack([[rng.dirichlet(0.5 + 5 * np.eye(3)[k]) for k in range(3)] for _ in range(20)])
    votes = ordered(rng, 500, 20, 3, 4, theta, np.array([0.7, 0.2, 0.1]))
    mask = np.ones(votes.n_votes, dtype=bool)
    mask[votes.item < 100] = False
    mask[votes.indptr[:100]] = True  # the first hundred items keep one vote
    some = votes.select(mask)
    assert single_annotator_items(some).tolist() == [True] * 100 + [False] * 400
    model = cw.Stacked().fit(some)
    coin = model._fit_one(ds_stacked.one_coin, VotePart(some), None)
    assert np.array_equal(model.consensus_.posterior[:100], coin.posterior[:100])
    assert not np.allclose(model.consensus_.posterior[100:], coin.posterior[100:], atol=1e-3)
    assert "Where a single annotator voted (100 items)" in model.consensus_.notes[0]
    twice = cw.Votes.from_records([("a", "x", 0), ("a", "x", 1), ("b", "x", 0), ("b", "y", 1)], on_duplicate="all")
    assert single_annotator_items(twice).tolist() == [True, False]


def test_with_nothing_to_foretell_the_simplest_is_taken():
    votes = cw.Votes.from_records([(n, n % 3, n % 2) for n in range(30)])
    model = cw.Stacked().fit(votes)
    assert model.weights_ == {"coin": 1.0, "vector": 0.0, "habit": 0.0, "full": 0.0}
    assert all(np.isnan(x) for x in model.scores_.values())
    assert "no item has votes of two annotators" in model.consensus_.notes[0]
    assert (model.consensus_.label_codes == votes.label).all()


# -------------------------------------------------------------------- the rest


def test_large_data_is_weighed_on_a_sample_of_items():
    sim = cw.simulate.dirichlet(600, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    chosen, all_of_them = (predictive.item_folds(sim.votes, 5, max_votes=most) >= 0 for most in (1000, 3000))
    assert chosen.sum() == 200 and all_of_them.all()
    assert np.array_equal(predictive.item_folds(sim.votes[::-1], 5, max_votes=1000)[::-1] >= 0, chosen)
    whole, part = cw.Stacked().fit(sim.votes), cw.Stacked(max_votes=1000).fit(sim.votes)
    assert part.consensus_.score(sim.truth) > whole.consensus_.score(sim.truth) - 0.02
    assert part.scores_ != whole.scores_


def test_past_performance_counts_like_votes_in_a_confusion_model():
    crowd = cw.simulate.dirichlet(1500, n_annotators=25, n_classes=4, votes_per_item=3, random_state=3)
    yesterday, today = crowd.votes[:1400], crowd.votes[1400:]
    earlier = cw.aggregate(yesterday, "stacked")
    alone, told = cw.aggregate(today, "stacked"), cw.aggregate(today, "stacked", history=earlier)
    assert told.score(today.truth) > alone.score(today.truth)
