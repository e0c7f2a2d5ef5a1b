"""The command line in this process: what a command prints, and its exit code, without starting an interpreter."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
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
