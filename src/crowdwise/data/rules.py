"""Votes from rules: functions and regular expressions that name a class or abstain.

Each rule is an annotator that saw every item. All items and all rules are in the votes, also those without any: what a
rule is silent on is information (:mod:`crowdwise.core.crowd_kind`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crowdwise.data import encoding
from crowdwise.data.alignment import named_rows, with_index
from crowdwise.data.boundary import guarded
from crowdwise.data.columns import find
from crowdwise.data.frames import is_frame, is_missing, is_series, kind_of, make_frame, native, to_polars
from crowdwise.data.votes import Votes
from crowdwise.errors import ColumnError, InputError, LabelError, ParameterError, listing

Rule = Callable[[Any], Any] | tuple[Any, Any]
"""A function of an item that returns a class or abstains; or (test, class), the test a regular expression or such a
function that returns true or false."""


@guarded
def apply_rules(
    items: Any, rules: Mapping[str, Rule] | Sequence[Rule], *, text: str | None = None, item: str | None = None,
    abstain: Any = -1, classes: Sequence[Any] | None = None,
) -> Votes:  # fmt: skip
    """Votes of rules on items: each rule is an annotator who names a class or abstains.

    Parameters
    ----------
    items
        Texts, or whatever the rules look at: a list, an array, a dict by the names of items, a pandas Series (its index
        names them, unless it is 0, 1, 2, ...), or a table, of which each rule gets the column ``text``, else a dict of
        the row.
    rules
        A list, or a dict by the names of the rules. A rule is a function of an item that returns a class, or ``None``
        to abstain; or a pair (test, class), where the test is a regular expression (text or compiled, searched in the
        item) or a function that returns true or false.
    text, item
        Of a table: the column that the rules get, and the column that names the items.
    abstain
        A further value by which functions abstain.
    classes
        All classes, in order; by default those that occur, sorted.

    >>> import crowdwise as cw
    >>> def short(comment):
    ...     return "ham" if len(comment.split()) < 4 else None
    >>> comments = {"a": "check out my channel", "b": "love this song", "c": "what is it called?"}
    >>> votes = cw.apply_rules(comments, [short, ("check out|http", "spam")])
    >>> votes
    Votes(2 votes: 3 items x 2 annotators x 2 classes)
    >>> votes.annotators.tolist()
    ['short', 'check out|http']
    """
    names, values = _items(items, text, item)
    functions = _functions(rules)
    rows: list[tuple[int, int, Any]] = []
    for m, (rule, function) in enumerate(functions.items()):
        for n, value in enumerate(values):
            try:
                label = function(value)
            except Exception as error:  # the user's own code: it may raise anything
                raise InputError(
                    f"Rule {rule!r} failed on item {listing(names[[n]])}: {type(error).__name__}: {error}. Correct the "
                    "rule, or let it return None for such items. No votes were made."
                ) from error
            label = label.item() if isinstance(label, np.generic) else label
            if is_missing(label):
                continue
            if not isinstance(label, (str, int, float)):
                raise LabelError(
                    f"Rule {rule!r} returned {repr(label)[:60]} for item {listing(names[[n]])}: expected a class "
                    "(text, a whole number or a boolean), or None to abstain."
                )
            if isinstance(label, bool) or label != abstain:
                rows.append((n, m, label))
    if not rows:
        raise InputError(f"No votes: all {len(functions)} rules abstain on all {len(values)} items.")
    on, by, labels = zip(*rows, strict=True)
    code, label_names = encoding.encode(make_frame({"label": list(labels)})["label"])
    return Votes.from_codes(
        np.array(on), np.array(by), code, items=names, annotators=list(functions), label_names=label_names,
        classes=classes, kind=kind_of(items),
    )  # fmt: skip


def _items(items: Any, text: str | None, item: str | None) -> tuple[encoding.Vocabulary, list[Any]]:
    """The names of items, and what rules get of each."""
    kind, items = type(items).__name__, native(items)
    names: Any = None
    if is_frame(items):
        table = to_polars(with_index(items, {"item": item}))
        column = item or find(table.columns, "item")
        for name in (text, column):
            if name is not None and name not in table.columns:
                raise ColumnError(f"No column {name!r}: the table has {listing(table.columns, 12)}.")
        named = named_rows(items)
        names = table[column].to_list() if column else None if named is None else named.values
        values = table.to_dicts() if text is None else table[text].to_list()
    elif text is not None or item is not None:
        raise ParameterError(
            f"text and item name columns of a table, and the items are of type {kind}. Leave them out."
        )
    elif isinstance(items, Mapping):
        names, values = list(items), list(items.values())
    elif isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        raise InputError(f"Expected several items (a list, a dict, a Series, a table) and found {kind}.")
    else:
        named = named_rows(items) if is_series(items) else None
        names, values = None if named is None else named.values, list(items)
    if not values:
        raise InputError("There are no items to apply rules to.")
    vocabulary = encoding.to_vocabulary(range(len(values)) if names is None else names)
    encoding.check_distinct(vocabulary, "items")
    return vocabulary, values


def _functions(rules: Mapping[str, Rule] | Sequence[Rule]) -> dict[str, Callable[[Any], Any]]:
    """Rules by their names, each as a function of an item."""
    if not isinstance(rules, (Mapping, list, tuple)) or not rules:
        raise ParameterError("rules: expected a list of rules, or a dict of them by name, with one rule at least.")
    out: dict[str, Callable[[Any], Any]] = {}
    for place, (given, rule) in enumerate(rules.items() if isinstance(rules, Mapping) else ((None, r) for r in rules)):
        name = str(given if given is not None else _name(rule, place))
        if name in out:
            raise ParameterError(f"Two rules are called {name!r}. Name them: a dict of rules by name.")
        out[name] = _function(name, rule)
    return out


def _name(rule: Any, place: int) -> str:
    """What a rule is called where the caller gives it no name: as its function or its pattern, else by its place."""
    test = rule[0] if isinstance(rule, tuple) and rule else rule
    own = test if isinstance(test, str) else ""
    for attribute in ("__name__", "name", "pattern"):
        own = own or str(getattr(test, attribute, ""))
    return f"rule {place}" if own in ("", "<lambda>") else own


def _function(name: str, rule: Any) -> Callable[[Any], Any]:
    """A rule as a function that returns a class or ``None``."""
    if callable(rule):
        return rule  # type: ignore[no-any-return]
    if not isinstance(rule, tuple) or len(rule) != 2:
        raise ParameterError(
            f"Rule {name!r} is {str(rule)[:60]!r}: expected a function, or a pair (test, class) whose test is a "
            "regular expression or a function."
        )
    test, label = rule
    if callable(test):
        return lambda value: label if test(value) else None
    try:
        search = re.compile(test).search
    except (TypeError, re.error) as error:
        raise ParameterError(f"Rule {name!r}: {test!r} is not a regular expression: {error}.") from None
    return lambda value: None if is_missing(value) or not search(value) else label
