"""Files: every format gives the same votes, text keeps what was written, and broken files are named."""

from __future__ import annotations

import gzip
import io
import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crowdwise as cw
from crowdwise.data import encoding, plain_files, spellings
from crowdwise.data.files import TableFile
from crowdwise.data.schema import NULLS
from crowdwise.data.votes import Votes, read_truth, read_votes
from crowdwise.errors import (
    ColumnError,
    CrowdwiseError,
    DuplicateError,
    InputError,
    InputWarning,
    LabelError,
    ParameterError,
    ReadError,
)

pa = pytest.importorskip("pyarrow")

CSV = "item,annotator,label\n1,ann,x\n1,bob,y\n2,ann,x\n"
JSONL = """{"item": 1, "annotator": "ann", "label": "x"}
{"item": 1, "annotator": "bob", "label": "y"}
{"item": 2, "annotator": "ann", "label": "x"}
"""
ROWS = Counter([(1, "ann", "x"), (1, "bob", "y"), (2, "ann", "x")])
Write = Callable[..., Path]


def packed(content: bytes) -> bytes:
    """The same bytes every time: they are part of the names of tests."""
    return gzip.compress(content, mtime=0)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A file of this name with this text or these bytes."""

    def make(name: str, content: str | bytes = CSV) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def named(votes: Votes) -> tuple[Counter[Any], list[Any]]:
    """The votes as a bag of named rows, and the class list."""
    frame = votes.to_frame("dict")
    return Counter(
        zip(*[np.asarray(column).tolist() for column in frame.values()], strict=True)
    ), votes.classes.tolist()


def zstd(text: str) -> bytes:
    return bytes(pa.compress(text.encode(), codec="zstd", asbytes=True))


# -------------------------------------------------------------------- formats


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV), ("a.CSV", CSV), ("my.labels.v2.csv", CSV), ("a.txt", CSV),
        ("a.csv.gz", packed(CSV.encode())), ("a.csv.zst", zstd(CSV)),
        ("a.tsv", CSV.replace(",", "\t")), ("a.tsv.gz", packed(CSV.replace(",", "\t").encode())),
        ("commas.tsv", CSV), ("tab.txt", CSV.replace(",", "\t")),
        ("semicolon.csv", CSV.replace(",", ";")), ("pipe.csv", CSV.replace(",", "|")),
        ("semicolon.csv.gz", packed(CSV.replace(",", ";").encode())),
        ("semicolon.csv.zst", zstd(CSV.replace(",", ";"))),
        ("bom.csv", b"\xef\xbb\xbf" + CSV.encode()), ("crlf.csv", CSV.replace("\n", "\r\n")),
        ("no newline at the end.csv", CSV.rstrip("\n")), ("blank first.csv", "\n" + CSV),
        ("blank lines.csv", CSV.replace("1,bob", "\n\n1,bob") + "\n\n"), ("extra.csv", CSV.replace("\n", ",\n")),
        ("quoted.csv", re.sub(r"(\w+)", r'"\1"', CSV)),
        ("swapped.csv", "label,note,item,annotator\nx,,1,ann\ny,?,1,bob\nx,,2,ann\n"),
        ("aliases.csv", CSV.replace("item,annotator,label", "Task ID,worker_id,Response")),
        ("a.jsonl", JSONL), ("no newline at the end.jsonl", JSONL.rstrip("\n")),
        ("aliases.ndjson", JSONL.replace("annotator", "Worker ID")),
        ("crlf.ndjson", JSONL.replace("\n", "\r\n\r\n")), ("bom.jsonl", b"\xef\xbb\xbf" + JSONL.encode()),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 and "\n" not in value else "",
)  # fmt: skip
def test_every_way_of_writing_the_same_votes(write: Write, name: str, content: str | bytes):
    assert named(read_votes(write(name, content))) == (ROWS, ["x", "y"])


@pytest.mark.parametrize("ending", ["parquet", "pq", "arrow", "feather", "ipc", "stream.arrow"])
def test_binary_formats(tmp_path: Path, ending: str):
    import pyarrow.feather
    import pyarrow.parquet

    path = tmp_path / f"votes.{ending}"
    table = pa.table(
        {"item": [1, 1, 2], "annotator": pa.array(["ann", "bob", "ann"]).dictionary_encode(), "label": ["x", "y", "x"]}
    )
    if ending in ("parquet", "pq"):
        pyarrow.parquet.write_table(table, path)
    elif ending == "feather":
        pyarrow.feather.write_feather(table, path)
    else:
        with (pa.ipc.new_stream if ending.startswith("stream") else pa.ipc.new_file)(path, table.schema) as sink:
            sink.write_table(table)
    assert named(read_votes(path)) == (ROWS, ["x", "y"])
    assert named(read_votes(str(path)))[0] == ROWS


def test_an_enum_in_parquet_declares_the_classes(tmp_path: Path):
    frame = pl.DataFrame({"item": [1], "annotator": [1], "label": pl.Series(["x"], dtype=pl.Enum(["z", "y", "x"]))})
    frame.write_parquet(tmp_path / "a.parquet")
    assert read_votes(tmp_path / "a.parquet").classes.tolist() == ["z", "y", "x"]


PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=5).filter(
    lambda t: t.strip() and t not in NULLS and not re.fullmatch(r"[+-]?\d+", t) and t.lower() not in ("true", "false")
)


@st.composite
def crowds(draw: st.DrawFn) -> list[tuple[Any, Any, Any]]:
    integers = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
    item, annotator, label = (draw(st.sampled_from([PLAIN, integers])) for _ in range(3))
    pairs = draw(st.lists(st.tuples(item, annotator), min_size=1, max_size=12, unique=True))
    return [(*pair, draw(label)) for pair in pairs]


@given(crowds(), st.sampled_from([",", ";", "|", "\t"]))
def test_all_formats_agree_with_the_records(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], separator: str
):
    folder = tmp_path_factory.mktemp("formats")
    expected = named(Votes.from_records(records))
    columns = dict(zip(("item", "annotator", "label"), map(list, zip(*records, strict=True)), strict=True))
    frame = pl.DataFrame(columns)
    frame.write_csv(folder / "a.csv", separator=separator)
    (folder / "a.csv.gz").write_bytes(packed((folder / "a.csv").read_bytes()))
    frame.write_ndjson(folder / "a.jsonl")
    frame.write_parquet(folder / "a.parquet")
    frame.write_ipc(folder / "a.arrow")
    for path in folder.iterdir():
        assert named(read_votes(path)) == expected, path.name
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_files, "LARGE", 0)
        patch.setattr(encoding, "NATIVE_ROWS", 1)
        assert named(read_votes(folder / "a.csv")) == expected


# -------------------------------------------------------------------- what is in the cells


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["1", "10", "9"], [1, 9, 10]),
        (["-1", "0", "1"], [-1, 0, 1]),
        (["007", "7", "1"], ["007", "1", "7"]),
        (["+1", "1", "2"], ["+1", "1", "2"]),
        (["-0", "1", "2"], ["-0", "1", "2"]),
        (["1_000", "1", "2"], ["1", "1_000", "2"]),
        (["٣", "1", "2"], ["1", "2", "٣"]),
        (["1.0", "2.0", "3"], ["1.0", "2.0", "3"]),
        ([str(2**63 - 1), str(-(2**63)), "0"], [-(2**63), 0, 2**63 - 1]),
        ([str(2**63), "1", "2"], ["1", "2", str(2**63)]),
        (["9" * 5000, "1", "2"], ["1", "2", "9" * 5000]),
        (["True", "false", "TRUE"], [False, True]),
        (["true", "true", "true"], [True]),
        (["true", "false", "maybe"], ["false", "maybe", "true"]),
        (["ä", "漢字", "ñandú 🦩"], ["ä", "ñandú 🦩", "漢字"]),
        (["a,b", 'say "hi"', "two\nlines"], ["a,b", 'say "hi"', "two\nlines"]),
    ],
)
@pytest.mark.parametrize("large", [False, True])
def test_a_cell_comes_back_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: list[str], classes: list[Any], large: bool
):
    monkeypatch.setattr(plain_files, "LARGE", 0 if large else plain_files.LARGE)
    pl.DataFrame({"item": ["a", "b", "c"], "annotator": ["w"] * 3, "label": labels}).write_csv(tmp_path / "a.csv")
    votes = read_votes(tmp_path / "a.csv")
    assert votes.classes.tolist() == classes
    assert len({type(name) for name in votes.classes.tolist()}) == 1


def test_large_files_fall_back_to_text_when_an_integer_column_holds_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plain_files, "LARGE", 0)
    N = 10_050
    frame = pl.DataFrame({"item": range(N), "annotator": [1] * N, "label": ["1"] * (N - 1) + ["unsure"]})
    frame.write_csv(tmp_path / "a.csv")
    votes = read_votes(tmp_path / "a.csv")
    assert votes.classes.tolist() == ["1", "unsure"] and votes.items[-1] == N - 1


@pytest.mark.parametrize("odd", ["0000100005", "+7", "-0", '"007"', " 7"])
@pytest.mark.parametrize("behind", [0, 3, 2**24 - 2, 2**24 - 1, 2**24])
def test_integers_that_are_not_plain_are_names_however_far_down(tmp_path: Path, odd: str, behind: int):
    """Also where a field is cut in two by the blocks in which a file is looked through."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"7" * behind + b"," + odd.encode())
    assert TableFile(path)._odd_integers()
    path.write_bytes(b"7" * behind + b",10,-5\n0,a007\n")
    assert not TableFile(path)._odd_integers()


