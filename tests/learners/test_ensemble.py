"""The default learner: candidates scored by the votes on items they have not seen, networks on what comes out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import crowdwise as cw
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners import ensemble, held_out_votes
from crowdwise.learners.ensemble import Ensemble, MeanNetwork, Turns, plain_members
from crowdwise.learners.held_out_votes import (
    Trial,
    VoteList,
    clearly_better,
    crowd_vote_probs,
    knows_or_guesses,
    mean_log,
    mixture_weights,
    nearest_to_one,
    posterior,
    scored,
    sharpened,
    vote_confusions,
)
from crowdwise.learners.inputs import InputScale, as_inputs
from crowdwise.learners.trainer import TrainingData
from crowdwise.learners.training_settings import Epoch
from learners.crowd import blobs, small, vote

PLAIN = ["consensus", "shares", "constant"]
QUICK = {"folds": 2, "n_networks": 2, "epochs": 4, "lr": 1e-2, "candidates": ("ccem",), "random_state": 0}


@pytest.fixture(scope="module")
def crowd():
    return small(n=150)


@pytest.fixture(scope="module")
def noisy():
    """Calibrated predictions for 600 items, the truth drawn from them, and votes of six annotators."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(4, 0.5), size=600)
    truth = (rng.random(600)[:, None] < p.cumsum(axis=1)).argmax(axis=1)
    item, annotator = np.repeat(np.arange(600), 6), np.tile(np.arange(6), 600)
    wrong = rng.random(3600) < 0.3
    label = np.where(wrong, rng.integers(4, size=3600), truth[item])
    fold = np.arange(600) % 3
    return p, truth, VoteList(item, annotator, label, np.ones(3600), 6), fold


def test_confusions_are_those_of_the_annotators(noisy):
    p, _, votes, _ = noisy
    theta = vote_confusions(p, votes, 2.0)
    np.testing.assert_allclose(theta.sum(axis=2), 1.0)
    assert np.abs(theta[:, range(4), range(4)] - 0.775).max() < 0.15


def test_confusions_of_all_folds_at_once_are_those_of_each(noisy):
    p, _, votes, fold = noisy
    for base in held_out_votes.BASES:
        each = [vote_confusions(p, votes.select(fold[votes.item] != j), 8.0, base) for j in range(3)]
        theta = vote_confusions(p, votes.left_out(fold), 8.0, base)
        np.testing.assert_allclose(theta, np.concatenate(each), atol=1e-12)
        more = vote_confusions(p, votes.left_out(fold), 32.0, base, theta, 60)
        np.testing.assert_allclose(more, vote_confusions(p, votes.left_out(fold), 32.0, base, rounds=60), atol=1e-3)


def test_the_score_prefers_better_predictions(noisy):
    p, truth, votes, fold = noisy
    known = np.eye(4)[truth] * 0.97 + 0.0075
    said = [crowd_vote_probs(one, votes, fold) for one in (known, p, np.full_like(p, 0.25))]
    score = [mean_log(one, votes) for one in said]
    assert score[0] > score[1] + 0.1 > score[2] + 0.2
    assert clearly_better(said[0], said[1], votes) and not clearly_better(said[1], said[0], votes)
    assert not clearly_better(said[1], said[1], votes)


def test_annotators_who_know_one_label_are_not_explained_by_any_predictions(noisy):
    """Rules: each says its own label, of the items that it has an answer for."""
    p, truth, _, fold = noisy
    rng = np.random.default_rng(2)
    answers = rng.random((600, 4)) < np.where(np.arange(4) == truth[:, None], 0.8, 0.1)
    item, rule = np.nonzero(answers)
    votes = VoteList(item, rule, rule, np.ones(len(item)), 4)
    even = np.full_like(p, 0.25)
    assert (
        mean_log(crowd_vote_probs(p, votes, fold), votes) > mean_log(crowd_vote_probs(even, votes, fold), votes) + 0.1
    )


