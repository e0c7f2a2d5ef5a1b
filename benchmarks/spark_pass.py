"""Votes in a Spark table, on one machine: packing, the time of an iteration, and how it grows with the parameters.

python benchmarks/spark_pass.py [--votes 10e6] [--annotators 2000] [--iterations 12] [--many 20000,80000] [--connect]
                                [--master local[2]] [--out benchmarks/results/spark_pass.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl

from crowdwise.core.em import Params
from crowdwise.data.packing import BLOCK_ROWS
from crowdwise.spark import aggregate, spark_parts, spark_table

K, VOTES_PER_ITEM = 5, 5


def table(S: int, M: int, folder: Path) -> str:
    """Votes of annotators who are right two times of three, as Parquet files in random order."""
    rng = np.random.default_rng(0)
    N = S // VOTES_PER_ITEM
    truth = rng.integers(0, K, N)
    folder.mkdir()
    for part, items in enumerate(np.array_split(np.arange(N), 8)):
        item = np.repeat(items, VOTES_PER_ITEM)
        first = rng.integers(0, M, len(items))  # five different annotators per item
        who = (first[:, None] + np.arange(VOTES_PER_ITEM) * max(1, M // 7)) % M
        said = np.where(rng.random(len(item)) < 0.6, truth[item], rng.integers(0, K, len(item)))
        frame = pl.DataFrame({"item": item, "annotator": who.ravel(), "label": said})
        frame.sample(fraction=1.0, shuffle=True, seed=part).write_parquet(folder / f"{part}.parquet")
    return str(folder)


def session(master: str, connect: bool) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(master) if connect else SparkSession.builder.master(master)
    settings = {"ui.enabled": "false", "driver.memory": "3g", "log.level": "ERROR", "ui.showConsoleProgress": "false"}
    for key, value in settings.items():
        builder = builder.config(f"spark.{key}", value)
    return builder.getOrCreate()


def used() -> float:
    """Processor time of this process and all below it: Spark, and its Python workers."""
    parent, own = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = file.read_text().rpartition(")")[2].split()
            process = int(file.parent.name)
            parent[process], own[process] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def ours(process: int) -> bool:
        return process == os.getpid() or (process in parent and ours(parent[process]))

    return sum(seconds for process, seconds in own.items() if ours(process))


def fit(df: Any, iterations: int) -> dict[str, Any]:
    """A fit of Dawid-Skene with so many iterations: the time before the first one, and of each."""
    at, processor = [time.perf_counter()], [used()]

    def passed(_: Any) -> None:
        at.append(time.perf_counter())
        processor.append(used())

    found = aggregate(df, "dawid-skene", max_iter=iterations, tol=0.0, accelerate=False, callback=passed)
    between = np.diff(at)
    began = time.perf_counter()
    found.item_table.write.mode("overwrite").format("noop").save()
    out = {
        "before_first_pass_s": float(between[0] - np.median(between[1:])), "iteration_s": between[1:].tolist(),
        "median_s": float(np.median(between[1:])), "processor_s": float(np.median(np.diff(processor)[1:])),
        "before_processor_s": processor[1] - processor[0], "items_s": time.perf_counter() - began,
    }  # fmt: skip
    found.unpersist()
    return out


def packing(df: Any, tasks: int | None = None) -> tuple[spark_parts.SparkParts, float]:
    began = time.perf_counter()
    votes = spark_table.read_table(df, dict.fromkeys(("item", "annotator", "label", "weight")))
    names = spark_table.find_names(votes, None, False)
    parts = spark_parts.pack_parts(
        votes, names, None, rows_per_block=BLOCK_ROWS, tasks=tasks, on_duplicate="error", staging=None
    )
    return parts, time.perf_counter() - began


def passes(parts: spark_parts.SparkParts, times: int = 5) -> dict[str, float]:
    """The median time, and processor time, of a pass under random parameters."""
    M, K = parts.shape
    taken, processor = [], []
    for seed in range(times + 1):
        scores = np.log(np.random.default_rng(seed).dirichlet(np.ones(K), M * K))
        began, before = time.perf_counter(), used()
        parts.expect(Params(scores, np.log(np.full((1, K), 1.0 / K))))
        taken.append(time.perf_counter() - began)
        processor.append(used() - before)
    return {"pass_s": statistics.median(taken[1:]), "processor_s": statistics.median(processor[1:])}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--votes", type=float, default=10e6)
    asked.add_argument("--annotators", type=int, default=2000)
    asked.add_argument("--iterations", type=int, default=12)
    asked.add_argument("--many", default="20000,80000")
    asked.add_argument("--tasks", default="1,2,8,64")
    asked.add_argument("--master", default="local[2]")
    asked.add_argument("--connect", action="store_true")
    asked.add_argument("--out", default="")
    given = asked.parse_args()
    began = time.perf_counter()
    spark = session(given.master, given.connect)
    spark.range(10).count()
    out: dict[str, Any] = {"votes": given.votes, "start_s": time.perf_counter() - began, "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        df = spark.read.parquet(table(int(given.votes), given.annotators, Path(folder) / "votes"))
        parts, out["packing_s"] = packing(df)
        parts.store.release()
        out["fit"] = fit(df, given.iterations)
        out["fit_64_partitions"] = fit(df.repartition(64), given.iterations)
        show(out)
        out["parameters"] = []
        for M in map(int, filter(None, given.many.split(","))):
            few = spark.read.parquet(table(int(given.votes) // 5, M, Path(folder) / f"votes-{M}"))
            for tasks in map(int, given.tasks.split(",")):
                parts, _ = packing(few, tasks)
                for files in (True, False):
                    parts.folder = parts.folder if files else None
                    row = {"megabytes": 8e-6 * M * K * K, "tasks": tasks, "files": files} | passes(parts)
                    out["parameters"].append(row)
                    show(row)
                parts.store.release()
    out["load_after"] = os.getloadavg()[0]
    if given.out:
        Path(given.out).write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")
    spark.stop()


def show(what: dict[str, Any]) -> None:
    print(json.dumps({key: round(x, 3) if isinstance(x, float) else x for key, x in what.items()}), flush=True)


if __name__ == "__main__":
    main()
