"""The table of boxes: what annotators drew around the objects of an image, any number of boxes for each.

Boxes have one axis (events in time: x1, x2), two, or three (volumes: z1, z2 as well). A file may have the width and the
height of boxes in place of x2 and y2. **Points** (columns x, y or x, y,
z) are boxes of one size, ``point_size``, around them: two points whose boxes overlap may be the same object.

========================  =============  ======================================================================
field                     shape          meaning
========================  =============  ======================================================================
``indptr``                N + 1          boxes on item n are rows ``indptr[n]:indptr[n + 1]``
``annotator``             S              code of the annotator
``label``                 S              code of the class; -1 in a row that says: looked, and drew nothing
``x1, y1, x2, y2``        S              the left, upper, right and lower edge, in any unit; NaN in such a row
``z1, z2``                S or ``None``  the edges of volumes; of events in time y1 and y2 are ``None`` too
``point_size``            number         the side of the boxes around points; 0 where boxes were drawn
``score``                 S or ``None``  how sure the annotator (a detector) is, from 0 to 1
``timestamp``             S or ``None``  when it was drawn
``truth``                 N or ``None``  the true objects of each item as (label, x1, y1, x2, y2); ``None``: unknown
``items``, ``annotators``, ``classes``   the names behind the codes
========================  =============  ======================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding, frames, schema
from crowdwise.data.assemble import checked_codes, in_order
from crowdwise.data.encoding import Codes, Counts, Vocabulary
from crowdwise.data.frames import native
from crowdwise.data.schema import ANNOTATOR, ITEM, Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.data.table import ByItem, CodedTable, reader
from crowdwise.data.truth import aligned
from crowdwise.errors import InputError, listing, warn

Floats = npt.NDArray[np.float64]
EDGES = ("x1", "y1", "x2", "y2")
SIDES = ("width", "height")
AXES = "xyz"
REACH = 8.0
"""The side of the box around a point, in median distances of two annotators' points of an object."""
MEASURED = 200
"""On so many items they are measured."""
SMALLEST, LARGEST = 1e-100, 1e100
"""The sides that a box may have, and the largest coordinate: areas are numbers within the range of the machine."""
OBJECT = "object"
"""The class of all boxes, where no label is given."""


def iou(one: Floats, two: Floats) -> Floats:
    """The area that two boxes share over the area of both together, of every pair.

    >>> iou(np.array([[0.0, 0, 2, 2]]), np.array([[1.0, 0, 3, 2], [5, 5, 6, 6]])).round(3).tolist()
    [[0.333, 0.0]]
    """
    D = one.shape[1] // 2
    sides = np.minimum(one[:, None, D:], two[None, :, D:]) - np.maximum(one[:, None, :D], two[None, :, :D])
    shared = np.clip(sides, 0.0, None).prod(axis=2)
    area = [(boxes[:, D:] - boxes[:, :D]).prod(axis=1) for boxes in (one, two)]
    return np.asarray(shared / (area[0][:, None] + area[1][None] - shared))


