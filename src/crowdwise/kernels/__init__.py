"""The arithmetic, on raw arrays. ``reference`` defines it in numpy; ``native`` is the same, compiled; ``cuda`` has the
pass over the votes for a GPU.

Loading a compiler costs more than it saves on small data, so the path is chosen by the amount of
work; ``engine`` (or the environment variable ``CROWDWISE_ENGINE``) overrides the choice. ``cuda`` is never chosen
unasked; what it has no kernel for runs as with ``auto``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

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


def asked_for(engine: str) -> str:
    """The engine by name: the one given, that of the block (:func:`using`), or that of the environment."""
    if engine != "auto":
        return engine
    return _chosen.get() or os.environ.get("CROWDWISE_ENGINE", engine)


def available(engine: str = "auto") -> bool:
    """Whether the engine can be used on this machine."""
    if asked_for(engine) != "cuda":
        return True
    try:
        from crowdwise.kernels import cuda
    except ImportError:
        return False
    return cuda.available()


def choose(work: int, engine: str = "auto") -> Any:
    """The module to compute with: ``reference`` or ``native``."""
    engine = asked_for(engine)
    engine = "auto" if engine == "cuda" else engine
    loaded = "crowdwise.kernels.native" in sys.modules
    if engine == "native" or (engine == "auto" and work >= (NATIVE_WORK // 10 if loaded else NATIVE_WORK)):
        from crowdwise.kernels import native

        return native
    return reference


def expect(
    indptr: Ints, cell: Ints, weight: Floats, log_score: Floats, log_prior: Floats, truth: Ints,
    hard: bool = False, posterior: bool = True, engine: str = "auto",
) -> tuple[Floats, Floats, float, Floats]:  # fmt: skip
    """Expected counts, class mass, log-likelihood and (if asked for) posterior in one pass: see
    :func:`reference.expect`."""
    if asked_for(engine) == "cuda":
        from crowdwise.kernels import cuda

        return cuda.expect(indptr, cell, weight, log_score, log_prior, truth, hard, posterior)
    module = choose(len(cell) * log_score.shape[1], engine)
    if module is reference:
        return reference.expect(indptr, cell, weight, log_score, log_prior, truth, hard)
    out: tuple[Floats, Floats, float, Floats] = module.expect(
        indptr, cell, weight, log_score, log_prior, truth, hard, posterior
    )
    return out


def shares(indptr: Ints, label: Ints, weight: Floats, K: int, engine: str = "auto") -> Floats:
    """The share of each class among an item's votes: see :func:`reference.shares`."""
    out: Floats = choose(K * len(label), engine).shares(indptr, label, weight, K)
    return out


def share_counts(
    indptr: Ints, cell: Ints, weight: Floats, K: int, n_cells: int, engine: str = "auto"
) -> tuple[Floats, Floats]:
    """The counts and the mass that go with vote shares: see :func:`reference.share_counts`."""
    module = _with_votes(K * len(cell), engine)
    out: tuple[Floats, Floats] = module.share_counts(indptr, cell, weight, K, n_cells)
    return out


def scatter(indptr: Ints, cell: Ints, weight: Floats, q: Floats, n_cells: int, engine: str = "auto") -> Floats:
    """The counts that go with a posterior: see :func:`reference.scatter`."""
    out: Floats = _with_votes(q.shape[1] * len(cell), engine).scatter(indptr, cell, weight, q, n_cells)
    return out


def count_moments(
    indptr: Ints, cell: Ints, weight: Floats, q: Floats, n_cells: int, engine: str = "auto"
) -> tuple[Floats, Floats]:
    """The counts that go with a posterior, and their variances: see :func:`reference.count_moments`."""
    module = _with_votes(q.shape[1] * len(cell), engine)
    out: tuple[Floats, Floats] = module.count_moments(indptr, cell, weight, q, n_cells)
    return out


def top_class(q: Floats, margin: float, engine: str = "auto") -> tuple[Ints, Ints]:
    """The largest in each row, and the rows with another one as large: see :func:`reference.top_class`."""
    out: tuple[Ints, Ints] = choose(q.size, engine).top_class(q, margin)
    return out


def agreements(
    indptr: Ints, annotator: Ints, label: Ints, decided: Ints, M: int, engine: str = "auto"
) -> tuple[Ints, Ints]:
    """Each annotator's votes, and those that agree with what was decided: see :func:`reference.agreements`."""
    out: tuple[Ints, Ints] = choose(len(label), engine).agreements(indptr, annotator, label, decided, M)
    return out


def _with_votes(work: int, engine: str) -> Any:
    """The module to sum over votes with: those that a GPU has already are summed there."""
    if asked_for(engine) == "cuda":
        from crowdwise.kernels import cuda

        return cuda
    return choose(work, engine)


def cooccurrence(
    indptr: Ints, cell: Ints, weight: Floats, n_cells: int, engine: str = "auto"
) -> tuple[Ints, Ints, Floats]:
    """Sparse counts of pairs of cells on the same item: see :func:`reference.cooccurrence`."""
    out: tuple[Ints, Ints, Floats] = choose(10 * len(cell), engine).cooccurrence(indptr, cell, weight, n_cells)
    return out
