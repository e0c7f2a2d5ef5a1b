"""Where exceptions of other packages end: what leaves crowdwise is one of its own errors, the original chained.

Three things can go wrong below a public function that is not one of our errors already:

- A library cannot read a file. What it raises becomes a :class:`~crowdwise.errors.ReadError` that names the file
  (:func:`reading`, around nothing but the calls that read).
- Memory or the range of numbers is exhausted: a :class:`~crowdwise.errors.SizeError`, a
  :class:`~crowdwise.errors.DivergedError`.
- Anything else is a mistake in crowdwise, and called that: an :class:`~crowdwise.errors.InternalError`. Bugs are not
  passed off as bad input.

What the user's own code raises (a callback, a generator, a network) passes as it is, and so do warnings that were made
errors.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from crowdwise.errors import CrowdwiseError, DivergedError, InputError, InternalError, ReadError, SizeError

PACKAGES = ("site-packages", "dist-packages")
LIBRARIES = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "purelib", "platlib")})
NUMERICAL = (ArithmeticError, np.linalg.LinAlgError)
Function = TypeVar("Function", bound=Callable[..., Any])


@contextmanager
def reading(path: Any, form: str = "", advice: str = "") -> Iterator[None]:
    """Around calls that read a file, in some form: whatever they raise is about the file."""
    try:
        yield
    except BaseException as error:
        if not foreign(error):
            raise
        if isinstance(error, MemoryError):
            raise SizeError(f"{path} does not fit into memory: {reason(error)}.") from error
        kind = f" as {form}" if form else ""
        raise ReadError(f"{path} could not be read{kind}: {reason(error)}. {advice}".rstrip()) from error


def reason(error: BaseException) -> str:
    """What an exception says, in one line; of an error of the system its words, without number and file."""
    text = getattr(error, "strerror", None) or str(error).strip()
    first = next(iter(str(text).splitlines()), "").strip().rstrip(".")
    return first[:300] if " " in first else f"{type(error).__name__}{': ' if first else ''}{first[:300]}"


def as_path(given: Any) -> Path:
    """What was given as the path of a file or folder."""
    try:
        path = Path(given)
        path.exists()
    except TypeError:
        raise InputError(
            f"Expected the path of a file, and found {type(given).__name__}. Tables in memory go to "
            "crowdwise.aggregate, or to from_frame of the table of their answers (Votes.from_frame)."
        ) from None
    except OSError as error:  # too long a name, most often
        raise ReadError(
            f"{str(given)[:60]!r}... is not a path: {reason(error)}. Write the text of a table to a file and name it."
        ) from None
    if not str(given) or "\0" in str(given):
        what = "is empty" if not str(given) else "holds a zero byte"
        raise InputError(f"The path {what}: expected that of a file or a folder (. for this one).")
    return path


def guarded(function: Function) -> Function:
    """A public function from which nothing but our own errors (and those of the user's code) comes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            trace = error.__traceback__
            unfit = isinstance(error, TypeError) and trace is not None and trace.tb_next is None  # arguments: none ran
            if not foreign(error) or any(theirs for _, _, _, theirs in _frames(error)) or unfit:
                raise
            raise _ours(error, _subject(args)) from error

    return cast("Function", call)


def caller_within(package: str) -> str:
    """The name of the nearest function of this package (of another library) among the callers, below any of the
    user's; nothing where there is none."""
    frame: Any = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            return ""
        if str(frame.f_globals.get("__name__", "")).startswith(package):
            return str(frame.f_code.co_name)
        frame = frame.f_back
    return ""


def scored_by_sklearn() -> bool:
    """Whether a cross-validation or search of scikit-learn among the callers will measure by a function of its own, for
    which answers are true labels. To be asked before the work is done: an error while it scores becomes NaN."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        known = frame.f_locals
        if str(frame.f_globals.get("__name__", "")).startswith("sklearn.model_selection"):
            scorers = known.get("scorer") or known.get("scorers") or known.get("scoring")
            scorers = getattr(scorers, "_scorers", scorers)
            for one in scorers.values() if isinstance(scorers, dict) else [scorers]:
                if str(getattr(getattr(one, "_score_func", None), "__module__", "")).startswith("sklearn.metrics"):
                    return True
        frame = frame.f_back
    return False


def foreign(error: BaseException) -> bool:
    """Whether an exception is neither ours, nor a warning, nor a request to stop. Panics of polars are no Exception."""
    known = isinstance(error, (CrowdwiseError, Warning))
    return not known and (isinstance(error, Exception) or type(error).__name__ == "PanicException")


def _subject(args: tuple[Any, ...]) -> str:
    """What an error is about: a method by its key, a file by its name."""
    for value in args[:2]:
        if isinstance(value, (str, os.PathLike)):
            return str(value)
        if not isinstance(value, type) and isinstance(key := getattr(value, "key", None), str):
            return key
    return ""


def _ours(error: BaseException, subject: str) -> CrowdwiseError:
    about = f"{subject}: " if subject else ""
    if isinstance(error, MemoryError):
        return SizeError(f"{about}that does not fit into memory ({reason(error)}).")
    if isinstance(error, NUMERICAL):
        return DivergedError(
            f"{about}the computation broke down on these answers ({reason(error)}). Extreme answers or weights may be "
            "the cause: check them, or take another method."
        )
    return InternalError(f"{about}{blame(error)}")


def blame(error: BaseException) -> str:
    """An exception that should not have been raised, with its place, as it should be reported."""
    place = ""
    for file, line, ours, _ in _frames(error):
        if ours:
            place = f" ({Path(file).name}, line {line})"
    words = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}{': ' if words else ''}{words[:300]}{place}"


def _frames(error: BaseException) -> Iterator[tuple[str, int, bool, bool]]:
    """File and line of the frames an exception went through, the outermost first, whether it is ours or the user's."""
    trace = error.__traceback__
    while trace is not None:
        file, module = trace.tb_frame.f_code.co_filename, str(trace.tb_frame.f_globals.get("__name__"))
        ours = module.partition(".")[0] == "crowdwise"
        inside = (
            file.startswith("<")
            or any(part in file for part in PACKAGES)
            or os.path.realpath(file).startswith(LIBRARIES)
        )
        yield file, trace.tb_lineno, ours, not ours and (module == "__main__" or not inside)
        trace = trace.tb_next
