"""Answers as importers find them, question by question, and the tables that are made of them.

Times are seconds since 1970. Spans of characters are tags of tokens: a text is cut into words, and further wherever
some span begins or ends.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from crowdwise.data.masks import pack, polygon_mask, unpack

ZONES = {"UTC": 0, "GMT": 0, "PST": -8, "PDT": -7, "MST": -7, "MDT": -6, "CST": -6, "CDT": -5, "EST": -5, "EDT": -4}
NAMED = re.compile(r"^\w{3} (\w{3} \d{1,2} \d\d:\d\d:\d\d) (\w{3,4}) (\d{4})$")
FORMS = ("%m/%d/%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S UTC", "%m/%d/%Y %H:%M", "%Y/%m/%d %H:%M:%S")


def seconds(value: Any) -> float | None:
    """A time in seconds; ``None`` where there is none, or it cannot be read. Without a zone it is taken for UTC.

    >>> seconds("2023-11-14T22:13:20Z"), seconds("Tue Nov 14 14:13:20 PST 2023"), seconds(1700000000000)
    (1700000000.0, 1700000000.0, 1700000000.0)
    """
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _parsed(str(value).strip())
    if number != number or abs(number) > 1e18:
        return None
    while abs(number) > 1e11:  # milliseconds, microseconds
        number /= 1000
    return number


def _parsed(text: str) -> float | None:
    named = NAMED.match(text)
    try:
        if named:
            day, zone, year = named.groups()
            time = datetime.strptime(f"{day} {year}", "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
            return time.timestamp() - 3600 * ZONES.get(zone, 0)
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    for form in FORMS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def number(value: Any) -> float | None:
    """A finite number; ``None`` where there is none."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) < float("inf") else None


def as_object(value: Any) -> dict[str, Any]:
    """A JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[dict[str, Any]]:
    """The objects of a JSON list; none of anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


WORD = re.compile(r"\w+|[^\w\s]")
Span = tuple[int, int, str]
"""Where a span begins, where it ends (that character not included), and its label."""


def tokens_of(
    text: str, spans: Iterable[Span], tokens: Iterable[tuple[int, int]] | None = None
) -> list[tuple[int, int]]:
    """The tokens of a text (its words, where the tool has none), cut so that every span begins and ends with one.

    >>> tokens_of("Anna saw Paris.", [(0, 2, "PER")])
    [(0, 2), (2, 4), (5, 8), (9, 14), (14, 15)]
    """
    cuts = sorted({place for start, end, _ in spans for place in (start, end)})
    out: list[tuple[int, int]] = []
    for first, last in (found.span() for found in WORD.finditer(text)) if tokens is None else tokens:
        inside = cuts[bisect_right(cuts, first) : bisect_left(cuts, last)]
        out += pairwise([first, *inside, last])
    return out


UNITS: tuple[Callable[[str, str], int], ...] = (
    lambda c, after: 1, lambda c, after: 1 + (ord(c) > 0xFFFF), lambda c, after: not (c == "\r" and after == "\n"),
)  # fmt: skip
"""How far tools count a character (and what follows it): one, by the halves of UTF-16, or CRLF as one."""
BLANKS = re.compile(r"\\n|\s+")


def placed(text: str, spans: Sequence[tuple[Any, ...]]) -> tuple[list[Span], list[str]]:
    """Spans (start, end, label; words, where they are known) of a text by characters, in the unit by which the
    words are where they should be; and the words that are not there in any unit.

    >>> placed("\U0001f600 Anna", [(3, 7, "PER", "Anna")])
    ([(2, 6, 'PER')], [])
    """
    tried: list[tuple[list[Span], list[str]]] = []
    for width in UNITS if any(len(span) > 3 and span[3] for span in spans) else UNITS[:1]:
        at = None
        if width is not UNITS[0]:
            pairs = enumerate(zip(text, text[1:] + " ", strict=True))
            at = [*(n for n, pair in pairs for _ in range(width(*pair))), len(text)]
        places, lost = list[Span](), list[str]()
        for start, end, label, *more in spans:
            words = more[0] if more else None
            if at is not None:
                start, end = (at[place] if 0 <= place < len(at) else place for place in (start, end))
            places.append((start, end, label))
            if words and BLANKS.sub("", words) != BLANKS.sub("", text[start:end]):
                lost.append(words)
        tried.append((places, lost))
        if not lost:
            break
    return min(tried, key=lambda one: len(one[1]))


