"""Network and confusion matrices by the likelihood of votes: `ccem`, `trace`, `geocrowdnet-f` and `geocrowdnet-w`."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from crowdwise import registry
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners import joint_confusions
from crowdwise.learners.joint_confusions import (
    CCEM,
    Confusions,
    GeoCrowdNetF,
    GeoCrowdNetW,
    Traced,
    TraceRegularised,
    Volume,
    identity,
)
from crowdwise.learners.vote_edges import Edges
from learners.crowd import blobs, confusions, small, vote

M, K = 4, 3


def tiny(seed=0, n=7):
    """Votes with weights (item 2 and annotator 3 have none), and logits."""
    rng = np.random.default_rng(seed)
    item, who = np.nonzero(rng.random((n, M - 1)) < 0.6)
    item, who = item[item != 2], who[item != 2]
    votes = Votes.from_codes(
        item, who, rng.integers(K, size=len(item)), items=range(n), annotators=range(M), classes=range(K),
        weight=rng.choice([0.5, 1.0, 3.0], len(item)),
    )  # fmt: skip
    return votes, torch.from_numpy(rng.normal(size=(n, K)))


def heads():
    return {
        "ccem": Confusions(M, K, identity(K)),
        "trace mean": Traced(M, K, 0.7, "mean"),
        "trace sum": Traced(M, K, 0.7, "sum"),
        "f": Volume(M, K, 0.3, "network", guard=False),
        "w": Volume(M, K, 0.3, "annotators", guard=False),
        "f guarded": Volume(M, K, 1e-4, "network", guard=True),
        "w guarded": Volume(M, K, 1e-4, "annotators", guard=True),
    }


def prepared(name, seed=0):
    """A head in double precision, somewhere off its start, at the end of training."""
    head = heads()[name].double()
    rng = np.random.default_rng(seed + 100)
    with torch.no_grad():
        head.rho.add_(torch.from_numpy(rng.normal(size=(M, K, K))))
    head.progress = 0.9
    return head


def whole(votes, logits):
    return Edges.of(votes).batch(torch.arange(len(votes)), logits)


def plain_theta(rho, softplus=False):
    theta = np.empty_like(rho)
    for m in range(len(rho)):
        for k in range(rho.shape[1]):
            row = np.log1p(np.exp(rho[m, k])) if softplus else np.exp(rho[m, k])
            theta[m, k] = row / row.sum()
    return theta


def plain_loss(name, votes, logits, rho):
    """Every loss once more, with loops over dense arrays."""
    theta = plain_theta(rho, softplus=name.startswith("trace"))
    f = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    parts = (votes.item, votes.annotator, votes.label, votes.weights)
    dense = {(int(n), int(m)): (int(k), w) for n, m, k, w in zip(*parts, strict=True)}
    total = weight = 0.0
    for n in range(len(f)):
        for m in range(M):
            if (n, m) in dense:
                k, w = dense[n, m]
                total -= w * np.log((f[n] @ theta[m])[k])
                weight += w
    loss = total / weight
    if name.startswith("trace"):
        traces = [np.trace(theta[m]) for m in range(M)]
        loss += 0.7 * (sum(traces) if name.endswith("sum") else sum(traces) / M)
    elif name[0] in "fw":
        matrix = np.zeros((K, K))
        if name[0] == "f":
            for n in range(len(f)):
                matrix += K * np.outer(f[n], f[n]) / len(f)
        else:
            for m in range(M):
                matrix += theta[m] @ theta[m].T / M
        matrix += joint_confusions.RIDGE * np.eye(K)
        loss -= (1e-4 if name.endswith("guarded") else 0.3) * np.log(np.linalg.det(matrix))
    return loss


@pytest.mark.parametrize("name", heads())
class TestLosses:
    @pytest.mark.parametrize("seed", range(3))
    def test_against_a_plain_version(self, name, seed):
        votes, logits = tiny(seed)
        head = prepared(name, seed)
        batch = whole(votes, logits.requires_grad_())
        plain = plain_loss(name, votes, logits.detach().numpy(), head.rho.detach().numpy())
        assert float(head.loss(batch).detach()) == pytest.approx(plain, abs=1e-9)

    def test_gradients(self, name):
        votes, logits = tiny()
        head = prepared(name)
        head.guard = False  # its factor is a number, not a function to be followed
        rho = head.rho.detach().clone().requires_grad_()

        def loss(logits, rho):
            return torch.func.functional_call(Called(head), {"head.rho": rho}, (whole(votes, logits),))

        assert torch.autograd.gradcheck(loss, (logits.requires_grad_(), rho), atol=1e-6)

    def test_permuting_annotators_and_classes_changes_nothing(self, name):
        votes, logits = tiny()
        head = prepared(name)
        before = float(head.loss(whole(votes, logits.clone().requires_grad_())).detach())
        rng = np.random.default_rng(3)
        who, what = rng.permutation(M), rng.permutation(K)
        turned = Votes.from_codes(
            votes.item, np.argsort(who)[votes.annotator], np.argsort(what)[votes.label], items=range(len(votes)),
            annotators=range(M), classes=range(K), weight=votes.weights,
        )  # fmt: skip
        with torch.no_grad():
            head.rho.copy_(head.rho[who][:, what][:, :, what])
        after = float(head.loss(whole(turned, logits[:, what].clone().requires_grad_())).detach())
        assert after == pytest.approx(before, abs=1e-9)

    def test_weights_are_votes_given_again(self, name):
        votes, logits = tiny()
        head = prepared(name)
        times = np.random.default_rng(1).integers(1, 4, votes.n_votes)
        weighted = replace(votes, weight=times.astype(float))
        batch = whole(weighted, logits.clone().requires_grad_())
        repeat = torch.from_numpy(np.repeat(np.arange(votes.n_votes), times))
        again = replace(
            batch, row=batch.row[repeat], annotator=batch.annotator[repeat], label=batch.label[repeat],
            weight=torch.ones(len(repeat), dtype=torch.float64),
        )  # fmt: skip
        assert float(head.loss(batch).detach()) == pytest.approx(float(head.loss(again).detach()), abs=1e-9)

    def test_a_batch_of_one_and_a_batch_without_votes(self, name):
        votes, logits = tiny()
        edges = Edges.of(votes)
        for n in (0, 2):
            head = prepared(name)
            loss = head.loss(edges.batch(torch.tensor([n]), logits[[n]].clone().requires_grad_()))
            loss.backward()
            assert torch.isfinite(loss) and torch.isfinite(head.rho.grad).all()


class Called(torch.nn.Module):
    """A head whose loss can be called as a function of its parameters."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, batch):
        return self.head.loss(batch)


