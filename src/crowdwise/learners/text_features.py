"""Texts as inputs: TF-IDF features by scikit-learn, fitted with the learner and saved with it as words and numbers.

Of more than ``MANY`` texts a feature is a word, or two words in a row, that occurs in two texts or more; its number is
(1 + log count) times the log of how rare it is among the texts of the fit, and each text has length 1. The most
frequent ``MAX_FEATURES`` are kept.

Fewer texts are compared with each other (:class:`TextAxes`): they become coordinates on orthogonal axes of some texts
of the fit. Two texts are as alike as their TF-IDF vectors of words and pairs of words, and those of groups of 3 to 5
letters, have in common. The groups relate words with one stem, and misspelt words, which a few thousand texts cannot
teach word by word. The likeness of two texts is the product of their coordinates (as far as the ``known`` ones span
them); these are not brought to one variance.

==================  =============  ============  =====================================================================
symbol              code           shape         equation
==================  =============  ============  =====================================================================
T                   ``known``      L x V         TF-IDF of the texts of the fit (of some of them, where there are many)
C                   ``axes``       L x L         the Cholesky factor of T T' (with a small ridge)
a text t                           L             C^-1 T t', over the root mean square of those of the fit (``length``)
==================  =============  ============  =====================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from crowdwise.core.constraints import Check
from crowdwise.core.numerics import Floats
from crowdwise.data.boundary import reason
from crowdwise.data.features import IMAGES
from crowdwise.data.frames import is_missing, is_series
from crowdwise.errors import ExtraError, InputError, ReadError, listing, warn
from crowdwise.learners.inputs import ArrayInputs

MAX_FEATURES = 20_000
MANY = 20_000
"""Above so many texts words alone are features: the rows stay sparse, and letters bring little."""


def is_texts(X: Any) -> bool:
    """Whether inputs are texts: a list, an array or a column of them."""
    if is_series(X):
        X = X.to_list()
    elif getattr(X, "ndim", 0) == 1 and getattr(X.dtype, "kind", "") in "OUT" and hasattr(X, "tolist"):
        X = X.tolist()  # an array of numpy's or pandas', an index
    if not isinstance(X, (list, tuple)):
        return False
    filled = [text for text in X if not is_missing(text)]
    return bool(filled) and all(isinstance(text, (str, os.PathLike)) for text in filled)


def fit_texts(texts: Any, embed: Any = None) -> tuple[AnyTextFeatures, ArrayInputs]:
    """Features fitted to texts, and these as inputs; ``embed`` is a model of texts."""
    texts = checked_texts(texts)
    if embed is not None:
        embeddings = TextEmbeddings.of(embed)
        return embeddings, embeddings.inputs(texts)
    try:
        if len(texts) > MANY:
            features = TextFeatures(frequent_words(min_df=2).fit(texts))
            return features, features.inputs(texts)
        axes, rows = TextAxes.fitted(texts)
        return axes, ArrayInputs(rows, scaled=True)
    except ValueError as error:
        raise InputError(
            f"No features could be made of the texts, which begin with {listing(texts[:1])}: {error}. Expected texts "
            "of words that occur more than once."
        ) from None


def restore_texts(state: dict[str, Any], arrays: dict[str, Any], embed: Any = None) -> AnyTextFeatures:
    """What was saved of the features of texts; ``embed`` takes the place of the model of texts that is named there."""
    if "embed" in state:
        if embed is None and state["embed"] is None:
            raise ReadError("This learner was fitted with a model of texts of your own: pass it again, embed=...")
        return TextEmbeddings.of(embed or state["embed"])
    if "axes" in state:
        return TextAxes.restored(state, arrays)
    return TextFeatures(restored_vectoriser(frequent_words, state["words"], state["weights"]))


class TextFeatures:
    """From texts to rows of a sparse matrix; the words and their weights are those of the fit."""

    def __init__(self, vectoriser: Any) -> None:
        self.vectoriser = vectoriser

    def inputs(self, texts: Sequence[str]) -> ArrayInputs:
        """Texts as a learner takes them: rows of a sparse matrix."""
        return ArrayInputs(self.vectoriser.transform(texts).tocsr(), sparse=True)

    @property
    def words(self) -> list[str]:
        """What the columns stand for."""
        return terms(self.vectoriser)

    def state(self) -> dict[str, Any]:
        """Words and weights, for JSON."""
        return {"words": self.words, "weights": self.vectoriser.idf_.tolist()}

    def arrays(self) -> dict[str, Any]:
        """Nothing but words and weights is saved."""
        return {}


def checked_texts(texts: Any) -> list[str]:
    """Texts as a list; a note about empty ones, and an error where they are names of images."""
    values = texts.to_list() if is_series(texts) else list(texts)
    pictures = [
        str(text)
        for text in values
        if isinstance(text, os.PathLike) or str(text).lower().partition("?")[0].endswith(IMAGES)
    ]
    if len(pictures) > len(values) / 2:
        raise InputError(
            f"X holds names of images ({listing(pictures[:1])}), which would be learned from as texts. Give the folder "
            "of the images (its files are called as the items are), or an array of the images."
        )
    empty = sum(is_missing(text) or not str(text).strip() for text in values)
    if empty:
        warn(f"{empty:,} of the {len(values):,} texts are empty: these items have no features.")
    return ["" if is_missing(text) else str(text) for text in values]


EmbeddingModel = Annotated[
    Any,
    Check(
        lambda value: isinstance(value, (str, os.PathLike)) or callable(getattr(value, "encode", None)),
        "the name or folder of a model of sentence-transformers, or an object with encode(texts)",
        ("all-MiniLM-L6-v2",),
        (3,),
    ),
]


class TextEmbeddings:
    """From texts to the vectors of a pretrained model, which is not trained further."""

    def __init__(self, model: Any, name: str | None) -> None:
        self.model, self.name = model, name

    @classmethod
    def of(cls, model: Any) -> TextEmbeddings:
        """By a model of sentence-transformers (name, folder, or package that holds one), or by an object."""
        if not isinstance(model, (str, os.PathLike)):
            return cls(model, None)
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise ExtraError(
                f"Embeddings by {model} need sentence-transformers: pip install sentence-transformers. Without a model "
                "of texts, TF-IDF is used."
            ) from None
        try:
            return cls(SentenceTransformer(packaged(os.fspath(model)), device=None), os.fspath(model))
        except (OSError, ValueError) as error:
            raise InputError(
                f"There is no model of texts {os.fspath(model)!r}: {reason(error)}. Expected the name of a model of "
                "sentence-transformers that can be downloaded, its folder, or an installed package that holds it."
            ) from error

    def inputs(self, texts: Sequence[str]) -> ArrayInputs:
        """Texts as a learner takes them."""
        rows = np.asarray(self.model.encode(list(texts)), dtype=np.float32)
        if rows.ndim != 2 or len(rows) != len(texts):
            raise InputError(
                f"encode gave an array of shape {rows.shape} for {len(texts)} texts: expected a row for each."
            )
        return ArrayInputs(rows)

    def state(self) -> dict[str, Any]:
        """The name of the model, for JSON."""
        return {"embed": self.name}

    def arrays(self) -> dict[str, Any]:
        """The model is not saved."""
        return {}


def packaged(name: str) -> str:
    """The folder of a model that lies in an installed package of this name; else the name itself."""
    module = name.replace("-", "_")
    spec = find_spec(module) if module.isidentifier() and not os.path.exists(name) else None
    for place in [] if spec is None else spec.submodule_search_locations or []:
        for file in sorted(Path(place).rglob("modules.json")):  # what sentence-transformers writes
            return str(file.parent)
    return name


MAX_TEXTS = 2_000
"""The most texts of the fit that texts are compared with. An eigendecomposition of 5,000 with 1,500 axes takes 15 times
as long, and brings nothing on sentiment_polarity (docs/benchmarks/default-learner.md)."""
RIDGE = 1e-3
"""Added to the likeness of a text with itself, which is 2: texts may be alike."""
MAX_GROUPS = 100_000
"""The most words and pairs of words, and the most groups of letters, the most frequent first."""
FEW = 20
"""Texts below which words and groups that occur in a single one count too."""
BLOCK = 1_000
ARRAYS = ("data", "indices", "indptr", "axes")


class TextAxes:
    """From texts to rows of numbers; what they are compared with are texts of the fit."""

    def __init__(self, vectorisers: Sequence[Any], known: Any, axes: Floats, length: float) -> None:
        self.vectorisers, self.known, self.axes, self.length = vectorisers, known, axes, length

    @classmethod
    def fitted(cls, texts: Sequence[str]) -> tuple[TextAxes, npt.NDArray[np.float32]]:
        """Axes of some texts, and all texts on them."""
        few = len(texts) < FEW
        vectorisers = [words(min_df=1 if few else 2), letters(min_df=1 if few else 3)]
        rows = sp.hstack([one.fit_transform(texts) for one in vectorisers]).tocsr().astype(np.float32)
        known = rows[np.sort(np.random.default_rng(0).permutation(len(texts))[:MAX_TEXTS])]
        alike = (known @ known.T.tocsr()).toarray() + RIDGE * np.eye(known.shape[0])
        axes = scipy.linalg.cholesky(alike, lower=True, overwrite_a=True, check_finite=False)
        axes = axes.astype(np.float16).astype(np.float32)  # as they are saved
        coordinates = placed(rows, known, axes)
        length = float(np.sqrt((coordinates**2).mean())) or 1.0
        return cls(vectorisers, known, axes, length), coordinates / np.float32(length)

    def rows(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """N x L: texts on the axes."""
        rows = sp.hstack([one.transform(texts) for one in self.vectorisers]).tocsr().astype(np.float32)
        return placed(rows, self.known, self.axes) / np.float32(self.length)

    def inputs(self, texts: Sequence[str]) -> ArrayInputs:
        """Texts as a learner takes them."""
        return ArrayInputs(self.rows(texts), scaled=True)

    @property
    def words(self) -> list[str]:
        """Words and pairs of words that are compared."""
        return terms(self.vectorisers[0])

    def state(self) -> dict[str, Any]:
        """Words, groups of letters and their weights, for JSON."""
        of_words, of_letters = self.vectorisers
        return {
            "axes": self.axes.shape[1],
            "length": self.length,
            "words": terms(of_words),
            "weights": of_words.idf_.tolist(),
            "letters": terms(of_letters),
            "letter_weights": of_letters.idf_.tolist(),
        }

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The texts that others are compared with, as numbers, and the axes."""
        known, kinds = self.known, (np.float32, np.int32, np.int32, np.float16)
        arrays = zip(ARRAYS, (known.data, known.indices, known.indptr, self.axes), kinds, strict=True)
        return {name: array.astype(kind) for name, array, kind in arrays}

    @classmethod
    def restored(cls, state: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> TextAxes:
        """What :meth:`state` and :meth:`arrays` gave."""
        vectorisers = [
            restored_vectoriser(words, state["words"], state["weights"]),
            restored_vectoriser(letters, state["letters"], state["letter_weights"]),
        ]
        width = sum(len(one.idf_) for one in vectorisers)
        data, indices, indptr, axes = (np.asarray(arrays[name]) for name in ARRAYS)
        if axes.shape != (state["axes"],) * 2 or len(indptr) != len(axes) + 1 or (indices >= width).any():
            raise ReadError("The saved texts and their axes do not fit together.")
        known = sp.csr_matrix((data, indices, indptr), shape=(len(axes), width))
        length = float(state["length"])
        if not (np.isfinite(axes).all() and (np.diag(axes) > 0).all() and np.isfinite(length) and length > 0):
            raise ReadError("The saved axes of the texts are no axes: their lengths must be above 0.")
        return cls(vectorisers, known, axes.astype(np.float32), length)


def placed(rows: Any, known: Any, axes: Floats) -> npt.NDArray[np.float32]:
    """N x L: C^-1 T of each row, a block of rows at a time."""
    other = known.T.tocsr()
    alike = ((rows[at : at + BLOCK] @ other).toarray().T for at in range(0, rows.shape[0], BLOCK))
    return np.concatenate(
        [scipy.linalg.solve_triangular(axes, part, lower=True, check_finite=False).T for part in alike]
    )


def words(**more: Any) -> Any:
    """TF-IDF of words and pairs of words."""
    return _vectoriser(ngram_range=(1, 2), token_pattern=r"\b\w[\w']*\b", **more)


def letters(**more: Any) -> Any:
    """TF-IDF of groups of letters within words."""
    return _vectoriser(analyzer="char_wb", ngram_range=(3, 5), **more)


def frequent_words(**more: Any) -> Any:
    """TF-IDF of the most frequent words and pairs of words, of two letters or more."""
    return _vectoriser(ngram_range=(1, 2), max_features=MAX_FEATURES, **more)


def _vectoriser(max_features: int = MAX_GROUPS, **more: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", max_features=max_features, **more)


def terms(vectoriser: Any) -> list[str]:
    """What the columns stand for."""
    return [str(term) for term in vectoriser.get_feature_names_out()]


def restored_vectoriser(make: Callable[..., Any], words: Sequence[str], weights: Any) -> Any:
    """A vectoriser of saved words and their weights."""
    idf = np.asarray(weights, dtype=np.float64)
    if len(words) != len(idf) or not np.isfinite(idf).all():
        raise ReadError("The words of the saved texts and their weights do not fit together.")
    vectoriser = make(vocabulary=words)
    vectoriser.idf_ = idf
    return vectoriser


AnyTextFeatures = TextFeatures | TextAxes | TextEmbeddings
