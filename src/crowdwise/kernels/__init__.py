"""The arithmetic, on raw arrays. ``reference`` defines it in numpy; ``native`` is the same, compiled; ``cuda`` has the
pass over the votes for a GPU.

Loading a compiler costs more than it saves on small data, so the path is chosen by the amount of
work; ``engine`` (or the environment variable ``CROWDWISE_ENGINE``) overrides the choice. ``cuda`` is never chosen
unasked; what it has no kernel for runs as with ``auto``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from crowdwise.kernels import reference
from crowdwise.kernels.reference import Floats, Ints

NATIVE_WORK = 600_000
"""Votes times classes from which a pass is worth compiled code, when that has yet to be loaded."""


ENGINES = ("auto", "reference", "native", "cuda")


def asked_for(engine: str) -> str:
    """The engine by name: the one given, or that of the environment."""
    return os.environ.get("CROWDWISE_ENGINE", engine) if engine == "auto" else engine


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


def scatter(
    indptr: Ints, cell: Ints, weight: Floats, q: Floats, n_cells: int, spread: bool = False, engine: str = "auto"
) -> Floats:
    """The counts that go with a posterior, or their variances: see :func:`reference.scatter`."""
    out: Floats = choose(q.shape[1] * len(cell), engine).scatter(indptr, cell, weight, q, n_cells, spread)
    return out


def cooccurrence(
    indptr: Ints, cell: Ints, weight: Floats, n_cells: int, engine: str = "auto"
) -> tuple[Ints, Ints, Floats]:
    """Sparse counts of pairs of cells on the same item: see :func:`reference.cooccurrence`."""
    out: tuple[Ints, Ints, Floats] = choose(10 * len(cell), engine).cooccurrence(indptr, cell, weight, n_cells)
    return out
