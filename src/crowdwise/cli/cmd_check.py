"""``crowdwise check`` (what is in a file, what looks wrong, the command that fixes it) and ``crowdwise describe``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdwise.cli import options as opt
from crowdwise.cli.options import DEFAULT_READING, JsonOption, PathArgument, Reading, load, option, reads
from crowdwise.cli.outputs import as_typed, check_apart, check_outputs, emit, say, write_table
from crowdwise.data.heavy import pl

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
    file_check = checked(Opened(path, reading.answers, None, reading.options()))
    if "file" in file_check.facts and as_typed(str(path)) != str(path):
        file_check.facts["file"] = "-"
    if write_map is not None:
        rows = [(str(p.found), str(p.proposed), p.votes, p.why) for p in file_check.proposals]
        names = {"from": pl.String, "to": pl.String, "votes": pl.Int64, "why": pl.String}
        write_table(pl.DataFrame(rows, schema=names, orient="row"), write_map)
        say(f"written: {write_map}")
    if as_json:
        emit(json.dumps(file_check.to_dict(_spell) | {"command": _command(file_check, reading)}, ensure_ascii=False))
    else:
        _show(file_check, reading)
    if file_check.error is not None:
        raise typer.Exit(1)


def _spell(named: Option) -> str | None:
    return opt.flag(named, FLAGS)


def _command(file_check: FileCheck, reading: opt.Reading) -> str:
    """The command that reads the file as it should be; nothing where nothing fixes it."""
    from dataclasses import replace

    given = {name: value for name, value in reading.options().items() if name != "classes"}
    given |= {"answer_type": reading.answers} if reading.answers else {}
    return replace(file_check, options={**given, **file_check.options}).command(opt.FLAGS) if file_check.options else ""


def _show(file_check: FileCheck, reading: opt.Reading) -> None:
    from crowdwise.cli import show
    from crowdwise.file_check import facts_in_words, fix_of

    screen = show.console(stderr=False)
    for line in facts_in_words(file_check.facts):
        screen.print(line, soft_wrap=True, markup=False)
    for finding in file_check.findings:
        text = as_typed(" ".join(filter(None, (finding.message, fix_of(finding, _spell)))))
        screen.print(f"- {text}", soft_wrap=True, markup=False)
    if file_check.proposals:
        table = show.new_table("found", "votes", "proposed", "why", title="Labels that look like others")
        for p in file_check.proposals:
            table.add_row(repr(p.found), f"{p.votes:,}", repr(p.proposed), p.why)
        screen.print(table)
    if not file_check.findings and not file_check.proposals:
        screen.print("Nothing looks wrong.")
    if file_check.error is not None:
        screen.print("The answers could not be read: fix the last of these first.")
    if file_check.options.get("label_map"):
        file = file_check.facts.get("file", "FILE")
        screen.print(f"Look through the labels first: crowdwise check {file} --write-map labels.csv", soft_wrap=True)
    command = _command(file_check, reading)
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
