"""`max-mig`: the gain against its definition, where W starts, what classes are called, the starts, the forecaster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners import information_max_mig, networks
from crowdwise.learners.information_max_mig import (
    EVEN,
    Aggregator,
    MaxMIG,
    class_shares,
    gain_gradients,
    match_classes,
    name_classes,
    vote_confusions,
)
from crowdwise.learners.vote_edges import Edges
from learners.crowd import blobs, confusions, information_gain, small, vote


def rows(n=6, K=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(K), n), rng.dirichlet(np.ones(K), n), rng.dirichlet(np.full(K, 5.0))


def plain_gain(h, g, p, kind):
    """A double loop over i and j."""
    n = len(h)
    same = other = 0.0
    for i in range(n):
        for j in range(n):
            kappa = sum(h[i, k] * g[j, k] / p[k] for k in range(len(p)))
            if i == j:
                same += {"kl": 1 + np.log(kappa), "pearson": 2 * (kappa - 1), "js": np.log(2 * kappa / (1 + kappa))}[
                    kind
                ]
            else:
                other += {"kl": kappa, "pearson": kappa**2 - 1, "js": np.log((1 + kappa) / 2)}[kind]
    return same / n - other / (n * (n - 1))


def log(a):
    return torch.from_numpy(np.log(a))


def head_of(votes, gain="kl", prior=None, tuned=False, begin="votes"):
    K = votes.n_classes
    p = torch.full((K,), 1.0 / K) if prior is None else torch.as_tensor(prior, dtype=torch.float32)
    head = Aggregator(votes.n_annotators, K, gain, p, tuned, 0.01, begin)
    head.start(votes)
    return head


def weighted(seed=0, n=9, M=4, K=3):
    """Votes with weights; item 2 and annotator 3 have none."""
    rng = np.random.default_rng(seed)
    item, who = np.nonzero(rng.random((n, M - 1)) < 0.7)
    item, who = item[item != 2], who[item != 2]
    return Votes.from_codes(
        item, who, rng.integers(K, size=len(item)), items=range(n), annotators=range(M), classes=range(K),
        weight=rng.choice([0.5, 1.0, 3.0], len(item)),
    )  # fmt: skip


def whole(votes, logits):
    return Edges.of(votes).batch(torch.arange(len(votes)), logits)


@pytest.mark.parametrize("kind", ["kl", "pearson", "js"])
class TestGain:
    @pytest.mark.parametrize("seed", range(3))
    def test_against_a_double_loop(self, kind, seed):
        h, g, p = rows(seed=seed)
        for found in (gain_gradients(log(h), log(g), log(p), kind)[0], information_gain(log(h), log(g), log(p), kind)):
            assert float(found) == pytest.approx(plain_gain(h, g, p, kind), abs=1e-10)

    def test_independent_rows_share_nothing_and_equal_ones_share_all(self, kind):
        p = np.full(3, 1 / 3)
        even = np.full((300, 3), 1 / 3)
        sure = np.tile(np.eye(3) * (1 - 3e-9) + 1e-9, (100, 1))
        most = {"kl": np.log(3), "pearson": 2.0, "js": np.log(1.5) + np.log(2) / 3}
        nothing = float(gain_gradients(log(even), log(even), log(p), kind)[0])
        assert nothing == pytest.approx(0.0, abs=1e-9)
        found = float(gain_gradients(log(sure), log(sure), log(p), kind)[0])
        assert found == pytest.approx(most[kind], abs=0.03)

    def test_swapping_the_names_of_classes_changes_nothing(self, kind):
        h, g, p = rows()
        order = [2, 0, 1]
        one = float(gain_gradients(log(h), log(g), log(p), kind)[0])
        two = float(gain_gradients(log(h[:, order]), log(g[:, order]), log(p[order]), kind)[0])
        assert one == pytest.approx(two, abs=1e-12)

    def test_one_row_has_nothing_to_be_compared_with(self, kind):
        h, g, p = rows(n=1)
        assert np.isfinite(float(gain_gradients(log(h), log(g), log(p), kind)[0]))

    def test_rows_that_exclude_each_other_stay_finite(self, kind):
        h = np.array([[1.0, 1e-30], [1e-30, 1.0]])
        found = gain_gradients(log(h), log(h[::-1].copy()), log(np.full(2, 0.5)), kind)
        assert all(torch.isfinite(part).all() for part in found)


class TestStart:
    def test_w_starts_at_the_log_of_confusions_against_the_shares(self):
        votes = weighted()
        shares = np.zeros((len(votes), 3))
        for n, k, w in zip(votes.item, votes.label, votes.weights, strict=True):
            shares[n, k] += w
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        T = np.zeros((4, 3, 3))
        for n, m, k, w in zip(votes.item, votes.annotator, votes.label, votes.weights, strict=True):
            T[m, :, k] += w * shares[n]
        for m in range(4):
            for k in range(3):
                if T[m, k].sum() > 0:
                    T[m, k] /= T[m, k].sum()
        np.testing.assert_allclose(vote_confusions(votes, 0.01), T + 0.01, atol=1e-12)
        np.testing.assert_allclose(head_of(votes).W.detach().numpy(), np.log(T + 0.01), atol=1e-5)

    def test_who_never_voted_says_nothing_of_the_class(self):
        W = head_of(weighted()).W.detach().numpy()
        assert (W[3] == W[3, 0, 0]).all()

    def test_the_rare_start_leaves_out_who_always_says_the_same(self):
        rng = np.random.default_rng(0)
        truth = rng.integers(3, size=300)
        labels = np.column_stack([truth, truth, *[np.zeros(300, dtype=int)] * 4])
        votes = Votes.from_dense(labels)
        plain, rare = vote_confusions(votes, 0.01), vote_confusions(votes, 0.01, rare=True)
        assert plain[0, 0].max() < 0.45  # the first class looks like all of them
        np.testing.assert_allclose(rare[0], np.eye(3) + 0.01, atol=0.03)
        learner = MaxMIG(start="rare", epochs=1, random_state=0).fit(np.eye(3)[truth], votes)
        assert learner.start_ == "rare"

    def test_the_even_start(self):
        votes = weighted()
        per_item = votes.weights.sum() / (len(votes) - 1)
        W = head_of(votes, begin="even").W.detach().numpy()
        np.testing.assert_allclose(W, np.broadcast_to(EVEN / per_item * np.eye(3), (4, 3, 3)), atol=1e-6)

    def test_the_aggregator_adds_up_votes(self):
        votes = weighted()
        head = head_of(votes, prior=[0.2, 0.5, 0.3]).double()
        batch = whole(votes, torch.zeros((len(votes), 3), dtype=torch.float64))
        got, W = head.log_g(batch).detach().exp().numpy(), head.W.detach().numpy()
        for n in range(len(votes)):
            score = np.log([0.2, 0.5, 0.3])
            for s in range(votes.indptr[n], votes.indptr[n + 1]):
                score = score + votes.weights[s] * W[votes.annotator[s], :, votes.label[s]]
            np.testing.assert_allclose(got[n], np.exp(score) / np.exp(score).sum(), atol=1e-6)
        np.testing.assert_allclose(got[2], [0.2, 0.5, 0.3], atol=1e-6)

    def test_strangers_add_nothing(self):
        votes = weighted()
        head = head_of(votes).double()
        strange = replace(votes, annotator=np.full_like(votes.annotator, 4), annotators=np.arange(5))
        got = head.log_g(whole(strange, torch.zeros((9, 3), dtype=torch.float64))).detach().exp().numpy()
        np.testing.assert_allclose(got, 1.0 / 3.0, atol=1e-6)


class TestHead:
    @pytest.mark.parametrize("kind", ["kl", "pearson", "js"])
    def test_the_loss_is_minus_the_gain(self, kind):
        votes = weighted()
        head = head_of(votes, kind, [0.2, 0.5, 0.3]).double()
        logits = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 3)))
        batch = whole(votes, logits)
        h, g = torch.softmax(logits, dim=1).numpy(), head.log_g(batch).detach().exp().numpy()
        p = head.log_p.detach().exp().numpy()
        assert float(head.loss(batch).detach()) == pytest.approx(-plain_gain(h, g, p, kind), abs=1e-9)

    @pytest.mark.parametrize("kind", ["kl", "pearson", "js"])
    def test_permuting_annotators_and_classes_changes_nothing(self, kind):
        votes = weighted()
        prior = np.array([0.2, 0.5, 0.3])
        logits = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 3)))
        before = float(head_of(votes, kind, prior).double().loss(whole(votes, logits)).detach())
        who, what = np.array([2, 0, 3, 1]), np.array([1, 2, 0])
        turned = Votes.from_codes(
            votes.item, np.argsort(who)[votes.annotator], np.argsort(what)[votes.label], items=range(9),
            annotators=range(4), classes=range(3), weight=votes.weights,
        )  # fmt: skip
        after = float(head_of(turned, kind, prior[what]).double().loss(whole(turned, logits[:, what])).detach())
        assert after == pytest.approx(before, abs=1e-6)

    def test_the_posterior_is_h_times_g_over_p(self):
        votes = weighted()
        head = head_of(votes, prior=[0.2, 0.5, 0.3]).double()
        logits = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 3)))
        batch = whole(votes, logits)
        q = torch.softmax(logits, dim=1).numpy() * head.log_g(batch).detach().exp().numpy() / [0.2, 0.5, 0.3]
        got = head.posterior_log_probs(batch).detach().exp().numpy()
        np.testing.assert_allclose(got, q / q.sum(axis=1, keepdims=True), atol=1e-6)


class TestPrior:
    def fitted(self, prior, **more):
        X, votes, _ = small(n=80)
        learner = MaxMIG(prior=prior, epochs=2, random_state=0, **more).fit(X, votes)
        return votes, learner._trainer.head.log_p.detach().exp().numpy(), learner

    def test_uniform_votes_and_given_stay(self):
        np.testing.assert_allclose(self.fitted("uniform")[1], 1 / 3, atol=1e-6)
        votes, p, _ = self.fitted("votes")
        np.testing.assert_allclose(p, class_shares(votes), atol=1e-5)
        np.testing.assert_allclose(self.fitted([1, 2, 5])[1], [0.125, 0.25, 0.625], atol=1e-6)

    def test_votes_are_the_consensus_and_nearly_even_is_even(self):
        rng = np.random.default_rng(0)
        for share, even in ((0.5, True), (0.85, False)):
            truth = (rng.random(300) < share).astype(int)
            votes = vote(truth, confusions(5, 2, low=0.7, high=0.9, seed=0), votes_per_item=3, seed=0)
            found = class_shares(votes)
            assert (found == 0.5).all() == even
            assert np.abs(found - np.bincount(truth) / 300).max() < 0.15
        names = {"items": range(3), "annotators": ["a"], "classes": range(2)}
        single = Votes.from_codes([0, 1, 2], [0, 0, 0], [0, 0, 1], **names)
        assert class_shares(single).tolist() == pytest.approx([2 / 3, 1 / 3])

    def test_tuned_is_learned(self):
        p = self.fitted("tuned", crowd_lr=0.05)[1]
        assert p.sum() == pytest.approx(1.0, abs=1e-5) and np.abs(p - 1 / 3).max() > 1e-3

    def test_others_are_refused(self):
        for prior in ("flat", [0.5, 0.5], [1.0, 0.0, 1.0], [1.0, np.nan, 1.0]):
            with pytest.raises(ParameterError, match="prior"):
                self.fitted(prior)


def test_parameters():
    X, votes, _ = small(n=20)
    for given in ({"gain": "kll"}, {"smoothing": 0.0}, {"start": "one"}):
        with pytest.raises(ParameterError, match=next(iter(given))):
            MaxMIG(**given).fit(X, votes)
    with pytest.raises(InputError, match="leaves none to train on"):
        MaxMIG(start="both", holdout=0.9).fit(X[:2], votes[np.arange(2)])


class TestNames:
    @pytest.mark.parametrize("seed", range(4))
    def test_a_planted_permutation_is_found(self, seed):
        """Rows of W in another order: each class is found by those who call it by its name."""
        rng = np.random.default_rng(seed)
        theta = confusions(6, 4, seed=seed)
        votes = vote(rng.integers(4, size=200), theta, 3, seed=seed)
        order = rng.permutation(4)
        W = np.log(theta)
        assert match_classes(W, votes).tolist() == [0, 1, 2, 3]
        assert match_classes(W[:, order], votes).tolist() == np.argsort(order).tolist()

    def test_those_who_are_not_listened_to_have_no_say(self):
        """A majority that calls classes by wrong names, but to which W gives no weight."""
        theta = np.stack([0.9 * np.eye(3) + 0.1 / 3] * 2 + [np.roll(np.eye(3), 1, axis=1)] * 6)
        votes = vote(np.random.default_rng(0).integers(3, size=100), theta, 8)
        W = np.concatenate([np.log(theta[:2]), np.zeros((6, 3, 3))])
        assert match_classes(W[:, [2, 0, 1]], votes).tolist() == [1, 2, 0]

    def test_renaming_changes_the_names_alone(self):
        X, votes, _ = small(n=100)
        learner = MaxMIG(epochs=5, random_state=0).fit(X, votes)
        trainer = learner._trainer

        def gain():
            return -float(trainer.head.loss(next(iter(trainer.batches(trainer.edges, trainer.inputs)))).detach())

        before, gained = learner.predict_proba(X), gain()
        last, place = networks.hidden_layer(trainer.network), torch.tensor([1, 2, 0])
        with torch.no_grad():  # swap the names, as a start might
            for part in (last.weight, last.bias, trainer.head.p):
                part.copy_(part[place])
            trainer.head.W.copy_(trainer.head.W[:, place])
        swapped = learner.predict_proba(X)
        np.testing.assert_allclose(swapped, before[:, [1, 2, 0]], atol=1e-6)
        assert gain() == pytest.approx(gained, abs=1e-6)
        name_classes(trainer, votes)
        np.testing.assert_allclose(learner.predict_proba(X), before, atol=1e-6)


def coin_crowd(seed=0, n=400, copies=50):
    """Example E.2 in small: one annotator knows the truth, all others repeat one and the same coin."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=n)
    X = np.column_stack([2.0 * truth - 1.0, rng.normal(size=(n, 4))]).astype(np.float32)
    labels = np.repeat(rng.integers(2, size=n)[:, None], copies + 1, axis=1)
    labels[:, 0] = truth
    return X, Votes.from_dense(labels), truth


