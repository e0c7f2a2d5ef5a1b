"""Answers from tables, dataframes, files, dataset folders and exports of annotation tools, with their type.

Every function and command that takes answers makes one :class:`Opened` of them and passes it on: the file is opened
once, and what it is (an export? answers of which type?) is decided once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdwise import registry
from crowdwise.data.boundary import as_path
from crowdwise.errors import (
    ColumnError,
    InputError,
    LabelError,
    Option,
    ParameterError,
    ReadError,
    Remedy,
    listening,
    listing,
    warn,
)

if TYPE_CHECKING:
    from crowdwise.data.dataset import Dataset
    from crowdwise.data.files import TableFile
    from crowdwise.data.guess import Guess
    from crowdwise.data.votes import Votes
    from crowdwise.importers.export import Export

SAID = "meta.json says so"
AUTO = "auto"
"""The answer type that is found in the data, numbers on a scale included."""


def tell_doubt(guess: Guess | None) -> None:
    """Say what else votes may be, where nothing in the data decides."""
    if guess is not None and guess.doubt:
        remedy = Remedy("If they are, say {}.", Option("answer_type", guess.doubt))
        warn(f"Read as votes. They may be {guess.doubt}, since {guess.reason}.", remedy=remedy)


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers as they were read.

    ``dataset`` holds what lies beside votes in their folder; ``truth`` is a file of truth beside other answers;
    ``notes`` are the warnings of the reader.
    """

    answer_type: str
    table: Any
    dataset: Dataset | None = None
    truth: Path | None = None
    notes: tuple[str, ...] = ()


