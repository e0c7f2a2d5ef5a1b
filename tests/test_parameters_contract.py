"""Parameters of every method, learner and method of other answers: what their annotations allow, and what they refuse.

Examples of both come with each constraint (:class:`crowdwise.core.constraints.Check`), at the bounds where there
are some. Whatever a parameter is, an object that is nothing of the kind is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crowdwise import registry
from crowdwise.errors import ParameterError

ENTRIES = {
    f"{group}:{key}": entry
    for group in ("METHODS", "LEARNERS", "ANSWER_METHODS")
    for key, entry in getattr(registry, group).items()
}


class Nothing:
    """What no parameter may be."""

    def __repr__(self) -> str:
        return "Nothing()"


@pytest.fixture(params=ENTRIES)
def model(request: pytest.FixtureRequest) -> Any:
    found = ENTRIES[request.param].load()
    return found


def examples(model: Any, kind: str) -> Iterator[tuple[str, Any]]:
    """(name, value) of every example of every constraint."""
    for name, constraint in model.constraints().items():
        for value in getattr(constraint, kind):
            yield name, value


def complaint(model: Any, name: str, value: Any) -> str:
    """What is said about one wrong parameter."""
    with pytest.raises(ParameterError) as caught:
        model(**{name: value}).check_parameters()
    return str(caught.value)


def test_what_a_constraint_refuses_is_refused_by_name(model: Any) -> None:
    for name, value in examples(model, "refuses"):
        assert complaint(model, name, value).startswith(f"{name}={value!r}: expected "), (name, value)


def test_what_a_constraint_accepts_is_accepted(model: Any) -> None:
    for name, value in examples(model, "accepts"):
        model(**{name: value}).check_parameters()


def test_every_constraint_has_an_example_that_is_refused_and_every_default_is_allowed(model: Any) -> None:
    model().check_parameters()
    for name, constraint in model.constraints().items():
        assert constraint.refuses, name
        constraint.check(name, model.parameters()[name])


def test_an_object_that_is_nothing_of_the_kind_is_refused_by_name(model: Any) -> None:
    for name in model.parameters():
        assert name in complaint(model, name, Nothing()), name


def test_parameters_are_checked_before_data_is_looked_at(model: Any) -> None:
    name = next(iter(model.constraints()), None)
    if name is None:
        assert not model.parameters()
        return
    data = [Nothing() for p in list(inspect.signature(model.fit).parameters.values())[1:] if p.default is p.empty]
    with pytest.raises(ParameterError, match=name):
        model(**{name: Nothing()}).fit(*data)


def test_numpy_numbers_are_numbers(model: Any) -> None:
    for name, value in examples(model, "accepts"):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            number = np.int64(value) if isinstance(value, int) else np.float64(value)
            model.constraints()[name].check(name, number)
            assert model(**{name: number}).get_params()[name] == value
