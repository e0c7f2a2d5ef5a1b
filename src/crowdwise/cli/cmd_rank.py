"""``crowdwise rank``: a leaderboard from a file of comparisons or of rankings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import (
    AnnotatorOption,
    AnnotatorsOption,
    JsonOption,
    MissingOption,
    OnMissing,
    SeedOption,
    SetOption,
    assignments,
    check_apart,
    check_outputs,
    check_save,
    emit,
    write_table,
)
from crowdwise.errors import ColumnError


def rank(
    path: Annotated[
        Path,
        typer.Argument(
            help="A file of comparisons: two items and the better one on each line (or chosen and rejected). Or of "
            "rankings: item and rank.",
            show_default=False,
        ),
    ],
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            show_default=False,
            help="crowd-bt (default), bradley-terry (default for one annotator), position-bt, mixture-bt; for "
            "rankings plackett-luce.",
        ),
    ] = None,
    set_: SetOption = None,
    left: Annotated[
        str | None,
        typer.Option("--left", help="The column of one item (left, item_a, model_a...).", show_default=False),
    ] = None,
    right: Annotated[
        str | None, typer.Option("--right", help="The column of the other (right, item_b...).", show_default=False)
    ] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="The column of the better one (winner...).", show_default=False)
    ] = None,
    annotator: AnnotatorOption = None,
    question: Annotated[
        str | None,
        typer.Option("--question", help="The column of what they were compared on (prompt...).", show_default=False),
    ] = None,
    on_missing: MissingOption = OnMissing.error,
    seed: SeedOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the leaderboard here: .csv, .jsonl or .parquet.", show_default=False),
    ] = None,
    annotators: AnnotatorsOption = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Keep the whole ranking in this folder.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn comparisons into a leaderboard: scores, ranks, and how sure they are.

    Without --out, and with standard output sent to a file or a pipe, the leaderboard goes there as CSV.

    Examples:

    `crowdwise rank battles.csv --out leaderboard.csv`

    `crowdwise rank judgments.jsonl --method position-bt --left model_a --right model_b --outcome verdict --json`
    """
    from crowdwise.cli import show, show_rank

    check_outputs(out, annotators)
    check_apart([path], [out, annotators])
    check_save(save)
    params = assignments(set_)
    if seed is not None:
        params["random_state"] = seed
    table = _read(path, left, right, outcome, annotator, question, on_missing)
    key = method or registry.default_method(table.answer_type, table.n_annotators)
    model = registry.create(key, table.answer_type, **params)
    with show.progress(key) as callback:
        ranking = model.fit(table, callback=callback).consensus_
    if out is not None:
        write_table(ranking.to_frame("leaderboard", kind="polars"), out)
    if annotators is not None:
        write_table(ranking.to_frame("annotators", kind="polars"), annotators)
    if save is not None:
        ranking.save(save)
    if as_json:
        emit(json.dumps(show_rank.facts(ranking)))
        return
    if out is None and not sys.stdout.isatty():
        emit(ranking.to_frame("leaderboard", kind="polars").write_csv(), end="")
    show_rank.show_ranking(ranking, [p for p in (out, annotators, save) if p is not None])


def _read(
    path: Path, left: str | None, right: str | None, outcome: str | None, annotator: str | None, question: str | None,
    on_missing: OnMissing,
) -> Any:  # fmt: skip
    """Comparisons, or rankings where the columns are those of rankings."""
    from crowdwise.data.comparisons import read_comparisons
    from crowdwise.data.rankings import read_rankings

    try:
        return read_comparisons(
            path, left=left, right=right, outcome=outcome, annotator=annotator, question=question,
            on_missing=on_missing.value,
        )  # fmt: skip
    except ColumnError as error:
        if left or right or outcome:
            raise
        try:
            return read_rankings(path, annotator=annotator, question=question, on_missing=on_missing.value)
        except ColumnError:
            raise error from None
