"""scikit-learn's protocol for parameters, without scikit-learn: stored as given, read, changed, cloned."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np

from crowdwise.errors import ParameterError, suggestion

__all__ = ["Parameterised", "check_seed"]


class Parameterised:
    """Something made from keyword-only parameters, which it stores as they were given."""

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The names of the parameters and their defaults."""
        signature = inspect.signature(cls)
        return {name: p.default for name, p in signature.parameters.items()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters as they were given."""
        return {name: getattr(self, name) for name in self.parameters()}

    def set_params(self, **params: Any) -> Self:
        """Change some parameters; the next fit uses them."""
        known = self.parameters()
        for name, value in params.items():
            if name not in known:
                raise ParameterError(
                    f"{type(self).__name__} has no parameter {name!r}: "
                    f"it has {', '.join(known)}.{suggestion(name, list(known))}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = {name: value for name, value in self.get_params().items() if not _same(value, self.parameters()[name])}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def check_seed(random_state: Any) -> None:
    """A seed is a non-negative whole number, or ``None``."""
    if random_state is not None and not (isinstance(random_state, (int, np.integer)) and random_state >= 0):
        raise ParameterError(f"random_state={random_state!r}: expected a non-negative integer or None.")


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, (str, int, float, bool)) and isinstance(b, (str, int, float, bool)) and a == b)
