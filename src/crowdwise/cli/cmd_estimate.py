"""``crowdwise estimate``: shares, means, differences and coefficients of all items, from a few gold labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from crowdwise.cli import options as opt
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, say, write_table

GoldOption = Annotated[
    Path | None, option("--gold", help="Known truth of items that were drawn at random. The method does not see it.")
]
WhatOption = Annotated[
    Literal["share", "mean", "difference", "ols", "logistic"],
    typer.Option("--of", help="share, mean, difference (between groups), ols or logistic."),
]
ByOption = Annotated[
    str | None, option("--by", metavar="COLUMN", help="Groups of items, such as systems: a column of the file.")
]
PositiveOption = Annotated[
    str | None, option("--class", help="The class to look at, such as pass. [default: all; of two, the second]")
]
ProbabilityOption = Annotated[
    str | None,
    option("--probability", metavar="COLUMN", help="The column of --gold with the probability of being drawn."),
]
CovariateOption = Annotated[
    list[str] | None, option("--covariate", metavar="COLUMN", help="For ols and logistic; repeat for more.")
]
RatesOption = Annotated[
    Path | None,
    option("--error-rates", help="Instead of gold: a table of truth, label and count, measured elsewhere."),
]
BeyondOption = Annotated[
    bool, typer.Option("--beyond", help="For the population that these items were drawn from, not for them alone.")
]
FoldsOption = Annotated[
    int | None, option("--folds", min=2, help="Fit with gold in folds: each label corrects a fit without it.")
]
LevelOption = Annotated[float, typer.Option("--level", help="The level of the confidence intervals.")]
OutOption = Annotated[
    Path | None, option("--out", "-o", help="Write the figures here: .csv, .xlsx, .jsonl or .parquet.")
]
BASIS = {
    "gold": "By {n:,} random gold labels: the intervals hold whatever the annotators' bias.",
    "error rates": "By error rates measured elsewhere: the intervals hold where these labels have them, too.",
    "model": "By the model alone.",
}


@opt.reads
def estimate(
    path: opt.PathArgument, gold: GoldOption = None, of: WhatOption = "share", by: ByOption = None,
    positive: PositiveOption = None, probability: ProbabilityOption = None, covariate: CovariateOption = None,
    error_rates: RatesOption = None, beyond: BeyondOption = False, folds: FoldsOption = None,
    level: LevelOption = 0.95, method: opt.MethodOption = None, set_: opt.SetOption = None,
    reading: opt.Reading = opt.DEFAULT_READING, seed: opt.SeedOption = None, out: OutOption = None,
    as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Estimate shares, means and differences of all items from a few gold labels.

    Such as the pass rate of each system that LLM judges looked at, with a hundred answers judged by people. Draw the
    items for --gold with `crowdwise certify --ask 100`. What judges get wrong on them is taken off (prediction-powered
    inference), so that the intervals hold whatever the judges' bias; they are never much wider than by gold alone.

    Examples:

    `crowdwise estimate verdicts.csv --gold sheet.csv --by system --class pass`

    `crowdwise estimate scores.csv --gold sheet.csv --of difference --by system --answers ratings`
    """
    from dataclasses import replace

    from crowdwise import api
    from crowdwise.cli.show import console, frame_table, progress
    from crowdwise.errors import ParameterError
    from crowdwise.item_inputs import column_of

    check_outputs(out)
    check_apart([path, gold, error_rates], [out])
    if probability is not None and gold is None:
        raise ParameterError("--probability is a column of --gold: give that file, too.")
    if of == "mean" and reading.answers is None:
        reading = replace(reading, answers="ratings")
    opened = opt.opened(path, reading, method)
    table = opened.answers.table
    with progress(method or ""):
        found = api.estimate(
            opened, of, gold=None if gold is None else opt.drawn_gold(table, gold), by=by, folds=folds,
            positive=_class(table, positive), covariates=covariate, beyond=beyond, level=level,
            probability=None if probability is None or gold is None else column_of(gold, probability, numbers=True),
            error_rates=None if error_rates is None else _counts(table, error_rates), **opt.assignments(set_, seed),
        )  # fmt: skip
    frame = found.to_frame(kind="polars").fill_nan(None)
    if out is not None:
        write_table(frame, out)
    if as_json:
        facts = {"what": of, "basis": found.basis, "level": level, "beyond": found.beyond, "notes": found.notes}
        emit(json.dumps(facts | {"estimates": frame.to_dicts()}))
        return
    named = [name for name in ("group", "other", "class", "covariate") if name in frame.columns]
    ends = {"gold": ("low", "high", "gold_low", "gold_high", "model"), "error rates": ("low", "high"), "model": ()}
    shown = frame.select([*named, "estimate", *ends[found.basis]])
    titles = {"gold_low": "by gold alone", "gold_high": "to"}
    console(stderr=False).print(frame_table("", shown.rename(titles, strict=False), 200))
    say(BASIS[found.basis].format(n=found.n_gold))
    for note in found.notes:
        say(note)
    if out:
        say(f"written: {out}")


def _class(table: Any, name: str | None) -> Any:
    """The class of that name, which may be a number."""
    return next((c for c in getattr(table, "classes", np.empty(0)).tolist() if str(c) == name), name)


def _counts(table: Any, path: Path) -> Any:
    """K x K counts from a table with columns truth, label and count."""
    from crowdwise.data.files import TableFile
    from crowdwise.errors import ColumnError, listing

    rows = TableFile.of(path).read()[0]
    if lost := [name for name in ("truth", "label", "count") if name not in rows.columns]:
        raise ColumnError(f"{path} has no column {lost[0]!r}: expected truth, label and count, a row for each pair.")
    place = {str(c): k for k, c in enumerate(table.classes.tolist())}
    out = np.zeros((len(place), len(place)))
    for truth, label, count in rows.select("truth", "label", "count").iter_rows():
        if str(truth) not in place or str(label) not in place:
            raise ColumnError(f"{path} names {truth!r} and {label!r}: the classes are {listing(table.classes)}.")
        out[place[str(truth)], place[str(label)]] += float(count)
    return out
