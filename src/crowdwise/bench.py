"""Every method on every data set: one table, measured in one way.

A data set is a folder that :func:`crowdwise.read_dataset` reads and that has truth. Methods see the votes alone; the
truth only measures. Accuracy splits ties; what is random is averaged over seeds.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import metrics, registry
from crowdwise.data.datasets import find_table, read_dataset
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning, CrowdwiseError, ReadError

Told = Callable[[str, str], None]


@dataclass(frozen=True)
class Cell:
    """One method on one data set, the mean over seeds. ``problem`` says why there is no figure."""

    data: str
    method: str
    accuracy: float | None = None
    log_loss: float | None = None
    seconds: float | None = None
    iterations: float | None = None
    seeds: int = 1
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def data_folder() -> Path:
    """Where data sets are looked for: ``CROWDWISE_DATA``, else ``../shared/data`` beside the working directory."""
    return Path(os.environ.get("CROWDWISE_DATA") or Path.cwd().parent / "shared" / "data")


def find_sets(folder: Path, names: Sequence[str] | None = None) -> list[str]:
    """The data sets in a folder that have votes on classes and truth, or those asked for."""
    if not folder.is_dir():
        raise ReadError(f"There is no folder of data sets {folder}: name one, or set CROWDWISE_DATA.")
    found = sorted(p.name for p in folder.iterdir() if p.is_dir() and find_table(p, "votes") and find_table(p, "truth"))
    if names is None:
        return [name for name in found if _categorical(folder / name)]
    missing = [name for name in names if name not in found]
    if missing:
        raise ReadError(
            f"{folder} has no data set with votes and truth called {', '.join(missing)}: it has {', '.join(found)}."
        )
    return list(names)


def run(
    folder: Path,
    sets: Iterable[str],
    methods: Iterable[str],
    *,
    seeds: int = 1,
    limit: float = 60.0,
    told: Told | None = None,
) -> Iterator[Cell]:
    """A cell for every data set and method; one that took over ``limit`` seconds is not repeated for further seeds."""
    methods = list(methods)
    for name in sets:
        votes = read_dataset(folder / name, on_duplicate="all").votes
        for key in methods:
            if told is not None:
                told(name, key)
            yield measure(votes, name, key, seeds, limit)


def measure(votes: Votes, name: str, key: str, seeds: int, limit: float) -> Cell:
    """One method on one data set."""
    model = registry.find(key).load()
    if model.needs_truth:
        return Cell(name, key, problem="needs known truth")
    rows = []
    for seed in range(seeds):
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = registry.create(key, random_state=seed).fit(votes).consensus_
        except CrowdwiseError as error:
            return Cell(name, key, problem=str(error).partition(":")[0])
        seconds = time.perf_counter() - began
        loss = metrics.log_loss(found, votes.truth, resamples=1).value
        rows.append((found.score(votes.truth), loss, seconds, float(found.iterations)))
        if seconds > limit:
            break
    accuracy, loss, seconds, iterations = np.mean(rows, axis=0).tolist()
    return Cell(name, key, accuracy, loss, seconds, iterations, len(rows))


def _categorical(folder: Path) -> bool:
    """Whether the truth of a data set is among its labels (and not a number, a text, a score)."""
    try:
        return read_dataset(folder, on_duplicate="all").votes.n_classes <= 100
    except CrowdwiseError:
        return False