def upright(box: Sequence[float], degrees: float, about: Sequence[float]) -> list[float]:
    """The upright box around a box (x1, y1, x2, y2) that is turned about a point.

    >>> [round(edge, 9) for edge in upright((0, 0, 4, 2), 90, (2, 1))]
    [1.0, -1.0, 3.0, 3.0]
    """
    turn = math.radians(degrees)
    x, y = ([box[k] - about[k % 2] for k in part] for part in ((0, 2, 2, 0), (1, 1, 3, 3)))
    xs = [about[0] + a * math.cos(turn) - b * math.sin(turn) for a, b in zip(x, y, strict=True)]
    ys = [about[1] + a * math.sin(turn) + b * math.cos(turn) for a, b in zip(x, y, strict=True)]
    return [min(xs), min(ys), max(xs), max(ys)]


def overlap(spans: Iterable[Span]) -> bool:
    """Whether some of the spans share a character."""
    return any(two[0] < one[1] for one, two in pairwise(sorted(spans)))


def bio(tokens: Sequence[tuple[int, int]], spans: Iterable[Span]) -> list[str]:
    """The tag of each token: ``B-label`` where a span begins, ``I-label`` in it, ``O`` elsewhere.

    >>> bio([(0, 4), (5, 8), (9, 14)], [(0, 8, "X")])
    ['B-X', 'I-X', 'O']
    """
    tags = ["O"] * len(tokens)
    first, last = [token[0] for token in tokens], [token[1] for token in tokens]
    for start, end, label in spans:
        inside = range(bisect_right(last, start), bisect_left(first, end))
        for n in inside:
            tags[n] = f"{'B' if n == inside[0] else 'I'}-{label}"
    return tags


CHOICES, NUMBERS, PAIRS, RANKINGS, SPANS = "choices", "ratings", "comparisons", "rankings", "tags"
BOXES, EVENTS, MASKS, OFFSETS, TEXTS = "boxes", "events", "masks", "spans", "texts"
"""Kinds of questions: names of answer types, but for choices, which are votes or label sets, and events, which are
boxes in time. Spans that overlap are not tags of tokens, but offsets."""
MOST_PIXELS = 2**28
TURNED = "Boxes that are turned are read as the upright boxes around them."
LAST = "earlier answers of the same annotator to the same item"
EMPTY = "without an answer"


class Pair(NamedTuple):
    """Two items, and which is better."""

    left: Any
    right: Any
    outcome: str
    probability: float | None = None
    """How probable left is, where that was said."""


class Answer(NamedTuple):
    """One answer; what ``said`` holds is up to the kind of question."""

    item: Any
    annotator: Any
    said: Any
    time: float | None
    duration: float | None


@dataclass
class ExportQuestion:
    """A question and its answers. ``gold`` maps items to what is true of them; ``several``: any number of classes may
    be chosen, though no annotator chose more than one; ``overlapping``: some annotator has spans that overlap."""

    kind: str
    several: bool = False
    overlapping: bool = False
    answers: list[Answer] = field(default_factory=list)
    gold: dict[Any, Any] = field(default_factory=dict)
    drawn: dict[tuple[Any, Any], ShapesDrawn] = field(default_factory=dict)


@dataclass
class ShapesDrawn:
    """What an annotator drew on an image: (label, edges...) of boxes, (label, x, y) of points, (height, width, packed)
    for each class of masks."""

    shapes: list[tuple[Any, ...]] = field(default_factory=list)
    masks: dict[str, tuple[int, int, bytes]] = field(default_factory=dict)
    time: Any = None
    duration: Any = None


