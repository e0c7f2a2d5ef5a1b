"""Spans: the table, candidates, detection, gamma, F1."""

from __future__ import annotations

import itertools
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.answer_types.spans import SpanRules
from crowdwise.answers.spans_consensus import joined
from crowdwise.cli.main import app
from crowdwise.core.span_overlap import matches, shared_characters
from crowdwise.errors import DuplicateError, InputError, LabelError
from crowdwise.trust.span_agreement import best_alignment, dissimilarity, gamma, pair_sums

MARKS = st.lists(
    st.tuples(
        st.sampled_from("xy"), st.sampled_from("abcd"), st.sampled_from("PQ"), st.integers(0, 20), st.integers(1, 9)
    ),
    min_size=1, max_size=14, unique=True,
).map(lambda some: [(n, m, k, a, a + size) for n, m, k, a, size in some])  # fmt: skip
KEYS = ("span-detection", "span-majority", "character-majority")


@pytest.mark.parametrize("key", KEYS)
@given(MARKS, st.integers(0, 50), st.randoms(use_true_random=False))
def test_order_names_and_shifts_do_not_matter(key, rows, shift, random):
    base = cw.aggregate(cw.Spans.from_records(rows), key).spans()
    mixed = list(rows)
    random.shuffle(mixed)
    turned = {"a": "z", "b": "y", "c": "x", "d": "w"}
    other = cw.aggregate(cw.Spans.from_records([(n, turned[m], k, a, b) for n, m, k, a, b in mixed]), key).spans()
    assert sorted(map(sorted, base)) == sorted(map(sorted, other))
    moved = cw.aggregate(cw.Spans.from_records([(n, m, k, a + shift, b + shift) for n, m, k, a, b in rows]), key)
    assert moved.spans() == [[(k, a + shift, b + shift) for k, a, b in spans] for spans in base]


@given(MARKS)
def test_candidates_hold_each_annotator_once(rows):
    who, label, start, end = (np.array([row[i] for row in rows if row[0] == rows[0][0]]) for i in (1, 2, 3, 4))
    code = np.array([ord(k) for k in label])
    people = np.array([ord(m) for m in who])
    group = joined(start, end, code, people, 1 / 3)
    for g in np.unique(group):
        assert len(set(people[group == g])) == (group == g).sum()


def brute_alignment(d, who, n):
    """The least cost over all partitions."""
    pairs = n * (n - 1) / 2

    def partitions(rest):
        if not rest:
            yield []
            return
        first, others = rest[0], rest[1:]
        for size in range(len(others) + 1):
            for chosen in itertools.combinations(others, size):
                part = (first, *chosen)
                if len({who[i] for i in part}) == len(part):
                    for more in partitions([i for i in others if i not in chosen]):
                        yield [part, *more]

    def cost(part):
        return 1.0 + sum(d[i, j] - 1.0 for i, j in itertools.combinations(part, 2)) / pairs

    return min(sum(map(cost, parts)) for parts in partitions(list(range(len(who)))))


@pytest.mark.parametrize("seed", range(12))
def test_the_best_alignment_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    n = 2 + seed % 3
    start = rng.integers(60, size=7)
    end, label, who = start + rng.integers(1, 20, size=7), rng.integers(2, size=7), rng.integers(n, size=7)
    d = dissimilarity(start, end, label)
    total, group = best_alignment(d, who, n)
    assert total == pytest.approx(brute_alignment(d, who, n), abs=1e-9)
    parts = [np.flatnonzero(group == g) for g in np.unique(group)]
    pairs = n * (n - 1) / 2
    assert total == pytest.approx(sum(1 + (np.triu(d[np.ix_(p, p)] - 1, 1)).sum() / pairs for p in parts))


PYGAMMA = [
    (1.481482, 0.0790608), (0.746164, 0.4609804), (0.917431, 0.3840244), (1.240615, 0.1287668), (1.358718, 0.2069720),
    (1.097948, 0.3669190),
]  # fmt: skip


