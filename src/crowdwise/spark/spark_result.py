"""The consensus of votes on a Spark cluster: tables of Spark, and what a fit found out about the crowd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import fixed_seed
from crowdwise.core.dependence import Dependence
from crowdwise.core.fitted_parts import FittedParts
from crowdwise.core.numerics import Floats
from crowdwise.core.vote_parts import VotePart, VoteParts
from crowdwise.data import encoding
from crowdwise.data.boundary import guarded
from crowdwise.data.encoding import Vocabulary
from crowdwise.errors import LabelError, OutputError
from crowdwise.spark.spark_parts import VOTES, SparkParts, parts_in, running
from crowdwise.spark.spark_table import CodedNames, check_frame, find_names, from_polars, packed_blocks, read_table

KINDS = {"i": "bigint", "b": "boolean", "O": "string", "U": "string"}
"""The types of Spark for names."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SparkConsensus:
    """The consensus of votes in a Spark table.

    Attributes
    ----------
    item_table
        A Spark table: item, label, probability, entropy (bits), votes. It is computed from the packed votes when it is
        used: write it, or persist it, before :meth:`unpersist`.
    annotator_table
        A Spark table: annotator, votes, agreement (the share of votes that say what the consensus says), and confusion
        (rows: the true class; columns: the label) where the method has it.
    n_items, n_votes
        How many there are.
    method, classes, prior, confusion, dependence, trace, iterations, converged, notes
        As in :class:`~crowdwise.Consensus`.
    """

    item_table: Any
    annotator_table: Any
    method: str
    n_items: int
    n_votes: int
    annotators: Vocabulary
    classes: Vocabulary
    prior: Floats
    confusion: Floats | None
    dependence: Dependence
    trace: Floats
    iterations: int
    converged: bool
    notes: list[str]
    fitted: FittedParts

    @property
    def note(self) -> str:
        """The notes, one per line."""
        return "\n".join(self.notes)

    @guarded
    def predict(
        self, df: Any, *, item: str | None = None, annotator: str | None = None, label: str | None = None,
        weight: str | None = None, on_duplicate: str = "error", on_missing: str = "error",
    ) -> Any:  # fmt: skip
        """The labels of new votes, by what was learned about their annotators; unseen ones answer like the crowd.

        Returns a Spark table: item, label, probability, entropy, votes. The arguments are those of
        :func:`crowdwise.spark.aggregate`.
        """
        given = {"item": item, "annotator": annotator, "label": label, "weight": weight}
        table = read_table(check_frame(df), given, on_missing=on_missing, order=on_duplicate in ("first", "last"))
        new = find_names(table, None, False)
        said = encoding.locate(new.classes, self.classes)
        if (said < 0).any():
            raise LabelError(
                f"The new votes use {new.classes[said < 0].tolist()}: the model was fitted with the classes "
                f"{self.classes.tolist()}."
            )
        who, known = encoding.locate(new.annotators, self.annotators), len(self.annotators)
        unseen = who < 0
        who = np.where(unseen, known + np.cumsum(unseen) - 1, who).astype(np.int32)
        names = np.concatenate([self.annotators.astype(object), new.annotators[unseen].astype(object)])
        codes = {
            part: (values, encoding.recode(code, place))
            for (part, (values, code)), place in zip(new.codes.items(), (who, said), strict=True)
        }
        parts = self._parts()
        blocks = packed_blocks(
            table, CodedNames(names, self.classes, codes), None, blocks=max(parts.tasks, len(parts.ids)),
            tasks=parts.tasks, on_duplicate=on_duplicate,
        )  # fmt: skip
        light, predict = _light(self.fitted), self.fitted.predictor()
        return item_table(
            blocks, (len(names), len(self.classes)), table.item_kind, self.classes,
            replace(light, independent=lambda part: predict(part.votes)), strict=True,
        )  # fmt: skip

    @guarded
    def save(self, path: str, *, overwrite: bool = False) -> None:
        """Write items and annotators as Parquet, and the rest as JSON, below a folder that Spark can write.

        ``items`` and ``annotators`` are folders of Parquet files, ``about`` is a folder with one line of JSON.
        """
        mode, base = "overwrite" if overwrite else "error", path.rstrip("/")
        about = {
            "method": self.method, "classes": self.classes.tolist(), "prior": self.prior.tolist(),
            "n_items": self.n_items, "n_votes": self.n_votes, "dependence": self.dependence.plain(),
            "trace": self.trace.tolist(), "iterations": self.iterations, "converged": self.converged,
            "notes": self.notes,
        }  # fmt: skip
        with running(f"write {base}", OutputError):
            self.item_table.write.mode(mode).parquet(f"{base}/items")
            self.annotator_table.write.mode(mode).parquet(f"{base}/annotators")
            line = from_polars(self.item_table.sparkSession, {"value": [json.dumps(about)]})
            line.coalesce(1).write.mode(mode).text(f"{base}/about")

    def unpersist(self) -> None:
        """Let go of the packed votes. Tables of items that were not stored are then computed from the start."""
        self._parts().store.release()

    def _parts(self) -> SparkParts:
        assert isinstance(self.fitted.parts, SparkParts)
        return self.fitted.parts


