"""The one list of methods, and of answer types. The command line, the tables in the docs, the contract tests and the
benchmarks read it; module names as text stand here and nowhere else.

To add a method: write its class in one file of ``crowdwise/methods`` (``crowdwise/answers`` for other answer types than
votes, ``crowdwise/learners`` where it looks at inputs as well) and add its line here. Other packages add methods for
votes through entry points of the group ``crowdwise.methods`` (:func:`plugins`).
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from crowdwise.errors import InputWarning, ParameterError, Remedy, suggestion, user_level

DEFAULT = "auto"
DEFAULT_LEARNER = "ensemble"
MAX_SECONDS = 300.0
"""How long a method for votes may learn from inputs, by default."""
COMPARED_PAIRS = ("judge-bt", "bradley-terry", "position-bt", "crowd-bt")
COMPARED = ("auto", "anchored", "majority", "wawa", "one-coin", "dawid-skene", "ibcc", "mace", "glad")
"""The methods that are compared by default: the default method, and a quick one of each family."""
VOTES, NUMBERS, LINKED, SETS = "votes", "ratings", "graph", "label-sets"
"""The types that labels, numbers on a scale, votes with a graph and several labels are, where none is named."""
BY_GROUP = "group-conditional"
"""The method with a confusion matrix for every annotator and group of items."""
ONE_CLASS, CLASSES, NUMBER, PAIR = "one class", "classes", "number", "pair"
ORDER, TEXT, TOKENS, STRETCHES = "order", "text", "tokens", "stretches"
"""Forms of a question on the server."""


def load(target: str, package: str = "crowdwise") -> Any:
    """The object behind ``module:name``, below a package."""
    module, _, name = target.partition(":")
    return getattr(import_module(f"{package}.{module}"), name)


class AnswerType(NamedTuple):
    """One type of answers. To add one: its line below, and what the targets (``module:name``) name.

    ``says`` is what an annotator says, ``table`` the class of its table, ``result`` that of results, ``traits`` the
    class of everything that is particular to it (:class:`~crowdwise.answer_types.base.AnswerRules`). ``column`` is what
    the table calls the answer; ``guessed`` lists columns (or one of several, separated by blanks) that show, beside an
    item and an annotator, that a file holds such answers. ``scores``: the truth is a score for each item, not an
    answer. ``form``: how the server asks for it; empty where it does not. ``simulated``: functions (or a dict of them)
    that simulate such answers. ``package`` is what the targets are below. ``title``: what pages call such answers,
    where it is not the name.
    """

    name: str
    says: str
    table: str
    result: str
    traits: str
    default: str
    aliases: tuple[str, ...] = ()
    column: str = "label"
    guessed: tuple[str, ...] = ()
    scores: bool = False
    form: str = ""
    simulated: tuple[str, ...] = ()
    package: str = "crowdwise"
    title: str = ""

    @property
    def heading(self) -> str:
        """What pages call such answers."""
        return self.title or self.name.replace("-", " ").capitalize()

    @property
    def prefix(self) -> str:
        """How the names of its files begin."""
        return self.name.replace("-", "_")

    def load(self) -> Any:
        """The class of its table."""
        return load(self.table, self.package)

    @property
    def rules(self) -> Any:
        """What is particular to it: agreement, measures, findings, its part of a report."""
        return load(self.traits, self.package)()


_TYPES = (
    AnswerType(
        "votes", "one class of a few", "data.votes:Votes", "core.consensus:Consensus", "answer_types.votes:VoteRules",
        DEFAULT, ("classes",), form=ONE_CLASS, simulated=("simulate:SCENARIOS",), title="Classes",
    ),
    AnswerType(
        "ratings", "a number on a scale", "data.ratings:Ratings", "core.result:Estimates",
        "answer_types.ratings:RatingRules", "gaussian", ("numbers",), column="value",
        form=NUMBER, simulated=("simulate:ratings",),
    ),
    AnswerType(
        "ordinal", "one class of an ordered few", "data.votes:Votes", "core.consensus:Consensus",
        "answer_types.votes:OrdinalRules", "ordinal-dawid-skene", ("grades",),
        form=ONE_CLASS, simulated=("simulate:ordinal",), title="Grades",
    ),
    AnswerType(
        "comparisons", "which of two is better", "data.comparisons:Comparisons",
        "answers.comparisons_leaderboard:Ranking", "answer_types.comparisons:ComparisonRules",
        "judge-bt", ("pairs",), column="outcome",
        scores=True, form=PAIR, simulated=("simulate:comparisons",), title="Pairs",
    ),
    AnswerType(
        "rankings", "several items in order", "data.rankings:Rankings", "answers.comparisons_leaderboard:Ranking",
        "answer_types.comparisons:RankingRules", "plackett-luce", scores=True, form=ORDER,
        simulated=("simulate:rankings",),
    ),
    AnswerType(
        "similarities", "whether two are alike", "data.similarities:Similarities",
        "answers.similarities_crowd_clustering:Clustering", "answer_types.similarities:SimilarityRules",
        "crowd-clustering", ("similar",), simulated=("simulate:similarities",),
    ),
    AnswerType(
        "label-sets", "any number of classes", "data.label_sets:LabelSets",
        "answers.label_sets_binary_relevance:LabelSetConsensus", "answer_types.label_sets:LabelSetRules",
        "binary-relevance", ("sets",), form=CLASSES, simulated=("simulate:label_sets",),
    ),
    AnswerType(
        "tags", "a tag for every token of a sequence", "data.tags:Tags", "answers.tags_result:TagConsensus",
        "answer_types.tags:TagRules", "token-dawid-skene", column="tag", form=TOKENS,
        simulated=("simulate:tag_chain", "simulate:bio_tags"), title="Token tags",
    ),
    AnswerType(
        "texts", "a text", "data.texts:Texts", "answers.texts_consensus:TextConsensus", "answer_types.texts:TextRules",
        "text-auto", ("transcriptions", "translations"), column="text",
        guessed=("text",), form=TEXT, simulated=("simulate:texts",),
    ),
    AnswerType(
        "boxes", "boxes around objects", "data.boxes:Boxes", "answers.boxes_consensus:BoxConsensus",
        "answer_types.boxes:BoxRules", "box-crowd", ("bounding-boxes", "points", "events"),
        guessed=("x1 x", "y1 y", "x2 width", "y2 height"), simulated=("simulate:boxes",),
    ),
    AnswerType(
        "masks", "which pixels of an image", "data.masks:Masks", "answers.masks_consensus:MaskConsensus",
        "answer_types.masks:MaskRules", "signed-distance", ("segmentations",), column="mask",
        guessed=("mask",), simulated=("simulate:masks",),
    ),
    AnswerType(
        "spans", "stretches of a text with labels", "data.spans:Spans", "answers.spans_consensus:SpanConsensus",
        "answer_types.spans:SpanRules", "span-detection", ("stretches",), form=STRETCHES, simulated=("simulate:spans",),
    ),
    AnswerType(
        "graph", "one class of a few, for linked items", "data.votes:Votes", "answers.graph_crowd:GraphConsensus",
        "answer_types.votes:VoteRules", "graph-crowd", ("linked",), simulated=("simulate:graph",),
    ),
)  # fmt: skip
ANSWER_TYPES: dict[str, AnswerType] = {kind.name: kind for kind in _TYPES}
"""Every answer type by its name."""


def answer_type(word: str) -> str:
    """The name of an answer type, from its name or another word for it."""
    names = {alias: kind.name for kind in ANSWER_TYPES.values() for alias in (kind.name, *kind.aliases)}
    if word not in names:
        close = suggestion(str(word), list(names))
        raise ParameterError(f"Unknown answer type {word!r}: there are {', '.join(ANSWER_TYPES)}.{close}")
    return names[word]


def default_method(answer_type: str) -> str:
    """The method for such answers where none is named: one rule for Python and every command.

    >>> default_method("comparisons")
    'judge-bt'
    """
    return ANSWER_TYPES[answer_type].default


def scenarios() -> dict[str, tuple[str, Any]]:
    """Scenario -> answer type and function, of everything that simulates answers.

    >>> scenarios()["bio-tags"][0], scenarios()["one-coin"][0]
    ('tags', 'votes')
    """
    out: dict[str, tuple[str, Any]] = {}
    for kind in ANSWER_TYPES.values():
        for target in kind.simulated:
            source = load(target, kind.package)
            named = source if isinstance(source, dict) else {source.__name__.replace("_", "-"): source}
            out |= {name: (kind.name, function) for name, function in named.items()}
    return out


def results() -> dict[str, Any]:
    """The record of a type whose result bears a name, by the name, as saved ones do."""
    return {kind.result.partition(":")[2]: kind for kind in ANSWER_TYPES.values()}


class Importer(NamedTuple):
    """One annotation tool whose exports are read: its key, its module below ``crowdwise.importers``, its name; the
    columns (of ``objects``: the keys of the first) that only its exports have, where these say it."""

    key: str
    module: str
    title: str
    shown_by: str = ""
    objects: bool = False

    def load(self, function: str) -> Any:
        """``recognises`` or ``read``, as its module has it for this tool."""
        return load(f"importers.{self.module}:{function}_{self.key.replace('-', '_')}")


_IMPORTERS = (
    Importer("label-studio", "label_studio", "Label Studio"),
    Importer("prodigy", "text_tools", "Prodigy", "_input_hash _task_hash answer", objects=True),
    Importer("doccano", "text_tools", "doccano"),
    Importer("argilla", "text_tools", "Argilla"),
    Importer("mturk", "crowd_platforms", "Mechanical Turk", "HITId AssignmentId WorkerId AssignmentStatus"),
    Importer("toloka", "crowd_platforms", "Toloka"),
    Importer("appen", "crowd_platforms", "Appen (Figure Eight)", "_unit_id _worker_id _created_at _trust"),
    Importer("labelbox", "image_tools", "Labelbox"),
    Importer("cvat", "image_tools", "CVAT"),
    Importer("superannotate", "image_tools", "SuperAnnotate"),
    Importer("sagemaker", "crowd_platforms", "SageMaker Ground Truth"),
    Importer(
        "arena", "evaluations", "Chatbot Arena, MT-bench", "model_a model_b winner conversation_a conversation_b",
        objects=True,
    ),
    Importer("evaluations", "evaluations", "AlpacaEval, Arena-Hard, Inspect, promptfoo, DeepEval, MLflow, Langfuse"),
    Importer("qualtrics", "crowd_platforms", "Qualtrics, Prolific"),
    Importer(
        "zooniverse", "crowd_platforms", "Zooniverse",
        "classification_id user_name workflow_id created_at annotations subject_ids",
    ),
    Importer("brat", "text_tools", "brat"),
    Importer("webanno", "text_tools", "INCEpTION, WebAnno"),
    Importer("scale", "crowd_platforms", "Scale"),
    Importer("vindr", "image_tools", "VinDr", "image_id class_name rad_id x_min y_min x_max y_max"),
    Importer("coco", "image_tools", "COCO with annotators"),
    Importer("lidc", "image_tools", "LIDC"),
    Importer("labelme", "image_tools", "LabelMe"),
    Importer("huggingface", "text_tools", "Hugging Face datasets"),
)  # fmt: skip
IMPORTERS: dict[str, Importer] = {entry.key: entry for entry in _IMPORTERS}
"""Annotation tools whose exports are read, in the order in which they are tried."""


class Entry(NamedTuple):
    """One method: its key, where its class is (``module:Class``, below ``crowdwise``), and a line for people.

    The name of its file says the rest. It begins with the family, which is the answer type where that is not votes;
    methods in ``learners`` look at inputs as well.

    >>> METHODS["glad"].family, LEARNERS["aggnet"].family, ANSWER_METHODS["gaussian"].family
    ('ability', 'alternating', 'ratings')
    >>> ANSWER_METHODS["deep-bt"].answer_type, ANSWER_METHODS["deep-bt"].inputs
    ('comparisons', True)
    """

    key: str
    target: str
    summary: str
    reference: str

    def load(self) -> Any:
        """The class behind the key."""
        return load(self.target)

    @property
    def module(self) -> str:
        """Where the class is, below ``crowdwise``."""
        return self.target.partition(":")[0]

    @property
    def class_name(self) -> str:
        return self.target.partition(":")[2]

    @property
    def inputs(self) -> bool:
        """Whether it looks at inputs as well as answers."""
        return self.module.startswith("learners.")

    @property
    def answer_type(self) -> str:
        """The answers it is for."""
        package, _, stem = self.module.partition(".")
        kinds = ANSWER_TYPES.values() if package != "methods" else ()
        return next((kind.name for kind in kinds if stem.startswith(f"{kind.prefix}_")), VOTES)

    @property
    def family(self) -> str:
        """How the names of the files of its family begin."""
        own = ANSWER_TYPES[self.answer_type].prefix
        return own if self.answer_type != VOTES else self.module.partition(".")[2].partition("_")[0]

    def create(self, **params: Any) -> Any:
        """A model with such parameters, with a suggestion where a name is not quite right."""
        model = self.load()
        known = list(model.parameters())
        for name in params:
            if name not in known:
                raise ParameterError(
                    f"{self.key} has no parameter {name!r}: it has {', '.join(known)}.{suggestion(name, known)}"
                )
        return model(**params)

    def serves(self, answer_type: str) -> bool:
        """Whether it is for such answers. Ordinal answers, and votes on linked items, are votes as well."""
        votes = ANSWER_TYPES[answer_type].table == ANSWER_TYPES[VOTES].table
        return self.answer_type == answer_type or (self.answer_type == VOTES and votes)


class Plugin(Entry):
    """A method of another installed package. Its ``target`` is absolute, its ``reference`` the package.

    Its summary is the first line of its docstring. A plugin that cannot be used is a :class:`ParameterError`.
    """

    def load(self) -> Any:
        """The class behind the key."""
        try:
            model = getattr(import_module(self.module), self.class_name)
            if model.key != self.key:
                raise ParameterError(f"its class has the key {model.key!r}")
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ParameterError(f"The method {self.key} of {self.reference} cannot be loaded ({why}).") from error
        return model

    @property
    def summary(self) -> str:
        """The first line of the class's docstring."""
        try:
            return (self.load().__doc__ or "").strip().partition("\n")[0].rstrip(".")
        except ParameterError as error:
            return str(error)

    @property
    def docs(self) -> str:
        """The address of its documentation, as the package names it; empty without one."""
        from importlib.metadata import metadata

        urls = dict(line.split(", ", 1) for line in metadata(self.reference.split()[0]).get_all("Project-URL", ()))
        names = {name.lower(): url for name, url in urls.items()}
        return next((names[name] for name in ("documentation", "docs", "homepage", "repository") if name in names), "")

    @property
    def inputs(self) -> bool:
        return False

    @property
    def answer_type(self) -> str:
        try:
            return str(self.load().answer_type)
        except ParameterError:
            return VOTES

    @property
    def family(self) -> str:
        return "plugin"


