"""The consensus of votes that do not fit into memory: from files to files.

:func:`aggregate_files` packs the votes into parts (:mod:`crowdwise.data.packing`), fits a method that takes parts
(:meth:`crowdwise.core.model.Model.fit_in_parts`), and writes the consensus part by part.
"""

from __future__ import annotations

import io
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdwise import registry
from crowdwise.core.consensus import item_columns, probability_columns
from crowdwise.core.consensus_in_parts import ARRAYS, FORMAT, KIND, ConsensusInParts
from crowdwise.core.dependence import Dependence
from crowdwise.core.leave_one_out import matrices_fit
from crowdwise.core.loop import free_memory
from crowdwise.core.numerics import Floats
from crowdwise.core.progress_bar import Passes, Stage, Timetable, shown
from crowdwise.core.vote_parts import VotePart, VoteParts
from crowdwise.data import encoding, vote_files
from crowdwise.data.boundary import foreign, guarded, reading
from crowdwise.data.folders import check_shapes, check_target, read_saved, replacing, write_whole
from crowdwise.data.frames import make_frame
from crowdwise.data.heavy import pl
from crowdwise.data.packing import ROWS, pack, scratch_folder
from crowdwise.data.vote_files import ITEMS, ConsensusFiles, bytes_in, files_of
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, Option, OutputError, ParameterError, ReadError, Remedy, SizeError
from crowdwise.reading import Opened, check_labels, tell_doubt

if TYPE_CHECKING:
    from collections.abc import Callable

    from crowdwise.core.loop import Callback, Progress

READING = (
    "item", "annotator", "label", "weight", "timestamp", "probability", "classes", "on_duplicate", "on_missing",
    "normalise_labels",
)  # fmt: skip
COSTS = {"finding names": 0.3, "sorting rows": 1.8, "packing parts": 2.2, "fitting": 6.0, "writing": 1.5}
"""What stages cost, beside each other (seconds per 10 million votes on a laptop)."""
PASS, PASSES = 0.3, 20
"""What a pass of a fit costs in the same unit, and how many are expected before there are two."""
STAGES = {"names": "finding names", "rows": "sorting rows", "parts": "packing parts"}
BASE_BYTES, VOTE_BYTES, FEWEST = 3e8, 150.0, 100_000
"""Memory of the program, and of each vote of the part that is in memory; the fewest votes of a part."""
LOOKED_AT = 200
"""Rows that show what type of answers files hold."""
ACCURACY = ("accuracy", "accuracy_low", "accuracy_high")
ENDINGS = {".parquet": "sink_parquet", ".csv": "sink_csv", ".jsonl": "sink_ndjson"}


def read_written(folder: str | os.PathLike[str]) -> ConsensusInParts:
    """What lies in a folder that was written as ``out`` or ``save``.

    Its files are compared with the manifest, those of the items by their size alone: items are read when they are
    asked for, part by part.
    """
    saved = read_saved(folder, KIND, by_size=f"{ITEMS}/")
    facts = saved.json(f"{vote_files.ABOUT}/{vote_files.ABOUT_FILE}")
    if facts.pop("format", None) != FORMAT:
        raise ReadError(f"{saved.folder} was written by another version of crowdwise, which this one does not read.")
    with saved.reading():
        arrays = saved.arrays(ARRAYS) if ARRAYS in saved.files else {}
        people = pl.read_parquet(io.BytesIO(saved.files[f"{vote_files.ANNOTATORS}/{vote_files.PART}"]))
        return _of_facts(saved.folder, facts, people, **arrays)


