"""Small files that hold more than there is room for."""

from __future__ import annotations

import gzip
import struct
import zipfile
from pathlib import Path

import polars as pl
import pytest

import crowdwise as cw
from crowdwise.data import plain_files
from crowdwise.errors import SizeError


def packed(path: Path, rows: int) -> Path:
    table = pl.DataFrame({"item": range(rows), "annotator": ["a"] * rows, "label": ["x", "y"] * (rows // 2)})
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(table.write_csv().encode()))
    else:
        table.write_csv(path, compression="zstd")
    return path


@pytest.mark.parametrize("name", ["v.csv.gz", "v.csv.zst"])
def test_what_unpacks_to_too_much_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = packed(tmp_path / name, 60_000)
    assert cw.read_votes(file).n_votes == 60_000
    monkeypatch.setattr(plain_files, "MOST", 300_000)
    with pytest.raises(SizeError, match=f"{name} unpacks to more than"):
        cw.read_votes(file)
    monkeypatch.setattr(plain_files, "MOST", 3_000_000)
    assert cw.read_votes(file).n_votes == 60_000


def test_the_blocks_of_zstd_hold_at_least_the_text(tmp_path: Path) -> None:
    for rows in (2, 1_000, 100_000):
        file = packed(tmp_path / "v.csv.zst", rows)
        size = pl.read_csv(file).write_csv().__sizeof__()
        assert size <= sum(plain_files._zstd_sizes(file.read_bytes())) + 200 < 2 * size + 2 * plain_files.BLOCK


def test_compressed_text_in_another_encoding_is_counted_too(tmp_path, monkeypatch):
    text = "item,annotator,label\n" + "a,b,c\n" * 20_000
    (tmp_path / "v.csv.gz").write_bytes(gzip.compress(text.encode("utf-16")))
    monkeypatch.setattr(plain_files, "MOST", 100_000)
    with pytest.raises(SizeError, match="unpacks to more"):
        cw.read_votes(tmp_path / "v.csv.gz")


@pytest.mark.parametrize("claimed", [5_000_000, 100])
def test_archives_are_counted_whatever_they_claim(tmp_path, monkeypatch, claimed):
    file = tmp_path / "v.xlsx"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", bytes(5_000_000))
    sizes = (struct.pack("<I", size) for size in (5_000_000, claimed))
    file.write_bytes(file.read_bytes().replace(*sizes))
    plain_files.check_archive(file, file.read_bytes())
    monkeypatch.setattr(plain_files, "MOST", 1_000_000)
    with pytest.raises(SizeError, match="unpacks to more"):
        cw.read_votes(file)
