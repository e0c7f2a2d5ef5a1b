"""The contract of methods for votes, for crowdwise's own methods and for those of other packages.

>>> import crowdwise as cw
>>> cw.testing.check_method(cw.MajorityVote)

``CHECKS`` has the checks by name, for test suites that run them one by one:

.. code-block:: python

    @pytest.mark.parametrize("check", crowdwise.testing.CHECKS.values())
    def test_contract(check):
        check(crowdwise.testing.Subject(MyMethod))
"""

from __future__ import annotations

import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

from crowdwise.core.consensus import Consensus
from crowdwise.core.model import Model
from crowdwise.data.encoding import Codes
from crowdwise.data.votes import Votes
from crowdwise.errors import ConvergenceWarning, InputError, LabelError, NotFittedError, ParameterError
from crowdwise.kernels import compiler
from crowdwise.methods.votes_majority import MajorityVote
from crowdwise.simulate import Simulated, dirichlet

__all__ = ["CHECKS", "Subject", "check_method"]

N, M, K = 240, 18, 3
"""Items, annotators and classes of the crowd that most checks share."""
MORE = 100
"""Items of the same crowd that are not in the fit."""


@cache
def crowd(n: int, *, n_annotators: int = M, votes_per_item: int = 5) -> Simulated:
    """A simulated crowd."""
    return dirichlet(n, n_annotators=n_annotators, n_classes=K, votes_per_item=votes_per_item, random_state=0)


def shared_crowd() -> Simulated:
    """The crowd that most checks share, with ``MORE`` items that are not in the fit."""
    return crowd(N + MORE)


def gold_of(truth: Codes) -> Codes:
    """Gold labels for the first fifth of the items."""
    return np.where(np.arange(len(truth)) < 0.2 * len(truth), truth, -1).astype(np.int32)


def changed(votes: Votes, codes: tuple[Any, Any, Any] | None = None, **names: Any) -> Votes:
    """The same votes, but for codes, names or weights that are given."""
    known = {"items": votes.items, "annotators": votes.annotators, "classes": votes.classes, **names}
    return Votes.from_codes(*(codes or (votes.item, votes.annotator, votes.label)), **known)


@contextmanager
def refused(error: type[Exception], pattern: str) -> Iterator[None]:
    """The block must raise such an error with such words."""
    try:
        yield
    except error as raised:
        assert re.search(pattern, str(raised)), f"{error.__name__} lacks {pattern!r}: {raised}"
    else:
        raise AssertionError(f"no {error.__name__} with {pattern!r} was raised")


class Subject:
    """A method under test, and its fit to the shared crowd."""

    def __init__(self, method: type[Model]) -> None:
        self.method = method
        whole = shared_crowd()
        self.votes, self.truth = whole.votes[:N], whole.truth[:N]
        self.new_votes, self.new_truth = whole.votes[N:], whole.truth[N:]

    @cached_property
    def model(self) -> Model:
        return self.method().fit(self.votes, self.gold(self.truth))

    @cached_property
    def consensus(self) -> Consensus:
        return self.model.consensus_

    def gold(self, truth: Codes) -> Codes | None:
        """Gold labels, for methods that need some."""
        return gold_of(truth) if self.method.needs_gold else None

    def sample(self, n: int, **options: int) -> tuple[Votes, Codes | None]:
        """The votes of a small crowd, and its gold labels for methods that need some."""
        small = crowd(n, **options)
        return small.votes, self.gold(small.truth)

    def fit(self, votes: Votes, gold: Any = None, **params: Any) -> Consensus:
        return self.method(**params).fit(votes, gold).consensus_


CHECKS: dict[str, Callable[[Subject], None]] = {}
"""The checks by name."""


