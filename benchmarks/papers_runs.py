"""The papers' tables, cell by cell: train, measure, append a line to a file, go on where an earlier run stopped.

A line of the file is a finished cell. A run that is cut off loses the epochs since the last checkpoint of the cells in
work. Test images choose nothing: figures are those of the last epoch, and of the epoch that held-out votes chose.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from learner_runs import ignore_interrupts
from papers_data import DIGITS, ImageTask, decode, load_crowd
from papers_plan import PaperCell

from crowdwise import registry
from crowdwise.core.numerics import Floats
from crowdwise.data.encoding import Codes
from crowdwise.errors import ConvergenceWarning, CrowdwiseError

HOLDOUT = 0.02
"""The share of the votes that chooses an epoch: a thousand or more, too few to be missed in training."""
CHECKPOINT_EVERY = 10


@dataclass(frozen=True)
class Setup:
    """Where a run reads and writes, and when it stops."""

    images: Path
    data: Path | None
    work: Path
    """The folder of the checkpoints."""
    deadline: float | None = None
    """In seconds of ``time.time()``."""
    device: str = "auto"

    def over(self) -> bool:
        return self.deadline is not None and time.time() > self.deadline


def finished(file: Path) -> dict[str, dict[str, Any]]:
    """Cells by name; the last line of a cell counts, and a line that was cut off is skipped."""
    found: dict[str, dict[str, Any]] = {}
    if not file.is_file():
        return found
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("cell"), str) and row.get("problem") is None:
            found[row["cell"]] = row
    return found


def append(file: Path, row: dict[str, Any]) -> None:
    """One more line, on disk before this returns; after a line that was cut off it begins a new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+b") as out:
        end = out.seek(0, os.SEEK_END)
        if end:
            out.seek(end - 1)
            if out.read(1) != b"\n":
                out.write(b"\n")
        out.write(json.dumps(row).encode() + b"\n")
        out.flush()
        os.fsync(out.fileno())


