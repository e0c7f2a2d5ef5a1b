"""Rings among those who compare: they count as one, are named, and nobody else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from answers.prompted import prompts


def with_ring(members: int, reverse: bool = False, seed: int = 0) -> tuple[cw.Comparisons, Any]:
    """20 judges of 12 models, of whom the first follow one false ranking, or turn the true one; the true scores."""
    rng = np.random.default_rng(seed)
    true, false = rng.normal(0.0, 1.2, (2, 12))
    left, judge = rng.integers(0, 12, 2400), np.repeat(np.arange(20), 120)
    right = (left + rng.integers(1, 12, 2400)) % 12
    honest = rng.random(2400) > 1.0 / (1.0 + np.exp(true[right] - true[left]))
    led = true[left] > true[right] if reverse else false[left] < false[right]
    said = np.where(judge < members, led, honest).astype(int)
    names = [f"judge {m:02d}" for m in range(20)]
    return cw.Comparisons.from_codes(left, right, judge, said, items=range(12), annotators=names), true


@pytest.mark.parametrize(("members", "reverse"), [(8, False), (8, True), (3, False)])
def test_a_ring_counts_as_one_and_is_named(members: int, reverse: bool) -> None:
    table, true = with_ring(members, reverse)
    captured, ranking = cw.aggregate(table, collusion="ignore"), cw.aggregate(table)
    people = ranking.to_frame("annotators", kind="dict")
    assert (people["ring"] == (np.arange(20) < members)).all() and (people["comparisons"] == 120).all()
    assert len(set(ranking.slope[:members])) == 1 and len(ranking.slope) == len(ranking.position) == 20
    assert ranking.score(true) >= max(captured.score(true), 0.7) and "ring" not in captured.annotator_counts
    assert ranking.counts["comparisons"].sum() == 2 * table.n_answers  # what was said is counted as it was said
    [note] = [note for note in ranking.notes if "count as one" in note]
    assert note.startswith(f"{members} annotators with {members / 20:.0%} of the answers agree with each other")
    found = [finding for finding in cw.diagnose(table).findings if finding.kind == "ring"]
    assert [set(finding.annotators) for finding in found] == [{f"judge {m:02d}" for m in range(members)}]


def test_nobody_is_accused_without_a_ring() -> None:
    for table in (with_ring(0)[0], with_ring(0, seed=1)[0], prompts(40, 3.0, seed=0, n_judges=8)):
        assert "ring" not in cw.aggregate(table).annotator_counts


def test_a_ring_is_the_same_whatever_the_order_of_rows_and_with_questions() -> None:
    table, _ = with_ring(8)
    rows = table.to_frame("polars")
    again = cw.aggregate(cw.Comparisons.from_frame(rows.sample(fraction=1.0, shuffle=True, seed=0)))
    ranking = cw.aggregate(table)
    assert np.allclose(again.scores, ranking.scores, atol=1e-6)
    clustered = prompts(60, 0.5, seed=0, n_judges=10)
    place = np.array([3, 1, 4, 0, 2])
    led = (place[clustered.left] > place[clustered.right]).astype(int)
    said = np.where(clustered.annotator < 4, led, clustered.outcome)
    codes = (clustered.left, clustered.right, clustered.annotator, said)
    table = cw.Comparisons.from_codes(*codes, items=range(5), annotators=range(10), question=clustered.question,
                                    questions=range(60))  # fmt: skip
    found = cw.aggregate(table)
    assert found.n_groups == 60 and (found.annotator_counts["ring"] > 0).tolist() == [True] * 4 + [False] * 6


def test_a_judge_who_was_asked_often_votes_as_mostly_said() -> None:
    rows = (
        [("a", "b", "x", "left")] * 3 + [("a", "b", "x", "right")] + [("a", "c", "x", "left"), ("c", "a", "x", "left")]
    )
    assert cw.Comparisons.from_records(rows).votes().to_frame("dict")["label"].tolist() == ["first", "tie"]
