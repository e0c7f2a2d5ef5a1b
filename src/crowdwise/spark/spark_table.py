"""From a Spark table of votes to blocks: columns, checks, names, and one shuffle.

1. One pass counts rows by annotator, with empty cells and numbers that are not names; another lists the labels.
2. Names of annotators and labels are replaced by codes (a broadcast join).
3. Rows are shuffled by item, and each partition becomes one row with the bytes of its votes (:mod:`data.packing`).

Only the DataFrame interface is used, with expressions as text: it is the same in Spark and in Spark Connect.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.data import columns, encoding
from crowdwise.data.assemble import MAX_WEIGHT
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.heavy import pl
from crowdwise.data.packing import KnownClasses, Repeated, names_of, packed
from crowdwise.data.soft_votes import NOT_BOTH, class_columns, statement, words
from crowdwise.data.votes import Votes
from crowdwise.errors import (
    ColumnError,
    ExtraError,
    InputError,
    LabelError,
    Option,
    ParameterError,
    Remedy,
    listing,
    warn,
)

PARTS = ("item", "annotator", "label")
WHOLE = ("tinyint", "smallint", "int", "bigint")
FRACTIONS = ("float", "double")
BLOCK = (
    "id int, n_items bigint, n_votes bigint, total double, n_gold bigint, repeated bigint, example string, "
    "sees boolean, sizes binary, annotator binary, label binary, weight binary, gold binary"
)
"""The columns of a row that holds a block; ``items`` holds the names of its items beside them."""


@dataclass(frozen=True)
class CodedNames:
    """What the codes of annotators and classes stand for, and the values of the columns that have these codes."""

    annotators: Vocabulary
    classes: Vocabulary
    codes: dict[str, tuple[pl.Series, Codes]]


@dataclass(frozen=True)
class SparkTable:
    """A Spark table of votes with the columns item, annotator, label (weight, gold, row), and flags of bad cells."""

    frame: Any
    kinds: dict[str, str]
    """The type of each column in Spark's words, whole numbers as ``bigint``."""
    n_rows: int
    annotators: pl.Series
    labels: pl.Series

    @property
    def item_kind(self) -> str:
        return self.kinds["item"]


def check_frame(df: Any, what: str = "df") -> Any:
    """A Spark table; anything else is an error."""
    try:
        from pyspark.sql import DataFrame
    except ImportError:
        raise ExtraError("Spark needs pyspark, not installed here: pip install 'crowdwise[spark]'.") from None
    if not isinstance(df, DataFrame):
        raise InputError(
            f"{what} must be a Spark DataFrame and is {type(df).__name__}. Use crowdwise.aggregate for tables in "
            "memory and for files."
        )
    if df.isStreaming:
        raise InputError(f"{what} is a streaming DataFrame: a fit goes over the votes many times. Give a stored table.")
    return df


