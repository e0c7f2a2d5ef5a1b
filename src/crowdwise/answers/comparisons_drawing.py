"""A leaderboard as a figure: the items from the best to the worst, their scores with intervals, their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from crowdwise.answers.comparisons_scales import MEANINGS, Scale
from crowdwise.core.figures import STYLE, Axis, number

COLOUR = "#0072B2"
ROW, TOP, BOTTOM, RIGHT, WIDTH = 26, 78, 50, 96, 760
LETTER, MAX_LETTERS = 7.4, 30
"""The width of a letter, and how many of a name are shown."""

__all__ = ["draw_leaderboard"]


def draw_leaderboard(rows: dict[str, Sequence[Any]], scale: Scale, level: float, title: str, left_out: int) -> str:
    """An SVG of a leaderboard: ``item``, ``rank``, ``rank_low``, ``rank_high`` and the scale with its ``low`` and
    ``high``, the best first; ``left_out`` items are not drawn."""
    names = [_short(str(name)) for name in rows["item"]]
    n, percent = len(names), scale == "probability"
    left = round(24 + LETTER * max(map(len, names)))
    height = TOP + ROW * n + (ROW if left_out else 0) + BOTTOM
    value, low, high = ([float(v) for v in rows[key]] for key in (scale, f"{scale}_low", f"{scale}_high"))
    x = Axis([*low, *high], left, WIDTH - RIGHT)
    foot = TOP + ROW * n
    said = "; ".join(
        f"{rank}. {name}: {number(v, percent, x.step / 10)}"
        for rank, name, v in zip(rows["rank"], names, value, strict=True)
    )
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t d" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<title id="t">{escape(title)}</title><desc id="d">{escape(said)}</desc>',
        STYLE,
        f'<rect class="ground" fill="#fff" width="{WIDTH}" height="{height}" rx="6"/>',
        _text(title, 16, 26, size=15, weight=600),
        _text(f"dots: estimates; lines: {100 * level:g}% confidence intervals", 16, 47, size=12),
        _text(f"rank ({100 * level:g}% CI)", WIDTH - 12, TOP - 10, anchor="end", size=12),
    ]
    for tick in x.ticks:
        out.append(
            f'<line class="grid" stroke="#ddd" x1="{x(tick)}" x2="{x(tick)}" y1="{TOP}" y2="{foot}"/>'
            + _text(number(tick, percent, x.step), x(tick), foot + 18, anchor="middle", size=12)
        )
    for row, name in enumerate(names):
        y = TOP + ROW * row + ROW / 2
        ranks = f"{rows['rank_low'][row]}–{rows['rank_high'][row]}"
        same = rows["rank_low"][row] == rows["rank_high"][row]
        shown = f"{rows['rank'][row]}" if same else f"{rows['rank'][row]} ({ranks})"
        out += [
            _text(name, left - 12, y + 4, anchor="end"),
            f'<line stroke="{COLOUR}" stroke-width="3" stroke-linecap="round" stroke-opacity="0.55" x1="{x(low[row])}" '
            f'x2="{x(high[row])}" y1="{y}" y2="{y}"/>',
            f'<circle fill="{COLOUR}" cx="{x(value[row])}" cy="{y}" r="4.5"/>',
            _text(shown, WIDTH - 12, y + 4, anchor="end"),
        ]
    out.append(f'<line class="axis" stroke="#555" x1="{left}" x2="{WIDTH - RIGHT}" y1="{foot}" y2="{foot}"/>')
    out.append(_text(MEANINGS[scale], (left + WIDTH - RIGHT) / 2, foot + 38, anchor="middle"))
    if left_out:
        out.append(_text(f"{left_out:,} more items are not shown", 16, height - 10, size=12))
    return "\n".join([*out, "</svg>"]) + "\n"


def _short(name: str) -> str:
    return name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…"


def _text(text: str, x: float, y: float, *, anchor: str = "start", size: int = 13, weight: int = 400) -> str:
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    return (
        f'<text class="ink" fill="#222" x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"{bold}>'
        f"{escape(text)}</text>"
    )
