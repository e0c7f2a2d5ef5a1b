"""Two processes on the CPU learn what one does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import crowdwise as cw
from crowdwise import registry
from crowdwise.learners.devices import Processes, local_device
from learners.together import fits

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes, started as torchrun does, have written into a folder, and what they have said."""
    folder = tmp_path_factory.mktemp("together")
    made = cw.simulate.machine(n_annotators=5, n_items=120, votes_per_item=3, random_state=0)
    made.save(folder / "crowd")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    shared["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])
    command = [sys.executable, str(TESTS / "learners" / "together.py"), str(folder / "found"), "learn"]
    command += [str(folder / "crowd"), "--epochs", "3", "--seed", "0", "--json", "--out", str(folder / "model")]
    started = [
        subprocess.Popen(
            command, env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in "01"
    ]  # fmt: skip
    said = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [0, 0], said[0][1][-2000:]
    return folder, [out for out, _ in said], made


def test_two_processes_learn_what_one_does(together):
    folder = together[0]
    first, second = (np.load(folder / f"found-{rank}.npz") for rank in (0, 1))
    alone = fits()
    assert set(first.files) == set(alone)
    for name, expected in alone.items():
        np.testing.assert_allclose(first[name], expected, atol=2e-4, err_msg=name)
        np.testing.assert_allclose(second[name], first[name], atol=1e-6, err_msg=name)
    assert (folder / "found.safetensors").is_file()


def test_the_command_says_and_writes_its_result_once(together):
    folder, said, made = together
    assert json.loads(said[0])["method"] == "ensemble"
    assert said[1] == ""
    x = made.features["x_train"]
    alone = registry.find("ensemble", inputs=True).create(epochs=3, random_state=0).fit(x, made.votes)
    np.testing.assert_allclose(cw.load_learner(folder / "model").predict_proba(x), alone.predict_proba(x), atol=2e-4)


def test_parts_cover_all_rows_once(monkeypatch):
    for n in (8, 9, 131):
        parts = [Processes(rank, 4).part(n) for rank in range(4)]
        assert [a for a, _ in parts] == [0, *(b for _, b in parts[:-1])] and parts[-1][1] == n
    assert Processes(0, 4).part(7) is None  # too few: everybody computes all
    assert Processes().part(100) is None
    assert local_device("cuda") == "cuda"
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (local_device("cuda"), local_device("cpu"), local_device("cuda:0")) == ("cuda:1", "cpu", "cuda:0")


@pytest.mark.parametrize("flag", [True, False])
def test_one_process_decides_alone(flag):
    assert Processes().any(flag) is flag
