"""``crowdwise agreement`` and ``crowdwise alternative-test``: annotators beside one another, and models beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import DEFAULT_READING, JsonOption, PathArgument, Reading, load, option, reads
from crowdwise.cli.outputs import check_apart, check_outputs, emit, say, write_table
from crowdwise.data.heavy import pl

ScaleOption = Annotated[str | None, option("--scale", help="Of votes: nominal (default), ordinal, interval or ratio.")]
LevelOption = Annotated[float, typer.Option("--level", help="The level of the confidence intervals.")]
OutOption = Annotated[
    Path | None, option("--out", "-o", help="Write the coefficients here: .csv, .xlsx, .jsonl or .parquet.")
]
CandidateOption = Annotated[
    list[str] | None,
    option("--candidate", help="The model: an annotator, or a pattern such as llm:*; repeat for more."),
]
EpsilonOption = Annotated[
    float, typer.Option("--epsilon", help="How much worse it may be: .2 beside experts, .15 trained people, .1 crowds.")
]
PairsOption = Annotated[Path | None, option("--annotators", help="Write each model against each annotator here.")]


@reads
def agreement(
    path: PathArgument, scale: ScaleOption = None, level: LevelOption = 0.95, reading: Reading = DEFAULT_READING,
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


@reads
def alternative_test(
    path: PathArgument, candidate: CandidateOption = None, epsilon: EpsilonOption = 0.1,
    reading: Reading = DEFAULT_READING, out: OutOption = None, annotators: PairsOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Test whether a model may replace the annotators.

    People and models answered the same items. Each person is left out in turn: is the model as close to the other
    people as that person is? It passes where it beats half of them or more (the alternative annotator test). Votes,
    ratings and label sets; annotators with fewer than 30 such items are not tested.

    Examples:

    `crowdwise alternative-test labels.csv --candidate "llm:*"`

    `crowdwise alternative-test scores.csv --answers ratings --candidate gpt --epsilon 0.2`
    """
    from crowdwise.cli.show import console, frame_table
    from crowdwise.errors import ParameterError
    from crowdwise.trust.alternative_test import alternative_test as test

    check_outputs(out, annotators)
    check_apart([path], [out, annotators])
    if not candidate:
        raise ParameterError("Name the model with --candidate, such as --candidate gpt or --candidate 'llm:*'.")
    tested = test(load(path, reading).table, candidate, epsilon)
    tables = {name: tested.to_frame(name, kind="polars").fill_nan(None) for name in tested.TABLES}
    verdict = pl.when(pl.col("tested") > 0).then("passes").alias("passes")
    tables["candidates"] = tables["candidates"].with_columns(verdict)
    for name, target in (("candidates", out), ("annotators", annotators)):
        if target is not None:
            write_table(tables[name], target)
    if as_json:
        facts = {"epsilon": epsilon, "level": tested.level, "min_items": tested.min_items}
        emit(json.dumps(facts | {name: table.to_dicts() for name, table in tables.items()}))
        return
    shown = ("candidate", "passes", "winning_rate", "advantage", "advantage_low", "advantage_high", "least_epsilon")
    console(stderr=False).print(frame_table("", tables["candidates"].select(shown), 100))
    for sentence in tested.sentences():
        say(f"{sentence}.")
