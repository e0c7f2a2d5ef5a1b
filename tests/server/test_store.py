"""The store: migrations, several workers on one store, backup and restore, campaign folders, other answer types."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations

import crowdwise as cw
import crowdwise.migrations
import server_first_tables
from command_line import run
from crowdwise.errors import OutputError, ReadError
from crowdwise.server.configuration import load_configuration
from crowdwise.server.question_queue import QuestionQueues, Shown
from crowdwise.store import live_votes, steady_clock
from crowdwise.store.backups import back_up, restore
from crowdwise.store.campaign_folders import export_folder, import_folder
from crowdwise.store.database import Database
from crowdwise.store.lease_rows import Lease, LeaseAsked
from crowdwise.store.live_votes import LiveVotes
from crowdwise.store.store_tables import metadata, votes
from crowdwise.store.vote_rows import VoteGiven, add_together
from server_site import Site, running


def differences(database: Database) -> list[Any]:
    with database.reading() as conn:
        return list(compare_metadata(MigrationContext.configure(conn, opts={"compare_type": True}), metadata))


def test_migrations_lead_to_the_tables(site: Site) -> None:
    site.service.database.migrate()  # again: nothing to do
    assert differences(site.service.database) == []


REVISIONS = sorted(path.stem[1:5] for path in Path(crowdwise.migrations.__file__).parent.glob("m0*.py"))


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_earlier_revision_is_brought_up_to_date(tmp_path: Path, revision: str) -> None:
    store = Database(f"sqlite:///{tmp_path / 'server.db'}")
    with store.writing() as conn:
        context = MigrationContext.configure(conn)
        with Operations.context(context):
            server_first_tables.upgrade()
            for later in sorted(Path(crowdwise.migrations.__file__).parent.glob("m0*.py"))[1:]:
                if later.stem[1:5] <= revision:
                    import_module(f"crowdwise.migrations.{later.stem}").upgrade()
        conn.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
        conn.execute(sa.text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})
    store.migrate()
    assert differences(store) == []
    with store.writing() as conn:
        conn.execute(sa.text("DROP TABLE skips"))
    with pytest.raises(ReadError, match=f"tables of revision {REVISIONS[-1]}, and there is no 'skips'"):
        store.migrate()
    store.close()


def test_connections_that_the_server_closed_are_replaced(postgres: str) -> None:
    store = Database(load_configuration({"database": postgres}, environment={}).url)
    closed = [store.engine.connect() for _ in range(3)]
    pids = [conn.execute(sa.text("SELECT pg_backend_pid()")).scalar() for conn in closed]
    for conn in closed:
        conn.close()  # back to the pool
    with store.engine.connect() as conn:
        others = [pid for pid in pids if pid != conn.execute(sa.text("SELECT pg_backend_pid()")).scalar()]
        assert len(others) == 2
        for pid in others:
            conn.execute(sa.text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})
        opened = [store.engine.connect() for _ in range(3)]
        new = {one.execute(sa.text("SELECT pg_backend_pid()")).scalar() for one in opened}
    assert len(new) == 3 and not new & set(pids)
    for one in opened:
        one.close()
    store.close()


def test_votes_are_looked_up_by_their_keys_after_a_table_has_grown(site: Site) -> None:
    store = site.service.database
    if store.is_sqlite:
        pytest.skip("SQLite makes its plans by the keys of tables alone.")
    campaign = site.campaign(n_items=20, unknown="add")
    scans = sa.text("SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE relname IN ('votes', 'answers', 'items')")
    with store.engine.connect() as conn, conn.begin():
        conn.execute(sa.text("ANALYZE votes, answers, items"))
        before = conn.execute(scans).scalar_one()
        for m in range(12):  # PostgreSQL keeps the plan of a statement that came ten times
            given = [VoteGiven(f"p{i}", f"ann{m}", "wren") for i in range(20)]
            assert add_together(conn, campaign, [given])[0]["added"] == 20  # type: ignore[index]
        assert conn.execute(scans).scalar_one() == before


@pytest.fixture
def second(site: Site) -> Iterator[Site]:
    """Another worker on the same store."""
    with running(site.service.configuration) as other:
        yield other


def test_workers_on_one_store_see_one_campaign(site: Site, second: Site) -> None:
    campaign = site.campaign(n_items=40, annotators=[f"w{m}" for m in range(8)])
    leased: list[str] = []
    failed: list[Any] = []

    def work(where: Site, who: str) -> None:
        try:
            for _ in range(10):
                found = where.call("GET", f"/campaigns/{campaign}/next?annotator={who}&n=2")["questions"]
                leased.extend(one["item"] for one in found)
                if found:
                    where.votes(campaign, *((one["item"], who, "wren") for one in found))
        except BaseException as error:
            failed.append(error)

    crowd = [threading.Thread(target=work, args=((site, second)[m % 2], f"w{m}")) for m in range(8)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert not failed
    states = [one.call("GET", f"/campaigns/{campaign}/status") for one in (site, second)]
    assert states[0] == states[1] and states[0]["votes"] == len(leased)
    rows = site.service.read(
        lambda conn: conn.execute(sa.select(votes.c.seq).where(votes.c.campaign == campaign)).all()
    )
    assert sorted(row.seq for row in rows) == list(range(1, len(leased) + 1))
    assert second.call("GET", f"/campaigns/{campaign}/consensus") == site.call(
        "GET", f"/campaigns/{campaign}/consensus"
    )


def test_no_question_is_out_twice_at_a_time(site: Site, second: Site) -> None:
    campaign = site.campaign(n_items=12, annotators=[f"w{m}" for m in range(6)])
    found: dict[str, list[str]] = {}

    def ask(where: Site, who: str) -> None:
        some = where.call("GET", f"/campaigns/{campaign}/next?annotator={who}&n=3")["questions"]
        found[who] = [one["item"] for one in some]

    crowd = [threading.Thread(target=ask, args=((site, second)[m % 2], f"w{m}")) for m in range(6)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    every = [item for some in found.values() for item in some]
    assert len(every) == len(set(every)) == 12


def test_a_question_that_is_free_is_found_at_the_end_of_the_queue(site: Site, second: Site) -> None:
    campaign = site.campaign(n_items=20, annotators=["ann", "bob"])

    def asked(where: Site, who: str, n: int) -> list[str]:
        path = f"/campaigns/{campaign}/next?annotator={who}&n={n}"
        return [one["item"] for one in where.call("GET", path)["questions"]]

    (first,) = asked(site, "ann", 1)
    last = f"p{site.service.queues.queues[campaign, 1].items[-1] - 1}"
    assert len(asked(second, "bob", 20)) == 19
    second.call("POST", f"/campaigns/{campaign}/release", json={"items": [last]})
    assert asked(site, "ann", 2) == [first, last]


def test_what_was_written_while_a_view_was_read_is_looked_up_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view is of the moment at which its reading began, not ended."""
    campaign = site.campaign(n_items=0)
    live = site.service.follower.get(site.service.campaign(campaign))
    live.refresh()
    follow, asked = live.model.follow, list[float]()

    def slow(conn: sa.Connection, row: Any) -> Any:
        if not asked:
            site.call("POST", f"/campaigns/{campaign}/items", 201, json=[{"item": "p0"}])
            asked.append(steady_clock.now())  # somebody wants a question
        return follow(conn, row)

    monkeypatch.setattr(live.model, "follow", slow)
    live.refresh()
    live._renew(asked[0])
    assert live.view.row.version == site.service.campaign(campaign).version


