"""What can go wrong: errors, warnings, and what to do about them.

Every message says what was found, where, what was expected, and what to do about it. What to do is a
:class:`Remedy`: it names options, which Python and the command line spell each in their own way.

>>> twice = DuplicateError(
...     "Rows 3 and 8: 'ann' labelled 'a' twice.",
...     remedy=Remedy("Keep one with {}.", Option("on_duplicate", "first", "last")),
... )
>>> print(twice)
Rows 3 and 8: 'ann' labelled 'a' twice. Keep one with on_duplicate='first' or 'last'.
>>> twice.for_cli(lambda option: f"--{option.name.replace('_', '-')} {option.choice()}")
"Rows 3 and 8: 'ann' labelled 'a' twice. Keep one with --on-duplicate first or last."
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from shlex import quote
from typing import Any

__all__ = [
    "AlignmentWarning", "ColumnError", "ConnectionWarning", "ConvergenceWarning", "CrowdwiseError", "DivergedError",
    "DuplicateError", "ExtraError", "InputError", "InputWarning", "InternalError", "LabelError", "NotFittedError",
    "Option", "OutputError", "ParameterError", "ReadError", "Remedy", "SelectionError", "Setting", "SizeError",
]  # fmt: skip


class Option:
    """An argument that a remedy names, with the values to choose from.

    Without values, ``python`` and ``command`` stand for what the user has to fill in.

    >>> print(Option("on_duplicate", "first", "last", "all"))
    on_duplicate='first', 'last' or 'all'
    >>> print(Option("item"), Option("classes", python="[...]", command="A,B,C"), sep="; ")
    item='...'; classes=[...]
    """

    def __init__(self, name: str, *values: Any, python: str = "'...'", command: str = "NAME") -> None:
        self.name, self.values, self.python, self.command = name, values, python, command

    def __str__(self) -> str:
        return f"{self.name}={either([repr(value) for value in self.values]) or self.python}"

    def choice(self) -> str:
        """The values as the command line takes them."""
        return either([quote(str(value)) for value in self.values]) or self.command


class Setting(Option):
    """A parameter of a method: ``--set name=value`` on the command line, where it has no option of its own."""


class Remedy:
    """What to do about an error: a constant sentence with ``{}`` for each option. (Names found in data may hold braces:
    they belong in the message.)

    ``command`` is what the command line says instead: where a command lacks one of the options, or, of a remedy without
    options, always. By default it then says nothing, or the same.
    """

    def __init__(self, text: str, *options: Option, command: str | None = None) -> None:
        self.text, self.options, self.command = text, options, command

    def __str__(self) -> str:
        return self.text.format(*self.options)

    def for_cli(self, spell: Callable[[Option], str | None]) -> str:
        """The remedy for the command line; ``spell`` words an option, or gives ``None`` where there is no such."""
        spelled = [spell(option) for option in self.options]
        if None in spelled or (self.command is not None and not self.options):
            return self.command or ""
        return self.text.format(*spelled)


class UserFacingError(Exception):
    """What is said in Python and on the command line, each in its own words.

    ``message`` says what is wrong (``about`` which argument, where it is about one), ``remedies`` what to do about it;
    ``str(error)`` says all of it for Python.
    """

    def __init__(
        self, message: str = "", *, about: Option | None = None, remedy: Remedy | Sequence[Remedy] = ()
    ) -> None:
        self.message, self.about = message, about
        self.remedies = (remedy,) if isinstance(remedy, Remedy) else tuple(remedy)
        subject = "" if about is None else f"{about}: "
        super().__init__(" ".join(filter(None, (f"{subject}{message}", *map(str, self.remedies)))))

    def for_cli(self, spell: Callable[[Option], str | None]) -> str:
        """The same for the command line, see :meth:`Remedy.for_cli`."""
        subject = "" if self.about is None else f"{spell(self.about) or self.about}: "
        remedies = (remedy.for_cli(spell) for remedy in self.remedies)
        return " ".join(filter(None, (f"{subject}{self.message}", *remedies)))


class CrowdwiseError(UserFacingError):
    """The root: catch this to catch everything crowdwise raises on purpose.

    >>> print(ParameterError("expected a number above 0.", about=Setting("tol", -1)))
    tol=-1: expected a number above 0.
    """


class InputError(CrowdwiseError, ValueError):
    """The data handed in cannot be used as it is."""


class ReadError(InputError):
    """A file is missing, empty, or not what its name says."""


class ColumnError(InputError):
    """A table lacks a column, or a column cannot be told apart from another."""


class LabelError(InputError):
    """A label or a true class is missing or was never declared."""


class DuplicateError(InputError):
    """The same annotator labelled the same item more than once. Of the repeated rows ``identical`` say what the one
    before says, and ``conflicting`` something else, where that is known."""

    identical: int | None = None
    conflicting: int | None = None


class SizeError(InputError, MemoryError):
    """The data, or what a method makes of them, do not fit into the memory of the machine."""


class SelectionError(InputError, IndexError):
    """Items were asked for that a table does not have, or in a way that it does not know."""


class ParameterError(CrowdwiseError, ValueError):
    """A method or a parameter is unknown or out of range."""


class NotFittedError(CrowdwiseError, AttributeError):
    """A result was asked of a model that has not been fitted."""


class DivergedError(CrowdwiseError, ArithmeticError):
    """Training ran away: the loss is NaN or infinite."""


class ExtraError(CrowdwiseError, ImportError):
    """An optional part of the installation is needed and not there."""


class OutputError(CrowdwiseError, OSError):
    """A result could not be written; nothing was left half-written."""


class ServiceError(CrowdwiseError, ConnectionError):
    """A server that was asked does not answer, refuses, or answers with something else."""


class InternalError(CrowdwiseError, RuntimeError):
    """A mistake in crowdwise itself: please report it. What went wrong is its ``__cause__``."""


class InputWarning(UserFacingError, UserWarning):
    """Part of the data was left out, or may not be what it was taken for."""


class AlignmentWarning(InputWarning):
    """Rows were put beside items by position, since they have no names."""


class ConvergenceWarning(UserWarning):
    """A fit stopped at ``max_iter`` before the objective settled."""


class ConnectionWarning(UserWarning):
    """Some items are not joined by comparisons: how they stand to each other is up to the prior."""


def warn(message: str, *, remedy: Remedy | Sequence[Remedy] = (), category: type[InputWarning] | None = None) -> None:
    """A line about the data: an :class:`InputWarning` at the user's own line, which commands show as a note."""
    for heard in _LISTENERS.get():
        heard.append(message)
    warnings.warn((category or InputWarning)(message, remedy=remedy), stacklevel=user_level())


