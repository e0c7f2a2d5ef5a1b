"""The commands that change a running campaign. :mod:`crowdwise.cli.cmd_campaign` puts them beside the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdwise.cli.campaign_files import FolderArgument, counted, opened, read_annotators, read_items, report
from crowdwise.cli.options import JsonOption, option
from crowdwise.cli.outputs import emit, say
from crowdwise.errors import InputError, ParameterError

ITEMS_HELP = "Items, by name."
ItemsFile = Annotated[Path, typer.Argument(help="A table with an item column (and truth, group, where known).")]
PeopleFile = Annotated[Path, typer.Argument(help="A table with an annotator column (and price).")]
NamesArgument = Annotated[list[str] | None, typer.Argument(help=ITEMS_HELP, show_default=False)]
FromOption = Annotated[Path | None, option("--from", help="A table with an item column, instead of names.")]
ReopenOption = Annotated[bool, typer.Option("--reopen", help="Open them again.")]
AnnotatorArgument = Annotated[str, typer.Argument(help="The annotator.", show_default=False)]
LIMIT = "A number, or none."


def limit(name: str, text: str | None) -> dict[str, Any]:
    """A setting that may be taken away: a number, or ``none``."""
    if text is None:
        return {}
    if text.strip().lower() == "none":
        return {name: None}
    try:
        value = float(text)
    except ValueError:
        raise ParameterError(f"--{name.replace('_', '-')} {text}: expected a number, or none.") from None
    return {name: int(value) if value.is_integer() and name.endswith("votes") else value}


def set_(
    folder: FolderArgument,
    budget: Annotated[str | None, option("--budget", help=f"Stop when so much is spent. {LIMIT}")] = None,
    target: Annotated[str | None, option("--target", help=f"Stop when the labels are so accurate. {LIMIT}")] = None,
    probability: Annotated[
        str | None, option("--probability", help=f"An item is finished when its class is so probable. {LIMIT}")
    ] = None,
    max_votes: Annotated[str | None, option("--max-votes", help=f"The most votes on an item. {LIMIT}")] = None,
    min_votes: Annotated[int | None, option("--min-votes", help="The least votes on an item.")] = None,
    price: Annotated[float | None, option("--price", help="What a vote costs, where no price is given.")] = None,
    patience: Annotated[
        float | None, option("--patience", help="Seconds after which an unanswered question is asked again.")
    ] = None,
    gap: Annotated[str | None, option("--gap", help=f"The largest gap in errors between groups. {LIMIT}")] = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a running campaign. The change is written into its journal.

    Example: `crowdwise campaign set birds --budget 800 --target 0.97`
    """
    given: dict[str, Any] = {}
    for name, text in (("budget", budget), ("target", target), ("probability", probability), ("gap", gap)):
        given |= limit(name, text)
    given |= limit("max_votes", max_votes)
    plain = {"min_votes": min_votes, "price": price, "patience": patience}
    given |= {name: value for name, value in plain.items() if value is not None}
    if not given:
        raise ParameterError("Nothing to set: give --budget, --target, --probability or another option.")
    with opened(folder) as made:
        changed = made.change(**given)
        facts = made.status()
    parts = [f"{name.replace('_', ' ')} {word(old)} -> {word(new)}" for name, (old, new) in changed.items()]
    line = "; ".join(parts) if parts else "Nothing was different"
    out = {"changed": {name: list(pair) for name, pair in changed.items()}, "state": facts["state"]}
    report(out, as_json, f"{line}. The campaign is {facts['state']}")


def word(value: Any) -> str:
    return "none" if value is None else f"{value:g}"


def add_items(folder: FolderArgument, items: ItemsFile, as_json: JsonOption = False) -> None:
    """Add items, or the truth and group of items that are there.

    Example: `crowdwise campaign add-items birds more.csv`
    """
    names, gold, groups = read_items(items)
    with opened(folder) as made:
        new = made.add_items(names, gold, groups)
    report(
        {"new": new, "known": len(names) - new},
        as_json,
        f"{counted(new, 'item')} added, {len(names) - new:,} were there",
    )


