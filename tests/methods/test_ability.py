"""Abilities and difficulties: equations against enumeration and finite differences, recovery, real crowds."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import spearmanr

import crowdwise as cw
from crowdwise.core.loop import Progress
from crowdwise.errors import ConvergenceWarning
from crowdwise.methods import ability_fit
from crowdwise.methods.ability_fit import AbilityProblem, VoteRows

KEYS = ["glad", "irt"]
CLASSES = {"glad": cw.GLAD, "irt": cw.ItemResponse}


def tiny(seed=0, N=4, M=3, K=3, weighted=True):
    """A few votes, some cells empty, with weights."""
    rng = np.random.default_rng(seed)
    cells = [(n, m) for n in range(N) for m in range(M) if rng.random() < 0.8]
    item, annotator = np.array(cells).T
    weight = rng.uniform(0.5, 2.0, len(cells)) if weighted else None
    label = rng.integers(0, K, len(cells))
    return cw.Votes.from_codes(
        item, annotator, label, items=range(N), annotators=range(M), classes=range(K), weight=weight
    )


def some_state(votes, seed=1, key="glad"):
    rng = np.random.default_rng(seed)
    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    guess = rng.dirichlet(np.ones(K), M) if key == "irt" else np.empty((M, 0))
    return ability_fit.AbilityState(rng.normal(1, 1, M), rng.normal(0, 0.7, N), guess, rng.dirichlet(np.ones(K)))


def probability(key, state, n, m, k, label):
    """P(m says label on n, given truth k), from the definition."""
    K = len(state.pi)
    if key == "glad":
        p = 1.0 / (1.0 + math.exp(-state.a[m] * math.exp(state.b[n])))
        return p if label == k else (1.0 - p) / (K - 1)
    p = 1.0 / (1.0 + math.exp(-(state.a[m] - state.b[n])))
    return p * (label == k) + (1.0 - p) * state.guess[m, label]


def likelihood(key, votes, state, gold=None):
    """Posterior and log-likelihood by summing over every way the truths could be."""
    N, K = len(votes), votes.n_classes
    total, weight = 0.0, np.zeros((N, K))
    rows = list(zip(votes.item, votes.annotator, votes.label, votes.weights, strict=True))
    for truths in itertools.product(*(range(K) if gold is None or gold[n] < 0 else [gold[n]] for n in range(N))):
        p = math.prod(state.pi[k] for k in truths)
        for n, m, label, w in rows:
            p *= probability(key, state, n, m, truths[n], label) ** w
        total += p
        weight[np.arange(N), truths] += p
    return weight / total, math.log(total)


def state_of(model):
    """What a fit reports, as a state."""
    c = model.consensus_
    difficulty = c.item_columns["difficulty"]
    return ability_fit.AbilityState(
        c.annotator_columns["ability"],
        -np.log(difficulty) if model.key == "glad" else difficulty,
        model.guess_,
        c.prior,
    )


def objective(model, votes, state, gold=None):
    """J from its definition: loops over items and votes, nothing shared with the package."""
    (mean_a, sd_a), (mean_b, sd_b) = (
        ((model.ability_mean, model.ability_sd), (model.ease_mean, model.ease_sd))
        if model.key == "glad"
        else ((model.ability_mean, model.ability_sd), (0.0, model.difficulty_sd))
    )
    value = 0.0
    for n in range(len(votes)):
        logit = np.log(state.pi)
        for s in range(votes.indptr[n], votes.indptr[n + 1]):
            m, label = votes.annotator[s], votes.label[s]
            p = [probability(model.key, state, n, m, k, label) for k in range(votes.n_classes)]
            logit = logit + votes.weights[s] * np.log(p)
        value += logit[gold[n]] if gold is not None and gold[n] >= 0 else np.logaddexp.reduce(logit)
    for mean, sd, values in ((mean_a, sd_a, state.a), (mean_b, sd_b, state.b)):
        value += sum(-((v - mean) ** 2) / (2 * sd**2) - math.log(sd * math.sqrt(2 * math.pi)) for v in values)
    if model.key == "irt":
        value += model.guess_smoothing / votes.n_classes * np.log(state.guess).sum()
    return value


def problem(key, votes, gold=None):
    return CLASSES[key]()._problem(votes, gold)


# -------------------------------------------------------------------- the equations


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("gold", [None, np.array([2, -1, -1, 0])])
@pytest.mark.parametrize("seed", range(4))
def test_posterior_and_likelihood_equal_enumeration_over_all_truths(key, gold, seed):
    votes = tiny(seed)
    state = some_state(votes, seed, key)
    q, _, evidence, _ = CLASSES[key]()._pass(problem(key, votes, gold), state)
    expected, total = likelihood(key, votes, state, gold)
    assert np.allclose(q, expected, atol=1e-12)
    assert abs(evidence.sum() - total) < 1e-10


def test_credit_of_irt_equals_enumeration_over_who_knew():
    """P(the annotator of a vote knew), over all truths and all ways of knowing and guessing."""
    votes = tiny(5, N=2, M=3, K=3, weighted=False)
    state = some_state(votes, 5, "irt")
    S, K = votes.n_votes, votes.n_classes
    knew, total = np.zeros(S), 0.0
    rows = list(zip(votes.item, votes.annotator, votes.label, strict=True))
    for truths in itertools.product(range(K), repeat=2):
        for known in itertools.product((False, True), repeat=S):
            p = math.prod(state.pi[k] for k in truths)
            for (n, m, label), knows in zip(rows, known, strict=True):
                chance = 1.0 / (1.0 + math.exp(state.b[n] - state.a[m]))
                p *= chance * (label == truths[n]) if knows else (1.0 - chance) * state.guess[m, label]
            total += p
            knew += p * np.array(known)
    _, c, evidence, _ = cw.ItemResponse()._pass(problem("irt", votes), state)
    assert np.allclose(c, knew / total, atol=1e-12)
    assert abs(evidence.sum() - math.log(total)) < 1e-10


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("K", [2, 3])
def test_one_expectation_step_equals_crowd_kit(K):
    pd = pytest.importorskip("pandas")
    aggregation = pytest.importorskip("crowdkit.aggregation")
    votes = tiny(7, N=6, M=4, K=K, weighted=False)
    state = some_state(votes, 7)
    frame = pd.DataFrame({"task": votes.item, "worker": votes.annotator, "label": votes.label})
    peer = aggregation.GLAD(labels_priors=pd.Series(state.pi, index=range(K)))
    peer._init(frame)
    peer.alphas_, peer.betas_ = pd.Series(state.a, index=range(4)), pd.Series(state.b, index=range(6))
    peer._e_step(peer._join_all(frame, peer.alphas_, peer.betas_, peer.priors_))
    q, *_ = cw.GLAD()._pass(problem("glad", votes), state)
    assert np.allclose(q, peer.probas_.loc[range(6), range(K)].to_numpy(), atol=1e-12)


def numeric(f, at, step=1e-6):
    out = np.empty_like(at)
    for i in range(len(at)):
        up, down = at.copy(), at.copy()
        up[i] += step
        down[i] -= step
        out[i] = (f(up) - f(down)) / (2 * step)
    return out


@pytest.mark.parametrize("key", KEYS)
def test_gradients_equal_finite_differences(key):
    votes = tiny(3, N=5, M=4)
    state, to, model = some_state(votes, 3, key), problem(key, votes), CLASSES[key]()
    c = np.random.default_rng(0).random(votes.n_votes)
    ga, gb = ability_fit.gradient(to, c, state.a, state.b)
    assert np.allclose(ga, numeric(lambda a: ability_fit.surrogate(to, c, a, state.b), state.a), atol=1e-7)
    assert np.allclose(gb, numeric(lambda b: ability_fit.surrogate(to, c, state.a, b), state.b), atol=1e-7)

    # With the credits of the posterior it is the gradient of J (Fisher's identity).
    _, c, *_ = model._pass(to, state)
    ga, gb = ability_fit.gradient(to, c, state.a, state.b)

    def J(a, b):
        return objective(model, votes, ability_fit.AbilityState(a, b, state.guess, state.pi))

    assert np.allclose(ga, numeric(lambda a: J(a, state.b), state.a), atol=1e-6)
    assert np.allclose(gb, numeric(lambda b: J(state.a, b), state.b), atol=1e-6)


@pytest.mark.parametrize("key", KEYS)
def test_newton_direction_solves_the_dense_fisher_system(key, monkeypatch):
    votes = tiny(2, N=7, M=5)
    state, to = some_state(votes, 2, key), problem(key, votes)
    M, N = 5, 7
    x, u, v = to.x(state.a, state.b)
    p = 1.0 / (1.0 + np.exp(-x))
    H = np.diag(np.concatenate([np.full(M, to.on_a[1] ** -2.0), np.full(N, to.on_b[1] ** -2.0)]))
    for s in range(votes.n_votes):
        row = np.zeros(M + N)
        row[votes.annotator[s]] = np.broadcast_to(u, x.shape)[s]
        row[M + votes.item[s]] = np.broadcast_to(v, x.shape)[s]
        H += votes.weights[s] * p[s] * (1 - p[s]) * np.outer(row, row)
    g = np.random.default_rng(1).normal(size=M + N)
    exact = np.linalg.solve(H, g)
    found = np.concatenate(ability_fit.direction(to, state.a, state.b, g[:M], g[M:]))
    assert np.allclose(found, exact, atol=0.05 * np.abs(exact).max())
    for inner in (0, 1, 2):  # cut short it still points upwards
        monkeypatch.setattr(ability_fit, "INNER", inner)
        assert g @ np.concatenate(ability_fit.direction(to, state.a, state.b, g[:M], g[M:])) > 0


@pytest.mark.parametrize("key", KEYS)
def test_newton_steps_reach_the_maximum_an_independent_optimiser_finds(key):
    votes = tiny(4, N=8, M=5)
    to = problem(key, votes)
    c = np.random.default_rng(4).random(votes.n_votes)
    start = np.concatenate([np.full(5, to.on_a[0]), np.full(8, to.on_b[0])])
    peer = minimize(lambda z: -ability_fit.surrogate(to, c, z[:5], z[5:]), start, method="BFGS")
    a, b, last = start[:5], start[5:], -np.inf
    for _ in range(8):
        a, b = ability_fit.ascend(to, c, a, b)
        now = ability_fit.surrogate(to, c, a, b)
        assert now >= last
        last = now
    assert abs(last + peer.fun) < 1e-6


def test_a_step_cut_to_reach_still_goes_up():
    ga, gb = np.array([1.0, -5.0]), np.array([0.1])
    a, b = ability_fit.within_reach(ga, gb, np.array([1.0, 0.5]), np.array([100.0]))  # cut, it would go down
    assert np.abs(np.concatenate([a, b])).max() <= ability_fit.REACH
    assert ga @ a + gb @ b > 0


@pytest.mark.parametrize("key", KEYS)
def test_difficulties_settle_on_the_highest_hill(key):
    sim = cw.simulate.difficulty(60, n_annotators=12, n_classes=3, votes_per_item=6, random_state=3)
    votes, model = sim.votes, CLASSES[key]()
    state, to = some_state(votes, 8, key), problem(key, votes)

    def height(b):
        found = model._pass(to, ability_fit.AbilityState(state.a, b, state.guess, state.pi))[2]
        return found + ability_fit.log_gaussian(b, to.on_b)

    best = height(model._with_best_b(to, state).b)
    for point in np.linspace(to.on_b[0] - 4 * to.on_b[1], to.on_b[0] + 4 * to.on_b[1], 401):
        assert (height(np.full(60, point)) <= best + 1e-9).all()


# -------------------------------------------------------------------- the climb


@pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("class_prior", ["uniform", "learned"])
def test_objective_is_that_of_the_definition_and_never_falls(key, class_prior):
    sim = cw.simulate.difficulty(50, n_annotators=10, n_classes=3, votes_per_item=5, random_state=0)
    gold = np.where(np.arange(50) < 8, sim.truth, -1)
    for told in (None, gold):
        seen: list[Progress] = []
        for passes in (1, 2, 5, 300):
            model = CLASSES[key](max_iter=passes, class_prior=class_prior)
            c = model.fit(sim.votes, told, callback=seen.append).consensus_
            assert abs(c.objective - objective(model, sim.votes, state_of(model), told)) < 1e-7
            assert (np.diff(c.trace) >= -1e-9).all()
        assert c.converged
        assert [p.objective for p in seen[-c.iterations :]] == c.trace.tolist()


@pytest.mark.parametrize("key", KEYS)
def test_nothing_is_left_to_climb(key):
    """From where a fit ends, an independent optimiser of J over abilities and difficulties finds next to nothing."""
    sim = cw.simulate.difficulty(150, n_annotators=15, votes_per_item=6, random_state=1)
    model = CLASSES[key](tol=1e-9, max_iter=2000).fit(sim.votes)
    state, to, M = state_of(model), problem(key, sim.votes), 15

    def minus_J(z):
        at = ability_fit.AbilityState(z[:M], z[M:], state.guess, state.pi)
        _, c, evidence, _ = model._pass(to, at)
        return -model._objective(to, at, evidence), -np.concatenate(ability_fit.gradient(to, c, z[:M], z[M:]))

    end = minimize(minus_J, np.concatenate([state.a, state.b]), jac=True, method="L-BFGS-B")
    assert -end.fun - model.consensus_.objective < 1e-5 * sim.votes.n_votes


def test_a_fit_cut_short_says_so():
    sim = cw.simulate.difficulty(100, random_state=0)
    with pytest.warns(ConvergenceWarning, match="glad stopped after"):
        cw.GLAD(max_iter=1).fit(sim.votes)


# -------------------------------------------------------------------- recovery


def correlation(x, y):
    return spearmanr(x, y).statistic


def test_glad_recovers_abilities_better_with_more_items():
    found = []
    for N in (40, 200, 1500):
        sims = [cw.simulate.difficulty(N, n_annotators=40, votes_per_item=10, random_state=s) for s in range(3)]
        found.append(
            np.mean(
                [
                    correlation(cw.GLAD().fit(s.votes).consensus_.annotator_columns["ability"], s.parameters["ability"])
                    for s in sims
                ]
            )
        )
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.95


def test_glad_recovers_difficulties_better_with_more_votes():
    found = []
    for r in (3, 12, 60):
        sim = cw.simulate.difficulty(600, n_annotators=80, n_classes=3, votes_per_item=r, random_state=2)
        difficulty = cw.GLAD().fit(sim.votes).consensus_.item_columns["difficulty"]
        found.append(correlation(-np.log(difficulty), sim.parameters["log_inverse_difficulty"]))
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.75


def knowers(N, M, K, r, seed, favourite=0.7):
    """A crowd of the ``irt`` model: difficulties, abilities and a favourite guess for everybody."""
    rng = np.random.default_rng(seed)
    a, d = rng.normal(0.5, 1.5, M), rng.normal(0, 1.0, N)
    liked = rng.integers(0, K, M)
    guess = np.full((M, K), (1 - favourite) / (K - 1))
    guess[np.arange(M), liked] = favourite
    item, annotator = cw.simulate.assign(N, M, r, random_state=rng)
    truth = rng.integers(0, K, N)
    knows = rng.random(len(item)) < 1 / (1 + np.exp(d[item] - a[annotator]))
    drawn = (rng.random(len(item))[:, None] > guess[annotator].cumsum(axis=1)).sum(axis=1).clip(max=K - 1)
    votes = cw.Votes.from_codes(
        item, annotator, np.where(knows, truth[item], drawn), items=range(N), annotators=range(M), classes=range(K)
    )
    return votes, truth, a, d, guess


def test_irt_recovers_its_own_crowd_better_with_more_data():
    errors, abilities = [], []
    for N in (60, 300, 2000):
        votes, truth, a, _, guess = knowers(N, 30, 4, 8, seed=1)
        model = cw.ItemResponse(difficulty_sd=1.0).fit(votes)
        abilities.append(correlation(model.ability_, a))
        clear = a < 1.0  # those who always know hardly ever guess
        errors.append(np.abs(model.guess_ - guess)[clear].mean())
    assert abilities[0] < abilities[1] < abilities[2]
    assert abilities[2] > 0.97
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.04
    assert model.consensus_.score(truth) > cw.aggregate(votes, "majority").score(truth)
    assert model.consensus_.score(truth) > cw.aggregate(votes, "glad").score(truth)


def test_irt_recovers_difficulties_better_with_more_votes():
    found = []
    for r in (3, 10, 40):
        votes, _, _, d, _ = knowers(500, 60, 3, r, seed=3)
        model = cw.ItemResponse(difficulty_sd=1.0).fit(votes)
        found.append(correlation(model.consensus_.item_columns["difficulty"], d))
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.75


def test_difficulty_pays_where_items_differ():
    """Less in accuracy than in knowing which labels to doubt."""
    for seed in range(3):
        sim = cw.simulate.difficulty(
            600, n_annotators=60, votes_per_item=15, log_inverse_difficulty=(0.0, 1.5), random_state=seed
        )
        coin, glad = (cw.aggregate(sim.votes, key) for key in ("one-coin", "glad"))
        assert float(cw.metrics.log_loss(glad, sim.truth)) < 0.9 * float(cw.metrics.log_loss(coin, sim.truth))
        assert glad.score(sim.truth) > coin.score(sim.truth) - 0.01


def test_even_guesses_keep_items_nobody_knows_from_drifting_into_one_class():
    for seed in range(2):
        sim = cw.simulate.difficulty(
            600, n_annotators=60, votes_per_item=25, log_inverse_difficulty=(0.0, 2.0), random_state=seed
        )
        free, even = (cw.aggregate(sim.votes, "irt", guess_smoothing=g) for g in (1.0, 20.0))
        assert np.abs(free.prior - 0.5).max() > 0.15 > np.abs(even.prior - 0.5).max()
        assert even.score(sim.truth) > max(free.score(sim.truth) + 0.05, 0.88)


def test_adversaries_get_negative_abilities_and_are_read_backwards():
    sim = cw.simulate.difficulty(400, n_annotators=20, votes_per_item=10, random_state=5)
    c = cw.GLAD().fit(sim.votes).consensus_
    sure = np.abs(sim.parameters["ability"]) > 0.3
    assert (np.sign(c.annotator_columns["ability"]) == np.sign(sim.parameters["ability"]))[sure].all()


def test_known_truth_turns_a_crowd_that_is_mostly_wrong():
    sim = cw.simulate.difficulty(300, n_annotators=15, ability=(-1.5, 0.3), votes_per_item=7, random_state=0)
    gold = np.where(np.arange(300) < 60, sim.truth, -1)
    rest = np.where(np.arange(300) < 60, -1, sim.truth)
    assert cw.aggregate(sim.votes, "glad").score(rest) < 0.2
    told = cw.aggregate(sim.votes, "glad", gold=gold)
    assert told.score(rest) > 0.85
    assert (told.annotator_columns["ability"] < 0).all()


def test_a_spammer_with_a_favourite_answer_is_seen_through():
    """Six of ten always say 0; four are good. Counting votes, everything is 0."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 300)
    good = np.where(rng.random((300, 4)) < 0.85, truth[:, None], rng.integers(0, 3, (300, 4)))
    votes = cw.Votes.from_dense(np.hstack([np.zeros((300, 6), dtype=int), good]), classes=[0, 1, 2])
    model = cw.ItemResponse().fit(votes)
    assert cw.aggregate(votes, "majority").score(truth) < 0.5
    assert model.consensus_.score(truth) > 0.95
    knows = model.consensus_.annotator_columns["knows"]
    assert knows[:6].max() < 0.2 < 0.6 < knows[6:].min()
    assert (model.guess_[:6, 0] > 0.95).all()


