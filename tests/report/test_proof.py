"""The report's section on what is proven, or would be."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.report.page import page


@pytest.fixture(scope="module")
def crowd() -> cw.simulate.Crowd:
    return cw.simulate.one_coin(400, n_annotators=20, a=20, b=3, votes_per_item=5, random_state=0)


def test_without_gold_it_says_what_random_gold_would_prove(crowd: cw.simulate.Crowd) -> None:
    votes = crowd.votes.with_truth({})
    report = cw.build_report(votes, cw.aggregate(votes))
    proof = report["proof"]
    assert proof["certificates"] == [] and len(proof["sheet"]) == len(set(proof["sheet"])) == 100
    shares = {(w["gold"], w["max_error"]): w["share"] for w in proof["would"]}
    assert shares[50, 0.05] < shares[200, 0.05] <= 1.0 and shares[100, 0.05] < shares[100, 0.1]
    assert all(w["low"] <= w["share"] <= w["high"] for w in proof["would"])
    html = page(report)
    assert (
        "What random gold labels would prove" in html
        and "data:text/csv;charset=utf-8,item%2Clabel%2Cdrawn%0D%0A" in html
    )


def test_gold_proves_labels_that_were_not_fitted_with_it(crowd: cw.simulate.Crowd) -> None:
    votes, names = crowd.votes.with_truth({}), crowd.votes.classes
    gold = {i: names[crowd.truth[i]] for i in np.random.default_rng(0).choice(400, 120, replace=False).tolist()}
    proof = cw.build_report(votes, cw.aggregate(votes, gold=gold), gold=gold)["proof"]
    plain = cw.certify(cw.aggregate(votes), gold, 0.1)
    assert proof["certificates"][1]["released"] == plain.released.sum() and "without gold" in proof["note"]
    assert proof["gold"] == 120 and proof["wrong"] == plain.wrong
    measured = cw.build_report(votes, cw.aggregate(votes), truth=gold)
    assert measured["proof"]["note"] is None and "What is proven" in page(measured)


def test_gold_that_was_chosen_is_named(crowd: cw.simulate.Crowd) -> None:
    votes = crowd.votes.with_truth({})
    consensus = cw.aggregate(votes)
    sure = np.argsort(-consensus.corrected_posterior.max(axis=1))[:80].tolist()
    chosen = {i: crowd.votes.classes[crowd.truth[i]] for i in sure}
    proof = cw.build_report(votes, consensus, truth=chosen)["proof"]
    assert proof["certificates"] == [] and "not drawn at random" in proof["note"]
    assert cw.build_report(votes[np.arange(10)])["proof"] is None
