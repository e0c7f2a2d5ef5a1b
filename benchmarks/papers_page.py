"""The page of the papers' tables: ours beside the published figures, what is missing shown as missing."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from papers_plan import PaperFigure, PaperTable
from papers_runs import HOLDOUT
from tables import markdown

from crowdwise.active.curve_drawing import Line, draw

MEASURES = {
    "accuracy_last": "Images alone, last epoch",
    "balanced_last": "Images alone: mean over the classes of the share found",
    "accuracy_selected": "Images alone, epoch chosen by held-out votes",
    "accuracy_votes": "Images and votes, last epoch",
    "accuracy_consensus": "The training items, by images and votes",
    "matrix_error": "Error of the confusion matrices, times 100",
    "seconds": "Seconds of training",
}
SECONDS = "seconds"
MISSING = "–"

Rows = Mapping[str, Mapping[str, Any]]

HEAD = """# The papers' tables

Written by `benchmarks/papers.py` from `benchmarks/results/papers.jsonl`, a line for every finished cell (network,
crowd, learner, seed), which also has measures that are not shown here: the epoch after which held-out votes were most
likely ({share:g} % of the votes are held out), and seconds. Figures are in percent, of the last epoch. *Chosen by
held-out votes* is, for each seed, the learner under which the held-out votes are most likely (seeds of early runs,
which did not store that, are left out). Test images and true labels choose nothing, neither an epoch nor a setting;
one setting serves all learners of a table. Published figures are often those of the best *test* epoch.

A cell is the mean over seeds (which draw simulated votes, too), ± their standard deviation; the number in parentheses
says how many of {seeds} seeds there are where some are missing. A figure is **bold** where it is at least as good as
the published one. {missing}
"""


FIGURES = Path(__file__).with_name("papers_figures.csv")
TEXTS = {
    "max-mig": "Max-MIG: Cao, Xu, Kong and Wang 2019", "trace": "Trace regularisation: Tanno et al. 2019",
    "deep-bp": "deepBP: Kim, Cho, Kim and Ok 2022", "bayes-dgc": "BayesDGC: Li et al. 2021",
    "tutorial": "Tutorial: Ibrahim, Traganitis, Fu and Giannakis 2024",
}  # fmt: skip
LISTED = """## Every table, figure and algorithm

*Reproduced*: ours beside theirs (as a curve where they show curves without numbers). *Replaced*: on other data, and
why. *Not done*: possible, and missing. *Drawing*: no result to reproduce. Of an
algorithm, *reproduced* says which learner it is; its equations are tested.
"""


def listed() -> list[dict[str, str]]:
    """The tables, figures and algorithms of the texts, a row each."""
    with FIGURES.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def figure_list(tables: Sequence[PaperTable]) -> str:
    """The list as Markdown, a table for each text, with links to the tables of the page."""
    places = sorted(((table.name, anchor(table.title)) for table in tables), key=lambda pair: -len(pair[0]))
    parts, rows = [LISTED], listed()
    for text, title in TEXTS.items():
        lines = []
        for row in rows:
            if row["text"] == text:
                words = row["shown"].split(" ")
                linked = [
                    next((f"[{w[: len(n)]}](#{at}){w[len(n) :]}" for n, at in places if w.rstrip(",:;") == n), w)
                    for w in words
                ]
                lines.append([row["item"], row["about"], row["status"], " ".join(linked)])
        parts.append(f"### {title}\n\n{markdown(['', 'about', '', ''], lines)}\n")
    return "\n".join(parts)


def anchor(title: str) -> str:
    """What mkdocs calls the place of a heading."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return "-".join(kept.split())


def values(table: PaperTable, found: Rows, crowd: str, learner: str, measure: str) -> list[float]:
    """One figure for each finished seed."""
    rows = [found.get(cell.name) for cell in table.cells if (cell.crowd, cell.learner) == (crowd, learner)]
    if measure == SECONDS:
        return [training_seconds(row) for row in rows if row is not None]
    return [100.0 * row[measure] for row in rows if row is not None and row.get(measure) is not None]


def training_seconds(row: Mapping[str, Any]) -> float:
    """Of all epochs; older lines have those of a middle epoch."""
    found = row.get("training_seconds")
    return float(row["settings"]["epochs"] * row["epoch_seconds"] if found is None else found)


