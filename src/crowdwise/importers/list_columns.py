"""Hugging Face datasets and their like: a row for each item, with lists of annotators and of what they said.

=============  ==============================================================================================
item           ``id`` or another column of items; else the number of the row
annotator      a column of lists: ``annotators``, ``worker_ids``, ``raters``...
question       every column of lists that is as long, in every row; ``ClassLabel`` as names, floats as ratings,
               lists in lists as label sets
               or one column of lists of objects, each with annotator and label (``annotations``)
gold           a column ``gold`` or ``truth``, where there is one question
=============  ==============================================================================================

A loaded ``datasets.Dataset``, or the same rows as JSON lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from crowdwise.data import columns
from crowdwise.errors import InputError
from crowdwise.importers import collect
from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

LOOK = 200
"""Rows by which columns are told apart."""


def recognises_huggingface(peek: Peek) -> bool:
    """Rows with a list of annotators beside a list of labels. (Lists of objects are ordinary JSON, read elsewhere.)"""
    first = peek.first
    who = _annotators(first)
    return who is not None and any(name != who and _as_long(first, name, who) for name in first)


def read_huggingface(files: ExportFiles, into: Collector) -> None:
    """Read one row after the other."""
    name = files.names[0]
    head = list(islice(files.objects(name), LOOK))
    if not head:
        return
    who = next((found for row in head if (found := _annotators(row)) is not None), None)
    nested = next((found for row in head if (found := _nested(row)) is not None), None)
    if who is None and nested is None:
        _read_long(files, name, list(head[0]), into)
        return
    lists = [n for n in head[0] if who and n != who and all(_as_long(r, n, who) for r in head if r.get(who))]
    plain = [n for n in head[0] if n != who and not any(isinstance(row.get(n), (list, dict)) for row in head)]
    item = columns.find(plain, "item") or next((n for n in plain if n.lower() in ("id", "uid", "idx")), None)
    true = columns.find(plain, "truth")
    for number, row in enumerate(files.objects(name)):
        key = number if item is None else row.get(item)
        into.about_item(key, **{n: row.get(n) for n in plain if n not in (item, true)})
        answers = _parallel(row, who, lists) if who is not None else _objects(row, str(nested))
        for question, annotator, label in answers:
            _add(question, key, annotator, label, into)
        if true is not None and row.get(true) is not None and len(into.questions) == 1:
            (only,) = into.questions
            kind = into.questions[only].kind
            into.gold(only, key, row[true] if kind == collect.NUMBERS else [row[true]], kind)


def _read_long(files: ExportFiles, name: str, known: list[str], into: Collector) -> None:
    """Rows with one answer each."""
    item, who = columns.find(known, "item"), columns.find(known, "annotator")
    label = columns.find([n for n in known if n not in (item, who)], "label")
    if item is None or who is None or label is None:
        raise InputError(
            f"{files.path} has neither lists of annotators and labels nor columns of item, annotator and label: it has "
            f"{', '.join(known)}. Lists of labels alone do not say who gave them."
        )
    for row in files.objects(name):
        others = {n: row.get(n) for n in known if n not in (item, who, label)}
        into.about_item(row.get(item), **others)
        _add(label, row.get(item), row.get(who), row.get(label), into)


def _parallel(row: Mapping[str, Any], who: str, lists: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    people = row.get(who) or []
    for name in lists:
        for annotator, label in zip(people, row.get(name) or [], strict=False):
            yield name, annotator, label


def _objects(row: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any, Any]]:
    for entry in row.get(name) or []:
        if isinstance(entry, Mapping):
            who = columns.find(list(entry), "annotator")
            label = columns.find([n for n in entry if n != who], "label")
            yield name, entry.get(who) if who else None, entry.get(label) if label else None


def _add(question: str, item: Any, annotator: Any, label: Any, into: Collector) -> None:
    if label is None or label == "":
        into.leave_out(collect.EMPTY)
    elif isinstance(label, float):
        into.number(question, item, annotator, label)
    elif isinstance(label, list):
        into.several(question)
        into.choices(question, item, annotator, label)
    elif isinstance(label, (str, int)):
        into.choices(question, item, annotator, [label])
    else:
        into.other(question, "answers of another kind")


def _annotators(row: Mapping[str, Any]) -> str | None:
    """The column of lists of annotators, by its name in the singular."""
    lists = [n for n, v in row.items() if isinstance(v, list) and all(isinstance(w, (str, int)) for w in v)]
    named = {name[:-1] if name.lower().endswith("s") else name: name for name in lists}
    found = columns.find(list(named), "annotator")
    return None if found is None else named[found]


def _nested(row: Mapping[str, Any]) -> str | None:
    """The column of lists of objects that have an annotator and a label."""
    for name, value in row.items():
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            who = columns.find(list(value[0]), "annotator")
            if who is not None and columns.find([n for n in value[0] if n != who], "label") is not None:
                return name
    return None


def _as_long(row: Mapping[str, Any], name: str, who: str) -> bool:
    return isinstance(row.get(name), list) and len(row[name]) == len(row.get(who) or [])
