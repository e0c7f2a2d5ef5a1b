"""Rings and shared mistakes: found, without false alarms, and the consensus without them is that of the honest."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest, false_discovery_control

import crowdwise as cw
from crowdwise.core.collusion import MARGIN, PairAgreement, discounted, find_rings, paired_votes
from crowdwise.core.vote_parts import VoteParts
from crowdwise.errors import InputError, ParameterError
from crowdwise.trust import colluders as null
from crowdwise.trust import find_colluders, shared_mistakes
from crowdwise.trust.evidence import adjusted

# -------------------------------------------------------------------- the agreement matrix


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.4])
def test_rings_are_found_and_the_consensus_without_them_is_the_honest_one(share):
    sim = cw.simulate.colluders(
        5000, n_annotators=60, n_classes=3, share=share, p_corr=0.9, random_state=int(10 * share)
    )
    ring, votes = sim.parameters["colluders"], sim.votes
    found = find_colluders(votes)
    assert found.flagged[ring].mean() >= 0.9
    assert 1.0 - found.flagged[~ring].mean() >= 0.9
    assert found.score[ring].min() > found.score[~ring].max()
    pruned = cw.aggregate(votes.without(found.annotators), "dawid-skene").score(sim.truth)
    honest = cw.aggregate(votes.without(votes.annotators[ring].tolist()), "dawid-skene").score(sim.truth)
    assert abs(pruned - honest) <= 0.01
    if share == 0.4:  # a ring that size has captured the consensus
        assert cw.aggregate(votes, "dawid-skene").score(sim.truth) < 0.2


def test_a_trusted_annotator_turns_the_majority_round():
    sim = cw.simulate.colluders(2000, n_annotators=40, share=0.6, random_state=0)
    ring = sim.parameters["colluders"]
    found = find_colluders(sim.votes, trusted=sim.votes.annotators[~ring][0])
    assert found.flagged[ring].all()
    assert not found.flagged[~ring].any()
    assert find_colluders(sim.votes).flagged[ring].mean() < 0.5


def test_a_ring_in_sparse_votes():
    sim = cw.simulate.colluders(5000, n_annotators=60, share=0.3, votes_per_item=15, random_state=0)
    found = find_colluders(sim.votes)
    assert np.array_equal(found.flagged, sim.parameters["colluders"])
    assert len(found.groups) == 1
    table = found.to_frame(kind="dict")
    assert ((table["score_low"] <= table["score"]) & (table["score"] <= table["score_high"])).all()
    assert (found.p_values <= 0.05).all()


def test_two_rings():
    rng = np.random.default_rng(0)
    sim = cw.simulate.dirichlet(3000, n_annotators=30, n_classes=3, random_state=3)
    label = sim.votes.label.reshape(3000, 30).copy()
    for members in (range(5), range(10, 15)):
        attack = rng.random(3000) < 0.8
        pact = np.where(attack, (sim.truth + rng.integers(1, 3, 3000)) % 3, sim.truth)
        label[:, list(members)] = pact[:, None]
    found = find_colluders(cw.Votes.from_dense(label))
    assert sorted(sorted(found.names.tolist().index(n) for n in g) for g in found.groups) == [
        list(range(5)),
        list(range(10, 15)),
    ]


def honest(seed):
    rng = np.random.default_rng(seed)
    N, M, K = int(rng.integers(200, 900)), int(rng.integers(5, 20)), int(rng.integers(2, 4))
    kind = seed % 4
    if kind == 0:
        return cw.simulate.dirichlet(N, n_annotators=M, n_classes=K, random_state=seed)
    if kind == 1:
        return cw.simulate.two_coin(N, n_annotators=M, votes_per_item=min(M, 6), random_state=seed)
    if kind == 2:
        return cw.simulate.difficulty(N, n_annotators=M, n_classes=K, random_state=seed)
    return cw.simulate.hammer_spammer(N, n_annotators=M, n_classes=K, accuracy=0.9, random_state=seed)


def test_no_false_alarms_of_rings():
    alarms = sum(bool(find_colluders(honest(seed).votes, level=0.05).flagged.any()) for seed in range(48))
    assert binomtest(alarms, 48, 0.05, alternative="greater").pvalue > 0.05


def test_no_false_alarms_of_shared_mistakes():
    alarms = 0
    for seed in range(48):
        votes = honest(seed + 100).votes
        alarms += bool(shared_mistakes(votes, cw.aggregate(votes, "dawid-skene"), level=0.05).flagged.any())
    assert binomtest(alarms, 48, 0.05, alternative="greater").pvalue > 0.05


def with_ring(votes, members, script, copies=1.0, seed=0):
    """The votes with those of some annotators replaced by one answer per item, copied with a probability."""
    rng = np.random.default_rng(seed)
    inside = np.isin(votes.annotator, members)
    copied = rng.random(votes.n_votes) < copies
    other = (script[votes.item] + rng.integers(1, votes.n_classes, votes.n_votes)) % votes.n_classes
    label = np.where(inside, np.where(copied, script[votes.item], other), votes.label)
    return replace(votes, label=label.astype(votes.label.dtype))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("what", ["mistakes", "random labels", "noisy copies"])
def test_a_ring_of_eleven_in_bluebird_does_not_capture_the_default(real, what, seed):
    votes = cw.read_dataset(real("bluebird")).votes
    rng = np.random.default_rng(seed)
    members = np.sort(rng.choice(39, 11, replace=False))
    wrong = rng.random(108) < (0.5 if what == "random labels" else 0.9)
    attacked = with_ring(votes, members, np.where(wrong, 1 - votes.truth, votes.truth), 0.9 if "noisy" in what else 1.0)
    found = find_colluders(attacked)
    assert np.flatnonzero(found.flagged).tolist() == members.tolist()
    consensus = cw.aggregate(attacked)
    honest = attacked.without(attacked.annotators[members].tolist())
    assert consensus.score(votes.truth) >= max(0.85, cw.aggregate(honest).score(votes.truth) - 0.02)
    assert consensus.notes[0].startswith("11 annotators with 28% of the votes agree with each other")
    ignored = cw.aggregate(attacked, collusion="ignore")
    assert not any("agree with each other" in note for note in ignored.notes)


def test_new_votes_of_a_ring_count_as_one_too():
    sim = cw.simulate.colluders(600, n_annotators=30, share=0.4, n_classes=3, random_state=2)
    model = cw.Auto().fit(sim.votes)
    assert len(model.rings_) == 1
    np.testing.assert_allclose(model.predict_proba(sim.votes), model.consensus_.posterior, atol=1e-9)
    assert np.mean(model.predict(sim.votes[:100]) == sim.votes.classes[sim.truth[:100]]) >= 0.95


def test_without_a_ring_nothing_changes(real):
    for name in ("bluebird", "rte", "ducks", "temp"):
        votes = cw.read_dataset(real(name)).votes
        assert find_rings(votes) == []
        looked, ignored = cw.aggregate(votes), cw.aggregate(votes, collusion="ignore")
        assert np.array_equal(looked.posterior, ignored.posterior)
        assert looked.notes == ignored.notes


def test_copies_that_agree_with_the_rest_are_not_accused():
    sim = cw.simulate.one_coin(400, n_annotators=20, n_classes=3, a=16.0, b=4.0, random_state=0)
    copied = sim.votes.label.reshape(400, 20)[:, 0]
    votes = with_ring(sim.votes, np.arange(6), copied.astype(np.int64))
    assert not find_colluders(votes).flagged.any()
    assert cw.aggregate(votes).score(sim.truth) >= 0.95


def test_members_of_a_ring_are_as_right_as_they_are():
    """Of votes that count in part in the fit and fully in the table, one in ten right was called 71 %."""
    sim = cw.simulate.colluders(600, n_annotators=30, share=0.3, n_classes=3, random_state=2)
    consensus, names = cw.aggregate(sim.votes), sim.votes.annotators
    assert consensus.notes[0].startswith("9 annotators")
    for votes in (sim.votes, consensus.votes):
        table = cw.trust.assess_annotators(votes, consensus).to_frame(kind="polars")
        right = np.bincount(votes.annotator, weights=sim.truth[votes.item] == votes.label) / np.bincount(
            votes.annotator
        )
        found = dict(zip(table["annotator"].to_list(), table["accuracy"].to_list(), strict=True))
        np.testing.assert_allclose([found[name] for name in names.tolist()], right, atol=0.15)


def several_accounts(per, skill=0.8, accounts=10, seed=1):
    """40 annotators who are right on 65 to 90 % of the items; some are accounts of one person."""
    rng = np.random.default_rng(seed)
    truth, p = rng.integers(0, 2, 300), rng.uniform(0.65, 0.9, 40)
    who = np.concatenate([np.sort(rng.choice(40, per, replace=False)) for _ in range(300)])
    item = np.repeat(np.arange(300), per)
    label = np.where(rng.random(len(who)) < p[who], truth[item], 1 - truth[item])
    own = np.where(rng.random(300) < skill, truth, 1 - truth)
    label = np.where(who < accounts, own[item], label)
    return cw.Votes.from_codes(item, who, label, items=range(300), annotators=range(40), classes=[0, 1]), truth


def test_accounts_of_one_honest_person_count_as_one_vote():
    votes, truth = several_accounts(20)
    found = find_colluders(votes)
    assert not found.flagged.any() and [ring.members.tolist() for ring in found.copies] == [list(range(10))]
    consensus, every = cw.aggregate(votes), cw.aggregate(votes, collusion="ignore")
    assert consensus.score(truth) >= every.score(truth) + 0.03 and consensus.score(truth) >= 0.98
    assert "10 annotators with 25% of the votes always give the same answers" in consensus.notes[0]
    assert not any("same answers" in note for note in every.notes)
    diagnosis = cw.diagnose(votes)
    assert "10 annotators: 0 to drop" not in repr(diagnosis) and ": 0 to drop" in repr(diagnosis)
    assert "Too few votes" not in str(diagnosis)
    assert "same answers" in str(diagnosis) or "same mistakes" in str(diagnosis)


@pytest.mark.parametrize(("skill", "accounts"), [(0.8, 2), (0.8, 4), (0.97, 10)])
def test_few_accounts_and_those_who_know_keep_their_votes(skill, accounts):
    votes, _ = several_accounts(20, skill, accounts)
    assert find_colluders(votes).copies == []
    assert np.array_equal(cw.aggregate(votes).posterior, cw.aggregate(votes, collusion="ignore").posterior)


def test_who_agrees_with_a_camp_is_not_dropped_on_the_word_of_the_other():
    """Of two camps of half each, votes do not show which is right: six honest ones were to be dropped."""
    rng = np.random.default_rng(0)
    truth, p = rng.integers(0, 2, 300), rng.uniform(0.65, 0.9, 40)
    label = np.where(rng.random((300, 40)) < p, truth[:, None], 1 - truth[:, None])
    for first in (0, 10):
        script = np.where(rng.random(300) < 0.9, 1 - truth, truth)
        label[:, first : first + 10] = script[:, None]
    item, who = np.nonzero(rng.random((300, 40)) < 0.5)
    votes = cw.Votes.from_codes(item, who, label[item, who], items=range(300), annotators=range(40), classes=[0, 1])
    assert find_rings(votes) and ": 0 to drop" in repr(cw.diagnose(votes))


@pytest.mark.parametrize("seed", [2, 3])
def test_those_who_know_are_no_ring_among_many_who_err_together(seed):
    rng = np.random.default_rng(seed)
    truth, misled = rng.integers(0, 2, 400), rng.random(400) < 0.35
    p = np.tile(np.where(misled, 0.2, 0.85)[:, None], 40)
    p[:, :6] = 0.97
    votes = cw.Votes.from_dense(np.where(rng.random((400, 40)) < p, truth[:, None], 1 - truth[:, None]))
    pairs, outside = PairAgreement.of(votes), np.arange(40) >= 6
    skill = pairs.skills(outside)
    g, room = pairs.seen(outside, skill)
    own = float((g * room)[:6].sum() / room[:6].sum())
    assert pairs.inside(np.arange(6)) - own > MARGIN  # the gap of a ring
    assert pairs.along(np.arange(6), outside, own, skill)
    assert find_rings(votes) == []


@pytest.mark.parametrize("seed", [3, 5])
def test_those_who_split_on_the_same_items_judge_and_do_not_copy(seed):
    """Most are misled by what an item says, as LLM judges are; the few who are not contradict them as a ring does."""
    rng, M, knows = np.random.default_rng(seed), 40, np.arange(40) < 12
    truth, ease = rng.integers(0, 2, 300), rng.normal(1.5, 1.5, 300)[:, None]
    right = 1.0 / (1.0 + np.exp(-np.where(knows, 1.0, -0.6) * ease))
    misled = cw.Votes.from_dense(np.where(rng.random((300, M)) < right, truth[:, None], 1 - truth[:, None]))
    pairs, members = PairAgreement.of(misled), np.flatnonzero(knows)
    skill = pairs.skills(~knows)
    g, room = pairs.seen(~knows, skill)
    own = float((g * room)[members].sum() / room[members].sum())
    assert pairs.inside(members) - own > MARGIN and not pairs.along(members, ~knows, own, skill)
    assert pairs.judged(members, ~knows)
    assert find_rings(misled) == []
    script = np.where(rng.random(300) < 0.9, 1 - truth, truth)
    copied = with_ring(misled, members, script, 0.9, seed)
    copied = replace(copied, label=np.where(knows[copied.annotator], copied.label, 1 - copied.label))
    assert [ring.members.tolist() for ring in find_rings(copied)] == [members.tolist()]
    own_answers = rng.random(300) < 0.2  # on a fifth of the items members answer for themselves
    partly = np.where(own_answers[misled.item] & knows[misled.annotator], misled.label, copied.label)
    assert [ring.members.tolist() for ring in find_rings(replace(copied, label=partly))] == [members.tolist()]


def test_many_pairs_on_few_items_are_few_witnesses():
    """Fourteen of 60 judges know; on half of fifty items most others are wrong. A ring is seen on as few items."""
    accused = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth, misled, hard = rng.integers(0, 2, 50), rng.random(50) < 0.5, rng.normal(0.0, 1.0, 50)
        p = np.where(misled, 0.3, 0.75)[:, None] * np.ones((50, 60))
        p[:, :14] = 1.0 / (1.0 + np.exp(hard - 3.2))[:, None]
        votes = cw.Votes.from_dense(np.where(rng.random((50, 60)) < p, truth[:, None], 1 - truth[:, None]))
        accused += bool(find_rings(votes))
    assert accused <= 1  # of the 8, 5 where every pair of votes was a witness
    members = np.arange(14)
    copied = with_ring(votes, members, np.where(rng.random(50) < 0.9, 1 - votes.shares().argmax(axis=1), truth))
    assert [ring.members.tolist() for ring in find_rings(copied)] == [members.tolist()]


def test_the_error_of_the_gap_is_that_of_resampled_items():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 200)
    table = np.where(rng.random((200, 30)) < 0.7, truth[:, None], rng.integers(0, 3, (200, 30)))
    table[:, :6] = np.where(rng.random((200, 6)) < 0.85, rng.integers(0, 3, (200, 1)), table[:, :6])
    members, outside, gaps = np.arange(6), np.arange(30) >= 6, []
    pairs = PairAgreement.of(cw.Votes.from_dense(table))
    skill = pairs.skills(outside)
    for _ in range(200):
        drawn = PairAgreement.of(cw.Votes.from_dense(table[rng.integers(0, 200, 200)]))
        g, room = drawn.seen(outside, skill)
        gaps.append(drawn.inside(members) - (g * room)[members].sum() / room[members].sum())
    assert 0.8 < pairs.gap_error(members, outside, skill) / np.std(gaps) < 1.25


def test_sub_samples_of_honest_crowds_are_not_accused(real):
    votes = cw.read_dataset(real("trec2011_vuurens"), on_duplicate="all").votes
    known = np.flatnonzero(votes.truth >= 0)
    assert find_rings(votes[known]) == []  # nine who are right on 94 to 100 % were taken for a ring
    rng = np.random.default_rng(0)
    parts = [votes[np.sort(rng.choice(known, 350, replace=False))] for _ in range(2)]
    for name in ("rte", "dog", "weather_amt"):
        crowd = cw.read_dataset(real(name), on_duplicate="all").votes
        parts += [crowd[np.sort(rng.choice(len(crowd), 200, replace=False))] for _ in range(2)]
    judges = cw.read_dataset(real("llmbar_judges"), on_duplicate="all").votes
    contested = np.argsort(judges.shares().max(axis=1), kind="stable")[: len(judges) // 2]
    parts += [judges[contested], *(judges[np.sort(rng.choice(contested, 100, replace=False))] for _ in range(2))]
    few = (np.random.default_rng([seed, 50]).choice(len(judges), 50, replace=False) for seed in (0, 14, 22, 29))
    parts += [judges[np.sort(rows)] for rows in few]  # the judges who are right were taken for a ring
    assert [part for part in parts if find_rings(part)] == []


def test_timestamps_show_who_was_copied():
    sim = cw.simulate.colluders(300, n_annotators=20, share=0.25, random_state=1)
    ring = np.flatnonzero(sim.parameters["colluders"])
    time = np.where(sim.votes.annotator == ring[2], 0.0, 1.0 + sim.votes.annotator)
    found = find_colluders(replace(sim.votes, timestamp=time))
    assert found.first[ring[2]] == 1.0
    assert np.all(found.first[ring] >= 0.0) and int(np.nanargmax(found.first)) == ring[2]
    assert np.isnan(np.delete(found.first, ring)).all()
    assert np.isnan(find_colluders(sim.votes).first).all()


def test_several_labels_of_an_annotator_on_an_item_do_no_harm():
    rng = np.random.default_rng(0)
    item, who = np.repeat(np.arange(200), 16), np.tile(np.repeat(np.arange(8), 2), 200)
    votes = cw.Votes.from_codes(
        item, who, rng.integers(0, 4, 3200), items=np.arange(200), annotators=np.arange(8), classes=np.arange(4),
        on_duplicate="all",
    )  # fmt: skip
    for _ in range(3):  # answers to an item counted twice once wrote over the table of votes
        assert not cw.trust.find_groups(votes).flagged.any()
        assert not find_colluders(votes).flagged.any()


def test_large_crowds_are_looked_at_and_wrong_names_are_refused():
    sim = cw.simulate.colluders(1500, n_annotators=600, share=0.1, votes_per_item=60, random_state=0)
    found = find_colluders(sim.votes)
    assert found.flagged.any() and not found.flagged[~sim.parameters["colluders"]].any()
    small = cw.simulate.one_coin(30, n_annotators=5, random_state=0).votes
    with pytest.raises(InputError, match="nobody"):
        find_colluders(small, trusted="nobody")
    with pytest.raises(ParameterError, match="level"):
        find_colluders(small, level=1.0)
    assert not find_colluders(small).flagged.any()


# -------------------------------------------------------------------- shared mistakes


def test_a_ring_shares_mistakes():
    sim = cw.simulate.colluders(800, n_annotators=20, share=0.25, random_state=0)
    ring = sim.parameters["colluders"]
    found = shared_mistakes(sim.votes, cw.aggregate(sim.votes, "dawid-skene"))
    assert np.array_equal(found.flagged, ring)
    assert len(found.groups) == 1
    assert set(found.groups[0]) == set(sim.votes.annotators[ring].tolist())
    assert len(found.edges) == ring.sum() * (ring.sum() - 1) // 2
    assert not found.captured
    assert (found.score[ring] > 0.9).all() and (found.score[~ring] < 0.5).all()


def test_judges_that_share_errors():
    """Six judges, many items, and two of them are nearly one: these, where they err at all, and nobody else."""
    exact = 0
    for seed in range(6):
        sim = cw.simulate.groups(
            1500, n_annotators=6, n_classes=2, n_groups=5, group_diagonal=8, member_diagonal=20, random_state=seed
        )
        group = sim.parameters["group"]
        twins = sim.votes.annotators[np.bincount(group)[group] > 1].tolist()
        found = shared_mistakes(sim.votes, cw.aggregate(sim.votes, "dawid-skene"))
        assert all(set(edge[:2]) == set(twins) for edge in found.edges)
        exact += found.groups == [twins]
        if found.groups:
            table = found.to_frame(kind="dict")
            assert table["partner"][found.names == twins[0]] == twins[1]
            pairs = found.to_frame("pairs", kind="dict")
            assert pairs["found"].tolist() == [True] + [False] * 14
            assert pairs["low"][0] > 0.2
    assert exact >= 5


def test_a_captured_consensus_is_noticed():
    sim = cw.simulate.colluders(600, n_annotators=20, share=0.4, random_state=0)
    found = shared_mistakes(sim.votes, cw.aggregate(sim.votes, "dawid-skene"))
    assert found.captured
    without = sim.votes.without(find_colluders(sim.votes).annotators)
    again = shared_mistakes(without, cw.aggregate(without, "dawid-skene"))
    assert not again.flagged.any()


def test_p_values_are_valid_where_items_are_hard():
    """Under honesty p is stochastically no smaller than uniform, with few annotators (no middle to lean on)."""
    p = []
    for seed in range(20):
        votes = cw.simulate.difficulty(500, n_annotators=6, ability=(1.5, 0.5), random_state=seed).votes
        p.append(shared_mistakes(votes, cw.aggregate(votes, "dawid-skene")).p_value)
    p = np.concatenate(p)
    assert (p <= 0.01).mean() <= 0.03
    assert (p <= 0.1).mean() <= 0.14


def test_moments_by_enumeration():
    """Mean and variance of X, and X itself, for one pair: a sum over the states and labels, by hand."""
    sim = cw.simulate.dirichlet(40, n_annotators=4, n_classes=2, random_state=0)
    votes, K, S = sim.votes, 2, 2 * len(null.EASE)
    log_p, _, logit = null.null_model(votes, votes.shares(), np.ones(4))
    found = null.moments(votes, log_p, logit, np.ones(4), np.arange(40))
    assert found["left"].tolist() == [0, 0, 0, 1, 1, 2] and found["right"].tolist() == [1, 2, 3, 2, 3, 3]
    p = np.exp(log_p).reshape(4, K, S)
    said = votes.label.reshape(40, 4)
    shared = mean = variance = mistakes = 0.0
    for n in range(40):
        rho = np.exp(logit[n])
        for m in (0, 1):
            rho = rho / p[m, said[n, m]]
        rho /= rho.sum()
        wrong = [1.0 - rho[k * S // 2 : (k + 1) * S // 2].sum() for k in range(K)]
        outcomes = [
            (wrong[a] if a == b else 0.0, (rho * p[0, a] * p[1, b]).sum())
            for a, b in itertools.product(range(K), repeat=2)
        ]
        first = sum(x * w for x, w in outcomes)
        mean += first
        variance += sum(x * x * w for x, w in outcomes) - first**2
        shared += wrong[said[n, 0]] if said[n, 0] == said[n, 1] else 0.0
        mistakes += wrong[said[n, 0]] + wrong[said[n, 1]]
    got = [found[name][0] for name in ("shared", "expected", "variance", "mistakes")]
    assert np.allclose(got, [shared, mean, variance, mistakes])


def test_the_tail_is_poisson_where_mean_and_variance_agree():
    from scipy.stats import poisson

    t, mean = np.array([1.0, 3.0, 9.0]), np.array([0.5, 2.0, 4.0])
    assert np.allclose(null.tail(t, mean, mean), poisson.sf(t - 1, mean))
    assert null.tail(np.zeros(1), np.ones(1), np.ones(1)) == 1.0


def test_adjusted_p_values_are_benjamini_hochbergs():
    p = np.random.default_rng(0).random(40) ** 3
    assert np.allclose(adjusted(p), false_discovery_control(p))


def test_pairs_of_votes_are_all_pairs():
    indptr = np.array([0, 3, 3, 4, 9])
    first, second = paired_votes(indptr, np.array([0, 2, 3]))
    expected = [pair for lo, hi in ((0, 3), (3, 4), (4, 9)) for pair in itertools.combinations(range(lo, hi), 2)]
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == expected


def test_a_sample_of_the_items_finds_them_too_and_is_seeded():
    sim = cw.simulate.colluders(1500, n_annotators=20, share=0.25, random_state=0)
    consensus = cw.aggregate(sim.votes, "dawid-skene")
    one, two = (shared_mistakes(sim.votes, consensus, max_pairs=60_000, random_state=3) for _ in range(2))
    assert np.array_equal(one.p_value, two.p_value)
    assert one.items.max() < 400
    assert set(one.groups[0]) == set(sim.votes.annotators[sim.parameters["colluders"]].tolist())


def test_sparse_crowd_without_pairs_and_wrong_input():
    votes = cw.Votes.from_records([("a", "x", 0), ("b", "y", 1), ("c", "z", 0)])
    found = shared_mistakes(votes, votes.shares())
    assert found.to_frame("pairs").height == 0
    assert not found.flagged.any() and found.groups == [] and found.edges == []
    with pytest.raises(InputError, match="these very votes"):
        shared_mistakes(votes, np.ones((2, 2)))
    with pytest.raises(ParameterError, match="level"):
        shared_mistakes(votes, votes.shares(), level=0)
    with pytest.raises(ParameterError, match="max_pairs"):
        shared_mistakes(votes, votes.shares(), max_pairs=0)
    with pytest.raises(ParameterError, match="Unknown table"):
        found.to_frame("graph")


def test_pairs_of_votes_are_worked_on_in_bounded_memory(monkeypatch):
    """In small pieces the sums are the same; with 50 classes a piece has 15,000 cells for every pair of votes."""
    import tracemalloc

    sim = cw.simulate.dirichlet(60, n_annotators=9, n_classes=4, votes_per_item=5, random_state=0)
    weight, rows = np.ones(9), np.arange(60)
    log_p, _, logit = null.null_model(sim.votes, sim.votes.shares(), weight)
    whole = null.moments(sim.votes, log_p, logit, weight, rows)
    monkeypatch.setattr(null, "CELLS", 96 * 7)
    monkeypatch.setattr(null, "CHUNK", 2)
    pieces = null.moments(sim.votes, log_p, logit, weight, rows)
    assert all(np.allclose(pieces[name], whole[name], rtol=1e-12, atol=0.0) for name in whole)
    monkeypatch.undo()

    votes = cw.simulate.dirichlet(600, n_annotators=20, n_classes=50, votes_per_item=5, random_state=0).votes
    S = 50 * len(null.EASE)
    rng = np.random.default_rng(0)
    log_p, logit = np.log(rng.dirichlet(np.ones(50), (20, S))).transpose(0, 2, 1), rng.normal(size=(600, S))
    tracemalloc.start()
    null.moments(votes, np.ascontiguousarray(log_p).reshape(1000, S), logit, np.ones(20), np.arange(600))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 2**20  # 6,000 pairs at once would be 1.4 GB


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_few_who_know_among_many_who_guess_are_no_ring(seed: int) -> None:
    crowd = cw.simulate.hammer_spammer(
        300, n_annotators=20, n_classes=3, accuracy=0.95, share=0.3, votes_per_item=8, random_state=seed
    )
    assert not find_rings(crowd.votes)
    assert cw.aggregate(crowd.votes).score(crowd.truth) > 0.9


def ring_of_grades(seed: int = 0) -> tuple[cw.Votes, np.ndarray, np.ndarray]:
    """Grades of 30 annotators; ten of them give the same wrong ones."""
    sim = cw.simulate.ordinal(300, n_annotators=30, votes_per_item=12, random_state=seed)
    rng, K = np.random.default_rng(seed), sim.votes.n_classes
    script = (sim.truth + rng.integers(1, K, 300)) % K
    ring = np.arange(30) < 10
    label = np.where(ring[sim.votes.annotator], script[sim.votes.item], sim.votes.label).astype(sim.votes.label.dtype)
    return replace(sim.votes, label=label), ring, sim.truth


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rings_count_as_one_vote_among_grades_and_in_parts():
    from crowdwise.core.vote_parts import VotePart, VoteParts

    votes, ring, truth = ring_of_grades()
    honest = cw.aggregate(votes.select(~ring[votes.annotator]), "ordinal-dawid-skene").score(truth)
    protected = cw.aggregate(votes, "ordinal-dawid-skene")
    assert protected.notes[0].startswith("10 annotators with")
    assert protected.score(truth) > honest - 0.02
    assert cw.aggregate(votes, "ordinal-dawid-skene", collusion="ignore").score(truth) < protected.score(truth)
    whole = cw.aggregate(votes, "auto")
    parts = VoteParts.of([VotePart(votes[np.arange(120)]), VotePart(votes[np.arange(120, 300)])])
    model = cw.Auto()
    found = model.fit_in_parts(parts)
    assert found.notes[0] == whole.notes[0]
    assert np.array_equal(np.sort(model.rings_[0].members), np.flatnonzero(ring))
    assert np.allclose(found.confusion, whole.confusion)
    assert not cw.Auto(collusion="ignore").fit_in_parts(parts).notes[0].startswith("10 annotators")
    assert 0.4 < parts.sample(1800).n_votes / votes.n_votes < 0.6  # of very many votes, a share of the items


@pytest.mark.parametrize("begins", [0.4, 0.5, 0.7])
def test_a_ring_that_is_honest_for_a_while_is_seen_in_its_later_votes(begins):
    sim = cw.simulate.dirichlet(600, n_annotators=30, n_classes=3, votes_per_item=8, random_state=1)
    rng, ring = np.random.default_rng(1), np.arange(30) < 9
    script = (sim.truth + rng.integers(1, 3, 600)) % 3
    attack = ring[sim.votes.annotator] & (sim.votes.item >= begins * 600)
    label = np.where(attack, script[sim.votes.item], sim.votes.label).astype(sim.votes.label.dtype)
    votes = replace(sim.votes, label=label, timestamp=sim.votes.item.astype(float))
    found = find_colluders(votes)
    assert np.array_equal(found.flagged, ring)
    (only,) = found.rings
    assert only.since is not None and abs(only.since / 600 - begins) < 0.21
    assert found.score[ring].min() > 0.5
    weight = discounted(votes, found.rings).weights
    assert (weight[votes.item < only.since] == 1.0).all()
    assert weight[ring[votes.annotator] & (votes.item >= only.since)].mean() < 0.7
    assert discounted(sim.votes, found.rings).weights[ring[votes.annotator]].mean() < 0.7  # new votes, without times
    assert "in their later votes" in cw.aggregate(votes).notes[0]
    honest = replace(sim.votes, timestamp=sim.votes.item.astype(float))
    assert not find_rings(honest)
    parts = VoteParts.of([votes[np.arange(250)], votes[np.arange(250, 600)]])
    in_parts = cw.Auto()
    in_parts.fit_in_parts(parts)
    assert [(ring.members.tolist(), ring.since) for ring in in_parts.rings_] == [(only.members.tolist(), only.since)]


@pytest.mark.parametrize("unit", [None, "s"])
def test_votes_of_a_ring_without_a_time_count_less_too(unit):
    sim = cw.simulate.colluders(400, n_annotators=20, n_classes=3, share=0.2, p_corr=0.95, random_state=0)
    time = np.where(sim.votes.item % 3 == 0, np.nan, sim.votes.item.astype(float))
    if unit:
        time = np.where(np.isnan(time), np.datetime64("NaT"), np.nan_to_num(time).astype(f"datetime64[{unit}]"))
    plain, timed = (discounted(votes, find_rings(votes)) for votes in (sim.votes, replace(sim.votes, timestamp=time)))
    assert plain.weights.min() < 1.0
    assert np.array_equal(timed.weights, plain.weights)


def test_a_large_ring_in_a_weak_crowd_is_seen_by_one_trusted_annotator():
    """16 of 39 copy mistakes, as in the tutorial's test on bluebird; while a candidate grows, the rest of the ring is
    not taken for the others."""
    rng = np.random.default_rng(0)
    truth, accuracy = rng.integers(0, 2, 108), rng.uniform(0.5, 0.8, 39)
    said = np.where(rng.random((108, 39)) < accuracy, truth[:, None], 1 - truth[:, None])
    script = np.where(rng.random(108) < 0.9, 1 - truth, truth)
    said[:, :16] = script[:, None]
    found = find_colluders(cw.Votes.from_dense(said), trusted=16 + int(accuracy[16:].argmax()))
    assert np.array_equal(found.flagged, np.arange(39) < 16)


@pytest.mark.parametrize("skill", [0.0, 0.15, 0.3])
def test_those_who_know_among_many_who_guess_are_no_copies(skill):
    """They always agree, as copies do, and the others know too little to tell."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        truth, knows = rng.integers(0, 2, 300), np.append(np.ones(15), np.full(15, skill))
        table = np.where(rng.random((300, 30)) < knows, truth[:, None], rng.integers(0, 2, (300, 30)))
        table[rng.random(table.shape) > 0.2] = -1
        assert find_colluders(cw.Votes.from_dense(table, missing=-1)).copies == []
