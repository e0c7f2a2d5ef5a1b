"""A consensus in files, as the stream engine and Spark write it: items, annotators, and what the fit found out.

::

    consensus/
      items/*.parquet        item, label, probability, entropy, votes
      annotators/*.parquet   annotator, votes, agreement, and more where it was asked for
      about/                 one file of JSON: method, classes, prior, trace, notes
      arrays.npz             confusion matrices, where the method has them (of the stream engine)

A file (or files) of items alone is one, too: a table with item, label and probability, and without annotators.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdwise.data.boundary import reading
from crowdwise.data.files import TableFile
from crowdwise.data.vote_files import PARQUET, files_of, several
from crowdwise.errors import InputError, ReadError

if TYPE_CHECKING:
    import polars as pl

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
    import polars as pl

    place = Path(path)
    if place.is_dir() and (place / ITEMS).is_dir() and (place / ABOUT).is_dir():
        with reading(place, "a consensus in files"):
            about = [file for file in sorted((place / ABOUT).iterdir()) if not file.name.startswith((".", "_"))]
            found = json.loads(about[0].read_text(encoding="utf-8"))
            people = pl.read_parquet(_parquet(place / ANNOTATORS)) if (place / ANNOTATORS).is_dir() else None
        return ConsensusFiles(place, _checked(place, pl.scan_parquet(_parquet(place / ITEMS))), people, found)
    if not (place.is_file() or several(path)):
        return None
    files = files_of(path)
    if any(file.suffix.lower() not in (*PARQUET, ".csv") for file in files) or len({f.suffix for f in files}) > 1:
        return None
    text = files[0].suffix.lower() == ".csv"
    try:
        names = TableFile.of(path if place.is_file() else files[0]).head(1) if text else pl.scan_parquet(files)
        columns = set(names.lazy().collect_schema())
    except (InputError, pl.exceptions.PolarsError, OSError):  # reading it as votes says what is wrong
        return None
    if not columns >= NEEDED or ANNOTATORS[:-1] in columns:
        return None
    return ConsensusFiles(place, pl.scan_csv(files, glob=False) if text else pl.scan_parquet(files))


def _parquet(folder: Path) -> list[Path]:
    return sorted(
        file for file in folder.iterdir() if file.suffix == ".parquet" and not file.name.startswith((".", "_"))
    )


def _checked(place: Path, frame: pl.LazyFrame) -> pl.LazyFrame:
    missing = NEEDED - set(frame.collect_schema().names())
    if missing:
        raise ReadError(f"{place}: the items of a consensus have no column {', '.join(sorted(missing))}.")
    return frame


def write_about(folder: Path, annotators: pl.DataFrame, about: dict[str, Any]) -> None:
    """What lies beside the items of a consensus."""
    for name in (ANNOTATORS, ABOUT):
        (folder / name).mkdir()
    annotators.write_parquet(folder / ANNOTATORS / PART)
    (folder / ABOUT / ABOUT_FILE).write_text(json.dumps(about), encoding="utf-8")
