"""Simulated tags and networks: what was asked for is what was drawn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise import registry
from crowdwise.cli.main import app
from crowdwise.errors import ParameterError
from crowdwise.reading import Opened


def test_the_chain_and_the_confusions_are_those_drawn_from():
    made = cw.simulate.tag_chain(800, n_annotators=5, n_classes=3, annotators_per_sequence=None, random_state=0)
    tags, truth = made.tags, made.truth
    follows = np.setdiff1d(np.arange(1, tags.n_tokens), tags.starts[:-1])
    steps = np.zeros((3, 3))
    np.add.at(steps, (truth[follows - 1], truth[follows]), 1.0)
    assert np.abs(steps / steps.sum(axis=1, keepdims=True) - made.parameters["transition"][1:]).max() < 0.03
    counts = np.zeros((5, 3, 3))
    np.add.at(counts, (tags.votes.annotator, truth[tags.votes.item], tags.votes.label), 1.0)
    assert np.abs(counts / counts.sum(axis=2, keepdims=True) - made.parameters["confusion"]).max() < 0.05
    assert tags.scheme == "plain" and tags.n_answers == 5 * tags.n_tokens


def test_spans_are_missed_as_often_as_it_says():
    given = {"skill": (1e-3, 1e3), "miss": 0.3, "shift": 0.0, "mislabel": 0.0, "spurious": 0.0}
    made = cw.simulate.bio_tags(400, n_annotators=3, annotators_per_sequence=None, random_state=0, **given)
    tags = made.tags
    assert tags.scheme == "bio"
    kinds = {tuple(row) for row in zip(*spans_of(tags.spans(made.truth)), strict=True)}
    for m in range(3):
        code = np.full(tags.n_tokens, tags.classes.tolist().index("O"))
        mine = tags.votes.annotator == m
        code[tags.votes.item[mine]] = tags.votes.label[mine]
        seen = {tuple(row) for row in zip(*spans_of(tags.spans(code)), strict=True)}
        assert seen <= kinds and abs(1 - len(seen) / len(kinds) - 0.3) < 0.05


def spans_of(spans):
    return spans.sequence.tolist(), spans.start.tolist(), spans.end.tolist(), spans.type.tolist()


def test_every_kind_of_error_happens_and_taggings_stay_valid():
    made = cw.simulate.bio_tags(200, random_state=1)
    assert not np.array_equal(
        made.tags.classes[made.tags.votes.label], made.tags.classes[made.truth[made.tags.votes.item]]
    )
    again = cw.simulate.bio_tags(200, random_state=1)
    assert (again.tags.votes.label == made.tags.votes.label).all() and (again.truth == made.truth).all()
    frame = made.tags.to_frame()
    assert (
        cw.Tags.from_frame(frame, classes=made.tags.classes.tolist()).n_answers == made.tags.n_answers
    )  # which checks


@pytest.mark.parametrize(
    ("maker", "bad"),
    [
        ("bio_tags", {"miss": 1.5}),
        ("bio_tags", {"length": (5, 2)}),
        ("bio_tags", {"types": ()}),
        ("bio_tags", {"skill": (0, 1)}),
        ("tag_chain", {"n_classes": 1}),
        ("tag_chain", {"stay": 0.0}),
        ("similarities", {"truth": []}),
        ("texts", {"texts_per_item": 0}),
        ("boxes", {"annotators_per_item": 30}),
        ("similarities", {"truth": [0, 1]}),
        ("graph", {"homophily": 2.0}),
        ("graph", {"single_votes": -1.0}),
    ],
)
def test_bad_parameters_are_named(maker, bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        getattr(cw.simulate, maker)(**bad)


def test_annotators_who_find_everything_find_everything():
    crowd = cw.simulate.boxes(5, n_annotators=5, detection=(100.0, 1e-9), false_alarms=0.0, random_state=0)
    assert crowd.parameters["detection"].tolist() == [1.0] * 5


@pytest.mark.parametrize("homophily", [0.9, 0.5])
def test_a_network_is_as_homophilous_as_it_says(homophily):
    made = cw.simulate.graph(2000, homophily=homophily, prior=[0.5, 0.3, 0.2], random_state=0)
    edges = made.parameters["edges"]
    assert abs((made.truth[edges[:, 0]] == made.truth[edges[:, 1]]).mean() - homophily) < 0.03
    assert (edges[:, 0] < edges[:, 1]).all() and abs(2 * len(edges) / 2000 - 6) < 0.2
    size = np.diff(made.votes.indptr)
    assert set(size.tolist()) == {1, 2} and abs((size == 1).mean() - 0.5) < 0.01


def test_random_edges_know_nothing_of_the_classes():
    made = cw.simulate.graph(3000, homophily=None, random_state=0)
    edges = made.parameters["edges"]
    assert abs((made.truth[edges[:, 0]] == made.truth[edges[:, 1]]).mean() - 1 / 3) < 0.03


@pytest.mark.parametrize("name", [name for name, (kind, _) in registry.scenarios().items() if kind != registry.VOTES])
def test_the_command_makes_answers_of_every_type(name, tmp_path):
    """What ``crowdwise simulate`` writes is read back as it was, with its truth."""
    kind, make = registry.scenarios()[name]
    done = CliRunner().invoke(app, ["simulate", name, "--out", str(tmp_path / "crowd"), "--seed", "3", "--json"])
    assert done.exit_code == 0, done.stderr
    made, opened = make(random_state=3), Opened(tmp_path / "crowd")
    assert json.loads(done.stdout)["answer_type"] == kind
    assert opened.answer_type == made.answers.answer_type
    assert opened.answers.table.n_answers == made.answers.n_answers
    if opened.answers.truth is not None:
        read = opened.answers.table.with_truth(type(made.answers).read_truth(opened.answers.truth))
        assert read.truth_frame().equals(made.answers.truth_frame().cast(dict(read.truth_frame().schema)))


MEASURED = [
    name for name in sorted(registry.scenarios()) if name not in ("graph", "ordinal", "rankings", "comparisons")
]
"""Scenarios whose folder says all: a graph, the order of grades and true scores are given by hand."""


@pytest.mark.parametrize("name", MEASURED)
def test_a_saved_crowd_is_read_with_its_truth(name, tmp_path):
    kind, make = registry.scenarios()[name]
    crowd = make(random_state=0)
    crowd.save(tmp_path / "crowd")
    fitted = cw.fit(tmp_path / "crowd")
    answers = crowd.answers if hasattr(crowd, "answers") else crowd.votes
    assert fitted.answer_type == kind and fitted.table.n_answers == answers.n_answers and fitted.measured
