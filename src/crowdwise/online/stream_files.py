"""How a stream is saved: a folder with its settings and names as JSON and all its numbers as arrays, all or nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from crowdwise.core.model import EMModel
from crowdwise.core.numerics import Floats
from crowdwise.core.parameters import Parameterised
from crowdwise.core.result import plain
from crowdwise.data.folders import replacing
from crowdwise.data.saved_files import SavedFiles, check_shapes, read_saved, write_arrays, write_json
from crowdwise.errors import ParameterError, ReadError
from crowdwise.online.annotator_tables import AnnotatorTables
from crowdwise.online.vote_store import ITEMS, ROWS, Index, Names, VoteStore

FORMAT = 4
FACTS, ARRAYS = "online.json", "arrays.npz"
COUNTERS = ("n_items", "visits", "next_visit", "refit_at", "converged")
NAMES = ("item_names", "annotator_names", "class_names")
TABLES = ("clock", "given", "counts", "moving")


class SavedStream(Parameterised):
    """A stream that can be saved and loaded."""

    model: EMModel
    classes: Any
    store: VoteStore
    tables: AnnotatorTables
    posterior: Floats
    waiting: dict[Any, Any]
    """Item -> class: gold of items that nobody has voted on."""
    notes: dict[str, Any]
    """What was noted when it was saved, for whoever keeps it."""

    def options(self) -> dict[str, Any]:
        """The parameters without the model and the classes."""
        return {name: value for name, value in self.get_params().items() if name not in ("model", "classes")}

    def save(self, folder: str | os.PathLike[str], *, names: bool = True, notes: dict[str, Any] | None = None) -> Path:
        """Write all that is known to a folder, all or nothing; :meth:`load` continues from there.

        ``names=False``: without names of items and annotators, for those who keep the names themselves. ``notes`` are
        kept with it.
        """
        facts = {
            "format": FORMAT,
            "method": self.model.key,
            "params": _params(self.model),
            "options": self.options(),
            "classes": None if self.classes is None else plain(list(self.classes)),
            **{name: getattr(self, name) for name in COUNTERS},
            **{name: plain(getattr(self, name).names) for name in NAMES if names},
            "waiting": plain(list(self.waiting.items())),
            "notes": notes or {},
        }
        with replacing(folder, "stream") as temporary:
            write_json(temporary / FACTS, facts)
            write_arrays(temporary / ARRAYS, self._arrays(), compressed=False)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: EMModel) -> Self:
        """Read what :meth:`save` wrote; ``model`` must be the model that it was made with."""
        return cls.of_files(read_saved(folder, "stream"), model)

    @classmethod
    def of_files(cls, saved: SavedFiles, model: EMModel) -> Self:
        """As :meth:`load`, from the files that were read."""
        facts = read_facts(saved)
        with saved.reading():
            params = _params(model)
            if (facts["method"], facts["params"]) != (model.key, params):
                raise ParameterError(
                    f"{saved.folder} holds a stream of {facts['method']} with {facts['params']}: "
                    f"give that model, not {model.key} with {params}."
                )
            online = cls(model, classes=facts["classes"], **facts["options"])  # type: ignore[call-arg]
            arrays = saved.arrays(ARRAYS)
            for name in NAMES:
                if name in facts:
                    setattr(online, name, Names(facts[name]))
            _check(arrays, facts)
            online._take(arrays, facts)
            online.notes = facts["notes"]
            online.waiting = {name: known for name, known in facts["waiting"]}
        return online

    def copy(self) -> Self:
        """A stream in the same state, which goes its own way; the names are shared."""
        twin = type(self)(self.model, classes=self.classes, **self.options())  # type: ignore[call-arg]
        twin._take(
            {name: array.copy() for name, array in self._arrays().items()},
            {name: getattr(self, name) for name in COUNTERS},
        )
        for name in NAMES:
            setattr(twin, name, getattr(self, name))
        twin.waiting = dict(self.waiting)
        return twin

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All numbers that were learned, by name."""
        store, tables = self.store, self.tables
        M, N, S = len(store.annotators), len(store.items), store.n_votes
        arrays = {name: getattr(tables, name)[:M] for name in TABLES} | {"mass": tables.mass, "pooled": tables.pooled}
        arrays |= {"posterior": self.posterior[:N], "items": store.items.codes, "annotators": store.annotators.codes}
        return (
            arrays | {name: store.rows[name][:S] for name in ROWS} | {name: store.per_item[name][:N] for name in ITEMS}
        )

    def _take(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Any]) -> None:
        """The state that :meth:`_arrays` and the counters describe."""
        store = self.store
        store.items, store.annotators = Index(arrays["items"]), Index(arrays["annotators"])
        store.rows, store.per_item = ({name: arrays[name] for name in some} for some in (ROWS, ITEMS))
        store.n_votes, self.posterior = len(arrays["label"]), arrays["posterior"]
        for name in (*TABLES, "mass", "pooled"):
            setattr(self.tables, name, arrays[name])
        for name in COUNTERS:
            setattr(self, name, facts[name])


