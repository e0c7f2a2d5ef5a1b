"""Learners as scikit-learn's classifiers: its own checks, cloning, pipelines, searches; inputs of y; keeping them."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import crowdwise as cw
from crowdwise import registry
from crowdwise.data.folders import seal
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, LabelError, NotFittedError, ParameterError, ReadError
from crowdwise.learners.information_max_mig import MaxMIG
from crowdwise.learners.joint_confusions import CCEM, TraceRegularised
from crowdwise.learners.learner import as_votes
from learners.crowd import small

# -------------------------------------------------------------------- scikit-learn's own checks

REPRESENTATIVE = (
    "max-mig",  # trains several times, names classes
    "mbem",  # alternates, and begins anew
    "weighted-doctor-net",  # in stages, predicts with its head
    "raykar",  # no network
)
NOT_FOR_LEARNERS = {
    "check_dtype_object": "what cannot be read as numbers is an InputError (a ValueError), not a TypeError",
    "check_supervised_y_2d": "a column of labels is one annotator among M columns, which needs no warning",
} | dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "weights are of learning from inputs: annotators are judged by all votes, and networks draw items by weight",
)
NOT_FOR_THE_CLASSIFIER = NOT_FOR_LEARNERS | {
    "check_do_not_raise_errors_in_init_or_set_params": "set_params looks the method up, to know which settings it has",
}
NOT_WITH_SINGLE_PRECISION = {
    "check_methods_subset_invariance": "rows alone and together are the same to 1e-5 (test_trainer.py), not to 1e-7",
    "check_methods_sample_order_invariance": "rows in another order are the same to 1e-5, not to 1e-7",
}
"""Every check of scikit-learn's that makes no sense here, and why. All others must pass."""


class SoftmaxInside(nn.Module):
    def __init__(self, width, n_classes):
        super().__init__()
        self.layer = nn.Linear(width, n_classes)

    def forward(self, x):
        return self.layer(x).softmax(dim=1)


def light(key, **given):
    """A learner that is quick to fit, and learns something nevertheless."""
    known = registry.find(key, inputs=True).load().parameters()
    settings = {"epochs": 4, "lr": 0.05, "batch_size": 128, "weight_epochs": 1, "max_iter": 10} | given
    return registry.find(key, inputs=True).create(**{name: value for name, value in settings.items() if name in known})


def not_for(learner):
    return NOT_FOR_THE_CLASSIFIER if isinstance(learner, cw.CrowdClassifier) else NOT_FOR_LEARNERS


@parametrize_with_checks(
    [*(light(key) for key in REPRESENTATIVE), cw.CrowdClassifier("crowd-ar", epochs=4, lr=0.05, batch_size=128)],
    expected_failed_checks=not_for,
)
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ in NOT_WITH_SINGLE_PRECISION:
        pytest.skip(NOT_WITH_SINGLE_PRECISION[check.func.__name__])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


# -------------------------------------------------------------------- as part of scikit-learn


@pytest.fixture(scope="module")
def crowd():
    return small(n=150)


