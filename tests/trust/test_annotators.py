"""The table of annotators: intervals cover, honest crowds raise no alarm, planted ones are named in words."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest, linregress

import crowdwise as cw
from crowdwise.core.numerics import binomial_tail
from crowdwise.errors import InputError, ParameterError
from crowdwise.trust.annotator_measures import seconds, speed
from crowdwise.trust.annotators import assess_annotators
from crowdwise.trust.evidence import adjusted, read_evidence
from crowdwise.trust.flags import Flag, FlagKind
from trust.planted import HONEST, planted

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def with_times(votes, times):
    return cw.Votes.from_codes(
        votes.item, votes.annotator, votes.label, items=votes.items, annotators=votes.annotators,
        classes=votes.classes, timestamp=times, truth=votes.truth,
    )  # fmt: skip


# -------------------------------------------------------------------- the evidence


def test_the_others_posterior_is_that_of_the_votes_without_this_one():
    sim = cw.simulate.dirichlet(40, n_annotators=7, n_classes=3, votes_per_item=4, random_state=0)
    votes = sim.votes
    e = read_evidence(votes, cw.aggregate(votes, "dawid-skene"))
    r = np.stack([e.others(k) for k in range(3)], axis=1)
    assert np.allclose(r.sum(axis=1), 1.0)
    for s in range(0, votes.n_votes, 13):
        n = votes.item[s]
        p = e.prior.copy()
        for t in range(votes.indptr[n], votes.indptr[n + 1]):
            if t != s:
                p = p * e.theta[votes.annotator[t], :, votes.label[t]]
        assert np.allclose(r[s], p / p.sum(), atol=1e-9)
        assert np.isclose(e.right[s], r[s, votes.label[s]])
    brute = np.zeros_like(e.counts)
    for s in range(votes.n_votes):
        brute[votes.annotator[s], :, votes.label[s]] += r[s]
    assert np.allclose(e.counts, brute)


def test_with_the_truth_given_accuracy_is_the_share_of_right_votes():
    sim = cw.simulate.dirichlet(200, n_annotators=8, n_classes=3, votes_per_item=4, random_state=1)
    votes = sim.votes
    report = assess_annotators(votes, cw.aggregate(votes, "majority"), gold=sim.truth)
    right = np.bincount(votes.annotator, weights=votes.label == sim.truth[votes.item]) / np.bincount(votes.annotator)
    assert np.allclose(report.columns["accuracy"], right, atol=1e-4)


def test_skill_is_the_slope_of_saying_on_being():
    """With two classes and the truth known: sensitivity + specificity - 1, the slope of a regression."""
    sim = cw.simulate.two_coin(300, n_annotators=6, votes_per_item=4, random_state=2)
    votes = sim.votes
    report = assess_annotators(votes, cw.aggregate(votes, "majority"), gold=sim.truth)
    for m in range(6):
        mine = votes.annotator == m
        truth = sim.truth[votes.item[mine]]
        slope = linregress(truth, votes.label[mine]).slope
        assert np.isclose(report.columns["skill"][m], slope, atol=1e-6)


def test_the_passes_are_not_made_where_they_would_overturn_sure_labels():
    sim = cw.simulate.one_coin(300, n_annotators=10, n_classes=2, votes_per_item=5, random_state=0)
    c = cw.aggregate(sim.votes, "one-coin")
    turned = replace(c, posterior=np.where(c.posterior > 0.5, 0.01, 0.99)[:, :], label_codes=1 - c.label_codes)
    e = read_evidence(sim.votes, turned)
    assert (e.posterior().argmax(axis=1) == turned.label_codes).mean() > 0.8


def test_binomial_tail_and_adjustment():
    from scipy.stats import binom, false_discovery_control

    x, n = np.array([0.0, 3.0, 7.0]), np.array([5.0, 9.0, 7.0])
    assert np.allclose(binomial_tail(x, n, 0.3), binom.sf(x - 1, n, 0.3))
    p = np.array([[0.01, 0.5], [0.02, 0.9]])
    assert np.allclose(adjusted(p).ravel(), false_discovery_control(p.ravel()))


# -------------------------------------------------------------------- intervals


@pytest.mark.parametrize("method", ["dawid-skene", "anchored", "majority"])
def test_intervals_of_accuracy_cover(method):
    """Over crowds dense and sparse, of two to four classes, 95 % intervals hold the truth 96 % of the time: they
    allow for the error that real crowds have in common, which these have not."""
    each = []
    kinds = [
        (cw.simulate.one_coin, 2, 400, 20, 8),
        (cw.simulate.one_coin, 2, 1000, 300, 5),
        (cw.simulate.one_coin, 4, 300, 60, 3),
        (cw.simulate.one_coin, 4, 1000, 40, 4),
        (cw.simulate.dirichlet, 3, 400, 20, 8),
        (cw.simulate.dirichlet, 3, 1000, 300, 5),
        (cw.simulate.dirichlet, 3, 300, 30, 4),
    ]
    for scenario, K, N, M, r in kinds:
        covered = []
        for seed in range(6):
            sim = scenario(N, n_annotators=M, n_classes=K, votes_per_item=r, random_state=100 + seed)
            c = assess_annotators(sim.votes, cw.aggregate(sim.votes, method)).columns
            true = sim.parameters["accuracy"]
            covered.append(((c["accuracy_low"] <= true) & (true <= c["accuracy_high"]))[c["votes"] > 0].mean())
        each.append(np.mean(covered))
    assert np.mean(each) >= 0.96 and min(each) > 0.85


def test_other_intervals_hold_their_estimates_and_narrow_with_votes():
    widths = []
    for N in (100, 1600):
        sim = cw.simulate.dirichlet(N, n_annotators=10, n_classes=3, votes_per_item=5, random_state=3)
        c = assess_annotators(
            with_times(sim.votes, np.arange(sim.votes.n_votes)), cw.aggregate(sim.votes, "dawid-skene")
        ).columns
        names = [n for n in c if f"{n}_low" in c]
        assert set(names) == {"accuracy", "skill", "agreement", "weight", "information", "bias", "drift"}
        for n in names:
            assert ((c[f"{n}_low"] <= c[n]) & (c[n] <= c[f"{n}_high"])).all(), n
        widths.append({n: np.mean(c[f"{n}_high"] - c[f"{n}_low"]) for n in names})
    own = {n: 0.85 if n == "accuracy" else 0.5 for n in widths[0]}  # the error of the crowd stays
    assert all(widths[1][n] < own[n] * widths[0][n] for n in widths[0]), widths


def test_agreement_is_that_with_the_other_votes_on_the_same_items():
    votes = cw.Votes.from_records(
        [("a", "x", 1), ("a", "y", 1), ("a", "z", 0), ("b", "x", 0), ("b", "y", 1), ("c", "x", 0)], classes=[0, 1]
    )
    c = assess_annotators(votes, cw.aggregate(votes, "majority")).columns
    assert np.allclose(c["agreement"], [(0.5 + 0.0) / 2, (0.5 + 0.0) / 2, 0.0])


# -------------------------------------------------------------------- no false alarms


def test_honest_crowds_raise_no_alarm():
    """Over 200 honest crowds of varied shape each kind of flag is raised on anybody in at most 5 % of them."""
    rng, raised, crowds = np.random.default_rng(7), {}, 200
    for n in range(crowds):
        K, M = int(rng.integers(2, 6)), int(rng.integers(8, 60))
        N, r = int(rng.integers(100, 500)), int(rng.integers(3, 9))
        sim = cw.simulate.one_coin(
            N, n_annotators=M, n_classes=K, a=12, b=4, votes_per_item=min(r, M), random_state=int(rng.integers(2**31))
        )
        votes = with_times(sim.votes, rng.random(sim.votes.n_votes))
        report = assess_annotators(votes, cw.aggregate(votes, ["anchored", "dawid-skene", "majority"][n % 3]))
        w = sim.parameters["accuracy"]
        clears = {  # those of whom the hypothesis is true
            FlagKind.RANDOM: (K * w - 1) / (K - 1) >= 0.2,
            FlagKind.CONFUSION: (1 - w) / (K - 1) <= 0.2,
        }
        for kind, p in report.p_values.items():
            low = p.reshape(M, -1).min(axis=1) <= 0.05
            raised[kind] = raised.get(kind, 0) + bool((low & clears.get(kind, True)).any())
    assert set(raised) == set(FlagKind) - {FlagKind.FEW_VOTES}
    for kind, times in raised.items():
        assert binomtest(times, crowds, 0.05, alternative="greater").pvalue > 0.01, (kind, times)


def test_a_lower_level_flags_no_more():
    votes = planted(6)
    c = cw.aggregate(votes, "anchored")
    strict, loose = (assess_annotators(votes, c, level=level) for level in (0.001, 0.2))
    assert set(strict.flagged()) <= set(loose.flagged())


# -------------------------------------------------------------------- planted ones


@pytest.mark.parametrize("votes_per_item", [None, 6, 4])
@pytest.mark.parametrize("method", ["anchored", "dawid-skene", "majority"])
def test_planted_annotators_are_named_in_words(votes_per_item, method):
    votes = planted(votes_per_item)
    report = assess_annotators(votes, cw.aggregate(votes, method))
    assert report.flagged(FlagKind.WORSE_THAN_CHANCE) == ["adversary"]
    assert report.flagged(FlagKind.CONSTANT) == ["lazy"]
    worse = [any(flag.kind is FlagKind.DRIFT and flag.change < 0 for flag in flags) for flags in report.flags]
    assert report.names[worse].tolist() == ["drifter"]
    assert report.flagged(FlagKind.RANDOM) == []
    words = " ".join(report.sentences())
    assert "adversary is worse than chance" in words
    assert "lazy always says class 1." in words
    assert "drifter got worse over time" in words
    confused = report.flags[HONEST]
    assert FlagKind.CONFUSION in [flag.kind for flag in confused]
    s = report.columns["suspicion"]
    assert (s[HONEST:] > 0.95).all()
    frame = report.to_frame(kind="dict")
    assert frame["annotator"].tolist() == votes.annotators.tolist()
    assert "always says class 1" in frame["flags"][HONEST + 1]


def test_random_annotators_and_those_with_few_votes_are_named():
    sim = cw.simulate.hammer_spammer(
        500, n_annotators=15, n_classes=3, share=0.8, accuracy=0.8, votes_per_item=6, random_state=1
    )
    votes = sim.votes
    report = assess_annotators(votes, cw.aggregate(votes, "anchored"))
    assert set(report.flagged(FlagKind.RANDOM)) == set(votes.annotators[sim.parameters["spammers"]].tolist())
    few = votes.select((votes.annotator != 0) | (np.cumsum(votes.annotator == 0) <= 5))
    report = assess_annotators(few, cw.aggregate(few, "anchored"))
    assert Flag(FlagKind.FEW_VOTES) in report.flags[0] and "a0" not in report.flagged("random")


def test_a_confusion_beyond_the_crowds_is_named_and_a_bias():
    rng = np.random.default_rng(0)
    N, M = 600, 8
    y = rng.integers(0, 3, N)
    said = np.where(rng.random((N, M)) < 0.85, y[:, None], rng.integers(0, 3, (N, M)))
    said[:, 0] = np.where((y == 1) & (rng.random(N) < 0.7), 2, said[:, 0])
    votes = cw.Votes.from_dense(np.array(["cat", "wolf", "dog"])[said], annotators=[f"p{m}" for m in range(M)])
    report = assess_annotators(votes, cw.aggregate(votes, "dawid-skene"))
    assert Flag(FlagKind.CONFUSION, ("wolf", "dog")) in report.flags[0]
    assert Flag(FlagKind.BIAS, ("dog",)) in report.flags[0] and report.flagged(FlagKind.BIAS) == ["p0"]
    assert report.sentences() == ["p0 confuses wolf with dog and names dog too often."]
    assert report.columns["bias_class"][0] == "dog" and report.columns["bias"][0] > 0.15
    assert report.flagged(FlagKind.CONFUSION) == ["p0"]


# -------------------------------------------------------------------- times


def test_speed_leaves_pauses_out():
    votes = cw.Votes.from_records([(n, "ann", n % 2) for n in range(10)] + [(0, "bob", 0), (1, "bob", 1)])
    times = np.full(votes.n_votes, np.nan)
    ann = votes.annotator == 0
    times[ann] = np.array([0, 10, 20, 30, 40, 9000, 9010, 9020, 9030, 9040.0])
    times[~ann] = [5.0, 50000.0]
    found = speed(with_times(votes, times), times)
    assert np.isclose(found[0], 360.0)
    assert np.isnan(found[1])


def test_timestamps_of_every_kind():
    dates = np.array(["2024-01-01T00:00:00", "2024-01-01T01:00:00", "NaT"], dtype="datetime64[s]")
    assert np.diff(seconds(dates))[0] == 3600.0
    assert np.isnan(seconds(dates)[2])
    assert np.allclose(seconds(np.array([1, 2], dtype=np.int64)), [1.0, 2.0])
    assert np.diff(seconds(np.array(["2024-01-01", "2024-01-02"], dtype=object)))[0] == 86400.0
    with pytest.raises(InputError, match="neither dates nor numbers"):
        seconds(np.array(["soon", "later"], dtype=object))


def test_drift_is_measured_with_an_interval():
    covered = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        N, M = 250, 7
        y = rng.integers(0, 3, N)
        p = np.full((N, M), 0.8)
        order = rng.permutation(N)
        p[order, 0] = np.linspace(0.9, 0.5, N)
        said = np.where(rng.random((N, M)) < p, y[:, None], (y[:, None] + rng.integers(1, 3, (N, M))) % 3)
        when = rng.random((N, M))
        when[order, 0] = np.arange(N)
        votes = cw.Votes.from_dense(said)
        c = assess_annotators(with_times(votes, when.ravel()), cw.aggregate(votes, "dawid-skene")).columns
        covered.append(c["drift_low"][0] <= -0.4 <= c["drift_high"][0])
        assert abs(c["drift"][0] + 0.4) < 0.35
    assert np.mean(covered) > 0.85


# -------------------------------------------------------------------- what comes in, what goes out


def test_order_of_rows_and_names_do_not_matter():
    sim = cw.simulate.dirichlet(150, n_annotators=8, n_classes=3, votes_per_item=4, random_state=5)
    votes = sim.votes
    base = assess_annotators(votes, cw.aggregate(votes, "dawid-skene")).to_frame(kind="dict")
    order = np.random.default_rng(0).permutation(votes.n_votes)
    other = cw.Votes.from_codes(
        votes.item[order], 7 - votes.annotator[order], votes.label[order], items=votes.items,
        annotators=votes.annotators[::-1].copy(), classes=votes.classes,
    )  # fmt: skip
    again = assess_annotators(other, cw.aggregate(other, "dawid-skene")).to_frame(kind="dict")
    for name, column in base.items():
        back = again[name][::-1]
        if column.dtype.kind == "f":
            assert np.allclose(column, back, atol=1e-6, equal_nan=True), name
        else:
            assert column.tolist() == back.tolist(), name


def test_without_timestamps_there_is_no_speed_and_no_drift():
    sim = cw.simulate.one_coin(60, n_annotators=5, votes_per_item=3, random_state=0)
    report = assess_annotators(sim.votes, cw.aggregate(sim.votes, "majority"))
    assert "speed" not in report.columns and "drift" not in report.columns
    assert report.to_frame().height == 5
    assert "5 annotators" in repr(report)


def test_a_capacity_function_is_called_and_checked():
    sim = cw.simulate.one_coin(60, n_annotators=5, votes_per_item=3, random_state=0)
    c = cw.aggregate(sim.votes, "majority")
    report = assess_annotators(sim.votes, c, capacity=lambda theta: theta[:, 0, 0])
    assert report.columns["capacity"].shape == (5,)
    with pytest.raises(ParameterError, match="one number per annotator"):
        assess_annotators(sim.votes, c, capacity=lambda theta: theta)


def test_information_is_the_mutual_information_of_the_matrix():
    sim = cw.simulate.dirichlet(500, n_annotators=5, n_classes=3, votes_per_item=5, random_state=0)
    e = read_evidence(sim.votes, cw.aggregate(sim.votes, "dawid-skene"))
    c = assess_annotators(sim.votes, cw.aggregate(sim.votes, "dawid-skene")).columns
    joint = e.prior[None, :, None] * e.theta
    alone = joint.sum(axis=1, keepdims=True) * joint.sum(axis=2, keepdims=True)
    assert np.allclose(c["information"], (joint * np.log2(joint / alone)).sum(axis=(1, 2)))


def test_annotators_and_items_without_votes_and_weights_do_no_harm():
    sim = cw.simulate.one_coin(60, n_annotators=5, votes_per_item=3, random_state=0)
    v = sim.votes
    wider = cw.Votes.from_codes(
        v.item, v.annotator, v.label, items=range(61), annotators=[*v.annotators.tolist(), "nobody"], classes=v.classes,
        weight=np.linspace(0.5, 2.0, v.n_votes),
    )  # fmt: skip
    report = assess_annotators(wider, cw.aggregate(wider, "dawid-skene"))
    assert report.columns["votes"][5] == 0
    assert report.flags[5] == (Flag(FlagKind.FEW_VOTES),)
    assert np.isfinite(report.columns["suspicion"]).all()


def test_what_does_not_belong_together_is_refused():
    a = cw.simulate.one_coin(60, n_annotators=5, votes_per_item=3, random_state=0).votes
    b = cw.simulate.one_coin(70, n_annotators=5, votes_per_item=3, random_state=0).votes
    with pytest.raises(InputError, match="items of the votes are not those of the consensus"):
        assess_annotators(b, cw.aggregate(a, "majority"))
    with pytest.raises(InputError, match="Expected Votes and a Consensus"):
        assess_annotators(a, a)
    with pytest.raises(ParameterError, match=r"useful=1\.5"):
        assess_annotators(a, cw.aggregate(a, "majority"), useful=1.5)


@pytest.mark.slow
def test_a_million_votes_in_seconds():
    sim = cw.simulate.dirichlet(200_000, n_annotators=2000, n_classes=5, votes_per_item=5, random_state=0)
    votes = with_times(sim.votes, np.random.default_rng(0).random(sim.votes.n_votes))
    c = cw.aggregate(votes, "majority")
    began = time.process_time()
    assess_annotators(votes, c)
    assert time.process_time() - began < 60  # some 4 s on an idle core
