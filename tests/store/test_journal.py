"""The journal decides: snapshots, threads, processes, names and disks do not change what a campaign says."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.errors import CrowdwiseError, InputError, LabelError, OutputError, ParameterError
from crowdwise.store import asking, vote_stream
from crowdwise.store.journal import salvage


def make(folder: Path, **options: Any) -> cw.Campaign:
    given: dict[str, Any] = {"classes": ["x", "y"], "unknown": "add"}
    return cw.Campaign.create(folder, cw.OneCoin(), **given | options)


def again(folder: Path) -> cw.Campaign:
    return cw.Campaign.open(folder, cw.OneCoin())


def said(campaign: cw.Campaign) -> dict[Any, Any]:
    found = campaign.consensus()
    return dict(zip(found.items.tolist(), found.labels.tolist(), strict=True))


def rows_of(n_items: int, seed: int = 0) -> list[tuple[str, str, str]]:
    votes = cw.simulate.one_coin(n_items, n_annotators=20, n_classes=2, votes_per_item=3, random_state=seed).votes
    order = np.random.default_rng(seed).permutation(votes.n_votes)
    columns = (votes.item[order].tolist(), votes.annotator[order].tolist(), votes.label[order].tolist())
    return [(f"i{n}", f"p{m}", "xy"[k]) for n, m, k in zip(*columns, strict=True)]


def same(one: cw.Campaign, other: cw.Campaign) -> None:
    a, b = one.consensus(), other.consensus()
    assert a.items.tolist() == b.items.tolist()
    assert np.array_equal(a.posterior, b.posterior) and np.array_equal(a.confusion, b.confusion)
    assert a.labels.tolist() == b.labels.tolist()


# -------------------------------------------------------------------- snapshots


def test_a_snapshot_of_votes_that_are_no_more_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older journal is restored, and other votes come: labels follow the votes, not the snapshot."""
    monkeypatch.setattr(vote_stream, "BLOCK", 20)
    monkeypatch.setattr(vote_stream, "SNAPSHOT", 20)
    folder = tmp_path / "birds"
    make(folder).close()
    shutil.copy(folder / "campaign.db", tmp_path / "older.db")
    people = ["ann", "bob", "cem"]
    with again(folder) as campaign:
        campaign.add([(f"i{n}", who, "x") for n in range(40) for who in people])
        assert set(said(campaign).values()) == {"x"}
    assert list(folder.glob("model-*"))
    for file in folder.glob("campaign.db*"):
        file.unlink()
    shutil.copy(tmp_path / "older.db", folder / "campaign.db")
    campaign = again(folder)
    campaign.add([(f"i{n}", who, "y") for n in range(40) for who in people])
    campaign.journal.close()  # as a process that is killed
    with again(folder) as campaign:
        assert set(said(campaign).values()) == {"y"}
    with again(folder) as campaign:
        assert set(said(campaign).values()) == {"y"}


def test_a_snapshot_of_another_campaign_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vote_stream, "BLOCK", 20)
    for name, label in (("one", "x"), ("two", "y")):
        with make(tmp_path / name) as campaign:
            campaign.add([(f"i{n}", who, label) for n in range(10) for who in ("ann", "bob")])
    (snapshot,) = (tmp_path / "two").glob("model-*")
    shutil.rmtree(snapshot)
    shutil.copytree(tmp_path / "one" / snapshot.name, snapshot)
    with again(tmp_path / "two") as campaign:
        assert not snapshot.exists() and set(said(campaign).values()) == {"y"}


@pytest.mark.parametrize("strategy", ["value", "random"])
def test_live_replayed_and_reopened_campaigns_are_the_same(
    tmp_path: Path, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vote_stream, "BLOCK", 200)
    monkeypatch.setattr(vote_stream, "SNAPSHOT", 400)
    rows = rows_of(300)
    live, opened = make(tmp_path / "live", strategy=strategy), tmp_path / "opened"
    make(opened, strategy=strategy).close()
    rng, at = np.random.default_rng(1), 0
    while at < len(rows):
        some = rows[at : (at := at + int(rng.integers(1, 60)))]
        live.add(some)
        live.consensus()
        with again(opened) as campaign:
            campaign.add(some)
    at_once = make(tmp_path / "at once", strategy=strategy)
    at_once.add(rows)
    same(live, at_once)
    assert len(list(opened.glob("model-*"))) == 2
    same(again(opened), at_once)
    for snapshot in opened.glob("model-*"):
        shutil.rmtree(snapshot)
    same(again(opened), at_once)


