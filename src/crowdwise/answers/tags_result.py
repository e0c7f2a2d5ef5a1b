"""What methods for tag sequences share: their result, the decoding of valid taggings, and checks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from crowdwise.answers.answer_model import AnswerModel
from crowdwise.core.consensus import Consensus, consensus_fields
from crowdwise.core.loop import Callback
from crowdwise.core.model import Outcome, check_classes, check_several
from crowdwise.core.numerics import Floats, Ints, safe_log
from crowdwise.core.unseen import recode
from crowdwise.data.boundary import guarded
from crowdwise.data.frames import make_frame
from crowdwise.data.tags import Tags, TagSpans, find_spans, invalid
from crowdwise.data.truth import truth_by_token
from crowdwise.errors import InputError, LabelError, listing
from crowdwise.kernels import chains


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TagConsensus(Consensus):
    """A :class:`~crowdwise.Consensus` over the tokens of sequences.

    ``posterior`` holds the probability of each token's tags; ``labels`` are a tagging as a whole, so they need not be
    each token's most probable tag.

    Attributes
    ----------
    starts, sequence_names, position, words
        Where each sequence begins among the tokens; its name; the tokens' positions and text (empty without).
    scheme
        ``"bio"`` or ``"plain"``.
    transition
        (1 + K) x K: the probability of each first tag, and below, of each tag after each; ``None`` without a chain.
    """

    NAMES: ClassVar[tuple[str, ...]] = (*Consensus.NAMES, "sequence_names", "words")
    TABLES: ClassVar[tuple[str, ...]] = (*Consensus.TABLES, "spans")
    UNIT: ClassVar[str] = "tokens"
    SHAPES: ClassVar[dict[str, str]] = Consensus.SHAPES | {"position": "N", "transition": "AK"}

    answer_type: str = "tags"
    starts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    sequence_names: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=object))
    position: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    words: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=object))
    scheme: str = "plain"
    transition: Floats | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scheme == "plain":  # these spell out no spans
            object.__setattr__(self, "TABLES", Consensus.TABLES)
        N, S, starts = len(self.items), len(self.sequence_names), self.starts
        if starts.shape != (S + 1,) or starts[0] != 0 or starts[-1] != N or (np.diff(starts) < 0).any():
            raise ValueError("starts does not divide the tokens into sequences")

    @classmethod
    def of(cls, model: Any, answers: Tags, **fields: Any) -> Self:
        words = np.empty(0, dtype=object) if answers.words is None else answers.words
        return super().of(
            model, answers.votes, starts=answers.starts, sequence_names=answers.sequences, position=answers.position,
            words=words, scheme=answers.scheme, **fields,
        )  # fmt: skip

    @property
    def sequence(self) -> Ints:
        """The sequence code of every token."""
        return np.repeat(np.arange(len(self.sequence_names)), np.diff(self.starts))

    @property
    def spans(self) -> Any:
        """One row per span: sequence, start and end (exclusive) in tokens, type, text, and its least sure token."""
        return make_frame(self._span_table(), self.kind)

    def tags(self) -> dict[Any, list[Any]]:
        """Sequence -> its tags, in order."""
        return {
            name: self.labels[lo:hi].tolist()
            for name, lo, hi in zip(self.sequence_names.tolist(), self.starts[:-1], self.starts[1:], strict=True)
        }

    def truth_codes(self, truth: Any) -> Ints:
        """T tag codes (-1 unknown), from all that :meth:`crowdwise.Tags.encode_truth` takes."""
        return super().truth_codes(truth_by_token(truth, self.sequence_names, self.starts, self.items))

    def find_spans(self) -> TagSpans:
        """The spans that the labels spell out."""
        return find_spans(self.label_codes, self.starts, self.classes, self.scheme)

    def _columns(self, table: str, level: float) -> dict[str, Any]:
        return self._span_table() if table == "spans" else super()._columns(table, level)

    def _item_table(self) -> dict[str, Any]:
        columns = super()._item_table()
        of = self.sequence
        where: dict[str, Any] = {"sequence": self.sequence_names[of], "position": self.position}
        if len(self.words):
            where["word"] = self.words
        return {"item": columns.pop("item"), **where, **columns}

    def _span_table(self) -> dict[str, Any]:
        spans = self.find_spans()
        lo = self.starts[spans.sequence] + spans.start
        hi = self.starts[spans.sequence] + spans.end
        sure = self.posterior[np.arange(len(self.posterior)), self.label_codes]
        ends = np.column_stack([lo, hi]).ravel()
        least = np.minimum.reduceat(np.append(sure, 1.0), ends)[::2] if len(lo) else sure[:0]
        names = self.sequence_names[spans.sequence]
        columns: dict[str, Any] = {"sequence": names, "start": spans.start, "end": spans.end, "type": spans.type}
        if len(self.words):
            text = [" ".join(map(str, self.words[a:b].tolist())) for a, b in zip(lo, hi, strict=True)]
            columns["text"] = np.array(text, dtype=object)
        return {**columns, "probability": least}


def decode(logit: Floats, log_prior: Floats, starts: Ints, preference: Floats) -> npt.NDArray[np.int32]:
    """The tagging with the largest sum; among equal steps the class with the higher preference, then the first."""
    order = np.argsort(-preference, kind="stable")
    chain = np.vstack([log_prior[:1, order], log_prior[1:][np.ix_(order, order)]])
    path = chains.viterbi(np.ascontiguousarray(logit[:, order]), np.ascontiguousarray(chain), starts)
    return order[path].astype(np.int32)


Inferred = tuple[Outcome, npt.NDArray[np.int32], Floats | None]
"""What was found, the tagging, and the chain."""


class TagModel(AnswerModel[Tags, TagConsensus]):
    """The base of models for :class:`~crowdwise.Tags`. A subclass gives ``_infer`` and ``_posterior``."""

    table: ClassVar[type] = Tags
    result: ClassVar[type] = TagConsensus

    @guarded
    def fit(self, answers: Tags, gold: Any = None, *, callback: Callback | None = None, verbose: bool = False) -> Self:
        """Learn from tags.

        Parameters
        ----------
        answers, callback, verbose
            As in other methods. The ``truth`` of the tags is not used.
        gold
            The tags of tokens where they are known, for the model to use: a mapping from sequence to its list of tags,
            from token (``sequence:position``) to tag, or T codes with -1 for unknown.
        """
        self._gold = None
        if gold is not None and isinstance(answers, Tags):
            self._gold = checked_truth(answers, answers.encode_truth(gold))
        try:
            return super().fit(answers, callback=callback, verbose=verbose)
        finally:
            del self._gold

    @property
    def single_annotator(self) -> bool:
        """Whether it takes the tags of one annotator."""
        return False

    def _fit(self, answers: Tags, callback: Callback | None) -> dict[str, Any]:
        check_classes(answers.votes, "tags")
        if not self.single_annotator and (self._gold is None or not (self._gold >= 0).any()):
            check_several(answers, self.key, "Give gold tags of some tokens, or take the tags as they are.")
        heard = without_silence(answers)
        outcome, labels, transition = self._infer(heard, self._gold, callback)
        if heard is not answers:
            less = f"{answers.votes.n_answers - heard.votes.n_answers:,} O do not count where others tag a token."
            outcome = replace(
                outcome, notes=[*outcome.notes, f"Most annotators tag a few types alone, as rules do: {less}"]
            )
        return {"transition": transition, **consensus_fields(heard.votes, outcome, labels)}

    @abstractmethod
    def _infer(self, tags: Tags, gold: Ints | None, callback: Callback | None) -> Inferred: ...

    @abstractmethod
    def _posterior(self, tags: Tags) -> tuple[Floats, npt.NDArray[np.int32]]:
        """T x K probabilities and the tagging, for tags in the codes of the fit (annotators may be new)."""

    def predict_proba(self, tags: Tags) -> Floats:
        """T x K probabilities of the tags of tokens, in the fit or not, from what was learned about annotators."""
        return self._predicted(tags)[0]

    def predict(self, tags: Tags) -> npt.NDArray[Any]:
        """A tag for every token."""
        return self._fitted().classes[self._predicted(tags)[1]]

    def _predicted(self, tags: Tags) -> tuple[Floats, npt.NDArray[np.int32]]:
        fitted = self._fitted()
        if not isinstance(tags, Tags):
            raise InputError(f"{self.key} expects Tags and found {type(tags).__name__}.")
        new = without_silence(replace(tags, votes=recode(tags.votes, fitted), scheme=fitted.scheme))
        return self._posterior(new) if tags.n_tokens else (np.empty((0, len(fitted.classes))), np.empty(0, np.int32))


def without_silence(tags: Tags) -> Tags:
    """Tags without the O of rules on tokens that others tag.

    A rule that knows names of persons says O of everything else: it is silent. Annotators are taken for rules where
    more than half of them began 10 spans or more, of at most half of the types, which are less than 80 % of all spans.
    A token without a tag keeps its O.
    """
    votes, names = tags.votes, [str(name) for name in tags.classes.tolist()]
    types = sorted({name[2:] for name in names if name != "O"})
    if tags.scheme != "bio" or "O" not in names or len(types) < 2:
        return tags
    kind = np.array([types.index(name[2:]) if name != "O" else -1 for name in names])[votes.label]
    begins = np.array([name.startswith("B-") for name in names])[votes.label]
    spans = np.zeros((votes.n_annotators, len(types)))
    np.add.at(spans, (votes.annotator[begins], kind[begins]), 1.0)
    share = (spans > 0) @ (spans.sum(axis=0) / max(spans.sum(), 1.0))
    rule = (2 * (spans > 0).sum(axis=1) <= len(types)) & (spans.sum(axis=1) >= 10) & (share < 0.8)
    if 2 * rule.sum() <= votes.n_annotators:
        return tags
    tagged = np.bincount(votes.item[kind >= 0], minlength=len(votes)) > 0
    return replace(tags, votes=votes.select((kind >= 0) | ~rule[votes.annotator] | ~tagged[votes.item]))


def checked_truth(tags: Tags, gold: Ints) -> Ints:
    """Known tags, unless they contradict the scheme."""
    known = gold >= 0
    follows = np.append(False, known[:-1]) & known & ~tags.opens
    bad = invalid(np.where(known, gold, 0), tags.opens & known, follows, tags.classes, tags.scheme)
    if len(bad):
        token, tag = tags.votes.items[bad[0]], listing(tags.classes[[gold[bad[0]]]])
        raise LabelError(
            f"The truth gives token {token!r} the tag {tag}, which goes on with a span that is not there. Correct it, "
            "or make the tags with scheme='plain'."
        )
    return gold


def token_decode(q: Floats, tags: Tags, prior: Floats) -> npt.NDArray[np.int32]:
    """The valid tagging with the largest product of its tokens' probabilities."""
    return decode(safe_log(q), np.where(tags.allowed(), 0.0, -np.inf), tags.starts, prior)