class TestScikitLearn:
    def test_a_clone_is_unfitted_and_has_the_same_parameters(self, crowd):
        network = nn.Linear(6, 3)
        learner = CCEM(network=network, epochs=2, random_state=0).fit(crowd[0], crowd[1])
        copy = clone(learner)
        assert not hasattr(copy, "consensus_") and copy.epochs == 2
        assert type(copy.network) is nn.Linear
        copy.fit(crowd[0], crowd[1])

    def test_unfitted_is_caught_by_either_name(self, crowd):
        for learner in (CCEM(), cw.CrowdClassifier("ccem"), light("raykar")):
            for kind in (NotFittedError, SklearnNotFittedError):
                with pytest.raises(kind, match="has not been fitted"):
                    learner.predict(crowd[0])

    def test_in_a_pipeline(self, crowd):
        X, votes, truth = crowd
        pipe = make_pipeline(StandardScaler(), PCA(4), CCEM(epochs=25, random_state=0))
        assert (pipe.fit(X, votes).predict(X) == truth).mean() > 0.8
        assert pipe[-1].n_features_in_ == 4
        pipe.set_params(ccem__epochs=1)
        assert len(pipe.fit(X, votes)[-1].history_) == 1
        assert pipe.predict(X, votes=votes).shape == (150,)

    def test_a_pipeline_that_drops_the_index_does_not_mix_up_rows(self, crowd):
        """Rows in another order than the items: whole numbers in the index, which a scaler drops, name them."""
        X, votes, truth = crowd
        table = pd.DataFrame(X, index=votes.items).rename(columns=str)
        shuffled = table.sample(frac=1.0, random_state=0)
        pipe = make_pipeline(StandardScaler(), CCEM(epochs=25, random_state=0))
        with pytest.raises(InputError, match=r"dropped its index.*set_output\(transform='pandas'\).*__items=X.index"):
            pipe.fit(shuffled, votes)
        whole = pipe.fit(table, votes).predict(table)
        assert (pipe.fit(shuffled, votes, ccem__items=shuffled.index).predict(table) == whole).all()
        assert (pipe.set_output(transform="pandas").fit(shuffled, votes).predict(table) == whole).all()
        assert (whole == truth).mean() > 0.8

    def test_names_of_images_are_not_texts_and_probabilities_are_not_logits(self, crowd):
        X, votes, _ = crowd
        with pytest.raises(InputError, match=r"names of images \('photos/0.JPG'\).*the folder of the images"):
            CCEM(epochs=1).fit([f"photos/{n}.JPG" for n in range(len(X))], votes)
        layers = [nn.Linear(X.shape[1], votes.n_classes), nn.Softmax(dim=1)]
        for network in (nn.Sequential(*layers), lambda shape, n_classes: nn.Sequential(*layers)):
            with pytest.raises(ParameterError, match="ends in Softmax, and learners expect logits"):
                CCEM(epochs=1, network=network).fit(X, votes)
        for name in (Path("a.png"), "https://a.b/c.jpeg?size=1"):
            with pytest.raises(InputError, match="names of images"):
                CCEM(epochs=1).fit([name] * len(X), votes)

    @pytest.mark.parametrize(
        ("network", "words"),
        [
            (lambda d, k: nn.Linear(d + 3, k), r"whose shape is \(\d+,\) each: mat1 and mat2"),
            (lambda d, k: nn.Linear(d, k + 2), r"gave \(2, 5\) for 2 inputs.*expected \(2, 3\)"),
            (lambda d, k: nn.Sequential(nn.Linear(d, k), nn.Flatten(0)), r"gave \(6,\) for 2 inputs"),
            (lambda d, k: SoftmaxInside(d, k), "gives probabilities .each row sums to 1.*expect logits"),
        ],
    )
    def test_a_module_that_does_not_fit_is_named_with_its_shapes(self, crowd, network, words):
        X, votes, _ = crowd
        with pytest.raises(ParameterError, match=words):
            cw.CrowdClassifier("ccem", epochs=1, network=network(X.shape[1], votes.n_classes)).fit(X, votes)

    def test_the_network_is_public_and_attributes_are_listed(self, crowd):
        X, votes, _ = crowd
        learner = cw.CrowdClassifier("ccem", epochs=2, random_state=0).fit(X, votes)
        with torch.no_grad():
            q = learner.network_.eval()(torch.as_tensor(X, dtype=torch.float32)).softmax(dim=1).numpy()
        assert np.allclose(q, learner.predict_proba(X), atol=1e-5)
        assert {"classes_", "consensus_", "network_", "history_", "epochs"} <= set(dir(learner))
        assert "classes_" not in dir(cw.CrowdClassifier("ccem"))

    def test_a_search_scores_by_votes_nobody_trained_on(self, crowd):
        """Splitters index the votes like any y; the score is the likelihood of the votes left out."""
        X, votes, _ = crowd
        search = GridSearchCV(CCEM(epochs=10, random_state=0), {"lr": [1e-6, 1e-2]}, cv=KFold(3), error_score="raise")
        search.fit(X, votes)
        assert search.best_params_ == {"lr": 1e-2}
        scores = search.cv_results_["mean_test_score"]
        assert (scores < 0).all() and scores[1] > scores[0]
        assert search.predict(X).shape == (150,)

    def test_a_search_over_methods(self, crowd):
        X, votes, _ = crowd
        grid = {"method": ["ccem", "two-stage"], "epochs": [2, 15]}
        search = GridSearchCV(cw.CrowdClassifier(random_state=0), grid, cv=KFold(2), error_score="raise").fit(X, votes)
        assert search.best_params_["epochs"] == 15
        assert search.best_estimator_.model_.key == search.best_params_["method"]

    def test_out_of_sample_predictions(self, crowd):
        X, votes, truth = crowd
        found = cross_val_predict(CCEM(epochs=25, random_state=0), X, votes, cv=KFold(3))
        assert (found == truth).mean() > 0.75
        assert cross_val_score(CCEM(epochs=2, random_state=0), X, votes, cv=KFold(2)).shape == (2,)

    def test_classes_that_a_fold_lacks_keep_their_column(self, crowd):
        """Votes on some items remember all classes."""
        X, votes, truth = crowd
        some = np.flatnonzero(truth != 2)
        learner = CCEM(epochs=2, random_state=0).fit(X[some], votes[some])
        assert learner.predict_proba(X).shape == (150, 3)


