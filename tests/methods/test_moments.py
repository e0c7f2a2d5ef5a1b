"""The methods of moments: exact moments give the exact answer, more votes a better one, and the traps are closed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import crowdwise as cw
from crowdwise.core import loop
from crowdwise.core.em import Part
from crowdwise.core.loop import Rounds
from crowdwise.errors import InputError
from crowdwise.methods import moments_pairs, moments_shared, moments_spectral_ds
from crowdwise.methods.moments_pairs import CNMF, MultiSPA, SymNMF
from crowdwise.methods.moments_spectral_ds import SpectralDS

MODELS = {"spectral-ds": SpectralDS, "multispa": MultiSPA, "cnmf": CNMF, "symnmf": SymNMF}


def confusions(M, K, seed, diagonal=4.0):
    rng = np.random.default_rng(seed)
    theta = np.stack([[rng.dirichlet(np.ones(K) + diagonal * np.eye(K)[k]) for k in range(K)] for _ in range(M)])
    return theta, rng.dirichlet(np.full(K, 8.0))


def draw(theta, pi, N, votes_per_item, seed):
    """Votes of annotators with these confusion matrices."""
    rng = np.random.default_rng(seed)
    M, K, _ = theta.shape
    truth = rng.choice(K, N, p=pi)
    who = np.argsort(rng.random((N, M)), axis=1)[:, :votes_per_item]
    cumulative = theta[who, truth[:, None]].cumsum(axis=2)
    label = (rng.random((N, votes_per_item, 1)) > cumulative).sum(axis=2).clip(max=K - 1)
    item = np.repeat(np.arange(N), votes_per_item)
    votes = cw.Votes.from_codes(item, who.ravel(), label.ravel(), items=range(N), annotators=range(M), classes=range(K))
    return votes, truth


def population_pairs(theta, pi):
    """Exact pair probabilities as the sparse matrix of pair counts, with an empty row block for known truths."""
    M, K, _ = theta.shape
    H = np.concatenate([theta.transpose(0, 2, 1), np.zeros((1, K, K))]).reshape(-1, K)
    X = (H * pi) @ H.T
    X[np.kron(np.eye(M + 1), np.ones((K, K))) > 0] = 0.0
    return csr_matrix(X)


def error(consensus, theta):
    return np.abs(consensus.confusion - theta).mean()


# -------------------------------------------------------------------- the pieces, on exact input


def test_the_tensor_power_method_takes_an_orthogonal_tensor_apart():
    rng = np.random.default_rng(0)
    v = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    strength = np.array([3.0, 2.5, 2.0, 1.5, 1.2])
    T = np.einsum("t,ti,tj,tl->ijl", strength, v, v, v)
    values, vectors = moments_spectral_ds.tensor_power(T, rng.normal(size=(20, 5)))
    assert np.allclose(values, strength)
    assert np.allclose(vectors, v)


def test_the_view_of_a_group_is_exact_where_the_moments_are():
    # All combinations of labels of three annotators, each item so often as it is probable: rows repeated by weight.
    theta, pi = confusions(3, 3, 1)
    combos = list(itertools.product(range(3), repeat=3))
    p = np.array([sum(pi[k] * np.prod([theta[m, k, c[m]] for m in range(3)]) for k in range(3)) for c in combos])
    times = np.round(p * 200_000).astype(int)
    Z = np.stack([np.repeat(np.eye(3)[[c[m] for c in combos]], times, axis=0) for m in range(3)])
    for view in range(3):
        columns, weight = moments_spectral_ds.solve_view(Z, view)
        order = [int(np.argmin(np.abs(columns - theta[view, k][:, None]).sum(axis=0))) for k in range(3)]
        assert sorted(order) == [0, 1, 2]
        assert np.allclose(columns[:, order].T, theta[view], atol=2e-3)
        assert np.allclose(weight[order], pi, atol=2e-3)


def test_corners_are_found_exactly_where_they_are_seen():
    theta, pi = confusions(1, 4, 2)
    rng = np.random.default_rng(0)
    mixtures = np.concatenate([np.eye(4), rng.dirichlet(np.ones(4), size=40)])
    points = (theta[0].T @ mixtures.T) * rng.uniform(20, 50, size=44)
    found = moments_pairs.corners(points[:, rng.permutation(44)], 0.0, 4)
    _, places = moments_shared.match(found, theta[0].T)
    assert np.allclose(found[:, places], theta[0].T)


def test_a_pure_column_of_two_votes_is_no_corner():
    blocks = np.array([[80.0, 20.0, 2.0], [20.0, 80.0, 0.0]])
    assert np.allclose(np.sort(moments_pairs.corners(blocks, 0.0, 2)[0]), [0.2, 1.0])
    assert moments_pairs.corners(blocks, 5.0, 2).max() < 0.82


def test_columns_are_matched_by_likelihood_for_an_annotator_who_swaps_classes():
    swapped = np.array([[0.1, 0.9], [0.9, 0.1]])
    counts = 50.0 * swapped
    for columns in (swapped, swapped[:, ::-1]):
        classes, places = moments_shared.match(columns, counts)
        assert np.array_equal(columns[:, places], swapped[:, classes])


def test_fewer_columns_than_classes_go_to_the_heaviest():
    counts = np.diag([50.0, 0.0, 30.0])
    classes, places = moments_shared.match(np.eye(3)[:, [2, 0]], counts)
    assert classes.tolist() == [0, 2]
    assert places.tolist() == [1, 0]


def test_the_prior_solves_the_marginals():
    theta, pi = confusions(12, 3, 3)
    table = theta.transpose(0, 2, 1)
    counts = 100.0 * table * pi
    assert np.allclose(moments_shared.marginal_prior(counts, table, passes=5000), pi, atol=1e-5)


def test_pair_counts_are_those_of_a_plain_loop():
    rng = np.random.default_rng(4)
    rows = [(int(n), int(m), int(rng.integers(3))) for n in range(15) for m in rng.choice(4, 3, replace=False)]
    rows += rows[:6]  # answered twice: nobody is paired with themselves
    rows += [(n, 4, 1) for n in range(3)]
    item, who, label = (np.array(column) for column in zip(*rows, strict=True))
    weight = rng.uniform(0.7, 1.9, len(rows))
    votes = cw.Votes.from_codes(
        item, who, label, items=range(15), annotators=range(5), classes=range(3), weight=weight, on_duplicate="all"
    )
    gold = np.full(15, -1, dtype=np.int32)
    gold[:4] = [0, 1, 2, 1]
    wanted = np.zeros((18, 18))
    table = [*zip(item, who, label, weight, strict=True), *((n, 5, gold[n], 1.0) for n in range(4))]
    for (n, m, said, w), (n2, m2, said2, w2) in itertools.product(table, repeat=2):
        if n == n2 and m != m2 and m != 4 and m2 != 4:  # annotator 4 has too few votes
            wanted[m * 3 + said, m2 * 3 + said2] += w * w2
    assert np.allclose(moments_pairs.pair_counts(votes, gold).toarray(), wanted)


def test_the_coupled_fit_has_its_optimum_at_the_truth():
    theta, pi = confusions(8, 3, 5)
    X, table = population_pairs(theta, pi), theta.transpose(0, 2, 1)
    rounds = Rounds(20_000, 1.0)
    A, _ = moments_pairs.fit_pairs(X, moments_shared.proper(table + 0.05), pi, table, 0.0, "counts", rounds, 0.0)
    assert np.abs(A - table).max() < 0.02
    assert -1e-4 < rounds.trace[-1] <= 1e-12
    assert (np.diff(rounds.trace) >= -1e-12).all()


def test_the_coupled_objective_is_the_divergence_and_never_falls():
    sim = cw.simulate.dirichlet(150, n_annotators=7, n_classes=3, votes_per_item=4, random_state=0)
    for weighting, hold in itertools.product(("counts", "blocks"), (0.0, 3.0)):
        model = CNMF(refine=False, weighting=weighting, prior_strength=hold, max_sweeps=60, sweep_tol=1e-5)
        c = model.fit(sim.votes).consensus_
        assert (np.diff(c.trace) >= -1e-9).all()
        X = moments_pairs.pair_counts(sim.votes, None).toarray()
        A, base = c.confusion.transpose(0, 2, 1), moments_shared.vote_table(moments_shared.vote_counts(sim.votes, None))
        value = hold * (base * np.log(A)).sum()
        for m, n in itertools.combinations(range(7), 2):
            R = X[3 * m : 3 * m + 3, 3 * n : 3 * n + 3]
            P, S = R / R.sum(), (A[m] * c.prior) @ A[n].T
            inside = P > 0
            weight = 1.0 if weighting == "blocks" else R.sum()
            value -= weight * (P[inside] * np.log(P[inside] / S[inside])).sum()
        assert np.isclose(value, c.objective)


def test_the_symmetric_factorisation_is_exact_on_exact_pairs_with_blocks_missing():
    theta, pi = confusions(14, 3, 6)
    theta[0], theta[1] = np.eye(3), np.eye(3)  # without a nearly perfect annotator it is unique only in the limit
    X = population_pairs(theta, pi).toarray() * 1000.0
    rng = np.random.default_rng(0)
    for m, n in itertools.combinations(range(14), 2):
        if rng.random() < 0.5:
            X[3 * m : 3 * m + 3, 3 * n : 3 * n + 3] = 0.0
            X[3 * n : 3 * n + 3, 3 * m : 3 * m + 3] = 0.0
    blocks = moments_pairs.blocks_of(csr_matrix(X), 3)
    H = theta.transpose(0, 2, 1) * np.sqrt(pi)
    begin = np.concatenate([H + rng.uniform(0, 0.1, H.shape), np.eye(3)[None]])
    rounds = Rounds(600, 1.0)
    U = moments_pairs.column_space(*blocks, begin, np.arange(14), 0.0, rounds, 0.0)
    assert (np.diff(rounds.trace) >= -1e-9).all()
    free = U[:14].reshape(-1, 3)
    assert np.abs(free @ free.T - H.reshape(-1, 3) @ H.reshape(-1, 3).T).max() < 1e-3  # unseen and own blocks too
    assert np.abs(moments_pairs.rotate(free).reshape(14, 3, 3) - H).max() < 0.02


# -------------------------------------------------------------------- recovery


@pytest.mark.parametrize("key", ["spectral-ds", "cnmf", "symnmf"])
def test_the_error_of_the_solution_falls_like_one_over_root_n(key):
    sizes = np.array([500, 2000, 8000])
    errors = np.zeros(3)
    for seed in range(3):
        theta, pi = confusions(16, 3, seed, diagonal=6.0)
        for i, N in enumerate(sizes):
            votes, _ = draw(theta, pi, N, 8, seed)
            errors[i] += error(MODELS[key](refine=False).fit(votes).consensus_, theta) / 3
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope < -0.4
    assert errors[-1] < 0.015


@pytest.mark.parametrize("experts", [True, False])
def test_corners_are_recovered_where_class_experts_exist(experts):
    """``multispa`` needs annotators who never mistake anything for a class: with them its error keeps falling."""
    sizes, errors, fitted = np.array([500, 2000, 8000, 32000]), [], []
    theta, pi = confusions(12, 3, 0)
    if experts:
        for m in range(3):  # nothing but class m is called m; else as before
            theta[m, :, m] = 0.0
            theta[m] /= theta[m].sum(axis=1, keepdims=True)
            theta[m, m] = np.eye(3)[m]
    for N in sizes:
        votes, _ = draw(theta, pi, N, 8, 1)
        errors.append(error(MultiSPA(refine=False).fit(votes).consensus_, theta))
        fitted.append(error(CNMF(refine=False).fit(votes).consensus_, theta))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    if experts:
        assert slope < -0.3
        assert errors[-1] < 0.02
    else:  # no corner was ever seen: more votes do not help, and the fit of all pairs does better
        assert slope > -0.2
        assert errors[-1] > 4.0 * fitted[-1]


@pytest.mark.parametrize("key", MODELS)
def test_solutions_beat_the_counts_against_the_votes(key):
    sim = cw.simulate.dirichlet(3000, n_annotators=20, n_classes=3, votes_per_item=8, random_state=3)
    theta = sim.parameters["confusion"]
    votes_alone = moments_shared.vote_table(moments_shared.vote_counts(sim.votes, None)).transpose(0, 2, 1)
    found = MODELS[key](refine=False).fit(sim.votes).consensus_
    assert error(found, theta) < 0.7 * np.abs(votes_alone - theta).mean()
    assert np.abs(found.prior - sim.parameters["prior"]).max() < 0.08


@pytest.mark.parametrize("key", MODELS)
def test_a_liar_is_seen_as_one(key):
    theta, pi = confusions(9, 2, 1, diagonal=6.0)
    theta[4] = [[0.1, 0.9], [0.85, 0.15]]
    votes, truth = draw(theta, pi, 2000, 7, 0)
    for refine in (False, True):
        c = MODELS[key](refine=refine).fit(votes).consensus_
        assert np.abs(c.confusion[4] - theta[4]).max() < 0.1
        assert c.score(truth) > 0.9


@pytest.mark.parametrize("key", MODELS)
def test_most_annotators_worse_than_chance_are_survived_while_the_votes_as_a_whole_are_not(key):
    theta = np.tile(np.array([[0.4, 0.6], [0.6, 0.4]]), (11, 1, 1))
    theta[:5] = [[0.95, 0.05], [0.1, 0.9]]
    votes, truth = draw(theta, np.array([0.5, 0.5]), 1500, 7, 0)
    after = MODELS[key]().fit(votes).consensus_
    assert np.abs(after.confusion - theta).mean() < 0.05
    assert after.score(truth) > 0.95
    before = MODELS[key](refine=False).fit(votes).consensus_
    if key != "multispa":  # which names the columns of each annotator by their own votes: a weak liar may be flattered
        assert np.abs(before.confusion - theta).mean() < 0.05
        assert before.score(truth) > 0.9
    assert cw.aggregate(votes, "majority").score(truth) < 0.9


@pytest.mark.parametrize("key", MODELS)
def test_known_truths_turn_a_crowd_round_of_which_most_are_wrong(key):
    theta = np.tile(np.array([[0.25, 0.75], [0.75, 0.25]]), (10, 1, 1))
    theta[:3] = [[0.9, 0.1], [0.1, 0.9]]
    votes, truth = draw(theta, np.array([0.5, 0.5]), 600, 8, 0)
    gold = np.where(np.arange(600) < 120, truth, -1)
    assert MODELS[key]().fit(votes, gold).consensus_.score(truth) > 0.9
    assert MODELS[key](refine=False).fit(votes, gold).consensus_.score(truth) > 0.9


# -------------------------------------------------------------------- traps


@pytest.mark.parametrize("key", MODELS)
def test_order_of_rows_and_names_do_not_matter_without_em_either(key):
    sim = cw.simulate.dirichlet(300, n_annotators=14, n_classes=3, votes_per_item=5, random_state=8)
    base = MODELS[key](refine=False).fit(sim.votes).consensus_
    rng = np.random.default_rng(0)
    v = sim.votes
    rows, who, kinds = rng.permutation(v.n_votes), rng.permutation(14), rng.permutation(3)
    other = cw.Votes.from_codes(
        v.item[rows], who[v.annotator[rows]], kinds[v.label[rows]], items=range(300), annotators=range(14),
        classes=range(3),
    )  # fmt: skip
    again = MODELS[key](refine=False).fit(other).consensus_
    assert np.allclose(again.posterior[:, kinds], base.posterior, atol=1e-9)
    assert np.allclose(again.confusion[who][:, kinds][:, :, kinds], base.confusion, atol=1e-9)


def test_groups_are_alike_and_do_not_depend_on_names():
    sim = cw.simulate.dirichlet(200, n_annotators=11, n_classes=3, votes_per_item=4, random_state=0)
    rank = moments_shared.ranking(sim.votes)
    number = np.bincount(sim.votes.annotator, minlength=11)
    assert (np.diff(number[rank]) <= 0).all()
    for group in moments_spectral_ds.three_groups(sim.votes, 4, np.random.default_rng(0)):
        assert np.bincount(group).tolist() in ([4, 4, 3], [4, 3, 4], [3, 4, 4])
        assert all(sorted(group[rank[i : i + 3]]) == [0, 1, 2] for i in (0, 3, 6))


def test_with_two_votes_per_item_the_votes_take_the_place_of_triples():
    sim = cw.simulate.dirichlet(300, n_annotators=12, n_classes=3, votes_per_item=2, random_state=0)
    model = SpectralDS(refine=False).fit(sim.votes)
    assert not model.solution_.solved.any()
    expected = moments_shared.vote_table(moments_shared.vote_counts(sim.votes, None)).transpose(0, 2, 1)
    assert np.allclose(model.consensus_.confusion, expected)
    assert CNMF(refine=False).fit(sim.votes).solution_.solved.all()  # pairs are enough for pairs


@pytest.mark.parametrize("key", MODELS)
def test_who_shares_no_item_with_anybody_gets_what_their_votes_suggest(key):
    """With votes enough to take part."""
    theta, pi = confusions(10, 3, 7)
    votes, _ = draw(theta, pi, 400, 6, 0)
    alone = cw.Votes.from_codes(
        range(9), [0] * 9, [0, 1, 2] * 3, items=range(400, 409), annotators=[10], classes=range(3)
    )
    both = cw.Votes.concat([votes, alone])
    model = MODELS[key](refine=False).fit(both)
    last = both.annotators.tolist().index(10)
    assert not model.solution_.solved[last]
    assert model.solution_.solved.sum() == 10
    suggested = moments_shared.vote_table(moments_shared.vote_counts(both, None))[last].T
    assert np.allclose(model.consensus_.confusion[last], suggested)
    everybody_else = np.delete(model.consensus_.confusion, last, axis=0)
    assert np.abs(everybody_else - MODELS[key](refine=False).fit(votes).consensus_.confusion).mean() < 0.02


@pytest.mark.parametrize("key", MODELS)
def test_one_label_per_item_has_no_pairs_and_the_labels_stand(key):
    sim = cw.simulate.dirichlet(200, n_annotators=8, n_classes=3, votes_per_item=1, random_state=0)
    for refine in (False, True):
        model = MODELS[key](refine=refine).fit(sim.votes)
        assert not model.solution_.solved.any()
        assert np.array_equal(model.consensus_.label_codes, sim.votes.label)
        assert model.consensus_.converged


@pytest.mark.parametrize("key", MODELS)
def test_a_rare_class_does_no_harm(key):
    theta, _ = confusions(12, 3, 9, diagonal=6.0)
    votes, truth = draw(theta, np.array([0.6, 0.39, 0.01]), 1000, 6, 0)
    for refine in (False, True):
        c = MODELS[key](refine=refine).fit(votes).consensus_
        assert c.score(truth) > cw.aggregate(votes, "majority").score(truth) - 0.02


@pytest.mark.parametrize("key", MODELS)
def test_a_class_nobody_names_leaves_the_solution_as_it_was(key):
    sim = cw.simulate.dirichlet(400, n_annotators=12, n_classes=2, votes_per_item=6, random_state=1)
    v = sim.votes
    wider = cw.Votes.from_codes(v.item, v.annotator, v.label, items=v.items, annotators=v.annotators, classes=[0, 1, 2])
    narrow, wide = (MODELS[key](refine=False).fit(votes).consensus_ for votes in (v, wider))
    assert np.allclose(wide.confusion[:, :2, :2], narrow.confusion, atol=0.02)


def test_more_splits_never_end_lower():
    sim = cw.simulate.dirichlet(150, n_annotators=15, n_classes=3, votes_per_item=4, random_state=2)
    part = Part.of(sim.votes)
    one, ten = (SpectralDS(refine=False, splits=s).fit(sim.votes).consensus_.log_likelihood for s in (1, 10))
    assert ten >= one
    several = moments_spectral_ds.solve_groups(sim.votes, None, 1.0, 5, 0)
    assert moments_shared.likeliest(part, several) in several


@pytest.mark.parametrize("key", MODELS)
def test_a_given_class_prior_replaces_the_one_solved_for(key):
    sim = cw.simulate.dirichlet(200, n_annotators=12, n_classes=3, votes_per_item=5, random_state=1)
    for refine in (False, True):
        c = MODELS[key](refine=refine, class_prior=[0.2, 0.3, 0.5]).fit(sim.votes).consensus_
        assert np.allclose(c.prior, [0.2, 0.3, 0.5])


@pytest.mark.parametrize("gold", [False, True])
@pytest.mark.parametrize("model", [SpectralDS, MultiSPA, CNMF, SymNMF])
def test_the_start_for_other_models_is_the_solution(model, gold):
    sim = cw.simulate.dirichlet(300, n_annotators=12, n_classes=3, votes_per_item=5, random_state=1)
    known = np.where(np.arange(300) < 50, sim.truth, -1).astype(np.int32) if gold else None
    start = model(random_state=3).initial_confusion(sim.votes, known)
    assert start.shape == (12, 3, 3)
    assert np.allclose(start.sum(axis=2), 1.0)
    assert np.allclose(start, model(refine=False, random_state=3).fit(sim.votes, known).consensus_.confusion)


# -------------------------------------------------------------------- what is too much


def test_pairs_that_no_machine_can_hold_or_count_are_refused_with_advice():
    with pytest.raises(InputError, match=r"pairs of votes on the same item.*GB.*votes\.without"):
        moments_pairs.check_pairs(np.full(1000, 1_000_000), 2_000_000)
    with pytest.raises(InputError, match=r"pairs of votes on the same item.*hours.*dawid-skene"):
        moments_pairs.check_pairs(np.full(1000, 1_000_000), 100)
    moments_pairs.check_pairs(np.full(1_000_000, 10), 1000)


def test_tensors_that_no_machine_can_hold_or_take_apart_are_refused_with_advice():
    with pytest.raises(InputError, match=r"tensor of 5,000.*GB.*cnmf"):
        moments_spectral_ds.check_triples(1000, 5000, 10)
    with pytest.raises(InputError, match=r"tensor of 200.*hours.*fewer splits"):
        moments_spectral_ds.check_triples(1000, 200, 10)
    moments_spectral_ds.check_triples(1_000_000, 10, 10)


@pytest.mark.parametrize("key", MODELS)
@pytest.mark.parametrize("refine", [False, True])
def test_fits_ask_for_room_before_they_take_it(key, refine, monkeypatch):
    sim = cw.simulate.dirichlet(100, n_annotators=10, n_classes=3, votes_per_item=5, random_state=1)
    need = {"spectral-ds": "tensor", "multispa": "pairs of votes", "cnmf": "pairs of votes", "symnmf": "pairs of votes"}
    monkeypatch.setattr(loop, "free_memory", lambda: 7500.0)
    with pytest.raises(InputError, match=need[key]):
        MODELS[key](refine=refine).fit(sim.votes)


def test_what_comes_after_the_count_is_checked_too(monkeypatch):
    sim = cw.simulate.dirichlet(300, n_annotators=10, n_classes=10, votes_per_item=5, random_state=1)
    votes = sim.votes
    cells = min(float((np.bincount(votes.item) ** 2).sum()), 110.0**2)
    monkeypatch.setattr(loop, "free_memory", lambda: 8.0 * moments_pairs.COUNTED * cells + 1.0)
    MultiSPA(refine=False).fit(votes)
    with pytest.raises(InputError, match="counts of pairs at once"):
        CNMF(refine=False).fit(votes)
    monkeypatch.setattr(loop, "free_memory", lambda: 8.0 * 5 * 90 * 100 - 1.0)
    with pytest.raises(InputError, match="90 pairs of annotators with common items, over 10 classes"):
        moments_pairs.blocks_of(moments_pairs.pair_counts(votes[:100], None), 10)


# -------------------------------------------------------------------- real crowds

# Error in %, (before EM, after it), with defaults that were chosen on simulated crowds.
REAL = {
    "spectral-ds": {
        "bluebird": (12.04, 11.11), "rte": (8.13, 7.13), "dog": (16.23, 15.74), "web": (19.11, 17.23),
        "labelme": (21.30, 20.80), "trec2010_binary": (30.46, 29.85),
    },
    "multispa": {
        "bluebird": (12.96, 11.11), "rte": (8.50, 7.13), "dog": (16.85, 15.86), "web": (17.57, 16.81),
        "labelme": (21.60, 21.10),
    },
    "cnmf": {
        "bluebird": (11.11, 10.19), "rte": (7.00, 7.13), "dog": (15.86, 15.74), "web": (16.85, 17.94),
        "labelme": (21.30, 21.10), "trec2010_binary": (29.85, 29.85),
    },
    "symnmf": {
        "bluebird": (12.04, 10.19), "rte": (7.25, 7.13), "dog": (16.11, 15.86), "web": (18.88, 18.43),
        "labelme": (21.60, 21.10),
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("key", "name"), [(key, name) for key in REAL for name in REAL[key]])
def test_errors_on_real_crowds(key, name, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    found = [100.0 * (1.0 - MODELS[key](refine=r).fit(votes).consensus_.score(votes.truth)) for r in (False, True)]
    assert found == pytest.approx(REAL[key][name], abs=0.15)
    assert found[1] < 100.0 * (1.0 - cw.aggregate(votes, "majority").score(votes.truth)) - 1.0


@pytest.mark.slow
def test_spectral_start_does_not_hang_on_the_seed(real):
    votes = cw.read_dataset(real("bluebird"), on_duplicate="all").votes
    found = [SpectralDS(random_state=seed).fit(votes).consensus_ for seed in range(5)]
    assert max(100.0 * (1.0 - c.score(votes.truth)) for c in found) <= 11.2
