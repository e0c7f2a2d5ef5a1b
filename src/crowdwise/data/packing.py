"""Tables of votes that are larger than memory: packed into parts on disk, each with some items and all of their votes.

1. polars streams over the files (:mod:`crowdwise.data.vote_files`) for the names of annotators and classes, and for
   rows with an empty cell.
2. A second pass replaces these names by codes and puts every row into a bucket by the hash of its item.
3. Each bucket, which fits into memory, becomes :class:`~crowdwise.data.votes.Votes` as in memory (duplicates, weights
   and errors included, by the numbers of the rows in the files one after the other), and then plain arrays.

A part is memory-mapped when it is loaded. The names of its items are read only where they are asked for.

Votes as compact bytes: blocks that travel between machines, each with some items and all of their votes.

=============  ===========================================================================
``sizes``      the number of votes of each item
``annotator``  the code of the annotator of each vote, items one after the other
``label``      the code of the class of each vote
``weight``     the weight of each vote (8 bytes), or ``None``
``gold``       the code of the gold label of each item plus one (0: unknown), or ``None``
=============  ===========================================================================

Numbers take 1, 2, 4 or 8 bytes, as few as hold them: a vote of one of 2,000 annotators on 5 classes takes three bytes.
Their width is the length of the bytes over the number of items or votes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding, folders
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.heavy import pl
from crowdwise.data.schema import BLANK
from crowdwise.data.soft_votes import NOT_BOTH, class_columns, soft_frame, words
from crowdwise.data.source import Source
from crowdwise.data.truth import by_name, encode_classes, one_each
from crowdwise.data.vote_files import files_of, scan
from crowdwise.data.votes import Votes, coded_labels
from crowdwise.errors import (
    DuplicateError,
    InputError,
    LabelError,
    Option,
    ParameterError,
    ReadError,
    Remedy,
    SizeError,
    listing,
    warn,
)

BLOCK_ROWS = 2_000_000
"""How many votes go into a block, on average."""
KEEP_ONE = Remedy(
    "Keep one with {}, or count every row with {}.",
    Option("on_duplicate", "first", "last"),
    Option("on_duplicate", "all"),
)


@dataclass(frozen=True)
class KnownClasses:
    """Known classes of items of all blocks: gold labels, or the truth that measures."""

    names: Vocabulary
    codes: Codes
    what: str = "gold"

    @classmethod
    def of(cls, gold: Any, classes: Vocabulary, what: str = "gold") -> KnownClasses | None:
        """From a mapping of items to classes, a table or a Series; ``None`` where there is none."""
        gold = by_name(gold)
        if gold is None:
            return None
        if not isinstance(gold, Mapping):
            raise InputError(f"{what} must be a mapping from item to class, or a table; found {type(gold).__name__}.")
        names = encoding.to_vocabulary(list(gold))
        return cls(names, encode_classes(gold, names, classes), what)

    def of_items(self, items: Vocabulary) -> Codes:
        """A code for each item, -1 where its class is not known."""
        return encoding.recode(encoding.locate(items, self.names), self.codes)

    def check(self, known: int) -> None:
        """An error where classes are known, and none of their items was found."""
        if len(self.names) and not known:
            raise InputError(
                f"None of the {len(self.names):,} items with {self.what} has votes: {self.what} names "
                f"{listing(self.names, 3)}. Check that both name the items alike."
            )


def narrow(numbers: npt.NDArray[Any]) -> bytes:
    """The bytes of integers from 0 on, as few as hold them."""
    top = int(numbers.max()) if len(numbers) else 0
    width = next(width for width in (1, 2, 4, 8) if top < 2 ** (8 * width))
    return numbers.astype(f"<u{width}").tobytes()


def wide(data: Any, n: int, dtype: Any = np.int32) -> npt.NDArray[Any]:
    """The n integers that :func:`narrow` wrote."""
    return np.frombuffer(data, dtype=f"<u{len(memoryview(data)) // max(n, 1) or 1}").astype(dtype)


def packed(votes: Votes, gold: Codes | None = None) -> dict[str, bytes | None]:
    """The bytes of votes, and of the codes of gold labels."""
    return {
        "sizes": narrow(np.diff(votes.indptr)),
        "annotator": narrow(votes.annotator),
        "label": narrow(votes.label),
        "weight": None if votes.weight is None else votes.weight.astype("<f8").tobytes(),
        "gold": None if gold is None else narrow(gold + 1),
    }


def unpacked(
    block: Mapping[str, Any], n_items: int, n_votes: int, annotators: Vocabulary, classes: Vocabulary,
    items: Vocabulary | None = None,
) -> tuple[Votes, Codes | None]:  # fmt: skip
    """Votes and gold codes from their bytes; items are numbers unless their names are given."""
    indptr = np.zeros(n_items + 1, dtype=np.int64)
    np.cumsum(wide(block["sizes"], n_items), out=indptr[1:])
    weight = None if block["weight"] is None else np.frombuffer(block["weight"], dtype="<f8")
    votes = Votes(
        indptr, wide(block["annotator"], n_votes), wide(block["label"], n_votes),
        np.arange(n_items) if items is None else items, annotators, classes, weight,
    )  # fmt: skip
    return votes, None if block["gold"] is None else wide(block["gold"], n_items) - np.int32(1)


@dataclass(frozen=True)
class Repeated:
    """Rows of a block that an annotator gave twice: how many, and one of them in words."""

    count: int = 0
    example: str = ""

    @classmethod
    def of(cls, votes: Votes, annotators: Vocabulary | None = None) -> Repeated:
        """Votes in which every row was kept; names of annotators where the votes hold numbers in their place."""
        again = (np.diff(votes.annotator) == 0) & (np.diff(votes.item) == 0)
        if not again.any():
            return cls()
        at = int(np.flatnonzero(again)[0])
        who = (votes.annotators if annotators is None else annotators)[votes.annotator[[at]]]
        return cls(int(again.sum()), f"annotator {listing(who)} labels item {listing(votes.items[votes.item[[at]]])}")

    @staticmethod
    def check(blocks: list[Repeated]) -> None:
        """An error where blocks have such rows."""
        count = sum(one.count for one in blocks)
        if count:
            example = next(one.example for one in blocks if one.count)
            raise DuplicateError(
                f"{count:,} duplicated vote{'s' if count > 1 else ''}: {example} more than once.", remedy=KEEP_ONE
            )


ROWS = 4_000_000
"""How many rows go into a part, on average."""
SCRATCH = "parts"
"""What temporaries of this kind are called (:mod:`crowdwise.data.folders`)."""
ROW_ON_DISK = 40
"""Bytes that a vote takes in the scratch folder, at most, without the names of items."""
PARTS = ("item", "annotator", "label", "weight", "timestamp", "truth")


Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Packed:
    """Votes in parts on disk."""

    folder: Path
    sizes: tuple[int, ...]
    """The number of items of each part."""
    annotators: Vocabulary
    classes: Vocabulary
    n_rows: int

    def load(self, i: int, names: bool = False) -> tuple[Votes, Codes | None, Codes]:
        """A part, the codes of its gold labels, and the cell (annotator * K + label) of each vote, memory-mapped.

        Items are numbers unless names are asked for.
        """
        here = self.folder / f"{i:05d}"
        arrays = {file.stem: np.load(file, mmap_mode="r") for file in here.glob("*.npy")}
        items = arrays.pop("items", None) if names else None
        if names and items is None:
            items = pl.read_parquet(here / "items.parquet")["item"].to_numpy().astype(object)
        arrays.pop("items", None)
        items = np.arange(self.sizes[i]) if items is None else items
        votes = Votes(
            arrays["indptr"], arrays["annotator"], arrays["label"], items, self.annotators, self.classes,
            arrays.get("weight"),
        )  # fmt: skip
        return votes, arrays.get("gold"), arrays["cell"]

    def truth(self, i: int) -> Codes | None:
        """The codes of the true classes of a part's items, gold left out (-1 there, and where it is unknown)."""
        file = self.folder / f"{i:05d}" / "truth.npy"
        return np.load(file) if file.exists() else None