@pytest.mark.parametrize(("seed", "disorder", "value"), [(seed, *known) for seed, known in enumerate(PYGAMMA)])
def test_disorder_and_gamma_are_those_of_pygamma_agreement(seed, disorder, value):
    """Version 0.5.9 on the same spans: compute_gamma with CombinedCategoricalDissimilarity(alpha=1, beta=1), and a
    sampler that hands it the five sets of shuffled spans that gamma draws here."""
    rng, n, rows = np.random.default_rng(seed), 2 + seed % 3, []
    for m in range(n):
        for base in (10, 60, 130, 200, 300):
            if rng.random() < 0.8:
                start = int(base + rng.integers(-8, 9))
                rows.append((m, start, int(start + rng.integers(10, 40)), int(rng.integers(2))))
    who, start, end, label = np.array(rows).T
    total, _ = best_alignment(dissimilarity(start, end, label), who, n)
    assert total / (len(who) / n) == pytest.approx(disorder, abs=1e-5)
    table = cw.Spans.from_records([("s", f"m{m}", f"L{k}", a, b) for m, a, b, k in rows])
    assert gamma(table, shuffles=5, random_state=0) == pytest.approx(value, abs=1e-5)


def test_gamma_is_one_for_equal_spans_and_near_zero_for_random_ones():
    rng = np.random.default_rng(0)
    rows = [("s", m, "P", a, a + 10) for m in "abc" for a in rng.choice(900, 8, replace=False).tolist()]
    assert abs(gamma(cw.Spans.from_records(rows))) < 0.15
    assert gamma(cw.Spans.from_records([("s", m, "P", a, a + 10) for m in "abc" for a in (0, 40, 300)])) == 1.0


def test_f1_of_pairs_and_characters_by_hand():
    one, two = [("P", 0, 10), ("P", 20, 30)], [("P", 0, 6), ("P", 29, 50), ("Q", 20, 30)]
    assert matches(one, two) == 1 and matches(one, two, 1.0) == 0
    assert shared_characters(one, two) == (7, 20, 37)
    table = cw.Spans.from_records([("s", "a", *span) for span in one] + [("s", "b", *span) for span in two])
    assert pair_sums(table).tolist() == [[0.0, 1.0, 2.5]]


def test_rates_are_recovered_and_majorities_beaten():
    crowd = cw.simulate.spans(200, n_labels=1, random_state=1)
    found = {key: cw.aggregate(crowd.answers, key) for key in KEYS}
    scores = {key: result.score(crowd.truth) for key, result in found.items()}
    assert scores["span-detection"] > 0.9 > scores["span-majority"] > scores["character-majority"]
    people = found["span-detection"].to_frame("annotators", kind="dict")
    for name, least, bias in (("detection", 0.9, 0.05), ("false_alarms", 0.75, 0.25), ("boundary_noise", 0.9, 0.5)):
        true = crowd.parameters[name]
        assert np.corrcoef(people[name], true)[0, 1] > least
        assert abs(np.mean(people[name] - true)) < bias
    measured = cw.metrics.span_set_scores(found["span-detection"], crowd.truth)
    assert measured["f1_overlap"].value == pytest.approx(scores["span-detection"])
    assert measured["f1_overlap"].low < measured["f1_overlap"].value < measured["f1_overlap"].high


@pytest.mark.parametrize("length", [None, 30, 1000])
@pytest.mark.parametrize("people", ["a", "ab", "abc"])
@pytest.mark.parametrize("documents", [1, 3])
@pytest.mark.parametrize("labels", ["P", "PQ", "PPQ"])
def test_what_all_annotators_marked_is_a_span(length, people, documents, labels):
    """With little data too: one document, one annotator, no other spans to learn from."""
    true = [(k, 10 * n, 10 * n + 6) for n, k in enumerate(labels)]
    table = cw.Spans.from_records([(n, m, *span) for n in range(documents) for m in people for span in true])
    found = cw.aggregate(table if length is None else table.within(dict.fromkeys(range(documents), length)))
    assert found.spans() == [true] * documents
    assert found.probability.min() >= (0.9 if len(people) == 1 else 0.99)


def test_an_item_without_marks_and_nested_spans():
    rows = [("s", m, k, a, b) for m in "abc" for k, a, b in (("P", 0, 30), ("P", 10, 14), ("Q", 10, 14))]
    rows += [("empty", m, None, None, None) for m in "abc"]
    for key in KEYS[:2]:
        result = cw.aggregate(cw.Spans.from_records(rows), key)
        spans = dict(zip(result.items.tolist(), result.spans(), strict=True))
        assert spans == {"s": [("P", 0, 30), ("P", 10, 14), ("Q", 10, 14)], "empty": []}


