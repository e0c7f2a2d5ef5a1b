"""What a network is trained on."""

from __future__ import annotations

from dataclasses import dataclass

from crowdwise.core.numerics import Ints
from crowdwise.data.votes import Votes
from crowdwise.learners.inputs import Inputs


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What a network learns from. Row n of the inputs is item n of the votes.

    Items without votes take no part in training. Items with known class (``gold``: N codes, -1 where unknown) are
    trained on as if one more annotator, who is always right, had voted; with ``select="gold"`` they are left out of
    training and choose the epoch instead. ``held_out`` are votes on the same items that measure every epoch.
    """

    inputs: Inputs
    votes: Votes
    held_out: Votes | None = None
    gold: Ints | None = None
