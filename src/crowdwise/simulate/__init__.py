"""Simulated crowds with known truth and known annotators, to measure methods with.

Every scenario is a function ``f(n_items, *, ..., random_state)``; those that give votes are listed in ``SCENARIOS``.
``crowdwise simulate`` offers those that the records of answer types name.

>>> from crowdwise import simulate
>>> crowd = simulate.one_coin(100, n_annotators=5, votes_per_item=3, random_state=0)
>>> crowd.votes
Votes(300 votes: 100 items x 5 annotators x 2 classes)
"""

from __future__ import annotations

from crowdwise.core.lazy import lazily

_WHERE = {
    "answer_crowds": (
        "SimulatedComparisons", "SimulatedLabelSets", "SimulatedRankings", "SimulatedRatings", "SimulatedSimilarities",
        "SimulatedTags", "bio_tags", "boxes", "comparisons", "graph", "label_sets", "masks", "ordinal", "rankings",
        "ratings", "similarities", "spans", "tag_chain", "texts",
    ),
    "crowds": ("FittedCrowd", "Simulated", "assign", "regular_assignment"),
    "machines": ("machine_annotators",),
    "vote_crowds": (
        "SCENARIOS", "colluders", "difficulty", "dirichlet", "four_annotators", "groups", "hammer_spammer", "machine",
        "max_mig", "misleading", "one_coin", "one_reliable", "outliers", "pairwise_flipper", "regular", "two_coin",
        "write_large",
    ),
}  # fmt: skip
__all__, __getattr__, __dir__ = lazily(__name__, _WHERE)