def test_bad_spans_are_errors_of_ours():
    bad = (
        (("s", "a", "P", 5, 5), InputError, "ends where it starts"),
        (("s", "a", "P", -2, 5), InputError, "start in row 0"),
        (("s", "a", "P", 1.5, 5), InputError, "whole number"),
        (("s", "a", "", 1, 5), LabelError, "has no label"),
        (("s", "a", "P", None, 5), InputError, "has no start"),
    )
    for row, error, words in bad:
        with pytest.raises(error, match=words):
            cw.Spans.from_records([row])
    with pytest.raises(DuplicateError, match="the same span in rows 0, 1"):
        cw.Spans.from_records([("s", "a", "P", 1, 5)] * 2)
    with pytest.raises(DuplicateError, match="beside spans"):
        cw.Spans.from_records([("s", "a", "P", 1, 5), ("s", "a", None, None, None)])
    with pytest.raises(InputError, match="ends outside its text"):
        cw.Spans.from_records([("s", "a", "P", 1, 5)]).within({"s": "abcd"})
    with pytest.raises(InputError, match="None of the 1 items with a text has spans: texts name '1', the spans 1"):
        cw.Spans.from_records([(1, "a", "P", 1, 5)]).within({"1": "abcd"})
    with pytest.raises(InputError, match="No annotator marked"):
        cw.aggregate(cw.Spans.from_records([("s", "a", None, None, None)]))


def test_a_file_of_spans_goes_through_every_command(tmp_path):
    crowd = cw.simulate.spans(30, n_annotators=4, answers_per_item=2, random_state=2)
    crowd.answers.to_frame("polars").write_csv(tmp_path / "spans.csv")
    pl.DataFrame(crowd.answers.truth_frame()).write_csv(tmp_path / "truth.csv")

    def run(*words):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, (words, done.output, done.stderr)
        return done.stdout

    found = json.loads(run("aggregate", tmp_path / "spans.csv", "--json"))
    assert found["answer_type"] == "spans"
    run("aggregate", tmp_path / "spans.csv", "--truth", tmp_path / "truth.csv", "--out", tmp_path / "out.csv")
    assert pl.read_csv(tmp_path / "out.csv").columns[:4] == ["item", "label", "start", "end"]
    for command in ("report", "diagnose", "agreement", "describe"):
        run(command, tmp_path / "spans.csv", *(["--out", tmp_path / "page.html"] if command == "report" else []))


def test_loose_careless_and_keen_annotators_are_findings():
    crowd = cw.simulate.spans(
        80, n_annotators=6, answers_per_item=None, n_labels=1, detection=(50, 5), noise=0.5, random_state=0
    )
    rng = np.random.default_rng(0)
    rows = crowd.answers.with_truth(None).to_frame("polars").select("item", "annotator", "label", "start", "end").rows()
    for n, spans in zip(crowd.answers.items.tolist(), crowd.truth.tolist(), strict=True):
        rows += [(n, "blind", None, None, None)]
        rows += [(n, "keen", "L0", int(a), int(a) + 20) for a in rng.choice(900, 6, replace=False)]
        rows += [(n, "loose", "L0", max(0, a - 6), b + 6) for _, a, b in spans] or [(n, "loose", None, None, None)]
    result = cw.aggregate(cw.Spans.from_records(rows))
    tables = {name: result.to_frame(name, kind="dict") for name in ("items", "annotators")}
    found = {finding.kind: finding.annotators for finding in SpanRules().findings(tables)}
    assert "blind" in found["misses"] and "keen" in found["invents"] and "loose" in found["loose"]


def test_where_no_item_has_two_annotators_all_spans_are_kept():
    rng = np.random.default_rng(0)
    rows = [
        (n, f"p{n % 7}", "AB"[int(rng.integers(2))], at, at + int(rng.integers(3, 40)))
        for n in range(30) for at in rng.choice(900, 3, replace=False).tolist()
    ]  # fmt: skip
    table = cw.Spans.from_records(rows)
    found = cw.aggregate(table)
    assert "cannot be compared" in found.notes[0]
    assert found.spans() == cw.aggregate(table, "span-majority").spans()
    assert sum(map(len, found.spans())) == len(rows) and set(found.probability.tolist()) == {0.9}
