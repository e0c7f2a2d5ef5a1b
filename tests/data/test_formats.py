"""Files people have: spreadsheets, JSON of all shapes, other encodings, archives. Each gives the same votes."""

from __future__ import annotations

import gzip
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdwise as cw
from command_line import run
from crowdwise.data import plain_files
from crowdwise.data.files import read_table
from crowdwise.data.sheets import write_xlsx
from crowdwise.errors import (
    ColumnError,
    CrowdwiseError,
    DuplicateError,
    InputWarning,
    LabelError,
    ParameterError,
    ReadError,
    SizeError,
)

ROWS = [("q1", "ann", "oui"), ("q1", "bob", "non"), ("q2", "ann", "peut-être"), ("q2", "zoë", "oui")]
NAMES = ("item", "annotator", "label")
RECORDS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
CSV = "\n".join([",".join(NAMES), *map(",".join, ROWS)]) + "\n"
VOTES = cw.Votes.from_records(ROWS).to_frame()


def same(path: Path, **options: Any) -> bool:
    return bool(cw.read_votes(path, **options).to_frame().equals(VOTES))


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return path


# -------------------------------------------------------------------- JSON

SHAPES: dict[str, Any] = {
    "an array of objects": RECORDS,
    "rows under a header": [list(NAMES), *map(list, ROWS)],
    "columns": {name: [row[k] for row in ROWS] for k, name in enumerate(NAMES)},
    "columns of pandas": {name: {str(n): row[k] for n, row in enumerate(ROWS)} for k, name in enumerate(NAMES)},
    "split of pandas": {"columns": list(NAMES), "index": [0, 1, 2, 3], "data": [list(row) for row in ROWS]},
    "a list in an object": {"version": 2, "data": RECORDS},
    "items with answers": [
        {"item": q, "text": f"Text {q}", "annotations": [r for r in RECORDS if r["item"] == q]} for q in ("q1", "q2")
    ],
    "answers by item": {
        q: [{"annotator": r["annotator"], "label": r["label"]} for r in RECORDS if r["item"] == q] for q in ("q1", "q2")
    },
    "names in objects": [
        {"item": {"id": q}, "annotator": {"id": m}, "result": {"label": y, "lang": "fr"}} for q, m, y in ROWS
    ],
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_json_of_any_shape(tmp_path: Path, shape: str, ending: str) -> None:
    text = json.dumps(SHAPES[shape], ensure_ascii=False).encode()
    path = tmp_path / f"votes{ending}"
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    assert same(path)


def test_json_in_the_wide_form(tmp_path: Path) -> None:
    by_item: dict[str, dict[str, str]] = {}
    for q, m, y in ROWS:
        by_item.setdefault(q, {})[m] = y
    (tmp_path / "wide.json").write_text(json.dumps(by_item), encoding="utf-8")
    assert same(tmp_path / "wide.json")
    rows = [{"item": q, "votes": found} for q, found in by_item.items()]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert same(tmp_path / "rows.jsonl")


def test_what_the_name_says_of_json_does_not_matter(tmp_path: Path) -> None:
    lines = "\n".join(map(json.dumps, RECORDS))
    (tmp_path / "lines.json").write_text(lines, encoding="utf-8")
    (tmp_path / "array.jsonl").write_text(json.dumps(RECORDS), encoding="utf-8")
    (tmp_path / "lines.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert all(same(tmp_path / name) for name in ("lines.json", "array.jsonl", "lines.jsonl.gz"))


def test_items_without_answers_are_counted(tmp_path: Path) -> None:
    rows = [*SHAPES["items with answers"], {"item": "q3", "text": "nobody saw it", "annotations": []}]
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    with pytest.warns(InputWarning, match="Left out 1 of 3 objects: 'annotations' is empty"):
        assert same(tmp_path / "a.json")


@pytest.mark.parametrize(
    "row",
    [
        {"annotator": "a", "x": [[1]], "cat": "x", "dog": ""},
        {"annotator 1": [[1]], "label 1": "x", "annotator 2": "c", "label 2": "y"},
        {"annotator 1": "b", "label 1": [1], "annotator 2": "c", "label 2": "y"},
    ],
)
def test_lists_among_columns_of_classes_or_annotators(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "votes.json"
    path.write_text(json.dumps([{"item": item, **row} for item in range(4)]))
    with pytest.raises(ColumnError, match="No column found for"):
        cw.read_votes(path)


def test_objects_with_answers_are_items(tmp_path: Path) -> None:
    answers = [{"user": "a", "label": "x"}, {"user": "b", "label": "y"}]
    for key, items in (("id", [7, 8]), ("text", [0, 1])):
        rows = [{key: n, "annotations": answers} for n in (7, 8)]
        (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
        assert cw.read_votes(tmp_path / "a.json").items.tolist() == items


def test_lists_of_labels_stay_lists(tmp_path: Path) -> None:
    rows = [{"item": 1, "annotator": "a", "labels": ["x", "y"], "spans": [{"start": 1}], "meta": {"lang": "en"}}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows * 2)), encoding="utf-8")
    table, _ = read_table(tmp_path / "a.jsonl")
    assert table.columns == ["item", "annotator", "labels", "lang"] and table["labels"].to_list() == [["x", "y"]] * 2
    assert cw.read_label_sets(tmp_path / "a.jsonl", on_duplicate="first").labels.tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"), ("{", "could not be read as json"), ("[1, 2]", "a list of other values"), ("3", "holds int"),
        ("[]", "has no votes"), ('{"a": [{"x": 1}], "b": [{"x": 2}], "c": 1}', "several lists of objects ('a', 'b')"),
        ("[" * 100_000, "could not be read"),
    ],
)  # fmt: skip
def test_json_that_is_no_table(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    with pytest.raises(ReadError) as caught:
        cw.read_votes(tmp_path / "a.json")
    assert words in str(caught.value)


# -------------------------------------------------------------------- spreadsheets


def test_spreadsheets(tmp_path: Path) -> None:
    rows = [[None, None, None, None], *([*row, None] for row in ROWS), [None] * 4]
    assert same(write_xlsx(tmp_path / "a.xlsx", {"Votes": [list(NAMES), *rows]}))
    more = {"Empty": [], "Votes": [list(NAMES), *ROWS], "Notes": [["x"], ["y"]]}
    with pytest.warns(InputWarning, match=r"sheet 'Votes' was read, and not 'Notes'.*sheet='\.\.\.'"):
        assert same(write_xlsx(tmp_path / "b.xlsx", more))
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        assert same(tmp_path / "b.xlsx", sheet="Votes")
    with pytest.raises(ReadError, match="has no sheet 'votes': it has 'Empty', 'Votes', 'Notes'"):
        cw.read_votes(tmp_path / "b.xlsx", sheet="votes")
    with pytest.raises(ReadError, match="has no cells"):
        cw.read_votes(write_xlsx(tmp_path / "c.xlsx", {"Empty": []}))
    with pytest.raises(ReadError, match="has no votes"):
        cw.read_votes(write_xlsx(tmp_path / "d.xlsx", {"Head": [list(NAMES)]}))


def test_errors_name_the_rows_that_the_spreadsheet_shows(tmp_path: Path) -> None:
    """Rows above the header and empty ones between the others count."""
    rows = [[None] * 3, list(NAMES), ["a", "ann", "x"], [None] * 3, ["b", "ann", "y"], ["NA"] * 3, ["c", None, "x"]]
    with pytest.raises(LabelError, match=r"sheet row 7\."):
        cw.read_votes(write_xlsx(tmp_path / "a.xlsx", {"Empty": [], "S": rows}))
    with pytest.raises(DuplicateError, match=r"in sheet rows 3 and 8"):
        rows[6:] = [[None] * 3, ["a", "ann", "y"]]
        cw.read_votes(write_xlsx(tmp_path / "b.xlsx", {"First": [["x"], ["y"]], "S": rows}), sheet="S")
    rows = [["item", "annotator", "value"], ["a", "ann", 1], [None] * 3, ["b", "ann", "much"]]
    with pytest.raises(LabelError, match=r"value in sheet row 4 \(column 'value'\) is 'much'"):
        cw.read_ratings(write_xlsx(tmp_path / "c.xlsx", {"S": rows}))
    rows = [list(NAMES), ["a", "ann", "x"], [" "] * 3, ["b", "ann", None]]  # blanks are empty, whatever else is
    with pytest.raises(LabelError, match=r"no label .* sheet row 4\."):
        cw.read_votes(write_xlsx(tmp_path / "d.xlsx", {"S": rows}), null_values=("NA",))


def test_cells_of_spreadsheets_keep_their_kinds(tmp_path: Path) -> None:
    cells = [["007", 1, True, 0.5], ["008", 2, False, 2], ["NA", 3, True, 1.25]]
    table, text = read_table(write_xlsx(tmp_path / "a.xlsx", {"S": [["item", "n", "b", "x"], *cells]}))
    assert text and table.to_dict(as_series=False) == {
        "item": ["007", "008", None], "n": [1, 2, 3], "b": [True, False, True], "x": [0.5, 2.0, 1.25],
    }  # fmt: skip
    mixed = write_xlsx(tmp_path / "b.xlsx", {"S": [list(NAMES), [1, "a", 1], [2, "a", "unsure"], [3, "a", 2]]})
    assert cw.read_votes(mixed).classes.tolist() == ["1", "2", "unsure"]


def test_a_sheet_on_the_command_line(tmp_path: Path) -> None:
    wide = [["task", "ann", "bob", "cem", "comments"], *([n, n % 2, n % 2, 1, f"Note {n}"] for n in range(12))]
    done = run("describe", write_xlsx(tmp_path / "sheet.xlsx", {"Team": wide, "Other": [["a"], [1]]}), "--json")
    assert json.loads(done.stdout)["annotators"] == 3 and "Left out column 'comments'" in done.stderr
    assert "sheet 'Team' was read, and not 'Other'" in done.stderr and "--sheet NAME" in done.stderr
    assert (
        json.loads(run("describe", tmp_path / "sheet.xlsx", "--column", "sheet=Team", "--json").stdout)["items"] == 12
    )


def test_spreadsheets_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04 and nothing else")
    (tmp_path / "b.xls").write_bytes(b"\xd0\xcf\x11\xe0 and nothing else")
    for name in ("a.xlsx", "b.xls"):
        with pytest.raises(ReadError, match="spreadsheet"):
            cw.read_votes(tmp_path / name)
    (tmp_path / "c.numbers").write_bytes(b"x")
    with pytest.raises(ReadError, match="export it as Excel or CSV"):
        cw.read_votes(tmp_path / "c.numbers")


# -------------------------------------------------------------------- encodings


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".jsonl", ".json"])
def test_wide_encodings_are_found_and_said(tmp_path: Path, encoding: str, ending: str) -> None:
    text = {".json": json.dumps(RECORDS), ".jsonl": "\n".join(map(json.dumps, RECORDS))}.get(ending, CSV)
    content = (text.replace(",", "\t") if ending == ".tsv" else text).encode(encoding)
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    with pytest.warns(InputWarning, match=rf"a{ending} is not in UTF-8 and was read as UTF-"):
        assert same(path)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".jsonl", ".json"])
