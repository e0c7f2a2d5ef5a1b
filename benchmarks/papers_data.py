"""Images and crowds of the papers' tables: CIFAR-10 with simulated experts, or with people's votes (CIFAR-10N).

A folder of images holds ``train0.npz``, ``train1.npz`` and ``test.npz``, each with ``delta`` (N, 3, 32, 32: differences
along a row of green, red - green and blue - green) and ``label``. They take seconds to decode, so the pixels are
written beside them the first time (``cifar10.npy``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Floats
from crowdwise.data.encoding import Codes
from crowdwise.data.votes import Votes
from crowdwise.errors import ParameterError, ReadError, suggestion
from crowdwise.simulate import four_annotators, max_mig, one_reliable, regular
from crowdwise.simulate.vote_crowds import CIFAR

Bytes = npt.NDArray[np.uint8]
TRAIN, TEST = ("train0", "train1"), ("test",)


@dataclass(frozen=True, eq=False)
class ImageTask:
    """Images and votes to learn from, and images to test on, with votes where the crowd is simulated."""

    x: Bytes
    votes: Votes
    x_test: Bytes
    y_test: Codes
    votes_test: Votes | None = None
    confusion: Floats | None = None
    """M x K x K: what the votes were drawn from."""


def images_folder() -> Path:
    """Where the images are: ``CROWDWISE_IMAGES``."""
    name = os.environ.get("CROWDWISE_IMAGES")
    if not name:
        raise ParameterError("Say where the images of CIFAR-10 are: --images FOLDER, or set CROWDWISE_IMAGES.")
    return Path(name)


def decoded(file: Path) -> tuple[Bytes, Codes]:
    """Pixels (N, 32, 32, 3) and labels of one file."""
    try:
        with np.load(file) as stored:
            delta, label = stored["delta"], stored["label"]
    except (OSError, KeyError, ValueError) as error:
        raise ReadError(f"{file} cannot be read as images of CIFAR-10: {error}.") from None
    q = np.cumsum(delta, axis=-1, dtype=np.uint8)
    return np.stack([q[:, 1] + q[:, 0], q[:, 0], q[:, 2] + q[:, 0]], axis=-1), label.astype(np.int32)


def decode(folder: Path) -> None:
    """Write the pixels beside the files, once."""
    if (folder / "cifar10.npy").is_file() and (folder / "cifar10-labels.npy").is_file():
        return
    parts = [decoded(folder / f"{name}.npz") for name in (*TRAIN, *TEST)]
    for name, at in (("cifar10-labels", 1), ("cifar10", 0)):
        new = folder / f"{name}.new.npy"
        np.save(new, np.concatenate([part[at] for part in parts]))
        os.replace(new, folder / f"{name}.npy")


@lru_cache(maxsize=1)
def cifar10(folder: Path) -> tuple[Bytes, Codes]:
    """All images and labels, those to test on (the last sixth) last."""
    decode(folder)
    return np.load(folder / "cifar10.npy"), np.load(folder / "cifar10-labels.npy")


Crowd = Callable[..., ImageTask]


def simulated(make: Callable[..., Any], **settings: Any) -> Crowd:
    """A crowd of a scenario on all images, those to test on as well."""

    def task(folder: Path, data: Path | None, seed: int) -> ImageTask:
        x, y = cifar10(folder)
        n = len(y) - len(y) // 6
        crowd = make(truth=y, random_state=seed, **settings)
        votes = crowd.votes
        train, test = votes[np.arange(n)], votes[np.arange(n, len(y))]
        return ImageTask(x[:n], train, x[n:], y[n:], test, crowd.parameters["confusion"])

    return task


def true_labels(folder: Path, data: Path | None, seed: int) -> ImageTask:
    """One annotator who is always right."""
    x, y = cifar10(folder)
    n = len(y) - len(y) // 6
    return ImageTask(x[:n], slots(y[:n, None], y[:n]), x[n:], y[n:])


def slots(labels: npt.NDArray[Any], truth: Codes) -> Votes:
    """Votes from one column of labels for each annotator."""
    N, M = labels.shape
    return Votes.from_codes(
        np.repeat(np.arange(N), M), np.tile(np.arange(M), N), labels.reshape(-1).astype(np.int32), items=np.arange(N),
        annotators=[f"slot{m + 1}" for m in range(M)], classes=CIFAR, truth=truth,
    )  # fmt: skip


def stored_arrays(data: Path | None, name: str, *arrays: str) -> list[npt.NDArray[Any]]:
    """Arrays of a data set: of CIFAR-10N from ``cifar10n/cifar10n.npz`` in the folder of data sets."""
    folder = name.lower().replace("-", "")
    file = (data or Path()) / folder / f"{folder}.npz"
    try:
        with np.load(file) as stored:
            return [stored[array] for array in arrays]
    except (OSError, KeyError, ValueError) as error:
        raise ReadError(f"{file} cannot be read as {name}: {error}. Say where it is: --data FOLDER.") from None


def people(*columns: str) -> Crowd:
    """The labels of CIFAR-10N, a column for each annotator."""

    def task(folder: Path, data: Path | None, seed: int) -> ImageTask:
        x, y = cifar10(folder)
        n = len(y) - len(y) // 6
        labels = np.stack(stored_arrays(data, "CIFAR-10N", *columns), axis=1)
        return ImageTask(x[:n], slots(labels, y[:n]), x[n:], y[n:])

    return task


def counts(folder: Path, data: Path | None, seed: int) -> ImageTask:
    """CIFAR-10H: how many of about 51 people chose each class, on the 10,000 test images; tested on the other 50,000.

    Nobody knows who said what: the counts are votes of one annotator, the crowd, weighted by how many agree.
    """
    x, y = cifar10(folder)
    n = len(y) - len(y) // 6
    (table,) = stored_arrays(data, "CIFAR-10H", "counts")
    item, label = np.nonzero(table)
    votes = Votes.from_codes(
        item, np.zeros(len(item), dtype=np.int32), label, items=np.arange(len(table)), annotators=["crowd"],
        classes=CIFAR, truth=y[n:], weight=table[item, label].astype(float), on_duplicate="all",
    )  # fmt: skip
    return ImageTask(x[n:], votes, x[:n], y[:n])


def cats_and_dogs(**settings: Any) -> Crowd:
    """1,000 cats and dogs of CIFAR-10, each with three votes of workers who label four (deepBP's regular crowd).

    All other cats and dogs to test on are the 2,000 of the test images.
    """

    def task(folder: Path, data: Path | None, seed: int) -> ImageTask:
        x, y = cifar10(folder)
        n = len(y) - len(y) // 6
        both = np.flatnonzero((y == 3) | (y == 5))
        some = np.random.default_rng([seed, 35]).permutation(both[both < n])[:1000]
        crowd = regular(len(some), truth=(y[some] == 5).astype(np.int32), random_state=seed, **settings)
        test = both[both >= n]
        return ImageTask(
            x[some], crowd.votes, x[test], (y[test] == 5).astype(np.int32), None, crowd.parameters["confusion"]
        )

    return task


EXPERTS = {
    f"{expertise}-{case}": simulated(max_mig, dataset="cifar", expertise=expertise, case=case)
    for expertise in ("high", "low")
    for case in ("independent", "naive", "copied")
}
CROWDS: dict[str, Crowd] = {
    **EXPERTS,
    "dense": simulated(four_annotators),
    "one-label": simulated(four_annotators, votes_per_item=1),
    "one-reliable": simulated(one_reliable),
    "three-slots": people("worker1", "worker2", "worker3"),
    "worst-labels": people("worse"),
    "truth": true_labels,
    "counts": counts,
    **{f"beta-{a:g}": cats_and_dogs(a=a, b=a / 2) for a in (0.2, 0.5, 1.0, 1.5, 2.0)},
    **{
        f"spammers-{count}": cats_and_dogs(workers="dirichlet", a=2.0, b=1.0, n_extreme_spammers=count)
        for count in (0, 1, 2, 4)
    },
}


def load_crowd(name: str, folder: Path, data: Path | None, seed: int) -> ImageTask:
    """The images and votes of a crowd by name."""
    if name not in CROWDS:
        raise ParameterError(
            f"There is no crowd {name!r}: there are {', '.join(CROWDS)}.{suggestion(name, list(CROWDS))}"
        )
    return CROWDS[name](folder, data, seed)