class TestStarts:
    def test_where_theta_starts(self):
        e = np.e
        theta = Confusions(M, K, identity(K)).confusion().detach().numpy()
        np.testing.assert_allclose(
            theta, np.broadcast_to((np.eye(K) * (e - 1) + 1) / (e + K - 1), (M, K, K)), atol=1e-6
        )
        soft = np.log1p(np.exp([1.0, -5.0]))
        tanno = Traced(M, K, 0.01, "mean").confusion().detach().numpy()
        rows = np.eye(K) * (soft[0] - soft[1]) + soft[1]
        np.testing.assert_allclose(tanno, np.broadcast_to(rows / rows.sum(axis=1)[:, None], (M, K, K)), atol=1e-6)

    @pytest.mark.parametrize(
        "key", ["ccem", "geocrowdnet-f", "geocrowdnet-w", "coinnet", "crowd-layer", "unionnet", "crowd-ar"]
    )
    def test_annotators_start_right_or_where_the_diagonal_says(self, key):
        votes, _ = tiny()
        rows = lambda right: np.broadcast_to(np.eye(K) * (right - (1 - right) / 2) + (1 - right) / 2, (M, K, K))  # noqa: E731
        for given, right in (
            ({}, 0.9),
            ({"diagonal": 1.0}, np.e / (np.e + 2)),
            ({"diagonal": 3.0}, np.e**3 / (np.e**3 + 2)),
        ):
            head = registry.find(key, inputs=True).create(**given)._head(votes, 5)
            np.testing.assert_allclose(head.confusion().detach().numpy(), rows(right), atol=1e-6)
        with pytest.raises(ParameterError, match="diagonal"):
            registry.find(key, inputs=True).create(diagonal=0.0).check_parameters()

    def test_strangers_answer_as_the_crowd(self):
        votes, logits = tiny()
        head = prepared("ccem")
        strange = replace(votes, annotator=np.full_like(votes.annotator, M), annotators=np.arange(M + 1))
        theta = plain_theta(head.rho.detach().numpy()).mean(axis=0)
        f = torch.softmax(logits, dim=1).numpy()
        got = head.vote_log_probs(whole(strange, logits)).detach().numpy()
        np.testing.assert_allclose(
            got, np.log([f[n] @ theta[:, k] for n, k in zip(votes.item, votes.label, strict=True)]), atol=1e-9
        )