def test_latin_1_is_found_and_said(tmp_path: Path, ending: str) -> None:
    plain = {".json": json.dumps(RECORDS, ensure_ascii=False)}
    plain[".jsonl"] = "\n".join(json.dumps(row, ensure_ascii=False) for row in RECORDS)
    content = plain.get(ending, CSV).encode("latin-1")
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    with pytest.warns(InputWarning, match=r"was read as Latin-1 \(Windows-1252\).*encoding='\.\.\.'"):
        assert same(path)


def test_names_of_columns_that_are_not_utf8_stay_different(tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    path.write_bytes("item,Zoë,Zoé\na,x,y\nb,y,y\n".encode("latin-1"))
    with pytest.warns(InputWarning, match="was read as Latin-1"):
        assert cw.read_votes(path).annotators.tolist() == ["Zoë", "Zoé"]


def test_numbers_and_times_may_be_categories(tmp_path: Path) -> None:
    text = {"item": ["1", "2"], "rater": ["a", "b"], "value": ["1.5", "2"], "timestamp": ["2024-01-05", "2024-01-06"]}
    pl.DataFrame(text).cast(pl.Categorical).write_parquet(tmp_path / "ratings.parquet")
    found = cw.read_ratings(tmp_path / "ratings.parquet")
    assert found.value.tolist() == [1.5, 2.0] and found.timestamp is not None


def test_an_encoding_can_be_named(tmp_path: Path) -> None:
    text = "item,annotator,label\nq1,Аня,да\nq2,Аня,нет\n"
    (tmp_path / "a.csv").write_bytes(text.encode("cp1251"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        assert cw.read_votes(tmp_path / "a.csv", encoding="cp1251").classes.tolist() == ["да", "нет"]
    with pytest.raises(ParameterError, match="encoding='cp99'"):
        cw.read_votes(tmp_path / "a.csv", encoding="cp99")
    with pytest.raises(ReadError, match="could not be read as text in ascii"):
        cw.read_votes(tmp_path / "a.csv", encoding="ascii")
    done = run("describe", tmp_path / "a.csv", "--json", "--column", "encoding=cp1251")
    assert json.loads(done.stdout)["classes"] == ["да", "нет"] and done.stderr == ""
    noted = run("describe", tmp_path / "a.csv", "--json").stderr
    assert noted.count("was read as Latin-1") == 1 and "--column encoding=NAME" in noted


# -------------------------------------------------------------------- archives


def test_an_archive_with_one_table(tmp_path: Path) -> None:
    lines = "\n".join(map(json.dumps, RECORDS)).encode()
    assert same(zipped(tmp_path / "a.zip", votes__csv=CSV.encode()))
    assert same(zipped(tmp_path / "b.zip", votes__jsonl=lines, readme__md=b"x", **{"__MACOSX/._votes__jsonl": b"x"}))
    assert same(zipped(tmp_path / "c.zip", **{"export/votes__csv__gz": gzip.compress(CSV.encode())}))
    buffer = write_xlsx(tmp_path / "v.xlsx", {"S": [list(NAMES), *ROWS]}).read_bytes()
    assert same(zipped(tmp_path / "d.zip", sheet__xlsx=buffer))


def test_archives_with_none_or_several(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"holds 2 tables \('a.csv', 'b.csv'\): expected one. Unpack it"):
        cw.read_votes(zipped(tmp_path / "a.zip", a__csv=CSV.encode(), b__csv=CSV.encode()))
    with pytest.raises(ReadError, match=r"holds no table \('readme.md'\)"):
        cw.read_votes(zipped(tmp_path / "b.zip", readme__md=b"x"))
    with pytest.raises(ReadError, match=r"no table .it is empty"):
        cw.read_votes(zipped(tmp_path / "c.zip"))
    (tmp_path / "d.zip").write_bytes(b"PK no")
    with pytest.raises(ReadError, match="could not be read as a zip archive"):
        cw.read_votes(tmp_path / "d.zip")
    with pytest.raises(ReadError, match=r"e\.zip.votes\.csv"):
        cw.read_votes(zipped(tmp_path / "e.zip", votes__csv=b"\0\0\0"))


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_files, "MOST", 10_000)
    bomb = CSV.encode() + b"q9,ann,oui\n" * 5_000
    files = [zipped(tmp_path / "a.zip", votes__csv=bomb), tmp_path / "b.json.gz"]
    files[1].write_bytes(gzip.compress(json.dumps(RECORDS * 500).encode()))
    files.append(write_xlsx(tmp_path / "c.xlsx", {"S": [list(NAMES), *(ROWS * 100)]}))
    for file in files:
        with pytest.raises(SizeError, match="unpacks to more than"):
            cw.read_votes(file, on_duplicate="all")


# -------------------------------------------------------------------- every format, there and back

WRITERS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    ".csv": lambda t, p: t.write_csv(p),
    ".tsv": lambda t, p: t.write_csv(p, separator="\t"),
    ".csv.gz": lambda t, p: p.write_bytes(gzip.compress(t.write_csv().encode())),
    ".jsonl": lambda t, p: t.write_ndjson(p),
    ".json": lambda t, p: t.write_json(p),
    ".json.gz": lambda t, p: p.write_bytes(gzip.compress(t.write_json().encode())),
    ".parquet": lambda t, p: t.write_parquet(p),
    ".arrow": lambda t, p: t.write_ipc(p),
    ".xlsx": lambda t, p: write_xlsx(p, {"votes": [t.columns, *t.rows()]}),
    ".zip": lambda t, p: zipped(p, table__csv=t.write_csv().encode()),
}
WORD = st.text(st.sampled_from("abcxyzäöß 日本,\"'|;"), min_size=1, max_size=6).map(lambda word: f"w{word}z")


@pytest.mark.parametrize("ending", WRITERS)
@given(st.lists(st.tuples(WORD, WORD, st.sampled_from(["yes", "no", "später", "1"])), min_size=2, max_size=8))
@settings(max_examples=15, deadline=None)
def test_every_format_there_and_back(tmp_path_factory: pytest.TempPathFactory, ending: str, rows: Any) -> None:
    table = pl.DataFrame([*rows, ("q", "a", "no")], schema=list(NAMES), orient="row")
    path = tmp_path_factory.mktemp("formats") / f"votes{ending}"
    WRITERS[ending](table, path)
    expected = cw.Votes.from_frame(table, on_duplicate="all").to_frame()
    assert cw.read_votes(path, on_duplicate="all").to_frame().equals(expected)


@given(st.binary(min_size=1, max_size=300), st.sampled_from(["json", "json.gz", "xlsx", "xls", "ods", "zip", "csv"]))
@settings(max_examples=60, deadline=None)
def test_any_bytes_give_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, content: bytes, ending: str) -> None:
    path = tmp_path_factory.mktemp("bytes") / f"a.{ending}"
    path.write_bytes(content)
    with pytest.raises(CrowdwiseError):
        cw.read_votes(path, form="long")


