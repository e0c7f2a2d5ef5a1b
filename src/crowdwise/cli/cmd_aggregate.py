"""``crowdwise aggregate``: from a file of answers to labels, values, clusters."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from crowdwise.cli import options as opt
from crowdwise.cli.cmd_report import write_page
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, say, write_results
from crowdwise.data.folders import check_target
from crowdwise.errors import ParameterError

GraphOption = Annotated[
    Path | None,
    option("--graph", help="Which items are linked (a table with the columns source and target), for graph-crowd."),
]
ReportOption = Annotated[
    Path | None,
    option("--report", help="Write a page about answers, annotators and results here: .html; see `crowdwise report`."),
]
EngineOption = Annotated[
    Literal["memory", "stream"],
    typer.Option(
        "--engine",
        help="stream: Parquet or CSV files (also a pattern such as 'votes/*.parquet') that may be larger than memory; "
        "--out is a .parquet file or a folder.",
    ),
]
ScratchOption = Annotated[
    Path | None, option("--scratch", help="With --engine stream: the folder for parts. [default: that of the system]")
]


@opt.reads
def aggregate(
    path: opt.PathArgument, method: opt.MethodOption = None, truth: opt.TruthOption = None, gold: opt.GoldOption = None,
    set_: opt.SetOption = None, reading: opt.Reading = opt.AS_USUAL, graph: GraphOption = None,
    seed: opt.SeedOption = None, out: opt.LabelsOption = None, probabilities: opt.ProbabilitiesOption = False,
    annotators: opt.AnnotatorsOption = None, save: opt.SaveOption = None, report: ReportOption = None,
    engine: EngineOption = "memory", scratch: ScratchOption = None, as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Turn votes into one label per item, with probabilities.

    Reads a table with an item, an annotator and a label column, estimates how reliable each annotator is, and writes
    the consensus. Without --out, and with standard output sent to a file or a pipe, the labels go there as CSV.

    Other answer types (ratings, comparisons, label sets...) are recognised by their columns; --answers names the type.

    Examples:

    `crowdwise aggregate labels.csv --out consensus.csv --annotators people.csv`

    `crowdwise aggregate labels.csv --method dawid-skene --set prior=crowd --truth truth.csv --json`

    `crowdwise aggregate pairs.csv --answers similarities --out clusters.csv`

    `crowdwise aggregate 'votes/*.parquet' --engine stream --out consensus.parquet`
    """
    from crowdwise.cli import show_aggregate

    if engine == "stream":
        others: dict[str, Any] = {"--truth": truth, "--graph": graph, "--save": save}
        others["--probabilities"] = probabilities or None
        others |= {"--annotators": annotators, "--report": report, "--answers": reading.answers}
        _stream(path, method, opt.assignments(set_, seed), reading, gold, out, scratch, others, as_json)
        return
    if scratch is not None:
        raise ParameterError("--scratch is for --engine stream: leave it out.")
    check_outputs(out, annotators)
    check_outputs(report, endings=(".html",))
    check_apart([path, truth, gold, graph], [out, annotators, report])
    check_target(save, "consensus")
    if report is not None:
        from crowdwise.report.page import check_extra

        check_extra()
    found = opt.fitted(path, method, opt.assignments(set_, seed), reading, gold=gold, truth=truth, graph=graph)
    paths = write_results(items_of(found.result, probabilities), found.result, out, annotators, save, as_json)
    if report is not None:
        write_page(found, path, report)
        paths.append(report)
    if as_json:
        emit(json.dumps(show_aggregate.facts(found)))
    else:
        show_aggregate.show_fitted(found, paths)


def _stream(
    path: Path, method: str | None, params: dict[str, Any], reading: opt.Reading, gold: Path | None, out: Path | None,
    scratch: Path | None, others: dict[str, Any], as_json: bool,
) -> None:  # fmt: skip
    """``--engine stream``: from files to a file."""
    from crowdwise.data.votes import read_truth
    from crowdwise.out_of_core import READING, aggregate_files

    reader = reading.options()
    given = [name for name, value in others.items() if value is not None]
    given += [f"--{name.replace('_', '-')}" for name in reader if name not in READING]
    if given:
        raise ParameterError(f"{', '.join(given)}: not with --engine stream, which writes the consensus alone.")
    if out is None:
        raise ParameterError("--engine stream writes to a file or a folder: give --out consensus.parquet.")
    check_apart([path, gold], [out])
    known = None if gold is None else read_truth(gold)
    found = aggregate_files(path, out, method, gold=known, scratch=scratch, **params, **reader)
    facts = {
        "method": found.method, "items": found.n_items, "votes": found.n_votes, "annotators": len(found.annotators),
        "classes": found.classes.tolist(), "iterations": found.iterations, "converged": found.converged,
        "rho": found.dependence.rho, "out": str(found.out),
    }  # fmt: skip
    if as_json:
        emit(json.dumps(facts))
        return
    say(f"{found.method}: {found.n_votes:,} votes on {found.n_items:,} items by {len(found.annotators):,} annotators.")
    for note in found.notes:
        say(note)
    say(f"Wrote {found.out}.")


def items_of(result: Any, probabilities: bool) -> Any:
    """The table of items; with the probability of every class where the result has them."""
    takes = "probabilities" in inspect.signature(result.to_frame).parameters
    if probabilities and not takes:
        raise ParameterError(f"--probabilities: a {type(result).__name__} has no classes. Leave it out.")
    return result.to_frame("items", kind="polars", **({"probabilities": True} if probabilities else {}))
