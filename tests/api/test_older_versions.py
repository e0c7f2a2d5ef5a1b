"""What older versions saved is read by this one: a folder of tests/saved for each release (tests/saved/make.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import crowdwise as cw
from conftest import ROOT, need_module

VERSIONS = sorted(
    folder for folder in (ROOT / "tests" / "saved").iterdir() if folder.is_dir() and folder.name[0] in "0123456789"
)


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a version saved: a campaign is written to when it is opened."""
    return Path(shutil.copytree(request.param, tmp_path / "saved"))


def expected(saved: Path) -> dict[str, list]:
    return dict(json.loads((saved / "expected.json").read_text(encoding="utf-8")))


def test_there_is_a_folder_for_this_version() -> None:
    assert cw.__version__ in [folder.name for folder in VERSIONS], "run tests/saved/make.py"


def test_a_consensus(saved: Path) -> None:
    assert cw.load(saved / "consensus").labels.tolist() == expected(saved)["consensus"]


def test_estimates(saved: Path) -> None:
    assert np.allclose(cw.load(saved / "estimates").mean, expected(saved)["estimates"], atol=1e-5)


def test_a_consensus_in_parts(saved: Path) -> None:
    written = cw.load(saved / "parts")
    again = cw.aggregate(saved / "labels.csv", "one-coin")
    assert written.method == "one-coin" and written.n_items == len(again.labels)
    assert written.annotator_table.height == again.annotator_table.height


def test_a_stream_goes_on(saved: Path) -> None:
    stream = cw.load(saved / "stream")
    assert stream.consensus().labels.tolist() == expected(saved)["stream"]
    stream.partial_fit(cw.Votes.from_records([(0, "new", 1)]))


def test_a_learner(saved: Path) -> None:
    need_module("torch")
    facts = expected(saved)
    assert cw.load(saved / "learner").predict(np.array(facts["x"])).tolist() == facts["learner"]


def test_a_campaign_goes_on(saved: Path) -> None:
    campaign = cw.load(saved / "campaign")
    assert campaign.votes().n_votes == 3 and campaign.votes().annotators.tolist() == ["ann", "bob"]
    campaign.add([(1, "bob", "y")])
    assert campaign.votes().n_votes == 4
    campaign.close()
