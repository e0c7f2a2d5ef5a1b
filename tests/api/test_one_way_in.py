"""The same data gives the same answer type, method and numbers, whichever door was taken: table, file, command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise import api, reading, registry
from crowdwise.cli.main import app
from crowdwise.errors import InputError, ParameterError

sim = cw.simulate
EDGES = sim.graph(60, n_annotators=6, random_state=0).parameters["edges"]
TABLES: dict[str, Any] = {
    "votes": sim.one_coin(60, n_annotators=6, n_classes=3, votes_per_item=4, random_state=0).votes,
    "ratings": sim.ratings(30, n_annotators=6, votes_per_item=4, random_state=0).answers,
    "ordinal": sim.one_coin(60, n_annotators=6, n_classes=3, votes_per_item=4, random_state=1).votes,
    "comparisons": sim.comparisons(8, n_annotators=6, n_comparisons=200, random_state=0).answers,
    "rankings": sim.rankings(6, n_annotators=5, n_rankings=40, random_state=0).answers,
    "similarities": sim.similarities(30, n_clusters=2, n_annotators=5, random_state=0).answers,
    "label-sets": sim.label_sets(30, n_labels=3, n_annotators=6, random_state=0).answers,
    "tags": sim.bio_tags(12, n_annotators=5, random_state=0).answers,
    "texts": sim.texts(30, n_annotators=6, texts_per_item=4, random_state=0).answers,
    "boxes": sim.boxes(20, n_annotators=6, annotators_per_item=4, random_state=0).answers,
    "masks": sim.masks(12, n_annotators=6, masks_per_item=4, size=24, random_state=0).answers,
    "spans": sim.spans(20, n_annotators=6, answers_per_item=4, random_state=0).answers,
    "graph": sim.graph(60, n_annotators=6, random_state=0).votes,
}
PARAMS: dict[str, dict[str, Any]] = {"similarities": {"n_clusters": 2, "restarts": 0}}
ASKED = {"ordinal", "graph"}
"""Types that no file says it holds."""


def run(*words: Any) -> dict[str, Any]:
    done = CliRunner().invoke(app, [str(word) for word in (*words, "--json")])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each type, as a user has it: without the truth."""
    folder = tmp_path_factory.mktemp("doors")
    for name, table in TABLES.items():
        table.to_frame("polars").drop("truth", strict=False).write_csv(folder / f"{name}.csv")
    pl.DataFrame({"source": EDGES[:, 0], "target": EDGES[:, 1]}).write_csv(folder / "edges.csv")
    return {name: folder / f"{name}.csv" for name in (*TABLES, "edges")}


@pytest.fixture(scope="module")
def found() -> dict[str, api.Fitted]:
    """The tables through the front door."""
    out = {}
    for name, table in TABLES.items():
        more = {"graph": EDGES} if name == "graph" else {}
        out[name] = api.fit(table, None, PARAMS.get(name), answers=name if name == "ordinal" else None, **more)
    return out


def words(name: str, files: dict[str, Path]) -> list[Any]:
    settings = [word for key, value in PARAMS.get(name, {}).items() for word in ("--set", f"{key}={value}")]
    if name == "graph":
        return [*settings, "--graph", files["edges"]]
    return [*settings, "--answers", name] if name in ASKED else settings


def value(result: Any, table: str = "items") -> np.ndarray[Any, Any]:
    """The numbers of a result, whatever they are."""
    frame = result.to_frame(table, kind="polars")
    return frame.sort("item").select(pl.selectors.numeric().exclude("item")).to_numpy()


def test_every_answer_type_is_tried() -> None:
    assert list(TABLES) == list(registry.ANSWER_TYPES)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_type_and_default_of_the_registry(name: str, found: dict[str, api.Fitted]) -> None:
    assert found[name].answer_type == name
    assert found[name].method == registry.ANSWER_TYPES[name].default == found[name].result.method


