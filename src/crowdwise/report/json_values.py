"""Numbers and names as JSON can hold them, and shortened to what a page shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from crowdwise.metrics.bootstrap import Estimate

DIGITS = 4
"""Decimals that are kept: a page shows three, a table that is downloaded four (more in a column of small numbers)."""


def number(x: Any, digits: int = DIGITS) -> float | int | None:
    """A number with few decimals, ``None`` for one that is not finite."""
    value = float(x)
    if not np.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) and isinstance(x, (int, np.integer)) else rounded


def plain_list(values: Any) -> list[Any]:
    """An array of numbers or words as a list."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        top = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
        digits = DIGITS + int(np.clip(-np.ceil(np.log10(top)), 0, 20))
        # Adding 0 turns -0.0 into 0.0.
        return [None if x != x or x in (np.inf, -np.inf) else x for x in (np.round(values, digits) + 0.0).tolist()]
    listed: list[Any] = values.tolist()
    return listed


def estimate(found: Any) -> dict[str, Any]:
    """A :class:`crowdwise.metrics.Estimate` as a dict."""
    return {
        "value": number(found.value), "low": number(found.low), "high": number(found.high), "n": int(found.n),
        "level": found.level,
    }  # fmt: skip


def interval_words(found: dict[str, Any], form: Callable[[float], str]) -> str:
    """The interval in such a dict, or why there is none."""
    value, low, high = (np.nan if found[name] is None else found[name] for name in ("value", "low", "high"))
    return Estimate(value, low, high, found["n"], found["level"]).interval(form)


def shortened(text: Any, most: int) -> str:
    """The beginning of a text that is too long to be shown."""
    whole = str(text)
    return whole if len(whole) <= most else whole[: most - 1].rstrip() + "…"
