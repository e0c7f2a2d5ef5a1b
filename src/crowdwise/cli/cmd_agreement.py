"""``crowdwise agreement``: how much annotators agree beyond chance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import AS_USUAL, JsonOption, PathArgument, Reading, load, option, reads
from crowdwise.cli.outputs import check_apart, check_outputs, emit, write_table

ScaleOption = Annotated[str | None, option("--scale", help="Of votes: nominal (default), ordinal, interval or ratio.")]
LevelOption = Annotated[float, typer.Option("--level", help="The level of the confidence intervals.")]
OutOption = Annotated[Path | None, option("--out", "-o", help="Write the coefficients here: .csv, .jsonl or .parquet.")]


@reads
def agreement(
    path: PathArgument, scale: ScaleOption = None, level: LevelOption = 0.95, reading: Reading = AS_USUAL,
    out: OutOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Measure how much annotators agree beyond chance, with intervals.

    Votes have Krippendorff's alpha, Fleiss' kappa, Gwet's AC1 and more, ratings intraclass correlations, rankings
    Kendall's tau. Agreement is not accuracy: annotators can agree on a mistake. Fewer than 10 items have no intervals.

    Examples:

    `crowdwise agreement labels.csv`

    `crowdwise agreement ratings.csv --answers ratings --level 0.9 --json`
    """
    from crowdwise.cli.show import console
    from crowdwise.trust.agreement import agreement as measure

    check_outputs(out)
    check_apart([path], [out])
    found = load(path, reading)
    scale = scale or registry.ANSWER_TYPES[found.answer_type].rules.scale
    given: dict[str, Any] = {} if scale is None else {"scale": scale}
    measured = measure(found.table, level=level, **given)
    table = measured.to_frame(kind="polars").fill_nan(None)
    if out is not None:
        write_table(table, out)
    if as_json:
        facts = {"answer_type": found.answer_type, "level": level, "unit": measured.unit}
        emit(json.dumps(facts | {"coefficients": table.to_dicts(), "notes": measured.notes}))
        return
    screen = console(stderr=False)
    screen.print(str(measured))
    for sentence in (measured.summary, *measured.notes):
        screen.print(sentence, soft_wrap=True)
