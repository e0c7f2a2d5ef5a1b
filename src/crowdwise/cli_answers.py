"""What the command line does with answers beyond classes: find out their kind, read them, fit, write the tables."""

from __future__ import annotations

import inspect
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise import registry
from crowdwise.cli_parts import check_outputs, emit, say, write_table
from crowdwise.errors import ParameterError, suggestion

Answers = StrEnum("Answers", {kind: kind for kind in registry.ANSWERS if kind != "linked"})  # type: ignore[misc]
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


def listed(kind: str | None) -> list[registry.Entry]:
    """The methods for other answers than classes, in the order of the kinds; only those of one, where it is named."""
    kinds = list(registry.ANSWERS)
    if kind is not None and kind not in (*kinds, "all", "beyond"):
        raise ParameterError(f"--answers {kind}: expected {', '.join(kinds)} or all.{suggestion(kind, kinds)}")
    wanted = [kind] if kind in kinds else kinds
    return [entry for name in wanted for entry in registry.BEYOND.values() if entry.family == name]


def kind_of(path: Path, asked: Answers | None, method: str | None) -> str:
    """The kind of answers: what was asked for, what the method is for, else a guess, which is said aloud."""
    if asked is not None:
        return asked.value
    if method in registry.BEYOND:
        return registry.BEYOND[method].family
    if method is not None or path.is_dir() or not path.is_file():
        return "classes"
    from crowdwise.data.kinds import glance, guess

    head = glance(path)
    if head is None:
        return "classes"
    found = guess(head.columns, {name: head[name].to_list() for name in head.columns})
    if found.kind != "classes":
        say(f"Note: read as {found.kind}, since {found.reason}. If that is wrong: --answers classes, say.")
    return found.kind


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
    as_json: bool,
    probabilities: bool,
) -> None:
    """Read answers of some kind, fit a method for them, and write what came out."""
    from crowdwise import terminal

    check_outputs(out, annotators)
    key = registry.ANSWERS[kind][0] if method is None else method
    entry = registry.find(key) if kind == "grades" and key in registry.METHODS else registry.find_beyond(key, kind)
    if entry.inputs:
        raise ParameterError(
            f"{key} looks at inputs as well, which `crowdwise aggregate` has no place for: use it from Python, "
            f"{entry.class_name}(...).fit(X, answers)."
        )
    model = registry.create(key, **params) if key in registry.METHODS else registry.create_beyond(key, kind, **params)
    answers = _read(path, kind, options | _columns(columns))
    known: dict[str, Any] = {}
    if gold is not None:
        if "truth" not in inspect.signature(model.fit).parameters:
            raise ParameterError(f"--gold: {key} has no use for known truth. Use --truth to measure with it.")
        known["truth"] = _truth(gold, kind)
    true = None if truth is None else _truth(truth, kind)
    with terminal.progress(key) as callback:
        result = model.fit(answers, callback=callback, **known).consensus_
    measured = {} if true is None else _measured(kind, result, true, known.get("truth"))
    if truth is None and kind == "grades" and answers.truth is not None:
        measured = _measured(kind, result, answers.truth, None)
    items = _items(result, probabilities)
    if out is not None:
        write_table(items, out)
    if annotators is not None:
        write_table(result.to_frame("annotators", kind="polars"), annotators)
    if save is not None:
        result.save(save)
    if as_json:
        emit(json.dumps(facts(kind, result, measured)))
        return
    if out is None and not sys.stdout.isatty():
        emit(items.write_csv(), end="")
    show(kind, result, items, measured, [p for p in (out, annotators, save) if p is not None])


def facts(kind: str, result: Any, measured: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of ``crowdwise aggregate --json`` for answers beyond classes."""
    out: dict[str, Any] = {
        "method": result.method,
        "answers": kind,
        "items": len(result.item_names),
        "annotators": len(result.annotator_names),
        "votes": result.n_votes,
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
    from crowdwise import terminal

    screen = terminal.console()
    screen.print()
    screen.print(
        f"[bold]{result.method}[/bold] ({kind}): {len(result.item_names):,} items, "
        f"{len(result.annotator_names):,} annotators, {result.n_votes:,} answers"
    )
    screen.print(f"{result.iterations} passes, {result.seconds:.2f} s")
    for name, estimate in measured.items():
        screen.print(
            f"{name.replace('_', ' ')} on {estimate.n:,} items with truth: [bold]{estimate.value:.4f}[/bold] "
            f"(95% from {estimate.low:.4f} to {estimate.high:.4f})"
        )
    for title, table in (("Items", items), ("Annotators", result.to_frame("annotators", kind="polars"))):
        screen.print()
        screen.print(terminal.frame_table(title, table))
    if written:
        screen.print()
        screen.print("written: " + ", ".join(str(p) for p in written), markup=False, soft_wrap=True)


# -------------------------------------------------------------------- the pieces


def _read(path: Path, kind: str, options: dict[str, Any]) -> Any:
    """A file of answers; options that its reader does not know are refused."""
    from crowdwise.data.kinds import reader

    read = reader(kind)
    known = [name for name in inspect.signature(read).parameters if name != "path"]
    for name in options:
        if name not in known:
            raise ParameterError(
                f"{name} does not apply to {kind}: their files have {', '.join(known)}.{suggestion(name, known)}"
            )
    return read(path, **options)


def _columns(given: list[str] | None) -> dict[str, str]:
    out = {}
    for text in given or []:
        part, equals, name = text.partition("=")
        if not equals or not part.strip() or not name.strip():
            raise ParameterError(f"--column {text}: expected part=name, such as --column item_a=left.")
        out[part.strip()] = name.strip()
    return out


def _truth(path: Path, kind: str) -> Any:
    if kind == "sets":
        from crowdwise.data.labelsets import read_sets

        return read_sets(path)
    if kind in ("similar", "grades"):
        from crowdwise.data.readers import read_truth

        return read_truth(path)
    raise ParameterError(f"--truth and --gold do not apply to {kind} on the command line: measure them in Python.")


def _measured(kind: str, result: Any, truth: Any, used: Any) -> dict[str, Any]:
    """Figures with intervals, by name."""
    from crowdwise import metrics

    if kind == "similar":
        return {
            "accuracy": metrics.cluster_accuracy(result, truth),
            "mutual_information": metrics.mutual_information(result, truth),
            "adjusted_rand": metrics.adjusted_rand(result, truth),
        }
    if kind == "sets":
        return {
            "f1": metrics.set_f1(result, truth),
            "jaccard": metrics.jaccard(result, truth),
            "subset_accuracy": metrics.subset_accuracy(result, truth),
        }
    from crowdwise import terminal

    measured = terminal.measure(result, result.truth_codes(truth), None if used is None else result.truth_codes(used))
    return {} if measured is None else {"accuracy": measured}


def _items(result: Any, probabilities: bool) -> Any:
    """The table of items; with the probability of every class where the result has them."""
    takes = "probabilities" in inspect.signature(result.to_frame).parameters
    if probabilities and not takes:
        raise ParameterError(f"--probabilities: a {type(result).__name__} has no classes. Leave it out.")
    return result.to_frame("items", kind="polars", **({"probabilities": True} if probabilities else {}))
