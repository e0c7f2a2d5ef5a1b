"""``crowdwise certify``, from the sheet to the released labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.cli.main import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "crowd"
    cw.simulate.one_coin(800, n_annotators=20, votes_per_item=5, random_state=0).save(path)
    return path


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="crowdwise", env={"COLUMNS": "120"})


def filled(folder: Path, tmp_path: Path) -> Path:
    done = run("certify", folder / "labels.csv", "--ask", 120, "--out", tmp_path / "sheet.csv")
    assert done.exit_code == 0 and "120 of 800 items, drawn at random" in done.stderr
    truth = pl.read_csv(folder / "truth.csv")
    sheet = pl.read_csv(tmp_path / "sheet.csv")
    assert sheet.columns == ["item", "label", "drawn"] and (sheet["drawn"] == 120).all()
    sheet = sheet.drop("label").join(truth, on="item").rename({"truth": "label"})
    sheet.write_csv(tmp_path / "gold.csv")
    return tmp_path / "gold.csv"


def test_from_the_sheet_to_released_labels(folder: Path, tmp_path: Path) -> None:
    gold, out = filled(folder, tmp_path), tmp_path / "released.csv"
    done = run("certify", folder / "labels.csv", "--gold", gold, "--max-error", 0.2, "--out", out)
    assert done.exit_code == 0, done.output
    assert "at most 20% are wrong, with 95% confidence, by 120 random gold labels" in done.stderr
    table = pl.read_csv(out)
    assert table["gold"].sum() == 120 and table.filter("gold")["released"].all() and table.height == 800
    done = run("certify", folder / "labels.csv", "--gold", gold, "--max-error", 0.2, "--json")
    facts = json.loads(done.stdout)
    done = run("certify", folder / "labels.csv", "--gold", gold, "--sets", 0.9, "--by-class", "--out", out)
    assert done.exit_code == 0 and "classes on average, and hold the true one with probability 0.9" in done.stderr
    assert pl.read_csv(out)["size"].max() <= 2 and "set" in pl.read_csv(out).columns
    assert facts["released"] == table["released"].sum() and len(facts["items"]) == 800
    assert facts["with_more"]["gold"] == 240 and 0.0 < facts["with_more"]["share"] <= 1.0


def test_what_proves_nothing_is_refused(folder: Path, tmp_path: Path) -> None:
    gold = filled(folder, tmp_path)
    done = run("certify", folder / "labels.csv")
    assert done.exit_code != 0 and "Give --ask 100 to draw items at random, or --gold FILE" in done.stderr
    sheet = pl.read_csv(gold).with_row_index().with_columns(label=pl.when(pl.col("index") > 4).then("label"))
    sheet.drop("index").write_csv(tmp_path / "holes.csv")
    done = run("certify", folder / "labels.csv", "--gold", tmp_path / "holes.csv")
    assert done.exit_code != 0 and "5 of the 120 rows of" in done.stderr and "fill in all rows" in done.stderr


def test_sheets_that_lost_rows_or_names_prove_nothing(folder: Path, tmp_path: Path) -> None:
    """Rows that were deleted and names that a spreadsheet turned into dates left a few gold labels, without a word."""
    sheet, path = pl.read_csv(filled(folder, tmp_path)), tmp_path / "edited.csv"
    shuffled = sheet.sample(fraction=1.0, shuffle=True, seed=1)
    for edited, text in (
        (sheet.head(70), "has 70 rows, of a draw of 120 items"),
        (pl.concat([sheet, sheet.head(1)]), "1 of the 121 rows of"),
        (sheet.with_columns(drawn=pl.Series([50] * 60 + [120] * 60)), "of a draw of 50 and of 120 items"),
        (sheet.with_columns(item=pl.Series([f"{n}-Jan" for n in range(40)] + sheet["item"].to_list()[40:], strict=False,
                                           dtype=pl.String)), "40 of the 120 gold items are not among the 800 items"),
        (shuffled, None),
        (shuffled.drop("drawn"), None),
    ):  # fmt: skip
        edited.write_csv(path)
        for command in (["certify", "--max-error", 0.025, "--confidence", 0.999], ["estimate"]):
            done = run(command[0], folder / "labels.csv", "--gold", path, *command[1:])
            words = " ".join(done.stderr.split())
            assert (done.exit_code == 0) == (text is None) and (text is None or text in words), words
            if text is None and command[0] == "certify":
                assert "at most 2.5% wrong" in words and "99.9% interval" in words


def test_texts_that_are_left_out_are_noticed(tmp_path: Path) -> None:
    rows = [
        (f"t{i}", who, f"word {i} or {'a' if who == 'x' and i % 9 == 0 else 'b'}") for i in range(80) for who in "xyz"
    ]
    pl.DataFrame(rows, schema=["item", "annotator", "text"], orient="row").write_csv(tmp_path / "labels.csv")
    done = run("certify", tmp_path / "labels.csv", "--ask", 40, "--out", tmp_path / "sheet.csv")
    sheet = pl.read_csv(tmp_path / "sheet.csv")
    assert done.exit_code == 0 and sheet.columns == ["item", "text", "drawn"]
    filled = sheet.with_columns(text="word " + pl.col("item").str.slice(1) + " or b")
    for name, table in (
        ("all", filled),
        ("holes", filled.with_columns(text=pl.when(pl.col("item") > "t5").then("text"))),
    ):
        table.write_csv(tmp_path / f"{name}.csv")
    done = run("certify", tmp_path / "labels.csv", "--gold", tmp_path / "all.csv", "--max-error", 0.1)
    assert done.exit_code == 0 and "0.0% wrong on gold items" in done.stderr, done.stderr
    done = run("certify", tmp_path / "labels.csv", "--gold", tmp_path / "holes.csv", "--max-error", 0.1)
    assert done.exit_code != 0 and "of the 40 rows of" in done.stderr and "fill in all rows" in done.stderr


def test_a_second_draw(folder: Path, tmp_path: Path) -> None:
    gold, second = filled(folder, tmp_path), tmp_path / "second.csv"
    done = run("certify", folder / "labels.csv", "--gold", gold, "--ask", 50, "--max-error", 0.1, "--out", second)
    assert done.exit_code == 0 and "50 of 800 items" in done.stderr and "give the file as --more" in done.stderr
    truth = pl.read_csv(folder / "truth.csv")
    pl.read_csv(second).drop("label").join(truth, on="item").rename({"truth": "label"}).write_csv(second)
    done = run("certify", folder / "labels.csv", "--gold", gold, "--more", second, "--max-error", 0.1)
    assert done.exit_code == 0 and "by 170 random gold labels" in done.stderr, done.output
    done = run("certify", folder / "labels.csv", "--gold", gold, "--more", second, "--max-error", 0.1, "--sets", 0.9)
    assert done.exit_code != 0 and "gold labels of one draw" in done.stderr
    done = run("certify", folder / "labels.csv", "--more", second)
    assert done.exit_code != 0 and "Give --ask 100" in done.stderr
