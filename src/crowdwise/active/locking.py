"""Methods that one thread at a time is in."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

__all__ = ["alone"]

F = TypeVar("F", bound=Callable[..., Any])


def alone(method: F) -> F:
    """A method of something with a ``lock`` that one thread at a time is in."""

    @wraps(method)
    def locked(self: Any, *given: Any, **named: Any) -> Any:
        with self.lock:
            return method(self, *given, **named)

    return locked  # type: ignore[return-value]
