"""``auto``: its two rounds, its guards, its notes, and how it does on simulated and real crowds."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from busy_crowd import ordered
from crowdwise.core import em
from crowdwise.core.em import Params, Part
from crowdwise.core.numerics import winners
from crowdwise.core.shrinkage import learned_prior, strength
from crowdwise.core.vote_parts import VoteParts
from crowdwise.core.vote_sums import confirmed
from crowdwise.methods.ds_dawid_skene import ConfusionFamily, full

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


# -------------------------------------------------------------------- equations


def test_the_prior_of_abilities():
    """Against the formula written out, one annotator and class at a time."""
    rng = np.random.default_rng(0)
    skill = np.linspace(0.4, 0.95, 8)[:, None, None]
    counts = rng.poisson(60 * (skill * np.eye(3) + (1 - skill) * [[0.0, 0.3, 0.6], [0.2, 0.0, 0.4], [0.8, 0.7, 0.0]]))
    prior = learned_prior(counts, "accuracy")
    base = prior / prior.sum(axis=1, keepdims=True)
    strength = prior.sum(axis=1)
    assert np.allclose(strength, strength[0, 0])
    crowd = counts.sum(axis=0) + 0.01
    crowd = crowd / crowd.sum(axis=0)
    ability = []
    for m in range(8):
        for k in range(3):
            wrong = np.delete(base[m, :, k], k)
            assert np.allclose(wrong / wrong.sum(), np.delete(crowd[:, k], k) / np.delete(crowd[:, k], k).sum())
        p = np.diag(base[m])
        ability.append(np.log(p / (1 - p)) - np.log(np.diag(crowd) / (1 - np.diag(crowd))))
    ability = np.array(ability)
    assert np.allclose(ability, ability[:, :1])  # one number for each annotator
    right = np.einsum("mkk->m", counts) / counts.sum(axis=(1, 2))
    assert (np.argsort(ability[:, 0]) == np.argsort(right)).all()


def test_few_votes_do_not_say_how_much_annotators_differ():
    """The most likely strength of two annotators who were right twice is an end of the range; of many it stays."""
    few = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])[:, :, None]
    base = np.broadcast_to(np.array([0.8, 0.2])[None, :, None], few.shape)
    assert strength(few, base) < 0.02 and 20.0 < strength(few, base, usual=True) < 60.0
    rng = np.random.default_rng(0)
    right = rng.binomial(40, rng.beta(8.0, 2.0, 100))
    many = np.stack([right, 40 - right], axis=1)[:, :, None].astype(float)
    base = np.broadcast_to(np.array([0.8, 0.2])[None, :, None], many.shape)
    assert strength(many, base, usual=True) == pytest.approx(strength(many, base), rel=0.05)
    assert strength(many, base) == pytest.approx(10.0, rel=0.4)


def test_who_was_outvoted_once_is_not_always_wrong():
    rows = [("a", "ann", "x"), ("a", "bob", "x"), ("a", "cem", "y"), ("b", "ann", "y"), ("b", "bob", "y")]
    found = cw.aggregate(cw.Votes.from_records(rows))
    assert found.labels.tolist() == ["x", "y"] and 0.6 < found.posterior[0, 0] < 0.85 and found.posterior[1, 1] < 0.95


def test_the_prior_is_learned_from_the_majority_and_again_from_the_fit():
    """Both rounds written out with the two steps of EM."""
    votes = cw.simulate.dirichlet(150, n_annotators=12, n_classes=3, votes_per_item=4, random_state=0).votes
    part = Part.of(votes)
    shares = em.statistics(part, votes.shares())

    def fit(pseudo, start):
        family = ConfusionFamily(lambda c: c / c.sum(axis=1, keepdims=True), pseudo, None, even_items=1.0)
        stats = start
        for _ in range(400):
            mixed = (0.2 * found + 0.8 * held for found, held in zip(stats_of(stats), stats_of(shares), strict=True))
            params = family.maximise(em.Stats(*mixed))
            stats = em.expect(part, params)[0]
        return params, family.maximise(stats)

    def stats_of(stats):
        return stats.counts, stats.mass

    first, _ = fit(learned_prior(em.statistics(part, winners(votes.shares())).table(), "accuracy", quick=True), shares)
    stats, q = em.expect(part, first, posterior=True)
    _, again = fit(learned_prior(em.statistics(part, winners(q)).table(), "accuracy", quick=True), stats)
    found = cw.Auto(tol=1e-12, max_iter=2000).fit(votes).consensus_
    assert np.allclose(found.confusion, again.confusion(), atol=1e-4)
    q = em.expect(part, again, posterior=True)[1]
    assert np.allclose(found.independent_posterior, q, atol=1e-4)


def same_answers(n_items, n_annotators, K):
    """Everybody answers the first of K classes everywhere."""
    item, who = np.divmod(np.arange(n_items * n_annotators), n_annotators)
    names = {"items": range(n_items), "annotators": range(n_annotators), "classes": range(K)}
    return cw.Votes.from_codes(item, who, np.zeros(len(item), int), **names)


def test_votes_that_all_agree_leave_the_other_classes_possible():
    """They were impossible, at probability 1, however few the votes; more votes and more items make surer."""
    by_votes = [cw.aggregate(same_answers(1, n, 2)).posterior[0, 0] for n in (2, 3, 5, 9)]
    by_items = [cw.aggregate(same_answers(n, 3, 4)).posterior[0, 0] for n in (1, 2, 5, 20)]
    for found in (by_votes, by_items):
        assert found == sorted(found) and 0.85 < found[0] < 0.95 and found[-1] <= 0.96
    few = cw.Auto().fit(same_answers(3, 3, 2)).consensus_
    assert few.prior == pytest.approx([(3.0 + 0.5) / 4.0, 0.5 / 4.0], abs=0.03)  # one item more, half of each class
    fixed = cw.Auto(class_prior=[0.5, 0.5]).fit(same_answers(3, 3, 2)).consensus_
    assert fixed.prior.tolist() == [0.5, 0.5]


def test_the_item_more_is_a_part_of_the_objective():
    """No other class prior is better than the one of the maximisation step, and the objective never falls."""
    rng = np.random.default_rng(0)
    mass = np.array([2.5, 0.5, 0.0, 0.0])
    family = ConfusionFamily(full, rng.uniform(1, 2, (3, 4, 4)), None, even_items=1.0)
    best = family.maximise(em.Stats(rng.uniform(0, 2, (12, 4)), mass))

    def bound(log_prior):
        return mass @ log_prior + family.objective(0.0, Params(best.log_score, log_prior[None]))

    others = np.log(rng.dirichlet(np.ones(4), 2000))
    assert max(map(bound, others)) < bound(best.log_prior[0])
    for seed in range(5):
        votes = cw.simulate.dirichlet(4, n_annotators=4, n_classes=3, votes_per_item=3, random_state=seed).votes
        trace = cw.Auto(accelerate=False, tol=0.0, max_iter=40).fit(votes).consensus_.trace
        assert len(trace) >= 2 and (np.diff(trace) > -1e-12 * abs(trace[0])).all()


def test_items_with_one_vote_do_not_teach():
    votes = cw.simulate.dirichlet(200, n_annotators=12, n_classes=3, votes_per_item=4, random_state=1).votes
    mask = np.ones(votes.n_votes, dtype=bool)
    mask[votes.item < 80] = False
    mask[votes.indptr[:80]] = True
    some = votes.select(mask)
    whole, taught = cw.Auto().fit(some), cw.Auto().fit(some[80:])
    assert np.allclose(whole.consensus_.confusion, taught.consensus_.confusion)
    assert np.allclose(whole.predict_proba(some), whole.consensus_.posterior)
    gold = np.where(np.arange(200) < 40, 0, -1).astype(np.int32)
    assert confirmed(some, gold).tolist() == [True] * 40 + [False] * 40 + [True] * 120


def single_votes(seed, n_items=200, twice=()):
    """Votes of five annotators who are right nine times in ten, one on each item, two on some; and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n_items)
    rows = [
        (n, m, truth[n] if rng.random() < 0.9 else 1 - truth[n])
        for n in range(n_items)
        for m in rng.choice(5, 2 if n in twice else 1, replace=False).tolist()
    ]
    return cw.Votes.from_records(rows), truth


