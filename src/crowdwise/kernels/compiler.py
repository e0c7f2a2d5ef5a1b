"""numba's ``njit``, which compiles on every machine: what it keeps on disk is a help and never a condition.

Compiled code is kept beside the package, else in the user's cache (``NUMBA_CACHE_DIR`` names another place). Where
neither can be written (a read-only package, no home, another user), functions are compiled in every process and kept
nowhere. A cache that is damaged, or a disk that is full, costs time and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numba
import numpy as np

from crowdwise.kernels.reference import Ints


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As :func:`numba.njit`."""

    def compiled(function: Callable[..., Any]) -> Any:
        if options.get("cache") and _can_keep(function):
            with suppress(RuntimeError):  # numba found no place that it can write to
                return _forgiving(numba.njit(**options)(function))
        return numba.njit(**{**options, "cache": False})(function)

    return compiled


def _can_keep(function: Callable[..., Any]) -> bool:
    """Whether there is a place at all. Without a home, numba would make a folder called ``~`` in the current one."""
    beside = os.path.dirname(function.__code__.co_filename)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~")
    return bool(os.environ.get("NUMBA_CACHE_DIR")) or os.path.isabs(home) or os.access(beside, os.W_OK)


def _forgiving(dispatcher: Any) -> Any:
    """A function whose cache is passed over where it cannot be read or written."""
    kept = getattr(dispatcher, "_cache", None)
    if kept is None or not hasattr(kept, "save_overload") or not hasattr(kept, "load_overload"):
        return dispatcher
    save, load = kept.save_overload, kept.load_overload

    def save_overload(*args: Any) -> None:
        with suppress(Exception):  # a full disk; an index that is damaged
            save(*args)

    def load_overload(*args: Any) -> Any:
        try:
            return load(*args)
        except Exception:  # whatever a damaged file makes of itself
            return None

    kept.save_overload, kept.load_overload = save_overload, load_overload
    return dispatcher


VOTES_PER_THREAD = 50_000
"""The fewest votes for which another thread pays."""


def threads_for(n_votes: int, n_cells: int) -> int:
    """How many threads to use: each holds a table of ``n_cells`` rows, which must be small compared with the votes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = int(os.environ.get("CROWDWISE_THREADS", 0)) or cores
    return max(1, min(limit, n_votes // max(1, n_cells), n_votes // VOTES_PER_THREAD))


def item_cuts(indptr: Ints, T: int) -> Ints:
    """T runs of items with about equally many votes."""
    cuts = np.searchsorted(indptr, np.linspace(0, indptr[-1], T + 1))
    cuts[0], cuts[-1] = 0, len(indptr) - 1
    return cuts


def even_cuts(n: int, T: int) -> Ints:
    """T runs of about equal length."""
    return np.linspace(0, n, T + 1).astype(np.int64)


def in_threads(work: Callable[[int], Any], T: int) -> None:
    """Do ``work(0)`` to ``work(T - 1)``, one thread each; an error in one is raised here."""
    if T == 1:
        work(0)
        return
    with ThreadPoolExecutor(T) as pool:
        for done in [pool.submit(work, t) for t in range(T)]:
            done.result()
