"""Inputs beside items: what every learner does with the names of rows and columns.

Rows of X are found by the names of the items (:mod:`crowdwise.data.alignment`). Names of columns are those of the fit,
as scikit-learn has it: ``feature_names_in_``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crowdwise.core.numerics import Ints
from crowdwise.data import alignment, encoding
from crowdwise.data.alignment import GIVE_NAMES, Match, RowNames, Rows, check_features, is_name, is_named
from crowdwise.data.features import Features
from crowdwise.data.frames import is_frame, is_pandas, native
from crowdwise.data.truth import by_name
from crowdwise.errors import AlignmentWarning, InputError, listing, warn
from crowdwise.learners.inputs import ArrayInputs, FolderInputs, Inputs, as_inputs, lost_features
from crowdwise.learners.text_features import AnyTextFeatures, checked_texts, fit_texts, is_texts


def answers_in(y: Any, table: type[Any], part: str) -> Any:
    """Answers in a data frame as a table, the rows of a wide one in their order; ``None`` for what is not a data frame,
    or has a single column. ``part`` is what the answers are called in ``table``."""
    y = native(y)
    if not is_frame(y):
        return None
    if alignment.is_long(y, part):
        return table.from_frame(y)
    names, annotators, cells = alignment.wide_parts(y)
    if len(annotators) < 2:
        return None
    rows = np.arange(len(cells)) if names is None else names.values
    return alignment.spread_over(table.from_frame(y, form="wide"), rows)


def one_each(y: Any) -> tuple[Any, Any]:
    """One answer for each row as an array, and the names of the rows (``None`` without any); also from a data frame
    with a single column."""
    y = native(y)
    names = alignment.named_rows(y)
    if is_frame(y):
        names, _, cells = alignment.wide_parts(y)
        y = np.array((cells[:, 0] if cells.shape[1] else cells).tolist())
    return (y.to_numpy() if is_pandas(y) else y), None if names is None else names.values


def index_before_pipeline(n: int) -> RowNames | None:
    """The index of the table that a scikit-learn Pipeline was given, where one is at work, the table has n rows and the
    index names them: its steps hand on arrays without names, and this is the only place where these can be seen."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if type(frame.f_locals.get("self")).__module__ == "sklearn.pipeline" and is_pandas(frame.f_locals.get("X")):
            table = frame.f_locals["X"]
            names = alignment.index_names(table) if len(table) == n else []
            return names[0] if names and names[0].distinct else None
        frame = frame.f_back
    return None


