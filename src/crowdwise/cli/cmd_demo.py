"""``crowdwise demo``: methods, learners and a report on handwritten digits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from crowdwise import registry
from crowdwise.cli import show
from crowdwise.cli.options import FixedSeedOption, option
from crowdwise.data.folders import write_text
from crowdwise.errors import ExtraError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from crowdwise.bench.digits import LearnerRow, MethodRow
    from crowdwise.core.consensus import Consensus
    from crowdwise.simulate import Simulated

REPORT = Path("crowdwise-demo-report.html")
"""Where the report goes if no folder is named: into the working folder."""
OutOption = Annotated[
    Path | None, option("--out", "-o", help="Also save the crowd, the consensus and the report in this folder.")
]


def demo(seed: FixedSeedOption = 0, out: OutOption = None) -> None:
    """See it work: handwritten digits, labelled by a crowd of weak classifiers.

    Spammers and copiers are among them.
    """
    run(seed=seed, out=out)


def run(*, seed: int = 0, out: Path | None = None, screen: Console | None = None) -> dict[str, Consensus]:
    """Make the crowd, aggregate it with the common methods, and show who is reliable; then write a report."""
    from crowdwise.bench import digits
    from crowdwise.cli.show_aggregate import annotator_table

    screen = screen or show.console(stderr=False)
    others = f"{digits.SPAMMERS} spammers and {digits.COPIERS} copiers"
    screen.print(f"Training {digits.MACHINES} weak classifiers; adding {others} ...")
    crowd = digits.digits_crowd(seed)
    rows = digits.compare_methods(crowd)
    results = {row.key: row.consensus for row in rows}
    default = results[registry.DEFAULT]
    screen.print(show.strong(str(crowd.votes)))
    screen.print(f"Four of the {crowd.votes.n_annotators} annotators label each digit.")
    screen.print()
    screen.print(method_table(rows))
    screen.print(f"* given {digits.GOLD} of the true digits; no accuracy counts these")
    screen.print()
    accuracy, low, high = default.accuracy()
    screen.print(annotator_table(default.annotators, default.votes_per_annotator, (accuracy, low, high), limit=9))
    true = crowd.parameters["accuracy"]
    inside, off = int(((low <= true) & (true <= high)).sum()), np.abs(accuracy - true).mean()
    screen.print(f"{inside} of the {len(true)} intervals hold the annotator's real accuracy;")
    screen.print(f"the estimates are off by {off:.3f} on average.")
    screen.print()
    unseen = len(crowd.features["y_test"])
    screen.print(f"Learning classifiers from the pixels and the votes, to read {unseen} digits nobody labelled ...")
    try:
        screen.print(learner_table(digits.compare_learners(crowd)))
    except ExtraError as error:
        screen.print(f"left out. {error}")
    if out is not None:
        crowd.save(out / "crowd")
        default.save(out / "consensus")
        screen.print(f"saved in {out}")
    screen.print()
    write_report(crowd, default, REPORT if out is None else out / "report.html", screen)
    screen.print("Next: crowdwise aggregate YOUR_FILE.csv --out consensus.csv")
    return results


def write_report(crowd: Simulated, consensus: Consensus, path: Path, screen: Console) -> None:
    """Write the report, with the digits as pictures, and print its headline."""
    from crowdwise.report.build import build_report
    from crowdwise.report.page import check_extra, page

    pictures = dict(zip(crowd.votes.items.tolist(), crowd.features["x_train"].reshape(-1, 8, 8), strict=True))
    try:
        check_extra()
    except ExtraError as error:
        screen.print(f"No report. {error}")
        return
    report = build_report(crowd.votes, consensus, images=pictures, title="Handwritten digits", all_items=True)
    write_text(page(report), path)
    screen.print(report["summary"]["headline"])
    screen.print(f"The report is a page to open in a browser: {path}", soft_wrap=True)


def method_table(rows: list[MethodRow]) -> Table:
    names = (">accuracy", ">95% interval", ">log loss", ">calibration error", ">ms")
    table = show.new_table("method", *names, title="Methods, measured against the real digits")
    for row in rows:
        acc = row.accuracy
        table.add_row(
            f"{row.key} *" if row.needs_gold else row.key, f"{acc.value:.3f}", f"{acc.low:.3f} to {acc.high:.3f}",
            f"{row.log_loss:.3f}", f"{row.calibration_error:.3f}", f"{1000 * row.consensus.seconds:.0f}",
        )  # fmt: skip
    return table


def learner_table(rows: list[LearnerRow]) -> Table:
    names = (">accuracy", ">on the labelled", ">s")
    table = show.new_table("learner", *names, title="Learners, on digits nobody labelled")
    for row in rows:
        table.add_row(row.name, f"{row.unseen:.3f}", f"{row.labelled:.3f}", f"{row.seconds:.1f}")
    return table
