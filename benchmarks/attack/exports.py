"""Exports as they should not be: damaged bytes, fields of other kinds, pieces of other tools' files.

    python benchmarks/attack/exports.py FOLDER [--seconds 60] [--seed 0]

FOLDER holds sample exports. Each is mutated and read: answers, or one of our errors; no other exception may come, no
:class:`~crowdwise.errors.InternalError` (that is a bug), and nothing may take five seconds. Counts go to standard
output as JSON; the exit status is 1 where anything did not hold.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import crowdwise as cw
from crowdwise.errors import CrowdwiseError, InternalError
from crowdwise.importers.read_export import recognise

SLOW = 5.0
LARGEST = 200_000
VALUES: tuple[Any, ...] = (
    None, [], {}, "", "x", "é" * 50, -1, 0, 2**70, 1.5, 1e400, True, [None], [[]], {"x": [1]}, ["a", 1], "\ud800",
)  # fmt: skip


def samples(folder: Path) -> dict[Path, str]:
    """Small files below a folder that are recognised, with their tool."""
    every = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.stat().st_size < LARGEST)
    return {path: tool for path in every if (tool := recognise(path)) is not None}


def damaged(content: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """Bytes that are cut, changed, repeated, or joined with those of another file."""
    made = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at, size = draw.randrange(len(made) + 1), draw.randint(1, 40)
        match draw.randrange(6):
            case 0:
                made[at : at + size] = b""
            case 1:
                made[at:at] = bytes(draw.randrange(256) for _ in range(size))
            case 2:
                made[at:at] = made[at : at + size]
            case 3:
                del made[at:]
            case 4:
                other = draw.choice(others)
                made[at : at + size] = other[:: draw.randint(1, 3)][:size]
            case 5:
                made[at:at] = draw.choice((b"\0", b"\n", b'"', b"{", b"]", b",", b"\xff\xfe", b"<", b"\\u0000"))
        made = made or bytearray(b" ")
    return bytes(made)


def spoiled(value: Any, draw: random.Random) -> None:
    """Replace, remove or add one value somewhere in JSON."""
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not places:
        return
    at = draw.choice(places)
    if isinstance(value[at], (dict, list)) and value[at] and draw.random() < 0.85:
        spoiled(value[at], draw)
    elif isinstance(value, dict) and draw.random() < 0.2:
        del value[at]
    else:
        value[at] = copy.deepcopy(draw.choice(VALUES))


def mutated(content: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """One mutation of a file."""
    if draw.random() < 0.5 and content.lstrip()[:1] in (b"{", b"["):
        try:
            text = content.decode()
            lines = text.strip().startswith("{") and "\n{" in text
            found = [json.loads(line) for line in text.splitlines() if line.strip()] if lines else json.loads(text)
        except ValueError:
            return damaged(content, others, draw)
        for _ in range(draw.randint(1, 5)):
            spoiled(found, draw)
        made = "\n".join(map(json.dumps, found)) if lines else json.dumps(found)
        return made.encode(errors="replace")
    return damaged(content, others, draw)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    known = samples(asked.folder)
    contents = {path: path.read_bytes() for path in known}
    draw, end = random.Random(asked.seed), time.monotonic() + asked.seconds
    counts: dict[str, int] = {"read": 0, "refused": 0, "bugs": 0, "slow": 0}
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end and known:
            path, tool = draw.choice(list(known.items()))
            file = Path(folder) / path.name
            file.write_bytes(mutated(contents[path], list(contents.values()), draw))
            began = time.monotonic()
            try:
                cw.read_export(file, draw.choice(("auto", tool)), predictions=draw.random() < 0.5)
                counts["read"] += 1
            except Exception as error:
                ours = isinstance(error, CrowdwiseError) and not isinstance(error, InternalError)
                counts["refused" if ours else "bugs"] += 1
                if not ours:
                    traceback.print_exc()
            counts["slow"] += time.monotonic() - began > SLOW
    sys.stdout.write(json.dumps({"samples": len(known), **counts}) + "\n")
    return int(not known or counts["bugs"] > 0 or counts["slow"] > 0)


if __name__ == "__main__":
    sys.exit(main())
