"""Curves: what is drawn is what was given, legible for everybody, and nothing is fetched."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from crowdwise.active.curve_drawing import COLOURS, DASHES, Line, draw, page
from crowdwise.data.figures import to_png
from crowdwise.errors import ExtraError, ParameterError

SVG = "{http://www.w3.org/2000/svg}"
LINES = [
    Line("a < b", [0.0, 0.5, 1.0], [0.6, 0.8, 0.9], [0.5, 0.7, 0.85], [0.7, 0.9, 0.95]),
    Line("other", [0.0, 0.5, 1.0], [0.6, 0.65, 0.7]),
]


def drawn(**options: Any) -> ET.Element:
    given: dict[str, Any] = {"title": "Accuracy & cost", "x_label": "votes", "y_label": "accuracy"}
    return ET.fromstring(draw(LINES, **given | options))


def test_it_is_labelled_for_everybody() -> None:
    root = drawn(at=0.85, at_label="all votes")
    assert root.get("role") == "img"
    title, about = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert about is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"
    assert title.text == "Accuracy & cost"
    assert about.text == "a < b ends at 90 %; other ends at 70 %"
    words = [t.text for t in root.iter(f"{SVG}text")]
    assert {"a < b", "other", "votes", "accuracy", "all votes", "50 %", "0.4"} <= set(words)


def test_points_stand_where_they_should() -> None:
    root = drawn()
    circles = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in root.iter(f"{SVG}circle")]
    xs, ys = np.array(circles[:3]).T
    np.testing.assert_allclose(np.diff(xs)[0], np.diff(xs)[1], atol=0.11)
    np.testing.assert_allclose((ys[0] - ys[1]) / (ys[1] - ys[2]), 2.0, rtol=0.01)
    assert (np.diff(ys) < 0).all()  # more is higher


def test_places_have_names() -> None:
    lines = [Line("a", [0.0, 1.0, 2.0], [0.6, 0.8, 0.9]), Line("b", [2.0], [0.7])]
    root = ET.fromstring(draw(lines, title="t", x_label="", y_label="y", x_names=["one", "two", "three & more"]))
    at = {t.text: float(t.get("x", 0)) for t in root.iter(f"{SVG}text")}
    circles = [float(c.get("cx", 0)) for c in root.iter(f"{SVG}circle")]
    assert [at["one"], at["two"], at["three & more"], at["three & more"]] == circles


def test_bands_lines_and_both_grounds() -> None:
    text = draw(LINES, title="t", x_label="x", y_label="y")
    root = ET.fromstring(text)
    assert sum(p.get("fill-opacity") is not None for p in root.iter(f"{SVG}path")) == 1
    assert "prefers-color-scheme:dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    strokes = {(p.get("stroke"), p.get("stroke-dasharray")) for p in root.iter(f"{SVG}path") if p.get("stroke-width")}
    assert strokes == set(zip(COLOURS[:2], DASHES[:2], strict=True))
    assert len(set(DASHES)) == len(COLOURS) == len(set(COLOURS))


def test_a_page_of_two_pictures() -> None:
    svg = draw(LINES, title="t", x_label="x", y_label="y")
    html = page([svg, svg], title="A & B", text="1 < 2", table=[("name", "x"), ("<b>", 1)])
    assert html.count("<svg") == 2
    assert 'id="t0"' in html
    assert 'id="t1"' in html
    assert 'id="t"' not in html
    assert "A &amp; B" in html
    assert "1 &lt; 2" in html
    assert "<td>&lt;b&gt;</td><td>1</td>" in html


def test_a_png() -> None:
    pytest.importorskip("vl_convert")
    assert to_png(draw(LINES, title="t", x_label="x", y_label="y"))[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_png_without_what_draws_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ExtraError, match=r"vl-convert-python"):
        to_png("<svg/>")


@pytest.mark.parametrize("y", [[1.0], [1.0, np.nan], []])
def test_lines_that_cannot_be_drawn(y: list[float]) -> None:
    with pytest.raises(ParameterError, match="short"):
        Line("short", [0.0, 1.0], y)


def test_nothing_to_draw() -> None:
    with pytest.raises(ParameterError, match="lines"):
        draw([], title="t", x_label="x", y_label="y")


@pytest.mark.parametrize(
    ("values", "percent"), [([3.0, 3.0], False), ([0.991, 0.9934], True), ([10.0, 123456.0], False)]
)
def test_any_range_has_a_few_round_numbers(values: list[float], percent: bool) -> None:
    root = ET.fromstring(draw([Line("l", [0, 1], values)], title="t", x_label="x", y_label="y", y_percent=percent))
    ticks = [t.text for t in root.iter(f"{SVG}text") if t.get("text-anchor") == "end"]
    assert 2 <= len(ticks) <= 8
    assert len(set(ticks)) == len(ticks)
