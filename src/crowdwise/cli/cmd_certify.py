"""``crowdwise certify``: the labels that random gold labels vouch for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli import options as opt
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, emit_table, say, write_table

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
    from crowdwise.errors import ParameterError
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
    found = certificates.certify(
        consensus, known, max_error, confidence, by="label" if by_class else None,
        first=None if more is None else first, look=look,
    )  # fmt: skip
    table = found.to_frame(kind="polars")
    if sets is not None:
        if more is not None:
            raise ParameterError("--sets: they need gold labels of one draw from all items, --gold without --more.")
        classes = consensus.sets(sets, gold=known, by_class=by_class)
        table = table.with_columns(classes.to_frame("polars").drop("item"))
    double = 2 * int(found.gold.sum())
    then = found.with_more(double)
    if as_json:
        facts: dict[str, Any] = {
            "released": int(found.released.sum()), "share": found.share, "gold": int(found.gold.sum()),
            "wrong": found.wrong, "wrong_rate": found.wrong_rate, "max_error": max_error, "confidence": confidence,
            "with_more": {"gold": double, "share": then},
        }  # fmt: skip
        emit(json.dumps(facts | {"items": table.to_dicts()} if out is None else facts))
        if out is not None:
            write_table(table, out)
        return
    _write(table, out, as_json)
    rate, low, high = found.wrong_rate
    say(f"{found.sentence}.")
    whole = f" ({100 * confidence:.6g}% interval {low:.1%} to {high:.1%})" if low == low else ""
    of = "All labels" if whole else "Gold items" if more is None else "Gold items of both draws"
    say(f"{of}: {rate:.1%} wrong on gold items{whole}. {int((~found.released).sum()):,} labels are left to check.")
    if sets is not None:
        say(
            f"Sets have {table['size'].mean():.2f} of {len(consensus.classes)} classes on average, and hold the true "
            f"one with probability {classes.coverage:.3f} at least."
        )
    if found.share < 1.0 and not by_class:
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
