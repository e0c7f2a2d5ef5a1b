"""Answers in, consensus out, in one line; and several methods side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from crowdwise import registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.loop import Callback
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, ParameterError
from crowdwise.trust.method_comparison import Comparison
from crowdwise.trust.method_comparison import compare as compare_models


def aggregate(
    votes: Any,
    method: str | None = None,
    *,
    gold: Any = None,
    graph: Any = None,
    callback: Callback | None = None,
    **params: Any,
) -> Any:
    """The consensus of some answers: a :class:`~crowdwise.Consensus` of votes, and its like of other answers.

    Parameters
    ----------
    votes
        :class:`~crowdwise.Votes`, or a table that :meth:`~crowdwise.Votes.from_frame` takes; or a table of other
        answers.
    method
        A key of ``crowdwise methods``; by default that of the kind of answers.
    gold
        The class of the items where it is known, for the method to use: a mapping from item to class,
        or N class codes with -1 for unknown. The votes' own ``truth`` is not looked at.
    graph
        Which items are linked, for methods that look at it (``graph-crowd``, by default): pairs of items, a sparse
        matrix, or a :class:`~crowdwise.Graph`.
    callback
        Called after every pass over the votes with a :class:`crowdwise.core.loop.Progress`.
    **params
        Parameters of the method.

    Examples
    --------
    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[0, 0, 1], [1, 1, 1], [0, 1, 1], [0, 0, 0]])
    >>> cw.aggregate(votes, "dawid-skene").labels.tolist()
    [0, 1, 1, 0]
    """
    answers = getattr(votes, "answer_type", None)
    if not isinstance(answers, str):  # a table; pandas gives out a column of this name
        votes, answers = Votes.from_frame(votes), Votes.answer_type
    answers = "graph" if graph is not None and answers == Votes.answer_type and method is None else answers
    method = registry.default_method(answers, len(votes.annotators)) if method is None else method
    if graph is not None and (
        method not in registry.ANSWER_METHODS or registry.ANSWER_METHODS[method].answer_type != "graph"
    ):
        raise ParameterError(f"{method} does not look at a graph: leave graph out, or use graph-crowd.")
    if answers == Votes.answer_type and method not in registry.ANSWER_METHODS:
        consensus: Consensus = registry.create(method, **params).fit(votes, gold, callback=callback).consensus_
        return consensus
    known = {name: value for name, value in (("gold", gold), ("graph", graph)) if value is not None}
    if method in registry.ANSWER_METHODS and registry.ANSWER_METHODS[method].load().table is type(votes):
        answers = registry.ANSWER_METHODS[method].answer_type  # votes may be graded or linked
    entry = registry.find(method, answers)
    if entry.inputs:
        raise ParameterError(f"{method} looks at inputs as well: use {entry.class_name}(...).fit(X, answers).")
    return registry.create(method, answers, **params).fit(votes, callback=callback, **known).consensus_


def compare(
    votes: Any,
    methods: str | Iterable[str] = registry.COMPARED,
    *,
    truth: Any = None,
    repeats: int = 5,
    share: float = 0.2,
    replicates: int = 99,
    random_state: int | None = 0,
    progress: Callable[[str, str], None] | None = None,
) -> Comparison:
    """Methods side by side without any truth: how well each predicts held-out votes.

    Parameters
    ----------
    votes
        :class:`~crowdwise.Votes`, or a table that :meth:`~crowdwise.Votes.from_frame` takes.
    methods
        Keys of ``crowdwise methods``, or ``"all"`` for every method that needs no known truth. With their defaults.
    truth, repeats, share, replicates, random_state, progress
        As in :func:`crowdwise.trust.method_comparison.compare`. The truth makes a column of accuracies, and nothing
        else.

    Examples
    --------
    >>> import crowdwise as cw
    >>> crowd = cw.simulate.dirichlet(400, n_annotators=15, n_classes=3, votes_per_item=5, random_state=0)
    >>> found = cw.compare(crowd.votes, ["majority", "dawid-skene"], repeats=2, replicates=0)
    >>> found.methods
    ('dawid-skene', 'majority')
    """
    if not isinstance(votes, Votes):
        other = getattr(votes, "answer_type", None)
        if isinstance(other, str):
            raise InputError(f"Expected Votes and found {type(votes).__name__}: methods for {other} are not compared.")
        votes = Votes.from_frame(votes)
    models = {key: _model(key, random_state) for key in chosen(methods)}
    return compare_models(
        votes, models, truth=truth, repeats=repeats, share=share, replicates=replicates, random_state=random_state,
        progress=progress,
    )  # fmt: skip


def chosen(methods: str | Iterable[str]) -> list[str]:
    """The keys asked for, each once; ``"all"`` are those that need no known truth."""
    if methods == "all":
        return [key for key, entry in registry.METHODS.items() if not entry.load().needs_gold]
    keys = [methods] if isinstance(methods, str) else list(methods)
    for key in keys:
        if registry.find(key).load().needs_gold:
            raise ParameterError(
                f"{key} needs known truth to be fitted, and comparisons are made without: leave it out."
            )
    return list(dict.fromkeys(keys))


def _model(key: str, random_state: int | None) -> Any:
    return registry.create(key, random_state=random_state)
