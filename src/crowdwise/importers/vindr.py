"""VinDr and its like: a CSV of boxes with the radiologist who drew each.

=============  ==============================================================================================
item           ``image_id``
annotator      ``rad_id``
question       ``findings``: the classes that a radiologist found in an image; "No finding" is the empty set
left alone     the boxes themselves
=============  ==============================================================================================
"""

from __future__ import annotations

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

NEEDED = {"image_id", "class_name", "rad_id", "x_min", "y_min", "x_max", "y_max"}
NOTHING = "no finding"


def recognises(peek: Peek) -> bool:
    """The columns of the boxes of radiologists."""
    return set(peek.columns) >= NEEDED


def read(files: ExportFiles, into: Collector) -> None:
    """Read one box, or the word that there is none, per row."""
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
