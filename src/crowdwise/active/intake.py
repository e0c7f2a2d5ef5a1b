"""Votes on their way into the book of a campaign: what they are about, whether they are new, and make sense."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crowdwise.active.journal import Journal
from crowdwise.data.votes import Votes
from crowdwise.errors import DuplicateError, InputError, LabelError, ParameterError, listing, suggestion

AT_ONCE = 500
"""How many names SQLite is asked about at once."""

Row = tuple[Any, Any, Any, str]
"""Item, annotator, label, and the id of the vote."""


def rows_of(votes: Any, ids: Sequence[Any] | None) -> list[Row]:
    """(item, annotator, label, vote id) of each vote."""
    if isinstance(votes, Votes):
        table = votes.to_frame("dict")
        given = list(zip(*(np.asarray(table[c]).tolist() for c in ("item", "annotator", "label")), strict=True))
    else:
        given = [tuple(x.item() if isinstance(x, np.generic) else x for x in row) for row in votes]
    for row in given:
        if len(row) != 3 or any(x is None for x in row):
            raise InputError(f"Expected (item, annotator, class) for each vote and found {row!r}. Nothing was added.")
    if ids is not None and len(ids) != len(given):
        raise InputError(f"There are {len(given)} votes and {len(ids)} ids: give one for each. Nothing was added.")
    names = [json.dumps([item, who]) for item, who, _ in given] if ids is None else [str(i) for i in ids]
    return [(item, who, label, name) for (item, who, label), name in zip(given, names, strict=True)]


def class_code(label: Any, item: Any, classes: list[Any]) -> int:
    """The code of a class that was declared."""
    label = label.item() if isinstance(label, np.generic) else label
    if label not in classes:
        near = suggestion(str(label), [str(c) for c in classes])
        raise LabelError(
            f"A vote on {item!r} says {label!r}, and the classes are {listing(classes, 10)}.{near} Nothing was added."
        )
    return classes.index(label)


def numbers_of(journal: Journal, table: str, names: list[str], unknown: str, price: float) -> list[int]:
    """The numbers behind some names (as JSON), adding unknown ones where that is the policy.

    Inside :meth:`Journal.writing`.
    """
    distinct = list(dict.fromkeys(names))
    found: dict[str, int] = {}
    for lo in range(0, len(distinct), AT_ONCE):
        some = distinct[lo : lo + AT_ONCE]
        marks = ",".join("?" * len(some))
        found |= dict(journal.read(f"SELECT name, id FROM {table} WHERE name IN ({marks})", some))
    missing = [name for name in distinct if name not in found]
    if missing and unknown == "error":
        raise InputError(
            f"Unknown {table}: {listing([json.loads(name) for name in missing])}. Nothing was added. "
            "Declare them first, or make the campaign with unknown='add'."
        )
    if missing:
        costs = [price] if table == "annotators" else []
        columns, marks = ("name, price", "?, ?") if costs else ("name", "?")
        journal.write(f"INSERT INTO {table} ({columns}) VALUES ({marks})", [(name, *costs) for name in missing])
        return numbers_of(journal, table, names, "error", price)
    return [found[name] for name in names]


def new_among(
    journal: Journal, rows: list[Row], items: list[int], people: list[int], labels: list[int]
) -> tuple[list[int], int]:
    """Which rows are new votes, and how many are there already; a complaint where one contradicts the book."""
    seen: dict[str, tuple[int, int, int]] = {}
    pairs: dict[tuple[int, int], str] = {}
    for lo in range(0, len(rows), AT_ONCE):
        some = range(lo, min(lo + AT_ONCE, len(rows)))
        marks = ",".join("?" * len(some))
        found = journal.read(
            f"SELECT vote_id, item, annotator, label FROM votes WHERE vote_id IN ({marks})", [rows[i][3] for i in some]
        )
        seen |= {vote: (item, who, label) for vote, item, who, label in found}
        marks = ",".join(["(?, ?)"] * len(some))
        found = journal.read(
            f"SELECT item, annotator, vote_id FROM votes WHERE (item, annotator) IN (VALUES {marks})",
            [x for i in some for x in (items[i], people[i])],
        )
        pairs |= {(item, who): vote for item, who, vote in found}
    new: list[int] = []
    repeated = 0
    for i, (item, who, _, vote) in enumerate(rows):
        content = (items[i], people[i], labels[i])
        if vote in seen:
            if seen[vote] != content:
                raise DuplicateError(
                    f"The vote {vote} is there with another content than {who!r} on {item!r}: "
                    "an id stands for one vote. Nothing was added."
                )
            repeated += 1
            continue
        if pairs.get((items[i], people[i]), vote) != vote:
            raise DuplicateError(
                f"{who!r} has voted on {item!r} before, in another vote. Votes are not changed: nothing was added."
            )
        seen[vote], pairs[items[i], people[i]] = content, vote
        new.append(i)
    return new, repeated


def priced(annotators: Mapping[Any, float]) -> list[tuple[str, float]]:
    """Names (as JSON) and prices, checked."""
    for name, price in annotators.items():
        check_amount(f"The price of {name!r}", price)
    return [(json.dumps(name), float(price)) for name, price in annotators.items()]


def check_amount(name: str, value: Any) -> None:
    """Money and time are above 0."""
    if not (isinstance(value, (int, float)) and 0.0 < value < np.inf):
        raise ParameterError(f"{name}={value!r}: expected an amount above 0.")
