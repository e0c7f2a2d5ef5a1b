"""The commands ``bench labels``, ``bench learners`` and ``bench papers``: measure methods where the truth is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import JsonOption, option, words_in
from crowdwise.cli.outputs import TABLES, check_outputs, emit, write_table
from crowdwise.data.folders import write_text
from crowdwise.errors import ParameterError

bench = typer.Typer(help="Measure methods on data sets whose truth is known.", no_args_is_help=True)

DataOption = Annotated[Path | None, option("--data", help="A folder of dataset folders. [default: CROWDWISE_DATA]")]
SeedsOption = Annotated[int, typer.Option("--seeds", min=1, help="Seeds to average over.")]
PageOption = Annotated[Path | None, option("--page", help="Write a page with all tables here: .md (Markdown).")]
EarlierOption = Annotated[Path | None, option("--from", help="Measure nothing: take the .json of an earlier run.")]
PUBLISHED = "Figures of others to set beside, for the page: a CSV of {}, source, reason."
SETS = (
    "Which, comma-separated: folders with inputs or texts to test on, and digits. [default: labelme, music_genre, "
    "sentiment_polarity where there are any, digits]"
)
LEARNERS = "Which learners, comma-separated; two-stage:KEY aggregates with that method. [default: all]"
OUT = "Write the table here: .csv, .jsonl or .parquet; or all facts of the run: .json."
SetsOption = Annotated[str | None, option("--sets", help="Which of them, comma-separated; else all.")]
MethodsOption = Annotated[str | None, option("--methods", help="Which methods, comma-separated; else all.")]
OutOption = Annotated[Path | None, option("--out", "-o", help=OUT)]
PublishedOption = Annotated[Path | None, option("--published", help=PUBLISHED.format("data, method, accuracy"))]


@bench.command("labels")
def bench_labels(
    data: DataOption = None, sets: SetsOption = None, methods_: MethodsOption = None, seeds: SeedsOption = 1,
    out: OutOption = None, page: PageOption = None, published: PublishedOption = None, earlier: EarlierOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Every label-only method on every data set: accuracy (ties split), log loss, seconds.

    Methods see the votes alone; the truth only measures. Nothing is tuned.
    """
    from crowdwise.bench import label_methods as runner
    from crowdwise.bench import tables
    from crowdwise.cli import show, show_bench

    check_outputs(out, endings=(*TABLES, ".json"))
    check_page(page, published)
    figures = [] if published is None else tables.read_published(published)
    if earlier is not None:
        if any((data, sets, methods_)) or seeds != 1:
            raise ParameterError("--from takes an earlier run as it is: leave out --data, --sets, --methods, --seeds.")
        facts = tables.read_facts(earlier, "labels")
    else:
        folder = data or tables.data_folder()
        keys = [registry.find(key).key for key in words_in(methods_) or registry.METHODS]
        names = runner.find_sets(folder, words_in(sets))
        with show.steps(len(names) * len(keys)) as progress:
            facts = runner.measure_all(folder, names, keys, seeds=seeds, progress=progress)
    write_facts(facts, out, page, None if page is None else runner.page(facts, figures), as_json)
    if not as_json:
        show_bench.show_bench(facts["data"], facts["methods"], [runner.Cell(**cell) for cell in facts["cells"]])


LearnersSetsOption = Annotated[str | None, option("--sets", help=SETS)]
LearnersMethodsOption = Annotated[str | None, option("--methods", help=LEARNERS)]
JobsOption = Annotated[int, typer.Option("--jobs", min=1, help="Processes, each with one thread.")]
EpochsOption = Annotated[int | None, option("--epochs", min=1, help="Only so many epochs, to try it out.")]
LearnersOutOption = Annotated[Path | None, option("--out", "-o", help="Write all facts of the run here: .json.")]
LearnersPublishedOption = Annotated[Path | None, option("--published", help=PUBLISHED.format("method, data, value"))]


