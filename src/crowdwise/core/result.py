"""What the results of all fits share: how they were made, frozen arrays, tables, a score, and a folder to save in.

The result of a fit to ratings: a value with an interval for each item, and what was learned about the annotators.

What is known of an item is a Normal (or Student t) distribution, of an annotator's bias and scale a Normal, and of
their precision (1 / variance of the noise) a Gamma distribution. Intervals of any level follow from these.
"""

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
from crowdwise.core.intervals import gamma_interval, normal_columns, quantile, with_interval
from crowdwise.core.numerics import Floats, Ints
from crowdwise.data import encoding, folders
from crowdwise.data.figures import Figure, draw_table
from crowdwise.data.frames import make_frame, to_html
from crowdwise.data.ratings import Ratings
from crowdwise.data.table import MOST_SHOWN, Frozen
from crowdwise.data.truth import encode_numbers
from crowdwise.errors import (
    ConvergenceWarning,
    DivergedError,
    InputError,
    ParameterError,
    ReadError,
    either,
    user_level,
)

FORMAT = 5
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
        Their names, in the order of all arrays.
    item_table, annotator_table
        Tables, in the kind of dataframe the answers came from (see :meth:`to_frame`).
    objective, trace, iterations, converged, seconds
        How the fit went. ``trace`` is the objective after every accepted pass.
    notes
        Sentences on what the method decided and what the result rests on; none for most.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("items", "annotators")
    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators")
    IN_NOTEBOOKS: ClassVar[tuple[str, ...]] = ("items", "annotators")
    FINITE: ClassVar[tuple[str, ...]] = ("posterior", "prior", "confusion", "scores", "values")
    """Fields that a fit must fill with finite numbers."""
    SHAPES: ClassVar[dict[str, str]] = {"trace": "T"}
    """The shapes of arrays in letters: N items, M annotators, K classes, and sizes that arrays share."""

    method: str
    params: dict[str, Any]
    answer_type: str
    annotators: npt.NDArray[Any]
    n_answers: int = 0
    trace: Floats = field(default_factory=lambda: np.empty(0))
    iterations: int = 0
    converged: bool = True
    seconds: float = 0.0
    seed: int | None = None
    notes: list[str] = field(default_factory=list)
    kind: str = "polars"

    @classmethod
    def of(cls, model: Any, answers: Any, **values: Any) -> Self:
        """The result of a model that was fitted to some answers: what it ``found``, and how it was made."""
        return cls(**{
            "items": answers.items, "annotators": answers.annotators, "n_answers": answers.n_answers,
            "kind": answers.kind,
        } | cls.made_by(model, values))  # fmt: skip

    @classmethod
    def made_by(cls, model: Any, values: dict[str, Any]) -> dict[str, Any]:
        """What a model found, checked, and how it was made."""
        for name in cls.FINITE:
            if isinstance(array := values.get(name), np.ndarray) and not np.isfinite(array).all():
                raise DivergedError(
                    f"{model.key} broke down on these answers: its {name} is not finite. Extreme answers or weights "
                    "may be the cause: check them, or take another method."
                )
        params = {name: plain(value) for name, value in model.get_params(deep=False).items()}
        return {"method": model.key, "params": params, "seed": seed_of(model.random_state)} | values

    @property
    def objective(self) -> float | None:
        """What was maximised, at the end; ``None`` where the method has no objective."""
        return float(self.trace[-1]) if len(self.trace) else None

    @abstractmethod
    def score(self, truth: Any) -> float:
        """How well it agrees with known truth: 1 is perfect."""

    @property
    def item_table(self) -> Any:
        """One row per item."""
        return self.to_frame("items")

    @property
    def annotator_table(self) -> Any:
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

    def _repr_html_(self) -> str:
        shown = () if self.n_answers > MOST_SHOWN else self.IN_NOTEBOOKS
        return to_html(repr(self), {table: self._columns(table, 0.95) for table in shown})

    def plot(self, table: str = "annotators") -> Figure:
        """A figure of a table: estimates with their intervals (``"annotators"``), or how sure the labels are
        (``"items"``). Notebooks show it; ``plot().save("picture.svg")`` writes it."""
        self._check_table(table, 0.95)
        return draw_table(table.capitalize(), self._columns(table, 0.95))

    def _check_table(self, table: str, level: float) -> None:
        if not is_number(level) or not 0.0 < level < 1.0:
            raise ParameterError(f"level={level!r}: expected a number between 0 and 1, such as 0.95.")
        if table not in self.TABLES:
            raise ParameterError(f"Unknown table {table!r}: expected {either(list(map(repr, self.TABLES)))}.")

    @abstractmethod
    def _columns(self, table: str, level: float) -> dict[str, Any]:
        """The columns of a table, by name."""

    def regions(self) -> dict[Any, list[dict[str, Any]]]:
        """What was found on each item (of masks: image), for annotation tools: ``label``, ``score`` and a ``box``,
        ``point``, ``event``, ``mask``, ``span`` or ``text``."""
        raise InputError(f"What was found in {self.answer_type} cannot be written for annotation tools.")

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
        with folders.replacing(folder, "consensus") as temporary:
            folders.write_json(temporary / FACTS, facts)
            folders.write_arrays(temporary / ARRAYS, arrays)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote. Files that are not as they were written are an error."""
        return cls.of_files(folders.read_saved(folder, "consensus"))

    @classmethod
    def of_files(cls, saved: folders.SavedFiles) -> Self:
        """The result in saved files."""
        facts, arrays = saved.json(FACTS), dict[str, Any](saved.arrays(ARRAYS))
        if facts.pop("format", None) != FORMAT:
            raise ReadError(
                f"{saved.folder} was written by another version of crowdwise, which this one does not read."
            )
        saved_type = facts.pop("type", None)
        if saved_type != cls.__name__:
            raise ReadError(f"{saved.folder} holds a saved {saved_type}: load it with crowdwise.{saved_type}.load.")
        with saved.reading():
            for name in cls.NAMES:
                if not all(isinstance(one, (str, int, float)) for one in facts[name]):
                    raise ValueError(f"{name} are not names")
                facts[name] = encoding.to_vocabulary(facts[name])
            for name in list(arrays):
                field, colon, column = name.partition(":")
                if colon:
                    facts.setdefault(field, {})[column] = arrays.pop(name)
            folders.check_types(cls, values := {**facts, **arrays})
            sizes = zip("NMK", (len(values[name]) for name in cls.NAMES), strict=False)
            folders.check_shapes(values, cls.SHAPES, dict(sizes))
            return cls(**values)


def warn_unconverged(result: Result) -> None:
    """Warn the caller of a ``fit`` where it stopped before it converged."""
    if result.converged:
        return
    gain = np.diff(result.trace[-2:]) / max(result.n_answers, 1)
    still = f", still gaining {gain[0]:.1e} per answer" if len(gain) else ""
    stopped = f"{result.method} stopped after {result.iterations} iterations{still}"
    text = f"{stopped}: raise max_iter, or tol if that is close enough."
    warnings.warn(text, ConvergenceWarning, stacklevel=user_level())


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


def some_known(known: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The items with known truth, of which there is at least one."""
    if not known.any():
        raise InputError("No item has a known truth: there is nothing to measure.")
    return known


