"""The table of masks: which pixels of an image annotators marked.

=============  =============  ==========================================================
field          shape          meaning
=============  =============  ==========================================================
``indptr``     N + 1          masks of item n are rows ``indptr[n]:indptr[n + 1]``
``annotator``  S              code of the annotator
``mask``       S              the mask, eight pixels to a byte (:func:`pack`)
``height``     N              rows of the item's masks
``width``      N              columns of the item's masks
``weight``     S or ``None``  how much a mask counts (1 where absent)
``timestamp``  S or ``None``  when it was drawn
``truth``      N or ``None``  the true mask of each item, packed; ``None`` where unknown
``items``, ``annotators``  the names behind the codes
=============  =============  ==========================================================

A mask is given as an array of 0 and 1, as a file (``.npy``, or an image through Pillow), or as the run lengths of COCO:
counts of zeros, ones, zeros... down the columns, as numbers or in COCO's compressed form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import IO, Any, ClassVar, Self, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding, schema
from crowdwise.data.assemble import in_order
from crowdwise.data.boundary import reading
from crowdwise.data.encoding import Counts, Vocabulary
from crowdwise.data.files import PathLike
from crowdwise.data.frames import make_frame
from crowdwise.data.heavy import pl
from crowdwise.data.plain_files import limit
from crowdwise.data.schema import ANNOTATOR, COMMON, ITEM, Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.data.table import ByItem, CodedTable, columns_of, reader
from crowdwise.data.truth import aligned, by_name, written_in
from crowdwise.errors import CrowdwiseError, ExtraError, LabelError, ReadError, SizeError, listing

Pixels = npt.NDArray[np.bool_]
NUMBERS = re.compile(r"^[\[\]\d\s,]+$")
COMPRESSED = re.compile(r"^[0-o]+$")
"""COCO's characters for six bits each: the 64 from ``0`` on."""
EACH = 4
"""Bytes that a pixel takes while its mask is read."""
DIGITS, MOST_BITS = 20, 64
"""No run is longer than what so many digits, or bits, can say."""
IMAGES = ("PNG", "TIFF", "BMP", "GIF", "JPEG", "WEBP", "PPM")
"""Formats of masks; others of Pillow start programs (EPS) or hold no pixels."""
GREY = ("1", "L", "I;16", "I", "P")


def pack(mask: Pixels) -> bytes:
    """A mask, row by row, eight pixels to a byte."""
    return np.packbits(mask).tobytes()


def unpack(packed: bytes, height: int, width: int) -> Pixels:
    """The mask again."""
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=height * width)
    return bits.reshape(height, width).view(np.bool_)


def run_lengths(mask: Pixels) -> list[int]:
    """COCO's counts: zeros, ones, zeros... down the columns.

    >>> run_lengths(np.array([[0, 1], [1, 1]], dtype=bool))
    [1, 3]
    """
    flat = mask.ravel(order="F")
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    lengths: list[int] = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
    return [0, *lengths] if flat.size and flat[0] else lengths


def from_run_lengths(counts: str | Sequence[int], height: int, width: int) -> Pixels:
    """The mask of COCO's counts: numbers, a text of numbers, or the compressed text; an error where they do not add up.

    >>> from_run_lengths("1 3", 2, 2).astype(int).tolist(), from_run_lengths("13", 2, 2).astype(int).tolist()
    ([[0, 1], [1, 1]], [[0, 1], [1, 1]])
    """
    check_pixels(height, width)
    lengths = _numbers(counts, height * width)
    total, least = sum(lengths), min(lengths, default=0)  # of whole numbers of any size: in 64 bits they could wrap
    if least < 0 or total != height * width:
        low = f", one of them {least:.3g}" if least < 0 else ""
        raise LabelError(
            f"The run lengths sum to {min(total, 10**20):,}{low}: expected {height} x {width} = {height * width:,} "
            "pixels. Check the counts, and that height and width are not swapped."
        )
    ones = np.arange(len(lengths)) % 2 == 1
    return np.ascontiguousarray(np.repeat(ones, lengths).reshape(width, height).T)


