"""Texts as rows of numbers: how much they share with some texts of the fit, on the first principal axes of these.

Two texts are as alike as their TF-IDF vectors of words and pairs of words, and those of groups of 2 to 5 letters, have
in common. The groups relate words with one stem, and misspelt words, which a few thousand texts cannot teach word by
word. What a network gets are the first principal axes of that likeness, of full length: the axes that differ most
between texts count most, and are not brought to one variance.

==================  =============  ============  =====================================================================
symbol              code           shape         equation
==================  =============  ============  =====================================================================
T                   ``known``      L x V         TF-IDF of the texts of the fit (of some of them, where there are many)
A                   ``axes``       L x D         eigenvectors of T T' over the roots of their eigenvalues
a text t                           D             t T' A, in units of the root mean square of those of the fit
==================  =============  ============  =====================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from crowdwise.core.numerics import Floats

MAX_TEXTS, MAX_AXES = 5_000, 1_500
"""The most texts of the fit that texts are compared with, and the most axes."""
SMALLEST = 1e-6
"""Axes with a smaller share of the largest eigenvalue are left out."""


class TextAxes:
    """From texts to rows of numbers; what they are compared with are texts of the fit."""

    def __init__(self, vectorisers: Sequence[Any], known: Any, axes: Floats) -> None:
        self.vectorisers, self.known, self.axes = vectorisers, known, axes

    @classmethod
    def fitted(cls, texts: Sequence[str], max_axes: int = MAX_AXES) -> TextAxes:
        """Axes of some texts."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorisers = [
            TfidfVectorizer(min_df=2, ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\b\w[\w']*\b"),
            TfidfVectorizer(min_df=3, analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
        ]
        rows = sp.hstack([one.fit_transform(texts) for one in vectorisers]).tocsr()
        chosen = np.sort(np.random.default_rng(0).permutation(len(texts))[:MAX_TEXTS])
        known = rows[chosen]
        n = len(chosen)
        value, axes = scipy.linalg.eigh((known @ known.T).toarray(), subset_by_index=(max(0, n - max_axes), n - 1))
        kept = np.flatnonzero(value > SMALLEST * value[-1])[::-1]
        axes = axes[:, kept] / np.sqrt(value[kept])
        length = np.sqrt(((rows @ (known.T @ axes)) ** 2).mean())
        return cls(vectorisers, known, axes / length)

    def rows(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """N x D: texts on the axes."""
        rows = sp.hstack([one.transform(texts) for one in self.vectorisers]).tocsr()
        return np.asarray(rows @ (self.known.T @ self.axes), dtype=np.float32)
