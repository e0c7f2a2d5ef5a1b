"""The table of texts: what annotators wrote about items (transcriptions, translations, corrections, free answers).

=============  =============  ==========================================================
field          shape          meaning
=============  =============  ==========================================================
``indptr``     N + 1          texts on item n are rows ``indptr[n]:indptr[n + 1]``
``annotator``  S              code of the annotator
``text``       S              code of the text
``weight``     S or ``None``  how much a text counts (1 where absent)
``timestamp``  S or ``None``  when it was written
``truth``      N or ``None``  the true text of each item, empty where unknown
``items``, ``annotators``, ``texts``  the names behind the codes
=============  =============  ==========================================================
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding, schema
from crowdwise.data.assemble import in_order
from crowdwise.data.encoding import Codes, Counts, Vocabulary
from crowdwise.data.heavy import pl
from crowdwise.data.schema import ANNOTATOR, CHOICES, COMMON, ITEM, Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.data.table import ByItem, CodedTable, reader
from crowdwise.data.truth import encode_texts, written_in
from crowdwise.errors import InputError

Unit = Literal["auto", "word", "character"]
NO_BLANKS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Letters of scripts that put no blanks between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


class CutText(NamedTuple):
    """The words (or characters) of a text as they are compared, and as they were written: with all that follows up to
    the next one, so that the forms put together are the text."""

    words: list[str]
    forms: list[str]


@dataclass(frozen=True)
class Tokens:
    """How texts are cut into words. ``unit="auto"``: characters where most letters are of a script without blanks.

    Case and punctuation are ignored unless asked for; an apostrophe within a word belongs to it. A text without any
    word (emoji, "?") is one word as a whole.

    >>> Tokens().of(["Don't stop!"])[0]
    CutText(words=["don't", 'stop'], forms=["Don't ", 'stop! '])
    >>> Tokens(case=True, punctuation=True).words(["Don't stop!"])[0]
    ["Don't", 'stop', '!']
    """

    unit: Unit = "auto"
    case: bool = False
    punctuation: bool = False

    def of(self, texts: Sequence[str]) -> list[CutText]:
        """The words of each text, and how they are written."""
        pattern = self._pattern(texts)
        return [self._cut(" ".join(unicodedata.normalize("NFC", text).split()), pattern) for text in texts]

    def words(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each text as they are compared."""
        return [cut.words for cut in self.of(texts)]

    def _pattern(self, texts: Sequence[str]) -> re.Pattern[str]:
        """What matches one token, given the characters that occur."""
        letters = sorted(set().union(*texts))
        kinds = {c: unicodedata.category(c) for c in letters if c not in "'’\n\r\t"}
        marks = "".join(c for c, kind in kinds.items() if kind[0] in "PSC" and kind != "Cf")
        marks = re.escape(marks) or "\0"
        unit = self.unit
        if unit == "auto":
            whole = "".join(texts)
            alone = len(NO_BLANKS.findall(whole))
            unit = "character" if alone and alone > len(re.findall(r"\w", whole)) / 2 else "word"
        word = rf"[^\s'’{marks}]"
        return re.compile(
            (word if unit == "character" else rf"{word}+(?:['’]{word}+)*") + rf"|[{marks}]" * self.punctuation
        )

    def _key(self, word: str) -> str:
        """A word as it is compared: without what cannot be seen, wide letters and ligatures as plain ones."""
        word = word.replace("’", "'")
        if not word.isascii():
            seen = "".join(c for c in word if unicodedata.category(c) != "Cf")
            word = unicodedata.normalize("NFKC", seen)
        return word if self.case else word.casefold()

    def _cut(self, text: str, pattern: re.Pattern[str]) -> CutText:
        tokens = [(match.start(), self._key(match.group())) for match in pattern.finditer(text)]
        if text and not any(word for _, word in tokens):
            tokens = [(0, self._key(text))]
        starts, words = [start for start, word in tokens if word], [word for _, word in tokens if word]
        ends = [*starts[1:], len(text)]
        forms = [text[a:b] for a, b in zip([0, *starts[1:]], ends, strict=False)]
        return CutText(words, [*forms[:-1], f"{forms[-1]} "] if words else [])


@dataclass(frozen=True, eq=False, repr=False)
class Texts(CodedTable, ByItem):
    """A frozen, validated table of texts. Make one with a ``from_...`` method or :func:`crowdwise.read_texts`.

    >>> Texts.from_records([("clip", "ann", "A red house."), ("clip", "bob", "a red mouse")])
    Texts(2 texts: 1 item x 2 annotators, 3.0 words on average)
    """

    answer_type: ClassVar[str] = "texts"
    columns: ClassVar[tuple[Col, ...]] = (
        ITEM, ANNOTATOR, Col("text", "texts", needed=True), *COMMON, Col("truth", per="item"),
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (
        schema.QUESTION, schema.on_duplicate("wrote about an item", *CHOICES), schema.on_missing("a text"),
    )  # fmt: skip
    _rows: ClassVar[str] = "texts"
    _act: ClassVar[str] = "wrote about"
    _truths: ClassVar[tuple[str, ...]] = ("truth", "text")
    _truth_in: ClassVar[Any] = staticmethod(written_in)

    indptr: Counts
    text: Codes
    texts: Vocabulary

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Texts:
        source.require(cls._needed())
        source.complete(cls._needed(), options["on_missing"])
        (item, items), (annotator, annotators) = source.coded("item"), source.coded("annotator")
        column = source.flat("text", "a text").cast(pl.String)
        text, texts = encoding.sort_vocabulary(*encoding.encode(column))
        beside = source.beside(options)
        table = cls.from_codes(
            item, annotator, text, items=items, annotators=annotators, texts=texts.tolist(), **beside
        )
        return table.with_truth(written_in(source, "truth", item, items)) if "truth" in source else table

    @classmethod
    def from_codes(
        cls, item: npt.ArrayLike, annotator: npt.ArrayLike, text: npt.ArrayLike, *, items: Any, annotators: Any,
        texts: Sequence[str], **beside: Unpack[Beside],
    ) -> Texts:  # fmt: skip
        """Texts from arrays of codes and what is behind them (what every other way of making one ends in)."""
        code = np.asarray(text)
        if code.dtype.kind not in "iu" or (len(code) and not 0 <= code.min() <= code.max() < len(texts)):
            raise InputError(f"Codes of texts must be whole numbers from 0 to {len(texts) - 1}.")
        names = np.empty(len(texts), dtype=object)
        names[:] = [str(one) for one in texts]

        def answers(order: npt.NDArray[Any] | None) -> dict[str, Any]:
            return {"text": in_order(code.astype(np.int32), order), "texts": names}

        return cls._built(item, annotator, items, annotators, beside, answers, text=code)

    def __repr__(self) -> str:
        words = np.array([len(text.split()) for text in self.texts])
        mean = words[self.text].mean() if self.n_answers else 0.0
        return f"Texts({self.n_answers:,} texts: {self._sizes()}, {mean:.1f} words on average)"

    def of_item(self, n: int) -> list[str]:
        """The texts on an item, in the order of annotators."""
        texts: list[str] = self.texts[self.text[self.indptr[n] : self.indptr[n + 1]]].tolist()
        return texts

    def encode_truth(self, truth: Any) -> npt.NDArray[Any]:
        """N texts, empty where unknown, from such an array or from a mapping of items to texts."""
        return encode_texts(truth, self.items)

    def _counted(self) -> dict[str, Any]:
        return {"different_texts": len(np.unique(self.text))}


read_texts = reader(Texts, "read_texts")
