"""What is wrong with a request, in plain words: where, what was expected, what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from crowdwise.errors import either

EXPECTED = {
    "string_type": "text", "int_type": "a whole number", "int_parsing": "a whole number",
    "int_from_float": "a whole number", "float_type": "a number", "float_parsing": "a number",
    "finite_number": "a finite number", "bool_type": "true or false", "bool_parsing": "true or false",
    "list_type": "a list", "dict_type": "an object, {...}", "model_type": "an object, {...}",
    "model_attributes_type": "an object, {...}",
}  # fmt: skip
"""Kinds of errors of pydantic -> what the interface expects."""
WORDS = {"missing": "is missing", "extra_forbidden": "is not known here"}
SHOWN = 60
"""Letters of a value that are shown."""

__all__ = ["in_words"]


def in_words(errors: Iterable[Mapping[str, Any]], limit: int = 20) -> list[dict[str, str]]:
    """One entry for each place, with what is wrong there. Where a body may have several forms, the nearest one counts.

    >>> in_words([{"type": "missing", "loc": ("body", "Vote", "label"), "msg": "Field required", "input": {}}])
    [{'where': 'body.label', 'what': 'is missing'}]
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for error in _nearest(list(errors)):
        found.setdefault(_where(error), []).append(error)
    return [{"where": where, "what": _what(some)} for where, some in list(found.items())[:limit]]


def _is_form(part: Any) -> bool:
    """Whether a part of a place names a form of the body (``Vote``), not a field of it."""
    return isinstance(part, str) and part[:1].isupper()


def _is_kind(part: Any) -> bool:
    """Whether a part of a place names a type that a value was tried as."""
    return isinstance(part, str) and (part in ("str", "int", "float", "bool", "constrained-str") or "[" in part)


def _nearest(errors: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The errors of the form with the fewest places that have any."""
    forms: dict[str, set[str]] = {}
    for error in errors:
        if len(error["loc"]) > 1 and _is_form(error["loc"][1]):
            forms.setdefault(error["loc"][1], set()).add(_where(error))
    best = min(forms, key=lambda form: len(forms[form]), default=None)
    return [error for error in errors if best is None or error["loc"][1:2] in ((), (best,))]


def _where(error: Mapping[str, Any]) -> str:
    loc = list(error["loc"])
    if error["type"] == "json_invalid":
        return str(loc[0]) if loc else "all of it"
    last = loc.pop() if error["type"] in WORDS and loc else None
    parts = [part for n, part in enumerate(loc) if not _is_kind(part) and not (n == 1 and _is_form(part))]
    return ".".join(map(str, parts if last is None else [*parts, last]))


def _what(errors: list[Mapping[str, Any]]) -> str:
    first = errors[0]
    kind = first["type"]
    if kind == "json_invalid":
        why, place = first.get("ctx", {}).get("error", "it cannot be read"), first["loc"][1:]
        return f"this is no JSON: {why}" + (f" at character {place[0]}" if place else "")
    if kind in WORDS:
        return WORDS[kind]
    value = first.get("input")
    said = [EXPECTED.get(error["type"]) or ("text" if value == "" else _expected(error["msg"])) for error in errors]
    shown = "null" if value is None else repr(value) if isinstance(value, (str, int, float)) else _article(value)
    return f"expected {either(list(dict.fromkeys(said)))}, and found {shown[:SHOWN]}"


def _expected(message: str) -> str:
    """What a message of pydantic asks for."""
    for opening in ("Input should be ", "String should have ", "Value should have ", "List should have "):
        if message.startswith(opening):
            return message.removeprefix(opening)
    return message[:1].lower() + message[1:]


def _article(value: Any) -> str:
    return "a list" if isinstance(value, (list, tuple)) else "an object" if isinstance(value, dict) else "other content"
