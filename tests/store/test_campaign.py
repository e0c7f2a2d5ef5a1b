"""A campaign: what it takes in and hands out, and that nothing acknowledged is ever lost or counted twice."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.active.stopping import StopRule
from crowdwise.errors import (
    DuplicateError,
    InputError,
    LabelError,
    NotFittedError,
    OutputError,
    ParameterError,
    ReadError,
)
from crowdwise.store import campaign as module
from crowdwise.store import vote_stream
from crowdwise.store.journal import Journal, salvage


def make(folder: Path, **options: Any) -> cw.Campaign:
    given: dict[str, Any] = {
        "classes": ["x", "y"],
        "items": [f"i{n}" for n in range(20)],
        "annotators": {"ann": 1.0, "bob": 2.0, "cem": 1.0},
    }
    folder.mkdir(exist_ok=True)
    return cw.Campaign.create(folder / "campaign", cw.OneCoin(), **given | options)


def again(folder: Path) -> cw.Campaign:
    return cw.Campaign.open(folder / "campaign", cw.OneCoin())


# -- adding ------------------------------------------------------------------------------------------------------------


def test_a_vote_counts_once(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    votes = [("i0", "ann", "x"), ("i0", "bob", "y")]
    assert campaign.add(votes) == module.Receipt(2, 0)
    assert campaign.add([*votes, ("i1", "ann", "x")]) == module.Receipt(1, 2)
    assert campaign.add([("i2", "ann", "x")], ids=["v1"]) == module.Receipt(1, 0)
    assert campaign.add([("i2", "ann", "x")], ids=["v1"]) == module.Receipt(0, 1)
    assert campaign.add([("i3", "ann", "x"), ("i3", "ann", "x")]) == module.Receipt(1, 1)
    assert campaign.status()["votes"] == 5
    assert campaign.status()["spent"] == 6.0


@pytest.mark.parametrize(
    ("votes", "ids", "error", "message"),
    [
        ([("i9", "ann", "x"), ("nothing", "ann", "x")], None, InputError, "Unknown items: 'nothing'"),
        ([("i9", "ann", "x"), ("i9", "nobody", "x")], None, InputError, "Unknown annotators: 'nobody'"),
        ([("i9", "ann", "x"), ("i8", "ann", "z")], None, LabelError, "A vote on 'i8' says 'z'"),
        (
            [("i9", "ann", "x"), ("i0", "ann", "y")],
            None,
            DuplicateError,
            "'ann' has voted 'x' on 'i0' before, and votes 'y'",
        ),
        ([("i9", "ann", "x"), ("i0", "ann", "x")], ["a", "b"], DuplicateError, "has voted on 'i0' before"),
        ([("i9", "ann", "x"), ("i7", "ann", "x")], None, InputError, "closed items: 'i7'"),
        ([("i9", "ann", "x"), ("i8", "ann")], None, InputError, "Expected .item, annotator, class."),
        ([("i9", "ann", "x")], ["a", "b"], InputError, "1 votes and 2 ids"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    tmp_path: Path, votes: Any, ids: Any, error: type[Exception], message: str
) -> None:
    campaign = make(tmp_path)
    campaign.add([("i0", "ann", "x")])
    campaign.close_items(["i7"])
    with pytest.raises(error, match=message):
        campaign.add(votes, ids)
    assert campaign.status()["votes"] == 1
    campaign.close_items(["i7"], closed=False)
    assert campaign.add([("i7", "ann", "x")]).added == 1


def test_a_text_or_a_table_is_no_list_of_names(tmp_path: Path) -> None:
    """The letters of a text, and the columns of a table, were names."""
    import polars as pl

    for given in ({"items": "photo"}, {"annotators": "ann"}, {"classes": "xy"}):
        with pytest.raises((InputError, ParameterError), match=r"found 'photo'|found 'ann'|classes='xy'"):
            make(tmp_path / "a", **given)
    table = pl.DataFrame({"item": ["a"], "text": ["b"]})
    with make(tmp_path / "b") as campaign:
        for call in (campaign.add_items, campaign.close_items, lambda some: campaign.release(items=some)):
            with pytest.raises(InputError, match="write \\['i1'\\]"):
                call("i1")
            with pytest.raises(InputError, match="found a table: give its column of names, such as table\\['item'\\]"):
                call(table)
        with pytest.raises(InputError, match="write \\['dan'\\]"):
            campaign.add_annotators("dan")
        with pytest.raises(InputError, match="The item ' ' cannot be kept"):
            campaign.add_items([" "])
        assert campaign.add_items(table["item"]) == 1 == campaign.add_annotators(["dan"])


def test_unknown_ones_may_be_added(tmp_path: Path) -> None:
    campaign = make(tmp_path, unknown="add", price=3.0)
    campaign.add([("new", "dee", "x")])
    assert campaign.status()["items"] == 21
    assert campaign.status()["spent"] == 3.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"annotators": {"ann": -1.0}}, "The price of 'ann' is -1.0"),
        ({"price": 0.0}, "price=0.0"),
        ({"budget": 0.0}, "budget=0.0"),
        ({"target": 1.5}, "target=1.5"),
        ({"classes": ["x"]}, "two or more different classes"),
        ({"classes": ["x", "x"]}, "two or more different classes"),
        ({"unknown": "ignore"}, "unknown='ignore'"),
        ({"strategy": "magic"}, "Unknown strategy 'magic'"),
        ({"random_state": -1}, "random_state=-1"),
        ({"rule": StopRule(), "budget": 3.0}, "with the rule"),
    ],
)
def test_bad_settings_make_no_campaign(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make(tmp_path, **options)
    assert not (tmp_path / "campaign").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "campaign").mkdir()
    (tmp_path / "campaign" / "letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(OutputError, match="holds something"):
        make(tmp_path)
    assert [p.name for p in (tmp_path / "campaign").iterdir()] == ["letter.txt"]
    with pytest.raises(ReadError, match="There is no campaign"):
        again(tmp_path)


def test_a_model_that_cannot_follow(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="cannot follow a stream"):
        cw.Campaign.create(tmp_path / "campaign", cw.Anchored(), classes=["x", "y"])
    with pytest.raises(ParameterError, match="glad cannot follow a stream of votes"):
        cw.Campaign.create(tmp_path / "campaign", cw.GLAD(), classes=["x", "y"])
    make(tmp_path).close()
    with pytest.raises(ParameterError, match="made with one-coin"):
        cw.Campaign.open(tmp_path / "campaign", cw.DawidSkene())


# -- asking ------------------------------------------------------------------------------------------------------------


def test_questions_are_handed_out_once(tmp_path: Path) -> None:
    campaign, other = make(tmp_path), again(tmp_path)
    first, second = campaign.propose(8), other.propose(8)
    pairs = [(q.item, q.annotator) for q in first + second]
    assert len(pairs) == len(set(pairs)) == 16
    assert len({q.item for q in first + second}) == 16  # one question at a time about an item
    campaign.add([(q.item, q.annotator, "xy"[i % 2]) for i, q in enumerate(first)])
    assert campaign.status()["asked"] == 8
    assert len(campaign.propose(20)) == 12  # eight items still wait for an answer


def test_a_question_that_is_not_answered_is_asked_again(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=["only"], patience=60.0)
    assert len(campaign.propose(3)) == 1
    assert len(campaign.propose(3)) == 0
    campaign.change(patience=0.01)
    time.sleep(0.02)
    assert len(campaign.propose(3)) == 1


def test_the_budget_holds(tmp_path: Path) -> None:
    campaign = make(tmp_path, budget=5.0, annotators={"ann": 1.0})
    asked = campaign.propose(20)
    assert len(asked) == 5
    assert campaign.propose(20) == []
    campaign.add([(q.item, q.annotator, "x") for q in asked])
    assert campaign.propose(1) == []
    assert "the budget is spent: 5 of 5" in campaign.status()["stop"]


def test_the_target_stops_it(tmp_path: Path) -> None:
    crowd = cw.simulate.one_coin(150, n_annotators=10, n_classes=2, votes_per_item=9, random_state=0)
    votes = crowd.votes
    with cw.Campaign.create(
        tmp_path / "campaign", cw.OneCoin(), classes=votes.classes.tolist(), items=votes.items.tolist(),
        annotators=votes.annotators.tolist(), target=0.3,
    ) as campaign:  # fmt: skip
        assert campaign.status()["stop"] is None
        campaign.add(votes)
        assert "accurate enough" in campaign.status()["stop"]
        assert campaign.propose(1) == []


def test_finished_items_are_left_in_peace(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=["a", "b"], annotators=[f"p{m}" for m in range(12)])
    campaign.add([("a", f"p{m}", "x") for m in range(9)] + [("b", "p0", "x"), ("b", "p1", "y")])
    assert {q.item for q in campaign.propose(5)} == {"b"}


def test_availability_and_load(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.set_annotator("ann", available=False)
    campaign.set_annotator("bob", max_votes=2)
    asked = campaign.propose(20)
    assert "ann" not in {q.annotator for q in asked}
    assert sum(q.annotator == "bob" for q in asked) <= 2
    with pytest.raises(InputError, match="Unknown annotators: 'dee'"):
        campaign.set_annotator("dee", available=True)
    for name in ("bob", "cem"):
        campaign.set_annotator(name, available=False)
    assert campaign.status()["stop"] == "no annotator is available"


def test_groups_are_kept_together(tmp_path: Path) -> None:
    """Half of the items have six votes, half two that differ: under a bound on the gap the latter are asked about."""
    items = [f"i{n}" for n in range(40)]
    groups = {item: "sure" if n < 20 else "open" for n, item in enumerate(items)}
    people = [f"p{m}" for m in range(12)]
    votes = [(item, people[m], "xy"[n % 2]) for n, item in enumerate(items[:20]) for m in range(6)]
    votes += [(item, people[m], "xy"[m]) for item in items[20:] for m in range(2)]
    shares = {}
    for gap in (None, 0.05):
        campaign = make(
            tmp_path / str(gap), items=items, annotators=people, groups=groups, gap=gap,
            rule=StopRule(probability=None), strategy="random",
        )  # fmt: skip
        campaign.add(votes)
        shares[gap] = np.mean([groups[q.item] == "open" for q in campaign.propose(12)])
    assert shares[0.05] > max(0.8, shares[None])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gap": 1.0, "groups": {"i0": "a", "i1": "b"}}, "gap=1.0"),
        ({"gap": 0.1}, "two of them at least"),
        ({"gap": 0.1, "groups": {"i0": "a"}}, "two of them at least"),
    ],
)
def test_a_gap_needs_groups(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make(tmp_path, **options)


def test_known_classes_test_annotators(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.add_items(["gold"], gold={"gold": "y"})
    campaign.add([("gold", "ann", "x"), ("gold", "bob", "x")])
    consensus = campaign.consensus()
    assert consensus.labels[consensus.items.tolist().index("gold")] == "y"
    with pytest.raises(LabelError):
        campaign.add_items(["more"], gold={"more": "z"})
    assert campaign.status()["items"] == 21


def test_groups_of_items_that_come_later_are_kept(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=["i0", "i1"], groups={"i0": "a", "i1": "b"}, gap=0.1)
    assert campaign.add_items(["i2", "i3"], groups={"i2": "b", "i0": "c"}) == 2
    assert campaign.roster.items_with("grp") == {0: '"c"', 1: '"b"', 2: '"b"'}


@pytest.mark.parametrize("known", [{"gold": {"i0": "x", "nothing": "y"}}, {"groups": {"i0": "a", "nothing": "b"}}])
def test_what_is_known_of_unknown_items_is_an_error(tmp_path: Path, known: dict[str, Any]) -> None:
    campaign = make(tmp_path)
    with pytest.raises(InputError, match=r"Unknown items: 'nothing'\. Nothing was added\. Declare them first"):
        campaign.add_items(["more"], **known)
    assert campaign.status()["items"] == 20
    assert campaign.roster.items_with("gold") == campaign.roster.items_with("grp") == {}
    assert campaign.add_items(["nothing"], **known) == 1
    with pytest.raises(InputError, match="Unknown items: 'nothing'"):
        make(tmp_path / "other", **known)
    assert not (tmp_path / "other" / "campaign").exists()


@pytest.mark.parametrize("name", [str, int, lambda n: f"z{97 * n % 60:02d}"])
def test_names_do_not_matter(tmp_path: Path, name: Any) -> None:
    """Numbers or text, in whatever order they sort: the model and the questions are the same."""
    found = []
    crowd = cw.simulate.one_coin(60, n_annotators=8, n_classes=2, votes_per_item=3, random_state=0).votes
    order = np.random.default_rng(0).permutation(crowd.n_votes).tolist()
    for made, to_name in ((tmp_path / "plain", lambda n: f"i{n}"), (tmp_path / "other", name)):
        items, people = [to_name(n) for n in range(60)], [to_name(m) for m in range(8)]
        campaign = make(made, items=items, annotators=people)
        campaign.add([(items[crowd.item[i]], people[crowd.annotator[i]], "xy"[crowd.label[i]]) for i in order])
        asked = [(items.index(q.item), people.index(q.annotator), q.value) for q in campaign.propose(5)]
        found.append((campaign.consensus().posterior.tolist(), asked))
    assert found[0] == found[1]


def test_it_learns_whom_to_ask(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 120)
    skill = {f"p{m}": 0.95 if m < 4 else 0.55 for m in range(12)}
    campaign = make(
        tmp_path, items=[f"i{n}" for n in range(120)], annotators=list(skill), rule=StopRule(probability=0.99)
    )
    asked: list[str] = []
    for _ in range(30):
        some = campaign.propose(20)
        asked += [q.annotator for q in some]
        right = [rng.random() < skill[q.annotator] for q in some]
        said = [truth[int(q.item[1:])] if r else 1 - truth[int(q.item[1:])] for q, r in zip(some, right, strict=True)]
        campaign.add([(q.item, q.annotator, "xy"[k]) for q, k in zip(some, said, strict=True)])
    good = np.mean([skill[name] > 0.9 for name in asked[len(asked) // 2 :]])
    assert good > 0.6  # a third of the crowd is good
    score = campaign.consensus().score({f"i{n}": "xy"[k] for n, k in enumerate(truth)})
    assert score > 0.9


def test_names_keep_their_kind(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=[7, 8], annotators=[1, 2], classes=[0, 1])
    campaign.add([(7, 1, 0), (8, 1, 1), (7, 2, 0), (8, 2, 1)])
    assert campaign.add([("7", "1", "0")]).repeated == 1  # the names of a column are of one kind: 7 is meant
    with pytest.raises(InputError, match="Unknown items: '07'"):
        campaign.add([("07", 1, 0)])
    consensus = campaign.consensus()
    assert dict(zip(consensus.items.tolist(), consensus.labels.tolist(), strict=True)) == {7: 0, 8: 1}
    assert campaign.add([(np.int64(7), np.int64(1), np.int64(0))]).repeated == 1


# -- keeping -----------------------------------------------------------------------------------------------------------


def test_opened_again_it_knows_what_it_knew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vote_stream, "SNAPSHOT", 10)
    monkeypatch.setattr(vote_stream, "BLOCK", 25)
    crowd = cw.simulate.one_coin(30, n_annotators=6, n_classes=2, votes_per_item=4, random_state=0).votes
    campaign = make(
        tmp_path, classes=crowd.classes.tolist(), items=crowd.items.tolist(), annotators=crowd.annotators.tolist()
    )
    for n in range(0, 30, 5):
        campaign.add(crowd[np.arange(n, n + 5)])
        before = campaign.consensus()
    campaign.close()
    assert len(list((tmp_path / "campaign").glob("model-*"))) == 2
    assert np.array_equal(again(tmp_path).consensus().posterior, before.posterior)
    for snapshot in (tmp_path / "campaign").glob("model-*"):
        (snapshot / "arrays.npz").write_bytes(b"broken")
    assert np.array_equal(again(tmp_path).consensus().posterior, before.posterior)
    assert again(tmp_path).votes().n_votes == crowd.n_votes


def test_nothing_yet(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    assert campaign.status()["accuracy"] is None
    with pytest.raises(NotFittedError):
        campaign.votes()
    with pytest.raises(NotFittedError):
        campaign.consensus()


WRITER = """
import sys
import crowdwise as cw
folder, who, first, last, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
campaign = cw.Campaign.open(folder, cw.OneCoin())
with open(log, "a", buffering=1) as acknowledged:
    for n in range(first, last):
        campaign.add([(n, who, n % 2)])
        acknowledged.write(f"{n}\\n")
