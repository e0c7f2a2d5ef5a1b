"""The default of every answer type other than votes is within a point of its trivial baseline."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import kendalltau

import crowdwise as cw

POINT = 0.01
SEEDS = range(3)
BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "default_answers.py"
RELEVANCE = np.array(
    [[0.40, 0.35, 0.21, 0.04], [0.26, 0.40, 0.30, 0.04], [0.21, 0.38, 0.37, 0.04], [0.12, 0.18, 0.09, 0.61]]
)
"""How often each grade is given to each, in real judgements of relevance: three that are hardly told apart, and one
that is not on their line."""


def relevance(seed):
    """Votes of annotators who are like that crowd, half of them a little better."""
    rng = np.random.default_rng(seed)
    N, M, K, n = 600, 40, 4, 5
    truth = rng.choice(K, N, p=[0.34, 0.19, 0.2, 0.27])
    who = np.array([rng.permutation(M)[:n] for _ in range(N)])
    skill = np.where(np.arange(M) % 2, 0.0, 0.35)
    p = skill[who][:, :, None] * np.eye(K)[truth][:, None] + (1.0 - skill[who][:, :, None]) * RELEVANCE[truth][:, None]
    label = (p.cumsum(axis=2) < rng.random((N, n, 1))).sum(axis=2).clip(max=K - 1)
    item = np.repeat(np.arange(N), n)
    names = {"items": range(N), "annotators": range(M), "classes": range(K)}
    return cw.Votes.from_codes(item, who.ravel(), label.ravel(), **names), truth


@pytest.mark.parametrize("made", ["relevance", "line"])
def test_ordinal(made):
    right, near = [], []
    for seed in SEEDS:
        crowd = cw.simulate.ordinal(400, votes_per_item=5, random_state=seed)
        votes, truth = (crowd.votes, crowd.truth) if made == "line" else relevance(seed)
        found = cw.aggregate(votes, cw.registry.default_method("ordinal"))
        assert np.bincount(found.label_codes).max() < 0.8 * len(truth)
        medians = np.array(
            [np.median(votes.label[a:b]) for a, b in zip(votes.indptr[:-1], votes.indptr[1:], strict=True)]
        )
        right.append(found.score(truth) - cw.aggregate(votes, "majority").score(truth))
        near.append(np.abs(medians - truth).mean() - np.abs(found.label_codes - truth).mean())
    assert np.mean(right) > -POINT and np.mean(near) > -POINT


@pytest.mark.parametrize("given", [{"bias": 0.0, "shape": 1e4}, {}, {"votes_per_item": 2}, {"outliers": 0.05}])
def test_ratings(given):
    gain = []
    for seed in SEEDS:
        crowd = cw.simulate.ratings(200, random_state=seed, **{"n_annotators": 20, "votes_per_item": 5} | given)
        error = [
            np.sqrt(((cw.aggregate(crowd.ratings, *key).values - crowd.truth) ** 2).mean()) for key in ((), ("mean",))
        ]
        gain.append(1.0 - error[0] / error[1])
    assert np.mean(gain) > -POINT


@pytest.mark.parametrize("noise", ["gumbel", "normal"])
def test_rankings(noise):
    gain = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        scores, size = rng.normal(size=30), 12
        records = []
        for r in range(30):
            some = rng.permutation(30)[:size]
            seen = scores[some] + getattr(rng, noise)(size=size)
            records.append((f"m{r % 10}", r, some[np.argsort(-seen)].tolist()))
        table = cw.Rankings.from_records(records)
        place = np.tile(np.arange(size), len(records))
        borda = -np.bincount(table.item, place, 30) / np.bincount(table.item, minlength=30)
        truth = scores[np.asarray(table.items, dtype=int)]
        gain.append(kendalltau(cw.aggregate(table).scores, truth)[0] - kendalltau(borda, truth)[0])
    assert np.mean(gain) > -POINT


@pytest.mark.parametrize("given", [{}, {"spammers": 0.3}, {"reversed_": 0.2}])
def test_comparisons(given):
    gain = []
    for seed in SEEDS:
        crowd = cw.simulate.comparisons(20, n_comparisons=1500, random_state=seed, **given)
        found = cw.aggregate(crowd.comparisons)
        wins = found.counts["wins"] / (found.counts["wins"] + found.counts["losses"])
        gain.append(kendalltau(found.scores, crowd.scores)[0] - kendalltau(wins, crowd.scores)[0])
    assert np.mean(gain) > -POINT


@pytest.mark.parametrize("each", [3, 5])
def test_label_sets(each):
    gain = []
    for seed in SEEDS:
        crowd = cw.simulate.label_sets(100, n_labels=6, n_annotators=15, answers_per_item=each, random_state=seed)
        loss = [
            float(cw.metrics.hamming_loss(cw.aggregate(crowd.answers, "binary-relevance", **base), crowd.truth))
            for base in ({}, {"base": "majority"})
        ]
        gain.append(loss[1] - loss[0])
    assert np.mean(gain) > -POINT


def test_rare_labels():
    """Six annotators who all answer, labels of one item in ten or twenty, false alarms of some annotators."""
    gain = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        truth = rng.random((120, 6)) < (0.1 if seed % 2 else 0.05)
        alarm, miss = rng.uniform(0.02, 0.3, 6), rng.uniform(0.05, 0.4, 6)
        said = rng.random((120, 6, 6)) < np.where(truth[:, None], 1.0 - miss[:, None], alarm[:, None])
        rows = [(n, m, [f"l{k}" for k in np.flatnonzero(said[n, m])]) for n in range(120) for m in range(6)]
        answers = cw.LabelSets.from_records(rows)
        y = truth[:, [int(name[1:]) for name in answers.labels.tolist()]]
        right = [
            (cw.aggregate(answers, "binary-relevance", **b).member == y).mean() for b in ({}, {"base": "majority"})
        ]
        gain.append(right[0] - right[1])
    assert np.mean(gain) > -POINT


@pytest.mark.parametrize("each", [2, 3, 5])
def test_tags(each):
    gain = []
    for seed in SEEDS:
        crowd = cw.simulate.bio_tags(100, annotators_per_sequence=each, random_state=seed)
        f1 = [
            float(cw.metrics.span_scores(found, crowd.tags, resamples=1)["f1"])
            for found in (cw.aggregate(crowd.tags), cw.aggregate(crowd.tags, base="majority"))
        ]
        gain.append(f1[0] - f1[1])
    assert np.mean(gain) > -POINT


def test_similarities():
    gain = []
    for seed in SEEDS:
        crowd = cw.simulate.similarities(40, random_state=seed)
        table = crowd.answers
        share = np.bincount(table.pair, table.same, table.n_pairs) / np.diff(table.indptr)
        a, b = table.pairs[share > 0.5].T
        parts = connected_components(coo_array((np.ones(len(a)), (a, b)), shape=(40, 40)), directed=False)[1]
        score = [float(cw.metrics.adjusted_rand(x, crowd.truth)) for x in (cw.aggregate(table).cluster_codes, parts)]
        gain.append(score[0] - score[1])
    assert np.mean(gain) > -POINT


MEASURED = {
    "texts": (
        "medoid",
        lambda found, truth: -float(cw.metrics.text_scores(found, truth, resamples=1)["word_error_rate"]),
    ),
    "boxes": ("box-majority", lambda found, truth: float(cw.metrics.box_scores(found, truth, resamples=1)["f1_50"])),
    "masks": ("mask-majority", lambda found, truth: found.score(truth)),
    "spans": (
        "character-majority",
        lambda found, truth: float(cw.metrics.span_set_scores(found, truth, resamples=1)["f1_overlap"]),
    ),
}


@pytest.mark.parametrize("each", [3, 5])
@pytest.mark.parametrize("kind", MEASURED)
def test_texts_boxes_masks_and_spans(kind, each):
    baseline, measure = MEASURED[kind]
    make, gain = getattr(cw.simulate, kind), []
    number = next(name for name in inspect.signature(make).parameters if name.endswith("_per_item"))
    for seed in SEEDS:
        crowd = make(15 if kind == "masks" else 60, random_state=seed, **{number: each})
        table = getattr(crowd, "answers", None) or getattr(crowd, kind)
        default, simple = (measure(cw.aggregate(table, *key), crowd.truth) for key in ((), (baseline,)))
        gain.append(default - simple)
    assert np.mean(gain) > -POINT


REGIMES = {
    "people": lambda seed: cw.simulate.dirichlet(
        300, n_annotators=30, n_classes=4, votes_per_item=5, random_state=seed
    ),
    "people, hard items": lambda seed: cw.simulate.difficulty(
        300, n_annotators=30, votes_per_item=5, random_state=seed
    ),
    "spammers": lambda seed: cw.simulate.hammer_spammer(300, n_annotators=30, votes_per_item=5, random_state=seed),
    "panel": lambda seed: cw.simulate.one_coin(80, n_annotators=9, n_classes=2, random_state=seed),
}


@pytest.mark.parametrize("regime", REGIMES)
def test_votes(regime):
    """Rules, quizzes and panels that err together: tests/methods/test_auto_kinds.py."""
    crowds = [REGIMES[regime](seed) for seed in SEEDS]
    gain = [cw.aggregate(c.votes).score(c.truth) - cw.aggregate(c.votes, "majority").score(c.truth) for c in crowds]
    assert np.mean(gain) > -POINT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("ordinal", 5),
        ("ratings", 5),
        ("rankings", 4),
        ("label-sets", 4),
        ("tags", 1),
        ("similarities", 1),
        ("texts", 1),
        ("boxes", 1),
        ("masks", 1),
        ("spans", 1),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_real_sets(kind, most, real_data, monkeypatch):
    """By no more than a point, or than two standard errors of the difference."""
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    spec = importlib.util.spec_from_file_location("default_answers", BENCHMARK)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    monkeypatch.setattr(benchmark, "QUICK", True)
    rows = benchmark.measured(real_data, kind, most)
    assert rows and [(row["set"], row["figure"], row["lead"]) for row in rows if benchmark.behind(row)] == []
