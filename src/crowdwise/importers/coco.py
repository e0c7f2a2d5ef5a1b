"""COCO with annotators: a JSON object of images, categories and annotations, each with a field that says who made it.

There is no standard field: ``annotator_id``, ``annotator``, ``rad_id``, ``user_id``, ``worker_id`` are looked for.
Boxes are read, also those around masks; the masks themselves have no table yet. Who has no annotation on an image is
not known to have looked at it.
"""

from __future__ import annotations

from typing import Any

from crowdwise.importers.collect import Collector, named, number
from crowdwise.importers.export_files import ExportFiles, Peek

ANNOTATORS = ("annotator_id", "annotator", "rad_id", "user_id", "worker_id")


def recognises(peek: Peek) -> bool:
    """Images, categories, and annotations with somebody who made them."""
    whole = peek.whole("images", "annotations", "categories")
    if not {"images", "annotations", "categories"} <= set(whole):
        return False
    made = whole["annotations"]
    return isinstance(made, list) and bool(made) and isinstance(made[0], dict) and bool(_who(made[0]))


def _who(made: dict[str, Any]) -> str | None:
    return next((key for key in ANNOTATORS if key in made), None)


def read(files: ExportFiles, into: Collector) -> None:
    """Read the boxes of each annotator on each image, and what is known of images."""
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