@bench.command("learners")
def bench_learners(
    data: DataOption = None, sets: LearnersSetsOption = None, methods_: LearnersMethodsOption = None,
    seeds: SeedsOption = 5, jobs: JobsOption = 2, epochs: EpochsOption = None, out: LearnersOutOption = None,
    page: PageOption = None, published: LearnersPublishedOption = None, earlier: EarlierOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Every learner on data sets with clean test items: accuracy of the last epoch and of the one held-out votes chose.

    Defaults everywhere; the truth only measures, and no epoch is chosen by it.
    """
    from crowdwise.bench import learner_page as pages
    from crowdwise.bench import learner_runs as runner
    from crowdwise.bench import tables
    from crowdwise.cli import show, show_bench

    check_outputs(out, endings=(".json",))
    check_page(page, published)
    figures = [] if published is None else tables.read_published(published, "value")
    if earlier is not None:
        if any((data, sets, methods_, epochs)) or (seeds, jobs) != (5, 2):
            raise ParameterError(
                "--from takes an earlier run as it is: leave out --data, --sets, --methods, --seeds, --jobs, --epochs."
            )
        facts = tables.read_facts(earlier, "learners")
    else:
        plan = runner.plan(data, words_in(sets), words_in(methods_), seeds=seeds, epochs=epochs)
        with show.steps(len(plan.runs)) as progress:
            facts = runner.measure_all(plan, jobs=jobs, progress=progress)
    write_facts(facts, out, page, None if page is None else pages.page(facts, figures), as_json)
    if not as_json:
        show_bench.show_learner_bench(facts["data"], facts["methods"], runner.means(facts))


def check_page(page: Path | None, published: Path | None) -> None:
    """Before the work is done: can the page be written, and is there one for the figures of others?"""
    check_outputs(page, endings=(".md",))
    if published is not None and page is None:
        raise ParameterError("--published has figures for the page: say where it goes, --page results.md.")


def write_facts(facts: dict[str, Any], out: Path | None, page: Path | None, text: str | None, as_json: bool) -> None:
    """The facts of a run (or the table of its cells), the page about them, and the JSON, where they were asked for."""
    import polars as pl

    if out is not None and out.suffix.lower() == ".json":
        write_text(json.dumps(facts, indent=1) + "\n", out)
    elif out is not None:
        write_table(pl.DataFrame(facts["cells"]), out)
    if page is not None and text is not None:
        write_text(text, page)
    if as_json:
        emit(json.dumps(facts))


PlanArgument = Annotated[Path, typer.Argument(help="The plan: a TOML file of tables, crowds, learners and settings.")]
PapersOutOption = Annotated[
    Path, typer.Option("--out", "-o", help="The file of results, a line for each finished cell: .jsonl.")
]
ImagesOption = Annotated[Path | None, option("--images", help="The folder of CIFAR-10. [default: CROWDWISE_IMAGES]")]
OnlyOption = Annotated[str | None, option("--only", help="Patterns of table/crowd/learner/seed, the first first.")]
PapersSeedsOption = Annotated[str | None, option("--seeds", help="Which seeds, comma-separated; else all.")]
PapersJobsOption = Annotated[int, typer.Option("--jobs", min=1, help="Processes that share the device.")]
MinutesOption = Annotated[float | None, option("--minutes", min=0, help="Stop after so many minutes.")]
WorkOption = Annotated[Path | None, option("--work", help="The folder of checkpoints. [default: beside the results]")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cuda, cpu...")]
ChangesOption = Annotated[
    list[str] | None, option("--set", help="Another setting for all cells, KEY=VALUE as in the plan.")
]
ShowOnlyOption = Annotated[bool, typer.Option("--show", help="Train nothing: show what there is.")]


@bench.command("papers")
def bench_papers(
    plan: PlanArgument, out: PapersOutOption, images: ImagesOption = None, data: DataOption = None,
    only: OnlyOption = None, seeds: PapersSeedsOption = None, jobs: PapersJobsOption = 1,
    minutes: MinutesOption = None, work: WorkOption = None, device: DeviceOption = "auto",
    changes: ChangesOption = None, page: PageOption = None, show_only: ShowOnlyOption = False,
) -> None:  # fmt: skip
    """The tables of the papers: networks trained on CIFAR-10 with simulated experts and with people's votes.

    What the file of results lacks is trained and appended; a run that was cut off continues from its checkpoints.
    Figures of the page are drawn beside it.
    """
    import os
    import time

    from crowdwise.bench import papers_page, papers_plan, papers_runs
    from crowdwise.bench.papers_data import images_folder
    from crowdwise.cli import show_bench

    check_outputs(out, endings=(".jsonl",))
    check_page(page, None)
    tables = papers_plan.read_plan(plan, changes or ())
    wanted = [int(word) for word in words_in(seeds) or []] or None
    cells = papers_plan.chosen(tables, words_in(only), wanted)
    if not show_only:
        deadline = None if minutes is None else time.time() + 60.0 * minutes
        named = os.environ.get("CROWDWISE_DATA")
        folder = data or (Path(named) if named else None)
        setup = papers_runs.Setup(
            images or images_folder(), folder, work or out.with_suffix(".work"), deadline, device
        )  # fmt: skip
        with show_bench.cells_done(cells, papers_runs.finished(out)) as progress:
            papers_runs.run(cells, setup, out, jobs=jobs, progress=progress)
    found = papers_runs.finished(out)
    if page is not None:
        write_text(papers_page.page(tables, found), page)
        for name, svg in papers_page.figures(tables, found).items():
            write_text(svg, page.with_name(name))
    emit(papers_page.text(tables, found))
