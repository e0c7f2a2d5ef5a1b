"""Accidental damage to everything that is saved: flipped bits, cuts, holes, lost and exchanged files.

    python benchmarks/attack/damages.py [--seconds 60 | --rounds 10] [--seed 0] [--only consensus,learner]

A damaged folder must give one of our errors. Nothing may load that is not what was saved, no other exception may come,
and nothing may take ten seconds of the processor. ``resealed`` damages come with a manifest made for them, as a forger
would: whatever loads then is not counted, other exceptions are. Counts go to standard output as JSON; the exit status
is 1 where anything did not hold.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from targets import conclude, options

import crowdwise as cw
from crowdwise.data.folders import NAME, seal
from crowdwise.errors import CrowdwiseError, ReadError
from crowdwise.store.journal import salvage

SLOW = 10.0


def votes(seed: int) -> cw.Votes:
    return cw.simulate.one_coin(40, n_annotators=6, n_classes=3, votes_per_item=3, random_state=seed).votes


def save_consensus(folder: Path, seed: int) -> None:
    cw.aggregate(votes(seed), "dawid-skene").save(folder)


def save_learner(folder: Path, seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(40, 3)).astype(np.float32)
    cw.CrowdClassifier("two-stage", epochs=1, random_state=seed).fit(X, votes(seed)).save(folder)


def save_stream(folder: Path, seed: int) -> None:
    cw.Online(cw.DawidSkene()).partial_fit(votes(seed)).save(folder)


def save_journal(folder: Path, seed: int) -> None:
    with cw.Campaign.create(folder, cw.OneCoin(), classes=[0, 1, 2], unknown="add") as campaign:
        campaign.add(votes(seed))


def load_journal(folder: Path) -> Any:
    try:
        found, _ = salvage(folder / "campaign.db")
        assert len(found) <= 120, "salvage made votes up"
    except CrowdwiseError:
        pass
    with cw.load(folder) as campaign:
        campaign.consensus()
        table = campaign.votes().to_frame("dict")
    return sorted(zip(*(table[name].tolist() for name in ("item", "annotator", "label")), strict=True))


def train(folder: Path, seed: int) -> Any:
    """A training of one epoch, whose checkpoint is in the folder."""
    X = np.random.default_rng(seed).normal(size=(40, 3)).astype(np.float32)
    learner = cw.CrowdClassifier("crowd-layer", epochs=1, random_state=seed, checkpoint=folder / "run.safetensors")
    return learner.fit(X, votes(seed))


def load_checkpoint(folder: Path) -> Any:
    if not (folder / "run.safetensors").exists():
        raise ReadError("Without a checkpoint training starts again.")
    return train(folder, 0)


TARGETS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], Any]]] = {
    "consensus": (save_consensus, cw.load),
    "learner": (save_learner, cw.load),
    "stream": (save_stream, cw.load),
    "journal": (save_journal, load_journal),
    "checkpoint": (train, load_checkpoint),
}


def damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """One way to damage a file."""
    at = rng.randrange(len(content)) if content else 0
    end = min(len(content), at + rng.choice((1, 16, 512, 4096)))
    flipped = bytes([content[at] ^ (1 << rng.randrange(8))]) if content else b"x"
    ways = {
        "flip": content[:at] + flipped + content[at + 1 :],
        "cut": content[:at],
        "zeros": content[:at] + b"\x00" * (end - at) + content[end:],
        "noise": content[:at] + rng.randbytes(end - at) + content[end:],
        "hole": content[:at] + content[end:],
        "longer": content + rng.randbytes(end - at + 1),
        "empty": b"",
    }
    way = rng.choice(list(ways))
    return way, ways[way]


def one(whole: Path, other: Path, work: Path, rng: random.Random) -> tuple[str, bool, bool]:
    """Damage a copy: the way, whether it differs, and whether its manifest was made for it."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(whole, work)
    files = sorted(p.relative_to(work).as_posix() for p in work.rglob("*") if p.is_file())
    name = rng.choice(files)
    before, way = (work / name).read_bytes(), rng.choice(("damage", "damage", "damage", "lose", "exchange"))
    if way == "lose":
        (work / name).unlink()
        return way, True, False
    if way == "exchange":
        (work / name).write_bytes((other / name).read_bytes() if (other / name).exists() else b"")
    else:
        way, content = damage(before, rng)
        (work / name).write_bytes(content)
    differs = (work / name).read_bytes() != before
    manifest = work / NAME
    if manifest.exists() and name != NAME and rng.random() < 0.2:
        seal(work, json.loads(manifest.read_text(encoding="utf-8"))["kind"])
        return f"{way} resealed", differs, True
    return way, differs, False


def attack(target: str, seconds: float, rounds: int, rng: random.Random, counts: dict[str, Any]) -> None:
    save, load = TARGETS[target]
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as base:
        whole, other, work = (Path(base) / name for name in ("whole", "other", "work"))
        save(whole, 0)
        save(other, 1)
        right = load(whole) if target == "journal" else None
        while counts["damages"] < rounds if rounds else time.monotonic() < until:
            way, differs, resealed = one(whole, other, work, rng)
            counts["damages"] += 1
            counts["ways"][way] = counts["ways"].get(way, 0) + 1
            began = time.process_time()
            try:
                found = load(work)
            except CrowdwiseError:
                counts["our_errors"] += 1
            except Exception as error:
                counts["foreign"] += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                counts["errors"].append(f"{way}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})")
            else:
                if target == "journal":  # SQLite does not read every byte, and an exchanged journal is another one
                    counts["silent"] += way != "exchange" and found != right
                else:
                    counts["silent"] += differs and not resealed
                counts["loaded"] += 1
            counts["slow"] += time.process_time() - began > SLOW


def main() -> int:
    parser = options(__doc__, TARGETS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    names, rng, out = given.only.split(","), random.Random(given.seed), {}
    for target in names:
        counts = dict.fromkeys(("damages", "our_errors", "loaded", "silent", "foreign", "slow"), 0)
        out[target] = counts | {"ways": {}, "errors": []}
        attack(target, given.seconds / len(names), given.rounds, rng, out[target])
        out[target]["errors"] = sorted(set(out[target]["errors"]))[:20]
    bad = sum(c["silent"] + c["foreign"] + c["slow"] for c in out.values())
    return conclude(given.seed, out, bad)


if __name__ == "__main__":
    sys.exit(main())
