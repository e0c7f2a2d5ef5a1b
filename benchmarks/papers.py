"""The papers' tables on images: networks trained on CIFAR-10 with simulated experts and with people's votes.

python benchmarks/papers.py --out results.jsonl --images FOLDER [--only max-mig-cifar10] [--seeds 0,1] [--jobs 3]
python benchmarks/papers.py --out results.jsonl --show --page docs/benchmarks/papers.md

What the file of results lacks is trained and appended; a run that was cut off continues from its checkpoints. Figures
of the page are drawn beside it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import papers_page
import papers_plan
import papers_runs
from papers_data import images_folder

HERE = Path(__file__).resolve().parent


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, nargs="?", default=HERE / "papers.toml", help="tables, crowds, learners")
    parser.add_argument("--out", type=Path, required=True, help="the results, a line for each finished cell (.jsonl)")
    parser.add_argument("--images", type=Path, help="the folder of CIFAR-10 (default: CROWDWISE_IMAGES)")
    parser.add_argument("--data", type=Path, help="a folder of data sets (default: CROWDWISE_DATA)")
    parser.add_argument("--only", help="patterns of table/crowd/learner/seed, comma-separated, the first first")
    parser.add_argument("--seeds", help="which seeds, comma-separated; else all")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the device")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument("--work", type=Path, help="the folder of checkpoints (default: beside the results)")
    parser.add_argument("--device", default="auto", help="auto, cuda, cpu...")
    parser.add_argument("--set", action="append", default=[], help="another setting for all cells, KEY=VALUE")
    parser.add_argument("--page", type=Path, help="write the page here (.md)")
    parser.add_argument("--show", action="store_true", help="train nothing: show what there is")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    given = parsed(words)
    tables = papers_plan.read_plan(given.plan, given.set)
    seeds = None if given.seeds is None else [int(word) for word in given.seeds.split(",")]
    cells = papers_plan.chosen(tables, given.only.split(",") if given.only else None, seeds)
    if not given.show:
        deadline = None if given.minutes is None else time.time() + 60.0 * given.minutes
        named = os.environ.get("CROWDWISE_DATA")
        folder = given.data or (Path(named) if named else None)
        work = given.work or given.out.with_suffix(".work")
        setup = papers_runs.Setup(given.images or images_folder(), folder, work, deadline, given.device)
        progress = cells_done(cells, papers_runs.finished(given.out))
        papers_runs.run(cells, setup, given.out, jobs=given.jobs, progress=progress)
    finished = papers_runs.finished(given.out)
    if given.page is not None:
        given.page.write_text(papers_page.page(tables, finished), encoding="utf-8")
        for name, svg in papers_page.figures(tables, finished).items():
            given.page.with_name(name).write_text(svg, encoding="utf-8")
    sys.stdout.write(papers_page.text(tables, finished) + "\n")


def cells_done(cells: Sequence[Any], done: Mapping[str, Any]) -> Callable[[dict[str, Any]], None]:
    """A callback for each finished cell, which writes a line about it: how many are done, its figures and seconds."""
    names = {cell.name for cell in cells}
    count = len(names & set(done))
    sys.stderr.write(f"{count} of {len(names)} cells are done.\n")

    def write_line(row: dict[str, Any]) -> None:
        nonlocal count
        count += row.get("problem") is None
        sys.stderr.write(f"{count}/{len(names)} {row['cell']}: {cell_line(row)}\n")

    return write_line


def cell_line(row: Mapping[str, Any]) -> str:
    """The figures of one cell, in percent."""
    if row.get("problem") is not None:
        return str(row["problem"])
    named = {"last": "accuracy_last", "selected": "accuracy_selected", "with votes": "accuracy_votes"}
    shown = [f"{name} {100 * row[key]:.2f}" for name, key in named.items() if row[key] is not None]
    return ", ".join((*shown, f"{row['seconds']:.0f} s ({row['epoch_seconds']:.2f} s per epoch)"))


if __name__ == "__main__":
    main()
