"""What is known of the items besides their votes, as numbers or images: read from files, put in the votes' order.

==============================  ===================================================================
file                            rows, and their names
==============================  ===================================================================
``.npz``                        ``x_train`` (or ``x``, or the one array there is), named by ``id_train``
                                (or ``id``, ``task``, ``items``...); ``x_test`` and ``y_test``, named by
                                ``id_test``
``.npz`` of ``scipy.sparse``    the matrix, without names
``.npy``                        the array, without names; mapped, not read whole
``.csv``, ``.parquet``...       all columns but that of names (``item``, ``task``, ``id``...)
a folder                        its images, named as the files are
==============================  ===================================================================

Rows without names belong to items that are whole numbers: item 7 is row 7, counted from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data import columns, encoding
from crowdwise.data.alignment import is_name
from crowdwise.data.boundary import guarded, reading
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.files import FORMATS, PathLike, TableFile, read_table
from crowdwise.data.heavy import pl
from crowdwise.data.places import place_in
from crowdwise.data.truth import DECLARE
from crowdwise.errors import ColumnError, InputError, LabelError, Option, ReadError, Remedy, listing, suggestion

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
NAME_ROWS = "Add the names of the rows, in their order: id_train in an .npz file, an item column in a table."
SPARSE = {"indices", "indptr", "data", "shape", "format"}
"""The arrays of a file that ``scipy.sparse.save_npz`` wrote."""
IDS = ("id_train", "id", "ids")


@dataclass(frozen=True, eq=False)
class Features:
    """Inputs, a row for each item: ``x`` and the ``names`` of its rows, where they have any.

    ``x`` is an array, a scipy sparse matrix, or the path of a folder of images. ``columns`` are the names of its
    columns, where it was read from a table. ``x_test``, with ``y_test`` and
    ``names_test`` where there are any, are further inputs without votes.
    """

    source: str
    x: Any
    names: Vocabulary | None = None
    x_test: Any = None
    y_test: npt.NDArray[Any] | None = None
    names_test: Vocabulary | None = None
    columns: tuple[str, ...] | None = None

    def rows_of(self, items: Vocabulary) -> Any:
        """The inputs of some items, in their order; an image folder stays as it is, since it is looked up by name."""
        if isinstance(self.x, Path):
            return self.x
        at = find_rows(items, self.names, self.x.shape[0], self.source)
        return self.x if len(at) == self.x.shape[0] and (at == np.arange(len(at))).all() else self.x[at]

    def unseen(self) -> tuple[Vocabulary, Any, npt.NDArray[Any] | None]:
        """Names, inputs and (where known) true classes of what is to be labelled: the test items, else all."""
        if self.x_test is not None:
            return self._names(self.names_test, self.x_test), self.x_test, self.y_test
        return self._names(self.names, self.x), self.x, None

    def _names(self, names: Vocabulary | None, x: Any) -> Vocabulary:
        """Names of rows; their numbers where they have none."""
        if names is None:
            return np.arange(x.shape[0])
        if not isinstance(x, Path) and len(names) != x.shape[0]:
            raise InputError(f"{self.source} has {x.shape[0]} rows and {len(names)} names for them.")
        return names


def find_rows(items: Vocabulary, names: Vocabulary | None, n_rows: int, source: str) -> Codes:
    """Where each item's row is: by name where the rows have names, else items are row numbers."""
    if names is not None:
        if len(names) != n_rows:
            raise InputError(f"{source} has {n_rows} rows and {len(names)} names for them: give each row one name.")
        encoding.check_distinct(names, f"rows of {source}")
        at = encoding.locate(items, names)
        if (at < 0).any():
            raise InputError(
                f"{source} has no row for {int((at < 0).sum())} of the {len(items)} items: {listing(items[at < 0])}. "
                f"Its rows are called {listing(names, 3)}: name them as the votes name the items."
            )
        return at
    if items.dtype.kind != "i":
        raise InputError(
            f"{source} does not say which row belongs to which item, and the items are called {listing(items, 3)}. "
            f"{NAME_ROWS}"
        )
    out = (items < 0) | (items >= n_rows)
    if out.any():
        raise InputError(
            f"{source} has {n_rows} rows without names, so that item n is row n, from 0 to {n_rows - 1}; "
            f"there is no row for {listing(items[out])}. {NAME_ROWS}"
        )
    return items.astype(np.int32)


