"""Networks that alternate with inference: `aggnet`, `mbem`, `deep-mf`, `deep-bp`."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import digamma, gammaln

import crowdwise as cw
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.alternating_deep_bp import DeepBP, Messages
from crowdwise.learners.alternating_em import (
    MBEM,
    AggNet,
    CountedConfusions,
    DeepMF,
    HardPredictions,
    MeanFieldTheta,
    clipped,
)
from crowdwise.learners.vote_edges import Edges
from crowdwise.methods.messages_bp import BeliefPropagation
from learners.crowd import small

HEADS = {
    "aggnet": lambda M, K: CountedConfusions(M, K, 0.5),
    "mbem": lambda M, K: HardPredictions(M, K, 0.5, 2, 4),
    "deep-mf": lambda M, K: MeanFieldTheta(M, K, 0.9, (2.0, 0.7)),
    "deep-bp": lambda M, K: Messages(M, K, 0.9, BeliefPropagation(prior=(2.0, 0.7), max_iter=20, random_state=0)),
}


def tiny(seed=0, n=9, n_annotators=4, n_classes=3, weights=True):
    """Votes with weights (item 2 has none), log probabilities, and a posterior."""
    rng = np.random.default_rng(seed)
    item, who = np.nonzero(rng.random((n, n_annotators)) < 0.6)
    item, who = item[item != 2], who[item != 2]
    label = rng.integers(n_classes, size=len(item))
    votes = Votes.from_codes(
        item, who, label, items=range(n), annotators=range(n_annotators), classes=range(n_classes),
        weight=rng.uniform(0.5, 2.0, len(item)) if weights else None,
    )  # fmt: skip
    log_f = np.log(rng.dirichlet(np.ones(n_classes), n))
    return votes, log_f, rng.dirichlet(np.ones(n_classes), n)


def counts_by_loops(votes, q):
    out = np.zeros((votes.n_annotators, q.shape[1], q.shape[1]))
    for n, m, label, w in zip(votes.item, votes.annotator, votes.label, votes.weights, strict=True):
        for k in range(q.shape[1]):
            out[m, k, label] += w * q[n, k]
    return out


def posterior_by_loops(votes, log_prior, score):
    out = np.array(log_prior)
    for n, m, label, w in zip(votes.item, votes.annotator, votes.label, votes.weights, strict=True):
        for k in range(out.shape[1]):
            out[n, k] += w * score[m, k, label]
    out = np.exp(out)
    return out / out.sum(axis=1, keepdims=True)


def started(key, votes, gold=None):
    head = HEADS[key](votes.n_annotators, votes.n_classes)
    head.gold = gold
    head.start(votes)
    return head


# -------------------------------------------------------------------- the steps


class TestSteps:
    @pytest.mark.parametrize("seed", range(3))
    def test_aggnet(self, seed):
        votes, log_f, q = tiny(seed)
        theta = counts_by_loops(votes, q) + 0.5 / 3
        theta /= theta.sum(axis=2, keepdims=True)
        expected = posterior_by_loops(votes, log_f, np.log(theta))
        np.testing.assert_allclose(started("aggnet", votes).infer(q, log_f), expected, atol=1e-12)

    @pytest.mark.parametrize("seed", range(3))
    def test_mbem(self, seed):
        votes, log_f, q = tiny(seed)
        hard = np.eye(3)[log_f.argmax(axis=1)]
        hard[np.diff(votes.indptr) == 0] = 0.0
        theta = counts_by_loops(votes, hard) + 0.5 / 3
        theta /= theta.sum(axis=2, keepdims=True)
        pi = hard.sum(axis=0) + 1 / 3
        expected = posterior_by_loops(votes, np.tile(np.log(pi / pi.sum()), (9, 1)), np.log(theta))
        np.testing.assert_allclose(started("mbem", votes).infer(q, log_f), expected, atol=1e-12)

    @pytest.mark.parametrize("seed", range(3))
    def test_deep_mf(self, seed):
        votes, log_f, q = tiny(seed)
        beta = counts_by_loops(votes, q) + np.where(np.eye(3), 2.0, 0.7)
        score = digamma(beta) - digamma(beta.sum(axis=2, keepdims=True))
        expected = posterior_by_loops(votes, clipped(log_f, 0.9), score)
        head = started("deep-mf", votes)
        np.testing.assert_allclose(head.infer(q, log_f), expected, atol=1e-12)
        params = head.params_of(q)
        np.testing.assert_allclose(head.mean(params), beta / beta.sum(axis=2, keepdims=True), atol=1e-12)

    def test_deep_bp_is_belief_propagation_with_the_network_as_prior(self):
        votes, log_f, _ = tiny(0, n_classes=2, weights=False)
        head = started("deep-bp", votes)
        head.model.tol, head.model.max_iter = 1e-9, 500
        head.begin_epoch(0, lambda: None)
        alone = BeliefPropagation(prior=(2.0, 0.7), tol=1e-9, max_iter=500).fit(votes).consensus_.posterior
        np.testing.assert_allclose(head.target.numpy(), alone, atol=1e-6)
        head.begin_epoch(1, lambda: torch.as_tensor(log_f))
        prior = np.exp(clipped(log_f, 0.9))
        model = BeliefPropagation(prior=(2.0, 0.7), tol=1e-9, max_iter=500).fit(votes, item_prior=prior)
        np.testing.assert_allclose(head.target.numpy(), model.consensus_.posterior, atol=1e-5)
        np.testing.assert_allclose(head.counted.numpy(), model.consensus_.confusion, atol=1e-5)

    def test_deep_bp_is_exact_on_a_tree(self):
        """All ways the truths can be, each with its probability: Dirichlet-multinomials times the network."""
        item, who, label = [0, 1, 1, 2], [0, 0, 1, 1], [0, 1, 1, 0]
        votes = Votes.from_codes(item, who, label, items=range(3), annotators=range(2), classes=range(2))
        f = np.array([[0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
        alpha, expected = np.array([[2.0, 0.7], [0.7, 2.0]]), np.zeros((3, 2))
        for z in itertools.product(range(2), repeat=3):
            p = np.prod(f[np.arange(3), z])
            for m in range(2):
                beta = alpha.copy()
                for n, annotator, said in zip(item, who, label, strict=True):
                    beta[z[n], said] += annotator == m
                log_b = [gammaln(t).sum(axis=1) - gammaln(t.sum(axis=1)) for t in (beta, alpha)]
                p *= np.exp((log_b[0] - log_b[1]).sum())
            for n in range(3):
                expected[n, z[n]] += p
        head = started("deep-bp", votes)
        head.begin_epoch(1, lambda: torch.as_tensor(np.log(f)))
        np.testing.assert_allclose(head.target.numpy(), expected / expected.sum(axis=1, keepdims=True), atol=1e-6)

    @pytest.mark.parametrize("key", HEADS)
    def test_known_truth_is_held_to(self, key):
        votes, log_f, _ = tiny()
        gold = np.full(9, -1)
        gold[[0, 2, 5]] = [1, 2, 0]
        head = started(key, votes, gold)
        for epoch in range(3):
            head.begin_epoch(epoch, lambda: torch.as_tensor(log_f))
            np.testing.assert_allclose(head.target[[0, 2, 5]].numpy(), np.eye(3)[[1, 2, 0]], atol=1e-7)

    def test_holding_the_network_back(self):
        log_f = np.log(np.array([[0.98, 0.01, 0.01], [0.4, 0.3, 0.3]]))
        assert clipped(log_f, 1.0) is log_f
        f = np.exp(clipped(log_f, 0.8))
        np.testing.assert_allclose(f, [[0.8, 0.1, 0.1], [0.4, 0.3, 0.3]], atol=1e-12)
        assert np.exp(clipped(np.log(np.array([[1 - 1e-9, 1e-9]])), 0.9))[0] == pytest.approx([0.9, 0.1])

    def test_what_is_cut_off_goes_evenly_to_the_others(self):
        """The text's clipping: (.97, .02, .01) at .9 leaves .07, half of it for each of the others."""
        f = np.array([[0.97, 0.02, 0.01], [0.01, 0.97, 0.02], [0.5, 0.3, 0.2]])
        expected = [[0.9, 0.055, 0.045], [0.045, 0.9, 0.055], [0.5, 0.3, 0.2]]
        np.testing.assert_allclose(np.exp(clipped(np.log(f), 0.9)), expected, atol=1e-12)
        # Where what is spread would lift another class over the limit, the rest gets it.
        np.testing.assert_allclose(
            np.exp(clipped(np.log([[0.46, 0.44, 0.1]]), 0.45)), [[0.45, 0.445, 0.105]], atol=1e-12
        )
        np.testing.assert_allclose(np.exp(clipped(np.log([[0.5, 0.39, 0.11]]), 0.4)), [[0.4, 0.4, 0.2]], atol=1e-12)

    def test_clipping_any_row(self):
        f = np.random.default_rng(0).dirichlet(np.full(5, 0.3), size=500)
        for highest in (0.21, 0.4, 0.7, 0.99):
            g = np.exp(clipped(np.log(f), highest))
            np.testing.assert_allclose(g.sum(axis=1), 1.0, atol=1e-9)
            assert g.max() <= highest + 1e-9
            assert (np.diff(np.take_along_axis(g, f.argsort(axis=1), axis=1), axis=1) >= -1e-12).all()


