"""Curves with bands, drawn by hand: an SVG that is legible on light and on dark ground, a page around it, a PNG of it.

Lines differ by colour (those of Okabe and Ito, which people who see colours differently can tell apart) and by dashes;
bands are their colour, thin. The figure has a title and a description for those who hear it, and its text is text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from crowdwise.data.figures import STYLE, Axis, number
from crowdwise.errors import ParameterError

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#A6761D")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "5 2 1 2 1 2", "3 5", "1 3")
WIDTH, HEIGHT = 760, 430
LEFT, RIGHT, TOP, BOTTOM = 76, 190, 44, 54


@dataclass(frozen=True)
class Line:
    """A curve: its name, its points, and a band around it where there is one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None

    def __post_init__(self) -> None:
        given = [a for a in (self.x, self.y, self.low, self.high) if a is not None]
        if (self.low is None) != (self.high is None) or len({len(a) for a in given}) != 1 or len(self.x) == 0:
            raise ParameterError(
                f"{self.name}: expected as many y as x, one at least, and both sides of a band or none."
            )
        if not all(np.isfinite(np.asarray(a, dtype=float)).all() for a in given):
            raise ParameterError(f"{self.name}: expected finite numbers.")


def draw(
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    y_label: str,
    description: str = "",
    x_percent: bool = False,
    x_names: Sequence[str] = (),
    y_percent: bool = True,
    at: float | None = None,
    at_label: str = "",
) -> str:
    """An SVG of some curves.

    Parameters
    ----------
    title, description
        What is shown, and what is to be seen in it, for those who hear the figure; by default where each line ends.
    x_percent, y_percent
        Write shares as percentages.
    x_names
        Places instead of numbers: what stands below x = 0, 1...
    at, at_label
        A height to be marked across the figure, and what it is.
    """
    if not lines:
        raise ParameterError("lines: expected one at least.")
    x = Axis([*range(len(x_names)), *(v for line in lines for v in line.x)], LEFT, WIDTH - RIGHT)
    x_ticks = [(tick, number(tick, x_percent, x.step)) for tick in x.ticks]
    if x_names:
        x.low, x.high, x_ticks = -0.5, len(x_names) - 0.5, list(enumerate(x_names))
    heights = [v for line in lines for part in (line.y, line.low, line.high) if part is not None for v in part]
    y = Axis([*heights, *([] if at is None else [at])], HEIGHT - BOTTOM, TOP)
    said = description or "; ".join(f"{line.name} ends at {number(line.y[-1], y_percent, y.step)}" for line in lines)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="13">',
        f'<title id="t">{escape(title)}</title><desc id="d">{escape(said)}</desc>',
        STYLE,
        f'<rect class="ground" fill="#fff" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="ink" fill="#222" x="{LEFT}" y="24" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for tick in y.ticks:
        out.append(
            f'<line class="grid" stroke="#ddd" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick)}" y2="{y(tick)}"/>'
            f'<text class="ink" fill="#222" x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">'
            f"{number(tick, y_percent, y.step)}</text>"
        )
    for tick, name in x_ticks:
        out.append(
            f'<line class="axis" stroke="#555" x1="{x(tick)}" x2="{x(tick)}" y1="{HEIGHT - BOTTOM}" '
            f'y2="{HEIGHT - BOTTOM + 5}"/><text class="ink" fill="#222" x="{x(tick)}" y="{HEIGHT - BOTTOM + 20}" '
            f'text-anchor="middle">{escape(name)}</text>'
        )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out += [
        f'<path class="axis" stroke="#555" fill="none" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>',
        f'<text class="ink" fill="#222" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
        f"{escape(x_label)}</text>",
        f'<text class="ink" fill="#222" x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">'
        f"{escape(y_label)}</text>",
    ]
    if at is not None:
        out.append(
            f'<line class="mark" stroke="#555" stroke-dasharray="3 3" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(at)}" '
            f'y2="{y(at)}"/><text class="ink" fill="#222" x="{WIDTH - RIGHT + 8}" y="{y(at) + 4:.1f}" font-size="11">'
            f"{escape(at_label)}</text>"
        )
    out += [_band(line, COLOURS[i % len(COLOURS)], x, y) for i, line in enumerate(lines) if line.low is not None]
    for i, line in enumerate(lines):
        style = f'stroke="{COLOURS[i % len(COLOURS)]}" stroke-dasharray="{DASHES[i % len(DASHES)]}"'
        points = "L".join(f"{x(a)} {y(b)}" for a, b in zip(line.x, line.y, strict=True))
        row = HEIGHT - BOTTOM - 18 * (len(lines) - i)
        out += [
            f'<path {style} stroke-width="2.2" fill="none" stroke-linejoin="round" d="M{points}"/>',
            *(
                f'<circle fill="{COLOURS[i % len(COLOURS)]}" cx="{x(a)}" cy="{y(b)}" r="2.6"/>'
                for a, b in zip(line.x, line.y, strict=True)
                if len(line.x) <= 15
            ),
            f'<path {style} stroke-width="2.2" fill="none" d="M{WIDTH - RIGHT + 12} {row}h28"/>',
            f'<text class="ink" fill="#222" x="{WIDTH - RIGHT + 46}" y="{row + 4}">{escape(line.name)}</text>',
        ]
    return "\n".join([*out, "</svg>"]) + "\n"


def page(figures: Sequence[str], *, title: str, text: str = "", table: Sequence[Sequence[Any]] = ()) -> str:
    """An HTML page around some figures, which needs nothing else: ``table`` has a head and rows."""
    head, *rows = [[escape(str(cell)) for cell in row] for row in table] or [[]]
    cells = "".join(f"<tr>{''.join(f'<td>{c}</td>' for c in row)}</tr>" for row in rows)
    titles = "".join(f'<th scope="col">{c}</th>' for c in head)
    rows_shown = f"<table><tr>{titles}</tr>{cells}</table>" if head else ""
    shown = "".join(f"<figure>{_apart(svg, i)}</figure>" for i, svg in enumerate(figures))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>:root{{color-scheme:light dark}}"
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "figure{margin:1.5rem 0}svg{width:100%;height:auto}table{border-collapse:collapse}"
        "td,th{padding:.3rem .8rem;border-bottom:1px solid #8886;text-align:right}"
        "td:first-child,th:first-child{text-align:left}</style></head>"
        f"<body><h1>{escape(title)}</h1><p>{escape(text)}</p>{shown}{rows_shown}</body></html>\n"
    )


def _band(line: Line, colour: str, x: Axis, y: Axis) -> str:
    assert line.low is not None and line.high is not None
    up = [f"{x(a)} {y(b)}" for a, b in zip(line.x, line.high, strict=True)]
    down = [f"{x(a)} {y(b)}" for a, b in zip(line.x, line.low, strict=True)]
    return f'<path fill="{colour}" fill-opacity="0.16" d="M{"L".join([*up, *down[::-1]])}Z"/>'


def _apart(svg: str, number: int) -> str:
    """A figure whose names do not clash with those of another on the same page."""
    return (
        svg.replace('aria-labelledby="t d"', f'aria-labelledby="t{number} d{number}"')
        .replace('<title id="t">', f'<title id="t{number}">')
        .replace('<desc id="d">', f'<desc id="d{number}">')
    )
