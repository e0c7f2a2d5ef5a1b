"""Registered methods on a folder of data sets: one table, measured in one way.

A data set is a folder that :func:`crowdwise.read_dataset` reads and that has truth. Methods see the votes alone,
learners see the inputs as well; the truth only measures. Accuracy is that of the consensus (ties split) and, for
learners on a data set with test items, also that of the classifier on these. What is random is averaged over seeds.

The facts of a run are a plain dict, which JSON can hold.

===========  =====================================================================
``seeds``    how many seeds were averaged over
``methods``  their keys
``data``     the names of the data sets
``sets``     name -> items, annotators, votes, classes, items with truth (counts)
``cells``    a :class:`Cell` for each method and data set, as a dict
===========  =====================================================================

The demonstration: handwritten digits labelled by a crowd of really trained weak classifiers, no download needed.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crowdwise import metrics, registry
from crowdwise.api import aggregate
from crowdwise.core.consensus import Consensus
from crowdwise.core.numerics import Floats
from crowdwise.data import columns
from crowdwise.data.dataset import Dataset, find_table, read_dataset
from crowdwise.data.encoding import Codes
from crowdwise.data.features import class_codes
from crowdwise.data.files import read_table
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning, CrowdwiseError, ExtraError, InputError, ReadError, listing
from crowdwise.simulate import SCENARIOS, Simulated

MACHINES, SPAMMERS, COPIERS, GOLD = 12, 2, 3, 60
SHOWN = (
    "auto", "anchored", "majority", "gold-weighted", "dawid-skene", "one-coin", "confusion-vector", "fast-dawid-skene",
)  # fmt: skip
"""The methods that are compared: the common ones, all of them quick."""
LEARNERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("two-stage", {"aggregator": "majority"}),
    ("two-stage", {"aggregator": registry.DEFAULT}),
    ("aggnet", {}),
    ("max-mig", {}),
)
"""The learners that are compared, with what is not their default."""


class MethodRow(NamedTuple):
    """A method on the digits."""

    key: str
    needs_gold: bool
    consensus: Consensus
    accuracy: metrics.Estimate
    log_loss: float
    calibration_error: float


class LearnerRow(NamedTuple):
    """A learner: its accuracy on unlabelled digits, and that of its consensus."""

    name: str
    unseen: float
    labelled: float
    seconds: float


def digits_crowd(seed: int = 0) -> Simulated:
    """Digits with four votes each by weak classifiers, spammers and copiers; a fifth of all digits is held out."""
    kinds = {"n_annotators": MACHINES, "n_spammers": SPAMMERS, "n_copiers": COPIERS}
    return SCENARIOS["machine"](**kinds, test_share=0.2, votes_per_item=4, random_state=seed)


def compare_methods(crowd: Simulated) -> list[MethodRow]:
    """The common methods on the crowd, the best first.

    Those that need gold get it for a few items, which are then left out of the accuracy of all methods.
    """
    gold = np.where(np.arange(len(crowd.truth)) < GOLD, crowd.truth, -1).astype(np.int32)
    hidden = np.where(gold >= 0, -1, crowd.truth)
    rows = []
    for key in SHOWN:
        needs_gold = registry.find(key).load().needs_gold
        consensus = aggregate(crowd.votes, key, gold=gold if needs_gold else None)
        right, loss = metrics.accuracy(consensus, hidden), float(metrics.log_loss(consensus, hidden))
        calibration = float(metrics.calibration_error(consensus, hidden))
        rows.append(MethodRow(key, needs_gold, consensus, right, loss, calibration))
    return sorted(rows, key=lambda row: -row.accuracy.value)


def compare_learners(crowd: Simulated) -> list[LearnerRow]:
    """Learners on pixels and votes."""
    from crowdwise.learners.devices import one_torch_thread

    rows = []
    for key, settings in LEARNERS:
        learner = registry.find(key, inputs=True).create(random_state=0, **settings)
        with one_torch_thread():
            learner.fit(crowd.features["x_train"], crowd.votes)
        right = learner.predict(crowd.features["x_test"]) == crowd.features["y_test"]
        consensus = learner.consensus_
        name = ", ".join([key, *settings.values()])
        rows.append(LearnerRow(name, float(np.mean(right)), consensus.score(crowd.truth), consensus.seconds))
    return rows


OnCell = Callable[[str, str], None]
"""Called with the data set and the method of a cell."""
DIGITS = "digits"
"""The data set that needs no file."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method on one data set, the mean over seeds. ``problem`` says why there is no figure."""

    data: str
    method: str
    accuracy: float | None = None
    accuracy_test: float | None = None
    log_loss: float | None = None
    seconds: float | None = None
    iterations: float | None = None
    seeds: int = 1
    problem: str | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """Inputs and votes to learn from, inputs and classes to test on."""

    x: Any
    votes: Votes
    x_test: Any
    y_test: Codes
    settings: dict[str, Any] = field(default_factory=dict)
    """What learners are told of the inputs, those that have such a setting."""


