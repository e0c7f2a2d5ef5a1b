"""Every method on every data set: one table, measured in one way.

A data set is a folder that :func:`crowdwise.read_dataset` reads and that has truth. Methods see the votes alone; the
truth only measures. Accuracy splits ties; what is random is averaged over seeds.

The facts of a run are a plain dict, which JSON can hold, and a page is made from them alone: it can be written again
where the data sets are not.

===========  =====================================================================
``seeds``    how many seeds were averaged over
``methods``  their keys, in the order of the registry
``data``     the names of the data sets
``sets``     name -> items, annotators, votes, classes, items with truth (counts)
``cells``    a :class:`Cell` for each method and data set, as a dict
===========  =====================================================================
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import metrics, registry
from crowdwise.bench import tables
from crowdwise.bench.tables import OnCell, Published
from crowdwise.data.dataset import find_table, read_dataset
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning, CrowdwiseError, ReadError

LARGE = 0.5
"""A difference from a published figure of more points than this asks for a reason."""


@dataclass(frozen=True, kw_only=True)
class Cell(tables.Cell):
    """One method on one data set, the mean over seeds."""

    accuracy: float | None = None
    iterations: float | None = None
    seeds: int = 1


def find_sets(folder: Path, names: Sequence[str] | None = None) -> list[str]:
    """The data sets in a folder that have votes on classes and truth, or those asked for."""
    if not folder.is_dir():
        raise ReadError(f"There is no folder of data sets {folder}: name one, or set CROWDWISE_DATA.")
    found = sorted(p.name for p in folder.iterdir() if p.is_dir() and find_table(p, "votes") and find_table(p, "truth"))
    if not found:
        raise ReadError(
            f"{folder} holds no data sets: expected a folder for each, with votes (labels.csv) and truth (truth.csv)."
        )
    if names is None:
        return [name for name in found if _categorical(folder / name)]
    missing = [name for name in names if name not in found]
    if missing:
        raise ReadError(
            f"{folder} has no data set with votes and truth called {', '.join(missing)}: it has {', '.join(found)}."
        )
    return list(names)


def run(
    folder: Path, sets: Iterable[str], methods: Iterable[str], *, seeds: int = 1, limit: float = 60.0,
    progress: OnCell | None = None,
) -> Iterator[Cell]:  # fmt: skip
    """A cell for every data set and method; one that took over ``limit`` seconds is not repeated for further seeds."""
    methods = list(methods)
    for name in sets:
        votes = read_dataset(folder / name, on_duplicate="all").votes
        for key in methods:
            if progress is not None:
                progress(name, key)
            yield measure(votes, name, key, seeds, limit)


def measure_all(
    folder: Path, sets: Sequence[str], methods: Sequence[str], *, seeds: int = 1, progress: OnCell | None = None
) -> dict[str, Any]:
    """The facts of a run: its cells, and the shapes of its data sets."""
    shapes = {name: read_dataset(folder / name, on_duplicate="all").votes.describe() for name in sets}
    counts = ("items", "annotators", "votes", "items_with_truth")
    return {
        "seeds": seeds,
        "methods": list(methods),
        "data": list(sets),
        "sets": {name: {k: x[k] for k in counts} | {"classes": len(x["classes"])} for name, x in shapes.items()},
        "cells": [asdict(cell) for cell in run(folder, sets, methods, seeds=seeds, progress=progress)],
    }


def measure(votes: Votes, name: str, key: str, seeds: int, limit: float) -> Cell:
    """One method on one data set."""
    model = registry.find(key).load()
    if model.needs_gold:
        return Cell(data=name, method=key, problem="needs known truth")
    own = {"fall_back": False} if "fall_back" in model.parameters() else {}  # the paper's method, not the majority
    rows = []
    for seed in range(seeds):
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = registry.create(key, random_state=seed, **own).fit(votes).consensus_
        except CrowdwiseError as error:
            return Cell(data=name, method=key, problem=str(error).partition(":")[0])
        seconds = time.perf_counter() - began
        loss = metrics.log_loss(found, votes.truth, resamples=1).value
        rows.append((found.score(votes.truth), loss, seconds, float(found.iterations)))
        if seconds > limit:
            break
    accuracy, loss, seconds, iterations = np.mean(rows, axis=0).tolist()
    return Cell(
        data=name, method=key, accuracy=accuracy, log_loss=loss, seconds=seconds, iterations=iterations, seeds=len(rows)
    )


def _categorical(folder: Path) -> bool:
    """Whether the truth of a data set is among its labels (and not a number, a text, a score)."""
    try:
        return read_dataset(folder, on_duplicate="all").votes.n_classes <= 100
    except CrowdwiseError:
        return False


@dataclass(frozen=True)
class Beside:
    """Our accuracy, in percent, beside a published one."""

    here: float
    published: Published

    @property
    def difference(self) -> float:
        return self.here - self.published.accuracy

    @property
    def large(self) -> bool:
        return abs(self.difference) > LARGE + 1e-9


def compare(facts: dict[str, Any], published: Iterable[Published]) -> list[Beside]:
    """Each published figure for which there is one of ours."""
    here = {(c["data"], c["method"]): c["accuracy"] for c in facts["cells"] if c["accuracy"] is not None}
    return [Beside(100.0 * here[p.data, p.method], p) for p in published if (p.data, p.method) in here]


PAGE = """# Labels on real crowds

