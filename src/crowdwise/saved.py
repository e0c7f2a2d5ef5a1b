"""Whatever was saved to a folder, opened by what its manifest says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crowdwise import registry
from crowdwise.data import folders
from crowdwise.data.boundary import as_path
from crowdwise.data.folders import kind_of, read_saved
from crowdwise.data.vote_files import find_consensus
from crowdwise.errors import ReadError, either, listing


def load(folder: str | os.PathLike[str]) -> Any:
    """Whatever was saved to a folder: a consensus of any answer type, a learner, a stream, a campaign, or a data set.

    Of votes that were read part by part, and of what :meth:`crowdwise.spark.SparkConsensus.save` wrote, it is a
    :class:`~crowdwise.ConsensusInParts`, whose items stay on the disk.

    >>> import crowdwise as cw, tempfile
    >>> votes = cw.Votes.from_dense([[0, 0, 1], [1, 1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = cw.aggregate(votes, "majority").save(folder)
    ...     cw.load(folder).labels.tolist()
    [0, 1]
    """
    if "://" in str(folder):
        raise ReadError(f"{folder} is an address: copy the folder to this machine, and open the copy.")
    folder = as_path(folder)
    if (folder / "campaign.db").is_file():
        from crowdwise.store.campaign import Campaign

        return Campaign.open(folder)
    if not folder.is_dir():
        raise ReadError(f"{folder} is {'a file' if folder.exists() else 'not there'}: expected a folder.")
    kind = kind_of(folder)
    if kind in OPENED:
        return OPENED[kind](folder)
    files = find_consensus(folder) if kind is None else None
    if files is not None and "format" not in files.about:  # the stream engine's has one, and a manifest
        from crowdwise.out_of_core import read_spark

        return read_spark(files)
    from crowdwise.data.dataset import find_table, read_dataset

    if find_table(folder, "votes") is not None:
        return read_dataset(folder)
    raise ReadError(
        f"{folder} holds nothing that crowdwise saves: expected a saved {either(list(OPENED))} with its "
        f"{folders.NAME}, a campaign or a table of votes (labels.csv), and found "
        f"{listing(sorted(path.name for path in folder.iterdir())) or 'nothing'}."
    )


def _consensus(folder: Path) -> Any:
    from crowdwise.core import result

    saved = read_saved(folder, "consensus")
    with saved.reading():
        kind = registry.results()[saved.json(result.FACTS)["type"]]
        result_class = registry.load(kind.result, kind.package)
    return result_class.of_files(saved)


def _written(folder: Path) -> Any:
    from crowdwise.out_of_core import read_written

    return read_written(folder)


def _learner(folder: Path) -> Any:
    from crowdwise.learners.classifier import load_learner

    return load_learner(folder)


def _stream(folder: Path) -> Any:
    from crowdwise.online.stream import Online, read_facts

    saved = read_saved(folder, "stream")
    facts = read_facts(saved)
    with saved.reading():
        if "item_names" not in facts:
            raise ReadError(f"{folder} was saved without names: open it with crowdwise.Online.load.")
        model = registry.create(facts["method"], **facts["params"])
    return Online.of_files(saved, model)


OPENED = {"consensus": _consensus, "consensus in parts": _written, "learner": _learner, "stream": _stream}
"""What a manifest says that a folder holds -> what opens it."""
