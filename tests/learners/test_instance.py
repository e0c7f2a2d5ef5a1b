"""Confusion matrices that depend on the input: T against loops, the stages, and crowds that err by place."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import crowdwise as cw
from crowdwise import registry
from crowdwise.errors import ParameterError
from crowdwise.learners.instance_confusions import (
    Corrected,
    InstanceConfusions,
    TracedInstances,
    TraceX,
    TransitionX,
    correct,
    most_confident,
)
from crowdwise.learners.vote_edges import Batch

B, M, K, H, R, E = 5, 4, 3, 6, 2, 9


def make_batch(seed: int = 0, votes: int = E, items: int = B, weighted: bool = True) -> Batch:
    """Random votes on all items but the last, which has none (unless it is the only one)."""
    g = torch.Generator().manual_seed(seed)
    voted = max(items - 1, 1)
    return Batch(
        index=torch.arange(items),
        logits=torch.randn(items, K, generator=g, dtype=torch.float64),
        hidden=torch.randn(items, H, generator=g, dtype=torch.float64),
        row=torch.sort(torch.randint(voted, (votes,), generator=g)).values,
        annotator=torch.randint(M, (votes,), generator=g),
        label=torch.randint(K, (votes,), generator=g),
        weight=torch.rand(votes, generator=g, dtype=torch.float64) + 0.5 if weighted else torch.ones(votes).double(),
    )


def shaken(head: Any, seed: int = 1) -> Any:
    g = torch.Generator().manual_seed(seed)
    head = head.double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64))
    return head


def traced(weight: float = 0.2) -> TracedInstances:
    head: TracedInstances = shaken(TracedInstances(M, K, H, R, 0.8, weight, 3))
    return head


def staged(stage: str) -> Corrected:
    head: Corrected = shaken(Corrected(M, K, H, R, 0.8))
    head.stage = stage
    head.confident = torch.tensor([1, -1, 0, 2, -1])
    head.target = torch.softmax(torch.randn(B, K, generator=torch.Generator().manual_seed(8)).double(), dim=1)
    return head


def T(head: InstanceConfusions, hidden: Tensor, m: int) -> Any:
    """One matrix, written out; an annotator from M on has nothing of their own."""
    shared, own, P, e, V = (p.detach().numpy() for p in (head.shared, head.own, head.P, head.e, head.V))
    out = np.zeros((K, K))
    for k in range(K):
        logits = np.zeros(K)
        for label in range(K):
            logits[label] = shared[k, label] + (own[m, k, label] if m < M else 0.0)
            for r in range(R):
                inside = sum(float(hidden[h]) * P[h, r] for h in range(H)) + (e[m, r] if m < M else 0.0)
                logits[label] += math.tanh(inside) * V[r, k, label]
        out[k] = np.exp(logits) / np.exp(logits).sum()
    return out


def softmax(z: Tensor) -> Any:
    return torch.softmax(z, dim=0).numpy()


def edges_of(batch: Batch) -> list[tuple[int, int, int, float]]:
    return list(
        zip(batch.row.tolist(), batch.annotator.tolist(), batch.label.tolist(), batch.weight.tolist(), strict=True)
    )


def crowd(seed: int = 0, N: int = 600, M: int = 8) -> tuple[Any, cw.Votes, Any, Any]:
    """Annotators who are right on one side of a plane and say the next class on the other; and which side it was."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=N)
    place = rng.normal(size=N)
    X = np.hstack([2.5 * np.eye(3, 4)[truth] + rng.normal(size=(N, 4)), place[:, None]]).astype(np.float32)
    item = np.repeat(np.arange(N), 3)
    who = np.concatenate([rng.choice(M, 3, replace=False) for _ in range(N)])
    right = rng.random(len(item)) < np.where(place[item] > 0.0, 0.4, 0.95)
    label = np.where(right, truth[item], (truth[item] + 1) % 3)
    votes = cw.Votes.from_records(zip(item.tolist(), who.tolist(), label.tolist(), strict=True))
    return X, votes, truth, place


# -------------------------------------------------------------------- written out


