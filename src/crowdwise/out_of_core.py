"""The consensus of votes that do not fit into memory: from files to files.

:func:`aggregate_files` packs the votes into parts (:mod:`crowdwise.data.packing`), fits a method that takes parts
(:meth:`crowdwise.core.model.Model.fit_in_parts`), and writes the consensus part by part.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise import registry
from crowdwise.core.dependence import Dependence
from crowdwise.core.vote_parts import VotePart, VoteParts
from crowdwise.data.boundary import guarded
from crowdwise.data.folders import check_target, replacing, write_whole
from crowdwise.data.packing import ROWS, Packed, pack, scratch_folder
from crowdwise.errors import ParameterError

if TYPE_CHECKING:
    from crowdwise.core.loop import Callback

KIND = "consensus in parts"
READING = (
    "item", "annotator", "label", "weight", "timestamp", "classes", "on_duplicate", "on_missing", "normalise_labels",
)  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class WrittenConsensus:
    """What was written, and what a fit found out about the crowd.

    Attributes
    ----------
    out
        The file or folder with the consensus: item, label, probability, entropy (bits), votes.
    n_items, n_votes
        How many there are.
    annotators, votes_per_annotator, agreement
        The names of annotators, the number of their votes, and the share that says what the consensus says.
    method, classes, prior, confusion, dependence, trace, iterations, converged, notes
        As in :class:`~crowdwise.Consensus`.
    """

    out: Path
    method: str
    n_items: int
    n_votes: int
    annotators: npt.NDArray[Any]
    votes_per_annotator: npt.NDArray[np.int64]
    agreement: npt.NDArray[np.float64]
    classes: npt.NDArray[Any]
    prior: npt.NDArray[np.float64]
    confusion: npt.NDArray[np.float64] | None
    dependence: Dependence
    trace: npt.NDArray[np.float64]
    iterations: int
    converged: bool
    notes: list[str] = field(default_factory=list)


@guarded
def aggregate_files(
    source: Any, out: str | os.PathLike[str], method: str | None = None, *, gold: Any = None,
    scratch: str | os.PathLike[str] | None = None, rows_per_part: int = ROWS, callback: Callback | None = None,
    **options: Any,
) -> WrittenConsensus:  # fmt: skip
    """The consensus of votes in files that may be larger than memory, written to a Parquet file or a folder of them.

    Parameters
    ----------
    source
        A Parquet or CSV file, a pattern (``"votes/*.parquet"``), a folder, or a list of them: one row per vote.
    out
        A file ``.parquet``, or a folder for one Parquet file per part. It is replaced when all is done.
    method
        A method whose class says ``in_parts``: auto (default), anchored, dawid-skene, one-coin, confusion-vector,
        fast-dawid-skene or majority.
    gold
        Truth that the method may use: a mapping from item to class.
    scratch
        Where the parts are kept while it runs, about 20 bytes per vote (and the names of items); by default the
        system's folder for temporary files. What a killed process left there is removed.
    rows_per_part
        How many votes are in memory at once, on average.
    **options
        Parameters of the method; and how the files are read: ``item``, ``annotator``, ``label``, ``weight`` and
        ``timestamp`` name columns, ``on_duplicate``, ``on_missing``, ``classes`` and ``normalise_labels`` are those of
        :func:`~crowdwise.read_votes`.

    >>> import crowdwise as cw, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> crowd = cw.simulate.dirichlet(200, n_annotators=10, n_classes=3, votes_per_item=4, random_state=0)
    >>> crowd.votes.to_frame("polars").write_parquet(f"{folder}/votes.parquet")
    >>> written = cw.aggregate_files(f"{folder}/*.parquet", f"{folder}/consensus.parquet", rows_per_part=300)
    >>> written.n_items, written.n_votes, written.out.name
    (200, 800, 'consensus.parquet')
    """
    target = Path(out)
    if rows_per_part < 1:
        raise ParameterError(f"rows_per_part={rows_per_part!r}: expected a number of at least 1.")
    entry = registry.find(method or registry.default_method(registry.VOTES, 2), registry.VOTES)
    model = entry.create(**{key: value for key, value in options.items() if key not in READING})
    reading = {key: value for key, value in options.items() if key in READING}
    if target.suffix.lower() != ".parquet":
        check_target(target, KIND)
    with scratch_folder(scratch) as folder:
        packed = pack(source, folder, gold=gold, rows=rows_per_part, **reading)
        load = [partial(_load, packed, i) for i in range(len(packed.sizes))]
        found = model.fit_in_parts(VoteParts(load, packed.annotators, packed.classes), callback=callback)
        M = len(packed.annotators)
        counted, agrees = np.zeros(M, dtype=np.int64), np.zeros(M, dtype=np.int64)
        made = folder / "consensus"
        made.mkdir()
        for i, (part, codes, q) in enumerate(found.consensus()):
            votes = part.votes
            same = votes.label == np.repeat(codes, np.diff(votes.indptr))
            counted += np.bincount(votes.annotator, minlength=M)
            agrees += np.bincount(votes.annotator[same], minlength=M)
            _write(found.table(packed.load(i, names=True)[0], codes, q), made / f"part-{i:05d}.parquet")
        _publish(made, target)
    return WrittenConsensus(
        out=target, method=entry.key, n_items=sum(packed.sizes), n_votes=int(counted.sum()),
        annotators=packed.annotators, votes_per_annotator=counted, classes=packed.classes, prior=found.prior,
        agreement=np.divide(agrees, counted, out=np.full(M, np.nan), where=counted > 0), confusion=found.confusion,
        dependence=found.dependence, trace=found.trace, iterations=found.iterations, converged=found.converged,
        notes=found.notes,
    )  # fmt: skip


def _load(packed: Packed, i: int) -> VotePart:
    return VotePart(*packed.load(i))


def _write(columns: dict[str, Any], path: Path) -> None:
    from crowdwise.data.frames import make_frame

    make_frame(columns, "polars").write_parquet(path)


def _publish(made: Path, target: Path) -> None:
    """The parts as one file, or as a folder of files."""
    import polars as pl

    if target.suffix.lower() == ".parquet":
        rows = pl.scan_parquet(sorted(made.glob("*.parquet")))
        write_whole(rows.sink_parquet, target)
        return
    with replacing(target, KIND) as temporary:
        for file in sorted(made.glob("*.parquet")):
            (temporary / file.name).write_bytes(file.read_bytes())
