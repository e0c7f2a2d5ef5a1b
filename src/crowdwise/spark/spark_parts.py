"""Votes in blocks on the machines of a Spark cluster: an engine for fits in parts.

A pass ships a function to the blocks (``mapInArrow``), sums what it gives within each task, and collects the sums of
the tasks. Where these are large and many, they go in slices to tasks of a second stage: each adds up its slices of all
sums, and the driver collects one sum.

Parameters travel with the function. Above ``FILE_BYTES`` they go into a file instead, where the driver and all workers
see the same folder.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.core.em import Params, Stats
from crowdwise.core.numerics import Floats
from crowdwise.core.vote_parts import VotePart, VoteParts
from crowdwise.data.boundary import reason
from crowdwise.data.encoding import Vocabulary
from crowdwise.data.packing import KnownClasses, Repeated, packed, unpacked
from crowdwise.errors import CrowdwiseError, ExtraError, InputError, ParameterError, ReadError
from crowdwise.spark.spark_table import BLOCK, CodedNames, SparkTable, as_batch, packed_blocks, to_polars

FILE_BYTES = 1_000_000
"""Parameters of more bytes travel in a file, where there is a folder for it."""
COLLECT_BYTES = 64_000_000
"""Sums of tasks of more bytes in all are summed by tasks of a second stage first."""
SLICES = 4
"""Slices of a sum for each task of the second stage."""
TASK_BYTES = 500_000_000
"""The most bytes of blocks per task: Arrow holds 2 GB in a column of a batch."""
VOTE_BYTES = 16
"""At most: of a vote in a block."""
ABOUT = ["id", "n_items", "n_votes", "total", "n_gold", "repeated", "example", "sees"]
VOTES = ["id", "n_items", "n_votes", "sizes", "annotator", "label", "weight", "gold"]


@dataclass
class Store:
    """Where blocks are kept between passes, and files of parameters."""

    staging: str | None = None
    kept: list[Any] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    name: str = field(default_factory=lambda: f"crowdwise-{uuid.uuid4().hex[:12]}")

    def keep(self, blocks: Any) -> Any:
        """The same blocks, computed once: persisted by Spark, or, where it refuses, in Parquet files."""
        from pyspark.errors import PySparkException

        try:
            self.kept.append(blocks.persist())
            return self.kept[-1]
        except PySparkException as error:
            if self.staging is None:
                raise InputError(
                    "Spark refuses to persist a table here. Name a folder that it can write, for files in its place: "
                    "staging='...'."
                ) from error
        path = f"{str(self.staging).rstrip('/')}/{self.name}-{len(self.written)}.parquet"
        with running():
            blocks.write.parquet(path)
        self.written.append(path)
        return blocks.sparkSession.read.parquet(path)

    def release(self, but: Any = None) -> None:
        """Let go of all blocks but these; staged files are removed where they lie in a folder of this machine."""
        for kept in self.kept:
            if kept is not but:
                kept.unpersist()
        self.kept = [kept for kept in self.kept if kept is but]
        if but is None:
            for path in self.written:
                shutil.rmtree(path, ignore_errors=True)
            self.written.clear()

    def folder(self, spark: Any) -> Path | None:
        """A folder for files of parameters, if there may be one that all workers see."""
        if self.staging is not None:
            path = Path(self.staging.removeprefix("file:").replace("dbfs:/", "/dbfs/", 1))
            return path if path.is_dir() else None
        return Path(tempfile.gettempdir()) if str(spark.conf.get("spark.master", "")).startswith("local") else None


@contextmanager
def running(what: str = "read the votes", kind: type[CrowdwiseError] = ReadError) -> Iterator[None]:
    """Around jobs: what workers lack, and what Spark cannot do, is an error that says so."""
    from pyspark.errors import PySparkException, PythonException

    try:
        yield
    except PySparkException as error:
        text = str(error)
        if "No module named" in text:
            module = text.partition("No module named")[2].split("\n")[0].strip()
            raise ExtraError(
                f"The Python workers of Spark cannot import {module}: install crowdwise[spark] for the Python that "
                "they run (PYSPARK_PYTHON), on every machine."
            ) from error
        if "PYTHON_VERSION_MISMATCH" in text:
            raise ExtraError(
                "The Python workers of Spark run another version of Python than this process: set PYSPARK_PYTHON to "
                "the same version before Spark starts."
            ) from error
        if isinstance(error, PythonException):  # a mistake of ours in a function that workers run
            raise
        raise kind(f"Spark could not {what}: {reason(error)}.") from error


class SparkParts(VoteParts):
    """Votes in blocks of a Spark table. An engine.

    ``blocks`` has a row per block; ``about`` is its columns without the votes, in memory.
    """

    def __init__(
        self, blocks: Any, annotators: Vocabulary, classes: Vocabulary, store: Store, tasks: int,
        folder: Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__([], annotators, classes)
        self.blocks, self.store, self.tasks = blocks, store, tasks
        with running():
            self.about = to_polars(blocks.select(*ABOUT)).sort("id")
        self.folder = folder if folder is not None and bool(self.about["sees"].all()) else None
        known, full = self.about["n_gold"].sum(), self.about["n_items"] > 0
        self.ids: list[int] = self.about["id"].filter(full).to_list()
        self.sizes = np.array([self.about["n_items"].sum(), self.about["total"].sum(), known], dtype=np.float64)

    def __reduce__(self) -> Any:
        """What a function that is shipped to the workers sees of it: the names."""
        return VoteParts, ([], self.names.annotators, self.names.classes)

    def __iter__(self) -> Iterator[VotePart]:
        raise NotImplementedError("Votes on a cluster are not brought to the driver: use map or total.")

    def map(self, make: Callable[..., Any], arguments: Sequence[Any] | None = None) -> Iterator[Any]:
        """What a function gives of each block, in the order of their numbers."""
        place = None if arguments is None else dict(zip(self.ids, arguments, strict=True))
        rows = self._run(each_block(make, self.shape, place), "id int, value binary").sort("id")
        yield from map(_serializer().loads, rows["value"])

    def total(self, make: Callable[[VotePart], Any], zero: Any) -> Any:
        """The sum of what a function gives of each block: within tasks, then of tasks."""
        out = flat(zero).copy()
        adders = int(np.ceil(np.sqrt(self.tasks))) if self.tasks > 2 and out.nbytes * self.tasks > COLLECT_BYTES else 0
        slices = max(1, min(SLICES * adders, len(out)))
        rows = self._run(sum_of_blocks(make, self.shape, slices), "slice int, value binary", adders)
        views = np.array_split(out, slices)
        for i, numbers in zip(rows["slice"].to_list(), rows["value"], strict=True):
            views[i] += np.frombuffer(numbers)
        return shaped(out, zero)

    def _run(self, function: Any, columns: str, adders: int = 0) -> Any:
        """The rows that a function makes of the blocks of each task; with ``adders``, so many tasks add up slices."""
        with running():
            rows = self.blocks.select(*VOTES).mapInArrow(function, columns)
            if adders:
                rows = rows.repartition(adders, "slice").mapInArrow(sum_of_slices, columns)
            return to_polars(rows)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of annotators and classes."""
        return self.names.n_annotators, self.names.n_classes

    def expect(self, params: Params) -> Stats:
        """The statistics of all blocks under some parameters, which travel in a file where they are large."""
        if self.folder is None or params.log_score.nbytes <= FILE_BYTES:
            return super().expect(params)
        path = self.folder / f"{self.store.name}-{uuid.uuid4().hex}.npy"
        try:
            np.save(path, np.concatenate([params.log_prior, params.log_score]))
            os.chmod(path, 0o644)
            return self.summed(partial(_expected, str(path), len(params.log_prior)))
        finally:
            with suppress(OSError):
                path.unlink()

    def _each(self, change: Callable[[VotePart], VotePart]) -> SparkParts:
        """The blocks changed by a function, kept."""
        with running():
            kept = self.store.keep(self.blocks.select(*VOTES).mapInArrow(each_changed(change, self.shape), BLOCK))
        return SparkParts(kept, self.names.annotators, self.names.classes, self.store, self.tasks, self.folder)

    def where(self, keep: Callable[[VotePart], Any]) -> VoteParts:
        """The items for which a mask, made block by block, is true; the same parts where it is true of all."""
        parts = super().where(keep)
        if parts.n_items < self.n_items:
            return parts
        self.store.release(but=self.blocks)
        return self


