"""Answers from wherever they are: tables, dataframes, files and dataset folders, with their type.

Every function and every command that takes answers reads them here; what a file was taken for is in the :class:`Guess`
of :func:`answer_type_of`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdwise import registry
from crowdwise.errors import InputError, LabelError, ParameterError, ReadError, Remedy, warn

if TYPE_CHECKING:
    from crowdwise.data.dataset import Dataset
    from crowdwise.data.guess import Guess
    from crowdwise.data.votes import Votes
    from crowdwise.importers.export import Export

SAID = "meta.json says so"
AUTO = "auto"
"""The answer type that is found in the data, numbers on a scale included."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers as they were read.

    ``dataset`` holds what lies beside votes in their folder; ``truth`` is a file of truth beside other answers.
    """

    answer_type: str
    table: Any
    dataset: Dataset | None = None
    truth: Path | None = None


def read(source: Any, answers: str | None = None, *, reading: Mapping[str, Any] | None = None) -> Answers:
    """Answers from a table, a dataframe, a file or a dataset folder; the type as in :func:`aggregate`."""
    return checked(source, answers, None, dict(reading or {}))


def answer_type_of(
    source: Any, asked: str | None = None, method: str | None = None, *, question: str | None = None,
    reading: Mapping[str, Any] | None = None,
) -> tuple[str, Guess | None]:  # fmt: skip
    """The type that was asked for, else that of the table or the method, else a guess.

    A dataset folder is taken for votes; what its answers look like is in the guess. ``question`` is that of an export;
    ``reading`` has the columns that were named (and other options of the reader, which do not matter here).
    """
    if asked not in (None, AUTO):
        return registry.answer_type(str(asked)), None
    named = registry.ANSWER_METHODS.get(method or "")
    own = getattr(source, "answer_type", None)
    if isinstance(own, str):  # pandas has a column of any name
        is_ours = named is not None and registry.ANSWER_TYPES[named.answer_type].load() is type(source)
        return named.answer_type if named is not None and is_ours else own, None
    if method is not None:
        return named.answer_type if named is not None else registry.VOTES, None
    is_file = isinstance(source, (str, os.PathLike))
    if is_file:
        found = export_of(Path(source))
        if found is not None:
            return _exported(found, None, question).table.answer_type, None
    guess = _guess(source, reading or {})
    if guess is None or guess.kind == registry.VOTES:
        return registry.VOTES, guess
    if is_file and Path(source).is_dir() and guess.reason != SAID:
        return registry.VOTES, replace(guess, kind=registry.VOTES, doubt=guess.kind)
    return guess.kind, guess


def _guess(source: Any, reading: Mapping[str, Any]) -> Guess | None:
    """The type of answers in a dataframe or a file (or a dataset folder), by its first rows; ``None`` where these
    cannot be read."""
    from crowdwise.data.dataset import Dataset, find_table
    from crowdwise.data.guess import Guess, glance, glance_at, guess

    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            named = _named_type(path / "meta.json")
            if named:
                return Guess(named, SAID)
        file = find_table(path, "votes") if path.is_dir() else path
        head = glance(file) if file is not None and file.is_file() else None
    else:
        head = None if isinstance(source, Dataset) else glance_at(source)
    if head is None:
        return None
    given = {part: reading.get(part) for part in ("item", "annotator", "label")}
    return guess(head.columns, {name: head[name].to_list() for name in head.columns}, given)


def checked(source: Any, asked: str | None, method: str | None, options: dict[str, Any]) -> Answers:
    """The table behind a source. Where nobody said that they are classes, labels that look like numbers on a scale,
    texts or ids are an error; ``"auto"`` takes the numbers for ratings."""
    if isinstance(source, (str, os.PathLike)):
        export = export_of(Path(source))
        if export is not None:
            options = dict(options)
            return _exported(export, asked if asked != AUTO else None, options.pop("question", None), options)
    answer_type = answer_type_of(source, asked, method, reading=options)[0]
    if asked not in (None, AUTO) or was_read(source) or answer_type != registry.VOTES or "classes" in options:
        return _read(source, answer_type, options)
    try:
        found = _read(source, answer_type, dict(options))
    except LabelError:  # true numbers that no annotator gave are no classes either
        if not _on_scale(_labels_alone(source, options), asked, method, "label" in options):
            raise
        return _read(source, "ratings", options)
    scaled = _on_scale(found.table, asked, method, "label" in options)
    return _read(source, "ratings", options) if scaled else found


def export_of(path: Path) -> Export | None:
    """The export of an annotation tool that a file, an archive or a folder is; ``None`` where it is none."""
    from crowdwise.data.dataset import find_table

    if not path.exists() or (path.is_dir() and find_table(path, "votes") is not None):
        return None
    state = path.stat()
    return _export(str(path), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=1)
def _export(path: str, changed: int, size: int) -> Export | None:
    """The same, kept: commands look at a file more than once."""
    from crowdwise.importers.read_export import read_export, recognise

    tool = recognise(path)
    return None if tool is None else read_export(path, tool)


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
    if kind == "ratings" and table.answer_type == registry.VOTES:
        return Answers(kind, export.as_ratings(name))
    if asked is None and table.answer_type == registry.VOTES:
        _on_scale(table, asked, None, named=True)
    votes = kind is not None and registry.ANSWER_TYPES[kind].load() is type(table)
    if kind not in (None, table.answer_type) and not votes:
        raise InputError(f"{name!r} of {export.path} holds {table.answer_type}, not {kind}.")
    return Answers(kind or table.answer_type, table, export.dataset(name))


def _named_type(file: Path) -> str | None:
    """The type of answers that the meta.json of a folder names."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("answer_type")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return found if found in registry.ANSWER_TYPES else None


