"""Complaints about parameters of a model, by name: what was found, and what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.errors import ParameterError, suggestion

__all__ = ["check_choice", "check_count", "check_flag", "check_number", "is_number"]


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and no truth value."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and bool(np.isfinite(value))


def check_count(model: Any, name: str, *, least: int = 1) -> None:
    """Refuse a parameter that is not a whole number of at least ``least``."""
    value = getattr(model, name)
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise ParameterError(f"{name}={value!r}: expected a whole number of at least {least}.")


def check_number(
    model: Any,
    name: str,
    *,
    least: float = -np.inf,
    above: float = -np.inf,
    most: float = np.inf,
    what: str | None = None,
) -> None:
    """Refuse a parameter that is not a finite number in these bounds, which ``what`` puts in words."""
    value = getattr(model, name)
    if not is_number(value) or value < least or value <= above or value > most:
        bounds = [f"of at least {least:g}"] if least > -np.inf else []
        bounds += [f"above {above:g}"] if above > -np.inf else []
        bounds += [f"of at most {most:g}"] if most < np.inf else []
        raise ParameterError(f"{name}={value!r}: expected {what or 'a number ' + ' and '.join(bounds)}.")


def check_flag(model: Any, name: str, what: str = "True or False") -> None:
    """Refuse a parameter that is neither true nor false."""
    value = getattr(model, name)
    if not isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"{name}={value!r}: expected {what}.")


def check_choice(model: Any, name: str, choices: tuple[str, ...]) -> None:
    """Refuse a parameter that is none of these words."""
    value = getattr(model, name)
    if value not in choices:
        raise ParameterError(
            f"{name}={value!r}: expected {', '.join(map(repr, choices))}.{suggestion(str(value), list(choices))}"
        )
