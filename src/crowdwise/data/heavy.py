"""Libraries that take long to load, as modules that are loaded when something of them is first used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["pl"]


class LazyModule(ModuleType):
    """A module that is imported when an attribute of it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)

    def __reduce__(self) -> Any:
        return import_module, (self.__name__,)


if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")