def test_large_files_keep_zeros_in_front_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plain_files, "LARGE", 0)
    rows = [(100_000 + n, n % 7, n % 2) for n in range(10_050)]
    lines = "".join(f"{i},{a},{y}\n" for i, a, y in rows)
    (tmp_path / "a.csv").write_text(f"item,annotator,label\n{lines}0000100005,9,1\n")
    votes = read_votes(tmp_path / "a.csv")
    assert len(votes) == 10_051 and {"100005", "0000100005"} <= set(votes.items.tolist())


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet", "arrow"])
def test_names_of_files_are_no_patterns(tmp_path: Path, ending: str):
    """``[1]`` and ``*`` in the name of a file are characters."""
    frame = pl.DataFrame({"item": [1, 2], "annotator": ["a", "a"], "label": ["x", "y"]})
    path = tmp_path / f"votes [1]*.{ending}"
    if ending == "csv.gz":
        path.write_bytes(packed(frame.write_csv().encode()))
    else:
        with path.open("wb") as file:
            getattr(frame, {"jsonl": "write_ndjson", "arrow": "write_ipc"}.get(ending, f"write_{ending}"))(file)
    assert read_votes(path).n_votes == 2


def test_json_lines_keep_text_and_numbers_apart(write: Write):
    votes = read_votes(
        write(
            "a.jsonl", f'{{"item":{2**70},"annotator":"7","label":true}}\n{{"item":2,"annotator":"07","label":false}}\n'
        )
    )
    assert (
        votes.items.tolist() == [str(2**70), "2"]
        and votes.annotators.tolist() == ["7", "07"]
        and votes.classes.tolist() == [False, True]
    )


