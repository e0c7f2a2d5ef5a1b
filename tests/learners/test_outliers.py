"""COINNet: the loss against plain loops, a row for every vote and no more, and planted outliers found."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from crowdwise import load_learner, registry
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.joint_confusions import RIDGE, COINNet, Outliers, Volume
from crowdwise.learners.trainer import make_optimiser
from crowdwise.learners.training_settings import TrainingSettings
from crowdwise.learners.vote_edges import Batch, Edges

N, M, K = 7, 4, 3
pytestmark = pytest.mark.filterwarnings("ignore:.*volume term was held back")


def make_votes(seed: int = 0, weights: bool = True) -> Votes:
    """Item 1 has no votes, nor does the last annotator give any."""
    rng = np.random.default_rng(seed)
    counts = np.array([2, 0, 3, 1, 2, 1, 3])
    annotator = np.concatenate([np.sort(rng.choice(M - 1, size=c, replace=False)) for c in counts])
    return Votes(
        np.concatenate([[0], np.cumsum(counts)]), annotator.astype(np.int32),
        rng.integers(K, size=counts.sum()).astype(np.int32), np.arange(N), np.arange(M), np.arange(K),
        rng.choice([0.5, 1.0, 2.0], size=counts.sum()) if weights else None,
    )  # fmt: skip


def make_head(votes: Votes, seed: int = 0, weight: float = 0.05, guard: bool = False) -> Outliers:
    torch.manual_seed(seed)
    head = Outliers(votes, weight, guard, 0.3, 0.4).double()
    with torch.no_grad():
        head.rho.add_(0.5 * torch.randn_like(head.rho))
        head.e.add_(0.05 * torch.randn_like(head.e))
    return head


def make_batch(votes: Votes, index: Any, seed: int = 0) -> Batch:
    logits = 2.0 * np.random.default_rng(seed).normal(size=(N, K))
    at = torch.as_tensor(index)
    return Edges.of(votes).batch(at, torch.as_tensor(logits)[at])


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x))
    return e / e.sum()


def plain_loss(head: Outliers, votes: Votes, index: Any, seed: int = 0) -> float:
    logits = 2.0 * np.random.default_rng(seed).normal(size=(N, K))
    rho, e = head.rho.detach().numpy(), head.e.detach().numpy()
    fit = mass = sparse = 0.0
    gram = np.zeros((K, K))
    for n in index:
        p = softmax(logits[n])
        score = 0.0
        for s in range(votes.indptr[n], votes.indptr[n + 1]):
            theta = np.stack([softmax(row) for row in rho[votes.annotator[s]]])
            own = e[s] - e[s].mean()
            q = np.clip(theta.T @ p + own, 1e-10, 1 - 1e-10)
            fit -= votes.weights[s] * np.log(q[votes.label[s]] / q.sum())
            mass += votes.weights[s]
            score += votes.weights[s] * own @ own
        sparse += (score + 1e-10) ** 0.2
        gram += np.outer(p, p)
    gram = K * gram / len(index) + RIDGE * np.eye(K)
    return float(fit / max(mass, 1e-12) + 0.3 * sparse / len(index) - head.weight * np.linalg.slogdet(gram)[1])


@pytest.mark.parametrize("index", [[0, 1, 2, 3, 4, 5, 6], [2, 3, 6], [4], [1], [0, 1]])
@pytest.mark.parametrize("big", [False, True])
def test_the_loss_is_the_plain_one(index: list[int], big: bool) -> None:
    votes = make_votes()
    head = make_head(votes)
    if big:  # where probabilities are clipped
        with torch.no_grad():
            head.e.mul_(20.0)
    found = float(head.loss(make_batch(votes, index)).detach())
    assert found == pytest.approx(plain_loss(head, votes, index), abs=1e-9)


def test_there_is_a_row_for_each_vote_and_no_more() -> None:
    votes = make_votes()
    head = make_head(votes)
    assert head.e.shape == (votes.n_votes, K)
    head.loss(make_batch(votes, [2, 5])).backward()
    assert head.e.grad is not None
    touched = torch.nonzero(head.e.grad.abs().sum(dim=1))[:, 0].tolist()
    assert touched == [s for n in (2, 5) for s in range(votes.indptr[n], votes.indptr[n + 1])]
    assert float(head.vectors().sum(dim=1).abs().max().detach()) < 1e-12


def test_gradients_are_those_of_the_loss() -> None:
    votes = make_votes()
    head, batch = make_head(votes), make_batch(votes, range(N))

    def loss(logits: Tensor, rho: Tensor, e: Tensor) -> Tensor:
        given: Any = copy.deepcopy(head)
        del given.rho, given.e
        given.rho, given.e = rho, e
        found: Tensor = given.loss(replace(batch, logits=logits))
        return found

    values = [x.detach().clone().requires_grad_() for x in (batch.logits, head.rho, head.e)]
    assert torch.autograd.gradcheck(loss, values)


def test_names_and_order_do_not_matter() -> None:
    votes = make_votes()
    head, batch = make_head(votes), make_batch(votes, range(N))
    annotators, classes = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 2, 0])
    other = copy.deepcopy(head)
    with torch.no_grad():
        other.rho.copy_(head.rho[annotators][:, classes][:, :, classes])
        other.e.copy_(head.e[:, classes])
    moved = replace(
        batch, logits=batch.logits[:, classes], annotator=torch.argsort(annotators)[batch.annotator],
        label=torch.argsort(classes)[batch.label],
    )  # fmt: skip
    torch.testing.assert_close(other.loss(moved), head.loss(batch), rtol=1e-12, atol=1e-12)


def test_weights_are_repeated_votes() -> None:
    votes = make_votes(weights=False)
    times = np.random.default_rng(3).integers(1, 4, size=votes.n_votes)
    weighted = replace(votes, weight=times.astype(float))
    ends = np.concatenate([[0], np.cumsum(times)])[votes.indptr]
    repeated = replace(
        votes, indptr=ends, annotator=np.repeat(votes.annotator, times), label=np.repeat(votes.label, times)
    )  # fmt: skip
    one, many = make_head(weighted), make_head(repeated)
    with torch.no_grad():
        many.rho.copy_(one.rho)
        many.e.copy_(one.e[torch.repeat_interleave(torch.as_tensor(times))])
    torch.testing.assert_close(many.loss(make_batch(repeated, range(N))), one.loss(make_batch(weighted, range(N))))
    ones, many_times = torch.ones(times.sum()).double(), torch.as_tensor(times).double()
    torch.testing.assert_close(many.scores(ones), one.scores(many_times))


def test_without_outliers_it_is_geocrowdnet() -> None:
    votes = make_votes()
    head, batch = make_head(votes, guard=True), make_batch(votes, range(N))
    geo = Volume(M, K, 0.05, "network", True).double()
    with torch.no_grad():
        head.e.zero_()
        geo.rho.copy_(head.rho)
    batch = replace(batch, logits=batch.logits.requires_grad_())
    penalty = 0.3 * 1e-10**0.2
    torch.testing.assert_close(head.loss(batch) - penalty, geo.loss(batch))


def test_votes_to_come_are_judged_by_the_matrices() -> None:
    votes = make_votes()
    head, batch = make_head(votes), make_batch(votes, range(N))
    bare = copy.deepcopy(head)
    with torch.no_grad():
        bare.e.zero_()
    head.eval(), bare.eval()
    torch.testing.assert_close(head.vote_log_probs(batch), bare.vote_log_probs(batch))
    strangers = replace(batch, annotator=torch.full_like(batch.annotator, M))
    assert bool(torch.isfinite(head.vote_log_probs(strangers)).all())
    torch.testing.assert_close(head.posterior_log_probs(batch)[1], batch.log_f[1])


# -- learning ----------------------------------------------------------------------------------------------------------


def crowd(seed: int, share: float, n: int = 600, classes: int = 4) -> tuple[Any, Votes, Any, Any]:
    """Gaussian classes, 15 annotators with matrices, 3 votes an item; on a share of the items most votes agree on
    something else than the class, which differs from item to item and has nothing to do with the matrices."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=n)
    x = rng.normal(size=(n, 8)) + 2.4 * np.eye(classes, 8)[truth]
    right = rng.uniform(0.5, 0.9, size=15)
    theta = np.stack([a * np.eye(classes) + (1 - a) * rng.dirichlet(np.ones(classes), size=classes) for a in right])
    odd = np.zeros(n, dtype=bool)
    odd[rng.permutation(n)[: round(share * n)]] = True
    instead = (truth + rng.integers(1, classes, size=n)) % classes
    labels = np.full((n, 15), -1)
    for i in range(n):
        for m in rng.choice(15, size=3, replace=False):
            wild = instead[i] if rng.random() < 0.8 else rng.integers(classes)
            labels[i, m] = wild if odd[i] else rng.choice(classes, p=theta[m, truth[i]])
    return x, Votes.from_dense(labels, missing=-1, classes=range(classes)), truth, odd


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_outliers_are_ranked_first(seed: int) -> None:
    x, votes, truth, odd = crowd(seed, 0.1)
    learner = COINNet(epochs=25, lr=2e-3, random_state=seed).fit(x, votes)
    score = learner.consensus_.item_columns["outlier"]
    assert roc_auc_score(odd, score) > 0.85
    assert (score >= 0).all() and score.shape == (600,)
    assert learner.score(x, truth) > 0.85
    assert (learner.predict(x[odd]) == truth[odd]).mean() > 0.8  # the network is not led astray by them


