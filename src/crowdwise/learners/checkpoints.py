"""Checkpoints of a training run, from which an interrupted one continues: one file, written after every epoch. Saved
learners: a folder with JSON, safetensors and the result of the fit, all or nothing."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crowdwise.core.result import Result
from crowdwise.data.folders import SavedFiles, read_saved, replacing, write_json, write_whole
from crowdwise.errors import InputError, ReadError
from crowdwise.learners.training_settings import Epoch

SAMPLED = 16
"""How many inputs a checkpoint is compared with."""


class Checkpoint:
    """The file of a trainer. It is refused where it was made with other inputs, votes or settings."""

    def __init__(self, file: Path, trainer: Any) -> None:
        self.file, self.trainer = file, trainer
        self.fingerprint = fingerprint(trainer)

    def write(self, history: list[Epoch], best_score: float, best_state: dict[str, Tensor] | None) -> None:
        """Replace the file by the state after an epoch."""
        from safetensors.torch import save

        tensors = self.trainer.state()
        tensors |= {f"best.{name}": value for name, value in (best_state or {}).items()}
        tensors |= {
            f"optimiser.{number}.{name}": torch.as_tensor(value)
            for number, slots in self.trainer.optimiser.state_dict()["state"].items()
            for name, value in slots.items()
            if value is not None
        }
        if self.trainer.average is not None:
            tensors |= {f"average.{name}": value for name, value in self.trainer.average.state().items()}
        note = {
            "history": json.dumps([asdict(epoch) for epoch in history]),
            "best": json.dumps(best_score if math.isfinite(best_score) else None),
            "fingerprint": self.fingerprint,
        }
        tensors = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
        content = save(tensors, metadata=note | {"sha256": digest(note, tensors)})
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(lambda name: Path(name).write_bytes(content), self.file)

    def resume(self) -> tuple[list[Epoch], float, dict[str, Tensor] | None]:
        """Bring the trainer to the state of the file; the history, the best score and the state that had it."""
        from safetensors import SafetensorError, safe_open

        trainer, file = self.trainer, self.file
        try:
            with safe_open(file, framework="pt", device=str(trainer.device)) as stored:
                note = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (not a dict)
        except (OSError, ValueError, SafetensorError) as error:
            raise ReadError(f"The checkpoint {file} could not be read: {error}. Remove it to start again.") from error
        if note.pop("sha256", None) != digest(note, tensors):
            raise ReadError(f"The checkpoint {file} is damaged: it is not as it was written. Remove it to start again.")
        if note.get("fingerprint") != self.fingerprint:
            raise InputError(
                f"The checkpoint {file} was made with other inputs, votes or settings, so training cannot continue "
                "from it. Remove it to start again, or name another file."
            )
        trainer.load_state(tensors)
        self._restore_optimiser(below("optimiser.", tensors))
        if trainer.average is not None:
            trainer.average.load_state(below("average.", tensors))
        best = json.loads(note["best"])
        history = [Epoch(**epoch) for epoch in json.loads(note["history"])]
        return history, -math.inf if best is None else best, below("best.", tensors) or None

    def _restore_optimiser(self, tensors: dict[str, Tensor]) -> None:
        optimiser = self.trainer.optimiser
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            number, slot = name.split(".", 1)
            state.setdefault(int(number), {})[slot] = value
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
        for parameter, slots in optimiser.state.items():  # laid out in memory as their parameter is
            for slot, value in slots.items():
                if value.shape == parameter.shape:
                    slots[slot] = torch.empty_like(parameter, requires_grad=False).copy_(value)


def below(start: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def digest(note: dict[str, str], tensors: dict[str, Tensor]) -> str:
    """A digest of all that a checkpoint holds."""
    content = hashlib.sha256(json.dumps(note, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def fingerprint(trainer: Any) -> str:
    """A digest of what the run is made of: settings, head, votes, gold, some inputs, and the sizes of all tensors."""
    data, head = trainer.data, trainer.head
    plain = {name: value for name, value in vars(head).items() if isinstance(value, (bool, int, float, str))}
    sizes = {name: list(value.shape) for name, value in trainer.state().items()}
    facts = [trainer.settings.get_params(), trainer.seed, type(head).__name__, plain, sizes]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for edges in (trainer.edges, trainer.held_out):
        for tensor in () if edges is None else (edges.indptr, edges.annotator, edges.label, edges.weight):
            digest.update(tensor.cpu().numpy().tobytes())
    for array in (data.gold, data.weight):
        if array is not None:
            digest.update(np.ascontiguousarray(array).tobytes())
    sample = np.unique(np.linspace(0, len(data.inputs) - 1, SAMPLED).astype(np.int64))
    digest.update(data.inputs.rows(sample).numpy().tobytes())
    return digest.hexdigest()


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
