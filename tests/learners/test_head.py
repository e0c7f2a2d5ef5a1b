"""What every head can tell of annotators and votes, against loops and Bayes' rule by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from crowdwise.data.votes import Votes
from crowdwise.learners.head import Head, count_confusion, cross_entropy
from crowdwise.learners.vote_edges import Edges


class Plain(Head):
    """The least a head can be: its confusion matrices are counted."""

    def loss(self, batch):
        return -batch.log_f.mean()


class Given(Plain):
    """A head with confusion matrices of its own."""

    def __init__(self, theta):
        super().__init__(len(theta), theta.shape[1])
        self.theta = torch.as_tensor(theta)

    def confusion(self):
        return self.theta


def tiny(seed=0, n=8, n_annotators=4, n_classes=3):
    """Votes with weights (item 2 and annotator 3 have none), and class probabilities of the items."""
    rng = np.random.default_rng(seed)
    item, who = np.nonzero(rng.random((n, n_annotators - 1)) < 0.6)
    item, who = item[item != 2], who[item != 2]
    votes = Votes.from_codes(
        item, who, rng.integers(n_classes, size=len(item)), items=range(n), annotators=range(n_annotators),
        classes=range(n_classes), weight=rng.choice([0.5, 1.0, 3.0], len(item)),
    )  # fmt: skip
    return votes, rng.dirichlet(np.ones(n_classes), n)


def random_theta(M, K, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(K), (M, K))


def whole(votes, f):
    """All items as one batch, in double precision."""
    return Edges.of(votes).batch(torch.arange(len(votes)), torch.from_numpy(np.log(f)))


@pytest.mark.parametrize("seed", range(4))
class TestCounting:
    def test_against_loops(self, seed):
        votes, f = tiny(seed)
        K = votes.n_classes
        table = np.zeros((votes.n_annotators, K, K))
        for n, m, label, w in zip(votes.item, votes.annotator, votes.label, votes.weights, strict=True):
            for k in range(K):
                table[m, k, label] += w * f[n, k]
        crowd = table.sum(axis=0) + 1.0 / K
        for strength in (0.3, 1.0):
            for m in range(votes.n_annotators):
                for k in range(K):
                    row = table[m, k] + strength * crowd[k] / crowd[k].sum()
                    got = count_confusion(torch.from_numpy(f), Edges.of(votes), strength)[m, k]
                    np.testing.assert_allclose(got.numpy(), row / row.sum(), atol=1e-7)

    def test_who_never_voted_answers_as_the_crowd(self, seed):
        votes, f = tiny(seed)
        table = count_confusion(torch.from_numpy(f), Edges.of(votes)).numpy()
        counts = np.zeros((3, 3))
        for n, label, w in zip(votes.item, votes.label, votes.weights, strict=True):
            counts[:, label] += w * f[n]
        counts += 1.0 / 3.0
        np.testing.assert_allclose(table[3], counts / counts.sum(axis=1, keepdims=True), atol=1e-7)

    def test_settling_counts_where_a_head_has_no_matrices(self, seed):
        votes, f = tiny(seed)
        head, other = Plain(4, 3), Given(random_theta(4, 3))
        np.testing.assert_allclose(head.confusion().numpy(), 1.0 / 3.0)
        log_f = torch.from_numpy(np.log(f))
        for one in (head, other):
            one.finish(log_f, Edges.of(votes))
        np.testing.assert_allclose(
            head.confusion().numpy(), count_confusion(log_f.exp(), Edges.of(votes)).numpy(), atol=1e-12
        )
        np.testing.assert_allclose(other.counted.numpy(), 1.0 / 3.0)  # has its own, and counts nothing


@pytest.mark.parametrize("seed", range(4))
class TestForecast:
    def test_is_bayes_rule(self, seed):
        votes, f = tiny(seed)
        theta = random_theta(4, 3, seed)
        got = Given(theta).posterior_log_probs(whole(votes, f)).exp().numpy()
        for n in range(len(votes)):
            q = f[n].copy()
            for s in range(votes.indptr[n], votes.indptr[n + 1]):
                q *= theta[votes.annotator[s], :, votes.label[s]] ** votes.weights[s]
            np.testing.assert_allclose(got[n], q / q.sum(), atol=1e-9)
        np.testing.assert_allclose(got[2], f[2], atol=1e-12)  # no votes, no change

    def test_the_likelihood_of_votes(self, seed):
        votes, f = tiny(seed)
        theta = random_theta(4, 3, seed)
        got = Given(theta).vote_log_probs(whole(votes, f)).numpy()
        for s, (n, m, label) in enumerate(zip(votes.item, votes.annotator, votes.label, strict=True)):
            assert got[s] == pytest.approx(np.log((f[n] * theta[m, :, label]).sum()), abs=1e-9)

    def test_strangers_answer_as_the_crowd(self, seed):
        votes, f = tiny(seed)
        theta = random_theta(4, 3, seed)
        head, mean = Given(theta), theta.mean(axis=0)
        codes = np.where(votes.annotator == 1, 4 + votes.annotator, votes.annotator).astype(np.int32)
        strange = replace(votes, annotator=codes, annotators=np.arange(6))
        batch = whole(strange, f)
        got, likely = head.posterior_log_probs(batch).exp().numpy(), head.vote_log_probs(batch).numpy()
        for n in range(len(votes)):
            q = f[n].copy()
            for s in range(votes.indptr[n], votes.indptr[n + 1]):
                table = theta[codes[s]] if codes[s] < 4 else mean
                assert likely[s] == pytest.approx(np.log((f[n] * table[:, votes.label[s]]).sum()), abs=1e-9)
                q *= table[:, votes.label[s]] ** votes.weights[s]
            np.testing.assert_allclose(got[n], q / q.sum(), atol=1e-9)


def test_impossible_votes_leave_probabilities_finite():
    """Two annotators who are never wrong disagree: nothing explains that, and nothing breaks."""
    votes = Votes.from_dense(np.array([[0, 1], [1, 1]]))
    theta = np.stack([np.eye(2)] * 2)
    log_q = Given(theta).posterior_log_probs(whole(votes, np.full((2, 2), 0.5)))
    np.testing.assert_allclose(log_q.exp().numpy(), [[0.5, 0.5], [0.0, 1.0]], atol=1e-6)


def test_two_thousand_votes_on_an_item_do_not_underflow():
    M = 2000
    votes = Votes.from_dense(np.array([[0] * 1001 + [1] * 999, [1] * M]), classes=[0, 1])
    theta = np.broadcast_to(np.array([[0.6, 0.4], [0.4, 0.6]]), (M, 2, 2)).copy()
    q = Given(theta).posterior_log_probs(whole(votes, np.full((2, 2), 0.5))).exp().numpy()
    np.testing.assert_allclose(q[0], [1.5**2 / (1.5**2 + 1.0), 1.0 / (1.5**2 + 1.0)], atol=1e-6)
    assert q[1, 1] == 1.0


def test_cross_entropy_with_soft_targets():
    rng = np.random.default_rng(0)
    target, logits = rng.dirichlet(np.ones(4), 5), rng.normal(size=(5, 4))
    plain = 0.0
    for t, z in zip(target, logits, strict=True):
        plain -= (t * (z - np.log(np.exp(z).sum()))).sum() / 5
    assert float(cross_entropy(torch.from_numpy(target), torch.from_numpy(logits))) == pytest.approx(plain, abs=1e-12)
