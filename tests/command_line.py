"""The command line in this process: what a command prints, and its exit code, without starting an interpreter."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

from crowdwise.cli.main import main


def run(*words: object, cwd: Any = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run([sys.executable, "-m", "crowdwise", *words], capture_output=True, text=True)``."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    command = ["crowdwise", *map(str, words)]
    with (
        mock.patch.object(sys, "argv", command),
        mock.patch.dict(os.environ, {"COLUMNS": "80", **(env or {})}),
        contextlib.chdir(cwd or "."),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code: Any = 0
        except SystemExit as stop:
            code = stop.code or 0
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(command, code, *texts)


def wait_for_work(process: subprocess.Popen[str], seconds: float) -> None:
    """Until a process has used so much of the processor: then it is in its work, however busy the machine is."""
    file, used = Path(f"/proc/{process.pid}/stat"), 0.0
    while used < seconds:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
        fields = file.read_text().rpartition(")")[2].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
