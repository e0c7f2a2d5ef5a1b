"""The consensus of votes in a Spark table, computed where the votes are: Spark, or Spark Connect.

>>> result = crowdwise.spark.aggregate(df, item="photo", annotator="worker", label="answer")  # doctest: +SKIP
>>> result.item_table.write.parquet("consensus")                                                   # doctest: +SKIP

Workers need crowdwise installed (``pip install 'crowdwise[spark]'``).
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from crowdwise import registry
from crowdwise.data.boundary import guarded
from crowdwise.data.packing import BLOCK_ROWS
from crowdwise.errors import ParameterError
from crowdwise.spark.spark_parts import pack_parts
from crowdwise.spark.spark_result import SparkConsensus
from crowdwise.spark.spark_table import check_frame, find_gold, find_names, read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowdwise.core.loop import Callback

__all__ = ["SparkConsensus", "aggregate"]


@guarded
def aggregate(
    df: Any, method: str | None = None, *, item: str | None = None, annotator: str | None = None,
    label: str | None = None, gold: Any = None, weight: str | None = None, probability: str | None = None,
    classes: Sequence[Any] | None = None, on_duplicate: str = "error", on_missing: str = "error",
    normalise_labels: bool = False, staging: str | None = None, tasks: int | None = None,
    rows_per_block: int = BLOCK_ROWS, callback: Callback | None = None, **params: Any,
) -> SparkConsensus:  # fmt: skip
    """The consensus of votes in a Spark table: one row per vote.

    Labels and probabilities are those of :func:`crowdwise.aggregate`, up to rounding.

    Parameters
    ----------
    df
        A Spark DataFrame, of Spark or of Spark Connect. It is read three times: persist it if it is slow to compute.
    method
        A method whose class says ``in_parts``; by default ``auto``.
    item, annotator, label, weight
        The names of columns, where they do not go by usual names.
    gold
        Truth that the method may use: a mapping from item to class, a table of items and labels (of Spark, too), or the
        name of a column of ``df``.
    probability, classes, on_duplicate, on_missing, normalise_labels
        As in :func:`~crowdwise.read_votes`. First and last rows are those of Spark's order of partitions.
    staging
        A folder, or an address that Spark can write. Where Spark refuses to persist, the packed votes are written
        there. Where the driver and all workers see it as a folder, large parameters travel through it.
    tasks
        How many tasks a pass has; by default as many as Spark runs at once.
    rows_per_block
        How many votes a worker packs at once, on average.
    callback
        Called with a :class:`crowdwise.core.loop.Progress` after every pass over the votes.
    **params
        Parameters of the method.
    """
    check_frame(df)
    model = registry.create_in_parts(method, **params)
    if staging is not None and not isinstance(staging, str):
        raise ParameterError(f"staging={staging!r}: expected the name of a folder, or None.")
    named = {"item": item, "annotator": annotator, "label": label, "weight": weight}
    table = read_table(
        df, named, on_missing=on_missing, order=on_duplicate in ("first", "last"),
        gold=gold if isinstance(gold, str) else None, probability=probability,
    )  # fmt: skip
    names = find_names(table, classes, normalise_labels)
    known = find_gold(table, gold, names.classes)
    parts = pack_parts(
        table, names, known, rows_per_block=rows_per_block, tasks=tasks, on_duplicate=on_duplicate, staging=staging
    )
    try:
        fitted = model.fit_in_parts(parts, callback=callback)
    except BaseException:
        parts.store.release()
        raise
    parts.store.release(but=parts.blocks)
    facts = {field.name: getattr(fitted, field.name) for field in fields(fitted)}
    return SparkConsensus(**facts, item_kind=table.item_kind)
