"""Layers after the network: losses against plain loops, gradients, symmetries, and what each method is for."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from crowdwise import load_learner, registry
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError
from crowdwise.learners.head import Head
from crowdwise.learners.joint_confusions import identity
from crowdwise.learners.layers import CommonNoise, CrowdAR, CrowdWeights, Reliable, Transitions, Union, log_total
from crowdwise.learners.vote_edges import Batch

M, K, H, B = 4, 3, 5, 6
HEADS = {
    "MW": lambda: CrowdWeights(M, K, "MW"),
    "VW": lambda: CrowdWeights(M, K, "VW"),
    "VB": lambda: CrowdWeights(M, K, "VB"),
    "VW+B": lambda: CrowdWeights(M, K, "VW+B"),
    "speelfc": lambda: Transitions(M, K, identity(K, 3.0, 1.0)),
    "conal": lambda: CommonNoise(M, K, H, 7, 0.01),
    "union-A": lambda: Union(M, K, "A"),
    "union-B": lambda: Union(M, K, "B"),
    "crowd-ar": lambda: Reliable(M, K, H, 0.8),
}
LEARNERS = ("crowd-layer", "speelfc", "conal", "unionnet", "crowd-ar")


def make_head(name: str, seed: int = 0) -> Head:
    """A head in float64 whose parameters are nowhere special."""
    torch.manual_seed(seed)
    head = HEADS[name]().double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
        head.after_step()
    return head


def make_batch(seed: int = 0, items: int = B, votes: int = 11) -> Batch:
    """Votes with weights; item 1 has none (unless it is alone), nor does the last annotator vote at all."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice([n for n in range(items) if n != 1 or items == 1], size=votes))
    return Batch(
        torch.arange(items),
        torch.as_tensor(2.0 * rng.normal(size=(items, K))),
        torch.as_tensor(rng.normal(size=(items, H))),
        torch.as_tensor(rows),
        torch.as_tensor(rng.integers(M - 1, size=votes)),
        torch.as_tensor(rng.integers(K, size=votes)),
        torch.as_tensor(rng.choice([0.5, 1.0, 2.0], size=votes)),
    )


# -- the losses, written out -------------------------------------------------------------------------------------------


def softmax(x: Any) -> Any:
    e = np.exp(np.asarray(x) - np.max(x))
    return e / e.sum()


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-np.asarray(x)))


def array(x: Tensor | None) -> Any:
    assert x is not None
    return x.detach().numpy()


def votes_of(batch: Batch) -> Any:
    return zip(*(array(x).tolist() for x in (batch.row, batch.annotator, batch.label, batch.weight)), strict=True)


def plain_gate(head: CommonNoise, h: Any, m: int) -> float:
    first, last = head.items[0], head.items[2]
    v = array(last.weight) @ np.maximum(array(first.weight) @ h + array(first.bias), 0.0) + array(last.bias)
    u = array(head.annotators)[m]
    return float(sigmoid(v @ u / np.linalg.norm(v) / np.linalg.norm(u)))


def plain_reliability(head: Reliable, h: Any, p: Any, m: int) -> float:
    first, last = head.difficult[0], head.difficult[2]
    d = sigmoid(array(last.weight) @ sigmoid(array(first.weight) @ h + array(first.bias)) + array(last.bias))
    return float(sigmoid(array(head.v) @ ((sigmoid(array(head.expertise)[m]) - d) * p) + array(head.c)))


