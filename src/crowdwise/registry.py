"""The one list of methods. The command line, the table in the docs, the contract tests and the benchmarks read it.

To add a method: write its class in one file of ``crowdwise/methods`` and add its line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from crowdwise.errors import ParameterError, suggestion

DEFAULT = "anchored"


@dataclass(frozen=True)
class Entry:
    """One method: its key, where its class is (``module:Class``), and a line for people.

    A module without a dot is one of ``crowdwise.methods``.
    """

    key: str
    family: str
    target: str
    summary: str
    reference: str

    def load(self) -> Any:
        """The class behind the key."""
        return getattr(import_module(f"crowdwise.{self.module}"), self.class_name)

    @property
    def module(self) -> str:
        """Where the class is, below ``crowdwise``."""
        module = self.target.partition(":")[0]
        return module if "." in module else f"methods.{module}"

    @property
    def class_name(self) -> str:
        return self.target.partition(":")[2]


DS = "Dawid-Skene"

_ENTRIES = (
    Entry("anchored", DS, "anchored:Anchored", "Confusion matrices held to the labels (default)", "crowdwise"),
    Entry("majority", "votes", "votes:MajorityVote", "The share of votes, weighted where votes have weights", ""),
    Entry("gold-weighted", "votes", "votes:GoldWeighted", "Votes weighted by accuracy on items with known truth", ""),
    Entry("dawid-skene", DS, "dawid_skene:DawidSkene", "A full confusion matrix per annotator", "Dawid and Skene 1979"),
    Entry("one-coin", DS, "dawid_skene:OneCoin", "One accuracy per annotator", "Zhang et al. 2016"),
    Entry("confusion-vector", DS, "dawid_skene:ConfusionVector", "Accuracy per annotator and class", "Li and Yu 2014"),
    Entry("fast-dawid-skene", DS, "dawid_skene:FastDawidSkene", "Confusion matrices by hard EM", "Sinha et al. 2018"),
    Entry("wawa", "weights", "weights:Wawa", "Votes weighted by agreement with the majority", "Crowd-Kit"),
    Entry("zero-based-skill", "weights", "weights:ZeroBasedSkill", "Skills moved towards agreement", "Crowd-Kit"),
    Entry("iwmv", "weights", "weights:IWMV", "Votes weighted by K times accuracy minus 1", "Li and Yu 2014"),
    Entry("zencrowd", "weights", "weights:ZenCrowd", "Reliable answers, or random ones", "Demartini et al. 2012"),
    Entry("pm", "weights", "truth:PM", "Labels and weights with the least weighted loss", "Li et al. 2014"),
    Entry("catd", "weights", "truth:CATD", "Weights from an upper bound of each one's error", "Li et al. 2014"),
    Entry("bwa", "weights", "truth:BWA", "Each class a number, with noise per annotator", "Li et al. 2019"),
    Entry("glad", "ability", "ability:GLAD", "Ability of annotators, difficulty of items", "Whitehill et al. 2009"),
    Entry("irt", "ability", "ability:ItemResponse", "Who knows answers, who does not guesses", "crowdwise"),
    Entry("ibcc", "Bayes", "bayes:IBCC", "Bayesian confusion matrices (also BayesGC)", "Kim and Ghahramani 2012"),
    Entry("ebcc", "Bayes", "subtypes:EBCC", "Classes with subtypes, on which annotators err alike", "Li et al. 2019"),
    Entry("cbcc", "Bayes", "communities:CBCC", "Annotators in communities that answer alike", "Venanzi et al. 2014"),
    Entry("mace", "Bayes", "mace:MACE", "Annotators who know, or answer from habit", "Hovy et al. 2013"),
    Entry("spectral-ds", "moments", "triples:SpectralDS", "Confusions from triples of groups", "Zhang et al. 2016"),
    Entry("multispa", "moments", "pairs:MultiSPA", "Corners of what pairs of annotators say", "Ibrahim et al. 2019"),
    Entry("cnmf", "moments", "pairs:CNMF", "All pairs of annotators fitted at once", "Ibrahim et al. 2019"),
    Entry("symnmf", "moments", "factors:SymNMF", "A symmetric factorisation of all pairs", "Ibrahim and Fu 2021"),
    Entry("tensor", "moments", "tensor:TensorDS", "All triples of annotators at once", "Traganitis et al. 2018"),
    Entry("kos", "spectral", "spectral:KOS", "Messages between items and annotators", "Karger, Oh and Shah 2011"),
    Entry("kos-svd", "spectral", "spectral:KOSSVD", "Top singular vector of the centred votes", "Zhang et al. 2016"),
    Entry("ghosh", "spectral", "spectral:Ghosh", "Top singular vector of the votes", "Ghosh et al. 2011"),
    Entry("eigenratio", "spectral", "skills:EigenRatio", "Agreement eigenvector over the graph's", "Dalvi et al. 2013"),
    Entry("sml", "spectral", "covariance:SML", "Sensitivity and specificity from covariances", "Parisi et al. 2014"),
    Entry("pgd", "skills", "skills:PGD", "Skills by projected gradient on pairwise agreement", "Ma et al. 2018"),
    Entry("m-msr", "skills", "trimmed:MMSR", "Skills by trimmed means, against adversaries", "Ma and Olshevsky 2020"),
    Entry("triangular", "skills", "triangles:Triangular", "Skills from the best triangles", "Bonald and Combes 2017"),
    Entry("bp", "messages", "messages:BeliefPropagation", "Belief propagation over the votes", "Liu et al. 2012"),
    Entry("mf", "messages", "messages:MeanField", "Mean field over truths and confusion matrices", "Liu et al. 2012"),
    Entry("minimax", "entropy", "minimax:Minimax", "Annotators and items both confuse classes", "Zhou et al. 2014"),
    Entry("m3v", "entropy", "margin:MaxMarginVote", "Weighted votes that win by a margin", "Tian and Zhu 2015"),
    Entry("crowd-svm", "entropy", "crowd_svm:CrowdSVM", "Confusion matrices and margins, sampled", "Tian and Zhu 2015"),
)
METHODS: dict[str, Entry] = {entry.key: entry for entry in _ENTRIES}


def find(key: str) -> Entry:
    """The entry of a method, with a suggestion where the key is not quite right."""
    entry = METHODS.get(key)
    if entry is None:
        raise ParameterError(
            f"Unknown method {key!r}: there are {', '.join(METHODS)}.{suggestion(str(key), list(METHODS))}"
        )
    return entry


def create(key: str, **params: Any) -> Any:
    """A model from its key and parameters, with a suggestion where a parameter's name is not quite right."""
    model = find(key).load()
    known = list(model.parameters())
    for name in params:
        if name not in known:
            raise ParameterError(
                f"{key} has no parameter {name!r}: it has {', '.join(known)}.{suggestion(name, known)}"
            )
    return model(**params)
