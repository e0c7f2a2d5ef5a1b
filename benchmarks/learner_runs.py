"""Every learner on data sets with test items whose class is known, and the page about them.

python benchmarks/learner_runs.py --out FACTS.json [--data FOLDER] [--sets A,B] [--methods A,B] [--seeds 5] [--jobs 2]
python benchmarks/learner_runs.py --from FACTS.json --page PAGE.md [--published FIGURES.csv]

Learners see inputs and votes, with their defaults; the truth only measures. Two figures are taken on the test items:
of the last epoch of a fit to all votes, and of a fit with a tenth of the votes held out, which chose the epoch. The
best test epoch, which many papers report, is a choice by the test labels and not taken.

===========  ========================================================================================
``seeds``    how many seeds there are
``epochs``   ``None``, or the number all learners were cut down to (to try it out)
``methods``  keys; ``two-stage:KEY`` is two-stage with that method first
``data``     the names of the data sets
``sets``     name -> items, annotators, votes, classes, items to test on (counts)
``cells``    a :class:`Cell` for each method, data set and seed, as a dict
``note``     where there is one: a sentence on how the run was made, for the page
===========  ========================================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import learners_page
import numpy as np
import tables

from crowdwise import metrics, registry
from crowdwise.bench.runs import DIGITS, OnCell, Task, accuracy, data_folder, load_task
from crowdwise.errors import ConvergenceWarning, CrowdwiseError, ParameterError, ReadError

SETS = ("labelme", "music_genre", "sentiment_polarity", "digits")
STAGES = ("dawid-skene", "anchored")
"""First stages that two-stage is measured with, besides its own default."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One learner on one data set with one seed. ``problem`` says why there is no figure."""

    data: str
    method: str
    seed: int
    log_loss: float | None = None
    seconds: float | None = None
    problem: str | None = None
    accuracy_last: float | None = None
    """On test items, after the last epoch."""
    accuracy_selected: float | None = None
    """On test items, after the epoch that held-out votes chose; none for learners without epochs."""
    epoch_selected: int | None = None
    accuracy_consensus: float | None = None
    """On the items with votes, by inputs and votes together, after the last epoch."""


def find_sets(folder: Path, names: Sequence[str] | None) -> list[str]:
    """The data sets asked for, or those of :data:`SETS` that are there."""
    if names is None:
        return [name for name in SETS if name == DIGITS or (folder / name).is_dir()]
    lost = [name for name in names if name != DIGITS and not (folder / name).is_dir()]
    if lost:
        raise ReadError(
            f"{folder} has no data set called {', '.join(lost)}: name another folder, or set CROWDWISE_DATA."
        )
    return list(names)


def shape(task: Task) -> dict[str, int]:
    """Counts of a data set."""
    votes = task.votes
    return {
        "items": len(votes),
        "annotators": votes.n_annotators,
        "votes": votes.n_votes,
        "classes": votes.n_classes,
        "test": len(task.y_test),
    }


@dataclass(frozen=True)
class Run:
    """What one process does in one go."""

    folder: Path
    data: str
    method: str
    seed: int
    epochs: int | None


@dataclass(frozen=True)
class Plan:
    """All runs, data sets in turn."""

    folder: Path
    sets: list[str]
    methods: list[str]
    seeds: int
    epochs: int | None
    runs: list[Run] = field(repr=False)


def plan(
    folder: Path | None = None, sets: Sequence[str] | None = None, methods: Sequence[str] | None = None, *,
    seeds: int = 5, epochs: int | None = None,
) -> Plan:  # fmt: skip
    """Check what is asked for, before anything is measured."""
    if folder is None:
        only_digits = not os.environ.get("CROWDWISE_DATA") and set(sets or [DIGITS]) == {DIGITS}
        folder, sets = (Path(), [DIGITS]) if only_digits else (data_folder(), sets)
    names = find_sets(folder, sets)
    keys = list(methods) if methods is not None else all_methods()
    for key in keys:
        create(key, 0, None)
    runs = [Run(folder, name, key, seed, epochs) for name in names for key in keys for seed in range(seeds)]
    return Plan(folder, names, keys, seeds, epochs, runs)


def all_methods() -> list[str]:
    """Every learner, two-stage with several first stages."""
    out = []
    for key in registry.LEARNERS:
        out += [key, *(f"{key}:{stage}" for stage in STAGES if key == "two-stage")]
    return out


def create(method: str, seed: int, epochs: int | None, **more: Any) -> Any:
    """A learner with its defaults, from ``key`` or ``key:first stage``."""
    key, colon, stage = method.partition(":")
    known = registry.find(key, inputs=True).load().parameters()
    settings: dict[str, Any] = {"random_state": seed, **more}
    if epochs is not None and "epochs" in known:
        settings["epochs"] = epochs
    if colon:
        if "aggregator" not in known:
            raise ParameterError(f"{method}: {key} has no first stage. Name it without {colon}{stage}.")
        settings["aggregator"] = registry.find(stage).key
    return registry.find(key, inputs=True).create(**settings)


