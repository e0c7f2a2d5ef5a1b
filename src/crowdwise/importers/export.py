"""What was read of an export: a table for each question, items, annotators, and what was left out.

=================  ==============================================================================
answers            table
=================  ==============================================================================
one class each     votes; label sets where some annotator chose several
numbers            ratings
which is better    comparisons
items in order     rankings
spans of a text    tags of its tokens
boxes, masks...    none: the question is left alone, and that is said
=================  ==============================================================================
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdwise.data import frames
from crowdwise.data.comparisons import Comparisons
from crowdwise.data.dataset import Dataset
from crowdwise.data.folders import replacing
from crowdwise.data.label_sets import LabelSets
from crowdwise.data.rankings import Rankings
from crowdwise.data.ratings import Ratings
from crowdwise.data.tags import Tags
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, Option, ParameterError, Remedy, listing
from crowdwise.importers import collect
from crowdwise.importers.collect import Answer, Collector, ExportQuestion
from crowdwise.importers.span_tokens import bio

if TYPE_CHECKING:
    import polars as pl

KEPT = ("timestamp", "duration")


@dataclass(frozen=True, eq=False)
class Export:
    """An export as it was read.

    Attributes
    ----------
    tool
        The tool that it is from, a key of ``crowdwise.registry.IMPORTERS``.
    tables
        The questions with their tables of answers: :class:`~crowdwise.Votes`, :class:`~crowdwise.Ratings`, ...
    answers
        The questions with their answers as long dataframes, with time and duration where they are known.
    item_table, annotator_table
        What is known of items (texts, addresses of images) and of annotators (demographics); ``None`` where nothing is.
    left_out
        What was left out and how often: skipped and rejected answers, drafts, predictions of models...
    alone
        Questions that no table is for (boxes, masks, texts), and what they hold.
    notes
        What else is to be known.
    """

    tool: str
    path: Path
    tables: Mapping[str, Any]
    answers: Mapping[str, Any] = field(repr=False)
    item_table: pl.DataFrame | None = field(default=None, repr=False)
    annotator_table: pl.DataFrame | None = field(default=None, repr=False)
    left_out: Mapping[str, int] = field(default_factory=dict)
    alone: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def table(self, question: str | None = None) -> Any:
        """The answers to a question, which must be named where there are several."""
        return self.tables[self.question(question)]

    def question(self, name: str | None = None) -> str:
        """The name of the question, checked."""
        known = {key: table.answer_type for key, table in self.tables.items()}
        if name is not None and name not in known:
            also = f" ({self.alone[name]}: not read)" if name in self.alone else ""
            raise ParameterError(f"{self.path} has no question {name!r}{also}: it has {listing(known, 12)}.")
        if name is None and len(known) > 1:
            listed = ", ".join(f"{key!r} ({kind})" for key, kind in known.items())
            raise InputError(
                f"{self.path} has {len(known)} questions: {listed}.",
                remedy=Remedy("Choose one: {}.", Option("question", next(iter(known)))),
            )
        return next(iter(known)) if name is None else name

    def as_ratings(self, question: str | None = None) -> Ratings:
        """Votes whose classes are numbers, as ratings."""
        answers = self.answers[self.question(question)]
        return Ratings.from_frame(_for_table(answers), value="label")

    def dataset(self, question: str | None = None) -> Dataset | None:
        """Votes with the tables of items and annotators beside them; ``None`` for other answers."""
        table = self.table(question)
        if not isinstance(table, Votes):
            return None
        return Dataset(self.path.name, table, item_table=self.item_table, annotator_table=self.annotator_table)

    def lines(self) -> list[str]:
        """What was read and what was not, in sentences."""
        out = [f"{key}: {table!r}." for key, table in self.tables.items()]
        out += [f"{key} was left alone: {what}, for which there is no table." for key, what in self.alone.items()]
        if self.left_out:
            out.append("Left out: " + ", ".join(f"{count:,} {why}" for why, count in self.left_out.items()) + ".")
        return [*out, *self.notes]

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Dataset folders that every command reads: one for each question, or this one where there is one question."""
        made = []
        with replacing(folder, "imported export", manifest=False) as target:
            for (name, table), own in zip(self.tables.items(), _file_names(self.tables), strict=True):
                place = target if len(self.tables) == 1 else target / own
                place.mkdir(exist_ok=len(self.tables) == 1)
                self._save(name, table, place)
                made.append(Path(folder) / place.relative_to(target))
        return made

    def _save(self, name: str, table: Any, folder: Path) -> None:
        answers = self.answers[name]
        if isinstance(table, LabelSets):
            answers.write_ndjson(folder / "labels.jsonl")
        else:
            answers.write_csv(folder / "labels.csv")
        truth = _truth_frame(table)
        if truth is not None:
            truth.write_ndjson(folder / "truth.jsonl")
        for about, file in ((self.item_table, "items.csv"), (self.annotator_table, "annotators.csv")):
            if about is not None:
                about.write_csv(folder / file)
        meta = {"tool": self.tool, "question": name, "answer_type": table.answer_type}
        (folder / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")


def _file_names(names: Iterable[str]) -> list[str]:
    """A name of a folder for each question, no two alike (nor alike but for case)."""
    out: dict[str, str] = {}
    for number, name in enumerate(names):
        plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-")[:60]
        plain = plain or f"question-{number}"
        while plain.casefold() in out:
            plain = f"{plain}-{number}"
        out[plain.casefold()] = plain
    return list(out.values())


def _truth_frame(table: Any) -> Any:
    """Items and what is true of them, where something is known."""
    if isinstance(table, LabelSets) and table.truth is not None and table.known is not None:
        known = table.known.nonzero()[0]
        sets = [table.labels[table.truth[n]].tolist() for n in known.tolist()]
        return frames.make_frame({"item": table.items[known], "labels": sets})
    if isinstance(table, Votes) and table.truth is not None:
        known = (table.truth >= 0).nonzero()[0]
        return frames.make_frame({"item": table.items[known], "label": table.classes[table.truth[known]]})
    if isinstance(table, Ratings) and table.truth is not None:
        known = (table.truth == table.truth).nonzero()[0]
        return frames.make_frame({"item": table.items[known], "value": table.truth[known]})
    return None


def build(found: Collector, tool: str, path: Path) -> Export:
    """The tables of what an importer found."""
    tables, answers = {}, {}
    left_out = Counter(found.left_out)
    for name, question in found.questions.items():
        made = _made(found, question, left_out)
        if made is not None:
            tables[name], answers[name] = made
    if not tables and not found.alone:
        why = f" ({', '.join(f'{n:,} {w}' for w, n in left_out.items())})" if left_out else ""
        raise InputError(f"{path} is an export of {tool} without any answers{why}.")
    alone = {name: ", ".join(f"{n:,} {what}" for what, n in kinds.items()) for name, kinds in found.alone.items()}
    return Export(
        tool, path, tables, answers, _about(found.items, "item"), _about(found.annotators, "annotator"),
        {why: n for why, n in left_out.items() if n}, alone, tuple(found.notes),
    )  # fmt: skip


def _made(found: Collector, question: ExportQuestion, left_out: Counter[str]) -> tuple[Any, Any] | None:
    """The table of a question and its answers as a frame; ``None`` where there are none."""
    answers = collect.once(question.answers)
    left_out[collect.LAST] += len(question.answers) - len(answers)
    single = question.kind == collect.CHOICES and not question.several and all(len(a.said) <= 1 for a in answers)
    if single:
        left_out[collect.EMPTY] += sum(not a.said for a in answers)
        answers = [a for a in answers if a.said]
    if not answers:
        return None
    build_one = {
        collect.CHOICES: _votes if single else _sets, collect.NUMBERS: _ratings, collect.PAIRS: _pairs,
        collect.RANKINGS: _rankings,
    }  # fmt: skip
    if question.kind == collect.SPANS:
        frame = _frame(collect.columns_of_tags(found, question, answers))
        tags = Tags.from_frame(_for_table(frame), on_invalid="repair")
        gold = {n: bio(found.tokens[n], spans) for n, spans in question.gold.items() if n in found.tokens}
        known = {item: said for item, said in gold.items() if set(said) <= set(tags.classes.tolist())}
        return tags.with_truth(known) if known else tags, frame
    columns, table, options = build_one[question.kind](answers)
    frame = _frame(columns)
    made = table.from_frame(_for_table(frame), **options)
    return _with_gold(made, question), frame


Made = tuple[dict[str, list[Any]], Any, dict[str, Any]]


def _votes(answers: list[Answer]) -> Made:
    labels = _alike([a.said[0] for a in answers])
    return {**_who(answers), "label": labels, **_when(answers)}, Votes, {}


def _sets(answers: list[Answer]) -> Made:
    return {**_who(answers), "labels": [list(map(str, a.said)) for a in answers], **_when(answers)}, LabelSets, {}


def _ratings(answers: list[Answer]) -> Made:
    return {**_who(answers), "value": [a.said for a in answers], **_when(answers)}, Ratings, {}


def _pairs(answers: list[Answer]) -> Made:
    left, right, outcome = (list(part) for part in zip(*(a.said for a in answers), strict=True))
    both = _alike([*left, *right])
    columns = {"left": both[: len(left)], "right": both[len(left) :], "outcome": outcome}
    who = _who(answers)
    return {**columns, "annotator": who["annotator"], "question": who["item"], **_when(answers)}, Comparisons, {
        "on_self": "drop", "outcomes": {side: side for side in ("left", "right", "tie")},
    }  # fmt: skip


def _rankings(answers: list[Answer]) -> Made:
    out: dict[str, list[Any]] = {name: [] for name in ("item", "rank", "annotator", "question", *KEPT)}
    for a in answers:
        for place, item in enumerate(a.said, 1):
            for column, value in zip(out.values(), (item, place, a.annotator, a.item, a.time, a.duration), strict=True):
                column.append(value)
    out["annotator"], out["question"] = _alike(out["annotator"]), _alike(out["question"])
    return out, Rankings, {}


def _who(answers: list[Answer]) -> dict[str, list[Any]]:
    return {"item": _alike([a.item for a in answers]), "annotator": _alike([a.annotator for a in answers])}


def _when(answers: list[Answer]) -> dict[str, list[Any]]:
    return {"timestamp": [a.time for a in answers], "duration": [a.duration for a in answers]}


def _alike(names: list[Any]) -> list[Any]:
    """Names of one kind: text, where some are text and some numbers."""
    return names if len({type(name) for name in names}) <= 1 else [str(name) for name in names]


def _frame(columns: dict[str, list[Any]]) -> Any:
    """A frame without the times that are not known of every answer."""
    unknown = [name for name in KEPT if name in columns and None in columns[name]]
    return frames.to_polars({name: values for name, values in columns.items() if name not in unknown})


def _for_table(frame: Any) -> Any:
    return frame.drop("duration", strict=False)


def _with_gold(table: Any, question: ExportQuestion) -> Any:
    """The table with the truth of the items that it has, where their classes are known."""
    gold = {item: said for item, said in question.gold.items()}
    if isinstance(table, Votes):
        classes = set(map(str, table.classes.tolist()))
        known = {item: said[0] for item, said in gold.items() if len(said) == 1 and str(said[0]) in classes}
    elif isinstance(table, LabelSets):
        classes = set(table.labels.tolist())
        known = {item: [str(s) for s in said] for item, said in gold.items() if classes.issuperset(map(str, said))}
    elif isinstance(table, Ratings):
        known = gold
    else:
        return table
    names = set(map(str, table.items.tolist()))
    known = {item: said for item, said in known.items() if str(item) in names}
    return table.with_truth(known) if known else table


def _about(known: Mapping[Any, Mapping[str, Any]], key: str) -> Any:
    """A table of what is known of items or annotators; ``None`` where nothing is."""
    names = list(dict.fromkeys(name for row in known.values() for name in row))
    if not names:
        return None
    columns: dict[str, list[Any]] = {key: _alike(list(known))}
    for name in names:
        values = [row.get(name) for row in known.values()]
        kinds = {type(value) for value in values if value is not None}
        mixed = len(kinds) > 1
        columns[name if name != key else f"{name}_"] = [str(v) if mixed and v is not None else v for v in values]
    return frames.to_polars(columns)
