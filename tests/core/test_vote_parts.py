"""Votes in parts: the same fit as on all votes at once, whatever the split."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.core import em
from crowdwise.core.vote_parts import VotePart, VoteParts, usual
from crowdwise.errors import InputError, LabelError, ParameterError

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
KEYS = [key for key, entry in registry.METHODS.items() if entry.load().in_parts]


LIMITS = {"max_iter": 40, "restarts": 0, "max_communities": 2, "max_clusters": 2}
"""Parameters of methods that have them, for a quick fit."""


def split(votes, gold=None, cuts=(0, 1, 1, 50, 51)):
    """Parts of very different sizes, one of them empty."""
    ends = [*cuts, len(votes)]
    return VoteParts.of([
        VotePart(votes[np.arange(lo, hi)], None if gold is None else gold[lo:hi])
        for lo, hi in pairwise(ends)
    ])  # fmt: skip


def posterior(found):
    """The posterior of all parts."""
    return np.concatenate([found.decision(part)[1] for part in found.parts])


def crowds():
    """Several votes per item; single ones; weights; an item with most of the votes and annotators of one part only."""
    plain = cw.simulate.dirichlet(200, n_annotators=12, n_classes=3, votes_per_item=4, random_state=0)
    yield "plain", plain.votes, plain.truth
    thin = cw.simulate.dirichlet(80, n_annotators=30, n_classes=2, votes_per_item=1, random_state=1)
    yield "single votes", thin.votes, thin.truth
    v = plain.votes
    weight = np.random.default_rng(2).uniform(0.1, 3.0, v.n_votes)
    names = {"items": v.items, "annotators": v.annotators, "classes": v.classes}
    yield "weights", cw.Votes.from_codes(v.item, v.annotator, v.label, weight=weight, **names), plain.truth
    rng = np.random.default_rng(3)
    item = np.concatenate([np.zeros(400, dtype=int), rng.integers(1, 90, 200)])
    who = np.concatenate([np.arange(400), rng.integers(0, 6, 200)])
    label = rng.integers(0, 3, 600)
    names = {"items": range(90), "annotators": range(400), "classes": range(3)}
    yield "one large item", cw.Votes.from_codes(item, who, label, on_duplicate="all", **names), rng.integers(0, 3, 90)


def test_the_methods_that_take_parts_are_those_that_say_so():
    parts = split(next(crowds())[1])
    for key, entry in registry.METHODS.items():
        if key not in KEYS and entry.answer_type == "votes":
            with pytest.raises(
                ParameterError, match=f"{key} needs all votes at once. Take a model whose class says in"
            ):
                registry.create(key, "votes").fit_in_parts(parts)
            named = f"{key} needs all votes at once. Methods that take votes in parts: {', '.join(KEYS)}."
            with pytest.raises(ParameterError, match=named):
                registry.create_in_parts(key)
    with pytest.raises(ParameterError, match="votes in parts need 'variational'"):
        cw.IBCC(inference="gibbs").fit_in_parts(parts)
    with pytest.raises(ParameterError, match="restarts=0"):
        cw.MACE().fit_in_parts(parts)
    with pytest.raises(InputError, match="none is given"):
        cw.GoldWeighted().fit_in_parts(parts)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("with_gold", [False, True])
def test_a_fit_in_parts_is_the_fit(key, with_gold):
    for name, votes, truth in crowds():
        gold = None
        if with_gold:
            gold = np.full(len(votes), -1, dtype=np.int32)
            gold[::7] = truth[::7]
        known = registry.METHODS[key].load()
        if known.needs_gold and not with_gold:
            continue
        params = {name: value for name, value in LIMITS.items() if name in known.parameters()}
        whole = registry.create(key, "votes", **params).fit(votes, gold).consensus_
        model = registry.create(key, "votes", **params)
        found = model.fit_in_parts(split(votes, gold))
        q = posterior(found)
        assert np.abs(q - whole.posterior).max() < 1e-8, (name, key)
        assert np.array_equal(found.labels, whole.labels) and np.array_equal(found.items, whole.items)
        mine, theirs = (c.to_frame("items", kind="polars") for c in (found, whole))
        assert mine.columns == theirs.columns[: len(mine.columns)] and mine["votes"].equals(theirs["votes"])
        assert np.array_equal(found.votes_per_annotator, whole.votes_per_annotator) and found.n_votes == whole.n_votes
        assert np.allclose(found.total, whole.total) and found.n_gold == whole.n_gold and found.n_items == whole.n_items
        assert np.allclose(found.agreement, whole.agreement, equal_nan=True)
        assert found.annotator_columns.keys() == whole.annotator_columns.keys()
        for column, values in whole.annotator_columns.items():
            if values.dtype.kind == "f":
                assert np.allclose(found.annotator_columns[column], values, atol=1e-6, equal_nan=True), (key, column)
        if found.expected_right is not None:
            assert np.allclose(found.expected_accuracy(), whole.expected_accuracy())
        assert np.allclose(found.prior, whole.prior) and found.iterations == whole.iterations
        assert np.isclose(found.dependence.rho, whole.dependence.rho)
        assert found.dependence.source == whole.dependence.source


def test_what_gold_says_is_summed_over_parts():
    _, votes, truth = next(crowds())
    gold = np.where(np.arange(len(votes)) % 3 == 0, truth, -1).astype(np.int32)
    q = votes.shares() * 0.9 + 0.1 / 3
    place = {item: n for n, item in enumerate(votes.items.tolist())}
    found = usual(split(votes, gold), lambda part: q[[place[item] for item in part.votes.items.tolist()]])
    whole = usual(VoteParts.whole(votes, gold), lambda _: q)
    assert found.source == whole.source == "gold" and found.n_gold == whole.n_gold == (gold >= 0).sum()
    assert np.allclose([found.power, *found.bias], [whole.power, *whole.bias])
    given = registry.create("dawid-skene", "votes", dependence=0.3).fit_in_parts(split(votes))
    assert (given.dependence.rho, given.dependence.source) == (0.3, "given")


def test_parts_are_loaded_one_at_a_time_and_again_for_every_pass():
    votes = next(crowds())[1]
    seen = []

    def load(lo, hi):
        def give():
            seen.append(lo)
            return votes[np.arange(lo, hi)]

        return give

    parts = VoteParts([load(0, 90), load(90, 200)], votes.annotators, votes.classes)
    assert parts.n_items == 200 and parts.n_votes == votes.n_votes and seen == [0, 90]
    part = em.Part.of(votes)
    start = em.statistics(part, votes.shares())
    params = cw.DawidSkene().fit(votes).params_
    summed, whole = parts.expect(params), part.expect(params)
    assert np.allclose(summed.counts, whole.counts) and np.isclose(summed.log_likelihood, whole.log_likelihood)
    assert np.allclose(parts.statistics(lambda p: p.votes.shares()).counts, start.counts)
    assert seen == [0, 90] * 3
    few = parts.where(lambda p: np.arange(len(p.votes)) < 5)
    assert few.n_items == 10


def test_what_does_not_fit_together_is_refused():
    votes = next(crowds())[1]
    other = cw.simulate.dirichlet(20, n_annotators=3, n_classes=3, random_state=0).votes
    with pytest.raises(InputError, match="parts share the names"):
        cw.DawidSkene().fit_in_parts(VoteParts.of([votes, other]))
    with pytest.raises(InputError, match="No parts"):
        VoteParts.of([])
    with pytest.raises(InputError, match="No votes"):
        cw.DawidSkene().fit_in_parts(VoteParts([], votes.annotators, votes.classes))
    with pytest.raises(ParameterError, match="leave out start"):
        cw.DawidSkene(restarts=2).fit_in_parts(split(votes))
    lone = cw.Votes.from_records([("a", "x", "u"), ("b", "x", "v")])
    with pytest.raises(InputError, match="single annotator"):
        cw.DawidSkene().fit_in_parts(VoteParts.of([lone]))
    same = cw.Votes.from_records([("a", "x", "u"), ("b", "y", "u")])
    with pytest.raises(LabelError, match="single class"):
        cw.DawidSkene().fit_in_parts(VoteParts.of([same]))


def test_auto_in_parts_reads_a_crowd_backwards_that_gold_shows_to_be_mostly_wrong():
    sim = cw.simulate.hammer_spammer(300, n_annotators=12, skill=0.25, spread=0.05, votes_per_item=8, random_state=0)
    gold = np.where(np.arange(300) < 40, sim.truth, -1).astype(np.int32)
    parts = VoteParts.of([VotePart(sim.votes[lo : lo + 100], gold[lo : lo + 100]) for lo in (0, 100, 200)])
    found, whole = cw.Auto().fit_in_parts(parts), cw.Auto().fit(sim.votes, gold).consensus_
    assert np.abs(posterior(found) - whole.posterior).max() < 1e-8 and whole.score(sim.truth) > 0.9
    assert found.notes[0] == whole.notes[0] and "most annotators are mostly wrong" in found.notes[0]


@pytest.mark.parametrize("key", ["auto", "majority", "dawid-skene"])
def test_the_accuracy_of_annotators_is_that_of_memory(key):
    for name, votes, truth in crowds():
        gold = np.full(len(votes), -1, dtype=np.int32)
        gold[::7] = truth[::7]
        whole = registry.create(key, "votes").fit(votes, gold).consensus_
        found = registry.create(key, "votes").fit_in_parts(split(votes, gold))
        assert (found.judged is None) == (key != "auto")
        for mine, theirs in zip(found.accuracy(), whole.accuracy(), strict=True):
            assert np.allclose(mine, theirs, atol=1e-8, equal_nan=True), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bluebird", "dog"])
def test_real_crowds_in_parts_are_those_in_one_piece(name, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    gold = np.where(np.arange(len(votes)) % 20 == 0, votes.truth, -1).astype(np.int32)
    bucket = np.random.default_rng(0).integers(0, 4, len(votes))
    rows = [np.flatnonzero(bucket == b) for b in range(4)]
    parts = VoteParts.of([VotePart(votes[at], gold[at]) for at in rows])
    for key in KEYS:
        known = registry.METHODS[key].load().parameters()
        params = {"restarts": 0} if "restarts" in known else {}
        whole = registry.create(key, "votes", **params).fit(votes, gold).consensus_
        found = registry.create(key, "votes", **params).fit_in_parts(parts)
        for at, (codes, q) in zip(rows, map(found.decision, parts), strict=True):
            assert np.abs(q - whole.posterior[at]).max() < 1e-8 and np.array_equal(codes, whole.label_codes[at]), key
