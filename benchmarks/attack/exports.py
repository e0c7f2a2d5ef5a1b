"""Exports as they should not be: damaged bytes, fields of other kinds, pieces of other tools' files.

    python benchmarks/attack/exports.py FOLDER [--seconds 60] [--count 100000] [--seed 0]

FOLDER holds sample exports. Each is mutated and read: answers, or one of our errors; no other exception may come, no
:class:`~crowdwise.errors.InternalError` (that is a bug), nothing may take five seconds, and no read may add more than
ten times its file to the memory of the process (16 MB are always allowed: allocators take memory in pieces). Counts go
to standard output as JSON; the exit status is 1 where anything did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
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
from crowdwise.importers.export import recognise

SLOW = 5.0
TIMES, FLOOR = 10, 2**24
"""The memory that a read may take: so many times its file, or so many bytes."""
LARGEST = 200_000
VALUES: tuple[Any, ...] = (
    None, [], {}, "", "x", "é" * 50, -1, 0, 2**70, 1.5, 1e400, True, [None], [[]], {"x": [1]}, ["a", 1], "\ud800",
)  # fmt: skip
NAMES = ("item", "annotator", "label", "self", "id", "task_id", "time", "", "a.b", "é", "text")
"""Names that a field may be given: those that tables, or arguments of ours, have too."""


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
    elif isinstance(value, dict) and draw.random() < 0.4:
        moved = value.pop(at)
        if draw.random() < 0.5:
            value[draw.choice(NAMES)] = moved
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


def resident(field: str) -> int:
    """``VmRSS`` or its peak ``VmHWM`` of this process in bytes; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def reset_peak() -> None:
    """Begin to measure the peak again, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=10**9, help="stop after so many reads")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    known = samples(asked.folder)
    contents = {path: path.read_bytes() for path in known}
    draw, end = random.Random(asked.seed), time.monotonic() + asked.seconds
    counts: dict[str, int] = {"read": 0, "refused": 0, "bugs": 0, "slow": 0, "large": 0}
    longest, largest = 0.0, 0
    for path in known:  # what is imported on the way is not a part of any read
        with contextlib.suppress(CrowdwiseError):
            cw.read_export(path)
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end and known and counts["read"] + counts["refused"] + counts["bugs"] < asked.count:
            path, tool = draw.choice(list(known.items()))
            file = Path(folder) / path.name
            file.write_bytes(mutated(contents[path], list(contents.values()), draw))
            reset_peak()
            before, began = resident("VmRSS"), time.monotonic()
            try:
                cw.read_export(file, draw.choice(("auto", tool)), predictions=draw.random() < 0.5)
                counts["read"] += 1
            except Exception as error:
                ours = isinstance(error, CrowdwiseError) and not isinstance(error, InternalError)
                counts["refused" if ours else "bugs"] += 1
                if not ours:
                    traceback.print_exc()
            took, grown = time.monotonic() - began, max(resident("VmHWM") - before, 0)
            longest, largest = max(longest, took), max(largest, grown)
            odd = [("slow", took > SLOW), ("large", grown > max(TIMES * file.stat().st_size, FLOOR))]
            for name, there in odd:
                counts[name] += there
                if there:
                    sys.stderr.write(f"{name}: {path.name}, {took:.1f} s, {grown / 2**20:.0f} MB\n")
    facts = {"samples": len(known), **counts, "longest_s": round(longest, 2), "largest_mb": round(largest / 2**20, 1)}
    sys.stdout.write(json.dumps(facts) + "\n")
    return int(not known or any(counts[name] for name in ("bugs", "slow", "large")))


if __name__ == "__main__":
    sys.exit(main())
