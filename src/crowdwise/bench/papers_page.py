"""The page of the papers' tables: ours beside the published figures, what is missing shown as missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crowdwise.bench.papers_plan import PaperTable
from crowdwise.bench.tables import markdown

MEASURES = {
    "accuracy_last": "Images alone, last epoch",
    "accuracy_selected": "Images alone, epoch chosen by held-out votes",
    "accuracy_votes": "Images and votes, last epoch",
    "accuracy_consensus": "The training items, by images and votes",
    "matrix_error": "Error of the confusion matrices, times 100",
}
MISSING = "–"

Rows = Mapping[str, Mapping[str, Any]]

HEAD = """# The papers' tables

Written by `crowdwise bench papers` from a file with a line for every finished cell. All figures of ours are in percent
and of the **last epoch** (or of the epoch that held-out votes chose, where it says so); the test images choose nothing.
Means over seeds, with the standard deviation where there are several. Published figures are often those of the best
test epoch. {missing}
"""


def values(table: PaperTable, found: Rows, crowd: str, learner: str, measure: str) -> list[float]:
    """One figure for each finished seed."""
    rows = [found.get(cell.name) for cell in table.cells if (cell.crowd, cell.learner) == (crowd, learner)]
    return [100.0 * row[measure] for row in rows if row is not None and row.get(measure) is not None]


def shown(figures: Sequence[float], best: bool = False) -> str:
    """Mean and deviation."""
    if not figures:
        return MISSING
    text = f"{np.mean(figures):.2f}"
    text = f"**{text}**" if best else text
    return text if len(figures) == 1 else f"{text} ± {np.std(figures, ddof=1):.2f}"


def is_ahead(figures: Sequence[float], published: float | None, lower: bool) -> bool:
    """Whether our mean is as good as the published figure, or better."""
    if published is None or not figures:
        return False
    ours = float(np.mean(figures))
    return ours <= published if lower else ours >= published


def grid(table: PaperTable, found: Rows, measure: str) -> list[list[str]] | None:
    """The lines of one measure: ours, then the published; None where there is neither."""
    published = table.published.get(measure, {})
    lines, any_figure = [], bool(published)
    for learner in table.learners:
        theirs = published.get(learner, [])
        line = [learner]
        for at, crowd in enumerate(table.crowds):
            figures = values(table, found, crowd, learner, measure)
            any_figure |= bool(figures)
            goal = theirs[at] if at < len(theirs) else None
            line.append(shown(figures, is_ahead(figures, goal, lower=measure == "matrix_error")))
        lines.append(line)
    for crowd, learner in table.alone:
        figures = values(table, found, crowd, learner, measure)
        any_figure |= bool(figures)
        lines.append([f"{learner} on {crowd}", shown(figures), *([""] * (len(table.crowds) - 1))])
    for learner, theirs in published.items():
        lines.append([f"*{learner}, published*", *(MISSING if x is None or x < 0 else f"{x:.2f}" for x in theirs)])
    return lines if any_figure else None


def page(tables: Sequence[PaperTable], found: Rows) -> str:
    """The whole page, in Markdown."""
    cells = [cell for table in tables for cell in table.cells]
    lost = sum(cell.name not in found for cell in cells)
    note = f"{lost} of {len(cells)} cells are missing ({MISSING})." if lost else "No cell is missing."
    parts = [HEAD.format(missing=note)]
    for table in tables:
        parts.append(f"## {table.title}\n")
        parts.append(f"Network `{table.network}`. {table.note} {table.source}".strip() + "\n")
        for measure, title in MEASURES.items():
            lines = grid(table, found, measure)
            if lines is not None:
                parts.append(f"### {title}\n")
                parts.append(markdown(["", *table.crowds], lines) + "\n")
        seconds = [found[cell.name]["seconds"] for cell in table.cells if cell.name in found]
        if seconds:
            devices = sorted({found[cell.name]["device"] for cell in table.cells if cell.name in found})
            parts.append(f"A cell took {np.median(seconds):.0f} seconds on {' and '.join(devices)} (median).\n")
    return "\n".join(parts)


def text(tables: Sequence[PaperTable], found: Rows) -> str:
    """What there is so far, as plain lines."""
    out = []
    for table in tables:
        if not any(cell.name in found for cell in table.cells):
            continue
        width = max(len(name) for name in (*table.crowds, "00.00 / 00.00 ± 0.00"))
        out.append(f"{table.name} (last / with votes)")
        out.append(f"{'':24s}" + "".join(f"{name:>{width + 2}s}" for name in table.crowds))
        for learner in table.learners:
            line = []
            for crowd in table.crowds:
                last = shown(values(table, found, crowd, learner, "accuracy_last"))
                votes = values(table, found, crowd, learner, "accuracy_votes")
                line.append(f"{last} / {np.mean(votes):.2f}" if votes else last)
            out.append(f"{learner:24s}" + "".join(f"{cell:>{width + 2}s}" for cell in line))
        for crowd, learner in table.alone:
            out.append(f"{learner} on {crowd}: {shown(values(table, found, crowd, learner, 'accuracy_last'))}")
    return "\n".join(out) or "No cell is done yet."
