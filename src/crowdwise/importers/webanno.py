"""INCEpTION and WebAnno: the project's folder (or archive) with WebAnno TSV 3 of each annotator.

=============  ==============================================================================================
item           the folder of the document
annotator      the name of the file; ``curation/`` is the truth
question       each layer of spans (``#T_SP``), by its last name
left out       ``INITIAL_CAS``
=============  ==============================================================================================
"""

from __future__ import annotations

import re
from pathlib import PurePath

from crowdwise.importers import collect
from crowdwise.importers.collect import Collector, Span
from crowdwise.importers.export_files import ExportFiles, Peek

FORMAT, LAYER = "#FORMAT=WebAnno TSV", "#T_SP="
GROUP = re.compile(r"^(.*?)(?:\[(\d+)\])?$")


def recognises(peek: Peek) -> bool:
    """The first line of WebAnno TSV."""
    if peek.files.single:
        return peek.head.startswith(FORMAT)
    names = peek.ending(".tsv")
    return bool(names) and peek.files.text(names[0], 100).startswith(FORMAT)


def read(files: ExportFiles, into: Collector) -> None:
    """Read one document of one annotator per file."""
    for name in files.names:
        place = PurePath(name)
        if not name.lower().endswith(".tsv"):
            continue
        if place.stem == "INITIAL_CAS":
            into.leave_out("documents as they were before annotation")
            continue
        text, tokens, layers = _parsed(files.text(name))
        item, curated = place.parent.name or place.stem, "curation" in place.parts
        if not text:
            into.leave_out("empty documents")
            continue
        into.about_item(item, text=text)
        for layer, spans in layers.items():
            if curated:
                into.gold(layer, item, spans, collect.SPANS)
            else:
                into.spans(layer, item, place.stem, text, spans, tokens=tokens)


def _parsed(content: str) -> tuple[str, list[tuple[int, int]], dict[str, list[Span]]]:
    """The text of a document, its tokens, and the spans of each layer."""
    layers: list[tuple[str, int]] = []
    text, tokens, rows = "", [], []
    for line in content.splitlines():
        if line.startswith(LAYER):
            name, *features = line.removeprefix(LAYER).split("|")
            layers.append((name.rpartition(".")[2], max(1, len(features))))
        elif not line.startswith("#") and line.count("\t") >= 2:
            cells = line.rstrip("\n").split("\t")
            first, dash, last = cells[1].partition("-")
            if dash and first.isdigit() and last.isdigit() and "." not in cells[0]:
                start, end = int(first), int(last)
                text = text.ljust(start) + cells[2] if start >= len(text) else text
                tokens.append((start, end))
                rows.append(cells[3:])
    found: dict[str, list[Span]] = {}
    at = 0
    for name, width in layers:
        found[name] = _spans([row[at + width - 1] if len(row) >= at + width else "_" for row in rows], tokens)
        at += width
    return text, tokens, found


def _spans(cells: list[str], tokens: list[tuple[int, int]]) -> list[Span]:
    """Spans from the cells of tokens: ``PER[1]`` on several tokens is one span."""
    out: list[Span] = []
    groups: dict[tuple[str, str], list[int]] = {}
    for (start, end), cell in zip(tokens, cells, strict=True):
        for value in cell.split("|"):
            match = GROUP.match(value)
            if match is None or match.group(1) in ("_", "*", ""):
                continue
            label, group = match.group(1), match.group(2)
            if group is None:
                out.append((start, end, label))
            else:
                groups.setdefault((label, group), []).extend((start, end))
    return out + [(min(places), max(places), label) for (label, _), places in groups.items()]
