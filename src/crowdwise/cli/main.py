"""The command line: parse, call, print.

Standard output carries what was asked for; summaries, notes, progress and errors go to standard error.
Exit codes: 0, 1 for bad input, 2 for wrong usage, 130 when interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crowdwise import __version__, registry
from crowdwise.cli import (
    answer_types,
    cmd_active,
    cmd_bench,
    cmd_campaign,
    cmd_compare,
    cmd_learn,
    cmd_rank,
    cmd_report,
)
from crowdwise.cli.answer_types import AnswersOption, ColumnOption
from crowdwise.cli.options import (
    AS_USUAL,
    AnnotatorsOption,
    FixedSeedOption,
    GoldOption,
    JsonOption,
    LabelsOption,
    MethodOption,
    PathArgument,
    ProbabilitiesOption,
    Reading,
    SeedOption,
    SetOption,
    assignments,
    check_apart,
    check_arguments,
    check_outputs,
    check_save,
    emit,
    flag,
    load,
    reads,
    say,
    spelled,
    write_table,
)
from crowdwise.errors import ConvergenceWarning, CrowdwiseError, ExtraError, ParameterError


class Commands(TyperGroup):
    """The commands, with errors turned into a line on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        words = [*ctx._protected_args, *ctx.args]
        try:
            return super().invoke(ctx)
        except CrowdwiseError as error:
            options = self.options(words)
            say(f"Error: {spelled(error.worded(lambda option: flag(option, options)), options)}")
            ctx.exit(2 if isinstance(error, ParameterError) else 1)
        except KeyboardInterrupt:
            say("Interrupted. Nothing was written.")
            ctx.exit(130)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(1)

    def options(self, words: list[str]) -> set[str]:
        """The options of the command that some words call."""
        command: Any = self
        for word in words:
            command = getattr(command, "commands", {}).get(word)
            if not hasattr(command, "commands"):
                break
        return {name for parameter in getattr(command, "params", []) for name in parameter.opts}


