"""Rules as annotators: functions and regular expressions over items in any form."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import crowdwise as cw
from crowdwise.errors import InputError, LabelError, ParameterError

TEXTS = ["check out http://a.b", "love it", "my channel: SUBSCRIBE", "a song of the sea, which goes on"]


def short(text: str) -> str | None:
    return "ham" if len(text.split()) < 3 else None


RULES = [short, ("http", "spam"), (re.compile("subscribe", re.I), "spam"), (lambda text: text.endswith("!"), "spam")]
NAMES = ["short", "http", "subscribe", "rule 3"]


def said(votes: cw.Votes) -> dict[tuple[Any, Any], Any]:
    frame = votes.to_frame("dict")
    return {(i, a): x for i, a, x in zip(frame["item"], frame["annotator"], frame["label"], strict=True)}


def test_rules_vote_or_abstain_and_all_items_and_rules_stay() -> None:
    votes = cw.apply_rules(TEXTS, RULES)
    assert said(votes) == {(0, "http"): "spam", (1, "short"): "ham", (2, "subscribe"): "spam"}
    assert (votes.items.tolist(), votes.annotators.tolist()) == ([0, 1, 2, 3], NAMES)
    assert votes.classes.tolist() == ["ham", "spam"]
    assert cw.apply_rules(TEXTS, RULES, classes=["spam", "ham"]).classes.tolist() == ["spam", "ham"]


@pytest.mark.parametrize(
    "items",
    [
        dict(zip("abcd", TEXTS, strict=True)),
        pd.Series(TEXTS, index=list("abcd")),
        pd.Series(TEXTS, index=pd.Index(list("abcd"), name="comment")),
    ],
)
def test_names_of_items_are_kept(items: Any) -> None:
    assert said(cw.apply_rules(items, RULES)).keys() == {("a", "http"), ("b", "short"), ("c", "subscribe")}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_tables_give_a_column_or_rows(make: Any) -> None:
    table = make({"item": list("abcd"), "text": TEXTS, "likes": [0, 5, 0, 9]})
    votes = cw.apply_rules(table, RULES, text="text")
    assert said(votes).keys() == {("a", "http"), ("b", "short"), ("c", "subscribe")}
    assert type(votes.to_frame()) is make
    liked = cw.apply_rules(
        table, [(lambda row: row["likes"] > 3, "ham"), lambda row: "spam" if ":" in row["text"] else None]
    )
    assert sorted(said(liked)) == [("a", "rule 1"), ("b", "rule 0"), ("c", "rule 1"), ("d", "rule 0")]
    other = make({"x": list("abcd"), "text": TEXTS})
    by_name = cw.apply_rules(other, RULES, text="text", item="x")
    assert by_name.items.tolist() == list("abcd")
    with pytest.raises(InputError, match=r"No column 'body': the table has 'item', 'text', 'likes'"):
        cw.apply_rules(table, RULES, text="body")


@pytest.mark.parametrize("silence", [None, -1, np.int64(-1), -1.0, float("nan"), np.nan, pd.NA])
def test_every_usual_way_to_abstain(silence: Any) -> None:
    votes = cw.apply_rules(
        [3, 4, 5], {"odd": lambda x: 1 if x % 2 else silence, "even": lambda x: silence if x % 2 else 0}
    )
    assert (votes.n_votes, votes.classes.tolist()) == (3, [0, 1])


def test_a_value_of_ones_own_means_no_answer() -> None:
    rules = [lambda text: "ABSTAIN" if "love" in text else "spam"]
    assert cw.apply_rules(TEXTS, rules, abstain="ABSTAIN").n_votes == 3
    assert cw.apply_rules([*TEXTS, None], [("http", "spam")]).n_votes == 1


def test_mistakes_name_the_rule_the_item_and_what_to_do() -> None:
    texts = {"a": "x", "b": "y"}
    with pytest.raises(
        InputError, match=r"Rule 'broken' failed on item 'a': KeyError: 'k'. Correct the rule, or let it "
    ):
        cw.apply_rules(texts, {"broken": lambda text: {}["k"]})
    with pytest.raises(LabelError, match=r"Rule 'rule 0' returned \['x'\] for item 'a': expected a class"):
        cw.apply_rules(texts, [lambda text: [text]])
    with pytest.raises(InputError, match=r"Rule 'x' failed on item 0: TypeError: expected string"):
        cw.apply_rules([1, 2], [("x", "spam")])
    with pytest.raises(ParameterError, match=r"Rule '\(' *: '\(' is not a regular expression: missing \)"):
        cw.apply_rules(texts, [("(", "spam")])
    with pytest.raises(ParameterError, match=r"Rule 'rule 0' is 'http': expected a function, or a pair"):
        cw.apply_rules(texts, {"rule 0": "http"})  # type: ignore[dict-item]
    with pytest.raises(ParameterError, match=r"Two rules are called 'x'. Name them"):
        cw.apply_rules(texts, [("x", "spam"), ("x", "ham")])
    with pytest.raises(InputError, match="No votes: all 1 rules abstain on all 2 items"):
        cw.apply_rules(texts, [("z", "spam")])
    with pytest.raises(InputError, match=r"Expected several items \(a list, .* found str"):
        cw.apply_rules("x", [("z", "spam")])
    with pytest.raises(LabelError, match="names 'a' more than once"):
        cw.apply_rules(pd.Series(["x", "y"], index=["a", "a"]), [("x", "spam")])
    with pytest.raises(ParameterError, match="text and item name columns of a table, and the items are of type list"):
        cw.apply_rules(["x"], [("x", "spam")], text="text")
    with pytest.raises(InputError, match="Column 'label' mixes bool and int: expected one kind of value"):
        cw.apply_rules(texts, [("x", True), ("y", 1)])


def test_items_on_which_all_were_silent_can_be_added() -> None:
    votes = cw.Votes.from_records([("a", "r1", "x"), ("c", "r2", "y")]).with_truth({"a": "x"})
    more = votes.with_items(["b", "c", "a"])
    assert (more.items.tolist(), np.diff(more.indptr).tolist()) == (["b", "c", "a"], [0, 1, 1])
    assert said(more) == said(votes) and more.truth is not None and more.truth.tolist() == [-1, -1, 0]
    with pytest.raises(InputError, match=r"The votes are on 'c', which the list of items does not have"):
        votes.with_items(["a", "b"])
    with pytest.raises(LabelError, match="names 'a' more than once"):
        votes.with_items(["a", "c", "a"])