def check(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
    CHECKS[function.__name__] = function
    return function


def check_method(method: type[Model]) -> None:
    """Hold a method for votes to the contract that crowdwise's own methods keep.

    Takes a subclass of ``Model``, which need not be registered, and a few seconds. An ``AssertionError`` lists every
    check that failed, with the line of :mod:`crowdwise.testing` where it did.
    """
    if not (isinstance(method, type) and issubclass(method, Model)):
        raise ParameterError(f"Expected a class derived from crowdwise.core.model.Model and found {method!r}.")
    subject, failures = Subject(method), []
    for name, function in CHECKS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                function(subject)
        except Exception as error:
            rule = (function.__doc__ or "").strip().partition("\n")[0]
            frames = traceback.extract_tb(error.__traceback__)
            line = next(frame for frame in reversed(frames) if frame.name == name)
            words = str(error).partition("\n")[0]
            failures.append(f"- {name}: {rule} {type(error).__name__} in line {line.lineno} ({line.line}): {words}")
    if failures:
        first = f"{method.__name__} fails {len(failures)} of {len(CHECKS)} checks:"
        raise AssertionError("\n".join([first, *failures]))


@check
def has_a_key_and_a_docstring(s: Subject) -> None:
    """A method has a key in kebab-case and a docstring, whose first line is its summary."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", s.method.key)
    assert (s.method.__doc__ or "").strip()


@check
def beats_chance(s: Subject) -> None:
    """On a simulated crowd it beats chance, and is not far below the majority."""
    majority = MajorityVote().fit(s.votes).consensus_.score(s.truth)
    assert s.consensus.score(s.truth) > max(0.75, majority - 0.02)


@check
def result_is_well_formed(s: Subject) -> None:
    """Posteriors, prior, labels and tables have their shapes; probabilities sum to 1."""
    c = s.consensus
    assert c.posterior.shape == (N, K)
    assert np.allclose(c.posterior.sum(axis=1), 1.0, atol=1e-12)
    assert (c.posterior >= 0).all()
    assert abs(c.prior.sum() - 1.0) < 1e-9
    assert c.labels.shape == (N,)
    assert np.allclose(c.posterior.max(axis=1), c.posterior[np.arange(N), c.label_codes], atol=1e-9)
    assert c.method == s.method.key
    assert c.n_answers == s.votes.n_votes
    if c.confusion is not None:
        assert c.confusion.shape == (M, K, K)
        assert np.allclose(c.confusion.sum(axis=2), 1.0)
    accuracy, low, high = c.accuracy()
    assert ((low <= accuracy) & (accuracy <= high) & (low >= 0) & (high <= 1)).all()
    assert c.annotator_table.height == M
    assert c.item_table.height == N
    assert c.item_table.columns[:5] == ["item", "label", "probability", "entropy", "votes"]


@check
def trace_belongs_to_an_objective(s: Subject) -> None:
    """A trace rises to the objective; without one there is no objective."""
    c = s.consensus
    if len(c.trace):
        assert c.objective == c.trace[-1]
        assert c.iterations >= len(c.trace)
        assert (np.diff(c.trace) >= -1e-9 * abs(c.trace[0])).all()
    else:
        assert c.objective is None


@check
def saves_and_loads(s: Subject) -> None:
    """A saved result loads, and is the same."""
    c = s.consensus
    with TemporaryDirectory() as folder:
        back = Consensus.load(c.save(os.path.join(folder, "kept")))
        assert np.array_equal(back.posterior, c.posterior)
        assert back.labels.tolist() == c.labels.tolist()
        assert back.annotator_table.equals(c.annotator_table)
        assert back.item_table.equals(c.item_table)
        for name in ("seed", "iterations", "converged", "objective", "method"):
            assert getattr(back, name) == getattr(c, name), name
        assert (back.confusion is None) == (c.confusion is None)


@check
def second_fit_agrees(s: Subject) -> None:
    """A second fit agrees, leaves the votes alone and does not look at their truth."""
    arrays: list[Any] = [s.votes.indptr, s.votes.annotator, s.votes.label]
    before = [a.copy() for a in arrays]
    again = s.fit(s.votes.with_truth(None), s.gold(s.truth))
    assert np.array_equal(s.consensus.posterior, again.posterior)
    assert all(np.array_equal(a, b) for a, b in zip(before, arrays, strict=True))


@check
def order_and_names_do_not_matter(s: Subject) -> None:
    """Shuffled rows, other names of annotators and another order of classes give the same result."""
    rng, c = np.random.default_rng(0), s.consensus
    names = s.votes.annotators.tolist()
    rename = dict(zip(names, rng.permutation(names).tolist(), strict=True))
    table, order = s.votes.to_frame("dict"), rng.permutation(s.votes.n_votes)
    table = {name: [column[i] for i in order] for name, column in table.items() if name != "truth"}
    table["annotator"] = [rename[a] for a in table["annotator"]]
    gold = s.gold(s.truth)
    by_name = None if gold is None else {n: int(k) for n, k in zip(s.votes.items.tolist(), gold, strict=True) if k >= 0}
    other = s.fit(Votes.from_frame(table, classes=[2, 0, 1]), by_name)
    rows = [other.items.tolist().index(i) for i in c.items.tolist()]
    columns = [other.classes.tolist().index(k) for k in c.classes.tolist()]
    assert np.allclose(other.posterior[np.ix_(rows, columns)], c.posterior, atol=1e-9)


@check
def threads_do_not_matter(s: Subject) -> None:
    """Several threads of compiled code give the same result."""
    engine = {"CROWDWISE_ENGINE": "native", "CROWDWISE_THREADS": "3"}
    with mock.patch.object(compiler, "VOTES_PER_THREAD", 200), mock.patch.dict(os.environ, engine):
        assert compiler.threads_for(s.votes.n_votes, M * K) == 3
        assert np.allclose(s.fit(s.votes, s.gold(s.truth)).posterior, s.consensus.posterior, atol=1e-9)


@check
def predicts_new_items(s: Subject) -> None:
    """It predicts items that were not in the fit, and repeats those that were."""
    q = s.model.predict_proba(s.new_votes)
    assert q.shape == (MORE, K)
    assert np.allclose(q.sum(axis=1), 1.0)
    assert (s.model.predict(s.new_votes) == s.new_truth).mean() > 0.75
    gold = s.gold(s.truth)
    unknown = np.arange(N) if gold is None else np.flatnonzero(gold < 0)
    assert np.allclose(s.model.predict_proba(s.votes)[unknown], s.consensus.posterior[unknown], atol=1e-9)


@check
def predicts_with_unseen_annotators(s: Subject) -> None:
    """It predicts votes of unseen annotators and of some classes only; unknown classes are refused."""
    q = s.model.predict_proba(Votes.from_records([("x", "a3", 1), ("x", "unseen", 1), ("y", "a0", 0)]))
    assert q.shape == (2, K)
    assert q[0].argmax() == 1
    with refused(LabelError, "fitted with the classes"):
        s.model.predict_proba(Votes.from_records([("x", "a3", 7), ("x", "a1", 0)]))


@check
def seeds_repeat(s: Subject) -> None:
    """The same random_state gives the same result, ties included."""
    votes, gold = s.sample(100, votes_per_item=2)
    a, b = (s.fit(votes, gold, random_state=1, ties="random") for _ in range(2))
    assert np.array_equal(a.posterior, b.posterior)
    assert np.array_equal(a.labels, b.labels)


@check
def gold_labels_are_certain(s: Subject) -> None:
    """Gold labels are certain in the result."""
    gold = gold_of(s.truth)
    c = s.fit(s.votes, gold)
    known = gold >= 0
    assert np.array_equal(c.posterior[known].argmax(axis=1), gold[known])
    assert np.allclose(c.posterior[known].max(axis=1), 1.0)


@check
def two_votes_count_like_weight_two(s: Subject) -> None:
    """Every vote twice is the same as every vote with weight 2."""
    votes, gold = s.sample(60)
    item, annotator, label = (np.repeat(x, 2) for x in (votes.item, votes.annotator, votes.label))
    double = changed(votes, (item, annotator, label), on_duplicate="all")
    weighted = changed(votes, weight=np.full(votes.n_votes, 2.0))
    assert np.allclose(s.fit(double, gold).posterior, s.fit(weighted, gold).posterior, atol=1e-9)


@check
def many_votes_on_an_item_stay_finite(s: Subject) -> None:
    """2,000 votes on an item leave no NaN and no uniform posterior."""
    rng = np.random.default_rng(0)
    truth = np.array([0, 1, 2, 1], dtype=np.int32)
    label = np.where(rng.random((4, 40)) < 0.5, truth[:, None], rng.integers(0, K, (4, 40)))
    votes = Votes.from_dense(label)
    gold = np.array([0, -1, -1, -1], dtype=np.int32) if s.method.needs_gold else None
    c = s.fit(changed(votes, weight=np.full(votes.n_votes, 50.0)), gold)  # as many as fifty votes each
    assert np.isfinite(c.posterior).all()
    assert c.label_codes.tolist() == truth.tolist()
    assert (c.posterior.max(axis=1) > 0.5).all()
    for name, column in c.annotator_columns.items():
        assert column.dtype.kind in "UO" or not np.isnan(column).any(), name
    assert all(np.isfinite(end).all() for end in c.accuracy())


@check
def items_without_votes_get_the_prior(s: Subject) -> None:
    """An item without votes gets the prior, or the uniform."""
    votes, gold = s.sample(60)
    more = None if gold is None else np.append(gold, -1).astype(np.int32)
    c = s.fit(changed(votes, items=range(61)), more)
    assert np.allclose(c.posterior[60], c.prior, atol=1e-9) or np.allclose(c.posterior[60], 1 / 3)
    assert c.votes_per_item[60] == 0


@check
def unused_class_gets_nothing(s: Subject) -> None:
    """A declared class without votes is not a label."""
    votes, gold = s.sample(100)
    c = s.fit(changed(votes, classes=[0, 1, 2, 3]), gold)
    assert np.isfinite(c.posterior).all()
    assert not (c.label_codes == 3).any()


@check
def annotators_with_one_vote(s: Subject) -> None:
    """Annotators with a single vote leave no NaN."""
    c = s.fit(*s.sample(60, n_annotators=160, votes_per_item=3))
    assert np.isfinite(c.posterior).all()
    _, low, high = c.accuracy()
    assert np.isfinite(low).all() and np.isfinite(high).all()


@check
def one_class_is_refused(s: Subject) -> None:
    """Votes with a single class are refused, with advice."""
    votes = Votes.from_records([("a", 1, "yes"), ("a", 2, "yes"), ("b", 1, "yes")])
    with refused(LabelError, re.escape("declare them: classes=[...]")):
        s.fit(votes, {"a": "yes"})


@check
def single_annotator(s: Subject) -> None:
    """A single annotator is accepted or refused, as ``single_annotator`` says."""
    right = ["yes" if n % 3 else "no" for n in range(9)]
    votes = Votes.from_records([(n, "ann", label) for n, label in enumerate(right)])
    if s.method.needs_gold:
        assert s.fit(votes, {0: "no", 1: "yes"}).labels[5] == "yes"
    elif s.method.single_annotator:
        assert s.fit(votes).labels.tolist() == right
    else:
        with refused(InputError, r"single annotator, 'ann'.*majority"):
            s.fit(votes)
        assert s.fit(votes, {0: "no", 1: "yes", 2: "yes"}).labels[5] == "yes"


@check
def unfitted_models_say_so(s: Subject) -> None:
    """Prediction before a fit is an error that says so."""
    with refused(NotFittedError, r"call fit\(votes\) first"):
        s.method().predict_proba(s.votes)


@check
def parameters_are_stored_and_cloned(s: Subject) -> None:
    """Parameters are stored as given; scikit-learn's ``clone`` copies them; a wrong name gets a suggestion."""
    from sklearn.base import clone

    model = s.method()
    params = model.get_params()
    assert params == s.method.parameters()
    for name, value in params.items():
        assert getattr(model, name) is value, name
    other = clone(model.set_params(ties="random"))
    assert other is not model
    assert other.get_params() == model.get_params()
    assert repr(other).endswith("(ties='random')")
    with refused(ParameterError, "Did you mean 'ties'"):
        model.set_params(tie="random")


@check
def item_prior_is_used_or_refused(s: Subject) -> None:
    """A prior per item is used or refused, as ``takes_item_prior`` says."""
    model, (votes, gold) = s.method(), s.sample(80)
    prior = np.full((80, 3), 1e-6)
    prior[:, 2] = 1.0
    if model.takes_item_prior:
        strong = model.fit(votes, gold, item_prior=prior**3).consensus_
        assert (strong.label_codes == 2).mean() > 0.9
        with refused(ParameterError, "80 x 3"):
            model.fit(votes, item_prior=prior[:5])
    else:
        with refused(ParameterError, "no place for a prior per item"):
            model.fit(votes, gold, item_prior=prior)
