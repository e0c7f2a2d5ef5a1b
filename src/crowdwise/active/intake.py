"""The door of a campaign: votes come in with names, and are written into the journal in codes before they are
acknowledged."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.active.canonical import id_text, name_text
from crowdwise.active.roster import AT_ONCE, Roster
from crowdwise.data.votes import Votes
from crowdwise.errors import DuplicateError, InputError, LabelError, listing, suggestion

__all__ = ["Receipt", "add_votes", "class_code"]

UNKNOWN = "Declare them first, or make the campaign with unknown='add'."
Columns = tuple[list[str], list[str], list[int]]
"""Items and annotators as JSON texts, and class codes, of each vote."""


@dataclass(frozen=True)
class Receipt:
    """What became of votes that were added. All of it is on the disk."""

    added: int
    repeated: int
    """Votes that were there already, with the same id and the same content."""


def add_votes(
    roster: Roster, votes: Any, ids: Sequence[Any] | None, classes: list[Any], price: float | None
) -> Receipt:
    """Write votes into the journal, all or none. Unknown items and annotators are added where a price is given."""
    journal = roster.journal
    items, people, labels = _of_table(votes, classes) if isinstance(votes, Votes) else _of_rows(votes, classes)
    given = None if ids is None else [id_text(name) for name in ids]
    if given is not None and len(given) != len(items):
        raise InputError(f"There are {len(items)} votes and {len(given)} ids: give one for each. Nothing was added.")
    with journal.writing():
        item_code = roster.codes("items", items, price, UNKNOWN)
        person_code = roster.codes("annotators", people, price, UNKNOWN)
        content = [(item_code[n], person_code[m], k) for n, m, k in zip(items, people, labels, strict=True)]
        names = given or [f"[{n}, {m}]" for n, m in zip(items, people, strict=True)]
        new = _new_among(roster, names, content, items, people)
        closed = roster.items_with("closed")
        shut = [json.loads(items[i]) for i in new if content[i][0] in closed] if closed else []
        if shut:
            raise InputError(f"Votes on closed items: {listing(dict.fromkeys(shut))}. Nothing was added.")
        prices = dict(journal.read("SELECT id - 1, price FROM annotators"))
        now = time.time()
        journal.add_votes(
            [(names[i], n + 1, m + 1, k, prices[m], now) for i in new for n, m, k in (content[i],)],
            [(items[i], people[i]) for i in new],
        )
        answered = [(content[i][0] + 1, content[i][1] + 1) for i in new]
        journal.write("DELETE FROM asked WHERE item = ? AND annotator = ?", answered)
    return Receipt(len(new), len(items) - len(new))


def _of_table(votes: Votes, classes: list[Any]) -> Columns:
    """Each name of a table becomes a text once."""
    items, people = (
        [name_text(name, what) for name in names.tolist()]
        for names, what in ((votes.items, "item"), (votes.annotators, "annotator"))
    )
    used, first = np.unique(votes.label, return_index=True)
    code = {
        k: class_code(votes.classes[k], votes.items[votes.item[i]], classes)
        for k, i in zip(used.tolist(), first, strict=True)
    }
    item, annotator, label = (column.tolist() for column in (votes.item, votes.annotator, votes.label))
    return [items[n] for n in item], [people[m] for m in annotator], [code[k] for k in label]


def _of_rows(votes: Any, classes: list[Any]) -> Columns:
    items, people, labels = [], [], []
    if not isinstance(votes, Iterable) or isinstance(votes, (str, bytes, Mapping)):
        raise InputError(f"Expected (item, annotator, class) for each vote and found {votes!r}. Nothing was added.")
    for row in votes:
        given = tuple(row) if isinstance(row, Iterable) and not isinstance(row, (str, bytes, Mapping)) else ()
        if len(given) != 3 or any(x is None for x in given):
            raise InputError(f"Expected (item, annotator, class) for each vote and found {row!r}. Nothing was added.")
        items.append(name_text(given[0], "item"))
        people.append(name_text(given[1], "annotator"))
        labels.append(class_code(given[2], given[0], classes))
    return items, people, labels


def class_code(label: Any, item: Any, classes: list[Any]) -> int:
    """The code of a class that was declared."""
    known = [json.dumps(c) for c in classes]
    with suppress(InputError):
        text = name_text(label, "class", booleans=True)
        if text in known:
            return known.index(text)
    near = suggestion(str(label), [str(c) for c in classes])
    raise LabelError(
        f"A vote on {item!r} says {label!r}, and the classes are {listing(classes, 10)}.{near} Nothing was added."
    )


def _new_among(
    roster: Roster, names: list[str], content: list[tuple[int, int, int]], items: list[str], people: list[str]
) -> list[int]:
    """The places of the votes that are not in the journal yet; an error where one contradicts it."""
    seen: dict[str, tuple[int, ...]] = {}
    pairs: set[tuple[int, ...]] = set()
    columns = "SELECT vote_id, item - 1, annotator - 1, label FROM votes WHERE"
    for lo in range(0, len(names), AT_ONCE):
        some, rows = names[lo : lo + AT_ONCE], [x + 1 for row in content[lo : lo + AT_ONCE] for x in row[:2]]
        marks, values = ",".join("?" * len(some)), ",".join(["(?, ?)"] * len(some))
        found = roster.journal.read(f"{columns} vote_id IN ({marks})", some)
        found += roster.journal.read(f"{columns} (item, annotator) IN (VALUES {values})", rows)
        seen |= {vote: tuple(row) for vote, *row in found}
        pairs |= {(item, who) for _, item, who, _ in found}
    new: list[int] = []
    for i, (name, row) in enumerate(zip(names, content, strict=True)):
        if name not in seen and row[:2] not in pairs:
            seen[name] = row
            pairs.add(row[:2])
            new.append(i)
        elif name not in seen:
            item, who = json.loads(items[i]), json.loads(people[i])
            raise DuplicateError(
                f"{who!r} has voted on {item!r} before, in another vote. Votes are not changed: nothing was added."
            )
        elif seen[name] != row:
            item, who = json.loads(items[i]), json.loads(people[i])
            raise DuplicateError(
                f"The vote {name} is there with another content than {who!r} on {item!r}: "
                "an id stands for one vote. Nothing was added."
            )
    return new
