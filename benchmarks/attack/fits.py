"""Every method on tables with next to nothing to learn from: one item, one class, one annotator, weights at both ends
of the range of numbers, crowds in pieces.

    python benchmarks/attack/fits.py [--seconds 60] [--seed 0] [--only votes,ratings,...]

A fit gives a whole result (finite, probabilities that sum to one) or one of our errors; no other exception may come, no
:class:`~crowdwise.errors.InternalError` (that is a bug), and nothing may take ten seconds. Every method meets every
table, and goes on with other sizes while there is time. Counts go to standard output as JSON; the exit status is 1
where anything did not hold.
"""

from __future__ import annotations

import itertools
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from targets import conclude, options

import crowdwise as cw
from crowdwise import registry
from crowdwise.errors import CrowdwiseError, InternalError

SLOW = 10.0
HUGE, TINY, LARGE, SMALL = 1e300, 1e-300, 1e12, 1e-12
Rng = np.random.Generator
Tables = Iterator[tuple[str, Callable[[], Any]]]


def coded(item: Any, annotator: Any, label: Any, K: int, weight: Any = None) -> cw.Votes:
    item, annotator, label = (np.asarray(a, dtype=np.int32) for a in (item, annotator, label))
    return cw.Votes.from_codes(
        item, annotator, label, items=range(int(item.max()) + 1), annotators=range(int(annotator.max()) + 1),
        label_names=range(K), classes=list(range(K)), weight=weight,
    )  # fmt: skip


def vote_tables(rng: Rng) -> Tables:
    """Votes by what is wrong with them."""
    N, M, K = int(rng.integers(2, 30)), int(rng.integers(2, 9)), int(rng.integers(2, 5))
    item, who = (a.ravel() for a in np.indices((N, M)))
    label = rng.integers(K, size=N * M)
    same = np.zeros_like(label)
    yield "random", lambda: coded(item, who, label, K)
    yield "one item", lambda: coded(same, who, label, K) if N == 1 else coded(same[:M], who[:M], label[:M], K)
    yield "one vote", lambda: coded([0], [0], [0], K)
    yield "one annotator", lambda: coded(np.arange(N), np.zeros(N), label[:N], K)
    yield "one annotator, all the same", lambda: coded(np.arange(N), np.zeros(N), np.zeros(N), 2)
    yield "two annotators", lambda: coded(np.repeat(np.arange(N), 2), np.tile([0, 1], N), label[: 2 * N], K)
    yield "one class", lambda: coded(item, who, same, 1)
    yield "all the same", lambda: coded(item, who, same, K)
    yield "classes never used", lambda: coded(item, who, label, K + 40)
    yield "perfect", lambda: coded(item, who, item % K, K)
    yield "constant annotators", lambda: coded(item, who, who % K, K)
    yield "opposites", lambda: coded(item, who, (item + who) % 2, 2)
    yield "one vote each", lambda: coded(np.arange(N), np.arange(N), label[:N], K)
    yield "one vote an item", lambda: coded(np.arange(N), np.arange(N) % M, label[:N], K)
    yield "in pieces", lambda: coded(item, who + M * (item % 2), label, K)
    yield "as many classes as items", lambda: coded(item, who, item, max(N, 2))
    yield "huge weights", lambda: coded(item, who, label, K, np.full(len(item), HUGE))
    yield "one huge weight", lambda: coded(item, who, label, K, np.where(item == 0, HUGE, 1.0))
    yield "large weights", lambda: coded(item, who, label, K, np.full(len(item), LARGE))
    yield "small weights", lambda: coded(item, who, label, K, np.full(len(item), SMALL))
    yield "weights of all sizes", lambda: coded(item, who, label, K, 10.0 ** rng.uniform(-12, 12, len(item)))
    yield "nearly the largest weight", lambda: coded(item, who, label, K, np.full(len(item), 1.7e308))
    yield "tiny weights", lambda: coded(item, who, label, K, np.full(len(item), TINY))
    yield "smallest weights", lambda: coded(item, who, label, K, np.full(len(item), 5e-324))
    yield "weights of all sizes", lambda: coded(item, who, label, K, 10.0 ** rng.uniform(-300, 300, len(item)))
    yield "weights a million apart", lambda: coded(item, who, label, K, 10.0 ** rng.uniform(-3, 3, len(item)))
    keep = rng.random(len(item)) < 0.3
    keep[0] = True
    yield "sparse", lambda: coded(item, who, label, K).select(keep)
    yield "items without votes", lambda: coded(item, who, label, K).select(item < 1)
    yield "nothing", lambda: coded(item, who, label, K).select(np.zeros(len(item), dtype=bool))


