"""What every method of the registry must do: the checks of crowdwise.testing, and its place in the documentation."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.errors import ConvergenceWarning, InputError, ParameterError
from crowdwise.testing import CHECKS, Subject, check_method, shared_crowd

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.ConvergenceWarning")
KEYS = list(registry.METHODS)
VOTES = shared_crowd().votes


@cache
def subject(key):
    """One fit to the shared crowd, for all checks that look at a fit."""
    return Subject(registry.find(key).load())


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("key", KEYS)
def test_keeps_the_contract(key, check):
    CHECKS[check](subject(key))


def degenerate(seed):
    """A few votes in which much is exchangeable: everybody alike, patterns, constant annotators."""
    rng = np.random.default_rng(seed)
    n, m, k, kind = int(rng.integers(2, 7)), int(rng.integers(2, 5)), int(rng.integers(2, 4)), seed % 4
    labels = {0: rng.integers(k, size=(n, m)), 1: np.add.outer(np.arange(n), np.arange(m)) % k}
    label = labels.get(kind, labels[0]) if kind < 3 else np.tile(np.arange(m) % k, (n, 1))
    there = rng.random((n, m)) < (1.0 if kind == 0 else 0.7)
    there[0], label[0, :2] = True, (0, 1)
    return [(f"i{i}", f"a{j}", int(label[i, j])) for i in range(n) for j in range(m) if there[i, j]]


def by_item(consensus):
    order = np.argsort(consensus.items)
    return consensus.posterior[order], consensus.labels[order]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("key", KEYS)
def test_no_order_of_rows_decides_in_degenerate_crowds(key, seed):
    rows = degenerate(seed)
    votes = cw.Votes.from_records(rows)
    gold = {"i0": 0} if registry.find(key).load().needs_gold else None
    q, labels = by_item(cw.aggregate(votes, key, gold=gold))
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    declared = cw.Votes.from_codes(
        votes.item, votes.annotator, votes.label, items=votes.items,
        annotators=np.append(votes.annotators, "without votes"), classes=votes.classes,
    )  # fmt: skip
    for other in (cw.Votes.from_records(shuffled), declared):
        p, found = by_item(cw.aggregate(other, key, gold=gold))
        assert np.abs(p - q).max() < 5e-3
        best = np.sort(q, axis=1)
        clear = best[:, -1] - best[:, -2] > 1e-3
        assert (found[clear] == labels[clear]).all()


@pytest.mark.parametrize("key", KEYS)
def test_unknown_parameters_get_a_suggestion(key):
    with pytest.raises(ParameterError, match="Did you mean 'random_state'"):
        cw.aggregate(VOTES, key, random_stat=1)


@pytest.mark.parametrize("key", KEYS)
def test_has_a_page_section_a_summary_and_a_line_in_the_table(key):
    root = Path(__file__).resolve().parents[2]
    entry = registry.find(key)
    assert entry.summary
    pages = [page.read_text(encoding="utf-8") for page in (root / "docs").glob("methods*.md")]
    assert sum(f"\n## {key}\n" in page for page in pages) == 1
    assert f"| [`{key}`](" in (root / "docs" / "methods.md").read_text(encoding="utf-8")
    doc = entry.load().__doc__ or ""
    assert ">>>" in doc, "a method shows itself at work in a doctest"


def test_check_method_lists_every_check_that_fails():
    class Careless(cw.MajorityVote):
        """Takes the last class for every new item, and forgets about gold."""

        key = "Careless"

        def _fit(self, votes, gold, item_prior, callback):
            return super()._fit(votes, None, item_prior, callback)

        def predict_proba(self, votes):
            q = super().predict_proba(votes)
            q[:] = 0.0, 0.0, 1.0
            return q

    with pytest.raises(AssertionError) as caught:
        check_method(Careless)
    text = str(caught.value)
    assert text.startswith(f"Careless fails 4 of {len(CHECKS)} checks:")
    assert "- gold_labels_are_certain: Gold labels are certain in the result. AssertionError in line " in text
    assert "(assert (s.model.predict(s.new_votes) == s.new_truth).mean() > 0.75)" in text
    for name in ("has_a_key_and_a_docstring", "predicts_with_unseen_annotators"):
        assert f"- {name}: " in text
    with pytest.raises(ParameterError, match=r"Expected a class derived from crowdwise\.core\.model\.Model"):
        check_method(cw.MajorityVote())


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