def edge_names(count: int) -> tuple[str, ...]:
    """The names of so many edges.

    >>> edge_names(2), edge_names(6)
    (('x1', 'x2'), ('x1', 'y1', 'z1', 'x2', 'y2', 'z2'))
    """
    return tuple(f"{axis}{end}" for end in (1, 2) for axis in AXES[: count // 2])


def around(points: Floats, size: float) -> Floats:
    """Boxes of such a side around points: S x D places, S x 2 D edges."""
    return np.hstack([points - size / 2.0, points + size / 2.0])


def usual_size(points: Floats, item: Codes, annotator: Codes) -> float:
    """The side of boxes around points: ``REACH`` times how far two annotators' points of an object are apart, in the
    median; 1 where no item has points by two.

    Points of two annotators that are each other's nearest are those of an object, or near by chance. How many are near
    by chance is counted on points of two items; the median is that of what there is beyond.
    """
    from scipy.spatial import KDTree

    def apart(one: Any, two: Any) -> Floats:
        far, best = two.query(one.data)
        return np.asarray(far[one.query(two.data)[1][best] == np.arange(one.n)])

    order = np.argsort(np.bincount(item, points.sum(axis=1)), kind="stable")  # names do not matter
    order = order[np.isin(order, item)]
    items = order[np.unique(np.linspace(0, len(order) - 1, MEASURED).round().astype(np.int64))].tolist()
    own = [[KDTree(points[(item == n) & (annotator == m)]) for m in np.unique(annotator[item == n])] for n in items]
    near = [apart(one, two) for some in own for a, one in enumerate(some) for two in some[a + 1 :]]
    if not near:
        return 1.0
    after = own[1:] + own[:1] if len(own) > 1 else [[]]
    chance = [apart(one, two) for some, others in zip(own, after, strict=True) for one in some for two in others]
    every, by_chance = (np.sort(np.concatenate(some or [np.empty(0)])) for some in (near, chance))
    more = np.arange(1, len(every) + 1) / len(near)
    more -= np.searchsorted(by_chance, every, side="right") / max(len(chance), 1)
    middle = float(every[(more >= more.max() / 2.0).argmax()])
    middle = middle or float(np.median(every[every > 0.0])) if every.any() else 0.0
    return REACH * middle or 1.0


def matched(overlap: Floats, threshold: float) -> Counts:
    """Pairs (rows of 2) of two sets of boxes, each in one pair at most: as many of an overlap of at least ``threshold``
    as there can be, and among those with the largest overlap in total."""
    from scipy.optimize import linear_sum_assignment

    fits = overlap >= threshold
    row, column = linear_sum_assignment(np.where(fits, -1.0 - overlap / (overlap.size + 1.0), 0.0))
    pairs = np.column_stack([row, column])
    return np.asarray(pairs[fits[row, column]])


def _boxes_in(source: Source, part: str, item: Codes, items: Vocabulary) -> dict[Any, list[tuple[Any, ...]]]:
    """Item -> its objects, from a table with one row for each; a row without coordinates: there are none."""
    label, classes, edges = _drawn(source, _edges_in(source), "truth" if "truth" in source else "label")
    out: dict[Any, list[tuple[Any, ...]]] = {}
    for name, code, box in zip(items[item].tolist(), label.tolist(), edges.T.tolist(), strict=True):
        out.setdefault(name, []).extend([(classes[code], *box)] if code >= 0 else [])
    return out


def _edges_in(source: Source) -> tuple[str, ...]:
    """The columns with the places of boxes, or of points."""
    axes = [axis for axis in AXES if f"{axis}1" in source or f"{axis}2" in source]
    points = tuple(axis for axis in AXES if axis in source)
    sized = all(part in source for part in SIDES)
    if not axes and len(points) > 1:
        if sized:
            raise InputError(
                f"Columns {listing([source.parts[p] for p in ('x', 'y', *SIDES)])} are boxes by corner and size, or "
                "points on images of such a size. Call x and y left and top for boxes, or leave width and height out "
                "for points."
            )
        return points
    if sized and axes == ["x", "y"] and not any(f"{axis}2" in source for axis in axes):
        return (*EDGES[:2], *SIDES)
    names = edge_names(2 * len(axes)) if axes else EDGES
    source.require(("item", *names) if "".join(axes) == AXES[: len(axes)] else ("item", *EDGES))
    return names


def _drawn(source: Source, names: Sequence[str], label: str = "label") -> tuple[Codes, Vocabulary, Floats]:
    """Codes of labels (-1: nothing drawn), the classes, and the places, a row for each of ``names``."""
    edges = np.stack([source.numbers(name, "a number", InputError, empty=True) for name in names])
    empty = np.isnan(edges)
    nothing = empty.all(axis=0)
    code, classes = np.where(nothing, -1, 0).astype(np.int32), encoding.to_vocabulary([OBJECT])
    if label in source:
        code, classes = encoding.sort_vocabulary(*source.coded(label))
        code = np.where(nothing & (code < 0), -1, code)
        for row in np.flatnonzero((code < 0) & ~nothing)[:1].tolist():
            raise source.odd(label, row, "the class of the box, or a row without coordinates for nothing drawn")
    for e, row in np.argwhere(~np.isfinite(edges) & (code >= 0))[:1].tolist():
        raise source.odd(names[e], row, "a finite number (label and all coordinates empty: nothing drawn)", InputError)
    D = len(names) // 2 if names[0] == "x1" else 0
    if names[D:] == SIDES:
        for e, row in np.argwhere((edges[D:] <= 0.0) & (code >= 0))[:1].tolist():
            raise source.odd(names[e + D], row, "a number above 0", InputError)
        edges[D:] += edges[:D]
    for e, row in np.argwhere((edges[D:] <= edges[:D]) & (code >= 0))[:1].tolist() if D else ():
        raise source.odd(
            names[e + D], row, f"more than {names[e]}, which is {edges[e, row]:g} (boxes are given by two corners, not "
            "by width and height)", InputError,
        )  # fmt: skip
    for e, row in np.argwhere(_out_of_range(edges, D) & (code >= 0))[:1].tolist():
        what = f"a box with coordinates up to {LARGEST:g} in size and sides from {SMALLEST:g} on"
        raise source.odd(names[e], row, what, InputError)
    return code.astype(np.int32), classes, edges


def _out_of_range(edges: Floats, D: int) -> npt.NDArray[np.bool_]:
    """Which of the coordinates make boxes in D dimensions (0: points) without an area that can be computed with."""
    far = np.abs(edges) > LARGEST
    kept = np.where(far, 0.0, edges)
    if D:
        far[D:] |= ~far[:D] & (kept[D:] - kept[:D] < SMALLEST)
    return far


@dataclass(frozen=True, eq=False, repr=False)
class Boxes(CodedTable, ByItem):
    """A frozen, validated table of boxes. Make one with a ``from_...`` method or :func:`crowdwise.read_boxes`.

    >>> Boxes.from_records([("i", "ann", "cat", 10, 10, 30, 20), ("i", "bob", None, None, None, None, None)])
    Boxes(1 box: 1 item x 2 annotators x 1 class, 0.5 on an item by an annotator)
    """

    answer_type: ClassVar[str] = "boxes"
    columns: ClassVar[tuple[Col, ...]] = (
        ITEM, ANNOTATOR, Col("label", "classes"), *(Col(name) for name in (*EDGES, "z1", "z2")),
        *(Col(name, per="") for name in (*AXES, *SIDES)), Col("score"), Col("timestamp"),
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (
        schema.on_missing("an item or annotator (without label and coordinates: nothing drawn)"),
        Opt(
            "point_size", None, "Of points (columns x and y): the side of the box that stands for one, in the unit of "
            "the coordinates. By default eight times the median distance of two annotators' points of an object.",
            float | None,
        ),
    )  # fmt: skip
    _record: ClassVar[tuple[str, ...]] = ("item", "annotator", "label", *EDGES)
    _forms: ClassVar[str] = (
        "One row per box; without a column ``label`` all boxes are of one class. A row without label and coordinates "
        "says that the annotator looked at the item and drew nothing. Events in time have x1 and x2 alone, volumes z1 "
        "and z2 too, points x and y (and z)."
    )
    _rows: ClassVar[str] = "boxes"
    _act: ClassVar[str] = "drew on"
    _truths: ClassVar[tuple[str, ...]] = (*EDGES, "z1", "z2", *AXES, *SIDES, "truth", "label")
    _truth_in: ClassVar[Any] = staticmethod(_boxes_in)

    indptr: Counts
    label: Codes
    x1: Floats
    x2: Floats
    classes: Vocabulary
    y1: Floats | None = None
    y2: Floats | None = None
    z1: Floats | None = None
    z2: Floats | None = None
    score: Floats | None = None
    point_size: float = 0.0

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Boxes:
        source.require(cls._needed())
        names, size = _edges_in(source), options["point_size"]
        source.complete(("item", "annotator"), options["on_missing"])
        (item, items), (annotator, annotators) = source.coded("item"), source.coded("annotator")
        label, classes, edges = _drawn(source, names)
        if names[0] in AXES:
            some = label >= 0
            size = usual_size(edges.T[some], item[some], annotator[some]) if size is None else float(size)
            if not 0.0 < size < np.inf:
                raise InputError(f"point_size is {size:g}: expected a length above 0 in the unit of the coordinates.")
            edges = around(edges.T, size).T
        elif size is not None:
            raise InputError("point_size is for points (columns x and y), and these are boxes: leave it out.")
        score = None
        if "score" in source:
            score = source.numbers("score", "a number from 0 to 1", InputError, empty=True)
            for row in np.flatnonzero((label >= 0) & ~((score >= 0.0) & (score <= 1.0)))[:1].tolist():
                raise source.odd("score", row, "a number from 0 to 1", InputError)
        beside: dict[str, Any] = {key: value for key, value in source.beside().items() if key != "weight"}
        return cls.from_codes(
            item, annotator, label, edges, items=items, annotators=annotators, classes=classes, score=score,
            point_size=size or 0.0, **beside,
        )  # fmt: skip

    @classmethod
    def from_codes(
        cls, item: npt.ArrayLike, annotator: npt.ArrayLike, label: npt.ArrayLike, edges: npt.ArrayLike, *, items: Any,
        annotators: Any, classes: Any, score: npt.ArrayLike | None = None, point_size: float = 0.0,
        **beside: Unpack[Beside],
    ) -> Boxes:  # fmt: skip
        """Boxes from arrays of codes (a label of -1: nothing drawn), 4 x S edges (2 x S of events, 6 x S of volumes),
        and the names behind the codes."""
        names = encoding.to_vocabulary(classes)
        code, sides = np.asarray(label), np.array(edges, dtype=np.float64)
        checked_codes(code[code >= 0], names, "label")
        D = len(sides) // 2
        if sides.shape not in ((2, len(code)), (4, len(code)), (6, len(code))):
            raise InputError(f"edges must hold x1, y1, x2 and y2 of {len(code)} boxes: found the shape {sides.shape}.")
        drawn = code >= 0
        boxes = sides[:, drawn]
        if not np.isfinite(boxes).all() or (boxes[D:] <= boxes[:D]).any() or _out_of_range(boxes, D).any():
            raise InputError(f"The edges of a box must be finite, up to {LARGEST:g} in size, with x1 < x2 and y1 < y2.")
        # Boxes of an annotator on an item are in the order of their content, and each is there once.
        n, m = np.asarray(item), np.asarray(annotator)
        first = np.nan_to_num(sides)
        order = np.lexsort((*first[::-1], code, m, n))
        rows = np.column_stack([n, m, code, *first])[order]
        again = np.append(False, (np.diff(rows, axis=0) == 0).all(axis=1))
        if (twice := int((again & (code[order] >= 0)).sum())) > 0:
            warn(f"Left out {twice:,} of {len(code):,} boxes: an annotator drew the very same box on the item before.")
        order = order[~again]
        place = beside.get("rows")
        known: dict[str, Any] = {
            "kind": beside.get("kind", "polars"), "truth": beside.get("truth"),
            "rows": order if place is None else place[order],
        }  # fmt: skip
        if (when := beside.get("timestamp")) is not None:
            known["timestamp"] = np.asarray(when)[order]
        sure = None if score is None else np.asarray(score, dtype=np.float64)[order]
        code, sides = code.astype(np.int32)[order], sides[:, order]
        sides[:, code < 0] = np.nan

        def answers(rows: npt.NDArray[Any] | None) -> dict[str, Any]:
            columns = {"label": code, "score": sure} | dict(zip(edge_names(2 * D), sides, strict=True))
            own = {k: None if v is None else in_order(v, rows) for k, v in columns.items()}
            return own | {"classes": names, "point_size": point_size}

        return cls._built(n[order], m[order], items, annotators, known, answers, label=code)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        boxes = int((self.label >= 0).sum())
        words = self._sizes((len(self.classes), "class"))
        mean = boxes / max(len(self.looked[0]), 1)
        return f"Boxes({boxes:,} box{'es' * (boxes != 1)}: {words}, {mean:.1f} on an item by an annotator)"

    @property
    def edges(self) -> Floats:
        """S x 4: the edges of every row (S x 2 of events, S x 6 of volumes)."""
        every = (self.x1, self.y1, self.z1, self.x2, self.y2, self.z2)
        return np.column_stack([edge for edge in every if edge is not None])

    @property
    def looked(self) -> tuple[Counts, Counts]:
        """The item and the annotator of every pair of both where the annotator looked at the item."""
        pair = np.unique(self.item * np.int64(max(self.n_annotators, 1)) + self.annotator)
        return np.divmod(pair, max(self.n_annotators, 1))

    def encode_truth(self, truth: Any) -> npt.NDArray[Any]:
        """N lists of objects (label, x1, y1, x2, y2), ``None`` where unknown, from such an array or a mapping."""
        return encode_boxes(truth, self.items, self.edges.shape[1], self.point_size)

    @classmethod
    def answer_columns(cls, answers: Sequence[Any]) -> dict[str, list[Any]]:
        """Of answers that each hold all boxes of an annotator on an item, as (label, x1, y1, x2, y2)."""
        parts = max((len(box) - 1 for a in answers for box in a.said), default=4)
        rows = [(a, box) for a in answers for box in (a.said or [(None,) * (parts + 1)])]
        columns = {name: [getattr(a, name) for a, _ in rows] for name in ("item", "annotator")}
        names = ("x", "y") if parts == 2 else edge_names(parts)
        columns |= {name: [box[k] for _, box in rows] for k, name in enumerate(("label", *names))}
        return columns | {"timestamp": [a.time for a, _ in rows], "duration": [a.duration for a, _ in rows]}

    def truth_frame(self) -> Any:
        return self._true_objects(*edge_names(self.edges.shape[1]))

    def _counted(self) -> dict[str, Any]:
        used = np.bincount(self.label[self.label >= 0], minlength=len(self.classes))
        pairs = len(self.looked[0])
        return {
            "classes": self.classes.tolist(), "nothing_drawn": int((self.label < 0).sum()),
            "boxes_per_item_and_annotator": float((self.label >= 0).sum() / max(pairs, 1)),
            "boxes_per_class": dict(zip(map(str, self.classes.tolist()), used.tolist(), strict=True)),
        }  # fmt: skip


def encode_boxes(truth: Any, items: Vocabulary, count: int = 4, size: float = 0.0) -> npt.NDArray[Any]:
    """N tuples of objects (label, x1, y1, x2, y2), ``None`` where unknown, from N such lists, a mapping of items to
    them, or a table with one row per object. ``count`` edges; or points, where these have boxes of such a size."""
    truth = native(truth)
    out = np.empty(len(items), dtype=object)
    if frames.is_frame(truth):
        source = Source(truth, dict.fromkeys(("item", *Boxes._truths)), "truths")
        source.complete(("item",), "error")
        truth = _boxes_in(source, "x1", *source.coded("item"))
    each = "a list of (label, x1, y1, x2, y2)"
    rows, known = aligned(truth, items, "boxes", f"a mapping from item to {each}, or an array of them", each)
    for n in np.flatnonzero(rows >= 0).tolist():
        out[n] = tuple(_object(one, items[n : n + 1], count, size) for one in known[rows[n]])
    return out


def _object(one: Any, item: Vocabulary, count: int, size: float) -> tuple[Any, ...]:
    try:
        label, *edges = one
        box = tuple(float(edge) for edge in edges)
    except (TypeError, ValueError):
        box = ()
    D = count // 2
    if size and len(box) == D:
        box = tuple(around(np.array([box]), size)[0].tolist())
    if len(box) != count or not np.isfinite(box).all() or any(box[D + d] <= box[d] for d in range(D)):
        names = edge_names(count)
        raise InputError(
            f"A true box of item {listing(item)} is {one!r}: expected (label, {', '.join(names)}) with finite numbers, "
            f"{' and '.join(f'{names[d]} < {names[D + d]}' for d in range(D))}."
        )
    return (label, *box)


read_boxes = reader(Boxes, "read_boxes")
