"""results/*.json -> docs/benchmarks.md and its picture."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"

HEAD = """# Benchmarks

Written by `make bench`, each part measured in a run of its own on one machine: {machine}. Times are the least of
several repeats; what carries over to other machines is the ratios.
"""

SPEED = """
## Dawid-Skene beside crowd-kit

{votes:,} votes on {items:,} items by {annotators:,} annotators, {classes} classes; the peer is crowd-kit 1.4.2, which
works on the names themselves, so that its time depends on whether they are text or integers.

| names | | crowdwise | crowd-kit | |
|---|---|---:|---:|---:|
{rows}

The same log-likelihood is the best that either reaches, less 1e-6 per vote: {accelerated} passes of crowdwise, {plain}
of plain EM. crowd-kit's iterations follow plain EM to six digits, which a test checks, so it needs as many; only the
cost of one was measured. The fit alone is timed: reading and coding the table (Parquet) takes crowdwise another
{text_coding:.2f} s with text names and {int_coding:.2f} s with integers. The memory of a fit is what the process grows
by while it runs; the peak is that of the whole process, libraries, table and all.

**The floor.** A pass must at least gather K scores and scatter K counts for every vote. That alone takes
{floor_ns:.1f} ns per vote on one thread; a whole pass, softmax and all, takes {pass_one_ns:.1f} ns,
{floor_ratio:.2f} times the floor, and {pass_ns:.1f} ns on {threads} threads.
"""

GROWTH = """
## Growth

| votes | seconds per pass | ns per vote |
|---:|---:|---:|
{rows}

Time grows with the number of votes to the power {exponent:.2f}.

![Seconds per pass against the number of votes, both on logarithmic scales: a straight line.](assets/growth.svg)
"""

READING = """
## Reading a file

A CSV of {rows:,} rows, read and coded into votes, beside what polars takes to read the same file.

| item names | polars | crowdwise | ratio |
|---|---:|---:|---:|
{lines}

Names that are text have to be hashed, looked up and turned into Python strings, which costs more than parsing them.
"""

STARTING = """
## Starting

A cold `crowdwise aggregate` on 800 items and 8,000 votes takes {crowdwise_seconds:.2f} s, {ratio:.2f} times as long as
`python -c "import numpy, scipy.sparse, polars"` ({import_seconds:.2f} s). No compiler is loaded for data of this size.
"""

ACCURACY = """
## Accuracy on real crowds

Made by `crowdwise bench labels`: accuracy in percent with ties split, every method with its defaults and one seed.
Most defaults are those of the papers. Not blind to these data sets are the smoothing of `dawid-skene` and its kin, the
form of `anchored`, and the priors of `irt`, which were settled while such figures were in view: small differences in
their favour mean nothing. The best of a column is bold; a gap says that the method refused the data. Log loss and
seconds are means over the data sets; real crowds break every model's assumptions, and confident models pay for it in
log loss.

| method | {names} | mean | log loss | seconds |
|---|{bars}|
{rows}

The data sets: {shapes}.

## Beside published figures

Where a paper, its code or an independent re-computation gives a figure for the same data. A difference of more than
half a point has its reason in the section of the method, where one is known.