def run(
    cells: Sequence[PaperCell], setup: Setup, file: Path, *, jobs: int = 1,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> int:  # fmt: skip
    """Train what the file lacks, and append it; the number of cells that are still missing."""
    done = finished(file)
    left = [cell for cell in cells if cell.name not in done]
    if any(cell.data not in DIGITS for cell in left):
        decode(setup.images)
    missing = len(left)
    for row in _rows(left, setup, jobs):
        if row is None:
            continue
        append(file, row)
        missing -= row.get("problem") is None
        if progress is not None:
            progress(row)
    return missing


def _rows(cells: Sequence[PaperCell], setup: Setup, jobs: int) -> Iterator[dict[str, Any] | None]:
    todo = [(cell, setup) for cell in cells]
    if jobs == 1 or len(todo) < 2:
        yield from map(_work, todo)
        return
    with get_context("spawn").Pool(min(jobs, len(todo)), initializer=ignore_interrupts) as pool:
        yield from pool.imap_unordered(_work, todo)


def _work(given: tuple[PaperCell, Setup]) -> dict[str, Any] | None:
    """The line of a cell; None where time is up."""
    cell, setup = given
    if setup.over():
        return None
    try:
        task = load_crowd(cell.data, setup.images, setup.data, cell.seed)
        return train(cell, task, setup)
    except (CrowdwiseError, RuntimeError) as error:
        return {"cell": cell.name, **asdict(cell), "problem": f"{type(error).__name__}: {error}"}


def train(cell: PaperCell, task: ImageTask, setup: Setup) -> dict[str, Any] | None:
    """Train and measure one cell; None where time is up before it is trained."""
    began, earlier, trained = time.perf_counter(), 0.0, 0.0
    checkpoint = setup.work / f"{cell.name.replace('/', '-').replace(':', '-')}.safetensors"
    learner = create(cell, setup, checkpoint)
    curve: list[tuple[int, float, float]] = []
    each: list[float] = []
    stopped = False

    def after(epoch: Any) -> bool:
        nonlocal stopped, trained
        trained += epoch.seconds
        if cell.curve:
            each.append(accuracy(learner.predict_proba(task.x_test), task.y_test))
        if epoch.held_out is not None and epoch.held_out > max((score for _, score, _ in curve), default=-np.inf):
            curve.append((epoch.epoch, epoch.held_out, accuracy(learner.predict_proba(task.x_test), task.y_test)))
        seconds = earlier + time.perf_counter() - began
        facts = {"curve": curve, "each": each, "seconds": seconds, "trained": trained}
        note.write_text(json.dumps(facts), encoding="utf-8")
        stopped = epoch.epoch < epoch.epochs and setup.over()
        return stopped

    note = checkpoint.with_suffix(".json")
    setup.work.mkdir(parents=True, exist_ok=True)
    if note.exists() and written(checkpoint):
        before = json.loads(note.read_text(encoding="utf-8"))
        curve, earlier, trained = [tuple(row) for row in before["curve"]], before["seconds"], before["trained"]
        each.extend(before.get("each", []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner.fit(task.x, task.votes, items=task.votes.items, callback=after)
    if stopped:
        return None
    row = {"cell": cell.name, **asdict(cell), "problem": None, **measures(learner, task)}
    chosen = curve[-1] if curve else None
    row |= {
        "accuracy_selected": None if chosen is None else chosen[2],
        "epoch_selected": None if chosen is None else chosen[0],
        "held_out": learner.history_[-1].held_out,
        "seconds": earlier + time.perf_counter() - began,
        "epoch_seconds": float(np.median([step.seconds for step in learner.history_])),
        "training_seconds": trained,
        "device": device_name(setup.device),
    }
    if cell.curve:
        row["accuracy_each"] = each
    for file in (note, *written(checkpoint)):
        file.unlink(missing_ok=True)
    return row


def written(checkpoint: Path) -> list[Path]:
    """The checkpoints of a cell: its own, and those of the members of an ensemble or of several starts."""
    return [*checkpoint.parent.glob(checkpoint.name), *checkpoint.parent.glob(f"{checkpoint.stem}-*.safetensors")]


def create(cell: PaperCell, setup: Setup, checkpoint: Path) -> Any:
    """The learner of a cell; of ``key:first stage`` with that first stage."""
    key, colon, stage = (cell.key or cell.learner).partition(":")
    settings: dict[str, Any] = {
        "network": cell.network, "random_state": cell.seed, "device": setup.device, "holdout": HOLDOUT,
        "checkpoint": str(checkpoint), "checkpoint_every": CHECKPOINT_EVERY,
    }  # fmt: skip
    if colon:
        settings["aggregator"] = registry.find(stage).key
    return registry.find(key, inputs=True).create(**(settings | cell.settings))


def measures(learner: Any, task: ImageTask) -> dict[str, Any]:
    """Test accuracy from images alone, from images and votes; of the items voted on; the error of the matrices."""
    truth = task.votes.truth
    both = None if task.votes_test is None else learner.predict_proba(task.x_test, task.votes_test)
    alone = learner.predict_proba(task.x_test)
    return {
        "accuracy_last": accuracy(alone, task.y_test),
        "balanced_last": balanced(alone, task.y_test),
        "accuracy_votes": None if both is None else accuracy(both, task.y_test),
        "accuracy_consensus": None if truth is None else float((learner.consensus_.label_codes == truth).mean()),
        "matrix_error": None if task.confusion is None else matrix_error(learner.confusion_, task.confusion),
    }


def accuracy(q: Floats, truth: Codes) -> float:
    return float((q.argmax(axis=1) == truth).mean())


def balanced(q: Floats, truth: Codes) -> float:
    """The mean over the classes of the share of their items that are found."""
    right = q.argmax(axis=1) == truth
    return float(np.mean([right[truth == k].mean() for k in np.unique(truth)]))


def matrix_error(found: Floats, true: Floats) -> float:
    """The mean over annotators of the squared distance of their matrices, over the number of classes (Tanno's)."""
    return float(((found - true) ** 2).sum() / (true.shape[0] * true.shape[1]))


def device_name(device: str) -> str:
    """What the learners are trained on."""
    import torch

    from crowdwise.learners.devices import find_device

    found = find_device(device)
    return torch.cuda.get_device_name(found) if found.type == "cuda" else found.type
