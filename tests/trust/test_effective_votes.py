"""How many independent annotators a panel is worth: simulated panels of known correlation, brute force, the report."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.trust.dependent_groups import correlation, effective_votes


def panel(rho: float, seed: int = 0, N: int = 2000, M: int = 20, right: float = 0.7) -> tuple[cw.Votes, np.ndarray]:
    """On a share rho of the items all repeat one answer: being right has the correlation rho."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, N)
    is_right = rng.random((N, M)) < right
    is_right = np.where((rng.random(N) < rho)[:, None], is_right[:, :1], is_right)
    return cw.Votes.from_dense(np.where(is_right, truth[:, None], 1 - truth[:, None])), truth


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.4, 1.0])
def test_a_known_correlation_is_found(rho: float) -> None:
    votes, truth = panel(rho)
    found = effective_votes(votes, cw.aggregate(votes, "majority", gold=truth))
    assert found.annotators == 20.0 and found.gold == 2000
    assert found.rho == pytest.approx(rho, abs=0.03)
    assert found.effective == pytest.approx(20 / (1 + 19 * found.rho))


def test_against_all_pairs() -> None:
    """Three classes, items with few answers, two answers of one annotator to an item, and a posterior."""
    rng = np.random.default_rng(0)
    table = rng.integers(-1, 3, (30, 5))
    votes = cw.Votes.from_dense(table, missing=-1)
    n, m = 0, int(np.flatnonzero(table[0] >= 0)[0])
    frame = {"item": votes.item.tolist(), "annotator": votes.annotator.tolist(), "label": votes.label.tolist()}
    frame = {name: [*values, more] for (name, values), more in zip(frame.items(), (n, m, 2), strict=True)}
    votes = cw.Votes.from_frame(frame, on_duplicate="all")
    q = rng.dirichlet(np.ones(3), len(votes))
    x = np.zeros((len(votes), 5, 3))
    np.add.at(x, (votes.item, votes.annotator, votes.label), 1.0)
    there = x.sum(axis=2) > 0
    x /= np.maximum(x.sum(axis=2, keepdims=True), 1.0)
    right = np.einsum("nk,nmk->m", q, x) / there.sum(axis=0)
    together = squares = 0.0
    for i, k in itertools.product(range(len(votes)), range(3)):
        e = (x[i, :, k] - right)[there[i]]
        together += q[i, k] * sum(a * b for a, b in itertools.permutations(e, 2))
        squares += q[i, k] * (len(e) - 1) * (e**2).sum()
    size, rho = correlation(votes, q)
    assert size == pytest.approx(there.sum(axis=1).mean()) and rho == pytest.approx(max(together / squares, 0.0))


def test_the_diagnosis_says_what_a_panel_is_worth() -> None:
    votes, truth = panel(0.5, N=300)
    gold = {n: int(truth[n]) for n in range(60)}
    found = cw.diagnose(votes, cw.aggregate(votes, gold=gold))
    (worth,) = found.of_kind("panel")
    assert 1.0 < worth.numbers["effective"] < 3.0
    (said,) = (line for line in found.sentences() if "independent ones" in line)
    assert said.startswith("20 annotators count as about ") and "by 60 gold labels" in said
    report = cw.build_report(votes, cw.aggregate(votes, gold=gold))
    assert [action["lines"] for action in report["summary"]["actions"] if action["kind"] == "panel"] == [[said]]


def test_others_hear_nothing_of_it() -> None:
    """Crowds that are not panels, and panels of independent annotators, with gold labels and without."""
    sim = cw.simulate.one_coin(300, n_annotators=30, votes_per_item=5, random_state=0)
    assert not cw.diagnose(sim.votes).of_kind("panel")
    votes, truth = panel(0.0, N=300)
    for consensus in (cw.aggregate(votes), cw.aggregate(votes, gold=truth), cw.aggregate(votes, "majority")):
        assert not cw.diagnose(votes, consensus).of_kind("panel")


def test_without_gold_labels_it_is_the_most_that_a_panel_can_be_worth() -> None:
    votes, truth = panel(0.5, N=300)
    most = effective_votes(votes, cw.aggregate(votes))
    assert most.gold == 0 and most.effective > effective_votes(votes, cw.aggregate(votes, gold=truth)).effective