def test_gold_counts_whenever_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vote_stream, "BLOCK", 100)
    rows = rows_of(120)
    items = [f"i{n}" for n in range(120)]
    gold = {f"i{n}": "xy"[n % 2] for n in range(30)}
    before = make(tmp_path / "before", items=items, gold=gold)
    before.add(rows)
    after = make(tmp_path / "after", items=items)
    after.add(rows)
    plain = after.consensus().posterior
    for item, label in gold.items():
        after.add_items([], gold={item: label})
        assert said(after)[item] == label
    same(before, after)
    assert not np.array_equal(plain, after.consensus().posterior)
    after.close()
    same(before, again(tmp_path / "after"))
    with pytest.raises(InputError, match="Unknown items: 'nothing'"):
        before.add_items([], gold={"nothing": "x"})


# -------------------------------------------------------------------- many at once

WRITER = """
import sys
import crowdwise as cw
folder, who = sys.argv[1:]
campaign = cw.Campaign.open(folder, cw.OneCoin())
for n in range(40):
    campaign.add([(f"i{n}" if n % 2 else f"{who}{n}", f"{who}{n % 7}", "xy"[n % 2])])
    campaign.status()
    campaign.consensus()
    campaign.propose(2)
campaign.close()
"""


def test_two_processes_add_names_nobody_knows(tmp_path: Path) -> None:
    make(tmp_path / "c").close()
    both = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "c"), who]) for who in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    campaign = again(tmp_path / "c")
    assert campaign.votes().n_votes == 80 and campaign.status()["annotators"] == 14


def test_threads_share_a_campaign(tmp_path: Path) -> None:
    campaign = make(tmp_path / "c")
    errors: list[BaseException] = []

    def work(who: str) -> None:
        try:
            for n in range(10):
                campaign.add([(f"i{n}" if n % 2 else f"{who}{n}", f"{who}{n % 7}", "xy"[n % 2])])
                campaign.status()
                assert len(campaign.consensus().labels) > 0
                campaign.propose(1)
                campaign.votes()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert campaign.votes().n_votes == 40
    campaign.close()
    assert again(tmp_path / "c").votes().n_votes == 40


# -------------------------------------------------------------------- names


ODD = [float("nan"), float("inf"), 0.5, None, (1, 2), [1], {"a": 1}, {1}, b"x", "", "\ud800", True, 2**63, object()]


@pytest.mark.parametrize("name", ODD, ids=lambda name: type(name).__name__)
@pytest.mark.parametrize("part", ["item", "annotator", "class", "id", "declared item", "declared annotator", "group"])
def test_names_that_cannot_be_read_back_are_refused(part: str, name: Any, tmp_path: Path) -> None:
    if part == "group" and name is True:
        pytest.skip("a group may be a boolean")
    campaign = make(tmp_path / "c", items=["a"], annotators=["ann"])
    campaign.add([("a", "ann", "x")])
    calls: dict[str, Callable[[], Any]] = {
        "item": lambda: campaign.add([("b", "ann", "x"), (name, "bob", "x")]),
        "annotator": lambda: campaign.add([("b", "ann", "x"), ("a", name, "x")]),
        "class": lambda: campaign.add([("b", "ann", "x"), ("b", "bob", name)]),
        "id": lambda: campaign.add([("b", "ann", "x")], ids=[name]),
        "declared item": lambda: campaign.add_items(["b", name]),
        "declared annotator": lambda: campaign.roster.set_prices(_People(name)),
        "group": lambda: campaign.add_items(["b"], groups={"b": name}),
    }
    with pytest.raises((InputError, LabelError), match=r"Nothing was added"):
        calls[part]()
    assert campaign.votes().n_votes == 1 and campaign.status()["items"] == 1
    campaign.close()
    assert said(again(tmp_path / "c")) == {"a": "x"}