def measure_all(plan: Plan, *, jobs: int = 1, progress: OnCell | None = None) -> dict[str, Any]:
    """The facts of a run. Torch has one thread for each fit, and each of several jobs is a process with one thread."""
    shapes = {name: shape(load_task(plan.folder, name)) for name in plan.sets}
    found: dict[Run, Cell] = {}
    for run, cell in _cells(plan.runs, jobs):
        found[run] = cell
        if progress is not None:
            progress(run.data, run.method)
    return {
        "seeds": plan.seeds,
        "epochs": plan.epochs,
        "methods": plan.methods,
        "data": plan.sets,
        "sets": shapes,
        "cells": [asdict(found[run]) for run in plan.runs],
    }


def _cells(runs: Sequence[Run], jobs: int) -> Iterator[tuple[Run, Cell]]:
    if jobs == 1:
        yield from map(_work, runs)
        return
    with _one_thread_in_children(), get_context("spawn").Pool(jobs, initializer=ignore_interrupts) as pool:
        yield from pool.imap_unordered(_work, runs)


def _work(run: Run) -> tuple[Run, Cell]:
    """With one thread of torch in one process, too: several round sums differently."""
    from crowdwise.learners.devices import one_torch_thread

    with one_torch_thread():
        return run, measure(load_task(run.folder, run.data), run.data, run.method, run.seed, run.epochs)


def ignore_interrupts() -> None:
    """An interruption is the business of the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _one_thread_in_children() -> Iterator[None]:
    """Processes that are started within the context compute with one thread each."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CROWDWISE_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def measure(task: Task, data: str, method: str, seed: int, epochs: int | None = None) -> Cell:
    """One learner on one data set with one seed: two fits, where it has epochs to choose from."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            learner = create(method, seed, epochs, **task.settings)
            began = time.perf_counter()
            learner.fit(task.x, task.votes, items=task.votes.items)
            seconds = time.perf_counter() - began
            selected, chosen = None, None
            if getattr(learner, "selects_epoch", False):
                other = create(method, seed, epochs, select="votes", **task.settings)
                other.fit(task.x, task.votes, items=task.votes.items)
                selected = accuracy(other.predict_proba(task.x_test), task.y_test)
                judged = [step for step in other.history_ if step.held_out is not None]
                chosen = max(judged, key=lambda step: step.held_out).epoch
            q = learner.predict_proba(task.x_test)
    except CrowdwiseError as error:
        return Cell(data=data, method=method, seed=seed, problem=str(error).partition(":")[0])
    truth = task.votes.truth
    known = truth is not None and bool((truth >= 0).any())
    return Cell(
        data=data, method=method, seed=seed, seconds=seconds,
        accuracy_last=accuracy(q, task.y_test), accuracy_selected=selected, epoch_selected=chosen,
        accuracy_consensus=float(metrics.accuracy(learner.consensus_, truth, resamples=1).value) if known else None,
        log_loss=float(-np.log(np.maximum(q[np.arange(len(q)), task.y_test], 1e-15)).mean()),
    )  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of data sets (default: CROWDWISE_DATA)")
    parser.add_argument("--sets", help=f"which, comma-separated (default: of {', '.join(SETS)} those that are there)")
    parser.add_argument("--methods", help="which learners; two-stage:KEY aggregates with that method (default: all)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with one thread")
    parser.add_argument("--epochs", type=int, help="only so many epochs, to try it out")
    parser.add_argument("--out", type=Path, help="write the facts of the run here (.json)")
    parser.add_argument("--from", dest="earlier", type=Path, help="measure nothing: take the facts of an earlier run")
    parser.add_argument("--page", type=Path, help="write the page here (.md)")
    parser.add_argument("--published", type=Path, help="figures of others for the page: method, data, value, source")
    given = parser.parse_args(words)
    published = [] if given.published is None else tables.read_published(given.published, "value")
    if given.earlier is not None:
        facts = tables.read_facts(given.earlier, "learners")
    else:
        wanted = [None if text is None else text.split(",") for text in (given.sets, given.methods)]
        todo = plan(given.data, *wanted, seeds=given.seeds, epochs=given.epochs)
        facts = measure_all(todo, jobs=given.jobs, progress=lambda *cell: sys.stderr.write(" ".join(cell) + "\n"))
    if given.out is not None:
        given.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    if given.page is not None:
        given.page.write_text(learners_page.page(facts, published), encoding="utf-8")


if __name__ == "__main__":
    main()