def test_null_values_can_be_chosen(write: Write):
    path = write("a.csv", "item,annotator,label\n1,ann,NA\n1,bob,-\n")
    with pytest.raises(LabelError, match=r"1 row has no label .* line 2"):
        read_votes(path)
    assert read_votes(path, null_values=["-"], on_missing="drop").classes.tolist() == ["NA"]


@pytest.mark.parametrize("empty", ["", " ", " \t", "\u00a0"])
def test_blanks_are_no_label_and_no_name(write: Write, empty: str):
    """From a file or a dataframe, long or wide."""
    rows = [("a", "ann", "x"), ("a", "bob", empty), ("b", "ann", "y"), ("b", "bob", "y")]
    path = write("a.csv", "item,annotator,label\n" + "".join(f"{i},{w},{label}\n" for i, w, label in rows))
    frame = {"item": [r[0] for r in rows], "annotator": [r[1] for r in rows], "label": [r[2] for r in rows]}
    for source, read in ((path, read_votes), (frame, Votes.from_frame), (rows, Votes.from_records)):
        with pytest.raises(LabelError, match="1 row has no label"):
            read(source)
    with pytest.warns(InputWarning, match="Left out 1 of 4 rows: without a label"):
        assert Votes.from_frame(frame, on_missing="drop").classes.tolist() == ["x", "y"]
    with pytest.raises(LabelError, match="1 row has no annotator"):
        Votes.from_frame(frame | {"annotator": ["ann", empty, "ann", "bob"], "label": ["x", "y"] * 2})
    assert Votes.from_frame({"item": ["a", "b"], "ann": ["x", "y"], "bob": [empty, "y"]}).n_votes == 3
    cells = [["x", "y"], [empty, "y"]]
    assert Votes.from_dense(cells).n_votes == 3 == Votes.from_dense(np.array(cells)).n_votes
    known = Votes.from_frame(frame | {"label": ["x", "x", "y", "y"], "truth": ["x", "x", empty, empty]})
    assert known.truth.tolist() == [0, -1]


