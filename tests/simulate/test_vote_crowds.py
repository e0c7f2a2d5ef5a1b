"""Simulated crowds: the votes must look like the parameters that are handed out with them."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from crowdwise import simulate
from crowdwise.data.dataset import read_dataset
from crowdwise.errors import InputError, OutputError, ParameterError
from crowdwise.simulate import SCENARIOS, Simulated, assign, machines, regular_assignment, vote_crowds

DOCS = Path(__file__).parents[2] / "docs" / "simulation.md"
DRAWN = [name for name in SCENARIOS if name != "machine"]


def counts(made: Simulated) -> np.ndarray:
    """(M, K, K): how often each annotator said l where the truth is k."""
    votes, K = made.votes, made.votes.n_classes
    cell = (votes.annotator.astype(np.int64) * K + made.truth[votes.item]) * K + votes.label
    return np.bincount(cell, minlength=votes.n_annotators * K * K).reshape(-1, K, K)


def check_confusion(made: Simulated, theta: np.ndarray | None = None) -> None:
    """Every share within five binomial standard errors (and one vote) of the parameter; what cannot happen does not."""
    theta = made.parameters["confusion"] if theta is None else theta
    seen = counts(made)
    n = seen.sum(axis=2, keepdims=True)
    assert (np.abs(seen - n * theta) <= 5 * np.sqrt(n * theta * (1 - theta)) + 1e-6 + (theta > 1e-12)).all()


def dense(made: Simulated) -> np.ndarray:
    table = np.full((len(made.votes), made.votes.n_annotators), -1)
    table[made.votes.item, made.votes.annotator] = made.votes.label
    return table


# -------------------------------------------------------------------- every scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_runs_with_defaults_and_knows_the_truth(name):
    made = SCENARIOS[name](random_state=0)
    votes, theta = made.votes, made.parameters["confusion"]
    M, K = votes.n_annotators, votes.n_classes
    assert made.name == name
    assert made.truth.shape == (len(votes),) and made.truth.min() >= 0 and made.truth.max() < K
    assert theta.shape == (M, K, K) and (theta >= 0).all()
    np.testing.assert_allclose(theta.sum(axis=2), 1)
    np.testing.assert_allclose(made.parameters["prior"].sum(), 1)
    np.testing.assert_allclose(made.parameters["accuracy"], np.einsum("k,mkk->m", made.parameters["prior"], theta))
    assert votes.annotators.tolist() == [f"a{m}" for m in range(M)]
    assert votes.items.tolist() == list(range(len(votes)))
    assert (np.diff(votes.indptr) > 0).all()


@pytest.mark.parametrize("name", [n for n in DRAWN if n != "regular"])
@pytest.mark.parametrize("votes_per_item", [None, 3, 0.4])
def test_votes_follow_the_parameters(name, votes_per_item):
    check_confusion(SCENARIOS[name](3000, votes_per_item=votes_per_item, random_state=1))


def test_regular_votes_follow_the_parameters():
    check_confusion(simulate.regular(3000, l=6, r=900, n_classes=3, workers="dirichlet", random_state=1))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_seed_decides(name):
    one, same, generator, other = (SCENARIOS[name](200, random_state=s) for s in (3, 3, np.random.default_rng(3), 4))
    for made in (same, generator):
        np.testing.assert_array_equal(one.votes.label, made.votes.label)
        np.testing.assert_array_equal(one.votes.annotator, made.votes.annotator)
        np.testing.assert_array_equal(one.truth, made.truth)
        assert all(np.array_equal(value, made.parameters[key]) for key, value in one.parameters.items())
    assert not np.array_equal(one.truth, other.truth)


@pytest.mark.parametrize("name", DRAWN)
def test_prior_is_followed(name):
    K = SCENARIOS[name](20, random_state=0).votes.n_classes
    prior = np.arange(1, K + 1) / (K * (K + 1) / 2)
    made = SCENARIOS[name](4000, prior=prior, random_state=2)
    np.testing.assert_allclose(made.parameters["prior"], prior)
    assert (np.abs(np.bincount(made.truth, minlength=K) / 4000 - prior) < 5 * np.sqrt(prior * (1 - prior) / 4000)).all()


def test_every_scenario_says_what_it_is():
    text = DOCS.read_text(encoding="utf-8")
    for name, function in SCENARIOS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert (inspect.getdoc(function) or "").splitlines()[0].endswith(".")
        assert f"## {name}\n" in text
        parameters = inspect.signature(function).parameters.values()
        assert all(p.kind is p.KEYWORD_ONLY for p in list(parameters)[1:])
        missing = [p.name for p in parameters if f"`{p.name}`" not in text]
        assert not missing, f"docs/simulation.md does not name {missing} of {name}"


def test_documentation_runs():
    page = DOCS.read_text(encoding="utf-8")
    assert not [name for name in SCENARIOS if name not in page]
    for block in re.findall(r"``` ?python\n(.*?)```", page, flags=re.S):
        exec(compile(block, str(DOCS), "exec"), {"__name__": "docs"})


# -------------------------------------------------------------------- who labels what


def test_everybody_labels_everything():
    item, annotator = assign(3, 2)
    assert item.tolist() == [0, 0, 1, 1, 2, 2] and annotator.tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(("M", "r"), [(7, 1), (7, 3), (7, 6), (7, 7), (500, 5)])
def test_fixed_number_of_distinct_annotators(M, r):
    N = 4000
    item, annotator = assign(N, M, r, random_state=0)
    table = annotator.reshape(N, r)
    assert (item.reshape(N, r) == np.arange(N)[:, None]).all()
    assert (np.diff(table, axis=1) > 0).all()
    load = np.bincount(annotator, minlength=M)
    share = r / M
    assert (np.abs(load - N * share) <= 5 * np.sqrt(N * share * (1 - share))).all()


def test_every_set_of_annotators_is_equally_likely():
    N = 20_000
    table = assign(N, 5, 2, random_state=0)[1].reshape(N, 2)
    _, seen = np.unique(table[:, 0] * 5 + table[:, 1], return_counts=True)
    assert len(seen) == 10 and (np.abs(seen - N / 10) < 5 * np.sqrt(N * 0.09)).all()


@pytest.mark.parametrize("p", [0.01, 0.3, 0.95])
def test_each_pair_with_a_probability(p):
    N, M = 5000, 20
    item, annotator = assign(N, M, p, random_state=0)
    cell = item.astype(np.int64) * M + annotator
    assert (np.diff(cell) > 0).all()
    assert len(np.unique(item)) == N
    expected = N * M * p + N * (1 - p) ** M
    assert abs(len(cell) - expected) < 5 * np.sqrt(expected)
    assert np.bincount(annotator).std() < 5 * np.sqrt(expected / M)


@pytest.mark.parametrize(
    ("N", "M", "l", "r"),
    [
        (1000, 750, 3, 4),
        (4, 4, 2, 2),
        (6, 4, 2, 3),
        (10, 10, 5, 5),
        (10, 4, 2, 5),
        (8, 6, 3, 4),
        (5, 7, 7, 5),
        (9, 6, 4, 6),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_regular_assignment_is_exact(N, M, l, r, seed):  # noqa: E741
    item, annotator = regular_assignment(N, M, l, r, random_state=seed)
    assert (np.bincount(item, minlength=N) == l).all()
    assert (np.bincount(annotator, minlength=M) == r).all()
    assert (np.diff(item.astype(np.int64) * M + annotator) > 0).all()


def test_large_crowds_stay_sparse():
    tracemalloc.start()
    try:
        made = simulate.one_coin(200_000, n_annotators=2000, n_classes=4, votes_per_item=5, random_state=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.votes.n_votes == 1_000_000
    assert peak < 150e6  # an items x annotators table of bytes alone is 400 MB
    item, _ = assign(200_000, 2000, 0.002, random_state=0)
    assert len(item) == pytest.approx(200_000 * (4 + np.exp(-4)), rel=0.01)


# -------------------------------------------------------------------- the scenarios, one by one


def test_one_coin_spreads_errors_evenly():
    made = simulate.one_coin(50, n_annotators=4000, n_classes=4, a=3, b=1, votes_per_item=5, random_state=0)
    theta, w = made.parameters["confusion"], made.parameters["accuracy"]
    np.testing.assert_allclose(theta, np.where(np.eye(4, dtype=bool), w[:, None, None], (1 - w[:, None, None]) / 3))
    assert w.mean() == pytest.approx(0.75, abs=0.02)


def test_two_coin_sets_both_rows():
    made = simulate.two_coin(10, random_state=0)
    theta = made.parameters["confusion"]
    np.testing.assert_allclose(theta[:, 1, 1], made.parameters["sensitivity"])
    np.testing.assert_allclose(theta[:, 0, 0], made.parameters["specificity"])


def test_dirichlet_rows_have_their_mean_even_when_nearly_one_hot():
    for scale in (1.0, 1e-3):
        made = simulate.dirichlet(1, n_annotators=4000, diagonal=2 * scale, rest=scale, random_state=0)
        theta = made.parameters["confusion"]
        assert np.isfinite(theta).all()
        np.testing.assert_allclose(theta.mean(axis=0), (np.eye(3) + 1) / 4, atol=0.04)


def test_hammers_are_right_and_spammers_guess():
    made = simulate.hammer_spammer(2000, n_annotators=10, n_classes=4, share=0.3, random_state=0)
    spammers, right = made.parameters["spammers"], (dense(made) == made.truth[:, None]).mean(axis=0)
    assert spammers.sum() == 7
    assert (right[~spammers] == 1).all()
    np.testing.assert_allclose(right[spammers], 0.25, atol=0.05)


def test_hammer_spammer_with_a_skill_is_tannos():
    made = simulate.hammer_spammer(10, n_annotators=500, n_classes=10, skill=0.3, random_state=0)
    assert not made.parameters["spammers"].any()
    assert made.parameters["accuracy"].mean() == pytest.approx(0.3, abs=0.002)
    assert made.parameters["accuracy"].std() == pytest.approx(0.01, rel=0.15)


def test_pairwise_flippers_have_one_wrong_answer_per_class():
    made = simulate.pairwise_flipper(20_000, p=0.3, random_state=0)
    target, seen = made.parameters["target"], counts(made)
    M, K = target.shape
    assert (target != np.arange(K)).all() and len(np.unique(target, axis=0)) == M
    m, k = np.mgrid[:M, :K]
    np.testing.assert_array_equal(seen[m, k, target] + seen[m, k, k], seen.sum(axis=2))


SIZES = {"independent": (5, 10), "naive": (10, 25), "copied": (10, 12)}


@pytest.mark.parametrize(
    ("dataset", "expertise", "case"), list(itertools.product(["dogs", "cifar", "luna"], ["high", "low"], SIZES))
)
def test_max_mig_experts(dataset, expertise, case):
    made = simulate.max_mig(2000, dataset=dataset, expertise=expertise, case=case, random_state=0)
    senior, copies, table = made.parameters["senior"], made.parameters["copies"], dense(made)
    assert made.votes.n_annotators == SIZES[case][expertise == "low"]
    assert senior.sum() == (5 if expertise == "high" else 10)
    check_confusion(made)
    if case == "naive":
        assert (table[:, ~senior] == 0).all()
    if case == "copied":
        assert copies[~senior].tolist() == ([0, 0, 2, 2, 2] if expertise == "high" else [0, 2])
        np.testing.assert_array_equal(table[:, ~senior], table[:, copies[~senior]])
    assert made.votes.classes.tolist() == list(vote_crowds.CLASSES[dataset])


def test_max_mig_numbers_are_the_papers():
    theta = {
        d: simulate.max_mig(5, dataset=d, random_state=0).parameters["confusion"] for d in ("dogs", "luna", "cifar")
    }
    diagonal = {d: np.einsum("mkk->mk", t) for d, t in theta.items()}
    dogs_cats = diagonal["dogs"][:, ::-1]  # the paper writes dogs/cats
    np.testing.assert_allclose(dogs_cats, [[0.6, 0.8], [0.6, 0.6], [0.9, 0.6], [0.7, 0.7], [0.6, 0.7]])
    np.testing.assert_allclose(diagonal["luna"], [[0.6, 0.9], [0.7, 0.7], [0.9, 0.6], [0.6, 0.7], [0.7, 0.6]])
    cat, dog, plane, bird = (vote_crowds.CIFAR.index(c) for c in ("cat", "dog", "airplane", "bird"))
    assert theta["cifar"][:, dog, cat].tolist() == [1, 0.5, 0, 1, 0.4]
    assert theta["cifar"][:, bird, plane].tolist() == [1, 0.5, 0.5, 0, 0.4]
    assert theta["cifar"][:, cat, cat].tolist() == [1, 0.5, 1, 1, 0.6]
    low = simulate.max_mig(5, dataset="cifar", expertise="low", random_state=0).parameters["confusion"]
    np.testing.assert_allclose(low, np.broadcast_to(np.where(np.eye(10), 0.2, 0.8 / 9), (10, 10, 10)))


def test_copies_agree_where_both_label_an_item():
    made = simulate.max_mig(3000, dataset="cifar", case="copied", votes_per_item=4, random_state=0)
    table = dense(made)
    for junior, origin in enumerate(made.parameters["copies"]):
        both = (table[:, junior] >= 0) & (table[:, origin] >= 0)
        if origin >= 0:
            assert both.sum() > 100 and (table[both, junior] == table[both, origin]).all()


def test_extreme_spammers_label_everything_by_chance():
    made = simulate.regular(1200, l=3, r=4, n_classes=3, workers="dirichlet", n_extreme_spammers=2, random_state=0)
    votes, spammers = made.votes, made.parameters["spammers"]
    load = np.bincount(votes.annotator)
    assert votes.n_annotators == 902 and np.flatnonzero(spammers).tolist() == [900, 901]
    assert (load[spammers] == 1200).all() and (load[~spammers] == 4).all()
    assert (np.diff(votes.indptr) == 5).all()
    right = (votes.label == made.truth[votes.item])[spammers[votes.annotator]]
    assert right.mean() == pytest.approx(1 / 3, abs=5 * np.sqrt(2 / 9 / 2400))


def test_colluders_speak_with_one_voice():
    made = simulate.colluders(4000, share=0.25, p_corr=0.8, random_state=0)
    ring, attacked, table = made.parameters["colluders"], made.parameters["attacked"], dense(made)
    assert ring.sum() == 15
    assert (table[:, ring] == made.parameters["ring_label"][:, None]).all()
    assert (made.parameters["ring_label"] == made.truth).tolist() == (~attacked).tolist()
    assert attacked.mean() == pytest.approx(0.8, abs=5 * np.sqrt(0.16 / 4000))
    honest = table[:, ~ring]
    assert (honest[:, :1] != honest).any(axis=1).mean() > 0.9


def test_groups_share_an_opinion():
    made = simulate.groups(20_000, n_annotators=9, n_groups=3, random_state=0)
    p = made.parameters
    np.testing.assert_allclose(
        p["confusion"], np.stack([p["group_confusion"][j] @ p["member_confusion"][m] for m, j in enumerate(p["group"])])
    )
    assert np.bincount(p["group"]).tolist() == [3, 3, 3]
    table, z = dense(made), p["latent"]
    for m, j in enumerate(p["group"]):
        given_z = np.bincount(z[:, j] * 3 + table[:, m], minlength=9).reshape(3, 3)
        np.testing.assert_allclose(given_z / given_z.sum(axis=1, keepdims=True), p["member_confusion"][m], atol=0.04)
    right = (table == made.truth[:, None])[made.truth == 0]
    excess = np.cov(right.T.astype(float))  # given the truth, only members of a group move together
    same = (p["group"][:, None] == p["group"]) & ~np.eye(9, dtype=bool)
    assert excess[same].min() > 0.01 > np.abs(excess[~same & ~np.eye(9, dtype=bool)]).max()


def test_easy_items_are_answered_better():
    made = simulate.difficulty(4000, n_classes=3, ability=(1.0, 0.2), log_inverse_difficulty=(0, 1.5), random_state=0)
    right, ease = (dense(made) == made.truth[:, None]).mean(axis=1), made.parameters["log_inverse_difficulty"]
    quarters = [part.mean() for part in np.array_split(right[np.argsort(ease)], 4)]
    assert quarters == sorted(quarters) and quarters[0] == pytest.approx(0.53, abs=0.04) and quarters[-1] > 0.95
    assert made.parameters["ability"].shape == (20,)


def test_items_that_mislead_are_taken_for_one_other_class_by_many():
    made = simulate.misleading(4000, n_classes=4, share=0.25, random_state=0)
    lure, other, table = made.parameters["lure"], made.parameters["looks_like"], dense(made)
    assert (other != made.truth).all() and (lure > 0).mean() == pytest.approx(0.25, abs=0.02)
    wrong = (table == other[:, None]).mean(axis=1)
    by_lure = [wrong[lure == 0].mean(), *(part.mean() for part in np.array_split(wrong[np.argsort(lure)][-1000:], 3))]
    assert by_lure == sorted(by_lure) and by_lure[0] == pytest.approx(0.25 / 3, abs=0.02) and by_lure[-1] > 0.5
    errs = (table != made.truth[:, None]).astype(float)
    together = np.cov(errs[made.truth == 0].T)[~np.eye(20, dtype=bool)]
    assert together.mean() > 0.02  # given the truth, votes on an item are not independent


def test_outliers_know_nothing_of_the_truth():
    made = simulate.outliers(4000, share=0.2, random_state=0)
    strange, table = made.parameters["outliers"], dense(made)
    assert strange.sum() == 800 and made.parameters["outlier_distribution"].shape == (800, 3)
    right = (table == made.truth[:, None]).mean(axis=1)
    assert right[strange].mean() == pytest.approx(1 / 3, abs=0.06)
    nominal = Simulated("nominal", made.votes[~strange], made.parameters)
    check_confusion(nominal, made.parameters["nominal_confusion"])
    shares = np.stack(
        [(table[strange] == k).mean(axis=1) for k in range(3)], axis=1
    )  # an outlier keeps to its own distribution
    assert np.corrcoef(shares.ravel(), made.parameters["outlier_distribution"].ravel())[0, 1] > 0.9


def test_no_outliers_is_allowed():
    assert not simulate.outliers(50, share=0, random_state=0).parameters["outliers"].any()


# -------------------------------------------------------------------- machines


@pytest.fixture(scope="module")
def digits() -> Simulated:
    return simulate.machine(n_annotators=10, n_spammers=2, n_copiers=2, n_adversaries=2, slip=0.1, random_state=0)


def test_machines_beat_chance_and_differ(digits):
    kind, accuracy, table = digits.parameters["kind"], digits.parameters["accuracy"], dense(digits)
    assert kind.tolist() == [*machines.KINDS, "spammer", "spammer", "copier", "copier", "adversary", "adversary"]
    assert (accuracy[:10] > 0.5).all() and len(np.unique(table[:, :10], axis=1).T) == 10
    assert (np.abs(accuracy[10:12] - 0.1) < 5 * np.sqrt(0.09 / len(table))).all()
    assert (accuracy[14:] < 0.1).all()
    np.testing.assert_allclose((table == digits.truth[:, None]).mean(axis=0), accuracy)
    seen = counts(digits)
    np.testing.assert_allclose(seen / seen.sum(axis=2, keepdims=True), digits.parameters["confusion"])


def test_machine_copiers_repeat_with_slips(digits):
    table, copies = dense(digits), digits.parameters["copies"]
    assert ((copies >= 0) == (digits.parameters["kind"] == "copier")).all()
    for m in np.flatnonzero(copies >= 0):
        assert (table[:, m] != table[:, copies[m]]).mean() == pytest.approx(0.1, abs=0.05)


def test_machines_name_an_item_by_its_row(digits):
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    rows = digits.parameters["rows"]
    assert len(np.unique(rows)) == len(rows) == 1258
    np.testing.assert_array_equal(digits.features["x_train"], X[rows])
    np.testing.assert_array_equal(digits.truth, y[rows])


def test_machines_take_named_classes_and_few_votes():
    rng = np.random.default_rng(0)
    y = np.array(["no", "yes"])[rng.integers(2, size=300)]
    X = rng.normal(size=(300, 3)) + 2 * (y == "yes")[:, None]
    made = machines.machine_annotators(
        X, y, n_annotators=11, subset=(10, 20), n_items=100, votes_per_item=4, random_state=0
    )
    assert made.votes.classes.tolist() == ["no", "yes"] and made.votes.n_votes == 400
    assert (made.parameters["accuracy"] > 0.7).all()


def test_machines_explain_bad_data():
    X, y = np.zeros((40, 2)), np.arange(40) % 2
    with pytest.raises(InputError, match=r"shapes \(40, 2\) and \(39,\)"):
        machines.machine_annotators(X, y[:-1])
    with pytest.raises(InputError, match=r"show 1 class\(es\): expected 2 or more"):
        machines.machine_annotators(X, np.zeros(40))
    with pytest.raises(
        ParameterError, match=r"subset=\(100, 400\): expected .* the 2 classes and the 12 rows held out"
    ):
        machines.machine_annotators(X, y)
    with pytest.raises(ParameterError, match="n_items=50: expected at most the 28 rows"):
        machines.machine_annotators(X, y, n_items=50)
    with pytest.raises(ParameterError, match=r"train_share=1\.5: expected a number above 0 and below 1"):
        machines.machine_annotators(X, y, train_share=1.5)
    with pytest.raises(ParameterError, match="n_copiers=-1: expected a whole number of at least 0"):
        machines.machine_annotators(X, y, subset=(4, 8), n_copiers=-1)


def test_import_is_light():
    code = (
        "import sys, crowdwise.simulate as s; s.groups(20); "
        "sys.exit('sklearn' in sys.modules or 'numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -------------------------------------------------------------------- saving


@pytest.mark.parametrize("name", SCENARIOS)
def test_saved_folders_read_back(name, tmp_path):
    made = SCENARIOS[name](400, random_state=5)
    made.save(tmp_path / "made")
    back = read_dataset(tmp_path / "made")
    votes = back.votes
    assert votes.classes.tolist() == made.votes.classes.tolist() and len(votes) == 400
    np.testing.assert_array_equal(votes.truth, made.truth)
    order = [back.meta["annotators"].index(a) for a in votes.annotators]
    table = np.full((400, made.votes.n_annotators), -1)
    table[votes.item, np.array(order)[votes.annotator]] = votes.label
    np.testing.assert_array_equal(table, dense(made))
    with np.load(tmp_path / "made" / "parameters.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["confusion"], made.parameters["confusion"])
        assert set(arrays.files) | set(back.meta["parameters"]) == set(made.parameters)
    assert set(back.features) == set(made.features)
    assert [p.name for p in tmp_path.iterdir()] == ["made"]


def test_classes_nobody_used_are_in_the_meta_file(tmp_path):
    made = simulate.hammer_spammer(3, n_annotators=1, n_classes=50, share=1, random_state=0)
    made.save(tmp_path / "rare")
    meta = json.loads((tmp_path / "rare" / "meta.json").read_text())
    votes = read_dataset(tmp_path / "rare", classes=meta["classes"]).votes
    assert votes.n_classes == 50
    np.testing.assert_array_equal(votes.truth, made.truth)


def test_saving_never_overwrites(tmp_path):
    made = simulate.one_coin(10, random_state=0)
    (tmp_path / "empty").mkdir()
    made.save(tmp_path / "empty")
    before = sorted(p.name for p in (tmp_path / "empty").iterdir())
    assert before == ["labels.csv", "meta.json", "parameters.npz", "truth.csv"]
    with pytest.raises(OutputError, match=r"^\S+ exists already and is not an empty folder\. Choose another folder\.$"):
        made.save(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="file"):
            made.save(place)
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file"]


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OutputError, match="No space left on device"):
        simulate.one_coin(10, random_state=0).save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------- bad parameters

BAD = [
    ("one-coin", {"n_items": 0}, "n_items=0: expected a whole number of at least 1"),
    ("one-coin", {"n_annotators": 2.5}, r"n_annotators=2\.5: expected a whole number"),
    ("one-coin", {"n_classes": 1}, "n_classes=1: expected a whole number of at least 2"),
    ("one-coin", {"a": 0}, "a=0: expected a number above 0"),
    ("one-coin", {"b": float("nan")}, "b=nan: expected a number above 0"),
    ("one-coin", {"a": "4"}, "a='4': expected a number above 0"),
    ("one-coin", {"random_state": "x"}, "random_state='x': expected None, a whole number"),
    ("one-coin", {"random_state": -1}, "random_state=-1: expected None, a whole number of at least 0"),
    ("one-coin", {"votes_per_item": 21}, "votes_per_item=21: expected None .* integer from 1 to the 20 annotators"),
    ("one-coin", {"votes_per_item": 0}, "votes_per_item=0: expected None"),
    ("one-coin", {"votes_per_item": 1.0}, r"votes_per_item=1\.0: expected None .* fraction between 0 and 1"),
    ("one-coin", {"votes_per_item": True}, "votes_per_item=True: expected a whole number, a number or None"),
    ("one-coin", {"prior": [0.5, 0.6]}, r"prior=\[0\.5, 0\.6\]: expected 2 probabilities"),
    ("dirichlet", {"prior": [0.5, 0.5]}, "expected 3 probabilities"),
    ("two-coin", {"sensitivity": (1, -1)}, r"sensitivity=\(1, -1\): expected \(a, b\)"),
    ("dirichlet", {"rest": -1}, "rest=-1: expected a number above 0"),
    ("hammer-spammer", {"share": 1.2}, r"share=1\.2: expected a number of at least 0 and of at most 1"),
    ("hammer-spammer", {"skill": 2}, "skill=2: expected a number of at least 0 and of at most 1"),
    ("pairwise-flipper", {"p": -0.1}, r"p=-0\.1: expected a number of at least 0 and of at most 1"),
    ("max-mig", {"dataset": "dog"}, "dataset='dog': expected 'dogs', 'cifar' or 'luna'. Did you mean 'dogs'?"),
    ("max-mig", {"expertise": "medium"}, "expertise='medium': expected 'high' or 'low'"),
    ("max-mig", {"case": 3}, "case=3: expected 'independent', 'naive' or 'copied'"),
    ("regular", {"n_items": 10, "r": 4}, "n_items=10, l=3, r=4: expected n_items x l = 30 votes to be a multiple of r"),
    ("regular", {"n_items": 2, "l": 4, "r": 8}, "l=4: an item cannot have more than the 1 different annotators"),
    ("regular", {"n_extreme_spammers": -1}, "n_extreme_spammers=-1: expected a whole number of at least 0"),
    ("regular", {"workers": "beta"}, "workers='beta': expected 'one-coin' or 'dirichlet'"),
    ("colluders", {"p_corr": 9}, "p_corr=9: expected a number of at least 0 and of at most 1"),
    ("groups", {"n_groups": 41}, "n_groups=41: expected a whole number from 1 to the 40 annotators"),
    ("difficulty", {"ability": (1, -2)}, r"ability=\(1, -2\): expected \(mean, standard deviation\)"),
    ("misleading", {"share": 2}, "share=2: expected a number of at least 0 and of at most 1"),
    ("misleading", {"lure": (0, 1)}, r"lure=\(0, 1\): expected"),
    ("outliers", {"agreement": 0}, "agreement=0: expected a number above 0"),
    ("machine", {"slip": 2}, "slip=2: expected a number of at least 0 and of at most 1"),
]


@pytest.mark.parametrize(
    ("name", "options", "message"), BAD, ids=[f"{n}-{next(iter(o))}-{i}" for i, (n, o, _) in enumerate(BAD)]
)
def test_bad_parameters_are_explained(name, options, message):
    with pytest.raises(ParameterError, match=message):
        SCENARIOS[name](**options)


def test_irregular_sizes_are_explained():
    with pytest.raises(ParameterError, match="expected 10 x 3 = 30 to equal 4 x 7 = 28"):
        regular_assignment(10, 4, 3, 7)


def test_truth_is_asked_of_a_table_without():
    made = simulate.one_coin(5, random_state=0)
    with pytest.raises(InputError, match="no truth"):
        _ = Simulated("bare", made.votes.with_truth(None), {}).truth


class TestImageCrowds:
    """Crowds on given images: the rates of the matrices, and who depends on whom."""

    TRUTH = np.arange(4000) % 10

    def rates(self, crowd):
        votes = crowd.votes
        counts = np.zeros((votes.n_annotators, 10, 10))
        np.add.at(counts, (votes.annotator, self.TRUTH[votes.item], votes.label), 1.0)
        return counts / counts.sum(axis=2, keepdims=True)

    def test_four_annotators_are_right_45_percent_of_the_time(self):
        crowd = simulate.four_annotators(truth=self.TRUTH, random_state=0)
        np.testing.assert_array_equal(crowd.truth, self.TRUTH)
        np.testing.assert_allclose(crowd.parameters["accuracy"], [0.6, 0.6, 0.5, 0.1])
        assert crowd.votes.n_votes == 4 * len(self.TRUTH)
        np.testing.assert_allclose(self.rates(crowd), crowd.parameters["confusion"], atol=0.09)
        cat, dog, truck = 3, 5, 9
        second, third, fourth = crowd.parameters["confusion"][1:]
        assert second[cat, dog] == 0.4 and third[cat, 4] == 0.25 and fourth[truck, 2] == 0.9

    def test_one_label_each_by_a_random_annotator(self):
        votes = simulate.four_annotators(truth=self.TRUTH, votes_per_item=1, random_state=0).votes
        assert votes.n_votes == len(self.TRUTH)
        np.testing.assert_allclose(np.bincount(votes.annotator) / len(self.TRUTH), 0.25, atol=0.03)

    def test_one_is_reliable(self):
        crowd = simulate.one_reliable(truth=self.TRUTH, random_state=0)
        accuracy = crowd.parameters["accuracy"]
        assert accuracy[0] > 0.93
        np.testing.assert_allclose(accuracy[1:], 0.1, atol=1e-3)
        assert crowd.votes.n_votes == len(self.TRUTH)

    @pytest.mark.parametrize(("expertise", "copies"), [("high", [0, 0, 2, 2, 2]), ("low", [0, 2])])
    def test_experts_on_given_images(self, expertise, copies):
        crowd = simulate.max_mig(
            dataset="cifar", expertise=expertise, case="copied", truth=self.TRUTH, random_state=0
        )  # fmt: skip
        np.testing.assert_array_equal(crowd.truth, self.TRUTH)
        seniors = int(crowd.parameters["senior"].sum())
        label = crowd.votes.label.reshape(len(self.TRUTH), -1)
        for junior, senior in enumerate(copies):
            np.testing.assert_array_equal(label[:, seniors + junior], label[:, senior])
        np.testing.assert_allclose(self.rates(crowd), crowd.parameters["confusion"], atol=0.09)
        own = [np.corrcoef(label[:, a] == self.TRUTH, label[:, b] == self.TRUTH)[0, 1] for a, b in ((1, 4), (1, 3))]
        assert max(np.abs(own)) < 0.6  # seniors answer on their own

    def test_regular_crowds_on_given_images(self):
        truth = self.TRUTH[:1000] % 2
        crowd = simulate.regular(truth=truth, n_extreme_spammers=1, random_state=0)
        np.testing.assert_array_equal(crowd.truth, truth)
        assert crowd.votes.n_votes == 4 * len(truth)

    def test_bad_truth_is_refused(self):
        for bad in ([0, 11], [-1, 2], [], [[1, 2]], [0.5, 1.0]):
            with pytest.raises(ParameterError, match="class code from 0 to 9"):
                simulate.four_annotators(truth=bad)
