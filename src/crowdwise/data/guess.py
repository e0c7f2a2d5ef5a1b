"""What type of answers a file or a dataframe holds, going by its columns and first rows, and which table reads it.

A guess is only made where it is clear; all else is taken for votes. So are a rank, two texts or categories beside an
item, an annotator and a label.

================  ================================================================================================
answer type       taken for it when there is
================  ================================================================================================
``similarities``  two item columns, and a column ``same`` (or one whose words are same/different)
``comparisons``   two item columns and a column that says which won, or the columns ``chosen`` and ``rejected``
``rankings``      item, annotator and a column ``rank`` (and no labels), or a column ``ranking``
``tags``          a sequence, a position in it and a column ``tag``; or labels like O, B-PER, I-PER
``label-sets``    item, annotator and a column ``labels``, or labels that are lists
``ratings``       item, annotator and numbers with fractions, and nothing else, where labels would be; of whole numbers
                  all rows decide (:func:`scale_of`)
``spans``         item, annotator, label and numbers ``start`` and ``end``, in most rows the places of characters
``texts``         item, annotator and a column ``text``, or labels of several words that are nearly all different
``ordinal``       never guessed: that classes have an order is not written in a file
================  ================================================================================================

Whether labels are classes: numbers on a scale, free texts and ids are not.

Numbers. Annotators who choose among classes often choose the same one; annotators who give a number from 0 to 100
rarely do. Labels look like numbers where all of them are, there are many, annotators rarely give the same one (the most
common one left out, which is often "none"), and they have what codes of classes lack: gaps, round numbers, or answers
to one item that lie close together.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data.alignment import with_index
from crowdwise.data.columns import (
    ALIASES,
    DIFFERENT,
    ENOUGH,
    SAME,
    find,
    joined_by,
    lists_in,
    named_like_an_id,
    normal,
    numbers_in,
)
from crowdwise.data.files import TableFile
from crowdwise.data.frames import native, to_polars
from crowdwise.data.heavy import pl
from crowdwise.data.spellings import NO_ANSWER, folded
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, InputWarning, Option, Remedy, listing, warn

MANY = 10
"""Up to so many different numbers are taken for classes."""
SAME_RATE = 0.3
"""Above this rate of equal answers to an item, numbers are codes of classes."""
PAIRS = 30
"""Pairs of answers to the same item from which on their agreement says something."""
ROUND, CLOSE = 0.4, 0.75
"""Above this share of multiples of five, below this ratio of distances, numbers are on a scale."""
LABELS_LOOKED_AT = 20_000
"""Votes that are looked at."""
CLASSES_PER_VOTE, ENOUGH_VOTES = 0.7, 50
"""From so many votes on, labels are not classes where there are more classes per vote than this."""


AS_CLASSES = Option("answer_type", "votes")
AS_NUMBERS = Remedy("Say {} for numbers on a scale, or {} for classes.", Option("answer_type", "ratings"), AS_CLASSES)


@dataclass(frozen=True)
class NumberScale:
    """What numbers among labels look like; ``certain`` where the answers of different annotators were compared."""

    words: str
    certain: bool


def scale_of(votes: Votes) -> NumberScale | None:
    """What speaks for numbers on a scale in the labels of some votes; ``None`` where nothing does."""
    values = numbers_of(votes.classes.tolist())
    used = np.unique(votes.label)
    if values is None or len(used) <= MANY:
        return None
    used_values = values[used]
    whole = bool((used_values == used_values.round()).all())
    span = f"{used_values.min():.12g} to {used_values.max():.12g}"
    kind = "different whole numbers" if whole else "different numbers, some with fractions,"
    words = f"the labels are {len(used):,} {kind} from {span}"
    gaps = not whole or used_values.max() - used_values.min() >= len(used)
    first, second = _paired(votes)
    common = np.bincount(votes.label).argmax()
    apart = (first != common) | (second != common)
    if apart.sum() < PAIRS:
        return NumberScale(words, certain=not whole) if gaps else None
    same = float((first == second)[apart].mean())
    rare = values[votes.label[votes.label != common]]
    round_ = len(np.unique(rare)) > 2 * MANY and float((rare % 5 == 0).mean()) > ROUND  # where multiples of 5 are rare
    scaled = gaps or round_ or _closeness(values, votes) < CLOSE
    if same >= SAME_RATE or not scaled:
        return None
    return NumberScale(f"{words}, and two annotators rarely give the same ({same:.0%} of the time)", certain=True)


def numbers_of(names: Iterable[Any]) -> npt.NDArray[np.float64] | None:
    """Names as numbers, those with commas that may stand for thousands included; ``None`` where one is none."""
    names = list(names)
    if all(isinstance(name, str) and re.match(r"\d{1,3}(,\d{3})*$", name) for name in names):
        names = [name.replace(",", "") for name in names]
    numbers = numbers_in(np.nan if isinstance(name, bool) else name for name in names)
    values = np.array(numbers if numbers is not None else [np.nan])
    return values if np.isfinite(values).all() else None


def _paired(votes: Votes) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Labels that different annotators gave to the same item, of neighbours in the order of annotators."""
    label, item = votes.label[:LABELS_LOOKED_AT], votes.item[:LABELS_LOOKED_AT]
    near = np.flatnonzero((np.diff(item) == 0) & (np.diff(votes.annotator[:LABELS_LOOKED_AT]) != 0))
    return label[near], label[near + 1]


