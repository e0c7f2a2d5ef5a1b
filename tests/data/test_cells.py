"""A small file that spans more cells than there is room for is an error, whatever its format, before it is loaded."""

import json
import os
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

import crowdwise as cw
from crowdwise.core import loop
from crowdwise.data import masks, plain_files
from crowdwise.data.files import read_table
from crowdwise.data.sheets import MAIN, write_xlsx
from crowdwise.errors import InputError, InputWarning, LabelError, ReadError, SizeError

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


def merged(path: Path, rows: list[list[Any]], *ranges: str) -> Path:
    """A workbook with one sheet and merged cells."""
    with zipfile.ZipFile(write_xlsx(path, {"votes": rows})) as book:
        sheet = book.read("xl/worksheets/s1.xml").decode()
    cells = "".join(f'<mergeCell ref="{place}"/>' for place in ranges)
    return with_sheet(path, sheet.replace("</sheetData>", f"</sheetData><mergeCells>{cells}</mergeCells>"))


TALL = [["item", "annotator", "label"], ["q", "ann", "x"], [None, "bob", "y"], [], [None, "cid", "x"], ["r", "ann", 1]]


def test_merged_cells_are_filled_down_and_said(tmp_path: Path) -> None:
    with pytest.warns(InputWarning, match="filled with the value in the first of them: 2 of column 'item'"):
        votes = cw.read_votes(merged(tmp_path / "a.xlsx", TALL, "A2:A5", "B9:B20"))
    rows = ["q", "q", "q", "r"]
    assert votes.to_frame("dict")["item"].tolist() == rows
    with pytest.warns(InputWarning, match="2 of column 'item'"):  # the sheet begins at C3
        away = [[], [], *([None, None, *row] if row else [] for row in TALL)]
        assert cw.read_votes(merged(tmp_path / "b.xlsx", away, "C4:C7")).to_frame("dict")["item"].tolist() == rows
    with pytest.raises(LabelError, match=r"2 rows have no item .*: sheet rows 3, 5"):  # empty, and not merged
        cw.read_votes(write_xlsx(tmp_path / "c.xlsx", {"votes": TALL}))
    tall = cell("q", 'table:number-rows-spanned="2"') + cell("ann") + cell("x")
    below = "<table:covered-table-cell/>" + cell("bob") + cell("y")
    names = "".join(map(cell, ROWS[0]))
    sheet = "".join(f"<table:table-row>{row}</table:table-row>" for row in (names, tall, below))
    with pytest.warns(InputWarning, match="1 of column 'item'"):
        assert cw.read_votes(ods(tmp_path / "d.ods", sheet)).to_frame("dict")["item"].tolist() == ["q", "q"]


def test_headings_over_groups_of_columns_are_titles(tmp_path: Path) -> None:
    head = [["item", "Team A", None, "Team B", None], [None, "ann", "bob", "cid", "dan"]]
    rows = [*head, ["a", "x", "y", "x", "x"], ["b", "x", None, "y", "y"], [None, "y", "y", "y", "x"]]
    path = merged(tmp_path / "a.xlsx", rows, "A1:A2", "B1:C1", "D1:E1", "A4:A5", "B4:C4")
    with pytest.warns(InputWarning) as said:
        table, _ = read_table(path)
    assert table.columns == ["item", "ann", "bob", "cid", "dan"] and table["item"].to_list() == ["a", "b", "b"]
    words = " ".join(str(warning.message) for warning in said)
    assert "1 of column 'item'" in words and "1 merged cell below the names of columns spans several columns" in words
    assert "found in row 2" in words


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


MASKS = "item,annotator,mask,height,width\n"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("1000000000000000000,1000000000,1000000000", "does not fit into"),
        ("9223372036854775807 9223372036854775807 6,2,2", "sum to 18,446,744,073,709,551,620"),  # 4, in 64 bits
        ("4,2.5,2", "a whole number of pixels"),
        ("4,inf,2", "a whole number of pixels"),
        ("4,-2,-2", "a whole number of pixels"),
        (f"{'o' * 300_000},2,2", "more than 64 bits"),
        (f"1 {'9' * 5000},2,2", "The run lengths sum to 100,000,000,000,000,000,000"),
    ],
)
def test_run_lengths_say_no_more_than_there_is_room_for(tmp_path: Path, row: str, why: str) -> None:
    """In 64 bits the second wrapped to the size of the mask, and ended the process; the last but one took quadratic
    time; parts of pixels were cut off without a word."""
    (tmp_path / "masks.csv").write_text(f"{MASKS}a,x,{row}\n")
    with pytest.raises((LabelError, SizeError), match=why):
        cw.read_masks(tmp_path / "masks.csv")


@pytest.mark.parametrize(
    "mask",
    [{"size": [10**9, 10**9], "counts": [10**18]}, {"size": "ab", "counts": None}, {"x": 1},
     {"size": [2, 2], "counts": [1.5, 2.5]}, {"size": [-2, -2], "counts": [4]}],
)  # fmt: skip
def test_masks_of_coco_are_checked(mask: dict[str, Any]) -> None:
    with pytest.raises((LabelError, SizeError)):
        cw.Masks.from_records([("a", "x", mask)])


def test_many_masks_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "limit", lambda: 1e6)
    rows = "".join(f"a{n},x,40000,200,200\n" for n in range(40))
    (tmp_path / "masks.csv").write_text(MASKS + rows)
    with pytest.raises(SizeError, match="beside masks of"):
        cw.read_masks(tmp_path / "masks.csv")
    (tmp_path / "masks.csv").write_text("\n".join((MASKS + rows).splitlines()[:11]))
    assert len(cw.read_masks(tmp_path / "masks.csv")) == 10


