"""Tags on the tokens of sequences: who said what about which token.

=============  ========  ==========================================================================
field          shape     meaning
=============  ========  ==========================================================================
``votes``                :class:`~crowdwise.Votes` over all tokens, sequence after sequence, in order
``starts``     G + 1     tokens of sequence g are items ``starts[g]:starts[g + 1]`` of the votes
``sequences``  G         the names of the sequences
``position``   T         where a token stands, as the table says (it only orders the tokens)
``words``      T         the tokens' text, or ``None``
``scheme``               ``"bio"`` or ``"plain"``
=============  ========  ==========================================================================

A token is named ``sequence:position`` in the votes. Tokens without tags belong to their sequence all the same:
a row with neither annotator nor tag declares one.

Files with columns in the manner of the CoNLL tasks: one line per token, one column per annotator.

A blank line stands between sequences, the first column is the word:

    Ann    B-PER  B-PER  ?
    slept  O      O      ?

What tags mean: BIO (which tags may follow which, and the spans they spell out), or plain tags without any rule.

In BIO (also called IOB2) ``O`` is outside of everything, ``B-x`` begins a span of type x and ``I-x`` goes on with one.
So ``I-x`` may stand only after ``B-x`` or ``I-x``, and a sequence may not begin with it.

===============  ===============================================================
before           may be followed by
===============  ===============================================================
the beginning    ``O``, any ``B-``
``O``            ``O``, any ``B-``
``B-x``, ``I-x``  ``O``, any ``B-``, ``I-x``
===============  ===============================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from crowdwise.data import encoding, schema
from crowdwise.data.assemble import Repeats
from crowdwise.data.boundary import as_path, reading
from crowdwise.data.encoding import Codes, Counts, Mask, Vocabulary
from crowdwise.data.files import PathLike
from crowdwise.data.frames import make_frame
from crowdwise.data.heavy import pl
from crowdwise.data.places import row_label
from crowdwise.data.schema import ANNOTATOR, COMMON, Col, OnMissing, Opt
from crowdwise.data.source import DROP, Source
from crowdwise.data.table import Table, blocks, reader, spread
from crowdwise.data.truth import one_each, one_per_item, truth_by_token
from crowdwise.data.votes import Votes
from crowdwise.errors import ColumnError, InputError, LabelError, Option, ParameterError, ReadError, Remedy, listing

SCHEMES = ("auto", "bio", "plain")
BIO = re.compile(r"O|[BI]-.+", flags=re.S)

Ints = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class TagSpans:
    """Stretches of tokens with a type, in the order of their tokens: ``start`` to ``end`` (exclusive) of a sequence."""

    sequence: Ints
    start: Ints
    end: Ints
    type: npt.NDArray[Any]
    """The name of the type."""

    def __len__(self) -> int:
        return len(self.start)


def scheme_of(names: Sequence[Any], scheme: str) -> str:
    """``"bio"`` or ``"plain"``: what was asked for (checked), or what the tags look like."""
    if scheme not in SCHEMES:
        raise ParameterError(f"scheme={scheme!r}: expected {', '.join(map(repr, SCHEMES))}.")
    odd = [name for name in names if not (isinstance(name, str) and BIO.fullmatch(name))]
    if scheme == "bio" and odd:
        raise LabelError(
            f"scheme='bio' knows the tags O, B-type and I-type, and found {listing(odd)}. "
            "Correct them, or say scheme='plain'."
        )
    return "plain" if scheme == "plain" or odd or set(names) <= {"O"} else "bio"


def completed(names: Sequence[Any], scheme: str) -> list[Any]:
    """The tags with a ``B-x`` for every ``I-x``, without which no valid tagging could hold the latter."""
    names = list(names)
    if scheme == "bio":
        names += [f"B-{x[2:]}" for x in names if x.startswith("I-") and f"B-{x[2:]}" not in names]
    return names


def kinds(classes: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Of BIO tags: the letter of each (``O``, ``B``, ``I``) and its type (empty for ``O``)."""
    names = classes.tolist()
    return np.array([name[0] for name in names]), np.array([name[2:] for name in names], dtype=object)


