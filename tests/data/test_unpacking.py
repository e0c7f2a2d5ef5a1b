"""Small files that hold more than there is room for."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

import crowdwise as cw
from crowdwise.data import unpacking
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
    monkeypatch.setattr(unpacking, "MOST", 300_000)
    with pytest.raises(SizeError, match=f"{name} unpacks to more than"):
        cw.read_votes(file)
    monkeypatch.setattr(unpacking, "MOST", 3_000_000)
    assert cw.read_votes(file).n_votes == 60_000


def test_the_blocks_of_zstd_hold_at_least_the_text(tmp_path: Path) -> None:
    for rows in (2, 1_000, 100_000):
        file = packed(tmp_path / "v.csv.zst", rows)
        size = pl.read_csv(file).write_csv().__sizeof__()
        assert size <= sum(unpacking._zstd_sizes(file.read_bytes())) + 200 < 2 * size + 2 * unpacking.BLOCK