def close_items(
    folder: FolderArgument, items: NamesArgument = None, table: FromOption = None, reopen: ReopenOption = False,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Ask nothing more about items, and refuse votes on them.

    Example: `crowdwise campaign close-items birds photo7 photo9`
    """
    names = [*(items or []), *([] if table is None else read_items(table)[0])]
    if not names:
        raise InputError("Name the items, or give a table of them: --from FILE.")
    with opened(folder) as made:
        made.close_items(names, not reopen)
    done = "reopened" if reopen else "closed"
    report({done: len(names)}, as_json, f"{counted(len(names), 'item')} {done}")


def add_annotators(folder: FolderArgument, annotators: PeopleFile, as_json: JsonOption = False) -> None:
    """Add annotators, or change the prices of those who are there.

    Example: `crowdwise campaign add-annotators birds people.csv`
    """
    with opened(folder) as made:
        people = read_annotators(annotators, made.settings.price)
        new = made.add_annotators(people)
    known = len(people) - new
    report({"new": new, "known": known}, as_json, f"{counted(new, 'annotator')} added, {known:,} were there")


def set_annotator(
    folder: FolderArgument,
    annotator: AnnotatorArgument,
    available: Annotated[
        bool | None, option("--available/--away", help="Whether questions may be asked of the annotator.")
    ] = None,
    max_votes: Annotated[int | None, option("--max-votes", help="The most votes of the annotator, in all.")] = None,
    price: Annotated[float | None, option("--price", help="What a vote costs from now on.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether an annotator is available, how many votes the annotator may give, and what they cost.

    Example: `crowdwise campaign set-annotator birds ann --away`
    """
    given: dict[str, Any] = {"available": available, "max_votes": max_votes, "price": price}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        raise ParameterError("Nothing to set: give --available, --away, --max-votes or --price.")
    with opened(folder) as made:
        made.set_annotator(annotator, **given)
    said = {"available": "available" if available else "away", "max_votes": f"{max_votes} votes at most"}
    words = [said.get(name, f"price {value:g}") for name, value in given.items()]
    report({"annotator": annotator, **given}, as_json, f"{annotator}: {', '.join(words)}")


WhoOption = Annotated[str | None, option("--annotator", "-a", help="The annotator whose questions these are.")]


def release(
    folder: FolderArgument, items: NamesArgument = None, annotator: WhoOption = None, as_json: JsonOption = False
) -> None:
    """Take back questions that are out: of an annotator, about items, or both. Others can be asked at once.

    Example: `crowdwise campaign release birds --annotator ann`
    """
    with opened(folder) as made:
        n = made.release(annotator, items or None)
    report({"released": n}, as_json, f"{counted(n, 'question')} released")


def skip(
    folder: FolderArgument,
    annotator: AnnotatorArgument,
    items: Annotated[list[str], typer.Argument(help=ITEMS_HELP, show_default=False)],
    undo: Annotated[bool, typer.Option("--undo", help="Ask the annotator about them again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask an annotator nothing more about items: the annotator cannot or will not answer.

    Example: `crowdwise campaign skip birds ann photo7`
    """
    with opened(folder) as made:
        made.skip(annotator, items, not undo)
    done = "asked again" if undo else "skipped"
    report(
        {"annotator": annotator, "items": items, "skipped": not undo}, as_json, f"{counted(len(items), 'item')} {done}"
    )


def history(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """List what was changed since the campaign was made."""
    with opened(folder) as made:
        found = made.history()
    if as_json:
        emit(json.dumps(found))
        return
    for change in found:
        when = datetime.fromtimestamp(change["time"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        emit(f"{when}  {change['what']}: {json.dumps(change['detail'], ensure_ascii=False)}")
    if not found:
        say("Nothing was changed.")


CHANGES: dict[str, Callable[..., None]] = {
    "set": set_, "add-items": add_items, "close-items": close_items, "add-annotators": add_annotators,
    "set-annotator": set_annotator, "release": release, "skip": skip, "history": history,
}  # fmt: skip
"""The commands by their names."""
