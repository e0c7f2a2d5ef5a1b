"""Parameters of models and functions, and what they may be, declared by annotations.

=====================================  ==========================================
annotation                             allowed
=====================================  ==========================================
``bool``, ``str``                      True or False; text
``int``, ``float``                     a whole number; a finite number
``Count``, ``Positive``, ``Share``...  a number within bounds: see the aliases
``Annotated[float, Bounds(above=1)]``  a number within these bounds
``Literal["sum", "max"]``              one of these words
``Annotated[Any, Check(f, "...")]``    what f says yes to; the text says what it is
``A | B``, ``A | None``                what one of them allows
``Any`` and all else                   anything: the class checks it itself
=====================================  ==========================================

Functions check their arguments under :func:`checked`. Models follow scikit-learn's protocol without scikit-learn: a
class has its annotated attributes as parameters, under :func:`declared`, and those of its bases;
:meth:`Parameterised.check_parameters` refuses values that the annotations do not allow.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial, wraps
from typing import Annotated, Any, Literal, ParamSpec, Self, TypeVar, dataclass_transform

import numpy as np

from crowdwise.errors import ParameterError, Setting, either, suggestion


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and no truth value."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and bool(np.isfinite(value))


def is_count(value: Any) -> bool:
    """Whether it is a whole number, and no truth value."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


@dataclass(frozen=True)
class Bounds:
    """Where a number may lie; ``above`` and ``below`` leave the bound itself out. ``meaning`` is added to the error."""

    minimum: float = -np.inf
    maximum: float = np.inf
    above: float = -np.inf
    below: float = np.inf
    meaning: str = ""

    def hold(self, value: Any) -> bool:
        """Whether a number, or all of an array, lies within."""
        v = np.asarray(value)
        inside = (v >= self.minimum) & (v <= self.maximum) & (v > self.above) & (v < self.below)
        return bool(inside.all())

    def words(self, noun: str) -> str:
        """``a number above 0 and of at most 1``"""
        parts = [f"of at least {self.minimum:g}"] if self.minimum > -np.inf else []
        parts += [f"above {self.above:g}"] if self.above > -np.inf else []
        parts += [f"of at most {self.maximum:g}"] if self.maximum < np.inf else []
        parts += [f"below {self.below:g}"] if self.below < np.inf else []
        text = " ".join([noun, " and ".join(parts)]).strip()
        return f"{text} ({self.meaning})" if self.meaning else text


def are_numbers(value: Any, bounds: Bounds, shapes: tuple[tuple[int, ...], ...] = ()) -> bool:
    """Whether it is a number or an array of finite numbers within the bounds, of one of the shapes (if any)."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    fits = not shapes or array.shape in shapes
    return fits and not isinstance(value, (bool, str)) and bool(np.isfinite(array).all()) and bounds.hold(array)


@dataclass(frozen=True)
class Check:
    """What a parameter may be: a test, and what is expected in words.

    ``accepts`` and ``refuses`` are examples, at the bounds where there are some: the contract tests try them.
    """

    allows: Callable[[Any], bool]
    expected: str
    accepts: tuple[Any, ...] = ()
    refuses: tuple[Any, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`~crowdwise.errors.ParameterError` where the value is not allowed."""
        if not self.allows(value):
            words = [word for word in self.accepts if isinstance(word, str)]
            near = suggestion(value, words) if isinstance(value, str) else ""
            raise ParameterError(f"expected {self.expected}.{near}", about=Setting(name, value))