def check_pixels(height: int, width: int, beside: int = 0) -> None:
    """An error where a mask of such a size has no pixels, or takes more memory than there is ``beside`` other bytes."""
    if height < 1 or width < 1:
        raise LabelError(f"A mask has {height} x {width} pixels: expected a height and a width from 1 on.")
    if beside + EACH * height * width > limit():
        others = f", beside masks of {beside / 2**30:,.1f} GB," if beside else ""
        raise SizeError(
            f"A mask of {height} x {width} pixels{others} does not fit into the {limit() / 2**30:,.1f} GB that masks "
            "may take. Check height and width, make the images smaller, or read fewer of them."
        )


def _numbers(counts: str | Sequence[int], size: int) -> list[int]:
    """Counts as numbers."""
    if not isinstance(counts, str):
        return list(map(index, counts))
    text = counts.strip()
    if NUMBERS.match(text):
        counts_of = [int(number.lstrip("0")[:DIGITS] or 0) for number in re.findall(r"\d+", text)]
        if sum(counts_of) == size or not COMPRESSED.match(text):
            return counts_of
    if not COMPRESSED.match(text):
        raise LabelError(f"{counts[:40]!r} is not a mask: expected run lengths, such as '5 3 8', or a file.")
    # Five bits to a character, the sixth where more follow; from the fourth number on, differences to the last but one.
    out: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if shift > MOST_BITS:
            raise LabelError(f"{counts[:40]!r} is not a mask: it has a run length of more than {MOST_BITS} bits.")
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            if bits & 16:
                value -= 1 << shift
            out.append(value + (out[-2] if len(out) > 2 else 0))
            value = shift = 0
    return out


def polygon_mask(points: npt.ArrayLike, height: int, width: int) -> Pixels:
    """The pixels whose centres lie in a polygon of corners (x, y).

    >>> polygon_mask([(1, 0), (3, 0), (3, 2), (1, 2)], 2, 4).astype(int).tolist()
    [[0, 1, 1, 0], [0, 1, 1, 0]]
    """
    corners = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    turns = np.zeros((height, width + 1), dtype=bool)
    row = np.arange(height) + 0.5
    for (x1, y1), (x2, y2) in zip(corners.tolist(), np.roll(corners, -1, axis=0).tolist(), strict=True):
        crossed = np.flatnonzero((row >= min(y1, y2)) & (row < max(y1, y2)))
        if len(crossed):
            x = x1 + (row[crossed] - y1) * (x2 - x1) / (y2 - y1)
            turns[crossed, np.clip(np.ceil(x - 0.5), 0, width).astype(np.int64)] ^= True
    return np.logical_xor.accumulate(turns, axis=1)[:, :width]


def ellipse_mask(
    centre: Sequence[float], radii: Sequence[float], height: int, width: int, degrees: float = 0.0
) -> Pixels:
    """The pixels whose centres lie in an ellipse; its centre and its radii are (x, y). It is turned clockwise."""
    turn = np.deg2rad(degrees)
    y, x = np.arange(height)[:, None] + 0.5 - centre[1], np.arange(width)[None] + 0.5 - centre[0]
    along, across = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    return np.asarray((along / radii[0]) ** 2 + (across / radii[1]) ** 2 <= 1.0)


def from_brush(runs: Sequence[int], height: int, width: int) -> Pixels:
    """The mask of Label Studio's run lengths: bits of runs of red, green, blue and alpha; alpha is the mask."""
    bits = np.unpackbits(np.asarray(runs, dtype=np.uint8))
    at = 0

    def taken(count: int) -> int:
        nonlocal at
        value = int("".join(map(str, bits[at : at + count].tolist())) or "0", 2)
        at += count
        return value

    total, word = taken(32), taken(5) + 1
    sizes = [taken(4) + 1 for _ in range(4)]
    if total != 4 * height * width:
        raise LabelError(f"The brush has {total:,} values: expected 4 for each of {height} x {width} pixels.")
    out = np.zeros(total, dtype=np.uint8)
    n = 0
    while n < total and at < len(bits):
        alike = taken(1)
        end = n + 1 + taken(sizes[taken(2)])
        if alike:
            out[n:end] = taken(word)
        else:
            out[n:end] = [taken(word) for _ in range(min(end, total) - n)]
        n = end
    return out.reshape(height, width, 4)[:, :, 3] > 0


