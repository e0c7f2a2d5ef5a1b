"""Large exports: how much memory reading one takes, beside the size of its file.

    python benchmarks/attack/large_exports.py [--megabytes 1000] [--only prodigy]

A file of each kind is written, read by a fresh process, and removed. Texts are a kilobyte, and 30 annotations share an
item, so that what must be held (answers, and each text once) is small beside the file. The exit status is 1 where more
than 700 bytes were held for each answer, and 64 MB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TEXT = "All work and no play makes Jack a dull boy. " * 23
SHARE = 30
READ = """
import sys, threading, time
from pathlib import Path
import numpy, polars, crowdwise as cw, crowdwise.data.votes, crowdwise.importers.export

def held():  # without the pages of files that are mapped, which the system takes back when it needs them
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

def watch():
    global peak
    while True:
        peak = max(peak, held())
        time.sleep(0.01)

before = peak = held()
threading.Thread(target=watch, daemon=True).start()
table = cw.read_export(sys.argv[1]).table()
print(before, max(peak, held()), table.n_votes)
"""


def prodigy(n: int) -> Iterator[str]:
    row = {"text": f"{n // SHARE} {TEXT}", "_input_hash": n // SHARE, "_task_hash": n, "options": [{"id": "a"}],
           "accept": ["ab"[n % 2]], "answer": "accept", "_annotator_id": f"d-{n % SHARE}"}  # fmt: skip
    yield json.dumps(row) + "\n"


def label_studio(n: int) -> Iterator[str]:
    made = [
        {"id": m, "completed_by": m % 9, "was_cancelled": False, "created_at": "2026-01-01T00:00:00Z", "x": TEXT[:800],
         "result": [{"from_name": "q", "to_name": "t", "type": "choices", "value": {"choices": ["ab"[m % 2]]}}]}
        for m in range(9)
    ]  # fmt: skip
    yield json.dumps({"id": n, "project": 1, "data": {"text": str(n)}, "annotations": made}) + "\n"


def mturk(n: int) -> Iterator[str]:
    if n == 0:
        yield "HITId,HITTypeId,Title,AssignmentId,WorkerId,AssignmentStatus,Input.id,Input.text,Answer.label\n"
    yield f'h{n // SHARE},t,"{TEXT}",a{n},w{n % SHARE},Approved,{n // SHARE},"short {n // SHARE}",{"ab"[n % 2]}\n'


def toloka(n: int) -> Iterator[str]:
    if n == 0:
        yield "INPUT:id\tINPUT:text\tOUTPUT:label\tASSIGNMENT:worker_id\tASSIGNMENT:status\tASSIGNMENT:link\n"
    yield f"{n // SHARE}\tshort\t{'ab'[n % 2]}\tw{n % SHARE}\tAPPROVED\t{TEXT}\n"


def zooniverse(n: int) -> Iterator[str]:
    if n == 0:
        yield "classification_id,user_name,workflow_id,workflow_name,created_at,metadata,annotations,subject_ids\n"
    said = '[{""task"":""T0"",""value"":""' + "ab"[n % 2] + '""}]'
    yield f'{n},u{n % SHARE},1,w,2026-01-01 00:00:00 UTC,"{{""x"":""{TEXT}""}}","{said}",{n // SHARE}\n'


KINDS: dict[str, tuple[str, Callable[[int], Iterator[str]]]] = {
    "prodigy": (".jsonl", prodigy), "label-studio": (".json", label_studio), "mturk": (".csv", mturk),
    "toloka": (".tsv", toloka), "zooniverse": (".csv", zooniverse),
}  # fmt: skip


def write(path: Path, make: Callable[[int], Iterator[str]], size: int) -> None:
    written = n = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            for text in make(n):
                written += file.write(text)
            n += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1000.0)
    parser.add_argument("--only", choices=list(KINDS))
    asked = parser.parse_args()
    worst = 0.0
    for key, (ending, make) in KINDS.items():
        if asked.only not in (None, key):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"export{ending}"
            write(path, make, int(asked.megabytes * 2**20))
            size = path.stat().st_size / 2**20
            began = time.monotonic()
            done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True)
            took = time.monotonic() - began
        if done.returncode:
            sys.stderr.write(done.stderr)
            return 1
        before, peak, votes = (float(word) for word in done.stdout.split())
        worst = max(worst, (peak - before - 64) * 2**20 / votes)
        facts = {"tool": key, "file_mb": round(size), "votes": int(votes), "memory_mb": round(peak - before)}
        sys.stdout.write(json.dumps({**facts, "seconds": round(took, 1)}) + "\n")
    return int(worst > 700)


if __name__ == "__main__":
    sys.exit(main())