@pytest.mark.parametrize("name", TABLES)
def test_a_table_and_its_file_give_the_same(name: str, found: dict[str, api.Fitted], files: dict[str, Path]) -> None:
    asked = name if name == "ordinal" else None
    graph = files["edges"] if name == "graph" else None
    again = api.fit(files[name], None, PARAMS.get(name), answers=asked, graph=graph)
    assert (again.answer_type, again.method) == (name, found[name].method)
    assert np.allclose(value(again.result), value(found[name].result), atol=1e-9, equal_nan=True)
    python = cw.aggregate(files[name], answer_type=asked, graph=graph, **PARAMS.get(name, {}))
    assert np.allclose(value(python), value(found[name].result), atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "dict"])
@pytest.mark.parametrize("name", [name for name in TABLES if name not in ASKED])
def test_a_dataframe_has_the_type_of_its_file(name: str, kind: str, found: dict[str, api.Fitted]) -> None:
    frame = TABLES[name].to_frame("polars").drop("truth", strict=False)
    frame = {"pandas": frame.to_pandas, "polars": frame.clone, "pyarrow": frame.to_arrow, "dict": frame.to_dict}[kind]()
    read = reading.read(frame)
    assert read.answer_type == name and type(read.table) is type(TABLES[name])
    if kind == "pandas":
        assert np.allclose(
            value(cw.aggregate(frame, **PARAMS.get(name, {}))), value(found[name].result), atol=1e-9, equal_nan=True
        )


def test_a_dataframe_with_an_index_and_a_named_label_column() -> None:
    pd = pytest.importorskip("pandas")
    rated = pd.DataFrame({"item": [1, 1, 2, 2], "annotator": ["a", "b"] * 2, "score": [0.5, 1, 3, 4]})
    assert reading.read(rated.set_index(["item", "annotator"])).answer_type == "ratings"
    both = rated.assign(mood=["good", "good", "bad", "bad"])
    assert reading.read(both).answer_type == "ratings"
    assert cw.aggregate(both, label="mood").labels.tolist() == ["good", "bad"]


@pytest.mark.parametrize("name", TABLES)
def test_commands_give_what_python_gives(
    name: str, found: dict[str, api.Fitted], files: dict[str, Path], tmp_path: Path
) -> None:
    more = words(name, files)
    facts = run("aggregate", files[name], *more, "--save", tmp_path / "saved")
    assert (facts["answer_type"], facts["method"]) == (name, found[name].method)
    saved = cw.load(tmp_path / "saved")
    assert np.allclose(value(saved), value(found[name].result), atol=1e-9, equal_nan=True)
    if name != "graph":  # a report has no place for a graph
        report, objective = run("report", files[name], *more), found[name].result.trace[-1:]
        assert report["method"]["key"] == found[name].method
        assert report["method"]["iterations"] == found[name].result.iterations
        assert [report["method"]["objective"]][: len(objective)] == pytest.approx(objective.tolist(), abs=1e-4)
    assert run("describe", files[name], "--answers", name)["annotators"] == len(TABLES[name].annotators)
    if name in ("comparisons", "rankings"):
        ranked = run("rank", files[name])
        assert ranked["method"] == found[name].method
        board = {row["item"]: row["score"] for row in ranked["leaderboard"]}
        scores = dict(zip(found[name].result.items.tolist(), found[name].result.scores.tolist(), strict=True))
        assert board == pytest.approx(scores, abs=1e-9)
    if name == "votes":
        diagnosed, python = run("diagnose", files[name]), cw.diagnose(found[name].table, found[name].result)
        assert diagnosed["method"] == found[name].method
        assert diagnosed["expected"] == pytest.approx(python.expected, abs=1e-4)
        assert list(diagnosed["verdicts"].values()) == list(python.verdicts.values())
        compared = run("compare", files[name], "--repeats", 1, "--replicates", 0, "--methods", "majority,one-coin")
        python = cw.compare(files[name], ["majority", "one-coin"], repeats=1, replicates=0)
        assert [row["score"] for row in compared["methods"]] == pytest.approx(python.score.tolist())


def test_one_annotator_has_one_default_everywhere(tmp_path: Path) -> None:
    table = TABLES["comparisons"].only(TABLES["comparisons"].annotators[:1].tolist())
    table.to_frame("polars").drop("truth", strict=False).write_csv(tmp_path / "one.csv")
    default = registry.default_method("comparisons")
    assert cw.aggregate(table).method == cw.aggregate(tmp_path / "one.csv").method == default
    for command in ("aggregate", "rank"):
        assert run(command, tmp_path / "one.csv")["method"] == default
    assert run("report", tmp_path / "one.csv")["method"]["key"] == default