class Collector:
    """What an importer finds. Importers call its methods, in any order. ``when`` holds the ``time`` and ``duration`` of
    an answer, where they are known."""

    def __init__(self, predictions: bool = False) -> None:
        self.predictions = predictions
        self.questions: dict[str, ExportQuestion] = {}
        self.alone: dict[str, Counter[str]] = {}
        """Questions that no table is for -> what they hold, and how often."""
        self.left_out: Counter[str] = Counter()
        self.items: dict[Any, dict[str, Any]] = {}
        self.annotators: dict[Any, dict[str, Any]] = {}
        self.texts: dict[Any, str] = {}
        self.tokens: dict[Any, list[tuple[int, int]]] = {}
        self.misplaced: list[tuple[Any, str]] = []
        """Items of spans whose words are elsewhere, and these words."""
        self.notes: list[str] = []
        self.looked: dict[tuple[Any, Any], tuple[Any, Any]] = {}
        """Images and annotators who looked at them, whatever they drew, with time and duration."""

    def leave_out(self, why: str, count: int = 1) -> None:
        """Count something that is not an answer."""
        if count:
            self.left_out[why] += count

    def note(self, text: str) -> None:
        """Say something about the export, once."""
        if text not in self.notes:
            self.notes.append(text)

    def about_item(self, item: Any, /, **about: Any) -> None:
        """Texts, addresses and attributes of an item."""
        if named(item) is not None:
            self.items.setdefault(named(item), {}).update(_plain(about))

    def about_annotator(self, annotator: Any, /, **about: Any) -> None:
        """What is known of an annotator."""
        if named(annotator) is not None:
            self.annotators.setdefault(named(annotator), {}).update(_plain(about))

    def choices(self, question: str, item: Any, annotator: Any, labels: Iterable[Any], **when: Any) -> None:
        """One class, or any number of them: which it is follows from all answers to the question."""
        chosen = list(dict.fromkeys(plain_label(label) for label in labels if label is not None))
        self._add(question, CHOICES, item, annotator, chosen, **when)

    def several(self, question: str) -> None:
        """Say that any number of classes may be chosen, none included."""
        self._question(question, CHOICES).several = True

    def number(self, question: str, item: Any, annotator: Any, value: Any, **when: Any) -> None:
        """A number on a scale."""
        x = number(value)
        if x is None:
            self.leave_out(EMPTY)
        else:
            self._add(question, NUMBERS, item, annotator, x, **when)

    def pair(
        self, question: str, on: Any, annotator: Any, left: Any, right: Any, outcome: str, *,
        probability: float | None = None, **when: Any,
    ) -> None:  # fmt: skip
        """Which of two is better: left, right or tie, or how probable left is. ``on``: what they were compared on."""
        first, second = named(left), named(right)
        if first is None or second is None or first == second:
            self.leave_out("without two items to compare")
        else:
            self._add(question, PAIRS, on, annotator, Pair(first, second, outcome, probability), **when)

    def ranking(self, question: str, on: Any, annotator: Any, items: Sequence[Any], **when: Any) -> None:
        """Items in order, the best first."""
        if len(items) > 1:
            ranked = list(dict.fromkeys(clean(str(item)) for item in items))
            self._add(question, RANKINGS, on, annotator, ranked, **when)
        else:
            self.leave_out(EMPTY)

    def spans(
        self, question: str, item: Any, annotator: Any, text: str, spans: Iterable[Sequence[Any]], *,
        tokens: Sequence[tuple[int, int]] | None = None, true: bool = False, **when: Any,
    ) -> None:  # fmt: skip
        """Spans of a text (none at all is an answer too): start, end, label, and the words there where the tool writes
        them; tokens where the tool has its own. ``true``: they are the truth as well."""
        text = clean(text)
        spans_given = [(int(start), int(end), clean(str(label)), *words) for start, end, label, *words in spans]
        whole, lost = placed(text, spans_given)
        self.misplaced += [(named(item), words) for words in lost]
        kept = sorted({span for span in whole if 0 <= span[0] < span[1] <= len(text)})
        self.leave_out("spans that are there twice, or lie outside their text", len(whole) - len(kept))
        if named(item) is None:
            self.leave_out("without an item or an annotator")
            return
        self.texts[named(item)] = text
        if tokens is not None and all(isinstance(place, int) for both in tokens for place in both):
            self.tokens.setdefault(named(item), list(tokens))
        self._question(question, SPANS).overlapping |= overlap(kept)
        self._add(question, SPANS, item, annotator, tuple(kept), **when)
        if true:
            self._question(question, SPANS).gold[named(item)] = tuple(kept)

    def answer(self, kind: str, question: str, item: Any, annotator: Any, said: Any, **when: Any) -> None:
        """An answer of any type, by its name; the table of the type makes its columns (``answer_columns``)."""
        self._add(question, kind, item, annotator, said, **when)

    def looks(self, item: Any, annotator: Any, time: Any = None, duration: Any = None) -> None:
        """An annotator looked at an image: what they did not draw is not there, in their eyes."""
        if named(item) is not None and named(annotator) is not None:
            self.looked[named(item), named(annotator)] = (time, duration)

    def shape(self, question: str, item: Any, annotator: Any, label: Any, *places: Any, **when: Any) -> None:
        """A box (x1, y1, x2, y2; with two numbers more of volumes: x1, y1, z1, x2, y2, z2) or a point (x, y)."""
        ends = [number(place) for place in places]
        D = len(ends) // 2
        if None in ends or (D > 1 and any(ends[D + d] <= ends[d] for d in range(D))):  # type: ignore[operator]
            self.leave_out("without a box of positive width and height")
            return
        drawn = self._drawn(question, BOXES, item, annotator, **when)
        if drawn is not None:
            drawn.shapes.append((clean(str(label)), *ends))

    def rectangle(
        self, question: str, item: Any, annotator: Any, label: Any, left: Any, top: Any, width: Any, height: Any,
        **when: Any,
    ) -> None:  # fmt: skip
        """A box by its corner, width and height."""
        x, y, w, h = (number(value) for value in (left, top, width, height))
        far = (None, None) if x is None or y is None or w is None or h is None else (x + w, y + h)
        self.shape(question, item, annotator, label, x, y, *far, **when)

    def polygon(
        self, question: str, item: Any, annotator: Any, label: Any, points: Any, height: Any, width: Any, **when: Any
    ) -> None:
        """The mask inside of a polygon of (x, y), or of numbers in turn."""
        flat = [number(v) for p in points for v in (p if isinstance(p, (list, tuple)) else (p,))]
        h, w = number(height), number(width)
        if not h or not w or h * w > MOST_PIXELS or None in flat or len(flat) < 6 or len(flat) % 2:
            self.leave_out("polygons without three corners, or on images of unknown size")
            return
        self.mask(question, item, annotator, label, polygon_mask(flat, int(h), int(w)), **when)  # type: ignore[arg-type]

    def event(self, question: str, item: Any, annotator: Any, label: Any, start: Any, end: Any, **when: Any) -> None:
        """A stretch of time: a box with two edges."""
        first, last = number(start), number(end)
        if first is None or last is None or last <= first:
            self.leave_out("events that end before they start")
            return
        drawn = self._drawn(question, EVENTS, item, annotator, **when)
        if drawn is not None:
            drawn.shapes.append((clean(str(label)), first, last))

    def mask(self, question: str, item: Any, annotator: Any, label: Any, mask: Any, **when: Any) -> None:
        """A part of a mask; those of one class are put together."""
        drawn = self._drawn(question, MASKS, item, annotator, **when)
        if drawn is None:
            return
        (h, w), name = mask.shape, clean(str(label))
        earlier = drawn.masks.get(name)
        if earlier is not None and earlier[:2] != (h, w):
            self.leave_out("masks of another size than others of the image")
            return
        both = mask if earlier is None else mask | unpack(earlier[2], h, w)
        drawn.masks[name] = (h, w, pack(both))

    def true_shapes(self, question: str, item: Any, annotator: Any) -> None:
        """What this annotator drew is true."""
        for q in (q for n, q in self.questions.items() if n.startswith(clean(question))):
            drawn = q.drawn.get((named(item), named(annotator)))
            if drawn is not None:
                q.gold[named(item)] = drawn.masks if q.kind == MASKS else drawn.shapes

    def _drawn(
        self, question: str, kind: str, item: Any, who: Any, time: Any = None, duration: Any = None
    ) -> ShapesDrawn | None:
        item, who = named(item), named(who)
        if item is None or who is None:
            self.leave_out("without an item or an annotator")
            return None
        self.looked.setdefault((item, who), (time, duration))
        by_pair = self._question(question, kind).drawn
        drawn = by_pair.setdefault((item, who), ShapesDrawn(time=time, duration=duration))
        if (seconds(time) or 0.0) > (seconds(drawn.time) or 0.0):  # a later annotation of the same image
            drawn = by_pair[item, who] = ShapesDrawn(time=time, duration=duration)
        return drawn if drawn.time == time else None

    def gather(self) -> None:
        """Make answers of what was drawn, with empty ones of those who looked at an image and drew nothing."""
        if self.misplaced:
            (item, words), count = self.misplaced[0], len(self.misplaced)
            self.note(
                f"Spans that hold other words than the tool wrote at their offsets: {count:,} (first {words[:40]!r} of "
                f"item {item!r}). Check that texts were not changed after annotation."
            )
        for question in self.questions.values():
            for (item, who), drawn in question.drawn.items():
                answer = drawn.masks if question.kind == MASKS else drawn.shapes
                question.answers.append(Answer(item, who, answer, seconds(drawn.time), number(drawn.duration)))
            for (item, who), (time, duration) in self.looked.items() if question.drawn else ():
                if (item, who) not in question.drawn:
                    nothing: Any = {} if question.kind == MASKS else []
                    question.answers.append(Answer(item, who, nothing, seconds(time), number(duration)))

    def other(self, question: str, what: str) -> None:
        """An answer of a kind that there is no table for: relations, lines, attributes..."""
        self.alone.setdefault(question, Counter())[what] += 1

    def gold(self, question: str, item: Any, labels: Any, kind: str = CHOICES) -> None:
        """What is true of an item."""
        if kind == SPANS:
            asked = self._question(question, SPANS)
            asked.gold[named(item)], asked.overlapping = tuple(labels), asked.overlapping or overlap(labels)
            return
        if kind == CHOICES:
            labels = [plain_label(label) for label in labels if label is not None]
        if labels not in ([], None) and named(item) is not None:
            self._question(question, kind).gold[named(item)] = labels

    def _question(self, name: str, kind: str) -> ExportQuestion:
        name = clean(name)
        question = self.questions.setdefault(name, ExportQuestion(kind))
        if question.kind == kind:
            return question
        return self.questions.setdefault(f"{name} ({kind})", ExportQuestion(kind))

    def _add(
        self, question: str, kind: str, item: Any, annotator: Any, said: Any, time: Any = None, duration: Any = None
    ) -> None:
        item, annotator = named(item), named(annotator)
        if item is None or annotator is None:
            self.leave_out("without an item or an annotator")
            return
        answer = Answer(item, annotator, said, seconds(time), number(duration))
        self._question(question, kind).answers.append(answer)