def _closeness(values: npt.NDArray[np.float64], votes: Votes) -> float:
    """How far apart different answers to one item lie, beside answers to different items."""
    first, second = (values[label] for label in _paired(votes))
    every = values[votes.label[:LABELS_LOOKED_AT]]
    half = len(every) // 2
    random = np.abs(every[:half] - every[half : 2 * half])
    if not (first != second).any() or not random.any():
        return 1.0
    return float(np.abs(first - second)[first != second].mean() / random[random > 0].mean())


def too_many_classes(votes: Votes, n_votes: int | None = None) -> bool:
    """Whether there are about as many classes as votes: texts or ids rather than classes.

    Where the votes are some of ``n_votes``, all classes are used in these.
    """
    used = len(np.unique(votes.label)) if n_votes is None else votes.n_classes
    total = votes.n_votes if n_votes is None else n_votes
    return total >= ENOUGH_VOTES and used > CLASSES_PER_VOTE * total


def check_classes(votes: Votes, named: bool = False, n_votes: int | None = None) -> None:
    """An error where labels are texts or ids rather than classes; ``named``: the user named their column."""
    if too_many_classes(votes, n_votes):
        used = len(np.unique(votes.label)) if n_votes is None else votes.n_classes
        raise InputError(
            f"There are {used:,} different labels in {n_votes or votes.n_votes:,} votes, such as "
            f"{str(votes.classes[votes.label[0]])[:60]!r}: they are texts or ids rather than classes.",
            remedy=[
                *([] if named else [Remedy("Name the column of the labels with {}.", Option("label"))]),
                Remedy("For texts say {}, for classes {}.", Option("answer_type", "texts"), AS_CLASSES),
            ],
        )


FEW_ITEMS = 5
"""The fewest items with several rows by which a column is taken for a text of the items."""
ROWS = 200
"""How many rows are looked at."""
SENTENCES = 20
"""The fewest rows by which labels are taken for free texts."""
FIRST = {*ALIASES["item_a"], "model a", "option a", "response a", "answer a", "model 1"}
SECOND = {*ALIASES["item_b"], "model b", "option b", "response b", "answer b", "model 2"}
WON = ("winner", "preferred", "preference", "outcome", "verdict", "better")
SIDES = {"left", "right", "a", "b", "model_a", "model_b", "model a", "model b", "tie", "first", "second"}
SETS = {"labels", "label set", "labelset", "chosen labels"}
"""Columns of label sets whatever else there is, but for a column ``label``."""
CLEAR = {w for w in (*SAME, *DIFFERENT) if re.fullmatch(r"[a-z][a-z -]{2,}", w)} - {"yes", "true", "false"}
"""Words for same and different that stand for nothing else."""
LONGEST = 1e8
"""A text has fewer characters; seconds since 1970 are more."""
BIO = re.compile(r"^(O|[BIESLU]-\S+)$")


@dataclass(frozen=True)
class Guess:
    """A kind of answers, and why; ``doubt`` names another that it may be, where nothing in the file decides."""

    kind: str
    reason: str
    doubt: str = ""


