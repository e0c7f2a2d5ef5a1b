"""Consensus labels as the files that annotation tools import, with their probabilities as scores.

================  ================================================================================================
``label-studio``  JSON: tasks with ``predictions`` (score, ``model_version``); import it into a project
``argilla``       JSON: records with ``suggestions`` (score, agent)
``prodigy``       JSONL: tasks of the ``choice`` interface, accepted
``doccano``       JSONL: texts with labels
``coco``          JSON: images, categories, and an annotation with ``score`` for each label of an image (no boxes)
``cvat``          XML for images 1.1: boxes, points and masks
``labelme``       zip with a JSON file for each image: boxes and points
``brat``          zip with ``.txt`` and ``.ann`` for each text: spans
``huggingface``   JSONL for ``datasets.load_dataset("json", ...)``: label, its probability, and ``soft_labels``
================  ================================================================================================

Boxes, points, masks, spans and texts are regions of an item, each with its probability as a score, to train on weighted
examples: COCO has ``bbox`` and ``segmentation`` (run lengths), Label Studio rectangles, key points, brushes, labels and
text areas, doccano and Prodigy spans, Hugging Face a list of ``regions``.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from crowdwise.data import columns, frames
from crowdwise.data.boundary import guarded
from crowdwise.data.folders import write_text, write_whole
from crowdwise.data.masks import run_lengths, to_brush
from crowdwise.errors import ExtraError, InputError, Option, ParameterError, Remedy, listing, suggestion, warn

LEAST_SIDE = 16
"""Images are not smaller: on those, places up to 1 are shares of width and height."""


@dataclass(frozen=True)
class Labelled:
    """An item with its consensus: one label, any number of them, or regions on it."""

    item: Any
    labels: list[Any]
    score: float
    probabilities: dict[str, float]
    about: Mapping[str, Any]
    regions: list[dict[str, Any]] | None = None

    def subject(self, field: str) -> str:
        """Its text: the field that is asked for, else its name."""
        text = self.about.get(field)
        return str(self.item if text is None else text)

    @property
    def size(self) -> dict[str, float]:
        """The width and the height of its image, as far as they are known."""
        out: dict[str, float] = {}
        for key in ("width", "height"):
            try:
                side = float(self.about.get(key) or 0.0)
            except (TypeError, ValueError):
                continue
            if 0.0 < side < float("inf"):
                out[key] = int(side) if side.is_integer() else side
        return out


@dataclass(frozen=True)
class Target:
    """How the other side calls things: the question, the field of the text, and the model."""

    question: str
    field: str
    model: str
    several: bool


@guarded
def write_labels(
    result: Any, path: str | os.PathLike[str], tool: str, *, items: Any = None, question: str = "label",
    field: str = "text",
) -> int:  # fmt: skip
    """Write consensus labels for an annotation tool, all or nothing; returns the number of items.

    Parameters
    ----------
    result
        A :class:`~crowdwise.Consensus` or a :class:`~crowdwise.LabelSetConsensus`; or the result of a fit to boxes,
        masks, spans or texts.
    path
        The file to write.
    tool
        ``"label-studio"``, ``"argilla"``, ``"prodigy"``, ``"doccano"``, ``"coco"``, ``"cvat"``, ``"labelme"``,
        ``"brat"`` or ``"huggingface"``.
    items
        A table with an item column and what belongs to items (texts, ``task_id``), such as ``items`` of an
        :class:`~crowdwise.Export`; or a mapping from item to such values.
    question
        The name of the question there (``from_name`` of Label Studio).
    field
        The column of ``items`` with the text or the address of the image, and its name there.

    >>> import crowdwise as cw, tempfile
    >>> votes = cw.Votes.from_records([("a", "ann", "cat"), ("a", "bob", "cat"), ("b", "ann", "dog")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_labels(cw.aggregate(votes, "majority"), f"{folder}/labels.jsonl", "doccano")
    ...     print(open(f"{folder}/labels.jsonl").readline().strip())
    2
    {"id": "a", "text": "a", "label": ["cat"], "score": 1.0}
    """
    if tool not in TOOLS:
        near = suggestion(str(tool), list(TOOLS))
        raise ParameterError(f"Unknown tool {tool!r}: there are {', '.join(TOOLS)}.{near}")
    target = Target(question, field, f"crowdwise {result.method}", hasattr(result, "member"))
    about = described(items)
    fields = dict.fromkeys(name for row in about.values() for name in row)
    if fields and field not in fields and tool != "coco":
        warn(
            f"The items have no {field!r}, and their names stand for it: there are {listing(fields, 12)}.",
            remedy=Remedy("Name the column with {}.", Option("field")),
        )
    rows = list(labelled(result, about) if _has_labels(result) else _with_regions(result.regions(), about, tool))
    _check_regions(rows, field)
    if tool in WHOLE_WRITERS:
        if _has_labels(result) and tool != "coco":
            known = listing(REGIONS[tool])
            raise ParameterError(f"{tool} takes {known} regions, not labels of items: choose another tool.")
        WHOLE_WRITERS[tool](rows, path, target)
        return len(rows)
    made = [WRITERS[tool](row, target) for row in rows]
    write_text((json.dumps(made, ensure_ascii=False, indent=1) if tool in ARRAYS else _lines(made)) + "\n", path)
    return len(rows)


def _has_labels(result: Any) -> bool:
    return hasattr(result, "member") or getattr(result, "UNIT", "") == "items"


def _with_regions(
    regions: Mapping[Any, list[dict[str, Any]]], about: Mapping[str, Mapping[str, Any]], tool: str
) -> Iterator[Labelled]:
    """The items of a result with what was found on them, in a form that the tool has."""
    _check_names(list(regions), about)
    forms = {form for found in regions.values() for one in found for form in one if form not in ("label", "score")}
    if forms - set(REGIONS.get(tool, ())):
        able = [name for name, known in REGIONS.items() if forms <= set(known)]
        raise ParameterError(
            f"{tool} has no form for {listing(sorted(forms))}: {', '.join(able) or 'no tool'} has one."
        )
    for name, found in regions.items():
        score = round(min((one["score"] for one in found), default=1.0), 6)
        yield Labelled(name, [], score, {}, about.get(str(name), {}), found)


def _check_regions(rows: list[Labelled], field: str) -> None:
    """An error where spans end outside of their text, or boxes and points are not on their image."""
    small, large = list[float](), list[float]()
    for row in rows:
        text, size = row.subject(field), row.size
        for one in row.regions or ():
            if "span" in one and one["span"][1] > len(text):
                raise InputError(
                    f"A span of item {row.item!r} ends at {one['span'][1]:,}, and {text[:40]!r} is shorter. Give the "
                    "table of items, and the name of its column of texts as field."
                )
            place = one.get("box") or one.get("point")
            if place is None or len(size) < 2:
                continue
            middle = [(place[d] + place[d - 2]) / 2.0 for d in (0, 1)]
            if not all(0.0 <= x <= side for x, side in zip(middle, size.values(), strict=True)):
                raise InputError(
                    f"{listing([place])} on item {row.item!r} is outside of its image of {size['width']:g} x "
                    f"{size['height']:g} pixels: are width and height those of the image that was annotated?"
                )
            small += place
            large += size.values()
    if small and max(small) <= 1.0 and min(large) >= LEAST_SIDE:
        raise InputError(
            "All places lie between 0 and 1, as shares of the image do, and its width and height are in pixels: "
            "multiply the places by them before they are aggregated."
        )


def _rle(mask: Any) -> dict[str, Any]:
    return {"size": list(mask.shape), "counts": run_lengths(mask)}


def _coco(rows: list[Labelled], path: Any, to: Target) -> None:
    """Labels of whole images, boxes, points, masks. Whole numbers stay the ids of images, other names are counted."""
    own = all(isinstance(row.item, int) for row in rows)
    kinds = list(rows[0].probabilities) if rows else []
    kinds = kinds or sorted({one["label"] for row in rows for one in row.regions or ()})
    images: list[dict[str, Any]] = []
    made: list[dict[str, Any]] = []
    for n, row in enumerate(rows, 1):
        number = row.item if own else n
        size = {key: int(side) for key, side in row.size.items()}
        found = row.regions
        if found is None:
            found = [{"label": str(label), "score": row.probabilities[str(label)]} for label in row.labels]
        for one in found:
            entry = {"image_id": number, "category_id": 1 + kinds.index(one["label"]), "score": round(one["score"], 6)}
            entry["annotator_id"] = to.model
            if "mask" in one:
                rows_, columns_ = one["mask"].nonzero()
                x, y = int(columns_.min()), int(rows_.min())
                box = [x, y, int(columns_.max()) + 1 - x, int(rows_.max()) + 1 - y]
                entry |= {"segmentation": _rle(one["mask"]), "area": len(rows_), "bbox": box, "iscrowd": 1}
                size = {"width": one["mask"].shape[1], "height": one["mask"].shape[0]}
            elif "box" in one:
                x1, y1, x2, y2 = one["box"]
                box = [x1, y1, round(x2 - x1, 3), round(y2 - y1, 3)]
                entry |= {"segmentation": [], "bbox": box, "area": round(box[2] * box[3], 3), "iscrowd": 0}
            elif "point" in one:
                x, y = one["point"][:2]
                entry |= {"segmentation": [], "bbox": [x, y, 0, 0], "area": 0, "iscrowd": 0, "keypoints": [x, y, 2]}
                entry["num_keypoints"] = 1
            made.append({"id": len(made) + 1, **entry})
        file = row.subject("file_name" if "file_name" in row.about else to.field)
        images.append({"id": number, "file_name": file, "item": row.item, **size})
    parts = {"keypoints": ["point"], "skeleton": []} if any("keypoints" in one for one in made) else {}
    whole = {
        "info": {"description": f"Consensus by {to.model}; score is the probability"}, "images": images,
        "categories": [{"id": n, "name": name, **parts} for n, name in enumerate(kinds, 1)], "annotations": made,
    }  # fmt: skip
    write_text(json.dumps(whole, ensure_ascii=False, indent=1) + "\n", path)


def _cvat(rows: list[Labelled], path: Any, to: Target) -> None:
    """CVAT for images 1.1: upload it as annotations of the task."""
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    meta = ElementTree.SubElement(root, "meta")
    task, job = ElementTree.SubElement(meta, "task"), ElementTree.SubElement(meta, "job")
    ElementTree.SubElement(ElementTree.SubElement(job, "assignee"), "username").text = to.model
    ElementTree.SubElement(task, "size").text = str(len(rows))
    labels = ElementTree.SubElement(task, "labels")
    for name in sorted({one["label"] for row in rows for one in row.regions or ()}):
        ElementTree.SubElement(ElementTree.SubElement(labels, "label"), "name").text = name
    for n, row in enumerate(rows):
        found, size = row.regions or [], row.size
        if found and "mask" in found[0]:
            size = dict(zip(("height", "width"), found[0]["mask"].shape, strict=True))
        about_image = {"id": n, "name": row.item, **size}
        image = ElementTree.SubElement(root, "image", {key: str(value) for key, value in about_image.items()})
        for one in found:
            what = {"label": one["label"], "source": "file", "occluded": "0"}
            if "mask" in one:
                at = [np.flatnonzero(one["mask"].any(axis=axis))[[0, -1]].tolist() for axis in (0, 1)]
                (left, right), (top, bottom) = at
                part = one["mask"][top : bottom + 1, left : right + 1]
                runs = ", ".join(map(str, run_lengths(part.T)))
                place = {"left": left, "top": top, "width": part.shape[1], "height": part.shape[0], "rle": runs}
            elif "box" in one:
                place = dict(zip(("xtl", "ytl", "xbr", "ybr"), one["box"], strict=True))
            else:
                place = {"points": ",".join(map(str, one["point"]))}
            tag = next(form for form in one if form in ("mask", "box", "point"))
            ElementTree.SubElement(
                image, "points" if tag == "point" else tag, what | {key: str(v) for key, v in place.items()}
            )
    write_text(ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n", path)


def _brat(rows: list[Labelled], path: Any, to: Target) -> None:
    """An archive with ``NAME.txt`` and ``NAME.ann`` for each item: unpack it into a collection."""
    files: dict[str, str] = {}
    for row in rows:
        name, found, text = row.item, row.regions or [], row.subject(to.field)
        lines = []
        for n, one in enumerate(found, 1):
            (a, b), label = one["span"], "_".join(one["label"].split())  # brat has no blanks in labels
            pieces = [found.span() for found in re.compile(r"[^\r\n]+").finditer(text, a, b)]  # and no breaks in spans
            ends, words = ";".join(f"{c} {d}" for c, d in pieces), " ".join(text[c:d] for c, d in pieces)
            lines.append(f"T{n}\t{label} {ends}\t{words}\n")
        files |= {f"{name}.txt": text, f"{name}.ann": "".join(lines)}
    _write_archive(files, path)


def _labelme(rows: list[Labelled], path: Any, to: Target) -> None:
    """An archive with a JSON file for each image, to be put beside the images."""
    files = {}
    for row in rows:
        name, found = row.item, row.regions or []
        shapes = [
            {"label": one["label"], "points": [one["point"]] if "point" in one else [one["box"][:2], one["box"][2:]],
             "shape_type": "point" if "point" in one else "rectangle", "group_id": None, "flags": {},
             "description": f"probability {one['score']:.4f}"}
            for one in found
        ]  # fmt: skip
        size = {f"image{key.title()}": row.size.get(key) for key in ("height", "width")}
        whole: dict[str, Any] = {
            "version": "5.5.0",
            "flags": {},
            "shapes": shapes,
            "imagePath": str(name),
            "imageData": None,
            **size,
        }
        files[f"{str(name).rpartition('.')[0] or name}.json"] = json.dumps(whole, ensure_ascii=False, indent=1) + "\n"
    if len(files) < len(rows):
        raise InputError("LabelMe names files as images without their endings: two images would share one.")
    _write_archive(files, path)


def _write_archive(files: Mapping[str, str], path: Any) -> None:
    """A zip archive with a folder, which stands for the annotator, whole or not at all."""
    odd = [name for name in files if set(name) & set('/\\:*?"<>|') or name.startswith(".")]
    if odd:
        raise InputError(f"Items are names of files there, and {listing(odd, 3)} cannot be one.")

    def write(place: Any) -> None:
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(zipfile.ZipInfo(f"crowdwise/{name}"), text.encode())

    write_whole(write, path)


def _label_studio(row: Labelled, to: Target) -> dict[str, Any]:
    data = {name: value for name, value in row.about.items() if name != "task_id" and value is not None}
    if row.regions is None:
        made = [{"type": "choices", "value": {"choices": [str(label) for label in row.labels]}}]
    else:
        made = [{"id": f"r{n}", **_label_studio_region(one, row, to)} for n, one in enumerate(row.regions)]
    results = [{"from_name": to.question, "to_name": to.field, **one} for one in made]
    task = {"data": {to.field: row.subject(to.field), **data, "id": row.item}}
    task |= {} if row.about.get("task_id") is None else {"id": row.about["task_id"]}
    return {**task, "predictions": [{"model_version": to.model, "score": row.score, "result": results}]}


def _label_studio_region(one: dict[str, Any], row: Labelled, to: Target) -> dict[str, Any]:
    size: dict[str, Any] = {}
    value: dict[str, Any]
    if "mask" in one:
        size = {"original_height": one["mask"].shape[0], "original_width": one["mask"].shape[1]}
        kind, value = "brushlabels", {"format": "rle", "rle": to_brush(one["mask"])}
    elif "box" in one or "point" in one:
        if len(row.size) < 2:
            raise InputError(
                f"Label Studio has places in percent, and the size of item {row.item!r} is not known. Add columns "
                "width and height to the table of items."
            )
        w, h = row.size["width"], row.size["height"]
        size = {"original_width": int(w), "original_height": int(h)}
        x, y, *far = one.get("box") or one["point"]
        kind, value = "keypointlabels", {"x": 100 * x / w, "y": 100 * y / h, "width": 0.5}
        if far:
            kind = "rectanglelabels"
            value |= {"width": 100 * (far[0] - x) / w, "height": 100 * (far[1] - y) / h, "rotation": 0}
    elif "text" in one:
        kind, value = "textarea", {"text": [one["text"]]}
    else:
        kind = "labels"
        value = dict(zip(("start", "end"), one.get("span") or one["event"], strict=True))
        value |= {"text": row.subject(to.field)[slice(*one["span"])]} if "span" in one else {}
    value |= {} if kind == "textarea" else {kind: [one["label"]]}
    return {"type": kind, **size, "value": value, "score": round(one["score"], 6)}


def _lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def labelled(result: Any, about: Mapping[str, Mapping[str, Any]]) -> Iterator[Labelled]:
    """The items of a result with their labels; ``about`` maps items, as text, to what is known of them."""
    if not _has_labels(result):
        raise InputError(f"Labels of votes and label sets can be written for tools, not {type(result).__name__}.")
    names, posterior = result.items.tolist(), result.posterior
    _check_names(names, about)
    if hasattr(result, "member"):
        known = [str(name) for name in result.labels.tolist()]
        found = [(labels, float(p[m].min()) if m.any() else float(1 - p.max()))
                 for labels, p, m in zip(result.sets, posterior, result.member, strict=True)]  # fmt: skip
    else:
        known = [str(name) for name in result.classes.tolist()]
        codes = result.label_codes.tolist()
        found = [([result.classes[k : k + 1].tolist()[0]], float(p[k])) for k, p in zip(codes, posterior, strict=True)]
    for name, (labels, score), p in zip(names, found, posterior.tolist(), strict=True):
        shares = dict(zip(known, (round(share, 6) for share in p), strict=True))
        yield Labelled(name, labels, round(score, 6), shares, about.get(str(name), {}))


def _check_names(names: list[Any], about: Mapping[str, Any]) -> None:
    """An error where the table of items has none of the result's, and a warning where it lacks some."""
    lost = [name for name in names if str(name) not in about] if about else []
    if lost and len(lost) == len(names):
        raise InputError(
            f"None of the {len(names):,} items of the result is in the table of items: this names {listing(about, 3)}, "
            f"the result {listing(names, 3)}. Check that both name the items alike."
        )
    if lost:
        warn(f"{len(lost):,} of {len(names):,} items are not in the table of items: {listing(lost, 3)}.")


def described(items: Any) -> dict[str, Mapping[str, Any]]:
    """Item, as text -> what is known of it."""
    if items is None:
        return {}
    if isinstance(items, Mapping) and all(isinstance(value, Mapping) for value in items.values()):
        return {str(name): about for name, about in items.items()}
    table = frames.to_polars(items)
    key = columns.find(table.columns, "item")
    if key is None:
        raise InputError(f"The table of items has no item column: it has {', '.join(table.columns)}.")
    return {str(row.pop(key)): row for row in table.iter_rows(named=True)}


def _argilla(row: Labelled, to: Target) -> dict[str, Any]:
    value = [str(label) for label in row.labels]
    made = {
        "question_name": to.question, "value": value if to.several else value[0], "score": row.score, "agent": to.model,
    }  # fmt: skip
    return {"id": str(row.item), "fields": {to.field: row.subject(to.field)}, "suggestions": [made]}


def _prodigy(row: Labelled, to: Target) -> dict[str, Any]:
    text, meta = row.subject(to.field), {"id": row.item, "source": to.model}
    if row.regions is not None:
        spans = [dict(zip(("start", "end"), one["span"], strict=True)) | {"label": one["label"]} for one in row.regions]
        return {to.field: text, "spans": spans, "answer": "accept", "meta": meta}
    return {
        to.field: text, "options": [{"id": name, "text": name} for name in row.probabilities],
        "accept": [str(label) for label in row.labels], "answer": "accept", "meta": meta | {"score": row.score},
        "config": {"choice_style": "multiple" if to.several else "single"},
    }  # fmt: skip


def _doccano(row: Labelled, to: Target) -> dict[str, Any]:
    whole = {"id": row.item, "text": row.subject(to.field)}
    if row.regions is not None:
        return whole | {
            "label": [[*one["span"], one["label"]] if "span" in one else one["text"] for one in row.regions]
        }
    return whole | {"label": [str(label) for label in row.labels], "score": row.score}


def _huggingface(row: Labelled, to: Target) -> dict[str, Any]:
    whole = {"item": row.item, **row.about, to.field: row.subject(to.field)}
    if row.regions is not None:
        plain = [one | ({"mask": _rle(one["mask"])} if "mask" in one else {}) for one in row.regions]
        return whole | {"regions": plain}
    own = [str(label) for label in row.labels]
    return whole | {
        to.question: own if to.several else own[0], "probability": row.score,
        "soft_labels": list(row.probabilities.values()), "classes": list(row.probabilities),
    }  # fmt: skip


ARRAYS = ("label-studio", "argilla")
WRITERS: dict[str, Callable[[Labelled, Target], dict[str, Any]]] = {
    "label-studio": _label_studio, "argilla": _argilla, "prodigy": _prodigy, "doccano": _doccano,
    "huggingface": _huggingface,
}  # fmt: skip
"""Tool -> what it takes for an item."""
WHOLE_WRITERS: dict[str, Callable[[list[Labelled], Any, Target], None]] = {
    "coco": _coco, "cvat": _cvat, "labelme": _labelme, "brat": _brat,
}  # fmt: skip
"""Tool -> what writes the file of all items."""
TOOLS = (*WRITERS, *WHOLE_WRITERS)
REGIONS = {
    "label-studio": ("box", "point", "mask", "span", "event", "text"), "doccano": ("span", "text"),
    "prodigy": ("span",), "coco": ("box", "point", "mask"), "cvat": ("box", "point", "mask"),
    "labelme": ("box", "point"), "brat": ("span",),
    "huggingface": ("box", "point", "event", "volume", "mask", "span", "text"),
}  # fmt: skip
"""Tool -> the forms of regions that it takes."""


@guarded
def to_dataset(result: Any, items: Any = None, *, question: str = "label", field: str = "text") -> Any:
    """Consensus labels as a ``datasets.Dataset``, to train on.

    Parameters
    ----------
    result
        A :class:`~crowdwise.Consensus` or a :class:`~crowdwise.LabelSetConsensus`.
    items
        What belongs to items, as in :func:`~crowdwise.write_labels`: its columns become columns.
    question
        The name of the column of labels: a ``ClassLabel``, or a list of them.
    field
        The column of ``items`` with texts; without it the name of the item stands there.

    Beside them are ``item``, ``probability`` (of the label) and ``soft_labels`` (of every class, in the order of the
    ``ClassLabel``).
    """
    try:
        import datasets
    except ImportError as error:
        raise ExtraError("A Hugging Face Dataset needs the package datasets: pip install datasets.") from error

    several = hasattr(result, "member")
    about = described(items)
    columns: dict[str, list[Any]] = {"item": [], field: []}
    others = list(dict.fromkeys(name for row in about.values() for name in row if name != field))
    taken = {"item", field, question, "probability", "soft_labels"}
    if len(taken) < 5 or taken & set(others):
        names = sorted(taken & set(others)) or ["item, probability and soft_labels"]
        raise InputError(f"Two columns would be called {', '.join(names)}: choose other names for question and field.")
    columns |= {name: [] for name in (*others, question, "probability", "soft_labels")}
    classes: list[str] = []
    for row in labelled(result, about):
        classes = classes or list(row.probabilities)
        own = [str(label) for label in row.labels]
        made = {
            "item": row.item, field: row.subject(field), **{name: row.about.get(name) for name in others},
            question: own if several else own[0], "probability": row.score,
            "soft_labels": list(row.probabilities.values()),
        }  # fmt: skip
        for name, value in made.items():
            columns[name].append(value)
    found = datasets.Dataset.from_dict(columns)
    many = getattr(datasets, "List", datasets.Sequence)
    label = datasets.ClassLabel(names=classes)
    return found.cast_column(question, many(label) if several else label)
