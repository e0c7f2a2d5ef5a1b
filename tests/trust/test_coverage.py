"""Annotators who abstain: what they cover, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw


def test_coverage_overlap_conflict_and_accuracy() -> None:
    votes = cw.Votes.from_dense([[1, 1, -1], [1, 0, -1], [-1, -1, 0], [-1, -1, -1]], missing=-1)
    table = cw.coverage_table(votes, kind="pandas")
    assert list(table) == ["annotator", "labels", "votes", "coverage", "overlap", "conflict"]
    assert table["labels"].tolist() == ["1", "0, 1", "0"]
    assert table[["coverage", "overlap", "conflict"]].to_numpy().tolist() == [
        [0.5, 0.5, 0.25], [0.5, 0.5, 0.25], [0.25, 0.0, 0.0],
    ]  # fmt: skip
    table = cw.coverage_table(votes, {0: 1, 1: 1}, kind="dict")
    assert table["known"].tolist() == [2, 2, 0]
    assert table["accuracy"][:2].tolist() == [1.0, 0.5] and np.isnan(table["accuracy"][2])
    assert 0.2 < table["accuracy_low"][0] < 1.0 == table["accuracy_high"][0]


@pytest.fixture(scope="module")
def rules() -> cw.Votes:
    """Eight rules that vote for their class on a fifth of its items and a tenth as many others, and one (r8) that votes
    for class 1 on any items."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=2000)
    label = np.array([0, 1] * 4 + [1])
    rate = np.where(truth[:, None] == label, 0.2, 0.02)
    rate[:, 8] = 0.4
    cells = np.where(rng.random(rate.shape) < rate, label, -1)
    names = [f"r{m}" for m in range(9)]
    return cw.Votes.from_dense(cells, missing=-1, annotators=names, truth=truth.astype(np.int32))


def test_rules_are_not_judged_without_gold(rules: cw.Votes) -> None:
    found = cw.diagnose(rules)
    assert set(found.verdicts.values()) == {"unclear"}
    assert found.sentences()[0] == (
        "9 of 9 annotators name one class or nothing, as rules do. Too little truth is known to tell how often they "
        "are right."
    )
    assert not found.of_kind("constant") and not found.of_kind("bias") and not found.of_kind("spammer")


def test_rules_are_judged_by_gold(rules: cw.Votes) -> None:
    assert rules.truth is not None
    found = cw.diagnose(rules, gold=np.where(np.arange(len(rules)) < 1500, rules.truth, -1).astype(np.int32))
    assert found.by_verdict("keep") == [f"r{m}" for m in range(8)]
    assert found.by_verdict("drop") == ["r8"]
    assert found.sentences()[0].startswith("r8 is no better than guessing")


def test_detectors_of_spammers_do_not_judge_rules(rules: cw.Votes) -> None:
    consensus = cw.aggregate(rules, "mace")
    for found in (
        cw.trust.capacity_spammers(rules, consensus),
        cw.trust.raykar_yu_spammers(rules, consensus),
        cw.trust.covariance_spammers(rules),
        cw.trust.covariance_spammers(rules, rule="clusters"),
    ):
        assert "spammer" not in found.verdict and set(found.score.tolist()) == {0.5}


def test_people_who_always_say_the_same_are_still_told() -> None:
    crowd = cw.simulate.hammer_spammer(400, n_annotators=12, share=1.0, votes_per_item=6, random_state=0).votes
    constant = crowd.select(crowd.annotator == 0)
    rest = crowd.select(crowd.annotator != 0)
    same = cw.Votes.from_codes(
        constant.item, constant.annotator, np.ones(constant.n_votes, dtype=int), items=crowd.items,
        annotators=crowd.annotators, classes=crowd.classes,
    )  # fmt: skip
    found = cw.diagnose(
        cw.Votes.concat([rest.only(crowd.annotators[1:].tolist()), same.only(crowd.annotators[:1].tolist())])
    )
    assert found.names("constant") == crowd.annotators[:1].tolist()
