"""Losses whose gradients are worked out by hand: against autograd on the formulas, and out of the usual range."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from crowdwise.data.votes import Votes
from crowdwise.learners import head, losses
from crowdwise.learners.information_max_mig import Aggregator, gain_gradients
from crowdwise.learners.joint_confusions import Confusions, Traced, Volume, identity
from crowdwise.learners.layers import CommonNoise
from crowdwise.learners.vote_edges import Edges
from learners.crowd import information_gain, small

M, K = 5, 3


def batch(seed=0, n=9, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    item, who = np.nonzero(rng.random((n, M)) < 0.6)
    votes = Votes.from_codes(
        item, who, rng.integers(K, size=len(item)), items=range(n), annotators=range(M), classes=range(K),
        weight=rng.choice([0.5, 1.0, 3.0], len(item)),
    )  # fmt: skip
    logits = torch.from_numpy(rng.normal(size=(n, K))).to(dtype).requires_grad_()
    return votes, Edges.of(votes).batch(torch.arange(n), logits)


def table(seed=0, size=1.0, dtype=torch.float64):
    rng = np.random.default_rng(seed + 50)
    return torch.from_numpy(size * rng.normal(size=(M, K, K))).to(dtype).requires_grad_()


def plain_mixture(b, rho, norm, softplus=False, trace=None):
    """By logarithms and autograd: the formula of the papers."""
    t = functional.softplus(rho).log() if softplus else rho
    log_theta = (t - torch.logsumexp(t, dim=2, keepdim=True))[b.annotator]
    column = log_theta[torch.arange(len(b.row)), :, b.label]
    said = torch.logsumexp(torch.log_softmax(b.logits, dim=1)[b.row] + column, dim=1)
    out = -(b.weight * said).sum() / norm
    return out if trace is None else out + (trace * log_theta.exp().diagonal(dim1=1, dim2=2).sum(dim=1)).sum()


@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("size", [1.0, 8.0, 60.0])
def test_the_mixture_against_autograd(softplus, traced, size):
    """Also where numbers are so large that probabilities vanish, which single precision cannot hold."""
    _, b = batch()
    rho = table(size=size)
    trace = torch.from_numpy(np.random.default_rng(1).random(len(b.row))) if traced else None
    plain = plain_mixture(b, rho, 7.0, softplus, trace)
    want = torch.autograd.grad(plain, (b.logits, rho))
    plain = plain.detach()
    for dtype, close in ((torch.float64, 1e-9), (torch.float32, 2e-5)):
        _, c = batch(dtype=dtype)
        some = None if trace is None else trace.to(dtype)
        fit = losses.mixture(c, rho.detach().to(dtype)[c.annotator], 7.0, softplus=softplus, trace=some, keep=True)
        got = losses.GradientRows(fit.rows, c.annotator, rho.shape).dense()
        assert float(fit.value) == pytest.approx(float(plain), rel=close)
        torch.testing.assert_close(fit.logits.double(), want[0], atol=10 * close, rtol=close)
        torch.testing.assert_close(got.double(), want[1], atol=10 * close, rtol=close)
        torch.testing.assert_close(fit.theta.sum(dim=2), torch.ones_like(fit.theta[:, :, 0]))


def test_the_loss_of_votes_is_that_of_their_probabilities():
    _, b = batch()
    model = Confusions(M, K, identity(K)).double()
    with torch.no_grad():
        model.rho.add_(table().detach())
    long = -b.mean(model.vote_log_probs(b))
    torch.testing.assert_close(model.loss(b), long)
    want = torch.autograd.grad(long, (b.logits, model.rho))
    for got, by_hand in zip(torch.autograd.grad(model.loss(b), (b.logits, model.rho)), want, strict=True):
        torch.testing.assert_close(got, by_hand)


@pytest.mark.parametrize("kind", ["kl", "pearson", "js"])
@pytest.mark.parametrize("n", [1, 9])
def test_the_gain_against_autograd(kind, n):
    rng = np.random.default_rng(3)
    raw = [torch.from_numpy(rng.normal(size=size)).requires_grad_() for size in ((n, K), (n, K), (K,))]
    logs = [torch.log_softmax(x, dim=-1) for x in raw]
    gain = information_gain(*logs, kind)
    value, *grads = gain_gradients(*(x.detach() for x in logs), kind)
    torch.testing.assert_close(value, gain.detach())
    for got, want in zip(grads, torch.autograd.grad(gain, logs, retain_graph=True), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", ["kl", "pearson", "js"])
def test_the_loss_of_the_aggregator_against_autograd(kind):
    votes, b = batch()
    model = Aggregator(M, K, kind, torch.tensor([0.2, 0.3, 0.5]), True, 0.01, "votes").double()
    model.start(votes)
    plain = -information_gain(b.log_f, model.log_g(b), model.log_p, kind)
    at = (b.logits, model.W, model.p)
    loss = model.loss(b)
    torch.testing.assert_close(loss, plain)
    for got, want in zip(torch.autograd.grad(loss, at), torch.autograd.grad(plain, at), strict=True):
        torch.testing.assert_close(got, want)


def test_a_known_value_passes_its_gradient_on():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = 3.0 * x
    (2.0 * losses.with_gradients(y.detach().sum(), (y, torch.ones(2)))).backward()
    assert x.grad.tolist() == [6.0, 6.0]


def test_the_volume_against_autograd_and_of_what_is_no_number():
    rng = np.random.default_rng(0)
    vectors = torch.tensor(rng.dirichlet(np.ones(4), size=9), requires_grad=True)
    expected = torch.logdet(vectors.T @ vectors + 0.01 * torch.eye(4, dtype=torch.float64))
    expected.backward()
    value, grad = losses.log_volume(vectors.detach(), 0.01)
    np.testing.assert_allclose(value, expected.detach(), rtol=1e-12)
    np.testing.assert_allclose(grad, vectors.grad, rtol=1e-10)
    broken = vectors.detach().clone()
    broken[3, 2] = float("nan")
    value, grad = losses.log_volume(broken, 0.01)  # the trainer then says that training diverged
    assert torch.isnan(value) and torch.isnan(grad).any()


class TestManyAnnotators:
    """Terms for every annotator, estimated from those of a batch."""

    def all_batches(self, votes, b, size=3):
        edges = Edges.of(votes)
        for lo in range(0, len(votes), size):
            at = torch.arange(lo, lo + size)
            yield edges.batch(at, b.logits[at])

    @pytest.mark.parametrize("name", ["trace", "conal"])
    def test_batches_of_a_pass_add_up_to_the_whole_crowd(self, monkeypatch, name):
        votes, b = batch()
        assert (np.diff(votes.indptr) > 0).all() and len(np.unique(votes.annotator)) == M
        model = (Traced(M, K, 0.7, "mean") if name == "trace" else CommonNoise(M, K, 4, 2, 0.7)).double()
        model.start(votes)
        free = model.rho if name == "trace" else model.W
        with torch.no_grad():
            free.add_(table().detach())
        from dataclasses import replace

        hidden = torch.from_numpy(np.random.default_rng(2).normal(size=(len(votes), 4)))
        parts = [replace(c, hidden=hidden[c.index]) for c in self.all_batches(votes, b)]

        def penalty(c):
            """The loss and its gradient, less what they are without the penalty."""
            out = []
            for weight in (0.7, 0.0):
                model.weight = weight
                loss = model.loss(c)
                out.append((loss.detach(), torch.autograd.grad(loss, free)[0]))
            return out[0][0] - out[1][0], out[0][1] - out[1][1]

        value, grad = penalty(parts[0])
        monkeypatch.setattr(head, "MANY", M - 1)
        found = [penalty(c) for c in parts]
        torch.testing.assert_close(sum(x for x, _ in found) / len(parts), value)
        torch.testing.assert_close(sum(x for _, x in found) / len(parts), grad)

    def test_the_volume_of_a_batch_with_everybody_is_that_of_the_crowd(self, monkeypatch):
        votes = Votes.from_codes(
            np.repeat(np.arange(4), M), np.tile(np.arange(M), 4), np.arange(4 * M) % K, items=range(4),
            annotators=range(M), classes=range(K),
        )  # fmt: skip
        model = Volume(M, K, 0.3, "annotators", guard=False).double()
        model.start(votes)
        with torch.no_grad():
            model.rho.add_(table().detach())
        b = Edges.of(votes).batch(torch.arange(4), torch.zeros(4, K, dtype=torch.float64).requires_grad_())
        want = model.loss(b), torch.autograd.grad(model.loss(b), model.rho)[0]
        monkeypatch.setattr(head, "MANY", M - 1)
        torch.testing.assert_close(model.loss(b), want[0])
        torch.testing.assert_close(torch.autograd.grad(model.loss(b), model.rho)[0], want[1])

    def test_learners_with_a_crowd_of_hundreds(self):
        from crowdwise.learners.joint_confusions import GeoCrowdNetW, TraceRegularised
        from crowdwise.learners.layers import CoNAL

        X, votes, truth = small(n=300, n_annotators=head.MANY + 4, votes_per_item=4)
        for kind in (TraceRegularised, GeoCrowdNetW, CoNAL):
            learner = kind(epochs=15, random_state=0).fit(X, votes)
            assert (learner.predict(X) == truth).mean() > 0.8, kind