def to_brush(mask: Pixels) -> list[int]:
    """A mask as Label Studio's run lengths.

    >>> disc = np.hypot(*(np.mgrid[:9, :7] - 4)) < 3
    >>> bool((from_brush(to_brush(disc), 9, 7) == disc).all())
    True
    """
    flat = np.repeat(mask.ravel(), 4)
    ends = np.append(np.flatnonzero(flat[1:] != flat[:-1]) + 1, flat.size)
    text = [f"{flat.size:032b}", f"{7:05b}", *(f"{size - 1:04b}" for size in (3, 4, 8, 16))]
    first = 0
    for end in ends.tolist():
        while first < end:
            length = min(end - first, 2**16)
            k = next(k for k, size in enumerate((3, 4, 8, 16)) if length <= 2**size)
            text.append(f"1{k:02b}{length - 1:0{(3, 4, 8, 16)[k]}b}{255 * int(flat[first]):08b}")
            first += length
    bits = np.frombuffer("".join(text).encode(), dtype=np.uint8) - 48
    packed: list[int] = np.packbits(bits).tolist()
    return packed


def read_mask(path: Path) -> Pixels:
    """The mask in a ``.npy`` file or an image: 0 is outside, and so is black; one other value is inside."""
    with reading(path, "a mask"):
        there = path.is_file()  # no device and no pipe, which have no end
    if not there:
        raise ReadError(
            f"There is no file {str(path)[:300]}. Paths of masks are relative to their table; run lengths need columns "
            "height and width."
        )
    with reading(path, "a mask"):
        if path.suffix != ".npy":
            return image_mask(path, str(path))
        return checked(np.load(path, mmap_mode="r", allow_pickle=False), str(path))  # a map is no larger than its file


def image_mask(source: Path | IO[bytes], where: str) -> Pixels:
    """The mask in an image, through Pillow: 0 is outside, and one other value inside."""
    try:
        from PIL import Image
    except ImportError:
        raise ExtraError(
            f"{where} is an image, and images are read with Pillow: install crowdwise[deep], or give masks as .npy "
            "files or run lengths."
        ) from None
    with Image.open(source, formats=IMAGES) as image:
        check_pixels(image.height, image.width)
        pixels = np.asarray(image if image.mode in GREY else image.convert("L"))
    return checked(pixels != 0 if len(np.unique(pixels[pixels != 0])) == 1 else pixels, where)


def checked(values: Any, where: str) -> Pixels:
    """A two-dimensional array of 0 and 1 as booleans."""
    array = np.asarray(values)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "biuf":
        raise LabelError(f"{where} has shape {array.shape}: expected a mask with rows and columns of 0 and 1.")
    if array.dtype.kind != "b" and not ((array == 0) | (array == 1)).all():
        odd = array[(array != 0) & (array != 1)].ravel()[0]
        raise LabelError(f"{where} holds {odd}: expected 0 and 1 alone. Give one mask for each class.")
    return array.astype(np.bool_)


