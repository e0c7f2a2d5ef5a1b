"""Complaints about parameters say the name, what was found and what was expected."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from crowdwise.core.checks import check_choice, check_count, check_flag, check_number
from crowdwise.errors import ParameterError


def of(value):
    return SimpleNamespace(x=value)


@pytest.mark.parametrize("value", [1, 7, np.int32(3)])
def test_counts_that_are_fine(value):
    check_count(of(value), "x")


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, float("nan")])
def test_counts_that_are_not(value):
    with pytest.raises(ParameterError, match=r"^x=.*: expected a whole number of at least 1\.$"):
        check_count(of(value), "x")


@pytest.mark.parametrize(
    ("value", "bounds", "words"),
    [
        (-1.0, {"least": 0.0}, "a number of at least 0"),
        (0.0, {"above": 0.0}, "a number above 0"),
        (2.0, {"above": 0.0, "most": 1.0}, "a number above 0 and of at most 1"),
        (np.inf, {"least": 0.0}, "a number of at least 0"),
        (True, {"least": 0.0}, "a number of at least 0"),
        ("1", {"least": 0.0, "what": "a share"}, "a share"),
    ],
)
def test_numbers_out_of_bounds(value, bounds, words):
    with pytest.raises(ParameterError) as raised:
        check_number(of(value), "x", **bounds)
    assert str(raised.value) == f"x={value!r}: expected {words}."


def test_numbers_at_the_bounds():
    check_number(of(0), "x", least=0.0)
    check_number(of(np.float32(1.0)), "x", above=0.0, most=1.0)


def test_flags_and_choices():
    check_flag(of(np.True_), "x")
    check_choice(of("adam"), "x", ("adam", "sgd"))
    with pytest.raises(ParameterError, match="x=1: expected True or False"):
        check_flag(of(1), "x")
    with pytest.raises(ParameterError, match=r"x='adma': expected 'adam', 'sgd'\..*adam"):
        check_choice(of("adma"), "x", ("adam", "sgd"))
