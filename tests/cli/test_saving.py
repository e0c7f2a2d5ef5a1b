"""``--save`` and ``--out`` of folders, from where a user stands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crowdwise as cw
from command_line import run


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("crowd") / "crowd"
    cw.simulate.one_coin(30, n_annotators=5, n_classes=2, votes_per_item=3, random_state=0).save(place)
    X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    np.savez(place / "features.npz", x_train=X, allow_pickle=False)
    return place


def contents(place: Path) -> dict[str, bytes]:
    return {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()}


@pytest.mark.parametrize("command", ["aggregate", "learn"])
def test_the_current_folder_is_not_emptied(command: str, crowd: Path, tmp_path: Path) -> None:
    words = {
        "aggregate": ("aggregate", str(crowd), "--method", "majority", "--save", "."),
        "learn": ("learn", str(crowd), "--method", "two-stage", "--epochs", "1", "--out", "."),
    }[command]
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    marker = "consensus.json" if command == "aggregate" else "learner.json"
    (tmp_path / marker).write_text("{}", encoding="utf-8")  # looks like one of ours, by its name
    before = contents(tmp_path)
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 1 and "Nothing was touched" in done.stderr
    assert contents(tmp_path) == before
    (tmp_path / "thesis.txt").unlink()
    (tmp_path / marker).unlink()
    for _ in range(2):  # an empty folder, then one that holds our result alone
        assert run(*words, cwd=tmp_path).returncode == 0
        assert marker in contents(tmp_path)
    cw.load(tmp_path)
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    before = contents(tmp_path)
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 1 and "'notes.txt'" in done.stderr
    assert contents(tmp_path) == before


def test_without_a_home_or_a_place_for_temporary_files(tmp_path):
    import os
    import subprocess
    import sys

    (tmp_path / "labels.csv").write_text("item,annotator,label\na,x,1\na,y,1\nb,x,0\n")
    missing = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NUMBA_CACHE_DIR"), "/nonexistent")
    command = [sys.executable, "-m", "crowdwise", "aggregate", "labels.csv", "--out", "out.csv"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | missing, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert (tmp_path / "out.csv").read_text().startswith("item,label,probability")