def mask_of(value: Any, height: int | None, width: int | None, where: str) -> Pixels:
    """A mask in any form; of such a size, where one is known."""
    mask: Pixels
    if isinstance(value, Mapping):  # COCO's {"size": [height, width], "counts": ...}
        try:
            counts, (high, wide) = value["counts"], map(index, value["size"])
            mask = from_run_lengths(counts.decode() if isinstance(counts, bytes) else counts, high, wide)
        except CrowdwiseError:
            raise
        except (KeyError, TypeError, ValueError):
            raise LabelError(
                f"{where} is {str(value)[:80]}: expected COCO's size [height, width] and counts."
            ) from None
    elif isinstance(value, bytes) and height is not None and width is not None:
        if len(value) != -(-height * width // 8):
            raise LabelError(f"{where} has {len(value)} packed bytes: expected {-(-height * width // 8)}.")
        mask = unpack(value, height, width)
    elif isinstance(value, Path) or (isinstance(value, str) and Path(value).suffix and not NUMBERS.match(value)):
        mask = read_mask(Path(value))
    elif isinstance(value, str):
        if height is None or width is None:
            raise LabelError(f"{where} is given by run lengths without a size: add columns height and width.")
        try:
            return from_run_lengths(value, height, width)
        except LabelError as error:
            raise LabelError(f"{where}: {error}") from None
    else:
        mask = checked(value, where)
    if height is not None and mask.shape != (height, width):
        raise LabelError(
            f"{where} has {mask.shape[0]} x {mask.shape[1]} pixels: expected {height} x {width}, as the other masks "
            "of the item have."
        )
    return mask


def dice(one: Pixels, two: Pixels) -> float:
    """2 |A and B| / (|A| + |B|); 1 of two empty masks."""
    size = int(np.count_nonzero(one)) + int(np.count_nonzero(two))
    return 2.0 * int(np.count_nonzero(one & two)) / size if size else 1.0


def encode_masks(truth: Any, items: Vocabulary, height: Counts, width: Counts) -> npt.NDArray[Any]:
    """N packed masks, ``None`` where unknown, from N masks or a mapping of items to masks."""
    expected = "a mapping from item to its mask, or an array of them"
    rows, masks = aligned(by_name(truth, plain=False), items, "masks", expected, "a mask")
    out = np.full(len(items), None, dtype=object)
    for n in np.flatnonzero(rows >= 0).tolist():
        mask, where = masks[rows[n]], f"The true mask of {listing(items[[n]])}"
        blank = isinstance(mask, str) and not mask.strip()
        out[n] = None if blank else pack(mask_of(mask, int(height[n]), int(width[n]), where))
    return out


def as_text(masks: npt.NDArray[Any], height: npt.NDArray[Any], width: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Packed masks as run lengths in text, ``None`` where there is none."""
    rows = zip(masks.tolist(), height.tolist(), width.tolist(), strict=True)
    out = np.empty(len(masks), dtype=object)
    out[:] = [None if m is None else " ".join(map(str, run_lengths(unpack(m, h, w)))) for m, h, w in rows]
    return out


def _with_text(columns: Mapping[str, Any], masks: str) -> dict[str, Any]:
    """Columns with arrays and COCO's dicts as run lengths in text, with their sizes; other masks as they are."""
    out = {name: list(values) for name, values in columns.items()}
    size: dict[str, list[Any]] = {name: out.get(name) or [None] * len(out[masks]) for name in ("height", "width")}
    for n, value in enumerate(out[masks]):
        if isinstance(value, (np.ndarray, Mapping, list)):
            mask = mask_of(value, None, None, f"The mask in row {n}")
            out[masks][n] = " ".join(map(str, run_lengths(mask)))
            size["height"][n], size["width"][n] = mask.shape
        elif isinstance(value, Path):
            out[masks][n] = str(value)
    return out | size


def _beside_table(mask: Any, folder: Path) -> Any:
    """A mask that is a file as a path from its table on."""
    file = isinstance(mask, str) and Path(mask).suffix and not NUMBERS.match(mask)
    return str(folder / mask) if file else mask


@dataclass(frozen=True, eq=False, repr=False)
class Masks(CodedTable, ByItem):
    """A frozen, validated table of masks. Make one with a ``from_...`` method or :func:`crowdwise.read_masks`.

    With a column ``category`` every item and category is an item of its own: ``image [category]``.

    >>> Masks.from_records([("cell", "ann", np.eye(4)), ("cell", "bob", np.ones((4, 4)))])
    Masks(2 masks: 1 item x 2 annotators, 62.5% of the pixels marked)
    """

    answer_type: ClassVar[str] = "masks"
    columns: ClassVar[tuple[Col, ...]] = (
        ITEM, ANNOTATOR, Col("mask", needed=True), Col("height", per="item"), Col("width", per="item"),
        Col("category", per=""), *COMMON, Col("truth", per="item"),
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (
        schema.on_duplicate("drew an item", "error", "first", "last"), schema.on_missing("a mask"),
    )  # fmt: skip
    _rows: ClassVar[str] = "masks"
    _act: ClassVar[str] = "drew"
    _truths: ClassVar[tuple[str, ...]] = ("truth", "mask")
    _truth_in: ClassVar[Any] = staticmethod(written_in)
    _by_item: ClassVar[tuple[str, ...]] = ("truth", "height", "width")

    indptr: Counts
    mask: npt.NDArray[Any]
    height: Counts
    width: Counts

    @classmethod
    def from_records(cls, records: Iterable[Any], **options: Any) -> Self:
        """Masks from rows: tuples (item, annotator, mask), with a weight or without, or dicts. A mask is an array, a
        path, or COCO's dict of size and counts. Options are those of ``from_frame``."""
        columns = columns_of(records, cls._needed(), cls._rows, optional=["weight"])
        return cls.from_frame(_with_text(columns, options.get("mask") or "mask"), **options)

    @classmethod
    def _opened(cls, path: PathLike, given: dict[str, Any], values: dict[str, Any]) -> Source:
        source = super()._opened(path, given, values)
        if "mask" in source and source["mask"].dtype == pl.String:
            folder = Path(path).parent
            here = pl.Series(source["mask"].name, [_beside_table(mask, folder) for mask in source["mask"].to_list()])
            source.table = source.table.with_columns(here)
        return source

    @classmethod
    def read_truth(cls, path: PathLike, **named: str | None) -> dict[Any, Any]:
        """Item -> its true mask (a path, or run lengths), from a file with an item column and one of masks."""
        masks = super().read_truth(path, **named)
        return {name: _beside_table(mask, Path(path).parent) for name, mask in masks.items()}

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Self:
        source.require(cls._needed())
        source.complete(cls._needed(), options["on_missing"])
        (item, items), (annotator, annotators) = source.coded("item"), source.coded("annotator")
        if "category" in source:
            kind, kinds = source.coded("category")
            pair, item = np.unique(item.astype(np.int64) * (len(kinds) + 1) + kind + 1, return_inverse=True)
            image, kind = np.divmod(pair, len(kinds) + 1)
            named = [f"{items[i]} [{kinds[k - 1]}]" if k else str(items[i]) for i, k in zip(image, kind, strict=True)]
            items = encoding.to_vocabulary(named)
        size = {
            part: source.numbers(part, "a whole number of pixels", empty=True) if part in source else None
            for part in ("height", "width")
        }

        for part, sizes in size.items():
            known = np.ones(0) if sizes is None else np.nan_to_num(sizes, nan=1.0)
            for row in np.flatnonzero((known < 1) | (known > 1e9) | (known != np.floor(known)))[:1].tolist():
                raise source.odd(part, row, "a whole number of pixels from 1 to 1e9")

        def mask(n: int, value: Any) -> Pixels:
            h, w = (None if s is None or np.isnan(s[n]) else int(s[n]) for s in size.values())
            where = f"The mask of {listing(annotators[annotator[[n]]])} on {listing(items[item[[n]]])}"
            return mask_of(value, h, w, where)

        masks = (mask(n, value) for n, value in enumerate(source["mask"]))
        beside = source.beside(options)
        table = cls.from_codes(item, annotator, masks, items=items, annotators=annotators, **beside)
        return table.with_truth(written_in(source, "truth", item, items)) if "truth" in source else table

    @classmethod
    def from_codes(
        cls, item: npt.ArrayLike, annotator: npt.ArrayLike, masks: Iterable[npt.ArrayLike], *, items: Any,
        annotators: Any, **beside: Unpack[Beside],
    ) -> Self:  # fmt: skip
        """Masks from codes and arrays of 0 and 1 (what every other way of making one ends in)."""
        code, names = np.asarray(item), encoding.to_vocabulary(items)
        size = np.zeros((len(names), 2), dtype=np.int64)
        packed, taken = list[bytes](), 0
        for n, pixels in enumerate(masks):
            mask = checked(pixels, f"The mask in row {n}")
            packed.append(pack(mask))
            if n < len(code):
                known = size[code[n]]
                taken += len(packed[-1]) + (0 if known.any() else mask.size)  # a byte for each pixel of the consensus
                check_pixels(mask.shape[0], mask.shape[1], taken)
                if known.any() and tuple(known) != mask.shape:
                    raise LabelError(
                        f"Masks of item {listing(names[[code[n]]])} differ in size: {known[0]} x {known[1]} and "
                        f"{mask.shape[0]} x {mask.shape[1]} (row {n}). Masks of one item must have the same pixels."
                    )
                size[code[n]] = mask.shape
        rows = np.empty(len(packed), dtype=object)
        rows[:] = packed

        def answers(order: npt.NDArray[Any] | None) -> dict[str, Any]:
            return {"mask": in_order(rows, order), "height": size[:, 0].copy(), "width": size[:, 1].copy()}

        return cls._built(code, annotator, names, annotators, beside, answers, mask=rows)

    def __repr__(self) -> str:
        marked = sum(int(np.bitwise_count(np.frombuffer(m, dtype=np.uint8)).sum()) for m in self.mask.tolist())
        share = marked / max(int((self.height * self.width)[self.item].sum()), 1)
        return f"Masks({self.n_answers:,} masks: {self._sizes()}, {share:.1%} of the pixels marked)"

    def of_item(self, n: int) -> list[Pixels]:
        """The masks of an item, in the order of annotators."""
        packed = self.mask[self.indptr[n] : self.indptr[n + 1]].tolist()
        return [unpack(mask, int(self.height[n]), int(self.width[n])) for mask in packed]

    def true_mask(self, n: int) -> Pixels | None:
        """The true mask of an item; ``None`` where it is unknown."""
        true = None if self.truth is None else self.truth[n]
        return None if true is None else unpack(true, int(self.height[n]), int(self.width[n]))

    @classmethod
    def answer_columns(cls, answers: Sequence[Any]) -> dict[str, list[Any]]:
        """Of answers that each hold class -> (height, width, packed mask) of an annotator on an image. An annotator
        who did not mark a class that another marked there has an empty mask of it."""
        kinds: dict[Any, dict[Any, tuple[int, int]]] = {}
        for a in answers:
            kinds.setdefault(a.item, {}).update({kind: mask[:2] for kind, mask in a.said.items()})
        names = ("item", "annotator", "mask", "height", "width", "category", "timestamp", "duration")
        out: dict[str, list[Any]] = {name: [] for name in names}
        for a in answers:
            for kind, (h, w) in kinds[a.item].items():
                packed = a.said[kind][2] if kind in a.said else bytes(-(-h * w // 8))
                text = " ".join(map(str, run_lengths(unpack(packed, h, w))))
                for name, value in zip(names, (a.item, a.annotator, text, h, w, kind, a.time, a.duration), strict=True):
                    out[name].append(value)
        if len(set(out["category"])) == 1:
            del out["category"]
        return out

    def usable_gold(self, gold: Mapping[Any, Any]) -> dict[Any, Any]:
        """Of an export: image -> class -> (height, width, packed mask)."""
        named = {
            name: mask[2]
            for item, kinds in gold.items()
            for kind, mask in kinds.items()
            for name in (item, f"{item} [{kind}]")
        }
        known = dict(zip(self.items.tolist(), (self.height * self.width).tolist(), strict=True))
        return {name: mask for name, mask in named.items() if -(-known.get(name, 0) // 8) == len(mask)}

    def encode_truth(self, truth: Any) -> npt.NDArray[Any]:
        """N packed masks, ``None`` where unknown, from N masks or from a mapping of items to masks."""
        return encode_masks(truth, self.items, self.height, self.width)

    def truth_frame(self) -> Any:
        if self.truth is None:
            return None
        known = self.known_truth
        text = as_text(self.truth[known], self.height[known], self.width[known])
        return make_frame({"item": self.items[known], "mask": text})

    def _columns(self) -> dict[str, Any]:
        out = super()._columns()
        for name in ("mask", "truth"):
            if name in out:
                out[name] = as_text(out[name], out["height"], out["width"])
        return out

    def _counted(self) -> dict[str, Any]:
        return {"pixels": int((self.height * self.width).sum())}


read_masks = reader(Masks, "read_masks")
