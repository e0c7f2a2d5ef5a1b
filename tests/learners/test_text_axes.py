"""Texts on the principal axes of what they share."""

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
    axes = TextAxes.fitted(TEXTS)
    rows = axes.rows(TEXTS)
    alike = (axes.known @ axes.known.T).toarray()
    np.testing.assert_allclose(rows @ rows.T / (rows**2).sum() * np.trace(alike), alike, atol=5e-3)  # axes have 11 bits
    assert np.isclose((rows**2).mean(), 1.0, atol=1e-3)


def test_new_texts_are_near_those_with_the_same_stems():
    axes = TextAxes.fitted(TEXTS * 2)
    known, new = axes.rows(TEXTS), axes.rows(["finest", "dullness", "xyz"])
    near = (new @ known.T).argmax(axis=1)
    assert near[0] in (0, 1, 2) and near[1] in (3, 4) and not new[2].any()


def test_many_texts_are_compared_with_some(monkeypatch):
    monkeypatch.setattr(text_features, "MAX_TEXTS", 4)
    axes = TextAxes.fitted(TEXTS, max_axes=3)
    assert axes.known.shape[0] == 4 and axes.rows(TEXTS).shape == (6, 3)
