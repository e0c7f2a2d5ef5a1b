"""Images and crowds of the papers' tables: CIFAR-10 and MNIST with simulated experts, CIFAR-10N with people's votes.

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
from crowdwise.simulate import four_annotators, hammer_spammer, max_mig, one_reliable, pairwise_flipper, regular
from crowdwise.simulate.crowds import answer, assign, collect
from crowdwise.simulate.machines import machine_annotators
from crowdwise.simulate.vote_crowds import CIFAR

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
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


def pictured(folder: Path, classes: tuple[int, ...], seed: int | None = None) -> tuple[Ints, Ints, Codes]:
    """Where the images of some classes of CIFAR-10 are: those to learn from (shuffled by a seed), those to test on; and
    all labels."""
    _, y = cifar10(folder)
    at, n = np.flatnonzero(np.isin(y, classes)), len(y) - len(y) // 6
    train = at[at < n]
    return train if seed is None else np.random.default_rng([seed, 35]).permutation(train), at[at >= n], y


def experts(dataset: str, expertise: str, case: str) -> Crowd:
    """Max-MIG's experts on a two-class problem of CIFAR-10, on the images to test on as well.

    ``dogs``: all cats and dogs. ``luna``, in place of grey images of lungs of which 15 % show a tumour: as many grey
    animals (6,484 and 1,622), of which 15 % are cats.
    """

    def task(folder: Path, data: Path | None, seed: int) -> ImageTask:
        x, _ = cifar10(folder)
        train, test, y = pictured(folder, (3, 5) if dataset == "dogs" else (2, 3, 4, 5, 6, 7), seed)
        if dataset == "luna":
            train, test = rare(train, y, 6484), rare(test, y, 1622)
        at = np.concatenate([train, test])
        truth = (y[at] == (5 if dataset == "dogs" else 3)).astype(np.int32)
        images = x[at] if dataset == "dogs" else np.round(x[at] @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
        crowd = max_mig(dataset=dataset, expertise=expertise, case=case, truth=truth, random_state=seed)  # type: ignore[arg-type]
        n, votes = len(train), crowd.votes
        return ImageTask(
            images[:n], votes[np.arange(n)], images[n:], truth[n:], votes[np.arange(n, len(at))],
            crowd.parameters["confusion"],
        )  # fmt: skip

    return task


def rare(at: Ints, y: Codes, count: int) -> Ints:
    """So many of some images in their order, of which 15 % are cats."""
    cat = y[at] == 3
    few = round(0.15 * count)
    return np.concatenate([at[cat][:few], at[~cat][: count - few]])


def cars_and_horses(radius: float = 0.0, n_items: int = 1000, **settings: Any) -> Crowd:
    """Cars and horses of CIFAR-10, 64 x 64, with votes of workers who label four each (deepBP's regular crowd).

    ``radius`` is that of a Gaussian blur on pictures of 150 x 150, as in the paper. Tested on the 2,000 test images.
    """

    def task(folder: Path, data: Path | None, seed: int) -> ImageTask:
        x, _ = cifar10(folder)
        train, test, y = pictured(folder, (1, 7), seed)
        some = train[:n_items]
        crowd = regular(n_items, truth=(y[some] == 7).astype(np.int32), random_state=seed, **settings)
        horse = (y[test] == 7).astype(np.int32)
        theta = crowd.parameters["confusion"]
        return ImageTask(blurred(x[some], radius), crowd.votes, blurred(x[test], radius), horse, None, theta)

    return task


def blurred(x: Bytes, radius: float) -> Bytes:
    """Images of 64 x 64 pixels, blurred as much as a radius blurs 150 x 150."""
    from scipy.ndimage import gaussian_filter

    large = x.repeat(2, axis=1).repeat(2, axis=2)
    sigma = 64.0 / 150.0 * radius
    return large if not radius else gaussian_filter(large, (0.0, sigma, sigma, 0.0))


def digits(make: Callable[..., Any], votes_per_item: int | None, n_items: int = 20_000, **settings: Any) -> Crowd:
    """Some images of MNIST, with votes drawn from the matrices of a scenario with five annotators."""

    def task(folder: Path, data: Path | None, seed: int) -> ImageTask:
        x, y, x_test, y_test = stored_arrays(data, "MNIST", "x_train", "y_train", "x_test", "y_test")
        rng = np.random.default_rng([seed, 35])
        rows = rng.permutation(len(y))[:n_items]
        truth = y[rows].astype(np.int32)
        theta = make(1, n_annotators=5, n_classes=10, random_state=seed, **settings).parameters["confusion"]
        item, annotator = assign(len(rows), len(theta), votes_per_item, random_state=rng)
        label = answer(theta, annotator, truth[item], rng)
        votes = collect("digits", (item, annotator), label, truth, np.full(10, 0.1), theta).votes
        return ImageTask(x[rows], votes, x_test, y_test.astype(np.int32), None, theta)

    return task


def machines(folder: Path, data: Path | None, seed: int) -> ImageTask:
    """57,000 images of MNIST, of which each of fifteen weak classifiers labels a tenth (GeoCrowdNet's annotators).

    The other 3,000 trained the classifiers. Votes are kept beside the images: they take a minute to make.
    """
    x, y, x_test, y_test = stored_arrays(data, "MNIST", "x_train", "y_train", "x_test", "y_test")
    file = folder / f"machines-{seed}.npz"
    if not file.is_file():
        crowd = machine_annotators(
            x.reshape(len(x), -1) / 255.0, y, train_share=0.05, subset=(20, 300), votes_per_item=0.1, random_state=seed
        )  # fmt: skip
        new, votes = file.with_suffix(f".{os.getpid()}.npz"), crowd.votes
        np.savez_compressed(
            new, rows=crowd.parameters["rows"].astype(np.int32), theta=crowd.parameters["confusion"],
            item=votes.item.astype(np.int32), annotator=votes.annotator.astype(np.uint8),
            label=votes.label.astype(np.uint8),
        )  # fmt: skip
        os.replace(new, file)
    with np.load(file) as stored:
        rows, theta, item, annotator, label = (stored[k] for k in ("rows", "theta", "item", "annotator", "label"))
    truth = y[rows].astype(np.int32)
    votes = collect(
        "machines", (item, annotator.astype(np.int32)), label.astype(np.int32), truth, np.full(10, 0.1), theta
    )
    return ImageTask(x[rows], votes.votes, x_test, y_test.astype(np.int32), None, theta)


EXPERTS = {
    f"{expertise}-{case}": simulated(max_mig, dataset="cifar", expertise=expertise, case=case)
    for expertise in ("high", "low")
    for case in ("independent", "naive", "copied")
}
TWO_CLASSES = {f"{name}-{crowd}": experts(name, *crowd.split("-")) for name in ("dogs", "luna") for crowd in EXPERTS}
FLIP, SPAM = (0.2, 0.25, 0.3, 0.35, 0.5, 0.7), (0.1, 0.2, 0.3, 0.5)
"""How often Tanno's annotators on MNIST are right: pairwise flippers, hammer-spammers."""
DIGITS: dict[str, Crowd] = {
    "machines": machines,
    **{
        f"flip-{name}-{p:g}": digits(pairwise_flipper, per, p=p)
        for name, per in (("dense", None), ("one", 1))
        for p in FLIP
    },
    **{
        f"spam-{name}-{p:g}": digits(hammer_spammer, per, skill=p)
        for name, per in (("dense", None), ("one", 1))
        for p in SPAM
    },
}
REGULAR = {
    **{f"blur-{radius}": cars_and_horses(radius, a=1.0, b=0.5) for radius in (0, 8, 32)},
    **{f"beta-{a:g}": cars_and_horses(a=a, b=a / 2) for a in (0.2, 0.5, 1.0, 1.5, 2.0)},
    **{
        f"spammers-{count}": cars_and_horses(workers="dirichlet", a=2.0, b=1.0, n_extreme_spammers=count)
        for count in (0, 1, 2, 4)
    },
    **{
        f"budget-{per}": cars_and_horses(n_items=2000 // per, l=per, workers="dirichlet", a=2.0, b=1.0)
        for per in (1, 2, 4, 8)
    },
    "dirichlet-3": cars_and_horses(workers="dirichlet", a=3.0, b=1.0),
}
CROWDS: dict[str, Crowd] = {
    **EXPERTS,
    **TWO_CLASSES,
    **DIGITS,
    **REGULAR,
    "dense": simulated(four_annotators),
    "one-label": simulated(four_annotators, votes_per_item=1),
    "one-reliable": simulated(one_reliable),
    "three-slots": people("worker1", "worker2", "worker3"),
    "worst-labels": people("worse"),
    "truth": true_labels,
    "counts": counts,
}


def load_crowd(name: str, folder: Path, data: Path | None, seed: int) -> ImageTask:
    """The images and votes of a crowd by name."""
    if name not in CROWDS:
        raise ParameterError(
            f"There is no crowd {name!r}: there are {', '.join(CROWDS)}.{suggestion(name, list(CROWDS))}"
        )
    return CROWDS[name](folder, data, seed)
