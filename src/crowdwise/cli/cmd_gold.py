"""Gold labels: ``crowdwise certify`` (the labels that random ones vouch for), ``estimate`` (shares, means, differences
and coefficients of all items, from a few) and ``gold`` (what to label by hand)."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from crowdwise import registry
from crowdwise.cli import options as opt
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, emit_table, say, write_table
from crowdwise.errors import ColumnError, ParameterError, listing

GoldOption = Annotated[
    Path | None, option("--gold", help="Known truth of items that were drawn at random. The method does not see it.")
]
AskOption = Annotated[
    int | None, option("--ask", min=1, help="Draw so many items at random, and write the sheet to fill in.")
]
ErrorOption = Annotated[float, typer.Option("--max-error", help="The share of released labels that may be wrong.")]
ConfidenceOption = Annotated[float, typer.Option("--confidence", help="The probability that this holds.")]
ClassOption = Annotated[bool, typer.Option("--by-class", help="The promise holds for each class of labels.")]
MoreOption = Annotated[
    Path | None, option("--more", help="Gold labels of a second draw, which --ask with --gold made.")
]
LookOption = Annotated[
    int | None,
    option("--look", min=1, help="How often one has looked, with this time, where labels change or gold is added."),
]
SetsOption = Annotated[
    float | None, option("--sets", help="Also the classes that hold the true one with this probability, per item.")
]
OutOption = Annotated[Path | None, option("--out", "-o", help="Write the items here: .csv, .xlsx, .jsonl or .parquet.")]

ONE_ROW = {registry.VOTES: "label", "texts": "text"}
"""Answers whose truth is a row per item: each row of a sheet is needed."""


@opt.reads
def certify(
    path: opt.PathArgument, gold: GoldOption = None, more: MoreOption = None, ask: AskOption = None,
    max_error: ErrorOption = 0.05, confidence: ConfidenceOption = 0.95, by_class: ClassOption = False,
    sets: SetsOption = None, look: LookOption = None, method: opt.MethodOption = None,
    set_: opt.SetOption = None, reading: opt.Reading = opt.DEFAULT_READING, seed: opt.SeedOption = None,
    out: OutOption = None, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Release the labels that random gold labels prove: at most 5 % of them are wrong.

    Draw items at random with --ask, label them by hand, and give the sheet back as --gold. What is then proven holds
    for any crowd and any method. The other items are marked: send them to an expert, or label more. To get more out of
    as many gold labels, draw a third of them first: with --ask and --gold the others are drawn where they count.

    Examples:

    `crowdwise certify labels.csv --ask 100 --out sheet.csv`

    `crowdwise certify labels.csv --gold sheet.csv --max-error 0.05 --out released.csv`

    `crowdwise certify labels.csv --gold sheet.csv --ask 60 --out second.csv`

    `crowdwise certify labels.csv --gold sheet.csv --more second.csv`
    """
    from crowdwise.data.frames import make_frame
    from crowdwise.data.sheets import DRAWN
    from crowdwise.trust import certificate as certificates

    if (gold is None and (ask is None or more is not None)) or (ask is not None and more is not None):
        raise ParameterError("Give --ask 100 to draw items at random, or --gold FILE with their labels.")
    check_outputs(out)
    check_apart([path, gold, more], [out])
    fitted = opt.fitted(opt.opened(path, reading, method), opt.assignments(set_, seed))
    consensus, of_votes = fitted.result, fitted.answer_type == registry.VOTES
    answer = ONE_ROW.get(fitted.answer_type)
    if not of_votes and (more is not None or by_class or sets is not None or (ask is not None and gold is not None)):
        raise ParameterError(
            f"certify: --more, --by-class, --sets and --ask with --gold are for votes, and {path} has "
            f"{fitted.answer_type}."
        )
    first: Any = None
    if gold is not None:
        first = opt.drawn_gold(fitted.table, gold) if answer else type(fitted.table).read_truth(gold)
    if ask is not None:
        drawn = {} if seed is None else {"random_state": seed}
        items = certificates.draw_for_gold(
            consensus, ask, first=first, max_error=max_error, confidence=confidence, **drawn
        )
        columns = {answer: [""] * len(items), DRAWN: [len(items)] * len(items)} if answer else {}
        _write(make_frame({"item": items, **columns}, "polars"), out, as_json)
        hand_in = (
            "--gold" if first is None else f"--more, beside --gold {gold} and the same --max-error and --confidence"
        )
        say(
            f"{len(items):,} of {len(consensus.items):,} items, drawn at random. Fill in the labels, all of them, and "
            f"give the file as {hand_in}." + (f" Written to {out}." if out else "")
        )
        return
    assert first is not None
    known = first if more is None else first | opt.drawn_gold(fitted.table, more)
    certificate = certificates.certify(
        consensus, known, max_error, confidence, by="label" if by_class else None,
        first=None if more is None else first, look=look,
    )  # fmt: skip
    table = certificate.to_frame(kind="polars")
    if sets is not None:
        if more is not None:
            raise ParameterError("--sets: they need gold labels of one draw from all items, --gold without --more.")
        classes = consensus.sets(sets, gold=known, by_class=by_class)
        table = table.with_columns(classes.to_frame("polars").drop("item"))
    double = 2 * int(certificate.gold.sum())
    then = certificate.with_more(double)
    if as_json:
        facts: dict[str, Any] = {
            "released": int(certificate.released.sum()), "share": certificate.share,
            "gold": int(certificate.gold.sum()), "wrong": certificate.wrong, "wrong_rate": certificate.wrong_rate,
            "max_error": max_error, "confidence": confidence, "with_more": {"gold": double, "share": then},
        }  # fmt: skip
        emit(json.dumps(facts | {"items": table.to_dicts()} if out is None else facts))
        if out is not None:
            write_table(table, out)
        return
    _write(table, out, as_json)
    rate, low, high = certificate.wrong_rate
    say(f"{certificate.sentence}.")
    whole = f" ({100 * confidence:.6g}% interval {low:.1%} to {high:.1%})" if low == low else ""
    of = "All labels" if whole else "Gold items" if more is None else "Gold items of both draws"
    say(
        f"{of}: {rate:.1%} wrong on gold items{whole}. {int((~certificate.released).sum()):,} labels are left to check."
    )
    if sets is not None:
        say(
            f"Sets have {table['size'].mean():.2f} of {len(consensus.classes)} classes on average, and hold the true "
            f"one with probability {classes.coverage:.3f} at least."
        )
    if certificate.share < 1.0 and not by_class:
        say(f"{double:,} gold labels in all, these among them, would release about {then:.0%} (then give --look).")
    if out:
        say(f"written: {out}")
    sys.stdout.flush()