def named(name: Any) -> str | int | None:
    """The name of an item or an annotator: text or a whole number; ``None`` where it is neither."""
    if isinstance(name, float) and name.is_integer():
        name = int(name)
    if isinstance(name, bool) or not isinstance(name, (str, int)) or name == "":
        return None
    return clean(name) if isinstance(name, str) else name if abs(name) < 2**63 else str(name)


def plain_label(label: Any) -> Any:
    """A label as text, a whole number or a truth value."""
    if isinstance(label, bool):
        return label
    name = named(label)
    return clean(str(label)) if name is None else name


def clean(text: str) -> str:
    """Text without halves of characters, which JSON may hold and no file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _plain(about: Mapping[str, Any]) -> dict[str, Any]:
    """What can be a cell of a table: text, numbers (as text beyond 64 bits) and truth values."""
    out: dict[str, Any] = {}
    for name, value in about.items():
        if isinstance(value, str):
            out[clean(name)] = clean(value)
        elif isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 2**63):
            out[clean(name)] = value
    return out


def once(answers: Sequence[Answer]) -> list[Answer]:
    """The last answer of each annotator to each item, by time where it is known, in the order in which they came.
    Different pairs of items, compared on the same question, are different items."""
    last: dict[tuple[Any, ...], Answer] = {}
    for answer in answers:
        pair = answer.said[:2] if isinstance(answer.said, Pair) else ()
        key = (answer.item, answer.annotator, *pair)
        earlier = last.pop(key, None)
        late = earlier is not None and (earlier.time or 0.0) > (answer.time or 0.0)
        last[key] = earlier if late and earlier is not None else answer
    return list(last.values())


def columns_of_spans(collected: Collector, answers: Sequence[Answer]) -> dict[str, list[Any]]:
    """One row per span, with the length of the text; one without label and offsets where nothing was marked."""
    names = ("item", "annotator", "label", "start", "end", "length", "timestamp", "duration")
    rows = [
        (a.item, a.annotator, label, start, end, len(collected.texts[a.item]), a.time, a.duration)
        for a in answers
        for start, end, label in (a.said or ((None, None, None),))
    ]
    return {name: [row[n] for row in rows] for n, name in enumerate(names)}


def tokens_by_item(
    collected: Collector, question: ExportQuestion, answers: Sequence[Answer]
) -> dict[Any, list[tuple[int, int]]]:
    """Item -> its tokens, cut wherever a span of the question, or a true one, begins or ends."""
    every: dict[Any, list[Span]] = {
        item: list(spans) for item, spans in question.gold.items() if item in collected.texts
    }
    for answer in answers:
        every.setdefault(answer.item, []).extend(answer.said)
    return {item: tokens_of(collected.texts[item], spans, collected.tokens.get(item)) for item, spans in every.items()}


def columns_of_tags(
    collected: Collector, every: Mapping[Any, Sequence[tuple[int, int]]], answers: Sequence[Answer]
) -> dict[str, list[Any]]:
    """One row per token and annotator."""
    out: dict[str, list[Any]] = {
        name: [] for name in ("sequence", "position", "word", "annotator", "tag", "timestamp", "duration")
    }
    for answer in answers:
        text, tokens = collected.texts[answer.item], every[answer.item]
        for position, (place, tag) in enumerate(zip(tokens, bio(tokens, answer.said), strict=True)):
            row = (answer.item, position, text[slice(*place)], answer.annotator, tag, answer.time, answer.duration)
            for column, value in zip(out.values(), row, strict=True):
                column.append(value)
    return out
