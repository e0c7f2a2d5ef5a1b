"""Replays: only votes that are there are asked for, each once; what is measured; and that choosing pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.active.replays import Curve, bands, replay, replay_strategies, summary
from crowdwise.active.state import State
from crowdwise.active.strategies import STRATEGIES, Strategy
from crowdwise.errors import InputError, NotFittedError, ParameterError


def crowd(**options: Any) -> cw.simulate.Simulated:
    return cw.simulate.two_coin(80, n_annotators=10, votes_per_item=5, random_state=0, **options)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_vote_is_asked_for_once(name: str) -> None:
    made = crowd()
    curve = replay(made.votes, made.truth, cw.DawidSkene, name, batch=0.1, random_state=0)
    assert curve.votes[-1] == made.votes.n_votes == 400
    assert (np.diff(curve.votes) > 0).all()
    assert curve.cost.tolist() == curve.votes.tolist()
    assert ((curve.accuracy >= 0) & (curve.accuracy <= 1)).all()
    again = replay(made.votes, made.truth, cw.DawidSkene, name, batch=0.1, random_state=0)
    assert np.array_equal(curve.accuracy, again.accuracy)


def test_money_and_budget() -> None:
    made = crowd()
    price = np.arange(1.0, 11.0)
    whole = replay(made.votes, made.truth, cw.OneCoin, "random", price=price, batch=0.1, random_state=0)
    assert whole.cost[-1] == price[made.votes.annotator].sum()
    half = replay(made.votes, made.truth, cw.OneCoin, "random", share=0.5, batch=0.1, random_state=0)
    assert half.votes[-1] == 200
    spent: list[float] = []
    replay(made.votes, made.truth, cw.OneCoin, "random", batch=0.2, random_state=0, progress=spent.append)
    assert spent == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_at_the_end_it_knows_what_a_stream_knows() -> None:
    made = crowd()
    curve = replay(made.votes, made.truth, cw.DawidSkene, "random", batch=1.0, random_state=0)
    votes = 0
    online = cw.Online(cw.DawidSkene(), step=None, prior_strength=9.0, classes=made.votes.classes.tolist())
    while votes < 400:  # a batch has one vote on an item: five batches of 80
        first = made.votes.indptr[:-1] + votes // 80
        chosen = np.zeros(400, dtype=bool)
        chosen[first] = True
        online.partial_fit(made.votes.select(chosen))
        votes += 80
    assert len(curve.votes) == 5
    assert curve.accuracy[-1] == pytest.approx(online.consensus().score(made.truth), abs=0.05)


def test_an_e_step_gives_the_posterior_of_the_consensus() -> None:
    made = crowd()
    with pytest.raises(NotFittedError):
        cw.Online(cw.DawidSkene()).e_step()
    online = cw.Online(cw.DawidSkene()).partial_fit(made.votes)
    q, prior = online.e_step()
    consensus = online.consensus()
    np.testing.assert_allclose(q, consensus.posterior)
    np.testing.assert_allclose(prior, consensus.prior)
    seen = State.of(online, posterior=q)
    np.testing.assert_allclose(seen.posterior, q)


def test_a_state_has_the_codes_of_the_stream() -> None:
    made = crowd().votes
    online = cw.Online(cw.OneCoin(), classes=made.classes.tolist(), memory=20).declare(made.items.tolist()[::-1])
    online.partial_fit(made[np.arange(10)])
    assert online.store.items.codes.tolist() == list(range(79, 69, -1))
    assert State.of(online).votes_per_item.tolist() == [0] * 70 + [5] * 10
    online.partial_fit(made[np.arange(10, 60)])  # more than twice the memory: the first are forgotten
    assert State.of(online).item_names.tolist() == online.votes().items.tolist() == made.items[40:60].tolist()


def test_a_curve_is_read() -> None:
    curve = Curve(
        np.array([10, 20, 30, 40]), np.array([1.0, 3.0, 5.0, 9.0]), np.array([0.5, 0.9, 0.7, 0.9]), np.ones(4)
    )
    assert curve.first_at(0.8) == 20
    assert curve.first_at(0.8, "cost") == 3.0
    assert curve.votes_to(0.8) == 40
    assert curve.first_at(0.95) == curve.votes_to(0.95) == np.inf
    found = bands({"a": [curve, curve]}, points=3)["a"]
    assert found == {"x": [10, 25, 40], "y": [0.5, pytest.approx(0.8), 0.9], "low": found["y"], "high": found["y"]}
    assert bands({"a": [curve]}, "cost", points=2)["a"]["x"] == [1.0, 9.0]
    never = summary([curve, curve], 0.95, 40)
    assert (never["share"], never["never"], never["cost"]) == (1.0, 2, 9.0)
    assert summary([curve], 0.9, 40)["share"] == 0.5


def test_several_strategies_and_seeds() -> None:
    made, done = crowd(), list[str]()
    found = replay_strategies(
        made.votes, made.truth, cw.OneCoin, ["random", "value"], n_seeds=2, batch=0.25, progress=done.append
    )
    assert done == ["random", "random", "value", "value"]
    alone = replay(made.votes, made.truth, cw.OneCoin, "value", batch=0.25, random_state=1)
    assert np.array_equal(found["value"][1].accuracy, alone.accuracy)


def test_only_the_tutorial_forgets() -> None:
    assert {name for name, rule in STRATEGIES.items() if rule.step is not None} == {"tutorial"}
    assert STRATEGIES["tutorial"].step == 0.6


def test_exact_statistics_hold_where_votes_are_chosen() -> None:
    """Decayed ones count doubtful items again and again: the accuracy falls with more votes."""
    end: dict[float | None, list[float]] = {0.6: [], None: []}
    for step, found in end.items():
        rule = Strategy(annotators="random", joint=False, per_price=False, step=step)
        for seed in range(3):
            made = cw.simulate.two_coin(300, n_annotators=40, votes_per_item=8, random_state=seed)
            curve = replay(made.votes, made.truth, cw.DawidSkene, rule, batch=0.04, share=0.6, random_state=seed)
            found.append(curve.accuracy[-1])
    assert np.mean(end[None]) > 0.82
    assert np.mean(end[None]) > np.mean(end[0.6]) + 0.1


def test_choosing_needs_fewer_votes_than_chance() -> None:
    needed: dict[str, list[float]] = {"random": [], "value": [], "information": []}
    for name, found in needed.items():
        for seed in range(2):
            made = cw.simulate.hammer_spammer(200, n_annotators=30, accuracy=0.85, votes_per_item=8, random_state=seed)
            curve = replay(made.votes, made.truth, cw.OneCoin, name, batch=0.04, random_state=seed)
            found.append(min(curve.first_at(curve.accuracy[-1] - 0.01), 1600) / 1600)
    assert np.mean(needed["value"]) < 0.75 * np.mean(needed["random"])
    assert np.mean(needed["information"]) < 0.75 * np.mean(needed["random"])


@pytest.mark.parametrize(
    ("options", "message"), [({"batch": 0.0}, "batch=0.0"), ({"batch": 2.0}, "batch"), ({"share": 0.0}, "share=0.0")]
)
def test_what_is_refused(options: dict[str, float], message: str) -> None:
    made = crowd()
    with pytest.raises(ParameterError, match=message):
        replay(made.votes, made.truth, cw.OneCoin, "random", **options)


def test_nothing_to_measure_with() -> None:
    made = crowd()
    with pytest.raises(InputError, match="nothing to measure"):
        replay(made.votes, np.full(80, -1), cw.OneCoin, "random")
