"""The consensus of a table of votes, as a Spark job: votes in, labels and annotators out.

    spark-submit examples/spark_job.py votes.parquet consensus --item photo --annotator worker --label answer

Without arguments it makes up a small crowd, to see that all parts are there. Workers need crowdwise installed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

# Workers have to run the Python of this process. (On a cluster, set spark.pyspark.python to one that is everywhere.)
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import crowdwise as cw


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("votes", nargs="?", help="a table that Spark can read: one row per vote")
    asked.add_argument("out", nargs="?", help="a folder for the consensus")
    asked.add_argument("--format", default="parquet", help="of the votes: parquet, csv, delta, ...")
    asked.add_argument("--method", default=None, help="by default auto")
    asked.add_argument("--staging", default=None, help="a folder for files, where Spark refuses to persist")
    for part in ("item", "annotator", "label", "gold", "weight"):
        asked.add_argument(f"--{part}", default=None, help="the name of the column")
    given = asked.parse_args()

    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("crowdwise").getOrCreate()
    if given.votes is None:
        crowd = cw.simulate.dirichlet(500, n_annotators=20, n_classes=3, votes_per_item=5, random_state=0)
        df, out = spark.createDataFrame(crowd.votes.to_frame("pandas")), tempfile.mkdtemp()
    else:
        if given.out is None:
            asked.error("name a folder for the consensus")
        reader = spark.read.format(given.format)
        df, out = reader.option("header", True).load(given.votes), given.out

    found = cw.spark.aggregate(
        df, given.method, item=given.item, annotator=given.annotator, label=given.label, gold=given.gold,
        weight=given.weight, staging=given.staging,
        callback=lambda pass_: print(f"pass {pass_.iteration}: {pass_.objective:,.1f}", flush=True),
    )  # fmt: skip
    found.save(out, overwrite=True)
    print(f"{found.n_items:,} items, {found.n_votes:,} votes, {found.method}: {out}")
    print(found.note)
    spark.read.parquet(f"{out}/items").orderBy("probability").show(5)
    spark.stop()


if __name__ == "__main__":
    main()
