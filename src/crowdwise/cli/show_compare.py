"""What people see of compared methods in a terminal: a table, the agreement between them, and posterior checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from crowdwise.cli.show import console, new_table, strong, whisker_cell
from crowdwise.trust.method_comparison import Comparison
from crowdwise.trust.posterior_checks import PosteriorCheck

if TYPE_CHECKING:
    from rich.table import Table

WIDTH, WIDE = 22, 66
"""Characters of a drawn interval, and of a screen that has room for every column."""
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
        strong(
            f"{len(found.methods)} methods",
            f" predict held-out votes: {splits}, {found.n_held_out:,.0f} of {found.n_votes:,} votes held out in each",
        ),
        soft_wrap=True,
    )
    screen.print()
    screen.print(method_table(found, screen.width))
    screen.print(verdict(found), soft_wrap=True)
    screen.print(certainty(found), soft_wrap=True)
    if len(found.methods) > 1:
        screen.print()
        screen.print(agreement_table(found, screen.width))
    if found.checks and found.checks[0]:
        screen.print()
        screen.print(check_table(found.methods[0], found.checks[0]))
    for name, why in found.problems.items():
        screen.print(f"{name} was left out: {why}")


def verdict(found: Comparison) -> str:
    """The best, and the methods within noise of it, in a sentence."""
    best, *others = found.close
    if not others:
        return f"{best} predicts votes best, beyond noise."
    return f"{best} predicts votes best; within noise, so do {', '.join(others)}."


def certainty(found: Comparison) -> str:
    """How far the scores may be off, and what they are of."""
    words = f"Scores are within {found.error.max():.2g} (95%, over items)."
    if found.n_items < found.of_items:
        words += f" Compared on {found.n_items:,} of {found.of_items:,} items, drawn at random."
    return words


def method_table(found: Comparison, width: int) -> Table:
    """A row for each method, with the interval of how far it is behind the best drawn to scale; on a narrow screen
    without calibration and seconds."""
    reach = float(np.nanmax(found.high[np.isfinite(found.high)], initial=0.0))
    more = [">calibration", ">seconds"] if width >= WIDE else []
    names = ["|method", ">score", ">behind", *more]
    names += [] if found.accuracy is None else [">accuracy"]
    table = new_table(*names, f"95%, 0 to {reach:.3f}")
    for j, name in enumerate(found.methods):
        row = [name, f"{found.score[j]:.4f}", f"{found.behind[j]:.4f}"]
        row += [f"{found.calibration[j]:.3f}", f"{found.seconds[j]:.2f}"] if more else []
        if found.accuracy is not None:
            row.append(f"{found.accuracy[j]:.4f}")
        ends = found.low[j], found.behind[j], found.high[j]
        drawn = whisker_cell(*ends, WIDTH, 0.0, reach) if j and reach > 0.0 else "●"
        table.add_row(*row, drawn, style="bold" if j == 0 else None)
    return table


def agreement_table(found: Comparison, width: int) -> Table:
    """Items labelled alike, in percent; as many methods as the terminal is wide enough for."""
    longest = max(map(len, found.methods))
    shown = max(2, min(len(found.methods), (width - longest - 2) // 9))
    table = new_table("", *(f">{name[:8]}" for name in found.methods[:shown]), title="Items labelled alike, %")
    for j, name in enumerate(found.methods[:shown]):
        table.add_row(name, *(f"{100 * x:.1f}" for x in found.agreement[j, :shown]))
    if shown < len(found.methods):
        table.add_row(f"... {len(found.methods) - shown} more")
    return table


def check_table(method: str, checks: tuple[PosteriorCheck, ...]) -> Table:
    """What was observed beside what the method would have given."""
    title = f"Votes as {method} would have drawn them"
    table = new_table("check", ">seen", ">drawn", ">p", "", title=title)
    for check in checks:
        if np.isfinite(check.observed):
            words = "not explained" if check.p_value < SMALL else ""
            cells = (f"{check.observed:.4g}", f"{check.expected:.4g}", f"{check.p_value:.2f}", words)
            table.add_row(MEANINGS[check.name], *cells, style="yellow" if words else None)
    return table
