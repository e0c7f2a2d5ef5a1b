"""What a notebook shows of tables, results and diagnoses: first rows as HTML, with all text escaped."""

from __future__ import annotations

import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.data.table import MOST_SHOWN

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def votes():
    rows = [(item, who, EVIL if (item + at) % 4 else "b") for item in range(12) for at, who in enumerate("xyz")]
    return cw.Votes.from_records(rows)


def test_votes_results_and_comparisons(votes):
    result = cw.aggregate(votes, "dawid-skene")
    for shown, tables in ((votes, 1), (result, 2), (cw.compare(votes, ["majority", "mace"]), 1)):
        page = shown._repr_html_()
        assert page.count("<table>") == page.count("</table>") >= tables and "<script" not in page
    assert "&lt;script&gt;" in votes._repr_html_() and "the first 5 of 36 rows" in votes._repr_html_()
    assert "items (the first 5 of 12 rows)" in result._repr_html_()


def test_a_diagnosis_lists_its_findings(votes):
    diagnosis = cw.diagnose(votes)
    page = diagnosis._repr_html_()
    assert page.count("<li>") == len(str(diagnosis).splitlines()) - 1 and "<script" not in page


@pytest.mark.parametrize("name", sorted(registry.scenarios()))
def test_every_answer_type(name):
    crowd = registry.scenarios()[name][1](random_state=0)
    answers = crowd.answers if hasattr(crowd, "answers") else crowd.votes
    assert "<table>" in answers._repr_html_() and "<table>" in cw.aggregate(answers)._repr_html_()


def test_large_tables_are_not_made(votes, monkeypatch):
    monkeypatch.setattr("crowdwise.data.table.MOST_SHOWN", votes.n_votes - 1)
    assert MOST_SHOWN == 1_000_000 and "<table>" not in votes._repr_html_() and "36 votes" in votes._repr_html_()
