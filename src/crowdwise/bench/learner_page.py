"""The page of the learners' benchmark: what :mod:`crowdwise.bench.learner_runs` measured, beside figures of others."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdwise.bench.label_methods import markdown
from crowdwise.bench.learner_runs import means
from crowdwise.errors import ReadError

LARGE = 1.0
"""A difference from a published figure of more points than this asks for a reason."""


@dataclass(frozen=True)
class Published:
    """A test accuracy of others, in percent, who says so, and what was different there."""

    method: str
    data: str
    value: float
    source: str
    reason: str = ""


def read_published(file: Path) -> list[Published]:
    """Figures of others from a CSV file with the columns method, data, value (in percent), source and reason."""
    try:
        with file.open(encoding="utf-8", newline="") as text:
            return [
                Published(r["method"], r["data"], float(r["value"]), r["source"], (r.get("reason") or "").strip())
                for r in csv.DictReader(text)
            ]
    except (OSError, ValueError) as error:
        raise ReadError(f"{file} cannot be read as a table of published figures: {error}.") from None
    except KeyError as error:
        raise ReadError(
            f"{file} has no column {error}: expected method, data, value (in percent), source and reason."
        ) from None


PAGE = """# Learners on real crowds

Written by `crowdwise bench learners --page`. Every learner sees inputs and votes, with its defaults, one setting for
all data sets; the truth only measures. Figures are in percent, {seeds}.{epochs} The best of a
column is bold; a gap: the learner refused the data, was not measured on it, or has no epochs to choose from.
{note}
{shapes}

`labelme`: 512 averaged VGG-16 features. `music_genre`: 124 audio features. `sentiment_polarity`: TF-IDF of words in two
training texts or more. `digits`: pixels, a crowd of twelve trained classifiers, two spammers and three copiers.
`two-stage:KEY` aggregates with that method first, `two-stage` by majority.

## Test accuracy, last epoch

Of a fit to all votes, on items nobody voted on.

{last}

## Test accuracy, epoch selected on held-out votes

A tenth of the votes is held out; the epoch that makes them most probable is kept. No true label is looked at.

{selected}

## Consensus

Accuracy on the items with votes, by inputs and votes together, after the last epoch.

{consensus}

## Log loss

The mean of -log P(true class) on test items, after the last epoch, so low is good.

{loss}

## Seconds

A fit to all votes, on one thread of a CPU.

{seconds}
"""

BESIDE = """
## Beside published figures

Test accuracy. Most papers report the best test epoch, a choice by the test labels, which flatters by one to three
points; here no such choice is made. Differences of the last epoch of more than a point are bold, and what was different
there is below.

{table}

## What was different there

{reasons}
"""


def page(facts: dict[str, Any], published: Sequence[Published] = ()) -> str:
    """The facts as a page in Markdown, beside published figures where there are some."""
    found = means(facts)
    sets = facts["data"]
    methods = [m for m in facts["methods"] if any((s, m) in found for s in sets)]
    counts = ("items", "annotators", "votes", "classes", "test")
    shapes = [(s, *(f"{facts['sets'][s][k]:,}" for k in counts)) for s in sets]
    text = PAGE.format(
        seeds="of one seed"
        if facts["seeds"] == 1
        else f"mean ± standard deviation over {facts['seeds']} seeds of the learner",
        epochs="" if facts["epochs"] is None else f" A trial: all learners had {facts['epochs']} epochs only.",
        note=f"\n{facts['note']}\n" if facts.get("note") else "",
        shapes=markdown(("data set", "items", "annotators", "votes", "classes", "to test on"), shapes),
        last=_figures(found, sets, methods, "accuracy_last", 100.0, 1, max),
        selected=_figures(found, sets, methods, "accuracy_selected", 100.0, 1, max),
        consensus=_figures(found, sets, methods, "accuracy_consensus", 100.0, 1, max),
        loss=_figures(found, sets, methods, "log_loss", 1.0, 2, min),
        seconds=_figures(found, sets, methods, "seconds", 1.0, 1, None),
    )
    rows = list(compare(found, published))
    if rows:
        table = [
            (
                f"`{p.method}`",
                p.data,
                f"{last:.1f}",
                "" if selected is None else f"{selected:.1f}",
                f"{p.value:.1f}",
                f"**{last - p.value:+.1f}**" if abs(last - p.value) > LARGE else f"{last - p.value:+.1f}",
                p.source,
            )
            for p, last, selected in rows
        ]
        reasons = [
            f"- `{p.method}` on {p.data}, {last:.1f} here and {p.value:.1f} ({p.source}): {p.reason or 'not known.'}"
            for p, last, _ in rows
            if abs(last - p.value) > LARGE
        ]
        header = ("method", "data set", "last", "selected", "published", "difference", "source")
        text += BESIDE.format(
            table=markdown(header, table, left=(0, 1, 6)),
            reasons="\n".join(reasons) or "No figure differs by more than a point.",
        )
    return text


def compare(
    found: dict[tuple[str, str], dict[str, tuple[float, float]]], published: Iterable[Published]
) -> Iterator[tuple[Published, float, float | None]]:
    """Each published figure for which there is one of ours: last epoch and selected epoch, in percent."""
    for p in published:
        ours = found.get((p.data, p.method), {})
        if "accuracy_last" in ours:
            selected = ours.get("accuracy_selected")
            yield p, 100.0 * ours["accuracy_last"][0], None if selected is None else 100.0 * selected[0]


def _figures(
    found: dict[tuple[str, str], dict[str, tuple[float, float]]],
    sets: Sequence[str],
    methods: Sequence[str],
    name: str,
    scale: float,
    digits: int,
    best: Callable[[list[float]], float] | None,
) -> str:
    """Methods x data sets: mean ± standard deviation."""
    value = {(s, m): found.get((s, m), {}).get(name) for s in sets for m in methods}
    there = {s: [round(scale * x[0], digits) for m in methods if (x := value[s, m]) is not None] for s in sets}
    top = {s: best(x) if best and x else None for s, x in there.items()}

    def shown(s: str, m: str) -> str:
        x = value[s, m]
        if x is None:
            return ""
        mean = f"{scale * x[0]:.{digits}f}"
        mean = f"**{mean}**" if round(scale * x[0], digits) == top[s] else mean
        return f"{mean} ± {scale * x[1]:.{digits}f}" if x[1] > 0.0 else mean

    return markdown(("method", *sets), [(f"`{m}`", *(shown(s, m) for s in sets)) for m in methods])