def read_table(
    df: Any, named: dict[str, str | None], *, on_missing: str = "error", order: bool = False, gold: str | None = None,
    probability: str | None = None,
) -> SparkTable:  # fmt: skip
    """The votes of a Spark table, checked. ``order``: with a column ``row``, the place of each row."""
    if on_missing not in ("error", "drop"):
        raise ParameterError(f"on_missing={on_missing!r}: expected 'error' or 'drop'.")
    if probability is not None and probability not in df.columns:
        of = class_columns(df.columns, probability)
        cells = ", ".join(f"'{label}', cast({quoted(column)} as double)" for column, label in of.items())
        rest = (quoted(column) for column in df.columns if column not in of)
        df, probability = df.selectExpr(*rest, f"stack({len(of)}, {cells}) as (label, probability)"), "probability"
    column_of = columns.resolve(df.columns, named | ({} if gold is None else {"truth": gold}))
    missing = [part for part in PARTS if column_of[part] is None]
    if missing:
        raise ColumnError(
            f"No column for {listing(missing)}: the table has {listing(df.columns, 12)}. Name it, as item='...'."
        )
    wanted = (*PARTS, "weight", *(["truth"] if gold else []))
    used = {part: column for part in wanted if (column := column_of.get(part)) is not None}
    if probability is not None:
        if "weight" in used:
            raise ParameterError(NOT_BOTH.format(used["weight"]))
        used["p"], order = probability, True
    kinds = {part: _kind(df, part, column) for part, column in used.items()}
    values, flags = [], []
    for part, column in used.items():
        value, empty, bad = _expressions(quoted(column), kinds[part], part)
        values.append(f"{value} as {part}")
        flags += [f"cast({empty} as int) as no_{part}", f"cast({bad} as int) as bad_{part}"]
    lacking = " or ".join(f"no_{part} = 1" for part in PARTS)
    frame = df.selectExpr(*values, *flags, *(["monotonically_increasing_id() as row"] if order else []))
    frame = frame.selectExpr("*", f"cast({lacking} as int) as incomplete")
    n_rows, people = _counted(frame, used, on_missing)
    whole = frame.filter("incomplete = 0")
    labels = to_polars(whole.select("label").distinct())["label"].sort()
    kinds = {part: "bigint" if kind in (*WHOLE, *FRACTIONS) else kind for part, kind in kinds.items()}
    return SparkTable(whole, kinds, n_rows, people, labels)


def _kind(df: Any, part: str, column: str) -> str:
    """The type of a column, checked."""
    kind = str(df.schema[column].dataType.simpleString())
    kind = "string" if kind.startswith(("string", "char", "varchar")) else kind
    if part in ("weight", "p"):
        allowed: tuple[str, ...] = (*WHOLE, *FRACTIONS)
        if kind not in allowed and not kind.startswith("decimal"):
            raise ColumnError(f"Column {column!r} holds {kind}: weights and probabilities must be numbers.")
        return part
    allowed = ("string", "boolean", *WHOLE, *FRACTIONS)
    if kind not in allowed:
        raise ColumnError(
            f"Column {column!r} holds {kind}: names and labels must be text, whole numbers or booleans. Convert it "
            f"first: df.withColumn({column!r}, df[{column!r}].cast('string'))."
        )
    return kind


def _expressions(name: str, kind: str, part: str) -> tuple[str, str, str]:
    """The value of a cell, whether it is empty, and whether it is not a name (no weight), in SQL."""
    if part == "p":
        return f"nullif(cast({name} as double), double('NaN'))", "false", "false"
    if part == "weight":
        weight = f"coalesce(cast({name} as double), double('NaN'))"
        return weight, "false", f"not ({weight} >= {1 / MAX_WEIGHT} and {weight} <= {MAX_WEIGHT})"
    if kind in FRACTIONS:
        whole = f"try_cast({name} as bigint)"
        empty = f"({name} is null or isnan({name}))"
        return whole, empty, f"(not {empty} and ({whole} is null or {whole} <> {name}))"
    blank = f" or trim(both ' \t\n\r' from {name}) = ''" if kind == "string" else ""
    return (f"cast({name} as bigint)" if kind in WHOLE else name), f"({name} is null{blank})", "false"


