"""Labels that differ only in case or blanks: ``yes``, ``Yes`` and ``yes `` are one class, spelled in three ways.

So are letters that Unicode can write in two ways (``é`` as one sign, or as ``e`` and an accent: files of a Mac have
these; ``Ａ`` as wide as a Chinese sign), signs without width, dashes and quotes; and ``1`` and ``1.0``, which two
exports of the same labels hold.

Names of annotators and items may be spelled in two ways as well. That is said, and nothing is changed.

Labels that look like another one: what each probably should be, for a person to decide.

======================  ==============================================================================================
why                     a label is proposed to be another where
======================  ==============================================================================================
spelling                they differ in case, blanks, signs of Unicode or the form of a number alone: these are merged by
                        ``normalise_labels`` (as above)
a date                  a spreadsheet made ``2024-02-01 00:00:00`` or ``1-Feb`` of ``1-2``
a mark                  it is another with ``?``, ``!`` or ``.`` at its end, or a note in brackets
short                   it is the first letter of the other (``y``, ``yes``), or differs in zeros before a number
a misspelling           it is rare, the other is frequent, and they are one edit apart (two in long words): a letter
                        more, less, different, or two exchanged
======================  ==============================================================================================

Dates and misspellings are guesses: nothing but a map of labels merges them.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdwise.data import encoding
from crowdwise.data.columns import names_a_verdict
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.files import TableFile
from crowdwise.data.heavy import pl
from crowdwise.data.schema import Opt
from crowdwise.errors import ColumnError, InputError, LabelError, Option, ParameterError, Remedy, listing, warn

NORMALISE = Opt(
    "normalise_labels", False,
    "Merge labels that differ only in case, blanks, forms of Unicode or of whole numbers (``yes``, ``Yes``, ``yes ``; "
    "``1``, ``1.0``) into the most common spelling.",
    bool,
)  # fmt: skip
MOST = 10_000
"""More labels than this are texts, of which each is as it is."""
MOST_TEXTS, TEXTS = 20, 0.5
"""Above this number, and this share of rows, different labels are texts as well."""
MOST_NAMES = 200_000
"""Of more names than this spellings are not compared."""
MERGE = Remedy("Merge them with {}.", Option("normalise_labels", True, command=""))


UNSEEN = dict.fromkeys(map(ord, "\u200b\u2060\ufeff\u00ad"))
"""Invisible characters."""


FORMS = {wide: chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)}
FORMS |= {ord(sign): "-" for sign in "\u2010\u2011\u2012\u2013\u2212"} | {
    ord(sign): "'" for sign in "\u2018\u2019\u02bc"
}
FORMS |= {ord(sign): '"' for sign in "\u201c\u201d\u201e"}
"""Wide forms, dashes and quotes -> the plain signs."""
ROUNDED = re.compile(r"\d(?:[.,]\d+)?E\+\d\d")
WHOLE = re.compile(r"([+-]?\d{1,15})[.,]0{1,6}")
MISSING, MOST_CODE = frozenset((99, 999, 9999)), 20
"""Numbers, with either sign, by which codebooks say that there is no answer, and the largest code beside them."""
NO_ANSWER = frozenset((
    "abstain", "abstains", "abstained", "?", "??", "-", "--", ".", "n/a", "#n/a", "#nv", "#ref!", "#value!", "#wert!",
    "#div/0!", "#name?", "#bezug!", "n.a.", "none", "nil", "skip", "skipped", "missing", "unlabeled", "unlabelled",
    "k.a.", "k. a.", "keine angabe", "s/o", "n.d.", "sans réponse", "no aplica", "sin respuesta", "não se aplica",
    "sem resposta", "无", "未标注", "跳过",
))  # fmt: skip
"""Labels that mostly stand for no answer, the errors of formulas among them."""
NUMBER = re.compile(r"(\d{1,15})(?:[.,]0{1,6})?")
"""Whole numbers in any form: ``7``, ``007``, ``7.0``."""


def folded(name: Any) -> Any:
    """A name without what does not tell labels apart; names that are not text (but booleans) as they are.

    >>> folded(" Yes "), folded("cafe\u0301") == folded("Caf\u00e9"), folded("1.0"), folded("\uff21"), folded(True)
    ('yes', True, '1', 'a', 'true')
    """
    if not isinstance(name, str):
        return str(name).lower() if isinstance(name, bool) else name
    plain = str(_tidy(name)).casefold()
    plain = plain if plain.isascii() else plain.translate(FORMS)
    return whole[1] if (whole := WHOLE.fullmatch(plain)) else plain


def variants(counts: Mapping[Any, int]) -> dict[Any, list[Any]]:
    """Spellings of the same label, the most common first, where there is more than one; from labels and their counts.

    >>> variants({"yes": 3, "Yes": 5, "no": 2})
    {'yes': ['Yes', 'yes']}
    """
    groups: dict[Any, list[Any]] = {}
    for name in counts:
        groups.setdefault(folded(name), []).append(name)
    return {
        key: sorted(names, key=lambda name: (-counts[name], str(name))) for key, names in groups.items()
        if len(names) > 1
    }  # fmt: skip


def merged(counts: Mapping[Any, int], declared: Iterable[Any] = ()) -> dict[Any, Any]:
    """Each spelling -> the one that stands for its label: the declared one, else the most common one, without blanks
    around it; of whole numbers ``1`` and not ``1.0``, where some label is one without a point."""
    best = {key: _tidy(names[0]) for key, names in variants(counts).items()}
    numbers = [name for name in counts if isinstance(name, str) and WHOLE.fullmatch(name.strip())]
    if numbers and any(isinstance(name, str) and re.fullmatch(r"\s*[+-]?\d+\s*", name) for name in counts):
        best |= {folded(name): folded(name) for name in numbers}
    best |= {folded(name): name for name in declared}
    return {name: best.get(folded(name), _tidy(name)) for name in counts}


def _tidy(name: Any) -> Any:
    if not isinstance(name, str):
        return name
    return " ".join((name if name.isascii() else unicodedata.normalize("NFC", name).translate(UNSEEN)).split())


def same_spelling(names: Iterable[Any], known: Iterable[Any]) -> dict[Any, Any]:
    """Names -> the known ones that differ from them only in case or blanks, where there is exactly one."""
    groups: dict[Any, list[Any]] = {}
    for name in known:
        groups.setdefault(folded(name), []).append(name)
    return {name: same[0] for name in names if len(same := groups.get(folded(name), [])) == 1}


def point_out(counts: Mapping[Any, int]) -> None:
    """Say which labels differ only in case or blanks."""
    groups = list(variants(counts).values()) if len(counts) <= MOST else []
    if groups:
        pairs, more = _in_pairs(groups)
        number = sum(map(len, groups)) - len(groups)
        warn(
            f"Labels that differ only in case or blanks{more} are different classes: {pairs}. ({number:,} could be "
            "merged; crowdwise check lists them.)",
            remedy=MERGE,
        )


def _in_pairs(groups: list[list[Any]]) -> tuple[str, str]:
    """Some of the names that are spelled in several ways; and what else they differ in, where it is invisible."""
    texts = [str(name) for names in groups for name in names]
    unseen = any(not name.isascii() and _tidy(name) != " ".join(name.split()) for name in texts)
    numbers = any(len({_tidy(n) for n in names if NUMBER.fullmatch(_tidy(n))}) > 1 for names in groups)
    pairs = "; ".join(", ".join(map(ascii, names)) if unseen else listing(names) for names in groups[:3])
    more = f"; and {len(groups) - 3} more" if len(groups) > 3 else ""
    ways = [
        word
        for word, there in (("signs of Unicode that look alike", unseen), ("the form of numbers", numbers))
        if there
    ]
    return pairs + more, f" (or in {' or '.join(ways)})" if ways else ""


def point_out_names(names: Any, what: str) -> None:
    """Say which names of annotators differ only in case or blanks, or are those of a truth, and which of items differ
    only in blanks (their case may matter: ``dQw4`` and ``dqw4`` are two videos)."""
    if names.dtype != object or len(names) > MOST_NAMES:
        return
    groups: dict[str, list[str]] = {}
    texts = (names.array if isinstance(names, encoding.TextNames) else names).tolist()
    looks = any("E+" in str(name) for name in texts[:20])
    rounded = [name for name in texts if isinstance(name, str) and ROUNDED.fullmatch(name)] if looks else []
    if 2 * len(rounded) > len(texts):
        warn(
            f"The names of {len(rounded):,} {what} are numbers that a spreadsheet rounded, such as {rounded[0]!r}: "
            "different ones may look the same now. Export them again as text."
        )
    for name in filter(names_a_verdict, texts if what == "annotators" else ()):
        warn(
            f"{name!r} counts as an annotator. If these are the answers that were agreed on, give them in a column of "
            "truth, or in a file of its own."
        )
    for name in texts:
        if isinstance(name, str):
            plain = folded(name) if what == "annotators" else _tidy(name)
            groups.setdefault(str(int(match[1])) if (match := NUMBER.fullmatch(plain)) else plain, []).append(name)
    several = [spelled for spelled in groups.values() if len(spelled) > 1]
    if several:
        how = "case or blanks" if what == "annotators" else "blanks"
        pairs, more = _in_pairs(several)
        warn(
            f"The names of some {what} differ only in {how}{more}, and count as different {what}: {pairs}. If they are "
            "the same, spell them alike."
        )


def missing_codes(numbers: Sequence[Any]) -> list[Any]:
    """Those of some numbers that may stand for no answer: 99 or -999 beside small ones.

    >>> missing_codes([1, 2, 99]), missing_codes([97, 98, 99])
    ([99], [])
    """
    far = [number for number in numbers if abs(number) in MISSING]
    near = [abs(number) for number in numbers if abs(number) not in MISSING]
    return far if len(near) > 1 and max(near) <= MOST_CODE else []


def point_out_abstentions(code: Codes, names: Vocabulary, option: str) -> None:
    """Say which class may stand for no answer: a word of that, 99 or -999 beside small codes, -1 beside codes from 0.

    -1, 0 and 1 may be classes (negative, neutral, positive) unless most of the labels are -1.
    """
    if names.dtype == object:
        doubtful = [name for name in names.tolist()[:MOST] if isinstance(name, str) and folded(name) in NO_ANSWER]
    else:
        far = missing_codes(names.tolist())
        codes = sorted(set(names.tolist()).difference(far))
        unclear = codes == [-1, 0, 1] and 2 * np.count_nonzero(names[code] == -1) <= len(code)
        doubtful = far + [-1] * (len(codes) > 2 and codes[0] == -1 and codes[1] >= 0 and not unclear)
    if doubtful:
        warn(
            f"{listing(doubtful)} {'is read as a class' if len(doubtful) == 1 else 'are read as classes'}.",
            remedy=Remedy(
                "If it stands for no answer, say {}." + " Map the others to it first." * (len(doubtful) > 1),
                Option(option, doubtful[0]),
            ),
        )


def nearly(name: Any) -> str:
    """What is left of the name of an item without case, blanks, and zeros at its beginning."""
    return str(folded(str(name))).lstrip("0")


def counted_codes(code: Codes, names: Vocabulary) -> dict[Any, int]:
    """How often each name occurs among codes."""
    return dict(zip(names.tolist(), np.bincount(code[code >= 0], minlength=len(names)).tolist(), strict=True))


def in_codes(
    code: Codes, names: Vocabulary, normalise: bool, declared: Iterable[Any] | None
) -> tuple[Codes, Vocabulary]:
    """Codes of labels and their names, with spellings merged if that was asked for, else pointed out."""
    if names.dtype != object:
        return code, names
    if not normalise and len(names) > max(MOST_TEXTS, TEXTS * len(code)):  # texts of their own, not classes
        return code, names
    counts = counted_codes(code, names)
    if not normalise:
        point_out(counts)
        return code, names
    stands = merged(counts, declared or ())
    kept = encoding.to_vocabulary(list(dict.fromkeys(stands.values())))
    place = {name: k for k, name in enumerate(kept.tolist())}
    new = np.array([place[stands[name]] for name in names.tolist()], dtype=np.int32)
    return encoding.recode(code, new), kept


def in_sets(sets: list[list[Any]], normalise: bool, declared: Iterable[Any] | None) -> list[list[Any]]:
    """The same for sets of labels."""
    counts = Counter(label for labels in sets for label in labels)
    if not normalise:
        point_out(counts)
        return sets
    stands = merged(counts, declared or ())
    return [list(dict.fromkeys(stands[label] for label in some)) for some in sets]


LABEL_MAP = Opt(
    "label_map", None,
    "What labels stand for: a mapping, or a file with the columns ``from`` and ``to``. Others stay as they are.", Any,
)  # fmt: skip
BY_MAP = Remedy(
    "crowdwise check lists them, and writes a map of them with --write-map labels.csv; merge them with {}.",
    Option("label_map", python="'labels.csv'", command="labels.csv"),
)
COMPARED = 300
"""Of more labels than this, misspellings are not looked for."""
RARE, FEW = 0.1, 3
"""A misspelling has at most this share of the votes of the other label, which has more than ``FEW``."""
SHORT, LONG = 4, 9
"""Words below the first length have no misspellings; from the second on two edits are one."""
MONTHS = {
    word: number
    for number, words in enumerate((
        "jan janv ene januar", "feb fév fev févr februar", "mar mrz mär mars märz", "apr avr abr april", "may mai maio",
        "jun juin juni", "jul juil juli", "aug ago août aout august", "sep sept set september", "oct okt out oktober",
        "nov november", "dec dez déc dic dezember",
    ), 1)
    for word in words.split()
}  # fmt: skip
DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T]00:00:00(?:\.0+)?)?")
DAY_MONTH = re.compile(r"(\d{1,2})\.?[- ]?([^\W\d_]{3,9})\.?")
MONTH_DAY = re.compile(r"([^\W\d_]{3,9})\.?[- ]?(\d{1,2})")
MARKED = re.compile(r"(.*\w)\s*(?:[?!.]+|\([^()]*\)|\[[^\[\]]*\])")
RATED = re.compile(r"(.*\w)\s*[(\[]\s*[\d.,]+\s*%?\s*[)\]]")
"""A label with a number in brackets: ``neutral (0.7)``, ``neutral (80 %)``."""
RANGE = re.compile(r"(\d+)\s*([-/.])\s*(\d+)")


@dataclass(frozen=True)
class LabelProposal:
    """A label, how many votes it has, what it probably should be, and why. ``sure``: ``normalise_labels`` merges it."""

    found: Any
    votes: int
    proposed: Any
    why: str
    sure: bool


def propose(counts: Mapping[Any, int], declared: Iterable[Any] | None = None) -> list[LabelProposal]:
    """What labels with such numbers of votes probably should be; those that are declared are right.

    >>> for found in propose({"negativ": 40, "negatv": 2, "positiv": 38, "Positiv": 9}):
    ...     print(found.found, found.votes, found.proposed, found.why, sep=" | ")
    Positiv | 9 | positiv | differs in case
    negatv | 2 | negativ | looks like a misspelling
    """
    if not counts or len(counts) > MOST:
        return []
    known = set(() if declared is None else declared)
    texts = {name: n for name, n in counts.items() if isinstance(name, str)}
    stands, groups = merged(texts, known), variants(texts)
    out = [
        LabelProposal(name, texts[name], to, _difference(name, str(to)), True)
        for name, to in stands.items()
        if name != to and name not in known and (folded(name) in groups or WHOLE.fullmatch(name.strip()))
    ]
    total: dict[str, int] = {}
    for name, n in texts.items():
        total[stands[name]] = total.get(stands[name], 0) + n
    folds = {folded(name): name for name in total}
    unsettled = {name: n for name, n in total.items() if name not in known}
    doubts: dict[str, tuple[str, str]] = {}  # the first reason stays
    for name in unsettled:
        if to := _before_it_was_a_date(name, total):
            doubts[name] = to, "is a date that a spreadsheet made"
    for name, n in unsettled.items():
        match = MARKED.fullmatch(name.strip())
        if match and (to := folds.get(folded(match[1]))) and total[to] > n:
            doubts.setdefault(name, (to, "is the other with a mark or a note"))
    bases = {name: match[1] for name in unsettled if (match := RATED.fullmatch(name.strip()))}
    for name, base in bases.items():
        if list(bases.values()).count(base) > 1:
            doubts.setdefault(name, (base, "has a number in brackets"))
    for name, to in _first_letters(total).items():
        doubts.setdefault(name, (to, "is its first letter"))
    for name, to in _with_zeros(total).items():
        doubts.setdefault(name, (to, "is the same number with other zeros"))
    for name in unsettled if len(total) <= COMPARED else ():
        if name not in doubts and (near := _misspelled(name, total)) is not None:
            doubts[name] = near, "looks like a misspelling"
    out += [LabelProposal(name, total[name], *doubt, False) for name, doubt in doubts.items() if name in unsettled]
    return sorted(out, key=lambda p: (not p.sure, str(p.found)))


def point_out_proposals(counts: Mapping[Any, int], declared: Iterable[Any] | None = None) -> None:
    """Say which labels look like a date or a misspelling; nothing is changed."""
    doubts = [proposal for proposal in propose(counts, declared) if not proposal.sure]
    if doubts:
        first = "; ".join(f"{p.found!r} ({p.votes:,}) like {p.proposed!r}" for p in doubts[:3])
        more = f"; and {len(doubts) - 3} more" if len(doubts) > 3 else ""
        one, votes = len(doubts) == 1, sum(p.votes for p in doubts)
        warn(
            f"{len(doubts):,} label{'' if one else 's'} with {votes:,} vote{'s' * (votes != 1)} "
            f"{'looks' if one else 'look'} like another, misspelled, marked, shortened or made a date by a "
            f"spreadsheet: {first}{more}.",
            remedy=BY_MAP,
        )


def check_dates(column: pl.Series) -> None:
    """An error where all labels of a sheet are dates: what was typed (1-2, 3-4) is not in the file."""
    if column.dtype not in (pl.Date, pl.Datetime):
        return
    dates = column.drop_nulls().unique().sort().dt.strftime("%Y-%m-%d %H:%M:%S").to_list()
    raise LabelError(
        f"The labels (column {column.name!r}) are {len(dates):,} dates, such as {dates[0]!r}: a spreadsheet makes "
        "dates of labels such as 1-2. Type them again in cells that are formatted as text.",
        remedy=Remedy(
            "Or say what each stands for: {}.",
            Option("label_map", python=f"{{{dates[0]!r}: '1-2', ...}}", command="labels.csv"),
        ),
    )


def _difference(name: str, to: str) -> str:
    """What two spellings differ in."""
    for what, change in (
        ("blanks", lambda text: "".join(text.split())), ("case", str.casefold), ("case and blanks",
         lambda text: "".join(text.split()).casefold()),
    ):  # fmt: skip
        if change(name) == change(to):
            return f"differs in {what}"
    return "is another form of the number" if WHOLE.fullmatch(name.strip()) else "differs in signs of Unicode"


def _before_it_was_a_date(name: str, labels: Iterable[str]) -> str | None:
    """What was typed, where a label is a date and others are not: a label of theirs, or a range as they write them."""
    text, others = name.strip(), [label for label in labels if _day_and_month(label.strip()) is None]
    day = _day_and_month(text)
    if day is None or not others:
        return None
    there = {f"{a}{sign}{b}" for a, b in (day, day[::-1]) for sign in "-/."}.intersection(others)
    if len(there) == 1:
        return there.pop()
    ranges = [match for label in others if (match := RANGE.fullmatch(label.strip()))]
    signs = [match[2] for match in ranges]
    sign = max(sorted(set(signs)), key=signs.count) if signs else "-"
    rises = all(int(match[1]) <= int(match[3]) for match in ranges)
    return sign.join(map(str, sorted(day) if rises else day))


def _day_and_month(text: str) -> tuple[int, int] | None:
    if match := DATE.fullmatch(text):
        return int(match[3]), int(match[2])
    if (match := DAY_MONTH.fullmatch(text)) and match[2].lower() in MONTHS:
        return int(match[1]), MONTHS[match[2].lower()]
    if (match := MONTH_DAY.fullmatch(text)) and match[1].lower() in MONTHS:
        return int(match[2]), MONTHS[match[1].lower()]
    return None


def _first_letters(total: Mapping[str, int]) -> dict[str, str]:
    """``y`` beside ``yes``: labels of one letter, where each is the first one of exactly one longer label."""
    letters = [name for name in total if len(name.strip()) == 1 and name.strip().isalpha()]
    longer = {n: [other for other in total if other not in letters and folded(other)[:1] == folded(n)] for n in letters}
    single = all(len(others) == 1 for others in longer.values())
    return {name: others[0] for name, others in longer.items()} if single else {}


def _with_zeros(total: Mapping[str, int]) -> dict[str, str]:
    """``01`` beside ``1``, as one program drops zeros and another keeps them; the most frequent stays."""
    same: dict[int, list[str]] = {}
    for name in total:
        if re.fullmatch(r"[0-9]{1,15}", name.strip()):
            same.setdefault(int(name), []).append(name)
    best = {number: max(names, key=lambda name: (total[name], name)) for number, names in same.items()}
    return {name: best[n] for n, names in same.items() for name in names if name != best[n]}


def _misspelled(name: str, total: Mapping[str, int]) -> str | None:
    """The frequent label that a rare one is near to: the most frequent, then the first by name. Numbers in labels and
    their first letters must be the same: ``grade 1`` is not ``grade 2``, ``typical`` not ``atypical``."""
    word = folded(name)
    near = [
        other for other, n in total.items()
        if n > FEW and total[name] <= RARE * n and other != name and _near(word, folded(other))
    ]  # fmt: skip
    return min(near, key=lambda other: (-total[other], other), default=None)


def _near(word: str, other: str) -> bool:
    least = min(len(word), len(other))
    most = 0 if least < SHORT else 1 if least < LONG else 2
    if abs(len(word) - len(other)) > most or not most or word[0] != other[0]:
        return False
    return re.findall(r"\d", word) == re.findall(r"\d", other) and edits(word, other, most) <= most


def edits(word: str, other: str, most: int | None = None) -> int:
    """The fewest letters to add, take away, change, or exchange with the next, between two words; with
    ``most`` no more than one above that, so that long words take little time.

    >>> edits("negatv", "negativ"), edits("negaitv", "negativ"), edits("cat", "dog")
    (1, 1, 3)
    """
    from rapidfuzz.distance import OSA

    return int(OSA.distance(word, other, score_cutoff=most))


def as_label_map(labels: Any) -> dict[str, str]:
    """A map of labels from a mapping, or from a file with the columns ``from`` and ``to``."""
    if isinstance(labels, Mapping):
        pairs, where = [(str(old), str(new)) for old, new in labels.items()], "label_map"
    elif isinstance(labels, (str, os.PathLike)):
        table, where = TableFile.of(labels).read()[0], str(labels)
        names = {str(name).strip().lower(): name for name in table.columns}
        if not {"from", "to"} <= set(names):
            raise ColumnError(
                f"{where}: a map of labels has the columns from and to, and this has {listing(table.columns)}."
            )
        pairs = list(zip(map(str, table[names["from"]]), table[names["to"]], strict=True))
        if empty := [old for old, new in pairs if new is None or not str(new).strip()]:
            raise InputError(f"{where}: {listing(empty)} stand for nothing. Fill in the column to, or delete the rows.")
    else:
        raise ParameterError(
            f"label_map={labels!r}: expected a mapping of labels, or a file with the columns from and to."
        )
    out: dict[str, str] = {}
    for old, new in pairs:
        if out.setdefault(old.strip(), str(new).strip()) != str(new).strip():
            raise InputError(
                f"{where}: {old!r} stands for {out[old.strip()]!r} and for {str(new)!r}. Delete one of them."
            )
    return out