class TestScore:
    def test_true_labels_and_votes(self, crowd):
        X, votes, truth = crowd
        learner = CCEM(epochs=10, random_state=0).fit(X, votes)
        assert learner.score(X, truth) == pytest.approx((learner.predict(X) == truth).mean())
        weight = np.where(truth == 0, 2.0, 0.0)
        assert learner.score(X, truth, weight) == pytest.approx((learner.predict(X) == truth)[truth == 0].mean())
        f, theta = learner.predict_proba(X), learner.confusion_
        plain = [
            np.log(f[n] @ theta[m, :, k]) for n, m, k in zip(votes.item, votes.annotator, votes.label, strict=True)
        ]
        assert learner.score(X, votes) == pytest.approx(np.mean(plain), abs=1e-5)

    def test_votes_of_strangers_in_another_order_of_classes(self, crowd):
        X, votes, _ = crowd
        learner = CCEM(epochs=5, random_state=0).fit(X, votes)
        turned = replace(votes, classes=votes.classes[[2, 0, 1]].copy(), label=((votes.label + 1) % 3).astype(np.int32))
        assert learner.score(X, turned) == pytest.approx(learner.score(X, votes), abs=1e-6)
        np.testing.assert_allclose(
            learner.predict_proba(X, votes=turned), learner.predict_proba(X, votes=votes), atol=1e-6
        )


# -------------------------------------------------------------------- what y may be


