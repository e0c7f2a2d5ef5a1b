"""The command line: the app, its commands, and how errors are shown.

Standard output carries what was asked for; summaries, notes, progress and errors go to standard error.
Exit codes: 0, 1 for bad input, 2 for wrong usage, 130 when interrupted.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crowdwise import __version__
from crowdwise.cli.cmd_active import active
from crowdwise.cli.cmd_aggregate import aggregate, rank
from crowdwise.cli.cmd_agreement import agreement
from crowdwise.cli.cmd_bench import bench
from crowdwise.cli.cmd_campaign import campaign
from crowdwise.cli.cmd_compare import compare
from crowdwise.cli.cmd_demo import demo
from crowdwise.cli.cmd_describe import describe
from crowdwise.cli.cmd_learn import learn, predict
from crowdwise.cli.cmd_methods import methods
from crowdwise.cli.cmd_report import diagnose, report
from crowdwise.cli.cmd_simulate import simulate
from crowdwise.cli.options import flag
from crowdwise.cli.outputs import emit, say
from crowdwise.data import disk
from crowdwise.errors import ConvergenceWarning, CrowdwiseError, ParameterError


def written() -> str:
    """What this process has written so far, as a sentence."""
    if not disk.done:
        return "No file was written."
    return f"Written before that: {', '.join(map(str, dict.fromkeys(disk.done)))}."


class Commands(TyperGroup):
    """The commands, with errors turned into a line on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        words = [*ctx._protected_args, *ctx.args]
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except CrowdwiseError as error:
            options = self.options(words)
            say(f"Error: {error.worded(lambda option: flag(option, options))}")
            ctx.exit(2 if isinstance(error, ParameterError) else 1)
        except KeyboardInterrupt:
            say(f"Interrupted. {written()}")
            ctx.exit(130)
        except BrokenPipeError:
            abandon_stdout()
            ctx.exit(1)
        except OSError as error:
            where = "Standard output" if error.filename is None else error.filename
            say(f"Error: {where} could not be written or read: {error.strerror or error}.")
            abandon_stdout()
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
for command in (
    aggregate, report, diagnose, agreement, learn, predict, compare, rank, methods, describe, simulate, demo,
):  # fmt: skip
    app.command()(command)
for name, commands in (("bench", bench), ("campaign", campaign), ("active", active)):
    app.add_typer(commands, name=name)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        emit(__version__)
        raise typer.Exit


def abandon_stdout() -> None:
    """What is still to be written is dropped, so that the interpreter does not fail on it at its end."""
    with contextlib.suppress(OSError, ValueError):  # no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # words for people: a terminal without UTF-8 shows what it can
    with warnings.catch_warnings():
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.showwarning = lambda message, *_, **__: say(f"Note: {message}")
        app()