"""


def writer(folder: Path, who: str, first: int, last: int, log: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), who, str(first), str(last), str(log)])


def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    rng = random.Random(0)
    make(tmp_path, classes=[0, 1], items=range(100_000), annotators=["ann"]).close()
    folder, log = tmp_path / "campaign", tmp_path / "log"
    log.touch()
    for _ in range(6):
        done = len(log.read_text().split())
        process = writer(folder, "ann", done, 100_000, log)
        while len(log.read_text().split()) == done and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.1))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        acknowledged = [int(n) for n in log.read_text().split() if n]
        campaign = cw.Campaign.open(folder, cw.OneCoin())
        there = sorted(
            n
            for (n,) in campaign.journal.read(
                "SELECT CAST(i.name AS INTEGER) FROM votes v JOIN items i ON i.id = v.item"
            )
        )
        assert len(there) == len(set(there))
        assert set(acknowledged) <= set(there)
        assert len(there) <= len(set(acknowledged)) + 1  # at most the one that was written and not yet acknowledged
        campaign.close()
    assert len(set(acknowledged)) > 6
    assert again(tmp_path).votes().n_votes == len(there)


def test_killed_while_it_is_made_it_can_be_made_again(tmp_path: Path) -> None:
    code = (
        "import os, crowdwise as cw\n"
        "from crowdwise.store import journal\n"
        "journal._name = lambda *_: os._exit(9)\n"  # all is written but the name
        f"cw.Campaign.create({str(tmp_path / 'c')!r}, cw.OneCoin(), classes=['x', 'y'], items=['a'])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    left = list((tmp_path / "c").iterdir())
    assert left and all(path.name.startswith(".crowdwise-") for path in left)
    with pytest.raises(ReadError, match="There is no campaign"):
        cw.Campaign.open(tmp_path / "c")
    with cw.Campaign.create(tmp_path / "c", cw.OneCoin(), classes=["x", "y"], items=["a"]) as campaign:
        assert campaign.status()["items"] == 1
        with pytest.raises(OutputError, match="another process was first"):
            Journal.create(tmp_path / "c" / "campaign.db", {})
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["campaign.db"]


def test_two_writers_at_once_lose_no_vote(tmp_path: Path) -> None:
    make(tmp_path, classes=[0, 1], items=range(60), annotators=["ann", "bob"]).close()
    both = [writer(tmp_path / "campaign", who, 0, 60, tmp_path / who) for who in ("ann", "bob")]
    assert [process.wait() for process in both] == [0, 0]
    assert again(tmp_path).votes().n_votes == 120


class Full:
    """A connection to a disk on which nothing more can be written."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)

    def executemany(self, *_: Any) -> Any:
        raise sqlite3.OperationalError("database or disk is full")


