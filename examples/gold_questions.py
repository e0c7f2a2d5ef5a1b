"""Gold questions: a few items whose answer you know, mixed in with the others.

    python examples/gold_questions.py

They can serve twice, and the same item must not do both: to teach (handed to the method) and to test (kept back, to
measure with). The crowd here is hostile: most annotators are wrong more often than chance. Agreement then points the
wrong way, and only known answers can turn it round.
"""

from __future__ import annotations

import numpy as np

import crowdwise as cw


def hostile_crowd(n_items: int = 1200, seed: int = 0) -> cw.Votes:
    """Two classes, four good annotators, six who mostly say the opposite; each item is seen by five."""
    rng = np.random.default_rng(seed)
    accuracy = np.array([0.85] * 4 + [0.2] * 6)
    truth = rng.integers(2, size=n_items)
    item = np.repeat(np.arange(n_items), 5)
    annotator = np.concatenate([rng.choice(10, size=5, replace=False) for _ in range(n_items)])
    right = rng.random(len(item)) < accuracy[annotator]
    label = np.where(right, truth[item], 1 - truth[item])
    names = [f"a{m}" for m in range(10)]
    return cw.Votes.from_codes(
        item, annotator, label, items=range(n_items), annotators=names, classes=["no", "yes"], truth=truth
    )


def main() -> None:
    votes = hostile_crowd()
    teach, test = votes.truth.copy(), votes.truth.copy()
    teach[60:] = -1  # the first sixty are told
    test[:60] = -1  # and the others measure

    fits = {
        "majority": cw.aggregate(votes, "majority"),
        "dawid-skene, told nothing": cw.aggregate(votes, "dawid-skene"),
        "gold-weighted, told 60": cw.aggregate(votes, "gold-weighted", gold=teach),
        "dawid-skene, told 60": cw.aggregate(votes, "dawid-skene", gold=teach),
    }
    for name, consensus in fits.items():
        print(f"{name:26} {cw.metrics.accuracy(consensus, test)}")


if __name__ == "__main__":
    main()