class Opened:
    """A source of answers, and what is known of it. Each part is found when it is first asked for, and kept.

    Parameters
    ----------
    source
        A table of answers, a data set, a dataframe, a file or a dataset folder.
    asked
        The answer type that the user names; ``"auto"`` takes numbers on a scale for ratings.
    method
        The key of the method, which says what answers it is for.
    reading
        Options of the reader: names of columns, and the others. Of an export, ``question`` is one of its questions.
        ``exclude``: annotators to leave out, their names or a file of them; of a file with verdicts those to drop, or
        with ``only_verdict`` all others. ``pseudonymise``: a file for who is who, where annotators are renamed.
    """

    def __init__(
        self, source: Any, asked: str | None = None, method: str | None = None, reading: Mapping[str, Any] | None = None
    ) -> None:
        self.source, self.reading = source, dict(reading or {})
        self.method = "majority" if method is None and self.reading.get("anonymous") else method
        self.exclude, self.only_verdict = self.reading.pop("exclude", None), self.reading.pop("only_verdict", None)
        self.pseudonymise = self.reading.pop("pseudonymise", None)
        if self.only_verdict is not None and self.exclude is None:
            raise ParameterError(
                "only_verdict: name the file with the verdicts on annotators, which aggregate writes.",
                remedy=Remedy("Say {}.", Option("exclude", python="'annotators.csv'", command="annotators.csv")),
            )
        self.asked = None if asked in (None, AUTO) else registry.answer_type(str(asked))
        self.scales = asked == AUTO and method is None
        self.path = as_path(source) if isinstance(source, (str, os.PathLike)) else None

    @cached_property
    def file(self) -> TableFile | None:
        """The file of the answers: the one that was named, or the table of votes in a folder."""
        from crowdwise.data.dataset import find_table
        from crowdwise.data.files import TableFile
        from crowdwise.data.schema import FILE

        if self.path is None:
            return None
        path = find_table(self.path, "votes") if self.path.is_dir() else self.path
        how = {option.name: self.reading[option.name] for option in FILE if option.name in self.reading}
        return None if path is None else TableFile(path, **how)

    @cached_property
    def head(self) -> Any:
        """The first rows; ``None`` where they cannot be read (an error of :attr:`answers` will say why)."""
        from crowdwise.data.guess import glance, glance_at

        if self.path is not None:
            return None if self.file is None or not self.file.path.is_file() else glance(self.file)
        return None if was_read(self.source) else glance_at(self.source)

    @cached_property
    def tool(self) -> str | None:
        """The annotation tool that a file, an archive or a folder is an export of; ``None`` where it is none."""
        if self.path is None or not self.path.exists() or (self.path.is_dir() and self.file is not None):
            return None
        if self._has_plain_columns:
            return None
        from crowdwise.importers.export import recognise

        return recognise(self.file or self.path)

    @cached_property
    def export(self) -> Export | None:
        """The export, read."""
        if self.tool is None:
            return None
        from crowdwise.importers.export import read_export

        return read_export(self.file or self.path, self.tool)

    @property
    def _has_plain_columns(self) -> bool:
        """Whether a text table has no columns but those that readers know: no tool writes such exports."""
        from crowdwise.data.columns import ALIASES, normal

        known = {word for words in ALIASES.values() for word in words}
        with suppress(InputError):
            if self.file is not None and self.file.kind == "csv" and self.head is not None:
                return all(normal(name) in known for name in self.head.columns)
        return False

    @cached_property
    def guess(self) -> Guess | None:
        """The type that the first rows show, and why; ``None`` where it is known otherwise, or they cannot be read."""
        from crowdwise.data.guess import Guess, guess

        if self.asked is not None or self.method is not None or was_read(self.source) or self.export is not None:
            return None
        folder = self.path is not None and self.path.is_dir()
        named = _named_type(self.path / "meta.json") if self.path is not None and folder else None
        if named:
            return Guess(named, SAID)
        if self.head is None:
            return None
        given = {part: self.reading.get(part) for part in ("item", "annotator", "label")}
        rows = {name: self.head[name].to_list() for name in self.head.columns}
        found = guess(self.head.columns, rows, given, {k.name: k.guessed for k in registry.ANSWER_TYPES.values()})
        if folder and found.kind != registry.VOTES:  # a dataset folder is taken for votes
            return replace(found, kind=registry.VOTES, doubt=found.kind)
        return found

    @cached_property
    def answer_type(self) -> str:
        """The type that was asked for, else that of the table or the method, else a guess."""
        if self.asked is not None:
            return self.asked
        named = registry.ANSWER_METHODS.get(self.method or "")
        own = getattr(self.source, "answer_type", None)
        if isinstance(own, str):  # pandas has a column of any name
            is_ours = named is not None and registry.ANSWER_TYPES[named.answer_type].load() is type(self.source)
            return named.answer_type if named is not None and is_ours else own
        if self.method is not None:
            return named.answer_type if named is not None else registry.VOTES
        if self.export is not None:
            return _exported(self.export, None, self.reading.get("question")).table.answer_type  # type: ignore[no-any-return]
        return registry.VOTES if self.guess is None else self.guess.kind

    @cached_property
    def answers(self) -> Answers:
        """The answers, without the annotators that are to be left out."""
        with listening() as heard:
            answers = self._answers()
            if self.exclude is not None:
                answers = _without(answers, names_in(self.exclude, self.only_verdict))
        answers = replace(answers, notes=tuple(dict.fromkeys(heard)))
        return answers if self.pseudonymise is None else _pseudonymised(answers, Path(self.pseudonymise))

    def _answers(self) -> Answers:
        """The answers. Where nothing says that they are classes, labels that look like numbers on a scale, texts or ids
        are an error; ``"auto"`` takes the numbers for ratings."""
        answer_type, options = self.answer_type, dict(self.reading)
        if self.export is not None:
            asked = self.asked or (None if answer_type in (registry.VOTES, registry.LINKED) else answer_type)
            return _exported(self.export, asked, options.pop("question", None), options)
        if self.asked or was_read(self.source) or answer_type != registry.VOTES or "classes" in options:
            return self._read(answer_type)
        from crowdwise.data.guess import point_out_truth

        named, head = "label" in options, self.head
        tell_doubt(self.guess)
        try:
            found = self._read(answer_type)
        except LabelError:  # true numbers that no annotator gave are not classes either
            if not check_labels(self._labels_alone(), self.method, named, scales=self.scales):
                raise
            return self._read(registry.NUMBERS)
        scaled = check_labels(found.table, self.method, named, scales=self.scales)
        if head is not None and not named:
            rows = {name: head[name].to_list() for name in head.columns}
            point_out_truth(head.columns, rows, self.reading)
        return self._read(registry.NUMBERS) if scaled else found

    @property
    def has_columns(self) -> bool:
        """Whether the source has the columns of its answer type."""
        try:
            return self.answers is not None
        except ColumnError:
            return False

    def as_type(self, answer_type: str) -> Opened:
        """The same source as answers of another type; its file is not opened again."""
        other = copy(self)
        other.asked = answer_type
        for name in ("guess", "answer_type", "answers"):
            other.__dict__.pop(name, None)
        return other

    def with_option(self, name: str, value: Any) -> Opened:
        """The same source, read with one more option; its file is not opened again."""
        if name == "answer_type":
            return self.as_type(registry.answer_type(str(value)))
        other = self.as_type(self.asked) if self.asked is not None else copy(self)
        other.reading = {**self.reading, name: value}
        for part in ("guess", "answer_type", "answers"):
            other.__dict__.pop(part, None)
        return other

    def split_options(self) -> dict[str, Any]:
        """Keep the options of the reader in ``reading``, and return the others."""
        known = {*registry.ANSWER_TYPES[self.answer_type].load().reader_options(), "label"}
        every, self.reading = self.reading, {name: value for name, value in self.reading.items() if name in known}
        if self.reading and was_read(self.source):
            raise ParameterError(
                f"{', '.join(self.reading)}: this says how a table or a file is read, and {type(self.source).__name__} "
                "were read already. Give it where they are read."
            )
        return {name: value for name, value in every.items() if name not in known}

    def _labels_alone(self) -> Votes | None:
        """The votes of a file or a folder without their truth."""
        from crowdwise.data.votes import read_votes

        if self.file is None:
            return None
        try:
            return read_votes(self.file, **{**self.reading, "truth_path": None})
        except InputError:
            return None

    def _read(self, answer_type: str) -> Answers:
        """The table behind a source."""
        from crowdwise.data.dataset import Dataset, dataset_of, find_table, read_dataset

        source, path, options = self.source, self.path, dict(self.reading)
        kind = registry.ANSWER_TYPES[answer_type]
        table = kind.load()
        if isinstance(source, Dataset):
            return Answers(answer_type, source.votes, source)
        if isinstance(getattr(source, "answer_type", None), str):
            if not isinstance(source, table):
                raise InputError(f"Expected {table.__name__} and found {type(source).__name__}.")
            return Answers(answer_type, source)
        if "label" in options and kind.column != "label":
            options[kind.column] = options.pop("label")
        if path is None:
            return Answers(answer_type, table.from_frame(source, **options))
        if answer_type == registry.VOTES:
            if not path.is_dir():
                votes = table.read(self.file, **options)
                data = Dataset(path.name, votes, file=self.file, item_column=options.get("item"))
            elif self.file is None and (path / "consensus.json").is_file():
                raise InputError(
                    f"{path} holds a saved consensus, not votes.",
                    remedy=Remedy("Open it with crowdwise.load.", command="Open it in Python: crowdwise.load."),
                )
            else:
                data = read_dataset(path) if self.file is None else dataset_of(path, self.file, **options)
            return Answers(answer_type, data.votes, data)
        if self.file is None:
            raise ReadError(f"{path} has no table of answers: expected labels.csv (or .parquet, .jsonl, ...) in it.")
        # True scores of items: a folder's table of truth does not say that it holds them.
        truth = find_table(path, "truth") if path.is_dir() and not kind.scores else None
        return Answers(answer_type, table.read(self.file, **options), truth=truth)


