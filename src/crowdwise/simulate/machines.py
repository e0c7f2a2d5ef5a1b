"""Annotators that are really trained: small scikit-learn classifiers, each fitted on a few examples.

Unlike annotators drawn from confusion matrices they err on the *same* hard items, as people do. Reference: the machine
annotators of Ibrahim, Nguyen and Fu 2023 (GeoCrowdNet), whose mix of linear models, nearest neighbours, support vector
machines and small networks, trained on 100 to 400 examples each, this follows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdwise.core.constraints import Count, CountFromZero, Fraction, RandomState, Share, checked, is_count
from crowdwise.core.numerics import normalise
from crowdwise.data.encoding import Codes
from crowdwise.errors import InputError, ParameterError
from crowdwise.simulate import crowds
from crowdwise.simulate.crowds import Rng, Simulated, VotesPerItem, assign

KINDS = ("logistic", "knn-3", "svm-linear", "tree", "mlp", "svm-rbf", "knn-5", "naive-bayes", "svm-poly", "knn-7")
"""The classifiers, in the order in which annotators take them (and from the start again)."""


@checked
def machine_annotators(
    X: npt.ArrayLike, y: npt.ArrayLike, *, n_annotators: Count = 15, train_share: Fraction = 0.3,
    test_share: Share = 0.0, subset: tuple[int, int] = (100, 400), n_items: Count | None = None,
    votes_per_item: VotesPerItem = None, n_spammers: CountFromZero = 0, n_copiers: CountFromZero = 0,
    n_adversaries: CountFromZero = 0, slip: Share = 0.05, random_state: RandomState = 0,
) -> Simulated:  # fmt: skip
    """Weak scikit-learn classifiers, each trained on a few held-out rows, label the rest of ``X``.

    Parameters
    ----------
    X, y
        Features and true classes.
    n_annotators
        Trained annotators; ``n_spammers``, ``n_copiers`` and ``n_adversaries`` come on top, in this order.
    train_share
        Share of the rows held out to train annotators on (they are not labelled).
    test_share
        Share of the rows kept from everybody: to test classifiers on that are learned from the votes.
    subset
        Least and most rows an annotator sees; every class is among them.
    n_items
        How many of the remaining rows to label (default: all).
    n_spammers, n_copiers, n_adversaries
        Who answer uniformly at random; who repeat a trained annotator, up to a share ``slip`` of errors;
        who are trained too, but name every class wrongly (a shift by a fixed number of classes).

    Returns
    -------
    Simulated
        ``features["x_train"]`` holds the labelled rows, ``features["x_test"]`` and ``["y_test"]`` those kept from
        everybody, where there are any. Parameters are measured against ``y``: ``confusion``,
        ``accuracy``, ``prior``; further ``kind`` (M, text), ``copies`` (M: the copied annotator or -1) and
        ``rows`` (N: where in ``X`` an item came from).
    """
    X, y = np.asarray(X), np.asarray(y)
    roles = {"n_spammers": n_spammers, "n_copiers": n_copiers, "n_adversaries": n_adversaries}
    rng = np.random.default_rng(random_state)
    classes, code, train, rows, test = _split(X, y, train_share, test_share, subset, n_items, rng)
    truth, K, M = code[rows], len(classes), n_annotators + n_spammers + n_copiers + n_adversaries
    item, annotator = assign(len(rows), M, votes_per_item, random_state=rng)
    label, counts = np.empty(len(item), dtype=np.int32), np.zeros((M, K, K))
    kinds, copies = [], []
    labelled = _label_items(
        X[train], code[train], X[rows], machines=n_annotators, **roles, subset=subset, slip=slip, n_classes=K, rng=rng
    )
    for m, (kind, origin, labels) in enumerate(labelled):
        label[annotator == m] = labels[item[annotator == m]]
        np.add.at(counts[m], (truth, labels), 1.0)
        kinds.append(kind)
        copies.append(origin)
    theta, pi = normalise(counts, axis=2), np.bincount(truth, minlength=K) / len(truth)
    known = {"kind": np.array(kinds), "copies": np.array(copies), "rows": rows}
    crowd = crowds.collect("machine", (item, annotator), label, truth, pi, theta, classes.tolist(), **known)
    unseen = {"x_test": X[test], "y_test": y[test]} if len(test) else {}
    return replace(crowd, features={"x_train": X[rows], **unseen})


def _split(
    X: npt.NDArray[Any], y: npt.NDArray[Any], train_share: float, test_share: float, subset: tuple[int, int],
    n_items: int | None, rng: Rng,
) -> tuple[npt.NDArray[Any], Codes, npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:  # fmt: skip
    """The classes, the coded truth, the rows to train annotators on, those to label, and those for neither."""
    if X.ndim != 2 or y.shape != X.shape[:1]:
        shapes = f"found the shapes {X.shape} and {y.shape}"
        raise InputError(f"Expected X with one row per item and y with one class per row, and {shapes}.")
    classes, code = np.unique(y, return_inverse=True)
    if test_share >= 1 - train_share:
        rest = f"the {1 - train_share:g} that annotators are not trained on"
        raise ParameterError(f"test_share={test_share!r}: expected a fraction from 0 to under {rest}.")
    order = rng.permutation(len(X))
    held, last = round(train_share * len(X)), len(X) - round(test_share * len(X))
    train, rows, test = order[:held], order[held:last], order[last:]
    if n_items is not None and n_items > len(rows):
        rest = f"the {len(rows)} rows that annotators are not trained on"
        raise ParameterError(f"n_items={n_items}: expected at most {rest}.")
    rows = rows[:n_items]
    seen = len(np.unique(code[train]))
    if seen < 2:
        raise InputError(
            f"The {held} rows to train annotators on show {seen} class(es): expected 2 or more. "
            "Give more rows or a larger train_share."
        )
    if len(subset) != 2 or not all(map(is_count, subset)) or not seen <= subset[0] <= subset[1] <= held:
        raise ParameterError(
            f"subset={subset!r}: "
            f"expected (least, most) training rows between the {seen} classes and the {held} rows held out."
        )
    return classes, code.astype(np.int32), train, rows, test


def _label_items(
    X_train: npt.NDArray[Any], y_train: Codes, X: npt.NDArray[Any], *, machines: int, n_spammers: int, n_copiers: int,
    n_adversaries: int, subset: tuple[int, int], slip: float, n_classes: int, rng: Rng,
) -> Iterator[tuple[str, int, Codes]]:  # fmt: skip
    """For each annotator in turn: its kind, which one it copies (-1: none), and the class it gives to every row of
    ``X``. In order: machines, spammers, copiers, adversaries. Only copied labels are kept."""
    N, K = len(X), n_classes
    origins = rng.integers(machines, size=n_copiers)
    kept: dict[int, Codes] = {}
    for m in range(machines):
        kind, labels = _train_and_label(m, X_train, y_train, X, subset, rng)
        if m in origins:
            kept[m] = labels
        yield kind, -1, labels
    for _ in range(n_spammers):
        yield "spammer", -1, rng.integers(K, size=N, dtype=np.int32)
    for origin in origins.tolist():
        slips = rng.random(N) < slip
        labels = np.where(slips, (kept[origin] + rng.integers(1, K, size=N)) % K, kept[origin])
        yield "copier", origin, labels.astype(np.int32)
    for m in range(n_adversaries):
        _, labels = _train_and_label(machines + m, X_train, y_train, X, subset, rng)
        yield "adversary", -1, ((labels + rng.integers(1, K)) % K).astype(np.int32)


def _train_and_label(
    m: int, X_train: npt.NDArray[Any], y_train: Codes, X: npt.NDArray[Any], subset: tuple[int, int], rng: Rng
) -> tuple[str, Codes]:  # fmt: skip
    """By the m-th kind of classifier, on random rows that show every class (some refuse a single one)."""
    kind, size = KINDS[m % len(KINDS)], int(rng.integers(subset[0], subset[1] + 1))
    order = rng.permutation(len(y_train))
    first = np.unique(y_train[order], return_index=True)[1]
    rows = np.concatenate([order[first], np.delete(order, first)[: size - len(first)]])
    classifier = _classifier(kind, seed=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a weak annotator need not converge
        classifier.fit(X_train[rows], y_train[rows])
    return kind, np.asarray(classifier.predict(X), dtype=np.int32)


def _classifier(kind: str, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    name, _, detail = kind.partition("-")
    if name == "tree":
        return DecisionTreeClassifier(max_depth=8, random_state=seed)
    if name == "naive":
        return GaussianNB(var_smoothing=1e-2)
    if name == "knn":
        return KNeighborsClassifier(int(detail))
    if name == "svm":
        return make_pipeline(StandardScaler(), SVC(kernel=detail))
    if name == "mlp":
        return make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=40, random_state=seed))
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=100))
