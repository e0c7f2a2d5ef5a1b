"""``crowdwise demo``, ``simulate`` and ``bench``: a first look, a crowd with known truth, methods measured."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from crowdwise import registry
from crowdwise.cli import show
from crowdwise.cli.options import FixedSeedOption, JsonOption, assignments, option, words_in
from crowdwise.cli.outputs import TABLES, check_outputs, emit, say, write_table
from crowdwise.data.folders import write_text
from crowdwise.data.heavy import pl
from crowdwise.errors import ExtraError, ParameterError, suggestion

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from crowdwise.bench.runs import LearnerRow, MethodRow
    from crowdwise.core.consensus import Consensus
    from crowdwise.simulate import Simulated

REPORT = Path("crowdwise-demo-report.html")
"""Where the report goes if no folder is named: into the working folder."""
DemoOption = Annotated[
    Path | None, option("--out", "-o", help="Also save the crowd, the consensus and the report in this folder.")
]


def demo(seed: FixedSeedOption = 0, out: DemoOption = None) -> None:
    """See it work: handwritten digits, labelled by a crowd of weak classifiers.

    Spammers and copiers are among them.
    """
    run(seed=seed, out=out)


def run(*, seed: int = 0, out: Path | None = None, screen: Console | None = None) -> dict[str, Consensus]:
    """Make the crowd, aggregate it with the common methods, and show who is reliable; then write a report."""
    from crowdwise.bench import runs
    from crowdwise.cli.show_aggregate import annotator_table

    screen = screen or show.console(stderr=False)
    others = f"{runs.SPAMMERS} spammers and {runs.COPIERS} copiers"
    screen.print(f"Training {runs.MACHINES} weak classifiers; adding {others} ...")
    crowd = runs.digits_crowd(seed)
    rows = runs.compare_methods(crowd)
    results = {row.key: row.consensus for row in rows}
    default = results[registry.DEFAULT]
    screen.print(show.strong(str(crowd.votes)))
    screen.print(f"Four of the {crowd.votes.n_annotators} annotators label each digit.")
    screen.print()
    screen.print(method_table(rows))
    screen.print(f"* given {runs.GOLD} of the true digits; no accuracy counts these")
    screen.print()
    accuracy, low, high = default.accuracy()
    screen.print(annotator_table(default.annotators, default.votes_per_annotator, (accuracy, low, high), limit=9))
    true = crowd.parameters["accuracy"]
    inside, off = int(((low <= true) & (true <= high)).sum()), np.abs(accuracy - true).mean()
    screen.print(f"{inside} of the {len(true)} intervals hold the annotator's real accuracy;")
    screen.print(f"the estimates are off by {off:.3f} on average.")
    screen.print()
    unseen = len(crowd.features["y_test"])
    screen.print(f"Learning classifiers from the pixels and the votes, to read {unseen} unlabelled digits ...")
    try:
        screen.print(learner_table(runs.compare_learners(crowd)))
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
    table = show.new_table("learner", *names, title="Learners, on unlabelled digits")
    for row in rows:
        table.add_row(row.name, f"{row.unseen:.3f}", f"{row.labelled:.3f}", f"{row.seconds:.1f}")
    return table


ScenarioArgument = Annotated[
    str | None, typer.Argument(help="The scenario; leave it out to list them.", show_default=False)
]
CrowdOption = Annotated[
    Path | None, option("--out", "-o", help="The folder to write: labels.csv, truth.csv, parameters.npz, meta.json.")
]
FilesOption = Annotated[
    int | None,
    option(
        "--items-per-file",
        help="Write Parquet files with so many items each, for crowds larger than memory: votes/part-*.parquet and "
        "truth/part-*.parquet in --out.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    option(
        "--set", help="A parameter of the scenario, as name=value; repeat for more. `crowdwise simulate` lists them."
    ),
]


def simulate(
    scenario: ScenarioArgument = None, out: CrowdOption = None, set_: SetOption = None, seed: FixedSeedOption = 0,
    items_per_file: FilesOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Make a crowd with known truth and known annotators.

    Examples:

    `crowdwise simulate one-coin --out crowd --set n_items=1000 --set n_classes=3 --seed 7`

    `crowdwise simulate dirichlet --out large --set n_items=20000000 --set votes_per_item=5 --items-per-file 1000000`
    """
    scenarios = registry.scenarios()
    if scenario is None:
        show.show_scenarios(scenarios)
        return
    if scenario not in scenarios:
        close = suggestion(scenario, list(scenarios))
        raise ParameterError(f"Unknown scenario {scenario!r}: there are {', '.join(scenarios)}.{close}")
    if out is None:
        raise ParameterError("Say where to write the crowd: --out DIR.")
    params = assignments(set_)
    answer_type, make = scenarios[scenario]
    check_arguments(scenario, make, params)
    if items_per_file is not None:
        _write_large(scenario, out, params, seed, items_per_file, as_json)
        return
    crowd = make(**params, random_state=seed)
    crowd.save(out)
    if as_json:
        table = crowd.answers
        counts = {"items": len(table), "annotators": table.n_annotators}
        if table.answer_type == registry.VOTES:
            counts |= {"classes": table.n_classes, "votes": table.n_votes}
        else:
            counts |= {"answers": table.n_answers}
        emit(json.dumps({"scenario": scenario, "answer_type": answer_type, **counts, "out": str(out)}))
    else:
        say(f"{crowd.answers} written to {out}")


