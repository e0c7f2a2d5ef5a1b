"""What every method of the registry must do."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.core.model import Model
from crowdwise.errors import ConvergenceWarning, InputError, LabelError, NotFittedError, ParameterError

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
KEYS = list(registry.METHODS)


def gold_of(sim, share=0.2):
    known = np.where(np.arange(len(sim.truth)) < share * len(sim.truth), sim.truth, -1)
    return known.astype(np.int32)


def truth_for(key, sim):
    return gold_of(sim) if registry.find(key).load().needs_gold else None


def run(key, votes, truth=None, **params):
    return cw.aggregate(votes, key, gold=truth, **params)


def crowd(seed=0, n=240, K=3, M=18, r=5):
    return cw.simulate.dirichlet(n, n_annotators=M, n_classes=K, votes_per_item=r, random_state=seed)


@pytest.fixture(params=KEYS)
def key(request):
    return request.param


def test_beats_chance_and_is_not_far_under_the_majority(key):
    sim = crowd()
    found = run(key, sim.votes, truth_for(key, sim)).score(sim.truth)
    assert found > 0.75
    assert found > cw.aggregate(sim.votes, "majority").score(sim.truth) - 0.02


def test_result_is_well_formed(key):
    sim = crowd()
    votes = sim.votes
    c = run(key, votes, truth_for(key, sim))
    N, M, K = len(votes), votes.n_annotators, votes.n_classes
    assert c.posterior.shape == (N, K)
    assert np.allclose(c.posterior.sum(axis=1), 1.0, atol=1e-12)
    assert (c.posterior >= 0).all()
    assert abs(c.prior.sum() - 1.0) < 1e-9
    assert c.labels.shape == (N,)
    assert np.allclose(c.posterior.max(axis=1), c.posterior[np.arange(N), c.label_codes], atol=1e-9)
    assert c.method == key
    assert c.n_answers == votes.n_votes
    if c.confusion is not None:
        assert c.confusion.shape == (M, K, K)
        assert np.allclose(c.confusion.sum(axis=2), 1.0)
    accuracy, low, high = c.accuracy()
    assert ((low <= accuracy) & (accuracy <= high) & (low >= 0) & (high <= 1)).all()
    assert c.annotators.height == M
    assert c.items.height == N
    assert c.items.columns[:5] == ["item", "label", "probability", "entropy", "votes"]


def test_input_is_left_alone_and_a_second_fit_agrees(key):
    sim = crowd()
    before = [a.copy() for a in (sim.votes.indptr, sim.votes.annotator, sim.votes.label)]
    model = registry.create(key)
    first = model.fit(sim.votes, truth_for(key, sim)).consensus_
    second = model.fit(sim.votes, truth_for(key, sim)).consensus_
    assert np.array_equal(first.posterior, second.posterior)
    for a, b in zip(before, (sim.votes.indptr, sim.votes.annotator, sim.votes.label), strict=True):
        assert np.array_equal(a, b)


def rebuild(votes, rng, rename=None, classes=None):
    """The same votes with their rows shuffled, annotators renamed, classes reordered."""
    table = votes.to_frame("dict")
    order = rng.permutation(votes.n_votes)
    table = {name: [column[i] for i in order] for name, column in table.items() if name != "truth"}
    if rename is not None:
        table["annotator"] = [rename[a] for a in table["annotator"]]
    return cw.Votes.from_frame(table, classes=classes)


def aligned(c, like):
    """Posterior of ``c`` with items and classes in the order of another consensus."""
    rows = [c.item_names.tolist().index(i) for i in like.item_names.tolist()]
    cols = [c.classes.tolist().index(k) for k in like.classes.tolist()]
    return c.posterior[np.ix_(rows, cols)]


def by_item(c, truth):
    return None if truth is None else {n: int(k) for n, k in zip(c.items.tolist(), truth, strict=True) if k >= 0}


def test_order_of_rows_names_of_annotators_and_order_of_classes_do_not_matter(key):
    sim = crowd(seed=4)
    truth = by_item(sim.votes, truth_for(key, sim))
    base = run(key, sim.votes, truth)
    rng = np.random.default_rng(0)
    shuffled = run(key, rebuild(sim.votes, rng), truth)
    assert np.allclose(aligned(shuffled, base), base.posterior, atol=1e-9)
    names = sim.votes.annotators.tolist()
    renamed = run(
        key, rebuild(sim.votes, rng, rename=dict(zip(names, rng.permutation(names).tolist(), strict=True))), truth
    )
    assert np.allclose(aligned(renamed, base), base.posterior, atol=1e-9)
    permuted = run(key, rebuild(sim.votes, rng, classes=[2, 0, 1]), truth)
    assert np.allclose(aligned(permuted, base), base.posterior, atol=1e-9)


def test_threads_and_engines_give_the_same_answer(key, monkeypatch):
    sim = cw.simulate.dirichlet(40_000, n_annotators=30, n_classes=3, votes_per_item=4, random_state=0)
    truth = truth_for(key, sim)
    found = []
    for engine, threads in (("reference", "1"), ("native", "1"), ("native", "2"), ("native", "3")):
        monkeypatch.setenv("CROWDWISE_ENGINE", engine)
        monkeypatch.setenv("CROWDWISE_THREADS", threads)
        found.append(
            run(
                key,
                sim.votes,
                truth,
                **({"max_iter": 20} if "max_iter" in registry.find(key).load().parameters() else {}),
            ).posterior
        )
    for other in found[1:]:
        assert np.allclose(found[0], other, atol=1e-9)


def test_seeds_repeat(key):
    sim = crowd(r=2)
    for options in ({"random_state": 1}, {"random_state": 1, "ties": "random"}):
        a, b = (run(key, sim.votes, truth_for(key, sim), **options) for _ in range(2))
        assert np.array_equal(a.posterior, b.posterior)
        assert np.array_equal(a.labels, b.labels)


def test_known_truth_is_certain_in_the_result(key):
    sim = crowd()
    gold = gold_of(sim)
    c = run(key, sim.votes, gold)
    known = gold >= 0
    assert np.array_equal(c.posterior[known].argmax(axis=1), gold[known])
    assert np.allclose(c.posterior[known].max(axis=1), 1.0)


def test_truth_inside_the_votes_is_not_looked_at(key):
    sim = crowd()
    bare = sim.votes.with_truth(None)
    truth = truth_for(key, sim)
    assert np.array_equal(run(key, sim.votes, truth).posterior, run(key, bare, truth).posterior)


def test_doubling_every_vote_equals_doubling_the_weights(key):
    sim = crowd(n=60)
    votes = sim.votes
    names = {"items": votes.items, "annotators": votes.annotators, "classes": votes.classes}
    double = cw.Votes.from_codes(
        np.repeat(votes.item, 2), np.repeat(votes.annotator, 2), np.repeat(votes.label, 2), on_duplicate="all", **names
    )
    weighted = cw.Votes.from_codes(
        votes.item, votes.annotator, votes.label, weight=np.full(votes.n_votes, 2.0), **names
    )
    truth = truth_for(key, sim)
    assert np.allclose(run(key, double, truth).posterior, run(key, weighted, truth).posterior, atol=1e-9)


def test_two_thousand_votes_per_item(key):
    rng = np.random.default_rng(0)
    M, N, K = 2000, 4, 3
    truth = np.array([0, 1, 2, 1], dtype=np.int32)
    label = np.where(rng.random((N, M)) < 0.5, truth[:, None], rng.integers(0, K, (N, M)))
    votes = cw.Votes.from_dense(label)
    c = run(key, votes, np.array([0, -1, -1, -1], dtype=np.int32) if registry.find(key).load().needs_gold else None)
    assert np.isfinite(c.posterior).all()
    assert c.label_codes.tolist() == truth.tolist()


def test_items_without_votes_get_the_prior_or_the_uniform(key):
    sim = crowd(n=60)
    votes = sim.votes
    extra = cw.Votes.from_codes(
        votes.item, votes.annotator, votes.label, items=range(61), annotators=votes.annotators, classes=votes.classes
    )
    truth = truth_for(key, sim)
    c = run(key, extra, None if truth is None else np.append(truth, -1).astype(np.int32))
    assert np.allclose(c.posterior[60], c.prior, atol=1e-9) or np.allclose(c.posterior[60], 1 / 3)
    assert c.votes_per_item[60] == 0


def test_a_declared_class_nobody_used_gets_nothing(key):
    sim = crowd(n=100)
    votes = sim.votes
    wider = cw.Votes.from_codes(
        votes.item, votes.annotator, votes.label, items=votes.items, annotators=votes.annotators, classes=[0, 1, 2, 3]
    )
    c = run(key, wider, truth_for(key, sim))
    assert np.isfinite(c.posterior).all()
    assert not (c.label_codes == 3).any()


def test_annotators_with_a_single_vote(key):
    sim = crowd(n=150, M=400, r=3)
    c = run(key, sim.votes, truth_for(key, sim))
    assert np.isfinite(c.posterior).all()
    _, low, high = c.accuracy()
    assert np.isfinite(low).all() and np.isfinite(high).all()


def test_one_class_is_refused_with_advice(key):
    votes = cw.Votes.from_records([("a", 1, "yes"), ("a", 2, "yes"), ("b", 1, "yes")])
    with pytest.raises(LabelError, match=re.escape("declare them: classes=[...]")):
        run(key, votes, {"a": "yes"})


def test_a_lone_annotator(key):
    votes = cw.Votes.from_records([(n, "ann", "yes" if n % 3 else "no") for n in range(9)])
    model = registry.find(key).load()
    if model.needs_gold:
        assert run(key, votes, {0: "no", 1: "yes"}).labels[5] == "yes"
    elif model.single_annotator:
        assert run(key, votes).labels.tolist() == ["yes" if n % 3 else "no" for n in range(9)]
    else:
        with pytest.raises(InputError, match=r"single annotator, 'ann'.*majority"):
            run(key, votes)
        assert run(key, votes, {0: "no", 1: "yes", 2: "yes"}).labels[5] == "yes"


def test_predicts_items_that_were_not_in_the_fit(key):
    sim = crowd(n=400)
    old, new = sim.votes[:300], sim.votes[300:]
    truth = truth_for(key, sim)
    model = registry.create(key).fit(old, None if truth is None else truth[:300])
    q = model.predict_proba(new)
    assert q.shape == (100, 3)
    assert np.allclose(q.sum(axis=1), 1.0)
    assert (model.predict(new) == sim.truth[300:]).mean() > 0.75
    same = model.predict_proba(old)
    untold = slice(None) if truth is None else slice(80, None)
    assert np.allclose(same[untold], model.consensus_.posterior[untold], atol=1e-9)


def test_predicts_with_annotators_and_classes_it_meets_in_another_order(key):
    sim = crowd(n=300)
    truth = truth_for(key, sim)
    model = registry.create(key).fit(sim.votes, truth)
    new = cw.Votes.from_records([("x", "a3", 1), ("x", "stranger", 1), ("y", "a0", 0)])
    q = model.predict_proba(new)
    assert q.shape == (2, 3)
    assert q[0].argmax() == 1
    with pytest.raises(LabelError, match="fitted with the classes"):
        model.predict_proba(cw.Votes.from_records([("x", "a3", 7), ("x", "a1", 0)]))


def test_unfitted_models_say_so(key):
    with pytest.raises(NotFittedError, match=r"call fit\(votes\) first"):
        registry.create(key).predict_proba(crowd().votes)


def test_parameters_are_stored_as_given_and_clone(key):
    from sklearn.base import clone

    model = registry.create(key)
    params = model.get_params()
    assert params == registry.find(key).load().parameters()
    for name, value in params.items():
        assert getattr(model, name) is value
    other = clone(model.set_params(ties="random"))
    assert other is not model
    assert other.get_params() == model.get_params()
    assert repr(other).endswith("(ties='random')")
    assert isinstance(model, Model)
    with pytest.raises(ParameterError, match="Did you mean 'ties'"):
        model.set_params(tie="random")


def test_parameters_out_of_range_are_refused_at_fit(key):
    sim = crowd(n=30)
    wrong = {
        "ties": "coin",
        "random_state": -1,
        "max_iter": 0,
        "tol": -1.0,
        "restarts": -1,
        "prior": -0.5,
        "class_prior": [0.5, -0.5, 1.0],
        "start": "nowhere",
        "anchor": 1.5,
        "shrink": 0.0,
        "history": 5,
    }
    for name in registry.find(key).load().parameters():
        if name in wrong:
            with pytest.raises(ParameterError, match=name):
                run(key, sim.votes, truth_for(key, sim), **{name: wrong[name]})


def test_unknown_parameters_get_a_suggestion(key):
    with pytest.raises(ParameterError, match="Did you mean 'random_state'"):
        run(key, crowd().votes, random_stat=1)


def test_saves_and_loads(key, tmp_path):
    sim = crowd()
    c = run(key, sim.votes, truth_for(key, sim), random_state=4)
    back = cw.Consensus.load(c.save(tmp_path / "kept"))
    assert np.array_equal(back.posterior, c.posterior)
    assert back.labels.tolist() == c.labels.tolist()
    assert back.annotators.equals(c.annotators)
    assert back.items.equals(c.items)
    assert (back.method, back.seed, back.iterations, back.converged, back.objective) == (
        key,
        4,
        c.iterations,
        c.converged,
        c.objective,
    )
    assert (back.confusion is None) == (c.confusion is None)


def test_a_prior_per_item_is_used_or_refused(key):
    sim = crowd(n=80)
    model = registry.create(key)
    prior = np.full((80, 3), 1e-6)
    prior[:, 2] = 1.0
    if model.takes_item_prior:
        strong = model.fit(sim.votes, truth_for(key, sim), item_prior=prior**3).consensus_
        assert (strong.label_codes == 2).mean() > 0.9
        with pytest.raises(ParameterError, match="80 x 3"):
            model.fit(sim.votes, item_prior=prior[:5])
    else:
        with pytest.raises(ParameterError, match="no place for a prior per item"):
            model.fit(sim.votes, truth_for(key, sim), item_prior=prior)


def test_a_trace_belongs_to_an_objective(key):
    sim = crowd()
    c = run(key, sim.votes, truth_for(key, sim))
    if len(c.trace):
        assert c.objective == c.trace[-1]
        assert c.iterations >= len(c.trace)
        assert (np.diff(c.trace) >= -1e-9 * abs(c.trace[0])).all()
    else:
        assert c.objective is None


def test_has_a_page_section_a_summary_and_a_line_in_the_readme(key):
    root = Path(__file__).resolve().parents[2]
    entry = registry.find(key)
    assert entry.summary
    pages = [page.read_text(encoding="utf-8") for page in (root / "docs").glob("methods*.md")]
    assert sum(f"\n## {key}\n" in page for page in pages) == 1
    assert f"`{key}`" in (root / "README.md").read_text(encoding="utf-8")
    doc = entry.load().__doc__ or ""
    assert ">>>" in doc, "a method shows itself at work in a doctest"


def test_the_registry_names_every_model_class_once():
    classes = [entry.load() for entry in registry.METHODS.values()]
    assert len(set(classes)) == len(classes)
    for entry, model in zip(registry.METHODS.values(), classes, strict=True):
        assert model.key == entry.key
        assert getattr(cw, entry.class_name) is model


def test_unknown_methods_get_a_suggestion():
    with pytest.raises(ParameterError, match="Did you mean 'dawid-skene'"):
        cw.aggregate(crowd().votes, "dawid_skene")


def test_a_model_wants_votes():
    with pytest.raises(InputError, match=r"Votes\.from_frame"):
        cw.DawidSkene().fit([[0, 1], [1, 1]])


def test_aggregate_takes_a_table():
    c = cw.aggregate({"task": [1, 1, 2, 2], "worker": ["a", "b", "a", "b"], "label": ["x", "x", "y", "x"]}, "majority")
    assert c.labels[0] == "x"


def test_a_fit_that_settles_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert cw.aggregate(crowd().votes, "dawid-skene").converged
