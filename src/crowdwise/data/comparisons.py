"""The table of comparisons: who found which of two items better.

==============  =============  =======================================================================
field           shape          meaning
==============  =============  =======================================================================
``left``        S              code of one item; the one shown first, where ``placed``
``right``       S              code of the other
``outcome``     S              0: left is better, 1: right is better, 2: a tie
``annotator``   S              code of the annotator
``question``    S or ``None``  what the two were compared on (a prompt, a topic), where it is known
``weight``      S or ``None``  how much a comparison counts (1 where absent)
``timestamp``   S or ``None``  when it was made
``truth``       S or ``None``  the true outcome, -1 where unknown; to measure with, no method looks at it
``left_length`` S or ``None``  how long the answer of the left item is, NaN where unknown; so ``right_length``
``left_probability`` S or ``None``  how probable it is that left is better, of a graded verdict or one with a
                               probability; NaN where the verdict is plain
``extra``       S x columns    what else was to be kept of each comparison (``keep``), with ``extra_names``
``items``, ``annotators``, ``questions``  the names behind the codes, sorted
==============  =============  =======================================================================

The same annotator may compare the same two items many times (two models on many prompts), so by default every row
counts; ``on_duplicate`` says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt

from crowdwise.data import assemble, encoding, schema
from crowdwise.data.assemble import Repeats
from crowdwise.data.encoding import Codes, Counts, Mask, Vocabulary
from crowdwise.data.frames import make_frame
from crowdwise.data.heavy import pl
from crowdwise.data.places import Rows, row_label
from crowdwise.data.schema import CHOICES, COMMON, Beside, Col, Opt
from crowdwise.data.source import Source
from crowdwise.data.table import CodedTable, alike, reader, renumbered
from crowdwise.data.truth import numbers_in
from crowdwise.data.votes import Votes
from crowdwise.errors import InputError, Option, ParameterError, Remedy, listing, warn

LEFT, RIGHT, TIE = 0, 1, 2
OUTCOMES = ("left", "right", "tie")
SIDES = {
    "left": 0, "a": 0, "first": 0, "x": 0, "a1": 0, "right": 1, "b": 1, "second": 1, "y": 1, "a2": 1,
    "tie": 2, "ties": 2, "tied": 2, "draw": 2, "equal": 2, "both": 2, "same": 2, "neither": 2, "none": 2,
}  # fmt: skip
TIES = ("tie", "draw", "both")
"""How words for a tie begin: ``tie (bothbad)``, ``both bad``."""
WORDS = re.compile(r"^(model|item|option|response|answer|assistant|candidate|output|system|player)[\s_\-]*(?=[ab12]$)")
MEANING = Remedy(
    "Say what its words mean: {}.",
    Option("outcomes", python='{1: "left", 2: "right", 0: "tie"}', command="1=left,2=right,0=tie"),
)
OnSelf = Literal["error", "drop"]
LENGTHS = ("left_length", "right_length")
SOFT = ("left_probability", "right_probability", "left_logprob", "right_logprob")
GRADES = {"slightly": 1, "somewhat": 1, "marginally": 1, "barely": 1, "little": 1,
          "much": 3, "significantly": 3, "clearly": 3, "strongly": 3, "far": 3}  # fmt: skip
"""Words for how much better an item is; 2 without any."""
FILLING = re.compile(r"\b(is|the|a bit|better|preferred|prefer|wins?|than|by|bit)\b|[^a-z0-9<>=_ ]")


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons(CodedTable):
    """A frozen, validated table of comparisons. Make one with a ``from_...`` method or
    :func:`crowdwise.read_comparisons`.

    >>> import crowdwise as cw
    >>> rows = [("tea", "coffee", "ann", "left"), ("tea", "milk", "ann", "tie"), ("milk", "tea", "bob", "right")]
    >>> pairs = cw.Comparisons.from_records(rows)
    >>> pairs
    Comparisons(3 comparisons: 3 items x 2 annotators, 1 tie)
    >>> pairs.without(["bob"]).to_frame("dict")["outcome"].tolist()
    ['left', 'tie']
    """

    answer_type: ClassVar[str] = "comparisons"
    columns: ClassVar[tuple[Col, ...]] = (
        Col("left", "items", needed=True), Col("right", "items", needed=True), Col("annotator", "annotators"),
        Col("outcome", "outcomes", needed=True), Col("question", "questions"), *COMMON, Col("truth", "outcomes"),
        Col("left_length"), Col("right_length"), Col("left_probability"), Col("right_probability", per=""),
        Col("left_logprob", per=""), Col("right_logprob", per=""), Col("probability", per=""), Col("chosen", per=""),
        Col("rejected", per=""), Col("anony", per=""),
    )  # fmt: skip
    options: ClassVar[tuple[Opt, ...]] = (
        Opt("outcomes", None,
            'What the outcomes mean, such as ``{1: "left", 2: "right", 0: "tie"}``. By default the name of the better '
            "item, or words: left, a, model_a...; right, b, model_b...; tie, draw, equal, both...; slightly, much, "
            "``A>>B``. Also as text: ``1=left,2=right,0=tie``; a number between those of left and right (1.23) is a "
            "graded verdict.",
            Mapping[Any, str] | str | None),
        Opt("placed", True, "Whether the left item was shown first; not known of chosen/rejected tables.", bool),
        schema.on_duplicate(
            "compared the same two items, in the same places, on the same question,", *CHOICES, default="all"
        ),
        schema.on_missing("an item, annotator or outcome"),
        Opt("keep", None, "Further columns to keep, for covariates (also of both answers) and categories: a list, or "
            "with commas.", list[str] | str | None),
        Opt("on_self", "error", '``"drop"`` leaves out rows that compare an item with itself instead of raising.',
            OnSelf, ("error", "drop")),
    )  # fmt: skip
    outcomes: ClassVar[Vocabulary] = encoding.to_vocabulary(OUTCOMES)
    _rows: ClassVar[str] = "comparisons"
    _act: ClassVar[str] = "compares"
    _record: ClassVar[tuple[str, ...]] = ("left", "right", "annotator", "outcome")
    _by_item: ClassVar[tuple[str, ...]] = ()
    _distinct: ClassVar[bool] = True
    _reading: ClassVar[tuple[Opt, ...]] = ()
    _truths: ClassVar[tuple[str, ...]] = ("truth", "value")
    _truth_in: ClassVar[Any] = staticmethod(numbers_in)
    _forms: ClassVar[str] = (
        "Either with two items and an outcome (left/right/winner, model_a/model_b/winner...), or with the better and "
        "the worse item (chosen/rejected). Without an annotator column all rows are by one, called ``everyone``."
    )

    left: Codes
    right: Codes
    outcome: Codes
    question: Codes | None = None
    questions: Vocabulary | None = None
    left_length: npt.NDArray[np.float64] | None = None
    right_length: npt.NDArray[np.float64] | None = None
    left_probability: npt.NDArray[np.float64] | None = None
    extra: npt.NDArray[np.object_] | None = None
    extra_names: tuple[str, ...] = ()
    placed: bool = True
    """Whether ``left`` is the item that was shown first."""

    @classmethod
    def _from_source(cls, source: Source, **options: Any) -> Comparisons:
        both = "chosen" in source and "rejected" in source
        if both and (source.given["chosen"] is not None or any(part not in source for part in cls._needed())):
            first, second, answers = "chosen", "rejected", list[str]()
        else:
            soft = "outcome" not in source and ("left_probability" in source or all(log in source for log in SOFT[2:]))
            source.require(cls._needed()[: 2 if soft else 3], also="; nor both of chosen and rejected")
            first, second = "left", "right"
            answers = [part for part in SOFT if part in source] if soft else ["outcome"]
        also = [part for part in ("annotator", "question") if part in source]
        _keep_anonymous(source)
        source.complete([first, second, *answers, *also], options["on_missing"])
        meaning = _meanings(options["outcomes"])
        code, items = source.coded(first, second)
        a, b = np.split(code, 2)
        m, annotators = source.coded_or("annotator")
        q, questions = source.coded("question") if "question" in source else (None, None)
        y, graded = _outcome(source, "outcome", a, b, items, meaning) if "outcome" in answers else (None, None)
        truth = _outcome(source, "truth", a, b, items, meaning)[0] if "truth" in source else None
        long: dict[str, Any] = {
            part: source.numbers(part, "a length, 0 or more", empty=True) for part in LENGTHS if part in source
        }
        p = _probability(source, y) if first == "left" else None
        if p is not None:
            less = 0 if y is None else int(((p < 0.5) & (y == LEFT) | (p > 0.5) & (y == RIGHT)).sum())
            if less:
                warn(
                    f"In {less:,} of {len(p):,} rows the verdict is the less probable of the two by the column of "
                    "probabilities. The probability counts: check that it is of the answer that its name says."
                )
            graded = p if graded is None else np.where(np.isnan(p), graded, p)
        if graded is not None:
            y = _nearest(graded) if y is None else np.where(np.isnan(graded), y, _nearest(graded))
            long["left_probability"] = graded
        keep = options["keep"]
        kept = [name.strip() for name in keep.split(",")] if isinstance(keep, str) else list(keep or ())
        for name in kept:
            if not pair_of(name, source.table.columns):
                raise InputError(f"There is no column {name!r} to keep: there are {listing(source.table.columns, 12)}.")
        kept = list(dict.fromkeys(column for name in kept for column in pair_of(name, source.table.columns)))
        if kept:
            cells = np.empty((len(source), len(kept)), dtype=object)
            for n, name in enumerate(kept):
                cells[:, n] = source.table[name].to_list()
            long |= {"extra": cells, "extra_names": tuple(kept)}
        return cls.from_codes(
            a, b, m, np.zeros(len(a), np.int32) if y is None else y, items=items, annotators=annotators, question=q,
            questions=questions, truth=truth, placed=options["placed"] and first == "left",
            on_self=options["on_self"], **long, **source.beside(options),
        )  # fmt: skip

    @classmethod
    def from_codes(
        cls, left: npt.ArrayLike, right: npt.ArrayLike, annotator: npt.ArrayLike, outcome: npt.ArrayLike, *,
        items: Any, annotators: Any, question: npt.ArrayLike | None = None, questions: Any = None,
        left_length: npt.ArrayLike | None = None, right_length: npt.ArrayLike | None = None,
        left_probability: npt.ArrayLike | None = None, placed: bool = True,
        on_self: OnSelf = "error", extra: npt.NDArray[np.object_] | None = None, extra_names: tuple[str, ...] = (),
        **beside: Unpack[Beside],
    ) -> Comparisons:  # fmt: skip
        """Comparisons from arrays of codes and the names behind them (what every other way of making one ends in)."""
        names, who = encoding.to_vocabulary(items), encoding.to_vocabulary(annotators)
        encoding.check_distinct(names, "items")
        encoding.check_distinct(who, "annotators")
        about = encoding.to_vocabulary([] if questions is None else questions)
        coded: dict[str, tuple[Any, Vocabulary]] = {"left": (left, names), "right": (right, names)}
        coded |= {"annotator": (annotator, who), "outcome": (outcome, cls.outcomes)}
        coded |= {} if question is None else {"question": (question, about)}
        code = {name: assemble.checked_codes(values, known, name) for name, (values, known) in coded.items()}
        S = assemble.equally_long(cls._rows, **code)
        fields, repeats = cls._beside(beside, S)
        truth = beside.get("truth")
        fields["truth"] = None if truth is None else _checked_truth(truth, S)
        for name, values in zip((*LENGTHS, SOFT[0]), (left_length, right_length, left_probability), strict=True):
            fields[name] = _checked_numbers(values, S, name)
        fields["extra"] = extra
        keep = _distinct_pairs(code["left"], code["right"], names, on_self, repeats.rows)
        both, names = encoding.sort_vocabulary(np.concatenate([code["left"], code["right"]]), names)
        code["left"], code["right"] = np.split(both, 2)
        code["annotator"], who = encoding.sort_vocabulary(code["annotator"], who)
        if question is not None:
            code["question"], about = encoding.sort_vocabulary(code["question"], about)
        order = _order(code, len(names), len(who), max(len(about), 1))
        order = _once(order[keep[order]], code, names, who, repeats)
        by_row = (*code, "weight", "timestamp", "truth", *LENGTHS, "left_probability", "extra")
        fields |= {name: None if (array := {**code, **fields}[name]) is None else array[order] for name in by_row}
        return cls(items=names, annotators=who, questions=None if question is None else about, placed=placed,
                   extra_names=extra_names, **fields)  # fmt: skip

    def _at(self, rows: npt.NDArray[Any]) -> dict[str, Any]:
        return super()._at(rows) | {"extra": None if self.extra is None else self.extra[rows]}

    def kept(self, name: str) -> npt.NDArray[np.object_]:
        """A column that was kept (``keep``), row by row."""
        if self.extra is None or name not in self.extra_names:
            known = listing(self.extra_names) if self.extra_names else "none"
            raise InputError(
                f"The comparisons keep no column {name!r}: they keep {known}. Read them with keep=[{name!r}]."
            )
        return self.extra[:, self.extra_names.index(name)]

    @property
    def asked(self) -> npt.NDArray[np.int64]:
        """S: the two items of each comparison, in either order, and its question, as one number."""
        N = np.int64(self.n_items)
        pair = np.minimum(self.left, self.right) * N + np.maximum(self.left, self.right)
        return np.asarray(pair if self.question is None else pair + self.question * N**2)

    def votes(self, named: bool = True) -> Votes:
        """One vote for each annotator on every two items (and question): ``first`` of the two by name, ``second`` or
        ``tie``. One who judged them several times has the most frequent of these verdicts, a tie where none is. Without
        names (``named=False``) items are numbers."""
        N = self.n_items
        unit, at = np.unique(self.asked, return_inverse=True)
        verdicts = np.where(self.outcome == TIE, TIE, self.outcome ^ (self.left > self.right))
        cell, of = np.unique(at * np.int64(self.n_annotators) + self.annotator, return_inverse=True)
        count = np.stack([np.bincount(of, verdicts == k, len(cell)) for k in range(3)], axis=1)
        verdict = np.where((count == count.max(axis=1, keepdims=True)).sum(axis=1) == 1, count.argmax(axis=1), TIE)
        names: Any = np.arange(len(unit))
        if named:
            names = [f"{x} | {y}" for x, y in zip(self.items[unit % (N * N) // N], self.items[unit % N], strict=True)]
        if named and self.questions is not None:
            names = [f"{q}: {name}" for q, name in zip(self.questions[unit // (N * N)], names, strict=True)]
        return Votes.from_codes(cell // self.n_annotators, cell % self.n_annotators, verdict, items=names,
                                annotators=self.annotators, classes=["first", "second", "tie"],
                                kind=self.kind)  # fmt: skip

    def __repr__(self) -> str:
        ties = int((self.outcome == TIE).sum())
        return (
            f"Comparisons({self.n_answers:,} comparisons: {self.n_items:,} items x {self.n_annotators:,} annotators, "
            f"{ties:,} {'tie' if ties == 1 else 'ties'})"
        )

    def win_rates(self, kind: str | None = None) -> Any:
        """How often the item of the row won against that of the column, a tie as half a win; ``NaN`` where the two were
        never compared. A table with a row and a column for every item."""
        N, w = self.n_items, self.weights
        won = np.where(self.outcome == TIE, 0.5, self.outcome == LEFT)
        cell = self.left.astype(np.int64) * N + self.right
        back = self.right.astype(np.int64) * N + self.left
        wins = np.bincount(cell, w * won, N * N) + np.bincount(back, w * (1.0 - won), N * N)
        count = np.bincount(cell, w, N * N) + np.bincount(back, w, N * N)
        share = np.where(count > 0, wins / np.where(count > 0, count, 1.0), np.nan).reshape(N, N)
        columns = {"item": self.items} | {str(name): share[:, n] for n, name in enumerate(self.items)}
        return make_frame(columns, kind or self.kind)

    @classmethod
    def answer_columns(cls, answers: Sequence[Any]) -> dict[str, list[Any]]:
        columns = super().answer_columns(answers)
        left, right, outcome, *p = (list(part) for part in zip(*(a.said for a in answers), strict=True))
        both = alike([*left, *right])
        columns |= {"left": both[: len(left)], "right": both[len(left) :], "outcome": outcome}
        columns |= {"left_probability": [np.nan if v is None else v for v in p[0]]} if p and any(p[0]) else {}
        return columns | {"question": columns.pop("item")}

    def usable_gold(self, gold: Mapping[Any, Any]) -> dict[Any, Any]:
        return {}  # the truth of an item is a score, which no tool knows

    def truth_frame(self) -> None:
        """``None``: truths are those of comparisons, not of items."""

    def encode_truth(self, truth: Any) -> Codes:
        """The true outcome of each comparison: 0 (left), 1 (right), 2 (tie) or -1 (unknown)."""
        return _checked_truth(truth, self.n_answers)

    def _of_items(self, items: Counts) -> Self:
        place = renumbered(items, len(self))
        rows = np.flatnonzero((place[self.left] >= 0) & (place[self.right] >= 0))
        code = {"left": place[self.left[rows]], "right": place[self.right[rows]], "annotator": self.annotator[rows]}
        code["outcome"] = self.outcome[rows]
        code |= {} if self.question is None else {"question": self.question[rows]}
        order = _order(code, len(items), self.n_annotators, 1 if self.questions is None else len(self.questions))
        ends = {"left": code["left"][order], "right": code["right"][order]}
        return replace(self, **(self._at(rows[order]) | ends), **self._about(items))

    def _per_item(self) -> npt.NDArray[Any]:
        return np.bincount(np.concatenate([self.left, self.right]), minlength=self.n_items)

    def _counted(self) -> dict[str, Any]:
        share = np.bincount(self.outcome, minlength=3) / max(1, self.n_answers)
        return {
            "pairs": len(np.unique(self.asked % np.int64(self.n_items) ** 2)),
            "questions": 0 if self.questions is None else len(self.questions),
            "outcomes": dict(zip(OUTCOMES, share.tolist(), strict=True)), "placed": self.placed,
        }  # fmt: skip

    def _known(self) -> dict[str, Any]:
        return {"with_truth": int(self.known_truth.sum())}


read_comparisons = reader(Comparisons, "read_comparisons")


def pair_of(name: str, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that a name stands for: those of the two answers, or one that is called so; none without any."""
    if name in columns:
        return (name,)
    for sides in (("left", "right"), ("a", "b"), ("model_a", "model_b"), ("1", "2"), ("first", "second")):
        for form in ("{name}_{side}", "{side}_{name}", "{name}{side}"):
            both = tuple(form.format(name=name, side=side) for side in sides)
            if all(column in columns for column in both):
                return both
    return ()


