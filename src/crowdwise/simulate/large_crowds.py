"""Simulated crowds of any size, written to Parquet files some items at a time: memory is that of one file."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise.data.folders import replacing
from crowdwise.errors import ParameterError
from crowdwise.simulate import crowds, vote_crowds
from crowdwise.simulate.assignment import assign
from crowdwise.simulate.crowds import Array, RandomState, Rng, Simulated

INDEPENDENT: dict[str, Callable[..., Simulated]] = {
    "one-coin": vote_crowds.one_coin,
    "two-coin": vote_crowds.two_coin,
    "dirichlet": vote_crowds.dirichlet,
    "hammer-spammer": vote_crowds.hammer_spammer,
    "pairwise-flipper": vote_crowds.pairwise_flipper,
}
"""Scenarios in which annotators answer from their matrices, item by item: those that can be made in pieces."""


def write_large(
    scenario: str, folder: str | os.PathLike[str], n_items: int, *, items_per_file: int = 1_000_000,
    random_state: RandomState = 0, progress: Callable[[int, int], None] | None = None, **parameters: Any,
) -> int:  # fmt: skip
    """Write a crowd to a folder, all or nothing, and return the number of its votes.

    The folder holds ``votes/part-*.parquet`` (item, annotator, label, in random order within a file),
    ``truth/part-*.parquet`` (item, truth), ``parameters.npz`` and ``meta.json``.

    Parameters
    ----------
    scenario
        A key of :data:`INDEPENDENT`.
    items_per_file
        How many items are in memory at once.
    progress
        Called after each file with the number of files that are written, and that there are.
    **parameters
        Those of the scenario.

    >>> import tempfile
    >>> from crowdwise.simulate import write_large
    >>> folder = tempfile.mkdtemp() + "/crowd"
    >>> write_large("one-coin", folder, 2500, items_per_file=1000, n_annotators=50, votes_per_item=4)
    10000
    """
    if scenario not in INDEPENDENT:
        raise ParameterError(f"{scenario} is not made in pieces: there are {', '.join(INDEPENDENT)}.")
    crowds.check_counts(n_items=n_items, items_per_file=items_per_file)
    make, rng = INDEPENDENT[scenario], crowds.as_generator(random_state)
    known = make(1, random_state=rng, **parameters)
    default = inspect.signature(make).parameters["votes_per_item"].default
    each = parameters.get("votes_per_item", default)
    theta, pi, total = known.parameters["confusion"], known.parameters["prior"], 0
    files = -(-n_items // items_per_file)
    with replacing(folder, "simulated crowd", manifest=False) as work:
        for name in ("votes", "truth"):
            (work / name).mkdir()
        for i in range(files):
            first = i * items_per_file
            total += _write_file(work, i, first, min(items_per_file, n_items - first), theta, pi, each, rng)
            if progress is not None:
                progress(i + 1, files)
        _describe(work, known, scenario, n_items, total)
    return total


def _write_file(
    folder: Path, i: int, first: int, n_items: int, theta: Array, pi: Array, votes_per_item: Any, rng: Rng
) -> int:
    """The votes and the truth of some items; how many votes there are."""
    import polars as pl

    truth = crowds.draw_truth(n_items, pi, rng)
    item, annotator = assign(n_items, len(theta), votes_per_item, random_state=rng)
    label = crowds.answer(theta, annotator, truth[item], rng)
    order = rng.permutation(len(item))
    names = pl.Series([f"a{m}" for m in range(len(theta))], dtype=pl.String)
    votes = {"item": item[order].astype(np.int64) + first, "annotator": names.gather(annotator[order])}
    pl.DataFrame(votes | {"label": label[order]}).write_parquet(folder / "votes" / f"part-{i:05d}.parquet")
    known = {"item": np.arange(first, first + n_items), "truth": truth}
    pl.DataFrame(known).write_parquet(folder / "truth" / f"part-{i:05d}.parquet")
    return len(item)


def _describe(folder: Path, crowd: Simulated, scenario: str, n_items: int, n_votes: int) -> None:
    numbers = {name: np.asarray(value) for name, value in crowd.parameters.items()}
    np.savez_compressed(folder / "parameters.npz", allow_pickle=False, **numbers)
    meta = {
        "name": scenario, "source": "simulated by crowdwise", "items": n_items, "votes": n_votes,
        "annotators": crowd.votes.annotators.tolist(), "classes": crowd.votes.classes.tolist(),
    }  # fmt: skip
    (folder / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
