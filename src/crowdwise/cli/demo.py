"""The demonstration: handwritten digits and a crowd of really trained weak classifiers, no download needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crowdwise import metrics, registry
from crowdwise.api import aggregate
from crowdwise.cli import show
from crowdwise.core.consensus import Consensus
from crowdwise.errors import ExtraError
from crowdwise.report.build import build_report
from crowdwise.report.page import check_extra, page
from crowdwise.simulate import SCENARIOS, Simulated

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MACHINES, SPAMMERS, COPIERS, GOLD = 12, 2, 3, 60
REPORT = Path("crowdwise-demo-report.html")
"""Where the report goes if no folder is named: into the working folder."""
SHOWN = (
    "auto", "anchored", "majority", "gold-weighted", "dawid-skene", "one-coin", "confusion-vector", "fast-dawid-skene",
)  # fmt: skip
"""The methods that are compared: the common ones, all of them quick."""
LEARNERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("two-stage", {"aggregator": "majority"}),
    ("two-stage", {"aggregator": registry.DEFAULT}),
    ("aggnet", {}),
    ("max-mig", {}),
)
"""The learners that are compared, with what is not their default."""


def run(*, seed: int = 0, out: Path | None = None, screen: Console | None = None) -> dict[str, Consensus]:
    """Make the crowd, aggregate it with the common methods, and show who is to be believed; then write a report."""
    screen = screen or show.console(stderr=False)
    screen.print(f"Training {MACHINES} weak classifiers; adding {SPAMMERS} spammers and {COPIERS} copiers ...")
    crowd = digits_crowd(seed)
    results, rows = compare(crowd)
    screen.print(f"[bold]{crowd.votes}[/bold]")
    screen.print(f"Four of the {crowd.votes.n_annotators} annotators label each digit.")
    screen.print()
    screen.print(method_table(rows))
    screen.print(f"* told {GOLD} of the true digits; nobody's accuracy counts these", markup=False)
    screen.print()
    screen.print(show.annotator_table(results[registry.DEFAULT], limit=9))
    accuracy, low, high = results[registry.DEFAULT].accuracy()
    true = crowd.parameters["accuracy"]
    inside, off = int(((low <= true) & (true <= high)).sum()), np.abs(accuracy - true).mean()
    screen.print(f"{inside} of the {len(true)} intervals hold the annotator's real accuracy;")
    screen.print(f"the estimates are off by {off:.3f} on average.")
    screen.print()
    show_learners(crowd, screen)
    if out is not None:
        crowd.save(out / "crowd")
        results[registry.DEFAULT].save(out / "consensus")
        screen.print(f"kept in {out}", markup=False)
    screen.print()
    show_report(crowd, results[registry.DEFAULT], REPORT if out is None else out / "report.html", screen)
    screen.print("Next: crowdwise aggregate YOUR_FILE.csv --out consensus.csv", markup=False)
    return results


def show_report(crowd: Simulated, consensus: Consensus, path: Path, screen: Console) -> None:
    """Write the report, with the digits as pictures, and say what it says first."""
    pictures = dict(zip(crowd.votes.items.tolist(), crowd.features["x_train"].reshape(-1, 8, 8), strict=True))
    try:
        check_extra()
    except ExtraError as error:
        screen.print(f"No report. {error}", markup=False)
        return
    report = build_report(crowd.votes, consensus, images=pictures, title="Handwritten digits", all_items=True)
    path.write_text(page(report), encoding="utf-8")
    screen.print(report["summary"]["headline"], markup=False)
    screen.print(f"The report is a page to open in a browser: {path}", markup=False, soft_wrap=True)


def digits_crowd(seed: int = 0) -> Simulated:
    """Digits with four votes each by weak classifiers, spammers and copiers; a fifth of all digits nobody has seen."""
    return SCENARIOS["machine"](
        n_annotators=MACHINES,
        n_spammers=SPAMMERS,
        n_copiers=COPIERS,
        test_share=0.2,
        votes_per_item=4,
        random_state=seed,
    )


def compare(
    crowd: Simulated,
) -> tuple[dict[str, Consensus], list[tuple[str, metrics.Estimate, float, float, float]]]:
    """The common methods on the crowd.

    Those that need known truth get it for a few items, which are then left out of everybody's accuracy.
    """
    truth = crowd.truth
    gold = np.full(len(truth), -1, dtype=np.int32)
    gold[:GOLD] = truth[:GOLD]
    hidden = np.where(gold >= 0, -1, truth)
    results, rows = {}, []
    for key in SHOWN:
        known = gold if registry.find(key).load().needs_gold else None
        found = aggregate(crowd.votes, key, gold=known)
        results[key] = found
        rows.append(
            (
                key,
                metrics.accuracy(found, hidden),
                float(metrics.log_loss(found, hidden)),
                float(metrics.calibration_error(found, hidden)),
                found.seconds,
            )
        )
    return results, sorted(rows, key=lambda row: -row[1].value)


def method_table(rows: list[tuple[str, metrics.Estimate, float, float, float]]) -> Table:
    from rich.table import Table

    table = Table(
        box=None,
        pad_edge=False,
        title="Methods, measured against the real digits",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("method")
    for name in ("accuracy", "95% interval", "log loss", "calibration error", "ms"):
        table.add_column(name, justify="right")
    for key, acc, loss, calibration, seconds in rows:
        name = f"{key} *" if registry.find(key).load().needs_gold else key
        table.add_row(
            name,
            f"{acc.value:.3f}",
            f"{acc.low:.3f} to {acc.high:.3f}",
            f"{loss:.3f}",
            f"{calibration:.3f}",
            f"{1000 * seconds:.0f}",
        )
    return table


# -------------------------------------------------------------------- learners


def show_learners(crowd: Simulated, screen: Console) -> None:
    """Classifiers learned from pixels and votes, on digits that nobody labelled."""
    unseen = len(crowd.features["y_test"])
    screen.print(f"Learning classifiers from the pixels and the votes, to read {unseen} digits nobody labelled ...")
    try:
        rows = compare_learners(crowd)
    except ExtraError as error:
        screen.print(f"left out. {error}", markup=False)
        return
    screen.print(learner_table(rows))


def compare_learners(crowd: Simulated) -> list[tuple[str, float, float, float]]:
    """Name, accuracy on digits nobody labelled, accuracy of the consensus on those that were, and seconds."""
    from crowdwise.learners.devices import one_thread

    rows = []
    for key, settings in LEARNERS:
        learner = registry.find(key, inputs=True).create(random_state=0, **settings)
        with one_thread():
            learner.fit(crowd.features["x_train"], crowd.votes)
        right = learner.predict(crowd.features["x_test"]) == crowd.features["y_test"]
        name = ", ".join([key, *settings.values()])
        seconds = learner.consensus_.seconds
        rows.append((name, float(np.mean(right)), learner.consensus_.score(crowd.truth), seconds))
    return rows


def learner_table(rows: list[tuple[str, float, float, float]]) -> Table:
    from rich.table import Table

    table = Table(
        box=None, pad_edge=False, title="Learners, on digits nobody labelled", title_justify="left", title_style="bold"
    )
    table.add_column("learner")
    for name in ("accuracy", "on the labelled", "s"):
        table.add_column(name, justify="right")
    for name, unseen, labelled, seconds in rows:
        table.add_row(name, f"{unseen:.3f}", f"{labelled:.3f}", f"{seconds:.1f}")
    return table