def _outcome(
    source: Source, part: str, a: Codes, b: Codes, items: Vocabulary, outcomes: Mapping[Any, str] | None
) -> tuple[Codes, npt.NDArray[np.float64] | None]:
    """0, 1, 2 (-1 where empty): by the caller's words, by the name of the better item, or by the usual words; and how
    probable left is, where verdicts are graded."""
    column = source[part]
    if column.dtype.is_float() and not bool((column.drop_nulls() == column.drop_nulls().round()).all()):
        column = column.cast(pl.String)
    code, words = encoding.encode(column)
    bare = [_bare(str(word).strip().lower()) for word in words.tolist()]
    known = [TIE if word.startswith(TIES) else SIDES.get(WORDS.sub("", word), -1) for word in bare]
    by_word = encoding.recode(code, np.array(known, dtype=np.int32))
    if outcomes is not None:
        side = {str(word).strip(): _side(meaning) for word, meaning in outcomes.items()}
        outcome = encoding.recode(
            code, np.array([side.get(str(v).strip(), -1) for v in words.tolist()], dtype=np.int32)
        )
        between = _between(words.tolist(), side)
        share = np.full(len(code), np.nan) if between is None else np.append(between, np.nan)[code]
        if (graded := (outcome < 0) & np.isfinite(share)).any() and not ((outcome < 0) & (code >= 0) & ~graded).any():
            return np.where(graded, _nearest(share), outcome).astype(np.int32), _between_ends(graded, share)
    else:
        name = encoding.recode(code, encoding.locate(words, items))
        by_name = np.where(name == a, 0, np.where(name == b, 1, -1)).astype(np.int32)
        named = ((by_name >= 0) | (by_word == TIE) | (code < 0)).all() and (by_name >= 0).any()
        outcome = np.where((by_name < 0) & (by_word == TIE), TIE, by_name).astype(np.int32) if named else by_word
        numbers = np.array([{"1": LEFT, "2": RIGHT}.get(word, side) for word, side in zip(bare, known, strict=True)])
        by_side = encoding.recode(code, numbers.astype(np.int32))
        other = (by_name >= 0) & (by_side != by_name)
        if named and other.any() and (by_side[code >= 0] >= 0).all():
            word = listing(words[code[np.flatnonzero(other)[:1]]])
            warn(f"Outcomes such as {word} are taken for names of items, not sides: say outcomes if they are sides.")
    bad = np.flatnonzero((outcome < 0) & (code >= 0))
    if len(bad) and outcomes is None and (grades := _grades(bare)) is not None:
        share = np.append(grades, np.nan)[code]
        return _nearest(share), _between_ends(code >= 0, share)
    if len(bad) and outcomes is not None:
        raise source.odd(part, int(bad[0]), f"one of the outcomes that were given, {listing(outcomes, 10)}")
    if len(bad):
        bad = bad[np.argsort(by_name[bad] >= 0, kind="stable")]  # first those that name no item either
        words_for = "the name of one of the two items, or left, right or tie (also a, b, model_a, model_b, draw, equal)"
        raise source.odd(part, int(bad[0]), words_for, remedy=_meaning(words.tolist()))
    return outcome, None


