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


def show_diagnosis(diagnosis: Diagnosis, measured: dict[str, Any] | None = None, screen: Console | None = None) -> None:
    """The findings in sentences, by kind, with what to do about each; to standard output, plain when piped."""
    from rich.text import Text

    screen, result, votes = screen or console(stderr=False), diagnosis.result, diagnosis.seen is not None
    answers = counted(result.n_answers, "vote" if votes else "answer")
    sizes = f"{counted(len(result.annotators), 'annotator')} on {counted(len(result.items), 'item')}"
    sizes += f", {counted(len(result.classes), 'class')}; labels" if votes else ";"
    screen.print(Text(_headline(diagnosis), style="bold"))
    screen.print(Text(f"{answers} by {sizes} by {result.method}"))
    if votes:
        gold = None if measured else result.gold_by_votes
        known = accuracy(*gold) if gold is not None else measured["accuracy"] if measured else None
        for line in how_sure(diagnosis, None if known is None else vars(known), by_votes=gold is not None):
            _print(screen, line, indent=0)
    else:
        measures(screen, measured or {})
    for kind, words in diagnosis.kinds.items():
        findings = diagnosis.of_kind(kind)
        if not findings:
            continue
        screen.print()
        colour = COLOURS.get(words.verdict or "", "cyan")
        screen.print(Text(words.title, style=f"bold {colour}" if colour != "dim" else "bold"))
        for line in folded(findings):
            _print(screen, line)
        if words.advice:
            _print(screen, words.advice, "dim")
    if not diagnosis.findings:
        screen.print()
        screen.print(Text("Nothing was found: no annotator stands out, and nothing is in doubt."))
    if diagnosis.seen is not None and diagnosis.seen.notes:
        screen.print()
        for step, note in diagnosis.seen.notes.items():
            _print(screen, f"{step.capitalize()}: {note}", "dim", indent=0)


def _headline(diagnosis: Diagnosis) -> str:
    """One sentence on what was found."""
    if diagnosis.seen is not None:
        return headline(diagnosis)
    rules = registry.ANSWER_TYPES[diagnosis.result.answer_type].rules
    return str(rules.headline(diagnosis.result))


def _print(screen: Console, sentence: str, style: str = "", indent: int = 2) -> None:
    """A sentence, wrapped under its beginning on a terminal and on one line (to be searched) when piped."""
    from rich.padding import Padding
    from rich.text import Text

    if screen.is_terminal:
        screen.print(Padding(Text(sentence, style=style), (0, 0, 0, indent), expand=False))
    else:
        screen.print(Text(" " * indent + sentence), soft_wrap=True)


def diagnosed(diagnosis: Diagnosis, measured: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object of ``crowdwise diagnose --json``."""
    result = diagnosis.result
    out: dict[str, Any] = {
        "headline": _headline(diagnosis), "answer_type": result.answer_type, "method": result.method,
        "findings": [to_dict(finding, diagnosis.kinds[finding.kind]) for finding in diagnosis.findings],
        "verdicts": {str(name): verdict for name, verdict in diagnosis.verdicts.items()},
        "expected": number(diagnosis.expected),
        "expected_interval": [number(end) for end in diagnosis.expected_interval],
    }  # fmt: skip
    if diagnosis.seen is not None:
        out |= {"level": diagnosis.seen.level, "notes": dict(diagnosis.seen.notes)}
    return out | figures(measured or {})
