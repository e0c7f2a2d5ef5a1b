"""Exports of tools for images.

Each has ``read_TOOL``, whose docstring says where things are in the export.
"""

from __future__ import annotations

import base64
import io
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from crowdwise.data.masks import ellipse_mask, image_mask, mask_of
from crowdwise.errors import CrowdwiseError, LabelError, ReadError
from crowdwise.importers.collect import MOST_PIXELS, TURNED, Collector, as_object, named, number, objects_in, upright
from crowdwise.importers.export_files import ExportFiles, Peek, people, root_of


def recognises_labelbox(peek: Peek) -> bool:
    """Rows with a ``data_row`` and the labels of projects."""
    return isinstance(peek.first.get("data_row"), dict) and isinstance(peek.first.get("projects"), dict)


def read_labelbox(files: ExportFiles, into: Collector) -> None:
    """Labelbox: NDJSON of an export with ``label_details``.

    =============  ==============================================================================================
    item           ``data_row.global_key``, else ``data_row.id``
    annotator      ``label_details.created_by``
    question       ``classifications[].name``: radio, checklist and text answers; ``boxes`` and ``points``
    time           ``label_details.created_at``
    duration       ``performance_details.seconds_to_create``
    looked         who submitted a label: one without shapes says that nothing is there
    left out       benchmarks (which become gold, but for their shapes), skipped rows
    =============  ==============================================================================================
    """
    for row in files.objects(files.names[0]):
        data = as_object(row.get("data_row"))
        item = data.get("global_key") or data.get("id")
        into.about_item(item, row_data=data.get("row_data"), external_id=data.get("external_id"))
        for project in as_object(row.get("projects")).values():
            for label in objects_in(as_object(project).get("labels")):
                _read_label(label, item, into)


def _read_label(label: dict[str, Any], item: Any, into: Collector) -> None:
    details = as_object(label.get("label_details"))
    if details.get("is_outdated") or label.get("skipped") or details.get("skipped"):
        into.leave_out("skipped")
        return
    annotations = as_object(label.get("annotations"))
    gold = str(label.get("label_kind")).lower() == "benchmark" or details.get("benchmark_label") is True
    who = details.get("created_by")
    if who is None and not gold:
        into.note("Labels do not say who made them: export with label_details.")
    took = as_object(label.get("performance_details")).get("seconds_to_create")
    when = {"time": details.get("created_at"), "duration": took}
    if not gold:
        into.looks(item, who, **when)
    for thing in objects_in(annotations.get("objects")):
        box, point, name = as_object(thing.get("bounding_box")), as_object(thing.get("point")), thing.get("name")
        if gold:
            into.leave_out("shapes of benchmarks")
        elif box:
            ends = (box.get(part) for part in ("left", "top", "width", "height"))
            into.rectangle("boxes", item, who, name, *ends, **when)
        elif point:
            into.shape("points", item, who, name, point.get("x"), point.get("y"), **when)
        else:
            into.other("objects", "polygons and other objects")
    for answer in objects_in(annotations.get("classifications")):
        name, chosen = str(answer.get("name") or answer.get("value")), _chosen(answer)
        if chosen is None:
            content = as_object(answer.get("text_answer")).get("content")
            if isinstance(content, str) and content.strip() and not gold:
                into.answer("texts", name, item, who, content, **when)
            else:
                into.other(name, "texts")
        elif gold:
            into.gold(name, item, chosen)
            into.leave_out("benchmarks, which are gold")
        elif not chosen:
            into.leave_out("without an answer")
        else:
            into.choices(name, item, who, chosen, **when)


def _chosen(answer: dict[str, Any]) -> list[Any] | None:
    """The names that were chosen; ``None`` of a text."""
    if "radio_answer" in answer:
        name = as_object(answer["radio_answer"]).get("name")
        return [] if name is None else [name]
    if "checklist_answers" in answer:
        return [option.get("name") for option in objects_in(answer["checklist_answers"])]
    return None


OTHERS = {"polyline": "lines", "cuboid": "cuboids", "skeleton": "skeletons"}


def recognises_cvat(peek: Peek) -> bool:
    """An element ``annotations`` with a version and meta data."""
    names = peek.ending(".xml")
    if not names or len(names) < len(peek.names):
        return False
    head = peek.head if peek.files.single else peek.files.text(names[0], 4096)
    return "<annotations>" in head and "<version>1" in head and "<meta>" in head