def test_the_weights_of_a_mixture_make_the_votes_most_likely(noisy):
    p, truth, votes, fold = noisy
    known = np.eye(4)[truth] * 0.97 + 0.0075
    said = [crowd_vote_probs(one, votes, fold) for one in (p, known, np.full_like(p, 0.25))]
    w = mixture_weights(said, votes)
    np.testing.assert_allclose(w.sum(), 1.0)
    assert w[1] > 0.9
    two = [said[0], said[2]]
    a = mixture_weights(two, votes)[0]
    score = {x: mean_log(x * two[0] + (1.0 - x) * two[1], votes) for x in (0.0, 0.25, 0.5, 0.75, 1.0, a)}
    assert score[a] > max(score.values()) - 1e-4
    heavier = votes._replace(weight=np.where(votes.item < 300, 2.0, 1.0))
    repeated = np.r_[np.arange(3600), np.flatnonzero(votes.item < 300)]
    again = VoteList(*(part[repeated] for part in votes[:4]), 6)
    np.testing.assert_allclose(
        mixture_weights(two, heavier), mixture_weights([one[repeated] for one in two], again), atol=1e-9
    )


def test_overconfident_predictions_are_cooled_down(noisy):
    p, _, votes, fold = noisy
    assert scored(p, votes, fold).temperature == 1.0
    assert scored(sharpened(p, 0.5), votes, fold).temperature == 2.25
    np.testing.assert_allclose(sharpened(sharpened(p, 0.5), 2.0), p, atol=1e-4)


def copied(votes, times):
    """The votes, and those of the first annotator again, by as many others."""
    first = votes.annotator == 0
    parts = [votes, *(votes.select(first)._replace(annotator=np.full(first.sum(), 6 + j)) for j in range(times))]
    fields = [np.concatenate([getattr(part, name) for part in parts]) for name in VoteList._fields[:4]]
    return VoteList(*fields, 6 + times)


def test_votes_that_err_together_count_less(noisy):
    p, truth, votes, fold = noisy
    more = copied(votes, 6)
    alone, together = scored(p, votes, fold), scored(p, more, fold)
    assert alone.power == 1.0 and together.power <= 0.5
    q, theta = together.labels(more)
    plain = posterior(together.p, theta, more)

    def loss(some):
        return -np.log(some[np.arange(600), truth]).mean()

    assert loss(q) < loss(plain) - 0.1
    assert (q.argmax(axis=1) == truth).mean() > (plain.argmax(axis=1) == truth).mean() + 0.01


def test_the_gain_of_an_input_by_votes_is_a_density(noisy):
    """Over all inputs, each as likely as the next, its mean is 1 for whatever votes; and it is highest at the power by
    which the votes count."""
    p, _, votes, fold = noisy
    trial = Trial.of(p, votes, fold, 8.0)
    prior = p.mean(axis=0)
    for power in (0.3, 1.0):
        s = prior * np.exp(power * trial.evidence)
        kappa = (s / s.sum(axis=1, keepdims=True)) @ (p / prior).T
        np.testing.assert_allclose(kappa.mean(axis=1), 1.0)
        np.testing.assert_allclose(trial.log_kappa(power), np.log(np.diag(kappa)))
    gains = [trial.log_kappa(power).mean() for power in (0.2, 1.0, 3.0)]
    assert gains[1] == max(gains)


def test_annotators_alike_share_what_is_known_of_them(noisy):
    p, _, votes, fold = noisy
    few = votes.select(votes.item < 60)
    assert scored(p, few, fold).strength >= 128.0


def test_an_annotator_knows_the_class_or_answers_at_their_own_rates():
    guesses, knows = np.outer([300.0, 100.0, 200.0], [0.7, 0.2, 0.1]), np.diag([300.0, 100.0, 200.0])
    found = knows_or_guesses(np.stack([guesses, knows]))
    np.testing.assert_allclose(found.sum(axis=2), 1.0)
    np.testing.assert_allclose(found[0], np.tile([0.7, 0.2, 0.1], (3, 1)), atol=0.01)
    np.testing.assert_allclose(found[1], np.eye(3), atol=0.02)


def test_annotators_who_always_say_the_same_do_not_spoil_the_labels(noisy, monkeypatch):
    """Their matrices have nothing in common with those of the others, and ten weak votes are far too sure under
    matrices that follow the noise."""
    p, truth, _, fold = noisy
    rng = np.random.default_rng(1)
    weak = np.where(rng.random((600, 10)) < 0.15, truth[:, None], rng.integers(4, size=(600, 10)))
    label = np.hstack([weak, np.tile(np.arange(16) % 4, (600, 1))])
    votes = VoteList(*(part.ravel() for part in np.indices(label.shape)), label.ravel(), np.ones(label.size), 26)
    found = scored(p, votes, fold)
    monkeypatch.setattr(held_out_votes, "BASES", ("crowd",))
    crowd = scored(p, votes, fold)
    assert found.base == "own" and crowd.base == "crowd"
    alone, own, other = (
        (q.argmax(axis=1) == truth).mean() for q in (p, found.labels(votes)[0], crowd.labels(votes)[0])
    )
    print(alone, own, other, found.temperature, found.power, crowd.temperature, crowd.power, found.strength)
    assert own > alone + 0.02 and own > other + 0.05