def test_an_item_with_all_its_votes_is_not_asked_again(site: Site, second: Site) -> None:
    """Questions are chosen ahead; what others answered since is not handed out."""
    campaign = site.campaign(n_items=3, annotators=["ann", "bob"], max_votes=1)

    def asked(where: Site, who: str) -> list[str]:
        return [q["item"] for q in where.call("GET", f"/campaigns/{campaign}/next?annotator={who}")["questions"]]

    (first,) = asked(site, "ann")
    (other,) = asked(second, "bob")
    (last,) = {"p0", "p1", "p2"} - {first, other}
    second.votes(campaign, (other, "bob", "wren"), (last, "bob", "wren"))
    site.votes(campaign, (first, "ann", "wren"))
    assert asked(site, "ann") == [] == asked(second, "bob")


def test_who_comes_back_later_gets_a_new_queue(site: Site) -> None:
    campaign = site.campaign(n_items=12, annotators=["ann"])
    queues = site.service.queues.queues
    (question,) = site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")["questions"]
    site.votes(campaign, (question["item"], "ann", "wren"))
    before = queues[campaign, 1]
    site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")
    assert queues[campaign, 1] is before
    before.until = time.monotonic() - 1000.0
    site.call("GET", f"/campaigns/{campaign}/next?annotator=ann")
    assert queues[campaign, 1] is not before