Written by `crowdwise bench labels --page`. Every method sees the votes alone, with its defaults, {seeds}; the truth
only measures. Methods with skills from pairs run without their fallback to equal weights. Accuracy is in percent, ties
split. The best of a column is bold; a gap says that a method refused the data.

Most defaults are those of the papers; no default may follow these tables. Not
blind to public data sets are the smoothing of `dawid-skene` and its kin, the forms of `anchored` and `auto`, and the
priors of `irt`, which were settled while figures such as these were in view: small differences in their favour mean
nothing.

{shapes}

## Accuracy

{accuracy}

## Log loss

The mean of -log P(true class), so low is good. Real crowds break every model's assumptions, and confident models pay
for it here.

{loss}

## Seconds

A whole fit on one machine, as long as it took the first time.

{seconds}
"""

BESIDE = """
## Beside published figures

Where a paper, its code or an independent re-computation gives a figure for the same data. Differences of more than
half a point are bold and have their reason below.

{table}

## Why they differ

{reasons}
"""


def page(facts: dict[str, Any], published: Sequence[Published] = ()) -> str:
    """The facts as a page in Markdown, beside published figures where there are some."""
    sets = facts["data"]
    found = {
        name: {(c["data"], c["method"]): (c[name], 0.0) for c in facts["cells"] if c[name] is not None}
        for name in ("accuracy", "log_loss", "seconds")
    }
    methods = [m for m in facts["methods"] if any((s, m) in found["accuracy"] for s in sets)]
    counted = {name: name for name in ("items", "annotators", "votes", "classes")} | {"items_with_truth": "with truth"}
    text = PAGE.format(
        seeds="one seed" if facts["seeds"] == 1 else f"the mean of {facts['seeds']} seeds",
        shapes=tables.counts(facts, counted),
        accuracy=tables.figures(found["accuracy"], sets, methods, scale=100.0, best=max, mean=True),
        loss=tables.figures(found["log_loss"], sets, methods, digits=2, best=min, mean=True),
        seconds=tables.figures(found["seconds"], sets, methods, digits=2, mean=True),
    )
    rows = compare(facts, published)
    if rows:
        header = ("method", "data set", "here", "published", "difference", "source")
        table = [
            (f"`{p.method}`", p.data, f"{r.here:.2f}", f"{p.accuracy:.2f}",
             tables.bold(f"{r.difference:+.2f}", r.large), p.source)
            for r in rows for p in (r.published,)
        ]  # fmt: skip
        large = ((r.published, r.here) for r in rows if r.large)
        text += BESIDE.format(
            table=tables.markdown(header, table, left=(0, 1, 5)),
            reasons=tables.reasons(large, 2, "No figure differs by more than half a point."),
        )
    return text