class _People:
    """A mapping of one name, which need not be hashable."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def items(self) -> list[tuple[Any, float]]:
        return [(self.name, 1.0)]


def test_names_of_two_kinds_are_refused(tmp_path: Path) -> None:
    campaign = make(tmp_path / "c", classes=[0, 1])
    campaign.add([(7, "ann", 0), (np.int64(8), "ann", 1), (9.0, "ann", np.int32(1))])
    with pytest.raises(InputError, match=r"Names of items are of one kind: 7 is an integer and 'b' is text"):
        campaign.add([("b", "ann", 0)])
    with pytest.raises(InputError, match=r"Names of items are of one kind"):
        campaign.add_items([11, "twelve"])
    with pytest.raises(LabelError, match="says 'zero'"):
        campaign.add([(10, "ann", "zero")])
    campaign.close()
    assert said(again(tmp_path / "c")) == {7: 0, 8: 1, 9: 1}
    for classes in (["a", 1], [True, 1], ["a", float("nan")], ["a", ("b",)], [0, 0.0]):
        with pytest.raises(ParameterError, match="two or more different classes"):
            make(tmp_path / "d", classes=classes)


def test_strange_text_comes_back_as_it_was(tmp_path: Path) -> None:
    names = [
        " a ",
        "a",
        "A",
        "null",
        "NaN",
        "7",
        "007",
        "true",
        "a,b",
        'a"b',
        "a\nb",
        "a\x00b",
        "é",
        "e\u0301",
        "😀",
        "[1]",
    ]
    rows = [(item, who, "x") for item in names for who in names]
    with make(tmp_path / "c") as campaign:
        assert campaign.add(rows).added == len(rows)
        assert campaign.add(rows).repeated == len(rows)
    with again(tmp_path / "c") as campaign:
        votes = campaign.votes()
        assert sorted(votes.items.tolist()) == sorted(votes.annotators.tolist()) == sorted(names)
        assert set(said(campaign)) == set(names)
        assert {q.item for q in campaign.propose(100)} <= set(names)


@pytest.mark.parametrize("votes", [None, 5, "abc", ["abc"], [5], [("a", "b")], {"a": 1}, [{"a": 1, "b": 2, "c": 3}]])
def test_what_is_no_vote_is_our_error(votes: Any, tmp_path: Path) -> None:
    campaign = make(tmp_path / "c")
    with pytest.raises(InputError, match=r"Expected .item, annotator, class."):
        campaign.add(votes)


# -------------------------------------------------------------------- damage, disks, clocks


@pytest.mark.parametrize("name", ["what?", "50%20off", "a#b", "100%", "é ü"])
def test_salvage_in_any_folder(name: str, tmp_path: Path) -> None:
    with make(tmp_path / name) as campaign:
        campaign.add([("a", "ann", "x"), ("b", "ann", "y")])
    rows, lost = salvage(tmp_path / name / "campaign.db")
    assert lost == 0 and [row[1:] for row in rows] == [('"a"', '"ann"', '"x"'), ('"b"', '"ann"', '"y"')]
    done = subprocess.run(
        [sys.executable, "-m", "crowdwise", "campaign", "export", str(tmp_path / name), "--salvage", "rest.csv"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "2 votes" in done.stderr
    assert (tmp_path / "rest.csv").read_text(encoding="utf-8").splitlines()[1].endswith(",a,ann,x")


def test_salvage_ends_on_damaged_numbers(tmp_path: Path) -> None:
    with make(tmp_path / "c") as campaign:
        campaign.add([(f"i{n}", "ann", "x") for n in range(50)])
    db = sqlite3.connect(tmp_path / "c" / "campaign.db")
    db.execute("PRAGMA foreign_keys = OFF")
    columns = "INSERT INTO votes (id, vote_id, item, annotator, label, price, time, chain) VALUES"
    db.execute(f"{columns} ({2**62}, 'v', 98, 99, 0, 1, 1, '')")
    db.execute(f"{columns} (60, 'w', 1, 99, 0, 1, 1, '')")  # of nobody
    db.execute(f"{columns} (61, 'z', 2, 99, 'odd', 1, 1, '')")
    db.execute(f"INSERT INTO items (id, name) VALUES ({2**62}, '{{no json'), (70, '[1]')")
    db.execute(f"INSERT INTO annotators (id, name, price) VALUES ({2**62}, 'no json', 1), (99, '{{}}', 1)")
    db.commit()
    db.close()
    rows, lost = salvage(tmp_path / "c" / "campaign.db")
    assert len(rows) == 50 and lost == 2


def python(code: str, folder: Path) -> str:
    """What a process of its own says at the end of standard error; it has ``folder``."""
    head = "import os, resource, sys\nfrom pathlib import Path\nimport crowdwise as cw\nfolder = Path(sys.argv[1])\n"
    done = subprocess.run([sys.executable, "-c", head + code, str(folder)], capture_output=True, text=True, check=False)
    return done.stderr.strip()[-300:]


STATUS = """
with cw.Campaign.open(folder, cw.OneCoin()) as campaign:
    assert campaign.status()["votes"] == 60
    assert len(campaign.consensus().labels) == 20
    assert campaign.votes().n_votes == 60
    try:
        campaign.add([("more", "ann", "x")])
    except cw.errors.OutputError as error:
        assert "cannot be written" in str(error) or "make room" in str(error), error
    else:
        raise AssertionError("a vote was acknowledged")
