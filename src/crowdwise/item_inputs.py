"""The inputs that lie beside answers: which there are, in the order of the items."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdwise import registry
from crowdwise.errors import ExtraError, InputError, Option, ParameterError, ReadError, Remedy
from crowdwise.reading import AUTO, Answers, Opened

if TYPE_CHECKING:
    from crowdwise.data.features import Features


def check_inputs(entry: registry.Entry, model: Any) -> None:
    """Whether a method without a network can use inputs that were given."""
    if entry.key not in registry.for_votes() or not model.takes_item_prior:
        raise ParameterError(
            f"{entry.key} looks at {entry.answer_type} alone, and has no use for inputs: leave them out, or take "
            f"{registry.DEFAULT} or a learner."
        )
    import crowdwise.learners  # noqa: F401  (which says what is missing)


def own_inputs(answers: Answers) -> tuple[Any, list[str]]:
    """What a dataset folder has for a learner, ``None`` without it; and why it is not used, where that is so."""
    data = answers.dataset
    if data is None or answers.answer_type != registry.VOTES:
        return None, []
    try:
        inputs = data.own_inputs()
        if inputs is not None:
            import crowdwise.learners  # noqa: F401  (which says what is missing)
    except (ExtraError, InputError) as error:
        return None, [f"Inputs were not used: {error}"]
    return inputs, []


def is_auto(inputs: Any) -> bool:
    """Whether the inputs are those that a dataset folder may have."""
    return isinstance(inputs, str) and inputs == AUTO


def texts_of(source: Opened, column: str, features: Any = None, embed: Any = None) -> Features:
    """The texts to learn from, by item: from a column of the file of votes, of the table of items in a folder, or of a
    file of features; with ``embed``, their vectors by that model."""
    from crowdwise.data.dataset import find_table
    from crowdwise.data.features import read_texts

    place = Path(features) if features is not None else source.path
    file: Any = source.file if features is None else features
    if place is not None and place.is_dir():
        file = find_table(place, "items") or find_table(place, "votes")
        if file is None:
            raise ReadError(f"{place} has no table of items to read texts from: expected items.csv or texts.csv in it.")
    found = read_texts(file, column, source.reading.get("item") if features is None else None)
    if embed is None:
        return found
    from crowdwise.learners.text_features import fit_texts

    return replace(found, x=fit_texts(found.x, embed)[1].array, columns=None)


def column_of(source: Opened | str | os.PathLike[str], column: str, numbers: bool = False) -> dict[Any, Any]:
    """Item -> its value in a column of a file, of the file of answers, or of the table of items of a folder: text; with
    ``numbers``, numbers where all are."""
    from crowdwise.data.features import read_texts

    found = texts_of(source, column) if isinstance(source, Opened) else read_texts(source, column)
    values = found.x.tolist()
    with suppress(ValueError):
        values = [float(value) for value in values] if numbers else values
    return dict(zip(range(len(values)) if found.names is None else found.names.tolist(), values, strict=True))


def inputs_of(answers: Answers, inputs: Any) -> tuple[Any, tuple[Any, Any] | None]:
    """Inputs in the order of the items, and those to test on (with the codes of their classes) where there are any."""
    from crowdwise.data.alignment import Rows
    from crowdwise.data.features import class_codes, read_features

    data = answers.dataset
    if inputs is True:
        if data is None or not (data.features or data.images):
            name = "These answers" if data is None else data.name
            raise ParameterError(
                f"{name}: there are no inputs to learn from.",
                remedy=Remedy("Hand them over: {}.", Option("inputs", python="X", command="FILE")),
            )
        return Rows(data.inputs, answers.table.items), data.test
    if not isinstance(inputs, (str, os.PathLike)):
        return inputs, None
    found = read_features(inputs)
    X = Rows(found.rows_of(answers.table.items), answers.table.items, found.columns)
    if found.x_test is None or found.y_test is None:
        return X, None
    return X, (found.x_test, class_codes(found.y_test, answers.table.classes, None if data is None else data.legend))