@cache
def constraint_of(annotation: Any) -> Check | None:
    """The constraint that an annotation states; ``None`` where it allows anything."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        kind, *notes = arguments
        for note in notes:
            if isinstance(note, Check):
                return replace(note, refuses=(*note.refuses, object()))
            if isinstance(note, Bounds):
                return _number(kind, note)
        return constraint_of(kind)
    if origin is Literal:
        words = either([repr(word) for word in arguments])
        return Check(
            lambda v: any(type(v) is type(word) and v == word for word in arguments), words, arguments,
            ("no such word", 1.5, object()),
        )  # fmt: skip
    if origin in (typing.Union, types.UnionType):
        return _union([constraint_of(argument) for argument in arguments])
    if annotation is None or annotation is type(None):
        return Check(lambda v: v is None, "None", (None,), (object(),))
    if annotation is bool:
        return Check(lambda v: isinstance(v, (bool, np.bool_)), "True or False", (True, False), (1, "yes", None))
    if annotation is str:
        return Check(lambda v: isinstance(v, str), "text", ("text",), (1, None))
    if annotation in (int, float):
        return _number(annotation, Bounds())
    return None


def _number(kind: Any, bounds: Bounds) -> Check:
    whole = kind is int
    is_one, noun = (is_count, "a whole number") if whole else (is_number, "a number")
    step: Any = 1 if whole else 0.5
    low, high = max(bounds.minimum, bounds.above), min(bounds.maximum, bounds.below)
    tried = [low, high, low + step, high - step, low - step, high + step, (low + high) / 2, 0 if whole else 0.5]
    values = [int(v) if whole else v for v in tried if np.isfinite(v)]
    accepts = tuple(dict.fromkeys(v for v in values if bounds.hold(v)))
    refused = tuple(dict.fromkeys(v for v in values if not bounds.hold(v)))
    odd = (True, np.nan, np.inf, "no such word", None, object(), *((low + 0.5,) if np.isfinite(low) and whole else ()))
    return Check(lambda v: is_one(v) and bounds.hold(v), bounds.words(noun), accepts, (*refused, *odd))


def _union(members: list[Check | None]) -> Check | None:
    stated = [member for member in members if member is not None]
    if len(stated) < len(members):
        return None  # one of them allows anything
    return Check(
        lambda v: any(member.allows(v) for member in stated),
        either([member.expected for member in stated]),
        tuple(v for member in stated for v in member.accepts),
        tuple(v for member in stated for v in member.refuses if not any(other.allows(v) for other in stated)),
    )


P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function refuse arguments that its annotations do not allow.

    >>> @checked
    ... def half(level: Fraction) -> float:
    ...     return level / 2.0
    >>> half(level=2)
    Traceback (most recent call last):
    crowdwise.errors.ParameterError: level=2: expected a number above 0 and below 1.
    """
    signature, hints = inspect.signature(function), cache(partial(typing.get_type_hints, function, include_extras=True))

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # said better by the call itself
            return function(*args, **kwargs)
        for name, value in arguments.items():
            if (constraint := constraint_of(hints().get(name, Any))) is not None:
                constraint.check(name, value)
        return function(*args, **kwargs)

    return call


Count = Annotated[int, Bounds(minimum=1)]
CountFromZero = Annotated[int, Bounds(minimum=0)]
Positive = Annotated[float, Bounds(above=0)]
NonNegative = Annotated[float, Bounds(minimum=0)]
Share = Annotated[float, Bounds(minimum=0, maximum=1)]
"""From 0 to 1, both included."""
Fraction = Annotated[float, Bounds(above=0, below=1)]
"""Between 0 and 1."""
MethodKey = Annotated[str, Check(lambda value: isinstance(value, str), "the key of a method", ("majority",), (1, None))]
"""A method, by its key in the registry."""


RandomState = Annotated[int | np.random.Generator | None, Check(
    lambda value: value is None or isinstance(value, np.random.Generator) or (is_count(value) and value >= 0),
    "None, a whole number of at least 0, or a numpy Generator",
)]  # fmt: skip
"""What everything random takes: a seed, a generator to draw from, or None for another result each time."""


def fixed_seed(random_state: RandomState) -> int:
    """A seed to draw the same numbers with more than once: the one given, or one drawn here."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(np.random.default_rng(random_state).integers(2**32))


def seed_of(random_state: RandomState) -> int | None:
    """The seed that a result can be made again with; None where there is none."""
    return None if isinstance(random_state, np.random.Generator) else random_state


Class = TypeVar("Class", bound=type)


def leading(*, default: Any) -> Any:
    """A parameter of a family that comes before those its members add."""
    return field(default=default, metadata={"leading": True})


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field, leading))
def declared(cls: Class) -> Class:
    """Give a class a constructor that takes its annotated attributes by name, and stores them.

    Its own parameters come first, then those of its bases, save the :func:`leading` ones. ``field(init=False)`` marks
    an attribute that is not a parameter: one that a fit sets, or one of a base that the class does not offer.
    """
    data_class: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    parameters = inspect.signature(data_class.__init__).parameters
    names = [f.name for f in fields(data_class) if f.metadata.get("leading")]
    names += [name for c in data_class.__mro__ for name in inspect.get_annotations(c)]
    ordered = [parameters[name] for name in dict.fromkeys(["self", *names]) if name in parameters]
    data_class.__init__.__signature__ = inspect.Signature(ordered)
    return cls


class Parameterised:
    """Something made from keyword-only parameters, which it stores as they were given."""

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """The names of the parameters and their defaults."""
        return {name: p.default for name, p in inspect.signature(cls).parameters.items()}

    @classmethod
    def constraints(cls) -> dict[str, Check]:
        """What each parameter may be, for those whose annotation says so."""
        return {
            name: constraint
            for name in cls.parameters()
            if (constraint := constraint_of(annotation(cls, name))) is not None
        }

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
        changed = {
            name: value for name, value in self.get_params().items() if not _same(value, self.parameters()[name])
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


def annotation(cls: type, name: str) -> Any:
    """The annotation of an attribute, read where it was written; ``Any`` where there is none."""
    for c in cls.__mro__:
        hint = inspect.get_annotations(c).get(name)
        if hint is not None:
            return eval(hint, vars(sys.modules[c.__module__])) if isinstance(hint, str) else hint
    return Any


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, (str, int, float, bool)) and isinstance(b, (str, int, float, bool)) and a == b)
