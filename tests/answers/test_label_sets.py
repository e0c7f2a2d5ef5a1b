"""Binary relevance: what sharing learns and gains, and that without it each label is on its own."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import metrics
from crowdwise.answers.label_sets_binary_relevance import decided, habits, learn_strength, worth
from crowdwise.core.numerics import dirichlet_multinomial
from crowdwise.errors import ParameterError

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


def crowd(seed=0, **more):
    return cw.simulate.label_sets(**({"n_items": 80, "n_labels": 5, "n_annotators": 10} | more), random_state=seed)


@pytest.mark.parametrize("base", ["anchored", "majority", "glad", "dawid-skene"])
def test_without_sharing_it_is_the_method_on_each_label(base):
    answers = crowd().answers
    found = cw.aggregate(answers, base=base, share=False)
    for k, label in enumerate(answers.labels.tolist()):
        alone = cw.aggregate(answers.votes_of(label), base)
        assert np.allclose(found.posterior[:, k], alone.posterior[:, 1])
        assert np.allclose(found.counts[:, k], alone.counts)
    assert len(found.strength) == 0 and found.iterations == 1


def test_habits_are_those_on_the_other_labels():
    counts = np.random.default_rng(0).poisson(5.0, size=(4, 3, 2, 2)).astype(float)
    mean, n = habits(counts)
    assert np.allclose(mean.sum(axis=3), 1.0)
    changed = counts.copy()
    changed[1, 2] += 50.0
    again, _ = habits(changed)
    assert np.allclose(mean[1, 2], again[1, 2])  # what m said of a label is not evidence about it twice
    assert not np.allclose(mean[1, 0], again[1, 0])
    assert np.allclose(worth(np.array([10.0, 1e9]), n)[:, :, 1], n[:, :, 1])
    assert (worth(np.array([10.0, 10.0]), n) < 10.0).all()


@pytest.mark.parametrize("likeness", [3.0, 30.0])
def test_the_strength_is_the_most_probable_one_and_follows_the_labels(likeness):
    c = crowd(n_items=400, n_labels=8, n_annotators=25, answers_per_item=8, likeness=likeness, seed=1)
    counts = decided(c.answers, c.truth.astype(float))
    strength = learn_strength(counts)
    mean, n = habits(counts)
    for t in (0, 1):

        def fit(s, t=t):
            return dirichlet_multinomial(counts[:, :, t], mean[:, :, t] * (s * n[:, :, t] / (s + n[:, :, t])))

        assert fit(strength[t]) >= max(fit(strength[t] * 0.8), fit(strength[t] * 1.25)) - 1e-6
        assert likeness / 2.5 < strength[t] < likeness * 2.5


def test_sharing_gains_on_sparse_sets():
    """Few answers per label: an annotator is known from the other labels. Means over crowds, as in the docs."""
    right = {share: [] for share in (False, None)}
    for seed in range(4):
        c = crowd(n_items=80, n_labels=8, n_annotators=40, answers_per_item=3, seed=100 + seed)
        for share, values in right.items():
            found = cw.aggregate(c.answers, base="dawid-skene", share=share)
            values.append(1.0 - metrics.hamming_loss(found, c.truth, resamples=2).value)
    assert np.mean(right[None]) > np.mean(right[False]) + 0.05
    assert min(np.array(right[None]) - np.array(right[False])) > 0.0


def test_labels_not_on_offer_are_never_taken():
    c = crowd()
    table = c.answers.to_frame("dict")
    kept = [[w for w in text.split("|") if w and w != "l4"] for text in table["labels"]]
    rows = list(zip(table["item"].tolist(), table["annotator"].tolist(), kept, strict=True))
    offered = {n: ["l0", "l1", "l2", "l3"] for n in range(40)}
    answers = cw.LabelSets.from_records(rows, classes=c.answers.labels.tolist(), offered=offered)
    found = cw.aggregate(answers, base="dawid-skene")
    assert (found.posterior[:40, 4] == 0.0).all() and not found.member[:40, 4].any()
    assert found.counts[:, 4].sum() == pytest.approx(np.diff(answers.indptr)[40:].sum())


def test_tables_name_everything():
    c = crowd()
    found = cw.aggregate(c.answers, base="dawid-skene")
    items = found.to_frame("items", kind="dict")
    assert items["labels"][0] == "|".join(found.sets[0])
    assert (items["size"] == found.member.sum(axis=1)).all()
    assert np.allclose(items["probability"], np.where(found.member, found.posterior, 1 - found.posterior).prod(axis=1))
    assert found.to_frame("cells").height == 80 * 5 and found.to_frame("rates").height == 10 * 5
    for table in ("annotators", "labels", "rates"):
        columns = found.to_frame(table, kind="dict")
        for name in ("sensitivity", "specificity"):
            assert ((columns[f"{name}_low"] <= columns[name]) & (columns[name] <= columns[f"{name}_high"])).all()
    assert found.to_frame("labels", kind="dict")["label"].tolist() == c.answers.labels.tolist()


def test_a_label_nobody_chose_and_one_everybody_did():
    rows = [(n, m, ["always"]) for n in range(20) for m in "xyz"]
    found = cw.aggregate(cw.LabelSets.from_records(rows, classes=["always", "never"]))
    assert found.member[:, 0].all() and not found.member[:, 1].any()


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"base": "anchord"}, "Did you mean 'anchored'"),
        ({"base": "gold-weighted"}, "needs gold labels"),
        ({"base_params": {"anchr": 1}}, "anchor"),
        ({"base_params": 3}, "base_params"),
        ({"base": "majority", "share": True}, "history"),
        ({"share": "yes"}, "share"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"base_params": {"history": {"a0": [[1, 1], [1, 1]]}}}, "share=False"),
    ],
)
def test_parameters_out_of_range_are_refused(params, text):
    with pytest.raises(ParameterError, match=text):
        cw.BinaryRelevance(**params).fit(crowd().answers)


def test_labels_with_the_same_answers_are_fitted_once(monkeypatch):
    from crowdwise import registry

    rows = [(f"i{n % 3}", f"a{n}", [f"l{j}" for j in range(n, 300, 7)]) for n in range(7)]
    answers = cw.LabelSets.from_records(rows)
    assert [len(labels) for labels in answers.alike()] == [43] * 6 + [42]
    fits, create = [], registry.create
    monkeypatch.setattr(registry, "create", lambda *a, **k: fits.append(a) or create(*a, **k))
    found = cw.aggregate(answers, base="one-coin")
    assert len(fits) <= 7 * found.iterations + 5
    alone = cw.aggregate(answers, base="one-coin", share=False)
    for k in (0, 7, 299):
        assert np.array_equal(alone.posterior[:, k], cw.aggregate(answers.votes_at(k), "one-coin").posterior[:, 1])


def test_the_same_answers_on_other_offers_are_fitted_apart():
    rows = [("i", "a", ["x", "y"], ["x", "y", "z"]), ("j", "b", ["z"], ["x", "z"]), ("k", "b", ["z"], ["x", "z"])]
    names = ("item", "annotator", "labels", "offered")
    answers = cw.LabelSets.from_frame(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    assert sorted(answers.labels[labels].tolist() for labels in answers.alike()) == [["x"], ["y"], ["z"]]
