"""Files whose digests are right and whose numbers are not: each of these reached a compiled loop, or had no end."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.data.folders import seal
from crowdwise.errors import CrowdwiseError, ReadError
from crowdwise.server.configuration import load_configuration
from crowdwise.store.backups import back_up, restore
from crowdwise.store.database import Database
from crowdwise.store.journal import link
from server_site import running

VOTES = cw.simulate.one_coin(40, n_annotators=6, n_classes=3, votes_per_item=3, random_state=0).votes


def forge(folder: Path, kind: str, **changes: Callable[[Any], Any]) -> None:
    """Change arrays of a saved folder, and make its manifest anew."""
    with np.load(folder / "arrays.npz") as archive:
        arrays = dict(archive)
    for name, change in changes.items():
        arrays[name] = change(arrays[name])
    np.savez(folder / "arrays.npz", **arrays)
    seal(folder, kind)


def first(value: Any) -> Callable[[Any], Any]:
    """A change of the first number."""

    def change(array: Any) -> Any:
        array.flat[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("before", first(0)), ("before", first(119)), ("label", first(3)), ("annotator", first(6)),
        ("last", first(120)),
        ("items", first(2**40)), ("items", first(-1)), ("truth", first(3)), ("posterior", lambda a: a[:5]),
        ("counts", lambda a: a.astype(np.int8)), ("clock", first(1e308)), ("mass", lambda a: a[:2]),
    ],
)  # fmt: skip
def test_a_stream(tmp_path: Path, name: str, change: Callable[[Any], Any]) -> None:
    cw.Online(cw.DawidSkene()).partial_fit(VOTES).save(tmp_path / "stream")
    forge(tmp_path / "stream", "stream", **{name: change})
    with pytest.raises(ReadError, match="does not hold a readable stream"):
        cw.load(tmp_path / "stream")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("label_codes", first(3)), ("posterior", lambda a: a.T), ("votes_per_item", lambda a: a[:5]),
        ("confusion", lambda a: a.astype(str)), ("total", lambda a: np.append(a, 1.0)),
    ],
)  # fmt: skip
def test_a_consensus(tmp_path: Path, name: str, change: Callable[[Any], Any]) -> None:
    cw.aggregate(VOTES, "dawid-skene").save(tmp_path / "consensus")
    forge(tmp_path / "consensus", "consensus", **{name: change})
    with pytest.raises(ReadError, match="does not hold a readable consensus"):
        cw.load(tmp_path / "consensus")


@pytest.mark.parametrize(("column", "value"), [("label", 3), ("label", -1), ("item", 0), ("annotator", 7)])
def test_a_campaign(tmp_path: Path, column: str, value: int) -> None:
    with cw.Campaign.create(tmp_path / "c", cw.OneCoin(), classes=[0, 1, 2], unknown="add") as campaign:
        campaign.add(VOTES)
    db = sqlite3.connect(tmp_path / "c" / "campaign.db")
    db.execute(f"UPDATE votes SET {column} = ? WHERE id = 5", (value,))
    names = {table: dict(db.execute(f"SELECT id, name FROM {table}").fetchall()) for table in ("items", "annotators")}
    chain = ""
    columns = "id, vote_id, item, annotator, label, price, time"
    for number, *vote in db.execute(f"SELECT {columns} FROM votes ORDER BY id").fetchall():
        last = list(names["items"].values())[-1]  # what number 0 would be taken for
        chain = link(chain, tuple(vote), names["items"].get(vote[1], last), names["annotators"].get(vote[2], ""))
        db.execute("UPDATE votes SET chain = ? WHERE id = ?", (chain, number))
    db.commit()
    db.close()
    with pytest.raises(CrowdwiseError), cw.Campaign.open(tmp_path / "c") as campaign:
        campaign.status()


@pytest.mark.parametrize(
    ("name", "value"), [("seed", -1), ("proposals", -5), ("proposals", 1.5), ("patience", "NaN"), ("gap", 5)]
)
def test_the_settings_of_a_campaign(tmp_path: Path, name: str, value: object) -> None:
    with cw.Campaign.create(tmp_path / "c", cw.OneCoin(), classes=[0, 1, 2], unknown="add") as campaign:
        campaign.add(VOTES)
    db = sqlite3.connect(tmp_path / "c" / "campaign.db")
    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, str(value)))
    db.commit()
    db.close()
    with pytest.raises(CrowdwiseError, match=name), cw.Campaign.open(tmp_path / "c") as campaign:
        campaign.propose(3)


@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        ("votes", '"wren"', '"owl"'), ("votes", ", 1, 1, ", ", 99, 1, "), ("votes", ", 1, 1, ", ", 0, 1, "),
        ("items", ', 2, "', ', 9, "'), ("items", ', 2, "', ', null, "'), ("campaigns", "birds", "\\u0000"),
        ("annotators", ', 1, "', ', "x", "'), ("items", '"p0', '{"'), ("items", '{\\"text\\":\\"bird 0\\"}', "[]"),
        ("campaigns", '\\"practice\\": 0', '\\"practice\\": \\"x\\"'), ("campaigns", ', "votes"', ', ""'),
        ("campaigns", ', "open"', ', "ajar"'), ("campaigns", '\\"seed\\": 0', '\\"seed\\": -1'),
        ("campaigns", '[\\"sharpness\\"]', '[\\"gone\\"]'), ("campaigns", '[\\"sharpness\\"]', '3'),
        ("campaigns", '[\\"sharpness\\"]', '[]'), ("items", '.sharpness", 2, "\\"p1', '.sharpness", 2, "\\"q1'),
        ("votes", ', "4.0"', ', "9.0"'), ("votes", '.sharpness", 2, ', '.sharpness", 3, '),
        ("votes", r'"[\"p0\", \"ann\"]"', '""'),
    ],
)  # fmt: skip
def test_a_backup(tmp_path: Path, table: str, old: str, new: str) -> None:
    with running(load_configuration({"data": str(tmp_path / "one")}, environment={})) as site:
        asked = {"question": "sharpness", "answer_type": "ratings", "scale": {"min": 1, "max": 5}}
        campaign = site.campaign(question="species", questions=[asked])
        for item, label in (("p0", "wren"), ("p1", "robin")):
            vote = {"item": item, "annotator": "ann", "label": label, "others": {"sharpness": 4}}
            site.call("POST", f"/campaigns/{campaign}/votes", 201, json=vote)
        back_up(site.service.database, tmp_path / "whole.zip")
    with (
        zipfile.ZipFile(tmp_path / "whole.zip") as whole,
        zipfile.ZipFile(tmp_path / "forged.zip", "w", zipfile.ZIP_DEFLATED) as forged,
    ):
        for name in whole.namelist():
            text = whole.read(name).decode()
            if name == f"{table}.jsonl":
                inside = old.startswith('"') and "\\" not in old  # of a text that is JSON
                pair = [part.replace('"', '\\"') if inside else part for part in (old, new)]
                changed = text.replace(*pair, 1)
                assert changed != text, text
                text = changed
            forged.writestr(name, text)
    for number, name in enumerate(("forged.zip", "whole.zip")):
        folder = tmp_path / f"store{number}"
        folder.mkdir()
        database = Database(load_configuration({"data": str(folder)}, environment={}).url)
        database.migrate()
        if name == "forged.zip":
            with pytest.raises(ReadError, match=r"forged\.zip is damaged"):
                restore(database, tmp_path / name)
        else:
            assert restore(database, tmp_path / name)["votes"] == 4
        database.close()


def test_the_counts_of_a_backup(tmp_path: Path) -> None:
    with running(load_configuration({"data": str(tmp_path / "one")}, environment={})) as site:
        back_up(site.service.database, tmp_path / "whole.zip")
    with zipfile.ZipFile(tmp_path / "whole.zip") as whole, zipfile.ZipFile(tmp_path / "forged.zip", "w") as forged:
        for name in whole.namelist():
            facts = json.loads(whole.read(name)) if name == "backup.json" else {}
            forged.writestr(name, json.dumps(facts | {"counts": "x"}) if facts else whole.read(name))
    database = Database(load_configuration({"data": str(tmp_path)}, environment={}).url)
    database.migrate()
    with pytest.raises(ReadError, match="is not a backup"):
        restore(database, tmp_path / "forged.zip")
    database.close()


@pytest.mark.parametrize("names", [[0, 1, 2**63], [0, 1, 1]])
def test_the_classes_of_a_stream(tmp_path: Path, names: list[Any]) -> None:
    cw.Online(cw.DawidSkene()).partial_fit(VOTES).save(tmp_path / "stream")
    facts = json.loads((tmp_path / "stream" / "online.json").read_text())
    (tmp_path / "stream" / "online.json").write_text(json.dumps(facts | {"class_names": names}))
    seal(tmp_path / "stream", "stream")
    with pytest.raises(ReadError, match="class_names are not names as they are written"):
        cw.load(tmp_path / "stream")


def test_the_parameters_of_a_learner(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    cw.CrowdClassifier("two-stage", epochs=1).fit(X, VOTES).save(tmp_path / "learner")
    (file,) = (path for path in (tmp_path / "learner").glob("*.json") if '"batch_size"' in path.read_text())
    facts = json.loads(file.read_text())
    file.write_text(json.dumps(facts | {"params": facts["params"] | {"batch_size": {}}}))
    seal(tmp_path / "learner", json.loads((tmp_path / "learner" / "manifest.json").read_text())["kind"])
    with pytest.raises(CrowdwiseError, match="batch_size"):
        cw.load(tmp_path / "learner")
