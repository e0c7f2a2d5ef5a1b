"""The commands about learners: parse, call, print. :mod:`crowdwise.cli` puts them beside the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli_parts import (
    AnnotatorOption,
    ClassesOption,
    DuplicateOption,
    Form,
    FormOption,
    ItemOption,
    JsonOption,
    LabelOption,
    MissingOption,
    OnDuplicate,
    OnMissing,
    PathArgument,
    SeedOption,
    SetOption,
    assignments,
    check_outputs,
    emit,
    load,
    say,
    write_table,
)
from crowdwise.core.folders import write_text
from crowdwise.errors import LabelError, OutputError, ParameterError

if TYPE_CHECKING:
    from crowdwise.data.datasets import Dataset

FEATURES = (
    "The inputs: .npz (x_train, named by id_train; or a single array), .npy, a table with an item column and "
    "numbers, or a folder of images named like the items."
)


def learn(
    path: PathArgument,
    features: Annotated[
        Path | None,
        typer.Option(
            "--features", help=f"{FEATURES} Not needed for a folder with a features.npz of its own.", show_default=False
        ),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", "-m", help="The method; `crowdwise methods --learners` lists them.")
    ] = registry.DEFAULT_LEARNER,
    network: Annotated[
        str | None,
        typer.Option(
            "--network", help="The network: mlp, linear, cnn, resnet18, ... [default: mlp]", show_default=False
        ),
    ] = None,
    set_: SetOption = None,
    seed: SeedOption = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", help="How often training passes over the items.", show_default=False)
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            help="True classes to measure against (item and label columns). The method does not see them.",
            show_default=False,
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            "--gold", help="True classes the method may use. They are left out of the accuracy.", show_default=False
        ),
    ] = None,
    on_duplicate: DuplicateOption = OnDuplicate.error,
    on_missing: MissingOption = OnMissing.error,
    item: ItemOption = None,
    annotator: AnnotatorOption = None,
    label: LabelOption = None,
    classes: ClassesOption = None,
    form: FormOption = Form.auto,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Keep the classifier and the consensus in this folder.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Learn a classifier from inputs and votes.

    `crowdwise predict` then labels items that nobody has seen. Where the inputs come with x_test and y_test, the
    accuracy on these is shown; nothing is chosen by it.

    Examples:

    `crowdwise learn crowd --out model`

    `crowdwise learn labels.csv --features embeddings.parquet --method aggnet --set select=votes --json`
    """
    from crowdwise import terminal
    from crowdwise.data.readers import read_truth

    check_folder(out)
    params = assignments(set_)
    given = {"network": network, "epochs": epochs, "random_state": seed}
    learner = registry.create_learner(method, **params, **{n: v for n, v in given.items() if v is not None})
    data = load(path, item, annotator, label, classes, form, on_duplicate, on_missing)
    X, test = inputs_of(data, features, path)
    votes = data.votes if truth is None else data.votes.with_truth(read_truth(truth))
    known = None if gold is None else votes.encode_truth(read_truth(gold))
    with terminal.epochs(method) as callback:
        learner.fit(X, votes, known, callback=callback)
    measured = terminal.measure(learner.consensus_, votes.truth, known)
    tested = None if test is None else (learner.score(test[0], votes.classes[test[1]]), len(test[1]))
    if out is not None:
        learner.save(out)
    if as_json:
        emit(json.dumps(terminal.learned(learner, measured, tested)))
    else:
        terminal.show_learned(learner, measured, tested, out)


