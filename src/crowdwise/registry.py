"""The one list of methods. The command line, the table in the docs, the contract tests and the benchmarks read it.

To add a method: write its class in one file of ``crowdwise/methods`` (``crowdwise/answers`` for answers that are not
classes, ``crowdwise/learners`` where it looks at inputs as well) and add its line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from crowdwise.errors import ParameterError, suggestion

DEFAULT = "auto"
DEFAULT_LEARNER = "max-mig"
COMPARED = ("auto", "anchored", "majority", "wawa", "one-coin", "dawid-skene", "ibcc", "mace", "glad")
"""What is compared where nobody says otherwise: the default, and a quick method of each kind."""


@dataclass(frozen=True)
class Entry:
    """One method: its key, where its class is (``module:Class``), and a line for people.

    A module without a dot is one of ``crowdwise.methods``. ``family`` is for people; for methods of other answers than
    classes it is the kind of answers, a key of ``ANSWERS``. ``inputs``: whether it looks at inputs as well as answers.
    """

    key: str
    family: str
    target: str
    summary: str
    reference: str
    inputs: bool = False

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
    Entry("auto", DS, "ds_auto:Auto", "Models averaged by how they foretell left-out votes (default)", "crowdwise"),
    Entry("anchored", DS, "ds_anchored:Anchored", "Confusion matrices held to the labels", "crowdwise"),
    Entry(
        "majority", "votes", "votes_majority:MajorityVote", "The share of votes, weighted where votes have weights", ""
    ),
    Entry(
        "gold-weighted",
        "votes",
        "votes_majority:GoldWeighted",
        "Votes weighted by accuracy on items with known truth",
        "",
    ),
    Entry(
        "dawid-skene", DS, "ds_dawid_skene:DawidSkene", "A full confusion matrix per annotator", "Dawid and Skene 1979"
    ),
    Entry("one-coin", DS, "ds_dawid_skene:OneCoin", "One accuracy per annotator", "Zhang et al. 2016"),
    Entry(
        "confusion-vector", DS, "ds_dawid_skene:ConfusionVector", "Accuracy per annotator and class", "Li and Yu 2014"
    ),
    Entry(
        "fast-dawid-skene", DS, "ds_dawid_skene:FastDawidSkene", "Confusion matrices by hard EM", "Sinha et al. 2018"
    ),
    Entry(
        "group-conditional",
        DS,
        "ds_group_conditional:GroupConditional",
        "Confusions by kind of item, pooled",
        "crowdwise",
    ),
    Entry("wawa", "weights", "weights_agreement:Wawa", "Votes weighted by agreement with the majority", "Crowd-Kit"),
    Entry(
        "zero-based-skill", "weights", "weights_agreement:ZeroBasedSkill", "Skills moved towards agreement", "Crowd-Kit"
    ),
    Entry("iwmv", "weights", "weights_agreement:IWMV", "Votes weighted by K times accuracy minus 1", "Li and Yu 2014"),
    Entry(
        "zencrowd", "weights", "weights_zencrowd:ZenCrowd", "Reliable answers, or random ones", "Demartini et al. 2012"
    ),
    Entry(
        "pm",
        "weights",
        "weights_truth_discovery:PM",
        "Labels and weights with the least weighted loss",
        "Li et al. 2014",
    ),
    Entry(
        "catd",
        "weights",
        "weights_truth_discovery:CATD",
        "Weights from an upper bound of each one's error",
        "Li et al. 2014",
    ),
    Entry(
        "bwa",
        "weights",
        "weights_truth_discovery:BWA",
        "Each class a number, with noise per annotator",
        "Li et al. 2019",
    ),
    Entry(
        "glad", "ability", "ability_glad:GLAD", "Ability of annotators, difficulty of items", "Whitehill et al. 2009"
    ),
    Entry("irt", "ability", "ability_irt:ItemResponse", "Who knows answers, who does not guesses", "crowdwise"),
    Entry("ibcc", "Bayes", "bayes_ibcc:IBCC", "Bayesian confusion matrices (also BayesGC)", "Kim and Ghahramani 2012"),
    Entry("ebcc", "Bayes", "bayes_ebcc:EBCC", "Classes with subtypes, on which annotators err alike", "Li et al. 2019"),
    Entry("cbcc", "Bayes", "bayes_cbcc:CBCC", "Annotators in communities that answer alike", "Venanzi et al. 2014"),
    Entry("spem", "Bayes", "bayes_spem:SpEM", "Confusions; spammers are dropped on the way", "Raykar and Yu 2012"),
    Entry("mace", "Bayes", "bayes_mace:MACE", "Annotators who know, or answer from habit", "Hovy et al. 2013"),
    Entry(
        "spectral-ds",
        "moments",
        "moments_spectral_ds:SpectralDS",
        "Confusions from triples of groups",
        "Zhang et al. 2016",
    ),
    Entry(
        "multispa",
        "moments",
        "moments_pairs:MultiSPA",
        "Corners of what pairs of annotators say",
        "Ibrahim et al. 2019",
    ),
    Entry("cnmf", "moments", "moments_pairs:CNMF", "All pairs of annotators fitted at once", "Ibrahim et al. 2019"),
    Entry(
        "symnmf", "moments", "moments_symnmf:SymNMF", "A symmetric factorisation of all pairs", "Ibrahim and Fu 2021"
    ),
    Entry(
        "tensor", "moments", "moments_tensor:TensorDS", "All triples of annotators at once", "Traganitis et al. 2018"
    ),
    Entry(
        "worker-cluster",
        "groups",
        "groups_worker_cluster:WorkerCluster",
        "A few matrices for all",
        "Imamura et al. 2018",
    ),
    Entry(
        "grouped-dawid-skene",
        "groups",
        "groups_dawid_skene:GroupedDawidSkene",
        "One opinion per group",
        "Traganitis 2022",
    ),
    Entry("grouped-majority", "groups", "groups_dawid_skene:GroupedMajority", "One vote per group", "Traganitis 2022"),
    Entry("kos", "spectral", "spectral_kos:KOS", "Messages between items and annotators", "Karger, Oh and Shah 2011"),
    Entry(
        "kos-svd",
        "spectral",
        "spectral_vectors:KOSSVD",
        "Top singular vector of the centred votes",
        "Zhang et al. 2016",
    ),
    Entry("ghosh", "spectral", "spectral_vectors:Ghosh", "Top singular vector of the votes", "Ghosh et al. 2011"),
    Entry(
        "eigenratio",
        "spectral",
        "skills_agreement:EigenRatio",
        "Agreement eigenvector over the graph's",
        "Dalvi et al. 2013",
    ),
    Entry("sml", "spectral", "spectral_sml:SML", "Sensitivity and specificity from covariances", "Parisi et al. 2014"),
    Entry(
        "pgd", "skills", "skills_agreement:PGD", "Skills by projected gradient on pairwise agreement", "Ma et al. 2018"
    ),
    Entry(
        "m-msr", "skills", "skills_mmsr:MMSR", "Skills by trimmed means, against adversaries", "Ma and Olshevsky 2020"
    ),
    Entry(
        "triangular",
        "skills",
        "skills_triangular:Triangular",
        "Skills from the best triangles",
        "Bonald and Combes 2017",
    ),
    Entry("bp", "messages", "messages_bp:BeliefPropagation", "Belief propagation over the votes", "Liu et al. 2012"),
    Entry(
        "mf", "messages", "messages_mf:MeanField", "Mean field over truths and confusion matrices", "Liu et al. 2012"
    ),
    Entry(
        "minimax", "entropy", "entropy_minimax:Minimax", "Annotators and items both confuse classes", "Zhou et al. 2014"
    ),
    Entry("m3v", "entropy", "entropy_m3v:MaxMarginVote", "Weighted votes that win by a margin", "Tian and Zhu 2015"),
    Entry(
        "crowd-svm",
        "entropy",
        "entropy_crowd_svm:CrowdSVM",
        "Confusion matrices and margins, sampled",
        "Tian and Zhu 2015",
    ),
)
_LEARNERS = (
    Entry(
        "max-mig",
        "information",
        "learners.information_max_mig:MaxMIG",
        "What inputs and votes share",
        "Cao et al. 2019",
    ),
    Entry(
        "ccem",
        "joint",
        "learners.joint_confusions:CCEM",
        "A confusion matrix for each, after the network",
        "Ibrahim et al. 2023",
    ),
    Entry(
        "trace",
        "joint",
        "learners.joint_confusions:TraceRegularised",
        "Confusion matrices of least trace",
        "Tanno et al. 2019",
    ),
    Entry(
        "geocrowdnet-f",
        "joint",
        "learners.joint_confusions:GeoCrowdNetF",
        "Answers of largest volume",
        "Ibrahim et al. 2023",
    ),
    Entry(
        "geocrowdnet-w",
        "joint",
        "learners.joint_confusions:GeoCrowdNetW",
        "Confusions of largest volume",
        "Ibrahim et al. 2023",
    ),
    Entry(
        "coinnet",
        "joint",
        "learners.joint_coinnet:COINNet",
        "Confusions, and a term for outlying votes",
        "Nguyen et al. 2024",
    ),
    Entry(
        "crowd-layer",
        "layers",
        "learners.layers_crowd_layer:CrowdLayer",
        "Free weights for each",
        "Rodrigues and Pereira 2018",
    ),
    Entry(
        "speelfc",
        "layers",
        "learners.layers_crowd_layer:SpeeLFC",
        "The crowd layer kept to probabilities",
        "Chen et al. 2020",
    ),
    Entry(
        "conal",
        "layers",
        "learners.layers_crowd_layer:CoNAL",
        "Common and own noise, gated for each vote",
        "Chu et al. 2021",
    ),
    Entry(
        "unionnet",
        "layers",
        "learners.layers_unionnet:UnionNet",
        "All annotators as one, with M K answers",
        "Wei et al. 2022",
    ),
    Entry(
        "crowd-ar",
        "layers",
        "learners.layers_crowd_ar:CrowdAR",
        "Votes blurred by learned reliability",
        "Cao et al. 2023",
    ),
    Entry(
        "raykar",
        "alternating",
        "learners.alternating_raykar:Raykar",
        "Softmax regression within EM",
        "Raykar et al. 2010",
    ),
    Entry("aggnet", "alternating", "learners.alternating_em:AggNet", "EM with a network", "Albarqouni et al. 2016"),
    Entry(
        "mbem", "alternating", "learners.alternating_em:MBEM", "Rounds of labels and retraining", "Khetan et al. 2018"
    ),
    Entry("deep-mf", "alternating", "learners.alternating_em:DeepMF", "Mean field with a network", "Kim et al. 2022"),
    Entry(
        "deep-bp",
        "alternating",
        "learners.alternating_deep_bp:DeepBP",
        "Belief propagation with a network",
        "Kim et al. 2022",
    ),
    Entry(
        "bayes-dgc",
        "alternating",
        "learners.alternating_bayes_dgc:BayesDGC",
        "Bayesian confusion matrices and a net",
        "Li et al. 2021",
    ),
    Entry(
        "trace-x",
        "instance",
        "learners.instance_confusions:TraceX",
        "Confusions that depend on the input",
        "Zhang et al. 2020",
    ),
    Entry(
        "transition-x",
        "instance",
        "learners.instance_confusions:TransitionX",
        "The same, from sure items",
        "Guo et al. 2023",
    ),
    Entry("two-stage", "baselines", "learners.baselines_two_stage:TwoStage", "Aggregate, then train on the labels", ""),
    Entry(
        "soft-bootstrap",
        "baselines",
        "learners.baselines_two_stage:SoftBootstrap",
        "Labels it may correct",
        "Reed et al. 2014",
    ),
    Entry(
        "single-confusion",
        "baselines",
        "learners.baselines_two_stage:SingleConfusion",
        "One for all",
        "Sukhbaatar et al. 2014",
    ),
    Entry(
        "doctor-net",
        "baselines",
        "learners.baselines_doctor_net:DoctorNet",
        "A last layer for each annotator",
        "Guan et al. 2018",
    ),
    Entry(
        "weighted-doctor-net",
        "baselines",
        "learners.baselines_doctor_net:WeightedDoctorNet",
        "Weighted heads",
        "Guan et al. 2018",
    ),
    Entry(
        "crowdlab",
        "baselines",
        "learners.baselines_crowdlab:Crowdlab",
        "A classifier and votes, averaged",
        "Goh et al. 2022",
    ),
)
_BEYOND: tuple[Entry, ...] = (
    Entry("mean", "ratings", "answers.ratings_averages:MeanRating", "The mean of an item's ratings", ""),
    Entry("median", "ratings", "answers.ratings_averages:MedianRating", "The median of an item's ratings", ""),
    Entry(
        "gaussian",
        "ratings",
        "answers.ratings_gaussian:GaussianRatings",
        "Bias, scale and precision",
        "Raykar et al. 2010",
    ),
    Entry(
        "bayes-iterative",
        "ratings",
        "answers.ratings_iterative:BayesIterative",
        "Messages and variances",
        "Ok et al. 2019",
    ),
    Entry(
        "covariance",
        "ratings",
        "answers.ratings_covariance:CovarianceRatings",
        "Who errs with whom",
        "Tenzer et al. 2022",
    ),
    Entry(
        "pm-numeric",
        "ratings",
        "answers.ratings_truth_discovery:PMNumeric",
        "Values and weights of least loss",
        "Li et al. 2014",
    ),
    Entry(
        "catd-numeric",
        "ratings",
        "answers.ratings_truth_discovery:CATDNumeric",
        "Weights from error bounds",
        "Li et al. 2014",
    ),
    Entry(
        "crowd-regression",
        "ratings",
        "learners.ratings_network:CrowdRegression",
        "A network; a line for each annotator",
        "Rodrigues and Pereira 2018",
        inputs=True,
    ),
    Entry(
        "raykar-regression",
        "ratings",
        "learners.ratings_raykar:RaykarRegression",
        "A regression within EM",
        "Raykar et al. 2010",
        inputs=True,
    ),
    Entry(
        "ordinal-dawid-skene",
        "ordinal",
        "answers.ordinal_dawid_skene:OrdinalDawidSkene",
        "Location and spread",
        "McCullagh 1980",
    ),
    Entry(
        "ordinal-raykar",
        "ordinal",
        "answers.ordinal_raykar:OrdinalRaykar",
        "One grade or more, K - 1 times",
        "Raykar et al. 2010",
    ),
    Entry(
        "bradley-terry",
        "comparisons",
        "answers.comparisons_bradley_terry:BradleyTerry",
        "One score per item",
        "Bradley and Terry 1952",
    ),
    Entry(
        "crowd-bt",
        "comparisons",
        "answers.comparisons_bradley_terry:CrowdBT",
        "Scores, and who answers straight",
        "Chen et al. 2013",
    ),
    Entry(
        "position-bt",
        "comparisons",
        "answers.comparisons_bradley_terry:PositionBT",
        "Scores, and who likes the first",
        "crowdwise",
    ),
    Entry(
        "mixture-bt",
        "comparisons",
        "answers.comparisons_mixture:MixtureBT",
        "Groups of annotators with tastes",
        "crowdwise",
    ),
    Entry(
        "deep-bt",
        "comparisons",
        "learners.comparisons_deep_bt:DeepBT",
        "Scores from a network on items",
        "Chen et al. 2013",
        inputs=True,
    ),
    Entry(
        "plackett-luce",
        "rankings",
        "answers.rankings_plackett_luce:PlackettLuce",
        "Scores from rankings",
        "Plackett 1975",
    ),
    Entry(
        "crowd-clustering",
        "similarities",
        "answers.similarities_crowd_clustering:CrowdClustering",
        "Clusters; two rates for each",
        "crowdwise",
    ),
    Entry(
        "volmaxdcc",
        "similarities",
        "learners.similarities_volmaxdcc:VolMaxDCC",
        "A network that clusters",
        "Nguyen et al. 2023",
        inputs=True,
    ),
    Entry(
        "binary-relevance",
        "label-sets",
        "answers.label_sets_binary_relevance:BinaryRelevance",
        "Label by label, annotators shared",
        "crowdwise",
    ),
    Entry("hmm-crowd", "tags", "answers.tags_hmm:HMMCrowd", "A Markov chain of true tags", "Nguyen et al. 2017"),
    Entry("token-dawid-skene", "tags", "answers.tags_hmm:TokenDawidSkene", "Tokens alone, then a valid tagging", ""),
    Entry(
        "crowd-layer-tags",
        "tags",
        "learners.tags_crowd_layer:CrowdLayerTags",
        "A crowd layer on tokens",
        "Rodrigues and Pereira 2018",
        inputs=True,
    ),
    Entry(
        "graph-crowd", "graph", "answers.graph_crowd:GraphCrowd", "Neighbours agree", "Traganitis and Giannakis 2022"
    ),
)
ANSWERS: dict[str, tuple[str, str]] = {
    "votes": (DEFAULT, "one class of a few"),
    "ratings": ("gaussian", "a number on a scale"),
    "ordinal": ("ordinal-dawid-skene", "one class of a few that have an order"),
    "comparisons": ("crowd-bt", "which of two is better"),
    "rankings": ("plackett-luce", "several, in order"),
    "similarities": ("crowd-clustering", "whether two are of the same kind"),
    "label-sets": ("binary-relevance", "any number of classes"),
    "tags": ("hmm-crowd", "a tag for every token of a sequence"),
    "graph": ("graph-crowd", "one class of a few, for items joined by a graph"),
}
"""Kinds of answers: the default method, and what an annotator says."""
METHODS: dict[str, Entry] = {entry.key: entry for entry in _ENTRIES}
"""Methods that look at votes alone."""
LEARNERS: dict[str, Entry] = {entry.key: entry for entry in _LEARNERS}
"""Methods that learn a classifier from inputs and votes."""
BEYOND: dict[str, Entry] = {entry.key: entry for entry in _BEYOND}
"""Methods for other answers than classes."""


def find(key: str) -> Entry:
    """The entry of a method for votes alone, with a suggestion where the key is not quite right."""
    if key in LEARNERS:
        raise ParameterError(
            f"{key} learns a classifier from inputs and votes: use crowdwise learn, or CrowdClassifier(method={key!r})."
        )
    if key in BEYOND:
        raise ParameterError(f"{key} is for {BEYOND[key].family} ({ANSWERS[BEYOND[key].family][1]}), not for votes.")
    return _find(key, METHODS, "method")


def find_beyond(key: str, answers: str) -> Entry:
    """The entry of a method for such answers, with a suggestion where the key is not quite right."""
    entries = {entry.key: entry for entry in BEYOND.values() if entry.family == answers}
    if key not in entries and (key in METHODS or key in BEYOND):
        other = BEYOND[key].family if key in BEYOND else "votes"
        there = f"for {answers} there are {', '.join(entries)}" if entries else f"these are {answers}"
        raise ParameterError(f"{key} is for {other}; {there}.")
    if not entries:
        raise ParameterError(f"There is no method for {answers} in this version of crowdwise.")
    return _find(key, entries, f"method for {answers}")


def find_learner(key: str) -> Entry:
    """The entry of a learner, with a suggestion where the key is not quite right."""
    if key in METHODS:
        raise ParameterError(
            f"{key} looks at votes alone: use crowdwise aggregate, or the learner two-stage with aggregator={key!r}."
        )
    return _find(key, LEARNERS, "learner")


def _find(key: str, entries: dict[str, Entry], what: str) -> Entry:
    entry = entries.get(key)
    if entry is None:
        raise ParameterError(
            f"Unknown {what} {key!r}: there are {', '.join(entries)}.{suggestion(str(key), list(entries))}"
        )
    return entry


def create(key: str, **params: Any) -> Any:
    """A model from its key and parameters, with a suggestion where a parameter's name is not quite right."""
    return _create(find(key), params)


def create_learner(key: str, **params: Any) -> Any:
    """A learner from its key and parameters, with a suggestion where a parameter's name is not quite right."""
    return _create(find_learner(key), params)


def create_beyond(key: str, answers: str, **params: Any) -> Any:
    """A model for such answers, from its key and parameters."""
    return _create(find_beyond(key, answers), params)


def _create(entry: Entry, params: dict[str, Any]) -> Any:
    key, model = entry.key, entry.load()
    known = list(model.parameters())
    for name in params:
        if name not in known:
            raise ParameterError(
                f"{key} has no parameter {name!r}: it has {', '.join(known)}.{suggestion(name, known)}"
            )
    return model(**params)
