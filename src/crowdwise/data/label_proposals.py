"""Labels that look like another one: what each probably should be, for a person to decide.

======================  ==============================================================================================
why                     a label is proposed to be another where
======================  ==============================================================================================
spelling                they differ in case, blanks, signs of Unicode or the form of a number alone: these are merged by
                        ``normalise_labels`` (:mod:`crowdwise.data.spellings`)
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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crowdwise.data.files import TableFile
from crowdwise.data.heavy import pl
from crowdwise.data.schema import Opt
from crowdwise.data.spellings import MOST, WHOLE, folded, merged, variants
from crowdwise.errors import ColumnError, InputError, LabelError, Option, ParameterError, Remedy, listing, warn

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


def point_out(counts: Mapping[Any, int], declared: Iterable[Any] | None = None) -> None:
    """Say which labels look like a date or a misspelling; nothing is changed."""
    found = [proposal for proposal in propose(counts, declared) if not proposal.sure]
    if found:
        some = "; ".join(f"{p.found!r} ({p.votes:,}) like {p.proposed!r}" for p in found[:3])
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        one, votes = len(found) == 1, sum(p.votes for p in found)
        warn(
            f"{len(found):,} label{'' if one else 's'} with {votes:,} vote{'s' * (votes != 1)} "
            f"{'looks' if one else 'look'} like another, misspelled, marked, shortened or made a date by a "
            f"spreadsheet: {some}{more}.",
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
    found = _day_and_month(text)
    if found is None or not others:
        return None
    there = {f"{a}{sign}{b}" for a, b in (found, found[::-1]) for sign in "-/."}.intersection(others)
    if len(there) == 1:
        return there.pop()
    ranges = [match for label in others if (match := RANGE.fullmatch(label.strip()))]
    signs = [match[2] for match in ranges]
    sign = max(sorted(set(signs)), key=signs.count) if signs else "-"
    rises = all(int(match[1]) <= int(match[3]) for match in ranges)
    return sign.join(map(str, sorted(found) if rises else found))


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


def as_label_map(given: Any) -> dict[str, str]:
    """A map of labels from a mapping, or from a file with the columns ``from`` and ``to``."""
    if isinstance(given, Mapping):
        pairs, where = [(str(old), str(new)) for old, new in given.items()], "label_map"
    elif isinstance(given, (str, os.PathLike)):
        table, where = TableFile.of(given).read()[0], str(given)
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
            f"label_map={given!r}: expected a mapping of labels, or a file with the columns from and to."
        )
    out: dict[str, str] = {}
    for old, new in pairs:
        if out.setdefault(old.strip(), str(new).strip()) != str(new).strip():
            raise InputError(
                f"{where}: {old!r} stands for {out[old.strip()]!r} and for {str(new)!r}. Delete one of them."
            )
    return out