def read(source: Any, answers: str | None = None, *, reading: Mapping[str, Any] | None = None) -> Answers:
    """Answers from a table, a dataframe, a file or a dataset folder; the type as in :func:`aggregate`."""
    return Opened(source, answers, reading=reading).answers


def names_in(names: Any, only_verdict: str | None = None) -> list[Any]:
    """Names of annotators to leave out, from a list or from a file: a name on each line, or a table with a column of
    annotators. Where it has a column ``verdict``, they are those to drop, or all without the ``only_verdict``."""
    if not isinstance(names, (str, os.PathLike)):
        return list(names)
    from crowdwise.data.columns import find
    from crowdwise.data.files import TableFile

    file = TableFile(Path(names))
    text = bytes(file.content).decode("utf-8-sig", "replace") if file.kind == "csv" else ""
    lines = [line.strip().strip('"') for line in text.splitlines() if line.strip()]
    if lines and find([part.strip() for part in lines[0].split(file.found_separator)], "annotator") is None:
        if any(file.found_separator in line for line in lines):
            raise ColumnError(
                f"{names}: expected a column of annotators, such as 'annotator', or one name on each line."
            )
        return lines
    table = file.read()[0]
    column = find(table.columns, "annotator")
    if column is None:
        raise ColumnError(
            f"{names}: expected a column of annotators, such as 'annotator'; it has {listing(table.columns)}."
        )
    verdict = next((name for name in table.columns if name.strip().lower() == "verdict"), None)
    if verdict is None and only_verdict is not None:
        raise ColumnError(
            f"{names}: only_verdict needs a column 'verdict', as aggregate --annotators writes; it has "
            f"{listing(table.columns)}."
        )
    if verdict is not None:
        given = table[verdict].cast(str).str.strip_chars().str.to_lowercase()
        wanted = given == "drop" if only_verdict is None else given != only_verdict.strip().lower()
        if only_verdict is not None and not (~wanted).any():
            raise InputError(
                f"{names}: no annotator has the verdict {only_verdict!r}; there are {listing(set(given))}."
            )
        table = table.filter(wanted.fill_null(False))
    return table[column].drop_nulls().unique(maintain_order=True).to_list()


