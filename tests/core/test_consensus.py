"""The result: its tables, its intervals, and keeping it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import crowdwise as cw
from crowdwise.data.folders import seal
from crowdwise.errors import InputError, OutputError, ParameterError, ReadError


def crowd(n=300, **options):
    options = {"n_annotators": 12, "n_classes": 3, "votes_per_item": 5, "random_state": 0, **options}
    return cw.simulate.dirichlet(n, **options)


@pytest.fixture(scope="module")
def found():
    return cw.aggregate(crowd().votes, "dawid-skene")


def test_tables_come_in_the_kind_the_votes_came_in():
    frame = pd.DataFrame(crowd().votes.to_frame("dict")).drop(columns="truth")
    for table, kind in (
        (frame, pd.DataFrame),
        (pl.from_pandas(frame), pl.DataFrame),
        (pa.Table.from_pandas(frame), pa.Table),
    ):
        c = cw.aggregate(table, "majority")
        assert isinstance(c.item_table, kind)
        assert isinstance(c.annotator_table, kind)
        assert isinstance(c.to_frame("items", kind="dict"), dict)


def test_item_table(found):
    table = found.to_frame("items", kind="dict", probabilities=True)
    assert list(table)[-3:] == ["p(0)", "p(1)", "p(2)"]
    assert np.allclose(table["p(0)"] + table["p(1)"] + table["p(2)"], 1.0)
    assert np.allclose(table["probability"], found.posterior.max(axis=1))
    assert ((table["entropy"] >= 0) & (table["entropy"] <= np.log2(3) + 1e-9)).all()
    assert (table["votes"] == 5).all()


def test_confusion_table_has_an_interval_for_every_row(found):
    table = found.to_frame("confusion", kind="dict")
    assert len(table["annotator"]) == 12 * 9
    assert ((table["low"] <= table["probability"]) & (table["probability"] <= table["high"])).all()
    at = (table["annotator"] == "a3") & (table["truth"] == 1) & (table["label"] == 2)
    assert table["probability"][at] == found.confusion[3, 1, 2]


def test_methods_without_matrices_say_so():
    with pytest.raises(ParameterError, match="estimates no confusion matrices"):
        cw.aggregate(crowd().votes, "majority").to_frame("confusion")


@pytest.mark.parametrize(
    ("arguments", "text"), [({"table": "people"}, "'items', 'annotators'"), ({"level": 95}, "between 0 and 1")]
)
def test_wrong_tables_are_refused(found, arguments, text):
    with pytest.raises(ParameterError, match=text):
        found.to_frame(**arguments)


def test_scores_take_codes_and_names(found):
    sim = crowd()
    names = dict(zip(sim.votes.items.tolist(), sim.truth.tolist(), strict=True))
    assert found.score(sim.truth) == found.score(names)
    assert 0.0 <= found.score({0: int(sim.truth[0])}) <= 1.0
    with pytest.raises(InputError, match="nothing to measure"):
        found.score(np.full(300, -1, dtype=np.int32))


def test_the_result_cannot_be_changed(found):
    with pytest.raises(ValueError, match="read-only"):
        found.posterior[0, 0] = 1.0
    with pytest.raises(AttributeError):
        found.method = "other"


def coverage(votes_per_item, level, n_seeds, key="dawid-skene"):
    """How often the intervals of accuracy, and of confusion entries, hold the true value."""
    hit, hit_entry = [], []
    for seed in range(n_seeds):
        sim = cw.simulate.dirichlet(
            600, n_annotators=20, n_classes=3, diagonal=8, votes_per_item=votes_per_item, random_state=seed
        )
        c = cw.aggregate(sim.votes, key)
        true = np.einsum("mkk,k->m", sim.parameters["confusion"], sim.parameters["prior"])
        _, low, high = c.accuracy(level)
        hit.append((low <= true) & (true <= high))
        low, high = c.confusion_interval(level)
        theta = sim.parameters["confusion"]
        hit_entry.append((low <= theta) & (theta <= high))
    return float(np.mean(hit)), float(np.mean(hit_entry))


@pytest.mark.slow
@pytest.mark.parametrize("votes_per_item", [3, 6])
def test_intervals_cover_about_as_often_as_they_say(votes_per_item):
    """Those of matrices do; accuracies also allow for the error that real crowds share, which this one has not."""
    accuracy, entries = coverage(votes_per_item, 0.95, 30)
    assert accuracy > 0.95
    assert 0.88 < entries < 0.99
    accuracy, _ = coverage(votes_per_item, 0.5, 30)
    assert 0.5 < accuracy < 0.95


def test_intervals_that_ignore_doubt_about_the_truth_would_be_too_short():
    sim = cw.simulate.dirichlet(600, n_annotators=20, n_classes=3, diagonal=3, votes_per_item=3, random_state=0)
    c = cw.aggregate(sim.votes, "dawid-skene")
    from crowdwise.core.numerics import share_interval

    right, total = np.einsum("mkk->m", c.counts), c.counts.sum(axis=(1, 2))
    _, low, high = c.accuracy()
    naive_low, naive_high = share_interval(right, total, np.zeros_like(right))
    assert ((high - low) > (naive_high - naive_low)).all()


def test_intervals_of_known_truth_are_those_of_a_binomial():
    from scipy.stats import beta

    votes = cw.Votes.from_dense(np.array([[0, 1], [1, 1], [0, 0], [1, 0]]))
    c = cw.aggregate(votes, "majority", gold=np.array([0, 1, 0, 0], dtype=np.int32))
    accuracy, low, high = c.accuracy()
    assert np.allclose(accuracy, [0.75, 0.75])
    assert abs(low[0] - beta(3.5, 1.5).ppf(0.025)) < 1e-9
    assert abs(high[0] - beta(3.5, 1.5).ppf(0.975)) < 1e-9


# -------------------------------------------------------------------- keeping


def test_save_replaces_an_earlier_consensus_and_nothing_else(found, tmp_path):
    place = tmp_path / "deep" / "kept"
    found.save(place)
    found.save(place)
    assert sorted(p.name for p in place.iterdir()) == ["arrays.npz", "consensus.json", "manifest.json"]
    assert [p.name for p in place.parent.iterdir()] == ["kept"]
    other = tmp_path / "mine"
    other.mkdir()
    (other / "notes.txt").write_text("keep me")
    with pytest.raises(OutputError, match="holds something else"):
        found.save(other)
    assert (other / "notes.txt").read_text() == "keep me"


def test_a_failed_save_leaves_nothing_behind(found, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", broken)
    with pytest.raises(OutputError, match="No space left on device"):
        found.save(tmp_path / "kept")
    assert os.listdir(tmp_path) == []


def test_names_of_every_kind_come_back(tmp_path):
    votes = cw.Votes.from_records([("é", True, "x"), ("é", False, "y"), ("b", True, "y"), ("b", False, "y")])
    back = cw.Consensus.load(cw.aggregate(votes, "majority").save(tmp_path / "kept"))
    assert back.items.tolist() == ["é", "b"]
    assert sorted(back.annotators.tolist()) == [False, True]


@pytest.mark.parametrize("damage", ["missing", "garbage", "other version"])
def test_unreadable_folders_are_explained(found, tmp_path, damage):
    place = found.save(tmp_path / "kept")
    if damage == "missing":
        (place / "arrays.npz").unlink()
    elif damage == "garbage":
        (place / "consensus.json").write_text("{")
    else:
        (place / "consensus.json").write_text('{"format": 99}')
        seal(place, "consensus")
    with pytest.raises(
        ReadError, match="another version" if damage == "other version" else "does not hold a readable consensus"
    ):
        cw.Consensus.load(place)


def test_repr_says_what_it_is(found):
    assert repr(found).startswith("Consensus(dawid-skene: 300 items, 12 annotators, 3 classes; mean probability 0.")


# -------------------------------------------------------------------- many classes


def test_with_too_many_classes_counts_are_left_out_and_the_rest_still_works(monkeypatch, tmp_path):
    from crowdwise.core import consensus as module

    votes = crowd().votes
    full = cw.aggregate(votes, "majority")
    monkeypatch.setattr(module, "MAX_CELLS", 10)
    bare = cw.aggregate(votes, "majority")
    assert bare.counts is None
    for a, b in zip(full.accuracy(), bare.accuracy(), strict=True):
        assert np.allclose(a, b)
    assert cw.Consensus.load(bare.save(tmp_path / "kept")).annotator_table.equals(bare.annotator_table)
    with pytest.raises(InputError, match="No counts were kept: 12 annotators"):
        bare.crowd_confusion()
    with pytest.raises(ParameterError, match="kept no counts"):
        cw.aggregate(votes, "dawid-skene", history=bare)


def test_a_thousand_classes_and_annotators_are_no_trouble_for_the_majority():
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(2000), 3)
    names = {"items": range(2000), "annotators": range(1500), "classes": range(1000)}
    votes = cw.Votes.from_codes(
        item, rng.integers(0, 1500, 6000), rng.integers(0, 1000, 6000), on_duplicate="all", **names
    )
    found = cw.aggregate(votes, "majority")
    assert found.counts is None
    assert found.annotator_table.height == 1500


def test_matrices_that_cannot_fit_are_refused_with_advice():
    names = {"items": ["x"], "annotators": range(100_000), "classes": range(10_000)}
    votes = cw.Votes.from_codes([0, 0], [0, 1], [0, 1], **names)
    with pytest.raises(InputError, match=r"over 10,000 classes need .* GB.*Use auto or a majority vote"):
        cw.aggregate(votes, "dawid-skene")


@pytest.mark.parametrize("name", ["labels.csv", Path("labels.csv")], ids=["text", "path"])
def test_the_name_of_a_file_is_read_by_aggregate_and_is_no_table(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReadError, match=r"There is no file labels\.csv"):
        cw.aggregate(name)
    with pytest.raises(InputError, match="found the text 'labels"):
        cw.Votes.from_frame(name)
    Path("labels.csv").write_text("item,annotator,label\n1,a,x\n1,b,x\n2,a,y\n2,b,y\n")
    assert cw.aggregate(name, "majority").labels.tolist() == ["x", "y"]


def test_a_column_may_be_called_answers():
    frame = pd.DataFrame({"item": [1, 1, 2, 2], "worker": list("abab"), "label": list("xxyx"), "answers": list("xyxy")})
    assert cw.aggregate(frame, "majority").labels.tolist() == ["x", "x"]
