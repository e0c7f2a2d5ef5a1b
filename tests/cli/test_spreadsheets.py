"""Names that a spreadsheet would run as formulas."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import re
from pathlib import Path
from urllib.parse import unquote

import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.cli.main import app
from crowdwise.cli.options import drawn_gold
from crowdwise.data.sheets import FORMULA, safe_table
from crowdwise.report.page import _sheet

NAMES = ["=1+1", "+1", "-x", "@sum", "\t=1", "\uff1d1", "plain", "a=b"]


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    path = tmp_path / "votes.csv"
    rows = {"item": [n for n in NAMES for _ in range(3)], "annotator": ["=a", "b", "-c"] * 8, "label": ["@p", "q"] * 12}
    pl.DataFrame(rows).write_csv(path)
    return path


def cells(text: str) -> list[str]:
    return [
        cell
        for row in csv.reader(io.StringIO(text, newline=""))
        for cell in row
        if not re.fullmatch(r"-?[\d.e-]*", cell)
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_no_cell_is_a_formula_where_that_is_asked_for(votes: Path, place: int, tmp_path: Path) -> None:
    words = ["aggregate", str(votes), "--probabilities", "--annotators", str(tmp_path / "people.csv")]
    words.insert(place, "--spreadsheet-safe")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    found = cells(done.stdout) + cells((tmp_path / "people.csv").read_text())
    assert {"'=1+1", "'+1", "'@p", "'=a", "'-c", "plain", "a=b"} <= set(found)
    assert not [cell for cell in found if cell[:1] in FORMULA and cell]


def test_names_are_as_they_are_otherwise(votes: Path) -> None:
    done = CliRunner().invoke(app, ["aggregate", str(votes)])
    assert {"=1+1", "+1", "-x", "@sum"} <= set(cells(done.stdout))


def test_downloads_of_a_report_are_safe(votes: Path, tmp_path: Path) -> None:
    table = cw.read_votes(votes)
    page = cw.write_report(table, cw.aggregate(table, "majority"), tmp_path / "report.html")
    packed = re.findall(r'id="file-\d+"[^>]*>\s*([A-Za-z0-9+/=]+)', Path(page).read_text(encoding="utf-8"))
    files = [gzip.decompress(base64.b64decode(text)).decode() for text in packed]
    found = [cell for text in files for cell in cells(text)]
    assert "'=1+1" in found and not [cell for cell in found if cell and cell[0] in FORMULA]


def test_numbers_stay_numbers() -> None:
    table = safe_table(
        pl.DataFrame({"x": [-1.5, 2.0], "=y": ["-1", None], "z": pl.Series(["@a", "b"], dtype=pl.Categorical)})
    )
    assert table.to_dict(as_series=False) == {"x": [-1.5, 2.0], "'=y": ["'-1", None], "z": ["'@a", "b"]}


@pytest.mark.parametrize("by", ["report", "command"])
def test_a_sheet_of_gold_items_has_no_formulas_and_comes_back(votes: Path, tmp_path: Path, by: str) -> None:
    """The sheet in the report's link ran them; a name with an apostrophe was no item."""
    if by == "report":
        text = unquote(_sheet({"proof": {"sheet": NAMES}}))
        (tmp_path / "sheet.csv").write_text(text.replace("\r", ""), encoding="utf-8")
    else:
        words = ["certify", str(votes), "--ask", "8", "--out", str(tmp_path / "sheet.csv"), "--spreadsheet-safe"]
        assert CliRunner().invoke(app, words).exit_code == 0
    text = (tmp_path / "sheet.csv").read_text(encoding="utf-8")
    assert text.count("\n") == 9 and not [cell for cell in cells(text) if cell[:1] and cell[0] in FORMULA]
    (tmp_path / "sheet.csv").write_text(re.sub(r',(?:"")?,8(\n|$)', r",q,8\1", text), encoding="utf-8")
    assert set(drawn_gold(cw.read_votes(votes), tmp_path / "sheet.csv")) == set(NAMES)
