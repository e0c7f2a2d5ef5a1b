"""Every learner on data sets with test items whose class is known: one table, measured in one way.

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

import os
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import metrics, registry
from crowdwise.bench import tables
from crowdwise.bench.digits import digits_crowd
from crowdwise.bench.tables import OnCell, data_folder
from crowdwise.core.numerics import Floats
from crowdwise.data import columns
from crowdwise.data.dataset import Dataset, read_dataset
from crowdwise.data.encoding import Codes
from crowdwise.data.features import class_codes
from crowdwise.data.files import read_table
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning, CrowdwiseError, InputError, ParameterError, ReadError
from crowdwise.learners.text_axes import TextAxes

SETS = ("labelme", "music_genre", "sentiment_polarity", "digits")
DIGITS = "digits"
STAGES = ("dawid-skene", "anchored")
"""First stages that two-stage is measured with, besides its own default."""
MEASURES = ("accuracy_last", "accuracy_selected", "accuracy_consensus", "log_loss", "seconds")


@dataclass(frozen=True, kw_only=True)
class Cell(tables.Cell):
    """One learner on one data set with one seed."""

    seed: int
    accuracy_last: float | None = None
    """On test items, after the last epoch."""
    accuracy_selected: float | None = None
    """On test items, after the epoch that held-out votes chose; none for learners without epochs."""
    epoch_selected: int | None = None
    accuracy_consensus: float | None = None
    """On the items with votes, by inputs and votes together, after the last epoch."""


@dataclass(frozen=True, eq=False)
class Task:
    """Inputs and votes to learn from, inputs and classes to test on."""

    x: Any
    votes: Votes
    x_test: Any
    y_test: Codes
    settings: dict[str, Any] = field(default_factory=dict)
    """What learners are told of the inputs, those that have such a setting."""

    def shape(self) -> dict[str, int]:
        votes = self.votes
        return {
            "items": len(votes),
            "annotators": votes.n_annotators,
            "votes": votes.n_votes,
            "classes": votes.n_classes,
            "test": len(self.y_test),
        }


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


@lru_cache(maxsize=4)
def load_task(folder: Path, name: str) -> Task:
    """A data set with inputs, or with texts, and with items to test on; or the digits."""
    if name == DIGITS:
        return digits()
    data = read_dataset(folder / name, on_duplicate="all")
    test = data.test
    if test is not None:
        return Task(data.inputs, data.votes, *test)
    return texts(data, folder / name)


def digits(seed: int = 0) -> Task:
    """Scikit-learn's digits, labelled by the crowd of the demonstration; a fifth is kept to test on."""
    crowd = digits_crowd(seed)
    x, x_test, y_test = (crowd.features[name] for name in ("x_train", "x_test", "y_test"))
    return Task(x, crowd.votes, x_test, class_codes(y_test, crowd.votes.classes))


def texts(data: Dataset, folder: Path) -> Task:
    """Texts of the items (``texts.csv``) and of test items (``test.csv``, with labels) on principal axes.

    Nothing is learned from the test texts. The axes are not brought to one variance.
    """
    file = folder / "test.csv"
    if data.items is None or "text" not in data.items.columns or not file.is_file():
        raise InputError(
            f"{folder} has nothing to learn a classifier from and test it on: expected features.npz with x_train, "
            "x_test and y_test, or texts.csv and test.csv."
        )
    test, _ = read_table(file)
    label, item = columns.find(test.columns, "label"), columns.find(data.items.columns, "item")
    if label is None or item is None or "text" not in test.columns:
        raise InputError(f"{file} needs the columns label and text, and the table of items its names.")
    said = dict(zip(map(str, data.items[item].to_list()), data.items["text"].to_list(), strict=True))
    known = [said[str(name)] for name in data.votes.items.tolist()]
    axes = TextAxes.fitted(known)
    return Task(
        axes.rows(known), data.votes, axes.rows(test["text"].to_list()),
        class_codes(test[label].to_list(), data.votes.classes, data.legend), {"scale": False},
    )  # fmt: skip


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
    shapes = {name: load_task(plan.folder, name).shape() for name in plan.sets}
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


def accuracy(q: Floats, truth: Codes) -> float:
    return float((q.argmax(axis=1) == truth).mean())


def means(facts: dict[str, Any]) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """(data set, method) -> measure -> mean and standard deviation over seeds; what was not measured is left out."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for cell in facts["cells"]:
        for name in MEASURES:
            if cell[name] is not None:
                values.setdefault((cell["data"], cell["method"]), {}).setdefault(name, []).append(cell[name])
    return {
        key: {n: (float(np.mean(x)), float(np.std(x, ddof=1)) if len(x) > 1 else 0.0) for n, x in found.items()}
        for key, found in values.items()
    }
