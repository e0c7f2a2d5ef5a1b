"""Questions under a bound on the gap between groups: expected errors, planted gaps, and why a bound is missed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.active import acquisition
from crowdwise.active.fair_assignment import expected_errors, propose_fairly
from crowdwise.active.state import AskablePairs, Proposal, State
from crowdwise.active.strategies import Strategy, find_strategy
from crowdwise.errors import InputError, ParameterError
from crowdwise.online.stream import Online

NONE = np.empty(0, np.int64)


def planted(doubt: Any, group: Any, accuracy: Any = (0.9,) * 6, votes: float = 50.0, **changes: Any) -> State:
    """Items whose best of two classes has the probability 1 - doubt, and annotators of known accuracy."""
    doubt, w = np.asarray(doubt, dtype=float), np.asarray(accuracy, dtype=float)
    N, M = len(doubt), len(w)
    matrix = np.array([[[a, 1 - a], [1 - a, a]] for a in w])
    seen = State(
        np.arange(N), np.arange(M), np.array(["x", "y"], object), np.stack([1 - doubt, doubt], axis=1),
        votes * matrix, np.ones(N, np.int64), AskablePairs.of(NONE, NONE, N), np.ones(M), np.ones(M, bool),
        np.full(M, np.inf), np.zeros(N, bool), np.zeros(N, bool), group=np.asarray(group),
    )  # fmt: skip
    return seen.replace(**changes)


def test_expected_errors_are_those_of_all_answers() -> None:
    rng = np.random.default_rng(0)
    K = 3
    q, dirichlet = rng.dirichlet(np.ones(K), 4), rng.uniform(0.5, 5.0, (3, K, K))
    seen = planted([0.1] * 4, [0, 0, 1, 1], (0.8,) * 3).replace(posterior=q, dirichlet=dirichlet)
    proposal = Proposal(np.array([0, 2, 0, 0]), np.array([1, 0, 2, 0]), np.zeros(4), np.ones(4))
    theta = acquisition.mean(dirichlet)
    expected = 1.0 - q.max(axis=1)
    for n, people in ((0, (1, 2, 0)), (2, (0,))):
        right = 0.0
        for said in itertools.product(range(K), repeat=len(people)):
            right += max(
                q[n, k] * np.prod([theta[m, k, x] for m, x in zip(people, said, strict=True)]) for k in range(K)
            )
        expected[n] = 1.0 - right
    np.testing.assert_allclose(expected_errors(seen, proposal), expected)


def test_a_gap_that_votes_can_close_is_closed() -> None:
    # The items of a are in more doubt: a strategy asks mostly about these, and is done with them before b.
    doubt = np.concatenate([np.full(60, 0.5), np.full(60, 0.3)])
    seen = planted(doubt, ["a"] * 60 + ["b"] * 60)
    greedy = Strategy(annotators="greedy")
    plain = propose_fairly(seen, 60, 0.99, greedy, random_state=0)
    assert plain.met
    assert plain.gap_after == pytest.approx(0.2)
    assert (plain.proposal.item < 60).all()
    strict = propose_fairly(seen, 60, 0.03, greedy, random_state=0)
    assert not strict.met
    assert (strict.after <= plain.after + 0.003).all()
    assert "more than 0.003 above" in strict.why
    fair = propose_fairly(seen, 60, 0.03, greedy, tolerance=0.3, random_state=0)
    assert fair.met
    assert fair.why == ""
    assert fair.gap_after <= 0.03 < plain.gap_after
    assert fair.groups.tolist() == ["a", "b"]
    assert fair.gap_before == pytest.approx(0.2)
    assert fair.weight[1] > fair.weight[0]
    assert len(fair.proposal) == 60
    assert (fair.after <= fair.before + 1e-12).all()  # nobody pays for it


def test_the_gap_that_is_promised_is_the_gap_that_comes() -> None:
    rng = np.random.default_rng(0)
    doubt = np.concatenate([rng.uniform(0.3, 0.5, 200), rng.uniform(0.2, 0.4, 200)])
    group = np.repeat([0, 1], 200)
    seen = planted(doubt, group, rng.uniform(0.7, 0.95, 10))
    fair = propose_fairly(seen, 250, 0.03, tolerance=0.3, random_state=0)
    assert fair.met
    theta, gaps = acquisition.mean(seen.dirichlet), []
    for _ in range(200):
        truth = (rng.random(400) < doubt).astype(int)
        n, m = fair.proposal.item, fair.proposal.annotator
        said = (rng.random(len(n)) < theta[m, truth[n], 1]).astype(int)
        q = np.array(seen.posterior)
        q[n] *= theta[m, :, said]
        wrong = q.argmax(axis=1) != truth
        gaps.append(wrong[group == 0].mean() - wrong[group == 1].mean())
    assert abs(abs(np.mean(gaps)) - fair.gap_after) < 0.01


def test_why_not() -> None:
    doubt = np.concatenate([np.full(40, 0.45), np.full(40, 0.05)])
    seen = planted(doubt, [7] * 40 + [8] * 40)
    few = propose_fairly(seen, 5, 0.01, random_state=0)
    assert not few.met
    assert few.why == "all 5 questions are about 7 and are not enough: ask for more"
    closed = propose_fairly(replace(seen, closed=np.arange(80) < 40), 5, 0.01, random_state=0)
    assert closed.why == "no item of 7 is open"
    seen_by_all = AskablePairs.of(np.repeat(np.arange(40), 6), np.tile(np.arange(6), 40), 80)
    assert "no available annotator" in propose_fairly(replace(seen, voted=seen_by_all), 5, 0.01, random_state=0).why
    useless = planted(np.where(doubt > 0.4, 0.3, 0.05), [7] * 40 + [8] * 40, (0.6,) * 6)
    assert "expected to change a label of 7" in propose_fairly(useless, 20, 0.01, random_state=0).why
    once = propose_fairly(planted(doubt, [7] * 40 + [8] * 40, (0.7,) * 6), 80, 0.01, random_state=0)
    assert once.why.startswith("each of the 40 open items of 7")
    assert once.gap_after < once.gap_before


def test_items_of_no_group_take_part_as_before() -> None:
    group = np.array([0] * 30 + [1] * 30 + [-1] * 30)
    seen = planted(np.concatenate([np.full(30, 0.45), np.full(30, 0.3), np.full(30, 0.48)]), group)
    fair = propose_fairly(seen, 60, 0.03, Strategy(annotators="greedy"), tolerance=0.3, random_state=0)
    assert fair.groups.tolist() == [0, 1]
    assert fair.met
    assert (group[fair.proposal.item] == -1).any()


def test_the_seed_decides() -> None:
    seen = planted(np.linspace(0.1, 0.5, 50), np.arange(50) % 2)
    one, two = (propose_fairly(seen, 10, 0.001, random_state=3) for _ in range(2))
    assert np.array_equal(one.proposal.item, two.proposal.item)
    assert np.array_equal(one.proposal.annotator, two.proposal.annotator)
    plain = find_strategy("value").propose(seen, 10, np.random.default_rng(np.random.default_rng(3).integers(2**63)))
    assert np.array_equal(propose_fairly(seen, 10, 0.9, random_state=3).proposal.item, plain.item)


@pytest.mark.parametrize(
    ("n", "bound", "group", "error", "message"),
    [
        (5, 1.0, [0, 1], ParameterError, "bound=1.0"),
        (5, -0.1, [0, 1], ParameterError, "bound=-0.1"),
        (0, 0.1, [0, 1], ParameterError, "n=0"),
        (5, 0.1, [0, 0], InputError, "two groups"),
        (5, 0.1, [0, 1, 1], InputError, "one for each of the 2 items"),
    ],
)
def test_what_is_refused(n: int, bound: float, group: list[int], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        propose_fairly(planted([0.1, 0.2], group), n, bound)


def grouped_crowd(seed: int = 0, N: int = 300, M: int = 20) -> tuple[Any, ...]:
    """A stream of eight votes per item in which every second annotator guesses on the items of group 1."""
    rng = np.random.default_rng(seed)
    group, truth = np.arange(N) % 2, rng.integers(0, 2, N)
    accuracy = np.full((2, M), 0.75)
    accuracy[0, 1::2], accuracy[1, 1::2] = 0.95, 0.5
    said = np.where(rng.random((N, M)) < accuracy[group], truth[:, None], 1 - truth[:, None])
    item, who = np.repeat(np.arange(N), 8), rng.random((N, M)).argsort(axis=1)[:, :8].ravel()
    online = Online(cw.DawidSkene(), shrinkage=8.0, prior_strength=9.0, classes=["no", "yes"])
    votes = cw.Votes.from_codes(
        item, who, said[item, who], items=range(N), annotators=range(M), classes=["no", "yes"]
    )  # fmt: skip
    return online.declare(range(N), range(M)).partial_fit(votes), group, accuracy


def test_matrices_by_group_show_who_is_bad_on_one_group_only() -> None:
    online, group, accuracy = grouped_crowd()
    state = State.of(online, group=group)
    assert state.group_dirichlet is not None
    seen = np.stack([acquisition.accuracy(d, state.prior)[0] for d in state.group_dirichlet])
    assert np.abs(seen - accuracy).mean() < 0.1
    assert (seen[1, 0::2].mean() - seen[1, 1::2].mean()) > 0.15
    plain = propose_fairly(state.replace(group_dirichlet=None), 100, 0.9, Strategy(annotators="greedy"))
    fair = propose_fairly(state, 100, 0.02, Strategy(annotators="greedy"))

    def guesses(p: Proposal) -> float:
        return float((p.annotator[group[p.item] == 1] % 2 == 1).mean())

    assert guesses(fair.proposal) < 0.1 < 0.3 < guesses(plain.proposal)
    alone = expected_errors(state, plain.proposal)
    assert all(fair.after[z] <= alone[group == z].mean() + 0.003 for z in (0, 1))


def test_groups_that_do_not_differ_leave_the_matrices_as_they_are() -> None:
    crowd = cw.simulate.one_coin(300, n_annotators=10, votes_per_item=5, random_state=1)
    online = Online(cw.DawidSkene(), shrinkage=8.0).partial_fit(crowd.votes)
    plain, state = State.of(online), State.of(online, group=np.arange(300) % 2)
    assert state.group_dirichlet is not None
    for mine in state.group_dirichlet:
        assert np.abs(acquisition.mean(mine) - acquisition.mean(plain.dirichlet)).max() < 0.1
    assert State.of(online, group=np.zeros(300, int)).group_dirichlet is None  # a single group
    q = state.dirichlet_of(np.array([0, 1]), np.array([2, 2]))
    assert np.array_equal(q, state.group_dirichlet[[0, 1], [2, 2]])


def test_no_groups() -> None:
    with pytest.raises(InputError, match="no groups"):
        propose_fairly(planted([0.1, 0.2], [0, 1]).replace(group=None), 1, 0.1)
