"""Accuracies with other numbers of votes: they begin from the report's figure, and hold on crowds of known kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.active.votes_ahead import gold_for, present, promise_accuracy, votes_for
from crowdwise.cli.main import app
from crowdwise.core.dependence import Dependence, more_votes
from crowdwise.errors import InputError


def crowd(votes_per_item: int = 5) -> tuple[cw.Votes, np.ndarray]:
    made = cw.simulate.one_coin(600, n_annotators=20, votes_per_item=votes_per_item, random_state=0)
    return made.votes, made.truth


@pytest.mark.parametrize("method", ["auto", "majority", "dawid-skene"])
def test_at_present_votes_the_plan_is_the_report(method: str) -> None:
    votes, _ = crowd()
    consensus = cw.aggregate(votes, method)
    report = cw.build_report(votes, consensus)["summary"]
    (promise,) = promise_accuracy(consensus, cw.MajorityVote, [5])
    assert promise.accuracy == pytest.approx(report["expected"], abs=5e-4) and present(consensus) == promise
    assert [promise.low, promise.high] == pytest.approx(report["expected_interval"], abs=5e-4)


def test_independent_votes_are_added_exactly() -> None:
    # Three annotators who are right with probability .8 and one who is to come, on items of two equal classes.
    w = np.array([[0.8, 0.2], [0.2, 0.8]])
    q = np.full((4000, 2), 0.5)
    none, three = np.zeros(4000, dtype=int), np.full(4000, 3)
    right = more_votes(q, none, three, w, Dependence(0.0, "given"), np.random.default_rng(0))
    assert right.mean() == pytest.approx(0.8**3 + 3 * 0.8**2 * 0.2, abs=0.01)
    held = more_votes(q, none, three, w, Dependence(0.35, "crowds", 0.04), np.random.default_rng(0))
    assert 0.75 < held.mean() < right.mean()
    many = more_votes(q, none, 400 * three, w, Dependence(0.35, "crowds", 0.04), np.random.default_rng(0))
    assert held.mean() < many.mean() < 0.96


def test_fewer_and_more_votes() -> None:
    votes, truth = crowd()
    consensus = cw.aggregate(votes)
    one, three, five, nine = (p.accuracy for p in promise_accuracy(consensus, cw.MajorityVote, [1, 3, 5, 9], n_seeds=2))
    assert one < three < five < nine
    far, near = promise_accuracy(consensus, cw.MajorityVote, [20, 6])
    assert far.high - far.low > 0 and near.low < near.accuracy < near.high and near.low > 0.5 * far.low
    needed, most = votes_for(consensus, (five + nine) / 2)
    assert needed is not None and 5 < needed <= 9 and most > nine and votes_for(consensus, 0.999)[0] is None
    gold = gold_for(consensus, (five + 1) / 2)
    sure = consensus.stated_posterior.max(axis=1)
    assert 0 < gold < 300 and sure.sum() + np.sort(1 - sure)[::-1][:gold].sum() >= (five + 1) / 2 * 600


def test_a_plan_of_a_saved_consensus_asks_for_votes(tmp_path: Path) -> None:
    cw.aggregate(crowd()[0]).save(tmp_path / "kept")
    with pytest.raises(InputError, match="needs the votes"):
        promise_accuracy(cw.Consensus.load(tmp_path / "kept"), cw.MajorityVote, [3])


def test_the_command_says_what_a_target_takes(tmp_path: Path) -> None:
    made = cw.simulate.one_coin(200, n_annotators=10, votes_per_item=3, random_state=0)
    made.save(tmp_path / "crowd")
    options = ["--budget", "300", "--votes-per-item", "1,3,5", "--target", "0.9", "--out", str(tmp_path / "plan")]
    done = CliRunner().invoke(app, ["active", "plan", str(tmp_path / "crowd"), *options], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    facts = json.loads((tmp_path / "plan" / "facts.json").read_text())
    assert facts["accuracy"][1]["mean"] == pytest.approx(facts["present"]["accuracy"], abs=1e-3)
    assert "gold labels of the most doubtful items" in done.stdout and facts["target"]["gold"] > 0
