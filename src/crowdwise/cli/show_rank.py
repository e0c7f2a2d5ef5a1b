"""What ``crowdwise rank`` shows: a leaderboard with intervals as bars, and the annotators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.answers.comparisons_leaderboard import Ranking
from crowdwise.cli.show import console

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 36
"""Characters of a bar."""


def facts(ranking: Ranking) -> dict[str, Any]:
    """The JSON object of ``crowdwise rank --json``."""
    board = ranking.to_frame("leaderboard", kind="dict")
    rows = [dict(zip(board, row, strict=True)) for row in zip(*(c.tolist() for c in board.values()), strict=True)]
    return {
        "method": ranking.method,
        "items": len(ranking.item_names),
        "annotators": len(ranking.annotator_names),
        "comparisons": ranking.n_answers,
        "components": int(ranking.components.max()) + 1,
        "tie": ranking.tie,
        "iterations": ranking.iterations,
        "converged": ranking.converged,
        "seconds": round(ranking.seconds, 4),
        "notes": ranking.notes,
        "leaderboard": rows,
    }


def show_ranking(ranking: Ranking, written: list[Any]) -> None:
    screen = console()
    screen.print()
    screen.print(
        f"[bold]{ranking.method}[/bold]: {len(ranking.item_names):,} items, {len(ranking.annotator_names):,} "
        f"annotators, {ranking.n_answers:,} answers"
    )
    screen.print(f"{ranking.iterations} steps, {ranking.seconds:.2f} s")
    for told in ranking.notes:
        screen.print(f"Note: {told}", markup=False, soft_wrap=True)
    screen.print()
    screen.print(leaderboard(ranking))
    if len(ranking.annotator_names) > 1:
        screen.print(annotator_table(ranking))
    if written:
        screen.print()
        screen.print("written: " + ", ".join(str(p) for p in written), markup=False, soft_wrap=True)


def leaderboard(ranking: Ranking, limit: int = 20) -> Table:
    """The best items (all, or the ends of a long list): rank and its interval, score and its interval as a bar."""
    from rich.table import Table

    board = ranking.to_frame("leaderboard", kind="dict")
    N = len(board["item"])
    shown = list(range(N)) if N <= limit else [*range(limit - 5), -1, *range(N - 4, N)]
    low, high = float(board["low"].min()), float(board["high"].max())
    table = Table(
        box=None, title="Leaderboard: scores with a 95% interval", title_justify="left", title_style="bold",
        pad_edge=False,
    )  # fmt: skip
    for name, side in (("rank", "right"), ("ranks", "left"), ("item", "left"), ("score", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    table.add_column(f"{low:.1f}".ljust(WIDTH - 5) + f"{high:.1f}".rjust(5), no_wrap=True)
    for n in shown:
        if n < 0:
            table.add_row("...", "", "", "", "")
            continue
        table.add_row(
            f"{board['rank'][n]}",
            f"{board['rank_low'][n]}–{board['rank_high'][n]}",
            str(board["item"][n])[:40],
            f"{board['score'][n]:+.2f}",
            strip(board["low"][n], board["score"][n], board["high"][n], low, high),
        )
    return table


def strip(low: float, middle: float, high: float, start: float, end: float) -> str:
    """An interval with its middle, on a line from ``start`` to ``end``, with a mark at zero."""
    scale = (WIDTH - 1) / max(end - start, 1e-12)
    a, m, b = (int(np.clip(round((x - start) * scale), 0, WIDTH - 1)) for x in (low, middle, high))
    line = [" "] * WIDTH
    if start < 0.0 < end:
        line[round(-start * scale)] = "┊"
    line[a : b + 1] = ["━"] * (b + 1 - a)
    line[m] = "●"
    return "".join(line).rstrip()


def annotator_table(ranking: Ranking, limit: int = 6) -> Table:
    """Annotators by what the method knows of them: reliability, position, or how often they agree with the scores."""
    from rich.table import Table

    people = ranking.to_frame("annotators", kind="dict")
    name = next(k for k in ("reliability", "position", "agreement") if k in people)
    value, low, high = (
        np.nan_to_num(np.asarray(people[k], dtype=float)) for k in (name, f"{name}_low", f"{name}_high")
    )
    order = np.argsort(-value, kind="stable").tolist()
    if len(order) > 2 * limit:
        order = [*order[:limit], -1, *order[-limit:]]
    title = {
        "reliability": "Annotators: how often they answer straight",
        "position": "Annotators: log odds in favour of the item shown first",
        "agreement": "Annotators: how often they side with the scores",
    }[name]
    table = Table(
        box=None, title=f"{title}, with a 95% interval", title_justify="left", title_style="bold", pad_edge=False
    )
    for column, side in (("annotator", "left"), ("answers", "right"), (name, "right"), ("95% interval", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    if "tie_rate" in people:
        table.add_column("ties", justify="right")
    for m in order:
        if m < 0:
            table.add_row("...")
            continue
        row = [
            str(people["annotator"][m]),
            f"{people['comparisons'][m]:g}",
            f"{value[m]:.2f}",
            f"{low[m]:.2f} to {high[m]:.2f}",
        ]
        table.add_row(*row, *([f"{people['tie_rate'][m]:.0%}"] if "tie_rate" in people else []))
    return table