def test_the_posterior_multiplies_inputs_and_votes():
    p, theta = np.array([[0.6, 0.4], [0.5, 0.5]]), np.array([[[0.9, 0.1], [0.3, 0.7]]])
    votes = VoteList(np.array([0]), np.array([0]), np.array([1]), np.array([2.0]), 1)
    expected = np.array([0.6 * 0.1**2, 0.4 * 0.7**2])
    np.testing.assert_allclose(posterior(p, theta, votes), [expected / expected.sum(), [0.5, 0.5]])
    expected = np.array([0.6 * 0.1, 0.4 * 0.7])
    np.testing.assert_allclose(posterior(p, theta, votes, 0.5), [expected / expected.sum(), [0.5, 0.5]])


def test_votes_choose_the_candidate(crowd, monkeypatch):
    X, votes, truth = crowd
    said = {
        "ccem": np.full((150, 3), 1 / 3),
        "trace": np.eye(3)[truth] * 0.9 + 1 / 30,
        "aggnet": np.full((150, 3), 1 / 3),
    }
    monkeypatch.setattr(Ensemble, "_unseen", lambda self, name, *rest: said[name])
    learner = Ensemble(**QUICK | {"candidates": tuple(said), "rounds": 0}).fit(X, votes)
    assert learner.chosen_ == "trace" and list(learner.scores_) == ["ccem", "trace", "aggnet", *PLAIN]
    assert learner.scores_["trace"] > learner.scores_["ccem"] == learner.scores_["aggnet"]
    assert (learner.consensus_.labels == truth).mean() > 0.95


def test_confusions_by_votes_alone_are_counts(noisy):
    p, truth, votes, fold = noisy
    known = votes._replace(q=np.random.default_rng(1).dirichlet(np.ones(4), size=600)[votes.item])
    crowd, own = np.zeros((4, 4)), np.zeros((6, 4, 4))
    for m, k, q in zip(known.annotator, known.label, known.q, strict=True):
        own[m, :, k] += q
        crowd[:, k] += q
    crowd = (crowd + 0.25) / (crowd + 0.25).sum(axis=1, keepdims=True)
    expected = (own + 10.0 * crowd) / (own + 10.0 * crowd).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(vote_confusions(p, known, 2.0, "votes"), expected)
    assert scored(p, known, fold).base != "votes"
    noise = np.random.default_rng(2).dirichlet(np.full(4, 0.5), size=600)
    found = scored(noise, votes._replace(q=np.eye(4)[truth][votes.item]), fold)
    assert found.base == "votes" and scored(noise, votes, fold).base != "votes"


@pytest.mark.parametrize("right", [0.7, 1.0])
def test_inputs_of_noise_take_nothing_from_what_votes_say_together(right):
    """Networks of noise predict votes as well as anything does, under matrices that make nothing of the votes."""
    X, truth = blobs(150)
    votes = vote(truth, np.tile(right * np.eye(3) + (1.0 - right) / 3.0, (6, 1, 1)))
    noise = np.random.default_rng(5).normal(size=X.shape)
    learner = Ensemble(**QUICK).fit(noise, votes)
    alone = cw.aggregate(votes).score(truth)
    assert learner.consensus_.score(truth) >= alone - 0.03 and ensemble.SAYS_LITTLE in learner.consensus_.notes
    assert ensemble.SAYS_LITTLE not in Ensemble(**QUICK).fit(X, votes).consensus_.notes


def test_a_round_counts_only_where_votes_are_more_likely(crowd, monkeypatch):
    X, votes, truth = crowd
    said = {"ccem": np.eye(3)[truth] * 0.9 + 1 / 30, "round1": np.full((150, 3), 1 / 3)}
    monkeypatch.setattr(Ensemble, "_unseen", lambda self, name, *rest: said[name])
    learner = Ensemble(**QUICK | {"plain": False}).fit(X, votes)
    assert learner.scores_["round1"] < learner.scores_["ccem"] and learner.weights_ == {"networks": 1.0}
    assert (learner.consensus_.labels == truth).mean() > 0.95