def plain_loss(name: str, head: Any, batch: Batch) -> float:
    """Vote by vote, with what each method's paper says of one vote."""
    total, mass = 0.0, 0.0
    for n, m, label, weight in votes_of(batch):
        p, h = softmax(array(batch.logits)[n]), array(batch.hidden)[n]
        if name == "MW":
            value = -np.log(softmax(array(head.W)[m].T @ p)[label])
        elif name in ("VW", "VB", "VW+B"):
            w = array(head.w)[m] if head.w is not None else np.ones(K)
            b = array(head.b)[m] if head.b is not None else np.zeros(K)
            value = -np.log(softmax(w * p + b)[label])
        elif name == "speelfc":
            value = -np.log(sum(p[k] * softmax(array(head.rho)[m, k])[label] for k in range(K)))
        elif name == "conal":
            gate = plain_gate(head, h, m)
            value = -np.log(softmax(gate * array(head.common).T @ p + (1 - gate) * array(head.W)[m].T @ p)[label])
        elif name == "union-A":
            union = softmax(np.concatenate([array(head.T)[j].T @ p for j in range(M)]))
            value = -np.log(union[m * K + label])
        elif name == "union-B":
            columns = [softmax(np.concatenate([array(head.T)[j, k] for j in range(M)])) for k in range(K)]
            value = -np.log(np.stack(columns, axis=1) @ p)[m * K + label]
        else:
            r = plain_reliability(head, h, p, m)
            answers = np.log(softmax(array(head.W)[m].T @ p))
            target = r * np.eye(K)[label] + (1 - r) / K
            judged = -np.log(r) if p.argmax() == label else -np.log(1 - r)
            value = -0.8 * target @ answers + 0.2 * judged
        total, mass = total + weight * value, mass + weight
    if name == "conal":
        apart = sum(np.linalg.norm(array(head.W)[m] - array(head.common)) for m in range(M))
        return total / len(batch) - 0.01 * apart
    return total / (mass if name == "crowd-ar" else len(batch))


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(("seed", "items", "votes"), [(0, B, 11), (1, B, 4), (2, 1, 1), (3, 1, 5)])
def test_the_loss_is_the_plain_one(name: str, seed: int, items: int, votes: int) -> None:
    head, batch = make_head(name, seed), make_batch(seed, items, votes)
    assert float(head.loss(batch).detach()) == pytest.approx(plain_loss(name, head, batch), abs=1e-9)


@pytest.mark.parametrize("name", HEADS)
def test_gradients_are_those_of_the_loss(name: str) -> None:
    head, batch = make_head(name), make_batch()
    parameters = dict(head.named_parameters())

    def loss(logits: Tensor, *values: Tensor) -> Tensor:
        given = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(Wrapped(head), {f"head.{n}": v for n, v in given.items()}, (logits,))

    class Wrapped(torch.nn.Module):
        def __init__(self, head: Head) -> None:
            super().__init__()
            self.head = head

        def forward(self, logits: Tensor) -> Tensor:
            return self.head.loss(replace(batch, logits=logits))

    if name == "crowd-ar":  # no gradient passes from reliabilities to the network: only the head's are the loss's own
        values = [p.detach().clone().requires_grad_() for p in parameters.values()]
        assert torch.autograd.gradcheck(lambda *v: loss(batch.logits, *v), values, fast_mode=True)
        return
    values = [x.detach().clone().requires_grad_() for x in (batch.logits, *parameters.values())]
    assert torch.autograd.gradcheck(loss, values, fast_mode=True)


@pytest.mark.parametrize("name", ["conal", "crowd-ar"])
def test_gates_and_reliabilities_do_not_train_the_network(name: str) -> None:
    head, batch = make_head(name), make_batch()
    hidden = make_batch().hidden
    assert hidden is not None
    hidden.requires_grad_()
    head.loss(replace(batch, hidden=hidden)).backward()
    assert hidden.grad is None
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in head.parameters())


def test_the_network_learns_only_through_the_answers_of_crowd_ar() -> None:
    head, batch = make_head("crowd-ar"), make_batch()
    assert isinstance(head, Reliable)
    logits = batch.logits.clone().requires_grad_()
    head.loss(replace(batch, logits=logits)).backward()
    other = batch.logits.clone().requires_grad_()
    probe = replace(batch, logits=other)
    r, answers = torch.sigmoid(head.logit(batch)).detach(), head.label_log_probs(probe)
    said = answers.gather(1, batch.label[:, None])[:, 0]
    (-0.8 * batch.mean(r * said + (1 - r) * answers.mean(dim=1))).backward()
    torch.testing.assert_close(logits.grad, other.grad)


# -- symmetries --------------------------------------------------------------------------------------------------------


def permuted(head: Head, annotators: Tensor, classes: Tensor) -> Head:
    """The head after annotator annotators[i] has become i, class classes[i] class i."""
    other = copy.deepcopy(head)
    with torch.no_grad():
        for name, p in other.named_parameters():
            if p.shape == (M, K, K):
                p.copy_(p[annotators][:, classes][:, :, classes])
            elif p.shape == (M, K):
                p.copy_(p[annotators][:, classes])
            elif p.shape == (K, K):
                p.copy_(p[classes][:, classes])
            elif name == "annotators":
                p.copy_(p[annotators])
            elif p.shape == (K,) or name == "difficult.2.weight":
                p.copy_(p[classes])
    return other