@pytest.fixture(scope="module")
def coin():
    return coin_crowd()


class TestStarts:
    def test_the_votes_are_the_wrong_start_among_copies(self, coin):
        X, votes, truth = coin
        learner = MaxMIG(prior="uniform", epochs=25, random_state=0).fit(X, votes)
        assert learner.start_ == "votes" and (learner.predict(X) == truth).mean() < 0.7

    @pytest.mark.parametrize("start", ["even", "both"])
    def test_other_starts_find_the_one_who_knows(self, coin, start):
        X, votes, truth = coin
        learner = MaxMIG(start=start, prior="uniform", epochs=25, random_state=0).fit(X, votes)
        assert learner.start_ == "even"
        assert (learner.predict(X) == truth).mean() > 0.97
        if start == "both":
            assert learner.held_out_gain_ > 0.3
        pull = np.ptp(learner.aggregator_, axis=1).max(axis=1)  # how far anybody's label moves the classes
        assert pull[0] > 5 * pull[1:].max()

    def test_both_stays_with_the_votes_for_an_honest_crowd(self):
        X, votes, truth = small(n=240)
        learner = MaxMIG(start="both", epochs=20, random_state=0).fit(X, votes)
        assert learner.start_ == "votes" and (learner.predict(X) == truth).mean() > 0.8

    @pytest.mark.parametrize(
        ("gains", "start"),
        [
            ([0.5, 0.9], "votes"),  # not over twice as much
            ([0.4, 0.9], "even"),
            ([-0.3, -0.5, -0.4, -0.2, -0.1], "votes"),  # nobody found anything
            ([-0.3, -0.1, 0.6], "even"),
        ],
    )
    def test_which_start_is_chosen(self, monkeypatch, gains, start):
        X, votes, _ = small(n=60)
        told = iter([*gains, 9.0])  # the last is that of the training on all items
        monkeypatch.setattr(information_max_mig, "held_out_gain", lambda trainer, votes: next(told))
        learner = MaxMIG(start="both", epochs=1, random_state=0).fit(X, votes)
        assert learner.start_ == start and learner.held_out_gain_ == max(gains[:1] if start == "votes" else gains)
        assert list(told) == []

    def test_whole_items_are_held_out(self):
        _, votes, _ = small(n=100)
        learner = MaxMIG(start="both")
        learner.seed_ = 0
        train, held = learner._split(votes)
        out = np.flatnonzero(np.diff(held.indptr) > 0)
        assert len(out) == 10 and (np.diff(train.indptr)[out] == 0).all()
        assert train.n_votes + held.n_votes == votes.n_votes

    def test_each_training_has_a_checkpoint_of_its_own(self, tmp_path):
        """A second start that went on from the checkpoint of the first would train nothing."""
        X, votes, _ = small(n=100)
        plain = MaxMIG(start="both", epochs=3, random_state=0).fit(X, votes)
        kept = MaxMIG(start="both", epochs=3, random_state=0, checkpoint=tmp_path / "run.safetensors").fit(X, votes)
        again = MaxMIG(start="both", epochs=3, random_state=0, checkpoint=tmp_path / "run.safetensors").fit(X, votes)
        assert {"run.safetensors", "run-1.safetensors"} <= {file.name for file in tmp_path.iterdir()}
        for one in (kept, again):
            assert np.array_equal(one.predict_proba(X), plain.predict_proba(X))

    def test_a_callback_ends_all_of_them(self):
        X, votes, _ = small(n=60)
        told = []
        MaxMIG(start="both", epochs=3, random_state=0).fit(
            X, votes, callback=lambda e: told.append(e) or len(told) == 2
        )
        assert len(told) == 2


