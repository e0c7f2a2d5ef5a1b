"""What is true of items, in the codes of a table: from arrays, from mappings of items, and from files.

Every table, every result and every metric reads truth through these functions, whatever it is used for: ``gold``, which
a method may use, or ``truth``, which only measures.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding
from crowdwise.data.alignment import is_plain, with_index
from crowdwise.data.encoding import Codes, Counts, Mask, Vocabulary
from crowdwise.data.frames import is_frame, is_missing, is_pandas, native
from crowdwise.data.source import Source
from crowdwise.data.spellings import nearly, same_spelling
from crowdwise.errors import ColumnError, InputError, LabelError, Remedy, listing, warn

Numbers = npt.NDArray[np.float64]
DECLARE = Remedy("If the name is right, declare every class: {}.", encoding.CLASSES)


def numbered(names: Vocabulary) -> bool:
    """Whether names are 0, 1, 2... or 1, 2, 3..., as rows are."""
    first = names[0] if names.dtype.kind == "i" and len(names) else -1
    return first in (0, 1) and bool((np.diff(names) == 1).all())


def encode_classes(truth: Any, items: Vocabulary, classes: Vocabulary, what: str = "votes") -> Codes:
    """N class codes (-1 unknown) from such codes or from a mapping of items to classes; other items are left out.
    ``what`` the items have is for the message where no item is known."""
    truth = by_name(truth)
    if isinstance(truth, (np.ndarray, list, tuple)) or (hasattr(truth, "__array__") and not hasattr(truth, "keys")):
        if (named := _texts_of(truth, items)) is not None:
            return encode_classes(named, items, classes, what)
        codes = np.asarray(truth)
        fits = codes.shape == (len(items),) and (codes.dtype.kind in "iu" or len(codes) == 0)
        if not fits or (len(codes) and (codes.min() < -1 or codes.max() >= len(classes))):
            raise InputError(
                f"As an array, truth must hold one class code from -1 (unknown) to {len(classes) - 1} for each of the "
                f"{len(items)} items. To give class names, pass as many, or a mapping from item to class."
            )
        _check_codes(codes, classes)
        return codes.astype(np.int32)
    rows, names = aligned(truth, items, what, "an array of class codes or a mapping from item to class")
    codes = encoding.locate(values := _names(names), classes)
    if (codes < 0).any():
        values = encoding.to_vocabulary(_respelled(values.tolist(), classes))
        codes = encoding.locate(values, classes)
    if (codes < 0).any():
        raise unknown_class(dict.fromkeys(values[codes < 0].tolist()), classes)
    return encoding.recode(rows, codes)


def _texts_of(truth: Any, items: Vocabulary) -> dict[Any, Any] | None:
    """An array of one class name for each item (nothing where unknown), as a mapping: items that are called as rows are
    found by position, and others cannot be. ``None`` for an array of anything else."""
    values = list(truth)
    known = [value for value in values if not is_missing(value)]
    if len(values) != len(items) or not known or not all(isinstance(value, str) for value in known):
        return None
    if not numbered(items):
        raise InputError(
            f"As an array of class names, truth names no items, and they are called {listing(items, 3)}: which name "
            "belongs to which item cannot be checked. Pass a mapping from item to class; if they stand in the order of "
            "votes.items, dict(zip(votes.items, truth))."
        )
    return {item: value for item, value in zip(items.tolist(), values, strict=True) if value != ""}


def _check_codes(codes: npt.NDArray[Any], classes: Vocabulary) -> None:
    """Numbers that may be classes as well as their codes are an error, unless they are codes of a table (int32)."""
    if classes.dtype.kind != "i" or codes.dtype == np.int32 or not (codes >= 0).any():
        return
    if (classes == np.arange(len(classes))).all() or not np.isin(codes[codes >= 0], classes).all():
        return
    raise InputError(
        f"Truth is an array of whole numbers, and so are the classes ({listing(classes, 3)}): its numbers may be "
        "classes, or codes of classes (0 is the first). Pass a mapping from item to class, "
        "dict(zip(votes.items, truth)), or codes as int32."
    )


def _respelled(names: list[Any], classes: Vocabulary) -> list[Any]:
    """Names that are not classes as the class that differs from them only in case or blanks, where there is one."""
    known = set(classes.tolist())
    same = same_spelling((name for name in names if name not in known), known)
    return [same.get(name, name) for name in names]


def unknown_class(names: Any, classes: Vocabulary) -> LabelError:
    """The error about true classes that are none."""
    return LabelError(
        f"The truth names {listing(names)}, which no annotator used and no class list declares: the classes are "
        f"{listing(classes, 10)}.",
        remedy=DECLARE,
    )


def encode_numbers(truth: Any, items: Vocabulary, what: str = "ratings") -> Numbers:
    """N numbers (NaN unknown), in the order of some items, from such an array or from a mapping of item to number."""
    truth = by_name(truth)
    if isinstance(truth, (np.ndarray, list, tuple)):
        try:
            array = np.asarray(truth, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != (len(items),) or np.isinf(array).any():
            raise InputError(
                f"As an array, truth must hold a finite number (NaN where unknown) for each of the {len(items)} items."
            )
        return array.copy()
    rows, numbers = aligned(truth, items, what, "an array of numbers or a mapping from item to number")
    try:
        values = np.array([float(value) for value in numbers], dtype=np.float64)
    except (TypeError, ValueError):
        odd = next(v for v in numbers if not isinstance(v, (int, float, np.number)))
        raise InputError(f"The truth holds {odd!r}: expected numbers.") from None
    if not np.isfinite(values).all():
        raise InputError("The truth holds an infinite number: expected finite ones.")
    return np.append(values, np.nan)[rows]


def encode_texts(truth: Any, items: Vocabulary) -> npt.NDArray[Any]:
    """N texts, empty where unknown, from such an array or from a mapping of items to texts."""
    truth = by_name(truth, plain=False)
    out = np.full(len(items), "", dtype=object)
    if isinstance(truth, (np.ndarray, list, tuple)):
        if len(truth) != len(items) or not all(isinstance(text, str) for text in truth):
            raise InputError(
                f"As an array, truth must hold a text (empty where unknown) for each of {len(items)} items."
            )
        out[:] = list(truth)
        return out
    rows, texts = aligned(truth, items, "texts", "an array of texts or a mapping from item to text")
    for n in np.flatnonzero(rows >= 0).tolist():
        out[n] = str(texts[rows[n]])
    return out


def written_in(source: Source, part: str, item: Codes, items: Vocabulary) -> dict[Any, Any]:
    """Item -> what a column of a table of truths holds, as it is written."""
    names = items[item].tolist()
    return {name: value for name, value in zip(names, source[part].to_list(), strict=True) if value is not None}


def encode_partition(truth: Any, items: Vocabulary) -> tuple[Codes, Vocabulary]:
    """N codes (-1 unknown) and the classes behind them, from a mapping of items to classes or N classes in order."""
    truth = by_name(truth, plain=False)
    if isinstance(truth, Mapping):
        rows, names = aligned(truth, items, "answers", "")
        values = _names(names)
    else:
        values, rows = _names(truth), np.arange(len(items), dtype=np.int32)
        if len(values) != len(items):
            raise InputError(f"Expected a class for each of the {len(items)} items and found {len(values)}.")
    texts = np.array(list(map(str, values)), dtype=object) if values.dtype == object else values
    names_of, code = np.unique(texts, return_inverse=True)
    return encoding.recode(rows, code), encoding.to_vocabulary(names_of.tolist())


def encode_sets(truth: Any, items: Vocabulary, labels: Vocabulary) -> tuple[Mask, Mask]:
    """N x L booleans and for which items they are known, from a mapping of items to labels or such an array."""
    N, L = len(items), len(labels)
    truth = by_name(truth, plain=False)
    if not isinstance(truth, Mapping):
        table = np.asarray(truth)
        if table.shape != (N, L) or table.dtype != bool:
            raise InputError(
                f"Expected the true sets as a mapping from item to labels, or as {N} x {L} booleans, and found "
                f"{table.dtype} values of shape {table.shape}."
            )
        return table.copy(), np.ones(N, dtype=bool)
    rows, sets = aligned(truth, items, "answers", "")
    odd = next((some for some in sets if not isinstance(some, Iterable) or isinstance(some, str)), None)
    if odd is not None:
        raise InputError(f"The true set of an item is {odd!r}: expected a list of labels.")
    place = {name: k for k, name in enumerate(labels.tolist())}
    lost = [label for label in _names([label for some in sets for label in some]).tolist() if label not in place]
    if lost:
        sets = [_respelled(list(some), labels) for some in sets]
        lost = [label for label in lost if label not in place and label not in same_spelling(lost, place)]
    if lost:
        raise unknown_class(dict.fromkeys(lost), labels)
    table = np.zeros((N, L), dtype=bool)
    for n in np.flatnonzero(rows >= 0).tolist():
        table[n, [place[label] for label in sets[rows[n]]]] = True
    return table, rows >= 0


def truth_by_token(truth: Any, sequences: Vocabulary, starts: npt.NDArray[Any], tokens: Vocabulary) -> Any:
    """A mapping of tokens to tags from one of sequences to their lists of tags; any other truth as it is."""
    if not (hasattr(truth, "keys") and any(isinstance(v, (list, tuple, np.ndarray)) for v in truth.values())):
        return truth
    names = encoding.to_vocabulary(list(truth))
    out: dict[Any, Any] = {}
    for name, g in zip(names.tolist(), encoding.locate(names, sequences).tolist(), strict=True):
        if g < 0:
            continue
        given, lo, hi = list(truth[name]), starts[g], starts[g + 1]
        if len(given) != hi - lo:
            raise InputError(f"Sequence {name!r} has {hi - lo} tokens and {len(given)} true tags.")
        out |= dict(zip(tokens[lo:hi].tolist(), given, strict=True))
    if not out:
        raise InputError(f"None of the sequences with truth is here: truth names {listing(names, 3)}.")
    return out


def by_name(truth: Any, plain: bool = True) -> Any:
    """Truth in a table (of items and what is true of them) or in a Series with an index, as a mapping from item to what
    is true; anything else as it is. ``plain``: row numbers in an index are names, too."""
    truth = native(truth)
    if is_frame(truth):
        given: dict[str, str | None] = dict.fromkeys(("item", "truth", "label"))
        table = with_index(truth, given)
        parts = columns.resolve([str(name) for name in table.columns], given)
        value, item = parts["truth"] or parts["label"], parts["item"]
        indexed = item is None and is_pandas(truth) and truth.index.nlevels == 1 and not is_plain(truth.index)
        if value is None or (item is None and not indexed):
            raise ColumnError(
                "A truth table needs an item column and a label column: found "
                f"{listing([str(name) for name in table.columns], 12)}."
            )
        names, values = (truth.index if indexed else table[item]).to_list(), table[value].to_list()
    elif is_pandas(truth) and (plain or not is_plain(truth.index)):
        names, values = truth.index.to_list(), truth.to_list()
    else:
        return truth
    truths: dict[Any, Any] = {}
    for name, value in zip(names, values, strict=True):
        if not is_missing(value) and not is_missing(name) and truths.setdefault(name, value) != value:
            two = listing([truths[name], value])
            raise LabelError(f"Two rows give different truths for item {name!r}: {two}. Keep one of them.")
    return truths


def aligned(truth: Any, items: Vocabulary, what: str, expected: str, each: str = "") -> tuple[Codes, list[Any]]:
    """Where each item stands among those with a truth (-1: nowhere), and what is true of these. ``each``: what an array
    holds for every item, where truth may be one."""
    if each and isinstance(truth, (list, tuple, np.ndarray)):
        if len(truth) != len(items):
            raise InputError(
                f"As an array, truth must hold {each} (None where unknown) for each of {len(items)} items."
            )
        truth = dict(zip(items.tolist(), truth, strict=True))
    if not hasattr(truth, "keys"):
        raise InputError(f"truth must be {expected}, and is {type(truth).__name__}.")
    known = {name: value for name, value in dict(truth).items() if not _is_nothing(value)}
    names = encoding.to_vocabulary(list(known))
    rows = encoding.locate(items, names)
    if len(names) and len(items) and (rows < 0).all():
        raise InputError(
            f"None of the {len(names)} items with truth has {what}: truth names {listing(names, 3)}, the {what} "
            f"{listing(items, 3)}. Check that both name the items alike."
        )
    _point_out_near(names, items, rows, what)
    return rows, list(known.values())


def check_drawn(truth: Any, items: Vocabulary) -> None:
    """Raise an error where truths of a random draw name an item that is not here: those left out may be alike, as are
    names that a spreadsheet turned into dates, and what remains is then no random draw."""
    truth = by_name(truth)
    if not isinstance(truth, Mapping):
        return
    names = encoding.to_vocabulary([name for name, value in truth.items() if not _is_nothing(value)])
    if not (lost := names[encoding.locate(names, items) < 0]).size:
        return
    raise InputError(
        f"{len(lost):,} of the {len(names):,} gold items are not among the {len(items):,} items: {listing(lost)}; "
        f"items are called {listing(items, 3)}. Gold labels that get lost make the others no random draw: use the same "
        "names (spreadsheets turn some into dates or rounded numbers, 007 into 7), or leave out items that are gone."
    )


def _is_nothing(value: Any) -> bool:
    return not isinstance(value, np.ndarray) and is_missing(value)


def _point_out_near(names: Vocabulary, items: Vocabulary, rows: Codes, what: str) -> None:
    """Say which items with truth are not here, while items of nearly the same name are, and have no truth."""
    lost = np.ones(len(names), dtype=bool)
    lost[rows[rows >= 0]] = False
    if not lost.any() or (rows >= 0).all():
        return
    free = {nearly(name): name for name in items[rows < 0].tolist()}
    pairs = [(name, free[near]) for name in names[lost].tolist() if (near := nearly(name)) in free]
    if pairs:
        first, second = (listing([name]) for name in pairs[0])
        warn(
            f"{len(pairs):,} of the {len(names):,} items with truth have no {what} under that name, and items that "
            f"differ from them only in case, blanks or leading zeros have: {first} and {second}. Their truth is left "
            "out. Name the items alike."
        )


def _names(classes: Any) -> Vocabulary:
    """True classes as names; anything else is an error."""
    odd = next((v for v in classes if not isinstance(v, Hashable)), None) if isinstance(classes, Iterable) else classes
    if odd is not None or not isinstance(classes, Iterable):
        raise InputError(f"The truth holds {odd!r}: expected the name of a class for each item.")
    return encoding.to_vocabulary(classes)


def one_each(
    at: npt.NDArray[Any], values: npt.NDArray[Any], size: int, clash: Callable[[int, list[Any]], str]
) -> Counts:
    """The row that speaks for each of ``size`` items, -1 where none does; an error where two rows disagree."""
    row = np.full(size, -1, dtype=np.int64)
    row[at] = np.arange(len(at))
    odd = np.flatnonzero(values[row[at]] != values)
    if len(odd):
        n, first = int(at[odd[0]]), odd[0]
        raise LabelError(f"Two rows give different {clash(n, [values[first], values[row[n]]])} Keep one of them.")
    return row


def classes_in(source: Source, part: str, item: Codes, items: Vocabulary) -> dict[Any, Any]:
    """Item -> class, from a column of classes; rows without one are left out."""
    code, names = source.coded(part)
    if source.from_text:
        code, names = encoding.booleans_in_text(code, names)
    known = (code >= 0) & (item >= 0)
    return one_per_item(item[known], items, code[known], "true classes for item", lambda codes: names[codes])


def numbers_in(source: Source, part: str, item: Codes, items: Vocabulary) -> dict[Any, float]:
    """Item -> number, from a column of numbers; rows without one are left out."""
    value = source.numbers(part, empty=True)
    known = ~np.isnan(value) & (item >= 0)
    return one_per_item(item[known], items, value[known], "true numbers for item", np.asarray)


def one_per_item(
    item: npt.NDArray[Any], items: Vocabulary, values: npt.NDArray[Any], words: str,
    names: Callable[[Any], npt.NDArray[Any]],
) -> dict[Any, Any]:  # fmt: skip
    """Item -> value, by the names of both; ``words`` say what two rows disagree about."""
    row = one_each(item, values, len(items), lambda n, two: f"{words} {listing(items[[n]])}: {listing(names(two))}.")
    filled = np.flatnonzero(row >= 0)
    return dict(zip(items[filled].tolist(), names(values[row[filled]]).tolist(), strict=True))
