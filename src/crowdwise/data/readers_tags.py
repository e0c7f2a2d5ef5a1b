"""A table or a file with tags becomes :class:`~crowdwise.data.tags.Tags`.

Two kinds of files are read: a long table (any format of :func:`crowdwise.read_votes`) with the columns sequence,
position, annotator and tag; and columns in the manner of the CoNLL tasks, one line per token, one column per annotator,
a blank line between sequences:

    Ann    B-PER  B-PER  ?
    slept  O      O      ?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding, files, frames, tables, tag_schemes
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.encoding import Codes
from crowdwise.data.files import NULLS, PathLike
from crowdwise.data.tags import PARTS, OnInvalid, Tags
from crowdwise.data.votes import OnMissing, Votes
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError, ReadError, listing

if TYPE_CHECKING:
    import polars as pl

NEEDED = PARTS[:4]
CONLL = (".conll", ".bio", ".iob", ".iob2", ".col")


def tags_from_table(
    frame: Any,
    given: dict[str, str | None],
    *,
    classes: Sequence[Any] | None = None,
    scheme: str = "auto",
    on_duplicate: OnDuplicate = "error",
    on_missing: OnMissing = "error",
    on_invalid: OnInvalid = "error",
    from_text: bool = False,
) -> Tags:
    """Tags from a frame. ``from_text``: the columns were read as text, so look for integers in names."""
    if on_duplicate not in ("error", "first", "last"):
        raise ParameterError(
            f"on_duplicate={on_duplicate!r}: expected 'error', 'first' or 'last'; an annotator gives a token one tag."
        )
    if on_missing not in ("error", "drop"):
        raise ParameterError(f"on_missing={on_missing!r}: expected 'error' or 'drop'.")
    table = frames.to_polars(frame)
    if table.width == 0 or table.height == 0:
        raise InputError(f"No tags: the table has {table.height} rows and {table.width} columns.")
    parts = columns.resolve(table.columns, given)
    _require(table.columns, parts)
    code, names = _named(table[str(parts["sequence"])], "sequence", from_text)
    place = _positions(table[str(parts["position"])])
    token, sequence, position = _tokens(code, place)
    starts = np.concatenate([[0], np.cumsum(np.bincount(sequence, minlength=len(names)))]).astype(np.int64)
    items = _token_names(names, sequence, position)
    words = None if parts["word"] is None else _words(table[parts["word"]], token, items)

    rows = _tagged(table, parts, on_missing)
    picked, token_of = table[rows], token[rows]
    annotator, annotators = encoding.encode(picked[str(parts["annotator"])])
    label, tags = encoding.encode(picked[str(parts["tag"])])
    if from_text:
        annotator, annotators = encoding.integers_in_text(annotator, annotators)
        label, tags = encoding.integers_in_text(label, tags)
    declared = list(encoding.sort_vocabulary(label, tags)[1].tolist() if classes is None else classes)
    scheme = tag_schemes.scheme_of(declared, scheme)
    complete = tag_schemes.completed(declared, scheme)
    votes = Votes.from_codes(
        token_of, annotator, label, items=items, annotators=annotators, label_names=tags,
        classes=complete if classes is not None else sorted(complete),
        weight=tables._weight(picked, parts), timestamp=tables._timestamp(picked, parts), on_duplicate=on_duplicate,
        kind=frames.kind_of(frame), rows=rows,
    )  # fmt: skip
    if parts["truth"] is not None:
        votes = votes.with_truth(_truth(table[parts["truth"]], token, votes, from_text))
    return Tags(votes, starts, names, position, words, scheme)._checked(on_invalid)


def read_tags(
    path: PathLike,
    *,
    sequence: str | None = None,
    position: str | None = None,
    annotator: str | None = None,
    tag: str | None = None,
    word: str | None = None,
    weight: str | None = None,
    timestamp: str | None = None,
    truth: str | int | None = None,
    annotators: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
    scheme: str = "auto",
    on_duplicate: OnDuplicate = "error",
    on_missing: OnMissing = "error",
    on_invalid: OnInvalid = "error",
    form: str = "auto",
    separator: str | None = None,
    null_values: Sequence[str] = NULLS,
    missing: Sequence[str] = ("?", "_"),
    comment: str | None = None,
) -> Tags:
    """Tags from a file.

    Parameters
    ----------
    path
        A long table (``.csv``, ``.jsonl``, ``.parquet``...) or CoNLL-like columns (``.conll``, ``.bio``, ``.iob``,
        ``.col``).
    sequence, position, annotator, tag, word, weight, timestamp
        As in :meth:`crowdwise.Tags.from_frame`, for long tables.
    truth
        The column of true tags: its name in a long table, its number (from 0, or from -1 at the end) in CoNLL-like
        columns.
    annotators
        The names of the annotators' columns of a CoNLL-like file, in order; numbers from 0 by default.
    classes, scheme, on_duplicate, on_missing, on_invalid
        As in :meth:`crowdwise.Tags.from_frame`.
    form
        ``"long"``, ``"conll"``, or ``"auto"``: by the ending of the name.
    separator
        What stands between columns, where it should not be guessed (white space in CoNLL-like files).
    null_values
        What counts as an empty cell in a text table.
    missing
        What stands in a CoNLL-like file where an annotator gave no tag.
    comment
        Lines of a CoNLL-like file that begin with it are left out.
    """
    if form not in ("auto", "long", "conll"):
        raise ParameterError(f"form={form!r}: expected 'auto', 'long' or 'conll'.")
    policy: dict[str, Any] = {
        "classes": classes, "scheme": scheme, "on_duplicate": on_duplicate, "on_missing": on_missing,
        "on_invalid": on_invalid, "from_text": True,
    }  # fmt: skip
    if form == "conll" or (form == "auto" and Path(path).suffix.lower() in CONLL):
        if isinstance(truth, str):
            raise ParameterError(f"truth={truth!r}: in CoNLL-like columns it is the number of a column, such as -1.")
        frame = _conll(Path(path), annotators, truth, separator, missing, comment)
        return tags_from_table(frame, dict.fromkeys(PARTS), **policy)
    if isinstance(truth, int):
        raise ParameterError(f"truth={truth!r}: in a long table it is the name of a column.")
    given = dict(
        zip(PARTS, (sequence, position, annotator, tag, word, weight, timestamp, truth), strict=True)
    )  # fmt: skip
    table, from_text = files.read_table(path, given, separator=separator, null_values=null_values, wide=True)
    return tags_from_table(table, given, **(policy | {"from_text": from_text}))


def read_true_tags(path: PathLike) -> dict[str, Any]:
    """Token (``sequence:position``) -> its true tag, from a table with a sequence, a position and a tag (or truth)
    column."""
    table, from_text = files.read_table(path, {})
    parts = columns.resolve(table.columns, {"sequence": None, "position": None, "truth": None, "tag": None})
    column = parts["truth"] or parts["tag"]
    if parts["sequence"] is None or parts["position"] is None or column is None:
        raise ColumnError(
            f"A table of true tags needs a sequence, a position and a tag column: found {listing(table.columns, 12)}."
        )
    table = table.select(parts["sequence"], parts["position"], column).drop_nulls().unique(maintain_order=True)
    if table.height == 0:
        raise ReadError(f"{path} names no true tag: every row is empty.")
    code, names = _named(table[parts["sequence"]], "sequence", from_text)
    tokens = _token_names(names, code, _positions(table[parts["position"]])).tolist()
    tag, tags = encoding.encode(table[column])
    if from_text:
        tag, tags = encoding.integers_in_text(tag, tags)
    out = dict(zip(tokens, tags[tag].tolist(), strict=True))
    if len(out) < len(tokens):
        twice = Counter(tokens).most_common(1)[0][0]
        raise LabelError(f"Two rows give different true tags for token {twice!r}. Keep one of them.")
    return out


# -------------------------------------------------------------------- the pieces


def _require(names: Sequence[str], parts: dict[str, str | None]) -> None:
    missing = [part for part in NEEDED if parts[part] is None]
    if missing:
        words = "; ".join(f"{part} (also {', '.join(columns.ALIASES[part][1:4])}, ...)" for part in missing)
        raise ColumnError(
            f"No column found for: {words}. The table has {listing(names, 12)}. "
            f"Name the columns, e.g. {missing[0]}='...'."
        )


def _named(column: pl.Series, part: str, from_text: bool) -> tuple[Codes, npt.NDArray[Any]]:
    code, names = encoding.encode(column)
    if (code < 0).any():
        raise LabelError(f"Row {int(np.flatnonzero(code < 0)[0])} has no {part} (column {column.name!r}).")
    return encoding.integers_in_text(code, names) if from_text else (code, names)


def _positions(column: pl.Series) -> npt.NDArray[np.int64]:
    import polars as pl

    whole = column.cast(pl.Int64, strict=False)
    odd = whole.is_null() | ((column != whole) if column.dtype.is_float() else False)
    if bool(odd.any()):
        at = int(odd.arg_true()[0])
        raise ColumnError(
            f"Positions order the tokens of a sequence and must be whole numbers: column {column.name!r} has "
            f"{column[at]!r} in row {at}. If it holds words, name it word={column.name!r}, and the position column."
        )
    return whole.to_numpy()


def _tokens(code: Codes, place: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Any]:
    """The token of each row, and the sequence and position of each token, in order."""
    low, width = int(place.min()), int(place.max()) - int(place.min()) + 1
    if width > 2**62 // (int(code.max()) + 1):
        raise InputError(f"Positions run from {low} to {int(place.max())}: number the tokens of a sequence from 0.")
    key, token = np.unique(code.astype(np.int64) * width + (place - low), return_inverse=True)
    return token, key // width, key % width + low


def _token_names(names: npt.NDArray[Any], sequence: npt.NDArray[Any], position: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import polars as pl

    text = pl.Series(map(str, names.tolist()), dtype=pl.String).gather(sequence)
    return encoding.to_vocabulary((text + ":" + pl.Series(position).cast(pl.String)).to_numpy())


def _words(column: pl.Series, token: npt.NDArray[Any], items: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import polars as pl

    given = column.cast(pl.String).to_numpy()
    words = np.full(len(items), None, dtype=object)
    words[token] = given
    clash = np.flatnonzero(words[token] != given)
    if len(clash):
        at = clash[0]
        raise InputError(
            f"Two rows give different words for token {items[token[at]]!r}: {given[at]!r} and {words[token[at]]!r}."
        )
    return words


def _tagged(table: pl.DataFrame, parts: dict[str, str | None], on_missing: OnMissing) -> npt.NDArray[np.int64]:
    """The rows that hold a tag; a row with neither annotator nor tag declares a token and is no mistake."""
    who, tag = (table[str(parts[part])].is_null().to_numpy() for part in ("annotator", "tag"))
    bad = np.flatnonzero(who != tag)
    if len(bad) and on_missing == "error":
        part = "tag" if tag[bad[0]] else "annotator"
        raise LabelError(
            f"{len(bad):,} {'rows have' if len(bad) > 1 else 'row has'} no {part} (column {parts[part]!r}): "
            f"row {listing(bad.tolist())}, counted from 0. Fill them in, or leave them out with on_missing='drop'."
        )
    rows = np.flatnonzero(~who & ~tag)
    if not len(rows):
        raise InputError("No tags: no row has an annotator and a tag.")
    return rows


def _truth(column: pl.Series, token: npt.NDArray[Any], votes: Votes, from_text: bool) -> Codes:
    code, names = encoding.encode(column)
    if from_text:
        code, names = encoding.integers_in_text(code, names)
    place = encoding.locate(names, votes.classes)
    if (place < 0).any():
        raise LabelError(
            f"The truth names {listing(names[place < 0])}, which no annotator used: the tags are "
            f"{listing(votes.classes, 10)}. If the name is right, declare every tag: classes=[...]."
        )
    code, known = encoding.recode(code, place), code >= 0
    truth = np.full(len(votes), -1, dtype=np.int32)
    truth[token[known]] = code[known]
    clash = np.flatnonzero(known & (truth[token] != code))
    if len(clash):
        at = token[clash[0]]
        raise LabelError(
            f"Two rows give different true tags for token {votes.items[at]!r}: "
            f"{listing(votes.classes[[code[clash[0]], truth[at]]])}. Keep one of them."
        )
    return truth


def _conll(
    path: Path, annotators: Sequence[Any] | None, truth: int | None, separator: str | None, missing: Sequence[str],
    comment: str | None,
) -> dict[str, Any]:  # fmt: skip
    """A CoNLL-like file as a long table; the first column is the word."""
    if not path.is_file():
        raise ReadError(f"There is no file {path}.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ReadError(f"{path} is not text in UTF-8: {error}.") from error
    rows: list[list[str]] = []
    sequence: list[int] = []
    number, width = 0, 0
    for n, line in enumerate(lines):
        if not line.strip() or line.startswith("-DOCSTART-"):
            number += bool(sequence) and sequence[-1] == number
            continue
        if comment and line.startswith(comment):
            continue
        fields = [field.strip() for field in line.split(separator)]
        width = width or len(fields)
        if len(fields) != width or width < 2:
            raise ReadError(
                f"Line {n + 1} of {path} has {len(fields)} columns: expected {max(width, 2)}, the word and a tag of "
                f"each annotator ({', '.join(map(repr, missing))} where there is none)."
            )
        rows.append(fields)
        sequence.append(number)
    if not rows:
        raise ReadError(f"{path} is empty.")
    cells = np.array(rows, dtype=object)
    gold = None
    if truth is not None:
        if not -width < truth < width or truth == 0:
            raise ParameterError(f"truth={truth}: the file has the columns 1 to {width - 1} besides the word.")
        gold = cells[:, truth]
        cells = np.delete(cells, truth, axis=1)
    T, M = cells.shape[0], cells.shape[1] - 1
    names = encoding.to_vocabulary(range(M) if annotators is None else annotators)
    if len(names) != M:
        raise InputError(f"{path} has {M} columns of annotators and {len(names)} are named.")
    of = np.array(sequence)
    position = np.arange(T) - np.searchsorted(of, of)
    token, who = np.nonzero(~np.isin(cells[:, 1:], list(missing)))
    bare = np.setdiff1d(np.arange(T), token)
    rows_of = np.concatenate([token, bare])
    nobody = np.full(len(bare), None, dtype=object)
    out: dict[str, Any] = {
        "sequence": of[rows_of],
        "position": position[rows_of],
        "word": cells[rows_of, 0],
        "annotator": np.concatenate([names[who].astype(object), nobody]),
        "tag": np.concatenate([cells[:, 1:][token, who], nobody]),
    }
    if gold is not None:
        out["truth"] = np.where(np.isin(gold, list(missing)), np.array(None), gold)[rows_of]
    return out
