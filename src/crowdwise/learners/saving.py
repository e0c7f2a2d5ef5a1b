"""How learners are kept: a folder with JSON, the result of the fit, and safetensors or numpy arrays, all or nothing."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdwise.core.result import plain
from crowdwise.data.folders import replacing
from crowdwise.errors import ParameterError, ReadError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1


def _facts(learner: Any) -> dict[str, Any]:
    params = {name: plain(value) for name, value in learner.get_params(deep=False).items()}
    return {"format": FORMAT, "method": learner.key, "params": params}


def _check(folder: Path, facts: dict[str, Any], key: str) -> None:
    if facts.get("format") != FORMAT:
        raise ReadError(f"{folder} was written by another version of crowdwise, which this one does not read.")
    if facts["method"] != key:
        raise ReadError(f"{folder} holds a {facts['method']} learner, not {key}: use crowdwise.load_learner.")


def write_arrays(folder: str | os.PathLike[str], learner: Any, arrays: Mapping[str, Any], **more: Any) -> Path:
    """Write a fitted learner without a network: its arrays, and ``more`` facts that it needs."""
    with replacing(folder, "learner.json", "learner") as temporary:
        (temporary / "learner.json").write_text(json.dumps(_facts(learner) | more), encoding="utf-8")
        np.savez_compressed(temporary / "model.npz", allow_pickle=False, **arrays)
        learner.consensus_.save(temporary / "consensus")
    return Path(folder)


def read_arrays(folder: Path, key: str, network: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What :func:`write_arrays` wrote, checked to be this learner's."""
    if network is not None:
        raise ParameterError(f"{key} has no network: leave network out.")
    try:
        facts = json.loads((folder / "learner.json").read_text(encoding="utf-8"))
        with np.load(folder / "model.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ReadError(f"{folder} does not hold a readable learner: {error}.") from error
    _check(folder, facts, key)
    return facts, arrays


def write_learner(folder: str | os.PathLike[str], learner: Any, **more: Any) -> Path:
    """Write a fitted learner with a network; ``more`` is what it needs besides."""
    from safetensors.torch import save_file

    facts = {
        **_facts(learner),
        "custom_network": not isinstance(learner.network, str),
        "shape": list(learner.shape_),
        "seed": learner.seed_,
        "history": [asdict(epoch) for epoch in learner.history_],
        **more,
    }
    with replacing(folder, "learner.json", "learner") as temporary:
        (temporary / "learner.json").write_text(json.dumps(facts), encoding="utf-8")
        tensors = {name: value.cpu().contiguous().clone() for name, value in learner._trainer._state().items()}
        save_file(tensors, temporary / "weights.safetensors")
        learner.consensus_.save(temporary / "consensus")
    return Path(folder)


def read_learner(folder: Path, key: str, network: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What :func:`write_learner` wrote, checked to be this learner's."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        facts = json.loads((folder / "learner.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "weights.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise ReadError(f"{folder} does not hold a readable learner: {error}.") from error
    _check(folder, facts, key)
    if facts["custom_network"] and network is None:
        raise ReadError(
            f"The learner in {folder} has a network of your own: hand it over again, load(..., network=...)."
        )
    return facts, tensors
