"""An annotation lead on a Monday morning: an export in, labels out, annotators to keep, and a report to pass on.

    python examples/annotation_lead.py labels.csv --out monday --bar 0.7

The export is a table with an item, an annotator and a label (CSV, JSON, a spreadsheet...). Without a file, a crowd is
simulated, with two spammers among its twelve annotators.

Written into the folder: ``consensus.csv`` (a label and a probability for each item), ``annotators.csv`` (accuracy with
its interval, and what to do), ``review.csv`` (items to look at, the most doubtful first), ``report.html``.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

import crowdwise as cw


def simulated_export(path: Path) -> Path:
    """An export as tools write it: 300 items, 12 annotators, 4 votes on each, three classes."""
    crowd = cw.simulate.hammer_spammer(
        300, n_annotators=12, n_classes=3, share=0.85, accuracy=0.82, votes_per_item=4, random_state=1
    )
    votes = crowd.votes
    names, classes = [f"w{m + 1}" for m in range(votes.n_annotators)], ["complaint", "praise", "question"]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["task", "worker", "label"])
        for n, m, k in zip(votes.item.tolist(), votes.annotator.tolist(), votes.label.tolist(), strict=True):
            table.writerow([f"mail-{n + 1}", names[m], classes[k]])
    return path


def decide(votes: cw.Votes, found: cw.Diagnosis, consensus: cw.Consensus, bar: float) -> list[dict[str, object]]:
    """For each annotator: keep, drop, look or ask for more votes, by verdict and by interval of the accuracy.

    Without gold labels intervals are wide, and say who is less accurate than the others rather than how accurate.
    """
    accuracy, low, high = consensus.accuracy()
    rows: list[dict[str, object]] = []
    for m, name in enumerate(votes.annotators.tolist()):
        verdict = str(found.verdicts[name])
        if verdict in ("keep", "unclear"):  # nothing speaks against them: is the accuracy enough for us?
            verdict = "drop" if high[m] < np.median(accuracy) else "keep" if accuracy[m] >= bar else "more votes"
        row = {"annotator": name, "decision": verdict, "accuracy": accuracy[m], "low": low[m], "high": high[m]}
        rows.append({key: round(float(x), 3) if isinstance(x, np.floating) else x for key, x in row.items()})
    return sorted(rows, key=lambda row: (row["decision"], -float(str(row["accuracy"]))))


def main() -> None:
    parser = argparse.ArgumentParser(description="Labels, decisions on annotators and a report from an export.")
    parser.add_argument("file", nargs="?", help="the export; without it a crowd is simulated")
    parser.add_argument("--out", default="monday", help="the folder to write into")
    parser.add_argument("--bar", type=float, default=0.6, help="the accuracy that an annotator must have")
    given = parser.parse_args()
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    file = Path(given.file) if given.file else simulated_export(out / "labels.csv")

    # 1. Read the export. Odd columns, doubled answers and labels that differ in case are reported, not guessed at.
    votes = cw.read_votes(file)
    print(f"{votes.n_votes:,} votes by {votes.n_annotators:,} annotators on {len(votes):,} items")

    # 2. Labels, and what is wrong with the crowd.
    first = cw.aggregate(votes)
    found = cw.diagnose(votes, first)
    for sentence in found.sentences()[:6]:
        print(f"  {sentence}")

    # 3. Annotators to keep. Those to drop are left out, and the labels are made again.
    rows = decide(votes, found, first, given.bar)
    dropped = [row["annotator"] for row in rows if row["decision"] == "drop"]
    for decision in ("keep", "look", "more votes", "drop"):
        names = [str(row["annotator"]) for row in rows if row["decision"] == decision]
        print(f"{decision:10} {len(names):3}  {', '.join(names)}")
    kept = votes.without(dropped) if dropped else votes
    consensus = cw.aggregate(kept)
    right, low, high = consensus.expected_accuracy()
    print(
        f"labels expected to be right: {right:.0%} (95% CI {low:.0%} to {high:.0%}); a few gold labels would measure it"
    )
    before = dict(zip(first.items.tolist(), first.labels.tolist(), strict=True))
    after = zip(consensus.items.tolist(), consensus.labels.tolist(), strict=True)
    print(f"labels that changed without those {len(dropped)}: {sum(before[item] != label for item, label in after)}")

    # 4. What goes into spreadsheets, and the page for everybody else.
    consensus.item_table.write_csv(out / "consensus.csv")
    with (out / "annotators.csv").open("w", newline="", encoding="utf-8") as table:
        writer = csv.DictWriter(table, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    doubt = cw.diagnose(kept, consensus).review("polars")
    doubt.write_csv(out / "review.csv")
    page = cw.write_report(kept, consensus, out / "report.html", title=file.stem)
    print(f"{len(doubt)} items to review; everything is in {out}, start with {page.name}")


if __name__ == "__main__":
    main()
