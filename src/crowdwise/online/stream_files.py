"""How a stream is saved: a folder with its settings and names as JSON and all its numbers as arrays, all or nothing."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any, Self

import numpy as np

from crowdwise.core.model import EMModel
from crowdwise.core.numerics import Floats
from crowdwise.core.parameters import Parameterised
from crowdwise.core.result import plain
from crowdwise.data.folders import replacing
from crowdwise.errors import ParameterError, ReadError
from crowdwise.online.annotator_tables import AnnotatorTables
from crowdwise.online.names import Names
from crowdwise.online.vote_store import ITEMS, ROWS, Index, VoteStore

FORMAT = 3
COUNTERS = ("n_items", "visits", "next_visit", "refit_at", "converged")
NAMES = ("item_names", "annotator_names", "class_names")
TABLES = ("clock", "given", "counts", "moving")

__all__ = ["SavedStream"]


class SavedStream(Parameterised):
    """A stream that can be saved and loaded."""

    model: EMModel
    classes: Any
    store: VoteStore
    tables: AnnotatorTables
    posterior: Floats

    def options(self) -> dict[str, Any]:
        """The parameters without the model and the classes."""
        return {name: value for name, value in self.get_params().items() if name not in ("model", "classes")}

    def save(self, folder: str | os.PathLike[str], *, names: bool = True) -> Path:
        """Write all that is known to a folder, all or nothing; :meth:`load` continues from there.

        ``names=False``: without names of items and annotators, for those who keep the names themselves.
        """
        store, tables = self.store, self.tables
        M, N, S = len(store.annotators), len(store.items), store.n_votes
        facts = {
            "format": FORMAT,
            "method": self.model.key,
            "params": _params(self.model),
            "options": self.options(),
            "classes": None if self.classes is None else plain(list(self.classes)),
            **{name: getattr(self, name) for name in COUNTERS},
            **{name: plain(getattr(self, name).names) for name in NAMES if names},
        }
        arrays = {name: getattr(tables, name)[:M] for name in TABLES} | {"mass": tables.mass, "pooled": tables.pooled}
        arrays |= {"posterior": self.posterior[:N], "items": store.items.codes, "annotators": store.annotators.codes}
        arrays |= {name: store.rows[name][:S] for name in ROWS} | {name: store.per_item[name][:N] for name in ITEMS}
        with replacing(folder, "online.json", "stream") as temporary:
            (temporary / "online.json").write_text(json.dumps(facts), encoding="utf-8")
            np.savez(temporary / "arrays.npz", allow_pickle=False, **arrays)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: EMModel) -> Self:
        """Read what :meth:`save` wrote; ``model`` must be the model that it was made with."""
        facts, arrays = _read(Path(folder))
        params = _params(model)
        if (facts["method"], facts["params"]) != (model.key, params):
            raise ParameterError(
                f"{folder} holds a stream of {facts['method']} with {facts['params']}: "
                f"give that model, not {model.key} with {params}."
            )
        online = cls(model, classes=facts["classes"], **facts["options"])  # type: ignore[call-arg]
        store = online.store
        store.items, store.annotators = Index(arrays["items"]), Index(arrays["annotators"])
        store.rows, store.per_item = ({name: arrays[name] for name in some} for some in (ROWS, ITEMS))
        store.n_votes, online.posterior = len(arrays["label"]), arrays["posterior"]
        for name in (*TABLES, "mass", "pooled"):
            setattr(online.tables, name, arrays[name])
        for name in COUNTERS:
            setattr(online, name, facts[name])
        for name in NAMES:
            if name in facts:
                setattr(online, name, Names(facts[name]))
        return online


def _params(model: EMModel) -> Any:
    """The parameters of a model as they come back from a file."""
    return json.loads(json.dumps({name: plain(value) for name, value in model.get_params().items()}))


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two files, whole and of this version."""
    try:
        facts = json.loads((folder / "online.json").read_text(encoding="utf-8"))
        with np.load(folder / "arrays.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ReadError(f"{folder} does not hold a readable stream: {error}.") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ReadError(f"{folder} was written by another version of crowdwise, which this one does not read.")
    return facts, arrays
