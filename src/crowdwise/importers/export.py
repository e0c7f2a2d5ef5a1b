"""What was read of an export: a table for each question, items, annotators, and what was left out.

=================  ==============================================================================
answers            table
=================  ==============================================================================
one class each     votes; label sets where some annotator chose several
numbers            ratings
which is better    comparisons
items in order     rankings
spans of a text    tags of its tokens; spans where some of an annotator overlap
shapes             boxes (points, events in time, volumes); masks, one item per image and class
other types        that of the type (``Collector.answer``)
all else           none: the question is left alone, and that is said
=================  ==============================================================================

The tool is recognised by the content of its export.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdwise import registry
from crowdwise.data import frames
from crowdwise.data.boundary import guarded, reading
from crowdwise.data.dataset import Dataset
from crowdwise.data.folders import replacing
from crowdwise.data.heavy import pl
from crowdwise.data.ratings import Ratings
from crowdwise.data.table import alike
from crowdwise.data.votes import Votes
from crowdwise.errors import CrowdwiseError, InputError, Option, ParameterError, ReadError, Remedy, listing, suggestion
from crowdwise.importers import collect
from crowdwise.importers.collect import Collector, ExportQuestion, bio
from crowdwise.importers.export_files import (
    ExportFiles,
    LoadedDataset,
    LoadedObjects,
    Peek,
    is_dataset,
    parquet_rows,
)

KEPT = ("timestamp", "duration")
OPTIONS: dict[str, dict[str, Any]] = {
    collect.PAIRS: {"on_self": "drop", "outcomes": {side: side for side in ("left", "right", "tie")}},
    collect.SPANS: {"on_invalid": "repair"},
}
"""How tables read what importers collect."""


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
        Questions that no table is for (relations, lines), and what they hold.
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
        answers = self.answers[self.question(question)].drop("duration", strict=False)
        return Ratings.from_frame(answers, value="label")

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
        folders = []
        with replacing(folder, "imported export", manifest=False) as target:
            for (name, table), own in zip(self.tables.items(), _file_names(self.tables), strict=True):
                place = target if len(self.tables) == 1 else target / own
                place.mkdir(exist_ok=len(self.tables) == 1)
                self._save(name, table, place)
                folders.append(Path(folder) / place.relative_to(target))
        return folders

    def _save(self, name: str, table: Any, folder: Path) -> None:
        answers = self.answers[name]
        if any(dtype.is_nested() for dtype in answers.dtypes):
            answers.write_ndjson(folder / "labels.jsonl")
        else:
            answers.write_csv(folder / "labels.csv")
        truth = table.truth_frame()
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


def build(collected: Collector, tool: str, path: Path) -> Export:
    """The tables of what an importer found."""
    tables, answers = {}, {}
    collected.gather()
    left_out = Counter(collected.left_out)
    for name, question in collected.questions.items():
        with_frame = _made(collected, question, left_out)
        if with_frame is not None:
            tables[name], answers[name] = with_frame
    if not tables and not collected.alone:
        why = f" ({', '.join(f'{n:,} {w}' for w, n in left_out.items())})" if left_out else ""
        raise InputError(f"{path} is an export of {tool} without any answers{why}.")
    alone = {name: ", ".join(f"{n:,} {what}" for what, n in kinds.items()) for name, kinds in collected.alone.items()}
    return Export(
        tool, path, tables, answers, _about(collected.items, "item"), _about(collected.annotators, "annotator"),
        {why: n for why, n in left_out.items() if n}, alone, tuple(collected.notes),
    )  # fmt: skip


def _made(collected: Collector, question: ExportQuestion, left_out: Counter[str]) -> tuple[Any, Any] | None:
    """The table of a question and its answers as a frame; ``None`` where there are none."""
    answers = collect.once(question.answers)
    left_out[collect.LAST] += len(question.answers) - len(answers)
    kind = question.kind
    if kind == collect.CHOICES:
        kind = registry.SETS if question.several or any(len(a.said) > 1 for a in answers) else registry.VOTES
    elif kind == collect.SPANS and question.overlapping:
        kind = collect.OFFSETS
    if kind == registry.VOTES:
        left_out[collect.EMPTY] += sum(not a.said for a in answers)
        answers = [a._replace(said=a.said[0]) for a in answers if a.said]
    if not answers:
        return None
    table = registry.ANSWER_TYPES[collect.BOXES if kind == collect.EVENTS else kind].load()
    tagged = kind == collect.SPANS
    if kind == collect.OFFSETS:
        columns = collect.columns_of_spans(collected, answers)
    elif tagged:
        tokens = collect.tokens_by_item(collected, question, answers)
        columns = collect.columns_of_tags(collected, tokens, answers)
    else:
        columns = table.answer_columns(answers)
        if kind == collect.EVENTS:  # two numbers of a box are a stretch here, not a point
            columns = {{"x": "x1", "y": "x2"}.get(name, name): values for name, values in columns.items()}
    unknown = [name for name in KEPT if name in columns and None in columns[name]]  # times, not of every answer
    frame = frames.to_polars({name: alike(values) for name, values in columns.items() if name not in unknown})
    answered, gold = table.from_frame(frame.drop("duration", strict=False), **OPTIONS.get(kind, {})), question.gold
    if tagged:
        gold = {n: bio(tokens[n], spans) for n, spans in gold.items() if n in tokens}
    elif kind == collect.OFFSETS:
        gold = {n: [(label, start, end) for start, end, label in spans] for n, spans in gold.items()}
    names = set(map(str, answered.items.tolist()))
    known = {item: truth for item, truth in answered.usable_gold(gold).items() if str(item) in names}
    return answered.with_truth(known) if known else answered, frame


def _about(known: Mapping[Any, Mapping[str, Any]], key: str) -> Any:
    """A table of what is known of items or annotators; ``None`` where nothing is."""
    names = list(dict.fromkeys(name for row in known.values() for name in row))
    if not names:
        return None
    columns: dict[str, list[Any]] = {key: alike(list(known))}
    for name in names:
        values = [row.get(name) for row in known.values()]
        kinds = {type(value) for value in values if value is not None}
        mixed = len(kinds) > 1
        columns[name if name != key else f"{name}_"] = [str(v) if mixed and v is not None else v for v in values]
    return frames.to_polars(columns)


@guarded
def read_export(path: Any, tool: str = "auto", *, predictions: bool = False, question: str | None = None) -> Export:
    """The answers in an export of an annotation tool, question by question.

    Parameters
    ----------
    path
        A file, a zip archive or a folder, as the tool writes it; a loaded ``datasets.Dataset``; or a list of the
        objects in its JSON file.
    tool
        A key of ``crowdwise.registry.IMPORTERS``, such as ``"label-studio"``. By default it is recognised.
    predictions
        Whether answers of models are read too, as annotators that are called ``model:NAME``.
    question
        Read this question alone.
    """
    with _opened(path) as files:
        file = files.path
        if tool == "auto":
            recognised = _recognised(files)
            if recognised is None and isinstance(files, LoadedDataset):
                recognised = "huggingface"
            if recognised is None:
                known = ", ".join(entry.title for entry in registry.IMPORTERS.values())
                raise ReadError(f"{file} was not recognised as an export of an annotation tool ({known}).")
            tool = recognised
        if tool not in registry.IMPORTERS:
            near = suggestion(tool, list(registry.IMPORTERS))
            raise ParameterError(f"Unknown tool {tool!r}: there are {', '.join(registry.IMPORTERS)}.{near}")
        into = Collector(predictions)
        with reading(file, f"an export of {registry.IMPORTERS[tool].title}"):
            registry.IMPORTERS[tool].load("read")(files, into)
    if question is not None:
        into.questions = {name: q for name, q in into.questions.items() if name == question} or into.questions
        into.alone = {name: kinds for name, kinds in into.alone.items() if name == question}
    export = build(into, tool, file)
    if question is not None:
        export.question(question)
    return export


def _opened(source: Any) -> ExportFiles:
    if is_dataset(source):
        return LoadedDataset(source)
    if _is_parquet(source):
        return parquet_rows(source)
    return LoadedObjects(source) if isinstance(source, list) else ExportFiles(source)


def _is_parquet(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) and os.fspath(source).endswith(".parquet")


def recognise(path: str | os.PathLike[str]) -> str | None:
    """The tool that an export is from, by its content; ``None`` where it is none that is known."""
    try:
        with parquet_rows(path, 1) if _is_parquet(path) else ExportFiles(path) as files:
            return _recognised(files)
    except (CrowdwiseError, OSError):
        return None


def _recognised(files: ExportFiles) -> str | None:
    peek = Peek(files)
    return next((key for key, entry in registry.IMPORTERS.items() if recognises(entry, peek)), None)


def recognises(entry: registry.Importer, peek: Peek) -> bool:
    """Whether what is seen at a glance is of a tool: by columns or keys that it alone has, or as its module says."""
    shown = set(entry.shown_by.split())
    if not shown:
        return bool(entry.load("recognises")(peek))
    return shown <= set(peek.first if entry.objects else peek.columns)