def kendall_tau(values: Floats, truth: Floats) -> float:
    """Kendall's rank correlation tau-b, which allows for ties; 0 where one side is constant."""
    from scipy.stats import kendalltau

    constant = (values == values[0]).all() or (truth == truth[0]).all()
    return 0.0 if constant else float(kendalltau(values, truth).statistic)


def adjusted_rand(cluster: Ints, truth: Ints, weight: Floats) -> float:
    """The adjusted Rand index of two partitions (codes from 0 on): 1 is a perfect match, 0 chance.

    = (S - E) / (M - E),  S pairs together in both, E = together in clusters * together in classes / all pairs, M the
    mean of the two. An item of weight w counts as w copies, which are not paired with each other.
    """
    K, C = int(cluster.max()) + 1, int(truth.max()) + 1
    table = np.bincount(cluster * C + truth, weights=weight, minlength=K * C).reshape(K, C)
    own, sizes = float((weight * weight).sum()), (table, table.sum(axis=1), table.sum(axis=0))
    both, rows, columns = (float((size * size).sum()) - own for size in sizes)
    total = float(weight.sum()) ** 2 - own
    expected, most = rows * columns / total if total > 0 else 0.0, (rows + columns) / 2.0
    return 1.0 if most == expected else (both - expected) / (most - expected)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Estimates(Result):
    """What a fit to ratings found out. Frozen; saves to and loads from a plain folder.

    The fields that all results have are those of :class:`~crowdwise.core.result.Result`.

    Attributes
    ----------
    values, deviations
        N: the estimated number of each item, and its standard deviation (in the order of ``items``).
    freedom
        N or ``None``: the degrees of freedom of the items' t distributions; ``None`` where they are Normal.
    bias, bias_sd, scale, scale_sd
        M or ``None``: an annotator says ``centre + bias + scale * (truth - centre)``, and the standard deviations.
    precision, precision_shape
        M or ``None``: 1 / variance of an annotator's noise, and the shape of its Gamma distribution.
    mean, spread, centre
        The mean and deviation of the true numbers over items; the number around which scales stretch.
    shared
        N or ``None``: the standard deviation of the error that all ratings on an item share, as far as it is assumed;
        ``deviations`` include it.
    ends
        The lowest and the highest number of the scale, infinite where it shows none: intervals end there.
    share
        The weight of the model in the values, the rest being plain means of the ratings (methods with ``hedge``).
    """

    SHAPES: ClassVar[dict[str, str]] = Result.SHAPES | {
        "values": "N", "deviations": "N", "ratings_per_item": "N", "ratings_per_annotator": "M", "freedom": "N",
        "shared": "N", "bias": "M", "bias_sd": "M", "scale": "M", "scale_sd": "M", "precision": "M",
        "precision_shape": "M", "annotator_columns": "M", "item_columns": "N", "ends": "E",
    }  # fmt: skip

    answer_type: str = "ratings"
    items: npt.NDArray[Any]
    values: Floats
    deviations: Floats
    ratings_per_item: npt.NDArray[Any]
    ratings_per_annotator: npt.NDArray[Any]
    freedom: Floats | None = None
    shared: Floats | None = None
    bias: Floats | None = None
    bias_sd: Floats | None = None
    scale: Floats | None = None
    scale_sd: Floats | None = None
    precision: Floats | None = None
    precision_shape: Floats | None = None
    mean: float = float("nan")
    spread: float = float("nan")
    centre: float = 0.0
    ends: Floats = field(default_factory=lambda: np.array([-np.inf, np.inf]))
    share: float = 1.0
    log_likelihood: float | None = None
    annotator_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    item_columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, answers: Ratings, **values: Any) -> Estimates:
        values["ratings_per_item"] = np.diff(answers.indptr)
        values["ratings_per_annotator"] = np.bincount(answers.annotator, minlength=answers.n_annotators)
        return super().of(model, answers, **{"ends": answers.ends()} | values)

    def __repr__(self) -> str:
        unsure = float(self.deviations.mean()) if len(self.deviations) else float("nan")
        return (
            f"Estimates({self.method}: {len(self.items):,} items, {len(self.annotators):,} annotators; "
            f"mean deviation {unsure:.3g}, {self.iterations} iterations)"
        )

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """N low and N high ends: the true number of an item lies between them with probability ``level``."""
        self._check_table("items", level)
        reach = quantile(level, self.freedom) * self.deviations
        low, high = np.minimum(self.values, self.ends[0]), np.maximum(self.values, self.ends[1])
        return np.maximum(self.values - reach, low), np.minimum(self.values + reach, high)

    def score(self, truth: Any) -> float:
        """R^2, the share of the variance of known truth that the values explain; of a constant truth 1 or 0.

        ``truth`` is a mapping from item to number, or N numbers with NaN for unknown. For errors in the unit of the
        ratings see :func:`crowdwise.metrics.mae` and :func:`crowdwise.metrics.rmse`.
        """
        true = self.truth_values(truth)
        known = some_known(~np.isnan(true))
        true = true[known]
        error, variance = (float(((x - true) ** 2).sum()) for x in (self.values[known], true.mean()))
        return 1.0 - error / variance if variance > 0.0 else float(error == 0.0)

    def truth_values(self, truth: Any) -> Floats:
        """N true numbers (NaN unknown) in the order of ``items``."""
        return encode_numbers(truth, self.items)

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        if table == "items":
            low, high = self.interval(level)
            return {
                "item": self.items, "value": self.values, "deviation": self.deviations, "low": low, "high": high,
                "ratings": self.ratings_per_item, **self.item_columns,
            }  # fmt: skip
        out: dict[str, Any] = {"annotator": self.annotators, "ratings": self.ratings_per_annotator}
        for name in ("bias", "scale"):
            value, sd = getattr(self, name), getattr(self, f"{name}_sd")
            if value is not None:
                out |= normal_columns(name, value, sd, level)
        if self.precision is not None and self.precision_shape is not None:
            low, high = gamma_interval(self.precision, self.precision_shape, level)
            out |= with_interval("precision", self.precision, low, high)
            with np.errstate(divide="ignore"):
                out |= with_interval("noise", *(1.0 / np.sqrt(p) for p in (self.precision, high, low)))
        return out | self.annotator_columns