class TestVotes:
    def test_a_table_of_items_and_annotators(self, crowd):
        X, votes, _ = crowd
        dense = np.full((150, 8), np.nan)
        dense[votes.item, votes.annotator] = votes.label
        one, two = (CCEM(epochs=2, random_state=0).fit(X, y) for y in (votes, dense))
        assert np.array_equal(one.predict_proba(X), two.predict_proba(X))
        assert two.annotators_.tolist() == list(range(8))

    @pytest.mark.parametrize("names", [[0, 1, 2], ["ant", "bee", "cat"], [10.0, 20.0, 30.0]])
    def test_one_label_each_is_one_annotator(self, crowd, names):
        X, _, truth = crowd
        learner = CCEM(epochs=30, random_state=0).fit(X, np.array(names)[truth])
        assert learner.classes_.tolist() == names and learner.annotators_.tolist() == ["labels"]
        assert (learner.predict(X) == np.array(names)[truth]).mean() > 0.9

    def test_what_cannot_be_votes_is_refused_in_words(self, crowd):
        X = crowd[0]
        for y, message in [
            (None, "requires y to be passed"),
            (3, "Expected votes"),
            (np.linspace(0, 1, 150), "continuous"),
            (np.array([np.nan, *np.zeros(149)]), "NaN"),
            (np.zeros(150, dtype=complex), "Complex"),
        ]:
            with pytest.raises(InputError, match=message):
                CCEM().fit(X, y)
        with pytest.raises(LabelError, match="one class"):
            CCEM().fit(X, np.zeros(150, dtype=int))

    def test_votes_stay_what_they_are(self, crowd):
        assert as_votes(crowd[1]) is crowd[1]

    def test_a_class_nobody_chose_is_kept(self, crowd):
        X, votes, _ = crowd
        more = Votes.from_codes(
            votes.item, votes.annotator, votes.label, items=range(150), annotators=range(8), classes=range(5)
        )
        learner = CCEM(epochs=2, random_state=0).fit(X, more)
        assert learner.predict_proba(X).shape == (150, 5) and learner.confusion_.shape == (8, 5, 5)

    def test_truth_by_name_or_by_code(self, crowd):
        X, votes, truth = crowd
        gold = np.where(np.arange(150) < 40, truth, -1)
        named = {int(n): int(truth[n]) for n in range(40)}
        one, two = (CCEM(epochs=2, random_state=0).fit(X, votes, given) for given in (gold, named))
        assert np.array_equal(one.predict_proba(X), two.predict_proba(X))

    def test_truth_to_select_by_must_be_given(self, crowd):
        with pytest.raises(InputError, match="select='gold'"):
            CCEM(select="gold").fit(crowd[0], crowd[1])

    def test_too_few_votes_to_hold_any_out(self):
        X, votes, _ = small(n=4)
        with pytest.raises(InputError, match="leaves one side empty"):
            CCEM(select="votes", holdout=0.01).fit(X, votes)


# -------------------------------------------------------------------- networks of one's own


