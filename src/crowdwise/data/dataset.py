"""A folder of files about one crowd, read together."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt

from crowdwise.data import columns, encoding, features
from crowdwise.data.alignment import Rows
from crowdwise.data.boundary import as_path, guarded, reading
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.features import IMAGES, class_codes, from_arrays, read_arrays
from crowdwise.data.files import FORMATS, PathLike, read_table
from crowdwise.data.heavy import pl
from crowdwise.data.votes import Votes, read_truth, read_votes
from crowdwise.errors import InputError, ReadError, listing

TABLES = {
    "votes": ("labels", "votes", "answers"), "truth": ("truth", "gold"), "annotators": ("annotators", "workers"),
    "items": ("items", "texts"),
}  # fmt: skip
MOST_VALUES = 12
"""Different values up to which a column of the table of items groups them."""
SPLITS = ("split", "fold", "set", "subset")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Votes and whatever lies beside them.

    Attributes
    ----------
    name
        The folder's name.
    votes
        The votes, with truth where the folder has it.
    features
        The arrays of ``features.npz`` by name (``x_train``, ``x_test``, ...); empty without the file.
    item_table, annotator_table
        Tables about items (texts) and annotators (demographics); ``None`` without the file.
    images
        Item -> file, for the images in a folder ``images`` that are named after an item (``scan-7.png``).
    meta
        ``meta.json`` as a dict.
    file, item_column
        The file of the votes, and its column of items where that was named.
    """

    name: str
    votes: Votes
    features: dict[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False)
    item_table: pl.DataFrame | None = field(default=None, repr=False)
    annotator_table: pl.DataFrame | None = field(default=None, repr=False)
    meta: dict[str, Any] = field(default_factory=dict, repr=False)
    images: dict[Any, Path] = field(default_factory=dict, repr=False)
    file: PathLike | None = field(default=None, repr=False)
    item_column: str | None = field(default=None, repr=False)

    @cached_property
    def texts(self) -> dict[Any, str]:
        """Item -> its text: the columns of the table of items that hold a text of their own for most items, joined;
        without such a table, the column ``text`` of the votes' own file."""
        if self.item_table is None:
            return {} if self.file is None else features.beside(self.file, self.votes.items, self.item_column)
        prose = [c for c in self._about if self._is_text(c)]
        return self._by_item(lambda row: " · ".join(str(row[c]) for c in prose if row[c] is not None), prose)

    @property
    def attributes(self) -> dict[str, dict[Any, Any]]:
        """Name -> item -> value, for the columns of the table of items that group them.

        That is, with 2 to ``MOST_VALUES`` different values, each with two items or more on average. Columns of names,
        labels, truths and of a split for training are none.
        """
        out = {}
        for column in self._about:
            values = [] if self.item_table is None else self.item_table[column].drop_nulls().to_list()
            words = columns.normal(column).split(" ")
            plays = words[-1] in columns.ALIASES["label"] + columns.ALIASES["truth"]
            groups = 2 <= len(set(values)) <= min(MOST_VALUES, len(values) // 2)
            if groups and not plays and words[-1] not in SPLITS and not _is_name(column):
                out[column] = self._by_item(lambda row, column=column: row[column], [column])
        return out

    @property
    def _about(self) -> list[str]:
        """The columns of the table of items, without that of their names."""
        table = pl.DataFrame() if self.item_table is None else self.item_table
        key = columns.find(table.columns, "item")
        return [c for c, dtype in table.schema.items() if key and c != key and not dtype.is_nested()]

    def _is_text(self, column: str) -> bool:
        values = self.item_table[column].drop_nulls() if self.item_table is not None else pl.Series([])
        own = values.dtype == pl.String and len(values) > 0 and 2 * values.n_unique() > len(values)
        return own and not _is_name(column)

    def _by_item(self, value: Any, wanted: list[str]) -> dict[Any, Any]:
        """Item -> a function of its row, for the items of the votes (whose names may be numbers in one file only)."""
        key = None if self.item_table is None else columns.find(self.item_table.columns, "item")
        if self.item_table is None or key is None or not wanted:
            return {}
        place = {str(name): name for name in self.votes.items.tolist()}
        rows = self.item_table.select([key, *wanted]).iter_rows(named=True)
        return {place[str(row[key])]: value(row) for row in rows if str(row[key]) in place}

    @property
    def inputs(self) -> Any:
        """The inputs of the items that have votes, in the order of ``votes.items``: what a learner is fitted with.

        Without ``features.npz`` that is the folder of images, where these are named after the items.

        Rows of ``x_train`` are found by the names in ``id_train``. Without these, items that are whole numbers are
        row numbers, counted from 0; other items must be named by a table ``items`` with as many rows as ``x_train``,
        in the same order.
        """
        if not self.features and self.images:
            return self._image_folder()
        if not self.features:
            raise InputError(
                f"The data set {self.name} has no features.npz to learn from, and no folder images: add one with "
                "x_train, or hand over inputs of your own (crowdwise learn --features FILE)."
            )
        inputs = from_arrays(self.features, f"features.npz of {self.name}")
        if inputs.names is None and self.votes.items.dtype.kind != "i":
            inputs = replace(inputs, names=self._listed(inputs.x.shape[0]))
        return inputs.rows_of(self.votes.items)

    def own_inputs(self) -> Any:
        """What a learner can be fitted with, by the names of the items: features, else images, else texts of all items
        from the table of items; ``None`` where there are none of these."""
        if self.features or (self.images and len(self.images) == len(self.votes)):
            return Rows(self.inputs, self.votes.items)
        prose = {} if self.item_table is None or self.file is None else self.texts
        if len(prose) < len(self.votes) or not all(prose.values()):
            return None
        return Rows([prose[name] for name in self.votes.items.tolist()], self.votes.items)

    def _image_folder(self) -> Path:
        """The folder in which the images of all items are."""
        lost = [name for name in self.votes.items.tolist() if name not in self.images]
        if lost:
            raise InputError(
                f"The data set {self.name} has images of {len(self.images)} of its {len(self.votes)} items, and none "
                f"of {listing(lost)}: add them, or leave out the votes on these items."
            )
        folders = sorted({file.parent for file in self.images.values()})
        if len(folders) > 1:
            raise InputError(
                f"The images of {self.name} are in {len(folders)} folders, such as {folders[0]} and {folders[1]}: put "
                "them into one."
            )
        return folders[0]

    @property
    def test(self) -> tuple[npt.NDArray[Any], Codes] | None:
        """Inputs without votes and the codes of their true classes: ``x_test`` and ``y_test``, or ``None``."""
        if "x_test" not in self.features or "y_test" not in self.features:
            return None
        x, y = self.features["x_test"], self.features["y_test"]
        if len(x) != len(y):
            raise InputError(f"features.npz of {self.name} has {len(x)} rows in x_test and {len(y)} in y_test.")
        return x, class_codes(y, self.votes.classes, self.legend)

    @property
    def legend(self) -> list[Any] | None:
        """The names of the classes that ``meta.json`` lists, where it does."""
        listed = self.meta.get("classes")
        return listed if isinstance(listed, list) else None

    def _listed(self, n_rows: int) -> Vocabulary | None:
        """The names of the items in the table of items, where it has one for each of so many rows."""
        table = pl.DataFrame() if self.item_table is None else self.item_table
        item = columns.find(table.columns, "item") if table.height == n_rows else None
        return None if item is None else encoding.to_vocabulary(table[item].to_list())


def _is_name(column: str) -> bool:
    """Whether a column holds names of what is described elsewhere."""
    return column.lower() in ("id", "url") or column.lower().endswith(("_id", "-id", " id", "url"))


@guarded
def read_dataset(path: PathLike, **options: Any) -> Dataset:
    """A dataset folder: a table of votes and, where there are any, of truth, items and annotators.

    It holds the tables ``labels`` (needed), ``truth``, ``items``/``texts`` and ``annotators``/``workers``, further
    ``features.npz``, a folder ``images`` with images named after items, and ``meta.json``,
    whose ``classes`` declare the classes where they are the labels' own names.
    Tables may be CSV, JSON lines, Parquet or Arrow. The options are those of :func:`read_votes`.
    """
    folder = as_path(path)
    if not folder.is_dir():
        missing = f"There is no folder {folder}."
        raise ReadError(f"{folder} is a file: use read_votes for a single file." if folder.exists() else missing)
    labels = find_table(folder, "votes")
    if labels is None:
        names = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
        raise ReadError(
            f"{folder} has no table of votes: expected labels.csv (or .parquet, .jsonl, ...) and found {names}."
        )
    return dataset_of(folder, labels, **options)


@guarded
def dataset_of(folder: Path, labels: PathLike, **options: Any) -> Dataset:
    """The data set in a folder, with the votes of a file in it; the options are those of :func:`read_votes`."""
    meta = _read_meta(folder)
    votes = read_votes(labels, **options)
    if options.get("classes") is None:
        votes = _declare(votes, meta.get("classes"))
    truth = find_table(folder, "truth")
    if truth is not None and votes.truth is None:
        votes = votes.with_truth(read_truth(truth))
    return Dataset(
        name=folder.resolve().name, votes=votes,
        features=read_arrays(folder / "features.npz") if (folder / "features.npz").is_file() else {},
        item_table=_read_optional(folder, "items"), annotator_table=_read_optional(folder, "annotators"), meta=meta,
        images=named_images(folder / "images", votes.items), file=Path(labels), item_column=options.get("item"),
    )  # fmt: skip


def named_images(folder: Path, items: Vocabulary) -> dict[Any, Path]:
    """The images in a folder that are named after an item (or the image of ``image [class]``), with or without their
    ending."""
    files: dict[str, Path] = {}
    for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if file.suffix.lower() in IMAGES:
            files.setdefault(file.name, file)
            files.setdefault(file.stem, file)
    names = ((name, str(name), str(name).rpartition(" [")[0]) for name in items.tolist())
    return {name: files.get(whole) or files[image] for name, whole, image in names if whole in files or image in files}


def texts_beside(folder: Path) -> dict[Any, str]:
    """Item -> its text, from the columns item and text of the table of items in a folder."""
    table = _read_optional(folder, "items")
    parts = {} if table is None else columns.resolve(table.columns, dict.fromkeys(("item", "text")))
    if table is None or parts["item"] is None or parts["text"] is None:
        return {}
    pairs = table.select(parts["item"], parts["text"]).drop_nulls().iter_rows()
    return {name: str(text) for name, text in pairs}


def _declare(votes: Votes, listed: Any) -> Votes:
    """The classes ``meta.json`` lists, in its order, where they are the labels' own names (not a legend to codes)."""
    if not isinstance(listed, list) or not all(isinstance(name, (str, int, float)) for name in listed):
        return votes
    classes = encoding.to_vocabulary(listed)
    place = encoding.locate(votes.classes, classes)
    if len(set(listed)) < len(listed) or classes.dtype != votes.classes.dtype or (place < 0).any():
        return votes
    return replace(votes, label=encoding.recode(votes.label, place), classes=classes)


def find_table(folder: Path, part: str) -> Path | None:
    """The file in a folder that plays a part, e.g. ``labels.csv.gz`` for the votes."""
    for stem in TABLES[part]:
        for ending in FORMATS:
            for compression in ("", ".gz", ".zst"):
                file = folder / f"{stem}{ending}{compression}"
                if file.is_file():
                    return file
    return None


def _read_optional(folder: Path, part: str) -> pl.DataFrame | None:
    file = find_table(folder, part)
    return None if file is None else read_table(file)[0]


def _read_meta(folder: Path) -> dict[str, Any]:
    file = folder / "meta.json"
    if not file.is_file():
        return {}
    with reading(file, "JSON", "Save it as JSON, in UTF-8."):
        meta = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(meta, dict):
        raise ReadError(f"{file} holds a {type(meta).__name__}: expected a JSON object with names and values.")
    return meta