def test_weights_approach_log_confusions():
    """Independent seniors: W[m, :, l] is log theta[m, :, l] up to a constant for each label, better with more items."""
    theta = confusions(4, 3, low=0.6, high=0.85, seed=4)
    wanted = np.log(theta) - np.log(theta).mean(axis=1, keepdims=True)
    error = []
    for n in (200, 1500):
        X, truth = blobs(n, spread=0.5, seed=4)
        votes = vote(truth, theta, votes_per_item=4, seed=4)
        learner = MaxMIG(epochs=30, batch_size=max(64, n // 20), prior="votes", random_state=0).fit(X, votes)
        W = learner.aggregator_
        error.append(np.abs(W - W.mean(axis=1, keepdims=True) - wanted).mean())
    start = np.log(vote_confusions(votes, 0.01))
    begun = np.abs(start - start.mean(axis=1, keepdims=True) - wanted).mean()
    assert error[1] < 0.25 and error[1] < error[0] and error[1] < 0.7 * begun


def test_copied_mistakes_do_not_carry_it_away():
    """Three who copy one weak annotator outvote two good ones; the inputs tell whom to hear."""
    X, truth = blobs(600, spread=0.5, seed=5)
    rng = np.random.default_rng(5)
    weak = np.where(rng.random(600) < 0.4, truth, rng.integers(3, size=600))
    good = [np.where(rng.random(600) < 0.75, truth, rng.integers(3, size=600)) for _ in range(2)]
    votes = Votes.from_dense(np.column_stack([*good, weak, weak, weak, weak]))
    learner = MaxMIG(epochs=30, random_state=0).fit(X, votes)
    majority = votes.shares().argmax(axis=1)
    assert (majority == truth).mean() < 0.75 < 0.9 < (learner.predict(X) == truth).mean()
