"""Forged folders and backups: values changed inside saved files, and manifests, digests and counts made for them.

    python benchmarks/attack/tampers.py [--seconds 60 | --rounds 10] [--seed 0] [--only consensus,learner,...]

A forger can write any result; no checksum is in the way. What was forged is opened and used: that must work, or give
one of our errors. No other exception may come, no signal may end the process (a code beyond the end of an array reaches
compiled loops), and no file outside the folder may be read. Each target is attacked in a process of its own with little
memory; one that dies is counted, and another goes on after it. Counts go to standard output as JSON; the exit status is
1 where anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from damages import save_consensus, save_journal, save_learner, save_stream, votes
from targets import conclude, options

import crowdwise as cw
from crowdwise.data.folders import NAME, seal
from crowdwise.errors import CrowdwiseError, InternalError
from crowdwise.store.journal import link

MEMORY = 8 * 2**30
"""Bytes of addresses that a process may use; a forged size must not become memory."""
SLOW = 60.0
"""Seconds of the processor for opening and using one."""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, -(2**63), 10**30, 0.5, -1.5, 1e308, float("nan"), float("inf"), "",
    "x", "../../etc/passwd", "\x00", "\ud800", "é" * 300, [], {}, [[]], [1, "a"], {"a": None}, [None], [[1, 2], [3]],
)  # fmt: skip
NUMBERS = (0, 1, -1, 7, 2**31 - 1, 2**31, 2**62, -(2**40), 1e308, float("nan"), float("inf"), -0.5)


def tampered_json(facts: Any, rng: random.Random) -> Any:
    """A value somewhere in it changed, removed or doubled."""
    where, key = None, None
    inside = facts
    while isinstance(inside, (dict, list)) and inside and (where is None or rng.random() < 0.7):
        where, key = inside, rng.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
        inside = where[key]
    if where is None:
        return rng.choice(VALUES)
    way = rng.randrange(4)
    if way == 0:
        del where[key]
    elif way == 1 and isinstance(where, list):
        where.append(rng.choice([inside, *VALUES]))
    elif way == 2 and isinstance(inside, (int, float)) and not isinstance(inside, bool):
        where[key] = rng.choice((inside + 1, inside - 1, -inside, inside * 1_000_000))
    else:
        where[key] = rng.choice(VALUES)
    return facts


def tampered_array(array: Any, rng: random.Random) -> Any:
    """An array with another value, shape or type."""
    way, array = rng.randrange(8), np.array(array)
    with np.errstate(all="ignore"):
        if way < 4 and array.size and array.dtype.kind in "iuf":
            number = rng.choice(NUMBERS)
            if array.dtype.kind in "iu":
                limits = np.iinfo(array.dtype)
                number = 0 if number != number else int(min(max(number, limits.min), limits.max))
            array.flat[rng.randrange(array.size)] = number
            return array
        if way == 4:
            return array[: len(array) // 2] if array.ndim else array
        if way == 5:
            return np.concatenate([array, array]) if array.ndim else array.reshape(1)
        if way == 6:
            return rng.choice((array.reshape(-1), array[None], array.T))
        kinds = (np.float64, np.int8, np.uint64, np.bool_, "U5", "M8[s]")
        try:
            return array.astype(rng.choice(kinds))
        except (TypeError, ValueError, RuntimeError):
            return array.reshape(-1)


def tamper_file(path: Path, rng: random.Random) -> None:
    """Change what is in a file of a kind that is known here."""
    if path.suffix == ".json":
        path.write_text(json.dumps(tampered_json(json.loads(path.read_text("utf-8")), rng)), encoding="utf-8")
    elif path.suffix == ".npz":
        with np.load(path) as archive:
            arrays = dict(archive)
        name = rng.choice(list(arrays))
        if rng.random() < 0.1:
            del arrays[name]
        else:
            arrays[name] = tampered_array(arrays[name], rng)
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        from safetensors.numpy import load_file, save_file

        tensors = load_file(path)
        name = rng.choice(list(tensors))
        new = tampered_array(tensors[name], rng)
        if new.dtype.kind in "fiub":
            tensors[name] = np.ascontiguousarray(new)
        else:
            del tensors[name]
        save_file(tensors, path)
    elif path.suffix == ".parquet":
        frame = pl.read_parquet(path)
        name = rng.choice(frame.columns)
        way = rng.randrange(4)
        if way == 0:
            frame = frame.drop(name)
        elif way == 1:
            frame = frame.with_columns(pl.lit(None).alias(name))
        elif way == 2:
            frame = frame.with_columns(pl.lit(str(rng.choice(CELLS))).alias(name))
        else:
            frame = pl.concat([frame, frame])
        frame.write_parquet(path)


CELLS = [value for value in VALUES if value is None or isinstance(value, (str, int, float))]


def tamper_folder(folder: Path, rng: random.Random) -> None:
    """Change one or two files, and make the manifests anew, the inner ones first."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != NAME)
    for path in rng.choices(files, k=rng.choice((1, 1, 2))):
        tamper_file(path, rng)
    for manifest in sorted(folder.rglob(NAME), key=lambda p: -len(p.parts)):
        seal(manifest.parent, json.loads(manifest.read_text("utf-8"))["kind"])
    if rng.random() < 0.1:  # a manifest that names a file outside
        manifest = folder / NAME
        body = json.loads(manifest.read_text("utf-8"))
        secret = folder.parent / "secret.json"
        first = next(iter(body["files"]))
        body["files"][rng.choice(("../secret.json", str(secret), f"./{first}", "a\x00b", ""))] = body["files"][first]
        from crowdwise.data.folders import sha256

        body.pop("sha256")
        manifest.write_text(json.dumps(body | {"sha256": sha256(json.dumps(body).encode())}), encoding="utf-8")


