"""How accurate labels are without truth, and when to stop because of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.active import accuracy_estimate
from crowdwise.active.accuracy_estimate import CrowdDraw, ItemVotes
from crowdwise.active.state import State
from crowdwise.active.stopping import Proof, StopRule, estimate_accuracy
from crowdwise.core.dependence import RHO, correct
from crowdwise.errors import InputError, NotFittedError, ParameterError


def stream(crowd: Any, model: Any = None, **options: Any) -> cw.Online:
    return cw.Online(model or cw.DawidSkene(), step=None, prior_strength=9.0, **options).partial_fit(crowd.votes)


def a_crowd(M: int, K: int, rng: np.random.Generator) -> CrowdDraw:
    """A crowd drawn from the prior."""
    r, s, c = rng.beta(*accuracy_estimate.GUESSING), rng.gamma(2.0) / 0.5, rng.gamma(2.0) / 0.25
    assert accuracy_estimate.ALIKE == (2.0, 0.25)
    assert accuracy_estimate.AS_CAREFUL == (2.0, 0.5)
    priors, log_weight = accuracy_estimate.crowd_priors(K)
    mu = np.stack([rng.dirichlet(row) for row in priors[rng.choice(len(priors), p=np.exp(log_weight))]])
    says = np.stack([[np.maximum(rng.dirichlet(c * row + 1e-6), 1e-9) for row in mu] for _ in range(M)])
    guess = np.clip(rng.beta(s * r, s * (1 - r), M), 1e-9, 1 - 1e-9)
    hard = float(np.clip(rng.beta(*accuracy_estimate.HARD_SHARE), 1e-9, 1 - 1e-9))
    return CrowdDraw(
        rng.dirichlet(np.full(K, accuracy_estimate.CLASSES)), hard, guess, says, mu, float(c), float(r), float(s)
    )


def some_votes(M: int, K: int, N: int, each: int, crowd: CrowdDraw, rng: np.random.Generator) -> ItemVotes:
    """Votes of a crowd, as the model has it."""
    z, hard = rng.choice(K, N, p=crowd.pi), rng.random(N) < crowd.hard
    item, who = np.repeat(np.arange(N), each), np.concatenate([rng.permutation(M)[:each] for _ in range(N)])
    keep = (1 - crowd.guess[who]) * (1 - accuracy_estimate.HARD * hard[item])
    knows = rng.random(len(item)) < keep
    theta = crowd.says[who, z[item]]
    said = (np.cumsum(theta, axis=1) < rng.random((len(item), 1)) * theta.sum(axis=1, keepdims=True)).sum(axis=1)
    label = np.where(knows, said, rng.integers(0, K, len(item)))
    return ItemVotes(np.arange(0, N * each, each), item, who, label, np.empty(0), np.full(N, -1), M, K)


# -- the parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_the_likelihood_is_that_of_all_truths_and_difficulties(weighted: bool) -> None:
    """Three items with three votes: all (3 classes x 2)^3 states are added up one by one."""
    rng = np.random.default_rng(3)
    M, K, N, each = 4, 3, 3, 3
    crowd = replace(a_crowd(M, K, rng), hard=0.3)
    answers = some_votes(M, K, N, each, crowd, rng)
    weight = rng.uniform(0.5, 2.0, N * each) if weighted else np.ones(N * each)
    answers = replace(answers, truth=np.array([-1, 2, -1]), weight=weight if weighted else np.empty(0))
    total, right = 0.0, np.zeros((N, K))
    for z in product(range(K), repeat=N):
        for d in product(range(2), repeat=N):
            p = 1.0
            for n in range(N):
                p *= crowd.pi[z[n]] * (crowd.hard if d[n] else 1 - crowd.hard) * (n != 1 or z[n] == 2)
                for s in range(n * each, (n + 1) * each):
                    m, label = answers.annotator[s], answers.label[s]
                    keep = (1 - crowd.guess[m]) * (1 - accuracy_estimate.HARD * d[n])
                    p *= (keep * crowd.says[m, z[n], label] + (1 - keep) / K) ** weight[s]
            total += p
            right[np.arange(N), z] += p
    found, joint = accuracy_estimate.likelihood(answers, crowd)
    assert found == pytest.approx(np.log(total), rel=1e-10)
    q = (joint[:K] + joint[K:]).T
    assert np.allclose(q / q.sum(axis=1, keepdims=True), right / total)


def test_votes_are_summed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    crowd = a_crowd(6, 2, rng)
    answers = some_votes(6, 2, 50, 3, crowd, rng)
    whole = accuracy_estimate.likelihood(answers, crowd)
    monkeypatch.setattr(accuracy_estimate, "BLOCK", 7)
    blocks = accuracy_estimate.likelihood(answers, crowd)
    assert blocks[0] == pytest.approx(whole[0])
    assert np.allclose(blocks[1], whole[1])


def test_the_hierarchy_has_the_posterior_of_a_grid() -> None:
    """mu and c of four coins, beside two-dimensional integration of their Beta-binomial likelihood."""
    from scipy.special import betaln

    counts = np.array([[9, 1], [7, 3], [2, 8], [6, 4]], dtype=np.float64)
    mu, c = np.meshgrid((np.arange(400) + 0.5) / 400, np.exp(np.linspace(np.log(0.1), np.log(200), 400)))
    log = np.log(mu) + 3 * np.log1p(-mu) + 2 * np.log(c) - 0.25 * c  # Beta(2, 4); Gamma(2, 0.25) on a grid of log c
    for heads, tails in counts:
        log += betaln(heads + c * mu, tails + c * (1 - mu)) - betaln(c * mu, c * (1 - mu))
    p = np.exp(log - log.max())
    expected = [(p * x).sum() / p.sum() for x in (mu, np.log(c))]
    rng, value, size, kept = np.random.default_rng(0), np.array([[0.5, 0.5]]), 5.0, []
    for _ in range(4000):
        value, size = accuracy_estimate.hierarchy(
            counts[:, None], np.array([[[2.0, 4.0]]]), np.zeros(1), value, size, (2.0, 0.25), rng
        )
        kept.append((value[0, 0], np.log(size)))
    assert np.allclose(np.mean(kept, axis=0), expected, atol=0.1)


def test_what_the_crowd_knows_is_learned() -> None:
    """Of two priors the one that the counts go with is taken: as often as Dirichlet-multinomial probabilities say."""
    from scipy.special import gammaln

    priors, log_weight = accuracy_estimate.crowd_priors(3)
    assert np.exp(log_weight).sum() == pytest.approx(1.0)
    assert np.allclose(priors.sum(axis=2), accuracy_estimate.SAME)
    one = np.array([[[8.0, 1.0]], [[1.0, 8.0]]])
    counts = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])  # single guests have tables of their own
    log = np.log([0.3, 0.7]) + (gammaln(one + counts.sum(axis=0)) - gammaln(one)).sum(axis=(1, 2))
    share = np.exp(log[0]) / np.exp(log).sum()
    expected = share * 10 / 12 + (1 - share) * 3 / 12  # means of Dirichlet(prior + t)
    rng = np.random.default_rng(0)
    half = np.array([[0.5, 0.5]])
    drawn = [
        accuracy_estimate.hierarchy(counts, one, np.log([0.3, 0.7]), half, 1.0, (2.0, 0.25), rng)[0][0, 0]
        for _ in range(2000)
    ]
    assert np.mean(drawn) == pytest.approx(expected, abs=0.03)


@pytest.mark.slow
def test_crowds_that_are_drawn_again_and_again_stay_what_they_were_beforehand() -> None:
    """Votes from a crowd, a crowd from the votes, and so on: if every draw is right, the crowds stay those that are
    drawn from the prior (Geweke 2004)."""
    rng = np.random.default_rng(1)
    M, K, N = 4, 2, 5
    crowd, kept = a_crowd(M, K, rng), []
    for turn in range(2500):
        answers = some_votes(M, K, N, 2, crowd, rng)
        log_evidence, joint = accuracy_estimate.likelihood(answers, crowd)
        crowd, joint, _ = accuracy_estimate.shift(answers, crowd, log_evidence, joint, (0.3, 1.0, 3.0)[turn % 3], rng)
        crowd = accuracy_estimate.draw(answers, crowd, joint, rng)
        kept.append((crowd.crowd_guess, crowd.guess.mean(), crowd.hard, crowd.crowd_says[0, 0], crowd.says[0, 0, 0],
                     crowd.pi[0], np.log(crowd.alike), np.log(crowd.as_careful)))  # fmt: skip
    found = np.mean(kept, axis=0)
    digamma_2 = 0.4228  # E log of Gamma(2, 1)
    guess, hard = (a / (a + b) for a, b in (accuracy_estimate.GUESSING, accuracy_estimate.HARD_SHARE))
    priors, log_weight = accuracy_estimate.crowd_priors(K)
    says = (np.exp(log_weight) * priors[:, 0, 0]).sum() / accuracy_estimate.SAME
    expected = [guess, guess, hard, says, says, 0.5, digamma_2 - np.log(0.25), digamma_2 - np.log(0.5)]
    assert np.allclose(found[:6], expected[:6], atol=0.04)
    assert np.allclose(found[6:], expected[6:], atol=0.2)


def test_an_interval_has_the_crowds_and_the_items_in_it() -> None:
    """All crowds alike: a normal with the variance of the items, WIDER times as wide. Or crowds alone."""
    low, high = accuracy_estimate.interval(np.full(50, 0.8), np.full(50, 0.001), 100_000, 0.95)
    half = 1.96 * np.sqrt(0.001) * accuracy_estimate.WIDER
    assert (low, high) == pytest.approx((0.8 - half, 0.8 + half), abs=0.008)
    mean = np.linspace(0.5, 0.7, 201)
    low, high = accuracy_estimate.interval(mean, np.zeros(201), 100_000, 0.9)
    assert (low, high) == pytest.approx(
        (0.6 - 0.09 * accuracy_estimate.WIDER, 0.6 + 0.09 * accuracy_estimate.WIDER), abs=0.003
    )
    assert accuracy_estimate.interval(np.full(50, 0.999), np.full(50, 1e-5), 400, 0.95)[1] == 1.0


# -- the estimate ------------------------------------------------------------------------------------------------------


def gaps(kind: str, votes: int, seeds: range, **options: Any) -> tuple[float, float, float]:
    """Over crowds: what the estimate is too high by, what the posterior is, and how often the interval is right."""
    rows = []
    for seed in seeds:
        crowd = cw.simulate.SCENARIOS[kind](400, n_annotators=30, votes_per_item=votes, random_state=seed, **options)
        online = stream(crowd)
        real, found = online.consensus().score(crowd.truth), estimate_accuracy(online, dependence="none")
        plain = online.e_step()[0].max(axis=1).mean()
        rows.append((found.accuracy - real, plain - real, found.low <= real <= found.high))
    off, plain_off, inside = np.mean(rows, axis=0)
    return float(off), float(plain_off), float(inside)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "votes", "options", "n_seeds", "bound"),
    [
        ("one-coin", 2, {"n_classes": 3}, 4, 0.03),
        ("dirichlet", 3, {"n_classes": 4}, 4, 0.05),
        ("hammer-spammer", 3, {"accuracy": 0.85}, 6, 0.03),
        ("dirichlet", 6, {"n_classes": 3}, 4, 0.02),
    ],
)
def test_it_is_near(kind: str, votes: int, options: dict[str, Any], n_seeds: int, bound: float) -> None:
    off, plain, inside = gaps(kind, votes, range(200, 200 + n_seeds), **options)
    assert abs(off) < bound
    assert abs(off) < plain
    assert inside > 0.6


def test_hard_items_do_not_deceive_it() -> None:
    """The stream takes all items for alike, and is two points too sure."""
    off, plain, inside = gaps("difficulty", 7, range(200, 203))
    assert abs(off) < 0.015
    assert plain > abs(off) + 0.005
    assert inside >= 2 / 3


def test_one_vote_per_item_says_nothing() -> None:
    crowd = cw.simulate.one_coin(200, n_annotators=20, n_classes=4, votes_per_item=1, random_state=0)
    online = stream(crowd)
    found = estimate_accuracy(online)
    assert not found.known
    assert found.pairs == 0
    assert found.low == 0.25
    assert found.high >= online.e_step()[0].max(axis=1).mean()
    assert found.high > 0.85
    assert found.low < online.consensus().score(crowd.truth) < found.high
    assert StopRule(target=0.2).why_stop(1.0, 1.0, online) is None  # whatever was asked


def test_some_items_with_two_votes_say_more() -> None:
    widths = []
    for votes in (1, 2, 5):
        crowd = cw.simulate.one_coin(300, n_annotators=20, votes_per_item=votes, random_state=1)
        found = estimate_accuracy(stream(crowd))
        assert found.pairs == 300 * votes * (votes - 1) // 2
        assert found.known == (votes > 1)
        widths.append(found.high - found.low)
    assert widths[1] > widths[2]


def test_known_truth_teaches_and_its_labels_do_not_count() -> None:
    crowd = cw.simulate.one_coin(60, n_annotators=8, votes_per_item=3, random_state=0)
    online = cw.Online(cw.DawidSkene(), step=None).partial_fit(crowd.votes, gold=crowd.truth)
    found = estimate_accuracy(online)
    assert not found.known and found.items == 0 and (found.low, found.high) == (0.5, 1.0)
    alone = cw.simulate.one_coin(60, n_annotators=8, votes_per_item=1, random_state=0)
    some = {n: alone.votes.classes[alone.truth[n]] for n in alone.votes.items[:15].tolist()}
    online = cw.Online(cw.DawidSkene(), step=None).partial_fit(alone.votes, gold=some)
    found = estimate_accuracy(online)
    assert found.pairs == 15
    assert not found.known
    assert found.items == 45 and found.low == 0.5


def test_good_and_bad_crowds_differ() -> None:
    estimates = []
    for right in (0.6, 0.75, 0.95):
        crowd = cw.simulate.hammer_spammer(300, n_annotators=15, skill=right, votes_per_item=4, random_state=0)
        estimates.append(estimate_accuracy(stream(crowd)).accuracy)
    assert estimates[0] < 0.8
    assert estimates[0] < estimates[1] < estimates[2]
    assert estimates[2] > 0.92


def test_it_repeats_itself_and_changes_nothing() -> None:
    crowd = cw.simulate.dirichlet(80, n_annotators=10, votes_per_item=3, random_state=0)
    online = stream(crowd)
    before = online.posterior.copy(), online.tables.counts.copy()
    first, second = (estimate_accuracy(online, random_state=5, dependence="none") for _ in range(2))
    assert first == second
    assert estimate_accuracy(online, random_state=6, dependence="none").accuracy != first.accuracy
    assert np.array_equal(before[0], online.posterior)
    assert np.array_equal(before[1], online.tables.counts)
    narrow = estimate_accuracy(online, level=0.5, random_state=5, dependence="none")
    assert first.low < narrow.low < narrow.accuracy < narrow.high < first.high


def test_weights_of_one_are_no_weights() -> None:
    rng = np.random.default_rng(0)
    answers = some_votes(6, 3, 40, 3, a_crowd(6, 3, rng), rng)
    q = np.full((40, 3), 1 / 3)
    plain = accuracy_estimate.accuracy_draws(answers, np.zeros(40, int), q, 10, np.random.default_rng(1))
    ones = accuracy_estimate.accuracy_draws(
        replace(answers, weight=np.ones(120)), np.zeros(40, int), q, 10, np.random.default_rng(1)
    )
    assert np.allclose(plain, ones)


def test_decayed_statistics_and_a_single_class() -> None:
    crowd = cw.simulate.one_coin(200, n_annotators=12, n_classes=3, votes_per_item=6, random_state=0)
    online = cw.Online(cw.OneCoin()).partial_fit(crowd.votes)
    found = estimate_accuracy(online, dependence="none")
    assert found.low <= online.consensus().score(crowd.truth) <= found.high
    assert found.high - found.low < 0.2
    one = cw.Votes.from_records([("a", "x", "yes"), ("a", "y", "yes"), ("b", "x", "yes")])
    assert estimate_accuracy(cw.Online(cw.DawidSkene(), classes=["yes"]).partial_fit(one)).accuracy == 1.0


def test_fewer_draws_with_more_votes() -> None:
    assert accuracy_estimate.n_draws(100) == accuracy_estimate.MAX_DRAWS
    assert accuracy_estimate.n_draws(10**9) == accuracy_estimate.MIN_DRAWS
    assert accuracy_estimate.MIN_DRAWS <= accuracy_estimate.n_draws(10_000) <= accuracy_estimate.MAX_DRAWS


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_it_stops_when_the_lower_end_is_there() -> None:
    crowd = cw.simulate.hammer_spammer(300, n_annotators=15, skill=0.9, votes_per_item=7, random_state=0)
    online = stream(crowd)
    found = estimate_accuracy(online)
    enough, more = StopRule(target=found.low - 0.01), StopRule(target=found.low + 0.005)
    assert "the labels are accurate enough" in str(enough.why_stop(1.0, 1.0, online))
    assert enough.why_stop(1.0, 1.0, online, found) == enough.why_stop(1.0, 1.0, online)
    assert more.why_stop(1.0, 1.0, online) is None
    assert more.why_stop(1.0, 1.0, online, found) is None


def test_what_is_refused() -> None:
    with pytest.raises(NotFittedError, match="No votes have come in yet"):
        estimate_accuracy(cw.Online(cw.DawidSkene()))
    crowd = cw.simulate.one_coin(20, n_annotators=5, votes_per_item=2, random_state=0)
    with pytest.raises(ParameterError, match=r"level=1\.5"):
        estimate_accuracy(stream(crowd), level=1.5)


# -- votes that err together -------------------------------------------------------------------------------------------


def test_real_crowds_are_not_overrated(real):
    """Crowds drawn from a model of independent votes take hard items for easy ones: 97 % where 84 % are right."""
    votes = cw.read_dataset(real("dog"), on_duplicate="first").votes
    online = cw.Online(cw.DawidSkene(), step=None).partial_fit(votes)
    score = online.consensus().score(votes.truth)
    sure, found = estimate_accuracy(online, dependence="none"), estimate_accuracy(online)
    assert sure.low > score + 0.05
    assert found.low < score < found.high and found.accuracy < sure.accuracy - 0.03
    assert found.rho == online.shown_dependence().rho == RHO
    assert sure.rho == 0.0


def test_items_are_finished_by_the_corrected_posterior():
    crowd = cw.simulate.one_coin(60, n_annotators=12, n_classes=2, votes_per_item=5, random_state=0)
    online = stream(crowd)
    state = State.of(online)
    q, found = online.e_step()[0], online.shown_dependence()
    assert np.allclose(state.corrected, correct(online.posterior[:60], np.full(60, 5.0), found))
    assert np.array_equal(StopRule(probability=0.9).finished(state), state.corrected.max(axis=1) >= 0.9)
    assert state.corrected.max(axis=1).mean() < q.max(axis=1).mean()
    learner = np.tile([0.9, 0.1], (60, 1))
    both = state.with_learner(learner)
    odds = np.log(both.corrected[:, 0] / both.corrected[:, 1]) - np.log(state.corrected[:, 0] / state.corrected[:, 1])
    assert np.allclose(odds, np.log(9.0) - np.log(state.prior[0] / state.prior[1]))
    assert np.array_equal(state.replace(posterior=learner).corrected, learner)


def test_gold_and_a_given_correlation_of_a_stream():
    crowd = cw.simulate.one_coin(80, n_annotators=10, n_classes=3, votes_per_item=4, random_state=1)
    given = cw.Online(cw.DawidSkene(dependence=0.6), step=None).partial_fit(crowd.votes)
    assert given.shown_dependence().rho == 0.6 and given.shown_dependence().source == "given"
    online = stream(crowd)
    before = online.shown_dependence()
    assert online.shown_dependence() is before  # not estimated again
    known = online.add_gold({n: crowd.votes.classes[crowd.truth[n]] for n in range(30)})
    found = known.shown_dependence()
    assert found.source == "gold" and found.n_gold == 30 and len(found.bias) == 3
    q = known.corrected(known.e_step()[0])
    assert np.array_equal(q[np.arange(30), crowd.truth[:30]], np.ones(30))


def _labels(wrong: Any, N: int) -> cw.Online:
    """A stream whose labels are class 0, but for the wrong ones."""
    votes = cw.Votes.from_dense(np.isin(np.arange(N), wrong).astype(int)[:, None].repeat(3, axis=1))
    online = cw.Online(cw.OneCoin(), classes=[0, 1], step=None)
    return online.partial_fit(votes)


def test_a_proof_is_false_as_rarely_as_stated_however_often_one_looks() -> None:
    """Labels change between looks, and one more of them is wrong each time than is allowed."""
    N, rule, rng = 300, StopRule(max_error=0.05, confidence=0.7), np.random.default_rng(0)
    streams = [_labels(rng.choice(N, 16, replace=False), N) for _ in range(4)]
    taught, false, draws = np.zeros(N, dtype=bool), 0, 150
    for _ in range(draws):
        proof = Proof().drawn_anew(80, taught, rng)
        proof = proof.with_gold(dict.fromkeys(proof.drawn, 0))
        for at, online in enumerate(streams):
            proof = proof.looked(rule, online, taught, at)
        false += any(look.proven for look in proof.looks)
    assert 0 < false / draws <= 0.3 * (1.0 - 1.0 / 5.0)  # the levels of four looks


def test_what_a_look_needs() -> None:
    rule, taught, shut, votes = StopRule(max_error=0.1), np.zeros(40, dtype=bool), np.zeros(40, dtype=bool), np.ones(40)
    proof = Proof().drawn_anew(30, taught, np.random.default_rng(0))
    assert "30 of the 30 items drawn have no gold label" in str(proof.why_not(rule, votes, shut, taught))
    with pytest.raises(InputError, match="1 of these items were not drawn"):
        proof.with_gold({next(n for n in range(40) if n not in proof.drawn): 0})
    proof = proof.with_gold(dict.fromkeys(proof.drawn, 0))
    assert proof.why_not(rule, votes, shut, taught) is None
    assert "1 items have no vote yet" in str(proof.why_not(rule, np.append(votes[1:], 0), shut, taught))
    more = np.zeros(41, dtype=bool)
    assert "1 items were added after the draw" in str(proof.why_not(rule, np.ones(41), more, more))
    told = np.isin(np.arange(40), proof.drawn[:1])
    assert "was told the class" in str(proof.why_not(rule, votes, shut, told))
    looked = proof.looked(rule, _labels([], 40), taught, 120)
    assert Proof.of(looked.facts()) == looked
    assert looked.looks[0].proven
    assert "at most 10% of the 40 labels are wrong, with 95% confidence" in str(looked.sentence(120))
    assert looked.sentence(121) is None  # labels may have changed since
    assert "changed after a look" in str(looked.why_not(StopRule(max_error=0.2), votes, shut, taught))
    with pytest.raises(InputError, match="not what they were"):
        looked.with_gold({proof.drawn[0]: 1})
    again = looked.drawn_anew(30, taught, np.random.default_rng(1))
    assert again.looks == looked.looks  # the levels of earlier looks stay spent
    assert again.sentence(120) is None
