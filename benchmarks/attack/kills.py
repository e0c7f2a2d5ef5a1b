"""``kill -9`` at random moments while results, learners, votes and tables are written: nothing lost, nothing in part.

    python benchmarks/attack/kills.py [--seconds 60 | --rounds 10] [--seed 0] [--only save,learn,...,commands]

A process writes version after version and acknowledges each when the call has returned. It is killed, what is on the
disk is looked at, and another goes on. The name must show a whole version: the last one acknowledged, or the one after
it. A vote that was acknowledged must be there, once. Counts go to standard output as JSON; the exit status is 1 where
anything did not hold.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from targets import conclude, options

import crowdwise as cw
from crowdwise.data.folders import PREFIX, write_whole
from crowdwise.errors import CrowdwiseError
from crowdwise.store.journal import Journal

LONGEST = 60.0
"""Seconds without a version: a hang."""


def votes(n_items: int = 200) -> cw.Votes:
    return cw.simulate.one_coin(n_items, n_annotators=10, n_classes=2, votes_per_item=3, random_state=0).votes


class Save:
    """A result, saved again and again; the version is its seed."""

    name = "kept"
    longest = 0.06
    """Seconds within which it is killed: a few versions."""
    cycle = 1
    """Versions that are written before what kills left is gone."""
    late = False
    """Whether files are opened in the process that is killed, not before."""

    def __init__(self, place: Path) -> None:
        self.folder = place / self.name

    def prepare(self) -> None:
        cw.aggregate(votes(), "dawid-skene").save(self.folder)

    def begin(self) -> None:
        self.result = cw.Consensus.load(self.folder)

    def write(self, version: int) -> None:
        replace(self.result, seed=version).save(self.folder)

    def there(self) -> set[int]:
        """The versions that are on the disk, whole."""
        found = cw.Consensus.load(self.folder)
        assert np.allclose(found.posterior.sum(axis=1), 1.0)
        return {0 if found.seed is None else found.seed}

    def left_over(self) -> list[str]:
        return [name for name in os.listdir(self.folder.parent) if name != self.name]


class Learn(Save):
    """A learner, as ``learn --out`` saves it."""

    longest = 0.2

    def prepare(self) -> None:
        X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
        learner = cw.CrowdClassifier("two-stage", epochs=1).fit(X, votes())
        learner.model_.seed_ = 0
        learner.save(self.folder)

    def begin(self) -> None:
        self.learner = cw.load_learner(self.folder)

    def write(self, version: int) -> None:
        self.learner.seed_ = version
        self.learner.save(self.folder)

    def there(self) -> set[int]:
        return {int(cw.load_learner(self.folder).seed_)}


class Add(Save):
    """Votes, one transaction each; version n is vote n."""

    late = True
    longest = 0.25

    def prepare(self) -> None:
        cw.Campaign.create(self.folder, cw.OneCoin(), classes=[0, 1], unknown="add").close()

    def begin(self) -> None:
        self.campaign = cw.Campaign.open(self.folder, cw.OneCoin())

    def write(self, version: int) -> None:
        self.campaign.add([(version, "ann", version % 2)])

    def there(self) -> set[int]:
        journal = Journal.open(self.folder / "campaign.db")
        rows = journal.read("SELECT CAST(i.name AS INTEGER) FROM votes v JOIN items i ON i.id = v.item")
        journal.close()
        found = {n for (n,) in rows}
        assert len(found) == len(rows), "a vote counts twice"
        assert found == set(range(1, len(found) + 1)), "a vote is missing"
        return found | {0}


class Change(Add):
    """Changes of the budget, one transaction each; version n is change n."""

    def write(self, version: int) -> None:
        self.campaign.change(budget=float(version))

    def there(self) -> set[int]:
        with cw.Campaign.open(self.folder) as campaign:
            budgets = [change["detail"]["budget"] for change in campaign.history()]
            now = campaign.settings.rule.budget
        numbers = [int(after) for _, after in budgets]
        assert numbers == list(range(1, len(numbers) + 1)), "a change is missing, or counts twice"
        assert now == (numbers[-1] if numbers else None), "the settings are not those of the last change"
        return {0, *numbers}


class Export(Save):
    """A table, as ``campaign export --out`` writes it; version n has n in every row."""

    name = "labels.csv"

    def prepare(self) -> None:
        self.write(0)

    def begin(self) -> None:
        pass

    def write(self, version: int) -> None:
        from crowdwise.cli.outputs import write_table

        write_table(pl.DataFrame({"item": range(2_000), "label": [version] * 2_000}), self.folder)

    def there(self) -> set[int]:
        table = pl.read_csv(self.folder)
        assert table.shape == (2_000, 2) and table["item"].to_list() == list(range(2_000))
        return set(table["label"].to_list())


LINES = {
    "labels.csv": "aggregate in/votes.csv --method majority --out out/labels.csv",
    "kept": "aggregate in/votes.csv --method dawid-skene --save out/kept",
    "report.html": "report in/votes.csv --method majority --out out/report.html",
    "crowd": "simulate one-coin --set n_items=40 --seed 1 --out out/crowd",
    "board.csv": "rank in/battles.csv --out out/board.csv",
    "pulled": "import in/prodigy_choice.jsonl --out out/pulled",
    "labelled.jsonl": "export out/kept --to doccano --out out/labelled.jsonl",
    "camp": "campaign init out/camp --classes 0,1 --items in/items.csv --annotators in/people.csv",
    "ask.csv": "gold in/votes.csv --ask 5 --out out/ask.csv",
    "backup.zip": "serve --data in/data backup out/backup.zip",
}  # fmt: skip
"""What a command writes -> the command, run in the folder of the attack."""
NEW = ("crowd", "pulled", "camp")
"""Folders that must not be there before."""


class Commands(Save):
    """One command after the other, as people type them. What one writes is there whole, as it was or as it is to be; a
    folder that must be new may be missing."""

    name = "version.txt"
    longest = 8.0
    cycle = len(LINES)

    def prepare(self) -> None:
        place = self.folder.parent
        for name in ("in", "out"):
            (place / name).mkdir()
        table = votes(60)
        table.to_frame("polars").write_csv(place / "in" / "votes.csv")
        pl.DataFrame({"item": table.items}).write_csv(place / "in" / "items.csv")
        pl.DataFrame({"annotator": table.annotators}).write_csv(place / "in" / "people.csv")
        run(["simulate", "one-coin", "--set", "n_items=60", "--seed", "0", "--out", str(place / "in" / "crowd")])
        battles = [(f"m{i % 4}", f"m{(i + 1) % 4}", ("left", "right")[i % 3 > 0]) for i in range(60)]
        pl.DataFrame(battles, schema=["left", "right", "winner"], orient="row").write_csv(place / "in" / "battles.csv")
        shutil.copy(Path(__file__).parents[2] / "tests" / "exports" / "prodigy_choice.jsonl", place / "in")
        run(f"campaign init {place}/in/camp --classes 0,1 --items {place}/in/items.csv".split())
        run(f"serve --data {place}/in/data import {place}/in/camp".split())
        for version in range(len(LINES)):
            self.write(version)
        self.first = {name: self.content(name) for name in LINES}

    def begin(self) -> None:
        """Import what commands need; threads of polars do not survive a fork, so nothing is run."""
        import crowdwise.api
        import crowdwise.cli.main
        import crowdwise.report.build
        import crowdwise.server.service  # noqa: F401

    def write(self, version: int) -> None:
        name = list(LINES)[version % len(LINES)]
        os.chdir(self.folder.parent)
        if name in NEW and Path("out", name).exists():
            shutil.rmtree("old", ignore_errors=True)
            Path("out", name).rename("old")
        run(LINES[name].split())
        write_whole(lambda made: Path(made).write_text(str(version)), self.folder)

    def content(self, name: str) -> Any:
        """What is there of a command, where all of it is there; an error else."""
        path = self.folder.parent / "out" / name
        if not path.exists():
            assert name in NEW, f"{name} is gone"
            return None
        if name == "camp" and all(one.name.startswith(PREFIX) for one in path.iterdir()):
            return None  # a folder without a campaign, in which one can be made
        if name == "backup.zip":
            with zipfile.ZipFile(path) as archive:
                assert archive.testzip() is None
                return sorted(archive.namelist())
        if name == "camp":
            with cw.Campaign.open(path) as campaign:
                return campaign.status()["items"], campaign.status()["annotators"]
        if name == "report.html":  # it says how long the fit took
            return path.read_text(encoding="utf-8").rstrip().endswith("</html>")
        if name == "kept":
            return cw.Consensus.load(path).labels.tolist()
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        return [(one.name, one.stat().st_size) for one in files if one.is_file() and not one.name.startswith(".")]

    def there(self) -> set[int]:
        for name in LINES:
            found = self.content(name)
            assert found is None or found == self.first[name], f"{name} is not whole"
        return {int(self.folder.read_text())}

    def left_over(self) -> list[str]:
        return [name for name in os.listdir(self.folder.parent / "out") if name not in LINES]


def run(words: list[str]) -> None:
    """A command in this process, which says nothing."""
    from crowdwise.cli.main import make_app

    with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(null):
        try:
            make_app([words[0]])(words)
        except SystemExit as end:
            assert not end.code, f"{' '.join(words)}: {end.code}"


TARGETS = {"save": Save, "learn": Learn, "add": Add, "change": Change, "export": Export, "commands": Commands}
Counts = dict[str, Any]


def work(target: str, place: Path) -> None:
    """The process whose children are killed: one for each number on standard input, which writes versions from there on
    and acknowledges each. What they need is imported once."""
    writer = TARGETS[target](place)
    if not writer.late:
        writer.begin()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            say(f"pid {os.getpid()}")
            try:
                if writer.late:
                    writer.begin()
                for version in itertools.count(int(line)):
                    writer.write(version)
                    say(str(version))
            except BaseException:
                traceback.print_exc()
                say("failed")
                os._exit(1)
        os.waitpid(child, 0)
        say("end")


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


class Victims:
    """The processes that are killed."""

    def __init__(self, target: str, place: Path) -> None:
        command = [sys.executable, __file__, "--work", target, str(place)]
        alone = os.environ | {"CUDA_VISIBLE_DEVICES": ""}  # a device does not survive a fork
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=alone)
        self.rest = b""

    def line(self, seconds: float) -> str | None:
        """The next line, ``None`` where none comes in time."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            self.rest += os.read(self.process.stdout.fileno(), 65_536)
        first, _, self.rest = self.rest.partition(b"\n")
        return first.decode()

    def kill_one(self, first: int, delay: float, wait: bool) -> tuple[list[int], bool]:
        """Let one write from a version on, then kill it: what it acknowledged, and whether it failed or hung."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{first}\n".encode())
        began = self.line(300.0)
        assert began is not None and began.startswith("pid "), began
        said = [self.line(LONGEST)] if wait else []
        time.sleep(delay)
        with suppress(ProcessLookupError):  # it has failed
            os.kill(int(began.split()[1]), signal.SIGKILL)
        while said[-1:] not in (["end"], [None]):
            said.append(self.line(LONGEST))
        failed = any(text is None or text == "failed" for text in said)
        return [int(text) for text in said if text is not None and text.isdecimal()], failed

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def attack(target: str, seconds: float, rounds: int, rng: random.Random, counts: Counts) -> None:
    with tempfile.TemporaryDirectory() as base:
        place = Path(base) / "place"
        place.mkdir()
        writer = TARGETS[target](place)
        writer.prepare()
        victims, done, until = Victims(target, place), 0, time.monotonic() + seconds
        while counts["kills"] < rounds if rounds else time.monotonic() < until or counts["kills"] == 0:
            wait = counts["kills"] % 20 == 0  # now and then see that something is written at all
            said, failed = victims.kill_one(done + 1, rng.uniform(0.0, writer.longest), wait)
            acknowledged = max([done, *said])
            counts["kills"] += 1
            counts["failed"] += failed
            counts["acknowledged"] += len(said)
            try:
                found = max(writer.there())
            except (CrowdwiseError, AssertionError, pl.exceptions.PolarsError) as error:
                counts["lost"] += 1
                counts["errors"].append(f"{type(error).__name__}: {error}")
                break
            counts["lost"] += found < acknowledged
            counts["unacknowledged"] += found > acknowledged
            counts["left_over"] += bool(writer.left_over())
            done = found
            if failed:
                break
        victims.close()
        writer.begin()
        for i in range(writer.cycle):
            writer.write(done + 1 + i)
        counts["never_cleaned"] += len(writer.left_over())


def main() -> int:
    parser = options(__doc__, TARGETS)
    parser.add_argument("--work", nargs=2, metavar=("TARGET", "PLACE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work[0], Path(given.work[1]))
        return 0
    names, rng, out = given.only.split(","), random.Random(given.seed), {}
    for target in names:
        counts: Counts = dict.fromkeys(
            ("kills", "acknowledged", "lost", "unacknowledged", "left_over", "never_cleaned", "failed"), 0
        )
        out[target] = counts | {"errors": []}
        attack(target, given.seconds / len(names), given.rounds, rng, out[target])
    bad = sum(c["lost"] + c["failed"] + c["never_cleaned"] + len(c["errors"]) for c in out.values())
    return conclude(given.seed, out, bad)


if __name__ == "__main__":
    sys.exit(main())