def chosen(table: PaperTable, found: Rows, crowd: str, measure: str) -> list[float]:
    """For each seed with two learners or more, the figure of the one under which the held-out votes are most likely.

    Seeds of which some cell does not say how likely they are (older files) are left out.
    """
    out = []
    for seed in range(table.seeds):
        names = [cell.name for cell in table.cells if (cell.crowd, cell.seed) == (crowd, seed)]
        rows = [found[name] for name in names if name in found]
        if len(rows) > 1 and all(row.get("held_out") is not None for row in rows):
            out.append(100.0 * max(rows, key=lambda row: float(row["held_out"]))[measure])
    return out


def shown(figures: Sequence[float], seeds: int, best: bool = False, digits: int = 2) -> str:
    """Mean, deviation, and the number of seeds where some are missing."""
    if not figures:
        return MISSING
    text = f"{np.mean(figures):.{digits}f}"
    text = f"**{text}**" if best else text
    text = text if len(figures) == 1 or not digits else f"{text} ± {np.std(figures, ddof=1):.{digits}f}"
    return text if len(figures) == seeds else f"{text} ({len(figures)})"


def lead(figures: Sequence[float], published: float | None, measure: str) -> float | None:
    """By how much our mean is better than the published figure."""
    if published is None or not figures:
        return None
    ours = float(np.mean(figures)) - published
    return -ours if measure == "matrix_error" else ours


def goal(table: PaperTable, crowd: str, learner: str, measure: str) -> float | None:
    """The published figure of a cell."""
    theirs = table.published.get(measure, {}).get(learner, [])
    at = table.crowds.index(crowd)
    return theirs[at] if at < len(theirs) else None


def grid(table: PaperTable, found: Rows, measure: str) -> list[list[str]] | None:
    """The lines of one measure: ours, then the published; None where there is neither."""
    published = table.published.get(measure, {})
    digits = 0 if measure == SECONDS else 2
    lines, any_figure = [], bool(published)
    for learner in table.learners:
        line = [f"`{learner}`"]
        for crowd in table.crowds:
            figures = values(table, found, crowd, learner, measure)
            any_figure |= bool(figures)
            by = lead(figures, goal(table, crowd, learner, measure), measure)
            line.append(shown(figures, table.seeds, by is not None and by >= 0.0, digits))
        lines.append(line)
    if measure == "accuracy_last":
        best = [chosen(table, found, crowd, measure) for crowd in table.crowds]
        if any(best):
            lines.append(["*chosen by held-out votes*", *(shown(figures, table.seeds) for figures in best)])
    for crowd, learner in table.alone:
        figures = values(table, found, crowd, learner, measure)
        if not figures and measure != "accuracy_last":  # the truth has no votes to measure beside
            continue
        any_figure |= bool(figures)
        only = shown(figures, table.seeds, digits=digits)
        lines.append([f"`{learner}` on {crowd}", only, *([""] * (len(table.crowds) - 1))])
    for learner, theirs in published.items():
        lines.append([f"*{learner}, published*", *(MISSING if x is None else f"{x:.2f}" for x in theirs)])
    return lines if any_figure else None


def curves(table: PaperTable, found: Rows) -> str:
    """The test accuracy after some epochs, a line for each learner; empty where none was stored."""
    lines, at = [], [1, 2, 5, 10, 15, 20]
    for learner in table.learners:
        rows = [found.get(cell.name, {}).get("accuracy_each") for cell in table.cells if cell.learner == learner]
        each = [row for row in rows if row]
        if each:
            means = [100.0 * np.mean([row[n - 1] for row in each if len(row) >= n] or [np.nan]) for n in at]
            lines.append([f"`{learner}`", *(f"{mean:.1f}" for mean in means)])
    return markdown(["epochs", *map(str, at)], lines) if lines else ""


def behind(table: PaperTable, found: Rows) -> list[str]:
    """A sentence for each cell that is more than a point behind its published figure."""
    out = []
    for measure in table.published:
        for learner in table.learners:
            for crowd in table.crowds:
                figures, theirs = values(table, found, crowd, learner, measure), goal(table, crowd, learner, measure)
                by = lead(figures, theirs, measure)
                if by is not None and by < -1.0:
                    out.append(
                        f"- Behind: `{learner}` on {crowd} ({MEASURES[measure].lower()}) has {np.mean(figures):.2f}, "
                        f"published {theirs:.2f}. {table.reasons.get(f'{learner}/{crowd}', 'The reason is not known.')}"
                    )
    if out and "*" in table.reasons:
        return [f"- {len(out)} figures are more than a point behind the published ones. {table.reasons['*']}"]
    return out


