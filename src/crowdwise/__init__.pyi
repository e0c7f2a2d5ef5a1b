"""The public names, once: ``__init__.py`` reads this list, and so do type checkers and editors.

The classes of all methods, which ``crowdwise.registry`` lists, are public names as well.
"""

from typing import Any

from crowdwise import active as active
from crowdwise import errors as errors
from crowdwise import learners as learners
from crowdwise import metrics as metrics
from crowdwise import simulate as simulate
from crowdwise import spark as spark
from crowdwise import store as store
from crowdwise import testing as testing
from crowdwise import trust as trust
from crowdwise.answers.comparisons_judges import judge_panels as judge_panels
from crowdwise.answers.comparisons_judges import judge_table as judge_table
from crowdwise.answers.comparisons_leaderboard import Ranking as Ranking
from crowdwise.answers.comparisons_preferences import preference_weights as preference_weights
from crowdwise.answers.comparisons_preferences import write_preferences as write_preferences
from crowdwise.answers.graph_crowd import GraphConsensus as GraphConsensus
from crowdwise.answers.label_sets_binary_relevance import LabelSetConsensus as LabelSetConsensus
from crowdwise.answers.similarities_crowd_clustering import Clustering as Clustering
from crowdwise.answers.tags_result import TagConsensus as TagConsensus
from crowdwise.api import aggregate as aggregate
from crowdwise.api import compare as compare
from crowdwise.api import estimate as estimate
from crowdwise.api import fit as fit
from crowdwise.api import score_board as score_board
from crowdwise.client import Client as Client
from crowdwise.core.consensus import Consensus as Consensus
from crowdwise.core.consensus_in_parts import ConsensusInParts as ConsensusInParts
from crowdwise.core.result import Estimates as Estimates
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
from crowdwise.data.rules import apply_rules as apply_rules
from crowdwise.data.similarities import Similarities as Similarities
from crowdwise.data.similarities import read_similarities as read_similarities
from crowdwise.data.tags import Tags as Tags
from crowdwise.data.tags import read_tags as read_tags
from crowdwise.data.votes import Votes as Votes
from crowdwise.data.votes import read_truth as read_truth
from crowdwise.data.votes import read_votes as read_votes
from crowdwise.exporters.write_labels import to_dataset as to_dataset
from crowdwise.exporters.write_labels import write_labels as write_labels
from crowdwise.file_check import FileCheck as FileCheck
from crowdwise.file_check import check as check
from crowdwise.importers.export import Export as Export
from crowdwise.importers.export import read_export as read_export
from crowdwise.learners.classifier import CrowdClassifier as CrowdClassifier
from crowdwise.learners.classifier import load_learner as load_learner
from crowdwise.learners.comparisons_deep_bt import dpo_loss as dpo_loss
from crowdwise.learners.comparisons_deep_bt import reward_groups as reward_groups
from crowdwise.methods.ds_auto import Auto as Auto
from crowdwise.methods.ds_dawid_skene import Anchored as Anchored
from crowdwise.methods.ds_dawid_skene import ConfusionVector as ConfusionVector
from crowdwise.methods.ds_dawid_skene import DawidSkene as DawidSkene
from crowdwise.methods.ds_dawid_skene import FastDawidSkene as FastDawidSkene
from crowdwise.methods.ds_dawid_skene import OneCoin as OneCoin
from crowdwise.methods.ds_stacked import Stacked as Stacked
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
from crowdwise.saved import load as load
from crowdwise.store.campaign import Campaign as Campaign
from crowdwise.trust.agreement import agreement as agreement
from crowdwise.trust.alternative_test import AlternativeTest as AlternativeTest
from crowdwise.trust.alternative_test import alternative_test as alternative_test
from crowdwise.trust.annotators import coverage_table as coverage_table
from crowdwise.trust.certificate import Certificate as Certificate
from crowdwise.trust.certificate import certify as certify
from crowdwise.trust.certificate import draw_for_gold as draw_for_gold
from crowdwise.trust.estimates import PopulationEstimates as PopulationEstimates

__version__: str
__all__: list[str]

def __getattr__(name: str) -> Any: ...