def allowed(classes: npt.NDArray[Any], scheme: str) -> Mask:
    """(1 + K) x K: which tags may stand first, and below, which (columns) may follow which (rows)."""
    K = len(classes)
    out = np.ones((K + 1, K), dtype=bool)
    if scheme == "bio":
        letter, kind = kinds(classes)
        inside = letter == "I"
        out[0] = ~inside
        out[1:] = ~inside | ((letter != "O")[:, None] & (kind[:, None] == kind[None, :]))
    return out


def invalid(code: Ints, opens: Mask, follows: Mask, classes: npt.NDArray[Any], scheme: str) -> Ints:
    """The places of tags that may not stand where they stand. ``opens``: the token begins a sequence; ``follows``: the
    tag before is that of the token before. Where neither is so, the tag before is not known, and any will do."""
    may = allowed(classes, scheme)
    before = np.append(0, code[:-1])
    return np.flatnonzero((opens & ~may[0][code]) | (follows & ~may[1:][before, code]))


def beginnings(classes: npt.NDArray[Any]) -> Ints:
    """K: the tag that begins the span which this one is inside of; others stay what they are."""
    names = classes.tolist()
    return np.array([names.index(f"B-{n[2:]}") if n.startswith("I-") else k for k, n in enumerate(names)], np.int32)


def find_spans(code: Ints, starts: Ints, classes: npt.NDArray[Any], scheme: str) -> TagSpans:
    """The spans that tags spell out. An ``I-x`` with no span of its type to go on with begins one."""
    if scheme != "bio":
        raise LabelError(
            f"Spans are spelled out by BIO tags (O, B-type, I-type); these are plain: {listing(classes)}. "
            "Compare tokens instead."
        )
    letter, kind = kinds(classes)
    outside = letter[code] == "O"
    of = np.unique(kind, return_inverse=True)[1][code]
    first = np.zeros(len(code), dtype=bool)
    first[starts[:-1]] = True
    goes_on = np.zeros(len(code), dtype=bool)
    goes_on[1:] = (letter[code[1:]] == "I") & ~outside[:-1] & (of[1:] == of[:-1])
    goes_on &= ~first
    begin = np.flatnonzero(~outside & ~goes_on)
    breaks = np.append(np.flatnonzero(~goes_on), len(code))  # a span ends where the next token does not go on with it
    end = breaks[np.searchsorted(breaks, begin, side="right")]
    sequence = np.searchsorted(starts, begin, side="right") - 1
    at = starts[sequence]
    return TagSpans(sequence, begin - at, end - at, kind[code[begin]])


OnInvalid = Literal["error", "repair", "keep"]


def true_tags(source: Source, part: str, token: npt.NDArray[Any], items: npt.NDArray[Any]) -> dict[Any, Any]:
    """Token -> its true tag, from a column."""
    code, names = source.coded(part)
    known = code >= 0
    return one_per_item(token[known], items, code[known], "true tags for token", lambda codes: names[codes])


