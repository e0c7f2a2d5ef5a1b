"""Plackett-Luce: against brute force, against Bradley-Terry, with errors that cover."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import crowdwise as cw
from crowdwise.answers import comparisons_matches, rankings_plackett_luce
from crowdwise.errors import ConnectionWarning, InputError, ParameterError


def probability(order: tuple[int, ...], s: Any) -> float:
    """Of one ranking, choice by choice."""
    p = 1.0
    for t in range(len(order) - 1):
        p *= np.exp(s[order[t]]) / sum(np.exp(s[i]) for i in order[t:])
    return float(p)


def rankings_of(table: cw.Rankings) -> list[tuple[int, ...]]:
    return [tuple(table.item[a:b].tolist()) for a, b in zip(table.indptr[:-1], table.indptr[1:], strict=True)]


def test_all_orders_of_some_items_sum_to_one() -> None:
    s = np.random.default_rng(0).normal(size=4)
    assert sum(probability(p, s) for p in permutations(range(4))) == pytest.approx(1.0)
    table = cw.Rankings.from_records([("m", n, list(p)) for n, p in enumerate(permutations(range(4)))])
    each = [table.select(one) for one in np.eye(table.n_answers, dtype=bool)]
    logs = [rankings_plackett_luce.log_likelihood(rankings_plackett_luce.blocks(one), s) for one in each]
    assert np.exp(logs).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("ends", ["top", "both"])
@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_the_optimum_by_brute_force(prior: float, ends: str) -> None:
    mixed = cw.simulate.rankings(5, n_rankings=60, size=4, random_state=0).rankings.to_frame("polars")
    table = cw.Rankings.from_frame(mixed.filter((mixed["rank"] < 4) | (mixed["question"] % 2 == 0)))  # of 3 and of 4
    assert set(np.diff(table.indptr).tolist()) == {3, 4}
    said = rankings_of(table)

    def loss(s: Any) -> float:
        value = -sum(np.log(probability(order, s)) for order in said)
        if ends == "both":
            value = (value - sum(np.log(probability(order[::-1], -s)) for order in said)) / 2.0
        value += 0.5 * prior * (np.logaddexp(0, s) + np.logaddexp(0, -s)).sum()
        return float(value + (s.sum() ** 2 if prior == 0 else 0.0))

    best = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-8})
    ranking = cw.aggregate(table, "plackett-luce", prior=prior, ends=ends)
    assert np.abs(best.x - best.x.mean() - ranking.scores).max() < 1e-5
    assert ranking.trace[-1] == pytest.approx(-best.fun, abs=1e-8) and (np.diff(ranking.trace) >= 0).all()


def test_choix_finds_the_same() -> None:
    choix = pytest.importorskip("choix")
    table = cw.simulate.rankings(8, n_rankings=300, size=5, random_state=1).rankings
    theirs = choix.ilsr_rankings(8, rankings_of(table), alpha=0.0, max_iter=1000, tol=1e-12)
    assert np.abs(theirs - theirs.mean() - cw.aggregate(table, prior=0, ends="top").scores).max() < 1e-6


def test_rankings_of_two_are_comparisons() -> None:
    table = cw.simulate.rankings(6, n_rankings=200, size=2, random_state=2).rankings
    one, other = cw.aggregate(table), cw.aggregate(table.comparisons(), "bradley-terry", errors="independent")
    assert np.abs(one.scores - other.scores).max() < 1e-7 and np.abs(one.errors - other.errors).max() < 1e-6


def test_many_items_take_the_sparse_road(monkeypatch: pytest.MonkeyPatch) -> None:
    table = cw.simulate.rankings(40, n_rankings=800, size=4, random_state=3).rankings
    dense = cw.aggregate(table)
    monkeypatch.setattr(comparisons_matches, "DENSE", 3)
    sparse = cw.aggregate(table)
    assert np.abs(dense.scores - sparse.scores).max() < 1e-6
    assert np.abs(sparse.errors / dense.errors - 1.0).max() < 0.2  # estimated, by 100 random vectors


@pytest.mark.parametrize("ends", ["top", "both"])
def test_standard_errors_cover(ends: str) -> None:
    inside = 0.0
    for seed in range(120):
        crowd = cw.simulate.rankings(10, n_rankings=300, size=4, random_state=seed)
        ranking = cw.aggregate(crowd.rankings, ends=ends)
        inside += float((np.abs(ranking.scores - crowd.scores) < 1.96 * ranking.errors).mean()) / 120
    assert 0.93 <= inside <= 0.97


def test_tables_and_habits() -> None:
    crowd = cw.simulate.rankings(6, n_rankings=100, n_annotators=3, random_state=4)
    ranking = cw.aggregate(crowd.rankings)
    board = ranking.to_frame("leaderboard", kind="dict")
    assert board["rankings"].sum() == 400 and board["first"].sum() == board["last"].sum() == 100
    people = ranking.to_frame("annotators", kind="dict")
    assert (people["agreement"] > 0.6).all() and (people["agreement_low"] < people["agreement"]).all()
    frame = crowd.rankings.to_frame("polars").sample(fraction=1.0, shuffle=True, seed=0)
    assert (cw.aggregate(cw.Rankings.from_frame(frame)).scores == ranking.scores).all()
    weighted = cw.Rankings.from_codes(
        crowd.rankings.indptr, crowd.rankings.item, crowd.rankings.annotator, items=range(6), annotators=range(3),
        weight=np.full(100, 2.0),
    )  # fmt: skip
    both = cw.aggregate(weighted, prior=2.0)
    assert np.abs(both.scores - ranking.scores).max() < 1e-7
    with pytest.raises(ParameterError, match="prior=-1"):
        cw.aggregate(crowd.rankings, prior=-1)


def test_items_that_are_not_joined() -> None:
    table = cw.Rankings.from_records([("m", 1, ["a", "b"]), ("m", 2, ["b", "a"]), ("m", 3, ["c", "d"])])
    with pytest.warns(ConnectionWarning, match="2 parts"):
        ranking = cw.aggregate(table)
    assert np.isfinite(ranking.scores).all()
    with pytest.raises(InputError, match="not finite"):
        cw.aggregate(table, prior=0)