def test_a_follower_that_finds_a_hole_stops(site: Site) -> None:
    campaign = site.campaign()
    site.votes(campaign, ("p0", "ann", "wren"), ("p1", "ann", "wren"))
    site.service.write(
        lambda conn: conn.execute(votes.delete().where(votes.c.campaign == campaign, votes.c.seq == 1)), campaign
    )
    row = site.service.campaign(campaign)
    with site.service.database.reading() as conn, pytest.raises(ReadError, match="after number 0 are missing"):
        LiveVotes().follow(conn, row)
    site.call("DELETE", f"/campaigns/{campaign}?confirm=birds")


def test_an_error_of_a_follower_is_logged_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    campaign = site.campaign()
    site.votes(campaign, ("p0", "ann", "wren"))
    site.call("GET", f"/campaigns/{campaign}/status")
    models = site.service.follower
    one = models.get(site.service.campaign(campaign))
    one.refresh = lambda: (_ for _ in ()).throw(ReadError("broken"))  # type: ignore[method-assign]
    for version in (10**6, 10**6 + 1):
        one.next_time = 0.0
        models._look(one, {campaign: (10**6, version)})
    ours = [record for record in caplog.records if getattr(record, "campaign", None) == campaign]
    assert [record.message for record in ours if record.exc_info] == ["A model could not be refreshed."]
    site.call("DELETE", f"/campaigns/{campaign}?confirm=birds")