@pytest.mark.parametrize("key", KEYS)
def test_disputed_items_are_harder_than_unanimous_ones(key):
    sim = cw.simulate.difficulty(300, n_annotators=20, votes_per_item=9, random_state=4)
    difficulty = cw.aggregate(sim.votes, key).item_columns["difficulty"]
    most = sim.votes.shares().max(axis=1)
    assert difficulty[most > 0.99].mean() < difficulty[most < 0.7].mean()


@pytest.mark.parametrize("key", KEYS)
def test_an_item_without_votes_has_the_difficulty_of_the_prior(key):
    votes = cw.Votes.from_codes(
        [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], [0, 0, 1, 0, 1, 1], items=range(4), annotators=range(3), classes=[0, 1]
    )
    c = cw.aggregate(votes, key)
    assert abs(c.item_columns["difficulty"][3] - (math.exp(-1.0) if key == "glad" else 0.0)) < 1e-9
    assert abs(c.annotator_columns["ability"][2] - 1.0) < 1e-6  # nor has the third annotator any
    assert np.isfinite(c.confusion).all()


@pytest.mark.parametrize("key", KEYS)
def test_confusion_is_the_average_over_the_items_answered(key):
    sim = cw.simulate.difficulty(3000, n_annotators=10, n_classes=3, random_state=0)
    c = cw.aggregate(sim.votes, key)
    assert np.abs(c.confusion - sim.parameters["confusion"]).max() < 0.08
    assert np.allclose(c.confusion.sum(axis=2), 1.0)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("key", "name"), [("glad", "ease_sd"), ("irt", "difficulty_sd"), ("glad", "ability_sd")])
