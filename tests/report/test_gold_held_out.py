"""Accuracy is never stated by gold labels of themselves: each gold item is labelled by the votes, or left out."""

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.active.stopping import estimate_accuracy
from crowdwise.cli.show_report import show_diagnosis
from crowdwise.report.page import page


@pytest.fixture(scope="module")
def coins():
    """Three annotators who flip coins on 60 items, 40 of them gold."""
    rng = np.random.default_rng(0)
    votes = cw.Votes.from_dense(rng.integers(2, size=(60, 3)))
    return votes, {n: int(rng.integers(2)) for n in range(40)}


@pytest.mark.parametrize("method", ["auto", "dawid-skene", "majority", "wawa", "glad"])
def test_coins_that_are_measured_on_gold_are_right_half_the_time(coins, method):
    votes, gold = coins
    consensus = cw.aggregate(votes, method, gold=gold)
    for carried in (votes, votes.with_truth(gold)):  # a stream's votes carry its gold as their truth
        measured = cw.build_report(carried, consensus)["truth"]
        assert measured["by_votes"] and measured["accuracy"]["n"] == 40
        assert 0.25 < measured["accuracy"]["value"] < 0.75
    with pytest.raises(cw.errors.InputError, match="nothing to measure"):
        cw.metrics.accuracy(consensus, gold)


def test_what_is_expected_of_labels_leaves_gold_out(coins):
    votes, gold = coins
    consensus = cw.aggregate(votes, "auto", gold=gold)
    assert consensus.expected_accuracy()[0] < 0.7
    assert cw.diagnose(votes, consensus).expected < 0.75
    report = cw.build_report(votes, consensus)
    assert "of 20 labels" in report["summary"]["picture"]["words"] and report["summary"]["majority"]["items"] == 20
    assert "40 gold items by the votes alone" in page(report)
    whole = cw.aggregate(votes, "dawid-skene", gold={n: n % 2 for n in range(60)})
    assert np.isnan(whole.expected_accuracy()).all() and np.isnan(cw.diagnose(votes, whole).expected)


def test_good_annotators_are_seen_to_be_good_by_gold_that_is_held_out():
    crowd = cw.simulate.one_coin(300, n_annotators=10, a=30, b=4, votes_per_item=5, random_state=0)
    votes, truth = crowd.votes.with_truth(None), crowd.truth
    gold = np.where(np.arange(300) < 100, truth, -1)
    measured = cw.build_report(votes, cw.aggregate(votes, "auto", gold=gold))["truth"]["accuracy"]
    right = (cw.aggregate(votes, "auto").label_codes == truth)[:100].mean()
    assert measured["n"] == 100 and abs(measured["value"] - right) < 0.03


def test_an_annotator_who_gets_all_gold_wrong_is_not_always_right():
    votes = cw.Votes.from_dense([[0], [1]], missing=-1)
    online = cw.Online(cw.DawidSkene(), classes=[0, 1]).partial_fit(votes, gold={0: 1, 1: 0})
    assert cw.build_report(online.votes(), online.consensus())["truth"]["accuracy"]["value"] == 0.0
    found = estimate_accuracy(online)
    assert not found.known and found.items == 0 and found.low == 0.5


def test_a_stream_of_coins_does_not_reach_a_target_by_its_gold(coins):
    votes, gold = coins
    online = cw.Online(cw.OneCoin(), step=None).partial_fit(votes, gold=gold)
    found = estimate_accuracy(online)
    assert found.items == 20 and found.low < 0.6 and found.accuracy < 0.8
    assert cw.active.StopRule(target=0.85).why_enough(online) is None


def test_the_terminal_states_what_gold_measures_by_the_votes(coins, capsys):
    votes, gold = coins
    show_diagnosis(cw.diagnose(votes, cw.aggregate(votes, "auto", gold=gold)))
    said = " ".join(capsys.readouterr().out.split())
    assert "Measured on 40 gold items, each labelled by the votes and what other items teach, " in said
