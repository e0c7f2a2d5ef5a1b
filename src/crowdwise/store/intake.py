"""Validates and journals incoming votes: they come with names, and are written in codes before the answer."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from crowdwise.data.columns import ALIASES, find, left_over, normal, resolve
from crowdwise.data.frames import to_polars
from crowdwise.data.votes import Votes
from crowdwise.errors import ColumnError, DuplicateError, InputError, LabelError, listing, suggestion
from crowdwise.store.canonical import id_text, name_text
from crowdwise.store.roster import AT_ONCE, Roster

UNKNOWN = (
    "Declare them first (add_items, add_annotators; crowdwise campaign add-items, add-annotators), or make the "
    "campaign with unknown='add' (--unknown add)."
)
PARTS = ("item", "annotator", "label")
FRAMES = ("pandas", "polars", "pyarrow", "narwhals")
Rows = tuple[list[tuple[Any, ...]], list[Any] | None]
"""(item, annotator, class) of each vote, and the ids of the votes where there are some."""


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
    sent, own_ids = read_rows(votes)
    items, people, labels = _of_rows(sent, classes)
    ids = own_ids if ids is None else ids
    vote_ids: list[str | None] = [None] * len(items) if ids is None else [id_text(name) for name in ids]
    if len(vote_ids) != len(items):
        raise InputError(f"There are {len(items)} votes and {len(vote_ids)} ids: give one for each. Nothing was added.")
    with journal.writing():
        items, people = roster.of_kind("items", items), roster.of_kind("annotators", people)
        item_code = roster.codes("items", items, price, UNKNOWN)
        person_code = roster.codes("annotators", people, price, UNKNOWN)
        incoming = [
            Incoming(f"[{n}, {m}]" if id_ is None else id_, id_, n, m, k, (item_code[n], person_code[m]))
            for n, m, k, id_ in zip(items, people, labels, vote_ids, strict=True)
        ]
        new = new_among(incoming, *_there(roster, incoming), roster.items_with("closed"), classes.__getitem__)
        prices = dict(journal.read("SELECT id - 1, price FROM annotators"))
        now, added = time.time(), [incoming[i] for i, _ in new]
        pairs = [(vote.pair[0] + 1, vote.pair[1] + 1) for vote in added]
        rows = [(new[i][1], *pairs[i], v.answer, prices[v.pair[1]], now) for i, v in enumerate(added)]
        journal.add_votes(rows, [(vote.item, vote.annotator) for vote in added])
        for table in ("asked", "skipped"):
            journal.write(f"DELETE FROM {table} WHERE item = ? AND annotator = ?", pairs)
    return Receipt(len(new), len(items) - len(new))


def read_rows(votes: Any) -> Rows:
    """Votes from a table, a dataframe, a dict of columns, or dicts or (item, annotator, class) of each vote."""
    if isinstance(votes, Votes):
        return _of_frame(votes.to_frame(kind="polars"))
    if type(votes).__module__.partition(".")[0] in FRAMES:
        return _of_frame(votes)
    if isinstance(votes, Mapping):
        if any(find(list(map(str, votes)), part) is None for part in PARTS):
            raise _no_vote(votes)
        columns = any(isinstance(x, (list, tuple, np.ndarray)) or hasattr(x, "to_list") for x in votes.values())
        return _of_frame(dict(votes)) if columns else read_rows([votes])
    if not isinstance(votes, Iterable) or isinstance(votes, (str, bytes)):
        raise _no_vote(votes)
    rows, ids, parts_of = list[tuple[Any, ...]](), list[Any](), cache(_parts)
    for row in votes:
        if isinstance(row, Mapping):
            parts = parts_of(tuple(row))
            values = tuple(row.get(parts[part]) for part in PARTS)
            ids += [row[parts["id"]]] if parts["id"] is not None else []
        else:
            values = tuple(row) if isinstance(row, Iterable) and not isinstance(row, (str, bytes)) else ()
        if len(values) != 3 or any(x is None for x in values):
            raise _no_vote(row)
        rows.append(values)
    if ids and len(ids) != len(rows):
        raise InputError(f"{len(ids)} of {len(rows)} votes have an id: give one for each. Nothing was added.")
    return rows, ids or None


def _parts(names: Sequence[Any]) -> dict[str, Any]:
    """Which name of a row plays which part."""
    texts = {str(name): name for name in names}
    parts = resolve(list(texts), dict.fromkeys(PARTS))
    vote = next((c for c in left_over(list(texts), parts) if normal(c) in ("vote", "answer")), None)
    return {part: None if name is None else texts[name] for part, name in {**parts, "id": vote}.items()}


def _of_frame(frame: Any) -> Rows:
    table = to_polars(frame)
    parts = _parts(table.columns)
    missing = [part for part in PARTS if parts[part] is None]
    if missing:
        words = "; ".join(f"{part} (also {', '.join(ALIASES[part][1:5])}, ...)" for part in missing)
        raise ColumnError(f"No column found for: {words}. The table has {listing(table.columns, 12)}. Rename them.")
    columns = [table[parts[part]].to_list() for part in PARTS]
    for part, column in zip(PARTS, columns, strict=True):
        if None in column:
            row = f"Row {column.index(None)} (counted from 0)"
            raise InputError(f"{row} has no {part}, in column {parts[part]!r}. Nothing was added.")
    ids = None if parts["id"] is None else table[parts["id"]].to_list()
    return list(zip(*columns, strict=True)), ids


def _no_vote(value: Any) -> InputError:
    return InputError(f"Expected (item, annotator, class) for each vote and found {value!r}. Nothing was added.")


def _of_rows(rows: list[tuple[Any, ...]], classes: list[Any]) -> Iterator[list[Any]]:
    """Items and annotators as JSON texts, and class codes, of each vote: each value is looked at once."""
    for i, part in enumerate(PARTS):
        known = dict[tuple[type, str], Any]()
        for row in rows:
            key = type(row[i]), str(row[i])
            if key not in known:
                known[key] = class_code(row[i], row[0], classes) if part == "label" else name_text(row[i], part)
        yield [known[type(row[i]), str(row[i])] for row in rows]


VOTE, GOLD = "A vote on {!r} says", "The known answer (gold) of {!r} is"  # how an error about an answer begins


def class_code(label: Any, item: Any, classes: list[Any], about: str = VOTE) -> int:
    """The code of a class that was declared: by its name, or by the same text (classes 1, 2 of a command line are text,
    and those of Python are often numbers)."""
    known = [json.dumps(c) for c in classes]
    with suppress(InputError):
        text = name_text(label, "class", booleans=True)
        if text in known:
            return known.index(text)
        plain, words = str(json.loads(text)), [str(c) for c in classes]
        if plain in words:
            return words.index(plain)
    near = suggestion(str(label), [str(c) for c in classes])
    raise LabelError(
        f"{about.format(item)} {label!r}, and the classes are {listing(classes, 10)}.{near} Nothing was added."
    )


def class_codes(gold: Mapping[Any, Any] | None, classes: list[Any]) -> dict[Any, int]:
    """Item -> the code of its known class."""
    return {item: class_code(label, item, classes, GOLD) for item, label in (gold or {}).items()}


class Incoming(NamedTuple):
    """A vote that comes in. Names are JSON texts; the answer is one, or a class code."""

    id: str
    chosen: str | None  # the id that the sender gave it, if any
    item: str
    annotator: str
    answer: Any
    pair: tuple[int, int] = (0, 0)  # the numbers of its item and annotator
    sent: Any = None  # the vote as it was handed over


def new_among(
    votes: Sequence[Incoming], by_id: dict[str, tuple[int, int, Any]], pairs: dict[tuple[int, int], int],
    closed: Container[int], show: Callable[[Any], Any] = json.loads,
) -> list[tuple[int, str]]:  # fmt: skip
    """The places and ids of the votes that are not there yet; an error where one contradicts what is there. ``by_id``
    (id -> item, annotator and answer) and ``pairs`` (those with a vote that counts) get the new ones, too."""
    new, shut = list[tuple[int, str]](), dict[str, None]()
    for i, vote in enumerate(votes):
        id_, content = vote.id, (*vote.pair, vote.answer)
        if vote.chosen is None and id_ in by_id and vote.pair not in pairs:  # it was taken back: a new vote
            id_ = f"{id_} {uuid.uuid4().hex[:12]}"
        before = by_id.get(id_)
        if before == content:
            continue
        if before is None and vote.pair not in pairs:
            by_id[id_], pairs[vote.pair] = content, 0
            new.append((i, id_))
            if vote.pair[0] in closed:
                shut[vote.item] = None
            continue
        item, who = json.loads(vote.item), json.loads(vote.annotator)
        if before is None:
            raise DuplicateError(
                f"{who!r} has voted on {item!r} before, in another vote. Votes are not changed: nothing was added."
            )
        if before[:2] == vote.pair:
            raise DuplicateError(
                f"{who!r} has voted {show(before[2])!r} on {item!r} before, and votes {show(vote.answer)!r} now. "
                "Votes are not changed: nothing was added."
            )
        raise DuplicateError(
            f"The vote {vote.chosen or id_} is there with another content than {who!r} on {item!r}: "
            "an id stands for one vote. Nothing was added."
        )
    if shut:
        raise InputError(f"Votes on closed items: {listing(map(json.loads, shut))}. Nothing was added.")
    return new


def _there(roster: Roster, votes: list[Incoming]) -> tuple[dict[str, tuple[int, int, int]], dict[tuple[int, int], int]]:
    """The votes of the journal with the ids or the pairs of those that come in: by id, and the pairs."""
    by_id, pairs = dict[str, tuple[int, int, int]](), dict[tuple[int, int], int]()
    columns = "SELECT vote_id, item - 1, annotator - 1, label FROM votes WHERE"
    for lo in range(0, len(votes), AT_ONCE):
        part = votes[lo : lo + AT_ONCE]
        marks, values = ",".join("?" * len(part)), ",".join(["(?, ?)"] * len(part))
        rows = roster.journal.read(f"{columns} vote_id IN ({marks})", [vote.id for vote in part])
        numbers = [x + 1 for vote in part for x in vote.pair]
        rows += roster.journal.read(f"{columns} (item, annotator) IN (VALUES {values})", numbers)
        by_id |= {id_: (item, who, label) for id_, item, who, label in rows}
        pairs |= {(item, who): 1 for _, item, who, _ in rows}
    return by_id, pairs
