"""The consensus of votes on a Spark cluster: tables of Spark, and what a fit found out about the crowd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from crowdwise.core.consensus_in_parts import ConsensusInParts, Decision, labelled
from crowdwise.core.unseen import places_in
from crowdwise.data import encoding
from crowdwise.data.boundary import guarded
from crowdwise.data.encoding import Vocabulary
from crowdwise.errors import OutputError
from crowdwise.spark import spark_table
from crowdwise.spark.spark_parts import VOTES, SparkParts, parts_in, running
from crowdwise.spark.spark_table import CodedNames, check_frame, find_names, packed_blocks, read_table

KINDS = {"i": "bigint", "b": "boolean", "O": "string", "U": "string"}
"""The types of Spark for names."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SparkConsensus(ConsensusInParts):
    """The consensus of votes in a Spark table: its tables are those of Spark.

    Attributes
    ----------
    item_table
        A Spark table: item, label, probability, entropy (bits), votes. It is computed from the packed votes when it is
        used: write it, or persist it, before :meth:`unpersist`.
    annotator_table
        A Spark table: annotator, votes, accuracy with its interval where the method estimates it, agreement (the share
        of votes that say what the consensus says), what the method adds, and confusion (rows: the true class; columns:
        the label) where the method has it.
    """

    item_kind: str = "string"
    """The type of Spark of the names of items."""

    @property
    def item_table(self) -> Any:
        """One row per item, computed when it is used."""
        parts, decision = self._parts(), self._decision()
        return labelled_blocks(parts.blocks, parts.shape, self.item_kind, self.classes, decision)

    @property
    def annotator_table(self) -> Any:
        """One row per annotator."""
        columns = self._annotator_table(0.95)
        if self.confusion is not None:
            columns["confusion"] = self.confusion.tolist()
        plain = {name: column.tolist() if hasattr(column, "tolist") else column for name, column in columns.items()}
        return spark_table.from_polars(self._parts().blocks.sparkSession, plain)

    def _read(self, *names: str) -> dict[str, npt.NDArray[Any]]:
        with running():
            table = spark_table.to_polars(self.item_table.select(*(names or "*")))
        return {name: table[name].to_numpy() for name in table.columns}

    @guarded
    def predict(
        self, df: Any, *, item: str | None = None, annotator: str | None = None, label: str | None = None,
        weight: str | None = None, probability: str | None = None, on_duplicate: str = "error",
        on_missing: str = "error",
    ) -> Any:  # fmt: skip
        """The labels of new votes, by what was learned about their annotators; unseen ones answer like the crowd.

        Returns a Spark table: item, label, probability, entropy, votes. The arguments are those of
        :func:`crowdwise.spark.aggregate`.
        """
        named = {"item": item, "annotator": annotator, "label": label, "weight": weight}
        table = read_table(
            check_frame(df), named, on_missing=on_missing, order=on_duplicate in ("first", "last"),
            probability=probability,
        )  # fmt: skip
        new, parts = find_names(table, None, False), self._parts()
        labels, who, names = places_in(self, new.classes, new.annotators)
        codes = {
            part: (values, encoding.recode(code, place))
            for (part, (values, code)), place in zip(new.codes.items(), (who, labels), strict=True)
        }
        blocks = packed_blocks(
            table, CodedNames(names, self.classes, codes), None, blocks=max(parts.tasks, len(parts.ids)),
            tasks=parts.tasks, on_duplicate=on_duplicate,
        )  # fmt: skip
        decision, predict = self._decision(), self.predictor()
        return labelled_blocks(
            blocks, (len(names), len(self.classes)), table.item_kind, self.classes,
            replace(decision, independent=lambda part: predict(part.votes)), strict=True,
        )  # fmt: skip

    @guarded
    def save(self, path: str, *, overwrite: bool = False) -> None:  # type: ignore[override]
        """Write items and annotators as Parquet, and the rest as JSON, below a folder that Spark can write.

        ``items`` and ``annotators`` are folders of Parquet files, ``about`` is a folder with one line of JSON.
        """
        mode, base = "overwrite" if overwrite else "error", path.rstrip("/")
        about = self.about()
        del about["format"]  # that of a folder with a manifest
        with running(f"write {base}", OutputError):
            self.item_table.write.mode(mode).parquet(f"{base}/items")
            self.annotator_table.write.mode(mode).parquet(f"{base}/annotators")
            line = spark_table.from_polars(self.item_table.sparkSession, {"value": [json.dumps(about)]})
            line.coalesce(1).write.mode(mode).text(f"{base}/about")

    def unpersist(self) -> None:
        """Let go of the packed votes. Tables of items that were not stored are then computed from the start."""
        self._parts().store.release()

    def _parts(self) -> SparkParts:
        assert isinstance(self.parts, SparkParts)
        return self.parts

    def _decision(self) -> Decision:
        assert self.decision is not None
        return self.decision


def labelled_blocks(
    blocks: Any, shape: tuple[int, int], item_kind: str, classes: Vocabulary, decision: Decision, strict: bool = False
) -> Any:
    """A Spark table of items, computed when it is used. ``strict``: duplicated votes are an error."""

    def table(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _, part in parts_in(batches, shape, names=True):
            columns = labelled(decision, part)
            columns["label"] = classes[columns["label"]]  # classes are numbers here
            yield pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})

    rows = blocks.select(*VOTES, "items")
    if strict:
        checked = "if(repeated > 0, raise_error(concat('Duplicated votes: ', example, ' more than once.')), id) as id"
        rows = blocks.selectExpr(checked, *VOTES[1:], "items")
    kind = KINDS[classes.dtype.kind]
    schema = f"item {item_kind}, label {kind}, probability double, entropy double, votes bigint"
    return rows.mapInArrow(table, schema)
