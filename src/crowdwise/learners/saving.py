"""How learners are saved: a folder with JSON, safetensors and the result of the fit, all or nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from crowdwise.core.result import Result
from crowdwise.data.folders import SavedFiles, read_saved, replacing, write_json
from crowdwise.errors import ReadError

FORMAT = 3
FACTS, TENSORS, RESULT = "learner.json", "weights.safetensors", "consensus"


def write_learner(
    folder: str | os.PathLike[str], facts: dict[str, Any], tensors: Mapping[str, Tensor], result: Result
) -> Path:
    """Write a fitted learner."""
    from safetensors.torch import save

    with replacing(folder, "learner") as temporary:
        write_json(temporary / FACTS, {"format": FORMAT, **facts})
        content = save({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()})
        (temporary / TENSORS).write_bytes(content)
        result.save(temporary / RESULT)
    return Path(folder)


def read_learner(folder: str | os.PathLike[str], key: str | None = None) -> tuple[SavedFiles, dict[str, Any]]:
    """The files that :func:`write_learner` wrote, and the JSON part; checked to be of a method, where one is named."""
    saved = read_saved(folder, "learner")
    facts = saved.json(FACTS)
    for name, kind in (("method", str), ("params", dict)):
        if not isinstance(facts.get(name), kind):
            raise ReadError(f"{folder} does not hold a readable learner: {FACTS} lacks {name!r}.")
    if facts.get("format") != FORMAT:
        raise ReadError(f"{folder} was written by another version of crowdwise, which this one does not read.")
    if key is not None and facts["method"] != key:
        raise ReadError(f"{folder} holds a {facts['method']} learner, not {key}: use crowdwise.load_learner.")
    return saved, facts


def read_tensors(saved: SavedFiles) -> dict[str, Tensor]:
    """The numbers of a saved learner."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    with saved.reading():
        try:
            return load(saved.files[TENSORS])
        except SafetensorError as error:
            raise ValueError(str(error)) from error
