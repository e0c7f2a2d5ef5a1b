"""Votes with probabilities: as votes whose weights are the log-odds of what an annotator (a judge) says.

A judge m of n answers, who gives class k of an item the probability p, votes for it with the weight

    u  =  log [ (n p + 1) (K - 1) / (n (1 - p) + K - 1) ],        w  =  u  sum u / sum u^2        where u >= 0

u is by how much the log-odds of k are above those of chance, 1/K; one more answer for each class is added to the n, so
that no judge is surer than n answers can show. Sums are over the votes of m: together they count as so many votes of
equal weight as have their information (Kish). So a judge whose log-odds are all three times too large has the same
votes. What a unit of weight says of the truth, the scale of the judge, is what a fit learns of every annotator; the
evidence of a vote is that times its weight.

What a judge leaves open is shared evenly by the classes without a row. Numbers of which one is below 0 are logarithms.

It is one SQL statement for all engines: :mod:`polars` runs it in memory and over files, Spark on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.heavy import pl
from crowdwise.errors import ColumnError, InputError, listing

NOT_BOTH = "Column {!r} holds weights, and probabilities are weights already: leave one of them out."

LOOK = """
    SELECT MIN(low) AS low, MAX(high) AS high, MAX(n) AS n, SUM(lost) AS lost FROM (
        SELECT MIN(p) AS low, MAX(p) AS high, COUNT(*) AS n, SUM(CASE WHEN p IS NULL THEN 1 ELSE 0 END) AS lost
        FROM {votes} GROUP BY item, annotator, label)
"""
TWICE = "SELECT item, annotator, label FROM {votes} GROUP BY item, annotator, label HAVING COUNT(*) > 1 LIMIT 1"
VOTES = """
    WITH given AS (
        SELECT item, annotator, label, {p} AS p, row FROM {votes}
    ), cell AS (
        SELECT item, annotator, SUM(p) AS said, COUNT(*) AS n, MIN(row) AS row FROM given GROUP BY item, annotator
    ), judge AS (
        SELECT annotator, COUNT(*) AS n FROM cell GROUP BY annotator
    ), every AS (
        SELECT c.item, c.annotator, g.label, c.row,
            CASE WHEN c.said > 1 OR (c.n = {K} AND c.said > 0) THEN g.p / c.said ELSE g.p END AS p
        FROM given g JOIN cell c ON g.item = c.item AND g.annotator = c.annotator
        UNION ALL
        SELECT c.item, c.annotator, k.label, c.row, (1 - c.said) / GREATEST({K} - c.n, 1) AS p
        FROM cell c CROSS JOIN {classes} k
        LEFT JOIN given g ON g.item = c.item AND g.annotator = c.annotator AND g.label = k.label
        WHERE c.n < {K} AND (1 - c.said) * {K} > {K} - c.n AND g.p IS NULL
    ), odds AS (
        SELECT e.item, e.annotator, e.label, e.row,
            LN((j.n * e.p + 1) * ({K} - 1) / (j.n * (1 - e.p) + {K} - 1)) AS u
        FROM every e JOIN judge j ON e.annotator = j.annotator
    ), above AS (
        SELECT item, annotator, label, row, GREATEST(u, {least}) AS u FROM odds WHERE u > -{least}
    ), size AS (
        SELECT annotator, SUM(u) / SUM(u * u) AS one FROM above GROUP BY annotator
    )
    SELECT a.item, a.annotator, a.label, a.u * s.one AS weight, a.row
    FROM above a JOIN size s ON a.annotator = s.annotator
"""
LEAST = 1e-6
"""The log-odds of a vote that says nothing."""


def statement(look: Callable[[str], pl.DataFrame], K: int, named: Callable[[Any, Any, Any], str]) -> str:
    """The statement that makes votes of a table with the columns item, annotator, label, p and row (``{votes}``) and
    one of the K labels (``{classes}``); an error where there are no such.

    ``look`` runs a statement on the first table; ``named`` gives the words for an item, an annotator and a label.
    """
    low, high, n, lost = look(LOOK).row(0)
    if lost:
        raise InputError(f"{lost:,} rows have no probability: expected a number from 0 to 1, or its logarithm.")
    if n is not None and n > 1:
        raise InputError(f"{named(*look(TWICE).row(0))} has several probabilities: expected one row for each.")
    if not (high is None or high <= (1.0 if low >= 0.0 else 0.0) + 1e-6):
        raise InputError(f"The largest probability is {high:g}: expected numbers from 0 to 1, or logarithms.")
    p = "p" if low is None or low >= 0.0 else "EXP(LEAST(p, 0))"
    if K < 2:
        return "SELECT item, annotator, label, p * 0 + 1 AS weight, row FROM {votes}"
    return VOTES.replace("{p}", p).replace("{K}", str(K)).replace("{least}", f"{LEAST:f}")


def soft_frame(votes: pl.LazyFrame, K: int, named: Callable[[Any, Any, Any], str]) -> pl.LazyFrame:
    """The votes of a polars table with these columns: item, annotator, label, weight, row."""
    tables = pl.SQLContext(votes=votes, classes=pl.LazyFrame({"label": range(K)}, {"label": pl.Int32}))

    def run(query: str) -> pl.LazyFrame:
        return tables.execute(query.format(votes="votes", classes="classes"))

    return run(statement(lambda query: run(query).collect(engine="streaming"), K, named))


def soft_votes(
    item: Codes, annotator: Codes, label: Codes, p: npt.NDArray[np.float64],
    names: tuple[Vocabulary, Vocabulary, Vocabulary],
) -> tuple[npt.NDArray[Any], ...]:  # fmt: skip
    """The votes of arrays of codes: items, annotators, labels, weights."""
    columns = {"item": item, "annotator": annotator, "label": label.astype(np.int32), "p": p}
    frame = pl.LazyFrame(columns).with_row_index("row")
    votes = soft_frame(frame, len(names[2]), lambda *codes: words(*(v[[c]] for v, c in zip(names, codes, strict=True))))
    rows = votes.sort("row", "label").collect()
    return tuple(rows[name].to_numpy() for name in ("item", "annotator", "label", "weight"))


def words(item: Any, annotator: Any, label: Any) -> str:
    """Which answer is meant."""
    return f"Class {listing(label)} of item {listing(item)} by annotator {listing(annotator)}"


def class_columns(columns: Sequence[str], name: str) -> dict[str, str]:
    """The columns whose names begin so, and the class that the rest of each name is."""
    of = {column: column[len(name) :].strip("_-. ") for column in columns if column.startswith(name)}
    of = {column: rest for column, rest in of.items() if rest}
    if len(of) < 2:
        raise ColumnError(
            f"There is no column {name!r}, and no two whose names begin so: the table has {listing(columns, 12)}."
        )
    return of
