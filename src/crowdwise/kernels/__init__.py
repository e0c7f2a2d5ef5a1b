"""The arithmetic, on raw arrays. ``reference`` defines it in numpy; ``native`` is the same, compiled; ``cuda`` has the
pass over the votes for a GPU.

Loading a compiler costs more than it saves on small data, so the path is chosen by the amount of work; :func:`using`
(or the environment variable ``CROWDWISE_ENGINE``) overrides the choice. ``cuda`` is never chosen unasked; what it has
no kernel for runs as with ``auto``. The functions below are those of :mod:`crowdwise.kernels.reference`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from crowdwise.kernels import reference
from crowdwise.kernels.reference import Floats, Ints

NATIVE_WORK = 600_000
"""Votes times classes from which a pass is worth compiled code, when that has yet to be loaded."""
KERNEL_SETS = ("auto", "reference", "native", "cuda")

_chosen: ContextVar[str | None] = ContextVar("engine", default=None)


@contextmanager
def using(engine: str) -> Iterator[None]:
    """Compute with an engine inside of the block, wherever none is named."""
    before = _chosen.set(engine)
    try:
        yield
    finally:
        _chosen.reset(before)


def asked_for() -> str:
    """The engine of the block (:func:`using`), or that of the environment."""
    return _chosen.get() or os.environ.get("CROWDWISE_ENGINE", "auto")


def available() -> bool:
    """Whether the engine can be used on this machine."""
    if asked_for() != "cuda":
        return True
    try:
        from crowdwise.kernels import cuda
    except ImportError:
        return False
    return cuda.available()


def choose(work: int, votes: bool = False) -> Any:
    """The module to compute with: ``reference`` or ``native``; for sums over ``votes``, which a GPU may have, ``cuda``
    where it was asked for."""
    engine = asked_for()
    if votes and engine == "cuda":
        from crowdwise.kernels import cuda

        return cuda
    loaded = "crowdwise.kernels.native" in sys.modules
    if engine == "native" or (engine != "reference" and work >= (NATIVE_WORK // 10 if loaded else NATIVE_WORK)):
        from crowdwise.kernels import native

        return native
    return reference


def expect(
    indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats, truth: Ints, posterior: bool = True
) -> tuple[Floats, Floats, float, Floats]:
    """Expected counts, class mass, log-likelihood and (if asked for) posterior in one pass."""
    module = choose(len(cell) * log_score.shape[1], votes=True)
    asked = () if module is reference else (posterior,)
    out: tuple[Floats, Floats, float, Floats] = module.expect(indptr, cell, weight, log_score, log_prior, truth, *asked)
    return out


def shares(indptr: Ints, label: Ints, weight: Floats, K: int) -> Floats:
    """The share of each class among an item's votes."""
    out: Floats = choose(K * len(label)).shares(indptr, label, weight, K)
    return out


def scatter(indptr: Ints, cell: Ints, weight: Floats, q: Floats, n_cells: int) -> Floats:
    """The counts that go with a posterior."""
    out: Floats = choose(q.shape[1] * len(cell), votes=True).scatter(indptr, cell, weight, q, n_cells)
    return out


def top_class(q: Floats, margin: float) -> tuple[Ints, Ints]:
    """The largest in each row, and the rows with another one as large."""
    out: tuple[Ints, Ints] = choose(q.size).top_class(q, margin)
    return out


def agreements(indptr: Ints, annotator: Ints, label: Ints, decided: Ints, M: int) -> tuple[Ints, Ints]:
    """Each annotator's votes, and those that agree with what was decided."""
    out: tuple[Ints, Ints] = choose(len(label)).agreements(indptr, annotator, label, decided, M)
    return out


def cooccurrence(indptr: Ints, cell: Ints, weight: Floats, n_cells: int) -> tuple[Ints, Ints, Floats]:
    """Sparse counts of pairs of cells on the same item."""
    pairs = int((np.diff(indptr).astype(np.float64) ** 2).sum())
    out: tuple[Ints, Ints, Floats] = choose(pairs).cooccurrence(indptr, cell, weight, n_cells)
    return out
