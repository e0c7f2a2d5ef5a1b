"""CROWDLAB: weights and ensemble against loops, and an ensemble better than its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier

import crowdwise as cw
from crowdwise.errors import OutputError, ParameterError
from crowdwise.learners.baselines import LEAST, Crowdlab, Weights, combine, count, deal, weigh


def small(seed: int = 0, N: int = 12, M: int = 5, K: int = 3) -> tuple[cw.Votes, Any, Any]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(K, size=N)
    said = np.where(rng.random((N, M)) < 0.6, truth[:, None], rng.integers(K, size=(N, M))).astype(float)
    said[rng.random((N, M)) < 0.4] = np.nan
    said[0] = [0, np.nan, np.nan, np.nan, np.nan]  # a single vote
    votes = cw.Votes.from_dense(said)
    f = rng.dirichlet(np.ones(K), size=len(votes))
    y = votes.shares().argmax(axis=1)
    return votes, f, y


def crowd(N: int = 400, votes_per_item: int = 2, seed: int = 0) -> tuple[Any, cw.Votes, Any]:
    made = cw.simulate.one_coin(N, n_annotators=8, n_classes=3, votes_per_item=votes_per_item, random_state=seed)
    rng = np.random.default_rng(seed)
    X = (2.0 * np.eye(3, 5)[made.truth] + rng.normal(size=(N, 5))).astype(np.float32)
    return X, made.votes, made.truth


@pytest.mark.parametrize("seed", range(4))
def test_weights_and_ensemble_written_out(seed: int) -> None:
    votes, f, y = small(seed)
    N, K, M = len(votes), votes.n_classes, votes.n_annotators
    rows: list[list[tuple[int, int]]] = [[] for _ in range(N)]
    for n, m, label in zip(votes.item, votes.annotator, votes.label, strict=True):
        rows[n].append((int(m), int(label)))
    several = [n for n in range(N) if len(rows[n]) > 1]
    P = np.mean([np.mean([label == y[n] for _, label in rows[n]]) for n in several])
    A = np.mean([f[n].argmax() == y[n] for n in several])
    common = np.bincount(votes.label).argmax()
    nothing = 1.0 - np.mean([y[n] == common for n in several])
    s = np.full(M, np.nan)
    hits = tries = 0
    for m in range(M):
        mine = [(label, other) for n in several for who, label in rows[n] if who == m
                for them, other in rows[n] if them != m]  # fmt: skip
        hits, tries = hits + sum(a == b for a, b in mine), tries + len(mine)
        if mine:
            s[m] = np.mean([a == b for a, b in mine])
    s[np.isnan(s)] = hits / tries
    w = np.maximum(1.0 - (1.0 - s) / nothing, LEAST)
    w0 = max((1.0 - (1.0 - A) / nothing) * np.sqrt(np.mean([len(rows[n]) for n in several])), LEAST)
    found = weigh(f, votes, y)
    assert found.annotators == pytest.approx(w)
    assert found.classifier == pytest.approx(w0)
    assert found.agreement == pytest.approx(P)
    q = np.zeros((N, K))
    for n in range(N):
        total = w0
        q[n] = w0 * f[n]
        for m, label in rows[n]:
            g = np.full(K, (1.0 - P) / (K - 1))
            g[label] = P
            q[n] += w[m] * g
            total += w[m]
        q[n] /= total
    assert combine(f, votes, found) == pytest.approx(q)


def test_nobody_shares_an_item() -> None:
    votes = cw.Votes.from_dense(np.array([[0, np.nan], [1, np.nan], [np.nan, 1], [np.nan, 0]]))
    f = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]])
    found = weigh(f, votes, np.array([0, 1, 1, 0]))
    assert found.annotators.tolist() == [1.0, 1.0]
    assert (found.classifier, found.agreement) == (1.0, 0.75)


def test_a_crowd_of_one_opinion_leaves_all_weights_even() -> None:
    votes = cw.Votes.from_dense(np.array([[0, 0, 0], [0, 0, 0]]), classes=[0, 1])
    found = weigh(np.array([[0.6, 0.4], [0.3, 0.7]]), votes, np.array([0, 0]))
    assert found.annotators == pytest.approx(1.0)  # they agree
    assert found.classifier == LEAST


def test_strangers_have_the_mean_weight_and_weights_count() -> None:
    votes = cw.Votes.from_dense(np.array([[0, 1, np.nan], [np.nan, 1, 0]]))
    weights = Weights(np.array([0.5, 0.9]), 1.0, 0.8)
    f = np.array([[0.5, 0.5], [0.5, 0.5]])
    q = combine(f, votes, weights)
    third = combine(f, votes, Weights(np.array([0.5, 0.9, 0.7]), 1.0, 0.8))
    assert q == pytest.approx(third)
    heavy = cw.Votes(votes.indptr, votes.annotator, votes.label, votes.items, votes.annotators, votes.classes,
                     weight=np.array([2.0, 1.0, 1.0, 1.0]))  # fmt: skip
    expected = (0.5 + 2 * 0.5 * 0.8 + 0.9 * 0.2) / (1.0 + 2 * 0.5 + 0.9)
    assert combine(f, heavy, weights)[0, 0] == pytest.approx(expected)


def test_folds_hold_every_class() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [50, 20, 10])
    used = np.ones(80, dtype=bool)
    fold = deal(y, used, 5, rng)
    table = np.zeros((5, 3), dtype=int)
    np.add.at(table, (fold, y), 1)
    assert table.tolist() == [[10, 4, 2]] * 5


def test_counts_are_confusion_matrices() -> None:
    votes, f, _ = small(1)
    theta = count(f, votes)
    assert theta.shape == (5, 3, 3)
    assert theta.sum(axis=2) == pytest.approx(1.0)
    many = count(np.eye(3)[np.zeros(len(votes), dtype=int)], votes)
    said = np.bincount(votes.label[votes.annotator == 1], minlength=3)
    crowd_said = np.bincount(votes.label, minlength=3) + 1.0 / 3.0
    expected = said + crowd_said / crowd_said.sum()
    assert many[1, 0] == pytest.approx(expected / expected.sum())


def test_answers_are_out_of_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A classifier that remembers its training data would believe in every majority; asked out of sample it cannot."""
    X, votes, truth = crowd(200, votes_per_item=1)
    noise = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)  # nothing to learn
    learner = Crowdlab(classifier=KNeighborsClassifier(1), random_state=0)
    seen: list[Any] = []
    original = Crowdlab._out_of_sample
    monkeypatch.setattr(Crowdlab, "_out_of_sample", lambda self, *a: seen.append(original(self, *a)) or seen[-1])
    learner.fit(noise, votes)
    said = votes.label[np.argsort(votes.item)]
    assert (seen[0].argmax(axis=1) == said).mean() < 0.5


