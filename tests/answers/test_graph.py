"""Linked items: inference against enumeration, chains against hmm-crowd, and what a graph is worth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import coo_array

import crowdwise as cw
from crowdwise.answers.graph_crowd import Links, held_out_log_likelihood, mean_field, propagate
from crowdwise.data.graph import Graph, as_graph
from crowdwise.errors import InputError, ParameterError


def random_graph(rng, N, extra=0):
    """A random tree with weights, and some edges more."""
    edges = {(int(rng.integers(0, i)), i) for i in range(1, N)}
    while len(edges) < N - 1 + extra:
        i, j = sorted(rng.choice(N, 2, replace=False).tolist())
        edges.add((i, j))
    left, right = np.array(sorted(edges)).T
    return Graph.from_codes(left, right, rng.uniform(0.5, 1.5, len(edges)), range(N))


def enumerated(graph, evidence, field, J):
    """log Z and marginals by summing over all classes of all items."""
    N, K = evidence.shape
    q, total = np.zeros((N, K)), 0.0
    for y in itertools.product(range(K), repeat=N):
        y = np.array(y)
        agree = (graph.weight * (y[graph.left] == y[graph.right])).sum()
        p = np.exp((field[y] + evidence[np.arange(N), y]).sum() + J * agree)
        total += p
        q[np.arange(N), y] += p
    return np.log(total), q / total


@pytest.mark.parametrize("J", [0.0, 0.7, 2.5, -0.5])
@pytest.mark.parametrize("seed", range(3))
def test_belief_propagation_is_exact_on_trees(seed, J):
    rng = np.random.default_rng(seed)
    N, K = 6, 3
    graph, field = random_graph(rng, N), np.log(rng.dirichlet(np.ones(K)))
    evidence = rng.normal(size=(N, K))
    links = Links.of(graph, N)
    log_z, q = enumerated(graph, evidence, field, J)
    found = propagate(evidence, field, J, links)
    assert found.log_z == pytest.approx(log_z, abs=1e-9)
    np.testing.assert_allclose(found.posterior, q, atol=1e-9)
    for n in range(N):  # held_out: what is known of an item without its own evidence
        blind = evidence.copy()
        blind[n] = 0.0
        np.testing.assert_allclose(found.held_out[n], enumerated(graph, blind, field, J)[1][n], atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_on_loops_belief_propagation_is_close_and_mean_field_a_bound(seed):
    rng = np.random.default_rng(seed)
    N, K, J = 7, 2, 0.5
    graph, field, evidence = random_graph(rng, N, extra=4), np.zeros(K), rng.normal(size=(N, K))
    links = Links.of(graph, N)
    log_z, q = enumerated(graph, evidence, field, J)
    found, plain = propagate(evidence, field, J, links), mean_field(evidence, field, J, links)
    assert np.abs(found.posterior - q).max() < 0.05 and abs(found.log_z - log_z) < 0.1
    assert plain.log_z <= log_z + 1e-9
    assert np.abs(plain.posterior - q).max() < 0.2


def test_known_classes_are_held():
    evidence = np.zeros((3, 2))
    evidence[0] = [0.0, -np.inf]
    links = Links.of(Graph.from_codes([0, 1], [1, 2], np.ones(2), range(3)), 3)
    for infer in (propagate, mean_field):
        q = infer(evidence, np.zeros(2), 1.0, links).posterior
        assert q[0].tolist() == [1.0, 0.0] and q[1, 0] > q[2, 0] > 0.5


def chain_of(tags):
    """The edges between neighbouring tokens, by name."""
    names = tags.votes.items.tolist()
    first = set(tags.starts[:-1].tolist())
    return [(names[t - 1], names[t]) for t in range(1, len(names)) if t not in first]


def test_a_chain_is_hmm_crowd():
    """With no field and tied transitions the two are one model; belief propagation is exact there, and so EM is."""
    K, J = 3, 1.3
    tags = cw.simulate.tag_chain(40, n_annotators=6, n_classes=K, length=(2, 8), random_state=2).tags
    tied = np.where(np.eye(K, dtype=bool), np.exp(J), 1.0) / (np.exp(J) + K - 1)
    transition = np.vstack([np.full(K, 1 / K), tied])
    hmm = cw.aggregate(tags, "hmm-crowd", memory=False, prior=0.5, transition=transition, tol=1e-9)
    linked = cw.GraphCrowd(strength=J, class_prior="uniform", prior=0.5, tol=1e-9, max_iter=500)
    found = linked.fit(tags.votes, graph=chain_of(tags)).consensus_
    assert found.objective == pytest.approx(hmm.objective, abs=1e-3)
    np.testing.assert_allclose(found.posterior, hmm.posterior, atol=5e-3)
    np.testing.assert_allclose(found.confusion, hmm.confusion, atol=5e-3)


def test_the_objective_is_the_likelihood_and_never_falls():
    crowd = cw.simulate.graph(7, n_annotators=3, n_classes=2, random_state=0)
    rng = np.random.default_rng(5)
    graph = random_graph(rng, 7)
    model = cw.GraphCrowd(strength=0.8, class_prior="uniform", prior=1.0).fit(crowd.votes, graph=graph)
    theta, votes = model.consensus_.confusion, crowd.votes
    evidence = np.zeros((7, 2))
    np.add.at(evidence, votes.item, np.log(theta[votes.annotator, :, votes.label]))
    field = np.log([0.5, 0.5])
    exact = enumerated(graph, evidence, field, 0.8)[0] - enumerated(graph, np.zeros((7, 2)), field, 0.8)[0]
    assert model.consensus_.objective == pytest.approx(exact + np.log(theta).sum() / 2, abs=1e-6)
    assert (np.diff(model.consensus_.trace) >= 0).all()


def test_held_out_likelihood_by_hand():
    held_out, evidence = np.array([[0.3, 0.7], [0.5, 0.5]]), np.log([[0.9, 0.2], [1.0, 1.0]])
    assert held_out_log_likelihood(held_out, evidence) == pytest.approx(np.log(0.3 * 0.9 + 0.7 * 0.2))


@pytest.mark.parametrize("inference", ["belief-propagation", "mean-field"])
def test_a_homophilous_network_is_worth_far_more_than_five_points(inference):
    """One or two votes per item."""
    gain, strengths = [], []
    for seed in range(2):
        crowd = cw.simulate.graph(300, homophily=0.7, random_state=seed)
        found = cw.aggregate(crowd.votes, graph=crowd.parameters["edges"], inference=inference)
        gain.append(found.score(crowd.truth) - cw.aggregate(crowd.votes, "dawid-skene").score(crowd.truth))
        strengths.append(found.strength)
        assert (np.diff(found.trace) >= 0).all()
    assert np.mean(gain) > 0.05 and min(strengths) > 0.3


def test_a_random_graph_costs_next_to_nothing():
    loss = []
    for seed in range(3):
        crowd = cw.simulate.graph(400, homophily=None, random_state=seed)
        found = cw.aggregate(crowd.votes, graph=crowd.parameters["edges"])
        plain = cw.aggregate(crowd.votes, "dawid-skene")
        loss.append(plain.score(crowd.truth) - found.score(crowd.truth))
        if found.strength == 0.0:
            np.testing.assert_allclose(found.posterior, plain.posterior, atol=1e-9)
    assert np.mean(loss) < 0.01


@pytest.fixture(scope="module")
def crowd():
    return cw.simulate.graph(150, n_annotators=10, random_state=4)


@pytest.fixture(scope="module")
def model(crowd):
    return cw.GraphCrowd().fit(crowd.votes, graph=crowd.parameters["edges"])


def test_the_result(crowd, model, tmp_path):
    found = model.consensus_
    assert isinstance(found, cw.GraphConsensus) and found.strength == model.strength_ > 0.0 and found.gain > 5.41
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1.0, atol=1e-9)
    edges = crowd.parameters["edges"]
    degree = np.bincount(edges.ravel(), minlength=150)
    assert found.to_frame("items", kind="dict")["neighbours"].tolist() == degree.tolist()
    found.save(tmp_path / "kept")
    again = cw.GraphConsensus.load(tmp_path / "kept")
    assert again.strength == found.strength and again.labels.tolist() == found.labels.tolist()


def test_pairs_matrix_and_graph_are_one(crowd, model):
    edges = crowd.parameters["edges"]
    matrix = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(150, 150))
    again = cw.GraphCrowd().fit(crowd.votes, graph=matrix).consensus_
    np.testing.assert_allclose(again.posterior, model.consensus_.posterior, atol=1e-6)
    same = as_graph(edges, crowd.votes.items)
    for given in ([tuple(e) for e in edges[::-1].tolist()], {"source": edges[:, 1], "target": edges[:, 0]}):
        graph = as_graph(given, crowd.votes.items)
        for name in ("left", "right", "weight"):
            assert np.array_equal(getattr(graph, name), getattr(same, name)), name


def test_row_order_does_not_matter(crowd, model):
    frame = crowd.votes.to_frame().drop("truth").sample(fraction=1.0, shuffle=True, seed=1)
    votes = cw.Votes.from_frame(frame)
    again = cw.GraphCrowd().fit(votes, graph=crowd.parameters["edges"]).consensus_
    order = np.argsort(again.items)
    np.testing.assert_allclose(again.posterior[order], model.consensus_.posterior, atol=1e-5)


def test_new_votes_with_and_without_a_graph(crowd, model):
    edges = crowd.parameters["edges"]
    linked = model.predict_proba(crowd.votes, graph=edges)
    np.testing.assert_allclose(linked, model.consensus_.posterior, atol=1e-6)
    alone = model.predict_proba(crowd.votes)
    right = lambda q: (q.argmax(axis=1) == crowd.truth).mean()  # noqa: E731
    assert right(linked) > right(alone)
    unseen = cw.Votes.from_records([(0, "new", 1), (1, "a0", 1)], classes=[0, 1, 2])
    assert model.predict_proba(unseen, graph=[(0, 1)]).shape == (2, 3)


def test_known_truth_travels_along_edges(crowd):
    edges = crowd.parameters["edges"]
    gold = np.where(np.arange(150) < 75, crowd.truth, -1)
    found = cw.aggregate(crowd.votes, graph=edges, gold=gold)
    assert (found.label_codes[:75] == crowd.truth[:75]).all()
    assert (found.label_codes == crowd.truth)[75:].mean() > 0.85


def test_items_without_votes_are_labelled_by_their_neighbours(crowd):
    votes = crowd.votes.select(crowd.votes.item % 5 > 0)
    found = cw.aggregate(votes, graph=crowd.parameters["edges"])
    bare = np.diff(votes.indptr) == 0
    assert bare.sum() >= 30 and (found.label_codes == crowd.truth)[bare].mean() > 0.7


def test_bad_parameters_and_graphs(crowd):
    with pytest.raises(InputError, match="which items are linked"):
        cw.GraphCrowd().fit(crowd.votes)
    with pytest.raises(InputError, match="items that the votes do not have: 999"):
        cw.GraphCrowd().fit(crowd.votes, graph=[(0, 999)])
    with pytest.raises(ParameterError, match="does not look at a graph"):
        cw.aggregate(crowd.votes, "dawid-skene", graph=[(0, 1)])
    wrong = {"inference": "exact", "sweeps": 0, "max_iter": 0, "tol": -1}
    for bad in ({"strength": "strong"}, {"strength": np.inf}, *({name: value} for name, value in wrong.items())):
        with pytest.raises(ParameterError, match=f"{next(iter(bad))}="):
            cw.aggregate(crowd.votes, graph=[(0, 1)], **bad)


def test_no_edges_is_dawid_skene(crowd):
    found, plain = cw.aggregate(crowd.votes, graph=[]), cw.aggregate(crowd.votes, "dawid-skene")
    np.testing.assert_allclose(found.posterior, plain.posterior, atol=1e-9)


@pytest.mark.parametrize("inference", ["belief-propagation", "mean-field"])
def test_the_unit_of_weights_is_no_matter(inference):
    crowd = cw.simulate.graph(120, random_state=0)
    edges = np.asarray(crowd.parameters["edges"])[:, :2].tolist()
    one, thousand = (
        cw.GraphCrowd(inference=inference).fit(crowd.votes, graph=[(a, b, w) for a, b in edges]).consensus_
        for w in (1.0, 1000.0)
    )
    assert one.strength > 1.0 and thousand.strength == pytest.approx(one.strength / 1000.0)
    assert np.allclose(one.posterior, thousand.posterior)


@pytest.mark.parametrize("inference", ["belief-propagation", "mean-field"])
@pytest.mark.parametrize("strength", [1e6, -1e6])
def test_huge_weights_are_a_certainty(inference, strength):
    votes = cw.Votes.from_dense([[0, 0, 0], [1, -1, -1], [1, 1, 1], [1, 0, 1]])
    model = cw.GraphCrowd(strength=strength, inference=inference, max_iter=20)
    found = model.fit(votes, graph=[(0, 1, 1e12), (2, 3, 1e-3)]).consensus_
    assert np.isfinite(found.posterior).all()
    assert (found.label_codes[0] == found.label_codes[1]) == (strength > 0)