@dataclass(frozen=True, eq=False, repr=False)
class Tags(Table):
    """A frozen, validated table of tags; its items are the sequences. Make one with a ``from_...`` method or
    :func:`crowdwise.read_tags`.

    >>> import crowdwise as cw
    >>> rows = [("s", 0, "ann", "B-PER"), ("s", 1, "ann", "I-PER"), ("s", 0, "bob", "B-PER"), ("s", 1, "bob", "O")]
    >>> tags = cw.Tags.from_records(rows)
    >>> tags
    Tags(4 tags: 1 sequences, 2 tokens x 2 annotators x 3 tags, bio)
    >>> tags.votes.items.tolist()
    ['s:0', 's:1']
    """

    answer_type: ClassVar[str] = "tags"
    columns: ClassVar[tuple[Col, ...]] = (
        Col("sequence", needed=True), Col("position", needed=True), ANNOTATOR, Col("tag", needed=True), Col("word"),
        *COMMON, Col("truth"),
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (
        schema.declared("classes", "tags", " By default those that occur, sorted. ``I-x`` also needs ``B-x``."),
        Opt("scheme", "auto", '``"bio"``, ``"plain"``, or ``"auto"``: BIO where all tags look like it.', str, SCHEMES),
        schema.on_duplicate("tagged a token", "error", "first", "last"),
        schema.on_missing("a tag (their tokens stay)", fills=False),
        Opt("on_invalid", "error",
            'An annotator\'s ``I-x`` with no span to go on with is an ``"error"``, becomes ``B-x`` (``"repair"``), or '
            'is left as it is (``"keep"``).',
            OnInvalid, ("error", "repair", "keep")),
    )  # fmt: skip
    _reading: ClassVar[tuple[Opt, ...]] = (
        schema.TRUTH_PATH,
        Opt("form", "auto", '``"long"``, ``"conll"``, or ``"auto"``: by the ending of the name (``.conll``, ``.bio``, '
            "``.iob``, ``.col``). In CoNLL-like columns ``truth`` is the number of a column, such as -1.",
            str, ("auto", "long", "conll")),
        Opt("annotators", None, "The names of the annotators' columns of a CoNLL-like file; numbers from 0 by default.",
            list[Any] | None),
        Opt("missing", ("?", "_"), "What stands in a CoNLL-like file where an annotator gave no tag.", tuple[str, ...]),
        Opt("comment", None, "Lines of a CoNLL-like file that begin with it are left out.", str | None),
    )  # fmt: skip
    _rows: ClassVar[str] = "tags"
    _keys: ClassVar[tuple[str, ...]] = ("sequence", "position")
    _truths: ClassVar[tuple[str, ...]] = ("truth", "tag")
    _truth_in: ClassVar[Any] = staticmethod(true_tags)
    _forms: ClassVar[str] = "One row per tag. ``position`` holds whole numbers, which order the tokens of a sequence."

    votes: Votes
    starts: Counts
    sequences: Vocabulary
    position: Counts
    words: npt.NDArray[Any] | None = None
    scheme: str = "plain"

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Tags:
        source.require(cls._needed())
        token, sequence, position, names = tokens(source)
        starts = np.concatenate([[0], np.cumsum(np.bincount(sequence, minlength=len(names)))]).astype(np.int64)
        items = token_names(names, sequence, position)
        words = token_words(source, token, items) if "word" in source else None
        true = true_tags(source, "truth", token, items) if "truth" in source else None

        token = token[keep_tagged(source, options["on_missing"])]
        annotator, annotators = source.coded("annotator")
        label, tags = source.coded("tag")
        classes = options["classes"]
        declared = list(encoding.sort_vocabulary(label, tags)[1].tolist() if classes is None else classes)
        scheme = scheme_of(declared, options["scheme"])
        complete = completed(declared, scheme)
        repeats = Repeats(options["on_duplicate"], ("error", "first", "last"), cls._rows, "tags token", source.rows)
        votes = Votes.from_codes(
            token, annotator, label, items=items, annotators=annotators, label_names=tags,
            classes=complete if classes is not None else sorted(complete), on_duplicate=repeats, **source.beside(),
        )  # fmt: skip
        tags_of = cls(votes, starts, names, position, words, scheme)
        return (tags_of if true is None else tags_of.with_truth(true))._valid(options["on_invalid"])

    @classmethod
    def _opened(cls, path: PathLike, given: dict[str, Any], values: dict[str, Any]) -> Source:
        truth = given["truth"]
        if values["form"] == "conll" or (values["form"] == "auto" and as_path(path).suffix.lower() in ENDINGS):
            if isinstance(truth, str):
                raise ParameterError(f"truth={truth!r}: in CoNLL-like files it is the number of a column, such as -1.")
            how = (values[name] for name in ("separator", "missing", "comment"))
            frame = read_conll(Path(path), values["annotators"], truth, *how)
            return Source(frame, dict.fromkeys(given), cls._rows, from_text=True)
        if isinstance(truth, int):
            raise ParameterError(f"truth={truth!r}: in a long table it is the name of a column.")
        return super()._opened(path, given, values)

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
        for what, count, size in (("sequences", len(names), G), ("position", len(place), T)):
            if count != size:
                raise InputError(f"{what} has {count} entries: expected {size}.")
        text = None if words is None else encoding.to_vocabulary(words).astype(object)
        if text is not None and len(text) != T:
            raise InputError(f"words has {len(text)} entries: expected one for each of the {T} tokens.")
        kind = scheme_of(votes.classes.tolist(), scheme)
        return cls(votes, cuts, names, place.astype(np.int64), text, kind)._valid(on_invalid)

    @property
    def items(self) -> Vocabulary:
        """The names of the sequences."""
        return self.sequences

    @property
    def n_tokens(self) -> int:
        """T, the number of tokens in all sequences."""
        return len(self.votes)

    @property
    def n_classes(self) -> int:
        """K, the number of tags to choose from."""
        return self.votes.n_classes

    @property
    def sequence(self) -> Counts:
        """The sequence code of every token."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @property
    def opens(self) -> Mask:
        """Whether a token begins a sequence."""
        return np.isin(np.arange(self.n_tokens), self.starts[:-1])

    annotator = property(attrgetter("votes.annotator"), doc="The annotator of every tag that was given.")
    annotators = property(attrgetter("votes.annotators"), doc="The names of the annotators.")
    classes = property(attrgetter("votes.classes"), doc="The tags to choose from.")
    weight = property(attrgetter("votes.weight"), doc="How much a tag counts, or ``None``.")
    timestamp = property(attrgetter("votes.timestamp"), doc="When a tag was given, or ``None``.")
    truth = property(attrgetter("votes.truth"), doc="The code of every token's true tag, -1 unknown; or ``None``.")
    kind = property(attrgetter("votes.kind"), doc="What ``to_frame`` returns by default.")

    def __repr__(self) -> str:
        return (
            f"Tags({self.n_answers:,} tags: {len(self):,} sequences, {self.n_tokens:,} tokens x "
            f"{self.n_annotators:,} annotators x {self.n_classes:,} tags, {self.scheme})"
        )

    def allowed(self) -> Mask:
        """(1 + K) x K: which tags may stand first, and below, which (columns) may follow which (rows)."""
        return allowed(self.classes, self.scheme)

    def spans(self, codes: npt.ArrayLike) -> TagSpans:
        """The spans that one tag (code) for every token spells out."""
        tags = np.asarray(codes)
        if tags.shape != (self.n_tokens,):
            raise InputError(f"Expected a tag for each of the {self.n_tokens} tokens and found shape {tags.shape}.")
        return find_spans(tags, self.starts, self.classes, self.scheme)

    def describe(self) -> dict[str, Any]:
        """Counts that show the shape of the data, as a plain dict."""
        length, words = np.diff(self.starts), (("items", "tokens"), ("item", "token"), ("class", "tag"))
        votes = self.votes.describe() | {"tags": self.classes.tolist()}
        del votes["classes"]
        for one, other in words:
            votes = {name.replace(one, other): value for name, value in votes.items()}
        span = {name: value for name, value in spread(length).items() if name != "median"}
        return {"sequences": len(self), "tokens_per_sequence": span, "scheme": self.scheme, **votes,
                "words": self.words is not None}  # fmt: skip

    def _per_item(self) -> npt.NDArray[Any]:
        return np.add.reduceat(np.diff(self.votes.indptr), self.starts[:-1])

    def _of_items(self, items: Counts) -> Self:
        starts, token = blocks(self.starts, items)
        words = None if self.words is None else self.words[token]
        return replace(
            self, votes=self.votes[token], starts=starts, sequences=self.sequences[items],
            position=self.position[token], words=words,
        )  # fmt: skip

    def _kept(self, mask: Mask) -> Self:
        return replace(self, votes=self.votes.select(mask))

    def _by(self, chosen: Mask) -> Self:
        return replace(self, votes=self.votes._by(chosen))

    @classmethod
    def _keyed(cls, source: Source) -> tuple[npt.NDArray[Any], Vocabulary]:
        token, sequence, position, names = tokens(source)
        return token, token_names(names, sequence, position)

    def with_truth(self, truth: Any) -> Self:
        """The same tags with the true ones: see :meth:`encode_truth`."""
        return replace(self, votes=self.votes.with_truth(None if truth is None else self.encode_truth(truth)))

    def encode_truth(self, truth: Any) -> Codes:
        """T tag codes (-1 unknown). From such codes, from a mapping of sequences to their lists of tags, or from one of
        tokens (``sequence:position``) to tags."""
        return self.votes.encode_truth(truth_by_token(truth, self.sequences, self.starts, self.votes.items))

    def usable_gold(self, gold: Mapping[Any, Any]) -> dict[Any, Any]:
        tags = set(self.classes.tolist())
        return {sequence: tags_of for sequence, tags_of in gold.items() if tags.issuperset(tags_of)}

    def truth_frame(self) -> Any:
        truth = self.votes.truth
        if truth is None:
            return None
        known = np.flatnonzero(truth >= 0)
        about = {"sequence": self.sequences[self.sequence[known]], "position": self.position[known]}
        return make_frame({**about, "tag": self.votes.classes[truth[known]]})

    def _columns(self) -> dict[str, Any]:
        """The columns of the long table: one row per tag, and one for each token without any."""
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
        return out

    def _valid(self, on_invalid: OnInvalid) -> Tags:
        """The table with annotators' impossible tags refused, fixed or kept."""
        if on_invalid not in ("error", "repair", "keep"):
            raise ParameterError(f"on_invalid={on_invalid!r}: expected 'error', 'repair' or 'keep'.")
        votes = self.votes
        if self.scheme == "plain" or on_invalid == "keep":
            return self
        order = np.lexsort((votes.item, votes.annotator))
        token, who, label = votes.item[order], votes.annotator[order], votes.label[order]
        opens = self.opens[token]
        follows = np.append(False, (np.diff(token) == 1) & (np.diff(who) == 0)) & ~opens
        bad = invalid(label, opens, follows, self.classes, self.scheme)
        if not len(bad):
            return self
        if on_invalid == "error":
            name = votes.items[token[bad[0]]]
            raise LabelError(
                f"{len(bad):,} {'tags go' if len(bad) > 1 else 'tag goes'} on with a span that is not there: annotator "
                f"{votes.annotators[who[bad[0]]]!r} gives token {name!r} the tag "
                f"{votes.classes[label[bad[0]]]!r}.",
                remedy=Remedy("Let such a tag begin a span with {}, or leave it with {}.", REPAIR, KEEP),
            )
        new = votes.label.copy()
        new[order[bad]] = beginnings(self.classes)[label[bad]]
        return replace(self, votes=replace(votes, label=new))


REPAIR, KEEP = Option("on_invalid", "repair"), Option("on_invalid", "keep")


read_tags = reader(Tags, "read_tags")


ENDINGS = (".conll", ".bio", ".iob", ".iob2", ".col")


def read_conll(
    path: Path, annotators: Sequence[Any] | None, truth: int | None, separator: str | None, missing: Sequence[str],
    comment: str | None,
) -> dict[str, Any]:  # fmt: skip
    """A CoNLL-like file as a long table; the first column is the word."""
    with reading(path, "text in UTF-8"):
        if not path.is_file():
            raise ReadError(f"There is no file {path}.")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    rows: list[list[str]] = []
    sequence: list[int] = []
    number, width = 0, 0
    for n, line in enumerate(lines):
        if not line.strip() or line.startswith("-DOCSTART-"):
            number += bool(sequence) and sequence[-1] == number
            continue
        if comment and line.startswith(comment):
            continue
        fields = [field.strip() for field in line.split(separator)]
        width = width or len(fields)
        if len(fields) != width or width < 2:
            raise ReadError(
                f"Line {n + 1} of {path} has {len(fields)} columns: expected {max(width, 2)}, the word and a tag of "
                f"each annotator ({', '.join(map(repr, missing))} where there is none)."
            )
        rows.append(fields)
        sequence.append(number)
    if not rows:
        raise ReadError(f"{path} is empty.")
    cells = np.array(rows, dtype=object)
    true = None
    if truth is not None:
        if not -width < truth < width or truth == 0:
            raise ParameterError(f"truth={truth}: the file has the columns 1 to {width - 1} besides the word.")
        true = cells[:, truth]
        cells = np.delete(cells, truth, axis=1)
    T, M = cells.shape[0], cells.shape[1] - 1
    names = encoding.to_vocabulary(range(M) if annotators is None else annotators)
    if len(names) != M:
        raise InputError(f"{path} has {M} columns of annotators and {len(names)} are named.")
    of = np.array(sequence)
    position = np.arange(T) - np.searchsorted(of, of)
    token, who = np.nonzero(~np.isin(cells[:, 1:], list(missing)))
    bare = np.setdiff1d(np.arange(T), token)
    rows_of = np.concatenate([token, bare])
    unknown = np.full(len(bare), None, dtype=object)
    out: dict[str, Any] = {
        "sequence": of[rows_of], "position": position[rows_of], "word": cells[rows_of, 0],
        "annotator": np.concatenate([names[who].astype(object), unknown]),
        "tag": np.concatenate([cells[:, 1:][token, who], unknown]),
    }  # fmt: skip
    if true is not None:
        out["truth"] = np.where(np.isin(true, list(missing)), np.array(None), true)[rows_of]
    return out


def tokens(source: Source) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], Vocabulary]:
    """The token of each row, the sequence and position of each token, in order, and the names of the sequences."""
    source.complete(("sequence",), "error")
    code, names = source.coded("sequence")
    place = _positions(source)
    low, width = int(place.min()), int(place.max()) - int(place.min()) + 1
    if width > 2**62 // (int(code.max()) + 1):
        raise InputError(f"Positions run from {low} to {int(place.max())}: number the tokens of a sequence from 0.")
    key, token = np.unique(code.astype(np.int64) * width + (place - low), return_inverse=True)
    return token, key // width, key % width + low, names


