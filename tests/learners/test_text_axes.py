"""Texts on the axes of what they share."""

from __future__ import annotations

import numpy as np

from crowdwise.learners import text_features
from crowdwise.learners.text_features import TextAxes

TEXTS = [
    "a fine film",
    "the film was fine and fun",
    "fun and fine",
    "a dull film",
    "dull and slow film",
    "slow, so slow",
]


def test_rows_have_the_likeness_of_the_texts():
    axes, rows = TextAxes.fitted(TEXTS)
    np.testing.assert_allclose(axes.rows(TEXTS), rows, atol=1e-5)
    alike = (axes.known @ axes.known.T).toarray()
    np.testing.assert_allclose(rows @ rows.T / (rows**2).sum() * np.trace(alike), alike, atol=5e-3)  # axes have 11 bits
    assert np.isclose((rows**2).mean(), 1.0, atol=1e-3)


def test_new_texts_are_near_those_with_the_same_stems():
    axes, _ = TextAxes.fitted(TEXTS * 2)
    known, new = axes.rows(TEXTS), axes.rows(["finest", "dullness", "xyz"])
    near = (new @ known.T).argmax(axis=1)
    assert near[0] in (0, 1, 2) and near[1] in (3, 4) and not new[2].any()


def test_many_texts_are_compared_with_some(monkeypatch):
    monkeypatch.setattr(text_features, "MAX_TEXTS", 4)
    axes, rows = TextAxes.fitted(TEXTS)
    assert axes.known.shape[0] == 4 and rows.shape == axes.rows(TEXTS).shape == (6, 4)


def test_texts_are_made_numbers_once(monkeypatch):
    """What was counted for the fit is not counted again for its inputs, and no eigenvectors are needed."""
    counted = []
    make = text_features._vectoriser

    def watched(**more):
        one = make(**more)
        for name in ("fit_transform", "transform"):
            monkeypatch.setattr(one, name, _noted(counted, name, getattr(one, name)), raising=False)
        return one

    monkeypatch.setattr(text_features, "_vectoriser", watched)
    monkeypatch.setattr("scipy.linalg.eigh", None)
    features, inputs = text_features.fit_texts(TEXTS * 4)
    assert counted == ["fit_transform"] * 2 and inputs.shape == (24,)
    assert np.allclose(features.inputs(TEXTS * 4).array, inputs.array, atol=1e-5)


def _noted(counted, name, call):
    def noted(texts):
        counted.append(name)
        return call(texts)

    return noted