@pytest.mark.parametrize("seed", range(4))
def test_items_with_one_vote_say_how_common_the_classes_are(seed):
    """The few items with two votes are all of one class: the others are not therefore."""
    ones = np.flatnonzero(single_votes(seed)[1])[:6].tolist()
    votes, truth = single_votes(seed, twice=ones)
    found, majority = cw.Auto().fit(votes).consensus_, cw.MajorityVote().fit(votes).consensus_
    assert found.score(truth.astype(np.int32)) > majority.score(truth.astype(np.int32)) - 0.05
    assert 0.3 < found.prior[1] < 0.7
    parts = VoteParts.of([votes[:70], votes[70:]])
    in_parts = cw.Auto()._fit_in_parts(parts, None)
    assert np.allclose(in_parts["prior"], found.prior)


@pytest.mark.parametrize("n_annotators", [5, 50, 200])
def test_single_votes_alone_are_the_labels(n_annotators):
    """Nothing speaks against them, and nothing says how often they are right: labels are the votes, not for certain."""
    sim = cw.simulate.one_coin(200, n_annotators=n_annotators, n_classes=3, votes_per_item=1, random_state=0)
    found = cw.Auto().fit(sim.votes).consensus_
    assert (found.label_codes == sim.votes.label).all()
    top = found.posterior.max(axis=1)
    assert 0.65 < top.min() and top.max() < 0.71 and "more than 70% probable" in found.notes[0]
    known = np.where(np.arange(200) < 100, sim.truth, -1)
    assert cw.Auto().fit(sim.votes, gold=known).consensus_.dependence.doubt < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_a_prior_of_items_is_a_witness_of_single_votes(seed):
    """Half of the annotators are poor, which a classifier shows: labels are better than votes and classifier."""
    rng = np.random.default_rng(seed)
    N, M, K = 400, 20, 4
    truth, who, skill = rng.integers(0, K, N), rng.integers(0, M, N), np.where(np.arange(M) < 10, 0.95, 0.45)

    def drawn(right):
        return np.where(rng.random(N) < right, truth, (truth + rng.integers(1, K, N)) % K)

    label, guess = drawn(skill[who]), drawn(0.8)
    votes = cw.Votes.from_codes(np.arange(N), who, label, items=range(N), annotators=range(M), classes=range(K))
    prior = np.where(np.eye(K, dtype=bool)[guess], 0.8, 0.2 / (K - 1))
    found = cw.Auto().fit(votes, item_prior=prior).consensus_
    assert found.score(truth.astype(np.int32)) > max((label == truth).mean(), (guess == truth).mean())
    assert np.corrcoef(found.confusion[:, range(K), range(K)].mean(axis=1), skill)[0, 1] > 0.7


