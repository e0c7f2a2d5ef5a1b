"""``partial_fit`` for models that can learn from a stream of votes."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from crowdwise.core.constraints import declared
from crowdwise.core.model import EMModel
from crowdwise.data.votes import Votes

if TYPE_CHECKING:
    from crowdwise.online.stream import Online


@declared
class StreamingModel(EMModel):
    """An EM model that can also learn from votes as they come in."""

    streams: ClassVar[bool] = True

    online_: Online = field(init=False)

    def partial_fit(self, votes: Votes, gold: Any = None) -> Self:
        """Learn from more votes, which may be of items, annotators and classes not seen before.

        What was learned is in ``online_`` (see :class:`crowdwise.Online`, which has more options), and ``consensus_``
        is made from all votes so far. To look at the consensus only now and then, which makes a stream faster, use
        :class:`crowdwise.Online` itself.
        """
        from crowdwise.online.stream import Online  # where streams are used, and not whenever a method is imported

        if not hasattr(self, "online_"):
            self.online_ = Online(self)
        self.consensus_ = self.online_.partial_fit(votes, gold).consensus()
        self.params_, self.stats_ = self.online_.params_, self.online_.stats_
        return self
