"""Annotators as points: T against loops, weights by isolation, mixtures of votes, and crowds that are recovered."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import crowdwise as cw
from crowdwise.learners import head as heads
from crowdwise.learners.instance_confusions import Mixed, Weighted
from crowdwise.learners.vote_edges import Batch
from learners.crowd import blobs, confusions, small, vote

B, M, K, H, Q, E = 5, 4, 3, 6, 2, 9


def make_batch(seed=0, rows=None, weights=True):
    g = torch.Generator().manual_seed(seed)
    items = B if rows is None else len(rows)
    return Batch(
        index=torch.arange(items),
        logits=torch.randn(items, K, generator=g, dtype=torch.float64),
        hidden=torch.randn(items, H, generator=g, dtype=torch.float64),
        row=torch.sort(torch.randint(B, (E,), generator=g)).values if rows is None else torch.as_tensor(rows),
        annotator=torch.randint(M, (E,), generator=g),
        label=torch.randint(K, (E,), generator=g),
        weight=torch.rand(E, generator=g, dtype=torch.float64) + 0.5 if weights else torch.ones(E).double(),
    )


def made(kind, *more, seed=1):
    """A head with random numbers everywhere, that neither drops nor normalises by the batch."""
    g = torch.Generator().manual_seed(seed)
    head = kind(M, K, H, Q, 0.8, *more).double().eval()
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64))
            if name == "gamma":
                parameter.fill_(0.7)
    return head


def linear(layer, x):
    return layer.weight.detach().numpy() @ x + layer.bias.detach().numpy()


def normed(layer, x):
    """Batch normalisation with the statistics it starts with: mean 0, variance 1."""
    return layer.weight.detach().numpy() * x / math.sqrt(1.0 + layer.eps) + layer.bias.detach().numpy()


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def looped(head, a, h):
    """T from the formulas of the module, for one annotator's embedding and one hidden vector."""
    v = linear(head.items, h)
    if isinstance(head, Weighted):
        outer = head.outer.detach().numpy()
        o = np.array([(a + v) @ outer[p] @ (a + v) for p in range(Q)])
        first, norm, _, second, last = head.between
        u = normed(last, linear(second, np.maximum(normed(norm, linear(first, np.concatenate([a, v, o]))), 0.0)))
        u = np.maximum(a + u, 0.0)
    else:
        _, layer, norm, _ = head.between
        u = np.maximum(normed(norm, linear(layer, np.concatenate([v, a]))), 0.0)
    return softmax(linear(head.output, u).reshape(K, K))


@pytest.mark.parametrize("head", [made(Weighted, 1.25, 0.25), made(Mixed)], ids=["madl", "annot-mix"])
def test_matrices_and_votes_against_loops(head):
    batch, e = make_batch(), head.e.detach().numpy()
    T = [looped(head, e[m], batch.hidden[n].numpy()) for n, m in zip(batch.row, batch.annotator, strict=True)]
    np.testing.assert_allclose(head.log_rows(batch).detach().exp(), T, rtol=1e-9)
    f = softmax(batch.logits.numpy())
    said = [math.log(f[n] @ t[:, label]) for n, t, label in zip(batch.row, T, batch.label, strict=True)]
    np.testing.assert_allclose(head.vote_log_probs(batch).detach(), said, rtol=1e-9)


def test_first_matrices_have_the_given_accuracy():
    head = Mixed(M, K, H, Q, 0.9).eval()
    with torch.no_grad():
        head.output.weight.zero_()
    expected = np.full((K, K), 0.05) + 0.85 * np.eye(K)
    np.testing.assert_allclose(
        head.log_confusions(torch.zeros(1, Q), torch.zeros(1, Q)).detach().exp()[0], expected, 1e-5
    )


def test_weights_of_madl_against_loops_and_its_loss():
    head, batch = made(Weighted, 1.25, 0.25), make_batch()
    e, gamma = head.e.detach().numpy(), 0.7
    isolation = [1.0 / sum(math.exp(-gamma * ((e[m] - e[j]) ** 2).sum()) for j in range(M)) for m in range(M)]
    w = np.array(isolation) / np.mean(isolation)
    np.testing.assert_allclose(head.weights().detach(), w, rtol=1e-9)
    prior = torch.distributions.Gamma(1.25, 0.25).log_prob(torch.tensor(gamma, dtype=torch.float64))
    each = batch.weight.numpy() * w[batch.annotator] * head.vote_log_probs(batch).detach().numpy()
    expected = -each.sum() / batch.weight.sum() - prior
    np.testing.assert_allclose(head.loss(batch).detach(), expected, rtol=1e-6)


def test_copies_share_the_weight_of_one():
    head = made(Weighted, 1.25, 0.25)
    with torch.no_grad():
        head.e.copy_(torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [50.0, 0.0]]))
    w = head.weights().detach().numpy()
    np.testing.assert_allclose(w[:3].sum(), w[3], rtol=1e-9)


