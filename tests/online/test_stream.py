"""Learning from a stream: the vote store, decayed and exact statistics, growth, forgetting, saving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdwise as cw
from crowdwise import registry, saved
from crowdwise.data.folders import read_saved
from crowdwise.errors import DuplicateError, InputError, NotFittedError, ParameterError, ReadError
from crowdwise.online import stream
from crowdwise.online.stream import PASSES
from crowdwise.online.vote_store import CodedBatch, Index, VoteStore, remaining_share

STREAMING = ("dawid-skene", "one-coin", "confusion-vector", "ibcc")


def crowd(**options: Any) -> Any:
    given = {"n_annotators": 25, "n_classes": 3, "votes_per_item": 5, "random_state": 1} | options
    return cw.simulate.dirichlet(given.pop("n_items", 400), **given)


def batches(votes: cw.Votes, size: int, seed: int = 0) -> Iterator[cw.Votes]:
    order = np.random.default_rng(seed).permutation(votes.n_votes)
    for i in range(0, len(order), size):
        chosen = np.zeros(votes.n_votes, dtype=bool)
        chosen[order[i : i + size]] = True
        some = votes.select(chosen)
        yield some[np.flatnonzero(np.diff(some.indptr) > 0)]


def known(made: Any) -> dict[Any, Any]:
    return dict(zip(made.votes.items.tolist(), made.votes.classes[made.truth].tolist(), strict=True))


def same(a: cw.Consensus, b: cw.Consensus) -> None:
    """Two consensus about the same items, in whatever order."""
    x, y = (c.to_frame("items", kind="polars", probabilities=True).sort("item") for c in (a, b))
    assert x["item"].to_list() == y["item"].to_list()
    for column in [c for c in x.columns if c.startswith("p(")]:
        np.testing.assert_allclose(x[column].to_numpy(), y[column].to_numpy(), atol=1e-5)


# -- the vote store ----------------------------------------------------------------------------------------------------


def rows_of(votes: cw.Votes) -> list[Any]:
    table = votes.to_frame("dict")
    return sorted(zip(*(table[c].tolist() for c in ("item", "annotator", "label")), strict=True))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30))
def test_the_store_holds_what_came_in(seed: int, size: int) -> None:
    votes = crowd(n_items=12, n_annotators=6, votes_per_item=3, random_state=seed).votes
    store = VoteStore()
    order = np.random.default_rng(seed).permutation(votes.n_votes)
    for i in range(0, len(order), size):
        some = order[i : i + size]
        store.add(CodedBatch.of(votes.item[some], votes.annotator[some].astype(np.int64), votes.label[some]))
    indptr, annotator, label, weight = store.votes()
    item = store.items.codes[np.repeat(np.arange(len(store.items)), np.diff(indptr))]
    rows = sorted(zip(item.tolist(), store.annotators.codes[annotator].tolist(), label.tolist(), strict=True))
    assert rows == sorted(zip(votes.item.tolist(), votes.annotator.tolist(), votes.label.tolist(), strict=True))
    assert len(weight) == 0


def test_codes_get_places_in_the_order_in_which_they_come() -> None:
    index = Index()
    assert index.enter(np.array([7, 2])).tolist() == [0, 1]
    assert index.enter(np.array([2, 900, 7])).tolist() == [1, 2, 0]
    assert index.find(np.array([900, 3, 5_000])).tolist() == [2, -1, -1]
    assert index.codes.tolist() == [7, 2, 900]
    batch = CodedBatch.of(np.array([5, 3, 5]), np.array([1, 0, 0]), np.array([0, 1, 1]), gold={5: 2, 3: 0, 9: 1})
    assert batch.items.tolist() == [5, 3]
    assert batch.annotators.tolist() == [1, 0]
    assert (batch.item.tolist(), batch.annotator.tolist(), batch.label.tolist()) == ([0, 0, 1], [0, 1, 1], [0, 1, 1])
    assert batch.gold is not None and batch.gold.tolist() == [2, 0]


def test_second_votes() -> None:
    first = cw.Votes.from_records([("a", "ann", "x"), ("a", "bob", "y"), ("b", "ann", "x")])
    again = cw.Votes.from_records([("a", "ann", "y"), ("c", "bob", "y")])
    for policy, expected in (("first", {"x"}), ("last", {"y"}), ("all", {"x", "y"})):
        online = cw.Online(cw.DawidSkene(), on_duplicate=policy)  # type: ignore[arg-type]
        online.partial_fit(first).partial_fit(again)
        said = online.votes().to_frame("polars").filter(item="a", annotator="ann")["label"].to_list()
        assert set(said) == expected
    online = cw.Online(cw.DawidSkene()).partial_fit(first)
    with pytest.raises(DuplicateError, match=r"'ann' has voted on 'a' before \(1 such votes\)"):
        online.partial_fit(again)
    assert online.store.n_votes == 3
    assert online.item_names.names == ["a", "b"]  # nothing of the refused votes is left


def test_a_vote_that_replaces_one_counts_with_its_own_weight() -> None:
    votes = cw.simulate.dirichlet(60, n_annotators=6, n_classes=3, votes_per_item=3, random_state=0).votes
    heavy = replace(votes, weight=np.full(votes.n_votes, 3.0))
    for kept, weight in (("last", 3.0), ("first", 1.0), ("all", 4.0)):
        online = cw.Online(cw.DawidSkene(), on_duplicate=kept).partial_fit(votes).partial_fit(heavy)  # type: ignore[arg-type]
        expected = weight * np.bincount(votes.annotator, minlength=votes.n_annotators)
        so_far = online.tables.given[: votes.n_annotators]
        assert sorted(so_far) == sorted(expected), kept


def test_only_the_items_voted_on_last_are_retained() -> None:
    votes = crowd(n_items=20).votes
    online = cw.Online(cw.DawidSkene())
    for n in range(20):
        online.partial_fit(votes[[n]])
    assert online.store.retain(5).tolist() == [15, 16, 17, 18, 19]
    assert online.store.items.codes.tolist() == [15, 16, 17, 18, 19]
    assert rows_of(online.votes()) == rows_of(votes[np.arange(15, 20)])


def test_votes_in_codes_teach_what_votes_with_names_do() -> None:
    votes = crowd(n_items=150).votes
    named, coded = cw.Online(cw.DawidSkene()), cw.Online(cw.DawidSkene(), classes=votes.classes.tolist())
    coded.declare(votes.items.tolist(), votes.annotators.tolist())
    for some in batches(votes, 60):
        named.partial_fit(some)
        place, _ = coded.item_names.encode(some.items)
        coded.learn(CodedBatch(place, np.arange(votes.n_annotators), some.item, some.annotator, some.label))
    assert np.array_equal(named.consensus().posterior, coded.consensus().posterior)
    assert np.array_equal(named.consensus().items, coded.consensus().items)


# -- learning ----------------------------------------------------------------------------------------------------------


def test_the_remaining_share_of_an_average_is_the_product_of_steps() -> None:
    t, b = np.array([0.0, 1.0, 3.0, 7.0]), np.array([2.0, 1.0, 4.0, 5.0])
    plain = [np.prod([1.0 - (s + i) ** -0.6 for i in range(1, int(n) + 1)]) for s, n in zip(t, b, strict=True)]
    np.testing.assert_allclose(remaining_share(t, b, 0.6), plain, atol=1e-12)
    np.testing.assert_allclose(
        remaining_share(t[1:], b[1:], 1.0), (t / (t + b))[1:], atol=1e-12
    )  # 1/t is the plain average


@pytest.mark.parametrize("key", STREAMING)
def test_one_pass_comes_close_to_a_batch_fit(key: str) -> None:
    found = []
    for seed in range(2):
        made = crowd(n_items=600, random_state=seed)
        online = cw.Online(registry.create(key))
        for some in batches(made.votes, 60, seed):
            online.partial_fit(some)
        batch = cw.aggregate(made.votes, key).score(made.truth)
        found.append((online.consensus().score(known(made)), batch))
    one_pass, batch = np.mean(found, axis=0)
    assert one_pass > batch - 0.015


@pytest.mark.parametrize("key", ["dawid-skene", "one-coin", "confusion-vector", "ibcc"])
def test_exact_statistics_converge_to_the_batch_optimum(key: str) -> None:
    made = crowd(n_items=500, n_annotators=10, votes_per_item=6)
    online = cw.Online(registry.create(key), step=None)
    for some in batches(made.votes, 50):
        online.partial_fit(some)
    online.converge(tol=1e-16, max_iter=20_000)
    batch = registry.create(key, tol=1e-16, max_iter=20_000).fit(made.votes).consensus_
    same(online.consensus(), batch)
    if batch.log_likelihood is not None:
        assert online.consensus().log_likelihood == pytest.approx(batch.log_likelihood, rel=1e-9)


def test_revisits_alone_reach_the_batch_optimum() -> None:
    made = crowd(n_items=300, n_annotators=8, votes_per_item=6)
    online = cw.Online(cw.DawidSkene(), step=None, shrinkage=0.0, revisit=2.0)
    for some in batches(made.votes, 100):
        online.partial_fit(some)
    for _ in range(400):
        online._revisit(300)
    batch = cw.DawidSkene(tol=1e-16, max_iter=20_000).fit(made.votes).consensus_
    same(online.consensus(), batch)
    assert online.consensus().log_likelihood == pytest.approx(batch.log_likelihood, rel=1e-9)


# -- an early stream is refit ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:dawid-skene stopped")
@pytest.mark.parametrize("step", [0.6, None])
def test_a_refit_is_a_batch_fit_of_so_many_passes(step: float | None) -> None:
    votes = crowd().votes
    online = cw.Online(cw.DawidSkene(), step=step, shrinkage=0.0).partial_fit(votes)
    batch = cw.DawidSkene(accelerate=False, tol=0.0, max_iter=PASSES).fit(votes).consensus_
    assert online.refit_at == votes.n_votes
    np.testing.assert_allclose(online.posterior, batch.posterior, atol=1e-9)
    np.testing.assert_allclose(online.tables.mass, batch.posterior.sum(axis=0), atol=1e-7)


def test_how_a_stream_began_does_not_decide_where_it_goes() -> None:
    """Weak annotators, five classes, one of them frequent: what a few votes suggest draws a stream away."""
    apart: dict[float | None, list[float]] = {1.2: [], None: []}
    for seed in range(2):
        made = cw.simulate.one_coin(
            800, n_annotators=40, n_classes=5, a=3.0, b=4.0, votes_per_item=6,
            prior=[0.4, 0.15, 0.15, 0.15, 0.15], random_state=seed,
        )  # fmt: skip
        batch = dict(zip(made.votes.items, cw.aggregate(made.votes, "one-coin").labels, strict=True))
        for factor, found in apart.items():
            online = cw.Online(cw.OneCoin(), refit_factor=factor)
            for some in batches(made.votes, 50, seed):
                online.partial_fit(some)
            labels = online.consensus().to_frame("items", kind="polars")
            found.append(np.mean([batch[i] != k for i, k in labels.select("item", "label").iter_rows()]))
    assert np.mean(apart[1.2]) < 0.05
    assert np.mean(apart[None]) > 1.5 * np.mean(apart[1.2])


def test_only_an_early_stream_that_forgot_nothing_is_refit(monkeypatch: pytest.MonkeyPatch) -> None:
    votes = crowd(n_items=300).votes
    forgetful = cw.Online(cw.DawidSkene(), memory=50)
    for first in range(0, 300, 30):
        forgetful.partial_fit(votes[first : first + 30])
    assert 0 < forgetful.refit_at <= votes[:120].n_votes
    monkeypatch.setattr("crowdwise.online.stream.EARLY", 700)
    online = cw.Online(cw.DawidSkene())
    for some in batches(votes, 50):
        online.partial_fit(some)
    assert 700 / 1.2 < online.refit_at <= 700
    never = cw.Online(cw.DawidSkene(), refit_factor=None).partial_fit(votes)
    assert never.refit_at == 0


def test_exact_statistics_are_those_of_the_posteriors() -> None:
    """However items were revisited: counts, mass and the crowd's table are sums over the posteriors of the moment."""
    made = crowd(n_items=200)
    online = cw.Online(cw.DawidSkene(), step=None)
    for some in batches(made.votes, 37):
        online.partial_fit(some)
    indptr, annotator, label, _ = online.store.votes()
    q = online.posterior[np.repeat(np.arange(len(online.store.items)), np.diff(indptr))]
    expected = np.zeros_like(online.tables.counts)
    np.add.at(expected, (annotator, label), q)
    np.testing.assert_allclose(online.tables.counts, expected, atol=1e-9)
    np.testing.assert_allclose(online.tables.mass, online.posterior.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(online.tables.pooled, expected.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("step", [0.6, None])
def test_items_annotators_and_classes_may_come_at_any_time(step: float | None) -> None:
    online = cw.Online(cw.DawidSkene(), step=step)
    online.partial_fit(cw.Votes.from_records([("a", "ann", "x"), ("a", "bob", "x")]))
    online.partial_fit(cw.Votes.from_records([("b", "ann", "y"), ("b", "cem", "y"), ("a", "cem", "x")]))
    online.partial_fit(cw.Votes.from_records([("c", "dee", "w"), ("c", "ann", "w"), ("c", "bob", "w")]))
    consensus = online.consensus()
    assert consensus.classes.tolist() == ["w", "x", "y"]
    assert dict(zip(consensus.items.tolist(), consensus.labels.tolist(), strict=True)) == {
        "a": "x", "b": "y", "c": "w",
    }  # fmt: skip
    np.testing.assert_allclose(consensus.posterior.sum(axis=1), 1.0)
    np.testing.assert_allclose(consensus.confusion.sum(axis=2), 1.0)


def test_one_class_so_far_is_no_error() -> None:
    online = cw.Online(cw.DawidSkene())
    online.partial_fit(cw.Votes.from_records([("a", "ann", "x")]))
    assert online.consensus().labels.tolist() == ["x"]


def test_known_truth_is_kept() -> None:
    made = crowd(n_items=60)
    gold = {item: label for item, label in list(known(made).items())[:20]}
    online = cw.Online(cw.DawidSkene())
    for some in batches(made.votes, 40):
        online.partial_fit(some, gold={i: c for i, c in gold.items() if i in set(some.items.tolist())})
    consensus = online.consensus()
    said = dict(zip(consensus.items.tolist(), consensus.labels.tolist(), strict=True))
    assert all(said[item] == label for item, label in gold.items())


def test_weights_count() -> None:
    votes = cw.Votes.from_frame(
        {
            "item": ["a", "a", "a"],
            "annotator": ["ann", "bob", "cem"],
            "label": ["x", "y", "y"],
            "weight": [9.0, 1.0, 1.0],
        }
    )
    assert cw.Online(cw.OneCoin()).partial_fit(votes).consensus().labels.tolist() == ["x"]


def test_memory_is_bounded_and_what_was_learned_stays() -> None:
    made = crowd(n_items=900, n_annotators=10)
    online = cw.Online(cw.DawidSkene(), memory=100)
    for some in (made.votes[np.arange(i, i + 30)] for i in range(0, 900, 30)):
        online.partial_fit(some)
    assert len(online.store.items) <= 200
    assert online.n_items == 900
    assert len(online.store.rows["label"]) <= 2 * made.votes.n_votes / 900 * 230
    truth = known(made)
    consensus = online.consensus()
    score = consensus.score({item: truth[item] for item in consensus.items.tolist()})
    alone = online.votes()
    assert score >= cw.aggregate(alone, "majority").score({item: truth[item] for item in alone.items.tolist()})
    with pytest.raises(ParameterError, match="exact statistics"):
        online.converge()


@pytest.mark.parametrize("step", [0.6, None])
def test_saved_and_loaded_it_goes_on_bit_for_bit(step: float | None, tmp_path: Path) -> None:
    made = crowd(n_items=200)
    some = list(batches(made.votes, 90))
    online = cw.Online(cw.DawidSkene(), step=step, memory=60 if step else None)
    for batch in some[:6]:
        online.partial_fit(batch)
    online.save(tmp_path / "stream")
    again = cw.Online.load(tmp_path / "stream", cw.DawidSkene())
    for batch in some[6:]:
        online.partial_fit(batch)
        again.partial_fit(batch)
    assert np.array_equal(online.consensus().posterior, again.consensus().posterior)
    assert np.array_equal(online.consensus().confusion, again.consensus().confusion)
    with pytest.raises(ParameterError, match="holds a stream of dawid-skene"):
        cw.Online.load(tmp_path / "stream", cw.OneCoin())
    (tmp_path / "stream" / "online.json").write_text("{", encoding="utf-8")
    with pytest.raises(ReadError, match="readable stream"):
        cw.Online.load(tmp_path / "stream", cw.DawidSkene())


def test_a_batch_fit_can_go_on_from_a_stream() -> None:
    made = crowd(n_items=500)
    online = cw.Online(cw.DawidSkene())
    for some in batches(made.votes, 100):
        online.partial_fit(some)
    cold = cw.DawidSkene(accelerate=False).fit(made.votes).consensus_
    warm = cw.DawidSkene(accelerate=False, start=online.consensus()).fit(made.votes).consensus_
    assert warm.iterations < cold.iterations
    assert warm.objective == pytest.approx(cold.objective, abs=0.5)


def test_partial_fit_of_a_model() -> None:
    made = crowd(n_items=200)
    model = cw.DawidSkene()
    for some in batches(made.votes, 200):
        model.partial_fit(some)
    assert model.consensus_.score(known(made)) > 0.8
    assert model.predict_proba(made.votes).shape == (200, 3)


def test_names_do_not_matter() -> None:
    made = crowd(n_items=80)
    plain, renamed = cw.Online(cw.DawidSkene()), cw.Online(cw.DawidSkene())
    for some in batches(made.votes, 50):
        items = np.array([f"item {n}" for n in some.items.tolist()], object)
        people = np.array([f"person {n}" for n in some.annotators.tolist()], object)
        plain.partial_fit(some)
        renamed.partial_fit(cw.Votes(some.indptr, some.annotator, some.label, items, people, some.classes))
    assert np.array_equal(plain.consensus().posterior, renamed.consensus().posterior)


@pytest.mark.parametrize("left", [0, 30, 2000])
def test_a_stream_that_was_cut_short_says_so(tmp_path: Path, left: int) -> None:
    cw.Online(cw.DawidSkene()).partial_fit(crowd(n_items=40).votes).save(tmp_path / "stream")
    arrays = tmp_path / "stream" / "arrays.npz"
    arrays.write_bytes(arrays.read_bytes()[:left])
    with pytest.raises(ReadError, match="does not hold a readable stream"):
        cw.Online.load(tmp_path / "stream", cw.DawidSkene())


# -- complaints --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 0.5}, "step=0.5"),
        ({"step": 1.5}, "step=1.5"),
        ({"revisit": -1.0}, "revisit=-1.0"),
        ({"refit_factor": 1.0}, "refit_factor=1.0"),
        ({"shrinkage": float("nan")}, "shrinkage=nan"),
        ({"memory": 0}, "memory=0"),
        ({"on_duplicate": "newest"}, "on_duplicate='newest'"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        cw.Online(cw.DawidSkene(), **options)


def test_what_cannot_follow_a_stream_says_so() -> None:
    with pytest.raises(ParameterError, match="glad cannot follow a stream"):
        cw.Online(cw.GLAD())
    with pytest.raises(ParameterError, match="anchored cannot follow a stream"):
        cw.Online(cw.Anchored())
    with pytest.raises(ParameterError, match="learned from all votes at once"):
        cw.Online(cw.DawidSkene(prior="crowd"))
    with pytest.raises(ParameterError, match="a stream needs 'variational'"):
        cw.Online(registry.create("ibcc", inference="gibbs"))
    with pytest.raises(NotFittedError, match="No votes have come in yet"):
        cw.Online(cw.DawidSkene()).consensus()
    with pytest.raises(InputError, match="Expected Votes and found list"):
        cw.Online(cw.DawidSkene()).partial_fit([("a", "ann", "x")])  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [(1, "ann", "x"), ("c", 1, "x"), ("c", "ann", 1), ("c", "ann", True)])
def test_names_of_another_kind_are_refused_and_change_nothing(row: tuple[Any, ...]) -> None:
    online = cw.Online(cw.DawidSkene()).partial_fit(cw.Votes.from_records([("a", "ann", "x"), ("b", "bob", "y")]))
    with pytest.raises(InputError, match=r"are of one kind: '\w+' came before, and (1|True) is of another"):
        online.partial_fit(cw.Votes.from_records([row]))
    assert online.consensus().item_table["item"].to_list() == ["a", "b"]


# -- gold whenever it comes --------------------------------------------------------------------------------------------


def gold_said(online: cw.Online) -> dict[Any, Any]:
    found = online.consensus()
    return dict(zip(found.items.tolist(), found.labels.tolist(), strict=True))


@pytest.mark.parametrize("step", [0.6, None])
@pytest.mark.parametrize("when", ["before", "with", "after", "method"])
def test_gold_counts_whenever_it_comes(step: float | None, when: str, tmp_path: Path) -> None:
    """Annotators c and d are wrong on the gold items: that shows on the others, whether gold comes first or last."""
    rows = [(n, m, (n % 2) if m in "ab" else 1 - n % 2) for n in range(40) for m in "abcd"]
    votes = cw.Votes.from_records(rows)
    gold = {n: n % 2 for n in range(0, 20)}
    online = cw.Online(cw.OneCoin(), step=step, refit_factor=None, classes=[0, 1])
    first, second = votes[:25], votes[25:]
    if when == "before":
        online.add_gold(gold)
        online.save(tmp_path / "stream")
        online = cw.Online.load(tmp_path / "stream", cw.OneCoin())
        online.partial_fit(first).partial_fit(second)
    elif when == "with":
        online.partial_fit(first, gold=gold).partial_fit(second)
    elif when == "after":
        online.partial_fit(first).partial_fit(second, gold=gold)
    else:
        online.partial_fit(first).partial_fit(second).add_gold(gold)
    said = gold_said(online)
    assert all(said[n] == n % 2 for n in gold)
    assert not online.waiting
    if when != "before":
        assert online.store.truth[:20].tolist() == [n % 2 for n in range(20)]
    right, wrong = (online.consensus().confusion[list("abcd").index(m)].diagonal().mean() for m in "ac")
    assert right > 0.6 > 0.5 > wrong


@pytest.mark.parametrize("model", ["one-coin", cw.OneCoin, None])
def test_a_stream_of_no_model_is_an_error(model: Any) -> None:
    with pytest.raises(ParameterError, match=r"expected a model, such as crowdwise.OneCoin\(\)"):
        cw.Online(model)


def test_gold_measures_annotators_as_in_a_batch() -> None:
    """Items with one vote each: only the gold labels say how good an annotator is, and they do."""
    votes = cw.Votes.from_records([(n, "ann", 1) for n in range(10)] + [(10, "bob", 1)], classes=[0, 1])
    gold = dict.fromkeys(range(9), 0)
    stream = cw.Online(cw.OneCoin(), classes=[0, 1]).partial_fit(votes, gold=gold).consensus()
    batch = cw.OneCoin().fit(votes, gold).consensus_
    assert np.allclose(stream.accuracy(), batch.accuracy())
    assert stream.accuracy()[2][0] < 0.35


def test_gold_of_items_without_votes_waits_and_odd_gold_is_an_error() -> None:
    online = cw.Online(cw.OneCoin())
    online.partial_fit(cw.Votes.from_records([("a", "ann", "x"), ("b", "ann", "y")]), gold={"c": "y", "7": "x"})
    assert online.waiting == {"c": "y", "7": "x"}
    with pytest.raises(InputError, match="'z', which no annotator used"):
        online.add_gold({"a": "z"})
    with pytest.raises(InputError, match="gold must be a mapping"):
        online.add_gold(["x"])
    online.partial_fit(cw.Votes.from_records([("c", "ann", "x")]), gold={"a": "y", "b": None})
    assert gold_said(online) == {"a": "y", "b": "y", "c": "y"} and online.waiting == {"7": "x"}
    numbers = cw.Online(cw.OneCoin()).partial_fit(cw.Votes.from_records([(1, 1, 0), (2, 1, 1)]), gold={"1": "1"})
    assert gold_said(numbers)[1] == 1


def test_a_copy_goes_its_own_way() -> None:
    some = list(batches(crowd(n_items=60).votes, 60))
    online = cw.Online(cw.DawidSkene(), step=None).partial_fit(some[0])
    before, twin = online.consensus().posterior, online.copy()
    twin.partial_fit(some[1])
    assert np.array_equal(online.consensus().posterior[:, :], before)
    online = online.copy().partial_fit(some[1])
    assert np.array_equal(online.consensus().posterior, twin.consensus().posterior)


def test_a_saved_stream_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = cw.simulate.one_coin(20, n_annotators=4, random_state=0).votes
    cw.Online(cw.OneCoin()).partial_fit(votes).save(tmp_path / "stream")
    read: list[Path] = []
    for module in (saved, stream):
        monkeypatch.setattr(module, "read_saved", lambda folder, kind: read.append(folder) or read_saved(folder, kind))
    assert len(cw.load(tmp_path / "stream").item_names) == 20
    assert read == [tmp_path / "stream"]
