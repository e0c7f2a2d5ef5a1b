"""Bayesian confusion matrices with a network: `bayes-dgc`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import digamma
from torch import nn

import crowdwise as cw
from crowdwise.core.priors import class_dirichlet, dirichlet_rows
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.alternating_bayes_dgc import BayesDGC, Dirichlet
from crowdwise.learners.vote_edges import Edges
from crowdwise.methods.bayes_ibcc import DirichletFamily
from learners.crowd import small


def tiny(seed=0, n=10, n_annotators=4, n_classes=3):
    rng = np.random.default_rng(seed)
    item, who = np.nonzero(rng.random((n, n_annotators)) < 0.6)
    item, who = item[item != 2], who[item != 2]
    votes = Votes.from_codes(
        item, who, rng.integers(n_classes, size=len(item)), items=range(n), annotators=range(n_annotators),
        classes=range(n_classes), weight=rng.uniform(0.5, 2.0, len(item)),
    )  # fmt: skip
    return votes, np.log(rng.dirichlet(np.ones(n_classes), n))


def started(votes, rate=None, closed=False, balance=True, gold=None, prior=(5.0, 2.0)):
    family = DirichletFamily(dirichlet_rows(prior, None, votes), class_dirichlet(1.1, votes))
    head = Dirichlet(votes.n_annotators, votes.n_classes, family, rate, closed, balance).double()
    head.gold = gold
    head.start(votes)
    return head


def batch_of(votes, index, logits):
    return Edges.of(votes).batch(torch.as_tensor(index), torch.as_tensor(logits, dtype=torch.float64))


def logit_by_loops(head, votes, index, log_f):
    a, b = head.a.numpy(), head.b.numpy()
    out = np.zeros((len(index), head.n_classes))
    for i, n in enumerate(index):
        for k in range(head.n_classes):
            out[i, k] = digamma(a[k]) - digamma(a.sum()) + log_f[i, k] - head.log_g[k].item()
            for s in range(votes.indptr[n], votes.indptr[n + 1]):
                row = b[votes.annotator[s], k]
                out[i, k] += votes.weights[s] * (digamma(row[votes.label[s]]) - digamma(row.sum()))
    return out


class TestLoss:
    @pytest.mark.parametrize("index", [(0, 2, 5, 9), (3,), (2,)])
    def test_is_the_negative_log_normaliser(self, index):
        votes, log_f = tiny()
        head = started(votes)
        head.set_balance(log_f)
        logits = np.random.default_rng(0).normal(size=(len(index), 3))
        batch = batch_of(votes, index, logits)
        expected = logit_by_loops(head, votes, index, torch.log_softmax(batch.logits, dim=1).numpy())
        assert float(head.loss(batch)) == pytest.approx(-np.log(np.exp(expected).sum(axis=1)).mean(), abs=1e-6)
        q = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(head.posterior_log_probs(batch).exp().numpy(), q, atol=1e-6)

    def test_gradient_is_that_of_the_cross_entropy(self):
        votes, _ = tiny()
        head = started(votes)
        logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True, generator=torch.manual_seed(0))
        batch = batch_of(votes, (0, 1, 2, 3), logits.detach())
        assert torch.autograd.gradcheck(lambda z: head.loss(replace(batch, logits=z)), (logits,))
        head.loss(replace(batch, logits=logits)).backward()
        q = head.posterior_log_probs(batch).exp()
        expected = (torch.softmax(logits, dim=1) - q) / 4
        np.testing.assert_allclose(logits.grad.numpy(), expected.detach().numpy(), atol=1e-9)

    def test_known_truth(self):
        votes, _ = tiny()
        gold = np.full(10, -1)
        gold[[0, 2]] = [1, 2]
        head = started(votes, gold=gold)
        logits = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
        batch = batch_of(votes, (0, 2), logits.detach())
        head.loss(replace(batch, logits=logits)).backward()
        expected = (1 / 3 - np.eye(3)[[1, 2]]) / 2  # the cross-entropy against what is known
        np.testing.assert_allclose(logits.grad.numpy(), expected, atol=1e-9)

    def test_order_of_annotators_and_classes(self):
        votes, log_f = tiny()
        who, what = np.array([2, 0, 3, 1]), np.array([1, 2, 0])
        moved = Votes.from_codes(
            votes.item, who[votes.annotator], what[votes.label], items=range(10), annotators=range(4),
            classes=range(3), weight=votes.weights,
        )  # fmt: skip
        other = np.empty_like(log_f)
        other[:, what] = log_f
        losses = [
            float(started(v).loss(batch_of(v, np.arange(10), f))) for v, f in ((votes, log_f), (moved, other))
        ]  # fmt: skip
        assert losses[0] == pytest.approx(losses[1], abs=1e-6)

    def test_weights_are_repeated_votes(self):
        votes, log_f = tiny()
        heavy = replace(votes, weight=np.full(votes.n_votes, 2.0))
        twice = Votes.from_codes(
            np.repeat(votes.item, 2), np.repeat(votes.annotator, 2), np.repeat(votes.label, 2), items=range(10),
            annotators=range(4), classes=range(3), on_duplicate="all",
        )  # fmt: skip
        heads = [started(v) for v in (heavy, twice)]
        for head, v in zip(heads, (heavy, twice), strict=True):
            head.loss(batch_of(v, np.arange(10), log_f))
            head.after_step()
        np.testing.assert_allclose(heads[0].b.numpy(), heads[1].b.numpy(), atol=1e-6)


class TestNaturalGradient:
    def test_a_full_step_on_all_items_is_the_closed_form(self):
        votes, log_f = tiny()
        one, two = started(votes, rate=1.0), started(votes, closed=True)
        used = np.flatnonzero(np.diff(votes.indptr))
        for _ in range(3):
            one.loss(batch_of(votes, used, log_f[used]))
            one.after_step()
            two.solve(log_f)
            np.testing.assert_allclose(one.b.numpy(), two.b.numpy(), atol=1e-9)
            np.testing.assert_allclose(one.a.numpy(), two.a.numpy(), atol=1e-9)

    def test_small_stochastic_steps_end_where_the_closed_form_does(self):
        X, votes, _ = small(n=80)
        log_f = np.log(np.random.default_rng(0).dirichlet(np.ones(3), 80))
        closed = started(votes, closed=True)
        for _ in range(200):
            closed.solve(log_f)
        errors = []
        for epochs in (20, 200):
            head, rng = started(votes), np.random.default_rng(1)
            for epoch in range(epochs):
                order = rng.permutation(80)
                for lo in range(0, 80, 16):
                    head.rate = 1.0 / (2.0 + epoch)
                    index = order[lo : lo + 16]
                    head.loss(batch_of(votes, index, log_f[index]))
                    head.after_step()
            errors.append(float((head.confusion() - closed.confusion()).abs().max()))
        assert errors[1] < 0.02 and errors[1] < errors[0] / 2

    def test_the_batches_of_an_epoch_leave_the_counts_of_an_epoch(self):
        """With a rate of B / N, an epoch's counts weigh as much as all that came before."""
        votes, log_f = tiny()
        head = started(votes)
        assert head._rate(batch_of(votes, (0, 1, 3), log_f[:3])) == pytest.approx(3 / head.size)

    @pytest.mark.parametrize("balance", [True, False])
    @pytest.mark.parametrize("seed", range(3))
    def test_the_bound_never_falls(self, seed, balance):
        """Closed-form steps for the Dirichlets, in turn with full-batch steps of a network, its mean held."""
        X, votes, _ = small(n=60, seed=seed)
        torch.manual_seed(seed)
        network = nn.Linear(6, 3).double()
        head = started(votes, closed=True, balance=balance)
        x, index = torch.as_tensor(X, dtype=torch.float64), np.arange(60)

        def look():
            return torch.log_softmax(network(x), dim=1).detach().numpy()

        if balance:
            head.set_balance(look())
        optimiser, bounds = torch.optim.SGD(network.parameters(), lr=0.05), [head.bound(look())]
        for _ in range(25):
            head.solve(look())
            bounds.append(head.bound(look()))
            optimiser.zero_grad()
            head.loss(Edges.of(votes).batch(torch.as_tensor(index), network(x))).backward()
            optimiser.step()
            bounds.append(head.bound(look()))
        assert (np.diff(bounds) > -1e-9).all()
        assert bounds[-1] > bounds[0] + 1.0

    def test_without_a_network_it_is_ibcc(self):
        _, votes, _ = small(n=100)
        head = started(votes, closed=True, balance=False, prior=4.0)
        for _ in range(300):
            head.solve(np.zeros((100, 3)))
        model = cw.aggregate(votes, "ibcc", prior=4.0, class_alpha=1.1, tol=1e-12, max_iter=2000)
        np.testing.assert_allclose(head.confusion().numpy(), model.confusion, atol=1e-4)