def read_cvat(files: ExportFiles, into: Collector) -> None:
    """CVAT for images 1.1: the XML of a job, or a folder or archive with one for each job.

    =============  ==============================================================================================
    item           ``name`` of an image
    annotator      the assignee of the job, else the name of the file or of its folder
    question       ``tag``, ``boxes``, ``points``, ``masks`` (masks, polygons and ellipses); other shapes, and those in
                   videos, are left alone
    looked         the assignee of a job at all of its images: one without shapes says that nothing is there
    left out       shapes and tags that were made automatically
    =============  ==============================================================================================
    """
    for name in files.names:
        root = root_of(files, name)
        who = root.findtext("meta/job/assignee/username")
        if not who:
            place = PurePath(name)
            who = place.parent.name if place.stem == "annotations" and place.parent.name else place.stem
            into.note(f"{name} has no assignee (an export of a whole task mixes all): its answers are by {who!r}.")
        for _ in root.iter("track"):
            into.other("tracks", "shapes in videos")
        for image in root.iter("image"):
            item, size = image.get("name"), {key: image.get(key) for key in ("width", "height")}
            into.about_item(item, **size)
            labels = []
            into.looks(item, who)
            for shape in image:
                if shape.get("source") in ("auto", "semi-auto") and not into.predictions:
                    into.leave_out("made automatically")
                elif shape.tag == "tag":
                    labels.append(shape.get("label"))
                elif shape.tag in OTHERS:
                    into.other("shapes", OTHERS[shape.tag])
                else:
                    _read_cvat(shape, item, who, size, into)
            if labels:
                into.choices("tag", item, who, labels)


def _read_cvat(shape: Element, item: Any, who: Any, size: dict[str, Any], into: Collector) -> None:
    """A box, points, or a mask."""
    label, height, width = shape.get("label"), number(size["height"]), number(size["width"])
    corners = [pair.split(",") for pair in (shape.get("points") or "").split(";") if pair]
    turn = number(shape.get("rotation")) or 0.0
    if shape.tag == "box":
        ends = [number(shape.get(end)) for end in ("xtl", "ytl", "xbr", "ybr")]
        box = [end for end in ends if end is not None]
        if turn and len(box) == 4 and box[0] < box[2] and box[1] < box[3]:
            into.note(TURNED)
            ends[:] = upright(box, turn, ((box[0] + box[2]) / 2.0, (box[1] + box[3]) / 2.0))
        into.shape("boxes", item, who, label, *ends)
    elif shape.tag == "points":
        for place in corners:
            into.shape("points", item, who, label, *place)
    elif shape.tag == "polygon":
        into.polygon("masks", item, who, label, corners, height, width)
    elif not height or not width or height * width > MOST_PIXELS:
        into.leave_out("masks on images of unknown size")
    elif shape.tag == "ellipse":
        parts = [part for part in map(number, map(shape.get, ("cx", "cy", "rx", "ry"))) if part is not None]
        if len(parts) < 4 or min(parts[2:]) <= 0.0:
            into.leave_out("shapes without their places")
        else:
            into.mask("masks", item, who, label, ellipse_mask(parts[:2], parts[2:], int(height), int(width), turn))
    elif shape.tag == "mask":
        into.mask("masks", item, who, label, _pasted(shape, int(height), int(width)))


def _pasted(shape: Element, height: int, width: int) -> Any:
    """The mask of run lengths along the rows of a part of the image."""
    left, top, w, h = (int(number(shape.get(part)) or 0) for part in ("left", "top", "width", "height"))
    runs = np.array([int(run) for run in (shape.get("rle") or "").split(",") if run.strip()], dtype=np.int64)
    inside = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    out = np.zeros((height, width), dtype=bool)
    if len(inside) != w * h or left < 0 or top < 0 or top + h > height or left + w > width:
        raise ReadError(f"A mask of {len(inside):,} pixels does not fit {w} x {h} pixels of the image.")
    out[top : top + h, left : left + w] = inside.reshape(h, w)
    return out


def recognises_superannotate(peek: Peek) -> bool:
    """Items with ``metadata`` and ``instances``."""
    names = peek.ending(".json")
    if not names:
        return False
    first = peek.first if peek.files.single else peek.first_in(names[0])
    return _is_item(first)


def _is_item(row: dict[str, Any]) -> bool:
    meta = row.get("metadata")
    return isinstance(meta, dict) and isinstance(row.get("instances"), list) and "name" in meta


