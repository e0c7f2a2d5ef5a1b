"""Simulated crowds who draw boxes around objects, with known objects and known annotators."""

from __future__ import annotations

import numpy as np

from crowdwise.data.boxes import Boxes
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import RandomState, SimulatedAnswers, VotesPerItem, assign

WIDTH, HEIGHT = 1000.0, 800.0


def boxes(
    n_items: int = 100, *, n_annotators: int = 20, annotators_per_item: VotesPerItem = 5, objects_per_item: float = 4.0,
    n_classes: int = 3, detection: tuple[float, float] = (8.0, 2.0), ease: float = 1.0, false_alarms: float = 0.5,
    spread: tuple[float, float] = (0.05, 0.4), bias: float = 0.03, accuracy: float = 0.9,
    random_state: RandomState = 0,
) -> SimulatedAnswers[Boxes]:  # fmt: skip
    """Boxes that annotators draw around the objects of images of 1000 x 800.

    An annotator finds an object with a probability from a Beta distribution (``detection``), moved on the logit scale
    by a Normal number of the object with deviation ``ease``; draws a Gamma-distributed number (mean ``false_alarms``)
    of boxes around nothing per item; has edges off by a Normal ``bias`` (share of width or height, one for each edge),
    with Normal noise whose deviation is log-Normal (median and log-deviation in ``spread``); and names the class right
    with probability ``accuracy``. Parameters hold ``detection``, ``false_alarms``, ``spread`` and ``bias``, in the
    order of annotators.
    """
    crowds.check_counts(n_items=n_items, n_annotators=n_annotators, n_classes=n_classes)
    crowds.check_shares(accuracy=accuracy)
    crowds.check_positive(objects_per_item=objects_per_item)
    crowds.check_positive_pairs(detection=detection)
    rng = crowds.as_generator(random_state)
    M = n_annotators
    rate = rng.beta(*detection, size=M)
    alarms = rng.gamma(2.0, false_alarms / 2.0, size=M) if false_alarms > 0 else np.zeros(M)
    noise = spread[0] * np.exp(spread[1] * rng.normal(size=M))
    off = bias * rng.normal(size=(M, 4))
    names = [f"class {k}" for k in range(n_classes)]

    def somewhere() -> np.ndarray:
        size = np.exp(rng.normal(np.log(110.0), 0.5, size=2)).clip(20.0, 600.0)
        corner = rng.random(2) * (np.array([WIDTH, HEIGHT]) - size)
        return np.concatenate([corner, corner + size])

    objects: list[list[tuple[str, np.ndarray, float]]] = [
        [
            (names[rng.integers(n_classes)], somewhere(), ease * rng.normal())
            for _ in range(rng.poisson(objects_per_item))
        ]
        for _ in range(n_items)
    ]
    item, who = assign(n_items, M, annotators_per_item, random_state=rng)
    rows: list[tuple[object, ...]] = []
    found, total = np.zeros(M), np.zeros(M)
    for n, m in zip(item.tolist(), who.tolist(), strict=True):
        drawn: list[tuple[str, np.ndarray]] = []
        for name, box, easy in objects[n]:
            odds = rate[m] / (1.0 - rate[m]) * np.exp(easy)
            total[m] += 1
            if rng.random() < odds / (1.0 + odds):
                found[m] += 1
                said = name if rng.random() < accuracy else names[rng.integers(n_classes)]
                size = np.tile(box[2:] - box[:2], 2)
                drawn.append((said, box + size * (off[m] + noise[m] * rng.normal(size=4))))
        drawn += [(names[rng.integers(n_classes)], somewhere()) for _ in range(rng.poisson(alarms[m]))]
        drawn = [(name, box) for name, box in drawn if (box[2:] > box[:2]).all()]
        rows += [(n, f"a{m}", name, *box.tolist()) for name, box in drawn] or [(n, f"a{m}", *[None] * 5)]
    answers = Boxes.from_records(rows)
    truth = {n: [(name, *box.tolist()) for name, box, _ in some] for n, some in enumerate(objects)}
    order = [int(name[1:]) for name in answers.annotators]
    share = np.divide(found, total, out=np.full(M, np.nan), where=total > 0)
    return SimulatedAnswers(
        "boxes", answers.with_truth(truth),
        {"detection": share[order], "false_alarms": alarms[order], "spread": noise[order], "bias": off[order]},
    )  # fmt: skip
