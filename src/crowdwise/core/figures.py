"""What figures share that are drawn by hand: axes, numbers, a style for light and dark ground, PNG, and the figure."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
