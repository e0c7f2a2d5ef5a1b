"""Pictures of votes, results, diagnoses and comparisons, and what notebooks show of each."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.answers.comparisons_leaderboard import draw_heat_map
from crowdwise.data.figures import MOST_BARS, TONES, draw_rows
from crowdwise.errors import ParameterError

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def crowd():
    return cw.simulate.hammer_spammer(200, n_annotators=8, n_classes=3, votes_per_item=5, random_state=1)


def drawn(chart):
    """Names, intervals and bars of a picture; it is well-formed."""
    root = ET.fromstring(chart.svg)
    texts = [one.text for one in root.iter(f"{SVG}text")]
    return (
        texts,
        len(list(root.iter(f"{SVG}line"))),
        sum(one.get("class", "").startswith("bar") for one in root.iter(f"{SVG}rect")),
    )


def test_votes_results_diagnoses_and_comparisons_have_pictures(crowd, tmp_path):
    consensus = cw.aggregate(crowd.votes)
    texts, lines, bars = drawn(crowd.votes.plot())
    assert texts[0] == "Votes by class" and (lines, bars) == (0, 3) and {"0", "1", "2"} <= set(texts)
    texts, lines, bars = drawn(consensus.plot())
    assert "accuracy" in texts[0] and (lines, bars) == (8, 0)
    texts, lines, bars = drawn(consensus.plot("items"))
    assert "probability" in texts[0] and lines == 0 and sum(int(t) for t in texts[-2 * bars :] if t.isdigit()) == 200
    diagnosis = cw.diagnose(crowd.votes, consensus)
    colours = {tone for tone in TONES if f'class="{tone}" x1' in diagnosis.plot().svg}
    assert colours == {verdict.value for verdict in diagnosis.verdicts.values()}
    compared = cw.compare(crowd.votes, ["majority", "dawid-skene"], repeats=1, replicates=0)
    texts, lines, bars = drawn(compared.plot())
    assert {"majority", "dawid-skene"} <= set(texts) and lines == 2
    for one in (crowd.votes, consensus, diagnosis, compared):
        assert one._repr_html_().startswith("<") and one.plot()._repr_svg_().startswith("<svg")
    file = consensus.plot().save(tmp_path / "picture.svg")
    assert file.read_text(encoding="utf-8") == consensus.plot().svg
    with pytest.raises(ParameterError, match=r"written as \.svg or \.png"):
        consensus.plot().save(tmp_path / "picture.pdf")
    with pytest.raises(ParameterError, match="Unknown table 'people'"):
        consensus.plot("people")


def test_other_answers_have_pictures():
    pairs = cw.simulate.comparisons(4, random_state=0).comparisons
    assert drawn(pairs.plot())[2] > 0 and cw.aggregate(pairs).plot().svg.startswith("<svg")
    ratings = cw.Ratings.from_dense(np.random.default_rng(0).normal(size=(30, 5)) + np.arange(30)[:, None])
    assert drawn(ratings.plot())[2] > 0 and drawn(cw.aggregate(ratings).plot())[1] > 0


def test_names_are_escaped_and_many_are_cut():
    chart = draw_rows("<b>", ["<script>alert(1)</script>", "x" * 60], [1.0, -2.0])
    texts, _, bars = drawn(chart)
    assert "<script" not in chart.svg and bars == 2 and texts[0] == "<b>" and any(t.endswith("…") for t in texts)
    many = draw_rows("many", range(100), np.arange(100.0))
    texts, _, bars = drawn(many)
    assert texts.count("…") == 1 and "0.00" not in texts
    assert bars == MOST_BARS and texts[0] == "many (15 first and 15 last of 100)" and {"0", "99"} <= set(texts)
    assert drawn(draw_rows("none", [], []))[2] == 0


def test_a_notebook_shows_the_leaderboard_by_rank_and_a_board_whole_names():
    rows = {"a": ["x", "y", "x", "z"] * 9, "b": ["y", "z", "z", "x"] * 9, "winner": ["b", "b", "b", "a"] * 9}
    ranking = cw.aggregate(cw.Comparisons.from_frame(rows, left="a", right="b", outcome="winner"))
    order = ranking.to_frame("leaderboard", kind="dict")["item"].tolist()
    html = ranking._repr_html_()
    assert "leaderboard" in html and html.index(f"<td>{order[0]}</td>") < html.index(f"<td>{order[-1]}</td>")
    named = {"item": "m", "score": 1.0, "rank": 1, "rank_low": 1, "rank_high": 1}
    long = "math and formal reasoning in very many steps"
    picture = draw_heat_map([named | {"category": name} for name in ("math and formal reasoning", long)], "category")
    texts = [one.text for one in ET.fromstring(picture).iter(f"{SVG}text")]
    assert texts.count("math and formal") == 2 and "reasoning" in texts and "reasoning in ve…" in texts
