"""What the pages of benchmarks share: facts of runs, figures of others, tables in Markdown."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.errors import ReadError

FACTS = {
    "labels": ("seeds", "methods", "data", "sets", "cells"),
    "learners": ("seeds", "epochs", "methods", "data", "sets", "cells"),
}
"""What the file of a run holds, by the name of the benchmark."""


@dataclass(frozen=True)
class Published:
    """A figure of others: accuracy in percent, who says so, and why ours differs where it does."""

    data: str
    method: str
    accuracy: float
    source: str
    reason: str = ""


def read_facts(file: Path, benchmark: str) -> dict[str, Any]:
    """The facts of an earlier run."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        facts = facts.get("result", facts)  # benchmarks/run.py notes the machine beside them
        missing = [name for name in FACTS[benchmark] if name not in facts]
    except (OSError, ValueError, AttributeError) as error:
        raise ReadError(f"{file} cannot be read as the results of the benchmark of {benchmark}: {error}.") from None
    if missing:
        lacks = ", ".join(missing)
        raise ReadError(f"{file} does not hold the results of the benchmark of {benchmark}: it lacks {lacks}.")
    return dict(facts)


def read_published(file: Path, figure: str = "accuracy") -> list[Published]:
    """Figures of others from a CSV file: data, method, accuracy (the column ``figure``), source and perhaps reason."""
    try:
        with file.open(encoding="utf-8", newline="") as text:
            return [
                Published(r["data"], r["method"], float(r[figure]), r["source"], (r.get("reason") or "").strip())
                for r in csv.DictReader(text)
            ]
    except (OSError, ValueError) as error:
        raise ReadError(f"{file} cannot be read as a table of published figures: {error}.") from None
    except KeyError as error:
        raise ReadError(
            f"{file} has no column {error}: expected data, method, {figure} (in percent), source and reason."
        ) from None


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A table; columns not named in ``left`` are set to the right."""
    bars = ["---" if i in left else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, bars, *rows))


def counts(facts: Mapping[str, Any], header: Mapping[str, str]) -> str:
    """The sizes of the data sets, a row for each; ``header`` says what a count is called."""
    rows = [(name, *(f"{facts['sets'][name][key]:,}" for key in header)) for name in facts["data"]]
    return markdown(("data set", *header.values()), rows)


def figures(
    found: Mapping[tuple[str, str], tuple[float, float]], sets: Sequence[str], methods: Sequence[str], *,
    scale: float = 1.0, digits: int = 1, best: Callable[[list[float]], float] | None = None,
    more: Mapping[str, Mapping[str, str]] | None = None,
) -> str:  # fmt: skip
    """Methods x data sets, from (data set, method) -> mean and standard deviation; the best of a column is bold.

    ``more`` has further columns: name -> method -> text.
    """
    value = {cell: (round(scale * x[0], digits), scale * x[0], scale * x[1]) for cell, x in found.items()}
    there = {s: [value[s, m][0] for m in methods if (s, m) in value] for s in sets}
    top = {s: best(x) if best and x else None for s, x in there.items()}

    def shown(s: str, m: str) -> str:
        if (s, m) not in value:
            return ""
        rounded, middle, deviation = value[s, m]
        text = bold(f"{middle:.{digits}f}", rounded == top[s])
        return f"{text} ± {deviation:.{digits}f}" if deviation > 0.0 else text

    further = more or {}
    rows = [
        (f"`{m}`", *(shown(s, m) for s in sets), *(column.get(m, "") for column in further.values())) for m in methods
    ]
    return markdown(("method", *sets, *further), rows)


def means(
    found: Mapping[tuple[str, str], tuple[float, float]], sets: Sequence[str], methods: Sequence[str], *,
    scale: float = 1.0, digits: int = 1,
) -> dict[str, str]:  # fmt: skip
    """The mean over data sets of each method that has a figure everywhere."""
    rows = {m: [found[s, m][0] for s in sets if (s, m) in found] for m in methods}
    return {m: f"{scale * float(np.mean(row)):.{digits}f}" for m, row in rows.items() if len(row) == len(sets)}


def bold(text: str, yes: bool) -> str:
    return f"**{text}**" if yes else text


def reasons(rows: Iterable[tuple[Published, float]], digits: int, otherwise: str) -> str:
    """Why figures here differ from published ones, a line for each source and reason."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for p, here in rows:
        figure = f"`{p.method}` on {p.data} {here:.{digits}f} ({p.accuracy:.{digits}f})"
        grouped.setdefault((p.source, p.reason or "not known."), []).append(figure)
    return "\n".join(f"- {', '.join(told)}; {of}: {why}" for (of, why), told in grouped.items()) or otherwise