# -------------------------------------------------------------------- the loss


@pytest.mark.parametrize("key", HEADS)
class TestLoss:
    def head_and_batch(self, key, index=(0, 2, 3, 7)):
        votes, log_f, q = tiny()
        head = started(key, votes).double()
        head.target = torch.as_tensor(q)
        logits = torch.as_tensor(np.random.default_rng(1).normal(size=(len(index), 3)), dtype=torch.float64)
        logits.requires_grad_()
        return head, Edges.of(votes).batch(torch.tensor(index), logits), q, logits

    def test_is_the_cross_entropy_against_the_posterior(self, key):
        for index in ((0, 2, 3, 7), (2,)):
            head, batch, q, logits = self.head_and_batch(key, index)
            f = torch.softmax(logits, dim=1).detach().numpy()
            expected = -np.mean([sum(q[n, k] * np.log(f[i, k]) for k in range(3)) for i, n in enumerate(index)])
            assert float(head.loss(batch).detach()) == pytest.approx(expected, abs=1e-12)

    def test_gradient(self, key):
        head, batch, _, logits = self.head_and_batch(key)
        assert torch.autograd.gradcheck(lambda z: head.loss(replace(batch, logits=z)), (logits,))

    def test_posterior_is_network_and_votes(self, key):
        head, batch, _, logits = self.head_and_batch(key)
        head.begin_epoch(0, lambda: None)
        head.begin_epoch(1, lambda: torch.as_tensor(tiny()[1]))
        head.finish(torch.as_tensor(tiny()[1]), None)
        votes = tiny()[0]
        log_f = clipped(torch.log_softmax(logits, dim=1).detach().numpy(), head.max_probability)
        full = np.zeros((9, 3))
        full[[0, 2, 3, 7]] = log_f
        expected = posterior_by_loops(votes, full, head.score.double().numpy())[[0, 2, 3, 7]]
        np.testing.assert_allclose(head.posterior_log_probs(batch).detach().exp().numpy(), expected, atol=1e-6)

    def test_order_of_annotators_and_classes(self, key):
        """The posterior after two rounds moves with the names, and so does the loss."""
        votes, log_f, _ = tiny()
        who, what = np.array([2, 0, 3, 1]), np.array([1, 2, 0])
        moved = Votes.from_codes(
            votes.item, who[votes.annotator], what[votes.label], items=range(9), annotators=range(4), classes=range(3),
            weight=votes.weights,
        )  # fmt: skip
        other = np.empty_like(log_f)
        other[:, what] = log_f
        targets = []
        for v, f in ((votes, log_f), (moved, other)):
            if key == "deep-bp":  # sampled draws depend on the names of classes where they are equally common
                v = replace(v, classes=np.array(["a", "b", "c"])[what if v is votes else np.arange(3)])
            head = started(key, v)
            for epoch in range(4):
                head.begin_epoch(epoch, lambda f=f: torch.as_tensor(f))
            targets.append(head.target.numpy())
        np.testing.assert_allclose(targets[1][:, what], targets[0], atol=2e-5)

    def test_weights_are_repeated_votes(self, key):
        votes, log_f, _ = tiny(weights=False)
        heavy = replace(votes, weight=np.full(votes.n_votes, 2.0))
        twice = Votes.from_codes(
            np.repeat(votes.item, 2), np.repeat(votes.annotator, 2), np.repeat(votes.label, 2), items=range(9),
            annotators=range(4), classes=range(3), on_duplicate="all",
        )  # fmt: skip
        targets = []
        for v in (heavy, twice):
            head = started(key, v)
            for epoch in range(4):
                head.begin_epoch(epoch, lambda: torch.as_tensor(log_f))
            targets.append(head.target.numpy())
        np.testing.assert_allclose(targets[0], targets[1], atol=1e-6)