def draw_figure(table: PaperTable, figure: PaperFigure, found: Rows) -> str | None:
    """Curves over the crowds of a figure, ours and then the published; None where there is no figure of ours."""
    lines = []
    for learner in figure.learners:
        places = [values(table, found, crowd, learner, figure.measure) for crowd in figure.crowds]
        there = [(at, np.array(figures) / 100.0) for at, figures in enumerate(places) if figures]
        if there:
            x, y = [float(at) for at, _ in there], [float(a.mean()) for _, a in there]
            low, high = [float(a.min()) for _, a in there], [float(a.max()) for _, a in there]
            lines.append(Line(learner, x, y, low, high))
    if not lines:
        return None
    for learner in table.published.get(figure.measure, {}):
        goals = [goal(table, crowd, learner, figure.measure) for crowd in figure.crowds]
        both = [(float(at), one / 100.0) for at, one in enumerate(goals) if one is not None]
        if both and learner in figure.learners:
            lines.append(Line(f"{learner}, published", [at for at, _ in both], [one for _, one in both]))
    label = "consensus accuracy" if figure.measure == "accuracy_consensus" else "test accuracy"
    return draw(
        lines, title=figure.title, x_label=figure.x_label, y_label=label, x_names=list(figure.crowds.values())
    )  # fmt: skip


def figures(tables: Sequence[PaperTable], found: Rows) -> dict[str, str]:
    """File name -> SVG, for the figures that have a curve."""
    made = {f"{t.name}-{figure.name}.svg": draw_figure(t, figure, found) for t in tables for figure in t.figures}
    return {name: svg for name, svg in made.items() if svg is not None}


def page(tables: Sequence[PaperTable], found: Rows) -> str:
    """The whole page, in Markdown; its figures (:func:`figures`) are beside it."""
    cells = [cell for table in tables for cell in table.cells]
    lost = sum(cell.name not in found for cell in cells)
    note = f"{lost} of {len(cells)} cells are missing ({MISSING})." if lost else "No cell is missing."
    seeds = " or ".join(str(n) for n in sorted({table.seeds for table in tables}))
    parts = [HEAD.format(missing=note, share=100.0 * HOLDOUT, seeds=seeds), figure_list(tables)]
    drawn = figures(tables, found)
    for table in tables:
        parts.append(f"## {table.title}\n")
        parts.append(f"{table.note} {table.source}".strip() + "\n")
        for figure in table.figures:
            if f"{table.name}-{figure.name}.svg" in drawn:
                parts.append(f"![{figure.title}]({table.name}-{figure.name}.svg)\n")
        pictured = {figure.measure for figure in table.figures if f"{table.name}-{figure.name}.svg" in drawn}
        for measure, title in MEASURES.items():
            asked = measure in table.published or measure in table.measures
            if not asked and (measure != "accuracy_last" or measure in pictured):
                continue
            lines = grid(table, found, measure)
            if lines is not None:
                parts.append(f"### {title}\n")
                parts.append(markdown(["", *table.crowds], lines) + "\n")
        drawn_out = curves(table, found)
        if drawn_out:
            parts.append(f"### Images alone, during training\n\n{drawn_out}\n")
        late = behind(table, found)
        if late:
            parts.append("\n".join(late) + "\n")
        devices = sorted({found[cell.name]["device"] for cell in table.cells if cell.name in found})
        if devices:
            parts.append(f"On {' and '.join(devices)}.\n")
        else:
            parts.append(f"None of its {len(table.cells)} cells has been run yet.\n")
    return "\n".join(parts)


def text(tables: Sequence[PaperTable], found: Rows) -> str:
    """What there is so far, as plain lines."""
    out = []
    for table in tables:
        if not any(cell.name in found for cell in table.cells):
            continue
        width = max(len(name) for name in (*table.crowds, "00.00 ± 0.00 (0) / 00.00"))
        out.append(f"{table.name} (last / with votes)")
        out.append(f"{'':24s}" + "".join(f"{name:>{width + 2}s}" for name in table.crowds))
        for learner in table.learners:
            line = []
            for crowd in table.crowds:
                last = shown(values(table, found, crowd, learner, "accuracy_last"), table.seeds)
                votes = values(table, found, crowd, learner, "accuracy_votes")
                line.append(f"{last} / {np.mean(votes):.2f}" if votes else last)
            out.append(f"{learner:24s}" + "".join(f"{cell:>{width + 2}s}" for cell in line))
        for crowd, learner in table.alone:
            out.append(
                f"{learner} on {crowd}: {shown(values(table, found, crowd, learner, 'accuracy_last'), table.seeds)}"
            )
    return "\n".join(out) or "No cell is done yet."
