"""Certificates: what random gold labels prove, checked by enumeration and by simulated draws."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

import crowdwise as cw
from crowdwise.errors import InputError, ParameterError
from crowdwise.trust.certificate import Design, _limits, bet, finite_rate, gold_to_prove, p_value


def test_limits_are_those_of_scipy() -> None:
    size, drawn = (x.ravel() for x in np.meshgrid([3, 20, 90, 5000], [0, 1, 3, 17, 80]))
    drawn = np.minimum(size, drawn)
    allowed = size // 9
    for level in (0.05, 0.1, 0.4):
        for N, m, c, most in zip(size, drawn, allowed, _limits(size, drawn, allowed, level), strict=True):
            cdf = hypergeom.cdf(np.arange(-1, m + 1), N, c + 1, m)
            assert most == np.flatnonzero(cdf <= level)[-1] - 1


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
    assert Design(score, 20, 0, 0.05, 0.05).released(drawn, (score < 0.8).astype(float)).all()
    assert p_value(5, 20, 20, 0) == 0.0


@pytest.mark.parametrize(("max_error", "confidence"), [(0.05, 0.9), (0.1, 0.9), (0.1, 0.95)])
@pytest.mark.parametrize("kind", ["calibrated", "worthless", "reversed"])
def test_promises_are_kept_whatever_the_scores(kind: str, max_error: float, confidence: float) -> None:
    rng = np.random.default_rng(0)
    right = np.clip(rng.beta(9, 1, 800), 0.0, 0.99)
    wrong = rng.random(800) > right
    score = {"calibrated": right, "worthless": rng.random(800), "reversed": 1.0 - right}[kind].round(2)
    broken, shares = 0, []
    design = Design(score, 100, 0, max_error, 1.0 - confidence)
    for _ in range(200):
        drawn = np.zeros(800, dtype=bool)
        drawn[rng.choice(800, 100, replace=False)] = True
        out = design.released(drawn, wrong.astype(float))
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
    assert certificate.share > 0.3 and f"{certificate.released.sum():,} of 1,500 labels" in repr(certificate)
    assert len(certificate.to_check) == (~certificate.released).sum()
    assert certificate.with_more(600) >= certificate.with_more(200) >= 0.5 * certificate.share
    assert certificate.with_more(40) == certificate.share  # there are more already
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
    assert by_class.with_more(600) <= cw.certify(consensus, gold, 0.15).with_more(600)  # each has half of the level
    for nothing in (None, float("nan")):
        with pytest.raises(InputError, match="500 items have no group: 0, 3"):
            cw.certify(consensus, gold, by={i: "a" if i % 3 else nothing for i in range(1500)})


def test_gold_that_proves_nothing_is_refused() -> None:
    consensus, truth = crowd()
    sure = consensus.items[np.argsort(-consensus.corrected_posterior.max(axis=1))[:100]].tolist()
    with pytest.raises(InputError, match=r"surer than the others .*not drawn at random"):
        cw.certify(consensus, {item: truth[item] for item in sure})
    for use in (
        cw.certify,
        lambda c, g: c.sets(gold=g),
        lambda c, g: cw.draw_for_gold(c, first=g),
        lambda c, g: cw.estimate(c, gold=g),
    ):
        with pytest.raises(InputError, match="1 of the 3 gold items are not among the 1,500 items: '4-Mar'"):
            use(consensus, {0: 0, 1: 1, "4-Mar": 1})
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
    plain = cw.certify(consensus, gold, 0.1, score=again.score)  # without votes: by the probability alone
    assert (again.released == plain.released).all()


def test_a_second_draw_goes_where_it_counts() -> None:
    rng = np.random.default_rng(3)
    N, broken, more = 3000, 0, []
    quality = np.sort(rng.random(N))[::-1]
    wrong = (rng.random(N) < np.where(quality > 0.75, 0.01, 0.5)).astype(float)  # a quarter can be proven
    one, two = Design(quality, 90, 0, 0.05, 0.1), Design(quality, 30, 60, 0.05, 0.1)
    for _ in range(100):
        order = rng.permutation(N)
        first, whole = np.zeros(N, dtype=bool), np.zeros(N, dtype=bool)
        first[order[:30]], whole[order[:90]] = True, True
        inside = two.order[: two.size[two.region(first, wrong)[0]]]
        drawn = first.copy()
        drawn[rng.permutation(inside[~first[inside]])[:60]] = True
        out = two.released(drawn, wrong, first)
        broken += (wrong[out & ~drawn]).sum() > 0.05 * out.sum()
        more.append(out.mean() - one.released(whole, wrong).mean())
    assert broken <= 10 + 2 * 3 and np.mean(more) > 0.05
    outside = first.copy()
    outside[two.order[-60:]] = True
    with pytest.raises(InputError, match="outside the region"):
        two.released(outside, wrong, first)


def test_sequences_of_tests_keep_the_level_where_every_set_is_at_the_edge() -> None:
    # Wrong labels are spread evenly, a little more of them than allowed: every set is false.
    N, n, level = 400, 120, 0.2
    wrong = (np.arange(N) % 8 == 0).astype(float)
    design, rng, broken = Design(np.linspace(1, 0, N), n, 0, 0.1, level), np.random.default_rng(0), 0
    for _ in range(400):
        drawn = np.zeros(N, dtype=bool)
        drawn[rng.choice(N, n, replace=False)] = True
        out = design.released(drawn, wrong)
        broken += wrong[out & ~drawn].sum() > 0.1 * out.sum()
    assert broken <= 400 * level + 2 * np.sqrt(400 * level)


def test_losses_of_any_kind() -> None:
    rng = np.random.default_rng(0)
    score = rng.random(1000)
    loss = np.where(rng.random(1000) < score, 0.2 * rng.random(1000), rng.random(1000)) ** 2
    kept, shares = 0, []
    for seed in range(20):
        drawn = np.random.default_rng(seed).choice(1000, 150, replace=False)
        known = np.full(1000, np.nan)
        known[drawn] = loss[drawn]
        found = cw.certify(score=score, loss=known, max_error=0.1, confidence=0.9)
        left = loss * found.released * ~found.gold
        kept += left.sum() <= 0.1 * found.released.sum()
        shares.append(found.share)
    assert kept >= 18 and np.mean(shares) > 0.3 and found.to_frame(kind="polars").columns[:2] == ["item", "score"]
    assert np.isnan(found.wrong_rate[1]) and found.labels is None
    wrong = np.where(np.isnan(known), np.nan, known > 0.5)
    assert not np.isnan(cw.certify(score=score, loss=wrong).wrong_rate).any()
    for bad, message in (({"score": score}, "give a consensus"), ({"score": score, "loss": known * 9}, "from 0 to 1")):
        with pytest.raises(InputError, match=message):
            cw.certify(**bad)


@given(st.integers(0, 5), st.integers(1, 12))
def test_bets_are_fair_by_enumeration(ones: int, drawn: int) -> None:
    size = 12
    x = np.arange(size) < ones
    draws = list(combinations(range(size), min(drawn, 3)))
    p = np.array([bet(x[list(chosen)].astype(float), size, ones - 1e-9) for chosen in draws])  # a false promise
    assert (p <= 0.2).mean() <= 0.2 + 1e-9


def test_two_draws_of_a_consensus() -> None:
    consensus, truth = crowd()
    first = {item: truth[item] for item in cw.draw_for_gold(consensus, 50).tolist()}
    second = cw.draw_for_gold(consensus, 100, first=first, max_error=0.1, confidence=0.9).tolist()
    assert not set(second) & set(first) and len(second) == 100
    gold = first | {item: truth[item] for item in second}
    found = cw.certify(consensus, gold, 0.1, 0.9, first=first)
    assert found.gold.sum() == 150 and found.share >= 0.1
    assert 150 <= cw.certify(consensus, first, 0.1, 0.9).gold_needed(0.9) <= 1500
    with pytest.raises(InputError, match="first: expected items"):
        cw.certify(consensus, first, first=second)


def test_the_sentence_counts_gold_labels_among_the_released() -> None:
    score, loss = np.linspace(1.0, 0.5, 400), np.full(400, np.nan)
    loss[np.random.default_rng(0).choice(400, 120, replace=False)] = 0.0
    found = cw.certify(score=score, loss=loss, max_error=0.05, confidence=0.95)
    assert found.released[~np.isnan(loss)].all()
    n = int(found.released.sum())
    assert found.sentence == (
        f"{n} of 400 labels ({n / 400:.0%}, the gold labels among them): at most 5% are wrong, with 95% confidence, by "
        "120 random gold labels"
    )
    few = cw.certify(score=score, loss=np.where(np.arange(400) % 40 == 0, 0.0, np.nan))
    assert few.sentence == (
        "10 gold labels (0 contradict the consensus) do not prove that any of the other 390 labels are at most 5% wrong"
    )
    assert "All 400 labels are gold" in cw.certify(score=score, loss=np.zeros(400)).sentence


def test_gold_labels_to_draw_are_known_before_there_are_any() -> None:
    consensus, truth = crowd()
    some = {e: [gold_to_prove(consensus, share, e, 0.9) for share in (0.3, 0.6)] for e in (0.05, 0.1)}
    assert all(20 <= a <= b <= 0.6 * len(consensus.items) + 1 for a, b in some.values())
    assert some[0.05][1] > some[0.1][1]
    gold = {item: truth[item] for item in cw.draw_for_gold(consensus, some[0.1][1]).tolist()}
    assert cw.certify(consensus, gold, 0.1, 0.9).share > 0.4  # 0.6 is expected
    with pytest.raises(ParameterError, match="max_error"):
        gold_to_prove(consensus, 0.9, 2.0)


def test_looks_at_labels_that_change_share_the_level() -> None:
    rng, score = np.random.default_rng(0), np.linspace(1.0, 0.5, 500)
    loss = np.full(500, np.nan)
    drawn = rng.choice(500, 150, replace=False)
    loss[drawn] = rng.random(150) > score[drawn] + 0.1
    for look in (1, 3):
        there = cw.certify(score=score, loss=loss, max_error=0.15, confidence=0.8, look=look)
        alone = cw.certify(score=score, loss=loss, max_error=0.15, confidence=1.0 - 0.2 / (look * (look + 1)))
        assert (there.released == alone.released).all() and there.confidence == 0.8
        following = cw.certify(score=score, loss=loss, max_error=0.15, confidence=1.0 - 0.2 / ((look + 1) * (look + 2)))
        assert there.with_more(250) == following.with_more(250)
