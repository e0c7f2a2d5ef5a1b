"""Sizes that no machine can take are refused with advice, at once; sizes that only look large are not."""

from __future__ import annotations

import time

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.errors import InputError
from crowdwise.methods.skills_graph import MAX_MEETINGS, MAX_PAIRS, check_pairs, groups_of, groups_through, signed

PAIRWISE = ("eigenratio", "sml", "pgd", "m-msr", "triangular")
"""Methods that look at every pair of annotators who share an item."""


def everybody(M, N=2, K=2, seed=0):
    """N items on which all of M annotators voted."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, K, N * M).astype(np.int32)
    who = np.tile(np.arange(M, dtype=np.int32), N)
    return cw.Votes(np.arange(N + 1) * M, who, label, np.arange(N), np.arange(M), np.arange(K))


@pytest.mark.parametrize("key", PAIRWISE)
def test_a_hundred_thousand_annotators_who_all_meet_are_refused_at_once(key):
    votes = everybody(100_000)
    began = time.process_time()
    with pytest.raises(InputError, match=r"100,000 annotators.*9,999,900,000 pairs.*Use anchored"):
        cw.aggregate(votes, key)
    assert time.process_time() - began < 20.0


@pytest.mark.parametrize("key", PAIRWISE)
def test_as_many_annotators_who_rarely_meet_are_not_refused(key):
    rng = np.random.default_rng(0)
    N, M = 6_000, 12_000
    who = np.concatenate([np.sort(rng.choice(M, 2, replace=False)) for _ in range(N)]).astype(np.int32)
    votes = cw.Votes(
        np.arange(N + 1) * 2, who, rng.integers(0, 2, 2 * N).astype(np.int32), np.arange(N), np.arange(M), np.arange(2)
    )
    assert cw.aggregate(votes, key).posterior.shape == (N, 2)


def test_the_bounds_are_those_they_say():
    side = int((1 + np.sqrt(1 + 4 * MAX_PAIRS)) / 2)
    check_pairs(np.array([side]), 10**9)
    with pytest.raises(InputError):
        check_pairs(np.array([side + 1]), 10**9)
    check_pairs(np.array([10**5]), 1000)  # no more pairs than 1000 annotators have, however often they meet
    items = int(MAX_MEETINGS / (1000 * 999)) + 1
    with pytest.raises(InputError, match="meet"):
        check_pairs(np.full(items, 1000), 1000)


def test_minimax_refuses_numbers_and_work_without_bounds():
    with pytest.raises(InputError, match=r"beyond minimax.*Use anchored"):
        cw.aggregate(everybody(100_000, N=2, K=20), "minimax")
    with pytest.raises(InputError, match="beyond minimax"):
        cw.aggregate(everybody(400, N=2_000, K=12), "minimax")


@pytest.mark.parametrize("key", ["kos", "kos-svd", "ghosh"])
def test_methods_linear_in_votes_take_a_crowd_with_billions_of_pairs(key):
    assert cw.aggregate(everybody(60_000), key).posterior.shape == (2, 2)


def test_groups_through_items_are_those_of_the_pairs():
    rng = np.random.default_rng(1)
    for _ in range(20):
        N, M = 12, 15
        who = [np.sort(rng.choice(M, rng.integers(0, 3), replace=False)) for _ in range(N)]
        indptr = np.concatenate([[0], np.cumsum([len(w) for w in who])])
        annotator = np.concatenate(who).astype(np.int32)
        label = rng.integers(0, 2, len(annotator)).astype(np.int32)
        A = signed(cw.Votes(indptr, annotator, label, np.arange(N), np.arange(M), np.arange(2)), 1)
        assert np.array_equal(groups_through(A), groups_of(abs(A).T @ abs(A)))