def user_level() -> int:
    """The ``stacklevel`` by which a warning that is given here is at the user's own line."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "crowdwise":
        frame, level = frame.f_back, level + 1
    return level


_LISTENERS: ContextVar[tuple[list[str], ...]] = ContextVar("_LISTENERS", default=())


@contextmanager
def listening() -> Iterator[list[str]]:
    """The messages of :func:`warn` inside the block, without their remedies, in whatever way warnings are shown."""
    heard: list[str] = []
    token = _LISTENERS.set((*_LISTENERS.get(), heard))
    try:
        yield heard
    finally:
        _LISTENERS.reset(token)


def listing(values: Iterable[Any], limit: int = 5) -> str:
    """``'a', 'b', 'c' and 7 more``: a few values, then how many were left out."""
    values = list(values)
    shown = ", ".join(repr(v.item() if hasattr(v, "item") else v) for v in values[:limit])
    more = len(values) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def either(words: Sequence[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def several_names(names: Any, what: str) -> list[Any]:
    """Names as a list. A text alone (whose letters would be names) and a table (its columns) are errors.

    >>> several_names(("a", "b"), "items")
    ['a', 'b']
    """
    if isinstance(names, (str, bytes)):
        raise InputError(f"Expected a list of {what} and found {names!r}: write [{names!r}]. Nothing was changed.")
    if hasattr(names, "columns"):
        raise InputError(
            f"Expected a list of {what} and found a table: give its column of names, such as table[{what[:-1]!r}]. "
            "Nothing was changed."
        )
    return list(names)


def suggestion(word: str, known: Sequence[str]) -> str:
    """`` Did you mean 'x'?`` where something known is close to the word, else nothing."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""
