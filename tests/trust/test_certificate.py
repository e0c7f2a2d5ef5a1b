"""Certificates: what random gold labels prove, checked by enumeration and by simulated draws."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crowdwise as cw
from crowdwise.errors import InputError
from crowdwise.trust.certificate import finite_rate, p_value, released


@given(st.integers(2, 9), st.data())
def test_the_p_value_bounds_broken_promises_by_enumeration(size: int, data: st.DataObject) -> None:
    drawn = data.draw(st.integers(1, size))
    allowed, D = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
    level = data.draw(st.sampled_from([0.05, 0.1, 0.3]))
    wrong = np.arange(size) < D
    samples = [wrong[list(chosen)].sum() for chosen in combinations(range(size), drawn)]
    broken = [e for e in samples if p_value(int(e), drawn, size, allowed) <= level and D - e > allowed]
    assert len(broken) <= level * len(samples) + 1e-9


def test_gold_labels_of_all_items_release_all() -> None:
    score = np.linspace(0.5, 1.0, 20)
    drawn = np.ones(20, dtype=bool)
    assert released(score, drawn, score < 0.8, 0.05, 0.95).all()
    assert p_value(5, 20, 20, 0) == 0.0


@pytest.mark.parametrize(("max_error", "confidence"), [(0.05, 0.9), (0.1, 0.9), (0.1, 0.95)])
@pytest.mark.parametrize("kind", ["calibrated", "worthless", "reversed"])
def test_promises_are_kept_whatever_the_scores(kind: str, max_error: float, confidence: float) -> None:
    rng = np.random.default_rng(0)
    right = np.clip(rng.beta(9, 1, 800), 0.0, 0.99)
    wrong = rng.random(800) > right
    score = {"calibrated": right, "worthless": rng.random(800), "reversed": 1.0 - right}[kind].round(2)
    broken, shares = 0, []
    for _ in range(200):
        drawn = np.zeros(800, dtype=bool)
        drawn[rng.choice(800, 100, replace=False)] = True
        out = released(score, drawn, wrong & drawn, max_error, confidence)
        assert out[drawn].all()
        broken += (wrong & out & ~drawn).sum() > max_error * out.sum()
        shares.append(out.mean())
    allowed = 200 * (1 - confidence)
    assert broken <= allowed + 3 * np.sqrt(allowed)
    assert kind != "calibrated" or max_error < 0.1 or np.mean(shares) > 0.5


@given(st.integers(1, 30), st.data())
def test_the_interval_of_the_whole_holds_its_estimate(size: int, data: st.DataObject) -> None:
    drawn = data.draw(st.integers(1, size))
    wrong = data.draw(st.integers(0, drawn))
    rate, low, high = finite_rate(wrong, drawn, size, 0.95)
    assert 0.0 <= low <= rate <= high <= 1.0
    assert drawn < size or low == high == rate


def crowd() -> tuple[cw.Consensus, dict[int, int]]:
    made = cw.simulate.one_coin(1500, n_annotators=25, votes_per_item=5, random_state=1)
    return cw.aggregate(made.votes), dict(enumerate(made.truth.tolist()))


def test_certify_says_what_is_proven() -> None:
    consensus, truth = crowd()
    items = cw.draw_for_gold(consensus, 120).tolist()
    assert len(set(items)) == 120 and items == cw.draw_for_gold(consensus, 120).tolist()
    gold = {item: truth[item] for item in items}
    certificate = cw.certify(consensus, gold, 0.1, 0.9)
    table = certificate.to_frame(kind="polars")
    assert table.columns == ["item", "label", "probability", "released", "gold"] and table.height == 1500
    assert all(table.filter("gold")["label"].to_numpy() == [truth[i] for i in table.filter("gold")["item"].to_list()])
    assert certificate.share > 0.5 and f"{certificate.released.sum():,} of 1,500 labels" in repr(certificate)
    assert len(certificate.to_check) == (~certificate.released).sum()
    assert certificate.with_more(600) >= certificate.with_more(40)
    assert cw.certify(consensus, gold, 0.001, 0.99).released.sum() == 120
    assert "do not prove" in repr(cw.certify(consensus, gold, 0.001, 0.99))
    assert "All 1,500 labels are gold labels" in repr(cw.certify(consensus, truth))


def test_groups_are_each_kept() -> None:
    consensus, truth = crowd()
    gold = {item: truth[item] for item in cw.draw_for_gold(consensus, 300).tolist()}
    by_class = cw.certify(consensus, gold, 0.15, by="label")
    named = cw.certify(consensus, gold, 0.15, by=dict(zip(consensus.items.tolist(), consensus.labels, strict=True)))
    assert (by_class.released == named.released).all() and "of every group" in repr(by_class)
    wrong = consensus.label_codes != np.array(list(truth.values()))
    for k in range(len(consensus.classes)):
        out = by_class.released & (consensus.label_codes == k)
        assert (wrong & out & ~by_class.gold).sum() <= 0.15 * out.sum()


def test_gold_that_proves_nothing_is_refused() -> None:
    consensus, truth = crowd()
    sure = consensus.items[np.argsort(-consensus.corrected_posterior.max(axis=1))[:100]].tolist()
    with pytest.raises(InputError, match=r"surer than the others .*not drawn at random"):
        cw.certify(consensus, {item: truth[item] for item in sure})
    with pytest.raises(InputError, match="No item of the consensus has a gold label"):
        cw.certify(consensus, np.full(1500, -1))
    gold = {item: truth[item] for item in cw.draw_for_gold(consensus, 100).tolist()}
    with pytest.raises(InputError, match="fitted with some of these gold labels"):
        cw.certify(cw.aggregate(consensus.votes, gold=gold), gold)
    with pytest.raises(InputError, match="score: expected 1,500 finite numbers"):
        cw.certify(consensus, gold, score=[1.0])
    with pytest.raises(InputError, match="by: expected 'label'"):
        cw.certify(consensus, gold, by="annotator")
    with pytest.raises(InputError, match="1,499 items have no group"):
        cw.certify(consensus, gold, by={0: "a"})


def test_the_same_without_votes(tmp_path: Path) -> None:
    consensus, truth = crowd()
    gold = {item: truth[item] for item in cw.draw_for_gold(consensus, 100).tolist()}
    consensus.save(tmp_path / "kept")
    again = cw.certify(cw.Consensus.load(tmp_path / "kept"), gold, 0.1)
    assert (again.released == cw.certify(consensus, gold, 0.1).released).all()
