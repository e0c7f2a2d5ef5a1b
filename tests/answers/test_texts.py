"""Texts: words, alignment, the vote on words, the nearest text, error rates."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import crowdwise as cw
from crowdwise.answers.texts_consensus import Slots
from crowdwise.cli.main import app
from crowdwise.core import text_distance
from crowdwise.core.text_distance import align, chrf, edit_distance, edit_distances
from crowdwise.data.texts import Tokens
from crowdwise.errors import InputError

WORDS = st.lists(st.integers(0, 4), max_size=7).map(tuple)


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_an_alignment_holds_every_word_once_and_in_order(sequences):
    R = len(sequences)
    slots = align(sequences, range(R), R)
    for r, sequence in enumerate(sequences):
        assert tuple(slot[r] for slot in slots if slot[r] >= 0) == sequence
    assert all(max(slot) >= 0 for slot in slots)


@given(WORDS, WORDS)
def test_two_texts_are_aligned_with_the_fewest_edits(one, two):
    slots = align([one, two], range(2), 2)
    assert sum(a != b for a, b in slots) == edit_distance(one, two) == brute_distance(one, two)


def brute_distance(one, two):
    table = np.zeros((len(one) + 1, len(two) + 1), dtype=int)
    table[:, 0], table[0] = range(len(one) + 1), range(len(two) + 1)
    for i, j in itertools.product(range(len(one)), range(len(two))):
        table[i + 1, j + 1] = min(table[i, j] + (one[i] != two[j]), table[i, j + 1] + 1, table[i + 1, j] + 1)
    return int(table[-1, -1])


def test_long_texts_have_the_distances_of_short_ones(monkeypatch):
    rng = np.random.default_rng(0)
    some = [tuple(rng.integers(5, size=n).tolist()) for n in (30, 40, 50)]
    known = [edit_distances(some, whole) for whole in (False, True)]
    monkeypatch.setattr(text_distance, "LONG", 1)
    for whole, expected in zip((False, True), known, strict=True):
        np.testing.assert_array_equal(edit_distances(some, whole), expected)


def test_votes_on_words_are_those_of_the_formula():
    sequences = [(0, 1), (0, 2), (0, 1, 3), (0, 2)]
    weight = np.array([1.0, 0.4, 0.2, 0.9])
    slots = Slots.of(sequences, np.array([0, 4]), None)
    for rho in (0.0, 0.3):
        q, others = slots.vote(weight, rho)
        for e, (slot, text, word) in enumerate(zip(slots.slot, slots.text, slots.word, strict=True)):
            at = np.flatnonzero(slots.slot == slot)
            choices = sorted(set(slots.word[at].tolist()))
            d = 1.0 + rho * (len(at) - 1)
            for left_out, value in ((None, q[e]), (text, others[e])):
                score = [
                    sum(weight[slots.text[i]] for i in at if slots.word[i] == c and slots.text[i] != left_out)
                    for c in choices
                ]
                mass = np.exp(np.array(score) / d)
                np.testing.assert_allclose(value, mass[choices.index(word)] / mass.sum(), rtol=1e-12)


def brute_chrf(found, true):
    """Popovic 2015: precision and recall of n-grams averaged over n first."""
    one, two = "".join(found.split()), "".join(true.split())
    shares = []
    for n in range(1, 7):
        a, b = (Counter(text[i : i + n] for i in range(len(text) - n + 1)) for text in (one, two))
        if a or b:
            both = sum((a & b).values())
            shares.append((both / max(1, sum(a.values())), both / max(1, sum(b.values()))))
    if not shares:
        return 1.0
    p, r = np.mean(shares, axis=0)
    return 5.0 * p * r / (4.0 * p + r) if p + r > 0 else 0.0


@given(st.lists(st.text("abc é", max_size=12), min_size=2, max_size=4))
def test_chrf_is_that_of_its_definition(texts):
    expected = [[brute_chrf(one, two) for two in texts] for one in texts]
    np.testing.assert_allclose(chrf(texts, texts), expected, atol=1e-12)


def test_words_of_any_script():
    cut = Tokens()
    assert cut.words(["«L’été, déjà!»"]) == [["l'été", "déjà"]]
    assert cut.words(["नमस्ते दुनिया।"]) == [["नमस्ते", "दुनिया"]]
    assert cut.words(["今天天气很好。"]) == [list("今天天气很好")]
    assert Tokens(unit="word").words(["今天 天气"]) == [["今天", "天气"]]
    assert Tokens(punctuation=True).words(["no, no"]) == [["no", ",", "no"]]


def test_what_cannot_be_seen_and_the_width_of_letters_do_not_count():
    seen = Tokens().words(["he\u200bllo soft\u00adware", "\ufeffhello \u200f software", "\uff28ello s\u200doftware"])
    assert seen == [["hello", "software"]] * 3 and Tokens().words(["\u200b", "\ufb01sh"]) == [[], ["fish"]]
    rows = [("i", who, text) for who, text in zip("abc", ("he\u200bllo", "hello", "hello"), strict=True)]
    assert cw.aggregate(cw.Texts.from_records(rows)).texts.tolist() == ["hello"]


def test_the_consensus_is_written_as_most_wrote_it():
    rows = [
        ("s", "ann", "Dr. Lee's car, stopped."),
        ("s", "bob", "dr Lee's car stopped"),
        ("s", "cem", "Dr. Lees car stopped."),
    ]
    found = cw.aggregate(cw.Texts.from_records(rows), "rover")
    assert found.texts.tolist() == ["Dr. Lee's car stopped."]
    words = found.to_frame("words", kind="dict")
    assert words["word"].tolist() == ["Dr.", "Lee's", "car", "stopped."] and words["place"].tolist() == [0, 1, 2, 3]
    assert words["probability"].argmin() == 1
    assert found.probability[0] <= found.word_accuracy[0] < 1.0


def test_reliable_annotators_count_more():
    crowd = cw.simulate.texts(150, n_annotators=15, texts_per_item=5, error=(0.6, 2.0), random_state=1)
    learned, equal = (cw.aggregate(crowd.answers, "rover", weights=way) for way in ("learned", "equal"))
    assert 1.0 - learned.score(crowd.truth) < 0.7 * (1.0 - equal.score(crowd.truth))
    people = learned.to_frame("annotators", kind="dict")
    assert np.corrcoef(people["accuracy"], 1.0 - crowd.parameters["error"])[0, 1] > 0.95
    scores = cw.metrics.text_scores(learned, crowd.truth)
    assert scores["word_error_rate"].value == pytest.approx(1.0 - learned.score(crowd.truth))
    assert abs(learned.word_accuracy.mean() - learned.score(crowd.truth)) < 0.05


def test_free_texts_are_not_mixed():
    rows = [
        ("s", "ann", "the weather was fine and we went out"), ("s", "bob", "it was nice outside so all of us left"),
        ("s", "cem", "the weather was fine so we left"), ("s", "eve", "sun all day"),
    ]  # fmt: skip
    found = cw.aggregate(cw.Texts.from_records(rows))
    assert found.texts[0] in {row[2] for row in rows} and found.probability is None
    assert found.notes[0].startswith("Texts on an item are different")


def test_vectors_of_ones_own():
    rows = [("s", "ann", "aa"), ("s", "bob", "bb"), ("s", "cem", "cc")]
    texts = cw.Texts.from_records(rows)
    near = {"aa": (1.0, 0.0), "bb": (0.0, 1.0), "cc": (0.2, 1.0)}
    for key in ("medoid", "rasa", "hrrasa"):
        assert cw.aggregate(texts, key, embed=lambda some: [near[t] for t in some]).texts.tolist() == ["cc"]
        with pytest.raises(InputError, match="a finite vector for each"):
            cw.aggregate(texts, key, embed=lambda some: [1.0])


def test_bad_texts_are_errors_of_ours(tmp_path):
    with pytest.raises(InputError, match="text"):
        cw.Texts.from_records([("s", "ann", None)])
    with pytest.raises(InputError, match="No text has a word"):
        cw.aggregate(cw.Texts.from_records([("s", "ann", "\u200b"), ("s", "bob", "\u200d")]))
    with pytest.raises(InputError, match="bob"):
        cw.Texts.from_records([("s", "bob", "a"), ("s", "bob", "b")])
    one = cw.Texts.from_records([("s", "ann", "a b c")])
    assert cw.aggregate(one).texts.tolist() == ["a b c"]


def test_a_file_of_sentences_is_recognised(tmp_path):
    crowd = cw.simulate.texts(30, n_annotators=5, texts_per_item=4, random_state=2)
    frame = crowd.answers.with_truth(None).to_frame("polars")
    for column in ("text", "label"):
        frame.rename({"text": column}).write_csv(tmp_path / f"{column}.csv")
        found = json.loads(run("aggregate", tmp_path / f"{column}.csv", "--json").stdout)
        assert found["answer_type"] == "texts"
    pl.DataFrame({"item": crowd.answers.items, "text": crowd.truth}).write_csv(tmp_path / "truth.csv")
    done = run("aggregate", tmp_path / "text.csv", "--truth", tmp_path / "truth.csv", "--out", tmp_path / "out.csv")
    assert done.exit_code == 0, done.stderr
    assert pl.read_csv(tmp_path / "out.csv").columns[:2] == ["item", "text"]
    for command in ("report", "diagnose", "agreement", "describe"):
        more = ["--out", tmp_path / "page.html"] if command == "report" else []
        assert run(command, tmp_path / "text.csv", *more).exit_code == 0, command


@pytest.mark.parametrize("key", ["text-auto", "rover", "medoid"])
def test_texts_without_words_are_not_lost(key):
    family = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
    said = {
        "smile": ["😀", "😂", "😂"],
        "family": [family] * 3,
        "mark": ["?", "?!", "?"],
        "word": ["yes", "Yes!", "no"],
    }
    rows = [(item, who, text) for item, texts in said.items() for who, text in zip("abc", texts, strict=True)]
    found = cw.aggregate(cw.Texts.from_records(rows), key)
    texts = dict(zip(found.items.tolist(), found.texts.tolist(), strict=True))
    assert texts.pop("word").casefold().startswith("yes")
    assert texts == {"smile": "😂", "family": family, "mark": "?"}