def read_spark(files: ConsensusFiles) -> ConsensusInParts:
    """The consensus that Spark has written, which has no manifest: its items are counted instead."""
    with reading(files.path, "a consensus of Spark's"):
        people = pl.DataFrame() if files.annotator_table is None else files.annotator_table
        counted = dict(files.item_table.group_by("label").len().collect(engine="streaming").iter_rows())
        confusion = None
        if "confusion" in people.columns:
            confusion = np.array(people["confusion"].cast(pl.List(pl.List(pl.Float64))).to_list())
        n_items, per_class = files.about["n_items"], [counted.get(k, 0) for k in files.about["classes"]]
        about = files.about | {"items_per_class": per_class}
        consensus = _of_facts(files.path, about, people.drop("confusion", strict=False), confusion=confusion)
    if sum(counted.values()) != n_items:
        raise ReadError(
            f"{files.path} holds {sum(counted.values()):,} of the {n_items:,} items that Spark has labelled: copy the "
            "whole folder."
        )
    return consensus


def _of_facts(place: Path, facts: dict[str, Any], people: pl.DataFrame, **arrays: Any) -> ConsensusInParts:
    """A consensus from what lies beside the items, and a table of annotators."""
    from crowdwise.metrics.bootstrap import Estimate

    votes = people["votes"].to_numpy()
    arrays = {name: array for name, array in arrays.items() if name in ("confusion", "judged", "total")}
    own = {"annotator", "votes", "agreement"} | ({*ACCURACY} if arrays.get("judged") is not None else set())
    consensus = ConsensusInParts(
        method=facts["method"], params={}, n_answers=facts["n_votes"], iterations=facts["iterations"],
        converged=facts["converged"], notes=facts["notes"], known=facts.get("known", 0),
        prior=np.asarray(facts["prior"], dtype=np.float64), trace=np.asarray(facts["trace"], dtype=np.float64),
        classes=encoding.to_vocabulary(facts["classes"]), dependence=Dependence.of(facts["dependence"]),
        expected_right=facts.get("expected_right"), items_per_class=np.asarray(facts["items_per_class"]),
        measured={name: Estimate.of(stored) for name, stored in facts.get("measured", {}).items()},
        annotators=encoding.to_vocabulary(people["annotator"].to_list()), votes_per_annotator=votes,
        agreement=people["agreement"].to_numpy(), out=place,
        annotator_columns={name: people[name].to_numpy() for name in people.columns if name not in own},
        **{"total": votes.astype(np.float64)} | arrays,
    )  # fmt: skip
    check_shapes(vars(consensus), consensus.SHAPES, {"M": len(consensus.annotators), "K": len(consensus.classes)})
    return consensus


