"""The regression on gold labels: the maximum, the choice of its strength, panels that err together, no harm."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import crowdwise as cw
from crowdwise.core.gold_regression import MAX_LABELS, inner_products, regress, ridge, vote_weights
from crowdwise.core.numerics import softmax
from crowdwise.core.vote_parts import VotePart, VoteParts


def panel(seed: int, N: int = 400, M: int = 25, misled: int = 20) -> tuple[cw.Votes, np.ndarray]:
    """Every annotator answers every item. Most fall for the same trap, set on two items of five; the rest do not."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, N)
    seen = np.where((rng.random(N) < 0.45)[:, None] & (np.arange(M) < misled), 1 - truth[:, None], truth[:, None])
    labels = np.where(rng.random((N, M)) < 0.2, 1 - seen, seen)
    return cw.Votes.from_dense(labels, classes=[0, 1]), truth


def known(truth: np.ndarray, n: int, seed: int = 0) -> np.ndarray:
    gold = np.full(len(truth), -1, dtype=np.int32)
    at = np.random.default_rng(seed).choice(len(truth), n, replace=False)
    gold[at] = truth[at]
    return gold


def centred(votes: cw.Votes) -> np.ndarray:
    X = np.zeros((len(votes), votes.n_annotators, votes.n_classes))
    np.add.at(X, (votes.item, votes.annotator, votes.label), votes.weights)
    return (X - X.mean(axis=2, keepdims=True)).reshape(len(votes), -1)


def test_the_maximum_is_that_of_scikit_learn() -> None:
    """Three classes, folds and two strengths at once; the weights of votes come back from the inner products."""
    sim = cw.simulate.dirichlet(60, n_annotators=7, n_classes=3, votes_per_item=4, random_state=0)
    votes, y, X = sim.votes, np.asarray(sim.truth), centred(sim.votes)
    product = inner_products(votes)
    assert np.allclose(product, X @ X.T)
    e, basis = np.linalg.eigh(product)
    basis, root = basis[:, e > 1e-9], np.sqrt(e[e > 1e-9])
    train = np.stack([np.arange(60) % 2 == 0, np.ones(60, dtype=bool)])
    B = ridge(basis * root, np.zeros((2, 60, 3)), y, train, np.array([0.3, 3.0]))
    for t, some in enumerate(train):
        for j, penalty in enumerate((0.3, 3.0)):
            W = vote_weights(votes, basis @ (B[t, j] / root[:, None])).reshape(-1, 3)
            plain = LogisticRegression(C=1 / penalty, fit_intercept=False, tol=1e-8, max_iter=1000).fit(
                X[some], y[some]
            )
            assert np.allclose(softmax(X @ W), plain.predict_proba(X), atol=2e-3)


def test_beyond_an_offset_it_is_that_of_a_general_optimiser() -> None:
    rng = np.random.default_rng(0)
    F, offset, y = np.linalg.qr(rng.normal(size=(40, 3)))[0] * 4.0, rng.normal(size=(40, 2)), rng.integers(0, 2, 40)

    def loss(b: np.ndarray) -> float:
        q = softmax(offset + F @ b.reshape(3, 2))
        return float(-np.log(q[np.arange(40), y]).sum() + 0.5 * 0.7 * (b**2).sum())

    best = minimize(loss, np.zeros(6), tol=1e-10).x.reshape(3, 2)
    found = ridge(F, offset[None], y, np.ones((1, 40), dtype=bool), np.array([0.7]))[0, 0]
    assert np.allclose(found, best, atol=1e-3)


def test_few_labels_change_little_and_many_find_a_bias() -> None:
    def items(g: int, power: float, bias: list[float]) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(1)
        logit = np.log(rng.dirichlet(np.full(3, 0.4), g) + 1e-6)
        return logit, np.array([rng.choice(3, p=p) for p in softmax(power * logit + np.array(bias))])

    assert regress(*items(6, 0.5, [1.0, 0.0, -1.0])).bias == (0.0, 0.0, 0.0)
    assert np.ptp(regress(*items(20, 0.5, [1.0, 0.0, -1.0])).bias) < 1.2
    many = regress(*items(4000, 0.5, [1.0, 0.0, -1.0]))
    assert abs(many.power - 0.5) < 0.15 and np.allclose(many.bias, [1.0, 0.0, -1.0], atol=0.25)
    even = regress(*items(400, 1.0, [0.0, 0.0, 0.0]))
    assert abs(even.power - 1.0) < 0.15 and np.ptp(even.bias) < 0.15
    assert regress(np.log(np.full((30, 2), 0.5)), np.zeros(30, dtype=int)).bias == (0.0, 0.0)  # labels of one class


