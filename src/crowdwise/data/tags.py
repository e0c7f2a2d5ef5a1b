"""Tags on the tokens of sequences: who said what about which token.

=============  ========  ==========================================================================
field          shape     meaning
=============  ========  ==========================================================================
``votes``                :class:`~crowdwise.Votes` over all tokens, sequence after sequence, in order
``starts``     G + 1     tokens of sequence g are items ``starts[g]:starts[g + 1]`` of the votes
``sequences``  G         the names of the sequences
``position``   T         where a token stands, as the table says (it only orders the tokens)
``words``      T         the tokens' text, or ``None``
``scheme``               ``"bio"`` or ``"plain"`` (see :mod:`crowdwise.data.tag_schemes`)
=============  ========  ==========================================================================

A token is named ``sequence:position`` in the votes. Tokens that nobody tagged belong to their sequence all the same:
a row with neither annotator nor tag declares one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding, frames, tag_schemes
from crowdwise.data.assemble import OnDuplicate
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.frozen import Frozen
from crowdwise.data.rows import blocks, columns_of
from crowdwise.data.tag_schemes import Spans
from crowdwise.data.votes import OnMissing, Votes
from crowdwise.errors import InputError, LabelError, ParameterError, listing

OnInvalid = Literal["error", "repair", "keep"]
PARTS = ("sequence", "position", "annotator", "tag", "word", "weight", "timestamp", "truth")

__all__ = ["Tags"]


@dataclass(frozen=True, eq=False, repr=False)
class Tags(Frozen):
    """A frozen, validated table of tags. Make one with a ``from_...`` method or :func:`crowdwise.read_tags`.

    >>> import crowdwise as cw
    >>> rows = [("s", 0, "ann", "B-PER"), ("s", 1, "ann", "I-PER"), ("s", 0, "bob", "B-PER"), ("s", 1, "bob", "O")]
    >>> tags = cw.Tags.from_records(rows)
    >>> tags
    Tags(4 tags: 1 sequences, 2 tokens x 2 annotators x 3 tags, bio)
    >>> tags.votes.items.tolist()
    ['s:0', 's:1']
    """

    answer_type: ClassVar[str] = "tags"

    votes: Votes
    starts: npt.NDArray[np.int64]
    sequences: Vocabulary
    position: npt.NDArray[np.int64]
    words: npt.NDArray[Any] | None = None
    scheme: str = "plain"

    # ---------------------------------------------------------------- making one

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        sequence: str | None = None,
        position: str | None = None,
        annotator: str | None = None,
        tag: str | None = None,
        word: str | None = None,
        weight: str | None = None,
        timestamp: str | None = None,
        truth: str | None = None,
        classes: Sequence[Any] | None = None,
        scheme: str = "auto",
        on_duplicate: OnDuplicate = "error",
        on_missing: OnMissing = "error",
        on_invalid: OnInvalid = "error",
    ) -> Tags:
        """Tags from a table with one row per tag, in any kind of dataframe.

        Parameters
        ----------
        sequence, position, annotator, tag, word, weight, timestamp, truth
            The columns, where their names are not among the usual ones. ``position`` holds whole numbers, which
            order the tokens of a sequence.
        classes
            All tags, in order; by default those that occur, sorted. BIO tags are completed: ``I-x`` needs ``B-x``.
        scheme
            ``"bio"``, ``"plain"``, or ``"auto"``: BIO where all tags look like it.
        on_duplicate
            What to do when an annotator tagged a token twice: ``"error"``, keep the ``"first"`` or ``"last"`` row.
        on_missing
            ``"drop"`` leaves out tags that are empty instead of raising; their tokens stay.
        on_invalid
            An annotator's ``I-x`` with no span to go on with is an ``"error"``, becomes ``B-x`` (``"repair"``), or is
            left as it is (``"keep"``).
        """
        from crowdwise.data.readers_tags import tags_from_table

        given = dict(zip(PARTS, (sequence, position, annotator, tag, word, weight, timestamp, truth), strict=True))
        return tags_from_table(
            frame, given, classes=classes, scheme=scheme, on_duplicate=on_duplicate, on_missing=on_missing,
            on_invalid=on_invalid,
        )  # fmt: skip

    @classmethod
    def from_records(cls, records: Iterable[Any], **given: Any) -> Tags:
        """Tags from rows: ``(sequence, position, annotator, tag)`` tuples, or dicts (keys as in ``from_frame``)."""
        return cls.from_frame(columns_of(records, PARTS[:4], "tags"), **given)

    @classmethod
    def from_votes(
        cls, votes: Votes, starts: npt.ArrayLike, *, sequences: Any = None, position: Any = None, words: Any = None,
        scheme: str = "auto", on_invalid: OnInvalid = "error",
    ) -> Tags:  # fmt: skip
        """Tags from votes on tokens that stand in order, and where each sequence begins (G + 1 numbers)."""
        cuts = np.array(starts, dtype=np.int64)
        if cuts.ndim != 1 or len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != len(votes) or (np.diff(cuts) < 1).any():
            raise InputError(
                f"starts must rise from 0 to the number of tokens, {len(votes)}, by at least one token a sequence; "
                f"found {listing(cuts.tolist())}."
            )
        G, T = len(cuts) - 1, len(votes)
        names = encoding.to_vocabulary(range(G) if sequences is None else sequences)
        encoding.check_distinct(names, "sequences")
        place = np.arange(T) - np.repeat(cuts[:-1], np.diff(cuts)) if position is None else np.array(position)
        for what, found, size in (("sequences", len(names), G), ("position", len(place), T)):
            if found != size:
                raise InputError(f"{what} has {found} entries: expected {size}.")
        text = None if words is None else encoding.to_vocabulary(words).astype(object)
        if text is not None and len(text) != T:
            raise InputError(f"words has {len(text)} entries: expected one for each of the {T} tokens.")
        made = cls(
            votes, cuts, names, place.astype(np.int64), text, tag_schemes.scheme_of(votes.classes.tolist(), scheme)
        )
        return made._checked(on_invalid)

    # ---------------------------------------------------------------- what is in it

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def n_tokens(self) -> int:
        return len(self.votes)

    @property
    def n_answers(self) -> int:
        """The number of answers: rows of the long table."""
        return self.votes.n_votes

    @property
    def n_votes(self) -> int:
        """The number of tags given."""
        return self.votes.n_votes

    @property
    def sequence(self) -> npt.NDArray[np.int64]:
        """The sequence code of every token."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @property
    def annotators(self) -> Vocabulary:
        return self.votes.annotators

    @property
    def classes(self) -> Vocabulary:
        return self.votes.classes

    @property
    def truth(self) -> Codes | None:
        """The code of every token's true tag, -1 where unknown; ``None`` where there is none."""
        return self.votes.truth

    @property
    def kind(self) -> str:
        return self.votes.kind

    def __repr__(self) -> str:
        votes = self.votes
        return (
            f"Tags({self.n_votes:,} tags: {len(self):,} sequences, {self.n_tokens:,} tokens x "
            f"{votes.n_annotators:,} annotators x {votes.n_classes:,} tags, {self.scheme})"
        )

    def allowed(self) -> npt.NDArray[np.bool_]:
        """(1 + K) x K: which tags may stand first, and below, which (columns) may follow which (rows)."""
        return tag_schemes.allowed(self.classes, self.scheme)

    def spans(self, codes: npt.ArrayLike) -> Spans:
        """The spans that one tag (code) for every token spells out."""
        found = np.asarray(codes)
        if found.shape != (self.n_tokens,):
            raise InputError(f"Expected a tag for each of the {self.n_tokens} tokens and found shape {found.shape}.")
        return tag_schemes.find_spans(found, self.starts, self.classes, self.scheme)

    def describe(self) -> dict[str, Any]:
        """Counts that show the shape of the data, as a plain dict."""
        votes, length = self.votes.describe(), np.diff(self.starts)
        return {
            "sequences": len(self),
            "tokens": self.n_tokens,
            "tokens_per_sequence": {"min": int(length.min()), "mean": float(length.mean()), "max": int(length.max())},
            "annotators": votes["annotators"],
            "tags": votes["classes"],
            "scheme": self.scheme,
            "votes": votes["votes"],
            "votes_per_token": votes["votes_per_item"],
            "votes_per_annotator": votes["votes_per_annotator"],
            "votes_per_tag": votes["votes_per_class"],
            "tokens_without_votes": votes["items_without_votes"],
            "unanimous": votes["unanimous"],
            "words": self.words is not None,
            "tokens_with_truth": votes["items_with_truth"],
        }

    # ---------------------------------------------------------------- selecting

    def __getitem__(self, index: Any) -> Tags:
        """The tags of some sequences: an integer, a slice, an array of positions or a mask."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        starts, token = blocks(self.starts, rows)
        return Tags(
            self.votes[token], starts, self.sequences[rows], self.position[token],
            None if self.words is None else self.words[token], self.scheme,
        )  # fmt: skip

    def only(self, annotators: Sequence[Any]) -> Tags:
        """The tags of some annotators, by name; tokens stay, even those left without a tag."""
        return replace(self, votes=self.votes.only(annotators))

    def without(self, annotators: Sequence[Any]) -> Tags:
        """The tags of everybody but some annotators, by name."""
        return replace(self, votes=self.votes.without(annotators))

    def with_truth(self, truth: Any) -> Tags:
        """The same tags with the true ones: see :meth:`encode_truth`."""
        return replace(self, votes=self.votes.with_truth(None if truth is None else self.encode_truth(truth)))

    def encode_truth(self, truth: Any) -> Codes:
        """T tag codes (-1 unknown).

        From such codes, from a mapping of sequences to their lists of tags, or from one of tokens
        (``sequence:position``) to tags.
        """
        return self.votes.encode_truth(truth_by_token(truth, self.sequences, self.starts, self.votes.items))

    # ---------------------------------------------------------------- out again

    def to_frame(self, kind: str | None = None) -> Any:
        """The long table again, one row per tag, and one for each token without any."""
        votes = self.votes
        bare = np.flatnonzero(np.diff(votes.indptr) == 0)
        token = np.concatenate([votes.item, bare])
        order = np.argsort(token, kind="stable")
        token = token[order]

        def padded(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            if not len(bare):
                return values[order]
            out = np.empty(len(order), dtype=object)
            out[: len(values)] = values.tolist()
            out[len(values) :] = None
            return out[order]

        out: dict[str, Any] = {"sequence": self.sequences[self.sequence[token]], "position": self.position[token]}
        if self.words is not None:
            out["word"] = self.words[token]
        out["annotator"] = padded(votes.annotators[votes.annotator])
        out["tag"] = padded(votes.classes[votes.label])
        for name in ("weight", "timestamp"):
            if (values := getattr(votes, name)) is not None:
                out[name] = padded(values)
        if votes.truth is not None:
            names = np.array([*votes.classes.tolist(), None], dtype=object)
            out["truth"] = names[votes.truth[token]]
        return frames.make_frame(out, kind or self.kind)

    def _checked(self, on_invalid: OnInvalid) -> Tags:
        """The table with annotators' impossible tags refused, mended or kept."""
        if on_invalid not in ("error", "repair", "keep"):
            raise ParameterError(f"on_invalid={on_invalid!r}: expected 'error', 'repair' or 'keep'.")
        votes = self.votes
        if self.scheme == "plain" or on_invalid == "keep":
            return self
        order = np.lexsort((votes.item, votes.annotator))
        token, who, label = votes.item[order], votes.annotator[order], votes.label[order]
        opens = np.zeros(self.n_tokens, dtype=bool)
        opens[self.starts[:-1]] = True
        opens = opens[token]
        follows = np.append(False, (np.diff(token) == 1) & (np.diff(who) == 0)) & ~opens
        bad = tag_schemes.invalid(label, opens, follows, self.classes, self.scheme)
        if not len(bad):
            return self
        if on_invalid == "error":
            name = votes.items[token[bad[0]]]
            raise LabelError(
                f"{len(bad):,} {'tags go' if len(bad) > 1 else 'tag goes'} on with a span that is not there: annotator "
                f"{votes.annotators[who[bad[0]]]!r} gives token {name!r} the tag "
                f"{votes.classes[label[bad[0]]]!r}. "
                "Let such a tag begin a span with on_invalid='repair', or leave it with on_invalid='keep'."
            )
        new = votes.label.copy()
        new[order[bad]] = tag_schemes.beginnings(self.classes)[label[bad]]
        return replace(self, votes=replace(votes, label=new))


def truth_by_token(truth: Any, sequences: Vocabulary, starts: npt.NDArray[Any], tokens: Vocabulary) -> Any:
    """A mapping of tokens to tags from one of sequences to their lists of tags; any other truth as it is."""
    if not (hasattr(truth, "keys") and any(isinstance(v, (list, tuple, np.ndarray)) for v in truth.values())):
        return truth
    names = encoding.to_vocabulary(list(truth))
    out: dict[Any, Any] = {}
    for name, g in zip(names.tolist(), encoding.locate(names, sequences).tolist(), strict=True):
        if g < 0:
            continue
        given, lo, hi = list(truth[name]), starts[g], starts[g + 1]
        if len(given) != hi - lo:
            raise InputError(f"Sequence {name!r} has {hi - lo} tokens and {len(given)} true tags.")
        out |= dict(zip(tokens[lo:hi].tolist(), given, strict=True))
    if not out:
        raise InputError(f"None of the sequences with truth is here: truth names {listing(names, 3)}.")
    return out
