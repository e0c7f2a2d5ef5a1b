"""Simulated crowds who choose any number of labels, with known sets and known rates."""

from __future__ import annotations

import numpy as np

from crowdwise.data.label_sets import LabelSets
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import RandomState, SimulatedAnswers, VotesPerItem, assign


class SimulatedLabelSets(SimulatedAnswers[LabelSets]):
    """Label sets, with the true set of every item (N x L booleans), and what they were drawn from."""


def label_sets(
    n_items: int = 200, *, n_labels: int = 8, n_annotators: int = 20, answers_per_item: VotesPerItem = 4,
    share: float = 0.3, skill: tuple[float, float] = (1.2, 0.8), likeness: float = 20.0, random_state: RandomState = 0,
) -> SimulatedLabelSets:  # fmt: skip
    """Sets of labels, each label in ``share`` of them on average, and annotators with a skill of their own.

    The log-odds of an annotator's sensitivity and specificity are Normal with mean and deviation ``skill``; on each
    label they are drawn from a Beta with that mean and the strength ``likeness``: the greater, the more alike.
    Parameters hold ``sensitivity`` and ``specificity`` (M x L), and ``prior`` (L).
    """
    crowds.check_counts(n_items=n_items, n_labels=n_labels, n_annotators=n_annotators)
    crowds.check_shares(share=share)
    crowds.check_positive(likeness=likeness)
    rng = crowds.as_generator(random_state)
    prior = rng.beta(4.0 * share + 1e-9, 4.0 * (1.0 - share) + 1e-9, size=n_labels)
    truth = rng.random((n_items, n_labels)) < prior
    centre = 1.0 / (1.0 + np.exp(-rng.normal(skill[0], skill[1], size=(2, n_annotators, 1))))
    a, b = np.broadcast_arrays(likeness * centre, likeness * (1.0 - centre))
    rate = rng.beta(np.repeat(a, n_labels, axis=2), np.repeat(b, n_labels, axis=2))
    item, who = assign(n_items, n_annotators, answers_per_item, random_state=rng)
    says = np.where(truth[item], rate[0][who], 1.0 - rate[1][who])
    chosen = rng.random(says.shape) < says
    labels = [f"l{k}" for k in range(n_labels)]
    names = np.array(labels, dtype=object)
    records = [(int(n), f"a{m}", names[row].tolist()) for n, m, row in zip(item, who, chosen, strict=True)]
    answers = LabelSets.from_records(records, classes=labels)
    truth = truth[answers.items.astype(np.int64)]  # with few answers some items may have none
    true = {"prior": prior, "sensitivity": rate[0], "specificity": rate[1]}
    return SimulatedLabelSets("label-sets", answers.with_truth(truth), true)