def _pseudonymised(found: Answers, key: Path) -> Answers:
    """Answers whose annotators are called ``annotator 1``, ``annotator 2``..., drawn at random; a table of who is who,
    which is read where it is there and added to. Notes that name an annotator are left out."""
    import secrets

    import numpy as np
    import polars as pl

    from crowdwise.data.files import TableFile
    from crowdwise.data.folders import write_whole

    known: dict[str, str] = {}
    if key.exists():
        table = TableFile.of(key).read()[0].cast(pl.String)
        if table.columns != ["annotator", "pseudonym"]:
            raise ColumnError(f"{key}: expected the columns annotator and pseudonym; it has {listing(table.columns)}.")
        known = dict(table.rows())
    names = found.table.annotators.tolist()
    new = [str(name) for name in names if str(name) not in known]
    for n in range(len(new) - 1, 0, -1):
        other = secrets.randbelow(n + 1)
        new[n], new[other] = new[other], new[n]
    taken = set(known.values())
    free = (word for n in range(1, len(taken) + len(new) + 1) if (word := f"annotator {n}") not in taken)
    known |= dict(zip(new, free, strict=False))
    made = pl.DataFrame({"annotator": list(known), "pseudonym": list(known.values())})
    write_whole(made.write_csv, key, private=True)
    table = replace(found.table, annotators=np.array([known[str(name)] for name in names], dtype=object))
    data = None if found.dataset is None else replace(found.dataset, votes=table, annotator_table=None)
    return replace(found, table=table, dataset=data, notes=tuple(n for n in found.notes if not _names_one(n, names)))


def _names_one(note: str, names: list[Any]) -> bool:
    words = (str(name) for name in names if str(name) in note)
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", note) for word in words)


def _without(found: Answers, names: list[Any]) -> Answers:
    """Answers without those of some annotators; names that are not there are said."""
    known = {str(name): name for name in found.table.annotators.tolist()}
    unknown = [name for name in names if str(name).strip() not in known]
    if unknown:
        warn(f"No annotator is called {listing(unknown)}, of {len(names):,} to leave out.")
    chosen = [known[str(name).strip()] for name in names if str(name).strip() in known]
    if len(chosen) == len(known):
        raise InputError(f"No answers: all {len(known):,} annotators are to be left out.")
    table = found.table.without(chosen) if chosen else found.table
    data = None if found.dataset is None else replace(found.dataset, votes=table)
    return replace(found, table=table, dataset=data)


def _exported(
    export: Export, asked: str | None, question: str | None, options: Mapping[str, Any] | None = None
) -> Answers:
    """The answers to a question of an export: the one that is named, or the only one (of the type asked for)."""
    if options:
        raise ParameterError(
            f"{', '.join(options)}: {export.path} is an export of {export.tool}, whose columns are known. Import it "
            "first (crowdwise import), and read the table that this makes."
        )
    if not export.tables:
        raise InputError(f"{export.path} is an export of {export.tool}. {' '.join(export.lines())}")
    kind = None if asked is None else registry.answer_type(asked)
    fit = [name for name, table in export.tables.items() if kind in (None, table.answer_type)]
    name = fit[0] if question is None and len(fit) == 1 else export.question(question)
    table = export.tables[name]
    if kind == registry.NUMBERS and table.answer_type == registry.VOTES:
        return Answers(kind, export.as_ratings(name))
    if asked is None and table.answer_type == registry.VOTES:
        check_labels(table, None, named=True)
    votes = kind is not None and registry.ANSWER_TYPES[kind].load() is type(table)
    if kind not in (None, table.answer_type) and not votes:
        raise InputError(
            f"{name!r} of {export.path} holds {table.answer_type}, not {kind}: aggregate and report take it."
        )
    return Answers(kind or table.answer_type, table, export.dataset(name))


def _named_type(file: Path) -> str | None:
    """The type of answers that the meta.json of a folder names."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("answer_type")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return found if found in registry.ANSWER_TYPES else None


def check_labels(
    votes: Votes | None, method: str | None, named: bool, n_votes: int | None = None, *, scales: bool = False
) -> bool:
    """Whether to take labels for ratings, where these may be (``scales``). Labels that do not look like classes are an
    error or a warning. ``votes`` may be some of ``n_votes``; ``named``: the user named the column of labels."""
    from crowdwise.data import guess

    if votes is None:
        return False
    scale = guess.scale_of(votes)
    if scale is None:
        guess.check_classes(votes, named, n_votes)
    elif scales:
        warn(f"Read as ratings: {scale.words}.")
        return True
    elif scale.certain and method is None:
        raise InputError(f"{scale.words[:1].upper()}{scale.words[1:]}: ratings?", remedy=guess.AS_NUMBERS)
    else:
        warn(f"Read as votes, and {scale.words}.", remedy=guess.AS_NUMBERS)
    return False


def was_read(source: Any) -> bool:
    """Whether a source is a table of answers, or a data set, already."""
    from crowdwise.data.dataset import Dataset

    return isinstance(getattr(source, "answer_type", None), str) or isinstance(source, Dataset)