def _write_large(
    scenario: str, out: Path, params: dict[str, Any], seed: int, items_per_file: int, as_json: bool
) -> None:
    """A crowd in files, with a bar."""
    from crowdwise.core.progress_bar import drawn_bar
    from crowdwise.simulate import write_large

    n_items = params.pop("n_items", 1000)
    with drawn_bar(show.console(), scenario, "{task.completed} of {task.total} files", show.PATIENCE) as update:

        def progress(done: int, files: int) -> None:
            update(completed=done, total=files)

        votes = write_large(
            scenario, out, n_items, items_per_file=items_per_file, random_state=seed, progress=progress, **params
        )
    if as_json:
        emit(json.dumps({"scenario": scenario, "items": n_items, "votes": votes, "out": str(out)}))
    else:
        say(f"{votes:,} votes on {n_items:,} items written to {out}")


def check_arguments(name: str, function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Unknown or missing arguments of a scenario, before it runs."""
    parameters = {p: v for p, v in inspect.signature(function).parameters.items() if p != "random_state"}
    for argument in given:
        if argument not in parameters:
            close = suggestion(argument, list(parameters))
            raise ParameterError(f"{name} has no parameter {argument!r}: it has {', '.join(parameters)}.{close}")
    missing = [p for p, v in parameters.items() if v.default is inspect.Parameter.empty and p not in given]
    if missing:
        raise ParameterError(f"{name} needs {', '.join(missing)}: give --set {missing[0]}=...")


DataOption = Annotated[Path | None, option("--data", help="A folder of dataset folders. [default: CROWDWISE_DATA]")]
SeedsOption = Annotated[int, typer.Option("--seeds", min=1, help="Seeds to average over.")]
SetsOption = Annotated[
    str | None, option("--sets", help="Which data sets, comma-separated; digits needs no folder. [default: all]")
]
MethodsOption = Annotated[
    str | None, option("--methods", help="Which methods and learners, comma-separated. [default: all for votes alone]")
]
OutOption = Annotated[
    Path | None,
    option(
        "--out", "-o", help="Write the table here: .csv, .xlsx, .jsonl or .parquet; or all facts of the run: .json."
    ),
]


def bench(
    data: DataOption = None, sets: SetsOption = None, methods: MethodsOption = None, seeds: SeedsOption = 1,
    out: OutOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Measure methods on data sets whose truth is known: accuracy, log loss, seconds.

    A data set is a folder with votes (labels.csv) and truth (truth.csv). Methods see the votes alone, learners the
    inputs as well, with their defaults; the truth only measures, ties split. Nothing is tuned. Learners also have their
    accuracy on test items, where a data set has some.

    Examples:

    `crowdwise bench --data FOLDER`

    `crowdwise bench --sets digits --methods majority,auto,two-stage`
    """
    from crowdwise.bench import runs

    check_outputs(out, endings=(*TABLES, ".json"))
    keys = [
        registry.find(key, inputs=key in registry.LEARNERS).key for key in words_in(methods) or registry.for_votes()
    ]
    wanted = words_in(sets)
    folder = Path() if wanted == [runs.DIGITS] else data or runs.data_folder()
    names = runs.find_sets(folder, wanted)
    with show.steps(len(names) * len(keys)) as progress:
        facts = runs.measure_all(folder, names, keys, seeds=seeds, progress=progress)
    if out is not None and out.suffix.lower() == ".json":
        write_text(json.dumps(facts, indent=1) + "\n", out)
    elif out is not None:
        write_table(pl.DataFrame(facts["cells"]), out)
    if as_json:
        emit(json.dumps(facts))
    else:
        show.show_bench(names, keys, [runs.Cell(**cell) for cell in facts["cells"]])
