"""What figures share that are drawn by hand: axes, numbers, a style for light and dark ground, PNG, and the figure."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data.folders import write_text, write_whole
from crowdwise.errors import ExtraError, ParameterError

STYLE = (
    "<style>.ground{fill:#fff}.ink{fill:#222}.axis{stroke:#555}.grid{stroke:#ddd}.mark{stroke:#555}"
    "@media (prefers-color-scheme:dark){.ground{fill:#1b1d23}.ink{fill:#eee}.axis{stroke:#aaa}.grid{stroke:#3a3d45}"
    ".mark{stroke:#bbb}}</style>"
)
"""Colours on light and on dark ground."""


class Axis:
    """Round numbers along a side, and where a value stands on it."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = float(min(values)), float(max(values))
        if high - low < 1e-12:
            low, high = low - 0.5, high + 0.5
        rough = (high - low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        self.step = next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= rough * (1.0 - 1e-9))
        first, last = math.floor(low / self.step + 1e-9), math.ceil(high / self.step - 1e-9)
        self.ticks = [k * self.step for k in range(first, last + 1)]
        self.low, self.high, self.start, self.end = self.ticks[0], self.ticks[-1], start, end

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def number(value: float, percent: bool, step: float) -> str:
    """As many digits as the steps of the axis need."""
    value, step = (100.0 * value, 100.0 * step) if percent else (value, step)
    digits = next((d for d in range(4) if abs(step * 10**d - round(step * 10**d)) < 1e-6), 4)
    return f"{value:,.{digits}f}" + (" %" if percent else "")


def to_png(svg: str, scale: float = 2.0) -> bytes:
    """The figure as a PNG, on light ground."""
    try:
        import vl_convert
    except ImportError:
        raise ExtraError(
            "PNG figures need vl-convert-python, which is not installed: pip install vl-convert-python. "
            "The SVG shows the same."
        ) from None
    return bytes(vl_convert.svg_to_png(svg, scale=scale))


@dataclass(frozen=True)
class Figure:
    """A drawn figure: notebooks show it, and :meth:`save` writes it."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as ``.svg`` or ``.png``, whole or not at all."""
        path = Path(path)
        match path.suffix.lower():
            case ".svg":
                write_text(self.svg, path)
            case ".png":
                image = to_png(self.svg)
                write_whole(lambda place: Path(place).write_bytes(image), path)
            case _:
                raise ParameterError(f"A figure is written as .svg or .png, not as {path.name!r}.")
        return path


MOST_BARS = 30
"""Rows of a figure: of more the first and the last half are drawn."""
TONES = {
    "keep": ("#17683a", "#5fc98d"), "look": ("#a35406", "#f0a04b"), "drop": ("#ad2015", "#ff8577"),
    "unclear": ("#777", "#999"), "plain": ("#0b655f", "#3fb8ae"),
}  # fmt: skip
"""The colour of each verdict, and of numbers without, on light and on dark ground."""
ROW_STYLE = "<style>{}@media (prefers-color-scheme:dark){{{}}}</style>".format(
    *("".join(f".{tone}{{fill:{c[n]};stroke:{c[n]}}}" for tone, c in TONES.items()) for n in (0, 1))
)