def test_fifty_labels_find_those_who_do_not_err_together() -> None:
    for seed in range(3):
        votes, truth = panel(seed)
        gold = known(truth, 50, seed)
        hidden = np.where(gold < 0, truth, -1)
        alone, helped = cw.aggregate(votes), cw.aggregate(votes, gold=gold)
        assert alone.score(hidden) < 0.7 and helped.score(hidden) > 0.85
        assert helped.dependence.share > 0.9
        assert "A regression on the votes was added to the model with the weight" in " ".join(helped.notes)
        assert np.array_equal(helped.label_codes, helped.posterior.argmax(axis=1))
        rest = gold < 0
        assert abs(helped.posterior[rest].max(axis=1).mean() - helped.score(hidden)) < 0.07  # and says how sure it is
        right = (votes.label.reshape(400, 25) == truth[:, None]).mean(axis=0)
        accuracy = helped.accuracy()[0]
        assert np.abs(accuracy - right).mean() < np.abs(alone.accuracy()[0] - right).mean() / 2


def test_crowds_of_many_with_few_votes_each_come_to_no_harm() -> None:
    for seed, M in ((0, 300), (1, 25)):
        sim = cw.simulate.one_coin(1000, n_annotators=M, n_classes=3, votes_per_item=5, random_state=seed)
        gold = known(sim.truth, 50)
        rest, loss, right = np.flatnonzero(gold < 0), [], []
        for found in (cw.aggregate(sim.votes), cw.aggregate(sim.votes, gold=gold)):
            right.append(found.score(np.where(gold < 0, sim.truth, -1)))
            loss.append(-np.log(found.posterior[rest, sim.truth[rest]]).mean())
        assert right[1] > right[0] - 0.005 and loss[1] < loss[0] + 0.01


def test_votes_that_tell_nothing_leave_the_model_as_it_is() -> None:
    rng = np.random.default_rng(0)
    votes, truth = cw.Votes.from_dense(rng.integers(0, 2, (400, 25))), rng.integers(0, 2, 400)
    found = cw.aggregate(votes, gold=known(truth, 60)).dependence
    assert found.weights is None and found.bias == pytest.approx((0.0, 0.0), abs=0.05)
    assert "The model was taken, not a regression on the votes" in found.reason


def test_every_engine_and_new_votes_have_it() -> None:
    votes, truth = panel(0)
    gold = known(truth, 50)
    model = cw.Auto().fit(votes, gold)
    whole, rest = model.consensus_, gold < 0
    assert np.allclose(model.predict_proba(votes)[rest], whole.posterior[rest])
    cuts = (0, 90, 91, 400)
    load = [lambda a=a, b=b: VotePart(votes[np.arange(a, b)], gold[a:b]) for a, b in itertools.pairwise(cuts)]
    source = VoteParts(load, votes.annotators, votes.classes)
    parts = cw.Auto().fit_in_parts(source)
    codes, q = (np.concatenate(found) for found in zip(*map(parts.decision, source), strict=True))
    assert np.array_equal(codes, whole.label_codes) and np.allclose(q, whole.posterior, atol=1e-6)
    assert "A regression on the votes was added" in " ".join(parts.notes)
    unseen = cw.Votes.from_frame({"item": ["x", "x"], "annotator": ["new", "newer"], "label": [1, 1]})
    assert model.predict_proba(unseen)[0, 1] > 0.5


def test_it_is_saved(tmp_path) -> None:
    votes, truth = panel(1)
    found = cw.aggregate(votes, gold=known(truth, 50))
    again = cw.Consensus.load(found.save(tmp_path / "kept"))
    assert again.dependence == found.dependence and again.dependence.reason == found.dependence.reason
    assert np.array_equal(again.posterior, found.posterior)
    assert np.allclose(again.accuracy()[0], found.accuracy()[0])