def test_a_file_without_a_header_is_told_so(write: Write):
    with pytest.raises(
        ColumnError, match=r"The first line must hold the names of the columns\. The table has 'q1', 'w'"
    ):
        read_votes(write("a.csv", "q1,w,yes\nq1,u,no\n"))
    with pytest.raises(ColumnError) as error:
        read_votes(write("b.csv", "item,who,said\nq1,u,no\n"))
    assert "first line" not in str(error.value)


def test_optional_columns_and_options(write: Write):
    path = write(
        "a.csv",
        "item,annotator,label,weight,timestamp,truth\n1,ann,x,2,2026-01-31T12:00:00,y\n1,bob,y,0.5,2026-01-31,y\n2,ann,x,1,,\n",
    )
    votes = read_votes(path, classes=["y", "x", "z"])
    assert (
        votes.weights.tolist() == [2, 0.5, 1]
        and votes.classes.tolist() == ["y", "x", "z"]
        and votes.truth.tolist() == [0, -1]
    )
    assert votes.timestamp.astype("datetime64[s]").astype(str).tolist() == [
        "2026-01-31T12:00:00",
        "2026-01-31T00:00:00",
        "NaT",
    ]
    assert read_votes(path, classes="yxz").classes.tolist() == ["y", "x", "z"]


def test_named_columns_and_separator(write: Write):
    path = write("a.csv", '"item; a, b, c";"who";"label"\n1;ann;x\n')
    assert named(read_votes(path, item="item; a, b, c", annotator="who"))[0] == Counter([(1, "ann", "x")])
    path = write("b.csv", "item#annotator#label\n1#ann#x\n")
    assert read_votes(path, separator="#").n_votes == 1
    with pytest.raises(ParameterError, match="separator='::': expected a single character"):
        read_votes(path, separator="::")


@pytest.mark.parametrize("content", ["item,ann,bob\n1,x,y\n2,x,\n3,y,y\n", "item,ann,bob\n1,x,y\n2,x,NA\n3,y,y\n"])
@pytest.mark.parametrize("name", ["wide.csv", "wide.csv.gz"])
def test_wide_files_are_recognised(write: Write, name: str, content: str):
    votes = read_votes(write(name, packed(content.encode()) if name.endswith("gz") else content))
    assert (votes.n_votes, votes.annotators.tolist(), votes.classes.tolist()) == (5, ["ann", "bob"], ["x", "y"])


def test_wide_file_without_items(write: Write):
    votes = read_votes(write("a.csv", "ann,bob\nx,\n,\ny,x\n"), form="wide")
    assert votes.items.tolist() == [0, 2] and votes.n_votes == 3
    assert read_votes(write("b.csv", "ann\nx\ny\n"), form="wide").n_votes == 2


def test_truth_beside_the_votes(write: Write):
    path = write("labels.csv")
    truth = write("truth.csv", "task,truth\n1,y\n2,\n99,x\n")
    assert read_truth(truth) == {1: "y", 99: "x"}
    assert read_votes(path, truth_path=truth).truth.tolist() == [1, -1]
    assert read_votes(path, truth_path=write("t.jsonl", '{"item":"2","label":"x"}\n')).truth.tolist() == [-1, 0]
    assert read_truth(write("named.csv", "q;correct\n1;y\n"), item="q", label="correct") == {1: "y"}
    joined = write("joined.csv", "task,truth\na,y\nb,x\ntask,truth\nc,x\n,\nd,y\n")
    with pytest.warns(InputWarning, match="repeat the names of the columns"):
        assert read_truth(joined) == {"a": "y", "b": "x", "c": "x", "d": "y"}


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        ("item\n1\n", ColumnError, ["needs an item column and a label column", "'item'"]),
        ("item,label\n", ReadError, ["names no true label"]),
        ("item,label\n1,\n2,NA\n", ReadError, ["names no true label"]),
        ("item,label\nitem,label\n", ReadError, ["names no true label"]),
        ("item,label\n1,x\n1,y\n", LabelError, ["different true classes for item 1: 'x', 'y'"]),
        ("item,label\n1,zebra\n", LabelError, ["'zebra'", "the classes are 'x', 'y'", "classes=[...]"]),
        ("item,label\n77,x\n", InputError, ["None of the 1 items with truth has votes"]),
    ],
)
def test_truth_errors(write: Write, content: str, kind: type[Exception], words: list[str]):
    with pytest.raises(kind) as caught:
        read_votes(write("labels.csv"), truth_path=write("truth.csv", content))
    assert all(word in str(caught.value) for word in words), str(caught.value)


