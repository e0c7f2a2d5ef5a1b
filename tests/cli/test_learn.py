"""Learners from the command line: what is printed and kept, how it fails, and what happens without torch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from command_line import wait_for_work
from crowdwise.bench import runs
from crowdwise.cli import show
from crowdwise.cli.main import app

FAST = ("--method", "ccem", "--epochs", "8", "--seed", "0")
NO_TORCH = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else super().find_spec(name, path, target)

sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def process(code, *words, cwd=None):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=cwd,
    )


@pytest.fixture(scope="module")
def crowd():
    return cw.simulate.machine(300, n_annotators=6, test_share=0.2, votes_per_item=3, random_state=0)


@pytest.fixture(scope="module")
def folder(crowd, tmp_path_factory):
    place = tmp_path_factory.mktemp("learn") / "digits"
    crowd.save(place)
    return place


@pytest.fixture(scope="module")
def model(folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("models") / "model"
    done = run("learn", folder, *FAST, "--out", place)
    assert done.exit_code == 0, done.output
    return place


# -------------------------------------------------------------------- learn


def test_json_has_both_accuracies(folder, crowd):
    done = run("learn", folder, *FAST, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert list(facts) == [
        "method", "items", "annotators", "classes", "votes", "seed", "seconds", "history", "accuracy", "accuracy_low",
        "accuracy_high", "calibration_error", "calibration_error_low", "calibration_error_high", "accuracy_test",
        "items_test",
    ]  # fmt: skip
    assert (facts["method"], facts["items"], facts["annotators"], facts["votes"]) == ("ccem", 300, 6, 900)
    learner = cw.CrowdClassifier("ccem", epochs=8, random_state=0).fit(crowd.features["x_train"], crowd.votes)
    assert facts["accuracy_test"] == learner.score(crowd.features["x_test"], crowd.features["y_test"])
    assert facts["accuracy"] == cw.metrics.accuracy(learner.consensus_, crowd.truth).value
    assert facts["items_test"] == 359
    history = facts["history"]
    assert history["epochs"] == 8 and history["loss_last"] < history["loss_first"]
    assert history["held_out_best"] is None


def test_held_out_votes_are_told(folder):
    facts = json.loads(run("learn", folder, *FAST, "--set", "select=votes", "--json").stdout)["history"]
    assert facts["held_out_best"] >= facts["held_out_last"] and facts["held_out_best"] < 0
    assert 1 <= facts["held_out_best_epoch"] <= 8


def test_a_summary_goes_to_standard_error(folder, model):
    done = run("learn", folder, *FAST)
    assert done.stdout == ""
    for part in ("ccem: 300 items, 6 annotators", "8 epochs, loss", "359 items without votes", "nothing was saved"):
        assert part in done.stderr
    assert (model / "learner.json").is_file()


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet", "images"])
def test_inputs_of_every_kind(crowd, tmp_path, kind):
    votes, X = crowd.votes, crowd.features["x_train"]
    order = np.random.default_rng(0).permutation(len(X))
    labels = votes.to_frame("polars").with_columns(pl.format("i{}", "item").alias("item"))
    names = [f"i{n}" for n in votes.items]
    file = tmp_path / f"x.{kind}"
    if kind == "npz":
        np.savez(file, x=X[order], id=np.array(names)[order])
    elif kind == "npy":
        np.save(file, X)
        labels = votes.to_frame("polars")
    elif kind == "images":
        from PIL import Image

        file.mkdir()
        for name, pixels in zip(names, X, strict=True):
            Image.fromarray((pixels * 15).astype(np.uint8).reshape(8, 8)).save(file / f"{name}.png")
    else:
        table = pl.DataFrame({"item": names, **{f"x{d}": X[:, d] for d in range(64)}})[order]
        table.write_csv(file) if kind == "csv" else table.write_parquet(file)
    labels.write_csv(tmp_path / "votes.csv")
    truth = pl.DataFrame({"item": labels["item"].unique(maintain_order=True), "truth": crowd.truth})
    truth.write_csv(tmp_path / "truth.csv")
    done = run(
        "learn", tmp_path / "votes.csv", "--features", file, *FAST[:2], "--epochs", 15, "--seed", 0,
        "--truth", tmp_path / "truth.csv", "--json", "--out", tmp_path / "model",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["accuracy"] > 0.9 and "accuracy_test" not in facts
    done = run("predict", tmp_path / "model", "--features", file, "--out", tmp_path / "out.csv", "--json")
    assert json.loads(done.stdout) == {"method": "ccem", "items": 300, "classes": 10, "votes": 0}
    said = pl.read_csv(tmp_path / "out.csv").join(truth, on="item", how="inner")
    assert said.height == 300 and (said["label"] == said["truth"]).mean() > 0.7  # rows are told apart by name


def test_gold_is_used_and_left_out_of_the_accuracy(folder, tmp_path):
    pl.read_csv(folder / "truth.csv").head(100).write_csv(tmp_path / "gold.csv")
    with_gold = json.loads(run("learn", folder, *FAST, "--gold", tmp_path / "gold.csv", "--json").stdout)
    assert with_gold["accuracy"] != json.loads(run("learn", folder, *FAST, "--json").stdout)["accuracy"]


def test_parameters_reach_the_learner(folder, tmp_path):
    done = run(
        "learn", folder, "--method", "two-stage", "--network", "linear", "--epochs", 2, "--seed", 4,
        "--set", "aggregator=dawid-skene", "--set", 'settings={"max_iter": 9}', "--out", tmp_path / "m",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    kept = cw.load_learner(tmp_path / "m")
    assert (kept.network, kept.epochs, kept.random_state, kept.aggregator) == ("linear", 2, 4, "dawid-skene")
    assert kept.settings == {"max_iter": 9}


def test_what_is_wrong_is_said_before_the_work(folder, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for code, words, part in (
        (2, ("learn", folder / "labels.csv"), "--features"),
        (2, ("learn", folder, "--method", "max-mgi"), "Did you mean 'max-mig'?"),
        (2, ("learn", folder, "--method", "majority"), "crowdwise aggregate"),
        (2, ("aggregate", folder, "--method", "max-mig"), "crowdwise learn"),
        (2, ("learn", folder, "--set", "epoch=3"), "Did you mean 'epochs'?"),
        (2, ("learn", folder, "--epochs", 0), "--epochs 0"),
        (2, ("learn", folder, "--network", "mpl", "--epochs", 1), "'mlp'"),
        (1, ("learn", folder, "--features", tmp_path / "none.npz"), "There is no file"),
        (1, ("learn", folder, "--out", tmp_path), "something else than a saved learner"),
        (1, ("predict", tmp_path, "--features", folder / "features.npz"), "There is no learner in"),
        (1, ("learn", tmp_path / "nowhere"), "nowhere"),
    ):
        done = run(*words)
        assert done.exit_code == code and part in done.stderr, (words, done.output)
        assert done.stdout == "" and "Traceback" not in done.stderr


def test_items_without_inputs_are_named(folder, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((50, 64)))
    done = run("learn", folder, "--features", tmp_path / "x.npy")
    assert done.exit_code == 1 and "from 0 to 49" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_interrupted(folder, tmp_path):
    command = [sys.executable, "-m", "crowdwise", "learn", str(folder), "--epochs", "100000", "--out", tmp_path / "m"]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_work(done, 8.0)
    done.send_signal(signal.SIGINT)
    out, error = done.communicate(timeout=300)
    assert done.returncode == 130 and "Interrupted" in error and out == ""
    assert not (tmp_path / "m").exists()


def test_progress_shows_loss_and_held_out_votes(monkeypatch):
    import io

    from rich.console import Console

    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(show, "console", lambda stderr=True: screen)
    monkeypatch.setattr(show, "PATIENCE", -1.0)
    with show.epochs("max-mig") as tell:
        tell(SimpleNamespace(epoch=1, epochs=4, loss=0.75, held_out=None))
        tell(SimpleNamespace(epoch=3, epochs=4, loss=0.5, held_out=-1.25))
        until = time.monotonic() + 60
        while "epoch 3" not in screen.file.getvalue() and time.monotonic() < until:
            time.sleep(0.05)
    shown = screen.file.getvalue()
    assert "epoch 3 of 4, loss 0.5000, held-out votes -1.2500" in shown


# -------------------------------------------------------------------- predict


def test_predict_from_inputs_and_from_votes_too(folder, model, crowd, tmp_path):
    learner = cw.load_learner(model)
    done = run("predict", model, "--features", folder / "features.npz", "--out", tmp_path / "a.parquet", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["accuracy_test"] == learner.score(crowd.features["x_test"], crowd.features["y_test"])
    table = pl.read_parquet(tmp_path / "a.parquet")
    assert table.columns == ["item", "label", "probability"]
    assert table["label"].to_list() == learner.predict(crowd.features["x_test"]).tolist()
    done = run(
        "predict", model, "--features", folder / "features.npz", "--votes", folder / "labels.csv", "--probabilities"
    )
    table = pl.read_csv(done.stdout.encode())
    assert table.columns[3:] == [f"p({k})" for k in range(10)]
    np.testing.assert_allclose(table[:, 3:].to_numpy(), learner.consensus_.corrected_posterior, atol=1e-4)
    assert "300 items labelled" in done.stderr


def test_test_classes_that_do_not_fit_do_not_keep_labels_back(model, crowd, tmp_path):
    np.savez(tmp_path / "x.npz", x=crowd.features["x_train"], x_test=crowd.features["x_test"][:2], y_test=["a", "b"])
    done = run("predict", model, "--features", tmp_path / "x.npz", "--json")
    assert done.exit_code == 0 and "accuracy_test" not in json.loads(done.stdout)
    assert "Note: The true classes to test on name 'a', 'b'" in done.stderr


def test_inputs_of_another_shape(model, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 5)))
    done = run("predict", model, "--features", tmp_path / "x.npy")
    assert done.exit_code == 1 and "5 features" in done.stderr


# -------------------------------------------------------------------- methods


def test_methods_lists_learners_too():
    both, learners, labels = (run("methods", *words).stdout for words in ((), ("--learners",), ("--labels",)))
    for key in cw.LEARNERS:
        assert key in both and key in learners
    assert "From votes alone" in both and "max-mig" not in labels and "anchored" not in learners
    facts = json.loads(run("methods", "--json").stdout)
    assert [m["key"] for m in facts["methods"]] == list(cw.METHODS)
    assert [m["key"] for m in facts["learners"]] == list(cw.LEARNERS)
    assert facts["default_learner"] == "ensemble"
    assert facts["learners"][0]["parameters"]["epochs"] == 40
    assert set(json.loads(run("methods", "--learners", "--json").stdout)) == {"default_learner", "learners"}
    assert set(json.loads(run("methods", "--labels", "--json").stdout)) == {"default", "methods"}


# -------------------------------------------------------------------- without torch


@pytest.mark.parametrize(
    "code",
    [
        "import crowdwise as cw; cw.MaxMIG",
        "import crowdwise as cw; cw.CrowdClassifier",
        "import crowdwise as cw; cw.load_learner('model')",
        "from crowdwise import registry; registry.find('crowdlab', inputs=True).create()",
        "from crowdwise.learners.information_max_mig import MaxMIG",
    ],
)
def test_without_torch_every_road_says_what_to_install(code):
    done = process(f"{NO_TORCH}{code}")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("crowdwise.errors.ExtraError: Learning a classifier needs torch")
    assert "pip install 'crowdwise[deep]'" in last


def test_without_torch_commands_say_so_and_the_rest_works(folder, model):
    cli = f"{NO_TORCH}from crowdwise.cli.main import main; main()"
    for words in (("learn", folder), ("predict", model, "--features", folder / "features.npz"),
                  ("bench", "--sets", "digits", "--methods", "two-stage")):  # fmt: skip
        done = process(cli, *words)
        assert done.returncode == 1 and done.stderr.startswith("Error: Learning a classifier needs torch"), done.stderr
    done = process(cli, "aggregate", folder, "--json")
    assert json.loads(done.stdout)["notes"][0].startswith("Inputs were not used: Learning a classifier needs torch")
    done = process(cli, "aggregate", folder, "--features", folder / "features.npz")
    assert done.returncode == 1 and done.stderr.startswith("Error: Learning a classifier needs torch")
    done = process(cli, "methods", "--json")
    assert json.loads(done.stdout)["learners"][0]["parameters"] is None and "crowdwise[deep]" in done.stderr
    assert "max-mig" in process(cli, "methods").stdout


def test_without_torch_the_demonstration_goes_on(tmp_path):
    done = process(f"{NO_TORCH}from crowdwise.cli.main import main; main()", "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "left out. Learning a classifier needs torch" in " ".join(done.stdout.split())
    assert "Next: crowdwise aggregate" in done.stdout
    assert "crowdwise-demo-report.html" in done.stdout
    assert (tmp_path / "crowdwise-demo-report.html").stat().st_size > 50_000


# -------------------------------------------------------------------- the demonstration


def test_the_demonstration_compares_learners_on_digits_nobody_labelled(monkeypatch):
    monkeypatch.setattr(runs, "LEARNERS", runs.LEARNERS[:2])
    crowd = runs.digits_crowd(0)
    assert len(crowd.features["x_test"]) == 359
    seen = {row.tobytes() for row in crowd.features["x_train"]}
    assert not any(row.tobytes() in seen for row in crowd.features["x_test"])
    rows = runs.compare_learners(crowd)
    assert [row[0] for row in rows] == ["two-stage, majority", "two-stage, auto"]
    assert all(row[1] > 0.9 and row[2] > 0.9 for row in rows)


# -------------------------------------------------------------------- texts, images, devices


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """A file of votes with texts beside them, new texts, and the truth of both."""
    place = tmp_path_factory.mktemp("reviews")
    rng = np.random.default_rng(0)
    words = (["awful", "boring", "plot"], ["great", "wonderful", "acting"])
    truth = rng.integers(2, size=70)
    texts = [" ".join(rng.choice(words[k], 3)) for k in truth]
    rows = [
        f"r{n},w{m},{truth[n] ^ (rng.random() < 0.2):d},{texts[n]}"
        for n in rng.permutation(50)
        for m in rng.choice(5, 3, replace=False)
    ]
    (place / "votes.csv").write_text("\n".join(["task,worker,label,text", *rows]))
    (place / "new.csv").write_text("\n".join(["task,text", *(f"r{n},{texts[n]}" for n in range(50, 70))]))
    (place / "truth.csv").write_text("\n".join(["task,label", *(f"r{n},{truth[n]}" for n in range(70))]))
    return place


def test_texts_are_learned_from_and_predicted_with(reviews, tmp_path):
    words = ("--method", "ccem", "--epochs", "40", "--seed", "0", "--verbose")
    done = run("learn", reviews / "votes.csv", "--text", "text", *words, "--out", tmp_path / "model")
    assert done.exit_code == 0, done.output
    assert "ccem: epoch 40 of 40, loss" in done.stderr
    done = run(
        "predict", tmp_path / "model", "--features", reviews / "new.csv", "--truth", reviews / "truth.csv", "--json"
    )
    facts = json.loads(done.stdout)
    assert facts["items_test"] == 20 and facts["accuracy_test"] > 0.9
    done = run("predict", tmp_path / "model", "--features", reviews / "new.csv", "--text", "body")
    assert done.exit_code == 1 and "no column 'body'" in done.stderr


def test_texts_lie_in_a_folder_or_in_a_file_of_their_own(reviews, tmp_path):
    votes = pl.read_csv(reviews / "votes.csv")
    folder = tmp_path / "crowd"
    folder.mkdir()
    votes.drop("text").write_csv(folder / "labels.csv")
    votes.select("task", "text").unique().write_csv(folder / "texts.csv")
    found = [
        json.loads(run("learn", *words, "--text", "text", *FAST, "--json").stdout)["history"]["loss_last"]
        for words in (
            [folder], [folder / "labels.csv", "--features", folder / "texts.csv"], [reviews / "votes.csv"],
        )
    ]  # fmt: skip
    assert found[0] == pytest.approx(found[1]) == pytest.approx(found[2])


def test_texts_of_the_votes_file_are_in_the_report(reviews, tmp_path):
    done = run("report", reviews / "votes.csv", "--out", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    assert "wonderful" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_folder_of_images_beside_the_votes_is_found(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    rows = ["item,annotator,label"]
    for n in range(24):
        Image.fromarray(rng.integers(100 * (n % 2), 100 * (n % 2) + 100, (8, 8)).astype(np.uint8)).save(
            tmp_path / "images" / f"p{n}.png"
        )
        rows += [f"p{n},w{m},{n % 2}" for m in range(2)]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    done = run("learn", tmp_path, "--network", "linear", *FAST, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["items"] == 24
    (tmp_path / "images" / "p3.png").unlink()
    done = run("learn", tmp_path, *FAST)
    assert done.exit_code == 1 and "none of 'p3'" in done.stderr


@pytest.mark.parametrize("words", [["--set", "device=gpu"], ["--device", "mps"], ["--device", "nonsense"]])
def test_a_device_that_is_not_there_is_one_line(folder, words):
    done = run("learn", folder, *FAST, *words)
    if done.exit_code == 0:
        pytest.skip("there is such a device here")
    assert done.exit_code == 2
    (line,) = done.stderr.strip().splitlines()
    assert "cannot be used here" in line and "--device cpu" in line


def test_predict_measures_against_a_file_of_truth(folder, model, crowd, tmp_path):
    learner, x = cw.load_learner(model), crowd.features["x_train"]
    truth = tmp_path / "truth.csv"
    truth.write_text("item,label\n" + "".join(f"{n},{k}\n" for n, k in enumerate(crowd.truth[:40])))
    np.savez(tmp_path / "x.npz", x=x)
    done = run("predict", model, "--features", tmp_path / "x.npz", "--truth", truth, "--device", "cpu", "--json")
    facts = json.loads(done.stdout)
    assert facts["items_test"] == 40
    assert facts["accuracy_test"] == pytest.approx(float((learner.predict(x[:40]) == crowd.truth[:40]).mean()))


def test_predict_finds_columns_of_a_table_by_their_names(crowd, tmp_path):
    x, names = crowd.features["x_train"], ["a", "b", "c"]
    table = pl.DataFrame({"item": crowd.votes.items.astype(str), **{name: x[:, k] for k, name in enumerate(names)}})
    votes, file, other = tmp_path / "votes.csv", tmp_path / "x.csv", tmp_path / "other.csv"
    crowd.votes.to_frame("polars").select("item", "annotator", "label").write_csv(votes)
    table.write_csv(file)
    table.select("c", "item", "b", "a").write_csv(other)
    assert run("learn", votes, "--features", file, *FAST, "--out", tmp_path / "m").exit_code == 0
    for one in (file, other):
        done = run("predict", tmp_path / "m", "--features", one, "--out", one.with_suffix(".parquet"))
        assert done.exit_code == 0, done.stderr
    assert pl.read_parquet(tmp_path / "x.parquet").equals(pl.read_parquet(tmp_path / "other.parquet"))
