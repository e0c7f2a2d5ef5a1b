"""Texts as inputs: TF-IDF features by scikit-learn, fitted with the learner and saved with it as words and numbers.

Up to ``MANY`` texts are compared with each other (:mod:`crowdwise.learners.text_axes`). Of more texts a feature is a
word, or two words in a row, that occurs in two texts or more; its number is (1 + log count) times the log of how rare
it is among the texts of the fit, and each text has length 1. The most frequent ``MAX_FEATURES`` are kept. Nothing is
pickled: a saved learner holds words and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise.data.features import IMAGES
from crowdwise.data.frames import is_missing, is_series
from crowdwise.errors import InputError, ReadError, listing, warn
from crowdwise.learners.inputs import ArrayInputs
from crowdwise.learners.text_axes import TextAxes

MAX_FEATURES = 20_000
MANY = 20_000
"""Above so many texts words alone are features: the rows stay sparse, and letters bring little."""


def is_texts(X: Any) -> bool:
    """Whether inputs are texts: a list, an array or a column of them."""
    if is_series(X):
        X = X.to_list()
    elif isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "OUT":
        X = X.tolist()
    if not isinstance(X, (list, tuple)):
        return False
    filled = [text for text in X if not is_missing(text)]
    return bool(filled) and all(isinstance(text, str) for text in filled)


def fit_texts(texts: Any) -> tuple[TextFeatures | TextAxes, ArrayInputs]:
    """Features fitted to texts, and these as inputs."""
    given = _checked(texts)
    made: type[TextFeatures] | type[TextAxes] = TextFeatures if len(given) > MANY else TextAxes
    try:
        features = made.fitted(given)
    except ValueError as error:
        raise InputError(
            f"No features could be made of the texts, which begin with {listing(given[:1])}: {error}. Expected texts "
            "of words that occur more than once."
        ) from None
    return features, features.inputs(given)


def restore_texts(state: dict[str, Any], arrays: dict[str, Any]) -> TextFeatures | TextAxes:
    """What was saved of the features of texts."""
    return TextAxes.restored(state, arrays) if "axes" in state else TextFeatures.restored(state)


class TextFeatures:
    """From texts to rows of a sparse matrix; the words and their weights are those of the fit."""

    def __init__(self, vectoriser: Any) -> None:
        self.vectoriser = vectoriser

    @classmethod
    def fitted(cls, texts: Sequence[str]) -> TextFeatures:
        """Features fitted to texts."""
        return cls(_vectoriser(min_df=2).fit(texts))

    def inputs(self, texts: Sequence[str]) -> ArrayInputs:
        """Texts as a learner takes them: rows of a sparse matrix."""
        return ArrayInputs(self.vectoriser.transform(texts).tocsr(), sparse=True)

    @property
    def words(self) -> list[str]:
        """What the columns stand for."""
        return [str(word) for word in self.vectoriser.get_feature_names_out()]

    def state(self) -> dict[str, Any]:
        """Words and weights, for JSON."""
        return {"words": self.words, "weights": [float(weight) for weight in self.vectoriser.idf_]}

    def arrays(self) -> dict[str, Any]:
        """Nothing but words and weights is saved."""
        return {}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> TextFeatures:
        """What :meth:`state` gave."""
        words, weights = state["words"], np.asarray(state["weights"], dtype=np.float64)
        if len(words) != len(weights) or not np.isfinite(weights).all():
            raise ReadError("The words of the saved texts and their weights do not fit together.")
        made = _vectoriser(vocabulary=words)
        made.idf_ = weights
        return cls(made)


def _vectoriser(**more: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        sublinear_tf=True, ngram_range=(1, 2), strip_accents="unicode", max_features=MAX_FEATURES, **more
    )


def text_inputs(features: TextFeatures | TextAxes, texts: Any) -> ArrayInputs:
    """New texts as inputs."""
    return features.inputs(_checked(texts))


def _checked(texts: Any) -> Sequence[str]:
    given = texts.to_list() if is_series(texts) else list(texts)
    pictures = [text for text in given if isinstance(text, str) and text.lower().endswith(IMAGES)]
    if len(pictures) > len(given) / 2:
        raise InputError(
            f"X holds names of images ({listing(pictures[:1])}), which would be learned from as texts. Give the folder "
            "of the images (its files are called as the items are), or an array of the images."
        )
    empty = sum(is_missing(text) or not str(text).strip() for text in given)
    if empty:
        warn(f"{empty:,} of the {len(given):,} texts are empty: these items have no features.")
    return ["" if is_missing(text) else str(text) for text in given]