def _counted(frame: Any, used: dict[str, str], on_missing: str) -> tuple[int, pl.Series]:
    """The number of complete rows, and the annotators who have any; an error, or a note, about other rows."""
    flags = [f"{kind}_{part}" for part in used for kind in ("no", "bad")]
    sums = dict.fromkeys([*flags, "incomplete"], "sum")
    counted = to_polars(frame.selectExpr("*", "1 as one").groupBy("annotator").agg(sums | {"one": "sum"}))
    counted = counted.rename({name: name.removeprefix("sum(").removesuffix(")") for name in counted.columns})
    total = {name: int(counted[name].sum()) for name in (*flags, "incomplete", "one")}
    if total["one"] == 0:
        raise InputError("No votes: the Spark table is empty.")
    for part, column in used.items():
        bad = total[f"bad_{part}"]
        if bad and part == "weight":
            raise InputError(
                f"Weights must be positive numbers, between {1 / MAX_WEIGHT:g} and {MAX_WEIGHT:g}: {bad:,} rows of "
                f"column {column!r} hold others. Leave out the votes that should not count."
            )
        if bad:
            raise LabelError(
                f"Column {column!r} holds fractions in {bad:,} rows: classes and names must be whole numbers, text or "
                "booleans. If these are measurements, they are not class labels; if they are codes, round them first."
            )
    lost = {part: total[f"no_{part}"] for part in PARTS if total[f"no_{part}"]}
    if lost and on_missing == "error":
        what = " and ".join(f"{n:,} without {'a' if part == 'label' else 'an'} {part}" for part, n in lost.items())
        drop = Remedy("Leave them out with {}.", Option("on_missing", "drop"))
        raise LabelError(f"Rows have empty cells: {what}.", remedy=drop)
    left = total["one"] - total["incomplete"]
    if left == 0:
        raise InputError("No votes: every row of the Spark table has an empty cell.")
    if lost:
        rows = f"{total['incomplete']:,} of {total['one']:,} rows"
        warn(f"Left out {rows}: without an item, an annotator or a label.")
    return left, counted.filter(pl.col("one") > pl.col("incomplete"))["annotator"].drop_nulls().sort()


def find_names(table: SparkTable, classes: Any, normalise_labels: bool) -> CodedNames:
    """The names of annotators and classes, as they would be in memory but for the order of annotators: sorted."""
    who, annotators = names_of(table.annotators, "annotator")
    labels, names = names_of(table.labels, "label", classes=classes, normalise_labels=normalise_labels)
    return CodedNames(annotators, names, {"annotator": (table.annotators, who), "label": (table.labels, labels)})


def find_gold(table: SparkTable, gold: Any, classes: Vocabulary) -> KnownClasses | None:
    """Gold labels from a mapping, a table (of Spark, too), or the name of a column of the votes."""
    if isinstance(gold, str):
        rows = table.frame.filter("truth is not null").select("item", "truth").distinct()
        gold = to_polars(rows).rename({"truth": "label"})
        if not gold.height:
            return None
    elif hasattr(gold, "sparkSession"):
        column_of = columns.resolve(gold.columns, dict.fromkeys(("item", "truth", "label")))
        value = column_of["truth"] or column_of["label"]
        if column_of["item"] is None or value is None:
            raise ColumnError(
                f"A table of gold labels needs an item column and a label column: found {listing(gold.columns, 12)}."
            )
        gold = to_polars(gold.selectExpr(f"{quoted(column_of['item'])} as item", f"{quoted(value)} as label"))
    return KnownClasses.of(gold, classes)


def coded(table: SparkTable, names: CodedNames) -> Any:
    """The rows of a table with codes in the place of annotators and labels."""
    frame, spark = table.frame, table.frame.sparkSession
    for part, (values, codes) in names.codes.items():
        frame = frame.join(
            from_polars(spark, {part: values, f"{part}_code": codes}, {part: table.kinds[part]}).hint("broadcast"), part
        )
    if "p" in table.kinds:
        return _soft(spark, frame, names)
    beside = [name for name in ("weight", "row") if name in frame.columns]
    return frame.select("item", "annotator_code", "label_code", *beside)


def _soft(spark: Any, frame: Any, names: CodedNames) -> Any:
    """Rows with probabilities as rows with weights."""
    tables = {
        "votes": frame.selectExpr("item", "annotator_code as annotator", "label_code as label", "p", "row"),
        "classes": from_polars(spark, {"label": np.arange(len(names.classes))}),
    }

    def named(item: Any, annotator: int, label: int) -> str:
        return words([item], names.annotators[[annotator]], names.classes[[label]])

    query = statement(lambda query: to_polars(spark.sql(query, **tables)), len(names.classes), named)
    rows = spark.sql(query, **tables)
    return rows.selectExpr("item", "annotator as annotator_code", "label as label_code", "weight")


