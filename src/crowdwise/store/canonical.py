"""Names of a campaign in one form: text or an integer of 64 bits, written as JSON, so that 7 and "7" differ.

What cannot be read back as it was given is refused before anything is acknowledged: NaN, fractions, tuples, text that
is not valid Unicode. In one column all names are text or all are integers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from crowdwise.core.constraints import is_number
from crowdwise.errors import InputError, ParameterError

MOST_PRICE = 1e12


def name_text(name: Any, what: str, *, booleans: bool = False) -> str:
    """The JSON text of a name; ``what`` it names is for the message."""
    value = name.item() if isinstance(name, np.generic) else name
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # integers that once shared a column with missing values
    if isinstance(value, bool):
        known = booleans
    elif isinstance(value, int):
        known = -(2**63) <= value < 2**63
    else:
        known = isinstance(value, str) and value.strip() != "" and is_unicode(value)
    if not known:
        raise InputError(
            f"The {what} {name!r} cannot be kept: expected text or an integer of at most 64 bits. Nothing was added."
        )
    return json.dumps(value if isinstance(value, (bool, int)) else str(value))


def is_unicode(text: str) -> bool:
    """Whether a text can be written: it has no half of a surrogate pair."""
    return text.encode(errors="replace").decode() == text


def one_kind(texts: Iterable[str], what: str) -> None:
    """Raise an error where names are of two kinds."""
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault("text" if text[0] == '"' else "a boolean" if text[0] in "tf" else "an integer", text)
        if len(first) > 1:
            (one, a), (other, b) = first.items()
            raise InputError(
                f"Names of {what} are of one kind: {json.loads(a)!r} is {one} and {json.loads(b)!r} is {other}. "
                "Give all as text, or all as integers. Nothing was added."
            )


def as_kind(text: str, first: str | None) -> str:
    """The JSON text of a name in the kind of one that is there (``first``): "7" for 7, 7 for "7". Names of one column
    are of one kind, so that a name of the other kind can only mean this. What has no other kind stays as it is."""
    if first is None or (text[0] == '"') == (first[0] == '"'):
        return text
    value = json.loads(text)
    if isinstance(value, int):
        return text if isinstance(value, bool) else json.dumps(str(value))
    number = value.removeprefix("-")
    whole = number.isascii() and number.isdecimal() and (number == "0" or number[0] != "0") and value != "-0"
    return value if whole and len(number) < 20 and -(2**63) <= int(value) < 2**63 else text


def checked_price(name: Any, price: Any) -> float:
    """The price of a vote of an annotator; an error where it is none."""
    if not (is_number(price) and 0 < price < MOST_PRICE):
        raise ParameterError(f"The price of {name!r} is {price!r}: expected a number above 0.")
    return float(price)


def id_text(name: Any) -> str:
    """The text of the id of a vote."""
    text: Any = json.loads(name_text(name, "id"))
    return str(text)