def class_codes(labels: npt.ArrayLike, classes: Vocabulary, legend: Sequence[Any] | None = None) -> Codes:
    """Codes of true classes that are given by name, or as codes of classes that have names. ``legend`` has names for
    classes that are called 0, 1, ... in the votes."""
    names = encoding.to_vocabulary(np.asarray(labels))
    codes = encoding.locate(names, classes)
    if (codes < 0).any() and legend is not None and classes.dtype.kind == "i":
        place = encoding.locate(names, encoding.to_vocabulary(legend))
        if (place >= 0).all():
            codes = encoding.locate(place.astype(np.int64), classes)
    if (codes < 0).any() and names.dtype.kind == "i" and classes.dtype == object:
        inside = (names >= 0) & (names < len(classes))
        codes = np.where(inside, names, -1).astype(np.int32)
    if (codes < 0).any():
        raise LabelError(
            f"The true classes to test on name {listing(dict.fromkeys(names[codes < 0].tolist()))}, and the classes "
            f"are {listing(classes, 10)}.",
            remedy=DECLARE,
        )
    return codes


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, by name."""
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in IMAGES)
    if not files:
        raise InputError(f"{folder} holds no images: expected files ending in {', '.join(IMAGES)}.")
    return files


@guarded
def read_features(path: PathLike) -> Features:
    """Inputs from a file or from a folder of images."""
    path = Path(path)
    if path.is_dir():
        if (path / "features.npz").is_file():
            return read_features(path / "features.npz")
        files = images_in(path)
        return Features(str(path), path, encoding.to_vocabulary([file.stem for file in files]))
    if not path.exists():
        raise ReadError(f"There is no file {path}.")
    if path.suffix.lower() == ".npz":
        return from_arrays(read_arrays(path), str(path))
    if path.suffix.lower() == ".npy":
        with reading(path, "a numpy array", "Write it with np.save, without objects."):
            return from_arrays({"x": np.load(path, mmap_mode="r", allow_pickle=False)}, str(path))
    endings = [s for s in path.suffixes if s.lower() in FORMATS]
    if not endings:
        raise ReadError(
            f"{path.name} is of an unknown format: expected inputs as .npz, .npy, {', '.join(FORMATS)}, "
            "or a folder of images."
        )
    return _from_table(path)


def read_arrays(file: Path) -> dict[str, Any]:
    """The arrays of an .npz file by name; a sparse matrix is one array, ``x``."""
    with reading(file, "a numpy archive", "Write it with np.savez, without objects."):
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError("it holds a single array")
        with loaded as arrays:
            if set(arrays.files) >= SPARSE:
                from scipy.sparse import load_npz

                return {"x": load_npz(file).tocsr()}
            return {name: arrays[name] for name in arrays.files}


def from_arrays(arrays: Mapping[str, Any], source: str) -> Features:
    """Inputs from arrays by name: which of them they are, and what their rows are called."""
    name = next((n for n in ("x_train", "x", "X") if n in arrays), None)
    test_ids = next((n for n in arrays if n.endswith("_test") and is_name(n.removesuffix("_test"))), "id_test")
    if name is None:
        lists = (*IDS, test_ids, "y_test")  # names and classes, one after the other: none of them is an input
        other = [n for n, a in arrays.items() if getattr(a, "ndim", 0) >= 2 and n not in lists]
        if len(other) != 1:
            raise InputError(
                f"{source} holds {', '.join(arrays) or 'nothing'}: expected x_train, a row for each item, "
                "or a single array of two dimensions or more."
            )
        name = other[0]
    named = [n for n, a in arrays.items() if n != name and is_name(n.removesuffix("_train")) and np.ndim(a) == 1]
    ids = next((n for n in IDS if n in arrays), named[0] if named else None)

    def names(key: str | None) -> Vocabulary | None:
        return None if key not in arrays else encoding.to_vocabulary(arrays[str(key)])

    for key in (name, "x_test", ids, test_ids, "y_test"):
        array = arrays.get(str(key))
        is_list = key not in (name, "x_test")
        if array is not None and (array.ndim == 0 or (is_list and array.ndim > 1)):
            expected = "one name after the other" if is_list else "a row for each item"
            raise InputError(f"{key} in {source} is an array of shape {array.shape}: expected {expected}.")
    test = "x_test" if "x_test" in arrays and name != "x_test" else None
    return Features(
        source, arrays[name], names(ids), None if test is None else arrays[test], arrays.get("y_test"),
        names(test_ids),
    )  # fmt: skip


def _from_table(path: Path) -> Features:
    table, _ = read_table(path)
    if table.height == 0:
        raise ReadError(f"{path} names {table.width} columns and has no rows: expected a row of numbers for each item.")
    item = columns.find(table.columns, "item") or next((c for c in table.columns if _holds_names(c, table[c])), None)
    names = None
    if item is not None:
        codes, vocabulary = encoding.encode(table[item])
        if (codes < 0).any():
            where = place_in(path, table, int((codes < 0).argmax()))
            raise InputError(f"{path}: {where} has no name in its column {item!r}.")
        names = vocabulary[codes]
    rest = table.drop([] if item is None else [item])
    if rest.width == 0:
        raise InputError(f"{path} has no columns besides {item!r}: expected numbers that describe the items.")
    for column in rest.get_columns():
        numbers = column.cast(pl.Float64, strict=False)
        if column.dtype.is_nested() or numbers.null_count() > column.null_count():
            odd = column.filter(numbers.is_null() & column.is_not_null())
            raise InputError(
                f"{path}: the column {column.name!r} holds {listing(odd.to_list(), 3)}, and inputs are numbers. "
                "Encode texts and categories first, or leave the column out."
            )
    x = rest.select(pl.all().cast(pl.Float64, strict=False).cast(pl.Float32)).to_numpy()
    return Features(str(path), x, None if names is None else encoding.to_vocabulary(names), columns=tuple(rest.columns))


def _holds_names(column: str, values: Any) -> bool:
    """Whether a column without the name of an item holds names: called like one, and no value occurs twice."""
    words = values.cast(pl.Float64, strict=False).is_null()
    whole = values.dtype.is_integer() or bool((values.cast(str).str.contains(r"^-?\d+$") | words).all())
    return is_name(column) and whole and values.null_count() == 0 and values.n_unique() == len(values)


NAMES = (
    "text", "texts", "sentence", "content", "body", "message", "tweet", "review", "utterance", "passage", "snippet",
    "caption", "headline", "document text", "item text",
)  # fmt: skip
"""What columns of texts are called, the first found."""
TEXT = Option("text", command="COLUMN")


def text_column(names: list[str]) -> str | None:
    """The column that is called like one of texts, if there is any."""
    by_name = {columns.normal(name): name for name in reversed(names)}
    return next((by_name[name] for name in NAMES if name in by_name), None)


@guarded
def read_texts(path: PathLike, column: str | None = None, item: str | None = None) -> Features:
    """The text of each item, as inputs of a learner, from a table with a row for each item, or for each answer.

    Parameters
    ----------
    path
        The file.
    column, item
        The columns of texts and items, where their names are not among the usual ones. Without a column of items, rows
        are numbered from 0.
    """
    table, from_text = read_table(path)
    if table.height == 0:
        raise ReadError(f"{path} has no rows: expected a text for each item.")
    for name in (column, item):
        if name is not None and name not in table.columns:
            near = suggestion(name, table.columns)
            has = listing(table.columns, 12)
            raise ColumnError(f"{path} has no column {name!r}: it has {has}.{near}")
    text = column or text_column(table.columns)
    if text is None:
        has = listing(table.columns, 12)
        raise ColumnError(f"{path} has no column of texts: it has {has}.", remedy=Remedy("Name it: {}.", TEXT))
    rest = [name for name in table.columns if name != text]
    key = item or columns.find(rest, "item") or next((name for name in rest if is_name(name)), None)
    texts, names = _one_each(table, key, text, from_text, str(path))
    return Features(str(path), np.array(texts, dtype=object), names, columns=(text,))


def _coded(table: pl.DataFrame, key: str, column: str, from_text: bool) -> tuple[pl.DataFrame, Any]:
    """Codes of items and their texts, where a row has both, and the names behind the codes."""
    code, names = encoding.encode(table[key])
    code, names = encoding.integers_in_text(code, names) if from_text else (code, names)
    pairs = pl.DataFrame({"item": code, "text": table[column].cast(pl.String)})
    return pairs.filter(pl.col("item") >= 0).drop_nulls(), names


def _one_each(table: pl.DataFrame, key: str | None, column: str, from_text: bool, path: str) -> tuple[list[Any], Any]:
    """Texts and the names of their items; an item that has two different texts is an error."""
    if key is None:
        return table[column].cast(pl.String).to_list(), None
    pairs, names = _coded(table, key, column, from_text)
    one = pairs.unique(maintain_order=True)
    twice = one.filter(pl.col("item").is_duplicated())
    if twice.height:
        name, two = names[twice["item"][0]], twice.filter(pl.col("item") == twice["item"][0])["text"].to_list()
        raise InputError(
            f"{path} has two different texts for item {listing([name])}: {listing([t[:40] for t in two], 2)}. Give "
            f"each item one, in the column {column!r} or in a table of items."
        )
    text = dict(zip(one["item"].to_list(), one["text"].to_list(), strict=True))
    return [text.get(n) for n in range(len(names))], names


def beside(path: PathLike, items: Any, item: str | None = None) -> dict[Any, str]:
    """Item -> its text, where the file of the answers has a column of texts: those of an item's first row."""
    chosen: list[str | None] = [None, None]

    def choose(names: list[str]) -> list[str] | None:
        text = text_column(names)
        key = item or columns.find([name for name in names if name != text], "item")
        chosen[:] = [text, key]
        return [name for name in names if name in chosen] if None not in chosen else names[:1]

    file = TableFile.of(path)
    if file.columns is not None and text_column(file.columns) is None:
        return {}
    table, from_text = file.read(choose, wide=True)
    if None in chosen:
        choose(table.columns)
    text, key = chosen
    if text is None or key is None or table[text].dtype != pl.String:
        return {}
    pairs, names = _coded(table, key, text, from_text)
    first = pairs.unique("item", keep="first", maintain_order=True)
    known = set(items.tolist())
    pairs_of = zip(names[first["item"].to_numpy()].tolist(), first["text"].to_list(), strict=True)
    return {name: text for name, text in pairs_of if name in known}