def packed_blocks(
    table: SparkTable, names: CodedNames, gold: KnownClasses | None, *, blocks: int, tasks: int, on_duplicate: str,
    token: str = "",
) -> Any:  # fmt: skip
    """A Spark table with a row per block, in ``tasks`` partitions; nothing is computed yet."""
    if on_duplicate not in ("error", "first", "last", "all"):
        raise ParameterError(f"on_duplicate={on_duplicate!r}: expected 'error', 'first', 'last' or 'all'.")
    rows = coded(table, names).repartition(blocks, "item").selectExpr("*", f"pmod(hash(item), {blocks}) as bucket")
    several = "all" if "p" in table.kinds else on_duplicate  # a judge may vote for several classes
    pack = packer(names.annotators, len(names.classes), gold, several, token)
    packed_rows = rows.mapInArrow(pack, f"{BLOCK}, items array<{table.item_kind}>")
    return packed_rows.coalesce(tasks) if tasks < blocks else packed_rows


def packer(
    annotators: Vocabulary, K: int, gold: KnownClasses | None, on_duplicate: str, token: str
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function that packs the rows of a partition into blocks, one per bucket."""

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        arrived = list(batches)
        if not sum(batch.num_rows for batch in arrived):
            return
        table = pl.from_arrow(pa.Table.from_batches(arrived))
        del arrived
        assert isinstance(table, pl.DataFrame)
        for rows in table.partition_by("bucket"):
            votes = _votes(rows, len(annotators), K, "all" if on_duplicate == "error" else on_duplicate)
            codes = None if gold is None else gold.of_items(votes.items)
            repeated = Repeated.of(votes, annotators) if on_duplicate == "error" else Repeated()
            yield as_batch(
                packed(votes, codes) | {
                    "id": int(rows["bucket"][0]), "n_items": len(votes), "n_votes": votes.n_votes,
                    "total": float(votes.n_votes if votes.weight is None else votes.weight.sum()),
                    "n_gold": 0 if codes is None else int((codes >= 0).sum()), "repeated": repeated.count,
                    "example": repeated.example, "sees": bool(token) and os.path.exists(token),
                },
                votes.items,
            )  # fmt: skip

    return pack


def _votes(rows: pl.DataFrame, M: int, K: int, on_duplicate: str) -> Votes:
    """The votes of a block, as in memory; annotators and classes are numbers."""
    rows = rows.sort("row") if "row" in rows.columns else rows
    item, items = encoding.encode(rows["item"])
    return Votes.from_codes(
        item, rows["annotator_code"].to_numpy(), rows["label_code"].to_numpy(), items=items, annotators=np.arange(M),
        classes=np.arange(K), on_duplicate=on_duplicate,
        weight=rows["weight"].to_numpy() if "weight" in rows.columns else None,
    )  # fmt: skip


def as_batch(block: dict[str, Any], items: Vocabulary | None = None) -> Any:
    """A block as a row of Arrow."""
    import pyarrow as pa

    kinds = {
        "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "string": pa.string(),
        "boolean": pa.bool_(), "binary": pa.binary(),
    }  # fmt: skip
    row = {name: pa.array([block[name]], kinds[kind]) for name, kind in (pair.split() for pair in BLOCK.split(", "))}
    if items is not None:
        row["items"] = pa.array([items.tolist()])
    return pa.RecordBatch.from_pydict(row)


def quoted(column: str) -> str:
    """The name of a column, in SQL."""
    return f"`{column.replace('`', '``')}`"


def to_polars(frame: Any) -> pl.DataFrame:
    """The rows of a (small) Spark table."""
    table = pl.from_arrow(frame.toArrow())
    assert isinstance(table, pl.DataFrame)
    return table


def from_polars(spark: Any, data: dict[str, Any], kinds: dict[str, str] | None = None) -> Any:
    """A Spark table from columns in memory, in such types."""
    table = spark.createDataFrame(pl.DataFrame(data).to_arrow(compat_level=pl.CompatLevel.oldest()))
    casts = {name: f"cast({name} as {kind}) as {name}" for name, kind in (kinds or {}).items()}
    return table.selectExpr(*(casts.get(name, name) for name in data))