| method | data set | here | published | difference | source |
|---|---|---:|---:|---:|---|
{published}
"""


def load(name: str) -> dict[str, Any]:
    return dict(json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8")))


def write() -> None:
    """The page from whatever results there are, and the picture."""
    first = load("speed")["machine"]
    parts = [
        HEAD.format(machine=", ".join(f"{k} {v}" for k, v in first.items())),
        speed(load("speed")["result"]),
        growth(load("growth")["result"]),
        reading(load("reading")["result"]),
        STARTING.format(**load("starting")["result"]),
    ]
    found = load("accuracy")["result"]
    if found["cells"]:
        parts.append(accuracy(found))
    (DOCS / "benchmarks.md").write_text("".join(parts), encoding="utf-8")
    draw(load("growth")["result"])


def speed(r: dict[str, Any]) -> str:
    same, n = r["same_likelihood"], r["votes"]
    rows = []
    for kind in ("text", "integers"):
        x = r[kind]
        ours, peer = x["crowdwise"], x["crowd_kit"]
        for what, a, b, unit, ratio in (
            ("one iteration", ours["iteration_seconds"], peer["iteration_seconds"], "s", x["iteration_ratio"]),
            (
                "to the same log-likelihood",
                same["crowdwise_seconds"],
                x["crowd_kit_likelihood_seconds"],
                "s",
                x["likelihood_ratio"],
            ),
            ("memory of the fit", ours["fit_mb"], peer["fit_mb"], "MB", 1 / x["fit_memory_ratio"]),
            ("peak memory", ours["peak_mb"], peer["peak_mb"], "MB", 1 / x["peak_ratio"]),
        ):
            digits = 0 if unit == "MB" else 3 if a < 0.1 else 2
            rows.append(f"| {kind} | {what} | {a:.{digits}f} {unit} | {b:.{min(digits, 2)}f} {unit} | {ratio:.1f}x |")
    return SPEED.format(
        **{k: r[k] for k in ("votes", "items", "annotators", "classes", "threads")},
        rows="\n".join(rows),
        text_coding=r["text"]["crowdwise"]["coding_seconds"],
        int_coding=r["integers"]["crowdwise"]["coding_seconds"],
        accelerated=same["accelerated_passes"],
        plain=same["plain_passes"],
        floor_ns=1e9 * r["floor_seconds_one_thread"] / n,
        pass_one_ns=1e9 * r["pass_seconds_one_thread"] / n,
        pass_ns=1e9 * r["pass_seconds"] / n,
        floor_ratio=r["floor_ratio_one_thread"],
    )


def growth(r: dict[str, Any]) -> str:
    rows = "\n".join(f"| {row['votes']:,} | {row['seconds']:.4f} | {row['ns_per_vote']:.1f} |" for row in r["rows"])
    return GROWTH.format(rows=rows, exponent=r["exponent"])


def reading(r: dict[str, Any]) -> str:
    lines = "\n".join(
        f"| {name} | {x['polars_seconds']:.2f} s | {x['crowdwise_seconds']:.2f} s | {x['ratio']:.2f} |"
        for name, x in r.items()
    )
    return READING.format(rows=next(iter(r.values()))["rows"], lines=lines)


def accuracy(r: dict[str, Any]) -> str:
    sets, cells = r["sets"], {(c["data"], c["method"]): c for c in r["cells"]}
    methods = list(dict.fromkeys(c["method"] for c in r["cells"]))
    value = {at: None if c["accuracy"] is None else 100 * c["accuracy"] for at, c in cells.items()}
    best = {s: max(value[s, m] for m in methods if value[s, m] is not None) for s in sets}
    rows = []
    for method in methods:
        row = [value[s, method] for s in sets]
        marks = [
            "" if x is None else f"**{x:.1f}**" if x > best[s] - 0.05 else f"{x:.1f}"
            for x, s in zip(row, sets, strict=True)
        ]
        means = [mean([cells[s, method][k] for s in sets]) for k in ("log_loss", "seconds")]
        all_of_it = mean(row)
        ends = ["" if all_of_it is None else f"{all_of_it:.1f}", *("" if x is None else f"{x:.2f}" for x in means)]
        rows.append(f"| `{method}` | {' | '.join([*marks, *ends])} |")
    shapes = [
        f"{s} ({x['items']:,} items, {x['votes'] / x['items']:.1f} votes each, {len(x['classes'])} classes)"
        for s, x in sets.items()
    ]
    return ACCURACY.format(
        names=" | ".join(sets),
        bars="|".join(["---:"] * (len(sets) + 3)),
        rows="\n".join(rows),
        shapes="; ".join(shapes),
        published="\n".join(beside(value)),
    )


def mean(values: list[float | None]) -> float | None:
    """The mean, or nothing where one is missing."""
    there = [v for v in values if v is not None]
    return sum(there) / len(there) if len(there) == len(values) else None


def beside(value: dict[tuple[str, str], float | None]) -> list[str]:
    """Rows that hold our figures against those of published.csv."""
    rows = []
    with (HERE / "published.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            ours = value.get((line["data"], line["method"]))
            if ours is not None:
                gap = ours - float(line["accuracy"])
                shown = f"**{gap:+.2f}**" if abs(gap) > 0.5 else f"{gap:+.2f}"
                cells = (f"`{line['method']}`", line["data"], f"{ours:.2f}", line["accuracy"], shown, line["source"])
                rows.append(f"| {' | '.join(cells)} |")
    return rows


def draw(r: dict[str, Any]) -> None:
    """Seconds per pass against votes, on logarithmic scales."""
    import altair as alt

    data = alt.Data(values=r["rows"])
    x = alt.X("votes:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="~s", tickCount=4, title="votes"))
    y = alt.Y("seconds:Q", scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=4, title="seconds per pass"))
    chart = alt.Chart(data, width=420, height=260).encode(x=x, y=y)
    (chart.mark_line(color="#00796b") + chart.mark_point(color="#00796b", filled=True, size=60)).configure(
        background="white"
    ).save(DOCS / "assets" / "growth.svg")


if __name__ == "__main__":
    write()