def test_a_full_disk(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.add([("i0", "ann", "x")])
    real = campaign.journal._db
    campaign.journal._db = Full(real)  # type: ignore[assignment]
    with pytest.raises(OutputError, match="make room on the disk"):
        campaign.add([("i1", "ann", "x")])
    campaign.journal._db = real
    assert campaign.votes().n_votes == 1
    assert campaign.add([("i1", "ann", "x")]).added == 1


def test_a_torn_write_ahead_log_costs_only_its_end(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    for n in range(10):
        campaign.add([(f"i{n}", "ann", "x")])
    log = tmp_path / "campaign" / "campaign.db-wal"
    torn = log.read_bytes()[:-2000] + b"\x00" * 1000
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "campaign.db").write_bytes((tmp_path / "campaign" / "campaign.db").read_bytes())
    (copy / "campaign.db-wal").write_bytes(torn)
    found = cw.Campaign.open(copy, cw.OneCoin())
    assert 8 <= found.votes().n_votes <= 9
    assert found.add([("i15", "bob", "y")]).added == 1


def test_a_damaged_journal_says_so_and_gives_what_it_has(tmp_path: Path) -> None:
    campaign = make(tmp_path, items=range(3_000), annotators=["ann"])
    campaign.add([(n, "ann", "x") for n in range(3_000)])
    campaign.journal.read("PRAGMA wal_checkpoint(TRUNCATE)")
    campaign.close()
    journal = tmp_path / "campaign" / "campaign.db"
    pages = bytearray(journal.read_bytes())
    for share in (0.3, 0.45, 0.6, 0.75, 0.9):  # some of these hold votes, others their indexes
        page = int(len(pages) * share) // 4096 * 4096
        pages[page : page + 4096] = b"\xff" * 4096
    journal.write_bytes(bytes(pages))
    for snapshot in (tmp_path / "campaign").glob("model-*"):
        for file in snapshot.iterdir():
            file.unlink()
        snapshot.rmdir()
    with pytest.raises(ReadError, match=r"is damaged.*--salvage"):
        again(tmp_path).votes()
    rows, lost = salvage(journal)
    assert lost > 0
    assert len(rows) > 1_000
    assert len(rows) + lost == 3_000
    assert all(who == '"ann"' and label == '"x"' for _, _, who, label in rows)


def test_another_version(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    with campaign.journal.writing():
        campaign.journal.note(format=99)
    with pytest.raises(ReadError, match="another version"):
        Journal.open(tmp_path / "campaign" / "campaign.db")


@pytest.mark.parametrize("classes", [["x"], ["x", {"y": 1}], ["x", "x"], "xy", 5, ["x", 1]])
def test_classes_that_are_not_as_they_were_written(tmp_path: Path, classes: Any) -> None:
    campaign = make(tmp_path)
    with campaign.journal.writing():
        campaign.journal.note(classes=classes)
    with pytest.raises(ReadError, match="is damaged"):
        again(tmp_path)