_METHODS = (
    ("auto", "ds_auto:Auto", "Anchored matrices, probabilities that allow for common errors (default)", "crowdwise"),
    ("stacked", "ds_stacked:Stacked", "Models averaged by how well they predict held-out votes", "crowdwise"),
    ("anchored", "ds_dawid_skene:Anchored", "Confusion matrices anchored to what the labels mean", "crowdwise"),
    ("majority", "votes_majority:MajorityVote", "The share of votes, weighted where votes have weights", ""),
    ("gold-weighted", "votes_majority:GoldWeighted", "Votes weighted by accuracy on items with known truth", ""),
    ("dawid-skene", "ds_dawid_skene:DawidSkene", "A full confusion matrix per annotator", "Dawid and Skene 1979"),
    ("one-coin", "ds_dawid_skene:OneCoin", "One accuracy per annotator", "Zhang et al. 2016"),
    ("confusion-vector", "ds_dawid_skene:ConfusionVector", "Accuracy per annotator and class", "Li and Yu 2014"),
    ("fast-dawid-skene", "ds_dawid_skene:FastDawidSkene", "Confusion matrices by hard EM", "Sinha et al. 2018"),
    ("group-conditional", "ds_group_conditional:GroupConditional", "Confusions by kind of item, pooled", "crowdwise"),
    ("wawa", "weights_agreement:Wawa", "Votes weighted by agreement with the majority", "Crowd-Kit"),
    ("zero-based-skill", "weights_agreement:ZeroBasedSkill", "Skills moved towards agreement", "Crowd-Kit"),
    ("iwmv", "weights_agreement:IWMV", "Votes weighted by K times accuracy minus 1", "Li and Yu 2014"),
    ("zencrowd", "weights_agreement:ZenCrowd", "Reliable answers, or random ones", "Demartini et al. 2012"),
    ("pm", "weights_truth_discovery:PM", "Labels and weights with the least weighted loss", "Li et al. 2014"),
    ("catd", "weights_truth_discovery:CATD", "Weights from an upper bound of each error rate", "Li et al. 2014"),
    ("bwa", "weights_truth_discovery:BWA", "Each class a number, with noise per annotator", "Li et al. 2019"),
    ("glad", "ability_fit:GLAD", "Ability of annotators, difficulty of items", "Whitehill et al. 2009"),
    ("irt", "ability_fit:ItemResponse", "Annotators know the answer or guess", "crowdwise"),
    ("ibcc", "bayes_ibcc:IBCC", "Bayesian confusion matrices (also BayesGC)", "Kim and Ghahramani 2012"),
    ("ebcc", "bayes_ebcc:EBCC", "Classes with subtypes on which annotators err alike", "Li et al. 2019"),
    ("cbcc", "bayes_cbcc:CBCC", "Annotators in communities that answer alike", "Venanzi et al. 2014"),
    ("spem", "bayes_spem:SpEM", "Confusions; spammers are dropped in the fit", "Raykar and Yu 2012"),
    ("mace", "bayes_mace:MACE", "Annotators know the answer or follow a habit", "Hovy et al. 2013"),
    ("spectral-ds", "moments_spectral_ds:SpectralDS", "Confusions from triples of groups", "Zhang et al. 2016"),
    ("multispa", "moments_pairs:MultiSPA", "Corners of the joint votes of pairs", "Ibrahim et al. 2019"),
    ("cnmf", "moments_pairs:CNMF", "All pairs of annotators fitted at once", "Ibrahim et al. 2019"),
    ("symnmf", "moments_pairs:SymNMF", "A symmetric factorisation of all pairs", "Ibrahim and Fu 2021"),
    ("tensor", "moments_tensor:TensorDS", "All triples of annotators at once", "Traganitis et al. 2018"),
    ("worker-cluster", "groups_worker_cluster:WorkerCluster", "A few matrices for all", "Imamura et al. 2018"),
    ("grouped-dawid-skene", "groups_dawid_skene:GroupedDawidSkene", "One vote per group, weighted", "Traganitis 2022"),
    ("grouped-majority", "groups_dawid_skene:GroupedMajority", "One vote per group", "Traganitis 2022"),
    ("kos", "spectral_vectors:KOS", "Messages between items and annotators", "Karger, Oh and Shah 2011"),
    ("kos-svd", "spectral_vectors:KOSSVD", "Top singular vector of the centred votes", "Zhang et al. 2016"),
    ("ghosh", "spectral_vectors:Ghosh", "Top singular vector of the votes", "Ghosh et al. 2011"),
    ("eigenratio", "skills_agreement:EigenRatio", "Agreement eigenvector over the graph's", "Dalvi et al. 2013"),
    ("sml", "spectral_sml:SML", "Sensitivity and specificity from covariances", "Parisi et al. 2014"),
    ("pgd", "skills_agreement:PGD", "Skills by projected gradient on pairwise agreement", "Ma et al. 2018"),
    ("m-msr", "skills_agreement:MMSR", "Skills by trimmed means, against adversaries", "Ma and Olshevsky 2020"),
    ("triangular", "skills_agreement:Triangular", "Skills from the best triangles", "Bonald and Combes 2017"),
    ("bp", "messages_bp:BeliefPropagation", "Belief propagation over the votes", "Liu et al. 2012"),
    ("mf", "messages_bp:MeanField", "Mean field over truths and confusion matrices", "Liu et al. 2012"),
    ("minimax", "entropy_minimax:Minimax", "Annotators and items both confuse classes", "Zhou et al. 2014"),
    ("m3v", "entropy_m3v:MaxMarginVote", "Weighted votes that win by a margin", "Tian and Zhu 2015"),
    ("crowd-svm", "entropy_crowd_svm:CrowdSVM", "Confusion matrices and margins, sampled", "Tian and Zhu 2015"),
)
_ANSWERS = (
    ("mean", "ratings_shared:MeanRating", "The mean of an item's ratings", ""),
    ("median", "ratings_shared:MedianRating", "The median of an item's ratings", ""),
    ("gaussian", "ratings_gaussian:GaussianRatings", "Bias and precision", "Raykar et al. 2010"),
    ("bayes-iterative", "ratings_iterative:BayesIterative", "Messages and variances", "Ok et al. 2019"),
    ("covariance", "ratings_covariance:CovarianceRatings", "Errors that annotators share", "Tenzer et al. 2022"),
    ("pm-numeric", "ratings_iterative:PMNumeric", "Values and weights of least loss", "Li et al. 2014"),
    ("catd-numeric", "ratings_iterative:CATDNumeric", "Weights from error bounds", "Li et al. 2014"),
    ("ordinal-dawid-skene", "ordinal_dawid_skene:OrdinalDawidSkene", "Location and spread", "McCullagh 1980"),
    ("ordinal-raykar", "ordinal_dawid_skene:OrdinalRaykar", "One grade or more, K - 1 times", "Raykar et al. 2010"),
    ("bradley-terry", "comparisons_bradley_terry:BradleyTerry", "One score per item", "Bradley and Terry 1952"),
    ("judge-bt", "comparisons_bradley_terry:JudgeBT", "Scores, slopes and position bias of annotators", "crowdwise"),
    ("crowd-bt", "comparisons_bradley_terry:CrowdBT", "Scores and reliability of annotators", "Chen et al. 2013"),
    ("position-bt", "comparisons_bradley_terry:PositionBT", "Scores and position bias of annotators", "crowdwise"),
    ("mixture-bt", "comparisons_mixture:MixtureBT", "Groups of annotators, each with scores of its own", "crowdwise"),
    ("plackett-luce", "rankings_plackett_luce:PlackettLuce", "Scores from rankings", "Plackett 1975"),
    ("crowd-clustering", "similarities_crowd_clustering:CrowdClustering",
     "Clusters; sensitivity and specificity", "crowdwise"),
    ("binary-relevance", "label_sets_binary_relevance:BinaryRelevance", "Label by label, shared rates", "crowdwise"),
    ("hmm-crowd", "tags_hmm:HMMCrowd", "A Markov chain of true tags", "Nguyen et al. 2017"),
    ("token-dawid-skene", "tags_hmm:TokenDawidSkene", "Tokens one by one, then a valid tagging", ""),
    ("text-auto", "texts_consensus:TextAuto", "Word by word where texts are alike, else the best of them", "crowdwise"),
    ("rover", "texts_consensus:Rover", "Aligned words, votes weighted by reliability", "Fiscus 1997"),
    ("medoid", "texts_consensus:Medoid", "The text nearest to the others", "Kumar and Byrne 2004"),
    ("rasa", "texts_consensus:RASA", "The text nearest to a weighted mean vector", "Li and Fukumoto 2019"),
    ("hrrasa", "texts_consensus:HRRASA", "The same, each text weighted as well", "Li 2020"),
    ("box-crowd", "boxes_consensus:BoxCrowd",
     "Detection rates, false alarms, bias and spread of annotators", "crowdwise"),
    ("box-majority", "boxes_consensus:BoxMajority", "Median boxes that most annotators drew", ""),
    ("box-fusion", "boxes_consensus:BoxFusion", "Weighted boxes fusion", "Solovyev et al. 2021"),
    ("signed-distance", "masks_consensus:SignedDistance", "Mean distance to the edge, offset and scatter", "crowdwise"),
    ("mask-majority", "masks_consensus:MaskMajority", "Pixels that more than half of the masks have", ""),
    ("staple", "masks_consensus:Staple", "Sensitivity and specificity, image by image", "Warfield et al. 2004"),
    ("span-detection", "spans_consensus:SpanDetection", "Detection, false alarms and boundary noise", "crowdwise"),
    ("span-majority", "spans_consensus:SpanMajority", "Overlapping spans of more than half of the annotators", ""),
    ("character-majority", "spans_consensus:CharacterMajority", "Characters that more than half marked", ""),
    ("graph-crowd", "graph_crowd:GraphCrowd", "Neighbours agree", "Traganitis and Giannakis 2022"),
)  # fmt: skip
_LEARNERS = (
    ("ensemble", "ensemble:Ensemble", "Chosen by votes on unseen items (default)", "crowdwise"),
    ("max-mig", "information_max_mig:MaxMIG", "Information that inputs and votes share", "Cao et al. 2019"),
    ("ccem", "joint_confusions:CCEM", "A confusion matrix per annotator after the network", "Ibrahim et al. 2023"),
    ("trace", "joint_confusions:TraceRegularised", "Confusion matrices of least trace", "Tanno et al. 2019"),
    ("geocrowdnet-f", "joint_confusions:GeoCrowdNetF", "Predictions of largest volume", "Ibrahim et al. 2023"),
    ("geocrowdnet-w", "joint_confusions:GeoCrowdNetW", "Confusions of largest volume", "Ibrahim et al. 2023"),
    ("coinnet", "joint_confusions:COINNet", "Confusions, and a term for outlying votes", "Nguyen et al. 2024"),
    ("crowd-layer", "layers:CrowdLayer", "Free weights per annotator", "Rodrigues and Pereira 2018"),
    ("speelfc", "layers:SpeeLFC", "The crowd layer kept to probabilities", "Chen et al. 2020"),
    ("conal", "layers:CoNAL", "Common and own noise, gated for each vote", "Chu et al. 2021"),
    ("unionnet", "layers:UnionNet", "All annotators as one, with M K answers", "Wei et al. 2022"),
    ("crowd-ar", "layers:CrowdAR", "Votes softened by learned reliability", "Cao et al. 2023"),
    ("raykar", "alternating_em:Raykar", "Softmax regression within EM", "Raykar et al. 2010"),
    ("aggnet", "alternating_em:AggNet", "EM with a network", "Albarqouni et al. 2016"),
    ("mbem", "alternating_em:MBEM", "Rounds of labels and retraining", "Khetan et al. 2018"),
    ("deep-mf", "alternating_em:DeepMF", "Mean field with a network", "Kim et al. 2022"),
    ("deep-bp", "alternating_deep_bp:DeepBP", "Belief propagation with a network", "Kim et al. 2022"),
    ("bayes-dgc", "alternating_bayes_dgc:BayesDGC", "Bayesian confusion matrices and a net", "Li et al. 2021"),
    ("trace-x", "instance_confusions:TraceX", "Confusions that depend on the input", "Zhang et al. 2020"),
    ("transition-x", "instance_confusions:TransitionX", "The same, estimated from confident items", "Guo et al. 2023"),
    ("madl", "instance_confusions:MaDL", "Annotators as points; crowded ones weigh less", "Herde et al. 2023"),
    ("annot-mix", "instance_confusions:AnnotMix", "The same, on mixtures of votes", "Herde et al. 2024"),
    ("two-stage", "baselines:TwoStage", "Aggregate, then train on the labels", ""),
    ("soft-bootstrap", "baselines:SoftBootstrap", "Labels it may correct", "Reed et al. 2014"),
    ("single-confusion", "baselines:SingleConfusion", "One matrix for all", "Sukhbaatar et al. 2014"),
    ("doctor-net", "baselines:DoctorNet", "A last layer for each annotator", "Guan et al. 2018"),
    ("weighted-doctor-net", "baselines:WeightedDoctorNet", "DoctorNet with learned weights", "Guan et al. 2018"),
    ("crowdlab", "baselines:Crowdlab", "A classifier and votes, averaged", "Goh et al. 2022"),
    ("crowd-regression", "ratings_regressor:CrowdRegression",
     "Network with a linear bias per annotator", "Rodrigues and Pereira 2018"),
    ("raykar-regression", "ratings_regressor:RaykarRegression", "A regression within EM", "Raykar et al. 2010"),
    ("deep-bt", "comparisons_deep_bt:DeepBT", "Scores from a network on items", "Chen et al. 2013"),
    ("volmaxdcc", "similarities_volmaxdcc:VolMaxDCC", "A network that clusters", "Nguyen et al. 2023"),
    ("crowd-layer-tags", "tags_crowd_layer:CrowdLayerTags", "A crowd layer on tokens", "Rodrigues and Pereira 2018"),
)  # fmt: skip


