"""Simulated crowds who mark spans in texts, with known spans and known rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdwise.data.spans import Spans
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import RandomState, SimulatedAnswers, VotesPerItem, assign


def spans(
    n_items: int = 200, *, n_annotators: int = 20, answers_per_item: VotesPerItem = 5, n_labels: int = 2,
    length: int = 1000, spans_per_item: float = 3.0, span_length: float = 40.0,
    detection: tuple[float, float] = (6.0, 3.0), false_alarms: float = 0.5, noise: float = 3.0,
    label_accuracy: tuple[float, float] = (18.0, 2.0), random_state: RandomState = 0,
) -> SimulatedAnswers[Spans]:  # fmt: skip
    """Spans in texts that annotators find or miss, with noisy boundaries, and spans that are not there.

    A text of ``length`` characters has Poisson many spans (mean ``spans_per_item``), of exponential lengths. An
    annotator finds one at a rate from a Beta distribution (``detection``), moves each boundary by a Laplace error (its
    scale is exponential, with mean ``noise``), and gives the true label at a rate from a Beta distribution
    (``label_accuracy``). False spans are Poisson many per item (the mean is exponential, with mean ``false_alarms``)
    and lie anywhere. Parameters hold ``detection``, ``false_alarms``, ``boundary_noise`` and ``label_accuracy``, in the
    order of annotators.
    """
    crowds.check_counts(n_items=n_items, n_annotators=n_annotators, n_labels=n_labels, length=length)
    rng = crowds.as_generator(random_state)
    M = n_annotators
    d, a = rng.beta(*detection, size=M), rng.beta(*label_accuracy, size=M)
    f, b = rng.exponential(false_alarms, size=M), rng.exponential(noise, size=M)
    names = [f"L{k}" for k in range(n_labels)]

    def some(mean: float) -> list[tuple[int, int, int]]:
        out = []
        for _ in range(rng.poisson(mean)):
            size = min(length, 1 + int(rng.exponential(span_length)))
            start = int(rng.integers(length - size + 1))
            out.append((int(rng.integers(n_labels)), start, start + size))
        return out

    truth = [sorted(set(some(spans_per_item)), key=lambda span: span[1:]) for _ in range(n_items)]
    item, who = assign(n_items, M, answers_per_item, random_state=rng)
    rows: list[tuple[Any, ...]] = []
    for n, m in zip(item.tolist(), who.tolist(), strict=True):
        given = set(some(f[m]))
        for label, start, end in truth[n]:
            if rng.random() < d[m]:
                low, high = np.clip(np.round(np.array([start, end]) + rng.laplace(0.0, b[m], size=2)), 0, length)
                wrong = rng.random() >= a[m] and n_labels > 1
                said = (label + int(rng.integers(1, n_labels))) % n_labels if wrong else label
                given.add((said, int(low), int(high)) if high > low else (said, start, end))
        rows += [(n, f"a{m}", names[k], lo, hi) for k, lo, hi in sorted(given)] or [(n, f"a{m}", None, None, None)]
    answers = Spans.from_records(rows).within(dict.fromkeys(range(n_items), length))
    true = {n: [(names[k], lo, hi) for k, lo, hi in truth[n]] for n in range(n_items)}
    order = [int(name[1:]) for name in answers.annotators]
    found = {"detection": d, "false_alarms": f, "boundary_noise": b, "label_accuracy": a}
    return SimulatedAnswers("spans", answers.with_truth(true), {name: rate[order] for name, rate in found.items()})