@pytest.mark.parametrize("n_gold", [1, 3, 10, 30])
@pytest.mark.parametrize("seed", range(4))
def test_few_gold_labels_of_one_class_do_no_harm(seed, n_gold):
    """One vote on each item, and all gold labels of the same class: votes still mean what they say."""
    votes, truth = single_votes(seed)
    gold = np.full(200, -1, dtype=np.int32)
    gold[np.flatnonzero(truth)[:n_gold]] = 1
    found, free = cw.Auto().fit(votes, gold).consensus_, gold < 0
    right = np.mean((found.label_codes == truth)[free])
    assert right > 0.75
    assert found.posterior.max(axis=1)[free].mean() - right < 0.2  # and not too sure


def test_the_notes_say_what_was_corrected_and_where_it_leaves_the_majority():
    votes = cw.simulate.dirichlet(300, n_annotators=15, n_classes=3, votes_per_item=4, random_state=0).votes
    found = cw.aggregate(votes)
    share = votes.shares()
    differs = share[np.arange(300), found.label_codes] < share.max(axis=1)
    assert found.notes[0] == found.dependence.reason
    assert found.notes[1].startswith(f"The labels differ from the majority's on {differs.sum()} of 300 items")
    assert f"{found.posterior.max(axis=1)[differs].mean():.0%} of these are expected to be right" in found.notes[1]
    alike = cw.Votes.from_records([(n, m, n % 2) for n in range(20) for m in range(3)])
    assert cw.aggregate(alike).notes[1] == "The labels are the majority's on every item."


# -------------------------------------------------------------------- guards


def test_classes_keep_their_meaning_where_plain_em_drifts():
    """Many classes, hardly more than one vote per item: whatever foretells votes, labels stay what voters said."""
    for seed in range(2):
        sim = cw.simulate.dirichlet(
            1000, n_annotators=100, n_classes=15, votes_per_item=0.015, diagonal=4.0, rest=0.3, random_state=seed
        )
        found, plain, majority = (
            cw.aggregate(sim.votes, key).score(sim.truth) for key in ("auto", "dawid-skene", "majority")
        )
        assert found > plain + 0.1
        assert found > majority - 0.01


