"""What the results of all fits share: how they were made, frozen arrays, tables, a score, and a folder to save in."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import is_number, seed_of
from crowdwise.core.dependence import Dependence
from crowdwise.core.numerics import Floats
from crowdwise.data import encoding
from crowdwise.data.folders import replacing
from crowdwise.data.frames import make_frame
from crowdwise.data.frozen import Frozen
from crowdwise.data.saved_files import SavedFiles, read_saved, write_arrays, write_json
from crowdwise.errors import ConvergenceWarning, DivergedError, ParameterError, ReadError

FORMAT = 4
FACTS, ARRAYS = "consensus.json", "arrays.npz"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result(Frozen, ABC):
    """The base of frozen results. A subclass is a frozen dataclass that gives :meth:`_columns` and :meth:`score`.

    Fields may hold arrays, dicts of arrays, and what JSON can hold; those named in ``NAMES`` are vocabularies.

    Attributes
    ----------
    method, params, seed
        How it was made.
    answer_type, n_answers
        What annotators said (``"votes"``, ``"ratings"``...), and how many answers there are.
    items, annotators
        Tables, in the kind of dataframe the answers came from (see :meth:`to_frame`).
    objective, trace, iterations, converged, seconds
        How the fit went. ``trace`` is the objective after every accepted pass.
    notes
        Sentences on what the method decided and what the result rests on; none for most.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("item_names", "annotator_names")
    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators")
    FINITE: ClassVar[tuple[str, ...]] = ("posterior", "prior", "confusion", "scores", "values")
    """Fields that a fit must fill with finite numbers."""

    method: str
    params: dict[str, Any]
    answer_type: str
    item_names: npt.NDArray[Any]
    annotator_names: npt.NDArray[Any]
    n_answers: int = 0
    trace: Floats = field(default_factory=lambda: np.empty(0))
    iterations: int = 0
    converged: bool = True
    seconds: float = 0.0
    seed: int | None = None
    notes: list[str] = field(default_factory=list)
    kind: str = "polars"

    @classmethod
    def of(cls, model: Any, answers: Any, **found: Any) -> Self:
        """The result of a model that was fitted to some answers: what it ``found``, and how it was made."""
        for name in cls.FINITE:
            if isinstance(array := found.get(name), np.ndarray) and not np.isfinite(array).all():
                raise DivergedError(
                    f"{model.key} broke down on these answers: its {name} is not finite. Extreme answers or weights "
                    "may be the cause: check them, or take another method."
                )
        return cls(**{
            "method": model.key, "params": {name: plain(value) for name, value in model.get_params(deep=False).items()},
            "item_names": answers.items, "annotator_names": answers.annotators, "n_answers": answers.n_answers,
            "seed": seed_of(model.random_state), "kind": answers.kind,
        } | found)  # fmt: skip

    @property
    def objective(self) -> float | None:
        """What was maximised, at the end; ``None`` where the method has no objective."""
        return float(self.trace[-1]) if len(self.trace) else None

    @abstractmethod
    def score(self, truth: Any) -> float:
        """How well it agrees with known truth: 1 is perfect."""

    @property
    def items(self) -> Any:
        """One row per item."""
        return self.to_frame("items")

    @property
    def annotators(self) -> Any:
        """One row per annotator, with intervals."""
        return self.to_frame("annotators")

    def to_frame(self, table: str = "items", *, kind: str | None = None, level: float = 0.95) -> Any:
        """A table of the result.

        Parameters
        ----------
        table
            One of ``TABLES``.
        kind
            ``"pandas"``, ``"polars"``, ``"pyarrow"`` or ``"dict"``; by default what the answers came from.
        level
            The level of the intervals.
        """
        self._check_table(table, level)
        return make_frame(self._columns(table, level), kind or self.kind)

    def _check_table(self, table: str, level: float) -> None:
        if not is_number(level) or not 0.0 < level < 1.0:
            raise ParameterError(f"level={level!r}: expected a number between 0 and 1, such as 0.95.")
        if table not in self.TABLES:
            expected = f"{', '.join(repr(name) for name in self.TABLES[:-1])} or {self.TABLES[-1]!r}"
            raise ParameterError(f"Unknown table {table!r}: expected {expected}.")

    @abstractmethod
    def _columns(self, table: str, level: float) -> dict[str, Any]:
        """The columns of a table, by name."""

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``consensus.json``, ``arrays.npz`` and a manifest with their checksums to a folder, all or nothing.

        An earlier result is replaced. A folder that holds anything else is an error, and nothing in it is touched.
        """
        facts: dict[str, Any] = {"format": FORMAT, "type": type(self).__name__}
        arrays: dict[str, Any] = {}
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if name in self.NAMES:
                facts[name] = value.tolist()
            elif isinstance(value, np.ndarray):
                arrays[name] = value
            elif isinstance(value, Mapping) and value and all(isinstance(v, np.ndarray) for v in value.values()):
                arrays |= {f"{name}:{key}": column for key, column in value.items()}
            else:
                facts[name] = plain(value)
        with replacing(folder, "consensus") as temporary:
            write_json(temporary / FACTS, facts)
            write_arrays(temporary / ARRAYS, arrays)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote. Files that are not as they were written are an error."""
        return cls.of_files(read_saved(folder, "consensus"))

    @classmethod
    def of_files(cls, saved: SavedFiles) -> Self:
        """The result in saved files."""
        facts, arrays = saved.json(FACTS), dict[str, Any](saved.arrays(ARRAYS))
        if facts.pop("format", None) != FORMAT:
            raise ReadError(
                f"{saved.folder} was written by another version of crowdwise, which this one does not read."
            )
        found = facts.pop("type", None)
        if found != cls.__name__:
            raise ReadError(f"{saved.folder} holds a saved {found}: load it with crowdwise.{found}.load.")
        with saved.reading():
            for name in cls.NAMES:
                facts[name] = encoding.to_vocabulary(facts[name])
            for name in list(arrays):
                field, colon, column = name.partition(":")
                if colon:
                    facts.setdefault(field, {})[column] = arrays.pop(name)
            return cls(**facts, **arrays)


def warn_unconverged(result: Result) -> None:
    """Warn the caller of a ``fit`` where it stopped before it converged."""
    if result.converged:
        return
    gain = np.diff(result.trace[-2:]) / max(result.n_answers, 1)
    still = f", still gaining {gain[0]:.1e} per answer" if len(gain) else ""
    warnings.warn(
        f"{result.method} stopped after {result.iterations} iterations{still}: "
        "raise max_iter, or tol if that is close enough.",
        ConvergenceWarning,
        stacklevel=4,
    )


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Dependence):
        return value.plain()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else repr(value)
