"""Files of votes that are taken together: which they are, how many rows they have, what they would take in memory.

A consensus in files, as the stream engine and Spark write it: items, annotators, and what the fit found out.

::

    consensus/
      items/*.parquet        item, label, probability, entropy, votes
      annotators/*.parquet   annotator, votes, agreement, and more where it was asked for
      about/                 one file of JSON: method, classes, prior, trace, notes
      arrays.npz             confusion matrices, where the method has them (of the stream engine)

A file (or files) of items alone is one, too: a table with item, label and probability, and without annotators.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdwise.data import schema
from crowdwise.data.boundary import as_path, reading
from crowdwise.data.dataset import find_table
from crowdwise.data.files import TableFile
from crowdwise.data.heavy import pl
from crowdwise.errors import InputError, ParameterError, ReadError, listing

PARQUET, TEXT = (".parquet", ".pq"), (".csv", ".tsv", ".txt")
ROW_BYTES, FILE_BYTES, TEXT_BYTES = 80, 3, 6
"""Memory that a fit of all votes at once takes: bytes per row and per byte of a Parquet file, or per byte of text."""
SMALL_FILE = 2_000_000
"""Files of up to so many bytes fit into any memory: their rows are not counted."""
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def several(source: Any) -> bool:
    """Whether a source is many files: a list of them, a pattern, a folder of Parquet files, or hive folders.

    A dataset folder, which has a table of votes of its own, is not; nor is a consensus in files.
    """
    if isinstance(source, (list, tuple)):
        return bool(source) and all(isinstance(one, (str, os.PathLike)) for one in source)
    if not isinstance(source, (str, os.PathLike)):
        return False
    path = as_path(source)
    if path.is_dir():
        written = (path / "items").is_dir() and (path / "about").is_dir()
        if written or find_table(path, "votes") is not None:
            return False
        return any(is_parquet(file) or "=" in file.parent.name for file in _below(path))
    return not path.exists() and glob.has_magic(str(source))


def is_large(source: Any) -> bool:
    """Whether a source is a file that might not fit into memory."""
    return isinstance(source, (str, os.PathLike)) and os.path.isfile(source) and os.path.getsize(source) > SMALL_FILE


def _below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() in (*PARQUET, *TEXT) and path.is_file())


def files_of(source: Any) -> list[Path]:
    """The files behind a path, a pattern, a folder, or a list of them; in sorted order for patterns and folders."""
    if not isinstance(source, (str, os.PathLike)):
        return [file for one in source for file in files_of(one)]
    path = Path(source)
    if path.is_dir():
        files = sorted(_below(path))
    else:
        files = [path] if path.is_file() else sorted(Path(p) for p in glob.glob(str(source), recursive=True))
        files = [file for one in files for file in (sorted(_below(one)) if one.is_dir() else [one])]
    if not files:
        raise ReadError(f"{source}: no such file, and no Parquet or CSV file matches it.")
    return files


def is_parquet(file: Path) -> bool:
    """By its name."""
    return file.suffix.lower() in PARQUET


def scan(files: list[Path]) -> tuple[pl.LazyFrame, bool]:
    """All rows of the files, one after the other, and whether they are text. Folders ``name=value`` are columns."""
    hive = any("=" in part for file in files for part in file.parts[:-1])
    if all(map(is_parquet, files)):
        casts = pl.ScanCastOptions(integer_cast="upcast")
        with reading(files[0], "Parquet"):
            return pl.scan_parquet(files, hive_partitioning=hive, cast_options=casts, glob=False), False
    if len({file.suffix.lower() for file in files}) == 1 and files[0].suffix.lower() in TEXT:
        nulls = [null for null in schema.NULLS if null]
        separator = TableFile(files[0]).found_separator
        options: dict[str, Any] = {"separator": separator, "infer_schema": False, "null_values": nulls, "glob": False}
        if not hive:
            return pl.scan_csv(files, **options), True
        frame = pl.scan_csv(files, include_file_paths="crowdwise path", **options)
        keys = dict.fromkeys(part.partition("=")[0] for file in files for part in file.parts[:-1] if "=" in part)
        path = pl.col("crowdwise path").str.replace_all("\\\\", "/")
        frame = frame.with_columns(path.str.extract(f"(?:^|/){key}=([^/]*)/").alias(key) for key in keys)
        return frame.drop("crowdwise path"), True
    raise ReadError(
        f"Files in parts are Parquet, or CSV, all of one kind; found {listing(sorted(map(str, files)), 4)}."
    )


def memory_needed(files: list[Path]) -> float:
    """About how many bytes a fit of all votes at once takes, from the footers of Parquet files or the size of text."""
    size = sum(file.stat().st_size for file in files)
    if not all(map(is_parquet, files)):
        return TEXT_BYTES * size
    with reading(files[0], "Parquet"):
        rows = int(pl.scan_parquet(files, glob=False).select(pl.len()).collect().item())
    return ROW_BYTES * rows + FILE_BYTES * size


def bytes_in(memory: str | float) -> float:
    """An amount of memory in bytes.

    >>> bytes_in("4GB"), bytes_in("512 MB"), bytes_in(2e9)
    (4000000000.0, 512000000.0, 2000000000.0)
    """
    number, unit = memory, ""
    if isinstance(memory, str):
        text = memory.strip()
        number = text.rstrip("KMGTBkmgtbi ")
        unit = text[len(number) :].strip().upper().replace("I", "")
        unit = unit if unit.endswith("B") or not unit else f"{unit}B"
    try:
        size = float(number) * UNITS[unit]
    except (KeyError, TypeError, ValueError):
        size = 0.0
    if not 0.0 < size < float("inf"):
        raise ParameterError(f"memory={memory!r}: expected a number of bytes, or an amount such as '4GB'.")
    return size


ITEMS, ANNOTATORS, ABOUT = "items", "annotators", "about"
PART, ABOUT_FILE = "part-00000.parquet", "about.json"
NEEDED = {"item", "label", "probability"}


@dataclass(frozen=True, eq=False)
class ConsensusFiles:
    """Where a consensus is. Items are not read before they are asked for."""

    path: Path
    item_table: pl.LazyFrame
    annotator_table: pl.DataFrame | None = None
    about: dict[str, Any] = field(default_factory=dict)


def find_consensus(path: str | os.PathLike[str]) -> ConsensusFiles | None:
    """The consensus in a folder or a file (or one that was opened); ``None`` where there is none."""
    place = Path(path)
    if place.is_dir() and (place / ITEMS).is_dir() and (place / ABOUT).is_dir():
        with reading(place, "a consensus in files"):
            about = [file for file in sorted((place / ABOUT).iterdir()) if not file.name.startswith((".", "_"))]
            about_it = json.loads(about[0].read_text(encoding="utf-8"))
            people = pl.read_parquet(_parquet(place / ANNOTATORS)) if (place / ANNOTATORS).is_dir() else None
        items = pl.scan_parquet(_parquet(place / ITEMS))
        if missing := NEEDED - set(items.collect_schema().names()):
            raise ReadError(f"{place}: the items of a consensus have no column {', '.join(sorted(missing))}.")
        return ConsensusFiles(place, items, people, about_it)
    if not (place.is_file() or several(path)):
        return None
    files = files_of(path)
    if any(file.suffix.lower() not in (*PARQUET, ".csv") for file in files) or len({f.suffix for f in files}) > 1:
        return None
    text = files[0].suffix.lower() == ".csv"
    try:
        held = text or isinstance(path, TableFile)  # one that was opened knows its columns
        names = TableFile.of(path if place.is_file() else files[0]).head(1) if held else pl.scan_parquet(files)
        columns = set(names.lazy().collect_schema())
    except (InputError, pl.exceptions.PolarsError, OSError):  # reading it as votes says what is wrong
        return None
    if not columns >= NEEDED or ANNOTATORS[:-1] in columns:
        return None
    return ConsensusFiles(place, scan_items(files) if text else pl.scan_parquet(files))


def scan_items(files: Any) -> pl.LazyFrame:
    """The items of a consensus in CSV files. Names and labels are numbers or truth values only where all of them are
    written as those are: "007" and the "1" of "1" and "x" stay text."""
    table = pl.scan_csv(files, glob=False, schema_overrides={"item": pl.String, "label": pl.String})
    chosen: dict[str, pl.Expr] = {}
    for name in ("item", "label"):
        text = pl.col(name)
        for value in (text == "true", text.cast(pl.Int64, strict=False)):
            same = (value.cast(pl.String) == text).fill_null(False).all()
            if table.select(same).collect(engine="streaming").item():
                chosen[name] = value
    return table.with_columns(**chosen)


def _parquet(folder: Path) -> list[Path]:
    return sorted(
        file for file in folder.iterdir() if file.suffix == ".parquet" and not file.name.startswith((".", "_"))
    )


def write_about(folder: Path, annotators: pl.DataFrame, about: dict[str, Any]) -> None:
    """What lies beside the items of a consensus."""
    for name in (ANNOTATORS, ABOUT):
        (folder / name).mkdir()
    annotators.write_parquet(folder / ANNOTATORS / PART)
    (folder / ABOUT / ABOUT_FILE).write_text(json.dumps(about), encoding="utf-8")
