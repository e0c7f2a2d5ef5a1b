"""The round trip with Label Studio, against recorded answers of a real server (``record.py`` makes them)."""

from __future__ import annotations

from pathlib import Path

import ls_scenario as scenario
import ls_server as rs
from ls_checks import check
from ls_exchanges import ADDRESS, Replay

from crowdwise.label_studio.ls_client import LabelStudioClient


def test_the_round_trip(tmp_path: Path) -> None:
    replay = Replay()
    seen = scenario.run(LabelStudioClient(ADDRESS, rs.TOKEN, transport=replay), tmp_path / "pulled", lambda _: None)
    check(seen, tmp_path / "pulled")
    assert replay.said == []
    assert replay.about == {"label_studio": "1.23.2"}