def test_neither_order_nor_names_matter() -> None:
    votes, truth = panel(2, N=200)
    gold = known(truth, 40)
    q = cw.aggregate(votes, gold=gold).posterior
    order = np.random.default_rng(0).permutation(200)
    assert np.allclose(cw.aggregate(votes[order], gold=gold[order]).posterior, q[order], atol=1e-5)
    table = votes.label.reshape(200, 25)
    swapped = cw.aggregate(cw.Votes.from_dense(1 - table[:, ::-1]), gold=np.where(gold < 0, -1, 1 - gold)).posterior
    assert np.allclose(swapped[:, ::-1], q, atol=1e-5)


def test_many_labels_stay_quick() -> None:
    """At most ``MAX_LABELS`` of them, and in any number of annotators."""
    votes, truth = panel(3, N=MAX_LABELS + 200)
    logit = np.log(np.full((len(truth), 2), 0.5))
    found = regress(logit, truth, votes)
    assert found.share > 0.99 and found.weights is not None and found.weights.shape == (25, 2, 2)


@pytest.mark.slow
def test_a_real_panel_of_judges(real) -> None:
    """Fifty gold labels among LLMBar's own pairs: 88 % of the others right, log loss 0.4 at most, on average."""
    votes = cw.read_dataset(real("llmbar_judges"), on_duplicate="all").votes
    votes = votes[np.flatnonzero([str(name).startswith("LLMBar/") for name in votes.items])]
    truth, rows = np.asarray(votes.truth), []
    for seed in range(5):
        gold = known(truth, 50, seed)
        found, rest = cw.aggregate(votes, gold=gold), np.flatnonzero(gold < 0)
        p = found.posterior[rest, truth[rest]]
        rows.append((found.score(np.where(gold < 0, truth, -1)), -np.log(np.maximum(p, 1e-6)).mean()))
    right, loss = np.mean(rows, axis=0)
    assert right > 0.88 and loss < 0.4


def test_a_fit_of_most_weight_is_left_as_it_is() -> None:
    """Gold labels that the fit predicts as well as can be: averages with a small weight would move labels in doubt."""
    rng = np.random.default_rng(0)
    sim = cw.simulate.dirichlet(60, n_annotators=12, n_classes=3, votes_per_item=4, random_state=0)
    logit = rng.normal(0.0, 1.5, (60, 3))
    gold = (softmax(logit).cumsum(axis=1) < rng.random((60, 1))).sum(axis=1)
    found = regress(logit, gold, sim.votes)
    assert found.bias == (0.0, 0.0, 0.0) and found.weights is None and found.share == 0.0
    assert found.losses[0] < found.losses[1]


def test_gold_labels_do_not_enter_the_fit_of_people() -> None:
    crowd = cw.simulate.dirichlet(600, n_annotators=40, n_classes=4, votes_per_item=4, random_state=3)
    alone = cw.aggregate(crowd.votes)
    few, many = (cw.aggregate(crowd.votes, gold=known(crowd.truth, n)) for n in (50, 300))
    rest = [found.gold < 0 for found in (few, many)]
    assert np.array_equal(few.independent_posterior[rest[0]], alone.independent_posterior[rest[0]])
    assert np.array_equal(many.independent_posterior[rest[1]], alone.independent_posterior[rest[1]])
    assert (few.label_codes == crowd.truth)[few.gold >= 0].all()


def test_gold_labels_teach_where_most_items_have_one_vote() -> None:
    crowd = cw.simulate.dirichlet(400, n_annotators=20, n_classes=3, votes_per_item=2, random_state=0)
    one = crowd.votes.select(np.arange(crowd.votes.n_votes) % 2 == 0)  # and ten items with two
    votes = cw.Votes.concat([one[np.arange(10, 400)], crowd.votes[np.arange(10)]])
    gold = {int(item): int(crowd.truth[item]) for item in votes.items[:40].tolist()}
    alone, taught = cw.aggregate(votes), cw.aggregate(votes, gold=gold)
    assert not np.allclose(alone.independent_posterior[40:], taught.independent_posterior[40:], atol=1e-3)
