"""Status of a campaign: one state, the same live, reopened and in another process; and what can be changed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.active.end_state import ENDS
from crowdwise.active.stopping import StopRule
from crowdwise.errors import InputError, OutputError, ParameterError, ReadError


def make(folder: Path, **options: Any) -> cw.Campaign:
    given: dict[str, Any] = {"classes": ["x", "y"], "items": ["a", "b"], "annotators": {"ann": 1.0, "bob": 2.0}}
    return cw.Campaign.create(folder / "c", cw.OneCoin(), **given | options)


def standing(campaign: cw.Campaign) -> tuple[str, str | None]:
    """The state and the reason; whether questions come agrees with it, and so does the campaign opened again."""
    facts = campaign.status()
    with cw.Campaign.open(campaign.folder) as other:
        again = other.status()
    assert {key: again[key] for key in ("state", "stop", "advice")} == {
        key: facts[key] for key in ("state", "stop", "advice")
    }
    assert (facts["stop"] is None) == (facts["state"] == "running")
    assert campaign.why_none() == facts["stop"]
    return facts["state"], facts["stop"]


def both(items: list[str], said: str = "xx") -> list[tuple[str, str, str]]:
    return [(item, who, said[m]) for item in items for m, who in enumerate(("ann", "bob"))]


def test_from_running_over_waiting_to_exhausted(tmp_path: Path) -> None:
    campaign = make(tmp_path, rule=StopRule(probability=None))
    assert standing(campaign) == ("running", None)
    asked = campaign.propose(5)
    assert standing(campaign)[0] == "waiting"
    assert "2 questions are out" in str(standing(campaign)[1])
    campaign.add([(q.item, q.annotator, "x") for q in asked])
    while asked := campaign.propose(5):
        campaign.add([(q.item, q.annotator, "xy"[i % 2]) for i, q in enumerate(asked)])
    state, why = standing(campaign)
    assert state == "exhausted"
    assert "not finished, and everybody available has voted" in str(why)
    campaign.add_annotators({"cem": 1.0})
    assert standing(campaign) == ("running", None)


def test_every_item_is_finished(tmp_path: Path) -> None:
    campaign = make(tmp_path, rule=StopRule(probability=0.5))
    campaign.add(both(["a", "b"]))
    assert standing(campaign)[0] == "exhausted"
    assert "every item is finished (a class with probability 0.5)" in str(standing(campaign)[1])
    assert campaign.propose(3) == []
    campaign.change(probability=0.999999)
    campaign.add_annotators(["cem"])
    assert standing(campaign) == ("running", None)


def test_a_target_that_these_annotators_cannot_reach(tmp_path: Path) -> None:
    crowd = cw.simulate.one_coin(40, n_annotators=3, n_classes=2, a=60, b=45, random_state=0).votes
    campaign = cw.Campaign.create(
        tmp_path / "c", cw.OneCoin(), classes=crowd.classes.tolist(), items=crowd.items.tolist(),
        annotators=[*crowd.annotators.tolist(), "zoe"], rule=StopRule(target=0.99, probability=None),
    )  # fmt: skip
    campaign.set_annotator("zoe", available=False)
    campaign.add(crowd)
    state, why = standing(campaign)
    assert state == "out-of-reach"
    assert "0.99 is out of reach with these annotators: all votes that they can give are in" in str(why)
    assert "make the 1 who are not available so, or lower the target" in campaign.status()["advice"]
    campaign.change(target=0.2)
    assert standing(campaign)[0] == "target-reached"
    campaign.change(target=0.99)
    campaign.set_annotator("zoe", available=True)
    assert standing(campaign) == ("running", None)


def test_finished_items_and_a_target_that_is_not_reached(tmp_path: Path) -> None:
    crowd = cw.simulate.one_coin(40, n_annotators=6, n_classes=2, votes_per_item=3, a=60, b=35, random_state=0)
    votes = crowd.votes
    campaign = cw.Campaign.create(
        tmp_path / "c", cw.OneCoin(), classes=votes.classes.tolist(), items=votes.items.tolist(),
        annotators=votes.annotators.tolist(), rule=StopRule(target=0.999, max_votes=3),
    )  # fmt: skip
    campaign.add(votes)
    state, why = standing(campaign)
    assert state == "exhausted"
    assert "(a class with probability 0.9 or 3 votes), and the target of 0.999 is not reached" in str(why)
    campaign.change(max_votes=None, probability=None)
    assert standing(campaign) == ("running", None)
    found = campaign.status()
    assert found["reachable"] < 0.999
    assert "an accuracy of" in found["advice"]  # a warning before the money is gone


def test_the_budget(tmp_path: Path) -> None:
    campaign = make(tmp_path, rule=StopRule(budget=3.0, probability=None))
    while asked := campaign.propose(5):
        campaign.add([(q.item, q.annotator, "x") for q in asked])
    assert standing(campaign)[0] == "budget-spent"
    assert "2 of 3, and a vote costs 2 at least" in str(standing(campaign)[1])  # ann has voted on both items
    campaign.change(budget=None)
    assert standing(campaign)[0] == "running"


def test_the_dear_do_not_block_the_cheap(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=["a"], annotators={"dear": 5.0, "cheap": 1.0}, budget=2.0)
    assert [q.annotator for q in campaign.propose(1)] == ["cheap"]
    campaign.release("cheap")
    assert campaign.next_for("dear") == []
    assert "costs 5, more than is left of the budget" in str(campaign.why_none("dear"))


def test_open_questions_hold_the_rest_of_the_budget(tmp_path: Path) -> None:
    campaign = make(tmp_path, budget=1.0, annotators=["ann"])
    campaign.propose(1)
    assert standing(campaign) == ("waiting", "1 question is out and may take the rest of the budget")
    campaign.release("ann")
    assert standing(campaign) == ("running", None)


def test_nothing_to_do_yet(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=[], annotators=[])
    assert standing(campaign) == ("waiting", "there are no items to label")
    campaign.add_items(["a"])
    assert standing(campaign) == ("waiting", "no annotator is available")
    campaign.add_annotators(["ann"])
    assert standing(campaign) == ("running", None)


def test_the_ends_are_four() -> None:
    assert ENDS == ("target-reached", "budget-spent", "exhausted", "out-of-reach")


# -- settings ----------------------------------------------------------------------------------------------------------


def test_changes_are_seen_by_others_and_kept(tmp_path: Path) -> None:
    campaign, other = make(tmp_path, unknown="add"), cw.Campaign.open(tmp_path / "c")
    assert campaign.change(target=0.9, budget=np.float64(50), patience=5, price=3.0) == {
        "target": (None, 0.9), "budget": (None, 50.0), "patience": (3600.0, 5), "price": (1.0, 3.0),
    }  # fmt: skip
    assert campaign.change(target=0.9) == {}
    assert (other.status()["target"], other.status()["budget"]) == (0.9, 50.0)
    other.add([("c", "dee", "x")])  # the new price, in the other process too
    assert other.status()["spent"] == 3.0
    campaign.set_annotator("ann", price=7.0, max_votes=4)
    campaign.close_items(["b"])
    campaign.close_items(["b"], closed=False)
    campaign.close()
    with cw.Campaign.open(tmp_path / "c") as opened:
        assert opened.settings.patience == 5.0
        assert [change["what"] for change in opened.history()] == [
            "settings", "annotators", "close items", "reopen items",
        ]  # fmt: skip
        assert opened.history()[0]["detail"]["target"] == [None, 0.9]
        assert opened.history()[1]["detail"] == {"ann": {"max_votes": 4, "price": 7.0}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": 1.5}, "target=1.5"),
        ({"budget": -1}, "budget=-1"),
        ({"patience": 0}, "patience=0"),
        ({"price": None}, "price=None"),
        ({"max_votes": 0}, "max_votes=0"),
        ({"gap": 0.1}, "A gap is between groups"),
        ({"classes": ["x"]}, "classes cannot be changed. The classes are those of the votes"),
        ({"targt": 0.9}, r"targt cannot be changed. There is no such setting. Did you mean .*target"),
    ],
)
def test_bad_changes_change_nothing(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    campaign = make(tmp_path)
    before = campaign.settings.rule.get_params()
    with pytest.raises(ParameterError, match=message):
        campaign.change(**{"probability": 0.8, **given})
    assert campaign.settings.rule.get_params() == before
    assert campaign.history() == []


def test_changes_do_not_change_the_model(tmp_path: Path) -> None:
    """Live, reopened and replayed campaigns agree, whatever was changed on the way."""
    crowd = cw.simulate.one_coin(30, n_annotators=5, n_classes=2, votes_per_item=3, random_state=1).votes
    found = []
    for changes in (False, True):
        folder = tmp_path / str(changes)
        folder.mkdir()
        campaign = make(folder, classes=[0, 1], items=crowd.items.tolist(), annotators=[f"a{m}" for m in range(5)])
        for n in range(0, 30, 10):
            campaign.add(crowd[np.arange(n, n + 10)])
            if changes:
                campaign.change(target=0.9 + n / 1000, probability=0.9)
                campaign.skip(f"a{n % 5}", [crowd.items[n]])
                campaign.next_for("a1", 2)
                campaign.release("a1")
                campaign.close_items([crowd.items[n]])
        found.append(campaign.consensus().posterior)
        campaign.close()
        with cw.Campaign.open(folder / "c") as again:
            assert np.array_equal(again.consensus().posterior, found[-1])
    assert np.array_equal(found[0], found[1])


def test_a_damaged_change_is_an_error(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.change(target=0.9)
    campaign.change(target=0.95)
    with campaign.journal.writing():
        campaign.journal.write("UPDATE changes SET detail = ? WHERE id = ?", [(json.dumps({"target": [None, 0.5]}), 1)])
    with pytest.raises(ReadError, match="change 1 is not as it was written"):
        campaign.history()


# -- journals of before ------------------------------------------------------------------------------------------------


def older(folder: Path) -> None:
    """Make of a journal one as it was written before there were changes, skips and kept parameters."""
    db = sqlite3.connect(folder / "campaign.db")
    db.executescript("DROP TABLE skipped; DROP TABLE changes; DELETE FROM facts WHERE key = 'params';")
    db.close()


def test_journals_of_before_can_be_opened_and_changed(tmp_path: Path) -> None:
    with make(tmp_path) as campaign:
        campaign.add([("a", "ann", "x")])
    older(tmp_path / "c")
    with cw.Campaign.open(tmp_path / "c") as campaign:
        assert campaign.status()["votes"] == 1
        campaign.skip("bob", ["a"])
        campaign.change(budget=9)
    with cw.Campaign.open(tmp_path / "c") as campaign:
        assert [change["what"] for change in campaign.history()] == ["skip", "settings"]
        assert [q.item for q in campaign.next_for("bob", 5)] == ["b"]


def test_a_journal_of_before_on_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(tmp_path) as campaign:
        campaign.add([("a", "ann", "x")])
    older(tmp_path / "c")
    real = sqlite3.connect

    def connect(where: Any, **options: Any) -> Any:
        if "immutable" not in str(where):
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return real(where, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    with cw.Campaign.open(tmp_path / "c") as campaign:
        assert campaign.status()["votes"] == 1
        assert campaign.history() == []
        with pytest.raises(OutputError, match="read-only"):
            campaign.change(budget=9)


# -- opening -----------------------------------------------------------------------------------------------------------


def test_it_is_opened_with_the_model_it_was_made_with(tmp_path: Path) -> None:
    with cw.Campaign.create(tmp_path / "c", cw.DawidSkene(prior=0.3), classes=[0, 1], unknown="add") as campaign:
        campaign.add([(n, m, n % 2) for n in range(9) for m in range(3)])
        before = campaign.consensus().posterior
    with cw.Campaign.open(tmp_path / "c") as campaign:
        assert repr(campaign.model) == "DawidSkene(prior=0.3)"
        assert np.array_equal(campaign.consensus().posterior, before)
    cw.Campaign.open(tmp_path / "c", cw.DawidSkene(prior=0.3)).close()
    with pytest.raises(ParameterError, match=r"made with DawidSkene\(prior=0.3\): open it with that"):
        cw.Campaign.open(tmp_path / "c", cw.DawidSkene(prior=0.5))
    with pytest.raises(InputError, match="Unknown annotators: 'nobody'"):
        cw.Campaign.open(tmp_path / "c").skip("nobody", [1])


# -- one annotator -----------------------------------------------------------------------------------------------------


def pairs(questions: list[Any]) -> list[tuple[Any, Any]]:
    return [(q.item, q.annotator) for q in questions]


def test_what_one_annotator_should_do_now(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=[f"i{n}" for n in range(6)])
    first = campaign.next_for("ann", 2)
    assert [who for _, who in pairs(first)] == ["ann", "ann"]
    assert pairs(campaign.next_for("ann", 2)) == pairs(first) == pairs(campaign.questions("ann"))
    more = campaign.next_for("ann", 3)
    assert pairs(more)[:2] == pairs(first)
    assert len(more) == 3
    others = campaign.next_for("bob", 6)
    assert {q.item for q in others}.isdisjoint({q.item for q in more})  # one question at a time about an item
    assert pairs(campaign.questions()) == pairs(more) + pairs(others)
    campaign.add([(first[0].item, "ann", "x")])
    assert first[0].item not in {q.item for q in campaign.next_for("ann", 2)}


def test_whom_to_ask_must_be_known_and_there(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    with pytest.raises(InputError, match="Unknown annotators: 'zoe'"):
        campaign.next_for("zoe")
    campaign.set_annotator("ann", available=False)
    assert campaign.next_for("ann") == []
    assert campaign.why_none("ann") == "'ann' is not available"
    campaign.set_annotator("bob", max_votes=0)
    assert campaign.next_for("bob") == []
    (tmp_path / "open").mkdir()
    anybody = make(tmp_path / "open", unknown="add", annotators=[], price=4.0)
    assert [(q.annotator, q.price) for q in anybody.next_for("zoe")] == [("zoe", 4.0)]


def test_a_question_is_released_or_skipped(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=["a", "b", "c"])
    first = campaign.next_for("ann", 3)
    assert campaign.release("ann", [first[0].item]) == 1
    assert campaign.release(items=[first[1].item]) == 1
    assert campaign.release("ann", [first[0].item]) == 0
    assert campaign.release("ann") == 1
    assert campaign.questions() == []
    campaign.next_for("ann", 3)
    campaign.skip("ann", ["a", "b"])
    assert [q.item for q in campaign.next_for("ann", 3)] == ["c"]
    assert "'ann' has answered, skipped or been asked everything" in str(campaign.why_none("ann"))
    assert {q.item for q in campaign.next_for("bob", 3)} == {"a", "b"}
    campaign.skip("ann", ["a"], skipped=False)
    campaign.release("bob")
    assert {q.item for q in campaign.next_for("ann", 3)} == {"a", "c"}
    assert campaign.add([("b", "ann", "x")]).added == 1  # an answer all the same
    with pytest.raises(ParameterError, match="Say what is released"):
        campaign.release()
    with pytest.raises(InputError, match="Unknown items: 'z'"):
        campaign.skip("ann", ["z"])


def test_skipped_by_everybody_is_exhausted(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=["a"])
    campaign.skip("ann", ["a"])
    campaign.skip("bob", ["a"])
    assert standing(campaign) == (
        "exhausted",
        "1 item is not finished, and everybody available has voted or skipped",
    )


# -- what comes in -----------------------------------------------------------------------------------------------------


def frame(kind: str) -> Any:
    columns: dict[str, Any] = {"task": ["a", "b"], "worker": ["ann", "bob"], "answer": ["x", "y"]}
    if kind == "columns":
        return columns
    if kind == "dicts":
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return pytest.importorskip(kind).DataFrame(columns)


@pytest.mark.parametrize("kind", ["pandas", "polars", "columns", "dicts"])
def test_tables_and_dicts_come_in(tmp_path: Path, kind: str) -> None:
    campaign = make(tmp_path)
    assert (campaign.add(frame(kind)).added, campaign.add(frame(kind)).repeated) == (2, 2)
    table = campaign.votes().to_frame("dict")
    assert list(zip(table["item"], table["annotator"], table["label"], strict=True)) == [
        ("a", "ann", "x"), ("b", "bob", "y"),
    ]  # fmt: skip


def test_one_dict_and_ids(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    vote = {"item": "a", "annotator": "ann", "label": "x", "vote_id": "v1"}
    assert (campaign.add(vote).added, campaign.add([vote]).repeated) == (1, 1)
    assert campaign.journal.read("SELECT vote_id FROM votes") == [("v1",)]
    with pytest.raises(InputError, match="1 of 2 votes have an id"):
        campaign.add([vote, {"item": "b", "annotator": "ann", "label": "x"}])
    with pytest.raises(InputError, match="No column found for: annotator"):
        campaign.add(pytest.importorskip("polars").DataFrame({"item": ["a"], "label": ["x"]}))
    with pytest.raises(InputError, match=r"Row 1 .counted from 0. has no label"):
        campaign.add(
            pytest.importorskip("polars").DataFrame(
                {"item": ["a", "b"], "annotator": ["ann"] * 2, "label": ["x", None]}
            )
        )
    with pytest.raises(InputError, match=r"Expected .item, annotator, class."):
        campaign.add([{"item": "a", "annotator": "ann"}])
    assert campaign.add(pytest.importorskip("polars").DataFrame({"item": [], "annotator": [], "label": []})).added == 0


@pytest.mark.parametrize(
    ("classes", "labels"), [(["1", "2"], [1, 2]), ([1, 2], ["1", "2"]), ([False, True], ["False", "True"])]
)
def test_classes_of_a_command_line_match_those_of_python(tmp_path: Path, classes: list[Any], labels: list[Any]) -> None:
    campaign = make(tmp_path, classes=classes)
    campaign.add([("a", "ann", labels[0]), ("b", "ann", labels[1]), ("a", "bob", classes[0])])
    assert campaign.votes().to_frame("dict")["label"].tolist() == [classes[0], classes[0], classes[1]]  # by items
    campaign.add_items(["g"], gold={"g": labels[1]})
    assert campaign.roster.items_with("gold") == {2: 1}


def proving(folder: Path, wrong: int, **options: Any) -> tuple[cw.Campaign, dict[str, str]]:
    """A campaign of 60 items with three votes on each, of which some are wrong; and their truth."""
    items, people = [f"i{n}" for n in range(60)], ["ann", "bob", "cem", "dan"]
    rule = StopRule(probability=None, max_error=0.1, **options)
    campaign = make(folder, items=items, annotators=people, rule=rule)
    campaign.add([(item, who, "x" if n >= wrong else "y") for n, item in enumerate(items) for who in people[:3]])
    return campaign, dict.fromkeys(items, "x")


def test_a_campaign_stops_when_random_gold_proves_its_labels(tmp_path: Path) -> None:
    campaign, truth = proving(tmp_path, wrong=0)
    assert standing(campaign)[0] == "running"
    likely = "draw items at random, and label them (48 are likely to be enough)"
    assert campaign.status()["proof"]["missing"] == likely
    drawn = campaign.draw_for_gold(40, random_state=0)
    assert campaign.prove({item: truth[item] for item in drawn[:10]})["missing"].startswith("30 of the 40")
    found = campaign.prove({item: truth[item] for item in drawn[10:]})
    assert "at most 10% of the 60 labels are wrong" in found["proven"]
    assert standing(campaign) == ("target-reached", found["proven"])
    assert campaign.propose(3) == []
    assert campaign.consensus().gold is None  # the model was not told
    campaign.add([("i0", "dan", "y")])  # labels may have changed: they are compared again
    state, _ = standing(campaign)
    looks = [change["detail"] for change in campaign.history() if change["what"] == "look at gold"]
    assert [look["look"] for look in looks] == [1, 2]
    assert (state == "target-reached") == looks[-1]["proven"]
    campaign.close()


def test_wrong_labels_are_not_proven_and_the_campaign_goes_on(tmp_path: Path) -> None:
    campaign, truth = proving(tmp_path, wrong=20)
    found = campaign.prove({item: truth[item] for item in campaign.draw_for_gold(40, random_state=0)})
    assert (found["proven"], found["missing"], found["looks"]) == (None, None, 1)
    assert standing(campaign)[0] == "running"
    assert campaign.status()["proof"]["looks"] == 1  # not looked at again before the votes have grown
    campaign.add([(f"i{n}", "dan", "x" if n >= 20 else "y") for n in range(60)])
    assert campaign.status()["proof"]["looks"] == 2
    campaign.change(max_error=0.3)
    assert "draw again" in campaign.status()["proof"]["missing"]
    campaign.close()
