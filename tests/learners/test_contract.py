"""What every learner does alike, whatever its method."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import crowdwise as cw
from crowdwise import registry
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError, NotFittedError, ParameterError
from learners.crowd import small

KEYS = list(registry.LEARNERS)
LIGHT = {
    "epochs": 2, "batch_size": 40, "transition_epochs": 2, "warm_up": 1, "weight_epochs": 2, "random_state": 0,
    "folds": 2, "n_networks": 2,
}  # fmt: skip


def make(key, **given):
    known = registry.find(key, inputs=True).load().parameters()
    return registry.find(key, inputs=True).create(
        **{name: value for name, value in (LIGHT | given).items() if name in known}
    )


@pytest.fixture(scope="module")
def crowd():
    return small(n=120)


@pytest.fixture(scope="module")
def fitted(crowd):
    made = {}

    def get(key):
        if key not in made:
            made[key] = make(key).fit(crowd[0], crowd[1])
        return made[key]

    return get


@pytest.mark.parametrize("key", KEYS)
class TestEveryLearner:
    def test_parameters_are_kept_as_given(self, key):
        made = make(key)
        copy = clone(made)
        assert copy.get_params() == made.get_params()
        assert set(made.parameters()) == set(made.get_params())
        assert made.set_params(random_state=7).random_state == 7
        assert not hasattr(made, "consensus_")

    def test_before_the_fit_it_says_so(self, key, crowd):
        with pytest.raises(NotFittedError, match="not been fitted"):
            make(key).predict(crowd[0])

    def test_probabilities_and_labels(self, key, fitted, crowd):
        X, votes, _ = crowd
        model = fitted(key)
        for q in (model.predict_proba(X), model.predict_proba(X, votes=votes), model.consensus_.posterior):
            assert q.shape == (len(X), 3)
            assert np.isfinite(q).all() and (q >= 0).all()
            np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-9)
        assert model.predict(X).tolist() == model.classes_[model.predict_proba(X).argmax(axis=1)].tolist()
        if key != "ensemble":  # its consensus is by networks that have not seen the votes on an item
            q, found = model.predict_proba(X, votes=votes), model.consensus_
            np.testing.assert_allclose(q, found.posterior, atol=1e-4)
            certain = found.item_table["probability"].to_numpy()
            np.testing.assert_allclose(certain, found.posterior[np.arange(len(X)), found.label_codes])
            if key != "crowdlab":
                np.testing.assert_allclose(found.posterior, found.corrected_posterior)
            model.set_params(dependence="none")
            np.testing.assert_allclose(model.predict_proba(X, votes=votes), found.independent_posterior, atol=1e-5)
            model.set_params(dependence="none" if key == "crowdlab" else "auto")

    def test_what_an_annotator_would_say(self, key, fitted, crowd):
        X, votes, _ = crowd
        model = fitted(key)
        q = model.predict_annotators(X)
        assert q.shape == (len(X), 8, 3)
        np.testing.assert_allclose(q.sum(axis=2), 1.0, atol=1e-9)
        said = np.log(np.maximum(q[votes.item, votes.annotator, votes.label], 1e-10))
        assert np.average(said, weights=votes.weights) == pytest.approx(model.score(X, votes), abs=2e-3)
        some = model.predict_annotators(X[:5], [votes.annotators[2], "nobody of them"])
        np.testing.assert_allclose(some[:, 0], q[:5, 2], atol=1e-6)
        assert np.isfinite(some[:, 1]).all()
        with pytest.raises(InputError, match="names of annotators"):
            model.predict_annotators(X, [])

    def test_confusion_matrices_have_names_and_rows_that_sum_to_one(self, key, fitted, crowd):
        model = fitted(key)
        assert model.confusion_.shape == (8, 3, 3)
        np.testing.assert_allclose(model.confusion_.sum(axis=2), 1.0, atol=1e-6)
        assert model.annotators_.tolist() == crowd[1].annotators.tolist()
        assert model.consensus_.confusion is not None

    def test_learns(self, key):
        X, votes, truth = small()
        model = make(key, epochs=8, lr=1e-2, warm_up=4).fit(X, votes)
        X_new, truth_new = small(seed=1)[0], small(seed=1)[2]
        assert (model.predict(X_new) == truth_new).mean() > 0.75
        assert (model.consensus_.labels == truth).mean() > 0.8

    def test_a_seed_repeats_bit_for_bit_whatever_annotators_and_classes_are_called(self, key, fitted, crowd):
        votes = replace(
            crowd[1],
            annotators=np.array([f"w{m}" for m in range(8)], dtype=object),
            classes=np.array(["a", "b", "c"], dtype=object),
        )
        model = make(key).fit(crowd[0], votes)
        assert np.array_equal(model.predict_proba(crowd[0]), fitted(key).predict_proba(crowd[0]))
        assert np.array_equal(model.consensus_.posterior, fitted(key).consensus_.posterior)
        assert set(model.predict(crowd[0])) <= {"a", "b", "c"}

    def test_items_and_annotators_without_votes(self, key, crowd):
        X, votes, _ = crowd
        keep = (votes.item >= 10) & (votes.annotator != 3)
        model = make(key).fit(X, votes.select(keep))
        assert np.isfinite(model.consensus_.posterior).all()
        np.testing.assert_allclose(model.consensus_.posterior.sum(axis=1), 1.0, atol=1e-9)
        assert np.isfinite(model.confusion_).all()

    def test_strangers_can_vote_on_new_items(self, key, fitted):
        X, votes, _ = small(n=20, seed=5)
        votes = replace(votes, annotators=np.array([*range(7), 99]))
        q = fitted(key).predict_proba(X, votes=votes)
        assert np.isfinite(q).all()

    def test_save_and_load(self, key, fitted, crowd, tmp_path):
        X, votes, _ = crowd
        model = fitted(key)
        folder = model.save(tmp_path / "model")
        again = cw.load_learner(folder)
        assert type(again) is type(model)
        assert again.get_params() == model.get_params()
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
        assert np.array_equal(again.predict_proba(X, votes=votes), model.predict_proba(X, votes=votes))
        assert np.array_equal(again.confusion_, model.confusion_)
        assert json.loads((folder / "learner.json").read_text())["method"] == key

    def test_wrong_input_is_refused_in_words(self, key, fitted, crowd):
        X, votes, _ = crowd
        bad = X.copy()
        bad[7, 2] = np.nan
        with pytest.raises(InputError, match=r"Row 7 .* NaN"):
            make(key).fit(bad, votes)
        with pytest.raises(InputError, match=r"119 rows .* 120 items"):
            make(key).fit(X[:-1], votes)
        with pytest.raises(InputError, match="5 features"):
            fitted(key).predict(X[:, :5])
        with pytest.raises(LabelError, match=r"one class|single class"):
            make(key).fit(X[:4], Votes.from_dense(np.zeros((4, 3), dtype=int)))
        with pytest.raises(ParameterError, match="random_state"):
            make(key, random_state=-1).fit(X, votes)

    def test_weights_are_votes_given_again(self, key, fitted, crowd):
        """A vote of weight two is two votes: the held-out score of repeated votes is that of weighted ones."""
        X, votes, _ = crowd
        model = fitted(key)
        doubled = replace(votes, weight=np.full(votes.n_votes, 2.0))
        assert model.score(X, doubled) == pytest.approx(model.score(X, votes))
        q1 = model.predict_proba(X[:1], votes=doubled[[0]])
        assert np.isfinite(q1).all()

    def test_gold_is_used(self, key, fitted, crowd):
        X, votes, truth = crowd
        gold = np.full(len(votes), -1)
        gold[:60] = truth[:60]
        model = make(key).fit(X, votes, gold)
        assert not np.array_equal(model.predict_proba(X), fitted(key).predict_proba(X))


NETWORKED = [key for key in KEYS if "network" in registry.find(key, inputs=True).load().parameters()]


@pytest.mark.parametrize("key", NETWORKED)
class TestNetworks:
    def test_held_out_votes_choose_the_epoch(self, key, crowd):
        model = make(key, epochs=2, select="votes", holdout=0.2).fit(crowd[0], crowd[1])
        scores = [epoch.held_out for epoch in model.history_]
        assert all(score is not None and score < 0 for score in scores)

    def test_batches_of_one(self, key):
        X, votes, _ = small(n=9)
        model = make(key, epochs=1, batch_size=1).fit(X, votes)
        assert np.isfinite(model.predict_proba(X)).all()

    def test_history(self, key, fitted):
        history = fitted(key).history_
        assert [epoch.epoch for epoch in history] == list(range(1, len(history) + 1))
        assert all(np.isfinite(epoch.loss) for epoch in history)


@pytest.mark.parametrize("key", KEYS)
def test_has_a_page_section(key):
    from pathlib import Path

    pages = Path(__file__).resolve().parents[2] / "docs"
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(pages.glob("learners*.md")))
    assert f"\n## {key}\n" in text