def _entries(package: str, rows: tuple[tuple[str, str, str, str], ...]) -> list[Entry]:
    return [Entry(key, f"{package}.{target}", summary, reference) for key, target, summary, reference in rows]


_OTHERS: dict[str, list[Entry]] = {name: [] for name in ANSWER_TYPES}
for _entry in (*_entries("answers", _ANSWERS), *_entries("learners", _LEARNERS)):
    _OTHERS[_entry.answer_type].append(_entry)
METHODS: dict[str, Entry] = {entry.key: entry for entry in _entries("methods", _METHODS)}
"""Methods for votes alone."""
LEARNERS: dict[str, Entry] = {entry.key: entry for entry in _OTHERS.pop(VOTES)}
"""Methods that learn a classifier from inputs and votes."""
ANSWER_METHODS: dict[str, Entry] = {entry.key: entry for entries in _OTHERS.values() for entry in entries}
"""Methods for other answer types than votes, with and without inputs."""


@cache
def plugins() -> dict[str, Entry]:
    """Methods for votes of other installed packages, by key: entry points of the group ``crowdwise.methods``.

    Nothing of theirs is imported here. A key that is taken is left out, with a warning.
    """
    from importlib.metadata import entry_points

    entries: dict[str, Entry] = {}
    for point in sorted(entry_points(group="crowdwise.methods"), key=lambda point: (point.name, str(point.dist))):
        package = "?" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        if point.name in (METHODS | LEARNERS | ANSWER_METHODS | entries):
            text = f"{package} has a method {point.name!r}, a key that is taken: it is left out."
            warnings.warn(text, InputWarning, user_level())
        else:
            entries[point.name] = Plugin(point.name, point.value, "", package)
    return entries


