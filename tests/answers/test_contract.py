"""What every method for other answer types must do, whatever its type.

A type takes part through one line of ``EXAMPLES``: a function that makes a small table of its answers, and inputs for
the methods that use some. Every type in the registry has to be there.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.core.result import Result
from crowdwise.errors import ConvergenceWarning, InputError, NotFittedError, ParameterError

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")


@cache
def similar() -> tuple[Any, Any, Any]:
    truth = np.random.default_rng(0).integers(3, size=36)
    crowd = cw.simulate.similarities(
        36, truth=truth, n_annotators=5, pairs_per_item=16, sensitivity=(30, 2), specificity=(30, 2), random_state=0
    )
    inputs = np.eye(3)[truth] * 3.0 + np.random.default_rng(1).normal(size=(36, 3)) * 0.5
    return crowd.answers, inputs, crowd.truth


@cache
def sets() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.label_sets(40, n_labels=3, n_annotators=6, answers_per_item=3, random_state=0)
    return crowd.answers, None, crowd.truth


@cache
def graded() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.dirichlet(60, n_annotators=8, n_classes=3, votes_per_item=4, random_state=0)
    return crowd.votes.with_truth(None), None, crowd.truth


@cache
def numbers() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.ratings(60, n_annotators=6, n_features=3, votes_per_item=4, random_state=0)
    return replace(crowd.ratings, truth=None), crowd.features["x_train"], crowd.truth


@cache
def pairs() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.comparisons(8, n_annotators=6, n_comparisons=300, tie=0.5, position_spread=0.5, random_state=0)
    inputs = np.column_stack([crowd.scores, np.random.default_rng(0).normal(size=8)])
    return crowd.comparisons, inputs, crowd.scores


@cache
def rankings() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.rankings(8, n_annotators=5, n_rankings=60, random_state=0)
    return crowd.rankings, None, crowd.scores


@cache
def tags() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.bio_tags(30, n_annotators=6, types=("LOC", "PER"), random_state=0)
    noise = np.random.default_rng(1).normal(size=(crowd.tags.n_tokens, 5))
    return crowd.tags.with_truth(None), np.eye(5)[crowd.truth] + 0.5 * noise, crowd.truth


@cache
def linked() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.graph(80, n_annotators=8, random_state=0)
    return crowd.votes.with_truth(None), None, crowd.truth


@cache
def written() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.texts(30, n_annotators=6, texts_per_item=4, random_state=0)
    return crowd.answers.with_truth(None), None, crowd.truth


@cache
def drawn() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.boxes(30, n_annotators=6, annotators_per_item=4, random_state=0)
    return crowd.answers.with_truth(None), None, crowd.truth


@cache
def painted() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.masks(12, n_annotators=6, masks_per_item=4, size=40, random_state=0)
    return crowd.answers.with_truth(None), None, crowd.truth


@cache
def marked() -> tuple[Any, Any, Any]:
    crowd = cw.simulate.spans(30, n_annotators=6, answers_per_item=4, random_state=0)
    return crowd.answers.with_truth(None), None, crowd.truth


EXAMPLES: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "ratings": numbers, "ordinal": graded, "comparisons": pairs, "rankings": rankings, "similarities": similar,
    "label-sets": sets, "tags": tags, "graph": linked, "texts": written, "boxes": drawn,
    "masks": painted, "spans": marked,
}  # fmt: skip
"""Answer type -> its answers, inputs for each item (each token, of tags), and the truth."""
LIGHT = {
    "volmaxdcc": {"n_clusters": 3, "epochs": 8, "network": "linear", "batch_size": 32},
    "crowd-clustering": {"n_clusters": 3, "restarts": 2},
    "binary-relevance": {"base": "dawid-skene"},
    "crowd-regression": {"network": "linear", "epochs": 4},
    "deep-bt": {"network": "linear", "epochs": 4},
    "crowd-layer-tags": {"network": "linear", "epochs": 3, "warm_up": 1},
}
"""Settings that make a method quick here."""
BESIDE: dict[str, Callable[[], dict[str, Any]]] = {
    "graph": lambda: {"graph": cw.simulate.graph(80, n_annotators=8, random_state=0).parameters["edges"]},
}
"""What else ``fit`` takes, of a type that needs it."""
KEYS = list(registry.ANSWER_METHODS)
LABEL_ONLY = [key for key in KEYS if not registry.ANSWER_METHODS[key].inputs]


def make(key: str, **more: Any) -> Any:
    entry = registry.ANSWER_METHODS[key]
    known = entry.load().parameters()
    given = LIGHT.get(key, {}) | ({"random_state": 3} if "random_state" in known else {}) | more
    return entry.create(**given)


def fit(key: str, answers: Any, X: Any, **more: Any) -> Any:
    model = make(key, **more)
    entry = registry.ANSWER_METHODS[key]
    given = (X, answers) if entry.inputs else (answers,)
    assert model.fit(*given, **BESIDE.get(entry.answer_type, dict)()) is model
    return model


def item_names(answers: Any) -> list[Any]:
    """What a result has a row for: items; the tokens, of tags."""
    names: list[Any] = (answers.votes.items if isinstance(answers, cw.Tags) else answers.items).tolist()
    return names


@pytest.fixture(scope="module")
def fitted() -> Callable[[str], Any]:
    made: dict[str, Any] = {}

    def get(key: str) -> Any:
        if key not in made:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                answers, X, _ = EXAMPLES[registry.ANSWER_METHODS[key].answer_type]()
                made[key] = fit(key, answers, X)
        return made[key]

    return get


def tables(result: Any) -> dict[str, dict[str, Any]]:
    return {name: result.to_frame(name, kind="dict") for name in ("items", "annotators")}


def same_table(one: dict[str, Any], two: dict[str, Any], by: str, atol: float = 0.0) -> None:
    """Equal columns, rows matched by a name."""
    assert list(one) == list(two)
    first, second = (np.argsort(np.asarray(t[by]).astype(str), kind="stable") for t in (one, two))
    for name in one:
        a, b = np.asarray(one[name])[first], np.asarray(two[name])[second]
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, atol=atol, err_msg=name)
        else:
            assert a.tolist() == b.tolist(), name


@pytest.mark.parametrize("key", KEYS)
class TestEveryMethod:
    def test_it_is_registered_under_its_own_key_and_public(self, key):
        entry = registry.ANSWER_METHODS[key]
        model = entry.load()
        assert model.key == key
        assert entry.answer_type in registry.ANSWER_TYPES
        assert getattr(cw, entry.class_name) is model
        assert entry.summary and key not in registry.METHODS and key not in registry.LEARNERS

    def test_parameters_are_stored_as_given_and_clone(self, key):
        from sklearn.base import clone

        model = make(key)
        params = model.get_params(deep=False)
        assert set(params) == set(registry.ANSWER_METHODS[key].load().parameters())
        copy = clone(model)
        assert type(copy) is type(model) and copy.get_params(deep=False) == params
        assert model.set_params(**params) is model
        assert not hasattr(copy, "consensus_")

    def test_parameters_are_described_and_checked(self, key):
        model = registry.ANSWER_METHODS[key].load()
        text = "\n".join(c.__doc__ or "" for c in model.__mro__)
        assert [name for name in model.parameters() if not re.search(rf"\b{name}\b", text)] == []
        answers, X, _ = EXAMPLES[registry.ANSWER_METHODS[key].answer_type]()
        with pytest.raises(ParameterError, match="random_state"):
            fit(key, answers, X, random_state=-1)
        for name, constraint in model.constraints().items():
            for value in constraint.accepts:
                constraint.check(name, value)
            for value in constraint.refuses:
                with pytest.raises(ParameterError, match=f"{name}="):
                    make(key).set_params(**{name: value}).check_parameters()
        with pytest.raises(ParameterError, match=f"{key} has no parameter 'nonsense'"):
            make(key, nonsense=1)

    def test_the_result_is_frozen_and_says_how_it_was_made(self, key, fitted):
        entry = registry.ANSWER_METHODS[key]
        answers = EXAMPLES[entry.answer_type]()[0]
        result = fitted(key).consensus_
        assert isinstance(result, Result)
        assert result.method == key and result.answer_type == entry.answer_type and result.seconds >= 0.0
        assert result.n_answers == answers.n_answers and all(isinstance(note, str) for note in result.notes)
        assert result.items.tolist() == item_names(answers)
        assert result.annotators.tolist() == answers.annotators.tolist()
        for f in fields(result):
            value = getattr(result, f.name)
            if isinstance(value, np.ndarray) and value.size:
                with pytest.raises(ValueError, match="read-only"):
                    value.flat[0] = value.flat[0]

    def test_tables_have_names_and_intervals_in_order(self, key, fitted):
        for by, table in zip(("item", "annotator"), tables(fitted(key).consensus_).values(), strict=True):
            assert next(iter(table)) == by
            assert len({len(column) for column in table.values()}) == 1
            for name in table:
                if f"{name}_low" in table:
                    low, high = table[f"{name}_low"], table[f"{name}_high"]
                    known = np.isfinite(table[name])
                    assert ((low <= table[name]) & (table[name] <= high))[known].all(), name
        with pytest.raises(ParameterError, match="Unknown table"):
            fitted(key).consensus_.to_frame("nonsense")

    def test_it_is_saved_and_loaded(self, key, fitted, tmp_path):
        result = fitted(key).consensus_
        back = type(result).load(result.save(tmp_path / "kept"))
        for one, two in zip(tables(result).items(), tables(back).items(), strict=True):
            assert one[0] == two[0]
            same_table(one[1], two[1], by=one[0][:-1])
        assert (back.method, back.seed, back.iterations, back.converged) == (
            result.method, result.seed, result.iterations, result.converged,
        )  # fmt: skip
        assert np.array_equal(back.trace, result.trace)

    def test_seeds_repeat(self, key, fitted):
        answers, X, _ = EXAMPLES[registry.ANSWER_METHODS[key].answer_type]()
        again = fit(key, answers, X)
        for one, two in zip(tables(fitted(key).consensus_).values(), tables(again.consensus_).values(), strict=True):
            same_table(one, two, by=next(iter(one)))
        assert np.array_equal(again.consensus_.trace, fitted(key).consensus_.trace)

    def test_it_scores_against_truth(self, key, fitted):
        result, truth = fitted(key).consensus_, EXAMPLES[registry.ANSWER_METHODS[key].answer_type]()[2]
        score = result.score(truth)
        low = -1.0 - 1e-9 if registry.ANSWER_METHODS[key].inputs else 0.05  # a few epochs learn nothing
        assert isinstance(score, float) and low <= score <= 1.0
        by_name = dict(zip(result.items.tolist(), np.asarray(truth).tolist(), strict=True))
        if result.answer_type == "label-sets":
            by_name = {name: result.labels[row].tolist() for name, row in by_name.items()}
        elif result.answer_type in ("tags", "ordinal", "graph"):
            by_name = {name: result.classes[code] for name, code in by_name.items()}
        assert result.score(by_name) == score
        with pytest.raises(InputError):
            result.score({})

    def test_another_table_is_refused(self, key):
        model = registry.ANSWER_METHODS[key].load()
        wrong: Any = sets()[0] if getattr(model, "table", None) is not cw.LabelSets else similar()[0]
        with pytest.raises(InputError, match=r"[Ee]xpect"):
            fit(key, wrong, np.zeros((len(wrong), 2)))

    def test_before_the_fit_it_says_so(self, key):
        model = make(key)
        ask = getattr(model, "_fitted", None)
        assert ask is not None
        with pytest.raises(NotFittedError, match="not been fitted"):
            ask()

    def test_it_has_a_section_and_a_doctest(self, key):
        pages = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("answers*.md"))]
        assert sum(f"\n## {key}\n" in page for page in pages) == 1
        model = registry.ANSWER_METHODS[key].load()
        assert ">>>" in (model.__doc__ or ""), "a method shows itself at work in a doctest"


@pytest.mark.parametrize("key", LABEL_ONLY)
def test_order_of_rows_and_names_do_not_matter(key, fitted):
    answers, _, _ = EXAMPLES[registry.ANSWER_METHODS[key].answer_type]()
    table = answers.to_frame("dict")
    order = np.random.default_rng(5).permutation(len(next(iter(table.values()))))
    shuffled = {name: [column[i] for i in order] for name, column in table.items()}
    turned = {str(name): f"z{99 - n:03d}" for n, name in enumerate(answers.annotators.tolist())}
    renamed = shuffled | {"annotator": [turned[str(name)] for name in shuffled["annotator"]]}
    base = tables(fitted(key).consensus_)
    one = tables(fit(key, type(answers).from_frame(shuffled), None).consensus_)
    for name in base:
        same_table(base[name], one[name], by=name[:-1], atol=1e-6)
    two = tables(fit(key, type(answers).from_frame(renamed), None).consensus_)
    same_table(base["items"], two["items"], by="item", atol=1e-5)
    assert sorted(two["annotators"]["annotator"].tolist()) == sorted(turned.values())


@pytest.mark.parametrize("key", LABEL_ONLY)
def test_names_of_items_do_not_matter(key, fitted):
    family = registry.ANSWER_METHODS[key].answer_type
    answers, _, _ = EXAMPLES[family]()
    table = answers.to_frame("dict")
    columns = [c for c in ("item", "item_a", "item_b", "left", "right", "sequence") if c in table]
    names = sorted({name for c in columns for name in table[c].tolist()})
    turned = {name: f"z{999 - n:03d}" for n, name in enumerate(names)}
    other = table | {c: [turned[name] for name in table[c].tolist()] for c in columns}
    beside = (
        {"graph": [(turned[i], turned[j]) for i, j in BESIDE["graph"]()["graph"].tolist()]} if family == "graph" else {}
    )
    one = fitted(key).consensus_
    two = make(key).fit(type(answers).from_frame(other), **beside).consensus_
    same_table(tables(one)["annotators"], tables(two)["annotators"], by="annotator", atol=1e-5)
    assert len(two.items) == len(one.items) and two.n_answers == one.n_answers


@pytest.mark.parametrize("key", LABEL_ONLY)
def test_the_objective_never_falls(key, fitted):
    trace = fitted(key).consensus_.trace
    assert (np.diff(trace) >= -1e-9 * max(1.0, abs(trace[0]) if len(trace) else 1.0)).all()


@pytest.mark.parametrize("key", KEYS)
def test_aggregate_takes_the_table_or_says_what_it_needs(key):
    entry = registry.ANSWER_METHODS[key]
    answers, _, _ = EXAMPLES[entry.answer_type]()
    if entry.inputs:
        with pytest.raises(ParameterError, match="inputs as well"):
            cw.aggregate(answers, key)
        return
    beside = BESIDE.get(entry.answer_type, dict)()
    assert cw.aggregate(answers, key, **LIGHT.get(key, {}), **beside).method == key
    with pytest.raises(ParameterError, match="is for"):
        cw.aggregate(answers, "majority" if answers.answer_type != "votes" else "mean")


def test_votes_are_not_taken_for_other_answers():
    votes = graded()[0]
    with pytest.raises(ParameterError, match=r"crowd-clustering is for similarities .*, not for votes"):
        cw.aggregate(votes, "crowd-clustering")
    with pytest.raises(ParameterError, match="there are binary-relevance"):
        cw.aggregate(sets()[0], "crowd-clustering")
    with pytest.raises(ParameterError, match="Did you mean 'crowd-clustering'"):
        cw.aggregate(similar()[0], "crowd_clustering")


def test_every_answer_type_has_a_table_a_default_method_and_an_example():
    kinds = {entry.answer_type for entry in registry.ANSWER_METHODS.values()}
    assert kinds == set(registry.ANSWER_TYPES) - {"votes"} == set(EXAMPLES)
    for name, kind in registry.ANSWER_TYPES.items():
        assert kind.says and registry.find(kind.default, name).answer_type == name
        assert kind.load().answer_type in (name, "votes")


@pytest.mark.parametrize("key", LABEL_ONLY)
def test_a_table_without_annotators_is_an_error_of_ours(key):
    answers, _, _ = EXAMPLES[registry.ANSWER_METHODS[key].answer_type]()
    with pytest.raises(InputError, match=r"no row is left|There are no annotators"):
        fit(key, answers.only([]), None)


@pytest.mark.parametrize("key", LABEL_ONLY)
def test_odd_questions_to_a_result_are_errors_of_ours(key, fitted):
    found = fitted(key).consensus_
    for level in (0.0, 1.0, 2, "a", None):
        with pytest.raises(ParameterError, match="level"):
            found.to_frame("annotators", level=level)
        for name in {"rank_interval"} & set(dir(found)):
            with pytest.raises(ParameterError, match="level"):
                getattr(found, name)(level)
    if hasattr(found, "rate_interval"):
        with pytest.raises(ParameterError, match="'sensitivity' or 'specificity'"):
            found.rate_interval("precision")


@pytest.mark.parametrize("key", [key for key in LABEL_ONLY if hasattr(registry.ANSWER_METHODS[key].load(), "predict")])
def test_predictions_for_nothing_and_for_other_tables(key, fitted):
    answers, _, _ = EXAMPLES[registry.ANSWER_METHODS[key].answer_type]()
    model = fitted(key)
    assert model.predict(answers[[]]).shape == (0,)
    assert model.predict_proba(answers[[]]).shape == (0, len(model.consensus_.classes))
    with pytest.raises(InputError, match="found Ratings"):
        model.predict(numbers()[0])
