"""What people see of a diagnosis in a terminal, and its JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdwise import registry
from crowdwise.cli.show import console, measures
from crowdwise.cli.show_aggregate import figures
from crowdwise.metrics.measures import accuracy
from crowdwise.report.findings import Diagnosis
from crowdwise.report.section_summary import headline, how_sure, number
from crowdwise.trust.wording import counted, folded, to_dict

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {"drop": "red", "look": "yellow", "unclear": "dim"}


def show_diagnosis(found: Diagnosis, measured: dict[str, Any] | None = None, screen: Console | None = None) -> None:
    """The findings in sentences, by kind, with what to do about each; to standard output, plain when piped."""
    from rich.text import Text

    screen, result, votes = screen or console(stderr=False), found.result, found.seen is not None
    answers = counted(result.n_answers, "vote" if votes else "answer")
    sizes = f"{counted(len(result.annotators), 'annotator')} on {counted(len(result.items), 'item')}"
    sizes += f", {counted(len(result.classes), 'class')}; labels" if votes else ";"
    screen.print(Text(_headline(found), style="bold"))
    screen.print(Text(f"{answers} by {sizes} by {result.method}"))
    if votes:
        gold = None if measured else result.gold_by_votes
        known = accuracy(*gold) if gold is not None else measured["accuracy"] if measured else None
        for line in how_sure(found, None if known is None else vars(known), by_votes=gold is not None):
            _print(screen, line, indent=0)
    else:
        measures(screen, measured or {})
    for kind, words in found.kinds.items():
        some = found.of_kind(kind)
        if not some:
            continue
        screen.print()
        colour = COLOURS.get(words.verdict or "", "cyan")
        screen.print(Text(words.title, style=f"bold {colour}" if colour != "dim" else "bold"))
        for line in folded(some):
            _print(screen, line)
        if words.advice:
            _print(screen, words.advice, "dim")
    if not found.findings:
        screen.print()
        screen.print(Text("Nothing was found: no annotator stands out, and nothing is in doubt."))
    if found.seen is not None and found.seen.notes:
        screen.print()
        for step, note in found.seen.notes.items():
            _print(screen, f"{step.capitalize()}: {note}", "dim", indent=0)


def _headline(found: Diagnosis) -> str:
    """One sentence on what was found."""
    if found.seen is not None:
        return headline(found)
    rules = registry.ANSWER_TYPES[found.result.answer_type].rules
    return str(rules.headline(found.result))


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
        "headline": _headline(found), "answer_type": found.result.answer_type, "method": found.result.method,
        "findings": [to_dict(finding, found.kinds[finding.kind]) for finding in found.findings],
        "verdicts": {str(name): verdict for name, verdict in found.verdicts.items()},
        "expected": number(found.expected), "expected_interval": [number(end) for end in found.expected_interval],
    }  # fmt: skip
    if found.seen is not None:
        out |= {"level": found.seen.level, "notes": dict(found.seen.notes)}
    return out | figures(measured or {})