# -------------------------------------------------------------------- learning


LEARNERS = {"aggnet": AggNet, "mbem": MBEM, "deep-mf": DeepMF, "deep-bp": DeepBP}


@pytest.mark.parametrize("key", LEARNERS)
def test_inputs_help(key):
    X, votes, truth = small(n=300, n_annotators=15, votes_per_item=2, low=0.45, high=0.85)
    model = LEARNERS[key](epochs=8 if key == "deep-bp" else 12, lr=5e-3, random_state=0).fit(X, votes)
    assert model.consensus_.score(truth) > cw.aggregate(votes, "dawid-skene").score(truth) + 0.05
    X_new, _, truth_new = small(n=300, seed=1)
    assert (model.predict(X_new) == truth_new).mean() > 0.85


@pytest.mark.parametrize("key", LEARNERS)
def test_interrupted_training_goes_on_as_if_it_had_not_been(key, tmp_path):
    X, votes, _ = small(n=120)
    whole = LEARNERS[key](epochs=6, random_state=0).fit(X, votes)
    file = tmp_path / "checkpoint.safetensors"
    broken = LEARNERS[key](epochs=6, random_state=0, checkpoint=file)
    broken.fit(X, votes, callback=lambda epoch: epoch.epoch == 4)
    resumed = LEARNERS[key](epochs=6, random_state=0, checkpoint=file).fit(X, votes)
    assert len(resumed.history_) == 6
    np.testing.assert_allclose(resumed.predict_proba(X), whole.predict_proba(X), atol=1e-6)


