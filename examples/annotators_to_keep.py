"""Which annotators to keep: those whose accuracy is above a bar with confidence.

    python examples/annotators_to_keep.py labels.csv --bar 0.6

The groups depend on the confidence interval of each accuracy: five right votes of five are weak evidence. An annotator
is above the bar (keep), below it (drop), or the interval contains it (ask more). Without a file, a crowd is simulated.
"""

from __future__ import annotations

import argparse

import numpy as np

import crowdwise as cw


def sort_out(votes: cw.Votes, bar: float, level: float = 0.95) -> dict[str, list[str]]:
    """Annotators to keep, to drop, and to ask more, best first."""
    accuracy, low, high = cw.aggregate(votes).accuracy(level)
    groups: dict[str, list[str]] = {"keep": [], "ask more": [], "drop": []}
    for m in np.argsort(-accuracy, kind="stable"):
        group = "keep" if low[m] > bar else "drop" if high[m] < bar else "ask more"
        groups[group].append(str(votes.annotators[m]))
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(description="Which annotators to keep.")
    parser.add_argument("file", nargs="?", help="a file of votes; without it a crowd is made up")
    parser.add_argument("--bar", type=float, default=0.6, help="the accuracy to clear")
    given = parser.parse_args()
    if given.file:
        votes = cw.read_votes(given.file)
    else:
        votes = cw.simulate.hammer_spammer(
            600, n_annotators=20, n_classes=3, share=0.7, accuracy=0.85, votes_per_item=5, random_state=0
        ).votes

    groups = sort_out(votes, given.bar)
    for group, names in groups.items():
        print(f"{group:8} {len(names):3}  {', '.join(names)}")

    # The labels, without those who are surely no help.
    rest = votes.without(groups["drop"]) if groups["drop"] else votes
    consensus = cw.aggregate(rest)
    sure = consensus.posterior.max(axis=1).mean()
    print(f"\n{len(consensus.items)} items labelled by {rest.n_annotators} annotators, mean probability {sure:.3f}")


if __name__ == "__main__":
    main()