def test_a_folder_of_spreadsheets(tmp_path: Path) -> None:
    write_xlsx(tmp_path / "labels.xlsx", {"S": [list(NAMES), *ROWS]})
    (tmp_path / "truth.json").write_text(json.dumps([{"item": "q1", "label": "oui"}]), encoding="utf-8")
    assert cw.read_dataset(tmp_path).votes.truth.tolist() == [1, -1]
    with pytest.raises(ColumnError):
        cw.read_votes(write_xlsx(tmp_path / "x.xlsx", {"S": [["a", "b"], [1, 2]]}))


@pytest.mark.parametrize("text", ["sep=;\nitem;annotator;label\n1;a;x\n", "Project 5\n\nitem,annotator,label\n1,a,x\n"])
def test_lines_above_the_names_of_columns_are_pointed_out(text: str, tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    path.write_text(text)
    with pytest.warns(InputWarning, match=r"names of columns were found in line \d, below .* of titles.*skip_rows=0"):
        assert cw.read_votes(path).to_frame("dict")["label"].tolist() == ["x"]
    assert cw.read_votes(path, skip_rows=1 if text.startswith("sep") else 2).n_votes == 1
    with pytest.raises(ReadError, match="delete what stands above the names of the columns"):
        cw.read_votes(path, skip_rows=0)