def test_mbem_trains_anew_in_every_round():
    X, votes, _ = small(n=120)
    losses = [epoch.loss for epoch in MBEM(epochs=20, n_rounds=2, lr=1e-2, random_state=0).fit(X, votes).history_]
    assert losses[10] > losses[9] + 0.1  # from the first weights again
    assert MBEM(epochs=6, n_rounds=3, random_state=0)._head(votes, 128).begins == {2, 4}


def test_held_out_votes_are_not_learned_from():
    X, votes, _ = small(n=150)
    model = DeepBP(epochs=3, holdout=0.3, random_state=0).fit(X, votes)
    assert model.history_[-1].held_out is not None
    assert model._trainer.head.votes.n_votes < votes.n_votes == len(model._trainer.head.seen_label)


def test_deep_bp_takes_any_prior():
    X, votes, truth = small(n=200, n_annotators=40)

    def hammers(rng, size):
        right = rng.choice([0.34, 0.8], size=size)
        return np.where(np.eye(3), right[:, None, None], (1 - right[:, None, None]) / 2)

    alone = cw.aggregate(votes, "majority").score(truth)
    for given in ({"prior": hammers}, {"coins": "one"}, {"coins": "one", "prior": (3.0, 1.0)}):
        model = DeepBP(epochs=10, random_state=0, **given).fit(X, votes)
        assert model.consensus_.score(truth) > alone + 0.05