def test_plain_members_have_the_weight_where_networks_know_nothing(crowd, monkeypatch):
    X, votes, truth = crowd
    monkeypatch.setattr(Ensemble, "_unseen", lambda self, *rest: np.full((150, 3), 1 / 3))
    learner = Ensemble(**QUICK).fit(X, votes)
    assert learner.weights_["networks"] < 0.5 < learner.weights_["consensus"] + learner.weights_["shares"]
    assert learner.scores_["round1"] > learner.scores_["ccem"] + 0.1
    assert (learner.predict(X) == truth).mean() > 0.9


def test_the_mean_of_networks_and_plain_members_predicts(crowd, tmp_path):
    X, votes, truth = crowd
    learner = Ensemble(**QUICK).fit(X, votes)
    whole = learner._trainer.network
    assert isinstance(whole, MeanNetwork) and learner.n_averaged_ == 4 and len(whole.networks) == 7
    with torch.no_grad():
        each = [torch.softmax(network(torch.as_tensor(X)), dim=1).numpy() for network in whole.networks]
    assert np.abs(each[0] - each[1]).max() > 1e-4
    networks, *plain = learner.weights_.values()
    assert list(learner.weights_) == ["networks", *PLAIN]
    mean = networks * np.mean(each[:4], axis=0) + sum(w * one for w, one in zip(plain, each[4:], strict=True))
    expected = mean ** (1.0 / learner.temperature_)
    p = learner.predict_proba(X)
    np.testing.assert_allclose(p, expected / expected.sum(axis=1, keepdims=True), atol=1e-6)
    assert (learner.consensus_.labels == truth).mean() > 0.9
    again = cw.load(learner.save(tmp_path / "saved"))
    assert again.weights_ == learner.weights_ and again.scores_ == learner.scores_
    np.testing.assert_allclose(again.predict_proba(X), p, atol=1e-6)


def test_plain_members_have_not_seen_the_votes_on_an_item(crowd, monkeypatch):
    X, votes, truth = crowd
    monkeypatch.setattr(ensemble, "SPREADS", (2.0,))
    fold = np.arange(150) % 3

    def cross_fitted(given, gold=None):
        data, scale = TrainingData(as_inputs(X), given), InputScale.of(as_inputs(X))
        return plain_members(data, gold, fold, scale, VoteList.of(given))

    label = np.where(fold[votes.item] == 0, (votes.label + 1) % 3, votes.label)
    other = cross_fitted(cw.Votes.from_codes(
        votes.item, votes.annotator, label, items=votes.items, annotators=votes.annotators, classes=votes.classes
    ))  # fmt: skip
    for one, two in zip(cross_fitted(votes), other, strict=True):
        np.testing.assert_allclose(one.p[fold == 0], two.p[fold == 0], atol=1e-3)
        assert np.abs(one.p[fold == 1] - two.p[fold == 1]).max() > (0.0 if one.name == "constant" else 0.02)
        assert one.name == "constant" or (one.p.argmax(axis=1) == truth).mean() > 0.9


