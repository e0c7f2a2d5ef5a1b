"""``cw.load`` opens whatever was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from conftest import need_module
from crowdwise import registry
from crowdwise.data.folders import seal
from crowdwise.errors import ReadError

VOTES = cw.simulate.one_coin(40, n_annotators=5, n_classes=2, votes_per_item=3, random_state=0)


@pytest.mark.parametrize(
    ("answers", "params"),
    [
        (VOTES.votes, {"method": "majority"}),
        (cw.simulate.ratings(10, random_state=0).answers, {"method": "mean"}),
        (cw.simulate.comparisons(5, n_comparisons=60, random_state=0).answers, {"method": "bradley-terry"}),
        (cw.simulate.similarities(30, random_state=0).answers, {"n_clusters": 2, "restarts": 0}),
        (cw.simulate.label_sets(10, random_state=0).answers, {"base": "majority"}),
        (cw.simulate.bio_tags(5, random_state=0).answers, {"method": "token-dawid-skene"}),
        (cw.simulate.graph(30, random_state=0).votes, {"graph": [(0, 1), (1, 2)], "max_iter": 2}),
    ],
)
@pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
def test_results_of_every_answer_type(answers: Any, params: dict[str, Any], tmp_path: Path) -> None:
    result = cw.aggregate(answers, **params)
    again = cw.load(result.save(tmp_path / "saved"))
    assert type(again) is type(result) and again.method == result.method
    assert again.item_table.equals(result.item_table)


def test_every_result_can_be_loaded() -> None:
    for name, kind in registry.results().items():
        assert registry.load(kind.result).__name__ == name


def test_learners(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    learner = cw.CrowdClassifier("two-stage", epochs=1).fit(X, VOTES.votes)
    assert np.allclose(cw.load(learner.save(tmp_path / "saved")).predict_proba(X), learner.predict_proba(X))


def test_streams_and_campaigns(tmp_path: Path) -> None:
    stream = cw.Online(cw.OneCoin(max_iter=7))
    stream.partial_fit(cw.Votes.from_records([("a", "ann", "x"), ("a", "bob", "y"), ("b", "ann", "x")]))
    stream.save(tmp_path / "stream")
    again = cw.load(tmp_path / "stream")
    assert np.allclose(again.consensus().posterior, stream.consensus().posterior) and again.model.max_iter == 7
    with cw.Campaign.create(tmp_path / "campaign", cw.OneCoin(), classes=["x", "y"], items=["a"], annotators=["ann"]):
        pass
    with cw.load(tmp_path / "campaign") as campaign:
        assert campaign.status()["items"] == 1


def test_datasets(tmp_path: Path) -> None:
    VOTES.save(tmp_path / "crowd")
    data = cw.load(tmp_path / "crowd")
    assert isinstance(data, cw.Dataset) and data.votes.n_votes == VOTES.votes.n_votes


def test_what_is_nothing_of_ours_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ReadError, match=r"a saved consensus, consensus in parts, learner or stream.*found 'notes.txt'"):
        cw.load(tmp_path)
    with pytest.raises(ReadError, match="is a file"):
        cw.load(tmp_path / "notes.txt")
    with pytest.raises(ReadError, match="is not there"):
        cw.load(tmp_path / "nothing")
    (tmp_path / "consensus.json").write_text('{"type": "Other"}')
    with pytest.raises(ReadError, match="holds nothing that crowdwise saves"):
        cw.load(tmp_path)
    seal(tmp_path, "consensus")
    with pytest.raises(ReadError, match="readable consensus"):
        cw.load(tmp_path)


def test_a_learner_is_read_once(tmp_path, monkeypatch):
    from crowdwise.data import folders

    need_module("torch")
    rng = np.random.default_rng(0)
    crowd = cw.simulate.one_coin(40, n_annotators=5, votes_per_item=3, random_state=0)
    cw.Raykar().fit(rng.standard_normal((40, 2)), crowd.votes).save(tmp_path / "kept")
    contents, read = folders._content, []
    monkeypatch.setattr(folders, "_content", lambda *given: read.append(given[1]) or contents(*given))
    cw.load_learner(tmp_path / "kept")
    assert read and len(read) == len(set(read))