def draw_rows(
    title: str, names: Sequence[Any], values: Any, low: Any = None, high: Any = None,
    tones: Sequence[str] | None = None, *, labels: Sequence[str] | None = None, below: Sequence[str] = (),
    unit: str = "", percent: bool = False, most: int = MOST_BARS,
) -> Figure:  # fmt: skip
    """Numbers by name: bars, or dots where they have intervals. ``tones``: a key of ``TONES`` for each; ``labels``:
    what stands beside each instead of the number; ``below``: lines under the title; ``unit``: of the axis."""
    x = np.asarray(values, dtype=np.float64)
    known = np.flatnonzero(np.isfinite(x))
    half = most // 2
    cut = len(known) > most
    rows = np.concatenate([known[:half], known[-half:]]) if cut else known
    reach = [] if low is None else [np.asarray(end, dtype=np.float64) for end in (low, high)]
    ends = [
        *([] if labels else [0.0]),
        *x[rows].tolist(),
        *(e for end in reach for e in end[rows].tolist() if math.isfinite(e)),
    ]
    axis = Axis(ends or [0.0], 206.0, 560.0)
    step = 1.0 if (x[rows] == np.round(x[rows])).all() else min(axis.step / 10.0, 0.01)
    title += f" ({half} first and {half} last of {len(known):,})" if cut else ""
    used = [tone for tone in TONES if tone in (tones or ())]
    top = (22 if used else 0) + 16 * len(below)
    height = 66 + top + 20 * (len(rows) + cut + bool(unit))
    foot = height - (44 if unit else 24)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" width="640" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>{STYLE}{ROW_STYLE}'
        f'<rect class="ground" width="640" height="{height}"/>'
        f'<text class="ink" x="8" y="18" font-weight="bold">{escape(title)}</text>'
    ]
    for place, tone in enumerate(used):
        at = 176 + 90 * place
        parts.append(f'<circle class="{tone}" cx="{at}" cy="36" r="4"/><text class="ink" x="{at + 9}" y="40">{tone}')
        parts.append("</text>")
    for place, text in enumerate(below):
        parts.append(f'<text class="ink" x="8" y="{36 + 16 * place}">{escape(text)}</text>')
    if unit:
        parts.append(f'<text class="ink" x="383" y="{height - 8}" text-anchor="middle">{escape(unit)}</text>')
    for tick in axis.ticks:
        parts.append(f'<path class="grid" d="M{axis(tick)} {30 + top}V{foot}"/>')
        label = number(tick, percent, axis.step)
        parts.append(f'<text class="ink" x="{axis(tick)}" y="{foot + 16}" text-anchor="middle">{label}</text>')
    for line, n in enumerate(rows.tolist()):
        y, tone, name = 42 + top + 20 * (line + (cut and line >= half)), tones[n] if tones else "plain", str(names[n])
        if cut and line == half:
            parts.append(f'<text class="ink" x="198" y="{y - 16}" text-anchor="end">…</text>')
        name = name if len(name) <= 30 else name[:29] + "…"
        parts.append(f'<text class="ink" x="198" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        if reach and all(math.isfinite(end[n]) for end in reach):
            a, b = (axis(float(end[n])) for end in reach)
            parts.append(
                f'<line class="{tone}" x1="{a}" x2="{b}" y1="{y}" y2="{y}" stroke-width="5" stroke-opacity=".4"/>'
                f'<circle class="{tone}" cx="{axis(x[n])}" cy="{y}" r="4"/>'
            )
        else:
            a, b = sorted((axis(0.0), axis(x[n])))
            parts.append(f'<rect class="bar {tone}" x="{a}" y="{y - 6}" width="{b - a:.1f}" height="12"/>')
        label_of = escape(labels[n]) if labels else number(x[n], percent, step)
        parts.append(f'<text class="ink" x="572" y="{y + 4}">{label_of}</text>')
    return Figure("".join([*parts, "</svg>"]))


def draw_table(title: str, columns: Mapping[str, Any]) -> Figure:
    """The first column of a table that has an interval, the largest first; else how its probabilities are spread."""
    first = next(iter(columns))
    measure = next((name for name in columns if f"{name}_low" in columns and f"{name}_high" in columns), None)
    if measure is not None:
        values = [
            np.asarray(columns[name], dtype=np.float64) for name in (measure, f"{measure}_low", f"{measure}_high")
        ]
        order = np.argsort(-np.nan_to_num(values[0], nan=-np.inf), kind="stable")
        title = f"{title}: {measure.replace('_', ' ')}, with 95 % intervals"
        value, low, high = (part[order] for part in values)
        return draw_rows(title, np.asarray(columns[first])[order].tolist(), value, low, high)
    if "probability" not in columns:
        raise ParameterError(f"There is nothing to draw in the table of {title}: no intervals and no probabilities.")
    height, edges = np.histogram(np.asarray(columns["probability"], dtype=np.float64), bins=10, range=(0.0, 1.0))
    ranges = [f"{100 * a:.0f}–{100 * b:.0f} %" for a, b in pairwise(edges.tolist())]
    least = int(np.flatnonzero(height)[0]) if height.any() else 0
    return draw_rows(f"{title} by the probability of their label", ranges[least:][::-1], height[least:][::-1])
