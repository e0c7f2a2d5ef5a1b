"""Times as exports write them, in seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

ZONES = {"UTC": 0, "GMT": 0, "PST": -8, "PDT": -7, "MST": -7, "MDT": -6, "CST": -6, "CDT": -5, "EST": -5, "EDT": -4}
NAMED = re.compile(r"^\w{3} (\w{3} \d{1,2} \d\d:\d\d:\d\d) (\w{3,4}) (\d{4})$")
FORMS = ("%m/%d/%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S UTC", "%m/%d/%Y %H:%M", "%Y/%m/%d %H:%M:%S")


def seconds(value: Any) -> float | None:
    """A time in seconds; ``None`` where there is none, or it cannot be read. Without a zone it is taken for UTC.

    >>> seconds("2023-11-14T22:13:20Z"), seconds("Tue Nov 14 14:13:20 PST 2023"), seconds(1700000000000)
    (1700000000.0, 1700000000.0, 1700000000.0)
    """
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _parsed(str(value).strip())
    if number != number or abs(number) > 1e18:
        return None
    while abs(number) > 1e11:  # milliseconds, microseconds
        number /= 1000
    return number


def _parsed(text: str) -> float | None:
    named = NAMED.match(text)
    try:
        if named:
            day, zone, year = named.groups()
            found = datetime.strptime(f"{day} {year}", "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
            return found.timestamp() - 3600 * ZONES.get(zone, 0)
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    for form in FORMS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def number(value: Any) -> float | None:
    """A finite number; ``None`` where there is none."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) < float("inf") else None
