"""CVAT for images 1.1: the XML of a job, or a folder or archive with one for each job.

=============  ==============================================================================================
item           ``name`` of an image
annotator      the assignee of the job, else the name of the file or of its folder
question       ``tag``; boxes, polygons and other shapes are left alone
left out       shapes and tags that were made automatically
=============  ==============================================================================================
"""

from __future__ import annotations

from pathlib import PurePath

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek, root_of

SHAPES = {
    "box": "boxes", "polygon": "polygons", "polyline": "lines", "points": "points", "ellipse": "ellipses",
    "cuboid": "cuboids", "mask": "masks", "skeleton": "skeletons",
}  # fmt: skip


def recognises(peek: Peek) -> bool:
    """An element ``annotations`` with a version and meta data."""
    names = peek.ending(".xml")
    if not names or len(names) < len(peek.names):
        return False
    head = peek.head if peek.files.single else peek.files.text(names[0], 4096)
    return "<annotations>" in head and "<version>1" in head and "<meta>" in head


def read(files: ExportFiles, into: Collector) -> None:
    """Read one job per file."""
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