@pytest.mark.parametrize("name", HEADS)
def test_names_and_order_do_not_matter(name: str) -> None:
    head, batch = make_head(name), make_batch()
    annotators, classes = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 2, 0])
    moved = replace(
        batch,
        logits=batch.logits[:, classes],
        annotator=torch.argsort(annotators)[batch.annotator],
        label=torch.argsort(classes)[batch.label],
    )
    other = permuted(head, annotators, classes)
    torch.testing.assert_close(other.loss(moved), head.loss(batch), rtol=1e-12, atol=1e-12)
    theta = head.confusion()[annotators][:, classes][:, :, classes]
    if name != "conal":  # whose mean gates are of the votes seen in training
        torch.testing.assert_close(other.confusion(), theta)
    other.eval(), head.eval()
    torch.testing.assert_close(other.vote_log_probs(moved), head.vote_log_probs(batch))


@pytest.mark.parametrize("name", HEADS)
def test_weights_are_repeated_votes(name: str) -> None:
    head, batch = make_head(name), make_batch()
    twice = torch.repeat_interleave(torch.arange(11), torch.tensor([1, 2, 3] * 3 + [1, 2]))
    weighted = replace(batch, weight=torch.tensor(([1.0, 2.0, 3.0] * 3 + [1.0, 2.0]), dtype=torch.float64))
    repeated = replace(
        batch, row=batch.row[twice], annotator=batch.annotator[twice], label=batch.label[twice],
        weight=torch.ones(len(twice), dtype=torch.float64),
    )  # fmt: skip
    torch.testing.assert_close(head.loss(repeated), head.loss(weighted))
    head.eval()
    torch.testing.assert_close(head.posterior_log_probs(repeated), head.posterior_log_probs(weighted))


# -- probabilities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HEADS)
def test_votes_have_probabilities_and_matrices_rows(name: str) -> None:
    head, batch = make_head(name).eval(), make_batch()
    torch.testing.assert_close(head.confusion().sum(dim=2), torch.ones(M, K, dtype=torch.float64))
    for annotator in (batch.annotator, torch.full_like(batch.annotator, M)):  # known, and strangers
        every = [replace(batch, annotator=annotator, label=torch.full_like(batch.label, k)) for k in range(K)]
        total = torch.stack([head.vote_log_probs(b) for b in every]).exp().sum(dim=0)
        torch.testing.assert_close(total, torch.ones(len(batch.row), dtype=torch.float64), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["MW", "VW", "VB", "VW+B", "crowd-ar"])
def test_a_matrix_is_what_the_layer_answers_where_the_network_is_certain(name: str) -> None:
    head = make_head(name).eval()
    theta = head.confusion()
    for k in range(K):
        batch = replace(make_batch(), logits=torch.full((B, K), -1e3, dtype=torch.float64))
        batch.logits[:, k] = 1e3
        expected = theta[batch.annotator, k, batch.label].log()
        torch.testing.assert_close(head.vote_log_probs(batch), expected)


@pytest.mark.parametrize("name", HEADS)
def test_a_posterior_without_votes_is_the_network(name: str) -> None:
    head, batch = make_head(name).eval(), make_batch()
    torch.testing.assert_close(head.posterior_log_probs(batch)[1], batch.log_f[1])
    none = replace(batch, row=batch.row[:0], annotator=batch.row[:0], label=batch.row[:0], weight=batch.weight[:0])
    torch.testing.assert_close(head.posterior_log_probs(none), batch.log_f)


def test_posteriors_of_conal_use_the_gate_of_the_vote() -> None:
    head, batch = make_head("conal").eval(), make_batch()
    expected = batch.log_f.clone().numpy()
    for n, m, label, weight in votes_of(batch):
        gate = plain_gate(head, array(batch.hidden)[n], m)  # type: ignore[arg-type]
        rows = gate * array(head.common) + (1 - gate) * array(head.W)[m]  # type: ignore[arg-type]
        expected[n] += [weight * np.log(softmax(row)[label]) for row in rows]
    q = torch.log_softmax(torch.as_tensor(expected), dim=1)
    torch.testing.assert_close(head.posterior_log_probs(batch), q)


