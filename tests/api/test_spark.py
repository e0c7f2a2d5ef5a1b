"""Votes in Spark tables: the same consensus as in memory, classic and through Spark Connect.

Starting Spark takes longer than all else here. It is started once, and serves both: what needs it is one test, a list
of checks.
"""

from __future__ import annotations

import os
import socket
import sys
import warnings

import numpy as np
import polars as pl
import pytest

import crowdwise as cw
from conftest import data_folder, need_module, need_program
from crowdwise import registry
from crowdwise.core import dependence
from crowdwise.core.vote_parts import VotePart, VoteParts
from crowdwise.data import blocks
from crowdwise.errors import (
    InputError,
)  # fmt: skip

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

    def where(self, keep):
        some = [part.select(mask) for part, mask in zip(self.inside, self.map(keep), strict=True)]
        return Shipped([part for part in some if len(part.votes)], self.names.annotators, self.names.classes)


@pytest.mark.parametrize("key", KEYS)
def test_every_method_in_parts_can_be_shipped_to_a_cluster(key):
    need_module("pyspark")
    sim = cw.simulate.dirichlet(120, n_annotators=10, n_classes=3, votes_per_item=4, random_state=0)
    gold = np.where(np.arange(120) % 9 == 0, sim.truth, -1).astype(np.int32)
    rows = [np.arange(0, 50), np.arange(50, 120)]
    parts = Shipped([VotePart(sim.votes[at], gold[at]) for at in rows], sim.votes.annotators, sim.votes.classes)
    params = {"max_iter": 8} if "max_iter" in registry.METHODS[key].load().parameters() else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = registry.create(key, "votes", **params).fit(sim.votes, gold)
        found = registry.create(key, "votes", **params).fit_in_parts(parts)
    assert np.allclose(found.prior, whole.consensus_.prior, atol=1e-8)
    new = cw.simulate.dirichlet(30, n_annotators=13, n_classes=3, votes_per_item=3, random_state=1).votes
    q = found.predictor()(new)
    if found.dependence.source != "none":
        q = dependence.correct(q, dependence.votes_per_item(new), found.dependence)
    names = np.array([f"a{m}" if m < 10 else f"new {m}" for m in range(13)], dtype=object)
    assert sim.votes.annotators[0] in ("a0", 0)
    named = cw.Votes.from_codes(
        new.item, new.annotator, new.label, items=new.items, classes=new.classes,
        annotators=np.concatenate([sim.votes.annotators.astype(object), names[10:]]),
    )  # fmt: skip
    assert np.abs(q - whole.predict_proba(named)).max() < 1e-8


def test_blocks_hold_votes_in_few_bytes():
    rng = np.random.default_rng(0)
    for M, width in ((3, 1), (300, 2), (70_000, 4)):
        who = np.arange(2 * M) % M
        item = np.arange(2 * M) // M
        names = {"items": ["a", "b", "c"], "annotators": range(M), "classes": range(4)}
        votes = cw.Votes.from_codes(item, who, rng.integers(0, 4, 2 * M), weight=np.full(2 * M, 0.3), **names)
        gold = np.array([-1, 3, 0], dtype=np.int32)
        block = blocks.packed(votes, gold)
        assert len(block["annotator"]) == 2 * M * width and len(block["label"]) == 2 * M
        again, codes = blocks.unpacked(block, 3, 2 * M, votes.annotators, votes.classes)
        for name in ("indptr", "annotator", "label", "weight"):
            assert np.array_equal(getattr(again, name), getattr(votes, name))
        assert codes.tolist() == [-1, 3, 0]
    with pytest.raises(InputError, match="gold must be a mapping"):
        blocks.Gold.of(5, votes.classes)


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
        "spark.sql.codegen.wholeStage": "false",
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
    a, b = pl.from_arrow(found.items.toArrow()).sort("item"), whole.to_frame("items", kind="polars").sort("item")
    assert a.columns == b.columns and a["item"].equals(b["item"]) and a["label"].equals(b["label"])
    for name in ("probability", "entropy"):
        assert np.abs(a[name].to_numpy() - b[name].to_numpy()).max() < 1e-8
    assert a["votes"].to_list() == b["votes"].to_list()
    people = whole.to_frame("annotators", kind="polars").sort("annotator")
    mine = pl.from_arrow(found.annotators.toArrow()).sort("annotator")
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
    return cw.simulate.dirichlet(800, n_annotators=164, n_classes=2, random_state=0).votes.to_frame("polars")


def hard_table():
    """An item with most votes, annotators of one item only, weights, repeated rows, empty cells."""
    rng = np.random.default_rng(3)
    item = np.concatenate([np.zeros(3000, dtype=int), rng.integers(1, 60, 300)])
    who = np.concatenate([np.arange(3000), rng.integers(0, 8, 300)])
    frame = pl.DataFrame({
        "the item": [f"photo {n}" for n in item], "worker": [f"w{m}" for m in who],
        "said": pl.Series(["cat", "dog", "owl"])[rng.integers(0, 3, 3300).tolist()],
        "sure": rng.uniform(0.1, 3.0, 3300),
    })  # fmt: skip
    return frame.with_columns(pl.when(pl.int_range(pl.len()) % 50 == 7).then(None).otherwise("said").alias("said"))


HARD = {"item": "the item", "annotator": "worker", "label": "said", "weight": "sure", "on_missing": "drop"}


def same_as_memory_by_default(spark, _):
    frame = real_votes()
    found = cw.spark.aggregate(in_spark(spark, frame), rows_per_block=3000)
    assert found.method == "auto" and found.note.startswith("Votes on an item") and len(found.fitted.parts.ids) == 4
    compare(found, cw.aggregate(frame))
    found.unpersist()


def same_as_memory_where_it_is_hard(spark, folder):
    frame = hard_table()
    gold = {f"photo {n}": ["cat", "dog", "owl"][n % 3] for n in range(0, 60, 4)}
    options = HARD | {"on_duplicate": "all", "max_iter": 4, "gold": gold}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = cw.aggregate(frame, "dawid-skene", **options)
        # More blocks than most partitions have items, and parameters that travel in files.
        found = cw.spark.aggregate(
            in_spark(spark, frame, 5), "dawid-skene", staging=str(folder), tasks=3, rows_per_block=60, **options
        )
    assert len(found.fitted.parts.ids) < len(found.fitted.parts.about) or len(found.fitted.parts.ids) < 66
    compare(found, whole)
    assert [file.name for file in folder.iterdir()] == []
    return found


CHECKS = {"classic": [same_as_memory_by_default], "connect": [same_as_memory_where_it_is_hard]}


@pytest.mark.slow
def test_spark(sessions, tmp_path, monkeypatch):
    for mode, checks in CHECKS.items():
        for check in checks:
            folder = tmp_path / f"{mode}-{check.__name__}"
            folder.mkdir()
            try:
                check(sessions[mode], folder)
            except BaseException as error:
                error.add_note(f"{mode} Spark, check {check.__name__}")
                raise
