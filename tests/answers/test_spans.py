"""Span metrics, against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.errors import InputError, LabelError
from crowdwise.metrics import span_scores, span_scores_per_type


@pytest.fixture
def tags():
    classes = ["B-x", "B-y", "I-x", "O"]
    rows = [(s, t, "a", "O") for s in range(2) for t in range(4)] + [(0, 0, "b", "O")]
    tags = cw.Tags.from_records(rows, classes=classes, scheme="bio")
    return tags.with_truth({0: ["B-x", "I-x", "O", "B-y"], 1: ["O", "B-x", "O", "O"]})


def test_exact_matches_are_counted(tags):
    found = ["B-x", "I-x", "O", "B-x", "O", "B-x", "I-x", "O"]  # right; wrong type; too long
    scores = span_scores(found, tags)
    assert {name: float(value) for name, value in scores.items()} == pytest.approx(
        {"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3}
    )
    assert scores["f1"].n == 2 and not scores["f1"].has_interval
    by_type = span_scores_per_type(found, tags)
    assert float(by_type["x"]["precision"]) == pytest.approx(1 / 3) and float(by_type["x"]["recall"]) == 0.5
    assert float(by_type["y"]["recall"]) == 0.0


def test_perfect_and_empty(tags):
    truth = tags.classes[tags.truth]
    assert float(span_scores(truth, tags)["f1"]) == 1.0
    nothing = span_scores(["O"] * 8, tags)
    assert float(nothing["recall"]) == 0.0 and float(nothing["f1"]) == 0.0


def test_only_sequences_with_known_truth_count(tags):
    some = tags.with_truth({1: ["O", "B-x", "O", "O"]})
    found = ["B-x", "I-x", "O", "B-x", "O", "B-x", "O", "O"]
    assert float(span_scores(found, some)["f1"]) == 1.0
    assert float(span_scores(found, tags, truth={0: ["O"] * 4})["precision"]) == 0.0
    with pytest.raises(InputError, match="No sequence"):
        span_scores(found, tags, truth={"0:0": "O"})
    with pytest.raises(InputError, match="no truth"):
        span_scores(found, tags.with_truth(None))


def test_what_does_not_fit(tags):
    with pytest.raises(InputError, match="8 tokens"):
        span_scores(["O"], tags)
    with pytest.raises(LabelError, match="B-z"):
        span_scores(["B-z"] * 8, tags)
    other = cw.aggregate(cw.simulate.bio_tags(5, random_state=0).tags.votes, "majority")
    with pytest.raises(InputError, match="other tokens"):
        span_scores(other, tags)


def test_against_a_plain_loop():
    crowd = cw.simulate.bio_tags(40, random_state=3)
    tags = crowd.tags
    found = cw.aggregate(tags.votes, "majority")

    def loop(names):
        spans, open_ = set(), None
        for g in range(len(tags)):
            open_ = None
            for t in range(tags.starts[g], tags.starts[g + 1]):
                name = names[t]
                if open_ and not (name.startswith("I-") and name[2:] == open_[2]):
                    spans.add((*open_, t))
                    open_ = None
                if name != "O" and open_ is None:
                    open_ = (g, t, name[2:])
            if open_:
                spans.add((*open_, tags.starts[g + 1]))
        return spans

    a, b = loop(found.labels.tolist()), loop(tags.classes[tags.truth].tolist())
    assert float(span_scores(found, tags)["f1"]) == pytest.approx(2 * len(a & b) / (len(a) + len(b)))
    assert np.isclose(float(span_scores(found, tags)["precision"]), len(a & b) / len(a))
