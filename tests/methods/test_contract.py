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
from crowdwise.kernels import threads

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
KEYS = list(registry.METHODS)
N, M, K = 240, 18, 3
"""Items, annotators and classes of the crowd that most tests share, and one fit to it."""


def crowd(seed=0, n=N, n_annotators=M, r=5):
    return cw.simulate.dirichlet(n, n_annotators=n_annotators, n_classes=K, votes_per_item=r, random_state=seed)


WHOLE = crowd(n=N + 100)
"""The shared crowd, and a hundred items that are not in the fit."""
VOTES, TRUTH = WHOLE.votes[:N], WHOLE.truth[:N]


def gold_of(truth, share=0.2):
    return np.where(np.arange(len(truth)) < share * len(truth), truth, -1).astype(np.int32)


def needed(key, truth):
    """Gold labels, for methods that need some."""
    return gold_of(truth) if registry.find(key).load().needs_gold else None


def run(key, votes, gold=None, **params):
    return cw.aggregate(votes, key, gold=gold, **params)


def of(votes, item=None, annotator=None, label=None, **others):
    """The same votes, but for what is given."""
    names = {"items": votes.items, "annotators": votes.annotators, "classes": votes.classes, **others}
    codes = (votes.item if item is None else item, votes.annotator if annotator is None else annotator)
    return cw.Votes.from_codes(*codes, votes.label if label is None else label, **names)


@pytest.fixture(scope="module", params=KEYS)
def key(request):
    return request.param


@pytest.fixture(scope="module")
def model(key):
    """One fit to the shared crowd, for all tests that look at a fit."""
    return registry.create(key).fit(VOTES, needed(key, TRUTH))


@pytest.fixture(scope="module")
def c(model):
    return model.consensus_


def test_beats_chance_and_is_not_far_under_the_majority(c):
    assert c.score(TRUTH) > max(0.75, cw.aggregate(VOTES, "majority").score(TRUTH) - 0.02)


def test_result_is_well_formed(key, c):
    assert c.posterior.shape == (N, K)
    assert np.allclose(c.posterior.sum(axis=1), 1.0, atol=1e-12)
    assert (c.posterior >= 0).all()
    assert abs(c.prior.sum() - 1.0) < 1e-9
    assert c.labels.shape == (N,)
    assert np.allclose(c.posterior.max(axis=1), c.posterior[np.arange(N), c.label_codes], atol=1e-9)
    assert c.method == key
    assert c.n_answers == VOTES.n_votes
    if c.confusion is not None:
        assert c.confusion.shape == (M, K, K)
        assert np.allclose(c.confusion.sum(axis=2), 1.0)
    accuracy, low, high = c.accuracy()
    assert ((low <= accuracy) & (accuracy <= high) & (low >= 0) & (high <= 1)).all()
    assert c.annotators.height == M
    assert c.items.height == N
    assert c.items.columns[:5] == ["item", "label", "probability", "entropy", "votes"]


def test_a_trace_belongs_to_an_objective(c):
    if len(c.trace):
        assert c.objective == c.trace[-1]
        assert c.iterations >= len(c.trace)
        assert (np.diff(c.trace) >= -1e-9 * abs(c.trace[0])).all()
    else:
        assert c.objective is None


def test_saves_and_loads(key, c, tmp_path):
    back = cw.Consensus.load(c.save(tmp_path / "kept"))
    assert np.array_equal(back.posterior, c.posterior)
    assert back.labels.tolist() == c.labels.tolist()
    assert back.annotators.equals(c.annotators)
    assert back.items.equals(c.items)
    for name in ("seed", "iterations", "converged", "objective"):
        assert getattr(back, name) == getattr(c, name)
    assert back.method == key
    assert (back.confusion is None) == (c.confusion is None)


def test_a_second_fit_agrees_leaves_the_votes_alone_and_does_not_look_at_their_truth(key, c):
    arrays = (VOTES.indptr, VOTES.annotator, VOTES.label)
    before = [a.copy() for a in arrays]
    again = registry.create(key).fit(VOTES.with_truth(None), needed(key, TRUTH)).consensus_
    assert np.array_equal(c.posterior, again.posterior)
    assert all(np.array_equal(a, b) for a, b in zip(before, arrays, strict=True))


