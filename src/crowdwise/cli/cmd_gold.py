"""``crowdwise gold``: which items to label by hand."""

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

AskOption = Annotated[int, typer.Option("--ask", min=1, help="How many items.")]
OutOption = Annotated[Path | None, option("--out", "-o", help="Write the items here: .csv, .jsonl or .parquet.")]


@opt.reads
def gold(
    path: opt.PathArgument, ask: AskOption = 50, method: opt.MethodOption = None, known: opt.GoldOption = None,
    set_: opt.SetOption = None, reading: opt.Reading = opt.AS_USUAL, seed: opt.SeedOption = None,
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
    from crowdwise.errors import ParameterError
    from crowdwise.trust.gold_choice import ask_for_gold
    from crowdwise.trust.wording import counted

    check_outputs(out)
    check_apart([path, known], [out])
    fitted = opt.fitted(opt.opened(path, reading, method), opt.assignments(set_, seed), gold=known)
    if fitted.answer_type != registry.VOTES:
        raise ParameterError(f"gold: expected votes, and {path} has {fitted.answer_type}.")
    given: dict[str, Any] = {} if seed is None else {"random_state": seed}
    found = ask_for_gold(fitted.result, ask, **given)
    table = found.to_frame(kind="polars")
    if out is not None:
        write_table(table, out)
    if as_json:
        emit(json.dumps({"items": table.to_dicts(), "expected_wrong": found.expected_wrong}))
    elif out is None:
        emit_table(table)
    if not as_json:
        where = f" Written to {out}." if out is not None else ""
        asked, wrong = len(found.items), round(found.expected_wrong)
        say(
            f"{asked:,} of {counted(len(fitted.result.items), 'item')}. Of {counted(asked, 'label')}, about "
            f"{wrong:,} {'is' if wrong == 1 else 'are'} expected to be wrong.{where}"
        )
    sys.stdout.flush()
