"""The command line for answers beyond classes."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise import registry
from crowdwise.cli.main import app

FAST = ["--set", "n_clusters=2", "--set", "restarts=0"]


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words], prog_name="crowdwise")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("answers")
    crowd = cw.simulate.similarities(30, n_clusters=2, n_annotators=5, answers_per_pair=2, random_state=0)
    crowd.answers.to_frame("polars").write_csv(path / "same.csv")
    pl.DataFrame({"item": crowd.answers.items, "label": crowd.truth}).write_csv(path / "kinds.csv")
    sets = cw.simulate.label_sets(30, n_labels=3, n_annotators=8, random_state=0)
    sets.answers.to_frame("polars").write_csv(path / "sets.csv")
    true = ["|".join(sets.answers.labels[row]) for row in sets.truth]
    pl.DataFrame({"item": sets.answers.items, "labels": true}).write_csv(path / "true.csv")
    votes = cw.simulate.one_coin(40, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0)
    votes.votes.to_frame("polars").write_csv(path / "votes.csv")
    for name, crowd in (
        ("ratings", cw.simulate.ratings(40, n_annotators=6, votes_per_item=4, random_state=0)),
        ("battles", cw.simulate.comparisons(8, n_annotators=6, n_comparisons=300, tie=0.3, random_state=0)),
        ("rankings", cw.simulate.rankings(8, n_annotators=5, n_rankings=50, random_state=0)),
        ("tags", cw.simulate.bio_tags(20, n_annotators=6, random_state=0)),
    ):
        table = crowd.answers.to_frame("polars")
        table.drop("truth", strict=False).write_csv(path / f"{name}.csv")
        if name == "tags":
            table.select("sequence", "position", "truth").unique().write_csv(path / "true-tags.csv")
        else:
            known = crowd.truth if name == "ratings" else crowd.scores
            pl.DataFrame({"item": crowd.answers.items, "value": known}).write_csv(path / f"true-{name}.csv")
    return path


KINDS = {
    "ratings.csv": ("ratings", "gaussian", "true-ratings.csv", {"mae": (0, 1), "rmse": (0, 1)}, ["item", "value"]),
    "battles.csv": ("comparisons", "judge-bt", "true-battles.csv", {"kendall": (0.5, 1)}, ["item", "rank"]),
    "rankings.csv": ("rankings", "plackett-luce", "true-rankings.csv", {"kendall": (0.5, 1)}, ["item", "rank"]),
    "same.csv": ("similarities", "crowd-clustering", "kinds.csv", {"adjusted_rand": (0.5, 1)}, ["item", "cluster"]),
    "sets.csv": (
        "label-sets",
        "binary-relevance",
        "true.csv",
        {"f1": (0.4, 1), "jaccard": (0.3, 1)},
        ["item", "labels"],
    ),
    "tags.csv": (
        "tags",
        "token-dawid-skene",
        "true-tags.csv",
        {"accuracy": (0.7, 1), "span_f1": (0.3, 1)},
        ["item", "sequence"],
    ),
}
"""File -> its kind, the default method, a file of truth, figures with what they lie between, the first columns."""
WITHOUT_INTERVAL = ("battles.csv", "rankings.csv", "same.csv")
"""Their figures have no interval: fewer than ten items, and clusters that are all right."""


@pytest.mark.parametrize("file", KINDS)
def test_every_kind_from_a_file_to_tables_and_a_page(folder, tmp_path, file):
    kind, method, truth, figures, columns = KINDS[file]
    light = FAST if kind == "similarities" else []
    out, people, kept, page = (tmp_path / name for name in ("out.csv", "people.csv", "kept", "page.html"))
    done = run(
        "aggregate", folder / file, "--out", out, "--annotators", people, "--save", kept, "--report", page, *light,
        "--truth", folder / truth,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert f"read as {kind}, since" in done.stderr and "written:" in done.stderr and method in done.stderr
    assert pl.read_csv(out).columns[:2] == columns
    assert pl.read_csv(people).columns[0] == "annotator"
    assert json.loads((kept / "consensus.json").read_text(encoding="utf-8"))["method"] == method
    assert f"aggregated by <strong>{method}</strong>" in page.read_text(encoding="utf-8")
    told = run("aggregate", folder / file, "--answers", kind, "--truth", folder / truth, "--json", *light)
    facts = json.loads(told.stdout)
    assert (facts["answer_type"], facts["method"]) == (kind, method) and "read as" not in told.stderr
    for name, (low, high) in figures.items():
        assert low <= facts[name] <= high
        ends = facts[f"{name}_low"], facts[f"{name}_high"]
        assert ends == (None, None) if file in WITHOUT_INTERVAL else ends[0] <= facts[name] <= ends[1]


def test_a_report_on_its_own(folder, tmp_path):
    done = run("report", folder / "battles.csv", "--out", tmp_path / "page.html", "--method", "bradley-terry")
    assert done.exit_code == 0, done.output
    assert "with a probability of" in done.stderr
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Leaderboard" in text and '<h1 dir="auto">battles.csv</h1>' in text
    facts = json.loads(run("report", folder / "ratings.csv", "--answers", "ratings", "--json", "--title", "T").stdout)
    assert facts["answer_type"] == "ratings" and facts["title"] == "T" and "item_table" not in facts
    graded = run("report", folder / "votes.csv", "--answers", "ordinal", "--json")
    assert json.loads(graded.stdout)["method"]["key"] == "ordinal-dawid-skene"
    assert run("report", folder / "ratings.csv", "--attribute", "x").exit_code == 2


def test_a_folder_is_classes_unless_told_and_has_its_own_truth(folder, tmp_path):
    place = tmp_path / "set"
    place.mkdir()
    (place / "labels.csv").write_bytes((folder / "ratings.csv").read_bytes())
    (place / "truth.csv").write_bytes((folder / "true-ratings.csv").read_bytes())
    facts = json.loads(run("aggregate", place, "--answers", "ratings", "--json").stdout)
    assert facts["answer_type"] == "ratings" and 0 < facts["mae"] < 1
    guessed = run("aggregate", place, "--json", "--answers", "votes", "--set", "max_iter=1")
    assert guessed.exit_code == 1 and "The truth names" in guessed.stderr
    guessed = run("aggregate", place, "--json")
    assert "Read as votes. They may be ratings, since 'value' holds numbers with fractions" in guessed.stderr
    assert guessed.exit_code == 1 and "--answers ratings" in guessed.stderr
    (place / "labels.csv").write_bytes((folder / "battles.csv").read_bytes())
    assert "kendall" not in run("aggregate", place, "--answers", "comparisons", "--json").stdout
    (place / "labels.csv").unlink()
    assert "no table of answers" in run("aggregate", place, "--answers", "ratings").stderr


def test_many_whole_numbers_that_annotators_agree_on_are_classes(tmp_path):
    rows = {"item": np.repeat(np.arange(30), 3), "annotator": np.tile(["a", "b", "c"], 30)}
    pl.DataFrame(rows | {"label": np.repeat(np.arange(30) * 7, 3)}).write_csv(tmp_path / "whole.csv")
    for words in ([], ["--method", "majority"]):
        done = run("aggregate", tmp_path / "whole.csv", "--json", *words)
        assert json.loads(done.stdout)["answer_type"] == "votes" and "ratings" not in done.stderr
    done = run("report", tmp_path / "whole.csv", "--json", "--answers", "ratings", "--method", "mean")
    assert json.loads(done.stdout)["answer_type"] == "ratings"


def test_label_names_the_column_of_the_answer(folder, tmp_path):
    pl.read_csv(folder / "ratings.csv").rename({"value": "cm"}).write_csv(tmp_path / "cm.csv")
    words = ["aggregate", tmp_path / "cm.csv", "--answers", "ratings", "--method", "mean", "--json"]
    assert run(*words).exit_code == 1
    assert run(*words, "--label", "cm").exit_code == 0
    assert run(*words, "--column", "value=cm").exit_code == 0


def test_the_kind_is_guessed_and_said_aloud_and_all_is_written(folder, tmp_path):
    out, people, kept = tmp_path / "clusters.csv", tmp_path / "people.csv", tmp_path / "kept"
    done = run("aggregate", folder / "same.csv", *FAST, "--out", out, "--annotators", people, "--save", kept)
    assert done.exit_code == 0, done.output
    assert "read as similarities, since 'item_a' and 'item_b' are two items" in done.stderr
    assert pl.read_csv(out).columns[:3] == ["item", "cluster", "probability"]
    assert "sensitivity_low" in pl.read_csv(people).columns
    assert cw.Clustering.load(kept).method == "crowd-clustering"
    assert "written:" in done.stderr


def test_figures_against_truth_as_json(folder):
    done = run(
        "aggregate", folder / "same.csv", "--answers", "similarities", *FAST, "--truth", folder / "kinds.csv", "--json"
    )
    facts = json.loads(done.stdout)
    assert facts["answer_type"] == "similarities" and facts["adjusted_rand"] > 0.8
    assert facts["accuracy"] == 1.0 and facts["accuracy_low"] is facts["accuracy_high"] is None
    done = run("aggregate", folder / "sets.csv", "--truth", folder / "true.csv", "--json", "--set", "share=false")
    facts = json.loads(done.stdout)
    assert facts["method"] == "binary-relevance" and facts["f1"] > 0.5 and 0 <= facts["subset_accuracy"] <= 1


def test_sets_go_to_standard_output(folder):
    done = run("aggregate", folder / "sets.csv", "--answers", "label-sets", "--set", "base=majority")
    table = pl.read_csv(done.stdout.encode())
    assert table.columns == ["item", "labels", "size", "probability", "entropy", "answers"]
    assert "read as" not in done.stderr  # what was asked for need not be said


def test_columns_may_be_named(folder, tmp_path):
    table = pl.read_csv(folder / "same.csv").rename({"item_a": "uno", "item_b": "due", "annotator": "who"})
    table.write_csv(tmp_path / "odd.csv")
    words = ["aggregate", tmp_path / "odd.csv", "--answers", "similarities", "--json", "--annotator", "who", *FAST]
    assert run(*words).exit_code == 1
    assert run(*words, "--column", "item_a=uno", "--column", "item_b=due").exit_code == 0


def test_a_method_says_the_kind(folder):
    done = run("aggregate", folder / "same.csv", "--method", "crowd-clustering", "--json", *FAST)
    assert json.loads(done.stdout)["answer_type"] == "similarities"


def test_classes_stay_what_they_were(folder):
    done = run("aggregate", folder / "votes.csv", "--json")
    assert json.loads(done.stdout)["method"] == registry.DEFAULT and "read as" not in done.stderr
    same = run("aggregate", folder / "votes.csv", "--answers", "votes", "--json", "--method", "majority")
    assert json.loads(same.stdout)["method"] == "majority"


def test_grades_are_votes_for_a_method_of_theirs(folder, monkeypatch):
    entry = registry.Entry("graded", "answers.ordinal_one_coin:Graded", "A stand-in", "")
    monkeypatch.setattr(registry.Entry, "load", lambda self: cw.OneCoin if self.key == "graded" else LOAD(self))
    monkeypatch.setitem(registry.ANSWER_METHODS, "graded", entry)
    words = ["aggregate", folder / "votes.csv", "--answers", "ordinal", "--method", "graded"]
    truth = cw.simulate.one_coin(40, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0).truth
    pl.DataFrame({"item": np.arange(40), "label": truth}).write_csv(folder / "grades.csv")
    done = run(*words, "--truth", folder / "grades.csv", "--json")
    assert json.loads(done.stdout)["answer_type"] == "ordinal" and json.loads(done.stdout)["accuracy"] > 0.5
    assert "p(0)" in run(*words, "--probabilities").stdout.splitlines()[0]
    assert run(*words, "--gold", folder / "grades.csv", "--json").exit_code == 0


LOAD = registry.Entry.load


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["same.csv", "--method", "volmaxdcc"], 2, "inputs as well"),
        (["same.csv", "--answers", "similarities", "--method", "binary-relevance"], 2, "is for label-sets"),
        (["same.csv", "--answers", "similarities", "--label", "x"], 2, "has no option 'label'"),
        (["same.csv", "--column", "item_a"], 2, "expected name=value"),
        (["same.csv", "--gold", "kinds.csv"], 2, "no use for gold"),
        (["same.csv", "--probabilities", *FAST], 2, "--probabilities"),
        (["same.csv", "--set", "clusters=2"], 2, "Did you mean 'n_clusters'"),
        (["votes.csv", "--column", "item=x"], 1, "There is no column 'x' for the item"),
        (["votes.csv", "--answers", "label-sets"], 0, ""),
        (["votes.csv", "--answers", "similarities"], 1, "item_a"),
        (["votes.csv", "--answers", "comparisons"], 1, "left"),
        (["votes.csv", "--answers", "rankings"], 1, "rank"),
        (["votes.csv", "--answers", "tags"], 1, "sequence"),
        (["same.csv", "--answers", "ratings"], 1, "No column found for: item"),
        (["battles.csv", "--answers", "ratings"], 1, "No column found for: item"),
        (["sets.csv", "--answers", "ratings"], 1, "value"),
        (["tags.csv", "--truth", "kinds.csv"], 1, "A truth table needs a sequence column"),
        (["ratings.csv", "--truth", "true.csv"], 1, "(column 'labels') is"),
        (["ratings.csv", "--method", "crowd-regression"], 2, "inputs as well"),
        (["battles.csv", "--form", "wide"], 2, "has no option 'form'"),
        (["battles.csv", "--classes", "a,b"], 2, "--classes: leave it out"),
        (["battles.csv", "--sheet", "two"], 2, "is read as csv, which takes no sheet. Leave out --sheet two"),
        (["battles.csv", "--max-seconds", "-5"], 2, "--max-seconds -5.0: expected a number of seconds above 0"),
        (["votes.csv", "--answers", "opinions"], 2, ""),
    ],
)
def test_mistakes_are_explained(folder, words, code, text):
    done = run("aggregate", folder / words[0], *[folder / w if str(w).endswith(".csv") else w for w in words[1:]])
    assert done.exit_code == code, done.output
    assert text in done.stderr


def test_methods_are_listed_by_kind():
    done = run("methods", "--answers", "similarities")
    assert "crowd-clustering" in done.stdout and "binary-relevance" not in done.stdout
    everything = run("methods").stdout
    assert all(key in everything for key in registry.ANSWER_METHODS)
    facts = json.loads(run("methods", "--json").stdout)
    assert {entry["key"] for entry in facts["answer_methods"]} == set(registry.ANSWER_METHODS)
    assert set(facts) == {"default", "methods", "default_learner", "learners", "answer_methods", "answer_types"}
    of_sets = json.loads(run("methods", "--answers", "label-sets", "--json").stdout)
    assert set(of_sets) == {"answer_methods", "answer_types"}
    assert run("methods", "--answers", "opinions").exit_code == 2


@pytest.mark.slow
def test_real_files(real, tmp_path):
    for name in ("n_emotion", "snow_anger", "snow_disgust", "snow_fear", "snow_wordsim"):
        folder = real(name)
        facts = json.loads(run("aggregate", folder, "--answers", "ratings", "--json").stdout)
        ratings = cw.read_ratings(folder / "labels.csv", truth_path=folder / "truth.csv")
        assert facts["mae"] == pytest.approx(cw.metrics.mae(cw.aggregate(ratings), ratings.truth).value)
    doubt = run("report", real("n_emotion") / "labels.csv", "--json", "--out", tmp_path / "x.csv")
    assert doubt.exit_code == 2  # a page ends in .html: said before anything is read
    judged = run("aggregate", real("mtbench_judgments") / "labels.csv", "--json", "--report", tmp_path / "page.html")
    assert "read as comparisons, since 'model_a' and 'model_b' are two items" in judged.stderr
    assert json.loads(judged.stdout)["items"] == 6 and "gpt-4" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "left" in run("aggregate", real("convarg_pairs") / "labels.csv", "--answers", "comparisons").stderr
    graded = run("aggregate", real("popquorn_offensiveness") / "labels.csv", "--answers", "ordinal", "--json")
    assert json.loads(graded.stdout)["items"] == 1500


@pytest.mark.parametrize(
    ("command", "name"),
    [("learn", "battles"), *product(("compare", "learn"), ("ratings", "rankings", "same", "sets", "tags"))],
)
def test_commands_for_votes_say_what_other_answers_are(folder, command, name):
    kind = KINDS[f"{name}.csv"][0]
    done = run(command, folder / f"{name}.csv")
    assert done.exit_code == 1 and done.stdout == ""
    said = " ".join(done.stderr.split())
    assert f"{name}.csv holds {kind}, since" in said and "this command is for votes alone" in said
    assert "crowdwise aggregate" in said and "--answers votes" in said


@pytest.mark.parametrize("name", ["ratings", "battles", "rankings", "same", "sets", "tags"])
def test_every_answer_type_is_diagnosed(folder, name):
    path, kind = folder / f"{name}.csv", KINDS[f"{name}.csv"][0]
    found = json.loads(run("diagnose", path, "--json").stdout)
    assert found["answer_type"] == kind and found["headline"] and found["verdicts"]
    words = run("diagnose", path).stdout
    assert found["headline"] in " ".join(words.split())
    assert all(finding["sentence"] in words and finding["advice"] in words for finding in found["findings"])
    assert run("diagnose", path, "--level", "0.1").exit_code == 2


@pytest.mark.parametrize("name", ["votes", "ratings", "battles", "rankings", "same", "sets", "tags"])
def test_every_answer_type_is_described_and_has_agreement(folder, name):
    kind = KINDS[f"{name}.csv"][0] if name != "votes" else "votes"
    facts = json.loads(run("describe", folder / f"{name}.csv", "--json").stdout)
    assert facts["answer_type"] == kind and facts["annotators"] > 0
    assert "annotators" in run("describe", folder / f"{name}.csv").stdout
    found = json.loads(run("agreement", folder / f"{name}.csv", "--json", "--level", "0.9").stdout)
    assert (found["answer_type"], found["level"]) == (kind, 0.9)
    assert all(row["low"] <= row["value"] <= row["high"] for row in found["coefficients"])
    assert "90% CI" in run("agreement", folder / f"{name}.csv", "--level", "0.9").stdout


def test_ordinal_votes_have_ordinal_agreement(folder, tmp_path):
    out = tmp_path / "agreement.csv"
    one = run("agreement", folder / "votes.csv", "--answers", "grades", "--json", "--out", out)
    other = run("agreement", folder / "votes.csv", "--scale", "ordinal", "--json")
    assert json.loads(one.stdout)["coefficients"] == json.loads(other.stdout)["coefficients"]
    assert json.loads(one.stdout)["answer_type"] == "ordinal"  # the one name, whatever word was used
    assert pl.read_csv(out)["coefficient"].to_list() == [
        r["coefficient"] for r in json.loads(one.stdout)["coefficients"]
    ]
    assert run("agreement", folder / "votes.csv", "--scale", "cubic").exit_code == 2


def test_two_items_have_agreement_without_intervals(tmp_path):
    path, out = tmp_path / "two.csv", tmp_path / "out.csv"
    path.write_text("item,annotator,label\na,x,cat\na,y,dog\nb,x,cat\nb,y,cat\n", encoding="utf-8")
    done = run("agreement", path, "--out", out)
    assert "percent               0.500  –\n" in done.stdout and " CI 0" not in done.stdout
    assert "it takes 10 items with two answers or more, and there are 2. Collect more" in done.stdout
    found = json.loads(run("agreement", path, "--json").stdout)
    assert {(row["low"], row["high"], row["n"]) for row in found["coefficients"]} == {(None, None, 2)}
    assert found["notes"][0] in done.stdout
    assert pl.read_csv(out)["low"].is_null().all()


def test_few_items_are_measured_without_an_interval(tmp_path):
    path, truth = tmp_path / "votes.csv", tmp_path / "truth.csv"
    rows = [f"i{i},{who},{'ab'[i % 2]}" for i in range(20) for who in "xyz"]
    path.write_text("\n".join(["item,annotator,label", *rows, ""]), encoding="utf-8")
    truth.write_text("item,label\ni0,a\ni1,b\ni2,b\n", encoding="utf-8")
    assert "0.6667 (no 95% CI: fewer than 10)" in run("aggregate", path, "--truth", truth).stderr
    facts = json.loads(run("aggregate", path, "--truth", truth, "--json").stdout)
    assert facts["accuracy"] == pytest.approx(2 / 3) and facts["accuracy_low"] is facts["accuracy_high"] is None


def test_answers_votes_says_that_they_are_votes(folder, tmp_path):
    done = run("describe", folder / "ratings.csv", "--answers", "votes", "--label", "value", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["answer_type"] == "votes"
    rng = np.random.default_rng(0)
    rows = [f"{n},{m},{5 * rng.integers(0, 21)}" for n in range(30) for m in "abcd"]
    (tmp_path / "labels.csv").write_text("item,annotator,rating\n" + "\n".join(rows) + "\n")
    for path in (tmp_path / "labels.csv", tmp_path):
        done = run("describe", path, "--json")
        assert done.exit_code == 1 and "The labels are 21 different whole numbers" in " ".join(done.stderr.split())
        assert run("describe", path, "--json", "--answers", "votes").stderr == ""


def test_what_to_do_with_tags_is_said_in_options(tmp_path):
    tags = "sentence,token,annotator,tag\n" + "".join(f"1,{t},{m},I-PER\n" for t in range(3) for m in "ab")
    (tmp_path / "tags.csv").write_text(tags)
    done = run("aggregate", tmp_path / "tags.csv")
    assert done.exit_code == 1 and "--column on_invalid=repair" in " ".join(done.stderr.split())
    assert run("aggregate", tmp_path / "tags.csv", "--column", "on_invalid=repair").exit_code == 0


def test_small_ratings_are_not_shown_as_nothing(tmp_path):
    rows = [f"{n},{who},{n * 1e-4 + 2e-5 * off:.6f}" for n in range(1, 9) for off, who in enumerate("abc")]
    (tmp_path / "small.csv").write_text("\n".join(["item,annotator,rating", *rows]) + "\n")
    done = run(
        "aggregate", tmp_path / "small.csv", "--answers", "ratings", "--method", "mean", "--out", tmp_path / "o.csv"
    )
    assert "0.00012 " in done.stderr and "0.000 " not in done.stderr
    facts = json.loads(run("report", tmp_path / "small.csv", "--answers", "ratings", "--json").stdout)
    items = facts["tables"][0]
    at = [column["name"] for column in items["columns"]].index("value")
    assert items["columns"][at]["digits"] == 6 and {round(row[at]["v"], 6) for row in items["rows"]} >= {0.00012}
    run("report", tmp_path / "small.csv", "--answers", "ratings", "--out", tmp_path / "r.html")
    assert ">0.000120<" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_large_ratings_are_shown_as_whole_numbers(tmp_path):
    rows = [f"{n},{who},{n * 123_456_789.125 + off}" for n in range(1, 9) for off, who in enumerate("abc")]
    (tmp_path / "large.csv").write_text("\n".join(["item,annotator,rating", *rows]) + "\n")
    done = run(
        "aggregate", tmp_path / "large.csv", "--answers", "ratings", "--method", "mean", "--out", tmp_path / "o.csv"
    )
    assert " 123,456,790 " in done.stderr and ".125" not in done.stderr
    assert "123456790.125" in (tmp_path / "o.csv").read_text()


def test_rules_that_abstain_are_described_by_what_they_cover(tmp_path):
    cells = np.full((12, 3), -1)
    cells[:4, 0], cells[2:8, 1], cells[4:9, 2] = 1, 0, 1
    table, page = tmp_path / "matrix.csv", tmp_path / "report.html"
    pl.DataFrame({"item": [f"i{n}" for n in range(12)], **{f"r{m}": cells[:, m] for m in range(3)}}).write_csv(table)
    assert "say --abstain -1" in run("describe", table).stderr
    facts = json.loads(run("describe", table, "--abstain", "-1", "--json").stdout)
    assert (facts["items"], facts["items_without_votes"]) == (12, 3)
    assert [row["conflict"] for row in facts["coverage"]] == pytest.approx([2 / 12, 6 / 12, 4 / 12])
    shown = run("describe", table, "--abstain", "-1").stdout
    assert "coverage" in shown and "r3" not in shown
    assert run("report", table, "--abstain", "-1", "--method", "majority", "--out", page).exit_code == 0
    text = page.read_text()
    assert "3 of 3 annotators name one class or nothing" in text and "with too few votes" not in text
    refused = run("describe", table, "--abstain", "-1", "--answers", "ratings")
    assert refused.exit_code == 2 and "no option 'abstain'" in refused.stderr
