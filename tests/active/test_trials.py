"""New annotators are tried together on few items, when that may pay; and nobody gets too much of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import crowdwise as cw
from crowdwise.active import acquisition
from crowdwise.active import strategies as trials
from crowdwise.active.replays import replay
from crowdwise.active.state import AskablePairs, State
from crowdwise.active.strategies import Strategy, find_strategy
from crowdwise.simulate.crowds import answer, one_coin_confusion

RNG = np.random.default_rng
NOBODY = (np.empty(0, np.int64), np.empty(0, np.int64))


def crowd(
    price: Any,
    n_items: int = 200,
    *,
    voted: tuple[Any, Any] = NOBODY,
    dirichlet: Any = None,
    posterior: Any = None,
    **options: Any,
) -> State:
    """A state with two classes; annotators are right eight times in ten under their prior."""
    M = len(price)
    voted_pairs = AskablePairs.of(np.asarray(voted[0]), np.asarray(voted[1]), n_items)
    facts: dict[str, Any] = {
        "item_names": np.arange(n_items),
        "annotator_names": np.arange(M),
        "classes": np.arange(2),
        "posterior": np.full((n_items, 2), 0.5) if posterior is None else posterior,
        "dirichlet": np.tile([[3.2, 0.8], [0.8, 3.2]], (M, 1, 1)) if dirichlet is None else dirichlet,
        "votes_per_item": np.diff(voted_pairs.indptr),
        "voted": voted_pairs,
        "price": np.asarray(price, dtype=float),
        "available": np.ones(M, dtype=bool),
        "load": np.full(M, np.inf),
        "closed": np.zeros(n_items, dtype=bool),
        "gold": np.zeros(n_items, dtype=bool),
    }
    return State(**(facts | options))


# -- who is tried ------------------------------------------------------------------------------------------------------


def test_the_going_rate_is_that_of_the_last_who_is_needed() -> None:
    rng = RNG(0)
    for _ in range(50):
        gain, price, whole = rng.random(6), rng.uniform(0.2, 5.0, 6), rng.uniform(0.1, 4.0)
        sofar = 0.0
        for m in sorted(range(6), key=lambda m: -gain[m] / price[m]):
            last, sofar = m, sofar + gain[m]
            if sofar >= whole:
                break
        assert trials.going_rate(gain, price, whole) == pytest.approx(gain[last] / price[last])


def test_the_expected_improvement_is_an_integral(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "TRIAL_DRAWS", 5_000)
    price, rate = np.array([0.5, 1.0, 4.0]), 0.3
    a, b = 6.0, 2.0  # both rows alike: the information of a vote is that of two independent draws of accuracy
    got = trials.expected_improvement(np.tile([[a, b], [b, a]], (3, 1, 1)), price, np.full(2, 0.5), rate, RNG(0))

    def beyond(y: float, x: float, p: float) -> float:
        theta = np.array([[[x, 1.0 - x], [1.0 - y, y]]])
        gain = acquisition.pair_values(np.full((1, 2), 0.5), theta, "information")[0, 0]
        return float(max(gain / p - rate, 0.0) * stats.beta.pdf(x, a, b) * stats.beta.pdf(y, a, b))

    for m in range(2):
        exact = integrate.dblquad(beyond, 0, 1, 0, 1, args=(price[m],), epsabs=5e-3)[0]
        assert got[m] == pytest.approx(exact, rel=0.05)
    assert got[2] == 0.0  # one bit for a price of 4 is less than the rate


def test_new_annotators_are_tried_and_those_who_cannot_be_worth_it_are_not() -> None:
    need = trials.votes_needed(crowd([1.0] * 8 + [0.5] * 4 + [5.0] * 2), 5.0, RNG(0))
    enough = np.ceil(5.0 * np.sqrt(200 / 14))
    assert need.tolist() == [enough] * 12 + [0.0] * 2
    alike = trials.votes_needed(crowd([5.0] * 14), 5.0, RNG(0))  # it is not the price but what others cost
    assert alike.tolist() == [enough] * 14


def test_trials_grow_with_the_root_of_the_items_there_are_for_each() -> None:
    for N, M in ((200, 8), (800, 8), (800, 32)):
        need = trials.votes_needed(crowd([1.0] * M, N), 5.0, RNG(0))
        assert (need == np.ceil(5.0 * np.sqrt(N / M))).all()
    assert not trials.votes_needed(crowd([1.0] * 8, 4), 5.0, RNG(0)).any()  # few items: it does not pay
    sure = np.tile([0.999, 0.001], (200, 1))
    sure[::2] = sure[::2, ::-1]
    assert not trials.votes_needed(crowd([1.0] * 8, posterior=sure), 5.0, RNG(0)).any()  # nor when little is left to do


def test_votes_that_others_share_make_known_and_votes_alone_do_not() -> None:
    alone = (np.arange(60), np.repeat([0, 1], 30))
    assert (trials.votes_needed(crowd([1.0] * 8, voted=alone), 5.0, RNG(0)) > 0).all()
    together = (np.repeat(np.arange(30), 2), np.tile([0, 1], 30))
    need = trials.votes_needed(crowd([1.0] * 8, voted=together), 5.0, RNG(0))
    assert need[:2].tolist() == [0.0, 0.0] and (need[2:] == 25.0).all()


def test_where_good_ones_are_known_only_better_bargains_are_tried() -> None:
    known = np.tile([[3.2, 0.8], [0.8, 3.2]], (8, 1, 1))
    known[:4] = [[475.0, 25.0], [25.0, 475.0]]  # right 95 times in 100, for 1
    voted = (np.repeat(np.arange(60), 4), np.tile(np.arange(4), 60))
    seen = crowd([1.0] * 4 + [0.2, 1.0, 1.5, 3.0], dirichlet=known, voted=voted)
    need = trials.votes_needed(seen, 5.0, RNG(0))
    assert need[4] > 0  # right nine times in ten would do
    assert need[6] == need[7] == 0


# -- on which items ----------------------------------------------------------------------------------------------------


def test_trials_are_on_items_that_most_have_voted_on() -> None:
    votes = np.zeros(50, np.int64)
    votes[[7, 9, 11]] = [trials.MAX_VOTES, 5, 3]
    voted = (np.repeat(np.arange(50), votes), np.concatenate([np.arange(v) for v in votes]))
    seen = crowd([1.0] * 30, 50, voted=voted)
    chosen = trials.trial_items(seen, np.arange(50), np.full(30, 4.0), 100, RNG(0))
    assert chosen[:2].tolist() == [9, 11] and 7 not in chosen
    assert (trials.MAX_VOTES - votes[chosen]).sum() >= 100
    assert (
        len(trials.trial_items(seen, np.arange(50), np.full(30, 12.0), 20, RNG(0))) == 12
    )  # nobody votes twice on an item
    heavy = seen.replace(weight=np.where(np.arange(50) >= 40, 2.0, 1.0))
    assert (trials.trial_items(heavy, np.arange(50), np.full(30, 4.0), 100, RNG(0))[2:] >= 40).all()


def test_new_annotators_meet_on_few_items() -> None:
    seen = crowd([1.0] * 9 + [1.1], 200)
    need = np.ceil(5.0 * np.sqrt(20))
    asked = find_strategy("value").propose(seen, 150, RNG(0))
    assert len(asked) == 150
    assert len(set(zip(asked.item.tolist(), asked.annotator.tolist(), strict=True))) == 150
    assert len(np.unique(asked.item)) <= need
    assert np.bincount(asked.annotator, minlength=10).max() <= need
    gain = acquisition.pair_values(seen.posterior[:1], acquisition.mean(seen.dirichlet[:1]), "information")[0, 0]
    np.testing.assert_allclose(asked.value, gain / asked.price)
    untried = Strategy(trial_votes=0.0).propose(seen, 150, RNG(0))
    assert len(np.unique(untried.item)) == 150


def test_nobody_is_tried_where_all_cost_the_same() -> None:
    asked = find_strategy("value").propose(crowd([1.0] * 10, 200), 150, RNG(0))
    assert len(np.unique(asked.item)) == len(asked) == 150
    away = crowd([1.0] * 9 + [5.0], 200, available=np.arange(10) < 9)  # whose price differs is not there
    assert len(np.unique(find_strategy("value").propose(away, 150, RNG(0)).item)) == 150


def test_trials_keep_to_the_constraints() -> None:
    seen = crowd(
        [1.0] * 9 + [1.1],
        200,
        available=np.arange(10) != 2,
        load=np.where(np.arange(10) == 3, 4.0, np.inf),
        closed=np.arange(200) < 50,
    )
    asked = find_strategy("value").propose(seen, 120, RNG(1))
    assert len(asked) == 120
    assert 2 not in asked.annotator and (asked.annotator == 3).sum() <= 4 and asked.item.min() >= 50
    possible = AskablePairs.of(np.repeat(np.arange(60, 90), 3), np.tile([0, 4, 5], 30), 200)
    some = find_strategy("value").propose(seen.replace(possible=possible), 60, RNG(1))
    assert len(some) == 60
    assert set(some.annotator.tolist()) <= {0, 4, 5} and some.item.min() >= 60 and some.item.max() < 90


def test_a_batch_is_the_trial_and_what_is_left_of_it() -> None:
    asked = find_strategy("value").propose(crowd([1.0] * 3 + [1.1], 100), 150, RNG(0))  # 25 trials for each of four
    items, count = np.unique(asked.item, return_counts=True)
    assert len(asked) == 150
    assert (count[count > 1] == 4).all() and (count > 1).sum() == 25
    assert (count == 1).sum() == 50


# -- shares of a batch -------------------------------------------------------------------------------------------------


def known_crowd(M: int, best: int, n_items: int = 200) -> State:
    """One is right 95 times in 100, the others 60 times, and all of that is known."""
    dirichlet = np.tile([[600.0, 400.0], [400.0, 600.0]], (M, 1, 1))
    dirichlet[best] = [[950.0, 50.0], [50.0, 950.0]]
    return crowd([1.0] * M, n_items, dirichlet=dirichlet)


def test_nobody_gets_more_than_a_share_while_others_are_there() -> None:
    seen = known_crowd(20, 3)
    count = np.bincount(Strategy(trial_votes=0.0).propose(seen, 100, RNG(0)).annotator, minlength=20)
    assert count[3] == count.max() == 20  # four times an equal share
    assert np.bincount(Strategy(trial_votes=0.0, spread=0.0).propose(seen, 100, RNG(0)).annotator)[3] == 100
    many = np.bincount(Strategy(trial_votes=0.0).propose(known_crowd(100, 3), 160, RNG(0)).annotator, minlength=100)
    assert many[3] == many.max() == 10  # a sixteenth


def test_where_others_cannot_one_may_have_it_all() -> None:
    seen = known_crowd(20, 3)
    alone = seen.replace(possible=AskablePairs.of(np.arange(150), np.full(150, 3), 200))
    asked = Strategy(trial_votes=0.0).propose(alone, 100, RNG(0))
    assert len(asked) == len(np.unique(asked.item)) == 100
    assert (asked.annotator == 3).all()
    twice = Strategy(trial_votes=0.0, votes_per_item=2).propose(known_crowd(20, 3, 30), 60, RNG(0))
    assert (np.bincount(twice.item) == 2).all()


# -- what it is for ----------------------------------------------------------------------------------------------------


def test_a_priced_crowd_costs_less() -> None:
    """Experts cost 5, spammers next to nothing: 95 % accuracy for less than four fifths of the money."""
    spent = {"value": 0.0, "entropy-random": 0.0}
    for seed in (50, 51):
        rng = RNG(seed)
        kind = rng.permutation(np.repeat([0, 1, 2], [4, 10, 10]))
        theta = one_coin_confusion(np.array([0.95, 0.8, 0.5])[kind], 2)
        truth, item, who = rng.integers(0, 2, 300), np.repeat(np.arange(300), 24), np.tile(np.arange(24), 300)
        votes = cw.Votes.from_codes(
            item, who, answer(theta, who, truth[item], rng), items=np.arange(300), annotators=np.arange(24),
            classes=[0, 1], truth=truth,
        )  # fmt: skip
        for name in spent:
            curve = replay(
                votes, truth, cw.OneCoin, name, price=np.array([5.0, 1.0, 0.5])[kind], batch=0.01, share=0.4,
                random_state=seed,
            )  # fmt: skip
            spent[name] += curve.first_at(0.95, "cost")
    assert spent["value"] < 0.8 * spent["entropy-random"]
