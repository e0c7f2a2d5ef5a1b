"""``crowdwise aggregate``: from a file of answers to labels, values, clusters."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from crowdwise import registry
from crowdwise.cli import options as opt
from crowdwise.cli.cmd_report import write_page, write_report_of
from crowdwise.cli.options import option
from crowdwise.cli.outputs import check_apart, check_outputs, emit, say, write_results, write_table
from crowdwise.data.folders import check_target
from crowdwise.data.heavy import pl
from crowdwise.errors import ParameterError, listing

GraphOption = Annotated[
    Path | None,
    option("--graph", help="Which items are linked (a table with the columns source and target), for graph-crowd."),
]
FeaturesOption = Annotated[Path | None, option("--features", help=opt.FEATURES)]
ReportOption = Annotated[
    Path | None,
    option("--report", help="Write a page about answers, annotators and results here: .html; see `crowdwise report`."),
]
EngineOption = Annotated[
    Literal["auto", "memory", "stream", "cuda"],
    option(
        "--engine",
        show_default=True,
        help="memory: all answers at once. stream: votes in Parquet or CSV files part by part, to --out (.parquet, "
        ".csv, .jsonl, or a folder) or --save. cuda: as memory, on an NVIDIA GPU. auto: stream for a pattern or a "
        "folder of such files, and for a file that would not fit into memory.",
    ),
]
MemoryOption = Annotated[
    str | None,
    option("--memory", help="How much memory to use, such as 4GB. [default: what is free; about 1 GB for a stream]"),
]
ScratchOption = Annotated[
    Path | None, option("--scratch", help="Where a stream keeps its parts. [default: the system's temporary folder]")
]


@opt.reads
def aggregate(
    path: opt.PathArgument, out: opt.LabelsOption = None, annotators: opt.AnnotatorsOption = None,
    report: ReportOption = None, probabilities: opt.ProbabilitiesOption = False, method: opt.MethodOption = None,
    truth: opt.TruthOption = None, gold: opt.GoldOption = None, reading: opt.Reading = opt.DEFAULT_READING,
    features: FeaturesOption = None, text: opt.TextOption = None, embed: opt.EmbedOption = None,
    no_inputs: opt.NoInputsOption = False, max_seconds: opt.MaxSecondsOption = registry.MAX_SECONDS,
    graph: GraphOption = None, set_: opt.SetOption = None,
    seed: opt.SeedOption = None, engine: EngineOption = "auto", memory: MemoryOption = None,
    scratch: ScratchOption = None, save: opt.SaveOption = None, names: opt.NamesOption = None,
    as_json: opt.JsonOption = False, verbose: opt.VerboseOption = False,
) -> None:  # fmt: skip
    """Turn votes into one label per item, with probabilities.

    Reads a table with an item, an annotator and a label column, estimates how reliable each annotator is, and writes
    the consensus. Without --out, and with standard output sent to a file or a pipe, the labels go there as CSV.
    The result is shown in a few lines; --verbose adds tables, and how it was computed.

    Other answer types (ratings, comparisons, label sets...) are recognised by their columns; --answers names the type.

    Where a dataset folder has features.npz, images or texts of its items (or --features, --text name some), a learner
    predicts classes from them. They count where held-out votes show that they help; what is printed says so, or why
    not. --no-inputs: votes alone.

    Examples:

    `crowdwise aggregate labels.csv --out consensus.csv --annotators people.csv --report report.html`

    `crowdwise aggregate labels.csv --method dawid-skene --set prior=crowd --truth truth.csv --json`

    `crowdwise aggregate reviews.csv --text text --max-seconds 60 --out consensus.csv`

    `crowdwise aggregate pairs.csv --answers similarities --out clusters.csv`

    `crowdwise aggregate 'votes/*.parquet' --out consensus.parquet`
    """
    from crowdwise import api
    from crowdwise.cli import show_aggregate

    if engine in ("memory", "cuda") and (scratch is not None or memory is not None):
        raise ParameterError("--memory and --scratch are for --engine stream or auto: leave them out.")
    check_outputs(annotators)
    check_outputs(report, endings=(".html",))
    check_apart([path, truth, gold, graph, features], [out, save, annotators, report])
    if report is not None:
        from crowdwise.report.page import check_extra

        check_extra()
    if engine == "stream" or (engine == "auto" and _streams(path, memory)):
        others: dict[str, Any] = {
            "--graph": graph,
            "--features": features,
            "--text": text,
            "--embed": embed,
            "--names": names,
        }
        options = {"max_memory": memory, "scratch": scratch, "probabilities": probabilities, "truth": truth}
        options["annotator_accuracy"] = annotators is not None or report is not None
        options |= opt.assignments(set_, seed)
        _stream(path, method, options, reading, gold, (out, save, annotators, report), others, as_json, verbose)
        return
    if reading.question == "all":
        beside = {
            "--annotators": annotators,
            "--report": report,
            "--save": save,
            "--names": names,
            "--json": as_json or None,
        }
        _every_question(path, reading, method, out, opt.assignments(set_, seed), probabilities, beside)
        return
    check_outputs(out)
    check_target(save, "consensus")
    opened = opt.opened(path, reading, method)
    inputs = opt.chosen_inputs(opened, features, text, no_inputs, embed)
    with api.on_gpu(engine == "cuda"):
        fitted = opt.fitted(
            opened, opt.assignments(set_, seed), gold=gold, truth=truth, graph=graph, inputs=inputs,
            max_seconds=max_seconds,
        )  # fmt: skip
    paths = write_results(items_of(fitted.result, probabilities), fitted.result, out, None, save, as_json)
    if annotators is not None:
        write_table(annotators_of(fitted), annotators)
        paths.append(annotators)
    fitted = opt.with_names(fitted, names)
    if report is not None:
        write_page(fitted, path, report)
        paths.append(report)
    if as_json:
        emit(json.dumps(show_aggregate.facts(fitted)))
    else:
        show_aggregate.show_fitted(fitted, paths, verbose=verbose)


def _every_question(
    path: Path, reading: opt.Reading, method: str | None, out: Path | None, params: dict[str, Any],
    probabilities: bool, beside: dict[str, Any],
) -> None:  # fmt: skip
    """``--question all``: two tables for each question, in a folder."""
    import re

    from crowdwise.cli import show_aggregate
    from crowdwise.file_check import checked

    useless = [name for name, value in beside.items() if value is not None]
    if useless:
        raise ParameterError(f"{', '.join(useless)}: not with --question all, which writes labels and annotators.")
    if out is None or out.suffix:
        raise ParameterError("--question all: name the folder for the labels of all questions, --out FOLDER.")
    opened = opt.opened(path, replace(reading, question=None), method)
    questions = checked(opened).facts.get("questions", [])
    names = {name: re.sub(r"[^\w.-]+", "_", name) for name in questions}
    if not names:
        raise ParameterError("--question all: the answers are to one question. Leave it out.")
    if len(set(names.values())) < len(names):
        raise ParameterError(f"--question all: two of {listing(questions, 12)} have the same name for a file.")
    out.mkdir(parents=True, exist_ok=True)
    for question, name in names.items():
        say(f"Question {question!r}")
        fitted = opt.fitted(opened.with_option("question", question), params, inputs=None)
        paths = [out / f"{name}.csv", out / f"{name}-annotators.csv"]
        write_results(items_of(fitted.result, probabilities), fitted.result, paths[0], paths[1], None, False)
        show_aggregate.show_fitted(fitted, paths, verbose=False)


def _streams(path: Path, memory: str | None) -> bool:
    """Whether to read part by part, by what the path is; where it is for its size, that is said."""
    from crowdwise.data.vote_files import is_large, several

    if several(path):
        return True
    if memory is None and not is_large(path):
        return False
    from crowdwise.core.loop import free_memory
    from crowdwise.out_of_core import too_large

    need = too_large(path, memory)
    if need is None:
        return False
    there = f"{free_memory() / 1e9:,.1f} are free" if memory is None else f"--memory is {memory}"
    say(f"Note: {path.name} would take about {need / 1e9:,.1f} GB of memory, and {there}: read part by part.")
    return True


def _stream(
    path: Path, method: str | None, options: dict[str, Any], reading: opt.Reading, gold: Path | None,
    outputs: tuple[Path | None, ...], others: dict[str, Any], as_json: bool, verbose: bool,
) -> None:  # fmt: skip
    """``--engine stream``: from files to a file, or a folder."""
    from crowdwise import api
    from crowdwise.cli import show, show_aggregate
    from crowdwise.out_of_core import READING

    out, save, annotators, report = outputs
    reader = reading.options()
    useless = [name for name, value in others.items() if value is not None]
    useless += [f"--{name.replace('_', '-')}" for name in reader if name not in READING]
    if useless:
        raise ParameterError(f"{', '.join(useless)}: not with votes that are read part by part (--engine stream).")
    with show.progress(method or registry.DEFAULT) as progress:
        consensus = api.aggregate(
            path, method, answer_type=reading.answers, gold=gold, out=out, save=save, engine="stream",
            progress=progress, **options, **reader,
        )  # fmt: skip
    written = [place for place in (out, save) if place is not None]
    if annotators is not None:
        write_table(consensus.annotator_table, annotators)
        written.append(annotators)
    if report is not None:
        write_report_of(consensus, path.name, report)
        written.append(report)
    if as_json:
        facts = {
            "method": consensus.method, "items": consensus.n_items, "votes": consensus.n_votes,
            "annotators": len(consensus.annotators), "classes": consensus.classes.tolist(),
            "iterations": consensus.iterations, "converged": consensus.converged, "rho": consensus.dependence.rho,
            "out": str(consensus.out),
        }  # fmt: skip
        emit(json.dumps(facts | show_aggregate.figures(consensus.measured)))
        return
    show_aggregate.show_written(consensus, written, verbose=verbose)


JUDGED = 100_000
"""Of more votes than this no verdict on annotators is added to their table: that would take long."""


def annotators_of(fitted: Any) -> Any:
    """The table of annotators; of votes with the verdict on each, and the reason."""
    table = fitted.result.to_frame("annotators", kind="polars")
    if fitted.answer_type != registry.VOTES:
        return table
    if fitted.table.n_votes > JUDGED:
        say(f"Note: no verdicts on annotators, from {JUDGED:,} votes on: crowdwise diagnose, or --report, has them.")
        return table
    from crowdwise.report.findings import diagnose

    diagnosis = diagnose(fitted.table, fitted.result, gold=fitted.gold)
    reasons: dict[Any, list[str]] = {}
    for finding in diagnosis.findings:
        for name in finding.annotators:
            reasons.setdefault(name, []).append(diagnosis.kinds[finding.kind].title)
    names = fitted.result.annotators.tolist()
    return table.with_columns(
        pl.Series("verdict", [diagnosis.verdicts[name].value for name in names]),
        pl.Series("reason", ["; ".join(dict.fromkeys(reasons.get(name, []))) for name in names]),
    )


def items_of(result: Any, probabilities: bool) -> Any:
    """The table of items; with the probability of every class where the result has them."""
    takes = "probabilities" in inspect.signature(result.to_frame).parameters
    if probabilities and not takes:
        raise ParameterError(f"--probabilities: a {type(result).__name__} has no classes. Leave it out.")
    table = "objects" if "objects" in result.TABLES else "items"  # an item may have several, or none
    return result.to_frame(table, kind="polars", **({"probabilities": True} if probabilities else {}))
