"""The command line: the app, its commands, and how errors are shown.

Standard output carries what was asked for; summaries, notes, progress and errors go to standard error.
Exit codes: 0, 1 for bad input, 2 for wrong usage, 3 for a mistake in crowdwise itself, 130 when interrupted.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crowdwise import __version__
from crowdwise.cli.options import flag
from crowdwise.cli.outputs import emit, say, spreadsheet_safe
from crowdwise.cli.piped import as_typed
from crowdwise.data import disk
from crowdwise.errors import (
    ConnectionWarning,
    ConvergenceWarning,
    CrowdwiseError,
    InputWarning,
    InternalError,
    ParameterError,
    Worded,
)  # fmt: skip

ANYWHERE = ("--debug", "--spreadsheet-safe")
"""Options of every command."""
USAGE: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
"""The base of the errors in what was typed. (Some versions of typer have click inside.)"""


def bug(message: str) -> str:
    """What to report of a mistake in crowdwise."""
    import platform
    from importlib import metadata

    versions = " ".join(f"{name} {metadata.version(name)}" for name in ("polars", "numpy", "numba"))
    return (
        f"{message}. This is a mistake in crowdwise, not in your data: please report this line, with the command and "
        f"what --debug adds. (crowdwise {__version__}, Python {platform.python_version()}, {versions})"
    )


def written() -> str:
    """What this process has written so far, as a sentence."""
    if not disk.done:
        return "No file was written."
    return f"Written before that: {', '.join(map(str, dict.fromkeys(disk.done)))}."


def worded(said: Any, options: set[str]) -> str:
    """An error or a warning in the words of a command with such options."""
    return said.worded(lambda option: flag(option, options)) if isinstance(said, Worded) else str(said)


class Commands(TyperGroup):
    """The commands, with errors turned into a line on standard error and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``--debug`` and ``--spreadsheet-safe`` may stand anywhere before ``--``."""
        before = args[: args.index("--")] if "--" in args else args
        ctx.meta["debug"] = "--debug" in before
        spreadsheet_safe.set("--spreadsheet-safe" in before)
        args = [word for word in before if word not in ANYWHERE] + args[len(before) :]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            for kind in (ConvergenceWarning, ConnectionWarning, InputWarning):
                warnings.simplefilter("always", kind)
            options = self.options([*ctx._protected_args, *ctx.args])
            warnings.showwarning = lambda message, *_, **__: say(f"Note: {worded(message, options)}")
            return self.answer(ctx, options)

    def answer(self, ctx: Any, options: set[str]) -> Any:
        """Run the command, and turn what it raises into a line and an exit code."""
        try:
            return self.run(ctx)
        except InternalError as error:
            self.trace(ctx, error)
            say(f"Error: {bug(error.message)}")
            ctx.exit(3)
        except CrowdwiseError as error:
            self.trace(ctx, error)
            say(f"Error: {as_typed(worded(error, options))}")
            ctx.exit(2 if isinstance(error, ParameterError) else 1)
        except KeyboardInterrupt:
            say(f"Interrupted. {written()}")
            ctx.exit(130)
        except BrokenPipeError:
            abandon_stdout()
            ctx.exit(1)
        except OSError as error:
            self.trace(ctx, error)
            where = "Standard output" if error.filename is None else error.filename
            say(f"Error: {where} could not be written or read: {error.strerror or error}.")
            abandon_stdout()
            ctx.exit(1)

    def run(self, ctx: Any) -> Any:
        """Run the command; what is none of our errors is a mistake of ours."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (CrowdwiseError, OSError, Warning, USAGE, typer.Exit, typer.Abort):
            raise
        except Exception as error:
            from crowdwise.data.boundary import blame

            raise InternalError(blame(error)) from error

    def trace(self, ctx: Any, error: BaseException) -> None:
        """With ``--debug``: where the error was raised, and what caused it."""
        if ctx.meta.get("debug"):
            import traceback

            say("".join(traceback.format_exception(error)).rstrip())

    def options(self, words: list[str]) -> set[str]:
        """The options of the command that some words call."""
        command: Any = self
        for word in words:
            command = getattr(command, "commands", {}).get(word)
            if not hasattr(command, "commands"):
                break
        return {name for parameter in getattr(command, "params", []) for name in parameter.opts}


NAMES = (
    "aggregate", "report", "diagnose", "agreement", "learn", "predict", "compare", "rank", "methods", "describe",
    "gold", "simulate", "demo", "bench", "campaign", "active", "import", "export", "label-studio", "serve",
)  # fmt: skip
"""The commands, in the order of the help."""


def find_command(name: str) -> Any:
    """The function of a command, or the app of a group of them. Only its own module is imported, which is quicker."""
    match name:
        case "aggregate":
            from crowdwise.cli import cmd_aggregate

            return getattr(cmd_aggregate, name)
        case "rank":
            from crowdwise.cli import cmd_rank

            return getattr(cmd_rank, name)
        case "report" | "diagnose":
            from crowdwise.cli import cmd_report

            return getattr(cmd_report, name)
        case "agreement":
            from crowdwise.cli import cmd_agreement

            return getattr(cmd_agreement, name)
        case "learn" | "predict":
            from crowdwise.cli import cmd_learn

            return getattr(cmd_learn, name)
        case "compare":
            from crowdwise.cli import cmd_compare

            return getattr(cmd_compare, name)
        case "methods":
            from crowdwise.cli import cmd_methods

            return getattr(cmd_methods, name)
        case "gold":
            from crowdwise.cli import cmd_gold

            return getattr(cmd_gold, name)
        case "describe":
            from crowdwise.cli import cmd_describe

            return getattr(cmd_describe, name)
        case "export":
            from crowdwise.cli import cmd_export

            return cmd_export.export
        case "label-studio":
            from crowdwise.cli import cmd_label_studio

            return cmd_label_studio.label_studio
        case "import":
            from crowdwise.cli import cmd_import

            return cmd_import.import_
        case "simulate":
            from crowdwise.cli import cmd_simulate

            return getattr(cmd_simulate, name)
        case "demo":
            from crowdwise.cli import cmd_demo

            return getattr(cmd_demo, name)
        case "bench":
            from crowdwise.cli import cmd_bench

            return getattr(cmd_bench, name)
        case "serve":
            from crowdwise.cli import cmd_serve

            return getattr(cmd_serve, name)
        case "campaign":
            from crowdwise.cli import cmd_campaign

            return getattr(cmd_campaign, name)
        case "active":
            from crowdwise.cli import cmd_active

            return getattr(cmd_active, name)
    raise AttributeError(f"There is no command {name!r}.")


def make_app(names: Iterable[str] = NAMES) -> typer.Typer:
    """The app with these commands."""
    made = typer.Typer(
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
    made.callback(invoke_without_command=True)(root)
    for name in names:
        command = find_command(name)
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            made.command(name)(command)
    return made


def __getattr__(name: str) -> Any:
    """``app``: the app with all commands."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = made = make_app()
    return made


def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where errors come from, in any command.")] = False,
    spreadsheet_safe: Annotated[
        bool, typer.Option("--spreadsheet-safe", help="CSV in which no cell is a formula, from any command.")
    ] = False,
) -> None:
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
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 shows what it can
    try:
        app = make_app([word] if (word := next(iter(sys.argv[1:]), "")) in NAMES else NAMES)
    except KeyboardInterrupt:
        sys.exit(130)
    app()
