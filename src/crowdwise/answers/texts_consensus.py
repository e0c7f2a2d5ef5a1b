"""One text from several: word by word, or the text that is nearest to the others.

**Word by word** (``rover``). The texts on an item are aligned into slots: the text with the least edit distance to the
others is the centre, each other text is aligned to it, and what several texts insert at the same place is aligned in
the same way. In a slot every text gives a word, or nothing. Text t of annotator m is right in a share p[t] of its
slots; a wrong word is taken to be repeated by all others who are wrong, so the log-odds of a word are a weighted vote:

================  ================  ============================================================================
symbol            code              equation
================  ================  ============================================================================
w[t]              ``weight``        log p[t] - log(1 - p[t])
s[c]              ``score``         sum of w[t] over the texts with word c in the slot
q[c]              ``probability``   exp(s[c] / d) / sum over the words of the slot, d = 1 + rho (R - 1), R texts
h[t]              ``right``         sum over slots of the probability of its word given the other texts
a[m]              ``accuracy``      (sum of h over the texts of m + k2 mean) / (slots of m + k2)
p[t]              ``share``         (h[t] + k1 a[m]) / (slots of t + k1)
================  ================  ============================================================================

k1 = 20 and k2 = 100 slots; the weights use d = 1, and rho = 0.1 is for the stated probabilities alone. The first pass
counts every text alike.

**The nearest text** (``medoid``): the text with the least mean distance to the others, which is the minimum Bayes risk
among them. ``rasa`` and ``hrrasa`` do so around a mean of text vectors that is weighted by the annotators.

References: J. Fiscus, A post-processing system to yield reduced word error rates: ROVER, ASRU 1997. S. Kumar and
W. Byrne, Minimum Bayes-risk decoding, NAACL 2004. J. Li and F. Fukumoto, A dataset of crowdsourced word sequences,
2019. J. Li, Crowdsourced text sequence aggregation based on hybrid reliability and representation, SIGIR 2020.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.answers.answer_model import AnswerModel
from crowdwise.core.constraints import Check, Count, NonNegative, declared
from crowdwise.core.intervals import rate_interval, with_interval
from crowdwise.core.loop import Callback, Progress
from crowdwise.core.numerics import Floats, Ints
from crowdwise.core.result import Result, some_known
from crowdwise.core.text_distance import align, chrf, edit_distance, edit_distances
from crowdwise.data.texts import CutText, Texts, Tokens, Unit
from crowdwise.data.truth import encode_texts
from crowdwise.errors import InputError

OF_TEXT, OF_ANNOTATOR = 20.0, 100.0
"""How many slots the accuracy of the annotator, and of the crowd, is worth."""
Embed = Annotated[
    Any, Check(lambda f: f is None or callable(f), "a function from texts to vectors", (None, len), (1, "a"))
]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TextConsensus(Result):
    """One text for each item. The fields that all results have are those of :class:`~crowdwise.core.result.Result`.

    Attributes
    ----------
    texts
        N: the consensus text of each item, written as most of those who are right wrote it.
    words, word_item, word_probability
        Word by word: the words of all texts, the position of their item, and how probable they are; empty otherwise.
    probability, word_accuracy
        N or ``None``: the probability that a text is right in every word, and the expected share of right words.
    likeness
        N: the mean likeness of the text to those of the annotators, 1 - edits / length of the longer text.
    right, slots
        M: of how many words an annotator's texts were right, by the other annotators, and how many there were.
    tokens
        How texts are cut into words: ``unit``, ``case`` and ``punctuation``.
    """

    NAMES: ClassVar[tuple[str, ...]] = ("items", "annotators", "texts", "words")
    TABLES: ClassVar[tuple[str, ...]] = ("items", "annotators", "words")
    SHAPES: ClassVar[dict[str, str]] = Result.SHAPES | {
        "probability": "N", "word_accuracy": "N", "likeness": "N", "texts_per_item": "N", "right": "M", "slots": "M",
        "texts_per_annotator": "M", "word_item": "W", "word_probability": "W",
    }  # fmt: skip

    answer_type: str = "texts"
    items: npt.NDArray[Any]
    texts: npt.NDArray[Any]
    likeness: Floats
    right: Floats
    slots: Floats
    texts_per_item: npt.NDArray[Any]
    texts_per_annotator: npt.NDArray[Any]
    probability: Floats | None = None
    word_accuracy: Floats | None = None
    words: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=object))
    word_item: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    word_probability: Floats = field(default_factory=lambda: np.empty(0))
    spread: float = 1.0
    tokens: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, answers: Texts, **fields: Any) -> TextConsensus:
        fields["texts_per_item"] = np.diff(answers.indptr)
        fields["texts_per_annotator"] = np.bincount(answers.annotator, minlength=answers.n_annotators)
        return super().of(model, answers, **fields)

    def __repr__(self) -> str:
        sure = "" if self.word_accuracy is None else f", {np.mean(self.word_accuracy):.1%} of the words expected right"
        return f"TextConsensus({self.method}: {len(self.items):,} texts{sure})"

    def score(self, truth: Any) -> float:
        """1 - word error rate against true texts (a mapping from item to text, or N texts, empty for unknown)."""
        true = encode_texts(truth, self.items)
        known = np.flatnonzero(some_known(true != ""))
        cut = Tokens(**self.tokens)
        pairs = list(zip(cut.words(self.texts[known].tolist()), cut.words(true[known].tolist()), strict=True))
        return 1.0 - sum(edit_distance(a, b) for a, b in pairs) / max(1, sum(len(b) for _, b in pairs))

    def regions(self) -> dict[Any, list[dict[str, Any]]]:
        sure = (self.likeness if self.word_accuracy is None else self.word_accuracy).tolist()
        rows = zip(self.items.tolist(), sure, self.texts.tolist(), strict=True)
        return {name: [{"label": "", "score": score, "text": str(text)}] for name, score, text in rows}

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        if table == "words":
            place = np.arange(len(self.words)) - np.searchsorted(self.word_item, self.word_item)
            return {
                "item": self.items[self.word_item], "place": place, "word": self.words,
                "probability": self.word_probability,
            }  # fmt: skip
        if table == "items":
            sure = {"probability": self.probability, "word_accuracy": self.word_accuracy}
            return {
                "item": self.items, "text": self.texts, **{k: v for k, v in sure.items() if v is not None},
                "likeness": self.likeness, "texts": self.texts_per_item,
            }  # fmt: skip
        slots = self.slots / self.spread
        accuracy = np.divide(self.right, self.slots, out=np.full(len(slots), np.nan), where=self.slots > 0)
        low, high = rate_interval(np.nan_to_num(accuracy) * slots, slots, level)
        return {
            "annotator": self.annotators, "texts": self.texts_per_annotator,
            **with_interval("accuracy", accuracy, low, high),
        }  # fmt: skip


@dataclass(frozen=True)
class Slots:
    """All slots of all items, flat: entry e is what text ``text[e]`` has in slot ``slot[e]``; ``word[e]`` is its token,
    -1 for nothing. ``choice[e]`` numbers the different words of each slot."""

    slot: Ints
    text: Ints
    word: Ints
    item: Ints
    choice: Ints

    @classmethod
    def of(cls, sequences: Sequence[tuple[int, ...]], indptr: Ints, callback: Callback | None) -> Slots:
        rows, texts, items = [], [], []
        for n, (lo, hi) in enumerate(pairwise(indptr.tolist())):
            slots = align(sequences[lo:hi], range(hi - lo), hi - lo) if hi > lo else []
            rows += [token for slot in slots for token in slot]
            texts += list(range(lo, hi)) * len(slots)
            items += [n] * len(slots)
            if callback is not None and (n + 1) % 200 == 0:
                callback(Progress(n + 1, len(indptr) - 1, np.nan, np.nan))
        item = np.array(items, dtype=np.int64)
        size = np.diff(indptr)[item]
        slot, word = np.repeat(np.arange(len(item)), size), np.array(rows, dtype=np.int64)
        _, choice = np.unique(slot * (word.max(initial=-1) + 2) + word + 1, return_inverse=True)
        return cls(slot, np.array(texts, dtype=np.int64), word, item, choice)

    def vote(self, weight: Floats, rho: float = 0.0) -> tuple[Floats, Floats]:
        """q of the word of each entry, and q given the other texts alone, for texts of such weights."""
        S, C = len(self.item), int(self.choice.max(initial=-1)) + 1
        w = weight[self.text]
        score = np.bincount(self.choice, w, C)
        of = np.zeros(C, dtype=np.int64)
        of[self.choice] = self.slot
        top = np.full(S, -np.inf)
        np.maximum.at(top, of, score)
        size = np.bincount(self.slot, minlength=S)
        d = 1.0 + rho * (size - 1.0)
        mass = np.exp((score - top[of]) / d[of])
        total = np.bincount(of, mass, S)[self.slot]
        own = mass[self.choice]
        less = np.exp((score[self.choice] - w - top[self.slot]) / d[self.slot])
        return own / total, less / (total - own + less)


@declared
class TextModel(AnswerModel[Texts, TextConsensus]):
    """The base of methods for :class:`~crowdwise.Texts`. A subclass gives ``_infer``.

    Parameters
    ----------
    unit
        What is compared: a ``"word"`` or a ``"character"``; ``"auto"`` takes characters for scripts without blanks.
    case, punctuation
        Whether upper and lower case, and punctuation, make a difference.
    """

    table = Texts
    result = TextConsensus

    unit: Unit = "auto"
    case: bool = False
    punctuation: bool = False

    def _fit(self, answers: Texts, callback: Callback | None) -> dict[str, Any]:
        cut = Tokens(self.unit, self.case, self.punctuation)
        used, at = np.unique(answers.text, return_inverse=True)
        cuts = cut.of(answers.texts[used].tolist())
        if not any(one.words for one in cuts):
            raise InputError("No text has a word: all that is written are characters that cannot be seen.")
        fields = self._infer(answers, [cuts[code] for code in at.tolist()], callback)
        chosen = cut.words(fields["texts"].tolist())
        likeness, right, slots = np.zeros(len(answers)), np.zeros(answers.n_annotators), np.zeros(answers.n_annotators)
        for n, row in enumerate(answers.item.tolist()):
            one, two = cuts[at[n]].words, chosen[row]
            edits, size = edit_distance(one, two), max(len(one), len(two), 1)
            likeness[row] += 1.0 - edits / size
            right[answers.annotator[n]] += size - edits
            slots[answers.annotator[n]] += size
        likeness /= np.maximum(np.diff(answers.indptr), 1)
        tokens = {"unit": self.unit, "case": self.case, "punctuation": self.punctuation}
        return {"likeness": likeness, "right": right, "slots": slots, "tokens": tokens} | fields

    @abstractmethod
    def _infer(self, answers: Texts, cuts: list[CutText], callback: Callback | None) -> dict[str, Any]:
        """The consensus texts, and what else was found; ``cuts`` of every answer."""


@declared
class Rover(TextModel):
    """Aligned words, and a vote on each.

    Parameters
    ----------
    weights
        ``"learned"``: texts and annotators count by how often the others confirm them; ``"equal"``: all count alike.
    max_iter
        The most passes over the slots.
    rho
        How much the votes on a word are correlated, for the stated probabilities.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.texts(40, n_annotators=8, texts_per_item=5, random_state=0)
    >>> cw.Rover().fit(crowd.answers).consensus_
    TextConsensus(rover: 40 texts, 98.5% of the words expected right)
    """

    key = "rover"

    weights: Literal["learned", "equal"] = "learned"
    max_iter: Count = 6
    rho: NonNegative = 0.1

    def _infer(self, answers: Texts, cuts: list[CutText], callback: Callback | None) -> dict[str, Any]:
        place = {word: n for n, word in enumerate(sorted(set().union(*(cut.words for cut in cuts))))}
        sequences = [tuple([place[word] for word in cut.words]) for cut in cuts]
        slots = Slots.of(sequences, answers.indptr, callback)
        S, M, who = answers.n_answers, answers.n_annotators, answers.annotator
        size = np.bincount(slots.text, minlength=S).astype(np.float64)
        weight: Floats = answers.weights.copy()
        passes = self.max_iter if self.weights == "learned" else 0
        right: Floats = np.zeros(S)
        for _ in range(passes + 1):
            _, others = slots.vote(weight)
            right = np.bincount(slots.text, others, S).astype(np.float64)
            mean = right.sum() / max(size.sum(), 1.0)
            of = np.bincount(who, right, M) + OF_ANNOTATOR * mean
            accuracy = of / (np.bincount(who, size, M) + OF_ANNOTATOR)
            share = np.clip((right + OF_TEXT * accuracy[who]) / (size + OF_TEXT), 0.02, 0.995)
            if self.weights == "learned":
                weight = answers.weights * np.maximum(np.log(share / (1.0 - share)), 0.05)
        q, _ = slots.vote(weight, self.rho)
        expected = np.bincount(who, right, M) / np.maximum(np.bincount(who, size, M), 1.0)
        off = right - size * expected[who]
        spread = float((off**2).sum() / max((size * (expected * (1.0 - expected))[who]).sum(), 1e-9))
        return self._written(answers, cuts, slots, weight, q) | {
            "right": np.bincount(who, right, M), "slots": np.bincount(who, size, M), "spread": max(1.0, spread),
            "iterations": passes,
        }  # fmt: skip

    def _written(self, answers: Texts, cuts: list[CutText], slots: Slots, weight: Floats, q: Floats) -> dict[str, Any]:
        """The most probable word of each slot, as most (by weight) of those who have it wrote it."""
        N, n_slots = len(answers), len(slots.item)
        # The best choice of a slot; among equals a word before nothing, then the first in the order of words.
        order = np.lexsort((slots.word, slots.word < 0, -q.round(12), slots.slot))
        first = order[np.searchsorted(slots.slot[order], np.arange(n_slots))]
        best, sure = slots.word[first], q[first]
        # The entries of a text, slot by slot, are its words in order.
        written = np.flatnonzero(slots.word >= 0)
        written = written[np.argsort(slots.text[written], kind="stable")]
        names = sorted(set().union(*(cut.forms for cut in cuts)))
        place = {form: n for n, form in enumerate(names)}
        form = np.array([place[form] for cut in cuts for form in cut.forms], dtype=np.int64)
        won = slots.word[written] == best[slots.slot[written]]
        pair, of = np.unique(slots.slot[written][won] * len(names) + form[won], return_inverse=True)
        total = np.bincount(of, weight[slots.text[written]][won]).round(9)
        slot, form = np.divmod(pair, len(names))
        order = np.lexsort((form, -total, slot))
        kept = order[np.unique(slot[order], return_index=True)[1]]
        item, words = slots.item[slot[kept]], [names[n] for n in form[kept].tolist()]
        texts = [""] * N
        for n, word in zip(item.tolist(), words, strict=True):
            texts[n] += word
        count = np.maximum(np.bincount(slots.item, minlength=N), 1)
        return {
            "texts": as_objects([text.strip() for text in texts]),
            "words": as_objects([word.strip() for word in words]),
            "word_item": item, "word_probability": sure[slot[kept]],
            "probability": np.exp(np.bincount(slots.item, np.log(np.maximum(sure, 1e-300)), N)),
            "word_accuracy": np.bincount(slots.item, sure, N) / count,
        }  # fmt: skip


@declared
class Medoid(TextModel):
    """The text with the least mean distance to the others.

    Parameters
    ----------
    distance
        ``"chrf"``: n-grams of characters; ``"word"``, ``"character"``: edits over the length of the longer text.
    embed
        A function from a list of texts to an array of vectors; then the cosine is the likeness.

    >>> import crowdwise as cw
    >>> rows = [("s", "ann", "It rains a lot."), ("s", "bob", "It rains much."), ("s", "cem", "It rains a lot here.")]
    >>> cw.Medoid().fit(cw.Texts.from_records(rows)).consensus_.texts.tolist()
    ['It rains a lot.']
    """

    key = "medoid"

    distance: Literal["chrf", "word", "character"] = "chrf"
    embed: Embed = None

    def _infer(self, answers: Texts, cuts: list[CutText], callback: Callback | None) -> dict[str, Any]:
        vectors = None if self.embed is None else unit_vectors(self.embed, answers)
        chosen = []
        for n in range(len(answers)):
            rows = np.arange(answers.indptr[n], answers.indptr[n + 1])
            texts = answers.of_item(n)
            if vectors is not None:
                near = vectors[rows] @ vectors[rows].T
            elif self.distance == "chrf":
                plain = [" ".join(cuts[row].words) for row in rows]
                near = chrf(plain, plain)
                near = (near + near.T) / 2.0
            else:
                split = [cuts[row].words for row in rows]
                near = 1.0 - edit_distances(split if self.distance == "word" else [" ".join(s) for s in split], True)
            chosen.append(first_best(near @ answers.weights[rows], texts))
        return {"texts": as_objects(chosen)}


@declared
class TextAuto(TextModel):
    """Word by word where texts are alike, else the text nearest to the others.

    Two texts on an item are alike where at least half of their words agree in order (the median over pairs).

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.texts(40, n_annotators=8, texts_per_item=5, random_state=0)
    >>> cw.aggregate(crowd.answers).notes
    ['Texts on an item are alike (median 79%): they were put together word by word.']
    """

    key = "text-auto"

    def _infer(self, answers: Texts, cuts: list[CutText], callback: Callback | None) -> dict[str, Any]:
        words = [cut.words for cut in cuts]
        pairs = np.concatenate([
            1.0 - edit_distances(words[lo:hi], True)[np.triu_indices(hi - lo, 1)]
            for lo, hi in pairwise(answers.indptr.tolist())
        ])  # fmt: skip
        middle = float(np.median(pairs)) if len(pairs) else 1.0
        alike = middle >= 0.5
        model: TextModel = (Rover if alike else Medoid)(unit=self.unit, case=self.case, punctuation=self.punctuation)
        how = "alike" if alike else "different"
        way = "they were put together word by word" if alike else "the one nearest to the others was taken"
        note = f"Texts on an item are {how} (median {middle:.0%}): {way}."
        return model._infer(answers, cuts, callback) | {"notes": [note] if len(pairs) else []}


@declared
class RASA(TextModel):
    """The text nearest to a mean of text vectors, weighted by the annotators' reliability.

    Weights are a chi-squared quantile over the annotator's squared distances to the means, as in CATD.

    Parameters
    ----------
    embed
        A function from a list of texts to an array of vectors; by default counts of character trigrams.
    max_iter
        The number of rounds.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.texts(40, n_annotators=8, texts_per_item=5, random_state=0)
    >>> round(cw.RASA().fit(crowd.answers).consensus_.score(crowd.truth), 2)
    0.98
    """

    key = "rasa"
    local: ClassVar[bool] = False

    embed: Embed = None
    max_iter: Count = 10

    def _infer(self, answers: Texts, cuts: list[CutText], callback: Callback | None) -> dict[str, Any]:
        from scipy.stats import chi2

        vectors = unit_vectors(self.embed, answers)
        who, M = answers.annotator, answers.n_annotators
        bounds = list(pairwise(answers.indptr.tolist()))
        own = np.ones(answers.n_answers)
        if self.local:
            for lo, hi in bounds:
                near = vectors[lo:hi] @ vectors[lo:hi].T
                own[lo:hi] = np.maximum((near.sum(axis=1) - 1.0) / max(hi - lo - 1, 1), 1e-3)
        reliability = np.ones(M)
        quantile = chi2.ppf(0.975, np.maximum(np.bincount(who, minlength=M), 1))
        distance = np.zeros(answers.n_answers)
        for _ in range(self.max_iter):
            weight = answers.weights * reliability[who] * own
            for lo, hi in bounds:
                mean = weight[lo:hi] @ vectors[lo:hi] / weight[lo:hi].sum() if hi > lo else vectors[:0]
                distance[lo:hi] = ((vectors[lo:hi] - mean) ** 2).sum(axis=1)
            reliability = quantile / np.maximum(np.bincount(who, distance, M), 1e-6)
            reliability /= reliability.mean()
        chosen = [first_best(-distance[lo:hi], answers.of_item(n)) for n, (lo, hi) in enumerate(bounds)]
        return {"texts": as_objects(chosen), "iterations": self.max_iter}


@declared
class HRRASA(RASA):
    """RASA, with each text weighted by its likeness to the others on its item as well.

    >>> import crowdwise as cw
    >>> crowd = cw.simulate.texts(40, n_annotators=8, texts_per_item=5, random_state=0)
    >>> round(cw.HRRASA().fit(crowd.answers).consensus_.score(crowd.truth), 2)
    0.98
    """

    key = "hrrasa"
    local = True


def first_best(value: Floats, texts: list[str]) -> str:
    """The text of the largest value; among equals the first in the order of texts. Nothing where there are none."""
    return max(
        zip(value.round(9).tolist(), texts, strict=True),
        key=lambda pair: (pair[0], [-ord(c) for c in pair[1]]),
        default=(0.0, ""),
    )[1]


def as_objects(texts: Sequence[str]) -> npt.NDArray[Any]:
    out = np.empty(len(texts), dtype=object)
    out[:] = texts
    return out


def unit_vectors(embed: Any, answers: Texts) -> Floats:
    """A vector of length 1 for each answer, from a function of texts; by default hashed counts of trigrams."""
    texts = answers.texts.tolist()
    if embed is None:
        from sklearn.feature_extraction.text import HashingVectorizer

        vectors = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 3), n_features=2**12).transform(texts).toarray()
    else:
        vectors = np.asarray(embed(texts), dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            raise InputError(f"embed must give a finite vector for each of {len(texts)} texts: found {vectors.shape}.")
    size = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray((vectors / np.maximum(size, 1e-12))[answers.text])
