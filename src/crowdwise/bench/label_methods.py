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

import csv
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import metrics, registry
from crowdwise.data.dataset import find_table, read_dataset
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning, CrowdwiseError, ReadError

OnCell = Callable[[str, str], None]

LARGE = 0.5
"""A difference from a published figure of more points than this asks for a reason."""


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
    folder: Path,
    sets: Iterable[str],
    methods: Iterable[str],
    *,
    seeds: int = 1,
    limit: float = 60.0,
    progress: OnCell | None = None,
) -> Iterator[Cell]:
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
        "cells": [cell.as_dict() for cell in run(folder, sets, methods, seeds=seeds, progress=progress)],
    }


def measure(votes: Votes, name: str, key: str, seeds: int, limit: float) -> Cell:
    """One method on one data set."""
    model = registry.find(key).load()
    if model.needs_gold:
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


# -------------------------------------------------------------------- beside published figures


@dataclass(frozen=True)
class Published:
    """A figure of others: accuracy in percent, who says so, and why ours differs where it does."""

    data: str
    method: str
    accuracy: float
    source: str
    reason: str = ""


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


def read_facts(file: Path) -> dict[str, Any]:
    """The facts of an earlier run."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        facts = facts.get("result", facts)  # benchmarks/run.py notes the machine beside them
        missing = [name for name in ("seeds", "methods", "data", "sets", "cells") if name not in facts]
    except (OSError, ValueError, AttributeError) as error:
        raise ReadError(f"{file} cannot be read as the results of crowdwise bench labels: {error}.") from None
    if missing:
        raise ReadError(f"{file} does not hold the results of crowdwise bench labels: it lacks {', '.join(missing)}.")
    return dict(facts)


def read_published(file: Path) -> list[Published]:
    """Figures of others from a CSV file with the columns data, method, accuracy, source and, if need be, reason."""
    try:
        with file.open(encoding="utf-8", newline="") as text:
            rows = list(csv.DictReader(text))
        return [
            Published(r["data"], r["method"], float(r["accuracy"]), r["source"], (r.get("reason") or "").strip())
            for r in rows
        ]
    except (OSError, ValueError) as error:
        raise ReadError(f"{file} cannot be read as a table of published figures: {error}.") from None
    except KeyError as error:
        raise ReadError(
            f"{file} has no column {error}: expected data, method, accuracy (in percent), source and reason."
        ) from None


def compare(facts: dict[str, Any], published: Iterable[Published]) -> list[Beside]:
    """Each published figure for which there is one of ours."""
    here = {(c["data"], c["method"]): c["accuracy"] for c in facts["cells"] if c["accuracy"] is not None}
    return [Beside(100.0 * here[p.data, p.method], p) for p in published if (p.data, p.method) in here]


# -------------------------------------------------------------------- the page

PAGE = """# Labels on real crowds

Written by `crowdwise bench labels --page`. Every method sees the votes alone, with its defaults, {seeds}; the truth
only measures. Accuracy is in percent, ties split. The best of a column is bold; a gap says that a method refused the
data.

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
    cells = {(c["data"], c["method"]): c for c in facts["cells"]}
    methods = [m for m in facts["methods"] if any(cells[s, m]["accuracy"] is not None for s in sets)]
    shapes = [
        (s, *(f"{facts['sets'][s][k]:,}" for k in ("items", "annotators", "votes", "classes", "items_with_truth")))
        for s in sets
    ]
    text = PAGE.format(
        seeds="one seed" if facts["seeds"] == 1 else f"the mean of {facts['seeds']} seeds",
        shapes=markdown(("data set", "items", "annotators", "votes", "classes", "with truth"), shapes),
        accuracy=_figures(cells, sets, methods, "accuracy", 100.0, 1, max),
        loss=_figures(cells, sets, methods, "log_loss", 1.0, 2, min),
        seconds=_figures(cells, sets, methods, "seconds", 1.0, 2, None),
    )
    rows = compare(facts, published)
    if rows:
        table = [
            (
                f"`{p.method}`",
                p.data,
                f"{r.here:.2f}",
                f"{p.accuracy:.2f}",
                _bold(f"{r.difference:+.2f}", r.large),
                p.source,
            )
            for r in rows
            for p in (r.published,)
        ]
        reasons = [
            f"- `{p.method}` on {p.data}, {r.here:.2f} here and {p.accuracy:.2f} ({p.source}): "
            f"{p.reason or 'not known.'}"
            for r in rows
            for p in (r.published,)
            if r.large
        ]
        text += BESIDE.format(
            table=markdown(("method", "data set", "here", "published", "difference", "source"), table, left=(0, 1, 5)),
            reasons="\n".join(reasons) or "No figure differs by more than half a point.",
        )
    return text


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A table; columns not named in ``left`` are set to the right."""
    bars = ["---" if i in left else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, bars, *rows))


def _figures(
    cells: dict[tuple[str, str], dict[str, Any]],
    sets: Sequence[str],
    methods: Sequence[str],
    name: str,
    scale: float,
    digits: int,
    best: Callable[[list[float]], float] | None,
) -> str:
    """Methods x data sets, and the mean of a method that has them all."""
    value = {(s, m): cells[s, m][name] for s in sets for m in methods}
    there = {s: [round(scale * value[s, m], digits) for m in methods if value[s, m] is not None] for s in sets}
    top = {s: best(x) if best and x else None for s, x in there.items()}
    rows = []
    for m in methods:
        row = [value[s, m] for s in sets]
        shown = [
            "" if x is None else _bold(f"{scale * x:.{digits}f}", round(scale * x, digits) == top[s])
            for s, x in zip(sets, row, strict=True)
        ]
        mean = "" if None in row else f"{scale * float(np.mean(row)):.{digits}f}"
        rows.append((f"`{m}`", *shown, mean))
    return markdown(("method", *sets, "mean"), rows)


def _bold(text: str, yes: bool) -> str:
    return f"**{text}**" if yes else text
