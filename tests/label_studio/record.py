"""Record what a real Label Studio server answers in the scenario:

    .venv/bin/python tests/label_studio/record.py .venv-label-studio/bin/label-studio

``make test-label-studio`` makes that environment. The server is started with a fresh data folder; the exchanges go to
``exchanges.jsonl.gz``, which ``make test`` replays.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import ls_scenario as scenario
import ls_server as rs
from ls_checks import check
from ls_exchanges import ADDRESS, FILE, Recorder

from crowdwise.label_studio.ls_client import LabelStudioClient


def main() -> None:
    with tempfile.TemporaryDirectory() as data, tempfile.TemporaryDirectory() as folder:
        with rs.running(sys.argv[1], Path(data)) as address:
            recorder = Recorder(address)
            seen = scenario.run(
                LabelStudioClient(ADDRESS, rs.TOKEN, transport=recorder), Path(folder) / "pulled", time.sleep
            )
            version = LabelStudioClient(address, rs.TOKEN).get("/api/version")["release"]
        check(seen, Path(folder) / "pulled")
    recorder.save({"label_studio": version})
    sys.stdout.write(f"{len(recorder.said)} exchanges with Label Studio {version}: {FILE}\n")


if __name__ == "__main__":
    main()
