"""Replays and plans as people see them in a terminal."""

from __future__ import annotations

from typing import Any

from crowdwise.cli.show import console, strong


def show_replay(facts: dict[str, Any]) -> None:
    """A row for each strategy: how many votes it needed."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2), header_style="bold")
    table.add_column("strategy")
    for name in ("votes needed", "never", "accuracy at the end", "off by"):
        table.add_column(name, justify="right")
    for name, row in facts["strategies"].items():
        needed = f"{100 * row['share']:.0f} ± {100 * row['share_sd']:.0f} %"
        off = f"{100 * row['calibration']:.1f}"
        table.add_row(name, needed, str(row["never"]), f"{100 * row['accuracy']:.1f} %", off)
    screen = console(stderr=False)
    whole = f"a batch fit of all {facts['votes']:,} votes has {100 * facts['batch_accuracy']:.1f} %"
    screen.print(strong(facts["data"], f", {facts['method']}: {whole}"))
    screen.print(table)
    screen.print(
        "Votes needed: the share at which that accuracy, less half a point, is first reached. "
        "Off by: points between the accuracy that the model expected and the real one, in the mean.",
    )


def show_plan(facts: dict[str, Any]) -> None:
    """A row for each number of votes per item; the best of a column is marked."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2), header_style="bold")
    words = {"accuracy": "labels right", "right": "right labels", "test": "test accuracy"}
    shown = [name for name in words if name in facts]
    for name in ("votes per item", "items", *(words[name] for name in shown)):
        table.add_column(name, justify="right")
    for i, votes in enumerate(facts["votes_per_item"]):
        cells = []
        for name in shown:
            mean = facts[name][i]["mean"]
            text = f"{mean:,.0f}" if name == "right" else f"{100 * mean:.1f} %"
            cells.append(f"{text} *" if facts["best"][name] == votes else f"{text}  ")
        table.add_row(str(votes), f"{facts['items'][i]:,}", *cells)
    screen = console(stderr=False)
    screen.print(strong(facts["data"], f", {facts['method']}: {facts['budget']:,} votes"))
    screen.print(table)
    screen.print("* the best of its column")