def test_rows_votes_and_posterior() -> None:
    batch, head = make_batch(), traced()
    batch.annotator[0] = M + 2  # a stranger
    assert batch.hidden is not None
    rows = head.log_rows(batch).exp().detach().numpy()
    log_q = torch.log_softmax(batch.logits, dim=1).numpy().copy()
    for e, (n, m, label, w) in enumerate(edges_of(batch)):
        table = T(head, batch.hidden[n], m)
        assert rows[e] == pytest.approx(table, abs=1e-12)
        said = float(head.vote_log_probs(batch)[e].detach())
        assert said == pytest.approx(math.log(softmax(batch.logits[n]) @ table[:, label]), abs=1e-12)
        log_q[n] += w * np.log(table[:, label])
    q = np.exp(log_q) / np.exp(log_q).sum(axis=1, keepdims=True)
    assert head.posterior_log_probs(batch).exp().detach().numpy() == pytest.approx(q, abs=1e-12)


def test_trace_loss() -> None:
    batch, head = make_batch(3), traced(0.2)
    total = weights = 0.0
    assert batch.hidden is not None
    for n, m, label, w in edges_of(batch):
        table = T(head, batch.hidden[n], m)
        total += w * (0.2 * np.trace(table) - math.log(softmax(batch.logits[n]) @ table[:, label]))
        weights += w
    assert float(head.loss(batch).detach()) == pytest.approx(total / weights, abs=1e-12)


def test_losses_of_the_stages() -> None:
    batch = make_batch(4)
    assert batch.hidden is not None
    plain = sum(w * math.log(softmax(batch.logits[n])[k]) for n, _, k, w in edges_of(batch)) / float(batch.weight.sum())
    assert float(staged("votes").loss(batch).detach()) == pytest.approx(-plain, abs=1e-12)
    head = staged("transitions")
    fit = weights = 0.0
    for n, m, k, w in edges_of(batch):
        if int(head.confident[n]) >= 0:
            fit += w * math.log(T(head, batch.hidden[n], m)[int(head.confident[n]), k])
            weights += w
    assert float(head.loss(batch).detach()) == pytest.approx(-fit / weights, abs=1e-12)
    last = staged("corrected")
    ce = -np.mean([last.target[n].numpy() @ np.log(softmax(batch.logits[n])) for n in range(B)])
    assert float(last.loss(batch).detach()) == pytest.approx(ce - fit / weights, abs=1e-12)


