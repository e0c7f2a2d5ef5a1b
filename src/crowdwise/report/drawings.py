"""The geometry of drawings: points of lines and diagrams, in units of their boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

BOX = 300.0
"""Width and height of the reliability diagram."""


def objective_line(trace: list[float]) -> dict[str, Any] | None:
    """The objective as points of a line in a box of 100 x 40."""
    values = [x for x in trace if x is not None]
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    room = (high - low) or 1.0
    points = [f"{100 * i / (len(values) - 1):.2f},{38 - 36 * (x - low) / room:.2f}" for i, x in enumerate(values)]
    return {"points": " ".join(points), "first": values[0], "last": values[-1]}


def reliability_diagram(truth: dict[str, Any] | None) -> dict[str, Any] | None:
    """Points of the calibration curve with intervals, the larger the more items, and ticks, in a box of ``BOX``.

    Both axes begin at the tenth under the least value.
    """
    if not truth or not truth["reliability"]["probability"]:
        return None
    table = truth["reliability"]
    names = ("probability", "accuracy", "low", "high")
    start = min(float(np.floor(10.0 * min(x for name in names for x in table[name]))) / 10.0, 0.9)
    most = max(table["items"])

    def at(x: float) -> float:
        return round(BOX * (x - start) / (1.0 - start), 1)

    rows = zip(*(table[name] for name in (*names, "items")), strict=True)
    points = [
        {
            "x": at(p), "y": BOX - at(a), "low": BOX - at(low), "high": BOX - at(high),
            "r": round(3.0 + 7.0 * float(np.sqrt(n / most)), 1), "probability": p, "accuracy": a, "items": n,
        }
        for p, a, low, high, n in rows
    ]  # fmt: skip
    step = 0.1 if start >= 0.5 else 0.2
    ticks = [round(float(x), 2) for x in np.arange(1.0, start - 1e-9, -step)][::-1]
    return {"points": points, "ticks": [{"at": at(x), "value": x} for x in ticks], "box": BOX}
