"""A whole answer type, as CONTRIBUTING.md asks for it, that is not in the package: phrases, of which the one nearest to
the others is taken. ``test_new_type`` registers it while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, ClassVar

import numpy as np

from crowdwise.answer_types.base import AnswerRules, Figures
from crowdwise.answers.answer_model import AnswerModel
from crowdwise.core.constraints import declared
from crowdwise.core.result import Result
from crowdwise.data import schema
from crowdwise.data.assemble import in_order
from crowdwise.data.encoding import locate, to_vocabulary
from crowdwise.data.schema import ANNOTATOR, CHOICES, COMMON, ITEM, Col
from crowdwise.data.source import Source
from crowdwise.data.table import ByItem, reader
from crowdwise.metrics.bootstrap import Bootstrap
from crowdwise.registry import AnswerType, Plugin
from crowdwise.simulate.crowds import SimulatedAnswers


@dataclass(frozen=True, eq=False, repr=False)
class Phrases(ByItem):
    """The table: which phrase an annotator wrote about an item."""

    answer_type: ClassVar[str] = "phrases"
    columns: ClassVar = (ITEM, ANNOTATOR, Col("phrase", "phrases", needed=True), *COMMON, Col("truth", per="item"))
    options: ClassVar = (schema.on_duplicate("wrote about an item", *CHOICES), schema.on_missing("a phrase"))
    _rows: ClassVar[str] = "phrases"
    _truths: ClassVar = ("truth", "phrase")

    indptr: Any
    annotator: Any
    phrase: Any
    phrases: Any
    items: Any
    annotators: Any
    weight: Any = None
    timestamp: Any = None
    truth: Any = None
    kind: str = "polars"

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Phrases:
        source.complete(cls._needed(), options["on_missing"])
        (item, items), (annotator, annotators) = source.coded("item"), source.coded("annotator")
        phrase, phrases = source.coded("phrase")

        def answers(order: Any) -> dict[str, Any]:
            return {"phrase": in_order(phrase, order), "phrases": phrases}

        beside = source.beside() | {"on_duplicate": options["on_duplicate"]}
        return cls._built(item, annotator, items, annotators, beside, answers, phrase=phrase)

    def __repr__(self) -> str:
        return f"Phrases({self.n_answers:,} phrases: {len(self):,} items x {self.n_annotators:,} annotators)"

    def encode_truth(self, truth: Any) -> Any:
        """N phrases, empty where unknown, from a mapping of items to phrases."""
        out = np.full(len(self), "", dtype=object)
        at = locate(to_vocabulary(list(truth)), self.items)
        out[at[at >= 0]] = np.array(list(truth.values()), dtype=object)[at >= 0]
        return out

    def _known(self) -> dict[str, Any]:
        return {"items_with_truth": 0 if self.truth is None else int((self.truth != "").sum())}

    def _counted(self) -> dict[str, Any]:
        return {"different_phrases": len(np.unique(self.phrase))}


read_phrases = reader(Phrases, "read_phrases")


def likeness(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b, autojunk=False).ratio()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PhraseConsensus(Result):
    """The result: a phrase for each item, and how like the others it is."""

    answer_type: str = "phrases"
    items: Any
    phrases: Any
    probability: Any
    agreement: Any

    def __repr__(self) -> str:
        return f"PhraseConsensus({self.method}: {len(self.items):,} phrases)"

    def score(self, truth: Any) -> float:
        """The share of phrases that are equal to the true ones."""
        return float(np.mean([truth[item] == phrase for item, phrase in zip(self.items, self.phrases, strict=True)]))

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        if table == "items":
            return {"item": self.items, "phrase": self.phrases, "probability": self.probability}
        return {"annotator": self.annotators, "agreement": self.agreement}


@declared
class Nearest(AnswerModel[Phrases, PhraseConsensus]):
    """The phrase that is most like the others."""

    key = "nearest"
    answer_type: ClassVar[str] = "phrases"
    table = Phrases
    result = PhraseConsensus

    def _fit(self, answers: Phrases, callback: Any) -> dict[str, Any]:
        chosen, sure, alike = [], [], np.zeros(answers.n_answers)
        for n in range(len(answers)):
            rows = slice(answers.indptr[n], answers.indptr[n + 1])
            said = answers.phrases[answers.phrase[rows]].tolist()
            near = np.array([[likeness(a, b) for b in said] for a in said])
            best = int(near.mean(axis=1).argmax())
            chosen.append(said[best])
            sure.append(float(near[best].mean()))
            alike[rows] = near[best]
        count = np.bincount(answers.annotator, minlength=answers.n_annotators)
        agreement = np.bincount(answers.annotator, alike, answers.n_annotators) / np.maximum(count, 1)
        phrases = np.array(chosen, dtype=object).astype(str)
        return {"phrases": phrases, "probability": np.array(sure), "agreement": agreement}


class PhraseRules(AnswerRules):
    """What is particular to phrases."""

    answer = "phrase"

    def agreement(self, answers: Phrases, options: Any, scale: Any = None, values: Any = None) -> Figures:
        """The mean likeness of two phrases on an item."""
        sums = []
        for n in range(len(answers)):
            said = answers.phrases[answers.phrase[answers.indptr[n] : answers.indptr[n + 1]]].tolist()
            pairs = [likeness(a, b) for i, a in enumerate(said) for b in said[:i]]
            sums.append((sum(pairs), len(pairs)))
        table = np.array(sums, dtype=float)
        once = np.ones(len(table), dtype=np.int64)
        return {"likeness": Bootstrap(**options).of_sums(table, once, lambda s: s[:, 0] / s[:, 1], len(table))}

    def measures(self, answers: Any, result: Any, truth: Any) -> Figures:
        phrases = answers.encode_truth(truth) if isinstance(truth, dict) else truth
        known = np.flatnonzero(phrases != "")
        right = (result.phrases[known] == phrases[known]).astype(float)[:, None]
        if not len(known):
            return {}
        once = np.ones(len(known), dtype=np.int64)
        return {"exact_match": Bootstrap().of_sums(right, once, lambda s: s[:, 0] / len(known), len(known))}


def phrases(n_items: int = 60, *, n_annotators: int = 5, random_state: int = 0) -> SimulatedAnswers[Phrases]:
    """The simulation: sentences of which annotators leave out letters."""
    rng = np.random.default_rng(random_state)
    words = np.array(["red", "green", "house", "bird", "sings", "over", "there", "slowly"])
    truth = {n: " ".join(rng.choice(words, 5)) for n in range(n_items)}
    rows = [
        (n, f"a{m}", "".join(c for c in truth[n] if c == " " or rng.random() > 0.01 * (m + 1)))
        for n in range(n_items)
        for m in range(n_annotators)
    ]
    columns = dict(zip(("item", "annotator", "phrase"), map(list, zip(*rows, strict=True)), strict=True))
    return SimulatedAnswers("phrases", Phrases.from_frame(columns).with_truth(truth), {"truth": truth})


RECORD = AnswerType(
    "phrases", "a phrase", "throw_away_type:Phrases", "throw_away_type:PhraseConsensus", "throw_away_type:PhraseRules",
    "nearest", ("sayings",), column="phrase",
    guessed=("phrase",), simulated=("throw_away_type:phrases",), package="answers",
)  # fmt: skip
METHOD = Plugin("nearest", f"{__name__}:Nearest", "", "crowdwise")