class Own(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.first, self.last = nn.Linear(n_features, 12), nn.Linear(12, n_classes)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class TestNetworks:
    def test_a_module_is_copied_and_left_untouched(self, crowd):
        X, votes, _ = crowd
        module = Own(6, 3)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        learner = CCEM(network=module, epochs=3, random_state=0).fit(X, votes)
        assert learner.network is module and module.training
        assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
        trained = learner._trainer.network.state_dict()
        assert not torch.equal(trained["1.last.weight"], before["last.weight"])

    def test_training_starts_where_the_module_is(self, crowd):
        """Its weights are those it came with, so a module that was trained before goes on from there."""
        X, votes, _ = crowd
        torch.manual_seed(1)
        module = Own(6, 3)
        learner = CCEM(network=module, epochs=1, lr=1e-12, weight_decay=0.0, scale=False, random_state=0).fit(X, votes)
        with torch.no_grad():
            plain = torch.softmax(module(torch.from_numpy(X)), dim=1).numpy()
        np.testing.assert_allclose(learner.predict_proba(X), plain, atol=1e-5)

    def test_a_function_is_told_shape_and_classes(self, crowd):
        X, votes, _ = crowd
        told = []

        def factory(shape, n_classes):
            told.append((shape, n_classes))
            return Own(shape[0], n_classes)

        learner = CCEM(network=factory, epochs=30, lr=0.01, random_state=0).fit(X, votes)
        assert told == [((6,), 3)]
        assert (learner.predict(X) == crowd[2]).mean() > 0.8

    def test_saving_one_needs_it_again_to_load(self, crowd, tmp_path):
        X, votes, _ = crowd
        learner = CCEM(network=Own(6, 3), epochs=2, random_state=0).fit(X, votes)
        folder = learner.save(tmp_path / "own")
        with pytest.raises(ReadError, match="a network of your own"):
            cw.load_learner(folder)
        again = cw.load_learner(folder, network=Own(6, 3))
        assert np.array_equal(again.predict_proba(X), learner.predict_proba(X))


# -------------------------------------------------------------------- keeping them


class TestKeeping:
    @pytest.fixture
    def saved(self, crowd, tmp_path):
        learner = CCEM(epochs=3, holdout=0.2, random_state=5).fit(crowd[0], crowd[1])
        return learner, learner.save(tmp_path / "model")

    def test_everything_comes_back(self, crowd, saved):
        X, votes, _ = crowd
        learner, folder = saved
        again = CCEM.load(folder)
        assert again.seed_ == 5 and again.history_ == learner.history_ and again.n_features_in_ == 6
        assert again.classes_.tolist() == learner.classes_.tolist()
        assert again.annotators_.tolist() == learner.annotators_.tolist()
        assert again.score(X, votes) == learner.score(X, votes)
        assert np.array_equal(again.consensus_.posterior, learner.consensus_.posterior)
        assert {path.name for path in folder.iterdir()} == {
            "learner.json",
            "manifest.json",
            "weights.safetensors",
            "consensus",
        }

    def test_it_can_be_fitted_and_saved_again(self, crowd, saved):
        learner, folder = saved
        again = CCEM.load(folder).fit(crowd[0], crowd[1])
        assert np.array_equal(again.predict_proba(crowd[0]), learner.predict_proba(crowd[0]))
        again.save(folder)
        assert CCEM.load(folder).get_params() == learner.get_params()

    def test_another_class_and_another_format_are_refused(self, saved):
        _, folder = saved
        with pytest.raises(ReadError, match="holds a ccem learner, not trace"):
            TraceRegularised.load(folder)
        facts = json.loads((folder / "learner.json").read_text())
        (folder / "learner.json").write_text(json.dumps(facts | {"format": 99}))
        seal(folder, "learner")
        with pytest.raises(ReadError, match="another version"):
            CCEM.load(folder)

    @pytest.mark.parametrize("name", ["learner.json", "weights.safetensors"])
    def test_broken_files_are_refused(self, saved, name):
        _, folder = saved
        (folder / name).write_bytes(b"nonsense")
        with pytest.raises(ReadError, match="does not hold a readable learner"):
            CCEM.load(folder)
        (folder / name).unlink()
        with pytest.raises(ReadError, match=r"There is no learner in|does not hold a readable learner"):
            CCEM.load(folder)

    def test_nothing_is_pickled(self, saved):
        """A pickle begins with 0x80; none of the files does, and the arrays load without it."""
        _, folder = saved
        for file in folder.rglob("*"):
            if file.is_file():
                assert file.read_bytes()[:1] != b"\x80"

    def test_an_unfitted_learner_has_nothing_to_save(self, tmp_path):
        with pytest.raises(NotFittedError):
            CCEM().save(tmp_path / "model")

    def test_max_mig_remembers_its_aggregator(self, crowd, tmp_path):
        X, votes, _ = crowd
        learner = MaxMIG(epochs=3, prior="tuned", random_state=0).fit(X, votes)
        again = cw.load_learner(learner.save(tmp_path / "model"))
        assert np.array_equal(again.aggregator_, learner.aggregator_)
        assert again.start_ == learner.start_ and again.held_out_gain_ == learner.held_out_gain_


# -------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"epochs": 2.5}, r"epochs=2\.5"),
        ({"batch_size": True}, "batch_size=True"),
        ({"lr": 0.0}, r"lr=0\.0: expected a number above 0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"crowd_lr": "fast"}, "crowd_lr='fast'"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"clip": 0.0}, "clip"),
        ({"scale": "yes"}, "scale='yes'"),
        ({"optimiser": "adma"}, "optimiser='adma'.*adam"),
        ({"schedule": "cosin"}, "schedule='cosin'.*cosine"),
        ({"select": "best"}, "select='best'"),
        ({"precision": "half"}, "precision='half'"),
        ({"holdout": 1.0}, "holdout"),
        ({"holdout": 0.0, "select": "votes"}, "leaves no answers to select"),
        ({"holdout": 0.0, "patience": 3}, "leaves no answers to select"),
        ({"patience": 0}, "patience=0"),
        ({"random_state": 1.5}, r"random_state=1\.5"),
        ({"network": "mpl"}, "mlp"),
        ({"device": "nowhere"}, "device='nowhere'"),
    ],
)
def test_parameters_out_of_range_are_named(crowd, given, message):
    with pytest.raises(ParameterError, match=message):
        CCEM(**{"epochs": 1, **given}).fit(crowd[0], crowd[1])


