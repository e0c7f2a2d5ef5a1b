"""Plain Python threads for compiled code, which releases the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from crowdwise.kernels.reference import Ints

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
