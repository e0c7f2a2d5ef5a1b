"""How a stream is kept: a folder with its names and settings as JSON and all it knows as arrays, all or nothing."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from crowdwise.core.result import plain
from crowdwise.data.folders import replacing
from crowdwise.errors import ParameterError, ReadError
from crowdwise.online.vote_store import ITEMS, ROWS, Ledger, Names

if TYPE_CHECKING:
    from crowdwise.core.model import EMModel
    from crowdwise.online.stream import Online

    Stream = TypeVar("Stream", bound=Online)

FORMAT = 2
PLACES = ("n_items", "touches", "looked_at", "renewed_at", "settled")
"""Where a stream stands."""


def write(online: Online, folder: str | os.PathLike[str]) -> Path:
    """Write all that a stream knows."""
    ledger = online.ledger
    M, N, S = len(ledger.annotators), len(ledger.items), ledger.n_votes
    facts = {
        "format": FORMAT,
        "method": online.model.key,
        "params": {name: plain(value) for name, value in online.model.get_params().items()},
        "options": online.options(),
        "items": plain(ledger.items.names),
        "annotators": plain(ledger.annotators.names),
        "classes": plain(ledger.classes.names),
        "declared": ledger.declared,
        **{name: getattr(online, name) for name in PLACES},
    }
    arrays = {name: getattr(online, name) for name in ("mass", "pooled")}
    arrays |= {name: getattr(online, name)[:M] for name in ("clock", "given", "counts")}
    arrays |= {"moving": online.moving[: 0 if online.step is None else M], "posterior": online.posterior[:N]}
    arrays |= {name: ledger.rows[name][:S] for name in ROWS} | {name: ledger.per_item[name][:N] for name in ITEMS}
    with replacing(folder, "online.json", "stream") as temporary:
        (temporary / "online.json").write_text(json.dumps(facts), encoding="utf-8")
        np.savez(temporary / "arrays.npz", allow_pickle=False, **arrays)
    return Path(folder)


def read(made: type[Stream], folder: Path, model: EMModel) -> Stream:
    """A stream as :func:`write` left it; ``model`` must be the model that it was made with."""
    facts, arrays = _opened(folder)
    params = {name: plain(value) for name, value in model.get_params().items()}
    if (facts["method"], facts["params"]) != (model.key, json.loads(json.dumps(params))):
        raise ParameterError(
            f"{folder} holds a stream of {facts['method']} with {facts['params']}: "
            f"give that model, not {model.key} with {params}."
        )
    online = made(model, **facts["options"])
    ledger = Ledger(facts["classes"])
    ledger.declared = facts["declared"]
    ledger.items, ledger.annotators = Names(facts["items"]), Names(facts["annotators"])
    ledger.rows = {name: arrays.pop(name) for name in ROWS}
    ledger.per_item = {name: arrays.pop(name) for name in ITEMS}
    ledger.n_votes = len(ledger.rows["label"])
    online.ledger = ledger
    for name, value in (*arrays.items(), *((name, facts[name]) for name in PLACES)):
        setattr(online, name, value)
    return online


def _opened(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
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