def tamper_journal(folder: Path, rng: random.Random) -> None:
    """Change a cell or a row of the journal, and make the digests of votes anew."""
    db = sqlite3.connect(folder / "campaign.db")
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("PRAGMA ignore_check_constraints = ON")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for _ in range(rng.choice((1, 1, 3))):
        table = rng.choice([name for name in tables if not name.startswith("sqlite_")])
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        column, value = rng.choice(columns), rng.choice(CELLS)
        value = str(value) if isinstance(value, int) and abs(value) > 2**62 else value
        if isinstance(value, str):
            value = rng.choice((value.encode("utf-8", "replace").decode(), json.dumps(rng.choice(VALUES))))
        some = f"IN (SELECT {column} FROM {table} ORDER BY random() LIMIT 1)"
        try:
            if rng.random() < 0.2:
                db.execute(f"DELETE FROM {table} WHERE {column} {some}")
            elif table == "facts" and rng.random() < 0.8:
                (key, text), *_ = rng.choices(db.execute("SELECT key, value FROM facts").fetchall())
                new = json.dumps(tampered_json({"v": json.loads(text)}, rng).get("v"))
                db.execute("UPDATE facts SET value = ? WHERE key = ?", (new, key))
            else:
                db.execute(f"UPDATE {table} SET {column} = ? WHERE {column} {some}", (value,))
        except sqlite3.Error:
            continue
    chain = ""
    names = {table: dict(db.execute(f"SELECT id, name FROM {table}").fetchall()) for table in ("items", "annotators")}
    rows = db.execute("SELECT id, vote_id, item, annotator, label, price, time FROM votes ORDER BY id").fetchall()
    for number, *row in rows:
        chain = link(chain, tuple(row), names["items"].get(row[1], ""), names["annotators"].get(row[2], ""))
        db.execute("UPDATE votes SET chain = ? WHERE id = ?", (chain, number))
    db.commit()
    db.close()


def tamper_backup(folder: Path, rng: random.Random) -> None:
    """Change a cell or a row of a table in a backup, and its counts with it."""
    path = folder / "backup.zip"
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    facts = json.loads(parts["backup.json"])
    for _ in range(rng.choice((1, 1, 3))):
        name = rng.choice([n for n in parts if n != "backup.json" and parts[n]])
        rows = [json.loads(line) for line in parts[name].splitlines()]
        row = rng.choice(rows)
        at = rng.randrange(len(row))
        if rng.random() < 0.15:
            rows.remove(row)
        elif isinstance(row[at], str) and row[at].startswith(("{", "[")) and rng.random() < 0.7:
            row[at] = json.dumps(tampered_json(json.loads(row[at]), rng))
        else:
            row[at] = rng.choice((*VALUES, rng.choice(rows)[at]))
        parts[name] = "".join(json.dumps(one) + "\n" for one in rows).encode()
        facts["counts"][name.removesuffix(".jsonl")] = len(rows)
    parts["backup.json"] = json.dumps(facts if rng.random() < 0.9 else tampered_json(facts, rng)).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def save_ratings(folder: Path, seed: int) -> None:
    made = cw.simulate.ratings(20, n_annotators=5, votes_per_item=3, random_state=seed)
    cw.aggregate(made.ratings, "gaussian").save(folder)


