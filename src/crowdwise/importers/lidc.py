"""LIDC-IDRI: the XML of four readers of a CT scan.

A nodule has an id of its own for each reader, so that nodules must be matched by overlap before their characteristics
(1 to 5) can be compared; and readers are anonymous, not the same across scans. Nodules are counted and left alone.
"""

from __future__ import annotations

from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek, root_of


def recognises(peek: Peek) -> bool:
    """The element that such files begin with."""
    names = peek.ending(".xml")
    head = peek.head if peek.files.single else peek.files.text(names[0], 4096) if names else ""
    return "<LidcReadMessage" in head


def read(files: ExportFiles, into: Collector) -> None:
    """Count the nodules of each reading session."""
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
