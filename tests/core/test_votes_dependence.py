"""Votes that depend on each other: the correction, the evidence for it, and what it does to simulated crowds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.core import dependence
from crowdwise.core.dependence import DOUBT, RHO, USUAL, Dependence, accuracy_interval, correct
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


def test_no_label_is_more_probable_than_labels_of_unanimous_crowds_are_right():
    """A share of the labels is another class, each as probable, whatever the number of classes; items without votes
    keep their prior."""
    for K in (2, 5, 40):
        q = np.full((2, K), 1e-300)
        q[:, 0] = 1.0
        found = correct(q, np.array([40.0, 0.0]), USUAL)
        assert found[0, 0] == pytest.approx(1.0 - DOUBT) and np.allclose(found[0, 1:], DOUBT / (K - 1))
        assert found[1, 0] == pytest.approx(1.0)
    q, n = posteriors(np.random.default_rng(0))
    divided, w = correct(q, n, Dependence(RHO, "given")), 1.5 * DOUBT
    assert np.allclose(correct(q, n, USUAL), (1 - w) * divided + w / 3)


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
    found, apart = correct(both, n, USUAL, np.log(prior)), correct(q, n, USUAL) * prior
    assert np.allclose(found, apart / apart.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("doubt", [DOUBT, 0.0])
def test_no_label_changes_and_nothing_gets_surer(doubt):
    q, n = posteriors(np.random.default_rng(3), 400, 5)
    found = correct(q, n, Dependence(0.35, "crowds", doubt))
    assert np.allclose(found.sum(axis=1), 1.0)
    assert (np.diff(np.take_along_axis(found, np.argsort(q, axis=1), axis=1)) >= 0.0).all()
    assert (found.argmax(axis=1) == q.argmax(axis=1)).all()
    assert (found.max(axis=1) <= q.max(axis=1) + 1e-12).all()
    empty = correct(q, np.zeros(400), Dependence(0.35, "crowds", doubt))
    assert np.allclose(empty, q)


def test_expected_accuracy_and_its_interval():
    """As wide as crowds differ, narrower with gold labels, which are left out themselves."""
    value, low, high = accuracy_interval(0.85, 0, 0.95)
    assert value == pytest.approx(0.85) and 0.5 < low < 0.6 and 0.95 < high < 0.98
    wider = accuracy_interval(0.85, 0, 0.99)
    assert wider[1] < low and wider[2] > high
    told, *ends = accuracy_interval(0.85, 100, 0.95)
    sampling = 1.96 * np.sqrt(0.85 * 0.15 / 100)
    assert told == pytest.approx(0.85) and np.allclose(ends, [0.85 - sampling, 0.85 + sampling], atol=0.02)
    assert np.isnan(accuracy_interval(float("nan"), 0, 0.9)).all()
    sim = cw.simulate.one_coin(200, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
    gold = np.where(np.arange(200) < 50, sim.truth, -1).astype(np.int32)
    for key in ("auto", "majority", "dawid-skene"):
        plain, helped = cw.aggregate(sim.votes, key), cw.aggregate(sim.votes, key, gold=gold)
        value, low, high = plain.expected_accuracy()
        assert low < plain.score(sim.truth) < high and low < value < high
        told, least, most = helped.expected_accuracy()
        others = np.where(gold < 0, sim.truth, -1).astype(np.int32)
        assert most - least < 0.7 * (high - low) and least - 0.03 < helped.score(others) < most + 0.03


# -------------------------------------------------------------------- what the notes say


def one_item(labels, K):
    """Votes of as many annotators on one item."""
    M = len(labels)
    return cw.Votes.from_codes(
        np.zeros(M, int), np.arange(M), np.array(labels), items=["a"], annotators=range(M), classes=range(K)
    )


def test_votes_that_all_agree_look_copied():
    rows = [(n, m, "xy"[n % 2]) for n in range(30) for m in range(3)]
    said = "All votes agree on all 30 items with several votes: they look copied, or aggregated already."
    alike = cw.Votes.from_records([*rows, (99, 0, "x")])
    for key in ("auto", "majority"):
        assert said in " ".join(cw.aggregate(alike, key).notes)
    assert said in " ".join(cw.Auto().fit_in_parts(VoteParts.of([VotePart(alike[:11]), VotePart(alike[11:])])).notes)
    assert cw.aggregate(alike).posterior.max() <= 1.0 - DOUBT
    disagreeing = cw.Votes.from_records([*rows[1:], (0, 0, "y")])
    parts = VoteParts.of([VotePart(alike)])
    for key in ("auto", "majority", "dawid-skene"):  # nothing shows how often they are right: wide intervals
        found, other = cw.aggregate(alike, key), cw.aggregate(disagreeing, key)
        assert found.expected_accuracy()[1] < 0.7 < other.expected_accuracy()[1]
        assert found.accuracy()[1].max() < 0.6 < other.accuracy()[1].max()
        if key == "auto":
            assert np.allclose(cw.Auto().fit_in_parts(parts).accuracy(), found.accuracy())
            assert cw.trust.assess_annotators(alike, found).columns["accuracy_low"].max() < 0.6
    for others in (rows[:57], [*rows[1:], (0, 0, "y")], [(n, n % 7, "xyz"[n * n % 3]) for n in range(60)]):
        assert "look copied" not in " ".join(cw.aggregate(cw.Votes.from_records(others)).notes)


def test_single_votes_are_said_to_be_no_estimates():
    """Nothing confirms them; second votes or gold labels do."""
    rows = [(n, n % 7, "xyz"[n * n % 3]) for n in range(60)]
    alone, said = cw.Votes.from_records(rows), "probabilities are not estimates"
    found = cw.aggregate(alone)
    assert "No item has votes of two annotators" in found.dependence.reason and said in " ".join(found.notes)
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
    assert 0.85 < cw.aggregate(votes).posterior.max(axis=1)[0] < 0.96


def test_probabilities_of_tiny_tables_beat_those_of_independent_votes():
    """Log loss over three items of four annotators, as a first try has them: below that with rho = 0 and, where votes
    depend on each other, by a lot."""
    for make, share, gain in ((copied, 0.0, 0.02), (copied, 0.4, 0.1), (misled, 0.3, 0.1)):
        gained = []
        for seed in range(40):
            votes, truth = make(3, 4, 3, 4, share, seed)
            found = cw.aggregate(votes)
            n = found.votes_per_item.astype(float)
            alone = correct(found.independent_posterior, n, Dependence(0.0, "given"))
            gained.append(log_loss(alone, truth) - log_loss(found.posterior, truth))
        assert np.mean(gained) > gain, (make.__name__, share, np.mean(gained))


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
    assert np.allclose(again.posterior[items][:, classes], found.posterior, atol=1e-6)


# -------------------------------------------------------------------- what it does to crowds


def test_crowds_that_are_misled_or_copy_gain():
    """Log loss falls on each kind of crowd."""
    for make, votes_per_item, share in (
        (misled, 5, 0.3), (misled, 10, 0.3), (misled, 10, 0.5), (copied, 6, 0.5), (copied, 10, 0.5),
    ):  # fmt: skip
        gained = []
        for seed in range(2):
            votes, truth = make(800, 40, 3, votes_per_item, share, seed)
            found = cw.aggregate(votes)
            gained.append(log_loss(found.independent_posterior, truth) - log_loss(found.posterior, truth))
        assert np.mean(gained) > 0.02, (make.__name__, votes_per_item, share)


def test_gold_shows_what_votes_cannot():
    """A fifth of the items look like another class to everybody: votes look independent, and gold labels correct it."""
    rng = np.random.default_rng(0)
    sim = cw.simulate.one_coin(1000, n_annotators=40, n_classes=3, votes_per_item=8, random_state=0)
    truth = np.where(rng.random(1000) < 0.2, (sim.truth + rng.integers(1, 3, 1000)) % 3, sim.truth)
    alone = cw.aggregate(sim.votes)
    gold = np.where(np.arange(1000) < 100, truth, -1).astype(np.int32)
    told = cw.aggregate(sim.votes, gold=gold)
    assert alone.dependence == replace(USUAL, kind="people")
    assert told.dependence.source == "gold" and "By 100 gold labels, log-odds are then" in told.dependence.reason
    rest = slice(100, None)
    assert log_loss(told.posterior[rest], truth[rest]) < log_loss(alone.posterior[rest], truth[rest]) + 0.01
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
    assert covered >= before
