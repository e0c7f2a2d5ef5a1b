"""Yesterday's consensus as history for today's votes.

    python examples/warm_start.py

Few votes come in today, too few to judge annotators by. What was learned of them yesterday was saved, and counts today
as if those votes had been cast again: ``history`` stays in force through the whole fit.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import crowdwise as cw


def main() -> None:
    crowd = cw.simulate.dirichlet(1500, n_annotators=25, n_classes=4, votes_per_item=3, random_state=3)
    yesterday, today = crowd.votes[:1400], crowd.votes[1400:]

    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "yesterday"
        cw.aggregate(yesterday).save(kept)
        earlier = cw.Consensus.load(kept)  # the next morning

    fits = {
        "today's votes alone": cw.aggregate(today),
        "with yesterday as history": cw.aggregate(today, history=earlier),
    }
    for name, consensus in fits.items():
        accuracy, loss = cw.metrics.accuracy(consensus, today.truth), cw.metrics.log_loss(consensus, today.truth)
        print(
            f"{name:26} accuracy {accuracy.value:.2f} ({accuracy.low:.2f} to {accuracy.high:.2f}), "
            f"log loss {loss.value:.2f}"
        )


if __name__ == "__main__":
    main()
