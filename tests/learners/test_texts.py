"""Texts as inputs: TF-IDF features that are fitted with the learner, saved with it, and used to predict."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.data.features import read_texts
from crowdwise.data.folders import seal
from crowdwise.errors import ColumnError, InputError, InputWarning, ReadError
from crowdwise.learners import text_features
from crowdwise.learners.text_features import TextAxes, TextFeatures

GOOD = ("great movie loved it", "wonderful acting really great", "loved the wonderful film")
BAD = ("terrible plot hated it", "boring and awful film", "awful acting boring plot")
N = 80


@pytest.fixture(scope="module")
def reviews():
    """A table of items with texts, a long table of votes, and the truth by item."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=N)
    names = [f"r{n}" for n in range(N)]
    texts = [" ".join(rng.permutation((GOOD if k else BAD)[rng.integers(3)].split())) for k in truth]
    rows = [
        (names[n], f"w{m}", "pos" if truth[n] ^ (rng.random() < 0.25) else "neg")
        for n in rng.permutation(N)
        for m in rng.choice(6, 3, replace=False)
    ]
    items = pd.DataFrame({"task": names, "text": texts})
    truth_of = dict(zip(names, np.where(truth, "pos", "neg").tolist(), strict=True))
    return items, pd.DataFrame(rows, columns=["task", "worker", "label"]), truth_of


@pytest.fixture(scope="module")
def learner(reviews):
    return cw.Raykar().fit(reviews[0].sample(frac=1.0, random_state=1), reviews[1])


def test_texts_are_learned_from_and_predict_new_ones(learner, reviews):
    items, _, truth = reviews
    assert learner.score(items, truth) > 0.95
    assert learner.predict(["a great and wonderful film", "awful, boring"]).tolist() == ["pos", "neg"]
    assert learner.text_column_ == "text" and not hasattr(learner, "feature_names_in_")
    assert {"great", "awful acting"} <= set(learner.text_features_.words)


@pytest.mark.parametrize(
    "form",
    [
        lambda items: items.set_index("task"),
        lambda items: items.set_index("task")["text"],
        lambda items: pl.from_pandas(items),
        lambda items: items.rename(columns={"task": "id"}),
    ],
)
def test_any_form_of_texts_is_the_same(learner, reviews, form):
    items, votes, _ = reviews
    other = cw.Raykar().fit(form(items), votes)
    assert np.allclose(other.predict_proba(form(items)), learner.predict_proba(items), atol=1e-6)
    assert np.allclose(other.predict_proba(items["text"].tolist()), learner.predict_proba(items), atol=1e-6)


@pytest.mark.parametrize("many", [False, True])
def test_words_are_saved_without_pickle(learner, reviews, tmp_path, monkeypatch, many):
    if many:
        monkeypatch.setattr(text_features, "MANY", 50)
        learner = cw.Raykar().fit(reviews[0], reviews[1])
        assert learner.score(reviews[0], reviews[2]) > 0.95
    learner.save(tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "learner.json").read_text(encoding="utf-8"))
    assert facts["texts"]["words"] == learner.text_features_.words
    again = cw.load_learner(tmp_path / "model")
    assert np.array_equal(again.predict_proba(reviews[0]), learner.predict_proba(reviews[0]))
    assert type(again.text_features_) is type(learner.text_features_) is (TextFeatures if many else TextAxes)
    facts["texts"]["weights"].pop()
    (tmp_path / "model" / "learner.json").write_text(json.dumps(facts), encoding="utf-8")
    seal(tmp_path / "model", "learner")
    with pytest.raises(ReadError, match="do not fit together"):
        cw.load_learner(tmp_path / "model")


def test_damaged_axes_are_refused(learner):
    state, arrays = learner.text_features_.state(), learner.text_features_.arrays()
    with pytest.raises(ReadError, match="axes do not fit"):
        TextAxes.restored(state, arrays | {"axes": arrays["axes"][:-1]})
    with pytest.raises(ReadError, match="axes do not fit"):
        TextAxes.restored(state, arrays | {"indices": arrays["indices"] + 10_000})


def test_networks_take_axes_as_they_are(reviews):
    model = cw.CrowdClassifier("ccem", epochs=3, random_state=0).fit(reviews[0], reviews[1])
    scale = model.model_._trainer.network[0]
    assert not scale.mean.any() and (scale.deviation == 1.0).all()
    assert model.predict_proba(["a great film"]).shape == (1, 2)


def test_texts_and_numbers_do_not_mix(learner, reviews):
    items, votes, _ = reviews
    with pytest.raises(InputError, match="fitted with texts"):
        learner.predict(np.zeros((3, 4)))
    numbers = cw.Raykar(max_iter=200).fit(np.eye(N), [k % 2 for k in range(N)])
    with pytest.raises(InputError, match="fitted with numbers"):
        numbers.predict(["a text"])
    with pytest.raises(InputError, match="column 'text' holds text"):
        cw.Raykar().fit(items.assign(length=3.0), votes)
    with pytest.raises(InputError, match="No features could be made"):
        cw.Raykar().fit(items.assign(text="?"), votes)
    with pytest.warns(InputWarning, match="1 of the 80 texts are empty"):
        cw.Raykar().fit(items.assign(text=["", *items["text"][1:]]), votes)


def test_texts_beside_votes_in_their_file(reviews, tmp_path):
    items, votes, _ = reviews
    both = votes.merge(items, on="task")
    both.to_csv(tmp_path / "votes.csv", index=False)
    found = read_texts(tmp_path / "votes.csv")
    assert dict(zip(found.names.tolist(), found.x.tolist(), strict=True)) == dict(items.itertuples(index=False))
    both.loc[both.task == "r3", "text"] = ["one", "two", "two"]
    both.to_csv(tmp_path / "votes.csv", index=False)
    with pytest.raises(InputError, match="two different texts for item 'r3': 'one', 'two'"):
        read_texts(tmp_path / "votes.csv")
    with pytest.raises(ColumnError, match="Did you mean 'text'"):
        read_texts(tmp_path / "votes.csv", "txet")
    votes.to_csv(tmp_path / "votes.csv", index=False)
    with pytest.raises(ColumnError, match="no column of texts"):
        read_texts(tmp_path / "votes.csv")