def noise_about(votes_right, n_features, seed=0):
    """Inputs of which one number in 20 tells two classes apart a little, and three votes on each item."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.arange(240) % 2)
    X = rng.normal(size=(240, n_features)).astype(np.float32)
    X[:, ::20] += 0.6 * (2.0 * truth[:, None] - 1.0)
    label = np.where(rng.random((240, 3)) < votes_right, truth[:, None], 1 - truth[:, None])
    return X, cw.Votes.from_dense(label), truth


def test_poor_votes_on_many_features_ask_for_more_shrinkage(monkeypatch):
    def lengths(votes_right):
        X, votes, _ = noise_about(votes_right, 400)
        data, fold = TrainingData(as_inputs(X), votes), np.arange(240) % 3
        members = plain_members(data, None, fold, InputScale.of(data.inputs), VoteList.of(votes))
        return [float(one.network[1].head.weight.norm()) for one in members[:2]]

    poor, good = lengths(0.6), lengths(0.95)
    monkeypatch.setattr(ensemble, "SPREADS", (2.0,))
    assert max(np.divide(poor, lengths(0.6))) < 0.8 and good == lengths(0.95)


def test_where_inputs_say_nothing_the_shares_of_classes_predict():
    rng = np.random.default_rng(0)
    truth = (rng.random(400) < 0.2).astype(int)
    label = np.where(rng.random((400, 3)) < 0.8, truth[:, None], 1 - truth[:, None])
    X = rng.normal(size=(400, 10)).astype(np.float32)
    learner = Ensemble(folds=3, epochs=20, random_state=0).fit(X, cw.Votes.from_dense(label))
    assert learner.weights_["constant"] > 0.15
    assert (learner.predict(X) == 0).mean() > 0.9
    votes = cw.Votes.from_dense(label)
    data, fold = TrainingData(as_inputs(X), votes), np.arange(400) % 3
    constant = plain_members(data, None, fold, InputScale.of(data.inputs), VoteList.of(votes))[-1]
    assert constant.name == "constant" and abs(constant.p[:, 1].mean() - 0.2) < 0.1
    assert len(np.unique(constant.p[:, 1])) == 3 and torch.softmax(constant.network(torch.zeros(1, 10)), 1)[0, 0] > 0.7


def test_large_inputs_and_single_annotators_have_fewer_plain_members(crowd, monkeypatch):
    X, votes, truth = crowd
    data = TrainingData(as_inputs(X), votes)
    fold, scale = np.arange(150) % 3, InputScale.of(data.inputs)
    alone = TrainingData(data.inputs, cw.Votes.from_dense(truth[:, None]))
    judges = VoteList.of(alone.votes)
    assert [one.name for one in plain_members(alone, None, fold, scale, judges)] == ["shares", "constant"]
    monkeypatch.setattr(ensemble, "MAX_NUMBERS", X.size - 1)
    assert plain_members(data, None, fold, scale, VoteList.of(votes)) == []


def test_a_budget_ends_trainings_early_and_says_so(crowd):
    X, votes, truth = crowd
    seen = []
    learner = Ensemble(**QUICK | {"budget": 1e-3}).fit(X, votes, callback=lambda epoch: seen.append(1))
    assert len(seen) == 6 and (learner.predict(X) == truth).mean() > 0.9  # one epoch each; plain members know
    assert any("The budget of 0.001 s ended 6 of 6 trainings" in note for note in learner.consensus_.notes)
    assert not any("budget" in note for note in Ensemble(**QUICK | {"budget": 600}).fit(X, votes).consensus_.notes)


def test_a_budget_is_shared_evenly():
    turns = Turns(None, [10] * 4, budget=1e-9)
    report = turns.next()
    assert report(Epoch(1, 10, 0.0, None, None, 0.0, 0.0)) is True and turns.cut == 1 and not turns.ended
    assert turns.next()(Epoch(10, 10, 0.0, None, None, 0.0, 0.0)) is False  # the last epoch is not an early end
    assert Turns(None, [10], budget=600).next()(Epoch(1, 10, 0.0, None, None, 0.0, 0.0)) is False


def test_networks_predict_at_the_temperature_of_the_last_round_also_after_saving(crowd, tmp_path, monkeypatch):
    X, votes, _ = crowd
    assert Ensemble(**QUICK | {"rounds": 0}).fit(X, votes).temperature_ == 1.0
    found = iter((1.5, 3.4))
    monkeypatch.setattr(held_out_votes, "nearest_to_one", lambda gains: next(found))
    learner = Ensemble(**QUICK).fit(X, votes)
    assert learner.temperature_ == learner._trainer.network.temperature == 3.4
    p = learner.predict_proba(X)
    learner._trainer.network.temperature = 1.0
    plain = learner.predict_proba(X) ** (1.0 / 3.4)
    np.testing.assert_allclose(p, plain / plain.sum(axis=1, keepdims=True), atol=1e-6)
    learner.save(tmp_path / "saved")
    np.testing.assert_allclose(cw.load(tmp_path / "saved").predict_proba(X), p, atol=1e-6)


def test_a_temperature_is_left_only_where_it_is_clearly_worse():
    rng = np.random.default_rng(0)
    noise = rng.normal(0.0, 1.0, 400)
    gains = {1.0: noise, 0.67: noise - 1.0, 1.5: noise + rng.normal(0.02, 0.3, 400), 3.4: noise - 0.5}
    assert nearest_to_one(gains) == 1.0
    assert nearest_to_one(gains | {3.4: noise + 0.5}) == 3.4
    assert nearest_to_one(gains | {1.0: noise - rng.normal(0.2, 0.3, 400)}) == 1.5


def test_sure_networks_on_hard_items_are_tempered():
    """Networks that are right on 70 % of the items and say 99.9 %: the votes bring them to about that."""
    rng = np.random.default_rng(3)
    truth, said = rng.integers(0, 2, 2000), rng.random(2000) < 0.7
    p = np.where((np.where(said, truth, 1 - truth) == 1)[:, None], [[0.001, 0.999]], [[0.999, 0.001]])
    item = np.repeat(np.arange(2000), 3)
    label = np.where(rng.random(6000) < 0.8, truth[item], 1 - truth[item])
    votes = VoteList(item, np.tile(np.arange(3), 2000), label, np.ones(6000), 3)
    found = scored(p, votes, np.arange(2000) % 5)
    assert found.p.max(axis=1).mean() == pytest.approx(0.7, abs=0.06)
    assert 2.0 < found.network_temperature <= found.temperature


def test_new_votes_count_with_the_power_also_after_saving(crowd, tmp_path):
    X, votes, _ = crowd
    learner = Ensemble(**QUICK | {"dependence": "none"}).fit(X, votes)
    learner._trainer.head.power = learner.vote_power_ = 0.4
    theta = learner.confusion_[votes.annotator, :, votes.label]
    log_q = np.log(learner.predict_proba(X))
    np.add.at(log_q, votes.item, 0.4 * np.log(theta))
    q = np.exp(log_q) / np.exp(log_q).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(learner.predict_proba(X, votes), q, atol=1e-5)
    learner.save(tmp_path / "saved")
    again = cw.load(tmp_path / "saved")
    assert again.vote_power_ == 0.4
    np.testing.assert_allclose(again.predict_proba(X, votes), q, atol=1e-5)


def test_votes_that_count_less_have_less_correlation_left(crowd, monkeypatch):
    X, votes, _ = crowd
    rho = {}
    for powers in ((1.0,), (0.5,)):
        monkeypatch.setattr(held_out_votes, "POWERS", powers)
        learner = Ensemble(**QUICK).fit(X, votes)
        found = learner.consensus_
        rho[learner.vote_power_] = found.dependence.rho
        said = any("with the power 0.5" in note for note in found.notes)
        assert learner.vote_power_ == powers[0] and said == (powers[0] < 1.0)
        fixed = Ensemble(**QUICK | {"dependence": 0.2}).fit(X, votes)
        assert fixed.consensus_.dependence.rho == 0.2
    assert rho[0.5] < 0.75 * rho[1.0]


def test_predictions_have_not_seen_the_votes_on_an_item(crowd):
    """Other votes on one fold change nothing of what is said there."""
    X, votes, _ = crowd

    def unseen(given):
        learner = Ensemble(**QUICK)
        learner.seed_ = 0
        fold = learner._folds(given)
        return learner._unseen("ccem", TrainingData(as_inputs(X), given), None, fold, Turns(None, [4, 4])), fold

    p, fold = unseen(votes)
    own = fold == 0
    label = np.where(own[votes.item], (votes.label + 1) % 3, votes.label)
    other, _ = unseen(cw.Votes.from_codes(
        votes.item, votes.annotator, label, items=votes.items, annotators=votes.annotators, classes=votes.classes
    ))  # fmt: skip
    assert np.array_equal(p[own], other[own]) and not np.array_equal(p[~own], other[~own])


def test_a_cross_fit_has_its_own_weights(crowd):
    X, votes, _ = crowd
    learner = Ensemble(**QUICK)
    plain = learner.cross_fit(X[:60], votes[:60]).p
    learner.fit(X, votes, sample_weight=np.linspace(0.0, 1.0, len(X)))
    np.testing.assert_array_equal(learner.cross_fit(X[:60], votes[:60]).p, plain)
    weighted = Ensemble(**QUICK, class_weight={0: 5.0}).cross_fit(X[:60], votes[:60]).p
    assert weighted[:, 0].mean() > plain[:, 0].mean()


def test_a_cross_fit_gives_predictions_alone(crowd):
    X, votes, truth = crowd
    some = votes.select(votes.item >= 10)
    given = QUICK | {"rounds": 0}
    learner, seen = Ensemble(**given), []
    p, fold, notes = learner.cross_fit(X, some, callback=lambda epoch: seen.append(epoch.epochs))
    assert seen == [8] * 8 and notes == [] and not hasattr(learner, "consensus_")
    assert (fold[:10] == -1).all() and set(fold[10:]) == {0, 1}
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (p.argmax(axis=1) == truth)[:10].mean() > 0.7  # items without votes: the mean of both networks
    found = Ensemble(**given).fit(X, some).consensus_
    np.testing.assert_allclose(np.exp(found.item_prior), p)
    assert found.dependence.source == "crowds" and found.dependence.reason in found.notes


def test_gold_is_certain(crowd):
    X, votes, truth = crowd
    gold = np.full(150, -1)
    gold[:20] = (truth[:20] + 1) % 3
    learner = Ensemble(**QUICK).fit(X, votes, gold)
    np.testing.assert_allclose(learner.consensus_.posterior[:20], np.eye(3)[gold[:20]])


def test_a_callback_counts_all_epochs_and_ends_the_fit(crowd):
    X, votes, _ = crowd
    seen = []
    Ensemble(**QUICK).fit(X, votes, callback=lambda epoch: seen.append((epoch.epoch, epoch.epochs)))
    assert seen == [(n, 24) for n in range(1, 25)]
    seen.clear()
    Ensemble(**QUICK).fit(X, votes, callback=lambda epoch: seen.append(epoch.epoch) or len(seen) == 3)
    assert seen == [1, 2, 3]


def test_it_goes_on_from_its_checkpoints(crowd, tmp_path):
    X, votes, _ = crowd
    whole = Ensemble(**QUICK).fit(X, votes)
    Ensemble(**QUICK, checkpoint=tmp_path / "a.pt").fit(X, votes, callback=lambda epoch: epoch.epoch == 6)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a-ccem-0.pt", "a-ccem-1.pt"]
    again = Ensemble(**QUICK, checkpoint=tmp_path / "a.pt").fit(X, votes)
    assert np.array_equal(again.predict_proba(X), whole.predict_proba(X))
    assert len(list(tmp_path.iterdir())) == 6


def test_folds_can_have_fewer_epochs(crowd):
    X, votes, _ = crowd
    seen = []
    learner = Ensemble(**QUICK | {"fold_epochs": 1, "holdout": 0.1})
    learner.fit(X, votes, callback=lambda epoch: seen.append((epoch.epoch, epoch.epochs)))
    assert seen == [(n, 12) for n in range(1, 13)] and learner.epochs == 4 and len(learner.history_) == 4
    assert -2.0 < learner.history_[-1].held_out < 0.0


def test_many_votes_are_judged_by_those_on_some_items(noisy, monkeypatch):
    votes = noisy[2]
    assert votes.judges(4) is votes
    assert len(votes.judges(4_000).item) < 1500  # many classes: less memory for each vote
    monkeypatch.setattr(held_out_votes, "MAX_JUDGES", 1000)
    some = votes.judges(4)
    assert 800 < len(some.item) < 1200
    assert (np.bincount(some.item)[np.unique(some.item)] == 6).all()
    p, _, _, fold = noisy
    found = scored(p, some, fold)
    assert found.p.shape == p.shape
    np.testing.assert_allclose(found.p, sharpened(p, found.temperature))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"candidates": ("raykar",)}, ParameterError, "raykar has no network"),
        ({"candidates": ("ensemble",)}, ParameterError, "ensemble has no network"),
        ({"candidates": ("mag-mix",)}, ParameterError, "Unknown learner"),
        ({"candidates": "ccem"}, ParameterError, "candidates"),
        ({"folds": 1}, ParameterError, "folds"),
        ({"folds": 151}, InputError, "150 items .* folds=151"),
    ],
)
def test_wrong_settings_are_refused(crowd, given, error, words):
    with pytest.raises(error, match=words):
        Ensemble(**QUICK | given).fit(crowd[0], crowd[1])


def test_many_rows_of_numbers_take_fewer_epochs_unless_they_are_given(crowd, monkeypatch):
    X, votes, _ = crowd
    given = {name: value for name, value in QUICK.items() if name != "epochs"}
    monkeypatch.setattr(ensemble, "MAX_ROWS", 150 * 12)
    seen = []
    for more in ({}, {"epochs": 3}):
        Ensemble(**given | more).fit(X, votes, callback=lambda epoch: seen.append(epoch.epochs) or True)
    assert seen == [6 * 12, 6 * 3]
