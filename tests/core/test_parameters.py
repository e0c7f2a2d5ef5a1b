"""Parameters that are declared once: whose they are, in which order, and what is none."""

from __future__ import annotations

import inspect
from dataclasses import field
from typing import Any, ClassVar

import pytest
from sklearn.base import clone

import crowdwise as cw
from crowdwise.core.constraints import Parameterised, declared, leading


@declared
class Base(Parameterised):
    key: ClassVar[str] = "base"
    ties: str = "prior"
    seed: int | None = None
    found_: Any = field(init=False)


@declared
class Family(Base):
    refine: bool = leading(default=True)
    tol: float = 1e-7
    restarts: int = 0


@declared
class Member(Family):
    own: float = 2.0
    seed: int | None = 7
    restarts: int = field(default=3, init=False)


class Plain(Member):
    """One that adds nothing."""


class Other(Member):
    def __init__(self, *, another: int = 1) -> None:
        super().__init__()
        self.another = another


def test_its_own_come_first_then_those_of_its_bases_and_leading_ones_ahead():
    assert list(Base.parameters()) == ["ties", "seed"]
    assert list(Family.parameters()) == ["refine", "tol", "restarts", "ties", "seed"]
    assert list(Member.parameters()) == ["refine", "own", "seed", "tol", "ties"]
    assert Plain.parameters() == Member.parameters()


def test_what_is_no_parameter_is_not_taken():
    model = Member()
    assert model.restarts == 3
    assert not hasattr(model, "found_")
    with pytest.raises(TypeError, match="restarts"):
        Member(restarts=1)
    with pytest.raises(TypeError):
        Member(2.0)  # by name alone


def test_they_are_stored_as_given_and_shown_where_they_differ():
    model = Member(own=3.0, refine=False)
    assert model.get_params() == {"refine": False, "own": 3.0, "seed": 7, "tol": 1e-7, "ties": "prior"}
    assert repr(model) == "Member(refine=False, own=3.0)"
    assert clone(model).get_params() == model.get_params()


def test_a_constructor_of_ones_own_is_seen():
    assert list(Other.parameters()) == ["another"]
    assert list(inspect.signature(Member).parameters)[:2] == ["refine", "own"]


def test_methods_that_do_not_offer_a_parameter_of_their_base_refuse_it():
    assert "accelerate" not in cw.FastDawidSkene.parameters()
    with pytest.raises(TypeError, match="accelerate"):
        cw.FastDawidSkene(accelerate=True)
