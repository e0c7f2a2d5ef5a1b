"""Bradley-Terry and its kin: the optimum, against others and by brute force; errors, degenerate graphs, annotators."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import crowdwise as cw
from crowdwise.answers import comparisons_likelihood as maths
from crowdwise.answers import comparisons_matches
from crowdwise.answers.comparisons_likelihood import Likelihood
from crowdwise.answers.comparisons_matches import Matches
from crowdwise.errors import ConnectionWarning, InputError, ParameterError

PAIR_METHODS = ("bradley-terry", "judge-bt", "crowd-bt", "position-bt", "mixture-bt")


def fit(table: Any, key: str = "bradley-terry", **params: Any) -> cw.Ranking:
    ranking: cw.Ranking = cw.aggregate(table, key, **params)
    return ranking


def log_p(p: Any, table: Any, ties: bool) -> Any:
    """S x 3 log probabilities of the outcomes, written down plainly."""
    N = table.n_items
    z = p[:N][table.left] - p[:N][table.right]
    tau = np.full(len(z), p[N] if ties else -np.inf)
    logit = np.stack([z / 2, -z / 2, tau], axis=1)
    return logit - np.log(np.exp(logit).sum(axis=1, keepdims=True))


# -------------------------------------------------------------------- the optimum


def test_the_optimum_is_that_of_choix_and_evalica() -> None:
    choix, evalica = pytest.importorskip("choix"), pytest.importorskip("evalica")
    for seed in range(3):
        table = cw.simulate.comparisons(15, n_comparisons=900, random_state=seed).comparisons
        found = fit(table, prior=0).scores
        won, lost = (
            np.where(table.outcome == side, table.left, table.right).tolist() for side in (0, 1)
        )  # fmt: skip
        theirs = choix.ilsr_pairwise(15, list(zip(won, lost, strict=True)), alpha=0.0, max_iter=1000, tol=1e-12)
        assert np.abs(theirs - theirs.mean() - found).max() < 1e-6
        winners = [evalica.Winner.X if y == 0 else evalica.Winner.Y for y in table.outcome.tolist()]
        other = evalica.bradley_terry(
            table.left.tolist(), table.right.tolist(), winners, tolerance=1e-13, limit=100_000
        ).scores  # fmt: skip
        log = np.log(other.sort_index().to_numpy())
        assert np.abs(log - log.mean() - found).max() < 1e-6


@pytest.mark.parametrize("prior", [0.0, 1.5])
def test_ties_by_brute_force(prior: float) -> None:
    table = cw.simulate.comparisons(5, n_comparisons=300, tie=0.3, random_state=1).comparisons

    def loss(p: Any) -> float:
        value = -log_p(p, table, True)[np.arange(table.n_answers), table.outcome].sum()
        s, t = p[:5], p[5] - np.log(2.0)
        value += 0.5 * prior * (np.logaddexp(0, s) + np.logaddexp(0, -s)).sum()
        value += 0.5 * prior * (np.logaddexp(0, t) + np.logaddexp(0, -t))
        return float(value + (s.sum() ** 2 if prior == 0 else 0.0))

    best = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-8})
    ranking = fit(table, prior=prior)
    assert np.abs(best.x[:5] - best.x[:5].mean() - ranking.scores).max() < 1e-5
    assert ranking.tie == pytest.approx(best.x[5], abs=1e-5)
    p = ranking.outcomes(0, 1)
    assert sum(p.values()) == pytest.approx(1.0)
    assert p["left"] / (p["left"] + p["right"]) == pytest.approx(ranking.probability(0, 1))
    assert p["tie"] ** 2 / (p["left"] * p["right"]) == pytest.approx(np.exp(2 * best.x[5]), rel=1e-4)  # nu squared


@pytest.mark.parametrize("ties", [False, True])
def test_crowd_and_position_by_brute_force(ties: bool) -> None:
    table = cw.simulate.comparisons(
        4, n_annotators=3, n_comparisons=250, reversed_=0.34, tie=0.0 if ties else None, random_state=2
    ).comparisons
    y, m, T = table.outcome, table.annotator, int(ties)
    at = np.arange(table.n_answers)

    def shared(p: Any) -> float:
        s = p[:4]
        value = 0.5 * (np.logaddexp(0, s) + np.logaddexp(0, -s)).sum()
        if ties:
            t = p[4] - np.log(2.0)
            value += 0.5 * (np.logaddexp(0, t) + np.logaddexp(0, -t))
        return float(value)

    def crowd(p: Any) -> float:
        theta = p[4 + T :]
        eta = 1 / (1 + np.exp(-theta))[m]
        q = np.exp(log_p(p, table, ties))
        turned = q[:, [1, 0, 2]]
        said = np.where(y == 2, q[:, 2], eta * q[at, y] + (1 - eta) * turned[at, y])
        return shared(p) - float(np.log(said).sum()) + float(
            (9.5 * np.logaddexp(0, -theta) + 0.5 * np.logaddexp(0, theta)).sum()
        )  # fmt: skip

    def position(p: Any) -> float:
        b, mean = p[4 + T : 7 + T], p[7 + T]
        z = p[:4][table.left] - p[:4][table.right] + b[m]
        logit = np.stack([z / 2, -z / 2, np.full(len(z), p[4] if ties else -np.inf)], axis=1)
        log = logit - np.log(np.exp(logit).sum(axis=1, keepdims=True))
        return shared(p) - float(log[at, y].sum()) + 0.5 * float(((b - mean) ** 2).sum())

    ranking = fit(table, "crowd-bt", tol=1e-13)
    start = np.concatenate([ranking.scores, np.zeros(T), np.full(3, 2.0)])
    best = minimize(crowd, start, method="BFGS", options={"gtol": 1e-7})
    assert np.abs(best.x[:4] - best.x[:4].mean() - ranking.scores).max() < 1e-4
    assert ranking.reliability is not None
    assert np.abs(1 / (1 + np.exp(-best.x[4 + T :])) - ranking.reliability).max() < 1e-5
    assert ranking.trace[-1] == pytest.approx(-best.fun, abs=1e-6)  # the objective, recomputed
    ranking = fit(table, "position-bt")
    best = minimize(position, np.zeros(8 + T), method="BFGS", options={"gtol": 1e-7})
    assert ranking.position is not None
    assert np.abs(best.x[:4] - best.x[:4].mean() - ranking.scores).max() < 1e-4
    assert np.abs(best.x[4 + T : 7 + T] - ranking.position).max() < 1e-4


@pytest.mark.parametrize("kind", ["plain", "reliable", "position"])
@pytest.mark.parametrize("ties", [False, True])
def test_derivatives(kind: str, ties: bool) -> None:
    table = cw.simulate.comparisons(
        5, n_annotators=3, n_comparisons=80, tie=0.1 if ties else None, random_state=3
    ).comparisons
    matches = Matches.of(table, by_annotator=kind != "plain", placed=kind == "position")
    model = Likelihood(kind, ties, 0.7, beta=(3.0, 1.0), spread=0.8)
    rng = np.random.default_rng(0)
    n = 5 + model.n_shared
    at = rng.normal(size=n + (0 if kind == "plain" else 3))

    def value(p: Any) -> float:
        return maths.log_likelihood(matches, model, p[:n], p[n:])[0] + maths.log_prior(model, p[:n], p[n:], 5)

    def slopes(p: Any) -> maths.Derivatives:
        return maths.MatchObjective(matches, model).at(p[:n], p[n:]).derivatives(True)

    def gradient(p: Any) -> Any:
        d = slopes(p)
        return np.concatenate([d.g, d.g_theta])

    step = 1e-6 * np.eye(len(at))
    assert np.abs(gradient(at) - [(value(at + e) - value(at - e)) / 2e-6 for e in step]).max() < 1e-6
    numeric = -np.array([(gradient(at + e) - gradient(at - e)) / 2e-6 for e in step])
    d = slopes(at)
    whole = np.zeros_like(numeric)
    whole[:n, :n] = d.H
    if len(d.D):
        whole[:n, n:], whole[n:, :n], whole[n:, n:] = d.C, d.C.T, np.diag(d.D)
    assert np.abs(whole - numeric).max() < 1e-6


def test_many_items_take_the_sparse_road_to_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    table = cw.simulate.comparisons(60, n_annotators=8, n_comparisons=3000, tie=-0.5, random_state=4).comparisons
    for key in ("bradley-terry", "judge-bt", "crowd-bt", "position-bt"):
        dense = fit(table, key)
        with monkeypatch.context() as other:
            other.setattr(comparisons_matches, "DENSE", 3)
            sparse = fit(table, key)
        assert np.abs(dense.scores - sparse.scores).max() < 1e-5
        assert np.abs(sparse.errors / dense.errors - 1.0).max() < 0.15  # estimated, by 100 random vectors
        assert dense.tie_error == pytest.approx(sparse.tie_error, rel=1e-5)
        for name in ("reliability_error", "position_error"):  # slopes: the sparse road leaves their scale out
            if getattr(dense, name) is not None:
                assert np.abs(getattr(sparse, name) / getattr(dense, name) - 1.0).max() < 0.15


@pytest.mark.parametrize("key", PAIR_METHODS)
def test_the_objective_never_falls(key: str) -> None:
    for seed in range(3):
        table = cw.simulate.comparisons(
            8, n_annotators=12, n_comparisons=300, spammers=0.3, reversed_=0.3, tie=-1.0, random_state=seed
        ).comparisons
        seen: list[float] = []
        model = getattr(cw, cw.ANSWER_METHODS[key].class_name)()
        model.fit(table, callback=lambda step, seen=seen: seen.append(step.objective))
        assert (np.diff(model.consensus_.trace) >= -1e-9).all() and len(seen) >= 2 and model.consensus_.converged


# -------------------------------------------------------------------- how sure


def test_standard_errors_cover() -> None:
    """Of 120 tables with 10 items each, 93 to 97 % of the 95 % intervals hold the true score."""
    for key, more in (("bradley-terry", {}), ("bradley-terry", {"tie": 0.0}), ("position-bt", {"position": 0.7})):
        inside, total = 0.0, 0
        for seed in range(120):
            crowd = cw.simulate.comparisons(10, n_annotators=4, n_comparisons=1500, random_state=seed, **more)
            ranking = fit(crowd.comparisons, key)
            inside += float((np.abs(ranking.scores - crowd.scores) < 1.96 * ranking.errors).sum())
            total += 10
        assert 0.93 <= inside / total <= 0.97, (key, more, inside / total)


def test_crowd_errors_cover() -> None:
    """Where reliabilities are spread as the prior says."""
    inside = np.zeros(2)
    for seed in range(80):
        crowd = cw.simulate.comparisons(10, n_annotators=12, n_comparisons=3000, honest=(10.0, 1.0), random_state=seed)
        ranking = fit(crowd.comparisons, "crowd-bt")
        people = ranking.to_frame("annotators", kind="dict")
        held = (people["reliability_low"] <= crowd.reliability) & (crowd.reliability <= people["reliability_high"])
        inside += [(np.abs(ranking.scores - crowd.scores) < 1.96 * ranking.errors).mean(), held.mean()]
    assert 0.93 <= inside[0] / 80 <= 0.97 and 0.92 <= inside[1] / 80 <= 0.98, inside / 80


def test_rank_intervals_cover_and_hold_the_rank() -> None:
    held = 0.0
    for seed in range(60):
        crowd = cw.simulate.comparisons(12, n_comparisons=800, random_state=seed)
        ranking = fit(crowd.comparisons)
        low, high = ranking.rank_interval()
        true = (-crowd.scores).argsort().argsort() + 1
        held += float(((low <= true) & (true <= high)).mean())
        assert (low <= ranking.ranks).all() and (ranking.ranks <= high).all()
    assert held / 60 >= 0.93
    wide, narrow = (np.subtract(*ranking.rank_interval(level)[::-1]).sum() for level in (0.99, 0.5))
    assert wide > narrow


# -------------------------------------------------------------------- degenerate tables


def test_parts_that_nothing_joins() -> None:
    table = cw.Comparisons.from_records(
        [("a", "b", "m", "left")] * 3 + [("b", "a", "m", "left")] + [("c", "d", "m", "left")] * 2
    )
    with pytest.warns(ConnectionWarning, match="2 parts"):
        ranking = fit(table)
    assert np.isfinite(ranking.scores).all() and ranking.components.tolist() == [0, 0, 1, 1]
    assert "up to the prior" in ranking.notes[0] and "component" in ranking.to_frame("items", kind="dict")
    assert any("Never lost: 'c'" in note for note in ranking.notes)
    with pytest.raises(InputError, match="not finite"):
        fit(table, prior=0)


def test_an_item_that_never_lost() -> None:
    table = cw.Comparisons.from_records(
        [("a", "b", "m", "left")] * 3 + [("b", "c", "m", "left")] * 2 + [("c", "b", "m", "left")]
    )
    ranking = fit(table)
    assert ranking.scores.argmax() == 0 and np.isfinite(ranking.scores).all()
    assert any("Never lost: 'a'" in note for note in ranking.notes)
    with pytest.raises(InputError, match="'a' never lost"):
        fit(table, prior=0)


def test_all_ties() -> None:
    table = cw.Comparisons.from_records([("a", "b", "m", "tie"), ("b", "c", "m", "tie")])
    ranking = fit(table)
    assert np.abs(ranking.scores).max() < 1e-9 and "Every comparison is a tie" in ranking.notes[0]
    assert ranking.ranks.tolist() == [1, 1, 1] and ranking.outcomes("a", "b")["tie"] > 0.5
    assert np.abs(fit(table, ties="half", prior=0).scores).max() < 1e-9
    with pytest.raises(InputError, match="ties='drop' leaves out"):
        fit(table, ties="drop")
    with pytest.raises(InputError, match="round a circle"):
        fit(table, prior=0)


def test_ties_and_scores_that_run_away_together() -> None:
    rows = [("a", "b", "m", "left"), ("a", "b", "m", "tie"), ("b", "a", "m", "tie")]
    with pytest.raises(InputError, match="round a circle"):
        fit(cw.Comparisons.from_records(rows), prior=0)
    # a > b > c and a tie of a and c leave no way to run.
    held = [("a", "b", "m", "left"), ("b", "c", "m", "left"), ("a", "c", "m", "tie")]
    ranking = fit(cw.Comparisons.from_records(held), prior=0)
    assert ranking.converged and np.isfinite(ranking.scores).all()


def test_one_annotator_and_no_rows() -> None:
    table = cw.simulate.comparisons(5, n_annotators=1, n_comparisons=200, random_state=0).comparisons
    assert "One annotator" in fit(table, "crowd-bt").notes[-1]
    for key in PAIR_METHODS:
        with pytest.raises(InputError, match="no row is left"):
            fit(table.select(np.zeros(table.n_answers, dtype=bool)), key)


def test_half_a_win_for_a_tie() -> None:
    rows = [("a", "b", "m", "left")] * 2 + [("a", "b", "m", "tie")] * 2 + [("b", "a", "m", "left")]
    ranking = fit(cw.Comparisons.from_records(rows), ties="half", prior=0)
    assert ranking.probability("a", "b") == pytest.approx(3 / 5)


def test_items_left_without_comparisons() -> None:
    table = cw.Comparisons.from_records([("a", "b", "m", "left"), ("b", "c", "eve", "left")]).without(["eve"])
    with pytest.warns(ConnectionWarning):
        ranking = fit(table)
    assert any("Never compared: 'c'" in note for note in ranking.notes) and np.isfinite(ranking.errors).all()


# -------------------------------------------------------------------- annotators


def mean_tau(keys: tuple[str, ...], seeds: int = 6, **more: Any) -> list[float]:
    out = []
    for seed in range(seeds):
        crowd = cw.simulate.comparisons(30, n_annotators=40, n_comparisons=6000, random_state=seed, **more)
        out.append([crowd.tau(fit(crowd.comparisons, key)) for key in keys])
    return list(np.mean(out, axis=0))


def test_crowd_bt_beats_bradley_terry_among_the_unreliable_and_equals_it_among_the_honest() -> None:
    keys = ("bradley-terry", "crowd-bt")
    plain, crowd = mean_tau(keys, reversed_=0.3)
    assert crowd > plain + 0.08
    plain, crowd = mean_tau(keys, spammers=0.3)
    assert crowd > plain + 0.015
    plain, crowd = mean_tau(keys)
    assert abs(crowd - plain) < 0.01


def test_the_mirror_is_avoided() -> None:
    for seed in range(8):
        crowd = cw.simulate.comparisons(15, n_annotators=20, n_comparisons=2000, reversed_=0.4, random_state=seed)
        for reliability in ((10.0, 1.0), (2.0, 1.0), "learned"):
            ranking = fit(crowd.comparisons, "crowd-bt", reliability=reliability)
            assert crowd.tau(ranking) > 0.5
            assert ranking.reliability is not None
            assert ((ranking.reliability > 0.5) == (crowd.reliability > 0.5)).mean() > 0.9


def test_reliabilities_are_recovered() -> None:
    crowd = cw.simulate.comparisons(
        20, n_annotators=12, n_comparisons=24_000, honest=0.85, spammers=0.25, reversed_=0.25, random_state=0
    )
    ranking = fit(crowd.comparisons, "crowd-bt")
    assert ranking.reliability is not None
    assert np.abs(ranking.reliability - crowd.reliability).max() < 0.1


def test_learned_reliabilities_follow_the_crowd() -> None:
    notes = {}
    for name, more in {"honest": {}, "mixed": {"reversed_": 0.3}}.items():
        crowd = cw.simulate.comparisons(30, n_annotators=40, n_comparisons=6000, random_state=0, **more)
        notes[name] = fit(crowd.comparisons, "crowd-bt", reliability="learned").notes[-1]
    assert "Beta(2, 1)" in notes["mixed"] and "Beta(2, 1)" not in notes["honest"]


def test_position_is_recovered_and_taken_out() -> None:
    # A judge who likes the first, and one pair always shown in the same places.
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(3000):
        first, second = ("worse", "better") if rng.random() < 0.9 else ("better", "worse")
        z = (0.5 if first == "better" else -0.5) + 1.5
        rows.append((first, second, "judge", "left" if rng.random() < 1 / (1 + np.exp(-z)) else "right"))
    table = cw.Comparisons.from_records(rows)
    ranking = fit(table, "position-bt")
    assert ranking.position is not None and ranking.position[0] == pytest.approx(1.5, abs=0.25)
    assert ranking.scores[0] > 0 > fit(table).scores[0]  # better, worse
    people = ranking.to_frame("annotators", kind="dict")
    assert people["position_low"][0] < 1.5 < people["position_high"][0] and people["first_rate"][0] > 0.7
    unplaced = cw.Comparisons.from_records(rows, placed=False)
    with pytest.raises(InputError, match="needs to know which item was shown first"):
        fit(unplaced, "position-bt")


# -------------------------------------------------------------------- habits


@pytest.mark.parametrize("key", PAIR_METHODS)
def test_order_names_and_seeds(key: str) -> None:
    table = cw.simulate.comparisons(
        7, n_annotators=6, n_comparisons=400, reversed_=0.2, tie=-1.0, random_state=5
    ).comparisons
    frame = table.to_frame("polars")
    ranking = fit(table, key)
    shuffled = fit(cw.Comparisons.from_frame(frame.sample(fraction=1.0, shuffle=True, seed=1)), key)
    assert (shuffled.scores == ranking.scores).all() and (shuffled.draws == ranking.draws).all()
    again = fit(table, key)
    assert (again.scores == ranking.scores).all() and (again.draws == ranking.draws).all()
    renamed = cw.Comparisons.from_codes(
        6 - table.left, 6 - table.right, 5 - table.annotator, table.outcome, items=[f"i{n}" for n in range(7)],
        annotators=[f"a{n}" for n in range(6)],
    )  # fmt: skip
    other = fit(renamed, key)
    assert np.abs(other.scores[::-1] - ranking.scores).max() < 1e-4
    if key != "mixture-bt":  # whose draws go by random beginnings as well
        assert (other.rank_interval()[0][::-1] == ranking.rank_interval()[0]).mean() > 0.9


@pytest.mark.parametrize("key", PAIR_METHODS)
def test_saved_and_loaded(key: str, tmp_path: Path) -> None:
    table = cw.simulate.comparisons(5, n_annotators=4, n_comparisons=200, tie=0.0, random_state=6).comparisons
    ranking = fit(table, key)
    ranking.save(tmp_path / "kept")
    again = cw.Ranking.load(tmp_path / "kept")
    for name in ("items", "annotators", "leaderboard"):
        before, after = ranking.to_frame(name, kind="dict"), again.to_frame(name, kind="dict")
        assert list(before) == list(after)
        for column in before:
            assert (np.asarray(before[column]) == np.asarray(after[column])).all() or np.isnan(before[column]).any()
    assert again.notes == ranking.notes and again.better(0, 1) == ranking.better(0, 1)


def test_weights_count_as_so_many_comparisons() -> None:
    rows = [
        ("a", "b", "m", "left", 3),
        ("b", "c", "m", "left", 2),
        ("c", "a", "n", "left", 1),
        ("a", "c", "n", "tie", 2),
    ]
    keys = ("left", "right", "annotator", "outcome", "weight")
    weighted = cw.Comparisons.from_records([dict(zip(keys, row, strict=True)) for row in rows])
    repeated = cw.Comparisons.from_records([row[:4] for row in rows for _ in range(row[4])])
    for key in PAIR_METHODS:
        assert np.abs(fit(weighted, key).scores - fit(repeated, key).scores).max() < 1e-5


@pytest.mark.parametrize(
    ("key", "params", "message"),
    [
        ("bradley-terry", {"prior": -1}, "prior=-1"),
        ("bradley-terry", {"ties": "win"}, "ties='win'"),
        ("bradley-terry", {"max_iter": 0}, "max_iter=0"),
        ("bradley-terry", {"tol": 0.0}, "tol=0.0"),
        ("bradley-terry", {"random_state": -1}, "random_state=-1"),
        ("crowd-bt", {"reliability": (1.0, 2.0)}, "reliability"),
        ("crowd-bt", {"reliability": "best"}, "reliability='best'"),
        ("position-bt", {"spread": 0.0}, "spread=0.0"),
        ("mixture-bt", {"n_groups": 0}, "n_groups=0"),
        ("mixture-bt", {"restarts": -1}, "restarts=-1"),
        ("bradley-terry", {"priors": 1}, "no parameter 'priors'"),
    ],
)
def test_parameters_are_checked(key: str, params: dict[str, Any], message: str) -> None:
    table = cw.simulate.comparisons(4, n_comparisons=50, random_state=0).comparisons
    with pytest.raises(ParameterError, match=message):
        fit(table, key, **params)


def test_the_wrong_table_and_unknown_items() -> None:
    with pytest.raises(InputError, match="expects Comparisons and found Votes"):
        cw.BradleyTerry().fit(cw.Votes.from_records([("a", "b", "c")]))
    ranking = fit(cw.simulate.comparisons(4, n_comparisons=50, random_state=0).comparisons)
    with pytest.raises(InputError, match="no item 9"):
        ranking.probability(9, 0)
    with pytest.raises(ParameterError, match="for rankings"):
        fit(cw.simulate.comparisons(4, random_state=0).comparisons, "plackett-luce")


# -------------------------------------------------------------------- groups


def test_two_groups_are_told_apart() -> None:
    crowd = cw.simulate.comparisons(10, n_annotators=30, n_comparisons=6000, n_groups=2, tie=-1.0, random_state=0)
    ranking = fit(crowd.comparisons, "mixture-bt")
    assert ranking.membership is not None and ranking.group_scores is not None
    found = ranking.membership.argmax(axis=1)
    same = (found == crowd.group).mean()
    assert max(same, 1 - same) == 1.0
    order = [0, 1] if same == 1.0 else [1, 0]
    for g in (0, 1):
        assert np.corrcoef(ranking.group_scores[order[g]], crowd.scores[g])[0, 1] > 0.97
    one = fit(crowd.comparisons, "mixture-bt", n_groups=1)
    plain = fit(crowd.comparisons)
    assert np.abs(one.scores - plain.scores).max() < 1e-4 and one.trace[-1] < ranking.trace[-1] - 100
    with pytest.raises(InputError, match="at most as many groups"):
        fit(crowd.comparisons, "mixture-bt", n_groups=31)
    with pytest.raises(InputError, match="above 0"):
        fit(crowd.comparisons, "mixture-bt", prior=0)


# -------------------------------------------------------------------- real data


@pytest.mark.slow
def test_judges_and_people_on_mt_bench(real: Callable[[str], Path]) -> None:
    table = cw.read_comparisons(real("mtbench_judgments") / "labels.csv")
    assert table.n_items == 6 and table.n_answers == 5755
    people, judge = fit(table.without(["gpt4_pair"])), fit(table.only(["gpt4_pair"]))
    assert people.items[people.scores.argmax()] == "gpt-4" and (people.ranks == judge.ranks).mean() >= 4 / 6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fit(table, "crowd-bt").converged