def test_order_of_rows_names_of_annotators_and_order_of_classes_do_not_matter(key, c):
    rng = np.random.default_rng(0)
    names = VOTES.annotators.tolist()
    rename = dict(zip(names, rng.permutation(names).tolist(), strict=True))
    table, order = VOTES.to_frame("dict"), rng.permutation(VOTES.n_votes)
    table = {name: [column[i] for i in order] for name, column in table.items() if name != "truth"}
    table["annotator"] = [rename[a] for a in table["annotator"]]
    gold = needed(key, TRUTH)
    by_name = None if gold is None else {n: int(k) for n, k in zip(VOTES.items.tolist(), gold, strict=True) if k >= 0}
    other = run(key, cw.Votes.from_frame(table, classes=[2, 0, 1]), by_name)
    rows = [other.item_names.tolist().index(i) for i in c.item_names.tolist()]
    columns = [other.classes.tolist().index(k) for k in c.classes.tolist()]
    assert np.allclose(other.posterior[np.ix_(rows, columns)], c.posterior, atol=1e-9)


def test_threads_and_engines_give_the_same_answer(key, c, monkeypatch):
    monkeypatch.setattr(threads, "VOTES_PER_THREAD", 200)
    monkeypatch.setenv("CROWDWISE_ENGINE", "native")
    monkeypatch.setenv("CROWDWISE_THREADS", "3")
    assert threads.threads_for(VOTES.n_votes, M * K) == 3
    assert np.allclose(run(key, VOTES, needed(key, TRUTH)).posterior, c.posterior, atol=1e-9)


def test_predicts_items_that_were_not_in_the_fit(key, model):
    new = WHOLE.votes[N:]
    q = model.predict_proba(new)
    assert q.shape == (100, K)
    assert np.allclose(q.sum(axis=1), 1.0)
    assert (model.predict(new) == WHOLE.truth[N:]).mean() > 0.75
    gold = needed(key, TRUTH)
    unknown = np.arange(N) if gold is None else np.flatnonzero(gold < 0)
    assert np.allclose(model.predict_proba(VOTES)[unknown], model.consensus_.posterior[unknown], atol=1e-9)


def test_predicts_with_unseen_annotators_and_classes_in_another_order(model):
    q = model.predict_proba(cw.Votes.from_records([("x", "a3", 1), ("x", "unseen", 1), ("y", "a0", 0)]))
    assert q.shape == (2, K)
    assert q[0].argmax() == 1
    with pytest.raises(LabelError, match="fitted with the classes"):
        model.predict_proba(cw.Votes.from_records([("x", "a3", 7), ("x", "a1", 0)]))


def test_seeds_repeat(key):
    sim = crowd(n=100, r=2)
    options = {"random_state": 1, "ties": "random"}
    a, b = (run(key, sim.votes, needed(key, sim.truth), **options) for _ in range(2))
    assert np.array_equal(a.posterior, b.posterior)
    assert np.array_equal(a.labels, b.labels)


def test_gold_labels_are_certain_in_the_result(key):
    gold = gold_of(TRUTH)
    c = run(key, VOTES, gold)
    known = gold >= 0
    assert np.array_equal(c.posterior[known].argmax(axis=1), gold[known])
    assert np.allclose(c.posterior[known].max(axis=1), 1.0)


def test_doubling_every_vote_equals_doubling_the_weights(key):
    sim = crowd(n=60)
    votes, gold = sim.votes, needed(key, sim.truth)
    twice = [np.repeat(x, 2) for x in (votes.item, votes.annotator, votes.label)]
    double = of(votes, *twice, on_duplicate="all")
    weighted = of(votes, weight=np.full(votes.n_votes, 2.0))
    assert np.allclose(run(key, double, gold).posterior, run(key, weighted, gold).posterior, atol=1e-9)


