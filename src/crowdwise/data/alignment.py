"""Which row belongs to which item: by name where there are names, by position only where nothing speaks against it.

Everything that puts rows beside items goes through here: inputs of learners, files of features, wide tables, truth in
a Series. Rows have names in

- ``items=``, where the caller gives them;
- the index of a pandas table, unless it is 0, 1, 2, ... (row numbers, which name nothing);
- a column that is called like one (``task``, ``item``, ``id``...), or a column of text, if no value occurs twice.

Names must cover the items: a row for each of them. Names that differ from each other, or cover only some of the items,
are an error. Without names, row n is item n, if there are as many rows as items, and that is said.

Answers in data frames: the names that an index holds, long and wide form, and rows that keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.frames import is_frame, is_pandas, is_series, native
from crowdwise.errors import InputError, Remedy, listing

NAMES = {
    *columns.ALIASES["item"], *(f"{name}s" for name in columns.ALIASES["item"]), "", "id", "ids", "uid", "uuid", "guid",
    "index", "key", "name", "names", "file", "filename", "path", "unnamed: 0",
}  # fmt: skip
"""What columns of names are called. (Index columns that pandas wrote come back without a name, or as "Unnamed: 0".)"""
BY_POSITION = "The rows of X have no names: row n of X was taken for item n of the {0} (see {0}.items)."
GIVE_NAMES = Remedy(
    "Name the rows: items=[...], a table with the items as its index, or a column of their names.",
    command="Add the names of the rows: a column item in a table, id_train in an .npz file.",
)


def is_name(column: Any) -> bool:
    """Whether a column is called like one of names."""
    return str(column).strip().lower() in NAMES or columns.normal(str(column)) in NAMES


def is_plain(index: Any) -> bool:
    """Whether a pandas index is 0, 1, 2, ... and nothing else."""
    return type(index).__name__ == "RangeIndex" and index.name is None and index.start == 0 and index.step == 1


@dataclass(frozen=True, eq=False)
class RowNames:
    """Names that rows may have: where they come from, and the column they are. Numbers that rise, in an index without
    a name, may be those of a selection of rows: then they are not ``sure`` to name anything."""

    where: str
    values: Vocabulary
    column: Any = None
    sure: bool = True

    @cached_property
    def distinct(self) -> bool:
        return len(set(self.values.tolist())) == len(self.values)


class Match(NamedTuple):
    """Inputs that were put beside items."""

    x: Any
    at: Codes | None
    """The row of each item; ``None``: row n is item n."""
    features: tuple[str, ...] | None
    """The names of the columns, where all are text."""
    names: RowNames | None
    """What the rows were found by; of items without names, what they are called now."""
    note: str = ""
    """What to say where positions were used."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs, one row for each item, and the names of its rows and columns where they have any. ``x`` is a table, an
    array, a sparse matrix, or anything else that a learner takes."""

    x: Any
    items: Any = None
    features: tuple[str, ...] | None = None

    @classmethod
    def of(cls, X: Any, items: Any = None) -> Rows:
        """Inputs in any form; ``items`` are the names of rows, where the caller gives them."""
        if X is None:
            raise InputError("X is None: expected one row of numbers, one image or one text for each item.")
        if hasattr(X, "__array__") and not hasattr(X, "shape"):
            X = np.asarray(X)
        X = native(X)
        own = (str(X.name),) if is_series(X) and X.name is not None else None
        rows = X if isinstance(X, Rows) else cls(X, None, own)
        return rows if items is None else replace(rows, items=items)

    @property
    def is_table(self) -> bool:
        return is_frame(self.x) and self.x.shape[1] > 0

    def __len__(self) -> int:
        return int(self.x.shape[0]) if hasattr(self.x, "tocsr") else len(self.x)

    @cached_property
    def names(self) -> list[RowNames]:
        """All that may be names of rows."""
        if self.items is not None:
            names = encoding.to_vocabulary(list(self.items))
            if len(names) != len(self):
                raise InputError(f"items= has {len(names)} names, and X has {len(self)} rows: give each row one name.")
            return [RowNames("items=", names)]
        indexed = index_names(self.x) if is_pandas(self.x) else []
        return [*indexed, *self._columns()] if self.is_table else indexed

    def _columns(self) -> Iterable[RowNames]:
        twice = [name for name in self.x.columns if list(self.x.columns).count(name) > 1]
        if twice:
            raise InputError(f"X has more than one column {twice[0]!r}. Give every column a name of its own.")
        for column in self.x.columns:
            values = _whole(self.x[column]) if is_name(column) or _is_text(self.x[column]) else None
            if values is None:
                continue
            names = RowNames(f"column {column!r}", values, column, sure=is_name(column))
            if names.distinct or (values.dtype == object and is_name(column)):
                yield names

    def match(self, items: Vocabulary, what: str, *, named: bool = True) -> Match:
        """Find the row of each item. ``what`` the items have is for messages. ``named=False``: the items have no names
        of their own, and stand in the order in which the answers were given."""
        if not named:
            return self._in_order(items, what)
        located = [(names, encoding.locate(items, names.values)) for names in self.names]
        good = [(names, at) for names, at in located if names.distinct and (at >= 0).all()]
        for names, at in good[1:]:
            if (at != good[0][1]).any():
                raise InputError(
                    f"{_title(good[0][0].where)} and {names.where} of X both name the items of the {what}, and differ. "
                    "Drop one of them."
                )
        if not good:
            for names, at in located:
                self._check_covered(names, at, items, what)
            return self._by_position(items, what)
        x, features = self.numbers([names.column for names, _ in good], items)
        at = good[0][1]
        same = len(at) == len(self) and bool((at == np.arange(len(at))).all())
        return Match(x if same else _taken(x, at), None if same else at, features, good[0][0])

    def _in_order(self, items: Vocabulary, what: str) -> Match:
        """Row n is item n, which is called as the row is, where rows have names."""
        self._check_length(items, what)
        names = next((names for names in self.names if names.sure and names.distinct), None)
        x, features = self.numbers([names.column for names in self.names if names.sure], items)
        return Match(x, None, features, names)

    def _by_position(self, items: Vocabulary, what: str) -> Match:
        self._check_length(items, what)
        numbers = np.arange(len(items))
        rising = items.dtype.kind == "i" and bool((np.diff(items) > 0).all())
        if is_pandas(self.x) and not rising and items.dtype.kind == "i" and (np.sort(items) == numbers).all():
            raise InputError(
                f"The items of the {what} are the numbers of rows in another order, and the rows of X have no names: "
                f"X.set_axis({what}.items) says that they stand in this order, X.to_numpy() that their order is right."
            )
        x, features = self.numbers([], items)
        plain = rising and bool((items == numbers).all())
        return Match(x, None, features, None, "" if plain else BY_POSITION.format(what))

    def _check_length(self, items: Vocabulary, what: str) -> None:
        if len(self) != len(items):
            raise InputError(
                f"X has {len(self)} rows and the {what} are on {len(items)} items: without names, row n of X must be "
                f"item n of the {what} ({what}.items gives their order).",
                remedy=GIVE_NAMES,
            )

    def _check_covered(self, names: RowNames, at: Codes, items: Vocabulary, what: str) -> None:
        """Names that do not cover the items are an error, unless they can be the numbers of a selection of rows."""
        lost = items[at < 0]
        if not names.sure and len(lost) == len(items):
            return
        out = "Name the rows as the items are named"
        if names.column is None and self.items is None:
            out += ", or X.reset_index(drop=True) if row n of X is item n"
            if len(lost) < len(items) == len(names.values):  # another part of both
                out += ", or bring X into the order of the answers before a cross-validation, X.loc[votes.items]"
        elif names.column is not None:
            out += f", or drop the column if row n of X is item n: X.drop(columns={names.column!r})"
        if not names.distinct:
            seen: set[Any] = set()
            twice = [v for v in names.values.tolist() if v in seen or seen.add(v)]  # type: ignore[func-returns-value]
            raise InputError(f"{_title(names.where)} of X names {listing(dict.fromkeys(twice))} more than once. {out}.")
        raise InputError(
            f"{_title(names.where)} of X names rows {listing(names.values, 3)}, and there is no row for {len(lost)} of "
            f"the {len(items)} items: {listing(lost)}. {out}."
        )

    def numbers(self, drop: Sequence[Any] = (), items: Vocabulary | None = None) -> tuple[Any, tuple[str, ...] | None]:
        """The inputs without some columns, as an array, and the names of the others. ``items``: a column that looks
        like names of these, and was not dropped, is an error."""
        if not self.is_table:
            return self.x, self.features
        rest = [column for column in self.x.columns if not any(column is d or column == d for d in drop)]
        if not rest:
            raise InputError(f"X has no columns besides {listing(drop)}: expected numbers that describe the items.")
        some: Iterable[Any] = () if items is None else items[:3]
        for column in rest if items is not None else ():
            values = _whole(self.x[column]) if is_name(column) else None
            if values is not None and values.dtype != object and len(values) > 1 and RowNames("", values).distinct:
                raise InputError(
                    f"X has a column {column!r} that looks like names of rows, not like a feature (no value occurs "
                    f"twice), and does not name the items {listing(some)}: name them alike, or drop it, "
                    f"X.drop(columns={column!r})."
                )
        part = self.x if len(rest) == self.x.shape[1] else self.x[rest] if is_pandas(self.x) else self.x.select(rest)
        if len(rest) == 1 and _is_text(self.x[rest[0]]) and all(isinstance(v, str) for v in self.x[rest[0]]):
            return list(self.x[rest[0]]), tuple(map(str, rest))  # texts
        array = np.asarray(part)
        if array.dtype == object or array.dtype.kind not in "fiub":
            for column in rest:
                _check_numbers(column, self.x[column])
        words = all(isinstance(column, str) for column in rest)
        return array, tuple(rest) if words else None


def index_names(frame: Any) -> list[RowNames]:
    """The names in the index of a pandas table or Series: none where it holds row numbers."""
    index = frame.index
    if is_plain(index):
        return []
    if index.nlevels > 1:
        level = next((n for n in index.names if n is not None and is_name(n)), None)
        if level is None:
            raise InputError(
                f"The index of X has {index.nlevels} levels, {listing(index.names)}, and none is called like an item: "
                "keep the one that names the rows (X.droplevel(...)), or X.reset_index(drop=True)."
            )
        index = index.get_level_values(level)
    values = encoding.to_vocabulary(index.tolist())
    rising = index.name is None and values.dtype.kind == "i" and bool((np.diff(values) > 0).all())
    return [RowNames("the index", values, sure=not rising)]


def named_rows(rows: Any) -> RowNames | None:
    """The names that answers or truths in a pandas table or Series carry in their index, if any."""
    names = index_names(rows) if is_pandas(rows) else []
    return names[0] if names else None


class RowsWithTruth(NamedTuple):
    """Rows beside true values."""

    rows: npt.NDArray[Any] | None
    """The rows that have a value; ``None``: all, in their order."""
    of: npt.NDArray[Any] | None
    """Which value each of them has; ``None``: value n is that of row n."""
    values: Any
    names: Vocabulary | None = None
    note: str = ""
    """What to say where positions were used though values have names."""

    def beside(self, weights: Any) -> Any:
        """Weights, which are given as the values are, or by name, in the order of the rows."""
        named = named_rows(weights)
        if self.of is None or weights is None:
            return weights
        if named is None or self.names is None:
            return np.asarray(weights)[self.of]
        at = encoding.locate(self.names, named.values)
        if (at < 0).any():
            raise InputError(f"There are no weights of {listing(self.names[at < 0])}: give each row one.")
        return np.asarray(weights)[at]


def pair(X: Rows, y: Any, what: str = "truth") -> RowsWithTruth:
    """Put true values beside rows. A mapping, or a Series with an index of names, is matched by name; anything else by
    position. Values of other rows are left out; so are rows without a value, where ``y`` is a mapping."""
    mapping = hasattr(y, "keys") and not is_frame(y) and not is_series(y)
    if mapping:
        theirs, values = RowNames("keys", encoding.to_vocabulary(list(y))), list(y.values())
        if not X.names:
            raise InputError(
                f"The {what} is given by name, and the rows of X have no names: give it in the order of the rows, or "
                "name these.",
                remedy=GIVE_NAMES,
            )
    else:
        theirs_named, values = named_rows(y), y
        same = is_pandas(X.x) and X.items is None and theirs_named is not None and X.x.index.equals(y.index)
        if theirs_named is None or not X.names or same:
            text = theirs_named is not None and theirs_named.values.dtype == object and not X.names
            return RowsWithTruth(None, None, y, note=BY_POSITION.format(what) if text else "")
        theirs = theirs_named
        if not theirs.distinct:
            raise InputError(f"The index of the {what} names some rows more than once: give each one value.")
    places = [encoding.locate(names.values, theirs.values) for names in X.names]
    best = int(np.argmax([(place >= 0).sum() for place in places]))
    ours, place = X.names[best], places[best]
    known = place >= 0
    if not known.any() and not mapping and not any(names.sure for names in X.names):
        return RowsWithTruth(None, None, y)  # numbers of a selection of rows, which name nothing
    if not known.all() and not (mapping and known.any()):
        raise InputError(
            f"The {what} has no value for {int((~known).sum())} of the {len(known)} rows of X: "
            f"{listing(ours.values[~known])}. It names {listing(theirs.values, 3)}: name rows and values alike."
        )
    rows = np.flatnonzero(known)
    return RowsWithTruth(rows, place[rows], np.asarray(values)[place[rows]], ours.values[rows])


def _taken(x: Any, at: Codes) -> Any:
    """Rows of inputs, by position."""
    if isinstance(x, (list, tuple)):
        return [x[n] for n in at]
    if hasattr(x, "tocsr"):
        return x.tocsr()[at]
    if hasattr(x, "iloc"):
        return x.iloc[at]
    if hasattr(x, "shape") or hasattr(x, "__array__"):
        return x[at]
    return Selected(x, at)


class Selected:
    """Some rows of a sequence (a torch ``Dataset``, say)."""

    def __init__(self, whole: Any, at: Codes) -> None:
        self.whole, self.at = whole, at

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, n: int) -> Any:
        return self.whole[int(self.at[n])]


def _is_text(column: Any) -> bool:
    return str(column.dtype).lower().startswith(("object", "str", "cat", "enum"))


def _whole(column: Any) -> Vocabulary | None:
    """A column of text or of whole numbers as names; ``None`` for any other, and where a cell is empty."""
    dtype = str(getattr(column, "dtype", "")).lower()
    if dtype.startswith(("float", "double", "bool", "decimal", "datetime", "date", "time")):
        return None
    values = column.to_list()
    whole = all(type(v) is str for v in values) or all(isinstance(v, int) and not isinstance(v, bool) for v in values)
    return encoding.to_vocabulary(values) if whole and values else None


def _check_numbers(name: Any, column: Any) -> None:
    odd = next((v for v in column.to_list() if not isinstance(v, (int, float, np.number, np.bool_, type(None)))), None)
    if odd is not None:
        kind = "text" if isinstance(odd, str) else type(odd).__name__
        raise InputError(
            f"X must hold numbers, and its column {name!r} holds {kind}, such as {str(odd)[:40]!r}: encode it, or "
            "leave it out. A single column of texts is turned into numbers."
        )


def _title(words: str) -> str:
    return words[0].upper() + words[1:]


def check_features(given: Sequence[str] | None, fitted: npt.NDArray[Any] | None, who: str) -> str:
    """The names of columns against those of the fit, as scikit-learn does: an error where they differ, and what to warn
    of where one side has none."""
    if given is None or fitted is None:
        if given is None and fitted is None:
            return ""
        if fitted is None:
            return f"X has feature names, but {who} was fitted without feature names"
        return f"X does not have valid feature names, but {who} was fitted with feature names"
    if list(given) == fitted.tolist():
        return ""
    lines = ["The feature names should match those that were passed during fit."]
    for words, some, others in (
        ("Feature names unseen at fit time:", given, fitted.tolist()),
        ("Feature names seen at fit time, yet now missing:", fitted.tolist(), given),
    ):
        odd = sorted(set(some) - set(others))
        lines += [words, *(f"- {name}" for name in odd[:5]), *(["- ..."] if len(odd) > 5 else [])] if odd else []
    if len(lines) == 1:
        lines.append(
            f"Feature names must be in the same order as they were in fit: {listing(fitted, 8)}. "
            "X = X[learner.feature_names_in_] puts them in order."
        )
    raise InputError("\n".join(lines) + "\n")


def with_index(frame: Any, given: Mapping[str, str | None]) -> Any:
    """A pandas table of answers with the names that its index holds as columns; any other table as it is.

    ``given`` maps the parts of the table to the columns that the caller named for them.
    """
    if not is_pandas(frame):
        return frame
    frame = _flat(frame if is_frame(frame) else frame.to_frame(frame.name if frame.name is not None else "label"))
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    parts = {n: [p for p in given if given[p] == n or (given[p] is None and columns.find([str(n)], p))] for n in levels}
    if "annotator" in [p for n in levels for p in parts[n]] and _is_part(frame.columns.name, "item"):
        raise InputError(
            f"The rows of this table are annotators ({frame.index.name}) and its columns items ({frame.columns.name}): "
            "turn it round, table.T."
        )
    index, names = frame.index, [str(name) for name in frame.columns]
    for at, name in reversed(list(enumerate(index.names))):
        if parts.get(name):
            frame = frame.reset_index(drop=True) if index.nlevels == 1 else frame
            frame.insert(0, name, index.get_level_values(at))
    others = [p for p in given if p not in ("item", "truth", "weight", "timestamp")]
    wide = "item" in given and all(given[p] is None and columns.find(names, p) is None for p in others)
    if wide and not any(parts.values()) and columns.find(names, "item") is None and given["item"] is None:
        frame = frame if is_plain(index) or index.nlevels > 1 else frame.reset_index(drop=True)
        if not is_plain(index) and index.nlevels == 1:
            frame.insert(0, "item", index)
    return frame


def _is_part(name: Any, part: str) -> bool:
    return name is not None and columns.find([str(name)], part) is not None


def _flat(frame: Any) -> Any:
    """A pandas table whose columns have one name each: of several levels, the one that differs. Always a new table."""
    if frame.columns.nlevels == 1:
        return frame.copy(deep=False)
    several = [n for n, level in enumerate(frame.columns.levels) if frame.columns.get_level_values(n).nunique() > 1]
    if len(several) > 1:
        outer = [str(name) for name in frame.columns.get_level_values(0).unique()]
        one = next((name for name in outer if _is_part(name, "label")), outer[0])
        raise InputError(
            f"The columns of this table have {len(several)} levels, with {listing(outer)} side by side: keep one of "
            f"them, pivot(index=..., columns=..., values={one!r})."
        )
    return frame.set_axis(frame.columns.get_level_values(several[0] if several else -1), axis=1)


def wide_parts(frame: Any) -> tuple[RowNames | None, list[Any], npt.NDArray[Any]]:
    """Names of rows, names of columns and cells of a table with a row for each item and a column for each annotator."""
    frame = with_index(native(frame), {"item": None})
    named = (names for names in Rows(frame).names if names.distinct and (names.column is None or is_name(names.column)))
    names = next(named, None)
    rest = [column for column in frame.columns if names is None or column != names.column]
    part = frame[rest] if is_pandas(frame) else frame.select(rest)
    return names, rest, np.asarray(part.to_numpy(), dtype=object)


def is_long(frame: Any, answer: str = "label") -> bool:
    """Whether a table has columns for items, annotators and answers."""
    given: dict[str, str | None] = dict.fromkeys(("item", "annotator", answer))
    table = with_index(native(frame), given)
    return all(columns.resolve([str(name) for name in table.columns], given).values())


def is_named(answers: Any) -> bool:
    """Whether answers in a table or a Series say which items they are about."""
    answers = native(answers)
    if is_frame(answers):
        return is_long(answers) or is_long(answers, "value") or wide_parts(answers)[0] is not None
    return named_rows(answers) is not None


def spread_over(table: Any, names: Vocabulary) -> Any:
    """The answers on these items, in this order; there are none on an item that the table does not have."""
    at = encoding.locate(names, table.items)
    kept = table[at[at >= 0]]
    count = np.zeros(len(names), dtype=np.int64)
    count[at >= 0] = np.diff(kept.indptr)
    truth = kept.truth
    if truth is not None:
        truth = np.full(len(names), np.nan if truth.dtype.kind == "f" else -1, dtype=truth.dtype)
        truth[at >= 0] = kept.truth
    return replace(kept, items=names, indptr=np.concatenate([[0], np.cumsum(count)]), truth=truth)
