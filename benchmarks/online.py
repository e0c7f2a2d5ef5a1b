"""Following a stream: accuracy after one pass beside a batch fit, and votes per second as a stream grows.

``python benchmarks/online.py`` writes benchmarks/results/online.json and docs/benchmarks/online.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import crowdwise as cw
from crowdwise import registry
from crowdwise.bench.runs import data_folder

ROOT = Path(__file__).resolve().parents[1]
SETS = ("dog", "web", "rte", "bluebird", "d_product")
METHODS = ("dawid-skene", "one-coin", "ibcc")
ORDERS = 20
BATCH = 100


def batches(votes: cw.Votes, rng: np.random.Generator, size: int) -> Iterator[cw.Votes]:
    """The votes in random order, so many at a time."""
    order = rng.permutation(votes.n_votes)
    for i in range(0, len(order), size):
        chosen = np.zeros(votes.n_votes, dtype=bool)
        chosen[order[i : i + size]] = True
        some = votes.select(chosen)
        yield some[np.flatnonzero(np.diff(some.indptr) > 0)]


def accuracy() -> list[dict[str, Any]]:
    rows = []
    for name in SETS:
        votes = cw.read_dataset(data_folder() / name, on_duplicate="first").votes
        truth = {votes.items[n]: votes.classes[votes.truth[n]] for n in np.flatnonzero(votes.truth >= 0)}
        for key in METHODS:
            row: dict[str, Any] = {"data": name, "method": key, "batch": cw.aggregate(votes, key).score(truth)}
            for what, options in (("decayed", {}), ("exact", {"step": None})):
                scores = []
                for order in range(ORDERS):
                    online = cw.Online(registry.create(key), **options)
                    for some in batches(votes, np.random.default_rng(order), BATCH):
                        online.partial_fit(some)
                    scores.append(online.consensus().score(truth))
                row[what], row[f"{what}_sd"] = float(np.mean(scores)), float(np.std(scores))
            rows.append(row)
    return rows


def speed(n_votes: int = 1_000_000, n_annotators: int = 10_000, size: int = 1_000) -> dict[str, Any]:
    """Seconds per batch over a stream of items with five votes each; the batches are tables made beforehand."""
    out: dict[str, Any] = {"votes": n_votes, "annotators": n_annotators, "batch": size}
    for what, options in (("decayed", {}), ("exact", {"step": None})):
        rng = np.random.default_rng(0)
        online = cw.Online(registry.create("dawid-skene"), classes=range(5), on_duplicate="all", **options)
        seconds = []
        for start in range(0, n_votes, size):
            item = np.repeat(np.arange(start // 5, (start + size) // 5), 5)
            truth = item % 5
            label = np.where(rng.random(size) < 0.7, truth, rng.integers(0, 5, size))
            names, code = np.unique(item, return_inverse=True)
            some = cw.Votes.from_codes(
                code, rng.integers(0, n_annotators, size), label, items=names, annotators=np.arange(n_annotators),
                classes=range(5), on_duplicate="all",
            )  # fmt: skip
            began = time.perf_counter()
            online.partial_fit(some)
            seconds.append(time.perf_counter() - began)
        tenth = len(seconds) // 10
        out[what] = {
            "votes_per_second": size / float(np.mean(seconds)),
            "first_tenth": size / float(np.mean(seconds[tenth : 2 * tenth])),
            "last_tenth": size / float(np.mean(seconds[-tenth:])),
        }
    return out


def page(facts: dict[str, Any]) -> str:
    lines = [
        "# Following a stream",
        "",
        "Written by `python benchmarks/online.py`. Votes come in random order, "
        f"{BATCH} at a time, each once; then the consensus is compared with that of a batch fit of the same model. "
        f"Accuracy in percent (ties split), mean ± standard deviation over {ORDERS} orders. `decayed` is the default, "
        "`exact` keeps exact statistics and looks at one old item again for each new one (`step=None`).",
        "",
        "| data set | method | batch | decayed | exact |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in facts["accuracy"]:
        cells = [f"{100 * row[w]:.1f} ± {100 * row[w + '_sd']:.1f}" for w in ("decayed", "exact")]
        lines.append(f"| {row['data']} | `{row['method']}` | {100 * row['batch']:.1f} | {' | '.join(cells)} |")
    s = facts["speed"]
    lines += [
        "",
        "## Speed",
        "",
        f"`dawid-skene`, {s['votes']:,} votes by {s['annotators']:,} annotators on items with five classes and five "
        f"votes each, in batches of {s['batch']:,}: votes per second over the whole stream, over its second tenth and "
        "over its last. An early stream is refit now and then (up to 300,000 votes); after that a batch costs the "
        "same however many votes came before.",
        "",
        "| statistics | all | second tenth | last tenth |",
        "| --- | ---: | ---: | ---: |",
    ]
    for what in ("decayed", "exact"):
        cells = [f"{s[what][w]:,.0f}" for w in ("votes_per_second", "first_tenth", "last_tenth")]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    facts = {"accuracy": accuracy(), "speed": speed()}
    (ROOT / "benchmarks" / "results" / "online.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (ROOT / "docs" / "benchmarks" / "online.md").write_text(page(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