class TestTrace:
    @pytest.mark.parametrize("R", [1, 3])
    def test_the_listing_with_several_labels_per_image(self, R):
        """The paper's loss: for each image the sum over its R labels of the cross-entropy, plus weight x mean trace."""
        N, M, K = 4, 3, 3
        rng = np.random.default_rng(0)
        item, who = np.repeat(np.arange(N), R), np.tile(np.arange(R), N)
        label = rng.integers(K, size=N * R)
        votes = Votes.from_codes(item, who, label, items=range(N), annotators=range(M), classes=range(K))
        head = Traced(M, K, 0.5, "mean").double()
        head.start(votes)
        logits = torch.as_tensor(rng.normal(size=(N, K))).requires_grad_()
        batch = Edges.of(votes).batch(torch.arange(N), logits)
        theta, f = head.confusion(), torch.softmax(logits, dim=1)
        p = torch.stack([(f[n] @ theta[m])[k] for n, m, k in zip(item, who, label, strict=True)])
        listing = -p.log().sum() / N + 0.5 * theta.diagonal(dim1=1, dim2=2).sum(dim=1).mean()
        ours = head.loss(batch)
        assert float(R * ours.detach()) == pytest.approx(float(listing.detach()))
        (expected,) = torch.autograd.grad(listing, head.rho, retain_graph=True)
        (found,) = torch.autograd.grad(R * ours, head.rho)
        torch.testing.assert_close(found, expected)

    def test_traces_fall_as_the_weight_grows(self):
        X, votes, _ = small(n=200)
        settings = {"crowd_lr": 0.1, "epochs": 20, "random_state": 0}
        traces = [
            np.trace(TraceRegularised(weight=weight, **settings).fit(X, votes).confusion_.mean(axis=0))
            for weight in (0.0, 0.05, 0.5)
        ]
        assert traces[0] > traces[1] + 0.02 > traces[2] + 0.1

    def test_the_sum_is_the_mean_times_annotators(self):
        X, votes, _ = small(n=100)
        one = TraceRegularised(weight=0.08, reduce="mean", epochs=3, random_state=0).fit(X, votes)
        two = TraceRegularised(weight=0.01, reduce="sum", epochs=3, random_state=0).fit(X, votes)
        np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), atol=1e-4)

    def test_parameters(self):
        X, votes, _ = small(n=20)
        for given in ({"weight": -1.0}, {"reduce": "median"}):
            with pytest.raises(ParameterError, match=next(iter(given))):
                TraceRegularised(**given).fit(X, votes)