def test_images_and_arrays_larger_than_their_files_are_refused(tmp_path: Path) -> None:
    """A picture of 4e18 pixels in 100 bytes, an array of 7 EB, a picture that starts a program, files without end."""
    Image.new("1", (3, 3)).save(tmp_path / "large.png")
    whole = (tmp_path / "large.png").read_bytes()
    header = b"IHDR" + (2**31 - 1).to_bytes(4, "big") * 2 + whole[24:29]
    (tmp_path / "large.png").write_bytes(whole[:12] + header + zlib.crc32(header).to_bytes(4, "big") + whole[33:])
    np.save(tmp_path / "large.npy", np.zeros((2, 2)))
    array = (tmp_path / "large.npy").read_bytes().replace(b"(2, 2), }" + b" " * 14, b"(999999999, 999999999)}")
    assert b"999" in array
    (tmp_path / "large.npy").write_bytes(array)
    (tmp_path / "large.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zeros.png").symlink_to("/dev/zero")
    for name in ("large.png", "large.npy", "large.eps", "pipe.png", "zeros.png", f"{'a' * 5000}.png"):
        (tmp_path / "masks.csv").write_text(f"item,annotator,mask\na,x,{name}\n")
        with pytest.raises((ReadError, SizeError)):
            cw.read_masks(tmp_path / "masks.csv")


@pytest.mark.parametrize("box", ["0,0,1e200,1e200", "-1e308,0,1e308,1", "0,0,1e-200,1e-200"])
def test_boxes_without_a_computable_area_are_refused(tmp_path: Path, box: str) -> None:
    """Two equal ones did not overlap, and the result had no object, without a word."""
    (tmp_path / "boxes.csv").write_text(f"item,annotator,label,x1,y1,x2,y2\na,x,c,{box}\na,y,c,{box}\n")
    with pytest.raises(InputError, match="coordinates up to 1e"):
        cw.read_boxes(tmp_path / "boxes.csv")
    with pytest.raises(InputError, match="must be finite"):
        cw.Boxes.from_codes(
            [0], [0], [0], [[float(edge)] for edge in box.split(",")], items=["a"], annotators=["x"], classes=["c"]
        )


def test_answers_that_are_compared_each_with_each_are_counted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """60,000 boxes on an image would take 215 GB, 30,000 labels of 30,000 spans 40 GB."""
    monkeypatch.setattr(loop, "free_memory", lambda: 2.0**24)
    boxes = cw.Boxes.from_records([("i", f"w{n}", "c", n / 1e4, 0, 1 + n / 1e4, 1) for n in range(1200)])
    spans = cw.Spans.from_records([("i", f"w{n}", "P", n, n + 2000) for n in range(1200)])
    named = cw.Spans.from_records([(f"i{n}", "w", f"P{n}", 0, 5) for n in range(900)])
    texts = cw.Texts.from_records([("i", f"w{n}", f"word{n} {n * 7919}") for n in range(6000)])
    masks_ = cw.Masks.from_records([("i", f"w{n}", np.eye(400)) for n in range(40)])
    for answers in (boxes, spans, named, texts, masks_):
        with pytest.raises(SizeError, match="are free"):
            cw.aggregate(answers)


def test_one_long_text_does_not_make_all_long(tmp_path: Path) -> None:
    """A table of numpy text gives every row the length of the longest: 32 GB for these 4 MB."""
    rows = "".join(f"a{n},x,c\n" for n in range(2000))
    (tmp_path / "texts.csv").write_text(f"item,annotator,text\na,x,{'b' * 4_000_000}\n{rows}")
    assert len(cw.read_texts(tmp_path / "texts.csv")) == 2001


def test_long_labels_are_not_compared_letter_by_letter(tmp_path: Path) -> None:
    """Two labels of 30,000 letters took minutes."""
    rows = "".join(f"i{n},x,{'a' * 30_000}b\n" for n in range(60))
    (tmp_path / "labels.csv").write_text(f"item,annotator,label\n{rows}j,x,{'a' * 30_000}c\n")
    began = time.process_time()
    assert [p.why for p in cw.check(tmp_path / "labels.csv").proposals] == ["looks like a misspelling"]
    assert time.process_time() - began < 20


BOOLEANS = bytes([0x1B, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0x11])  # field 1: a map of 2^35 true to true
MAPS = bytes([0x19, 0xFB, 0xA0, 0x9C, 0x01]) + bytes([0x90, 0x4E, 0x11]) * 20_000  # a list of 20,000 maps of 10,000


@pytest.mark.parametrize("footer", [BOOLEANS, MAPS])
def test_footers_of_parquet_say_no_more_than_they_hold(tmp_path: Path, footer: bytes) -> None:
    """Booleans in a map were read without a byte each: a few bytes kept the process busy for hours."""
    path = tmp_path / "votes.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ReadError, match="could not be read as parquet"):
        cw.read_votes(path)


def test_lists_among_the_names_of_an_empty_one(tmp_path: Path) -> None:
    rows = [{"item": 1, "annotator": [[1]], "label": "a"}, {"item": 2, "annotator": None, "label": "b"}]
    path = tmp_path / "votes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(LabelError, match="1 row has no annotator"):
        cw.read_votes(path)
