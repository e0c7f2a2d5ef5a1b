"""``crowdwise bench``: measure methods where the truth is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from crowdwise import registry
from crowdwise.cli.options import JsonOption, option, words_in
from crowdwise.cli.outputs import TABLES, check_outputs, emit, write_table
from crowdwise.data.folders import write_text

DataOption = Annotated[Path | None, option("--data", help="A folder of dataset folders. [default: CROWDWISE_DATA]")]
SeedsOption = Annotated[int, typer.Option("--seeds", min=1, help="Seeds to average over.")]
SetsOption = Annotated[
    str | None, option("--sets", help="Which data sets, comma-separated; digits needs no folder. [default: all]")
]
MethodsOption = Annotated[
    str | None, option("--methods", help="Which methods and learners, comma-separated. [default: all for votes alone]")
]
OutOption = Annotated[
    Path | None,
    option("--out", "-o", help="Write the table here: .csv, .jsonl or .parquet; or all facts of the run: .json."),
]


def bench(
    data: DataOption = None, sets: SetsOption = None, methods: MethodsOption = None, seeds: SeedsOption = 1,
    out: OutOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Measure methods on data sets whose truth is known: accuracy, log loss, seconds.

    A data set is a folder with votes (labels.csv) and truth (truth.csv). Methods see the votes alone, learners the
    inputs as well, with their defaults; the truth only measures, ties split. Nothing is tuned. Learners also have their
    accuracy on test items, where a data set has some.

    Examples:

    `crowdwise bench --data FOLDER`

    `crowdwise bench --sets digits --methods majority,auto,two-stage`
    """
    import polars as pl

    from crowdwise.bench import runs
    from crowdwise.cli import show, show_bench

    check_outputs(out, endings=(*TABLES, ".json"))
    keys = [
        registry.find(key, inputs=key in registry.LEARNERS).key for key in words_in(methods) or registry.for_votes()
    ]
    wanted = words_in(sets)
    folder = Path() if wanted == [runs.DIGITS] else data or runs.data_folder()
    names = runs.find_sets(folder, wanted)
    with show.steps(len(names) * len(keys)) as progress:
        facts = runs.measure_all(folder, names, keys, seeds=seeds, progress=progress)
    if out is not None and out.suffix.lower() == ".json":
        write_text(json.dumps(facts, indent=1) + "\n", out)
    elif out is not None:
        write_table(pl.DataFrame(facts["cells"]), out)
    if as_json:
        emit(json.dumps(facts))
    else:
        show_bench.show_bench(names, keys, [runs.Cell(**cell) for cell in facts["cells"]])
