"""The terminal as crowdwise writes to it: names are data there, never markup and never control sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters that steer a terminal -> how they are shown."""
CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""... and those that turn the direction of text."""


class Screen(Console):
    """A console that prints what it is given: ``[b]`` is three characters, and escape is shown as a backslash and x1b.

    Styles come as :class:`rich.text.Text`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else text.translate(CONTROLS), style, control)


class Drawing:
    """A bar, an interval or the ends of a scale, drawn as wide as there is room for: none is cut.

    ``draw`` takes a number of characters, at least ``least`` and at most ``most``.
    """

    def __init__(self, draw: Callable[[int], str], most: int, least: int = 8) -> None:
        self.draw, self.most, self.least = draw, most, least

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        yield Text(self.draw(max(1, min(self.most, options.max_width))), no_wrap=True, overflow="crop")

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        width = min(self.most, options.max_width)
        return Measurement(min(self.least, width), width)
