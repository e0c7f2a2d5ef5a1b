"""What can go wrong, as a tree.

::

    CrowdwiseError
    ├── InputError (ValueError)       the data handed in cannot be used as it is
    │   ├── ReadError                 a file is missing, empty, or not what its name says
    │   ├── ColumnError               a table lacks a column, or a column cannot be told apart
    │   ├── LabelError                a label or a true class is missing or was never declared
    │   └── DuplicateError            an annotator labelled an item twice
    ├── ParameterError (ValueError)   a method or a parameter is unknown or out of range
    ├── NotFittedError                a result was asked of a model that has not been fitted
    ├── DivergedError (ArithmeticError)  training ran away to NaN or infinity
    ├── ExtraError (ImportError)      an optional part of the installation is needed and not there
    └── OutputError (OSError)         a result could not be written; nothing was left half-written

    ConvergenceWarning (UserWarning)  a fit stopped at ``max_iter`` before it settled
    ConnectionWarning (UserWarning)   some items are not joined by comparisons: how they stand is up to the prior

Every message says what was found, where, what was expected, and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "ColumnError",
    "ConnectionWarning",
    "ConvergenceWarning",
    "CrowdwiseError",
    "DivergedError",
    "DuplicateError",
    "ExtraError",
    "InputError",
    "LabelError",
    "NotFittedError",
    "OutputError",
    "ParameterError",
    "ReadError",
]


class CrowdwiseError(Exception):
    """The root: catch this to catch everything crowdwise raises on purpose."""


class InputError(CrowdwiseError, ValueError):
    """The data handed in cannot be used as it is."""


class ReadError(InputError):
    """A file is missing, empty, or not what its name says."""


class ColumnError(InputError):
    """A table lacks a column, or a column cannot be told apart from another."""


class LabelError(InputError):
    """A label or a true class is missing or was never declared."""


class DuplicateError(InputError):
    """The same annotator labelled the same item more than once."""


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


class ConvergenceWarning(UserWarning):
    """A fit stopped at ``max_iter`` before the objective settled."""


class ConnectionWarning(UserWarning):
    """Some items are not joined by comparisons: how they stand to each other is up to the prior."""


def listing(values: Iterable[Any], limit: int = 5) -> str:
    """``'a', 'b', 'c' and 7 more``: a few values, then how many were left out."""
    values = list(values)
    shown = ", ".join(repr(v.item() if hasattr(v, "item") else v) for v in values[:limit])
    more = len(values) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def suggestion(word: str, known: Sequence[str]) -> str:
    """`` Did you mean 'x'?`` where something known is close to the word, else nothing."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""