def test_bad_parameters():
    X, votes, _ = small(n=30)
    for learner, bad in (
        (AggNet, {"prior": "none"}), (AggNet, {"prior": -1.0}), (MBEM, {"n_rounds": 0}),
        (DeepMF, {"max_probability": 0.3}), (DeepMF, {"max_probability": 1.2}), (DeepMF, {"prior": 0.0}),
        (DeepBP, {"coins": "two"}), (DeepBP, {"max_sweeps": 0}),
        (DeepBP, {"samples": 1.5}), (DeepBP, {"tol": -1.0}), (DeepBP, {"damping": 1.0}),
        (DeepBP, {"prior": lambda rng, size: None, "coins": "one"}),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match=next(iter(bad))):
            learner(epochs=1, **bad).fit(X, votes)


# -------------------------------------------------------------------- what the papers claim


def test_mean_field_follows_spammers_where_belief_propagation_does_not():
    """Annotators of Dir(2, 1), a model of Dir(2, 1.2), and two who answer all 1,000 items at random."""
    score = {}
    for n in (0, 2):
        crowd = cw.simulate.regular(1000, l=3, r=4, a=2.0, b=1.0, n_extreme_spammers=n, random_state=0)
        for key in ("bp", "mf"):
            score[key, n] = cw.aggregate(crowd.votes, key, prior=(2.0, 1.2)).score(crowd.truth)
        x = crowd.truth[:, None] + np.random.default_rng(0).normal(size=(1000, 1))
        model = DeepBP(prior=(2.0, 1.2), epochs=3, random_state=0).fit(x, crowd.votes)
        score["deep-bp", n] = model.consensus_.score(crowd.truth)
    assert score["mf", 2] < score["mf", 0] - 0.05
    assert score["bp", 2] > score["bp", 0] - 0.02
    assert score["deep-bp", 2] > score["deep-bp", 0] - 0.02
    assert score["deep-bp", 2] > score["bp", 2] + 0.02


def test_belief_propagation_knows_annotators_who_are_all_or_nothing():
    """Accuracies from Beta(0.2, 0.1): most are always right or always wrong."""
    gain = []
    for seed in range(3):
        crowd = cw.simulate.regular(400, l=3, r=4, a=0.2, b=0.1, random_state=seed)
        x = crowd.truth[:, None] + np.random.default_rng(seed).normal(size=(400, 1))
        bp, mf = (
            learner(prior=(0.2, 0.1), epochs=6, random_state=0).fit(x, crowd.votes).consensus_.score(crowd.truth)
            for learner in (DeepBP, DeepMF)
        )
        gain.append(bp - mf)
    assert np.mean(gain) >= 0.0 and min(gain) > -0.02


def test_max_probability_bounds_the_harm_of_useless_inputs():
    crowd = cw.simulate.regular(400, l=3, r=4, a=1.0, b=0.5, random_state=0)
    x = np.random.default_rng(0).normal(size=(400, 300))  # more inputs than items: learned by heart
    alone = cw.aggregate(crowd.votes, "bp", prior=(1.0, 0.5)).score(crowd.truth)
    score = {
        highest: DeepBP(prior=(1.0, 0.5), max_probability=highest, epochs=15, lr=5e-3, random_state=0)
        .fit(x, crowd.votes)
        .consensus_.score(crowd.truth)
        for highest in (0.6, 1.0)
    }
    assert score[0.6] > alone - 0.03
    assert score[0.6] >= score[1.0]


def test_messages_over_3000_votes_take_seconds():
    import time

    crowd = cw.simulate.regular(1000, l=3, r=4, random_state=0)
    head = started("deep-bp", crowd.votes)
    began = time.process_time()
    head.begin_epoch(0, lambda: None)
    assert time.process_time() - began < 5.0