def read_superannotate(files: ExportFiles, into: Collector) -> None:
    """SuperAnnotate: ``annotations.json`` (a file, or one in the folder of each annotator), or a JSON file per item.

    =============  ==============================================================================================
    item           ``metadata.name``
    annotator      ``createdBy.email`` of an instance, else ``metadata.annotatorEmail``
    question       ``tag`` (``className`` of tags), ``boxes``, ``points``, ``masks`` (polygons)
    time           ``createdAt``
    looked         ``metadata.annotatorEmail`` of an item without instances that was begun: nothing is there
    left out       pre-annotations
    =============  ==============================================================================================
    """
    for name in files.names:
        if not name.lower().endswith(".json"):
            continue
        for row in files.objects(name):
            if _is_item(row):
                _read_item(row, into)


def _read_item(row: dict[str, Any], into: Collector) -> None:
    meta = row["metadata"]
    item = meta["name"]
    into.about_item(item, url=meta.get("url"), status=meta.get("status"))
    if not row["instances"] and meta.get("status") not in (None, "NotStarted"):
        into.looks(item, meta.get("annotatorEmail"))
    tags: dict[Any, tuple[list[Any], Any]] = {}
    for instance in objects_in(row["instances"]):
        if str(instance.get("creationType")).lower() in ("preannotation", "prediction") and not into.predictions:
            into.leave_out("pre-annotations")
            continue
        who = as_object(instance.get("createdBy")).get("email")
        who = who if isinstance(who, str) else meta.get("annotatorEmail")
        if instance.get("type") == "tag":
            labels, _ = tags.setdefault(str(who) if who is not None else None, ([], instance.get("createdAt")))
            labels.append(instance.get("className"))
        elif instance.get("type") == "bbox" and isinstance(instance.get("points"), dict):
            ends = (instance["points"].get(end) for end in ("x1", "y1", "x2", "y2"))
            into.shape("boxes", item, who, instance.get("className"), *ends)
        elif instance.get("type") == "polygon" and isinstance(instance.get("points"), list):
            size = (meta.get("height"), meta.get("width"))
            into.polygon("masks", item, who, instance.get("className"), instance["points"], *size)
        elif instance.get("type") == "point":
            into.shape("points", item, who, instance.get("className"), instance.get("x"), instance.get("y"))
        else:
            into.other("instances", f"instances of type {instance.get('type')}")
    for who, (labels, when) in tags.items():
        into.choices("tag", item, who, labels, time=when)


NOTHING = "no finding"


def read_vindr(files: ExportFiles, into: Collector) -> None:
    """VinDr and its like: a CSV of boxes with the radiologist who drew each.

    =============  ==============================================================================================
    item           ``image_id``
    annotator      ``rad_id``
    question       ``findings``: the classes that a radiologist found in an image; "No finding" is the empty set
                   ``boxes``: where they are
    =============  ==============================================================================================
    """
    findings: dict[tuple[str, str], list[str]] = {}
    for row in files.rows(files.names[0]):
        item, who, name = row["image_id"], row["rad_id"], row["class_name"]
        if item is None or who is None or name is None:
            into.leave_out("without an item or an annotator")
            continue
        labels = findings.setdefault((item, who), [])
        if name.strip().lower() != NOTHING:
            labels.append(name)
            into.shape("boxes", item, who, name, *(row[end] for end in ("x_min", "y_min", "x_max", "y_max")))
        else:
            into.looks(item, who)
    empty = any(not labels for labels in findings.values())
    for (item, who), labels in findings.items():
        if empty or len(set(labels)) > 1:
            into.several("findings")
        into.choices("findings", item, who, labels)


ANNOTATORS = ("annotator_id", "annotator", "rad_id", "user_id", "worker_id")


def recognises_coco(peek: Peek) -> bool:
    """Images, categories, and annotations that name their annotator."""
    whole = peek.whole("images", "annotations", "categories")
    if not {"images", "annotations", "categories"} <= set(whole):
        return False
    annotations = whole["annotations"]
    return (
        isinstance(annotations, list)
        and bool(annotations)
        and isinstance(annotations[0], dict)
        and bool(_who(annotations[0]))
    )


def _who(annotation: dict[str, Any]) -> str | None:
    return next((key for key in ANNOTATORS if key in annotation), None)


