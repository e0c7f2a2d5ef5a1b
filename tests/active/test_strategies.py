"""Scores of items, annotators and pairs; the best batch; strategies and their constraints."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdwise as cw
from crowdwise.active import acquisition
from crowdwise.active.state import AskablePairs, State
from crowdwise.active.strategies import STRATEGIES, Strategy, assign, assign_pairs, find_strategy
from crowdwise.errors import InputError, ParameterError

RNG = np.random.default_rng
VALUES = get_args(acquisition.Value)


def state_of(n_items: int = 40, n_annotators: int = 8, **options: Any) -> State:
    crowd = cw.simulate.dirichlet(n_items, n_annotators=n_annotators, n_classes=3, votes_per_item=2, random_state=0)
    return State.of(cw.Online(cw.DawidSkene()).partial_fit(crowd.votes), **options)


def tables(C: int, A: int, K: int, seed: int) -> tuple[Any, Any]:
    rng = RNG(seed)
    return rng.dirichlet(np.ones(K), C), rng.dirichlet(np.ones(K), (A, K))


# -- scores ------------------------------------------------------------------------------------------------------------


def test_information_is_the_expected_fall_in_entropy() -> None:
    q, theta = tables(5, 4, 3, 0)
    got = acquisition.pair_values(q, theta, "information")
    for n, m in itertools.product(range(5), range(4)):
        joint = q[n][:, None] * theta[m]
        said = joint.sum(axis=0)
        after = sum(said[x] * -sum(p * np.log2(p) for p in joint[:, x] / said[x]) for x in range(3))
        assert got[n, m] == pytest.approx(-sum(p * np.log2(p) for p in q[n]) - after)


def test_error_reduction_is_the_expected_gain_of_the_best_class() -> None:
    q, theta = tables(5, 4, 3, 1)
    got = acquisition.pair_values(q, theta, "error-reduction")
    for n, m in itertools.product(range(5), range(4)):
        joint = q[n][:, None] * theta[m]
        assert got[n, m] == pytest.approx(sum(joint[:, x].max() for x in range(3)) - q[n].max())


def test_tables_larger_than_a_chunk_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    q, theta = tables(50, 7, 4, 2)
    whole = [acquisition.pair_values(q, theta, value) for value in VALUES]
    monkeypatch.setattr(acquisition, "CHUNK", 64)
    for value, expected in zip(VALUES, whole, strict=True):
        np.testing.assert_allclose(acquisition.pair_values(q, theta, value), expected)


def test_a_spammer_has_no_information_and_an_adversary_as_much_as_an_expert() -> None:
    q = np.array([[0.5, 0.5]])
    expert, adversary, spammer = [[0.9, 0.1], [0.1, 0.9]], [[0.1, 0.9], [0.9, 0.1]], [[0.7, 0.3], [0.7, 0.3]]
    gain = acquisition.pair_values(q, np.array([expert, adversary, spammer]), "information")[0]
    assert gain[0] == pytest.approx(gain[1])
    assert gain[2] == pytest.approx(0.0, abs=1e-12)


def test_items_in_the_order_of_doubt() -> None:
    q = np.array([[0.9, 0.05, 0.05], [0.4, 0.35, 0.25], [0.5, 0.5, 0.0]])
    order = {
        rule: np.argsort(-acquisition.item_scores(q, rule, RNG(0))).tolist() for rule in get_args(acquisition.ItemRule)
    }
    assert order["entropy"] == order["least-confident"] == [1, 2, 0]
    assert order["margin"] == [2, 1, 0]


def test_accuracy_of_an_annotator_is_that_of_draws() -> None:
    rng = RNG(0)
    dirichlet = rng.uniform(0.5, 8.0, (4, 3, 3))
    prior = np.array([0.5, 0.3, 0.2])
    draws = np.array([np.einsum("mkk->mk", acquisition.draw(dirichlet, rng)) @ prior for _ in range(20_000)])
    mean, sd = acquisition.accuracy(dirichlet, prior)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.01)
    np.testing.assert_allclose(draws.std(axis=0), sd, atol=0.01)


def test_epsilon_follows_the_tutorial() -> None:
    assert [acquisition.epsilon(t) for t in (0, 99, 100, 1000)] == [0.5, 0.5, 0.05, 0.05]


# -- the best batch ----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_the_batch_is_the_best_there_is(seed: int, C: int, A: int, n: int) -> None:
    rng = RNG(seed)
    value = rng.random((C, A))
    value[rng.random((C, A)) < 0.25] = -np.inf
    capacity = rng.integers(0, 3, A).astype(float)
    row, column = assign(value, capacity, n)
    assert len(set(row.tolist())) == len(row) <= n
    assert (np.bincount(column, minlength=A) <= capacity).all()
    assert np.isfinite(value[row, column]).all()
    best = (0, 0.0)
    for choice in itertools.product(range(-1, A), repeat=C):  # as many pairs as can be, then the largest sum
        pairs = [(c, a) for c, a in enumerate(choice) if a >= 0]
        fits = len(pairs) <= n and all(np.isfinite(value[p]) for p in pairs)
        if fits and all(sum(a == b for _, a in pairs) <= capacity[b] for b in range(A)):
            best = max(best, (len(pairs), float(sum(value[p] for p in pairs))))
    assert len(row) == best[0]
    assert value[row, column].sum() == pytest.approx(best[1])


def test_many_slots_are_thinned_out() -> None:
    value = RNG(0).random((40, 200))
    row, column = assign(value, np.full(200, 3.0), 40)
    assert len(row) == 40
    assert value[row, column].mean() > 0.97
    assert (np.bincount(column) <= 3).all()


def test_large_problems_are_solved_nearly_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = RNG(0)
    value = rng.random((60, 12)) + rng.random(12)  # some are liked by all, and have room for few
    value[rng.random((60, 12)) < 0.2] = -np.inf
    capacity = rng.integers(0, 5, 12).astype(float)
    exact = assign(value, capacity, 20)
    monkeypatch.setattr("crowdwise.active.strategies.EXACT", 0)
    row, column = assign(value, capacity, 20)
    assert len(row) == len(exact[0]) == len(set(row.tolist()))
    assert (np.bincount(column, minlength=12) <= capacity).all()
    assert 0.97 * value[exact].sum() < value[row, column].sum() <= value[exact].sum() + 1e-9
    one_by_one, room = [], capacity.copy()
    for r, c in sorted(itertools.product(range(60), range(12)), key=lambda pair: -value[pair]):
        if np.isfinite(value[r, c]) and room[c] > 0 and r not in [a for a, _ in one_by_one] and len(one_by_one) < 20:
            one_by_one.append((r, c))
            room[c] -= 1
    assert sorted(zip(row.tolist(), column.tolist(), strict=True)) == sorted(one_by_one)


def test_pairs_that_can_be_asked_are_chosen_as_from_a_table() -> None:
    rng = RNG(1)
    row, column = np.nonzero(rng.random((30, 9)) < 0.4)
    value = rng.random(len(row))
    table = np.full((30, 9), -np.inf)
    table[row, column] = value
    for capacity in (np.full(9, np.inf), np.full(9, 2.0)):
        taken = assign_pairs(row, column, value, capacity, 15)
        expected = assign(table, capacity, 15)
        assert value[taken].sum() == pytest.approx(table[expected].sum())
        assert len(set(row[taken].tolist())) == len(taken) == 15
        assert (np.bincount(column[taken], minlength=9) <= capacity).all()


def test_values_of_some_pairs_are_those_of_the_table() -> None:
    q, theta = tables(20, 6, 3, 5)
    item, annotator = np.nonzero(RNG(0).random((20, 6)) < 0.5)
    for value in VALUES:
        some = acquisition.values_of(q, theta, value, item, annotator)
        np.testing.assert_allclose(some, acquisition.pair_values(q, theta, value)[item, annotator])


def test_a_weight_sends_votes_to_an_item() -> None:
    seen = state_of()
    middling = int(np.argsort(acquisition.item_scores(seen.posterior, "entropy", RNG(0)))[20])
    weight = np.where(np.arange(40) == middling, 1e3, 1.0)
    for name in ("entropy-random", "information", "value"):
        assert find_strategy(name).propose(seen.replace(weight=weight), 1, RNG(0)).item.tolist() == [middling]
    for wrong in (np.zeros(40), np.ones(39), np.full(40, np.nan)):
        with pytest.raises(ParameterError, match="weight"):
            seen.replace(weight=wrong)


# -- strategies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRATEGIES)
def test_constraints_hold(name: str) -> None:
    seen = state_of(
        available=[m != 2 for m in range(8)],
        load=[2.0 if m == 3 else np.inf for m in range(8)],
        closed=[n < 5 for n in range(40)],
    )
    proposal = find_strategy(name).propose(seen, 25, RNG(1))
    assert len(proposal) == 25
    assert 2 not in proposal.annotator
    assert (proposal.annotator == 3).sum() <= 2
    assert proposal.item.min() >= 5
    assert len(set(proposal.item.tolist())) == 25
    place, who = seen.voted.among(np.arange(40))
    assert not set(zip(place.tolist(), who.tolist(), strict=True)) & set(
        zip(proposal.item.tolist(), proposal.annotator.tolist(), strict=True)
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_seed_decides(name: str) -> None:
    a, b = (find_strategy(name).propose(state_of(), 10, RNG(4)) for _ in range(2))
    assert np.array_equal(a.item, b.item)
    assert np.array_equal(a.annotator, b.annotator)


def test_uncertain_items_and_good_annotators_come_first() -> None:
    seen = state_of()
    proposal = find_strategy("information").propose(seen, 5, RNG(0))
    doubt = acquisition.item_scores(seen.posterior, "entropy", RNG(0))
    assert doubt[proposal.item].mean() > np.median(doubt)
    skill = acquisition.accuracy(seen.dirichlet, seen.prior)[0]
    assert skill[proposal.annotator].mean() > skill.mean()


def test_a_price_sends_the_vote_to_somebody_cheaper() -> None:
    dirichlet = np.tile([[9.0, 1.0], [1.0, 9.0]], (2, 1, 1))
    both = AskablePairs.of(np.repeat([3, 4, 5], 2), np.tile([0, 1], 3), 6)  # they have met on the last three items
    seen = State(
        np.arange(6), np.array(["dear", "cheap"], object), np.array(["x", "y"], object), np.full((6, 2), 0.5),
        dirichlet, np.zeros(6, np.int64), both, np.array([5.0, 1.0]), np.ones(2, bool), np.full(2, np.inf),
        np.arange(6) >= 3, np.zeros(6, bool),
    )  # fmt: skip
    rule = Strategy(trial_votes=0.0)
    proposal = rule.propose(seen, 3, RNG(0))
    assert proposal.annotator.tolist() == [1, 1, 1]
    assert proposal.price.tolist() == [1.0, 1.0, 1.0]
    dear = replace(seen, available=np.array([True, False]))
    assert rule.propose(dear, 3, RNG(0)).annotator.tolist() == [0, 0, 0]


def test_items_below_the_overlap_come_first() -> None:
    crowd = cw.simulate.dirichlet(30, n_annotators=8, n_classes=3, votes_per_item=3, random_state=0)
    online = cw.Online(cw.DawidSkene()).partial_fit(crowd.votes[np.arange(20)])
    seen = State.of(online.declare(crowd.votes.items.tolist()))
    for name in ("tutorial", "value"):
        chosen = replace(find_strategy(name), overlap=2).propose(seen, 10, RNG(0)).item
        assert (seen.votes_per_item[chosen] == 0).all()


def test_several_votes_for_an_item_in_one_batch() -> None:
    seen = state_of(n_items=4)
    proposal = replace(find_strategy("value"), votes_per_item=3).propose(seen, 12, RNG(0))
    pairs = set(zip(proposal.item.tolist(), proposal.annotator.tolist(), strict=True))
    assert len(pairs) == 12
    assert (np.bincount(proposal.item, minlength=4) == 3).all()


def test_questions_with_known_answers() -> None:
    crowd = cw.simulate.dirichlet(200, n_annotators=20, n_classes=3, votes_per_item=2, random_state=0)
    gold = {crowd.votes.items[n]: crowd.votes.classes[crowd.truth[n]] for n in range(60)}
    seen = State.of(cw.Online(cw.DawidSkene()).partial_fit(crowd.votes, gold=gold))
    none = find_strategy("value").propose(seen, 50, RNG(0))
    assert not seen.gold[none.item].any()
    some = replace(find_strategy("value"), gold_rate=0.2).propose(seen, 50, RNG(0))
    assert len(some) == 50
    assert 4 <= seen.gold[some.item].sum() <= 17


def test_only_possible_pairs() -> None:
    possible = AskablePairs.of(np.array([7, 9, 9]), np.array([1, 1, 3]), 40)
    seen = state_of()
    voted = set(seen.voted.among(np.array([9]))[1].tolist())
    for name in STRATEGIES:
        got = find_strategy(name).propose(replace(seen, possible=possible), 5, RNG(0))
        assert set(got.item.tolist()) <= {7, 9}
        assert set(zip(got.item.tolist(), got.annotator.tolist(), strict=True)) <= {(7, 1), (9, 1), (9, 3)}
        assert not voted & {int(m) for n, m in zip(got.item, got.annotator, strict=True) if n == 9}


def test_nothing_left_to_ask() -> None:
    assert len(find_strategy("value").propose(state_of(closed=[True] * 40), 5, RNG(0))) == 0
    assert len(find_strategy("value").propose(state_of(available=[False] * 8), 5, RNG(0))) == 0


# -- states ------------------------------------------------------------------------------------------------------------


def test_items_and_annotators_without_votes() -> None:
    online = cw.Online(cw.DawidSkene()).declare(["c"], ["dee"])
    online.partial_fit(cw.Votes.from_records([("a", "ann", "x"), ("b", "bob", "y")])).declare(["a", "d"])
    seen = State.of(online, price=[1.0, 2.0, 3.0])
    assert seen.item_names.tolist() == ["c", "a", "b", "d"]
    assert seen.votes_per_item.tolist() == [0, 1, 1, 0]
    assert seen.voted.item.tolist() == [1, 2]
    assert seen.annotator_names[seen.voted.annotator].tolist() == ["ann", "bob"]
    np.testing.assert_allclose(seen.posterior[0], 0.5)
    assert seen.posterior[1].argmax() == seen.classes.tolist().index("x")
    np.testing.assert_allclose(seen.dirichlet[0].sum(axis=1), online.shrinkage)
    with pytest.raises(InputError, match="two classes or more, and 0 came"):
        State.of(cw.Online(cw.DawidSkene()))
    with pytest.raises(ParameterError, match="price"):
        State.of(online, price=0.0)


def test_a_learner_is_one_more_annotator() -> None:
    seen = state_of()
    p = RNG(0).dirichlet(np.ones(3), 40)
    both = seen.with_learner(p).posterior
    expected = seen.posterior * p / seen.prior
    np.testing.assert_allclose(both, expected / expected.sum(axis=1, keepdims=True), atol=1e-9)
    np.testing.assert_allclose(seen.with_learner(p, weight=0.0).posterior, seen.posterior, atol=1e-9)
    with pytest.raises(ParameterError, match="probabilities"):
        seen.with_learner(p[:5])


@pytest.mark.parametrize(
    "options",
    [
        {"items": "best"},
        {"annotators": "best"},
        {"value": "gold"},
        {"overlap": -1},
        {"gold_rate": 1.0},
        {"votes_per_item": 0},
        {"trial_votes": -1.0},
        {"spread": np.inf},
        {"step": 0.4},
    ],
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        Strategy(**options)


def test_an_unknown_strategy_has_a_suggestion() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'thompson'"):
        find_strategy("thomson")
    assert find_strategy("value") is not find_strategy("value")  # nobody can change the one by that name
