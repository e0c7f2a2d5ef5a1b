"""The command line: parse, call, print.

Standard output carries what was asked for; summaries, notes, progress and errors go to standard error.
Exit codes: 0, 1 for bad input, 2 for wrong usage, 130 when interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crowdwise import __version__, registry
from crowdwise.errors import ConvergenceWarning, CrowdwiseError, InputError, OutputError, ParameterError


class Commands(TyperGroup):
    """The commands, with errors turned into a line on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CrowdwiseError as error:
            say(f"Error: {error}")
            ctx.exit(2 if isinstance(error, ParameterError) else 1)
        except KeyboardInterrupt:
            say("Interrupted. Nothing was written.")
            ctx.exit(130)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(1)


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


class OnDuplicate(StrEnum):
    error = "error"
    first = "first"
    last = "last"
    all = "all"


class OnMissing(StrEnum):
    error = "error"
    drop = "drop"


class Form(StrEnum):
    auto = "auto"
    long = "long"
    wide = "wide"


PathArgument = Annotated[
    Path,
    typer.Argument(
        help=(
            "A file of votes (.csv, .tsv, .jsonl, .parquet, .arrow; text also .gz) or a dataset folder with labels.csv."
        ),
        show_default=False,
    ),
]
ItemOption = Annotated[
    str | None,
    typer.Option("--item", help="The item column, if it is not called item, task, unit, ...", show_default=False),
]
AnnotatorOption = Annotated[
    str | None,
    typer.Option(
        "--annotator",
        help="The annotator column, if it is not called annotator, worker, rater, ...",
        show_default=False,
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        "--label", help="The label column, if it is not called label, answer, response, ...", show_default=False
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option("--classes", help="All classes, comma-separated, where nobody used some of them.", show_default=False),
]
FormOption = Annotated[Form, typer.Option("--form", help="long: a row per vote. wide: a column per annotator.")]
DuplicateOption = Annotated[
    OnDuplicate,
    typer.Option("--on-duplicate", help="When an annotator labelled an item twice: stop, keep one row, or count all."),
]
MissingOption = Annotated[
    OnMissing, typer.Option("--on-missing", help="Rows without a label: stop, or leave them out.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A parameter, as name=value; repeat for more. See `crowdwise methods --json`.", show_default=False
    ),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of everything random.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@app.command()
def aggregate(
    path: PathArgument,
    method: Annotated[
        str, typer.Option("--method", "-m", help="The method; `crowdwise methods` lists them.")
    ] = registry.DEFAULT,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            help="True classes to measure against (item and label columns). The method does not see them.",
            show_default=False,
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            "--gold", help="True classes the method may use. They are left out of the accuracy.", show_default=False
        ),
    ] = None,
    set_: SetOption = None,
    on_duplicate: DuplicateOption = OnDuplicate.error,
    on_missing: MissingOption = OnMissing.error,
    item: ItemOption = None,
    annotator: AnnotatorOption = None,
    label: LabelOption = None,
    classes: ClassesOption = None,
    form: FormOption = Form.auto,
    seed: SeedOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the labels here: .csv, .jsonl or .parquet.", show_default=False),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of every class to the labels.")
    ] = False,
    annotators: Annotated[
        Path | None, typer.Option("--annotators", help="Write the table of annotators here.", show_default=False)
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Keep the whole consensus in this folder.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn votes into one label per item, with probabilities.

    Reads a table with an item, an annotator and a label column, finds out whom to believe, and writes the consensus.
    Without --out, and with standard output sent to a file or a pipe, the labels go there as CSV.

    Examples:

    `crowdwise aggregate labels.csv --out consensus.csv --annotators people.csv`

    `crowdwise aggregate labels.csv --method dawid-skene --set prior=crowd --truth truth.csv --json`
    """
    from crowdwise import terminal
    from crowdwise.data.readers import read_truth

    check_outputs(out, annotators)
    params = assignments(set_)
    if seed is not None:
        params["random_state"] = seed
    model = registry.create(method, **params)
    votes = load(path, item, annotator, label, classes, form, on_duplicate, on_missing)
    if truth is not None:
        votes = votes.with_truth(read_truth(truth))
    known = None if gold is None else votes.encode_truth(read_truth(gold))
    with terminal.progress(method) as callback:
        consensus = model.fit(votes, known, callback=callback).consensus_
    measured = terminal.measure(consensus, votes.truth, known)
    if out is not None:
        write_table(consensus.to_frame("items", kind="polars", probabilities=probabilities), out)
    if annotators is not None:
        write_table(consensus.to_frame("annotators", kind="polars"), annotators)
    if save is not None:
        consensus.save(save)
    if as_json:
        emit(json.dumps(terminal.facts(consensus, measured)))
    elif out is None and not sys.stdout.isatty():
        emit(consensus.to_frame("items", kind="polars", probabilities=probabilities).write_csv(), end="")
    if not as_json:
        terminal.show_consensus(consensus, measured, [p for p in (out, annotators, save) if p is not None])


@app.command()
def methods(as_json: JsonOption = False) -> None:
    """List the methods, or (with --json) all about their parameters."""
    from crowdwise import terminal
    from crowdwise.core.consensus import plain

    if not as_json:
        terminal.show_methods(registry.METHODS.values())
        return
    listed = [
        {
            "key": entry.key,
            "family": entry.family,
            "class": entry.class_name,
            "summary": entry.summary,
            "reference": entry.reference,
            "needs_truth": entry.load().needs_truth,
            "parameters": {name: plain(value) for name, value in entry.load().parameters().items()},
        }
        for entry in registry.METHODS.values()
    ]
    emit(json.dumps({"default": registry.DEFAULT, "methods": listed}))


@app.command()
def describe(
    path: PathArgument,
    on_duplicate: DuplicateOption = OnDuplicate.error,
    on_missing: MissingOption = OnMissing.error,
    item: ItemOption = None,
    annotator: AnnotatorOption = None,
    label: LabelOption = None,
    classes: ClassesOption = None,
    form: FormOption = Form.auto,
    as_json: JsonOption = False,
) -> None:
    """Show the shape of a file of votes: how many, by whom, on what, and how they spread."""
    from crowdwise import terminal

    votes = load(path, item, annotator, label, classes, form, on_duplicate, on_missing)
    if as_json:
        emit(json.dumps(votes.describe()))
    else:
        terminal.show_description(votes)


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
    set_: SetOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of everything random.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Make a crowd with known truth and known annotators.

    Example: `crowdwise simulate one-coin --out crowd --set n_items=1000 --set n_classes=3 --seed 7`
    """
    from crowdwise import terminal
    from crowdwise.data.simulate import SCENARIOS
    from crowdwise.errors import suggestion

    if scenario is None:
        terminal.show_scenarios(SCENARIOS)
        return
    if scenario not in SCENARIOS:
        raise ParameterError(
            f"Unknown scenario {scenario!r}: there are {', '.join(SCENARIOS)}.{suggestion(scenario, list(SCENARIOS))}"
        )
    if out is None:
        raise ParameterError("Say where to write the crowd: --out DIR.")
    params = assignments(set_)
    terminal.check_arguments(scenario, SCENARIOS[scenario], params)
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
        terminal.note(f"{crowd.votes} written to {out}")


@app.command()
def demo(
    seed: Annotated[int, typer.Option("--seed", help="Seed of everything random.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also keep the crowd and the consensus in this folder.", show_default=False),
    ] = None,
) -> None:
    """See it work: handwritten digits, labelled by a crowd of really trained weak classifiers.

    Spammers and copiers are among them.
    """
    from crowdwise.demo import run

    run(seed=seed, out=out)


bench = typer.Typer(help="Measure methods on data sets whose truth is known.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("labels")
def bench_labels(
    data: Annotated[
        Path | None,
        typer.Option("--data", help="A folder of dataset folders. [default: CROWDWISE_DATA]", show_default=False),
    ] = None,
    sets: Annotated[
        str | None, typer.Option("--sets", help="Which of them, comma-separated; else all.", show_default=False)
    ] = None,
    methods_: Annotated[
        str | None, typer.Option("--methods", help="Which methods, comma-separated; else all.", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds to average over.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Write the table here: .csv, .jsonl or .parquet; or all facts of the run: .json.",
            show_default=False,
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Write a page with all tables here: .md (Markdown).", show_default=False),
    ] = None,
    published: Annotated[
        Path | None,
        typer.Option(
            "--published",
            help="Figures of others to set beside, for the page: a CSV of data, method, accuracy, source, reason.",
            show_default=False,
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option("--from", help="Measure nothing: take the .json of an earlier run.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Every label-only method on every data set: accuracy (ties split), log loss, seconds.

    Methods see the votes alone; the truth only measures. Nothing is tuned.
    """
    import polars as pl

    from crowdwise import bench as runner
    from crowdwise import terminal

    check_outputs(out, endings=(*TABLES, ".json"))
    check_outputs(page, endings=(".md",))
    if published is not None and page is None:
        raise ParameterError("--published has figures for the page: say where it goes, --page results.md.")
    figures = [] if published is None else runner.read_published(published)
    if earlier is not None:
        given = {"--data": data, "--sets": sets, "--methods": methods_}
        if any(given.values()) or seeds != 1:
            raise ParameterError("--from takes an earlier run as it is: leave out --data, --sets, --methods, --seeds.")
        facts = runner.read_facts(earlier)
    else:
        facts = measured(data, sets, methods_, seeds)
    if out is not None and out.suffix.lower() == ".json":
        write_text(json.dumps(facts, indent=1) + "\n", out)
    elif out is not None:
        write_table(pl.DataFrame(facts["cells"]), out)
    if page is not None:
        write_text(runner.page(facts, figures), page)
    if as_json:
        emit(json.dumps(facts))
    else:
        terminal.show_bench(facts["data"], facts["methods"], [runner.Cell(**cell) for cell in facts["cells"]])


def measured(data: Path | None, sets: str | None, methods_: str | None, seeds: int) -> dict[str, Any]:
    """The facts of a run over the data sets and methods asked for, with progress."""
    from crowdwise import bench as runner
    from crowdwise import terminal

    folder = data or runner.data_folder()
    keys = [registry.find(key.strip()).key for key in methods_.split(",")] if methods_ else list(registry.METHODS)
    names = runner.find_sets(folder, [name.strip() for name in sets.split(",")] if sets else None)
    with terminal.steps(len(names) * len(keys)) as told:
        return runner.measure_all(folder, names, keys, seeds=seeds, told=told)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        emit(__version__)
        raise typer.Exit


# -------------------------------------------------------------------- the pieces


def load(
    path: Path,
    item: str | None,
    annotator: str | None,
    label: str | None,
    classes: str | None,
    form: Form,
    on_duplicate: OnDuplicate,
    on_missing: OnMissing,
) -> Any:
    """Votes from a file or a dataset folder."""
    from crowdwise.data.datasets import find_table, read_dataset
    from crowdwise.data.readers import read_votes

    options: dict[str, Any] = {
        "item": item,
        "annotator": annotator,
        "label": label,
        "form": form.value,
        "on_duplicate": on_duplicate.value,
        "on_missing": on_missing.value,
        "classes": None if classes is None else [c.strip() for c in classes.split(",")],
    }
    if not path.is_dir():
        return read_votes(path, **options)
    if find_table(path, "votes") is None and (path / "consensus.json").is_file():
        raise InputError(f"{path} holds a saved consensus, not votes: load it with crowdwise.Consensus.load.")
    return read_dataset(path, **options).votes


def assignments(given: list[str] | None) -> dict[str, Any]:
    """``["tol=1e-6", "prior=crowd"]`` as a dict; values are read as JSON where they are JSON, else as text."""
    out: dict[str, Any] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ParameterError(f"--set {text}: expected name=value, such as --set tol=1e-6.")
        try:
            out[name.strip()] = json.loads(value)
        except ValueError:
            out[name.strip()] = {"None": None, "True": True, "False": False}.get(value, value)
    return out


TABLES = (".csv", ".jsonl", ".parquet")


def check_outputs(*paths: Path | None, endings: Sequence[str] = TABLES) -> None:
    """Before the work is done: can the results be written where they should go?"""
    for path in paths:
        if path is None:
            continue
        if path.suffix.lower().replace(".ndjson", ".jsonl") not in endings:
            known = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
            raise ParameterError(f"Cannot tell how to write {path.name}: expected a name ending in {known}.")
        if path.is_dir():
            raise OutputError(f"{path} is a folder: name a file in it.")
        if not path.parent.is_dir():
            raise OutputError(f"There is no folder {path.parent} to write {path.name} to.")
        if not os.access(path.parent, os.W_OK):
            raise OutputError(f"The folder {path.parent} cannot be written to.")


def writer(path: Path) -> str | None:
    """The polars method that writes a file of this name."""
    return {".csv": "write_csv", ".jsonl": "write_ndjson", ".ndjson": "write_ndjson", ".parquet": "write_parquet"}.get(
        path.suffix.lower()
    )


def write_table(table: Any, path: Path) -> None:
    """Write a table, whole or not at all."""
    write_whole(getattr(table, str(writer(path))), path)


def write_text(text: str, path: Path) -> None:
    """Write a text, whole or not at all."""
    write_whole(lambda name: Path(name).write_text(text, encoding="utf-8"), path)


def write_whole(write: Callable[[str], Any], path: Path) -> None:
    """Write to a temporary file beside its place, then move it there."""
    import tempfile

    name: str | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        os.close(handle)
        write(name)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except OSError as error:
        raise OutputError(
            f"{path} could not be written: {error.strerror or error}. Nothing was left behind."
        ) from error
    finally:
        if name is not None and os.path.exists(name):
            os.unlink(name)


def say(text: str) -> None:
    """A line for people, to standard error."""
    from crowdwise import terminal

    terminal.note(text)


def emit(text: str, end: str = "\n") -> None:
    """Results, to standard output."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def main() -> None:
    """Run a command."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.showwarning = lambda message, *_, **__: say(f"Note: {message}")
        app()
