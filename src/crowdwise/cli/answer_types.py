"""What the command line does with answers beyond classes: find out their kind, read them, fit, write the tables."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli.options import Form, Reading, check_outputs, emit, say, write_table
from crowdwise.data.folders import write_text
from crowdwise.errors import InputError, ParameterError, ReadError, suggestion

if TYPE_CHECKING:
    from crowdwise.data.guess import Guess

Answers = StrEnum("Answers", {kind: kind for kind in registry.ANSWER_TYPES if kind != "graph"})  # type: ignore[misc]
"""The kinds that a file can hold; linked items also need a graph."""

AnswersOption = Annotated[
    Answers | None,
    typer.Option("--answers", help="The kind of answers; by default told from the columns.", show_default=False),
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="A column that is called otherwise, as part=name, such as item_a=left; repeat for more.",
        show_default=False,
    ),
]


def refuse_columns(given: list[str] | None) -> None:
    """Of classes, columns have options of their own."""
    if given:
        raise ParameterError(
            "--column is for other answer types than votes: name columns with --item, --annotator, --label."
        )


def listed(kind: str | None) -> list[registry.Entry]:
    """The methods for other answers than classes, in the order of the kinds; only those of one, where it is named."""
    kinds = list(registry.ANSWER_TYPES)
    if kind is not None and kind not in (*kinds, "all", "beyond"):
        raise ParameterError(f"--answers {kind}: expected {', '.join(kinds)} or all.{suggestion(kind, kinds)}")
    wanted = [kind] if kind in kinds else kinds
    return [entry for name in wanted for entry in registry.ANSWER_METHODS.values() if entry.answer_type == name]


def kind_of(path: Path, asked: Answers | None, method: str | None) -> str:
    """The kind of answers: what was asked for, what the method is for, else a guess, which is said aloud.

    A dataset folder is taken for classes; what its votes look like is said all the same.
    """
    if asked is not None:
        return asked.value
    if method in registry.ANSWER_METHODS:
        return registry.ANSWER_METHODS[method].answer_type
    if method is not None:
        return "votes"
    found = _guessed(path)
    if found is None:
        return "votes"
    other = found.doubt or (found.kind if path.is_dir() and found.kind != "votes" else "")
    if other:
        say(f"Note: read as votes. They may be {other}, since {found.reason}: --answers {other}, then.")
        return "votes"
    if found.kind != "votes":
        say(f"Note: read as {found.kind}, since {found.reason}. If that is wrong: --answers votes, say.")
    return found.kind


def check_classes(path: Path, command: str, reading: Reading) -> None:
    """Before a command that knows votes alone reads a file: are these answers of another kind?

    Whoever names the label column, or the form, has said that they are votes. A dataset folder is taken for votes.
    """
    said = reading.label is not None or reading.form is not Form.auto
    found = None if said else _guessed(path)
    if found is None or (found.kind == "votes" and not found.doubt):
        return
    other = found.doubt or found.kind
    if found.doubt or path.is_dir():
        say(f"Note: read as votes. They may be {other}, since {found.reason}: see `crowdwise aggregate`, then.")
        return
    raise InputError(
        f"{path} holds {other}, since {found.reason}, and `crowdwise {command}` is about votes. For {other}, "
        "`crowdwise aggregate` and `crowdwise report` say what is in them; if these are votes, name their column: "
        "--label NAME."
    )


def _guessed(path: Path) -> Guess | None:
    """The kind of answers in a file (or a dataset folder), by its first rows; ``None`` where these cannot be read."""
    from crowdwise.data.guess import glance, guess

    file = _table_in(path, "votes") if path.is_dir() else path
    head = glance(file) if file is not None and file.is_file() else None
    return None if head is None else guess(head.columns, {name: head[name].to_list() for name in head.columns})


@dataclass(frozen=True)
class Fitted:
    """Answers, what a method found in them, and how good that is where the truth is known."""

    answers: Any
    result: Any
    measured: dict[str, Any]
    truth: Any
    known: Any


def fitted(
    path: Path,
    kind: str,
    method: str | None,
    params: dict[str, Any],
    options: dict[str, Any],
    columns: list[str] | None,
    truth: Path | None,
    gold: Path | None,
) -> Fitted:
    """Read answers of some kind (a file, or those of a dataset folder) and fit a method for them."""
    from crowdwise.cli import show as terminal
    from crowdwise.metrics.measures import measure

    key = registry.ANSWER_TYPES[kind].default if method is None else method
    model = registry.create(key, kind, **params)
    if path.is_dir():
        folder, file = path, _table_in(path, "votes")
        if file is None:
            raise ReadError(f"{folder} has no table of answers: expected labels.csv (or .parquet, .jsonl, ...) in it.")
        path = file
        if truth is None and kind not in (
            "comparisons",
            "rankings",
        ):  # their truth is a score, which no set says it holds
            truth = _table_in(folder, "truth")
    answers = _read(path, kind, options | _columns(columns))
    known: dict[str, Any] = {}
    if gold is not None:
        if "gold" not in inspect.signature(model.fit).parameters:
            raise ParameterError(f"--gold: {key} has no use for known truth. Use --truth to measure with it.")
        known["gold"] = _truth(gold, kind)
    true = None if truth is None else _truth(truth, kind)
    with terminal.progress(key) as callback:
        result = model.fit(answers, callback=callback, **known).consensus_
    measured = measure(kind, answers, result, true, gold=known.get("gold"))
    return Fitted(answers, result, measured, true, known.get("gold"))


def run(
    path: Path,
    kind: str,
    method: str | None,
    params: dict[str, Any],
    options: dict[str, Any],
    columns: list[str] | None,
    truth: Path | None,
    gold: Path | None,
    out: Path | None,
    annotators: Path | None,
    save: Path | None,
    report: Path | None,
    as_json: bool,
    probabilities: bool,
) -> None:
    """Read answers of some kind, fit a method for them, and write what came out."""
    check_outputs(out, annotators)
    found = fitted(path, kind, method, params, options, columns, truth, gold)
    result, measured = found.result, found.measured
    items = _items(result, probabilities)
    if out is not None:
        write_table(items, out)
    if annotators is not None:
        write_table(result.to_frame("annotators", kind="polars"), annotators)
    if save is not None:
        result.save(save)
    if report is not None:
        from crowdwise.report.page import page

        write_text(page(reported(found, path.name)), report)
    if as_json:
        emit(json.dumps(facts(kind, result, measured)))
        return
    if out is None and not sys.stdout.isatty():
        emit(items.write_csv(), end="")
    show(kind, result, items, measured, [p for p in (out, annotators, save, report) if p is not None])


def reported(found: Fitted, title: str, level: float = 0.05) -> dict[str, Any]:
    """The dict of a report on some answers."""
    from crowdwise.data.votes import Votes
    from crowdwise.report.build import build_report

    gold = found.known if isinstance(found.answers, Votes) else None
    return build_report(
        found.answers, found.result, truth=found.truth, gold=gold, title=title, level=level, all_items=True
    )


def facts(kind: str, result: Any, measured: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of ``crowdwise aggregate --json`` for answers beyond classes."""
    out: dict[str, Any] = {
        "method": result.method,
        "answer_type": kind,
        "items": len(result.item_names),
        "annotators": len(result.annotator_names),
        "votes": result.n_answers,
        "iterations": result.iterations,
        "converged": result.converged,
        "objective": float(result.trace[-1]) if len(result.trace) else None,
        "seconds": round(result.seconds, 4),
    }
    for name, estimate in measured.items():
        out |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return out