def read_coco(files: ExportFiles, into: Collector) -> None:
    """COCO with annotators: a JSON object of images, categories and annotations, each with its annotator.

    There is no standard field: ``annotator_id``, ``annotator``, ``rad_id``, ``user_id``, ``worker_id`` are looked for.

    =============  ==============================================================================================
    item           ``image_id``
    annotator      ``annotator_id``, ``rad_id``, ``user_id``...
    question       ``boxes`` (``bbox``), ``masks`` (``segmentation``: polygons or run lengths; a class together),
                   ``points`` (``keypoints``)
    looked         who annotated anything on an image; who did not is not known to have looked at it
    =============  ==============================================================================================
    """
    whole = files.whole(files.names[0])
    size: dict[Any, tuple[Any, Any]] = {}
    for image in objects_in(whole.get("images")):
        into.about_item(image.get("id"), **{key: image.get(key) for key in ("file_name", "width", "height")})
        size[named(image.get("id"))] = (image.get("height"), image.get("width"))
    kinds = objects_in(whole.get("categories"))
    names = {str(kind.get("id")): str(kind.get("name", kind.get("id"))) for kind in kinds}
    parts = {str(kind.get("id")): kind.get("keypoints") or [] for kind in kinds}
    for annotation in objects_in(whole.get("annotations")):
        item, who = named(annotation.get("image_id")), named(annotation.get(_who(annotation) or ""))
        name = names.get(str(annotation.get("category_id")), str(annotation.get("category_id")))
        box, drawn = annotation.get("bbox"), annotation.get("segmentation")
        pointed = bool(annotation.get("keypoints"))
        if (
            isinstance(box, list) and len(box) == 4 and (any(box[2:]) or not pointed)
        ):  # a point alone has a box of no size
            into.rectangle("boxes", item, who, name, *box)
        elif not drawn and not pointed:
            into.leave_out("without a box of positive width and height")
        _read_keypoints(
            annotation.get("keypoints"), item, who, name, parts.get(str(annotation.get("category_id")), []), into
        )
        if isinstance(drawn, dict):
            try:
                into.mask("masks", item, who, name, mask_of(drawn, None, None, "A mask"))
            except (LabelError, KeyError, TypeError, ValueError):
                into.leave_out("masks whose run lengths do not fit their size")
        for polygon in drawn if isinstance(drawn, list) else ():
            if isinstance(polygon, list):
                into.polygon("masks", item, who, name, polygon, *size.get(item, (None, None)))


def _read_keypoints(keypoints: Any, item: Any, who: Any, name: str, parts: Any, into: Collector) -> None:
    """x, y and visibility (0: not there) of each part of an object; an object of one part is a point."""
    places = keypoints if isinstance(keypoints, list) else []
    for n, (x, y, seen) in enumerate(zip(places[::3], places[1::3], places[2::3], strict=False)):
        if seen:
            several = len(places) > 3
            part = parts[n] if isinstance(parts, list) and n < len(parts) else n + 1
            into.shape("points", item, who, f"{name}: {part}" if several else name, x, y)


THICK = 1.0
"""The distance of two slices where it is not known, in millimetres."""


def recognises_lidc(peek: Peek) -> bool:
    """The element that such files begin with."""
    names = peek.ending(".xml")
    head = peek.head if peek.files.single else peek.files.text(names[0], 4096) if names else ""
    return "<LidcReadMessage" in head


def read_lidc(files: ExportFiles, into: Collector) -> None:
    """LIDC-IDRI: the XML of four readers of a CT scan.

    A nodule has an id of its own for each reader: nodules are boxes in three dimensions, which are matched between
    readers by overlap. x and y are pixels, z is in millimetres. Readers are anonymous, not the same across scans.

    =============  ==============================================================================================
    item           the scan (``SeriesInstanceUid``)
    annotator      ``reader 1``, ``reader 2``, ...: the reading sessions in their order
    question       ``nodules``: the box around all outlines of a nodule
    left out       marks that are not nodules
    =============  ==============================================================================================
    """
    into.note("Readers of LIDC are anonymous: reader 1 of one scan need not be reader 1 of another.")
    for name in files.names:
        if not name.lower().endswith(".xml"):
            continue
        root = root_of(files, name)
        scan = root.findtext("ResponseHeader/SeriesInstanceUid")
        into.about_item(scan, readers=len(root.findall("readingSession")))
        every = [number(z.text) for z in root.iter("imageZposition")]
        steps = np.diff(np.unique([z for z in every if z is not None]))
        for n, session in enumerate(root.iter("readingSession"), 1):
            into.looks(scan, f"reader {n}")
            for nodule in session.iter("unblindedReadNodule"):
                box = _around(nodule, float(steps.min()) if len(steps) else THICK)
                if box is None:
                    into.leave_out("nodules without an outline")
                else:
                    into.shape("nodules", scan, f"reader {n}", "nodule", *box)
            into.leave_out("marks that are not nodules", sum(1 for _ in session.iter("nonNodule")))


