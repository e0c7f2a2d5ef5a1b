"""Simulated crowds who draw around objects, with known masks and known annotators."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdwise.data.masks import Masks, pack
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import RandomState, Rng, SimulatedAnswers, VotesPerItem, assign

WAVES = 6
"""The most waves around an outline."""


def masks(
    n_items: int = 50, *, n_annotators: int = 10, masks_per_item: VotesPerItem = 5, size: int = 96,
    offset: float = 2.0, scatter: tuple[float, float] = (0.5, 2.5), careless: float = 0.05,
    random_state: RandomState = 0,
) -> SimulatedAnswers[Masks]:  # fmt: skip
    """Round objects with wavy outlines, which annotators draw too large or too small, and imprecisely.

    An annotator draws the outline further out by a number of pixels of their own (Normal with deviation ``offset``)
    and by waves around the object, whose deviation in pixels lies evenly in ``scatter``. A mask is ``careless`` at this
    rate: a circle somewhere. Images have ``size`` x ``size`` pixels. Parameters hold ``offset`` and ``scatter``, in the
    order of annotators.
    """
    crowds.check_counts(n_items=n_items, n_annotators=n_annotators)
    crowds.check_counts(16, size=size)
    crowds.check_shares(careless=careless)
    rng = crowds.as_generator(random_state)
    bias, noise = rng.normal(0.0, offset, n_annotators), rng.uniform(*scatter, n_annotators)
    y, x = np.mgrid[:size, :size] + 0.5
    item, who = assign(n_items, n_annotators, masks_per_item, random_state=rng)
    centre = size * rng.uniform(0.4, 0.6, (n_items, 2))
    shape = size * rng.uniform(0.15, 0.28, n_items)
    outlines = [shape[n] * (1.0 + _waves(rng, 0.1)) for n in range(n_items)]

    def filled(place: npt.NDArray[np.float64], outline: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        dy, dx = y - place[0], x - place[1]
        turn = np.arctan2(dy, dx) * (len(outline) / (2 * np.pi))
        return np.asarray(np.hypot(dx, dy) < outline[np.rint(turn).astype(int) % len(outline)])

    drawn = []
    for n, m in zip(item.tolist(), who.tolist(), strict=True):
        if rng.random() < careless:
            drawn.append(filled(size * rng.uniform(0.2, 0.8, 2), np.full(8, size * rng.uniform(0.1, 0.3))))
        else:
            drawn.append(filled(centre[n], np.maximum(outlines[n] + bias[m] + _waves(rng, noise[m]), 1.0)))
    truth = [pack(filled(centre[n], outlines[n])) for n in range(n_items)]
    answers = Masks.from_codes(
        item, who, drawn, items=np.arange(n_items), annotators=[f"a{m}" for m in range(n_annotators)], truth=truth
    )
    return SimulatedAnswers("masks", answers, {"offset": bias, "scatter": noise})


def _waves(rng: Rng, deviation: float) -> npt.NDArray[np.float64]:
    """A smooth random function of 720 directions, of mean 0 and of about such a deviation."""
    turn = np.arange(720) * (2 * np.pi / 720)
    order = np.arange(1, WAVES + 1)
    a = rng.normal(size=(2, WAVES)) * (deviation / np.sqrt(WAVES))
    return np.asarray(np.cos(np.outer(turn, order)) @ a[0] + np.sin(np.outer(turn, order)) @ a[1])