app = typer.Typer(
    name="crowdwise",
    cls=Commands,
    help=(
        "Labels you can trust from annotators you cannot.\n\n"
        "Start with `crowdwise aggregate labels.csv`, or `crowdwise demo`."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
@reads
def aggregate(
    path: PathArgument,
    answers: AnswersOption = None,
    method: MethodOption = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            help="The truth to measure against (item and label columns). The method does not see it.",
            show_default=False,
        ),
    ] = None,
    gold: GoldOption = None,
    set_: SetOption = None,
    reading: Reading = AS_USUAL,
    column: ColumnOption = None,
    seed: SeedOption = None,
    out: LabelsOption = None,
    probabilities: ProbabilitiesOption = False,
    annotators: AnnotatorsOption = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Keep the whole consensus in this folder.", show_default=False)
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="Write a page about answers, annotators and results here: .html; see `crowdwise report`.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn votes into one label per item, with probabilities.

    Reads a table with an item, an annotator and a label column, finds out whom to believe, and writes the consensus.
    Without --out, and with standard output sent to a file or a pipe, the labels go there as CSV.

    Answers of other kinds (numbers, pairs, label sets...) are told by their columns; --answers says which they are.

    Examples:

    `crowdwise aggregate labels.csv --out consensus.csv --annotators people.csv`

    `crowdwise aggregate labels.csv --method dawid-skene --set prior=crowd --truth truth.csv --json`

    `crowdwise aggregate pairs.csv --answers similarities --out clusters.csv`
    """
    from crowdwise.cli import show
    from crowdwise.data.votes import read_truth

    check_outputs(out, annotators)
    check_outputs(report, endings=(".html",))
    check_apart([path, truth, gold], [out, annotators, report])
    check_save(save)
    if report is not None:
        from crowdwise.report.page import check_extra

        check_extra()
    params = assignments(set_)
    if seed is not None:
        params["random_state"] = seed
    kind = answer_types.kind_of(path, answers, method)
    if kind != "votes":
        answer_types.run(
            path,
            kind,
            method,
            params,
            reading.given(),
            column,
            truth,
            gold,
            out,
            annotators,
            save,
            report,
            as_json,
            probabilities,
        )
        return
    answer_types.refuse_columns(column)
    method = method or registry.DEFAULT
    model = registry.create(method, **params)
    data = load(path, reading)
    votes = data.votes
    if truth is not None:
        votes = votes.with_truth(read_truth(truth))
    known = None if gold is None else votes.encode_truth(read_truth(gold))
    with show.progress(method) as callback:
        consensus = model.fit(votes, known, callback=callback).consensus_
    measured = show.measure(consensus, votes.truth, known)
    if out is not None:
        write_table(consensus.to_frame("items", kind="polars", probabilities=probabilities), out)
    if annotators is not None:
        write_table(consensus.to_frame("annotators", kind="polars"), annotators)
    if save is not None:
        consensus.save(save)
    if report is not None:
        cmd_report.write_page(replace(data, votes=votes), consensus, known, report)
    if as_json:
        emit(json.dumps(show.facts(consensus, measured)))
    elif out is None and not sys.stdout.isatty():
        emit(consensus.to_frame("items", kind="polars", probabilities=probabilities).write_csv(), end="")
    if not as_json:
        show.show_consensus(consensus, measured, [p for p in (out, annotators, save, report) if p is not None])


app.command()(cmd_report.report)
app.command()(cmd_report.diagnose)
app.command()(cmd_learn.learn)
app.command()(cmd_learn.predict)
app.command()(cmd_compare.compare)
app.command()(cmd_rank.rank)


@app.command()
def methods(
    labels: Annotated[bool, typer.Option("--labels", help="Only those that look at votes alone (aggregate).")] = False,
    learners: Annotated[
        bool, typer.Option("--learners", help="Only those that learn a classifier from inputs and votes (learn).")
    ] = False,
    answers: Annotated[
        str | None,
        typer.Option(
            "--answers", help="Only those for this kind of answers, or all beyond classes.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the methods, or (with --json) all about their parameters."""
    from crowdwise.cli import show_lists

    beyond = answer_types.listed(answers)
    every = not (labels or learners or answers)
    shown = {
        "methods": list(registry.METHODS.values()) if labels or every or answers == "votes" else [],
        "learners": list(registry.LEARNERS.values()) if learners or every else [],
        "answer_methods": beyond if answers or every else [],
    }
    if not as_json:
        show_lists.show_methods(shown["methods"], shown["learners"], shown["answer_methods"])
        return
    facts: dict[str, Any] = {}
    if shown["methods"]:
        listed = [described(entry) | {"needs_gold": entry.load().needs_gold} for entry in shown["methods"]]
        facts |= {"default": registry.DEFAULT, "methods": listed}
    if shown["learners"]:
        facts |= {"default_learner": registry.DEFAULT_LEARNER, "learners": [described(e) for e in shown["learners"]]}
    if answers or every:
        facts["answer_methods"] = [described(entry) | {"inputs": entry.inputs} for entry in shown["answer_methods"]]
        facts["answer_types"] = {
            kind.name: {"default": kind.default, "says": kind.says} for kind in registry.ANSWER_TYPES.values()
        }
    if any(method["parameters"] is None for part in shown for method in facts.get(part, [])):
        say("Note: what parameters learners have is known where torch is: pip install 'crowdwise[deep]'.")
    emit(json.dumps(facts))


def described(entry: registry.Entry) -> dict[str, Any]:
    """A method as JSON; the parameters are null where what it needs is not installed."""
    from crowdwise.core.result import plain

    parameters: dict[str, Any] | None
    try:
        parameters = {name: plain(value) for name, value in entry.load().parameters().items()}
    except ExtraError:
        parameters = None
    return {
        "key": entry.key,
        "family": entry.family,
        "answer_type": entry.answer_type,
        "class": entry.class_name,
        "summary": entry.summary,
        "reference": entry.reference,
        "parameters": parameters,
    }


@app.command()
@reads
def describe(
    path: PathArgument,
    reading: Reading = AS_USUAL,
    as_json: JsonOption = False,
) -> None:
    """Show the shape of a file of votes: how many, by whom, on what, and how they spread."""
    from crowdwise.cli import show

    answer_types.check_classes(path, "describe", reading)
    votes = load(path, reading).votes
    if as_json:
        emit(json.dumps(votes.describe()))
    else:
        show.show_description(votes)


@app.command()
def simulate(
    scenario: Annotated[
        str | None, typer.Argument(help="The scenario; leave it out to list them.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The folder to write: labels.csv, truth.csv, parameters.npz, meta.json.",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A parameter of the scenario, as name=value; repeat for more. `crowdwise simulate` lists them.",
            show_default=False,
        ),
    ] = None,
    seed: FixedSeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Make a crowd with known truth and known annotators.

    Example: `crowdwise simulate one-coin --out crowd --set n_items=1000 --set n_classes=3 --seed 7`
    """
    from crowdwise.cli import show, show_lists
    from crowdwise.errors import suggestion
    from crowdwise.simulate import SCENARIOS

    if scenario is None:
        show_lists.show_scenarios(SCENARIOS)
        return
    if scenario not in SCENARIOS:
        raise ParameterError(
            f"Unknown scenario {scenario!r}: there are {', '.join(SCENARIOS)}.{suggestion(scenario, list(SCENARIOS))}"
        )
    if out is None:
        raise ParameterError("Say where to write the crowd: --out DIR.")
    params = assignments(set_)
    check_arguments(scenario, SCENARIOS[scenario], params)
    crowd = SCENARIOS[scenario](**params, random_state=seed)
    crowd.save(out)
    if as_json:
        votes = crowd.votes
        facts = {
            "scenario": scenario,
            "items": len(votes),
            "annotators": votes.n_annotators,
            "classes": votes.n_classes,
            "votes": votes.n_votes,
            "out": str(out),
        }
        emit(json.dumps(facts))
    else:
        show.note(f"{crowd.votes} written to {out}")


@app.command()
def demo(
    seed: FixedSeedOption = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Also keep the crowd, the consensus and the report in this folder.", show_default=False
        ),
    ] = None,
) -> None:
    """See it work: handwritten digits, labelled by a crowd of really trained weak classifiers.

    Spammers and copiers are among them.
    """
    from crowdwise.cli.demo import run

    run(seed=seed, out=out)


app.add_typer(cmd_bench.bench, name="bench")
app.add_typer(cmd_campaign.campaign, name="campaign")
app.add_typer(cmd_active.active, name="active")


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        emit(__version__)
        raise typer.Exit


def main() -> None:
    """Run a command."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.showwarning = lambda message, *_, **__: say(f"Note: {message}")
        app()