def test_better_than_votes_or_classifier_alone() -> None:
    X, votes, truth = crowd(800)
    learner = Crowdlab(random_state=0).fit(X, votes)
    both = learner.consensus_.score(truth)
    assert both > cw.aggregate(votes, "majority").score(truth) + 0.05
    assert both > (learner.predict(X) == truth).mean() - 0.01
    accuracy = np.array([(votes.label == truth[votes.item])[votes.annotator == m].mean() for m in range(8)])
    assert np.corrcoef(accuracy, learner.weights_)[0, 1] > 0.8
    assert learner.predict_proba(X, votes).sum(axis=1) == pytest.approx(1.0)
    assert "weight" in learner.consensus_.to_frame("annotators", kind="dict")


def test_any_classifier_and_known_truth() -> None:
    X, votes, truth = crowd(300)
    forest = Crowdlab(classifier=RandomForestClassifier(20, random_state=0), random_state=0)
    gold = {n: int(truth[n]) for n in range(20)}
    forest.fit(X, votes, gold)
    assert (forest.consensus_.label_codes[:20] == truth[:20]).all()
    assert (forest.predict(X) == truth).mean() > 0.7
    with pytest.raises(OutputError, match="pickle"):
        forest.save("nowhere")


def test_items_without_votes_and_a_single_annotator() -> None:
    X, votes, truth = crowd(100)
    bare = votes.select(votes.item != 3)
    learner = Crowdlab(random_state=0).fit(X, bare)
    assert np.isfinite(learner.consensus_.posterior).all()
    lone = Crowdlab(random_state=0).fit(X, truth)
    assert (lone.predict(X) == truth).mean() > 0.8


def test_seeds_and_saving(tmp_path: Path) -> None:
    X, votes, _ = crowd(150)
    first, second = (Crowdlab(random_state=3).fit(X, votes) for _ in range(2))
    assert (first.consensus_.posterior == second.consensus_.posterior).all()
    first.save(tmp_path / "it")
    again = cw.load_learner(tmp_path / "it")
    assert (again.predict_proba(X) == first.predict_proba(X)).all()
    assert (again.predict_proba(X, votes) == first.predict_proba(X, votes)).all()
    assert again.classifier_weight_ == first.classifier_weight_


def test_items_of_the_fit_keep_their_out_of_sample_answer() -> None:
    X, votes, _ = crowd(150)
    learner = Crowdlab(random_state=0).fit(X, votes)
    again = learner.predict_proba(X, votes)
    assert again == pytest.approx(learner.consensus_.posterior)
    part = learner.predict_proba(X[[7, 3]], votes[[7, 3]])
    assert part == pytest.approx(learner.consensus_.posterior[[7, 3]])
    other = learner.predict_proba(X[[3, 7]], votes[[7, 3]])  # the same names on other inputs are other items
    f = learner.predict_proba(X[[3, 7]])
    assert other == pytest.approx(combine(f, votes[[7, 3]], learner._weights()))


def test_folds_out_of_range() -> None:
    X, votes, _ = crowd(30)
    with pytest.raises(ParameterError, match="n_folds=1"):
        Crowdlab(n_folds=1).fit(X, votes)