def data_folder() -> Path:
    """Where data sets are looked for: the folder named by ``CROWDWISE_DATA``."""
    named = os.environ.get("CROWDWISE_DATA")
    if not named:
        raise ReadError("There is no folder of data sets: name one (--data), or set CROWDWISE_DATA.")
    return Path(named)


def find_sets(folder: Path, names: Sequence[str] | None = None) -> list[str]:
    """The data sets in a folder that have votes on classes and truth, or those asked for."""
    if names is not None and set(names) == {DIGITS}:
        return [DIGITS]
    if not folder.is_dir():
        raise ReadError(f"There is no folder of data sets {folder}: name one, or set CROWDWISE_DATA.")
    sets = sorted(p.name for p in folder.iterdir() if p.is_dir() and find_table(p, "votes") and find_table(p, "truth"))
    if not sets:
        raise ReadError(
            f"{folder} holds no data sets: expected a folder for each, with votes (labels.csv) and truth (truth.csv)."
        )
    if names is None:
        return [name for name in sets if _categorical(folder / name)]
    missing = [name for name in names if name not in (*sets, DIGITS)]
    if missing:
        raise ReadError(
            f"{folder} has no data set with votes and truth called {', '.join(missing)}: it has {', '.join(sets)}."
        )
    return list(names)


def _categorical(folder: Path) -> bool:
    """Whether the truth of a data set is among its labels (and not a number, a text, a score)."""
    try:
        return read_dataset(folder, on_duplicate="all").votes.n_classes <= 100
    except CrowdwiseError:
        return False


def load_votes(folder: Path, name: str) -> Votes:
    """The votes of a data set, with its truth."""
    if name == DIGITS:
        return digits().votes
    return read_dataset(folder / name, on_duplicate="all").votes


@lru_cache(maxsize=4)
def load_task(folder: Path, name: str) -> Task:
    """A data set with inputs, or with texts, and with items to test on; or the digits."""
    if name == DIGITS:
        return digits()
    data = read_dataset(folder / name, on_duplicate="all")
    test = data.test
    return texts(data, folder / name) if test is None else Task(data.inputs, data.votes, *test)


def digits(seed: int = 0) -> Task:
    """Scikit-learn's digits, labelled by the crowd of the demonstration; a fifth is kept to test on."""
    crowd = digits_crowd(seed)
    x, x_test, y_test = (crowd.features[name] for name in ("x_train", "x_test", "y_test"))
    return Task(x, crowd.votes, x_test, class_codes(y_test, crowd.votes.classes))


def texts(data: Dataset, folder: Path) -> Task:
    """Texts of the items (``texts.csv``) and of test items (``test.csv``, with labels) on principal axes.

    Nothing is learned from the test texts. The axes are not brought to one variance.
    """
    from crowdwise.learners.text_features import TextAxes

    file = folder / "test.csv"
    if data.item_table is None or "text" not in data.item_table.columns or not file.is_file():
        raise InputError(
            f"{folder} has nothing to learn a classifier from and test it on: expected features.npz with x_train, "
            "x_test and y_test, or texts.csv and test.csv."
        )
    test, _ = read_table(file)
    label, item = columns.find(test.columns, "label"), columns.find(data.item_table.columns, "item")
    if label is None or item is None or "text" not in test.columns:
        raise InputError(f"{file} needs the columns label and text, and the table of items its names.")
    text_of = dict(zip(map(str, data.item_table[item].to_list()), data.item_table["text"].to_list(), strict=True))
    lost = [name for name in data.votes.items.tolist() if str(name) not in text_of]
    if lost:
        raise InputError(f"{folder} has no text for {len(lost)} of its items: {listing(lost)}. Add them to texts.csv.")
    axes, rows = TextAxes.fitted([text_of[str(name)] for name in data.votes.items.tolist()])
    return Task(
        rows, data.votes, axes.rows(test["text"].to_list()),
        class_codes(test[label].to_list(), data.votes.classes, data.legend), {"scale": False},
    )  # fmt: skip