def save_backup(folder: Path, seed: int) -> None:
    from fastapi.testclient import TestClient

    from crowdwise.server.app import create_app
    from crowdwise.server.configuration import load_configuration
    from crowdwise.store.backups import back_up

    folder.mkdir()
    app = create_app(load_configuration({"data": str(folder / "data"), "rate_limit": 0.0}, environment={}))
    with TestClient(app) as client:
        secret = app.state.service.first_token()
        client.headers["Authorization"] = f"Bearer {secret}"
        further = {"question": "how", "answer_type": "ratings", "scale": {"min": 1, "max": 5}}
        settings = {"name": "a", "classes": ["x", "y"], "unknown": "add", "question": "what", "questions": [further]}
        path = f"/api/v1/campaigns/{client.post('/api/v1/campaigns', json=settings).json()['id']}"
        client.post(f"{path}/items", json=[{"item": f"i{n}", "gold": "x" if n == 0 else None} for n in range(6)])
        some = [{"item": f"i{n}", "annotator": f"a{m}", "label": "xy"[n % 2]} for n in range(4) for m in range(3)]
        client.post(f"{path}/votes", json={"votes": [vote | {"others": {"how": 3}} for vote in some]})
        client.post(f"{path}/webhooks", json={"url": "https://example.invalid/"})
        client.get(f"{path}/next?annotator=a0")
        client.get(f"{path}/status")
        back_up(app.state.service.database, folder / "backup.zip")
    shutil.rmtree(folder / "data")


def use_result(folder: Path) -> None:
    found = cw.load(folder)
    shown = [str(found), found.items, found.annotators, found.summary() if hasattr(found, "summary") else None]
    if hasattr(found, "predict"):
        shown.append(found.predict(votes(3)))
    found.save(folder.parent / "again")
    cw.load(folder.parent / "again")


def use_learner(folder: Path) -> None:
    found = cw.load(folder)
    found.predict(np.zeros((5, 3), np.float32))
    found.predict_proba(np.ones((5, 3), np.float32))
    found.save(folder.parent / "again")


def use_stream(folder: Path) -> None:
    found = cw.load(folder)
    found.consensus()
    found.partial_fit(cw.Votes.from_records([(1000 + n, m, 0) for n in range(5) for m in ("a0", "a3", "new")]))
    found.consensus()
    found.save(folder.parent / "again")


def use_journal(folder: Path) -> None:
    with cw.load(folder) as found:
        found.status()
        found.consensus()
        found.propose(3)
        found.add([(1000, "new", 1), (1001, "a0", 1)])
        found.votes()
        found.history()


def use_backup(folder: Path) -> None:
    """Restore it, and let an admin, whose token is new, look at everything."""
    from fastapi.testclient import TestClient

    from crowdwise.server.access_tokens import make_token
    from crowdwise.server.app import create_app
    from crowdwise.server.configuration import load_configuration
    from crowdwise.store.backups import restore
    from crowdwise.store.database import Database

    settings = load_configuration({"data": str(folder / "new"), "rate_limit": 0.0}, environment={})
    (folder / "new").mkdir()
    database = Database(settings.url)
    try:
        database.migrate()
        restore(database, folder / "backup.zip")
    finally:
        database.close()
    app = create_app(settings)
    with TestClient(app, raise_server_exceptions=True) as client:
        secret = app.state.service.write(lambda conn: make_token(conn, "admin", "new")[0])
        client.headers["Authorization"] = f"Bearer {secret}"
        for path in ("", "tokens", "audit"):
            client.get(f"/api/v1/campaigns{path}" if not path else f"/api/v1/{path}")
        listed = client.get("/api/v1/campaigns").json()
        for one in listed if isinstance(listed, list) else []:
            here = f"/api/v1/campaigns/{one['id']}"
            for path in ("", "/status", "/items", "/annotators", "/votes", "/consensus", "/history", "/webhooks",
                         "/next?annotator=a0", "/report", "/tokens", "/review", "/agreement",
                         "/votes?format=jsonl&together=true"):  # fmt: skip
                client.get(here + path)
            for page in ("label", "watch", "campaign"):
                client.get(f"/{page}/{one['id']}?annotator=a0")
            client.post(f"{here}/votes", json={"votes": [{"item": "i5", "annotator": "a0", "label": "x"}]})
            client.patch(here, json={"budget": 50})