def _positions(source: Source) -> Counts:
    column = source.flat("position", "a whole number", ColumnError)
    whole = column.cast(pl.Int64, strict=False)
    odd = whole.is_null() | ((column != whole) if column.dtype.is_float() else False)
    if bool(odd.any()):
        word = Remedy("If it holds words, name it {}, and the position column.", Option("word", column.name))
        expected = "a whole number, which orders the tokens of a sequence"
        raise source.odd("position", int(odd.arg_true()[0]), expected, ColumnError, remedy=word)
    return whole.to_numpy()


def token_names(names: npt.NDArray[Any], sequence: npt.NDArray[Any], position: npt.NDArray[Any]) -> npt.NDArray[Any]:
    text = pl.Series(map(str, names.tolist()), dtype=pl.String).gather(sequence)
    return encoding.to_vocabulary((text + ":" + pl.Series(position).cast(pl.String)).to_numpy())


def token_words(source: Source, token: npt.NDArray[Any], items: npt.NDArray[Any]) -> npt.NDArray[Any]:
    words = source.flat("word", "a word").cast(pl.String).to_numpy()
    row = one_each(token, words, len(items), lambda n, two: f"words for token {items[n]!r}: {listing(two)}.")
    return np.asarray(words[row], dtype=object)


def keep_tagged(source: Source, on_missing: OnMissing) -> Counts:
    """Go on with the rows that hold a tag; one with neither annotator nor tag declares a token and is not a mistake."""
    who, tag = (source[part].is_null().to_numpy() for part in ("annotator", "tag"))
    bad = np.flatnonzero(who != tag)
    if len(bad) and on_missing == "error":
        part = "tag" if tag[bad[0]] else "annotator"
        raise LabelError(
            f"{len(bad):,} {'rows have' if len(bad) > 1 else 'row has'} no {part} (column {source.parts[part]!r}): "
            f"{row_label(bad.tolist(), source.places, counted=', counted from 0')}.",
            remedy=DROP,
        )
    rows = np.flatnonzero(~who & ~tag)
    if not len(rows):
        raise InputError("No tags: no row has an annotator and a tag.")
    source.keep(rows)
    return rows
