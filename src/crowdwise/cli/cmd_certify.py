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
OutOption = Annotated[Path | None, option("--out", "-o", help="Write the items here: .csv, .jsonl or .parquet.")]


@opt.reads
def certify(
    path: opt.PathArgument, gold: GoldOption = None, ask: AskOption = None, max_error: ErrorOption = 0.05,
    confidence: ConfidenceOption = 0.95, by_class: ClassOption = False, method: opt.MethodOption = None,
    set_: opt.SetOption = None, reading: opt.Reading = opt.AS_USUAL, seed: opt.SeedOption = None,
    out: OutOption = None, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Release the labels that random gold labels prove: at most 5 % of them are wrong.

    Draw items at random with --ask, label them by hand, and give the sheet back as --gold. What is then proven holds
    for any crowd and any method. The other items are marked: send them to an expert, or label more.

    Examples:

    `crowdwise certify labels.csv --ask 100 --out sheet.csv`

    `crowdwise certify labels.csv --gold sheet.csv --max-error 0.05 --out released.csv`
    """
    from crowdwise.data.files import TableFile
    from crowdwise.data.frames import make_frame
    from crowdwise.errors import ParameterError, ReadError
    from crowdwise.trust import certificate as certificates

    if (gold is None) == (ask is None):
        raise ParameterError("Give --ask 100 to draw items at random, or --gold FILE with their labels.")
    check_outputs(out)
    check_apart([path, gold], [out])
    fitted = opt.fitted(opt.opened(path, reading, method), opt.assignments(set_, seed))
    if fitted.answer_type != registry.VOTES:
        raise ParameterError(f"certify: expected votes, and {path} has {fitted.answer_type}.")
    consensus = fitted.result
    if ask is not None:
        items = certificates.draw_for_gold(consensus, ask, **({} if seed is None else {"random_state": seed}))
        _write(make_frame({"item": items, "label": [""] * len(items)}, "polars"), out, as_json)
        say(
            f"{len(items):,} of {len(consensus.items):,} items, drawn at random. Fill in the labels, all of them, and "
            "give the file as --gold." + (f" Written to {out}." if out else "")
        )
        return
    assert gold is not None
    known, rows = fitted.table.read_truth(gold), TableFile.of(gold).read()[0].height
    if len(known) < rows:
        raise ReadError(
            f"{rows - len(known):,} of the {rows:,} rows of {gold} have no label. Labels that are left out, such as "
            "those of hard items, make the others no random draw: fill in all rows."
        )
    found = certificates.certify(consensus, known, max_error, confidence, by="label" if by_class else None)
    more = 2 * int(found.gold.sum())
    then = found.with_more(more)
    if as_json:
        facts: dict[str, Any] = {
            "released": int(found.released.sum()), "share": found.share, "gold": int(found.gold.sum()),
            "wrong": found.wrong, "wrong_rate": found.wrong_rate, "max_error": max_error, "confidence": confidence,
            "with_more": {"gold": more, "share": then},
        }  # fmt: skip
        table = found.to_frame(kind="polars")
        emit(json.dumps(facts | {"items": table.to_dicts()} if out is None else facts))
        if out is not None:
            write_table(table, out)
        return
    _write(found.to_frame(kind="polars"), out, as_json)
    rate, low, high = found.wrong_rate
    say(f"{found.sentence}.")
    say(
        f"All labels: {rate:.1%} wrong on gold items ({confidence:.0%} interval {low:.1%} to {high:.1%}). "
        f"{int((~found.released).sum()):,} labels are left to check."
    )
    if found.share < 1.0 and not by_class:
        say(f"{more:,} gold labels would release about {then:.0%}.")
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
