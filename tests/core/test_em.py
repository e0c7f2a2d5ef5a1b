"""The loop: additive statistics, a trace that never falls, acceleration that does not lead astray."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import crowdwise as cw
from brute import objective
from crowdwise import kernels, registry
from crowdwise.core import em
from crowdwise.core.em import Params, Part, Stats
from crowdwise.core.priors import pseudo_counts
from crowdwise.core.starts import shares
from crowdwise.core.vote_parts import VotePart
from crowdwise.errors import ConvergenceWarning, ParameterError
from crowdwise.kernels import cuda
from crowdwise.methods.ds_dawid_skene import best_classes

EM_METHODS = ["dawid-skene", "one-coin", "confusion-vector", "fast-dawid-skene", "anchored"]


def crowd(seed=0, n=300, K=4, **options):
    return cw.simulate.dirichlet(n, n_annotators=25, n_classes=K, votes_per_item=4, random_state=seed, **options)


ASTRAY = (4, 10, 13, 19, 22, 28)
"""Seeds of sparse ten-class crowds on which leaps without guards end at a worse optimum than plain EM."""


def sparse_ten_class(seed):
    """One to three votes per item and ten classes: so flat and rugged that a leap may land anywhere."""
    p = 0.7 if seed % 2 else 0.5
    return cw.simulate.one_coin(
        800, n_annotators=60, n_classes=10, a=6 * p, b=6 * (1 - p), votes_per_item=1 + seed % 3, random_state=seed
    ).votes


def gap(seed, **params):
    """How much higher per vote accelerated EM ends than plain EM, and how many of its passes it needed."""
    votes = sparse_ten_class(seed)
    plain, fast = (fit(votes, accelerate=a, tol=1e-8, max_iter=3000, **params) for a in (False, True))
    return (fast.objective - plain.objective) / votes.n_votes, fast.iterations / plain.iterations


def fit(votes, key="dawid-skene", **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cw.aggregate(votes, key, **params)


@pytest.mark.parametrize("engine", ["reference", "native"])
def test_statistics_of_parts_add_up_to_those_of_the_whole(engine):
    votes = crowd().votes
    rng = np.random.default_rng(0)
    K = votes.n_classes
    item_prior = np.log(rng.dirichlet(np.ones(K), len(votes)))
    gold = np.where(rng.random(len(votes)) < 0.2, rng.integers(0, K, len(votes)), -1).astype(np.int32)
    part = Part.of(votes, gold, item_prior)
    params = Params(np.log(rng.dirichlet(np.ones(K), part.n_cells)), np.log(rng.dirichlet(np.ones(K), 1)))
    with kernels.using(engine):
        whole, _ = em.expect(part, params)
        cuts = [0, 1, 77, 78, 200, len(votes)]
        total = Stats(np.zeros_like(whole.counts), np.zeros(K))
        for lo, hi in itertools.pairwise(cuts):
            total = total + em.expect(part.split(lo, hi), params)[0]
    assert np.allclose(total.counts, whole.counts, atol=1e-10)
    assert np.allclose(total.mass, whole.mass, atol=1e-10)
    assert abs(total.log_likelihood - whole.log_likelihood) < 1e-8


@pytest.mark.parametrize(
    ("key", "accelerate"),
    [(key, a) for key in EM_METHODS for a in (True, False) if not (a and key == "fast-dawid-skene")],
)
def test_the_objective_recomputed_from_its_definition_never_falls(key, accelerate):
    """Stop the fit after 1, 2, 3, ... passes and compute the objective of what it has by then, without the package."""
    sim = crowd(seed=3, n=60)
    rng = np.random.default_rng(1)
    weighted = cw.Votes.from_codes(
        sim.votes.item,
        sim.votes.annotator,
        sim.votes.label,
        items=sim.votes.items,
        annotators=sim.votes.annotators,
        classes=sim.votes.classes,
        weight=rng.gamma(2.0, 0.5, sim.votes.n_votes),
    )
    gold = np.where(rng.random(60) < 0.15, sim.truth, -1).astype(np.int32)
    options = {} if key == "fast-dawid-skene" else {"accelerate": accelerate}
    prior = "hierarchical" if key == "anchored" else 0.5
    pseudo = pseudo_counts(prior, None, weighted, gold)
    pseudo = np.broadcast_to(pseudo, (25, 4, 4)).transpose(0, 2, 1)
    values = []
    for passes in range(1, 30):
        model = registry.create(key, prior=prior, tol=0.0, max_iter=passes, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = model.fit(weighted, gold).consensus_
        params = model.anchored_params_ if key == "anchored" else model.params_
        theta = np.exp(params.log_score).reshape(25, 4, 4).transpose(0, 2, 1)
        value = objective(
            weighted,
            theta,
            np.exp(params.log_prior[0]),
            pseudo,
            gold,
            hard=key == "fast-dawid-skene",
            anchor=0.5 if key == "anchored" else 0.0,
            shares=shares(weighted, gold) if key == "anchored" else None,
        )
        assert abs(value - found.objective) < 1e-8 * abs(value)
        values.append(value)
    assert (np.diff(values) >= -1e-9 * abs(values[0])).all()
    assert values[-1] > values[0]


def test_hard_em_counts_each_item_once_and_takes_the_first_of_equals():
    votes = cw.Votes.from_records([("x", "a", 0), ("y", "b", 1)])
    params = Params(np.log(np.array([[0.5, 0.5], [0.5, 0.5], [0.2, 0.8], [0.2, 0.8]])), np.log([[0.5, 0.5]]))
    found = best_classes(params, VotePart(votes))
    assert found.mass.tolist() == [1.0, 1.0]
    assert found.counts[0].tolist() == [1.0, 0.0]
    assert found.counts[3].tolist() == [0.0, 1.0]
    assert abs(found.log_likelihood - np.log(0.25) - np.log(0.4)) < 1e-12


@pytest.mark.parametrize("key", EM_METHODS)
def test_the_trace_never_falls(key):
    for seed in range(4):
        trace = fit(crowd(seed).votes, key).trace
        assert (np.diff(trace) >= -1e-10 * abs(trace[0])).all()


def test_acceleration_does_not_leave_for_a_worse_optimum_on_sparse_ten_class_data():
    gaps, passes = np.transpose([gap(seed) for seed in ASTRAY])
    assert gaps.min() > -1e-6
    assert passes.mean() < 0.75


def test_without_its_guards_acceleration_does_go_astray(monkeypatch):
    """The same crowds with the guards taken off: shows that the test above has something to find."""
    monkeypatch.setattr(em, "NEAR", np.inf)
    monkeypatch.setattr(em, "REACH", np.inf)
    gaps, _ = np.transpose([gap(seed) for seed in ASTRAY])
    assert (gaps < -1e-4).sum() >= 4


def test_a_leap_keeps_the_totals_of_every_cell_and_stays_within_reach():
    rng = np.random.default_rng(0)
    n = rng.integers(1, 20, (30, 1)).astype(float)
    points = [Stats(n * rng.dirichlet(np.ones(3), 30), 40 * rng.dirichlet(np.ones(3))) for _ in range(3)]
    near = [points[0]]
    for step in (0.3, 0.2):
        last = near[-1]
        near.append(
            Stats(
                last.counts + step * (points[1].counts - last.counts), last.mass + step * (points[1].mass - last.mass)
            )
        )
    votes = float(n.sum())
    leap = em.extrapolate(*near, votes)
    assert leap is not None
    assert np.allclose(leap.counts.sum(axis=1), n[:, 0])
    assert (leap.counts >= 0).all()
    assert abs(leap.mass.sum() - 40.0) < 1e-9
    assert np.abs(leap.counts - near[2].counts).sum() / 2 <= em.REACH * votes + 1e-9
    assert em.extrapolate(points[0], points[0], points[0], votes) is None


def test_tolerance_is_per_vote():
    votes = crowd().votes
    twice = cw.Votes.from_codes(
        np.concatenate([votes.item, votes.item + len(votes)]),
        np.tile(votes.annotator, 2),
        np.tile(votes.label, 2),
        items=range(2 * len(votes)),
        annotators=votes.annotators,
        classes=votes.classes,
    )
    assert fit(votes, prior=0.0).iterations == fit(twice, prior=0.0).iterations


def test_stopping_early_warns_at_the_line_of_the_user_and_says_what_to_do():
    with pytest.warns(ConvergenceWarning, match="stopped after 2 iterations.*raise max_iter") as warned:
        found = cw.aggregate(crowd().votes, "dawid-skene", max_iter=2)
        cw.DawidSkene(max_iter=2).fit(crowd().votes)
    assert not found.converged
    assert found.iterations == 2
    assert [warning.filename for warning in warned] == [__file__, __file__]


def test_the_callback_hears_of_every_accepted_pass():
    steps = []
    found = cw.aggregate(crowd().votes, "dawid-skene", callback=steps.append)
    assert [s.objective for s in steps] == found.trace.tolist()
    assert steps[-1].iteration == found.iterations
    assert steps[-1].change < 1e-7
    assert all(s.max_iter == 500 for s in steps)


def test_a_callback_can_end_the_fit_by_raising():
    def stop(step):
        raise KeyboardInterrupt

    model = cw.DawidSkene()
    with pytest.raises(KeyboardInterrupt):
        model.fit(crowd().votes, callback=stop)
    assert not hasattr(model, "consensus_")


def test_restarts_are_seeded_differ_and_keep_the_best():
    votes = sparse_ten_class(1)
    ends = {}

    def note(step):
        ends[step.restart] = step.objective

    best = fit(votes, restarts=4, random_state=3, callback=note)
    assert len(ends) == 5
    assert len({round(v, 6) for v in ends.values()}) > 1
    assert best.objective == max(ends.values())
    assert fit(votes, restarts=4, random_state=3).objective == best.objective
    assert np.array_equal(fit(votes, restarts=4, random_state=3).posterior, best.posterior)


def test_starts_from_a_posterior_and_from_an_earlier_consensus():
    sim = crowd(5)
    cold = fit(sim.votes)
    warm = fit(sim.votes, start=cold)
    assert warm.iterations < cold.iterations
    assert abs(warm.objective - cold.objective) < 1e-4
    given = fit(sim.votes, start=sim.votes.shares())
    assert np.allclose(given.posterior, cold.posterior)
    half = sim.votes[np.arange(0, len(sim.votes), 2)]
    assert (
        fit(half, start=cold).score(
            half.encode_truth(dict(zip(sim.votes.items.tolist(), sim.truth.tolist(), strict=True)))
        )
        > 0.7
    )


@pytest.mark.parametrize(
    ("start", "text"),
    [("spectral", "expected 'votes'"), (np.ones((3, 3)), "posterior of shape"), (np.full((300, 4), 0.5), "sum to one")],
)
def test_a_wrong_start_is_refused(start, text):
    with pytest.raises(ParameterError, match=text):
        cw.aggregate(crowd().votes, "dawid-skene", start=start)


def test_a_start_without_confusion_or_with_other_classes_is_refused():
    votes = crowd().votes
    with pytest.raises(ParameterError, match="no confusion matrices to start from"):
        cw.aggregate(votes, "dawid-skene", start=cw.aggregate(votes, "majority"))
    with pytest.raises(ParameterError, match="must be the same"):
        cw.aggregate(votes, "dawid-skene", start=cw.aggregate(crowd(K=3).votes, "dawid-skene"))


@pytest.mark.parametrize("key", EM_METHODS)
def test_the_loop_of_a_gpu_ends_where_that_of_the_plain_kernels_does(key, monkeypatch):
    votes = crowd(3, n=200).votes
    monkeypatch.setenv("CROWDWISE_ENGINE", "reference")
    plain = registry.find(key).create().fit(votes).consensus_
    monkeypatch.setattr(cuda, "DEVICE", "cpu")
    monkeypatch.setattr(cuda, "available", lambda: True)
    monkeypatch.setenv("CROWDWISE_ENGINE", "cuda")
    other = registry.find(key).create().fit(votes).consensus_
    if key == "dawid-skene":
        assert len(cuda._resident) == 1  # the votes are moved once
    cuda.release()
    assert other.iterations == plain.iterations
    for field in ("counts", "spread", "agreement", "total"):
        assert np.allclose(getattr(other, field), getattr(plain, field), rtol=1e-7, atol=1e-9)
    assert np.abs(other.posterior - plain.posterior).max() < 1e-8


def test_an_engine_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(cuda, "available", lambda: False)
    expected = {"cuda": "no torch that finds a CUDA device", "gpu": "'gpu' is not known. Choose from auto, reference"}
    for name, words in expected.items():
        monkeypatch.setenv("CROWDWISE_ENGINE", name)
        with pytest.raises(ParameterError, match=words):
            cw.DawidSkene().fit(crowd().votes)


def test_engine_cuda_is_an_argument_of_aggregate(monkeypatch):
    votes = crowd(3, n=200).votes
    plain = cw.aggregate(votes, "dawid-skene")
    monkeypatch.setattr(cuda, "DEVICE", "cpu")
    monkeypatch.setattr(cuda, "available", lambda: True)
    moved = []
    put = cuda.Resident.put
    monkeypatch.setattr(cuda.Resident, "put", lambda self, *given: moved.append(1) or put(self, *given))
    other = cw.aggregate(votes, "dawid-skene", engine="cuda")
    assert moved
    assert not cuda._resident  # the votes left the device
    assert np.abs(other.posterior - plain.posterior).max() < 1e-8
    assert kernels.asked_for() != "cuda"
    monkeypatch.setattr(cuda, "available", lambda: False)
    with pytest.raises(ParameterError, match="no torch that finds a CUDA device"):
        cw.aggregate(votes, "dawid-skene", engine="cuda")
