"""``crowdwise check`` (what is in a file, what looks wrong, the command that fixes it) and ``crowdwise describe``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdwise.cli import options as opt
from crowdwise.cli.options import DEFAULT_READING, JsonOption, PathArgument, Reading, load, option, reads
from crowdwise.cli.outputs import as_typed, check_apart, check_outputs, emit, say, write_table

if TYPE_CHECKING:
    from crowdwise.errors import Option
    from crowdwise.file_check import FileCheck


WriteMapOption = Annotated[
    Path | None,
    option("--write-map", help="Write the proposals for labels here (.csv: from, to, votes, why), to look through."),
]
FLAGS = {*opt.GROUPS["Reading the file"], "--answers"}


@opt.reads
def check(
    path: opt.PathArgument, reading: opt.Reading = opt.DEFAULT_READING, write_map: WriteMapOption = None,
    as_json: opt.JsonOption = False,
) -> None:  # fmt: skip
    """Say what is in a file of answers, what looks wrong, and the command that fixes it.

    Format, sheet, header row, columns and their roles, questions, annotators, classes, duplicates (identical and
    conflicting), labels that look like others. Nothing is computed and nothing is changed.

    Examples:

    `crowdwise check labels.xlsx`

    `crowdwise check labels.csv --write-map map.csv`, then `crowdwise aggregate labels.csv --map map.csv`
    """
    from crowdwise.file_check import checked
    from crowdwise.reading import Opened

    check_outputs(write_map)
    check_apart([path], [write_map])
    found = checked(Opened(path, reading.answers, None, reading.options()))
    if "file" in found.facts and as_typed(str(path)) != str(path):
        found.facts["file"] = "-"
    if write_map is not None:
        _write_map(found, write_map)
    if as_json:
        emit(json.dumps(found.to_dict(_spell) | {"command": _command(found, reading)}, ensure_ascii=False))
    else:
        _show(found, reading)
    if found.error is not None:
        raise typer.Exit(1)


def _spell(named: Option) -> str | None:
    return opt.flag(named, FLAGS)


def _command(found: FileCheck, reading: opt.Reading) -> str:
    """The command that reads the file as it should be; nothing where nothing fixes it."""
    from dataclasses import replace

    given = {name: value for name, value in reading.options().items() if name != "classes"}
    given |= {"answer_type": reading.answers} if reading.answers else {}
    return replace(found, options={**given, **found.options}).command(opt.FLAGS) if found.options else ""


def _write_map(found: FileCheck, target: Path) -> None:
    import polars as pl

    rows = [(str(p.found), str(p.proposed), p.votes, p.why) for p in found.proposals]
    names = {"from": pl.String, "to": pl.String, "votes": pl.Int64, "why": pl.String}
    write_table(pl.DataFrame(rows, schema=names, orient="row"), target)
    say(f"written: {target}")


def _show(found: FileCheck, reading: opt.Reading) -> None:
    from crowdwise.cli import show
    from crowdwise.file_check import facts_in_words, fix_of

    screen = show.console(stderr=False)
    for line in facts_in_words(found.facts):
        screen.print(line, soft_wrap=True, markup=False)
    for said in found.findings:
        text = as_typed(" ".join(filter(None, (said.message, fix_of(said, _spell)))))
        screen.print(f"- {text}", soft_wrap=True, markup=False)
    if found.proposals:
        table = show.new_table("found", "votes", "proposed", "why", title="Labels that look like others")
        for p in found.proposals:
            table.add_row(repr(p.found), f"{p.votes:,}", repr(p.proposed), p.why)
        screen.print(table)
    if not found.findings and not found.proposals:
        screen.print("Nothing looks wrong.")
    if found.error is not None:
        screen.print("The answers could not be read: fix the last of these first.")
    if found.options.get("label_map"):
        file = found.facts.get("file", "FILE")
        screen.print(f"Look through the labels first: crowdwise check {file} --write-map labels.csv", soft_wrap=True)
    command = _command(found, reading)
    if command:
        screen.print(f"To fix it: {command}", soft_wrap=True, markup=False)


@reads
def describe(path: PathArgument, reading: Reading = DEFAULT_READING, as_json: JsonOption = False) -> None:
    """Show the shape of a file of answers: counts, annotators and how they spread."""
    from crowdwise.cli import show_aggregate
    from crowdwise.trust.annotators import coverage_table

    table = load(path, reading).table
    if as_json:
        facts = {"answer_type": table.answer_type, **table.describe()}
        if show_aggregate.is_of_rules(table):
            facts["coverage"] = coverage_table(table, kind="polars").fill_nan(None).to_dicts()
        emit(json.dumps(facts))
    else:
        show_aggregate.show_description(table)