class Caller(nn.Module):
    """A head's loss as a forward pass, for functional_call."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, batch: Batch) -> Tensor:
        loss: Tensor = self.head.loss(batch)  # type: ignore[operator]
        return loss


@pytest.mark.parametrize("head", [traced(), staged("transitions"), staged("corrected")], ids=["trace", "T", "last"])
def test_gradients(head: Any) -> None:
    batch = make_batch(7)
    assert batch.hidden is not None
    names = [name for name, _ in head.named_parameters()]

    def loss(logits: Tensor, *values: Tensor) -> Tensor:
        made = Batch(batch.index, logits, batch.hidden, batch.row, batch.annotator, batch.label, batch.weight)
        found: Tensor = torch.func.functional_call(
            Caller(head), {f"head.{n}": v for n, v in zip(names, values, strict=True)}, (made,)
        )
        return found

    values = [p.detach().clone().requires_grad_() for p in head.parameters()]
    assert torch.autograd.gradcheck(loss, (batch.logits.clone().requires_grad_(), *values))


def test_T_does_not_pull_at_the_network_in_the_last_stage() -> None:
    for head, pulls in ((staged("corrected"), False), (traced(), True)):
        batch = make_batch(2)
        assert batch.hidden is not None
        batch.hidden.requires_grad_()
        grad = torch.autograd.grad(head.loss(batch), batch.hidden, allow_unused=True)[0]
        assert (grad is not None and bool(grad.abs().sum() > 0)) is pulls


def test_warm_up_holds_T() -> None:
    head, batch = traced(), make_batch(2)
    batch.logits.requires_grad_()
    full = float(head.loss(batch).detach())
    for epoch in range(5):
        head.begin_epoch(epoch, lambda: torch.zeros(0))
        loss = head.loss(batch)
        assert float(loss.detach()) == pytest.approx(full)
        grads = torch.autograd.grad(loss, [batch.logits, head.shared, head.V], allow_unused=True)
        assert grads[0] is not None
        assert all((grad is None) is (epoch < 3) for grad in grads[1:])


def test_names_do_not_matter() -> None:
    batch = make_batch(3)
    who, what = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 2, 0])  # new code of each old one
    a, b = torch.argsort(who), torch.argsort(what)
    other = Batch(batch.index, batch.logits[:, b], batch.hidden, batch.row, who[batch.annotator], what[batch.label],
                  batch.weight)  # fmt: skip
    pairs: list[tuple[Any, Any]] = [(traced(), traced())]
    pairs += [(staged(stage), staged(stage)) for stage in ("votes", "transitions", "corrected")]
    for head, moved in pairs:
        with torch.no_grad():
            moved.shared.copy_(head.shared[b][:, b])
            moved.own.copy_(head.own[a][:, b][:, :, b])
            moved.e.copy_(head.e[a])
            moved.V.copy_(head.V[:, b][:, :, b])
        if isinstance(moved, Corrected):
            moved.confident = torch.where(head.confident >= 0, what[head.confident], -1)
            moved.target = head.target[:, b]
        assert float(moved.loss(other).detach()) == pytest.approx(float(head.loss(batch).detach()), abs=1e-12)


def test_weights_are_repeated_votes_and_small_batches() -> None:
    batch = make_batch(8, weighted=False)
    times = torch.tensor([1, 2, 1, 3, 1, 1, 2, 1, 1])
    again = torch.repeat_interleave(torch.arange(E), times)
    heavy = Batch(batch.index, batch.logits, batch.hidden, batch.row, batch.annotator, batch.label, times.double())
    many = Batch(batch.index, batch.logits, batch.hidden, batch.row[again], batch.annotator[again], batch.label[again],
                 torch.ones(len(again)).double())  # fmt: skip
    for head in (traced(), staged("votes"), staged("transitions"), staged("corrected")):
        assert float(head.loss(heavy).detach()) == pytest.approx(float(head.loss(many).detach()), abs=1e-12)
        for small in (make_batch(1, votes=2, items=1), make_batch(1, votes=0, items=1)):
            assert math.isfinite(float(head.loss(small).detach()))


def test_T_starts_the_same_for_all() -> None:
    head = InstanceConfusions(M, K, H, R, 0.7)
    batch = make_batch()
    rows = head.double().log_rows(batch).exp()
    assert torch.allclose(rows, torch.full((K, K), 0.15).double() + 0.55 * torch.eye(K).double())


def test_most_confident_and_corrected() -> None:
    f = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [0.55, 0.45], [0.99, 0.01]])
    voted = torch.tensor([True, True, True, True, True, False])
    assert most_confident(f.log(), voted, 0.5).tolist() == [0, -1, 0, 1, -1, -1]
    assert most_confident(f.log(), voted, 1.0).tolist() == [0, 0, 0, 1, 0, -1]
    q = torch.tensor([[0.9, 0.05, 0.05], [0.5, 0.4, 0.1]])
    assert torch.allclose(correct(q.log(), 10.0), torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.4, 0.1]]))
    assert torch.allclose(correct(q.log(), 1.0), torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    assert torch.allclose(correct(q.log(), 100.0), q)


# -------------------------------------------------------------------- learning


@pytest.mark.parametrize("key", ["trace-x", "transition-x"])
def test_seeds_saving_and_known_truth(key: str, tmp_path: Path) -> None:
    X, votes, truth, _ = crowd(N=120)
    gold = {n: int(truth[n]) for n in range(10)}
    settings = {"warm_up": 2, "epochs": 3, "random_state": 4} | (
        {"transition_epochs": 2} if key == "transition-x" else {}
    )
    first, second = (registry.find(key, inputs=True).create(**settings).fit(X, votes, gold) for _ in range(2))
    p = first.predict_proba(X)
    assert (p == second.predict_proba(X)).all()
    first.save(tmp_path / "it")
    again = cw.load_learner(tmp_path / "it")
    assert (again.predict_proba(X) == p).all()
    assert again.predict_proba(X, votes) == pytest.approx(first.predict_proba(X, votes), abs=1e-9)
    assert again.confusion_ == pytest.approx(first.confusion_)
    rows = first.vote_confusion(X, votes)
    assert rows.shape == (votes.n_votes, 3, 3)
    assert rows.sum(axis=2) == pytest.approx(1.0)
    if key == "transition-x":
        head = first._trainer.head
        assert (head.confident[:10].numpy() == truth[:10]).all()
        assert (head.target[:10].argmax(dim=1).numpy() == truth[:10]).all()
        assert [(epoch.epoch, epoch.epochs) for epoch in first.history_] == [(n, 7) for n in range(1, 8)]


@pytest.mark.parametrize("learner", [TraceX(epochs=30, random_state=0), TransitionX(epochs=20, random_state=0)])
def test_finds_where_annotators_err(learner: Any) -> None:
    X, votes, truth, place = crowd()
    learner.fit(X, votes)
    rows = learner.vote_confusion(X, votes)
    right = rows[np.arange(votes.n_votes), truth[votes.item], truth[votes.item]]  # P(right), for the true class
    hard = place[votes.item] > 0.0
    assert right[~hard].mean() - right[hard].mean() > 0.15
    majority = cw.aggregate(votes, "majority").score(truth)
    assert learner.consensus_.score(truth) > majority + 0.03


def test_a_callback_ends_all_stages() -> None:
    X, votes, _, _ = crowd(N=60)
    for stop in (1, 3, 6):
        learner = TransitionX(warm_up=2, transition_epochs=2, epochs=3, random_state=0)
        learner.fit(X, votes, callback=lambda epoch, stop=stop: epoch.epoch == stop)
        assert len(learner.history_) == stop
        assert learner.predict_proba(X, votes).shape == (60, 3)


@pytest.mark.parametrize("stop", [3, 6])
def test_goes_on_from_a_checkpoint(stop: int, tmp_path: Path) -> None:
    X, votes, _, _ = crowd(N=60)
    settings: dict[str, Any] = {"warm_up": 2, "transition_epochs": 2, "epochs": 4, "random_state": 0}
    whole = TransitionX(**settings).fit(X, votes)
    learner = TransitionX(checkpoint=tmp_path / "check", **settings)
    learner.fit(X, votes, callback=lambda epoch: epoch.epoch == stop)
    learner.fit(X, votes)
    assert len(learner.history_) == 8
    assert (learner.predict_proba(X, votes) == whole.predict_proba(X, votes)).all()


def test_the_choice_by_truth_does_not_leak() -> None:
    X, votes, truth, _ = crowd(N=120)
    settings: dict[str, Any] = {"warm_up": 2, "transition_epochs": 2, "epochs": 2, "random_state": 0}
    gold = np.where(np.arange(120) < 30, (truth + 1) % 3, -1)
    learner = TransitionX(select="gold", **settings).fit(X, votes, gold)
    head = learner._trainer.head
    assert isinstance(head, Corrected)
    assert (head.confident[:30].numpy() != gold[:30]).mean() > 0.5
    used = TransitionX(**settings).fit(X, votes, gold)._trainer.head
    assert isinstance(used, Corrected)
    assert (used.confident[:30].numpy() == gold[:30]).all()


@pytest.mark.parametrize(
    ("kind", "settings", "text"),
    [
        (TraceX, {"rank": 0}, "rank=0"),
        (TraceX, {"accuracy": 1.0}, "accuracy=1.0: expected a number above 0 and below 1"),
        (TraceX, {"accuracy": 0.3}, "with 3 classes, annotators who start at chance"),
        (TraceX, {"warm_up": -1}, "warm_up=-1"),
        (TraceX, {"weight": -1.0}, "weight=-1.0"),
        (TransitionX, {"share": 0.0}, "share=0.0"),
        (TransitionX, {"share": 1.5}, "share=1.5"),
        (TransitionX, {"ratio": 0.5}, "ratio=0.5"),
        (TransitionX, {"transition_epochs": 0}, "transition_epochs=0"),
    ],
)
def test_parameters_out_of_range(kind: Any, settings: dict[str, Any], text: str) -> None:
    X, votes, _, _ = crowd(N=30)
    with pytest.raises(ParameterError, match=text):
        kind(**settings).fit(X, votes)
