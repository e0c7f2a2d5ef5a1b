"""The page of the methods on real crowds: the facts of ``crowdwise bench --out FACTS.json``, beside published figures.

python benchmarks/labels_page.py [FACTS.json] [--page PAGE.md] [--published FIGURES.csv]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tables
from tables import Published

HERE = Path(__file__).resolve().parent
LARGE = 0.5
"""A difference from a published figure of more points than this asks for a reason."""
SHOWN = 3.0
"""From so many points on the page gives the reason; the file of figures has all of them."""


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

Written by `benchmarks/labels_page.py` from `benchmarks/results/labels.json`, which also has log loss and seconds for
each data set. Every method sees the votes alone, with its defaults, {seeds}; the truth only measures. Methods with
skills from pairs run without their fallback to equal weights. Accuracy is in percent, ties split; the best of a
column is bold; a gap says that a method refused the data. Log loss (the mean of -log P(true class), so low is good)
and seconds of a fit are means over the data sets.

Most defaults are those of the papers; no default may follow these tables. Not blind to public data sets are the
smoothing of `dawid-skene` and its kin, the forms of `anchored` and `auto`, and the priors of `irt`, which were
settled while figures such as these were in view: small differences in their favour mean nothing.

{shapes}

## Accuracy

{accuracy}
"""

BESIDE = """
## Beside published figures

`benchmarks/published.csv` has {n} figures of papers, their code or independent re-computations for the same data.
{near} of them are within half a point of ours. The file has a reason for each of the others; those that are off by more
than {shown:g} points, ours first:

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
    more = {
        "mean": tables.means(found["accuracy"], sets, methods, scale=100.0),
        "log loss": tables.means(found["log_loss"], sets, methods, digits=2),
        "seconds": tables.means(found["seconds"], sets, methods, digits=2),
    }
    text = PAGE.format(
        seeds="one seed" if facts["seeds"] == 1 else f"the mean of {facts['seeds']} seeds",
        shapes=tables.counts(facts, counted),
        accuracy=tables.figures(found["accuracy"], sets, methods, scale=100.0, best=max, more=more),
    )
    rows = compare(facts, published)
    if rows:
        near = sum(not r.large for r in rows)
        far = [(r.published, r.here) for r in rows if abs(r.difference) > SHOWN]
        text += BESIDE.format(n=len(rows), near=near, shown=SHOWN, reasons=tables.reasons(far, 2, "None."))
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("facts", type=Path, nargs="?", default=HERE / "results" / "labels.json")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "benchmarks" / "labels.md")
    parser.add_argument("--published", type=Path, default=HERE / "published.csv")
    given = parser.parse_args()
    text = page(tables.read_facts(given.facts, "labels"), tables.read_published(given.published))
    given.page.write_text(text, encoding="utf-8")
