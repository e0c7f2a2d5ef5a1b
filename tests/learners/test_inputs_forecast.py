"""Inputs beside votes: what a learner says of them counts where held-out votes show that it helps, and only there."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import crowdwise as cw
from command_line import run
from crowdwise import api
from crowdwise.core.dependence import Dependence, correct
from crowdwise.core.numerics import softmax
from crowdwise.errors import InputError, ParameterError
from crowdwise.learners import ensemble, inputs_forecast
from crowdwise.learners.inputs_forecast import TimeUp, Watch, leave_one_out
from learners.crowd import blobs, confusions, vote

N, K = 240, 3
WORDS = (("river lake", "water boat"), ("stone rock", "sand hill"), ("cloud rain", "wind storm"))


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Fewer epochs: the clouds are easy to tell apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs_forecast, "EPOCHS", 12)
        yield


@pytest.fixture(scope="module")
def crowd():
    """Features that say much, and few votes that say little; items have names, in another order than the rows."""
    X, truth = blobs(N, K, spread=0.8)
    votes = vote(truth, confusions(8, K, low=0.45, high=0.7), votes_per_item=2)
    names = np.array([f"item {n}" for n in np.random.default_rng(1).permutation(N)], dtype=object)
    return X, cw.Votes(votes.indptr, votes.annotator, votes.label, names, votes.annotators, votes.classes), truth


@pytest.fixture(scope="module")
def alone(crowd):
    return cw.aggregate(crowd[1])


@pytest.fixture(scope="module")
def used(crowd):
    X, votes, _ = crowd
    return cw.aggregate(votes, inputs=pd.DataFrame(X, index=votes.items))


def test_inputs_that_say_something_are_used(crowd, alone, used):
    truth = crowd[2]
    assert used.notes[0].startswith("Inputs were used: the mean log-likelihood of a held-out vote is -")
    assert used.score(truth) > alone.score(truth) + 0.1
    assert float(cw.metrics.log_loss(used, truth)) < float(cw.metrics.log_loss(alone, truth)) - 0.1
    assert used.method == "auto" and used.item_prior is not None
    np.testing.assert_allclose(np.exp(used.item_prior).sum(axis=1), 1.0)
    assert (np.exp(used.item_prior).argmax(axis=1) == truth).mean() > 0.8


def test_the_result_is_a_consensus_like_any_other(crowd, used, tmp_path):
    truth = crowd[2]
    assert used.dependence.shared_prior and used.dependence.reason in used.notes
    assert "counts as one more of the votes" in used.dependence.reason
    assert (used.posterior.argmax(axis=1) == used.label_codes).all()
    assert (used.independent_posterior.argmax(axis=1) == used.label_codes).all()
    _, low, high = used.expected_accuracy()
    assert low < used.score(truth) < high
    assert used.confusion.shape == (8, K, K)
    assert used.annotator_table.shape[0] == 8
    used.save(tmp_path / "saved")
    again = cw.load(tmp_path / "saved")
    assert again.notes == used.notes and again.dependence == used.dependence
    assert np.array_equal(again.posterior, used.posterior)
    assert np.array_equal(again.annotator_table["accuracy"], used.annotator_table["accuracy"])
    report = cw.build_report(crowd[1], used)
    assert report["method"]["notes"][0] == used.notes[0]


def test_inputs_of_noise_are_not_used_and_change_nothing(crowd, alone):
    votes = crowd[1]
    X = pd.DataFrame(np.random.default_rng(3).normal(size=(N, 6)), index=votes.items)
    found = cw.aggregate(votes, inputs=X)
    assert found.notes[0].startswith("Inputs were not used: the mean log-likelihood of a held-out vote is -")
    assert found.notes[1:] == alone.notes
    assert np.array_equal(found.posterior, alone.posterior) and found.item_prior is None
    assert found.dependence == alone.dependence


def test_rows_are_found_by_name(crowd, used):
    X, votes, _ = crowd
    order = np.random.default_rng(5).permutation(N)
    table = pd.DataFrame(X[order]).add_prefix("x").assign(item=votes.items[order])
    assert np.array_equal(cw.aggregate(votes, inputs=table).posterior, used.posterior)
    with pytest.raises(InputError, match="item 0"):
        cw.aggregate(votes, inputs=table[table["item"] != "item 0"])


def forms(X, truth):
    rng = np.random.default_rng(0)
    texts = [" ".join(WORDS[k][rng.integers(2)] for _ in range(3)) for k in truth]
    images = np.zeros((N, 6, 6), dtype=np.float32)
    images[:, np.arange(6), np.arange(6)] = X
    return {"sparse": scipy.sparse.csr_matrix(X), "texts": texts, "images": images}


@pytest.mark.parametrize("form", ["sparse", "texts", "images"])
def test_every_form_of_inputs_that_learners_take(crowd, form):
    X, votes, truth = crowd
    made = forms(X, truth)[form]
    with pytest.raises(InputError, match="which row belongs to which item cannot be checked"):
        cw.aggregate(votes, inputs=made)
    found = cw.aggregate(replace(votes, items=np.arange(N)), inputs=made)
    assert found.notes[0].startswith("Inputs were used")


def test_gold_is_used_beside_inputs(crowd, used):
    X, votes, truth = crowd
    gold = np.where(np.arange(N) < 30, truth, -1).astype(np.int32)
    found = cw.aggregate(votes, gold=gold, inputs=pd.DataFrame(X, index=votes.items))
    assert found.notes[0].startswith("Inputs were used")
    assert (found.label_codes[:30] == truth[:30]).all()
    assert found.dependence.source == "gold" and found.dependence.shared_prior
    assert found.score(truth) > used.score(truth)


# -------------------------------------------------------------------- what it may cost


def test_no_more_time_than_it_may_take(crowd, alone):
    X, votes, _ = crowd
    found = cw.aggregate(votes, inputs=pd.DataFrame(X, index=votes.items), max_seconds=1e-3)
    assert "more than the limit of 1 s" in found.notes[0]
    assert np.array_equal(found.posterior, alone.posterior)
    for wrong in (0, -1.0, "long", None, float("nan")):
        with pytest.raises(ParameterError, match="expected a number of seconds"):
            cw.aggregate(votes, inputs=pd.DataFrame(X, index=votes.items), max_seconds=wrong)


def test_a_callback_ends_it(crowd, alone):
    X, votes, _ = crowd
    seen = []

    def callback(step):
        seen.append(step)
        return hasattr(step, "epoch") and step.epoch == 3

    found = cw.aggregate(votes, inputs=pd.DataFrame(X, index=votes.items), callback=callback)
    assert [step.epoch for step in seen[:3]] == [1, 2, 3] and not hasattr(seen[3], "epoch")
    assert found.notes[0] == "Inputs were not used: it was ended. The labels are those of votes alone."
    assert np.array_equal(found.posterior, alone.posterior)


def test_the_watch_says_how_long_it_takes_and_ends_what_takes_longer():
    said = []

    def epoch(number, seconds):
        return SimpleNamespace(epoch=number, epochs=100, seconds=seconds)

    watch = Watch(60.0, None, said.append, "Learning")
    watch(epoch(1, 1.0))
    watch(epoch(2, 0.1))
    assert said == ["Learning: 5 trainings, about 10 s, at most 60 s."]
    watch.began -= 121.0
    with pytest.raises(TimeUp, match="took longer than twice the limit of 60 s"):
        watch(epoch(50, 0.1))
    slow = Watch(60.0, None, said.append, "Learning")
    slow(epoch(1, 5.0))
    slow(epoch(2, 1.0))
    assert said[1:] == ["Learning: 5 trainings, about 99 s, at most 60 s: each ends after its share of that."]
    with pytest.raises(TimeUp, match="3 epochs of each training would take about 99 s, more than the limit of 60 s"):
        Watch(60.0, None, None, "Learning")(epoch(1, 7.0))


def test_what_was_learned_in_time_is_used(crowd, used, monkeypatch):
    """A clock that a call moves on by a second: each of five trainings has a share of 40 s, 7 epochs of 12."""
    X, votes, truth = crowd
    clock = itertools.count()
    monkeypatch.setattr(ensemble, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    found = cw.aggregate(votes, inputs=pd.DataFrame(X, index=votes.items), max_seconds=40.0)
    assert found.notes[0].startswith("Inputs were used")
    assert "The budget of 40 s ended 5 of 5 trainings before their last epoch." in found.notes
    assert not np.array_equal(found.posterior, used.posterior) and found.score(truth) > cw.aggregate(votes).score(truth)


def test_few_items_are_not_learned_from(crowd):
    X, votes, _ = crowd
    found = cw.aggregate(votes[np.arange(30)], inputs=pd.DataFrame(X, index=votes.items))
    assert found.notes[0].startswith("Inputs were not used: 30 items with votes are too few")


# -------------------------------------------------------------------- held-out votes


def test_a_vote_is_predicted_from_the_others_and_the_prior():
    votes = cw.Votes.from_dense([[0, 1, 1], [1, 0, 0]], classes=[0, 1])
    theta = np.array([[[0.8, 0.3], [0.2, 0.7]], [[0.6, 0.1], [0.4, 0.9]], [[0.7, 0.2], [0.3, 0.8]]])
    prior = np.array([[0.4, 0.6], [0.9, 0.1]])
    found = leave_one_out(votes, theta, np.log(prior), Dependence())
    for s, (n, m, label) in enumerate(zip(votes.item, votes.annotator, votes.label, strict=True)):
        r = prior[n].copy()
        for other in np.flatnonzero((votes.item == n) & (votes.annotator != m)):
            r *= theta[votes.annotator[other], votes.label[other]]
        assert found[s] == pytest.approx(np.log((r / r.sum()) @ theta[m, label]))


def test_a_prior_from_the_same_annotators_counts_as_one_more_vote():
    q, n = np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]]), np.array([3.0, 1.0, 0.0])
    found = correct(q, n, Dependence(0.5, "given", shared_prior=True))
    expected = softmax(np.log(q) / np.array([[2.5], [1.5], [1.0]]))  # 1 + 0.5 for each vote; without any the prior is 1
    np.testing.assert_allclose(found, expected)
    prior = np.log([[0.5, 0.5], [0.2, 0.8], [0.1, 0.9]])
    apart = correct(q, n, Dependence(0.5, "given"), prior)
    assert not np.allclose(apart, found)
    np.testing.assert_allclose(apart[1], q[1])  # one vote, and a prior that is not a vote


def test_learners_correct_the_votes_and_the_network_together(crowd):
    X, votes, _ = crowd
    rows = pd.DataFrame(X, index=votes.items)
    learner = cw.CCEM(epochs=4, dependence=0.5, random_state=0).fit(rows, votes)
    corrected, found = learner.predict_proba(rows, votes), learner.consensus_
    plain = learner.set_params(dependence="none").predict_proba(rows, votes)
    n = np.diff(votes.indptr).astype(float)
    np.testing.assert_allclose(corrected, correct(plain, n, Dependence(0.5, "given", shared_prior=True)))
    assert (corrected.argmax(axis=1) == plain.argmax(axis=1)).all() and corrected.max() < plain.max()
    assert found.dependence.source == "given" and found.dependence.rho == 0.5
    np.testing.assert_allclose(found.independent_posterior, plain, atol=1e-5)
    np.testing.assert_allclose(found.posterior, corrected, atol=1e-5)


# -------------------------------------------------------------------- the ways in


@pytest.fixture(scope="module")
def folder(crowd, tmp_path_factory):
    X, votes, truth = crowd
    path = tmp_path_factory.mktemp("crowd")
    votes.to_frame("polars").write_csv(path / "labels.csv")
    np.savez(path / "features.npz", x_train=X, id_train=votes.items.astype(str))
    lines = [f"{name},{k}" for name, k in zip(votes.items, truth, strict=True)]
    (path / "truth.csv").write_text("item,label\n" + "\n".join(lines) + "\n")
    return path


def test_a_folder_brings_its_own_inputs(folder, crowd):
    found, alone = cw.aggregate(folder), cw.aggregate(folder, inputs=None)
    assert found.notes[0].startswith("Inputs were used") and alone.item_prior is None
    assert cw.aggregate(folder, "dawid-skene").item_prior is None
    done = run("aggregate", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["notes"] == found.notes and "5 trainings, about" in done.stderr
    plain = json.loads(run("aggregate", str(folder), "--no-inputs", "--json").stdout)
    assert plain["notes"] == alone.notes and plain["accuracy"] < facts["accuracy"]
    few = json.loads(run("aggregate", str(folder), "--max-seconds", "0.001", "--json").stdout)
    assert "more than the limit" in few["notes"][0] and few["accuracy"] == plain["accuracy"]
    report = json.loads(run("report", str(folder), "--json").stdout)
    assert report["method"]["notes"][0] == found.notes[0]
    report = json.loads(run("report", str(folder), "--no-inputs", "--json").stdout)
    assert report["method"]["notes"] == alone.notes


def test_other_methods_take_inputs_when_they_are_asked_to(folder):
    found = cw.aggregate(folder, "dawid-skene", inputs=True)
    assert found.method == "dawid-skene" and found.notes[0].startswith("Inputs were used")
    assert found.dependence.source == "none" and found.dependence.shared_prior
    assert (found.corrected_posterior.argmax(axis=1) == found.label_codes).all()


def test_texts_of_a_folder_and_of_a_column(crowd, tmp_path):
    X, votes, truth = crowd
    texts = forms(X, truth)["texts"]
    table = votes.to_frame("polars")
    table.write_csv(tmp_path / "labels.csv")
    by_item = dict(zip(votes.items.tolist(), texts, strict=True))
    rows = "\n".join(f"{name},{text} {n}" for n, (name, text) in enumerate(by_item.items()))
    (tmp_path / "texts.csv").write_text(f"item,text\n{rows}\n")
    assert cw.aggregate(tmp_path).notes[0].startswith("Inputs were used")
    file = tmp_path / "together.csv"
    table.with_columns(pl.Series("text", [by_item[name] for name in table["item"]])).write_csv(file)
    done = run("aggregate", str(file), "--text", "text", "--json")
    assert json.loads(done.stdout)["notes"][0].startswith("Inputs were used")
    assert "Inputs" not in json.loads(run("aggregate", str(file), "--json").stdout)["notes"][0]


def test_inputs_of_a_folder_that_do_not_fit_are_said(folder, crowd, tmp_path):
    (tmp_path / "labels.csv").write_bytes((folder / "labels.csv").read_bytes())
    np.savez(tmp_path / "features.npz", x_train=crowd[0][:5])
    found = cw.aggregate(tmp_path)
    assert found.notes[0].startswith("Inputs were not used: features.npz of")
    with pytest.raises(InputError, match=r"features\.npz"):
        cw.aggregate(tmp_path, inputs=True)


def test_methods_and_inputs_that_do_not_go_together(crowd, folder):
    X, votes, _ = crowd
    table = pd.DataFrame(X, index=votes.items)
    with pytest.raises(ParameterError, match="majority looks at votes alone"):
        cw.aggregate(votes, "majority", inputs=table)
    with pytest.raises(ParameterError, match="gaussian looks at ratings alone"):
        cw.aggregate(cw.simulate.ratings(20, random_state=0).ratings, inputs=table)
    done = run("aggregate", str(folder), "--no-inputs", "--features", str(folder / "features.npz"))
    assert done.returncode == 2 and "--no-inputs" in done.stderr
    learner = api.fit(votes, "two-stage", {"epochs": 2}, inputs=table)
    assert learner.method == "two-stage" and learner.result.method == "two-stage"
    assert api.fit(folder, "two-stage", {"epochs": 2}, inputs=True).result.method == "two-stage"