def test_entity_matching_with_near_misses():
    """Rare matches, and a kind of non-match that looks like one: the second class must not become "looks like one"."""
    rng = np.random.default_rng(3)
    M = 120
    says = np.stack([rng.beta(1.5, 40, M), rng.beta(4, 6, M), rng.beta(10, 2, M), rng.beta(3, 3, M)], axis=1)
    theta = np.zeros((M, 4, 4))
    theta[:, :, 1], theta[:, :, 0] = says, 1.0 - says
    kinds = ordered(rng, 2500, M, 4, 3, theta, np.array([0.70, 0.18, 0.06, 0.06]))
    votes = cw.Votes.from_codes(
        kinds.item, kinds.annotator, kinds.label, items=range(2500), annotators=range(M), classes=[0, 1]
    )
    truth = (kinds.truth >= 2).astype(np.int32)
    found, majority = (cw.aggregate(votes, key).score(truth) for key in ("auto", "majority"))
    assert found > majority - 0.005


def test_known_truth_helps_and_a_prior_of_the_classes_is_kept():
    gain = []
    for seed in range(6):
        sim = cw.simulate.two_coin(400, n_annotators=20, votes_per_item=3, prior=[0.8, 0.2], random_state=seed)
        gold = np.where(np.arange(400) < 150, sim.truth, -1).astype(np.int32)
        hidden = np.where(np.arange(400) >= 150, sim.truth, -1)
        alone, helped = cw.aggregate(sim.votes, "auto"), cw.aggregate(sim.votes, "auto", gold=gold)
        gain.append(helped.score(hidden) - alone.score(hidden))
    assert np.mean(gain) > 0.005
    fixed = cw.aggregate(sim.votes, "auto", class_prior=[0.8, 0.2])
    assert np.allclose(fixed.prior, [0.8, 0.2])


def test_the_note_is_kept(tmp_path):
    sim = cw.simulate.dirichlet(200, n_annotators=10, n_classes=3, votes_per_item=4, random_state=0)
    found = cw.aggregate(sim.votes)
    assert found.method == "auto" and found.notes[0].endswith(".")
    assert cw.Consensus.load(found.save(tmp_path / "kept")).notes == found.notes
    assert cw.aggregate(sim.votes, "majority").notes == []


def test_over_simulated_crowds_it_is_no_worse_than_what_it_replaces():
    """Two draws of six kinds: above ``anchored`` and ``majority`` on average, and never far under either."""
    gain, over = [], []
    for seed in range(2):
        common = {"votes_per_item": 5, "random_state": seed}
        for sim in (
            cw.simulate.one_coin(400, n_annotators=30, n_classes=4, **common),
            cw.simulate.dirichlet(400, n_annotators=30, n_classes=5, **common),
            cw.simulate.hammer_spammer(400, n_annotators=30, n_classes=3, accuracy=0.8, **common),
            cw.simulate.two_coin(400, n_annotators=30, prior=[0.8, 0.2], **common),
            cw.simulate.difficulty(400, n_annotators=30, n_classes=3, **common),
            cw.simulate.colluders(400, n_annotators=30, n_classes=3, share=0.2, **common),
        ):
            found, anchored, majority = (
                cw.aggregate(sim.votes, key).score(sim.truth) for key in ("auto", "anchored", "majority")
            )
            gain.append(found - anchored)
            over.append(found - majority)
    assert np.mean(gain) > 0.0 and min(gain) > -0.02
    assert np.mean(over) > 0.02 and min(over) > -0.02


REAL = {
    "people": ("bluebird", "dog", "ducks", "face", "labelme", "music_genre", "rte", "temp", "weather_cf", "web", "wsd"),
    "rules": ("rules_youtube", "rules_trec"),
    "panels": ("llmbar_judges", "quiz_english", "quiz_medicine"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL)
def test_real_crowds(real, kind):
    """Never more than two points under the majority, and above it on average."""
    from crowdwise.data.dataset import read_dataset

    sets = [read_dataset(real(name), on_duplicate="all").votes for name in REAL[kind]]
    gain = [cw.aggregate(v).score(v.truth) - cw.aggregate(v, "majority").score(v.truth) for v in sets]
    assert min(gain) > -0.02 and np.mean(gain) > 0.02


def test_past_performance_counts_like_votes():
    crowd = cw.simulate.dirichlet(1500, n_annotators=25, n_classes=4, votes_per_item=3, random_state=3)
    yesterday, today = crowd.votes[:1400], crowd.votes[1400:]
    earlier = cw.aggregate(yesterday, "auto")
    alone, told = cw.aggregate(today, "auto"), cw.aggregate(today, "auto", history=earlier)
    assert told.score(today.truth) > alone.score(today.truth)
