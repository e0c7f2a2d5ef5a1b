"""What people see in a terminal of a diagnosis, and of a report being made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crowdwise.cli.show import console
from crowdwise.report.findings import VERDICT_OF, Diagnosis, FindingKind
from crowdwise.report.json_values import number
from crowdwise.report.section_summary import headline, how_sure
from crowdwise.trust.wording import ADVICE, TITLES, also, sentence, to_dict

if TYPE_CHECKING:
    from rich.console import Console

FIRST = 6
"""Findings of one kind that are told one by one."""
COLOURS = {"drop": "red", "look": "yellow", "unclear": "dim"}


@contextmanager
def stages(total: int) -> Iterator[Callable[[str], None]]:
    """A callback that is told the name of each stage, with a bar that disappears; nothing when piped."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console()
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda stage: bar.update(task, advance=1, description=stage)


def show_diagnosis(found: Diagnosis, measured: Any = None, screen: Console | None = None) -> None:
    """The findings in sentences, by kind, with what to do about each; to standard output, plain when piped."""
    from rich.text import Text

    screen = screen or console(stderr=False)
    consensus = found.inspection.consensus
    screen.print(Text(headline(found), style="bold"))
    screen.print(
        Text(
            f"{consensus.n_answers:,} votes by {len(consensus.annotator_names):,} annotators on "
            f"{len(consensus.item_names):,} items, {len(consensus.classes)} classes; labels by {consensus.method}"
        )
    )
    accuracy = None if measured is None else {name: getattr(measured, name) for name in ("value", "low", "high", "n")}
    for words in how_sure(found, accuracy):
        _tell(screen, words, indent=0)
    for kind in FindingKind:
        some = found.of_kind(kind)
        if not some:
            continue
        screen.print()
        colour = COLOURS.get(VERDICT_OF.get(kind, ""), "cyan")
        screen.print(Text(TITLES[kind], style=f"bold {colour}" if colour != "dim" else "bold"))
        for finding in some[:FIRST]:
            _tell(screen, sentence(finding))
        rest = [str(name) for finding in some[FIRST:] for name in finding.names]
        if rest:
            _tell(screen, also(rest, 40))
        if kind in ADVICE:
            _tell(screen, ADVICE[kind], "dim")
    if not found.findings:
        screen.print()
        screen.print(Text("Nothing was found: no annotator stands out, and no label is in doubt."))
    if found.inspection.notes:
        screen.print()
        for step, words in found.inspection.notes.items():
            _tell(screen, f"{step.capitalize()}: {words}", "dim", indent=0)


def _tell(screen: Console, sentence: str, style: str = "", indent: int = 2) -> None:
    """A sentence, wrapped under its beginning on a terminal and on one line (to be searched) when piped."""
    from rich.padding import Padding
    from rich.text import Text

    if screen.is_terminal:
        screen.print(Padding(Text(sentence, style=style), (0, 0, 0, indent), expand=False))
    else:
        screen.print(Text(" " * indent + sentence), soft_wrap=True)


def diagnosed(found: Diagnosis, measured: Any = None) -> dict[str, Any]:
    """The JSON object of ``crowdwise diagnose --json``."""
    out: dict[str, Any] = {
        "headline": headline(found),
        "method": found.inspection.consensus.method,
        "findings": [to_dict(finding) for finding in found.findings],
        "verdicts": {str(name): verdict for name, verdict in found.verdicts.items()},
        "expected": number(found.expected),
        "level": found.inspection.level,
        "notes": dict(found.inspection.notes),
    }
    if measured is not None:
        out |= {"accuracy": measured.value, "accuracy_low": measured.low, "accuracy_high": measured.high}
    return out