def test_unknown_methods_and_settings_are_named(crowd):
    with pytest.raises(ParameterError, match=r"Unknown learner 'max-mgi'.*max-mig"):
        cw.CrowdClassifier("max-mgi").fit(crowd[0], crowd[1])
    with pytest.raises(ParameterError, match=r"ccem has no parameter 'epoch'.*epochs"):
        cw.CrowdClassifier("ccem", epoch=3).fit(crowd[0], crowd[1])
    with pytest.raises(ParameterError, match="looks at votes alone"):
        cw.CrowdClassifier("dawid-skene").fit(crowd[0], crowd[1])


def test_without_a_seed_it_says_which_it_took(crowd):
    X, votes, _ = crowd
    learner = CCEM(epochs=1).fit(X, votes)
    again = CCEM(epochs=1, random_state=learner.seed_).fit(X, votes)
    assert np.array_equal(learner.predict_proba(X), again.predict_proba(X))
    assert learner.consensus_.seed == learner.seed_


def test_images_and_features_are_told_apart(crowd):
    X = np.random.default_rng(0).random((20, 6, 6)).astype(np.float32)
    votes = crowd[1][np.arange(20)]
    learner = CCEM(epochs=1, random_state=0).fit(X, votes)
    assert learner.shape_ == (1, 6, 6) and not hasattr(learner, "n_features_in_")
    with pytest.raises(InputError, match=r"shape \(36,\); the learner was fitted with \(1, 6, 6\)"):
        learner.predict(X.reshape(20, 36))


def test_what_needs_one_label_per_item_says_so_of_votes():
    sim = cw.simulate.one_coin(60, n_annotators=5, n_classes=2, votes_per_item=3, random_state=0)
    X, votes, model = np.random.default_rng(0).normal(size=(60, 3)), sim.votes, CCEM(epochs=1, random_state=0)
    with pytest.raises(InputError, match="Probabilities of cross_val_predict need one label per item"):
        cross_val_predict(model, X, votes, cv=3, method="predict_proba")
    with pytest.raises(InputError, match="stratify by consensus labels"):
        train_test_split(X, votes, stratify=votes)
    with pytest.raises(InputError, match="Take KFold or ShuffleSplit"):
        cross_val_score(model, X, votes, cv=StratifiedKFold(3), error_score="raise")
    parts = train_test_split(X, votes, stratify=cw.aggregate(votes).labels, random_state=0)
    assert [len(part) for part in parts] == [45, 15, 45, 15]


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, sparse.csr_matrix])
def test_no_rows_to_predict_for_is_an_error_of_ours(make):
    sim = cw.simulate.one_coin(40, n_annotators=5, n_classes=2, votes_per_item=3, random_state=0)
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = CCEM(epochs=1, random_state=0).fit(make(X), sim.votes)
    with pytest.raises(InputError, match="X has no rows"):
        model.predict(make(X[:0]))
