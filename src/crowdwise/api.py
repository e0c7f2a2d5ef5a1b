"""Votes in, consensus out, in one line."""

from __future__ import annotations

from typing import Any

from crowdwise import registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.em import Callback
from crowdwise.data.votes import Votes


def aggregate(
    votes: Any, method: str = registry.DEFAULT, *, truth: Any = None, callback: Callback | None = None, **params: Any
) -> Consensus:
    """The consensus of some votes.

    Parameters
    ----------
    votes
        :class:`~crowdwise.Votes`, or a table that :meth:`~crowdwise.Votes.from_frame` takes.
    method
        A key of ``crowdwise methods``.
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
    if not isinstance(votes, Votes):
        votes = Votes.from_frame(votes)
    model = registry.create(method, **params)
    consensus: Consensus = model.fit(votes, truth, callback=callback).consensus_
    return consensus
