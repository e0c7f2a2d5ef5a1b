"""What people see of a diagnosis in a terminal, and its JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdwise.cli.show import console
from crowdwise.cli.show_aggregate import figures
from crowdwise.metrics.labels import accuracy
from crowdwise.report.findings import VERDICT_OF, Diagnosis, FindingKind
from crowdwise.report.json_values import number
from crowdwise.report.section_summary import headline, how_sure
from crowdwise.trust.wording import ADVICE, TITLES, counted, folded, to_dict

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {"drop": "red", "look": "yellow", "unclear": "dim"}


def show_diagnosis(found: Diagnosis, measured: dict[str, Any] | None = None, screen: Console | None = None) -> None:
    """The findings in sentences, by kind, with what to do about each; to standard output, plain when piped."""
    from rich.text import Text

    screen = screen or console(stderr=False)
    consensus = found.inspection.consensus
    screen.print(Text(headline(found), style="bold"))
    screen.print(
        Text(
            f"{counted(consensus.n_answers, 'vote')} by {counted(len(consensus.annotators), 'annotator')} on "
            f"{counted(len(consensus.items), 'item')}, {counted(len(consensus.classes), 'class')}; "
            f"labels by {consensus.method}"
        )
    )
    gold = None if measured else consensus.gold_by_votes
    known = accuracy(*gold) if gold is not None else measured["accuracy"] if measured else None
    for words in how_sure(found, None if known is None else vars(known), by_votes=gold is not None):
        _print(screen, words, indent=0)
    for kind in FindingKind:
        some = found.of_kind(kind)
        if not some:
            continue
        screen.print()
        colour = COLOURS.get(VERDICT_OF.get(kind, ""), "cyan")
        screen.print(Text(TITLES[kind], style=f"bold {colour}" if colour != "dim" else "bold"))
        for line in folded(some):
            _print(screen, line)
        if kind in ADVICE:
            _print(screen, ADVICE[kind], "dim")
    if not found.findings:
        screen.print()
        screen.print(Text("Nothing was found: no annotator stands out, and no label is in doubt."))
    if found.inspection.notes:
        screen.print()
        for step, words in found.inspection.notes.items():
            _print(screen, f"{step.capitalize()}: {words}", "dim", indent=0)


def _print(screen: Console, sentence: str, style: str = "", indent: int = 2) -> None:
    """A sentence, wrapped under its beginning on a terminal and on one line (to be searched) when piped."""
    from rich.padding import Padding
    from rich.text import Text

    if screen.is_terminal:
        screen.print(Padding(Text(sentence, style=style), (0, 0, 0, indent), expand=False))
    else:
        screen.print(Text(" " * indent + sentence), soft_wrap=True)


def diagnosed(found: Diagnosis, measured: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object of ``crowdwise diagnose --json``."""
    out: dict[str, Any] = {
        "headline": headline(found), "method": found.inspection.consensus.method,
        "findings": [to_dict(finding) for finding in found.findings],
        "verdicts": {str(name): verdict for name, verdict in found.verdicts.items()},
        "expected": number(found.expected), "expected_interval": [number(end) for end in found.expected_interval],
        "level": found.inspection.level, "notes": dict(found.inspection.notes),
    }  # fmt: skip
    return out | figures(measured or {})