def test_two_thousand_votes_per_item_leave_no_nan_and_no_uniform_posterior(key):
    """Peers get NaN, all-zero rows or, silently, uniform posteriors at 900 to 1,500 labels per item."""
    rng = np.random.default_rng(0)
    truth = np.array([0, 1, 2, 1], dtype=np.int32)
    label = np.where(rng.random((4, 40)) < 0.5, truth[:, None], rng.integers(0, K, (4, 40)))
    votes = cw.Votes.from_dense(label)
    gold = np.array([0, -1, -1, -1], dtype=np.int32) if registry.find(key).load().needs_gold else None
    c = run(key, of(votes, weight=np.full(votes.n_votes, 50.0)), gold)  # as many as fifty votes each
    assert np.isfinite(c.posterior).all()
    assert c.label_codes.tolist() == truth.tolist()
    assert (c.posterior.max(axis=1) > 0.5).all()
    for name, column in c.annotator_columns.items():
        assert column.dtype.kind in "UO" or not np.isnan(column).any(), name
    assert all(np.isfinite(end).all() for end in c.accuracy())


def test_items_without_votes_get_the_prior_or_the_uniform(key):
    sim = crowd(n=60)
    gold = needed(key, sim.truth)
    c = run(key, of(sim.votes, items=range(61)), None if gold is None else np.append(gold, -1).astype(np.int32))
    assert np.allclose(c.posterior[60], c.prior, atol=1e-9) or np.allclose(c.posterior[60], 1 / 3)
    assert c.votes_per_item[60] == 0


def test_a_declared_class_nobody_used_gets_nothing(key):
    sim = crowd(n=100)
    c = run(key, of(sim.votes, classes=[0, 1, 2, 3]), needed(key, sim.truth))
    assert np.isfinite(c.posterior).all()
    assert not (c.label_codes == 3).any()


def test_annotators_with_a_single_vote(key):
    sim = crowd(n=60, n_annotators=160, r=3)
    c = run(key, sim.votes, needed(key, sim.truth))
    assert np.isfinite(c.posterior).all()
    _, low, high = c.accuracy()
    assert np.isfinite(low).all() and np.isfinite(high).all()


def test_one_class_is_refused_with_advice(key):
    votes = cw.Votes.from_records([("a", 1, "yes"), ("a", 2, "yes"), ("b", 1, "yes")])
    with pytest.raises(LabelError, match=re.escape("declare them: classes=[...]")):
        run(key, votes, {"a": "yes"})


def test_a_single_annotator(key):
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


def test_unfitted_models_say_so(key):
    with pytest.raises(NotFittedError, match=r"call fit\(votes\) first"):
        registry.create(key).predict_proba(VOTES)


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


def test_unknown_parameters_get_a_suggestion(key):
    with pytest.raises(ParameterError, match="Did you mean 'random_state'"):
        run(key, VOTES, random_stat=1)


def test_a_prior_per_item_is_used_or_refused(key):
    sim = crowd(n=80)
    model, gold = registry.create(key), needed(key, sim.truth)
    prior = np.full((80, 3), 1e-6)
    prior[:, 2] = 1.0
    if model.takes_item_prior:
        strong = model.fit(sim.votes, gold, item_prior=prior**3).consensus_
        assert (strong.label_codes == 2).mean() > 0.9
        with pytest.raises(ParameterError, match="80 x 3"):
            model.fit(sim.votes, item_prior=prior[:5])
    else:
        with pytest.raises(ParameterError, match="no place for a prior per item"):
            model.fit(sim.votes, gold, item_prior=prior)


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
        cw.aggregate(VOTES, "dawid_skene")


def test_a_model_wants_votes():
    with pytest.raises(InputError, match=r"Votes\.from_frame"):
        cw.DawidSkene().fit([[0, 1], [1, 1]])


def test_aggregate_takes_a_table():
    c = cw.aggregate({"task": [1, 1, 2, 2], "worker": ["a", "b", "a", "b"], "label": ["x", "x", "y", "x"]}, "majority")
    assert c.labels[0] == "x"


def test_a_fit_that_settles_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert cw.aggregate(VOTES, "dawid-skene").converged
