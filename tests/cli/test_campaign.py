"""The commands about campaigns, run as people run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.cli.main import app


def run(*words: Any, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "items.csv").write_text("item,truth\na,\nb,\nc,wren\n", encoding="utf-8")
    (tmp_path / "people.csv").write_text("worker,price\nann,1\nbob,2.5\n", encoding="utf-8")
    (tmp_path / "votes.csv").write_text("item,worker,label\na,ann,wren\na,bob,robin\nb,ann,robin\n", encoding="utf-8")
    return tmp_path


def made(folder: Path, *more: Any) -> Path:
    run(
        "campaign", "init", folder / "birds", "--classes", "wren,robin", "--items", folder / "items.csv",
        "--annotators", folder / "people.csv", *more,
    )  # fmt: skip
    return folder / "birds"


def test_from_beginning_to_end(folder: Path) -> None:
    birds = made(folder, "--budget", 20)
    assert "3 votes added, 0 were there already" in run("campaign", "add", birds, folder / "votes.csv").output
    assert json.loads(run("campaign", "add", birds, folder / "votes.csv", "--json").stdout) == {
        "added": 0,
        "repeated": 3,
    }
    status = json.loads(run("campaign", "status", birds, "--json").stdout)
    assert (status["votes"], status["spent"], status["budget"], status["stop"]) == (3, 4.5, 20.0, None)
    assert "4.50 of 20.00" in run("campaign", "status", birds).stdout
    questions = json.loads(run("campaign", "next", birds, "-n", 5, "--json").stdout)["questions"]
    assert [(q["item"], q["annotator"], q["price"]) for q in questions] == [("b", "bob", 2.5)]
    run(
        "campaign",
        "export",
        birds,
        "--out",
        folder / "labels.csv",
        "--annotators",
        folder / "who.csv",
        "--votes",
        folder / "v.csv",
    )
    assert (folder / "labels.csv").read_text(encoding="utf-8").startswith("item,label,probability")
    assert len((folder / "v.csv").read_text(encoding="utf-8").splitlines()) == 4
    assert run("campaign", "export", birds).stdout.startswith("item,label")


def test_next_writes_a_table(folder: Path) -> None:
    birds = made(folder)
    run("campaign", "next", birds, "-n", 2, "--out", folder / "q.csv")
    assert (folder / "q.csv").read_text(encoding="utf-8").splitlines()[0] == "item,annotator,price,value"
    assert run("campaign", "next", birds, "-n", 2).stdout.startswith("item,annotator,price,value")


def test_groups_of_items(folder: Path) -> None:
    (folder / "items.csv").write_text("item,group\na,old\nb,new\nc,new\n", encoding="utf-8")
    birds = made(folder, "--gap", 0.05)
    run("campaign", "add", birds, folder / "votes.csv")
    assert json.loads(run("campaign", "next", birds, "-n", 2, "--json").stdout)["questions"]
    told = run("campaign", "init", folder / "x", "--classes", "a,b", "--gap", 0.1, code=2).output
    assert "A gap is between groups" in told


def test_votes_with_ids(folder: Path) -> None:
    birds = made(folder)
    (folder / "more.csv").write_text("vote_id,item,worker,label\nv1,a,ann,wren\nv1,a,ann,wren\n", encoding="utf-8")
    assert json.loads(run("campaign", "add", birds, folder / "more.csv", "--json").stdout) == {
        "added": 1,
        "repeated": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,worker,label\nz,ann,wren\n", "Unknown items: 'z'"),
        ("item,worker,label\na,zoe,wren\n", "Unknown annotators: 'zoe'"),
        ("item,worker,label\na,ann,hawk\n", "says 'hawk'"),
        ("item,worker\na,ann\n", "No column found for: label"),
    ],
)
def test_bad_votes_leave_nothing_behind(folder: Path, text: str, message: str) -> None:
    birds = made(folder)
    (folder / "bad.csv").write_text(text, encoding="utf-8")
    assert message in run("campaign", "add", birds, folder / "bad.csv", code=1).output
    assert json.loads(run("campaign", "status", birds, "--json").stdout)["votes"] == 0


def test_bad_settings(folder: Path) -> None:
    out = folder / "birds"
    assert "--budget 0.0" in run("campaign", "init", out, "--classes", "a,b", "--budget", 0, code=2).output
    assert "cannot follow a stream" in run("campaign", "init", out, "--classes", "a,b", "-m", "anchored", code=2).output
    assert "two or more" in run("campaign", "init", out, "--classes", "a", code=2).output
    (folder / "people.csv").write_text("worker,price\nann,-3\n", encoding="utf-8")
    told = run("campaign", "init", out, "--classes", "a,b", "--annotators", folder / "people.csv", code=2).output
    assert "The price of 'ann' is -3.0" in told
    (folder / "people.csv").write_text("worker,price\nann,dear\n", encoding="utf-8")
    told = run("campaign", "init", out, "--classes", "a,b", "--annotators", folder / "people.csv", code=1).output
    assert "line 2 has the price 'dear'" in told
    assert not out.exists()
    assert "There is no campaign" in run("campaign", "status", folder / "nowhere", code=1).output


def test_the_budget_ends_it(folder: Path) -> None:
    birds = made(folder, "--budget", 4.6)
    run("campaign", "add", birds, folder / "votes.csv")
    told = run("campaign", "next", birds)
    assert "No questions: the budget is spent: 4.5 of 4.6" in told.output


def test_salvage(folder: Path) -> None:
    birds = made(folder)
    run("campaign", "add", birds, folder / "votes.csv")
    assert "3 votes written" in run("campaign", "export", birds, "--salvage", folder / "rest.csv").output
    assert (folder / "rest.csv").read_text(encoding="utf-8").splitlines()[0] == "vote_id,item,annotator,label"


def test_what_one_annotator_should_do(folder: Path) -> None:
    birds = made(folder)
    found = json.loads(run("campaign", "next", birds, "--annotator", "ann", "-n", 1, "--json").stdout)
    assert [q["annotator"] for q in found["questions"]] == ["ann"]
    assert (found["state"], found["stop"], found["why_none"]) == ("running", None, None)
    item = found["questions"][0]["item"]
    assert "1 question released" in run("campaign", "release", birds, "--annotator", "ann").output
    assert "1 item skipped" in run("campaign", "skip", birds, "ann", item).output
    again = json.loads(run("campaign", "next", birds, "-a", "ann", "--json").stdout)
    assert item not in [q["item"] for q in again["questions"]]
    run("campaign", "set-annotator", birds, "bob", "--away")
    assert "No questions: 'bob' is not available" in run("campaign", "next", birds, "-a", "bob").output
    assert "Unknown annotators: 'zoe'" in run("campaign", "next", birds, "-a", "zoe", code=1).output


def test_a_running_campaign_is_changed(folder: Path) -> None:
    birds = made(folder, "--budget", 4.6)
    run("campaign", "add", birds, folder / "votes.csv")
    facts = json.loads(run("campaign", "status", birds, "--json").stdout)
    assert facts["state"] == "budget-spent"
    assert "Stop (budget spent): the budget is spent" in run("campaign", "status", birds).stdout.replace("\n", " ")
    told = run("campaign", "set", birds, "--budget", 40, "--target", 0.97, "--max-votes", 5).output
    assert "budget 4.6 -> 40; target none -> 0.97; max votes none -> 5. The campaign is running." in told
    assert json.loads(run("campaign", "set", birds, "--target", "none", "--json").stdout) == {
        "changed": {"target": [0.97, None]}, "state": "running",
    }  # fmt: skip
    (folder / "more.csv").write_text("item,truth\nc,wren\nd,\n", encoding="utf-8")
    assert "1 item added, 1 were there" in run("campaign", "add-items", birds, folder / "more.csv").output
    run("campaign", "close-items", birds, "d", "b")
    assert json.loads(run("campaign", "status", birds, "--json").stdout)["closed"] == 2
    run("campaign", "close-items", birds, "--from", folder / "more.csv", "--reopen")
    (folder / "who.csv").write_text("worker,price\nann,3\ncem,1\n", encoding="utf-8")
    assert "1 annotator added, 1 were there" in run("campaign", "add-annotators", birds, folder / "who.csv").output
    run("campaign", "set-annotator", birds, "cem", "--price", 0.5, "--max-votes", 3)
    history = run("campaign", "history", birds).stdout.splitlines()
    assert [line.split("  ")[1].split(":")[0] for line in history] == [
        "settings", "settings", "add items", "close items", "reopen items", "annotators", "annotators",
    ]  # fmt: skip
    assert json.loads(run("campaign", "history", birds, "--json").stdout)[0]["detail"]["budget"] == [4.6, 40.0]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("set",), 2, "Nothing to set"),
        (("set", "--budget", "dear"), 2, "--budget dear: expected a number, or none"),
        (("set", "--target", "2"), 2, "--target 2.0"),
        (("set-annotator", "ann"), 2, "Nothing to set"),
        (("close-items",), 1, "Name the items"),
        (("release",), 2, "Say what is released"),
        (("skip", "ann", "zzz"), 1, "Unknown items: 'zzz'"),
    ],
)
def test_changes_that_are_none(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    birds = made(folder)
    assert message in run("campaign", words[0], birds, *words[1:], code=code).output
    assert "Nothing was changed" in run("campaign", "history", birds).output


def test_classes_and_names_that_are_numbers(folder: Path) -> None:
    """A campaign made on the command line is used from Python, and the other way round."""
    (folder / "items.csv").write_text("item\n7\n8\n", encoding="utf-8")
    run("campaign", "init", folder / "n", "--classes", "1,2", "--items", folder / "items.csv", "--unknown", "add")
    with cw.Campaign.open(folder / "n") as campaign:
        assert campaign.add([(7, "ann", 1), (8, "ann", 2)]).added == 2
    with cw.Campaign.create(folder / "m", cw.OneCoin(), classes=[1, 2], items=[7, 8], annotators=[12]) as campaign:
        campaign.propose(1)
    (folder / "votes.csv").write_text("item,worker,label\n7,12,1\n8,12,2\n", encoding="utf-8")
    assert "2 votes added" in run("campaign", "add", folder / "m", folder / "votes.csv").output
    assert "1 item skipped" in run("campaign", "skip", folder / "m", "12", "7").output


def test_numbers_of_text_files_stay_text_for_the_names_that_come_later(folder: Path) -> None:
    run("campaign", "init", folder / "c", "--classes", "wren,robin", "--unknown", "add")
    for names in ("7 8", "8 b"):
        rows = [f"{name},{i},wren" for i, name in enumerate(names.split())]
        (folder / "more.csv").write_text("item,worker,label\n" + "\n".join(rows), encoding="utf-8")
        run("campaign", "add", folder / "c", folder / "more.csv")
    with cw.Campaign.open(folder / "c") as campaign:
        assert campaign.consensus().items.tolist() == ["7", "8", "b"]
        assert campaign.add([(7, 0, "wren")]).repeated == 1


def test_an_accuracy_that_is_not_known_has_no_figure(folder: Path) -> None:
    path = made(folder)
    (folder / "few.csv").write_text("item,worker,label\na,ann,wren\nb,ann,robin\n", encoding="utf-8")
    run("campaign", "add", path, folder / "few.csv")
    facts = json.loads(run("campaign", "status", path, "--json").stdout)
    assert facts["accuracy_known"] is False
    shown = next(line for line in run("campaign", "status", path).stdout.splitlines() if line.startswith("accuracy"))
    assert "not known" in shown and "%" not in shown


def test_a_proof_by_gold_from_the_command_line(folder: Path) -> None:
    (folder / "items.csv").write_text("item\n" + "".join(f"i{n}\n" for n in range(60)), encoding="utf-8")
    birds = made(folder, "--max-error", 0.1)
    (folder / "people.csv").write_text("worker\nann\nbob\ncem\n", encoding="utf-8")
    run("campaign", "add-annotators", birds, folder / "people.csv")
    rows = "".join(f"i{n},{who},wren\n" for n in range(60) for who in ("ann", "bob", "cem"))
    (folder / "votes.csv").write_text("item,worker,label\n" + rows, encoding="utf-8")
    run("campaign", "add", birds, folder / "votes.csv")
    assert "draw items at random" in " ".join(run("campaign", "status", birds).stdout.split())
    run("campaign", "prove", birds, "--ask", 40, "--out", folder / "sheet.csv")
    sheet = (folder / "sheet.csv").read_text(encoding="utf-8").replace('""', "").splitlines()
    assert len(sheet) == 41
    filled = [sheet[0], *(f"{line.split(',')[0]},wren" for line in sheet[1:])]
    (folder / "sheet.csv").write_text("\n".join(filled[:-1]) + "\n", encoding="utf-8")
    assert "Not yet compared: 1 of the 40" in run("campaign", "prove", birds, "--gold", folder / "sheet.csv").output
    (folder / "sheet.csv").write_text("\n".join(filled) + "\n", encoding="utf-8")
    done = run("campaign", "prove", birds, "--gold", folder / "sheet.csv").output
    assert "At most 10% of the 60 labels are wrong, with 95% confidence, proven by 40 random gold labels" in done
    assert "target reached" in run("campaign", "status", birds).stdout
    assert "give --ask" in run("campaign", "prove", birds, code=2).output.lower()
