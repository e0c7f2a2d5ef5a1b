"""``--save`` and ``--out`` of folders, from where a user stands."""

from __future__ import annotations

import os
import subprocess
import sys
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
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,x,1\na,y,1\nb,x,0\n")
    missing = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NUMBA_CACHE_DIR"), "/nonexistent")
    command = [sys.executable, "-m", "crowdwise", "aggregate", "labels.csv", "--out", "out.csv"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | missing, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert (tmp_path / "out.csv").read_text().startswith("item,label,probability")


WITHOUT_RIGHTS = """
import sys
sys.path.insert(0, sys.argv[1])
from command_line import run
from pathlib import Path

for words, code, says in (
    ("aggregate labels.csv --out own/out.csv", 0, "written"),
    ("report labels.csv --out own/report.html", 0, "written"),
    ("campaign init own/campaign --classes 0,1", 0, "a campaign"),
    ("campaign status campaign", 0, ""),
    ("aggregate private.csv", 1, "private.csv could not be read: Permission denied"),
    ("aggregate labels.csv --out closed/out.csv", 1, "closed cannot be written to"),
    ("aggregate labels.csv --save closed/result", 1, "Permission denied"),
    ("aggregate labels.csv --save result", 1, "Permission denied"),
    ("report labels.csv --out closed/report.html", 1, "closed cannot be written to"),
    ("campaign init closed/campaign --classes 0,1", 1, "Permission denied"),
    ("campaign add campaign labels.csv", 1, "the folder is not yours"),
    ("serve --data closed/server --port 0", 1, "Permission denied"),
):
    done = run(*words.split())
    seen = " ".join(done.stderr.split())
    assert done.returncode == code and says in seen and "Traceback" not in seen, (words, done.returncode, seen)
assert sorted(p.name for p in Path("closed").iterdir()) == []
"""


def test_as_a_user_without_rights(tmp_path):
    """As somebody who may read the program and little else: root gives up its rights, others have none to give up."""
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,x,1\na,y,1\nb,x,0\nb,y,1\n")
    (tmp_path / "private.csv").write_text("item,annotator,label\na,x,1\n")
    assert run("aggregate", "labels.csv", "--save", "result", cwd=tmp_path).returncode == 0
    assert run("campaign", "init", "campaign", "--classes", "0,1", cwd=tmp_path).returncode == 0
    for name in ("own", "closed", "home"):
        (tmp_path / name).mkdir()
    kept = contents(tmp_path / "result") | contents(tmp_path / "campaign")
    for path in (*tmp_path.glob("result/**"), *tmp_path.glob("campaign/**"), tmp_path / "closed", tmp_path / "home"):
        path.chmod(path.stat().st_mode & 0o555)
    (tmp_path / "private.csv").chmod(0)
    drop = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    command = [*drop, sys.executable, "-c", WITHOUT_RIGHTS, str(Path(__file__).parents[1])]
    env = os.environ | {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "result") | contents(tmp_path / "campaign") == kept
