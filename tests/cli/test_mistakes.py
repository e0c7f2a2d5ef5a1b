"""Slips of a user at the command line: nothing is lost, and what to do is said in the words of the command line."""

from __future__ import annotations

import ast
import pickle
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise import registry
from crowdwise.cli.main import app
from crowdwise.cli.options import flag
from crowdwise.errors import ExtraError, InputError, NotFittedError, Option, OutputError, Remedy, Setting
from crowdwise.trust.estimates import What

DUPLICATE = Option("on_duplicate", "first", "last")


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words], prog_name="crowdwise")


def told(done):
    """What was said, on one line, however it was wrapped."""
    return " ".join(done.stderr.split())


@pytest.fixture
def crowd(tmp_path):
    made = cw.simulate.one_coin(40, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0)
    made.save(tmp_path / "crowd")
    return tmp_path / "crowd"


# -------------------------------------------------------------------- results never take the place of what is read


def inside(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "words",
    [
        ["aggregate", "labels.csv", "--out", "labels.csv"],
        ["aggregate", "labels.csv", "--out", "../crowd/labels.csv"],
        ["aggregate", ".", "--out", "labels.csv"],
        ["aggregate", ".", "--annotators", "truth.csv"],
        ["aggregate", "labels.csv", "--truth", "truth.csv", "--annotators", "truth.csv"],
        ["aggregate", "labels.csv", "--gold", "truth.csv", "--out", "truth.csv"],
        ["aggregate", "labels.csv", "--answers", "ratings", "--out", "labels.csv"],
        ["compare", "labels.csv", "--methods", "majority", "--out", "labels.csv"],
        ["rank", "labels.csv", "--out", "labels.csv"],
    ],
)
def test_votes_and_truth_are_never_overwritten(crowd, monkeypatch, words):
    monkeypatch.chdir(crowd)
    before = inside(crowd)
    done = run(*words)
    assert done.exit_code == 2 and done.stdout == ""
    assert "is what the answers or the truth are read from: choose another name" in told(done)
    assert inside(crowd) == before


