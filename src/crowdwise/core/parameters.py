"""Parameters of models: declared once with what they may be, stored as given, read, changed, cloned.

This is scikit-learn's protocol without scikit-learn. A class has its annotated attributes as parameters, under
:func:`declared`, and those of its bases: what a family shares is declared and described once. The annotation says which
values are allowed (:mod:`crowdwise.core.constraints`), and :meth:`Parameterised.check_parameters` refuses all others::

    strength: Positive = 1.0
    df: Positive | Literal["learned"] = "learned"
    max_iter: Count = 500
    norm: Literal["sum", "max"] = "sum"
    hedge: bool = True
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar, dataclass_transform

from crowdwise.core.constraints import Constraint, constraint_of
from crowdwise.errors import ParameterError, suggestion

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

    @classmethod
    def constraints(cls) -> dict[str, Constraint]:
        """What each parameter may be, for those whose annotation says so."""
        return {name: found for name in cls.parameters() if (found := constraint_of(annotation(cls, name))) is not None}

    def check_parameters(self) -> None:
        """Refuse values that are not allowed: each alone (as declared), then together (``_check_together``)."""
        for name, constraint in self.constraints().items():
            constraint.check(name, getattr(self, name))
        self._check_together()

    def _check_together(self) -> None:
        """Refuse values that do not go together; subclasses add their own."""

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


def annotation(cls: type, name: str) -> Any:
    """The annotation of an attribute, read where it was written; ``Any`` where there is none."""
    for c in cls.__mro__:
        found = inspect.get_annotations(c).get(name)
        if found is not None:
            return eval(found, vars(sys.modules[c.__module__])) if isinstance(found, str) else found
    return Any


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, (str, int, float, bool)) and isinstance(b, (str, int, float, bool)) and a == b)