def test_learning_is_the_same_fit(tmp_path: Path) -> None:
    crowd = sim.one_coin(80, n_annotators=5, n_classes=2, votes_per_item=3, random_state=0)
    X = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32) + crowd.truth[:, None]
    crowd.votes.to_frame("polars").drop("truth", strict=False).write_csv(tmp_path / "labels.csv")
    np.savez(tmp_path / "features.npz", x_train=X, id_train=crowd.votes.items)
    params = {"epochs": 3, "random_state": 0}
    python = api.fit(crowd.votes, "two-stage", params, inputs=X)
    file = api.fit(tmp_path, "two-stage", params, inputs=True)
    assert np.allclose(python.result.posterior, file.result.posterior)
    done = run("learn", tmp_path, "--method", "two-stage", "--epochs", 3, "--seed", 0, "--out", tmp_path / "saved")
    assert done["method"] == python.method == "two-stage"
    assert np.allclose(cw.load(tmp_path / "saved").predict_proba(X), python.model.predict_proba(X))


def test_truth_measures_and_gold_is_used(files: dict[str, Path], tmp_path: Path) -> None:
    votes = TABLES["votes"]
    plain = votes.with_truth(None)
    known = dict(zip(votes.items.tolist(), votes.classes[votes.truth].tolist(), strict=True))
    wrong = {n: (k + 1) % 3 for n, k in list(known.items())[:20]}
    fitted = api.fit(plain, "majority", truth=known, gold=wrong)
    assert fitted.measured["accuracy"].n == 40  # gold is left out
    assert fitted.result.labels[:20].tolist() == list(wrong.values())
    for name, values in (("truth", known), ("gold", wrong)):
        pl.DataFrame({"item": list(values), "label": list(values.values())}).write_csv(tmp_path / f"{name}.csv")
    by_file = api.fit(files["votes"], "majority", truth=tmp_path / "truth.csv", gold=str(tmp_path / "gold.csv"))
    assert by_file.measured["accuracy"].value == fitted.measured["accuracy"].value
    facts = run(
        "aggregate",
        files["votes"],
        "-m",
        "majority",
        "--truth",
        tmp_path / "truth.csv",
        "--gold",
        tmp_path / "gold.csv",
    )
    assert facts["accuracy"] == fitted.measured["accuracy"].value
    assert api.fit(plain).measured == {}


def test_words_people_use_are_names(files: dict[str, Path]) -> None:
    for alias, name in ((alias, kind.name) for kind in registry.ANSWER_TYPES.values() for alias in kind.aliases):
        assert registry.answer_type(alias) == name
    assert run("aggregate", files["ratings"], "--answers", "numbers", "-m", "mean")["answer_type"] == "ratings"
    assert run("methods", "--answers", "pairs")["answer_methods"][0]["answer_type"] == "comparisons"
    with pytest.raises(ParameterError, match=r"Unknown answer type 'paris'.*Did you mean 'pairs'"):
        cw.aggregate(TABLES["votes"], answer_type="paris")


def test_a_table_of_another_type_is_refused() -> None:
    with pytest.raises(InputError, match="Expected Ratings and found Votes"):
        api.fit(TABLES["votes"], answers="ratings")
    with pytest.raises(ParameterError, match="does not look at a graph"):
        cw.aggregate(TABLES["votes"], "majority", graph=EDGES)
    with pytest.raises(ParameterError, match="no use for gold"):
        api.fit(TABLES["ratings"], "mean", gold={0: 1.0})
    with pytest.raises(ParameterError, match="no inputs to learn from"):
        api.fit(TABLES["votes"], "two-stage", inputs=True)


def test_names_that_are_numbers_are_written_as_numbers() -> None:
    with pytest.raises(InputError, match=r"^All votes are 3: "):
        cw.aggregate({"item": [1, 2], "annotator": [7, 8], "label": [3, 3]})
    with pytest.raises(InputError, match=r"single annotator, 7:"):
        cw.aggregate({"item": [1, 2], "annotator": [7, 7], "score": [0.5, 2.5]})