class NamedInputs:
    """The part of a learner that puts inputs beside items."""

    table: ClassVar[Any]
    """The class of the answers it learns from, such as :class:`crowdwise.Votes`."""
    shape_: tuple[int, ...]
    bytes_: bool = False
    """Whether inputs in the fit were whole numbers of 8 bits, which are divided by 255."""
    item_column_: Any
    """The column of X that named its rows in the fit; ``None`` where none did."""
    text_column_: Any
    """The column of X with the texts, where the learner was fitted to texts in a table."""
    text_features_: AnyTextFeatures
    embed: Any

    @property
    def _noun(self) -> str:
        """What the answers are called."""
        return str(self.table.answer_type)

    def _beside(self, X: Any, answers: Any, items: Any, y: Any) -> tuple[Inputs, Any, Ints | None]:
        """The inputs of the items in a fit, the answers on them, and the row of each item where that is not its place;
        notes what columns and rows are called."""
        self.__dict__.pop("text_features_", None)
        named = isinstance(y, self.table) or is_named(y)
        match = self._matched(X, answers, items, named)
        self._remember(match.features, None if match.names is None else match.names.column)
        self._notes = [match.note] if match.note else []
        if not named and match.names is not None:
            answers = replace(answers, items=match.names.values)
        self.bytes_ = False
        if not is_texts(match.x):
            inputs = as_inputs(match.x, answers.items)
            self.bytes_ = isinstance(inputs, FolderInputs) or bool(getattr(inputs, "byte", False))
            if len(lost := lost_features(inputs)):
                called = lost.tolist() if match.features is None else [match.features[d] for d in lost]
                warn(
                    f"The columns {listing(called)} of X differ between rows by less than 1e-5 of their size, "
                    "which single precision blurs or takes for constant: subtract their mean, in fit and predict."
                )
            return inputs, answers, match.at
        self.text_features_, inputs = fit_texts(match.x, self.embed)
        self._remember(None, self.item_column_, None if match.features is None else match.features[0])
        return inputs, answers, match.at

    def _matched(self, X: Any, answers: Any, items: Any, named: bool = True) -> Match:
        """Inputs in the order of the items of a table."""
        if isinstance(X, Features):
            X = Rows(X.rows_of(answers.items), answers.items, X.columns)
        rows = Rows.of(X, items)
        if isinstance(rows.x, (str, Path)):  # images are looked up by name
            return Match(rows.x, None, None, None)
        match = rows.match(answers.items, self._noun, named=named)
        lost = index_before_pipeline(len(answers.items)) if named and match.names is None else None
        if lost is None or (at := encoding.locate(answers.items, lost.values)).min(initial=0) < 0:
            if match.note and not answers.has_row_numbers:
                raise InputError(
                    f"The rows of X have no names, and the items of the {self._noun} are called "
                    f"{listing(answers.items, 3)}: which row belongs to which item cannot be checked. If the rows "
                    f"stand in the order of {self._noun}.items, say items={self._noun}.items.",
                    remedy=GIVE_NAMES,
                )
            return match
        if (at != np.arange(len(at))).any():
            raise InputError(
                "A step of the Pipeline turned the table into an array and dropped its index, which names the items of "
                f"the {self._noun} in another order. Keep it, pipeline.set_output(transform='pandas'), or pass the "
                "names to the last step: pipeline.fit(X, votes, NAME_OF_STEP__items=X.index)."
            )
        return match._replace(note="")  # positions that were checked

    def _new_inputs(self, X: Any, answers: Any = None, items: Any = None) -> Inputs:
        """Inputs to predict for, of the shape that the learner was fitted with; in the order of the items of answers on
        them, where there are any."""
        if answers is not None:
            return self._with_answers(X, answers, items)[0]
        rows = Rows(X.x, X.names, X.columns) if isinstance(X, Features) else Rows.of(X, items)
        if self.text_column_ is not None and rows.is_table and self.text_column_ in list(rows.x.columns):
            return self._checked(list(rows.x[self.text_column_]), None)
        x, features = rows.numbers(self._name_columns(rows))
        return self._checked(x, features)

    def _with_answers(self, X: Any, answers: Any, items: Any = None) -> tuple[Inputs, Any]:
        """Inputs in the order of the items of answers, and the place of each row of X in it."""
        if not isinstance(answers, self.table):
            raise InputError(f"Expected {self._noun} as {self.table.__name__} and found {type(answers).__name__}.")
        match = self._matched(X, answers, items)
        inputs = self._checked(match.x, match.features, answers.items)
        return inputs, slice(None) if match.at is None else self._places(X, match.at)

    def _places(self, X: Any, at: Ints) -> Ints:
        """The item of each row, from the row of each item."""
        extra = len(Rows.of(X.x if isinstance(X, Features) else X)) - len(at)
        if extra:
            raise InputError(
                f"X has {extra} rows without {self._noun}: leave them out (X.loc[{self._noun}.items]), or predict "
                f"without {self._noun}."
            )
        return encoding.invert(at)

    def _name_columns(self, rows: Rows) -> list[Any]:
        """The columns of a table that are names of its rows and no features."""
        fitted = [] if hasattr(self, "text_features_") else getattr(self, "feature_names_in_", None)
        if not rows.is_table or fitted is None:
            return []
        return [name for name in rows.x.columns if name not in fitted and (is_name(name) or name == self.item_column_)]

    def _checked(self, x: Any, features: Any, items: Any = None) -> Inputs:
        """Inputs with the columns and the shape of the fit."""
        if not isinstance(x, (str, Path)) and (x.shape[0] if hasattr(x, "shape") else len(x)) == 0:
            raise InputError("X has no rows: expected one for each item.")
        words = getattr(self, "text_features_", None)
        if (words is not None) != is_texts(x):
            fitted_with, x_holds = ("numbers", "texts") if words is None else ("texts", "none")
            raise InputError(
                f"The learner was fitted with {fitted_with}, and X holds {x_holds}: give it what it was fitted with."
            )
        if words is not None:
            return self._check_shape(words.inputs(checked_texts(x)))
        inputs = as_inputs(x, items)
        if len(inputs.shape) == 1:
            note = check_features(features, getattr(self, "feature_names_in_", None), type(self).__name__)
            if note:
                warn(note)
        return self._check_shape(inputs)

    def _remember(self, features: Sequence[str] | None, item_column: Any, text_column: Any = None) -> None:
        """The names of columns in the fit: in a fit, and when the learner is loaded."""
        self.__dict__.pop("feature_names_in_", None)
        if features is not None:
            self.feature_names_in_: npt.NDArray[Any] = np.array(list(features), dtype=object)
        self.item_column_, self.text_column_ = item_column, text_column

    def _paired(self, X: Any, y: Any, weight: Any, items: Any) -> tuple[Any, Any, Any]:
        """Predictions for X, truth and weights, entry by entry: by name where both have names."""
        predicted = np.asarray(self.predict(X))  # type: ignore[attr-defined]
        rows = Rows(X.x, X.names) if isinstance(X, Features) else Rows.of(X, items)
        y = native(y)
        pairs = alignment.pair(rows, by_name(y) if is_frame(y) and y.shape[1] > 1 else y)
        if pairs.note:
            warn(pairs.note, remedy=GIVE_NAMES, category=AlignmentWarning)
        return predicted if pairs.rows is None else predicted[pairs.rows], pairs.values, pairs.beside(weight)

    def _check_shape(self, inputs: Inputs) -> Inputs:
        if inputs.shape != self.shape_:
            if len(self.shape_) == 1 and len(inputs.shape) == 1:
                raise InputError(
                    f"X has {inputs.shape[0]} features, but {type(self).__name__} is expecting {self.shape_[0]} "
                    "features as input."
                )
            raise InputError(f"An input has the shape {inputs.shape}; the learner was fitted with {self.shape_}.")
        if self.bytes_ and isinstance(inputs, ArrayInputs) and (most := inputs.largest_beside_bytes()) > 1.0:
            raise InputError(
                "The learner was fitted with whole numbers of 8 bits, which are divided by 255, and X holds "
                f"{inputs.array.dtype} values up to {most:g}: give X as uint8, or divide it by 255."
            )
        return inputs
