"""The commands about learners: ``learn`` a classifier from inputs and votes, and ``predict`` with it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from crowdwise import registry
from crowdwise.cli import options as opt
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, say, write_results
from crowdwise.data.folders import check_target
from crowdwise.errors import LabelError, ParameterError

MethodOption = Annotated[
    str, typer.Option("--method", "-m", help="The method; `crowdwise methods --learners` lists them.")
]
NetworkOption = Annotated[
    str | None, option("--network", help="The network: mlp, linear, cnn, resnet18, ... [default: mlp]")
]
OutOption = Annotated[Path | None, option("--out", "-o", help="Save the classifier and the consensus in this folder.")]


@opt.reads
def learn(
    path: opt.PathArgument, features: opt.FeaturesOption = None, text: opt.TextOption = None,
    embed: opt.EmbedOption = None,
    method: MethodOption = registry.DEFAULT_LEARNER, network: NetworkOption = None, set_: opt.SetOption = None,
    seed: opt.SeedOption = None, epochs: opt.EpochsOption = None, device: opt.DeviceOption = None,
    truth: opt.TruthOption = None, gold: opt.GoldOption = None, reading: opt.Reading = opt.DEFAULT_READING,
    out: OutOption = None, verbose: opt.EpochLinesOption = False, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Learn a classifier from inputs and votes.

    `crowdwise predict` then labels items without votes. Inputs are those of --features, the texts of --text, or
    features.npz or images/ in a dataset folder. Where the inputs come with x_test and y_test, the
    accuracy on these is shown; nothing is chosen by it.

    Examples:

    `crowdwise learn crowd --out model`

    `crowdwise learn labels.csv --features embeddings.parquet --method aggnet --set select=votes --json`

    `crowdwise learn reviews.csv --text text --out model`

    `crowdwise learn reviews.csv --text text --embed all-MiniLM-L6-v2 --out model`

    On four GPUs: `torchrun --nproc-per-node 4 -m crowdwise learn crowd --network resnet18 --out model`
    """
    from crowdwise import api
    from crowdwise.cli import show, show_aggregate
    from crowdwise.item_inputs import texts_of
    from crowdwise.learners.devices import world

    first = world()[0] == 0  # the first of several processes says and writes what all have learned
    check_target(out, "learner")
    params = opt.assignments(set_, seed, network=network, epochs=epochs, device=device, embed=embed)
    registry.find(method, inputs=True)
    if embed is not None and text is None:
        raise ParameterError(opt.EMBED_WITHOUT_TEXT)
    opened = opt.opened(path, reading, method, votes_alone=True)
    inputs = features or True if text is None else texts_of(opened, text, features)
    display = partial(show.epochs, verbose=verbose) if first else lambda _: nullcontext()
    fitted = api.fit(opened, params=params, gold=gold, truth=truth, inputs=inputs, display=display)
    if not first:
        return
    if out is not None:
        fitted.model.save(out)
    if as_json:
        emit(json.dumps(show_aggregate.learned(fitted)))
    else:
        show_aggregate.show_learned(fitted, out)


FolderArgument = Annotated[Path, typer.Argument(help="What `crowdwise learn --out` has saved.", show_default=False)]
FeaturesOption = Annotated[
    Path,
    option(
        "--features",
        help=f"{opt.FEATURES} Without --votes, x_test goes before x_train, and rows without names are numbered.",
    ),
]
VotesFileOption = Annotated[
    Path | None, option("--votes", help="Votes on the same items, to be looked at together with the inputs.")
]
TextColumnOption = Annotated[
    str | None,
    option("--text", metavar="COLUMN", help="The column of texts, if it is not called as it was for `learn --text`."),
]


def predict(
    folder: FolderArgument, features: FeaturesOption, text: TextColumnOption = None,
    votes_file: VotesFileOption = None, truth_file: opt.TruthOption = None, device: opt.DeviceOption = None,
    on_duplicate: opt.DuplicateOption = "error", on_missing: opt.MissingOption = "error", out: opt.LabelsOption = None,
    probabilities: opt.ProbabilitiesOption = False, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Label items with a learned classifier, from inputs or from inputs and votes.

    Without --out, and with standard output sent to a file or a pipe, the labels go there as CSV.

    Examples:

    `crowdwise predict model --features new.npz --out labels.csv`

    `crowdwise predict model --features new.csv --truth truth.csv`
    """
    from crowdwise.cli import show_aggregate
    from crowdwise.data.alignment import Rows
    from crowdwise.data.features import class_codes, read_features, read_texts
    from crowdwise.data.frames import make_frame
    from crowdwise.data.truth import encode_classes
    from crowdwise.data.votes import read_truth
    from crowdwise.learners.classifier import load_learner

    check_outputs(out)
    check_apart([features, votes_file, truth_file], [out])
    learner = load_learner(folder, device=device or "auto")
    texts = hasattr(learner, "text_features_")
    if text is not None and not texts:
        raise ParameterError(f"{folder} was not learned from texts: leave --text out.")
    inputs = read_texts(features, text or learner.text_column_) if texts else read_features(features)
    votes, tested = None, None
    if votes_file is None:
        names, X, truth = inputs.unseen()
    else:
        votes = opt.load_votes(
            votes_file, opt.Reading(answers=registry.VOTES, on_duplicate=on_duplicate, on_missing=on_missing)
        ).votes
        names, X, truth = votes.items, inputs.rows_of(votes.items), None
    fitted, columns = getattr(learner, "feature_names_in_", None), inputs.columns
    if fitted is not None and columns is not None and sorted(columns) == sorted(fitted):  # a table may have any order
        X, columns = X[:, [list(columns).index(name) for name in fitted]], tuple(fitted)
    X = Rows(X, names, columns)
    q = learner.predict_proba(X, votes)
    if truth is not None:
        try:
            tested = (learner.score(X, learner.classes_[class_codes(truth, learner.classes_)]), len(names))
        except LabelError as error:  # labels can be given all the same
            say(f"Note: {error}")
    if truth_file is not None:
        known = encode_classes(read_truth(truth_file), names, learner.classes_, "predictions")
        right = (q.argmax(axis=1) == known)[known >= 0]
        tested = float(right.mean()), len(right)
    table = make_frame(show_aggregate.predictions(names, learner.classes_, q, probabilities), "polars")
    write_results(table, None, out, None, None, as_json)
    if as_json:
        emit(json.dumps(show_aggregate.predicted(learner, votes, len(names), tested)))
    else:
        show_aggregate.show_predicted(learner, table, tested, out)
