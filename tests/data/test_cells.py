"""A small file that spans more cells than there is room for is an error, whatever its format, before it is loaded."""

import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import polars as pl
import pytest

from crowdwise.data import plain_files
from crowdwise.data.files import read_table
from crowdwise.errors import ReadError, SizeError
from spreadsheets import MAIN, write_xlsx

ROWS = [["item", "annotator", "label"], ["a", "ann", "cat"], ["b", "bob", "dog"]]


def with_sheet(path: Path, sheet: str | bytes, name: str = "xl/worksheets/s1.xml") -> Path:
    """A workbook whose sheet is replaced."""
    write_xlsx(path, {"votes": ROWS})
    with zipfile.ZipFile(path) as book:
        parts = {info.filename: book.read(info) for info in book.infolist()}
    if name != "xl/worksheets/s1.xml":
        del parts["xl/worksheets/s1.xml"]
        parts = {key: text.replace(b"worksheets/s1.xml", name[3:].encode()) for key, text in parts.items()}
    parts[name] = sheet.encode() if isinstance(sheet, str) else sheet
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for key, text in parts.items():
            book.writestr(key, text)
    return path


def page(rows: str, mark: str = "") -> str:
    space = f"xmlns:{mark[:-1]}='{MAIN}'" if mark else f"xmlns='{MAIN}'"
    return f"<{mark}worksheet {space}><{mark}sheetData>{rows}</{mark}sheetData></{mark}worksheet>"


FAR = {
    "one cell": page("<row r='1'><c r='A1'><v>1</v></c></row><row r='1048576'><c r='XFD1048576'><v>1</v></c></row>"),
    "prefixed": page("<x:row r='1048576'><x:c r='XFD1048576'><x:v>1</x:v></x:c></x:row>", "x:"),
    "two corners": page("<row r='1'><c r='XFD1'><v>1</v></c></row><row r='1048576'><c r='A1048576'><v>1</v></c></row>"),
    "after the last": page("<row r='1048575'/><row><c r='XFC1048576'/><c><v>1</v></c></row>"),
    "spaces": page("<row\n r = '1048576' ><c\tt='n' r = 'XFD1048576' ><v>1</v></c></row>"),
}


@pytest.mark.parametrize("kind", [*FAR, "elsewhere"])
def test_a_cell_far_away_is_an_error_and_not_the_end_of_the_process(tmp_path: Path, kind: str) -> None:
    name = "xl/picture.png" if kind == "elsewhere" else "xl/worksheets/s1.xml"
    path = with_sheet(tmp_path / "far.xlsx", FAR.get(kind, FAR["one cell"]), name)
    code = "import sys; from crowdwise.data.files import read_table; read_table(sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert run.returncode == 1 and "SizeError" in run.stderr and "cells, empty ones among them" in run.stderr


def test_sheets_within_the_limit_are_read(tmp_path: Path) -> None:
    assert read_table(write_xlsx(tmp_path / "a.xlsx", {"votes": ROWS}))[0].height == 2
    cells = "".join(f"<row>{''.join(f'<c><v>{n}</v></c>' for n in range(3))}</row>" for _ in range(4))
    assert read_table(with_sheet(tmp_path / "b.xlsx", page(cells)))[0].shape == (3, 3)  # cells without places
    with pytest.raises(ReadError, match="is damaged"):
        read_table(with_sheet(tmp_path / "c.xlsx", page("<row><c></row>")))


def ods(path: Path, rows: str) -> Path:
    names, urn = ("office", "table", "text"), "urn:oasis:names:tc:opendocument:xmlns"
    spaces = " ".join(f'xmlns:{name}="{urn}:{name}:1.0"' for name in names)
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        book.writestr("META-INF/manifest.xml", "<manifest/>")
        book.writestr(
            "content.xml",
            f'<office:document-content {spaces}><office:body><office:spreadsheet><table:table table:name="s">'
            f"{rows}</table:table></office:spreadsheet></office:body></office:document-content>",
        )
    return path


def cell(text: str, more: str = "") -> str:
    return f'<table:table-cell {more} office:value-type="string"><text:p>{text}</text:p></table:table-cell>'


def test_open_document_sheets_are_counted_as_often_as_they_repeat(tmp_path: Path) -> None:
    rows = "".join(f"<table:table-row>{''.join(map(cell, row))}{{}}</table:table-row>" for row in ROWS)
    blank = '<table:table-cell table:number-columns-repeated="16381"/>'
    end = f'<table:table-row table:number-rows-repeated="1048573">{blank}</table:table-row>'
    assert read_table(ods(tmp_path / "a.ods", rows.replace("{}", blank) + end))[0].shape == (2, 3)
    wide = cell("x", 'table:number-columns-repeated="16384"')
    for far in (
        rows.replace("{}", "") + f'<table:table-row table:number-rows-repeated="1048573">{wide}</table:table-row>',
        rows.replace("{}", blank) + end + f"<table:table-row>{blank}{cell('x')}</table:table-row>",
    ):
        with pytest.raises(SizeError, match="cells, empty ones among them"):
            read_table(ods(tmp_path / "b.ods", far))


def test_binary_sheets_are_counted(tmp_path: Path) -> None:
    records = b"\x00\x04" + struct.pack("<I", 1_048_575) + b"\x05\x0c" + struct.pack("<Id", 16_383, 1.0)
    path = tmp_path / "a.xlsb"
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("xl/worksheets/sheet1.bin", records)
    with pytest.raises(SizeError, match="spans 17,179,869,184 cells"):
        read_table(path)


def test_text_json_and_parquet_are_counted_in_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_files, "limit", lambda: 16.0 * 10_000)  # 10,000 cells
    wide = ",".join(f"c{i}" for i in range(200))
    (tmp_path / "a.csv").write_text(wide + "\n" + "1\n" * 100)
    (tmp_path / "b.jsonl").write_text("".join(f'{{"n{i}": 1}}\n' for i in range(2_000)))
    (tmp_path / "c.json").write_text("[" + ",".join(f'{{"n{i}": 1}}' for i in range(200)) + "]")
    pl.DataFrame({"a": [1] * 30_000}).write_parquet(tmp_path / "d.parquet")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(SizeError, match="cells, empty ones among them"):
            read_table(path)
    long = "line\n" * 100
    (tmp_path / "e.csv").write_text("x,y,z\n" + f'"{long}",1,2\n' * 140)
    assert read_table(tmp_path / "e.csv")[0].shape == (140, 3)  # lines inside quotes are not rows