def consensus_of(fitted: FittedParts, item_kind: str) -> SparkConsensus:
    """The result of a fit, with its tables."""
    parts = fitted.parts
    assert isinstance(parts, SparkParts)
    names, spark = parts.names, parts.blocks.sparkSession
    counted, agrees = annotator_sums(fitted)
    columns: dict[str, Any] = {
        "annotator": names.annotators.tolist(), "votes": counted,
        "agreement": np.divide(agrees, counted, out=np.full(len(counted), np.nan), where=counted > 0),
    }  # fmt: skip
    if fitted.confusion is not None:
        columns["confusion"] = fitted.confusion.tolist()
    return SparkConsensus(
        item_table=item_table(parts.blocks, parts.shape, item_kind, names.classes, _light(fitted)),
        annotator_table=from_polars(spark, columns), method=fitted.method, n_items=parts.n_items,
        n_votes=int(counted.sum()), annotators=names.annotators, classes=names.classes, prior=fitted.prior,
        confusion=fitted.confusion, dependence=fitted.dependence, trace=fitted.trace,
        iterations=fitted.iterations, converged=fitted.converged, notes=fitted.notes, fitted=fitted,
    )  # fmt: skip


def annotator_sums(fitted: FittedParts) -> npt.NDArray[np.int64]:
    """2 x M: the votes of each annotator, and those that say what the consensus says."""
    light, M = _light(fitted), fitted.parts.names.n_annotators

    def counts(part: VotePart) -> npt.NDArray[np.int64]:
        codes, _ = light.decided(part, light.independent(part), np.random.default_rng(light.random_state))
        same = part.votes.label == np.repeat(codes, np.diff(part.votes.indptr))
        of_all = np.bincount(part.votes.annotator, minlength=M)
        return np.stack([of_all, np.bincount(part.votes.annotator[same], minlength=M)])

    return np.asarray(fitted.parts.total(counts, np.zeros((2, M), dtype=np.int64)))


def item_table(
    blocks: Any, shape: tuple[int, int], item_kind: str, classes: Vocabulary, fitted: FittedParts, strict: bool = False
) -> Any:
    """A Spark table of items, computed when it is used. ``strict``: duplicated votes are an error."""

    def table(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _, part in parts_in(batches, shape, names=True):
            rng = np.random.default_rng(fitted.random_state)
            codes, q = fitted.decided(part, fitted.independent(part), rng)
            found = fitted.table(part.votes, codes, q) | {"label": classes[codes]}
            yield pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in found.items()})

    kind = KINDS[classes.dtype.kind]
    used = [*VOTES, "items"]
    if strict:
        checked = "if(repeated > 0, raise_error(concat('Duplicated votes: ', example, ' more than once.')), id) as id"
        blocks = blocks.selectExpr(checked, *used[1:])
    schema = f"item {item_kind}, label {kind}, probability double, entropy double, votes bigint"
    return blocks.select(*used).mapInArrow(table, schema)


def _light(fitted: FittedParts) -> FittedParts:
    """The result without the votes and the model, as it travels to workers."""
    none = VoteParts([], np.empty(0, dtype=object), fitted.parts.names.classes)
    return replace(fitted, parts=none, model=None, random_state=fixed_seed(fitted.random_state))