@guarded
def aggregate_files(
    source: Any, out: str | os.PathLike[str] | None, method: str | None = None, *, gold: Any = None, truth: Any = None,
    save: str | os.PathLike[str] | None = None, max_memory: str | float | None = None,
    scratch: str | os.PathLike[str] | None = None, rows_per_part: int | None = None, probabilities: bool = False,
    annotator_accuracy: bool = False, callback: Callback | None = None,
    progress: Callable[[Stage], None] | None = None, verbose: bool = False, **options: Any,
) -> ConsensusInParts:  # fmt: skip
    """What :func:`crowdwise.aggregate` does with ``out``: from files of votes to files of labels.

    Parameters
    ----------
    source, out, method, gold, max_memory, scratch, callback, verbose
        As in :func:`crowdwise.aggregate`.
    truth
        The true classes of items, which measure the consensus and are not used for it: a mapping, a table or a file;
        by default a column of the files, where they have one. Items with gold are left out; of more than a million, as
        many are drawn.
    save
        A folder that :func:`crowdwise.load` opens, beside the file ``out`` or, where that is ``None``, instead of it.
        A folder as ``out`` is such a one already.
    rows_per_part
        How many votes are in memory at once, on average; by default by ``max_memory``, or 4 million.
    probabilities
        Write a column with the probability of every class, too.
    annotator_accuracy
        Estimate the accuracy of annotators as in memory. ``auto`` does so in any case; with other methods it takes
        about as long as a fit.
    progress
        Called with a :class:`crowdwise.core.progress_bar.Stage`, many times.
    **options
        Parameters of the method; and how the files are read: ``item``, ``annotator``, ``label``, ``weight``,
        ``timestamp`` and ``probability`` name columns, ``on_duplicate``, ``on_missing``, ``classes`` and
        ``normalise_labels`` are those of :func:`~crowdwise.read_votes`. ``answer_type="votes"`` takes labels for
        classes that do not look like it.
    """
    from crowdwise.metrics.measures import MeasuredParts

    target, kept = check_places(out, save)
    rows = _rows(max_memory, rows_per_part)
    certain = options.pop("answer_type", None) is not None or "classes" in options
    model = registry.create_in_parts(method, **{key: x for key, x in options.items() if key not in READING})
    how = {key: value for key, value in options.items() if key in READING}
    with shown(model.key, verbose, progress) as report, scratch_folder(scratch) as folder:
        stages = Timetable(COSTS, report)
        packed = pack(
            source, folder, gold=Votes.truth_of(gold), truth=Votes.truth_of(truth), rows=rows,
            progress=lambda name, share: stages.at(STAGES[name], share), **how,
        )  # fmt: skip
        if not certain:
            check_labels(packed.load(0)[0], method, "label" in how, packed.n_rows)
        stages.at("fitting", 0.0)
        passes = Passes(stages, "fitting", PASS, PASSES, float(getattr(model, "tol", 0.0)))
        labelled, against, n_parts = folder / "consensus", MeasuredParts(), len(packed.sizes)
        labelled.mkdir()
        places = iter(range(n_parts))

        def load(i: int) -> VotePart:
            return VotePart(*packed.load(i))

        def write(part: VotePart, codes: npt.NDArray[np.int32], q: Floats) -> None:
            i = next(places)
            stages.at("writing", i / n_parts)
            against.add(q, packed.truth(i))
            names = packed.load(i, names=True)[0].items
            table = item_columns(names, packed.classes, codes, q, np.diff(part.votes.indptr))
            table |= probability_columns(packed.classes, q) if probabilities else {}
            make_frame(table, "polars").write_parquet(labelled / f"part-{i:05d}.parquet")

        def report(step: Progress) -> None:
            passes(step)
            if callback is not None:
                callback(step)

        parts = VoteParts([partial(load, i) for i in range(n_parts)], packed.annotators, packed.classes)
        consensus: ConsensusInParts = model.fit_in_parts(parts, callback=report, each=write)
        if annotator_accuracy and consensus.judged is None and matrices_fit(parts.names):
            consensus = replace(consensus, judged=np.stack([consensus.right, consensus.unsure]))
        gone: dict[str, Any] = dict.fromkeys(("parts", "decision", "model"))
        written = replace(consensus, out=target, measured=against.measured(), **gone)
        _publish(labelled, written, kept)
        stages.at("writing", 1.0)
    return written


def to_files(
    source: Any, out: str | os.PathLike[str] | None, method: str | None, answer_type: str | None, **options: Any
) -> ConsensusInParts:
    """What :func:`crowdwise.aggregate` does for engine stream: its arguments, checked."""
    if not (isinstance(source, (str, os.PathLike)) or vote_files.several(source)):
        raise ParameterError(
            f"Engine 'stream' (and out) take files, and found {type(source).__name__}: leave them out, and write "
            "the table of the result, consensus.to_frame()."
        )
    kind = None if answer_type is None else registry.answer_type(answer_type)
    if kind not in (None, registry.VOTES) or (method in registry.ANSWER_METHODS):
        raise ParameterError(f"{kind or method}: engine 'stream' takes votes alone. Use engine 'memory'.")
    if kind is None and method is None:
        _check_votes(files_of(source), options)
    return aggregate_files(source, out, method, answer_type=kind, **options)


def _check_votes(files: list[Path], options: dict[str, Any]) -> None:
    """An error where the first rows show an export of a tool, or answers of another type, as in memory."""
    tool = Opened(files[0]).tool
    if tool is not None:
        raise InputError(
            f"{files[0]} is an export of {registry.IMPORTERS[tool].title}, which is not read part by part. Import it "
            "first (crowdwise import), and aggregate the table that this makes."
        )
    try:
        head = vote_files.scan(files)[0].head(LOOKED_AT).collect()
    except BaseException as error:
        if foreign(error) or isinstance(error, InputError):
            return  # reading all of it says what is wrong
        raise
    tell_doubt(guess := Opened(head, reading=options).guess)
    if guess is not None and guess.kind != registry.VOTES:
        raise InputError(
            f"{files[0]} holds {guess.kind}, since {guess.reason}: only votes are read part by part.",
            remedy=Remedy("If these are votes, say {}.", Option("answer_type", registry.VOTES)),
        )


