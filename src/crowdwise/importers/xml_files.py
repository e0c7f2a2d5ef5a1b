"""XML of exports, parsed without what could harm: no document types, no entities."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from crowdwise.errors import ReadError
from crowdwise.importers.export_files import ExportFiles


def root_of(files: ExportFiles, name: str) -> ElementTree.Element:
    """The root element of a file, with the names of elements without their namespace."""
    return parse_xml(files.text(name), f"{files.path}: {name}")


def parse_xml(text: str, name: str) -> ElementTree.Element:
    """The root element of a text, with the names of elements without their namespace."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ReadError(f"{name} declares a document type, which exports do not.")
    try:
        root = ElementTree.fromstring(text.encode(errors="replace"))
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise ReadError(f"{name} is no whole XML ({error}).") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root
