"""Compiled kernels on machines where nothing can be kept on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import crowdwise as cw
from crowdwise.kernels.compiler import njit

FIT = """
import crowdwise as cw
crowd = cw.simulate.one_coin(60, n_annotators=5, n_classes=3, votes_per_item=3, random_state=0)
print(cw.__file__, cw.aggregate(crowd.votes, "dawid-skene").labels.tolist(), sep="|")
"""


@pytest.mark.parametrize("home", [None, "~"])
def test_a_package_that_cannot_be_written_to(home: str | None, tmp_path: Path) -> None:
    """No cache beside the package (its place is taken by a file, which stops even root), and none at home."""
    copy = tmp_path / "lib" / "crowdwise"
    shutil.copytree(Path(cw.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "kernels" / "__pycache__").write_text("")
    (tmp_path / "blocked").write_text("")
    (tmp_path / "work").mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("HOME", "NUMBA_CACHE_DIR")}
    env |= {"PYTHONPATH": str(copy.parent), "CROWDWISE_ENGINE": "native", "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"XDG_CACHE_HOME": str(tmp_path / "blocked" / "cache")} | ({} if home is None else {"HOME": home})
    done = subprocess.run(
        [sys.executable, "-c", FIT], env=env, cwd=tmp_path / "work", capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    where, _, labels = done.stdout.strip().partition("|")
    crowd = cw.simulate.one_coin(60, n_annotators=5, n_classes=3, votes_per_item=3, random_state=0)
    assert where.startswith(str(copy)) and labels == str(cw.aggregate(crowd.votes, "dawid-skene").labels.tolist())
    assert not any((tmp_path / "work").iterdir())


def test_a_cache_that_fails_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = tmp_path / "counted.py"
    module.write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    from counted import twice  # type: ignore[import-not-found]

    first = njit(cache=True)(twice)
    assert first(3) == 6 and list((tmp_path / "__pycache__").glob("*.nbi"))
    for file in (tmp_path / "__pycache__").glob("*.nb*"):
        file.write_bytes(b"\x80damaged")
    again = njit(cache=True)(twice)
    assert again(np.float64(1.5)) == 3.0 and again(3) == 6