def _around(nodule: Any, step: float) -> list[float] | None:
    """x1, y1, z1, x2, y2, z2 around the outlines: whole pixels and slices."""
    places = [
        (number(edge.findtext("xCoord")), number(edge.findtext("yCoord")), number(roi.findtext("imageZposition")))
        for roi in nodule.iter("roi")
        for edge in roi.iter("edgeMap")
    ]
    known = np.array([place for place in places if None not in place], dtype=np.float64).reshape(-1, 3)
    if not len(known):
        return None
    half = np.array([0.5, 0.5, step / 2.0])
    out: list[float] = [*(known.min(axis=0) - half).tolist(), *(known.max(axis=0) + half).tolist()]
    return out


LABELME = {"shapes", "imagePath"}


def recognises_labelme(peek: Peek) -> bool:
    """Shapes and the path of an image, in the first JSON file."""
    if peek.files.single:
        return set(peek.whole(*LABELME)) >= LABELME
    names = peek.ending(".json")
    return bool(names) and set(peek.first_in(names[0])) >= LABELME


def read_labelme(files: ExportFiles, into: Collector) -> None:
    """LabelMe: a folder (or an archive) with a folder for each annotator, and in it one JSON file for each image.

    =============  ==============================================================================================
    item           the name of the image
    annotator      the folder that the file is in; the one above all others, where these have files of one name
    question       ``boxes`` (rectangles), ``points``, ``masks`` (masks, polygons, circles), ``flags``; lines are left
                   alone
    looked         who has a file on an image: one without shapes says that nothing is there
    =============  ==============================================================================================
    """
    for name, (who, place) in people(name for name in files.names if name.lower().endswith(".json")).items():
        whole = files.whole(name)
        if not isinstance(whole, dict) or not LABELME <= set(whole):
            into.leave_out("other files")
            continue
        item = str(PurePosixPath(place).with_name(PureWindowsPath(str(whole["imagePath"])).name or place))
        height, width = number(whole.get("imageHeight")), number(whole.get("imageWidth"))
        into.about_item(item, height=height, width=width)
        into.looks(item, who)
        flags = whole.get("flags")
        if isinstance(flags, dict) and flags:
            into.several("flags")
            into.choices("flags", item, who, [flag for flag, chosen in flags.items() if chosen])
        for shape in objects_in(whole["shapes"]):
            _read_labelme(shape, item, who, height, width, into)


def _read_labelme(shape: dict[str, Any], item: str, who: str, height: Any, width: Any, into: Collector) -> None:
    kind, label = shape.get("shape_type") or "polygon", shape.get("label")
    try:
        places = np.array(shape.get("points"), dtype=np.float64).reshape(-1, 2)
    except (TypeError, ValueError):
        places = np.empty((0, 2))
    if len(places) not in {"rectangle": (2, 4), "circle": (2,), "mask": (2,)}.get(kind, (len(places),)):
        into.leave_out("shapes without their points")
    elif kind == "rectangle":
        into.shape("boxes", item, who, label, *places.min(axis=0).tolist(), *places.max(axis=0).tolist())
    elif kind == "point":
        for place in places.tolist():
            into.shape("points", item, who, label, *place)
    elif kind == "polygon":
        into.polygon("masks", item, who, label, places.ravel().tolist(), height, width)
    elif kind == "circle" and height and width and height * width <= MOST_PIXELS:
        radius = float(np.hypot(*(places[1] - places[0])))
        if radius > 0.0:
            disc = ellipse_mask(places[0].tolist(), (radius, radius), int(height), int(width))
            into.mask("masks", item, who, label, disc)
    elif kind == "mask" and height and width and height * width <= MOST_PIXELS:
        out = np.zeros((int(height), int(width)), dtype=bool)
        try:
            part = image_mask(io.BytesIO(base64.b64decode(str(shape.get("mask")))), "A mask of LabelMe")
            (left, top), (high, wide) = places.min(axis=0).astype(int).tolist(), part.shape
            out[top : top + high, left : left + wide] = part
        except (ValueError, OSError, CrowdwiseError):
            into.leave_out("masks that do not fit their image")
        else:
            into.mask("masks", item, who, label, out)
    else:
        into.other("shapes", f"shapes of type {kind}")
