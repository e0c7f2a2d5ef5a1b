"""The commands about learners: parse, call, print. :mod:`crowdwise.cli.main` puts them beside the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import (
    AS_USUAL,
    FEATURES,
    DuplicateOption,
    EpochsOption,
    FeaturesOption,
    GoldOption,
    JsonOption,
    LabelsOption,
    MissingOption,
    OnDuplicate,
    OnMissing,
    PathArgument,
    ProbabilitiesOption,
    Reading,
    SeedOption,
    SetOption,
    assignments,
    check_apart,
    check_outputs,
    emit,
    load,
    reads,
    say,
    write_table,
)
from crowdwise.errors import LabelError, OutputError, ParameterError

if TYPE_CHECKING:
    from crowdwise.data.dataset import Dataset


@reads
def learn(
    path: PathArgument,
    features: FeaturesOption = None,
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
    epochs: EpochsOption = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            help="True classes to measure against (item and label columns). The method does not see them.",
            show_default=False,
        ),
    ] = None,
    gold: GoldOption = None,
    reading: Reading = AS_USUAL,
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
    from crowdwise.cli import show, show_learn
    from crowdwise.data.votes import read_truth

    check_folder(out)
    params = assignments(set_)
    given = {"network": network, "epochs": epochs, "random_state": seed}
    learner = registry.find(method, inputs=True).create(**params, **{n: v for n, v in given.items() if v is not None})
    data = load(path, reading)
    X, test = inputs_of(data, features, path)
    votes = data.votes if truth is None else data.votes.with_truth(read_truth(truth))
    known = None if gold is None else votes.encode_truth(read_truth(gold))
    with show.epochs(method) as callback:
        learner.fit(X, votes, known, callback=callback)
    measured = show.measure(learner.consensus_, votes.truth, known)
    tested = None if test is None else (learner.score(test[0], votes.classes[test[1]]), len(test[1]))
    if out is not None:
        learner.save(out)
    if as_json:
        emit(json.dumps(show_learn.learned(learner, measured, tested)))
    else:
        show_learn.show_learned(learner, measured, tested, out)


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
    out: LabelsOption = None,
    probabilities: ProbabilitiesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Label items with a classifier that was learned, from their inputs or from inputs and votes.

    Without --out, and with standard output sent to a file or a pipe, the labels go there as CSV.

    Example: `crowdwise predict model --features new.npz --out labels.csv`
    """
    from crowdwise.cli import show_learn
    from crowdwise.data.features import class_codes, read_features
    from crowdwise.data.frames import make_frame
    from crowdwise.learners.classifier import load_learner

    check_outputs(out)
    check_apart([features, votes_file], [out])
    learner = load_learner(folder)
    found = read_features(features)
    votes, tested = None, None
    if votes_file is None:
        names, X, truth = found.unseen()
    else:
        votes = load(votes_file, Reading(on_duplicate=on_duplicate, on_missing=on_missing)).votes
        names, X, truth = votes.items, found.rows_of(votes.items), None
    q = learner.predict_proba(X, votes)
    if truth is not None:
        try:
            tested = (learner.score(X, learner.classes_[class_codes(truth, learner.classes_)]), len(names))
        except LabelError as error:  # labels can be given all the same
            say(f"Note: {error}")
    table = make_frame(show_learn.predictions(names, learner.classes_, q, probabilities), "polars")
    if out is not None:
        write_table(table, out)
    if as_json:
        emit(json.dumps(show_learn.predicted(learner, votes, len(names), tested)))
        return
    if out is None and not sys.stdout.isatty():
        emit(table.write_csv(), end="")
    show_learn.show_predicted(learner, table, tested, out)


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