def predict(
    folder: Annotated[Path, typer.Argument(help="What `crowdwise learn --out` has kept.", show_default=False)],
    features: Annotated[
        Path,
        typer.Option(
            "--features",
            help=f"{FEATURES} Without --votes, x_test goes before x_train, and rows without names are numbered.",
            show_default=False,
        ),
    ],
    votes_file: Annotated[
        Path | None,
        typer.Option(
            "--votes", help="Votes on the same items, to be looked at together with the inputs.", show_default=False
        ),
    ] = None,
    on_duplicate: DuplicateOption = OnDuplicate.error,
    on_missing: MissingOption = OnMissing.error,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the labels here: .csv, .jsonl or .parquet.", show_default=False),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of every class to the labels.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Label items with a classifier that was learned, from their inputs or from inputs and votes.

    Without --out, and with standard output sent to a file or a pipe, the labels go there as CSV.

    Example: `crowdwise predict model --features new.npz --out labels.csv`
    """
    from crowdwise import terminal
    from crowdwise.data.features import class_codes, read_features
    from crowdwise.data.frames import make_frame
    from crowdwise.deep.classifier import load_learner

    check_outputs(out)
    learner = load_learner(folder)
    found = read_features(features)
    votes, tested = None, None
    if votes_file is None:
        names, X, truth = found.unseen()
    else:
        votes = load(votes_file, None, None, None, None, Form.auto, on_duplicate, on_missing).votes
        names, X, truth = votes.items, found.rows_of(votes.items), None
    q = learner.predict_proba(X, votes)
    if truth is not None:
        try:
            tested = (learner.score(X, learner.classes_[class_codes(truth, learner.classes_)]), len(names))
        except LabelError as error:  # labels can be given all the same
            say(f"Note: {error}")
    table = make_frame(terminal.predictions(names, learner.classes_, q, probabilities), "polars")
    if out is not None:
        write_table(table, out)
    if as_json:
        emit(json.dumps(terminal.predicted(learner, votes, len(names), tested)))
        return
    if out is None and not sys.stdout.isatty():
        emit(table.write_csv(), end="")
    terminal.show_predicted(learner, table, tested, out)


def inputs_of(data: Dataset, features: Path | None, path: Path) -> tuple[Any, tuple[Any, Any] | None]:
    """Inputs in the order of the votes' items, and those to test on where there are any."""
    from crowdwise.data.features import class_codes, read_features

    if features is None:
        if not path.is_dir():
            raise ParameterError(f"{path} holds votes alone: say where the inputs are, --features FILE.")
        return data.inputs, data.test
    found = read_features(features)
    X = found.rows_of(data.votes.items)
    if found.x_test is None or found.y_test is None:
        return X, None
    return X, (found.x_test, class_codes(found.y_test, data.votes.classes, data.legend))


def check_folder(out: Path | None) -> None:
    """Before the work is done: can a learner be kept there?"""
    if out is not None and out.exists():
        kept = out.is_dir() and (not any(out.iterdir()) or (out / "learner.json").is_file())
        if not kept:
            raise OutputError(f"{out} exists and holds something else than a saved learner. Choose another folder.")


# -------------------------------------------------------------------- measuring them all


def bench_learners(
    data: Annotated[
        Path | None,
        typer.Option("--data", help="A folder of dataset folders. [default: CROWDWISE_DATA]", show_default=False),
    ] = None,
    sets: Annotated[
        str | None,
        typer.Option(
            "--sets",
            help="Which, comma-separated: folders with inputs or texts to test on, and digits. [default: labelme, "
            "music_genre, sentiment_polarity where there are any, digits]",
            show_default=False,
        ),
    ] = None,
    methods_: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="Which learners, comma-separated; two-stage:KEY aggregates with that method. [default: all]",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds to average over.")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes, each with one thread.")] = 2,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", min=1, help="Only so many epochs, to try it out.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write all facts of the run here: .json.", show_default=False),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Write a page with all tables here: .md (Markdown).", show_default=False),
    ] = None,
    published: Annotated[
        Path | None,
        typer.Option(
            "--published",
            help="Figures of others to set beside, for the page: a CSV of method, data, value, source, reason.",
            show_default=False,
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option("--from", help="Measure nothing: take the .json of an earlier run.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Every learner on data sets with clean test items: accuracy of the last epoch and of the one held-out votes chose.

    Defaults everywhere; the truth only measures, and no epoch is chosen by it.
    """
    from crowdwise import bench_learners as runner
    from crowdwise import bench_learners_page as pages
    from crowdwise import terminal

    check_outputs(out, endings=(".json",))
    check_outputs(page, endings=(".md",))
    if published is not None and page is None:
        raise ParameterError("--published has figures for the page: say where it goes, --page results.md.")
    figures = [] if published is None else pages.read_published(published)
    if earlier is not None:
        if any((data, sets, methods_, epochs)) or (seeds, jobs) != (5, 2):
            raise ParameterError(
                "--from takes an earlier run as it is: leave out --data, --sets, --methods, --seeds, --jobs, --epochs."
            )
        facts = runner.read_facts(earlier)
    else:
        chosen = [name.strip() for name in sets.split(",")] if sets else None
        keys = [key.strip() for key in methods_.split(",")] if methods_ else None
        plan = runner.plan(data, chosen, keys, seeds=seeds, epochs=epochs)
        with terminal.steps(len(plan.runs)) as told:
            facts = runner.measure_all(plan, jobs=jobs, told=told)
    if out is not None:
        write_text(json.dumps(facts, indent=1) + "\n", out)
    if page is not None:
        write_text(pages.page(facts, figures), page)
    if as_json:
        emit(json.dumps(facts))
    else:
        terminal.show_learner_bench(facts["data"], facts["methods"], runner.means(facts))