Tamper = Callable[[Path, random.Random], None]
TARGETS: dict[str, tuple[Callable[[Path, int], None], Tamper, Callable[[Path], None]]] = {
    "consensus": (save_consensus, tamper_folder, use_result),
    "ratings": (save_ratings, tamper_folder, use_result),
    "learner": (save_learner, tamper_folder, use_learner),
    "stream": (save_stream, tamper_folder, use_stream),
    "journal": (save_journal, tamper_journal, use_journal),
    "backup": (save_backup, tamper_backup, use_backup),
}


def work(target: str, seed: int, first: int, until: float, rounds: int) -> None:
    """Attack from a round on; a line before and after each."""
    save, tamper, use = TARGETS[target]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as base:
        whole, place = Path(base) / "whole", Path(base) / "work"
        save(whole, 0)
        (Path(base) / "secret.json").write_text("{}")
        n = first
        while n < rounds if rounds else time.time() < until:
            rng = random.Random(f"{seed} {target} {n}")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            shutil.copytree(whole, place / "folder")
            tamper(place / "folder", rng)
            say({"round": n})
            began = time.process_time()
            try:
                use(place / "folder")
                how = "used"
            except InternalError as error:
                how = described(error.__cause__ or error)
            except CrowdwiseError:
                how = "our_errors"
            except Exception as error:
                how = described(error)
            say({"how": how, "slow": time.process_time() - began > SLOW})
            n += 1


def described(error: BaseException) -> str:
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "crowdwise" in f.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:150]}"


def say(facts: dict[str, Any]) -> None:
    os.write(1, (json.dumps(facts) + "\n").encode())


def attack(target: str, seconds: float, rounds: int, seed: int, counts: dict[str, Any]) -> None:
    n, until = 0, time.time() + seconds
    while n < rounds if rounds else time.time() < until:
        command = [sys.executable, __file__, "--work", target, str(n), str(until)]
        given = ["--seed", str(seed), "--rounds", str(rounds)]
        process = subprocess.Popen([*command, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            facts = json.loads(line)
            if "round" in facts:
                n = facts["round"]
                continue
            counts["tampers"] += 1
            counts["slow"] += facts["slow"]
            if facts["how"] in ("used", "our_errors"):
                counts[facts["how"]] += 1
            else:
                counts["foreign"] += 1
                counts["errors"].setdefault(facts["how"].partition(": ")[0], f"n={n}: {facts['how']}")
        complaint = process.stderr.read()
        if process.wait() == 0:
            return
        name = signal.Signals(-process.returncode).name if process.returncode < 0 else f"status {process.returncode}"
        counts["died"] += 1
        counts["errors"].setdefault(name, f"n={n}: {complaint[-300:]}")
        n += 1


def main() -> int:
    parser = options(__doc__, TARGETS)
    parser.add_argument("--work", nargs=3, metavar=("TARGET", "FIRST", "UNTIL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work[0], given.seed, int(given.work[1]), float(given.work[2]), given.rounds)
        return 0
    names, out = given.only.split(","), {}
    for target in names:
        counts: dict[str, Any] = dict.fromkeys(("tampers", "used", "our_errors", "foreign", "died", "slow"), 0)
        out[target] = counts | {"errors": {}}
        attack(target, given.seconds / len(names), given.rounds, given.seed, out[target])
    bad = sum(c["foreign"] + c["died"] + c["slow"] for c in out.values())
    return conclude(given.seed, out, bad)


if __name__ == "__main__":
    sys.exit(main())