def pack_parts(
    table: SparkTable, names: CodedNames, gold: KnownClasses | None, *, rows_per_block: int, tasks: int | None,
    on_duplicate: str, staging: str | None,
) -> SparkParts:  # fmt: skip
    """The votes of a Spark table in blocks, packed now."""
    if rows_per_block < 1:
        raise ParameterError(f"rows_per_block={rows_per_block!r}: expected a number of at least 1.")
    if tasks is not None and tasks < 1:
        raise ParameterError(f"tasks={tasks!r}: expected a number of at least 1, or None.")
    spark, store = table.frame.sparkSession, Store(staging)
    tasks = max(parallelism(spark) if tasks is None else tasks, -(-table.n_rows * VOTE_BYTES // TASK_BYTES))
    folder = store.folder(spark)
    token = None if folder is None else folder / f"{store.name}.token"
    try:
        if token is not None:
            token.touch(mode=0o644)
        with running():
            blocks = packed_blocks(
                table, names, gold, blocks=tasks * -(-table.n_rows // (tasks * rows_per_block)), tasks=tasks,
                on_duplicate=on_duplicate, token="" if token is None else str(token),
            )  # fmt: skip
            blocks = store.keep(blocks)
        parts = SparkParts(blocks, names.annotators, names.classes, store, tasks, folder)
    finally:
        if token is not None:
            with suppress(OSError):
                token.unlink()
    about = parts.about
    try:
        Repeated.check([Repeated(n, example) for n, example in zip(about["repeated"], about["example"], strict=True)])
        if gold is not None:
            gold.check(int(parts.sizes[2]))
    except InputError:
        store.release()
        raise
    return parts


def parallelism(spark: Any) -> int:
    """How many tasks run at once, as Spark says it: the partitions that it gives to a table of numbers."""
    with running():
        return int(spark.range(0, 100_000).selectExpr("spark_partition_id() as p").distinct().count())


# -- what workers run --------------------------------------------------------------------------------------------------


def each_block(make: Callable[..., Any], shape: tuple[int, int], arguments: dict[int, Any] | None) -> Any:
    """A function that gives a row for each block: its number, and what ``make`` gives of it."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for number, part in parts_in(batches, shape):
            value = _serializer().dumps(make(part) if arguments is None else make(part, arguments[number]))
            yield pa.RecordBatch.from_pydict({"id": pa.array([number], pa.int32()), "value": pa.array([bytes(value)])})

    return run


def sum_of_blocks(make: Callable[[VotePart], Any], shape: tuple[int, int], slices: int) -> Any:
    """A function that gives the sum, for all blocks of a task, of what ``make`` gives of each: a row for each slice."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        total = None
        for _, part in parts_in(batches, shape):
            numbers = flat(make(part))
            total = numbers.copy() if total is None else np.add(total, numbers, out=total)
        if total is not None:
            yield from _slice_rows(enumerate(np.array_split(total, slices)))

    return run


def sum_of_slices(batches: Iterator[Any]) -> Iterator[Any]:
    """The sums of the slices of a task."""
    total: dict[int, Floats] = {}
    for batch in batches:
        for i, value in zip(batch.column("slice").to_pylist(), batch.column("value"), strict=True):
            numbers = np.frombuffer(value.as_buffer())
            total[i] = total[i] + numbers if i in total else numbers.copy()
    yield from _slice_rows(total.items())


def _slice_rows(slices: Iterable[tuple[int, Floats]]) -> Iterator[Any]:
    import pyarrow as pa

    for i, values in slices:
        columns = {"slice": pa.array([i], pa.int32()), "value": pa.array([values.tobytes()], pa.binary())}
        yield pa.RecordBatch.from_pydict(columns)


def flat(value: Any) -> Floats:
    """The numbers of an array or of statistics, in a row."""
    parts: list[Any] = [value.counts, value.mass, value.log_likelihood] if isinstance(value, Stats) else [value]
    return np.concatenate([np.ravel(part) for part in parts]).astype(np.float64, copy=False)


def shaped(numbers: Floats, like: Any) -> Any:
    """Numbers in a row, as an array or statistics of the shape and type of ``like``."""
    if not isinstance(like, Stats):
        return numbers.reshape(np.shape(like)).astype(np.asarray(like).dtype, copy=False)
    counts, mass, log_likelihood = np.split(numbers, np.cumsum([like.counts.size, like.mass.size]))
    return Stats(counts.reshape(like.counts.shape), mass.reshape(like.mass.shape), float(log_likelihood[0]))


def each_changed(change: Callable[[VotePart], VotePart], shape: tuple[int, int]) -> Any:
    """A function that gives a block for each block, changed."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for number, part in parts_in(batches, shape):
            new = change(part)
            known = 0 if new.gold is None else int((new.gold >= 0).sum())
            yield as_batch(
                packed(new.votes, new.gold) | {
                    "id": number, "n_items": len(new.votes), "n_votes": new.votes.n_votes, "total": new.n_votes,
                    "n_gold": known, "repeated": 0, "example": "", "sees": True,
                }
            )  # fmt: skip

    return run


def parts_in(batches: Iterator[Any], shape: tuple[int, int], names: bool = False) -> Iterator[tuple[int, VotePart]]:
    """The blocks in the rows of a task that have items; annotators and classes are numbers.

    A task has a processor, so one thread is used.
    """
    os.environ.setdefault("CROWDWISE_THREADS", "1")
    annotators, classes = np.arange(shape[0]), np.arange(shape[1])
    for batch in batches:
        columns = {name: batch.column(name) for name in batch.schema.names}
        for row in range(batch.num_rows):
            n_items, n_votes = columns["n_items"][row].as_py(), columns["n_votes"][row].as_py()
            block = {name: columns[name][row].as_buffer() for name in ("sizes", "annotator", "label", "weight", "gold")}
            items = columns["items"][row].values.to_numpy(zero_copy_only=False) if names else None
            if n_items:
                part = VotePart(*unpacked(block, n_items, n_votes, annotators, classes, items))
                yield columns["id"][row].as_py(), part
    spare_modules(len(sys.modules))


@lru_cache(maxsize=1)
def spare_modules(count: int) -> None:
    """Keep what modules hold out of garbage collection: Spark collects after every task, which takes .15 s with it."""
    gc.collect()
    gc.freeze()


def _expected(path: str, n_priors: int, part: VotePart) -> Stats:
    """The statistics of a block under the parameters in a file."""
    table = _loaded(path)
    return part.expect(Params(table[n_priors:], table[:n_priors]))


@lru_cache(maxsize=1)
def _loaded(path: str) -> Floats:
    return np.asarray(np.load(path, allow_pickle=False))


def _serializer() -> Any:
    from pyspark.serializers import CPickleSerializer

    return CPickleSerializer()