def test_weights_of_a_batch_with_everybody_are_those_of_the_crowd(monkeypatch):
    monkeypatch.setattr(heads, "MANY", 2)
    head, batch = made(Weighted, 1.25, 0.25), make_batch(rows=np.arange(M))
    batch = Batch(
        batch.index, batch.logits, batch.hidden, torch.arange(M), torch.arange(M), batch.label[:M], batch.weight[:M]
    )
    head.rarity = torch.full((M,), float(M), dtype=torch.float64)
    np.testing.assert_allclose(head.vote_weights(batch).detach(), head.weights().detach(), rtol=1e-9)


def test_mixtures_against_loops():
    head = made(Mixed)
    one, two = make_batch(3, np.arange(E)), make_batch(4, np.arange(E))
    two = Batch(two.index, one.logits, one.hidden, two.row, two.annotator, two.label, two.weight)
    share = torch.rand(E, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    e, f, total, norm = head.e.detach().numpy(), softmax(one.logits.numpy()), 0.0, 0.0
    for i in range(E):
        s = float(share[i])
        a = s * e[one.annotator[i]] + (1.0 - s) * e[two.annotator[i]]
        p = f[i] @ looped(head, a, one.hidden[i].numpy())
        w, other = s * float(one.weight[i]), (1.0 - s) * float(two.weight[i])
        total -= w * math.log(p[one.label[i]]) + other * math.log(p[two.label[i]])
        norm += w + other
    np.testing.assert_allclose(head.mixed_loss(one, two, share).detach(), total / norm, rtol=1e-9)
    whole = head.mixed_loss(one, two, torch.ones(E, dtype=torch.float64))
    np.testing.assert_allclose(whole.detach(), head.loss(one).detach(), rtol=1e-9)


def test_every_vote_passes_through_the_network_and_gold_items_whole(monkeypatch):
    X, votes, truth = small(n=60)
    gold = np.where(np.arange(60) < 10, truth, -1)
    sizes = []
    forward = cw.learners.trainer.Trainer.forward

    def counted(self, x):
        if self.network.training:
            sizes.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(cw.learners.trainer.Trainer, "forward", counted)
    settings = {"epochs": 1, "batch_size": 60, "random_state": 0}
    cw.AnnotMix(**settings).fit(X, votes)
    cw.AnnotMix(**settings).fit(X, votes, gold=gold)
    cw.AnnotMix(mixup=0.0, **settings).fit(X, votes)
    cw.AnnotMix(votes_per_item=2, **settings).fit(X, votes)
    cw.AnnotMix(votes_per_item=2, **settings).fit(X, votes, gold=gold)
    one_each = cw.AnnotMix(votes_per_item=1, **settings).fit(X, votes)
    assert sizes == [180, 240, 60, 120, 180, 60]
    assert not one_each._trainer.sizes_vary


def test_votes_are_drawn_for_mixtures_alone():
    X, votes, _ = small(n=60)
    with pytest.raises(cw.errors.ParameterError, match=r"votes_per_item=2 .* mixup=0"):
        cw.AnnotMix(votes_per_item=2, mixup=0.0, epochs=1).fit(X, votes)


def test_one_vote_of_each_item_teaches_as_well_as_all():
    """As many passes through the network: 15 epochs with one of six votes each, two with all."""
    crowd = cw.simulate.machine(n_annotators=8, n_items=400, votes_per_item=6, random_state=0)
    X, votes = crowd.features["x_train"], crowd.votes
    usual = {"random_state": 0, "holdout": None}
    some = cw.AnnotMix(votes_per_item=1, epochs=15, **usual).fit(X, votes).consensus_.score(crowd.truth)
    every = cw.AnnotMix(epochs=2, **usual).fit(X, votes).consensus_.score(crowd.truth)
    assert some > max(0.9, every - 0.02)


@pytest.mark.parametrize("kind", [cw.MaDL, cw.AnnotMix])
def test_a_simulated_crowd_is_recovered(kind):
    X, truth = blobs(900, spread=0.6)
    theta = confusions(6, K, low=0.4, high=0.95, seed=3)
    votes = vote(truth, theta, votes_per_item=3)
    learner = kind(epochs=25, random_state=0).fit(X, votes)
    X_new, truth_new = blobs(400, spread=0.6, seed=5)
    assert (learner.predict(X_new) == truth_new).mean() > 0.93
    assert (learner.consensus_.labels == truth).mean() > 0.95
    T, who = learner.vote_confusion(X, votes), votes.annotator
    found = np.stack([T[who == m].mean(axis=0) for m in range(6)])
    assert np.abs(found - theta).mean() < 0.06


def test_copies_count_for_less_in_a_fit():
    X, truth = blobs(500)
    rng = np.random.default_rng(0)
    theta = confusions(4, K, low=0.5, high=0.7, seed=1)
    dense = np.array([[rng.choice(K, p=theta[m, k]) for m in range(4)] for k in truth])
    votes = cw.Votes.from_dense(np.concatenate([dense[:, :1].repeat(5, axis=1), dense[:, 1:]], axis=1))
    learner = cw.MaDL(epochs=20, random_state=0).fit(X, votes)
    weight = learner.consensus_.annotator_columns["weight"]
    assert weight[:5].max() < 1.0 < weight[5:].min()
    np.testing.assert_allclose(weight.mean(), 1.0, rtol=1e-6)