def guess(
    columns: Sequence[str], rows: Mapping[str, Sequence[Any]], given: Mapping[str, str | None] | None = None,
    shown_by: Mapping[str, tuple[str, ...]] | None = None,
) -> Guess:  # fmt: skip
    """The kind of answers in a table with such columns, whose first values are ``rows[column]``.

    ``given`` maps ``item``, ``annotator`` and ``label`` to the columns that the user named for them; ``shown_by`` kinds
    to columns that show them, beside an item and an annotator and without a label.

    >>> guess(["item_a", "item_b", "worker", "same"], {}).kind
    'similarities'
    >>> guess(["task", "worker", "label"], {"label": ["cat", "dog"]})
    Guess(kind='votes', reason='nothing speaks for another kind', doubt='')
    """
    named = {part: column for part, column in (given or {}).items() if column in columns}
    names = {normal(c): c for c in columns if c not in named.values() and not _is_row_id(c, rows.get(c, ()))}
    item, who, label = (named.get(part) or _any(names, ALIASES[part]) for part in ("item", "annotator", "label"))
    complete = item is not None and who is not None and label is not None
    first, second = ([names[n] for n in names if n in words] for words in (FIRST, SECOND))
    if first and second:
        both = f"{first[0]!r} and {second[0]!r} are two items"
        same = _any(names, ALIASES["same"])
        if same:
            return Guess("similarities", f"{both}, and {same!r} says whether they are the same")
        won = _any(names, (*WON, *ALIASES["left_probability"], *ALIASES["left_logprob"]))
        if won:
            return Guess("comparisons", f"{both}, and {won!r} says which is better")
        said = _words(rows, label)
        if said and said <= {*SAME, *DIFFERENT} and said & CLEAR:
            return Guess("similarities", f"{both}, and {label!r} says same or different")
        if said and said <= SIDES:
            return Guess("comparisons", f"{both}, and {label!r} says which")
    doubts: list[Guess] = []
    if "chosen" in names and "rejected" in names:
        doubts.append(Guess("comparisons", f"{names['chosen']!r} was preferred to {names['rejected']!r}"))
    if "ranking" in names or (who and item and ("rank" in names)):
        doubts.append(Guess("rankings", f"{names.get('ranking', names.get('rank'))!r} puts items in order"))
    if doubts and not complete:
        return doubts[0]
    sequence, position = _any(names, ALIASES["sequence"]), _any(names, ALIASES["position"])
    if sequence and position and "tag" in names:
        return Guess("tags", f"{names['tag']!r} is given for every {position!r} of a {sequence!r}")
    if sequence and position and label and _is_bio(rows, label):
        return Guess("tags", f"{label!r} holds tags such as O, B-... and I-...")
    if who and item:
        several = _any(names, ALIASES["labels"])
        if several and (label is None or (normal(several) in SETS and "label" not in names and "label" not in named)):
            return Guess("label-sets", f"{several!r} holds any number of labels")
        if label and label == named.get("label") and normal(label) in ALIASES["labels"]:
            return Guess("label-sets", f"{label!r} holds any number of labels")
        said_of = rows.get(label or "", ())
        if any(isinstance(value, (list, tuple)) for value in said_of) or lists_in(said_of) is not None:
            return Guess("label-sets", f"{label!r} holds lists of labels")
        if label and (sign := joined_by(said_of)) is not None:
            example = next(str(cell) for cell in said_of if sign in str(cell))
            doubts.append(Guess("label-sets", f"{label!r} holds several labels in a cell, such as {example!r}"))
        start, end = (_any(names, ALIASES[part]) for part in ("start", "end"))
        if label and start and end and _are_offsets(rows.get(start, ()), rows.get(end, ())):
            return Guess("spans", f"{label!r} is given to stretches from {start!r} to {end!r}")
        if label and _are_sentences(said_of):
            return Guess("texts", f"{label!r} holds sentences, nearly all different")
        value = named.get("label") or _any(names, ALIASES["value"])
        numbers = set(_numbers(rows.get(label or value or "", ())))
        if any(not number.is_integer() for number in numbers):
            return Guess("ratings", f"{value!r} holds numbers with fractions")
        if numbers and not label:
            return Guess("ratings", f"{value!r} holds numbers, and no column is called a label")
    if item and who:
        for kind, needed in (shown_by or {}).items():
            columns_of = [_any(names, [n for one in any_.split() for n in ALIASES.get(one, (one,))]) for any_ in needed]
            if len(needed) > 1 and None not in columns_of:  # several such columns mean nothing else, label or not
                return Guess(kind, f"there are {', '.join(map(repr, columns_of))}")
            if needed and not label and needed[0] in names and not _of_items(rows, item, names[needed[0]]):
                return Guess(kind, f"{names[needed[0]]!r} is there, and no column is called a label")
    if doubts and "label" not in named:
        return Guess("votes", doubts[0].reason, doubts[0].kind)
    return Guess("votes", "nothing speaks for another kind")