@pytest.mark.parametrize("sd", [1e-3, 100.0])
def test_extreme_priors_stay_finite(key, name, sd):
    sim = cw.simulate.difficulty(80, n_annotators=10, n_classes=4, votes_per_item=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        c = cw.aggregate(sim.votes, key, **{name: sd})
    assert np.isfinite(c.posterior).all()
    assert np.isfinite(c.item_columns["difficulty"]).all()
    assert (np.diff(c.trace) >= -1e-7).all()


def test_without_differences_between_items_glad_is_one_coin():
    """A narrow prior holds every ease at exp(0) = 1: sigmoid(a) is an accuracy, which a wide prior leaves free."""
    sim = cw.simulate.one_coin(500, n_annotators=15, n_classes=3, votes_per_item=6, random_state=0)
    glad = cw.GLAD(ease_mean=0.0, ease_sd=1e-4, ability_sd=50.0, tol=1e-10, max_iter=500).fit(sim.votes).consensus_
    coin = cw.OneCoin(prior=0.0, class_prior="uniform", tol=1e-12).fit(sim.votes).consensus_
    assert np.allclose(glad.posterior, coin.posterior, atol=2e-3)
    assert np.allclose(1 / (1 + np.exp(-glad.annotator_columns["ability"])), coin.confusion[:, 0, 0], atol=2e-3)


def test_rows_keep_the_votes_apart():
    votes = tiny(6)
    rows = VoteRows.of(votes)
    q = np.random.default_rng(0).random((len(votes), votes.n_classes))
    assert np.array_equal(rows.voted(q), q[votes.item, votes.label])
    assert isinstance(problem("irt", votes), AbilityProblem)


# -------------------------------------------------------------------- real crowds

REAL = {
    # Zheng et al. 2017 give GLAD 92.20 on D_Product and 95.20 on D_PosSent; crowd-kit reports 92.8 and 94.8. Here a
    # settled fit has 92.83 and 94.80, and passes 95.20 on its way (see the next test).
    ("glad", "d_product"): (0.9220, 0.010), ("glad", "d_sentiment"): (0.9520, 0.005),
    # No published figures; what this implementation gives.
    ("glad", "rte"): (0.925, 0.003), ("glad", "bluebird"): (0.722, 0.01), ("glad", "web"): (0.823, 0.005),
    ("irt", "d_product"): (0.935, 0.005), ("irt", "d_sentiment"): (0.959, 0.003), ("irt", "rte"): (0.929, 0.004),
    ("irt", "bluebird"): (0.898, 0.01), ("irt", "web"): (0.803, 0.005), ("irt", "music_genre"): (0.799, 0.005),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("key", "name"), REAL)
def test_reaches_on_real_crowds(key, name, real):
    votes = cw.read_dataset(real(name), on_duplicate="all").votes
    c = cw.aggregate(votes, key)
    figure, tolerance = REAL[key, name]
    assert abs(c.score(votes.truth) - figure) <= tolerance
    assert c.converged
    assert (np.diff(c.trace) >= -1e-9 * abs(c.trace[0])).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
def test_the_published_figure_on_sentiment_is_that_of_an_early_stop(real):
    votes = cw.read_dataset(real("d_sentiment"), on_duplicate="all").votes
    early, settled = (cw.aggregate(votes, "glad", max_iter=passes) for passes in (2, 200))
    assert abs(early.score(votes.truth) - 0.952) < 0.0015
    assert abs(settled.score(votes.truth) - 0.948) < 0.0015
    assert settled.objective > early.objective