def check_fits(source: Any) -> None:
    """Refuse a file that would not fit into memory, with what to do instead."""
    need = too_large(source)
    if need is not None:
        raise SizeError(
            f"{source} would take about {need / 1e9:,.1f} GB of memory, and {free_memory() / 1e9:,.1f} are free.",
            remedy=Remedy(
                "Its votes can be read part by part, and the consensus written to a file: {}.",
                Option("out", python="'consensus.parquet'", command="consensus.parquet"),
            ),
        )


def too_large(source: Any, memory: str | float | None = None) -> float | None:
    """The memory in bytes that a Parquet or CSV file needs, where it is more than is free (or more than is given)."""
    if not isinstance(source, (str, os.PathLike)) or not Path(source).is_file():
        return None
    path, small = Path(source), vote_files.SMALL_FILE
    if path.suffix.lower() not in (*vote_files.PARQUET, *vote_files.TEXT):
        return None
    least = free_memory() if memory is None else bytes_in(memory)
    if path.stat().st_size <= small and small * 100 < least:
        return None
    need = vote_files.memory_needed([path])
    return need if need > least else None


def check_places(out: str | os.PathLike[str] | None, save: str | os.PathLike[str] | None) -> tuple[Path, Path | None]:
    """Where a consensus goes: a file with an ending that is known, or a folder; and the folder, if there is one."""
    target, kept = (None if place is None else Path(place) for place in (out, save))
    if target is not None and target.suffix.lower() not in ENDINGS:
        if target.suffix and not target.is_dir():
            raise OutputError(f"{target}: expected a name that ends in {', '.join(ENDINGS)}, or that of a folder.")
        if kept is not None:
            raise ParameterError(
                f"{target} (out) and {kept} (save) are two folders that would hold the same: leave one of them out, or "
                f"give a file as out ({', '.join(ENDINGS)})."
            )
        kept = target
    check_target(kept, KIND)
    place = kept if target is None else target
    if place is None:
        raise ParameterError(
            "The consensus of votes in parts is written to a file or a folder.",
            remedy=Remedy("Say where: {}.", Option("out", python="'consensus.parquet'", command="consensus.parquet")),
        )
    if target is not None and save is not None and os.path.realpath(target) == os.path.realpath(save):
        raise ParameterError(f"out and save are both {target}: the file and the folder need names of their own.")
    return place, kept


def _rows(memory: str | float | None, rows: int | None) -> int:
    """How many votes a part holds."""
    if rows is not None:
        if rows < 1:
            raise ParameterError(f"rows_per_part={rows!r}: expected a number of at least 1.")
        return rows
    if memory is None:
        return ROWS
    fitting = int((bytes_in(memory) - BASE_BYTES) / VOTE_BYTES)
    if fitting < FEWEST:
        least = (BASE_BYTES + FEWEST * VOTE_BYTES) / 1e6
        raise ParameterError(f"max_memory={memory!r} is too little: parts need at least {least:,.0f} MB.")
    return fitting


def _publish(folder: Path, written: ConsensusInParts, kept: Path | None) -> None:
    """The parts as one file, and as a folder with annotators and the rest beside them, as far as they are asked for."""
    files = sorted(folder.glob("*.parquet"))
    if written.out is not None and written.out != kept:
        write_whole(getattr(pl.scan_parquet(files), ENDINGS[written.out.suffix.lower()]), written.out)
    if kept is None:
        return
    with replacing(kept, KIND) as temporary:
        (temporary / ITEMS).mkdir()
        for file in files:
            shutil.move(file, temporary / ITEMS / file.name)
        written.write_beside(temporary)
