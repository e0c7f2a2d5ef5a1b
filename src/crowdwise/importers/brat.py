"""brat: standoff files, in a folder (or an archive) with a folder for each annotator.

=============  ==============================================================================================
item           the name of the file
annotator      the folder that it is in
question       ``entities``: ``T`` lines; relations, events, attributes and notes are left alone
left out       entities in several pieces
=============  ==============================================================================================
"""

from __future__ import annotations

from pathlib import PurePath

from crowdwise.data.source import EVERYONE
from crowdwise.importers.collect import Collector
from crowdwise.importers.export_files import ExportFiles, Peek

OTHERS = {"R": "relations", "E": "events", "A": "attributes", "M": "attributes", "*": "relations"}


def recognises(peek: Peek) -> bool:
    """Files that end in ``.ann``, each beside its text."""
    found = peek.ending(".ann")
    return bool(found) and all(f"{name[:-4]}.txt" in peek.names for name in found[:20])


def read(files: ExportFiles, into: Collector) -> None:
    """Read one document per file."""
    for name in files.names:
        place = PurePath(name)
        if place.suffix.lower() != ".ann" or f"{name[:-4]}.txt" not in files.names:
            continue
        text, spans = files.text(f"{name[:-4]}.txt"), []
        for line in files.text(name).splitlines():
            key, _, rest = line.partition("\t")
            if key[:1] != "T":
                if key[:1] in OTHERS:
                    into.other(OTHERS[key[:1]], OTHERS[key[:1]])
                continue
            words = rest.partition("\t")[0].split()
            if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
                spans.append((int(words[1]), int(words[2]), words[0]))
            else:
                into.leave_out("entities in several pieces")
        into.about_item(place.stem, text=text)
        into.spans("entities", place.stem, place.parent.name or EVERYONE, text, spans)
