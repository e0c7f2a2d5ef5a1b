"""``crowdwise simulate``: a crowd with known truth and known annotators."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.options import FixedSeedOption, JsonOption, assignments, option
from crowdwise.cli.outputs import emit, say
from crowdwise.errors import ParameterError, suggestion

ScenarioArgument = Annotated[
    str | None, typer.Argument(help="The scenario; leave it out to list them.", show_default=False)
]
OutOption = Annotated[
    Path | None, option("--out", "-o", help="The folder to write: labels.csv, truth.csv, parameters.npz, meta.json.")
]
FilesOption = Annotated[
    int | None,
    option(
        "--items-per-file",
        help="Write Parquet files with so many items each, for crowds larger than memory: votes/part-*.parquet and "
        "truth/part-*.parquet in --out.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    option(
        "--set", help="A parameter of the scenario, as name=value; repeat for more. `crowdwise simulate` lists them."
    ),
]


def simulate(
    scenario: ScenarioArgument = None, out: OutOption = None, set_: SetOption = None, seed: FixedSeedOption = 0,
    items_per_file: FilesOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Make a crowd with known truth and known annotators.

    Examples:

    `crowdwise simulate one-coin --out crowd --set n_items=1000 --set n_classes=3 --seed 7`

    `crowdwise simulate dirichlet --out large --set n_items=20000000 --set votes_per_item=5 --items-per-file 1000000`
    """
    from crowdwise.cli import show_lists
    from crowdwise.simulate import SCENARIOS

    if scenario is None:
        show_lists.show_scenarios(SCENARIOS)
        return
    if scenario not in SCENARIOS:
        close = suggestion(scenario, list(SCENARIOS))
        raise ParameterError(f"Unknown scenario {scenario!r}: there are {', '.join(SCENARIOS)}.{close}")
    if out is None:
        raise ParameterError("Say where to write the crowd: --out DIR.")
    params = assignments(set_)
    check_arguments(scenario, SCENARIOS[scenario], params)
    if items_per_file is not None:
        _write_large(scenario, out, params, seed, items_per_file, as_json)
        return
    crowd = SCENARIOS[scenario](**params, random_state=seed)
    crowd.save(out)
    if as_json:
        votes = crowd.votes
        counts = {"items": len(votes), "annotators": votes.n_annotators, "classes": votes.n_classes}
        emit(json.dumps({"scenario": scenario, **counts, "votes": votes.n_votes, "out": str(out)}))
    else:
        say(f"{crowd.votes} written to {out}")


def _write_large(
    scenario: str, out: Path, params: dict[str, Any], seed: int, items_per_file: int, as_json: bool
) -> None:
    """A crowd in files, with a bar."""
    from crowdwise.cli import show
    from crowdwise.core.progress_bar import drawn_bar
    from crowdwise.simulate import write_large

    n_items = params.pop("n_items", 1000)
    with drawn_bar(show.console(), scenario, "{task.completed} of {task.total} files", show.PATIENCE) as update:

        def progress(done: int, files: int) -> None:
            update(completed=done, total=files)

        votes = write_large(
            scenario, out, n_items, items_per_file=items_per_file, random_state=seed, progress=progress, **params
        )
    if as_json:
        emit(json.dumps({"scenario": scenario, "items": n_items, "votes": votes, "out": str(out)}))
    else:
        say(f"{votes:,} votes on {n_items:,} items written to {out}")


def check_arguments(name: str, function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Unknown or missing arguments of a scenario, before it runs."""
    parameters = {p: v for p, v in inspect.signature(function).parameters.items() if p != "random_state"}
    for argument in given:
        if argument not in parameters:
            close = suggestion(argument, list(parameters))
            raise ParameterError(f"{name} has no parameter {argument!r}: it has {', '.join(parameters)}.{close}")
    missing = [p for p, v in parameters.items() if v.default is inspect.Parameter.empty and p not in given]
    if missing:
        raise ParameterError(f"{name} needs {', '.join(missing)}: give --set {missing[0]}=...")