def check_labels(votes: Votes, n_votes: int, method: str | None, named: bool) -> None:
    """Whether labels are classes, from some of ``n_votes``: an error (or a warning) as for all of them."""
    _on_scale(votes, None, method, named, n_votes)


def _on_scale(
    votes: Votes | None, asked: str | None, method: str | None, named: bool, n_votes: int | None = None
) -> bool:
    """Whether to take labels for ratings. Where they look like that and nobody said so, it is asked for."""
    from crowdwise.data import label_checks

    if votes is None:
        return False
    scale = label_checks.scale_of(votes)
    if scale is None:
        label_checks.check_classes(votes, named, n_votes)
    elif asked == AUTO and method is None:
        warn(f"Read as ratings: {scale.words}.")
        return True
    elif scale.certain and method is None:
        raise InputError(f"{scale.words[:1].upper()}{scale.words[1:]}: ratings?", remedy=label_checks.AS_NUMBERS)
    else:
        warn(f"Read as votes, and {scale.words}.", remedy=label_checks.AS_NUMBERS)
    return False


def _labels_alone(source: Any, options: dict[str, Any]) -> Votes | None:
    """The votes of a file or a folder without their truth."""
    from crowdwise.data.dataset import find_table
    from crowdwise.data.votes import read_votes

    if not isinstance(source, (str, os.PathLike)):
        return None
    file = find_table(Path(source), "votes") if Path(source).is_dir() else Path(source)
    try:
        return None if file is None else read_votes(file, **{**options, "truth_path": None})
    except InputError:
        return None


def _read(source: Any, answer_type: str, options: dict[str, Any]) -> Answers:
    """The table behind a source."""
    from crowdwise.data.dataset import Dataset, find_table, read_dataset

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
    if not isinstance(source, (str, os.PathLike)):
        return Answers(answer_type, table.from_frame(source, **options))
    path = Path(source)
    if answer_type == registry.VOTES:
        if not path.is_dir():
            data = Dataset(path.name, table.read(path, **options), file=path, item_column=options.get("item"))
        elif find_table(path, "votes") is None and (path / "consensus.json").is_file():
            raise InputError(
                f"{path} holds a saved consensus, not votes.",
                remedy=Remedy("Open it with crowdwise.load.", command="Open it in Python: crowdwise.load."),
            )
        else:
            data = read_dataset(path, **options)
        return Answers(answer_type, data.votes, data)
    truth = None
    if path.is_dir():
        file = find_table(path, "votes")
        if file is None:
            raise ReadError(f"{path} has no table of answers: expected labels.csv (or .parquet, .jsonl, ...) in it.")
        if not kind.scores:  # true scores of items: a folder's table of truth does not say that it holds them
            truth = find_table(path, "truth")
        path = file
    return Answers(answer_type, table.read(path, **options), truth=truth)


def reading_options(source: Any, answer_type: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options apart: those that say how a source is read, and the rest."""
    known = {*registry.ANSWER_TYPES[answer_type].load().reader_options(), "label"}
    reading = {name: value for name, value in options.items() if name in known}
    if reading and was_read(source):
        raise ParameterError(
            f"{', '.join(reading)}: this says how a table or a file is read, and {type(source).__name__} were read "
            "already. Give it where they are read."
        )
    return reading, {name: value for name, value in options.items() if name not in known}


def was_read(source: Any) -> bool:
    """Whether a source is a table of answers, or a data set, already."""
    from crowdwise.data.dataset import Dataset

    return isinstance(getattr(source, "answer_type", None), str) or isinstance(source, Dataset)
