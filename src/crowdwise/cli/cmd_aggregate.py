"""``crowdwise aggregate``: from a file of answers to labels, values, clusters."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

from crowdwise.cli import options as opt
from crowdwise.cli.cmd_report import write_page
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, write_results
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


@opt.reads
def aggregate(
    path: opt.PathArgument, method: opt.MethodOption = None, truth: opt.TruthOption = None, gold: opt.GoldOption = None,
    set_: opt.SetOption = None, reading: opt.Reading = opt.AS_USUAL, graph: GraphOption = None,
    seed: opt.SeedOption = None, out: opt.LabelsOption = None, probabilities: opt.ProbabilitiesOption = False,
    annotators: opt.AnnotatorsOption = None, save: opt.SaveOption = None, report: ReportOption = None,
    as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Turn votes into one label per item, with probabilities.

    Reads a table with an item, an annotator and a label column, estimates how reliable each annotator is, and writes
    the consensus. Without --out, and with standard output sent to a file or a pipe, the labels go there as CSV.

    Other answer types (ratings, comparisons, label sets...) are recognised by their columns; --answers names the type.

    Examples:

    `crowdwise aggregate labels.csv --out consensus.csv --annotators people.csv`

    `crowdwise aggregate labels.csv --method dawid-skene --set prior=crowd --truth truth.csv --json`

    `crowdwise aggregate pairs.csv --answers similarities --out clusters.csv`
    """
    from crowdwise.cli import show_aggregate

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


def items_of(result: Any, probabilities: bool) -> Any:
    """The table of items; with the probability of every class where the result has them."""
    takes = "probabilities" in inspect.signature(result.to_frame).parameters
    if probabilities and not takes:
        raise ParameterError(f"--probabilities: a {type(result).__name__} has no classes. Leave it out.")
    return result.to_frame("items", kind="polars", **({"probabilities": True} if probabilities else {}))
