"""The default is within a point of the majority on small crowds of each regime, with classes equally common or not."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.core.vote_parts import VotePart, VoteParts

POINT = 0.01
SEEDS = range(6)
PRIORS = {"even": (0.5, 0.5), "rare": (0.9, 0.1), "three": (0.7, 0.2, 0.1)}


def votes_of(table, K):
    return cw.Votes.from_dense(table, missing=-1, classes=list(range(K)))


def panel(rng, prior, size=7):
    """Judges who answer everything and find the same items hard, on which they fall for the same wrong class."""
    K, N = len(prior), 250
    truth = rng.choice(K, N, p=prior)
    hard, trap = rng.normal(0.0, 1.2, N), (truth + rng.integers(1, K, N)) % K
    right = rng.random((N, size)) < 1.0 / (1.0 + np.exp(hard[:, None] - rng.normal(2.0, 0.7, size)))
    return np.where(right, truth[:, None], trap[:, None]), truth


def rules(rng, prior, size=12):
    """Rules speak on a part of their class, and on few items of the others."""
    K, N = len(prior), 1200
    truth, own = rng.choice(K, N, p=prior), np.arange(size) % K
    speaks = np.where(truth[:, None] == own, rng.uniform(0.05, 0.4, size), rng.uniform(0.005, 0.05, size))
    return np.where(rng.random((N, size)) < speaks, own, -1), truth


def people(rng, prior, size=25):
    """Each item has three of them; some of them always give one answer."""
    table, truth = panel(rng, prior, size)
    table[:, ::6] = 0
    return np.where(rng.permuted(np.tile(np.arange(size), (len(truth), 1)), axis=1) < 3, table, -1), truth


def quiz(rng, prior, size=20):
    """Options mean nothing across items; those who do not know take a favourite distractor, or guess."""
    table, truth = panel(rng, np.full(4, 0.25), size)
    return table[:40], truth[:40]


def alone(rng, prior):
    """One vote for each item."""
    table, truth = people(rng, prior)
    first = (table >= 0) & ((table >= 0).cumsum(axis=1) == 1)
    return np.where(first, table, -1), truth


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("make", [people, panel, rules, quiz, alone])
def test_no_regime_loses_to_the_majority(make, prior):
    gain, sure = [], []
    for seed in SEEDS:
        table, truth = make(np.random.default_rng(seed), PRIORS[prior])
        votes = votes_of(table, 4 if make is quiz else len(PRIORS[prior]))
        voted = np.where((table >= 0).any(axis=1), truth, -1)
        found = cw.aggregate(votes, exchangeable=make is quiz)
        gain.append(found.score(voted) - cw.aggregate(votes, "majority").score(voted))
        top = found.posterior[voted >= 0].max(axis=1)
        sure.append(top.mean() - found.score(voted))
    assert np.mean(gain) > -POINT
    assert np.mean(sure) < 0.1


def test_a_rule_never_overrules_unanimous_votes_and_the_agreed_ones_win():
    """Two rules for each class, of which one of the second is mostly contradicted; one item of each with a tie."""
    rows = [[0, 0, -1, -1]] * 40 + [[-1, -1, 1, 1]] * 20 + [[0, 0, -1, 1]] * 20 + [[0, -1, -1, -1], [-1, -1, -1, 1]]
    votes = votes_of(np.array([*rows, [0, -1, 1, -1], [0, -1, -1, 1]]), 2)
    found = cw.aggregate(votes, abstains=True)
    assert found.label_codes[[0, 40, 80, 81]].tolist() == [0, 1, 0, 1]
    assert found.posterior[82, 1] > found.posterior[83, 1]
    in_parts = []
    parts = VoteParts.of([votes[:50], votes[50:]])
    cw.Auto(abstains=True).fit_in_parts(parts, each=lambda part, codes, posterior: in_parts.append(posterior.copy()))
    assert np.allclose(np.concatenate(in_parts), found.posterior)


def test_models_beside_more_rules_are_no_people():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        table, truth = rules(rng, (0.7, 0.3))
        judged = np.where(rng.random((len(truth), 6)) < 0.7, truth[:, None], 1 - truth[:, None])
        votes = votes_of(np.column_stack([table, judged]), 2)
        found = cw.aggregate(votes)
        assert found.dependence.kind == "rules"
        assert found.score(truth) > cw.aggregate(votes, "majority").score(truth) - POINT
        assert cw.aggregate(votes_of(np.column_stack([table[:, :6], judged]), 2)).dependence.kind == "people"


@pytest.mark.parametrize("per_item", [1, 3, 5])
@pytest.mark.parametrize("prior", ["even", "rare"])
def test_rules_beside_people_count_where_they_speak(prior, per_item):
    """The matrix of who always says the same teaches nothing: as people these crowds lost up to 12 points."""
    gain = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        table, truth = rules(rng, PRIORS[prior])
        asked = rng.permuted(np.tile(np.arange(30), (len(truth), 1)), axis=1) < per_item
        right = rng.random(asked.shape) < rng.normal(0.7, 0.08, 30)
        answers = np.where(asked, np.where(right, truth[:, None], 1 - truth[:, None]), -1)
        votes = votes_of(np.column_stack([table, answers]), 2)
        found = cw.aggregate(votes)
        assert found.dependence.kind == "rules"
        gain.append(found.score(truth) - cw.aggregate(votes, "majority").score(truth))
    assert np.mean(gain) > 0.01


@pytest.mark.parametrize("labels", [[0] * 5, [1] * 5, [0, 1, 2, 0, 1]])
def test_bots_that_always_give_one_answer_are_no_rules(labels):
    """Five of them have a third of the votes; as rules, which agree with each other, they cost up to 7 points."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        table, truth = people(rng, PRIORS["three"], 36)
        bots = np.where(rng.random((len(truth), 5)) < 0.35, labels, -1)
        votes = votes_of(np.column_stack([table, bots]), 3)
        found = cw.aggregate(votes)
        assert found.dependence.kind == cw.Auto().fit_in_parts(VoteParts.of([votes[:99], votes[99:]])).dependence.kind
        assert found.dependence.kind == "people"
        assert found.score(truth) > cw.aggregate(votes, "majority").score(truth)
        assert cw.aggregate(votes, abstains=True).dependence.kind == "rules"
    alone = votes_of(np.where(rng.random((200, 6)) < 0.3, np.array([0, 0, 0, 0, 0, 1]), -1), 2)
    assert cw.aggregate(alone).dependence.kind == "rules"  # no others vote


