"""Whatever was saved to a folder, opened by the file that marks it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from crowdwise import registry
from crowdwise.errors import ReadError, listing

__all__ = ["load"]


def load(folder: str | os.PathLike[str]) -> Any:
    """Whatever was saved to a folder: a consensus of any answer type, a learner, a stream, a campaign, or a data set.

    Examples
    --------
    >>> import crowdwise as cw, tempfile
    >>> votes = cw.Votes.from_dense([[0, 0, 1], [1, 1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = cw.aggregate(votes, "majority").save(folder)
    ...     cw.load(folder).labels.tolist()
    [0, 1]
    """
    folder = Path(folder)
    for marker, opened in OPENED.items():
        if (folder / marker).is_file():
            return opened(folder)
    from crowdwise.data.dataset import find_table, read_dataset

    if folder.is_dir() and find_table(folder, "votes") is not None:
        return read_dataset(folder)
    if not folder.is_dir():
        raise ReadError(f"{folder} is {'a file' if folder.exists() else 'not there'}: expected a folder.")
    raise ReadError(
        f"{folder} holds nothing that crowdwise saves: expected one of {', '.join(OPENED)} or a table of votes "
        f"(labels.csv), and found {listing(sorted(path.name for path in folder.iterdir())) or 'nothing'}."
    )


def _consensus(folder: Path) -> Any:
    try:
        name = json.loads((folder / "consensus.json").read_text(encoding="utf-8"))["type"]
        found = registry.load(registry.RESULTS[name])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReadError(f"{folder} does not hold a readable consensus: {error}.") from error
    return found.load(folder)


def _learner(folder: Path) -> Any:
    from crowdwise.learners.classifier import load_learner

    return load_learner(folder)


def _stream(folder: Path) -> Any:
    from crowdwise.online.stream import Online

    try:
        facts = json.loads((folder / "online.json").read_text(encoding="utf-8"))
        model = registry.create(facts["method"], **facts["params"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReadError(f"{folder} does not hold a readable stream: {error}.") from error
    return Online.load(folder, model)


def _campaign(folder: Path) -> Any:
    from crowdwise.active.campaign import Campaign
    from crowdwise.active.journal import Journal

    journal = Journal.open(folder / "campaign.db")
    facts = journal.facts()
    journal.close()
    return Campaign.open(folder, registry.create(facts["method"], **facts.get("params", {})))


OPENED = {"consensus.json": _consensus, "learner.json": _learner, "online.json": _stream, "campaign.db": _campaign}
"""File -> what opens the folder that holds it."""
