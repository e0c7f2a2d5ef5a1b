"""``group-conditional``: dawid-skene where there are no kinds, and better where annotators treat kinds differently."""

from __future__ import annotations

import numpy as np
import pytest

import brute
import crowdwise as cw
from crowdwise.errors import InputError, ParameterError
from crowdwise.methods import ds_group_conditional
from crowdwise.methods.ds_group_conditional import between, item_groups


def crowd(seed=0, N=1000, M=25, r=5, bias=0.3, shared=False):
    """Negatives of kind 1 are called positive more often, by up to 2 ``bias`` (by ``bias`` where all share it)."""
    rng = np.random.default_rng(seed)
    z = (rng.random(N) < 0.4).astype(int)
    y = (rng.random(N) < np.where(z == 1, 0.3, 0.5)).astype(int)
    right = rng.beta(16, 4, (M, 2))
    extra = np.full(M, bias) if shared else rng.uniform(0, 2 * bias, M)
    item = np.repeat(np.arange(N), r)
    who = np.concatenate([rng.choice(M, r, replace=False) for _ in range(N)])
    p = right[who, y[item]] - np.where((z == 1) & (y == 0), 1.0, 0.0)[item] * extra[who]
    said = np.where(rng.random(N * r) < p, y[item], 1 - y[item])
    votes = cw.Votes.from_codes(item, who, said, items=range(N), annotators=range(M), classes=[0, 1], truth=y)
    truth = np.repeat(right[:, None], 2, axis=1)
    truth[:, 1, 0] -= extra
    return votes, z, y, truth  # truth[m, z, k]: the probability of being right


def test_without_groups_or_with_one_it_is_dawid_skene():
    votes, z, _, _ = crowd()
    plain = cw.DawidSkene().fit(votes).consensus_
    for groups in (None, np.zeros(len(votes)), {n: "one" for n in range(len(votes))}):
        model = cw.GroupConditional(groups=groups).fit(votes)
        assert np.array_equal(model.consensus_.posterior, plain.posterior)
        assert np.array_equal(model.consensus_.confusion, plain.confusion)
        assert model.group_confusion_.shape == (25, 1, 2, 2)
        assert np.array_equal(model.group_confusion_[:, 0], plain.confusion)


def test_infinite_pooling_with_a_shared_prior_is_dawid_skene():
    votes, z, _, _ = crowd(bias=0.1)
    plain = cw.DawidSkene().fit(votes).consensus_
    model = cw.GroupConditional(groups=z, pooling=np.inf, class_prior="shared", tol=1e-9).fit(votes)
    assert np.allclose(model.consensus_.posterior, plain.posterior, atol=2e-3)
    assert np.allclose(model.group_confusion_[:, 0], model.group_confusion_[:, 1])


def test_no_pooling_is_a_separate_fit_of_each_kind():
    votes, z, _, _ = crowd(N=600, bias=0.2)
    model = cw.GroupConditional(groups=z, pooling=0, tol=1e-10, max_iter=5000).fit(votes)
    for g in (0, 1):
        part = votes[z == g]
        alone = cw.DawidSkene(tol=1e-10, max_iter=5000, start=model.consensus_.posterior[z == g]).fit(part).consensus_
        assert np.allclose(model.consensus_.posterior[z == g], alone.posterior, atol=1e-3)


def test_posterior_and_objective_against_enumeration():
    votes, z, _, _ = crowd(N=6, M=3, r=3)
    model = cw.GroupConditional(groups=z, pooling=5.0, prior=0.5).fit(votes)
    c = model.consensus_
    total = 0.0
    for g in (0, 1):
        part = votes[z == g]
        q, evidence = brute.enumerate_truths(
            brute.rows_of(part), model.group_confusion_[:, g], model.group_prior_[g], len(part)
        )
        assert np.allclose(c.posterior[z == g], q, atol=1e-9)
        total += evidence
    assert np.isclose(c.log_likelihood, total)
    assert (np.diff(c.trace) >= -1e-9).all()


