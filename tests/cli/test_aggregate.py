"""The command line, as a user meets it: what it prints where, what it writes, how it fails."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer

import crowdwise as cw
from command_line import run, wait_for_work
from crowdwise import kernels
from crowdwise.bench.runs import SHOWN
from crowdwise.cli.main import COMMANDS, app
from crowdwise.cli.options import GROUPS, assignments

CSV = "task,worker,label\n" + "".join(
    f"t{n},w{m},{'cat' if (n + (m == 2 and n % 3 == 0)) % 2 else 'dog'}\n" for n in range(12) for m in range(4)
)


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(CSV)
    return path


@pytest.fixture
def truth(tmp_path):
    path = tmp_path / "truth.csv"
    path.write_text("task,label\n" + "".join(f"t{n},{'cat' if n % 2 else 'dog'}\n" for n in range(12)))
    return path


# -------------------------------------------------------------------- aggregate


def test_json_is_one_object_alone_on_standard_output(labels, truth):
    done = run("aggregate", labels, "--truth", truth, "--json", "--seed", 3)
    assert done.returncode == 0
    assert done.stderr == ""
    facts = json.loads(done.stdout)
    assert list(facts) == [
        "method", "answer_type", "items", "annotators", "classes", "votes", "iterations", "converged", "objective",
        "seconds", "notes", "accuracy", "accuracy_low", "accuracy_high", "calibration_error", "calibration_error_low",
        "calibration_error_high",
    ]  # fmt: skip
    assert (facts["method"], facts["items"], facts["annotators"], facts["classes"], facts["votes"]) == (
        "auto",
        12,
        4,
        2,
        48,
    )
    assert facts["accuracy"] == 1.0
    assert facts["converged"] is True


def test_without_out_labels_go_to_standard_output_and_words_to_standard_error(labels):
    done = run("aggregate", labels, "--method", "majority")
    assert done.returncode == 0
    table = pl.read_csv(done.stdout.encode())
    assert table.columns == ["item", "label", "probability", "entropy", "votes"]
    assert table.height == 12
    assert "12 labels from 48 votes by 4 annotators, 2 classes (majority)" in done.stderr
    assert "of the labels are expected to be right (95% CI" in done.stderr


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_ending_chooses_the_format(labels, tmp_path, ending):
    out, people = tmp_path / f"out.{ending}", tmp_path / f"people.{ending}"
    done = run("aggregate", labels, "--out", out, "--annotators", people, "--probabilities")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    read = {"csv": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}[ending]
    assert read(out).columns[-2:] == ["p(cat)", "p(dog)"]
    assert read(people)["annotator"].to_list() == ["w0", "w1", "w2", "w3"]
    assert {"accuracy", "accuracy_low", "accuracy_high"} <= set(read(people).columns)
    assert "written" in done.stderr


def test_a_written_file_has_the_usual_permissions(labels, tmp_path):
    out = tmp_path / "out.csv"
    run("aggregate", labels, "--out", out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~current_umask()


def current_umask():
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_a_dataset_folder_brings_its_truth(labels, truth, tmp_path):
    facts = json.loads(run("aggregate", tmp_path, "--json", "--method", "dawid-skene").stdout)
    assert facts["accuracy"] == 1.0
    assert facts["objective"] < 0


def test_gold_is_used_and_left_out_of_the_accuracy(labels, truth, tmp_path):
    gold = tmp_path / "known.csv"
    gold.write_text("task,label\nt0,cat\nt1,cat\n")  # t0 is really a dog
    facts = json.loads(run("aggregate", labels, "--truth", truth, "--gold", gold, "--json").stdout)
    assert facts["accuracy"] == 1.0
    table = pl.read_csv(run("aggregate", labels, "--gold", gold).stdout.encode())
    assert table.filter(pl.col("item") == "t0")["label"].item() == "cat"
    weighted = run("aggregate", labels, "--gold", truth, "--method", "gold-weighted", "--json")
    assert json.loads(weighted.stdout)["method"] == "gold-weighted"
    assert run("aggregate", labels, "--method", "gold-weighted").returncode == 1


def test_parameters_reach_the_method(labels, tmp_path):
    kept = tmp_path / "kept"
    done = run(
        "aggregate",
        labels,
        "-m",
        "anchored",
        "--set",
        "anchor=0.25",
        "--set",
        "prior=crowd",
        "--set",
        "class_prior=[1,3]",
        "--save",
        kept,
    )
    assert done.returncode == 0, done.stderr
    params = cw.Consensus.load(kept).params
    assert (params["anchor"], params["prior"], params["class_prior"]) == (0.25, "crowd", [1, 3])


def test_values_of_set():
    given = ["a=1", "b=1e-3", "c=true", "d=text", "e=[1, 2]", "f=None", "g=x=y", "h="]
    assert assignments(given) == {
        "a": 1,
        "b": 0.001,
        "c": True,
        "d": "text",
        "e": [1, 2],
        "f": None,
        "g": "x=y",
        "h": "",
    }


def test_duplicates_by_choice(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(CSV + "t0,w0,cat\n")
    done = run("aggregate", path)
    assert done.returncode == 1
    assert "annotator 'w0' labels item 't0' in lines 2 and 50" in done.stderr
    counts = {
        how: json.loads(run("aggregate", path, "--on-duplicate", how, "--json").stdout)["votes"]
        for how in ("first", "last", "all")
    }
    assert counts == {"first": 48, "last": 48, "all": 49}


def test_columns_classes_and_form_by_name(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("clip;who;said\n1;a;x\n1;b;x\n2;a;y\n2;b;x\n")
    arguments = (
        "--item",
        "clip",
        "--annotator",
        "who",
        "--label",
        "said",
        "--classes",
        "x,y,z",
        "--json",
        "-m",
        "majority",
    )
    assert json.loads(run("aggregate", path, *arguments).stdout)["classes"] == 3
    wide = tmp_path / "wide.csv"
    wide.write_text("item,ann,bob\n1,x,x\n2,y,\n3,y,x\n")
    assert json.loads(run("aggregate", wide, "--json", "-m", "majority").stdout)["votes"] == 5


def test_missing_labels_by_choice(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(CSV + "t5,w9,\n")
    done = run("aggregate", path)
    assert done.returncode == 1
    assert "no label" in done.stderr
    assert json.loads(run("aggregate", path, "--on-missing", "drop", "--json").stdout)["votes"] == 48


def test_a_note_when_the_fit_stops_early(labels):
    done = run("aggregate", labels, "--json", "--set", "max_iter=1")
    assert done.returncode == 0
    assert json.loads(done.stdout)["converged"] is False
    assert "Note: auto stopped after 2 iterations" in done.stderr


# -------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "There is no file"),
        ("", "is empty"),
        ("task,worker,label\n", "has no votes"),
        ("task,color,size\n1,red,2\n", "No column found for: annotator"),
        ("task,worker,label\n1,a,x\n1,b,x\n", "single class"),
        ("task,worker,label\n1,a,x\n2,a,y\n", "single annotator, 'a'"),
    ],
)
def test_bad_input_exits_with_1_and_a_reason(tmp_path, content, text):
    path = tmp_path / "labels.csv"
    if content is not None:
        path.write_text(content)
    done = run("aggregate", path, "--json")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_a_true_class_nobody_used(labels, tmp_path):
    path = tmp_path / "gold.csv"
    path.write_text("task,label\nt1,horse\n")
    done = run("aggregate", labels, "--truth", path)
    assert done.returncode == 1
    assert "'horse'" in done.stderr and "classes" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--method", "dawid-skeen"], "Did you mean 'dawid-skene'"),
        (["--set", "toll=1"], "Did you mean 'tol'"),
        (["--set", "tol"], "expected name=value"),
        (["--set", "tol=small"], "--set tol=small"),
        (["--out", "labels.doc"], "expected a name ending in .csv"),
        (["--on-duplicate", "maybe"], "maybe"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_exits_with_2(labels, arguments, text):
    done = run("aggregate", labels, *arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unwritable_output_is_known_before_the_work_and_leaves_nothing(labels, tmp_path):
    done = run("aggregate", labels, "--out", tmp_path / "nowhere" / "out.csv")
    assert done.returncode == 1
    assert "There is no folder" in done.stderr
    folder = tmp_path / "out.csv"
    folder.mkdir()
    done = run("aggregate", labels, "--out", folder)
    assert done.returncode == 1
    assert "is a folder" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["labels.csv", "out.csv"]


def test_a_write_that_fails_half_way_keeps_the_old_file(labels, tmp_path, monkeypatch):
    from crowdwise.cli import outputs
    from crowdwise.errors import OutputError

    out = tmp_path / "out.csv"
    out.write_text("old")

    class Broken:
        def write_csv(self, name):
            with open(name, "w") as file:
                file.write("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left on device"):
        outputs.write_table(Broken(), out)
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["labels.csv", "out.csv"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_interrupting_a_fit_writes_nothing(tmp_path):
    sim = cw.simulate.dirichlet(30_000, n_annotators=400, n_classes=8, votes_per_item=3, random_state=0)
    sim.votes.with_truth(None).to_frame("polars").write_csv(tmp_path / "labels.csv")
    command = [sys.executable, "-m", "crowdwise", "aggregate", "labels.csv", "-m", "dawid-skene", "--out", "out.csv"]
    slow = ["--set", "tol=0", "--set", "max_iter=1000000", "--set", "accelerate=false"]
    process = subprocess.Popen(
        [*command, *slow], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for_work(process, 4.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert out == ""
    assert err.strip() == "Interrupted. No file was written."
    assert sorted(p.name for p in tmp_path.iterdir()) == ["labels.csv"]


def test_a_closed_pipe_is_not_an_error_report(labels):
    command = f"{sys.executable} -m crowdwise aggregate {labels} 2>/dev/null | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "item,label,probability,entropy,votes\n"
    assert done.stderr == ""


def test_the_table_marks_annotators_with_too_few_votes(tmp_path):
    crowd = cw.simulate.one_coin(200, n_annotators=6, n_classes=2, votes_per_item=5, random_state=0)
    table = crowd.votes.with_truth(None).to_frame("polars").select("item", "annotator", "label")
    table.write_csv(tmp_path / "many.csv")
    said = run("aggregate", tmp_path / "many.csv", "--out", tmp_path / "o.csv", "--verbose").stderr
    assert "too few votes" not in said and "?" not in said
    once = pl.DataFrame({"item": [0], "annotator": ["once"], "label": [0]}, schema=table.schema)
    pl.concat([table, once]).write_csv(tmp_path / "one.csv")
    said = run("aggregate", tmp_path / "one.csv", "--out", tmp_path / "o.csv", "--verbose").stderr
    (line,) = [line for line in said.splitlines() if line.startswith("once")]
    assert "? " in line and said.count("?") == 2 and "too few votes to judge" in said


def test_nobody_is_to_look_at_after_two_votes(tmp_path):
    (tmp_path / "wide.csv").write_text("item,r1,r2,r3\na,1,1,0\nb,0,0,1\nc,1,1,\n")
    assert "to look at" not in run("aggregate", tmp_path / "wide.csv", "--out", tmp_path / "o.csv").stderr


def shown(votes, folder, *words):
    """The lines of aggregate on some votes."""
    votes.with_truth(None).to_frame("polars").select("item", "annotator", "label").write_csv(folder / "v.csv")
    done = run("aggregate", folder / "v.csv", "--out", folder / "o.csv", *words)
    assert done.returncode == 0, done.stderr
    return done.stderr.split("\n")[1:-1]


def test_the_result_comes_in_a_few_lines_and_how_it_was_computed_on_request(tmp_path):
    crowd = cw.simulate.hammer_spammer(400, n_annotators=12, share=0.8, votes_per_item=6, random_state=0)
    spammers = crowd.votes.annotators[crowd.parameters["spammers"]].tolist()
    lines = shown(crowd.votes, tmp_path)
    assert lines[0] == "400 labels from 2,400 votes by 12 annotators, 2 classes (auto)"
    assert lines[1].endswith("%)") and "% of the labels are expected to be right (95% CI " in lines[1]
    (people,) = [line for line in lines if line.startswith("Clearly less accurate: ")]
    assert sorted(re.findall(r"(\w+) \(\d+% right\)", people)) == sorted(spammers)
    assert lines[-1] == f"written: {tmp_path / 'o.csv'}" and len(lines) <= 7
    assert not any("err together" in line or "passes" in line for line in lines)
    more = "\n".join(shown(crowd.votes, tmp_path, "--verbose"))
    assert "How it was computed" in more and "err together" in more and "passes" in more and "Least certain" in more
    stream = shown(crowd.votes, tmp_path, "--engine", "stream", "--annotators", tmp_path / "people.csv")
    assert stream[0] == lines[0] and people in stream and len(stream) <= len(lines)


@pytest.mark.parametrize(("kind", "words"), [("panel", "Taken for a panel: "), ("rules", "Taken for rules: ")])
def test_the_kind_of_a_crowd_is_said_in_one_line(kind, words, tmp_path):
    from crowdwise.methods.ds_auto import SEEN

    rows = [(n, m, (n + (n * m % 5 == 1)) % 2) for n in range(60) for m in range(8)]
    if kind == "rules":
        rows = [row for row in rows if row[2] == row[1] % 2]
    lines = shown(cw.Votes.from_records(rows), tmp_path)
    assert [line.startswith(words) for line in lines].count(True) == 1 and SEEN[kind] not in lines
    assert SEEN[kind] in shown(cw.Votes.from_records(rows), tmp_path, "--verbose")


def test_what_must_not_be_missed_is_in_the_few_lines(tmp_path):
    copied = cw.Votes.from_records([(n, m, n % 2) for n in range(60) for m in "abc"])
    lines = "\n".join(shown(copied, tmp_path))
    assert "they look copied, or aggregated already" in lines and "expected to be right" not in lines
    single = cw.Votes.from_records([(n, "abc"[n % 3], n % 2) for n in range(60)])
    for words in ((), ("--engine", "stream"), ("--method", "majority")):
        lines = "\n".join(shown(single, tmp_path, *words))
        assert "cannot be said: no item has votes of two annotators" in lines, words
        assert "expected to be right (" not in lines
    even = cw.Votes.from_records([(n, m, k) for n in range(40) for k, m in enumerate("ab")])
    assert "Ties: 40 of 40 labels; another class is as probable." in shown(even, tmp_path, "--method", "majority")


# -------------------------------------------------------------------- the other commands


def test_methods():
    done = run("methods")
    assert done.returncode == 0
    for key in cw.METHODS:
        assert key in done.stdout
    facts = json.loads(run("methods", "--json").stdout)
    assert facts["default"] == "auto"
    assert [m["key"] for m in facts["methods"]] == list(cw.METHODS)
    assert facts["methods"][0]["parameters"]["anchor"] == 0.8


def test_describe(labels):
    done = run("describe", labels)
    assert done.returncode == 0
    assert "48 votes by 4 annotators on 12 items, 2 classes" in done.stdout
    facts = json.loads(run("describe", labels, "--json").stdout)
    assert (facts["votes"], facts["items"], facts["votes_per_item"]["max"]) == (48, 12, 4)
    assert run("describe", labels.parent / "none.csv").returncode == 1


def test_simulate_then_aggregate(tmp_path):
    done = run(
        "simulate",
        "one-coin",
        "--out",
        "crowd",
        "--set",
        "n_items=50",
        "--set",
        "n_classes=3",
        "--seed",
        7,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(run("aggregate", "crowd", "--json", cwd=tmp_path).stdout)
    assert facts["items"] == 50
    assert facts["accuracy"] > 0.5
    again = run("simulate", "one-coin", "--out", "crowd", cwd=tmp_path)
    assert again.returncode == 1
    assert "crowd" in again.stderr
    other = run(
        "simulate",
        "one-coin",
        "--out",
        "other",
        "--set",
        "n_items=50",
        "--set",
        "n_classes=3",
        "--seed",
        7,
        "--json",
        cwd=tmp_path,
    )
    assert json.loads(other.stdout)["items"] == 50
    assert (tmp_path / "crowd" / "labels.csv").read_text() == (tmp_path / "other" / "labels.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["one-coyn", "--out", "x"], "Did you mean 'one-coin'"),
        (["one-coin"], "--out DIR"),
        (["one-coin", "--out", "x", "--set", "n_item=5"], "Did you mean 'n_items'"),
        (["one-coin", "--out", "x", "--set", "n_items=-5"], "n_items"),
    ],
)
def test_simulate_used_wrongly(tmp_path, arguments, text):
    done = run("simulate", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_scenarios_are_listed():
    done = run("simulate")
    assert done.returncode == 0
    assert "pairwise-flipper" in done.stdout


@pytest.mark.slow
def test_demo_compares_methods_and_keeps_what_it_made(tmp_path):
    done = run("demo", "--out", tmp_path / "kept")
    assert done.returncode == 0, done.stderr
    for key in SHOWN:
        assert key in done.stdout
    assert "intervals hold the annotator's real accuracy" in done.stdout
    assert (tmp_path / "kept" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    kept = cw.Consensus.load(tmp_path / "kept" / "consensus")
    crowd = cw.read_dataset(tmp_path / "kept" / "crowd")
    assert kept.score(crowd.votes.truth) > 0.9


def test_version_help_and_no_arguments():
    assert run("--version").stdout.strip() == cw.__version__
    assert run("--help").returncode == 0
    assert "aggregate" in run("-h").stdout
    for command in [c.callback.__name__.rstrip("_").replace("_", "-") for c in app.registered_commands]:
        assert run(command, "--help").returncode == 0
    assert "Did you mean 'aggregate'?" in run("agregate").stderr


def test_help_lists_commands_without_loading_them():
    commands = typer.main.get_command(app).commands
    assert {name: inner.help.partition("\n")[0] for name, inner in commands.items()} == {
        name: line for name, (_, _, line) in COMMANDS.items()
    }
    code = (
        "import sys; sys.argv = ['crowdwise', '--help']\nfrom crowdwise.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(','.join(m for m in ('numpy', 'polars', 'crowdwise.cli.options') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert all(name in done.stdout for name in COMMANDS) and done.stderr == ""


def test_help_of_aggregate_shows_ten_options_and_the_rest_in_groups():
    text = run("aggregate", "--help").stdout
    first, *others = re.split(r"^╭─ (?=\w)", text.partition("╭─ Options ")[2], flags=re.M)
    usual = set(re.findall(r"^│ (--[\w-]+)", first, flags=re.M)) - {"--help"}
    assert usual == {
        "--out", "--annotators", "--report", "--probabilities", "--method", "--truth", "--gold", "--answers", "--json",
        "--verbose",
    }  # fmt: skip
    assert [part.partition(" ─")[0] for part in others] == list(GROUPS)


def test_a_cold_call_loads_no_compiler_and_no_scikit_learn(labels):
    code = (
        "import sys; sys.argv = ['crowdwise', 'aggregate', sys.argv[1], '--json']\n"
        "from crowdwise.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "names = ('numba', 'sklearn', 'torch', 'pandas', 'pyspark', 'scipy.stats', 'scipy.optimize')\n"
        "heavy = [m for m in names if m in sys.modules]\n"
        "heavy += [m for m in sys.modules if m.startswith(('crowdwise.importers', 'crowdwise.out_of_core'))]\n"
        "heavy += ['modules'] * (sum(m.startswith('crowdwise') for m in sys.modules) > 96)\n"
        "sys.stderr.write(','.join(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(labels)], capture_output=True, text=True, timeout=300, check=False
    )
    assert json.loads(done.stdout)["items"] == 12
    assert done.stderr == ""


def test_progress_appears_on_a_terminal_and_only_there():
    import io

    from rich.console import Console

    from crowdwise.cli import show
    from crowdwise.core.loop import Progress

    screen = io.StringIO()
    original = show.console
    try:
        show.console = lambda: Console(file=screen, force_terminal=True, width=100)
        show.PATIENCE = -1.0
        with show.progress("dawid-skene") as callback:
            callback(Progress(3, 500, -1.0, 1e-3))
    finally:
        show.console, show.PATIENCE = original, 0.7
    assert "pass 3 of at most 500" in screen.getvalue()
    assert np.char.count(screen.getvalue(), "dawid-skene") >= 1


# -------------------------------------------------------------------- bench


@pytest.fixture
def sets(tmp_path):
    for seed, name in enumerate(("first", "second")):
        cw.simulate.dirichlet(60, n_annotators=8, n_classes=3, votes_per_item=4, random_state=seed).save(
            tmp_path / name
        )
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "labels.csv").write_text("task,worker,label\n1,a,3\n1,b,4\n")
    (tmp_path / "numbers" / "truth.csv").write_text("task,label\n1,3.5\n")
    return tmp_path


def test_bench_measures_every_method_on_every_set_with_classes(sets):
    out = sets / "table.csv"
    done = run("bench", "--data", sets, "--methods", "majority,dawid-skene,gold-weighted", "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["data"] == ["first", "second"]
    cells = {(c["data"], c["method"]): c for c in facts["cells"]}
    votes = cw.read_dataset(sets / "first").votes
    assert cells["first", "majority"]["accuracy"] == cw.aggregate(votes, "majority").score(votes.truth)
    assert cells["first", "gold-weighted"]["problem"] == "needs known truth"
    assert pl.read_csv(out).height == 6


def test_bench_shows_a_table_and_names_what_is_missing(sets):
    done = run("bench", "--data", sets, "--sets", "second", "--methods", "majority", "--seeds", 2)
    assert "majority" in done.stdout and "second" in done.stdout
    assert run("bench", "--data", sets, "--sets", "third").returncode == 1
    assert run("bench", "--data", sets, "--methods", "majorty").returncode == 2
    assert "set CROWDWISE_DATA" in run("bench", "--data", sets / "none").stderr


def test_what_is_printed_costs_no_pass_over_the_votes_beyond_those_of_the_fit(labels, tmp_path, monkeypatch):
    """The posterior of ``auto`` judges the annotators: their table, the interval of the labels and a saved result need
    no passes of their own."""
    calls = []
    expect = kernels.expect
    monkeypatch.setattr(kernels, "expect", lambda *given, **more: calls.append(1) or expect(*given, **more))
    consensus = cw.aggregate(cw.read_votes(labels))
    fitted = len(calls)
    assert 0 < fitted < 20
    consensus.to_frame("annotators")
    consensus.accuracy(0.9), consensus.expected_accuracy(), consensus.save(tmp_path / "saved")
    assert len(calls) == fitted
    words = ("aggregate", labels, "--out", tmp_path / "c.csv", "--verbose")
    done = run(*words)
    assert done.returncode == 0 and "accuracy" in done.stderr and len(calls) == 2 * fitted
    run(*words, "--annotators", tmp_path / "people.csv")  # with verdicts, which have passes of their own
    table = pl.read_csv(tmp_path / "people.csv")
    assert np.allclose(table["accuracy"].to_numpy(), consensus.accuracy()[0])
