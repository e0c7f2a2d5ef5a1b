"""Which items to ask the truth of, in Python and on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.errors import InputError, ParameterError

CROWD = cw.simulate.one_coin(200, n_annotators=15, n_classes=3, votes_per_item=3, random_state=0)


def test_doubtful_items_are_drawn_more_often() -> None:
    consensus = cw.aggregate(CROWD.votes)
    doubt = 1.0 - consensus.posterior.max(axis=1)
    drawn = np.zeros(200)
    for seed in range(40):
        found = cw.trust.ask_for_gold(consensus, 20, random_state=seed)
        assert len(set(found.items.tolist())) == 20 and (np.diff(found.right) >= 0).all()
        drawn[np.isin(CROWD.votes.items, found.items)] += 1
    half = doubt > np.median(doubt)
    assert drawn[half].sum() > 2 * drawn[~half].sum() > 0
    assert np.isclose(found.expected_wrong, (1.0 - found.right).sum()) and "20 items" in repr(found)


def test_items_with_gold_are_not_asked_for() -> None:
    gold = np.where(np.arange(200) < 190, CROWD.truth, -1).astype(np.int32)
    consensus = cw.aggregate(CROWD.votes, gold=gold)
    found = cw.trust.ask_for_gold(consensus, 50).to_frame(kind="dict")
    assert sorted(found["item"].tolist()) == sorted(CROWD.votes.items[190:].tolist())
    assert list(found) == ["item", "label", "right", "votes"]
    with pytest.raises(InputError, match="nothing to ask for"):
        cw.trust.ask_for_gold(cw.aggregate(CROWD.votes, gold=CROWD.truth))
    with pytest.raises(ParameterError, match="n="):
        cw.trust.ask_for_gold(consensus, 0)


def test_the_notes_advise_gold_where_labels_leave_the_majority() -> None:
    crowd = cw.simulate.hammer_spammer(
        300, n_annotators=20, n_classes=3, accuracy=0.95, share=0.3, votes_per_item=8, random_state=0
    )
    alone = cw.aggregate(crowd.votes)
    assert "50 gold labels would show which to go by" in alone.notes[-1]
    known = np.where(np.arange(300) < 50, crowd.truth, -1).astype(np.int32)
    assert "gold labels would" not in cw.aggregate(crowd.votes, gold=known).notes[-1]
    assert "gold labels would" not in cw.aggregate(crowd.votes[:60]).notes[-1]


def test_the_command(tmp_path) -> None:
    from typer.testing import CliRunner

    from crowdwise.cli.main import make_app

    CROWD.save(tmp_path / "crowd")
    app, runner = make_app(["gold", "aggregate"]), CliRunner()

    def run(*words: object) -> object:
        return runner.invoke(app, [str(word) for word in words])

    out = tmp_path / "ask.csv"
    done = run("gold", tmp_path / "crowd", "--ask", 12, "--out", out)
    assert done.exit_code == 0, done.output
    assert "12 of 200 items. Of 12 labels, about" in done.output and len(out.read_text().splitlines()) == 13
    facts = json.loads(run("gold", tmp_path / "crowd", "--ask", 12, "--json").stdout)
    assert len(facts["items"]) == 12 and facts["expected_wrong"] > 0
    assert [str(row["item"]) for row in facts["items"]] == [x.split(",")[0] for x in out.read_text().splitlines()[1:]]
    cw.Votes.from_records(
        [(n, m, 0 if n == m == 0 else n % 2) for n in range(20) for m in range(5)]
    ).to_frame().write_csv(tmp_path / "sure.csv")
    assert "Of 1 label, about 0 are expected to be wrong." in run("gold", tmp_path / "sure.csv", "--ask", 1).output
    assert run("gold", tmp_path / "crowd", "--ask", 0).exit_code == 2