def test_the_mean_gate_is_that_of_the_votes_of_the_epoch() -> None:
    head, batch = make_head("conal"), make_batch()
    assert isinstance(head, CommonNoise)
    head.loss(batch)
    head.begin_epoch(1, lambda: batch.log_f)
    head.loss(batch)
    total, count = np.full(M, 0.5), np.ones(M)
    for n, m, _, weight in votes_of(batch):
        total[m] += weight * plain_gate(head, array(batch.hidden)[n], m)
        count[m] += weight
    np.testing.assert_allclose(array(head.mean_gate()), total / count, atol=1e-9)


def test_the_union_is_summed_in_parts() -> None:
    torch.manual_seed(0)
    p = torch.softmax(torch.randn(5, K, dtype=torch.float64), dim=1).requires_grad_()
    T = torch.randn(50, K, K, dtype=torch.float64, requires_grad=True)
    whole, parts = log_total(p, T), log_total(p, T, block=100)
    torch.testing.assert_close(whole, parts)
    torch.testing.assert_close(
        torch.autograd.grad(whole.sum(), (p, T)), torch.autograd.grad(parts.sum(), (p, T))
    )  # fmt: skip


# -- learning ----------------------------------------------------------------------------------------------------------


@cache
def crowd(
    seed: int, n: int = 500, accuracy: float | None = None, swap: bool = True
) -> tuple[Any, Votes, Any, Any, Any]:
    """Three Gaussian classes; 8 annotators, the last of whom takes each class for the next."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(K, size=n)
    x = rng.normal(size=(n, 6)) + 2.0 * np.eye(K, 6)[truth]
    right = np.linspace(0.45, 0.9, 8) if accuracy is None else np.full(8, accuracy)
    theta = np.stack([a * np.eye(K) + (1 - a) * (1 - np.eye(K)) / (K - 1) for a in right])
    if swap:
        theta[-1] = 0.9 * np.roll(np.eye(K), 1, axis=1) + 0.1 / K
    labels = np.full((n, len(right)), -1)
    for i in range(n):
        for m in rng.choice(len(right), size=4, replace=False):
            labels[i, m] = rng.choice(K, p=theta[m, truth[i]])
    return x, Votes.from_dense(labels, missing=-1, classes=range(K)), truth, theta, right


QUICK: dict[str, Any] = {"epochs": 15, "lr": 3e-3, "crowd_lr": 2e-2, "random_state": 0}
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("crowd-layer", {"diagonal": 1.0}), ("speelfc", {}), ("conal", {}), ("unionnet", {"diagonal": 1.0}),
    ("unionnet", {"variant": "A", "diagonal": 1.0}), ("crowd-ar", {"diagonal": 1.0}),
]  # fmt: skip
"""A hundred steps are too few to forget a start at accurate annotators."""


@pytest.mark.parametrize(("key", "settings"), SETTINGS)
def test_it_learns_who_exchanges_classes(key: str, settings: dict[str, Any]) -> None:
    x, votes, truth, theta, _ = crowd(0)
    learner = registry.find(key, inputs=True).create(**QUICK, **settings).fit(x, votes)
    new, _, new_truth, _, _ = crowd(1)
    majority = (votes.shares().argmax(axis=1) == truth).mean()
    assert learner.score(new, new_truth) > 0.84  # the best possible is 0.86
    assert (learner.consensus_.labels == truth).mean() > majority + 0.05
    assert (learner.confusion_[-1].argmax(axis=1) == theta[-1].argmax(axis=1)).all()
    assert np.abs(learner.confusion_ - theta).mean() < 0.09


@pytest.mark.parametrize("kind", ["VW", "VB", "VW+B"])
def test_vectors_learn_what_vectors_can(kind: str) -> None:
    x, votes, truth, _, _ = crowd(2, swap=False)
    biased = votes.label.copy()
    rng = np.random.default_rng(0)
    mine = np.flatnonzero((votes.annotator == 0) & (rng.random(votes.n_votes) < 0.7))
    biased[mine] = 2  # the first annotator likes the last class
    votes = replace(votes, label=biased)
    learner = registry.find("crowd-layer", inputs=True).create(kind=kind, **QUICK).fit(x, votes)
    assert learner.score(x, truth) > 0.84
    _, second, liked = learner.confusion_[0, 0]
    if kind == "VW":  # a weight per class cannot say that a label is liked
        assert second == pytest.approx(liked)
    else:
        assert liked > second + 0.3
    assert np.trace(learner.confusion_[-1]) > np.trace(learner.confusion_[1]) or kind == "VB"


def test_speelfc_closes_in_on_the_matrices() -> None:
    def error(n: int) -> float:
        x, votes, _, theta, _ = crowd(3, n)
        learner = registry.find("speelfc", inputs=True).create(**QUICK).fit(x, votes)
        return float(np.abs(learner.confusion_ - theta).mean())

    assert error(1600) < 0.75 * error(200)


def test_conal_finds_the_noise_that_all_share() -> None:
    rng = np.random.default_rng(4)
    x, votes, truth, _, _ = crowd(4, 800, 0.85, swap=False)
    label = votes.label.copy()
    fooled = (truth[votes.item] == 0) & (rng.random(votes.n_votes) < 0.4)
    label[fooled] = 1  # everybody takes the first class for the second now and then
    learner = registry.find("conal", inputs=True).create(**QUICK).fit(x, replace(votes, label=label))
    common = torch.softmax(learner._trainer.head.common.detach(), dim=1).numpy()
    assert common[0, 1] > 2.0 * max(common[0, 2], common[1, 2], common[2, 0])
    columns = learner.consensus_.annotator_columns
    assert ((columns["common"] > 0.25) & (columns["common"] < 0.75)).all()  # the sigmoid of a cosine


def test_the_union_knows_who_votes_how_often() -> None:
    x, votes, *_ = crowd(5)
    rng = np.random.default_rng(5)
    votes = votes.select((votes.annotator >= 4) | (rng.random(votes.n_votes) < 0.3))
    learner = registry.find("unionnet", inputs=True).create(**QUICK).fit(x, votes)
    T = learner._trainer.head.T.detach()
    share = torch.softmax(T.transpose(0, 1).reshape(K, -1), dim=1).reshape(K, 8, K).sum(dim=2).mean(dim=0).numpy()
    np.testing.assert_allclose(share, np.bincount(votes.annotator) / votes.n_votes, atol=0.03)


def test_crowd_ar_tells_the_reliable_from_the_rest() -> None:
    x, votes, truth, _, right = crowd(6, 800, swap=False)
    learner = registry.find("crowd-ar", inputs=True).create(**QUICK).fit(x, votes)
    columns = learner.consensus_.annotator_columns["reliability"]
    assert np.corrcoef(columns, right)[0, 1] > 0.8
    assert (learner._trainer.head.v >= 0).all()
    difficulty = learner.consensus_.item_columns["difficulty"]
    assert difficulty.shape == (800,) and ((difficulty > 0) & (difficulty < 1)).all()


@pytest.mark.parametrize("key", LEARNERS)
def test_runs_repeat_and_come_back_from_disk(key: str, tmp_path: Path) -> None:
    x, votes, *_ = crowd(7, 150)
    fits = [registry.find(key, inputs=True).create(epochs=3, random_state=3).fit(x, votes) for _ in range(2)]
    first, again = (fit.predict_proba(x, votes) for fit in fits)
    assert (first == again).all() and (fits[0].confusion_ == fits[1].confusion_).all()
    back = load_learner(fits[0].save(tmp_path / "learner"))
    np.testing.assert_allclose(back.predict_proba(x, votes), first, atol=1e-6)
    np.testing.assert_allclose(back.confusion_, fits[0].confusion_, atol=1e-6)
    assert back.score(x, votes) == pytest.approx(fits[0].score(x, votes), abs=1e-5)


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("crowd-layer", {"kind": "SW"}),
        ("speelfc", {"diagonal": 1.0}),
        ("conal", {"embedding": 0}),
        ("conal", {"weight": -1.0}),
        ("unionnet", {"variant": "C"}),
        ("crowd-ar", {"share": 1.5}),
        ("crowd-ar", {"share": 0.0}),
    ],
)
def test_settings_out_of_range_are_named(key: str, settings: dict[str, Any]) -> None:
    x, votes, *_ = crowd(8, 60)
    with pytest.raises(ParameterError, match=next(iter(settings))):
        registry.find(key, inputs=True).create(**settings).fit(x, votes)


def test_an_annotator_who_never_voted_has_no_reliability() -> None:
    x, votes, *_ = crowd(9, 80)
    votes = replace(votes, annotators=np.array([*votes.annotators, "nobody"], dtype=object))
    found = CrowdAR(epochs=2, random_state=0).fit(x, votes).consensus_.annotator_columns["reliability"]
    assert np.isnan(found[-1]) and np.isfinite(found[:-1]).all()
