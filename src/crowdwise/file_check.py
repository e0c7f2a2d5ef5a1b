"""What is in a file of answers, what looks wrong, and what fixes it: before anything is computed.

Errors of the reader do not end it: the first remedy that an error names with a value is taken, and reading goes on, so
that one check lists all of them. The file is opened once (:class:`~crowdwise.reading.Opened`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from crowdwise.data.source import ONE_ANNOTATOR, UNUSED, collected_roles
from crowdwise.data.spellings import NO_ANSWER, LabelProposal, counted_codes, folded, propose
from crowdwise.errors import CrowdwiseError, DuplicateError, InputWarning, Option, Remedy, UserFacingError, listing
from crowdwise.reading import Opened, was_read
from crowdwise.registry import VOTES

__all__ = ["FileCheck", "check"]
COLUMNS = {"item", "annotator", "label"}
FIXES = {"on_duplicate", "on_missing", "question", "answer_type", "anonymous", *COLUMNS}
"""Options that reading goes on with, where an error names one with its value."""


@dataclass(frozen=True, eq=False)
class FileCheck:
    """What :func:`check` found. ``str()`` of it is a text for people.

    Attributes
    ----------
    facts
        What was read: format, sheet, header, columns and their roles, counts, duplicates; see :meth:`to_dict`.
    findings
        What looks wrong or was decided by the reader, as errors and warnings with their remedies.
    proposals
        Labels that look like another one: found, votes, proposed, why.
    options
        Options of :func:`crowdwise.aggregate`, and of commands, that fix what was found.
    error
        What keeps the answers from being read, in spite of these options; ``None`` where they were read.
    """

    facts: dict[str, Any]
    findings: list[UserFacingError]
    proposals: list[LabelProposal]
    options: dict[str, Any]
    error: UserFacingError | None = None

    def label_map(self) -> dict[str, str]:
        """The proposals as a map of labels, for ``label_map=``."""
        return {str(p.found): str(p.proposed) for p in self.proposals}

    def command(self, flags: Mapping[str, str] | None = None) -> str:
        """The command that fixes what was found; ``flags`` are options that commands call otherwise."""
        words = ["crowdwise", "aggregate", str(self.facts.get("file", "FILE"))]
        for name, value in self.options.items():
            words.append((flags or {}).get(name, f"--{name.replace('_', '-')}"))
            words += [] if value is True else [str(value)]
        return " ".join(map(quote, words))

    def to_dict(self, spell: Callable[[Option], str | None] | None = None) -> dict[str, Any]:
        """All of it, for JSON; ``spell`` words options as a command does."""
        return {
            **self.facts, "readable": self.error is None,
            "findings": [{"found": said.message, "fix": fix_of(said, spell)} for said in self.findings],
            "proposals": [
                {"found": p.found, "votes": p.votes, "proposed": p.proposed, "why": p.why, "sure": p.sure}
                for p in self.proposals
            ],
            "options": self.options,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = facts_in_words(self.facts)
        lines += [f"- {said}" for said in self.findings]
        lines += [f"- label {p.found!r} (votes: {p.votes:,}): {p.proposed!r}? It {p.why}." for p in self.proposals]
        return "\n".join(lines if self.findings or self.proposals else [*lines, "Nothing looks wrong."])


def check(answers: Any, answer_type: str | None = None, **reading: Any) -> FileCheck:
    """What is in a file (or a table) of answers, what looks wrong, and what fixes it. Nothing is changed.

    Parameters
    ----------
    answers
        A file, a dataset folder, an export of an annotation tool, or a dataframe.
    answer_type
        As in :func:`crowdwise.aggregate`.
    **reading
        How it is read, as in :func:`crowdwise.aggregate`: ``label="sentiment"``, ``sheet="Team"``, ...

    >>> table = {"item": list("aabbccdd"), "worker": ["x", "y"] * 4, "label": ["1", "1.0", "0", "0", "1", "1", "0", "1"]}
    >>> print(check(table))
    votes in the long form: 8 votes by 2 annotators on 4 items, 3 classes
    columns: 'item' item; 'worker' annotator; 'label' label
    classes: '1' 4, '0' 3, '1.0' 1
    - Labels that differ only in case or blanks (or in the form of numbers) are different classes: '1', '1.0'. (1 could be merged; crowdwise check lists them.) Merge them with normalise_labels=True.
    - label '1.0' (votes: 1): '1'? It is another form of the number.
    """  # noqa: E501
    return checked(Opened(answers, answer_type, None, reading))


@dataclass
class _Reading:
    """What was said while answers were read, one attempt after the other."""

    opened: Opened
    findings: list[UserFacingError] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    questions: list[str] = field(default_factory=list)
    duplicates: dict[str, int] = field(default_factory=dict)
    error: UserFacingError | None = None

    def run(self) -> Any:
        """The table of answers; ``None`` where it cannot be read."""
        for _ in range(len(FIXES) + 1):
            try:
                return self._attempt()
            except CrowdwiseError as error:
                self.findings.append(error)
                if isinstance(error, DuplicateError) and error.identical is not None:
                    self.duplicates = {"identical": error.identical, "conflicting": int(error.conflicting or 0)}
                options = [o for remedy in error.remedies for o in remedy.options]
                fix = next((o for o in options if o.name in FIXES and o.values), None)
                if fix is not None and fix.name == "answer_type" and fix.values[0] == self.opened.answer_type:
                    fix = None  # it is read as that already, and reading goes no further
                if fix is None or fix.name in self.options or was_read(self.opened.source):
                    self.error = error
                    return None
                for one in (o for o in options if o.values and (o is fix or {o.name, fix.name} <= COLUMNS)):
                    self.options[one.name] = one.values[0]
                    self.opened = self.opened.with_option(one.name, one.values[0])
        return None

    def _attempt(self) -> Any:
        with warnings.catch_warnings(record=True) as said, collected_roles() as roles:
            warnings.simplefilter("always")
            try:
                return self.opened.answers.table
            finally:
                self.roles, self.questions = roles.roles or self.roles, roles.questions or self.questions
                texts = {finding.message for finding in self.findings}
                heard = [w.message for w in said if isinstance(w.message, InputWarning)]
                self.findings += [w for n, w in enumerate(heard) if w.message not in texts and w.message not in
                                  {other.message for other in heard[:n]}]  # fmt: skip


def checked(opened: Opened) -> FileCheck:
    """The check of a source that was opened."""
    found = _Reading(opened)
    table = found.run()
    facts = _about_file(found)
    proposals: list[LabelProposal] = []
    if table is not None:
        counts = _labels_in(table)
        facts |= {
            "answer_type": found.opened.answer_type, "answers": len(table.annotator), "items": len(table),
            "annotators": len(table.annotators), "classes": {str(name): n for name, n in counts.items()},
        }  # fmt: skip
        proposals = propose(counts, opened.reading.get("classes"))
        _no_answers(counts, found)
        found.findings += _several(counts)
        found.findings += _one_annotator(table)
        mails = mailed(table.annotators)
        found.findings += [] if mails is None or "pseudonymise" in opened.reading else [mails]
        plain = opened.asked is None and found.opened.answer_type == VOTES
        if plain and (hint := ordered(table)) is not None:
            found.findings.append(hint)
        if any(p.sure for p in proposals):
            found.options["normalise_labels"] = True
        if any(not p.sure for p in proposals):
            found.options["label_map"] = "labels.csv"
    facts["duplicates"] = found.duplicates or {"identical": 0, "conflicting": 0}
    return FileCheck(facts, found.findings, proposals, found.options, found.error)


def _about_file(found: _Reading) -> dict[str, Any]:
    """What is known without the answers themselves."""
    opened, facts = found.opened, dict[str, Any]()
    if opened.path is not None:
        facts["file"] = str(opened.path)
    if found.error is None and opened.tool is not None and opened.export is not None:
        left_out = dict(opened.export.left_out)
        facts |= {"format": "export", "tool": opened.tool, "questions": list(opened.export.tables)}
        return facts | ({"left_out": left_out} if left_out else {})
    file = opened.file if opened.path is not None and Path(opened.path).exists() else None
    if file is not None and file.path.is_file() and found.error is None:
        facts["format"] = file.kind
        if file.kind == "csv":
            facts |= {"separator": file.found_separator, "encoding": file.guessed or file.encoding or "utf-8"}
        if file.kind == "sheet":
            facts["sheet"] = file.found_sheet or file.sheet
        if file.kind in ("csv", "sheet"):
            facts["header_row"] = file.skipped + 1
    if found.questions:
        facts["questions"] = found.questions
    names = file.columns if file is not None and file.columns else list(getattr(opened.head, "columns", []))
    if found.roles:
        facts["form"] = "wide" if ONE_ANNOTATOR in found.roles.values() else "long"
        names = list(dict.fromkeys([*names, *found.roles]))
        facts["columns"] = [{"column": name, "role": found.roles.get(name, UNUSED)} for name in names]
    return facts


def _labels_in(table: Any) -> dict[Any, int]:
    """Labels and how many answers have them, the most common first; none where answers are not classes."""
    codes, names = getattr(table, "label", None), getattr(table, "classes", None)
    if names is None or codes is None:
        codes, names = getattr(table, "chosen", None), getattr(table, "labels", None)
    if names is None or not isinstance(codes, np.ndarray) or codes.dtype.kind != "i":
        return {}
    counts = counted_codes(codes, names)
    return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], str(name)))}


def _no_answers(counts: Mapping[Any, int], found: _Reading) -> None:
    """Labels that mostly stand for no answer, which the reading has pointed out."""
    words = [name for name in counts if isinstance(name, str) and folded(name) in NO_ANSWER]
    if words and "abstain" not in found.opened.reading:
        found.options["abstain"] = words[0]
        if len(words) > 1:
            found.options["label_map"] = "labels.csv"


def _several(counts: Mapping[Any, int]) -> list[UserFacingError]:
    """A hint that some cells hold several labels: ``cat; dog`` beside ``cat`` and ``dog``."""
    known = {folded(name) for name in counts}
    for sign in (";", "|", ",", "/", "+"):
        texts = [name for name in counts if isinstance(name, str) and sign in name]
        sets = {name: frozenset(_parts(name, sign)) for name in texts}
        split = [name for name in texts if sets[name] <= known or list(sets.values()).count(sets[name]) > 1]
        if len(split) > 1:
            some = f"{listing(split, 3)} ({sum(counts[name] for name in split):,} votes)"
            return [
                InputWarning(
                    f"{some} are several of the other labels in one cell, and count as classes of their own.",
                    remedy=Remedy("If annotators may choose several, say {}.", Option("answer_type", "label-sets")),
                )
            ]
    return []


def _one_annotator(table: Any) -> list[UserFacingError]:
    """A hint that all answers are by one annotator."""
    if len(table.annotators) > 1:
        return []
    return [
        InputWarning(
            f"All answers are by one annotator, {str(table.annotators[0])!r}: nothing can be learned from agreement.",
            remedy=Remedy("If a column names the annotators, say which: {}.", Option("annotator")),
        )
    ]


def _parts(name: str, sign: str) -> list[Any]:
    return [folded(part) for part in name.split(sign)]


def mailed(annotators: Any) -> InputWarning | None:
    """A hint that annotators are called by their e-mail addresses, which a report shows to everybody who reads it."""
    mails = sum(
        isinstance(name, str) and bool(re.fullmatch(r"[^@\s]+@[^@\s]+\.\w+", name)) for name in annotators.tolist()
    )
    if 2 * mails <= len(annotators):
        return None
    return InputWarning(
        f"{mails:,} annotators are called by their e-mail addresses, which tables and reports show.",
        remedy=Remedy(
            "To give them other names, say {}.", Option("pseudonymise", python="'key.csv'", command="key.csv")
        ),
    )


def ordered(table: Any) -> InputWarning | None:
    """A hint that classes may be ordered: whole numbers in a row, such as 1 to 5 or -3 to 1. (From 0 on they are mostly
    codes. How annotators differ does not tell: neighbours are taken for each other in sets of codes as well.)"""
    names = {str(name).strip() for name in table.classes.tolist()}
    numbers = sorted(int(name) for name in names if re.fullmatch(r"[+-]?\d{1,3}", name))
    in_a_row = len(numbers) == len(names) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    if not (in_a_row and 3 <= len(numbers) <= 11 and numbers[0] != 0):
        return None
    return InputWarning(
        f"The classes are the numbers {numbers[0]} to {numbers[-1]}, read as classes without order.",
        remedy=Remedy("If they are ordered, as stars are, say {}.", Option("answer_type", "ordinal")),
    )


def fix_of(said: UserFacingError, spell: Callable[[Option], str | None] | None = None) -> str:
    """What to do about a finding, in the words of Python or of a command."""
    return " ".join(filter(None, (str(r) if spell is None else r.for_cli(spell) for r in said.remedies)))


def facts_in_words(facts: Mapping[str, Any]) -> list[str]:
    """What was read, in a few lines."""
    lines = []
    if "format" in facts:
        parts = [f"an export of {facts['tool']}" if "tool" in facts else f"format {facts['format']}"]
        parts += [f"{name} {facts[key]!r}" for key, name in (("sheet", "sheet"), ("separator", "separator"))
                  if facts.get(key)]  # fmt: skip
        parts += [f"encoding {facts['encoding']}"] if facts.get("encoding") else []
        parts += [f"columns named in row {facts['header_row']}"] if "header_row" in facts else []
        lines.append(f"{facts['file']}: {', '.join(parts)}")
    if "questions" in facts:
        lines.append(f"questions: {listing(facts['questions'], 12)}")
    if "answers" in facts:
        form = f" in the {facts['form']} form" if "form" in facts else ""
        classes = f", {len(facts['classes']):,} class{'es' * (len(facts['classes']) > 1)}" if facts["classes"] else ""
        lines.append(
            f"{facts['answer_type']}{form}: {facts['answers']:,} {'votes' if facts['classes'] else 'answers'} by "
            f"{facts['annotators']:,} annotator{'s' * (facts['annotators'] > 1)} on {facts['items']:,} "
            f"item{'s' * (facts['items'] > 1)}{classes}"
        )
    if "left_out" in facts:
        lines.append("left out: " + ", ".join(f"{count:,} {why}" for why, count in facts["left_out"].items()))
    if "columns" in facts:
        shown = [f"{column['column']!r} {column['role']}" for column in facts["columns"][:20]]
        lines.append("columns: " + "; ".join(shown + ["..."] * (len(facts["columns"]) > 20)))
    if facts.get("classes"):
        some = list(facts["classes"].items())
        lines.append("classes: " + ", ".join([f"{n!r} {v:,}" for n, v in some[:12]] + ["..."] * (len(some) > 12)))
    twice = facts.get("duplicates") or {}
    if any(twice.values()):
        lines.append(f"duplicates: {twice['identical']:,} identical, {twice['conflicting']:,} conflicting")
    return lines
