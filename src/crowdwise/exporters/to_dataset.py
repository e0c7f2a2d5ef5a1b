"""Consensus as a Hugging Face ``Dataset``: texts, labels as ``ClassLabel``, and soft labels."""

from __future__ import annotations

from typing import Any

from crowdwise.data.boundary import guarded
from crowdwise.errors import ExtraError, InputError
from crowdwise.exporters.write_labels import described, labelled


@guarded
def to_dataset(result: Any, items: Any = None, *, question: str = "label", field: str = "text") -> Any:
    """Consensus labels as a ``datasets.Dataset``, to train on.

    Parameters
    ----------
    result
        A :class:`~crowdwise.Consensus` or a :class:`~crowdwise.LabelSetConsensus`.
    items
        What belongs to items, as in :func:`~crowdwise.write_labels`: its columns become columns.
    question
        The name of the column of labels: a ``ClassLabel``, or a list of them.
    field
        The column of ``items`` with texts; without it the name of the item stands there.

    Beside them are ``item``, ``probability`` (of the label) and ``soft_labels`` (of every class, in the order of the
    ``ClassLabel``).
    """
    try:
        import datasets
    except ImportError as error:
        raise ExtraError("A Hugging Face Dataset needs the package datasets: pip install datasets.") from error

    several = hasattr(result, "sets")
    about = described(items)
    columns: dict[str, list[Any]] = {"item": [], field: []}
    others = list(dict.fromkeys(name for row in about.values() for name in row if name != field))
    taken = {"item", field, question, "probability", "soft_labels"}
    if len(taken) < 5 or taken & set(others):
        names = sorted(taken & set(others)) or ["item, probability and soft_labels"]
        raise InputError(f"Two columns would be called {', '.join(names)}: choose other names for question and field.")
    columns |= {name: [] for name in (*others, question, "probability", "soft_labels")}
    classes: list[str] = []
    for row in labelled(result, about):
        classes = classes or list(row.probabilities)
        own = [str(label) for label in row.labels]
        made = {
            "item": row.item, field: row.subject(field), **{name: row.about.get(name) for name in others},
            question: own if several else own[0], "probability": row.score,
            "soft_labels": list(row.probabilities.values()),
        }  # fmt: skip
        for name, value in made.items():
            columns[name].append(value)
    found = datasets.Dataset.from_dict(columns)
    many = getattr(datasets, "List", datasets.Sequence)
    label = datasets.ClassLabel(names=classes)
    return found.cast_column(question, many(label) if several else label)
