"""``crowdwise aggregate`` and ``crowdwise rank``: from a file of answers to labels, values, clusters, a leaderboard."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli import options as opt
from crowdwise.cli.cmd_report import write_page
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, write_results
from crowdwise.data.comparisons import OnSelf
from crowdwise.data.folders import check_target
from crowdwise.errors import ColumnError, ParameterError

GraphOption = Annotated[
    Path | None,
    option("--graph", help="Which items are linked (a table with the columns source and target), for graph-crowd."),
]
ReportOption = Annotated[
    Path | None,
    option("--report", help="Write a page about answers, annotators and results here: .html; see `crowdwise report`."),
]


@opt.reads
def aggregate(
    path: opt.PathArgument, method: opt.MethodOption = None, truth: opt.TruthOption = None, gold: opt.GoldOption = None,
    set_: opt.SetOption = None, reading: opt.Reading = opt.AS_USUAL, graph: GraphOption = None,
    seed: opt.SeedOption = None, out: opt.LabelsOption = None, probabilities: opt.ProbabilitiesOption = False,
    annotators: opt.AnnotatorsOption = None, save: opt.SaveOption = None, report: ReportOption = None,
    as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Turn votes into one label per item, with probabilities.

    Reads a table with an item, an annotator and a label column, estimates how reliable each annotator is, and writes
    the consensus. Without --out, and with standard output sent to a file or a pipe, the labels go there as CSV.

    Other answer types (ratings, comparisons, label sets...) are recognised by their columns; --answers names the type.

    Examples:

    `crowdwise aggregate labels.csv --out consensus.csv --annotators people.csv`

    `crowdwise aggregate labels.csv --method dawid-skene --set prior=crowd --truth truth.csv --json`

    `crowdwise aggregate pairs.csv --answers similarities --out clusters.csv`
    """
    from crowdwise.cli import show_aggregate

    check_outputs(out, annotators)
    check_outputs(report, endings=(".html",))
    check_apart([path, truth, gold, graph], [out, annotators, report])
    check_target(save, "consensus")
    if report is not None:
        from crowdwise.report.page import check_extra

        check_extra()
    found = opt.fitted(path, method, opt.assignments(set_, seed), reading, gold=gold, truth=truth, graph=graph)
    paths = write_results(items_of(found.result, probabilities), found.result, out, annotators, save, as_json)
    if report is not None:
        write_page(found, path, report)
        paths.append(report)
    if as_json:
        emit(json.dumps(show_aggregate.facts(found)))
    else:
        show_aggregate.show_fitted(found, paths)


def items_of(result: Any, probabilities: bool) -> Any:
    """The table of items; with the probability of every class where the result has them."""
    takes = "probabilities" in inspect.signature(result.to_frame).parameters
    if probabilities and not takes:
        raise ParameterError(f"--probabilities: a {type(result).__name__} has no classes. Leave it out.")
    return result.to_frame("items", kind="polars", **({"probabilities": True} if probabilities else {}))


PathArgument = Annotated[
    Path,
    typer.Argument(
        help="A file of comparisons: two items and the better one on each line (or chosen and rejected). Or of "
        "rankings: item and rank.",
        show_default=False,
    ),
]
MethodOption = Annotated[
    str | None,
    option(
        "--method",
        "-m",
        help="crowd-bt (default), bradley-terry (default for one annotator), position-bt, mixture-bt; for "
        "rankings plackett-luce.",
    ),
]
LeftOption = Annotated[str | None, option("--left", help="The column of one item (left, item_a, model_a...).")]
RightOption = Annotated[str | None, option("--right", help="The column of the other (right, item_b...).")]
OutcomeOption = Annotated[str | None, option("--outcome", help="The column of the better one (winner...).")]
QuestionOption = Annotated[
    str | None, option("--question", help="The column of what they were compared on (prompt...).")
]
OutcomesOption = Annotated[
    str | None, option("--outcomes", help="What the words for outcomes mean, such as 1=left,2=right,0=tie.")
]
SelfOption = Annotated[
    OnSelf, typer.Option("--on-self", help="Rows that compare an item with itself: stop, or leave them out.")
]
OutOption = Annotated[Path | None, option("--out", "-o", help="Write the leaderboard here: .csv, .jsonl or .parquet.")]


def rank(
    path: PathArgument, method: MethodOption = None, set_: opt.SetOption = None, left: LeftOption = None,
    right: RightOption = None, outcome: OutcomeOption = None, annotator: opt.AnnotatorOption = None,
    question: QuestionOption = None, outcomes: OutcomesOption = None, on_self: SelfOption = "error",
    on_missing: opt.MissingOption = "error", seed: opt.SeedOption = None,
    out: OutOption = None, annotators: opt.AnnotatorsOption = None, save: opt.SaveOption = None,
    as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Turn comparisons into a leaderboard: scores and ranks, with intervals.

    Without --out, and with standard output sent to a file or a pipe, the leaderboard goes there as CSV.

    Examples:

    `crowdwise rank battles.csv --out leaderboard.csv`

    `crowdwise rank verdicts.csv --outcomes 1=left,2=right,0=tie --on-self drop`

    `crowdwise rank judgments.jsonl --method position-bt --left model_a --right model_b --outcome verdict --json`
    """
    from crowdwise.cli import show_aggregate

    check_outputs(out, annotators)
    check_apart([path], [out, annotators])
    check_target(save, "consensus")
    given = {"left": left, "right": right, "outcome": outcome, "question": question, "outcomes": outcomes}
    given["on_self"] = None if on_self == "error" else on_self
    named = [f"{name}={value}" for name, value in given.items() if value is not None]
    reading = opt.Reading(annotator=annotator, column=named, on_missing=on_missing)
    params = opt.assignments(set_, seed)
    try:
        found = opt.fitted(
            path, method, params, reading, answers="rankings" if method == "plackett-luce" else "comparisons"
        )
    except ColumnError as error:
        if method is not None or named:
            raise
        try:
            found = opt.fitted(path, method, params, reading, answers="rankings")
        except ColumnError:
            raise error from None
    ranking = found.result
    board = ranking.to_frame("leaderboard", kind="polars")
    paths = write_results(board, ranking, out, annotators, save, as_json)
    if as_json:
        more = {"components": int(ranking.components.max()) + 1, "tie": ranking.tie}
        emit(json.dumps(show_aggregate.facts(found) | more | {"leaderboard": show_aggregate.board(ranking)}))
    else:
        show_aggregate.show_fitted(found, paths)