LARGEST, MOST_VOTES = 2**62, 1e9
SHAPES = {
    "items": "N<I", "annotators": "M<J", "last": "N<S", "truth": "N<K", "posterior": "NK", "annotator": "S<M",
    "label": "S<K", "weight": "S", "before": "S<S", "clock": "M", "given": "M", "counts": "MKK", "mass": "K",
    "pooled": "KK", "moving": "HKK",
}  # fmt: skip
"""The shapes of what is saved: N items of I, M annotators of J, S votes, K classes."""


def _check(arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Any]) -> None:
    """A ValueError where the arrays of a stream do not fit together: a code that is too large would reach compiled
    loops, and a vote that is said to follow itself has no end."""
    if 0 < sum(name in facts for name in NAMES) < len(NAMES):
        raise ValueError(f"it lacks some of {', '.join(NAMES)}")
    sizes = {letter: len(facts[name]) if name in facts else LARGEST for letter, name in zip("IJK", NAMES, strict=True)}
    sizes |= {"K": len(arrays["mass"])} if "class_names" not in facts else {}
    sizes["S"] = len(arrays["label"])
    check_shapes(arrays, SHAPES, sizes)
    if sizes["H"] not in (0, sizes["M"]):
        raise ValueError("moving has not a table for each annotator")
    codes = [arrays[name] for name in ("items", "annotators", "annotator", "label")]
    if any(array.min(initial=0) < 0 for array in codes) or any(len(np.unique(a)) < len(a) for a in codes[:2]):
        raise ValueError("items, annotators and labels are codes from 0 on")
    if (arrays["before"] >= np.arange(sizes["S"])).any():
        raise ValueError("a vote follows a later one")
    for name, dtype in {**ROWS, **ITEMS, **dict.fromkeys((*TABLES, "posterior", "mass", "pooled"), np.float64)}.items():
        if arrays[name].dtype != dtype:
            raise ValueError(f"{name} is of the kind {arrays[name].dtype}")
    if not ((arrays["clock"] >= 0.0) & (arrays["clock"] < MOST_VOTES)).all():
        raise ValueError("clock is not a number of votes")
    if any(not isinstance(facts[name], int) or not 0 <= facts[name] < LARGEST for name in COUNTERS):
        raise ValueError(f"{', '.join(COUNTERS)} are numbers from 0 on")


def _params(model: EMModel) -> Any:
    """The parameters of a model as they come back from a file."""
    return json.loads(json.dumps({name: plain(value) for name, value in model.get_params().items()}))


def read_facts(saved: SavedFiles) -> dict[str, Any]:
    """The settings of a saved stream."""
    facts = saved.json(FACTS)
    if facts.get("format") != FORMAT:
        raise ReadError(f"{saved.folder} was written by another version of crowdwise, which this one does not read.")
    return facts