def show(kind: str, result: Any, items: Any, measured: dict[str, Any], written: list[Path]) -> None:
    """A summary for people, to standard error."""
    from crowdwise.cli import show as terminal

    screen = terminal.console()
    screen.print()
    screen.print(
        f"[bold]{result.method}[/bold] ({kind}): {len(result.item_names):,} items, "
        f"{len(result.annotator_names):,} annotators, {result.n_answers:,} answers"
    )
    screen.print(f"{result.iterations} passes, {result.seconds:.2f} s")
    for name, estimate in measured.items():
        screen.print(
            f"{name.replace('_', ' ')} on {estimate.n:,} items with truth: [bold]{estimate.value:.4f}[/bold] "
            f"(95% from {estimate.low:.4f} to {estimate.high:.4f})"
        )
    if "leaderboard" in result.TABLES:
        from crowdwise.cli.show_rank import annotator_table, leaderboard

        for told in result.notes:
            screen.print(f"Note: {told}", markup=False, soft_wrap=True)
        tables = [leaderboard(result), annotator_table(result)]
    else:
        people = result.to_frame("annotators", kind="polars")
        tables = [terminal.frame_table("Items", items), terminal.frame_table("Annotators", people)]
    for table in tables:
        screen.print()
        screen.print(table)
    if written:
        screen.print()
        screen.print("written: " + ", ".join(str(p) for p in written), markup=False, soft_wrap=True)


# -------------------------------------------------------------------- the pieces


def _read(path: Path, kind: str, options: dict[str, Any]) -> Any:
    """A file of answers; options that its reader does not know are refused."""
    from crowdwise.data.guess import TABLES

    if kind in ANSWER and "label" in options:
        options[ANSWER[kind]] = options.pop("label")
    read = TABLES[kind].read
    known = [name for name in inspect.signature(read).parameters if name != "path"]
    for name in options:
        if name not in known:
            raise ParameterError(
                f"{name} does not apply to {kind}: their files have {', '.join(known)}.{suggestion(name, known)}"
            )
    return read(path, **options)


ANSWER = {"ratings": "value", "tags": "tag", "comparisons": "outcome"}
"""What --label names, where the answer is not called a label."""


def _columns(given: list[str] | None) -> dict[str, str]:
    out = {}
    for text in given or []:
        part, equals, name = text.partition("=")
        if not equals or not part.strip() or not name.strip():
            raise ParameterError(f"--column {text}: expected part=name, such as --column item_a=left.")
        out[part.strip()] = name.strip()
    return out


def _truth(path: Path, kind: str) -> Any:
    """What a file of truth says; of comparisons and rankings that is the true score of each item."""
    from crowdwise.data.guess import TABLES

    return TABLES[kind].read_truth(path)


def _table_in(folder: Path, part: str) -> Path | None:
    from crowdwise.data.dataset import find_table

    return find_table(folder, part)


def _items(result: Any, probabilities: bool) -> Any:
    """The table of items; with the probability of every class where the result has them."""
    takes = "probabilities" in inspect.signature(result.to_frame).parameters
    if probabilities and not takes:
        raise ParameterError(f"--probabilities: a {type(result).__name__} has no classes. Leave it out.")
    return result.to_frame("items", kind="polars", **({"probabilities": True} if probabilities else {}))
