"""A minimal writer of Excel files, for tests."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STYLES = "application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def write_xlsx(path: Path, sheets: Mapping[str, Sequence[Sequence[Any]]]) -> Path:
    """Sheets of text, numbers, booleans, dates and empty cells (``None``)."""
    numbers = range(1, len(sheets) + 1)
    pages = [f"<sheet name={quoteattr(n)} sheetId='{i}' r:id='s{i}'/>" for i, n in zip(numbers, sheets, strict=True)]
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
    rels = "application/vnd.openxmlformats-package.relationships+xml"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr(
            "[Content_Types].xml",
            f"<Types xmlns='{PACKAGE}/content-types'><Default Extension='rels' ContentType='{rels}'/><Default "
            "Extension='xml' ContentType='application/xml'/><Override PartName='/xl/workbook.xml' "
            f"ContentType='{kind}'/><Override PartName='/xl/styles.xml' ContentType='{STYLES}'/></Types>",
        )
        book.writestr("_rels/.rels", _relations([("r1", "officeDocument", "xl/workbook.xml")]))
        book.writestr(
            "xl/workbook.xml",
            f"<workbook xmlns='{MAIN}' xmlns:r='{RELATIONS}'><sheets>{''.join(pages)}</sheets></workbook>",
        )
        formats = "<xf numFmtId='0'/><xf numFmtId='14' applyNumberFormat='1'/>"
        book.writestr(
            "xl/styles.xml", f"<styleSheet xmlns='{MAIN}'><cellXfs count='2'>{formats}</cellXfs></styleSheet>"
        )
        targets = [("st", "styles", "styles.xml")]
        targets += [(f"s{i}", "worksheet", f"worksheets/s{i}.xml") for i in numbers]
        book.writestr("xl/_rels/workbook.xml.rels", _relations(targets))
        for i, rows in zip(numbers, sheets.values(), strict=True):
            lines = [f"<row r='{r}'>{_cells(row, r)}</row>" for r, row in enumerate(rows, 1)]
            page = f"<worksheet xmlns='{MAIN}'><sheetData>{''.join(lines)}</sheetData></worksheet>"
            book.writestr(f"xl/worksheets/s{i}.xml", page)
    return path


def _relations(found: Sequence[tuple[str, str, str]]) -> str:
    parts = [f"<Relationship Id='{i}' Type='{RELATIONS}/{kind}' Target='{to}'/>" for i, kind, to in found]
    return f"<Relationships xmlns='{PACKAGE}/relationships'>{''.join(parts)}</Relationships>"


def _cells(row: Sequence[Any], r: int) -> str:
    out = []
    for c, value in enumerate(row):
        place = f"{chr(65 + c)}{r}"
        if isinstance(value, datetime.date):
            days = (value - datetime.date(1899, 12, 30)).days
            out.append(f"<c r='{place}' s='1'><v>{days}</v></c>")
        elif isinstance(value, bool):
            out.append(f"<c r='{place}' t='b'><v>{int(value)}</v></c>")
        elif isinstance(value, (int, float)):
            out.append(f"<c r='{place}'><v>{value}</v></c>")
        elif value is not None:
            text = f"<t xml:space='preserve'>{escape(value)}</t>"
            out.append(f"<c r='{place}' t='inlineStr'><is>{text}</is></c>")
    return "".join(out)
