"""The page of the learners' benchmark: what ``learner_runs.py`` measured, beside figures of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tables
from tables import Published

MEASURES = ("accuracy_last", "accuracy_selected", "accuracy_consensus", "log_loss", "seconds")
LARGE = 1.0
"""A difference from a published figure of more points than this asks for a reason."""

PAGE = """# Learners on real crowds

Written by `benchmarks/learner_runs.py`. Every learner sees inputs and votes, with its defaults, one setting for
all data sets; the truth only measures. Figures are in percent, {seeds}.{epochs} The best of a
column is bold; a gap: the learner refused the data, was not measured on it, or has no epochs to choose from.
{note}
{shapes}

`labelme`: 512 averaged VGG-16 features. `music_genre`: 124 audio features. `sentiment_polarity`: words, pairs
of words and groups of letters on 1,500 principal axes. `digits`: pixels, a crowd of twelve trained classifiers, two
spammers and three copiers.
`two-stage:KEY` aggregates with that method first, `two-stage` by majority.

## Test accuracy

Of a fit to all votes, after its last epoch, on items without votes. The last columns are means over the data sets:
test accuracy where the epoch is chosen by a tenth of the votes, held out (no true label is looked at); accuracy on
the items with votes, by inputs and votes together; log loss of test items (low is good); seconds on one thread of a
CPU. `benchmarks/results/learners.json` has all of them for each data set.

{last}
"""

BESIDE = """
## Beside published figures

Most papers report the best test epoch, a choice by the test labels, which flatters by one to three points; here no
such choice is made. Of {n} published test accuracies for the same data {near} are within a point of our last epoch.
The others, ours first, and what was different there:

{reasons}
"""


def page(facts: dict[str, Any], published: Sequence[Published] = ()) -> str:
    """The facts as a page in Markdown, beside published figures where there are some."""
    found, sets = means(facts), facts["data"]
    methods = [m for m in facts["methods"] if any((s, m) in found for s in sets)]

    def measure(name: str) -> dict[tuple[str, str], tuple[float, float]]:
        return {cell: x[name] for cell, x in found.items() if name in x}

    more = {
        "epoch chosen": tables.means(measure("accuracy_selected"), sets, methods, scale=100.0),
        "with votes": tables.means(measure("accuracy_consensus"), sets, methods, scale=100.0),
        "log loss": tables.means(measure("log_loss"), sets, methods, digits=2),
        "seconds": tables.means(measure("seconds"), sets, methods),
    }
    several = f"mean ± standard deviation over {facts['seeds']} seeds of the learner"
    counted = {name: name for name in ("items", "annotators", "votes", "classes")} | {"test": "to test on"}
    text = PAGE.format(
        seeds="of one seed" if facts["seeds"] == 1 else several,
        epochs="" if facts["epochs"] is None else f" A trial: all learners had {facts['epochs']} epochs only.",
        note=f"\n{facts['note']}\n" if facts.get("note") else "",
        shapes=tables.counts(facts, counted),
        last=tables.figures(measure("accuracy_last"), sets, methods, scale=100.0, best=max, more=more),
    )
    rows = list(compare(found, published))
    if rows:
        large = [(p, last) for p, last, _ in rows if is_large(p, last)]
        text += BESIDE.format(n=len(rows), near=len(rows) - len(large), reasons=tables.reasons(large, 1, "None."))
    return text


def is_large(published: Published, here: float) -> bool:
    return abs(here - published.accuracy) > LARGE


def compare(
    found: dict[tuple[str, str], dict[str, tuple[float, float]]], published: Iterable[Published]
) -> Iterator[tuple[Published, float, float | None]]:
    """Each published figure for which there is one of ours: last epoch and selected epoch, in percent."""
    for p in published:
        ours = found.get((p.data, p.method), {})
        if "accuracy_last" in ours:
            selected = ours.get("accuracy_selected")
            yield p, 100.0 * ours["accuracy_last"][0], None if selected is None else 100.0 * selected[0]


def means(facts: dict[str, Any]) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """(data set, method) -> measure -> mean and standard deviation over seeds; what was not measured is left out."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for cell in facts["cells"]:
        for name in MEASURES:
            if cell[name] is not None:
                values.setdefault((cell["data"], cell["method"]), {}).setdefault(name, []).append(cell[name])
    return {
        key: {n: (float(np.mean(x)), float(np.std(x, ddof=1)) if len(x) > 1 else 0.0) for n, x in found.items()}
        for key, found in values.items()
    }