def rating_tables(rng: Rng) -> Tables:
    N, M = int(rng.integers(2, 20)), int(rng.integers(2, 7))
    item, who = (a.ravel() for a in np.indices((N, M)))
    value = rng.normal(size=N * M)

    def made(value: Any, item: Any = item, who: Any = who, weight: Any = None) -> cw.Ratings:
        columns = {"item": item, "annotator": who, "value": np.asarray(value, dtype=np.float64)}
        return cw.Ratings.from_frame(columns if weight is None else {**columns, "weight": weight})

    yield "random", lambda: made(value)
    yield "all the same", lambda: made(np.full(N * M, 3.0))
    yield "one rating", lambda: made(value[:1], item[:1], who[:1])
    yield "one item", lambda: made(value[:M], item[:M], who[:M])
    yield "one annotator", lambda: made(value[:N], np.arange(N), np.zeros(N, int))
    yield "one rating each", lambda: made(value[:N], np.arange(N), np.arange(N))
    yield "perfect", lambda: made(item * 1.0)
    yield "constant annotators", lambda: made(who * 1.0)
    yield "huge", lambda: made(value * 1e49)
    yield "too large", lambda: made(np.where(value > 0, 1.7e308, -1.7e308))
    yield "tiny", lambda: made(value * 1e-300)
    yield "one outlier", lambda: made(np.where(item == 0, 1e12, value))
    yield "far from zero", lambda: made(value + 1e15)
    yield "in pieces", lambda: made(value, item, who + M * (item % 2))
    yield "huge weights", lambda: made(value, weight=np.full(N * M, HUGE))
    yield "tiny weights", lambda: made(value, weight=np.full(N * M, TINY))
    yield "weights of all sizes", lambda: made(value, weight=10.0 ** rng.uniform(-12, 12, N * M))
    yield "large weights", lambda: made(value, weight=np.full(N * M, LARGE))
    yield "small weights", lambda: made(value, weight=np.full(N * M, SMALL))
    yield "nothing", lambda: made(value).select(np.zeros(N * M, dtype=bool))


def comparison_tables(rng: Rng) -> Tables:
    N, M, S = int(rng.integers(2, 12)), int(rng.integers(1, 6)), int(rng.integers(1, 60))
    left = rng.integers(N, size=S)
    right = (left + 1 + rng.integers(N - 1, size=S)) % N
    who = rng.integers(M, size=S)
    outcome = np.array(["left", "right", "tie"])[rng.integers(3, size=S)]

    def made(left: Any, right: Any, outcome: Any, who: Any, weight: Any = None) -> cw.Comparisons:
        columns = {"left": left, "right": right, "winner": outcome, "annotator": who}
        return cw.Comparisons.from_frame(columns if weight is None else {**columns, "weight": weight})

    yield "random", lambda: made(left, right, outcome, who)
    yield "one comparison", lambda: made([0], [1], ["left"], ["a"])
    yield "only ties", lambda: made(left, right, np.full(S, "tie"), who)
    yield "one always wins", lambda: made(np.zeros(S, int), right + 1, np.full(S, "left"), who)
    yield "always left", lambda: made(left, right, np.full(S, "left"), who)
    yield (
        "in pieces",
        lambda: made(np.r_[left, left + N], np.r_[right, right + N], np.r_[outcome, outcome], np.r_[who, who + M]),
    )
    yield "a circle", lambda: made([0, 1, 2], [1, 2, 0], ["left"] * 3, [0] * 3)
    yield "one each", lambda: made(left, right, outcome, np.arange(S))
    yield "huge weights", lambda: made(left, right, outcome, who, np.full(S, LARGE))
    yield "tiny weights", lambda: made(left, right, outcome, who, np.full(S, SMALL))
    yield "weights of all sizes", lambda: made(left, right, outcome, who, 10.0 ** rng.uniform(-12, 12, S))
    yield "nothing", lambda: made(left, right, outcome, who).select(np.zeros(S, dtype=bool))


