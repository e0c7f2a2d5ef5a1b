"""Exports of tools for images.

Each has ``recognises_TOOL`` and ``read_TOOL``, whose docstring says where things are in the export.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from crowdwise.importers.collect import Collector, named, number
from crowdwise.importers.export_files import ExportFiles, Peek, root_of


def recognises_labelbox(peek: Peek) -> bool:
    """Rows with a ``data_row`` and the labels of projects."""
    return isinstance(peek.first.get("data_row"), dict) and isinstance(peek.first.get("projects"), dict)


def read_labelbox(files: ExportFiles, into: Collector) -> None:
    """Labelbox: NDJSON of an export with ``label_details``.

    =============  ==============================================================================================
    item           ``data_row.global_key``, else ``data_row.id``
    annotator      ``label_details.created_by``
    question       ``classifications[].name``: radio and checklist answers; texts and objects are left alone
    time           ``label_details.created_at``
    duration       ``performance_details.seconds_to_create``
    left out       benchmarks (which become gold), skipped rows
    =============  ==============================================================================================
    """
    for row in files.objects(files.names[0]):
        data = _object(row.get("data_row"))
        item = data.get("global_key") or data.get("id")
        into.about_item(item, row_data=data.get("row_data"), external_id=data.get("external_id"))
        for project in _object(row.get("projects")).values():
            for label in _list(_object(project).get("labels")):
                _read_label(label, item, into)


def _read_label(label: dict[str, Any], item: Any, into: Collector) -> None:
    details = _object(label.get("label_details"))
    if details.get("is_outdated") or label.get("skipped") or details.get("skipped"):
        into.leave_out("skipped")
        return
    found = _object(label.get("annotations"))
    gold = str(label.get("label_kind")).lower() == "benchmark" or details.get("benchmark_label") is True
    who = details.get("created_by")
    if who is None and not gold:
        into.note("Labels do not say who made them: export with label_details.")
    took = _object(label.get("performance_details")).get("seconds_to_create")
    if _list(found.get("objects")):
        into.other("objects", "boxes and other objects")
    for answer in _list(found.get("classifications")):
        name, chosen = str(answer.get("name") or answer.get("value")), _chosen(answer)
        if chosen is None:
            into.other(name, "texts")
        elif gold:
            into.gold(name, item, chosen)
            into.leave_out("benchmarks, which are gold")
        elif not chosen:
            into.leave_out("without an answer")
        else:
            into.choices(name, item, who, chosen, details.get("created_at"), took)


def _chosen(answer: dict[str, Any]) -> list[Any] | None:
    """The names that were chosen; ``None`` of a text."""
    if "radio_answer" in answer:
        name = _object(answer["radio_answer"]).get("name")
        return [] if name is None else [name]
    if "checklist_answers" in answer:
        return [option.get("name") for option in _list(answer["checklist_answers"])]
    return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


SHAPES = {
    "box": "boxes", "polygon": "polygons", "polyline": "lines", "points": "points", "ellipse": "ellipses",
    "cuboid": "cuboids", "mask": "masks", "skeleton": "skeletons",
}  # fmt: skip


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
    question       ``tag``; boxes, polygons and other shapes are left alone
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
        for image in root.iter("image"):
            item, size = image.get("name"), {key: image.get(key) for key in ("width", "height")}
            into.about_item(item, **size)
            labels = []
            for shape in image:
                if shape.get("source") in ("auto", "semi-auto") and not into.predictions:
                    into.leave_out("made automatically")
                elif shape.tag == "tag":
                    labels.append(shape.get("label"))
                elif shape.tag in SHAPES:
                    into.other("shapes", SHAPES[shape.tag])
            if labels:
                into.choices("tag", item, who, labels)


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
    question       ``tag`` (``className`` of tags); boxes and other shapes are left alone
    time           ``createdAt``
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
    said: dict[Any, tuple[list[Any], Any]] = {}
    for instance in row["instances"]:
        if not isinstance(instance, dict):
            continue
        if str(instance.get("creationType")).lower() in ("preannotation", "prediction") and not into.predictions:
            into.leave_out("pre-annotations")
            continue
        by = instance.get("createdBy")
        who = by.get("email") if isinstance(by, dict) else None
        who = who if isinstance(who, str) else meta.get("annotatorEmail")
        if instance.get("type") == "tag":
            labels, _ = said.setdefault(str(who) if who is not None else None, ([], instance.get("createdAt")))
            labels.append(instance.get("className"))
        else:
            into.other("instances", f"instances of type {instance.get('type')}")
    for who, (labels, when) in said.items():
        into.choices("tag", item, who, labels, when)


NEEDED = {"image_id", "class_name", "rad_id", "x_min", "y_min", "x_max", "y_max"}
NOTHING = "no finding"


def recognises_vindr(peek: Peek) -> bool:
    """The columns of the boxes of radiologists."""
    return set(peek.columns) >= NEEDED


def read_vindr(files: ExportFiles, into: Collector) -> None:
    """VinDr and its like: a CSV of boxes with the radiologist who drew each.

    =============  ==============================================================================================
    item           ``image_id``
    annotator      ``rad_id``
    question       ``findings``: the classes that a radiologist found in an image; "No finding" is the empty set
    left alone     the boxes themselves
    =============  ==============================================================================================
    """
    found: dict[tuple[str, str], list[str]] = {}
    for row in files.rows(files.names[0]):
        item, who, name = row["image_id"], row["rad_id"], row["class_name"]
        if item is None or who is None or name is None:
            into.leave_out("without an item or an annotator")
            continue
        labels = found.setdefault((item, who), [])
        if name.strip().lower() != NOTHING:
            labels.append(name)
            into.other("boxes", "boxes")
    empty = any(not labels for labels in found.values())
    for (item, who), labels in found.items():
        if empty or len(set(labels)) > 1:
            into.several("findings")
        into.choices("findings", item, who, labels)


ANNOTATORS = ("annotator_id", "annotator", "rad_id", "user_id", "worker_id")


def recognises_coco(peek: Peek) -> bool:
    """Images, categories, and annotations with somebody who made them."""
    whole = peek.whole("images", "annotations", "categories")
    if not {"images", "annotations", "categories"} <= set(whole):
        return False
    made = whole["annotations"]
    return isinstance(made, list) and bool(made) and isinstance(made[0], dict) and bool(_who(made[0]))


def _who(made: dict[str, Any]) -> str | None:
    return next((key for key in ANNOTATORS if key in made), None)


def read_coco(files: ExportFiles, into: Collector) -> None:
    """COCO with annotators: a JSON object of images, categories and annotations, each with its annotator.

    There is no standard field: ``annotator_id``, ``annotator``, ``rad_id``, ``user_id``, ``worker_id`` are looked for.
    Boxes are read, also those around masks; the masks themselves have no table yet. Who has no annotation on an image
    is not known to have looked at it.
    """
    whole = files.whole(files.names[0])
    for image in whole.get("images") or []:
        if isinstance(image, dict):
            into.about_item(image.get("id"), file_name=image.get("file_name"))
    kinds = [kind for kind in whole.get("categories") or [] if isinstance(kind, dict)]
    names = {str(kind.get("id")): str(kind.get("name", kind.get("id"))) for kind in kinds}
    drawn: dict[tuple[Any, Any], list[tuple[Any, ...]]] = {}
    for made in whole.get("annotations") or []:
        if not isinstance(made, dict):
            continue
        if made.get("segmentation"):
            into.other("annotations", "masks")
        box = made.get("bbox")
        x, y, width, height = (number(v) for v in box) if isinstance(box, list) and len(box) == 4 else (None,) * 4
        item, who = named(made.get("image_id")), named(made.get(_who(made) or ""))
        if x is None or y is None or not width or not height or width < 0 or height < 0:
            into.leave_out("without a box of positive width and height")
        elif item is None or who is None:
            into.leave_out("without an item or an annotator")
        else:
            name = names.get(str(made.get("category_id")), str(made.get("category_id")))
            drawn.setdefault((item, who), []).append((name, x, y, x + width, y + height))
    for (item, who), boxes in drawn.items():
        into.answer("boxes", "boxes", item, who, boxes)


def recognises_lidc(peek: Peek) -> bool:
    """The element that such files begin with."""
    names = peek.ending(".xml")
    head = peek.head if peek.files.single else peek.files.text(names[0], 4096) if names else ""
    return "<LidcReadMessage" in head


def read_lidc(files: ExportFiles, into: Collector) -> None:
    """LIDC-IDRI: the XML of four readers of a CT scan.

    A nodule has an id of its own for each reader, so that nodules must be matched by overlap before their
    characteristics (1 to 5) can be compared; and readers are anonymous, not the same across scans. Nodules are counted
    and left alone.
    """
    for name in files.names:
        if not name.lower().endswith(".xml"):
            continue
        root = root_of(files, name)
        scan = root.findtext("ResponseHeader/SeriesInstanceUid")
        into.about_item(scan, readers=len(root.findall("readingSession")))
        for session in root.iter("readingSession"):
            for _ in session.iter("unblindedReadNodule"):
                into.other("nodules", "nodules, which must be matched between readers by overlap")
            into.leave_out("marks that are no nodules", sum(1 for _ in session.iter("nonNodule")))