def run(
    folder: Path, sets: Iterable[str], methods: Iterable[str], *, seeds: int = 1, limit: float = 60.0,
    progress: OnCell | None = None,
) -> Iterator[Cell]:  # fmt: skip
    """A cell for every data set and method; one that took over ``limit`` seconds is not repeated for further seeds."""
    methods = list(methods)
    for name in sets:
        votes = load_votes(folder, name)
        for key in methods:
            if progress is not None:
                progress(name, key)
            learner = key in registry.LEARNERS
            try:
                fit = _learner_fit(load_task(folder, name), key) if learner else _method_fit(votes, key)
                yield measure(fit, name, key, seeds, limit)
            except ExtraError:
                raise
            except CrowdwiseError as error:
                yield Cell(data=name, method=key, problem=str(error).partition(":")[0])


def measure_all(
    folder: Path, sets: Sequence[str], methods: Sequence[str], *, seeds: int = 1, progress: OnCell | None = None
) -> dict[str, Any]:
    """The facts of a run: its cells, and the shapes of its data sets."""
    shapes = {name: load_votes(folder, name).describe() for name in sets}
    counts = ("items", "annotators", "votes", "items_with_truth")
    return {
        "seeds": seeds,
        "methods": list(methods),
        "data": list(sets),
        "sets": {name: {k: x[k] for k in counts} | {"classes": len(x["classes"])} for name, x in shapes.items()},
        "cells": [asdict(cell) for cell in run(folder, sets, methods, seeds=seeds, progress=progress)],
    }


Fit = Callable[[int], tuple[Any, float | None, Codes | None]]
"""Seed -> consensus, accuracy on test items, truth."""


def _method_fit(votes: Votes, key: str) -> Fit:
    """Fits of a method that sees votes alone."""
    model = registry.find(key).load()
    if model.needs_gold:
        raise InputError("needs known truth")
    own = {"fall_back": False} if "fall_back" in model.parameters() else {}  # the paper's method, not the majority
    return lambda seed: (registry.create(key, random_state=seed, **own).fit(votes).consensus_, None, votes.truth)


def _learner_fit(task: Task, key: str) -> Fit:
    """Fits of a learner to inputs and votes."""

    def fit(seed: int) -> tuple[Any, float | None, Codes | None]:
        learner = registry.find(key, inputs=True).create(random_state=seed, **task.settings)
        learner.fit(task.x, task.votes, items=task.votes.items)
        return learner.consensus_, accuracy(learner.predict_proba(task.x_test), task.y_test), task.votes.truth

    return fit


def measure(fit: Fit, name: str, key: str, seeds: int, limit: float) -> Cell:
    """One method on one data set."""
    rows = []
    for seed in range(seeds):
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            consensus, tested, truth = fit(seed)
        seconds = time.perf_counter() - began
        loss = metrics.log_loss(consensus, truth, resamples=1).value
        unseen = np.nan if tested is None else tested
        rows.append((consensus.score(truth), unseen, loss, seconds, float(consensus.iterations)))
        if seconds > limit:
            break
    right, unseen, loss, seconds, iterations = np.mean(rows, axis=0).tolist()
    return Cell(
        data=name, method=key, accuracy=right, accuracy_test=None if np.isnan(unseen) else unseen, log_loss=loss,
        seconds=seconds, iterations=iterations, seeds=len(rows),
    )  # fmt: skip


def accuracy(q: Floats, truth: Codes) -> float:
    """The share of rows whose most probable class is true."""
    return float((q.argmax(axis=1) == truth).mean())