def test_without_outliers_nothing_is_lost() -> None:
    difference = []
    for seed in (2, 3):
        x, votes, truth, _ = crowd(seed, 0.0, n=1200)
        scores = [
            registry.find(key, inputs=True).create(epochs=12, lr=5e-3, random_state=seed).fit(x[:300], votes[:300])
            .score(x[300:], truth[300:]) for key in ("coinnet", "geocrowdnet-f")
        ]  # fmt: skip
        difference.append(scores[0] - scores[1])
    assert np.mean(difference) > -0.005


def test_runs_repeat_and_come_back_from_disk(tmp_path: Path) -> None:
    x, votes, *_ = crowd(5, 0.1, n=120)
    fits = [COINNet(epochs=3, random_state=3).fit(x, votes) for _ in range(2)]
    first, again = (fit.predict_proba(x, votes) for fit in fits)
    assert (first == again).all()
    columns = [fit.consensus_.item_columns["outlier"] for fit in fits]
    assert (columns[0] == columns[1]).all()
    back = load_learner(fits[0].save(tmp_path / "learner"))
    np.testing.assert_allclose(back.predict_proba(x, votes), first, atol=1e-6)
    assert back._trainer.head.e.shape == (votes.n_votes, 4)
    np.testing.assert_array_equal(back.consensus_.item_columns["outlier"], columns[0])


