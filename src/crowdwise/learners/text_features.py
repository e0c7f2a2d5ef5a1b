"""Texts as inputs: TF-IDF features by scikit-learn, fitted with the learner and saved with it as words and numbers.

A feature is a word, or two words in a row, that occurs in two texts or more; its number is (1 + log count) times the
log of how rare it is among the texts of the fit, and each text has length 1. The most frequent ``MAX_FEATURES`` are
kept. Nothing is pickled: a saved learner holds the words and their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crowdwise.data.frames import is_missing, is_series
from crowdwise.errors import InputError, ReadError, listing, warn

MAX_FEATURES = 20_000
FEW = 20
"""Texts below which words that occur in a single one count too."""


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


class TextFeatures:
    """From texts to rows of a sparse matrix; the words and their weights are those of the fit."""

    def __init__(self, vectoriser: Any) -> None:
        self.vectoriser = vectoriser

    @classmethod
    def fitted(cls, texts: Any) -> tuple[TextFeatures, Any]:
        """Features fitted to texts, and the rows of these."""
        given = _checked(texts)
        made = _vectoriser(min_df=2 if len(given) >= FEW else 1)
        try:
            rows = made.fit_transform(given)
        except ValueError as error:
            raise InputError(
                f"No features could be made of the texts, which begin with {listing(given[:1])}: {error}. Expected "
                "texts of words that occur more than once."
            ) from None
        return cls(made), rows.tocsr()

    def rows(self, texts: Any) -> Any:
        """The rows of texts."""
        return self.vectoriser.transform(_checked(texts)).tocsr()

    @property
    def words(self) -> list[str]:
        """What the columns stand for."""
        return [str(word) for word in self.vectoriser.get_feature_names_out()]

    def state(self) -> dict[str, Any]:
        """Words and weights, for JSON."""
        return {"words": self.words, "weights": [float(weight) for weight in self.vectoriser.idf_]}

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


def _checked(texts: Any) -> Sequence[str]:
    given = texts.to_list() if is_series(texts) else list(texts)
    empty = sum(is_missing(text) or not str(text).strip() for text in given)
    if empty:
        warn(f"{empty:,} of the {len(given):,} texts are empty: these items have no features.")
    return ["" if is_missing(text) else str(text) for text in given]