def _bare(word: str) -> str:
    """``[[a]]``, as prompts for judges have it, without brackets; ``[[c]]`` is a tie there."""
    return "tie" if word == "[[c]]" else word[2:-2] if re.fullmatch(r"\[\[\w+\]\]", word) else word


def _meaning(words: Sequence[Any]) -> Remedy:
    """How to say what words for outcomes mean; of grades that are numbers, what their ends mean."""
    numbers = [number_of(word) for word in words]
    ends = [f"{end:g}" for end in (min(numbers), max(numbers))] if len(numbers) > 3 else ["nan"]
    if "nan" in ends:
        return MEANING
    example = Option(
        "outcomes", python=f'{{{ends[0]}: "left", {ends[1]}: "right"}}', command=f"{ends[0]}=left,{ends[1]}=right"
    )
    return Remedy("If these are grades, say which end means which: {}, or the other way round.", example)


def _nearest(share: npt.NDArray[np.float64]) -> Codes:
    return np.where(share == 0.5, TIE, share < 0.5).astype(np.int32)


def _between_ends(rows: Mask, share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
    """How probable left is where a verdict is neither plain nor a tie; ``None`` where none is so."""
    graded = np.where(rows & (share != 0.5) & (share > 0.0) & (share < 1.0), share, np.nan)
    return graded if np.isfinite(graded).any() else None


def number_of(word: Any) -> float:
    """A word as a number, NaN where it is none."""
    try:
        return float(str(word).strip().replace(",", "."))
    except ValueError:
        return float("nan")


def _between(words: Sequence[Any], side: Mapping[str, int]) -> npt.NDArray[np.float64] | None:
    """Of words that are numbers between the ones that mean left and right: how near to left they are, 0 to 1."""
    ends = [number_of(word) for at in (LEFT, RIGHT) for word, means in side.items() if means == at]
    if len(ends) != 2 or ends[0] == ends[1]:
        return None
    share = (np.array([number_of(word) for word in words]) - ends[1]) / (ends[0] - ends[1])
    return np.where((share >= 0.0) & (share <= 1.0), share, np.nan)


def _grades(words_of: Sequence[str]) -> npt.NDArray[np.float64] | None:
    """How probable left is, by words with grades (slightly, much, ``a>>b``): the grades that are used lie at equal
    distances between a tie and a certain verdict. ``None`` where a word has no side."""
    signs, grade = [], []
    for word in words_of:
        plain = re.sub(r"\s*[\[\]]\s*", "", word)
        if match := re.fullmatch(r"a\s*(=|[<>]{1,2})\s*b|b\s*(=|[<>]{1,2})\s*a", plain):
            mark = match.group(1) or match.group(2)
            towards = 0 if mark == "=" else (1 if mark[0] == ">" else -1) * (1 if plain[0] == "a" else -1)
            signs.append(towards)
            grade.append(2 if len(mark) == 1 else 3)
            continue
        words = FILLING.sub(" ", word.replace("_", " ")).split()
        rest = WORDS.sub("", " ".join(w for w in words if w not in GRADES))
        side = TIE if rest.startswith(TIES) else SIDES.get({"1": "a", "2": "b"}.get(rest, rest), -1)
        if side < 0:
            return None
        signs.append(0 if side == TIE else 1 - 2 * side)
        grade.append(next((GRADES[w] for w in words if w in GRADES), 2))
    used = sorted({g for g, s in zip(grade, signs, strict=True) if s})
    return np.array([0.5 + 0.5 * s * (used.index(g) + 1) / len(used) if s else 0.5
                     for g, s in zip(grade, signs, strict=True)])  # fmt: skip


def _keep_anonymous(source: Source) -> None:
    """Leave out the battles of a Chatbot Arena in which the models' names were shown, as its own board does."""
    if "anony" not in source:
        return
    shown = source["anony"].cast(str).str.to_lowercase().is_in(["false", "0"]).fill_null(False)
    if shown.any():
        left_out = f"Left out {int(shown.sum()):,} of {len(source):,} rows: battles that were not anonymous"
        source.keep((~shown).arg_true().to_numpy())
        warn(f"{left_out} (column {source.parts['anony']!r}; remove it to keep them).")


def _probability(source: Source, y: Codes | None) -> npt.NDArray[np.float64] | None:
    """How probable left is, by columns of probabilities: of both answers (what is missing to 1 is a tie), their
    logarithms, of the left one, or of the verdict; ``None`` without any."""
    both = [source.numbers(part, "a number", empty=True) if part in source else None for part in SOFT]
    for part, log in zip(SOFT[2:], both[2:], strict=True):
        if log is not None and len(bad := np.flatnonzero(log > 1e-6)):
            raise source.odd(part, int(bad[0]), "the logarithm of a probability, 0 or less")
    if both[2] is not None and both[3] is not None:
        if len(bad := np.flatnonzero(np.isinf(both[2]) & np.isinf(both[3]))):
            raise source.odd(SOFT[2], int(bad[0]), "finite for one of the two answers")
        return np.asarray(1.0 / (1.0 + np.exp(np.clip(both[3] - both[2], -700, 700))))
    left, right = both[0], both[1]
    if left is None and "probability" in source and y is not None:
        sure = source.numbers("probability", "a probability", empty=True)
        left = np.where(y == TIE, 0.5, np.where(y == LEFT, sure, 1.0 - sure))
        warn(f"Column {source.parts['probability']!r} is taken for the probability of each verdict: a vote counts so "
             "much for it, the rest against it.")  # fmt: skip
    for share, part in ((left, "left_probability" if both[0] is not None else "probability"),
                        (right, "right_probability")):  # fmt: skip
        if share is not None and len(bad := np.flatnonzero((share < 0.0) | (share > 1.0))):
            raise source.odd(part, int(bad[0]), "a probability, from 0 to 1")
    if left is None or right is None:
        return left
    return np.clip(left + 0.5 * (1.0 - left - right), 0.0, 1.0)


def _meanings(outcomes: Any) -> Mapping[Any, str] | None:
    """What the words for outcomes mean, from a mapping or from text such as ``1=left,2=right,0=tie``."""
    if outcomes is None or isinstance(outcomes, Mapping):
        return outcomes
    pairs = [pair.partition("=") for pair in str(outcomes).split(",") if pair.strip()]
    if not pairs or not all(equals and word.strip() for word, equals, _ in pairs):
        raise ParameterError("expected word=side for every word, such as 1=left,2=right,0=tie.",
                             about=Option("outcomes", outcomes))  # fmt: skip
    return {word.strip(): side.strip().lower() for word, _, side in pairs}


def _side(word: Any) -> int:
    if word not in OUTCOMES:
        raise ParameterError(f"outcomes names {word!r}: expected 'left', 'right' or 'tie' for every word of the table.")
    return OUTCOMES.index(word)


def _checked_truth(truth: npt.ArrayLike, S: int) -> Codes:
    codes = np.asarray(truth)
    if codes.shape != (S,) or codes.dtype.kind not in "iu" or (S and (codes.min() < -1 or codes.max() > TIE)):
        raise InputError(
            f"truth must hold, for each of the {S} comparisons, 0 (left), 1 (right), 2 (tie) or -1 (unknown)."
        )
    return codes.astype(np.int32)


def _checked_numbers(given: npt.ArrayLike | None, S: int, name: str) -> npt.NDArray[np.float64] | None:
    """A length or a probability for each row."""
    if given is None:
        return None
    numbers, most = np.asarray(given, dtype=np.float64), 1.0 if name in SOFT else np.finfo(float).max
    if numbers.shape != (S,) or (numbers < 0.0).any() or (numbers > most).any():
        range_ = "from 0 to 1" if name in SOFT else "of 0 or more"
        raise InputError(f"{name} must hold, for each of the {S} comparisons, a number {range_}, or NaN.")
    return numbers


def _distinct_pairs(a: Codes, b: Codes, items: Vocabulary, on_self: OnSelf, rows: Rows) -> Mask:
    """Which rows compare two different items."""
    if on_self not in ("error", "drop"):
        raise ParameterError(f"on_self={on_self!r}: expected 'error' or 'drop'.")
    same = a == b
    if same.any() and on_self == "error":
        at = int(np.flatnonzero(same)[0])
        raise InputError(
            f"{int(same.sum()):,} {'rows compare' if same.sum() > 1 else 'row compares'} an item with itself: "
            f"{listing(items[a[at : at + 1]])} in {row_label(at, rows)}. Such a row "
            "says nothing about items.",
            remedy=Remedy("Leave it out with {}.", Option("on_self", "drop")),
        )
    if same.all():
        raise InputError("No comparisons: the table holds only items compared with themselves.")
    return np.asarray(~same)


def _order(code: Mapping[str, Codes], N: int, M: int, Q: int) -> Counts:
    """Rows by question, left, right, annotator, outcome, then as they came."""
    parts = [(name, size) for name, size in zip(BY, (Q, N, N, M, 3), strict=True) if name in code]
    if Q * N * N * M * 3 < 2**62:  # one key sorts faster than five
        key = np.zeros(len(code["left"]), dtype=np.int64)
        for name, size in parts:
            key = key * size + code[name]
        return np.asarray(np.argsort(key, kind="stable"))
    return np.asarray(np.lexsort([code[name] for name, _ in reversed(parts)]))


BY = ("question", "left", "right", "annotator", "outcome")


def _once(
    order: Counts, code: Mapping[str, Codes], items: Vocabulary, annotators: Vocabulary, repeats: Repeats
) -> Counts:
    """The order without repeated comparisons, or with them, as was asked for."""
    if repeats.on_duplicate == "all":
        return order
    keys = [code[name] for name in BY[:4] if name in code]
    by: list[Any] = [order, *(key[order] for key in reversed(keys))]  # within a pair and annotator, as they came
    order = order[np.lexsort(by)]
    same = np.logical_and.reduce([np.diff(key[order]) == 0 for key in keys])
    if not same.any():
        return order
    a, b, m = (code[name] for name in ("left", "right", "annotator"))
    return repeats.resolved(order, same, lambda row: (listing(annotators[m[[row]]]), listing(items[[a[row], b[row]]])))