def test_pooling_is_learned_from_how_much_groups_differ():
    rng = np.random.default_rng(0)
    M, G, K, n = 400, 2, 3, 40
    base = rng.dirichlet(np.ones(K), size=(M, K))
    for s in (3.0, 12.0, 60.0):
        rows = np.stack(
            [[[rng.dirichlet(s * base[m, k]) for k in range(K)] for m in range(M)] for _ in range(G)], axis=1
        )
        counts = np.array([[[rng.multinomial(n, rows[m, z, k]) for k in range(K)] for z in range(G)] for m in range(M)])
        rho = between(counts.transpose(0, 1, 3, 2).astype(float))
        assert abs((1 - rho) / rho / s - 1) < 0.25
    same = np.array([[[rng.multinomial(n, base[m, k]) for k in range(K)] for _ in range(G)] for m in range(M)])
    assert between(same.transpose(0, 1, 3, 2).astype(float)) < 0.005


def test_it_beats_dawid_skene_where_groups_differ_and_does_no_harm_where_not():
    gains, losses = [], []
    for seed in range(6):
        votes, z, y, _ = crowd(seed)
        gains.append(
            cw.aggregate(votes, "group-conditional", groups=z).score(y) - cw.aggregate(votes, "dawid-skene").score(y)
        )
        votes, z, y, _ = crowd(seed, bias=0.0)
        losses.append(
            cw.aggregate(votes, "group-conditional", groups=z).score(y) - cw.aggregate(votes, "dawid-skene").score(y)
        )
    assert np.mean(gains) > 0.02
    assert np.mean(losses) > -0.005


def test_matrices_are_recovered_with_an_error_that_falls_with_the_votes():
    errors = []
    sizes = (400, 1600, 6400)
    for N in sizes:
        votes, z, _, truth = crowd(1, N=N, r=7, bias=0.15)
        found = cw.GroupConditional(groups=z).fit(votes).group_confusion_
        errors.append(np.sqrt(((np.einsum("mzkk->mzk", found) - truth) ** 2).mean()))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope < -0.35, errors
    assert errors[-1] < 0.05


def test_pooling_helps_where_votes_are_few():
    pooled, apart = [], []
    for seed in range(8):
        votes, z, _, truth = crowd(seed, N=300, M=30, r=6, bias=0.05)
        for found, pooling in ((pooled, "learned"), (apart, 0)):
            theta = cw.GroupConditional(groups=z, pooling=pooling).fit(votes).group_confusion_
            found.append(((np.einsum("mzkk->mzk", theta) - truth) ** 2).mean())
    assert np.mean(pooled) < 0.8 * np.mean(apart)


def test_known_truth_on_the_biased_kind_puts_things_right():
    votes, z, y, _ = crowd(2, bias=0.4, shared=True)
    told = np.where((np.arange(len(y)) % 5 == 0), y, -1)
    rest = told < 0
    blind = cw.GroupConditional(groups=z).fit(votes).consensus_
    helped = cw.GroupConditional(groups=z).fit(votes, gold=told).consensus_
    wrong = [(c.label_codes != y)[rest].mean() for c in (blind, helped)]
    assert wrong[1] < wrong[0]


def test_columns_for_every_kind_have_intervals_that_cover():
    covered = []
    for seed in range(4):
        votes, z, _, truth = crowd(seed, r=9, bias=0.1)
        c = cw.GroupConditional(groups=np.where(z == 1, "b", "a")).fit(votes).consensus_
        columns = c.annotator_columns
        assert set(columns) == {f"accuracy({g}){e}" for g in "ab" for e in ("", "_low", "_high")}
        for g, share in (("a", (0.5, 0.5)), ("b", (0.7, 0.3))):
            true = truth[:, "ab".index(g)] @ share
            covered.append(((columns[f"accuracy({g})_low"] <= true) & (true <= columns[f"accuracy({g})_high"])).mean())
        assert set(c.item_columns["group"].tolist()) == {"a", "b"}
    assert np.mean(covered) > 0.88