class TestLearning:
    @pytest.mark.parametrize("updates", ["stochastic", "closed"])
    def test_inputs_help(self, updates):
        X, votes, truth = small(n=300, n_annotators=15, votes_per_item=2, low=0.45, high=0.85)
        model = BayesDGC(updates=updates, epochs=30, random_state=0).fit(X, votes)
        for key in ("dawid-skene", "ibcc"):
            assert model.consensus_.score(truth) > cw.aggregate(votes, key).score(truth) + 0.05

    def test_the_product_as_published_gives_up_where_votes_are_few(self):
        X, votes, truth = small(n=300, n_classes=2, n_annotators=40, votes_per_item=2, low=0.5, high=0.75)
        raw, balanced = (
            BayesDGC(balance=balance, epochs=40, random_state=0).fit(X, votes).consensus_ for balance in (False, True)
        )
        assert raw.posterior.mean(axis=0).max() > 0.95  # one class has it all
        assert balanced.posterior.mean(axis=0).max() < 0.7
        assert balanced.score(truth) > raw.score(truth) + 0.1

    def test_interrupted_training_goes_on(self, tmp_path):
        X, votes, _ = small(n=100)
        whole = BayesDGC(epochs=5, random_state=0).fit(X, votes)
        file = tmp_path / "checkpoint.safetensors"
        BayesDGC(epochs=5, random_state=0, checkpoint=file).fit(X, votes, callback=lambda epoch: epoch.epoch == 3)
        resumed = BayesDGC(epochs=5, random_state=0, checkpoint=file).fit(X, votes)
        np.testing.assert_allclose(resumed.predict_proba(X, votes), whole.predict_proba(X, votes), atol=1e-6)

    def test_bad_parameters(self):
        X, votes, _ = small(n=30)
        for bad in ({"prior": 0.0}, {"class_alpha": -1.0}, {"updates": "sometimes"}, {"rate": 0.0}, {"rate": 2.0},
                    {"balance": 1}):  # fmt: skip
            with pytest.raises(ParameterError, match=next(iter(bad))):
                BayesDGC(epochs=1, **bad).fit(X, votes)
