"""What tags mean: BIO (which tags may follow which, and the spans they spell out), or plain tags without any rule.

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.data.encoding import Mask
from crowdwise.errors import LabelError, ParameterError, listing

SCHEMES = ("auto", "bio", "plain")
BIO = re.compile(r"O|[BI]-.+", flags=re.S)

Ints = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Spans:
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
            "Mend them, or say scheme='plain'."
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


def find_spans(code: Ints, starts: Ints, classes: npt.NDArray[Any], scheme: str) -> Spans:
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
    return Spans(sequence, begin - at, end - at, kind[code[begin]])
