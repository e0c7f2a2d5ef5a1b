"""Packages whose names are imported when they are first used, so that importing the package is quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, where: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, from its modules and the names that each has."""
    module_of = {name: module for module, names in where.items() for name in names}

    def get(name: str) -> Any:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        if name in where:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return sorted(module_of), get, lambda: sorted({"__doc__", "__name__", "__path__", *where, *module_of})
