"""Labels that differ only in case or blanks: ``yes``, ``Yes`` and ``yes `` are one class, spelled in three ways.

So are letters that Unicode can write in two ways (``é`` as one sign, or as ``e`` and an accent: files of a Mac have
these; ``Ａ`` as wide as a Chinese sign), signs without width, dashes and quotes; and ``1`` and ``1.0``, which two
exports of the same labels hold.

Names of annotators and items may be spelled in two ways as well. That is said, and nothing is changed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crowdwise.data import encoding
from crowdwise.data.columns import names_a_verdict
from crowdwise.data.encoding import Codes, Vocabulary
from crowdwise.data.schema import Opt
from crowdwise.errors import Option, Remedy, listing, warn

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
    return {name: found[0] for name in names if len(found := groups.get(folded(name), [])) == 1}


def point_out(counts: Mapping[Any, int]) -> None:
    """Say which labels differ only in case or blanks."""
    found = list(variants(counts).values()) if len(counts) <= MOST else []
    if found:
        pairs, more = _in_pairs(found)
        number = sum(map(len, found)) - len(found)
        warn(
            f"Labels that differ only in case or blanks{more} are different classes: {pairs}. ({number:,} could be "
            "merged; crowdwise check lists them.)",
            remedy=MERGE,
        )


def _in_pairs(found: list[list[Any]]) -> tuple[str, str]:
    """Some of the names that are spelled in several ways; and what else they differ in, where it is invisible."""
    texts = [str(name) for names in found for name in names]
    unseen = any(not name.isascii() and _tidy(name) != " ".join(name.split()) for name in texts)
    numbers = any(len({_tidy(n) for n in names if NUMBER.fullmatch(_tidy(n))}) > 1 for names in found)
    pairs = "; ".join(", ".join(map(ascii, names)) if unseen else listing(names) for names in found[:3])
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
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
    found = [spelled for spelled in groups.values() if len(spelled) > 1]
    if found:
        how = "case or blanks" if what == "annotators" else "blanks"
        pairs, more = _in_pairs(found)
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


def counted(names: Iterable[Any]) -> dict[Any, int]:
    """How often each name occurs."""
    out: dict[Any, int] = {}
    for name in names:
        out[name] = out.get(name, 0) + 1
    return out


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
    counts = counted(label for some in sets for label in some)
    if not normalise:
        point_out(counts)
        return sets
    stands = merged(counts, declared or ())
    return [list(dict.fromkeys(stands[label] for label in some)) for some in sets]
