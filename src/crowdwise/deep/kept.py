"""How learners with a network are kept: a folder with JSON, safetensors and the result of the fit, all or nothing."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from crowdwise.core.folders import replacing
from crowdwise.core.result import plain
from crowdwise.errors import ReadError

FORMAT = 1


def write_learner(folder: str | os.PathLike[str], learner: Any, **more: Any) -> Path:
    """Write a fitted learner; ``more`` is what it needs besides."""
    from safetensors.torch import save_file

    facts = {
        "format": FORMAT,
        "method": learner.key,
        "params": {name: plain(value) for name, value in learner.get_params(deep=False).items()},
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
    if facts.get("format") != FORMAT:
        raise ReadError(f"{folder} was written by another version of crowdwise, which this one does not read.")
    if facts["method"] != key:
        raise ReadError(f"{folder} holds a {facts['method']} learner, not {key}: use crowdwise.load_learner.")
    if facts["custom_network"] and network is None:
        raise ReadError(
            f"The learner in {folder} has a network of your own: hand it over again, load(..., network=...)."
        )
    return facts, tensors
