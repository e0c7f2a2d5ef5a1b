"""COCO with annotators: a JSON object of images, categories and annotations, each with a field that says who made it.

There is no standard field: ``annotator_id``, ``annotator``, ``rad_id``, ``user_id``, ``worker_id`` are looked for.
Boxes and masks have no table yet and are left alone.
"""

from __future__ import annotations

from typing import Any

from crowdwise.importers.collect import Collector
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
    """Count boxes and masks, and read what is known of images."""
    whole = files.whole(files.names[0])
    for image in whole.get("images") or []:
        if isinstance(image, dict):
            into.about_item(image.get("id"), file_name=image.get("file_name"))
    for made in whole.get("annotations") or []:
        if isinstance(made, dict):
            into.other("annotations", "masks" if made.get("segmentation") else "boxes")