@contextmanager
def scratch_folder(base: str | os.PathLike[str] | None) -> Iterator[Path]:
    """A folder for parts, removed at the end; those that killed processes left behind in the same place go first."""
    place = Path(tempfile.gettempdir() if base is None else base)
    if not place.is_dir():
        raise ParameterError(f"scratch={str(place)!r} is not a folder.")
    folders.clean_temporaries(place, SCRATCH, shutil.rmtree)
    with folders.temporary(place, SCRATCH, folder=True) as folder:
        try:
            with suppress(OSError):
                os.chmod(folder, 0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def pack(
    source: Any, folder: Path, *, gold: Any = None, truth: Any = None, classes: Sequence[Any] | None = None,
    on_duplicate: str = "error", on_missing: str = "error", normalise_labels: bool = False, rows: int = ROWS,
    progress: Progress | None = None, probability: str | None = None, **given: str | None,
) -> Packed:  # fmt: skip
    """Pack the votes of files into a folder; ``given`` and ``probability`` name columns, as in
    :func:`crowdwise.read_votes`.

    Where no ``truth`` is given, a column of true classes is taken for it, as in memory.
    ``progress`` gets the stage (``names``, ``rows``, ``parts``) and the share of it that is done.
    """
    say = progress or (lambda stage, share: None)
    say("names", 0.0)
    frame, from_text = scan(files_of(source))
    names = frame.collect_schema().names()
    if probability is not None and probability not in names:
        of = class_columns(names, probability)
        rest = [name for name in names if name not in of]
        frame = frame.unpivot(list(of), index=rest, variable_name="label", value_name="probability")
        frame = frame.with_columns(pl.col("label").replace(of))
        names, probability = [*rest, "label", "probability"], "probability"
    parts = columns.resolve(names, {part: given.get(part) for part in PARTS})
    if probability is not None and parts["weight"] is not None:
        raise ParameterError(NOT_BOTH.format(parts["weight"]))
    if truth is not None:
        parts["truth"] = None
    missing, options = [part for part in PARTS[:3] if parts[part] is None], columns.find(names, "n_options")
    if options is not None:
        raise ReadError(
            f"Column {options!r} gives items options of their own, which need all votes at once: read the file with "
            "read_votes, or leave the column out."
        )
    if missing:
        raise ReadError(f"No column for {listing(missing)}: the files have {listing(names, 12)}. Name it, as item=...")
    used = {part: column for part in PARTS if (column := parts[part]) is not None}
    if probability is not None:
        used["p"] = probability
    frame = frame.select(pl.col(column).alias(part) for part, column in used.items()).with_row_index("row")
    frame, n_rows = _complete(frame, on_missing)
    free = shutil.disk_usage(folder).free
    if ROW_ON_DISK * n_rows > free:
        raise SizeError(
            f"{n_rows:,} votes in parts take up to {ROW_ON_DISK * n_rows / 1e9:,.1f} GB on the disk, and "
            f"{folder.parent} has {free / 1e9:,.1f} GB left.",
            remedy=Remedy("Name a folder on a larger disk: {}.", Option("scratch", python="...", command="DIR")),
        )
    who = _names(frame, "annotator", from_text)
    labels = _names(frame, "label", from_text, classes=classes, normalise_labels=normalise_labels)
    coded = {"annotator": who[:2], "label": labels[:2]}
    if "truth" in used:
        coded["truth"] = _true_classes(frame, from_text, labels[2])
    if from_text and _whole(frame):
        frame = frame.with_columns(pl.col("item").cast(pl.Int64))
    buckets = max(1, -(-n_rows // rows))
    frame = _watched(frame, n_rows, lambda share: say("rows", share))
    for name, (raw, codes) in coded.items():
        codes_of = pl.LazyFrame({name: raw, f"{name}_code": codes})
        frame = frame.join(codes_of, name, "left" if name == "truth" else "inner").drop(name)
    if probability is not None:
        frame, on_duplicate = _soft(frame, who[2], labels[2]), "all"
    frame = frame.with_columns((pl.col("item").hash(7) % buckets).cast(pl.Int32).alias("bucket"))
    frame.sink_parquet(pl.PartitionBy(folder / "rows", key="bucket", include_key=False), compression="lz4")
    sizes: list[int] = []
    known = {what: KnownClasses.of(value, labels[2], what) for what, value in (("gold", gold), ("truth", truth))}
    counted = dict.fromkeys(known, 0)
    filled = sorted((folder / "rows").glob("bucket=*"), key=lambda p: int(p.name.partition("=")[2]))
    for bucket in filled:
        say("parts", len(sizes) / len(filled))
        table = pl.read_parquet(sorted(bucket.glob("*.parquet"))).sort("row")
        votes, true = _votes(table, who[2], labels[2], on_duplicate)
        mine = {what: one.of_items(votes.items) for what, one in known.items() if one is not None}
        if true is not None:
            mine["truth"] = true
        for what, codes in mine.items():
            counted[what] += int((codes >= 0).sum())
        if len(mine) == 2:
            mine["truth"] = np.where(mine["gold"] >= 0, -1, mine["truth"])
        _write(votes, folder / f"{len(sizes):05d}", mine)
        sizes.append(len(votes))
        shutil.rmtree(bucket, ignore_errors=True)
    for what, one in known.items():
        if one is not None:
            one.check(counted[what])
    return Packed(folder, tuple(sizes), who[2], labels[2], n_rows)


def _soft(frame: pl.LazyFrame, annotators: Vocabulary, classes: Vocabulary) -> pl.LazyFrame:
    """Rows with probabilities as rows with weights, and what lies beside them."""
    p = pl.col("p").cast(pl.Float64, strict=False)
    answers = frame.select("item", pl.col("annotator_code").alias("annotator"),
                           pl.col("label_code").cast(pl.Int32).alias("label"), p.fill_nan(None), "row")  # fmt: skip
    soft = soft_frame(answers, len(classes), lambda n, m, k: words([n], annotators[[m]], classes[[k]]))
    beside = frame.drop("item", "annotator_code", "label_code", "p", "timestamp", strict=False)
    return soft.rename({"annotator": "annotator_code", "label": "label_code"}).join(beside, "row")


def _watched(frame: pl.LazyFrame, rows: int, progress: Callable[[float], None]) -> pl.LazyFrame:
    """The frame, whose rows are counted as they pass."""
    seen = [0]

    def count(batch: pl.DataFrame) -> pl.DataFrame:
        seen[0] += batch.height
        progress(min(1.0, seen[0] / rows))
        return batch

    return frame.map_batches(count, streamable=True)


def _complete(frame: pl.LazyFrame, on_missing: str) -> tuple[pl.LazyFrame, int]:
    """The frame without rows that have an empty cell (an error, unless they are to be dropped), and its length."""
    ends = [pl.col(part).last().alias(f"last {part}") for part in PARTS[:2]]
    lost = frame.select(pl.len(), *ends, *(_empty(frame, part).sum().alias(part) for part in PARTS[:3])).collect(
        engine="streaming"
    )
    if lost.height and columns.names_totals(str(name := lost["last item"][0])) and lost["len"][0] > 1:
        by = lost["last annotator"][0]
        who = pl.lit(0).alias("annotator") if by is None else (pl.col("annotator") == by).sum()
        same = frame.select((pl.col("item") == name).sum(), who).collect(engine="streaming")
        if same["item"][0] == 1 and same["annotator"][0] <= 1:
            warn(f"Left out the last row, {name!r}: totals and no votes.")
            return _complete(frame.filter(pl.col("row") < int(lost["len"][0]) - 1), on_missing)
        if same["item"][0] == 1:
            warn(f"The last row, {name!r}, may hold totals: read as an item.")
    counted = {part: int(lost[part][0]) for part in PARTS[:3] if lost[part][0]}
    if counted and on_missing == "fill":
        raise ParameterError("on_missing='fill': not with votes that are read part by part. Fill in the names first.")
    height = int(lost["len"][0])
    if counted and on_missing == "error":
        what = " and ".join(f"{n:,} without {'a' if part == 'label' else 'an'} {part}" for part, n in counted.items())
        raise LabelError(
            f"Rows have empty cells: {what}.", remedy=Remedy("Leave them out with {}.", Option("on_missing", "drop"))
        )
    if counted:
        frame = frame.filter(~pl.any_horizontal(_empty(frame, part) for part in PARTS[:3]))
        left = int(frame.select(pl.len()).collect(engine="streaming").item())
        warn(f"Left out {height - left:,} of {height:,} rows: without an item, an annotator or a label.")
        height = left
    if height == 0:
        raise ReadError("The files have no votes.")
    return frame, height


def _names(
    frame: pl.LazyFrame, part: str, from_text: bool, **options: Any
) -> tuple[pl.Series, Codes, Vocabulary]:  # fmt: skip
    """The distinct values of a column, the code of each, and the names behind the codes."""
    raw = frame.select(pl.col(part).unique(maintain_order=True)).collect(engine="streaming")[part]
    return raw, *names_of(raw, part, from_text=from_text, **options)


def _true_classes(frame: pl.LazyFrame, from_text: bool, classes: Vocabulary) -> tuple[pl.Series, Codes]:
    """The values of a column of true classes, and the code of each."""
    known = frame.filter(~_empty(frame, "truth")).select(pl.col("truth").alias("label"))
    if known.limit(1).collect(engine="streaming").is_empty():
        return pl.Series(dtype=frame.collect_schema()["truth"]), np.empty(0, dtype=np.int32)
    raw, codes, names = _names(known, "label", from_text)
    return raw, encode_classes(dict(zip(names, names, strict=True)), names, classes)[codes]


def _empty(frame: pl.LazyFrame, part: str) -> pl.Expr:
    """Where a column has no value."""
    cell, dtype = pl.col(part), frame.collect_schema()[part]
    if dtype == pl.String:
        return cell.is_null() | cell.str.contains(BLANK)
    return cell.is_null() | cell.is_nan() if dtype.is_float() else cell.is_null()


def names_of(
    values: pl.Series, part: str, *, from_text: bool = False, classes: Any = None, normalise_labels: bool = False
) -> tuple[Codes, Vocabulary]:
    """The code of each distinct value of a column, and the names behind the codes, as in a table of votes.

    ``from_text``: the values are those of a text file, in which integers are looked for.
    """
    source = Source(values.alias(part).to_frame(), {part: None}, "votes", from_text=from_text, parts={part: part})
    return source.coded(part) if part == "annotator" else coded_labels(source, classes or None, normalise_labels)


def _whole(frame: pl.LazyFrame) -> bool:
    """Whether all items are integers, written the usual way."""
    item = pl.col("item")
    same = (item.cast(pl.Int64, strict=False).cast(pl.String) == item).fill_null(False)
    return bool(frame.select(same.all()).collect(engine="streaming").item())


def _votes(
    table: pl.DataFrame, annotators: Vocabulary, classes: Vocabulary, on_duplicate: str
) -> tuple[Votes, Codes | None]:
    """The votes of a bucket, as in memory, and the codes of the true classes of its items, where there is a column."""
    item, items = encoding.encode(table["item"])
    beside: dict[str, Any] = {}
    if {"weight", "timestamp"} & set(table.columns):
        beside = Source(table, {"weight": None, "timestamp": None}, "votes").beside()
        beside.pop("kind"), beside.pop("rows")
    votes = Votes.from_codes(
        item, table["annotator_code"].to_numpy(), table["label_code"].to_numpy(), items=items, annotators=annotators,
        classes=classes, on_duplicate=on_duplicate, rows=table["row"].to_numpy().astype(np.int64), **beside,
    )  # fmt: skip
    if "truth_code" not in table.columns:
        return votes, None
    code = table["truth_code"].fill_null(-1).to_numpy()
    known = code >= 0
    row = one_each(
        item[known], code[known], len(items),
        lambda n, two: f"true classes for item {listing(items[[n]])}: {listing(classes[two])}.",
    )  # fmt: skip
    return votes, np.append(code[known], -1)[row].astype(np.int32)


def _write(votes: Votes, folder: Path, known: dict[str, Codes]) -> None:
    """The arrays of a part, and the codes of known classes."""
    folder.mkdir()
    arrays: dict[str, Any] = {
        "indptr": votes.indptr,
        "annotator": votes.annotator,
        "label": votes.label,
        "weight": votes.weight,
        "cell": votes.cells(),
    }
    if votes.items.dtype == object:
        pl.DataFrame({"item": pl.Series(votes.items.tolist(), dtype=pl.String)}).write_parquet(folder / "items.parquet")
    else:
        arrays["items"] = votes.items
    for name, array in (arrays | known).items():
        if array is not None:
            np.save(folder / f"{name}.npy", array)