def ranking_tables(rng: Rng) -> Tables:
    N, M = int(rng.integers(2, 8)), int(rng.integers(1, 6))
    item, who = (a.ravel() for a in np.indices((N, M)))
    order = np.array([rng.permutation(N) for _ in range(M)]).T.ravel() + 1

    def made(rank: Any, item: Any = item, who: Any = who, weight: Any = None) -> cw.Rankings:
        columns = {"item": item, "rank": rank, "annotator": who}
        return cw.Rankings.from_frame(columns if weight is None else {**columns, "weight": weight})

    yield "random", lambda: made(order)
    yield "all agree", lambda: made(item + 1)
    yield "huge weights", lambda: made(order, weight=np.full(N * M, HUGE))
    yield "tiny weights", lambda: made(order, weight=np.full(N * M, TINY))
    yield "in pieces", lambda: made(np.r_[order, order], np.r_[item, item + N], np.r_[who, who + M])
    yield "two items", lambda: made([1, 2], [0, 1], [0, 0])


def similarity_tables(rng: Rng) -> Tables:
    N, M = int(rng.integers(2, 10)), int(rng.integers(1, 6))
    a, b = np.triu_indices(N, 1)
    pair, who = (x.ravel() for x in np.indices((len(a), M)))
    a, b, said = a[pair], b[pair], rng.random(len(pair)) < 0.5

    def made(said: Any, a: Any = a, b: Any = b, who: Any = who, weight: Any = None) -> cw.Similarities:
        columns = {"item_a": a, "item_b": b, "annotator": who, "same": np.asarray(said, dtype=bool)}
        return cw.Similarities.from_frame(columns if weight is None else {**columns, "weight": weight})

    yield "random", lambda: made(said)
    yield "one answer", lambda: made([True], [0], [1], [0])
    yield "all the same", lambda: made(np.ones(len(a)))
    yield "all different", lambda: made(np.zeros(len(a)))
    yield "in pieces", lambda: made(np.r_[said, said], np.r_[a, a + N], np.r_[b, b + N], np.r_[who, who + M])
    yield "huge weights", lambda: made(said, weight=np.full(len(a), LARGE))
    yield "tiny weights", lambda: made(said, weight=np.full(len(a), SMALL))
    yield "weights of all sizes", lambda: made(said, weight=10.0 ** rng.uniform(-12, 12, len(a)))
    yield "nothing", lambda: made(said).select(np.zeros(len(a), dtype=bool))


def set_tables(rng: Rng) -> Tables:
    N, M, L = int(rng.integers(1, 10)), int(rng.integers(1, 8)), int(rng.integers(1, 5))
    names = [f"l{k}" for k in range(L)]
    pairs = list(itertools.product(range(N), range(M)))

    def made(chosen: Any, weight: Any = None) -> cw.LabelSets:
        columns: dict[str, Any] = {"item": [n for n, _ in pairs], "annotator": [m for _, m in pairs]}
        columns["labels"] = ["|".join(names[k] for k in np.flatnonzero(row)) for row in chosen]
        columns |= {} if weight is None else {"weight": weight}
        return cw.LabelSets.from_frame(columns, classes=names)

    S = len(pairs)
    random = rng.random((S, L)) < 0.5
    yield "random", lambda: made(random)
    yield "all empty", lambda: made(np.zeros((S, L), bool))
    yield "all full", lambda: made(np.ones((S, L), bool))
    yield "huge weights", lambda: made(random, np.full(S, LARGE))
    yield "tiny weights", lambda: made(random, np.full(S, SMALL))
    yield "weights of all sizes", lambda: made(random, 10.0 ** rng.uniform(-12, 12, S))
    yield "nothing", lambda: made(random).select(np.zeros(S, dtype=bool))


def tag_tables(rng: Rng) -> Tables:
    N, M, L = int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 6))
    sequence, position, who = (a.ravel() for a in np.indices((N, L, M)))
    words = np.array(["O", "B-X", "B-Y"])[rng.integers(3, size=len(who))]

    def made(words: Any, weight: Any = None, **options: Any) -> cw.Tags:
        columns = {"sequence": sequence, "position": position, "annotator": who, "tag": words}
        columns |= {} if weight is None else {"weight": weight}
        return cw.Tags.from_frame(columns, **options)

    yield "random", lambda: made(words)
    yield "all outside", lambda: made(np.full(len(who), "O"))
    yield "all outside, others declared", lambda: made(np.full(len(who), "O"), classes=["O", "B-X", "I-X"])
    yield "all inside", lambda: made(np.full(len(who), "B-X"))
    yield "huge weights", lambda: made(words, np.full(len(who), LARGE))
    yield "tiny weights", lambda: made(words, np.full(len(who), SMALL))


def graph_tables(rng: Rng) -> Tables:
    for name, make in vote_tables(rng):
        for kind, weight in (("no edges", 0), ("edges", 1.0), ("large edges", 1e12), ("small edges", 1e-12)):
            yield f"{name}, {kind}", lambda make=make, weight=weight: linked(make(), weight, rng)