# -------------------------------------------------------------------- broken files


PARQUET = io.BytesIO()
pl.DataFrame({"item": [1], "annotator": [1], "label": [2]}).write_parquet(PARQUET)
GARBAGE = bytes(np.random.default_rng(0).integers(0, 256, 600, dtype=np.uint8))


@pytest.mark.parametrize(
    ("name", "content", "kind", "words"),
    [
        ("empty.csv", "", ReadError, ["empty.csv is empty"]),
        ("blank.csv", "\n\n", ReadError, ["blank.csv", "empty CSV"]),
        (
            "header.csv",
            "item,annotator,label\n",
            ReadError,
            ["header.csv has no votes", "'item', 'annotator', 'label'", "no rows"],
        ),
        ("header.csv", "item,annotator,label", ReadError, ["no rows"]),
        ("one.csv", "item\n1\n", ReadError, ["single column, 'item'", "',', ';', '|' or a tab"]),
        ("wrong.csv", "foo,bar,baz\n1,2,3\n", ColumnError, ["No column found for: item", "'foo', 'bar', 'baz'"]),
        ("twice.csv", "item,annotator,label,label\n1,2,3,4\n", ColumnError, ["more than one column 'label'"]),
        ("twice.csv", "item,ann,ann\n1,x,y\n", ColumnError, ["more than one column 'ann'"]),
        (
            "long.csv",
            CSV + "3,ann,x,oops\n",
            ReadError,
            ["long.csv", "line 5 has 4 fields and the header 3", "in double quotes"],
        ),
        ("long.csv", CSV.replace(",", ";") + "3;ann;x;oops;\n", ReadError, ["line 5", "has 5 fields"]),
        ("long.csv.gz", packed((CSV + "3,ann,x,oops\n").encode()), ReadError, ["line 5", "has 4 fields"]),
        ("short.csv", CSV + "3,ann\n", LabelError, ["1 row has no label", "line 5"]),
        ("sheet.xlsx", GARBAGE, ReadError, ["sheet.xlsx could not be read as sheet", "Excel"]),
        ("garbage.csv", GARBAGE, ReadError, ["garbage.csv", "UTF-8"]),
        ("mac.csv", b"item,annotator,label\r1,a,x\r1,b,y\r", ReadError, ["carriage return alone", "Save it again"]),
        ("zeros.csv", b"\0" * 50, ReadError, ["binary data"]),
        ("noise.csv", b"\x93a\rb\x07\n\x00\xff\r\x00", ReadError, ["binary data"]),
        ("parquet.csv", PARQUET.getvalue(), ReadError, ["a Parquet file (.parquet)", "ending"]),
        ("gzip.csv", packed(CSV.encode()), ReadError, ["text packed by gzip (.gz)", "ending"]),
        ("page.xls", b"<html><table></table></html>", ReadError, ["it holds a web page", "save it as"]),
        ("plain.csv.gz", CSV, ReadError, ["plain.csv.gz", "gzip"]),
        ("cut.csv.gz", packed(CSV.encode() * 99)[:40], ReadError, ["cut.csv.gz", "ended"]),
        ("broken.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + GARBAGE, ReadError, ["broken.csv.gz"]),
        ("duplicates.csv", CSV + "1,ann,y\n", DuplicateError, ["annotator 'ann' labels item 1 in lines 2 and 5"]),
        ("garbage.jsonl", GARBAGE, ReadError, ["garbage.jsonl", "one JSON object on each line"]),
        ("text.jsonl", CSV, ReadError, ["one JSON object on each line"]),
        ("cut.jsonl", '{"item":1,"annotator":"a","label":"x"}\n{"item":1,"ann', ReadError, ["cut.jsonl"]),
        ("numbers.jsonl", "1\n2\n", ReadError, ["one JSON object on each line"]),
        ("blank.jsonl", "\n\n", ReadError, ["blank.jsonl"]),
        (
            "missing.jsonl",
            '{"item":1,"annotator":"a","label":"x"}\n{"item":2,"annotator":"a"}\n',
            LabelError,
            ["1 row has no label", "line 2"],
        ),
        (
            "garbage.parquet",
            GARBAGE,
            ReadError,
            ["garbage.parquet could not be read as parquet", "Expected a Parquet file"],
        ),
        ("text.parquet", CSV, ReadError, ["Expected a Parquet file"]),
        ("cut.parquet", PARQUET.getvalue()[:-20], ReadError, ["Expected a Parquet file"]),
        ("garbage.arrow", GARBAGE, ReadError, ["Expected an Arrow or Feather file"]),
        ("cut.arrow", b"ARROW1", ReadError, ["Expected an Arrow or Feather file"]),
        ("text.feather", CSV, ReadError, ["Expected an Arrow or Feather file"]),
        ("votes.doc", GARBAGE, ReadError, ["votes.doc is of an unknown format", ".csv, .tsv"]),
        ("votes", CSV, ReadError, ["votes is of an unknown format"]),
        ("votes.gz", packed(CSV.encode()), ReadError, ["votes.gz is of an unknown format"]),
        ("votes.parquet.gz", packed(PARQUET.getvalue()), ReadError, ["only text tables", "Unpack it first"]),
    ],
    ids=lambda value: (
        value if isinstance(value, str) and "." in value and "\n" not in value and len(value) < 20 else ""
    ),
)
def test_broken_files_are_named(write: Write, name: str, content: str | bytes, kind: type[Exception], words: list[str]):
    with pytest.raises(kind) as caught:
        read_votes(write(name, content))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert type(caught.value) is kind


def test_missing_files_and_folders(tmp_path: Path, write: Write):
    write("labels.csv")
    with pytest.raises(ReadError, match=r"There is no file .*label\.csv\. The folder holds labels\.csv"):
        read_votes(tmp_path / "label.csv")
    with pytest.raises(ReadError, match="There is no file"):
        read_votes(tmp_path / "nowhere" / "label")
    with pytest.raises(ReadError, match="is a folder: name the file inside it"):
        read_votes(tmp_path)


@given(
    st.binary(min_size=1, max_size=300),
    st.sampled_from(["csv", "csv.gz", "csv.zst", "tsv", "jsonl", "parquet", "arrow", "feather"]),
)
def test_any_bytes_give_votes_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, ending: str
):
    path = tmp_path_factory.mktemp("bytes") / f"a.{ending}"
    path.write_bytes(content)
    with pytest.raises(CrowdwiseError):
        read_votes(path, form="long")