@pytest.mark.parametrize("kind", [GeoCrowdNetF, GeoCrowdNetW])
class TestVolume:
    def test_without_weight_it_is_ccem(self, kind):
        X, votes, _ = small(n=120)
        plain = CCEM(epochs=4, random_state=0).fit(X, votes)
        for guard in (True, False):
            same = kind(weight=0.0, weight_decay=plain.weight_decay, guard=guard, epochs=4, random_state=0).fit(
                X, votes
            )
            assert np.array_equal(same.predict_proba(X), plain.predict_proba(X))
            assert np.array_equal(same.confusion_, plain.confusion_)

    def test_the_guard_waits_and_grows(self, kind):
        votes, logits = tiny()
        head = kind(weight=1e-6)._head(votes, 2).double()
        losses = []
        for progress in (0.0, 0.19, 0.2, 0.4, 0.6, 0.99):
            head.progress = progress
            losses.append(float(head.loss(whole(votes, logits.clone().requires_grad_())).detach()))
        batch = whole(votes, logits)
        volume = float(head.log_volume(batch, head.fit(batch, keep=False))[0])
        gap = (losses[0] - np.array(losses)) / (1e-6 * volume)
        np.testing.assert_allclose(gap, [0.0, 0.0, 0.0, 0.5, 1.0, 1.0], atol=1e-6)
        assert head.steps == 3  # it does not look at the volume before

    def test_the_guard_holds_back(self, kind):
        """However large the weight, the volume pulls at most REACH times as hard as the votes."""
        votes, logits = tiny()
        head = kind(weight=1e6)._head(votes, 2).double()
        with torch.no_grad():
            head.rho.add_(torch.from_numpy(np.random.default_rng(0).normal(size=(M, K, K))))
        head.progress = 0.9
        batch = whole(votes, logits.requires_grad_())
        at = batch.logits if head.of == "network" else head.rho
        fit = Confusions.loss(head, batch)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss = head.loss(batch)
        pull = torch.autograd.grad(fit, at, retain_graph=True)[0].norm()
        push = torch.autograd.grad(loss - Confusions.loss(head, batch), at)[0].norm()
        assert float(push / pull) == pytest.approx(joint_confusions.REACH, rel=1e-6)
        assert (head.steps, head.limited) == (1, 1)

    def test_the_guard_leaves_small_weights_alone(self, kind):
        votes, logits = tiny()
        head = kind(weight=1e-6)._head(votes, 2).double()
        head.progress = 0.9
        head.loss(whole(votes, logits.requires_grad_()))
        assert (head.steps, head.limited) == (1, 0)

    def test_parameters(self, kind):
        X, votes, _ = small(n=20)
        for given in ({"weight": -1.0}, {"guard": "yes"}):
            with pytest.raises(ParameterError, match=next(iter(given))):
                kind(**given).fit(X, votes)

    def test_learns_without_a_warning(self, kind):
        X, votes, truth = small(n=200)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            learner = kind(epochs=25, random_state=0).fit(X, votes)
        assert (learner.predict(X) == truth).mean() > 0.8


def test_the_volume_of_certain_answers_to_even_classes_is_zero():
    votes, _ = tiny(n=6)
    logits = 60.0 * torch.eye(K, dtype=torch.float64).repeat(2, 1)
    head = Volume(M, K, 1.0, "network", guard=False).double()
    batch = whole(votes, logits)
    found = head.log_volume(batch, head.fit(batch, keep=False))[0]
    assert float(found) == pytest.approx(K * np.log(1.0 + joint_confusions.RIDGE), abs=1e-9)
    with torch.no_grad():
        head.rho.copy_(60.0 * torch.eye(K).expand(M, K, K))
    head.of = "annotators"
    found = head.log_volume(batch, head.fit(batch, keep=False))[0]
    assert float(found) == pytest.approx(K * np.log(1.0 + joint_confusions.RIDGE), abs=1e-9)


def test_without_a_guard_a_large_weight_ruins_it():
    """Many classes and few votes: what the guard is for."""
    X, truth = blobs(300, n_classes=8, seed=1)
    votes = vote(truth, confusions(20, 8, low=0.4, high=0.8, seed=1), votes_per_item=2, seed=1)
    score = {
        guard: (
            GeoCrowdNetF(weight=0.5, guard=guard, epochs=15, lr=2e-3, random_state=0).fit(X, votes).predict(X) == truth
        ).mean()
        for guard in (True, False)
    }
    assert score[True] > score[False] + 0.1


def test_confusions_come_closer_with_more_votes():
    theta = confusions(6, 3, seed=2)
    error = []
    for n in (100, 700):
        X, truth = blobs(n, seed=2)
        learner = CCEM(epochs=30, batch_size=max(16, n // 16), random_state=0).fit(X, vote(truth, theta, 3, seed=2))
        error.append(np.abs(learner.confusion_ - theta).mean())
    assert error[1] < 0.8 * error[0]
