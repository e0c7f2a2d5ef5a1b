"""How learners are saved: a folder with JSON, safetensors and the result of the fit, all or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from crowdwise.core.result import Result
from crowdwise.data.folders import replacing
from crowdwise.errors import ReadError

FORMAT = 2
FACTS, TENSORS, RESULT = "learner.json", "weights.safetensors", "consensus"


def write_learner(
    folder: str | os.PathLike[str], facts: dict[str, Any], tensors: Mapping[str, Tensor], result: Result
) -> Path:
    """Write a fitted learner."""
    from safetensors.torch import save_file

    with replacing(folder, FACTS, "learner") as temporary:
        (temporary / FACTS).write_text(json.dumps({"format": FORMAT, **facts}), encoding="utf-8")
        save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, temporary / TENSORS)
        result.save(temporary / RESULT)
    return Path(folder)


def read_facts(folder: Path) -> dict[str, Any]:
    """The JSON part of a saved learner, of a format that this version reads."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReadError(
            f"There is no learner in {folder}: expected what learner.save, or crowdwise learn --out, has written."
        ) from None
    except (OSError, ValueError) as error:
        raise ReadError(f"{folder} does not hold a readable learner: {error}.") from error
    lacking = [name for name in ("method", "params") if not isinstance(facts, dict) or name not in facts]
    if lacking:
        raise ReadError(f"{folder} does not hold a readable learner: {FACTS} lacks {lacking[0]!r}.")
    if facts.get("format") != FORMAT:
        raise ReadError(f"{folder} was written by another version of crowdwise, which this one does not read.")
    return dict(facts)


def read_learner(folder: Path, key: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What :func:`write_learner` wrote, checked to be of a method."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    facts = read_facts(folder)
    if facts["method"] != key:
        raise ReadError(f"{folder} holds a {facts['method']} learner, not {key}: use crowdwise.load_learner.")
    try:
        return facts, load_file(folder / TENSORS)
    except (OSError, ValueError, SafetensorError) as error:
        raise ReadError(f"{folder} does not hold a readable learner: {error}.") from error