def test_two_results_do_not_share_a_file(crowd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("aggregate", crowd / "labels.csv", "--out", "a.csv", "--annotators", tmp_path / "a.csv")
    assert done.exit_code == 2 and "is named for two results" in told(done)
    assert [p.name for p in tmp_path.iterdir()] == ["crowd"]


def test_a_folder_that_cannot_be_saved_to_is_known_before_the_work(crowd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("aggregate", crowd / "labels.csv", "--out", "a.csv", "--save", crowd)
    assert done.exit_code == 1 and "holds something else than a saved consensus" in told(done)
    assert [p.name for p in tmp_path.iterdir()] == ["crowd"]
    for _ in range(2):  # an earlier consensus may be replaced
        assert run("aggregate", crowd / "labels.csv", "--out", "a.csv", "--save", "kept").exit_code == 0
    made = cw.simulate.comparisons(5, n_annotators=3, n_comparisons=60, random_state=0)
    made.comparisons.to_frame("polars").write_csv("battles.csv")
    done = run("rank", "battles.csv", "--out", "board.csv", "--save", crowd)
    assert done.exit_code == 1 and not (tmp_path / "board.csv").exists()


# -------------------------------------------------------------------- options, not keyword arguments


@pytest.mark.parametrize(
    ("command", "content", "words"),
    [
        ("diagnose", "item,annotator,label\n1,a,x\n1,a,y\n", "--on-duplicate first or last, or count every row with"),
        ("describe", "item,annotator,label\n1,a,x\n1,b,\n", "leave them out with --on-missing drop."),
        ("aggregate", "item,annotator,label\n1,a,x\n1,b,x\n", "declare them: --classes A,B,C"),
        ("compare", "foo,bar,baz\n1,2,3\n", "e.g. --item foo --annotator bar --label baz, or pass --form wide if"),
        ("rank", "foo,bar,baz\n1,2,3\n", "e.g. --left foo --right bar --outcome baz."),
        ("aggregate", "Photo no,rater,label\n1,2,3\n", "e.g. --item 'Photo no', or pass"),
        ("describe", "foo,bar\n1,2\n", "e.g. --item NAME, or pass"),
        ("describe", "photo,ann,bob,cem\n1,cat,cat,dog\n", "e.g. --item NAME, or pass --form wide"),
    ],
)
def test_what_to_do_is_said_in_options(tmp_path, command, content, words):
    (tmp_path / "labels.csv").write_text(content)
    done = run(command, tmp_path / "labels.csv")
    assert done.exit_code == 1 and words in told(done)


def test_columns_of_ones_own_are_named_by_what_the_error_says(tmp_path):
    path, rows = tmp_path / "mine.csv", "1,ann,cat\n1,bob,cat\n1,cem,dog\n2,ann,dog\n2,bob,dog\n2,cem,dog\n"
    path.write_text(f"Photo no,who,animal\n{rows}")
    options = re.search(r"e\.g\. (--item .*), or pass", told(run("aggregate", path)))
    assert options is not None
    done = run("aggregate", path, *shlex.split(options[1]), "--out", tmp_path / "consensus.csv")
    assert done.exit_code == 0 and "2 labels from 6 votes by 3 annotators, 2 classes" in told(done)


def test_truth_and_seeds_have_options(crowd):
    assert "none is given. Give them: --gold FILE." in told(
        run("aggregate", crowd / "labels.csv", "-m", "gold-weighted")
    )
    assert "Error: --seed -1: expected" in told(run("aggregate", crowd / "labels.csv", "--seed", "-1"))
    assert "Error: --share 2.0: expected" in told(run("compare", crowd / "labels.csv", "--share", "2"))


def test_a_campaign_has_no_options_for_columns(tmp_path):
    assert run("campaign", "init", tmp_path / "c", "--classes", "x,y").exit_code == 0
    (tmp_path / "votes.csv").write_text("foo,bar,baz\n1,2,3\n")
    done = run("campaign", "add", tmp_path / "c", tmp_path / "votes.csv")
    assert done.exit_code == 1 and told(done).endswith("The table has 'foo', 'bar', 'baz'. Rename them.")


# -------------------------------------------------------------------- forms


def test_a_long_table_is_not_read_as_wide(crowd):
    done = run("aggregate", crowd / "labels.csv", "--form", "wide")
    assert done.exit_code == 1 and "it is in the long form. Leave out --form wide." in told(done)


def test_annotators_may_be_called_like_the_columns_of_the_long_form():
    frame = {"item": [1, 2], "label": ["x", "y"], "bob": ["x", "x"]}
    assert cw.Votes.from_frame(frame, form="wide").annotators.tolist() == ["label", "bob"]
    frame = {"item": [1, 2], "annotator": ["x", "y"], "bob": ["x", "x"]}
    assert cw.Votes.from_frame(frame, form="wide").annotators.tolist() == ["annotator", "bob"]


# -------------------------------------------------------------------- campaigns


@pytest.mark.parametrize("method", ["glad", "majority", "minimax"])
def test_a_campaign_needs_a_method_that_follows(tmp_path, method):
    done = run("campaign", "init", tmp_path / "c", "--classes", "x,y", "--method", method)
    assert done.exit_code == 2 and f"{method} cannot follow a stream of votes" in told(done)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("option", "content", "words"),
    [
        ("--annotators", "annotator,price\nann,1\n,2\n", "line 3 names no annotator"),
        ("--annotators", "annotator,price\nann,much\n", "line 2 has the price 'much'"),
        ("--annotators", "annotator,price\nann,-4\n", "The price of 'ann' is -4.0"),
        ("--items", "item,truth\np1,x\n,y\n", "line 3 names no item"),
        ("--items", "item,truth\np1,zebra\n", "'zebra'"),
    ],
)
def test_tables_of_a_campaign_are_checked_and_nothing_is_left(tmp_path, option, content, words):
    (tmp_path / "table.csv").write_text(content)
    done = run("campaign", "init", tmp_path / "c", "--classes", "x,y", option, tmp_path / "table.csv")
    assert done.exit_code in (1, 2) and words in told(done)
    assert not (tmp_path / "c").exists()


def test_a_campaign_without_votes_has_nothing_to_export(tmp_path):
    assert run("campaign", "init", tmp_path / "c", "--classes", "x,y", "--seed", "-1").exit_code == 2
    assert run("campaign", "init", tmp_path / "c", "--classes", "x,y").exit_code == 0
    for words in ([], ["--votes", tmp_path / "v.csv"], ["--out", tmp_path / "v.csv"]):
        done = run("campaign", "export", tmp_path / "c", *words)
        assert done.exit_code == 1 and "No votes have come in yet: hand some over" in told(done)
    assert not (tmp_path / "v.csv").exists()


def test_a_remedy_is_worded_for_python_and_for_the_command_that_has_the_option():
    twice = Remedy("Keep one with {}, or count every row with {}.", DUPLICATE, Option("on_duplicate", "all"))
    columns = Remedy("Name the column: {}.", Option("item"), command="Rename it.")
    python = Remedy("Load it with crowdwise.load.", command="Choose another file.")
    error = InputError("Found 2.", remedy=(twice, columns, python))
    assert str(error) == (
        "Found 2. Keep one with on_duplicate='first' or 'last', or count every row with on_duplicate='all'. "
        "Name the column: item='...'. Load it with crowdwise.load."
    )
    assert error.for_cli(lambda option: flag(option, ["--on-duplicate"])) == (
        "Found 2. Keep one with --on-duplicate first or last, or count every row with --on-duplicate all. Rename it. "
        "Choose another file."
    )
    assert error.for_cli(lambda option: flag(option, ["--item"])) == (
        "Found 2. Name the column: --item NAME. Choose another file."
    )
    assert Remedy("Fill them in.").for_cli(lambda option: None) == "Fill them in."


@pytest.mark.parametrize("kind", [InputError, OutputError, ExtraError, NotFittedError])
def test_an_error_keeps_its_remedy_from_process_to_process(kind):
    error = pickle.loads(pickle.dumps(kind("Found 2.", remedy=Remedy("Keep one with {}.", DUPLICATE))))
    assert str(error) == "Found 2. Keep one with on_duplicate='first' or 'last'."
    assert error.for_cli(lambda option: flag(option, [])) == "Found 2."


def test_a_parameter_is_set_where_the_command_has_no_option_for_it():
    assert flag(Setting("random_state", 1), ["--seed", "--set"]) == "--seed 1"
    assert flag(Setting("coins", "one"), ["--set"]) == "--set coins=one"
    assert flag(Setting("coins", "one"), ["--column"]) is None
    assert flag(Option("scheme", "plain"), ["--set", "--column"]) == "--column scheme=plain"
    assert flag(Option("classes", python="[...]", command="A,B,C"), ["--classes"]) == "--classes A,B,C"


def test_errors_propose_values_that_their_options_take():
    """``Option("on_missing", "drop")`` anywhere in the package names a value of ``--on-missing``."""
    taken = {"answer_type": set(registry.ANSWER_TYPES), "what": set(get_args(What))}
    for option in (option for kind in (cw.Votes, cw.Comparisons, cw.Tags) for option in kind.options):
        taken.setdefault(option.name, set()).update(option.choices)
    proposed = {}
    for file in Path(cw.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Option":
                name, *values = (getattr(arg, "value", None) for arg in call.args)
                proposed.setdefault(name, set()).update(value for value in values if isinstance(value, str))
    assert {"answer_type", "on_duplicate", "on_missing", "form"} <= {name for name in proposed if proposed[name]}
    assert {name: values - taken[name] for name, values in proposed.items() if values and values - taken[name]} == {}
