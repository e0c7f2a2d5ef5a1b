"""Tokens in the rows of a table: which row is about which token, and what tokens are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding
from crowdwise.data.encoding import Counts, Vocabulary
from crowdwise.data.places import called
from crowdwise.data.schema import OnMissing
from crowdwise.data.source import DROP, Source
from crowdwise.data.truth import one_each, one_per_item
from crowdwise.errors import ColumnError, InputError, LabelError, Option, Remedy, listing

if TYPE_CHECKING:
    pass


def tokens(source: Source) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], Vocabulary]:
    """The token of each row, the sequence and position of each token, in order, and the names of the sequences."""
    source.complete(("sequence",), "error")
    code, names = source.coded("sequence")
    place = _positions(source)
    low, width = int(place.min()), int(place.max()) - int(place.min()) + 1
    if width > 2**62 // (int(code.max()) + 1):
        raise InputError(f"Positions run from {low} to {int(place.max())}: number the tokens of a sequence from 0.")
    key, token = np.unique(code.astype(np.int64) * width + (place - low), return_inverse=True)
    return token, key // width, key % width + low, names


def _positions(source: Source) -> Counts:
    import polars as pl

    column = source.flat("position", "a whole number", ColumnError)
    whole = column.cast(pl.Int64, strict=False)
    odd = whole.is_null() | ((column != whole) if column.dtype.is_float() else False)
    if bool(odd.any()):
        word = Remedy("If it holds words, name it {}, and the position column.", Option("word", column.name))
        expected = "a whole number, which orders the tokens of a sequence"
        raise source.odd("position", int(odd.arg_true()[0]), expected, ColumnError, remedy=word)
    return whole.to_numpy()


def token_names(names: npt.NDArray[Any], sequence: npt.NDArray[Any], position: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import polars as pl

    text = pl.Series(map(str, names.tolist()), dtype=pl.String).gather(sequence)
    return encoding.to_vocabulary((text + ":" + pl.Series(position).cast(pl.String)).to_numpy())


def words(source: Source, token: npt.NDArray[Any], items: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import polars as pl

    given = source.flat("word", "a word").cast(pl.String).to_numpy()
    row = one_each(token, given, len(items), lambda n, two: f"words for token {items[n]!r}: {listing(two)}.")
    return np.asarray(given[row], dtype=object)


def true_tags(source: Source, part: str, token: npt.NDArray[Any], items: npt.NDArray[Any]) -> dict[Any, Any]:
    """Token -> its true tag, from a column."""
    code, names = source.coded(part)
    known = code >= 0
    return one_per_item(token[known], items, code[known], "true tags for token", lambda codes: names[codes])


def keep_tagged(source: Source, on_missing: OnMissing) -> Counts:
    """Go on with the rows that hold a tag; one with neither annotator nor tag declares a token and is no mistake."""
    who, tag = (source[part].is_null().to_numpy() for part in ("annotator", "tag"))
    bad = np.flatnonzero(who != tag)
    if len(bad) and on_missing == "error":
        part = "tag" if tag[bad[0]] else "annotator"
        raise LabelError(
            f"{len(bad):,} {'rows have' if len(bad) > 1 else 'row has'} no {part} (column {source.parts[part]!r}): "
            f"{', '.join(filter(None, called(bad.tolist(), source.places)))}.",
            remedy=DROP,
        )
    rows = np.flatnonzero(~who & ~tag)
    if not len(rows):
        raise InputError("No tags: no row has an annotator and a tag.")
    source.keep(rows)
    return rows
