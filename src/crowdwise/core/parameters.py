"""scikit-learn's protocol for parameters, without scikit-learn: stored as given, read, changed, cloned.

A class says which parameters it has by annotated attributes with defaults, under :func:`declared`. It has those of its
bases, too: what a family shares is declared and described once.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar, dataclass_transform

import numpy as np

from crowdwise.errors import ParameterError, suggestion

__all__ = ["Parameterised", "check_seed", "declared", "leading"]

Class = TypeVar("Class", bound=type)


def leading(*, default: Any) -> Any:
    """A parameter of a family that comes before those its members add."""
    return field(default=default, metadata={"leading": True})


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field, leading))
def declared(cls: Class) -> Class:
    """Give a class a constructor that takes its annotated attributes by name, and stores them.

    Its own parameters come first, then those of its bases, save the :func:`leading` ones. ``field(init=False)`` marks
    an attribute that is no parameter: one that a fit sets, or one of a base that the class does not offer.
    """
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    given = inspect.signature(made.__init__).parameters
    names = [f.name for f in fields(made) if f.metadata.get("leading")]
    names += [name for c in made.__mro__ for name in inspect.get_annotations(c)]
    ordered = [given[name] for name in dict.fromkeys(["self", *names]) if name in given]
    made.__init__.__signature__ = inspect.Signature(ordered)
    return cls


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
