"""crowdwise: labels you can trust from annotators you cannot.

>>> import crowdwise as cw
>>> photo = [("photo", "ann", "cat"), ("photo", "bob", "cat"), ("photo", "cem", "dog")]
>>> votes = cw.Votes.from_records([*photo, ("scan", "ann", "dog"), ("scan", "bob", "dog")])
>>> cw.aggregate(votes, "majority").labels.tolist()
['cat', 'dog']

Names are resolved when they are first used, so that importing crowdwise is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crowdwise import active as active
    from crowdwise import metrics as metrics
    from crowdwise import simulate as simulate
    from crowdwise import trust as trust
    from crowdwise.active.campaign import Campaign as Campaign
    from crowdwise.answers.comparisons_leaderboard import Ranking as Ranking
    from crowdwise.answers.comparisons_preferences import preference_weights as preference_weights
    from crowdwise.answers.comparisons_preferences import write_preferences as write_preferences
    from crowdwise.answers.graph_crowd import GraphConsensus as GraphConsensus
    from crowdwise.answers.label_sets_result import LabelSetConsensus as LabelSetConsensus
    from crowdwise.answers.similarities_clusters import Clustering as Clustering
    from crowdwise.answers.tags_result import TagConsensus as TagConsensus
    from crowdwise.api import aggregate as aggregate
    from crowdwise.api import compare as compare
    from crowdwise.core.consensus import Consensus as Consensus
    from crowdwise.core.estimates import Estimates as Estimates
    from crowdwise.data.comparisons import Comparisons as Comparisons
    from crowdwise.data.comparisons import read_comparisons as read_comparisons
    from crowdwise.data.dataset import Dataset as Dataset
    from crowdwise.data.dataset import read_dataset as read_dataset
    from crowdwise.data.graph import Graph as Graph
    from crowdwise.data.graph import read_graph as read_graph
    from crowdwise.data.label_sets import LabelSets as LabelSets
    from crowdwise.data.label_sets import read_label_sets as read_label_sets
    from crowdwise.data.rankings import Rankings as Rankings
    from crowdwise.data.rankings import read_rankings as read_rankings
    from crowdwise.data.ratings import Ratings as Ratings
    from crowdwise.data.ratings import read_ratings as read_ratings
    from crowdwise.data.similarities import Similarities as Similarities
    from crowdwise.data.similarities import read_similarities as read_similarities
    from crowdwise.data.tags import Tags as Tags
    from crowdwise.data.tags import read_tags as read_tags
    from crowdwise.data.votes import Votes as Votes
    from crowdwise.data.votes import read_truth as read_truth
    from crowdwise.data.votes import read_votes as read_votes
    from crowdwise.learners.classifier import CrowdClassifier as CrowdClassifier
    from crowdwise.learners.classifier import load_learner as load_learner
    from crowdwise.learners.comparisons_dpo import dpo_loss as dpo_loss
    from crowdwise.methods.ds_anchored import Anchored as Anchored
    from crowdwise.methods.ds_auto import Auto as Auto
    from crowdwise.methods.ds_dawid_skene import ConfusionVector as ConfusionVector
    from crowdwise.methods.ds_dawid_skene import DawidSkene as DawidSkene
    from crowdwise.methods.ds_dawid_skene import FastDawidSkene as FastDawidSkene
    from crowdwise.methods.ds_dawid_skene import OneCoin as OneCoin
    from crowdwise.methods.votes_majority import GoldWeighted as GoldWeighted
    from crowdwise.methods.votes_majority import MajorityVote as MajorityVote
    from crowdwise.online.stream import Online as Online
    from crowdwise.registry import ANSWER_METHODS as ANSWER_METHODS
    from crowdwise.registry import ANSWER_TYPES as ANSWER_TYPES
    from crowdwise.registry import LEARNERS as LEARNERS
    from crowdwise.registry import METHODS as METHODS
    from crowdwise.report.build import build_report as build_report
    from crowdwise.report.findings import Diagnosis as Diagnosis
    from crowdwise.report.findings import diagnose as diagnose
    from crowdwise.report.page import write_report as write_report
    from crowdwise.trust.agreement import agreement as agreement

__version__ = "0.1.0"

_WHERE = {
    "ANSWER_METHODS": "registry",
    "ANSWER_TYPES": "registry",
    "Campaign": "active.campaign",
    "Clustering": "answers.similarities_clusters",
    "Comparisons": "data.comparisons",
    "Consensus": "core.consensus",
    "CrowdClassifier": "learners.classifier",
    "Dataset": "data.dataset",
    "Diagnosis": "report.findings",
    "Estimates": "core.estimates",
    "Graph": "data.graph",
    "GraphConsensus": "answers.graph_crowd",
    "LEARNERS": "registry",
    "LabelSetConsensus": "answers.label_sets_result",
    "LabelSets": "data.label_sets",
    "METHODS": "registry",
    "Online": "online.stream",
    "Ranking": "answers.comparisons_leaderboard",
    "Rankings": "data.rankings",
    "Ratings": "data.ratings",
    "Similarities": "data.similarities",
    "TagConsensus": "answers.tags_result",
    "Tags": "data.tags",
    "Votes": "data.votes",
    "aggregate": "api",
    "agreement": "trust.agreement",
    "build_report": "report.build",
    "compare": "api",
    "diagnose": "report.findings",
    "dpo_loss": "learners.comparisons_dpo",
    "load_learner": "learners.classifier",
    "preference_weights": "answers.comparisons_preferences",
    "read_comparisons": "data.comparisons",
    "read_dataset": "data.dataset",
    "read_graph": "data.graph",
    "read_label_sets": "data.label_sets",
    "read_rankings": "data.rankings",
    "read_ratings": "data.ratings",
    "read_similarities": "data.similarities",
    "read_tags": "data.tags",
    "read_truth": "data.votes",
    "read_votes": "data.votes",
    "write_preferences": "answers.comparisons_preferences",
    "write_report": "report.page",
}
_MODULES = {"active": "active", "errors": "errors", "metrics": "metrics", "simulate": "simulate", "trust": "trust"}


def _methods() -> dict[str, str]:
    """Class -> module of every method and learner, from the registry."""
    from crowdwise.registry import ANSWER_METHODS, LEARNERS, METHODS

    return {e.class_name: e.module for entries in (METHODS, LEARNERS, ANSWER_METHODS) for e in entries.values()}


__all__ = sorted([*_WHERE, *_MODULES, *_methods()])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(f"crowdwise.{_MODULES[name]}")
    else:
        where = _WHERE.get(name) or _methods().get(name)
        if where is None:
            raise AttributeError(f"module 'crowdwise' has no attribute {name!r}")
        value = getattr(import_module(f"crowdwise.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