def linked(votes: cw.Votes, weight: float, rng: Rng) -> tuple[cw.Votes, list[Any]]:
    pairs = [(a, b) for a in range(len(votes)) for b in range(a) if rng.random() < 0.4]
    return votes, [(a, b, weight) for a, b in pairs] if weight else []


TABLES = {
    "votes": vote_tables, "ratings": rating_tables, "ordinal": vote_tables, "comparisons": comparison_tables,
    "rankings": ranking_tables, "similarities": similarity_tables, "label-sets": set_tables, "tags": tag_tables,
    "graph": graph_tables,
}  # fmt: skip


def methods(answer_type: str) -> list[str]:
    part = registry.METHODS if answer_type == "votes" else registry.ANSWER_METHODS
    return [key for key, entry in part.items() if not entry.inputs and entry.answer_type == answer_type]


def checked(key: str, answer_type: str, table: Any) -> None:
    """Fit, and look at what was found."""
    model = registry.create(key, answer_type, **({"random_state": 0}))
    if answer_type == "graph":
        found = model.fit(table[0], graph=table[1]).consensus_
    elif getattr(model, "needs_gold", False):
        found = model.fit(table, gold={table.items[0]: table.classes[0]}).consensus_
    else:
        found = model.fit(table).consensus_
    for name in ("posterior", "prior", "scores", "value", "values", "probability", "confusion"):
        numbers = getattr(found, name, None)
        if isinstance(numbers, np.ndarray):
            assert np.isfinite(numbers).all(), f"{name} is not finite"
    posterior = getattr(found, "posterior", None)
    if isinstance(posterior, np.ndarray) and posterior.ndim == 2 and answer_type != "label-sets":
        assert np.allclose(posterior.sum(axis=1), 1.0, atol=1e-6), "probabilities do not sum to one"
        assert posterior.min() >= 0, "a probability is negative"
    found.to_frame(kind="dict")
    found.to_frame("annotators", kind="dict")


def attack(answer_type: str, seconds: float, rounds: int, seed: int, counts: dict[str, Any]) -> None:
    until = time.monotonic() + seconds
    for size in itertools.count():
        for name, make in TABLES[answer_type](np.random.default_rng([seed, size])):
            counts["tables"] += 1
            try:
                table = make()
            except CrowdwiseError:
                counts["tables_refused"] += 1
                continue
            for key in methods(answer_type):
                if counts["fits"] >= rounds if rounds else counts["fits"] and time.monotonic() > until:
                    counts["rounds"] = size
                    return
                counts["fits"] += 1
                began = time.monotonic()
                try:
                    with np.errstate(all="ignore"):
                        checked(key, answer_type, table)
                    counts["fitted"] += 1
                except InternalError as error:
                    noted(counts, "bugs", error.__cause__ or error, key, name, size)
                except CrowdwiseError as error:
                    counts["our_errors"] += 1
                    if isinstance(error, ArithmeticError):
                        noted(counts, "broke_down", error.__cause__ or error, key, name, size)
                except AssertionError as error:
                    noted(counts, "not_whole", error, key, name, size)
                except Exception as error:
                    noted(counts, "foreign", error, key, name, size)
                if time.monotonic() - began > SLOW:
                    noted(counts, "slow", TimeoutError(f"{time.monotonic() - began:.0f} s"), key, name, size)


def noted(counts: dict[str, Any], kind: str, error: BaseException, key: str, table: str, size: int) -> None:
    counts[kind] += 1
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "crowdwise" in f.filename]
    where = f" ({Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""
    counts["errors"].setdefault(f"{kind}: {key} on {table}", f"{size}: {type(error).__name__}: {error}{where}"[:250])


def main() -> int:
    parser = options(__doc__, TABLES)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    names, out = given.only.split(","), {}
    kinds = (
        "tables",
        "tables_refused",
        "fits",
        "fitted",
        "our_errors",
        "broke_down",
        "not_whole",
        "bugs",
        "foreign",
        "slow",
        "rounds",
    )
    for answer_type in names:
        out[answer_type] = dict.fromkeys(kinds, 0) | {"errors": {}}
        attack(answer_type, given.seconds / len(names), given.rounds, given.seed, out[answer_type])
    bad = sum(c["bugs"] + c["foreign"] + c["slow"] + c["not_whole"] + c["broke_down"] for c in out.values())
    return conclude(given.seed, out, bad)


if __name__ == "__main__":
    sys.exit(main())