def test_a_file_that_makes_polars_panic_is_a_read_error(write: Write, monkeypatch: pytest.MonkeyPatch):
    def panic(*_: Any, **__: Any) -> None:
        raise pl.exceptions.PanicException("assertion failed: offset + length <= self.length")

    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(ReadError, match=r"a\.parquet could not be read as parquet: assertion failed"):
        read_votes(write("a.parquet", PARQUET.getvalue()))


# -------------------------------------------------------------------- lines, as an editor counts them

HEADER = "task,worker,label,note\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", HEADER + "t1,w1,x,\nt2,w1,,\n", "label'): line 3."),
        ("blank.csv", "\n" + HEADER + "\n\nt1,w1,x,\n\nt2,w1,,\n", "label'): line 7."),
        ("quoted.csv", HEADER + 't1,w1,x,"two\nlines, and\nthree"\nt2,w1,,\n', "label'): line 5."),
        ("crlf.csv", (HEADER + "t1,w1,x,\nt2,w1,,\n").replace("\n", "\r\n"), "label'): line 3."),
        ("twice.csv", HEADER + "\nt1,w1,x,\nt1,w1,y,\n", "in lines 3 and 4."),
        ("many.csv", HEADER + "t1,w1,x,\n" + "t2,w1,,\n" * 3, "label'): lines 3, 4, 5."),
        ("bom.csv", "\ufeff" + HEADER + "t1,w1,x,\nt2,w1,,\n", "label'): line 3."),
        ("semi.csv", (HEADER + "t1,w1,x,\nt2,w1,,\n").replace(",", ";"), "label'): line 3."),
        ("a.csv.gz", packed((HEADER + "t1,w1,x,\nt2,w1,,\n").encode()), "label'): line 3."),
        ("a.jsonl", '\n{"task":1,"worker":2,"label":"x"}\n\n{"task":1,"worker":3}\n', "label'): line 4."),
        ("weight.csv", "task,worker,label,weight\nt1,w1,x,1\n\nt2,w1,x,-1\n", "found -1.0 in line 4."),
        ("odd.csv", "task,worker,label,weight\nt1,w1,x,1\n\nt2,w1,x,heavy\n", "The weight in line 4 (column 'weight')"),
        ("long.csv", 'task,worker,label\nt1,w1,"x\ny"\n\nt2,w1,x,more\n', "line 5 has 4 fields and the header 3"),
    ],
)
def test_lines_are_counted_as_an_editor_does(write: Write, name: str, content: str | bytes, words: str):
    with pytest.raises(InputError) as caught:
        read_votes(write(name, content))
    assert words in str(caught.value)


