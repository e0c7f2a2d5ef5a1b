"""Which column of a table plays which part, whatever people call it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from crowdwise.errors import ColumnError, Option, Remedy, listing, suggestion

SAME = ("same", "yes", "y", "true", "t", "1", "1.0", "similar", "match", "must-link", "must link")
DIFFERENT = ("different", "no", "n", "false", "f", "0", "0.0", "dissimilar", "mismatch", "cannot-link", "cannot link")
"""The words for the two answers about similarity; case does not matter."""
ALIASES: dict[str, tuple[str, ...]] = {
    part: tuple(names.split(", "))
    for part, names in {
        "item": "item, task, unit, example, instance, sample, question, document, doc, image, object, microtask",
        "annotator":
            "annotator, worker, rater, user, coder, labeler, labeller, judge, expert, reviewer, assessor, performer, "
            "participant",
        "label":
            "label, answer, response, rating, class, category, vote, choice, judgment, judgement, annotation, value",
        "value":
            "value, rating, score, number, estimate, measurement, grade, label, answer, response, judgment, "
            "judgement, annotation",
        "item_a":
            "item a, item 1, item1, first item, item left, left item, task a, task 1, object a, object 1, image a, "
            "image 1, a, left, first, id a, id 1, i",
        "item_b":
            "item b, item 2, item2, second item, item right, right item, task b, task 2, object b, object 2, image b, "
            "image 2, b, right, second, id b, id 2, j",
        "same":
            "same, similar, is same, same class, same cluster, same group, same kind, match, is match, duplicate, is "
            "duplicate, must link, linked",
        "labels": "labels, label set, labelset, chosen, chosen labels, categories",
        "offered": "offered, offered labels, options, candidates",
        "weight": "weight",
        "timestamp": "timestamp, created at, submitted at, annotated at",
        "sequence": "sequence, sentence, sent, document, doc, paragraph, utterance",
        "position": "position, token, index, token index, token position, offset",
        "word": "word, form, surface, token text, text",
        "tag": "tag, bio, iob, label, annotation, answer, class",
        "source": "source, from, left, head",
        "target": "target, to, right, tail",
        "truth": "truth, gold, true label, gold label, ground truth, true class, gt",
        "left": "left, item a, model a, option a, response a, answer a, item 1, item1, model 1, first, a",
        "right": "right, item b, model b, option b, response b, answer b, item 2, item2, model 2, second, b",
        "outcome":
            "outcome, winner, preferred, preference, verdict, result, label, choice, judgment, judgement, vote, "
            "answer",
        "left_length":
            "left length, length a, length left, length 1, first length, left tokens, tokens a, left words, words a, "
            "left chars, chars a, len a",
        "right_length":
            "right length, length b, length right, length 2, second length, right tokens, tokens b, right words, "
            "words b, right chars, chars b, len b",
        "chosen": "chosen, winning item, better",
        "rejected": "rejected, loser, losing item, worse",
        "question": "question, prompt, context, instruction, topic, group, ballot",
        "rank": "rank, place, position, order, ranking",
    }.items()
}  # fmt: skip
"""What readers accept for each part, the preferred word first.

Case, ``_``, ``-`` and a trailing ``id`` do not matter.
"""


def normal(name: str) -> str:
    """``Worker_ID`` -> ``worker``: the form in which column names are compared."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", str(name))
    words = re.sub(r"[\s_\-.]+", " ", words).strip().lower()
    return re.sub(r"( (id|ids|name)|(?<=[a-z])ids?)$", "", words)


def find(columns: Sequence[str], part: str) -> str | None:
    """The column that plays a part, going by the aliases; ``None`` where there is none."""
    by_name: dict[str, list[str]] = {}
    for column in columns:
        by_name.setdefault(normal(column), []).append(column)
    for alias in ALIASES.get(part, (part,)):
        matches = by_name.get(alias, [])
        if len(matches) > 1:
            which = Remedy("Say which: {}.", Option(part, matches[0]))
            raise ColumnError(f"Columns {listing(matches)} could both be the {part}.", remedy=which)
        if matches:
            return matches[0]
    return None


def resolve(columns: Sequence[str], given: Mapping[str, str | None]) -> dict[str, str | None]:
    """Part -> column: what the caller named (checked), else what the aliases find, never one column twice."""
    for part, column in given.items():
        if column is not None and column not in columns:
            near = suggestion(column, list(columns))
            raise ColumnError(
                f"There is no column {column!r} for the {part}: the table has {listing(columns, 12)}.{near}"
            )
    named = [c for c in given.values() if c is not None]
    twice = [c for c in named if named.count(c) > 1]
    if twice:
        parts = [part for part, column in given.items() if column == twice[0]]
        raise ColumnError(
            f"Column {twice[0]!r} is named for the {' and the '.join(parts)}: each part needs a column of its own."
        )
    taken = set(named)
    free = [c for c in columns if c not in taken]
    return {part: column if column is not None else find(free, part) for part, column in given.items()}


def left_over(columns: Sequence[str], parts: Mapping[str, str | None]) -> list[str]:
    """Every column that plays no part: in the wide form, those of annotators."""
    return [c for c in columns if c not in parts.values()]