def for_votes() -> dict[str, Entry]:
    """Methods for votes alone: ours, then those of other packages."""
    return {**METHODS, **plugins()}


def find(key: str, answer_type: str = VOTES, *, inputs: bool = False) -> Entry:
    """The entry of a method for such answers, without or with inputs; an error says what a key is for instead."""
    every = {**METHODS, **LEARNERS, **ANSWER_METHODS}
    if key not in every:
        every |= plugins()
    entry = every.get(key)
    if entry is not None and entry.serves(answer_type) and entry.inputs == inputs:
        return entry
    fit = {name: other for name, other in every.items() if other.serves(answer_type) and other.inputs == inputs}
    own = ", ".join(name for name, other in fit.items() if other.answer_type == answer_type)
    if entry is None:
        what = f"{'learner' if inputs else 'method'}{'' if answer_type == VOTES else f' for {answer_type}'}"
        raise ParameterError(f"Unknown {what} {key!r}.{suggestion(str(key), list(fit))} There are {own}.")
    if not entry.serves(answer_type):
        says = ANSWER_TYPES[entry.answer_type].says
        raise ParameterError(
            f"{key} is for {entry.answer_type} ({says}), not for {answer_type}: for these there are {own}."
        )
    if inputs:
        python = f"Use crowdwise.aggregate, or the learner two-stage with aggregator={key!r}."
        command = f"Use crowdwise aggregate, or --method two-stage --set aggregator={key}."
        raise ParameterError(f"{key} looks at {answer_type} alone.", remedy=Remedy(python, command=command))
    python = f"Use crowdwise.{entry.class_name}(...).fit(X, answers)."
    command = "Use crowdwise learn." if answer_type == VOTES else f"Use it in Python: crowdwise.{entry.class_name}."
    raise ParameterError(f"{key} looks at inputs as well as answers.", remedy=Remedy(python, command=command))


def create(key: str, answer_type: str = VOTES, /, **params: Any) -> Any:
    """A model without inputs, from its key and parameters; of a learner, ``find(key, inputs=True).create(...)``."""
    return find(key, answer_type).create(**params)


def create_in_parts(key: str | None = None, /, **params: Any) -> Any:
    """A model of votes that can be fitted to parts of them; by default that of :data:`DEFAULT`."""
    entry = find(key or DEFAULT)
    if not entry.load().in_parts:
        known = ", ".join(name for name, other in for_votes().items() if other.load().in_parts)
        raise ParameterError(f"{entry.key} needs all votes at once. Methods that take votes in parts: {known}.")
    model = entry.create(**params)
    model.check_in_parts()
    return model
