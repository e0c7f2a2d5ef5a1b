"""Replays: only votes that are there are asked for, each once; what is measured; and that choosing pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.active.replay import Curve, bands, replay
from crowdwise.active.state import Beliefs, Roster
from crowdwise.active.stopping import estimate_accuracy
from crowdwise.active.strategy import STRATEGIES, Strategy
from crowdwise.errors import InputError, NotFittedError, ParameterError
from crowdwise.simulate.crowds import answer, one_coin_confusion


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
    told: list[float] = []
    replay(made.votes, made.truth, cw.OneCoin, "random", batch=0.2, random_state=0, told=told.append)
    assert told == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_at_the_end_it_knows_what_a_stream_knows() -> None:
    made = crowd()
    curve = replay(made.votes, made.truth, cw.DawidSkene, "random", batch=1.0, random_state=0)
    votes = 0
    online = cw.Online(cw.DawidSkene(), step=None, trust=9.0, classes=made.votes.classes.tolist())
    while votes < 400:  # a batch has one vote on an item: five batches of 80
        first = made.votes.indptr[:-1] + votes // 80
        chosen = np.zeros(400, dtype=bool)
        chosen[first] = True
        online.partial_fit(made.votes.select(chosen))
        votes += 80
    assert len(curve.votes) == 5
    assert curve.accuracy[-1] == pytest.approx(online.consensus().score(made.truth), abs=0.05)


def test_opinions_are_those_of_the_consensus() -> None:
    made = crowd()
    with pytest.raises(NotFittedError):
        cw.Online(cw.DawidSkene()).opinions()
    online = cw.Online(cw.DawidSkene()).partial_fit(made.votes)
    q, prior = online.opinions()
    consensus = online.consensus()
    np.testing.assert_allclose(q, consensus.posterior)
    np.testing.assert_allclose(prior, consensus.prior)
    seen = Beliefs.of(online, posterior=q)
    np.testing.assert_allclose(seen.posterior, q)


def test_a_roster_looks_up_what_is_new() -> None:
    made = crowd().votes
    online = cw.Online(cw.OneCoin(), classes=made.classes.tolist(), memory=20).partial_fit(made[np.arange(10)])
    roster = Roster(made.items.tolist()[::-1], "items")
    assert roster.place(online.ledger.items).tolist() == list(range(79, 69, -1))
    online.partial_fit(made[np.arange(10, 30)])
    assert roster.place(online.ledger.items).tolist() == list(range(79, 49, -1))
    online.partial_fit(made[np.arange(30, 60)])  # more than twice the memory: the first are forgotten
    names = online.ledger.items.names
    assert len(names) == 20
    assert roster.array()[roster.place(online.ledger.items)].tolist() == names
    with pytest.raises(InputError, match="items that are not among those named"):
        Roster(names[:-1], "items").place(online.ledger.items)


def test_a_curve_is_read() -> None:
    curve = Curve(
        np.array([10, 20, 30, 40]), np.array([1.0, 3.0, 5.0, 9.0]), np.array([0.5, 0.9, 0.7, 0.9]), np.ones(4)
    )
    assert curve.first_at(0.8) == 20
    assert curve.first_at(0.8, "cost") == 3.0
    assert curve.votes_to(0.8) == 40
    assert curve.first_at(0.95) == curve.votes_to(0.95) == np.inf
    found = bands([curve, curve], [10, 15])
    assert found["mean"].tolist() == pytest.approx([0.5, 0.7])
    assert found["sd"].tolist() == [0.0, 0.0]


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
        for seed in range(4):
            made = cw.simulate.hammer_spammer(200, n_annotators=30, accuracy=0.85, votes_per_item=8, random_state=seed)
            curve = replay(made.votes, made.truth, cw.OneCoin, name, batch=0.04, random_state=seed)
            found.append(min(curve.first_at(curve.accuracy[-1] - 0.01), 1600) / 1600)
    assert np.mean(needed["value"]) < 0.75 * np.mean(needed["random"])
    assert np.mean(needed["information"]) < 0.75 * np.mean(needed["random"])


def test_value_per_price_saves_money() -> None:
    """Experts cost five times as much as others, spammers half."""
    spent: dict[str, list[float]] = {"entropy-random": [], "value": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        w = rng.permutation(np.repeat([0.95, 0.8, 0.5], [6, 12, 12]))
        price = np.select([w > 0.9, w > 0.7], [5.0, 1.0], 0.5)
        truth, item, who = rng.integers(0, 2, 300), np.repeat(np.arange(300), 30), np.tile(np.arange(30), 300)
        votes = cw.Votes.from_codes(
            item, who, answer(one_coin_confusion(w, 2), who, truth[item], rng), items=np.arange(300),
            annotators=np.arange(30), classes=[0, 1], truth=truth,
        )  # fmt: skip
        for name, found in spent.items():
            curve = replay(votes, truth, cw.OneCoin, name, price=price, batch=0.01, share=0.5, random_state=seed)
            found.append(curve.first_at(0.95, "cost"))
    assert np.mean(spent["value"]) < 0.9 * np.mean(spent["entropy-random"])


def test_the_estimate_of_the_accuracy_is_near_with_enough_votes() -> None:
    off = []
    for seed in range(4):
        made = cw.simulate.one_coin(400, n_annotators=30, n_classes=3, votes_per_item=6, random_state=seed)
        online = cw.Online(cw.OneCoin(), step=None, trust=9.0).partial_fit(made.votes)
        off.append(estimate_accuracy(online).accuracy - online.consensus().score(made.truth))
    assert abs(np.mean(off)) < 0.02


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