def test_lines_of_wide_tables_truths_and_other_answers(write: Write):
    with pytest.raises(InputError, match=r"in lines 3 and 6\."):
        read_votes(write("wide.csv", "task,u,v\n\nt1,x,y\nt2,x,\n\nt1,y,\n"), form="wide")
    with pytest.raises(LabelError, match=r"The truth in line 4 \(column 'truth'\) is 'far'"):
        cw.Ratings.read_truth(write("truth.csv", "task,truth\n\nt1,3\nt2,far\n"))
    with pytest.raises(InputError, match=r"Line 3 compares item 'a' with itself"):
        cw.Similarities.read(write("same.csv", "item_a,item_b,worker,same\na,b,u,yes\na,a,u,yes\n"))
    frame = {"task": ["a", "b"], "worker": ["u", "u"], "label": ["x", None]}
    with pytest.raises(LabelError, match=r"row 1, counted from 0\."):
        cw.Votes.from_frame(frame)


MESSY = "task,worker,label\na,ann,1\nb, ,2\nc,bob,2\nd,NA,1\n e,bob,1\nf,ann,\n  ,ann,2\na,bob,2\ntask,worker,label\n"


@pytest.mark.parametrize("mapped", [False, True])
def test_large_tables_are_read_as_small_ones(write: Any, monkeypatch: pytest.MonkeyPatch, mapped: bool) -> None:
    path = write("a.csv", MESSY)
    with pytest.warns(InputWarning):
        small = read_votes(path, on_missing="drop")
    monkeypatch.setattr(encoding, "NATIVE_ROWS", 1)
    monkeypatch.setattr(plain_files, "LARGE", 0 if mapped else plain_files.LARGE)
    with pytest.warns(InputWarning):
        large = read_votes(path, on_missing="drop")
    assert named(large) == named(small) and large.items.tolist() == ["a", "c", " e"]
    with pytest.raises(LabelError, match=r"1 row has no item .* line 8"):
        read_votes(path)


def test_names_become_python_strings_when_they_are_asked_for(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "NATIVE_ROWS", 1)
    path = write("a.csv", "item,annotator,label\nx,ann,1\ny,ann,2\nx,bob,2\nz,bob,1\n")
    monkeypatch.setattr(spellings, "MOST_NAMES", 2)
    made: list[Any] = []
    monkeypatch.setattr(
        vars(encoding.TextNames)["array"], "func", lambda self: made.append(self) or self.column.to_numpy()
    )
    votes = read_votes(path)
    of_items = [names for names in made if len(names) == 3]
    assert len(votes) == 3 and votes.n_annotators == 2 and votes.shape == (3,) and of_items == []
    assert "Votes(4 votes: 3 items x 2 annotators x 2 classes)" in repr(votes)
    again = pickle.loads(pickle.dumps(votes))
    assert again.items.tolist() == votes.items.tolist() == ["x", "y", "z"]
    assert votes.items is votes.items and votes[[2]].items.tolist() == ["z"]
    assert not hasattr(votes, "nothing")