def _write(table: Any, out: Path | None, as_json: bool) -> None:
    if out is not None:
        write_table(table, out)
    elif as_json:
        emit(json.dumps(table.to_dicts()))
    else:
        emit_table(table)


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
FiguresOption = Annotated[
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
    reading: opt.Reading = opt.DEFAULT_READING, seed: opt.SeedOption = None, out: FiguresOption = None,
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
    from crowdwise import api
    from crowdwise.cli.show import console, frame_table, progress
    from crowdwise.item_inputs import column_of

    check_outputs(out)
    check_apart([path, gold, error_rates], [out])
    if probability is not None and gold is None:
        raise ParameterError("--probability is a column of --gold: give that file, too.")
    if of == "mean" and reading.answers is None:
        reading = replace(reading, answers="ratings")
    opened = opt.opened(path, reading, method)
    table = opened.answers.table
    classes = getattr(table, "classes", np.empty(0)).tolist()  # which may be numbers
    known = next((c for c in classes if str(c) == positive), positive)
    with progress(method or ""):
        estimates = api.estimate(
            opened, of, gold=None if gold is None else opt.drawn_gold(table, gold), by=by, folds=folds,
            positive=known, covariates=covariate, beyond=beyond, level=level,
            probability=None if probability is None or gold is None else column_of(gold, probability, numbers=True),
            error_rates=None if error_rates is None else _counts(table, error_rates), **opt.assignments(set_, seed),
        )  # fmt: skip
    frame = estimates.to_frame(kind="polars").fill_nan(None)
    if out is not None:
        write_table(frame, out)
    if as_json:
        facts = {
            "what": of,
            "basis": estimates.basis,
            "level": level,
            "beyond": estimates.beyond,
            "notes": estimates.notes,
        }
        emit(json.dumps(facts | {"estimates": frame.to_dicts()}))
        return
    named = [name for name in ("group", "other", "class", "covariate") if name in frame.columns]
    ends = {"gold": ("low", "high", "gold_low", "gold_high", "model"), "error rates": ("low", "high"), "model": ()}
    shown = frame.select([*named, "estimate", *ends[estimates.basis]])
    titles = {"gold_low": "by gold alone", "gold_high": "to"}
    console(stderr=False).print(frame_table("", shown.rename(titles, strict=False), 200))
    say(BASIS[estimates.basis].format(n=estimates.n_gold))
    for note in estimates.notes:
        say(note)
    if out:
        say(f"written: {out}")


def _counts(table: Any, path: Path) -> Any:
    """K x K counts from a table with columns truth, label and count."""
    from crowdwise.data.files import TableFile

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


ReviewOption = Annotated[int, typer.Option("--ask", min=1, help="How many items.")]


@opt.reads
def gold(
    path: opt.PathArgument, ask: ReviewOption = 50, method: opt.MethodOption = None, known: opt.GoldOption = None,
    set_: opt.SetOption = None, reading: opt.Reading = opt.DEFAULT_READING, seed: opt.SeedOption = None,
    out: OutOption = None, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Choose the items whose known answer would help most.

    Label them, and hand the answers to `crowdwise aggregate` as --gold: these items are then right, and the
    probabilities of all others are calibrated by them. Items are drawn at random, doubtful ones more often. Without
    --out they go to standard output as CSV; those that have gold labels already (--gold) are left out.

    Examples:

    `crowdwise gold labels.csv --ask 50 --out to_label.csv`

    `crowdwise gold labels.csv --ask 20 --gold known.csv --json`
    """
    from crowdwise.trust.item_review import ask_for_gold
    from crowdwise.trust.wording import counted

    check_outputs(out)
    check_apart([path, known], [out])
    fitted = opt.fitted(opt.opened(path, reading, method), opt.assignments(set_, seed), gold=known)
    if fitted.answer_type != registry.VOTES:
        raise ParameterError(f"gold: expected votes, and {path} has {fitted.answer_type}.")
    given: dict[str, Any] = {} if seed is None else {"random_state": seed}
    chosen = ask_for_gold(fitted.result, ask, **given)
    table = chosen.to_frame(kind="polars")
    if out is not None:
        write_table(table, out)
    if as_json:
        emit(json.dumps({"items": table.to_dicts(), "expected_wrong": chosen.expected_wrong}))
    elif out is None:
        emit_table(table)
    if not as_json:
        where = f" Written to {out}." if out is not None else ""
        asked, wrong = len(chosen.items), round(chosen.expected_wrong)
        say(
            f"{asked:,} of {counted(len(fitted.result.items), 'item')}. Of {counted(asked, 'label')}, about "
            f"{wrong:,} {'is' if wrong == 1 else 'are'} expected to be wrong.{where}"
        )
    sys.stdout.flush()
