"""What people see of comparisons in a terminal: methods side by side, and what the best does not explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from crowdwise.cli.show import console
from crowdwise.trust.method_comparison import Comparison
from crowdwise.trust.posterior_checks import Check

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 22
SMALL = 0.05
"""A p-value under this is pointed out."""
MEANINGS = {
    "disagreement": "pairs of votes on an item that differ",
    "uneven": "disagreement gathers on some items",
    "marginals": "labels that annotators favour",
    "dependence": "pairs of annotators who agree or differ",
}


def show_comparison(found: Comparison) -> None:
    """The table of methods, the agreement between them, and the checks of the best."""
    screen = console(stderr=False)
    splits = f"{found.repeats} split{'s' if found.repeats != 1 else ''}"
    screen.print(
        f"[bold]{len(found.methods)} methods[/bold] predict held-out votes: {splits}, "
        f"{found.n_held_out:,.0f} of {found.n_votes:,} votes held out in each",
        soft_wrap=True,
    )
    screen.print()
    screen.print(method_table(found))
    screen.print(verdict(found), markup=False, soft_wrap=True)
    if len(found.methods) > 1:
        screen.print()
        screen.print(agreement_table(found, screen.width))
    if found.checks and found.checks[0]:
        screen.print()
        screen.print(check_table(found.methods[0], found.checks[0]))
    for name, why in found.problems.items():
        screen.print(f"{name} was left out: {why}", markup=False)


def verdict(found: Comparison) -> str:
    """The best and its company in a sentence."""
    best, *others = found.close
    if not others:
        return f"{best} predicts votes best, beyond noise."
    return f"{best} predicts votes best; within noise, so do {', '.join(others)}."


def method_table(found: Comparison) -> Table:
    """A row for each method, with the interval of how far it is behind the best drawn to scale."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("method")
    for name in ("score", "behind", "calibration", "seconds"):
        table.add_column(name, justify="right")
    if found.accuracy is not None:
        table.add_column("accuracy", justify="right")
    reach = float(np.nanmax(found.high[np.isfinite(found.high)], initial=0.0))
    table.add_column(f"95%, 0 to {reach:.3f}", no_wrap=True)
    for j, name in enumerate(found.methods):
        row = [name, f"{found.score[j]:.4f}", f"{found.behind[j]:.4f}", f"{found.calibration[j]:.3f}"]
        row.append(f"{found.seconds[j]:.2f}")
        if found.accuracy is not None:
            row.append(f"{found.accuracy[j]:.4f}")
        drawn = whisker(found.low[j], found.behind[j], found.high[j], reach) if j else "●"
        table.add_row(*row, drawn, style="bold" if j == 0 else None)
    return table


def whisker(low: float, middle: float, high: float, reach: float) -> str:
    """An interval from 0 to ``reach``, with its middle."""
    if not np.isfinite([low, middle, high]).all() or reach <= 0.0:
        return ""
    a, m, b = (int(np.clip(x / reach * (WIDTH - 1), 0, WIDTH - 1)) for x in (low, middle, high))
    line = [" "] * WIDTH
    line[a : b + 1] = ["━"] * (b + 1 - a)
    line[m] = "●"
    return "".join(line).rstrip()


def agreement_table(found: Comparison, width: int) -> Table:
    """Items labelled alike, in percent; as many methods as the terminal is wide enough for."""
    from rich.table import Table

    longest = max(map(len, found.methods))
    shown = max(2, min(len(found.methods), (width - longest - 2) // 9))
    table = Table(
        box=None, pad_edge=False, title="Items labelled alike, %", title_justify="left", title_style="bold",
    )  # fmt: skip
    table.add_column("")
    for name in found.methods[:shown]:
        table.add_column(name[:8], justify="right", no_wrap=True)
    for j, name in enumerate(found.methods[:shown]):
        table.add_row(name, *(f"{100 * x:.1f}" for x in found.agreement[j, :shown]))
    if shown < len(found.methods):
        table.add_row(f"... {len(found.methods) - shown} more")
    return table


def check_table(method: str, checks: tuple[Check, ...]) -> Table:
    """What was seen beside what the method would have given."""
    from rich.table import Table

    table = Table(
        box=None, pad_edge=False, title=f"Votes as {method} would have drawn them", title_justify="left",
        title_style="bold",
    )  # fmt: skip
    for name, side in (("check", "left"), ("seen", "right"), ("drawn", "right"), ("p", "right"), ("", "left")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for check in checks:
        if np.isfinite(check.observed):
            told = "not explained" if check.p_value < SMALL else ""
            cells = (f"{check.observed:.4g}", f"{check.expected:.4g}", f"{check.p_value:.2f}", told)
            table.add_row(MEANINGS[check.name], *cells, style="yellow" if told else None)
    return table
