"""Names and their codes: names become codes where votes come in, and are looked up again when results are shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Ints
from crowdwise.errors import InputError

__all__ = ["Names"]


class Names:
    """Names in the order in which they were added; the code of a name is its place and never changes.

    >>> names = Names(["ann", "bob"])
    >>> codes, new = names.encode(["bob", "cem"])
    >>> codes.tolist(), new
    ([1, 2], ['cem'])
    >>> names.extend(new)
    >>> names.array()[codes].tolist()
    ['bob', 'cem']
    """

    def __init__(self, names: Iterable[Any] = ()) -> None:
        self.names: list[Any] = []
        self._code: dict[Any, int] = {}
        self._array: npt.NDArray[Any] = np.empty(0, dtype=object)
        self.extend(names)

    def __len__(self) -> int:
        return len(self.names)

    def extend(self, names: Iterable[Any]) -> None:
        """Add names that are new."""
        size = len(self.names)
        self.names.extend(names)
        self._code.update(zip(self.names[size:], range(size, len(self.names)), strict=True))

    def encode(self, names: Iterable[Any]) -> tuple[Ints, list[Any]]:
        """The codes of distinct names, and the names among them that are new: those get the next codes once they are
        passed to :meth:`extend`. Nothing is added here."""
        given = names.tolist() if isinstance(names, np.ndarray) else list(names)
        codes = np.array([self._code.get(name, -1) for name in given], dtype=np.int64)
        new = np.flatnonzero(codes < 0)
        codes[new] = len(self.names) + np.arange(len(new))
        return codes, [given[place] for place in new.tolist()]

    def check_kind(self, new: Iterable[Any], what: str) -> None:
        """Raise an error where new names are of another kind than those that are here: text and integers do not mix."""
        for name in new if self.names else ():
            if type(name) is not type(self.names[0]):
                raise InputError(
                    f"Names of {what} are of one kind: {self.names[0]!r} came before, and {name!r} is of another. Give "
                    "all as text, or all as integers. Nothing was added."
                )

    def array(self) -> npt.NDArray[Any]:
        """All names: ``array()[codes]`` are the names behind some codes."""
        if len(self._array) != len(self.names):
            self._array = np.empty(len(self.names), dtype=object)
            self._array[:] = self.names
        return self._array
