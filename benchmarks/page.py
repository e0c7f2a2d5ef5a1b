"""results/*.json -> docs/benchmarks/speed.md and its picture, docs/benchmarks/labels.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import labels_page
import tables
from linear import COSTS

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"

HEAD = """# Speed and memory

Written by `make bench`, each part measured in a run of its own on one machine: {machine}. Times are the least of
several repeats; what carries over to other machines is the ratios. How well methods do on real crowds is on a page of
its own: [labels](labels.md).
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

![Seconds per pass against the number of votes, both on logarithmic scales: a straight line.](../assets/growth.svg)
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

PEERS = """
## Other methods beside crowd-kit

{votes:,} votes on {items:,} items by {annotators:,} annotators, {classes} classes; `m-msr` with {few} annotators. Both
in one process on one thread, in processor time. An iteration is the mean over a run; ours are plain passes, without
acceleration. "Same objective": the time until both have reached the lower of the two best values of the objective
(log-likelihood and priors, computed by the same function from both programs' parameters), less 1e-6 per vote, from one
start. "Defaults": a whole fit as it comes; for `mace` these are three starts of ours and ten of theirs. `m-msr` has no
objective, and "defaults" is the whole way to skills that no longer move.

| method | | crowdwise | crowd-kit | |
|---|---|---:|---:|---:|
{rows}

A fit of crowd-kit was stopped at the end of the first iteration past {limit:.0f} s where a row says "over" (the ratio
is then a lower bound, and of fewer iterations than the fit would have). Names are text; runs with
integers are in `benchmarks/results/peers.json`. Its rows were sorted by annotator and label, without which its `mace`
mixes annotators up.
"""

LINEAR = """
## Every method at {votes:,} votes

{annotators:,} annotators, five votes on each item; one thread, processor time. An iteration is the difference between
fits of two and of five, so that what is done once is left out of it; the fit is that of five iterations (of one start,
without the search for the number of communities of `cbcc`), and its memory what the process grows by meanwhile.
Methods that answer yes-or-no questions have two classes. A method that would take minutes at this size was measured
with fewer votes. A gap: no iterations, or too short ones to be told from noise.

| method | votes | classes | ns per vote and iteration | iterations | fit, s | fit, ns per vote | memory, MB |
|---|---:|---:|---:|---:|---:|---:|---:|
{rows}

{costs}
"""

NOT_LINEAR = """The cost of all others grows with the votes alone (times classes). These grow with something else, and
refuse sizes that are hopeless, with advice, instead of filling the memory:

| method | cost grows with | refuses |
|---|---|---|
{rows}
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
        peers(load("peers")["result"]),
        at_size(load("linear")["result"]),
    ]
    (DOCS / "benchmarks" / "speed.md").write_text("".join(parts), encoding="utf-8")
    facts = tables.read_facts(HERE / "results" / "labels.json", "labels")
    published = tables.read_published(HERE / "published.csv")
    if facts["cells"]:
        (DOCS / "benchmarks" / "labels.md").write_text(labels_page.page(facts, published), encoding="utf-8")
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


def peers(r: dict[str, Any]) -> str:
    rows = []

    def row(key: str, what: str, ours: float, theirs: float, stopped: bool = False) -> None:
        shown = f"over {theirs:.0f} s" if stopped else seconds(theirs)
        over = "over " if stopped else ""
        rows.append(f"| `{key}` | {what} | {seconds(ours)} | {shown} | {over}{theirs / ours:.0f}x |")

    for key in ("glad", "mace", "one-coin", "m-msr"):
        mine, x = r[key], r[key]["text"]
        row(key, "one iteration", mine["iteration_seconds"], x["iteration_seconds"])
        if "goal" in x:
            a, b = x["crowdwise_to_goal"], x["crowd_kit_to_goal"]
            what = f"same objective ({a['iterations']} and {b['iterations']} iterations)"
            row(key, what, a["seconds"], b["seconds"])
        what = f"defaults ({mine['default_iterations']} and {x['default_iterations']} iterations)"
        row(key, what, mine["default_seconds"], x["default_seconds"], x.get("default_stopped", False))
    return PEERS.format(
        **r["shapes"]["many"], few=r["shapes"]["few"]["annotators"], limit=r["limit_seconds"], rows="\n".join(rows)
    )


def seconds(x: float) -> str:
    return f"{1000 * x:.2f} ms" if x < 0.1 else f"{x:.2f} s"


NOISE = 0.01
"""An iteration that takes less of its fit than this cannot be told from noise."""


def at_size(r: dict[str, Any]) -> str:
    rows: list[str] = []
    costs: dict[tuple[str, ...], list[str]] = {}
    for key, x in r["rows"].items():
        if key in COSTS:
            costs.setdefault(tuple(COSTS[key]), []).append(f"`{key}`")
        if "problem" in x:
            rows.append(f"| `{key}` | | | | | | | refused |")
            continue
        step = x["iteration_ns_per_vote"]
        step = "" if step is None or step < NOISE * x["fit_ns_per_vote"] else f"{step:.1f}"
        numbers = (f"{x['fit_seconds']:.2f}", f"{x['fit_ns_per_vote']:.0f}", f"{x['fit_mb']:.0f}")
        rows.append(
            f"| `{key}` | {x['votes']:,} | {x['classes']} | {step} | {x['iterations']} | {' | '.join(numbers)} |"
        )
    return LINEAR.format(
        votes=r["votes"],
        annotators=r["annotators"],
        rows="\n".join(rows),
        costs=NOT_LINEAR.format(
            rows="\n".join(f"| {', '.join(keys)} | {' | '.join(cost)} |" for cost, keys in costs.items())
        ).strip(),
    )


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