def test_a_campaign_deleted_while_it_is_followed_is_dropped_without_an_error(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    campaign = site.campaign()
    site.votes(campaign, ("p0", "ann", "wren"))
    models = site.service.follower
    one = models.get(site.service.campaign(campaign))
    view = one.refresh()
    one.refresh = lambda: view  # type: ignore[method-assign]
    one.noted = (0, 0.0)
    models.drop(campaign)  # so that no other thread looks at it
    site.call("DELETE", f"/campaigns/{campaign}?confirm=birds")
    models._look(one, {campaign: (view.seq + 1, view.row.version)})
    assert not [record for record in caplog.records if getattr(record, "campaign", None) == campaign]
    assert models.seen(campaign) is None


def test_a_vote_is_taken_back_after_its_block_was_learned(site: Site) -> None:
    campaign = site.campaign(n_items=60, annotators=[f"w{m}" for m in range(20)])
    rows = [(f"p{i % 60}", f"w{i // 60}", ["wren", "robin"][i % 2]) for i in range(1100)]
    site.votes(campaign, *rows)
    site.call("GET", f"/campaigns/{campaign}/status")
    site.call("POST", f"/campaigns/{campaign}/undo", json={"annotator": "w0", "item": "p0"})
    until, found = time.monotonic() + 60, 19
    while found == 19 and time.monotonic() < until:
        time.sleep(0.1)
        labels = site.call("GET", f"/campaigns/{campaign}/consensus")["items"]
        found = next(row["votes"] for row in labels if row["item"] == "p0")
    assert found == 18


def test_snapshots_spare_a_start_from_the_first_vote(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that begins with a snapshot is the same to the last bit; one of other votes is not used."""
    monkeypatch.setattr(live_votes, "SNAPSHOT", 1000)
    campaign = site.campaign(n_items=60, annotators=[f"w{m}" for m in range(40)])
    rows = [(f"p{i % 60}", f"w{i // 60}", ["wren", "robin"][i % 7 < 3]) for i in range(2300)]
    site.votes(campaign, *rows)
    kept = site.service.follower.snapshots / campaign
    until = time.monotonic() + 60
    while not (kept / "model-2000").exists() and time.monotonic() < until:
        site.call("GET", f"/campaigns/{campaign}/status")
        time.sleep(0.05)
    folder = tmp_path / "copied"
    shutil.copytree(kept, folder)
    read: list[int] = []
    take = LiveVotes._take

    def counted(self: LiveVotes, found: list[Any], *more: Any) -> None:
        if self.folder == folder:  # and not the server's own
            read.extend(found)
        take(self, found, *more)

    monkeypatch.setattr(LiveVotes, "_take", counted)

    def compared() -> int:
        """How many votes a stream with snapshots reads after a start."""
        row = site.service.campaign(campaign)
        with site.service.database.reading() as conn:
            plain = LiveVotes().follow(conn, row)
            read.clear()
            view = LiveVotes(folder).follow(conn, row)
        assert view.seq == plain.seq and view.status == plain.status
        np.testing.assert_array_equal(view.consensus.posterior, plain.consensus.posterior)
        return len(read)

    assert compared() == 300
    site.call("POST", f"/campaigns/{campaign}/undo", json={"annotator": "w38", "item": "p10"})  # after the snapshot
    assert compared() == 301
    site.call("PATCH", f"/campaigns/{campaign}/items", json={"items": ["p7"], "gold": "wren"})
    assert compared() == 2301  # a known answer is learned with from the first vote on
    site.call("POST", f"/campaigns/{campaign}/undo", json={"annotator": "w0", "item": "p0"})  # before it
    assert compared() == 2302 and not any(folder.iterdir())
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    for model in folder.glob("model-*"):  # the server has made others since
        (model / "online.json").write_text("{")
    assert compared() == 2302
    site.call("DELETE", f"/campaigns/{campaign}?confirm=birds")
    assert not kept.exists()


def test_backup_and_restore_between_stores(site: Site, tmp_path: Path) -> None:
    campaign = site.campaign()
    site.votes(campaign, ("p0", "ann", "wren"), ("p0", "bob", "wren"), ("p1", "ann", "robin"))
    wanted = site.call("GET", f"/campaigns/{campaign}/consensus")
    file = tmp_path / "backup.zip"
    counts = back_up(site.service.database, file)
    configuration = load_configuration({"data": str(tmp_path / "other")}, environment={})
    store = Database(configuration.url)
    store.migrate()
    assert restore(store, file) == counts and counts["votes"] >= 3
    with pytest.raises(OutputError, match="already: restore into an empty one"):
        restore(store, file)
    store.close()
    with running(configuration) as other:
        assert other.call("GET", f"/campaigns/{campaign}/consensus", headers=site.admin) == wanted
        other.votes(campaign, ("p2", "ann", "wren"))


def test_a_backup_from_sqlite_goes_to_postgresql(tmp_path: Path, postgres: str) -> None:
    with running(load_configuration({"data": str(tmp_path)}, environment={})) as one:
        campaign = one.campaign()
        one.votes(campaign, ("p0", "ann", "wren"))
        back_up(one.service.database, tmp_path / "b.zip")
    with sa.create_engine(
        postgres.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    ).connect() as conn:
        conn.execute(sa.text("CREATE DATABASE moved"))
    head, _, rest = postgres.rpartition("/postgres")
    configuration = load_configuration({"database": f"{head}/moved{rest}", "data": str(tmp_path / "d")}, environment={})
    store = Database(configuration.url)
    store.migrate()
    restore(store, tmp_path / "b.zip")
    store.close()
    with running(configuration) as other:
        other.votes(campaign, ("p1", "ann", "wren"))  # events go on counting
        assert other.call("GET", f"/campaigns/{campaign}/status")["votes"] == 2


def test_a_damaged_backup_is_refused_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.votes(site.campaign(), ("p0", "ann", "wren"))
    back_up(site.service.database, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as old, zipfile.ZipFile(tmp_path / "cut.zip", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name)[: -9 if name == "votes.jsonl" else None])
    store = Database(load_configuration({"data": str(tmp_path / "d")}, environment={}).url)
    store.migrate()
    for name, why in (("cut.zip", "is damaged"), ("none.zip", "could not be read")):
        with pytest.raises(ReadError, match=why):
            restore(store, tmp_path / name)
    with store.reading() as conn:
        assert conn.execute(sa.text("SELECT count(*) FROM campaigns")).scalar_one() == 0
    store.close()


def test_a_folder_opens_in_the_server_and_comes_back(site: Site, tmp_path: Path) -> None:
    crowd = cw.simulate.one_coin(30, n_annotators=6, votes_per_item=4, random_state=0).votes
    rows = zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist(), strict=True)
    with cw.Campaign.create(
        tmp_path / "one", cw.DawidSkene(), classes=["a", "b"], items=range(30), budget=200, gold={3: "a"},
        annotators={m: 1.0 + m for m in range(6)}, target=0.9,
    ) as folder:  # fmt: skip
        folder.add([(n, m, "ab"[k]) for n, m, k in rows])
        folder.close_items([7])
        folder.set_annotator(2, available=False, max_votes=50)
        wanted, status = folder.consensus().to_frame("items").to_dicts(), folder.status()
    row = site.service.write(lambda conn: import_folder(conn, tmp_path / "one"))
    found = site.call("GET", f"/campaigns/{row.id}/consensus")["items"]
    assert found == wanted
    here = site.call("GET", f"/campaigns/{row.id}/status")
    assert {name: here[name] for name in status} == status
    n = site.service.read(lambda conn: export_folder(conn, row.id, tmp_path / "two"))
    with cw.Campaign.open(tmp_path / "two") as again:
        assert n == len(crowd.label) and again.consensus().to_frame("items").to_dicts() == wanted
        assert again.status() == status


def test_the_commands_that_go_with_a_server(tmp_path: Path) -> None:
    cw.Campaign.create(
        tmp_path / "birds", cw.OneCoin(), classes=["wren", "robin"], items=["a"], annotators=["x"]
    ).close()
    data = ("serve", "--data", tmp_path / "data")
    made = run(*data, "import", tmp_path / "birds")
    assert made.returncode == 0, made.stderr
    assert run(*data, "export", made.stdout.strip(), tmp_path / "again").returncode == 0
    assert run(*data, "token").stdout.startswith("cw_")
    assert run(*data, "backup", tmp_path / "b.zip").returncode == 0
    moved = run("serve", "--data", tmp_path / "moved", "restore", tmp_path / "b.zip")
    assert "Restored 1 campaigns" in moved.stderr, moved.stderr
    wrong = run("serve", "--port", "7000", "--data", tmp_path / "data", "--log-format", "xml")
    assert wrong.returncode == 2 and "expected auto, json or text" in wrong.stderr


KINDS = {
    "ordinal": ({"classes": ["low", "mid", "high"]}, "mid", "best"),
    "ratings": ({"scale": {"min": 0, "max": 10}}, 7.5, 11),
    "comparisons": ({}, "left", "tie"),
    "label-sets": ({"classes": ["red", "blue"]}, ["red"], "red"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_answers_are_taken_and_refitted(site: Site, kind: str) -> None:
    settings, answer, wrong = KINDS[kind]
    given = {"name": kind, "answer_type": kind, "max_votes": 2, "unknown": "add", **settings}
    campaign = site.call("POST", "/campaigns", 201, json=given)["id"]
    items = [{"item": f"q{i}", "payload": {"left": f"a{i}", "right": {"item": f"a{i + 1}"}}} for i in range(3)]
    site.call("POST", f"/campaigns/{campaign}/items", 201, json=items)
    site.call("GET", f"/campaigns/{campaign}/consensus", 409)
    for who in ("ann", "bob"):
        for _ in range(3):
            (question,) = site.call("GET", f"/campaigns/{campaign}/next?annotator={who}")["questions"]
            assert (question["first"] in ("left", "right")) == (kind == "comparisons")
            site.votes(campaign, (question["item"], who, wrong), code=422)
            vote = {"item": question["item"], "annotator": who, "label": answer}
            for refused, code in (("left.x", 403), (question["ticket"][:-1], 403)):
                site.call("POST", f"/campaigns/{campaign}/votes", code, json={**vote, "ticket": refused})
            site.call("POST", f"/campaigns/{campaign}/votes", 201, json={**vote, "ticket": question["ticket"]})
            order = {q["item"]: q["first"] for q in site.call("GET", f"/campaigns/{campaign}/votes")["votes"]}
            assert order[question["item"]] == question["first"]
    status = site.call("GET", f"/campaigns/{campaign}/status")
    assert (status["state"], status["votes"], status["finished"]) == ("exhausted", 6, 3)
    found = site.call("GET", f"/campaigns/{campaign}/consensus")["items"]
    assert len(found) == (4 if kind == "comparisons" else 3)
    assert {row["annotator"] for row in site.call("GET", f"/campaigns/{campaign}/reliability")} == {"ann", "bob"}
    assert site.call("GET", f"/campaigns/{campaign}/next?annotator=cem")["questions"] == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"answer_type": "boxes"}, "Campaigns of boxes cannot be served yet"),
        ({"answer_type": "ratings", "target": 0.9}, "neither estimated nor proven"),
        ({"classes": ["a"]}, "two or more different classes"),
        ({"classes": ["a", "b"], "method": "glad"}, "stream"),
        ({"classes": ["a", "b"], "strategy": "best"}, "Unknown strategy 'best'"),
        ({"classes": ["a", "b"], "params": {"nothing": 1}}, "nothing"),
    ],
)
def test_what_cannot_be_served_is_refused(site: Site, given: dict[str, Any], why: str) -> None:
    assert why in site.call("POST", "/campaigns", 422, json={"name": "x", **given})["detail"]


def test_a_free_question_is_found_behind_many_that_others_have() -> None:
    """The first choice is of a model that knows no items yet, the next of one that does not know what is out: all of it
    is tried, not only what stands in front."""
    chosen = iter([[], list(range(40))])
    leased: list[int] = []

    def lease(asked: LeaseAsked) -> list[Shown]:
        free = [item for item in asked.wanted if item > 35 and item not in leased]
        leased.extend(free[: asked.n - len(leased)])
        return [(Lease(item, 9.0, None), f"p{item}", {}) for item in leased]

    async def lease_now(campaign: str, asked: LeaseAsked) -> list[Shown]:
        return lease(asked)

    def look(campaign: str, **how: bool) -> Any:
        return SimpleNamespace(propose=lambda who, n, draw: next(chosen), gold={})

    queues = QuestionQueues(look, look, lease_now, lambda *some: "ticket", lambda campaign, payload: payload)
    found = asyncio.run(queues.next_now("c", 1, 3)).questions
    assert [one["item"] for one in found] == ["p36", "p37", "p38"]