def point_out_truth(columns: Sequence[str], rows: Mapping[str, Sequence[Any]], given: Mapping[str, str | None]) -> None:
    """Say where the labels that are read are the same in all rows about an item, and those of another column, of the
    same classes, are not: the first are the truth of the items."""
    parts = {part: given.get(part) or find(columns, part) for part in ("item", "annotator", "label")}
    item, label = parts["item"], parts["label"]
    if None in parts.values() or item is None or label is None or not _of_items(rows, item, label):
        return
    words = _words(rows, label)
    others = [
        name for name in columns
        if name not in parts.values() and len(words) > 1 and words & (own := _words(rows, name)) and len(own) <= MANY
        and not _of_items(rows, item, name)
    ]  # fmt: skip
    if others:
        warn(
            f"In column {label!r} all labels of an item are the same, as those of a truth are; those of "
            f"{listing(others)} differ.",
            remedy=Remedy("If these are the answers, say {}.", Option("label", others[0])),
        )


def glance_at(frame: Any) -> pl.DataFrame | None:
    """The first rows of a dataframe; ``None`` where it is none (reading all of it raises the error)."""
    if isinstance(frame, Mapping):
        columns = {name: values for name, values in frame.items() if not isinstance(values, Mapping)}
        head: Any = {name: values[:ROWS] for name, values in columns.items() if hasattr(values, "__getitem__")}
    elif hasattr(frame, "head"):
        head = frame.head(ROWS)
    elif hasattr(frame, "slice") and hasattr(frame, "column_names"):
        head = frame.slice(0, ROWS)
    else:
        return None
    try:
        return to_polars(with_index(native(head), dict.fromkeys(("item", "annotator", "label"))))
    except InputError:
        return None


def glance(file: TableFile) -> pl.DataFrame | None:
    """The first rows of a file as they are; ``None`` where it cannot be read (reading all of it raises the error)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # reading all of it warns
        try:
            return file.head(ROWS)
        except InputError:
            return None


def _any(names: Mapping[str, str], words: Sequence[str]) -> str | None:
    """The column that has one of these names: the first of them that there is, as readers choose."""
    return next((names[word] for word in words if word in names), None)


def _is_row_id(column: str, values: Sequence[Any]) -> bool:
    """Whether a column numbers the rows, as ``annotation_id`` may: readers take it for no label."""
    filled = [value for value in values if isinstance(value, (str, int))]
    ids = normal(column) in ALIASES["label"] and named_like_an_id(column)
    return ids and len(filled) >= ENOUGH and len(set(filled)) == len(filled)


def _words(rows: Mapping[str, Sequence[Any]], column: str | None) -> set[str]:
    return {str(v).strip().lower() for v in rows.get(column or "", ()) if v is not None}


def _of_items(rows: Mapping[str, Sequence[Any]], item: str, column: str) -> bool:
    """Whether a column holds what items are and no answers: the same in all rows about an item, for several items."""
    values: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for name, value in zip(rows.get(item, ()), rows.get(column, ()), strict=False):
        values.setdefault(str(name), set()).add(str(value))
        counts[str(name)] = counts.get(str(name), 0) + 1
    repeated = [name for name, count in counts.items() if count > 1]
    return len(repeated) >= FEW_ITEMS and all(len(values[name]) == 1 for name in repeated)


def _are_sentences(values: Sequence[Any]) -> bool:
    """Whether labels are free texts: most have several words, and hardly any occurs twice."""
    texts = [value for value in values if isinstance(value, str)]
    several = sum(len(text.split()) >= 3 for text in texts)
    return len(texts) >= SENTENCES and several > 0.8 * len(texts) and len(set(texts)) > 0.8 * len(texts)


def _are_offsets(starts: Sequence[Any], ends: Sequence[Any]) -> bool:
    """Whether two columns are places in texts: numbers, in most rows whole, too small for times, the start before the
    end. (A row that is wrong is then an error, and no vote.)"""
    rows = list(zip(_numbers(starts), _numbers(ends), strict=False))
    good = sum(a.is_integer() and b.is_integer() and 0 <= a < b < LONGEST for a, b in rows)
    return bool(rows) and 2 * good >= len(rows)


def _is_bio(rows: Mapping[str, Sequence[Any]], column: str) -> bool:
    tags = {str(v) for v in rows.get(column, ()) if v is not None}
    return "O" in tags and len(tags) > 1 and all(BIO.match(word) for word in tags)


def _numbers(values: Sequence[Any]) -> list[float]:
    """The values, if all are numbers or stand for no answer; else none."""
    answers = (value for value in values if not (isinstance(value, str) and folded(value) in NO_ANSWER))
    numbers = numbers_in(value for value in answers if value is not None) or []
    return [number for number in numbers if number == number and abs(number) < 1e300]
