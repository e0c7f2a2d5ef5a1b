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
from collections.abc import Container
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crowdwise import __version__
from crowdwise.cli.outputs import as_typed, decimal_comma, emit, say, spreadsheet_safe
from crowdwise.errors import (
    ConnectionWarning,
    ConvergenceWarning,
    CrowdwiseError,
    InputWarning,
    InternalError,
    ParameterError,
    UserFacingError,
)  # fmt: skip

ANYWHERE = ("--debug", "--spreadsheet-safe", "--decimal-comma")
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
    from crowdwise.data import folders

    if not folders.done:
        return "No file was written."
    return f"Written before that: {', '.join(map(str, dict.fromkeys(folders.done)))}."


def for_cli(message: Any, options: set[str]) -> str:
    """An error or a warning in the words of a command with such options."""
    if not isinstance(message, UserFacingError):
        return str(message)
    from crowdwise.cli.options import flag

    return message.for_cli(lambda option: flag(option, options))


class Commands(TyperGroup):
    """The commands, with errors turned into a line on standard error and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``--debug``, ``--spreadsheet-safe`` and ``--decimal-comma`` may stand anywhere before ``--``."""
        before = args[: args.index("--")] if "--" in args else args
        ctx.meta["debug"] = "--debug" in before
        spreadsheet_safe.set("--spreadsheet-safe" in before)
        decimal_comma.set("--decimal-comma" in before)
        args = [word for word in before if word not in ANYWHERE] + args[len(before) :]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            for kind in (ConvergenceWarning, ConnectionWarning, InputWarning):
                warnings.simplefilter("always", kind)
            options = self.options([*ctx._protected_args, *ctx.args])
            warnings.showwarning = lambda message, *_, **__: say(f"Note: {for_cli(message, options)}")
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
            say(f"Error: {as_typed(for_cli(error, options))}")
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


LABELS, CLASSIFIERS, COLLECTING, TOOLS, TRYING = (
    "Labels", "Classifiers", "Collecting labels", "Annotation tools", "Trying it out"
)  # fmt: skip
COMMANDS = {
    "check": ("check", LABELS, "Say what is in a file of answers, what looks wrong, and the command that fixes it."),
    "aggregate": ("aggregate", LABELS, "Turn votes into one label per item, with probabilities."),
    "report": ("report", LABELS, "Write one page on how reliable annotators and labels are, and what to review."),
    "diagnose": ("report", LABELS, "Say in sentences what is wrong with some answers: the report's short form."),
    "certify": ("gold", LABELS, "Release the labels that random gold labels prove: at most 5 % of them are wrong."),
    "estimate": ("gold", LABELS, "Estimate shares, means and differences of all items from a few gold labels."),
    "describe": ("check", LABELS, "Show the shape of a file of answers: counts, annotators and how they spread."),
    "agreement": ("agreement", LABELS, "Measure how much annotators agree beyond chance, with intervals."),
    "alternative-test": ("agreement", LABELS, "Test whether a model may replace the annotators."),
    "rank": ("rank", LABELS, "Turn comparisons into a leaderboard: scores and ranks, with intervals."),
    "judges": ("judges", LABELS, "Compare LLM judges with people: agreement, biases, drift, the best small panel."),
    "compare": ("methods", LABELS, "Compare methods without any truth: how well each predicts held-out votes."),
    "methods": ("methods", LABELS, "List the methods, or (with --json) all about their parameters."),
    "learn": ("learn", CLASSIFIERS, "Learn a classifier from inputs and votes."),
    "predict": ("learn", CLASSIFIERS, "Label items with a learned classifier, from inputs or from inputs and votes."),
    "campaign": ("campaign", COLLECTING, "Ask the right annotator about the right item, until labels are good enough."),
    "gold": ("gold", COLLECTING, "Choose the items whose known answer would help most."),
    "active": ("active", COLLECTING, "What a strategy would have given, and how to spend a budget."),
    "serve": ("serve", COLLECTING, "Serve campaigns: an API, a page to label on and a page to watch."),
    "import": ("tools", TOOLS, "Read an export of an annotation tool: a folder of tables for each question."),
    "export": ("tools", TOOLS, "Write consensus labels in the form that an annotation tool imports."),
    "label-studio": ("tools", TOOLS, "Work with a Label Studio server: pull annotations, push consensus."),
    "demo": ("trying", TRYING, "See it work: handwritten digits, labelled by a crowd of weak classifiers."),
    "simulate": ("trying", TRYING, "Make a crowd with known truth and known annotators."),
    "bench": ("trying", TRYING, "Measure methods on data sets whose truth is known: accuracy, log loss, seconds."),
}  # fmt: skip
"""Command -> its module (``cmd_...``), its group in the help, and its line there, in the order of the help."""


def listed() -> None:
    """A command that the help lists, and whose module is not imported for that."""
    raise InternalError("A command was called that this app only lists")


def make_app(names: Container[str] = COMMANDS) -> typer.Typer:
    """The app with these commands; the others are only listed."""
    app = typer.Typer(
        name="crowdwise",
        cls=Commands,
        help=(
            "Labels you can trust from annotators you cannot.\n\n"
            "Start with `crowdwise aggregate labels.csv --out consensus.csv`, or `crowdwise demo`."
        ),
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(root)
    for name, (file, group, line) in COMMANDS.items():
        word = name.replace("-", "_")  # of a command or of a group of them; only its own module is imported
        module = import_module(f"crowdwise.cli.cmd_{file}") if name in names else None
        command = listed if module is None else getattr(module, f"{word}_" if iskeyword(word) else word)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=group)
        else:
            app.command(name, help=line if command is listed else None, rich_help_panel=group)(command)
    return app


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
    decimal_comma: Annotated[
        bool, typer.Option("--decimal-comma", help="CSV with ; and decimal commas, from any command.")
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
        app = make_app([next((word for word in sys.argv[1:] if not word.startswith("-")), "")])
    except KeyboardInterrupt:
        sys.exit(130)
    app()