"""


@pytest.fixture(params=["closed", "left open"])
def sixty(request: Any, tmp_path: Path) -> Path:
    """A campaign whose votes are in its file, or in the log beside it."""
    code = f"""
campaign = cw.Campaign.create(folder, cw.OneCoin(), classes=["x", "y"], unknown="add")
campaign.add([(f"i{{n}}", who, "x") for n in range(20) for who in ("ann", "bob", "cem")])
{"campaign.close()" if request.param == "closed" else ""}
os._exit(0)
"""
    assert python(code, tmp_path / "c") == ""
    assert (tmp_path / "c" / "campaign.db-wal").exists() == (request.param == "left open")
    return tmp_path / "c"


@pytest.mark.parametrize("index", [True, False])
def test_status_on_a_full_disk(sixty: Path, index: bool) -> None:
    if not index:
        (sixty / "campaign.db-shm").unlink(missing_ok=True)
    assert python(f"resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)){STATUS}", sixty) == ""
    assert again(sixty).votes().n_votes == 60


@pytest.mark.parametrize("ways", [("memory", "as it is"), ("memory",), ()])
def test_status_on_a_read_only_disk(sixty: Path, ways: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever way of opening fails there, the next one is taken."""
    real, calls = sqlite3.connect, []

    def connect(where: Any, **options: Any) -> Any:
        calls.append(str(where))
        memory = str(where) == str(sixty / "campaign.db")
        if (memory and (len(calls) == 1 or "memory" in ways)) or ("immutable" in str(where) and "as it is" in ways):
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return real(where, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    with again(sixty) as campaign:
        assert campaign.journal.read_only
        assert campaign.status()["votes"] == campaign.votes().n_votes == 60
        with pytest.raises(OutputError, match="the disk is full or read-only"):
            campaign.add([("more", "ann", "x")])


def test_a_clock_that_was_set_back_blocks_no_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(tmp_path / "c", items=["only"], annotators=["ann"], patience=10.0)
    now = time.time()

    class Clock:
        time = staticmethod(lambda: now)

    monkeypatch.setattr(asking, "time", Clock)
    now += 1_000_000.0
    assert len(campaign.propose(1)) == 1
    now -= 1_000_000.0
    assert campaign.propose(1) == []  # its time begins now
    now += 11.0
    assert len(campaign.propose(1)) == 1


def test_any_damage_is_our_error_or_changes_nothing(tmp_path: Path) -> None:
    """Bytes of the journal at random: it is read as it was, or one of our errors says what is wrong."""
    rows = rows_of(60)
    with make(tmp_path / "c") as campaign:
        campaign.add(rows)
    whole = (tmp_path / "c" / "campaign.db").read_bytes()
    rng, errors = np.random.default_rng(0), 0
    for _ in range(60):
        content = bytearray(whole)
        for at in rng.integers(0, len(content), 8).tolist():
            content[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "c" / "campaign.db").write_bytes(bytes(content))
        try:
            with again(tmp_path / "c") as campaign:
                votes = campaign.votes().to_frame("dict")
                columns = (votes[name].tolist() for name in ("item", "annotator", "label"))
                assert sorted(zip(*columns, strict=True)) == sorted(rows)
                campaign.consensus()
                campaign.status()
        except CrowdwiseError:
            errors += 1
        for file in (tmp_path / "c").glob("campaign.db-*"):
            file.unlink()
        try:
            found, _ = salvage(tmp_path / "c" / "campaign.db")
            assert len(found) <= len(rows)
        except CrowdwiseError:
            pass
    assert errors > 5
