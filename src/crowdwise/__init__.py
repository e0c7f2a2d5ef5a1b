"""crowdwise: labels you can trust from annotators you cannot.

>>> import crowdwise as cw
>>> photo = [("photo", "ann", "cat"), ("photo", "bob", "cat"), ("photo", "cem", "dog")]
>>> votes = cw.Votes.from_records([*photo, ("scan", "ann", "dog"), ("scan", "bob", "dog")])
>>> cw.aggregate(votes, "majority").labels.tolist()
['cat', 'dog']

Names are resolved when they are first used, so that importing crowdwise is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def _public() -> dict[str, str]:
    """Name -> module, below ``crowdwise``: those of the stub beside this file, and the classes of all methods."""
    from crowdwise.registry import ANSWER_METHODS, LEARNERS, METHODS

    names = {e.class_name: e.module for part in (METHODS, LEARNERS, ANSWER_METHODS) for e in part.values()}
    with open(f"{__file__.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:
        for words in map(str.split, stub):  # from crowdwise.module import name as name
            if words[:1] == ["from"] and words[1].startswith("crowdwise"):
                names[words[-1]] = words[1].removeprefix("crowdwise").removeprefix(".")
    return names


_WHERE = _public()
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'crowdwise' has no attribute {name!r}")
    value = getattr(import_module(f"crowdwise.{where}"), name) if where else import_module(f"crowdwise.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
