"""Answers in, consensus out, in one line."""

from __future__ import annotations

from typing import Any

from crowdwise import registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.em import Callback
from crowdwise.data.votes import Votes


def aggregate(
    votes: Any, method: str | None = None, *, truth: Any = None, callback: Callback | None = None, **params: Any
) -> Any:
    """The consensus of some answers: a :class:`~crowdwise.Consensus` of votes, and its like of other answers.

    Parameters
    ----------
    votes
        :class:`~crowdwise.Votes`, or a table that :meth:`~crowdwise.Votes.from_frame` takes; or a table of other
        answers.
    method
        A key of ``crowdwise methods``; by default that of the kind of answers.
    truth
        The class of the items where it is known, for the method to use: a mapping from item to class,
        or N class codes with -1 for unknown. The votes' own ``truth`` is not looked at.
    callback
        Called after every pass over the votes with a :class:`crowdwise.core.em.Progress`.
    **params
        Parameters of the method.

    Examples
    --------
    >>> import crowdwise as cw
    >>> votes = cw.Votes.from_dense([[0, 0, 1], [1, 1, 1], [0, 1, 1], [0, 0, 0]])
    >>> cw.aggregate(votes, "dawid-skene").labels.tolist()
    [0, 1, 1, 0]
    """
    answers = getattr(votes, "answers", None)
    if answers is None:
        votes, answers = Votes.from_frame(votes), Votes.answers
    method = registry.ANSWERS[answers][0] if method is None else method
    if answers == Votes.answers and method not in registry.BEYOND:
        consensus: Consensus = registry.create(method, **params).fit(votes, truth, callback=callback).consensus_
        return consensus
    known = {} if truth is None else {"truth": truth}
    if method in registry.BEYOND and registry.BEYOND[method].load().table is type(votes):
        answers = registry.BEYOND[method].family  # votes may be graded or linked
    return registry.create_beyond(method, answers, **params).fit(votes, callback=callback, **known).consensus_
