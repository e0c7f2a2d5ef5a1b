"""Methods on sets of rules that abstain, beside the published label models of WRENCH: the table of docs/rules.md.

    python benchmarks/rules.py [--data DIR]     less than a minute

Methods see the votes of all items and no truth. Items without any vote stay in: their label is the method's guess.
"""

from __future__ import annotations

import argparse
import os
import re
import warnings
from pathlib import Path

import numpy as np

import crowdwise as cw

PAGE = Path(__file__).resolve().parents[1] / "docs" / "rules.md"
SETS = ("rules_youtube", "rules_trec")
METHODS = ("majority", "one-coin", "dawid-skene", "ibcc", "mace", "auto")
PUBLISHED = {"rules_youtube": 84.0, "rules_trec": 64.2}
"""The best label model of each set in WRENCH (Zhang et al., 2021), on its test items."""


def accuracies(votes: cw.Votes, method: str) -> list[float]:
    """In percent, ties split: of items with votes, of test items with votes, and of all test items."""
    test = np.array([name.startswith("test") for name in votes.items.tolist()])
    covered = np.diff(votes.indptr) > 0
    found = cw.aggregate(votes, method)
    return [
        100 * cw.metrics.accuracy(found, np.where(rows, votes.truth, -1).astype(np.int32)).value
        for rows in (covered, covered & test, test)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("CROWDWISE_DATA", "../shared/data"))
    folder = Path(parser.parse_args().data)
    crowds = {}
    for name in SETS:
        truth = cw.read_truth(folder / name / "truth.csv")
        crowds[name] = cw.read_votes(folder / name / "labels.csv").with_items(list(truth)).with_truth(truth)
    head = [f"{name} {rows}" for name in SETS for rows in ("with votes", "test, with votes", "test")]
    lines = [f"| method | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in METHODS:
            cells = [f"{value:.1f}" for name in SETS for value in accuracies(crowds[name], method)]
            lines.append(f"| `{method}` | {' | '.join(cells)} |")
    best = " | ".join(f"| {PUBLISHED[name]:.1f} |" for name in SETS)
    lines.append(f"| best label model of WRENCH, published | {best} |")
    block = "\n".join(("<!-- figures rules:begin -->", *lines, "<!-- figures rules:end -->"))
    text = re.sub(r"<!-- figures rules:begin -->.*<!-- figures rules:end -->", block, PAGE.read_text(), flags=re.S)
    PAGE.write_text(text, encoding="utf-8")
    print(block)


if __name__ == "__main__":
    main()