def test_groups_in_any_form_and_order_give_the_same():
    votes, z, _, _ = crowd(N=200)
    base = cw.aggregate(votes, "group-conditional", groups=z).posterior
    names = np.array(["x", "a"])[z]
    for groups in (names, names.tolist(), dict(zip(range(200), names.tolist(), strict=True))):
        assert np.allclose(cw.aggregate(votes, "group-conditional", groups=groups).posterior, base, atol=1e-9)
    code, found = item_groups({0: "b", 1: "a"}, np.arange(3))
    assert code.tolist() == [1, 0, -1] and found.tolist() == ["a", "b"]


def test_predicts_items_of_known_and_unknown_groups_and_unseen_annotators():
    votes, z, y, _ = crowd(N=900, r=7)
    old, new = votes[:600], votes[600:]
    model = cw.GroupConditional(groups=dict(enumerate(z.tolist()))).fit(old)
    assert np.allclose(model.predict_proba(old), model.consensus_.posterior, atol=1e-9)
    assert (model.predict(new) == y[600:]).mean() > 0.85
    by_place = cw.GroupConditional(groups=z[:600]).fit(old)
    assert np.allclose(by_place.predict_proba(old), by_place.consensus_.posterior, atol=1e-9)
    assert (by_place.predict(new) == y[600:]).mean() > 0.75  # of no known group: matrices over all groups
    unseen = cw.Votes.from_records([(601, 99, 1), (601, 3, 1), (5000, 3, 0)])  # an unseen annotator, a new item
    q = model.predict_proba(unseen)
    assert np.allclose(q.sum(axis=1), 1.0)
    assert q.argmax(axis=1).tolist() == [1, 0]


def test_class_prior_uniform_or_given_holds_for_every_group():
    votes, z, _, _ = crowd(N=200)
    model = cw.GroupConditional(groups=z, class_prior="uniform").fit(votes)
    assert np.allclose(model.group_prior_, 0.5)
    model = cw.GroupConditional(groups=z, class_prior={0: 0.8, 1: 0.2}).fit(votes)
    assert np.allclose(model.group_prior_, [[0.8, 0.2]] * 2)
    model = cw.GroupConditional(groups=z, class_prior="shared").fit(votes)
    assert np.allclose(model.group_prior_[0], model.group_prior_[1])


def test_what_does_not_fit_is_refused(monkeypatch):
    votes, z, _, _ = crowd(N=60)
    with pytest.raises(ParameterError, match="expected one group for each of the 60 items"):
        cw.GroupConditional(groups=z[:9]).fit(votes)
    with pytest.raises(ParameterError, match="gives no group for 58 of the 60 items"):
        cw.GroupConditional(groups={0: "a", 1: "b"}).fit(votes)
    monkeypatch.setattr(ds_group_conditional, "MAX_CELLS", 10)
    with pytest.raises(InputError, match="Merge groups or rare classes"):
        cw.GroupConditional(groups=z).fit(votes)


def test_three_groups_three_classes_and_weights():
    sim = cw.simulate.dirichlet(300, n_annotators=12, n_classes=3, votes_per_item=5, random_state=0)
    v = sim.votes
    weighted = cw.Votes.from_codes(
        v.item, v.annotator, v.label, items=v.items, annotators=v.annotators, classes=v.classes,
        weight=np.linspace(0.5, 1.5, v.n_votes),
    )  # fmt: skip
    model = cw.GroupConditional(groups=np.arange(300) % 5).fit(weighted)
    assert model.group_confusion_.shape == (12, 5, 3, 3)
    assert np.allclose(model.group_confusion_.sum(axis=3), 1.0)
    assert np.allclose(model.group_prior_.sum(axis=1), 1.0)
    assert model.consensus_.score(sim.truth) > 0.8
