"""Simulated crowds with known truth and known annotators, to measure methods with.

Every scenario is a function ``f(n_items, *, ..., random_state)``; those that give votes are listed in
:data:`SCENARIOS`. ``crowdwise simulate`` offers those that the records of answer types name.

>>> from crowdwise import simulate
>>> crowd = simulate.one_coin(100, n_annotators=5, votes_per_item=3, random_state=0)
>>> crowd.votes
Votes(300 votes: 100 items x 5 annotators x 2 classes)
"""

from __future__ import annotations

from collections.abc import Callable

from crowdwise.simulate.answer_crowds import (
    SimulatedComparisons,
    SimulatedLabelSets,
    SimulatedRankings,
    SimulatedRatings,
    SimulatedSimilarities,
    SimulatedTags,
    bio_tags,
    boxes,
    comparisons,
    graph,
    label_sets,
    masks,
    ordinal,
    rankings,
    ratings,
    similarities,
    spans,
    tag_chain,
    texts,
)
from crowdwise.simulate.crowds import FittedCrowd, Simulated, assign, regular_assignment
from crowdwise.simulate.machines import machine_annotators
from crowdwise.simulate.vote_crowds import (
    colluders,
    difficulty,
    dirichlet,
    four_annotators,
    groups,
    hammer_spammer,
    machine,
    max_mig,
    misleading,
    one_coin,
    one_reliable,
    outliers,
    pairwise_flipper,
    regular,
    two_coin,
    write_large,
)  # fmt: skip

__all__ = [
    "SCENARIOS", "FittedCrowd", "Simulated", "SimulatedComparisons", "SimulatedLabelSets", "SimulatedRankings",
    "SimulatedRatings", "SimulatedSimilarities", "SimulatedTags", "assign", "bio_tags", "boxes", "colluders",
    "comparisons", "difficulty", "dirichlet", "four_annotators", "graph", "groups", "hammer_spammer", "label_sets",
    "machine", "machine_annotators", "masks", "max_mig", "misleading", "one_coin", "one_reliable", "ordinal",
    "outliers", "pairwise_flipper", "rankings", "ratings", "regular", "regular_assignment", "similarities", "spans",
    "tag_chain", "texts", "two_coin", "write_large",
]  # fmt: skip

SCENARIOS: dict[str, Callable[..., Simulated]] = {
    scenario.__name__.replace("_", "-"): scenario
    for scenario in (
        one_coin, two_coin, dirichlet, hammer_spammer, pairwise_flipper, max_mig, regular, colluders, groups,
        difficulty, misleading, outliers, machine, ordinal, four_annotators, one_reliable,
    )
}  # fmt: skip
"""Every scenario that gives votes by name; the first line of its docstring says what it is."""
