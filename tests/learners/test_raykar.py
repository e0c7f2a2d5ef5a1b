"""Softmax regression and other classifiers within EM: `raykar`, and what tabular learners share."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import crowdwise as cw
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning, OutputError, ParameterError
from crowdwise.learners.alternating_em import Raykar
from crowdwise.learners.tabular import WEAK, Softmax, softmax_loss, takes_weights
from learners.crowd import blobs, confusions, small, vote


def tiny(seed, n=12, n_features=3, n_classes=3, n_annotators=4):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_features))
    item, who = np.nonzero(rng.random((n, n_annotators)) < 0.6)
    label = rng.integers(n_classes, size=len(item))
    votes = Votes.from_codes(
        item, who, label, items=range(n), annotators=range(n_annotators), classes=range(n_classes),
        weight=rng.uniform(0.5, 2.0, len(item)),
    )  # fmt: skip
    return x, votes


def dense_objective(model, x, votes, prior):
    """Loops over items, classes and votes: the log-likelihood and both priors."""
    theta, f = model.theta_, np.exp(model.model_.log_probs((x - model.mean_) / model.deviation_))
    total = 0.0
    for n in range(len(x)):
        ways = []
        for k in range(f.shape[1]):
            p = np.log(f[n, k])
            for s in range(votes.indptr[n], votes.indptr[n + 1]):
                p += votes.weights[s] * np.log(theta[votes.annotator[s], k, votes.label[s]])
            ways.append(p)
        total += np.log(np.exp(ways).sum())
    total += (prior / f.shape[1]) * np.log(theta).sum()
    W = model.model_.coef
    return total - 0.5 * model.model_.ridge * (W[:-1] ** 2).sum() - 0.5 * WEAK * (W[-1] ** 2).sum()


class TestSoftmaxRegression:
    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
    def test_gradient_is_that_of_differences(self, kind):
        rng = np.random.default_rng(0)
        x, q, coef = rng.normal(size=(7, 3)), rng.random((7, 4)), rng.normal(size=(4, 4))
        _, gradient = softmax_loss(coef, kind(x), q, 0.7)
        for i in range(4):
            for k in range(4):
                step = np.zeros_like(coef)
                step[i, k] = 1e-6
                up, down = (softmax_loss(coef + s * step, kind(x), q, 0.7)[0] for s in (1, -1))
                assert gradient[i, k] == pytest.approx((up - down) / 2e-6, abs=1e-6)

    def test_agrees_with_scikit_learn(self):
        from sklearn.linear_model import LogisticRegression

        X, y = blobs(200, 3)
        ours = Softmax(X.shape[1], 3, ridge=2.0)
        ours.fit(X.astype(np.float64), np.eye(3)[y])
        theirs = LogisticRegression(C=0.5, tol=1e-10, max_iter=5000).fit(X, y)
        np.testing.assert_allclose(np.exp(ours.log_probs(X)), theirs.predict_proba(X), atol=2e-3)

    def test_a_class_without_items_stays_finite(self):
        X, y = blobs(60, 2)
        model = Softmax(X.shape[1], 3, ridge=1.0)
        model.fit(X.astype(np.float64), np.eye(3)[y])
        f = np.exp(model.log_probs(X))
        assert np.isfinite(model.coef).all() and f[:, 2].max() < 0.01


class TestRaykar:
    @pytest.mark.parametrize("seed", range(3))
    def test_objective_is_the_models_own(self, seed):
        x, votes = tiny(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = Raykar(prior=0.5, max_iter=3, random_state=0).fit(x, votes)
        assert model.consensus_.trace[-1] == pytest.approx(dense_objective(model, x, votes, 0.5), rel=1e-6)

    @pytest.mark.parametrize("seed", range(3))
    def test_objective_never_falls(self, seed):
        X, votes, _ = small(n=120, seed=seed, low=0.4, high=0.8)
        model = Raykar(tol=0.0, max_iter=15, random_state=0)
        with pytest.warns(ConvergenceWarning, match="15 rounds"):
            model.fit(X, votes)
        assert (np.diff(model.consensus_.trace) > -1e-5).all()

    def test_binary_case_is_that_of_the_paper(self):
        """mu = a p / (a p + b (1 - p)) with sensitivities and specificities, by loops, from the vote mean."""
        X, y = blobs(150, 2)
        votes = vote(y, confusions(5, 2), 3)
        model = Raykar(prior=1e-9, max_iter=4, tol=0.0, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, votes)
        x = (X.astype(np.float64) - model.mean_) / model.deviation_
        mu = votes.shares()[:, 1]
        regression = Softmax(x.shape[1], 2, model.model_.ridge)
        for _ in range(4):
            regression.fit(x, np.stack([1 - mu, mu], axis=1))
            p = np.exp(regression.log_probs(x))[:, 1]
            alpha, beta = np.zeros(5), np.zeros(5)
            for m in range(5):
                mine = votes.annotator == m
                said, share = votes.label[mine], mu[votes.item[mine]]
                alpha[m] = (share * (said == 1)).sum() / share.sum()
                beta[m] = ((1 - share) * (said == 0)).sum() / (1 - share).sum()
            a, b = np.ones(150), np.ones(150)
            for n, m, label in zip(votes.item, votes.annotator, votes.label, strict=True):
                a[n] *= alpha[m] if label else 1 - alpha[m]
                b[n] *= 1 - beta[m] if label else beta[m]
            mu = a * p / (a * p + b * (1 - p))
        np.testing.assert_allclose(model.consensus_.independent_posterior[:, 1], mu, atol=1e-4)

    def test_inputs_help(self):
        X, votes, truth = small(n=400, n_annotators=20, votes_per_item=2, low=0.4, high=0.8)
        model = Raykar(random_state=0).fit(X, votes)
        assert model.consensus_.score(truth) > cw.aggregate(votes, "dawid-skene").score(truth) + 0.05

    def test_weights_are_repeated_votes(self):
        X, votes, _ = small(n=80)
        heavy = Votes.from_codes(
            votes.item, votes.annotator, votes.label, items=range(80), annotators=range(8), classes=range(3),
            weight=np.full(votes.n_votes, 2.0),
        )  # fmt: skip
        twice = Votes.from_codes(
            np.repeat(votes.item, 2), np.repeat(votes.annotator, 2), np.repeat(votes.label, 2), items=range(80),
            annotators=range(8), classes=range(3), on_duplicate="all",
        )  # fmt: skip
        q = [Raykar(random_state=0).fit(X, v).consensus_.posterior for v in (heavy, twice)]
        np.testing.assert_allclose(q[0], q[1], atol=1e-6)

    def test_items_without_votes_change_nothing(self):
        X, votes, _ = small(n=100)
        more = Votes(
            np.append(votes.indptr, np.full(50, votes.indptr[-1])), votes.annotator, votes.label, np.arange(150),
            votes.annotators, votes.classes,
        )  # fmt: skip
        extra = np.concatenate([X, X[:50]])
        one, two = (Raykar(scale=False, random_state=0).fit(x, v) for x, v in ((X, votes), (extra, more)))
        np.testing.assert_allclose(one.theta_, two.theta_, atol=1e-6)

    def test_annotators_and_classes_may_change_places(self):
        X, votes, _ = small(n=100)
        who, what = np.random.default_rng(0).permutation(8), np.array([2, 0, 1])
        moved = Votes.from_codes(
            votes.item, who[votes.annotator], what[votes.label], items=range(100), annotators=range(8), classes=range(3)
        )
        one, two = Raykar(random_state=0).fit(X, votes), Raykar(random_state=0).fit(X, moved)
        np.testing.assert_allclose(two.theta_[who][:, what][:, :, what], one.theta_, atol=1e-4)

    def test_sparse_inputs(self):
        X, votes, truth = small()
        dense = np.where(np.abs(X) > 0.5, X, 0.0)
        model = Raykar(random_state=0).fit(sparse.csr_matrix(dense), votes)
        assert model.consensus_.score(truth) > 0.8
        assert model.predict_proba(sparse.csr_matrix(dense)).shape == (240, 3)

    def test_callback_is_told_and_may_stop(self):
        X, votes, _ = small()
        seen = []
        model = Raykar(random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, votes, callback=lambda e: seen.append(e) or len(seen) == 2)
        assert [e.epoch for e in seen] == [1, 2] == [e.epoch for e in model.history_]

    def test_bad_parameters(self):
        X, votes, _ = small(n=20)
        for bad in ({"classifier": "forest"}, {"classifier": 3}, {"spread": 0.0}, {"max_iter": 0}, {"tol": -1.0},
                    {"prior": -1.0}, {"scale": 2}):  # fmt: skip
            with pytest.raises(ParameterError, match=next(iter(bad))):
                Raykar(**bad).fit(X, votes)


class TestOtherClassifiers:
    @pytest.mark.parametrize(
        "classifier",
        [
            RandomForestClassifier(20, min_samples_leaf=5),
            DecisionTreeClassifier(min_samples_leaf=10),
            make_pipeline(StandardScaler(), RandomForestClassifier(20, min_samples_leaf=5)),
            GaussianProcessClassifier(),
        ],
        ids=["forest", "tree", "pipeline", "gaussian-process"],
    )
    def test_learn_and_repeat(self, classifier):
        X, votes, truth = small(n=150)
        one, two = (Raykar(classifier=classifier, max_iter=3, random_state=0).fit(X, votes) for _ in range(2))
        assert one.consensus_.score(truth) > 0.85
        assert np.array_equal(one.predict_proba(X), two.predict_proba(X))
        assert not hasattr(classifier, "classes_")  # a copy was trained

    def test_soft_labels_are_weighted_rows(self):
        """A tree of depth 0 predicts the mean of its rows: that of the posterior."""
        from crowdwise.learners.tabular import DOUBT, SklearnClassifier

        q = np.random.default_rng(0).dirichlet(np.ones(3), 40)
        stump = SklearnClassifier(DecisionTreeClassifier(max_depth=1, max_features=1, min_samples_leaf=40), 3, 0)
        stump.fit(np.zeros((40, 2)), q)
        expected = (1 - DOUBT) * q.mean(axis=0) + DOUBT / 3
        np.testing.assert_allclose(np.exp(stump.log_probs(np.zeros((1, 2))))[0], expected, atol=1e-6)

    def test_who_takes_weights(self):
        assert takes_weights(DecisionTreeClassifier()) == "sample_weight"
        assert takes_weights(make_pipeline(StandardScaler(), DecisionTreeClassifier())) == (
            "decisiontreeclassifier__sample_weight"
        )
        assert takes_weights(GaussianProcessClassifier()) is None

    def test_cannot_be_saved_and_says_so(self, tmp_path):
        X, votes, _ = small(n=60)
        model = Raykar(classifier=DecisionTreeClassifier(), max_iter=1).fit(X, votes)
        with pytest.raises(OutputError, match="pickle"):
            model.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()
