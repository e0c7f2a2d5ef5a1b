"""Votes in Spark tables: the same consensus as in memory, classic and through Spark Connect.

Starting Spark takes longer than all else here. It is started once, and serves both: what needs it is one test, a list
of checks.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import warnings

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from conftest import ROOT, data_folder, need_module, need_program
from crowdwise import registry
from crowdwise.core import dependence
from crowdwise.core.vote_parts import VotePart, VoteParts
from crowdwise.data import encoding, packing
from crowdwise.errors import (
    ColumnError,
    DuplicateError,
    InputError,
    InputWarning,
    LabelError,
    OutputError,
    ParameterError,
)
from crowdwise.spark import spark_parts

np_save = np.save
KEYS = [key for key, entry in registry.METHODS.items() if entry.load().in_parts]


# -- without Spark -----------------------------------------------------------------------------------------------------


class Shipped(VoteParts):
    """Parts as on a cluster: functions and what they give travel as bytes, and no loop over parts is allowed."""

    def __init__(self, parts, annotators, classes):
        super().__init__([], annotators, classes)
        self.inside = parts

    def __reduce__(self):
        return VoteParts, ([], self.names.annotators, self.names.classes)

    def __iter__(self):
        raise NotImplementedError

    def map(self, make, given=None):
        from pyspark import cloudpickle

        make = cloudpickle.loads(cloudpickle.dumps(make))
        found = (make(part) if given is None else make(part, given[i]) for i, part in enumerate(self.inside))
        yield from (cloudpickle.loads(cloudpickle.dumps(one)) for one in found)

    def _each(self, change):
        some = [part for part in self.map(change) if len(part.votes)]
        return Shipped(some, self.names.annotators, self.names.classes)


@pytest.mark.parametrize("key", KEYS)
def test_every_method_in_parts_can_be_shipped_to_a_cluster(key):
    need_module("pyspark")
    sim = cw.simulate.dirichlet(120, n_annotators=10, n_classes=3, votes_per_item=4, random_state=0)
    gold = np.where(np.arange(120) % 9 == 0, sim.truth, -1).astype(np.int32)
    rows = [np.arange(0, 50), np.arange(50, 120)]
    parts = Shipped([VotePart(sim.votes[at], gold[at]) for at in rows], sim.votes.annotators, sim.votes.classes)
    has = registry.METHODS[key].load().parameters()
    params = {name: value for name, value in (("max_iter", 8), ("restarts", 0)) if name in has}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = registry.create(key, "votes", **params).fit(sim.votes, gold)
        found = registry.create(key, "votes", **params).fit_in_parts(parts)
    assert np.allclose(found.prior, whole.consensus_.prior, atol=1e-8)
    new = cw.simulate.dirichlet(30, n_annotators=13, n_classes=3, votes_per_item=3, random_state=1).votes
    q = found.predictor()(new)
    if found.dependence.source != "none":
        q = dependence.correct(q, dependence.votes_per_item(new), found.dependence)
    assert new.annotators[:10].tolist() == sim.votes.annotators.tolist()
    assert np.abs(q - whole.predict_proba(new)).max() < 1e-8


@pytest.mark.parametrize("kind", ["rules", "panel"])
def test_rules_and_panels_with_gold_can_be_shipped_to_a_cluster(kind):
    """Gold labels are judged by a fit without them, which has to see the votes."""
    need_module("pyspark")
    sim = cw.simulate.dirichlet(120, n_annotators=8, n_classes=3, votes_per_item=None, random_state=0)
    votes = sim.votes
    if kind == "rules":
        own = np.flatnonzero(votes.label == votes.annotator % 3)
        names = {"items": votes.items, "annotators": votes.annotators, "classes": votes.classes}
        votes = cw.Votes.from_codes(votes.item[own], votes.annotator[own], votes.label[own], **names)
    gold = np.where(np.arange(120) % 4 == 0, sim.truth, -1).astype(np.int32)
    rows = [np.arange(0, 50), np.arange(50, 120)]
    parts = Shipped([VotePart(votes[at], gold[at]) for at in rows], votes.annotators, votes.classes)
    found, whole = cw.Auto().fit_in_parts(parts), cw.Auto().fit(votes, gold).consensus_
    assert parts.kind == kind and found.notes[0] == whole.notes[0]
    assert np.isclose(found.dependence.power, whole.dependence.power) and np.allclose(found.prior, whole.prior)


def test_blocks_hold_votes_in_few_bytes():
    rng = np.random.default_rng(0)
    for M, width in ((3, 1), (300, 2), (70_000, 4)):
        who = np.arange(2 * M) % M
        item = np.arange(2 * M) // M
        names = {"items": ["a", "b", "c"], "annotators": range(M), "classes": range(4)}
        votes = cw.Votes.from_codes(item, who, rng.integers(0, 4, 2 * M), weight=np.full(2 * M, 0.3), **names)
        gold = np.array([-1, 3, 0], dtype=np.int32)
        block = packing.packed(votes, gold)
        assert len(block["annotator"]) == 2 * M * width and len(block["label"]) == 2 * M
        again, codes = packing.unpacked(block, 3, 2 * M, votes.annotators, votes.classes)
        for name in ("indptr", "annotator", "label", "weight"):
            assert np.array_equal(getattr(again, name), getattr(votes, name))
        assert codes.tolist() == [-1, 3, 0]
    with pytest.raises(InputError, match="gold must be a mapping"):
        packing.KnownClasses.of(5, votes.classes)


def test_what_is_no_table_of_spark_is_refused():
    need_module("pyspark")
    for other in (pl.DataFrame({"item": [1]}), "votes.parquet", [("a", "b", "c")]):
        with pytest.raises(InputError, match="must be a Spark DataFrame"):
            cw.spark.aggregate(other)


# -- with Spark --------------------------------------------------------------------------------------------------------


@pytest.fixture
def sessions():
    """A classic session and one through Spark Connect, of one Spark with two tasks at once."""
    need_program("java")
    need_module("pyspark")
    need_module("grpc")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin", "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false", "spark.driver.memory": "1200m", "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
        "spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # a short run: compile little
    }  # fmt: skip
    builder = SparkSession.builder.master("local[2]").appName("crowdwise tests")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key, value in settings.items():
            builder = builder.config(key, value)
        classic = builder.getOrCreate()
        connect = ConnectSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        yield {"classic": classic, "connect": connect}
        connect.stop()
        classic.stop()


def in_spark(spark, frame, partitions=3):
    return spark.createDataFrame(frame.to_arrow(compat_level=pl.CompatLevel.oldest())).repartition(partitions)


def compare(found, whole):
    """The tables of Spark against a consensus in memory."""
    a, b = pl.from_arrow(found.item_table.toArrow()).sort("item"), whole.to_frame("items", kind="polars").sort("item")
    assert a.columns == b.columns and a["item"].equals(b["item"]) and a["label"].equals(b["label"])
    for name in ("probability", "entropy"):
        assert np.abs(a[name].to_numpy() - b[name].to_numpy()).max() < 1e-8
    assert a["votes"].to_list() == b["votes"].to_list()
    people = whole.to_frame("annotators", kind="polars").sort("annotator")
    mine = pl.from_arrow(found.annotator_table.toArrow()).sort("annotator")
    assert mine["annotator"].equals(people["annotator"]) and mine["votes"].to_list() == people["votes"].to_list()
    assert np.allclose(mine["agreement"].to_numpy(), people["agreement"].to_numpy(), equal_nan=True)
    assert found.n_items == len(whole.labels) and found.n_votes == int(mine["votes"].sum())
    assert np.allclose(found.prior, whole.prior) and found.iterations == whole.iterations
    assert np.isclose(found.dependence.rho, whole.dependence.rho)


def real_votes():
    """rte where there are real data, else a simulated crowd."""
    folder = data_folder()
    if folder is not None and (folder / "rte").is_dir():
        return cw.read_votes(folder / "rte" / "labels.csv").with_truth(None).to_frame("polars")
    crowd = cw.simulate.dirichlet(800, n_annotators=164, n_classes=2, votes_per_item=10, random_state=0)
    return crowd.votes.to_frame("polars")


def hard_table():
    """An item with most votes, annotators of one item only, weights, repeated rows, empty cells."""
    rng = np.random.default_rng(3)
    item = np.concatenate([np.zeros(3000, dtype=int), rng.integers(1, 13, 300)])
    who = np.concatenate([np.arange(3000), rng.integers(0, 8, 300)])
    frame = pl.DataFrame({
        "the item": [f"photo {n}" for n in item], "worker": [f"w{m}" for m in who],
        "said": pl.Series(["cat", "dog", "owl"])[rng.integers(0, 3, 3300).tolist()],
        "sure": rng.uniform(0.1, 3.0, 3300),
    })  # fmt: skip
    row = pl.int_range(pl.len())
    said = pl.when(row % 100 == 7).then(None).when(row % 100 == 57).then(pl.lit(" \t")).otherwise("said").alias("said")
    return frame.with_columns(said)


HARD = {"item": "the item", "annotator": "worker", "label": "said", "weight": "sure", "on_missing": "drop"}


def fitted_in_memory(frame, method, gold, reading, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return registry.create(method, "votes", **params).fit(cw.Votes.from_frame(frame, **reading), gold)


def hard_votes(spark, folder, monkeypatch):
    """More blocks than have items; parameters in files; then predictions, and files."""
    frame, params = hard_table(), {"max_iter": 4}
    gold = {f"photo {n}": ["cat", "dog", "owl"][n % 3] for n in range(0, 13, 4)}
    reading = HARD | {"on_duplicate": "all"}
    model = fitted_in_memory(frame, "dawid-skene", gold, reading, **params)
    monkeypatch.setattr(spark_parts, "FILE_BYTES", 1000)
    written = []
    monkeypatch.setattr(spark_parts.np, "save", lambda path, *rest: written.append(path) or np_save(path, *rest))
    with pytest.warns(InputWarning, match="Left out 66 of 3,300 rows"):
        found = cw.spark.aggregate(
            in_spark(spark, frame, 5), "dawid-skene", gold=gold, staging=str(folder), tasks=3, rows_per_block=250,
            **reading, **params,
        )  # fmt: skip
    assert len(found.parts.ids) < 13 and len(written) == 4  # of 15 blocks
    compare(found, model.consensus_)
    assert list(folder.iterdir()) == []

    full = frame.filter(pl.col("said").is_in(["cat", "dog", "owl"]))
    new = full[3000:].with_columns(pl.col("worker").replace({"w1": "somebody else"})).drop("sure")
    names = {"item": "the item", "annotator": "worker", "label": "said"}
    labels = pl.from_arrow(found.predict(in_spark(spark, new, 2), on_duplicate="all", **names).toArrow()).sort("item")
    votes = cw.Votes.from_frame(new, on_duplicate="all", **names)
    order = np.argsort(votes.items.astype(str))
    q = model.predict_proba(votes)[order]
    assert labels["label"].to_list() == model.predict(votes)[order].tolist()
    assert np.abs(labels["probability"].to_numpy() - q.max(axis=1)).max() < 1e-8
    with pytest.raises(LabelError, match="'eel'"):
        found.predict(in_spark(spark, new.with_columns(said=pl.lit("eel")), 2), **names)

    found.save(f"{folder}/saved")
    with pytest.raises(OutputError, match=r"Spark could not write .*saved"):
        found.save(f"{folder}/saved")
    assert pl.read_parquet(f"{folder}/saved/items/*.parquet").height == found.n_items
    assert pl.read_parquet(f"{folder}/saved/annotators/*.parquet")["confusion"][0].len() == 3
    (line,) = [file.read_text(encoding="utf-8") for file in (folder / "saved" / "about").glob("*.txt")]
    about = json.loads(line)
    assert about["method"] == "dawid-skene" and np.allclose(about["prior"], found.prior)
    assert about["trace"] == found.trace.tolist() and len(about["trace"]) == 4
    again = cw.load(f"{folder}/saved")
    assert again.items_per_class.sum() == again.n_items == found.n_items and again.method == found.method
    for name in ("prior", "trace"):
        assert np.array_equal(getattr(again, name), getattr(found, name))
    order = encoding.locate(again.annotators, found.annotators)
    assert np.allclose(again.confusion, found.confusion[order]) and again.dependence == found.dependence
    found.unpersist()


def blocks_in_files(spark, folder, monkeypatch):
    """Where Spark refuses to persist, blocks lie in Parquet files; the gold labels are a column of the votes."""
    sim = cw.simulate.dirichlet(60, n_annotators=9, n_classes=2, votes_per_item=3, random_state=2)
    frame = sim.votes.with_truth(None).to_frame("polars")
    known = pl.Series([int(k) if n % 5 == 0 else None for n, k in enumerate(sim.truth)])
    frame = frame.with_columns(checked=pl.Series(known[frame["item"].to_list()]))
    df = in_spark(spark, frame)

    def refused(*_):
        from pyspark.errors import PySparkException

        raise PySparkException("persist is not supported here")

    monkeypatch.setattr(type(df), "persist", refused)
    with pytest.raises(InputError, match="Name a folder that it can write"):
        cw.spark.aggregate(df, "majority", tasks=2)
    gold = {n: int(k) for n, k in enumerate(sim.truth) if n % 5 == 0}
    found = cw.spark.aggregate(df, "majority", gold="checked", staging=str(folder), tasks=2)
    compare(found, fitted_in_memory(frame.drop("checked"), "majority", gold, {}).consensus_)
    assert [file.suffix for file in folder.iterdir()] == [".parquet"]
    found.unpersist()
    assert list(folder.iterdir()) == []


def default_method(spark, folder, monkeypatch):
    frame = real_votes()
    with pytest.raises(ParameterError, match="out, engine: not with a Spark table"):
        cw.aggregate(in_spark(spark, frame), out="labels.csv", engine="stream")
    found = cw.aggregate(in_spark(spark, frame), rows_per_block=3000)
    assert found.method == "auto" and found.note.startswith("Votes on an item") and len(found.parts.ids) == 4
    whole = cw.aggregate(frame)
    compare(found, whole)
    place = encoding.locate(found.annotators, whole.annotators)
    for mine, theirs in zip(found.accuracy(), whole.accuracy(), strict=True):
        assert np.allclose(mine, theirs[place], atol=1e-8, equal_nan=True)
    assert np.allclose(found.expected_accuracy(), whole.expected_accuracy())
    assert found.score(dict(zip(whole.items.tolist(), whole.labels.tolist(), strict=True))) == 1.0
    found.unpersist()


def sums_of_sums(spark, folder, monkeypatch):
    """Sums of many tasks are summed by tasks; of two rows of an annotator on an item the last one counts."""
    monkeypatch.setattr(spark_parts, "COLLECT_BYTES", 0)
    sim = cw.simulate.dirichlet(80, n_annotators=9, n_classes=3, votes_per_item=3, random_state=1)
    frame = sim.votes.with_truth(None).to_frame("polars")
    double = pl.concat([frame, frame[:40].with_columns(label=(pl.col("label") + 1) % 3)])
    df = spark.createDataFrame(double.to_arrow(compat_level=pl.CompatLevel.oldest()))
    with pytest.raises(DuplicateError, match=r"40 duplicated votes: annotator 'a.' labels item .* more than once"):
        cw.spark.aggregate(df, "one-coin", tasks=2)
    found = cw.spark.aggregate(df, "one-coin", on_duplicate="last", tasks=5, max_iter=2)
    compare(found, fitted_in_memory(double, "one-coin", None, {"on_duplicate": "last"}, max_iter=2).consensus_)
    found.unpersist()


def probabilities(spark, folder, monkeypatch):
    """Columns of probabilities weigh as they do in memory."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 40).round(4)
    frame = pl.DataFrame(
        {"item": np.arange(40) // 4, "judge": np.arange(40) % 4} | {f"p_{k}": p[:, k] for k in range(3)}
    )
    names = {"annotator": "judge", "probability": "p"}
    found = cw.spark.aggregate(in_spark(spark, frame), "majority", tasks=1, **names)
    compare(found, fitted_in_memory(frame, "majority", None, names).consensus_)
    with pytest.raises(InputError, match="1 rows have no probability"):
        some = pl.DataFrame({"item": [1, 1], "annotator": [1, 2], "label": [0, 1], "p": [0.5, float("nan")]})
        cw.spark.aggregate(in_spark(spark, some), "majority", probability="p", tasks=1)


def errors(spark, folder, monkeypatch):
    votes = cw.simulate.dirichlet(20, n_annotators=5, n_classes=3, random_state=0).votes.with_truth(None)
    frame = votes.to_frame("polars")
    df = in_spark(spark, frame, 1)
    with pytest.raises(ColumnError, match="There is no column 'photo' for the item"):
        cw.spark.aggregate(df, item="photo")
    with pytest.raises(ColumnError, match="No column for 'label'"):
        cw.spark.aggregate(df.drop("label"))
    with pytest.raises(ColumnError, match="Column 'label' holds array<bigint>"):
        cw.spark.aggregate(df.selectExpr("item", "annotator", "array(label) as label"))
    with pytest.raises(ParameterError, match="glad needs all votes at once"):
        cw.spark.aggregate(df, "glad")
    with pytest.raises(ParameterError, match="on_missing='ignore'"):
        cw.spark.aggregate(df, on_missing="ignore")
    with pytest.raises(ParameterError, match="staging=3"):
        cw.spark.aggregate(df, staging=3)
    with pytest.raises(InputError, match="table is empty"):
        cw.spark.aggregate(df.limit(0))
    with pytest.raises(LabelError, match="35 without a label"):
        cw.spark.aggregate(df.selectExpr("item", "annotator", "if(item < 7, null, label) as label").limit(100))
    with pytest.raises(LabelError, match="holds fractions in 100 rows"):
        cw.spark.aggregate(df.selectExpr("item", "annotator", "label + double(0.5) as label"))
    with pytest.raises(InputError, match=r"Weights must be positive numbers.*: 5 rows"):
        cw.spark.aggregate(df.selectExpr("*", "if(item = 3, -1, 1) as weight"))
    with pytest.raises(InputError, match="None of the 1 items with gold has votes"):
        cw.spark.aggregate(df, gold={"nowhere": 0}, tasks=1)


def example(spark, folder, monkeypatch):
    """examples/spark_job.py, but that Spark goes on after it."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    frame = cw.simulate.dirichlet(50, n_annotators=5, n_classes=2, random_state=0).votes.to_frame("polars")
    frame.write_parquet(folder / "votes.parquet")
    given = [str(folder / "votes.parquet"), str(folder / "out"), "--method", "majority", "--gold", "truth"]
    monkeypatch.setattr(sys, "argv", ["spark_job.py", *given])
    runpy.run_path(str(ROOT / "examples" / "spark_job.py"), run_name="__main__")
    assert pl.read_parquet(folder / "out" / "items" / "*.parquet").height == 50


CHECKS = {
    "connect": [hard_votes, blocks_in_files, probabilities],
    "classic": [errors, sums_of_sums, default_method, example],
}


@pytest.mark.slow
def test_spark(sessions, tmp_path):
    for mode, checks in CHECKS.items():
        for check in checks:
            folder = tmp_path / f"{mode}-{check.__name__}"
            folder.mkdir()
            with pytest.MonkeyPatch.context() as monkeypatch:
                try:
                    check(sessions[mode], folder, monkeypatch)
                except BaseException as error:
                    error.add_note(f"{mode} Spark, check {check.__name__}")
                    raise
