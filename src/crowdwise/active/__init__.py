"""Active crowdsourcing: who should label what next, and when to stop.

=====================  =============================================================================================
``strategies``         named rules, which propose a batch of pairs from a ``state``
``acquisition``        scores of items, of annotators, and of pairs of them
``fair_assignment``    a batch under a bound on a gap of errors
``end_state``          campaign status: eligible pairs of items and annotators, and why a campaign has ended
``stopping``           when an item or a campaign needs no more votes; ``accuracy_estimate``: accuracy without truth
``replays``            a strategy at work on votes that are there already
``votes_ahead``        the accuracy of labels with fewer or more votes, beginning from what is stated of them now
``budget_plan``        how many items and how many votes on each, for a budget
``curve_drawing``      figures of the last two
=====================  =============================================================================================
"""

from __future__ import annotations

from crowdwise.core.lazy import lazily

_WHERE = {
    "acquisition": ("next_items",),
    "budget_plan": ("LearningInputs", "Plan", "PlanRow", "make_plan"),
    "fair_assignment": ("FairProposal", "expected_errors", "propose_fairly"),
    "replays": ("Curve", "bands", "replay", "replay_strategies", "summary"),
    "state": ("AskablePairs", "Proposal", "State"),
    "stopping": ("AccuracyEstimate", "StopRule", "estimate_accuracy"),
    "votes_ahead": ("Promise", "gold_for", "promise_accuracy", "votes_for"),
    "strategies": ("STRATEGIES", "Strategy", "find_strategy"),
}
__all__, __getattr__, __dir__ = lazily(__name__, _WHERE)