def test_vectors_can_have_a_weight_decay_of_their_own() -> None:
    votes = make_votes()
    network, settings = torch.nn.Linear(2, K), TrainingSettings(weight_decay=0.05)
    decays = {}
    for given in (None, 1e-4):
        head = COINNet(vector_decay=given)._head(votes, 2)
        groups = make_optimiser(network, head, settings, torch.device("cpu")).param_groups
        decays[given] = [group["weight_decay"] for group in groups]
        assert groups[1]["params"][0] is head.e and groups[0]["lr"] == groups[1]["lr"] < groups[2]["lr"]
    assert decays == {None: [0.05, 0.05, 0.0], 1e-4: [0.05, 1e-4, 0.0]}


def test_held_out_votes_have_no_rows() -> None:
    x, votes, *_ = crowd(6, 0.1, n=120)
    learner = COINNet(epochs=3, holdout=0.25, select="votes", random_state=0).fit(x, votes)
    assert len(learner._trainer.head.e) == votes.n_votes - round(0.25 * votes.n_votes)
    assert learner.consensus_.item_columns["outlier"].shape == (120,)
    assert all(epoch.held_out is not None for epoch in learner.history_)


@pytest.mark.parametrize("settings", [{"outliers": -1.0}, {"power": 0.0}, {"power": 2.5}, {"weight": -1.0}])
def test_settings_out_of_range_are_named(settings: dict[str, Any]) -> None:
    x, votes, *_ = crowd(7, 0.1, n=60)
    with pytest.raises(ParameterError, match=next(iter(settings))):
        COINNet(**settings).fit(x, votes)
