"""Annotators who abstain, found by the votes alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.core.crowd_kind import crowd_kind, one_sided
from crowdwise.core.vote_parts import VoteParts
from crowdwise.methods.ds_auto import Auto


def abstaining_share(votes: cw.Votes) -> float:
    """The share of votes that one-sided annotators gave."""
    return float(one_sided(votes)[votes.annotator].mean()) if votes.n_votes else 0.0


def test_one_label_on_some_of_the_items_is_one_sided() -> None:
    votes = cw.Votes.from_dense(
        [[1, 0, 1, 0, -1], [1, 0, 1, -1, 1], [1, 1, 1, -1, 1], [-1, 0, 1, 0, -1], [-1, 0, 1, -1, -1]], missing=-1
    )
    # a rule, both labels, the same label on every item, two votes, two votes
    assert one_sided(votes).tolist() == [True, False, False, False, False]
    assert abstaining_share(votes) == pytest.approx(3 / 17)


def test_items_on_which_all_annotators_are_silent_count_as_items() -> None:
    always = np.array([[1, 0], [1, 1], [1, 0]])
    silent = np.full((3, 2), -1)
    assert not one_sided(cw.Votes.from_dense(always)).any()
    assert one_sided(cw.Votes.from_dense(np.vstack([always, silent]), missing=-1)).tolist() == [True, False]


def test_one_class_alone_says_nothing() -> None:
    votes = cw.Votes.from_dense([[0, 0], [0, -1], [0, 0], [-1, 0]], missing=-1)
    assert not one_sided(votes).any()
    assert abstaining_share(cw.Votes.none(votes.annotators, votes.classes)) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rules_youtube", "rules_trec", "rte", "trec2010_binary", "temp"])
def test_crowds_of_rules_and_of_people_are_told_apart(real: Callable[[str], Path], name: str) -> None:
    votes = cw.read_votes(real(name) / "labels.csv")
    share, kind = abstaining_share(votes), crowd_kind(votes)
    assert kind == "rules" and share > 0.99 if name.startswith("rules") else kind == "people" and share < 0.2


def test_rules_are_judged_by_how_often_they_speak() -> None:
    """A rule that is right four times in five is not at chance: by what it says when it speaks it would be."""
    rng, n_items, n_rules = np.random.default_rng(0), 3000, 12
    truth = rng.integers(0, 3, n_items)
    table = np.full((n_items, n_rules), -1)
    for m in range(n_rules):
        speaks = rng.random(n_items) < np.where(truth == m % 3, 0.4, 0.05)
        table[speaks, m] = m % 3
    votes = cw.Votes.from_dense(table, missing=-1)
    consensus = cw.aggregate(votes)
    real = np.array([(truth[table[:, m] >= 0] == m % 3).mean() for m in range(n_rules)])
    assert (real > 0.75).all()
    assert (np.abs(consensus.right / consensus.total - real) < 0.15).all()  # shares are smoothed: a little too low
    assert consensus.dependence.rho == 0.0 and "err together" not in consensus.dependence.reason
    parts = Auto().fit_in_parts(VoteParts.of([votes[:1000], votes[1000:]]))
    assert np.allclose(parts.accuracy()[0], consensus.right / consensus.total, atol=1e-6)
