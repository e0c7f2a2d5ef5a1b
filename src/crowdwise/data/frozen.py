"""What all tables of answers share: arrays that nobody can write to, in copies too."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any, ClassVar

import numpy as np


class Frozen:
    """The base of frozen dataclasses that hold arrays."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Frozen.__post_init__(self)  # a copy is as frozen as the original
