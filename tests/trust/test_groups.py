"""Dependent groups: recovered, counted from the data, and not found where there are none."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import adjusted_rand_score

import crowdwise as cw
from crowdwise.core.annotator_groups import (
    answers,
    common_items,
    cut,
    dependence,
    fit_factor,
    pair_blocks,
    renumbered,
    spectral_groups,
    tree,
)
from crowdwise.errors import ParameterError
from crowdwise.trust.dependent_groups import find_groups


@pytest.mark.parametrize("K", [2, 3])
def test_groups_and_their_number_are_recovered(K):
    for seed in range(2):
        sim = cw.simulate.groups(5000, n_annotators=40, n_classes=K, n_groups=5, random_state=seed)
        found = find_groups(sim.votes)
        assert adjusted_rand_score(sim.parameters["group"], found.group) >= 0.9
        assert found.n_groups == 5
        assert found.flagged.all()
        given = find_groups(sim.votes, n_groups=5)
        assert adjusted_rand_score(sim.parameters["group"], given.group) >= 0.9


def test_more_items_show_more_of_the_groups():
    def quality(N):
        rows = []
        for seed in range(4):
            sim = cw.simulate.groups(N, n_annotators=20, n_classes=2, n_groups=5, member_diagonal=5, random_state=seed)
            rows.append(adjusted_rand_score(sim.parameters["group"], find_groups(sim.votes).group))
        return np.mean(rows)

    few, some, many = quality(60), quality(300), quality(2000)
    assert few < some < many
    assert many > 0.9


def test_two_who_copy_among_independent_ones_are_the_only_group():
    sim = cw.simulate.dirichlet(800, n_annotators=12, n_classes=3, random_state=1)
    label = sim.votes.label.reshape(800, 12).copy()
    copies = np.random.default_rng(0).random(800) < 0.7
    label[copies, 5] = label[copies, 2]
    found = find_groups(cw.Votes.from_dense(label))
    assert found.groups == [[found.names[2], found.names[5]]]
    (edge,) = found.edges
    assert edge[:2] == (found.names[2], found.names[5])
    assert 0.25 < edge[2] <= 1.0
    top = found.to_frame("pairs", kind="dict")
    assert (top["annotator"][0], top["other"][0]) == edge[:2]
    assert top["low"][0] <= top["excess"][0] <= top["high"][0]
    table = found.to_frame(kind="dict")
    assert (table["score"][[2, 5]] > 0.25).all()
    assert table["score"].argmax() in (2, 5)


def test_no_false_alarms():
    """The CI version of benchmarks/false_alarms.py: independent crowds and crowds with hard items."""
    alarms = 0
    for seed in range(45):
        rng = np.random.default_rng(seed)
        N, M, K = int(rng.integers(100, 800)), int(rng.integers(5, 25)), int(rng.integers(2, 4))
        kind = seed % 3
        if kind == 0:
            sim = cw.simulate.dirichlet(N, n_annotators=M, n_classes=K, random_state=seed)
        elif kind == 1:
            sim = cw.simulate.one_coin(N, n_annotators=M, n_classes=K, votes_per_item=min(6, M), random_state=seed)
        else:
            sim = cw.simulate.difficulty(N, n_annotators=M, n_classes=K, random_state=seed)
        alarms += find_groups(sim.votes, level=0.05).flagged.any()
    assert binomtest(int(alarms), 45, 0.05, alternative="greater").pvalue > 0.05


def test_the_surprise_of_independent_pairs_is_about_normal():
    z = [dependence(cw.simulate.one_coin(600, n_annotators=15, random_state=s).votes).surprise for s in range(8)]
    z = np.concatenate(z)
    assert abs(z.mean()) < 0.15
    assert 0.6 < z.std() < 1.1  # under one: the factor takes some of the noise, and five items are beside each share


def test_blocks_are_covariances_of_common_items():
    sim = cw.simulate.dirichlet(90, n_annotators=5, n_classes=3, votes_per_item=4, random_state=3)
    pairs = pair_blocks(sim.votes, 20)
    votes = sim.votes
    said = np.full((90, 5), -1)
    said[votes.item, votes.annotator] = votes.label
    for e in range(len(pairs.i)):
        a, b = said[:, pairs.i[e]], said[:, pairs.j[e]]
        both = (a >= 0) & (b >= 0)
        n = both.sum()
        assert n == pairs.common[e]
        A, B = np.eye(3)[a[both]], np.eye(3)[b[both]]
        cov = A.T @ B / n - np.outer(A.mean(axis=0), B.mean(axis=0))
        scale = np.sqrt(np.outer(A.mean(axis=0) + 5 / n, B.mean(axis=0) + 5 / n))
        assert np.allclose(pairs.block[e], cov / scale)


def test_the_shared_factor_explains_independent_annotators():
    sim = cw.simulate.dirichlet(20_000, n_annotators=10, n_classes=3, random_state=0)
    pairs = pair_blocks(sim.votes)
    U = fit_factor(pairs, 2)
    rest = pairs.block - np.einsum("pkr,plr->pkl", U[pairs.i], U[pairs.j])
    assert (rest**2).sum() < 0.01 * (pairs.block**2).sum()


def test_order_of_annotators_does_not_matter():
    sim = cw.simulate.groups(400, n_annotators=16, n_groups=4, random_state=2)
    label = sim.votes.label.reshape(400, 16)
    order = np.random.default_rng(1).permutation(16)
    one, other = dependence(cw.Votes.from_dense(label)), dependence(cw.Votes.from_dense(label[:, order]))
    assert adjusted_rand_score(one.group[order], other.group) == 1.0
    assert adjusted_rand_score(spectral_groups(one, 4)[order], spectral_groups(other, 4)) == 1.0
    assert np.allclose(np.sort(one.surprise), np.sort(other.surprise), atol=1e-6)


def test_the_tree_goes_down_to_one_group_and_numbers_by_size():
    sim = cw.simulate.groups(300, n_annotators=10, n_groups=3, random_state=0)
    found = dependence(sim.votes)
    merges = tree(found.pairs, found.surprise)
    assert len(merges) == 9
    for J in (1, 3, 10):
        assert cut(merges, 10, J).max() == J - 1
    assert renumbered(np.array([4, 7, 7, 4, 7, 1])).tolist() == [1, 0, 0, 1, 0, 2]


def test_few_common_items_mean_no_groups():
    sim = cw.simulate.groups(200, n_annotators=100, n_groups=5, votes_per_item=3, random_state=0)
    found = find_groups(sim.votes)
    assert found.n_groups == 100
    assert found.groups == []
    assert not found.flagged.any()
    assert found.to_frame("pairs").height == len(found.left)


def test_parameters_are_checked():
    votes = cw.simulate.groups(100, n_annotators=10, n_groups=2, random_state=0).votes
    for wrong in ({"level": 0.0}, {"n_groups": 0}, {"min_common": 1}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            find_groups(votes, **wrong)
    with pytest.raises(ParameterError, match="Unknown table"):
        find_groups(votes).to_frame("edges")


def test_pairs_are_counted_once_and_in_blocks(monkeypatch):
    from crowdwise.core import annotator_groups

    crowd = cw.simulate.groups(600, n_annotators=12, n_groups=3, random_state=0)
    calls, count = [], annotator_groups.pair_blocks
    monkeypatch.setattr(annotator_groups, "pair_blocks", lambda *a: calls.append(a) or count(*a))
    whole = find_groups(crowd.votes)
    assert len(calls) == 1 and whole.n_groups < 12
    monkeypatch.setattr(annotator_groups, "MAX_BLOCK", 2000.0)
    assert len(list(annotator_groups._products(annotator_groups.answers(crowd.votes)))) > 20
    assert np.array_equal(find_groups(crowd.votes).excess, whole.excess)


def test_thousands_of_annotators_on_one_item_need_little_memory():
    votes = cw.Votes.from_dense(np.arange(3000)[None] % 2)
    tracemalloc.start()
    found = cw.aggregate(votes, "grouped-majority")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6  # every pair of annotators: 9 million
    assert np.allclose(found.posterior, 0.5)


def test_results_are_a_line_in_a_notebook_however_many_annotators_there_are():
    votes = cw.simulate.groups(400, n_annotators=40, n_groups=5, random_state=0).votes
    consensus = cw.aggregate(votes, "one-coin")
    few = "annotators: 0 flagged at level 0.05)"
    for found in (find_groups(votes), cw.trust.shared_mistakes(votes, consensus), cw.trust.find_colluders(votes)):
        flagged, groups = int(found.flagged.sum()), len(found.groups)
        said = f"{flagged} flagged in {groups} group{'s' if groups != 1 else ''} at level 0.05)" if flagged else few
        assert repr(found).startswith(f"{type(found).__name__}(40 annotators") and repr(found).endswith(said)
    pairs = cw.trust.pairwise_agreement(votes)
    assert repr(pairs).startswith(f"PairwiseAgreement({len(pairs)} pairs of annotators, median kappa 0.")


def test_two_answers_to_one_item_leave_the_table_of_answers_as_it_is():
    rng = np.random.default_rng(0)
    rows = [(n, f"a{m}", int(rng.integers(2))) for n in range(200) for m in range(6) for _ in range(2)]
    votes = cw.Votes.from_records(rows, on_duplicate="all")
    X = answers(votes)
    before = X.indptr.copy()
    i, _, common = common_items(X, votes.n_annotators, votes.n_classes)
    assert (X.indptr == before).all() and len(i) == 15 and (common == 200).all()
    assert np.isfinite(pair_blocks(votes).block).all()