def test_gold_labels_of_the_hardest_items_correct_no_others():
    """Eight models that give the same draw on most items: fifty items with the narrowest votes, most labelled wrong,
    turned the labels of the rest (86 % right, 33 with them)."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        truth, common = rng.choice(2, 200, p=[0.7, 0.3]), rng.random((200, 1)) < 0.75
        own = rng.random((200, 8)) < rng.normal(0.7, 0.1, 8)
        table = np.where(np.where(rng.random((200, 8)) < 0.6, common, own), truth[:, None], 1 - truth[:, None])
        votes = votes_of(table, 2)
        narrow = np.argsort(votes.shares().max(axis=1), kind="stable")[:50]
        gold = np.where(np.isin(np.arange(200), narrow), truth, -1)
        free, found = cw.aggregate(votes), cw.aggregate(votes, gold=gold)
        rest = gold < 0
        assert np.array_equal(found.posterior[rest], free.posterior[rest])
        assert (found.label_codes[~rest] == truth[~rest]).all()
        assert any("gold labels of items drawn at random would" in note for note in found.notes)
        halves = [VotePart(votes[half], gold[half].astype(np.int32)) for half in (slice(0, 99), slice(99, 200))]
        parts = cw.Auto().fit_in_parts(VoteParts.of(halves))
        assert parts.dependence == found.dependence and parts.notes == found.notes[: len(parts.notes)]
        drawn = np.where(rng.random(200) < 0.25, truth, -1)
        assert cw.aggregate(votes, gold=drawn).dependence.source == "gold"


def test_a_rule_for_all_that_is_left_is_pointed_out():
    table, _ = rules(np.random.default_rng(0), (0.5, 0.5))
    without, wide = votes_of(table, 2), votes_of(np.column_stack([table, np.zeros(len(table), dtype=int)]), 2)
    assert not any(note.startswith("One label on nearly every item") for note in cw.aggregate(without).notes)
    found = cw.aggregate(wide)
    assert [note[:35] for note in found.notes if "nearly every item" in note] == ["One label on nearly every item: 12."]
    parts = VoteParts.of([wide[:500], wide[500:]])
    assert cw.Auto().fit_in_parts(parts).notes[:2] == found.notes[:2]


def beside_people(seed, skill, together, models=4, people=0.72):
    """Three people on each of 400 items, and models that answer all, of which so many answers are the same draw."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, 400, p=[0.4, 0.35, 0.25])

    def said(right):
        wrong = (truth[:, None] + rng.integers(1, 3, (400, len(right)))) % 3
        return np.where(rng.random(wrong.shape) < right, truth[:, None], wrong)

    table = said(np.clip(rng.normal(people, 0.1, 30), 0.4, 0.98))
    table = np.where(rng.permuted(np.tile(np.arange(30), (400, 1)), axis=1) < 3, table, -1)
    own = np.where(rng.random((400, models)) < together, said(np.array([skill])), said(np.full(models, skill)))
    return votes_of(np.column_stack([table, own]), 3), truth


@pytest.mark.parametrize("together", [0.6, 0.85])
def test_similar_models_that_answer_everything_do_not_capture_people(together):
    gain = []
    for seed in range(3):
        votes, truth = beside_people(seed, 0.6, together)
        found, every = cw.aggregate(votes), cw.aggregate(votes, collusion="ignore")
        gain.append(found.score(truth) - max(every.score(truth), cw.aggregate(votes, "majority").score(truth)))
        assert found.notes[0].startswith("4 annotators answered nearly every item and err together")
        accuracy = (votes.label == truth[votes.item])[votes.annotator >= 30].mean()
        assert np.abs(found.accuracy()[0][30:] - accuracy).max() < 0.1
        assert not cw.trust.find_colluders(votes).flagged.any()
        parts = cw.Auto().fit_in_parts(VoteParts.of([votes[:150], votes[150:]]))
        assert parts.notes[0] == found.notes[0] and parts.score(truth) == found.score(truth)
    assert min(gain) > 0.02


@pytest.mark.parametrize(("skill", "together"), [(0.6, 0.0), (0.75, 0.0), (0.9, 0.3)])
def test_who_answers_everything_and_errs_alone_or_knows_better_has_every_vote(skill, together):
    for seed in range(3):
        votes, _ = beside_people(seed, skill, together)
        assert np.array_equal(cw.aggregate(votes).posterior, cw.aggregate(votes, collusion="ignore").posterior)
